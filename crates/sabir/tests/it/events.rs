//! Tests that every line of `--output events` matches `docs/events.schema.json`: one of each kind here, and all lines in other
//! tests (`world::events`). Everything that the schema allows occurs here, so that it allows nothing obsolete.

use std::collections::HashSet;
use std::sync::LazyLock;

use jsonschema::Validator;
use sabir_agent::{
    AddedTool, AssistantTurn, CallCheck, CallDigest, CompactionReason, CompactionRecord,
    ContextChange, ContextFragment, DecisionMaker, DeliveryTime, EchoSource, FailedTurn,
    FragmentKind, MessageAuthor, Preconditions, Record, RuleProposal, SubtaskEnd, SummaryAuthor,
    TaskEvent, TaskId, TaskOutcome, TaskStart, TaskUsage, ToolUsage, ToolsChange, TransientEvent,
    UserQuestion,
};
use sabir_call::{
    ArgumentEncoding, Call, CallId, CallResult, Certainty, Cost, Dollars, Event, Fault, FaultKind,
    Image, MarkupRole, MarkupSpan, MessagePart, ModelErrorKind, OpaqueState, Severity, Span,
    SpanOrigin, StopReason, ToolProtocol, ToolResultStatus, Truncation, Usage,
};
use sabir_check::Repair;
use sabir_policy::Verdict;
use sabir_testkit::{ProviderReply, ReplyScript};
use serde_json::{Value, json};

use crate::world::{WAYS, World, code, events, stderr, stdout, turn};

const SCHEMA: &str = include_str!("../../../../docs/events.schema.json");

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap());

/// Checks a line against the schema.
pub(crate) fn checked(line: &str) -> Value {
    let value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    assert!(
        VALIDATOR.is_valid(&value),
        "not as docs/events.schema.json says: {line}"
    );
    assert_eq!(
        serde_json::to_string(&value).unwrap().len(),
        line.len(),
        "a member stands there twice: {line}"
    );
    value
}

fn usage() -> Usage {
    let some = Some(1);
    Usage {
        input: some,
        output: some,
        cache_read: some,
        cache_write: some,
        reasoning: some,
    }
}

fn fault(severity: Severity, origin: SpanOrigin) -> Fault {
    let (kind, span, text) = (FaultKind::MissingArgument, Span::new(1, 2), "x".to_owned());
    let (call, argument, hint) = (Some(0), Some(text.clone()), Some(text.clone()));
    Fault {
        kind,
        severity,
        call,
        argument,
        span,
        origin,
        message: text,
        hint,
    }
}

fn opaque() -> OpaqueState {
    OpaqueState {
        wire: "anthropic".to_owned(),
        origin: Some("anthropic/claude-sonnet-4-5".to_owned()),
        data: json!({"x": 1}),
    }
}

fn image() -> Image {
    Image {
        media_type: "image/png".to_owned(),
        data: "AA==".to_owned(),
    }
}

fn result(ending: ToolResultStatus) -> CallResult {
    CallResult {
        id: CallId::new("c"),
        name: "n".into(),
        ending,
        content: "x".into(),
        images: vec![image()],
    }
}

