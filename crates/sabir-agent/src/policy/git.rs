//! git: the subcommands that only look, and what is allowed of each.

use super::facts::{Facts, Repository};
use super::grammar::Operands::{AtMost, Nothing, Paths, Text};
use super::grammar::{Ground, Row, Seen};
use super::place::Folder;
use super::word::Word;

/// What git would do, and where.
pub(crate) struct Git<'a> {
    /// The folder that it would look for a repository in.
    pub(crate) folder: Folder,
    /// The subcommand and what stands behind it.
    pub(crate) words: &'a [Word],
}

/// Takes git's own options from the words behind `git`.
///
/// # Errors
/// One that is not judged.
pub(crate) fn split<'a>(words: &'a [Word], ground: Ground<'_>) -> Result<Git<'a>, String> {
    let (mut folder, mut rest) = (ground.folder.clone(), words);
    while let Some((word, behind)) = rest.split_first() {
        match word.known() {
            Some("-P" | "--no-pager" | "--no-optional-locks" | "--literal-pathspecs") => rest = behind,
            Some("-C") => {
                let (path, behind) = behind.split_first().ok_or("-C needs a folder")?;
                let path = path.known().ok_or_else(|| format!("the folder {} is not certain", path.raw))?;
                folder = folder.join(path, ground.root)?;
                rest = behind;
            }
            _ => break,
        }
    }
    Ok(Git { folder, words: rest })
}

impl Git<'_> {
    /// Whether it only looks, in a repository that runs nothing. The folder is asked for where it is not known.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn looks(&self, facts: &Facts, wanted: &mut Vec<String>) -> Result<(), String> {
        let (name, rest) = self.words.split_first().ok_or("git prints its help")?;
        let name = name.known().ok_or_else(|| format!("what {} becomes is not known", name.raw))?;
        let nested = rest.first().and_then(Word::known).map(|second| format!("{name} {second}"));
        let found = |name: &str| ROWS.iter().find(|row| row.names.contains(&name));
        let (row, rest) = match nested.as_deref().and_then(found) {
            Some(row) => (row, rest.get(1..).unwrap_or_default()),
            None => {
                let row = found(name).ok_or_else(|| format!("git {name} is not known to only look"))?;
                (row, rest)
            }
        };
        row.allows(rest, Ground { folder: &self.folder, root: &facts.root })?;
        if matches!(name, "--version" | "version") {
            return Ok(());
        }
        let folder = self.folder.path().ok_or("where git would run is not certain")?;
        match facts.repository(folder) {
            Repository::None | Repository::Clean => Ok(()),
            Repository::Executes(keys) => Err(format!(
                "the repository's configuration can run programs ({}); `sabir trust` trusts it as it is",
                keys.join(", ")
            )),
            Repository::Changed(things) => Err(format!(
                "what the repository's configuration runs has changed since you trusted it ({}); `sabir trust` shows it",
                things.join(", ")
            )),
            Repository::Unknown => {
                if !wanted.iter().any(|known| known == folder) {
                    wanted.push(folder.to_owned());
                }
                Err("what the repository's configuration runs is not known".to_owned())
            }
        }
    }
}

