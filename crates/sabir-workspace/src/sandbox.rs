//! Confining a command: what it may write, read and reach, whoever wrote it.
//!
//! Policy decides what runs; this limits what a running command can do, so that a wrong decision costs little. There are two
//! tiers, and the second holds the first inside:
//!
//! | | [`SandboxTier::One`] | [`SandboxTier::Two`] |
//! | --- | --- | --- |
//! | needs | Landlock from Linux 6.2 on, seccomp | user namespaces, Linux 5.12; Landlock as far as it is there |
//! | writing | the workspace, a private `TMPDIR`, [`Sandbox::allow_write`] | the same, and `/tmp`, `/var/tmp`, `/dev/shm` are private |
//! | writing, [`Sandbox::read_only`] | a private `TMPDIR` | private `/tmp`, `/var/tmp`, `/dev/shm` |
//! | protected paths of the workspace | **writable** | read-only, and cannot be made where they are missing |
//! | modes, owners, times, attributes of files elsewhere | **can be changed** where the user could | cannot |
//! | secrets, sockets and devices (`sandbox/secrets.rs`) | cannot be read; names can be listed | cannot be seen |
//! | network, when denied | no sockets | a loopback interface of its own, TCP only |
//! | unix sockets | pairs only | pairs only |
//! | other processes | no tracing; no signals from Linux 6.12 on | cannot be seen |
//! | privileges | none, as root too, and no way to new ones | the same, and no user outside has the command's number 0 |
//!
//! The bold cells are what Landlock cannot do: it allows folders with all below, and knows no change of modes. Denying those
//! calls outright would break `chmod +x`, `cp -p`, `tar`, `git` and `cargo`, so tier 1 lets them pass; set-user-ID programs that
//! could be made with them gain nothing inside, and outside only where the workspace's user starts them.
//!
//! In both tiers: no core dumps, at most 64 GiB a file and 16,384 processes; no system call that only administrators, debuggers
//! or exploits need (`filter.rs` lists them); nothing of the environment that leads to an agent, a bus or a display.
//!
//! The whole is built by a fork of the supervisor, which confines itself and becomes the shell. If any part of the asked level
//! cannot be had, nothing runs, and the error says what is missing.
//!
//! As long as a command of tier 2 runs that may write, something empty stands in the workspace in place of missing protected
//! names, and watchers of the folder see it; the supervisor removes it (`masks.rs`). What a killed supervisor leaves, the next
//! command removes.
//!
//! Caches of package managers and compilers, which stand in the home folder and so cannot be written, are moved to the private
//! temporary folder by the environment.
//!
//! Not covered in either tier: reading (a command may read what the user may read, but secrets), protected names below the top
//! of the workspace (`sub/AGENTS.md`) and missing ones that `room.rs` does not list, locks on files that can be read, and how much memory or processor time is used.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::error::WorkspaceError;
use crate::files::Workspace;

mod denial_note;
pub(crate) mod environment;
mod landlock_rules;
mod launch;
pub(crate) mod masks;
mod mounts;
mod namespaces;
mod plan;
mod seatbelt;
mod secrets;
mod setup_stage;
mod shared_temp;
mod syscall_filter;
mod syscalls;

pub use denial_note::{DenialKind, DenialNote};
pub use masks::is_mask;
use plan::TempDirLifetime;
pub(crate) use plan::{ProtectedPaths, SandboxPlan};
pub use secrets::home_secrets;
pub(crate) use setup_stage::SetupStage;
use shared_temp::SharedTempDir;

/// How much confinement is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxLevel {
    /// None.
    #[default]
    Off,
    /// Tier 1, or the command does not run.
    One,
    /// Tier 2, or the command does not run.
    Two,
    /// Tier 2 where it can be had, else tier 1; where neither can, the command does not run.
    Best,
}

/// The confinement that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxTier {
    /// Landlock, a filter of system calls, limits, no privileges.
    One,
    /// All of that in namespaces of its own.
    Two,
}

/// Whether a command may open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    /// No connection leaves.
    #[default]
    Denied,
    /// The network of the machine by TCP and UDP; still no unix sockets.
    Allowed,
}

/// The confinement of a command; see the [module](self) for what it does.
#[derive(Debug, Clone)]
pub struct Sandbox {
    level: SandboxLevel,
    network: NetworkAccess,
    work: WorkspaceAccess,
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
    temporary: PathBuf,
    /// The folder that all commands share.
    private: Option<Arc<SharedTempDir>>,
    memory_mib: Option<u64>,
}

