//! Implements the supervisor: a small process between the agent and a command, which makes sure
//! that nothing the command started outlives it.
//!
//! The program that uses this crate starts *itself* again with [`ARGUMENT`] as its first argument
//! and passes the rest to [`main`]. On Linux it does so once for a workspace; that process, the fork server, then
//! forks a supervisor for each command. The supervisor
//!
//! - is the subreaper of everything below it: a process that forks twice, or starts a session of
//!   its own, is adopted by the supervisor instead of init, so the tree cannot lose a branch;
//! - holds one end of a socket whose other end only the agent has. When the agent dies for any
//!   reason, the kernel closes that end, and the supervisor reads the end of the stream. A parent
//!   death signal would not do: SIGKILL would end the supervisor before it could clean up, and any
//!   other signal could be lost;
//! - blocks every signal, has no terminal, and cannot be traced, so the command can neither
//!   interrupt nor steer it.
//!
//! At the end (after the shell's exit and a moment for the rest to finish, or at once when the
//! socket closes) it sends SIGTERM and SIGCONT to every process below, waits, then stops and kills
//! them again and again until the kernel reports that it has no children. That report is the proof;
//! `/proc` is only used to find the processes.
//!
//! Limits: the command runs as the same user and may `kill -9` the supervisor. Then the shell gets
//! SIGKILL from the kernel (parent death signal); the parent of the supervisor, the
//! reaper, adopts everything else and kills it; and the agent, which sees the socket close, kills
//! every process that has the command's mark in its environment. A command escapes if it kills both
//! its supervisor and the reaper at the same moment, removes the mark from its children and forks
//! twice; or if it starts processes through another service (`systemd-run`, `docker`, `at`). Only a
//! PID namespace helps against intent.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getppid, setsid, wait};

use crate::passed_descriptor;
use crate::platform;
use crate::sandbox::environment::{LaunchProgram, SandboxEnvironment};
use crate::sandbox::prepared_launcher::AssignedLauncher;
use crate::sandbox::process_cgroup::ProcessCgroup;
use crate::sandbox::{self, WithheldPath, security_check};
use crate::terminal_guard;

#[cfg(target_os = "linux")]
pub(crate) mod fork_server;
#[cfg(target_os = "linux")]
mod other_writers;
pub(crate) mod process_table;
pub(crate) mod process_tree;
mod reaper;
mod registry_proxy;
#[cfg(target_os = "linux")]
mod write_watch;

#[cfg(target_os = "linux")]
pub(crate) use reaper::close_streams;

/// The beginning of the line that reports a [`WithheldPath`].
pub(crate) const WITHHELD: &str = "withheld ";
/// The beginning of the line that reports a connection through the proxy of package registries.
pub(crate) const CONNECTION: &str = "connection ";

/// The beginning of the line that reports a written path, or how far writes are watched.
pub(crate) const WRITES: &str = "writes ";

/// The first argument of a program that was started as the supervisor.
pub const ARGUMENT: &str = "__supervise";

/// The time that processes may survive SIGKILL, for instance on a hanging disk, before they are
/// given up.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(5);
/// The number of processes for each processor at which a command counts as a fork bomb. More processors run more ordinary processes, and
/// end them faster.
const PROCESSES_PER_CORE: usize = 512;
/// The least and the greatest such number for the whole machine.
const MAX_PROCESSES: (usize, usize) = (1024, 8192);
/// The name of a supervisor whose command has ended, as `ps` shows it.
const CLEANUP_NAME: &std::ffi::CStr = c"task-cleanup";
/// The interval at which processes are counted.
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// The number of processes from which on they get no time to end by themselves: signalling each of
/// them takes longer than they take to multiply.
const MANY_PROCESSES: usize = 512;
/// The interval at which ended orphans are reaped while the command runs.
const REAP_EVERY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

