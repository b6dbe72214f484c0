//! Tasks on tape: `--record` and `--replay`.
//!
//! What a provider sees and says is kept by `sabir-model`. Here is the rest of what a replay needs to come to the same task
//! events: how the task began, in which folder, under which limits, and for a resumed one what had happened before. What may be
//! done is not among it: a cassette can approve nothing.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;

use sabir_agent::{Aside, Context, Heard, Moment, Question, Record, Reply, Start, Store, StoreError, TaskEvent, User};
use sabir_call::{CallId, Dollars, Prices};
use sabir_model::{Cassette, HttpModel, Player, Recorder, Renewal, Renewing, Secret};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::SessionError;
use crate::modes::ToldMode;
use crate::notice::{NoticeSink, NoticeTopic};

/// What a replay needs beyond what was asked and answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    /// How the task began.
    pub(crate) start: Start,
    /// The provider's name of its model.
    pub(crate) model: String,
    /// The operating system, as the model was told.
    pub(crate) system: String,
    pub(crate) max_turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u64>,
    /// Whether todos had to be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) require_todos: bool,
    #[serde(default)]
    pub(crate) max_cost: Option<Dollars>,
    /// What the model cost.
    #[serde(default)]
    pub(crate) prices: Prices,
    /// Whether a key that was refused was fetched anew.
    #[serde(default)]
    pub(crate) renews: bool,
    #[serde(default)]
    pub(crate) repairs_off: Vec<String>,
    /// What it was told of its place, and the room there was.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub(crate) context: Context,
    /// The modes whose model is another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) modes: BTreeMap<String, ToldMode>,
    /// Of a resumed task: what had happened before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) records: Vec<Record>,
    /// What the user said to a resumed task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<String>,
}

/// What becomes of a task's events beside being shown.
pub(crate) enum Tape {
    /// Nothing.
    Without,
    /// They are recorded, as far as they cannot be had again; with the calls that have printed something.
    Recording(Recorder, HashSet<CallId>),
    /// They come from a recording, as far as they cannot be had again.
    Playing(Player, VecDeque<(String, String)>),
}

/// Shows a task's events, and records or plays what commands print.
pub(crate) struct Taped<'a> {
    pub(crate) user: &'a mut dyn User,
    pub(crate) tape: &'a mut Tape,
}

/// Keeps nothing: a replay can be had again at any time.
pub(crate) struct Nowhere;

fn is_usual(context: &Context) -> bool {
    *context == Context::default()
}

/// Reads a cassette.
pub(crate) fn read(path: &Path) -> Result<(Cassette, Told), SessionError> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).map_err(|error| SessionError::invalid(format!("{shown} cannot be read: {error}")))?;
    open(&bytes).map_err(|failure| SessionError::invalid(format!("{shown} cannot be played: {failure}")))
}

/// Reads a cassette's bytes.
pub(crate) fn open(bytes: &[u8]) -> Result<(Cassette, Told), SessionError> {
    let cassette = Cassette::read(bytes).map_err(|error| SessionError::invalid(error.to_string()))?;
    let told = Told::deserialize(&cassette.task).map_err(|error| {
        SessionError::invalid(format!("it was not recorded by `sabir run` or `sabir resume`: {error}"))
    })?;
    Ok((cassette, told))
}

/// The model of a cassette, and the tape to watch it with. `renews`: where the key was renewed, it is so once more.
pub(crate) fn play(
    cassette: Cassette,
    renews: bool,
    set_up: impl Fn(HttpModel) -> HttpModel + Send + Sync + 'static,
) -> Result<(Renewing<HttpModel>, Tape), SessionError> {
    let (model, player) = HttpModel::replay(&cassette).map_err(|wire| {
        SessionError::invalid(format!("the cassette was recorded on the wire `{wire}`, which is unknown here"))
    })?;
    let tape = Tape::Playing(player.clone(), cassette.outputs.clone().into());
    let model = Renewing::fixed(None, move |_| set_up(model.replayed_by(&player)));
    let key = || Box::pin(std::future::ready(Ok(Secret::new("replayed")))) as Renewal;
    Ok((if renews { model.with_renewal(key) } else { model }, tape))
}

/// Begins a cassette of what that model will be asked, in a new file that only its owner can read.
pub(crate) fn record(
    model: &HttpModel,
    path: &Path,
    told: &Told,
    notices: &NoticeSink,
) -> Result<Recorder, SessionError> {
    let shown = path.display();
    let fail = |error: std::io::Error| SessionError::invalid(format!("{shown} cannot be written: {error}"));
    let file = File::options().append(true).create(true).mode(0o600).open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.len() > 0 {
        return Err(SessionError::invalid(format!(
            "{shown} is there already; a recording is not written behind another"
        )));
    }
    if path.canonicalize().is_ok_and(|path| path.starts_with(&told.start.workspace)) {
        notices.send(
            NoticeTopic::Recording,
            format!("{shown} lies in the folder that the task works in: what the task sees of it, no replay will see"),
        );
    }
    let task = serde_json::to_value(told).map_err(|error| SessionError::internal(error.to_string()))?;
    model.recorder(Box::new(file), &told.model, task).map_err(fail)
}

impl Tape {
    /// A tape for what that recorder is to hold.
    pub(crate) fn recording(recorder: Recorder) -> Self {
        Self::Recording(recorder, HashSet::new())
    }

    /// What is wrong with the tape in the end.
    pub(crate) fn complaint(&self) -> Option<SessionError> {
        match self {
            Self::Without => None,
            Self::Recording(recorder, _) => {
                let error = recorder.error()?;
                Some(SessionError::internal(format!("the recording is not whole: it could not be written ({error})")))
            }
            Self::Playing(player, _) => {
                let left = player.left();
                let were = if left == 1 { "request was" } else { "requests were" };
                (left > 0).then(|| SessionError::invalid(format!("{left} recorded {were} never asked for")))
            }
        }
    }
}

impl User for Taped<'_> {
    fn show(&mut self, event: TaskEvent<'_>) {
        match (&mut *self.tape, event) {
            (Tape::Recording(recorder, printed), TaskEvent::Moment(Moment::Output { call, text })) => {
                recorder.output(call.as_str(), text);
                printed.insert(call.clone());
            }
            (Tape::Recording(recorder, printed), TaskEvent::Record(Record::Result(result)))
                if printed.contains(&result.id) =>
            {
                printed.remove(&result.id);
                recorder.result(result.id.as_str(), &result.content);
            }
            // How output is cut into pieces, and what of two streams comes first, is different each time.
            (Tape::Playing(..), TaskEvent::Moment(Moment::Output { .. })) => return,
            (Tape::Playing(_, outputs), TaskEvent::Record(Record::Result(result))) => {
                while outputs.front().is_some_and(|(call, _)| call == result.id.as_str())
                    && let Some((_, text)) = outputs.pop_front()
                {
                    self.user.show(TaskEvent::Moment(Moment::Output { call: &result.id, text: &text }));
                }
            }
            _ => {}
        }
        self.user.show(event);
    }

    fn tell(&mut self, aside: Aside<'_>) {
        self.user.tell(aside);
    }

    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        self.user.hears()
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        self.user.ask(question)
    }
}

impl Store for Nowhere {
    fn append(&mut self, _record: &Record) -> Result<(), StoreError> {
        Ok(())
    }
}
