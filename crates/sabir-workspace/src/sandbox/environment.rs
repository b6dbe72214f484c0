//! Manages a sandbox on the supervisor's side: prepares the temporary folder and masks, starts the
//! launcher, and removes everything when all processes have ended, even if the agent is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, PipeReader, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, WaitOptions, getpid, getuid, waitpid};
use rustix::stdio::{dup2_stdin, stdout};

use super::aftermath::{ProtectedState, WithheldPath};
#[cfg(target_os = "linux")]
use super::launch::run_launcher;
use super::masks::WorkspaceMasks;
use super::plan::TempDirLifetime;
use super::prepared_namespaces::PreparedNamespaces;
use super::process_cgroup::ProcessCgroup;
use super::removed_folders::RemovedFolders;
#[cfg(target_os = "macos")]
use super::seatbelt_launch::run_launcher;
use super::{
    NetworkAccess, ProtectedPaths, RegistryHost, SandboxPlan, SandboxTier, SetupStage,
    make_private, shared_temp,
};
use crate::kernel;
use crate::platform::{self, ForkSide};
use crate::supervise::{OutputDevice, SupervisedLimits, max_processes, max_tasks, process_tree};

/// The program to start in the sandbox.
pub(crate) struct LaunchProgram<'a> {
    pub(crate) path: &'a OsStr,
    pub(crate) arguments: [&'a OsStr; 2],
    /// Its environment, to which the sandbox adds; `None` for that of this process.
    pub(crate) variables: Option<&'a [(OsString, OsString)]>,
    pub(crate) device: OutputDevice,
    /// The standard input of a server.
    pub(crate) input: Option<&'a OwnedFd>,
}

impl LaunchProgram<'_> {
    /// Gives a command the environment of the program.
    pub(super) fn set_environment(&self, command: &mut Command) {
        // A forked supervisor has the environment of the fork server, which is empty.
        if let Some(variables) = self.variables {
            command
                .env_clear()
                .envs(variables.iter().map(|(name, value)| (name, value)));
        }
    }
}

/// The launcher's ends of its connections to the supervisor, and namespaces that were made ahead.
pub(super) struct LauncherLinks {
    /// The pipe for its progress, and the reason why it ends.
    pub(super) status: Option<OwnedFd>,
    /// Takes the socket of the proxy of package registries.
    pub(super) proxy: Option<UnixDatagram>,
    /// Takes the handle by which the writes of the command are watched.
    pub(super) watch: Option<UnixDatagram>,
    pub(super) namespaces: Option<PreparedNamespaces>,
    /// Yields the protected paths of the workspace; none for a command that cannot write there.
    pub(super) protected: Option<PipeReader>,
}

/// The environment of one sandboxed command. Dropping it removes everything made for it.
pub(crate) struct SandboxEnvironment {
    plan: Option<SandboxPlan>,
    masks: Option<WorkspaceMasks>,
    /// The state to restore after the command.
    state: Option<ProtectedState>,
    /// The limit of processes, where no namespace has one.
    cgroup: Option<ProcessCgroup>,
    /// The socket, inside of the namespace, on which the proxy of package registries listens.
    listener: Option<OwnedFd>,
    /// The handle by which the writes of the command are watched.
    watch: Option<OwnedFd>,
    /// Namespaces that were made ahead, until the program is started.
    namespaces: Option<PreparedNamespaces>,
}

impl SandboxEnvironment {
    /// Prepares the environment for a plan given as arguments; without arguments there is no
    /// sandbox.
    pub(crate) fn open(
        words: &[OsString],
        namespaces: Option<PreparedNamespaces>,
    ) -> io::Result<Self> {
        if words.is_empty() {
            return Ok(Self {
                plan: None,
                masks: None,
                state: None,
                cgroup: None,
                listener: None,
                watch: None,
                namespaces: None,
            });
        }
        let malformed = || SetupStage::Order.to_error(&io::Error::from_raw_os_error(libc::EINVAL));
        let plan = SandboxPlan::from_args(words)
            .filter(|plan| !plan.level.candidate_tiers().is_empty())
            .ok_or_else(malformed)?;
        if plan.stay == TempDirLifetime::Command {
            make_private(&plan.tmp).map_err(|error| SetupStage::Temporary.to_error(&error))?;
        }
        Ok(Self {
            plan: Some(plan),
            masks: None,
            state: None,
            cgroup: None,
            listener: None,
            watch: None,
            namespaces,
        })
    }

