//! Implements the supervisor: a small process between the agent and a command, which makes sure
//! that nothing the command started outlives it.
//!
//! The program that uses this crate starts *itself* again with [`ARGUMENT`] as its first argument
//! and passes the rest to [`main`]. That process
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
//! SIGKILL from the kernel (parent death signal), and the agent, which sees the socket close, kills
//! every process that has the command's mark in its environment. A command escapes if it kills its
//! supervisor, removes the mark from its children and forks twice; if it stops the supervisor with
//! SIGSTOP and then outlives a `kill -9` of the agent; or if it starts processes through another
//! service (`systemd-run`, `docker`, `at`). Only a PID namespace helps against intent.

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
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open,
    set_child_subreaper, set_dumpable_behavior, setsid, wait,
};

use crate::kernel;
use crate::sandbox;
use crate::sandbox::environment::{LaunchProgram, SandboxEnvironment};

pub(crate) mod process_tree;

/// The first argument of a program that was started as the supervisor.
pub const ARGUMENT: &str = "__supervise";

/// The time that processes may survive SIGKILL, for instance on a hanging disk, before they are
/// given up.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(5);
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
    let Some(plan) = SupervisorPlan::from_args(args) else {
        return ExitCode::from(2);
    };
    match run_supervisor(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send_report(SupervisorReport::Failed(error.raw_os_error().unwrap_or(0)));
            ExitCode::FAILURE
        }
    }
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
}

impl OutputDevice {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Terminal => "terminal",
        }
    }
}

impl SupervisorPlan {
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

    fn from_args(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let mut time = || Some(Duration::from_millis(args.next()?.to_str()?.parse().ok()?));
        let settle = time()?;
        let grace = time()?;
        let word = args.next()?;
        let device = [OutputDevice::Pipe, OutputDevice::Terminal]
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
    /// The shell starts in a sandbox: the tier, combined with the Landlock version.
    Confined(i32),
    /// The shell ended with this code.
    Exited(i32),
    /// The shell was ended by this signal.
    Signaled(i32),
    /// The command uses more memory than this, in MiB, and is killed for it.
    OutOfMemory(i32),
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
            "left" => Ok(Self::LeftRunning(number)),
            "gone" => Ok(Self::AllGone(number)),
            _ => Err(()),
        }
    }
}

fn run_supervisor(plan: &SupervisorPlan) -> io::Result<()> {
    kernel::block_signals()?;
    // Fails only for a group leader, which has no terminal to lose.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A kernel before 5.11 does not know this flag; then descriptors that the agent's parent forgot
    // to close are inherited.
    let _ = kernel::close_others_on_exec();
    // Prepared before the shell starts; dropping it removes the masks and the temporary folder.
    let mut environment = SandboxEnvironment::open(&plan.sandbox)?;
    let arguments = [OsStr::new("-c"), plan.text.as_os_str()];
    let (shell, confined) = environment.start_program(&LaunchProgram {
        path: &plan.shell,
        arguments,
        device: plan.device,
    })?;
    if let Some(confined) = confined {
        send_report(SupervisorReport::Confined(confined));
    }
    let mut children = ChildProcesses {
        shell,
        status: None,
        alive: true,
    };
    // If waiting is impossible, end everything now: nothing may run unwatched.
    let end_now = watch_shell(&mut children, environment.memory_kib()).unwrap_or(true);
    let settle = if end_now { Duration::ZERO } else { plan.settle };
    children.wait_until(settle, is_lifeline_closed);
    if children.alive && !end_now {
        let running = process_tree::count_running().saturating_sub(sandbox::helper_count(confined));
        send_report(SupervisorReport::LeftRunning(
            i32::try_from(running).unwrap_or(i32::MAX),
        ));
    }
    children.end_all(plan.grace);
    // Cleaned up before the last report, so that the agent's next step does not meet the masks.
    drop(environment);
    let survivors = if children.alive {
        process_tree::list_descendants().len()
    } else {
        0
    };
    send_report(SupervisorReport::AllGone(
        i32::try_from(survivors).unwrap_or(i32::MAX),
    ));
    Ok(())
}

