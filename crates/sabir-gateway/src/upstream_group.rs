//! Distributes the requests for one model over several upstreams.
//!
//! The main decision: **a group is a [`Model`]**. It chooses an upstream, and chooses another one if
//! the first fails before its first event; afterwards the answer belongs to that upstream. So the
//! rest of the gateway does not know how many upstreams a model has, and nothing of an answer is
//! held back.
//!
//! Upstreams that fail are left out for a while (`upstream_state.rs`). If all are left out, all are
//! tried: a gateway that refuses everything would be worse than one that tries.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use sabir_call::{
    Event, EventSink, Message, MessagePart, Model, ModelError, ModelErrorKind, ProviderReportSlot,
    Request, ResponseFuture,
};
use sabir_model::{ForwardError, ForwardedRequest, ForwardedResponse, ProviderClient};
use tokio::time::{Instant, Sleep, sleep};

pub use crate::upstream_state::CircuitRules;
pub(crate) use crate::upstream_state::UpstreamCounters;
use crate::upstream_state::{UpstreamFault, UpstreamState};

/// The part of a system prompt and of a first message that decides about affinity, in bytes.
const AFFINITY_BYTES: usize = 8 << 10;

/// The load above the average up to which an upstream keeps its sessions, in percent.
const AFFINITY_LOAD_PERCENT: u64 = 125;

/// The pause after a response with 429 that names none.
const DEFAULT_RATE_PAUSE: Duration = Duration::from_secs(1);

/// The order in which upstreams are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BalancePolicy {
    /// Requests with the same beginning (system prompt, tools, first message) go to the same
    /// upstream, which has it in its cache, unless that upstream is far busier than the others.
    #[default]
    Prefix,
    /// The upstream with the fewest outstanding requests for its weight.
    Least,
    /// The first available upstream in the order of the configuration.
    Order,
}

/// The rules of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupRules {
    /// The order in which upstreams are chosen.
    pub balance: BalancePolicy,
    /// The time without an answer after which a second upstream is asked too; `None` never asks a second one.
    pub hedge: Option<Duration>,
    /// The rules of each upstream's circuit breaker.
    pub circuit: CircuitRules,
    /// The time between two probes of an upstream; `None` probes none.
    pub probe_interval: Option<Duration>,
}

/// The future of a probe: true if the upstream is healthy.
pub type ProbeFuture<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Checks the health of an upstream without asking the model.
pub trait UpstreamProbe: Send + Sync {
    /// Checks once. The probe has its own time limit.
    fn check_health(&self) -> ProbeFuture<'_>;
}

/// One upstream of a model.
#[derive(Clone)]
pub struct Upstream {
    /// The name in metrics and logs, without secrets.
    pub name: String,
    /// The connection to it.
    pub model: Arc<dyn Model>,
    /// Its own name of the model.
    pub id: String,
    /// Its share of the requests, relative to the others.
    pub weight: u32,
    /// The probe of its health.
    pub probe: Option<Arc<dyn UpstreamProbe>>,
    /// The client for requests that are not for a chat model.
    pub client: Option<Arc<ProviderClient>>,
}

/// The upstreams of one model, as one model.
pub struct UpstreamGroup {
    /// The upstreams in the order of the configuration; never empty.
    members: Vec<Member>,
    /// The rules.
    rules: GroupRules,
    /// The number of choices so far, which decides between equal upstreams.
    turn: AtomicUsize,
}

/// An upstream with its state.
struct Member {
    /// The upstream.
    upstream: Upstream,
    /// Its state.
    state: Arc<UpstreamState>,
}

impl Member {
    /// Returns the outstanding requests for the weight.
    fn relative_load(&self) -> f64 {
        (self.state.outstanding() as f64 + 1.0) / f64::from(self.upstream.weight.max(1))
    }
}

/// A group without upstreams was to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a model needs at least one upstream")]
pub struct NoUpstream;

impl std::fmt::Debug for UpstreamGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamGroup")
            .field("upstreams", &self.upstream_names().collect::<Vec<_>>())
            .field("rules", &self.rules)
            .finish()
    }
}

