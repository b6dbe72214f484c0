//! Checks `git`: the subcommands that only read, and the allowed arguments of each.
//!
//! A row lists what a subcommand may be given; the repository decides the rest. Plain `git status` runs the program that
//! `core.fsmonitor` names, `git diff` runs textconv and external diff drivers, and clean filters cannot be switched off by any option.
//! So a command that passes its row still needs a repository whose configuration names no program
//! ([`RepositoryState`](super::RepositoryState)), in the folder that `-C` and the line lead to. Options that only do good, such as
//! `-c core.fsmonitor=false`, do not replace that.
//!
//! Left out of all rows:
//!
//! * options that write (`--output`), run programs (`--ext-diff`, `--textconv`, `--show-signature`, `--open-files-in-pager`) or read
//!   the configuration of other repositories (`--submodule=diff`),
//! * formats that verify signatures, since `%G?` runs the program that `gpg.program` names,
//! * words that make a listing into a change: `git branch NAME`, `git tag NAME`, `git config KEY VALUE`.

use super::ask_reason::AskReason;
use super::command_facts::{CommandFacts, RepositoryState};
use super::grammar::OperandKind::{AtMost, Nothing, Paths, Text};
use super::grammar::{ParsedArguments, PathContext, ProgramGrammar};
use super::path_scope::FolderScope;
use super::word::ShellWord;

/// The place from which a git command prints contents of files that it does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitContents {
    /// None are printed.
    Nothing,
    /// The index and the work tree.
    Index,
    /// Any commit, and perhaps the index.
    Commits,
}

/// Reports whether an operand of `git show` or `git cat-file` names one file or folder of a commit or of the index, with a path from the
/// top: `HEAD:src/a.rs`. An operand that begins with a `:` may be a search for a commit, or a pattern.
fn names_file(word: &ShellWord) -> bool {
    word.known_text()
        .and_then(|text| text.split_once(':'))
        .is_some_and(|pair| !pair.0.is_empty() && !pair.1.starts_with(['.', '/']))
}

/// A git command without git's own options.
pub(crate) struct GitInvocation<'a> {
    /// The folder from which git would look for a repository.
    pub(crate) folder: FolderScope,
    /// The subcommand and its arguments.
    pub(crate) words: &'a [ShellWord],
}

/// Strips git's own options from the words behind `git`.
///
/// # Errors
/// Returns the reason if a setting or folder given by an option is not known to be harmless.
pub(crate) fn parse_invocation<'a>(
    words: &'a [ShellWord],
    context: PathContext<'_>,
) -> Result<GitInvocation<'a>, AskReason> {
    let mut folder = context.folder.clone();
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first() {
        match word.known_text() {
            Some(
                "-P"
                | "--no-pager"
                | "--no-optional-locks"
                | "--literal-pathspecs"
                | "--no-replace-objects"
                | "--glob-pathspecs"
                | "--noglob-pathspecs"
                | "--icase-pathspecs",
            ) => rest = behind,
            Some("-c") => {
                let (setting, behind) = behind.split_first().ok_or("-c needs a setting")?;
                if !setting.known_text().is_some_and(is_harmless_setting) {
                    return Err(
                        format!("the setting {} is not known to be harmless", setting.raw).into(),
                    );
                }
                rest = behind;
            }
            Some("-C") => {
                let (path, behind) = behind.split_first().ok_or("-C needs a folder")?;
                let path = path
                    .known_text()
                    .ok_or_else(|| format!("the folder {} is not certain", path.raw))?;
                folder = folder.join(path, context.root)?;
                rest = behind;
            }
            _ => break,
        }
    }
    Ok(GitInvocation {
        folder,
        words: rest,
    })
}

