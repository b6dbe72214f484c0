//! Manages a sandbox on the supervisor's side: prepares the temporary folder and masks, starts the
//! launcher, and removes everything when all processes have ended, even if the agent is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, PipeReader, PipeWriter, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, WaitOptions, getpid, getuid, waitpid};
use rustix::stdio::{dup2_stdin, stdout};

#[cfg(target_os = "linux")]
use super::launch::run_launcher;
use super::masks::WorkspaceMasks;
use super::plan::TempDirLifetime;
use super::prepared_launcher::AssignedLauncher;
use super::process_cgroup::ProcessCgroup;
use super::protected_restore::{ProtectedState, WithheldPath};
use super::removed_folders::RemovedFolders;
#[cfg(target_os = "macos")]
use super::seatbelt_launch::run_launcher;
use super::{
    EffectiveLevel, NetworkAccess, ProtectedPaths, RegistryHost, SandboxPlan, SetupStage,
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

/// The launcher's ends of its connections to the supervisor.
pub(super) struct LauncherLinks {
    /// The pipe for its progress, and the reason why it ends.
    pub(super) status: Option<OwnedFd>,
    /// Takes the socket of the proxy of package registries.
    pub(super) proxy: Option<UnixDatagram>,
    /// Takes the handle by which the writes of the command are watched.
    pub(super) watch: Option<UnixDatagram>,
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
    /// A launcher that was started ahead, until the program is started.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux starts launchers ahead")
    )]
    prepared: Option<AssignedLauncher>,
}

