//! Tests that the documentation shows what really happens: the example of the README, the guide, the messages of
//! troubleshooting, and that its pages and links exist.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::gateway::{Running, before};
use crate::interactive::Talk;
use crate::world::{WAYS, World, code, stderr, stdout, turn};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

/// The blocks of a language in a text, without their fences.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            _ if line == fence => {
                inside = true;
                blocks.push(String::new());
            }
            _ if line.starts_with("```") => inside = false,
            _ if inside => blocks.last_mut().unwrap().extend([line, "\n"]),
            _ => {}
        }
    }
    blocks
}

/// The first block is what the model says, the second what a client of the gateway gets for it.
#[test]
fn the_readme_shows_what_the_gateway_returns() {
    let shown: Vec<Value> = blocks(&page("README.md"), "json")
        .iter()
        .map(|block| serde_json::from_str(block).unwrap())
        .collect();
    let [said, expected] = shown.as_slice() else {
        panic!("{shown:?}")
    };
    assert_eq!(said["finish_reason"], "stop");
    let content = said["message"]["content"].as_str().unwrap().to_owned();
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        ProviderReply::text(&*content)
    }));
    let gateway = Running::start(&mut before(&world, &provider, &[]));
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let request = json!({
        "model": "qwen", "messages": [{"role": "user", "content": "What does it do?"}],
        "tools": [{"type": "function", "function": {"name": "read_file", "parameters": parameters}}],
    });
    let response = gateway.ask("POST", "/v1/chat/completions", &request.to_string());
    // The object is in one chunk of the body.
    let body = response.find('{').zip(response.rfind('}'));
    let (start, end) = body.unwrap_or_else(|| panic!("{response}"));
    let mut answer: Value = serde_json::from_str(&response[start..=end]).unwrap();
    let choice = &mut answer["choices"][0];
    let id = choice["message"]["tool_calls"][0]["id"].take();
    assert!(id.as_str().is_some_and(|id| !id.is_empty()), "{choice}");
    choice["message"]["tool_calls"][0]["id"] = json!("call_1");
    assert_eq!(choice["message"], expected["message"]);
    assert_eq!(choice["finish_reason"], expected["finish_reason"]);
}

/// A model that fixes `greet.py` in three steps, and explains it if it is asked.
fn greeting_fixer(world: &World) -> ScriptedProvider {
    let fixed = "def greet(name):\n    print(\"Hello, \" + name)\n\ngreet(\"Ada\")\n";
    world.provider(ReplyScript::from_fn(move |_, request| {
        let asked = request.body.to_string();
        if asked.contains("what does greet.py print?") {
            return ProviderReply::text("It prints `Hello, Ada`.");
        }
        let call = match asked.matches("\"tool_call_id\"").count() {
            0 => ("read_file", json!({"path": "greet.py"})),
            1 => (
                "write_to_file",
                json!({"path": "greet.py", "content": fixed}),
            ),
            _ => ("attempt_completion", json!({"result": "greet.py runs."})),
        };
        WAYS[1].reply(&turn("", vec![call]), 1)
    }))
}

