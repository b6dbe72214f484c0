//! Tests that any appended record is read back unchanged.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::{any, proptest};
use sabir_agent::{
    AssistantTurn, CallCheck, DecisionMaker, FailedTurn, Record, RecordStore, TaskId, TaskOutcome,
};
use sabir_call::{
    Call, CallId, CallResult, Cost, Dollars, Fault, FaultKind, MessagePart, OpaqueState, Span,
    StopReason, ToolResultStatus, Usage,
};
use sabir_journal::{Journal, JournalError, read_journal};
use sabir_policy::Verdict;
use serde_json::{Map, Value, json};

use crate::{Place, clock, records_of, said, started};

fn answered(arguments: Map<String, Value>) -> Record {
    let call = CallId::new("call_1");
    let fault = Fault::error(FaultKind::UnknownTool, Span::new(3, 9), "what?").in_call(0);
    Record::Answered(AssistantTurn {
        turn: 1,
        parts: vec![
            MessagePart::Text {
                text: "é \u{1f600} \0 \u{2028} \r\n \"\\".to_owned(),
            },
            MessagePart::Opaque(OpaqueState {
                wire: "anthropic".to_owned(),
                origin: None,
                data: json!({"signature": "x"}),
            }),
            MessagePart::Call(Call {
                id: call.clone(),
                name: "read_file".to_owned(),
                arguments,
                dialect: None,
            }),
        ],
        checks: vec![CallCheck {
            call,
            passed: false,
            repairs: Vec::new(),
            faults: vec![fault],
            feedback: Some("no".to_owned()),
            recovered_from_text: false,
            echo_of: None,
            wrapped: Vec::new(),
        }],
        faults: Vec::new(),
        usage: Usage {
            input: Some(u64::MAX),
            ..Usage::default()
        },
        estimate: Usage {
            output: Some(7),
            ..Usage::default()
        },
        cost: Cost {
            known: Dollars::from_nanos(u64::MAX),
            at_least: true,
            estimated: true,
        },
        stop: Some(StopReason::Calls),
        feedback: None,
    })
}

/// Makes one record of each kind.
fn every_kind() -> Vec<Record> {
    let call = CallId::new("call_1");
    let numbers = json!({"path": "a.rs", "n": [0, -1, u64::MAX, 0.1, 1e300, 5e-324, 1.797_693_134_862_315_7e308, 0.3]});
    let Value::Object(arguments) = numbers else {
        unreachable!()
    };
    vec![
        started("task-1", "do it"),
        said("please"),
        answered(arguments),
        Record::Failed(FailedTurn {
            error: sabir_call::ModelErrorKind::RateLimited,
            message: "later".to_owned(),
            usage: Usage::default(),
            estimate: Usage::default(),
            cost: Cost::UNKNOWN,
        }),
        Record::Judged {
            call: call.clone(),
            verdict: Verdict::Ask,
            by: DecisionMaker::Policy,
            reason: "writes".to_owned(),
        },
        Record::Running {
            call: call.clone(),
            seal: None,
        },
        Record::Result(CallResult {
            id: call,
            name: "read_file".to_owned(),
            ending: ToolResultStatus::Done,
            content: "x".to_owned(),
            images: vec![sabir_call::Image {
                media_type: "image/png".to_owned(),
                data: "aGk=".to_owned(),
            }],
        }),
        Record::Ended {
            outcome: TaskOutcome::Completed,
            message: "done".to_owned(),
            used: None,
        },
    ]
}

#[track_caller]
fn check(records: &[Record]) {
    let place = Place::with(records);
    let (_journal, entries, recovery) = place.open().unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    let times: Vec<u64> = entries.iter().map(|entry| entry.at).collect();
    assert_eq!(times, (1001..).take(records.len()).collect::<Vec<_>>());
    assert_eq!(records_of(entries), records);
}

#[test]
fn records_are_read_back() {
    check(&[]);
    check(&every_kind());
    check(&[said(""), said("x".repeat(3 << 20)), said("y")]);
}

#[test]
fn a_reopened_journal_is_continued() {
    let place = Place::with(&[said("a")]);
    for text in ["b", "c"] {
        let (mut journal, ..) = place.open().unwrap();
        journal.append(&said(text)).unwrap();
    }
    assert_eq!(
        records_of(place.open().unwrap().1),
        [said("a"), said("b"), said("c")]
    );
}

