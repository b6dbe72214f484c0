//! What the supervisor does for a sandbox: it makes what has to be there before, starts the launcher, and removes it all when
//! every process is gone, also when the agent is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::launch::END;
use super::{Guarded, Order, Stage, Tier, WORD, make_private};
use crate::protect;
use crate::supervise::ARGUMENT;

/// Protected names that a command cannot make at the top of the workspace where they are missing, and what stands in their place
/// meanwhile. Mostly an empty folder, also for the names of files: git does not see it, and so it cannot be committed.
const MASKED: [(&str, Kind); 23] = [
    (".git/hooks", Kind::Folder),
    (".git/config", Kind::File),
    (".git/config.worktree", Kind::File),
    (".husky", Kind::Folder),
    (".vscode", Kind::Folder),
    (".idea", Kind::Folder),
    (".zed", Kind::Folder),
    (".devcontainer", Kind::Folder),
    (".envrc", Kind::Folder),
    (".npmrc", Kind::Folder),
    (".yarnrc.yml", Kind::Folder),
    (".cargo/config.toml", Kind::Nothing),
    (".cargo/config", Kind::Nothing),
    (".github/workflows", Kind::Folder),
    (".gitlab-ci.yml", Kind::Folder),
    (".circleci", Kind::Folder),
    (".claude", Kind::Folder),
    (".cursor", Kind::Folder),
    (".codex", Kind::Folder),
    (".mcp.json", Kind::Folder),
    (".sabir", Kind::Folder),
    ("AGENTS.md", Kind::Folder),
    ("CLAUDE.md", Kind::Folder),
];

/// What of git's folder a command may write: everything that makes no program run.
const GIT: &str = ".git";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    /// Cargo takes neither a folder nor, in a repository, should an empty file be seen: only a missing parent is masked.
    Nothing,
}

/// The room around one command. Two commands at a time share what stands in place of missing names: when the first ends it is
/// gone, and the other could make those names. Dropping it removes what was made.
pub(crate) struct Room {
    order: Option<Order>,
    /// Empty files and folders in the workspace, each with its inode, parents first.
    made: Vec<(PathBuf, u64)>,
}

impl Room {
    /// A room after these words; without words there are no walls.
    pub(crate) fn open(words: &[OsString]) -> io::Result<Self> {
        if words.is_empty() {
            return Ok(Self { order: None, made: Vec::new() });
        }
        let malformed = || Stage::Order.failed(&io::Error::from_raw_os_error(libc::EINVAL));
        let order = Order::read(words).filter(|order| !order.level.tiers().is_empty()).ok_or_else(malformed)?;
        make_private(&order.tmp).map_err(|error| Stage::Temporary.failed(&error))?;
        Ok(Self { order: Some(order), made: Vec::new() })
    }

    /// Starts a program in the best tier that was asked for and can be had. `spawn` adds arguments and starts it. The answer
    /// holds the report of what is in force, if anything.
    pub(crate) fn start(
        &mut self,
        program: &OsString,
        spawn: impl Fn(Command) -> io::Result<Child>,
    ) -> io::Result<(Child, Option<i32>)> {
        let Some(asked) = self.order.clone() else { return Ok((spawn(Command::new(program))?, None)) };
        let mut failure = None;
        for &tier in asked.level.tiers() {
            let mut order = asked.clone();
            if tier == Tier::Two {
                order.guarded = self.guard(&order.write)?;
            }
            match launch(&order, tier, program, &spawn) {
                Ok((child, report)) => return Ok((child, Some(report))),
                Err(error) => failure = failure.or(Some(error)),
            }
            self.clear();
        }
        Err(failure.unwrap_or_else(|| Stage::Order.failed(&io::Error::from_raw_os_error(0))))
    }

