//! Runs each call through the checks that it must pass before it may run.
//!
//! | check | stops |
//! | --- | --- |
//! | closed | a cut call, or one that is still open |
//! | not merely mentioned | nothing: the parsers never turn such markup into a call |
//! | the first of its message | every later call, if a message may hold only one |
//! | tools were declared | any call, if there are no tools |
//! | tool known | a name that no tool has, or a placeholder from the instructions |
//! | arguments complete | an argument that is unknown, given twice, missing, or a placeholder |
//! | schema valid | a value that cannot be read as declared, or that the schema rejects |
//!
//! A failed check does not end the series: every later check that still makes sense runs too, so that the model learns of all
//! mistakes at once. For a cut call only those faults are reported that no further text could have corrected.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use sabir_call::compatibility::{ForeignMeaning, ForeignTool, strip_namespace};
use sabir_call::{
    DraftCall, DraftPart, DraftResponse, DraftState, Fault, FaultKind, ParallelCalls, Severity,
    Span, StopReason, ToolSet, ToolSpec, Truncation,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{ArgumentReader, TypedArgument};
use crate::call_diagnostics::{CallDiagnostics, is_placeholder, quote_names};
use crate::compiled_schema::CompiledSchema;
use crate::foreign;
use crate::repair::{Repair, RepairSet, UndeclaredTool, shorten_text};
use crate::xml_arguments::{self, XmlArguments};

/// The checks for one set of tools.
///
/// Cheap to build, because a tool's schema is compiled when its first call is checked, and cheap to clone, because clones
/// share the compiled schemas.
#[derive(Debug, Clone)]
pub struct CallChecker {
    tools: ToolSet,
    repairs: RepairSet,
    parallel: ParallelCalls,
    /// The schemas by tool name. A `OnceLock`, so that a tool that is never called is never
    /// compiled, and threads that check its first call at the same time compile it once.
    compiled: Arc<HashMap<String, OnceLock<CompiledSchema>>>,
}

/// A call with the result of the check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedCall {
    /// The call's index in the response.
    pub index: u32,
    /// The tool's name, after any repair.
    pub name: String,
    /// The typed arguments in the order in which they were written; for an argument given twice, the first. If the call may
    /// not run, these are the arguments that could be read.
    pub arguments: Map<String, Value>,
    /// The verdict: only a complete call may run.
    pub state: CallState,
    /// The faults and warnings, the parser's first.
    pub faults: Vec<Fault>,
    /// The repairs that were applied.
    pub repairs: Vec<Repair>,
}

/// The verdict of the checks on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The call may run.
    Complete,
    /// The call was closed, and a check rejected it.
    /// Its faults become feedback for the model.
    Rejected,
    /// The call was never properly closed.
    /// It never runs, even if the stop reason claims otherwise or all its required arguments
    /// arrived.
    Cut,
}

/// The meaning of a tool's name.
enum ResolvedTool<'t> {
    /// A declared tool.
    Declared(&'t ToolSpec),
    /// A tool of another agent, with its name.
    Foreign(&'static ForeignTool, String),
}

/// A call that was read as one of another agent's tool of the same name.
struct ExtendedReading<'d> {
    arguments: Map<String, Value>,
    notes: CallDiagnostics<'d>,
}

impl CallChecker {
    /// Makes a checker with every repair switched on.
    pub fn new(tools: ToolSet) -> Self {
        let compiled = tools
            .all_tools()
            .map(|tool| (tool.name.clone(), OnceLock::new()))
            .collect();
        Self {
            tools,
            repairs: RepairSet::all(),
            parallel: ParallelCalls::Many,
            compiled: Arc::new(compiled),
        }
    }

    /// Replaces the set of active repairs.
    #[must_use]
    pub fn with_repairs(mut self, repairs: RepairSet) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets the number of calls that a message may hold; by default several.
    #[must_use]
    pub fn with_parallel(mut self, parallel: ParallelCalls) -> Self {
        self.parallel = parallel;
        self
    }