#[test]
fn deep_values_are_read_back_or_refused() {
    let nested = |depth| {
        let value = (1..depth).fold(json!(["end"]), |inner, _| json!([inner]));
        answered(Map::from_iter([("x".to_owned(), value)]))
    };
    // The parser of a call's arguments accepts 127 levels, and the record adds some more.
    check(&[nested(127)]);
    check(&[nested(252)]);
    let place = Place::with(&[said("a")]);
    let (mut journal, ..) = place.open().unwrap();
    let error = journal.append(&nested(253)).unwrap_err().to_string();
    assert!(
        error.ends_with("the record nests values 257 deep, and at most 256 is allowed"),
        "{error}"
    );
    journal.append(&said("b")).unwrap();
    drop(journal);
    assert_eq!(records_of(place.open().unwrap().1), [said("a"), said("b")]);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_record_over_the_limit_is_refused() {
    let place = Place::new();
    let mut journal = place.create().unwrap();
    let error = journal
        .append(&said("z".repeat(64 << 20)))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("and at most 67108864 are allowed"),
        "{error}"
    );
    let frame = r#"{"at":1002,"kind":"said","by":"user","text":""}"#.len();
    let longest = said("z".repeat((64 << 20) - frame));
    journal.append(&longest).unwrap();
    drop(journal);
    assert!(place.open().unwrap().1[0].record == longest);
}

#[test]
fn only_the_user_may_read_it() {
    let place = Place::new();
    let folder = place.path().join("deep/down");
    let _journal = Journal::create(&folder, &place.task, clock()).unwrap();
    let mode =
        |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(folder.join("task-1.journal")), 0o600);
    assert_eq!(mode(folder.clone()), 0o700);
    assert_eq!(mode(place.path().join("deep")), 0o700);
}

#[test]
fn the_bytes_are_as_documented() {
    let place = Place::with(&[said("a")]);
    let (bytes, ends) = place.frames();
    assert_eq!(bytes[..16], *b"sabir journal 2\n");
    assert_eq!(
        bytes[28..],
        *br#"{"at":1001,"kind":"said","by":"user","text":"a"}"#
    );
    assert_eq!(ends, [16, bytes.len()]);
}

#[test]
fn a_second_opener_is_refused() {
    let place = Place::with(&[said("a")]);
    let (mut journal, ..) = place.open().unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, JournalError::Locked { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("the task `task-1` is in use by "),
        "{error}"
    );
    assert!(matches!(
        place.create().unwrap_err(),
        JournalError::Exists { .. }
    ));
    // A reader needs no lock.
    assert_eq!(read_journal(place.path(), &place.task).unwrap().0.len(), 1);
    journal.append(&said("b")).unwrap();
    drop(journal);
    assert_eq!(place.open().unwrap().1.len(), 2);
}

#[test]
fn a_child_process_does_not_inherit_the_lock() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("true").status().unwrap();
            }
        });
        let place = Place::with(&[said("a")]);
        let opened: Vec<_> = (0..500).map(|_| place.open().map(drop)).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.into_iter().for_each(|opened| opened.unwrap());
    });
}

#[test]
fn task_names_cannot_leave_the_folder() {
    let place = Place::new();
    for id in [
        "",
        "..",
        "a/b",
        "../x",
        "a\0b",
        "a.b",
        "ä",
        &"x".repeat(129),
    ] {
        let error = Journal::create(place.path(), &TaskId::new(id), clock()).unwrap_err();
        assert!(matches!(error, JournalError::Name { .. }), "{error:?}");
    }
    let error = place.open().unwrap_err();
    assert!(
        error.to_string().starts_with("there is no task `task-1`"),
        "{error}"
    );
}

#[test]
fn a_removed_journal_refuses_appends() {
    let place = Place::new();
    let mut journal = place.create().unwrap();
    std::fs::remove_file(place.file()).unwrap();
    let error = journal.append(&said("a")).unwrap_err().to_string();
    assert!(
        error.ends_with("it was removed, so later records would be lost"),
        "{error}"
    );
    assert_eq!(journal.append(&said("a")).unwrap_err().to_string(), error);
}

proptest! {
    #[test]
    fn any_text_and_number_is_read_back(text in any::<String>(), number in any::<f64>(), whole in any::<i64>()) {
        let arguments = Map::from_iter([(text.clone(), json!([number, whole])), ("x".to_owned(), json!(text))]);
        check(&[said(text), answered(arguments)]);
    }
}
