//! Collects the faults and repairs of one call on its way through the checks, and builds messages that several checks share.

use sabir_call::compatibility::hinted_argument;
use sabir_call::{
    ArgumentEncoding, CallReader, DraftArgument, DraftCall, DraftResponse, Fault, FaultKind,
    Severity, Span, SpanOrigin, Truncation, nearest_candidate,
};
use serde_json::{Map, Value};

use crate::foreign::Refusal;
use crate::repair::{Repair, RepairSet, shorten_text};

/// The rule for a block of calls whose closing tag is missing.
const MISSING_CLOSE: &str = "missing_close";

/// The faults and repairs of one call.
///
/// Warnings and errors share the lists; only errors stop the call.
#[derive(Clone)]
pub(crate) struct CallDiagnostics<'d> {
    pub(crate) call: &'d DraftCall,
    /// The assistant text; empty if it is not known, as for native calls.
    pub(crate) source: &'d str,
    /// The faults that the parser reported, which come first in the result.
    parser_faults: Vec<Fault>,
    /// The faults that the checks found.
    pub(crate) faults: Vec<Fault>,
    pub(crate) repairs: Vec<Repair>,
}

impl<'d> CallDiagnostics<'d> {
    /// Starts with the faults that the parser attached to this call.
    pub(crate) fn new(
        draft: &'d DraftResponse,
        call: &'d DraftCall,
        parser_faults: Vec<Fault>,
    ) -> Self {
        Self {
            call,
            source: &draft.source,
            parser_faults,
            faults: Vec::new(),
            repairs: Vec::new(),
        }
    }

    /// Returns all faults so far, the parser's first.
    pub(crate) fn all_faults(&self) -> impl Iterator<Item = &Fault> {
        self.parser_faults.iter().chain(&self.faults)
    }

    /// Returns all faults, the parser's first, and the repairs.
    pub(crate) fn into_parts(self) -> (Vec<Fault>, Vec<Repair>) {
        let mut faults = self.parser_faults;
        faults.extend(self.faults);
        (faults, self.repairs)
    }

    /// Makes an error of this call. Spans of a native call are offsets into its arguments, not into the assistant text.
    pub(crate) fn new_fault(&self, kind: FaultKind, span: Span, message: String) -> Fault {
        let fault = Fault::error(kind, span, message).in_call(self.call.index);
        if self.call.dialect.is_none() {
            fault.in_arguments_text()
        } else {
            fault
        }
    }

    /// Returns the span of the tool's name, or of the whole call if the name is not in the text.
    pub(crate) fn name_span(&self) -> Span {
        let Span { start, end } = self.call.name_span;
        if start < end {
            self.call.name_span
        } else {
            self.call.span
        }
    }

    /// Returns the span of an argument's name, which is shortly before its value; the span of the value if it is not found.
    pub(crate) fn argument_name_span(&self, argument: &DraftArgument) -> Span {
        self.find_name_span(argument).unwrap_or(argument.span)
    }

    /// Searches the argument's name in the source text before its value.
    /// Events carry the position of a value but not of its name, so the name is searched backwards
    /// in a small window. The nearest whole word behind markup is taken.
    fn find_name_span(&self, argument: &DraftArgument) -> Option<Span> {
        /// The largest number of bytes of markup between a name and its value.
        const MAX_NAME_DISTANCE: usize = 64;
        let name = argument.name.as_str();
        let end = argument.span.start;
        self.call.dialect.as_ref().filter(|_| !name.is_empty())?;
        let from = end
            .saturating_sub(name.len() + MAX_NAME_DISTANCE)
            .max(self.call.span.start);
        let from = self.source.floor_char_boundary(from);
        let window = self.source.get(from..end)?;
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let alone = |at: &usize| {
            let joins_before = window.get(..*at).is_some_and(|text| text.ends_with(part));
            let joins_after = window
                .get(at + name.len()..)
                .is_some_and(|text| text.starts_with(part));
            !joins_before && !joins_after
        };
        let found = || window.rmatch_indices(name).map(|(at, _)| at).filter(alone);
        // The same word may also be the name of an attribute (`<name name="name">`); the argument's
        // name follows markup or a quote.
        let marked = |at: &usize| {
            window
                .get(..*at)
                .is_some_and(|text| text.ends_with(['<', '>', '"', '\'', '=']))
        };
        let at = from + found().find(marked).or_else(|| found().next())?;
        Some(Span::new(at, at + name.len()))
    }

