//! The shared budget: limits what subtasks that work at the same time may use together.
//!
//! Each subtask begins with what its parent has left, and so do its siblings; each stays within
//! it, but their sum might not. While some of them work, their parent asks no model. So only they
//! and their own subtasks spend anything, and all of them share one budget, which is checked before
//! a model is asked. A turn is reserved beforehand. Tokens and money are
//! known afterwards, so the requests that are under way when a limit is reached are finished.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::observer::DriverObserver;
use crate::permit::CallPermit;
use crate::record::Record;
use crate::task::{BudgetPeriod, TaskLimits, UsageTotals};

/// The budget that a task shares with its subtasks. The default one has no limits.
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

/// A reserved turn. It is given back when it is dropped, unless it was committed.
#[derive(Debug)]
pub(crate) struct TurnReservation<'a>(Option<&'a BudgetState>);

/// The reason why a shared budget allows no further turn. The text is for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetExhausted {
    /// The limit of turns.
    #[error("the limit of turns that this subtask shares with its parent was reached")]
    Turns,
    /// The limit of tokens.
    #[error("the limit of tokens that this subtask shares with its parent was reached")]
    Tokens,
    /// The limit of cost.
    #[error("the limit of cost that this subtask shares with its parent was reached")]
    Cost,
}

/// The budget of the newest period in which there were subtasks.
#[derive(Debug, Default)]
pub(super) struct BudgetSlot(Mutex<Option<(BudgetPeriod, Arc<BudgetState>)>>);

/// Charges the usage in a subtask's records to the shared budget.
pub(super) struct BudgetMeter(pub(super) SharedBudget);

impl SharedBudget {
    /// Returns this budget, or `other` if this one is not shared.
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

    /// Reserves a turn.
    ///
    /// # Errors
    /// If a limit is reached.
    pub(crate) fn reserve_turn(&self) -> Result<TurnReservation<'_>, BudgetExhausted> {
        let Some(inside) = &self.0 else {
            return Ok(TurnReservation(None));
        };
        let mut usage = inside.lock_usage();
        if let Some(limit) = usage.exhausted_limit(&inside.limits) {
            return Err(limit);
        }
        usage.turns = usage.turns.saturating_add(1);
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
    /// Returns the limit that is reached, if one is.
    fn exhausted_limit(&self, limits: &TaskLimits) -> Option<BudgetExhausted> {
        let cost = self.totals.cost;
        let reached = [
            (
                BudgetExhausted::Turns,
                limits.turns.is_some_and(|limit| self.turns >= limit),
            ),
            (
                BudgetExhausted::Tokens,
                limits
                    .tokens
                    .is_some_and(|limit| self.totals.total_tokens() >= limit),
            ),
            (
                BudgetExhausted::Cost,
                limits
                    .cost
                    // A cost that is only partly known cannot be kept below a limit, so it counts
                    // as reached.
                    .is_some_and(|limit| cost.at_least || cost.known >= limit),
            ),
        ];
        reached
            .into_iter()
            .find_map(|(limit, is_reached)| is_reached.then_some(limit))
    }
}

impl TurnReservation<'_> {
    /// Keeps the turn, because it was made.
    pub(crate) fn commit(mut self) {
        self.0 = None;
    }
}

// In `drop`, since the request may be cancelled by dropping its future.
impl Drop for TurnReservation<'_> {
    fn drop(&mut self) {
        if let Some(inside) = self.0 {
            let mut usage = inside.lock_usage();
            usage.turns = usage.turns.saturating_sub(1);
        }
    }
}

impl BudgetSlot {
    /// Returns the budget of the permit's period: the one of an earlier permit, or a new one with what this permit leaves.
    ///
    /// A budget outlives its subtasks until the period ends: when a later subtask of the period begins, its permit does not include the
    /// usage of ended ones.
    pub(super) fn shared_budget(&self, permit: &CallPermit) -> SharedBudget {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match current.take() {
            Some((period, state)) if period == permit.budget_period => state,
            _ => Arc::new(BudgetState {
                limits: permit.remaining_limits,
                usage: Mutex::default(),
            }),
        };
        *current = Some((permit.budget_period, Arc::clone(&state)));
        SharedBudget(Some(state))
    }
}

impl DriverObserver for BudgetMeter {
    fn on_record_stored(&self, record: &Record) {
        // Its own subtasks charge for themselves.
        if let (Some(state), false) = (&self.0.0, matches!(record, Record::Subtask { .. })) {
            state.lock_usage().totals.add_record(record);
        }
    }
}