    /// Returns the limits that the supervisor checks, if there is a sandbox.
    pub(crate) fn limits(&self) -> Option<SupervisedLimits> {
        let memory_kib = match self.plan.as_ref()?.memory_mib {
            Some(most) => Some(most.saturating_mul(1024)),
            None => process_tree::machine_memory().map(|all| all / 10 * 9),
        };
        Some(SupervisedLimits {
            memory_kib,
            processes: max_processes(),
        })
    }

    /// Starts the program in the best requested tier that is available. Returns the process, and
    /// the report number of the sandbox if there is one.
    pub(crate) fn start_program(
        &mut self,
        program: &LaunchProgram<'_>,
    ) -> io::Result<(Pid, Option<i32>)> {
        let Some(asked) = self.plan.clone() else {
            let mut command = Command::new(program.path);
            command.args(program.arguments);
            program.set_environment(&mut command);
            command.stdin(match program.device {
                OutputDevice::Pipe => Stdio::null(),
                OutputDevice::Terminal => {
                    Stdio::from(std::io::stdout().as_fd().try_clone_to_owned()?)
                }
                OutputDevice::Server => match program.input {
                    Some(input) => Stdio::from(input.try_clone()?),
                    None => Stdio::null(),
                },
            });
            return Ok((
                Pid::from_child(&kernel::spawn_detached(&mut command, program.device)?),
                None,
            ));
        };
        let mut failure = None;
        for &tier in asked.level.candidate_tiers() {
            // A read-only command cannot create protected names, so nothing has to be guarded.
            let top = asked.write.first();
            if let Some(top) = top
                && tier == SandboxTier::One
            {
                self.state = Some(ProtectedState::capture(top, asked.home.as_deref(), tier));
            }
            let has_limit = tier == SandboxTier::Two
                && (kernel::has_process_limit_per_namespace() || !getuid().is_root());
            if !has_limit {
                self.cgroup = ProcessCgroup::create(max_tasks());
            }
            // Only the first tier that is tried gets them: a launcher that failed may have used
            // them.
            let namespaces = self.namespaces.take();
            let guard = top.filter(|_| tier == SandboxTier::Two).map(|top| {
                || {
                    let (masks, protected) = WorkspaceMasks::put_masks(&asked, top)
                        .map_err(|error| SetupStage::Guard.to_error(&error))?;
                    self.masks = Some(masks);
                    self.state = Some(ProtectedState::capture(top, asked.home.as_deref(), tier));
                    Ok(protected)
                }
            });
            let cgroup = self.cgroup.as_ref();
            match fork_launcher(&asked, tier, program, cgroup, namespaces, guard) {
                Ok(Launched {
                    shell,
                    report,
                    listener,
                    watch,
                }) => {
                    self.listener = listener;
                    self.watch = watch;
                    return Ok((shell, Some(report)));
                }
                // If tier 2 failed and tier 1 cannot hide secrets in the workspace, the message has
                // to explain both.
                Err(error) if failure.is_some() && SetupStage::Secrets.is_stage_of(&error) => {
                    failure = Some(SetupStage::Neither.to_error(&io::Error::from_raw_os_error(0)));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
            self.masks = None;
            self.state = None;
            self.cgroup = None;
        }
        Err(failure.unwrap_or_else(|| SetupStage::Order.to_error(&io::Error::from_raw_os_error(0))))
    }
}

impl SandboxEnvironment {
    /// Returns the socket of the proxy of package registries and its hosts, if the command may use one.
    pub(crate) fn take_proxy(&mut self) -> Option<(OwnedFd, Vec<RegistryHost>)> {
        let listener = self.listener.take()?;
        Some((listener, self.plan.as_ref()?.registries.clone()))
    }

    /// Returns the handle by which the writes of the command are watched, with the workspace that they are looked for in.
    pub(crate) fn take_watch(&mut self) -> Option<(OwnedFd, PathBuf)> {
        let handle = self.watch.take()?;
        Some((handle, self.plan.as_ref()?.write.first()?.clone()))
    }

    /// Returns the control group of the command, if it has one.
    pub(crate) fn take_cgroup(&mut self) -> Option<ProcessCgroup> {
        self.cgroup.take()
    }

    /// Restores the protected paths that the command created or changed, and returns them. The command must
    /// have ended.
    pub(crate) fn restore_protected(&mut self) -> Vec<WithheldPath> {
        self.state
            .take()
            .map(ProtectedState::restore)
            .unwrap_or_default()
    }
}

impl SandboxEnvironment {
    /// Removes everything that was made for the command. The storage of the removed folders is free when the result is dropped, which
    /// takes a while on some file systems.
    pub(crate) fn remove_traces(&mut self) -> RemovedFolders {
        self.restore_protected();
        // One for both, so that all folders are freed together.
        let mut removed = RemovedFolders::default();
        if let Some(mut masks) = self.masks.take() {
            masks.remove_masks(&mut removed);
        }
        match self.plan.take() {
            Some(plan) if plan.stay == TempDirLifetime::Command => {
                remove_held_folder(&plan.tmp, &mut removed);
            }
            Some(plan) => shared_temp::remove_if_unlocked(&plan.tmp),
            None => {}
        }
        removed
    }
}

impl Drop for SandboxEnvironment {
    fn drop(&mut self) {
        drop(self.remove_traces());
    }
}

/// A program that was started in a sandbox.
struct Launched {
    shell: Pid,
    /// The report number of the sandbox.
    report: i32,
    /// The socket of the proxy of package registries.
    listener: Option<OwnedFd>,
    /// The handle by which the writes of the command are watched.
    watch: Option<OwnedFd>,
}

/// Forks the launcher, and waits until it has become the program. Meanwhile `guard` places the masks of the workspace. This process has
/// only one thread, so its copy may run arbitrary code.
fn fork_launcher(
    plan: &SandboxPlan,
    tier: SandboxTier,
    program: &LaunchProgram<'_>,
    cgroup: Option<&ProcessCgroup>,
    namespaces: Option<PreparedNamespaces>,
    guard: Option<impl FnOnce() -> io::Result<ProtectedPaths>>,
) -> io::Result<Launched> {
    let failed = |error: io::Error| SetupStage::Launch.to_error(&error);
    let (from, to) = io::pipe().map_err(failed)?;
    // The launcher sends the socket of the proxy through this pair.
    let pair = (plan.network == NetworkAccess::Registries)
        .then(UnixDatagram::pair)
        .transpose()
        .map_err(failed)?;
    let (receiver, sender) = pair.unzip();
    // What cannot write in the workspace needs no watch.
    let can_write = cfg!(target_os = "linux") && !plan.write.is_empty();
    let pair = can_write
        .then(UnixDatagram::pair)
        .transpose()
        .map_err(failed)?;
    let (watch_receiver, watch_sender) = pair.unzip();
    let pipe = guard.is_some().then(io::pipe).transpose().map_err(failed)?;
    let (protected_reader, protected_writer) = pipe.unzip();
    let parent = getpid();
    match platform::fork_process().map_err(failed)? {
        ForkSide::Parent(launcher) => {
            // The launcher has its own copies. Kept here, the reader would let `send` below wait
            // for ever when the launcher has died and the list is longer than the pipe.
            drop((to, sender, watch_sender, namespaces, protected_reader));
            let guarded = match guard.zip(protected_writer) {
                // If the launcher has ended, its own report says why. Without the paths it does not become the program.
                Some((guard, writer)) => guard().map(|protected| _ = protected.send(writer)),
                None => Ok(()),
            };
            let launched = read_answer(from.into()).and_then(|report| {
                let listener = receiver.map(receive_descriptor).transpose()?;
                // A kernel before 5.5, or a filter around this process that has a listener already.
                let watch = watch_receiver.and_then(|receiver| receive_descriptor(receiver).ok());
                Ok(Launched {
                    shell: launcher,
                    report,
                    listener,
                    watch,
                })
            });
            // The reason of the guard goes first: without the paths, the launcher only reports that
            // it got none.
            guarded.and(launched).inspect_err(|_| {
                // The launcher has reported why it ends.
                let _ = waitpid(Some(launcher), WaitOptions::empty());
            })
        }
        ForkSide::Child => {
            // While a copy of the writer is open here, the launcher would never see that the
            // supervisor has died.
            drop((from, receiver, watch_receiver, protected_writer));
            // If the limit cannot be set after all, the supervisor enforces it.
            let _ = cgroup.map(ProcessCgroup::join);
            let links = LauncherLinks {
                status: Some(to.into()),
                proxy: sender,
                watch: watch_sender,
                namespaces,
                protected: protected_reader,
            };
            std::process::exit(run_launcher(plan, tier, program, parent, links))
        }
    }
}

/// Puts the launcher into the state of a new process: no input (or the terminal, or a server's), a separate session,
/// default signal handling, and open to inspection as any other. `parent` is the supervisor.
pub(super) fn prepare_process(parent: Pid, program: &LaunchProgram<'_>) -> io::Result<()> {
    let device = program.device;
    match (device, program.input) {
        (OutputDevice::Server, Some(input)) => dup2_stdin(input)?,
        (OutputDevice::Pipe | OutputDevice::Server, _) => dup2_stdin(rustix::fs::open(
            "/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)?,
        (OutputDevice::Terminal, _) => dup2_stdin(stdout())?,
    }
    kernel::detach_process(parent, device)?;
    // On Linux, files in `/proc` are writable only then.
    platform::allow_inspection()
}

/// Sends a line to the supervisor.
pub(super) fn write_status(status: Option<&OwnedFd>, words: &str) {
    // If the supervisor is dead, this process dies with it, so the error does not matter.
    let _ = status.map(|status| rustix::io::write(status, words.as_bytes()));
}

/// Receives the descriptor that the launcher has sent before it became the program.
fn receive_descriptor(receiver: UnixDatagram) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 1];
    recvmsg(
        &receiver,
        &mut [IoSliceMut::new(&mut word)],
        &mut control,
        RecvFlags::DONTWAIT | platform::RECEIVE_CLOSED_ON_EXEC,
    )
    .map_err(|error| SetupStage::Loopback.to_error(&error.into()))?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
            _ => None,
        })
        .ok_or_else(|| SetupStage::Loopback.to_error(&io::Error::from_raw_os_error(0)))
}

