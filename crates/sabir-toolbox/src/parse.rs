//! Parses a text, checks its calls, and reports both: the commands `parse` and `check`. `explain` and `wire decode` build on it.

use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{
    CallReader, DraftPart, DraftResponse, Event, EventSink, Fault, FaultKind, ParallelCalls,
    Severity, SourceLines, Span, ToolProtocol, ToolSet, Truncation,
};
use sabir_check::{
    CallChecker, CallState, CheckedCall, FeedbackContext, MistakeCounter, Repair, RepairSet,
    render_feedback,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{ToolboxError, UnknownDialect};
pub use crate::recognition::CallRecognition;
use crate::recognition::RecognitionTracker;
use crate::report::{Report, write_json_line};
use crate::text::{count_noun, indent_lines};
pub use crate::tool_list::parse_tools;
use crate::wire::BodyReport;

/// The settings for parsing a text.
#[derive(Debug, Clone)]
pub struct ParseOptions<'d> {
    /// The known dialects, including the user's.
    pub dialects: &'d DialectSet,
    /// The dialect to listen for; `None` listens for all.
    pub dialect: Option<&'d Dialect>,
    /// The tools that calls are checked against.
    pub tools: ToolSet,
    /// The repairs that are applied.
    pub repairs: RepairSet,
    /// The number of calls that a message may have.
    pub parallel_calls: ParallelCalls,
    /// The size in bytes of the pieces in which the text is fed to the reader; 0 feeds it whole. The result is the same.
    pub chunk_bytes: usize,
    /// The end of the prompt that the text continues, such as `<think>`.
    pub prefill: String,
    /// True if a last call without its closing markup is accepted, because the text is known to be complete.
    pub closes_last_call: bool,
}

impl ParseOptions<'static> {
    /// Creates options that listen for all built-in dialects, apply all repairs and allow several calls.
    pub fn new(tools: ToolSet) -> Self {
        Self {
            dialects: DialectSet::built_in(),
            dialect: None,
            tools,
            repairs: RepairSet::all(),
            parallel_calls: ParallelCalls::Many,
            chunk_bytes: 0,
            prefill: String::new(),
            closes_last_call: false,
        }
    }
}

/// Finds the dialect of a name or alias; `auto` is `None`, which means all.
///
/// # Errors
/// No dialect has the name.
pub fn select_dialect<'d>(
    dialects: &'d DialectSet,
    name: &str,
) -> Result<Option<&'d Dialect>, ToolboxError> {
    match name {
        "auto" => Ok(None),
        _ => find_dialect(dialects, name, "auto, ").map(Some),
    }
}

/// Finds the dialect of a name or alias. `also` lists other valid words for the message of the error, as in
/// [`UnknownDialect::also`].
///
/// # Errors
/// No dialect has the name.
pub fn find_dialect<'d>(
    dialects: &'d DialectSet,
    name: &str,
    also: &'static str,
) -> Result<&'d Dialect, ToolboxError> {
    dialects
        .find(name)
        .ok_or_else(|| UnknownDialect::new(dialects, name, also).into())
}

/// A text and the results of parsing and checking it.
#[derive(Debug)]
pub struct ParsedText {
    /// The selection: `auto`, or the name of a dialect or a wire.
    pub selection: &'static str,
    /// The text that was parsed; empty for a response body, whose text is in the draft.
    pub source: String,
    /// The parsed parts.
    pub draft: DraftResponse,
    /// The checked calls, in the order of the draft.
    pub checked: Vec<CheckedCall>,
    /// The faults that belong to no call.
    pub loose_faults: Vec<Fault>,
    /// The feedback that the model would receive; `None` if there is nothing to say.
    pub feedback: Option<String>,
    recognitions: RecognitionTracker,
}

/// Collects events as a draft, and tracks how calls are recognised.
pub(crate) struct DraftCollector {
    draft: DraftResponse,
    recognitions: RecognitionTracker,
}

