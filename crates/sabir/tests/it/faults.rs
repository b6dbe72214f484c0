//! Tests tasks whose provider misbehaves, and in the folder of this name, tasks on a machine that fails. `faults/held.md` lists
//! all faults with the tests that cover them, here and in the other crates.

mod clocks;
mod disk;
mod held;
mod panics;
mod preload;
mod processes;
mod signals;
mod state;
mod together;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sabir_agent::{
    CancelToken, FrontEnd, InstructionTemplate, Interactivity, Record, RecordStore, StoreError,
    Task, TaskDriver, TaskEvent, TaskLimits, TaskOutcome, TaskSettings, TaskStart, ToolRegistry,
    UserQuestion, UserReply as Answer,
};
use sabir_call::StopReason;
use sabir_model::{Cassette, HttpModel};
use sabir_policy::PolicyRules;
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::ResponseMetadata;
use sabir_workspace::{JobManager, OutputLifetime, Sandbox, SandboxLevel, Workspace};
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, events, stderr, turn};

const NATIVE: Way = WAYS[1];

fn done() -> crate::world::Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

fn of_kind(output: &std::process::Output, kind: &str) -> Vec<Value> {
    events(output)
        .into_iter()
        .filter(|event| event["kind"] == kind)
        .collect()
}

#[test]
fn a_broken_response_is_retried_after_a_pause_and_runs_once() {
    for way in [WAYS[0], WAYS[1], WAYS[2]] {
        let append = || {
            turn(
                "I append.",
                vec![("execute_command", json!({"command": "echo x >> log.txt"}))],
            )
        };
        let whole = way
            .reply(&append(), 1)
            .in_deltas(5)
            .encode_stream(way.wire, ResponseMetadata::default())
            .len();
        let overloaded = ScriptedFault::Error {
            code: "overloaded_error".into(),
            message: "Overloaded".into(),
        };
        // The second one after the call has come whole, in most cases.
        let troubles = [
            ScriptedFault::CutAfter(whole / 2),
            ScriptedFault::CutAfter(whole * 8 / 10),
            ScriptedFault::EndAfter(whole / 2),
            overloaded,
        ];
        for trouble in troubles {
            let world = World::new();
            let failing = trouble.clone();
            let provider =
                world.provider(ReplyScript::from_fn(move |count, request| match count {
                    0 => way
                        .reply(&append(), 1)
                        .in_deltas(5)
                        .with_fault(failing.clone()),
                    _ if request.body.to_string().contains("Exit code") => way.reply(&done(), 2),
                    _ => way.reply(&append(), 1),
                }));
            let output = world.run(
                &provider,
                way,
                &["--approve", "all", "--output", "events", "append"],
            );
            assert_eq!(code(&output), 0, "{way:?} {trouble:?}: {}", stderr(&output));
            assert_eq!(world.read("log.txt"), "x\n", "{way:?} {trouble:?}");
            assert_eq!(of_kind(&output, "failed").len(), 1, "{way:?} {trouble:?}");
            let waiting = of_kind(&output, "waiting");
            assert_eq!(waiting.len(), 1, "{way:?} {trouble:?}");
            assert!(
                waiting[0]["milliseconds"].as_u64().unwrap() >= 250,
                "{waiting:?}"
            );
        }
    }
}

