//! Measures a turn early and late in a task: from the request to the result that closes the turn, without a model, tools
//! or a disk. The time must not grow with the number of turns before it.

use std::time::{Duration, Instant};

use divan::Bencher;
use sabir_agent::{
    CallPermit, CompletionConditions, Interactivity, Preconditions, Task, TaskEffect, TaskId,
    TaskInput, TaskLimits, TaskSettings, TaskStart, ToolOutput, control,
};
use sabir_call::{ArgumentEncoding, Event, TokenPrices, ToolProtocol, ToolSet, ToolSpec};
use sabir_policy::{Access, PolicyRules};
use serde_json::json;

/// The turns before the one that is measured.
const TURNS: [u32; 4] = [10, 100, 500, 2000];
/// As long as a page of a file.
const RESULT_BYTES: usize = 4096;

fn main() {
    percentiles();
    divan::main();
}

/// The median and the slowest of a hundred turns from each of these turns on.
fn percentiles() {
    for turns in TURNS {
        let mut task = after(turns);
        let mut times: Vec<Duration> = (0..100)
            .map(|at| timed(|| turn(&mut task, turns + at)))
            .collect();
        times.sort_unstable();
        let (median, most) = (
            times.get(50).copied().unwrap_or_default(),
            times.last().copied().unwrap_or_default(),
        );
        let report = format!("turn {turns:>4}: median {median:>10.1?}, slowest {most:>10.1?}\n");
        std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes()).unwrap_or_default();
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn task() -> Task {
    let schema =
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let specs = std::iter::once(ToolSpec::new("look", "Looks.", schema))
        .chain(control::control_specs())
        .collect();
    let settings = TaskSettings {
        system: "You look at things.".to_owned(),
        model: "m".to_owned(),
        tools: ToolSet::new(specs).unwrap_or_default(),
        read_only_tools: vec!["look".to_owned()],
        polling_tools: Vec::new(),
        rules: PolicyRules::default(),
        interactivity: Interactivity::Headless,
        limits: TaskLimits::default(),
        completion: CompletionConditions::default(),
        dialects: sabir_call::dialect::DialectSet::default(),
        repairs: sabir_check::RepairSet::all(),
        recovery: sabir_call::TextRecovery::Ask,
        parallel_calls: sabir_call::ParallelCalls::Many,
        renders_template: false,
        max_output: None,
        prices: TokenPrices::default(),
    };
    let [prompt, workspace, model, version] = ["Look.", "/w", "m", "1"].map(str::to_owned);
    let (task, protocol, edit_tool, mode) = (TaskId::new("t"), ToolProtocol::Native, None, None);
    let start = TaskStart {
        task,
        prompt,
        workspace,
        model,
        protocol,
        version,
        edit_tool,
        mode,
        from: None,
    };
    let (mut task, _) = Task::new(start, settings);
    task.step(TaskInput::Begin);
    task
}

/// One request, an answer with a call, and its result; without usage, so that the request is estimated too.
fn turn(task: &mut Task, number: u32) {
    let path = format!("src/{number}.rs");
    divan::black_box(task.model_request());
    for event in [
        Event::Text {
            text: "I look at the next file.",
        },
        Event::CallStart {
            index: 0,
            id: None,
            name: "look",
            dialect: None,
            at: 0,
            name_at: 0,
        },
        Event::ArgStart {
            index: 0,
            name: "path",
            form: ArgumentEncoding::String,
            at: 0,
        },
        Event::ArgDelta {
            index: 0,
            text: &path,
        },
        Event::ArgEnd {
            index: 0,
            lead: "",
            at: 0,
        },
        Event::CallEnd { index: 0, at: 0 },
    ] {
        task.step(TaskInput::ModelEvent(event));
    }
    let mut effects = task.step(TaskInput::ModelFinished);
    while let Some(effect) = effects.pop() {
        match effect {
            TaskEffect::AssessCall(call) => {
                let access = Access::Read {
                    path: path.clone(),
                    outside: false,
                };
                effects.extend(task.step(TaskInput::CallAssessed(
                    call,
                    access,
                    Preconditions::default(),
                )));
            }
            TaskEffect::RunCall(CallPermit { call, .. }) => {
                let content = format!("{number}{}", "x".repeat(RESULT_BYTES));
                effects.extend(task.step(TaskInput::ToolFinished(call, ToolOutput::done(content))));
            }
            _ => {}
        }
    }
}

/// Builds a task after this number of turns.
fn after(turns: u32) -> Task {
    let mut task = task();
    (0..turns).for_each(|number| turn(&mut task, number));
    task
}

#[divan::bench(args = TURNS)]
fn one_turn_after(bencher: Bencher<'_, '_>, turns: u32) {
    let mut task = after(turns);
    let mut number = turns;
    bencher.bench_local(|| {
        number += 1;
        turn(&mut task, number);
    });
}
