//! Tests providers, keys, local servers and the cost of tasks through the binary.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use sabir_call::Usage;
use sabir_testkit::{PageServer, ProviderReply, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, stderr, stdout, turn};

/// Keys in these tests begin so; nothing that is printed or kept may hold it.
const HUSH: &str = "sk-hush";

/// A configuration file of that mode in the home.
fn config(world: &World, mode: u32, text: &str) -> String {
    let path = world.home.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

/// A program that counts its runs in `runs` and then does what `script` says; `$n` is the count.
fn program(world: &World, script: &str) -> PathBuf {
    let path = world.home.path().join("key.sh");
    let runs = world.home.path().join("runs");
    let text = format!(
        "#!/bin/sh\necho x >> '{0}'\nn=$(wc -l < '{0}')\n{script}\n",
        runs.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.home.path().join("runs"))
        .unwrap_or_default()
        .lines()
        .count()
}

/// All that was written to the home and the workspace, but for what the tests wrote themselves.
fn kept(world: &World) -> String {
    let mut text = String::new();
    let mut folders = vec![
        world.home.path().join(".local"),
        world.work.path().to_owned(),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => text += &String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()),
            }
        }
    }
    text
}

/// Runs the binary, and checks that no key is printed or stored.
fn sabir(world: &World, arguments: &[&str]) -> Output {
    let output = world.sabir().args(arguments).output().unwrap();
    for (place, text) in [
        ("stdout", stdout(&output)),
        ("stderr", stderr(&output)),
        ("journal", kept(world)),
    ] {
        assert!(
            !text.contains(HUSH),
            "a key on {place} of {arguments:?}:\n{text}"
        );
    }
    output
}

fn done() -> ProviderReply {
    ProviderReply::text("").with_call("c1", "attempt_completion", json!({"result": "done"}))
}

/// A provider that accepts a key only if `good` returns true, and quotes a bad one as some providers do.
fn picky(
    world: &World,
    good: impl Fn(usize, &str) -> bool + Send + Sync + 'static,
) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(move |turn, request| {
        let key = request.header_value("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        if good(turn, &key) {
            return if turn < 2 { ProviderReply::text("Hm.") } else { done() };
        }
        let body =
            json!({"error": {"message": format!("Incorrect API key provided: {key}"), "code": "invalid_api_key"}});
        ProviderReply::error_status(401).with_body(&body.to_string())
    }))
}

