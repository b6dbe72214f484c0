//! Tests how often a key is refreshed, depending on the provider's answers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sabir_call::{DraftResponse, StopReason};

use super::*;

/// Accepts the keys from `good` on.
struct Lock {
    key: String,
    good: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    talks_first: bool,
}

impl Model for Lock {
    fn stream_response<'a>(
        &'a self,
        _: &'a Request,
        sink: &'a mut (dyn EventSink + Send),
    ) -> ResponseFuture<'a> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.talks_first {
                sink.push_event(Event::Text { text: "so" });
            }
            if !(self.good)(&self.key) {
                return Err(ModelError {
                    kind: ModelErrorKind::Key,
                    message: "refused".to_owned(),
                });
            }
            sink.push_event(Event::Stop {
                reason: StopReason::End,
                raw: "",
            });
            Ok(())
        })
    }
}

/// Makes a model whose keys are `k1`, `k2`, …, and a counter of the fetched keys, the first included.
fn model(
    good: impl Fn(&str) -> bool + Send + Sync + 'static,
    talks_first: bool,
) -> (Arc<KeyRefreshingModel<Lock>>, Arc<AtomicU32>) {
    let good: Arc<dyn Fn(&str) -> bool + Send + Sync> = Arc::new(good);
    let fetched = Arc::new(AtomicU32::new(1));
    let count = Arc::clone(&fetched);
    let make = move |key: Option<Secret>| Lock {
        key: key.map(|key| key.expose().to_owned()).unwrap_or_default(),
        good: Arc::clone(&good),
        talks_first,
    };
    let model =
        KeyRefreshingModel::with_key(Some(Secret::new("k1")), make).with_refresh(move || {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if number > 9 {
                    Err("the command fails".to_owned())
                } else {
                    Ok(Secret::new(format!("k{number}")))
                }
            })
        });
    (Arc::new(model), fetched)
}

async fn ask(model: &KeyRefreshingModel<Lock>) -> bool {
    model
        .stream_response(&Request::default(), &mut DraftResponse::default())
        .await
        .is_ok()
}

#[tokio::test]
async fn one_renewal_serves_all_refused_requests() {
    let (model, fetched) = model(|key| key != "k1", false);
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let model = Arc::clone(&model);
        asked.spawn(async move { ask(&model).await });
    }
    assert!(asked.join_all().await.into_iter().all(|answered| answered));
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_new_key_is_not_renewed_again() {
    let (model, fetched) = model(|_| false, false);
    for _ in 0..3 {
        assert!(!ask(&model).await);
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_expired_key_is_renewed() {
    let until = Arc::new(AtomicU32::new(1));
    let oldest = Arc::clone(&until);
    let good = move |key: &str| {
        key.trim_start_matches('k').parse::<u32>().unwrap() >= oldest.load(Ordering::SeqCst)
    };
    let (model, fetched) = model(good, false);
    for number in 1..5 {
        until.store(number, Ordering::SeqCst);
        assert!(ask(&model).await && ask(&model).await);
        assert_eq!(fetched.load(Ordering::SeqCst), number);
    }
}

#[tokio::test]
async fn a_started_response_is_not_requested_again() {
    let (model, fetched) = model(|_| false, true);
    assert!(!ask(&model).await);
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
}
