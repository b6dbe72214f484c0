//! Tests `sabir edit`: formats, output, written files, exit codes.

use std::path::Path;

use serde_json::{Value, json};

use crate::dialects::pipe;
use crate::world::World;

/// Edits `f` in the workspace folder, which holds `old`; `None`: there is no such file. Dry first, then for real.
#[track_caller]
fn check(old: Option<&[u8]>, options: &[&str], edit: &str, expected: (i32, &str, &[u8])) -> Value {
    let world = World::new();
    let file = world.work.path().join("f");
    if let Some(old) = old {
        std::fs::write(&file, old).unwrap();
    }
    let path = file.to_str().unwrap();
    let arguments = [&["edit", path, "--output", "json"], options].concat();
    let dry = pipe(
        &world,
        &[arguments.as_slice(), &["--dry-run"]].concat(),
        edit,
    );
    assert_eq!(
        std::fs::read(&file).ok().as_deref(),
        old,
        "a dry run writes nothing"
    );
    let (code, out, errors) = pipe(&world, &arguments, edit);
    assert_eq!((dry.0, &dry.1), (code, &out));
    let out: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
    let kind = out["faults"][0]["kind"].as_str().unwrap_or_default();
    assert_eq!((code, kind), (expected.0, expected.1), "{edit}: {out}");
    assert_eq!(out["status"], if code == 0 { "applied" } else { "failed" });
    assert_eq!(
        std::fs::read(&file).unwrap_or_default(),
        expected.2,
        "{edit}: {out}"
    );
    out
}

const BLOCK: &str = "------- SEARCH\nb\n=======\nx\n+++++++ REPLACE\n";
const PATCH: &str = "*** Begin Patch\n*** Update File: some/other.txt\n@@\n-b\n+x\n*** End Patch";
const STRING: &str = r#"{"old_string": "b", "new_string": "x"}"#;

#[test]
fn formats_are_recognized_by_their_text() {
    for edit in [BLOCK, PATCH, STRING] {
        let out = check(Some(b"a\nb\n"), &[], edit, (0, "", b"a\nx\n"));
        assert_eq!(out["content"], "a\nx\n");
        assert_eq!(out["hunks"][0]["level"], "exact");
    }
    check(
        Some(b"a\n"),
        &["--format", "whole-file"],
        BLOCK,
        (0, "", BLOCK.as_bytes()),
    );
    check(Some(b"a\n"), &[], "words", (4, "no_blocks", b"a\n"));
    check(
        Some(b"a\n"),
        &[],
        "{\"path\": \"b\"}",
        (4, "no_blocks", b"a\n"),
    );
}

#[test]
fn faults_name_the_problem_and_its_line() {
    let out = check(Some(b"b\nb\n"), &[], BLOCK, (4, "ambiguous", b"b\nb\n"));
    assert_eq!(out["content"], "b\nb\n");
    let lines = json!([{"number": 1, "text": "b"}, {"number": 2, "text": "b"}]);
    let fault = &out["faults"][0];
    assert_eq!(
        (&fault["line"], &fault["block"], &fault["lines"]),
        (&json!(1), &json!(1), &lines)
    );
    assert!(fault["message"].as_str().unwrap().contains("2 places") && fault["hint"].is_string());
    check(Some(b"a\n"), &[], BLOCK, (4, "not_found", b"a\n"));
    check(Some(b"a\n"), &[], PATCH, (4, "not_found", b"a\n"));
    check(
        Some(b"a\n"),
        &["--format", "apply-patch"],
        BLOCK,
        (4, "no_blocks", b"a\n"),
    );
}

