//! A tool that breaks down fails, and the task goes on.

use std::sync::Arc;

use sabir_agent::{Arguments, Attended, Cancel, Driver, Outcome, Progress, Registry, Task, Tool, ToolOutput, ToolWork};
use sabir_call::dialect::Selection;
use sabir_call::{Answer, Cut, Ending, Event, Model, Part, Prompted, Request, Sink, ToolSpec};
use sabir_policy::Access;
use serde_json::json;

use crate::machine::{settings, start};
use crate::order::{Lost, Nobody};

/// Breaks down at once, after a while, or not at all, as its path says.
struct Fragile;

impl Tool for Fragile {
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
            assert!(path != "now", "it breaks down");
            tokio::task::yield_now().await;
            assert!(path != "later", "it breaks down");
            ToolOutput::done(path)
        })
    }
}

struct Looking;

impl Model for Looking {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        let first = request.messages.len() == 1;
        let look = |path: &str| format!("<look>\n<path>{path}</path>\n</look>\n");
        let done = || "<attempt_completion>\n<result>r</result>\n</attempt_completion>".to_owned();
        let text = if first { ["now", "fine", "later"].map(look).concat() } else { done() };
        let pass = |event: Event<'_>| sink.event(event);
        let mut prompted = Prompted::new(Selection::AUTO, &request.tools, pass);
        prompted.event(Event::Text { text: &text });
        let _ = prompted.finish(Cut::Ended);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[test]
fn a_tool_that_breaks_down_fails_and_the_task_goes_on() {
    let registry = Registry::new(vec![Arc::new(Fragile)]).unwrap();
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
    let (outcome, message) = runtime.block_on(driver.run(&mut task, Some(first), None));
    assert_eq!(outcome, Outcome::Completed, "{message}");
    let parts = task.history().iter().flat_map(|message| &message.parts);
    let results: Vec<_> = parts
        .filter_map(|part| match part {
            Part::Result(result) => Some((result.ending, result.content.contains("broke down"))),
            _ => None,
        })
        .collect();
    let failed = (Ending::Failed, true);
    assert_eq!(results, [failed, (Ending::Done, false), failed, (Ending::Done, false)]);
}