    /// Adds a fault, unless the parser has reported one of the same kind about the same argument.
    /// The parser's fault points at the exact byte, so it is the better one of the two.
    pub(crate) fn push(&mut self, fault: Fault) {
        let same = |other: &Fault| other.kind == fault.kind && other.argument == fault.argument;
        if !self.parser_faults.iter().any(same) {
            self.faults.push(fault);
        }
    }

    /// Turns each mistake that the parser accepted with a warning into a repair if that rule is active, else into an error.
    ///
    /// Parsers know no repair rules. They accept these slips while streaming, because the bytes are unambiguous, and leave the decision to
    /// the checks.
    pub(crate) fn convert_tolerated_faults(&mut self, repairs: RepairSet) {
        for mut fault in std::mem::take(&mut self.parser_faults) {
            if fault.severity == Severity::Warning
                && let Some(rule) = tolerated_fault_rule(fault.kind)
            {
                let is_repaired = repairs.has_rule(rule);
                if is_repaired {
                    self.repairs.push(self.tolerated_fault_repair(rule, &fault));
                } else {
                    fault.severity = Severity::Error;
                }
                // A missing closing tag stays a warning, since the validator reports it in any
                // case.
                if is_repaired && rule != MISSING_CLOSE {
                    continue;
                }
            }
            self.parser_faults.push(fault);
        }
    }

    /// Makes the record of a mistake that the parser accepted. Without the source text, it contains the parser's message. `before` and
    /// `after` are derived from the kind, since the parser recorded only the span.
    fn tolerated_fault_repair(&self, rule: &'static str, fault: &Fault) -> Repair {
        let Span { start, end } = fault.span;
        let source = Some(self.source).filter(|_| fault.origin == SpanOrigin::Text);
        let at_hand =
            source.and_then(|source| Some((source.get(..start)?, source.get(start..end)?)));
        let Some((before, marked)) = at_hand else {
            let after = fault.hint.clone().unwrap_or_default();
            return Repair {
                rule: rule.into(),
                span: fault.span,
                before: fault.message.clone(),
                after,
            };
        };
        let (start, before, after) = match fault.kind {
            FaultKind::ControlCharacter => (
                start,
                marked.to_owned(),
                marked.escape_default().to_string(),
            ),
            // The span is the closing bracket; the comma before it belongs to the text that was
            // changed.
            FaultKind::TrailingComma => {
                let from = before
                    .trim_ascii_end()
                    .strip_suffix(',')
                    .map_or(start, str::len);
                (
                    from,
                    self.source.get(from..end).unwrap_or(marked).to_owned(),
                    marked.to_owned(),
                )
            }
            FaultKind::ExtraBracket => (start, marked.to_owned(), String::new()),
            FaultKind::WrongClose | FaultKind::CutCall => {
                let tag = fault.message.split('`').nth(1).unwrap_or_default();
                (start, String::new(), tag.to_owned())
            }
            _ => {
                let inside = marked
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .unwrap_or(marked);
                (
                    start,
                    marked.to_owned(),
                    format!("\"{}\"", inside.replace('"', "\\\"")),
                )
            }
        };
        Repair {
            rule: rule.into(),
            span: Span::new(start, end),
            before: shorten_text(&before),
            after: shorten_text(&after),
        }
    }

    /// Records that the arguments of a native call were read from a call in tags.
    pub(crate) fn note_xml_arguments(&mut self, written: &DraftCall) {
        if let Some(argument) = written.arguments.first() {
            let names = self.call.arguments.iter().map(|it| it.name.as_str());
            let after = format!("{} with {}", self.call.name, quote_names(names));
            self.push_repair("xml_arguments", argument.span, &argument.text, &after);
        }
    }

    /// Reports tags as the arguments of a native call.
    pub(crate) fn push_xml_fault(&mut self, written: &DraftCall, message: String, hint: &str) {
        let span = written.arguments.first().map_or(written.span, |it| it.span);
        let fault = self.new_fault(FaultKind::TagInJson, span, message);
        self.push(fault.with_hint(hint));
    }

