//! Runs a shell command in the workspace, under a [supervisor](crate::supervise).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time::{Instant, Sleep, sleep};

use crate::capture::{CapturedOutput, OutputCapture};
use crate::command_writes::{CommandRecord, WriteReport, WrittenPath};
use crate::error::WorkspaceError;
use crate::files::Workspace;
use crate::passed_descriptor;
use crate::path::WorkPath;
use crate::sandbox::loopback::LoopbackBridge;
use crate::sandbox::{
    ActiveSandbox, HostConnection, Sandbox, SandboxPlan, SandboxReport, SetupStage, WithheldPath,
};
use crate::supervise::{
    self, GIVE_UP, OutputDevice, SupervisorPlan, SupervisorReport, process_table, process_tree,
};
use crate::terminal::{self, TerminalMaster};

#[cfg(target_os = "linux")]
mod fork_server;
mod server_process;
mod supervisor_process;
mod validation;

#[cfg(target_os = "linux")]
pub(crate) use fork_server::ForkServerSlot;
use supervisor_process::{SupervisorProcess, SupervisorStart};

pub use server_process::{ServerCommand, ServerExit, ServerInput, ServerProcess, ServerStreams};
pub use validation::default_shell;

const CHUNK_BYTES: usize = 32 << 10;
const CAPTURED_BYTES: usize = 32 << 10;
/// The time that background processes may run after the shell's exit.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// The time that output may arrive after the last process ended.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// The time of silence after which the end of input is typed at the terminal again.
const TYPE_END_AFTER: Duration = Duration::from_secs(1);
/// The environment variable that marks the processes of one command.
const MARK_ENV: &str = "SABIR_COMMAND";
static NEXT_MARK: AtomicU64 = AtomicU64::new(0);

/// The variables that are set for every command unless the caller sets them. They switch off
/// password prompts, pagers and editors, which nobody could answer.
pub const QUIET_ENV: &[(&str, &str)] = &[
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("GCM_INTERACTIVE", "never"),
    ("GIT_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
    ("SSH_ASKPASS_REQUIRE", "never"),
];
const DUMB_TERM: (&str, &str) = ("TERM", "dumb");
/// A terminal type that every program knows.
const COLOR_TERM: (&str, &str) = ("TERM", "xterm-256color");

type OutputReader = Box<dyn AsyncRead + Send + Unpin>;
type CancelFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A shell command, to be run once.
///
/// It has no standard input unless [given](Self::standard_input), no terminal unless
/// [requested](Self::with_terminal), and no environment except what [`env`](Self::env) passes, the variables that keep programs from asking
/// questions (such as `GIT_TERMINAL_PROMPT=0`), and the mark `SABIR_COMMAND`.
#[must_use = "a command does nothing until it is run"]
pub struct ShellCommand {
    text: String,
    helper: PathBuf,
    shell: Option<PathBuf>,
    folder: WorkPath,
    device: OutputDevice,
    env: Vec<(String, String)>,
    timeout: Option<Duration>,
    grace: Duration,
    captured_bytes: (usize, usize),
    cancel: Option<CancelFuture>,
    sandbox: Option<Sandbox>,
    /// The bytes that its standard input holds.
    input: Vec<u8>,
}

/// The end of a command, with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// The way it ended.
    pub end: CommandExit,
    /// Standard output and standard error, in the order of arrival.
    pub output: CapturedOutput,
    /// The number of processes that the shell left running; they were ended.
    pub leftover_processes: u32,
    /// The number of its processes that could not be killed, because they belong to another user or
    /// hang in the kernel.
    pub unkillable_processes: u32,
    /// The sandbox that was in force; `None` without one.
    pub sandbox: Option<SandboxReport>,
}

/// The end of a command, without its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitSummary {
    /// The way it ended.
    pub end: CommandExit,
    /// The number of processes that the shell left running; they were ended.
    pub leftover_processes: u32,
    /// The number of its processes that could not be killed.
    pub unkillable_processes: u32,
}