impl UpstreamGroup {
    /// Makes a group.
    ///
    /// # Errors
    /// [`NoUpstream`] for an empty list.
    pub fn new(upstreams: Vec<Upstream>, rules: GroupRules) -> Result<Self, NoUpstream> {
        if upstreams.is_empty() {
            return Err(NoUpstream);
        }
        let with_state = |upstream| Member {
            upstream,
            state: Arc::default(),
        };
        Ok(Self {
            members: upstreams.into_iter().map(with_state).collect(),
            rules,
            turn: AtomicUsize::new(0),
        })
    }

    /// Returns the names of the upstreams.
    pub fn upstream_names(&self) -> impl Iterator<Item = &str> {
        self.members
            .iter()
            .map(|member| member.upstream.name.as_str())
    }

    /// Returns a group whose upstreams continue with the states of an earlier group, by their names.
    pub(crate) fn inherit_states(&self, earlier: &Self) -> Self {
        let continued = self.members.iter().map(|member| {
            let known = earlier
                .members
                .iter()
                .find(|known| known.upstream.name == member.upstream.name);
            // The earlier group may still answer requests, so both share the state.
            let state = Arc::clone(&known.unwrap_or(member).state);
            if member.upstream.probe.is_none() {
                // No probe would ever say that it is up again.
                state.forget_probes();
            }
            Member {
                upstream: member.upstream.clone(),
                state,
            }
        });
        Self {
            members: continued.collect(),
            rules: self.rules,
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns the counters of all upstreams with their names.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&str, UpstreamCounters)> {
        let now = Instant::now();
        self.members
            .iter()
            .map(move |member| (member.upstream.name.as_str(), member.state.counters(now)))
    }

    /// Returns true if some upstream can be reached, as far as probes and connections tell.
    pub(crate) fn is_reachable(&self) -> bool {
        let now = Instant::now();
        self.members
            .iter()
            .any(|member| member.state.is_reachable(now))
    }

    /// Returns the time between two probes, if some upstream is probed.
    pub(crate) fn probe_interval(&self) -> Option<Duration> {
        self.rules.probe_interval.filter(|_| {
            self.members
                .iter()
                .any(|member| member.upstream.probe.is_some())
        })
    }

    /// Probes all upstreams at once.
    pub(crate) async fn probe_members(&self) {
        let probing = self.members.iter().map(async |member| {
            if let Some(probe) = &member.upstream.probe {
                let is_healthy = probe.check_health().await;
                member.state.record_probe(is_healthy, Instant::now());
            }
        });
        join_all(probing).await;
    }

    /// Returns the upstreams in the order in which they are tried. Those that are left out come
    /// last.
    fn choose_order(&self, prefix: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        match self.rules.balance {
            BalancePolicy::Order => {}
            BalancePolicy::Least => {
                // A different upstream comes first each time, so that equal ones take turns.
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % order.len().max(1);
                order.rotate_left(turn);
                // Read once: a load that changes while the sort compares could make it panic.
                let members = self.members.iter();
                let loads: Vec<f64> = members.map(Member::relative_load).collect();
                let load = |at: &usize| loads.get(*at).copied().unwrap_or(f64::MAX);
                order.sort_by(|one, other| load(one).total_cmp(&load(other)));
            }
            BalancePolicy::Prefix => {
                order.sort_by(|one, other| {
                    let score = |at: &usize| self.rendezvous_score(*at, prefix);
                    score(other).total_cmp(&score(one))
                });
                // A stable sort: within both halves the order stays.
                order.sort_by_cached_key(|at| self.is_overloaded(*at));
            }
        }
        self.move_left_out_to_end(&mut order);
        order
    }

    /// Moves the upstreams that are left out for a while to the end, and keeps the order otherwise.
    fn move_left_out_to_end(&self, order: &mut [usize]) {
        let now = Instant::now();
        order.sort_by_cached_key(|at| {
            !self
                .members
                .get(*at)
                .is_some_and(|member| member.state.is_available(now))
        });
    }

    /// Returns true if an upstream has far more to do than its share.
    fn is_overloaded(&self, at: usize) -> bool {
        let Some(member) = self.members.get(at) else {
            return true;
        };
        let weight = |member: &Member| u64::from(member.upstream.weight.max(1));
        let all_weights: u64 = self.members.iter().map(weight).sum();
        let outstanding: usize = self
            .members
            .iter()
            .map(|member| member.state.outstanding())
            .sum();
        // Computed as if this upstream already had the request, so that none counts as overloaded
        // while all are idle.
        let allowed = (outstanding as u64 + 1) * weight(member) * AFFINITY_LOAD_PERCENT;
        (member.state.outstanding() as u64 + 1) > allowed.div_ceil(all_weights.max(1) * 100)
    }

    /// Returns the score of an upstream for a prefix (weighted rendezvous hashing). The highest one
    /// wins; if an upstream disappears, only its own prefixes move.
    fn rendezvous_score(&self, at: usize, prefix: u64) -> f64 {
        let Some(member) = self.members.get(at) else {
            return f64::MIN;
        };
        let mut hasher = DefaultHasher::new();
        prefix.hash(&mut hasher);
        member.upstream.name.hash(&mut hasher);
        // Between 0 and 1, both excluded.
        let share = ((hasher.finish() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
        f64::from(member.upstream.weight.max(1)) / -share.ln()
    }

    /// Forwards a request to the upstreams that have a client for it, one after another, until one of
    /// them answers it without an error of its own. `make` gets the upstream's name of the model.
    ///
    /// # Errors
    /// The last failure; `None` if no upstream has a client.
    pub(crate) async fn forward(
        &self,
        make: RequestMaker<'_>,
    ) -> Result<(String, Arc<ProviderClient>, ForwardedResponse), Option<ForwardError>> {
        // These requests share no prefix worth keeping on one upstream, so each gets its own order.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as u64;
        self.forward_in_order(self.choose_order(turn), make, false)
            .await
    }

    /// Forwards a request about something that only one of the upstreams has, such as a file: in the order of the configuration, with those
    /// that are left out at the end. The result is not 404 if an upstream that may have it could not be asked.
    ///
    /// # Errors
    /// The last failure; `None` if no upstream has a client.
    pub(crate) async fn forward_until_found(
        &self,
        make: RequestMaker<'_>,
    ) -> Result<(String, Arc<ProviderClient>, ForwardedResponse), Option<ForwardError>> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        self.move_left_out_to_end(&mut order);
        self.forward_in_order(order, make, true).await
    }

    /// Forwards a request to upstreams one after another. If `is_search` is true, an earlier
    /// failure takes precedence over the last upstream's 404.
    async fn forward_in_order(
        &self,
        order: Vec<usize>,
        make: RequestMaker<'_>,
        is_search: bool,
    ) -> Result<(String, Arc<ProviderClient>, ForwardedResponse), Option<ForwardError>> {
        let mut known: Vec<(&Member, &Arc<ProviderClient>)> = Vec::new();
        for at in order {
            if let Some(member) = self.members.get(at)
                && let Some(client) = &member.upstream.client
            {
                known.push((member, client));
            }
        }
        let count = known.len();
        let mut failure = None;
        // The first answer of an upstream that could not say whether it has what is asked for.
        let mut refused = None;
        for (at, (member, client)) in known.into_iter().enumerate() {
            let guard = OutstandingGuard::begin(&member.state);
            let answered = client.forward(make(&member.upstream.id)).await;
            let outcome = ForwardOutcome::of(&answered);
            match outcome {
                ForwardOutcome::Answered => member.state.record_success(),
                ForwardOutcome::Elsewhere => {}
                ForwardOutcome::Failed => guard.record_fault(
                    &self.rules.circuit,
                    match &answered {
                        Err(ForwardError::Unreachable { .. }) => UpstreamFault::Unreachable,
                        _ => UpstreamFault::Failing,
                    },
                ),
            }
            // The body follows later, and is not counted as load.
            drop(guard);
            let is_missing =
                is_search && matches!(&answered, Ok(response) if response.status == 404);
            match answered {
                Ok(_) if is_missing && (failure.is_some() || refused.is_some()) => {}
                // What the last upstream says about its failure is better than an error of our own.
                Ok(response) if outcome == ForwardOutcome::Answered || at + 1 == count => {
                    let name = member.upstream.name.clone();
                    return Ok((name, Arc::clone(client), response));
                }
                Ok(response) if is_search && !is_missing && refused.is_none() => {
                    let name = member.upstream.name.clone();
                    refused = Some((name, Arc::clone(client), response));
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
            if at + 1 < count {
                member.state.record_failover();
            }
        }
        match (failure, refused) {
            (None, Some(answered)) => Ok(answered),
            (failure, _) => Err(failure),
        }
    }

    /// Sends a request to the upstreams, one after another, until one of them answers.
    async fn ask_upstreams(
        &self,
        request: &Request,
        sink: &mut (dyn EventSink + Send),
    ) -> Result<(), ModelError> {
        let race = Race {
            state: Mutex::new(RaceState { winner: None, sink }),
            report: request.report.clone(),
        };
        let mut waiting = self.choose_order(hash_prefix(request)).into_iter();
        let mut attempts: Vec<Attempt<'_>> = Vec::new();
        let mut hedge: Option<Pin<Box<Sleep>>> = None;
        let mut suspects: Vec<SuspectUpstream> = Vec::new();
        loop {
            if attempts.is_empty() {
                // `Model` has no upstream left only after a failure, which was returned below.
                let Some(member) = waiting.next().and_then(|at| self.members.get(at)) else {
                    return Err(no_upstream_left());
                };
                // The number 0 can be reused: if the earlier attempt had begun its response, its
                // failure would have been returned.
                attempts.push(Attempt::start(member, request, &race, 0));
                hedge = self.rules.hedge.map(|after| Box::pin(sleep(after)));
            }
            match next_step(&mut attempts, hedge.as_mut(), &race).await {
                AttemptStep::Silent => {
                    // At most two upstreams are asked at the same time, so that a slow group is not
                    // flooded.
                    hedge = None;
                    if let Some(member) = waiting.next().and_then(|at| self.members.get(at)) {
                        attempts.push(Attempt::start(member, request, &race, attempts.len()));
                    }
                }
                AttemptStep::Ended(attempt, result) => {
                    let has_begun = race.winner() == Some(attempt.number);
                    let suspect = attempt.record(&result, has_begun, &self.rules.circuit);
                    suspects.extend(suspect);
                    if has_begun || result.is_ok() {
                        // This one answered, so the request was not the reason.
                        for failed in suspects.drain(..) {
                            let now = Instant::now();
                            let rules = &self.rules.circuit;
                            let fault = UpstreamFault::Failing;
                            failed
                                .state
                                .record_fault(rules, failed.is_trial, fault, now);
                        }
                    }
                    let Err(error) = result else {
                        attempt.publish_report(&race);
                        return Ok(());
                    };
                    let is_last = attempts.is_empty() && waiting.len() == 0;
                    if has_begun || is_last || !may_succeed_elsewhere(error.kind) {
                        attempt.publish_report(&race);
                        return Err(error);
                    }
                    attempt.guard.state.record_failover();
                }
            }
        }
    }
}

impl Model for UpstreamGroup {
    fn stream_response<'a>(
        &'a self,
        request: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(self.ask_upstreams(request, sink))
    }
}

/// A function that makes a request with the upstream's name of the model.
type RequestMaker<'m> = &'m (dyn Fn(&str) -> ForwardedRequest + Send + Sync);

/// The error of a group whose upstreams are used up.
fn no_upstream_left() -> ModelError {
    ModelError {
        kind: ModelErrorKind::Unreachable,
        message: "no upstream of the model is left".to_owned(),
    }
}

/// Returns true if another upstream may succeed after such a failure. An error of the request
/// itself would recur.
fn may_succeed_elsewhere(kind: ModelErrorKind) -> bool {
    kind.is_transient()
        || matches!(
            kind,
            ModelErrorKind::Key | ModelErrorKind::UnknownModel | ModelErrorKind::Format
        )
}

/// The meaning of what an upstream said to a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForwardOutcome {
    /// It answered, or refused the request itself.
    Answered,
    /// Another upstream may answer. This does not count as a fault of the upstream: the endpoint may be missing or fail while its chat
    /// models work.
    Elsewhere,
    /// It does not work.
    Failed,
}

impl ForwardOutcome {
    /// Returns the outcome of a request.
    fn of(answered: &Result<ForwardedResponse, ForwardError>) -> Self {
        match answered {
            Ok(response) => match response.status {
                502..=504 => Self::Failed,
                // A redirect could lead to another host, with the key.
                300..=399 | 401 | 403 | 404 | 429 | 500.. => Self::Elsewhere,
                _ => Self::Answered,
            },
            // It was not even sent.
            Err(ForwardError::Invalid { .. }) => Self::Elsewhere,
            Err(_) => Self::Failed,
        }
    }
}

/// The sink that all attempts share. The first one that delivers an event owns the answer.
struct Race<'a> {
    /// The winner and the sink.
    state: Mutex<RaceState<'a>>,
    /// The report of the request, which gets the winner's.
    report: ProviderReportSlot,
}

/// The state of a race.
struct RaceState<'a> {
    /// The number of the attempt that delivered an event first.
    winner: Option<usize>,
    /// The sink of the caller.
    sink: &'a mut (dyn EventSink + Send),
}

