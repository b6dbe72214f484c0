//! What subtasks that work at the same time may take together.
//!
//! A subtask begins with what its parent has left, and so do its sisters; each alone keeps to that, together they would not. While some
//! are at work their parent asks nothing of a model, so what the whole family takes is what these take, and their own subtasks: all
//! of them share one purse, which is looked at before a model is asked. A turn is taken out of it beforehand. Tokens and money are
//! known afterwards, so the requests that are under way when a limit is reached are finished.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::permit::Permit;
use crate::record::{Record, Store, StoreError};
use crate::task::{Limits, Totals};

/// What a family shares; the usual one is nobody's, and has no bounds.
#[derive(Debug, Clone, Default)]
pub struct Purse(Option<Arc<Inside>>);

#[derive(Debug)]
struct Inside {
    limits: Limits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    turns: u32,
    totals: Totals,
}

/// A turn that is taken out; it goes back where it was not made.
#[derive(Debug)]
pub(crate) struct Turn<'a>(Option<&'a Inside>);

/// The purse of those who are at work.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Weak<Inside>>);

/// A journal whose records are paid for.
pub(super) struct Counted {
    pub(super) store: Box<dyn Store>,
    pub(super) purse: Purse,
}

impl Purse {
    /// This one, or that one where this is nobody's.
    pub(super) fn or(&self, other: impl FnOnce() -> Self) -> Self {
        if self.0.is_some() { self.clone() } else { other() }
    }

    /// The permit with this purse, for the subtasks of whoever runs by it.
    pub(crate) fn pays(&self, permit: Permit) -> Permit {
        Permit { purse: self.clone(), ..permit }
    }

    /// Takes a turn out.
    ///
    /// # Errors
    /// In words, where there is nothing left.
    pub(crate) fn begin_turn(&self) -> Result<Turn<'_>, String> {
        let Some(inside) = &self.0 else { return Ok(Turn(None)) };
        let mut taken = inside.taken();
        if let Some(what) = taken.over(&inside.limits) {
            return Err(format!("the limit of {what} of the task that this one belongs to was reached"));
        }
        taken.turns = taken.turns.saturating_add(1);
        Ok(Turn(Some(inside)))
    }
}

/// A permit is the same whoever pays.
impl PartialEq for Purse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Purse {}

impl Inside {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// What there is no more of.
    fn over(&self, limits: &Limits) -> Option<&'static str> {
        let cost = self.totals.cost;
        let reached = [
            ("turns", limits.turns.is_some_and(|limit| self.turns >= limit)),
            ("tokens", limits.tokens.is_some_and(|limit| self.totals.tokens() >= limit)),
            ("cost", limits.cost.is_some_and(|limit| cost.at_least || cost.known >= limit)),
        ];
        reached.into_iter().find_map(|(what, reached)| reached.then_some(what))
    }
}

impl Turn<'_> {
    /// It was made: it does not go back.
    pub(crate) fn made(mut self) {
        self.0 = None;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(inside) = self.0 {
            let mut taken = inside.taken();
            taken.turns = taken.turns.saturating_sub(1);
        }
    }
}

impl Shared {
    /// The purse of those who are at work; a new one with so much in it where nobody is.
    pub(super) fn purse(&self, left: Limits) -> Purse {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = shared.upgrade().unwrap_or_else(|| Arc::new(Inside { limits: left, taken: Mutex::default() }));
        *shared = Arc::downgrade(&inside);
        Purse(Some(inside))
    }
}

impl Store for Counted {
    fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.store.append(record)?;
        // What its own subtasks take they take out themselves.
        if let (Some(inside), false) = (&self.purse.0, matches!(record, Record::Subtask { .. })) {
            inside.taken().totals.note(record);
        }
        Ok(())
    }
}
