//! Lists the names by which other agents call their tools and arguments.
//!
//! Models were trained on the tools of Cline, Roo Code, Claude Code, Codex, Gemini CLI, OpenHands,
//! Goose, Cursor and opencode, and use their names even if the prompt has others. This module is
//! only the data. The reader takes from it which tags may be calls; `sabir-check` converts a call
//! of such a tool into one of a declared tool, which is then validated and checked like any other.
//!
//! A row may only be added if its reading is certain. Arguments with different meanings in
//! different agents (an offset that counts from 0 in one and from 1 in another) are refused with a
//! hint.

mod tools;

pub use tools::FOREIGN_TOOLS;

/// The other names of an argument.
#[derive(Debug)]
pub struct ArgumentAliases {
    /// The declared argument.
    pub argument: &'static str,
    /// The names that mean exactly the same.
    pub aliases: &'static [&'static str],
    /// The names that may mean it. They are never renamed; the answer asks the model which argument
    /// it meant.
    pub hints: &'static [&'static str],
}

/// A tool of another agent, or further arguments of a tool that has the same name here.
#[derive(Debug)]
pub struct ForeignTool {
    /// The names, all with the same arguments.
    pub names: &'static [&'static str],
    /// The arguments.
    pub arguments: &'static [ForeignArgument],
    /// The meaning of a call.
    pub meaning: ForeignMeaning,
}

/// The meaning of a call of another agent's tool.
#[derive(Debug)]
pub enum ForeignMeaning {
    /// A call of this tool.
    Tool(&'static str),
    /// A call of this tool, which not every task has.
    ToolIfOffered {
        /// The tool.
        tool: &'static str,
        /// Advice for a task without the tool.
        otherwise: &'static str,
    },
    /// One of several tools, by the value of an argument.
    SubCommand {
        /// The argument.
        argument: &'static str,
        /// Each value with its meaning.
        cases: &'static [(&'static str, ForeignTool)],
    },
    /// No tool here does the same; the text says what to do instead.
    Refused(&'static str),
}

/// An argument of another agent's tool.
#[derive(Debug)]
pub struct ForeignArgument {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ArgumentKind,
    /// True if a call without it is refused.
    pub required: bool,
    /// Its effect on the converted call.
    pub effect: ArgumentEffect,
}

/// The type of a foreign argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A string.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Flag,
    /// A value of any type; the effect examines it.
    Any,
}