/// Runs the supervisor; `args` are the arguments after [`ARGUMENT`], as [`crate::ShellCommand`]
/// wrote them.
///
/// Call it first thing in `main`, before any thread is started, and return its result. Standard
/// input must be the socket that `ShellCommand` made. The exit code has no meaning; the result goes
/// through the socket.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Wrong arguments mean that a person typed the hidden argument, so there is no socket to report
    // to.
    let args: Vec<OsString> = args.into_iter().collect();
    if args
        .first()
        .is_some_and(|first| first == security_check::PROBE)
    {
        let words: Vec<String> = args
            .iter()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        if security_check::run_probe(&words) {
            let _ = rustix::io::write(std::io::stdout().as_fd(), b"x\n");
        }
        return ExitCode::SUCCESS;
    }
    if let Some((first, words)) = args.split_first()
        && first == terminal_guard::MODE
    {
        return terminal_guard::run_guard(words);
    }
    #[cfg(target_os = "linux")]
    if args.first().is_some_and(|first| first == fork_server::MODE) {
        return match fork_server::serve_requests() {
            Ok(Some(standby)) => supervise_standby(standby),
            Ok(None) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    supervise_command(args)
}

/// Supervises the command that a supervisor in reserve was assigned.
#[cfg(target_os = "linux")]
fn supervise_standby(standby: fork_server::AssignedStandby) -> ExitCode {
    let fork_server::AssignedStandby {
        order,
        mut reaper,
        launcher,
    } = standby;
    let Some(plan) = SupervisorPlan::from_args(order.arguments) else {
        return ExitCode::from(2);
    };
    let done = reaper.set_grace(plan.grace).and_then(|()| {
        let start = SupervisorStart {
            variables: Some(&order.environment),
            launcher,
        };
        run_supervisor(&plan, start, reaper.reaper())
    });
    report_failure(done)
}

/// Supervises the command of a plan that was given as arguments. It has the environment of this process.
fn supervise_command(args: Vec<OsString>) -> ExitCode {
    let Some(plan) = SupervisorPlan::from_args(args) else {
        return ExitCode::from(2);
    };
    let done = match reaper::fork_supervisor(&mut None) {
        Ok(reaper::SupervisorRole::Done) => return ExitCode::SUCCESS,
        Ok(reaper::SupervisorRole::Supervisor(mut reaper)) => reaper
            .set_grace(plan.grace)
            .and_then(|()| run_supervisor(&plan, SupervisorStart::default(), reaper.reaper())),
        Err(error) => Err(error),
    };
    report_failure(done)
}

/// Reports a failure to the agent, and returns the exit code.
fn report_failure(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send_report(SupervisorReport::Failed(error.raw_os_error().unwrap_or(0)));
            ExitCode::FAILURE
        }
    }
}

/// The environment and the launcher that a supervisor has besides its plan.
#[derive(Default)]
struct SupervisorStart<'a> {
    /// The environment of the command; `None` for that of this process.
    variables: Option<&'a [(OsString, OsString)]>,
    /// A launcher that was started ahead.
    launcher: Option<AssignedLauncher>,
}

/// The command to run, with its time limits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SupervisorPlan {
    /// The time that background processes may run after the shell's exit.
    pub(crate) settle: Duration,
    /// The time that processes may run after SIGTERM.
    pub(crate) grace: Duration,
    /// The kind of standard output.
    pub(crate) device: OutputDevice,
    pub(crate) shell: OsString,
    pub(crate) text: OsString,
    /// The arguments of the sandbox plan; empty for no sandbox.
    pub(crate) sandbox: Vec<OsString>,
}

/// The device that a command prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputDevice {
    /// A pipe for each of its two streams.
    Pipe,
    /// A terminal, which is its standard input as well.
    Terminal,
    /// A pipe for each of its two streams, and one for its standard input, whose end the agent sends through the socket.
    Server,
}

impl OutputDevice {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Terminal => "terminal",
            Self::Server => "server",
        }
    }
}

impl SupervisorPlan {
    /// Returns the arguments of the shell.
    pub(crate) fn shell_arguments(&self) -> [&OsStr; 2] {
        [OsStr::new("-c"), self.text.as_os_str()]
    }