const ROWS: &[Row] = &[
    Row::new(&["status"], "-s -b -v -u=? -z --short --branch --show-stash --porcelain=? --long --untracked-files=? --ignored=? --ignore-submodules=? --column=? --no-column --ahead-behind --no-ahead-behind --renames --no-renames --find-renames=?", Paths),
    Row::new(&["diff", "diff-tree", "diff-index", "diff-files"], DIFF, Paths),
    Row::new(&["log", "show", "whatchanged"], LOG, Paths),
    Row::new(&["rev-list"], "-n= -# --count --all --oneline --reverse --max-count= --since= --until= --after= --before= --author= --grep= --merges --no-merges --first-parent --left-right --objects --parents --abbrev-commit --branches=? --tags=? --remotes=? --not --skip= --topo-order --date-order", Paths),
    Row::new(&["shortlog"], "-s -n -e -c --summary --numbered --email --no-merges --all --since= --until= --after= --before= --group=", Paths),
    Row::new(&["blame", "annotate"], "-L= -w -C=? -M=? -e -l -s -t -f -n -p -c --date= --show-name --show-number --show-email --porcelain --line-porcelain --since= --reverse --first-parent --root --color-lines", Paths),
    Row::new(&["grep"], "-a -i -w -v -h -H -E -G -P -F -n -l -L -c -q -o -p -W -z -A= -B= -C= -e= -f=@ -# --text --ignore-case --word-regexp --invert-match --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column --files-with-matches --files-without-match --name-only --count --quiet --only-matching --show-function --function-context --cached --untracked --heading --break --color=? --no-color --all-match --and --or --not --max-depth= --context= --after-context= --before-context= --max-count= --recursive --no-recursive --full-name --null --threads= -m= -I -r", Paths),
    Row::new(&["branch"], "-a -r -v -vv -q -i --all --remotes --verbose --list --show-current --merged=? --no-merged=? --contains=? --no-contains=? --points-at= --sort= --format= --color=? --no-color --column=? --no-column --abbrev= --no-abbrev --ignore-case", Text).also(lists),
    Row::new(&["tag"], "-l -n=? -i --list --sort= --format= --contains=? --no-contains=? --merged=? --no-merged=? --points-at= --column=? --no-column --color=? --ignore-case", Text).also(lists),
    Row::new(&["remote"], "-v --verbose", Nothing),
    Row::new(&["remote get-url"], "--push --all", Text),
    Row::new(&["stash list", "stash show"], LOG, Text),
    Row::new(&["config --get", "config --get-all", "config --get-regexp", "config get", "config list", "config --list", "config -l"], "--global --system --local --worktree --show-origin --show-scope --name-only -z --null --all --default= --type= --bool --int --path", AtMost(2)),
    // With a second operand it sets.
    Row::new(&["config"], "--global --system --local --worktree --show-origin --show-scope -z --null --type= --bool --int --path --get --list -l --includes", AtMost(1)).also(one_key),
    Row::new(&["hash-object"], "-t= --no-filters", Paths),
    Row::new(&["var"], "", Text).also(no_editor),
    Row::new(&["rev-parse"], "-q --abbrev-ref=? --short=? --verify --show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository --symbolic --symbolic-full-name --all --branches=? --tags=? --remotes=? --quiet --show-superproject-working-tree --show-object-format=? --revs-only --no-revs --default=", Paths),
    Row::new(&["ls-files"], "-c -d -o -i -s -u -k -m -z -t -v -f -x= -X=@ --cached --deleted --others --ignored --stage --unmerged --killed --modified --directory --no-empty-directory --exclude= --exclude-standard --error-unmatch --full-name --recurse-submodules --abbrev=? --eol --deduplicate --format=", Paths),
    Row::new(&["ls-tree"], "-d -r -t -l -z --long --name-only --name-status --object-only --full-name --full-tree --abbrev=? --format=", Paths),
    Row::new(&["cat-file"], "-t -s -e -p", Text),
    Row::new(&["describe"], "--tags --all --long --always --dirty=? --broken=? --abbrev= --candidates= --match= --exclude= --contains --exact-match --first-parent", Text),
    Row::new(&["name-rev"], "--tags --name-only --refs= --all --always --exclude=", Text),
    Row::new(&["merge-base"], "-a --all --octopus --independent --is-ancestor --fork-point", Text),
    Row::new(&["for-each-ref"], "--count= --sort= --format= --points-at= --merged=? --no-merged=? --contains=? --no-contains=? --ignore-case --exclude= --color=?", Text),
    Row::new(&["show-ref"], "-d -q -s --head --tags --heads --branches --dereference --hash=? --verify --quiet --abbrev=? --exists", Text),
    Row::new(&["show-branch"], "-a -r --all --remotes --current --topo-order --sparse --no-color --color=?", Text),
    // With two operands it sets.
    Row::new(&["symbolic-ref"], "-q --quiet --short --recurse --no-recurse", AtMost(1)),
    Row::new(&["reflog", "reflog show"], LOG, Text).also(no_reflog_change),
    Row::new(&["cherry"], "-v --abbrev=?", Text),
    Row::new(&["range-diff"], "--no-color --color=? --stat --no-patch -s --creation-factor= --left-only --right-only", Text),
    Row::new(&["worktree list"], "-v -z --porcelain --verbose", Nothing),
    Row::new(&["count-objects"], "-v -H --verbose --human-readable", Nothing),
    Row::new(&["check-ignore"], "-v -n -q --verbose --non-matching --quiet --no-index", Paths),
    Row::new(&["check-attr"], "-a --all --cached", Paths),
    Row::new(&["version", "--version"], "--build-options", Nothing),
];

const DIFF: &str = "-p -u -s -U= -R -a -b -w -z -r -t -m -c -M=? -C=? -B=? -D -S= -G= -l= -W -1 -2 -3 --patch --no-patch --unified= --raw --patch-with-raw \
    --stat=? --numstat --shortstat --dirstat=? --summary --patch-with-stat --name-only --name-status --color=? --no-color --color-moved=? \
    --no-color-moved --color-words=? --word-diff=? --word-diff-regex= --no-renames --rename-empty --check --full-index --binary --abbrev=? \
    --find-renames=? --find-copies=? --find-copies-harder --irreversible-delete --diff-filter= --pickaxe-all --pickaxe-regex --relative=? \
    --no-relative --text --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines \
    --inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff --no-textconv --ignore-submodules=? --src-prefix= \
    --dst-prefix= --no-prefix --line-prefix= --cached --staged --merge-base --minimal --patience --histogram --diff-algorithm= --anchored= \
    --submodule=? --compact-summary --cc --root --no-commit-id --ours --theirs --base --indent-heuristic --default-prefix";
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
    --no-mailmap --clear-decorations --count -1 -2 -3 -4 -5";

/// `git branch NAME` and `git tag NAME` make one, unless something says that they list.
fn lists(seen: &Seen<'_>) -> Result<(), String> {
    const LIST: [&str; 7] =
        ["--list", "--merged=?", "--no-merged=?", "--contains=?", "--no-contains=?", "--points-at=", "-l"];
    match seen.operands.first() {
        Some(word) if !seen.has(&LIST) => Err(format!("it may make or change {}", word.raw)),
        _ => Ok(()),
    }
}

/// `git config NAME` prints; words without a point are its subcommands.
fn one_key(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.first() {
        Some(word) if !word.known().is_some_and(|key| key.contains('.')) => {
            Err(format!("{} may be more than the name of a setting", word.raw))
        }
        _ => Ok(()),
    }
}

fn no_editor(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.iter().find(|word| !word.known().is_some_and(|name| name.starts_with("GIT_"))) {
        Some(word) => Err(format!("{} is not judged here", word.raw)),
        None => Ok(()),
    }
}

fn no_reflog_change(seen: &Seen<'_>) -> Result<(), String> {
    match seen.operands.first().map(|word| word.known()) {
        Some(Some("expire" | "delete" | "drop" | "exists" | "write") | None) => {
            Err("it may change the log of references".to_owned())
        }
        _ => Ok(()),
    }
}
