//! The request that the model sees: its stable prefix, compaction and its undo, recovery from requests that are too long.

use proptest::prelude::*;
use sabir_agent::{
    CallPermit, CompactionRecord, ContextChange, ContextFragment, FragmentKind, Interactivity,
    Preconditions, Record, RequestContext, SummaryAuthor, Task, TaskEffect, TaskInput, TaskOutcome,
    ToolOutput,
};
use sabir_call::{Event, Message, MessagePart, ModelError, ModelErrorKind, Request, Role, Usage};

use crate::machine::{Machine, settings, start};

const SUMMARY: &str =
    "The files a and b were looked at; b was touched. Nothing else is left to say of it.";
const TODOS: &str = "- [x] look  at `a`\n- [ ] touch <b> & c";

fn fragment(kind: FragmentKind, name: &str, text: &str) -> ContextFragment {
    ContextFragment::with_cap(kind, name, text, text.len() as u64, 4000)
}

fn context(window: Option<u64>) -> RequestContext {
    let fragments = vec![
        fragment(
            FragmentKind::Instructions,
            "AGENTS.md",
            "Use tabs.\nNever push.",
        ),
        fragment(FragmentKind::Place, "the place", "Date: 2026-11-22"),
    ];
    RequestContext {
        fragments,
        window,
        ..RequestContext::default()
    }
}

fn machine(context: RequestContext) -> Machine {
    let (task, first) = Task::new(start(), settings(Interactivity::Headless));
    let mut machine = Machine {
        task: task.with_context(context),
        records: vec![first],
        open: Vec::new(),
    };
    machine.step(TaskInput::Begin);
    machine
}

fn replay_task(records: &[Record], context: RequestContext) -> Option<Task> {
    Task::replay(records.to_vec(), settings(Interactivity::Headless))
        .ok()
        .map(|task| task.with_context(context))
}

/// Answers a request for a summary with this text.
fn summarise(machine: &mut Machine, text: &str) {
    assert!(machine.task.is_summarizing());
    let request = machine.task.model_request();
    assert!(
        request.tools.iter().next().is_none() && request.messages.len() == 1,
        "no tools, one text"
    );
    machine.open.clear();
    machine.step(TaskInput::ModelEvent(Event::Text { text }));
    machine.step(TaskInput::ModelEvent(Event::Usage(Usage {
        input: Some(100),
        output: Some(20),
        ..Usage::default()
    })));
    machine.step(TaskInput::ModelFinished);
}

fn fail(machine: &mut Machine, kind: ModelErrorKind) {
    assert_eq!(machine.open, [TaskEffect::RequestModel]);
    machine.open.clear();
    machine.step(TaskInput::ModelFailed(ModelError {
        kind,
        message: "no".to_owned(),
    }));
}

/// Runs the calls of a turn; each result has this number of bytes.
fn work(machine: &mut Machine, bytes: usize) {
    while let Some(at) = machine
        .open
        .iter()
        .position(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)))
    {
        match machine.open.remove(at) {
            TaskEffect::AssessCall(call) => {
                let access = machine.access(&call);
                machine.step(TaskInput::CallAssessed(
                    call,
                    access,
                    Preconditions::default(),
                ));
            }
            TaskEffect::RunCall(CallPermit { call, .. }) => machine.step(TaskInput::ToolFinished(
                call,
                ToolOutput::done("x".repeat(bytes)),
            )),
            _ => unreachable!(),
        }
    }
}

fn read_call(path: &str) -> String {
    format!("<look>\n<path>{path}</path>\n</look>")
}

fn compactions(machine: &Machine) -> Vec<&CompactionRecord> {
    let shifts = machine.records.iter().filter_map(|record| match record {
        Record::Context(ContextChange::Compacted(compacted)) => Some(compacted.as_ref()),
        _ => None,
    });
    shifts.collect()
}