    pub(crate) fn into_args(self) -> Vec<OsString> {
        let number = |time: Duration| time.as_millis().to_string().into();
        let device = self.device.as_str().into();
        let mut args = vec![
            ARGUMENT.into(),
            number(self.settle),
            number(self.grace),
            device,
            self.shell,
            self.text,
        ];
        args.extend(self.sandbox);
        args
    }

    pub(crate) fn from_args(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let mut time = || Some(Duration::from_millis(args.next()?.to_str()?.parse().ok()?));
        let settle = time()?;
        let grace = time()?;
        let word = args.next()?;
        let device = [
            OutputDevice::Pipe,
            OutputDevice::Terminal,
            OutputDevice::Server,
        ]
        .into_iter()
        .find(|device| word == device.as_str())?;
        Some(Self {
            settle,
            grace,
            device,
            shell: args.next()?,
            text: args.next()?,
            sandbox: args.collect(),
        })
    }
}

/// A message of the supervisor to the agent, one per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupervisorReport {
    /// The shell could not be started: the system's error number, or a code of the sandbox stage
    /// that failed.
    Failed(i32),
    /// The shell starts in a sandbox: the level, combined with the Landlock version.
    Confined(i32),
    /// The shell ended with this code.
    Exited(i32),
    /// The shell was ended by this signal.
    Signaled(i32),
    /// The command uses more memory than this, in MiB, and is killed for it.
    OutOfMemory(i32),
    /// The command started more processes than this, and is killed for it.
    TooManyProcesses(i32),
    /// The shell left this many processes running; they are being ended.
    LeftRunning(i32),
    /// All processes have ended except this many, which cannot be killed.
    AllGone(i32),
}

impl fmt::Display for SupervisorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, number) = match self {
            Self::Failed(number) => ("failed", number),
            Self::Confined(number) => ("confined", number),
            Self::Exited(number) => ("exited", number),
            Self::Signaled(number) => ("signaled", number),
            Self::OutOfMemory(number) => ("starved", number),
            Self::TooManyProcesses(number) => ("crowded", number),
            Self::LeftRunning(number) => ("left", number),
            Self::AllGone(number) => ("gone", number),
        };
        write!(f, "{word} {number}")
    }
}

impl FromStr for SupervisorReport {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (word, number) = line.split_once(' ').ok_or(())?;
        let number = number.parse().map_err(drop)?;
        match word {
            "failed" => Ok(Self::Failed(number)),
            "confined" => Ok(Self::Confined(number)),
            "exited" => Ok(Self::Exited(number)),
            "signaled" => Ok(Self::Signaled(number)),
            "starved" => Ok(Self::OutOfMemory(number)),
            "crowded" => Ok(Self::TooManyProcesses(number)),
            "left" => Ok(Self::LeftRunning(number)),
            "gone" => Ok(Self::AllGone(number)),
            _ => Err(()),
        }
    }
}

/// Returns the number of processes that a command may have on this machine.
pub(crate) fn max_processes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (least, most) = MAX_PROCESSES;
    (cores * PROCESSES_PER_CORE).clamp(least, most)
}

/// The maximum number of processes and threads that the user may have for the command to start
/// more.
pub(crate) const MAX_USER_TASKS: u64 = 16_384;
/// The number of threads for each process that a command may have, on average.
const THREADS_PER_PROCESS: usize = 4;

/// Returns the maximum number of processes and threads of one command, where they can be counted
/// separately. A fork bomb grows up to it before the supervisor notices.
pub(crate) fn max_tasks() -> u64 {
    let tasks = max_processes().saturating_mul(THREADS_PER_PROCESS);
    u64::try_from(tasks)
        .unwrap_or(MAX_USER_TASKS)
        .min(MAX_USER_TASKS)
}

