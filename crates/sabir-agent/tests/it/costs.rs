//! The cost of a task: per answer, in total, across a resume, and at its limit.

use sabir_agent::{
    CallPermit, Interactivity, Preconditions, Record, Task, TaskEffect, TaskInput, TaskOutcome,
    TaskSettings, ToolOutput,
};
use sabir_call::{Event, Image, ModelError, ModelErrorKind, TokenPrices, Usage};
use serde_json::{Value, json};

use crate::machine::{Machine, settings};

fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
    Usage {
        input,
        output,
        ..Usage::default()
    }
}

/// Returns settings with prices of one dollar per million input tokens and ten per million output tokens.
fn priced() -> TaskSettings {
    let prices = TokenPrices {
        input: "1".parse().ok(),
        output: "10".parse().ok(),
        ..TokenPrices::default()
    };
    TaskSettings {
        prices,
        ..settings(Interactivity::Headless)
    }
}

fn limited(limit: &str) -> TaskSettings {
    let mut settings = priced();
    settings.limits.cost = limit.parse().ok();
    settings.limits.reminders = 99;
    settings
}

/// Gives an answer of text alone, with the usage that the provider reports.
fn answer(machine: &mut Machine, usage: Usage) {
    machine
        .open
        .retain(|effect| *effect != TaskEffect::RequestModel);
    machine.step(TaskInput::ModelEvent(Event::Usage(usage)));
    machine.step(TaskInput::ModelEvent(Event::Text { text: "Eight by" }));
    machine.step(TaskInput::ModelFinished);
}

fn totals(machine: &Machine) -> Value {
    let totals = machine.task.totals();
    json!({"usage": totals.usage, "estimate": totals.estimate, "cost": totals.cost})
}

#[test]
fn costs_add_up_and_survive_a_replay() {
    let mut machine = Machine::new(priced());
    answer(&mut machine, usage(Some(1000), Some(100)));
    answer(&mut machine, usage(Some(2000), Some(10)));
    let expected = json!({"usage": {"input": 3000, "output": 110}, "estimate": {}, "cost": {"nano_usd": 4_100_000}});
    assert_eq!(totals(&machine), expected);
    assert_eq!(
        serde_json::to_value(machine.last_answer()).unwrap()["cost"],
        json!({"nano_usd": 2_100_000})
    );
    // Changed prices do not change the cost of earlier answers.
    let task = Task::replay(machine.records.clone(), settings(Interactivity::Headless)).unwrap();
    let replayed = Machine {
        task,
        records: Vec::new(),
        open: Vec::new(),
    };
    assert_eq!(totals(&replayed), expected);
}

#[test]
fn unreported_usage_is_estimated_and_marked() {
    let mut machine = Machine::new(priced());
    answer(&mut machine, usage(None, None));
    let record = serde_json::to_value(machine.last_answer()).unwrap();
    // Eight bytes of words are two tokens.
    assert_eq!(
        (&record["usage"], &record["estimate"]["output"]),
        (&json!({}), &json!(2))
    );
    let input = record["estimate"]["input"].as_u64().unwrap();
    assert!((10..1000).contains(&input), "{input}");
    assert_eq!(
        record["cost"],
        json!({"nano_usd": input * 1000 + 20_000, "estimated": true})
    );
    answer(&mut machine, usage(Some(50), None));
    let second = serde_json::to_value(machine.last_answer()).unwrap();
    assert_eq!(
        (&second["usage"], &second["estimate"]),
        (&json!({"input": 50}), &json!({"output": 2}))
    );
    // A zero is not a valid count for a request or an answer with text.
    answer(&mut machine, usage(Some(0), Some(0)));
    let third = serde_json::to_value(machine.last_answer()).unwrap();
    assert_eq!(third["estimate"]["output"], 2);
    assert!(
        third["estimate"]["input"].as_u64().unwrap() > input,
        "{third}"
    );
}

