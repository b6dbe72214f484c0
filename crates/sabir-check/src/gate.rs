//! The order of the gates: what must hold before a call may run.
//!
//! | gate | what stops a call there |
//! | --- | --- |
//! | closed | a cut call, or one that is still open |
//! | not merely mentioned | the parsers see to it: such markup never becomes a call |
//! | tools were declared | no tools at all |
//! | tool known | a name that no tool has, or a placeholder of the instructions |
//! | arguments complete | an argument too many, given twice, missing, or a placeholder |
//! | schema valid | a value that cannot be read as declared, or that the schema refuses |
//!
//! A call passes all gates whose ground still stands, so that a model learns of every mistake at once. Of a cut call only
//! what no further text could have mended is said.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use sabir_call::{
    ArgForm, Cut, Draft, DraftArgument, DraftCall, DraftState, Fault, FaultKind, Severity, Span, StopReason,
};
use sabir_call::{ToolSet, ToolSpec, nearest};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{Given, Reader};
use crate::repair::{Repair, Repairs, shortened};
use crate::schema::Compiled;

/// The gates for one set of tools. Cheap to build: a tool's schema is compiled when its first call is checked. Cheap to
/// clone; clones share what was compiled.
#[derive(Debug, Clone)]
pub struct Checker {
    tools: ToolSet,
    repairs: Repairs,
    compiled: Arc<HashMap<String, OnceLock<Compiled>>>,
}

/// A call after the gates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// The call's index in the response.
    pub index: u32,
    /// The tool's name, repaired if a rule allowed it.
    pub name: String,
    /// Typed arguments in the order in which they were written; of a doubled one the first. In a call that may not run
    /// they are what could be understood.
    pub arguments: Map<String, Value>,
    /// Whether it may run.
    pub state: CallState,
    /// Everything that is wrong with it, the parser's faults first.
    pub faults: Vec<Fault>,
    /// Everything that was set right.
    pub repairs: Vec<Repair>,
}

/// What the gates say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It may run.
    Complete,
    /// It was understood, and a gate stopped it.
    Rejected,
    /// It was never properly closed.
    Cut,
}

impl Checker {
    /// Gates with every repair switched on.
    pub fn new(tools: ToolSet) -> Self {
        let compiled = tools.iter().map(|tool| (tool.name.clone(), OnceLock::new())).collect();
        Self { tools, repairs: Repairs::all(), compiled: Arc::new(compiled) }
    }

    /// The same gates with other repairs.
    #[must_use]
    pub fn with_repairs(mut self, repairs: Repairs) -> Self {
        self.repairs = repairs;
        self
    }

    /// The tools that are declared.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// Checks every call of a draft, in order. Of a call that stands there twice, as text and natively, the first may run.
    pub fn check_all(&self, draft: &Draft) -> Vec<Checked> {
        let mut checked = draft.calls().map(|call| self.check(draft, call)).collect::<Vec<_>>();
        reject_twins(draft, &mut checked);
        checked
    }

    /// Checks one call of a draft.
    pub fn check(&self, draft: &Draft, call: &DraftCall) -> Checked {
        let mut notes = Notes::new(draft, call);
        let cut = cut_of(draft, call);
        if let Some(why) = cut {
            notes.cut(why);
        }
        let mut name = call.name.clone();
        let mut arguments = Map::new();
        match self.tool(call, &mut notes) {
            Some(tool) => {
                name.clone_from(&tool.name);
                let reader = Reader { tool, repairs: self.repairs, unfinished: notes.unread() };
                let given = reader.read(&mut notes);
                arguments = self.validated(tool, &given, &mut notes);
            }
            None => notes.untyped(&mut arguments),
        }
        let stopped = notes.faults.iter().any(|fault| fault.severity == Severity::Error);
        let state = match (cut, stopped) {
            (Some(_), _) => CallState::Cut,
            (None, true) => CallState::Rejected,
            (None, false) => CallState::Complete,
        };
        Checked { index: call.index, name, arguments, state, faults: notes.faults, repairs: notes.repairs }
    }

