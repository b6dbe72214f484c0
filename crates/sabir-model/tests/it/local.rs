//! Tests the search for model servers on this machine, with scripted servers on free ports.

use std::time::{Duration, Instant};

use sabir_model::{ProbeTarget, ServedModel, probe_servers};
use sabir_testkit::{PageServer, StaticPage};

fn page(path: &'static str, body: &str) -> StaticPage {
    (path, 200, Some(body.to_owned()))
}

fn look(pages: &[PageServer], limit: u64) -> Vec<sabir_model::LocalServer> {
    let places: Vec<_> = pages
        .iter()
        .enumerate()
        .map(|(at, pages)| ProbeTarget {
            provider: format!("p{at}"),
            base_url: format!("http://{}/v1", pages.address()),
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(probe_servers(&places, Duration::from_millis(limit)))
}

/// The responses of a server, its kind, and its models with their contexts.
type Kind = (
    Vec<StaticPage>,
    Option<&'static str>,
    Vec<(&'static str, Option<u64>)>,
);

/// The responses of each kind of server, with their oddities.
fn kinds() -> Vec<Kind> {
    let openai = |owner: &str, more: &str| {
        format!(
            r#"{{"object":"list","data":[{{"id":"m-1","object":"model","owned_by":"{owner}"{more}}}]}}"#
        )
    };
    let ollama = r#"{"models":[{"name":"qwen3:8b","size":5,"details":{"family":"qwen3"}},{"name":"gemma3:latest"}]}"#;
    let odd = r#"{"error":"Unexpected endpoint or method. (GET /props)"}"#;
    vec![
        (
            vec![
                page("/api/tags", ollama),
                page("/v1/models", &openai("library", "")),
            ],
            Some("ollama"),
            vec![("qwen3:8b", None), ("gemma3:latest", None)],
        ),
        (
            vec![page("/api/tags", r#"{"models":[]}"#)],
            Some("ollama"),
            vec![],
        ),
        (
            vec![
                page(
                    "/v1/models",
                    &openai("llamacpp", r#","meta":{"n_ctx_train":131072}"#),
                ),
                page(
                    "/props",
                    r#"{"default_generation_settings":{"n_ctx":16384},"model_path":"/m.gguf"}"#,
                ),
            ],
            Some("llama.cpp"),
            vec![("m-1", Some(16_384))],
        ),
        (
            vec![page(
                "/v1/models",
                &openai("vllm", r#","max_model_len":32768"#),
            )],
            Some("vllm"),
            vec![("m-1", Some(32_768))],
        ),
        // LM Studio answers every path with 200.
        (
            vec![
                page("/v1/models", &openai("organization_owner", "")),
                page("/props", odd),
                page("/api/tags", odd),
            ],
            None,
            vec![("m-1", None)],
        ),
    ]
}

#[test]
fn each_kind_of_server_is_recognized() {
    let servers: Vec<_> = kinds()
        .into_iter()
        .map(|(pages, ..)| PageServer::start(pages).unwrap())
        .collect();
    let found = look(&servers, 5000);
    let expected = kinds();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (at, (found, (_, software, models))) in found.iter().zip(&expected).enumerate() {
        let models: Vec<_> = models
            .iter()
            .map(|(id, context)| ServedModel {
                id: (*id).to_owned(),
                context: *context,
            })
            .collect();
        assert_eq!(
            (&found.provider, found.software, &found.models),
            (&format!("p{at}"), *software, &models)
        );
    }
}

#[test]
fn other_servers_are_left_out() {
    let servers = [
        vec![page("/v1/models", "<html>Sign in</html>")],
        vec![page("/v1/models", r#"{"data":[{"name":"no id"}]}"#)],
        vec![("/v1/models", 401, Some(String::new()))],
        vec![page(
            "/v1/models",
            &format!(r#"{{"data":["{}"]}}"#, "x".repeat(2 << 20)),
        )],
    ];
    let servers: Vec<_> = servers
        .into_iter()
        .map(|pages| PageServer::start(pages).unwrap())
        .collect();
    let found = look(&servers, 5000);
    assert_eq!(
        found
            .iter()
            .map(|server| (server.provider.as_str(), server.locked))
            .collect::<Vec<_>>(),
        [("p2", true)]
    );
}

#[test]
fn a_silent_server_times_out() {
    let silent = || PageServer::start(vec![("/v1/models", 200, None)]).unwrap();
    let good = PageServer::start(vec![page("/v1/models", r#"{"data":[{"id":"a"}]}"#)]).unwrap();
    let servers = [silent(), silent(), good, silent()];
    let start = Instant::now();
    let found = look(&servers, 3000);
    assert_eq!(
        found
            .iter()
            .map(|server| server.provider.as_str())
            .collect::<Vec<_>>(),
        ["p2"]
    );
    assert!(
        start.elapsed() < Duration::from_millis(8500),
        "one deadline for all, not one after the other"
    );
}
