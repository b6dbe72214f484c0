//! Collects the files of rules in the order of the prompt, until the total size is reached.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sabir_agent::{ContextFragment, InstructionFile};
use sabir_workspace::{EntryKind, ListOptions, StopFlag, WorkPath, Workspace, WorkspaceError};

use super::imports::find_imports;
use super::rule_file::{FoundInstructions, InstructionOrigin, InstructionState};
use super::sources::{
    FOLDER_SOURCES, FOREIGN_FOLDERS, HOME_SOURCES, InstructionHeader, InstructionSource, OVERRIDE,
    RULE_EXTENSIONS, WORKSPACE_SOURCES, mode_sources,
};
use super::touched_paths::TouchedPaths;
use super::watched_path::WatchedPath;
use crate::conventions::folder_reader::{
    ConventionError, TextStart, list_text_files, read_named_text, read_text_start,
};
use crate::conventions::front_matter::FrontMatter;
use crate::conventions::path_condition::PathCondition;
use crate::environment::Environment;
use crate::notice::{NoticeSink, NoticeTopic};

/// The most files that one folder of rules contributes.
const MAX_FOLDER_FILES: usize = 50;
/// The most levels of imports below a file, and the most imported files in all.
const MAX_IMPORT_DEPTH: usize = 5;
const MAX_IMPORTED_FILES: usize = 50;
/// The most names that are looked at to find rules in the folders below.
const MAX_SEARCHED_NAMES: usize = 5000;
/// The most bytes of the description of a rule, and of all of them.
const MAX_DESCRIPTION_BYTES: usize = 300;
const MAX_OFFER_BYTES: usize = 4096;
/// The name of the list of rules that the model reads itself.
const OFFER_NAME: &str = "the rules of this folder";

/// Collects files of rules until the total size is reached.
pub(super) struct InstructionCollector<'a> {
    fragments: Vec<ContextFragment>,
    remaining_bytes: usize,
    /// Receives a notice about each file that is cut or unreadable; `None` for a repeated read.
    notices: Option<&'a NoticeSink>,
    touched: TouchedPaths,
    /// The files that were read, by their real paths.
    seen: BTreeSet<PathBuf>,
    imported_files: usize,
    /// The lines about the rules that the model reads when they apply.
    offers: String,
    /// All paths that were looked for, also those that do not exist.
    pub(super) watched: Vec<WatchedPath>,
    /// All files that were found.
    pub(super) rules: Vec<FoundInstructions>,
}

/// A folder with rules, and how its files are named in the prompt.
#[derive(Clone, Copy)]
struct RuleFolder<'a> {
    workspace: &'a Workspace,
    origin: InstructionOrigin,
    naming: FileNaming<'a>,
}

/// The way in which files of a rule folder are named.
#[derive(Clone, Copy)]
enum FileNaming<'a> {
    /// Relative to the folder itself.
    Relative,
    /// Relative to this folder below it.
    RelativeTo(&'a Path),
    /// By the whole path.
    Absolute,
}

/// A file whose text is about to be added.
struct FoundRule<'a> {
    name: String,
    origin: InstructionOrigin,
    imported_by: Option<&'a str>,
    style: InstructionHeader,
}

impl RuleFolder<'_> {
    fn display_name(&self, path: &WorkPath) -> String {
        match self.naming {
            FileNaming::Relative => path.to_string(),
            FileNaming::RelativeTo(folder) => relative_name(path.as_path(), folder),
            FileNaming::Absolute => self
                .workspace
                .root()
                .join(path.as_path())
                .display()
                .to_string(),
        }
    }
}

