//! The order of the gates: what must hold before a call may run.
//!
//! | gate | what stops a call there |
//! | --- | --- |
//! | closed | a cut call, or one that is still open |
//! | not merely mentioned | the parsers see to it: such markup never becomes a call |
//! | the first of its message | every other call, where a message may hold one |
//! | tools were declared | no tools at all |
//! | tool known | a name that no tool has, or a placeholder of the instructions |
//! | arguments complete | an argument too many, given twice, missing, or a placeholder |
//! | schema valid | a value that cannot be read as declared, or that the schema refuses |
//!
//! A call passes all gates whose ground still stands, so that a model learns of every mistake at once. Of a cut call only
//! what no further text could have mended is said.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use sabir_call::{
    Cut, Draft, DraftCall, DraftPart, DraftState, Fault, FaultKind, Parallel, Severity, Span, StopReason, ToolSet,
    ToolSpec,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{Given, Reader};
use crate::notes::{Notes, is_placeholder, names};
use crate::repair::{Called, Repair, Repairs, shortened};
use crate::schema::Compiled;

/// The gates for one set of tools. Cheap to build: a tool's schema is compiled when its first call is checked. Cheap to
/// clone; clones share what was compiled.
#[derive(Debug, Clone)]
pub struct Checker {
    tools: ToolSet,
    repairs: Repairs,
    parallel: Parallel,
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
        let compiled = tools.known().map(|tool| (tool.name.clone(), OnceLock::new())).collect();
        Self { tools, repairs: Repairs::all(), parallel: Parallel::Many, compiled: Arc::new(compiled) }
    }

    /// The same gates with other repairs.
    #[must_use]
    pub fn with_repairs(mut self, repairs: Repairs) -> Self {
        self.repairs = repairs;
        self
    }

    /// The same gates for messages that may hold so many calls. By default they may hold several.
    #[must_use]
    pub fn with_parallel(mut self, parallel: Parallel) -> Self {
        self.parallel = parallel;
        self
    }

    /// The tools that are declared.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    pub(crate) fn repairs(&self) -> Repairs {
        self.repairs
    }

    /// The tool's schema, compiled; `None` for a tool that is none of these.
    pub(crate) fn compiled(&self, tool: &ToolSpec) -> Option<&Compiled> {
        self.compiled.get(&tool.name).map(|slot| slot.get_or_init(|| Compiled::new(&tool.parameters)))
    }

    /// Checks every call of a draft, in order. Of a call that stands there twice, as text and natively, the first may run.
    pub fn check_all(&self, draft: &Draft) -> Vec<Checked> {
        let mut checked = draft.calls().map(|call| self.check(draft, call)).collect::<Vec<_>>();
        reject_twins(draft, &mut checked);
        checked
    }

    /// Everything that is to be said of a draft and belongs to no call: the parser's own such faults, and a warning where words
    /// follow the last call. Spans count in the assistant text, [`Draft::source`].
    pub fn loose(&self, draft: &Draft) -> Vec<Fault> {
        let own = draft.faults.iter().filter(|fault| fault.call.is_none()).cloned();
        own.chain(text_after(draft)).collect()
    }

    /// Checks one call of a draft.
    pub fn check(&self, draft: &Draft, call: &DraftCall) -> Checked {
        let mut notes = Notes::new(draft, call);
        let cut = cut_of(draft, call);
        if let Some(why) = cut {
            notes.cut(why);
        }
        notes.slips(self.repairs);
        self.extra(draft, &mut notes);
        let mut name = call.name.clone();
        let mut arguments = Map::new();
        match self.tool(call, &mut notes) {
            Some(tool) => {
                name.clone_from(&tool.name);
                let reader = Reader { tool, repairs: self.repairs };
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

    /// Only the first call of a message may run where one call is allowed: the others may build on a result that nobody knows.
    fn extra(&self, draft: &Draft, notes: &mut Notes<'_>) {
        if self.parallel == Parallel::Many {
            return;
        }
        let Some(first) = draft.calls().next().filter(|first| first.index != notes.call.index) else { return };
        let message = format!(
            "one call was expected in a message, and `{}` came before this one; it was not run",
            shortened(&first.name)
        );
        let fault = notes.fault(FaultKind::ExtraCall, notes.name_span(), message);
        notes.push(fault.hint("make one call, wait for its result, then make the next"));
    }

    /// The gates "tools were declared" and "tool known".
    fn tool(&self, call: &DraftCall, notes: &mut Notes<'_>) -> Option<&ToolSpec> {
        let name = call.name.as_str();
        if let Some(tool) = self.tools.get(name) {
            return Some(tool);
        }
        let given: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
        if let Some((rule, meant)) = self.repairs.tool(&Called { name, tools: &self.tools, given: &given }) {
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
        let Some(compiled) = self.compiled(tool).filter(|_| !notes.unread()) else { return arguments };
        if let Some(complaint) = compiled.complaint() {
            let message = format!("the schema of `{}` is invalid, so its calls are not checked by it", tool.name);
            let fault = notes.fault(FaultKind::InvalidValue, notes.call.span, message).hint(shortened(complaint));
            notes.push(Fault { severity: Severity::Warning, ..fault });
        }
        if let Some(validator) = compiled.validator() {
            crate::validate::validate(validator, given, &mut arguments, notes);
        }
        arguments
    }
}

/// A warning where words follow the last call of a text: they were written before its result could be known.
fn text_after(draft: &Draft) -> Option<Fault> {
    let last = draft.parts.iter().rposition(|part| matches!(part, DraftPart::Call(_)))?;
    let (known, after) = draft.parts.split_at_checked(last + 1)?;
    let Some(DraftPart::Call(call)) = known.last() else { return None };
    // What follows a call that could not be read to its end may belong to it.
    let whole = call.state == DraftState::Closed && draft.errors_of(call.index).next().is_none();
    call.dialect.as_ref().filter(|_| whole)?;
    let words = after.iter().find_map(|part| match part {
        DraftPart::Text(text) => Some(text.trim()).filter(|text| !text.is_empty()),
        _ => None,
    })?;
    // Between the call and the words stands at most the end of a wrapper, which belongs to neither.
    let source = draft.source.as_str();
    let tail = source.get(call.span.end..).unwrap_or_default();
    let line = words.lines().next().unwrap_or_default();
    let found =
        tail.trim_end().ends_with(words).then(|| tail.trim_end().len() - words.len()).or_else(|| tail.find(line));
    let span = found.map_or(Span::new(call.span.end, call.span.end), |at| {
        Span::new(call.span.end + at, call.span.end + at + line.len())
    });
    let message = format!(
        "words follow the call of `{}`, which should be the end of the message; found {}",
        shortened(&call.name),
        crate::arguments::excerpt(&Value::String(line.to_owned()))
    );
    Some(Fault::warning(FaultKind::TextAfterCall, span, message).hint("stop after the call; its result comes first"))
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

/// The same call written as text and natively (mistral.rs sends both) must not run twice: the later of the two is rejected.
fn reject_twins(draft: &Draft, checked: &mut [Checked]) {
    let native: HashSet<u32> = draft.calls().filter(|call| call.dialect.is_none()).map(|call| call.index).collect();
    if native.is_empty() || native.len() == checked.len() {
        return;
    }
    let mut seen: HashSet<(String, bool)> = HashSet::new();
    for call in checked.iter_mut().filter(|call| call.state == CallState::Complete) {
        // In whatever order the arguments came.
        let arguments: BTreeMap<_, _> = call.arguments.iter().collect();
        let same = serde_json::to_string(&(&call.name, arguments)).unwrap_or_default();
        let is_native = native.contains(&call.index);
        if seen.contains(&(same.clone(), !is_native)) {
            let message = "the same call came twice, as text and natively; it runs once";
            call.faults.push(Fault::error(FaultKind::Provider, Span::default(), message).in_call(call.index));
            call.state = CallState::Rejected;
        } else {
            seen.insert((same, is_native));
        }
    }
}
