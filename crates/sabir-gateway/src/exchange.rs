//! One exchange: a client's request, asked of the model that it names, and its answer on the client's wire.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use sabir_call::dialect::dialect;
use sabir_call::{Answer as ModelAnswer, Draft, Event, ModelError, Protocol, Request, Sink, render_request};
use sabir_wire::{Encoder, Head, Incoming, Wire};

use crate::answer::{Answer, Page, Work};
use crate::error::Refusal;
use crate::ledger::Ledger;
use crate::mend::{Diary, Mender, Next, Taken};
use crate::note::Note;
use crate::route::{Back, Route};
use crate::serve::Gateway;

/// The header with which a client asks for a report of what was done about its answer, and in which it gets one.
pub(crate) const REPORT: &str = "sabir-report";

/// What is known of an exchange from its start.
pub(crate) struct Exchange {
    pub(crate) gateway: Gateway,
    pub(crate) front: Wire,
    pub(crate) ledger: Ledger,
    /// Whether the client wants to be told what was done about the answer.
    pub(crate) report: bool,
}

/// A request that was understood, and who is to answer it.
struct Asking {
    request: Request,
    route: Arc<Route>,
    head: Head,
}

impl Exchange {
    /// Answers a request that came to this path.
    pub(crate) async fn answer(self, path: &str, body: Bytes) -> Result<Response, Refusal> {
        let (asking, streamed) = self.asking(path, &body)?;
        drop(body);
        self.begin(asking, streamed).await
    }