impl GitInvocation<'_> {
    /// Checks that the command only reads, in a repository whose configuration runs no programs. Adds the folder to `wanted` if
    /// the state of its repository is not known.
    ///
    /// # Errors
    /// Returns the reason why the command is not known to only read.
    ///
    /// The subcommand is looked up by two words first (`stash list`), since `git stash` alone changes the work tree.
    pub(crate) fn check_read_only(
        &self,
        facts: &CommandFacts,
        wanted: &mut Vec<String>,
    ) -> Result<(), AskReason> {
        let Some((name, rest)) = self.words.split_first() else {
            return Ok(());
        };
        let name = name
            .known_text()
            .ok_or_else(|| format!("what {} becomes is not known", name.raw))?;
        // Two words are tried first: `git stash list` reads, `git stash` does not.
        let nested = rest
            .first()
            .and_then(ShellWord::known_text)
            .map(|second| format!("{name} {second}"));
        let found = |name: &str| ROWS.iter().find(|row| row.names.contains(&name));
        let (row, rest) = match nested.as_deref().and_then(found) {
            Some(row) => (row, rest.get(1..).unwrap_or_default()),
            None => {
                let row =
                    found(name).ok_or_else(|| format!("git {name} is not known to only look"))?;
                (row, rest)
            }
        };
        row.check_arguments(
            rest,
            PathContext {
                folder: &self.folder,
                root: &facts.root,
            },
        )?;
        if matches!(
            name,
            "--version" | "version" | "--help" | "help" | "--exec-path"
        ) {
            return Ok(());
        }
        check_repository(&self.folder, facts, wanted)
    }
}

/// Checks that git, started in a folder, runs no programs of the repository that it finds there. Adds the folder to `wanted` if
/// the state of its repository is not known.
///
/// # Errors
/// Returns the reason why it may run some.
pub(crate) fn check_repository(
    folder: &FolderScope,
    facts: &CommandFacts,
    wanted: &mut Vec<String>,
) -> Result<(), AskReason> {
    let folder = folder.path().ok_or("where git would run is not certain")?;
    match facts.repository_state(folder) {
            RepositoryState::None | RepositoryState::Clean => Ok(()),
            // Hooks, filters, `core.fsmonitor` and other settings run programs even for a command
            // that only reads.
            RepositoryState::Executes(keys) => Err(format!(
                "the repository's configuration can run programs ({}); `sabir trust` trusts it as it is",
                keys.join(", ")
            )
            .into()),
            RepositoryState::Changed(changes) => Err(format!(
                "what the repository's configuration runs has changed since you trusted it ({}); `sabir trust` shows it",
                changes.join(", ")
            )
            .into()),
            RepositoryState::Unknown => {
                if !wanted.iter().any(|known| known == folder) {
                    wanted.push(folder.to_owned());
                }
                Err("what the repository's configuration runs is not known".into())
            }
        }
}

