//! What subtasks that work at the same time may take together.
//!
//! A subtask begins with what its parent has left, and so do its sisters; each alone keeps to that, together they would not. While some
//! are at work their parent asks nothing of a model, so what the whole family takes is what these take, and their own subtasks: all
//! of them share one purse, which is looked at before a model is asked. A turn is taken out of it beforehand. Tokens and money are
//! known afterwards, so the requests that are under way when a limit is reached are finished.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::observer::DriverObserver;
use crate::permit::CallPermit;
use crate::record::Record;
use crate::task::{TaskLimits, UsageTotals};

/// What a family shares; the usual one is nobody's, and has no bounds.
#[derive(Debug, Clone, Default)]
pub struct SharedBudget(Option<Arc<BudgetState>>);

#[derive(Debug)]
struct BudgetState {
    limits: TaskLimits,
    usage: Mutex<BudgetUsage>,
}

#[derive(Debug, Clone, Copy, Default)]
struct BudgetUsage {
    turns: u32,
    totals: UsageTotals,
}

/// A turn that is taken out; it goes back where it was not made.
#[derive(Debug)]
pub(crate) struct TurnReservation<'a>(Option<&'a BudgetState>);

/// The purse of those who are at work.
#[derive(Debug, Default)]
pub(super) struct BudgetSlot(Mutex<Weak<BudgetState>>);

/// Charges what a subtask's records cost to the budget of its family.
pub(super) struct BudgetMeter(pub(super) SharedBudget);

impl SharedBudget {
    /// This one, or that one where this is nobody's.
    pub(super) fn or_else(&self, other: impl FnOnce() -> Self) -> Self {
        if self.0.is_some() {
            self.clone()
        } else {
            other()
        }
    }

    /// Returns the permit with this shared budget, which the subtasks of the call draw on.
    pub(crate) fn attach_to(&self, permit: CallPermit) -> CallPermit {
        CallPermit {
            shared_budget: self.clone(),
            ..permit
        }
    }

    /// Takes a turn out.
    ///
    /// # Errors
    /// In words, where there is nothing left.
    pub(crate) fn reserve_turn(&self) -> Result<TurnReservation<'_>, String> {
        let Some(inside) = &self.0 else {
            return Ok(TurnReservation(None));
        };
        let mut taken = inside.lock_usage();
        if let Some(what) = taken.exhausted_limit(&inside.limits) {
            return Err(format!(
                "the limit of {what} of the task that this one belongs to was reached"
            ));
        }
        taken.turns = taken.turns.saturating_add(1);
        Ok(TurnReservation(Some(inside)))
    }
}

/// Compares permits without their budgets.
impl PartialEq for SharedBudget {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedBudget {}

impl BudgetState {
    fn lock_usage(&self) -> MutexGuard<'_, BudgetUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetUsage {
    /// What there is no more of.
    fn exhausted_limit(&self, limits: &TaskLimits) -> Option<&'static str> {
        let cost = self.totals.cost;
        let reached = [
            (
                "turns",
                limits.turns.is_some_and(|limit| self.turns >= limit),
            ),
            (
                "tokens",
                limits
                    .tokens
                    .is_some_and(|limit| self.totals.total_tokens() >= limit),
            ),
            (
                "cost",
                limits
                    .cost
                    .is_some_and(|limit| cost.at_least || cost.known >= limit),
            ),
        ];
        reached
            .into_iter()
            .find_map(|(what, reached)| reached.then_some(what))
    }
}

impl TurnReservation<'_> {
    /// It was made: it does not go back.
    pub(crate) fn commit(mut self) {
        self.0 = None;
    }
}

impl Drop for TurnReservation<'_> {
    fn drop(&mut self) {
        if let Some(inside) = self.0 {
            let mut taken = inside.lock_usage();
            taken.turns = taken.turns.saturating_sub(1);
        }
    }
}

impl BudgetSlot {
    /// The purse of those who are at work; a new one with so much in it where nobody is.
    pub(super) fn shared_budget(&self, left: TaskLimits) -> SharedBudget {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = shared.upgrade().unwrap_or_else(|| {
            Arc::new(BudgetState {
                limits: left,
                usage: Mutex::default(),
            })
        });
        *shared = Arc::downgrade(&inside);
        SharedBudget(Some(inside))
    }
}

impl DriverObserver for BudgetMeter {
    fn on_record_kept(&self, record: &Record) {
        // Its own subtasks charge for themselves.
        if let (Some(state), false) = (&self.0.0, matches!(record, Record::Subtask { .. })) {
            state.lock_usage().totals.add_record(record);
        }
    }
}
