//! The mender between answers that are played and a draft of what a client would get.

use std::sync::Mutex;

use proptest::prelude::*;
use sabir_call::dialect::{Selection, dialects};
use sabir_call::{ArgForm, Call, CallId, Usage};
use sabir_call::{
    Cut, Draft, DraftCall, DraftState, Event, Message, ModelError, ModelErrorKind, Parallel, Part, Prompted, Protocol,
    Request, Sink, StopReason, ToolChoice, ToolSet,
};
use serde_json::{Map, Value, json};

use super::typed::{LONG, OPENING};
use super::{Diary, Mender, Mending, Next};
use crate::note::Note;

fn tools() -> ToolSet {
    let tools = json!([
        {"name": "edit_file", "description": "Edits.", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "content": {"type": "string"}, "count": {"type": "integer"},
            "all": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "properties": {"k": {"type": "number"}}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["path"]}},
        {"name": "stop", "description": "Stops.", "parameters": {"type": "object", "properties": {}}}]);
    ToolSet::from_json(&tools.to_string()).unwrap()
}

fn native() -> Request {
    Request { tools: tools(), messages: vec![Message::user("go")], ..Request::default() }
}

/// What came of the answers.
#[derive(Debug, Default)]
struct Outcome {
    draft: Draft,
    error: Option<ModelError>,
    report: String,
    /// The requests after the first.
    asked: Vec<Request>,
}

impl Outcome {
    /// The calls, as a client reads them; raw values are none that could be read.
    fn calls(&self) -> Vec<String> {
        let value = |call: &DraftCall| {
            let row = call.arguments.iter().map(|argument| {
                let value = match argument.form {
                    ArgForm::Raw => panic!("a raw value went out"),
                    ArgForm::String => Value::from(argument.text.as_str()),
                    ArgForm::Json => serde_json::from_str(&argument.text).unwrap(),
                };
                (argument.name.clone(), value)
            });
            Value::Object(row.collect()).to_string()
        };
        let closed = |call: &&DraftCall| call.state == DraftState::Closed;
        self.draft.calls().filter(closed).map(|call| format!("{} {}", call.name, value(call))).collect()
    }

    fn stop(&self) -> Option<StopReason> {
        self.draft.stop.as_ref().map(|(reason, _)| *reason)
    }
}

/// One answer of the model.
type Answer<'a> = &'a dyn Fn(&mut dyn Sink);

/// Plays each answer as long as one is asked for.
fn mended(request: &Request, mending: Mending, answers: &[Answer<'_>]) -> Outcome {
    let tell = |_: Note<'_>| {};
    let mut outcome = Outcome::default();
    let out = |event: Event<'_>| outcome.draft.event(event);
    let mut mender = Mender::new(request, mending, Diary::new(&tell), out);
    let (mut asked, mut requests, mut error) = (request.clone(), Vec::new(), None);
    for answer in answers {
        answer(&mut mender);
        match mender.ended(&asked, Ok(())) {
            Next::Done => break,
            Next::Failed(failure) => {
                error = Some(failure);
                break;
            }
            Next::Ask(next) => {
                asked = *next;
                requests.push(asked.clone());
            }
        }
    }
    let report = mender.report();
    Outcome { error, report, asked: requests, ..outcome }
}

/// An answer in words, read as the model's front reads it, in these pieces.
fn read<'t>(pieces: &[&'t str], why: Cut) -> impl Fn(&mut dyn Sink) + use<'t> {
    let pieces = pieces.to_vec();
    move |sink| {
        let mut reader = Prompted::new(Selection::AUTO, &tools(), |event: Event<'_>| sink.event(event));
        pieces.iter().filter(|text| !text.is_empty()).for_each(|text| reader.event(Event::Text { text }));
        if why == Cut::Limit {
            reader.event(Event::Stop { reason: StopReason::Length, raw: "" });
        }
        let _ = reader.finish(why);
    }
}

