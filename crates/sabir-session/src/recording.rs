//! Records tasks into cassettes and replays them: `--record` and `--replay`.
//!
//! `sabir-model` records the traffic with the provider. This module adds the rest that a replay needs to produce the same task
//! events: how the task began, its folder and limits, the output of commands, and for a resumed task its earlier records. It adds no
//! permissions: a cassette cannot approve anything.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::{
    CommandQueue, DriverObserver, FrontEnd, Record, RecordStore, RequestContext, StoreError,
    TaskEvent, TaskStart, TransientEvent, UserNotice, UserQuestion, UserReply,
};
use sabir_call::{CallId, Dollars, ParallelCalls, TokenPrices};
use sabir_model::{
    Cassette, CassettePlayer, CassetteRecorder, HttpModel, KeyFuture, KeyRefreshingModel, Secret,
};
use serde::{Deserialize, Serialize};

use crate::error::SessionError;
use crate::modes::RecordedMode;
use crate::notice::{NoticeSink, NoticeTopic};

/// The description of a task at the beginning of a cassette.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CassetteHeader {
    /// The start of the task.
    pub(crate) start: TaskStart,
    /// The model's name at its provider.
    pub(crate) model: String,
    /// The operating system that the system prompt named.
    pub(crate) system: String,
    pub(crate) max_turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
    /// True if the task could not complete with open todos.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) require_todos: bool,
    /// True if a plain answer could be the result. Absent in recordings of earlier versions, where only a call was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) takes_answers: bool,
    /// True if the task ends as denied when denied calls were not replaced by later ones. Absent in
    /// recordings of earlier versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ends_denied: bool,
    #[serde(default)]
    pub(crate) max_cost: Option<Dollars>,
    /// The prices of the model.
    #[serde(default)]
    pub(crate) prices: TokenPrices,
    /// True if a refused key was fetched again.
    #[serde(default)]
    pub(crate) renews: bool,
    /// True if special tokens in foreign text were broken although the session was native. Absent in recordings of earlier versions.
    #[serde(default)]
    pub(crate) renders_template: bool,
    /// The number of calls that a message might hold. Absent in recordings of earlier versions.
    #[serde(default)]
    pub(crate) parallel_calls: ParallelCalls,
    #[serde(default)]
    pub(crate) repairs_off: Vec<String>,
    /// The context fragments that the model got, and the size of its window.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub(crate) context: RequestContext,
    /// The modes with a model other than the task's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) modes: BTreeMap<String, RecordedMode>,
    /// The earlier records of a resumed task; empty for a new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) records: Vec<Record>,
    /// The message that a resumed task continued with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<String>,
}

/// The recording or the replay of a session.
pub(crate) enum RecordingState {
    /// Neither.
    Off,
    /// The session is recorded.
    Record(CassetteRecorder),
    /// The session is a replay.
    Replay {
        player: CassettePlayer,
        /// The recorded output of calls that have not ended yet: the call and a piece of its output.
        outputs: VecDeque<(String, String)>,
    },
}

/// Records what commands print, which another run would not print in the same pieces and order.
pub(crate) struct OutputRecorder {
    recorder: CassetteRecorder,
    /// The running calls that have printed something.
    printed: Mutex<HashSet<CallId>>,
}

/// Shows recorded output instead of what the commands of a replay print. This is not an observer, since it changes what is shown.
pub(crate) struct ReplayFrontEnd<'a> {
    pub(crate) inner: &'a mut dyn FrontEnd,
    pub(crate) recording: &'a mut RecordingState,
}

/// A store that discards records: a replay can be repeated at any time.
pub(crate) struct NullStore;

fn is_usual(context: &RequestContext) -> bool {
    *context == RequestContext::default()
}

/// Reads a cassette file.
pub(crate) fn read_cassette(path: &Path) -> Result<(Cassette, CassetteHeader), SessionError> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| SessionError::invalid(format!("{shown} cannot be read: {error}")))?;
    parse_cassette(&bytes)
        .map_err(|failure| SessionError::invalid(format!("{shown} cannot be played: {failure}")))
}

/// Parses the bytes of a cassette.
pub(crate) fn parse_cassette(bytes: &[u8]) -> Result<(Cassette, CassetteHeader), SessionError> {
    let cassette =
        Cassette::parse(bytes).map_err(|error| SessionError::invalid(error.to_string()))?;
    let header = CassetteHeader::deserialize(&cassette.task).map_err(|error| {
        SessionError::invalid(format!(
            "it was not recorded by `sabir run` or `sabir resume`: {error}"
        ))
    })?;
    Ok((cassette, header))
}

