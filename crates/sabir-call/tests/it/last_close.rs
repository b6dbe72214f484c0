//! Checks that a last call without its closing markup is accepted only where that was asked for, and then exactly as it was meant.

use proptest::prelude::*;
use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{
    ArgumentEncoding, Call, CallId, CallReader, DraftCall, DraftResponse, DraftState, Event,
    EventSink, FaultKind, PromptedSink, Severity, StopReason, ToolSet, Truncation,
};
use serde_json::{Map, Value, json};

use crate::case_count::{case_count, sampled_positions};
use crate::roundtrip::piece;

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"properties": {
                "path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "string"}}}}]"#,
    )
    .unwrap()
}

fn render(dialect: &Dialect, path: &str, content: &str) -> String {
    let arguments = json!({"path": path, "content": content});
    let call = Call {
        id: CallId::new("c1"),
        name: "write_to_file".to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    };
    dialect.render_calls(&[call], &tools())
}

/// Reads a text that ends for this reason, in pieces of that size.
fn read_end(dialect: &Dialect, text: &str, size: usize, why: Truncation) -> DraftResponse {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(dialect.into(), &tools()).with_missing_last_close(true);
    for chunk in text.as_bytes().chunks(size) {
        reader.push_bytes(chunk, &mut draft);
    }
    reader.finish(why, &mut draft);
    draft
}

/// Returns the arguments of a call that would run.
fn runs(draft: &DraftResponse) -> Option<Map<String, Value>> {
    let is_run = |call: &&DraftCall| {
        call.state == DraftState::Closed && draft.errors_of(call.index).count() == 0
    };
    let call = draft.calls().find(is_run)?;
    let value = |form: ArgumentEncoding, text: &str| match form {
        ArgumentEncoding::Json => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        ArgumentEncoding::Raw | ArgumentEncoding::String => text.into(),
    };
    let arguments = call.arguments.iter();
    Some(
        arguments
            .map(|it| (it.name.clone(), value(it.form, &it.text)))
            .collect(),
    )
}

fn has_warning(draft: &DraftResponse) -> bool {
    draft
        .faults
        .iter()
        .any(|fault| fault.kind == FaultKind::CutCall && fault.severity == Severity::Warning)
}

/// The dialects in which no closing markup follows the arguments, or none that can be missing: the only bracket of
/// the others is that of the call itself.
const WITHOUT_CLOSE: [&str; 5] = ["functionary", "llama", "granite_20b", "react", "gigachat"];

#[test]
fn every_beginning_of_a_call_runs_as_it_was_meant_or_not_at_all() {
    let mut never = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        let text = render(dialect, "a.txt", "one\n<b>\"two\"</b>");
        let whole = runs(&read_end(dialect, &text, text.len(), Truncation::Ended)).unwrap();
        let mut repaired = 0;
        let with_blanks: Vec<usize> = sampled_positions(0, text.len(), 1).collect();
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            for blank in ["", "\n", " \n"] {
                if !blank.is_empty() && !with_blanks.contains(&end) {
                    continue;
                }
                let cut = format!("{}{blank}", &text[..end]);
                let draft = read_end(dialect, &cut, cut.len().max(1), Truncation::Ended);
                assert_eq!(
                    draft,
                    read_end(dialect, &cut, 1, Truncation::Ended),
                    "{cut}"
                );
                // The checks stop a call without its required arguments.
                let Some(arguments) = runs(&draft).filter(|it| it.len() > 1) else {
                    continue;
                };
                assert_eq!(arguments, whole, "{}: {cut}", dialect.name);
                repaired += usize::from(has_warning(&draft));
                for why in [Truncation::Limit, Truncation::Broken, Truncation::Cancelled] {
                    assert!(
                        !has_warning(&read_end(dialect, &cut, 7, why)),
                        "{why:?} {cut}"
                    );
                }
            }
        }
        if repaired == 0 {
            never.push(dialect.name);
        }
    }
    never.sort_unstable();
    let mut expected = WITHOUT_CLOSE.to_vec();
    expected.sort_unstable();
    assert_eq!(never, expected);
}

