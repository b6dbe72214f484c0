//! A switch, done: what holds outside of the machine changes with the record of it.
//!
//! The machine judges by the new mode as soon as its record is kept, so the bounds of the workspace and the model's server change in the
//! moment of the keeping, before anything that follows is done.

use std::sync::{Arc, Mutex, PoisonError};

use sabir_agent::{Record, Store, StoreError, Trail};
use sabir_call::{Answer, Model, Request, Sink};
use sabir_workspace::Workspace;

use super::Modes;
use super::outfits::Station;
use crate::config::Chosen;
use crate::notice::{NoticeSink, NoticeTopic};

/// Keeps records, and has what they say of the mode done.
pub(crate) struct Followed<'a> {
    pub(crate) store: &'a mut dyn Store,
    /// The mode so far.
    pub(crate) trail: Trail,
    pub(crate) modes: &'a Modes,
    pub(crate) workspace: &'a Workspace,
    pub(crate) notices: &'a NoticeSink,
}

/// The models of a task, of which the mode's is asked.
pub(crate) struct Routed<M> {
    usual: M,
    others: Vec<(String, M)>,
    now: Arc<Mutex<String>>,
}

impl Store for Followed<'_> {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record)?;
        if self.trail.note(record) {
            self.modes.enter(self.trail.mode(), self.workspace, self.notices);
        }
        Ok(())
    }
}

impl Modes {
    /// The mode holds from now on. One that is not known changes nothing; the machine does not switch to such a one.
    fn enter(&self, name: &str, workspace: &Workspace, notices: &NoticeSink) {
        let before = self.name();
        let Some(station) = self.find(name) else { return };
        workspace.rebound(station.bounds.clone());
        name.clone_into(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
        let said = match &station.note {
            Some(note) => Some(note.clone()),
            None if self.find(&before).is_some_and(|before| before.model == station.model) => None,
            None => Some(format!("the model is now {}", station.model)),
        };
        if let Some(said) = said {
            notices.send(NoticeTopic::Mode, format!("mode {name}: {said}"));
        }
    }

    /// The model of the task with those of its modes that are on other servers.
    pub(crate) fn routed<M>(&self, usual: M, make: impl Fn(&Chosen) -> M) -> Routed<M> {
        let other = |station: &Station| Some((station.outfit.mode.name.clone(), make(station.elsewhere.as_ref()?)));
        Routed { usual, others: self.stations.iter().filter_map(other).collect(), now: Arc::clone(&self.now) }
    }
}

impl<M: Model> Model for Routed<M> {
    fn answer<'a>(&'a self, request: &'a Request, sink: &'a mut (dyn Sink + Send)) -> Answer<'a> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let other = self.others.iter().find(|(mode, _)| *mode == now).map(|(_, model)| model);
        other.unwrap_or(&self.usual).answer(request, sink)
    }
}
