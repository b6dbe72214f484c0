//! Tests of the JSON region parser: texts and their events, for any chunks.

mod ends;
mod line;

use proptest::prelude::*;

use super::{JsonRegionParser, ParsedHeader, RegionMarkers};
use crate::event::{Certainty, Truncation};
use crate::reader::region::{RegionParser, RegionProgress, TextView};
use line::Line;

/// The offset of the text in the assistant text.
const OFFSET: usize = 100;

/// The kind of region.
#[derive(Debug, Clone, Copy)]
struct Kind {
    close: &'static str,
    stop: bool,
    headed: bool,
}

const TAG: Kind = Kind {
    close: "</tool_call>",
    stop: false,
    headed: false,
};
const STOP: Kind = Kind {
    close: "<|end|>",
    stop: true,
    headed: false,
};
const BARE: Kind = Kind {
    close: "",
    stop: false,
    headed: false,
};
const HEAD: Kind = Kind {
    close: "<|end|>",
    stop: false,
    headed: true,
};
const LONE: Kind = Kind {
    close: "",
    stop: false,
    headed: true,
};
const LIST: Kind = Kind {
    close: "[/TOOL_CALLS]",
    stop: true,
    headed: false,
};

/// Parses like the reader: passes unconsumed text again with more text after it. `cuts` are the
/// ends of the chunks.
fn read(kind: Kind, text: &str, cuts: impl Iterator<Item = usize>, why: Truncation) -> String {
    let mut out = Line::default();
    let markers = RegionMarkers {
        dialect: "test",
        close: kind.close,
        stop: kind.stop,
        open_ended: false,
        named_by_key: false,
        sure: Certainty::Certain,
    };
    let head = ParsedHeader {
        index: 0,
        id: None,
        name: "f",
        at: OFFSET - 2,
        name_at: OFFSET - 1,
    };
    let mut payload = match kind.headed {
        true => JsonRegionParser::for_arguments(markers, head, &mut out),
        false => JsonRegionParser::for_calls(markers, 0, OFFSET - 2),
    };
    let mut from = 0;
    let mut shown = 0;
    for end in cuts
        .chain([text.len(), text.len()])
        .map(|end| text.ceil_char_boundary(end))
    {
        let last = shown == text.len();
        let chunk = text.get(shown..end.max(shown)).unwrap();
        shown = end.max(shown);
        if from + chunk.len() == shown && !chunk.is_empty() && payload.take_chunk(chunk, &mut out) {
            from = shown;
            continue;
        }
        let view = TextView {
            text: text.get(from..shown).unwrap(),
            offset: OFFSET + from,
            last,
        };
        match payload.parse_view(view, &mut out) {
            RegionProgress::More(taken) => from += taken,
            RegionProgress::Over(taken) => {
                from += taken;
                assert!(!out.open.contains(&true), "{}: {text}", out.text);
                out.text += &format!("over@{from} next{}", payload.next_index());
                return out.text;
            }
        }
        if last {
            break;
        }
    }
    payload.cut_region(why, OFFSET + text.len(), &mut out);
    assert!(!out.open.contains(&true), "{}: {text}", out.text);
    out.text.trim_end().to_owned()
}

fn check(kind: Kind, text: &str, expected: &str) {
    assert_eq!(
        read(kind, text, std::iter::empty(), Truncation::Ended),
        expected,
        "{text}"
    );
    let bytes = read(kind, text, 0..text.len(), Truncation::Ended);
    assert_eq!(bytes, expected, "byte by byte: {text}");
    for cut in 0..text.len() {
        let split = read(kind, text, std::iter::once(cut), Truncation::Ended);
        assert_eq!(split, expected, "cut at {cut}: {text}");
    }
}

/// Generates texts of the pieces that matter to the parser.
fn texts() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "'",
        "\\",
        "\\u00e9",
        "\\ud83d",
        " ",
        "\n",
        ";",
        "`",
        "```",
        "```json\n",
        "<",
        "</",
        "<|",
        "</tool_call>",
        "<tool_call>",
        "</tool",
        "[TOOL_CALLS]",
        "[/TOOL_CALLS]",
        "<|end|>",
        "\"name\"",
        "\"name\":\"f\"",
        "'name': 'f'",
        "\"id\":\"x\"",
        "\"arguments\":",
        "\"arguments\":{\"a\":\"b\"}",
        "\"function\":{",
        "\"tool_calls\":[",
        "{\"name\":\"f\",",
        "{\"name\":\"f\",\"arguments\":{\"a\":\"b",
        "null",
        "1",
        "é",
        "words",
        "\"k\":",
        "{'a': ",
        "True",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..24).prop_map(|pieces| pieces.concat())
}

