//! A machine on a bench: inputs by hand, everything that it asked for written down.

use sabir_agent::{
    Answered, Attended, Bound, Conditions, Effect, Input, Limits, Outcome, Permit, Question, Record, Reply, Settings,
    Start, Task, TaskId, ToolOutput, control,
};
use sabir_call::dialect::{CLINE, Selection};
use sabir_call::{
    CallId, CallResult, Event, ModelError, ModelErrorKind, Part, Prices, Prompted, Protocol, Role, Sink, ToolSet,
    ToolSpec,
};
use sabir_policy::{Access, Rules};
use serde_json::json;

/// Three tools: `look` reads, `touch` writes, `new_task` hands on.
pub(crate) fn tools() -> ToolSet {
    let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let mut specs = vec![ToolSpec::new("look", "", schema.clone()), ToolSpec::new("touch", "", schema)];
    specs.push(control::subtask_spec());
    specs.extend(control::specs());
    ToolSet::new(specs).unwrap()
}

pub(crate) fn settings(attended: Attended) -> Settings {
    let mut rules = Rules::default();
    rules.approve("edits").unwrap();
    Settings {
        system: String::new(),
        model: "m".to_owned(),
        tools: tools(),
        readers: vec!["look".to_owned()],
        pollers: Vec::new(),
        rules,
        attended,
        limits: Limits::default(),
        completion: Conditions::default(),
        repairs: sabir_check::Repairs::all(),
        max_output: None,
        prices: Prices::default(),
    }
}

pub(crate) fn start() -> Start {
    Start {
        task: TaskId::new("t1"),
        prompt: "Do it.".to_owned(),
        workspace: "/w".to_owned(),
        model: "m".to_owned(),
        protocol: Protocol::Prompted(CLINE.to_owned()),
        version: "0".to_owned(),
        edit_tool: None,
        mode: None,
        from: None,
    }
}

/// A task with everything that it asked for so far.
pub(crate) struct Machine {
    pub(crate) task: Task,
    pub(crate) records: Vec<Record>,
    /// What it asked for that has not been done, in order.
    pub(crate) open: Vec<Effect>,
}

impl Machine {
    pub(crate) fn new(settings: Settings) -> Self {
        let (task, first) = Task::new(start(), settings);
        let mut machine = Self { task, records: vec![first], open: Vec::new() };
        machine.step(Input::Begin);
        machine
    }

    pub(crate) fn step(&mut self, input: Input<'_>) {
        for effect in self.task.step(input) {
            match effect {
                Effect::Keep(record) => self.records.push(record),
                Effect::Stop => self.open.clear(),
                Effect::Withdraw => self.open.retain(|effect| !matches!(effect, Effect::Question(_))),
                Effect::Ask => {
                    // No call is open any more: what was to be weighed has been given up.
                    self.open.retain(|effect| !matches!(effect, Effect::Weigh(_)));
                    self.open.push(Effect::Ask);
                }
                other => self.open.push(other),
            }
        }
    }

    /// The model writes a message in the cline dialect.
    pub(crate) fn answer(&mut self, text: &str) {
        assert_eq!(self.open, [Effect::Ask]);
        self.open.clear();
        self.stream(text);
        self.step(Input::Answered);
    }

    pub(crate) fn stream(&mut self, text: &str) {
        let task = &mut self.task;
        let mut reading = Prompted::new(Selection::AUTO, &tools(), |event: Event<'_>| {
            assert!(task.step(Input::Event(event)).is_empty())
        });
        reading.event(Event::Text { text });
        let _ = reading.finish(sabir_call::Cut::Ended);
    }

    pub(crate) fn break_off(&mut self) {
        assert_eq!(self.open, [Effect::Ask]);
        self.open.clear();
        self.step(Input::Failed(ModelError { kind: ModelErrorKind::Broken, message: "lost".to_owned() }));
    }

    /// Weighs and runs everything that is asked for, with the given output of each tool; reading is inside the workspace.
    pub(crate) fn work(&mut self, failed: bool) {
        while let Some(at) = self.open.iter().position(|effect| matches!(effect, Effect::Weigh(_) | Effect::Run(_))) {
            match self.open.remove(at) {
                Effect::Weigh(call) => {
                    let access = self.access(&call);
                    self.step(Input::Weighed(call, access, Bound::default()));
                }
                Effect::Run(Permit { call, .. }) => {
                    let output = if failed { ToolOutput::failed("no") } else { ToolOutput::done("yes") };
                    self.step(Input::Ran(call, output));
                }
                _ => unreachable!(),
            }
        }
    }

    pub(crate) fn access(&self, call: &CallId) -> Access {
        let path = "a".to_owned();
        match self.task.call(call).unwrap().name.as_str() {
            "look" => Access::Read { path, outside: false },
            _ => Access::Write { path, protected: None },
        }
    }

    pub(crate) fn question(&mut self) -> Question {
        let at = self.open.iter().position(|effect| matches!(effect, Effect::Question(_))).expect("a question");
        let Effect::Question(question) = self.open.remove(at) else { unreachable!() };
        question
    }

    pub(crate) fn reply(&mut self, reply: Reply) {
        self.question();
        self.step(Input::Replied(reply));
    }

    pub(crate) fn ended(&self) -> Option<Outcome> {
        self.open.iter().find_map(|effect| match effect {
            Effect::Finish(outcome, _) => Some(*outcome),
            _ => None,
        })
    }

    /// The results so far, as `name ending`.
    pub(crate) fn results(&self) -> Vec<String> {
        let results = self.records.iter().filter_map(|record| match record {
            Record::Result(CallResult { name, ending, .. }) => Some(format!("{name} {ending:?}").to_lowercase()),
            _ => None,
        });
        results.collect()
    }

    pub(crate) fn last_answer(&self) -> &Answered {
        let mut answers = self.records.iter().rev();
        answers.find_map(|record| if let Record::Answered(answered) = record { Some(answered) } else { None }).unwrap()
    }

    /// Law 7: in the history every call has exactly one result, in call order, in the very next message.
    pub(crate) fn check_history(&self) {
        let history = self.task.history();
        for (at, message) in history.iter().enumerate() {
            let calls: Vec<_> = message.calls().map(|call| &call.id).collect();
            if at > 0 {
                assert_ne!(history[at - 1].role, message.role, "two messages of one side");
            }
            if message.role == Role::User {
                let results = message.parts.iter().filter(|part| matches!(part, Part::Result(_))).count();
                let asked = if at == 0 { 0 } else { history[at - 1].calls().count() };
                assert_eq!(results, asked, "results without calls");
            }
            if !calls.is_empty() {
                let next = &history[at + 1];
                let results = next.parts.iter().filter_map(|part| match part {
                    Part::Result(result) => Some(&result.id),
                    _ => None,
                });
                assert_eq!(results.collect::<Vec<_>>(), calls);
            }
        }
    }
}
