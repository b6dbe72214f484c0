//! Implements `parse` and `check`: shows the calls and faults found in a text. `explain` and
//! `wire decode` share this code.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use sabir_call::{
    CallReader, Certainty, DraftPart, DraftResponse, Event, EventSink, Fault, FaultKind,
    MarkupRole, MarkupSpan, ParallelCalls, Severity, ToolProtocol, ToolSet, Truncation,
};
use sabir_check::{
    CallChecker, CallState, CheckedCall, FeedbackContext, RepeatTracker, render_feedback,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{CheckArguments, ListeningOptions, OutputFormat, ParseArguments, ReportFormat};
use crate::commands::wire::BodyReport;
use crate::exit::unknown_dialect;
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;

/// The report that `--output json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct ParseReport<'a> {
    dialect: &'a str,
    parts: Vec<Value>,
    faults: Vec<Value>,
    feedback: Option<String>,
    #[serde(flatten)]
    response: Option<&'a BodyReport>,
}

/// A text and the results of parsing and checking it.
pub(crate) struct ParsedText {
    /// The selection: `auto`, or the name of a dialect or a wire.
    pub(crate) selection: &'static str,
    /// The text that was parsed.
    pub(crate) source: String,
    /// The parsed parts.
    pub(crate) draft: DraftResponse,
    /// The checked calls.
    pub(crate) checked: Vec<CheckedCall>,
    /// The way in which each call was recognised.
    pub(crate) recognitions: RecognitionTracker,
    /// The faults that belong to no call.
    pub(crate) loose_faults: Vec<Fault>,
    /// The tools that calls were checked against.
    pub(crate) tools: ToolSet,
}

/// The way in which a call was recognised.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CallRecognition {
    /// The certainty of the reader.
    pub(crate) sure: Certainty,
    /// The rule that applied.
    pub(crate) rule: &'static str,
}

/// Collects events as a draft, and prints them if requested.
pub(crate) struct DraftCollector {
    draft: DraftResponse,
    prints: bool,
    recognised: RecognitionTracker,
}

/// Tracks how each call was recognised: by the marker right before it, or else by the last wrapper
/// around calls of its dialect. A call in text without either has no marker at all.
#[derive(Debug, Default)]
pub(crate) struct RecognitionTracker {
    /// True if the user chose one dialect.
    chosen: bool,
    how: BTreeMap<u32, CallRecognition>,
    call: Option<CallRecognition>,
    wrapper: Option<(Option<String>, CallRecognition)>,
}

impl RecognitionTracker {
    /// Creates a tracker for all dialects (`auto`), or for the one of that name.
    pub(crate) fn new(selection: &str) -> Self {
        Self {
            chosen: selection != "auto",
            ..Self::default()
        }
    }

    /// Updates the tracker with the next event.
    pub(crate) fn note_event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(MarkupSpan {
                role,
                dialect,
                sure,
                rule,
                ..
            }) => match role {
                MarkupRole::Call => self.call = Some(CallRecognition { sure, rule }),
                MarkupRole::Wrapper => {
                    self.wrapper =
                        Some((dialect.map(str::to_owned), CallRecognition { sure, rule }))
                }
                _ => {}
            },
            Event::CallStart { index, dialect, .. } => {
                let wrapper = self
                    .wrapper
                    .as_ref()
                    .filter(|(known, _)| known.as_deref() == dialect);
                let sure = if self.chosen {
                    Certainty::Certain
                } else {
                    Certainty::Guess
                };
                let bare = dialect.map(|_| CallRecognition {
                    sure,
                    rule: "no marker: its shape and its place say that it is a call",
                });
                let how = self.call.take().or(wrapper.map(|(_, how)| *how)).or(bare);
                self.how.extend(how.map(|how| (index, how)));
            }
            _ => {}
        }
    }

    /// Returns the recognition of a call.
    pub(crate) fn recognition_of(&self, index: u32) -> Option<CallRecognition> {
        self.how.get(&index).copied()
    }
}

impl DraftCollector {
    /// Creates a collector; `prints` also prints every event as a line.
    pub(crate) fn new(prints: bool, selection: &str) -> Self {
        Self {
            draft: DraftResponse::default(),
            prints,
            recognised: RecognitionTracker::new(selection),
        }
    }

    /// Returns the draft, and how its calls were recognised.
    pub(crate) fn into_draft(mut self) -> (DraftResponse, RecognitionTracker) {
        self.draft.drop_blank_text();
        (self.draft, self.recognised)
    }
}

impl EventSink for DraftCollector {
    fn push_event(&mut self, event: Event<'_>) {
        self.recognised.note_event(event);
        // Marks are printed by `explain` only: they tell why something was recognised.
        if self.prints && !matches!(event, Event::Mark(_)) {
            print::print_json(&event);
        }
        self.draft.push_event(event);
    }
}

