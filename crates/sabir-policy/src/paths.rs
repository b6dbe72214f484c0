//! What a command names: paths that rules speak of, and links that lead somewhere else.
//!
//! A rule for a path also holds for commands: one that names such a path by a word, an option's value or a redirection, directly or
//! by a pattern that may match, is denied. What a word will be is not always certain; what may be such a path is asked about.

use super::Verdict;

use super::judge::{Finding, Judge, Scope};
use super::pattern::Pattern;
use super::place::Folder;
use super::word::{Form, Word};
use super::{matches_path, place};

/// More paths than these are not looked at one by one.
const MAX_PATHS: usize = 500;

/// A path as a word names it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// This one.
    Path(String),
    /// Those that match.
    Glob(String),
    /// Some that begin so.
    Open(String),
}

impl Judge<'_> {
    /// What the user's path rules and the links of the place say of the words of a command, its name among them.
    pub(crate) fn paths(&mut self, words: &[Word], scope: &Scope) -> Option<Finding> {
        let ruled = self.rules.speaks_of_paths();
        if !ruled && self.facts.links.is_empty() && self.touched.is_none() {
            return None;
        }
        let folders = folders(words, &scope.folder, &self.facts.root);
        let name = words.first().and_then(Word::known).unwrap_or_default();
        let reads = super::programs::row(name).is_some();
        // What these print is no path, unless it is one for certain: another command may get it.
        let prints = matches!(name, "echo" | "printf");
        let mut finding = None;
        for word in words.iter().filter(|word| !prints || matches!(word.form, Form::Literal | Form::Glob(_))) {
            for folder in &folders {
                let found = self.word_named(word, folder, (ruled, reads));
                finding = match (finding, found) {
                    (Some(one), Some(other)) => Some(Finding::and(one, other)),
                    (one, other) => one.or(other),
                };
            }
        }
        finding
    }

    fn word_named(&mut self, word: &Word, folder: &Folder, (ruled, reads): (bool, bool)) -> Option<Finding> {
        let names = names(word);
        let Some(names) = names else {
            return ruled.then(|| Finding::firm(format!("{} may become a path that a rule speaks of", word.raw)));
        };
        let mut findings = Vec::new();
        for name in &names {
            if let Some(key) = spelled(name, folder, &self.facts.root) {
                findings.extend(self.linked(&key));
                if let Some(touched) = &mut self.touched
                    && touched.len() <= MAX_PATHS
                    && let path = (key, matches!(name, Named::Glob(_)))
                    && !touched.contains(&path)
                {
                    touched.push(path);
                }
            }
            if ruled {
                findings.extend(self.ruled(name, folder, reads));
            }
        }
        findings.into_iter().reduce(Finding::and)
    }

    /// Whether a path is, or leads by links to, what may not be read unasked.
    fn linked(&mut self, key: &str) -> Option<Finding> {
        let facts = self.facts;
        let leads = facts.links.iter().filter(|(path, _)| path == key);
        let findings = leads.filter_map(|(_, leads)| {
            let Some(leads) = leads else {
                return Some(Finding::firm(format!("{key} leads out of the workspace by a link, or may")));
            };
            let by_rule = self.by_rule(&|pattern| names_path(pattern, leads), leads);
            let secret = || Some(Finding::ask(format!("{key} leads to {leads}, which {}", place::secret(leads)?)));
            by_rule.or_else(secret)
        });
        findings.reduce(Finding::and)
    }

    fn ruled(&mut self, name: &Named, folder: &Folder, reads: bool) -> Option<Finding> {
        let shown = match name {
            Named::Path(text) | Named::Glob(text) | Named::Open(text) => text.as_str(),
        };
        let root = self.facts.root.clone();
        let by_rule = self.by_rule(&|pattern| means(pattern, name, folder, &root), shown).map(|finding| match name {
            Named::Open(_) => Finding::firm(format!("{shown}… may become a path that a rule speaks of")),
            _ => finding,
        });
        let holds = |pattern: &str| !reads && holds(pattern, name, folder, &root);
        let above = || {
            let any = self.rules.deny.iter().any(|rule| matches!(rule, Pattern::Path(pattern) if holds(pattern)));
            any.then(|| Finding::firm(format!("{shown} holds a path that a rule forbids")))
        };
        by_rule.or_else(above)
    }

    fn by_rule(&mut self, means: &dyn Fn(&str) -> bool, shown: &str) -> Option<Finding> {
        let any = |rules: &[Pattern]| rules.iter().any(|rule| matches!(rule, Pattern::Path(pattern) if means(pattern)));
        if any(&self.rules.deny) {
            let reason = format!("a rule forbids the path {shown}");
            return Some(Finding { verdict: Verdict::Deny, reason, firm: true });
        }
        if any(&self.rules.ask) {
            self.asked_by_rule = true;
            return Some(Finding::firm(format!("a rule asks about the path {shown}")));
        }
        None
    }
}