/// A native call, in one piece.
fn call(sink: &mut dyn Sink, index: u32, id: &str, name: &str, arguments: &Value) {
    sink.event(Event::CallStart { index, id: Some(id), name, dialect: None, at: 0, name_at: 0 });
    for (name, value) in arguments.as_object().unwrap() {
        let (form, text) = match value {
            Value::String(text) => (ArgForm::String, text.clone()),
            other => (ArgForm::Json, other.to_string()),
        };
        sink.event(Event::ArgStart { index, name, form, at: 0 });
        sink.event(Event::ArgDelta { index, text: &text });
        sink.event(Event::ArgEnd { index, lead: "", at: 0 });
    }
    sink.event(Event::CallEnd { index, at: 0 });
}

fn heal(text: &str) -> Outcome {
    mended(&native(), Mending::Heal, &[&read(&[text], Cut::Ended)])
}

fn spelled(dialect: &str, calls: &[(&str, Value)]) -> String {
    let dialect = sabir_call::dialect::dialect(dialect).unwrap();
    let call = |(name, arguments): &(&str, Value)| {
        let (id, name, arguments) = (CallId::new("c"), (*name).to_owned(), arguments.as_object().unwrap().clone());
        Call { id, name, arguments, dialect: None }
    };
    let calls: Vec<Call> = calls.iter().map(call).collect();
    dialect.render_calls(&calls, &tools())
}

fn example(content: &str) -> Value {
    json!({"path": "a.rs", "content": content, "count": 3, "all": true, "list": ["x", "y z"], "map": {"k": 1.5},
           "note": "10"})
}

#[test]
fn calls_of_every_dialect_are_typed_however_they_are_split() {
    for dialect in dialects() {
        for content in ["", "x", "\n", "\nline\n", "a < b && \"c\"\n\tü😀 {}", "</content>\n<path>evil</path>"] {
            let arguments = example(content);
            let text = format!("I edit.\n{}", spelled(dialect.name, &[("edit_file", arguments.clone())]));
            let check = |pieces: &[&str]| {
                let outcome = mended(&native(), Mending::Heal, &[&read(pieces, Cut::Ended)]);
                let expected = format!("edit_file {arguments}");
                assert_eq!(outcome.calls(), [expected], "{}: {text} in {} pieces", dialect.name, pieces.len());
                assert_eq!((outcome.stop(), outcome.error), (Some(StopReason::Calls), None), "{}", dialect.name);
                assert_eq!(outcome.draft.text().trim_end(), "I edit.", "{}", dialect.name);
            };
            check(&[&text]);
            let letters: Vec<&str> = text.split_inclusive(|_| true).collect();
            check(&letters);
            for (at, _) in text.char_indices().filter(|_| content == "\nline\n") {
                let (head, tail) = text.split_at(at);
                check(&[head, tail]);
            }
        }
    }
}

#[test]
fn long_values_go_out_before_their_end() {
    let content = "line\n".repeat(OPENING);
    for dialect in dialects() {
        let text = spelled(dialect.name, &[("edit_file", json!({"path": "a", "content": content}))]);
        let half = text.len() / 2;
        let seen = Mutex::new((0_usize, 0_usize));
        let mut given = 0;
        let tell = |_: Note<'_>| {};
        let out = |event: Event<'_>| {
            if let Event::ArgDelta { text, .. } = event {
                seen.lock().unwrap().0 += text.len();
            }
        };
        let request = native();
        let mut mender = Mender::new(&request, Mending::Heal, Diary::new(&tell), out);
        let mut reader = Prompted::new(Selection::AUTO, &request.tools, |event: Event<'_>| mender.event(event));
        for text in sabir_wire::pieces(&text, 100) {
            reader.event(Event::Text { text });
            given += text.len();
            let mut seen = seen.lock().unwrap();
            if given > half && seen.1 == 0 {
                seen.1 = seen.0;
            }
        }
        let _ = reader.finish(Cut::Ended);
        let (all, at_half) = *seen.lock().unwrap();
        assert!(all >= content.len(), "{}: {all}", dialect.name);
        // A guess without a marker is the dialect's to hold to the end.
        let guessed = ["json", "xlam", "react", "fenced", "pythonic", "phi4"];
        let held = half.saturating_sub(at_half);
        if !guessed.iter().any(|name| dialect.name.contains(name)) {
            assert!(held <= OPENING + 1500, "{}: {held} bytes of {half} are held back", dialect.name);
        }
    }
}

