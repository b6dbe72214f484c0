//! Implements a transport that records the traffic of another one in a cassette.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::redact as shapes;
use sabir_call::redact::RedactedPiece;
use serde_json::Value;

use crate::cassette::{
    CASSETTE_VERSION, CassetteLine, ExchangeEnd, RecordedBytes, RecordedProvider, RecordedRequest,
};
use crate::redact::{self, ProviderRedactor};
use crate::transport::{
    HttpRequest, HttpResponse, ResponseBody, Transport, TransportError, TransportFuture,
};

/// A writer of a cassette. Clones write to the same one.
#[derive(Clone)]
pub struct CassetteRecorder(Arc<RecorderState>);

/// The state that all clones of a recorder share.
struct RecorderState {
    /// The file.
    writer: Mutex<CassetteWriter>,
    /// The secrets of all models that are recorded.
    redactor: Mutex<Arc<ProviderRedactor>>,
    /// The redactors of unfinished command outputs, by call. Each holds back the end of its text.
    printed: Mutex<HashMap<String, shapes::Redactor>>,
}

/// The open file of a cassette.
struct CassetteWriter {
    /// The destination.
    file: Box<dyn Write + Send>,
    /// The number of requests so far, over all models.
    requests: usize,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

/// A transport that records another one.
pub(crate) struct RecordingTransport {
    /// The transport that does the work.
    inner: Arc<dyn Transport>,
    /// The recorder.
    recorder: CassetteRecorder,
}

/// The recording of one exchange. If it is dropped before the end, that is recorded as well.
struct RecordedExchange {
    /// The recorder.
    recorder: CassetteRecorder,
    /// The recorded transport, for its clock.
    clock: Arc<dyn Transport>,
    /// The number of the request, from 1.
    number: usize,
    /// Pieces whose end may be the beginning of one of the provider's secrets.
    held: Vec<(Duration, Vec<u8>)>,
    /// The redactor of known secret formats, which works with a delay, and the pieces that wait for it.
    shapes: shapes::Redactor,
    waiting: VecDeque<PendingPiece>,
    /// True once the end was written; there is only one.
    ended: bool,
}

/// A piece of a body during redaction.
struct PendingPiece {
    /// The time at which the piece arrived.
    at: Duration,
    /// The number of its bytes that the redactor has not decided about.
    undecided: usize,
    /// The redacted bytes.
    shown: Vec<u8>,
}

/// A body whose pieces are recorded on their way to the caller.
struct RecordedBody {
    /// The body.
    inner: Box<dyn ResponseBody>,
    /// The recording of its exchange.
    exchange: RecordedExchange,
}

impl CassetteRecorder {
    /// Writes the first line of a cassette.
    pub(crate) fn new(
        file: Box<dyn Write + Send>,
        redactor: ProviderRedactor,
        provider: RecordedProvider,
        task: Value,
    ) -> io::Result<Self> {
        let to = Mutex::new(CassetteWriter {
            file,
            requests: 0,
            error: None,
        });
        let recorder = Self(Arc::new(RecorderState {
            writer: to,
            redactor: Mutex::new(Arc::new(redactor)),
            printed: Mutex::default(),
        }));
        // The prompt of a task may hold a key that the user pasted.
        let task = serde_json::from_str(&recorder.redactor().redact_json(&task.to_string()))
            .unwrap_or_default();
        let by = concat!("sabir ", env!("CARGO_PKG_VERSION")).to_owned();
        recorder.write_line(&CassetteLine::Cassette {
            version: CASSETTE_VERSION,
            by,
            provider: Box::new(provider),
            task,
        });
        match recorder.error() {
            Some(error) => Err(io::Error::other(error)),
            None => Ok(recorder),
        }
    }

    /// Records a piece of a command's output. How it is cut into pieces depends on timing, so a
    /// replay needs the pieces.
    pub fn record_output(&self, call: &str, text: &str) {
        let text = self.redactor().redact_provider_secrets(text);
        let text = self
            .lock_outputs()
            .entry(call.to_owned())
            .or_default()
            .redact_piece(&text);
        self.write_output(call, text);
    }

    /// Records the result of a call that has printed something.
    pub fn record_result(&self, call: &str, content: &str) {
        let held = self
            .lock_outputs()
            .remove(call)
            .map(|mut held| held.finish_text());
        self.write_output(call, held.unwrap_or_default());
        let content = self.redactor().redact_text(content);
        self.write_line(&CassetteLine::Result {
            call: call.to_owned(),
            content,
        });
    }