/// The effect of a foreign argument on the converted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentEffect {
    /// Its value becomes that of this argument.
    Value(&'static str),
    /// No effect: it only describes the call.
    Ignored,
    /// No effect if it has this value or is empty; any other value is refused with the hint.
    Only(&'static str, &'static str),
    /// Refused with this hint.
    Refused(&'static str),
    /// Milliseconds, which become seconds.
    Milliseconds(&'static str),
    /// A command line, or the words of one.
    CommandLine,
    /// A first and a last line: `[1, 50]` or `1-50`.
    LineRange,
    /// The first line, counted from 1.
    FirstLine,
    /// The number of lines from the first one on.
    LineCount,
    /// Several files, perhaps with line ranges.
    Files,
    /// Answers to choose from: texts, or objects that hold them.
    Choices,
    /// Questions with answers to choose from, of which one can be asked.
    Questions,
    /// A todo list of objects.
    Todos,
    /// A command that shows the result; it is mentioned, never run.
    ShownCommand,
    /// A boolean that makes the search ignore case.
    IgnoreCase,
    /// A boolean whose opposite makes the search ignore case.
    CaseSensitive,
}

/// The other names of arguments.
pub static ARGUMENT_ALIASES: [ArgumentAliases; 19] = [
    ArgumentAliases {
        argument: "command",
        aliases: &[
            "cmd",
            "bash",
            "shell",
            "script",
            "command_line",
            "cmdline",
            "commandline",
            "shell_command",
        ],
        hints: &["code", "input"],
    },
    ArgumentAliases {
        argument: "action",
        aliases: &["operation"],
        hints: &[],
    },
    ArgumentAliases {
        argument: "path",
        aliases: &[
            "file",
            "filename",
            "file_name",
            "file_path",
            "filepath",
            "absolute_path",
            "relative_path",
            "relative_workspace_path",
            "target_file",
            "target_path",
            "dir_path",
            "directory_path",
            "directory",
            "dir",
            "folder",
        ],
        hints: &["uri", "location"],
    },
    ArgumentAliases {
        argument: "content",
        aliases: &[
            "text",
            "contents",
            "file_text",
            "file_content",
            "file_contents",
            "body",
            "data",
            "new_content",
        ],
        hints: &["code", "code_edit", "value", "code_content"],
    },
    ArgumentAliases {
        argument: "diff",
        aliases: &["diff_content", "search_replace_blocks"],
        hints: &[
            "patch",
            "changes",
            "edits",
            "blocks",
            "content",
            "replacements",
        ],
    },
    ArgumentAliases {
        argument: "patch",
        aliases: &["input", "patch_text", "patch_content"],
        hints: &["diff", "content", "command"],
    },
    ArgumentAliases {
        argument: "old_string",
        aliases: &["old_str", "old_text", "old_content", "search", "old"],
        hints: &["find", "original", "target"],
    },
    ArgumentAliases {
        argument: "new_string",
        aliases: &["new_str", "new_text", "replace", "new", "replacement"],
        hints: &["replace_with", "updated", "new_content"],
    },
    ArgumentAliases {
        argument: "replace_all",
        aliases: &["allow_multiple"],
        hints: &["expected_replacements", "count"],
    },
    ArgumentAliases {
        argument: "regex",
        aliases: &["pattern", "regexp", "search_pattern"],
        hints: &["query", "search", "search_term", "text"],
    },
    ArgumentAliases {
        argument: "file_pattern",
        aliases: &[
            "include",
            "glob",
            "include_pattern",
            "glob_pattern",
            "file_glob",
        ],
        hints: &["exclude_pattern", "type"],
    },
    ArgumentAliases {
        argument: "result",
        aliases: &["summary", "answer", "final_answer"],
        hints: &["message", "response", "text", "content", "output"],
    },
    ArgumentAliases {
        argument: "question",
        aliases: &["prompt"],
        hints: &["message", "text", "questions"],
    },
    ArgumentAliases {
        argument: "message",
        aliases: &["prompt", "instructions"],
        hints: &["task", "description", "context"],
    },
    ArgumentAliases {
        argument: "mode",
        aliases: &["mode_slug"],
        hints: &["slug"],
    },
    ArgumentAliases {
        argument: "background",
        aliases: &["run_in_background", "is_background"],
        hints: &["detach", "blocking"],
    },
    ArgumentAliases {
        argument: "timeout",
        aliases: &["timeout_seconds", "timeout_secs"],
        hints: &["timeout_ms", "timeout_milliseconds"],
    },
    ArgumentAliases {
        argument: "start_line",
        aliases: &["line_start", "from_line"],
        hints: &["offset", "line", "start"],
    },
    ArgumentAliases {
        argument: "output",
        aliases: &[],
        hints: &["artifact_id", "bash_id", "shell_id", "task_id"],
    },
];

/// Returns the declared argument for which a name is an alias; `None` if there is none, or more than
/// one.
pub fn aliased_argument<'d>(name: &str, declared: &[&'d str]) -> Option<&'d str> {
    let wanted = normalize_name(name);
    only_argument(declared, |row| {
        row.aliases
            .iter()
            .any(|alias| normalize_name(alias) == wanted)
    })
}

/// Returns the declared argument that a name may mean.
pub fn hinted_argument<'d>(name: &str, declared: &[&'d str]) -> Option<&'d str> {
    let wanted = normalize_name(name);
    only_argument(declared, |row| {
        let mut all = row.aliases.iter().chain(row.hints);
        all.any(|known| normalize_name(known) == wanted)
    })
}

/// Returns the aliases of all declared arguments, each with its argument, except ambiguous ones.
pub(crate) fn unambiguous_aliases<'d>(declared: &[&'d str]) -> Vec<(&'static str, &'d str)> {
    let mut found: Vec<(&'static str, &'d str)> = Vec::new();
    for argument in declared {
        let row = ARGUMENT_ALIASES
            .iter()
            .find(|row| row.argument == *argument);
        let aliases = row.map_or(&[][..], |row| row.aliases);
        found.extend(aliases.iter().map(|alias| (*alias, *argument)));
    }
    let is_unclear = |alias: &str| found.iter().filter(|(other, _)| *other == alias).count() > 1;
    let unclear: Vec<&str> = found
        .iter()
        .map(|(alias, _)| *alias)
        .filter(|alias| declared.contains(alias) || is_unclear(alias))
        .collect();
    found.retain(|(alias, _)| !unclear.contains(alias));
    found
}

fn only_argument<'d>(
    declared: &[&'d str],
    fits: impl Fn(&ArgumentAliases) -> bool,
) -> Option<&'d str> {
    let mut found = ARGUMENT_ALIASES
        .iter()
        .filter(|row| fits(row))
        .filter_map(|row| declared.iter().find(|name| **name == row.argument));
    let argument = found.next()?;
    if found.next().is_some() {
        None
    } else {
        Some(argument)
    }
}

/// The namespaces that models put before the name of a tool.
const NAMESPACES: [&str; 7] = [
    "functions",
    "function",
    "default_api",
    "tools",
    "tool",
    "api",
    "repo_browser",
];