    /// Returns the declared tools.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    pub(crate) fn repairs(&self) -> RepairSet {
        self.repairs
    }

    /// Returns the tool's compiled schema; `None` for a tool that is not declared.
    ///
    /// The first query compiles it. A tool that is understood but not offered has one too.
    pub(crate) fn compiled_schema(&self, tool: &ToolSpec) -> Option<&CompiledSchema> {
        self.compiled
            .get(&tool.name)
            .map(|slot| slot.get_or_init(|| CompiledSchema::new(&tool.parameters)))
    }

    /// Checks every call of a response, in order. If the same call comes as text and natively, only the first may run.
    ///
    /// Duplicates are found after all calls were typed, because the two forms write the same value
    /// differently: `10` between tags and `10` in JSON are equal only as values.
    pub fn check_all(&self, draft: &DraftResponse) -> Vec<CheckedCall> {
        // Grouped once, so that many calls with many faults take linear time.
        let mut faults: HashMap<u32, Vec<Fault>> = HashMap::new();
        for fault in &draft.faults {
            if let Some(index) = fault.call {
                faults.entry(index).or_default().push(fault.clone());
            }
        }
        let first = first_unmentioned_call(draft);
        let mut checked = draft
            .calls()
            .map(|call| {
                let own = faults.remove(&call.index).unwrap_or_default();
                self.check_with_faults(draft, call, own, first)
            })
            .collect::<Vec<_>>();
        reject_duplicate_calls(draft, &mut checked);
        checked
    }

    /// Returns the faults of a response that belong to no call: those of the parser, and a warning if text follows the last
    /// call. Spans are byte offsets into the assistant text, [`DraftResponse::source`].
    pub fn unattached_faults(&self, draft: &DraftResponse) -> Vec<Fault> {
        let own = draft
            .faults
            .iter()
            .filter(|fault| fault.call.is_none())
            .cloned();
        own.chain(text_after_call(draft)).collect()
    }

    /// Checks one call of a response.
    ///
    /// A call that may not run is still resolved and typed as far as possible: the feedback then
    /// names every mistake at once, and a front end can show what the model intended. Duplicates of
    /// other calls are found only by `check_all`.
    pub fn check_call(&self, draft: &DraftResponse, call: &DraftCall) -> CheckedCall {
        let own = |fault: &&Fault| fault.call == Some(call.index);
        let faults = draft.faults.iter().filter(own).cloned().collect();
        self.check_with_faults(draft, call, faults, first_unmentioned_call(draft))
    }

    /// Checks one call, with the faults that the parser attached to it. `first` is the call that counts if a message may hold only one.
    fn check_with_faults(
        &self,
        draft: &DraftResponse,
        call: &DraftCall,
        faults: Vec<Fault>,
        first: Option<&DraftCall>,
    ) -> CheckedCall {
        let xml = xml_arguments::read_xml_arguments(call, &self.tools, |outer, inner| {
            self.meant_name(outer) == self.meant_name(inner)
        })
        .filter(|_| self.repairs.has_rule("xml_arguments"));
        let read_call;
        let (call, mut notes) = match xml {
            Some(XmlArguments::Call(inner)) => {
                read_call = inner;
                let mut notes = CallDiagnostics::new(draft, &read_call, faults);
                notes.note_xml_arguments(call);
                (&*read_call, notes)
            }
            Some(XmlArguments::OtherTool(name)) => {
                let mut notes = CallDiagnostics::new(draft, call, faults);
                notes.push_xml_fault(
                    call,
                    format!(
                        "the arguments of the call hold a call of `{}` in tags",
                        shorten_text(&name)
                    ),
                    "call that tool itself, with its arguments as one JSON object",
                );
                (call, notes)
            }
            Some(XmlArguments::Unreadable) => {
                let mut notes = CallDiagnostics::new(draft, call, faults);
                notes.push_xml_fault(
                    call,
                    "the arguments of the call are tags that cannot be read as one whole call"
                        .to_owned(),
                    "write the arguments as one JSON object, without tags",
                );
                (call, notes)
            }
            None => (call, CallDiagnostics::new(draft, call, faults)),
        };
        let cut = truncation_of(draft, call);
        if let Some(why) = cut {
            // Precedes all checks: after this fault, they report nothing that the missing text
            // could have corrected.
            notes.report_truncation(why);
        }
        // A slip whose rule is switched off becomes an error here, in time for the verdict below.
        notes.convert_tolerated_faults(self.repairs);
        self.reject_extra_call(first, &mut notes);
        let mut name = call.name.clone();
        let mut arguments = Map::new();
        match self.resolve_tool(call, &mut notes) {
            Some(ResolvedTool::Declared(tool)) => {
                name.clone_from(&tool.name);
                let before = notes.clone();
                arguments = self.read_declared(tool, &mut notes);
                if cut.is_none()
                    && notes.errors().next().is_some()
                    && let Some(extended) = self.read_extended(tool, before)
                {
                    arguments = extended.arguments;
                    notes = extended.notes;
                }
            }
            Some(ResolvedTool::Foreign(row, called)) => {
                // Feedback shows a call of the tool that is meant, where that is certain.
                if let [target] = row.targets().as_slice()
                    && self.tools.get(target).is_some()
                {
                    name = (*target).to_owned();
                }
                if let Some(converted) = self.read_foreign(row, &called, &mut notes, &mut arguments)
                {
                    name = converted.to_owned();
                }
            }
            // No schema, hence no types: the arguments are only for display.
            None => notes.copy_untyped_arguments(&mut arguments),
        }
        // A cut outranks other errors: the model should write the whole call again, not fix a
        // piece of it.
        let state = match (cut, notes.errors().next().is_some()) {
            (Some(_), _) => CallState::Cut,
            (None, true) => CallState::Rejected,
            (None, false) => CallState::Complete,
        };
        let (faults, repairs) = notes.into_parts();
        CheckedCall {
            index: call.index,
            name,
            arguments,
            state,
            faults,
            repairs,
        }
    }

    /// Rejects every call but the first if a message may hold only one.
    ///
    /// The later calls may depend on a result that did not exist when they were written.
    fn reject_extra_call(&self, first: Option<&DraftCall>, notes: &mut CallDiagnostics<'_>) {
        if self.parallel == ParallelCalls::Many {
            return;
        }
        // The first call counts even if a check rejected it: the later ones may build on its
        // result.
        let Some(first) = first.filter(|first| first.index < notes.call.index) else {
            return;
        };
        let message = format!(
            "one call was expected in a message, and `{}` came before this one; it was not run",
            shorten_text(&first.name)
        );
        let fault = notes.new_fault(FaultKind::ExtraCall, notes.name_span(), message);
        notes.push(fault.with_hint("make one call, wait for its result, then make the next"));
    }

    /// Reads the arguments of a call of a declared tool.
    fn read_declared(
        &self,
        tool: &ToolSpec,
        notes: &mut CallDiagnostics<'_>,
    ) -> Map<String, Value> {
        let reader = ArgumentReader {
            tool,
            repairs: self.repairs,
        };
        let given = reader.read_arguments(notes);
        // Validation comes last, on typed values: before coercion every raw argument is a string.
        self.validate_arguments(tool, &given, notes)
    }

    /// Reads a call that does not fit a declared tool as a call of another agent's tool of that name. `None` if it has no argument of the
    /// other tool.
    fn read_extended<'d>(
        &self,
        tool: &ToolSpec,
        mut notes: CallDiagnostics<'d>,
    ) -> Option<ExtendedReading<'d>> {
        let row = self
            .tools
            .foreign_tool(&tool.name)
            .filter(|row| row.is_extension() && self.repairs.has_rule("foreign_argument"))?;
        let is_of_row = |name: &str| row.arguments.iter().any(|own| own.name == name);
        let given = &notes.call.arguments;
        if !given.iter().any(|argument| is_of_row(&argument.name)) {
            return None;
        }
        let mut arguments = Map::new();
        self.read_foreign(row, &tool.name, &mut notes, &mut arguments);
        Some(ExtendedReading { arguments, notes })
    }

    /// Reads a call of another agent's tool and converts it; returns the name of the tool that it
    /// became. `arguments` get the converted arguments, or those that could be read.
    fn read_foreign(
        &self,
        row: &'static ForeignTool,
        called: &str,
        notes: &mut CallDiagnostics<'_>,
        arguments: &mut Map<String, Value>,
    ) -> Option<&'static str> {
        let refusal = match row.meaning {
            ForeignMeaning::Refused(hint) => Some(hint),
            ForeignMeaning::ToolIfOffered { tool, otherwise } => {
                self.tools.get(tool).is_none().then_some(otherwise)
            }
            _ => None,
        };
        if let Some(hint) = refusal {
            notes.push_unknown_tool(hint.to_owned());
            notes.copy_untyped_arguments(arguments);
            return None;
        }
        let names: Vec<&str> = notes
            .call
            .arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect();
        let spec = foreign::foreign_spec(called, row, self.tools.get(called), &names);
        let reader = ArgumentReader {
            tool: &spec,
            repairs: self.repairs,
        };
        let given = reader.read_arguments(notes);
        *arguments = given
            .into_iter()
            .map(|given| (given.name, given.value))
            .collect();
        // A call that may not run anyway is not converted: its faults name the model's own words.
        if notes.errors().next().is_some() {
            return None;
        }
        let written = Value::Object(arguments.clone()).to_string();
        match foreign::convert_call(row, arguments.clone(), &self.tools) {
            Err(refusal) => {
                notes.push_refusal(called, refusal);
                None
            }
            Ok(converted) => {
                let tool = self.tools.get(converted.tool)?;
                let rule = if row.is_extension() {
                    "foreign_argument"
                } else {
                    "foreign_tool"
                };
                let read = Value::Object(converted.arguments.clone()).to_string();
                notes.push_repair(
                    rule,
                    notes.name_span(),
                    &format!("{} {written}", notes.call.name),
                    &format!("{} {read}", converted.tool),
                );
                *arguments = converted.arguments;
                self.validate_converted(tool, arguments, notes);
                Some(converted.tool)
            }
        }
    }

    /// Validates the arguments of a converted call against the schema of the tool that it became.
    fn validate_converted(
        &self,
        tool: &ToolSpec,
        arguments: &mut Map<String, Value>,
        notes: &mut CallDiagnostics<'_>,
    ) {
        match self
            .compiled_schema(tool)
            .filter(|schema| schema.is_valid())
        {
            Some(schema) => crate::validate::validate_arguments(schema, &[], arguments, notes),
            // Without a schema nothing says that the conversion is right.
            None => notes.push_unknown_tool(format!("call `{}` itself", tool.name)),
        }
    }

    /// Returns the name of the tool that a name means; of an unknown one its own.
    fn meant_name(&self, name: &str) -> String {
        let bare = strip_namespace(name).unwrap_or(name);
        match self.find_tool(name).or_else(|| self.find_tool(bare)) {
            Some(ResolvedTool::Declared(tool)) => tool.name.clone(),
            Some(ResolvedTool::Foreign(row, _)) => row
                .targets()
                .first()
                .map_or_else(|| bare.to_lowercase(), |name| (*name).to_owned()),
            None => bare.to_lowercase(),
        }
    }

    /// Finds the declared tool, or the row of another agent's tool, that a name means.
    fn find_tool(&self, name: &str) -> Option<ResolvedTool<'_>> {
        // An exact name wins over every rule, even the name of a tool that is understood but not
        // offered.
        if let Some(tool) = self.tools.get(name) {
            return Some(ResolvedTool::Declared(tool));
        }
        let row = self.tools.foreign_tool(name)?;
        let is_active = !row.is_extension()
            && (self.repairs.has_rule("foreign_tool") || row.targets().is_empty());
        is_active.then(|| ResolvedTool::Foreign(row, name.to_owned()))
    }

    /// Runs the checks "tools were declared" and "tool known"; returns the tool that the call means.
    fn resolve_tool(
        &self,
        call: &DraftCall,
        notes: &mut CallDiagnostics<'_>,
    ) -> Option<ResolvedTool<'_>> {
        let written = call.name.as_str();
        if let Some(found) = self.find_tool(written) {
            return Some(found);
        }
        let bare = strip_namespace(written).filter(|_| self.repairs.has_rule("tool_namespace"));
        if let Some(found) = bare.and_then(|bare| self.find_tool(bare)) {
            let bare = bare.unwrap_or_default();
            notes.push_repair("tool_namespace", notes.name_span(), written, bare);
            return Some(found);
        }
        let name = bare.unwrap_or(written);
        let given: Vec<&str> = call
            .arguments
            .iter()
            .map(|argument| argument.name.as_str())
            .collect();
        if let Some((rule, meant)) = self.repairs.resolve_tool(&UndeclaredTool {
            name,
            tools: &self.tools,
            given: &given,
        }) {
            notes.push_repair(rule, notes.name_span(), written, &meant);
            // The call continues under the declared name, so that policy and approval see the tool
            // that runs.
            return self.tools.get(&meant).map(ResolvedTool::Declared);
        }
        let name = written;
        // The parser has reported the missing name already; "there is no tool ``" would add
        // nothing.
        if name.is_empty()
            && notes
                .all_faults()
                .any(|fault| fault.kind == FaultKind::MissingName)
        {
            return None;
        }
        let shown = shorten_text(name);
        let span = notes.name_span();
        let fault = if self.tools.is_empty() {
            let message = format!("`{shown}` was called, but no tools are available");
            notes
                .new_fault(FaultKind::UnknownTool, span, message)
                .with_hint("answer in words")
        } else if is_placeholder(name) {
            let message = format!("`{shown}` is a placeholder of the instructions, not a tool");
            notes
                .new_fault(FaultKind::Placeholder, span, message)
                .with_hint("put the name of a tool in its place")
        } else {
            // With the rule switched off, the table still knows the intended tool.
            let meant = self
                .tools
                .foreign_tool(bare.unwrap_or(name))
                .and_then(|row| {
                    let mut targets = row.targets().into_iter();
                    targets.find(|target| self.tools.get(target).is_some())
                });
            // A task without subtasks, for example, has no tool for `Task`.
            let absent = ForeignTool::find(bare.unwrap_or(name))
                .filter(|_| self.tools.knows_foreign_tools())
                .and_then(absent_tool_hint);
            let fault = notes.new_fault(
                FaultKind::UnknownTool,
                span,
                format!("there is no tool `{shown}`"),
            );
            fault.with_hint(match self.tools.nearest_name(name) {
                Some(near) => format!("did you mean `{near}`?"),
                None if meant.is_some() => {
                    format!("did you mean `{}`?", meant.unwrap_or_default())
                }
                None => absent.unwrap_or_else(|| {
                    let names = self.tools.iter().map(|tool| tool.name.as_str());
                    format!("the tools are {}", quote_names(names))
                }),
            })
        };
        notes.push(fault);
        None
    }

    /// Runs the check "schema valid", which also tries the alternative readings of strings in unions.
    ///
    /// An invalid schema is the tool author's mistake, not the model's. It therefore yields one
    /// warning, for the first call that is checked, and the typed arguments pass without
    /// validation.
    fn validate_arguments(
        &self,
        tool: &ToolSpec,
        given: &[TypedArgument<'_>],
        notes: &mut CallDiagnostics<'_>,
    ) -> Map<String, Value> {
        let mut arguments: Map<String, Value> = given
            .iter()
            .map(|given| (given.name.clone(), given.value.clone()))
            .collect();
        // Incompletely read arguments would only yield faults about missing parts.
        let Some(compiled) = self
            .compiled_schema(tool)
            .filter(|_| !notes.is_unreadable())
        else {
            return arguments;
        };
        if let Some(complaint) = compiled.take_error() {
            let message = format!(
                "the schema of `{}` is invalid, so its calls are not checked by it",
                tool.name
            );
            let fault = notes
                .new_fault(FaultKind::InvalidValue, notes.call.span, message)
                .with_hint(shorten_text(complaint));
            notes.push(Fault {
                severity: Severity::Warning,
                ..fault
            });
        }
        crate::validate::validate_arguments(compiled, given, &mut arguments, notes);
        arguments
    }
}