impl<'a> InstructionCollector<'a> {
    pub(super) fn new(touched: TouchedPaths, notices: Option<&'a NoticeSink>) -> Self {
        Self {
            fragments: Vec::new(),
            remaining_bytes: InstructionFile::MAX_TOTAL_BYTES,
            notices,
            touched,
            seen: BTreeSet::new(),
            imported_files: 0,
            offers: String::new(),
            watched: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Returns the fragments, with the list of the rules that the model reads when they apply.
    pub(super) fn into_fragments(mut self) -> Vec<ContextFragment> {
        if !self.offers.is_empty() {
            let text = format!(
                "Read these with read_file when they apply to what you do:\n{}",
                self.offers
            );
            let offer = InstructionFile {
                path: OFFER_NAME,
                text: &text,
                size: text.len() as u64,
            };
            self.fragments
                .extend(offer.to_fragment(self.remaining_bytes.max(text.len())));
        }
        self.fragments
    }

    /// Adds the user's own file, which is beside the configuration; without one, those that the user has for other programs.
    pub(super) fn add_user_files(&mut self, environment: &Environment) {
        let own = environment
            .config_file(None)
            .map(|file| file.with_file_name("AGENTS.md"));
        if let Some(path) = own {
            // The user's own file is usually missing, which is not a problem.
            if self.watch_path(path.clone()) && path.is_file() {
                self.add_user_file(&path, InstructionHeader::Importing);
                return;
            }
        }
        let Some(home) = environment.home_folder.as_deref() else {
            return;
        };
        for source in HOME_SOURCES {
            let path = home.join(source.path);
            if !self.watch_path(path.clone()) {
                continue;
            }
            if path.is_dir() {
                self.add_user_folder(&path, source.style);
            } else if path.is_file() {
                self.add_user_file(&path, source.style);
            }
        }
    }

    /// Adds a file of the user. It may be a link, since many keep such files elsewhere; what it imports stays in its folder.
    fn add_user_file(&mut self, path: &Path, style: InstructionHeader) {
        let name = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new("/"));
        let found = FoundRule {
            name: name.clone(),
            origin: InstructionOrigin::User,
            imported_by: None,
            style,
        };
        let read = match read_user_file(path) {
            Ok(read) => read,
            Err(error) => return self.refuse(&found, 0, &error.to_string()),
        };
        self.seen.insert(path.to_path_buf());
        self.add_text(&found, &read);
        // The folder of the link, not that of its target: this is where the user put the file.
        let Ok(workspace) = Workspace::open(folder) else {
            return;
        };
        let rule_folder = RuleFolder {
            workspace: &workspace,
            origin: InstructionOrigin::User,
            naming: FileNaming::Absolute,
        };
        if style == InstructionHeader::Importing {
            let own_path = path
                .file_name()
                .map(Path::new)
                .and_then(WorkPath::from_inside);
            let own_path = own_path.unwrap_or_else(WorkPath::root);
            self.add_imports(rule_folder, &own_path, &name, &read.text, 1);
        }
    }

    fn add_user_folder(&mut self, path: &Path, style: InstructionHeader) {
        let Ok(workspace) = Workspace::open(path) else {
            return;
        };
        let rule_folder = RuleFolder {
            workspace: &workspace,
            origin: InstructionOrigin::User,
            naming: FileNaming::Absolute,
        };
        self.add_folder(rule_folder, &WorkPath::root(), style);
    }

    /// Adds the files of the folders above the workspace, from the top of its repository down, so that the nearest comes last.
    pub(super) fn add_parent_files(&mut self, workspace: &Workspace) {
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
        let rule_folder = RuleFolder {
            workspace: &repository,
            origin: InstructionOrigin::Above,
            naming: FileNaming::RelativeTo(below),
        };
        let mut folder = PathBuf::new();
        for next in below.components() {
            self.add_folder_sources(rule_folder, &folder);
            folder.push(next);
        }
    }

    /// Adds the rules of the workspace, and those for the mode.
    pub(super) fn add_workspace_files(&mut self, workspace: &Workspace, mode: Option<&str>) {
        let rule_folder = workspace_rules(workspace, InstructionOrigin::Workspace);
        for source in WORKSPACE_SOURCES {
            self.add_source(rule_folder, source);
        }
        // A mode of the repository may have any name; in a path only a plain one counts.
        let is_plain = |mode: &&str| {
            mode.chars()
                .all(|c| c.is_alphanumeric() || "-_".contains(c))
        };
        for path in mode
            .filter(is_plain)
            .map(mode_sources)
            .into_iter()
            .flatten()
        {
            self.add_entry(rule_folder, &path, InstructionHeader::Plain);
        }
    }

    /// Adds the rules of the folders below the workspace that were touched.
    pub(super) fn add_touched_folders(&mut self, workspace: &Workspace) {
        let rule_folder = workspace_rules(workspace, InstructionOrigin::Nested);
        let folders: Vec<PathBuf> = self.touched.folders().map(PathBuf::from).collect();
        for folder in folders {
            self.add_folder_sources(rule_folder, &folder);
        }
    }

    /// Adds the rules of all folders below as waiting, without their texts.
    pub(super) fn add_waiting_folders(&mut self, workspace: &Workspace) {
        let options = ListOptions {
            recursive: true,
            max_entries: MAX_SEARCHED_NAMES,
            stop: StopFlag::default(),
        };
        let listing = workspace.list_folder(&WorkPath::root(), &options);
        for entry in listing.map(|all| all.entries).unwrap_or_default() {
            let path = entry.path.as_path();
            let name = path.file_name().and_then(|name| name.to_str());
            let is_rule =
                name.is_some_and(|name| FOLDER_SOURCES.contains(&name) || name == OVERRIDE);
            let is_foreign = path.components().any(|part| {
                let name = part.as_os_str().to_string_lossy();
                FOREIGN_FOLDERS.contains(&&*name) || name.starts_with('.')
            });
            // Those at the top are in the report already.
            let is_nested = path.components().count() > 1;
            if !is_rule || is_foreign || !is_nested || entry.kind != EntryKind::File {
                continue;
            }
            let bytes = workspace
                .metadata(&entry.path)
                .map_or(0, |found| found.size_bytes);
            self.rules.push(FoundInstructions {
                path: entry.path.to_string(),
                origin: InstructionOrigin::Nested,
                imported_by: None,
                paths: Vec::new(),
                description: None,
                bytes,
                sent_bytes: 0,
                state: InstructionState::Waiting,
            });
        }
    }

    /// Adds the files that count in every folder.
    fn add_folder_sources(&mut self, rule_folder: RuleFolder<'_>, folder: &Path) {
        let is_replaced = self.has_override(rule_folder, folder);
        for name in FOLDER_SOURCES {
            let name = if name == "AGENTS.md" && is_replaced {
                OVERRIDE
            } else {
                name
            };
            let path = folder.join(name);
            self.add_entry(
                rule_folder,
                &path.to_string_lossy(),
                InstructionHeader::Importing,
            );
        }
    }

    /// Returns true if a folder has a file that replaces its `AGENTS.md`.
    fn has_override(&mut self, rule_folder: RuleFolder<'_>, folder: &Path) -> bool {
        let path = folder.join(OVERRIDE);
        if !self.watch_path(rule_folder.workspace.root().join(&path)) {
            return false;
        }
        // A replacement that cannot be read still replaces: otherwise a broken link would bring the
        // replaced file back.
        let path = rule_folder.workspace.parse_path(&path.to_string_lossy());
        path.is_ok_and(|path| rule_folder.workspace.exists(&path).unwrap_or(true))
    }

    /// Watches a path, and returns true if it exists. A broken link exists.
    ///
    /// Most folders of rules are missing, and a lookup through the workspace costs twenty system calls.
    fn watch_path(&mut self, path: PathBuf) -> bool {
        let watched = WatchedPath::new(path);
        let exists = !watched.is_absent();
        self.watched.push(watched);
        exists
    }

    fn add_source(&mut self, rule_folder: RuleFolder<'_>, source: InstructionSource) {
        let mut path = source.path;
        if path == "AGENTS.md" && self.has_override(rule_folder, Path::new("")) {
            path = OVERRIDE;
        }
        self.add_entry(rule_folder, path, source.style);
    }

    /// Adds a file, or the files of a folder.
    fn add_entry(&mut self, rule_folder: RuleFolder<'_>, name: &str, style: InstructionHeader) {
        // Watched also if it is missing, so that the file is read when it appears.
        if !self.watch_path(rule_folder.workspace.root().join(name)) {
            return;
        }
        let found = rule_folder
            .workspace
            .parse_path(name)
            .and_then(|path| Ok((rule_folder.workspace.metadata(&path)?.kind, path)));
        match found {
            Ok((EntryKind::Folder, path)) => self.add_folder(rule_folder, &path, style),
            Ok((_, path)) => self.add_file(rule_folder, &path, style),
            // It went away meanwhile.
            Err(WorkspaceError::Missing { .. } | WorkspaceError::NotAFolder { .. }) => {}
            Err(error) => self.refuse(
                &FoundRule {
                    name: rule_folder
                        .workspace
                        .parse_path(name)
                        .map_or_else(|_| name.to_owned(), |path| rule_folder.display_name(&path)),
                    origin: rule_folder.origin,
                    imported_by: None,
                    style,
                },
                0,
                &error.to_string(),
            ),
        }
    }

    fn add_folder(
        &mut self,
        rule_folder: RuleFolder<'_>,
        folder: &WorkPath,
        style: InstructionHeader,
    ) {
        let files = list_text_files(
            rule_folder.workspace,
            folder,
            &RULE_EXTENSIONS,
            MAX_FOLDER_FILES,
        );
        match files {
            Ok(files) => {
                for path in &files {
                    self.watch_path(rule_folder.workspace.root().join(path.as_path()));
                    self.add_file(rule_folder, path, style);
                }
            }
            Err(error) => {
                self.report_problem(&rule_folder.display_name(folder), &error.to_string())
            }
        }
    }

    fn add_file(&mut self, rule_folder: RuleFolder<'_>, path: &WorkPath, style: InstructionHeader) {
        let found = FoundRule {
            name: rule_folder.display_name(path),
            origin: rule_folder.origin,
            imported_by: None,
            style,
        };
        match read_text_start(rule_folder.workspace, path, InstructionFile::MAX_BYTES) {
            Ok(read) => {
                self.seen
                    .insert(rule_folder.workspace.root().join(path.as_path()));
                let is_sent = self.add_text(&found, &read);
                if is_sent && style == InstructionHeader::Importing {
                    self.add_imports(rule_folder, path, &found.name, &read.text, 1);
                }
            }
            Err(error) => self.refuse(&found, 0, &error.to_string()),
        }
    }

    /// Adds the files that a file imports, and those that they import. Each file is read once, so a cycle ends.
    fn add_imports(
        &mut self,
        rule_folder: RuleFolder<'_>,
        path: &WorkPath,
        importer: &str,
        text: &str,
        depth: usize,
    ) {
        let folder = path.as_path().parent().unwrap_or(Path::new(""));
        for mention in find_imports(text) {
            let found = FoundRule {
                name: mention.path.clone(),
                origin: rule_folder.origin,
                imported_by: Some(importer),
                style: InstructionHeader::Importing,
            };
            let is_absolute = mention.path.starts_with(['/', '~']);
            let target = if is_absolute {
                // Only the user's files can import an absolute path, which must be in the same
                // folder.
                mention.path.clone()
            } else {
                folder.join(&mention.path).to_string_lossy().into_owned()
            };
            let target = match rule_folder.workspace.parse_path(&target) {
                Ok(target) if !mention.path.starts_with('~') => target,
                // `@alice` or `@/x` may be a name; only a mention that fills its line is certainly
                // an import.
                _ if !mention.is_whole_line => continue,
                _ => {
                    let why = "an import must stay in the folder";
                    self.refuse(&found, 0, why);
                    continue;
                }
            };
            let real = rule_folder.workspace.root().join(target.as_path());
            // Also the importer itself, which is how a cycle ends.
            if self.seen.contains(&real) {
                continue;
            }
            let found = FoundRule {
                name: rule_folder.display_name(&target),
                ..found
            };
            // Before the file is read, as everywhere.
            let watched = WatchedPath::new(real.clone());
            let read = read_named_text(rule_folder.workspace, &target, InstructionFile::MAX_BYTES);
            let read = match read {
                Ok(read) => read,
                Err(error) => {
                    let is_unsure = error.is_missing()
                        || matches!(
                            error,
                            ConventionError::Workspace(WorkspaceError::NotAFile { .. })
                        );
                    if mention.is_whole_line || !is_unsure {
                        self.watched.push(watched);
                        self.refuse(&found, 0, &error.to_string());
                    }
                    continue;
                }
            };
            if depth > MAX_IMPORT_DEPTH || self.imported_files >= MAX_IMPORTED_FILES {
                self.refuse(&found, read.size, "there are too many imports");
                continue;
            }
            // Counted for all files together, since each import may name more.
            self.imported_files += 1;
            self.watched.push(watched);
            self.seen.insert(real);
            if self.add_text(&found, &read) {
                self.add_imports(rule_folder, &target, &found.name, &read.text, depth + 1);
            }
        }
    }

    /// Adds the text of a file, if it applies; returns true if it is in the requests. A file with the same text as an earlier one,
    /// such as a link to it, is skipped.
    fn add_text(&mut self, found: &FoundRule<'_>, read: &TextStart) -> bool {
        let header = match found.style {
            InstructionHeader::Plain | InstructionHeader::Importing => {
                FrontMatter::without_header(&read.text)
            }
            InstructionHeader::Paths | InstructionHeader::Cursor | InstructionHeader::Copilot => {
                FrontMatter::parse(&read.text)
            }
        };
        let mut rule = FoundInstructions {
            path: found.name.clone(),
            origin: found.origin,
            imported_by: found.imported_by.map(str::to_owned),
            paths: Vec::new(),
            description: None,
            bytes: read.size,
            sent_bytes: 0,
            state: InstructionState::Sent,
        };
        rule.state = self.check_header(found, &header, &mut rule);
        if rule.state == InstructionState::OnRequest {
            self.offer(&rule);
        }
        if rule.state == InstructionState::Sent {
            // The size without the header, of which the text may be only the beginning.
            let taken = read.text.len() - header.body.len();
            let size = read.size.saturating_sub(taken as u64);
            rule.state = self.push_fragment(found, header.body, size, &mut rule.sent_bytes);
        }
        let is_sent = rule.state == InstructionState::Sent;
        self.rules.push(rule);
        is_sent
    }

    fn push_fragment(
        &mut self,
        found: &FoundRule<'_>,
        text: &str,
        size: u64,
        sent_bytes: &mut usize,
    ) -> InstructionState {
        let file = InstructionFile {
            path: &found.name,
            text,
            size,
        };
        let Some(fragment) = file.to_fragment(self.remaining_bytes) else {
            return InstructionState::Blank;
        };
        // Links such as CLAUDE.md to AGENTS.md are common, and would double the prompt.
        let is_repeated = self
            .fragments
            .iter()
            .any(|known| known.text == fragment.text);
        if is_repeated && !fragment.text.is_empty() {
            return InstructionState::Repeated;
        }
        if fragment.left_out > 0 {
            self.report_problem(
                &found.name,
                &format!(
                    "it is too long: {} bytes of it are left out",
                    fragment.left_out
                ),
            );
        }
        // Cut to nothing, and so not worth its heading.
        if fragment.text.is_empty() {
            return InstructionState::NoRoom;
        }
        *sent_bytes = fragment.text.len();
        self.remaining_bytes = self.remaining_bytes.saturating_sub(fragment.text.len());
        self.fragments.push(fragment);
        InstructionState::Sent
    }

    /// Decides by the header of a file whether it applies.
    fn check_header(
        &self,
        found: &FoundRule<'_>,
        header: &FrontMatter<'_>,
        rule: &mut FoundInstructions,
    ) -> InstructionState {
        rule.description = header.text("description").map(|text| {
            let cut = text.floor_char_boundary(MAX_DESCRIPTION_BYTES);
            text.get(..cut).unwrap_or_default().to_owned()
        });
        let globs = match found.style {
            InstructionHeader::Plain | InstructionHeader::Importing => None,
            InstructionHeader::Paths => header.list("paths"),
            InstructionHeader::Cursor => header.list("globs").filter(|globs| !globs.is_empty()),
            InstructionHeader::Copilot => header.list("applyTo"),
        };
        if found.style == InstructionHeader::Cursor && header.flag("alwaysApply") == Some(true) {
            return InstructionState::Sent;
        }
        match (globs, found.style) {
            (Some(globs), _) => {
                let condition = PathCondition::new(globs);
                // A rule that was sent once stays in the requests, so that a resumed task does not
                // lose it.
                let applies = condition.is_universal()
                    || self.touched.was_sent(&found.name)
                    || self.touched.paths().any(|path| condition.matches(path));
                rule.paths = condition.globs().to_vec();
                match (applies, rule.paths.is_empty()) {
                    (true, _) => InstructionState::Sent,
                    (false, true) => InstructionState::Manual,
                    (false, false) => InstructionState::Waiting,
                }
            }
            // A file without any header was written for every request.
            (None, InstructionHeader::Cursor) if header.has_fields() => match rule.description {
                Some(_) => InstructionState::OnRequest,
                None => InstructionState::Manual,
            },
            (None, InstructionHeader::Copilot) => InstructionState::Manual,
            (None, _) => InstructionState::Sent,
        }
    }

    /// Adds a line about a rule that the model reads when it applies.
    fn offer(&mut self, rule: &FoundInstructions) {
        let description = rule.description.as_deref().unwrap_or_default();
        let line = format!("- {}: {}\n", rule.path, description.replace('\n', " "));
        // The list is not counted with the rules: a long rule must not hide which others there are.
        if self.offers.len() + line.len() <= MAX_OFFER_BYTES {
            self.offers.push_str(&line);
        }
    }

    fn refuse(&mut self, found: &FoundRule<'_>, bytes: u64, why: &str) {
        let name = match found.imported_by {
            Some(importer) => format!("{} (imported by {importer})", found.name),
            None => found.name.clone(),
        };
        self.report_problem(&name, why);
        self.rules.push(FoundInstructions {
            path: found.name.clone(),
            origin: found.origin,
            imported_by: found.imported_by.map(str::to_owned),
            paths: Vec::new(),
            description: None,
            bytes,
            sent_bytes: 0,
            state: InstructionState::Refused {
                reason: why.to_owned(),
            },
        });
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

fn workspace_rules(workspace: &Workspace, origin: InstructionOrigin) -> RuleFolder<'_> {
    RuleFolder {
        workspace,
        origin,
        naming: FileNaming::Relative,
    }
}

/// Returns the path of a file as seen from a folder; both are relative to the same root.
fn relative_name(path: &Path, folder: &Path) -> String {
    let shared = path
        .components()
        .zip(folder.components())
        .take_while(|(part, other)| part == other)
        .count();
    let up = folder.components().count() - shared;
    let rest: PathBuf = path.components().skip(shared).collect();
    "../".repeat(up) + &rest.display().to_string()
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

/// Reads the beginning of a file of the user.
fn read_user_file(path: &Path) -> std::io::Result<TextStart> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(u64::try_from(InstructionFile::MAX_BYTES).unwrap_or(u64::MAX))
        .read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(TextStart { text, size })
}
