//! Tests the defects of older engines, each of which damaged files.

use super::*;

#[test]
fn ambiguous_search_does_not_edit_the_first_place() {
    check("x\ny\nx\n", &block("x\n", "z\n"), "Ambiguous@1 [1, 3]");
}

#[test]
fn an_anchor_does_not_replace_an_inside_that_differs() {
    let text = "fn f() {\n    important();\n    kept();\n}\n";
    check(
        text,
        &block("fn f() {\n    other();\n    kept();\n}\n", "fn f() {}\n"),
        "NotFound@1 [1, 2, 3, 4]",
    );
}

#[test]
fn indentation_is_not_lost() {
    check(
        "    if a {\n        b\n    }\n",
        &block("if a {\n    b\n}\n", "if a {\n    c\n}\n"),
        "    if a {\n        c\n    }\n",
    );
    check("  a\n", &block("  a\n", "    a\n\tb\n"), "    a\n\tb\n");
}

#[test]
fn line_endings_are_not_mixed() {
    check(
        "a\r\nb\r\nc\r\n",
        &block("b\n", "x\ny\n"),
        "a\r\nx\r\ny\r\nc\r\n",
    );
}

#[test]
fn a_divider_in_the_replacement_loses_no_lines() {
    check(
        "a\nb\n",
        &block("a\n", "T\n=======\nU\n"),
        "UnclearDivider@1 []",
    );
    check(
        "a\nb\n",
        &block("a\n", "T\n\\=======\nU\n"),
        "T\n=======\nU\nb\n",
    );
    check(
        "T\n=======\nnew\n",
        &block("T\n=======\nold\n", "x\n"),
        "UnclearDivider@1 []",
    );
    check(
        "T\n===\nold\n",
        &block("T\n===\nstale\n", "x\n"),
        "NotFound@1 [1, 2, 3]",
    );
}

#[test]
fn a_diff_without_blocks_does_not_succeed() {
    check("a\n", "Sure, I changed it.", "NoBlocks@1 []");
}

#[test]
fn nothing_is_expanded_in_new_code() {
    let code = "'$&' '$1' '$$' '$`' \\n \\1 %s &lt; {0}\n";
    check("a\n", &block("a\n", code), code);
    let replacement = StringReplacement {
        old: "a".to_owned(),
        new: code.to_owned(),
        count: Some(1),
    };
    assert_eq!(
        apply_string_replacement("a", &replacement).unwrap().content,
        code
    );
}

#[test]
fn trailing_spaces_are_not_dropped() {
    check("a  \nb\n", &block("b\n", "c \t\n"), "a  \nc \t\n");
    check("a  \nb  \n", &block("a\nb\n", "a\nc\n"), "a  \nc\n");
}

#[test]
fn a_cut_edit_is_not_applied() {
    check("a\nb\n", "------- SEARCH\na\n=======\nx", "Unclosed@1 []");
    assert!(Patch::parse("*** Begin Patch\n*** Update File: f\n@@\n-a\n+x\n").is_err());
}

#[test]
fn a_file_without_a_final_newline_keeps_none_when_its_last_line_goes() {
    check("a\nb", &block("b\n", ""), "a");
    check("a\r\nb", &block("b\n", ""), "a");
    check("a\nb\nc", &block("b\nc\n", ""), "a");
    check("a\nb\n", &block("b\n", ""), "a\n");
    check("a", &block("a\n", ""), "");
}