/// Reads the launcher's messages until it is done, and returns the number of its report.
fn read_answer(pipe: OwnedFd) -> io::Result<i32> {
    let mut words = String::new();
    File::from(pipe)
        .read_to_string(&mut words)
        .map_err(|error| SetupStage::Launch.to_error(&error))?;
    let lost = || SetupStage::Launch.to_error(&io::Error::from_raw_os_error(0));
    let last = words.lines().last().ok_or_else(lost)?;
    match last.strip_prefix("ready ") {
        Some(report) => report.parse().map_err(|_| lost()),
        None => Err(last
            .parse()
            .map_or_else(|_| lost(), io::Error::from_raw_os_error)),
    }
}

/// Removes a folder with all its content, whatever modes a command has set there.
pub(crate) fn remove_folder(folder: &Path) {
    remove_held_folder(folder, &mut RemovedFolders::default());
}

/// Does the same; the folders are freed with `removed`.
fn remove_held_folder(folder: &Path, removed: &mut RemovedFolders) {
    hold_folders(folder, removed);
    if fs::remove_dir_all(folder).is_ok() || !folder.exists() {
        return;
    }
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    // Anything that remains belongs to another user, and there is nobody to report it to.
    let _ = fs::remove_dir_all(folder);
}

/// Keeps a folder and those in it open, up to a number, so that removing them waits for none of them.
fn hold_folders(folder: &Path, removed: &mut RemovedFolders) {
    const MAX_HELD: usize = 64;
    let mut folders = vec![folder.to_path_buf()];
    let mut held = 0;
    while let Some(folder) = folders.pop()
        && held < MAX_HELD
    {
        removed.hold_folder(&folder);
        held += 1;
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path())
                .take(MAX_HELD),
        );
    }
}
