//! Reads and writes the buffers of the client, with their unsaved text, and runs commands in its
//! terminals.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{ReadTextFileRequest, SessionId, WriteTextFileRequest};
use agent_client_protocol::{Client, JsonRpcRequest};
use sabir_session::{Editor, EditorFailure, EditorFuture, TerminalCommand, TerminalOutcome};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::client_terminal::run_in_terminal;
use crate::message_text::show_hidden_characters;
use crate::session::{ClientFeatures, SessionInput};

/// The time that a client has to answer. Buffers are in its memory, so an answer takes milliseconds.
pub(crate) const CLIENT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a client that did not answer is not asked again.
const UNRESPONSIVE_PERIOD: Duration = Duration::from_secs(60);

/// The editor of one session.
#[derive(Debug)]
pub(crate) struct EditorConnection {
    connection: ConnectionTo<Client>,
    session: SessionId,
    /// The folder of the session without links.
    real_folder: PathBuf,
    /// The folder as the client names it, and its files with it.
    named_folder: PathBuf,
    features: ClientFeatures,
    /// Leads to the worker of the session.
    worker: UnboundedSender<SessionInput>,
    unresponsive: Arc<UnresponsiveTimer>,
}

/// Remembers that a client did not answer, so that not every call waits for it.
#[derive(Debug, Default)]
struct UnresponsiveTimer(Mutex<Option<Instant>>);

impl EditorConnection {
    /// Creates the editor of a session, whose folder has two names: the real one, and that of the client.
    pub(crate) fn new(
        connection: ConnectionTo<Client>,
        session: SessionId,
        real_folder: PathBuf,
        named_folder: PathBuf,
        features: ClientFeatures,
        worker: UnboundedSender<SessionInput>,
    ) -> Self {
        Self {
            connection,
            session,
            real_folder,
            named_folder,
            features,
            worker,
            unresponsive: Arc::default(),
        }
    }

    /// Returns the path by which the client knows a file.
    fn named_path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.real_folder) {
            // Joined with nothing, a folder would get a slash at its end.
            Ok(inner) if inner.as_os_str().is_empty() => self.named_folder.clone(),
            Ok(inner) => self.named_folder.join(inner),
            Err(_) => path.to_owned(),
        }
    }

    /// Sends a request and waits for the answer, within limits.
    fn ask<R>(&self, request: R) -> EditorFuture<R::Response>
    where
        R: JsonRpcRequest + Send + 'static,
        R::Response: Send,
    {
        let connection = self.connection.clone();
        let unresponsive = Arc::clone(&self.unresponsive);
        Box::pin(async move {
            if unresponsive.is_active() {
                return Err(EditorFailure::NoResponse);
            }
            let answer = connection.send_request(request).block_task();
            // Dropping the answer withdraws the request at the client.
            match tokio::time::timeout(CLIENT_RESPONSE_TIMEOUT, answer).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(EditorFailure::Refused(show_hidden_characters(
                    &error.message,
                ))),
                Err(_) => {
                    unresponsive.begin();
                    Err(EditorFailure::NoResponse)
                }
            }
        })
    }
}

impl UnresponsiveTimer {
    fn is_active(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn begin(&self) {
        let until = Instant::now() + UNRESPONSIVE_PERIOD;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Editor for EditorConnection {
    fn can_write(&self) -> bool {
        self.features.writes_files
    }

    fn read_text(&self, path: &Path) -> EditorFuture<String> {
        let request = ReadTextFileRequest::new(self.session.clone(), self.named_path(path));
        if !self.features.reads_files {
            let refusal = EditorFailure::Refused("it reads no files".to_owned());
            return Box::pin(std::future::ready(Err(refusal)));
        }
        let answer = self.ask(request);
        Box::pin(async move { Ok(answer.await?.content) })
    }

    fn write_text(&self, path: &Path, text: &str) -> EditorFuture<()> {
        let path = self.named_path(path);
        let answer = self.ask(WriteTextFileRequest::new(self.session.clone(), path, text));
        Box::pin(async move { answer.await.map(drop) })
    }

    fn has_terminals(&self) -> bool {
        self.features.terminals
    }

    fn run_command(&self, command: TerminalCommand) -> EditorFuture<TerminalOutcome> {
        let worker = self.worker.clone();
        let call = command.call.clone();
        let text = command.text.clone();
        let folder = self.named_path(&command.folder);
        let command = TerminalCommand { folder, ..command };
        let show = move |terminal| {
            // A worker that is gone has ended the call, too.
            _ = worker.send(SessionInput::Terminal {
                call,
                command: text,
                terminal,
            });
        };
        let connection = self.connection.clone();
        Box::pin(run_in_terminal(
            connection,
            self.session.clone(),
            command,
            show,
        ))
    }
}