    /// The gates "tools were declared" and "tool known".
    fn tool(&self, call: &DraftCall, notes: &mut Notes<'_>) -> Option<&ToolSpec> {
        let name = call.name.as_str();
        if let Some(tool) = self.tools.get(name) {
            return Some(tool);
        }
        if let Some((rule, meant)) = self.repairs.tool(name, &self.tools) {
            notes.repair(rule, notes.name_span(), name, &meant);
            return self.tools.get(&meant);
        }
        if name.is_empty() && notes.faults.iter().any(|fault| fault.kind == FaultKind::MissingName) {
            return None;
        }
        let (shown, span) = (shortened(name), notes.name_span());
        let fault = if self.tools.is_empty() {
            let message = format!("`{shown}` was called, but no tools are available");
            notes.fault(FaultKind::UnknownTool, span, message).hint("answer in words")
        } else if is_placeholder(name) {
            let message = format!("`{shown}` is a placeholder of the instructions, not a tool");
            notes.fault(FaultKind::Placeholder, span, message).hint("put the name of a tool in its place")
        } else {
            let fault = notes.fault(FaultKind::UnknownTool, span, format!("there is no tool `{shown}`"));
            fault.hint(match self.tools.nearest(name) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the tools are {}", names(self.tools.iter().map(|tool| tool.name.as_str()))),
            })
        };
        notes.push(fault);
        None
    }

    /// The gate "schema valid". What a string in a union could also mean is tried here, where the schema can judge it.
    fn validated(&self, tool: &ToolSpec, given: &[Given<'_>], notes: &mut Notes<'_>) -> Map<String, Value> {
        let mut arguments: Map<String, Value> =
            given.iter().map(|given| (given.name.clone(), given.value.clone())).collect();
        let compiled = self.compiled.get(&tool.name).map(|slot| slot.get_or_init(|| Compiled::new(&tool.parameters)));
        let Some(compiled) = compiled.filter(|_| !notes.unread()) else { return arguments };
        if let Some(complaint) = compiled.complaint() {
            let message = format!("the schema of `{}` is invalid, so its calls are not checked by it", tool.name);
            let fault = notes.fault(FaultKind::InvalidValue, notes.call.span, message).hint(shortened(complaint));
            notes.push(Fault { severity: Severity::Warning, ..fault });
        }
        if let Some(validator) = compiled.validator() {
            crate::arguments::validate(validator, given, &mut arguments, notes);
        }
        arguments
    }
}

/// What ended a call that was never closed; `None` for a closed one.
fn cut_of(draft: &Draft, call: &DraftCall) -> Option<Cut> {
    let limit = matches!(draft.stop, Some((StopReason::Length, _)));
    match call.state {
        DraftState::Closed => None,
        // A parser that sees only text cannot know why the text ended; the provider's reason tells.
        DraftState::Open | DraftState::Cut(Cut::Ended) if limit => Some(Cut::Limit),
        DraftState::Open => Some(Cut::Ended),
        DraftState::Cut(why) => Some(why),
    }
}

/// What is found out about one call on its way through the gates.
pub(crate) struct Notes<'d> {
    pub(crate) call: &'d DraftCall,
    pub(crate) faults: Vec<Fault>,
    pub(crate) repairs: Vec<Repair>,
    /// How many of the faults are the parser's own.
    known: usize,
}

impl<'d> Notes<'d> {
    fn new(draft: &Draft, call: &'d DraftCall) -> Self {
        let faults: Vec<Fault> = draft.faults.iter().filter(|fault| fault.call == Some(call.index)).cloned().collect();
        Self { call, known: faults.len(), faults, repairs: Vec::new() }
    }

    /// A fault of this call, counted in whatever its spans count in.
    pub(crate) fn fault(&self, kind: FaultKind, span: Span, message: String) -> Fault {
        let fault = Fault::error(kind, span, message).in_call(self.call.index);
        if self.call.dialect.is_none() { fault.in_arguments_text() } else { fault }
    }

    /// Where the tool's name stands; the whole call where it does not stand in the text.
    fn name_span(&self) -> Span {
        let Span { start, end } = self.call.name_span;
        if start < end { self.call.name_span } else { self.call.span }
    }

    /// Notes a fault, unless the parser has noted the same already.
    pub(crate) fn push(&mut self, fault: Fault) {
        let mut known = self.faults.iter().take(self.known);
        if !known.any(|other| other.kind == fault.kind && other.argument == fault.argument) {
            self.faults.push(fault);
        }
    }

    pub(crate) fn repair(&mut self, rule: &'static str, span: Span, before: &str, after: &str) {
        self.repairs.push(Repair { rule: rule.into(), span, before: shortened(before), after: shortened(after) });
    }

