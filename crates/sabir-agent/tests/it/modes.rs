//! Switching modes: which calls a new mode applies to, who may switch, and that a replay has the same mode.

use sabir_agent::{
    ContextChange, DeliveryTime, Interactivity, ModeConfig, ModeHistory, Record, Task, TaskEffect,
    TaskInput, TaskLimits, TaskSettings, UserQuestion, UserReply,
};
use sabir_call::{CallId, Event, TokenPrices, ToolSet};
use sabir_policy::Mode;

use crate::machine::{Machine, settings, start, tools};

const LOOK: &str = "<look>\n<path>a</path>\n</look>\n";
const TOUCH: &str = "<touch>\n<path>a</path>\n</touch>\n";

fn mode(name: &str) -> Mode {
    Mode::built_in_modes()
        .into_iter()
        .find(|mode| mode.name == name)
        .unwrap()
}

fn known_tools() -> ToolSet {
    let all = tools();
    ToolSet::new(
        all.iter()
            .cloned()
            .chain(sabir_agent::control::mode_dependent_specs())
            .collect(),
    )
    .unwrap()
}

/// Returns the modes of a task, each with its own model.
pub(crate) fn mode_configs() -> Vec<ModeConfig> {
    let outfit = |mode: Mode| {
        let (model, prices) = (format!("model of {}", mode.name), TokenPrices::default());
        ModeConfig {
            mode,
            from_repository: false,
            model,
            prices,
            window: Some(1000),
            recovery: sabir_call::TextRecovery::Ask,
            renders_template: false,
            tools: known_tools(),
        }
    };
    Mode::built_in_modes().into_iter().map(outfit).collect()
}

fn attended_settings(name: &str, attended: Interactivity) -> TaskSettings {
    settings_in_mode(name, settings(attended))
}

/// Returns the settings of a task in this mode.
pub(crate) fn settings_in_mode(name: &str, plain: TaskSettings) -> TaskSettings {
    let limits = TaskLimits {
        turns: None,
        ..plain.limits
    };
    TaskSettings {
        rules: plain.rules.clone().with_mode(mode(name)),
        tools: known_tools(),
        limits,
        ..plain
    }
}

