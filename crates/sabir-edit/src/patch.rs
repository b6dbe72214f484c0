//! The patch format: `*** Begin Patch`, files to add, delete, update and move, `*** End Patch`.
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
//! Unsupported, on purpose: a patch without its first or last line, which may be cut off; two sections about one file.
//!
//! Grammar as implemented: what stands before the first and behind the last marker (prose, a fence, the words of a here
//! document) is skipped, unless it is a marker. Several patches in one text are one. Markers begin in the first column;
//! between sections, and for the last line, blanks before them are allowed. In an update each line begins with a blank, `+`
//! or `-`; an empty line is an empty line that stays, and goes along with the hunk only if it is found so. The first hunk
//! needs no `@@`. An `@@` line names a line that stands before the hunk; each further one, a line behind the one named before.
//! `@@ -12,3 +12,4 @@` is a line hint. `*** End of File` says that the hunk is for the end. A hunk that only adds lines puts
//! them behind the line that `@@` names, else at the end.

use std::collections::HashMap;

use super::fault::{self, EditFault, EditFaultKind, EditOrigin, truncate_line};
use super::{EditSyntax, EditedText};

/// A patch as it was read. Paths are as the model wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// What is to become of each file, in the order of the patch. No path is named twice.
    pub files: Vec<FilePatch>,
}

/// What is to become of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file.
    pub path: String,
    /// The line of the patch, from 1, that names it.
    pub line: usize,
    /// What to do with it.
    pub action: FileAction,
}

/// What to do with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAction {
    /// Make it, with this content.
    Add(String),
    /// Delete it.
    Delete,
    /// Change parts of it, and then perhaps move it.
    Update(FileUpdate),
}

/// Changes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUpdate {
    /// Where it is moved to, if it is.
    pub move_to: Option<String>,
    pub(super) hunks: Vec<PatchHunk>,
}

/// One run of lines of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatchHunk {
    pub(super) origin: EditOrigin,
    /// The lines before it, outer ones first.
    pub(super) contexts: Vec<String>,
    /// The line of the text, from 1, at which it says that it begins.
    pub(super) hint: Option<usize>,
    pub(super) lines: Vec<(LineOp, String)>,
    /// How many of its last lines were wholly empty in the patch, and may be there for looks.
    pub(super) loose: usize,
    pub(super) is_at_end: bool,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineOp {
    Keep,
    Remove,
    Add,
}

/// More `@@` lines before one hunk than this are refused: code is not nested so deep, and each looks at the whole text.
const MAX_CONTEXTS: usize = 100;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";
const ENVELOPE: &str = "begin with a line `*** Begin Patch`, end with `*** End Patch`, and between them name files with `*** Update File: PATH`";

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// Every fault of its form, in the order of the patch.
    pub fn parse(text: &str) -> Result<Self, Vec<EditFault>> {
        let mut reader = PatchParser::new(text);
        text.lines().enumerate().for_each(|(index, line)| reader.parse_line(index + 1, line));
        reader.finish()
    }
}

impl FileUpdate {
    /// Makes the changes in a text. An update that only moves gives the text unchanged, with no hunks.
    ///
    /// # Errors
    /// Every fault of every hunk.
    pub fn apply(&self, original: &str) -> Result<EditedText, Vec<EditFault>> {
        super::hunk::apply_hunks(&self.hunks, original)
    }
}

/// Whether a text holds a line that begins a patch.
pub(super) fn has_patch_start(text: &str) -> bool {
    text.lines().any(|line| line.trim() == BEGIN)
}

/// Where the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Outside,
    Between,
    Section,
}

struct PatchParser {
    place: ParserState,
    files: Vec<FilePatch>,
    faults: Vec<EditFault>,
    hunks: usize,
    is_begun: bool,
    /// The last line of the patch where it is not in the first column.
    padded_end: Option<usize>,
    last_line: usize,
}

impl PatchParser {
    fn new(text: &str) -> Self {
        // A line ` *** End Patch` may be content of an update, so it ends the patch only where nothing else does.
        let has_end = text.lines().any(|line| line.trim_end() == END);
        let padded = || text.lines().enumerate().filter(|(_, line)| line.trim() == END).last();
        let padded_end = if has_end { None } else { padded().map(|(index, _)| index + 1) };
        let place = ParserState::Outside;
        Self { place, files: Vec::new(), faults: Vec::new(), hunks: 0, is_begun: false, padded_end, last_line: 0 }
    }