fn text(message: &Message) -> String {
    message
        .parts
        .iter()
        .filter_map(|part| {
            if let MessagePart::Text { text } = part {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect()
}

/// Checks that in a request every call has one result directly after it, and the roles alternate.
fn check_request(request: &Request) {
    let messages = &request.messages;
    assert_eq!(
        messages.first().map(|message| message.role),
        Some(Role::User)
    );
    assert!(
        text(&messages[0]).starts_with("Do it."),
        "the first words stay"
    );
    for (at, message) in messages.iter().enumerate() {
        let calls: Vec<_> = message.calls().map(|call| call.id.clone()).collect();
        let next = messages.get(at + 1);
        assert!(
            next.is_none_or(|next| next.role != message.role),
            "two messages of one side"
        );
        let results = next
            .into_iter()
            .flat_map(|next| &next.parts)
            .filter_map(|part| match part {
                MessagePart::Result(result) => Some(result.id.clone()),
                _ => None,
            });
        assert_eq!(results.collect::<Vec<_>>(), calls);
    }
    assert!(messages.first().is_some_and(|first| {
        !first
            .parts
            .iter()
            .any(|part| matches!(part, MessagePart::Result(_)))
    }));
}

fn check_nothing_runs_twice(records: &[Record]) {
    let mut begun = std::collections::HashSet::new();
    for record in records {
        if let Record::Running { call, .. } = record {
            assert!(begun.insert(call.clone()), "{call} runs twice");
        }
    }
}

#[test]
fn requests_begin_with_the_one_before_until_a_compaction() {
    let mut machine = machine(context(None));
    assert!(matches!(
        machine.records.last(),
        Some(Record::Context(ContextChange::Begun { .. }))
    ));
    let mut before = machine.task.model_request();
    assert!(
        before
            .system
            .contains("From AGENTS.md:\nUse tabs.\nNever push.\n"),
        "{}",
        before.system
    );
    for turn in 0..20 {
        machine.answer(&read_call(&format!("f{turn}")));
        work(&mut machine, 50);
        let request = machine.task.model_request();
        assert_eq!(request.system, before.system);
        assert_eq!(
            request.messages[..before.messages.len()],
            before.messages[..]
        );
        before = request;
    }
}

#[test]
fn a_resumed_task_keeps_its_system_prompt_and_appends_changed_fragments() {
    let mut machine = machine(context(None));
    machine.answer(&read_call("a"));
    work(&mut machine, 10);
    let before = machine.task.model_request();
    machine.step(TaskInput::Cancel);

    let mut same = replay_task(&machine.records, context(None)).unwrap();
    assert_eq!(
        same.step(TaskInput::Begin),
        [TaskEffect::RequestModel],
        "nothing changed, nothing is said"
    );
    assert_eq!(
        (same.model_request().system, same.model_request().messages),
        (before.system.clone(), before.messages.clone())
    );

    let mut other = context(None);
    other.fragments[0] = fragment(FragmentKind::Instructions, "AGENTS.md", "Use spaces.");
    let mut changed = replay_task(&machine.records, other.clone()).unwrap();
    let effects = changed.step(TaskInput::Begin);
    let [TaskEffect::PersistRecord(record), TaskEffect::RequestModel] = effects.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(
        changed.model_request().system,
        before.system,
        "the beginning stays"
    );
    assert!(
        text(changed.model_request().messages.last().unwrap())
            .contains("From AGENTS.md:\nUse spaces.\n")
    );
    let records = [machine.records.as_slice(), std::slice::from_ref(record)].concat();
    let mut again = replay_task(&records, other).unwrap();
    assert_eq!(
        again.step(TaskInput::Begin),
        [TaskEffect::RequestModel],
        "it is told once"
    );
}

#[test]
fn three_hundred_turns_cross_the_limit_five_times() {
    let known = context(Some(9000));
    let mut machine = machine(known.clone());
    let list = format!("<update_todo_list>\n<todos>\n{TODOS}\n</todos>\n</update_todo_list>");
    machine.answer(&list);
    let (mut whole, mut listed) = (machine.task.model_request().messages.to_vec(), 0);
    for turn in 0..300 {
        if machine.task.is_summarizing() {
            whole = machine.task.history().to_vec();
            // The model fails to summarise once in three times.
            let is_of_help = compactions(&machine).len() % 3 != 2;
            summarise(&mut machine, if is_of_help { SUMMARY } else { "" });
        }
        let request = machine.task.model_request();
        check_request(&request);
        assert!(
            request.system.contains("Use tabs.\nNever push."),
            "instructions stay"
        );
        let said: String = request.messages.iter().map(text).collect();
        let written = request
            .messages
            .iter()
            .flat_map(Message::calls)
            .any(|call| call.name == "update_todo_list");
        assert!(written || said.contains(TODOS), "todos stay, byte for byte");
        listed += usize::from(!written);
        let name = if turn % 3 == 0 { "touch" } else { "look" };
        machine.answer(&format!("<{name}>\n<path>f{turn}</path>\n</{name}>"));
        work(&mut machine, 600);
        if turn % 9 == 0
            && let Some(again) = replay_task(&machine.records, known.clone())
            && !machine.task.is_summarizing()
        {
            assert_eq!(
                again.model_request().messages,
                machine.task.model_request().messages,
                "turn {turn}"
            );
            assert_eq!(again.totals(), machine.task.totals());
        }
    }
    machine.check_history();
    check_nothing_runs_twice(&machine.records);
    let all = compactions(&machine);
    assert!(all.len() >= 5 && listed > 100, "{} compactions", all.len());
    assert!(
        all.iter().all(|one| one.after < one.before * 6 / 10),
        "they make room"
    );
    assert!(
        all.iter().any(|one| one.by == SummaryAuthor::Sabir)
            && all.iter().any(|one| one.by == SummaryAuthor::Model)
    );
    assert!(machine.task.model_request().messages.len() < machine.task.history().len() / 4);

    // Undoing one compaction after the other restores the exact history.
    let count = all.len();
    machine.step(TaskInput::Cancel);
    let mut resumed = replay_task(&machine.records, known.clone()).unwrap();
    let mut records = machine.records.clone();
    for _ in 0..count {
        for effect in resumed.step(TaskInput::UndoCompaction) {
            let TaskEffect::PersistRecord(record) = effect else {
                panic!("{effect:?}")
            };
            records.push(record);
        }
    }
    assert_eq!(
        resumed.model_request().messages.to_vec(),
        machine.task.history()
    );
    assert_eq!(resumed.model_request().messages[..whole.len()], whole[..]);
    assert!(
        resumed.step(TaskInput::UndoCompaction).is_empty(),
        "there is nothing more to go back on"
    );
    let again = replay_task(&records, known).unwrap();
    assert_eq!(
        again.model_request().messages,
        resumed.model_request().messages
    );
}

#[test]
fn every_journal_prefix_replays_to_the_same_request() {
    let known = context(Some(3000));
    let mut machine = machine(known.clone());
    let mut seen = Vec::new();
    for turn in 0..30 {
        if machine.task.is_summarizing() {
            summarise(&mut machine, SUMMARY);
        }
        seen.push((
            machine.records.len(),
            machine.task.model_request().messages.to_vec(),
        ));
        machine.answer(&read_call(&format!("f{turn}")));
        work(&mut machine, 700);
    }
    assert!(compactions(&machine).len() >= 2);
    for (records, messages) in seen {
        let task = replay_task(&machine.records[..records], known.clone()).unwrap();
        assert_eq!(task.model_request().messages, messages, "{records} records");
    }
}

#[test]
fn a_too_long_request_is_shortened_a_bounded_number_of_times() {
    let mut machine = machine(context(None));
    for turn in 0..12 {
        machine.answer(&read_call(&format!("f{turn}")));
        work(&mut machine, 2000);
    }
    let mut asked = vec![machine.task.model_request().messages.to_vec()];
    for recovery in 0..3 {
        fail(&mut machine, ModelErrorKind::TooLong);
        if machine.task.is_summarizing() {
            assert_eq!(recovery, 0, "a model is asked for a summary once");
            fail(&mut machine, ModelErrorKind::TooLong);
        }
        let request = machine.task.model_request();
        check_request(&request);
        assert!(
            !asked.contains(&request.messages.to_vec()),
            "no request is asked twice"
        );
        asked.push(request.messages.to_vec());
    }
    assert_eq!(
        asked.last().map(Vec::len),
        Some(1),
        "in the end nothing but the head"
    );
    fail(&mut machine, ModelErrorKind::TooLong);
    assert_eq!(machine.ended(), Some(TaskOutcome::ProviderFailed));
    machine.check_history();

    // If the provider accepts the request later, the task continues.
    let mut resumed = replay_task(&machine.records, context(None)).unwrap();
    assert_eq!(resumed.step(TaskInput::Begin), [TaskEffect::RequestModel]);
    assert_eq!(resumed.history().len(), 25, "the history is whole");
}

#[test]
fn the_first_request_that_is_too_long_ends_the_task() {
    let mut machine = machine(context(None));
    fail(&mut machine, ModelErrorKind::TooLong);
    assert_eq!(
        machine.ended(),
        Some(TaskOutcome::ProviderFailed),
        "there is nothing to leave out"
    );
}

#[test]
fn user_messages_are_kept_by_a_compaction_and_its_undo() {
    let known = context(None);
    let mut machine = machine(known.clone());
    for turn in 0..4 {
        machine.answer(&read_call(&format!("f{turn}")));
        work(&mut machine, 900);
        machine.step(TaskInput::Cancel);
        machine.task = replay_task(&machine.records, known.clone()).unwrap();
        machine.open.clear();
        if turn == 2 {
            assert!(
                machine
                    .task
                    .preview_compaction()
                    .is_some_and(|preview| preview.after < preview.before)
            );
            machine.step(TaskInput::Compact(SummaryAuthor::Sabir));
            assert!(
                machine.open.is_empty(),
                "a task that is only looked at does not go on"
            );
        }
        machine.step(TaskInput::queued(format!("word {turn} & <more>")));
    }
    let request = machine.task.model_request();
    check_request(&request);
    let said: String = request.messages.iter().map(text).collect();
    for turn in 0..4 {
        assert_eq!(
            said.matches(&format!("word {turn} & <more>")).count(),
            1,
            "{said}"
        );
    }
    machine.step(TaskInput::Cancel);
    let mut resumed = replay_task(&machine.records, known).unwrap();
    resumed.step(TaskInput::UndoCompaction);
    assert_eq!(
        resumed.model_request().messages,
        machine.task.history().to_vec()
    );
}

#[test]
fn a_summary_is_charged_and_an_undone_compaction_is_not_repeated() {
    let known = context(Some(2000));
    let mut machine = machine(known.clone());
    while !machine.task.is_summarizing() {
        machine.answer(&read_call("a"));
        work(&mut machine, 900);
    }
    let before = machine.task.totals().usage;
    summarise(&mut machine, SUMMARY);
    assert_eq!(
        machine.task.totals().usage.input.unwrap() - before.input.unwrap_or(0),
        100
    );
    machine.step(TaskInput::Cancel);
    machine.task = replay_task(&machine.records, known).unwrap();
    machine.open.clear();
    machine.step(TaskInput::UndoCompaction);
    machine.step(TaskInput::Begin);
    assert!(!machine.task.is_summarizing() && machine.open == [TaskEffect::RequestModel]);
    assert_eq!(
        machine.task.model_request().messages,
        machine.task.history().to_vec()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(50), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_every_request_each_call_has_one_result(
        steps in proptest::collection::vec((0usize..7, 0usize..1500), 1..60),
        window in proptest::option::of(500u64..4000),
    ) {
        let known = context(window);
        let mut machine = machine(known.clone());
        for (step, bytes) in steps {
            if machine.open != [TaskEffect::RequestModel] {
                break;
            }
            match (machine.task.is_summarizing(), step) {
                (true, 0) => summarise(&mut machine, ""),
                (true, 1) => fail(&mut machine, ModelErrorKind::Unavailable),
                (true, _) => summarise(&mut machine, SUMMARY),
                (false, 0) => machine.answer("words only"),
                (false, 1) => fail(&mut machine, ModelErrorKind::TooLong),
                (false, 2) => machine.answer("<look><path>a</path></look><look><path>b</path></look><touch><path>c</path></touch>"),
                (false, 3) => machine.answer("<touch><colour>a</colour></touch>"),
                (false, 4) => {
                    let Some(again) = replay_task(&machine.records, known.clone()) else { break };
                    machine.task = again;
                    machine.open.clear();
                    machine.step(if bytes % 2 == 0 { TaskInput::UndoCompaction } else { TaskInput::Compact(SummaryAuthor::Sabir) });
                    machine.step(TaskInput::queued(format!("said {bytes}")));
                }
                _ => machine.answer(&read_call("a")),
            }
            work(&mut machine, bytes);
            machine.check_history();
            check_nothing_runs_twice(&machine.records);
            if machine.open == [TaskEffect::RequestModel] && !machine.task.is_summarizing() {
                check_request(&machine.task.model_request());
                let again = replay_task(&machine.records, known.clone()).unwrap();
                prop_assert_eq!(again.model_request().messages, machine.task.model_request().messages);
                prop_assert_eq!(again.model_request().system, machine.task.model_request().system);
            }
        }
    }
}