fn machine(name: &str, attended: Interactivity) -> Machine {
    let mode = Some(name.to_owned()).filter(|name| name != "code");
    let (task, first) = Task::new(
        sabir_agent::TaskStart { mode, ..start() },
        attended_settings(name, attended),
    );
    let mut machine = Machine {
        task: task.with_modes(mode_configs()),
        records: vec![first],
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    machine
}

fn switch(name: &str) -> String {
    format!("<switch_mode>\n<mode>{name}</mode>\n<reason>why</reason>\n</switch_mode>\n")
}

/// Gives an answer of the model, with the tools of the modes.
fn answer(machine: &mut Machine, text: &str) {
    use sabir_call::dialect::DialectSet;
    use sabir_call::{EventSink, PromptedSink};
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.open.clear();
    let task = &mut machine.task;
    let mut reading = PromptedSink::new(
        DialectSet::built_in().all(),
        &known_tools(),
        |event: Event<'_>| assert!(task.step(TaskInput::ModelEvent(event)).is_empty()),
    );
    reading.push_event(Event::Text { text });
    let _ = reading.finish(sabir_call::Truncation::Ended);
    machine.step(TaskInput::ModelFinished);
}

#[test]
fn calls_before_a_switch_use_the_old_mode_and_later_ones_the_new() {
    let mut machine = machine("code", Interactivity::Headless);
    answer(
        &mut machine,
        &format!("{LOOK}{LOOK}{}{LOOK}{TOUCH}", switch("plan")),
    );
    assert_eq!(
        machine.open.len(),
        2,
        "both reads, and nothing behind them: {:?}",
        machine.open
    );
    assert_eq!(machine.task.model_request().model, "m");
    machine.work(false);
    let results = [
        "look done",
        "look done",
        "switch_mode done",
        "look done",
        "touch denied",
    ];
    assert_eq!(machine.results(), results);
    let request = machine.task.model_request();
    assert_eq!(
        (
            request.model.as_str(),
            machine.task.mode_history().current_mode()
        ),
        ("model of plan", "plan")
    );
    assert_eq!(machine.task.context_usage().window, Some(1000));
    machine.check_history();
}

/// For every prefix of the records, a replayed task and a [`ModeHistory`] agree on the mode.
#[test]
fn a_mode_follows_from_records_alone() {
    let mut machine = machine("plan", Interactivity::Interactive);
    answer(&mut machine, &switch("ask"));
    answer(&mut machine, &switch("architect"));
    machine.reply(UserReply::Yes);
    answer(&mut machine, &switch("code"));
    machine.reply(UserReply::No("no".to_owned()));
    machine.step(TaskInput::SetMode("debug".to_owned()));
    assert_eq!(
        machine.results(),
        ["switch_mode done", "switch_mode done", "switch_mode denied"]
    );
    let mut modes = Vec::new();
    for count in 1..=machine.records.len() {
        let records = &machine.records[..count];
        let trail = ModeHistory::from_records(records);
        let again = Task::replay(
            records.to_vec(),
            attended_settings(trail.current_mode(), Interactivity::Interactive),
        )
        .unwrap()
        .with_modes(mode_configs());
        assert_eq!(again.mode_history().current_mode(), trail.current_mode());
        if modes.last().map(String::as_str) != Some(trail.current_mode()) {
            modes.push(trail.current_mode().to_owned());
        }
    }
    assert_eq!(modes, ["plan", "ask", "docs", "debug"]);
}

#[test]
fn a_switch_by_the_user_reassesses_open_questions() {
    let mut machine = machine("plan", Interactivity::Interactive);
    answer(&mut machine, &format!("{}{TOUCH}", switch("code")));
    let UserQuestion::Approval {
        reason,
        detail,
        proposals,
        ..
    } = machine.question()
    else {
        panic!()
    };
    assert!(
        reason.contains("which can also change files") && detail == "why" && proposals.is_empty(),
        "{reason}"
    );
    // A message approves nothing.
    machine.step(TaskInput::queued("yes, switch"));
    assert_eq!(machine.results(), [""; 0]);
    // The user switches to the mode that the model asked for, so the question is gone.
    machine.step(TaskInput::SetMode("act".to_owned()));
    machine.work(false);
    assert_eq!(machine.results(), ["switch_mode done", "touch done"]);
    machine.step(TaskInput::SetMode("no such mode".to_owned()));
    assert_eq!(machine.task.mode_history().current_mode(), "code");
    machine.check_history();
}

/// While an answer is written, the text of a switch waits, but the new mode applies to the calls of that answer.
#[test]
fn a_switch_while_the_model_writes() {
    let mut machine = machine("code", Interactivity::Headless);
    machine.step(TaskInput::SetMode("plan".to_owned()));
    let Some(Record::Context(ContextChange::Moded { when, .. })) = machine.records.last() else {
        panic!()
    };
    assert_eq!(*when, DeliveryTime::Later);
    assert_eq!(
        machine.task.model_request().model,
        "m",
        "the request is on its way"
    );
    answer(&mut machine, TOUCH);
    machine.work(false);
    assert_eq!(machine.results(), ["touch denied"]);
    assert_eq!(machine.task.model_request().model, "model of plan");
    let last = format!("{:?}", machine.task.history().last());
    assert!(
        last.contains("The user has switched to another mode. The mode is now `plan`"),
        "{last}"
    );
}

#[test]
fn a_switch_to_more_abilities_is_denied_when_the_user_leaves() {
    let mut machine = machine("plan", Interactivity::Interactive);
    answer(&mut machine, &switch("code"));
    machine.question();
    machine.step(TaskInput::UserLeft);
    assert_eq!(
        (
            machine.results(),
            machine.task.mode_history().current_mode()
        ),
        (vec!["switch_mode denied".to_owned()], "plan")
    );
    // A forged result switches nothing.
    let mut trail = machine.task.mode_history().clone();
    let id = CallId::new("forged");
    let (name, ending, content) = (
        "switch_mode".to_owned(),
        sabir_call::ToolResultStatus::Done,
        "code".to_owned(),
    );
    assert!(!trail.apply_record(&Record::Result(sabir_call::CallResult {
        id,
        name,
        ending,
        content,
        images: Vec::new()
    })));
}

#[test]
fn a_task_without_a_mode_list_cannot_switch() {
    let (task, first) = Task::new(start(), attended_settings("plan", Interactivity::Headless));
    let mut machine = Machine {
        task,
        records: vec![first],
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    // Its start names another mode than the one it runs in, so the change is recorded.
    assert!(
        matches!(machine.records.last(), Some(Record::Context(ContextChange::Moded { mode, .. })) if mode == "plan")
    );
    answer(&mut machine, &switch("code"));
    assert_eq!(machine.results(), ["switch_mode failed"]);
}
