//! Tests the tools that read, list, search, write and edit files.

use std::os::unix::fs::symlink;

use sabir_agent::CallPermit;
use sabir_call::CallId;
use sabir_policy::Access;
use serde_json::json;

use crate::{Place, run_prepared};

#[test]
fn reading() {
    let place = Place::with(&[
        ("a.txt", "one\n  two\r\n\nfour"),
        ("empty", ""),
        ("é.txt", "x\n"),
    ]);
    place.done(
        "read_file",
        json!({"path": "a.txt"}),
        "1 | one\n2 |   two\n3 | \n4 | four\n[1 of 3 lines end in CRLF. No newline at the end.]",
    );
    place.done("read_file", json!({"path": "é.txt"}), "1 | x");
    place.done("read_file", json!({"path": "empty"}), "`empty` is empty.");
    place.done(
        "read_file",
        json!({"path": "a.txt", "start_line": 2, "end_line": 3}),
        "2 |   two\n3 | \n[Lines 2 to 3 of 4. 1 of 3 lines end in CRLF.]",
    );
    place.done(
        "read_file",
        json!({"path": "a.txt", "start_line": 4, "end_line": 99}),
        "4 | four\n[Lines 4 to 4 of 4. 1 of 3 lines end in CRLF. No newline at the end.]",
    );
    place.fails(
        "read_file",
        json!({"path": "a.txt", "start_line": 5}),
        "`a.txt` has 4 lines, so there is no line 5. Give a smaller start_line.",
    );
    let none =
        "Lines 3 to 2 are not lines: start_line is at least 1, end_line at least start_line.";
    place.fails(
        "read_file",
        json!({"path": "a.txt", "start_line": 3, "end_line": 2}),
        none,
    );
}

#[test]
fn numbers_are_aligned() {
    let place = Place::with(&[("a", &"x\n".repeat(10))]);
    let words = place
        .run("read_file", json!({"path": "a", "start_line": 9}))
        .0
        .content;
    assert_eq!(words, " 9 | x\n10 | x\n[Lines 9 to 10 of 10.]");
}

#[test]
fn long_files_come_in_parts() {
    let lines: String = (1..=5000)
        .map(|number| format!("line {number}\n"))
        .collect();
    let place = Place::with(&[
        ("many", &lines),
        ("long", &format!("{}\nb\n", "é".repeat(3000))),
    ]);
    place.put(
        "wide",
        "x".repeat(1000) + "\n" + &("y".repeat(1500) + "\n").repeat(99),
    );
    let read = |arguments| place.run("read_file", arguments).0.content;
    let words = read(json!({"path": "many"}));
    assert_eq!(words.lines().count(), 2001);
    assert!(words.starts_with("   1 | line 1\n"));
    assert!(
        words.ends_with(
            "2000 | line 2000\n[Lines 1 to 2000 of 5000. Read on with start_line 2001.]"
        )
    );
    let words = read(json!({"path": "many", "start_line": 4001}));
    assert!(
        words.ends_with("5000 | line 5000\n[Lines 4001 to 5000 of 5000.]"),
        "{words}"
    );
    let words = read(json!({"path": "wide"}));
    assert!(words.len() < 70_000);
    assert!(
        words.ends_with("\n[Lines 1 to 43 of 100. Read on with start_line 44.]"),
        "{words}"
    );
    let words = read(json!({"path": "long"}));
    assert!(words.ends_with("é… [4000 bytes of this line left out]\n2 | b"));
}

#[test]
fn unreadable_paths_are_explained() {
    let place = Place::with(&[
        ("src/main.rs", "x\n"),
        ("src/lib.rs", "x\n"),
        ("src/deep/main_test.rs", "x\n"),
    ]);
    place.put("data", b"\x01\x02\0\0\xff\xff");
    place.put("paper.pdf", b"%PDF-1.7\n\0");
    symlink("/etc", place.inner("etc")).unwrap();
    for (path, expected) in [
        (
            "src/mian.rs",
            "`src/mian.rs` does not exist. Nearest names in `src`: `main.rs`. Use list_files to list the names.",
        ),
        (
            "Main.rs",
            "`Main.rs` does not exist. Use list_files to list the names.",
        ),
        (
            "lib.rs",
            "`lib.rs` does not exist. That name is found at `src/lib.rs`. Use list_files to list the names.",
        ),
        (
            "src/a/b/main.rs",
            "`src/a/b/main.rs` does not exist. Neither does its folder; `src` is the nearest one that does. That name is found at \
             `src/main.rs`. Use list_files to list the names.",
        ),
        ("src", "`src` is a folder. Use list_files for it."),
        (
            "src/main.rs/x",
            "`src/main.rs/x` is not a folder; name the folder that holds it.",
        ),
        (
            "data",
            "`data` is a binary file (6 bytes), which read_file cannot show. Use execute_command, with `file` or `xxd` for \
             instance.",
        ),
        (
            "paper.pdf",
            "`paper.pdf` is a PDF (10 bytes), which read_file cannot show. Use execute_command with `pdftotext -layout FILE -`.",
        ),
        (
            "",
            "the path is empty; give a path relative to the workspace folder, such as `src/main.rs`.",
        ),
        (
            "/etc/passwd",
            "\"/etc/passwd\" is outside the workspace (it means \"/etc/passwd\"); use a path inside the workspace folder.",
        ),
        (
            "etc/passwd",
            "`etc/passwd` passes a symbolic link that leaves the workspace; nothing was touched, use the real path inside it.",
        ),
    ] {
        place.fails("read_file", json!({"path": path}), expected);
    }
    place.fails(
        "read_file",
        json!({"path": 7}),
        "The arguments do not fit the tool: invalid type: integer `7`, expected a string.",
    );
}

