//! A driver refuses a task that was already stepped elsewhere.

use sabir_agent::{
    CancelToken, DriveError, Interactivity, Task, TaskDriver, TaskInput, TaskOutcome, ToolRegistry,
};
use sabir_call::{EventSink, Model, ModelError, ModelErrorKind, Request, ResponseFuture};

use crate::call_order::{DiscardingStore, SilentFrontEnd};
use crate::machine::{settings, start};

/// A model that cannot be asked.
struct UnusableModel;

impl Model for UnusableModel {
    fn stream_response<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        let error = ModelError {
            kind: ModelErrorKind::Key,
            message: "there is no key".to_owned(),
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

#[test]
fn a_task_that_has_begun_is_refused_until_it_is_prepared() {
    let registry = ToolRegistry::new(Vec::new()).unwrap();
    let (mut task, first) = Task::new(start(), settings(Interactivity::Headless));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let drive = |task: &mut Task, words: Option<&str>| {
        let driver = TaskDriver {
            model: &UnusableModel,
            registry: &registry,
            store: &mut DiscardingStore,
            front_end: &mut SilentFrontEnd,
            observers: Vec::new(),
            cancel: CancelToken::default(),
            max_time: None,
        };
        runtime.block_on(driver.run(task, None, words.map(str::to_owned)))
    };
    drop(first);
    assert!(task.is_paused());
    task.step(TaskInput::Begin);
    for words in [None, Some("Go on.")] {
        assert_eq!(drive(&mut task, words), Err(DriveError::AlreadyBegun));
    }
    task.prepare_next_run();
    let (outcome, message) = drive(&mut task, None).unwrap();
    assert_eq!(outcome, TaskOutcome::Misconfigured, "{message}");
    // The run is over, so the task is not paused either.
    assert_eq!(drive(&mut task, None), Err(DriveError::AlreadyBegun));
}
