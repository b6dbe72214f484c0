//! Compares converted output with what a terminal would show.

use super::*;

fn plain(pieces: &[&[u8]]) -> String {
    let mut plain = TerminalTextConverter::new();
    let mut text = Vec::new();
    let mut out = |bytes: &[u8]| text.extend_from_slice(bytes);
    pieces.iter().for_each(|piece| plain.push(piece, &mut out));
    plain.finish(&mut out);
    String::from_utf8_lossy(&text).into_owned()
}

/// Checks the text of an output, however it is split into pieces.
#[track_caller]
fn check(output: &str, expected: &str) {
    assert_eq!(plain(&[output.as_bytes()]), expected, "{output:?}");
    let bytes: Vec<&[u8]> = output.as_bytes().chunks(1).collect();
    assert_eq!(plain(&bytes), expected, "{output:?} in bytes");
}

#[test]
fn plain_text_is_unchanged() {
    check("", "");
    check("a\n\n  b \té\n", "a\n\n  b \té\n");
    check("no end", "no end");
    check("\u{1f600} 日本\n", "\u{1f600} 日本\n");
    check("a\r\nb\r\n", "a\nb\n");
    check("one\0two\0\x07\n", "one␀two␀\n");
}

#[test]
fn colours_and_titles_are_removed() {
    check(
        "\x1b[1;31merror\x1b[0m: \x1b[38;5;9mno\x1b[m\n",
        "error: no\n",
    );
    check(
        "\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n",
        "textlink\n",
    );
    check("\x1b[?25l\x1b=\x1b(Btext\x1b[?25h", "text");
}

#[test]
fn lines_are_rewritten() {
    check("10 %\r50 %\r100 %\ndone\n", "100 %\ndone\n");
    check("long line\rshort\x1b[K\n", "short\n");
    check("long line\rshort\n", "shortline\n");
    check("ab\x08c\x08\x08d\n", "dc\n");
    check("a\tb\rX\n", "X\tb\n");
    check("日本\rab\n", "ab本\n");
    check("\x1b[5Cx\n", "     x\n");
}

#[test]
fn the_cursor_moves() {
    check("one\ntwo\n\x1b[2A\x1b[2K1\n2\x1b[K\n", "1\n2\n");
    check("abc\x1b[2DX\x1b[1GY\n", "YXc\n");
    check("abcdef\x1b[4G\x1b[2P|\n", "abc|\n");
    check("abc\x1b[2G\x1b[2@12\n", "a12bc\n");
    check("abc\x1b[1G\x1b[2X\n", "  c\n");
    check("a\nb\nc\x1b[2;1H\x1b[1Mx\n", "a\nx\n");
    check("a\nb\x1b[1;1H\x1b[1Lx\n", "x\na\nb");
    check("a\nb\n\x1b[H\x1b[2Jz", "z\n\n");
    check("a\nb\nc\x1b[1;2H\x1b[J", "a");
    check("\x1b[s12\x1b[u3\x1b7x\x1b8y", "3y");
    check("a\n\x1bMb", "b\n");
}

#[test]
fn a_full_screen_program_leaves_nothing_behind() {
    check(
        "before\n\x1b[?1049h\x1b[Hmenu\n1\n2\x1b[?1049lafter\n",
        "before\nafter\n",
    );
    check("before\n\x1b[?1049h\x1b[2;3Hmenu", "\n  menu");
}

#[test]
fn scrolled_lines_are_kept() {
    let lines: String = (1..=500).map(|number| format!("{number}\n")).collect();
    check(&lines, &lines);
    // The cursor cannot leave the top of the screen.
    let rewritten = lines.replace("462\n", "top\n");
    check(&format!("{lines}\x1b[999A\x1b[2Ktop\x1b[999B"), &rewritten);
}

#[test]
fn long_lines_are_kept() {
    let long = "x".repeat(100_000);
    assert_eq!(plain(&[long.as_bytes()]), long);
    assert_eq!(
        plain(&[b"\x1b[m", long.as_bytes(), b"\n"]),
        format!("{long}\n")
    );
    let wide = "日".repeat(50_000);
    assert_eq!(plain(&[wide.as_bytes()]), wide);
}

#[test]
fn an_unfinished_sequence_does_not_hide_later_text() {
    let text = format!("\x1b]{}\nhere\n", "x".repeat(3 * MAX_SILENT_BYTES));
    assert!(plain(&[text.as_bytes()]).ends_with("\nhere\n"));
}

#[test]
fn invalid_bytes_are_replaced_or_passed() {
    // Bytes that pass unchanged are replaced where they become text.
    assert_eq!(plain(&[b"a\xffb\n"]), "a\u{fffd}b\n");
    assert_eq!(plain(&[b"\x1b[ma\xffb\xe2\x82"]), "a\u{fffd}b\u{fffd}");
}

proptest::proptest! {
    #[test]
    fn chunks_do_not_change_the_text(
        words in proptest::collection::vec("[a-cé日]{0,5}|\n|\r|\t|\x08|\x1b\\[[0-3]{0,1}[ABCDGHJKLMPX@]|\x1b\\[31m", 0..80),
        at in 0_usize..300,
        many in 0_usize..60,
    ) {
        let text = format!("{}{}", "line\n".repeat(many), words.concat());
        let (first, second) = text.as_bytes().split_at(at.min(text.len()));
        assert_eq!(plain(&[first, second]), plain(&[text.as_bytes()]));
    }

    #[test]
    fn any_bytes_are_accepted(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000)) {
        let whole = plain(&[&bytes]);
        assert!(!whole.contains(['\x1b', '\r', '\0']));
    }
}
