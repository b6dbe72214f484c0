//! Starts the process of a supervisor, or has it forked, and waits for it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::DRAIN_TIME;
#[cfg(target_os = "linux")]
use super::fork_server::{ForkFailure, ForkRequest, ForkServerSlot, ForkedProcess};
use crate::platform;
use crate::supervise::process_tree;

/// The inputs of a supervisor.
pub(super) struct SupervisorStart<'a> {
    /// The program of the supervisor.
    pub(super) helper: &'a Path,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
    /// The whole environment of the command.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The folder of the command, which may have been renamed or swapped for a link since it was opened.
    pub(super) folder: BorrowedFd<'a>,
    /// Its end of the socket between it and the agent.
    pub(super) socket: OwnedFd,
    /// The standard output of the command.
    pub(super) output: OwnedFd,
    /// Its standard error.
    pub(super) errors: OwnedFd,
}

/// The process that the agent waits for: the parent of a supervisor, its reaper.
pub(super) enum SupervisorProcess {
    /// A program that this process started.
    Started(Child),
    /// A process that a fork server forked for this one.
    #[cfg(target_os = "linux")]
    Forked(ForkedProcess),
}

impl SupervisorStart<'_> {
    /// Starts the program.
    pub(super) fn start(self) -> io::Result<SupervisorProcess> {
        let mut command = Command::new(self.helper);
        command
            .args(self.arguments)
            .env_clear()
            .envs(self.environment);
        platform::enter_folder(command.as_std_mut(), self.folder)?;
        command
            .stdin(self.socket)
            .stdout(self.output)
            .stderr(self.errors);
        command.spawn().map(SupervisorProcess::Started)
    }

    /// Has a fork server fork the process, and starts the program only if the server cannot be reached.
    #[cfg(target_os = "linux")]
    pub(super) fn fork_or_start(
        self,
        servers: &std::sync::Arc<ForkServerSlot>,
    ) -> io::Result<SupervisorProcess> {
        let request = ForkRequest {
            socket: self.socket.as_fd(),
            output: self.output.as_fd(),
            errors: self.errors.as_fd(),
            folder: self.folder,
            // Without the argument by which the program knows that it is a supervisor.
            arguments: self.arguments.get(1..).unwrap_or_default(),
            environment: &self.environment,
        };
        match servers.fork(self.helper, &request) {
            Ok(process) => Ok(SupervisorProcess::Forked(process)),
            Err(ForkFailure::Unreachable(_)) => self.start(),
            Err(ForkFailure::Lost(error)) => Err(error),
        }
    }
}

impl SupervisorProcess {
    /// Waits for its end, which should have come by now, and kills it if it hangs.
    pub(super) async fn reap(mut self) {
        if self.has_ended_within(DRAIN_TIME).await {
            return;
        }
        // First the supervisor, so that its parent, the reaper, still ends what it leaves.
        self.id()
            .into_iter()
            .for_each(process_tree::kill_children_of);
        if self.has_ended_within(DRAIN_TIME).await {
            return;
        }
        self.kill();
        self.has_ended_within(DRAIN_TIME).await;
    }

    async fn has_ended_within(&mut self, time: Duration) -> bool {
        match self {
            Self::Started(child) => timeout(time, child.wait()).await.is_ok(),
            #[cfg(target_os = "linux")]
            Self::Forked(process) => timeout(time, process.wait()).await.is_ok(),
        }
    }

    fn id(&self) -> Option<u32> {
        match self {
            Self::Started(child) => child.id(),
            #[cfg(target_os = "linux")]
            Self::Forked(process) => process.id(),
        }
    }

    fn kill(&mut self) {
        match self {
            // An error means that it has ended.
            Self::Started(child) => _ = child.start_kill(),
            #[cfg(target_os = "linux")]
            Self::Forked(process) => process.kill(),
        }
    }
}