#[test]
fn listing() {
    let place = Place::with(&[
        ("b.rs", ""),
        ("a/x", ""),
        ("a/y/z", ""),
        (".gitignore", "*.log\n"),
        ("c.log", ""),
    ]);
    symlink("a", place.inner("to-a")).unwrap();
    std::fs::create_dir(place.inner("none")).unwrap();
    place.done(
        "list_files",
        json!({"path": "."}),
        ".gitignore\na/\nb.rs\nnone/\nto-a (link)",
    );
    place.done(
        "list_files",
        json!({"path": "a", "recursive": true}),
        "a/x\na/y/\na/y/z",
    );
    place.done(
        "list_files",
        json!({"path": "none"}),
        "`none` holds no files, or only ignored ones.",
    );
    place.fails(
        "list_files",
        json!({"path": "b.rs"}),
        "`b.rs` is not a folder. Use read_file for files.",
    );
    place.fails(
        "list_files",
        json!({"path": "nona"}),
        "`nona` does not exist. Nearest names in `.`: `none`. Use list_files to list the names.",
    );
    for number in 0..1100 {
        place.put(&format!("many/{number:04}"), "");
    }
    let words = place.run("list_files", json!({"path": "many"})).0.content;
    let end = "many/0999\n[Only the first 1000 names. For the rest use execute_command with `ls`, or search_files.]";
    assert!(words.ends_with(end), "{words}");
}

#[test]
fn searching() {
    let place = Place::with(&[
        (
            "src/a.rs",
            "one\nfn two() {}\nthree\nfour\nfive\nfn six() {}\nseven\nfn eight() {}\n",
        ),
        ("src/b.rs", "fn main() {}\n"),
        ("c.txt", "fn not rust\n"),
    ]);
    place.done(
        "search_files",
        json!({"regex": "fn \\w+\\(", "file_pattern": "*.rs"}),
        "src/a.rs\n1- one\n2: fn two() {}\n3- three\n--\n5- five\n6: fn six() {}\n7- seven\n8: fn eight() {}\n\nsrc/b.rs\n1: fn main() {}",
    );
    place.done(
        "search_files",
        json!({"regex": "not", "path": "c.txt"}),
        "c.txt\n1: fn not rust",
    );
    let none = "Upper and lower case count, unless the regex begins with `(?i)`.";
    place.done(
        "search_files",
        json!({"regex": "FN", "path": "src"}),
        &format!("No line matches in 2 files. {none}"),
    );
    place.done(
        "search_files",
        json!({"regex": "x", "file_pattern": "*.py"}),
        "No file in `.` matches `*.py`, so nothing was searched.",
    );
    let (output, _) = place.run("search_files", json!({"regex": "a("}));
    assert!(output.failed);
    let expected = "The regex is not valid: unclosed group. To search for a `(` itself, write `\\(`.\n    a(\n     ^";
    assert_eq!(output.content, expected);
    let (output, _) = place.run("search_files", json!({"regex": "a", "file_pattern": "a[b"}));
    assert_eq!(
        output.content,
        "The file_pattern `a[b` is not valid: unclosed character class; missing ']'. Write it as in `*.rs` or `src/**/*.rs`."
    );
    place.fails(
        "search_files",
        json!({"regex": "a", "path": "srcs"}),
        "`srcs` does not exist. Nearest names in `.`: `src`. Use list_files to list the names.",
    );
    place.put("many", "hit\n".repeat(300));
    let words = place.run("search_files", json!({"regex": "hit"})).0.content;
    let end = "200: hit\n[Only the first 200 matching lines. Narrow the search with path, file_pattern or a more exact regex.]";
    assert!(words.ends_with(end), "{words}");
    place.put("wide", format!("hit{}\n", "x".repeat(400)).repeat(300));
    let words = place
        .run("search_files", json!({"regex": "hit", "path": "wide"}))
        .0
        .content;
    assert!(words.len() < 50_000);
    assert!(
        words.contains("[Only the first 159 matching lines."),
        "{words}"
    );
}

