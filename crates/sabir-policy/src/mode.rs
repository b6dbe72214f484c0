//! Modes: named sets of tools and instructions that limit a task, also against rules that approve.
//!
//! A mode only restricts; the rules check everything that it permits. A command can write anywhere, so in a mode that may not
//! change every file, only commands that are known to only read may run.
//!
//! A mode is checked before any rule, so a rule can never widen it: in the mode `plan`, `--approve all` still changes nothing. Modes of
//! a repository are data like those of the user, because a mode can only take away; switching to one with more abilities is asked
//! about (`mode_switch.rs`).

use std::fmt;

use regex::{Regex, RegexBuilder};

use super::{Access, matches_path};

/// A named set of tools and instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// The unique name.
    pub name: String,
    /// The purpose, as one line for the user.
    pub about: String,
    /// Additional instructions for the model; may be empty.
    pub instructions: String,
    /// The groups of tools that are available.
    pub groups: Vec<ToolGroup>,
    /// The files that may be changed. An empty list means every file.
    pub write: Vec<FilePattern>,
}

/// A pattern for files: a glob as in policy rules, or a regular expression that must match somewhere in the path. Both apply to
/// paths relative to the workspace.
#[derive(Debug, Clone)]
pub enum FilePattern {
    /// A glob.
    Glob(String),
    /// A regular expression.
    Regex(Regex),
}

/// The most bytes that a compiled regular expression may take: patterns may come from a repository.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

/// An error for a regular expression that cannot be used as a [`FilePattern`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(transparent)]
pub struct FilePatternError(#[from] regex::Error);

impl FilePattern {
    /// Parses a regular expression.
    ///
    /// # Errors
    /// Returns an error if the expression is not valid, is too large, or uses look-around or back-references, which engines with
    /// linear time do not support.
    ///
    /// ```
    /// use sabir_policy::FilePattern;
    ///
    /// assert!(FilePattern::from_regex(r"\.(md|txt)$").is_ok());
    /// // Look-around could make matching take exponential time.
    /// assert!(FilePattern::from_regex(r"(?=a)b").is_err());
    /// ```
    pub fn from_regex(text: &str) -> Result<Self, FilePatternError> {
        let built = RegexBuilder::new(text)
            .size_limit(MAX_EXPRESSION_BYTES)
            .build();
        Ok(Self::Regex(built?))
    }

    /// Reports whether a path relative to the workspace may be changed by this pattern.
    fn is_match(&self, path: &str) -> bool {
        match self {
            Self::Glob(glob) => matches_path(glob, path),
            Self::Regex(expression) => expression.is_match(path),
        }
    }

    /// Returns the pattern as it was written.
    fn as_str(&self) -> &str {
        match self {
            Self::Glob(glob) => glob,
            Self::Regex(expression) => expression.as_str(),
        }
    }
}

impl PartialEq for FilePattern {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.as_str() == other.as_str()
    }
}

impl Eq for FilePattern {}

impl fmt::Display for FilePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(glob) => f.write_str(glob),
            Self::Regex(expression) => write!(f, "/{}/", expression.as_str()),
        }
    }
}

/// A group of tools with the same kind of effect, which a mode can include or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolGroup {
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
    /// Delegating work to subtasks.
    Delegate,
    /// Switching to another mode by a call of the model. The user can always switch.
    Switch,
}

impl ToolGroup {
    /// All groups.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Edit,
        Self::Command,
        Self::Fetch,
        Self::Server,
        Self::Delegate,
        Self::Switch,
    ];

    /// The name of the group in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Command => "command",
            Self::Fetch => "fetch",
            Self::Server => "server",
            Self::Delegate => "delegate",
            Self::Switch => "switch",
        }
    }

    /// The ability that the group gives, as a phrase that follows "can".
    fn describe_ability(self) -> &'static str {
        match self {
            Self::Read => "read files",
            Self::Edit => "change files",
            Self::Command => "run commands",
            Self::Fetch => "fetch documents",
            Self::Server => "call tools of servers",
            Self::Delegate => "give work to subtasks",
            Self::Switch => "switch modes",
        }
    }

    /// Finds a group by its name in configuration files.
    ///
    /// ```
    /// use sabir_policy::ToolGroup;
    ///
    /// assert_eq!(ToolGroup::from_name("edit"), Some(ToolGroup::Edit));
    /// assert_eq!(ToolGroup::from_name("everything"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

