//! Confines commands: restricts what they can write, read and reach.
//!
//! Policy decides what runs; the sandbox limits what a running command can do, so that a wrong
//! decision costs little. There are two levels, and the second contains the first:
//!
//! | | [`EffectiveLevel::One`] | [`EffectiveLevel::Two`] |
//! | --- | --- | --- |
//! | needs | Landlock from Linux 6.2 on, seccomp | user namespaces, Linux 5.12; Landlock if available |
//! | writing | the workspace, a private `TMPDIR`, [`Sandbox::allow_write`] | the same, and `/tmp`, `/var/tmp`, `/dev/shm` are private |
//! | writing, [`Sandbox::read_only`] | a private `TMPDIR` | private `/tmp`, `/var/tmp`, `/dev/shm` |
//! | protected paths of the workspace | **restored afterwards** | read-only, and cannot be created if missing, or restored |
//! | modes, owners, times, attributes of files elsewhere | **can be changed** where the user could | cannot |
//! | secrets, sockets and devices (`secrets.rs`) | cannot be read; names can be listed | cannot be seen |
//! | network, if denied | no sockets | a separate loopback interface, TCP and UDP |
//! | network of package registries | – | the same, with a proxy to listed hosts |
//! | unix sockets | pairs only | those of the sandbox; the machine's are covered |
//! | other processes | no tracing; no signals from Linux 6.12 on | cannot be seen |
//! | privileges | none, even as root, and no way to gain any | the same, and user 0 outside is not user 0 inside |
//!
//! The bold cells are the limits of Landlock: it can only allow folders with everything below, and
//! does not control mode changes. Denying those system calls outright would break `chmod +x`, `cp
//! -p`, `tar`, `git` and `cargo`, so level 1 allows them; set-user-ID programs that are made with
//! them gain nothing inside, and outside only if the workspace's user starts them.
//!
//! On macOS there is only level 1, and Seatbelt does its work (`seatbelt.rs`): secrets cannot be read,
//! protected paths cannot be written and are restored afterwards too, there are no sockets, and
//! privileges and the number of threads are not limited.
//!
//! In both levels: no core dumps, at most 64 GiB per file, and limits of memory and processes that
//! the supervisor checks (`supervise.rs`); no system calls that only administrators, debuggers or
//! exploits need (listed in `syscall_filter.rs`); no environment variables that lead to an agent, a
//! bus or a display.
//!
//! A fork of the supervisor builds the sandbox, confines itself and becomes the shell. If any part
//! of the requested level is unavailable, nothing runs, and the error names the missing part.
//!
//! While a command of level 2 with write access runs, empty placeholders (masks) occupy the missing
//! protected names in the workspace, and file watchers see them; the supervisor removes them
//! (`masks.rs`). Masks left by a killed supervisor are removed by the next command.
//!
//! Caches of package managers and compilers are in the home folder and thus not writable, so
//! environment variables move them to the private temporary folder.
//!
//! Not covered in either level: reading (a command may read what the user may read, except secrets),
//! protected names below the top of the workspace (`sub/AGENTS.md`), hard links to files outside that
//! were there before, locks on readable files, and processor time.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use crate::command::{CommandExit, ShellCommand};
use crate::error::WorkspaceError;
use crate::files::Workspace;

mod denial_note;
pub(crate) mod environment;
mod existing_paths;
mod git_protection;
#[cfg(target_os = "linux")]
mod host_sockets;
#[cfg(target_os = "linux")]
mod landlock_rules;
#[cfg(target_os = "linux")]
mod launch;
pub(crate) mod loopback;
mod mask_pool;
pub(crate) mod masks;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
mod plan;
pub(crate) mod prepared_launcher;
pub(crate) mod process_cgroup;
mod protected_entries;
mod protected_paths;
mod protected_restore;
mod registry_hosts;
mod removed_folders;
mod resource_limits;
mod seatbelt;
#[cfg(target_os = "macos")]
mod seatbelt_launch;
mod secrets;
pub(crate) mod security_check;
mod setup_stage;
mod shared_temp;
#[cfg(target_os = "linux")]
pub(crate) mod syscall_filter;
#[cfg(target_os = "linux")]
pub(crate) mod syscalls;

