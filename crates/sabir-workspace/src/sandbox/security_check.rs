//! Tests each wall of the sandbox on this machine with real attempts to pass it.
//!
//! Each attempt runs twice in a folder of its own: without a sandbox, where it must succeed, and
//! inside. Its effect is observed from outside wherever it has one. An attempt that fails without a
//! sandbox proves nothing, so its wall is reported as untested.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Sandbox, SandboxLevel, SandboxReport};
use crate::command::{CommandOutcome, ShellCommand};
use crate::error::WorkspaceError;
use crate::files::Workspace;

/// The time limit of an attempt.
const LIMIT: Duration = Duration::from_secs(20);
/// The content of files that must not be read or written.
const SECRET: &str = "sabir-wall-check-secret";

/// A wall of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxRestriction {
    /// Files outside of the folder cannot be changed.
    FilesOutside,
    /// Secrets of the home folder cannot be read.
    Secrets,
    /// Hooks, editor tasks and other protected files cannot be changed.
    ProtectedFiles,
    /// Git cannot be led to other configuration.
    GitFolder,
    /// Servers of this machine cannot be reached.
    Network,
    /// Sockets of other programs cannot be reached.
    UnixSockets,
    /// Other processes cannot be signalled.
    Processes,
    /// There are no privileges, and no way to gain any.
    Privileges,
    /// The number of processes is limited.
    ProcessLimit,
}

/// The state of a wall on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestrictionState {
    /// The attempt failed inside, and succeeded without a sandbox.
    Holds,
    /// The attempt succeeded inside, but its effect was undone when the command ended.
    PutBack,
    /// The attempt succeeded inside.
    Open,
    /// The attempt is not possible here, so the result is unknown.
    Untested,
}

/// A wall with its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestrictionReport {
    /// The wall that was tried.
    pub wall: SandboxRestriction,
    /// The result.
    pub state: RestrictionState,
}

/// The results of the checks of all walls of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityReport {
    /// The level in force.
    pub sandbox: SandboxReport,
    /// One report for each wall, most important first.
    pub walls: Vec<RestrictionReport>,
}

/// The error of a check of the walls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityCheckError {
    /// The sandbox is not available as requested, or an attempt could not be started.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The folder of the attempts could not be prepared.
    #[error("the attempts could not be prepared: {0}")]
    Preparation(#[from] io::Error),
    /// The requested level is not a sandbox.
    #[error("the sandbox is off, so there are no walls to test")]
    Off,
}

const WALLS: [SandboxRestriction; 9] = [
    SandboxRestriction::FilesOutside,
    SandboxRestriction::Secrets,
    SandboxRestriction::ProtectedFiles,
    SandboxRestriction::GitFolder,
    SandboxRestriction::Network,
    SandboxRestriction::UnixSockets,
    SandboxRestriction::Processes,
    SandboxRestriction::Privileges,
    SandboxRestriction::ProcessLimit,
];

impl SandboxRestriction {
    /// Describes the wall in a few words by the actions that it prevents.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::FilesOutside => "files outside of the folder cannot be changed",
            Self::Secrets => "secrets of the home folder cannot be read",
            Self::ProtectedFiles => "hooks, editor tasks and agents' files cannot be changed",
            Self::GitFolder => "git cannot be led to other configuration",
            Self::Network => "servers of this machine and the network cannot be reached",
            Self::UnixSockets => "sockets of other programs cannot be reached",
            Self::Processes => "other processes cannot be signalled",
            Self::Privileges => "there are no privileges, and no way to gain any",
            Self::ProcessLimit => "the number of processes is limited",
        }
    }
}

impl fmt::Display for RestrictionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::PutBack => "put back",
            Self::Open => "open",
            Self::Untested => "untested",
        })
    }
}

impl SecurityReport {
    /// Returns true if an attempt on some wall succeeded.
    #[must_use]
    pub fn has_unenforced_restriction(&self) -> bool {
        self.walls
            .iter()
            .any(|wall| wall.state == RestrictionState::Open)
    }
}

/// Writes the level and one line for each wall.
impl fmt::Display for SecurityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sandbox)?;
        for RestrictionReport { wall, state } in &self.walls {
            writeln!(f, "{:<9} {}", state.to_string(), wall.description())?;
        }
        Ok(())
    }
}