/// Runs `sabir parse`.
pub(crate) fn run_parse(arguments: &ParseArguments) -> Result<ExitStatus, CommandError> {
    let prints = arguments.output == OutputFormat::Events;
    let reading = read_input(&arguments.listening, prints, &mut |_| {})?;
    match arguments.output {
        OutputFormat::Json => print::print_json(&reading.to_report(None)),
        OutputFormat::Text => print::write_stdout(&reading.render_text()),
        OutputFormat::Events => {}
    }
    Ok(reading.exit_status())
}

/// Runs `sabir check` on standard input.
pub(crate) fn check_input(arguments: &CheckArguments) -> Result<ExitStatus, CommandError> {
    let reading = read_input(&arguments.listening, false, &mut |_| {})?;
    let faults = reading.all_faults();
    match arguments.output {
        ReportFormat::Json => {
            let faults: Vec<_> = faults
                .iter()
                .map(|fault| fault_json(fault, &reading.source))
                .collect();
            print::print_json(&json!({"faults": faults, "feedback": reading.model_feedback()}));
        }
        ReportFormat::Text => {
            let mut text = String::new();
            for fault in &faults {
                text.push_str(&fault.render_diagnostic(&reading.source));
                text.push('\n');
            }
            if let Some(feedback) = reading.model_feedback() {
                text.push_str(&format!("the model would be told:\n\n{feedback}\n"));
            }
            let errors = faults
                .iter()
                .filter(|fault| fault.severity == Severity::Error)
                .count();
            text.push_str(&format!(
                "{}, {}, {}\n",
                print::count_noun(reading.checked.len(), "call"),
                print::count_noun(errors, "error"),
                print::count_noun(faults.len() - errors, "warning")
            ));
            print::write_stdout(&print::sanitize_text(&text));
        }
    }
    Ok(reading.exit_status())
}

/// Parses and checks standard input according to the options, and prints the events if `prints` is
/// set. Passes every event to `also`.
pub(crate) fn read_input(
    options: &ListeningOptions,
    prints: bool,
    also: &mut dyn FnMut(Event<'_>),
) -> Result<ParsedText, CommandError> {
    let dialects = surroundings::dialects();
    let (name, selection) = match (options.dialect.as_str(), dialects.find(&options.dialect)) {
        ("auto", _) => ("auto", dialects.all()),
        (_, Some(dialect)) => (dialect.name, dialects.only(dialect)),
        (unknown, None) => return Err(unknown_dialect(unknown, "auto, ")),
    };
    let tools = load_tools(options.reading.tools.as_deref())?;
    let checker = build_checker(options, tools.clone())?;
    let bytes = read_stdin()?;
    let mut listener = DraftCollector::new(prints, name);
    let mut sink = |event: Event<'_>| {
        also(event);
        listener.push_event(event);
    };
    let mut reader = CallReader::new(selection, &tools);
    for chunk in split_chunks(&bytes, options.reading.chunk) {
        reader.push_bytes(chunk, &mut sink);
    }
    reader.finish(Truncation::Ended, &mut sink);
    let (mut draft, how) = listener.into_draft();
    // The reader does not store its input, but the checks look for names in it.
    draft.source = String::from_utf8_lossy(&bytes).into_owned();
    let checked = checker.check_all(&draft);
    let loose = checker.unattached_faults(&draft);
    let source = draft.source.clone();
    Ok(ParsedText {
        selection: name,
        source,
        draft,
        checked,
        recognitions: how,
        loose_faults: loose,
        tools,
    })
}

/// Builds the checks that the options and the configuration request.
fn build_checker(options: &ListeningOptions, tools: ToolSet) -> Result<CallChecker, CommandError> {
    let config = surroundings::load_config(None)?;
    let repairs =
        sabir_session::repairs_without(config.disabled_repairs().iter().chain(&options.no_repair))?;
    let parallel = if options.one {
        ParallelCalls::One
    } else {
        ParallelCalls::Many
    };
    Ok(CallChecker::new(tools)
        .with_repairs(repairs)
        .with_parallel(parallel))
}

impl ParsedText {
    /// Returns all faults in text order.
    pub(crate) fn all_faults(&self) -> Vec<Fault> {
        let calls = self.checked.iter().flat_map(|call| &call.faults);
        let mut faults: Vec<_> = calls.chain(&self.loose_faults).cloned().collect();
        faults.sort_by_key(|fault| fault.span.start);
        faults
    }