impl SandboxEnvironment {
    /// Prepares the environment for a plan given as arguments; without arguments there is no
    /// sandbox.
    pub(crate) fn open(words: &[OsString], prepared: Option<AssignedLauncher>) -> io::Result<Self> {
        if words.is_empty() {
            return Ok(Self {
                plan: None,
                masks: None,
                state: None,
                cgroup: None,
                listener: None,
                watch: None,
                prepared: None,
            });
        }
        let malformed = || SetupStage::Order.to_error(&io::Error::from_raw_os_error(libc::EINVAL));
        let plan = SandboxPlan::from_args(words)
            .filter(|plan| !plan.level.candidate_levels().is_empty())
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
            prepared,
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

    /// Starts the program in the best requested level that is available. Returns the process, and
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
        for &level in asked.level.candidate_levels() {
            // A read-only command cannot create protected names, so nothing has to be guarded.
            if let Some(top) = asked.write.first()
                && level == EffectiveLevel::One
            {
                self.state = Some(ProtectedState::capture(top, asked.home.as_deref(), level));
            }
            let has_limit = level == EffectiveLevel::Two
                && (kernel::has_process_limit_per_namespace() || !getuid().is_root());
            if !has_limit {
                self.cgroup = ProcessCgroup::create(max_tasks());
            }
            // The prepared launcher may have ended, or be unable to start this command. In both
            // cases nothing ran, and a new launcher can start it.
            #[cfg(target_os = "linux")]
            if level == EffectiveLevel::Two
                && let Some(prepared) = self.prepared.take()
                && prepared.can_launch(&asked, program.device)
            {
                let source = LauncherSource::Prepared(prepared);
                match self.launch_program(&asked, level, program, source) {
                    Ok(started) => return Ok(started),
                    Err(_) => self.remove_masks(),
                }
            }
            match self.launch_program(&asked, level, program, LauncherSource::Fork) {
                Ok(started) => return Ok(started),
                // If level 2 failed and level 1 cannot hide secrets in the workspace, the error
                // must explain both.
                Err(error) if failure.is_some() && SetupStage::Secrets.is_stage_of(&error) => {
                    failure = Some(SetupStage::Neither.to_error(&io::Error::from_raw_os_error(0)));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
            self.remove_masks();
            self.cgroup = None;
        }
        Err(failure.unwrap_or_else(|| SetupStage::Order.to_error(&io::Error::from_raw_os_error(0))))
    }
}

impl SandboxEnvironment {
    /// Starts the program in a level. Returns the process, and the report number of the sandbox.
    fn launch_program(
        &mut self,
        plan: &SandboxPlan,
        level: EffectiveLevel,
        program: &LaunchProgram<'_>,
        source: LauncherSource,
    ) -> io::Result<(Pid, Option<i32>)> {
        // A read-only command cannot create protected names, so nothing has to be guarded.
        let top = plan.write.first().filter(|_| level == EffectiveLevel::Two);
        let guard = top.map(|top| {
            |mut writer: PipeWriter| {
                // If the launcher has ended, its report gives the reason. It runs the program only
                // after it has received all paths and the confirmation.
                let mut is_sent = true;
                let pass_on = |part: &ProtectedPaths| is_sent &= part.send(&mut writer).is_ok();
                let masks = WorkspaceMasks::put_masks(plan, top, pass_on)
                    .map_err(|error| SetupStage::Guard.to_error(&error))?;
                self.masks = Some(masks);
                self.state = Some(ProtectedState::capture(top, plan.home.as_deref(), level));
                if is_sent {
                    let _ = ProtectedPaths::confirm(writer);
                }
                Ok(())
            }
        });
        let launched = start_launcher(plan, level, program, self.cgroup.as_ref(), source, guard)?;
        self.listener = launched.listener;
        self.watch = launched.watch;
        Ok((launched.shell, Some(launched.report)))
    }

    /// Removes the masks of a program that was not started.
    fn remove_masks(&mut self) {
        self.masks = None;
        self.state = None;
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
struct LaunchedProgram {
    shell: Pid,
    /// The report number of the sandbox.
    report: i32,
    /// The socket of the proxy of package registries.
    listener: Option<OwnedFd>,
    /// The handle by which the writes of the command are watched.
    watch: Option<OwnedFd>,
}

/// The origin of the launcher of a program.
enum LauncherSource {
    /// Forked from this process, which has only one thread, so its copy may run arbitrary code.
    Fork,
    /// Forked before the program was known.
    #[cfg(target_os = "linux")]
    Prepared(AssignedLauncher),
}

/// The supervisor's ends of its connections to the launcher.
struct SupervisorLinks {
    status: PipeReader,
    listener: Option<UnixDatagram>,
    watch: Option<UnixDatagram>,
    protected: Option<PipeWriter>,
}

/// Both ends of the connections between supervisor and launcher.
struct LinkPair {
    ours: SupervisorLinks,
    theirs: LauncherLinks,
}

impl LinkPair {
    fn open(plan: &SandboxPlan, is_guarded: bool) -> io::Result<Self> {
        let (from, to) = io::pipe()?;
        // The launcher sends the socket of the proxy through this pair.
        let pair = (plan.network == NetworkAccess::Registries)
            .then(UnixDatagram::pair)
            .transpose()?;
        let (receiver, sender) = pair.unzip();
        // What cannot write in the workspace needs no watch.
        let can_write = cfg!(target_os = "linux") && !plan.write.is_empty();
        let pair = can_write.then(UnixDatagram::pair).transpose()?;
        let (watch_receiver, watch_sender) = pair.unzip();
        let pipe = is_guarded.then(io::pipe).transpose()?;
        let (protected_reader, protected_writer) = pipe.unzip();
        Ok(Self {
            ours: SupervisorLinks {
                status: from,
                listener: receiver,
                watch: watch_receiver,
                protected: protected_writer,
            },
            theirs: LauncherLinks {
                status: Some(to.into()),
                proxy: sender,
                watch: watch_sender,
                protected: protected_reader,
            },
        })
    }
}

/// Starts the launcher, and waits until it has become the program. Meanwhile `guard` places the masks of the workspace.
fn start_launcher(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    program: &LaunchProgram<'_>,
    cgroup: Option<&ProcessCgroup>,
    source: LauncherSource,
    guard: Option<impl FnOnce(PipeWriter) -> io::Result<()>>,
) -> io::Result<LaunchedProgram> {
    let failed = |error: io::Error| SetupStage::Launch.to_error(&error);
    let LinkPair { ours, theirs } = LinkPair::open(plan, guard.is_some()).map_err(failed)?;
    let launcher = match source {
        LauncherSource::Fork => {
            let parent = getpid();
            match platform::fork_process().map_err(failed)? {
                ForkSide::Parent(launcher) => launcher,
                ForkSide::Child => {
                    // An open copy of the writer here would keep the launcher from noticing the
                    // supervisor's death.
                    drop(ours);
                    // If the limit cannot be set after all, the supervisor enforces it.
                    let _ = cgroup.map(ProcessCgroup::join);
                    std::process::exit(run_launcher(plan, level, program, parent, theirs))
                }
            }
        }
        #[cfg(target_os = "linux")]
        LauncherSource::Prepared(prepared) => {
            let folder = rustix::process::getcwd(Vec::new())
                .map_err(|error| SetupStage::Folder.to_error(&error.into()))?;
            let folder = Path::new(OsStr::from_bytes(folder.to_bytes()));
            prepared.send_order(folder, &theirs).map_err(failed)?
        }
    };
    // The launcher has its own copies. If the reader stayed open here, `send` below could block
    // forever after the launcher's death, when the list exceeds the pipe.
    drop(theirs);
    let guarded = match guard.zip(ours.protected) {
        Some((guard, writer)) => guard(writer),
        None => Ok(()),
    };
    let launched = read_answer(ours.status.into()).and_then(|report| {
        let listener = ours.listener.map(receive_descriptor).transpose()?;
        // A kernel before 5.5, or a filter around this process that has a listener already.
        let watch = ours
            .watch
            .and_then(|receiver| receive_descriptor(receiver).ok());
        Ok(LaunchedProgram {
            shell: launcher,
            report,
            listener,
            watch,
        })
    });
    // The guard's error takes precedence: without the paths, the launcher only reports that they
    // are missing.
    guarded.and(launched).inspect_err(|_| {
        // The launcher has reported why it ends.
        let _ = waitpid(Some(launcher), WaitOptions::empty());
    })
}

/// Puts the launcher into the state of a new process: no input (or the terminal, or a server's), a separate session, default signal
/// handling, and inspection allowed. `parent` is the supervisor.
pub(super) fn prepare_process(
    parent: Pid,
    device: OutputDevice,
    input: Option<&OwnedFd>,
) -> io::Result<()> {
    match (device, input) {
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
    // If the supervisor is dead, this process is killed too, so the error does not matter.
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
