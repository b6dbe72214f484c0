//! Tests of the Gemma parser: texts and their events, every split, every cut, and a round trip
//! through the renderer.

use proptest::prelude::*;

use super::GemmaRegionParser;
use crate::dialect::gemma::render_gemma;
use crate::dialect::grammar::GemmaCalls;
use crate::event::Truncation;
use crate::reader::python::harness::{
    any_arguments, cut_anywhere, in_every_split, run_parser, split_chunks,
};

static FOUR: GemmaCalls = GemmaCalls {
    open: "<|tool_call>",
    close: "<tool_call|>",
    quote: "<|\"|>",
};
static SMALL: GemmaCalls = GemmaCalls {
    open: "<start_function_call>",
    close: "<end_function_call>",
    quote: "<escape>",
};

fn new(grammar: &'static GemmaCalls) -> impl Fn() -> GemmaRegionParser {
    move || GemmaRegionParser::new(grammar, false, "d", 3, 0)
}

#[track_caller]
fn check(grammar: &'static GemmaCalls, text: &str, expected: &str) {
    let driven = in_every_split(text, new(grammar));
    let over = driven
        .over
        .map_or(String::new(), |at| format!("\nover {at}"));
    let expected: Vec<_> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        (driven.events.join("\n") + &over).trim(),
        expected.join("\n"),
        "{text}"
    );
}

#[track_caller]
fn value(source: &str) -> String {
    let driven = in_every_split(&format!("call:f{{a:{source}}}<tool_call|>"), new(&FOUR));
    let argument = driven
        .draft
        .call_by_index(3)
        .and_then(|call| call.arguments.first());
    let mut line = argument.map_or(String::new(), |it| format!("{:?} {}", it.form, it.text));
    for fault in &driven.draft.faults {
        // The source follows `call:f{a:`.
        line += &format!(
            " {:?} {}@{}",
            fault.severity,
            fault.kind.name(),
            fault.span.start - 9
        );
    }
    line
}

#[test]
fn calls() {
    check(
        &FOUR,
        "call:f{}<tool_call|> then",
        "3 call f 0 5\n3 end 20\nover 20",
    );
    check(
        &FOUR,
        "call:srv.get-x{city:<|\"|>a <b> \\n \"c\"<|\"|>,n:3}<tool_call|>",
        "3 call srv.get-x 0 5
         3 arg city String 25
         3 | a <b> \\n \"c\"
         3 arg end 37
         3 arg n Json 45
         3 | 3
         3 arg end 46
         3 end 59
         over 59",
    );
    check(
        &SMALL,
        " call:f { k : <escape>v<escape> , } <end_function_call>",
        "3 call f 0 6\n3 arg k String 22\n3 | v\n3 arg end 23\n3 end 55\nover 55",
    );
    check(
        &FOUR,
        "call:f{}\ncall:g{}<tool_call|>",
        "3 call f 0 5\n3 end 8\nmark 9..16\n4 call g 9 14\n4 end 29\nover 29",
    );
    check(&FOUR, "f{}<tool_call|>", "3 call f 0 0\n3 end 15\nover 15");
    check(
        &FOUR,
        "call:f{\"a \\u0041\":1,<|\"|>b<|\"|>:2}<tool_call|>",
        "3 call f 0 5\n3 arg a A Json 18\n3 | 1\n3 arg end 19\n3 arg b Json 32\n3 | 2\n3 arg end 33\n3 end 46\nover 46",
    );
}

#[test]
fn values() {
    for (source, expected) in [
        ("<|\"|><|\"|>", "String "),
        ("<|\"|><|\"<|<|\"|>", "String <|\"<|"),
        ("<|\"|>a\r\n\\u0041'<|\"|>", "String a\r\n\\u0041'"),
        (
            "\"a \\\"b\\\" \\u00e9 \\ud83c\\udf0d<|\"",
            "String a \"b\" é 🌍<|",
        ),
        ("-1.5e3", "Json -1.5e3"),
        ("true", "Json true"),
        ("null", "Json null"),
        ("None", "Json null"),
        ("[]", "Json []"),
        (
            "[ <|\"|>a\"\\b<|\"|> , 1,{k-1:<|\"|>\n<|\"|>,\"x y\":null,<|\"|>z<|\"|>:{}}, ]",
            "Json [\"a\\\"\\\\b\",1,{\"k-1\":\"\\n\",\"x y\":null,\"z\":{}}]",
        ),
        ("celsius", " Error malformed_json@0"),
        ("'x'", " Error malformed_json@0"),
        ("(1,)", " Error malformed_json@0"),
        ("\"\\x\"", "String \\x Error malformed_json@1"),
        (
            "<|\"|>a<|\"|> <|\"|>b<|\"|>",
            "String a Error stray_text@12",
        ),
        ("[1}", "Json [1 Error malformed_json@2"),
        ("{a 1}", "Json {\"a\" Error malformed_json@3"),
    ] {
        assert_eq!(value(source), expected, "{source}");
    }
}