#[test]
fn writing() {
    let place = Place::with(&[("old", "1\n2\n3\n")]);
    let write = |path: &str, content: &str| json!({"path": path, "content": content});
    place.done(
        "write_to_file",
        write("new/deep/a", "x\r\n y"),
        "Wrote 2 lines to the new file `new/deep/a`.",
    );
    assert_eq!(place.get("new/deep/a"), "x\r\n y");
    place.done(
        "write_to_file",
        write("new/deep/a", ""),
        "Wrote 0 lines to `new/deep/a`, in place of its 2 lines.\n[Its lines ended in CRLF, and do not any more.]",
    );
    place.done(
        "write_to_file",
        write("new/deep/a", ""),
        "`new/deep/a` holds exactly this content already; nothing was written.",
    );
    place.done(
        "write_to_file",
        write("old", "1\n"),
        "Wrote 1 line to `old`, in place of its 3 lines, which you had not read.",
    );
    place.fails(
        "write_to_file",
        write("new", "x"),
        "`new` is a folder, not a regular file; only regular files can be read and written.",
    );
    place.fails(
        "write_to_file",
        write("old/x", "x"),
        "`old/x` is not a folder; name the folder that holds it.",
    );
    place.fails(
        "write_to_file",
        write("../x", "x"),
        "\"../x\" is outside the workspace (it means \"../x\"); use a path inside the workspace folder.",
    );
    assert_eq!(place.get("old"), "1\n");
}

#[test]
fn a_file_that_changed_is_not_overwritten() {
    let stale = "`a` changed on disk since you last read or wrote it, so nothing was written. Read it again, and redo the change on \
                 what it holds now.";
    let write = |content: &str| json!({"path": "a", "content": content});
    let place = Place::with(&[("a", "one\n")]);
    place.done("read_file", json!({"path": "a"}), "1 | one");
    place.put("a", "theirs\n");
    let told = "`a` changed on disk since you last read or wrote it, so nothing was written. What changed:\n@@ -1 +1 @@\n-one\n\
                +theirs\n[You know it now: redo the change on what the file holds.]";
    place.fails("write_to_file", write("two\n"), told);
    assert_eq!(place.get("a"), "theirs\n");
    place.done(
        "write_to_file",
        write("two\n"),
        "Wrote 1 line to `a`, in place of its 1 line.",
    );
    // A written file counts as read, also under another name. A change too large to report has to
    // be read.
    place.put("a", "theirs again\n".repeat(1000));
    symlink("a", place.inner("link")).unwrap();
    for _ in 0..2 {
        place.fails(
            "write_to_file",
            json!({"path": "link", "content": "x"}),
            stale,
        );
    }
    // A deleted file has no changes to lose.
    std::fs::remove_file(place.inner("a")).unwrap();
    place.done(
        "write_to_file",
        write("three\n"),
        "Wrote 1 line to the new file `a`.",
    );
    // A new task has read nothing.
    let other = Place::with(&[("a", "one\n")]);
    other.done(
        "write_to_file",
        write("two\n"),
        "Wrote 1 line to `a`, in place of its 1 line, which you had not read.",
    );
}

#[test]
fn an_edit_of_a_changed_file_must_be_repeated() {
    let place = Place::with(&[("a", "one\ntwo\nthree\n")]);
    place.run("read_file", json!({"path": "a"}));
    place.put("a", "one\ntwo\ntheirs\n");
    let edit = json!({"path": "a", "diff": "------- SEARCH\none\n=======\nONE\n+++++++ REPLACE"});
    place.fails(
        "replace_in_file",
        edit.clone(),
        "`a` changed on disk since you last read or wrote it, so nothing was written. What changed:\n@@ -1,3 +1,3 @@\n one\n two\n\
         -three\n+theirs\n[You know it now: redo the change on what the file holds.]",
    );
    place.done(
        "replace_in_file",
        edit,
        "Changed `a`, 1 block:\n@@ -1,3 +1,3 @@\n-one\n+ONE\n two\n theirs",
    );
}

