//! Applies path rules and symbolic links to the paths that a command names.
//!
//! A rule for a path also applies to commands. A command that names such a path in a word, the value of an option or a redirection,
//! directly or by a pattern that may match it, is treated like an access to the path. If it is only possible that a word becomes
//! such a path, the command asks.
//!
//! For each word there are *candidates*: the word itself, and its parts behind `=`, `:`, `@` and `,`, since programs take paths in
//! such forms (`--file=x`, `HEAD:x`, `@x`). Each candidate is compared in every spelling that a rule may use, relative to the
//! workspace and absolute. A candidate can be certain, a pattern, or only the beginning of a path:
//!
//! | word | candidate | rule `path=secrets/` |
//! | --- | --- | --- |
//! | `secrets/a`, `./src/../secrets` | a path | denied |
//! | `s*/a`, `*/a` | a pattern, intersected with the rule's | denied |
//! | `s$x` | a beginning | asks, since `$x` may be `ecrets` |
//! | `"$x"` | anything | asks |
//! | `.` for `rm -r` | a folder above | asks |
//!
//! Two patterns are intersected exactly, by a walk over both at the same time: there is a text that matches both, or there is none.
//! Expanding the shell's pattern on disk would answer only for the files of this moment.

use super::Verdict;
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::path_scope::FolderScope;
use super::pattern::RulePattern;
use super::word::{ShellWord, WordForm};
use super::{matches_path, path_scope};

/// The most paths that are collected for one line.
const MAX_PATHS: usize = 500;

/// A path that a word may name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathCandidate {
    /// Exactly this path.
    Path(String),
    /// The paths that match a shell pattern.
    Glob(String),
    /// Paths that begin with this text.
    Prefix(String),
}