/// Where the words of a command may be looked for: in its folder, and in those that `-C` names.
fn folders(words: &[Word], folder: &Folder, root: &str) -> Vec<Folder> {
    let pairs = words.windows(2);
    let others = pairs.filter_map(|pair| match pair {
        [option, other] if option.known() == Some("-C") => other.known(),
        _ => None,
    });
    let mut folders = vec![folder.clone()];
    for other in others {
        folders.push(folder.join(other, root).unwrap_or_else(|_| Folder::somewhere()));
    }
    folders
}

/// The paths that a word may name: it, and what stands behind `=`, `:`, `@`, `,` and a letter's option in it. None where it can
/// become anything.
fn names(word: &Word) -> Option<Vec<Named>> {
    let make: fn(String) -> Named = match word.form {
        Form::Literal => Named::Path,
        Form::Glob(_) => Named::Glob,
        Form::Field(known) if known.inside && word.text.is_empty() => return Some(Vec::new()),
        Form::Field(_) if word.text.is_empty() => return homely(word),
        Form::Field(_) => Named::Open,
        Form::Fields | Form::Odd(_) => return homely(word),
    };
    let text = word.text.as_str();
    let mut texts = vec![text];
    texts.extend(text.match_indices(['=', ':', '@', ',']).filter_map(|(at, _)| text.get(at + 1..)));
    if text.starts_with('-') && !text.starts_with("--") {
        texts.extend(text.get(2..));
    }
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    Some(texts.map(|text| make(text.to_owned())).collect())
}

/// What is in the home folder is named by a `~` or by a variable.
fn homely(word: &Word) -> Option<Vec<Named>> {
    let raw: String = word.raw.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
    let rest = ["~", "$HOME", "${HOME}"].iter().find_map(|home| raw.strip_prefix(home))?;
    let plain = (rest.is_empty() || rest.starts_with('/')) && !rest.contains(['$', '`', '{']);
    let path = format!("~{rest}");
    plain.then(|| vec![if rest.contains(['*', '?', '[']) { Named::Glob(path) } else { Named::Path(path) }])
}

/// A path in the workspace as the line spells it, seen from the workspace, where that is certain.
fn spelled(name: &Named, folder: &Folder, root: &str) -> Option<String> {
    let (Named::Path(text) | Named::Glob(text)) = name else { return None };
    if text.starts_with(['-', '~']) {
        return None;
    }
    if let Some(rest) = place::beneath(text, root) {
        return Some(rest.trim_start_matches('/').to_owned()).filter(|rest| !rest.is_empty());
    }
    match folder.path()? {
        _ if text.starts_with('/') => None,
        "." => Some(text.clone()),
        folder => Some(format!("{folder}/{text}")),
    }
}

/// The ways to write a path that rules may have been written in: seen from the workspace, and absolute.
fn ways(text: &str, folder: &Folder, root: &str) -> Vec<String> {
    if text.starts_with('~') {
        return vec![plain(text)];
    }
    if text.starts_with('/') {
        let absolute = plain(text);
        let inside = place::beneath(&absolute, root).map(|rest| rest.trim_start_matches('/').to_owned());
        return inside.into_iter().chain([absolute]).collect();
    }
    let Some(folder) = folder.path() else { return vec![plain(text)] };
    let relative = plain(&format!("{folder}/{text}"));
    if root.is_empty() {
        return vec![relative];
    }
    let absolute = plain(&format!("{root}/{relative}"));
    if relative.starts_with("..") { vec![absolute] } else { vec![relative, absolute] }
}

/// A path without `.`, `..` and empty components, as far as its text goes.
pub(super) fn plain(path: &str) -> String {
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
    if path.starts_with('/') { format!("/{joined}") } else { joined }
}

/// Whether a rule's pattern means a path, or all that is in it.
fn names_path(pattern: &str, path: &str) -> bool {
    matches_path(pattern, path) || pattern.strip_suffix("/**").is_some_and(|folder| matches_path(folder, path))
}

/// Whether a rule may mean what is named.
fn means(pattern: &str, name: &Named, folder: &Folder, root: &str) -> bool {
    let known = folder.path().is_some();
    let (Named::Path(text) | Named::Glob(text) | Named::Open(text)) = name;
    let absolute = text.starts_with(['/', '~']);
    ways(text, folder, root).iter().any(|way| {
        let one = |pattern: &str| match name {
            Named::Path(_) => names_path(pattern, way),
            Named::Glob(_) => may_meet(pattern, way, false),
            Named::Open(_) => may_meet(pattern, way, true),
        };
        // From a folder that is not certain the beginning of the pattern may lie in it.
        let cut = |(at, _): (usize, &str)| pattern.get(at + 1..).is_some_and(one);
        one(pattern) || !known && !absolute && pattern.match_indices('/').any(cut)
    })
}

