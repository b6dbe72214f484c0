//! Implements a transport that replays a recording: no network, no key, and a clock that follows
//! the recorded times.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cassette::{Cassette, CassetteExchange, ExchangeEnd, RecordedRequest, ResponseHead};
use crate::difference::find_differences;
use crate::redact::ProviderRedactor;
use crate::transport::{
    HttpRequest, HttpResponse, ResponseBody, Transport, TransportError, TransportErrorKind,
    TransportFuture,
};

/// The tolerance for deadlines: the recorder's times are slightly later than those of the deadline's clock, and a chunk that arrived in
/// time must do so again.
const DEADLINE_SLACK: Duration = Duration::from_millis(100);

/// A recording during replay. Clones share their position.
#[derive(Clone)]
pub struct CassettePlayer(Arc<SharedPlayback>);

/// The state that all clones of a player share.
struct SharedPlayback {
    /// The recorded exchanges, in the order of their requests.
    exchanges: Vec<CassetteExchange>,
    /// The position.
    state: Mutex<PlaybackState>,
    /// Called where the recorded caller stopped reading.
    on_dropped: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// The position in a recording.
#[derive(Debug, Default)]
struct PlaybackState {
    /// The time of the replay's clock. It never goes back.
    now: Duration,
    /// The number of requests so far.
    requests: usize,
}

/// The time of a request.
#[derive(Clone, Copy)]
struct RequestTime {
    /// The time by the replay's clock.
    replayed: Duration,
    /// The time in the recording.
    recorded: Duration,
}

impl RequestTime {
    /// Converts a time of the recording to a time of the replay's clock.
    fn due_at(self, at: Duration) -> Duration {
        self.replayed
            .saturating_add(at.saturating_sub(self.recorded))
    }
}

/// A recorded body.
struct ReplayedBody {
    /// The player, for its clock.
    player: CassettePlayer,
    /// The index of the exchange, from 0.
    number: usize,
    /// The time of its request.
    begun: RequestTime,
    /// The index of the next chunk.
    next: usize,
}

impl std::fmt::Debug for CassettePlayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Player")
    }
}

impl CassettePlayer {
    /// Makes a player at the beginning of a recording.
    pub(crate) fn new(cassette: &Cassette) -> Self {
        let exchanges = cassette.exchanges.clone();
        Self(Arc::new(SharedPlayback {
            exchanges,
            state: Mutex::default(),
            on_dropped: Mutex::default(),
        }))
    }

    /// Returns the number of recorded requests that were not made yet.
    pub fn remaining_requests(&self) -> usize {
        self.0
            .exchanges
            .len()
            .saturating_sub(self.lock_state().requests)
    }

    /// Calls `tell` where the recorded task stopped reading, because it was interrupted or its time
    /// was up. The response does not continue after that.
    pub fn on_dropped(&self, tell: impl Fn() + Send + 'static) {
        *self
            .0
            .on_dropped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
    }

    /// Locks the position.
    fn lock_state(&self) -> MutexGuard<'_, PlaybackState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the clock to a moment, or to `until` if that is earlier, which is an error.
    fn advance_clock(&self, moment: Duration, until: Duration) -> Result<(), TransportError> {
        let mut state = self.lock_state();
        let late = moment > until.saturating_add(DEADLINE_SLACK);
        // The clock stops at the deadline, where the caller gives up.
        state.now = state.now.max(moment.min(until));
        if late {
            Err(TransportError::timed_out())
        } else {
            Ok(())
        }
    }

    /// Replays the end of an exchange.
    async fn play_end(
        &self,
        number: usize,
        begun: RequestTime,
        until: Duration,
    ) -> Result<(), TransportError> {
        let end = self
            .0
            .exchanges
            .get(number)
            .and_then(|exchange| exchange.end.as_ref());
        let Some((at, how, cause)) = end else {
            let words = format!(
                "the recording breaks off in the answer to request {}",
                number + 1
            );
            return Err(TransportError::new(TransportErrorKind::Cassette, words));
        };
        match how {
            // The recorded deadline passed, so the replayed one does too, at its own time.
            ExchangeEnd::Lost(TransportErrorKind::Silent) => {
                let mut state = self.lock_state();
                state.now = state.now.max(until);
                Err(TransportError::timed_out())
            }
            ExchangeEnd::Complete => self.advance_clock(begun.due_at(*at), until),
            ExchangeEnd::Lost(kind) => self
                .advance_clock(begun.due_at(*at), until)
                .and(Err(TransportError::new(*kind, cause.as_str()))),
            ExchangeEnd::Dropped => {
                if let Some(tell) = self
                    .0
                    .on_dropped
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .as_ref()
                {
                    tell();
                }
                // The caller drops this future, as the recorded caller did.
                std::future::pending().await
            }
        }
    }