#[test]
fn a_wait_is_shown_and_can_be_interrupted() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, _| {
        ProviderReply::error_status(429).with_header("retry-after", "50")
    }));
    let shown = world.home.path().join("events");
    let mut command = world.sabir_with(&provider);
    command.args([
        "run",
        "--model",
        NATIVE.model(),
        "--output",
        "events",
        "do it",
    ]);
    command.stdout(std::fs::File::create(&shown).unwrap());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while !std::fs::read_to_string(&shown)
        .unwrap()
        .contains("\"milliseconds\":50000")
    {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no wait is shown"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Less than the wait that it cut short.
    assert!(begun.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_context_overflow_ends_the_task_and_it_can_be_resumed() {
    let world = World::new();
    let body =
        json!({"error": {"code": "context_length_exceeded", "message": "too long"}}).to_string();
    let provider = world.provider(ReplyScript::from_fn(move |_, _| {
        ProviderReply::error_status(400).with_body(&body)
    }));
    let output = world.run(&provider, NATIVE, &["--output", "events", "do it"]);
    assert_eq!(
        (code(&output), provider.received_requests().len()),
        (7, 1),
        "{}",
        stderr(&output)
    );
    assert_eq!(of_kind(&output, "failed")[0]["error"], "too_long");
    let provider = world.plays(NATIVE, &[done()]);
    let id = world.only_task();
    let resumed = world
        .sabir_with(&provider)
        .args(["resume", "--output", "text", &id])
        .output()
        .unwrap();
    assert_eq!(code(&resumed), 0, "{}", stderr(&resumed));
}

/// The same error in the middle of a stream, where other errors are retried.
#[test]
fn a_context_overflow_in_a_stream_is_retried_with_less() {
    let world = World::new();
    (0..6)
        .for_each(|nth| _ = world.write(&format!("n{nth}.txt"), &"a line of notes\n".repeat(300)));
    let too_long = ScriptedFault::Error {
        code: "context_length_exceeded".into(),
        message: "The prompt exceeds the context".into(),
    };
    let provider = world.provider(ReplyScript::from_fn(move |count, request| match count {
        0..6 => NATIVE.reply(
            &turn(
                "",
                vec![("read_file", json!({"path": format!("n{count}.txt")}))],
            ),
            count + 1,
        ),
        _ if request.body.to_string().contains("You summarise the work") => {
            ProviderReply::text("Notes were read.")
        }
        _ if request.body["messages"]
            .as_array()
            .is_some_and(|messages| messages.len() > 8) =>
        {
            ProviderReply::text("I").with_fault(too_long.clone())
        }
        _ => NATIVE.reply(&done(), count + 1),
    }));
    let output = world.run(&provider, NATIVE, &["--output", "events", "read"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let compacted = of_kind(&output, "context")
        .iter()
        .filter(|event| event["change"] == "compacted")
        .count();
    assert_eq!(compacted, 1);
    let requests = provider.received_requests();
    let bodies: Vec<_> = requests
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    assert!(
        bodies
            .iter()
            .all(|body| bodies.iter().filter(|other| *other == body).count() == 1),
        "none is sent twice"
    );
}

#[test]
fn calls_with_equal_or_missing_ids_have_one_result_each() {
    for way in [WAYS[0], WAYS[1]] {
        let world = World::new();
        world.write("a.txt", "a");
        let read = |reply: ProviderReply, id: &str| {
            reply.with_call(id, "read_file", json!({"path": "a.txt"}))
        };
        let same = ["x", "x", "", ""]
            .iter()
            .fold(ProviderReply::text("I read."), |reply, id| read(reply, id));
        let again = read(ProviderReply::text("Again."), "x");
        let provider = world.provider(ReplyScript::new([same, again, way.reply(&done(), 3)]));
        let output = world.run(&provider, way, &["--output", "events", "read"]);
        assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
        let results = of_kind(&output, "result");
        let mut ids: Vec<_> = results
            .iter()
            .map(|result| result["id"].as_str().unwrap().to_owned())
            .collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{way:?}: {results:?}");
        let calls: usize = of_kind(&output, "answered")
            .iter()
            .map(|answer| answer["checks"].as_array().unwrap().len())
            .sum();
        assert_eq!(count, calls, "{way:?}: each call has one result");
    }
}

#[test]
fn a_call_cut_by_the_output_limit_does_not_run_and_is_reported() {
    let world = World::new();
    let call = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {
        "name": "write_to_file", "arguments": "{\"path\":\"a.txt\",\"content\":\"long"}}]}}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "length"}]});
    let body = format!("data: {call}\n\ndata: {stop}\n\ndata: [DONE]\n\n");
    let cut = ProviderReply::default().with_fault(ScriptedFault::Body {
        content_type: Some("text/event-stream".into()),
        body,
    });
    let provider = world.provider(ReplyScript::new([cut, NATIVE.reply(&done(), 2)]));
    let output = world.run(
        &provider,
        NATIVE,
        &["--approve", "all", "--output", "events", "write"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        (
            of_kind(&output, "running").len(),
            world.read("a.txt").as_str()
        ),
        (0, "")
    );
    let told = provider.received_requests()[1].body["messages"].to_string();
    assert!(told.contains("limit"), "{told}");
}

#[test]
fn a_refusal_ends_the_task_without_a_retry() {
    for way in [WAYS[0], WAYS[1]] {
        let world = World::new();
        let refusal = ProviderReply {
            stop: Some(StopReason::Refused),
            ..ProviderReply::text("I cannot help with that.")
        };
        let provider = world.provider(ReplyScript::from_fn(move |_, _| refusal.clone()));
        let output = world.run(&provider, way, &["do it"]);
        assert_eq!(
            (code(&output), provider.received_requests().len()),
            (3, 1),
            "{way:?}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("refused"), "{}", stderr(&output));
    }
}

#[test]
fn empty_answers_are_retried_at_most_three_times() {
    for way in [WAYS[0], WAYS[1]] {
        for empty in [
            ProviderReply::text(""),
            ProviderReply::text(" \n\t\n"),
            ProviderReply::default().with_thought("Hm.", Some("signed")),
        ] {
            let world = World::new();
            let shown = format!("{way:?} {empty:?}");
            let provider = world.provider(ReplyScript::from_fn(move |_, _| empty.clone()));
            let output = world.run(&provider, way, &["do it"]);
            let requests = provider.received_requests();
            assert_eq!(code(&output), 3, "{shown}: {}", stderr(&output));
            assert!(requests.len() <= 3, "{shown}: {} requests", requests.len());
            for message in requests
                .iter()
                .flat_map(|request| request.body["messages"].as_array().unwrap())
            {
                let content = &message["content"];
                let blank = content.as_str().is_some_and(|text| text.trim().is_empty());
                let empty = content.as_array().is_some_and(Vec::is_empty) || content.is_null();
                assert!(!blank && !empty, "{shown}: no provider takes {message}");
                let blocks = content.as_array().into_iter().flatten();
                let mut texts = blocks.filter_map(|block| block["text"].as_str());
                assert!(
                    texts.all(|text| !text.trim().is_empty()),
                    "{shown}: no provider takes {message}"
                );
            }
        }
    }
}

/// Cancels the task at its event number `at`, and keeps its records.
struct Impatient {
    at: usize,
    seen: usize,
    cancel: CancelToken,
    cancelled: Option<Instant>,
}

impl FrontEnd for Impatient {
    fn on_event(&mut self, _event: TaskEvent<'_>) {
        if self.seen == self.at {
            self.cancel.cancel();
            self.cancelled = Some(Instant::now());
        }
        self.seen += 1;
    }

    fn request<'a>(
        &'a mut self,
        _question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(std::future::ready(Answer::Leave))
    }
}