const KINDS: [Kind; 6] = [TAG, STOP, BARE, HEAD, LONE, LIST];

/// Checks a text that is too long to be split at every byte.
fn check_long(kind: Kind, text: &str, expected: &str) {
    for size in [1000, 4096, text.len()] {
        let line = read(
            kind,
            text,
            (1..)
                .map(|count| count * size)
                .take_while(|end| *end < text.len()),
            Truncation::Ended,
        );
        assert_eq!(line, expected, "in chunks of {size}");
    }
}

#[test]
fn parser_state_is_small() {
    let size = size_of::<JsonRegionParser>();
    assert!(size <= 512, "{size} bytes");
}

#[test]
fn held_arguments_have_a_limit() {
    let long = "x".repeat(1 << 20);
    let text = format!("{{\"arguments\":{{\"a\":\"{long}\"}},\"name\":\"f\"}}</tool_call>");
    check_long(
        TAG,
        &text,
        "0:f@-2,1048606 !limit0@13 end0@1048621 over@1048621 next1",
    );
    let text = format!("{{\"name\":\"{long}\"}}</tool_call>");
    check_long(
        TAG,
        &text,
        "0:@-2,-2 !missing_name0@-2 end0@1048599 over@1048599 next1",
    );
    let text = format!("{{\"{long}\":1,\"name\":\"f\"}}</tool_call>");
    check_long(
        TAG,
        &text,
        "0:f@-2,1048590 !stray_text0@1 end0@1048605 over@1048605 next1",
    );
    let blank = " \n".repeat(100_000);
    check_long(
        TAG,
        &format!("{{\"name\":\"f\"}}{blank}</tool_call>"),
        "0:f@-2,9 end0@200024 over@200024 next1",
    );
    check_long(
        TAG,
        &format!("{{\"name\":\"f\"}}{blank}words"),
        "0:f@-2,9 !wrong_close0@200012 end0@12 over@196620 next1",
    );
    check_long(
        BARE,
        &format!("{{\"name\":\"f\"}}{blank}{{}}"),
        "0:f@-2,9 end0@12 over@12 next1",
    );
    let deep = "{\"tool\":".repeat(100_000);
    check_long(
        TAG,
        &format!("{deep}</tool_call>"),
        "0:@-2,-2 !missing_name0@-2 !malformed_json0@800000 end0@800012 over@800012 next1",
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_any_text(
        text in texts(),
        kind in prop::sample::select(&KINDS[..]),
        cuts in prop::collection::vec(0usize..200, 0..6),
        why in prop::sample::select(&[Truncation::Ended, Truncation::Limit][..]),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
        cuts.sort_unstable();
        let whole = read(kind, &text, std::iter::empty(), why);
        prop_assert_eq!(&read(kind, &text, cuts.into_iter(), why), &whole, "{}", text);
        prop_assert_eq!(&read(kind, &text, 0..text.len(), why), &whole, "byte by byte: {}", text);
    }
}

#[test]
fn names_arguments_and_ids_in_any_shape() {
    check(
        TAG,
        "\n{\"name\": \"f\", \"arguments\": {\"path\": \"a\\n</tool_call>\", \"n\": 1}}\n</tool_call> x",
        r#"0:f@-2,11 path@38="a\n</tool_call>"@53 n@61=1@62 end0@77 over@77 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{\"a\":\"b\"}} ;,</tool_call>",
        r#"0:f@-2,9 end0@27 mark@28 1:g@28,37 a@58="b"@59 end1@77 over@77 next2"#,
    );
    check(
        TAG,
        r#"[{"name":"f","arguments":{}}, {"tool_name":"g","tool_call_id":"7","parameters":{"a":"b"}}]</tool_call>"#,
        r#"0:f@-2,10 end0@28 mark@30 1:g#7@30,44 a@85="b"@86 end1@102 over@102 next2"#,
    );
    check(TAG, "[]</tool_call>", "over@14 next0");
    check(
        TAG,
        r#"{"type":"function","id":"x","function":{"name":"f","arguments":"{\"a\": 1}"}}</tool_call>"#,
        r#"0:f#x@-2,48 @64="{\"a\": 1}"@74 end0@89 over@89 next1"#,
    );
    check(
        TAG,
        r#"{"function":{"arguments":{"a":{}},"name":"f"},"id":"x"}</tool_call>"#,
        "0:f#x@-2,42 a@30={}@32 end0@67 over@67 next1",
    );
    check(
        TAG,
        r#"{"arguments":{"a":"b", "c": [1]}, "name":"f", "id": 3}</tool_call>"#,
        r#"0:f#3@-2,42 a@19="b"@20 c@28=[1]@31 end0@66 over@66 next1"#,
    );
    check(
        TAG,
        r#"{"function":"f","args":{"a":"b"},"id":null,"thought":{"name":"g","x":["}"]}}</tool_call>"#,
        r#"0:f@-2,13 a@29="b"@30 end0@88 over@88 next1"#,
    );
    check(
        TAG,
        r#"{"name":"f"}</tool_call>"#,
        "0:f@-2,9 end0@24 over@24 next1",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":null}</tool_call>"#,
        "0:f@-2,9 end0@41 over@41 next1",
    );
    check(
        TAG,
        r#"{"n\u0061me":"caf\u00e9","arguments":{"ü":"\ud83d\ude00"}}</tool_call>"#,
        r#"0:café@-2,14 ü@44="😀"@56 end0@71 over@71 next1"#,
    );
    check(
        TAG,
        "```json\n{\"name\":\"f\",\"arguments\":{}}\n```\n</tool_call>",
        "0:f@-2,17 end0@52 over@52 next1",
    );
    check(
        TAG,
        r#"{"tool_calls":[{"name":"f","arguments":{}},{"name":"g"}]}</tool_call>"#,
        "0:f@-2,24 end0@42 mark@43 1:g@43,52 end1@69 over@69 next2",
    );
    check(
        TAG,
        r#"[{"calls":[{"name":"f"}]},{"tool_uses":[{"recipient_name":"g","parameters":{}}], "x": 1}]</tool_call>"#,
        "0:f@-2,20 end0@23 mark@40 1:g@40,59 end1@101 over@101 next2",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{},"calls":[{"name":"g"}]}</tool_call>"#,
        "0:f@-2,9 end0@62 over@62 next1",
    );
}

