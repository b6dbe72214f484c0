//! Collects the context of a task from its folder: rules, such as AGENTS.md, and facts about the
//! folder and the date.
//!
//! The files are read when a task begins or is resumed. They are read through the workspace, so
//! links that leave it, hidden files and devices cannot be read, as with the tools. Before each
//! later turn only the metadata of the files is compared, and the files are read again if it
//! changed. Rules of a subfolder, and rules that are limited to some paths, are added when a call
//! reads or writes such a path. Rules cannot approve anything.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sabir_agent::{
    ContextChange, ContextFragment, ContextSource, DriverObserver, EnvironmentFacts, FragmentKind,
    ObservedCall, ObserverFuture, Record, RequestContext, ToolRefusal, WorkspaceListing,
};
use sabir_workspace::{EntryKind, ListOptions, StopFlag, Workspace, default_shell};

use crate::config::Config;
use crate::environment::Environment;
use crate::notice::NoticeSink;
use crate::setup::DEFAULT_MODE;

use rule_collector::InstructionCollector;
use touched_paths::{NewPaths, TouchedPaths};
use watched_path::{WatchedPath, WatchedPaths};

mod imports;
mod rule_collector;
mod rule_file;
mod sources;
mod touched_paths;
mod watched_path;

pub use rule_file::{FoundInstructions, InstructionOrigin, InstructionState};

/// The most names in the listing of the workspace.
const NAMES_LISTED: usize = 100;

/// The settings that decide what a model learns about a workspace.
#[derive(Debug, Clone)]
struct ContextSettings {
    workspace: Arc<Workspace>,
    mode: Option<String>,
    instructions: bool,
    sends_environment: bool,
    environment: Arc<Environment>,
    notices: NoticeSink,
    /// The list of skills, which stays as it was when the task began.
    skills: Option<ContextFragment>,
}

/// Watches the instruction files and the facts about the environment while a task works.
#[derive(Debug)]
pub(crate) struct InstructionWatcher {
    settings: ContextSettings,
    last_state: Mutex<WatchState>,
    /// The paths that were touched since the task began.
    touched: Mutex<TouchedPaths>,
}

/// The state of the files at the last check.
#[derive(Debug)]
struct WatchState {
    date: String,
    files: WatchedPaths,
    /// True if there are rules that a touched path can still bring into the requests.
    has_waiting_rules: bool,
    /// The paths that were touched since.
    new_paths: NewPaths,
    /// The listing from the beginning of the task. It is not refreshed: the task itself changes the files.
    listing: Vec<ContextFragment>,
}

/// The fragments of a context, with what decides when they are read again.
struct ReadContext {
    fragments: Vec<ContextFragment>,
    files: Vec<WatchedPath>,
    has_waiting_rules: bool,
}

/// The inputs of a task's context, besides the folder and the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContextNeeds<'a> {
    /// The mode that the task begins in.
    pub(crate) mode: Option<&'a str>,
    /// The rules that the model of a resumed task has received.
    pub(crate) sent_instructions: &'a [String],
    /// The list of skills.
    pub(crate) skills: Option<ContextFragment>,
}