impl GitInvocation<'_> {
    /// Returns the subcommand if it is certain.
    pub(crate) fn subcommand(&self) -> Option<&str> {
        self.words.first()?.known_text()
    }

    /// Returns the words behind the subcommand.
    pub(crate) fn arguments(&self) -> &[ShellWord] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Reports whether the subcommand prints the content of files, and not only their names or states.
    pub(crate) fn shows_contents(&self) -> bool {
        const CONTENTS: [&str; 15] = [
            "status",
            "diff",
            "diff-tree",
            "diff-index",
            "diff-files",
            "log",
            "show",
            "whatchanged",
            "blame",
            "annotate",
            "grep",
            "cat-file",
            "stash",
            "range-diff",
            "reflog",
        ];
        self.subcommand()
            .is_some_and(|name| CONTENTS.contains(&name))
    }

    /// Returns the source from which the command prints contents of files that it does not name: `git diff` from the index and the work
    /// tree, `git show` from commits, `git diff --stat` none, and `git log` from commits only with `-p`.
    pub(crate) fn shown_contents(&self) -> GitContents {
        /// Options of the diff commands with which they print names and counts instead.
        const LISTS: [&str; 11] = [
            "--stat",
            "--numstat",
            "--shortstat",
            "--dirstat",
            "--summary",
            "--name-only",
            "--name-status",
            "--raw",
            "--no-patch",
            "-s",
            "--quiet",
        ];
        const GREP_LISTS: [&str; 9] = [
            "-l",
            "-L",
            "-c",
            "-q",
            "--files-with-matches",
            "--files-without-match",
            "--name-only",
            "--count",
            "--quiet",
        ];
        const CAT_LISTS: [&str; 3] = ["-t", "-s", "-e"];
        const COMMITS: [&str; 3] = ["--cached", "--staged", "--merge-base"];
        let when = |prints: bool, contents: GitContents| match prints {
            true => contents,
            false => GitContents::Nothing,
        };
        let mut operands = self.operands().peekable();
        let lists = || self.has_option(&LISTS) && !self.may_patch();
        match self.subcommand() {
            Some("show") if operands.peek().is_some() && operands.all(names_file) => {
                GitContents::Nothing
            }
            Some("diff") => {
                let from_index = self.operands().next().is_none() && !self.has_option(&COMMITS);
                let contents = match from_index {
                    true => GitContents::Index,
                    false => GitContents::Commits,
                };
                when(!lists(), contents)
            }
            Some("diff-files") => when(!lists(), GitContents::Index),
            Some("diff-tree" | "diff-index" | "show") => when(!lists(), GitContents::Commits),
            // What is staged is compared with the last commit.
            Some("status") => when(self.has_letter('v'), GitContents::Commits),
            Some("grep") => {
                // Behind the pattern, a word may be a commit.
                let contents = match self.operands().count() {
                    0 | 1 => GitContents::Index,
                    _ => GitContents::Commits,
                };
                when(!self.has_option(&GREP_LISTS), contents)
            }
            Some("log" | "whatchanged" | "reflog") => when(self.may_patch(), GitContents::Commits),
            Some("stash") => {
                let first = self.arguments().first().and_then(ShellWord::known_text);
                let shows = first != Some("list") || self.may_patch();
                when(shows, GitContents::Commits)
            }
            Some("cat-file") => {
                let types = ["blob", "tree", "commit", "tag"];
                let is_type =
                    |word: &&ShellWord| word.known_text().is_some_and(|text| types.contains(&text));
                let mut objects = self.operands().filter(|word| !is_type(word)).peekable();
                let named = objects.peek().is_some() && objects.all(names_file);
                let checks = self.has_option(&["--batch-check"]) && !self.has_option(&["--batch"]);
                let lists = named || checks || self.has_option(&CAT_LISTS);
                when(!lists, GitContents::Commits)
            }
            Some("range-diff") => GitContents::Commits,
            _ => GitContents::Nothing,
        }
    }

    /// Returns the words in front of `--` that are not options.
    fn operands(&self) -> impl Iterator<Item = &ShellWord> {
        self.arguments()
            .iter()
            .take_while(|word| word.known_text() != Some("--"))
            .filter(|word| !word.known_prefix().starts_with('-'))
    }

    /// Reports whether one of these options is given, with or without a value behind `=`.
    fn has_option(&self, options: &[&str]) -> bool {
        self.arguments().iter().any(|word| {
            let text = word.text.split('=').next().unwrap_or_default();
            options.contains(&text)
        })
    }

    /// Reports whether a cluster of short options has a letter, or a word may be one.
    fn has_letter(&self, letter: char) -> bool {
        self.arguments().iter().any(|word| {
            let text = word.text.as_str();
            word.known_text().is_none()
                || text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        })
    }

    /// Reports whether an option of a diff command may make it print contents. Options for a function, a range of lines or a number of
    /// context lines print contents, too.
    fn may_patch(&self) -> bool {
        const PATCHES: [&str; 8] = [
            "--patch",
            "--cc",
            "-c",
            "-m",
            "--dd",
            "--patch-with-stat",
            "--patch-with-raw",
            // Prints the lines that it complains about.
            "--check",
        ];
        const STARTS: [&str; 9] = [
            "-L",
            "-U",
            "--unified",
            "--word-diff",
            "--color-words",
            "--diff-merges",
            "-W",
            "--function-context",
            "--binary",
        ];
        let starts = |word: &ShellWord| STARTS.iter().any(|start| word.text.starts_with(start));
        // A cluster may hold `-p`.
        self.has_option(&PATCHES)
            || self.has_letter('p')
            || self.has_letter('u')
            || self.arguments().iter().any(starts)
    }

    /// Returns the words of `git show`, `git cat-file`, `git grep` and diffs that may be ids of contents, which git prints whatever paths
    /// and options are given.
    pub(crate) fn object_ids(&self) -> Vec<&str> {
        let takes_ids = matches!(
            self.subcommand(),
            Some("show" | "cat-file" | "grep" | "diff")
        );
        // These print the kind or the size of an object.
        if !takes_ids
            || self.subcommand() == Some("cat-file") && self.has_option(&["-t", "-s", "-e"])
        {
            return Vec::new();
        }
        let has_pattern_option = self.arguments().iter().any(|word| {
            ["-e", "-f"]
                .iter()
                .any(|start| word.text.starts_with(start))
        });
        // The pattern of `git grep` is not an object.
        let skipped = usize::from(self.subcommand() == Some("grep") && !has_pattern_option);
        let ids = self.operands().skip(skipped).filter_map(|word| {
            let text = word.known_text()?;
            // `ID^{blob}` is the same object.
            let id = text.split("^{").next().unwrap_or(text);
            let is_id = id.len() >= 4 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then_some(id)
        });
        ids.collect()
    }

    /// Reports whether git prints objects whose ids are not known: from a pipe or a variable.
    pub(crate) fn prints_unknown_objects(&self) -> bool {
        let is_uncertain = |word: &ShellWord| word.known_text().is_none();
        match self.subcommand() {
            Some("cat-file") => {
                self.has_option(&["--batch"])
                    || self.has_option(&["--batch-all-objects"])
                        && !self.has_option(&["--batch-check"])
                    || !self.has_option(&["-t", "-s", "-e"]) && self.operands().any(is_uncertain)
            }
            // `$x:path` names a file of a commit.
            Some("show") => self
                .operands()
                .any(|word| is_uncertain(word) && !word.tail.contains(':')),
            _ => false,
        }
    }

    /// Reports whether the paths behind `--` include a file of the repository. Without `--` they include every file.
    ///
    /// The path may be relative to the top of the repository or to a folder above it. Ignores case, and compares any successive components,
    /// since the command may run in a folder below the top.
    pub(crate) fn may_show(&self, file: &str) -> bool {
        // With these, other files of a commit are printed as well, or earlier ones.
        if self.has_option(&["--full-diff", "--follow"]) {
            return true;
        }
        let mut behind = self
            .arguments()
            .iter()
            .skip_while(|word| word.known_text() != Some("--"))
            .skip(1)
            .peekable();
        if behind.peek().is_none() {
            return true;
        }
        let file = format!("/{}/", file.to_lowercase());
        behind.any(|word| match word.known_text() {
            // Only plain paths are compared; git understands many more.
            Some(path)
                if !path.starts_with([':', '/'])
                    && !path.contains(['*', '?', '[', '\\'])
                    && !path.split('/').any(|part| matches!(part, "." | "..")) =>
            {
                let path = path.to_lowercase();
                let parts = path.split('/').filter(|part| !part.is_empty());
                let path: String = parts.map(|part| format!("/{part}")).collect();
                path.is_empty() || file.contains(&format!("{path}/"))
            }
            _ => true,
        })
    }

    /// Returns the first word that names a file with secrets as git writes it: `HEAD:.env`, `:/.env`, `:(icase).ENV`.
    pub(crate) fn named_secret(&self) -> Option<&str> {
        if !self.shows_contents() {
            return None;
        }
        self.arguments().iter().find_map(|word| {
            let behind = word.text.rsplit([':', ')']).next()?;
            let path = behind.trim_start_matches(['/', '!', '^']);
            // Without a `:` it is a path like that of any program, which was checked.
            (word.text.contains(':') && super::secret_paths::names_secret_file(path))
                .then_some(word.raw.as_str())
        })
    }

    /// Returns the pathspecs with wildcards, which git itself expands even if they are quoted. Words in front of `--` count too, except for
    /// the pattern of `git grep`.
    pub(crate) fn wildcard_pathspecs(&self) -> Vec<&str> {
        let arguments = self.arguments();
        let has_pattern_option = arguments.iter().any(|word| {
            let text = word.known_prefix();
            text.starts_with("-e") || text.starts_with("-f")
        });
        // The pattern of `git grep` is not a pathspec.
        let skipped = usize::from(self.subcommand() == Some("grep") && !has_pattern_option);
        arguments
            .iter()
            .filter_map(ShellWord::known_text)
            .filter(|text| !text.starts_with('-'))
            .skip(skipped)
            .filter(|text| text.contains(['*', '?', '[']))
            .map(|text| {
                text.rsplit([':', ')'])
                    .next()
                    .unwrap_or(text)
                    .trim_start_matches('/')
            })
            .collect()
    }
}

