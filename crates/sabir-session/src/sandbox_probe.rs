//! Finds out which sandbox is in force, while the first request to the model is under way.
//!
//! The probe runs a command in the sandbox, which takes some ten milliseconds, and the first request does not wait for that. The notice
//! still comes first: no part of the response is shown until the sandbox is known.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use sabir_agent::{
    CommandQueue, FrontEnd, Record, TaskEvent, TransientEvent, UserNotice, UserQuestion, UserReply,
};
use sabir_workspace::{Sandbox, Workspace};

use crate::environment::Environment;
use crate::notice::{NoticeSink, NoticeTopic};
use crate::sandbox;

/// A front end that sends the notice about the sandbox before it passes on events of an answer.
pub(crate) struct SandboxProbe<'a> {
    user: &'a mut dyn FrontEnd,
    /// The thread that finds out the text of the notice; `None` once it was sent.
    probe: Option<JoinHandle<String>>,
    notices: NoticeSink,
}

impl<'a> SandboxProbe<'a> {
    /// Starts to find out which sandbox is in force in the workspace.
    pub(crate) fn start_probe(
        user: &'a mut dyn FrontEnd,
        sandbox: &Sandbox,
        workspace: &Arc<Workspace>,
        environment: &Arc<Environment>,
        notices: &NoticeSink,
    ) -> Self {
        let probed_sandbox = sandbox.clone();
        let workspace = Arc::clone(workspace);
        let environment = Arc::clone(environment);
        let probe = std::thread::Builder::new().spawn(move || {
            let found = sandbox::probe_confinement(&probed_sandbox, &workspace, &environment);
            sandbox::describe_confinement(&probed_sandbox, &found)
        });
        if let Err(error) = &probe {
            let text = format!(
                "it is not known whether commands can run in their sandbox: no thread could be started ({error})"
            );
            notices.send(NoticeTopic::Sandbox, text);
        }
        Self {
            user,
            probe: probe.ok(),
            notices: notices.clone(),
        }
    }

    /// Creates a front end whose notice was sent in an earlier run.
    pub(crate) fn without_probe(user: &'a mut dyn FrontEnd, notices: &NoticeSink) -> Self {
        Self {
            user,
            probe: None,
            notices: notices.clone(),
        }
    }

    /// Sends the notice, unless it was sent already. Waits for the probe if necessary.
    pub(crate) fn send_notice(&mut self) {
        if let Some(text) = self.probe.take().and_then(|probe| probe.join().ok()) {
            self.notices.send(NoticeTopic::Sandbox, text);
        }
    }
}

impl FrontEnd for SandboxProbe<'_> {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        let is_before_answer = matches!(
            event,
            TaskEvent::Record(Record::Started(_) | Record::Context(_))
                | TaskEvent::Transient(TransientEvent::Asking { .. })
        );
        // The notice must precede every event that shows a call of the model.
        if !is_before_answer {
            self.send_notice();
        }
        self.user.on_event(event);
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        self.user.notify(aside);
    }

    fn commands(&mut self) -> Option<CommandQueue> {
        self.user.commands()
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        self.user.request(question)
    }
}
