//! Git's configuration: which programs a repository would make git run, even when it is only looked at.
//!
//! `git status` runs what `core.fsmonitor` names, `git diff` what attributes and `diff.*.textconv` do, and filters cannot be switched
//! off by any option. So the configuration is listed first, which runs nothing, and what comes from the repository itself is looked
//! through. What the user's own configuration names is the user's affair.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::trust::{Programs, Unseen};

/// What git would find in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitConfig {
    /// It could not be found out: no git, too much of it, or too slow.
    Unknown,
    /// The folder belongs to no repository.
    NoRepository,
    /// A repository, and what of its own makes git run programs.
    Repository(Programs),
}

/// How long git may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much it may answer.
const MAX_BYTES: u64 = 16 << 20;
/// How many repositories may lie in one another.
const MAX_REPOSITORIES: usize = 64;

impl GitConfig {
    /// Finds out what git would find in a folder, with the environment that commands get. Runs git a few times, and nothing else.
    pub fn of(folder: &Path, environment: &[(String, String)]) -> Self {
        let git = Git { folder, environment };
        match git.repository() {
            Ok(found) => found,
            Err(Lost) => Self::Unknown,
        }
    }
}

/// It cannot be found out.
#[derive(Debug)]
struct Lost;

impl From<Unseen> for Lost {
    fn from(_: Unseen) -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
struct Git<'a> {
    folder: &'a Path,
    environment: &'a [(String, String)],
}