#[test]
fn mistakes_end_with_the_marker() {
    check(
        &FOUR,
        "{\"name\": \"f\"}<tool_call|>!",
        "- error stray_text 0..1 `call:` and a name were expected, found `{`\nover 25",
    );
    check(
        &FOUR,
        "call:{}<tool_call|>",
        "- error stray_text 5..6 a name was expected behind `call:`, found `{`\nover 19",
    );
    check(
        &FOUR,
        "call:f(a=1)<tool_call|>",
        "- error stray_text 6..7 `{` was expected behind the tool's name, found `(`\nover 23",
    );
    check(
        &FOUR,
        "call:f{a=1}call:g{}<tool_call|>",
        "3 call f 0 5\n3 error stray_text 8..9 `:` was expected behind the name, found `=`\n3 end 31\nover 31",
    );
    check(
        &FOUR,
        "call:f{}!<tool_call|>",
        "3 call f 0 5\n3 error stray_text 8..9 `<tool_call|>` was expected behind the call, found `!`\n3 end 21\nover 21",
    );
    check(
        &FOUR,
        "call:f{a:1,a:2}<tool_call|>",
        "3 call f 0 5\n3 arg a Json 9\n3 | 1\n3 arg end 10
         3 error doubled_argument 12..13 the argument `a` is given twice
         3 arg a Json 13\n3 | 2\n3 arg end 14\n3 end 27\nover 27",
    );
}

#[test]
fn truncated_calls_are_never_closed() {
    cut_anywhere(
        "call:f{k:<|\"|>v<|\"|>,l:[1,{a:null}],\"m\":\"\\u0041\"}<tool_call|>",
        new(&FOUR),
    );
    cut_anywhere(
        "call:f{k:<escape>v<escape>}<end_function_call>",
        new(&SMALL),
    );
}

#[test]
fn held_bytes_are_bounded() {
    let call = "call:ffffffffffffffffffffff{k:<|\"|>v<|v<|\"|>,kkkkkkkkkkkkkkkkkkk:[1.5,null]}\n<tool_call|>";
    let driven = run_parser(&mut new(&FOUR)(), split_chunks(call, 1), Truncation::Ended);
    assert_eq!(driven.runnable_calls().len(), 1);
    assert!(driven.held < FOUR.close.len(), "{}", driven.held);
}

/// Generates texts of pieces that are difficult in any order.
fn text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "call:",
        "f",
        "{",
        "}",
        "[",
        "]",
        "(",
        ":",
        ",",
        "k",
        "k:",
        "<|\"|>",
        "<|\"",
        "<",
        "\"",
        "\\",
        "\\u00",
        "1",
        "-",
        ".",
        "e",
        "null",
        "true",
        " ",
        "\n",
        "é🌍",
        "<tool_call|>",
        "<tool_ca",
        "call:f{",
        "'",
    ];
    proptest::collection::vec(proptest::sample::select(PIECES), 0..25)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_in_any_split(text in text(), opening in prop_oneof![Just(""), Just("call:f{k:"), Just("call:f{")]) {
        in_every_split(&format!("{opening}{text}"), new(&FOUR));
    }

    #[test]
    fn rendered_calls_read_back(arguments in any_arguments(), small: bool) {
        let grammar = if small { &SMALL } else { &FOUR };
        let text = render_gemma("srv.tool-2", &arguments, grammar.quote) + grammar.close;
        let driven = in_every_split(&text, new(grammar));
        prop_assert_eq!(driven.over, Some(text.len()));
        prop_assert_eq!(driven.runnable_calls(), [("srv.tool-2".to_owned(), arguments)], "{}", text);
    }
}
