//! Keeps the state of one upstream: its load, its circuit breaker, and the result of its probes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The longest time for which an upstream is left out before it is tried again.
const MAX_EJECTION: Duration = Duration::from_secs(60);

/// The number of failed probes in a row after which an upstream counts as down.
const MAX_FAILED_PROBES: u32 = 2;

/// The rules of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitRules {
    /// The number of failures in a row after which the upstream is left out.
    pub max_failures: u32,
    /// The time for which it is left out at first. It doubles with each failed trial, up to a
    /// minute.
    pub ejection: Duration,
}

impl Default for CircuitRules {
    fn default() -> Self {
        Self {
            max_failures: 3,
            ejection: Duration::from_secs(5),
        }
    }
}

/// The state of one upstream, which a reload of the configuration keeps.
#[derive(Debug, Default)]
pub(crate) struct UpstreamState {
    /// The requests that it is answering.
    outstanding: AtomicUsize,
    /// True if the last probes failed.
    down: AtomicBool,
    /// The number of probes in a row that failed.
    failed_probes: AtomicU32,
    /// All requests that were sent to it.
    requests: AtomicU64,
    /// The requests that it failed.
    failures: AtomicU64,
    /// The requests that went to another upstream after it failed them.
    failovers: AtomicU64,
    /// The circuit breaker.
    circuit: Mutex<Circuit>,
}

/// A circuit breaker. It is closed while `open_until` is `None`, and half open after that time.
#[derive(Debug, Default)]
struct Circuit {
    /// The number of failures in a row.
    failures: u32,
    /// The end of the time for which no request is sent.
    open_until: Option<Instant>,
    /// The end of the pause that the upstream itself asked for.
    paused_until: Option<Instant>,
    /// The number of times that it opened in a row.
    openings: u32,
    /// True while a request tries whether the upstream works again.
    is_tried: bool,
    /// True if the last failure was one of the connection.
    is_unreachable: bool,
}

/// The health information that a failure gives about an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamFault {
    /// It cannot be reached.
    Unreachable,
    /// It responds with a server error.
    Failing,
    /// It asks for a pause.
    Pause(Duration),
}

/// The counters of an upstream, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamCounters {
    /// The requests that it is answering.
    pub(crate) outstanding: usize,
    /// All requests that were sent to it.
    pub(crate) requests: u64,
    /// The requests that it failed.
    pub(crate) failures: u64,
    /// The requests that went to another upstream after it failed them.
    pub(crate) failovers: u64,
    /// True if it gets requests at present.
    pub(crate) available: bool,
}

impl Circuit {
    /// Returns true if the time for which no request is sent is over, but no request succeeded yet.
    fn is_half_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| until <= now)
    }
}

impl UpstreamState {
    /// Locks the circuit breaker.
    fn lock_circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of requests that it is answering.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Returns true if a request may be sent: no probe says that it is down, and the circuit is
    /// closed, or half open without a trial.
    pub(crate) fn is_available(&self, now: Instant) -> bool {
        if self.down.load(Ordering::Relaxed) {
            return false;
        }
        let circuit = self.lock_circuit();
        circuit
            .open_until
            .is_none_or(|until| until <= now && !circuit.is_tried)
    }

    /// Returns true if the upstream counts as working for a load balancer: no probe says that it is
    /// down, and its circuit is not open for failures of the connection. Error responses do not
    /// count, since a client could provoke them.
    pub(crate) fn is_reachable(&self, now: Instant) -> bool {
        self.is_available(now)
            || !self.down.load(Ordering::Relaxed) && !self.lock_circuit().is_unreachable
    }

    /// Counts a request that is being sent. Returns true if it is the trial of a half-open circuit.
    #[must_use]
    pub(crate) fn begin_request(&self, now: Instant) -> bool {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut circuit = self.lock_circuit();
        // If all upstreams are left out, requests come before that time and during a trial as well.
        let is_trial = circuit.is_half_open(now) && !circuit.is_tried;
        circuit.is_tried |= is_trial;
        is_trial
    }

    /// Counts the end of a request, also of one that was abandoned.
    pub(crate) fn end_request(&self, is_trial: bool) {
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
        if is_trial {
            self.lock_circuit().is_tried = false;
        }
    }

    /// Closes the circuit, because the upstream answered.
    pub(crate) fn record_success(&self) {
        *self.lock_circuit() = Circuit::default();
    }

    /// Counts a request that it failed, for the metrics alone.
    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports a failure to the circuit breaker, which opens after enough failures, or if the
    /// upstream asked for a pause.
    pub(crate) fn record_fault(
        &self,
        rules: &CircuitRules,
        is_trial: bool,
        fault: UpstreamFault,
        now: Instant,
    ) {
        let mut circuit = self.lock_circuit();
        circuit.is_unreachable = fault == UpstreamFault::Unreachable;
        if let UpstreamFault::Pause(pause) = fault {
            // It works, but has no capacity at present, so the pause does not grow.
            let until = Some(now + pause.min(MAX_EJECTION));
            circuit.open_until = circuit.open_until.max(until);
            circuit.paused_until = circuit.paused_until.max(until);
            return;
        }
        circuit.failures = circuit.failures.saturating_add(1);
        let opens = match circuit.open_until {
            None => circuit.failures >= rules.max_failures,
            // The other requests that were running when it opened say nothing new.
            Some(_) => is_trial && circuit.is_half_open(now),
        };
        if opens {
            // Ejections take a second at least, so 64 times that is above the longest one.
            let factor = 1_u32 << circuit.openings.min(6);
            circuit.openings = circuit.openings.saturating_add(1);
            circuit.open_until =
                Some(now + rules.ejection.saturating_mul(factor).min(MAX_EJECTION));
        }
    }

