//! The transport that records around another.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabir_call::redact as shapes;
use sabir_call::redact::Piece;
use serde_json::Value;

use crate::cassette::{Asked, Bytes, CASSETTE_VERSION, How, Line, Recorded};
use crate::redact::{self, Redactor};
use crate::transport::{Body, Loss, Post, Response, Transport, Work};

/// Writes a cassette. Clones write the same one.
#[derive(Clone)]
pub struct Recorder(Arc<Tape>);

struct Tape {
    to: Mutex<To>,
    redactor: Mutex<Arc<Redactor>>,
    /// What is held of the outputs of commands.
    printed: Mutex<HashMap<String, shapes::Redactor>>,
}

struct To {
    file: Box<dyn Write + Send>,
    requests: usize,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

/// A transport with a recorder around it.
pub(crate) struct Recording {
    inner: Arc<dyn Transport>,
    recorder: Recorder,
}

/// One exchange, as far as it has been recorded. Dropped before its end it says so.
struct Exchange {
    recorder: Recorder,
    clock: Arc<dyn Transport>,
    number: usize,
    /// Pieces that may end in the beginning of one of the provider's secrets.
    held: Vec<(Duration, Vec<u8>)>,
    /// What is known of shapes of secrets, and the pieces that wait for it.
    shapes: shapes::Redactor,
    waiting: VecDeque<Waiting>,
    ended: bool,
}

/// A piece of a body while it is looked through.
struct Waiting {
    at: Duration,
    /// How many of its bytes have not been decided about.
    undecided: usize,
    /// What is written of it.
    shown: Vec<u8>,
}

struct RecordedBody {
    inner: Box<dyn Body>,
    exchange: Exchange,
}

impl Recorder {
    /// Begins a cassette.
    pub(crate) fn new(
        file: Box<dyn Write + Send>,
        redactor: Redactor,
        provider: Recorded,
        task: Value,
    ) -> io::Result<Self> {
        let to = Mutex::new(To { file, requests: 0, error: None });
        let recorder = Self(Arc::new(Tape { to, redactor: Mutex::new(Arc::new(redactor)), printed: Mutex::default() }));
        let task = serde_json::from_str(&recorder.redactor().json(&task.to_string())).unwrap_or_default();
        let by = concat!("sabir ", env!("CARGO_PKG_VERSION")).to_owned();
        recorder.write(&Line::Cassette { version: CASSETTE_VERSION, by, provider: Box::new(provider), task });
        match recorder.error() {
            Some(error) => Err(io::Error::other(error)),
            None => Ok(recorder),
        }
    }

    /// Notes a piece of a command's output. How it is cut into pieces depends on the machine's mood, so that a replay needs it.
    pub fn output(&self, call: &str, text: &str) {
        let text = self.redactor().known(text);
        let text = self.printed().entry(call.to_owned()).or_default().text(&text);
        self.write_output(call, text);
    }

    /// Notes the result of a call that has printed something.
    pub fn result(&self, call: &str, content: &str) {
        let held = self.printed().remove(call).map(|mut held| held.rest());
        self.write_output(call, held.unwrap_or_default());
        let content = self.redactor().text(content);
        self.write(&Line::Result { call: call.to_owned(), content });
    }

    /// Why nothing more is written: the cassette is whole only if this is `None` in the end.
    pub fn error(&self) -> Option<String> {
        self.to().error.as_ref().map(ToString::to_string)
    }

    /// Leaves these secrets out, too.
    pub(crate) fn learn(&self, more: &Redactor) {
        let mut redactor = self.0.redactor.lock().unwrap_or_else(PoisonError::into_inner);
        *redactor = Arc::new(redactor.with(more));
    }

    fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.0.redactor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn printed(&self) -> MutexGuard<'_, HashMap<String, shapes::Redactor>> {
        self.0.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_output(&self, call: &str, text: String) {
        if !text.is_empty() {
            self.write(&Line::Output { call: call.to_owned(), text });
        }
    }

    fn to(&self) -> MutexGuard<'_, To> {
        self.0.to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, line: &Line) {
        self.to().write(line);
    }

    /// Notes a request, and says its number.
    fn request(&self, at: Duration, post: &Post) -> usize {
        let redactor = self.redactor();
        let asked = Asked::new(post, &redactor);
        let mut to = self.to();
        to.requests += 1;
        let (number, at, method) = (to.requests, micros(at), "POST".to_owned());
        to.write(&Line::Request { number, at, method, path: asked.path, headers: asked.headers, body: asked.body });
        number
    }

    fn response(&self, number: usize, at: Duration, response: &Response) {
        let headers = response.headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), self.redactor().text(&redact::header(name, value))));
        let line = Line::Response { number, at: micros(at), status: response.status, headers: headers.collect() };
        self.write(&line);
    }
}