/// The sink of one attempt.
struct RaceSink<'a, 'b> {
    /// The race.
    race: &'a Race<'b>,
    /// The number of the attempt.
    number: usize,
    /// The report of the attempt.
    report: ProviderReportSlot,
    /// The name of the upstream.
    upstream: &'a str,
}

impl Race<'_> {
    /// Returns the number of the attempt whose answer it is.
    fn winner(&self) -> Option<usize> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .winner
    }
}

impl EventSink for RaceSink<'_, '_> {
    fn push_event(&mut self, event: Event<'_>) {
        let mut state = self
            .race
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if state.winner.is_none() {
            state.winner = Some(self.number);
            publish_report(&self.report, self.upstream, &self.race.report);
        }
        // A loser can still deliver events until `next_step` drops it after this round.
        if state.winner == Some(self.number) {
            state.sink.push_event(event);
        }
    }
}

/// Copies the report of an attempt to the report of the request.
fn publish_report(from: &ProviderReportSlot, upstream: &str, to: &ProviderReportSlot) {
    let mut report = from.report();
    report.upstream = Some(upstream.to_owned());
    to.update(|known| *known = report);
}

/// Counts a request to an upstream as outstanding until it is dropped.
struct OutstandingGuard {
    /// The state of the upstream.
    state: Arc<UpstreamState>,
    /// True if the request tries whether the upstream works again.
    is_trial: bool,
}

