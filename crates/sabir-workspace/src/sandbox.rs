//! Confines commands: restricts what they can write, read and reach.
//!
//! Policy decides what runs; the sandbox limits what a running command can do, so that a wrong
//! decision costs little. There are two tiers, and the second contains the first:
//!
//! | | [`SandboxTier::One`] | [`SandboxTier::Two`] |
//! | --- | --- | --- |
//! | needs | Landlock from Linux 6.2 on, seccomp | user namespaces, Linux 5.12; Landlock if available |
//! | writing | the workspace, a private `TMPDIR`, [`Sandbox::allow_write`] | the same, and `/tmp`, `/var/tmp`, `/dev/shm` are private |
//! | writing, [`Sandbox::read_only`] | a private `TMPDIR` | private `/tmp`, `/var/tmp`, `/dev/shm` |
//! | protected paths of the workspace | **writable** | read-only, and cannot be created if missing |
//! | modes, owners, times, attributes of files elsewhere | **can be changed** where the user could | cannot |
//! | secrets, sockets and devices (`secrets.rs`) | cannot be read; names can be listed | cannot be seen |
//! | network, if denied | no sockets | a separate loopback interface, TCP only |
//! | unix sockets | pairs only | pairs only |
//! | other processes | no tracing; no signals from Linux 6.12 on | cannot be seen |
//! | privileges | none, even as root, and no way to gain any | the same, and user 0 outside is not user 0 inside |
//!
//! The bold cells are the limits of Landlock: it can only allow folders with everything below, and
//! does not control mode changes. Denying those system calls outright would break `chmod +x`, `cp
//! -p`, `tar`, `git` and `cargo`, so tier 1 allows them; set-user-ID programs that are made with
//! them gain nothing inside, and outside only if the workspace's user starts them.
//!
//! In both tiers: no core dumps, at most 64 GiB per file and 16,384 processes; no system calls that
//! only administrators, debuggers or exploits need (listed in `syscall_filter.rs`); no environment
//! variables that lead to an agent, a bus or a display.
//!
//! A fork of the supervisor builds the sandbox, confines itself and becomes the shell. If any part
//! of the requested level is unavailable, nothing runs, and the error names the missing part.
//!
//! While a command of tier 2 with write access runs, empty placeholders (masks) occupy the missing
//! protected names in the workspace, and file watchers see them; the supervisor removes them
//! (`masks.rs`). Masks left by a killed supervisor are removed by the next command.
//!
//! Caches of package managers and compilers are in the home folder and thus not writable, so
//! environment variables move them to the private temporary folder.
//!
//! Not covered in either tier: reading (a command may read what the user may read, except secrets),
//! protected names below the top of the workspace (`sub/AGENTS.md`) and missing ones that
//! `masks.rs` does not list, locks on readable files, and processor time.

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

/// The requested confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxLevel {
    /// No sandbox.
    #[default]
    Off,
    /// Tier 1; without it, the command does not run.
    One,
    /// Tier 2; without it, the command does not run.
    Two,
    /// Tier 2 if available, otherwise tier 1; without either, the command does not run.
    Best,
}

/// The confinement in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxTier {
    /// Landlock, a system call filter, limits, no privileges.
    One,
    /// All of tier 1, inside separate namespaces.
    Two,
}

/// The network access of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    /// No connection leaves the sandbox.
    #[default]
    Denied,
    /// The network of the machine by TCP and UDP; still no unix sockets.
    Allowed,
}

/// The confinement of a command; see the [module](self) for its effects.
#[derive(Debug, Clone)]
pub struct Sandbox {
    level: SandboxLevel,
    network: NetworkAccess,
    work: WorkspaceAccess,
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
    temporary: PathBuf,
    /// The temporary folder that all commands share, if any.
    private: Option<Arc<SharedTempDir>>,
    memory_mib: Option<u64>,
}

/// The access to the workspace and the other writable folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkspaceAccess {
    Write,
    Read,
}

/// The confinement that a command ran in, as reported in its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxReport {
    /// The tier in force.
    pub tier: SandboxTier,
    /// The kernel's Landlock version; 0 for none, which only tier 2 can do without.
    pub landlock: u32,
    /// The explanation for the model if the output looks like a denial: the line, the rule, and
    /// what is allowed.
    pub note: Option<DenialNote>,
}

