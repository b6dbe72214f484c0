//! Finds out whether a command that only reads could read a file that usually holds secrets without naming it.
//!
//! `cat .env` names the file and is asked about by its words (`path_scope.rs`). `cat .e*`, `grep -r KEY .` and
//! `find . | xargs cat` name it by a pattern, by a folder above it, or not at all. This module computes the *reach* of such
//! a command: the patterns and folders whose files it may open. The caller supplies the files themselves
//! ([`SecretFiles`]), so that a workspace without any is not asked about at all.
//!
//! Programs that only show names, sizes or times ([`SHOWS_NAMES`]) have no reach: a name is not a secret.
//!
//! | command | reach |
//! | --- | --- |
//! | `cat .e*`, `sort */x` | the pattern |
//! | `cat "src/$f"` | paths that begin with `src/` |
//! | `grep -r x src`, `diff a b` | all files below the folders; with `--include`, those of that name |
//! | `rg x` | all files of the folder that are neither hidden nor ignored; with `--hidden` or `-u`, all |
//! | `find src -name '*.rs' -exec C` | files below `src` of that name, if `C` opens them |
//! | `git grep --untracked`, `-L`, `-R`, a folder that is not certain | the whole workspace |
//! | `git diff`, `git grep` | the files in the index, below the paths behind `--` |
//! | `git show`, `git log -p`, `git diff HEAD` | the same, and the files of all commits |
//! | `git show ID`, `git cat-file -p ID` | any content that git keeps, if the id is that of one |
//! | `cat a.txt`, `ls`, `git diff --stat` | none |
//!
//! Rules for paths (`deny path=secrets/`) use the same reach: a recursive reader asks above such a path, unless a sandbox hides
//! it.

use super::any_matches_path;
use super::command_facts::{SecretFile, SecretFiles, TrackedSecrets};
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::git::GitContents;
use super::grammar::{OptionValue, PATTERN_OPTIONS, ParsedArguments, PathContext};
use super::paths::{glob_pieces, may_intersect, patterns_intersect, prefix_pieces};
use super::pattern::RulePattern;
use super::programs;
use super::secret_paths::pattern_may_name_secret;
use super::word::{ShellWord, WordForm};

/// Readers that show names, sizes, times or kinds of files, but no content.
const SHOWS_NAMES: [&str; 31] = [
    "ls", "dir", "vdir", "eza", "exa", "tree", "du", "df", "stat", "file", "wc", "readlink",
    "realpath", "basename", "dirname", "namei", "echo", "printf", "test", "[", "which", "type",
    "whereis", "fd", "fdfind", "true", "false", ":", "tee", "lsof", "findmnt",
];

/// The files that a command may open.
///
/// A file is in reach if it is in the area, its name matches, and it is not skipped. A limit applies only if it is certain: a wrong limit
/// would allow reading a secret, a missing one only costs a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileReach {
    area: ReachArea,
    /// Globs for the last component; a file is in reach if one of them matches. Empty for every file.
    names: Vec<String>,
    /// True if hidden and ignored files are skipped, as search programs do by default.
    skips_ignored: bool,
}

/// The part of the workspace that a command may open files in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReachArea {
    /// The files that match a shell pattern, relative to the workspace.
    Pattern(String),
    /// The paths that begin with the first text and end with the second.
    Between(String, String),
    /// All files below the folders that match a shell pattern; `.` for the workspace.
    Below(String),
    /// The whole workspace, because it is not certain which part.
    Everything,
}

/// The question about a command and the secret files in its reach.
enum SecretInReach {
    /// None of them.
    Nothing,
    /// This file.
    File(String),
    /// The caller has not looked for such files.
    NotKnown,
}

impl FileReach {
    /// Returns the reach over an area, for files of every name.
    fn new(area: ReachArea) -> Self {
        Self {
            area,
            names: Vec::new(),
            skips_ignored: false,
        }
    }

    /// Returns the reach that covers the whole workspace, for commands that follow links or whose folder is not certain.
    pub(crate) fn everything() -> Self {
        Self::new(ReachArea::Everything)
    }

