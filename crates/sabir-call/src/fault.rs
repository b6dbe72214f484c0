//! Faults: what was wrong with what a model wrote, where, and what would be right.
//!
//! A fault is data. Parsers note a byte span, which costs nothing on the hot path; line, column and the caret are worked
//! out from the source text when somebody wants to read them ([`Fault::place`], [`Fault::diagnostic`]).

use serde::{Deserialize, Serialize};

/// Bytes `start..end` of a source text. Written as `[start, end]` in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[usize; 2]", into = "[usize; 2]")]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one; never below `start`.
    pub end: usize,
}

/// What kind of mistake it is. The snake-case name is part of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// The call was opened and never closed.
    CutCall,
    /// A closing tag is missing or wrong.
    WrongClose,
    /// A tag lacks its `name` attribute.
    MissingName,
    /// A tag carries something that it must not (attributes, spaces, capitals, a self-closing slash).
    MalformedTag,
    /// A tag that should hold arguments closes itself (`<read_file/>`).
    SelfClosing,
    /// A placeholder of the instructions was left in (`TOOL_NAME`, `PARAM_VALUE`).
    Placeholder,
    /// No tool has this name.
    UnknownTool,
    /// The tool has no such argument.
    UnknownArgument,
    /// A required argument is missing.
    MissingArgument,
    /// An argument is given twice, or could be read in two ways.
    DoubledArgument,
    /// A value has the wrong type.
    WrongType,
    /// A value breaks another rule of the schema.
    InvalidValue,
    /// Arguments are no valid JSON.
    MalformedJson,
    /// The arguments stand as JSON where each belongs into a tag of its own.
    JsonInTag,
    /// The arguments stand in tags where JSON belongs.
    TagInJson,
    /// Entities (`&amp;`) stand where raw text is read as it stands; a warning, never a change.
    Entities,
    /// Something stands between the tags of a call that belongs to no argument.
    StrayText,
    /// The wrapper around the calls is missing; they are understood all the same.
    MissingWrapper,
    /// A code fence stands around the call, so that it is only shown.
    FencedCall,
    /// Markup of a dialect that is not listened for.
    OtherDialect,
    /// More calls than the message may hold.
    ExtraCall,
    /// Words stand behind the last call; they were written before its result could be known.
    TextAfterCall,
    /// Markup of a call stands in a place where it is only mentioned (a thought that was never closed, say).
    Mentioned,
    /// Bytes that are no UTF-8, replaced by U+FFFD.
    InvalidUtf8,
    /// The provider reported an error inside the stream, or broke its own format.
    Provider,
    /// A limit of Sabir's was reached.
    Limit,
}

impl FaultKind {
    /// The name used in JSON and diagnostics.
    pub fn name(self) -> &'static str {
        match self {
            Self::CutCall => "cut_call",
            Self::WrongClose => "wrong_close",
            Self::MissingName => "missing_name",
            Self::MalformedTag => "malformed_tag",
            Self::SelfClosing => "self_closing",
            Self::Placeholder => "placeholder",
            Self::UnknownTool => "unknown_tool",
            Self::UnknownArgument => "unknown_argument",
            Self::MissingArgument => "missing_argument",
            Self::DoubledArgument => "doubled_argument",
            Self::WrongType => "wrong_type",
            Self::InvalidValue => "invalid_value",
            Self::MalformedJson => "malformed_json",
            Self::JsonInTag => "json_in_tag",
            Self::TagInJson => "tag_in_json",
            Self::Entities => "entities",
            Self::StrayText => "stray_text",
            Self::MissingWrapper => "missing_wrapper",
            Self::FencedCall => "fenced_call",
            Self::OtherDialect => "other_dialect",
            Self::ExtraCall => "extra_call",
            Self::TextAfterCall => "text_after_call",
            Self::Mentioned => "mentioned",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::Provider => "provider",
            Self::Limit => "limit",
        }
    }
}

/// How much a fault weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The call that it concerns must not run.
    Error,
    /// Worth telling; nothing is stopped.
    Warning,
}