/// Returns the advice for a call whose tool the task does not have; `None` if the row means no tool.
fn absent_tool_hint(row: &ForeignTool) -> Option<String> {
    match row.meaning {
        ForeignMeaning::ToolIfOffered { otherwise, .. } => Some(otherwise.to_owned()),
        _ => row.targets().first().map(|tool| {
            format!("`{tool}` is meant, which this task does not have; do the work with the tools that there are")
        }),
    }
}

/// Returns a warning if text follows the last prompted call, because that text was written without knowing the result.
///
/// Only a warning: the call itself is complete, and refusing it would cost a turn for words that do
/// no harm. Native calls are exempt: many wires deliver text and calls in separate fields, without
/// an order.
fn text_after_call(draft: &DraftResponse) -> Option<Fault> {
    let last = draft
        .parts
        .iter()
        .rposition(|part| matches!(part, DraftPart::Call(_)))?;
    let (known, after) = draft.parts.split_at_checked(last + 1)?;
    let Some(DraftPart::Call(call)) = known.last() else {
        return None;
    };
    // Text after a call that could not be read to its end may belong to that call.
    let whole = call.state == DraftState::Closed && draft.errors_of(call.index).next().is_none();
    call.dialect.as_ref().filter(|_| whole)?;
    let words = after.iter().find_map(|part| match part {
        DraftPart::Text(text) => Some(text.trim()).filter(|text| !text.is_empty()),
        _ => None,
    })?;
    // At most the closing tag of a wrapper comes between the call and the text; the span must not
    // include it.
    let source = draft.source.as_str();
    let tail = source.get(call.span.end..).unwrap_or_default();
    let line = words.lines().next().unwrap_or_default();
    // Normally the words end the source; their first line is searched only if something follows
    // them.
    let found = tail
        .trim_end()
        .ends_with(words)
        .then(|| tail.trim_end().len() - words.len())
        .or_else(|| tail.find(line));
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

/// Returns the reason why a call was never closed; `None` for a closed one.
///
/// The reason decides the advice: after the output limit the model must write less, after a broken
/// connection it must only write the same again.
fn truncation_of(draft: &DraftResponse, call: &DraftCall) -> Option<Truncation> {
    let limit = matches!(draft.stop, Some((StopReason::Length, _)));
    match call.state {
        DraftState::Closed => None,
        // A parser that sees only text cannot know why the text ended; the provider's stop reason
        // says it.
        DraftState::Open | DraftState::Cut(Truncation::Ended) if limit => Some(Truncation::Limit),
        // No event ever closed this call. Open is not complete, so the check fails closed.
        DraftState::Open => Some(Truncation::Ended),
        DraftState::Cut(why) => Some(why),
    }
}

/// Rejects the later of two equal calls if one came as text and one natively.
///
/// The server mistral.rs sends such a call both ways. Two equal calls of the same form are legitimate and both run.
///
/// Returns the first call that is not only mentioned, as a draft in a thought is.
fn first_unmentioned_call(draft: &DraftResponse) -> Option<&DraftCall> {
    let mentions = draft
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::Mentioned && fault.severity == Severity::Error);
    let mentioned: HashSet<u32> = mentions.filter_map(|fault| fault.call).collect();
    draft.calls().find(|call| !mentioned.contains(&call.index))
}

