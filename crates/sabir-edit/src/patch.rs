//! Parses the patch format: `*** Begin Patch`, files to add, delete, update and move, `*** End
//! Patch`.
//!
//! Supported:
//!
//! ```text
//! *** Begin Patch
//! *** Add File: new.rs
//! +each line of it
//! *** Delete File: old.rs
//! *** Update File: src/main.rs
//! *** Move to: src/start.rs
//! @@ class Outer
//! @@ fn inner()
//!  a line that stays
//! -a line that goes
//! +a line that comes
//! *** End of File
//! *** End Patch
//! ```
//!
//! Unsupported on purpose: a patch without its first or last line, which may be truncated; two
//! sections about one file.
//!
//! Grammar as implemented: text before the first and after the last marker (prose, a fence, a
//! here-document) is skipped, unless it is a marker. Several patches in one text count as one.
//! Markers begin in the first column; between sections, and for the last line, leading blanks are
//! allowed. In an update each line begins with a blank, `+` or `-`; an empty line is an empty line
//! that stays, and trailing ones are dropped if the hunk is not found with them. The first hunk
//! needs no `@@`. An `@@` line names a line before the hunk; each further one names a line after
//! the one named before. `@@ -12,3 +12,4 @@` is a line hint. `*** End of File` places the hunk at
//! the end. A hunk that only adds lines puts them after the line that `@@` names, otherwise at the
//! end.

use std::collections::HashMap;

use super::fault::{self, EditFault, EditFaultKind, EditOrigin, truncate_line};
use super::{EditSyntax, EditedText};

/// A parsed patch. Paths are as the model wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// The sections, in the order of the patch. No path is named twice.
    pub files: Vec<FilePatch>,
}

/// The section of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The path of the file, as written.
    pub path: String,
    /// The line of the patch, from 1, that names it.
    pub line: usize,
    /// The action on the file.
    pub action: FileAction,
}

/// An action on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAction {
    /// Create the file with this content.
    Add(String),
    /// Delete it.
    Delete,
    /// Change parts of the file, then perhaps move it.
    Update(FileUpdate),
}

/// The changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUpdate {
    /// The path that the file is moved to, if any.
    pub move_to: Option<String>,
    pub(super) hunks: Vec<PatchHunk>,
}

/// One hunk of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatchHunk {
    pub(super) origin: EditOrigin,
    /// The `@@` lines before it, outer ones first.
    pub(super) contexts: Vec<String>,
    /// The line of the text, from 1, where the hunk says that it begins.
    pub(super) hint: Option<usize>,
    pub(super) lines: Vec<(LineOp, String)>,
    /// The number of trailing lines that were wholly empty in the patch, perhaps only for looks.
    pub(super) trailing_empty_lines: usize,
    pub(super) is_at_end: bool,
}

/// The role of a line in a hunk, given by its first column: a blank, `-` or `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineOp {
    Keep,
    Remove,
    Add,
}

/// The number of `@@` lines before one hunk above which a patch is refused: code is not nested that
/// deep, and each line is searched in the whole text.
const MAX_CONTEXTS: usize = 100;

/// The first line of a patch.
const BEGIN: &str = "*** Begin Patch";
/// The last line of a patch; without it the patch may be cut and is refused.
const END: &str = "*** End Patch";
/// Says that the hunk before it ends where the file ends.
const END_OF_FILE: &str = "*** End of File";
/// The advice for a patch without its frame.
const ENVELOPE: &str = "begin with a line `*** Begin Patch`, end with `*** End Patch`, and between them name files with `*** Update File: PATH`";

impl Patch {
    /// Parses a patch.
    ///
    /// # Errors
    /// Every fault of the patch's form, in the order of the patch.
    /// A patch with one fault is refused as a whole: its files belong together, and half of a
    /// refactoring does not compile.
    pub fn parse(text: &str) -> Result<Self, Vec<EditFault>> {
        let mut reader = PatchParser::new(text);
        text.lines()
            .enumerate()
            .for_each(|(index, line)| reader.parse_line(index + 1, line));
        reader.finish()
    }
}

impl FileUpdate {
    /// Applies the changes to a text. An update that only moves returns the text unchanged, with no
    /// hunks.
    ///
    /// # Errors
    /// Every fault of every hunk.
    pub fn apply(&self, original: &str) -> Result<EditedText, Vec<EditFault>> {
        super::hunk::apply_hunks(&self.hunks, original)
    }
}

/// Returns true if a text contains a line that begins a patch.
pub(super) fn has_patch_start(text: &str) -> bool {
    text.lines().any(|line| line.trim() == BEGIN)
}