#[test]
fn keys_come_from_a_file_that_only_the_user_reads() {
    let world = World::new();
    let provider = picky(&world, |_, key| key == "sk-hush-file");
    let base = provider.base_url(Wire::OpenAiChat);
    let text = format!("[providers.box]\nbase_url = \"{base}\"\nkey = \"sk-hush-file\"\n");
    for mode in [0o644, 0o640, 0o604] {
        let path = config(&world, mode, &text);
        let output = sabir(&world, &["run", "--config", &path, "--model", "box/m", "x"]);
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains(&format!("chmod 600 {path}")),
            "{}",
            stderr(&output)
        );
    }
    let path = config(&world, 0o600, &text);
    let output = sabir(&world, &["run", "--config", &path, "--model", "box/m", "x"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // A file without a key may be read by all.
    let path = config(&world, 0o644, "model = \"box/m\"\n");
    assert_eq!(
        code(&sabir(
            &world,
            &["models", "--config", &path, "nothing-like-it"]
        )),
        0
    );
}

#[test]
fn a_file_that_cannot_be_read_shows_no_key() {
    let world = World::new();
    for (text, expected) in [
        (
            "[providers.box]\nkey = \"sk-hush-1\" oops\n",
            "line 2, column 19",
        ),
        ("[providers.box]\nkey = sk-hush-1\n", "line 2"),
        ("[providers]\nbox = \"sk-hush-1\"\n", "line 2, column 7"),
        ("[providers.box]\nretries = \"sk-hush\\t1\"\n", "line 2"),
        (
            "[providers.box]\nkey = [\"sk-hush-1\"]\n",
            "a key must be a text in quotes",
        ),
        (
            "[providers.box]\napi_key = \"sk-hush-1\"\n",
            "unknown key `api_key` in `[providers.box]`: did you mean `api_key_",
        ),
        (
            "[providers.box]\nkey_env = \"sk-hush-1\"\nbase_url = \"http://127.0.0.1:1\"\n",
            "name of an environment variable",
        ),
        (
            "[providers.box]\nkey = \"sk-hush-1\"\nkey_env = \"BOX\"\n",
            "one of key, key_env and api_key_command",
        ),
        (
            "[providers.box]\nkey = \" \"\nbase_url = \"http://127.0.0.1:1\"\n",
            "`key` is empty",
        ),
        (
            "[providers.box]\napi_key_command = []\n",
            "names no program",
        ),
        ("max_turns = \"sk-hush-1\"\n", "line 1"),
        (
            "[[models]]\npattern = \"m\"\nprices = { input = \"sk-hush-1\" }\n",
            "line 3",
        ),
    ] {
        let path = config(&world, 0o600, text);
        let output = sabir(&world, &["run", "--config", &path, "--model", "box/m", "x"]);
        assert_eq!(code(&output), 2, "{text}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(expected),
            "{text}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_command_prints_the_key_once() {
    let world = World::new();
    let provider = picky(&world, |_, key| key == "sk-hush 'one'");
    let base = provider.base_url(Wire::OpenAiChat);
    let key = program(
        &world,
        "echo \"unlocking $1\" >&2\nprintf '%s\\nnotes: sk-hush-notes\\n' \"sk-hush 'one'\"",
    );
    let command = json!([key.display().to_string(), "it's $HOME"]).to_string();
    let text = format!("[providers.box]\nbase_url = \"{base}\"\napi_key_command = {command}\n");
    let path = config(&world, 0o644, &text);
    let output = sabir(&world, &["run", "--config", &path, "--model", "box/m", "x"]);
    assert_eq!((code(&output), runs(&world)), (0, 1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("unlocking it's $HOME\n"),
        "{}",
        stderr(&output)
    );
    // A list runs no command.
    let output = sabir(
        &world,
        &["models", "--config", &path, "box", "--output", "json"],
    );
    let listed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&listed["providers"][0]["key"], runs(&world)),
        (&json!({"from": "command"}), 1)
    );
}

/// F-STR-19: a refused key is fetched exactly once more.
#[test]
fn a_refused_key_is_fetched_exactly_once_more() {
    /// A case: the keys that are valid at each request, the exit code, and the number of runs of the command.
    type Case = (fn(usize, &str) -> bool, i32, usize);
    let cases: [Case; 4] = [
        (|_, key| key == "sk-hush-1", 0, 1),
        (|_, key| key == "sk-hush-2", 0, 2),
        (|_, _| false, 2, 2),
        // It expires in the middle of the task.
        (
            |turn, key| key == if turn < 2 { "sk-hush-1" } else { "sk-hush-2" },
            0,
            2,
        ),
    ];
    for (at, (good, end, fetched)) in cases.into_iter().enumerate() {
        let world = World::new();
        let provider = picky(&world, good);
        let base = provider.base_url(Wire::OpenAiChat);
        let key = program(&world, "echo sk-hush-$n");
        let command = json!([key.display().to_string()]).to_string();
        let text = format!("[providers.box]\nbase_url = \"{base}\"\napi_key_command = {command}\n");
        let path = config(&world, 0o644, &text);
        let arguments = ["run", "--config", &path, "--model", "box/m"];
        let output = sabir(
            &world,
            &[&arguments[..], &["--completion", "call", "x"]].concat(),
        );
        assert_eq!(
            (code(&output), runs(&world)),
            (end, fetched),
            "case {at}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_failing_key_command_is_reported_without_its_output() {
    let world = World::new();
    for (script, expected) in [
        ("echo sk-hush-1; exit 3", "ended with code 3"),
        (
            "echo sk-hush-1; sleep 60 & sleep 60",
            "did not end within 1 seconds",
        ),
        ("echo", "printed no key"),
        (
            "head -c 100000 /dev/zero | tr '\\0' x",
            "printed more than a key",
        ),
        ("printf 'sk-hush-\\377'", "no UTF-8"),
    ] {
        let key = program(&world, script);
        let command = json!([key.display().to_string()]).to_string();
        let text = format!(
            "[providers.box]\nbase_url = \"http://127.0.0.1:1\"\napi_key_command = {command}\napi_key_seconds = 1\n"
        );
        let path = config(&world, 0o644, &text);
        let output = sabir(&world, &["run", "--config", &path, "--model", "box/m", "x"]);
        assert_eq!(code(&output), 2, "{script}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(expected) && stderr(&output).contains("key.sh"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn an_address_can_name_a_model() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| done()));
    let base = provider.base_url(Wire::OpenAiChat);
    let model = format!("{base}#some/model");
    let output = world
        .sabir()
        .env("OPENAI_API_KEY", "sk-hush-1")
        .args(["run", "--model", &model, "x"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let asked = provider.received_requests();
    assert_eq!(
        (
            asked[0].body["model"].as_str(),
            asked[0].header_value("authorization")
        ),
        (Some("some/model"), None)
    );
    for (model, expected) in [
        (base.as_str(), "needs a name"),
        ("http://me:sk-hush@127.0.0.1:1/v1#m", "without a password"),
        ("http://127.0.0.1:1/v1?key=sk-hush#m", "without a password"),
        ("http://#m", "http://HOST:PORT/v1#NAME"),
    ] {
        let output = sabir(&world, &["run", "--model", model, "x"]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn models_are_listed_with_the_servers_of_this_machine() {
    let world = World::new();
    let tags = r#"{"models":[{"name":"qwen3:8b"},{"name":"long-name-\u001b[31m-of-a-model-that-somebody-has-given-it-for-no-good-reason-at-all:latest"}]}"#;
    let ollama = PageServer::start(vec![("/api/tags", 200, Some(tags.to_owned()))]).unwrap();
    let data = r#"{"data":[{"id":"m","owned_by":"vllm","max_model_len":32768}]}"#;
    let own = PageServer::start(vec![("/v1/models", 200, Some(data.to_owned()))]).unwrap();
    let silent = PageServer::start(vec![("/v1/models", 200, None)]).unwrap();
    let text = format!(
        "[providers.ollama]\nbase_url = \"http://{}/v1\"\n[providers.vllm]\nbase_url = \"http://{}\"\n\
         [providers.box]\nbase_url = \"http://{}\"\nkey_env = \"BOX_KEY\"\n\
         [providers.\"llama.cpp\"]\nbase_url = \"http://127.0.0.1:9\"\n[providers.lmstudio]\nbase_url = \"http://127.0.0.1:9\"\n\
         [[models]]\npattern = \"mine\"\nprices = {{ input = 0.5, output = 1 }}\n",
        ollama.address(),
        silent.address(),
        own.address()
    );
    let path = config(&world, 0o644, &text);
    let list = |arguments: &[&str]| {
        let mut command = world.sabir();
        command
            .env("OPENAI_API_KEY", "sk-hush-1")
            .env("GOOGLE_API_KEY", "sk-hush-2")
            .env("GROQ_API_KEY", " ");
        let output = command
            .args(["models", "--config", &path])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let text = stdout(&output);
        assert!(!text.contains(HUSH) && !text.contains('\u{1b}'), "{text}");
        assert!(
            text.lines()
                .all(|line| arguments.contains(&"json") || line.chars().count() <= 100),
            "{text}"
        );
        text
    };
    let text = list(&[]);
    for part in [
        "OPENAI_API_KEY is set",
        "GOOGLE_API_KEY is set",
        "GROQ_API_KEY is not set",
        "BOX_KEY is not set",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let json: Value = serde_json::from_str(&list(&["--output", "json"])).unwrap();
    let names: Vec<_> = json["local"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["provider"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["box", "ollama"]);
    assert_eq!(
        json["local"][0]["models"],
        json!([{"id": "m", "context": 32768}])
    );
    let key = |name: &str| {
        json["providers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == name)
            .unwrap()["key"]
            .clone()
    };
    assert_eq!(
        key("groq"),
        json!({"from": "environment", "names": ["GROQ_API_KEY"], "present": null})
    );
    assert_eq!(key("gemini")["present"], "GOOGLE_API_KEY");
    assert_eq!(key("ollama"), json!({"from": "nowhere"}));
    assert_eq!(
        json["models"][0]["prices"],
        json!({"input": 0.5, "output": 1})
    );
    let local: Value =
        serde_json::from_str(&list(&["--local", "--output", "json", "qwen"])).unwrap();
    assert_eq!(
        local["local"][0]["models"],
        json!([{"id": "qwen3:8b", "context": null}])
    );
    assert_eq!(local.as_object().unwrap().len(), 1);
    assert!(list(&["no-such-thing"]).contains("no name contains this text"));
}

/// Four turns of a thousand tokens in and a hundred out.
fn costly(world: &World) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(|turn, _| {
        let reply = match turn {
            0..3 => ProviderReply::text("").with_call(
                &format!("c{turn}"),
                "list_files",
                json!({"path": "."}),
            ),
            _ => done(),
        };
        let usage = Usage {
            input: Some(1000),
            output: Some(100),
            cache_read: Some(400),
            reasoning: Some(60),
            ..Usage::default()
        };
        ProviderReply { usage, ..reply }
    }))
}

const PRICES: &str =
    "[[models]]\npattern = \"scripted\"\nprices = { input = 1, output = 10, cache_read = 0.1 }\n";

#[test]
fn the_cost_of_a_task_is_shown_everywhere() {
    let world = World::new();
    let provider = costly(&world);
    let path = config(&world, 0o644, PRICES);
    let run = |output: &str| {
        let arguments = [
            "run",
            "--config",
            &path,
            "--model",
            "openai/scripted",
            "--output",
            output,
            "x",
        ];
        world
            .sabir_with(&provider)
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = run("json");
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    // Of each answer: 600 fresh, 400 cached, 100 out.
    assert_eq!(
        told["cost"],
        json!({"nano_usd": 4 * (600_000 + 40_000 + 1_000_000)})
    );
    assert_eq!(
        told["usage"],
        json!({"input": 4000, "output": 400, "cache_read": 1600, "reasoning": 240})
    );
    assert_eq!(told["estimate"], json!({}));
    let task = world.only_task();
    let log = stdout(&world.sabir().args(["log", &task]).output().unwrap());
    let answer = "  1,000 tokens in (400 cached), 100 tokens out (60 reasoning), $0.0016\n";
    let all = "4,000 tokens in (1,600 cached), 400 tokens out (240 reasoning), $0.0066\n";
    assert!(
        log.matches(answer).count() == 4 && log.contains(&format!("in all: {all}")),
        "{log}"
    );
    let log: Value = serde_json::from_str(&stdout(
        &world
            .sabir()
            .args(["log", &task, "--output", "json"])
            .output()
            .unwrap(),
    ))
    .unwrap();
    assert_eq!(
        (&log["cost"], &log["usage"]),
        (&told["cost"], &told["usage"])
    );

    let world = World::new();
    let provider = costly(&world);
    let path = config(&world, 0o644, PRICES);
    let arguments = ["run", "--config", &path, "--model", "openai/scripted", "x"];
    let output = world
        .sabir_with(&provider)
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "done\n");
    assert!(
        stderr(&output).contains(&format!("4 turns: {all}")),
        "{}",
        stderr(&output)
    );

    // The same without prices.
    let world = World::new();
    let provider = costly(&world);
    let arguments = [
        "run",
        "--model",
        "openai/scripted",
        "--output",
        "events",
        "x",
    ];
    let output = world
        .sabir_with(&provider)
        .args(arguments)
        .output()
        .unwrap();
    let answers: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "answered")
        .collect();
    assert!(answers.len() == 4 && answers.iter().all(|answer| answer.get("cost").is_none()));
    let log = stdout(
        &world
            .sabir()
            .args(["log", &world.only_task()])
            .output()
            .unwrap(),
    );
    assert!(log.ends_with("cost unknown\n"), "{log}");
}

#[test]
fn a_cost_limit_is_enforced() {
    let world = World::new();
    let provider = costly(&world);
    let path = config(&world, 0o644, PRICES);
    let run = |cost: &str, model: &str| {
        let arguments = [
            "run",
            "--config",
            &path,
            "--model",
            model,
            "--max-cost",
            cost,
            "--output",
            "json",
            "x",
        ];
        world
            .sabir_with(&provider)
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = run("0.003", "openai/scripted");
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&told["turns"], &told["outcome"]),
        (&json!(2), &json!("limit"))
    );
    assert_eq!(told["message"], "the limit of $0.0030 was reached: $0.0033");
    // The rest of it costs no more than the limit again.
    let arguments = [
        "resume",
        "--config",
        &path,
        "--max-cost",
        "0.004",
        "--output",
        "json",
    ];
    let output = world
        .sabir_with(&provider)
        .args(arguments)
        .output()
        .unwrap();
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (code(&output), &told["cost"]["nano_usd"]),
        (0, &json!(4 * 1_640_000)),
        "{}",
        stderr(&output)
    );
    // With unknown prices a cost limit cannot be enforced.
    for (cost, model, expected) in [
        ("1", "openai/other", "--max-cost cannot be enforced"),
        (
            "1",
            "anthropic/claude-opus-4-5",
            "--max-cost cannot be enforced",
        ),
        (
            "much",
            "openai/scripted",
            "`much` is not an amount of dollars",
        ),
    ] {
        let output = run(cost, model);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_pattern_with_a_providers_name_sets_more_than_prices() {
    for (pattern, protocol) in [
        ("openai/scripted", json!({"prompted": "cline"})),
        ("anthropic/scripted", json!("native")),
    ] {
        let world = World::new();
        world.configure(format!(
            "[[models]]\npattern = \"{pattern}\"\ndialect = \"cline\"\n"
        ));
        let provider = world.provider(ReplyScript::from_fn(|_, _| {
            ProviderReply::error_status(400)
        }));
        let ran = world
            .sabir_with(&provider)
            .args(["run", "--model", "openai/scripted", "x"])
            .output()
            .unwrap();
        assert_eq!(code(&ran), 7, "{}", stderr(&ran));
        let log = world
            .sabir()
            .args(["log", &world.only_task(), "--output", "events"])
            .output()
            .unwrap();
        assert_eq!(events(&log)[0]["protocol"], protocol, "{pattern}");
    }
}

/// The scripted provider answers as a proxy would: for a host that does not exist.
#[test]
fn providers_are_reached_through_the_proxy_of_the_environment() {
    let world = World::new();
    let provider = world.plays(
        WAYS[1],
        &[turn(
            "",
            vec![("attempt_completion", json!({"result": "Done."}))],
        )],
    );
    let address = provider.base_url(Wire::OpenAiChat);
    let address = address.split("/v1").next().unwrap().to_owned();
    let run = |exceptions: &str| {
        let mut command = world.sabir();
        command
            .env("OPENAI_BASE_URL", "http://models.invalid/v1")
            .env("OPENAI_API_KEY", "sk-secret-test")
            .env("http_proxy", address.replace("://", "://user:pass@"))
            .env("NO_PROXY", exceptions);
        command.args(["run", "--retries", "0", "--model", WAYS[1].model(), "Go."]);
        command.output().unwrap()
    };
    let direct = run("localhost,.invalid");
    assert_eq!(code(&direct), 7, "{}", stderr(&direct));
    assert_eq!(provider.received_requests().len(), 0);
    let output = run("localhost");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(provider.received_requests().len(), 1);
    let mut doctor = world.sabir();
    doctor
        .args(["doctor"])
        .env("http_proxy", address.replace("://", "://user:pass@"));
    let shown = stdout(&doctor.output().unwrap());
    assert!(
        shown.contains(&format!("network        http_proxy={address}\n"))
            && !shown.contains("pass"),
        "{shown}"
    );
}