fn run_supervisor(
    plan: &SupervisorPlan,
    start: SupervisorStart<'_>,
    reaper: Pid,
) -> io::Result<()> {
    // Signals have been blocked since before the fork. In a separate session, a signal to the
    // reaper's group does not end both processes.
    let _ = setsid();
    let lifeline = RequiredProcesses::new(reaper);
    // Before the shell starts: a process that loses its parent earlier would be adopted by init.
    platform::adopt_orphans()?;
    // The command has the same user.
    platform::forbid_inspection()?;
    // A kernel before 5.11 does not know this flag. Descriptors that the agent's parent left open
    // are then inherited.
    let _ = platform::close_other_descriptors_on_exec();
    // Received before the socket is checked for its end, since a waiting message looks like a
    // closed socket.
    let input = match plan.device {
        OutputDevice::Server => Some(passed_descriptor::receive_descriptor(&std::io::stdin())?),
        OutputDevice::Pipe | OutputDevice::Terminal => None,
    };
    // Prepared before the shell starts; dropping it removes the masks and the temporary folder.
    let mut environment = SandboxEnvironment::open(&plan.sandbox, start.launcher)?;
    let (shell, confined) = environment.start_program(&LaunchProgram {
        path: &plan.shell,
        arguments: plan.shell_arguments(),
        variables: start.variables,
        device: plan.device,
        input: input.as_ref(),
    })?;
    // The program's copy alone keeps its input open.
    drop(input);
    if let Some(confined) = confined {
        send_report(SupervisorReport::Confined(confined));
    }
    // After the last fork: a fork needs a process with one thread.
    if let Some((listener, hosts)) = environment.take_proxy() {
        registry_proxy::start_proxy(listener, hosts);
    }
    let watch = environment.take_watch();
    #[cfg(target_os = "linux")]
    let watch = watch.map(|(listener, root)| write_watch::start_write_watch(listener, root));
    let mut children = ChildProcesses {
        shell,
        status: None,
        alive: true,
        namespace: sandbox::helper_count(confined) > 0,
        cgroup: environment.take_cgroup(),
    };
    // If waiting is impossible, end everything now: nothing may run unwatched.
    let end_now = watch_shell(&mut children, &lifeline, environment.limits()).unwrap_or(true);
    let settle = if end_now { Duration::ZERO } else { plan.settle };
    children.wait_until(settle, || lifeline.is_closed());
    if children.alive && !end_now {
        // Counting the processes of a fork bomb would give it more time to grow.
        if process_tree::exceeds_count(MANY_PROCESSES) {
            children.kill_now();
        }
        let running = process_tree::count_running().saturating_sub(sandbox::helper_count(confined));
        send_report(SupervisorReport::LeftRunning(
            i32::try_from(running).unwrap_or(i32::MAX),
        ));
    }
    // Background processes had their time; processes that are left now must not stay.
    children.end_all(plan.grace);
    #[cfg(target_os = "linux")]
    watch.into_iter().for_each(write_watch::WriteWatch::finish);
    #[cfg(not(target_os = "linux"))]
    drop(watch);
    for path in environment.restore_protected() {
        send_withheld(&path);
    }
    // Cleaned up before the last report, so that the agent's next step does not meet the masks.
    let removed = environment.remove_traces();
    let unkillable_processes = if children.alive {
        process_tree::list_descendants().len()
    } else {
        0
    };
    // Nobody waits for the rest, which frees the storage of removed folders. This process leaves
    // the command's folder and overwrites its arguments, so that it is not mistaken for a process
    // of the command. Overwriting them requires that inspection is allowed, which is harmless now.
    let _ = platform::allow_inspection();
    platform::rename_process(CLEANUP_NAME);
    let _ = rustix::process::chdir("/");
    send_report(SupervisorReport::AllGone(
        i32::try_from(unkillable_processes).unwrap_or(i32::MAX),
    ));
    let _ = reaper::close_streams();
    drop(removed);
    Ok(())
}

