//! Tests of the Python parser: texts and their events, every split, every cut, and a round trip
//! through the renderer.

use proptest::prelude::*;

use super::PythonRegionParser;
use super::harness::{any_arguments, cut_anywhere, in_every_split, run_parser};
use crate::dialect::grammar::PythonCalls;
use crate::dialect::python::render_python;
use crate::event::Truncation;

const BARE: PythonCalls = PythonCalls {
    open: "",
    close: "",
    list: true,
};
const MARKED: PythonCalls = PythonCalls {
    open: "<start>",
    close: "<end>",
    list: true,
};

fn events(grammar: PythonCalls, text: &str) -> (String, Option<usize>) {
    let driven = in_every_split(text, || PythonRegionParser::new(grammar, "d", 0, 0));
    (driven.events.join("\n"), driven.over)
}

#[track_caller]
fn check(grammar: PythonCalls, text: &str, expected: &str) {
    let (events, over) = events(grammar, text);
    let over = over.map_or(String::new(), |at| format!("\nover {at}"));
    let expected: Vec<_> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!((events + &over).trim(), expected.join("\n"), "{text}");
}

/// Returns the value of the only argument of a call, as `form text`, or the fault.
#[track_caller]
fn value(source: &str) -> String {
    let driven = in_every_split(&format!("[f(a={source})]"), || {
        PythonRegionParser::new(BARE, "d", 0, 0)
    });
    let argument = driven
        .draft
        .call_by_index(0)
        .and_then(|call| call.arguments.first());
    let mut line = argument.map_or(String::new(), |it| format!("{:?} {}", it.form, it.text));
    for fault in &driven.draft.faults {
        // The source follows `[f(a=`.
        line += &format!(
            " {:?} {}@{}",
            fault.severity,
            fault.kind.name(),
            fault.span.start - 5
        );
    }
    line
}