#[test]
fn the_guide_leads_to_a_finished_task_and_back() {
    let world = World::new();
    let provider = greeting_fixer(&world);
    let with_provider = |mut command: Command| {
        command
            .env("HOME", world.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("OPENAI_API_KEY", "k")
            .env("OPENAI_BASE_URL", provider.base_url(Wire::OpenAiChat));
        command
    };
    let run = |folder: &Path, script: &str| {
        let mut shell = Command::new("bash");
        let line = format!("set -eo pipefail; sabir() {{ \"$SABIR\" \"$@\"; }}; {script}");
        shell.env_clear().env("SABIR", env!("CARGO_BIN_EXE_sabir"));
        shell
            .args(["--norc", "-c", &line])
            .current_dir(folder)
            .stdin(std::process::Stdio::null());
        let output = with_provider(shell).output().unwrap();
        let words = format!("{}{}", stdout(&output), stderr(&output));
        assert_eq!(code(&output), 0, "{script}\n{words}");
        words
    };
    let guide = blocks(&page("docs/guide.md"), "sh").concat();
    let lines: Vec<&str> = guide
        .lines()
        .filter(|line| !line.starts_with("export "))
        .collect();
    let interactive = "sabir \"greet.py fails, fix it\"";
    let at = lines.iter().position(|line| *line == interactive).unwrap();
    run(world.work.path(), &lines[..at].join("\n"));
    let folder = world.work.path().join("first-task");
    let program = folder.join("greet.py");
    let is_fixed = || {
        std::fs::read_to_string(&program)
            .unwrap()
            .contains("+ name)")
    };
    assert!(!is_fixed());

    let mut session = Command::new(env!("CARGO_BIN_EXE_sabir"));
    session.env_clear();
    let mut session = with_provider(session);
    session.arg("greet.py fails, fix it").current_dir(&folder);
    session
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut talk = Talk::of(session);
    let shown = talk.wait_for("allow it? [y]es, [n]o, [a]lways, or say why not:");
    for line in [
        "write_to_file writes a file:",
        "+    print(\"Hello, \" + name)",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    talk.say("y");
    talk.wait_for("greet.py runs.");
    talk.wait_for("is that right?");
    talk.say("y");
    talk.leave();
    assert!(is_fixed());

    // The rest, one line after the other, with the state that the guide claims.
    let mut seen = Vec::new();
    for line in &lines[at + 1..] {
        let words = run(&folder, line);
        match *line {
            "sabir diff" => assert!(words.contains("+    print(\"Hello, \" + name)"), "{words}"),
            "sabir undo --yes" => assert!(!is_fixed(), "{words}"),
            line if line.starts_with("sabir run --approve edits") => {
                assert!(is_fixed(), "{words}")
            }
            line if line.starts_with("sabir run \"what") => {
                assert!(words.contains("It prints `Hello, Ada`."), "{words}")
            }
            line if line.starts_with("sabir policy explain") => {
                assert!(words.contains("allow"), "{words}")
            }
            "sabir config check" => assert!(words.contains("no problems"), "{words}"),
            _ => {}
        }
        seen.push(*line);
    }
    assert!(seen.len() >= 8, "{seen:?}");
    let home = world.home.path();
    assert!(home.join(".local/share/man/man1/sabir-run.1").exists());
    assert!(
        home.join(".local/share/bash-completion/completions/sabir")
            .exists()
    );
}

/// Each section of the page with a message, and what the binary prints in its situation.
#[test]
fn the_messages_of_troubleshooting_are_real() {
    let world = World::new();
    let run = |arguments: &[&str]| stderr(&world.sabir().args(arguments).output().unwrap());
    let refusing = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(401)
    }));
    let denied = world.plays(
        WAYS[1],
        &[
            turn(
                "",
                vec![("write_to_file", json!({"path": "a.txt", "content": "x\n"}))],
            ),
            turn("", vec![("attempt_completion", json!({"result": "done"}))]),
        ],
    );
    let local = "http://127.0.0.1:9/v1#m";
    let mut printed = BTreeMap::from([
        ("No model is chosen", run(&["run", "hi"])),
        ("No key", run(&["run", "--model", "openai/gpt-5", "hi"])),
        ("An unknown model", run(&["run", "--model", "foo", "hi"])),
        (
            "No connection",
            run(&["run", "--model", local, "--retries", "0", "hi"]),
        ),
        (
            "The key is refused",
            stderr(&world.run(&refusing, WAYS[1], &["hi"])),
        ),
        (
            "Calls were denied",
            stderr(&world.run(&denied, WAYS[1], &["hi"])),
        ),
        ("Not a command", run(&["statsu"])),
        ("Nothing to undo", run(&["undo"])),
        (
            "The cost is not known",
            run(&["run", "--model", local, "--max-cost", "1", "hi"]),
        ),
    ]);
    let path = world.configure("modle = 1\n");
    printed.insert("A mistake in the configuration", run(&["models"]));
    std::fs::write(&path, "[providers.openai]\nkey = \"sk-example\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    printed.insert(
        "The file with the key can be read by others",
        run(&["models"]),
    );

    let text = page("docs/troubleshooting.md");
    let mut checked = Vec::new();
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        for block in blocks(section, "text") {
            let real = printed
                .get(title)
                .unwrap_or_else(|| panic!("nobody prints the message of `{title}`"));
            for line in block.lines() {
                assert!(
                    real.contains(line),
                    "{title}: `{line}` is not printed:\n{real}"
                );
            }
            checked.push(title);
        }
    }
    checked.sort_unstable();
    assert_eq!(checked, printed.keys().copied().collect::<Vec<_>>());
}

/// Returns the anchors of a page, as GitHub and mdBook make them of its headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// Returns the targets of the links in a text, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        inside ^= line.starts_with("```");
        if inside {
            continue;
        }
        // Every second part is between two backquotes.
        let plain: String = line.split('`').step_by(2).collect();
        links.extend(
            plain
                .split("](")
                .skip(1)
                .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())),
        );
    }
    links
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let docs = Path::new(ROOT).join("docs");
    let book = page("book.toml");
    assert!(book.contains("src = \"docs\""), "{book}");
    let mut pages: Vec<PathBuf> = Vec::new();
    for folder in [docs.clone(), docs.join("decisions")] {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    let summary = docs.join("SUMMARY.md");
    let listed: Vec<PathBuf> = links(&page("docs/SUMMARY.md"))
        .iter()
        .map(|link| docs.join(link))
        .collect();
    for page in pages.iter().filter(|page| **page != summary) {
        let count = listed.iter().filter(|known| *known == page).count();
        assert_eq!(
            count,
            1,
            "{} is in SUMMARY.md {count} times",
            page.display()
        );
    }
    let root = ["README.md", "ARCHITECTURE.md"].map(|name| Path::new(ROOT).join(name));
    let mut checked = 0;
    for file in pages.iter().chain(&root) {
        let text = std::fs::read_to_string(file).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => file.clone(),
                path => file.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", file.display());
            if !anchor.is_empty() {
                let known = anchors(&std::fs::read_to_string(&target).unwrap());
                assert!(
                    known.iter().any(|known| known == anchor),
                    "{}: {link}: {known:?}",
                    file.display()
                );
            }
            // A book has only the pages of its own folder.
            let is_inside = target
                .canonicalize()
                .unwrap()
                .starts_with(docs.canonicalize().unwrap());
            assert!(
                root.contains(file) || is_inside,
                "{}: {link} leads out of the book",
                file.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 80, "{checked}");
}