impl Sandbox {
    /// Creates a sandbox that can write only in the workspace and a private temporary folder, has
    /// no network, and hides the secrets of the machine.
    /// [`hide_home_secrets`](Self::hide_home_secrets) also hides those in the home folder.
    #[must_use]
    pub fn new(level: SandboxLevel) -> Self {
        let write = Vec::new();
        let read = Vec::new();
        let hide = secrets::machine_secrets();
        let network = NetworkAccess::Denied;
        let work = WorkspaceAccess::Write;
        let temporary = PathBuf::from("/tmp");
        Self {
            level,
            network,
            work,
            write,
            read,
            hide,
            temporary,
            private: None,
            memory_mib: None,
        }
    }

    /// Sets the network access.
    #[must_use]
    pub fn with_network(mut self, network: NetworkAccess) -> Self {
        self.network = network;
        self
    }

    /// Returns true unless the level is [`SandboxLevel::Off`].
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != SandboxLevel::Off
    }

    /// Returns true if commands in the sandbox may use the network.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.network == NetworkAccess::Allowed
    }

    /// Returns the requested level.
    #[must_use]
    pub fn level(&self) -> SandboxLevel {
        self.level
    }

    /// Makes everything read-only except the temporary folder, even the workspace, for commands
    /// that are known to only read.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.work = WorkspaceAccess::Read;
        self
    }

    /// Makes all commands of this sandbox and its clones share one temporary folder, which is
    /// removed with the last of them; by default each command has its own.
    #[must_use]
    pub fn share_temp_dir(mut self) -> Self {
        self.private = Some(Arc::default());
        self
    }

    /// Adds folders outside the workspace that may be written. They must exist.
    #[must_use]
    pub fn allow_write(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(folders);
        self
    }

    /// Adds files and folders that stay visible although they would be hidden, or are in the real
    /// `/tmp`. They must exist.
    #[must_use]
    pub fn allow_read(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.read.extend(paths);
        self
    }

    /// Adds files and folders to hide. Missing ones are ignored; a folder that contains something
    /// visible, such as the workspace, is not hidden.
    #[must_use]
    pub fn hide_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hide.extend(paths);
        self
    }

    /// Sets the memory limit for all processes of a command together, in MiB; nine tenths of the
    /// machine's memory by default. It is checked every second. There is no address space limit,
    /// because sanitizers and JavaScript engines reserve more addresses than any machine has
    /// memory.
    #[must_use]
    pub fn memory_mib(mut self, most: u64) -> Self {
        self.memory_mib = Some(most);
        self
    }

    /// Hides the known places of secrets in the user's home folder.
    #[must_use]
    pub fn hide_home_secrets(self, home: &Path) -> Self {
        self.hide_paths(home_secrets(home))
    }

    /// Sets the parent of the private temporary folder; `/tmp` by default.
    #[must_use]
    pub fn temp_parent(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temporary = folder.into();
        self
    }

    /// Returns true if a command gets the environment variable of this name.
    pub(crate) fn passes_env(&self, name: &str) -> bool {
        self.level == SandboxLevel::Off || !secrets::leads_out(name)
    }

    /// Builds the supervisor's plan for a command with this environment; `None` without a sandbox.
    pub(crate) fn build_plan(
        &self,
        root: &Path,
        env: &[(String, String)],
    ) -> Result<Option<SandboxPlan>, WorkspaceError> {
        if self.level == SandboxLevel::Off {
            return Ok(None);
        }
        let real = |path: &PathBuf| {
            path.canonicalize()
                .map_err(|error| WorkspaceError::Sandbox {
                    reason: format!(
                        "`{}`, which its sandbox is to show, cannot be found: {error}",
                        path.display()
                    ),
                })
        };
        let mut write = vec![root.to_path_buf()];
        for folder in &self.write {
            write.push(real(folder)?);
        }
        let mut read = self.read.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        // Anything inside a writable folder is readable already.
        read.retain(|path| !write.iter().any(|folder| path.starts_with(folder)));
        let mut hide: Vec<PathBuf> = self
            .hide
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        hide.sort();
        hide.dedup();
        // Hiding a parent of a visible path would hide that path too.
        hide.retain(|path| {
            !write
                .iter()
                .chain(&read)
                .any(|shown| shown.starts_with(path))
        });
        // Everything that was writable stays readable.
        if self.work == WorkspaceAccess::Read {
            read.append(&mut write);
        }
        let (tmp, stay) = self.temp_dir(root)?;
        let caches = plan::moved_caches(&write, env);
        let protected = ProtectedPaths::default();
        let Self {
            level,
            network,
            memory_mib,
            ..
        } = *self;
        Ok(Some(SandboxPlan {
            level,
            network,
            write,
            read,
            hide,
            tmp,
            stay,
            caches,
            memory_mib,
            protected,
        }))
    }

    /// Returns the same sandbox as a profile for macOS's `sandbox-exec`. Untested, see
    /// `seatbelt.rs`.
    ///
    /// # Errors
    /// [`WorkspaceError::Sandbox`] for a folder that does not exist.
    pub fn seatbelt_profile(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        let plan = self.build_plan(workspace.root(), &[])?;
        Ok(plan
            .as_ref()
            .map(seatbelt::build_profile)
            .unwrap_or_default())
    }

    /// Returns the temporary folder and its lifetime.
    fn temp_dir(&self, root: &Path) -> Result<(PathBuf, TempDirLifetime), WorkspaceError> {
        let temporary = self
            .temporary
            .canonicalize()
            .unwrap_or_else(|_| self.temporary.clone());
        let Some(private) = &self.private else {
            // The random name cannot be guessed, so nobody else can create it first.
            return Ok((
                temporary.join(format!("sabir-{:016x}", RandomState::new().hash_one(root))),
                TempDirLifetime::Command,
            ));
        };
        let folder =
            private
                .get_or_create(&temporary)
                .map_err(|error| WorkspaceError::Sandbox {
                    reason: format!(
                        "its temporary folder in `{}` could not be made: {error}",
                        temporary.display()
                    ),
                })?;
        Ok((folder, TempDirLifetime::Task))
    }
}

