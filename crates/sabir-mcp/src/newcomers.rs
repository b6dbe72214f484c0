//! Limits connections that have not yet sent an accepted request.
//!
//! Any program that reaches the port can open connections and stay silent. Such connections must
//! not use up the limit for clients, so they are counted separately, and when there are too many,
//! the oldest is closed. A client sends its request at once, so its connection is among the newest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The connections without an accepted request, and the places for the others.
pub(crate) struct ConnectionPlaces {
    waiting: Mutex<VecDeque<Arc<Notify>>>,
    most_waiting: usize,
    admitted: Arc<Semaphore>,
}

/// A connection with its place. Dropping it frees the place.
pub(crate) struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    eviction: Arc<Notify>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ConnectionPlaces {
    /// Creates places for so many connections of both kinds.
    pub(crate) fn new(most_waiting: usize, most_admitted: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            most_waiting: most_waiting.max(1),
            admitted: Arc::new(Semaphore::new(most_admitted)),
        })
    }

    /// Gives a new connection a place, and evicts the oldest one without an accepted request if there are too many.
    pub(crate) fn give_place(self: &Arc<Self>) -> Arc<ConnectionPlace> {
        let eviction = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Arc::clone(&eviction));
        // A client whose request arrives at this very moment may be closed too. It sees that the
        // connection broke off, and tries again.
        if waiting.len() > self.most_waiting
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        Arc::new(ConnectionPlace {
            places: Arc::clone(self),
            eviction,
            permit: Mutex::default(),
        })
    }
}

impl ConnectionPlace {
    /// Waits until the connection has to end in favour of a newer one.
    pub(crate) async fn wait_evicted(&self) {
        self.eviction.notified().await;
    }

    /// Gives the connection a place among those of clients, for as long as it lives. Returns false if there is none.
    pub(crate) fn admit_client(&self) -> bool {
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        if permit.is_none() {
            *permit = Arc::clone(&self.places.admitted).try_acquire_owned().ok();
            if permit.is_some() {
                self.leave_waiting();
            }
        }
        permit.is_some()
    }

    fn leave_waiting(&self) {
        let waiting = self.places.waiting.lock();
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !Arc::ptr_eq(other, &self.eviction));
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.leave_waiting();
    }
}