/// Attempts to break every wall of a sandbox of this level. `helper` is the supervisor's program,
/// as for [`ShellCommand::new`]; `environment` is that of commands. Needs a tokio runtime.
///
/// # Errors
/// [`SecurityCheckError`], if no sandbox is available at all.
pub async fn check_security(
    helper: &Path,
    level: SandboxLevel,
    environment: &[(String, String)],
    temporary: &Path,
) -> Result<SecurityReport, SecurityCheckError> {
    let workspace = AttemptWorkspace::create(helper, environment, temporary)?;
    let outcome = workspace.run(level, "true").await?;
    let sandbox = outcome.sandbox.ok_or(SecurityCheckError::Off)?;
    let mut walls = Vec::new();
    for wall in WALLS {
        let works = workspace.attempt(wall, SandboxLevel::Off).await?;
        let inside = workspace.attempt(wall, level).await?;
        let state = match (works, inside) {
            (AttemptEffect::None, _) => RestrictionState::Untested,
            (_, AttemptEffect::None) => RestrictionState::Holds,
            (_, AttemptEffect::Undone) => RestrictionState::PutBack,
            (_, AttemptEffect::Lasting) => RestrictionState::Open,
        };
        walls.push(RestrictionReport { wall, state });
    }
    Ok(SecurityReport { sandbox, walls })
}

/// The effect of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEffect {
    None,
    /// It was there while the command ran.
    Undone,
    Lasting,
}

/// A workspace with the targets of all attempts, removed in the end.
struct AttemptWorkspace<'a> {
    base: PathBuf,
    helper: &'a Path,
    environment: &'a [(String, String)],
    tcp: TcpListener,
    door: UnixListener,
}

impl Drop for AttemptWorkspace<'_> {
    fn drop(&mut self) {
        super::environment::remove_folder(&self.base);
    }
}

impl<'a> AttemptWorkspace<'a> {
    fn create(
        helper: &'a Path,
        environment: &'a [(String, String)],
        temporary: &Path,
    ) -> io::Result<Self> {
        let base = super::random_path(temporary, "sabir-walls-");
        super::make_private(&base)?;
        let base = base.canonicalize()?;
        for folder in [
            "ws/.git/hooks",
            "ws/.git/objects",
            "ws/.git/refs",
            "out",
            "home/.ssh",
        ] {
            fs::create_dir_all(base.join(folder))?;
        }
        for (file, text) in [
            ("ws/.git/HEAD", "ref: refs/heads/main\n"),
            ("ws/.git/config", "[core]\n"),
            ("home/.ssh/id", SECRET),
        ] {
            fs::write(base.join(file), text)?;
        }
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let door = UnixListener::bind(base.join("out/door"))?;
        tcp.set_nonblocking(true)?;
        door.set_nonblocking(true)?;
        Ok(Self {
            base,
            helper,
            environment,
            tcp,
            door,
        })
    }

    fn shown(&self, name: &str) -> String {
        self.base.join(name).display().to_string()
    }

    async fn run(
        &self,
        level: SandboxLevel,
        text: &str,
    ) -> Result<CommandOutcome, SecurityCheckError> {
        let workspace = Workspace::open(&self.base.join("ws"))?;
        let sandbox = Sandbox::new(level)
            .allow_read([
                self.base.join("out"),
                self.base.join("home"),
                self.helper.to_path_buf(),
            ])
            .hide_paths([self.base.join("home/.ssh")]);
        let command = ShellCommand::new(text, self.helper)
            .env(self.environment.iter().cloned())
            .timeout(LIMIT)
            .grace_period(Duration::from_millis(200))
            .sandbox(sandbox);
        Ok(command.run(&workspace, |_, _| {}).await?)
    }