    /// Finds the protected paths at the top of the workspace, and puts something in the place of missing ones.
    fn guard(&mut self, write: &[PathBuf]) -> io::Result<Guarded> {
        let mut guarded = Guarded::default();
        let Some(top) = write.first() else { return Ok(guarded) };
        let entries = fs::read_dir(top).map_err(|error| Stage::Guard.failed(&error))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            // A link is covered where it leads, if that is protected.
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file() || (kind.is_dir() && name != GIT));
            if plain && protect::reason(Path::new(&name)).is_some() {
                guarded.existing.push(entry.path());
            }
        }
        let modules = fs::read_dir(top.join(".git/modules")).into_iter().flatten().flatten();
        let modules = modules.flat_map(|module| ["hooks", "config"].map(|name| module.path().join(name)));
        guarded.existing.extend(modules.filter(|path| path.exists()));
        for (name, kind) in MASKED {
            self.guard_name(top, name, kind, &mut guarded).map_err(|error| Stage::Guard.failed(&error))?;
        }
        guarded.existing.sort();
        guarded.existing.dedup();
        guarded.pinned.dedup();
        Ok(guarded)
    }

    fn guard_name(&mut self, top: &Path, name: &str, kind: Kind, guarded: &mut Guarded) -> io::Result<()> {
        let path = top.join(name);
        let parent = path.parent().filter(|parent| *parent != top);
        let exists = |path: &Path| fs::symlink_metadata(path).ok();
        let covered = |parent: &Path| guarded.existing.iter().chain(&guarded.missing).any(|path| path == parent);
        match (exists(&path), parent.map(|parent| (parent, exists(parent)))) {
            // Covered as a whole, or the parent is a file or a link to elsewhere.
            (_, Some((parent, Some(found)))) if !found.is_dir() || covered(parent) => {}
            (_, Some((parent, None))) => self.make(parent, Kind::Folder, guarded)?,
            (Some(found), parent) => {
                guarded.pinned.extend(parent.map(|(parent, _)| parent.to_path_buf()));
                if !found.is_symlink() {
                    guarded.existing.push(path);
                }
            }
            (None, parent) => {
                guarded.pinned.extend(parent.map(|(parent, _)| parent.to_path_buf()));
                self.make(&path, kind, guarded)?;
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &Path, kind: Kind, guarded: &mut Guarded) -> io::Result<()> {
        let made = match kind {
            Kind::Folder => fs::create_dir(path),
            Kind::File => File::create_new(path).map(drop),
            Kind::Nothing => return Ok(()),
        };
        match made {
            Ok(()) => self.made.push((path.to_path_buf(), fs::symlink_metadata(path)?.ino())),
            // Another command made it a moment ago; whoever removes it first, removes it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        guarded.missing.push(path.to_path_buf());
        Ok(())
    }

    /// Removes from the workspace what was put there, unless somebody outside made something of it.
    fn clear(&mut self) {
        for (path, inode) in self.made.drain(..).rev() {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.ino() == inode && found.is_dir() {
                // Only an empty one goes.
                let _ = fs::remove_dir(&path);
            } else if found.ino() == inode && found.len() == 0 {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.clear();
        if let Some(order) = &self.order {
            remove(&order.tmp);
        }
    }
}

/// Starts the launcher, and waits until it is the program.
fn launch(
    order: &Order,
    tier: Tier,
    program: &OsString,
    spawn: impl Fn(Command) -> io::Result<Child>,
) -> io::Result<(Child, i32)> {
    let failed = |error: io::Error| Stage::Launch.failed(&error);
    let (from, to) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    fcntl_setfd(&to, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args([ARGUMENT, WORD, &to.as_raw_fd().to_string(), &tier.to_string()])
        .args(order.words())
        .arg(END)
        .arg(program);
    let mut child = spawn(command).map_err(failed)?;
    drop(to);
    match answer(from) {
        Ok(report) => Ok((child, report)),
        Err(error) => {
            child.wait().map_err(failed)?;
            Err(error)
        }
    }
}

/// Reads what the launcher says until it is done.
fn answer(pipe: OwnedFd) -> io::Result<i32> {
    let mut words = String::new();
    File::from(pipe).read_to_string(&mut words).map_err(|error| Stage::Launch.failed(&error))?;
    let lost = || Stage::Launch.failed(&io::Error::from_raw_os_error(0));
    let last = words.lines().last().ok_or_else(lost)?;
    match last.strip_prefix("ready ") {
        Some(report) => report.parse().map_err(|_| lost()),
        None => Err(last.parse().map_or_else(|_| lost(), io::Error::from_raw_os_error)),
    }
}

/// Removes a folder with all that is in it, whatever modes a command has set there.
pub(crate) fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_ok() || !folder.exists() {
        return;
    }
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    // What still does not go is another user's; there is nobody to tell.
    let _ = fs::remove_dir_all(folder);
}
