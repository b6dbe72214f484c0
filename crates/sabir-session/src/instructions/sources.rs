//! Lists the places that are searched for rules, in the order of the prompt.

/// A place where rules are looked for: a file, or a folder of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InstructionSource {
    /// The path, relative to the folder.
    pub(super) path: &'static str,
    /// The way in which its files are limited to paths.
    pub(super) style: InstructionHeader,
}

/// The meaning of the header of a file of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstructionHeader {
    /// It has no header.
    Plain,
    /// It has no header, and lines in it may import other files.
    Importing,
    /// `paths` limits it.
    Paths,
    /// `alwaysApply` and `globs` decide; otherwise a `description` offers it to the model.
    Cursor,
    /// `applyTo` limits it. Without that, it is used only where a user names it.
    Copilot,
}

const fn source(path: &'static str, style: InstructionHeader) -> InstructionSource {
    InstructionSource { path, style }
}

/// The rules of a workspace, in the order of the prompt.
pub(super) const WORKSPACE_SOURCES: [InstructionSource; 15] = [
    source("AGENTS.md", InstructionHeader::Importing),
    source("AGENTS.local.md", InstructionHeader::Importing),
    source("CLAUDE.md", InstructionHeader::Importing),
    source(".claude/CLAUDE.md", InstructionHeader::Importing),
    source("CLAUDE.local.md", InstructionHeader::Importing),
    source("GEMINI.md", InstructionHeader::Importing),
    source(".clinerules", InstructionHeader::Paths),
    source(".roo/rules", InstructionHeader::Plain),
    source(".roorules", InstructionHeader::Plain),
    source(".cursorrules", InstructionHeader::Plain),
    source(".claude/rules", InstructionHeader::Paths),
    source(".cursor/rules", InstructionHeader::Cursor),
    source(".github/copilot-instructions.md", InstructionHeader::Plain),
    source(".github/instructions", InstructionHeader::Copilot),
    source(".sabir/rules", InstructionHeader::Paths),
];

/// The files that count in every folder: above the workspace, up to the top of its repository, and below it.
pub(super) const FOLDER_SOURCES: [&str; 5] = [
    "AGENTS.md",
    "AGENTS.local.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "GEMINI.md",
];

/// The file that replaces the `AGENTS.md` beside it.
pub(super) const OVERRIDE: &str = "AGENTS.override.md";

/// The rules of other programs in the user's home. They are read if the user has no `AGENTS.md` beside the configuration.
pub(super) const HOME_SOURCES: [InstructionSource; 6] = [
    source(".claude/CLAUDE.md", InstructionHeader::Importing),
    source(".codex/AGENTS.md", InstructionHeader::Importing),
    source(".gemini/GEMINI.md", InstructionHeader::Importing),
    source(".config/opencode/AGENTS.md", InstructionHeader::Importing),
    source(".roo/rules", InstructionHeader::Plain),
    source("Documents/Cline/Rules", InstructionHeader::Paths),
];

/// The endings of files of rules in a folder.
pub(super) const RULE_EXTENSIONS: [&str; 3] = ["md", "mdc", "txt"];

/// Names of folders that hold the code of others, whose rules do not apply here.
pub(super) const FOREIGN_FOLDERS: [&str; 8] = [
    "node_modules",
    "vendor",
    "third_party",
    "site-packages",
    ".venv",
    "venv",
    "target",
    ".git",
];

/// Returns the rules of a mode.
pub(super) fn mode_sources(mode: &str) -> [String; 2] {
    [format!(".roo/rules-{mode}"), format!(".roorules-{mode}")]
}