pub use denial_note::{DenialKind, DenialNote};
use existing_paths::existing_paths;
pub use masks::is_mask;
use plan::TempDirLifetime;
pub(crate) use plan::{LoopbackPlan, SandboxPlan};
pub(crate) use protected_paths::ProtectedPaths;
pub use protected_restore::WithheldPath;
pub(crate) use registry_hosts::split_host;
pub use registry_hosts::{ConnectionOutcome, HostConnection, RegistryHost, UnknownHost};
pub use security_check::{
    RestrictionReport, RestrictionState, SandboxRestriction, SecurityCheckError, SecurityReport,
    check_security,
};
pub(crate) use setup_stage::SetupStage;
use shared_temp::SharedTempDir;

/// The requested level of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxLevel {
    /// No sandbox.
    #[default]
    Off,
    /// Level 1; without it, the command does not run.
    One,
    /// Level 2; without it, the command does not run.
    Two,
    /// Level 2 if available, otherwise level 1; without either, the command does not run.
    Best,
}

/// The level of confinement in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectiveLevel {
    /// Landlock, a system call filter, limits, no privileges.
    One,
    /// All of level 1, inside separate namespaces.
    Two,
}

/// The network access of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    /// No connection leaves the sandbox.
    #[default]
    Denied,
    /// Connections to the hosts of package registries, through a proxy that records them
    /// (`supervise/registry_proxy.rs`). Needs level 2.
    Registries,
    /// The network of the machine by TCP and UDP; still no unix sockets of other programs.
    Allowed,
}

/// The confinement of a command; see the [module](self) for its effects.
#[derive(Debug, Clone)]
pub struct Sandbox {
    level: SandboxLevel,
    network: NetworkAccess,
    /// The hosts that [`NetworkAccess::Registries`] reaches.
    registries: Vec<RegistryHost>,
    work: WorkspaceAccess,
    write: Vec<PathBuf>,
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
    empty: Vec<PathBuf>,
    temporary: PathBuf,
    /// The temporary folder that all commands share, if any.
    private: Option<Arc<SharedTempDir>>,
    /// The folder that keeps the masks between commands.
    mask_pool: Option<PathBuf>,
    memory_mib: Option<u64>,
    /// True if the ports of the machine's loopback may be reached.
    allows_loopback: bool,
    /// The ports of the machine's loopback that the command may reach.
    loopback_ports: Vec<u16>,
    /// The level that was found in force, shared by all clones.
    found_level: Arc<OnceLock<Option<EffectiveLevel>>>,
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
    /// The level in force.
    pub level: EffectiveLevel,
    /// The kernel's Landlock version; 0 for none, which only level 2 can do without.
    pub landlock: u32,
    /// The explanation for the model if the output looks like a denial: the line, the rule, and
    /// what is allowed.
    pub note: Option<DenialNote>,
    /// The protected paths of the workspace that the command created or changed, and that were
    /// restored after it.
    pub withheld: Vec<WithheldPath>,
    /// The connections through the proxy of package registries, and those that it refused.
    pub connections: Vec<HostConnection>,
}

impl SandboxReport {
    /// Describes for the user the level, possible denials, and restored paths, in lines.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let note = self
            .note
            .iter()
            .map(|note| format!("{} {}", note.message, note.kind.option_hint()));
        std::iter::once(format!("the sandbox was {self}"))
            .chain(note)
            .chain(self.withheld.iter().map(WithheldPath::to_string))
            .chain(self.connections.iter().map(HostConnection::to_string))
            .collect()
    }
}