    /// Replays the head of the response to the next recorded request.
    ///
    /// # Errors
    /// Another request than the recorded one, a recorded failure, or a passed deadline.
    async fn play_response(
        &self,
        post: &HttpRequest,
        until: Duration,
    ) -> Result<HttpResponse, TransportError> {
        // Responses are chosen by the order of the requests, not by content, so that a repeated
        // request gets its own response.
        let (number, now) = {
            let mut state = self.lock_state();
            state.requests += 1;
            (state.requests - 1, state.now)
        };
        let Some(exchange) = self.0.exchanges.get(number) else {
            let count = self.0.exchanges.len();
            let asked = number + 1;
            let words = format!(
                "the recording holds {count} requests, and this would be request {asked}; nothing was sent"
            );
            return Err(TransportError::new(TransportErrorKind::Cassette, words));
        };
        // Another request than the recorded one would make the rest of the recording wrong.
        check_request(
            number + 1,
            &exchange.request,
            &RecordedRequest::new(post, &ProviderRedactor::default()),
        )?;
        let begun = RequestTime {
            replayed: now,
            recorded: exchange.at,
        };
        let Some(ResponseHead {
            at,
            status,
            headers,
        }) = &exchange.response
        else {
            self.play_end(number, begun, until).await?;
            return Err(TransportError::new(
                TransportErrorKind::Cassette,
                format!("request {} has no response", number + 1),
            ));
        };
        self.advance_clock(begun.due_at(*at), until)?;
        let body = ReplayedBody {
            player: self.clone(),
            number,
            begun,
            next: 0,
        };
        Ok(HttpResponse {
            status: *status,
            headers: headers.clone(),
            body: Box::new(body),
        })
    }
}

impl Transport for CassettePlayer {
    fn now(&self) -> Duration {
        self.lock_state().now
    }

    fn wait(&self, time: Duration) -> TransportFuture<'_, ()> {
        let mut state = self.lock_state();
        // No real wait: a replay of hours takes seconds.
        state.now = state.now.saturating_add(time);
        Box::pin(std::future::ready(()))
    }

    fn send<'a>(
        &'a self,
        post: &'a HttpRequest,
        until: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>> {
        Box::pin(self.play_response(post, until))
    }
}

impl ResponseBody for ReplayedBody {
    fn next_chunk(
        &mut self,
        until: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>> {
        Box::pin(async move {
            let chunks = self
                .player
                .0
                .exchanges
                .get(self.number)
                .map(|exchange| &exchange.chunks);
            let Some((at, bytes)) = chunks.and_then(|chunks| chunks.get(self.next)) else {
                return self
                    .player
                    .play_end(self.number, self.begun, until)
                    .await
                    .map(|()| None);
            };
            self.player.advance_clock(self.begun.due_at(*at), until)?;
            self.next += 1;
            Ok(Some(bytes.clone()))
        })
    }
}

/// Returns an error if a request is not the recorded one.
fn check_request(
    number: usize,
    recorded: &RecordedRequest,
    asked: &RecordedRequest,
) -> Result<(), TransportError> {
    let all = find_differences(&recorded.comparable_value(), &asked.comparable_value());
    let Some(first) = all.first() else {
        return Ok(());
    };
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => " (and in one more place)".to_owned(),
        more => format!(" (and in {more} more places)"),
    };
    let words = format!(
        "request {number} is not the recorded one at {}{more}: expected {}, found {}; nothing was sent",
        first.path, first.expected, first.found
    );
    Err(TransportError::new(TransportErrorKind::Cassette, words))
}
