//! One exchange: a client's request, asked of the model that it names, and its answer on the client's wire.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::UNIX_EPOCH;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use sabir_call::dialect::dialect;
use sabir_call::{Answer as ModelAnswer, Draft, Event, ModelError, Protocol, Request, Sink, Usage, render_request};
use sabir_wire::{Encoder, Head, Incoming, Wire};
use tokio::time::Instant;

use crate::answer::{Answer, Page, Work};
use crate::error::Refusal;
use crate::mend::{Diary, Mender, Next};
use crate::note::{Ended, Note};
use crate::route::Route;
use crate::serve::Gateway;

/// The header with which a client asks for a report of what was done about its answer, and in which it gets one.
pub(crate) const REPORT: &str = "sabir-report";

/// What is known of an exchange from its start.
pub(crate) struct Exchange {
    pub(crate) gateway: Gateway,
    pub(crate) id: String,
    pub(crate) front: Wire,
    pub(crate) start: Instant,
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
    pub(crate) async fn answer(self, path: &str, body: Bytes) -> Response {
        let front = self.front;
        let mut model = String::new();
        let answer = match self.asking(path, &body) {
            Ok((asking, streamed)) => {
                drop(body);
                model.clone_from(&asking.head.model);
                self.begin(asking, streamed).await
            }
            Err(refusal) => Err((self, refusal)),
        };
        answer.unwrap_or_else(|(exchange, refusal)| {
            exchange.ended(&model, refusal.status().as_u16(), &Tally::default(), Some(&refusal.to_string()));
            refusal.response(Some(front))
        })
    }