    /// Returns true if the checks found tags in place of the arguments.
    pub(crate) fn has_xml_fault(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| fault.kind == FaultKind::TagInJson && fault.argument.is_none())
    }

    /// Reports that the call's tool does not exist here.
    pub(crate) fn push_unknown_tool(&mut self, hint: String) {
        let message = format!("there is no tool `{}`", shorten_text(&self.call.name));
        let fault = self.new_fault(FaultKind::UnknownTool, self.name_span(), message);
        self.push(fault.with_hint(hint));
    }

    /// Reports why a call of another agent's tool has no counterpart here.
    pub(crate) fn push_refusal(&mut self, tool: &str, refusal: Refusal) {
        let Some(name) = refusal.argument else {
            return self.push_unknown_tool(refusal.hint);
        };
        let place = self.call.arguments.iter().find(|it| it.name == name);
        let span = place.map_or_else(|| self.name_span(), |it| self.argument_name_span(it));
        let message = format!(
            "`{}` of `{}` cannot be followed here",
            shorten_text(&name),
            shorten_text(tool)
        );
        let fault = self.new_fault(FaultKind::InvalidValue, span, message);
        self.push(fault.in_argument(name).with_hint(refusal.hint));
    }

    /// Records a repair, with both texts shortened.
    pub(crate) fn push_repair(
        &mut self,
        rule: &'static str,
        span: Span,
        before: &str,
        after: &str,
    ) {
        self.repairs.push(Repair {
            rule: rule.into(),
            span,
            before: shorten_text(before),
            after: shorten_text(after),
        });
    }

    /// Adds hints to the parser's faults about unknown arguments. The parser knows tags, but not which names are similar.
    pub(crate) fn suggest_near_names(&mut self, declared: &[&str]) {
        for fault in &mut self.parser_faults {
            let name = fault
                .argument
                .as_deref()
                .filter(|_| fault.kind == FaultKind::UnknownArgument);
            if let Some(near) = name.and_then(|name| likely_argument(name, declared)) {
                fault.hint = Some(format!("did you mean `{near}`?"));
            }
        }
    }

    /// Returns true if there is an error about this argument.
    pub(crate) fn has_error_for(&self, argument: &str) -> bool {
        self.errors()
            .any(|fault| fault.argument.as_deref() == Some(argument))
    }

    /// Returns the errors so far.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &Fault> {
        self.all_faults()
            .filter(|fault| fault.severity == Severity::Error)
    }

    /// Returns true if arguments are in a place where they cannot be read, so that missing ones are not reported again.
    pub(crate) fn has_json_in_tag(&self) -> bool {
        self.errors()
            .any(|fault| fault.kind == FaultKind::JsonInTag)
    }

    /// Returns true if the text of the arguments was cut or could not be read to its end. An unread argument may have been written then, so
    /// it is not reported as missing.
    pub(crate) fn is_unreadable(&self) -> bool {
        let json =
            |fault: &Fault| matches!(fault.kind, FaultKind::MalformedJson | FaultKind::TagInJson);
        let broken = |fault: &Fault| json(fault) && fault.argument.is_none();
        self.errors()
            .any(|fault| fault.kind == FaultKind::CutCall || broken(fault))
    }

    /// Reports a cut call: where and why.
    /// The number of bytes that arrived tells the model how much fits into one call.
    pub(crate) fn report_truncation(&mut self, why: Truncation) {
        let call = self.call;
        let inside = call.arguments.iter().find(|argument| argument.partial);
        let place = match (inside, call.arguments.last()) {
            (Some(argument), _) => {
                format!(
                    "inside `{}`, {} bytes into its value",
                    shorten_text(&argument.name),
                    argument.text.len()
                )
            }
            (None, Some(argument)) => format!("after `{}`", shorten_text(&argument.name)),
            (None, None) => "before its first argument".to_owned(),
        };
        let (reason, hint) = match why {
            Truncation::Ended => (
                "the message ended there",
                Some("write the whole call again and close it"),
            ),
            Truncation::Limit => (
                "the output limit was reached there",
                Some(
                    "write less in one call: make the content in smaller pieces, with several calls",
                ),
            ),
            Truncation::Broken => ("the connection broke there", Some("write the call again")),
            Truncation::Cancelled => ("the user stopped it there", None),
        };
        let message = format!(
            "the call of `{}` was cut {place}: {reason}; it was not run",
            shorten_text(&call.name)
        );
        let mut fault = self.new_fault(
            FaultKind::CutCall,
            Span::new(call.span.end, call.span.end),
            message,
        );
        fault.argument = inside.map(|argument| argument.name.clone());
        fault.hint = hint.map(str::to_owned);
        // It replaces the parser's fault, which knows neither the reason nor the argument.
        self.parser_faults
            .retain(|fault| fault.kind != FaultKind::CutCall);
        self.parser_faults.insert(0, fault);
    }

    /// Copies the arguments of a call to an unknown tool as written, for displaying the call.
    /// JSON stays JSON; every other form is a string. Of two equal names the first is kept, as for
    /// known tools.
    pub(crate) fn copy_untyped_arguments(&mut self, into: &mut Map<String, Value>) {
        for argument in &self.call.arguments {
            // `tool_name` may be a real argument of the unknown tool, `TOOL_NAME` cannot.
            let loud = !argument.name.contains(|c: char| c.is_ascii_lowercase());
            if is_placeholder(&argument.name) && (loud || is_placeholder(&self.call.name)) {
                self.push(placeholder_fault(self, argument));
            }
            let json = || {
                serde_json::from_str(&argument.text)
                    .ok()
                    .filter(|_| argument.form == ArgumentEncoding::Json)
            };
            if !into.contains_key(&argument.name) {
                into.insert(
                    argument.name.clone(),
                    json().unwrap_or_else(|| Value::String(argument.text.clone())),
                );
            }
        }
    }
}