/// The way a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandExit {
    /// The shell exited with this code.
    Exited(i32),
    /// The shell was ended by this signal.
    Signaled(i32),
    /// The time limit passed; everything was killed.
    TimedOut,
    /// The caller cancelled; everything was killed.
    Cancelled,
    /// The command used more memory than this, in MiB; everything was killed. Only in a sandbox.
    OutOfMemory(u32),
    /// The command started more processes than this; everything was killed. Only in a sandbox.
    TooManyProcesses(u32),
    /// The supervisor died, most likely killed by the command; every process with the command's
    /// mark was killed.
    SupervisorLost,
}

/// Writes words that continue a sentence: `exit code 3`, `ended by SIGKILL (9)`.
impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signaled(signal) => write!(f, "ended by {}", signal_name(*signal)),
            Self::TimedOut => f.write_str("killed when its time was up"),
            Self::Cancelled => f.write_str("stopped"),
            Self::OutOfMemory(most) => {
                write!(f, "killed, because it took more than {most} MiB of memory")
            }
            Self::TooManyProcesses(most) => {
                write!(f, "killed, because it started more than {most} processes")
            }
            Self::SupervisorLost => f.write_str("lost, because its supervisor was killed"),
        }
    }
}

/// Formats a signal as `SIGKILL (9)`, or as `signal 40` if it has no name here.
fn signal_name(number: i32) -> String {
    const NAMES: [&str; 15] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM",
    ];
    let index = usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_sub(1));
    match (index.and_then(|index| NAMES.get(index)), number) {
        (Some(name), _) => format!("SIG{name} ({number})"),
        (None, 24) => "SIGXCPU (24)".to_owned(),
        (None, 25) => "SIGXFSZ (25)".to_owned(),
        (None, 31) => "SIGSYS (31)".to_owned(),
        (None, _) => format!("signal {number}"),
    }
}

/// The stream that output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

impl ShellCommand {
    /// Creates a command for `bash -c` (or `sh -c` without `/bin/bash`) in the workspace folder,
    /// without a time limit.
    ///
    /// `helper` is the program to start as the supervisor: it must call
    /// [`supervise::main`](crate::supervise::main) when its first argument is
    /// [`supervise::ARGUMENT`](crate::supervise::ARGUMENT).
    pub fn new(text: impl Into<String>, helper: impl Into<PathBuf>) -> Self {
        Self {
            text: text.into(),
            helper: helper.into(),
            shell: None,
            folder: WorkPath::root(),
            device: OutputDevice::Pipe,
            env: Vec::new(),
            timeout: None,
            grace: Duration::from_secs(2),
            captured_bytes: (CAPTURED_BYTES, CAPTURED_BYTES),
            cancel: None,
            sandbox: None,
            input: Vec::new(),
        }
    }

    /// Sets the shell: any program that accepts `-c TEXT`.
    pub fn shell(mut self, program: impl Into<PathBuf>) -> Self {
        self.shell = Some(program.into());
        self
    }

    /// Sets the folder to run in.
    pub fn working_folder(mut self, folder: WorkPath) -> Self {
        self.folder = folder;
        self
    }

    /// Gives the command a terminal of 120 columns and 40 rows for its three streams. Nobody types
    /// there: the end of input (Ctrl-D) is sent at the start, and again after each second of
    /// silence.
    pub fn with_terminal(mut self) -> Self {
        self.device = OutputDevice::Terminal;
        self
    }

