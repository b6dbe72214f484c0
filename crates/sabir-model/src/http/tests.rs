//! Tests retries over a transport whose clock runs only while a request waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sabir_call::{DraftResponse, Message};
use sabir_wire::Wire;

use super::*;
use crate::transport::TransportFuture;

/// Chooses a status and a body by the number of the request, from 0.
type Respond = fn(u64) -> (u16, &'static str);

const ANSWER: &str = concat!(
    "data: {\"choices\":[{\"delta\":{\"content\":\"Hm.\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
);

struct FakeTransport {
    milliseconds: AtomicU64,
    requests: AtomicU64,
    respond: Respond,
}

struct FakeBody(Option<&'static str>);

impl ResponseBody for FakeBody {
    fn next_chunk(
        &mut self,
        _: Duration,
    ) -> TransportFuture<'_, Result<Option<Vec<u8>>, TransportError>> {
        let chunk = self.0.take().map(|text| text.as_bytes().to_vec());
        Box::pin(std::future::ready(Ok(chunk)))
    }
}

impl Transport for FakeTransport {
    fn now(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    fn wait(&self, time: Duration) -> TransportFuture<'_, ()> {
        let time = u64::try_from(time.as_millis()).unwrap();
        self.milliseconds.fetch_add(time, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn send<'a>(
        &'a self,
        _: &'a HttpRequest,
        _: Duration,
    ) -> TransportFuture<'a, Result<HttpResponse, TransportError>> {
        let (status, body) = (self.respond)(self.requests.fetch_add(1, Ordering::Relaxed));
        let response = HttpResponse {
            status,
            headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
            body: Box::new(FakeBody(Some(body))),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

fn fake_model(respond: Respond, retries: RetryPolicy) -> (HttpModel, Arc<FakeTransport>) {
    let transport = Arc::new(FakeTransport {
        milliseconds: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        respond,
    });
    let provider = Provider::new("acme", Wire::OpenAiChat, "http://acme.invalid/v1", None);
    let mut model = HttpModel::new(provider).retries(retries);
    model.transport = OnceLock::from(Arc::clone(&transport) as Arc<dyn Transport>);
    (model, transport)
}

async fn ask(model: &HttpModel) -> Result<String, ModelError> {
    let mut draft = DraftResponse::default();
    let request = Request {
        messages: vec![Message::user("Well?")].into(),
        ..Request::default()
    };
    model.stream_response(&request, &mut draft).await?;
    Ok(draft.text())
}

#[tokio::test]
async fn a_provider_that_is_busy_before_every_turn_delays_a_long_task_and_does_not_end_it() {
    let busy_first: Respond = |number| match number % 2 {
        0 => (429, "slow down"),
        _ => (200, ANSWER),
    };
    let (model, transport) = fake_model(busy_first, RetryPolicy::default());
    for turn in 0..300 {
        assert_eq!(ask(&model).await.unwrap(), "Hm.", "turn {turn}");
    }
    assert_eq!(transport.requests.load(Ordering::Relaxed), 600);
    assert!(
        transport.now() >= Duration::from_secs(75),
        "{:?}",
        transport.now()
    );
}

#[tokio::test]
async fn a_provider_that_never_answers_exhausts_the_retry_budget() {
    let retries = RetryPolicy {
        budget: 6,
        ..RetryPolicy::default()
    };
    // One answer in between refills the budget.
    let busy: Respond = |number| match number {
        3 => (200, ANSWER),
        _ => (503, ""),
    };
    let (model, transport) = fake_model(busy, retries);
    ask(&model).await.unwrap();
    for (requests, words) in [
        (5, "acme"),
        (3, "all 6 retries since the last complete answer"),
    ] {
        let before = transport.requests.load(Ordering::Relaxed);
        let error = ask(&model).await.unwrap_err();
        assert_eq!(
            transport.requests.load(Ordering::Relaxed) - before,
            requests
        );
        assert_eq!(error.kind, ModelErrorKind::Unavailable);
        assert!(error.message.contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_clean_close_inside_the_first_event_is_retried() {
    let cut: Respond = |number| match number {
        0 => (200, "d"),
        1 => (200, "data: {\"choices\":[{\"del"),
        2 => (200, ": a comment\n"),
        _ => (200, ANSWER),
    };
    let (model, transport) = fake_model(cut, RetryPolicy::default());
    assert_eq!(ask(&model).await.unwrap(), "Hm.");
    assert_eq!(transport.requests.load(Ordering::Relaxed), 4);
    let (model, _) = fake_model(|_| (200, "data: {\"cho"), RetryPolicy::default());
    let error = ask(&model).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Broken, "{error}");
    assert!(error.message.contains("inside the first event"), "{error}");
    assert!(!error.message.contains("base URL"), "{error}");
    // Whole events of another API are not a broken stream, so they are not retried.
    let (model, transport) =
        fake_model(|_| (200, "data: {\"hello\":1}\n\n"), RetryPolicy::default());
    let error = ask(&model).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Format, "{error}");
    assert_eq!(transport.requests.load(Ordering::Relaxed), 1);
}

/// Returns the waits of a request that fails four times.
async fn waits(seed: u64) -> Vec<Duration> {
    let retries = RetryPolicy {
        seed,
        ..RetryPolicy::default()
    };
    let (model, _) = fake_model(|_| (503, ""), retries);
    let waits = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&waits);
    let model = model.on_retry(move |retry| noted.lock().unwrap().push(retry.wait));
    ask(&model).await.unwrap_err();
    waits.lock().unwrap().clone()
}

#[tokio::test]
async fn equal_requests_of_two_programs_do_not_retry_in_step() {
    let one = waits(1).await;
    assert_eq!(one.len(), 4);
    assert_eq!(one, waits(1).await, "reproducible");
    let two = waits(2).await;
    assert!(
        one.iter().zip(&two).all(|(one, two)| one != two),
        "{one:?} {two:?}"
    );
}

#[tokio::test]
async fn attempt_numbers_never_exceed_the_total() {
    let cut: Respond = |_| {
        (
            200,
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hm.\"}}]}\n\n",
        )
    };
    let retries = RetryPolicy {
        limit: 1,
        ..RetryPolicy::default()
    };
    let (model, _) = fake_model(cut, retries);
    let model = model.on_retry(|retry| assert!(retry.attempt < retry.attempts, "{retry:?}"));
    for _ in 0..6 {
        assert_eq!(ask(&model).await.unwrap_err().kind, ModelErrorKind::Broken);
    }
}

#[tokio::test]
async fn an_answer_goes_on_with_the_thought_of_its_prompt() {
    let respond: Respond = |number| match number {
        0 => (
            200,
            concat!(
                "data: {\"choices\":[{\"delta\":{\"content\":\"Hm.</think>Yes.\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
            ),
        ),
        // This server separates the thought.
        _ => (
            200,
            concat!(
                "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm.\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{\"content\":\"Yes.\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
            ),
        ),
    };
    let (model, _) = fake_model(respond, RetryPolicy::default());
    let entry = crate::catalogue::ModelEntry {
        pattern: "thinker".to_owned(),
        prefill: Some("<think>".to_owned()),
        ..Default::default()
    };
    let model = model.catalogue(ModelCatalogue::new(vec![entry]));
    for _ in 0..2 {
        let mut draft = DraftResponse::default();
        let request = Request {
            model: "thinker".to_owned(),
            messages: vec![Message::user("Well?")].into(),
            ..Request::default()
        };
        model.stream_response(&request, &mut draft).await.unwrap();
        let parts = [
            sabir_call::DraftPart::Thought("Hm.".to_owned()),
            sabir_call::DraftPart::Text("Yes.".to_owned()),
        ];
        assert_eq!(draft.parts, parts);
    }
}

#[tokio::test]
async fn a_last_call_without_its_closing_markup_runs_if_the_model_may_and_the_provider_says_stop() {
    let respond: Respond = |number| match number {
        0 | 1 => (
            200,
            concat!(
                "data: {\"choices\":[{\"delta\":{\"content\":\"<tool_call>{\\\"name\\\": \\\"look\\\", \\\"arguments\\\": {}}\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
            ),
        ),
        _ => (
            200,
            concat!(
                "data: {\"choices\":[{\"delta\":{\"content\":\"<tool_call>{\\\"name\\\": \\\"look\\\", \\\"arguments\\\": {}}\"}}]}\n\n",
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"
            ),
        ),
    };
    let (model, _) = fake_model(respond, RetryPolicy::default());
    let entry = crate::catalogue::ModelEntry {
        pattern: "forgetful".to_owned(),
        repairs_on: Some(vec!["missing_last_close".to_owned()]),
        ..Default::default()
    };
    let model = model.catalogue(ModelCatalogue::new(vec![entry]));
    let tools = sabir_call::ToolSet::from_json(r#"[{"name": "look", "parameters": {}}]"#).unwrap();
    for (name, is_whole) in [
        ("careful", false),
        ("forgetful", true),
        ("forgetful", false),
    ] {
        let mut draft = DraftResponse::default();
        let request = Request {
            model: name.to_owned(),
            messages: vec![Message::user("Well?")].into(),
            tools: tools.clone(),
            ..Request::default()
        };
        model.stream_response(&request, &mut draft).await.unwrap();
        let call = draft.calls().next().unwrap();
        let is_closed = call.state == sabir_call::DraftState::Closed;
        assert_eq!(is_closed, is_whole, "{name}: {draft:?}");
    }
}