/// Returns a model that answers from a cassette, and the state to replay with. `renews` repeats the renewals of a refused key,
/// so that the requests come in the recorded order.
pub(crate) fn replay_model(
    cassette: Cassette,
    renews: bool,
    set_up: impl Fn(HttpModel) -> HttpModel + Send + Sync + 'static,
) -> Result<(KeyRefreshingModel<HttpModel>, RecordingState), SessionError> {
    let (model, player) = HttpModel::from_cassette(&cassette).map_err(|wire| {
        SessionError::invalid(format!(
            "the cassette was recorded on the wire `{wire}`, which is unknown here"
        ))
    })?;
    let tape = RecordingState::Replay {
        player: player.clone(),
        outputs: cassette.outputs.clone().into(),
    };
    let model = KeyRefreshingModel::with_key(None, move |_| set_up(model.replayed_by(&player)));
    // The recorded server decides which keys are refused, so any key will do.
    let key = || Box::pin(std::future::ready(Ok(Secret::new("replayed")))) as KeyFuture;
    Ok((
        if renews {
            model.with_refresh(key)
        } else {
            model
        },
        tape,
    ))
}

/// Starts a cassette of the requests to a model, in a new file that only its owner can read.
pub(crate) fn start_recording(
    model: &HttpModel,
    path: &Path,
    header: &CassetteHeader,
    notices: &NoticeSink,
) -> Result<CassetteRecorder, SessionError> {
    let shown = path.display();
    let fail = |error: std::io::Error| {
        SessionError::invalid(format!("{shown} cannot be written: {error}"))
    };
    let file = File::options()
        // Appending only, so that a file that grows in the meantime is not overwritten.
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    // An empty file is accepted, such as one from `mktemp`.
    if file.metadata().map_err(fail)?.len() > 0 {
        return Err(SessionError::invalid(format!(
            "{shown} exists already; a recording is not appended to another"
        )));
    }
    if path
        .canonicalize()
        .is_ok_and(|path| path.starts_with(&header.start.workspace))
    {
        notices.send(
            NoticeTopic::Recording,
            format!("{shown} is in the task's folder: the task can see it, and a replay cannot"),
        );
    }
    let task =
        serde_json::to_value(header).map_err(|error| SessionError::internal(error.to_string()))?;
    model
        .recorder(Box::new(file), &header.model, task)
        .map_err(fail)
}

impl RecordingState {
    /// Returns the recorder of command output, if the session is recorded.
    pub(crate) fn output_observer(&self) -> Option<Arc<dyn DriverObserver>> {
        let Self::Record(recorder) = self else {
            return None;
        };
        Some(Arc::new(OutputRecorder {
            recorder: recorder.clone(),
            printed: Mutex::default(),
        }))
    }

    /// Returns the failure of the recording or the replay at its end, if there is one.
    pub(crate) fn final_error(&self) -> Option<SessionError> {
        match self {
            Self::Off => None,
            Self::Record(recorder) => {
                let error = recorder.error()?;
                Some(SessionError::internal(format!(
                    "the recording is not whole: it could not be written ({error})"
                )))
            }
            Self::Replay { player, .. } => {
                // A replay that ends early has not shown what was recorded, whatever it reports.
                let left = player.remaining_requests();
                let were = if left == 1 {
                    "request was"
                } else {
                    "requests were"
                };
                (left > 0).then(|| {
                    SessionError::invalid(format!("{left} recorded {were} never asked for"))
                })
            }
        }
    }
}

impl OutputRecorder {
    fn lock_printed(&self) -> MutexGuard<'_, HashSet<CallId>> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DriverObserver for OutputRecorder {
    fn on_record_stored(&self, record: &Record) {
        let Record::Result(result) = record else {
            return;
        };
        // Only commands that printed while they ran: a replay may print their lines in another
        // order.
        if self.lock_printed().remove(&result.id) {
            self.recorder
                .record_result(result.id.as_str(), &result.content);
        }
    }

    fn on_event(&self, event: &TransientEvent<'_>) {
        let TransientEvent::Output { call, text } = event else {
            return;
        };
        self.recorder.record_output(call.as_str(), text);
        self.lock_printed().insert((*call).clone());
    }
}

impl FrontEnd for ReplayFrontEnd<'_> {
    fn on_event(&mut self, event: TaskEvent<'_>) {
        match (&mut *self.recording, event) {
            // The pieces of output, and the order of the two streams, differ in each run.
            (
                RecordingState::Replay { .. },
                TaskEvent::Transient(TransientEvent::Output { .. }),
            ) => {
                return;
            }
            // Shown right before the result, all at once: their times are not recorded.
            (RecordingState::Replay { outputs, .. }, TaskEvent::Record(Record::Result(result))) => {
                while outputs
                    .front()
                    .is_some_and(|(call, _)| call == result.id.as_str())
                    && let Some((_, text)) = outputs.pop_front()
                {
                    self.inner
                        .on_event(TaskEvent::Transient(TransientEvent::Output {
                            call: &result.id,
                            text: &text,
                        }));
                }
            }
            _ => {}
        }
        self.inner.on_event(event);
    }

    fn notify(&mut self, aside: UserNotice<'_>) {
        self.inner.notify(aside);
    }

    fn commands(&mut self) -> Option<CommandQueue> {
        self.inner.commands()
    }

    fn request<'a>(
        &'a mut self,
        question: &'a UserQuestion,
    ) -> Pin<Box<dyn Future<Output = UserReply> + Send + 'a>> {
        self.inner.request(question)
    }
}

impl RecordStore for NullStore {
    fn append(&mut self, _record: &Record) -> Result<(), StoreError> {
        Ok(())
    }
}
