//! Which sandbox commands get, found out while the model is asked for the first time.
//!
//! Finding out takes running a command in it: some ten milliseconds, which the first request need not wait for. The line about it stands
//! before all that the task does nevertheless: who watches sees nothing of the answer until it is known.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use sabir_agent::{Aside, Heard, Moment, Question, Record, Reply, TaskEvent, User};
use sabir_workspace::{Sandbox, Workspace};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{print, sandbox};

/// A watcher before whom stands the line about the sandbox.
pub(crate) struct Looked<'a> {
    user: &'a mut dyn User,
    /// Says the line.
    look: Option<JoinHandle<String>>,
}

impl<'a> Looked<'a> {
    pub(crate) fn begin(user: &'a mut dyn User, sandbox: &Sandbox, workspace: &Arc<Workspace>) -> Self {
        let (sandbox, workspace) = (sandbox.clone(), Arc::clone(workspace));
        let look = std::thread::Builder::new().spawn(move || {
            let found = sandbox::in_force(&sandbox, &workspace);
            print::visible(&format!("sabir: {}\n", sandbox::words(&sandbox, &found)))
        });
        if let Err(error) = &look {
            print::err(&format!(
                "sabir: it is not known whether commands can run in their sandbox: no thread is to be had ({error})\n"
            ));
        }
        Self { user, look: look.ok() }
    }

    /// Says it, if it has not been said.
    pub(crate) fn say(&mut self) {
        if let Some(line) = self.look.take().and_then(|look| look.join().ok()) {
            print::err(&line);
        }
    }
}

impl User for Looked<'_> {
    fn show(&mut self, event: TaskEvent<'_>) {
        let before = matches!(
            event,
            TaskEvent::Record(Record::Started(_) | Record::Context(_)) | TaskEvent::Moment(Moment::Asking { .. })
        );
        if !before {
            self.say();
        }
        self.user.show(event);
    }

    fn tell(&mut self, aside: Aside<'_>) {
        self.user.tell(aside);
    }

    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.user.hears()
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        self.user.ask(question)
    }
}
