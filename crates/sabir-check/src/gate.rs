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
    DraftCall, DraftPart, DraftResponse, DraftState, Fault, FaultKind, ParallelCalls, Severity, Span, StopReason,
    ToolSet, ToolSpec, Truncation,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{ArgumentReader, TypedArgument};
use crate::call_diagnostics::{CallDiagnostics, is_placeholder, quote_names};
use crate::repair::{Repair, RepairSet, UndeclaredTool, shorten_text};
use crate::schema::CompiledSchema;

/// The gates for one set of tools. Cheap to build: a tool's schema is compiled when its first call is checked. Cheap to
/// clone; clones share what was compiled.
#[derive(Debug, Clone)]
pub struct CallChecker {
    tools: ToolSet,
    repairs: RepairSet,
    parallel: ParallelCalls,
    compiled: Arc<HashMap<String, OnceLock<CompiledSchema>>>,
}

/// A call after the gates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedCall {
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

impl CallChecker {
    /// Gates with every repair switched on.
    pub fn new(tools: ToolSet) -> Self {
        let compiled = tools.all_tools().map(|tool| (tool.name.clone(), OnceLock::new())).collect();
        Self { tools, repairs: RepairSet::all(), parallel: ParallelCalls::Many, compiled: Arc::new(compiled) }
    }

    /// The same gates with other repairs.
    #[must_use]
    pub fn with_repairs(mut self, repairs: RepairSet) -> Self {
        self.repairs = repairs;
        self
    }

    /// The same gates for messages that may hold so many calls. By default they may hold several.
    #[must_use]
    pub fn with_parallel(mut self, parallel: ParallelCalls) -> Self {
        self.parallel = parallel;
        self
    }

