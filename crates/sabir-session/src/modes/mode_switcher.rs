//! Applies a mode switch outside of the machine.
//!
//! The machine judges by the new mode as soon as its record is kept, so the bounds of the workspace and the model's server change at
//! that moment, before anything that follows from the record is done.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{DriverObserver, ModeHistory, Record};
use sabir_call::{EventSink, Model, Request, ResponseFuture};
use sabir_workspace::Workspace;

use super::SessionModes;
use super::mode_runtime::ModeRuntime;
use crate::config::ResolvedModel;
use crate::notice::{NoticeSink, NoticeTopic};

/// Follows the mode of a task: moves the workspace's bounds and the model's server with it.
pub(crate) struct ModeSwitcher {
    history: Mutex<ModeHistory>,
    modes: SessionModes,
    workspace: Arc<Workspace>,
    notices: NoticeSink,
}

/// The models of a task, of which the mode's is asked.
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
        }
    }
}

impl DriverObserver for ModeSwitcher {
    fn on_record_kept(&self, record: &Record) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.apply_record(record) {
            self.modes.apply_mode(history.current_mode(), &self.workspace, &self.notices);
        }
    }
}

impl SessionModes {
    /// The mode holds from now on. One that is not known changes nothing; the machine does not switch to such a one.
    fn apply_mode(&self, name: &str, workspace: &Workspace, notices: &NoticeSink) {
        let before = self.current_name();
        let Some(station) = self.find_runtime(name) else { return };
        workspace.set_bounds(station.bounds.clone());
        name.clone_into(&mut self.current_mode.lock().unwrap_or_else(PoisonError::into_inner));
        let said = match &station.note {
            Some(note) => Some(note.clone()),
            None if self.find_runtime(&before).is_some_and(|before| before.model == station.model) => None,
            None => Some(format!("the model is now {}", station.model)),
        };
        if let Some(said) = said {
            notices.send(NoticeTopic::Mode, format!("mode {name}: {said}"));
        }
    }

    /// The model of the task with those of its modes that are on other servers.
    pub(crate) fn route_models<M>(&self, usual: M, make: impl Fn(&ResolvedModel) -> M) -> ModeRoutedModel<M> {
        let other =
            |station: &ModeRuntime| Some((station.config.mode.name.clone(), make(station.other_server.as_ref()?)));
        ModeRoutedModel {
            default_model: usual,
            other_models: self.runtimes.iter().filter_map(other).collect(),
            current_mode: Arc::clone(&self.current_mode),
        }
    }
}

impl<M: Model> Model for ModeRoutedModel<M> {
    fn stream_response<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn EventSink + Send)) -> ResponseFuture<'a> {
        let now = self.current_mode.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let other = self.other_models.iter().find(|(mode, _)| *mode == now).map(|(_, model)| model);
        other.unwrap_or(&self.default_model).stream_response(request, sink)
    }
}