impl Git<'_> {
    fn repository(&self) -> Result<GitConfig, Lost> {
        let Some(folders) =
            self.ask(&["rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"])?
        else {
            return self.bare();
        };
        let folders = String::from_utf8(folders).map_err(|_| Lost)?;
        let mut lines = folders.lines();
        let (common, top) =
            (lines.next().map(PathBuf::from).ok_or(Lost)?, lines.next().map(PathBuf::from).ok_or(Lost)?);
        let listed = self.ask(&["config", "--list", "-z", "--show-scope", "--includes"])?.ok_or(Lost)?;
        let mut programs = Programs::of(&top);
        for (key, value) in own_entries(&listed)? {
            programs.key("", &key, &value)?;
        }
        programs.hooks("hooks/", &common.join("hooks"))?;
        let seen = self.linked(&top, &mut programs)?;
        for folder in absorbed(&common, &seen)? {
            self.absorbed(&folder, &mut programs)?;
        }
        Ok(GitConfig::Repository(programs))
    }

    /// No work tree: a folder without a repository, or one inside of a repository's own files, which is not judged.
    fn bare(&self) -> Result<GitConfig, Lost> {
        match self.ask(&["rev-parse", "--git-dir"])? {
            Some(_) => Err(Lost),
            None => Ok(GitConfig::NoRepository),
        }
    }

    /// Adds what makes git run programs in the repositories that lie in links of the work tree, as deep as they go: `git status` looks
    /// into each. What is told of one is what git would see, with `GIT_DIR` set as it sets it. Returns where their files lie.
    fn linked(&self, top: &Path, programs: &mut Programs) -> Result<BTreeSet<PathBuf>, Lost> {
        const OWN: &str = "--git-dir=.git";
        let (mut seen, mut count) = (BTreeSet::new(), 0);
        let mut open = Git { folder: top, ..*self }.links(&[])?;
        while let Some(folder) = open.pop() {
            count += 1;
            if count + open.len() > MAX_REPOSITORIES {
                return Err(Lost);
            }
            let git = Git { folder: &folder, ..*self };
            let asked = [OWN, "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"];
            let Some(folders) = git.ask(&asked)? else { continue };
            let folders = String::from_utf8(folders).map_err(|_| Lost)?;
            let mut lines = folders.lines().map(PathBuf::from);
            let (common, work) = (lines.next().ok_or(Lost)?, lines.next().ok_or(Lost)?);
            // One that keeps its files elsewhere may have links there.
            if !folder.canonicalize().is_ok_and(|folder| folder == work) {
                return Err(Lost);
            }
            let own = folder.join(".git");
            let place = format!("{}: ", own.strip_prefix(top).unwrap_or(&own).display());
            let listed = git.ask(&[OWN, "config", "--list", "-z", "--show-scope", "--includes"])?.ok_or(Lost)?;
            for (key, value) in own_entries(&listed)?.into_iter().filter(|(key, _)| key != "core.worktree") {
                programs.key(&place, &key, &value)?;
            }
            programs.hooks(&format!("{place}hooks/"), &common.join("hooks"))?;
            seen.extend(common.canonicalize());
            open.extend(git.links(&[OWN])?);
        }
        Ok(seen)
    }

    /// The folders of the work tree's links that hold something like a repository.
    fn links(&self, own: &[&str]) -> Result<Vec<PathBuf>, Lost> {
        let asked = [own, &["-c", "core.fsmonitor=false", "ls-files", "--stage", "-z"]].concat();
        let staged = self.ask(&asked)?.ok_or(Lost)?;
        let links = staged.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
        let folders = links.map(|link| {
            let path = link.splitn(2, |byte| *byte == b'\t').nth(1).and_then(|path| std::str::from_utf8(path).ok());
            path.map(|path| self.folder.join(path)).ok_or(Lost)
        });
        let mut folders = folders.collect::<Result<Vec<_>, Lost>>()?;
        folders.retain(|folder| folder.join(".git").symlink_metadata().is_ok());
        Ok(folders)
    }

    /// Adds what the files of an absorbed repository say, which has no work tree now.
    fn absorbed(&self, folder: &Path, programs: &mut Programs) -> Result<(), Lost> {
        let place = format!("{}: ", folder.strip_prefix(&programs.top).unwrap_or(folder).display());
        for name in ["config", "config.worktree"] {
            let file = folder.join(name);
            if !file.exists() {
                continue;
            }
            let file = file.to_str().ok_or(Lost)?;
            let listed = self.ask(&["config", "--file", file, "--list", "-z", "--includes"])?.ok_or(Lost)?;
            let entries = listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
            // Where its files lie is what a repository in another says in any case.
            for (key, value) in entries.filter_map(program).filter(|(key, _)| key != "core.worktree") {
                programs.key(&place, &key, &value)?;
            }
        }
        Ok(programs.hooks(&format!("{place}hooks/"), &folder.join("hooks"))?)
    }

    /// What git prints, or nothing if it fails.
    fn ask(&self, arguments: &[&str]) -> Result<Option<Vec<u8>>, Lost> {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.folder).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|_| Lost)?;
        let stdout = child.stdout.take().ok_or(Lost)?;
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(MAX_BYTES + 1).read_to_end(&mut bytes);
            _ = sender.send(read.map(|_| bytes));
        });
        let answer = answer.recv_timeout(PATIENCE);
        let whole = matches!(&answer, Ok(Ok(bytes)) if bytes.len() as u64 <= MAX_BYTES);
        if !whole {
            _ = child.kill();
        }
        let status = child.wait().map_err(|_| Lost)?;
        match answer {
            Ok(Ok(bytes)) if whole => Ok(status.success().then_some(bytes)),
            _ => Err(Lost),
        }
    }
}