impl OutstandingGuard {
    /// Counts a request that is being sent.
    fn begin(state: &Arc<UpstreamState>) -> Self {
        Self {
            state: Arc::clone(state),
            is_trial: state.begin_request(Instant::now()),
        }
    }

    /// Counts the request as failed, and tells the circuit breaker.
    fn record_fault(&self, rules: &CircuitRules, fault: UpstreamFault) {
        self.state.count_failure();
        self.state
            .record_fault(rules, self.is_trial, fault, Instant::now());
    }
}

impl Drop for OutstandingGuard {
    fn drop(&mut self) {
        self.state.end_request(self.is_trial);
    }
}

/// A request to one upstream.
struct Attempt<'a> {
    /// The number of the attempt within its race.
    number: usize,
    /// The name of the upstream.
    upstream: &'a str,
    /// Its report.
    report: ProviderReportSlot,
    /// The answer.
    answer: Pin<Box<dyn Future<Output = Result<(), ModelError>> + Send + 'a>>,
    /// Counts it as outstanding.
    guard: OutstandingGuard,
}

/// An upstream that failed a request which no other one has answered yet.
struct SuspectUpstream {
    /// Its state.
    state: Arc<UpstreamState>,
    /// True if the request tried whether the upstream works again.
    is_trial: bool,
}