impl Mode {
    /// Returns the built-in modes; the first one is the default.
    pub fn built_in_modes() -> Vec<Self> {
        use ToolGroup::{Command, Delegate, Edit, Fetch, Read, Server, Switch};
        let mode =
            |name: &str, about: &str, groups: &[ToolGroup], write: &[&str], instructions: &str| {
                Self {
                    name: name.to_owned(),
                    about: about.to_owned(),
                    instructions: instructions.to_owned(),
                    groups: groups.to_vec(),
                    write: write
                        .iter()
                        .map(|glob| FilePattern::Glob((*glob).to_owned()))
                        .collect(),
                }
            };
        vec![
            mode("code", "all tools", &ToolGroup::ALL, &[], ""),
            mode(
                "plan",
                "look and think, change nothing: files, and commands that only read",
                &[Read, Command, Fetch, Server, Switch],
                &[],
                "Find out what has to be known and say how to do the task: which files change, how, and how that is checked. \
                 You cannot change anything in this mode; complete with the plan.",
            ),
            mode(
                "docs",
                "change documents only (Markdown, reStructuredText, AsciiDoc, text), run commands that only read",
                &[Read, Edit, Command, Fetch, Server, Switch],
                &[
                    "**/*.md",
                    "**/*.mdx",
                    "**/*.markdown",
                    "**/*.rst",
                    "**/*.adoc",
                    "**/*.txt",
                ],
                "You may change documents only. Hold what they say against the code, which you can read.",
            ),
            mode(
                "ask",
                "answer questions: files and documents, no commands",
                &[Read, Fetch, Server, Switch],
                &[],
                "Answer the question; complete with the answer. You cannot change files or run commands in this mode.",
            ),
            mode(
                "debug",
                "all tools, and the advice to find the cause first",
                &ToolGroup::ALL,
                &[],
                "Find the cause before you change anything: name what could be wrong, look for what tells the guesses apart, and \
                 show the fault happening. Then make the smallest change that removes the cause, and show that it does.",
            ),
            mode(
                "orchestrator",
                "divide a large task among subtasks: read and delegate, change nothing itself",
                &[Read, Fetch, Delegate, Switch],
                &[],
                "Divide the task into parts that can be done and checked one by one, and give each to a subtask with new_task: in the \
                 mode that fits it, with everything that it has to know, since it sees nothing of this task, and with what it is to \
                 report. Read what you need to divide well. Look at each result before you build on it, and complete with what was \
                 done in all. You change nothing yourself in this mode.",
            ),
        ]
    }

    /// Maps the names that other agents use for a mode to the name of the built-in mode.
    pub fn canonical_name(name: &str) -> &str {
        match name {
            "act" | "build" | "default" => "code",
            "architect" => "docs",
            "read-only" => "plan",
            other => other,
        }
    }

    /// Returns the text about this mode that ends the system prompt. Empty for a mode without instructions.
    pub fn prompt_text(&self) -> String {
        if self.instructions.is_empty() {
            return String::new();
        }
        format!("\nMode: {}. {}\n", self.name, self.instructions.trim())
    }

    /// Returns the message to the model when a task switches to this mode.
    pub fn mode_switch_message(&self) -> String {
        let Self {
            name,
            about,
            instructions,
            ..
        } = self;
        let about = if about.is_empty() {
            String::new()
        } else {
            format!(": {about}")
        };
        let limit = if self.write.is_empty() {
            String::new()
        } else {
            format!(" It changes only {}.", self.writable_patterns())
        };
        let instructions = instructions.trim();
        let instructions = if instructions.is_empty() {
            String::new()
        } else {
            format!(" {instructions}")
        };
        format!("The mode is now `{name}`{about}.{limit}{instructions}")
    }

    /// Lists the abilities that this mode has and the other one lacks, as phrases that follow "can". Empty if it permits no more.
    pub fn extra_abilities(&self, other: &Self) -> Vec<String> {
        let mut more = Vec::new();
        for group in self.groups.iter().filter(|group| !other.has_group(**group)) {
            more.push(match group {
                ToolGroup::Edit if !self.write.is_empty() => {
                    format!("change {}", self.writable_patterns())
                }
                group => group.describe_ability().to_owned(),
            });
        }
        if self.has_group(ToolGroup::Edit)
            && other.has_group(ToolGroup::Edit)
            && !other.write.is_empty()
        {
            if self.write.is_empty() {
                more.push("change any file".to_owned());
            } else if !self
                .write
                .iter()
                .all(|pattern| other.write.contains(pattern))
            {
                more.push(format!("change {}", self.writable_patterns()));
            }
        }
        // Commands can write anywhere, so they only count where every file may be edited.
        if self.has_group(ToolGroup::Command)
            && other.has_group(ToolGroup::Command)
            && self.can_edit_any_file()
            && !other.can_edit_any_file()
        {
            more.push("run commands that change something".to_owned());
        }
        more
    }