/// What a command may do with the workspace and the folders beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkspaceAccess {
    Write,
    Read,
}

/// What a command was confined to, in its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxReport {
    /// The tier that was in force.
    pub tier: SandboxTier,
    /// The kernel's Landlock version; 0: none, which only tier 2 can do without.
    pub landlock: u32,
    /// What the model needs to know when the output looks like a denial: the line, the rule, and what is allowed.
    pub note: Option<DenialNote>,
}

impl Sandbox {
    /// A sandbox that writes in the workspace and a private temporary folder only, has no network, and hides the secrets of the
    /// machine. What is in the home folder is hidden by [`hide_home_secrets`](Self::hide_home_secrets).
    #[must_use]
    pub fn new(level: SandboxLevel) -> Self {
        let write = Vec::new();
        let read = Vec::new();
        let hide = secrets::machine_secrets();
        let network = NetworkAccess::Denied;
        let work = WorkspaceAccess::Write;
        let temporary = PathBuf::from("/tmp");
        Self { level, network, work, write, read, hide, temporary, private: None, memory_mib: None }
    }

    /// Whether the network may be used.
    #[must_use]
    pub fn with_network(mut self, network: NetworkAccess) -> Self {
        self.network = network;
        self
    }

    /// Whether it confines at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != SandboxLevel::Off
    }

    /// Whether the network may be used in it.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.network == NetworkAccess::Allowed
    }

    /// The level that is asked for.
    #[must_use]
    pub fn level(&self) -> SandboxLevel {
        self.level
    }

    /// For a command that is known to only read: nothing may be written but its temporary folder, also not in the workspace.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.work = WorkspaceAccess::Read;
        self
    }

    /// All commands of this sandbox and its clones share one temporary folder, which goes with the last of them; without this each
    /// has its own.
    #[must_use]
    pub fn share_temp_dir(mut self) -> Self {
        self.private = Some(Arc::default());
        self
    }

    /// Folders outside the workspace that may be written too. They must exist.
    #[must_use]
    pub fn allow_write(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(folders);
        self
    }

    /// Files and folders to be seen although they would be hidden, or stand in the real `/tmp`. They must exist.
    #[must_use]
    pub fn allow_read(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.read.extend(paths);
        self
    }

    /// Files and folders to hide. What does not exist is no matter; what holds something that is to be seen, such as the
    /// workspace, is not hidden.
    #[must_use]
    pub fn hide_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hide.extend(paths);
        self
    }

    /// How much memory all processes of a command may take together; nine tenths of the machine's unless set. It is looked at each
    /// second. There is no limit of addresses, of which sanitizers and JavaScript engines reserve more than any machine has.
    #[must_use]
    pub fn memory_mib(mut self, most: u64) -> Self {
        self.memory_mib = Some(most);
        self
    }

    /// The user's home folder, in which known places of secrets are hidden.
    #[must_use]
    pub fn hide_home_secrets(self, home: &Path) -> Self {
        self.hide_paths(home_secrets(home))
    }

    /// Where the private temporary folder is made; `/tmp` unless set.
    #[must_use]
    pub fn temp_parent(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temporary = folder.into();
        self
    }

    /// Whether a command gets an environment entry of this name.
    pub(crate) fn passes_env(&self, name: &str) -> bool {
        self.level == SandboxLevel::Off || !secrets::leads_out(name)
    }

    /// What the supervisor has to do for a command of this environment, or nothing.
    pub(crate) fn build_plan(
        &self,
        root: &Path,
        env: &[(String, String)],
    ) -> Result<Option<SandboxPlan>, WorkspaceError> {
        if self.level == SandboxLevel::Off {
            return Ok(None);
        }
        let real = |path: &PathBuf| {
            path.canonicalize().map_err(|error| WorkspaceError::Sandbox {
                reason: format!("`{}`, which its sandbox is to show, cannot be found: {error}", path.display()),
            })
        };
        let mut write = vec![root.to_path_buf()];
        for folder in &self.write {
            write.push(real(folder)?);
        }
        let mut read = self.read.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        read.retain(|path| !write.iter().any(|folder| path.starts_with(folder)));
        let mut hide: Vec<PathBuf> = self.hide.iter().filter_map(|path| path.canonicalize().ok()).collect();
        hide.sort();
        hide.dedup();
        hide.retain(|path| !write.iter().chain(&read).any(|shown| shown.starts_with(path)));
        if self.work == WorkspaceAccess::Read {
            read.append(&mut write);
        }
        let ((tmp, stay), caches) = (self.temp_dir(root)?, plan::moved_caches(&write, env));
        let (level, network, memory_mib, guarded) =
            (self.level, self.network, self.memory_mib, ProtectedPaths::default());
        Ok(Some(SandboxPlan { level, network, write, read, hide, tmp, stay, caches, memory_mib, guarded }))
    }

    /// The same sandbox in a workspace as a profile for macOS's `sandbox-exec`. Untested, see `seatbelt.rs`.
    ///
    /// # Errors
    /// [`WorkspaceError::Sandbox`] for a folder that does not exist.
    pub fn seatbelt_profile(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        let order = self.build_plan(workspace.root(), &[])?;
        Ok(order.as_ref().map(seatbelt::build_profile).unwrap_or_default())
    }

    /// The temporary folder, and how long it stays.
    fn temp_dir(&self, root: &Path) -> Result<(PathBuf, TempDirLifetime), WorkspaceError> {
        let temporary = self.temporary.canonicalize().unwrap_or_else(|_| self.temporary.clone());
        let Some(private) = &self.private else {
            // Nobody else can know the name before it is taken.
            return Ok((
                temporary.join(format!("sabir-{:016x}", RandomState::new().hash_one(root))),
                TempDirLifetime::Command,
            ));
        };
        let folder = private.get_or_create(&temporary).map_err(|error| WorkspaceError::Sandbox {
            reason: format!("its temporary folder in `{}` could not be made: {error}", temporary.display()),
        })?;
        Ok((folder, TempDirLifetime::Task))
    }
}