/// The subcommands that only read. Two words name a subcommand of a subcommand, which is looked up first.
const ROWS: &[ProgramGrammar] = &[
    ProgramGrammar::new(&["status"], "-s -b -v -u=? -z --short --branch --show-stash --porcelain=? --long --untracked-files=? --ignored=? --ignore-submodules=? --column=? --no-column --ahead-behind --no-ahead-behind --renames --no-renames --find-renames=?", Paths),
    ProgramGrammar::new(&["diff", "diff-tree", "diff-index", "diff-files"], DIFF, Paths).with_check(no_programs),
    ProgramGrammar::new(&["log", "show", "whatchanged"], LOG, Paths).with_check(no_programs),
    ProgramGrammar::new(&["rev-list"], "-n= -# --count --all --oneline --reverse --max-count= --since= --until= --after= --before= --author= --grep= --merges --no-merges --first-parent --left-right --objects --parents --abbrev-commit --branches=? --tags=? --remotes=? --not --skip= --topo-order --date-order --format= --pretty=? --timestamp --disk-usage=? --ancestry-path=? --boundary --cherry-pick --cherry-mark --left-only --right-only --no-walk=? --min-parents= --max-parents= --committer= -i -E -F --glob= --exclude= --reflog --full-history --quiet --no-commit-header --date=", Paths).with_check(no_programs),
    ProgramGrammar::new(&["shortlog"], "-s -n -e -c --summary --numbered --email --no-merges --all --since= --until= --after= --before= --group=", Paths),
    ProgramGrammar::new(&["blame", "annotate"], "-L= -w -C=? -M=? -e -l -s -t -f -n -p -c --date= --show-name --show-number --show-email --porcelain --line-porcelain --since= --reverse --first-parent --root --color-lines", Paths),
    ProgramGrammar::new(&["grep"], "-a -i -w -v -h -H -E -G -P -F -n -l -L -c -q -o -p -W -z -A= -B= -C= -e= -f=@ -# --text --ignore-case --word-regexp --invert-match --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column --files-with-matches --files-without-match --name-only --count --quiet --only-matching --show-function --function-context --cached --untracked --heading --break --color=? --no-color --all-match --and --or --not --max-depth= --context= --after-context= --before-context= --max-count= --recursive --no-recursive --full-name --null --threads= -m= -I -r", Paths),
    ProgramGrammar::new(&["branch"], "-a -r -v -vv -q -i --all --remotes --verbose --list --show-current --merged=? --no-merged=? --contains=? --no-contains=? --points-at= --sort= --format= --color=? --no-color --column=? --no-column --abbrev= --no-abbrev --ignore-case -l", Text).with_check(only_branch_listing),
    ProgramGrammar::new(&["tag"], "-l -n=? -i --list --sort= --format= --contains=? --no-contains=? --merged=? --no-merged=? --points-at= --column=? --no-column --color=? --ignore-case", Text).with_check(check_lists_only),
    ProgramGrammar::new(&["remote", "remote show"], "-v --verbose", Nothing),
    ProgramGrammar::new(&["submodule status"], "--cached --recursive -q --quiet", Nothing),
    ProgramGrammar::new(&["notes list", "notes show", "bisect log"], "", Text),
    // Without one of these options `git apply` changes files.
    ProgramGrammar::new(&["apply"], "--stat --numstat --summary --check -p= -R --reverse -v --verbose", Paths).with_check(only_prints),
    ProgramGrammar::new(&["bundle verify", "bundle list-heads"], "-q", Paths),
    ProgramGrammar::new(&["check-ref-format"], "--branch --normalize --allow-onelevel", Text),
    ProgramGrammar::new(&["check-mailmap", "patch-id", "stripspace", "get-tar-commit-id"], "--stable -s", Text),
    ProgramGrammar::new(&["remote get-url"], "--push --all", Text),
    ProgramGrammar::new(&["stash list", "stash show"], LOG, Text).with_check(no_programs),
    ProgramGrammar::new(&["config --get", "config --get-all", "config --get-regexp", "config get", "config list", "config --list", "config -l", "config --get-urlmatch"], "-f=@ --file=@ --global --system --local --worktree --show-origin --show-scope --name-only -z --null --all --default= --type= --bool --int --path", AtMost(2)),
    // With a second operand `git config` sets a value.
    ProgramGrammar::new(&["config"], "-f=@ --file=@ --get-regexp --get-all --name-only --global --system --local --worktree --show-origin --show-scope -z --null --type= --bool --int --path --get --list -l --includes", AtMost(1)).with_check(only_setting_name),
    ProgramGrammar::new(&["hash-object"], "-t= --no-filters", Paths),
    ProgramGrammar::new(&["var"], "", Text).with_check(only_git_variables),
    ProgramGrammar::new(&["rev-parse"], "-q --abbrev-ref=? --short=? --verify --show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository --symbolic --symbolic-full-name --all --branches=? --tags=? --remotes=? --quiet --show-superproject-working-tree --show-object-format=? --revs-only --no-revs --default= --path-format= --git-path= --shared-index-path --show-ref-format --disambiguate= --since= --until= --local-env-vars --no-flags --flags --not", Paths),
    ProgramGrammar::new(&["ls-files"], "-c -d -o -i -s -u -k -m -z -t -v -f -x= -X=@ --cached --deleted --others --ignored --stage --unmerged --killed --modified --directory --no-empty-directory --exclude= --exclude-standard --error-unmatch --full-name --recurse-submodules --abbrev=? --eol --deduplicate --format=", Paths),
    ProgramGrammar::new(&["ls-tree"], "-d -r -t -l -z --long --name-only --name-status --object-only --full-name --full-tree --abbrev=? --format=", Paths),
    ProgramGrammar::new(&["cat-file"], "-t -s -e -p --batch=? --batch-check=? --batch-all-objects --buffer --unordered --allow-unknown-type", Text),
    ProgramGrammar::new(&["describe"], "--tags --all --long --always --dirty=? --broken=? --abbrev= --candidates= --match= --exclude= --contains --exact-match --first-parent", Text),
    ProgramGrammar::new(&["name-rev"], "--tags --name-only --refs= --all --always --exclude=", Text),
    ProgramGrammar::new(&["merge-base"], "-a --all --octopus --independent --is-ancestor --fork-point", Text),
    ProgramGrammar::new(&["for-each-ref"], "--count= --sort= --format= --points-at= --merged=? --no-merged=? --contains=? --no-contains=? --ignore-case --exclude= --color=? --omit-empty", Text).with_check(no_programs),
    ProgramGrammar::new(&["show-ref"], "-d -q -s --head --tags --heads --branches --dereference --hash=? --verify --quiet --abbrev=? --exists", Text),
    ProgramGrammar::new(&["show-branch"], "-a -r --all --remotes --current --topo-order --sparse --no-color --color=?", Text),
    // With two operands `git symbolic-ref` sets a reference.
    ProgramGrammar::new(&["symbolic-ref"], "-q --quiet --short --recurse --no-recurse", AtMost(1)),
    ProgramGrammar::new(&["reflog", "reflog show"], LOG, Text).with_check(no_reflog_change),
    ProgramGrammar::new(&["reflog list", "reflog exists"], "", Text),
    ProgramGrammar::new(&["cherry"], "-v --abbrev=?", Text),
    ProgramGrammar::new(&["range-diff"], "--no-color --color=? --stat --no-patch -s --creation-factor= --left-only --right-only", Text),
    ProgramGrammar::new(&["worktree list"], "-v -z --porcelain --verbose", Nothing),
    ProgramGrammar::new(&["count-objects"], "-v -H --verbose --human-readable", Nothing),
    ProgramGrammar::new(&["check-ignore"], "-v -n -q --verbose --non-matching --quiet --no-index", Paths),
    ProgramGrammar::new(&["check-attr"], "-a --all --cached", Paths),
    ProgramGrammar::new(&["version", "--version"], "--build-options", Nothing),
    // With a name `git help` opens a manual, which starts a pager or a browser.
    ProgramGrammar::new(&["help", "--help"], "-a --all -g --guides", Nothing),
    ProgramGrammar::new(&["--exec-path", "--html-path", "--man-path", "--info-path"], "", Nothing),
];

