//! Calls that read run at once; their results come in the order of the calls, whichever is done first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sabir_agent::{
    Arguments, Attended, Cancel, Driver, Outcome, Progress, Question, Record, Registry, Reply, Store, StoreError, Task,
    TaskEvent, Tool, ToolOutput, ToolWork, User,
};
use sabir_call::dialect::Selection;
use sabir_call::{Answer, Cut, Event, Model, Part, Prompted, Request, Sink, ToolSpec};
use sabir_policy::Access;
use serde_json::json;

use crate::machine::{settings, start};

/// Reads for as many milliseconds as its path says.
struct Look;

impl Tool for Look {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}});
        ToolSpec::new("look", "", schema)
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn access(&self, _arguments: &Arguments) -> Access {
        Access::Nothing
    }

    fn run<'a>(
        &'a self,
        _: &'a sabir_agent::Permit,
        arguments: &'a Arguments,
        _progress: Progress<'a>,
    ) -> ToolWork<'a> {
        let path = arguments["path"].as_str().unwrap().to_owned();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(path.parse().unwrap())).await;
            ToolOutput::done(path)
        })
    }
}

/// Looks three times at once, then completes.
struct Looking;

impl Model for Looking {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        let first = request.messages.len() == 1;
        let look = |time: u32| format!("<look>\n<path>{time}</path>\n</look>\n");
        let done = || "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned();
        let text = if first { [300, 150, 1].map(look).concat() } else { done() };
        let pass = |event: Event<'_>| sink.event(event);
        let mut prompted = Prompted::new(Selection::AUTO, &request.tools, pass);
        prompted.event(Event::Text { text: &text });
        let _ = prompted.finish(Cut::Ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(crate) struct Nobody;

impl User for Nobody {
    fn show(&mut self, _event: TaskEvent<'_>) {}

    fn ask<'a>(&'a mut self, _question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(std::future::ready(Reply::Leave))
    }
}

pub(crate) struct Lost;

impl Store for Lost {
    fn append(&mut self, _: &Record) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn results_come_in_the_order_of_their_calls() {
    let registry = Registry::new(vec![Arc::new(Look)]).unwrap();
    let settings = sabir_agent::Settings { tools: registry.set().clone(), ..settings(Attended::No) };
    let (mut task, first) = Task::new(start(), settings);
    let driver = Driver {
        model: &Looking,
        registry: &registry,
        store: &mut Lost,
        user: &mut Nobody,
        cancel: Cancel::default(),
        max_time: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let (outcome, message) = runtime.block_on(driver.run(&mut task, Some(first), None));
    assert_eq!(outcome, Outcome::Completed, "{message}");
    assert!(begun.elapsed() < Duration::from_millis(440), "they run at once: {:?}", begun.elapsed());
    let parts = task.history().iter().flat_map(|message| &message.parts);
    let results = parts.filter_map(|part| match part {
        Part::Result(result) => Some(result.content.as_str()),
        _ => None,
    });
    assert_eq!(results.collect::<Vec<_>>(), ["300", "150", "1", "Accepted."]);
}