#[test]
fn missing_files_are_created_or_refused() {
    check(None, &[], BLOCK, (2, "file", b""));
    check(None, &[], PATCH, (2, "file", b""));
    check(None, &[], STRING, (2, "file", b""));
    check(
        None,
        &[],
        "------- SEARCH\n=======\nx\n+++++++ REPLACE\n",
        (0, "", b"x\n"),
    );
    check(
        None,
        &[],
        r#"{"old_string": "", "new_string": "x"}"#,
        (0, "", b"x"),
    );
    check(None, &["--format", "whole-file"], "x", (0, "", b"x"));
    let add = "*** Begin Patch\n*** Add File: f\n+x\n*** End Patch";
    check(None, &[], add, (0, "", b"x\n"));
    check(Some(b"a\n"), &[], add, (0, "", b"x\n"));
}

#[test]
fn encodings_are_kept() {
    check(
        Some(b"na\xefve\nb\n"),
        &[],
        BLOCK,
        (0, "", b"na\xefve\nx\n"),
    );
    check(
        Some(b"\xff\xfeb\0\r\0\n\0"),
        &[],
        BLOCK,
        (0, "", b"\xff\xfex\0\r\0\n\0"),
    );
    check(
        Some(b"\xef\xbb\xbfa\r\n"),
        &["--format", "whole-file"],
        "\u{feff}b\n",
        (0, "", b"\xef\xbb\xbfb\n"),
    );
    let arrow = r#"{"old_string": "b", "new_string": "→"}"#;
    check(
        Some(b"na\xefve\nb\n"),
        &[],
        arrow,
        (4, "not_in_encoding", b"na\xefve\nb\n"),
    );
    check(Some(b"a\0b"), &[], STRING, (2, "file", b"a\0b"));
}

#[test]
fn alternative_field_names_are_accepted() {
    let cases = [
        ("old_str", "new_str"),
        ("old_text", "new_text"),
        ("old", "new"),
        ("search", "replace"),
        ("oldString", "newString"),
    ];
    for (old, new) in cases {
        check(
            Some(b"b"),
            &[],
            &json!({old: "b", new: "x", "path": "f"}).to_string(),
            (0, "", b"x"),
        );
    }
    let object = |more: Value| {
        let mut object = json!({"old_string": "b", "new_string": "x"});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        object.to_string()
    };
    check(
        Some(b"b b"),
        &[],
        &object(json!({"replace_all": true})),
        (0, "", b"x x"),
    );
    check(
        Some(b"b b"),
        &[],
        &object(json!({"expected_replacements": 2})),
        (0, "", b"x x"),
    );
    check(
        Some(b"b b"),
        &[],
        &object(json!({"count": 3})),
        (4, "wrong_count", b"b b"),
    );
    check(
        Some(b"b b"),
        &[],
        &object(json!({"count": "2"})),
        (4, "wrong_type", b"b b"),
    );
    check(
        Some(b"b"),
        &[],
        &object(json!({"replace_all": "yes"})),
        (4, "wrong_type", b"b"),
    );
    check(
        Some(b"b"),
        &[],
        &object(json!({"old": "c"})),
        (4, "field_twice", b"b"),
    );
    check(
        Some(b"b"),
        &[],
        r#"{"old_string": "b"}"#,
        (4, "missing_field", b"b"),
    );
    check(
        Some(b"b"),
        &[],
        r#"{"old_string": 1, "new_string": "x"}"#,
        (4, "wrong_type", b"b"),
    );
    check(
        Some(b"b"),
        &["--format", "string-replace"],
        "{",
        (4, "not_json", b"b"),
    );
    check(
        Some(b"b"),
        &["--format", "string-replace"],
        "[]",
        (4, "wrong_type", b"b"),
    );
}