#[test]
fn a_link_that_moved_since_the_approval_is_not_followed() {
    let place = Place::with(&[("safe/x", "old\n"), (".git/config", "old\n")]);
    symlink("safe", place.inner("notes")).unwrap();
    let write = json!({"path": "notes/x", "content": "new\n"});
    let call = place.prepare("write_to_file", write);
    assert!(matches!(call.access(), Access::Write { path, .. } if path == "safe/x"));
    std::fs::remove_file(place.inner("notes")).unwrap();
    symlink(".git", place.inner("notes")).unwrap();
    let (output, _) = run_prepared(call, &CallPermit::unchecked(CallId::new("1")));
    assert!(output.failed);
    assert_eq!(
        output.content,
        "`notes/x` now leads to `.git/x`, and to `safe/x` when the call was approved. Nothing was written. Name the file by its \
         real path.",
    );
    assert!(!place.inner(".git/x").exists());
}

#[test]
fn editing() {
    let place = Place::with(&[
        (
            "a.rs",
            "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n",
        ),
        ("data", "a\0b\n"),
    ]);
    let edit = |path: &str, diff: &str| json!({"path": path, "diff": diff});
    let blocks = "------- SEARCH\n    one();\n=======\n    one();\n    more();\n+++++++ REPLACE\n\n------- SEARCH\n    two();\n=======\n+++++++ REPLACE\n";
    place.done(
        "replace_in_file",
        edit("a.rs", blocks),
        "Changed `a.rs`, 2 blocks:\n@@ -1,7 +1,7 @@\n fn a() {\n     one();\n+    more();\n }\n \n fn b() {\n-    two();\n }",
    );
    assert_eq!(
        place.get("a.rs"),
        "fn a() {\n    one();\n    more();\n}\n\nfn b() {\n}\n"
    );
    for (path, diff, expected) in [
        (
            "a.rs",
            "------- SEARCH\n    onne();\n=======\nx\n+++++++ REPLACE",
            "Nothing was changed in `a.rs`:\nblock 1, line 1 of the diff: SEARCH is not in the text; the nearest place is line 2, where \
             line 1 of SEARCH, \"    onne();\", differs; read the file again and copy the lines exactly, indentation included.\n     \
             2 |     one();",
        ),
        (
            "a.rs",
            "------- SEARCH\n}\n=======\nx\n+++++++ REPLACE",
            "Nothing was changed in `a.rs`:\nblock 1, line 1 of the diff: SEARCH is found at 2 places in the text; add lines before or \
             after to SEARCH and REPLACE, so that it is found once.\n     4 | }\n     7 | }",
        ),
        (
            "a.rs",
            "just words",
            "Nothing was changed in `a.rs`:\nline 1 of the diff: there is no SEARCH/REPLACE block, so nothing would change; begin each \
             block with a line `------- SEARCH`, divide it with `=======`, end it with `+++++++ REPLACE`.",
        ),
        (
            "b.rs",
            "x",
            "`b.rs` does not exist. Nearest names in `.`: `a.rs`. Use list_files to list the names. To make a new file use \
             write_to_file.",
        ),
        (
            "data",
            "x",
            "`data` cannot be edited: it is binary: byte 1 cannot occur in text. Use execute_command.",
        ),
        (
            ".",
            "x",
            "`.` is a folder, not a regular file; only regular files can be read and written.",
        ),
    ] {
        place.fails("replace_in_file", edit(path, diff), expected);
    }
    let wrong = "------- SEARCH\nnowhere\n=======\nx\n+++++++ REPLACE\n".repeat(12);
    let words = place.run("replace_in_file", edit("a.rs", &wrong)).0.content;
    assert!(words.ends_with("\n[2 more of the kind.]"), "{words}");
    assert_eq!(
        place.get("a.rs"),
        "fn a() {\n    one();\n    more();\n}\n\nfn b() {\n}\n"
    );
}

/// A picture of one pixel.
const DOT: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

#[test]
fn pictures_are_shown() {
    let place = Place::with(&[("a.txt", "x\n")]);
    place.put("dot.png", DOT);
    let (output, _) = place.run(
        "read_file",
        json!({"path": "a.txt", "more_paths": ["dot.png"]}),
    );
    assert!(!output.failed);
    let expected = format!(
        "`dot.png` is an image (PNG, 1 × 1, {} bytes), shown below.",
        DOT.len()
    );
    assert!(output.content.ends_with(&expected), "{}", output.content);
    assert_eq!(output.images.len(), 1);
    assert_eq!(output.images[0].media_type, "image/png");
    assert!(
        output.images[0].data.starts_with("iVBORw0KGgo"),
        "{}",
        output.images[0].data
    );
    // Images that a provider would refuse are not sent: too many pixels, too many bytes in one
    // result.
    let mut wide = DOT.to_vec();
    wide[18] = 0xff;
    place.put("wide.png", &wide);
    let (output, _) = place.run("read_file", json!({"path": "wide.png"}));
    assert!(
        output.failed
            && output
                .content
                .contains("no side may have more than 8000 pixels"),
        "{}",
        output.content
    );
    let large = [DOT, &vec![0; 3 << 20]].concat();
    place.put("large.png", &large);
    let (output, _) = place.run(
        "read_file",
        json!({"path": "large.png", "more_paths": ["large.png"]}),
    );
    assert_eq!(output.images.len(), 1);
    assert!(
        output.content.contains("for which there was no room"),
        "{}",
        output.content
    );
}