impl CommandEvaluator<'_> {
    /// Checks the words of a command, including its name, against the user's path rules and the known symbolic links.
    pub(crate) fn check_paths(
        &mut self,
        words: &[ShellWord],
        scope: &ShellScope,
    ) -> Option<PolicyFinding> {
        let ruled = self.rules.has_path_rules();
        if !ruled && self.facts.links.is_empty() && self.touched_paths.is_none() {
            return None;
        }
        // With `-C folder` a word may be relative to either folder, so both are checked.
        let folders = candidate_folders(words, &scope.folder, &self.facts.root);
        let name = words
            .first()
            .and_then(ShellWord::known_text)
            .unwrap_or_default();
        let reads = super::programs::find_program(name).is_some();
        // Arguments of echo and printf are rarely paths. Those with a certain text are checked,
        // because the output may be piped to another command.
        let prints = matches!(name, "echo" | "printf");
        let mut finding = None;
        for word in words
            .iter()
            .filter(|word| !prints || matches!(word.form, WordForm::Literal | WordForm::Glob(_)))
        {
            for folder in &folders {
                let found = self.check_word_paths(word, folder, ruled, reads);
                finding = match (finding, found) {
                    (Some(one), Some(other)) => Some(PolicyFinding::stricter(one, other)),
                    (one, other) => one.or(other),
                };
            }
        }
        finding
    }

    /// Checks one word. `ruled` is true if there are path rules; `reads` is true if the program is known to only read.
    fn check_word_paths(
        &mut self,
        word: &ShellWord,
        folder: &FolderScope,
        ruled: bool,
        reads: bool,
    ) -> Option<PolicyFinding> {
        let names = path_candidates(word);
        let Some(names) = names else {
            return ruled.then(|| {
                PolicyFinding::always_ask(format!(
                    "{} may become a path that a rule speaks of",
                    word.raw
                ))
            });
        };
        let mut findings = Vec::new();
        for name in &names {
            if let Some(key) = workspace_path(name, folder, &self.facts.root) {
                findings.extend(self.check_links(&key));
                if let Some(touched) = &mut self.touched_paths
                    && touched.len() <= MAX_PATHS
                    && let path = (key, matches!(name, PathCandidate::Glob(_)))
                    && !touched.contains(&path)
                {
                    touched.push(path);
                }
            }
            if ruled {
                findings.extend(self.check_path_rules(name, folder, reads));
            }
        }
        findings.into_iter().reduce(PolicyFinding::stricter)
    }

    /// Checks whether a path leads by symbolic links out of the workspace, to a path with a rule, or to a file with secrets.
    fn check_links(&mut self, key: &str) -> Option<PolicyFinding> {
        let facts = self.facts;
        let leads = facts.links.iter().filter(|(path, _)| path == key);
        let findings = leads.filter_map(|(_, leads)| {
            let Some(leads) = leads else {
                return Some(PolicyFinding::always_ask(format!(
                    "{key} leads out of the workspace by a link, or may"
                )));
            };
            // A link is as good as its target: the rule for the target counts.
            let by_rule = self.path_rule_finding(&|pattern| covers_path(pattern, leads), leads);
            let secret = || {
                Some(PolicyFinding::ask(format!(
                    "{key} leads to {leads}, which {}",
                    super::secret_paths::secret_reason(leads)?
                )))
            };
            by_rule.or_else(secret)
        });
        findings.reduce(PolicyFinding::stricter)
    }

    /// Checks a path against the user's rules. A program that may write is also checked for folders above a denied path.
    fn check_path_rules(
        &mut self,
        name: &PathCandidate,
        folder: &FolderScope,
        reads: bool,
    ) -> Option<PolicyFinding> {
        // The candidate is shown as the line spells it, so that the user finds it there.
        let shown = match name {
            PathCandidate::Path(text) | PathCandidate::Glob(text) | PathCandidate::Prefix(text) => {
                text.as_str()
            }
        };
        let root = self.facts.root.clone();
        let by_rule = self
            .path_rule_finding(&|pattern| may_match(pattern, name, folder, &root), shown)
            .map(|finding| match name {
                PathCandidate::Prefix(_) => PolicyFinding::always_ask(format!(
                    "{shown}… may become a path that a rule speaks of"
                )),
                _ => finding,
            });
        // `rm -r folder` also removes a denied path inside of the folder.
        let holds = |pattern: &str| !reads && is_ancestor_of_rule(pattern, name, folder, &root);
        let above = || {
            let any = self
                .rules
                .deny
                .iter()
                .any(|rule| matches!(rule, RulePattern::Path(pattern) if holds(pattern)));
            any.then(|| {
                PolicyFinding::always_ask(format!("{shown} holds a path that a rule forbids"))
            })
        };
        by_rule.or_else(above)
    }

    /// Returns the finding of the first deny or ask rule whose pattern passes `is_meant`.
    fn path_rule_finding(
        &mut self,
        is_meant: &dyn Fn(&str) -> bool,
        shown: &str,
    ) -> Option<PolicyFinding> {
        let any = |rules: &[RulePattern]| {
            rules
                .iter()
                .any(|rule| matches!(rule, RulePattern::Path(pattern) if is_meant(pattern)))
        };
        if any(&self.rules.deny) {
            let reason = format!("a rule forbids the path {shown}");
            return Some(PolicyFinding {
                verdict: Verdict::Deny,
                reason,
                always_asks: true,
            });
        }
        if any(&self.rules.ask) {
            self.asked_by_rule = true;
            return Some(PolicyFinding::always_ask(format!(
                "a rule asks about the path {shown}"
            )));
        }
        None
    }
}

/// Returns the folders from which the words of a command may be resolved: the current one, and those given with `-C`.
fn candidate_folders(words: &[ShellWord], folder: &FolderScope, root: &str) -> Vec<FolderScope> {
    let pairs = words.windows(2);
    let others = pairs.filter_map(|pair| match pair {
        [option, other] if option.known_text() == Some("-C") => other.known_text(),
        _ => None,
    });
    let mut folders = vec![folder.clone()];
    for other in others {
        folders.push(
            folder
                .join(other, root)
                .unwrap_or_else(|_| FolderScope::unknown_inside()),
        );
    }
    folders
}

/// Returns the paths that a word may name: the word itself and its parts behind `=`, `:`, `@`, `,` and a short option
/// (`-ffile`). `None` if the word can become anything.
fn path_candidates(word: &ShellWord) -> Option<Vec<PathCandidate>> {
    let make: fn(String) -> PathCandidate = match word.form {
        WordForm::Literal => PathCandidate::Path,
        WordForm::Glob(_) => PathCandidate::Glob,
        WordForm::Field(known) if known.inside && word.text.is_empty() => return Some(Vec::new()),
        WordForm::Field(_) if word.text.is_empty() => return home_candidates(word),
        WordForm::Field(_) => PathCandidate::Prefix,
        WordForm::Fields | WordForm::Odd(_) => return home_candidates(word),
    };
    let text = word.text.as_str();
    let mut texts = vec![text];
    texts.extend(
        text.match_indices(['=', ':', '@', ','])
            .filter_map(|(at, _)| text.get(at + 1..)),
    );
    if text.starts_with('-') && !text.starts_with("--") {
        texts.extend(text.get(2..));
    }
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    Some(texts.map(|text| make(text.to_owned())).collect())
}