/// Returns the repair rule for a mistake that the parsers accept with a warning.
fn tolerated_fault_rule(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::ControlCharacter
        | FaultKind::TrailingComma
        | FaultKind::SingleQuotes
        | FaultKind::ExtraBracket => Some(kind.name()),
        FaultKind::WrongClose => Some(MISSING_CLOSE),
        FaultKind::CutCall => Some(CallReader::MISSING_LAST_CLOSE),
        _ => None,
    }
}

/// Makes the fault of a placeholder in the place of an argument's name.
pub(crate) fn placeholder_fault(notes: &CallDiagnostics<'_>, argument: &DraftArgument) -> Fault {
    let message = format!(
        "`{}` is a placeholder of the instructions, not an argument",
        shorten_text(&argument.name)
    );
    let fault = notes.new_fault(
        FaultKind::Placeholder,
        notes.argument_name_span(argument),
        message,
    );
    fault
        .in_argument(argument.name.clone())
        .with_hint("put the name of an argument in its place")
}

/// Returns true if a name is a placeholder from instructions: `tool_name`, `TOOL_NAME`, `parameter1_name`, `PARAM_VALUE`.
///
/// Callers check declared names first, so a tool may have an argument `tool_name`.
pub(crate) fn is_placeholder(name: &str) -> bool {
    const HEADS: [&str; 6] = ["tool", "function", "parameter", "param", "argument", "arg"];
    let lower = name.trim().trim_start_matches('$').to_ascii_lowercase();
    let lower = lower.strip_prefix("actual_").unwrap_or(&lower);
    // `parameter1_name` and `arg_2_value` lose the digits and the separator before them.
    let head = lower
        .strip_suffix("_name")
        .or_else(|| lower.strip_suffix("_value"));
    let head = head.map(|head| {
        head.trim_end_matches(|c: char| c.is_ascii_digit())
            .trim_end_matches('_')
    });
    head.is_some_and(|head| HEADS.contains(&head))
}

/// Returns true if a whole value is a placeholder: `PARAM_VALUE`, `parameter1_value`, `$PARAMETER_VALUE`.
///
/// Placeholders for names do not count, because a search for `tool_name` is legitimate.
pub(crate) fn is_placeholder_value(value: &str) -> bool {
    let bare = value.trim();
    let loud = bare.chars().all(|c| !c.is_ascii_lowercase())
        || bare.contains(|c: char| c.is_ascii_digit());
    loud && is_placeholder(bare) && bare.to_ascii_lowercase().ends_with("_value")
}

/// Lists up to eight names in backticks.
/// More follow as `…`, because a set of tools can have hundreds.
pub(crate) fn quote_names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut all = all.peekable();
    let mut words: Vec<String> = all
        .by_ref()
        .take(SHOWN)
        .map(|name| format!("`{}`", shorten_text(name)))
        .collect();
    if all.peek().is_some() {
        words.push("…".to_owned());
    }
    words.join(", ")
}

/// Returns the declared argument that a name probably means: one for which models use it, or else the
/// most similar one.
pub(crate) fn likely_argument<'d>(name: &str, declared: &[&'d str]) -> Option<&'d str> {
    hinted_argument(name, declared).or_else(|| nearest_candidate(name, declared.iter().copied()))
}

/// Returns a hint with the most similar candidate, or else with all candidates.
pub(crate) fn suggestion_hint(name: &str, candidates: &[&str]) -> String {
    match likely_argument(name, candidates) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => "it takes no arguments".to_owned(),
        None => format!(
            "its arguments are {}",
            quote_names(candidates.iter().copied())
        ),
    }
}