/// Waits until the shell has ended (`false`), or until the agent asks for the end, the agent dies,
/// or the command exceeds `limit` KiB of memory (`true`).
fn watch_shell(children: &mut ChildProcesses, limit: Option<u64>) -> io::Result<bool> {
    // A kernel before 5.3 has no process handles; then the loop polls often.
    let handle: Option<OwnedFd> = pidfd_open(children.shell, PidfdFlags::empty()).ok();
    let every = if handle.is_some() { REAP_EVERY } else { PAUSE };
    let timeout = Timespec::try_from(every).map_err(io::Error::other)?;
    let mut looked = Instant::now();
    loop {
        children.reap_ended();
        if children.status.is_some() {
            return Ok(false);
        }
        if is_lifeline_closed() {
            return Ok(true);
        }
        if let Some(limit) = limit
            .filter(|limit| looked.elapsed() >= REAP_EVERY && process_tree::exceeds_memory(*limit))
        {
            send_report(SupervisorReport::OutOfMemory(
                i32::try_from(limit / 1024).unwrap_or(i32::MAX),
            ));
            process_tree::kill_all();
            return Ok(true);
        }
        // Summing up memory reads many files in `/proc`, so it is done once per interval at most.
        if looked.elapsed() >= REAP_EVERY {
            looked = Instant::now();
        }
        let lifeline = std::io::stdin();
        let mut waited = vec![PollFd::new(&lifeline, PollFlags::IN)];
        waited.extend(
            handle
                .as_ref()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns true if the agent closed its end of the socket. Nothing is ever sent in this direction,
/// so readable means closed.
fn is_lifeline_closed() -> bool {
    let lifeline = std::io::stdin();
    let mut waited = [PollFd::new(&lifeline, PollFlags::IN)];
    matches!(
        poll(
            &mut waited,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0
            })
        ),
        Ok(1..)
    )
}

/// Sends a line to the agent. The error is ignored: a dead agent needs no report.
fn send_report(report: SupervisorReport) {
    let _ = rustix::io::write(std::io::stdin().as_fd(), format!("{report}\n").as_bytes());
}

/// The processes below the supervisor.
struct ChildProcesses {
    shell: Pid,
    status: Option<WaitStatus>,
    /// True if there was any child at the last reaping.
    alive: bool,
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
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.alive = true;
                    return;
                }
                // The only other error is that there are no children.
                Err(_) => {
                    self.alive = false;
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
            sleep(PAUSE);
            self.reap_ended();
        }
    }

    /// Ends every process, first with SIGTERM, then with SIGKILL.
    fn end_all(&mut self, grace: Duration) {
        if self.alive {
            let all = process_tree::list_descendants();
            process_tree::signal_all(&all, Signal::TERM);
            // A stopped process would not handle the signal.
            process_tree::signal_all(&all, Signal::CONT);
            self.wait_until(grace, || false);
        }
        let start = Instant::now();
        while self.alive && start.elapsed() < GIVE_UP {
            process_tree::kill_all();
            sleep(PAUSE);
            self.reap_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_command_line() {
        let plan = || SupervisorPlan {
            settle: Duration::from_millis(100),
            grace: Duration::from_secs(2),
            device: OutputDevice::Terminal,
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
    fn reports_read_back() {
        for report in [
            SupervisorReport::Failed(2),
            SupervisorReport::Confined(1007),
            SupervisorReport::Exited(0),
            SupervisorReport::Signaled(15),
            SupervisorReport::OutOfMemory(2048),
            SupervisorReport::LeftRunning(2),
            SupervisorReport::AllGone(3),
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("".parse::<SupervisorReport>(), Err(()));
        assert_eq!("exited x".parse::<SupervisorReport>(), Err(()));
    }
}