impl To {
    fn write(&mut self, line: &Line) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_vec(line).map_err(io::Error::other).and_then(|mut bytes| {
            bytes.push(b'\n');
            // In one piece, so that a crash tears the last line at most.
            self.file.write_all(&bytes)?;
            self.file.flush()
        });
        self.error = written.err();
    }
}

impl Recording {
    pub(crate) fn new(inner: Arc<dyn Transport>, recorder: Recorder) -> Self {
        Self { inner, recorder }
    }
}

impl Transport for Recording {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn wait(&self, time: Duration) -> Work<'_, ()> {
        self.inner.wait(time)
    }

    fn send<'a>(&'a self, post: &'a Post, until: Duration) -> Work<'a, Result<Response, Loss>> {
        Box::pin(async move {
            let number = self.recorder.request(self.now(), post);
            let (recorder, clock) = (self.recorder.clone(), Arc::clone(&self.inner));
            let mut exchange = Exchange::new(recorder, clock, number);
            let response = self.inner.send(post, until).await;
            match response {
                Ok(response) => {
                    self.recorder.response(number, self.now(), &response);
                    let Response { status, headers, body: inner } = response;
                    Ok(Response { status, headers, body: Box::new(RecordedBody { inner, exchange }) })
                }
                Err(loss) => {
                    exchange.end(How::Lost(loss.kind), &loss.cause);
                    Err(loss)
                }
            }
        })
    }
}

impl Body for RecordedBody {
    fn chunk(&mut self, until: Duration) -> Work<'_, Result<Option<Vec<u8>>, Loss>> {
        Box::pin(async move {
            let chunk = self.inner.chunk(until).await;
            match &chunk {
                Ok(Some(bytes)) => self.exchange.chunk(bytes),
                Ok(None) => self.exchange.end(How::Complete, ""),
                Err(loss) => self.exchange.end(How::Lost(loss.kind), &loss.cause),
            }
            chunk
        })
    }
}

impl Exchange {
    fn new(recorder: Recorder, clock: Arc<dyn Transport>, number: usize) -> Self {
        let (held, shapes, waiting) = (Vec::new(), shapes::Redactor::default(), VecDeque::new());
        Self { recorder, clock, number, held, shapes, waiting, ended: false }
    }

    fn chunk(&mut self, bytes: &[u8]) {
        self.held.push((self.clock.now(), bytes.to_vec()));
        let tail: Vec<u8> = self.held.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        if !self.recorder.redactor().may_go_on(&tail) {
            self.release();
        }
    }

    /// Looks through what was held, and writes what is certain.
    fn release(&mut self) {
        let (moments, mut pieces): (Vec<_>, Vec<_>) = self.held.drain(..).unzip();
        self.recorder.redactor().pieces(&mut pieces);
        for (at, bytes) in moments.into_iter().zip(&pieces) {
            self.waiting.push_back(Waiting { at, undecided: bytes.len(), shown: Vec::new() });
            self.shapes.push(bytes, &mut |piece| decide(&mut self.waiting, piece));
        }
        self.write_decided();
    }

    fn write_decided(&mut self) {
        while let Some(Waiting { at, shown, .. }) = self.waiting.pop_front_if(|piece| piece.undecided == 0) {
            let line = Line::Chunk { number: self.number, at: micros(at), bytes: Bytes::write(&shown) };
            self.recorder.write(&line);
        }
    }

    fn end(&mut self, how: How, cause: &str) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.release();
        self.shapes.end(&mut |piece| decide(&mut self.waiting, piece));
        self.write_decided();
        let (at, cause) = (micros(self.clock.now()), self.recorder.redactor().text(cause));
        self.recorder.write(&Line::End { number: self.number, at, how, cause });
    }
}

/// Hands what was decided to the pieces in which it came. What stands for a secret is in the piece where it began.
fn decide(waiting: &mut VecDeque<Waiting>, piece: Piece<'_>) {
    let (mut bytes, mut plain) = match piece {
        Piece::Plain(plain) => (plain.len(), plain),
        Piece::Secret { bytes, .. } | Piece::More(bytes) => (bytes, &b""[..]),
    };
    let mut sign = matches!(piece, Piece::Secret { .. });
    for waiting in waiting.iter_mut().filter(|waiting| waiting.undecided > 0) {
        if std::mem::take(&mut sign) {
            piece.write(&mut waiting.shown);
        }
        let here = bytes.min(waiting.undecided);
        let (now, later) = plain.split_at_checked(here).unwrap_or_default();
        waiting.shown.extend_from_slice(now);
        waiting.undecided -= here;
        (bytes, plain) = (bytes - here, later);
        if bytes == 0 {
            return;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(How::Dropped, "");
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}
