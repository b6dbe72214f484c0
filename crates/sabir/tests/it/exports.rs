//! Tests `sabir export` in each format, with a task full of markup and secrets.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, stderr, stdout, turn};

const NATIVE: crate::world::Way = WAYS[1];
const PROMPT: &str = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> & \"quotes\"\n```\n# no heading\n````";

/// A task with such a prompt, such a result, and a secret in a file.
fn world() -> (World, String) {
    let world = World::new();
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    world.write(
        "page.html",
        &format!("<script>evil()</script>\n```sh\nls\n```\ntoken = \"{secret}\"\n\u{202e}x\n"),
    );
    let provider = world.plays(
        NATIVE,
        &[
            turn(
                "I read *it*.\n```\nnever closed",
                vec![("read_file", json!({"path": "page.html"}))],
            ),
            turn("", vec![("read_file", json!({"path": "</pre><b>.txt"}))]),
            turn(
                "",
                vec![("attempt_completion", json!({"result": "<i>Done</i>"}))],
            ),
        ],
    );
    let output = world.run(&provider, NATIVE, &["--approve", "all", PROMPT]);
    assert_ne!(code(&output), 2, "{}", stderr(&output));
    let id = world.only_task();
    (world, id)
}

fn export(world: &World, arguments: &[&str]) -> String {
    let output = world
        .sabir()
        .arg("export")
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        !text.contains("ghp_") && (text.is_empty() || text.contains("[redacted: GitHub token]")),
        "{text}"
    );
    text
}

#[test]
fn html_contains_the_whole_task_and_runs_nothing() {
    let (world, id) = world();
    let html = export(&world, &[&id, "--to", "html"]);
    // Every tag is one of ours.
    let known = [
        "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "dl", "dt", "dd",
        "section", "a", "time", "pre", "div",
    ];
    for piece in html.split('<').skip(1) {
        let name: String = piece
            .trim_start_matches('/')
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '!')
            .collect();
        assert!(known.contains(&name.as_str()), "<{piece}");
    }
    for attribute in [
        " src",
        " onerror",
        "javascript:",
        "http://",
        "https://",
        "url(",
        "@import",
    ] {
        let ours = html.replace("&lt;img src=x onerror=alert(2)&gt;", "");
        assert!(!ours.contains(attribute), "{attribute}");
    }
    assert!(
        html.contains("&lt;script&gt;alert(1)&lt;/script&gt;")
            && html.contains("&lt;script&gt;evil()"),
        "{html}"
    );
    assert!(
        html.contains("default-src 'none'")
            && html.contains("&lt;U+202E&gt;")
            && !html.contains('\u{202e}')
    );
    assert!(html.contains("&lt;i&gt;Done&lt;/i&gt;"));
    for tag in [
        "html", "head", "body", "section", "pre", "h2", "dl", "style", "title",
    ] {
        let count = |text: &str| html.matches(text).count();
        let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
        assert_eq!(opened, count(&format!("</{tag}>")), "{tag}");
    }
}

/// Which lines of a Markdown text are within fences of the first level, by the rules of CommonMark.
fn outside(markdown: &str) -> Vec<&str> {
    let (mut fence, mut lines) = (None, Vec::new());
    for line in markdown.lines() {
        let ticks = line.chars().take_while(|c| *c == '`').count();
        match fence {
            Some(length) if ticks >= length && line.trim_end().len() == ticks => fence = None,
            Some(_) => {}
            None if ticks >= 3 => fence = Some(ticks),
            None => lines.push(line),
        }
    }
    assert_eq!(fence, None, "a fence is open at the end: {markdown}");
    lines
}

#[test]
fn markdown_keeps_fences_intact() {
    let (world, id) = world();
    let markdown = export(&world, &[&id]);
    let outside = outside(&markdown);
    // The one tag of ours stands around the time of a record.
    let outside: Vec<_> = outside
        .into_iter()
        .filter(|line| !line.starts_with("<sub>"))
        .collect();
    let headings: Vec<_> = outside
        .iter()
        .filter(|line| line.starts_with("## "))
        .collect();
    let sections = export(&world, &[&id, "--to", "html"])
        .matches("<section ")
        .count();
    assert_eq!(
        headings.len(),
        sections,
        "every section stands outside of all fences: {markdown}"
    );
    assert!(
        !outside
            .iter()
            .any(|line| line.replace("\\<", "").contains('<') || line.starts_with("# no heading")),
        "{markdown}"
    );
    assert!(
        outside.contains(&"> I read *it*.") && outside.contains(&"> never closed"),
        "{markdown}"
    );
    assert!(
        markdown.contains(&format!("`````\n{PROMPT}\n`````\n")),
        "the words are exact: {markdown}"
    );
}

#[test]
fn json_matches_the_document() {
    let (world, id) = world();
    let exported: Value = serde_json::from_str(&export(&world, &[&id, "--to", "json"])).unwrap();
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/journal.md"
    ))
    .unwrap();
    let (_, table) = text.split_once("| field | holds |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    for field in exported.as_object().unwrap().keys() {
        assert!(
            table.contains(&format!("`{field}`")),
            "{field} is not in the document"
        );
    }
    assert_eq!(
        (&exported["format"], &exported["version"]),
        (&json!("sabir task"), &json!(1))
    );
    assert_eq!(
        (&exported["task"]["task"], &exported["task"]["prompt"]),
        (&json!(id), &json!(PROMPT))
    );
    assert!(exported["outcome"].is_string() && exported["message"].is_string());
    let log = world
        .sabir()
        .args(["log", &id, "--output", "events"])
        .output()
        .unwrap();
    let log: Vec<Value> = stdout(&log)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut records = exported["records"].as_array().unwrap().clone();
    for (at, record) in records.iter_mut().enumerate() {
        assert_eq!(
            record.as_object_mut().unwrap().shift_remove("number"),
            Some(json!(at + 1))
        );
    }
    assert_eq!(records, log);
}

#[test]
fn exported_files_are_new_and_private_and_match_their_extension() {
    let (world, id) = world();
    for (name, begin) in [
        ("a.html", "<!doctype html>"),
        ("a.json", "{\n"),
        ("a.md", "# "),
        ("plain", "# "),
    ] {
        assert_eq!(export(&world, &[&id, "-o", name]), "");
        assert!(world.read(name).starts_with(begin), "{name}");
        let mode = std::fs::metadata(world.work.path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    for (name, words) in [
        ("a.html", "cannot be written"),
        ("none/a.md", "cannot be written"),
        ("a.pdf", "`.pdf` is not the extension of a format"),
    ] {
        let output = world
            .sabir()
            .args(["export", &id, "-o", name])
            .output()
            .unwrap();
        assert!(
            code(&output) == 2 && stderr(&output).contains(words),
            "{name}: {}",
            stderr(&output)
        );
    }
}
