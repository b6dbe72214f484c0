//! The transport that is a recording: no network, no key, and a clock that moves only by what was recorded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cassette::{Answered, Asked, Cassette, Exchange, How};
use crate::difference::differences;
use crate::redact::Redactor;
use crate::transport::{Body, Loss, LossKind, Post, Response, Transport, Work};

/// What came in time when it was recorded comes in time again, even if the recorder's moments say it was late by so much.
const SLACK: Duration = Duration::from_millis(100);

/// A recording that is played. Clones play the same one.
#[derive(Clone)]
pub struct Player(Arc<Playing>);

struct Playing {
    exchanges: Vec<Exchange>,
    state: Mutex<State>,
    on_dropped: Mutex<Option<Box<dyn Fn() + Send>>>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// How many requests were asked.
    asked: usize,
}

struct PlayedBody {
    player: Player,
    number: usize,
    /// The moment of the request, by the clock and in the recording.
    begun: (Duration, Duration),
    next: usize,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Player")
    }
}

impl Player {
    pub(crate) fn new(cassette: &Cassette) -> Self {
        let exchanges = cassette.exchanges.clone();
        Self(Arc::new(Playing { exchanges, state: Mutex::default(), on_dropped: Mutex::default() }))
    }

    /// How many of the recorded requests have not been asked.
    pub fn left(&self) -> usize {
        self.0.exchanges.len().saturating_sub(self.state().asked)
    }

    /// Calls `tell` where the recorded task stopped listening: it was interrupted, or its time was up. The answer goes no further.
    pub fn on_dropped(&self, tell: impl Fn() + Send + 'static) {
        *self.0.on_dropped.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the clock to a moment, unless another moment comes before.
    fn reach(&self, moment: Duration, until: Duration) -> Result<(), Loss> {
        let mut state = self.state();
        let late = moment > until.saturating_add(SLACK);
        state.now = state.now.max(moment.min(until));
        if late { Err(Loss::silent()) } else { Ok(()) }
    }

    /// Plays the end of an exchange.
    async fn end(&self, number: usize, begun: (Duration, Duration), until: Duration) -> Result<(), Loss> {
        let end = self.0.exchanges.get(number).and_then(|exchange| exchange.end.as_ref());
        let Some((at, how, cause)) = end else {
            let words = format!("the recording breaks off in the answer to request {}", number + 1);
            return Err(Loss::new(LossKind::Cassette, words));
        };
        match how {
            How::Lost(LossKind::Silent) => {
                let mut state = self.state();
                state.now = state.now.max(until);
                Err(Loss::silent())
            }
            How::Complete => self.reach(due(*at, begun), until),
            How::Lost(kind) => self.reach(due(*at, begun), until).and(Err(Loss::new(*kind, cause.as_str()))),
            How::Dropped => {
                if let Some(tell) = self.0.on_dropped.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    tell();
                }
                std::future::pending().await
            }
        }
    }

    async fn play(&self, post: &Post, until: Duration) -> Result<Response, Loss> {
        let (number, now) = {
            let mut state = self.state();
            state.asked += 1;
            (state.asked - 1, state.now)
        };
        let Some(exchange) = self.0.exchanges.get(number) else {
            let (count, asked) = (self.0.exchanges.len(), number + 1);
            let words =
                format!("the recording holds {count} requests, and this would be request {asked}; nothing was sent");
            return Err(Loss::new(LossKind::Cassette, words));
        };
        same(number + 1, &exchange.asked, &Asked::new(post, &Redactor::default()))?;
        let begun = (now, exchange.at);
        let Some(Answered { at, status, headers }) = &exchange.response else {
            self.end(number, begun, until).await?;
            return Err(Loss::new(LossKind::Cassette, format!("request {} has no response", number + 1)));
        };
        self.reach(due(*at, begun), until)?;
        let body = PlayedBody { player: self.clone(), number, begun, next: 0 };
        Ok(Response { status: *status, headers: headers.clone(), body: Box::new(body) })
    }
}

impl Transport for Player {
    fn now(&self) -> Duration {
        self.state().now
    }

    fn wait(&self, time: Duration) -> Work<'_, ()> {
        let mut state = self.state();
        state.now = state.now.saturating_add(time);
        Box::pin(std::future::ready(()))
    }

    fn send<'a>(&'a self, post: &'a Post, until: Duration) -> Work<'a, Result<Response, Loss>> {
        Box::pin(self.play(post, until))
    }
}

impl Body for PlayedBody {
    fn chunk(&mut self, until: Duration) -> Work<'_, Result<Option<Vec<u8>>, Loss>> {
        Box::pin(async move {
            let chunks = self.player.0.exchanges.get(self.number).map(|exchange| &exchange.chunks);
            let Some((at, bytes)) = chunks.and_then(|chunks| chunks.get(self.next)) else {
                return self.player.end(self.number, self.begun, until).await.map(|()| None);
            };
            self.player.reach(due(*at, self.begun), until)?;
            self.next += 1;
            Ok(Some(bytes.clone()))
        })
    }
}

/// When something is due by the clock that came at that moment of the recording.
fn due(at: Duration, (now, begun): (Duration, Duration)) -> Duration {
    now.saturating_add(at.saturating_sub(begun))
}

/// Whether a request is the recorded one.
fn same(number: usize, recorded: &Asked, asked: &Asked) -> Result<(), Loss> {
    let all = differences(&recorded.value(), &asked.value());
    let Some(first) = all.first() else { return Ok(()) };
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => " (and in one more place)".to_owned(),
        more => format!(" (and in {more} more places)"),
    };
    let words = format!(
        "request {number} is not the recorded one at {}{more}: expected {}, found {}; nothing was sent",
        first.path, first.expected, first.found
    );
    Err(Loss::new(LossKind::Cassette, words))
}