/// Options of `git diff` and its plumbing. Left out are `--output` (writes a file) and `--ext-diff` and `--textconv` (run programs).
const DIFF: &str = "-p -u -s -U= -R -a -b -w -z -r -t -m -c -M=? -C=? -B=? -D -S= -G= -l= -W -1 -2 -3 --patch --no-patch --unified= --raw --patch-with-raw \
    --stat=? --numstat --shortstat --dirstat=? --summary --patch-with-stat --name-only --name-status --color=? --no-color --color-moved=? \
    --no-color-moved --color-words=? --word-diff=? --word-diff-regex= --no-renames --rename-empty --check --full-index --binary --abbrev=? \
    --find-renames=? --find-copies=? --find-copies-harder --irreversible-delete --diff-filter= --pickaxe-all --pickaxe-regex --relative=? \
    --no-relative --text --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines \
    --inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff --no-textconv --ignore-submodules=? --src-prefix= \
    --dst-prefix= --no-prefix --line-prefix= --cached --staged --merge-base --minimal --patience --histogram --diff-algorithm= --anchored= \
    --submodule=? --compact-summary --cc --root --no-commit-id --ours --theirs --base --indent-heuristic --default-prefix --no-index -I= --ignore-matching-lines= --skip-to= --rotate-to= --color-moved-ws= --no-indent-heuristic \
    --output-indicator-new= --output-indicator-old= --output-indicator-context= --combined-all-paths --cumulative";