    /// Counts a request that goes to another upstream.
    pub(crate) fn record_failover(&self) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the result of a probe. One success marks the upstream as up, and ends the open time of the circuit, except for a pause that
    /// the upstream asked for: a server without capacity still answers probes.
    pub(crate) fn record_probe(&self, is_healthy: bool, now: Instant) {
        if is_healthy {
            self.failed_probes.store(0, Ordering::Relaxed);
            self.down.store(false, Ordering::Relaxed);
            let mut circuit = self.lock_circuit();
            if circuit.open_until.is_some() {
                circuit.open_until = Some(now).max(circuit.paused_until);
            }
        } else if self.failed_probes.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILED_PROBES {
            self.down.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets the results of probes, for an upstream that is no longer probed.
    pub(crate) fn forget_probes(&self) {
        self.failed_probes.store(0, Ordering::Relaxed);
        self.down.store(false, Ordering::Relaxed);
    }

    /// Returns the counters.
    pub(crate) fn counters(&self, now: Instant) -> UpstreamCounters {
        UpstreamCounters {
            outstanding: self.outstanding(),
            requests: self.requests.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            failovers: self.failovers.load(Ordering::Relaxed),
            available: self.is_available(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: CircuitRules = CircuitRules {
        max_failures: 2,
        ejection: Duration::from_secs(5),
    };

    const FAILING: UpstreamFault = UpstreamFault::Failing;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_circuit_opens_after_failures_and_lets_one_trial_through() {
        let state = UpstreamState::default();
        let start = Instant::now();
        state.record_fault(&RULES, false, FAILING, start);
        assert!(state.is_available(start));
        state.record_fault(&RULES, false, FAILING, start);
        assert!(!state.is_available(start + seconds(4)));
        let half_open = start + seconds(5);
        assert!(state.is_available(half_open));
        assert!(state.begin_request(half_open));
        assert!(!state.is_available(half_open), "a trial is running");
        state.record_fault(&RULES, true, FAILING, half_open);
        state.end_request(true);
        // The pause doubles.
        assert!(!state.is_available(half_open + seconds(9)));
        assert!(state.is_available(half_open + seconds(10)));
        state.record_success();
        assert!(state.is_available(start));
        state.record_fault(&RULES, false, FAILING, start);
        assert!(state.is_available(start), "failures are counted anew");
    }

    #[test]
    fn an_abandoned_trial_frees_the_circuit() {
        let state = UpstreamState::default();
        let start = Instant::now();
        state.record_fault(&RULES, false, UpstreamFault::Pause(seconds(1)), start);
        assert!(!state.is_available(start));
        let later = start + seconds(2);
        assert!(state.begin_request(later));
        assert!(!state.begin_request(later), "there is one trial only");
        state.end_request(false);
        assert!(!state.is_available(later));
        state.end_request(true);
        assert!(state.is_available(later));
    }

    #[test]
    fn requests_that_were_running_when_the_circuit_opened_do_not_open_it_again() {
        let state = UpstreamState::default();
        let start = Instant::now();
        for _ in 0..10 {
            assert!(!state.begin_request(start));
        }
        for _ in 0..8 {
            state.record_fault(&RULES, false, FAILING, start);
        }
        state.record_fault(&RULES, false, UpstreamFault::Pause(seconds(1)), start);
        assert!(!state.is_available(start + seconds(4)));
        let half_open = start + seconds(5);
        assert!(state.begin_request(half_open));
        state.record_fault(&RULES, false, FAILING, half_open);
        state.end_request(true);
        assert!(state.is_available(half_open), "only its trial counts");
    }

    #[test]
    fn a_pause_that_an_upstream_asks_for_is_bounded() {
        let state = UpstreamState::default();
        let start = Instant::now();
        state.record_fault(&RULES, false, UpstreamFault::Pause(Duration::MAX), start);
        assert!(!state.is_available(start + seconds(59)));
        assert!(state.is_available(start + seconds(60)));
    }

    #[test]
    fn probes_take_an_upstream_out_and_back() {
        let state = UpstreamState::default();
        let now = Instant::now();
        state.record_probe(false, now);
        assert!(state.is_available(now));
        state.record_probe(false, now);
        assert!(!state.is_available(now));
        state.record_probe(true, now);
        assert!(state.is_available(now));
        for _ in 0..2 {
            state.record_fault(&RULES, false, FAILING, now);
        }
        assert!(!state.is_available(now));
        state.record_probe(true, now);
        assert!(state.is_available(now));
    }

    #[test]
    fn a_probe_does_not_end_a_pause_that_the_upstream_asked_for() {
        let state = UpstreamState::default();
        let now = Instant::now();
        state.record_fault(&RULES, false, UpstreamFault::Pause(seconds(50)), now);
        state.record_probe(true, now);
        assert!(!state.is_available(now + seconds(49)));
        assert!(state.is_available(now + seconds(50)));
    }

    #[test]
    fn only_failures_of_the_connection_make_it_unreachable() {
        let now = Instant::now();
        for (fault, is_reachable) in [
            (FAILING, true),
            (UpstreamFault::Pause(seconds(5)), true),
            (UpstreamFault::Unreachable, false),
        ] {
            let state = UpstreamState::default();
            for _ in 0..2 {
                state.record_fault(&RULES, false, fault, now);
            }
            assert!(!state.is_available(now), "{fault:?}");
            assert_eq!(state.is_reachable(now), is_reachable, "{fault:?}");
            // It is time for another trial.
            assert!(state.is_reachable(now + seconds(5)), "{fault:?}");
            state.record_success();
            assert!(state.is_reachable(now), "{fault:?}");
        }
    }
}