impl DraftCollector {
    /// Creates a collector; `chosen` is true if the reader listens for one dialect only.
    pub(crate) fn new(chosen: bool) -> Self {
        Self {
            draft: DraftResponse::default(),
            recognitions: RecognitionTracker::new(chosen),
        }
    }

    /// Returns the draft, checked. Without a `source`, faults count in no text, as in a response body.
    pub(crate) fn into_parsed(
        self,
        selection: &'static str,
        source: Option<String>,
        checker: &CallChecker,
        dialects: &DialectSet,
    ) -> ParsedText {
        let mut draft = self.draft;
        // Blank lines around calls belong to the layout of the dialect, not to what the model said.
        draft.drop_blank_text();
        // The reader does not store its input, but the checks look for names in it.
        if let Some(source) = &source {
            draft.source.clone_from(source);
        }
        let checked = checker.check_all(&draft);
        // Faults without a call would vanish if only the calls were looked at.
        let loose_faults = checker.unattached_faults(&draft);
        let mut parsed = ParsedText {
            selection,
            source: source.unwrap_or_default(),
            draft,
            checked,
            loose_faults,
            feedback: None,
            recognitions: self.recognitions,
        };
        parsed.feedback = parsed.render_model_feedback(checker.tools(), dialects);
        parsed
    }

    /// Returns the draft so far.
    pub(crate) fn draft(&self) -> &DraftResponse {
        &self.draft
    }
}

impl EventSink for DraftCollector {
    fn push_event(&mut self, event: Event<'_>) {
        self.recognitions.note_event(event);
        self.draft.push_event(event);
    }
}

/// Writes events as JSON lines while they arrive.
pub struct EventLineWriter<'w> {
    out: &'w mut dyn Write,
    error: Option<io::Error>,
}

impl<'w> EventLineWriter<'w> {
    /// Creates a writer of lines.
    pub fn new(out: &'w mut dyn Write) -> Self {
        Self { out, error: None }
    }

    /// Ends the writing.
    ///
    /// # Errors
    /// The first error of the writer; nothing was written after it.
    pub fn finish(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

impl EventSink for EventLineWriter<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        // Marks belong to `explain` only: they say why something was recognised.
        if self.error.is_none() && !matches!(event, Event::Mark(_)) {
            // The parser cannot be stopped, so the error is kept until the end.
            self.error = write_json_line(&event, self.out).err();
        }
    }
}

/// Parses and checks a text. `observer` gets every event while the text is parsed; a closure that does nothing will do.
///
/// Any bytes can be parsed: what is not UTF-8 is replaced, and what is not understood becomes a fault.
pub fn parse_text(
    input: &[u8],
    options: &ParseOptions<'_>,
    observer: &mut dyn EventSink,
) -> ParsedText {
    // The set still knows the other dialects: a fault can name the one that a call was written in.
    let selection = match options.dialect {
        None => options.dialects.all(),
        Some(dialect) => options.dialects.only(dialect),
    };
    let selection = selection.with_prefill(&options.prefill);
    let mut collector = DraftCollector::new(options.dialect.is_some());
    let mut sink = |event: Event<'_>| {
        observer.push_event(event);
        collector.push_event(event);
    };
    let mut reader = CallReader::new(selection, &options.tools)
        .with_missing_last_close(options.closes_last_call);
    for chunk in split_chunks(input, options.chunk_bytes) {
        reader.push_bytes(chunk, &mut sink);
    }
    // A call that is still open here was cut by the end of the text, and never counts as complete.
    reader.finish(Truncation::Ended, &mut sink);
    let checker = CallChecker::new(options.tools.clone())
        .with_repairs(options.repairs)
        .with_parallel(options.parallel_calls);
    // An alias is reported by the name of its dialect.
    let name = options.dialect.map_or("auto", |dialect| dialect.name);
    // The reader replaces bytes that are not UTF-8 in the same way, so spans count in this text.
    let source = String::from_utf8_lossy(input).into_owned();
    collector.into_parsed(name, Some(source), &checker, options.dialects)
}