/// Returns the workspace paths that a word may name, as [`required_facts`](super::required_facts) spells them.
pub(crate) fn named_workspace_paths(
    word: &ShellWord,
    folder: &FolderScope,
    root: &str,
) -> Vec<String> {
    let names = path_candidates(word).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| workspace_path(name, folder, root))
        .collect()
}

/// Returns the path of a word that begins with the home folder (`~`, `$HOME`), which rules may name as `~/…`.
fn home_candidates(word: &ShellWord) -> Option<Vec<PathCandidate>> {
    let raw: String = word
        .raw
        .chars()
        .filter(|c| !matches!(c, '"' | '\'' | '\\'))
        .collect();
    let rest = ["~", "$HOME", "${HOME}"]
        .iter()
        .find_map(|home| raw.strip_prefix(home))?;
    let plain = (rest.is_empty() || rest.starts_with('/')) && !rest.contains(['$', '`', '{']);
    let path = format!("~{rest}");
    plain.then(|| {
        vec![if rest.contains(['*', '?', '[']) {
            PathCandidate::Glob(path)
        } else {
            PathCandidate::Path(path)
        }]
    })
}

/// Returns a path relative to the workspace, in the spelling of the line. `None` if it lies outside or is not certain.
fn workspace_path(name: &PathCandidate, folder: &FolderScope, root: &str) -> Option<String> {
    let (PathCandidate::Path(text) | PathCandidate::Glob(text)) = name else {
        return None;
    };
    if text.starts_with(['-', '~']) {
        return None;
    }
    if let Some(rest) = path_scope::strip_root(text, root) {
        return Some(rest.trim_start_matches('/').to_owned()).filter(|rest| !rest.is_empty());
    }
    match folder.path()? {
        _ if text.starts_with('/') => None,
        "." => Some(text.clone()),
        folder => Some(format!("{folder}/{text}")),
    }
}

/// Returns the spellings of a path that a rule may use: relative to the workspace, and absolute.
fn path_spellings(text: &str, folder: &FolderScope, root: &str) -> Vec<String> {
    if text.starts_with('~') {
        return vec![normalize_path(text)];
    }
    if text.starts_with('/') {
        let absolute = normalize_path(text);
        let inside = path_scope::strip_root(&absolute, root)
            .map(|rest| rest.trim_start_matches('/').to_owned());
        return inside.into_iter().chain([absolute]).collect();
    }
    let Some(folder) = folder.path() else {
        return vec![normalize_path(text)];
    };
    let relative = normalize_path(&format!("{folder}/{text}"));
    if root.is_empty() {
        return vec![relative];
    }
    let absolute = normalize_path(&format!("{root}/{relative}"));
    if relative.starts_with("..") {
        vec![absolute]
    } else {
        vec![relative, absolute]
    }
}

/// Removes `.`, `..` and empty components from a path, by its text alone. A `..` at the front of a relative path stays.
pub(super) fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if path.starts_with('/') {
        format!("/{joined}")
    } else {
        joined
    }
}

/// Reports whether a rule's pattern matches a path or everything in it.
fn covers_path(pattern: &str, path: &str) -> bool {
    matches_path(pattern, path)
        || pattern
            .strip_suffix("/**")
            .is_some_and(|folder| matches_path(folder, path))
}

/// Reports whether a rule may match a candidate.
fn may_match(pattern: &str, name: &PathCandidate, folder: &FolderScope, root: &str) -> bool {
    let known = folder.path().is_some();
    let (PathCandidate::Path(text) | PathCandidate::Glob(text) | PathCandidate::Prefix(text)) =
        name;
    let absolute = text.starts_with(['/', '~']);
    path_spellings(text, folder, root).iter().any(|way| {
        let one = |pattern: &str| match name {
            PathCandidate::Path(_) => covers_path(pattern, way),
            PathCandidate::Glob(_) => may_intersect(pattern, way, false),
            PathCandidate::Prefix(_) => may_intersect(pattern, way, true),
        };
        // If the current folder is not certain, it may be any folder of the pattern, so each rest
        // of the pattern is tried.
        let cut = |(at, _): (usize, &str)| pattern.get(at + 1..).is_some_and(one);
        one(pattern) || !known && !absolute && pattern.match_indices('/').any(cut)
    })
}

