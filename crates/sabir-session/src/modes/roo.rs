//! Reads the modes that a repository defines in `.roomodes`, in the format of Roo Code and Zoo Code.
//!
//! A repository's mode is used only when the user names it, and like every mode it only restricts. It never replaces a built-in
//! mode or one that the user defined. A mode whose limits cannot be enforced as written is not offered; the list of modes and the
//! error for its name give the reason.
//!
//! Supported: YAML and JSON; `slug`, `name`, `description`, `whenToUse`, `roleDefinition`, `customInstructions`; `groups` of `read`,
//! `edit`, `browser`, `command`, `mcp` and `modes`, with `fileRegex` for `edit`. Unsupported: look-around in
//! `fileRegex`.

use sabir_policy::{FilePattern, Mode, ToolGroup};
use sabir_workspace::{Workspace, WorkspaceError};
use serde::Deserialize;
use serde_json::Value;

use crate::conventions::folder_reader::is_absent;

/// The name of the file, in the folder that a task works in.
const NAME: &str = ".roomodes";
/// The size beyond which the file is refused; real ones have a few KiB.
const MAX_BYTES: usize = 256 << 10;

/// The content of `.roomodes`.
#[derive(Debug, Default)]
pub(super) struct RooModes {
    pub(super) modes: Vec<Mode>,
    pub(super) faults: Vec<ModeFault>,
}

/// A mode of the repository that cannot be used, and the reason. Its `Display` is a message for the user.
#[derive(Debug)]
pub struct ModeFault {
    /// The file.
    pub(super) file: String,
    /// The mode's name; empty if it has none, or if the whole file is at fault.
    pub(super) name: String,
    /// The reason.
    pub(super) why: RooModeError,
}

