//! Publishes the file changes that calls are about to make, for front ends that show them even
//! without a question.

use std::sync::Arc;

use sabir_agent::{DriverObserver, ObservedCall};

use crate::event::{SessionEventKind, SubtaskLabel};
use crate::hub::EventHub;

/// An observer of one task that publishes the preview of each call that runs.
pub(crate) struct PreviewPublisher {
    pub(crate) hub: EventHub,
    /// The subtask that is observed; `None` for the session's own task.
    pub(crate) subtask: Option<Arc<SubtaskLabel>>,
}

impl DriverObserver for PreviewPublisher {
    fn wants_previews(&self) -> bool {
        true
    }

    fn on_preview(&self, call: &ObservedCall, preview: &str) {
        let kind = SessionEventKind::Preview {
            call: call.id.clone(),
            text: preview.to_owned(),
        };
        self.hub.publish_event(self.subtask.clone(), kind);
    }
}