fn records() -> Vec<Record> {
    let text = || "x".to_owned();
    let call = CallId::new("c");
    let cost = Cost {
        known: "0.5".parse::<Dollars>().unwrap(),
        at_least: true,
        estimated: true,
    };
    let prompted = || ToolProtocol::Prompted("cline".to_owned());
    let start = |protocol, more: Option<String>| {
        let (prompt, workspace, model, version) = (text(), text(), text(), text());
        let (task, edit_tool, from) = (TaskId::new("t"), more.clone(), more.is_some().then(fork));
        Record::Started(TaskStart {
            task,
            prompt,
            workspace,
            model,
            protocol,
            version,
            edit_tool,
            mode: more,
            from,
        })
    };
    let parts = vec![
        MessagePart::Text { text: text() },
        MessagePart::Thought {
            text: text(),
            opaque: Some(opaque()),
        },
        MessagePart::Image(image()),
        MessagePart::ImageUrl { url: text() },
        MessagePart::Call(Call {
            id: call.clone(),
            name: text(),
            arguments: Default::default(),
            dialect: Some(text()),
        }),
        MessagePart::Result(result(ToolResultStatus::Done)),
        MessagePart::Opaque(opaque()),
    ];
    let repair = Repair {
        rule: "r".into(),
        span: Span::new(0, 1),
        before: text(),
        after: text(),
    };
    let faults = vec![
        fault(Severity::Error, SpanOrigin::Text),
        fault(Severity::Warning, SpanOrigin::Arguments),
    ];
    let check = CallCheck {
        call: call.clone(),
        passed: false,
        repairs: vec![repair],
        faults: faults.clone(),
        feedback: Some(text()),
        recovered_from_text: true,
        echo_of: Some(EchoSource::Result {
            call: call.clone(),
            tool: text(),
        }),
        wrapped: vec![text()],
    };
    use StopReason::{Calls, End, Length, Other, Paused, Refused, Sequence};
    let stops = [End, Calls, Length, Sequence, Refused, Paused, Other].map(|stop| {
        let (parts, checks, faults) = (parts.clone(), vec![check.clone()], faults.clone());
        let (usage, estimate, feedback) = (usage(), usage(), Some(text()));
        Record::Answered(AssistantTurn {
            turn: 1,
            parts,
            checks,
            faults,
            usage,
            estimate,
            cost,
            stop: Some(stop),
            feedback,
        })
    });
    let said = [
        (MessageAuthor::User, DeliveryTime::Later),
        (MessageAuthor::Sabir, DeliveryTime::Next),
    ];
    let said = said.map(|(by, when)| Record::Said {
        by,
        text: text(),
        images: vec![image()],
        when,
    });
    let verdicts = [
        (Verdict::Allow, DecisionMaker::User),
        (Verdict::Ask, DecisionMaker::Policy),
        (Verdict::Deny, DecisionMaker::Policy),
    ];
    let verdicts = verdicts.map(|(verdict, by)| Record::Judged {
        call: call.clone(),
        verdict,
        by,
        reason: text(),
    });
    let endings = [
        ToolResultStatus::Done,
        ToolResultStatus::Failed,
        ToolResultStatus::Rejected,
        ToolResultStatus::Denied,
        ToolResultStatus::Interrupted,
    ];
    let mut all = vec![
        start(ToolProtocol::Native, None),
        start(prompted(), Some(text())),
    ];
    all.extend(shifts());
    all.extend(
        said.into_iter()
            .chain(stops)
            .chain(failures())
            .chain(verdicts),
    );
    let seal = CallDigest::for_call("n", &Default::default(), &Preconditions::default());
    all.push(Record::Running {
        call: call.clone(),
        seal: Some(seal),
    });
    all.extend(
        [None, Some("t-0.journal.damaged".to_owned())]
            .map(|saved_as| Record::Damaged { bytes: 1, saved_as }),
    );
    all.extend(subtasks());
    all.extend(endings.map(|ending| Record::Result(result(ending))));
    all.extend(ends());
    all
}

/// An end with each outcome.
fn ends() -> [Record; 8] {
    let text = || "x".to_owned();
    let outcomes = [
        TaskOutcome::Completed,
        TaskOutcome::Unfinished,
        TaskOutcome::Denied,
        TaskOutcome::Limit,
        TaskOutcome::ProviderFailed,
        TaskOutcome::Misconfigured,
        TaskOutcome::Cancelled,
        TaskOutcome::StoreFailed,
    ];
    let cost = Cost {
        known: "0.5".parse::<Dollars>().unwrap(),
        ..Cost::default()
    };
    let tool = ToolUsage {
        calls: 2,
        failures: 1,
        denials: 1,
    };
    let used = TaskUsage {
        usage: usage(),
        estimate: usage(),
        cost,
        tools: [(text(), tool)].into(),
    };
    outcomes.map(|outcome| Record::Ended {
        outcome,
        message: text(),
        used: Some(Box::new(used.clone())),
    })
}