/// The state of the parser.
/// Outside of a patch everything but a marker is prose and skipped; between sections only markers
/// are allowed; in a section the lines are content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Outside,
    Between,
    Section,
}

/// A parser that reads line by line. It collects faults and continues, so that the model gets all of them at once.
struct PatchParser {
    state: ParserState,
    files: Vec<FilePatch>,
    faults: Vec<EditFault>,
    hunks: usize,
    is_begun: bool,
    /// The last line of the patch, if its end marker is indented.
    padded_end: Option<usize>,
    last_line: usize,
}

impl PatchParser {
    /// Creates a parser. The text is needed only to find out which line ends the patch.
    fn new(text: &str) -> Self {
        // An indented ` *** End Patch` may be content of an update, so it ends the patch only if no
        // other line does.
        let has_end = text.lines().any(|line| line.trim_end() == END);
        let padded = || {
            text.lines()
                .enumerate()
                .filter(|(_, line)| line.trim() == END)
                .last()
        };
        let padded_end = if has_end {
            None
        } else {
            padded().map(|(index, _)| index + 1)
        };
        let state = ParserState::Outside;
        Self {
            state,
            files: Vec::new(),
            faults: Vec::new(),
            hunks: 0,
            is_begun: false,
            padded_end,
            last_line: 0,
        }
    }

    /// Parses one line; `number` counts from 1.
    fn parse_line(&mut self, number: usize, line: &str) {
        self.last_line = number;
        // Inside a section an indented marker may be content of the file.
        let marker = if self.state == ParserState::Section {
            line.trim_end()
        } else {
            line.trim()
        };
        match self.state {
            _ if marker == BEGIN => self.begin_patch(number),
            ParserState::Outside if parse_section(marker).is_some() => self.report_fault(
                number,
                EditFaultKind::StrayMarker,
                format!("`{}` is outside of the patch", truncate_line(marker)),
                ENVELOPE,
            ),
            ParserState::Outside => {}
            _ if marker == END || Some(number) == self.padded_end => {
                self.close_section();
                self.state = ParserState::Outside;
            }
            _ if parse_section(marker).is_some() => self.open_section(number, marker),
            ParserState::Between if marker.is_empty() => {}
            ParserState::Between => self.report_unexpected(
                number,
                line,
                "name a file first, with `*** Add File: `, `*** Update File: ` or `*** Delete File: `",
            ),
            ParserState::Section => self.parse_content(number, line),
        }
    }

    /// Enters a patch. A second start inside one is a fault, and the sections continue.
    fn begin_patch(&mut self, number: usize) {
        if self.state != ParserState::Outside {
            self.report_fault(
                number,
                EditFaultKind::StrayMarker,
                format!("`{BEGIN}` is within a patch"),
                ENVELOPE,
            );
        }
        self.is_begun = true;
        if self.state == ParserState::Outside {
            self.state = ParserState::Between;
        }
    }

    /// Opens the section that a `*** Add/Update/Delete File:` line names.
    fn open_section(&mut self, line: usize, marker: &str) {
        self.close_section();
        self.state = ParserState::Section;
        let Some((kind, path)) = parse_section(marker) else {
            return;
        };
        if path.is_empty() {
            let message = format!("`{marker}` names no file");
            self.report_fault(
                line,
                EditFaultKind::EmptySection,
                message,
                "write the path behind the colon",
            );
        }
        let action = match kind {
            SectionKind::Add => FileAction::Add(String::new()),
            SectionKind::Delete => FileAction::Delete,
            SectionKind::Update => FileAction::Update(FileUpdate {
                move_to: None,
                hunks: Vec::new(),
            }),
        };
        self.files.push(FilePatch {
            path: path.to_owned(),
            line,
            action,
        });
    }

    /// Parses a line within a section.
    fn parse_content(&mut self, number: usize, line: &str) {
        match self.files.last_mut().map(|file| &mut file.action) {
            Some(FileAction::Add(content)) => match line.strip_prefix('+') {
                Some(line) => content.extend([line, "\n"]),
                // Empty lines of an added file are written as `+`, so a bare one ends the file.
                None if line.trim().is_empty() => self.state = ParserState::Between,
                None => self.report_unexpected(
                    number,
                    line,
                    "begin each line of an added file with `+`",
                ),
            },
            Some(FileAction::Update(_)) => self.parse_update(number, line),
            _ if line.trim().is_empty() => {}
            _ => self.report_unexpected(
                number,
                line,
                "a deleted file has no lines; name the next file, or end with `*** End Patch`",
            ),
        }
    }