#[test]
fn calls_in_a_list() {
    check(BARE, "[f()] then", "0 call f 0 1\n0 end 5\nover 5");
    check(BARE, "[]", "over 2");
    check(
        BARE,
        "[f(a=\"x\", b=1), srv.tool-x ( c = [1, 'y'] , ) , ]",
        "0 call f 0 1
         0 arg a String 6
         0 | x
         0 arg end 7
         0 arg b Json 12
         0 | 1
         0 arg end 13
         0 end 14
         mark 16..28
         1 call srv.tool-x 16 16
         1 arg c Json 33
         1 | [1,\"y\"]
         1 arg end 41
         1 end 45
         over 49",
    );
    check(
        MARKED,
        "\n[f(), g()]\n<end> then",
        "0 call f 0 2\n0 end 5\nmark 7..9\n1 call g 7 7\n1 end 17\nover 17",
    );
}

#[test]
fn calls_without_a_list() {
    check(
        BARE,
        "f(a=1)",
        "0 call f 0 0\n0 arg a Json 4\n0 | 1\n0 arg end 5\n0 end 6",
    );
    check(
        BARE,
        "f()\n\ng(); h()\nThen",
        "0 call f 0 0\n0 end 3\nmark 5..7\n1 call g 5 5\n1 end 8\nmark 10..12\n2 call h 10 10\n2 end 13\nover 14",
    );
    check(BARE, "f()\r\n- x", "0 call f 0 0\n0 end 3\nover 5");
    check(
        BARE,
        "f() is nice",
        "0 call f 0 0\n0 error stray_text 4..5 a new line was expected behind the call, found `i`\n0 end 4\nover 4",
    );
    check(
        MARKED,
        "\nf()\ng()\n<end>",
        "0 call f 0 1\n0 end 4\nmark 5..7\n1 call g 5 5\n1 end 8\nover 14",
    );
    check(MARKED, "f()<end>", "0 call f 0 0\n0 end 8\nover 8");
    check(MARKED, "<end>", "over 5");
}

#[test]
fn names_of_any_kind() {
    check(
        BARE,
        "[f(**{'a b': 1, \"c\" : 'x',}, d=2)]",
        "0 call f 0 1
         0 arg a b Json 13
         0 | 1
         0 arg end 14
         0 arg c String 23
         0 | x
         0 arg end 24
         0 arg d Json 31
         0 | 2
         0 arg end 32
         0 end 34
         over 34",
    );
    check(
        BARE,
        "[f(a=1, a=2)]",
        "0 call f 0 1\n0 arg a Json 5\n0 | 1\n0 arg end 6
         0 error doubled_argument 9..10 the argument `a` is given twice
         0 arg a Json 10\n0 | 2\n0 arg end 11\n0 end 13\nover 13",
    );
}

#[test]
fn values() {
    for (source, expected) in [
        ("'x'", "String x"),
        ("\"\"", "String "),
        ("'it\\'s'", "String it's"),
        ("'say \"hi\"'", "String say \"hi\""),
        ("'''a 'b' ''c\n'''", "String a 'b' ''c\n"),
        ("\"\"\"a\"\"b\\\"\"\"\"", "String a\"\"b\""),
        ("r'\\n\\'x'", "String \\n\\'x"),
        ("R\"\\d\"", "String \\d"),
        ("u'x'", "String x"),
        ("'a' 'b'\n \"c\"r'\\n' U'''d'''", "String abc\\nd"),
        (
            "'\\n\\t\\\\\\x41\\u00e9\\U0001f30d\\101\\0'",
            "String \n\t\\Aé🌍A\0",
        ),
        ("'\\ud83c\\udf0d'", "String 🌍"),
        ("'a\\\nb'", "String ab"),
        ("'\\d\\N{DIGIT ONE}\\/'", "String \\d\\N{DIGIT ONE}\\/"),
        (
            "'\\ud83cx\\ud83c'",
            "String \u{fffd}x\u{fffd} Error malformed_json@1",
        ),
        ("'a\nb\nc'", "String a\nb\nc Warning control_character@2"),
        ("True", "Json true"),
        ("none", " Error malformed_json@0"),
        ("None", "Json null"),
        ("false", "Json false"),
        ("-1_000.5e3", "Json -1000.5e3"),
        ("0xff", "Json 255"),
        (".5", "Json 0.5"),
        ("['\\0\\x1f\\x20\\x7f']", "Json [\"\\u0000\\u001f \u{7f}\"]"),
        ("[]", "Json []"),
        ("()", "Json []"),
        ("(1,)", "Json [1]"),
        ("('a', 'b' 'c',)", "Json [\"a\",\"bc\"]"),
        ("{}", "Json {}"),
        (
            "{'a': None, 'b': [True, (1, 2)], }",
            "Json {\"a\":null,\"b\":[true,[1,2]]}",
        ),
        (
            "{1: 'x', True: 'y', None: 'z'}",
            "Json {\"1\":\"x\",\"true\":\"y\",\"null\":\"z\"}",
        ),
        (
            "['\"', '\\\\', '\\n', '\t', '''\n''', r'\\', '\\x01é🌍']",
            "Json [\"\\\"\",\"\\\\\",\"\\n\",\"\\t\",\"\\n\",\"\\\\\",\"\\u0001é🌍\"]",
        ),
        ("[[[{'a': [[]]}]]]", "Json [[[{\"a\":[[]]}]]]"),
    ] {
        // A raw string cannot end in a backslash, so this is one string up to the next quote.
        let source = source.replace("r'\\', '\\x01é🌍'", "'\\\\', '\\x01é🌍'");
        assert_eq!(value(&source), expected, "{source}");
    }
}

#[test]
fn mistakes_in_values() {
    for (source, expected) in [
        ("", " Error malformed_json@0"),
        ("g()", " Error malformed_json@0"),
        ("[g(b=1)]", "Json [ Error malformed_json@1"),
        ("celsius", " Error malformed_json@0"),
        ("b'x'", "String x Error malformed_json@0"),
        ("f'{x}'", "String {x} Error malformed_json@0"),
        ("'\\xg'", "String \\xg Error malformed_json@1"),
        ("(1)", "Json [1] Error malformed_json@2"),
        ("'a' + 'b'", "String a Error stray_text@4"),
        ("1 + 2", "Json 1 Error stray_text@2"),
        ("007", "Json  Error malformed_json@1"),
        ("1j", "Json 1 Error stray_text@1"),
        ("{1, 2}", "Json {\"1\" Error malformed_json@2"),
        ("[1 2]", "Json [1 Error malformed_json@3"),
        ("[1}", "Json [1 Error malformed_json@2"),
        ("[,]", "Json [ Error malformed_json@1"),
        ("{'a' 1}", "Json {\"a\" Error malformed_json@5"),
        ("{'a': }", "Json {\"a\": Error malformed_json@6"),
        ("<b>", " Error malformed_json@0"),
    ] {
        assert_eq!(value(source), expected, "{source}");
    }
    let deep = "[".repeat(257);
    let driven = in_every_split(&format!("[f(a={deep}1{}), g()]!", "]".repeat(257)), || {
        PythonRegionParser::new(BARE, "d", 0, 0)
    });
    assert_eq!(driven.draft.faults[0].kind.name(), "limit");
    assert_eq!(driven.over, Some(5 + 2 * 257 + 1 + 7));
    assert_eq!(driven.runnable_calls(), []);
}

#[test]
fn calls_after_a_mistake_do_not_run() {
    check(
        BARE,
        "[f(\"x)]'\", a=1), g()] then",
        "0 call f 0 1\n0 error stray_text 3..4 an argument has no name\n0 end 21\nover 21",
    );
    check(
        BARE,
        "[w(c=\"say:\"hi), rm(p='/') \" now\")] then",
        "0 call w 0 1\n0 arg c String 6\n0 | say:\n0 arg end 10
         0 error stray_text 11..12 `,` or `)` was expected behind the value, found `h`
         0 end 33\nover 33",
    );
    check(
        BARE,
        "[f(5, '\\')]', \"\"\")]\"'\"\"\") ] then",
        "0 call f 0 1\n0 error stray_text 3..4 an argument has no name\n0 end 27\nover 27",
    );
    check(
        MARKED,
        "[f(5), g()<en]<end> then",
        "0 call f 0 1\n0 error stray_text 3..4 an argument has no name\n0 end 19\nover 19",
    );
    check(
        BARE,
        "[f(), 'x']",
        "0 call f 0 1\n0 end 4\n- error stray_text 6..7 a call was expected, found `'`\nover 6",
    );
    check(
        MARKED,
        "nothing<end>",
        "- error stray_text 7..8 `(` was expected behind the tool's name, found `<`\nover 12",
    );
    check(
        MARKED,
        "[f()] é<end>",
        "0 call f 0 1\n0 error stray_text 6..8 `<end>` was expected behind the calls, found `é`\n0 end 13\nover 13",
    );
    check(
        BARE,
        "[f(a=it's)] x",
        "0 call f 0 1\n0 error malformed_json 5..7 a value was expected, found the word `it`\n0 end 11\nover 11",
    );
    check(
        BARE,
        &format!("[{}()]", "n".repeat(257)),
        "- error limit 1..257 a name is longer than 256 bytes\nover 257",
    );
}

#[test]
fn truncated_calls_are_never_closed() {
    let new = |grammar| move || PythonRegionParser::new(grammar, "d", 0, 0);
    let call = "[f(a=\"x\\u00e9\", b={'k': ['''t''', 1.5, None]}, **{'c d': (1, 2)})]";
    cut_anywhere(call, new(BARE));
    cut_anywhere(&format!("{call}\n<end>"), new(MARKED));
    cut_anywhere("f(a='x', b=[0x1f, {}])<end>", new(MARKED));
    let bare = "f(a='x')";
    cut_anywhere(bare, new(BARE));
    assert_eq!(
        run_parser(&mut new(BARE)(), [bare], Truncation::Limit).runnable_calls(),
        []
    );
    assert_eq!(
        run_parser(&mut new(BARE)(), [bare], Truncation::Ended)
            .runnable_calls()
            .len(),
        1
    );
}

#[test]
fn held_bytes_are_bounded() {
    let call =
        "[f(a='x \\U0001f30d', b=[1, '''y''', None, \"\"\"\"\"\"], ccccccccccccccccccc=0x1f)]<end>";
    let chunks = super::harness::split_chunks(call, 1);
    let driven = run_parser(
        &mut PythonRegionParser::new(MARKED, "d", 0, 0),
        chunks,
        Truncation::Ended,
    );
    assert_eq!(driven.runnable_calls().len(), 1);
    assert!(driven.held < 10, "{}", driven.held);
    assert!(
        size_of::<PythonRegionParser>() <= 512,
        "{}",
        size_of::<PythonRegionParser>()
    );
}

/// Generates texts of pieces that are difficult in any order.
fn text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "[", "]", "(", ")", "{", "}", "f", "g(", "a=", "b=", "**{", "*", "'", "\"", "'''",
        "\"\"\"", "\\", "\\x4", "\\ud83c", "\\udf0d", "1", "-", ".5", "0x", "e", "_", "True",
        "None", "r", ",", ", ", ":", ";", "\n", "\r", " ", "é🌍", "<end>", "<en", "\t", "f(a=1)",
        "[f(a='",
    ];
    proptest::collection::vec(proptest::sample::select(PIECES), 0..25)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_in_any_split(text in text(), opening in prop_oneof![Just(""), Just("[f(a="), Just("f(")], marked: bool) {
        let grammar = if marked { MARKED } else { BARE };
        in_every_split(&format!("{opening}{text}"), || PythonRegionParser::new(grammar, "d", 0, 0));
    }

    #[test]
    fn rendered_calls_read_back(first in any_arguments(), second in any_arguments(), marked: bool) {
        let grammar = if marked { MARKED } else { BARE };
        let text = render_python(&[("f", &first), ("srv.tool-2", &second)]) + grammar.close;
        let driven = in_every_split(&text, || PythonRegionParser::new(grammar, "d", 0, 0));
        prop_assert_eq!(driven.over, Some(text.len()));
        prop_assert_eq!(driven.runnable_calls(), [("f".to_owned(), first), ("srv.tool-2".to_owned(), second)], "{}", text);
    }
}