/// Reports whether a candidate is a folder above the paths of a rule.
fn is_ancestor_of_rule(
    pattern: &str,
    name: &PathCandidate,
    folder: &FolderScope,
    root: &str,
) -> bool {
    let fixed = pattern.split('*').next().unwrap_or_default();
    let PathCandidate::Path(text) = name else {
        return false;
    };
    path_spellings(text, folder, root).iter().any(|way| {
        !way.is_empty()
            && fixed
                .strip_prefix(way.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// A piece of a glob pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobPiece {
    Literal(char),
    /// Any character but `/`.
    AnyChar,
    /// Any number of characters but `/`.
    AnySegment,
    /// At most one character that may begin a visible name: neither `/` nor a dot.
    OptionalFirst,
    /// Any number of any characters.
    Anything,
}

impl GlobPiece {
    /// Reports whether some character fits both pieces.
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Literal(one), Self::Literal(other)) => one == other,
            (Self::Literal(c), Self::AnyChar | Self::AnySegment)
            | (Self::AnyChar | Self::AnySegment, Self::Literal(c)) => c != '/',
            (Self::Literal(c), Self::OptionalFirst) | (Self::OptionalFirst, Self::Literal(c)) => {
                c != '/' && c != '.'
            }
            _ => true,
        }
    }
}

/// Reports whether a rule's pattern and a shell pattern may match the same path. `open` is true if unknown text follows the word.
pub(crate) fn may_intersect(rule: &str, word: &str, open: bool) -> bool {
    let rules = [
        rule.to_owned(),
        format!("{rule}/**"),
        rule.strip_suffix("/**").unwrap_or(rule).to_owned(),
    ];
    let mut word = shell_pieces(word);
    if open {
        word.push(GlobPiece::Anything);
    }
    rules
        .iter()
        .flat_map(|rule| rule_pieces(rule))
        .any(|rule| patterns_intersect(&rule, &word))
}

/// Splits a rule's pattern into pieces, once for each reading of its `**/`: `a/**/b` also means `a/b`.
fn rule_pieces(rule: &str) -> Vec<Vec<GlobPiece>> {
    // Each `**/` doubles the number of readings. Beyond this limit `**/` stands for any text, which
    // matches too much.
    const MAX_WAYS: usize = 16;
    let mut ways = vec![Vec::new()];
    let mut rest = rule.chars();
    while let Some(c) = rest.next() {
        let across = c == '*' && rest.as_str().starts_with('*');
        if across {
            rest.next();
        }
        if across && rest.as_str().starts_with('/') {
            rest.next();
            let folders = [GlobPiece::Anything, GlobPiece::Literal('/')];
            if ways.len() < MAX_WAYS {
                let with = ways
                    .iter()
                    .map(|way: &Vec<GlobPiece>| way.iter().copied().chain(folders).collect());
                let with: Vec<_> = with.collect();
                ways.extend(with);
            } else {
                ways.iter_mut()
                    .for_each(|way| way.push(GlobPiece::Anything));
            }
            continue;
        }
        let piece = match c {
            '*' if across => GlobPiece::Anything,
            '*' => GlobPiece::AnySegment,
            c => GlobPiece::Literal(c),
        };
        ways.iter_mut().for_each(|way| way.push(piece));
    }
    ways
}

/// Splits a shell pattern into pieces.
fn shell_pieces(word: &str) -> Vec<GlobPiece> {
    glob_pieces(word, false)
}

/// Splits a pattern into pieces. `dots` is true if a star at the beginning of a name also matches hidden files, as in
/// `find -name` and `grep --include`.
pub(crate) fn glob_pieces(word: &str, dots: bool) -> Vec<GlobPiece> {
    let mut pieces = Vec::new();
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        let begins = !dots && matches!(pieces.last(), None | Some(GlobPiece::Literal('/')));
        match c {
            // zsh, and bash with `globstar`, lets two stars match any folders.
            '*' if rest.as_str().starts_with('*') => {
                rest.next();
                pieces.extend(begins.then_some(GlobPiece::OptionalFirst));
                pieces.push(GlobPiece::Anything);
            }
            // A star at the beginning of a name does not match hidden files.
            '*' if begins => pieces.extend([GlobPiece::OptionalFirst, GlobPiece::AnySegment]),
            '*' => pieces.push(GlobPiece::AnySegment),
            '?' => pieces.push(GlobPiece::AnyChar),
            // A set of characters counts as any character, which may match too much but never too
            // little.
            '[' => match rest.as_str().find(']') {
                Some(end) => {
                    rest = rest.as_str().get(end + 1..).unwrap_or_default().chars();
                    pieces.push(GlobPiece::AnyChar);
                }
                None => pieces.push(GlobPiece::Literal('[')),
            },
            c => pieces.push(GlobPiece::Literal(c)),
        }
    }
    pieces
}