/// Splits the input into chunks, to show that the result does not depend on the split.
pub(crate) fn split_chunks(bytes: &[u8], size: usize) -> std::slice::Chunks<'_, u8> {
    // `chunks` panics for a size of 0, which an empty input would give as well.
    bytes.chunks(if size == 0 { bytes.len().max(1) } else { size })
}

impl ParsedText {
    /// Returns all faults in text order.
    pub fn all_faults(&self) -> Vec<Fault> {
        let calls = self.checked.iter().flat_map(|call| &call.faults);
        let mut faults: Vec<_> = calls.chain(&self.loose_faults).cloned().collect();
        // The sort is stable: faults at one place keep the order in which they were found.
        faults.sort_by_key(|fault| fault.span.start);
        faults
    }

    /// Returns true unless a call or the model's text is at fault.
    pub fn is_understood(&self) -> bool {
        let all_complete = self
            .checked
            .iter()
            .all(|call| call.state == CallState::Complete);
        // Faults on the provider's side do not count as calls that were not understood.
        let is_of_model =
            |fault: &Fault| fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
        all_complete && !self.loose_faults.iter().any(is_of_model)
    }

    /// Returns the way in which a call was recognised.
    pub fn recognition_of(&self, index: u32) -> Option<CallRecognition> {
        self.recognitions.recognition_of(index)
    }

    /// Returns the report of `parse`: everything that was understood, and all faults.
    pub fn report(&self) -> ParseReport<'_> {
        self.report_with_body(None)
    }

    /// Returns the report of `check`: the faults and the feedback alone.
    pub fn check_report(&self) -> CheckReport<'_> {
        CheckReport {
            faults: self.fault_reports(),
            feedback: self.feedback.as_deref(),
            parsed: self,
        }
    }

    /// Returns the report, with the facts of the response body that the text comes from.
    pub(crate) fn report_with_body<'a>(&'a self, body: Option<&'a BodyReport>) -> ParseReport<'a> {
        ParseReport {
            dialect: self.selection,
            parts: self
                .draft
                .parts
                .iter()
                .filter_map(|part| self.part_report(part))
                .collect(),
            faults: self.fault_reports(),
            feedback: self.feedback.as_deref(),
            body,
            parsed: self,
        }
    }

    /// Returns all faults in text order, in their public form.
    pub(crate) fn fault_reports(&self) -> Vec<FaultReport> {
        let mut lines = SourceLines::new(&self.source);
        self.all_faults()
            .iter()
            .map(|fault| FaultReport::new(fault, &mut lines))
            .collect()
    }

    /// Renders the feedback in the protocol of the first call, or that of the selection.
    fn render_model_feedback(&self, tools: &ToolSet, dialects: &DialectSet) -> Option<String> {
        // The model gets the feedback in the dialect that it wrote in, whatever was listened for.
        let first_dialect = self
            .checked
            .iter()
            .find_map(|checked| self.draft.call_by_index(checked.index)?.dialect.clone());
        let protocol = match first_dialect {
            Some(dialect) => ToolProtocol::Prompted(dialect),
            None if dialects.find(self.selection).is_some() => {
                ToolProtocol::Prompted(self.selection.to_owned())
            }
            None => ToolProtocol::Native,
        };
        let context = FeedbackContext {
            protocol: &protocol,
            dialects,
            tools,
            // There is no history before a text, so no mistake in it is a repeated one.
            repetition: &MistakeCounter::default(),
        };
        render_feedback(&self.checked, &self.loose_faults, &self.source, &context)
    }

    fn part_report<'a>(&'a self, part: &'a DraftPart) -> Option<PartReport<'a>> {
        Some(match part {
            DraftPart::Text(text) => PartReport::Text { text },
            DraftPart::Thought(text) => PartReport::Thought { text },
            // State of the provider says nothing to a reader of the report.
            DraftPart::Opaque(_) => return None,
            DraftPart::Call(call) => {
                let checked = self.checked_call(call.index)?;
                PartReport::Call {
                    name: &checked.name,
                    id: call.id.as_deref(),
                    dialect: call.dialect.as_deref(),
                    state: checked.state,
                    arguments: &checked.arguments,
                    // The span of a native call counts in no text.
                    span: call.dialect.as_ref().map(|_| call.span),
                    repairs: &checked.repairs,
                    how: self.recognition_of(call.index),
                }
            }
        })
    }

    fn checked_call(&self, index: u32) -> Option<&CheckedCall> {
        // Nearly always the calls are numbered in the order of their beginnings.
        let usual = usize::try_from(index)
            .ok()
            .and_then(|at| self.checked.get(at));
        usual
            .filter(|checked| checked.index == index)
            .or_else(|| self.checked.iter().find(|checked| checked.index == index))
    }
}