#[test]
fn pictures_of_results_are_counted() {
    let input = |images: usize| {
        let mut machine = Machine::new(priced());
        machine.answer("<look><path>a</path></look>");
        while let Some(effect) = (!machine.open.is_empty()).then(|| machine.open.remove(0)) {
            match effect {
                TaskEffect::AssessCall(call) => {
                    let access = machine.access(&call);
                    machine.step(TaskInput::CallAssessed(
                        call,
                        access,
                        Preconditions::default(),
                    ));
                }
                TaskEffect::RunCall(CallPermit { call, .. }) => {
                    let images = vec![
                        Image {
                            media_type: "image/png".into(),
                            data: "aGk=".into()
                        };
                        images
                    ];
                    machine.step(TaskInput::ToolFinished(
                        call,
                        ToolOutput {
                            images,
                            ..ToolOutput::done("seen")
                        },
                    ));
                }
                effect => {
                    assert_eq!(effect, TaskEffect::RequestModel);
                    break;
                }
            }
        }
        machine.open.push(TaskEffect::RequestModel);
        answer(&mut machine, usage(None, None));
        serde_json::to_value(machine.last_answer()).unwrap()["estimate"]["input"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(input(2) - input(0), 2000);
}

#[test]
fn a_broken_answer_is_charged() {
    let mut machine = Machine::new(priced());
    let broken = || {
        TaskInput::ModelFailed(ModelError {
            kind: ModelErrorKind::Broken,
            message: "lost".to_owned(),
        })
    };
    machine.step(TaskInput::ModelEvent(Event::Usage(usage(Some(1000), None))));
    machine.step(TaskInput::ModelEvent(Event::Text { text: "Eight by" }));
    machine.step(broken());
    assert_eq!(
        totals(&machine)["cost"],
        json!({"nano_usd": 1_020_000, "estimated": true})
    );
    // An answer that never began costs nothing.
    machine.step(broken());
    assert_eq!(
        totals(&machine)["cost"],
        json!({"nano_usd": 1_020_000, "estimated": true})
    );
}

#[test]
fn unknown_prices_stay_unknown() {
    let mut machine = Machine::new(settings(Interactivity::Headless));
    answer(&mut machine, usage(Some(1000), Some(100)));
    assert_eq!(totals(&machine)["cost"], Value::Null);
    assert!(
        !serde_json::to_string(&machine.records)
            .unwrap()
            .contains("cost"),
        "not a word of it in the journal"
    );
    // A sum with an unknown part stays unknown.
    let task = Task::replay(machine.records.clone(), priced()).unwrap();
    let mut resumed = Machine {
        task,
        records: machine.records,
        open: Vec::new(),
    };
    resumed.step(TaskInput::Begin);
    answer(&mut resumed, usage(Some(1000), Some(1)));
    assert_eq!(
        totals(&resumed)["cost"],
        json!({"nano_usd": 1_010_000, "at_least": true})
    );
}

#[test]
fn records_of_earlier_versions_are_read() {
    let old = [
        r#"{"kind":"started","task":"t","prompt":"p","workspace":"/w","model":"m","protocol":"native","version":"0.0.1"}"#,
        r#"{"kind":"failed","error":"broken","message":"lost"}"#,
        r#"{"kind":"answered","turn":1,"parts":[],"checks":[],"usage":{"input":5,"output":6}}"#,
    ];
    let mut totals = sabir_agent::UsageTotals::default();
    for line in old {
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
        totals.add_record(&record);
    }
    assert_eq!(
        (totals.cost.to_string().as_str(), totals.usage),
        ("unknown", usage(Some(5), Some(6)))
    );
}

#[test]
fn the_limit_ends_the_task_before_the_next_turn() {
    let mut machine = Machine::new(limited("0.005"));
    answer(&mut machine, usage(Some(3990), Some(1)));
    assert_eq!(machine.ended(), None);
    answer(&mut machine, usage(Some(990), Some(1)));
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
    let Some(Record::Ended { message, .. }) = machine.records.last() else {
        panic!("no end")
    };
    assert_eq!(message, "the limit of $0.0050 was reached: $0.0050");
    // A resumed task has its full cost limit again.
    let task = Task::replay(machine.records.clone(), limited("0.005")).unwrap();
    let mut resumed = Machine {
        task,
        records: machine.records,
        open: Vec::new(),
    };
    resumed.step(TaskInput::queued("Go on."));
    assert_eq!(resumed.open, [TaskEffect::RequestModel]);
}

#[test]
fn a_cost_limit_beyond_known_prices_ends_the_task() {
    let mut settings = limited("5");
    settings.prices.up_to = Some(1000);
    let mut machine = Machine::new(settings);
    answer(&mut machine, usage(Some(1000), Some(1)));
    assert_eq!(machine.ended(), None);
    answer(&mut machine, usage(Some(1001), Some(1)));
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
    let Some(Record::Ended { message, .. }) = machine.records.last() else {
        panic!("no end")
    };
    assert!(
        message.contains("cannot be kept") && message.contains("at least $0.0020"),
        "{message}"
    );
}

#[test]
fn the_cost_limit_prevents_the_retry_of_a_broken_answer() {
    let mut machine = Machine::new(limited("0.001"));
    machine.step(TaskInput::ModelEvent(Event::Usage(usage(Some(1000), None))));
    machine.step(TaskInput::ModelEvent(Event::Text { text: "Eight by" }));
    machine.step(TaskInput::ModelFailed(ModelError {
        kind: ModelErrorKind::Broken,
        message: "lost".to_owned(),
    }));
    assert_eq!(machine.ended(), Some(TaskOutcome::Limit));
}
