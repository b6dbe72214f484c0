//! Tests `doctor` through the binary, with servers that call natively, leak calls, or do not answer.

use std::os::unix::fs::PermissionsExt;

use sabir_testkit::{PageServer, ProviderReply, ReplyPart, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Map, Value, json};

use crate::dialects::HERMES_TEMPLATE;
use crate::world::{World, code, stderr, stdout};

/// Returns the user's last message, which shows the probe.
fn asked(request: &Value) -> String {
    request["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|message| message["content"].to_string())
        .collect()
}

fn words(text: &str) -> ProviderReply {
    ProviderReply {
        say: vec![ReplyPart::Text {
            text: text.to_owned(),
        }],
        delta: 3,
        ..ProviderReply::default()
    }
}

fn note(id: usize, text: &str) -> ReplyPart {
    let arguments = Map::from_iter([("text".to_owned(), Value::from(text))]);
    ReplyPart::Call {
        id: format!("call_{id}"),
        name: "note".to_owned(),
        arguments,
    }
}

/// Returns the text that the question asks the model to pass on.
fn wanted(question: &str) -> String {
    let text: String = serde_json::from_str(question).unwrap();
    text.split("exactly this text: ")
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// A model that does what it is asked, natively or as text in the hermes dialect.
pub(crate) fn obedient(leaks: bool) -> ReplyScript {
    ReplyScript::from_fn(move |_, request| {
        let question = asked(&request.body);
        if question.contains("Count from") {
            return ProviderReply {
                usage: sabir_call::Usage {
                    input: Some(20),
                    output: Some(40),
                    ..Default::default()
                },
                ..words("1 2 3 4")
            };
        }
        if question.contains("7341") {
            return words("The number is 7341.");
        }
        if question.contains("twice") {
            return ProviderReply {
                say: vec![note(1, "one"), note(2, "two")],
                delta: 3,
                ..ProviderReply::default()
            };
        }
        let last =
            request.body["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
        let text = wanted(&last);
        if leaks {
            return words(&format!(
                "<tool_call>\n{}\n</tool_call>",
                json!({"name": "note", "arguments": {"text": text}})
            ));
        }
        ProviderReply {
            say: vec![note(1, &text)],
            delta: 3,
            ..ProviderReply::default()
        }
    })
}

fn examined(world: &World, provider: &ScriptedProvider, arguments: &[&str]) -> (i32, Value) {
    let arguments = [&["doctor", "openai/m-1", "--output", "json"], arguments].concat();
    let output = world.sabir_with(provider).args(arguments).output().unwrap();
    (
        code(&output),
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output))),
    )
}

fn verdicts(found: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (text(&row["name"]), text(&row["verdict"])))
        .collect()
}

#[test]
fn a_server_with_native_calls_is_recognized() {
    let world = World::new();
    let provider = world.provider(obedient(false));
    let (code, found) = examined(&world, &provider, &[]);
    assert_eq!(
        (code, &found["protocol"]),
        (0, &json!("native")),
        "{found:#}"
    );
    for (name, verdict) in verdicts(&found) {
        assert_eq!(verdict == "yes", name != "leaks", "{name} in {found:#}");
    }
}

#[test]
fn a_leaking_server_is_prompted_and_the_result_is_saved() {
    let world = World::new();
    let provider = world.provider(obedient(true));
    let path = world.home.path().join("config.toml");
    std::fs::write(&path, "# mine\nmax_turns = 7\n").unwrap();
    let file = path.display().to_string();
    let (code, found) = examined(&world, &provider, &["--store", "--config", &file]);
    assert_eq!(
        (code, &found["protocol"]),
        (0, &json!("hermes")),
        "{found:#}"
    );
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept.starts_with("# mine\nmax_turns = 7\n") && kept.contains("dialect = \"hermes\""),
        "{kept}"
    );
    // The next task is prompted in it.
    let output = world
        .sabir_with(&provider)
        .args(["models", "m-1", "--output", "json", "--config", &file])
        .output()
        .unwrap();
    assert!(stdout(&output).contains("hermes"), "{}", stdout(&output));
}

