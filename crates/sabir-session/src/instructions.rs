//! Collects the context of a task from its folder: instruction files, such as AGENTS.md, and facts about the place and the date.
//!
//! The files are read when a task begins or is resumed. They are read through the workspace, so a link that leaves it, a hidden file
//! and a device are as unreadable as for the tools. Before each later turn only the metadata of the files is compared, and the files
//! are read again if it changed. Instructions cannot approve anything. Files that they import (`@path`) are not read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sabir_agent::{
    ContextFragment, ContextSource, EnvironmentFacts, InstructionFile, RequestContext,
    WorkspaceListing,
};
use sabir_workspace::{
    EntryKind, ListOptions, StopFlag, WorkPath, Workspace, WorkspaceError, default_shell,
};

use crate::config::Config;
use crate::environment::Environment;
use crate::notice::{NoticeSink, NoticeTopic};

/// The instruction files and folders in a workspace, in the order of the prompt. A folder contributes its Markdown and text files.
pub(crate) const INSTRUCTION_NAMES: [&str; 6] = [
    "AGENTS.md",
    "CLAUDE.md",
    ".clinerules",
    ".roo/rules",
    ".roorules",
    ".cursorrules",
];
/// The instruction files that are read in the folders above the workspace, up to the top of its repository.
const PARENT_NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The most files that one folder of instructions contributes.
const MAX_FOLDER_FILES: usize = 50;
/// The most names in the listing of the workspace.
const NAMES_LISTED: usize = 100;

/// Collects instruction files until the total size is reached.
struct InstructionCollector<'a> {
    fragments: Vec<ContextFragment>,
    remaining_bytes: usize,
    /// Receives a notice about each file that is cut or unreadable; `None` for a repeated read.
    notices: Option<&'a NoticeSink>,
    /// All paths that were looked for, also those that do not exist.
    paths: Vec<PathBuf>,
}

/// The settings that decide what a model learns about a workspace.
#[derive(Debug, Clone)]
struct ContextSettings {
    workspace: Arc<Workspace>,
    mode: Option<String>,
    instructions: bool,
    place: bool,
    environment: Arc<Environment>,
    notices: NoticeSink,
}

/// Watches the instruction files and the facts about the place while a task works.
#[derive(Debug)]
pub(crate) struct InstructionWatcher {
    settings: ContextSettings,
    last_state: Mutex<WatchState>,
}

/// The state of the files at the last check.
#[derive(Debug)]
struct WatchState {
    date: String,
    files: Vec<(PathBuf, Option<FileStamp>)>,
    /// The listing from the beginning of the task. It is not refreshed: the task itself changes the files.
    listing: Vec<ContextFragment>,
}

/// The metadata that changes with a file: its inode, its size, and the seconds and nanoseconds of its last status change.
type FileStamp = (u64, u64, i64, i64);

/// Returns the context of a task, and the watcher that looks for changes of it.
pub(crate) fn task_context(
    workspace: &Arc<Workspace>,
    config: &Config,
    mode: Option<&str>,
) -> (RequestContext, Arc<InstructionWatcher>) {
    let keys = &config.limits;
    let workspace = Arc::clone(workspace);
    let mode = mode.map(str::to_owned);
    let instructions = keys.sends_instructions();
    let place = keys.sends_place();
    let environment = Arc::clone(&config.environment);
    let date = format_date((environment.clock)());
    let notices = config.notices.clone();
    let wanted = ContextSettings {
        workspace,
        mode,
        instructions,
        place,
        environment,
        notices,
    };
    // The only read that sends notices: repeated ones would say the same again.
    let (mut fragments, files) = wanted.read_stamped(&date, true);
    let listing = if place {
        workspace_listing(&wanted.workspace)
    } else {
        Vec::new()
    };
    fragments.extend(listing.iter().cloned());
    let watch = InstructionWatcher {
        settings: wanted,
        last_state: Mutex::new(WatchState {
            date,
            files,
            listing,
        }),
    };
    let window = keys.context_window;
    let threshold = keys.compaction_threshold();
    (
        RequestContext {
            fragments,
            window,
            threshold,
        },
        Arc::new(watch),
    )
}