    /// Returns the error after which nothing more was written. The cassette is complete only if
    /// this is `None` at the end.
    pub fn error(&self) -> Option<String> {
        self.lock_writer().error.as_ref().map(ToString::to_string)
    }

    /// Redacts these secrets from now on, too.
    pub(crate) fn add_secrets(&self, more: &ProviderRedactor) {
        let mut redactor = self
            .0
            .redactor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *redactor = Arc::new(redactor.merged_with(more));
    }

    /// Returns the current redactor. It is shared, so that no lock is held while it works.
    fn redactor(&self) -> Arc<ProviderRedactor> {
        Arc::clone(
            &self
                .0
                .redactor
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Locks the outputs of commands. A panic elsewhere does not stop the recording.
    fn lock_outputs(&self) -> MutexGuard<'_, HashMap<String, shapes::Redactor>> {
        self.0
            .printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a piece of output, unless all of it is still held back.
    fn write_output(&self, call: &str, text: String) {
        if !text.is_empty() {
            self.write_line(&CassetteLine::Output {
                call: call.to_owned(),
                text,
            });
        }
    }

    /// Locks the file.
    fn lock_writer(&self) -> MutexGuard<'_, CassetteWriter> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line. An error is kept for `error`.
    fn write_line(&self, line: &CassetteLine) {
        self.lock_writer().write_line(line);
    }

    /// Records a request, and returns its number.
    fn record_request(&self, at: Duration, post: &HttpRequest) -> usize {
        let redactor = self.redactor();
        let asked = RecordedRequest::new(post, &redactor);
        // One lock for both, so that the numbers are in the order of the lines.
        let mut writer = self.lock_writer();
        writer.requests += 1;
        let number = writer.requests;
        writer.write_line(&CassetteLine::Request {
            number,
            at: to_micros(at),
            method: "POST".to_owned(),
            path: asked.path,
            headers: asked.headers,
            body: asked.body,
        });
        number
    }

    /// Records the head of a response.
    fn record_response(&self, number: usize, at: Duration, response: &HttpResponse) {
        let headers = response.headers.iter();
        let headers = headers.map(|(name, value)| {
            (
                name.clone(),
                self.redactor()
                    .redact_text(&redact::redact_header(name, value)),
            )
        });
        let line = CassetteLine::Response {
            number,
            at: to_micros(at),
            status: response.status,
            headers: headers.collect(),
        };
        self.write_line(&line);
    }
}

impl CassetteWriter {
    /// Writes a line, unless an earlier one has failed: a gap would make the cassette unreadable.
    fn write_line(&mut self, line: &CassetteLine) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_vec(line)
            .map_err(io::Error::other)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                // Written in one piece, so that a crash tears the last line at most.
                self.file.write_all(&bytes)?;
                self.file.flush()
            });
        self.error = written.err();
    }
}

impl RecordingTransport {
    /// Makes a transport that records `inner`.
    pub(crate) fn new(inner: Arc<dyn Transport>, recorder: CassetteRecorder) -> Self {
        Self { inner, recorder }
    }
}

impl Transport for RecordingTransport {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn wait(&self, time: Duration) -> TransportFuture<'_, ()> {
        self.inner.wait(time)
    }

    fn send<'a>(
        &'a self,
        post: &'a HttpRequest,
        until: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>> {
        Box::pin(async move {
            // Recorded before it is sent, so that a crash leaves the request in the file.
            let number = self.recorder.record_request(self.now(), post);
            let mut exchange =
                RecordedExchange::new(self.recorder.clone(), Arc::clone(&self.inner), number);
            let response = self.inner.send(post, until).await;
            match response {
                Ok(response) => {
                    self.recorder.record_response(number, self.now(), &response);
                    let HttpResponse {
                        status,
                        headers,
                        body: inner,
                    } = response;
                    Ok(HttpResponse {
                        status,
                        headers,
                        body: Box::new(RecordedBody { inner, exchange }),
                    })
                }
                Err(loss) => {
                    exchange.record_end(ExchangeEnd::Lost(loss.kind), &loss.cause);
                    Err(loss)
                }
            }
        })
    }
}

