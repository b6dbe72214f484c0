//! Starts a program that serves requests on its standard input and output, under a supervisor.
//!
//! Unlike a command it has no end that is waited for: it lives as long as its [`ServerProcess`], and nothing that it started
//! outlives that, nor this process.

use std::io;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    MARK_ENV, NEXT_MARK, OutputReader, ShellCommand, SupervisorLifetime, SupervisorProcess,
    SupervisorStreams, WatchReport, next_line, validation,
};
use crate::error::WorkspaceError;
use crate::files::Workspace;
use crate::supervise::{OutputDevice, SupervisorReport, process_tree};

/// The standard input of a server. Dropping it closes it.
pub type ServerInput = Box<dyn AsyncWrite + Send + Unpin>;

/// A program with arguments, to be started as a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// The program: a path, or a name that is looked up in the `PATH` of [`environment`](Self::environment).
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment; nothing is inherited.
    pub environment: Vec<(String, String)>,
}

/// The three streams of a server.
pub struct ServerStreams {
    /// Its standard input.
    pub input: ServerInput,
    /// Its standard output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    pub errors: Box<dyn AsyncRead + Send + Unpin>,
}

/// A running server. Dropping it ends the server and all that it started: SIGTERM, and SIGKILL after two seconds.
pub struct ServerProcess {
    supervisor: Option<SupervisorProcess>,
    streams: SupervisorStreams,
    report: WatchReport,
    mark: String,
    shell: PathBuf,
}

/// The end of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerExit {
    /// It could not be started.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// It ended with this code; 127 means that there is no such program.
    #[error("it ended with code {0}")]
    Exited(i32),
    /// This signal ended it.
    #[error("signal {0} ended it")]
    Signaled(i32),
    /// Its supervisor was killed.
    #[error("its supervisor was killed")]
    SupervisorLost,
}

impl ServerCommand {
    /// Creates the command of a program, with its whole environment.
    pub fn new(
        program: impl Into<String>,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments,
            environment,
        }
    }

    /// Starts the server in the workspace folder. `helper` is as in [`ShellCommand::new`].
    ///
    /// # Errors
    /// As for [`ShellCommand::run`]. A program that does not exist is not an error here, but an end with code 127.
    pub fn start(
        &self,
        workspace: &Workspace,
        helper: impl Into<PathBuf>,
    ) -> Result<(ServerProcess, ServerStreams), WorkspaceError> {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        let quoted: Vec<String> = words.map(|word| quote_word(word)).collect();
        // The shell becomes the program, so that signals and the exit code are the program's.
        let text = format!("exec {}", quoted.join(" "));
        let shell = PathBuf::from("/bin/sh");
        let command = ShellCommand {
            device: OutputDevice::Server,
            ..ShellCommand::new(text, helper)
        }
        .env(self.environment.iter().cloned());
        validation::check_text(&command.text)?;
        validation::check_env(&command.env)?;
        let mark = format!(
            "{}-{}",
            std::process::id(),
            NEXT_MARK.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        let (supervisor, mut streams) = command.start_supervisor(
            workspace,
            shell.clone(),
            Vec::new(),
            &mark,
            SupervisorLifetime::Server,
        )?;
        let missing = || WorkspaceError::Start {
            program: shell.clone(),
            source: io::Error::from(io::ErrorKind::BrokenPipe),
        };
        let input = streams.input.take().ok_or_else(missing)?;
        let output = streams.stdout.take().ok_or_else(missing)?;
        let errors = streams.stderr.take().ok_or_else(missing)?;
        let streams_of_server = ServerStreams {
            input: Box::new(input),
            output,
            errors: Box::new(errors) as OutputReader,
        };
        let process = ServerProcess {
            supervisor: Some(supervisor),
            streams,
            report: WatchReport::default(),
            mark,
            shell,
        };
        Ok((process, streams_of_server))
    }
}

impl ServerProcess {
    /// Waits until the server has ended. Dropping the future loses nothing.
    pub async fn wait(&mut self) -> ServerExit {
        loop {
            match self.report.main {
                Some(SupervisorReport::Exited(code)) => return ServerExit::Exited(code),
                Some(SupervisorReport::Signaled(signal)) => return ServerExit::Signaled(signal),
                Some(SupervisorReport::Failed(number)) => {
                    let error = io::Error::from_raw_os_error(number);
                    let shell = self.shell.display();
                    return ServerExit::NotStarted(format!("{shell}: {error}"));
                }
                _ if self.streams.reports.is_none() => return ServerExit::SupervisorLost,
                _ => {}
            }
            match next_line(&mut self.streams.reports).await {
                Some(line) => self.keep_report(&line),
                None => self.streams.reports = None,
            }
        }
    }

    /// Ends the server and all processes that it started, and waits until none is left.
    pub async fn stop(mut self) {
        // Closing this half tells the supervisor to end; it still answers.
        self.streams.lifeline = None;
        while self.streams.reports.is_some() {
            match next_line(&mut self.streams.reports).await {
                Some(line) => self.keep_report(&line),
                None => self.streams.reports = None,
            }
        }
        if self.report.unkillable_processes.is_none() {
            process_tree::kill_by_environment_entry(MARK_ENV, &self.mark);
        }
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.reap().await;
        }
    }

    fn keep_report(&mut self, line: &str) {
        match self.report.parse_report(line) {
            Ok(SupervisorReport::AllGone(left)) => {
                self.report.unkillable_processes = Some(left.unsigned_abs());
            }
            Ok(SupervisorReport::LeftRunning(_) | SupervisorReport::Confined(_)) | Err(()) => {}
            Ok(report) => self.report.main = self.report.main.or(Some(report)),
        }
    }
}

impl std::fmt::Debug for ServerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerProcess")
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}

/// Quotes a word for the shell.
fn quote_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quote_word;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote_word("a b"), "'a b'");
        assert_eq!(quote_word("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quote_word(""), "''");
    }
}