    fn asking(&self, path: &str, body: &[u8]) -> Result<(Asking, bool), Refusal> {
        let incoming = self.front.decode_request(path, body).map_err(Refusal::Request)?;
        self.ledger.asked(&incoming.request.model);
        let routes = self.gateway.routes();
        let route = routes.find(&incoming.request.model).ok_or_else(|| routes.unknown(&incoming.request.model))?;
        let created = (self.gateway.settings().clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let head = incoming.head(self.ledger.id(), created);
        let Incoming { mut request, streamed, notes, .. } = incoming;
        for note in &notes {
            self.ledger.note(Note::LeftOut { path: &note.path, what: &note.message });
        }
        request.model.clone_from(&route.id);
        request.protocol = route.protocol.clone();
        self.tell_taught(&request);
        self.weigh(&request, &route)?;
        Ok((Asking { request, route, head }, streamed))
    }

    fn tell_taught(&self, request: &Request) {
        if let Protocol::Prompted(name) = &request.protocol
            && let Some(dialect) = dialect(name)
        {
            let prompt = render_request(&Request { messages: Vec::new().into(), ..request.clone() }, dialect).system;
            // Without tools there is nothing to teach.
            if prompt != request.system.trim_end() {
                self.ledger.note(Note::Taught { dialect: name, prompt: &prompt });
            }
        }
    }

    /// Tells what the provider has no words for, or refuses what may not be left out.
    fn weigh(&self, request: &Request, route: &Route) -> Result<(), Refusal> {
        let Some(Back { wire, form }) = &route.back else { return Ok(()) };
        let rendered = match &request.protocol {
            Protocol::Prompted(name) => dialect(name).map(|dialect| render_request(request, dialect)),
            Protocol::Native => None,
        };
        let notes = wire.weigh(rendered.as_ref().unwrap_or(request), form).map_err(Refusal::Request)?;
        for note in &notes {
            self.ledger.note(Note::LeftOut { path: &note.path, what: &note.message });
        }
        Ok(())
    }

    async fn begin(self, asking: Asking, streamed: bool) -> Result<Response, Refusal> {
        let page = Page::default();
        let (front, limits) = (self.front, self.gateway.settings().limits);
        let work: Work = if streamed {
            Box::pin(self.stream(asking, page.clone()))
        } else {
            Box::pin(self.whole(asking, page.clone()))
        };
        let answer = Answer::new(page, work).begun().await?;
        let (kind, ping) = if streamed { (front.stream_type(), ping(front)) } else { ("application/json", "") };
        let mut response = Response::new(Body::new(answer.pinging(ping, limits.ping)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if streamed {
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        Ok(response)
    }

    async fn stream(self, asking: Asking, page: Page) {
        let Asking { request, route, head } = asking;
        let encoder = Encoder::new(self.front, head);
        let mut written = Streamed { encoder, page: page.clone(), ledger: self.ledger.clone(), begun: None };
        let tell = |note: Note<'_>| self.ledger.note(note);
        // A line of JSON holds a call, whether more lines follow or not.
        let taken = if self.front.stream_type() == "text/event-stream" { Taken::InPieces } else { Taken::Whole };
        let (result, report) = ask(&request, &route, taken, Diary::new(&tell), &mut written).await;
        let failure = result.err().map(Refusal::Failed);
        let Streamed { mut encoder, begun, .. } = written;
        if self.report && (begun.is_some() || failure.is_none()) {
            page.write(|out| encoder.remark(REPORT, &report, out));
        } else if self.report {
            self.ledger.report(report);
        }
        match failure {
            Some(refusal) if begun.is_none() => page.refuse(refusal),
            Some(refusal) => {
                self.ledger.failed(&refusal);
                page.write(|out| encoder.error(&refusal.told(), out));
            }
            None => {
                let took = self.ledger.elapsed();
                encoder.took(took, begun.map_or(Duration::ZERO, |begun| took.saturating_sub(begun)));
                page.write(|out| encoder.finish(out));
                self.ledger.done();
            }
        }
    }

    async fn whole(self, asking: Asking, page: Page) {
        let Asking { request, route, mut head } = asking;
        let mut drafted = Drafted { draft: Draft::default(), ledger: self.ledger.clone(), begun: None };
        let tell = |note: Note<'_>| self.ledger.note(note);
        let (result, report) = ask(&request, &route, Taken::Whole, Diary::new(&tell), &mut drafted).await;
        if self.report {
            self.ledger.report(report);
        }
        if let Err(error) = result {
            return page.refuse(Refusal::Failed(error));
        }
        head.took = self.ledger.elapsed();
        head.spoke = drafted.begun.map_or(Duration::ZERO, |begun| head.took.saturating_sub(begun));
        let body = self.front.encode_whole(&head, &drafted.draft).to_string();
        page.write(|out| out.extend_from_slice(body.as_bytes()));
        self.ledger.done();
    }
}

/// Asks, as often as the route's mending says, and mends what comes. Gives back what was done, for the client's report.
async fn ask<S: Sink + Send>(
    request: &Request,
    route: &Route,
    taken: Taken,
    diary: Diary<'_>,
    out: &mut S,
) -> (Result<(), ModelError>, String) {
    let mut mender = Mender::new(request, route.mending, taken, diary, |event: Event<'_>| out.event(event));
    let mut asked = Cow::Borrowed(request);
    let result = loop {
        let over = mender.over();
        let result = listen(route.model.answer(&asked, &mut mender), &over).await;
        match mender.ended(&asked, result) {
            Next::Done => break Ok(()),
            Next::Failed(error) => break Err(error),
            Next::Ask(next) => asked = Cow::Owned(*next),
        }
    };
    (result, mender.report())
}

/// Takes an answer, up to where nothing more of it is wanted: the rest is not waited for.
async fn listen(mut answer: ModelAnswer<'_>, over: &AtomicBool) -> Result<(), ModelError> {
    std::future::poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        if over.load(Ordering::Relaxed) { Poll::Ready(Ok(())) } else { polled }
    })
    .await
}

/// A sink that writes a stream.
struct Streamed {
    encoder: Encoder,
    page: Page,
    ledger: Ledger,
    /// When the first of it was written, from the start of the exchange.
    begun: Option<Duration>,
}

impl Sink for Streamed {
    fn event(&mut self, event: Event<'_>) {
        let Self { encoder, page, ledger, begun } = self;
        ledger.event(&event);
        page.write(|out| {
            let before = out.len();
            encoder.event(event, out);
            if begun.is_none() && out.len() > before {
                *begun = Some(ledger.elapsed());
            }
        });
    }
}

/// A sink that keeps everything until the end.
struct Drafted {
    draft: Draft,
    ledger: Ledger,
    /// When the first of it came, from the start of the exchange.
    begun: Option<Duration>,
}

impl Sink for Drafted {
    fn event(&mut self, event: Event<'_>) {
        self.ledger.event(&event);
        let says = matches!(event, Event::Text { .. } | Event::Thought { .. } | Event::CallStart { .. });
        if says && self.begun.is_none() {
            self.begun = Some(self.ledger.elapsed());
        }
        self.draft.event(event);
    }
}

/// A sign of life that clients of that wire skip; lines of JSON have none.
fn ping(front: Wire) -> &'static str {
    match front.stream_type() {
        "text/event-stream" if front == Wire::Anthropic => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "text/event-stream" => ": ping\n\n",
        _ => "",
    }
}