/// Returns the pieces of two texts, one behind the other, that mean themselves.
pub(crate) fn prefix_pieces(text: &str, behind: &str) -> Vec<GlobPiece> {
    text.chars()
        .chain(behind.chars())
        .map(GlobPiece::Literal)
        .collect()
}

/// Removes the workspace folder and leading `./` from the certain beginning of a path, so that it is relative to the workspace.
pub(crate) fn normalize_prefix(text: &str, root: &str) -> String {
    let inside =
        path_scope::strip_root(text, root).map_or(text, |rest| rest.trim_start_matches('/'));
    inside.trim_start_matches("./").to_owned()
}

/// Reports whether one component of a shell pattern may match a name of the table of secrets, in which `*` is any text.
pub(crate) fn may_intersect_name(rule: &str, part: &str) -> bool {
    patterns_intersect(&glob_pieces(rule, true), &glob_pieces(part, false))
}

/// Reports whether some text matches both patterns.
///
/// Fills a table of pattern positions that the same text can reach, so the time is quadratic in the lengths.
pub(crate) fn patterns_intersect(rule: &[GlobPiece], word: &[GlobPiece]) -> bool {
    let width = word.len() + 1;
    let mut open = vec![false; (rule.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    let mark = |open: &mut Vec<bool>, i: usize, j: usize| {
        if let Some(cell) = open.get_mut(at(i, j)) {
            *cell = true;
        }
    };
    mark(&mut open, 0, 0);
    for i in 0..=rule.len() {
        for j in 0..=word.len() {
            if !open.get(at(i, j)).copied().unwrap_or_default() {
                continue;
            }
            let one = rule.get(i).copied();
            let other = word.get(j).copied();
            if matches!(one, Some(GlobPiece::AnySegment | GlobPiece::Anything)) {
                mark(&mut open, i + 1, j);
            }
            match other {
                Some(GlobPiece::AnySegment | GlobPiece::Anything) => mark(&mut open, i, j + 1),
                // The star that follows an empty first character is empty, too, so both are skipped
                // together.
                Some(GlobPiece::OptionalFirst) => mark(&mut open, i, j + 2),
                _ => {}
            }
            let (Some(one), Some(other)) = (one, other) else {
                continue;
            };
            if one.overlaps(other) {
                // A star stays at its position or moves on; any other piece moves on.
                let i = if matches!(one, GlobPiece::AnySegment | GlobPiece::Anything) {
                    [i, i + 1]
                } else {
                    [i + 1; 2]
                };
                let j = if matches!(other, GlobPiece::AnySegment | GlobPiece::Anything) {
                    [j, j + 1]
                } else {
                    [j + 1; 2]
                };
                for (i, j) in i.into_iter().flat_map(|i| j.map(|j| (i, j))) {
                    mark(&mut open, i, j);
                }
            }
        }
    }
    open.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersections_of_patterns() {
        let check = |rule: &str, word: &str, expected| {
            assert_eq!(may_intersect(rule, word, false), expected, "{rule} {word}")
        };
        check("**/.env", "svc/.e*", true);
        check("**/.env", "svc/*", false);
        check("**/.env", "svc/.*", true);
        check("**/.env", "*/.env", true);
        check("**/.env", "svc/?env", true);
        check("**/.env", "svc/.e[mn]v", true);
        check("secrets/**", "s*", true);
        check("secrets/**", "s*/a", true);
        check("secrets/**", "*/a", true);
        check("secrets/*.pem", "secrets/*.txt", false);
        check("secrets/*.pem", "secrets/a*", true);
        check("a/**/b", "a/b*", true);
        check("a", "b*", false);
        assert!(may_intersect("**/.env", "svc/.e", true));
        assert!(!may_intersect("secrets/a", "src/", true));
    }

    #[test]
    fn paths_are_normalized() {
        let check = |path: &str, expected: &str| assert_eq!(normalize_path(path), expected);
        check("./a//b/.", "a/b");
        check("a/../b", "b");
        check("../a", "../a");
        check("/../a/", "/a");
        check("", "");
    }
}