    /// Gives the command a standard input that holds these bytes, and then ends. A command that
    /// does not read them is not disturbed. Replaces a [terminal](Self::with_terminal).
    pub fn standard_input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.device = OutputDevice::Server;
        self.input = bytes.into();
        self
    }

    /// Adds environment variables. Nothing is inherited, so `PATH` and `HOME` have to be here. A
    /// later entry wins.
    pub fn env(mut self, env: impl IntoIterator<Item = (String, String)>) -> Self {
        self.env.extend(env);
        self
    }

    /// Sets the time after which everything is killed.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets the time between SIGTERM and SIGKILL; two seconds by default. It also bounds how long
    /// background processes can delay the result.
    pub fn grace_period(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// Sets the number of bytes of plain output that are kept from the beginning and from the end;
    /// 32 KiB each by default.
    pub fn captured_bytes(mut self, head: usize, tail: usize) -> Self {
        self.captured_bytes = (head, tail);
        self
    }

    /// Kills everything when this future is ready, for example a cancellation token or a channel.
    /// The outcome is then [`CommandExit::Cancelled`], with the output so far.
    pub fn cancel_when(mut self, cancelled: impl Future<Output = ()> + Send + 'static) -> Self {
        self.cancel = Some(Box::pin(cancelled));
        self
    }

    /// Confines the command. If the sandbox cannot be provided as requested, the command does not
    /// run.
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// Runs the command. `on_output` receives each piece of output as it arrives; nothing more is
    /// read until it returns, so a slow listener slows the command down and memory stays bounded.
    ///
    /// The future completes when the shell has ended and no process of the command is left: at once
    /// if it started none in the background, otherwise after a tenth of a second and at most the
    /// [grace period](Self::grace_period). Dropping the future kills everything as well; the
    /// supervisor then does so in the background, as it does when this process dies. Needs a tokio
    /// runtime with time and I/O.
    ///
    /// # Errors
    /// [`WorkspaceError::Command`] for a text that is empty, contains a NUL byte or is 128 KiB or
    /// longer, and for a malformed environment; [`Start`](WorkspaceError::Start) if the helper or
    /// the shell does not start; [`Sandbox`](WorkspaceError::Sandbox) if the sandbox cannot be
    /// provided; [`Missing`](WorkspaceError::Missing), [`NotAFolder`](WorkspaceError::NotAFolder)
    /// and [`LinkLeaves`](WorkspaceError::LinkLeaves) for the folder; [`Io`](WorkspaceError::Io) if
    /// the system has no descriptors or processes left. A command that fails is not an error but a
    /// [`CommandExit`].
    pub async fn run(
        self,
        workspace: &Workspace,
        mut on_output: impl FnMut(OutputStream, &[u8]) + Send,
    ) -> Result<CommandOutcome, WorkspaceError> {
        let (head, tail) = self.captured_bytes;
        let mut capture = OutputCapture::new(head, tail);
        let take = |stream, bytes: &[u8]| {
            capture.push(bytes);
            on_output(stream, bytes);
        };
        let (
            ExitSummary {
                end,
                leftover_processes,
                unkillable_processes,
            },
            active,
        ) = self.run_uncaptured(workspace, take).await?;
        let output = capture.finish();
        let confined = active.map(|active| active.to_report(end, &output.text()));
        Ok(CommandOutcome {
            end,
            output,
            leftover_processes,
            unkillable_processes,
            sandbox: confined,
        })
    }

    /// Runs the command as [`run`](Self::run) does, without keeping its output.
    pub(crate) async fn run_uncaptured(
        mut self,
        workspace: &Workspace,
        on_output: impl FnMut(OutputStream, &[u8]) + Send,
    ) -> Result<(ExitSummary, Option<ActiveSandbox>), WorkspaceError> {
        validation::check_text(&self.text)?;
        validation::check_env(&self.env)?;
        let shell = self.shell.take().unwrap_or_else(default_shell);
        // The mark must be unique on this machine only as long as this process lives, and it is.
        let mark = format!(
            "{}-{}",
            std::process::id(),
            NEXT_MARK.fetch_add(1, Ordering::Relaxed)
        );
        let planned = self
            .sandbox
            .as_ref()
            .map(|sandbox| sandbox.build_plan(workspace.root(), &self.env));
        let sandbox_plan = planned.transpose()?.flatten();
        let can_write = sandbox_plan
            .as_ref()
            .is_none_or(|plan| !plan.write.is_empty());
        let record = workspace.write_log().add_command(can_write);
        let words = sandbox_plan
            .as_ref()
            .map(SandboxPlan::to_args)
            .unwrap_or_default();
        // Without it the command runs, but connections to these ports are refused.
        let bridge = sandbox_plan
            .as_ref()
            .and_then(|plan| LoopbackBridge::start(&plan.loopback.as_ref()?.socket).ok());
        let (process, mut running) = self.start_supervisor(
            workspace,
            shell.clone(),
            words,
            &mark,
            SupervisorLifetime::Command,
        )?;
        let feed = feed_input(running.input.take(), std::mem::take(&mut self.input));
        let limits = WatchTimeouts {
            timeout: self.timeout,
            give_up_after: SETTLE_TIME + self.grace + GIVE_UP + DRAIN_TIME,
        };
        let cancel = self
            .cancel
            .take()
            .unwrap_or_else(|| Box::pin(std::future::pending()));
        let watched = running
            .watch_until_closed(limits, cancel, &mark, record, feed, on_output)
            .await;
        drop(bridge);
        if watched.unkillable_processes.is_some() {
            // It only frees the storage of removed files, so nobody has to wait for it.
            drop(tokio::spawn(process.reap()));
        } else {
            // Reaped before the reports are read, so that no zombie stays in any case.
            process.reap().await;
        }
        if let Some(SupervisorReport::Failed(number)) = watched.main {
            if let Some(reason) = SetupStage::explain_error(number) {
                return Err(WorkspaceError::Sandbox { reason });
            }
            return Err(WorkspaceError::Start {
                program: shell,
                source: io::Error::from_raw_os_error(number),
            });
        }
        // Normally a no-op, because the supervisor has removed the folder; it matters if it was
        // killed.
        sandbox_plan.iter().for_each(SandboxPlan::remove_temp_dir);
        let ending = ExitSummary {
            end: watched.command_exit(),
            leftover_processes: watched.left,
            unkillable_processes: watched.unkillable_processes.unwrap_or(0),
        };
        Ok((
            ending,
            sandbox_plan
                .zip(watched.confined)
                .map(|(plan, number)| ActiveSandbox {
                    plan,
                    number,
                    withheld: watched.withheld,
                    connections: watched.connections,
                    command: self.text,
                }),
        ))
    }

    /// Starts the supervisor. Must not await: from the spawn on, dropping `SupervisorStreams` is
    /// what ends the command.
    fn start_supervisor(
        &self,
        workspace: &Workspace,
        shell: PathBuf,
        sandbox: Vec<OsString>,
        mark: &str,
        lifetime: SupervisorLifetime,
    ) -> Result<(SupervisorProcess, SupervisorStreams), WorkspaceError> {
        let folder = self.folder.to_string();
        let socket = "the socket of the command";
        let fail = |error| WorkspaceError::from_io("enter", &folder, error);
        let dir = workspace
            .dir()
            .open_dir(self.folder.as_syscall_path())
            .map_err(fail)?;
        if rustix::fs::fstat(&dir)
            .map_err(|error| fail(error.into()))?
            .st_nlink
            == 0
        {
            // An open handle outlives its folder, but nothing can run in a deleted folder.
            return Err(WorkspaceError::Missing { path: folder });
        }
        let fail = |error| WorkspaceError::from_io("open", socket, error);
        let (ours, theirs) = Socket::pair().map_err(fail)?;
        let input = match self.device {
            OutputDevice::Server => {
                let (from, to) = io::pipe().map_err(fail)?;
                passed_descriptor::send_descriptor(&ours, from.as_fd()).map_err(fail)?;
                Some(pipe::Sender::from_owned_fd(to.into()).map_err(fail)?)
            }
            OutputDevice::Pipe | OutputDevice::Terminal => None,
        };
        ours.set_nonblocking(true).map_err(fail)?;
        let (reports, lifeline) = UnixStream::from_std(ours).map_err(fail)?.into_split();
        let device = self.device;
        let text = OsString::from(&self.text);
        let plan = SupervisorPlan {
            settle: SETTLE_TIME,
            grace: self.grace,
            device,
            shell: shell.into(),
            text,
            sandbox,
        };
        let term = if device == OutputDevice::Terminal {
            COLOR_TERM
        } else {
            DUMB_TERM
        };
        let passes = |name: &str| {
            self.sandbox
                .as_ref()
                .is_none_or(|sandbox| sandbox.passes_env(name))
        };
        let own = self
            .env
            .iter()
            .filter(|(name, _)| passes(name))
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let variables: BTreeMap<&str, &str> = QUIET_ENV
            .iter()
            .copied()
            .chain([term])
            .chain(own)
            .chain([(MARK_ENV, mark)])
            .collect();
        let mut terminal_master = None;
        let mut pipes = None;
        let (output, errors) = if device == OutputDevice::Terminal {
            let fail = |error| WorkspaceError::from_io("open", "a terminal", error);
            let (ours, theirs) = terminal::open_terminal().map_err(fail)?;
            terminal_master = Some(ours);
            (theirs.try_clone().map_err(fail)?, theirs)
        } else {
            let fail = |error| WorkspaceError::from_io("open", "a pipe", error);
            let (stdout, output) = open_output_pipe().map_err(fail)?;
            let (stderr, errors) = open_output_pipe().map_err(fail)?;
            pipes = Some((stdout, stderr));
            (output, errors)
        };
        let supervisor = SupervisorStart {
            helper: &self.helper,
            arguments: plan.into_args(),
            environment: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            folder: dir.as_fd(),
            socket: theirs.into(),
            output,
            errors,
        };
        let started = match lifetime {
            #[cfg(target_os = "linux")]
            SupervisorLifetime::Command => supervisor.fork_or_start(&workspace.fork_servers),
            _ => supervisor.start(),
        };
        let process = started.map_err(|source| WorkspaceError::Start {
            program: self.helper.clone(),
            source,
        })?;
        let (stdout, stderr) = match (&terminal_master, pipes) {
            (Some(master), _) => (Some(Box::new(master.clone()) as OutputReader), None),
            (None, Some((stdout, stderr))) => (
                Some(Box::new(stdout) as OutputReader),
                Some(Box::new(stderr) as OutputReader),
            ),
            (None, None) => (None, None),
        };
        Ok((
            process,
            SupervisorStreams {
                stdout,
                stderr,
                terminal_master,
                input,
                reports: Some(BufReader::new(reports).lines()),
                lifeline: Some(lifeline),
            },
        ))
    }
}

