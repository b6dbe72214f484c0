//! Limits connections that have not yet sent an accepted request.
//!
//! Any program that reaches the port can open connections and stay silent. Such connections must
//! not use up the limit for clients, so they are counted separately, and when there are too many,
//! the oldest is closed. A client sends its request at once, so its connection is among the newest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The connections without an accepted request, and the slots for the others.
pub(crate) struct ConnectionSlots {
    waiting: Mutex<VecDeque<Arc<Notify>>>,
    most_waiting: usize,
    admitted: Arc<Semaphore>,
}

/// A connection with its slot. Dropping it frees the slot.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    eviction: Arc<Notify>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ConnectionSlots {
    /// Creates slots for so many connections of both kinds.
    pub(crate) fn new(most_waiting: usize, most_admitted: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            most_waiting: most_waiting.max(1),
            admitted: Arc::new(Semaphore::new(most_admitted)),
        })
    }

    /// Gives a new connection a slot, and evicts the oldest one without an accepted request if there are too many.
    pub(crate) fn assign_slot(self: &Arc<Self>) -> Arc<ConnectionSlot> {
        let eviction = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Arc::clone(&eviction));
        // A client whose request arrives at this moment may be disconnected too. It notices that,
        // and tries again.
        if waiting.len() > self.most_waiting
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        Arc::new(ConnectionSlot {
            slots: Arc::clone(self),
            eviction,
            permit: Mutex::default(),
        })
    }
}

impl ConnectionSlot {
    /// Waits until the connection has to end in favour of a newer one.
    pub(crate) async fn wait_evicted(&self) {
        self.eviction.notified().await;
    }

    /// Gives the connection a slot among those of clients, for as long as it lives. Returns false if there is none.
    pub(crate) fn admit_client(&self) -> bool {
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        if permit.is_none() {
            *permit = Arc::clone(&self.slots.admitted).try_acquire_owned().ok();
            if permit.is_some() {
                self.leave_waiting();
            }
        }
        permit.is_some()
    }

    fn leave_waiting(&self) {
        let waiting = self.slots.waiting.lock();
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !Arc::ptr_eq(other, &self.eviction));
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.leave_waiting();
    }
}