    /// The tools that are declared.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    pub(crate) fn repairs(&self) -> RepairSet {
        self.repairs
    }

    /// The tool's schema, compiled; `None` for a tool that is none of these.
    pub(crate) fn compiled_schema(&self, tool: &ToolSpec) -> Option<&CompiledSchema> {
        self.compiled.get(&tool.name).map(|slot| slot.get_or_init(|| CompiledSchema::new(&tool.parameters)))
    }

    /// Checks every call of a draft, in order. Of a call that stands there twice, as text and natively, the first may run.
    pub fn check_all(&self, draft: &DraftResponse) -> Vec<CheckedCall> {
        let mut checked = draft.calls().map(|call| self.check_call(draft, call)).collect::<Vec<_>>();
        reject_duplicate_calls(draft, &mut checked);
        checked
    }

    /// Everything that is to be said of a draft and belongs to no call: the parser's own such faults, and a warning where words
    /// follow the last call. Spans count in the assistant text, [`DraftResponse::source`].
    pub fn unattached_faults(&self, draft: &DraftResponse) -> Vec<Fault> {
        let own = draft.faults.iter().filter(|fault| fault.call.is_none()).cloned();
        own.chain(text_after_call(draft)).collect()
    }

    /// Checks one call of a draft.
    pub fn check_call(&self, draft: &DraftResponse, call: &DraftCall) -> CheckedCall {
        let mut notes = CallDiagnostics::new(draft, call);
        let cut = truncation_of(draft, call);
        if let Some(why) = cut {
            notes.report_truncation(why);
        }
        notes.classify_slips(self.repairs);
        self.reject_extra_call(draft, &mut notes);
        let mut name = call.name.clone();
        let mut arguments = Map::new();
        match self.resolve_tool(call, &mut notes) {
            Some(tool) => {
                name.clone_from(&tool.name);
                let reader = ArgumentReader { tool, repairs: self.repairs };
                let given = reader.read_arguments(&mut notes);
                arguments = self.validate_arguments(tool, &given, &mut notes);
            }
            None => notes.copy_untyped_arguments(&mut arguments),
        }
        let stopped = notes.faults.iter().any(|fault| fault.severity == Severity::Error);
        let state = match (cut, stopped) {
            (Some(_), _) => CallState::Cut,
            (None, true) => CallState::Rejected,
            (None, false) => CallState::Complete,
        };
        CheckedCall { index: call.index, name, arguments, state, faults: notes.faults, repairs: notes.repairs }
    }

    /// Only the first call of a message may run where one call is allowed: the others may build on a result that nobody knows.
    fn reject_extra_call(&self, draft: &DraftResponse, notes: &mut CallDiagnostics<'_>) {
        if self.parallel == ParallelCalls::Many {
            return;
        }
        let Some(first) = draft.calls().next().filter(|first| first.index != notes.call.index) else { return };
        let message = format!(
            "one call was expected in a message, and `{}` came before this one; it was not run",
            shorten_text(&first.name)
        );
        let fault = notes.new_fault(FaultKind::ExtraCall, notes.name_span(), message);
        notes.push(fault.with_hint("make one call, wait for its result, then make the next"));
    }

    /// The gates "tools were declared" and "tool known".
    fn resolve_tool(&self, call: &DraftCall, notes: &mut CallDiagnostics<'_>) -> Option<&ToolSpec> {
        let name = call.name.as_str();
        if let Some(tool) = self.tools.get(name) {
            return Some(tool);
        }
        let given: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
        if let Some((rule, meant)) =
            self.repairs.resolve_tool(&UndeclaredTool { name, tools: &self.tools, given: &given })
        {
            notes.push_repair(rule, notes.name_span(), name, &meant);
            return self.tools.get(&meant);
        }
        if name.is_empty() && notes.faults.iter().any(|fault| fault.kind == FaultKind::MissingName) {
            return None;
        }
        let (shown, span) = (shorten_text(name), notes.name_span());
        let fault = if self.tools.is_empty() {
            let message = format!("`{shown}` was called, but no tools are available");
            notes.new_fault(FaultKind::UnknownTool, span, message).with_hint("answer in words")
        } else if is_placeholder(name) {
            let message = format!("`{shown}` is a placeholder of the instructions, not a tool");
            notes.new_fault(FaultKind::Placeholder, span, message).with_hint("put the name of a tool in its place")
        } else {
            let fault = notes.new_fault(FaultKind::UnknownTool, span, format!("there is no tool `{shown}`"));
            fault.with_hint(match self.tools.nearest_name(name) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the tools are {}", quote_names(self.tools.iter().map(|tool| tool.name.as_str()))),
            })
        };
        notes.push(fault);
        None
    }

    /// The gate "schema valid". What a string in a union could also mean is tried here, where the schema can judge it.
    fn validate_arguments(
        &self,
        tool: &ToolSpec,
        given: &[TypedArgument<'_>],
        notes: &mut CallDiagnostics<'_>,
    ) -> Map<String, Value> {
        let mut arguments: Map<String, Value> =
            given.iter().map(|given| (given.name.clone(), given.value.clone())).collect();
        let Some(compiled) = self.compiled_schema(tool).filter(|_| !notes.is_unreadable()) else { return arguments };
        if let Some(complaint) = compiled.take_error() {
            let message = format!("the schema of `{}` is invalid, so its calls are not checked by it", tool.name);
            let fault =
                notes.new_fault(FaultKind::InvalidValue, notes.call.span, message).with_hint(shorten_text(complaint));
            notes.push(Fault { severity: Severity::Warning, ..fault });
        }
        if let Some(validator) = compiled.validator() {
            crate::validate::validate_arguments(validator, given, &mut arguments, notes);
        }
        arguments
    }
}

/// A warning where words follow the last call of a text: they were written before its result could be known.
fn text_after_call(draft: &DraftResponse) -> Option<Fault> {
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
        shorten_text(&call.name),
        crate::arguments::json_excerpt(&Value::String(line.to_owned()))
    );
    Some(
        Fault::warning(FaultKind::TextAfterCall, span, message)
            .with_hint("stop after the call; its result comes first"),
    )
}

/// What ended a call that was never closed; `None` for a closed one.
fn truncation_of(draft: &DraftResponse, call: &DraftCall) -> Option<Truncation> {
    let limit = matches!(draft.stop, Some((StopReason::Length, _)));
    match call.state {
        DraftState::Closed => None,
        // A parser that sees only text cannot know why the text ended; the provider's reason tells.
        DraftState::Open | DraftState::Cut(Truncation::Ended) if limit => Some(Truncation::Limit),
        DraftState::Open => Some(Truncation::Ended),
        DraftState::Cut(why) => Some(why),
    }
}

/// The same call written as text and natively (mistral.rs sends both) must not run twice: the later of the two is rejected.
fn reject_duplicate_calls(draft: &DraftResponse, checked: &mut [CheckedCall]) {
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
