//! One word per concept: words that must not name public things, because the design has another word for each.

use crate::source::{without_tests, word};
use crate::{File, Violation};

/// A word and the one to use.
const WORDS: [(&str, &str); 5] = [
    ("session", "task"),
    ("conversation", "task, or history"),
    ("thread", "task"),
    ("rollout", "journal"),
    ("step", "turn"),
];

/// Public names that may stand all the same: file, name, reason.
const EXEMPT: [(&str, &str, &str); 0] = [];

pub(crate) fn check(file: &File, code: &str, found: &mut Vec<Violation>) {
    if file.is_test() || file.owner().is_none() {
        return;
    }
    let last = without_tests(&file.text).map(|(line, _)| line).last().unwrap_or(0);
    for (index, line) in code.lines().enumerate().take(last) {
        let Some(item) = line.trim_start().strip_prefix("pub ") else { continue };
        let (kind, name) = named(item);
        if EXEMPT.iter().any(|(path, exempt, _)| *path == file.path && *exempt == name) {
            continue;
        }
        if let Some((bad, good)) = banned(kind, name) {
            let message = format!("`{name}` says `{bad}`, which has another word here: {good}");
            found.push(file.violation(index + 1, message));
        }
    }
}

/// The kind and the name of a public item; a field's kind is empty.
fn named(item: &str) -> (&str, &str) {
    const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
    const BEFORE: [&str; 4] = ["async", "unsafe", "extern", "mut"];
    let mut kind = "";
    for token in item.split_whitespace() {
        let token_word = word(token);
        if KINDS.contains(&token_word) && token_word == token {
            kind = token_word;
        } else if !BEFORE.contains(&token) {
            return (kind, token_word);
        }
    }
    (kind, "")
}

fn banned(kind: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let words = words(name);
    let has = |bad: &str| words.iter().any(|word| word.strip_suffix('s').unwrap_or(word) == bad || word == bad);
    // `Task::step` is the verb.
    let verb = |bad: &str| bad == "step" && kind == "fn" && words.first().is_some_and(|first| first == "step");
    if let Some(row) = WORDS.iter().find(|(bad, _)| has(bad) && !verb(bad)) {
        return Some(*row);
    }
    if words.windows(2).any(|pair| matches!(pair, [a, b] if a == "function" && b.trim_end_matches('s') == "call")) {
        return Some(("function call", "call"));
    }
    // As a verb `run` is fine; a type is a noun.
    let noun = matches!(kind, "struct" | "enum" | "trait" | "type") && words.last().is_some_and(|last| last == "run");
    noun.then_some(("run", "task, or turn"))
}

/// The words of a name in snake case or camel case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(last) = words.last_mut().filter(|_| c != '_') {
            last.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use crate::{Tree, check};

    fn said(code: &str) -> String {
        let mut tree = Tree::default();
        tree.add("crates/sabir-agent/src/x.rs", format!("//! Doc.\n{code}\n"));
        check(&tree)
            .iter()
            .map(|found| format!("{}:{} ", found.line, found.message.split(" says").next().unwrap_or("")))
            .collect()
    }

    #[test]
    fn public_names_use_the_houses_words() {
        for (code, expected) in [
            ("pub struct Session;", "2:`Session` "),
            ("pub struct SessionId;", "2:`SessionId` "),
            ("pub fn list_threads() {}", "2:`list_threads` "),
            ("pub struct A {\n    pub conversation_id: u8,\n}", "3:`conversation_id` "),
            ("pub enum StepKind {}", "2:`StepKind` "),
            ("pub async fn next_step() {}", "2:`next_step` "),
            ("pub struct FunctionCall;", "2:`FunctionCall` "),
            ("pub const FUNCTION_CALLS: u8 = 1;", "2:`FUNCTION_CALLS` "),
            ("pub struct AgentRun;", "2:`AgentRun` "),
            ("pub mod rollout;", "2:`rollout` "),
            ("pub fn step(&mut self) {}", ""),
            ("pub fn run(self) {}\npub struct Runner;\npub fn threaded() {}", ""),
            ("pub(crate) struct Session;\nstruct Thread;\n// pub struct Session\n", ""),
            ("#[cfg(test)]\nmod tests {\n    pub struct Session;\n}", ""),
        ] {
            assert_eq!(said(code), expected, "{code}");
        }
    }
}