/// Returns the paths of all instruction files that a task in this folder looks for, in the order of the prompt; also those that do not
/// exist.
pub(crate) fn instruction_paths(workspace: &Arc<Workspace>, config: &Config) -> Vec<PathBuf> {
    let settings = ContextSettings {
        workspace: Arc::clone(workspace),
        mode: config.usual_mode().map(str::to_owned),
        instructions: config.limits.sends_instructions(),
        place: false,
        environment: Arc::clone(&config.environment),
        notices: NoticeSink::default(),
    };
    settings.read_fragments("", false).1
}

impl ContextSettings {
    /// Returns the fragments, and the stamps of their files. The stamps are taken before the files are read, so a change in between
    /// is noticed at the next check.
    fn read_stamped(
        &self,
        date: &str,
        tells: bool,
    ) -> (Vec<ContextFragment>, Vec<(PathBuf, Option<FileStamp>)>) {
        // Reads once for the paths alone, because only the folder of rules shows its files.
        let (_, paths) = self.read_fragments(date, false);
        let files = paths
            .into_iter()
            .map(|path| (file_stamp(&path), path))
            .map(|(stamp, path)| (path, stamp))
            .collect();
        (self.read_fragments(date, tells).0, files)
    }

    /// Returns the fragments, and all paths that were looked for.
    fn read_fragments(&self, date: &str, tells: bool) -> (Vec<ContextFragment>, Vec<PathBuf>) {
        let room = InstructionFile::MAX_TOTAL_BYTES;
        let notices = tells.then_some(&self.notices);
        let mut found = InstructionCollector {
            fragments: Vec::new(),
            remaining_bytes: room,
            notices,
            paths: Vec::new(),
        };
        if self.instructions {
            found.add_user_file(&self.environment);
            found.add_parent_files(&self.workspace);
            let of_mode = self.mode.as_ref().map(|mode| format!(".roo/rules-{mode}"));
            for name in INSTRUCTION_NAMES.into_iter().chain(of_mode.as_deref()) {
                found.add_workspace_entry(&self.workspace, name);
            }
        }
        let InstructionCollector {
            mut fragments,
            mut paths,
            ..
        } = found;
        if self.place {
            let shell = default_shell().display().to_string();
            let branch = current_branch(&self.workspace);
            fragments.push(
                EnvironmentFacts {
                    date,
                    shell: &shell,
                    branch: branch.as_deref(),
                }
                .to_fragment(),
            );
            // Watched like a file of instructions: a checkout changes it.
            paths.push(self.workspace.root().join(".git/HEAD"));
        }
        (fragments, paths)
    }
}

impl InstructionWatcher {
    /// Does the same as [`poll_fragments`](ContextSource::poll_fragments), for the given date.
    fn poll_on(&self, date: String) -> Option<Vec<ContextFragment>> {
        let mut seen = self
            .last_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let same_day = seen.date == date || !self.settings.place;
        if same_day
            && seen
                .files
                .iter()
                .all(|(path, known)| file_stamp(path) == *known)
        {
            return None;
        }
        let (mut fragments, files) = self.settings.read_stamped(&date, false);
        seen.files = files;
        seen.date = date;
        fragments.extend(seen.listing.iter().cloned());
        Some(fragments)
    }
}

impl ContextSource for InstructionWatcher {
    fn poll_fragments(&self) -> Option<Vec<ContextFragment>> {
        self.poll_on(format_date((self.settings.environment.clock)()))
    }
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let known = std::fs::metadata(path).ok()?;
    Some((known.ino(), known.size(), known.ctime(), known.ctime_nsec()))
}

