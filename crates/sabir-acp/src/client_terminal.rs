//! Runs a command in a terminal of the client, which shows it to the user.
//!
//! A terminal is always released; if its command may still run, it is killed first.

use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CreateTerminalRequest, KillTerminalRequest, ReleaseTerminalRequest, SessionId,
    TerminalExitStatus, TerminalId, TerminalOutputRequest, WaitForTerminalExitRequest,
};
use agent_client_protocol::{Client, Error};
use sabir_session::{EditorFailure, TerminalCommand, TerminalEnd, TerminalOutcome};

use crate::editor_connection::CLIENT_RESPONSE_TIMEOUT;

/// A terminal of the client.
#[derive(Debug)]
struct ClientTerminal {
    connection: ConnectionTo<Client>,
    session: SessionId,
    id: TerminalId,
    /// True while its command may run.
    may_run: bool,
}

/// Runs a command in a new terminal. `show` gets the terminal's id as soon as there is one.
pub(crate) async fn run_in_terminal(
    connection: ConnectionTo<Client>,
    session: SessionId,
    command: TerminalCommand,
    show: impl FnOnce(TerminalId),
) -> Result<TerminalOutcome, EditorFailure> {
    let (program, arguments) = with_own_environment(&command);
    let request = CreateTerminalRequest::new(session.clone(), program)
        .args(arguments)
        .cwd(command.folder)
        .output_byte_limit(command.output_bytes);
    // A client may create the terminal after the caller has stopped waiting. In a separate task,
    // the reply still arrives, and the terminal is released.
    let creation = tokio::spawn(async move {
        let created = connection.clone().send_request(request).block_task().await;
        created.map(|created| ClientTerminal {
            connection,
            session,
            id: created.terminal_id,
            may_run: true,
        })
    });
    let mut terminal = match tokio::time::timeout(CLIENT_RESPONSE_TIMEOUT, creation).await {
        Ok(Ok(Ok(terminal))) => terminal,
        Ok(Ok(Err(error))) => return Err(EditorFailure::Refused(error.message)),
        Ok(Err(_)) | Err(_) => return Err(EditorFailure::NoResponse),
    };
    show(terminal.id.clone());
    let end = terminal.wait(command.time_limit).await?;
    let (output, is_truncated) = terminal.read_output().await?;
    Ok(TerminalOutcome {
        end,
        output,
        is_truncated,
    })
}

/// Returns the program and the arguments that give a command its own environment alone.
///
/// A terminal adds its variables to those of the editor, which include the keys of providers. A
/// command must never see these.
fn with_own_environment(command: &TerminalCommand) -> (&'static str, Vec<String>) {
    let variables = command.environment.iter();
    let arguments = std::iter::once("-i".to_owned())
        .chain(variables.map(|(name, value)| format!("{name}={value}")))
        .chain([command.program.to_string_lossy().into_owned()])
        .chain(command.arguments.iter().cloned())
        .collect();
    ("/usr/bin/env", arguments)
}

impl ClientTerminal {
    /// Waits for the end of the command, and kills it after this time.
    async fn wait(&mut self, limit: Duration) -> Result<TerminalEnd, EditorFailure> {
        let request = WaitForTerminalExitRequest::new(self.session.clone(), self.id.clone());
        let ended = self.connection.send_request(request).block_task();
        let Ok(ended) = tokio::time::timeout(limit, ended).await else {
            let request = KillTerminalRequest::new(self.session.clone(), self.id.clone());
            let killed = self.connection.send_request(request).block_task();
            answer_in_time(killed).await?;
            self.may_run = false;
            return Ok(TerminalEnd::TimedOut);
        };
        // The command began, so a client that fails here is not one that refused it.
        let ended = ended.map_err(|_| EditorFailure::NoResponse)?;
        self.may_run = false;
        Ok(describe_end(ended.exit_status))
    }

    /// Returns the output, and true if its beginning is missing.
    async fn read_output(&self) -> Result<(String, bool), EditorFailure> {
        let request = TerminalOutputRequest::new(self.session.clone(), self.id.clone());
        let read = self.connection.send_request(request).block_task();
        let read = answer_in_time(read).await?;
        Ok((read.output, read.truncated))
    }
}

/// Awaits an answer about a command that has begun.
async fn answer_in_time<T>(
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, EditorFailure> {
    match tokio::time::timeout(CLIENT_RESPONSE_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        _ => Err(EditorFailure::NoResponse),
    }
}

fn describe_end(status: TerminalExitStatus) -> TerminalEnd {
    match (status.exit_code, status.signal) {
        (Some(code), _) => TerminalEnd::Exited(i32::try_from(code).unwrap_or(i32::MAX)),
        (None, Some(signal)) => TerminalEnd::Signaled(signal),
        (None, None) => TerminalEnd::Signaled(String::new()),
    }
}

impl Drop for ClientTerminal {
    fn drop(&mut self) {
        // A client that is gone has ended its terminals.
        if self.may_run {
            let request = KillTerminalRequest::new(self.session.clone(), self.id.clone());
            self.connection.send_request(request).detach();
        }
        let request = ReleaseTerminalRequest::new(self.session.clone(), self.id.clone());
        self.connection.send_request(request).detach();
    }
}