    /// Lists the patterns of the files that may be changed, separated by commas.
    pub fn writable_patterns(&self) -> String {
        self.write
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns true if the mode includes a group.
    pub fn has_group(&self, group: ToolGroup) -> bool {
        self.groups.contains(&group)
    }

    /// Returns true if every file may be changed. In a mode without this ability, only commands that only read may run.
    pub fn can_edit_any_file(&self) -> bool {
        self.has_group(ToolGroup::Edit) && self.write.is_empty()
    }

    /// Reports whether tasks in this mode may start subtasks in the other mode: any mode if delegating is one of its groups,
    /// otherwise only one that permits no more.
    pub fn can_delegate_to(&self, other: &Self) -> bool {
        self.has_group(ToolGroup::Delegate) || other.extra_abilities(self).is_empty()
    }

    /// Returns the reason if the mode does not permit an access. Commands are only checked for their group here: the caller checks
    /// whether they only read.
    pub(crate) fn denial_reason(&self, access: &Access) -> Option<String> {
        let lacks = |group: ToolGroup, does: &str| {
            (!self.has_group(group)).then(|| {
                format!(
                    "the mode `{}` does not {does}; `--mode code` does",
                    self.name
                )
            })
        };
        match access {
            Access::Read { .. } => lacks(ToolGroup::Read, "read files"),
            Access::Write { path, .. } => lacks(ToolGroup::Edit, "change files").or_else(|| {
                let fits = self.write.is_empty()
                    || self.write.iter().any(|pattern| pattern.is_match(path));
                (!fits).then(|| {
                    format!(
                        "the mode `{}` changes only {}; `{path}` is another file",
                        self.name,
                        self.writable_patterns()
                    )
                })
            }),
            Access::Command { .. } => lacks(ToolGroup::Command, "run commands"),
            Access::Fetch { .. } => lacks(ToolGroup::Fetch, "fetch documents"),
            Access::Server { .. } => lacks(ToolGroup::Server, "call tools of servers"),
            Access::Nothing | Access::Several(_) | Access::Invalid { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(name: &str) -> Mode {
        Mode::built_in_modes()
            .into_iter()
            .find(|mode| mode.name == name)
            .unwrap()
    }

    #[test]
    fn extra_abilities_over_another_mode() {
        let check = |to: &Mode, from: &Mode, expected: &[&str]| {
            assert_eq!(to.extra_abilities(from), expected)
        };
        for any in Mode::built_in_modes() {
            check(&any, &mode("code"), &[]);
            check(&any, &any, &[]);
        }
        let plan = mode("plan");
        check(&mode("ask"), &plan, &[]);
        check(
            &mode("docs"),
            &plan,
            &[&format!("change {}", mode("docs").writable_patterns())],
        );
        let all = [
            "change files",
            "give work to subtasks",
            "run commands that change something",
        ];
        check(&mode("code"), &plan, &all);
        check(
            &mode("plan"),
            &mode("orchestrator"),
            &["run commands", "call tools of servers"],
        );
        check(
            &mode("code"),
            &mode("docs"),
            &[
                "give work to subtasks",
                "change any file",
                "run commands that change something",
            ],
        );
        let write = |globs: &[&str]| Mode {
            write: globs
                .iter()
                .map(|glob| FilePattern::Glob((*glob).to_owned()))
                .collect(),
            ..mode("docs")
        };
        check(&write(&["a/**"]), &write(&["a/**", "b/**"]), &[]);
        check(
            &write(&["a/**", "c"]),
            &write(&["a/**", "b/**"]),
            &["change a/**, c"],
        );
    }

    #[test]
    fn delegation_gives_no_more_abilities() {
        let check = |own: &str, others: &[&str]| {
            let all = Mode::built_in_modes();
            let own = all.iter().find(|mode| mode.name == own).unwrap();
            let found: Vec<_> = all
                .iter()
                .filter(|other| own.can_delegate_to(other))
                .map(|mode| mode.name.as_str())
                .collect();
            assert_eq!(found, others, "{}", own.name);
        };
        let all = ["code", "plan", "docs", "ask", "debug", "orchestrator"];
        ["code", "debug", "orchestrator"]
            .iter()
            .for_each(|own| check(own, &all));
        check("plan", &["plan", "ask"]);
        check("docs", &["plan", "docs", "ask"]);
        check("ask", &["ask"]);
    }
}