    fn asking(&self, path: &str, body: &[u8]) -> Result<(Asking, bool), Refusal> {
        let Incoming { mut request, streamed } = self.front.decode_request(path, body).map_err(Refusal::Request)?;
        let routes = self.gateway.routes();
        let route = routes.find(&request.model).ok_or_else(|| {
            let known = routes.names().collect::<Vec<_>>().join(", ");
            Refusal::Model(request.model.chars().take(100).collect(), known)
        })?;
        let created = (self.gateway.settings().clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let head = Head { id: self.id.clone(), model: request.model.clone(), created };
        request.model.clone_from(&route.id);
        request.protocol = route.protocol.clone();
        self.tell_taught(&request);
        Ok((Asking { request, route, head }, streamed))
    }

    fn tell_taught(&self, request: &Request) {
        if let Protocol::Prompted(name) = &request.protocol
            && let Some(dialect) = dialect(name)
        {
            let prompt = render_request(&Request { messages: Vec::new(), ..request.clone() }, dialect).system;
            self.note(Note::Taught { dialect: name, prompt: &prompt });
        }
    }

    async fn begin(self, asking: Asking, streamed: bool) -> Result<Response, (Self, Refusal)> {
        let page = Page::default();
        let (front, limits) = (self.front, self.gateway.settings().limits);
        let again = Self { gateway: self.gateway.clone(), id: self.id.clone(), ..self };
        let work: Work = if streamed {
            Box::pin(self.stream(asking, page.clone()))
        } else {
            Box::pin(self.whole(asking, page.clone()))
        };
        let answer = Answer::new(page, work).begun().await.map_err(|refusal| (again, refusal))?;
        let (kind, ping) = if streamed { (front.stream_type(), ping(front)) } else { ("application/json", "") };
        let report = answer.report();
        let mut response = Response::new(Body::new(answer.pinging(ping, limits.ping)));
        if let Some(report) = report.and_then(|report| HeaderValue::try_from(report).ok()) {
            response.headers_mut().insert(REPORT, report);
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if streamed {
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        Ok(response)
    }

    async fn stream(self, asking: Asking, page: Page) {
        let Asking { request, route, head } = asking;
        let model = head.model.clone();
        let mut written =
            Streamed { encoder: Encoder::new(self.front, head), page: page.clone(), tally: Tally::default() };
        let tell = |note: Note<'_>| self.note(note);
        let (result, report) = ask(&request, &route, Diary::new(&tell), &mut written).await;
        let failure = result.err();
        let Streamed { mut encoder, tally, .. } = written;
        if self.report && tally.first.is_some() {
            page.write(|out| out.extend_from_slice(comment(self.front, &report).as_bytes()));
        }
        match &failure {
            Some(error) if tally.first.is_none() => return page.refuse(Refusal::Failed(error.clone())),
            Some(error) => page.write(|out| encoder.error(&Refusal::Failed(error.clone()).told(), out)),
            None => page.write(|out| encoder.finish(out)),
        }
        self.ended(&model, 200, &tally, failure.as_ref().map(|error| error.message.as_str()));
    }

    async fn whole(self, asking: Asking, page: Page) {
        let Asking { request, route, head } = asking;
        let mut drafted = Drafted::default();
        let tell = |note: Note<'_>| self.note(note);
        let (result, report) = ask(&request, &route, Diary::new(&tell), &mut drafted).await;
        if self.report {
            page.report(report);
        }
        if let Err(error) = result {
            return page.refuse(Refusal::Failed(error));
        }
        let body = self.front.encode_whole(&head, &drafted.draft).to_string();
        drafted.tally.bytes = body.len() as u64;
        page.write(|out| out.extend_from_slice(body.as_bytes()));
        self.ended(&head.model, 200, &drafted.tally, None);
    }

    fn note(&self, note: Note<'_>) {
        self.gateway.watch().note(&self.id, note);
    }

    fn ended(&self, model: &str, status: u16, tally: &Tally, error: Option<&str>) {
        self.note(Note::Ended(&Ended {
            front: Some(self.front),
            model,
            status,
            whole: error.is_none(),
            took: self.start.elapsed(),
            first: tally.first.map(|first| first.duration_since(self.start)),
            bytes: tally.bytes,
            calls: tally.calls,
            usage: tally.usage,
            error,
        }));
    }
}

/// Asks, as often as the route's mending says, and mends what comes. Gives back what was done, for the client's report.
async fn ask<S: Sink + Send>(
    request: &Request,
    route: &Route,
    diary: Diary<'_>,
    out: &mut S,
) -> (Result<(), ModelError>, String) {
    let mut mender = Mender::new(request, route.mending, diary, |event: Event<'_>| out.event(event));
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
    let (_, diary) = mender.into_parts();
    (result, diary.report())
}

/// Takes an answer, up to where nothing more of it is wanted: the rest is not waited for.
async fn listen(mut answer: ModelAnswer<'_>, over: &AtomicBool) -> Result<(), ModelError> {
    std::future::poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        if over.load(Ordering::Relaxed) { Poll::Ready(Ok(())) } else { polled }
    })
    .await
}

/// What an answer came to.
#[derive(Debug, Clone, Default)]
struct Tally {
    first: Option<Instant>,
    bytes: u64,
    calls: u32,
    usage: Usage,
}

impl Tally {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::CallStart { .. } => self.calls += 1,
            Event::Usage(usage) => self.usage.update(*usage),
            _ => {}
        }
    }
}

/// A sink that writes a stream.
struct Streamed {
    encoder: Encoder,
    page: Page,
    tally: Tally,
}

impl Sink for Streamed {
    fn event(&mut self, event: Event<'_>) {
        let Self { encoder, page, tally } = self;
        tally.event(&event);
        page.write(|out| {
            let before = out.len();
            encoder.event(event, out);
            tally.bytes += (out.len() - before) as u64;
            if out.len() > before {
                tally.first.get_or_insert_with(Instant::now);
            }
        });
    }
}

/// A sink that keeps everything until the end.
#[derive(Default)]
struct Drafted {
    draft: Draft,
    tally: Tally,
}

impl Sink for Drafted {
    fn event(&mut self, event: Event<'_>) {
        self.tally.event(&event);
        self.draft.event(event);
    }
}

/// The report as a comment, which every reader of server-sent events skips; lines of JSON have none.
fn comment(front: Wire, report: &str) -> String {
    if front.stream_type() == "text/event-stream" { format!(": {REPORT} {report}\n\n") } else { String::new() }
}

/// A sign of life that clients of that wire skip; lines of JSON have none.
fn ping(front: Wire) -> &'static str {
    match front.stream_type() {
        "text/event-stream" if front == Wire::Anthropic => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "text/event-stream" => ": ping\n\n",
        _ => "",
    }
}
