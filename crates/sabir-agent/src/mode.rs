//! Modes: a named set of tools and instructions, and what may be done in it whatever is approved.
//!
//! A mode only takes away: the rules judge what is left. A command can write anything, so where files may not be changed freely only
//! commands that are known to only read run.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::policy::matches_path;
use crate::tool::Access;

/// A named set of tools and instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Its name.
    pub name: String,
    /// What it is for, on a line, for the user.
    pub about: String,
    /// What the model is told besides; may be empty.
    pub instructions: String,
    /// What may be done in it at all.
    pub groups: Vec<Group>,
    /// The files that may be changed. Empty: all of them.
    pub write: Vec<FilePattern>,
}

/// Which files: a glob, as rules of the policy have them, or a regular expression that must occur in the path. Both are about
/// paths from the workspace folder.
#[derive(Debug, Clone)]
pub enum FilePattern {
    /// A glob.
    Glob(String),
    /// A regular expression.
    Expression(Regex),
}

/// The most bytes that a regular expression may take when it is compiled.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

impl FilePattern {
    /// The pattern of a regular expression.
    ///
    /// # Errors
    /// In words, where it cannot be understood: look-around and back-references are in no engine that is always linear.
    pub fn expression(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).size_limit(MAX_EXPRESSION_BYTES).build();
        built.map(Self::Expression).map_err(|error| error.to_string())
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Glob(glob) => matches_path(glob, path),
            Self::Expression(expression) => expression.is_match(path),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Glob(glob) => glob,
            Self::Expression(expression) => expression.as_str(),
        }
    }
}

impl PartialEq for FilePattern {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.as_str() == other.as_str()
    }
}

impl Eq for FilePattern {}

impl fmt::Display for FilePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(glob) => f.write_str(glob),
            Self::Expression(expression) => write!(f, "/{}/", expression.as_str()),
        }
    }
}

/// What tools do, as far as modes tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Reading files.
    Read,
    /// Changing files.
    Edit,
    /// Running commands.
    Command,
    /// Fetching documents.
    Fetch,
    /// Calling the tools of MCP servers.
    Server,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Edit, Self::Command, Self::Fetch, Self::Server];

    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Command => "command",
            Self::Fetch => "fetch",
            Self::Server => "server",
        }
    }

    /// The group of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

impl Mode {
    /// The built-in modes; the first is the usual one.
    pub fn built_in() -> Vec<Self> {
        use Group::{Command, Edit, Fetch, Read, Server};
        let mode = |name: &str, about: &str, groups: &[Group], write: &[&str], instructions: &str| Self {
            name: name.to_owned(),
            about: about.to_owned(),
            instructions: instructions.to_owned(),
            groups: groups.to_vec(),
            write: write.iter().map(|glob| FilePattern::Glob((*glob).to_owned())).collect(),
        };
        vec![
            mode("code", "all tools", &Group::ALL, &[], ""),
            mode(
                "plan",
                "look and think, change nothing: files, and commands that only read",
                &[Read, Command, Fetch, Server],
                &[],
                "Find out what has to be known and say how the task is to be done: which files change, how, and how that is checked. \
                 You cannot change anything in this mode; complete with the plan.",
            ),
            mode(
                "docs",
                "change documents only (Markdown, reStructuredText, AsciiDoc, text), run commands that only read",
                &[Read, Edit, Command, Fetch, Server],
                &["**/*.md", "**/*.mdx", "**/*.markdown", "**/*.rst", "**/*.adoc", "**/*.txt"],
                "You may change documents only. Hold what they say against the code, which you can read.",
            ),
            mode(
                "ask",
                "answer questions: files and documents, no commands",
                &[Read, Fetch, Server],
                &[],
                "Answer the question; complete with the answer. You cannot change files or run commands in this mode.",
            ),
            mode(
                "debug",
                "all tools, and the advice to find the cause first",
                &Group::ALL,
                &[],
                "Find the cause before you change anything: name what could be wrong, look for what tells the guesses apart, and \
                 show the fault happening. Then make the smallest change that removes the cause, and show that it does.",
            ),
        ]
    }

    /// The name that a built-in mode goes by here, for the names that others give them.
    pub fn usual_name(name: &str) -> &str {
        match name {
            "act" | "build" | "default" => "code",
            "architect" => "docs",
            "read-only" => "plan",
            other => other,
        }
    }

    /// What the model is told of it, to stand behind all else; nothing of a mode without words.
    pub fn words(&self) -> String {
        if self.instructions.is_empty() {
            return String::new();
        }
        format!("\nMode: {}. {}\n", self.name, self.instructions.trim())
    }

    /// The files that may be changed, in words.
    pub fn writes(&self) -> String {
        self.write.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Whether it has that group.
    pub fn has(&self, group: Group) -> bool {
        self.groups.contains(&group)
    }

    /// Whether any file may be changed in it; where that is not so, commands only read.
    pub fn changes_freely(&self) -> bool {
        self.has(Group::Edit) && self.write.is_empty()
    }

    /// Whether its tasks may hand work to subtasks in the other mode: any where nothing is denied by it, else one that allows no more.
    pub fn delegates(&self, other: &Self) -> bool {
        let has = |group: &Group| self.has(*group);
        let free = Group::ALL.iter().all(has) && self.write.is_empty();
        let same_files = self.write.is_empty() || self.write == other.write || !other.has(Group::Edit);
        free || other.groups.iter().all(has) && same_files
    }

    /// Why an access is none of this mode's, if it is not. Commands that may do more than read are judged by whoever can tell.
    pub(crate) fn forbids(&self, access: &Access) -> Option<String> {
        let lacks = |group: Group, does: &str| {
            (!self.has(group)).then(|| format!("the mode `{}` does not {does}; `--mode code` does", self.name))
        };
        match access {
            Access::Read { .. } => lacks(Group::Read, "read files"),
            Access::Write { path, .. } => lacks(Group::Edit, "change files").or_else(|| {
                let fits = self.write.is_empty() || self.write.iter().any(|pattern| pattern.matches(path));
                (!fits).then(|| {
                    format!("the mode `{}` changes only {}; `{path}` is another file", self.name, self.writes())
                })
            }),
            Access::Command { .. } => lacks(Group::Command, "run commands"),
            Access::Fetch { .. } => lacks(Group::Fetch, "fetch documents"),
            Access::Server { .. } => lacks(Group::Server, "call tools of servers"),
            Access::Nothing | Access::Several(_) | Access::Invalid { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_hands_on_no_more_than_it_has() {
        let check = |own: &str, others: &[&str]| {
            let all = Mode::built_in();
            let own = all.iter().find(|mode| mode.name == own).unwrap();
            let found: Vec<_> =
                all.iter().filter(|other| own.delegates(other)).map(|mode| mode.name.as_str()).collect();
            assert_eq!(found, others, "{}", own.name);
        };
        check("code", &["code", "plan", "docs", "ask", "debug"]);
        check("debug", &["code", "plan", "docs", "ask", "debug"]);
        check("plan", &["plan", "ask"]);
        check("docs", &["plan", "docs", "ask"]);
        check("ask", &["ask"]);
    }
}
