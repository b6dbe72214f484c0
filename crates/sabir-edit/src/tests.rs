//! Tests blocks with tables of text, diff, and result.

use super::*;

mod defects;
mod patches;
mod property;
mod strings;

/// Applies `diff`. A fault is rendered as its kind, its line in the diff, and the numbers of the lines that it shows.
#[track_caller]
fn check(original: &str, diff: &str, expected: &str) {
    let found = match apply_blocks(original, diff) {
        Ok(edited) => edited.content,
        Err(faults) => faults.iter().map(brief).collect::<Vec<_>>().join(", "),
    };
    assert_eq!(found, expected, "{original:?} with {diff}");
}

/// Checks like [`check`], and also the level at which the first block was found.
#[track_caller]
fn check_level(original: &str, diff: &str, level: MatchLevel, expected: &str) {
    check(original, diff, expected);
    assert_eq!(apply_blocks(original, diff).unwrap().hunks[0].level, level);
}

fn brief(fault: &EditFault) -> String {
    let numbers: Vec<usize> = fault.lines.iter().map(|line| line.number).collect();
    format!("{:?}@{} {numbers:?}", fault.kind, fault.line)
}

/// A block of the dash family.
fn block(search: &str, replace: &str) -> String {
    format!("------- SEARCH\n{search}=======\n{replace}+++++++ REPLACE\n")
}

#[test]
fn one_block() {
    check("a\nb\nc\n", &block("b\n", "B\n"), "a\nB\nc\n");
    check(
        "a\nb\nc\n",
        "<<<<<<< SEARCH\nb\n=======\nB\n>>>>>>> REPLACE",
        "a\nB\nc\n",
    );
    check("a\nb\nc\n", &block("b\n", ""), "a\nc\n");
    check("a\nb\nc\n", &block("a\nb\nc\n", "x\n"), "x\n");
    check("a\n", &block("a\n", "a\nb\n"), "a\nb\n");
    check(
        "a\n",
        &format!("Here it is:\n```\n{}```\n", block("a\n", "b\n")),
        "b\n",
    );
}

#[test]
fn several_blocks_in_any_order() {
    let diff = block("c\n", "C\nC\n") + &block("a\n", "A\n");
    check("a\nb\nc\n", &diff, "A\nb\nC\nC\n");
    let hunks = apply_blocks("a\nb\nc\n", &diff).unwrap().hunks;
    let level = MatchLevel::Exact;
    let hunk = |block, old_line, new_line, new_lines| AppliedHunk {
        block,
        old_line,
        old_lines: 1,
        new_line,
        new_lines,
        level,
    };
    assert_eq!(hunks, [hunk(2, 1, 1, 1), hunk(1, 3, 3, 2)]);
}

#[test]
fn bytes_are_kept() {
    check(
        "x = 1\n",
        &block("x = 1\n", "x = \"$&$1\\1&amp;\"  \n"),
        "x = \"$&$1\\1&amp;\"  \n",
    );
    check("a  \n", &block("a\n", "b\n"), "b\n");
    check("  a\n\tb\n", &block("\tb\n", "\t\tb\n"), "  a\n\t\tb\n");
    check(
        "a\u{a0}b\u{2028}c\n",
        &block("a\u{a0}b\u{2028}c\n", "é\n"),
        "é\n",
    );
    check("a\n\n\nb\n", &block("a\n\n\nb\n", "a\n\nb\n"), "a\n\nb\n");
}

#[test]
fn the_end_of_the_file() {
    check("a\nb", &block("b\n", "c\n"), "a\nc");
    check("a\nb", &block("b\n", "b\nc\n"), "a\nb\nc");
    check("a\nb", &block("b\n", "x\nb\n"), "a\nx\nb");
    check("a\nb", &block("a\n", "x\n"), "x\nb");
    check("a\nb", &block("b\n", ""), "a");
    check("a\r\nb", &block("b\n", "b\nc\n"), "a\r\nb\r\nc");
}