    /// Limits the reach to files whose name matches one of these globs.
    pub(crate) fn with_names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    /// Leaves out the files that search programs skip by default.
    pub(crate) fn without_ignored(self, skips_ignored: bool) -> Self {
        Self {
            skips_ignored,
            ..self
        }
    }

    /// Returns the reach of a path or pattern seen from a folder; `below` if a folder means all files in it.
    pub(crate) fn from_path(text: &str, below: bool, scope: &ShellScope, root: &str) -> Self {
        // Another check asks about a path that is not certain or lies outside; here it may be any
        // file.
        let joined = scope.folder.join(text, root).ok();
        let path = joined.as_ref().and_then(|folder| folder.path());
        Self::new(match path {
            Some(path) if below => ReachArea::Below(path.to_owned()),
            Some(path) => ReachArea::Pattern(path.to_owned()),
            None => ReachArea::Everything,
        })
    }

    /// Reports whether some file that usually holds secrets could be in reach, without knowing which files exist.
    fn may_hold_secret(&self) -> bool {
        match &self.area {
            ReachArea::Pattern(pattern) => pattern_may_name_secret(pattern),
            ReachArea::Between(..) | ReachArea::Below(_) | ReachArea::Everything => {
                self.names.is_empty() || self.names.iter().any(|name| glob_may_name_secret(name))
            }
        }
    }

    /// Reports whether a path that a rule's glob matches may be in reach.
    fn may_hold(&self, glob: &str, root: &str) -> bool {
        // Paths elsewhere are not below any folder of the workspace.
        let inside =
            super::path_scope::strip_root(glob, root).map(|rest| rest.trim_start_matches('/'));
        let glob = match inside {
            Some(inside) => inside,
            None if glob.starts_with(['/', '~']) => return false,
            None => glob,
        };
        let last = glob.rsplit('/').next().unwrap_or_default();
        // A rule for a name such as `.env` or `*.pem` means files; one for `secrets` may mean a
        // folder.
        let out_of_names = last.contains('.')
            && !last.contains("**")
            && !self.names.is_empty()
            && !self
                .names
                .iter()
                .any(|name| patterns_intersect(&glob_pieces(last, true), &glob_pieces(name, true)));
        match &self.area {
            _ if out_of_names => false,
            ReachArea::Everything => true,
            ReachArea::Below(folder) if folder == "." => true,
            ReachArea::Below(folder) => may_intersect(glob, &format!("{folder}/"), true),
            ReachArea::Pattern(_) | ReachArea::Between(..) => false,
        }
    }

    /// Reports whether a file is in reach. Compares without regard to case, as some file systems do.
    fn covers(&self, file: &SecretFile) -> bool {
        if self.skips_ignored && file.ignored {
            return false;
        }
        let path = file.path.to_lowercase();
        let name = path.rsplit('/').next().unwrap_or_default();
        let named = |glob: &String| {
            patterns_intersect(
                &glob_pieces(name, true),
                &glob_pieces(&glob.to_lowercase(), true),
            )
        };
        if !self.names.is_empty() && !self.names.iter().any(named) {
            return false;
        }
        let literal = prefix_pieces(&path, "");
        let matches = |path: &str, pattern: &str| {
            let pattern = glob_pieces(&pattern.to_lowercase(), false);
            patterns_intersect(&prefix_pieces(path, ""), &pattern)
        };
        match &self.area {
            ReachArea::Everything => true,
            ReachArea::Pattern(pattern) => matches(&path, pattern),
            ReachArea::Between(before, after) => {
                let mut pieces = prefix_pieces(&before.to_lowercase(), "");
                pieces.push(super::paths::GlobPiece::Anything);
                pieces.extend(prefix_pieces(&after.to_lowercase(), ""));
                patterns_intersect(&literal, &pieces)
            }
            ReachArea::Below(folder) => {
                folder == "."
                    || matches(&path, folder)
                    || path
                        .match_indices('/')
                        .any(|(at, _)| path.get(..at).is_some_and(|above| matches(above, folder)))
            }
        }
    }
}

