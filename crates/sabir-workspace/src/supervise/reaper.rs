//! Implements the reaper: the parent of the supervisor, which ends what is left if the supervisor
//! is killed together with the agent.
//!
//! The program that the agent starts forks once: the child becomes the supervisor, and the parent
//! becomes the reaper. It only waits. It is a subreaper too, so when the supervisor dies, the kernel
//! gives it all processes of the command, and it kills them. It has another name than the agent and
//! other arguments than the supervisor, so killing those by name or by command line does not
//! hit it, and a session of its own, so no signal to a process group does.
//!
//! In turn the supervisor ends the command if the reaper is killed. It starts no command before the
//! reaper has its new name: until then, killing by command line would hit both.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, setsid, wait};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::{COUNT_EVERY, GIVE_UP, PAUSE, process_table, process_tree};
use crate::kernel;
use crate::platform::{self, ForkSide};

/// The name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"task-reaper";
/// The interval at which the reaper looks if the agent is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same for a supervisor without a command.
const LOOK_AT_STANDBY_EVERY: Duration = Duration::from_secs(60);
/// The time that a supervisor may take to clean up after the agent has died, on top of the grace
/// period of the command. A supervisor that a command has stopped never ends.
const CLEANUP_TIME: Duration = Duration::from_secs(10);

/// The role of the process that returns from [`fork_supervisor`].
pub(super) enum SupervisorRole {
    /// The supervisor.
    Supervisor(ReaperLink),
    /// The reaper, which has done its work.
    Done,
}

/// The supervisor's connection to its parent, the reaper.
pub(super) struct ReaperLink {
    reaper: Pid,
    grace: PipeWriter,
}

impl ReaperLink {
    /// Returns the process id of the reaper.
    pub(super) fn reaper(&self) -> Pid {
        self.reaper
    }

    /// Tells the reaper the grace period of the command, before which it must not kill the supervisor.
    pub(super) fn set_grace(&mut self, grace: Duration) -> io::Result<()> {
        let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.grace.write_all(&millis.to_ne_bytes())
    }
}

/// Forks the supervisor. Returns at once in the supervisor, and in the reaper when no process is left. The reaper drops `kept` at once, so
/// that only the supervisor keeps it open.
///
/// # Errors
/// If the process cannot be prepared or forked, or the reaper has ended before it was ready; then nothing may be started.
pub(super) fn fork_supervisor(kept: &mut Option<PipeWriter>) -> io::Result<SupervisorRole> {
    kernel::block_signals()?;
    // Fails only for a group leader, which has no terminal to lose.
    let _ = setsid();
    platform::adopt_orphans()?;
    let reaper = getpid();
    let agent = getppid();
    let (mut ready, mut announce_ready) = io::pipe()?;
    let (grace_reader, grace) = io::pipe()?;
    // The pipes are created first, so that each side notices the other's end, however early it
    // dies.
    match platform::fork_process()? {
        ForkSide::Child => {
            // Otherwise the end of a killed reaper would not be seen here.
            drop((announce_ready, grace_reader));
            ready.read_exact(&mut [0])?;
            Ok(SupervisorRole::Supervisor(ReaperLink { reaper, grace }))
        }
        ForkSide::Parent(supervisor) => {
            drop((ready, grace, kept.take()));
            // Its copies of the socket and the pipes would keep them open for the agent.
            let closed = close_streams();
            platform::rename_process(NAME);
            let _ = rustix::process::chdir("/");
            let _ = platform::forbid_inspection();
            if closed.is_ok() {
                let _ = announce_ready.write_all(&[1]);
            }
            // Without an announcement the supervisor reads the end of the pipe and starts nothing.
            drop(announce_ready);
            wait_for_supervisor(supervisor, agent, grace_reader);
            end_orphans();
            Ok(SupervisorRole::Done)
        }
    }
}

/// Closes the connections to the agent: it sees their ends when the last copy is closed.
pub(crate) fn close_streams() -> io::Result<()> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    Ok(dup2_stderr(&nothing)?)
}

/// Waits until the supervisor has ended. Kills it if the agent has died and it does not end, because
/// something has stopped it.
fn wait_for_supervisor(supervisor: Pid, agent: Option<Pid>, grace: PipeReader) {
    // A kernel before 5.3 has no process handles; then the loop polls.
    let handle = platform::open_process_handle(supervisor);
    let every = match handle {
        Some(_) if process_table::ADOPTS_ORPHANS => LOOK_EVERY,
        Some(_) => COUNT_EVERY,
        None => PAUSE,
    };
    // None until the supervisor has its order.
    let mut period: Option<Duration> = None;
    let mut alone_since = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) if pid == supervisor => return,
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => process_tree::note_orphans(),
            Err(_) => return,
        }
        period = period.or_else(|| read_grace(&grace));
        // Compared with the first parent, and not with 1: an orphan may go to a subreaper.
        if getppid() != agent {
            let since: &mut Instant = alone_since.get_or_insert_with(Instant::now);
            let grace = period.unwrap_or_default();
            if since.elapsed() > grace.saturating_add(CLEANUP_TIME) {
                let _ = kill_process(supervisor, Signal::KILL);
            }
        }
        let Some(handle) = &handle else {
            sleep(every);
            continue;
        };
        let ended = PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN);
        let ordered = PollFd::new(&grace, PollFlags::IN);
        let _ = match period {
            Some(_) => poll(&mut [ended], Timespec::try_from(every).ok().as_ref()),
            // A standby may wait for hours without waking the processor. It ends by itself if the
            // agent dies.
            None => poll(
                &mut [ended, ordered],
                Timespec::try_from(LOOK_AT_STANDBY_EVERY).ok().as_ref(),
            ),
        };
    }
}

/// Reads the grace period; `None` if the supervisor has not had a command yet.
fn read_grace(pipe: &PipeReader) -> Option<Duration> {
    // Polled first: a supervisor that was stopped before it wrote keeps its end open, so a read
    // would block.
    let has_bytes = matches!(
        poll(
            &mut [PollFd::new(pipe, PollFlags::IN)],
            Some(&Timespec::default())
        ),
        Ok(1)
    );
    if !has_bytes {
        return None;
    }
    let mut bytes = [0; size_of::<u64>()];
    let mut pipe = pipe;
    // A supervisor that has ended without writing has left nothing to clean up.
    Some(match pipe.read_exact(&mut bytes) {
        Ok(()) => Duration::from_millis(u64::from_ne_bytes(bytes)),
        Err(_) => Duration::ZERO,
    })
}

/// Kills the processes that the supervisor has left, until the kernel reports that there are none.
fn end_orphans() {
    let start = Instant::now();
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                // The only other error is that there are no children.
                Err(_) if process_tree::has_orphans() => break,
                Err(_) => return,
            }
        }
        if start.elapsed() > GIVE_UP {
            return;
        }
        process_tree::kill_all();
        sleep(PAUSE);
    }
}
