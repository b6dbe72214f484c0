//! What a turn costs the machine, early and late in a task: from the request to the result that closes the turn, without a model, tools
//! or a disk. It must not grow with the number of turns before it.

use std::time::{Duration, Instant};

use divan::Bencher;
use sabir_agent::{
    Attended, Bound, Conditions, Effect, Input, Limits, Permit, Settings, Start, Task, TaskId, ToolOutput, control,
};
use sabir_call::{ArgForm, Event, Prices, Protocol, ToolSet, ToolSpec};
use sabir_policy::{Access, Rules};
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
        let mut times: Vec<Duration> = (0..100).map(|at| timed(|| turn(&mut task, turns + at))).collect();
        times.sort_unstable();
        let (median, most) = (times.get(50).copied().unwrap_or_default(), times.last().copied().unwrap_or_default());
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
    let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let specs = std::iter::once(ToolSpec::new("look", "Looks.", schema)).chain(control::specs()).collect();
    let settings = Settings {
        system: "You look at things.".to_owned(),
        model: "m".to_owned(),
        tools: ToolSet::new(specs).unwrap_or_default(),
        readers: vec!["look".to_owned()],
        pollers: Vec::new(),
        rules: Rules::default(),
        attended: Attended::No,
        limits: Limits::default(),
        completion: Conditions::default(),
        repairs: sabir_check::Repairs::all(),
        max_output: None,
        prices: Prices::default(),
    };
    let [prompt, workspace, model, version] = ["Look.", "/w", "m", "1"].map(str::to_owned);
    let (task, protocol, edit_tool, mode) = (TaskId::new("t"), Protocol::Native, None, None);
    let start = Start { task, prompt, workspace, model, protocol, version, edit_tool, mode, from: None };
    let (mut task, _) = Task::new(start, settings);
    task.step(Input::Begin);
    task
}

/// One request, an answer with a call, and its result; without usage, so that the request is estimated too.
fn turn(task: &mut Task, number: u32) {
    let path = format!("src/{number}.rs");
    divan::black_box(task.request());
    for event in [
        Event::Text { text: "I look at the next file." },
        Event::CallStart { index: 0, id: None, name: "look", dialect: None, at: 0, name_at: 0 },
        Event::ArgStart { index: 0, name: "path", form: ArgForm::String, at: 0 },
        Event::ArgDelta { index: 0, text: &path },
        Event::ArgEnd { index: 0, lead: "", at: 0 },
        Event::CallEnd { index: 0, at: 0 },
    ] {
        task.step(Input::Event(event));
    }
    let mut effects = task.step(Input::Answered);
    while let Some(effect) = effects.pop() {
        match effect {
            Effect::Weigh(call) => {
                let access = Access::Read { path: path.clone(), outside: false };
                effects.extend(task.step(Input::Weighed(call, access, Bound::default())));
            }
            Effect::Run(Permit { call, .. }) => {
                let content = format!("{number}{}", "x".repeat(RESULT_BYTES));
                effects.extend(task.step(Input::Ran(call, ToolOutput::done(content))));
            }
            _ => {}
        }
    }
}

/// A task of so many turns.
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
