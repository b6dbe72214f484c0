//! Tables of edits: text, diff, and what comes out.

use super::*;

/// Applies `diff`; a fault is shown by its kind, line in the diff, and the numbers of the lines it shows.
#[track_caller]
fn check(original: &str, diff: &str, expected: &str) {
    let found = match apply_blocks(original, diff) {
        Ok(edited) => edited.content,
        Err(faults) => faults.iter().map(brief).collect::<Vec<_>>().join(", "),
    };
    assert_eq!(found, expected, "{original:?} with {diff}");
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
    check("a\nb\nc\n", "<<<<<<< SEARCH\nb\n=======\nB\n>>>>>>> REPLACE", "a\nB\nc\n");
    check("a\nb\nc\n", &block("b\n", ""), "a\nc\n");
    check("a\nb\nc\n", &block("a\nb\nc\n", "x\n"), "x\n");
    check("a\n", &block("a\n", "a\nb\n"), "a\nb\n");
    check("a\n", &format!("Here it is:\n```\n{}```\n", block("a\n", "b\n")), "b\n");
}

#[test]
fn several_blocks_in_any_order() {
    let diff = block("c\n", "C\nC\n") + &block("a\n", "A\n");
    check("a\nb\nc\n", &diff, "A\nb\nC\nC\n");
    let hunks = apply_blocks("a\nb\nc\n", &diff).unwrap().hunks;
    let hunk = |block, old_line, new_line, new_lines| Hunk { block, old_line, old_lines: 1, new_line, new_lines };
    assert_eq!(hunks, [hunk(2, 1, 1, 1), hunk(1, 3, 3, 2)]);
}

#[test]
fn bytes_are_kept() {
    check("x = 1\n", &block("x = 1\n", "x = \"$&$1\\1&amp;\"  \n"), "x = \"$&$1\\1&amp;\"  \n");
    check("a  \n", &block("a\n", "b\n"), "NotFound@1 [1]");
    check("  a\n\tb\n", &block("\tb\n", "\t\tb\n"), "  a\n\t\tb\n");
    check("a\u{a0}b\u{2028}c\n", &block("a\u{a0}b\u{2028}c\n", "é\n"), "é\n");
    check("a\n\n\nb\n", &block("a\n\n\nb\n", "a\n\nb\n"), "a\n\nb\n");
}

#[test]
fn the_end_of_the_file() {
    check("a\nb", &block("b\n", "c\n"), "a\nc");
    check("a\nb", &block("b\n", "b\nc\n"), "a\nb\nc");
    check("a\nb", &block("b\n", "x\nb\n"), "a\nx\nb");
    check("a\nb", &block("a\n", "x\n"), "x\nb");
    check("a\nb", &block("b\n", ""), "a\n");
    check("a\r\nb", &block("b\n", "b\nc\n"), "a\r\nb\r\nc");
    check("a\nb\n", &block("b\n\n", "c\n"), "NotFound@1 [2]");
}

#[test]
fn line_endings_of_the_file() {
    check("a\r\nb\r\nc\r\n", &block("b\n", "x\ny\n"), "a\r\nx\r\ny\r\nc\r\n");
    check("a\r\nb\r\nc\r\n", &block("b\n", "x\ny\n").replace('\n', "\r\n"), "a\r\nx\r\ny\r\nc\r\n");
    check("a\nb\n", &block("b\n", "x\n").replace('\n', "\r\n"), "a\nx\n");
    check("a\r\nb\nc\r\nd\n", &block("c\n", "x\n"), "a\r\nb\nx\r\nd\n");
    check("a\r\nb\nc\n", &block("a\nb\nc\n", "a\nx\nc\n"), "a\r\nx\nc\n");
    check("a\rb\n", &block("a\rb\n", "c\n"), "c\n");
}