/// Whether what is named is a folder above all that a rule means.
fn holds(pattern: &str, name: &Named, folder: &Folder, root: &str) -> bool {
    let fixed = pattern.split('*').next().unwrap_or_default();
    let Named::Path(text) = name else { return false };
    ways(text, folder, root)
        .iter()
        .any(|way| !way.is_empty() && fixed.strip_prefix(way.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

/// A piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    This(char),
    /// Any character but `/`.
    One,
    /// Any number of those.
    Some,
    /// Perhaps one of those that begins a name: no dot.
    First,
    /// Any number of any characters.
    All,
}

impl Piece {
    fn takes(self, other: Self) -> bool {
        match (self, other) {
            (Self::This(one), Self::This(other)) => one == other,
            (Self::This(c), Self::One | Self::Some) | (Self::One | Self::Some, Self::This(c)) => c != '/',
            (Self::This(c), Self::First) | (Self::First, Self::This(c)) => c != '/' && c != '.',
            _ => true,
        }
    }
}

/// Whether a rule's pattern and one of the shell's may match the same path. `open`: something unknown follows.
fn may_meet(rule: &str, word: &str, open: bool) -> bool {
    let rules = [rule.to_owned(), format!("{rule}/**"), rule.strip_suffix("/**").unwrap_or(rule).to_owned()];
    let mut word = of_shell(word);
    if open {
        word.push(Piece::All);
    }
    rules.iter().flat_map(|rule| of_rule(rule)).any(|rule| meet(&rule, &word))
}

/// A rule's pattern in pieces, once for each way to read its `**/`: `a/**/b` is also `a/b`.
fn of_rule(rule: &str) -> Vec<Vec<Piece>> {
    const MAX_WAYS: usize = 16;
    let (mut ways, mut rest) = (vec![Vec::new()], rule.chars());
    while let Some(c) = rest.next() {
        let across = c == '*' && rest.as_str().starts_with('*');
        if across {
            rest.next();
        }
        if across && rest.as_str().starts_with('/') {
            rest.next();
            let folders = [Piece::All, Piece::This('/')];
            if ways.len() < MAX_WAYS {
                let with = ways.iter().map(|way: &Vec<Piece>| way.iter().copied().chain(folders).collect());
                let with: Vec<_> = with.collect();
                ways.extend(with);
            } else {
                ways.iter_mut().for_each(|way| way.push(Piece::All));
            }
            continue;
        }
        let piece = match c {
            '*' if across => Piece::All,
            '*' => Piece::Some,
            c => Piece::This(c),
        };
        ways.iter_mut().for_each(|way| way.push(piece));
    }
    ways
}

fn of_shell(word: &str) -> Vec<Piece> {
    let (mut pieces, mut rest) = (Vec::new(), word.chars());
    while let Some(c) = rest.next() {
        let begins = matches!(pieces.last(), None | Some(Piece::This('/')));
        match c {
            // A star at the beginning of a name passes over the hidden ones.
            '*' if begins => pieces.extend([Piece::First, Piece::Some]),
            '*' => pieces.push(Piece::Some),
            '?' => pieces.push(Piece::One),
            '[' => match rest.as_str().find(']') {
                Some(end) => {
                    rest = rest.as_str().get(end + 1..).unwrap_or_default().chars();
                    pieces.push(Piece::One);
                }
                None => pieces.push(Piece::This('[')),
            },
            c => pieces.push(Piece::This(c)),
        }
    }
    pieces
}

/// Whether some text fits both. Quadratic.
fn meet(rule: &[Piece], word: &[Piece]) -> bool {
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
            let (one, other) = (rule.get(i).copied(), word.get(j).copied());
            if matches!(one, Some(Piece::Some | Piece::All)) {
                mark(&mut open, i + 1, j);
            }
            match other {
                Some(Piece::Some | Piece::All) => mark(&mut open, i, j + 1),
                // Without its first character the star behind it is nothing, too.
                Some(Piece::First) => mark(&mut open, i, j + 2),
                _ => {}
            }
            let (Some(one), Some(other)) = (one, other) else { continue };
            if one.takes(other) {
                let i = if matches!(one, Piece::Some | Piece::All) { [i, i + 1] } else { [i + 1; 2] };
                let j = if matches!(other, Piece::Some | Piece::All) { [j, j + 1] } else { [j + 1; 2] };
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
    fn patterns_meet() {
        let check =
            |rule: &str, word: &str, expected| assert_eq!(may_meet(rule, word, false), expected, "{rule} {word}");
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
        assert!(may_meet("**/.env", "svc/.e", true));
        assert!(!may_meet("secrets/a", "src/", true));
    }

    #[test]
    fn paths_are_made_plain() {
        let check = |path: &str, expected: &str| assert_eq!(plain(path), expected);
        check("./a//b/.", "a/b");
        check("a/../b", "b");
        check("../a", "../a");
        check("/../a/", "/a");
        check("", "");
    }
}
