//! Manages a sandbox on the supervisor's side: prepares the temporary folder and masks, starts the
//! launcher, and removes everything when all processes have ended, even if the agent is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use super::masks::WorkspaceMasks;
use super::plan::TempDirLifetime;
use super::syscalls::{ForkRelation, ForkSide, fork_process};
use super::{SandboxPlan, SandboxTier, SetupStage, launch, make_private, shared_temp};
use crate::kernel;
use crate::supervise::{OutputDevice, process_tree};

/// The program to start in the sandbox.
pub(crate) struct LaunchProgram<'a> {
    pub(crate) path: &'a OsStr,
    pub(crate) arguments: [&'a OsStr; 2],
    pub(crate) device: OutputDevice,
}

/// The environment of one sandboxed command. Dropping it removes everything made for it.
pub(crate) struct SandboxEnvironment {
    plan: Option<SandboxPlan>,
    masks: Option<WorkspaceMasks>,
}

impl SandboxEnvironment {
    /// Prepares the environment for a plan given as arguments; without arguments there is no
    /// sandbox.
    pub(crate) fn open(words: &[OsString]) -> io::Result<Self> {
        if words.is_empty() {
            return Ok(Self {
                plan: None,
                masks: None,
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
        })
    }

    /// Returns the memory limit in KiB, if there is a sandbox.
    pub(crate) fn memory_kib(&self) -> Option<u64> {
        match self.plan.as_ref()?.memory_mib {
            Some(most) => Some(most.saturating_mul(1024)),
            None => process_tree::machine_memory().map(|all| all / 10 * 9),
        }
    }

    /// Starts the program in the best requested tier that is available. Returns the process, and
    /// the report number of the sandbox if there is one.
    pub(crate) fn start_program(
        &mut self,
        program: &LaunchProgram<'_>,
    ) -> io::Result<(Pid, Option<i32>)> {
        let Some(asked) = self.plan.clone() else {
            let mut command = Command::new(program.path);
            command.args(program.arguments).stdin(match program.device {
                OutputDevice::Pipe => Stdio::null(),
                OutputDevice::Terminal => {
                    Stdio::from(std::io::stdout().as_fd().try_clone_to_owned()?)
                }
            });
            return Ok((
                Pid::from_child(&kernel::spawn_detached(&mut command, program.device)?),
                None,
            ));
        };
        let mut failure = None;
        for &tier in asked.level.candidate_tiers() {
            let mut plan = asked.clone();
            // A read-only command cannot create protected names, so it needs no masks.
            if let (SandboxTier::Two, Some(top)) = (tier, plan.write.first()) {
                let (masks, protected) = WorkspaceMasks::put_masks(top)
                    .map_err(|error| SetupStage::Guard.to_error(&error))?;
                self.masks = Some(masks);
                plan.protected = protected;
            }
            match fork_launcher(&plan, tier, program) {
                Ok((shell, report)) => return Ok((shell, Some(report))),
                // If tier 2 failed and tier 1 cannot hide secrets in the workspace, the message has
                // to explain both.
                Err(error) if failure.is_some() && SetupStage::Secrets.is_stage_of(&error) => {
                    failure = Some(SetupStage::Neither.to_error(&io::Error::from_raw_os_error(0)));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
            self.masks = None;
        }
        Err(failure.unwrap_or_else(|| SetupStage::Order.to_error(&io::Error::from_raw_os_error(0))))
    }
}

impl Drop for SandboxEnvironment {
    fn drop(&mut self) {
        self.masks = None;
        match &self.plan {
            Some(plan) if plan.stay == TempDirLifetime::Command => remove_folder(&plan.tmp),
            Some(plan) => shared_temp::remove_if_unlocked(&plan.tmp),
            None => {}
        }
    }
}

/// Forks the launcher, and waits until it has become the program. This process has only one thread,
/// so its copy may run arbitrary code.
fn fork_launcher(
    plan: &SandboxPlan,
    tier: SandboxTier,
    program: &LaunchProgram<'_>,
) -> io::Result<(Pid, i32)> {
    let failed = |error: io::Error| SetupStage::Launch.to_error(&error);
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let parent = getpid();
    match fork_process(ForkRelation::Child).map_err(failed)? {
        ForkSide::Parent(launcher) => {
            drop(to);
            read_answer(from)
                .map(|report| (launcher, report))
                .inspect_err(|_| {
                    // The launcher has reported why it ends.
                    let _ = waitpid(Some(launcher), WaitOptions::empty());
                })
        }
        ForkSide::Child => {
            drop(from);
            std::process::exit(launch::run_launcher(plan, tier, program, parent, to))
        }
    }
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
    // Anything that remains belongs to another user, and nobody is left to be told.
    let _ = fs::remove_dir_all(folder);
}
