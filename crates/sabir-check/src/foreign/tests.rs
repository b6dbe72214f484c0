//! Tests the conversion of other agents' calls.

use serde_json::{Value, json};

use super::values::{choice_texts, command_line, line_range, requested_files, todo_text};

#[test]
fn command_lines() {
    let rows = [
        (json!("ls -la"), Some("ls -la")),
        (json!("[ -f a ] && b"), Some("[ -f a ] && b")),
        (json!(["bash", "-lc", "a && b"]), Some("a && b")),
        (
            json!(["git", "commit", "-m", "it's"]),
            Some(r"git commit -m 'it'\''s'"),
        ),
        (json!(["A=1", "x"]), Some("'A=1' x")),
        (json!("[\"sh\", \"-c\", \"ls\"]"), Some("ls")),
        (json!([]), None),
        (json!([1]), None),
        (json!({"a": 1}), None),
    ];
    for (value, expected) in rows {
        assert_eq!(command_line(&value).as_deref(), expected, "{value}");
    }
}

#[test]
fn line_ranges() {
    let read = |value: Value| line_range(&value).map(|range| (range.first, range.last));
    assert_eq!(read(json!([1, 50])), Some((1, Some(50))));
    assert_eq!(read(json!([5, -1])), Some((5, None)));
    assert_eq!(read(json!("3-9")), Some((3, Some(9))));
    assert_eq!(read(json!("[3, 9]")), Some((3, Some(9))));
    for wrong in [
        json!([0, 5]),
        json!([9, 3]),
        json!([1]),
        json!("all"),
        json!([1, -2]),
    ] {
        assert_eq!(read(wrong), None);
    }
}

#[test]
fn lists_of_files() {
    let read = |value: &Value| {
        let files = requested_files(value)?;
        let paths: Option<Vec<_>> = files.iter().map(|file| file.as_path_argument()).collect();
        Some(paths?.join(" "))
    };
    let rows = [
        (
            json!(
                "<file><path>a</path><line_range>1-5</line_range></file>\n<file><path>b</path></file>"
            ),
            Some("a:1-5 b"),
        ),
        (
            json!([{"path": "a", "line_ranges": [[1, 2], [5, 6]]}]),
            Some("a:1-2 a:5-6"),
        ),
        (json!([{"path": "a", "line_ranges": null}]), Some("a")),
        (json!({"file": [{"path": "a"}]}), Some("a")),
        (json!({"file": {"path": "a"}}), Some("a")),
        (json!(["a", "b"]), Some("a b")),
        (json!("[\"a\"]"), Some("a")),
        (json!(["src/*.rs"]), None),
        (json!("<file><path>a</path><mode>x</mode></file>"), None),
        (json!("<path>a</path>"), None),
        (json!([]), None),
    ];
    for (value, expected) in rows {
        assert_eq!(read(&value).as_deref(), expected, "{value}");
    }
}

#[test]
fn choices_and_todos() {
    assert_eq!(
        choice_texts(&json!([{"text": "a", "mode": "code"}, "b"])),
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(
        choice_texts(&json!("<suggest>a</suggest><suggest>b</suggest>")),
        Some(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(choice_texts(&json!([1])), None);
    let list = json!([
        {"content": "Find it", "status": "completed", "activeForm": "Finding"},
        {"step": "Mend\nit", "status": "in_progress"},
        {"description": "Test", "status": "pending"},
    ]);
    assert_eq!(
        todo_text(&list).as_deref(),
        Some("[x] Find it\n[-] Mend it\n[ ] Test")
    );
    assert_eq!(
        todo_text(&json!([{"content": "a", "status": "cancelled"}])),
        None
    );
}