/// Typed values are compared, so two spellings of one call are recognized. Only complete calls are compared, since others do not run.
fn reject_duplicate_calls(draft: &DraftResponse, checked: &mut [CheckedCall]) {
    let native: HashSet<u32> = draft
        .calls()
        .filter(|call| call.dialect.is_none())
        .map(|call| call.index)
        .collect();
    if native.is_empty() || native.len() == checked.len() {
        return;
    }
    let mut seen: HashSet<(String, bool)> = HashSet::new();
    for call in checked
        .iter_mut()
        .filter(|call| call.state == CallState::Complete)
    {
        // Sorted, because the order of the arguments does not matter.
        let arguments: BTreeMap<_, _> = call.arguments.iter().collect();
        let same = serde_json::to_string(&(&call.name, arguments)).unwrap_or_default();
        // Looked up with the other form only, so that `ls` twice in one form stays two calls.
        let is_native = native.contains(&call.index);
        if seen.contains(&(same.clone(), !is_native)) {
            let message = "the same call came twice, as text and natively; it runs once";
            // `Provider`, because the model did nothing wrong: feedback leaves this kind out.
            call.faults.push(
                Fault::error(FaultKind::Provider, Span::default(), message).in_call(call.index),
            );
            call.state = CallState::Rejected;
        } else {
            seen.insert((same, is_native));
        }
    }
}