/// Opens a pipe for the output of a command: the end of this process, and the command's.
fn open_output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (from, to) = io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(from.into())?, to.into()))
}

/// The process that a supervisor is started for, and with which it ends.
#[derive(Clone, Copy)]
enum SupervisorLifetime {
    Command,
    /// A server, of which there are few: they are started before there is a fork server.
    Server,
}

/// The time limits of a run.
#[derive(Clone, Copy)]
struct WatchTimeouts {
    timeout: Option<Duration>,
    /// The time from the moment an end is due until the supervisor is considered dead.
    give_up_after: Duration,
}

/// The agent's ends of all connections; each is `None` once it is closed.
struct SupervisorStreams {
    stdout: Option<OutputReader>,
    stderr: Option<OutputReader>,
    terminal_master: Option<TerminalMaster>,
    /// The standard input of a server.
    input: Option<pipe::Sender>,
    reports: Option<Lines<BufReader<OwnedReadHalf>>>,
    lifeline: Option<OwnedWriteHalf>,
}

/// The facts collected while the command runs.
#[derive(Default)]
struct WatchReport {
    /// The end that was requested: time-out or cancellation.
    asked: Option<CommandExit>,
    /// The supervisor's report about the shell.
    main: Option<SupervisorReport>,
    /// The supervisor's report about the sandbox.
    confined: Option<i32>,
    /// The protected paths that were restored.
    withheld: Vec<WithheldPath>,
    /// The connections through the proxy of package registries.
    connections: Vec<HostConnection>,
    left: u32,
    unkillable_processes: Option<u32>,
    /// The entry for what the command writes.
    record: Option<CommandRecord>,
}