/// Removes the namespace before a tool's name and the number behind it: `functions.f:0`,
/// `default_api.f`, `tools::f`. Returns `None` if there is none.
pub fn strip_namespace(name: &str) -> Option<&str> {
    let bare = NAMESPACES.iter().find_map(|space| {
        let rest = name.strip_prefix(space)?;
        rest.strip_prefix("::")
            .or_else(|| rest.strip_prefix(['.', ':']))
    })?;
    let bare = match bare.rsplit_once(':') {
        Some((head, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => head,
        _ => bare,
    };
    (!bare.is_empty()).then_some(bare)
}

impl ForeignTool {
    /// Returns the row of a tool: by its exact name, or else the only one whose name has the same
    /// letters.
    pub fn find(name: &str) -> Option<&'static Self> {
        let exact = Self::find_exact(name);
        if exact.is_some() {
            return exact;
        }
        let wanted = normalize_name(name);
        let mut alike = FOREIGN_TOOLS.iter().filter(|row| {
            row.names
                .iter()
                .any(|known| normalize_name(known) == wanted)
        });
        let found = alike.next().filter(|_| !wanted.is_empty());
        if alike.next().is_some() { None } else { found }
    }

    /// Returns the row of a tool by its exact name.
    pub fn find_exact(name: &str) -> Option<&'static Self> {
        FOREIGN_TOOLS.iter().find(|row| row.names.contains(&name))
    }

    /// Returns the names of the tools that a call of this one can become.
    pub fn targets(&self) -> Vec<&'static str> {
        match self.meaning {
            ForeignMeaning::Tool(target) | ForeignMeaning::ToolIfOffered { tool: target, .. } => {
                vec![target]
            }
            ForeignMeaning::SubCommand { cases, .. } => cases
                .iter()
                .filter_map(|(_, row)| match row.meaning {
                    ForeignMeaning::Tool(target) => Some(target),
                    _ => None,
                })
                .collect(),
            ForeignMeaning::Refused(_) => Vec::new(),
        }
    }

    /// Returns true if the row only adds arguments to a tool of the same name.
    pub fn is_extension(&self) -> bool {
        match self.meaning {
            ForeignMeaning::Tool(target) | ForeignMeaning::ToolIfOffered { tool: target, .. } => {
                self.names.contains(&target)
            }
            _ => false,
        }
    }
}

/// Reduces a name to its letters and digits in lower case.
fn normalize_name(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        for row in FOREIGN_TOOLS {
            assert!(!row.names.is_empty());
            for name in row.names {
                assert!(seen.insert(*name), "{name} has two rows");
            }
            let mut arguments = HashSet::new();
            for argument in row.arguments {
                assert!(
                    arguments.insert(argument.name),
                    "{}: {}",
                    row.names[0],
                    argument.name
                );
            }
        }
        let mut seen = HashSet::new();
        for row in &ARGUMENT_ALIASES {
            assert!(seen.insert(row.argument), "{}", row.argument);
            assert!(!row.aliases.contains(&row.argument));
        }
    }

    #[test]
    fn sub_commands_use_the_arguments_of_their_row() {
        for row in FOREIGN_TOOLS {
            if let ForeignMeaning::SubCommand { argument, cases } = row.meaning {
                assert!(
                    row.arguments
                        .iter()
                        .any(|own| own.name == argument && own.required)
                );
                for (value, case) in cases {
                    assert!(
                        !matches!(case.meaning, ForeignMeaning::SubCommand { .. }),
                        "{value}"
                    );
                    for inner in case.arguments {
                        let is_known = row.arguments.iter().any(|own| own.name == inner.name);
                        assert!(is_known, "{value}: {}", inner.name);
                    }
                }
            }
        }
    }

    #[test]
    fn namespaces() {
        let rows = [
            ("functions.read_file", Some("read_file")),
            ("functions.read_file:0", Some("read_file")),
            ("functions::read_file", Some("read_file")),
            ("default_api.bash", Some("bash")),
            ("default_api:bash", Some("bash")),
            ("tools.x", Some("x")),
            ("toolsmith", None),
            ("functions.", None),
            ("read_file", None),
        ];
        for (name, expected) in rows {
            assert_eq!(strip_namespace(name), expected, "{name}");
        }
    }

    #[test]
    fn aliases_mean_one_argument() {
        assert_eq!(
            aliased_argument("file_text", &["path", "content"]),
            Some("content")
        );
        assert_eq!(aliased_argument("prompt", &["question", "message"]), None);
        assert_eq!(aliased_argument("code", &["content"]), None);
        assert_eq!(
            hinted_argument("code", &["path", "content"]),
            Some("content")
        );
        let aliases = unambiguous_aliases(&["path", "file", "question", "message"]);
        let meaning = |name: &str| aliases.iter().find(|(alias, _)| *alias == name);
        assert_eq!(meaning("filename"), Some(&("filename", "path")));
        assert_eq!((meaning("file"), meaning("prompt")), (None, None));
    }

    #[test]
    fn similar_names_find_their_row() {
        for (name, expected) in [
            ("run-command", "run_command"),
            ("RunCommand", "run_command"),
            ("Bash", "Bash"),
            ("BASH", "Bash"),
        ] {
            let row = ForeignTool::find(name).unwrap();
            assert!(row.names.contains(&expected), "{name}: {:?}", row.names);
        }
    }
}