/// The report of `parse`.
#[derive(Debug, Serialize)]
pub struct ParseReport<'a> {
    /// The selection: `auto`, or the name of a dialect or a wire.
    pub dialect: &'a str,
    /// The parts in text order.
    pub parts: Vec<PartReport<'a>>,
    /// All faults in text order.
    pub faults: Vec<FaultReport>,
    /// The feedback that the model would receive.
    pub feedback: Option<&'a str>,
    /// The facts of a response body, at the level of the other fields.
    #[serde(flatten)]
    pub body: Option<&'a BodyReport>,
    #[serde(skip)]
    parsed: &'a ParsedText,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PartReport<'a> {
    /// Text for the user.
    Text {
        /// The text.
        text: &'a str,
    },
    /// Reasoning of the model.
    Thought {
        /// The text.
        text: &'a str,
    },
    /// A call, checked.
    Call {
        /// The tool's name, after any repair.
        name: &'a str,
        /// The provider's id, if it gave one.
        id: Option<&'a str>,
        /// The dialect in which it was written; `None` for a native call.
        dialect: Option<&'a str>,
        /// The verdict of the checks.
        state: CallState,
        /// The typed arguments.
        arguments: &'a Map<String, Value>,
        /// The position in the text; `None` for a native call.
        span: Option<Span>,
        /// The repairs that were applied.
        repairs: &'a [Repair],
        /// The way in which it was recognised; `None` for a native call.
        how: Option<CallRecognition>,
    },
}

/// A fault, in its public form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FaultReport {
    /// The name of its kind.
    pub kind: &'static str,
    /// The effect on the call.
    pub severity: Severity,
    /// The index of the call, if one is affected.
    pub call: Option<u32>,
    /// The name of the argument, if one is affected.
    pub argument: Option<String>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The position in bytes.
    pub span: Span,
    /// The mistake, in one sentence.
    pub message: String,
    /// The advice for correcting it.
    pub hint: Option<String>,
}

impl FaultReport {
    /// Creates the report of a fault in the text of these lines.
    pub fn new(fault: &Fault, lines: &mut SourceLines<'_>) -> Self {
        let place = lines.position_at(fault.span.start);
        Self {
            kind: fault.kind.name(),
            severity: fault.severity,
            call: fault.call,
            argument: fault.argument.clone(),
            line: place.line,
            column: place.column,
            span: fault.span,
            message: fault.message.clone(),
            hint: fault.hint.clone(),
        }
    }
}

impl Report for ParseReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let parsed = self.parsed;
        for part in &parsed.draft.parts {
            match part {
                DraftPart::Text(text) => writeln!(out, "text\n{}", indent_lines(text))?,
                DraftPart::Thought(text) => writeln!(out, "thought\n{}", indent_lines(text))?,
                DraftPart::Opaque(_) => {}
                DraftPart::Call(call) => {
                    if let Some(checked) = parsed.checked_call(call.index) {
                        let spelling = call.dialect.as_deref().unwrap_or("native");
                        out.write_all(render_call(checked, spelling).as_bytes())?;
                    }
                }
            }
        }
        let mut lines = SourceLines::new(&parsed.source);
        for fault in parsed.all_faults() {
            let place = lines.position_at(fault.span.start);
            out.write_all(fault.render_diagnostic_at(&place).as_bytes())?;
        }
        match self.body {
            Some(body) => {
                // What follows is ours and must not vanish in a sequence that the text left open.
                out.flush()?;
                out.write_all(body.render_text().as_bytes())
            }
            None => Ok(()),
        }
    }
}