impl WatchReport {
    fn is_ending(&self) -> bool {
        self.asked.is_some() || self.main.is_some()
    }

    /// Parses a line of the supervisor; keeps one about a protected path.
    fn parse_report(&mut self, line: &str) -> Result<SupervisorReport, ()> {
        if let Some(path) = line.strip_prefix(supervise::WITHHELD) {
            let withheld = WithheldPath::from_line(path);
            // The supervisor moved it for the command, so it counts as written by it.
            for path in withheld
                .iter()
                .flat_map(|withheld| [Some(&withheld.path), withheld.kept_as.as_ref()])
                .flatten()
            {
                self.add_write(WriteReport::Written(WrittenPath {
                    path: path.into(),
                    is_tree: true,
                }));
            }
            self.withheld.extend(withheld);
            return Err(());
        }
        if let Some(report) = line.strip_prefix(supervise::WRITES) {
            // A line that cannot be read is a write that is not known.
            self.add_write(WriteReport::from_line(report).unwrap_or(WriteReport::Lost));
            return Err(());
        }
        if let Some(connection) = line.strip_prefix(supervise::CONNECTION) {
            HostConnection::add_line(&mut self.connections, connection);
            return Err(());
        }
        line.parse()
    }

    fn add_write(&self, report: WriteReport) {
        if let Some(record) = &self.record {
            record.add_report(report);
        }
    }