#[test]
fn lenient_json_is_left_to_the_checks() {
    check(
        TAG,
        "{'name': 'f', 'arguments': {'path': 'a'}}</tool_call>",
        "0:f@-2,10 ?single_quotes0@1 @27={'path': 'a'}@40 end0@53 over@53 next1",
    );
    check(
        TAG,
        "{'arguments': {'path': '}'}, 'name': 'f'}</tool_call>",
        "0:f@-2,38 ?single_quotes0@1 @14={'path': '}'}@27 end0@53 over@53 next1",
    );
    check(
        TAG,
        r#"{'name': 'f', "arguments": {"path": "a"}}</tool_call>"#,
        r#"0:f@-2,10 ?single_quotes0@1 @27={"path": "a"}@40 end0@53 over@53 next1"#,
    );
    check(
        TAG,
        r#"{"name": "f", "arguments": {'path': 'a', "b": [1,]}}</tool_call>"#,
        r#"0:f@-2,10 @27={'path': 'a', "b": [1,]}@51 end0@64 over@64 next1"#,
    );
    check(
        TAG,
        r#"{"name": "f", "arguments": {"a": "b", c: 1}}</tool_call>"#,
        r#"0:f@-2,10 a@34="b"@35 @38=c: 1}@43 end0@56 over@56 next1"#,
    );
    check(
        TAG,
        r#"{"name": "f", "arguments": {"a": "b", },}</tool_call>"#,
        r#"0:f@-2,10 a@34="b"@35 @38=}@39 ?trailing_comma0@40 end0@53 over@53 next1"#,
    );
    check(
        TAG,
        "{'calls': [{\"name\": \"f\"}], 'x': 1}</tool_call>",
        "0:f@-2,21 ?single_quotes0@1 ?single_quotes0@27 end0@46 over@46 next1",
    );
    check(
        TAG,
        r#"[{"name":"f"},]</tool_call>"#,
        "0:f@-2,10 end0@13 ?trailing_comma0@14 over@27 next1",
    );
    check(
        HEAD,
        "{'a': 'b<|end|>'}<|end|>",
        "0:f@-2,-1 @0={'a': 'b<|end|>'}@17 end0@24 over@24 next1",
    );
}

#[test]
fn an_extra_brace_is_a_warning() {
    check(
        TAG,
        r#"[{"name":"f"}}]</tool_call>"#,
        "0:f@-2,10 ?extra_bracket0@13 end0@27 over@27 next1",
    );
    check(
        TAG,
        "[{\"name\":\"f\"} }\n,{\"name\":\"g\"}]</tool_call>",
        "0:f@-2,10 ?extra_bracket0@14 end0@13 mark@17 1:g@17,26 end1@42 over@42 next2",
    );
    check(
        TAG,
        "{\"name\":\"f\"}}\n</tool_call> x",
        "0:f@-2,9 ?extra_bracket0@12 end0@26 over@26 next1",
    );
    let blank = " ".repeat(300);
    let far = "0:f@-2,9 !wrong_close0@12 end0@12 over@325 next1";
    check_long(
        TAG,
        &format!("{{\"name\":\"f\"}}}}{blank}</tool_call>"),
        far,
    );
    check(
        TAG,
        r#"{"name":"f"}]</tool_call>"#,
        "0:f@-2,9 !wrong_close0@12 end0@12 over@25 next1",
    );
}