    /// Returns the feedback that the model would receive.
    pub(crate) fn model_feedback(&self) -> Option<String> {
        let protocol = match self
            .checked
            .iter()
            .find_map(|checked| self.draft.call_by_index(checked.index)?.dialect.clone())
        {
            Some(dialect) => ToolProtocol::Prompted(dialect),
            None if surroundings::dialects().find(self.selection).is_some() => {
                ToolProtocol::Prompted(self.selection.to_owned())
            }
            None => ToolProtocol::Native,
        };
        let audience = FeedbackContext {
            protocol: &protocol,
            dialects: surroundings::dialects(),
            tools: &self.tools,
            repetition: &RepeatTracker::default(),
        };
        render_feedback(&self.checked, &self.loose_faults, &self.source, &audience)
    }

    /// Returns the exit status: not understood if a call or the model's text is at fault.
    pub(crate) fn exit_status(&self) -> ExitStatus {
        let bad_call = self
            .checked
            .iter()
            .any(|call| call.state != CallState::Complete);
        // Faults on the provider's side do not count as calls that were not understood.
        let of_model =
            |fault: &&Fault| fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
        let loose = self.loose_faults.iter().any(|fault| of_model(&fault));
        if bad_call || loose {
            ExitStatus::NotUnderstood
        } else {
            ExitStatus::Completed
        }
    }

    /// Converts the result into the JSON report.
    pub(crate) fn to_report<'a>(&'a self, response: Option<&'a BodyReport>) -> ParseReport<'a> {
        let parts = self.draft.parts.iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(json!({"type": "text", "text": text})),
            DraftPart::Thought(text) => Some(json!({"type": "thought", "text": text})),
            DraftPart::Opaque(_) => None,
            DraftPart::Call(call) => {
                let checked = self.checked.iter().find(|checked| checked.index == call.index)?;
                let span = call.dialect.as_ref().map(|_| call.span);
                Some(json!({
                    "type": "call", "name": checked.name, "id": call.id, "dialect": call.dialect, "state": checked.state,
                    "arguments": checked.arguments, "span": span, "repairs": checked.repairs, "how": self.recognitions.recognition_of(call.index),
                }))
            }
        });
        ParseReport {
            dialect: self.selection,
            parts: parts.collect(),
            faults: self
                .all_faults()
                .iter()
                .map(|fault| fault_json(fault, &self.source))
                .collect(),
            feedback: self.model_feedback(),
            response,
        }
    }

    /// Renders the result for people.
    pub(crate) fn render_text(&self) -> String {
        let mut text = String::new();
        for part in &self.draft.parts {
            match part {
                DraftPart::Text(words) => {
                    text.push_str(&format!("text\n{}\n", print::indent_lines(words)))
                }
                DraftPart::Thought(words) => {
                    text.push_str(&format!("thought\n{}\n", print::indent_lines(words)))
                }
                DraftPart::Opaque(_) => {}
                DraftPart::Call(call) => {
                    let Some(checked) = self
                        .checked
                        .iter()
                        .find(|checked| checked.index == call.index)
                    else {
                        continue;
                    };
                    text.push_str(&render_call(
                        checked,
                        call.dialect.as_deref().unwrap_or("native"),
                    ));
                }
            }
        }
        for fault in self.all_faults() {
            text.push_str(&fault.render_diagnostic(&self.source));
        }
        print::sanitize_text(&text)
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
            Some(words) if words.contains('\n') => {
                text.push_str(&format!("  {name}:\n{}\n", print::indent_lines(words)))
            }
            Some(words) => text.push_str(&format!("  {name}: {words}\n")),
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

/// Converts a fault into its documented JSON form.
pub(crate) fn fault_json(fault: &Fault, source: &str) -> Value {
    let place = fault.position_in(source);
    json!({
        "kind": fault.kind.name(), "severity": fault.severity, "call": fault.call, "argument": fault.argument,
        "line": place.line, "column": place.column, "span": fault.span, "message": fault.message, "hint": fault.hint,
    })
}

/// Loads the tools of a file, or the built-in ones.
pub(crate) fn load_tools(path: Option<&Path>) -> Result<ToolSet, CommandError> {
    let Some(path) = path else {
        return Ok(sabir_session::built_in_tools());
    };
    let shown = path.display();
    let text = sabir_session::config::read_text(path)?;
    ToolSet::from_json(&text).map_err(|error| CommandError::usage(format!("{shown}: {error}")))
}

/// Reads all of standard input.
pub(crate) fn read_stdin() -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| {
        CommandError::internal(format!("standard input cannot be read: {error}"))
    })?;
    Ok(bytes)
}

/// Splits the input into chunks, to show that the result does not depend on the split.
pub(crate) fn split_chunks(bytes: &[u8], size: usize) -> std::slice::Chunks<'_, u8> {
    bytes.chunks(if size == 0 { bytes.len().max(1) } else { size })
}
