//! What a model is told of the folder it works in: the files in which users say how to work, and facts of the place and the day.
//!
//! Read once, when a task begins or is resumed, through the workspace: a link that leaves it, a hidden file and a device are as
//! unreadable as to the tools. Nothing here approves anything. Files that such a file imports (`@path`) are not read.

use std::path::Path;
use std::time::SystemTime;

use sabir_agent::{Context, Fragment, InstructionFile, Listing, Place};
use sabir_workspace::{EntryKind, ListOptions, Stop, WorkPath, Workspace, WorkspaceError, default_shell};

use crate::config::{self, Config};
use crate::print;

/// The files and folders of instructions in a workspace, in the order in which they are told. Of a folder, its Markdown and text files.
const NAMES: [&str; 6] = ["AGENTS.md", "CLAUDE.md", ".clinerules", ".roo/rules", ".roorules", ".cursorrules"];
/// The most files of one such folder.
const FILES: usize = 50;
/// The most names of a listing.
const NAMES_LISTED: usize = 100;

/// The instruction files that were found, with the bytes that there is still room for.
struct Found {
    fragments: Vec<Fragment>,
    room: usize,
}

/// The context of a task in that workspace, in that mode.
pub(crate) fn context(workspace: &Workspace, config: &Config, mode: Option<&str>) -> Context {
    let keys = &config.limits;
    let mut found = Found { fragments: Vec::new(), room: InstructionFile::CAP_OF_ALL };
    if keys.instructions.unwrap_or(true) {
        found.own();
        let of_mode = mode.map(|mode| format!(".roo/rules-{mode}"));
        for name in NAMES.into_iter().chain(of_mode.as_deref()) {
            found.look(workspace, name);
        }
    }
    let mut fragments = found.fragments;
    if keys.place.unwrap_or(true) {
        fragments.extend(place(workspace));
    }
    let window = keys.context_window;
    Context { fragments, window, threshold: keys.compact_at.unwrap_or(sabir_agent::THRESHOLD) }
}

impl Found {
    /// The user's own file, beside the configuration.
    fn own(&mut self) {
        let Some(path) = config::file(None).map(|file| file.with_file_name("AGENTS.md")) else { return };
        if !path.is_file() {
            return;
        }
        match beginning(&path) {
            Ok((bytes, size)) => self.take(&path.display().to_string(), &bytes, size),
            Err(error) => tell(&path.display().to_string(), &error.to_string()),
        }
    }

    /// A file of the workspace, or the files of a folder.
    fn look(&mut self, workspace: &Workspace, name: &str) {
        let paths = workspace.path(name).and_then(|path| match workspace.metadata(&path)?.kind {
            EntryKind::Folder => files(workspace, &path),
            _ => Ok(vec![path]),
        });
        match paths {
            Ok(paths) => paths.iter().for_each(|path| self.read(workspace, path)),
            Err(WorkspaceError::Missing { .. }) => {}
            Err(error) => tell(name, &error.to_string()),
        }
    }

    fn read(&mut self, workspace: &Workspace, path: &WorkPath) {
        match workspace.beginning(path, InstructionFile::CAP) {
            Ok((bytes, size)) => self.take(&path.to_string(), &bytes, size),
            Err(error) => tell(&path.to_string(), &error.to_string()),
        }
    }

    /// Takes over what was read. What an earlier file says as well (a link to it, say) is not told twice.
    fn take(&mut self, path: &str, bytes: &[u8], size: u64) {
        let text = String::from_utf8_lossy(bytes);
        let Some(fragment) = (InstructionFile { path, text: &text, size }).fragment(self.room) else { return };
        if self.fragments.iter().any(|known| known.text == fragment.text) {
            return;
        }
        if fragment.left_out > 0 {
            tell(path, &format!("it is longer than a model is told: {} bytes of it are left out", fragment.left_out));
        }
        if fragment.text.lines().any(|line| line.starts_with('@')) {
            tell(path, "it imports other files (`@…`), which are not read");
        }
        self.room = self.room.saturating_sub(fragment.text.len());
        self.fragments.push(fragment);
    }
}

fn tell(path: &str, what: &str) {
    print::err(&print::visible(&format!("sabir: the instructions in {path}: {what}\n")));
}

fn beginning(path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let (size, mut bytes) = (file.metadata()?.len(), Vec::new());
    file.take(u64::try_from(InstructionFile::CAP).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok((bytes, size))
}

fn files(workspace: &Workspace, folder: &WorkPath) -> Result<Vec<WorkPath>, WorkspaceError> {
    let options = ListOptions { recursive: false, max_entries: FILES, stop: Stop::default() };
    let entries = workspace.list(folder, &options)?.entries.into_iter();
    let is_text = |path: &WorkPath| {
        let extension = path.as_path().extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("md" | "txt" | "mdc"))
    };
    Ok(entries.filter(|entry| entry.kind == EntryKind::File).map(|entry| entry.path).filter(is_text).collect())
}

/// The facts: what cannot be found out is left out.
fn place(workspace: &Workspace) -> Vec<Fragment> {
    let shell = default_shell().display().to_string();
    let branch = branch(workspace);
    let date = date(SystemTime::now());
    let facts = Place { date: &date, shell: &shell, branch: branch.as_deref() };
    let options = ListOptions { recursive: false, max_entries: NAMES_LISTED, stop: Stop::default() };
    let listing = workspace.path(".").and_then(|top| workspace.list(&top, &options));
    let names: Vec<_> = listing
        .map(|listing| listing.entries)
        .unwrap_or_default()
        .iter()
        .map(|entry| format!("{}{}", entry.path, if entry.kind == EntryKind::Folder { "/" } else { "" }))
        .collect();
    std::iter::once(facts.fragment()).chain(Listing { names: &names }.fragment()).collect()
}

/// The branch that git would name, if the folder is the top of a repository.
fn branch(workspace: &Workspace) -> Option<String> {
    let path = workspace.path(".git/HEAD").ok()?;
    let (bytes, _) = workspace.beginning(&path, 256).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let name = text.trim_end().strip_prefix("ref: refs/heads/")?;
    (!name.chars().any(char::is_control)).then(|| name.to_owned())
}

/// The date in UTC, as `2026-11-22`.
fn date(now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let moment = sabir_wire::moment(seconds);
    let (date, _) = moment.split_once('T').unwrap_or((&moment, ""));
    format!("{date} (UTC)")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_have_their_dates() {
        let check = |seconds: u64, expected: &str| {
            let date = date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(date, format!("{expected} (UTC)"));
        };
        check(0, "1970-01-01");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_767_225_599, "2025-12-31");
        check(1_795_305_600, "2026-11-22");
    }
}