#[test]
fn line_endings_of_the_file() {
    check(
        "a\r\nb\r\nc\r\n",
        &block("b\n", "x\ny\n"),
        "a\r\nx\r\ny\r\nc\r\n",
    );
    check(
        "a\r\nb\r\nc\r\n",
        &block("b\n", "x\ny\n").replace('\n', "\r\n"),
        "a\r\nx\r\ny\r\nc\r\n",
    );
    check(
        "a\nb\n",
        &block("b\n", "x\n").replace('\n', "\r\n"),
        "a\nx\n",
    );
    check("a\r\nb\nc\r\nd\n", &block("c\n", "x\n"), "a\r\nb\nx\r\nd\n");
    check(
        "a\r\nb\nc\n",
        &block("a\nb\nc\n", "a\nx\nc\n"),
        "a\r\nx\nc\n",
    );
    check("a\rb\n", &block("a\rb\n", "c\n"), "c\n");
}

#[test]
fn dividers_within() {
    let twice = "UnclearDivider@1 []";
    check("a\n", &block("a\n", "Title\n=======\nb\n"), twice);
    check("a\n", &block("a\n", "=======\nb\n"), twice);
    check(
        "Title\n=======\nb\n",
        &block("Title\n=======\n", "Other\n=======\n"),
        twice,
    );
    check(
        "a\n",
        &block("a\n", "Title\n=====\nb\n"),
        "Title\n=====\nb\n",
    );
    check(
        "Title\n=====\nb\n",
        &block("Title\n=====\n", "Title\n==========\n"),
        "Title\n==========\nb\n",
    );
    check(
        "a\n",
        "<<<<< SEARCH\na\n===\nT\n=\n====\n>>>>> REPLACE",
        twice,
    );
    check(
        "x\n<<<<<<< SEARCH\ny\n",
        &block("<<<<<<< SEARCH\n", "z\n"),
        "x\nz\ny\n",
    );
    check(
        "a\n",
        &block("a\n", "<<<<<<< HEAD\nb\n\\=======\nc\n>>>>>>> main\n"),
        "<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> main\n",
    );
    let angles = |search: &str| format!("<<<<<<< SEARCH\n{search}\n=======\nx\n>>>>>>> REPLACE");
    for conflict in ["<<<<<<< HEAD", ">>>>>>> main", ">>>>>>>"] {
        check(
            &format!("{conflict}\n"),
            &angles(conflict),
            "StrayMarker@2 []",
        );
        check(
            &format!("{conflict}\n"),
            &angles(&format!("\\{conflict}")),
            "x\n",
        );
    }
    check("<<<<<<<<\n", &angles("<<<<<<<<"), "x\n");
}

#[test]
fn new_files() {
    check("", &block("", "a\nb\n"), "a\nb\n");
    check("", &block("\n", "a\n"), "a\n");
    check("", &block("", "Title\n\\=======\n"), "Title\n=======\n");
    check("a\n", &block("", "b\n"), "EmptySearch@1 []");
    check("", &block("a\n", "b\n"), "NotFound@1 []");
}

#[test]
fn malformed_diffs() {
    check("a\n", "", "NoBlocks@1 []");
    check("a\n", "just words\n======\n", "NoBlocks@1 []");
    check(
        "a\n",
        &format!("=======\n{}", block("a\n", "b\n")),
        "StrayMarker@1 []",
    );
    check("a\n", "------- SEARCH\na\n=======\nb\n", "Unclosed@1 []");
    check("a\n", "------- SEARCH\na\n", "Unclosed@1 []");
    check(
        "a\n",
        "------- SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
        "Unclosed@1 []",
    );
    check(
        "a\n",
        "------- SEARCH\na\n+++++++ REPLACE\n",
        "NoDivider@1 []",
    );
    check(
        "a\n",
        &format!("------- SEARCH\na\n{}", block("a\n", "b\n")),
        "Unclosed@1 []",
    );
    check(
        "a\n",
        &format!("{}+++++++ REPLACE\n", block("a\n", "b\n")),
        "StrayMarker@6 []",
    );
    check("a\n", &block("a\n", "a\n"), "NoEffect@1 []");
    check("a\n", &block("z\n", "z\n"), "NoEffect@1 []");
}

#[test]
fn ambiguous_and_overlapping_places_are_refused() {
    check("a\nb\na\n", &block("a\n", "x\n"), "Ambiguous@1 [1, 3]");
    check("a\na\na\n", &block("a\na\n", "x\n"), "Ambiguous@1 [1, 2]");
    check(
        "a\nb\nc\n",
        &(block("a\nb\n", "x\n") + &block("b\nc\n", "y\n")),
        "Overlap@7 []",
    );
    check(
        "a\nb\n",
        &(block("a\n", "x\n") + &block("a\n", "x\n")),
        "Overlap@6 []",
    );
    check(
        "a\nb\n",
        &(block("q\n", "x\n") + &block("b\n", "b\n")),
        "NotFound@1 [], NoEffect@6 []",
    );
}