impl InstructionCollector<'_> {
    /// Adds the user's own file, which is beside the configuration.
    fn add_user_file(&mut self, environment: &Environment) {
        let Some(path) = environment
            .config_file(None)
            .map(|file| file.with_file_name("AGENTS.md"))
        else {
            return;
        };
        self.paths.push(path.clone());
        // The user's own file is usually missing, which is no problem.
        if !path.is_file() {
            return;
        }
        match read_beginning(&path) {
            Ok((bytes, size)) => self.add_text(&path.display().to_string(), &bytes, size),
            Err(error) => self.report_problem(&path.display().to_string(), &error.to_string()),
        }
    }

    /// Adds the files of the folders above the workspace, from the top of its repository down, so that the nearest comes last.
    fn add_parent_files(&mut self, workspace: &Workspace) {
        let Some(top) = enclosing_repository(workspace.root()) else {
            return;
        };
        let Ok(below) = workspace.root().strip_prefix(&top) else {
            return;
        };
        if !have_one_owner(&top, workspace.root()) {
            let problem = "another user owns the repository, so they are not read";
            self.report_problem(&top.display().to_string(), problem);
            return;
        }
        // Through a workspace of its own: a link that leaves the repository is not followed.
        let repository = match Workspace::open(&top) {
            Ok(repository) => repository,
            Err(error) => {
                self.report_problem(&top.display().to_string(), &error.to_string());
                return;
            }
        };
        let depth = below.components().count();
        let mut folder = PathBuf::new();
        for (level, next) in below.components().enumerate() {
            for name in PARENT_NAMES {
                let path = folder.join(name);
                self.paths.push(top.join(&path));
                let shown = "../".repeat(depth - level) + name;
                let path = repository.parse_path(&path.to_string_lossy());
                match path.and_then(|path| repository.read_start(&path, InstructionFile::MAX_BYTES))
                {
                    Ok((bytes, size)) => self.add_text(&shown, &bytes, size),
                    Err(WorkspaceError::Missing { .. }) => {}
                    Err(error) => self.report_problem(&shown, &error.to_string()),
                }
            }
            folder.push(next);
        }
    }

    /// Adds a file of the workspace, or the files of a folder.
    fn add_workspace_entry(&mut self, workspace: &Workspace, name: &str) {
        self.paths.push(workspace.root().join(name));
        let paths =
            workspace
                .parse_path(name)
                .and_then(|path| match workspace.metadata(&path)?.kind {
                    EntryKind::Folder => rule_files(workspace, &path),
                    _ => Ok(vec![path]),
                });
        match paths {
            Ok(paths) => paths.iter().for_each(|path| self.add_file(workspace, path)),
            // Its path was noted above, so that the file is read when it appears.
            Err(WorkspaceError::Missing { .. }) => {}
            Err(error) => self.report_problem(name, &error.to_string()),
        }
    }

    fn add_file(&mut self, workspace: &Workspace, path: &WorkPath) {
        self.paths.push(workspace.root().join(path.as_path()));
        match workspace.read_start(path, InstructionFile::MAX_BYTES) {
            Ok((bytes, size)) => self.add_text(&path.to_string(), &bytes, size),
            Err(error) => self.report_problem(&path.to_string(), &error.to_string()),
        }
    }

    /// Adds the text of a file. A file with the same text as an earlier one, such as a link to it, is skipped.
    fn add_text(&mut self, path: &str, bytes: &[u8], size: u64) {
        let text = String::from_utf8_lossy(bytes);
        let Some(fragment) = (InstructionFile {
            path,
            text: &text,
            size,
        })
        .to_fragment(self.remaining_bytes) else {
            return;
        };
        // Links such as CLAUDE.md to AGENTS.md are common, and would double the prompt.
        if self
            .fragments
            .iter()
            .any(|known| known.text == fragment.text)
        {
            return;
        }
        if fragment.left_out > 0 {
            self.report_problem(
                path,
                &format!(
                    "it is too long: {} bytes of it are left out",
                    fragment.left_out
                ),
            );
        }
        if fragment.text.lines().any(|line| line.starts_with('@')) {
            self.report_problem(path, "it imports other files (`@…`), which are not read");
        }
        self.remaining_bytes = self.remaining_bytes.saturating_sub(fragment.text.len());
        self.fragments.push(fragment);
    }

    fn report_problem(&self, path: &str, what: &str) {
        if let Some(notices) = self.notices {
            notices.send(
                NoticeTopic::Instructions,
                format!("the instructions in {path}: {what}"),
            );
        }
    }
}

/// Returns the nearest folder above `folder` that is the top of a git repository; `None` if `folder` is one itself, or in none.
fn enclosing_repository(folder: &Path) -> Option<PathBuf> {
    let is_top = |folder: &Path| folder.join(".git").symlink_metadata().is_ok();
    if is_top(folder) {
        return None;
    }
    let mut above = folder.ancestors().skip(1);
    above.find(|above| is_top(above)).map(Path::to_path_buf)
}

/// Returns true if one user owns both folders. Anybody can create a repository in a shared folder such as `/tmp`, which must not
/// instruct the tasks of others below it.
fn have_one_owner(first: &Path, second: &Path) -> bool {
    let owner = |folder: &Path| folder.symlink_metadata().ok().map(|known| known.uid());
    owner(first).is_some() && owner(first) == owner(second)
}