#[derive(Default)]
struct Kept(Vec<Record>);

impl RecordStore for Kept {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.0.push(record.clone());
        Ok(())
    }
}

/// Plays the tour's cassette and cancels at that event. `false`: the task was over before.
fn cancel_at(at: usize, cassette: &Cassette, runtime: &tokio::runtime::Runtime) -> bool {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(
        folder.path().join("greet.sh"),
        "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n",
    )
    .unwrap();
    let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
    let environment = vec![("PATH".to_owned(), std::env::var("PATH").unwrap())];
    let jobs = Arc::new(JobManager::new(
        folder.path().join("outputs"),
        OutputLifetime::Temporary,
    ));
    let helper = PathBuf::from(env!("CARGO_BIN_EXE_sabir"));
    let edit_tool = sabir_tools::EditTool::default();
    let (reach, sandbox) = (
        sabir_tools::NetworkScope::Public,
        Sandbox::new(SandboxLevel::Off),
    );
    let tools = sabir_tools::ToolSettings {
        workspace,
        helper,
        environment,
        edit_tool,
        sandbox,
        jobs,
        reach,
        editor: None,
    };
    let registry = ToolRegistry::new(sabir_tools::builtin_tools(tools)).unwrap();
    let mut rules = PolicyRules::default();
    rules.add_approval("all").unwrap();
    let settings = || TaskSettings {
        system: InstructionTemplate {
            workspace: "/tour",
            system: std::env::consts::OS,
            interactivity: Interactivity::Headless,
        }
        .render_prompt(),
        model: "scripted".to_owned(),
        tools: registry.tool_set().clone(),
        read_only_tools: registry.read_only_tool_names(),
        rules: rules.clone(),
        interactivity: Interactivity::Headless,
        completion: sabir_agent::CompletionConditions::default(),
        polling_tools: registry.polling_tool_names(),
        limits: TaskLimits::default(),
        dialects: sabir_call::dialect::DialectSet::default(),
        repairs: sabir_check::RepairSet::all(),
        recovery: sabir_call::TextRecovery::Ask,
        parallel_calls: sabir_call::ParallelCalls::Many,
        renders_template: false,
        max_output: None,
        prices: sabir_call::TokenPrices::default(),
    };
    let start: TaskStart = serde_json::from_value(cassette.task["start"].clone()).unwrap();
    let (mut task, first) = Task::new(start, settings());
    let (model, _) = HttpModel::from_cassette(cassette).unwrap();
    let cancel = CancelToken::default();
    let mut user = Impatient {
        at,
        seen: 0,
        cancel: cancel.clone(),
        cancelled: None,
    };
    let mut store = Kept::default();
    let driver = TaskDriver {
        model: &model,
        registry: &registry,
        store: &mut store,
        front_end: &mut user,
        observers: Vec::new(),
        cancel,
        max_time: None,
    };
    let (outcome, message) = runtime
        .block_on(driver.run(&mut task, Some(first), None))
        .unwrap();
    let over = user
        .cancelled
        .is_none_or(|_| outcome == TaskOutcome::Completed);
    if !over {
        assert_eq!(outcome, TaskOutcome::Cancelled, "at event {at}: {message}");
        let took = user.cancelled.unwrap().elapsed();
        assert!(took < Duration::from_secs(120), "at event {at}: {took:?}");
        let again = Task::replay(store.0, settings()).unwrap();
        for task in [&task, &again] {
            for pair in task.history().windows(2) {
                let results = |message: &sabir_call::Message| {
                    let result = |part: &sabir_call::MessagePart| {
                        matches!(part, sabir_call::MessagePart::Result(_))
                    };
                    message.parts.iter().filter(|part| result(part)).count()
                };
                assert_eq!(
                    pair[0].calls().count(),
                    results(&pair[1]),
                    "at event {at}: a call has no result"
                );
            }
            let last = task.history().last().unwrap();
            assert_eq!(
                last.calls().count(),
                0,
                "at event {at}: a call has no result"
            );
        }
    }
    user.cancelled.is_some()
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_task_can_be_cancelled_at_any_event() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let cassette = Cassette::parse(include_bytes!("../../src/commands/tour.jsonl")).unwrap();
    let mut at = 0;
    while cancel_at(at, &cassette, &runtime) {
        at += 1;
    }
    assert!(at > 50, "{at} events");
}