/// The next thing that happens to the attempts of a request.
enum AttemptStep<'a> {
    /// No attempt delivered anything within the delay, so a second upstream is asked.
    Silent,
    /// This attempt is over.
    Ended(Attempt<'a>, Result<(), ModelError>),
}

impl<'a> Attempt<'a> {
    /// Sends a request to an upstream.
    fn start<'b>(
        member: &'a Member,
        request: &'a Request,
        race: &'a Race<'b>,
        number: usize,
    ) -> Self {
        let guard = OutstandingGuard::begin(&member.state);
        let report = ProviderReportSlot::new();
        let asked = Request {
            model: member.upstream.id.clone(),
            report: report.clone(),
            ..request.clone()
        };
        let upstream = member.upstream.name.as_str();
        // If the client leaves before any of them begins, the one that was asked last is named.
        race.report
            .update(|known| known.upstream = Some(upstream.to_owned()));
        let mut sink = RaceSink {
            race,
            number,
            report: report.clone(),
            upstream,
        };
        let model = &member.upstream.model;
        Self {
            number,
            upstream,
            report,
            answer: Box::pin(async move { model.stream_response(&asked, &mut sink).await }),
            guard,
        }
    }

    /// Makes the report of this attempt that of the request.
    fn publish_report(&self, race: &Race<'_>) {
        publish_report(&self.report, self.upstream, &race.report);
    }

    /// Reports the result of the attempt to the circuit breaker. Returns the upstream if the result counts as a fault only once another
    /// upstream answers the same request.
    fn record(
        &self,
        result: &Result<(), ModelError>,
        has_begun: bool,
        rules: &CircuitRules,
    ) -> Option<SuspectUpstream> {
        let state = &self.guard.state;
        let Err(error) = result else {
            state.record_success();
            return None;
        };
        let report = self.report.report();
        let fault = match (error.kind, report.status) {
            (ModelErrorKind::RateLimited, _) if !has_begun => {
                UpstreamFault::Pause(report.retry_after.unwrap_or(DEFAULT_RATE_PAUSE))
            }
            (ModelErrorKind::Unreachable, _) => UpstreamFault::Unreachable,
            // It refused the request, so it works.
            (ModelErrorKind::Key, Some(403)) | (ModelErrorKind::UnknownModel, _) => {
                state.record_success();
                return None;
            }
            (kind, _) if !may_succeed_elsewhere(kind) => {
                state.record_success();
                return None;
            }
            (_, Some(502..)) => UpstreamFault::Failing,
            // The reason may be the request: then every upstream fails it, and none is left out.
            _ => {
                state.count_failure();
                return Some(SuspectUpstream {
                    state: Arc::clone(state),
                    is_trial: self.guard.is_trial,
                });
            }
        };
        self.guard.record_fault(rules, fault);
        None
    }
}