    fn is_over_limit(&self) -> bool {
        matches!(
            self.main,
            Some(SupervisorReport::OutOfMemory(_) | SupervisorReport::TooManyProcesses(_))
        )
    }

    fn command_exit(&self) -> CommandExit {
        match (self.asked, self.main) {
            (Some(asked), _) => asked,
            (None, Some(SupervisorReport::Exited(code))) => CommandExit::Exited(code),
            (None, Some(SupervisorReport::Signaled(signal))) => CommandExit::Signaled(signal),
            (None, Some(SupervisorReport::OutOfMemory(most))) => {
                CommandExit::OutOfMemory(most.unsigned_abs())
            }
            (None, Some(SupervisorReport::TooManyProcesses(most))) => {
                CommandExit::TooManyProcesses(most.unsigned_abs())
            }
            (None, _) => CommandExit::SupervisorLost,
        }
    }
}

impl SupervisorStreams {
    /// Reads until every stream is closed, or until waiting longer is pointless.
    async fn watch_until_closed(
        mut self,
        limits: WatchTimeouts,
        mut cancel: CancelFuture,
        mark: &str,
        record: CommandRecord,
        feed: impl Future<Output = ()>,
        mut on_output: impl FnMut(OutputStream, &[u8]),
    ) -> WatchReport {
        let mut watched = WatchReport {
            record: Some(record),
            ..WatchReport::default()
        };
        let mut out = vec![0; CHUNK_BYTES];
        let mut err = vec![0; CHUNK_BYTES];
        // Futures are pinned once outside the loop: `select!` would restart temporary ones in each
        // round.
        let mut alarm = Box::pin(sleep(limits.timeout.unwrap_or(Duration::MAX)));
        let mut last_call: Option<Pin<Box<Sleep>>> = None;
        let mut feed = std::pin::pin!(feed);
        let mut is_fed = false;
        let mut silence = self
            .terminal_master
            .as_ref()
            .map(TerminalMaster::type_end_of_input)
            .map(|()| Box::pin(sleep(TYPE_END_AFTER)));
        while self.stdout.is_some() || self.stderr.is_some() || self.reports.is_some() {
            let ending = watched.is_ending();
            tokio::select! {
                () = &mut alarm, if !ending && limits.timeout.is_some() => watched.asked = Some(CommandExit::TimedOut),
                () = &mut cancel, if !ending => watched.asked = Some(CommandExit::Cancelled),
                () = &mut feed, if !is_fed => is_fed = true,
                () = wait_for_timer(&mut last_call) => {
                    if self.reports.take().is_none() {
                        // The tree is dead, yet the pipe is open: a process outside was handed it.
                        break;
                    }
                    process_tree::kill_by_environment_entry(MARK_ENV, mark);
                    last_call = Some(Box::pin(sleep(DRAIN_TIME)));
                }
                () = wait_for_timer(&mut silence) => {
                    silence = self.terminal_master.as_ref().map(TerminalMaster::type_end_of_input).map(|()| Box::pin(sleep(TYPE_END_AFTER)));
                }
                count = read_pipe(&mut self.stdout, &mut out) => {
                    if let Some(silence) = &mut silence {
                        silence.as_mut().reset(Instant::now() + TYPE_END_AFTER);
                    }
                    deliver_output(&mut self.stdout, count, &out, |bytes| on_output(OutputStream::Stdout, bytes));
                }
                count = read_pipe(&mut self.stderr, &mut err) => {
                    deliver_output(&mut self.stderr, count, &err, |bytes| on_output(OutputStream::Stderr, bytes));
                }
                line = next_line(&mut self.reports) => match line.as_deref().map(|line| watched.parse_report(line)) {
                    Some(Ok(SupervisorReport::Confined(number))) => watched.confined = Some(number),
                    Some(Ok(SupervisorReport::LeftRunning(left))) => watched.left = left.unsigned_abs(),
                    Some(Ok(SupervisorReport::AllGone(left))) => watched.unkillable_processes = Some(left.unsigned_abs()),
                    // How the shell ended after an out-of-memory kill tells nothing more.
                    Some(Ok(_)) if watched.is_over_limit() => {}
                    Some(Ok(report)) => watched.main = Some(report),
                    Some(Err(())) => {}
                    None => {
                        self.reports = None;
                        // Where the kernel does not reparent orphans to the supervisor, it may have
                        // missed some.
                        if watched.unkillable_processes.is_none() || !process_table::ADOPTS_ORPHANS {
                            process_tree::kill_by_environment_entry(MARK_ENV, mark);
                        }
                        last_call = Some(Box::pin(sleep(DRAIN_TIME)));
                    }
                }
            }
            if watched.asked.is_some() {
                // Dropping this half closes it: the supervisor reads the end of the stream, and can
                // still reply.
                self.lifeline = None;
            }
            if watched.is_ending() && last_call.is_none() {
                last_call = Some(Box::pin(sleep(limits.give_up_after)));
            }
        }
        watched
    }
}

/// Writes the standard input of a command, and closes it.
async fn feed_input(pipe: Option<pipe::Sender>, bytes: Vec<u8>) {
    if let Some(mut pipe) = pipe {
        // A command that has ended, or closed its input, does not want the rest.
        _ = pipe.write_all(&bytes).await;
    }
}

async fn wait_for_timer(alarm: &mut Option<Pin<Box<Sleep>>>) {
    match alarm {
        Some(alarm) => alarm.await,
        None => std::future::pending().await,
    }
}

async fn read_pipe(pipe: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        // An error of a pipe is its end: nothing more can be read from it.
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

fn deliver_output<P>(
    pipe: &mut Option<P>,
    count: usize,
    buffer: &[u8],
    on_output: impl FnOnce(&[u8]),
) {
    match buffer.get(..count) {
        Some(bytes) if !bytes.is_empty() => on_output(bytes),
        _ => *pipe = None,
    }
}

async fn next_line(reports: &mut Option<Lines<BufReader<OwnedReadHalf>>>) -> Option<String> {
    match reports {
        Some(reports) => reports.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}