#[test]
fn markers() {
    for (open, divider, close) in [
        ("--- SEARCH", "===", "+++ REPLACE"),
        ("<<< SEARCH", "=====", ">>>>>>>>> REPLACE"),
        ("------- SEARCH>", "=======", "+++++++ REPLACE"),
        ("<<<<<<< SEARCH>  ", "=======  ", ">>>>>>> REPLACE "),
    ] {
        check(
            "a\nb\n",
            &format!("{open}\na\n{divider}\nx\n{close}"),
            "x\nb\n",
        );
    }
    let stray = "StrayMarker@3 [], StrayMarker@5 []";
    for open in [
        "<<-- SEARCH",
        "-- SEARCH",
        "-------SEARCH",
        "<<<<<<< SEARCH>>",
        "<<<<<<< SEARCH  >",
        " ------- SEARCH",
    ] {
        check(
            "a\n",
            &format!("{open}\na\n=======\nx\n+++++++ REPLACE"),
            stray,
        );
    }
    check(
        "a\n",
        "------- SEARCH\na\n======= \nx\n+++++++ REPLACE",
        "NoDivider@1 []",
    );
    check(
        "a\n",
        "------- SEARCH\na\n------- =======\nx\n+++++++ REPLACE",
        "NoDivider@1 []",
    );
    check(
        "a\n",
        "------- SEARCH\na\n+++++++ REPLACE\nx\n+++++++ REPLACE",
        "NoDivider@1 [], StrayMarker@5 []",
    );
}

#[test]
fn prose_and_fences_around() {
    let angles = "<<<<<<< SEARCH\na\n=======\nx\n>>>>>>> REPLACE";
    check(
        "a\n",
        &format!("Here:\n\n```text\nfile.txt\n{angles}\n```\nHope you like it!\n"),
        "x\n",
    );
    check(
        "a\nb\n",
        &format!(
            "f\n```\n{angles}\n```\n...\n```\n{}```\n",
            block("b\n", "y\n")
        ),
        "x\ny\n",
    );
}

#[test]
fn line_hints() {
    let text = "a\nx\nb\nx\nc\n";
    let hinted = |hint: &str| format!("<<<<<<< SEARCH\n{hint}x\n=======\ny\n>>>>>>> REPLACE\n");
    for hint in [
        ":start_line:4\n-------\n",
        ":start_line: [5]\n",
        ":start_line:[4]\n:end_line:[4]\n-------\n",
        ":end_line:4\n",
    ] {
        check(text, &hinted(hint), "a\nx\nb\ny\nc\n");
    }
    check(text, &hinted(":start_line:1\n-------\n"), "a\ny\nb\nx\nc\n");
    check(
        text,
        &hinted(":start_line:3\n-------\n"),
        "Ambiguous@1 [2, 4]",
    );
    check("a\nx\n", &hinted(":start_line:900\n-------\n"), "a\ny\n");
    check(text, &hinted("\\:start_line:4\n"), "NotFound@1 [1, 2]");
    check(":start_line:4\nx\n", &hinted("\\:start_line:4\n"), "y\n");
    let late = "<<<<<<< SEARCH\nx\n=======\n  :start_line:5\ny\n>>>>>>> REPLACE";
    check(text, late, "StrayMarker@4 []");
    let escaped = "<<<<<<< SEARCH\na\n=======\n\\:start_line:5\n\\:end_line:5\n>>>>>>> REPLACE";
    check("a\n", escaped, ":start_line:5\n:end_line:5\n");
}

#[test]
fn escapes() {
    let conflict = "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> main\n";
    let diff = "<<<<<<< SEARCH\n\\<<<<<<< HEAD\nb\n\\=======\nc\n\\>>>>>>> main\n=======\nb\n>>>>>>> REPLACE";
    check(conflict, diff, "a\nb\n");
    check(
        "a\n",
        &block("a\n", "\\=======\n\\\\=======\n"),
        "=======\n\\=======\n",
    );
    check(
        "\\=======\n",
        &block("\\=======\n", "x\n\\=======\n"),
        "x\n\\=======\n",
    );
    check("a\n", &block("a\n", "\\n\n\\--\n"), "\\n\n\\--\n");
}