/// Options of `git log` and `git show`. Left out are `--show-signature` (runs gpg) and those that [`DIFF`] leaves out.
const LOG: &str = "-p -u -s -U= -R -a -b -w -z -r -t -m -c -i -E -F -P -g -q -M=? -C=? -B=? -D -S= -G= -l= -W -n= -# -L= --patch --no-patch --unified= --raw \
    --stat=? --numstat --shortstat --dirstat=? --summary --patch-with-stat --name-only --name-status --color=? --no-color --color-moved=? \
    --color-words=? --word-diff=? --no-renames --check --full-index --binary --abbrev=? --find-renames=? --find-copies=? --find-copies-harder \
    --diff-filter= --pickaxe-all --pickaxe-regex --relative=? --text --ignore-space-at-eol --ignore-space-change --ignore-all-space \
    --ignore-blank-lines --function-context --quiet --no-ext-diff --no-textconv --ignore-submodules=? --no-prefix --minimal --patience \
    --histogram --diff-algorithm= --submodule=? --compact-summary --cc --root --oneline --graph --all --decorate=? --no-decorate \
    --decorate-refs= --decorate-refs-exclude= --source --follow --full-diff --max-count= --skip= --since= --after= --until= --before= \
    --since-as-filter= --author= --committer= --grep-reflog= --grep= --all-match --invert-grep --regexp-ignore-case --basic-regexp \
    --extended-regexp --fixed-strings --perl-regexp --merges --no-merges --min-parents= --max-parents= --first-parent --not --branches=? \
    --tags=? --remotes=? --glob= --exclude= --reflog --walk-reflogs --cherry-pick --cherry-mark --left-only --right-only --cherry --boundary \
    --simplify-by-decoration --full-history --dense --sparse --simplify-merges --ancestry-path=? --date-order --author-date-order \
    --topo-order --reverse --no-walk=? --pretty=? --format= --abbrev-commit --no-abbrev-commit --no-notes --notes=? --relative-date --date= \
    --parents --children --left-right --no-graph --encoding= --expand-tabs=? --no-expand-tabs --log-size --use-mailmap --mailmap \
    --no-mailmap --clear-decorations --line-prefix= -I= --ignore-matching-lines= --skip-to= --rotate-to= --color-moved-ws= \
    --src-prefix= --dst-prefix= --default-prefix --output-indicator-new= --output-indicator-old= --output-indicator-context= \
    --diff-merges= --no-diff-merges --dd --remove-empty --show-pulls --exclude-first-parent-only --ignore-missing --show-linear-break=? \
    --word-diff-regex= --ignore-cr-at-eol --inter-hunk-context= --indent-heuristic --patch-with-raw --rename-empty --anchored= \
    --exit-code --combined-all-paths --count -1 -2 -3 -4 -5";