/// Waits until the shell has ended (`false`), or until the agent asks for the end, the agent dies,
/// or the command exceeds its limits (`true`).
fn watch_shell(
    children: &mut ChildProcesses,
    lifeline: &RequiredProcesses,
    limits: Option<SupervisedLimits>,
) -> io::Result<bool> {
    // A kernel before 5.3 has no process handles (pidfd), so the loop polls often. A pidfd becomes
    // readable when its process ends, so one poll waits for both the shell and the agent.
    let handle: Option<OwnedFd> = platform::open_process_handle(children.shell);
    let every = match handle {
        // Where the kernel does not keep orphans, they are looked for in the process table.
        Some(_) if limits.is_some() || !process_table::ADOPTS_ORPHANS => COUNT_EVERY,
        Some(_) => REAP_EVERY,
        None => PAUSE,
    };
    let timeout = Timespec::try_from(every).map_err(io::Error::other)?;
    let mut counted = Instant::now();
    let mut looked = Instant::now();
    loop {
        children.reap_ended();
        if children.status.is_some() {
            return Ok(false);
        }
        if lifeline.is_closed() {
            return Ok(true);
        }
        let excess = limits.and_then(|limits| {
            let is_crowded =
                counted.elapsed() >= COUNT_EVERY && process_tree::exceeds_count(limits.processes);
            match is_crowded {
                true => Some(SupervisorReport::TooManyProcesses(
                    i32::try_from(limits.processes).unwrap_or(i32::MAX),
                )),
                false if looked.elapsed() >= REAP_EVERY => limits.find_memory_excess(),
                false => None,
            }
        });
        if let Some(report) = excess {
            send_report(report);
            children.kill_now();
            return Ok(true);
        }
        if counted.elapsed() >= COUNT_EVERY {
            counted = Instant::now();
        }
        // Summing up memory reads many files in `/proc`, so it is done once per interval at most.
        if looked.elapsed() >= REAP_EVERY {
            looked = Instant::now();
        }
        let socket = std::io::stdin();
        let mut waited = vec![PollFd::new(&socket, PollFlags::IN)];
        waited.extend(
            [&handle, &lifeline.handle]
                .into_iter()
                .flatten()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The limits of all processes of a command together, which the supervisor checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SupervisedLimits {
    /// The memory in KiB.
    pub(crate) memory_kib: Option<u64>,
    pub(crate) processes: usize,
}

impl SupervisedLimits {
    /// Returns a report if the limit of memory is exceeded now.
    fn find_memory_excess(self) -> Option<SupervisorReport> {
        let limit = self
            .memory_kib
            .filter(|limit| process_tree::exceeds_memory(*limit))?;
        Some(SupervisorReport::OutOfMemory(
            i32::try_from(limit / 1024).unwrap_or(i32::MAX),
        ))
    }
}

/// The processes without which the command must end: the agent and the reaper.
struct RequiredProcesses {
    reaper: Pid,
    /// A handle of the reaper, which becomes readable when it ends; none where the kernel has none.
    handle: Option<OwnedFd>,
}

impl RequiredProcesses {
    fn new(reaper: Pid) -> Self {
        Self {
            reaper,
            handle: platform::open_process_handle(reaper),
        }
    }

    /// Returns true if the agent closed its end of the socket, or the reaper was killed. Nothing is
    /// ever sent in this direction of the socket, so readable means closed.
    fn is_closed(&self) -> bool {
        let socket = std::io::stdin();
        let mut waited = [PollFd::new(&socket, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        getppid() != Some(self.reaper) || matches!(poll(&mut waited, Some(&at_once)), Ok(1..))
    }
}

/// Sends a line to the agent. The error is ignored: a dead agent needs no report.
fn send_report(report: SupervisorReport) {
    let _ = rustix::io::write(std::io::stdin().as_fd(), format!("{report}\n").as_bytes());
}

/// Reports a restored protected path to the agent, in a separate form of line.
fn send_withheld(path: &WithheldPath) {
    let line = format!("{WITHHELD}{}\n", path.to_line());
    let _ = rustix::io::write(std::io::stdin().as_fd(), line.as_bytes());
}

/// The processes below the supervisor.
struct ChildProcesses {
    shell: Pid,
    status: Option<WaitStatus>,
    /// True if there was any child at the last reaping.
    alive: bool,
    /// True if they are in a PID namespace, whose first process is a child of this one.
    namespace: bool,
    cgroup: Option<ProcessCgroup>,
}

impl ChildProcesses {
    /// Reaps every process that has ended, and reports the shell's end at once.
    fn reap_ended(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.shell => {
                    self.status = Some(status);
                    match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => send_report(SupervisorReport::Exited(code)),
                        (None, signal) => {
                            send_report(SupervisorReport::Signaled(signal.unwrap_or(0)))
                        }
                    }
                }
                // An orphan that was adopted; reaping it is all that it needs.
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.alive = true;
                    process_tree::note_orphans();
                    return;
                }
                // The only other error is that there are no children.
                Err(_) => {
                    self.alive = process_tree::has_orphans();
                    return;
                }
            }
        }
    }

    /// Waits until the last process has ended, the time has passed, or `enough` returns true.
    fn wait_until(&mut self, time: Duration, enough: impl Fn() -> bool) {
        let start = Instant::now();
        self.reap_ended();
        while self.alive && start.elapsed() < time && !enough() {
            // Most commands leave only the first process of their namespace, which ends at once.
            process_tree::wait_for_child(PAUSE);
            self.reap_ended();
        }
    }

    /// Kills every process without waiting for it.
    fn kill_now(&self) {
        if self.namespace {
            process_tree::kill_children();
        } else if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all();
            // Also a process that is not in the group.
            process_tree::kill_children();
        } else {
            process_tree::kill_all();
        }
    }

    /// Ends every process, first with SIGTERM, then with SIGKILL. Very many get no SIGTERM.
    fn end_all(&mut self, grace: Duration) {
        if self.alive && !process_tree::exceeds_count(MANY_PROCESSES) {
            // Listed once for both signals, so that every process that got SIGTERM is continued.
            let all = process_tree::list_descendants();
            process_tree::signal_all(&all, Signal::TERM);
            // A stopped process would not handle the signal.
            process_tree::signal_all(&all, Signal::CONT);
            self.wait_until(grace, || false);
        }
        let start = Instant::now();
        while self.alive && start.elapsed() < GIVE_UP {
            self.kill_now();
            sleep(PAUSE);
            self.reap_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervision_plan_parses_from_its_arguments() {
        let plan = || SupervisorPlan {
            settle: Duration::from_millis(100),
            grace: Duration::from_secs(2),
            device: OutputDevice::Server,
            shell: "/bin/sh".into(),
            text: "echo 'a\nb' -- \"$@\"".into(),
            sandbox: vec!["level".into(), "1".into()],
        };
        assert_eq!(
            SupervisorPlan::from_args(plan().into_args().into_iter().skip(1)),
            Some(plan())
        );
        assert_eq!(
            SupervisorPlan::from_args(["1".into(), "2".into(), "pipe".into(), "sh".into()]),
            None
        );
        assert_eq!(
            SupervisorPlan::from_args([
                "x".into(),
                "2".into(),
                "pipe".into(),
                "sh".into(),
                "y".into()
            ]),
            None
        );
        assert_eq!(
            SupervisorPlan::from_args([
                "1".into(),
                "2".into(),
                "tape".into(),
                "sh".into(),
                "y".into()
            ]),
            None
        );
    }

    #[test]
    fn reports_parse_from_their_lines() {
        for report in [
            SupervisorReport::Failed(2),
            SupervisorReport::Confined(1007),
            SupervisorReport::Exited(0),
            SupervisorReport::Signaled(15),
            SupervisorReport::OutOfMemory(2048),
            SupervisorReport::TooManyProcesses(4096),
            SupervisorReport::LeftRunning(2),
            SupervisorReport::AllGone(3),
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("".parse::<SupervisorReport>(), Err(()));
        assert_eq!("exited x".parse::<SupervisorReport>(), Err(()));
    }
}