#[test]
fn line_numbers() {
    let diff = |search: &str, replace: &str| {
        format!("<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE")
    };
    check("a\nb\nc\n", &diff("2 | b\n", ""), "a\nc\n");
    check(
        "x\nb\nx\nb\n",
        &diff("3 | x\n4 | b\n", "3 | y\n4 | b\n"),
        "x\nb\ny\nb\n",
    );
    check("a\nb\n", &diff("1 | a\n3 | b\n", ""), "NotFound@1 []");
    // REPLACE without numbers, and with blank lines that have none.
    check(
        "x\nb\nx\nb\n",
        &diff("3 | x\n4 | b\n", "y\nb\n"),
        "x\nb\ny\nb\n",
    );
    check(
        "a\nb\n",
        &diff("2 | b\n", "2 | c\n\n3 | b\n"),
        "a\nc\n\nb\n",
    );
    // Elsewhere only if it is the only place.
    check("a\nb\n", &diff("9 | b\n", "9 | c\n"), "a\nc\n");
    check("x\nb\nx\n", &diff("2 | x\n", "y\n"), "Ambiguous@1 [1, 3]");
    check("1 | a\n", &diff("1 | a\n", "1 | b\n"), "1 | b\n");
}

#[test]
fn normal_forms() {
    let level = MatchLevel::Normalised;
    check_level(
        "a \nb\t\nc\n",
        &block("a\nb\n", "a\nx\n"),
        level,
        "a \nx\nc\n",
    );
    check_level(
        "a\nb\nc\n",
        &block("a  \nb\t\n", "a  \nx\n"),
        level,
        "a\nx\nc\n",
    );
    check_level(
        "a\nb\nc\n",
        &block("a  \nb\n", "a\nx\n"),
        level,
        "a\nx\nc\n",
    );
    check_level(
        "x = “q”\n– b\n",
        &block("x = \"q\"\n- b\n", "x = \"q\"\n- c\n"),
        level,
        "x = “q”\n- c\n",
    );
    check_level(
        "it’s\u{a0}so\n",
        &block("it's so\n", "it's not\n"),
        level,
        "it's not\n",
    );
    check_level(
        "cafe\u{301}\nx\n",
        &block("caf\u{e9}\nx\n", "caf\u{e9}\ny\n"),
        level,
        "cafe\u{301}\ny\n",
    );
    check("“a”\n\"a\"\n", &block("\"a\"\n", "b\n"), "“a”\nb\n");
    check(
        "“a”\n„a”\n‟a”\n",
        &block("\"a\"\n", "b\n"),
        "Ambiguous@1 [1, 2, 3]",
    );
    check("a\n", &block("a  \n", "a\n"), "NoEffect@1 []");
    check("a \n", &block("a \n", "a\n"), "a\n");
}

#[test]
fn blank_lines_around() {
    let level = MatchLevel::Normalised;
    check_level("a\nb\nc\n", &block("\nb\n  \n", "x\n"), level, "a\nx\nc\n");
    check_level(
        "a\nb\nc\n",
        &block("\n\nb\n\n", "\n\n\nx\n\n"),
        level,
        "a\n\nx\nc\n",
    );
    check_level(
        "a\nb\nc\n",
        &block("b\n\n", "\nx\n\n\n"),
        level,
        "a\n\nx\n\nc\n",
    );
    check_level(
        "    a\n    b\n",
        &block("\n  a\n  b\n", "  x\n  b\n"),
        MatchLevel::Shifted,
        "    x\n    b\n",
    );
    check("a\nb\n", &block("b\n\n", ""), "a\n");
    // If the text has the blank lines, they are meant.
    check("b\n\nb\nc\n", &block("b\n\n", "x\n"), "x\nb\nc\n");
    check("b\nb\nc\n", &block("b\n\n", "x\n"), "Ambiguous@1 [1, 2]");
    check("a\nb\n", &block("b\n\n", "b\n"), "NoEffect@1 []");
    check("a\nb\n", &block("\n\n", "b\n"), "NotFound@1 []");
}