/// The text that a fault's span counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The assistant text of the response.
    Text,
    /// The argument text of the native call that the fault names.
    Arguments,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// How much it weighs.
    pub severity: Severity,
    /// The call that it concerns, by index; `None` where no call could be made out.
    pub call: Option<u32>,
    /// The argument that it concerns.
    pub argument: Option<String>,
    /// Where.
    pub span: Span,
    /// What `span` counts in.
    pub origin: Origin,
    /// One sentence: what is wrong, what was expected, what was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// A position that a person can find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place<'a> {
    /// Counted from 1; LF, CRLF and CR end a line.
    pub line: usize,
    /// Counted from 1, in characters (Unicode scalar values).
    pub column: usize,
    /// The line itself, without its end.
    pub text: &'a str,
}

impl Span {
    /// Bytes `start..end`; an `end` before `start` counts as empty.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }
}

impl From<[usize; 2]> for Span {
    fn from([start, end]: [usize; 2]) -> Self {
        Self::new(start, end)
    }
}

impl From<Span> for [usize; 2] {
    fn from(span: Span) -> Self {
        [span.start, span.end]
    }
}

impl Fault {
    /// A fault in the assistant text that stops whatever call it names.
    pub fn error(kind: FaultKind, span: Span, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity: Severity::Error,
            call: None,
            argument: None,
            span,
            origin: Origin::Text,
            message: message.into(),
            hint: None,
        }
    }

    /// A fault that stops nothing.
    pub fn warning(kind: FaultKind, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(kind, span, message) }
    }

    /// Names the call.
    #[must_use]
    pub fn in_call(mut self, index: u32) -> Self {
        self.call = Some(index);
        self
    }

    /// Names the argument.
    #[must_use]
    pub fn in_argument(mut self, name: impl Into<String>) -> Self {
        self.argument = Some(name.into());
        self
    }

    /// Counts the span in the call's argument text.
    #[must_use]
    pub fn in_arguments_text(mut self) -> Self {
        self.origin = Origin::Arguments;
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Line and column of the fault's first byte in `source`. A span past the end points behind the last character.
    pub fn place<'a>(&self, source: &'a str) -> Place<'a> {
        let mut at = self.span.start.min(source.len());
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        let (before, after) = source.split_at(at);
        let is_end = |c: char| c == '\n' || c == '\r';
        let ends = before.matches('\n').count() + before.matches('\r').count() - before.matches("\r\n").count();
        // A position between CR and LF still belongs to the line that they end.
        let split_pair = before.ends_with('\r') && after.starts_with('\n');
        let head = if split_pair { before.trim_end_matches('\r') } else { before };
        let head = head.rsplit(is_end).next().unwrap_or_default();
        let tail = if split_pair { "" } else { after.split(is_end).next().unwrap_or_default() };
        let start = at - head.len() - usize::from(split_pair);
        let text = source.get(start..start + head.len() + tail.len()).unwrap_or_default();
        Place { line: ends + 1 - usize::from(split_pair), column: head.chars().count() + 1, text }
    }

    /// The fault as a compiler would print it: message, line, caret, hint.
    ///
    /// Lines longer than 120 characters are shown around the caret. Control characters are shown as U+FFFD, tabs kept, so
    /// that the caret stands under its character in any terminal.
    pub fn diagnostic(&self, source: &str) -> String {
        const WIDTH: usize = 120;
        let place = self.place(source);
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let gutter = place.line.to_string().len();
        let skip = place.column.saturating_sub(WIDTH * 3 / 4);
        let visible = |c: char| if c != '\t' && c.is_control() { '\u{fffd}' } else { c };
        let shown: String = place.text.chars().skip(skip).take(WIDTH).map(visible).collect();
        let pad: String =
            shown.chars().take(place.column - 1 - skip).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let length = source.get(self.span.start..self.span.end).map_or(1, |text| text.chars().count());
        let room = shown.chars().count().saturating_sub(place.column - 1 - skip);
        let caret = "^".repeat(length.min(room).max(1));
        let mut text = format!(
            "{word}[{}]: {}\n{:gutter$}--> line {}, column {}\n{:gutter$} |\n{} | {shown}\n{:gutter$} | {pad}{caret}\n",
            self.kind.name(),
            self.message,
            "",
            place.line,
            place.column,
            "",
            place.line,
            "",
        );
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{:gutter$} = hint: {hint}\n", ""));
        }
        text
    }
}
