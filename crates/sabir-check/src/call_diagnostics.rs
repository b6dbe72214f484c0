//! What is found out about one call on its way through the gates, and the words that several gates share.

use sabir_call::{
    ArgForm, DraftArgument, DraftCall, DraftResponse, Fault, FaultKind, Severity, Span, SpanOrigin, Truncation,
    nearest_candidate,
};
use serde_json::{Map, Value};

use crate::repair::{Repair, RepairSet, shorten_text};

/// What is found out about one call on its way through the gates.
pub(crate) struct CallDiagnostics<'d> {
    pub(crate) call: &'d DraftCall,
    /// The assistant text, where it is known.
    pub(crate) source: &'d str,
    pub(crate) faults: Vec<Fault>,
    pub(crate) repairs: Vec<Repair>,
    /// How many of the faults are the parser's own.
    parser_faults: usize,
}

impl<'d> CallDiagnostics<'d> {
    pub(crate) fn new(draft: &'d DraftResponse, call: &'d DraftCall) -> Self {
        let faults: Vec<Fault> = draft.faults.iter().filter(|fault| fault.call == Some(call.index)).cloned().collect();
        Self { call, source: &draft.source, parser_faults: faults.len(), faults, repairs: Vec::new() }
    }

    /// A fault of this call, counted in whatever its spans count in.
    pub(crate) fn new_fault(&self, kind: FaultKind, span: Span, message: String) -> Fault {
        let fault = Fault::error(kind, span, message).in_call(self.call.index);
        if self.call.dialect.is_none() { fault.in_arguments_text() } else { fault }
    }

    /// Where the tool's name stands; the whole call where it does not stand in the text.
    pub(crate) fn name_span(&self) -> Span {
        let Span { start, end } = self.call.name_span;
        if start < end { self.call.name_span } else { self.call.span }
    }

    /// Where an argument's name stands: shortly before its value, in a text that is at hand. Else where the value stands.
    pub(crate) fn argument_name_span(&self, argument: &DraftArgument) -> Span {
        self.find_name_span(argument).unwrap_or(argument.span)
    }

    fn find_name_span(&self, argument: &DraftArgument) -> Option<Span> {
        /// The most bytes of markup between a name and its value.
        const REACH: usize = 64;
        let (name, end) = (argument.name.as_str(), argument.span.start);
        self.call.dialect.as_ref().filter(|_| !name.is_empty())?;
        let from = end.saturating_sub(name.len() + REACH).max(self.call.span.start);
        let from = self.source.floor_char_boundary(from);
        let window = self.source.get(from..end)?;
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let alone = |at: &usize| {
            let (before, after) = (window.get(..*at), window.get(at + name.len()..));
            !before.is_some_and(|text| text.ends_with(part)) && !after.is_some_and(|text| text.starts_with(part))
        };
        let found = || window.rmatch_indices(name).map(|(at, _)| at).filter(alone);
        // An attribute's own name may be spelled the same; names stand in marks.
        let marked = |at: &usize| window.get(..*at).is_some_and(|text| text.ends_with(['<', '>', '"', '\'', '=']));
        let at = from + found().find(marked).or_else(|| found().next())?;
        Some(Span::new(at, at + name.len()))
    }

    /// Notes a fault, unless the parser has noted the same already.
    pub(crate) fn push(&mut self, fault: Fault) {
        let mut known = self.faults.iter().take(self.parser_faults);
        if !known.any(|other| other.kind == fault.kind && other.argument == fault.argument) {
            self.faults.push(fault);
        }
    }

    /// The slips that the parser read as what they can only mean: a repair where the rule of that name is on, else an error.
    pub(crate) fn classify_slips(&mut self, repairs: RepairSet) {
        for mut fault in std::mem::take(&mut self.faults) {
            let rule = slip_rule(fault.kind).filter(|_| fault.severity == Severity::Warning);
            match rule {
                Some(rule) if repairs.has_rule(rule) => self.repairs.push(self.slip_repair(rule, &fault)),
                Some(_) => {
                    fault.severity = Severity::Error;
                    self.faults.push(fault);
                }
                None => self.faults.push(fault),
            }
        }
        self.parser_faults = self.faults.len();
    }

