//! Tests string replacements and whole texts with tables.

use super::*;

#[track_caller]
fn check_count(original: &str, (old, new): (&str, &str), count: Option<usize>, expected: &str) {
    let replacement = StringReplacement {
        old: old.to_owned(),
        new: new.to_owned(),
        count,
    };
    let found = match apply_string_replacement(original, &replacement) {
        Ok(edited) => edited.content,
        Err(faults) => faults.iter().map(brief).collect::<Vec<_>>().join(", "),
    };
    assert_eq!(found, expected, "{original:?}: {old:?} to {new:?}");
}

#[track_caller]
fn check(original: &str, old: &str, new: &str, expected: &str) {
    check_count(original, (old, new), Some(1), expected);
}

#[test]
fn exact_text_is_replaced() {
    check("hello world", "world", "moon", "hello moon");
    check("price is $100", "$100", "$&$1$'", "price is $&$1$'");
    check("a\nb\nc\n", "b\n", "", "a\nc\n");
    check("a\nb\nc\n", "a\nb", "x", "x\nc\n");
    check(
        "line1\nline2\nline3",
        "line2",
        "new line 2\nextra",
        "line1\nnew line 2\nextra\nline3",
    );
    check("aé\n", "é", "e", "ae\n");
    check("foo foo foo", "foo", "bar", "Ambiguous@1 [1, 1, 1]");
    check("foo\nfoo\n", "foo", "bar", "Ambiguous@1 [1, 2]");
    check("aaa", "aa", "b", "Ambiguous@1 [1, 1]");
    check("a", "x", "y", "NotFound@1 []");
    check("a", "a", "a", "NoEffect@1 []");
    check("a", "", "x", "EmptySearch@1 []");
    check("", "", "new", "new");
    check("", "", "a\r\nb\r\n", "a\r\nb\r\n");
    check("", "", "", "NoEffect@1 []");
    check("", "a", "b", "NotFound@1 []");
}

#[test]
fn the_number_of_places_is_checked() {
    check_count("foo bar foo", ("foo", "x"), None, "x bar x");
    check_count("foo bar foo", ("foo", "x"), Some(2), "x bar x");
    check_count("foo bar foo", ("foo", "x"), Some(3), "WrongCount@1 [1, 1]");
    check_count("foo", ("foo", "x"), Some(0), "WrongCount@1 [1]");
    check_count("a", ("x", "y"), None, "NotFound@1 []");
    check_count("a\nb\na\nb\n", ("a\nb\n", "c\n"), Some(2), "c\nc\n");
}

#[test]
fn line_numbers_are_removed() {
    check("a\nb\nc\n", "2 | b\n", "2 | x\n", "a\nx\nc\n");
    check("a\nb\nc\n", "2 | b", "2 | x\n3 | y", "a\nx\ny\nc\n");
    check(
        "a\r\n  b\r\nc",
        " 2 |   b\n 3 | c",
        "  d\ne",
        "a\r\n  d\r\ne",
    );
    check("a\nb\nc\n", "2 | b", "", "a\nc\n");
    // The numbered place, before any other.
    check("x\nb\nx\n", "3 | x", "3 | y", "x\nb\ny\n");
    check("x\nb\nx\n", "2 | x", "y", "Ambiguous@1 [1, 3]");
    check("a\nb\n", "9 | b", "9 | c", "a\nc\n");
    check_count("x\nb\nx\n", ("1 | x", "1 | y"), None, "y\nb\ny\n");
    check("a\n    b\n", "2 | b", "2 | c", "a\n    c\n");
    check("a\n\nb\n\n", "2 | ", "2 | x", "a\nx\nb\n\n");
    // As written first; numbers in some lines only, and numbers that do not count up, are none.
    check("1 | a\na\n", "1 | a", "1 | b", "1 | b\na\n");
    check("a\nb\n", "1 | a\nb", "c", "NotFound@1 [1, 2]");
    check("a\nb\n", "1 | a\n3 | b", "c", "NotFound@1 []");
    check("a\nb\n", "1 | a\n2 | b", "1 | c\nd", "NotFound@1 []");
    check("a\nb\n", "1 | a", "1 | a", "NoEffect@1 []");
    check("a\nb\n", "1 | a", "a", "NoEffect@1 []");
}