/// The sandbox that a command ran in: the plan, and the supervisor's report number.
pub(crate) struct ActiveSandbox {
    pub(crate) plan: SandboxPlan,
    pub(crate) number: i32,
}

impl ActiveSandbox {
    /// Describes the sandbox for the outcome of a command, with a note if the command failed in a
    /// way that looks like a denial.
    pub(crate) fn to_report(&self, failed: bool, output: &str) -> SandboxReport {
        let tier = if self.number >= TIER {
            SandboxTier::Two
        } else {
            SandboxTier::One
        };
        let note = if failed {
            denial_note::find_denial(&self.plan, tier, output)
        } else {
            None
        };
        SandboxReport {
            tier,
            landlock: self.number.rem_euclid(TIER).unsigned_abs(),
            note,
        }
    }
}

/// The factor that separates the tier from the Landlock version in the supervisor's report.
const TIER: i32 = 1000;

impl SandboxTier {
    /// Returns the number that reports this tier with a Landlock version.
    fn report_number(self, landlock: i32) -> i32 {
        landlock + if self == Self::Two { TIER } else { 0 }
    }
}

impl SandboxLevel {
    /// Returns the tiers to try, best first.
    fn candidate_tiers(self) -> &'static [SandboxTier] {
        match self {
            Self::Off => &[],
            Self::One => &[SandboxTier::One],
            Self::Two => &[SandboxTier::Two],
            Self::Best => &[SandboxTier::Two, SandboxTier::One],
        }
    }
}

const LEVELS: [(&str, SandboxLevel); 4] = [
    ("off", SandboxLevel::Off),
    ("1", SandboxLevel::One),
    ("2", SandboxLevel::Two),
    ("best", SandboxLevel::Best),
];

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = LEVELS
            .iter()
            .find(|(_, level)| level == self)
            .map(|(word, _)| *word);
        f.write_str(word.unwrap_or_default())
    }
}

/// The error for text that names no sandbox level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no sandbox level: write off, 1, 2 or best")]
pub struct UnknownSandboxLevel {
    /// The text as written.
    pub word: String,
}

/// Returns the message, for callers whose own errors are texts.
impl From<UnknownSandboxLevel> for String {
    fn from(error: UnknownSandboxLevel) -> Self {
        error.to_string()
    }
}

impl FromStr for SandboxLevel {
    type Err = UnknownSandboxLevel;

    fn from_str(word: &str) -> Result<Self, UnknownSandboxLevel> {
        let found = LEVELS.iter().find(|(known, _)| *known == word);
        found
            .map(|(_, level)| *level)
            .ok_or_else(|| UnknownSandboxLevel {
                word: word.to_owned(),
            })
    }
}

impl fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::One { "1" } else { "2" })
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = if self.tier == SandboxTier::Two {
            "namespaces, "
        } else {
            ""
        };
        match self.landlock {
            0 => write!(f, "level {}: {namespaces}system call filter", self.tier),
            version => write!(
                f,
                "level {}: {namespaces}Landlock {version}, system call filter",
                self.tier
            ),
        }
    }
}

/// Returns the number of helper processes that stay with a command after its shell has ended.
pub(crate) fn helper_count(report: Option<i32>) -> usize {
    usize::from(report.is_some_and(|number| number >= TIER))
}

/// Creates a folder that only its owner may enter.
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(folder)
}