#[test]
fn other_markup_or_words_at_the_end_keep_a_call_cut() {
    let open = "<tool_call>\n<function=write_to_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</parameter>\n";
    let qwen = DialectSet::built_in().find("qwen_coder").unwrap();
    assert!(runs(&read_end(qwen, open, 3, Truncation::Ended)).is_some());
    for rest in [
        "<",
        "</",
        "</functio",
        "<parameter=mode>",
        "<parameter",
        "words",
        "</parameter>",
    ] {
        let text = format!("{open}{rest}");
        assert_eq!(
            runs(&read_end(qwen, &text, 3, Truncation::Ended)),
            None,
            "{text}"
        );
    }
    // The value could have ended at its first closing tag.
    let two = open.replace("\nb\n", "\nb</parameter> x\n");
    assert_ne!(two, open);
    assert_eq!(runs(&read_end(qwen, &two, 3, Truncation::Ended)), None);
    let hermes = DialectSet::built_in().find("hermes").unwrap();
    let open = "<tool_call>\n{\"name\": \"write_to_file\", \"arguments\": {\"path\": \"a\", \"content\": \"b\"}}";
    assert!(runs(&read_end(hermes, open, 3, Truncation::Ended)).is_some());
    for text in [
        &open[..open.len() - 1],
        &open[..open.len() - 2],
        &format!("{open} more"),
        &format!("{open}</tool"),
    ] {
        assert_eq!(
            runs(&read_end(hermes, text, 3, Truncation::Ended)),
            None,
            "{text}"
        );
    }
}

#[test]
fn a_provider_must_say_that_the_message_is_complete() {
    let text = "<tool_call>\n{\"name\": \"write_to_file\", \"arguments\": {\"path\": \"a\", \"content\": \"b\"}}";
    let stops = [
        (Some(StopReason::End), true),
        (Some(StopReason::Calls), true),
        (None, false),
        (Some(StopReason::Length), false),
        (Some(StopReason::Sequence), false),
        (Some(StopReason::Refused), false),
        (Some(StopReason::Paused), false),
        (Some(StopReason::Other), false),
    ];
    for (reason, is_run) in stops {
        for why in [Truncation::Ended, Truncation::Broken] {
            let reader = CallReader::new(DialectSet::built_in().all(), &tools());
            let reader = reader.with_missing_last_close(true);
            let mut sink = PromptedSink::with_reader(reader, DraftResponse::default());
            sink.push_event(Event::Text { text });
            if let Some(reason) = reason {
                sink.push_event(Event::Stop { reason, raw: "" });
            }
            let draft = sink.finish(why);
            let is_whole = is_run && why == Truncation::Ended;
            assert_eq!(runs(&draft).is_some(), is_whole, "{reason:?} {why:?}");
        }
    }
    // Off by default, also in a reader that was made from another.
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().all(), &tools()).for_next_text();
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    assert_eq!(runs(&draft), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: case_count(3000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_beginning_of_a_call_runs_with_other_arguments(
        path in proptest::collection::vec(piece(), 0..3), content in proptest::collection::vec(piece(), 0..5),
        dialect in 0_usize..60, end in 0_usize..2000, size in 1_usize..9) {
        let all: Vec<&Dialect> = DialectSet::built_in().iter().collect();
        let dialect = all[dialect % all.len()];
        let (path, content) = (path.concat(), content.concat());
        let text = render(dialect, &path, &content);
        let cut = &text[..text.floor_char_boundary(end % (text.len() + 1))];
        let draft = read_end(dialect, cut, size, Truncation::Ended);
        // The checks stop a call without its required arguments.
        if has_warning(&draft) && let Some(arguments) = runs(&draft).filter(|it| it.len() > 1) {
            prop_assert_eq!(arguments, json!({"path": path, "content": content}).as_object().cloned().unwrap(), "{}", cut);
        }
    }
}