fn subtasks() -> Vec<Record> {
    let (call, task) = (CallId::new("c"), TaskId::new("t-0"));
    let cost = Cost {
        known: "0.5".parse::<Dollars>().unwrap(),
        ..Cost::default()
    };
    let end = SubtaskEnd {
        outcome: TaskOutcome::Completed,
        turns: 1,
        usage: usage(),
        estimate: usage(),
        cost,
    };
    let subtask = |ended| Record::Subtask {
        call: call.clone(),
        task: task.clone(),
        ended,
    };
    let todos = Some("[ ] x".to_owned());
    let from = sabir_agent::TaskOrigin::Subtask {
        task: TaskId::new("t"),
        call: call.clone(),
        depth: 1,
        todos,
    };
    let [prompt, workspace, model, version] = ["x"; 4].map(str::to_owned);
    let (protocol, edit_tool, mode, from) = (ToolProtocol::Native, None, None, Some(from));
    let started = TaskStart {
        task: task.clone(),
        prompt,
        workspace,
        model,
        protocol,
        version,
        edit_tool,
        mode,
        from,
    };
    vec![subtask(None), subtask(Some(end)), Record::Started(started)]
}

fn fork() -> sabir_agent::TaskOrigin {
    sabir_agent::TaskOrigin::Fork {
        task: TaskId::new("t"),
        record: 1,
    }
}

fn shifts() -> Vec<Record> {
    let text = || "x".to_owned();
    let (prompt, workspace, model, version, protocol) =
        (text(), text(), text(), text(), ToolProtocol::Native);
    let from = sabir_agent::TaskOrigin::Import {
        program: text(),
        source: text(),
        notes: vec![text()],
    };
    let (task, edit_tool, mode, from) = (TaskId::new("t"), None, None, Some(from));
    let imported = Record::Started(TaskStart {
        task,
        prompt,
        workspace,
        model,
        protocol,
        version,
        edit_tool,
        mode,
        from,
    });
    let kinds = [
        FragmentKind::Instructions,
        FragmentKind::Place,
        FragmentKind::Listing,
    ];
    let fragments: Vec<_> = kinds
        .map(|kind| ContextFragment {
            kind,
            name: text(),
            text: text(),
            left_out: 1,
        })
        .into_iter()
        .collect();
    let compacted = |why, by| {
        let (head, failure, cost) = (vec![text()], Some(text()), Cost::UNKNOWN);
        let (usage, estimate) = (usage(), usage());
        let compacted = CompactionRecord {
            why,
            by,
            failure,
            messages: 1,
            head,
            before: 2,
            after: 1,
            usage,
            estimate,
            cost,
        };
        Record::Context(ContextChange::Compacted(Box::new(compacted)))
    };
    vec![
        imported,
        Record::Context(ContextChange::Begun {
            fragments: fragments.clone(),
        }),
        Record::Context(ContextChange::Changed {
            fragments,
            told: text(),
        }),
        compacted(CompactionReason::Threshold, SummaryAuthor::Model),
        compacted(CompactionReason::Overflow, SummaryAuthor::Sabir),
        compacted(CompactionReason::Asked, SummaryAuthor::Model),
        Record::Context(ContextChange::Restored),
        Record::Context(ContextChange::Moded {
            mode: text(),
            told: text(),
            when: DeliveryTime::Next,
        }),
        Record::Context(ContextChange::Moded {
            mode: text(),
            told: text(),
            when: DeliveryTime::Later,
        }),
        Record::Context(ContextChange::Tools(ToolsChange {
            added: sabir_policy::ToolGroup::ALL
                .map(added_tool)
                .into_iter()
                .collect(),
            removed: vec![text()],
        })),
    ]
}

fn added_tool(group: sabir_policy::ToolGroup) -> AddedTool {
    let mut spec =
        sabir_call::ToolSpec::new("look", "", json!({"type": "object", "properties": {}}));
    spec.examples = vec![serde_json::Map::new()];
    AddedTool {
        spec,
        group: Some(group),
        reads_only: true,
        polls: true,
        hidden: true,
    }
}