    /// Whether an error about this argument is known.
    pub(crate) fn wrong(&self, argument: &str) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error && fault.argument.as_deref() == Some(argument))
    }

    /// Whether the text of the arguments ends too early or could not be read to its end.
    fn unread(&self) -> bool {
        let broken = |fault: &Fault| fault.kind == FaultKind::MalformedJson && fault.argument.is_none();
        let stops = |fault: &Fault| fault.kind == FaultKind::CutCall || broken(fault);
        self.faults.iter().any(|fault| fault.severity == Severity::Error && stops(fault))
    }

    fn cut(&mut self, why: Cut) {
        let call = self.call;
        let inside = call.arguments.iter().find(|argument| argument.partial);
        let place = match (inside, call.arguments.last()) {
            (Some(argument), _) => {
                format!("inside `{}`, {} bytes into its value", shortened(&argument.name), argument.text.len())
            }
            (None, Some(argument)) => format!("after `{}`", shortened(&argument.name)),
            (None, None) => "before its first argument".to_owned(),
        };
        let (reason, hint) = match why {
            Cut::Ended => ("the message ended there", Some("write the whole call again and close it")),
            Cut::Limit => (
                "the output limit was reached there",
                Some("write less in one call: make the content in smaller pieces, with several calls"),
            ),
            Cut::Broken => ("the connection broke there", Some("write the call again")),
            Cut::Cancelled => ("the user stopped it there", None),
        };
        let message = format!("the call of `{}` was cut {place}: {reason}; it was not run", shortened(&call.name));
        let mut fault = self.fault(FaultKind::CutCall, Span::new(call.span.end, call.span.end), message);
        fault.argument = inside.map(|argument| argument.name.clone());
        fault.hint = hint.map(str::to_owned);
        let cut = |fault: &Fault| fault.kind == FaultKind::CutCall;
        // Only here is it known why and where: one fault says it all.
        if self.faults.iter().any(cut) {
            self.faults.retain(|fault| !cut(fault));
            self.known = self.faults.len();
        }
        self.faults.insert(0, fault);
        self.known += 1;
    }

    /// The arguments of a call whose tool is not known: as written, for whoever shows the call.
    fn untyped(&mut self, into: &mut Map<String, Value>) {
        for argument in &self.call.arguments {
            if is_placeholder(&argument.name) {
                self.push(placeholder(self, argument));
            }
            let json = || serde_json::from_str(&argument.text).ok().filter(|_| argument.form == ArgForm::Json);
            if !into.contains_key(&argument.name) {
                into.insert(argument.name.clone(), json().unwrap_or_else(|| Value::String(argument.text.clone())));
            }
        }
    }
}

/// The fault of a placeholder that stands where an argument's name should.
pub(crate) fn placeholder(notes: &Notes<'_>, argument: &DraftArgument) -> Fault {
    let message = format!("`{}` is a placeholder of the instructions, not an argument", shortened(&argument.name));
    let fault = notes.fault(FaultKind::Placeholder, argument.span, message);
    fault.in_argument(argument.name.clone()).hint("put the name of an argument in its place")
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
pub(crate) fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut all = all.peekable();
    let mut words: Vec<String> = all.by_ref().take(SHOWN).map(|name| format!("`{}`", shortened(name))).collect();
    if all.peek().is_some() {
        words.push("…".to_owned());
    }
    words.join(", ")
}

/// `did you mean …` for the nearest of the candidates, else what there is.
pub(crate) fn meant(name: &str, candidates: &[&str]) -> String {
    match nearest(name, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => "it takes no arguments".to_owned(),
        None => format!("its arguments are {}", names(candidates.iter().copied())),
    }
}

/// The same call written as text and natively (mistral.rs sends both) must not run twice: the later of the two is rejected.
fn reject_twins(draft: &Draft, checked: &mut [Checked]) {
    let native = |index| draft.call(index).is_some_and(|call| call.dialect.is_none());
    for at in 1..checked.len() {
        let Some((call, before)) = checked.get_mut(..=at).and_then(<[Checked]>::split_last_mut) else { continue };
        let twin = |other: &Checked| {
            other.state == CallState::Complete
                && (&other.name, &other.arguments) == (&call.name, &call.arguments)
                && native(other.index) != native(call.index)
        };
        if call.state == CallState::Complete && before.iter().any(twin) {
            let message = "the same call came twice, as text and natively; it runs once";
            call.faults.push(Fault::error(FaultKind::Provider, Span::default(), message).in_call(call.index));
            call.state = CallState::Rejected;
        }
    }
}