/// The report of `check`.
#[derive(Debug, Serialize)]
pub struct CheckReport<'a> {
    /// All faults in text order.
    pub faults: Vec<FaultReport>,
    /// The feedback that the model would receive.
    pub feedback: Option<&'a str>,
    #[serde(skip)]
    parsed: &'a ParsedText,
}

impl Report for CheckReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let faults = self.parsed.all_faults();
        for fault in &faults {
            writeln!(out, "{}", fault.render_diagnostic(&self.parsed.source))?;
        }
        if let Some(feedback) = self.feedback {
            writeln!(out, "the model would get:\n\n{feedback}")?;
        }
        // Every fault that is not an error is a warning; there is no third severity.
        let errors = faults
            .iter()
            .filter(|fault| fault.severity == Severity::Error)
            .count();
        writeln!(
            out,
            "{}, {}, {}",
            count_noun(self.parsed.checked.len(), "call"),
            count_noun(errors, "error"),
            count_noun(faults.len() - errors, "warning")
        )
    }
}

/// Renders a checked call; `spelling` is its dialect or `native`.
pub(crate) fn render_call(checked: &CheckedCall, spelling: &str) -> String {
    let state = match checked.state {
        CallState::Complete => "complete",
        CallState::Rejected => "rejected",
        CallState::Cut => "cut",
    };
    let mut text = format!("call {} ({spelling}, {state})\n", checked.name);
    for (name, value) in &checked.arguments {
        match value.as_str() {
            // The lines are indented, so that a value cannot look like another argument.
            Some(words) if words.contains('\n') => {
                text.push_str(&format!("  {name}:\n{}\n", indent_lines(words)))
            }
            Some(words) => text.push_str(&format!("  {name}: {words}\n")),
            // Numbers, arrays and objects keep their JSON form, unlike strings, which lose their
            // quotes.
            None => text.push_str(&format!("  {name}: {value}\n")),
        }
    }
    for repair in &checked.repairs {
        text.push_str(&format!(
            "  repaired ({}): {} -> {}\n",
            repair.rule, repair.before, repair.after
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> ToolSet {
        ToolSet::from_json(
            r#"[{"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}]"#,
        )
        .unwrap()
    }

    #[test]
    fn chunks_do_not_change_the_report() {
        let input = b"Words.\n<look>\n<path>a</path>\n</look>\n<look>\n</look>\n";
        let report = |chunk_bytes| {
            let options = ParseOptions {
                chunk_bytes,
                ..ParseOptions::new(tools())
            };
            let parsed = parse_text(input, &options, &mut |_: Event<'_>| {});
            assert!(!parsed.is_understood(), "the second call lacks its path");
            let mut out = Vec::new();
            parsed.report().write_json(&mut out).unwrap();
            parsed.check_report().write_text(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(report(0).ends_with("2 calls, 1 error, 0 warnings\n"));
        assert_eq!(report(0), report(1));
    }

    #[test]
    fn event_lines_leave_out_marks_and_keep_errors() {
        let options = ParseOptions::new(tools());
        let input = b"<look>\n<path>a</path>\n</look>";
        let mut lines = Vec::new();
        let mut writer = EventLineWriter::new(&mut lines);
        parse_text(input, &options, &mut writer);
        writer.finish().unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains("call_start") && !lines.contains("\"mark\""));

        let mut full: &mut [u8] = &mut [];
        let mut writer = EventLineWriter::new(&mut full);
        parse_text(input, &options, &mut writer);
        assert!(writer.finish().is_err());
    }

    #[test]
    fn dialect_names_are_resolved() {
        let dialects = DialectSet::built_in();
        assert!(select_dialect(dialects, "auto").unwrap().is_none());
        let error = select_dialect(dialects, "clime").unwrap_err().to_string();
        assert!(
            error.starts_with("`clime` is not a dialect: did you mean `cline`? use auto, "),
            "{error}"
        );
    }
}