/// Reports whether a setting for `-c` only changes how something is printed.
fn is_harmless_setting(setting: &str) -> bool {
    let Some((key, value)) = setting.split_once('=') else {
        return false;
    };
    let key = key.to_ascii_lowercase();
    let plain_value = value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match key.as_str() {
        "core.pager" | "pager.log" | "pager.diff" | "pager.show" | "pager.branch" => {
            matches!(value, "cat" | "")
        }
        "core.fsmonitor" | "log.showsignature" => value == "false",
        "core.quotepath"
        | "core.abbrev"
        | "diff.renames"
        | "diff.noprefix"
        | "diff.mnemonicprefix"
        | "diff.context"
        | "diff.algorithm"
        | "log.date"
        | "log.decorate"
        | "column.ui"
        | "status.short"
        | "status.branch"
        | "core.precomposeunicode"
        | "grep.linenumber"
        | "advice.detachedhead" => plain_value,
        key => {
            key.starts_with("color.")
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_alphabetic() || byte == b'.')
                && plain_value
        }
    }
}

/// Rejects formats with which git runs gpg (to verify a signature), and options with which it reads the repositories of submodules, whose
/// configuration could run programs.
fn no_programs(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let mut formats = ["--format=", "--pretty=?"]
        .into_iter()
        .flat_map(|option| seen.option_values(option));
    match formats.find(|format| format.known_text().is_none_or(verifies_signatures)) {
        Some(_) => Err("the format may run gpg".into()),
        None if seen
            .option_values("--submodule=?")
            .all(|value| matches!(value.known_text(), Some("log" | "short"))) =>
        {
            Ok(())
        }
        None => Err("it looks into other repositories".into()),
    }
}

