//! Logs in to the servers of a running task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{LoginAttempt, LoginError};
use crate::servers::{McpNotice, McpSettings};
use crate::spec::McpServerSpec;

/// The time in which the user can log in.
const LOGIN_TIME: Duration = Duration::from_secs(300);

/// The logins that wait for the user, each with the place for the address at which the browser ended.
pub(crate) struct RunningLogins {
    waiting: Arc<Mutex<BTreeMap<String, mpsc::Sender<String>>>>,
    /// The commands of the user may come from threads without a runtime.
    runtime: Handle,
}

impl RunningLogins {
    /// Creates the logins of a task. Must be called within a tokio runtime.
    pub(crate) fn new() -> Self {
        Self {
            waiting: Arc::default(),
            runtime: Handle::current(),
        }
    }

    /// Begins a login in the background, or finishes the one that waits for this `address`.
    pub(crate) fn log_in(
        &self,
        spec: McpServerSpec,
        settings: &McpSettings,
        address: Option<String>,
    ) {
        let name = spec.name.clone();
        let notify = Arc::clone(&settings.notify);
        let say = move |text: String| {
            notify(McpNotice {
                server: name.clone(),
                text,
            });
        };
        let mut running = lock_logins(&self.waiting);
        if let Some(address) = address {
            match running.get(&spec.name) {
                Some(waiting) if waiting.try_send(address).is_ok() => {}
                _ => say("no login waits for this address".to_owned()),
            }
            return;
        }
        let (sender, pasted) = mpsc::channel(1);
        // A login that was begun before ends when its browser comes back, or with its time.
        running.insert(spec.name.clone(), sender.clone());
        drop(running);
        let all = Arc::clone(&self.waiting);
        let settings = settings.clone();
        self.runtime.spawn(async move {
            match run_login(&spec, &settings, pasted, &say).await {
                Ok(text) => say(text),
                Err(error) => say(format!("no login: {error}")),
            }
            let mut running = lock_logins(&all);
            if running
                .get(&spec.name)
                .is_some_and(|other| other.same_channel(&sender))
            {
                running.remove(&spec.name);
            }
        });
    }
}

fn lock_logins(
    running: &Mutex<BTreeMap<String, mpsc::Sender<String>>>,
) -> MutexGuard<'_, BTreeMap<String, mpsc::Sender<String>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs in, and returns the sentence about the end.
async fn run_login(
    spec: &McpServerSpec,
    settings: &McpSettings,
    pasted: mpsc::Receiver<String>,
    say: &(dyn Fn(String) + Send + Sync),
) -> Result<String, LoginError> {
    let attempt = LoginAttempt::start(spec, settings).await?;
    say(format!(
        "log in with your browser at {} ; if it cannot be redirected to this machine, use `/mcp login {} ADDRESS` with the address that it shows at the end",
        attempt.url(),
        spec.name
    ));
    (settings.open_page)(attempt.url());
    let mut ignore = |error: &LoginError| say(format!("ignored: {error}"));
    let report = attempt.finish(pasted, LOGIN_TIME, &mut ignore).await?;
    let issuer = report.issuer.map(|issuer| format!(" at {issuer}"));
    Ok(format!("you are logged in{}", issuer.unwrap_or_default()))
}
