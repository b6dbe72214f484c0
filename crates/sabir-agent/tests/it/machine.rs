//! A task without a driver: inputs are given by hand, and all effects are recorded.

use sabir_agent::{
    AssistantTurn, CallPermit, CompletionConditions, Interactivity, Preconditions, Record, Task,
    TaskEffect, TaskId, TaskInput, TaskLimits, TaskOutcome, TaskSettings, TaskStart, ToolOutput,
    UserQuestion, UserReply, control,
};
use sabir_call::dialect::{CLINE, DialectSet};
use sabir_call::{
    CallId, CallResult, Event, EventSink, MessagePart, ModelError, ModelErrorKind, PromptedSink,
    Role, TokenPrices, ToolProtocol, ToolSet, ToolSpec,
};
use sabir_policy::{Access, PolicyRules};
use serde_json::json;

/// Returns three tools: `look` reads, `touch` writes, `new_task` begins a subtask.
pub(crate) fn tools() -> ToolSet {
    let schema =
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
    let mut specs = vec![
        ToolSpec::new("look", "", schema.clone()),
        ToolSpec::new("touch", "", schema),
    ];
    specs.push(control::subtask_spec());
    specs.extend(control::control_specs());
    ToolSet::new(specs).unwrap()
}

pub(crate) fn settings(attended: Interactivity) -> TaskSettings {
    let mut rules = PolicyRules::default();
    rules.add_approval("edits").unwrap();
    TaskSettings {
        system: String::new(),
        model: "m".to_owned(),
        tools: tools(),
        read_only_tools: vec!["look".to_owned()],
        polling_tools: Vec::new(),
        rules,
        interactivity: attended,
        limits: TaskLimits::default(),
        completion: CompletionConditions::default(),
        dialects: sabir_call::dialect::DialectSet::default(),
        repairs: sabir_check::RepairSet::all(),
        recovery: sabir_call::TextRecovery::Ask,
        parallel_calls: sabir_call::ParallelCalls::Many,
        renders_template: false,
        max_output: None,
        prices: TokenPrices::default(),
    }
}

pub(crate) fn start() -> TaskStart {
    TaskStart {
        task: TaskId::new("t1"),
        prompt: "Do it.".to_owned(),
        workspace: "/w".to_owned(),
        model: "m".to_owned(),
        protocol: ToolProtocol::Prompted(CLINE.to_owned()),
        version: "0".to_owned(),
        edit_tool: None,
        mode: None,
        from: None,
    }
}

/// A task with all effects that it has requested so far.
pub(crate) struct Machine {
    pub(crate) task: Task,
    pub(crate) records: Vec<Record>,
    /// The requested effects that have not been executed, in order.
    pub(crate) open: Vec<TaskEffect>,
}

impl Machine {
    pub(crate) fn new(settings: TaskSettings) -> Self {
        let (task, first) = Task::new(start(), settings);
        let mut machine = Self {
            task,
            records: vec![first],
            open: Vec::new(),
        };
        machine.step(TaskInput::Begin);
        machine
    }

    pub(crate) fn step(&mut self, input: TaskInput<'_>) {
        for effect in self.task.step(input) {
            match effect {
                TaskEffect::PersistRecord(record) => self.records.push(record),
                TaskEffect::StopAll => self.open.clear(),
                TaskEffect::WithdrawQuestion => self
                    .open
                    .retain(|effect| !matches!(effect, TaskEffect::AskUser(_))),
                TaskEffect::RequestModel => {
                    // No call is open any more: the assessment was given up.
                    self.open
                        .retain(|effect| !matches!(effect, TaskEffect::AssessCall(_)));
                    self.open.push(TaskEffect::RequestModel);
                }
                other => self.open.push(other),
            }
        }
    }

    /// Streams a message of the model in the cline dialect.
    pub(crate) fn answer(&mut self, text: &str) {
        assert_eq!(self.open, [TaskEffect::RequestModel]);
        self.open.clear();
        self.stream(text);
        self.step(TaskInput::ModelFinished);
    }