/// The repositories that were absorbed into the files of this one, but for those that were seen.
fn absorbed(common: &Path, seen: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, Lost> {
    let mut found = Vec::new();
    let mut open = vec![common.join("modules")];
    while let Some(folder) = open.pop() {
        if found.len() + open.len() > MAX_REPOSITORIES {
            return Err(Lost);
        }
        if folder.join("HEAD").is_file() && folder.join("config").is_file() {
            open.push(folder.join("modules"));
            found.extend(Some(folder).filter(|folder| !folder.canonicalize().is_ok_and(|real| seen.contains(&real))));
            continue;
        }
        match std::fs::read_dir(&folder) {
            Ok(entries) => open.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return Err(Lost),
        }
    }
    Ok(found)
}

/// What of the repository's own configuration names programs, by key and value, from entries of scope, key and value.
fn own_entries(listed: &[u8]) -> Result<Vec<(String, String)>, Lost> {
    let mut fields = listed.split(|byte| *byte == 0);
    let mut keys = Vec::new();
    while let Some(scope) = fields.next().filter(|scope| !scope.is_empty()) {
        let entry = fields.next().ok_or(Lost)?;
        if !matches!(scope, b"system" | b"global") {
            keys.extend(program(entry));
        }
    }
    Ok(keys)
}

/// The key, in lower case, and the value of an entry (key, line feed, value) if it can make git run a program.
fn program(entry: &[u8]) -> Option<(String, String)> {
    let entry = String::from_utf8_lossy(entry);
    let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
    let key = key.to_lowercase();
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    let off = matches!(value.trim().to_lowercase().as_str(), "" | "false" | "no" | "off" | "0");
    let runs = match (section, name) {
        ("core", "fsmonitor") | ("log", "showsignature") => !off,
        (
            "core",
            "hookspath"
            | "pager"
            | "editor"
            | "sshcommand"
            | "askpass"
            | "gitproxy"
            | "alternaterefscommand"
            | "worktree",
        ) => true,
        ("diff", "external" | "command" | "textconv" | "process") => true,
        // In a repository of its history that may be anybody's.
        ("diff", "submodule") => value.trim() == "diff",
        ("filter" | "lfs", "clean" | "smudge" | "process") | ("lfs", "path") => true,
        // It runs gpg.
        ("format", "pretty") | ("pretty", _) => asks_gpg(value),
        ("merge", "driver") | ("mergetool" | "difftool", "cmd" | "path") => true,
        ("gpg", "program" | "defaultkeycommand") => true,
        ("credential", "helper") => true,
        ("alias" | "include" | "includeif" | "pager" | "protocol" | "browser" | "man" | "sendemail" | "hook", _) => {
            true
        }
        ("sequence", "editor") | ("interactive", "difffilter") | ("help" | "web", "browser") => true,
        ("remote", "uploadpack" | "receivepack" | "vcs" | "promisor" | "partialclonefilter")
        | ("extensions", "partialclone") => true,
        ("uploadpack", "packobjectshook") | ("init", "templatedir") | ("trailer", "command" | "cmd") => true,
        ("submodule", "update") => value.trim_start().starts_with('!'),
        _ => false,
    };
    runs.then(|| (key.clone(), value.to_owned()))
}

/// Whether a format of commits asks for what a signature is worth: `%G?`, or the same with a sign in front.
fn asks_gpg(format: &str) -> bool {
    format.split('%').skip(1).any(|rest| rest.trim_start_matches(['+', '-', ' ']).starts_with('G'))
}

#[cfg(test)]
mod tests {
    use super::{own_entries, program};

    #[track_caller]
    fn check(entry: &str, expected: bool) {
        assert_eq!(program(entry.as_bytes()).is_some(), expected, "{entry}");
    }

    #[test]
    fn keys_that_run_programs() {
        check("core.fsmonitor\n./evil.sh", true);
        check("core.fsmonitor\nfalse", false);
        check("core.fsmonitor", true);
        check("diff.evil.textconv\n./x", true);
        check("diff.a.b.command\n./x", true);
        check("diff.external\n./x", true);
        check("diff.renames\ntrue", false);
        check("filter.evil.clean\n./f.sh", true);
        check("include.path\nx", true);
        check("includeif.gitdir:/x.path\nx", true);
        check("alias.st\nstatus", true);
        check("core.bare\nfalse", false);
        check("user.name\nx\ny", false);
        check("remote.origin.url\nhttps://h/x", false);
        check("remote.origin.promisor\ntrue", true);
        check("remote.origin.partialclonefilter\nblob:none", true);
        check("remote.origin.fetch\n+refs/heads/*:refs/remotes/origin/*", false);
        check("diff.submodule\ndiff", true);
        check("diff.submodule\nlog", false);
        check("format.pretty\n%h %+G?", true);
        check("pretty.mine\n%GS", true);
        check("format.pretty\n%h %s", false);
        check("lfs.extension.x.clean\n./x", true);
        check("lfs.repositoryformatversion\n0", false);
        check("submodule.a.update\n!touch x", true);
        check("submodule.a.active\ntrue", false);
    }

    #[test]
    fn only_the_repository_is_asked() {
        let listed = b"global\0core.pager\nless\0local\0core.fsmonitor\nx\0worktree\0alias.x\ny\0";
        let entries = own_entries(listed).unwrap();
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(entries, [entry("core.fsmonitor", "x"), entry("alias.x", "y")]);
    }
}