fn failures() -> Vec<Record> {
    use ModelErrorKind::{
        Broken, Cassette, Format, Key, RateLimited, Rejected, TooLong, Unavailable, UnknownModel,
        Unreachable,
    };
    let errors = [
        Key,
        UnknownModel,
        Rejected,
        TooLong,
        RateLimited,
        Unavailable,
        Unreachable,
        Broken,
        Format,
        Cassette,
    ];
    errors
        .map(|error| {
            Record::Failed(FailedTurn {
                error,
                message: "x".to_owned(),
                usage: usage(),
                estimate: usage(),
                cost: Cost::UNKNOWN,
            })
        })
        .into()
}

fn deltas(show: &mut dyn FnMut(Event<'_>)) {
    let (index, at, text) = (0, 0, "x");
    show(Event::Text { text });
    show(Event::Thought { text });
    let roles = [
        MarkupRole::Call,
        MarkupRole::Wrapper,
        MarkupRole::Thought,
        MarkupRole::Mention,
        MarkupRole::Content,
    ];
    let sure = [Certainty::Certain, Certainty::Likely, Certainty::Guess];
    for (role, sure) in roles.into_iter().zip(sure.into_iter().cycle()) {
        show(Event::Mark(MarkupSpan {
            role,
            dialect: Some("cline"),
            span: Span::new(0, 1),
            sure,
            rule: "r",
        }));
    }
    show(Event::CallStart {
        index,
        id: Some("c"),
        name: "n",
        dialect: None,
        at,
        name_at: 0,
    });
    for form in [
        ArgumentEncoding::Raw,
        ArgumentEncoding::String,
        ArgumentEncoding::Json,
    ] {
        show(Event::ArgStart {
            index,
            name: "n",
            form,
            at,
        });
    }
    show(Event::ArgDelta { index, text });
    show(Event::ArgEnd {
        index,
        lead: "\n",
        at,
    });
    show(Event::CallEnd { index, at });
    for why in [
        Truncation::Ended,
        Truncation::Limit,
        Truncation::Broken,
        Truncation::Cancelled,
    ] {
        show(Event::CallCut { index, why, at });
    }
    show(Event::Fault(&fault(Severity::Error, SpanOrigin::Text)));
    show(Event::Usage(usage()));
    show(Event::Stop {
        reason: StopReason::End,
        raw: "stop",
    });
    show(Event::Opaque(&opaque()));
}

fn questions() -> Vec<UserQuestion> {
    let (text, call) = (|| "x".to_owned(), CallId::new("c"));
    let (tool, subject, detail, reason) = (text(), text(), text(), text());
    let proposals = vec![RuleProposal {
        rule: text(),
        words: text(),
    }];
    vec![
        UserQuestion::Approval {
            call: call.clone(),
            tool,
            subject,
            detail,
            reason,
            proposals,
            recovered_from_text: true,
            echo_of: Some(EchoSource::Context { name: "x".into() }),
        },
        UserQuestion::Followup {
            call: call.clone(),
            question: text(),
            options: vec![text()],
        },
        UserQuestion::Completion {
            call,
            result: text(),
        },
        UserQuestion::Next { reason: text() },
    ]
}

/// Returns one line of each kind, with all optional fields.
fn lines() -> Vec<String> {
    let mut lines: Vec<String> = records()
        .iter()
        .map(|record| serde_json::to_string(&TaskEvent::Record(record)).unwrap())
        .collect();
    let mut moment = |moment: TransientEvent<'_>| {
        lines.push(serde_json::to_string(&TaskEvent::Transient(moment)).unwrap())
    };
    deltas(&mut |event| moment(TransientEvent::Delta(event)));
    questions()
        .iter()
        .for_each(|question| moment(TransientEvent::Question(question)));
    moment(TransientEvent::Asking {
        turn: 1,
        full: Some(1),
    });
    moment(TransientEvent::Output {
        call: &CallId::new("c"),
        text: "x",
    });
    moment(TransientEvent::Waiting {
        reason: "x",
        milliseconds: 1,
    });
    lines
}

/// All names of members and all words among these values.
fn mentioned(value: &Value, all: &mut HashSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            all.insert(name.clone());
            mentioned(value, all);
        }),
        Value::Array(values) => values.iter().for_each(|value| mentioned(value, all)),
        Value::String(text) => _ = all.insert(text.clone()),
        _ => {}
    }
}