    /// A slip for the audit. Where the text is not at hand, the parser's words stand for it.
    fn slip_repair(&self, rule: &'static str, fault: &Fault) -> Repair {
        let Span { start, end } = fault.span;
        let source = Some(self.source).filter(|_| fault.origin == SpanOrigin::Text);
        let at_hand = source.and_then(|source| Some((source.get(..start)?, source.get(start..end)?)));
        let Some((before, marked)) = at_hand else {
            let (before, after) = (fault.message.clone(), fault.hint.clone().unwrap_or_default());
            return Repair { rule: rule.into(), span: fault.span, before, after };
        };
        let (start, before, after) = match fault.kind {
            FaultKind::ControlCharacter => (start, marked.to_owned(), marked.escape_default().to_string()),
            FaultKind::TrailingComma => {
                let from = before.trim_ascii_end().strip_suffix(',').map_or(start, str::len);
                (from, self.source.get(from..end).unwrap_or(marked).to_owned(), marked.to_owned())
            }
            FaultKind::ExtraBracket => (start, marked.to_owned(), String::new()),
            _ => {
                let inside = marked.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(marked);
                (start, marked.to_owned(), format!("\"{}\"", inside.replace('"', "\\\"")))
            }
        };
        Repair {
            rule: rule.into(),
            span: Span::new(start, end),
            before: shorten_text(&before),
            after: shorten_text(&after),
        }
    }

    pub(crate) fn push_repair(&mut self, rule: &'static str, span: Span, before: &str, after: &str) {
        self.repairs.push(Repair { rule: rule.into(), span, before: shorten_text(before), after: shorten_text(after) });
    }

    /// Names what the parser's own unknown arguments may mean: it knows tags, and not which of them are near.
    pub(crate) fn suggest_near_names(&mut self, declared: &[&str]) {
        for fault in self.faults.iter_mut().take(self.parser_faults) {
            let name = fault.argument.as_deref().filter(|_| fault.kind == FaultKind::UnknownArgument);
            if let Some(near) = name.and_then(|name| nearest_candidate(name, declared.iter().copied())) {
                fault.hint = Some(format!("did you mean `{near}`?"));
            }
        }
    }

    /// Whether an error about this argument is known.
    pub(crate) fn has_error_for(&self, argument: &str) -> bool {
        self.errors().any(|fault| fault.argument.as_deref() == Some(argument))
    }

    /// The errors so far.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.severity == Severity::Error)
    }

    /// Whether arguments stand where they cannot be read, so that it is no mistake of its own that they are missing.
    pub(crate) fn has_json_in_tag(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::JsonInTag && fault.severity == Severity::Error)
    }

    /// Whether the text of the arguments ends too early or could not be read to its end.
    pub(crate) fn is_unreadable(&self) -> bool {
        let json = |fault: &Fault| matches!(fault.kind, FaultKind::MalformedJson | FaultKind::TagInJson);
        let broken = |fault: &Fault| json(fault) && fault.argument.is_none();
        let stops = |fault: &Fault| fault.kind == FaultKind::CutCall || broken(fault);
        self.faults.iter().any(|fault| fault.severity == Severity::Error && stops(fault))
    }

    pub(crate) fn report_truncation(&mut self, why: Truncation) {
        let call = self.call;
        let inside = call.arguments.iter().find(|argument| argument.partial);
        let place = match (inside, call.arguments.last()) {
            (Some(argument), _) => {
                format!("inside `{}`, {} bytes into its value", shorten_text(&argument.name), argument.text.len())
            }
            (None, Some(argument)) => format!("after `{}`", shorten_text(&argument.name)),
            (None, None) => "before its first argument".to_owned(),
        };
        let (reason, hint) = match why {
            Truncation::Ended => ("the message ended there", Some("write the whole call again and close it")),
            Truncation::Limit => (
                "the output limit was reached there",
                Some("write less in one call: make the content in smaller pieces, with several calls"),
            ),
            Truncation::Broken => ("the connection broke there", Some("write the call again")),
            Truncation::Cancelled => ("the user stopped it there", None),
        };
        let message = format!("the call of `{}` was cut {place}: {reason}; it was not run", shorten_text(&call.name));
        let mut fault = self.new_fault(FaultKind::CutCall, Span::new(call.span.end, call.span.end), message);
        fault.argument = inside.map(|argument| argument.name.clone());
        fault.hint = hint.map(str::to_owned);
        let cut = |fault: &Fault| fault.kind == FaultKind::CutCall;
        // Only here is it known why and where: one fault says it all.
        if self.faults.iter().any(cut) {
            self.faults.retain(|fault| !cut(fault));
            self.parser_faults = self.faults.len();
        }
        self.faults.insert(0, fault);
        self.parser_faults += 1;
    }

    /// The arguments of a call whose tool is not known: as written, for whoever shows the call.
    pub(crate) fn copy_untyped_arguments(&mut self, into: &mut Map<String, Value>) {
        for argument in &self.call.arguments {
            // An unknown tool may well have an argument `tool_name`, but no `TOOL_NAME`.
            let loud = !argument.name.contains(|c: char| c.is_ascii_lowercase());
            if is_placeholder(&argument.name) && (loud || is_placeholder(&self.call.name)) {
                self.push(placeholder_fault(self, argument));
            }
            let json = || serde_json::from_str(&argument.text).ok().filter(|_| argument.form == ArgForm::Json);
            if !into.contains_key(&argument.name) {
                into.insert(argument.name.clone(), json().unwrap_or_else(|| Value::String(argument.text.clone())));
            }
        }
    }
}