impl ResponseBody for RecordedBody {
    fn next_chunk(
        &mut self,
        until: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>> {
        Box::pin(async move {
            let chunk = self.inner.next_chunk(until).await;
            match &chunk {
                Ok(Some(bytes)) => self.exchange.record_chunk(bytes),
                Ok(None) => self.exchange.record_end(ExchangeEnd::Complete, ""),
                Err(loss) => self
                    .exchange
                    .record_end(ExchangeEnd::Lost(loss.kind), &loss.cause),
            }
            chunk
        })
    }
}

impl RecordedExchange {
    /// Makes the recording of a request that was just written.
    fn new(recorder: CassetteRecorder, clock: Arc<dyn Transport>, number: usize) -> Self {
        Self {
            recorder,
            clock,
            number,
            held: Vec::new(),
            shapes: shapes::Redactor::default(),
            waiting: VecDeque::new(),
            ended: false,
        }
    }

    /// Records a piece of the body, once no secret can reach into it from the next one.
    fn record_chunk(&mut self, bytes: &[u8]) {
        self.held.push((self.clock.now(), bytes.to_vec()));
        let tail: Vec<u8> = self
            .held
            .iter()
            .flat_map(|(_, bytes)| bytes)
            .copied()
            .collect();
        // A secret may be split over two chunks; such chunks wait for the next one.
        if !self.recorder.redactor().ends_in_secret_prefix(&tail) {
            self.write_held();
        }
    }

    /// Redacts the held pieces, and writes those that are decided.
    fn write_held(&mut self) {
        let (moments, mut pieces): (Vec<_>, Vec<_>) = self.held.drain(..).unzip();
        self.recorder.redactor().redact_pieces(&mut pieces);
        for (at, bytes) in moments.into_iter().zip(&pieces) {
            self.waiting.push_back(PendingPiece {
                at,
                undecided: bytes.len(),
                shown: Vec::new(),
            });
            // This redactor returns bytes with a delay, so they are assigned to their pieces, which
            // have their times.
            self.shapes
                .push(bytes, &mut |piece| assign_piece(&mut self.waiting, piece));
        }
        self.write_decided();
    }

    /// Writes the pieces that are decided, in order.
    fn write_decided(&mut self) {
        while let Some(PendingPiece { at, shown, .. }) =
            self.waiting.pop_front_if(|piece| piece.undecided == 0)
        {
            let line = CassetteLine::Chunk {
                number: self.number,
                at: to_micros(at),
                bytes: RecordedBytes::encode(&shown),
            };
            self.recorder.write_line(&line);
        }
    }

    /// Records the end and everything that was held. Only the first end counts.
    fn record_end(&mut self, how: ExchangeEnd, cause: &str) {
        if self.ended {
            return;
        }
        self.ended = true;
        // No further piece can complete a secret.
        self.write_held();
        self.shapes
            .finish(&mut |piece| assign_piece(&mut self.waiting, piece));
        self.write_decided();
        let at = to_micros(self.clock.now());
        let cause = self.recorder.redactor().redact_text(cause);
        self.recorder.write_line(&CassetteLine::End {
            number: self.number,
            at,
            how,
            cause,
        });
    }
}

/// Assigns redacted bytes to the pieces in which they arrived. The mark that replaces a secret is in the piece in which the secret began.
fn assign_piece(waiting: &mut VecDeque<PendingPiece>, piece: RedactedPiece<'_>) {
    let (mut bytes, mut plain) = match piece {
        RedactedPiece::Plain(plain) => (plain.len(), plain),
        RedactedPiece::Secret { bytes, .. } | RedactedPiece::More(bytes) => (bytes, &b""[..]),
    };
    let mut sign = matches!(piece, RedactedPiece::Secret { .. });
    for waiting in waiting.iter_mut().filter(|waiting| waiting.undecided > 0) {
        if std::mem::take(&mut sign) {
            piece.write_to(&mut waiting.shown);
        }
        let here = bytes.min(waiting.undecided);
        let (now, later) = plain.split_at_checked(here).unwrap_or_default();
        waiting.shown.extend_from_slice(now);
        waiting.undecided -= here;
        bytes -= here;
        plain = later;
        if bytes == 0 {
            return;
        }
    }
}

impl Drop for RecordedExchange {
    fn drop(&mut self) {
        // Does nothing if the end was recorded already.
        self.record_end(ExchangeEnd::Dropped, "");
    }
}

/// Converts a time to the unit of the cassette, microseconds.
fn to_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for CassetteRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}