/// Returns the context of a task, and the watcher that looks for changes of it.
pub(crate) fn task_context(
    workspace: &Arc<Workspace>,
    config: &Config,
    needs: &ContextNeeds<'_>,
) -> (RequestContext, Arc<InstructionWatcher>) {
    let keys = &config.limits;
    let workspace = Arc::clone(workspace);
    let mode = needs.mode.map(str::to_owned);
    let instructions = keys.sends_instructions();
    let sends_environment = keys.sends_environment();
    let environment = Arc::clone(&config.environment);
    let date = format_date((environment.clock)());
    let notices = config.notices.clone();
    let wanted = ContextSettings {
        workspace,
        mode,
        instructions,
        sends_environment,
        environment,
        notices,
        skills: needs.skills.clone(),
    };
    // The only read that sends notices: repeated ones would say the same again.
    let touched = TouchedPaths::from_sent_instructions(needs.sent_instructions);
    let ReadContext {
        mut fragments,
        files,
        has_waiting_rules,
    } = wanted.read_context(&date, true, &touched);
    let listing = if sends_environment {
        workspace_listing(&wanted.workspace)
    } else {
        Vec::new()
    };
    fragments.extend(listing.iter().cloned());
    let watch = InstructionWatcher {
        settings: wanted,
        last_state: Mutex::new(WatchState {
            date,
            files: WatchedPaths::new(files),
            has_waiting_rules,
            new_paths: NewPaths::default(),
            listing,
        }),
        touched: Mutex::new(touched),
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

/// Returns the paths of all files of rules that a task in this folder looks for, in the order of the prompt; also those that do not
/// exist.
pub(crate) fn instruction_paths(workspace: &Arc<Workspace>, config: &Config) -> Vec<PathBuf> {
    rule_settings(workspace, config)
        .collect_rules(false, &TouchedPaths::default())
        .watched
        .into_iter()
        .map(|watched| watched.path)
        .collect()
}

/// Returns the rule files that a new task in this folder would find, in the order of the prompt. The rules of subfolders follow; they
/// join the prompt when a call touches their folder.
pub fn find_instructions(workspace: &Arc<Workspace>, config: &Config) -> Vec<FoundInstructions> {
    let settings = rule_settings(workspace, config);
    let mut found = settings.collect_rules(false, &TouchedPaths::default());
    if settings.instructions {
        found.add_waiting_folders(workspace);
    }
    found.rules
}

fn rule_settings(workspace: &Arc<Workspace>, config: &Config) -> ContextSettings {
    ContextSettings {
        workspace: Arc::clone(workspace),
        mode: Some(config.default_mode().unwrap_or(DEFAULT_MODE).to_owned()),
        instructions: config.limits.sends_instructions(),
        sends_environment: false,
        environment: Arc::clone(&config.environment),
        notices: NoticeSink::default(),
        skills: None,
    }
}

/// Returns the paths of the rules that the model of a task received last.
pub(crate) fn sent_instructions<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let mut sent = Vec::new();
    for record in records {
        if let Record::Context(
            ContextChange::Begun { fragments } | ContextChange::Changed { fragments, .. },
        ) = record
        {
            sent = fragments
                .iter()
                .filter(|fragment| fragment.kind == FragmentKind::Instructions)
                .map(|fragment| fragment.name.clone())
                .collect();
        }
    }
    sent
}

impl ContextSettings {
    /// Reads the fragments. The metadata of each file is read before its text, so a change in between is noticed at the next check.
    fn read_context(&self, date: &str, with_notices: bool, touched: &TouchedPaths) -> ReadContext {
        let mut found = self.collect_rules(with_notices, touched);
        let mut files = std::mem::take(&mut found.watched);
        let mut waiting = found.rules.iter();
        let has_waiting_rules = waiting.any(|rule| rule.state == InstructionState::Waiting);
        let mut fragments = found.into_fragments();
        fragments.extend(self.skills.clone());
        if self.sends_environment {
            // Watched like a file of rules: a checkout changes it.
            let head = WatchedPath::new(self.workspace.root().join(".git/HEAD"));
            let branch = head
                .is_present()
                .then(|| current_branch(&self.workspace))
                .flatten();
            files.push(head);
            let shell = default_shell().display().to_string();
            fragments.push(
                EnvironmentFacts {
                    date,
                    shell: &shell,
                    branch: branch.as_deref(),
                }
                .to_fragment(),
            );
        }
        ReadContext {
            fragments,
            files,
            has_waiting_rules,
        }
    }

    /// Collects the rules, in the order of the prompt.
    fn collect_rules(
        &self,
        with_notices: bool,
        touched: &TouchedPaths,
    ) -> InstructionCollector<'_> {
        let notices = with_notices.then_some(&self.notices);
        let mut found = InstructionCollector::new(touched.clone(), notices);
        if self.instructions {
            found.add_user_files(&self.environment);
            found.add_parent_files(&self.workspace);
            found.add_workspace_files(&self.workspace, self.mode.as_deref());
            found.add_touched_folders(&self.workspace);
        }
        found
    }
}

impl InstructionWatcher {
    /// Does the same as [`poll_fragments`](ContextSource::poll_fragments), for the given date.
    fn poll_for_date(&self, date: String) -> Option<Vec<ContextFragment>> {
        let mut seen = self
            .last_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let same_day = seen.date == date || !self.settings.sends_environment;
        // A path in a known folder changes nothing, unless a rule waits for such a path.
        let has_news =
            seen.new_paths.has_folder || seen.new_paths.has_path && seen.has_waiting_rules;
        if same_day && !has_news && !seen.files.have_changed(SystemTime::now()) {
            return None;
        }
        let touched = self
            .touched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let ReadContext {
            mut fragments,
            files,
            has_waiting_rules,
        } = self.settings.read_context(&date, false, &touched);
        seen.files = WatchedPaths::new(files);
        seen.has_waiting_rules = has_waiting_rules;
        seen.new_paths = NewPaths::default();
        seen.date = date;
        fragments.extend(seen.listing.iter().cloned());
        Some(fragments)
    }
}

impl ContextSource for InstructionWatcher {
    fn poll_fragments(&self) -> Option<Vec<ContextFragment>> {
        self.poll_for_date(format_date((self.settings.environment.clock)()))
    }
}

/// Notes the paths of a call before it runs, so that the rules for them are in the next request.
impl DriverObserver for InstructionWatcher {
    fn before_tool<'a>(
        &'a self,
        call: &'a ObservedCall,
    ) -> ObserverFuture<'a, Result<(), ToolRefusal>> {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let new_paths = touched.add_access(&call.access, &self.settings.workspace);
        // Both locks are never held at once: `poll_for_date` takes them in the other order.
        drop(touched);
        let mut state = self
            .last_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.new_paths = state.new_paths.or(new_paths);
        drop(state);
        Box::pin(std::future::ready(Ok(())))
    }
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

    use super::*;

    #[test]
    fn changed_files_are_read_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("AGENTS.md", "one");
        let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
        let config = Config::default();
        let (context, watch) = task_context(
            &workspace,
            &config,
            &ContextNeeds {
                mode: Some("code"),
                ..ContextNeeds::default()
            },
        );
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
                    .poll_for_date(today())
                    .map(|fragments| told(&fragments))
                    .as_deref(),
                expected
            );
            assert_eq!(watch.poll_for_date(today()), None, "once");
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
        let next = watch.poll_for_date("2999-01-01 (UTC)".to_owned()).unwrap();
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