impl Sandbox {
    /// Creates a sandbox that can write only in the workspace and a private temporary folder, has
    /// no network, and hides the secrets of the machine.
    /// [`hide_paths`](Self::hide_paths) also hides those of the user.
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
            registries: RegistryHost::public_registries().collect(),
            work,
            write,
            read,
            hide,
            empty: Vec::new(),
            temporary,
            private: None,
            mask_pool: None,
            memory_mib: None,
            allows_loopback: true,
            loopback_ports: Vec::new(),
            found_level: Arc::default(),
        }
    }

    /// Returns the level that commands really get on this machine; `None` without a sandbox, and where none can be provided.
    ///
    /// The first call runs a command that does nothing, on a thread of its own; later ones, and those of clones, return the same.
    #[must_use]
    pub fn effective_level(
        &self,
        workspace: &Workspace,
        helper: &Path,
        environment: &[(String, String)],
    ) -> Option<EffectiveLevel> {
        if !self.is_on() {
            return None;
        }
        let probe = || {
            let command = ShellCommand::new("true", helper)
                .env(environment.iter().cloned())
                .sandbox(self.clone());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?;
            let outcome = runtime.block_on(command.run(workspace, |_, _| {})).ok()?;
            outcome.sandbox.map(|report| report.level)
        };
        // The caller may be on a thread of a runtime, which cannot run another one.
        let run = || std::thread::scope(|scope| scope.spawn(probe).join().ok().flatten());
        *self.found_level.get_or_init(run)
    }

    /// Returns the same sandbox, which no longer falls back to level 1 if level 2 was found in force.
    #[must_use]
    pub fn require_detected_level(mut self) -> Self {
        if self.level == SandboxLevel::Best
            && self.found_level.get() == Some(&Some(EffectiveLevel::Two))
        {
            self.level = SandboxLevel::Two;
        }
        self
    }

    /// Sets the network access.
    #[must_use]
    pub fn with_network(mut self, network: NetworkAccess) -> Self {
        self.network = network;
        self
    }

    /// Forbids commands to reach ports of the machine's loopback, whatever
    /// [`allow_loopback_ports`](Self::allow_loopback_ports) names.
    #[must_use]
    pub fn with_loopback(mut self, is_allowed: bool) -> Self {
        self.allows_loopback = is_allowed;
        self
    }

    /// Returns true unless the machine's loopback is forbidden.
    #[must_use]
    pub fn allows_loopback(&self) -> bool {
        self.allows_loopback
    }

    /// Lets commands reach these ports of the machine's loopback, in level 2 and without the network.
    /// At most 16 of them, and only those that a program listens on when a command starts.
    #[must_use]
    pub fn allow_loopback_ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.loopback_ports.extend(ports);
        self
    }

    /// Adds hosts to the package registries that [`NetworkAccess::Registries`] reaches.
    #[must_use]
    pub fn with_registries(mut self, hosts: impl IntoIterator<Item = RegistryHost>) -> Self {
        self.registries.extend(hosts);
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

    /// Returns the network access.
    #[must_use]
    pub fn network(&self) -> NetworkAccess {
        self.network
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

    /// Returns true if commands in the sandbox cannot write in the workspace.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.work == WorkspaceAccess::Read
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

    /// Adds files that look empty, in level 2; in level 1, those outside of writable folders cannot be
    /// read. Missing ones are ignored. For files that may hold secrets and that a command could come
    /// across without naming them: an error would make `grep -r` fail.
    #[must_use]
    pub fn show_as_empty(mut self, files: impl IntoIterator<Item = PathBuf>) -> Self {
        self.empty.extend(files);
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

    /// Sets the parent of the private temporary folder; `/tmp` by default.
    #[must_use]
    pub fn temp_parent(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temporary = folder.into();
        self
    }

    /// Sets the folder that keeps empty folders between commands, which occupy missing protected names in level 2. Making and removing
    /// them costs milliseconds on some file systems. It is created if it is missing, and used only on the file system of the workspace
    /// and outside of what commands can write.
    #[must_use]
    pub fn with_mask_pool(mut self, folder: impl Into<PathBuf>) -> Self {
        self.mask_pool = Some(folder.into());
        self
    }

    /// Returns true if a command gets the environment variable of this name.
    pub(crate) fn passes_env(&self, name: &str) -> bool {
        self.level == SandboxLevel::Off || !secrets::names_session_service(name)
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
        // Most places of secrets do not exist, and resolving a path costs a call per part.
        let mut hide: Vec<PathBuf> = existing_paths(&self.hide)
            .into_iter()
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
        let mut empty: Vec<PathBuf> = self
            .empty
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            // A folder cannot look like an empty file.
            .filter(|path| path.is_file() && !hide.iter().any(|hidden| path.starts_with(hidden)))
            .collect();
        empty.sort();
        empty.dedup();
        let (tmp, stay) = self.temp_dir()?;
        let caches = plan::moved_caches(&write, env);
        let package_homes = plan::moved_package_homes(&write, env);
        let home = env.iter().rfind(|(name, _)| name == "HOME");
        let home = home.map(|(_, home)| PathBuf::from(home));
        let Self {
            mut level,
            network,
            memory_mib,
            ..
        } = *self;
        let is_walled = self.allows_loopback && network == NetworkAccess::Denied;
        let ports = if is_walled {
            loopback::filter_listening(&self.loopback_ports)
        } else {
            Vec::new()
        };
        let loopback = (!ports.is_empty()).then(|| LoopbackPlan {
            socket: loopback::new_socket_path(&self.temporary),
            ports,
        });
        let mut registries = Vec::new();
        if network == NetworkAccess::Registries {
            level = match level {
                SandboxLevel::Best => SandboxLevel::Two,
                SandboxLevel::One => {
                    let reason = "level 1 has no proxy to package registries, so use level 2";
                    let reason = reason.to_owned();
                    return Err(WorkspaceError::Sandbox { reason });
                }
                level => level,
            };
            registries.clone_from(&self.registries);
        }
        Ok(Some(SandboxPlan {
            level,
            network,
            write,
            read,
            hide,
            empty,
            tmp,
            stay,
            caches,
            package_homes,
            registries,
            memory_mib,
            home: home.filter(|home| home.is_absolute()),
            loopback,
            mask_pool: self.mask_pool.clone(),
        }))
    }

    /// Returns the same sandbox as a profile for macOS's `sandbox-exec`, as commands get it there.
    /// Not yet tried, see `seatbelt.rs`.
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
    fn temp_dir(&self) -> Result<(PathBuf, TempDirLifetime), WorkspaceError> {
        let temporary = self
            .temporary
            .canonicalize()
            .unwrap_or_else(|_| self.temporary.clone());
        let Some(private) = &self.private else {
            return Ok((random_path(&temporary, "sabir-"), TempDirLifetime::Command));
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
    pub(crate) withheld: Vec<WithheldPath>,
    pub(crate) connections: Vec<HostConnection>,
    /// The text of the command.
    pub(crate) command: String,
}

impl ActiveSandbox {
    /// Describes the sandbox for the outcome of a command, with a note if the command failed in a
    /// way that looks like a denial.
    pub(crate) fn to_report(&self, end: CommandExit, output: &str) -> SandboxReport {
        let level = if self.number >= LEVEL_FACTOR {
            EffectiveLevel::Two
        } else {
            EffectiveLevel::One
        };
        let note = match end {
            CommandExit::Exited(0) => None,
            CommandExit::Exited(code) => denial_note::find_denial(&self.plan, level, output)
                .or_else(|| {
                    let line = denial_note::describe_silent_exit(&self.plan, &self.command, code)?;
                    denial_note::find_denial(&self.plan, level, line)
                }),
            _ => denial_note::find_denial(&self.plan, level, output),
        };
        SandboxReport {
            level,
            landlock: self.number.rem_euclid(LEVEL_FACTOR).unsigned_abs(),
            note,
            withheld: self.withheld.clone(),
            connections: self.connections.clone(),
        }
    }
}

/// The factor that separates the level from the Landlock version in the supervisor's report.
const LEVEL_FACTOR: i32 = 1000;

impl EffectiveLevel {
    /// Returns the number that reports this level with a Landlock version.
    fn report_number(self, landlock: i32) -> i32 {
        landlock + if self == Self::Two { LEVEL_FACTOR } else { 0 }
    }
}

impl EffectiveLevel {
    /// Returns the missing parts of this level, as the end of a line that describes it.
    fn missing_walls(self) -> &'static str {
        match self {
            Self::One => {
                "; without user namespaces, hooks and other protected files can be changed until the command ends, and are then restored"
            }
            Self::Two => "",
        }
    }
}

impl SandboxLevel {
    /// Returns the levels to try, best first.
    fn candidate_levels(self) -> &'static [EffectiveLevel] {
        match self {
            Self::Off => &[],
            Self::One => &[EffectiveLevel::One],
            Self::Two => &[EffectiveLevel::Two],
            // macOS has no namespaces, so level 2 is not tried.
            Self::Best if cfg!(target_os = "macos") => &[EffectiveLevel::One],
            Self::Best => &[EffectiveLevel::Two, EffectiveLevel::One],
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
#[error("`{word}` is not a sandbox level: write off, 1, 2 or best")]
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

impl fmt::Display for EffectiveLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::One { "1" } else { "2" })
    }
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = if self.level == EffectiveLevel::Two {
            "namespaces, "
        } else {
            ""
        };
        match self.landlock {
            0 if cfg!(target_os = "macos") => {
                write!(f, "level {}: Seatbelt, not yet tried by us", self.level)
            }
            0 => write!(f, "level {}: {namespaces}system call filter", self.level),
            version => write!(
                f,
                "level {}: {namespaces}Landlock {version}, system call filter{}",
                self.level,
                self.level.missing_walls()
            ),
        }
    }
}

/// Returns the number of helper processes that stay with a command after its shell has ended.
pub(crate) fn helper_count(report: Option<i32>) -> usize {
    usize::from(report.is_some_and(|number| number >= LEVEL_FACTOR))
}

/// Returns a path in a folder whose name cannot be guessed, so nobody else can create it first.
fn random_path(folder: &Path, start: &str) -> PathBuf {
    folder.join(format!(
        "{start}{:016x}",
        RandomState::new().hash_one(folder)
    ))
}

/// Creates a folder that only its owner may enter.
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(folder)
}
