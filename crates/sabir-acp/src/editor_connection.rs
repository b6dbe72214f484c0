//! Reaches the buffers of the client: what the user has typed and not saved counts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{ReadTextFileRequest, SessionId, WriteTextFileRequest};
use agent_client_protocol::{Client, JsonRpcRequest};
use sabir_session::{Editor, EditorAnswer, EditorFailure};
use tokio::time::Instant;

use crate::message_text::exact_text;

/// The time that a client has to answer. Buffers are in its memory, so an answer takes milliseconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The time for which a client that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(60);

/// The editor of one session.
#[derive(Debug)]
pub(crate) struct EditorConnection {
    connection: ConnectionTo<Client>,
    session: SessionId,
    /// The folder of the session without links.
    real_folder: PathBuf,
    /// The folder as the client names it, and its files with it.
    named_folder: PathBuf,
    can_write: bool,
    silence: Arc<Silence>,
}

/// Remembers that a client did not answer, so that not every call waits for it.
#[derive(Debug, Default)]
struct Silence(Mutex<Option<Instant>>);

impl EditorConnection {
    /// Creates the editor of a session, whose folder has two names: the real one, and that of the client.
    pub(crate) fn new(
        connection: ConnectionTo<Client>,
        session: SessionId,
        real_folder: PathBuf,
        named_folder: PathBuf,
        can_write: bool,
    ) -> Self {
        Self {
            connection,
            session,
            real_folder,
            named_folder,
            can_write,
            silence: Arc::default(),
        }
    }

    /// Returns the path by which the client knows a file.
    fn named_path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.real_folder) {
            Ok(inner) => self.named_folder.join(inner),
            Err(_) => path.to_owned(),
        }
    }

    /// Sends a request and waits for the answer, within limits.
    fn ask<R>(&self, request: R) -> EditorAnswer<R::Response>
    where
        R: JsonRpcRequest + Send + 'static,
        R::Response: Send,
    {
        let connection = self.connection.clone();
        let silence = Arc::clone(&self.silence);
        Box::pin(async move {
            if silence.lasts() {
                return Err(EditorFailure::Silent);
            }
            let answer = connection.send_request(request).block_task();
            // Dropping the answer withdraws the request at the client.
            match tokio::time::timeout(ANSWER_PATIENCE, answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(EditorFailure::Refused(exact_text(&error.message))),
                Err(_) => {
                    silence.begin();
                    Err(EditorFailure::Silent)
                }
            }
        })
    }
}

impl Silence {
    fn lasts(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn begin(&self) {
        let until = Instant::now() + SILENCE;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Editor for EditorConnection {
    fn can_write(&self) -> bool {
        self.can_write
    }

    fn read_text(&self, path: &Path) -> EditorAnswer<String> {
        let request = ReadTextFileRequest::new(self.session.clone(), self.named_path(path));
        let answer = self.ask(request);
        Box::pin(async move { Ok(answer.await?.content) })
    }

    fn write_text(&self, path: &Path, text: &str) -> EditorAnswer<()> {
        let path = self.named_path(path);
        let answer = self.ask(WriteTextFileRequest::new(self.session.clone(), path, text));
        Box::pin(async move { answer.await.map(drop) })
    }
}