/// Polls all attempts until one of them ends, or the time of the hedge is over.
async fn next_step<'a>(
    attempts: &mut Vec<Attempt<'a>>,
    mut hedge: Option<&mut Pin<Box<Sleep>>>,
    race: &Race<'_>,
) -> AttemptStep<'a> {
    std::future::poll_fn(move |context: &mut Context<'_>| {
        let mut at = 0;
        while let Some(attempt) = attempts.get_mut(at) {
            if let Poll::Ready(result) = attempt.answer.as_mut().poll(context) {
                // This puts another attempt at `at`, which stays the same for that reason.
                let attempt = attempts.swap_remove(at);
                // The client does not get the answer of an attempt that ends after another one won.
                if race.winner().is_none_or(|winner| winner == attempt.number) {
                    return Poll::Ready(AttemptStep::Ended(attempt, result));
                }
                continue;
            }
            at += 1;
        }
        match race.winner() {
            Some(winner) => {
                // Dropping a loser cancels its request, so that its upstream can stop.
                if attempts.len() > 1 {
                    attempts.retain(|attempt| attempt.number == winner);
                }
                Poll::Pending
            }
            None => match &mut hedge {
                Some(hedge) => hedge.as_mut().poll(context).map(|()| AttemptStep::Silent),
                None => Poll::Pending,
            },
        }
    })
    .await
}

/// Hashes the beginning of a request: the part of it that an upstream may have cached.
///
/// The hasher has no random keys, so all gateways of one version choose alike.
fn hash_prefix(request: &Request) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_text(&request.system, &mut hasher);
    for tool in request.tools.iter() {
        tool.name.hash(&mut hasher);
    }
    // Later messages are added with every turn of a session, which must stay where it is.
    if let Some(first) = request.messages.first() {
        hash_message(first, &mut hasher);
    }
    hasher.finish()
}

/// Hashes the texts of a message.
fn hash_message(message: &Message, hasher: &mut DefaultHasher) {
    for part in &message.parts {
        if let MessagePart::Text { text } = part {
            hash_text(text, hasher);
        }
    }
}

/// Hashes the beginning of a text.
fn hash_text(text: &str, hasher: &mut DefaultHasher) {
    let bytes = text.as_bytes();
    bytes.get(..AFFINITY_BYTES).unwrap_or(bytes).hash(hasher);
}