    /// Parses a line within an update.
    fn parse_update(&mut self, number: usize, line: &str) {
        let Some(FileAction::Update(update)) = self.files.last_mut().map(|file| &mut file.action)
        else {
            return;
        };
        if let Some(path) = line.strip_prefix("*** Move to:") {
            let path = path.trim();
            if update.hunks.is_empty() && update.move_to.is_none() && !path.is_empty() {
                update.move_to = Some(path.to_owned());
            } else {
                let hint = "write it once, with a path, directly under `*** Update File: `";
                self.report_fault(
                    number,
                    EditFaultKind::StrayMarker,
                    "`*** Move to:` is misplaced",
                    hint,
                );
            }
            return;
        }
        if let Some(context) = line.strip_prefix("@@") {
            return self.parse_context(number, context);
        }
        if line.trim_end() == END_OF_FILE {
            match update
                .hunks
                .last_mut()
                .filter(|hunk| !hunk.lines.is_empty())
            {
                Some(hunk) => hunk.is_at_end = true,
                None => self.report_unexpected(number, line, "give the hunk lines before it"),
            }
            return;
        }
        let (op, text) = match line.split_at_checked(1) {
            None => (LineOp::Keep, ""),
            Some((" ", text)) => (LineOp::Keep, text),
            Some(("-", text)) => (LineOp::Remove, text),
            Some(("+", text)) => (LineOp::Add, text),
            Some(_) => return self.report_unexpected(number, line, LINES),
        };
        // An empty line between hunks is layout, not content.
        if update.hunks.last().is_none_or(|hunk| hunk.is_at_end) {
            if line.is_empty() {
                return;
            }
            if !update.hunks.is_empty() {
                return self.report_unexpected(number, line, "begin a further hunk with `@@`");
            }
            let hunk = self.new_hunk(number);
            self.push_hunk(hunk);
        }
        if let Some(hunk) = self.last_hunk() {
            // Only empty lines at the end of the hunk may be layout; any other line resets the
            // count.
            hunk.trailing_empty_lines = if line.is_empty() {
                hunk.trailing_empty_lines + 1
            } else {
                0
            };
            hunk.lines.push((op, text.to_owned()));
        }
    }

    /// Parses the text after `@@`: a line hint, a context line, or both.
    fn parse_context(&mut self, number: usize, text: &str) {
        if self.last_hunk().is_none_or(|hunk| !hunk.lines.is_empty()) {
            let hunk = self.new_hunk(number);
            self.push_hunk(hunk);
        }
        let (hint, context) = parse_hunk_range(text);
        if self
            .last_hunk()
            .is_some_and(|hunk| hunk.contexts.len() >= MAX_CONTEXTS)
        {
            return self.report_unexpected(
                number,
                text,
                "write at most a hundred `@@` lines before a hunk",
            );
        }
        if let Some(hunk) = self.last_hunk() {
            hunk.hint = hint.or(hunk.hint);
            if !context.trim().is_empty() {
                hunk.contexts
                    .push(context.strip_prefix(' ').unwrap_or(context).to_owned());
            }
        }
    }

    /// Makes an empty hunk with the next number; hunks are counted over the whole patch.
    fn new_hunk(&mut self, line: usize) -> PatchHunk {
        self.hunks += 1;
        PatchHunk {
            origin: EditOrigin {
                format: EditSyntax::ApplyPatch,
                block: self.hunks,
                line,
            },
            contexts: Vec::new(),
            hint: None,
            lines: Vec::new(),
            trailing_empty_lines: 0,
            is_at_end: false,
        }
    }

    fn push_hunk(&mut self, hunk: PatchHunk) {
        if let Some(FileAction::Update(update)) = self.files.last_mut().map(|file| &mut file.action)
        {
            update.hunks.push(hunk);
        }
    }

    /// Returns the hunk that further lines belong to; `None` before the first one of an update.
    fn last_hunk(&mut self) -> Option<&mut PatchHunk> {
        match self.files.last_mut().map(|file| &mut file.action) {
            Some(FileAction::Update(update)) => update.hunks.last_mut(),
            _ => None,
        }
    }