    pub(crate) fn stream(&mut self, text: &str) {
        let task = &mut self.task;
        let mut reading = PromptedSink::new(
            DialectSet::built_in().all(),
            &tools(),
            |event: Event<'_>| assert!(task.step(TaskInput::ModelEvent(event)).is_empty()),
        );
        reading.push_event(Event::Text { text });
        let _ = reading.finish(sabir_call::Truncation::Ended);
    }

    pub(crate) fn break_off(&mut self) {
        assert_eq!(self.open, [TaskEffect::RequestModel]);
        self.open.clear();
        self.step(TaskInput::ModelFailed(ModelError {
            kind: ModelErrorKind::Broken,
            message: "lost".to_owned(),
        }));
    }

    /// Assesses and runs all requested calls, with the given output of each tool; reading is inside the workspace.
    pub(crate) fn work(&mut self, failed: bool) {
        while let Some(at) = self
            .open
            .iter()
            .position(|effect| matches!(effect, TaskEffect::AssessCall(_) | TaskEffect::RunCall(_)))
        {
            match self.open.remove(at) {
                TaskEffect::AssessCall(call) => {
                    let access = self.access(&call);
                    self.step(TaskInput::CallAssessed(
                        call,
                        access,
                        Preconditions::default(),
                    ));
                }
                TaskEffect::RunCall(CallPermit { call, .. }) => {
                    let output = if failed {
                        ToolOutput::failed("no")
                    } else {
                        ToolOutput::done("yes")
                    };
                    self.step(TaskInput::ToolFinished(call, output));
                }
                _ => unreachable!(),
            }
        }
    }

    pub(crate) fn access(&self, call: &CallId) -> Access {
        let path = "a".to_owned();
        match self.task.open_call(call).unwrap().name.as_str() {
            "look" => Access::Read {
                path,
                outside: false,
            },
            _ => Access::Write {
                path,
                protected: None,
            },
        }
    }

    pub(crate) fn question(&mut self) -> UserQuestion {
        let at = self
            .open
            .iter()
            .position(|effect| matches!(effect, TaskEffect::AskUser(_)))
            .expect("a question");
        let TaskEffect::AskUser(question) = self.open.remove(at) else {
            unreachable!()
        };
        question
    }

    pub(crate) fn reply(&mut self, reply: UserReply) {
        self.question();
        self.step(TaskInput::UserReplied(reply));
    }

    pub(crate) fn ended(&self) -> Option<TaskOutcome> {
        self.open.iter().find_map(|effect| match effect {
            TaskEffect::Finish(outcome, _) => Some(*outcome),
            _ => None,
        })
    }

    /// Returns the results so far, as `name ending`.
    pub(crate) fn results(&self) -> Vec<String> {
        let results = self.records.iter().filter_map(|record| match record {
            Record::Result(CallResult { name, ending, .. }) => {
                Some(format!("{name} {ending:?}").to_lowercase())
            }
            _ => None,
        });
        results.collect()
    }

    pub(crate) fn last_answer(&self) -> &AssistantTurn {
        let mut answers = self.records.iter().rev();
        answers
            .find_map(|record| {
                if let Record::Answered(answered) = record {
                    Some(answered)
                } else {
                    None
                }
            })
            .unwrap()
    }

    /// Checks that in the history every call has exactly one result, in call order, in the very next message.
    pub(crate) fn check_history(&self) {
        let history = self.task.history();
        for (at, message) in history.iter().enumerate() {
            let calls: Vec<_> = message.calls().map(|call| &call.id).collect();
            if at > 0 {
                assert_ne!(
                    history[at - 1].role,
                    message.role,
                    "two messages of one side"
                );
            }
            if message.role == Role::User {
                let results = message
                    .parts
                    .iter()
                    .filter(|part| matches!(part, MessagePart::Result(_)))
                    .count();
                let asked = if at == 0 {
                    0
                } else {
                    history[at - 1].calls().count()
                };
                assert_eq!(results, asked, "results without calls");
            }
            if !calls.is_empty() {
                let next = &history[at + 1];
                let results = next.parts.iter().filter_map(|part| match part {
                    MessagePart::Result(result) => Some(&result.id),
                    _ => None,
                });
                assert_eq!(results.collect::<Vec<_>>(), calls);
            }
        }
    }
}