#[test]
fn a_half_wrapped_value_is_exact_as_long_as_it_is_short() {
    let text = |content: &str| format!("<edit_file><path>a</path><content>\n{content}</content></edit_file>");
    let short = heal(&text("x"));
    assert_eq!(short.calls(), [r#"edit_file {"path":"a","content":"\nx"}"#]);
    let long = heal(&text(&"x".repeat(OPENING + 1)));
    assert!(long.calls()[0].contains(r#""content":"xxx"#));
    assert_eq!(long.report, "first_line_feed=1, leaked_call=1");
}

#[test]
fn names_and_values_are_set_right() {
    let outcome = heal("<EDIT_FILE><Path>a</Path><count> 3 </count></EDIT_FILE>");
    assert!(outcome.calls().len() <= 1);
    let broken = |arguments: &'static str| {
        let answer = move |sink: &mut dyn Sink| {
            let mut scanner = sabir_call::json::ArgumentScanner::new(0);
            sink.event(Event::CallStart { index: 0, id: None, name: "Edit_File", dialect: None, at: 0, name_at: 0 });
            scanner.push(arguments, sink);
            scanner.finish(sink);
            sink.event(Event::CallEnd { index: 0, at: 0 });
        };
        mended(&native(), Mending::Heal, &[&answer])
    };
    let check = |arguments: &'static str, expected: &str, rules: &str| {
        let outcome = broken(arguments);
        assert_eq!(outcome.calls(), [format!("edit_file {expected}")], "{arguments}: {:?}", outcome.error);
        assert_eq!(outcome.report, format!("{rules}wrong_case_name=1"), "{arguments}");
    };
    check(r#"{"path": "a", "count": "3"}"#, r#"{"path":"a","count":3}"#, "stringified_value=1, ");
    check(r#"{"Path": "a", "count": 3.0}"#, r#"{"path":"a","count":3}"#, "wrong_case_argument=1, ");
    check(r#"{"path": "a", "count": null}"#, r#"{"path":"a"}"#, "null_argument=1, ");
    check(r#"{"path": "a", "list": "[\"x\"]"}"#, r#"{"path":"a","list":["x"]}"#, "double_encoding=1, ");
    check(r#"{"path": "a", "list": [ "x", 1]}"#, r#"{"path":"a","list":["x",1]}"#, "");
    check(r#"{"path": "a", "list": ["x",]}"#, r#"{"path":"a","list":["x"]}"#, "trailing_comma=1, ");
    check(r#"{"path": "a", "all": True}"#, r#"{"path":"a","all":true}"#, "python_literal=1, ");
    check(r#"{"path": "a",}"#, r#"{"path":"a"}"#, "trailing_comma=1, ");
    check("{'path': 'a', 'count': 3}", r#"{"path":"a","count":3}"#, "single_quotes=1, ");
    check(r#""{\"path\": \"a\"}""#, r#"{"path":"a"}"#, "double_encoding=1, ");
    // The client knows what it wants, and says so.
    check(r#"{"path": 1, "count": "many"}"#, r#"{"path":1,"count":"many"}"#, "");
    check(r#"{"other": true}"#, r#"{"other":true}"#, "");
    // What cannot be read never gets its closing bracket.
    for arguments in [
        r#"{"path": "a", oops}"#,
        r#"{"path": oops}"#,
        r#"{"path": "a", "list": [oops]}"#,
        r#"{"path": "a", "path": "b"}"#,
        "oops",
    ] {
        let outcome = broken(arguments);
        assert_eq!((outcome.calls().len(), outcome.stop()), (0, None), "{arguments}");
        assert_eq!(outcome.error.map(|error| error.kind), Some(ModelErrorKind::Format), "{arguments}");
    }
}

#[test]
fn a_long_list_goes_out_as_long_as_it_is_strict() {
    let list = |end: &'static str| {
        let text = format!("[{}{end}", "\"an item\", ".repeat(LONG / 8));
        let answer = move |sink: &mut dyn Sink| {
            sink.event(Event::CallStart { index: 0, id: None, name: "edit_file", dialect: None, at: 0, name_at: 0 });
            sink.event(Event::ArgStart { index: 0, name: "list", form: ArgForm::Json, at: 0 });
            for text in sabir_wire::pieces(&text, 100) {
                sink.event(Event::ArgDelta { index: 0, text });
            }
            sink.event(Event::ArgEnd { index: 0, lead: "", at: 0 });
            sink.event(Event::CallEnd { index: 0, at: 0 });
        };
        let outcome = mended(&native(), Mending::Heal, &[&answer]);
        (outcome.draft.calls().map(|call| call.arguments[0].text.len()).sum::<usize>() > LONG, outcome.error.is_some())
    };
    assert_eq!(list("\"last\"]"), (true, false));
    assert_eq!(list("oops]"), (true, true));
    assert_eq!(list("]"), (true, true));
}

#[test]
fn an_undeclared_tool_waits_for_its_arguments() {
    let named = |name: &'static str| {
        let answer = move |sink: &mut dyn Sink| call(sink, 0, "c", name, &json!({"path": "a"}));
        mended(&native(), Mending::Heal, &[&answer])
    };
    let near = named("editFile");
    assert_eq!((near.calls(), near.report), (vec![r#"edit_file {"path":"a"}"#.to_owned()], "near_name=1".to_owned()));
    let unknown = named("erase");
    assert_eq!((unknown.calls(), unknown.error), (vec![r#"erase {"path":"a"}"#.to_owned()], None));
}

#[test]
fn special_tokens_in_thoughts_are_calls() {
    let arguments = json!({"path": "a", "count": 2});
    let thought = format!("I edit. {}", spelled("kimi", &[("edit_file", arguments.clone())]));
    let tools = tools();
    let answer = |sink: &mut dyn Sink| {
        let mut reader = Prompted::new(Selection::AUTO, &tools, |event: Event<'_>| sink.event(event));
        for text in sabir_wire::pieces(&thought, 5) {
            reader.event(Event::Thought { text });
        }
        let _ = reader.finish(Cut::Ended);
    };
    for mending in [Mending::Heal, Mending::Retry(1)] {
        let outcome = mended(&native(), mending, &[&answer]);
        assert_eq!(outcome.calls(), [format!("edit_file {arguments}")], "{mending}");
        let thoughts = outcome.draft.parts.iter().filter_map(|part| match part {
            sabir_call::DraftPart::Thought(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(thoughts.collect::<String>().trim_end(), "I edit.", "{mending}");
    }
}

#[test]
fn a_call_told_twice_goes_out_once() {
    let arguments = json!({"path": "a", "list": ["x", "y"]});
    let as_text = spelled("hermes", &[("edit_file", arguments.clone())]);
    let tools = tools();
    let both = |text_first: bool, other: &Value| {
        let answer = |sink: &mut dyn Sink| {
            let mut reader = Prompted::new(Selection::AUTO, &tools, |event: Event<'_>| sink.event(event));
            if text_first {
                reader.event(Event::Text { text: &as_text });
                call(&mut reader, 0, "c1", "edit_file", other);
            } else {
                call(&mut reader, 0, "c1", "edit_file", other);
                reader.event(Event::Text { text: &as_text });
            }
            let _ = reader.finish(Cut::Ended);
        };
        let outcome = mended(&native(), Mending::Heal, &[&answer]);
        (outcome.calls().len(), outcome.report.contains("doubled_call=1"))
    };
    let reordered = json!({"list": ["x", "y"], "path": "a"});
    for text_first in [true, false] {
        assert_eq!(both(text_first, &arguments), (1, true));
        assert_eq!(both(text_first, &reordered), (1, true));
        assert_eq!(both(text_first, &json!({"path": "b"})), (2, false));
    }
    // One id for two calls: the same is told twice, another gets an id of its own.
    let twice = |other: Value| {
        let first = arguments.clone();
        let answer = move |sink: &mut dyn Sink| {
            call(sink, 0, "c", "edit_file", &first);
            call(sink, 1, "c", "edit_file", &other);
        };
        let outcome = mended(&native(), Mending::Heal, &[&answer]);
        outcome.draft.calls().map(|call| call.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(twice(arguments.clone()), [Some("c".to_owned())]);
    assert_eq!(twice(json!({"path": "b"})), [Some("c".to_owned()), None]);
    // Natively, a tool may be called twice alike.
    let alike = |sink: &mut dyn Sink| {
        call(sink, 0, "c", "stop", &json!({}));
        call(sink, 1, "d", "stop", &json!({}));
    };
    assert_eq!(mended(&native(), Mending::Heal, &[&alike]).calls().len(), 2);
}

#[test]
fn one_call_where_one_is_asked_for() {
    let request = Request { parallel: Parallel::One, ..native() };
    let two = spelled("cline", &[("edit_file", json!({"path": "a"})), ("edit_file", json!({"path": "b"}))]);
    let spoken = format!("{}\n\n[edit_file]\nDone!", spelled("cline", &[("edit_file", json!({"path": "a"}))]));
    for mending in [Mending::Heal, Mending::Retry(1)] {
        for text in [&two, &spoken] {
            let over = Mutex::new(false);
            let answer = |sink: &mut dyn Sink| {
                read(&[text], Cut::Ended)(sink);
                *over.lock().unwrap() = true;
            };
            let outcome = mended(&request, mending, &[&answer]);
            assert_eq!(outcome.calls(), [r#"edit_file {"path":"a"}"#], "{mending}");
            assert_eq!((outcome.draft.text().as_str(), outcome.stop()), ("", Some(StopReason::Calls)), "{mending}");
        }
    }
    // Interleaved native calls: the first goes on to its end.
    let interleaved = |sink: &mut dyn Sink| {
        let start =
            |index, id| Event::CallStart { index, id: Some(id), name: "edit_file", dialect: None, at: 0, name_at: 0 };
        sink.event(start(0, "a"));
        sink.event(Event::ArgStart { index: 0, name: "path", form: ArgForm::String, at: 0 });
        sink.event(start(1, "b"));
        sink.event(Event::ArgDelta { index: 0, text: "x" });
        sink.event(Event::ArgEnd { index: 0, lead: "", at: 0 });
        sink.event(Event::CallEnd { index: 0, at: 0 });
        sink.event(Event::Text { text: "never" });
    };
    let outcome = mended(&request, Mending::Heal, &[&interleaved]);
    assert_eq!((outcome.calls(), outcome.draft.text()), (vec![r#"edit_file {"path":"x"}"#.to_owned()], String::new()));
}

#[test]
fn a_choice_is_kept() {
    let none = Request { choice: ToolChoice::None, ..native() };
    let unasked = |sink: &mut dyn Sink| {
        sink.event(Event::Text { text: "hi <tool_call>" });
        call(sink, 0, "c", "stop", &json!({}));
        sink.event(Event::Stop { reason: StopReason::Calls, raw: "tool_calls" });
    };
    let outcome = mended(&none, Mending::Heal, &[&unasked]);
    assert_eq!((outcome.calls().len(), outcome.stop()), (0, Some(StopReason::End)));
    assert_eq!((outcome.draft.text().as_str(), outcome.report.as_str()), ("hi <tool_call>", "unasked_call=1"));

    let words = read(&["I think so."], Cut::Ended);
    let stop = |sink: &mut dyn Sink| call(sink, 0, "c", "stop", &json!({}));
    let edit = |sink: &mut dyn Sink| call(sink, 0, "c", "edit_file", &json!({"path": "a"}));
    let required = Request { choice: ToolChoice::Required, ..native() };
    let outcome = mended(&required, Mending::Retry(1), &[&words, &stop]);
    assert_eq!((outcome.calls(), outcome.draft.text().as_str()), (vec!["stop {}".to_owned()], "I think so."));
    assert_eq!(mended(&required, Mending::Heal, &[&words]).stop(), Some(StopReason::End));

    let named = Request { choice: ToolChoice::Tool("edit_file".into()), ..native() };
    let outcome = mended(&named, Mending::Retry(1), &[&stop, &edit]);
    assert_eq!(outcome.calls(), [r#"edit_file {"path":"a"}"#]);
    assert_eq!(outcome.asked.len(), 1);
}

#[test]
fn stop_reasons_follow_the_calls() {
    let check = |calls: u32, said: Option<StopReason>, expected: StopReason| {
        let answer = |sink: &mut dyn Sink| {
            sink.event(Event::Text { text: "hi" });
            (0..calls).for_each(|index| call(sink, index, "", "stop", &json!({})));
            if let Some(reason) = said {
                sink.event(Event::Stop { reason, raw: "word" });
            }
        };
        assert_eq!(mended(&native(), Mending::Heal, &[&answer]).stop(), Some(expected), "{calls} {said:?}");
    };
    for said in [None, Some(StopReason::End), Some(StopReason::Calls), Some(StopReason::Length)] {
        check(1, said, StopReason::Calls);
    }
    for said in [None, Some(StopReason::End), Some(StopReason::Calls)] {
        check(0, said, StopReason::End);
    }
    check(0, Some(StopReason::Length), StopReason::Length);
    check(0, Some(StopReason::Refused), StopReason::Refused);
}

#[test]
fn a_cut_call_ends_in_an_error_wherever_it_is_cut() {
    for dialect in dialects() {
        let text = spelled(dialect.name, &[("edit_file", json!({"path": "a.rs", "content": "fn main() {}\n"}))]);
        for (at, _) in text.char_indices() {
            let (text, _) = text.split_at(at);
            for why in [Cut::Limit, Cut::Ended].into_iter().take(1 + usize::from(at % 8 == 0)) {
                let outcome = mended(&native(), Mending::Heal, &[&read(&[text], why)]);
                if let Some(error) = &outcome.error {
                    assert_eq!((outcome.calls().len(), outcome.stop()), (0, None), "{}: {}", dialect.name, text);
                    let kind = if why == Cut::Limit { ModelErrorKind::Rejected } else { ModelErrorKind::Format };
                    assert_eq!(error.kind, kind, "{}", text);
                } else if !outcome.calls().is_empty() {
                    // Only what may be left out is missing: brackets and tags behind a call that is whole.
                    let expected = [r#"edit_file {"path":"a.rs","content":"fn main() {}\n"}"#];
                    assert_eq!(outcome.calls(), expected, "{}: {}", dialect.name, text);
                }
            }
        }
    }
}

#[test]
fn the_model_is_told_what_was_wrong_and_asked_again() {
    let usage = |sink: &mut dyn Sink| sink.event(Event::Usage(Usage { output: Some(10), ..Usage::default() }));
    let wrong = |sink: &mut dyn Sink| {
        read(&["First. <edit_file><count>1</count></edit_file>"], Cut::Ended)(sink);
        usage(sink);
    };
    let right = |sink: &mut dyn Sink| {
        read(&["Second. ", &spelled("cline", &[("edit_file", json!({"path": "a", "count": 1}))])], Cut::Ended)(sink);
        usage(sink);
    };
    for protocol in [Protocol::Native, Protocol::Prompted("cline".into())] {
        let request = Request { protocol, ..native() };
        let outcome = mended(&request, Mending::Retry(2), &[&wrong, &wrong, &right]);
        assert_eq!(outcome.calls(), [r#"edit_file {"path":"a","count":1}"#]);
        assert_eq!(outcome.draft.text(), "First. First. Second. ");
        assert_eq!((outcome.draft.usage.output, outcome.stop()), (Some(30), Some(StopReason::Calls)));
        assert!(outcome.report.starts_with("asked_again=2"), "{}", outcome.report);
        let [first, second] = outcome.asked.as_slice() else { panic!("{}", outcome.asked.len()) };
        let [_, said, told] = first.messages.as_slice() else { panic!("{:?}", first.messages) };
        assert!(matches!(said.parts.as_slice(), [Part::Text { .. }, Part::Call(_)]));
        let [Part::Result(result)] = told.parts.as_slice() else { panic!("{told:?}") };
        assert!(result.content.contains("`path`"), "{}", result.content);
        assert_eq!(second.messages.len(), 5);
    }
    // After the last try there are the words, or the error.
    let outcome = mended(&native(), Mending::Retry(1), &[&wrong, &wrong]);
    assert_eq!((outcome.calls().len(), outcome.stop(), outcome.error.is_none()), (0, Some(StopReason::End), true));
    let silent = |sink: &mut dyn Sink| call(sink, 0, "c", "edit_file", &json!({}));
    let outcome = mended(&native(), Mending::Retry(1), &[&silent, &silent]);
    assert_eq!((outcome.calls().len(), outcome.stop(), outcome.error.is_some()), (0, None, true));
}

#[test]
fn what_was_right_goes_out_and_what_builds_on_a_broken_call_does_not() {
    let answer = |sink: &mut dyn Sink| {
        call(sink, 0, "a", "edit_file", &json!({"path": "a"}));
        call(sink, 1, "b", "edit_file", &json!({}));
        call(sink, 2, "c", "stop", &json!({}));
    };
    let outcome = mended(&native(), Mending::Retry(1), &[&answer]);
    assert_eq!((outcome.calls(), outcome.asked.len()), (vec![r#"edit_file {"path":"a"}"#.to_owned()], 0));
    assert_eq!((outcome.stop(), outcome.report.as_str()), (Some(StopReason::Calls), "dropped_call=1"));
}

#[test]
fn pass_touches_nothing() {
    let answer = |sink: &mut dyn Sink| {
        sink.event(Event::Text { text: "<tool_call><|im_end|>" });
        call(sink, 0, "c", "Edit_File", &json!({"count": "3"}));
        sink.event(Event::Stop { reason: StopReason::End, raw: "stop" });
    };
    let outcome = mended(&native(), Mending::Pass, &[&answer]);
    assert_eq!(outcome.calls(), [r#"Edit_File {"count":"3"}"#]);
    assert_eq!((outcome.draft.text().as_str(), outcome.stop()), ("<tool_call><|im_end|>", Some(StopReason::End)));
}

#[test]
fn words_are_read_back() {
    for mending in [Mending::Pass, Mending::Heal, Mending::Retry(1), Mending::Retry(9)] {
        assert_eq!(mending.to_string().parse(), Ok(mending));
    }
    assert_eq!("retry".parse(), Ok(Mending::Retry(1)));
    for wrong in ["", "retry 0", "retry 10", "retry x", "retry2", "heal 2", "Pass", "retries"] {
        assert!(wrong.parse::<Mending>().is_err(), "{wrong}");
    }
}

fn contents() -> impl Strategy<Value = String> {
    let pieces =
        vec!["a", "\n", "</content>", "<content>", "<", "\"", "\\", "ü", "```", "}", "]", "</edit_file>", "=", " "];
    let pieces = prop::collection::vec(prop::sample::select(pieces), 0..20).prop_map(|pieces| pieces.concat());
    prop_oneof![pieces, ".{0,40}", Just("long line\n".repeat(200))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn splits_change_nothing(
        content in contents(), dialect in 0..dialects().len(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let dialect = dialects()[dialect];
        let arguments = example(&content);
        let calls = [("edit_file", arguments.clone()), ("stop", json!({}))];
        let text = format!("Words <b>.\n{}", spelled(dialect.name, &calls));
        let mut at: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len()))).collect();
        at.sort_unstable();
        let bounds: Vec<usize> = [0].into_iter().chain(at).chain([text.len()]).collect();
        let pieces: Vec<&str> = bounds.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap()).collect();
        let outcome = mended(&native(), Mending::Heal, &[&read(&pieces, Cut::Ended)]);
        let expected = [format!("edit_file {arguments}"), format!("stop {}", Value::Object(Map::new()))];
        prop_assert_eq!(outcome.calls(), expected, "{}: {}", dialect.name, text);
        let retried = mended(&native(), Mending::Retry(1), &[&read(&pieces, Cut::Ended)]);
        prop_assert_eq!(retried.calls(), outcome.calls());
    }
}