    fn parse_line(&mut self, number: usize, line: &str) {
        self.last_line = number;
        let marker = if self.place == ParserState::Section { line.trim_end() } else { line.trim() };
        match self.place {
            _ if marker == BEGIN => self.begin_patch(number),
            ParserState::Outside if parse_section(marker).is_some() => self.report_fault(
                number,
                EditFaultKind::StrayMarker,
                format!("`{}` stands outside of the patch", truncate_line(marker)),
                ENVELOPE,
            ),
            ParserState::Outside => {}
            _ if marker == END || Some(number) == self.padded_end => {
                self.close_section();
                self.place = ParserState::Outside;
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

    fn begin_patch(&mut self, number: usize) {
        if self.place != ParserState::Outside {
            self.report_fault(number, EditFaultKind::StrayMarker, format!("`{BEGIN}` stands within a patch"), ENVELOPE);
        }
        self.is_begun = true;
        if self.place == ParserState::Outside {
            self.place = ParserState::Between;
        }
    }

    /// A line that names a file.
    fn open_section(&mut self, line: usize, marker: &str) {
        self.close_section();
        self.place = ParserState::Section;
        let Some((kind, path)) = parse_section(marker) else { return };
        if path.is_empty() {
            let message = format!("`{marker}` names no file");
            self.report_fault(line, EditFaultKind::EmptySection, message, "write the path behind the colon");
        }
        let action = match kind {
            SectionKind::Add => FileAction::Add(String::new()),
            SectionKind::Delete => FileAction::Delete,
            SectionKind::Update => FileAction::Update(FileUpdate { move_to: None, hunks: Vec::new() }),
        };
        self.files.push(FilePatch { path: path.to_owned(), line, action });
    }

    /// A line within a section.
    fn parse_content(&mut self, number: usize, line: &str) {
        match self.files.last_mut().map(|file| &mut file.action) {
            Some(FileAction::Add(content)) => match line.strip_prefix('+') {
                Some(line) => content.extend([line, "\n"]),
                None if line.trim().is_empty() => self.place = ParserState::Between,
                None => self.report_unexpected(number, line, "begin each line of an added file with `+`"),
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

    /// A line within an update.
    fn parse_update(&mut self, number: usize, line: &str) {
        let Some(FileAction::Update(update)) = self.files.last_mut().map(|file| &mut file.action) else { return };
        if let Some(path) = line.strip_prefix("*** Move to:") {
            let path = path.trim();
            if update.hunks.is_empty() && update.move_to.is_none() && !path.is_empty() {
                update.move_to = Some(path.to_owned());
            } else {
                let hint = "write it once, with a path, directly under `*** Update File: `";
                self.report_fault(number, EditFaultKind::StrayMarker, "`*** Move to:` is misplaced", hint);
            }
            return;
        }
        if let Some(context) = line.strip_prefix("@@") {
            return self.parse_context(number, context);
        }
        if line.trim_end() == END_OF_FILE {
            match update.hunks.last_mut().filter(|hunk| !hunk.lines.is_empty()) {
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
            hunk.loose = if line.is_empty() { hunk.loose + 1 } else { 0 };
            hunk.lines.push((op, text.to_owned()));
        }
    }

    /// What stands behind `@@`.
    fn parse_context(&mut self, number: usize, text: &str) {
        if self.last_hunk().is_none_or(|hunk| !hunk.lines.is_empty()) {
            let hunk = self.new_hunk(number);
            self.push_hunk(hunk);
        }
        let (hint, context) = parse_hunk_range(text);
        if self.last_hunk().is_some_and(|hunk| hunk.contexts.len() >= MAX_CONTEXTS) {
            return self.report_unexpected(number, text, "write at most a hundred `@@` lines before a hunk");
        }
        if let Some(hunk) = self.last_hunk() {
            hunk.hint = hint.or(hunk.hint);
            if !context.trim().is_empty() {
                hunk.contexts.push(context.strip_prefix(' ').unwrap_or(context).to_owned());
            }
        }
    }

    fn new_hunk(&mut self, line: usize) -> PatchHunk {
        self.hunks += 1;
        PatchHunk {
            origin: EditOrigin { format: EditSyntax::ApplyPatch, block: self.hunks, line },
            contexts: Vec::new(),
            hint: None,
            lines: Vec::new(),
            loose: 0,
            is_at_end: false,
        }
    }

    fn push_hunk(&mut self, hunk: PatchHunk) {
        if let Some(FileAction::Update(update)) = self.files.last_mut().map(|file| &mut file.action) {
            update.hunks.push(hunk);
        }
    }

    fn last_hunk(&mut self) -> Option<&mut PatchHunk> {
        match self.files.last_mut().map(|file| &mut file.action) {
            Some(FileAction::Update(update)) => update.hunks.last_mut(),
            _ => None,
        }
    }

    /// The end of a section.
    fn close_section(&mut self) {
        let Some(file) = self.files.last().filter(|_| self.place == ParserState::Section) else { return };
        let FileAction::Update(update) = &file.action else { return };
        let mut faults = Vec::new();
        if update.hunks.is_empty() && update.move_to.is_none() {
            let message = format!("the update of `{}` is empty", file.path);
            let hint = "give it lines that begin with a blank, `-` or `+`, or a `*** Move to: ` line";
            faults.push(fault::fault_at_line(
                EditSyntax::ApplyPatch,
                file.line,
                EditFaultKind::EmptySection,
                message,
                hint,
            ));
        }
        for hunk in &update.hunks {
            if hunk.lines.iter().all(|(op, text)| *op == LineOp::Keep && text.is_empty()) {
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

    fn finish(mut self) -> Result<Patch, Vec<EditFault>> {
        if self.place != ParserState::Outside {
            self.close_section();
            let message = "the patch does not end with `*** End Patch`, so it may be cut off";
            self.report_fault(
                self.last_line,
                EditFaultKind::Unclosed,
                message,
                "write the whole patch, with its last line",
            );
        }
        let mut named = HashMap::new();
        let mut twice = Vec::new();
        for file in &self.files {
            let moved = if let FileAction::Update(update) = &file.action { update.move_to.as_deref() } else { None };
            for path in [Some(file.path.as_str()), moved].into_iter().flatten() {
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
            let message = if self.is_begun { "the patch names no file" } else { "there is no line `*** Begin Patch`" };
            self.report_fault(1, EditFaultKind::NoBlocks, message, ENVELOPE);
        }
        if self.faults.is_empty() {
            return Ok(Patch { files: self.files });
        }
        self.faults.sort_by_key(|fault| fault.line);
        Err(self.faults)
    }

    fn report_unexpected(&mut self, number: usize, line: &str, hint: &'static str) {
        let message = format!("`{}` is not expected here", truncate_line(line));
        self.report_fault(number, EditFaultKind::UnexpectedLine, message, hint);
    }

    fn report_fault(&mut self, line: usize, kind: EditFaultKind, message: impl Into<String>, hint: &'static str) {
        self.faults.push(fault::fault_at_line(EditSyntax::ApplyPatch, line, kind, message, hint));
    }
}

const LINES: &str = "begin each line of an update with a blank if it stays, with `-` if it goes, with `+` if it comes";

#[derive(Clone, Copy)]
enum SectionKind {
    Add,
    Delete,
    Update,
}

/// What a line that names a file says.
fn parse_section(marker: &str) -> Option<(SectionKind, &str)> {
    let kinds = [
        ("*** Add File:", SectionKind::Add),
        ("*** Delete File:", SectionKind::Delete),
        ("*** Update File:", SectionKind::Update),
    ];
    kinds.into_iter().find_map(|(start, kind)| Some((kind, marker.strip_prefix(start)?.trim())))
}

/// Takes `-12,3 +12,4 @@` from the text behind `@@`.
fn parse_hunk_range(text: &str) -> (Option<usize>, &str) {
    let read = || {
        let (old, rest) = text.trim_start().strip_prefix('-')?.split_once(" +")?;
        let (new, rest) = rest.split_once("@@")?;
        let is_range = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == ',');
        let line = old.split(',').next()?.parse::<usize>().ok()?;
        (is_range(old) && is_range(new.trim())).then_some((line, rest))
    };
    read().map_or((None, text), |(line, rest)| (Some(line), rest))
}
