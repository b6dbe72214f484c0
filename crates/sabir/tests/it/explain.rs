//! Tests `explain`, which shows how each piece of a text was understood.

use serde_json::{Value, json};

use crate::dialects::pipe;
use crate::world::World;

/// `line:column role source` of each mark, and the same in any chunks.
fn marks(world: &World, input: &str) -> (i32, Vec<String>, Value) {
    let mut first: Option<(i32, String)> = None;
    for chunk in ["0", "1", "7"] {
        let (code, out, errors) = pipe(
            world,
            &["explain", "--output", "json", "--chunk", chunk],
            input,
        );
        assert!(errors.is_empty(), "{errors}");
        assert_eq!(
            (code, &out),
            {
                let first = first.get_or_insert((code, out.clone()));
                (first.0, &first.1)
            },
            "{chunk}"
        );
    }
    let (code, out) = first.unwrap();
    let out: Value = serde_json::from_str(&out).unwrap();
    let line = |mark: &Value| {
        let text = |key: &str| mark[key].as_str().unwrap_or_default().to_owned();
        format!(
            "{}:{} {} {}",
            mark["line"],
            mark["column"],
            text("role"),
            text("source")
        )
    };
    (
        code,
        out["marks"].as_array().unwrap().iter().map(line).collect(),
        out,
    )
}

#[test]
fn every_part_of_a_call_is_explained() {
    let world = World::new();
    let (code, found, out) = marks(
        &world,
        "Ü:\n<read_file>\n<path>a.rs</path>\n<start_line>3</start_line>\n</read_file>",
    );
    assert_eq!(
        found,
        [
            "2:1 call <read_file>",
            "3:1 argument <path>",
            "3:7 value a.rs",
            "3:11 argument </path>\n<start_line>",
            "4:13 value 3",
            "4:14 end </start_line>\n</read_file>"
        ]
    );
    assert_eq!(
        (code, &out["found"]),
        (0, &json!([{"dialect": "cline", "calls": 1}]))
    );
    let call = &out["calls"][0];
    assert_eq!(
        (&call["state"], &call["how"]["sure"]),
        (&json!("complete"), &json!("likely"))
    );
    assert!(out["marks"][0]["rule"].as_str().unwrap().len() > 10);
    assert_eq!(out["marks"][0]["call"], json!(0));
}

#[test]
fn text_that_is_no_call_is_explained() {
    let world = World::new();
    let (code, found, _) = marks(
        &world,
        "Look: `<read_file>` and\n```\n<read_file><path>x</path></read_file>\n```\n",
    );
    assert_eq!(code, 0);
    assert!(
        found.iter().all(|mark| mark.contains(" mention ")) && !found.is_empty(),
        "{found:?}"
    );
    let (_, found, _) = marks(&world, "<thinking>Hm.</thinking>\nWords.");
    assert!(found[0].starts_with("1:1 thought <thinking>"), "{found:?}");
    let (code, text, _) = pipe(&world, &["explain"], "Only words.");
    assert!(code == 0 && text.contains("found: none"), "{text}");
}

#[test]
fn cut_and_rejected_calls_are_explained() {
    let world = World::new();
    let (code, found, out) = marks(&world, "<read_file><path>half");
    assert_eq!(code, 4);
    assert_eq!(
        found,
        [
            "1:1 call <read_file>",
            "1:12 argument <path>",
            "1:18 value half",
            "1:22 cut "
        ]
    );
    assert_eq!(out["calls"][0]["state"], json!("cut"));
    let input = "<tool_call>\n{\"name\": \"Read_File\", \"arguments\": {\"path\": \"a\", \"end_line\": \"x\"}}\n</tool_call>";
    let (code, text, _) = pipe(&world, &["explain"], input);
    assert_eq!(code, 4);
    for part in [
        "hermes (1 call)",
        "wrong_case_name",
        "stopped by a fault",
        "error[wrong_type]",
        "^",
        "recognised: ",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    let (code, _, errors) = pipe(&world, &["explain", "--output", "events"], input);
    assert!(
        code == 2 && errors.contains("possible values: text, json"),
        "{errors}"
    );
}

#[test]
fn several_dialects_are_named_first() {
    let world = World::new();
    let input = "<read_file><path>a</path></read_file>\n<tool_call>{\"name\": \"list_files\", \"arguments\": {}}</tool_call>\n";
    let (_, text, _) = pipe(&world, &["explain"], input);
    let head = text.lines().next().unwrap();
    assert!(
        head.contains("listened for: auto") && head.contains("cline (1 call), hermes (1 call)"),
        "{head}"
    );
}

#[test]
fn foreign_text_is_sanitized_for_the_terminal() {
    let world = World::new();
    let input = "<write_to_file><path>\u{1b}]0;x\u{7}\u{202e}</path><content>".to_owned()
        + &"long ".repeat(5000)
        + "\r\u{9b}2J</content></write_to_file>";
    let (_, text, _) = pipe(&world, &["explain"], &input);
    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n') && !text.contains('\u{202e}'),
        "{text}"
    );
    assert!(text.contains("\\u{1b}]0;x\\u{7}\\u{202e}") && text.contains('…'));
}

#[test]
fn calls_say_how_they_were_recognised() {
    let world = World::new();
    for (dialect, input, sure) in [
        ("cline", "<read_file><path>a</path></read_file>", "certain"),
        ("auto", "<read_file><path>a</path></read_file>", "likely"),
        (
            "auto",
            "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}</tool_call>",
            "likely",
        ),
        (
            "auto",
            "<|python_tag|>{\"name\": \"read_file\", \"parameters\": {\"path\": \"a\"}}",
            "certain",
        ),
        (
            "auto",
            "{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}",
            "guess",
        ),
    ] {
        let (_, out, _) = pipe(
            &world,
            &["parse", "--dialect", dialect, "--output", "json"],
            input,
        );
        let out: Value = serde_json::from_str(&out).unwrap();
        let how = &out["parts"][0]["how"];
        assert_eq!(how["sure"], json!(sure), "{input}: {out}");
        assert!(!how["rule"].as_str().unwrap().is_empty(), "{out}");
    }
}
