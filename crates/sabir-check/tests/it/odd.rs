//! Tests odd schemas and odd texts, since tools come from untrusted servers and texts from models.

use proptest::prelude::*;
use sabir_call::dialect::DialectSet;
use sabir_call::{
    ArgumentEncoding, DraftResponse, Event, EventSink, ToolProtocol, ToolSet, ToolSpec,
};
use sabir_check::{
    CallChecker, CallState, FEEDBACK_CAP, FeedbackContext, MistakeCounter, render_feedback,
};
use serde_json::{Value, json};

fn property() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(true),
        json!(false),
        json!(null),
        json!(7),
        json!({"type": "strin"}),
        json!({"type": ["integer", "string"], "maxLength": 1}),
        json!({"type": "integer", "minimum": 3}),
        json!({"type": "array", "items": {"$ref": "#"}}),
        json!({"type": "array", "items": {"type": "object", "properties": {"p": {"type": "number"}}}}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/properties/a"}),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": "file:///nowhere.json"}),
        json!({"type": "string", "pattern": "(a+)+$"}),
        json!({"type": "string", "pattern": "("}),
        json!({"enum": []}),
        json!({"oneOf": [{"const": "a"}, {"type": "null"}, {"type": "object"}]}),
        json!({"type": "boolean", "properties": 1, "items": "x", "required": "y"}),
    ])
}

fn text() -> impl Strategy<Value = String> {
    let pieces = vec![
        "<a>", "</a>", "<p>1</p>", "10", " ", "\n", "{", "}", "[", "]", "\"p\"", ":", ",", "true",
        "null", "é", "a",
    ];
    prop_oneof![
        prop::collection::vec(prop::sample::select(pieces), 0..12)
            .prop_map(|pieces| pieces.concat()),
        ".*"
    ]
}

proptest! {
    #[test]
    fn every_call_gets_a_verdict(
        (a, b) in (property(), property()),
        arguments in prop::collection::vec(("(a|b|A|c|)", 0..3u8, text()), 0..4),
    ) {
        let parameters = json!({"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]});
        let tools = ToolSet::new(vec![ToolSpec::new("t", "", parameters)]).unwrap();
        let mut draft = DraftResponse::default();
        draft.push_event(Event::CallStart { index: 0, id: None, name: "t", dialect: Some("cline"), at: 0, name_at: 0 });
        for (name, form, text) in &arguments {
            let form = [ArgumentEncoding::Raw, ArgumentEncoding::String, ArgumentEncoding::Json][usize::from(*form)];
            draft.push_event(Event::ArgStart { index: 0, name, form, at: 0 });
            draft.push_event(Event::ArgDelta { index: 0, text });
            draft.push_event(Event::ArgEnd { index: 0, lead: "", at: text.len() });
        }
        draft.push_event(Event::CallEnd { index: 0, at: 0 });
        let checked = CallChecker::new(tools.clone()).check_all(&draft);
        let words = render_feedback(&checked, &draft.faults, "<t>", &FeedbackContext { protocol: &ToolProtocol::Native, dialects: DialectSet::built_in(), tools: &tools, repetition: &MistakeCounter::default() });
        prop_assert_eq!(words.is_none(), checked[0].state == CallState::Complete);
        prop_assert!(words.is_none_or(|words| words.len() <= FEEDBACK_CAP));
        // A call that runs has its required argument, and none twice.
        if checked[0].state == CallState::Complete {
            prop_assert!(checked[0].arguments.contains_key("a"));
        }
    }
}