/// The sandbox that a command was in: what was ordered, and the supervisor's report of it.
pub(crate) struct ActiveSandbox {
    pub(crate) order: SandboxPlan,
    pub(crate) number: i32,
}

impl ActiveSandbox {
    /// What can be said of it beside the output of a command that failed or did not.
    pub(crate) fn to_report(&self, failed: bool, output: &str) -> SandboxReport {
        let tier = if self.number >= TIER { SandboxTier::Two } else { SandboxTier::One };
        let note = if failed { denial_note::find_denial(&self.order, tier, output) } else { None };
        SandboxReport { tier, landlock: self.number.rem_euclid(TIER).unsigned_abs(), note }
    }
}

/// What separates the tier from Landlock's version in the supervisor's report.
const TIER: i32 = 1000;

impl SandboxTier {
    /// The number that reports this tier with a version of Landlock.
    fn report_number(self, landlock: i32) -> i32 {
        landlock + if self == Self::Two { TIER } else { 0 }
    }
}

impl SandboxLevel {
    /// The tiers to try, the better one first.
    fn candidate_tiers(self) -> &'static [SandboxTier] {
        match self {
            Self::Off => &[],
            Self::One => &[SandboxTier::One],
            Self::Two => &[SandboxTier::Two],
            Self::Best => &[SandboxTier::Two, SandboxTier::One],
        }
    }
}

const LEVELS: [(&str, SandboxLevel); 4] =
    [("off", SandboxLevel::Off), ("1", SandboxLevel::One), ("2", SandboxLevel::Two), ("best", SandboxLevel::Best)];

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = LEVELS.iter().find(|(_, level)| level == self).map(|(word, _)| *word);
        f.write_str(word.unwrap_or_default())
    }
}

/// The error says what can be written.
impl FromStr for SandboxLevel {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = LEVELS.iter().find(|(known, _)| *known == word);
        found.map(|(_, level)| *level).ok_or_else(|| format!("`{word}` is no sandbox level: write off, 1, 2 or best"))
    }
}

impl fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::One { "1" } else { "2" })
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = if self.tier == SandboxTier::Two { "namespaces, " } else { "" };
        match self.landlock {
            0 => write!(f, "level {}: {namespaces}system call filter", self.tier),
            version => write!(f, "level {}: {namespaces}Landlock {version}, system call filter", self.tier),
        }
    }
}

/// How many processes of ours stay with a command whose shell has ended.
pub(crate) fn helper_count(report: Option<i32>) -> usize {
    usize::from(report.is_some_and(|number| number >= TIER))
}

/// A folder that only its owner may enter.
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(folder)
}