#[test]
fn shifted_indentation() {
    let level = MatchLevel::Shifted;
    check_level(
        "if x:\n    a\n    b\n",
        &block("a\nb\n", "a\n  c\n"),
        level,
        "if x:\n    a\n      c\n",
    );
    check_level(
        "\tf() {\n\t\ta;\n\t}\n",
        &block("f() {\n\ta;\n}\n", "f() {\n\tb;\n\n}\n"),
        level,
        "\tf() {\n\t\tb;\n\n\t}\n",
    );
    check_level(
        "a\n  b\n",
        &block("    a\n      b\n", "    a\n      c\n    d\n"),
        level,
        "a\n  c\nd\n",
    );
    check_level(
        "  a\n\n  b\n",
        &block("a\n    \nb\n", "a\n\nc\n"),
        level,
        "  a\n\n  c\n",
    );
    // Cases: different shifts, tabs for spaces, less indentation than to remove, tabs and spaces
    // mixed.
    check("  a\n    b\n", &block("a\nb\n", "c\n"), "NotFound@1 [1, 2]");
    check(
        "\ta\n\t\tb\n",
        &block("    a\n        b\n", "c\n"),
        "NotFound@1 [1, 2]",
    );
    check(
        "a\nb\n",
        &block("  a\n  b\n", "  a\nc\n"),
        "Indentation@1 [1, 2]",
    );
    check("\ta\n", &block("a\n", "a\n    b\n"), "Indentation@1 [1]");
    check("    a\n  a\n", &block("a\n", "b\n"), "Ambiguous@1 [1, 2]");
}

#[test]
fn nearest_lines_are_named() {
    let text = "fn one() {\n    1\n}\n\nfn two() {\n    2\n}\n";
    check(
        text,
        &block("fn two() {\n  2\n}\n", "x\n"),
        "NotFound@1 [5, 6, 7]",
    );
    let fault = apply_blocks(text, &block("fn two() {\n  2\n}\n", "x\n"))
        .unwrap_err()
        .remove(0);
    assert_eq!(
        fault.to_string(),
        "block 1, line 1 of the diff: SEARCH is not in the text; the nearest place is line 5, where line 2 of SEARCH, \"  2\", \
         differs only in its indentation; read the file again and copy the lines exactly, indentation included.\n     \
         5 | fn two() {\n     6 |     2\n     7 | }"
    );
    check(text, &block("fn twoo() {\n", "x\n"), "NotFound@1 [5]");
    check(text, &block("something else\n", "x\n"), "NotFound@1 []");
    check(text, &block("}\nend\n", "x\n"), "NotFound@1 [3, 4]");
}

#[test]
fn large_texts_are_searched_in_bounded_time() {
    let text = "same\n".repeat(200_000) + "last\n";
    let search = "same\n".repeat(100_000) + "other\n";
    assert_eq!(
        apply_blocks(&text, &block(&search, "x\n"))
            .unwrap_err()
            .len(),
        1
    );
    let fault = apply_blocks(&text, &block("same\nsame\n", "x\n"))
        .unwrap_err()
        .remove(0);
    assert!(
        fault
            .message
            .starts_with("SEARCH is found at at least 1000 places"),
        "{fault}"
    );
    let many = block("same\nsame\n", "x\n").repeat(1000);
    assert_eq!(apply_blocks(&text, &many).unwrap_err().len(), 1000);
    let faults = apply_blocks("a\nb\n", &block("a\nx\n", "y\n").repeat(1000)).unwrap_err();
    assert_eq!(
        faults.iter().filter(|fault| fault.lines.is_empty()).count(),
        990,
        "nearest lines for the first only"
    );
}

proptest::proptest! {
    #[test]
    fn a_unique_line_is_replaced_and_nothing_else(before in "([ab ]{0,3}\r?\n){0,6}", after in "([ab ]{0,3}\r?\n){0,6}") {
        let edited = apply_blocks(&format!("{before}X\n{after}"), &block("X\n", "Y\n")).unwrap();
        assert_eq!(edited.content, format!("{before}Y\n{after}"));
    }

    #[test]
    fn nothing_panics(text in "[ab\r\n=]{0,40}", diff in "(------- SEARCH\n|=======\n|\\+{7} REPLACE\n|[ab]\r?\n){0,12}") {
        let _ = apply_blocks(&text, &diff);
    }
}