    /// Closes a section and reports the faults of its hunks.
    fn close_section(&mut self) {
        let Some(file) = self
            .files
            .last()
            .filter(|_| self.state == ParserState::Section)
        else {
            return;
        };
        let FileAction::Update(update) = &file.action else {
            return;
        };
        let mut faults = Vec::new();
        if update.hunks.is_empty() && update.move_to.is_none() {
            let message = format!("the update of `{}` is empty", file.path);
            let hint =
                "give it lines that begin with a blank, `-` or `+`, or a `*** Move to: ` line";
            faults.push(fault::fault_at_line(
                EditSyntax::ApplyPatch,
                file.line,
                EditFaultKind::EmptySection,
                message,
                hint,
            ));
        }
        for hunk in &update.hunks {
            if hunk
                .lines
                .iter()
                .all(|(op, text)| *op == LineOp::Keep && text.is_empty())
            {
                faults.push(fault::fault_about(
                    &hunk.origin,
                    EditFaultKind::EmptySection,
                    "the hunk has no lines",
                    LINES,
                ));
            } else if hunk.lines.iter().all(|(op, _)| *op == LineOp::Keep) {
                faults.push(fault::no_effect_fault(&hunk.origin));
            }
        }
        self.faults.append(&mut faults);
    }

    /// Ends the patch and checks it as a whole: its last line, and paths named twice.
    fn finish(mut self) -> Result<Patch, Vec<EditFault>> {
        if self.state != ParserState::Outside {
            self.close_section();
            // A truncated answer must not be applied in part.
            let message = "the patch does not end with `*** End Patch`, so it may be cut off";
            self.report_fault(
                self.last_line,
                EditFaultKind::Unclosed,
                message,
                "write the whole patch, with its last line",
            );
        }
        // Both the old and the new path of a move count as named.
        let mut named = HashMap::new();
        let mut twice = Vec::new();
        for file in &self.files {
            let moved = if let FileAction::Update(update) = &file.action {
                update.move_to.as_deref()
            } else {
                None
            };
            for path in [Some(file.path.as_str()), moved].into_iter().flatten() {
                // `./a` and `a` are the same file, and two sections about one file would conflict.
                let path = path.strip_prefix("./").unwrap_or(path);
                if let Some(before) = named.insert(path, file.line).filter(|_| !path.is_empty()) {
                    let message = format!("`{path}` is named already in line {before}");
                    let hint = "put all hunks of a file into one section";
                    twice.push(fault::fault_at_line(
                        EditSyntax::ApplyPatch,
                        file.line,
                        EditFaultKind::PathTwice,
                        message,
                        hint,
                    ));
                }
            }
        }
        self.faults.append(&mut twice);
        if self.files.is_empty() && self.faults.is_empty() {
            let message = if self.is_begun {
                "the patch names no file"
            } else {
                "there is no line `*** Begin Patch`"
            };
            self.report_fault(1, EditFaultKind::NoBlocks, message, ENVELOPE);
        }
        if self.faults.is_empty() {
            return Ok(Patch { files: self.files });
        }
        self.faults.sort_by_key(|fault| fault.line);
        Err(self.faults)
    }

    /// Reports a line that has no meaning at its place.
    fn report_unexpected(&mut self, number: usize, line: &str, hint: &'static str) {
        let message = format!("`{}` is not expected here", truncate_line(line));
        self.report_fault(number, EditFaultKind::UnexpectedLine, message, hint);
    }

    fn report_fault(
        &mut self,
        line: usize,
        kind: EditFaultKind,
        message: impl Into<String>,
        hint: &'static str,
    ) {
        self.faults.push(fault::fault_at_line(
            EditSyntax::ApplyPatch,
            line,
            kind,
            message,
            hint,
        ));
    }
}

/// The advice for a line of an update that begins with none of the three signs.
const LINES: &str = "begin each line of an update with a blank if it stays, with `-` if it goes, with `+` if it comes";

/// The action that the first line of a section names.
#[derive(Clone, Copy)]
enum SectionKind {
    Add,
    Delete,
    Update,
}

/// Parses a line that names a file.
fn parse_section(marker: &str) -> Option<(SectionKind, &str)> {
    let kinds = [
        ("*** Add File:", SectionKind::Add),
        ("*** Delete File:", SectionKind::Delete),
        ("*** Update File:", SectionKind::Update),
    ];
    kinds
        .into_iter()
        .find_map(|(start, kind)| Some((kind, marker.strip_prefix(start)?.trim())))
}

/// Splits `-12,3 +12,4 @@` off the text after `@@` and returns its first line number.
fn parse_hunk_range(text: &str) -> (Option<usize>, &str) {
    // All of it must have the form of a unified diff: `@@ -1 items @@` could be a line of code.
    let read = || {
        let (old, rest) = text.trim_start().strip_prefix('-')?.split_once(" +")?;
        let (new, rest) = rest.split_once("@@")?;
        let is_range =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == ',');
        let line = old.split(',').next()?.parse::<usize>().ok()?;
        (is_range(old) && is_range(new.trim())).then_some((line, rest))
    };
    read().map_or((None, text), |(line, rest)| (Some(line), rest))
}