/// The rule that forgives a slip of which the parsers warn.
fn slip_rule(kind: FaultKind) -> Option<&'static str> {
    match kind {
        FaultKind::ControlCharacter | FaultKind::TrailingComma | FaultKind::SingleQuotes | FaultKind::ExtraBracket => {
            Some(kind.name())
        }
        _ => None,
    }
}

/// The fault of a placeholder that stands where an argument's name should.
pub(crate) fn placeholder_fault(notes: &CallDiagnostics<'_>, argument: &DraftArgument) -> Fault {
    let message = format!("`{}` is a placeholder of the instructions, not an argument", shorten_text(&argument.name));
    let fault = notes.new_fault(FaultKind::Placeholder, notes.argument_name_span(argument), message);
    fault.in_argument(argument.name.clone()).with_hint("put the name of an argument in its place")
}

/// Whether a name is one that instructions use for "some name": `tool_name`, `TOOL_NAME`, `parameter1_name`, `PARAM_VALUE`.
/// A declared name never gets here, so that a tool may well have an argument `tool_name`.
pub(crate) fn is_placeholder(name: &str) -> bool {
    const HEADS: [&str; 6] = ["tool", "function", "parameter", "param", "argument", "arg"];
    let lower = name.trim().trim_start_matches('$').to_ascii_lowercase();
    let lower = lower.strip_prefix("actual_").unwrap_or(&lower);
    let head = lower.strip_suffix("_name").or_else(|| lower.strip_suffix("_value"));
    let head = head.map(|head| head.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_'));
    head.is_some_and(|head| HEADS.contains(&head))
}

/// Whether a whole value is a placeholder: `PARAM_VALUE`, `parameter1_value`, `$PARAMETER_VALUE`. Names alone are not: a
/// search for `tool_name` is a search.
pub(crate) fn is_placeholder_value(value: &str) -> bool {
    let bare = value.trim();
    let loud = bare.chars().all(|c| !c.is_ascii_lowercase()) || bare.contains(|c: char| c.is_ascii_digit());
    loud && is_placeholder(bare) && bare.to_ascii_lowercase().ends_with("_value")
}

/// Up to eight names in backticks.
pub(crate) fn quote_names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut all = all.peekable();
    let mut words: Vec<String> = all.by_ref().take(SHOWN).map(|name| format!("`{}`", shorten_text(name))).collect();
    if all.peek().is_some() {
        words.push("…".to_owned());
    }
    words.join(", ")
}

/// `did you mean …` for the nearest of the candidates, else what there is.
pub(crate) fn suggestion_hint(name: &str, candidates: &[&str]) -> String {
    match nearest_candidate(name, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => "it takes no arguments".to_owned(),
        None => format!("its arguments are {}", quote_names(candidates.iter().copied())),
    }
}