#[test]
fn silent_servers_and_models_without_calls_are_reported() {
    let world = World::new();
    let mute = world.provider(ReplyScript::from_fn(|_, _| words("I would rather not.")));
    assert_eq!(examined(&world, &mute, &[]).0, 4);
    let broken = ProviderReply {
        trouble: Some(sabir_testkit::ScriptedFault::Status {
            status: 401,
            headers: vec![],
            body: String::new(),
        }),
        ..ProviderReply::default()
    };
    let refusing = world.provider(ReplyScript::from_fn(move |_, _| broken.clone()));
    let (code, found) = examined(&world, &refusing, &[]);
    assert_eq!((code, verdicts(&found).len()), (7, 1), "{found:#}");
}

#[test]
fn a_server_is_examined_by_its_address() {
    let world = World::new();
    let pages = PageServer::start(vec![(
        "/v1/models",
        200,
        Some(json!({"data": [{"id": "a"}, {"id": "b"}]}).to_string()),
    )])
    .unwrap();
    let url = format!("http://{}/v1", pages.address());
    let output = world.sabir().args(["doctor", &url]).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("a, b"), "{}", stderr(&output));
    let provider = world.provider(obedient(false));
    let url = format!("{}#m-1", provider.base_url(Wire::OpenAiChat));
    let output = world.sabir().args(["doctor", &url]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stdout(&output).contains("recommended: native"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn doctor_names_the_dialects_of_the_templates_that_servers_show() {
    let world = World::new();
    let models = || {
        (
            "/v1/models",
            200,
            Some(json!({"data": [{"id": "m"}]}).to_string()),
        )
    };
    let props = json!({
        "default_generation_settings": {"n_ctx": 4096},
        "chat_template": HERMES_TEMPLATE,
    });
    let llama = PageServer::start(vec![models(), ("/props", 200, Some(props.to_string()))]);
    let llama = llama.unwrap();
    let tags = json!({"models": [{"name": "m"}]}).to_string();
    let ollama = PageServer::start(vec![("/api/tags", 200, Some(tags))]).unwrap();
    let other = PageServer::start(vec![models()]).unwrap();
    let text = format!(
        "[providers.\"llama.cpp\"]\nbase_url = \"http://{}\"\n[providers.ollama]\nbase_url = \"http://{}\"\n\
         [providers.vllm]\nbase_url = \"http://{}\"\n",
        llama.address(),
        ollama.address(),
        other.address()
    );
    let path = world.configure(text).display().to_string();
    let output = world
        .sabir()
        .args(["doctor", "--config", &path, "--output", "json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found = |address: std::net::SocketAddr| {
        let templates = report["templates"].as_array().unwrap().clone();
        let url = format!("http://{address}");
        let template = templates
            .into_iter()
            .find(|template| template["base_url"] == url);
        template.unwrap_or_else(|| panic!("{report:#}"))
    };
    assert_eq!(found(llama.address())["dialect"], "hermes");
    for (address, why) in [
        (ollama.address(), "templates of Go"),
        (other.address(), "does not show"),
    ] {
        let template = found(address);
        assert_eq!(template["dialect"], Value::Null);
        assert!(template["reason"].to_string().contains(why), "{template}");
    }
    // The template itself is no part of the report.
    assert!(!stdout(&output).contains("im_start"));
}

#[test]
fn doctor_without_a_model_reports_the_setup_and_no_key() {
    let world = World::new();
    let path = world.home.path().join("config.toml");
    std::fs::write(
        &path,
        "[providers.box]\nbase_url = \"http://127.0.0.1:1/v1\"\nkey = \"sk-hush-1234\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let check = |mode: u32, output: &str, expected: i32, words: &[&str]| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let arguments = [
            "doctor",
            "--output",
            output,
            "--config",
            &path.display().to_string(),
        ];
        let out = world
            .sabir()
            .env("GROQ_API_KEY", "gsk-hush-5678")
            .args(arguments)
            .output()
            .unwrap();
        let text = format!("{}{}", stdout(&out), stderr(&out));
        assert_eq!(code(&out), expected, "{text}");
        assert!(!text.contains("hush"), "{text}");
        for word in words {
            assert!(text.contains(word), "no {word} in {text}");
        }
    };
    check(
        0o600,
        "text",
        0,
        &[
            "box (configuration)",
            "groq (GROQ_API_KEY)",
            "sandbox",
            "journals",
        ],
    );
    check(
        0o600,
        "json",
        0,
        &[
            "\"sandbox\":{\"asked\":\"best\",\"level\":\"",
            "\"version\"",
            "GROQ_API_KEY",
        ],
    );
    check(0o644, "text", 2, &["chmod 600"]);
}