    /// Makes the attempt on a wall, and cleans up after it.
    async fn attempt(
        &self,
        wall: SandboxRestriction,
        level: SandboxLevel,
    ) -> Result<AttemptEffect, SecurityCheckError> {
        let helper = self.helper.display();
        let probe = format!("exec '{helper}' {} {PROBE}", crate::supervise::ARGUMENT);
        let file = self.shown("out/file");
        let text = match wall {
            SandboxRestriction::FilesOutside => format!("echo x > '{file}'"),
            SandboxRestriction::Secrets => format!("cat '{}'", self.shown("home/.ssh/id")),
            SandboxRestriction::ProtectedFiles => {
                "mkdir -p .vscode; echo x > .vscode/tasks.json; echo x > .git/hooks/pre-commit; \
                 cat .git/hooks/pre-commit .vscode/tasks.json"
                    .to_owned()
            }
            SandboxRestriction::GitFolder => {
                "rm -f .git/commondir; echo ../x > .git/commondir; cat .git/commondir".to_owned()
            }
            SandboxRestriction::Network => {
                let address = self.tcp.local_addr()?;
                format!("{probe} tcp {address}")
            }
            SandboxRestriction::UnixSockets => format!("{probe} unix '{}'", self.shown("out/door")),
            SandboxRestriction::Processes => format!("kill -0 {} && echo x", std::process::id()),
            SandboxRestriction::Privileges => format!("{probe} privileges"),
            SandboxRestriction::ProcessLimit => format!("{probe} processes"),
        };
        let outcome = self.run(level, &text).await?;
        let output = outcome.output.text();
        let during = output.lines().any(|line| line == "x" || line == "../x");
        let lasting = match wall {
            SandboxRestriction::FilesOutside => Path::new(&file).exists(),
            SandboxRestriction::Secrets => output.contains(SECRET),
            SandboxRestriction::ProtectedFiles => {
                self.base.join("ws/.git/hooks/pre-commit").exists()
                    || self.base.join("ws/.vscode/tasks.json").exists()
            }
            SandboxRestriction::GitFolder => self.base.join("ws/.git/commondir").exists(),
            SandboxRestriction::Network => self.tcp.accept().is_ok(),
            SandboxRestriction::UnixSockets => self.door.accept().is_ok(),
            SandboxRestriction::Processes
            | SandboxRestriction::Privileges
            | SandboxRestriction::ProcessLimit => during,
        };
        for left in ["out/file", "ws/.git/commondir", "ws/.git/hooks/pre-commit"] {
            let _ = fs::remove_file(self.base.join(left));
        }
        let _ = fs::remove_dir_all(self.base.join("ws/.vscode"));
        let undone = during
            && matches!(
                wall,
                SandboxRestriction::ProtectedFiles | SandboxRestriction::GitFolder
            );
        Ok(match (lasting, undone) {
            (true, _) => AttemptEffect::Lasting,
            (false, true) => AttemptEffect::Undone,
            (false, false) => AttemptEffect::None,
        })
    }
}

/// The argument with which a supervisor's program makes an attempt instead.
pub(crate) const PROBE: &str = "probe";

/// Makes an attempt that a shell cannot make, and prints `x` if it succeeds.
pub(crate) fn run_probe(words: &[String]) -> bool {
    match words {
        [kind, address] if kind == "tcp" => std::net::TcpStream::connect(address).is_ok(),
        [kind, path] if kind == "unix" => std::os::unix::net::UnixStream::connect(path).is_ok(),
        [kind] if kind == "privileges" => may_gain_privileges(),
        [kind] if kind == "processes" => !has_process_limit(),
        _ => false,
    }
}

/// Returns true unless set-user-ID programs and capabilities are ruled out.
fn may_gain_privileges() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let is_zero = |name: &str| field(name).is_some_and(|set| set.bytes().all(|byte| byte == b'0'));
    field("NoNewPrivs:") != Some("1") || !is_zero("CapEff:") || !is_zero("CapPrm:")
}

/// Returns true if the kernel stops this process from starting any number of others.
fn has_process_limit() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
    let most = 16_384;
    // The limit of resources does not hold for root, which a user namespace hides.
    let is_root = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().nth(1) == Some("0"));
    let of_namespace = fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|limit| limit.trim().parse::<u64>().ok());
    let by_namespace = of_namespace.is_some_and(|limit| limit <= most);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let by_group = own
        .lines()
        .any(|line| line.contains("pids") || line.starts_with("0::"))
        && own.contains(&format!("/{}", super::process_cgroup::START));
    by_namespace || by_group || !is_root && limit.is_some_and(|limit| limit <= most)
}