/// Reports whether a glob in which `*` also matches a leading dot may match the name of a secret file.
fn glob_may_name_secret(glob: &str) -> bool {
    // In these globs a star matches a leading dot, which a star of the shell does not.
    let visible = glob.trim_start_matches('*');
    pattern_may_name_secret(glob)
        || visible.len() < glob.len() && pattern_may_name_secret(&format!(".*{visible}"))
        || super::secret_paths::names_secret_file(glob)
}

/// Reports whether a command opens the files that it is given, instead of showing their names.
pub(crate) fn opens_contents(command: &[ShellWord]) -> bool {
    let name = command.first().and_then(ShellWord::known_text);
    let name = name.map(|name| name.rsplit('/').next().unwrap_or(name));
    !name.is_some_and(|name| SHOWS_NAMES.contains(&name))
}

impl CommandEvaluator<'_> {
    /// Adds a question to the finding of a reading program if a file that usually holds secrets is in its reach.
    pub(crate) fn check_program_reach(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        scope: &ShellScope,
        finding: PolicyFinding,
    ) -> PolicyFinding {
        if matches!(rest, [only] if matches!(only.known_text(), Some("--version" | "--help"))) {
            return finding;
        }
        let reach = self.program_reach(name, rest, scope);
        self.check_reach(&reach, finding)
    }

    /// Adds a question to a finding if a file that usually holds secrets is in one of these reaches.
    pub(crate) fn check_reach(
        &mut self,
        reach: &[FileReach],
        finding: PolicyFinding,
    ) -> PolicyFinding {
        if let Some(rule) = self.denied_in_reach(reach) {
            return finding.stricter(PolicyFinding::always_ask(format!(
                "it may read {rule}, which a rule speaks of"
            )));
        }
        match self.find_secret(reach) {
            SecretInReach::Nothing => finding,
            SecretInReach::File(path) => finding.stricter(PolicyFinding::ask(format!(
                "it may read {path}, which usually holds secrets"
            ))),
            SecretInReach::NotKnown => finding.stricter(PolicyFinding::ask(
                "which files with secrets it may read is not known",
            )),
        }
    }

    /// Reports whether a file that usually holds secrets is, or may be, in one of these reaches.
    pub(crate) fn may_reach_secret(&mut self, reach: &[FileReach]) -> bool {
        self.denied_in_reach(reach).is_some()
            || !matches!(self.find_secret(reach), SecretInReach::Nothing)
    }

    /// Returns the first path of a deny or ask rule that a reach may hold. Patterns do not count, since the words of the command have
    /// already been compared with the rules.
    fn denied_in_reach(&self, reach: &[FileReach]) -> Option<String> {
        // A sandbox hides denied paths, or the command does not run.
        let denied = self.rules.deny.iter().filter(|_| !self.facts.confined);
        let rules = denied.chain(&self.rules.ask);
        let mut globs = rules.filter_map(|rule| match rule {
            RulePattern::Path(glob) => Some(glob),
            _ => None,
        });
        let root = &self.facts.root;
        globs
            .find(|glob| reach.iter().any(|reach| reach.may_hold(glob, root)))
            .cloned()
    }

    /// Looks for the first file in reach. Marks the fact as needed where the caller has not looked yet.
    fn find_secret(&mut self, reach: &[FileReach]) -> SecretInReach {
        // Without a file on disk in view, a name that no secret can have settles it.
        let reach: Vec<&FileReach> = reach
            .iter()
            .filter(|reach| reach.may_hold_secret())
            .collect();
        if reach.is_empty() {
            return SecretInReach::Nothing;
        }
        match &self.facts.secret_files {
            SecretFiles::Masked(_) => SecretInReach::Nothing,
            SecretFiles::Unknown => {
                self.could_match_secret = true;
                SecretInReach::NotKnown
            }
            SecretFiles::Found(files) => {
                // A path that a rule allows may be read, so it is none to ask about.
                let hit = files.iter().find(|file| {
                    reach.iter().any(|reach| reach.covers(file))
                        && !any_matches_path(&self.rules.allow, &file.path)
                });
                hit.map_or(SecretInReach::Nothing, |file| {
                    SecretInReach::File(file.path.clone())
                })
            }
        }
    }

    /// Returns the reach of a program that only reads.
    fn program_reach(&self, name: &str, rest: &[ShellWord], scope: &ShellScope) -> Vec<FileReach> {
        if SHOWS_NAMES.contains(&name) {
            return Vec::new();
        }
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let seen = programs::find_program(name).and_then(|row| {
            let seen = row.parse_arguments(rest, context).ok()?;
            Some((row.path_operands(&seen).to_vec(), seen))
        });
        // Arguments that cannot be parsed are asked about for that reason.
        let Some((paths, seen)) = seen else {
            return Vec::new();
        };
        match name {
            "grep" | "egrep" | "fgrep" => self.grep_reach(rest, &paths, &seen, scope),
            "rg" | "ag" => self.search_reach(&paths, &seen, scope),
            // Both compare folders file by file.
            "diff" | "sdiff" => self.operand_reach(&paths, true, scope),
            _ => self.operand_reach(&paths, false, scope),
        }
    }

    /// Returns the reach of a recursive search: everything if it follows links, the current folder,
    /// or its path operands.
    fn recursive_reach(
        &self,
        follows: bool,
        searches_folder: bool,
        paths: &[&ShellWord],
        scope: &ShellScope,
    ) -> Vec<FileReach> {
        if follows {
            vec![FileReach::everything()]
        } else if searches_folder {
            vec![FileReach::from_path(".", true, scope, &self.facts.root)]
        } else {
            self.operand_reach(paths, true, scope)
        }
    }

    /// Returns the reach of path operands; with `below`, a folder reaches all files in it.
    pub(crate) fn operand_reach(
        &self,
        paths: &[&ShellWord],
        below: bool,
        scope: &ShellScope,
    ) -> Vec<FileReach> {
        let root = &self.facts.root;
        let reach = paths.iter().filter_map(|word| match word.form {
            // A certain file was checked by its name.
            WordForm::Literal if !below => None,
            WordForm::Literal | WordForm::Glob(_) => {
                Some(FileReach::from_path(&word.text, below, scope, root))
            }
            // The whole value was checked when the variable was bound; with text around it, it is
            // another path.
            WordForm::Field(_) if word.text.is_empty() && word.tail.is_empty() && !below => None,
            WordForm::Field(_) if below => Some(FileReach::everything()),
            WordForm::Field(_) => Some(match scope.folder.path() {
                Some(".") => FileReach::new(ReachArea::Between(
                    super::paths::normalize_prefix(&word.text, root),
                    word.tail.clone(),
                )),
                _ => FileReach::everything(),
            }),
            WordForm::Fields | WordForm::Odd(_) => None,
        });
        reach.collect()
    }

    /// Returns the reach of `grep`, which reads folders only with `-r`, `-R` or `-d recurse`.
    ///
    /// `-R` follows links, so any file of the workspace may be behind one.
    fn grep_reach(
        &self,
        rest: &[ShellWord],
        paths: &[&ShellWord],
        seen: &ParsedArguments<'_>,
        scope: &ShellScope,
    ) -> Vec<FileReach> {
        const FOLLOWS: [&str; 2] = ["-R", "--dereference-recursive"];
        const RECURSES: [&str; 4] = ["-r", "--recursive", "-d=", "--directories="];
        // A word that may become an option may become `-r`.
        let uncertain = |word: &ShellWord| word.known_text().is_none() && word.may_be_option();
        let follows = seen.has_option(&FOLLOWS);
        if !follows && !seen.has_option(&RECURSES) && !rest.iter().any(uncertain) {
            return self.operand_reach(paths, false, scope);
        }
        // Unquoted, `--include=*.rs` is also a pattern for the shell, and the grammar counts it
        // among the operands.
        let is_option = |word: &&&ShellWord| word.known_prefix().starts_with('-');
        let unquoted = seen.operands.iter().filter(is_option);
        let unquoted = unquoted
            .filter_map(|word| Some(Some(word.text.strip_prefix("--include=")?.to_owned())));
        let names: Option<Vec<String>> = seen
            .option_values("--include=")
            .map(OptionValue::glob_text)
            .chain(unquoted)
            .collect();
        let operands: Vec<&ShellWord> = seen
            .operands
            .iter()
            .filter(|word| !is_option(word))
            .copied()
            .collect();
        let takes_pattern = !seen.has_option(&PATTERN_OPTIONS);
        // A pattern that may become several words may be paths, too.
        let certain_pattern = operands
            .first()
            .is_some_and(|word| matches!(word.form, WordForm::Literal | WordForm::Field(_)));
        let paths = operands
            .get(usize::from(takes_pattern && certain_pattern)..)
            .unwrap_or_default();
        let searches_folder =
            paths.is_empty() || takes_pattern && !certain_pattern && operands.len() < 2;
        let names = names.unwrap_or_default();
        let reach = self.recursive_reach(follows, searches_folder, paths, scope);
        reach
            .into_iter()
            .map(|reach| reach.with_names(names.clone()))
            .collect()
    }

    /// Returns the reach of `rg` and `ag`, which search folders without an option for it, and by default skip hidden and ignored files.
    fn search_reach(
        &self,
        paths: &[&ShellWord],
        seen: &ParsedArguments<'_>,
        scope: &ShellScope,
    ) -> Vec<FileReach> {
        const LISTS: [&str; 2] = ["--files", "--type-list"];
        /// Options that make hidden or ignored files be searched.
        const WIDENS: [&str; 16] = [
            "--hidden",
            "-u",
            "--unrestricted",
            "--no-ignore",
            "--no-ignore-vcs",
            "--no-ignore-parent",
            "--no-ignore-dot",
            "--no-ignore-global",
            "--no-ignore-exclude",
            "-g=",
            "--glob=",
            "--iglob=",
            "--ignore-file=@",
            "--glob-case-insensitive",
            "-a",
            "--follow",
        ];
        // `--files` prints names only.
        if seen.has_option(&LISTS) {
            return Vec::new();
        }
        // Without a path it searches what it reads from a pipe.
        if paths.is_empty() && self.piped {
            return Vec::new();
        }
        let globs = ["-g=", "--glob="]
            .into_iter()
            .flat_map(|option| seen.option_values(option));
        let globs: Option<Vec<String>> = globs
            .map(|glob| {
                let glob = glob.glob_text()?;
                // A glob with `!` leaves files out, one with `/` or braces means more than a name.
                (!glob.starts_with('!') && !glob.contains(['/', '{', '\\'])).then_some(glob)
            })
            .collect();
        // A folder that is named or entered is searched even if it is hidden or ignored itself.
        let plain_root = scope.folder.path() == Some(".")
            && paths
                .iter()
                .all(|word| matches!(word.known_text(), Some("." | "./")));
        let skips = plain_root && !seen.has_option(&WIDENS);
        let follows = seen.has_option(&["-L", "--follow"]);
        // A word that may become several may be the pattern alone.
        let searches_folder = paths.is_empty() || seen.has_many();
        let reach = self.recursive_reach(follows, searches_folder, paths, scope);
        reach
            .into_iter()
            .map(|reach| {
                reach
                    .with_names(globs.clone().unwrap_or_default())
                    .without_ignored(skips)
            })
            .collect()
    }

    /// Asks about a git command that may show a file with secrets which git itself keeps (`git diff`, `git grep`, `git show`):
    /// one in the index, or in any commit.
    pub(crate) fn check_tracked_secrets(
        &mut self,
        git: &super::git::GitInvocation<'_>,
        finding: PolicyFinding,
    ) -> PolicyFinding {
        let finding = self.check_object_ids(git, finding);
        let contents = git.shown_contents();
        if contents == GitContents::Nothing {
            return finding;
        }
        let index = &self.facts.tracked_secrets;
        let commits = &self.facts.history_secrets;
        let is_known = |secrets: &TrackedSecrets| !matches!(secrets, TrackedSecrets::Unknown);
        let in_commits = contents == GitContents::Commits;
        self.needs_tracked_secrets |= !is_known(index);
        self.needs_history_secrets |= in_commits && !is_known(commits);
        let shown = |secrets: &TrackedSecrets| match secrets {
            TrackedSecrets::Unknown => None,
            TrackedSecrets::Found(paths) => {
                let is_shown = |path: &&String| {
                    git.may_show(path) && !any_matches_path(&self.rules.allow, path)
                };
                paths.iter().find(is_shown).cloned()
            }
        };
        let asked = if let Some(path) = shown(index) {
            format!("it may show {path}, which git keeps and which usually holds secrets")
        } else if !is_known(index) || in_commits && !is_known(commits) {
            "which files with secrets git keeps is not known".to_owned()
        } else if let Some(path) = shown(commits).filter(|_| in_commits) {
            format!(
                "it may show {path}, which a commit holds and which usually holds secrets; paths behind `--` can leave it out"
            )
        } else {
            return finding;
        };
        finding.stricter(PolicyFinding::ask(asked))
    }

    /// Asks about a git command that prints objects by ids which may be those of contents: no path is known of these.
    fn check_object_ids(
        &mut self,
        git: &super::git::GitInvocation<'_>,
        finding: PolicyFinding,
    ) -> PolicyFinding {
        if git.prints_unknown_objects() {
            return finding.stricter(PolicyFinding::ask(
                "which objects git prints is not certain",
            ));
        }
        let mut asked = None;
        for id in git.object_ids() {
            if !self.facts.harmless_ids.iter().any(|known| known == id) {
                self.wanted_object_ids.push(id.to_owned());
                asked = Some(format!(
                    "{id} may be the content of a file that nobody named"
                ));
            }
        }
        match asked {
            Some(reason) => finding.stricter(PolicyFinding::ask(reason)),
            None => finding,
        }
    }

    /// Returns the reach of git beyond what it keeps itself ([`check_tracked_secrets`](Self::check_tracked_secrets)): files
    /// of the work tree that the words name by a pattern, and all of them for `git grep --untracked`.
    pub(crate) fn git_reach(
        &self,
        git: &super::git::GitInvocation<'_>,
        scope: &ShellScope,
    ) -> Vec<FileReach> {
        if !git.shows_contents() {
            return Vec::new();
        }
        let words: Vec<&ShellWord> = git.arguments().iter().collect();
        let mut reach = self.operand_reach(&words, false, scope);
        // In a pathspec a star also matches a slash and a leading dot, so only its last part limits
        // the names.
        for pathspec in git.wildcard_pathspecs() {
            let name = pathspec.rsplit('/').next().unwrap_or(pathspec);
            reach.push(FileReach::everything().with_names(vec![name.to_owned()]));
        }
        let has = |options: &[&str]| {
            words.iter().any(|word| {
                word.known_text()
                    .is_some_and(|text| options.contains(&text))
            })
        };
        let searches_all = git.subcommand() == Some("grep") && has(&["--untracked", "--no-index"])
            || git.subcommand() == Some("diff") && has(&["--no-index"]);
        if searches_all {
            reach.push(FileReach::everything());
        }
        reach
    }

    /// Returns the reach of the files that `find` finds.
    pub(crate) fn find_reach(&self, rest: &[ShellWord], scope: &ShellScope) -> Vec<FileReach> {
        let found = super::find::SearchArea::parse(rest);
        if found.follows_links {
            return vec![FileReach::everything().with_names(found.names)];
        }
        let reach = match found.roots.is_empty() {
            true => vec![FileReach::from_path(".", true, scope, &self.facts.root)],
            false => self.operand_reach(&found.roots, true, scope),
        };
        reach
            .into_iter()
            .map(|reach| reach.with_names(found.names.clone()))
            .collect()
    }
}