#[test]
fn patches_may_change_several_files() {
    let world = World::new();
    let root = world.work.path().join("repo");
    std::fs::create_dir_all(root.join("src")).unwrap();
    let write = |path: &str, content: &str| std::fs::write(root.join(path), content).unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    write("src/a.rs", "a\n");
    write("src/b.rs", "b\n");
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-a\n+A\n*** Update File: src/b.rs\n*** Move to: lib/b.rs\n@@\n-b\n+B\n\
                 *** Add File: new.txt\n+n\n*** End Patch";
    let stale = patch.replace("-b\n", "-c\n");
    for (file, edit, expected) in [
        (root.join("src/c.rs"), patch, (4, "unknown_path")),
        (root.join("src/a.rs"), stale.as_str(), (4, "not_found")),
        (root.clone(), stale.as_str(), (4, "not_found")),
    ] {
        let (code, out, _) = pipe(&world, &["edit", &text(&file), "--output", "json"], edit);
        let out: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (code, out["faults"][0]["kind"].as_str().unwrap()),
            expected,
            "{out}"
        );
        assert_eq!(
            (read("src/a.rs").as_deref(), read("new.txt")),
            (Some("a\n"), None),
            "all files or none"
        );
    }
    let (code, out, _) = pipe(
        &world,
        &["edit", &text(&root.join("src/b.rs")), "--output", "json"],
        patch,
    );
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &out["content"], &out["moved_to"]),
        (0, &json!("B\n"), &json!("lib/b.rs")),
        "{out}"
    );
    let held = ["src/a.rs", "lib/b.rs", "new.txt"].map(read);
    assert_eq!(
        held.each_ref().map(Option::as_deref),
        [Some("A\n"), Some("B\n"), Some("n\n")]
    );
    let out = pipe(
        &world,
        &["edit", &text(&root)],
        "*** Begin Patch\n*** Add File: ../out.txt\n+x\n*** End Patch",
    );
    assert!(
        out.0 == 2 && out.2.contains("outside the workspace"),
        "{out:?}"
    );
}

#[test]
fn text_output_is_readable() {
    let world = World::new();
    std::fs::write(world.work.path().join("f"), "a\n  b\n").unwrap();
    let file = world.work.path().join("f");
    let file = file.to_str().unwrap();
    let (code, out, _) = pipe(&world, &["edit", file, "--dry-run"], BLOCK);
    let expected = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-  b\n+  x\n\
                    [1 was found in line 2 with other indentation, which the new lines were given.]\n";
    assert_eq!((code, out.as_str()), (0, expected));
    let (code, out, _) = pipe(&world, &["edit", file], "------- SEARCH\n  c\n=======\n");
    assert!(
        code == 4 && out.starts_with("block 1, line 1 of the diff: the block is not closed"),
        "{out}"
    );
    let (code, _, errors) = pipe(&world, &["edit", "no/such/file"], BLOCK);
    assert!(
        code == 2 && errors.contains("no/such/file: there is no such file"),
        "{errors}"
    );
}

#[test]
fn a_hunk_for_line_zero_goes_to_the_beginning() {
    let patch = "*** Begin Patch\n*** Update File: f\n@@ -0,0 +1 @@\n+x\n*** End Patch";
    check(Some(b"a\nb\n"), &[], patch, (0, "", b"x\na\nb\n"));
}

#[test]
fn a_removed_last_line_without_an_ending_leaves_none() {
    let block = "------- SEARCH\nb\n=======\n+++++++ REPLACE\n";
    check(Some(b"a\nb"), &[], block, (0, "", b"a"));
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n a\n-b\n*** End Patch";
    check(Some(b"a\nb"), &[], patch, (0, "", b"a"));
}

#[test]
fn a_list_whose_items_end_with_nul_is_not_shown_as_utf_16() {
    let list: Vec<u8> = (100..140)
        .flat_map(|n| format!("{n}\0").into_bytes())
        .collect();
    let world = World::new();
    let file = world.work.path().join("f");
    std::fs::write(&file, &list).unwrap();
    let (code, out, errors) = pipe(&world, &["edit", file.to_str().unwrap()], BLOCK);
    assert_ne!(code, 0, "{out}{errors}");
    assert!(
        !format!("{out}{errors}").contains("UTF-16"),
        "{out}{errors}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), list);
}