#[cfg(test)]
mod tests {
    use sabir_model::Provider;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::empty_model::EmptyModel;

    /// A probe that always fails.
    struct FailingProbe;

    impl UpstreamProbe for FailingProbe {
        fn check_health(&self) -> ProbeFuture<'_> {
            Box::pin(async { false })
        }
    }

    fn upstream(name: &str, probe: Option<Arc<dyn UpstreamProbe>>) -> Upstream {
        Upstream {
            name: name.to_owned(),
            model: Arc::new(EmptyModel),
            id: "m".to_owned(),
            weight: 1,
            probe,
            client: None,
        }
    }

    fn group(upstreams: Vec<Upstream>, balance: BalancePolicy) -> UpstreamGroup {
        let rules = GroupRules {
            balance,
            ..GroupRules::default()
        };
        UpstreamGroup::new(upstreams, rules).unwrap()
    }

    #[tokio::test]
    async fn an_upstream_that_lost_its_probe_is_up_again() {
        let probed = vec![upstream("a", Some(Arc::new(FailingProbe)))];
        let earlier = group(probed.clone(), BalancePolicy::Order);
        earlier.probe_members().await;
        earlier.probe_members().await;
        assert!(!earlier.is_reachable());
        let same = group(probed, BalancePolicy::Order).inherit_states(&earlier);
        assert!(!same.is_reachable());
        let without = group(vec![upstream("a", None)], BalancePolicy::Order);
        assert!(without.inherit_states(&earlier).is_reachable());
    }
    #[test]
    fn loads_may_change_while_upstreams_are_chosen() {
        let upstreams = (0..200).map(|number| upstream(&number.to_string(), None));
        let group = group(upstreams.collect(), BalancePolicy::Least);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for member in &group.members {
                        let guards = [(); 3].map(|()| OutstandingGuard::begin(&member.state));
                        drop(guards);
                    }
                }
            });
            let chosen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..2000 {
                    assert_eq!(group.choose_order(0).len(), 200);
                }
            }));
            is_over.store(true, Ordering::Relaxed);
            chosen.unwrap();
        });
    }
    /// Serves this status to every request, and returns the client for it.
    async fn client_of_server(status: u16) -> Arc<ProviderClient> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                // The whole request is shorter than one packet.
                _ = stream.read(&mut head).await;
                let answer = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let provider = Provider::new("test", sabir_wire::Wire::OpenAiChat, &base, None);
        let limit = Duration::from_secs(30);
        Arc::new(ProviderClient::new(provider, limit, limit))
    }

    fn forwarded(method: &str) -> ForwardedRequest {
        ForwardedRequest {
            method: method.to_owned(),
            path: "/v1/embeddings".to_owned(),
            headers: Vec::new(),
            body: b"{}".to_vec(),
        }
    }

    #[tokio::test]
    async fn forwarded_requests_open_the_circuit_only_if_the_upstream_fails() {
        let with_client = |name: &str, client: Arc<ProviderClient>| Upstream {
            client: Some(client),
            ..upstream(name, None)
        };
        let works = client_of_server(200).await;
        for status in [302, 307, 401, 403, 404, 429, 500, 501, 502, 503, 504] {
            let first = with_client("a", client_of_server(status).await);
            let upstreams = vec![first, with_client("b", Arc::clone(&works))];
            let group = group(upstreams, BalancePolicy::Order);
            for _ in 0..4 {
                let answered = group.forward(&|_| forwarded("POST")).await;
                let (name, _, response) = answered.unwrap();
                assert_eq!((name.as_str(), response.status), ("b", 200), "{status}");
            }
            let is_available = group.members[0].state.is_available(Instant::now());
            assert_eq!(is_available, !(502..=504).contains(&status), "{status}");
        }
        let group = group(vec![with_client("b", works)], BalancePolicy::Order);
        for _ in 0..4 {
            let refused = group.forward(&|_| forwarded("NO METHOD")).await;
            assert!(matches!(
                refused.err(),
                Some(Some(ForwardError::Invalid { .. }))
            ));
        }
        assert!(group.members[0].state.is_available(Instant::now()));
    }
}