#[test]
fn dividers_within() {
    check("a\n", &block("a\n", "Title\n=======\nb\n"), "Title\n=======\nb\n");
    check("Title\n=======\nb\n", &block("Title\n=======\n", "Other\n=======\n"), "Other\n=======\nb\n");
    check("a\n=======\nb\n", &block("a\n=======\nb\n", "c\n"), "c\n");
    check("x\n<<<<<<< SEARCH\ny\n", &block("<<<<<<< SEARCH\n", "z\n"), "x\nz\ny\n");
    check(
        "a\n",
        &block("a\n", "<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> main\n"),
        "<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> main\n",
    );
}

#[test]
fn new_files() {
    check("", &block("", "a\nb\n"), "a\nb\n");
    check("", &block("\n", "a\n"), "a\n");
    check("", &block("", "Title\n=======\n"), "Title\n=======\n");
    check("a\n", &block("", "b\n"), "EmptySearch@1 []");
    check("", &block("a\n", "b\n"), "NotFound@1 []");
}

#[test]
fn malformed_diffs() {
    check("a\n", "", "NoBlocks@1 []");
    check("a\n", "just words\n=======\n", "NoBlocks@1 []");
    check("a\n", "------- SEARCH\na\n=======\nb\n", "Unclosed@1 []");
    check("a\n", "------- SEARCH\na\n", "Unclosed@1 []");
    check("a\n", "------- SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", "Unclosed@1 []");
    check("a\n", "------- SEARCH\na\n+++++++ REPLACE\n", "NoDivider@1 []");
    check("a\n", &format!("------- SEARCH\na\n{}", block("a\n", "b\n")), "Unclosed@1 []");
    check("a\n", &format!("{}+++++++ REPLACE\n", block("a\n", "b\n")), "StrayMarker@6 []");
    check("a\n", &block("a\n", "a\n"), "NoEffect@1 []");
    check("a\n", &block("z\n", "z\n"), "NoEffect@1 []");
}

#[test]
fn places() {
    check("a\nb\na\n", &block("a\n", "x\n"), "Ambiguous@1 [1, 3]");
    check("a\na\na\n", &block("a\na\n", "x\n"), "Ambiguous@1 [1, 2]");
    check("a\nb\nc\n", &(block("a\nb\n", "x\n") + &block("b\nc\n", "y\n")), "Overlap@7 []");
    check("a\nb\n", &(block("a\n", "x\n") + &block("a\n", "x\n")), "Overlap@6 []");
    check("a\nb\n", &(block("q\n", "x\n") + &block("b\n", "b\n")), "NotFound@1 [], NoEffect@6 []");
}

#[test]
fn nearest_lines_are_named() {
    let text = "fn one() {\n    1\n}\n\nfn two() {\n    2\n}\n";
    check(text, &block("fn two() {\n  2\n}\n", "x\n"), "NotFound@1 [5, 6, 7]");
    let fault = apply_blocks(text, &block("fn two() {\n  2\n}\n", "x\n")).unwrap_err().remove(0);
    assert_eq!(
        fault.to_string(),
        "block 1, line 1 of the diff: SEARCH is not in the text; the nearest place is line 5, where line 2 of SEARCH, \"  2\", \
         differs only in spaces or tabs at its beginning or end; read the file again and copy the lines exactly, indentation \
         included.\n     5 | fn two() {\n     6 |     2\n     7 | }"
    );
    check(text, &block("fn twoo() {\n", "x\n"), "NotFound@1 [5]");
    check(text, &block("something else\n", "x\n"), "NotFound@1 []");
    check(text, &block("}\nend\n", "x\n"), "NotFound@1 [3, 4]");
}

#[test]
fn large_texts_are_quick() {
    let mut text = "same\n".repeat(200_000);
    text.push_str("last\n");
    let mut search = "same\n".repeat(100_000);
    search.push_str("other\n");
    let start = std::time::Instant::now();
    assert_eq!(apply_blocks(&text, &block(&search, "x\n")).unwrap_err().len(), 1);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
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