/// The reason why a mode of `.roomodes`, or the whole file, cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RooModeError {
    #[error(transparent)]
    Unreadable(#[from] WorkspaceError),
    #[error("it is larger than {} KiB", MAX_BYTES >> 10)]
    TooLarge,
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The file is neither YAML nor JSON of the expected shape. Holds the first line of the parser's message.
    #[error("{0}")]
    Syntax(String),
    /// The name belongs to another mode; holds whose it is, as the end of a sentence.
    #[error("the name {0}")]
    NameTaken(&'static str),
    /// A field is missing, or has another type.
    #[error(transparent)]
    Field(#[from] serde_json::Error),
    #[error("`slug` must consist of letters, digits and hyphens")]
    Slug,
    #[error("its name must consist of letters, digits and hyphens")]
    AgentName,
    #[error("`fileRegex` `{regex}` cannot be used: {reason}")]
    FileRegex { regex: String, reason: String },
    /// The limit is on a group that has no files. To ignore it would allow more than its author meant.
    #[error("`fileRegex` limits `edit` only, not `{0}`")]
    LimitedGroup(String),
    #[error("it has no `groups`: nothing may be done in it")]
    NoGroups,
    #[error("`{0}` is none of read, edit, browser, command, mcp, modes")]
    UnknownGroup(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RooFile {
    #[serde(default)]
    custom_modes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RooMode {
    slug: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    when_to_use: String,
    #[serde(default)]
    role_definition: String,
    #[serde(default)]
    custom_instructions: String,
    groups: Vec<GroupEntry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GroupEntry {
    Whole(String),
    Limited(String, GroupLimit),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupLimit {
    file_regex: Option<String>,
}

impl RooModes {
    /// Reads the modes of a folder. `taken` returns who owns a name that cannot be used again.
    pub(super) fn read_folder(
        workspace: &Workspace,
        taken: impl Fn(&str) -> Option<&'static str>,
    ) -> Self {
        match read_mode_file(workspace) {
            Ok(None) => Self::default(),
            Ok(Some(text)) => Self::parse_text(&text, taken),
            Err(why) => Self {
                modes: Vec::new(),
                faults: vec![ModeFault {
                    file: NAME.to_owned(),
                    name: String::new(),
                    why,
                }],
            },
        }
    }

    fn parse_text(text: &str, taken: impl Fn(&str) -> Option<&'static str>) -> Self {
        let file: RooFile = match serde_saphyr::from_str(text) {
            Ok(file) => file,
            Err(error) => {
                // Only the first line: the others may quote the file.
                let why = error.to_string();
                let fault = ModeFault {
                    file: NAME.to_owned(),
                    name: String::new(),
                    why: RooModeError::Syntax(why.lines().next().unwrap_or_default().to_owned()),
                };
                return Self {
                    modes: Vec::new(),
                    faults: vec![fault],
                };
            }
        };
        let mut found = Self::default();
        for value in file.custom_modes {
            let name = value
                .get("slug")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            let twice = found
                .modes
                .iter()
                .any(|mode| mode.name == name)
                .then_some("occurs twice; the first counts");
            let mode = match taken(&name).or(twice) {
                Some(whose) => Err(RooModeError::NameTaken(whose)),
                None => convert_mode(value),
            };
            match mode {
                Ok(mode) => found.modes.push(mode),
                Err(why) => found.faults.push(ModeFault {
                    file: NAME.to_owned(),
                    name,
                    why,
                }),
            }
        }
        found
    }
}

/// Formats the fault with the file and the mode.
impl std::fmt::Display for ModeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, name, why } = self;
        if name.is_empty() {
            write!(f, "{file}: {why}")
        } else {
            write!(f, "{file}: the mode `{name}`: {why}")
        }
    }
}

/// Reads the file through the workspace, so that a link out of it is refused; `None` without a file.
fn read_mode_file(workspace: &Workspace) -> Result<Option<String>, RooModeError> {
    let path = workspace.parse_path(NAME)?;
    if is_absent(&workspace.root().join(NAME)) {
        return Ok(None);
    }
    let content = match workspace.read_file(&path, MAX_BYTES) {
        Ok(content) => content,
        Err(WorkspaceError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if content.truncated {
        return Err(RooModeError::TooLarge);
    }
    String::from_utf8(content.bytes)
        .map(Some)
        .map_err(|_| RooModeError::NotUtf8)
}

/// Converts a mode into one of Sabir's.
fn convert_mode(value: Value) -> Result<Mode, RooModeError> {
    let custom: RooMode = serde_json::from_value(value)?;
    let is_slug = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if custom.slug.is_empty() || !custom.slug.chars().all(is_slug) {
        return Err(RooModeError::Slug);
    }
    let mut groups = Vec::new();
    let mut write = Vec::new();
    // True once `edit` was named without a limit.
    let mut free = false;
    for entry in custom.groups {
        let (name, limit) = match entry {
            GroupEntry::Whole(name) => (name, None),
            GroupEntry::Limited(name, limit) => (name, limit.file_regex),
        };
        // An unknown group makes the whole mode unusable: without the group, it might allow more
        // than intended.
        let group = convert_group(&name)?;
        match (group, limit) {
            (ToolGroup::Edit, Some(regex)) => match FilePattern::from_regex(&regex) {
                Ok(pattern) => write.push(pattern),
                Err(error) => {
                    let reason = error.to_string();
                    return Err(RooModeError::FileRegex { regex, reason });
                }
            },
            (ToolGroup::Edit, None) => free = true,
            (_, Some(_)) => return Err(RooModeError::LimitedGroup(name)),
            (_, None) => {}
        }
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    if groups.is_empty() {
        return Err(RooModeError::NoGroups);
    }
    // `edit` was named once with a limit and once without: the entry without a limit holds.
    if free {
        write.clear();
    }
    let about = [custom.description, custom.when_to_use, custom.name]
        .into_iter()
        .find(|words| !words.trim().is_empty());
    let about = about
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let words = [custom.role_definition, custom.custom_instructions];
    let words = words
        .iter()
        .map(|words| words.trim())
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>();
    Ok(Mode {
        name: custom.slug,
        about,
        instructions: words.join("\n\n"),
        groups,
        write,
    })
}

/// Converts the name of a group of Roo Code.
fn convert_group(name: &str) -> Result<ToolGroup, RooModeError> {
    Ok(match name {
        "read" => ToolGroup::Read,
        "edit" => ToolGroup::Edit,
        "command" => ToolGroup::Command,
        "browser" => ToolGroup::Fetch,
        "mcp" => ToolGroup::Server,
        "modes" => ToolGroup::Switch,
        other => return Err(RooModeError::UnknownGroup(other.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
customModes:
  - slug: docs-writer
    name: Documentation Writer
    roleDefinition: >-
      You write documents.
    whenToUse: For documents.
    customInstructions: |-
      Short sentences.
    groups:
      - read
      - - edit
        - fileRegex: \\.(md|mdx)$
          description: Markdown
      - browser
";

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let taken = |name: &str| (name == "code").then_some("is that of a built-in mode");
        let RooModes { modes, faults } = RooModes::parse_text(text, taken);
        let told = modes.iter().map(|mode| {
            let groups: Vec<_> = mode.groups.iter().map(|group| group.name()).collect();
            format!(
                "{} [{}] {} ({}) {:?}",
                mode.name,
                groups.join(" "),
                mode.writable_patterns(),
                mode.about,
                mode.instructions
            )
        });
        let told: Vec<_> = told.chain(faults.iter().map(ToString::to_string)).collect();
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}\n{expected}");
        }
    }

    #[test]
    fn valid_modes_are_parsed() {
        let words = "\"You write documents.\\n\\nShort sentences.\"";
        check(
            GOOD,
            &[&format!(
                "docs-writer [read edit fetch] /\\.(md|mdx)$/ (For documents.) {words}"
            )],
        );
        check(
            r#"{"customModes": [{"slug": "all", "name": "All", "groups": ["read", ["edit", {"fileRegex": "a"}], "edit", "modes"]}]}"#,
            &["all [read edit switch]  (All) \"\""],
        );
        check("customModes: []", &[]);
        check("{}", &[]);
    }

    #[test]
    fn unusable_modes_are_reported() {
        let one = |fields: &str| format!(r#"{{"customModes": [{{{fields}}}]}}"#);
        check(
            &one(r#""slug": "code", "groups": ["read"]"#),
            &[".roomodes: the mode `code`: the name is that of a built-in"],
        );
        check(
            &one(r#""slug": "a b", "groups": ["read"]"#),
            &[".roomodes: the mode `a b`: `slug` must consist of"],
        );
        check(
            &one(r#""slug": "a", "groups": []"#),
            &[".roomodes: the mode `a`: it has no `groups`"],
        );
        check(
            &one(r#""slug": "a", "groups": ["fly"]"#),
            &[".roomodes: the mode `a`: `fly` is none of"],
        );
        check(
            &one(r#""slug": "a""#),
            &[".roomodes: the mode `a`: missing field `groups`"],
        );
        check(
            &one(r#""slug": "a", "groups": [["edit", {"fileRegex": "(?!x)y"}]]"#),
            &[".roomodes: the mode `a`: `fileRegex` `(?!x)y` cannot be used"],
        );
        check(
            &one(r#""slug": "a", "groups": [["command", {"fileRegex": "x"}]]"#),
            &[".roomodes: the mode `a`: `fileRegex` limits `edit` only"],
        );
        check("customModes: 3", &[".roomodes: "]);
        check("a: [", &[".roomodes: "]);
    }
}