/// Reports whether a format verifies signatures: `%G?` for commits and `%(signature)` for references, also with a sign such as
/// `%+G?`.
fn verifies_signatures(format: &str) -> bool {
    let signed = |rest: &str| {
        rest.trim_start_matches(['+', '-', ' ']).starts_with('G') || rest.contains("signature")
    };
    format.split('%').skip(1).any(signed)
}

/// Accepts `git apply` only with an option that makes it report instead of changing files.
fn only_prints(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen.has_option(&["--stat", "--numstat", "--summary", "--check"]) {
        true => Ok(()),
        false => Err("it changes files".into()),
    }
}

/// Accepts `git branch` only if it lists. Before Git 2.20 `-l` did not list but created a reflog, so it is accepted only alone or
/// with patterns.
fn only_branch_listing(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let patterns = seen
        .operands
        .iter()
        .all(|word| word.known_text().is_some_and(|name| name.contains('*')));
    match seen.has_option(&["-l"]) {
        true if patterns => no_programs(seen),
        true => Err("it may make a branch".into()),
        false => check_lists_only(seen),
    }
}

/// Rejects `git branch NAME` and `git tag NAME`, which create one, unless an option makes them list.
fn check_lists_only(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    const LIST: [&str; 7] = [
        "--list",
        "--merged=?",
        "--no-merged=?",
        "--contains=?",
        "--no-contains=?",
        "--points-at=",
        "-l",
    ];
    match seen.operands.first() {
        Some(word) if !seen.has_option(&LIST) => {
            Err(format!("it may make or change {}", word.raw).into())
        }
        _ => no_programs(seen),
    }
}

/// Accepts `git config KEY`, which prints a value. A word without a dot may be a subcommand (`git config edit`).
fn only_setting_name(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    // Git takes it for the value: `git config core.fsmonitor '--type=x; evil'`.
    if seen.option_after_operand {
        return Err("a word behind the name of a setting may be its value".into());
    }
    let reads = seen.has_option(&["--get", "--get-all", "--get-regexp"]);
    match seen.operands.first() {
        Some(word) if !reads && !word.known_text().is_some_and(|key| key.contains('.')) => {
            Err(format!("{} may be more than the name of a setting", word.raw).into())
        }
        _ => Ok(()),
    }
}

/// Accepts only variables named `GIT_…`. Their values are names and commands, which `git var` prints without running them.
fn only_git_variables(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen.operands.iter().find(|word| {
        !word
            .known_text()
            .is_some_and(|name| name.starts_with("GIT_"))
    }) {
        Some(word) => Err(format!(
            "{} is not understood, so the command needs an approval",
            word.raw
        )
        .into()),
        None => Ok(()),
    }
}

/// Rejects the subcommands of `git reflog` that change it.
fn no_reflog_change(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    no_programs(seen)?;
    match seen.operands.first().map(|word| word.known_text()) {
        Some(Some("expire" | "delete" | "drop" | "exists" | "write") | None) => {
            Err("it may change the log of references".into())
        }
        _ => Ok(()),
    }
}