fn read_beginning(path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(u64::try_from(InstructionFile::MAX_BYTES).unwrap_or(u64::MAX))
        .read_to_end(&mut bytes)?;
    Ok((bytes, size))
}

fn rule_files(workspace: &Workspace, folder: &WorkPath) -> Result<Vec<WorkPath>, WorkspaceError> {
    let options = ListOptions {
        recursive: false,
        max_entries: MAX_FOLDER_FILES,
        stop: StopFlag::default(),
    };
    let entries = workspace.list_folder(folder, &options)?.entries.into_iter();
    let is_text = |path: &WorkPath| {
        let extension = path
            .as_path()
            .extension()
            .and_then(|extension| extension.to_str());
        matches!(extension, Some("md" | "txt" | "mdc"))
    };
    Ok(entries
        .filter(|entry| entry.kind == EntryKind::File)
        .map(|entry| entry.path)
        .filter(is_text)
        .collect())
}

/// Returns the listing of the top of the workspace, or nothing if it cannot be read.
fn workspace_listing(workspace: &Workspace) -> Vec<ContextFragment> {
    let options = ListOptions {
        recursive: false,
        max_entries: NAMES_LISTED,
        stop: StopFlag::default(),
    };
    let listing = workspace
        .parse_path(".")
        .and_then(|top| workspace.list_folder(&top, &options));
    let names: Vec<_> = listing
        .map(|listing| listing.entries)
        .unwrap_or_default()
        .iter()
        .map(|entry| {
            format!(
                "{}{}",
                entry.path,
                if entry.kind == EntryKind::Folder {
                    "/"
                } else {
                    ""
                }
            )
        })
        .collect();
    WorkspaceListing { names: &names }
        .to_fragment()
        .into_iter()
        .collect()
}

/// Returns the current git branch, if the folder is the top of a repository. Reading `HEAD` is faster than running git, which might
/// also run programs that the repository names.
fn current_branch(workspace: &Workspace) -> Option<String> {
    let path = workspace.parse_path(".git/HEAD").ok()?;
    let (bytes, _) = workspace.read_start(&path, 256).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let name = text.trim_end().strip_prefix("ref: refs/heads/")?;
    (!name.chars().any(char::is_control)).then(|| name.to_owned())
}

/// Formats the date in UTC, as `2026-11-22 (UTC)`.
fn format_date(now: SystemTime) -> String {
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let moment = sabir_wire::format_timestamp(seconds);
    let (date, _) = moment.split_once('T').unwrap_or((&moment, ""));
    format!("{date} (UTC)")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sabir_agent::FragmentKind;

    use super::*;

    #[test]
    fn changed_files_are_read_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("AGENTS.md", "one");
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let config = Config::default();
        let (context, watch) = task_context(&workspace, &config, Some("code"));
        let today = || watch.last_state.lock().unwrap().date.clone();
        let told = |fragments: &[ContextFragment]| {
            let files = fragments
                .iter()
                .filter(|one| one.kind == FragmentKind::Instructions);
            let own = files.filter(|one| !one.name.starts_with('/'));
            own.map(|one| one.text.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(told(&context.fragments), "one");
        let check = |expected: Option<&str>| {
            assert_eq!(
                watch
                    .poll_on(today())
                    .map(|fragments| told(&fragments))
                    .as_deref(),
                expected
            );
            assert_eq!(watch.poll_on(today()), None, "once");
        };
        check(None);
        write("other.txt", "x");
        check(None);
        write("AGENTS.md", "another");
        check(Some("another"));
        write("CLAUDE.md", "new");
        check(Some("another new"));
        std::fs::create_dir(folder.path().join(".clinerules")).unwrap();
        write(".clinerules/a.md", "rule");
        check(Some("another new rule"));
        write(".clinerules/a.md", "rules");
        check(Some("another new rules"));
        std::fs::remove_file(folder.path().join("AGENTS.md")).unwrap();
        check(Some("new rules"));
        let next = watch.poll_on("2999-01-01 (UTC)".to_owned()).unwrap();
        assert!(
            next.iter().any(|one| one.text.contains("2999-01-01")) && told(&next) == "new rules"
        );
    }

    #[test]
    fn dates_are_formatted_in_utc() {
        let check = |seconds: u64, expected: &str| {
            let date = format_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(date, format!("{expected} (UTC)"));
        };
        check(0, "1970-01-01");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_767_225_599, "2025-12-31");
        check(1_795_305_600, "2026-11-22");
    }
}
