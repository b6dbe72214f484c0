//! A switch, done: what holds outside of the machine changes with the record of it.
//!
//! The machine judges by the new mode as soon as its record is kept, so the bounds of the workspace and the model's server change in the
//! moment of the keeping, before anything that follows is done.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{ModeHistory, Record, RecordStore, StoreError};
use sabir_call::{EventSink, Model, Request, ResponseFuture};
use sabir_workspace::Workspace;

use super::SessionModes;
use super::mode_runtime::ModeRuntime;
use crate::config::ResolvedModel;
use crate::notice::{NoticeSink, NoticeTopic};

/// Keeps records, and has what they say of the mode done.
pub(crate) struct ModeSwitcher<'a> {
    pub(crate) store: &'a mut dyn RecordStore,
    /// The mode so far.
    pub(crate) history: ModeHistory,
    pub(crate) modes: &'a SessionModes,
    pub(crate) workspace: &'a Workspace,
    pub(crate) notices: &'a NoticeSink,
}

/// The models of a task, of which the mode's is asked.
pub(crate) struct ModeRoutedModel<M> {
    default_model: M,
    other_models: Vec<(String, M)>,
    current_mode: Arc<Mutex<String>>,
}

impl RecordStore for ModeSwitcher<'_> {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record)?;
        if self.history.apply_record(record) {
            self.modes.apply_mode(self.history.current_mode(), self.workspace, self.notices);
        }
        Ok(())
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