#[test]
fn several_files_are_shown_up_to_the_size_limit() {
    let place = Place::with(&[("a", &"a line of some length\n".repeat(1900)), ("b", "x\n")]);
    let words = place
        .run("read_file", json!({"path": "a", "more_paths": ["a", "b"]}))
        .0
        .content;
    assert!(words.len() < 70_000, "{}", words.len());
    assert!(words.contains("Read on with start_line "), "the second");
    assert!(
        words.ends_with(
            "b\n[Not read: `b` has 1 line, for which there was no room. Read it by itself.]"
        ),
        "the third"
    );
    let many: Vec<_> = (0..30).map(|number| number.to_string()).collect();
    place.fails(
        "read_file",
        json!({"path": "a", "more_paths": many}),
        "That is 31 files; read at most 20 at a time.",
    );
    // A file with such a name takes precedence over a range of lines.
    place.put("c:1-2", "named so\n");
    place.put("c", "1\n2\n3\n");
    let words = place
        .run(
            "read_file",
            json!({"path": "b", "more_paths": ["c:1-2", "c:2-3"]}),
        )
        .0
        .content;
    assert_eq!(
        words,
        "b\n1 | x\n\nc:1-2\n1 | named so\n\nc\n2 | 2\n3 | 3\n[Lines 2 to 3 of 3.]"
    );
}

#[test]
fn long_texts() {
    let lines: String = (0..2500)
        .map(|number| format!("{number:>7} a line of some length that fills the file\n"))
        .collect();
    assert!(lines.len() > 100_000);
    let place = Place::with(&[
        ("a", "begin\nend\n"),
        ("b", "begin\nend\n"),
        ("c", "begin\nend\n"),
    ]);
    let added: String = lines.lines().map(|line| format!("+{line}\n")).collect();
    let patch = format!("*** Begin Patch\n*** Update File: c\n@@\n-begin\n{added}*** End Patch");
    let blocks = format!("------- SEARCH\nbegin\n=======\n{lines}+++++++ REPLACE");
    for (tool, path, arguments) in [
        (
            "edit_file",
            "a",
            json!({"path": "a", "old_string": "begin\n", "new_string": lines}),
        ),
        ("replace_in_file", "b", json!({"path": "b", "diff": blocks})),
        ("apply_patch", "c", json!({"patch": patch})),
    ] {
        let (output, _) = place.run(tool, arguments);
        assert!(
            !output.failed && output.content.len() < 17_000,
            "{tool}: {}",
            output.content
        );
        assert!(
            output
                .content
                .ends_with("more lines of the diff left out …]"),
            "{tool}"
        );
        assert_eq!(place.get(path), format!("{lines}end\n"), "{tool}");
    }
    place.done(
        "write_to_file",
        json!({"path": "d", "content": lines}),
        "Wrote 2500 lines to the new file `d`.",
    );
    assert_eq!(place.get("d"), lines);
}

#[test]
fn a_patch_that_no_longer_applies_changes_no_file() {
    let place = Place::with(&[("a", "one\n"), ("b", "one\n")]);
    let patch = |name: &str| format!("*** Update File: {name}\n@@\n-one\n+two\n");
    let both =
        json!({"patch": format!("*** Begin Patch\n{}{}*** End Patch", patch("a"), patch("b"))});
    place.run("read_file", json!({"path": "b"}));
    place.put("b", "one\nmore\n");
    let (output, _) = place.run("apply_patch", both.clone());
    assert!(
        output.failed && output.content.contains("+more\n"),
        "{}",
        output.content
    );
    assert_eq!(
        (place.get("a").as_str(), place.get("b").as_str()),
        ("one\n", "one\nmore\n")
    );
    place.done(
        "apply_patch",
        both,
        "Changed `a`, 1 hunk:\n@@ -1 +1 @@\n-one\n+two\nChanged `b`, 1 hunk:\n@@ -1,2 +1,2 @@\n-one\n+two\n more",
    );
}
