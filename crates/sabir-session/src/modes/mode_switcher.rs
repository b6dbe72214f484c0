//! Carries out a switch of modes outside the task machine, when its record is appended.
//!
//! The task state machine checks calls by the new mode as soon as the record is appended. So the bounds of the workspace and the server of the
//! model change at the same moment, before any later effect is carried out.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{DriverObserver, ModeHistory, Record};
use sabir_call::{EventSink, Model, Request, ResponseFuture};
use sabir_workspace::Workspace;

use super::SessionModes;
use super::mode_runtime::ModeRuntime;
use crate::config::ResolvedModel;
use crate::images::CurrentImageSupport;
use crate::notice::{NoticeSink, NoticeTopic};

/// Follows the mode of a task: moves the workspace's bounds and the model's server with it.
pub(crate) struct ModeSwitcher {
    history: Mutex<ModeHistory>,
    modes: SessionModes,
    workspace: Arc<Workspace>,
    notices: NoticeSink,
    image_support: CurrentImageSupport,
}

/// A model that passes each request to the model of the current mode.
pub(crate) struct ModeRoutedModel<M> {
    default_model: M,
    other_models: Vec<(String, M)>,
    current_mode: Arc<Mutex<String>>,
}

impl ModeSwitcher {
    /// Follows a task from the mode that its history ends in.
    pub(crate) fn new(
        history: ModeHistory,
        modes: &SessionModes,
        workspace: &Arc<Workspace>,
        notices: &NoticeSink,
    ) -> Self {
        Self {
            history: Mutex::new(history),
            modes: modes.clone(),
            workspace: Arc::clone(workspace),
            notices: notices.clone(),
            image_support: CurrentImageSupport::default(),
        }
    }

    /// Keeps this up to date with the model of the mode.
    pub(crate) fn with_image_support(mut self, image_support: CurrentImageSupport) -> Self {
        self.image_support = image_support;
        self
    }
}

impl DriverObserver for ModeSwitcher {
    fn on_record_stored(&self, record: &Record) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.apply_record(record) {
            let mode = history.current_mode();
            self.modes.apply_mode(mode, &self.workspace, &self.notices);
            if let Some(runtime) = self.modes.find_runtime(mode) {
                self.image_support.set(runtime.image_support.clone());
            }
        }
    }
}

impl SessionModes {
    /// Makes a mode the current one. An unknown name changes nothing; the machine never switches to one.
    fn apply_mode(&self, name: &str, workspace: &Workspace, notices: &NoticeSink) {
        let before = self.current_name();
        let Some(runtime) = self.find_runtime(name) else {
            return;
        };
        // Before the name: a reader of the new mode's name finds its bounds in force.
        workspace.set_bounds(runtime.bounds.clone());
        name.clone_into(
            &mut self
                .current_mode
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let said = match &runtime.note {
            Some(note) => Some(note.clone()),
            None if self
                .find_runtime(&before)
                .is_some_and(|before| before.model == runtime.model) =>
            {
                None
            }
            None => Some(format!("the model is now {}", runtime.model)),
        };
        if let Some(said) = said {
            notices.send(NoticeTopic::Mode, format!("mode {name}: {said}"));
        }
    }

    /// Combines the task's usual model with those of modes on other servers. Modes on the same server need no client of
    /// their own, since the request names the model.
    pub(crate) fn route_models<M>(
        &self,
        usual: M,
        make: impl Fn(&ResolvedModel) -> M,
    ) -> ModeRoutedModel<M> {
        let other = |runtime: &ModeRuntime| {
            Some((
                runtime.config.mode.name.clone(),
                make(runtime.other_server.as_ref()?),
            ))
        };
        ModeRoutedModel {
            default_model: usual,
            other_models: self.runtimes.iter().filter_map(other).collect(),
            current_mode: Arc::clone(&self.current_mode),
        }
    }
}

impl<M: Model> Model for ModeRoutedModel<M> {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        // Looked up for each request, since the mode may have changed since the last one.
        let now = self
            .current_mode
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let other = self
            .other_models
            .iter()
            .find(|(mode, _)| *mode == now)
            .map(|(_, model)| model);
        other
            .unwrap_or(&self.default_model)
            .stream_response(request, sink)
    }
}