#[test]
fn unreadable_json_is_rejected_with_its_position() {
    check(
        TAG,
        r#"{"name":"f","path":"a"}</tool_call>"#,
        "0:f@-2,9 !stray_text0@12 end0@35 over@35 next1",
    );
    check(
        TAG,
        r#"{"name": 5, "arguments": {}}</tool_call>"#,
        "0:@-2,-2 !missing_name0@-2 end0@40 over@40 next1",
    );
    check(
        TAG,
        r#"{"name": "", "arguments": {}}</tool_call>"#,
        "0:@-2,-2 !missing_name0@-2 end0@41 over@41 next1",
    );
    check(
        TAG,
        r#"{"arguments": {"a": "b"}}</tool_call>"#,
        r#"0:@-2,-2 !missing_name0@-2 a@21="b"@22 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        r#"{"name": "f", "tool": "g", "arguments": {}}</tool_call>"#,
        "0:f@-2,10 !doubled_argument0@22 end0@55 over@55 next1",
    );
    check(
        TAG,
        r#"{"name": "f", "arguments": {}, "args": {}}</tool_call>"#,
        "0:f@-2,10 !doubled_argument0@39 end0@54 over@54 next1",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":}</tool_call>"#,
        "0:f@-2,9 !malformed_json0@24 end0@37 over@37 next1",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":[1]}</tool_call>"#,
        "0:f@-2,9 !malformed_json0@24 end0@40 over@40 next1",
    );
    check(
        TAG,
        r#"{"name":"f",arguments:{"a": {}}}</tool_call>"#,
        "0:f@-2,9 !malformed_json0@12 end0@44 over@44 next1",
    );
    check(
        TAG,
        r#"{"name" "f","arguments":{"a": {}}}</tool_call>"#,
        "0:@-2,-2 !missing_name0@-2 !malformed_json0@8 end0@46 over@46 next1",
    );
    check(
        TAG,
        r#"{"name":"f" "arguments":{"a": {}}}</tool_call>"#,
        "0:f@-2,9 !malformed_json0@12 end0@46 over@46 next1",
    );
    check(
        TAG,
        r#"[{"name":"f"} {"name":"g"}]</tool_call>"#,
        "0:f@-2,10 !malformed_json0@14 end0@13 mark@14 1:g@14,23 end1@39 over@39 next2",
    );
    check(
        TAG,
        r#"["a", {"name":"g"}]</tool_call>"#,
        "0:@-2,-2 !missing_name0@-2 !malformed_json0@1 end0@4 mark@6 1:g@6,15 end1@31 over@31 next2",
    );
    check(
        TAG,
        r#"[{"name":"f"}}}]</tool_call>"#,
        "0:f@-2,10 !malformed_json0@13 end0@13 over@28 next1",
    );
    check(TAG, "words</tool_call>", "!malformed_json@0 over@0 next0");
    check(TAG, "</tool_call> x", "!malformed_json@0 over@12 next0");
    check(
        HEAD,
        "words<|end|>",
        "0:f@-2,-1 !malformed_json0@0 end0@12 over@12 next1",
    );
}

#[test]
fn name_before_the_json() {
    check(
        HEAD,
        r#"{"a": "b"}<|end|>"#,
        r#"0:f@-2,-1 a@7="b"@8 end0@17 over@17 next1"#,
    );
    check(
        HEAD,
        "\n```json\n{\"a\": \"b\"}\n```<|end|>x",
        r#"0:f@-2,-1 a@16="b"@17 end0@30 over@30 next1"#,
    );
    check(HEAD, "<|end|>", "0:f@-2,-1 end0@7 over@7 next1");
    check(HEAD, "null<|end|>", "0:f@-2,-1 end0@11 over@11 next1");
    check(
        HEAD,
        r#""{}"<|end|>"#,
        r#"0:f@-2,-1 @1="{}"@3 end0@11 over@11 next1"#,
    );
    check(
        LIST,
        r#"[{"name":"f","arguments":{"a": [1, [2]]}}][/TOOL_CALLS]"#,
        "0:f@-2,10 a@31=[1, [2]]@39 end0@55 over@55 next1",
    );
}