/// All names of members and all words that a schema allows.
fn promised(schema: &Value, all: &mut HashSet<String>) {
    let Value::Object(map) = schema else {
        return schema
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|schema| promised(schema, all));
    };
    for (name, value) in map {
        match (name.as_str(), value) {
            ("properties", Value::Object(members)) => all.extend(members.keys().cloned()),
            ("enum", Value::Array(words)) => {
                all.extend(words.iter().filter_map(Value::as_str).map(str::to_owned))
            }
            ("const", Value::String(word)) => _ = all.insert(word.clone()),
            _ => {}
        }
        promised(value, all);
    }
}

#[test]
fn the_schema_matches_the_events() {
    let mut there = HashSet::new();
    for line in lines() {
        mentioned(&checked(&line), &mut there);
    }
    // Only what differs from the usual is written down.
    there.insert("next".to_owned());
    let mut said = HashSet::new();
    promised(&serde_json::from_str(SCHEMA).unwrap(), &mut said);
    let gone: Vec<_> = said.difference(&there).collect();
    assert!(
        gone.is_empty(),
        "the schema promises what there is no more: {gone:?}"
    );
}

#[test]
fn the_document_names_every_kind() {
    let document = include_str!("../../../../docs/events.md");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let kinds = schema["oneOf"].as_array().unwrap();
    assert!(kinds.len() <= 16, "{} kinds", kinds.len());
    for kind in kinds {
        let kind = kind["$ref"]
            .as_str()
            .unwrap()
            .trim_start_matches("#/$defs/");
        assert!(
            document.contains(&format!("| `{kind}` |")),
            "docs/events.md does not tell of {kind}"
        );
    }
    for event in schema["$defs"]["delta"]["oneOf"].as_array().unwrap() {
        let event = event["properties"]["event"]["const"].as_str().unwrap();
        assert!(
            document.contains(&format!("`{event}`")),
            "docs/events.md does not tell of the delta {event}"
        );
    }
    let world = World::new();
    for (topic, text) in [
        ("events", document),
        ("headless", include_str!("../../../../docs/headless.md")),
    ] {
        assert_eq!(
            stdout(&world.sabir().args(["help", topic]).output().unwrap()),
            text
        );
    }
}

/// Returns the lines of an answer of 300 KB in pieces of 16 bytes: text and an argument.
#[test]
fn deltas_take_less_than_three_times_their_text() {
    let text: String = (0..300_000 / 60)
        .map(|n| format!("    let value_{n:05} = \"some text\".to_owned(); // and more\n"))
        .collect();
    let say = text.clone();
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(move |count, _| match count {
        0 => ProviderReply::text(say.clone()).in_deltas(16),
        1 => ProviderReply::text("")
            .with_call("w", "write_to_file", json!({"path": "a", "content": say}))
            .in_deltas(16),
        _ => {
            ProviderReply::text("").with_call("d", "attempt_completion", json!({"result": "done"}))
        }
    }));
    let output = world.run(
        &provider,
        WAYS[1],
        &[
            "--approve",
            "all",
            "--completion",
            "call",
            "--output",
            "events",
            "go",
        ],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let all = events(&output);
    let of = |kind: &str| {
        let words = all
            .iter()
            .filter(|event| event["event"] == kind)
            .map(|event| event["text"].as_str().unwrap());
        words.collect::<String>()
    };
    assert!(
        of("text") == text && of("arg_delta").ends_with(&format!("{text}done")),
        "nothing is lost"
    );
    assert!(
        output.stdout.len() < 3 * 2 * text.len(),
        "{} bytes for 2 x {}",
        output.stdout.len(),
        text.len()
    );
}

#[test]
fn a_faulty_call_matches_the_schema() {
    let world = World::new();
    let (bad, done) = (
        turn("", vec![("read_file", json!({"colour": "a"}))]),
        turn("", vec![("attempt_completion", json!({"result": "x"}))]),
    );
    for way in WAYS {
        let provider = world.plays(way, &[bad.clone(), done.clone()]);
        let output = world.run(&provider, way, &["--output", "events", "go"]);
        assert_eq!(
            (code(&output), events(&output).is_empty()),
            (0, false),
            "{}",
            stderr(&output)
        );
    }
}