#[test]
fn line_endings() {
    let crlf = "first\r\nsecond\r\nthird\r\n";
    check(
        crlf,
        "second\n",
        "REPLACED\n",
        "first\r\nREPLACED\r\nthird\r\n",
    );
    check(
        crlf,
        "first\nsecond",
        "one\ntwo\nthree",
        "one\r\ntwo\r\nthree\r\nthird\r\n",
    );
    check(crlf, "first\r\nsecond", "x\r\ny", "x\r\ny\r\nthird\r\n");
    check(crlf, "second", "x", "first\r\nx\r\nthird\r\n");
    check("a\nb\n", "a\r\nb\r\n", "c\r\nd\r\n", "c\nd\n");
    check(
        "hello\r\nworld\r\n---\r\nhello\nworld\n",
        "hello\nworld\n",
        "x\n",
        "Ambiguous@1 [1, 4]",
    );
    check(
        "a\r\nb\nc\r\nd\n",
        "a\nb\nc\n",
        "a\nx\nc\n",
        "a\r\nx\nc\r\nd\n",
    );
    check("a\rb\rc\r", "b\n", "x\n", "a\rx\rc\r");
}

#[test]
fn unicode_normal_forms_match() {
    check(
        "say “hi” – now\n",
        "\"hi\" -",
        "\"ho\" -",
        "say \"ho\" - now\n",
    );
    check("a  \nb\t\nc\n", "a\nb\n", "a\nx\n", "a  \nx\nc\n");
    check("a\nb\nc\n", "a  \nb  ", "a  \nx", "a\nx\nc\n");
    check("“a”\n\"a\"\n", "\"a\"", "b", "“a”\nb\n");
    check("cafe\u{301}\nx\n", "caf\u{e9}\n", "tea\n", "tea\nx\n");
    check("“a” “a”\n", "\"a\"", "b", "Ambiguous@1 [1, 1]");
    check_count("“a” “a”\n", ("\"a\"", "b"), None, "b b\n");
    check("a  \r\nb\r\n", "a\nb", "a\nc", "a  \r\nc\r\n");
}

#[test]
fn shifted_indentation() {
    let text = "    if (a) {\n        foo();\n    }\n";
    check(
        text,
        "if (a) {\n    foo();\n}",
        "if (a) {\n    bar();\n}",
        "    if (a) {\n        bar();\n    }\n",
    );
    check(text, "if (a) {\n    foo();\n}\n", "", "");
    check("a\n  b\n", "  a\n    b\n", "  a\n    c\n", "a\n  c\n");
    check(
        "  hello\n    world\n",
        "hello\nworld",
        "goodbye\nmoon",
        "NotFound@1 [1, 2]",
    );
    check("\ta\n\tb\n", "    a\n    b\n", "c\n", "NotFound@1 [1, 2]");
    check(
        text,
        "if (a) {\n    foo();\n}\n",
        "bar();",
        "NotFound@1 [1, 2, 3]",
    );
    check(
        "  a\n  b\n    a\n    b\n",
        "a\nb\n",
        "c\n",
        "Ambiguous@1 [1, 3]",
    );
}

#[test]
fn a_whole_text_is_replaced() {
    let content = |old: &str, new: &str| {
        replace_whole_text(old, new)
            .map(|edited| edited.content)
            .map_err(|faults| faults[0].kind)
    };
    assert_eq!(content("a\r\nb", "c\n"), Ok("c\n".to_owned()));
    assert_eq!(content("", "\n"), Ok("\n".to_owned()));
    assert_eq!(content("a", ""), Ok(String::new()));
    assert_eq!(content("a", "a"), Err(EditFaultKind::NoEffect));
}
