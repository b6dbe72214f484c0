//! `parse` and `check`: what a text was understood as. `explain` and `wire decode` read in the same way.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use sabir_call::dialect::{Selection, dialect};
use sabir_call::{
    Certainty, Cut, Draft, DraftPart, Event, Fault, FaultKind, Mark, MarkRole, Parallel, Protocol, Reader, Severity,
    Sink, ToolSet,
};
use sabir_check::{Audience, CallState, Checked, Checker, Repetition, feedback};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{CheckArguments, ListeningOptions, Output, ParseArguments, Whole};
use crate::exit::unknown_dialect;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use crate::wire::Response;

/// What `--output json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Understood<'a> {
    dialect: &'a str,
    parts: Vec<Value>,
    faults: Vec<Value>,
    feedback: Option<String>,
    #[serde(flatten)]
    response: Option<&'a Response>,
}

/// A text with everything that was made of it.
pub(crate) struct Reading {
    /// `auto`, or the name of a dialect or a wire.
    pub(crate) selection: &'static str,
    pub(crate) source: String,
    pub(crate) draft: Draft,
    pub(crate) checked: Vec<Checked>,
    pub(crate) how: Recognised,
    /// What belongs to no call.
    pub(crate) loose: Vec<Fault>,
    pub(crate) tools: ToolSet,
}

/// How a call was recognised.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct How {
    /// How sure the reader is.
    pub(crate) sure: Certainty,
    /// Why.
    pub(crate) rule: &'static str,
}

/// Keeps the events as a draft, and prints them where that is asked for.
pub(crate) struct Listener {
    draft: Draft,
    prints: bool,
    recognised: Recognised,
}

/// How each call was recognised: by the mark right before it, or else by the last one around calls of its dialect. A call
/// in text without either has no marker at all.
#[derive(Debug, Default)]
pub(crate) struct Recognised {
    /// One dialect was chosen.
    chosen: bool,
    how: BTreeMap<u32, How>,
    call: Option<How>,
    wrapper: Option<(Option<String>, How)>,
}

impl Recognised {
    /// Of calls in all dialects, or in the one of that name.
    pub(crate) fn new(selection: &str) -> Self {
        Self { chosen: selection != "auto", ..Self::default() }
    }

    /// Takes the next event.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Mark(Mark { role, dialect, sure, rule, .. }) => match role {
                MarkRole::Call => self.call = Some(How { sure, rule }),
                MarkRole::Wrapper => self.wrapper = Some((dialect.map(str::to_owned), How { sure, rule })),
                _ => {}
            },
            Event::CallStart { index, dialect, .. } => {
                let wrapper = self.wrapper.as_ref().filter(|(known, _)| known.as_deref() == dialect);
                let sure = if self.chosen { Certainty::Certain } else { Certainty::Guess };
                let bare =
                    dialect.map(|_| How { sure, rule: "no marker: its shape and its place say that it is a call" });
                let how = self.call.take().or(wrapper.map(|(_, how)| *how)).or(bare);
                self.how.extend(how.map(|how| (index, how)));
            }
            _ => {}
        }
    }

    /// How that call was recognised.
    pub(crate) fn of(&self, index: u32) -> Option<How> {
        self.how.get(&index).copied()
    }
}

impl Listener {
    pub(crate) fn new(prints: bool, selection: &str) -> Self {
        Self { draft: Draft::default(), prints, recognised: Recognised::new(selection) }
    }

    pub(crate) fn draft(mut self) -> (Draft, Recognised) {
        self.draft.drop_blank_text();
        (self.draft, self.recognised)
    }
}

impl Sink for Listener {
    fn event(&mut self, event: Event<'_>) {
        self.recognised.event(event);
        // Marks are for `explain`: they say why, not what.
        if self.prints && !matches!(event, Event::Mark(_)) {
            print::json(&event);
        }
        self.draft.event(event);
    }
}

/// `sabir parse`.
pub(crate) fn parse(arguments: &ParseArguments) -> Result<Exit, Failure> {
    let prints = arguments.output == Output::Events;
    let reading = listen(&arguments.listening, prints, &mut |_| {})?;
    match arguments.output {
        Output::Json => print::json(&reading.understood(None)),
        Output::Text => print::out(&reading.in_words()),
        Output::Events => {}
    }
    Ok(reading.exit())
}

/// `sabir check`.
pub(crate) fn check(arguments: &CheckArguments) -> Result<Exit, Failure> {
    let reading = listen(&arguments.listening, false, &mut |_| {})?;
    let faults = reading.faults();
    match arguments.output {
        Whole::Json => {
            let faults: Vec<_> = faults.iter().map(|fault| describe(fault, &reading.source)).collect();
            print::json(&json!({"faults": faults, "feedback": reading.feedback()}));
        }
        Whole::Text => {
            let mut text = String::new();
            for fault in &faults {
                text.push_str(&fault.diagnostic(&reading.source));
                text.push('\n');
            }
            if let Some(feedback) = reading.feedback() {
                text.push_str(&format!("the model would be told:\n\n{feedback}\n"));
            }
            let errors = faults.iter().filter(|fault| fault.severity == Severity::Error).count();
            text.push_str(&format!(
                "{}, {}, {}\n",
                print::counted(reading.checked.len(), "call"),
                print::counted(errors, "error"),
                print::counted(faults.len() - errors, "warning")
            ));
            print::out(&print::visible(&text));
        }
    }
    Ok(reading.exit())
}

/// Reads standard input as the options say, and prints the events where they are wanted. `also` sees every event.
pub(crate) fn listen(
    options: &ListeningOptions,
    prints: bool,
    also: &mut dyn FnMut(Event<'_>),
) -> Result<Reading, Failure> {
    let (name, selection) = match (options.dialect.as_str(), dialect(&options.dialect)) {
        ("auto", _) => ("auto", Selection::AUTO),
        (_, Some(dialect)) => (dialect.name, Selection::from(dialect)),
        (unknown, None) => return Err(unknown_dialect(unknown, "auto, ")),
    };
    let tools = load_tools(options.reading.tools.as_deref())?;
    let checker = gates(options, tools.clone())?;
    let bytes = standard_input()?;
    let mut listener = Listener::new(prints, name);
    let mut sink = |event: Event<'_>| {
        also(event);
        listener.event(event);
    };
    let mut reader = Reader::new(selection, &tools);
    for chunk in chunks(&bytes, options.reading.chunk) {
        reader.push_bytes(chunk, &mut sink);
    }
    reader.finish(Cut::Ended, &mut sink);
    let (mut draft, how) = listener.draft();
    // A reader does not repeat the text that it is given; the gates look for names in it.
    draft.source = String::from_utf8_lossy(&bytes).into_owned();
    let (checked, loose) = (checker.check_all(&draft), checker.loose(&draft));
    let source = draft.source.clone();
    Ok(Reading { selection: name, source, draft, checked, how, loose, tools })
}

/// The gates that the options and the configuration ask for.
fn gates(options: &ListeningOptions, tools: ToolSet) -> Result<Checker, Failure> {
    let config = surroundings::load_config(None)?;
    let repairs = sabir_session::repairs_without(config.disabled_repairs().iter().chain(&options.no_repair))?;
    let parallel = if options.one { Parallel::One } else { Parallel::Many };
    Ok(Checker::new(tools).with_repairs(repairs).with_parallel(parallel))
}

impl Reading {
    /// All faults, in the order of the text.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let calls = self.checked.iter().flat_map(|call| &call.faults);
        let mut faults: Vec<_> = calls.chain(&self.loose).cloned().collect();
        faults.sort_by_key(|fault| fault.span.start);
        faults
    }

    /// What the model would be told.
    pub(crate) fn feedback(&self) -> Option<String> {
        let protocol = match self.checked.iter().find_map(|checked| self.draft.call(checked.index)?.dialect.clone()) {
            Some(dialect) => Protocol::Prompted(dialect),
            None if dialect(self.selection).is_some() => Protocol::Prompted(self.selection.to_owned()),
            None => Protocol::Native,
        };
        let audience = Audience { protocol: &protocol, tools: &self.tools, told: &Repetition::default() };
        feedback(&self.checked, &self.loose, &self.source, &audience)
    }

    pub(crate) fn exit(&self) -> Exit {
        let bad_call = self.checked.iter().any(|call| call.state != CallState::Complete);
        // What the provider did is no call that was not understood.
        let of_model = |fault: &&Fault| fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
        let loose = self.loose.iter().any(|fault| of_model(&fault));
        if bad_call || loose { Exit::NotUnderstood } else { Exit::Completed }
    }

    pub(crate) fn understood<'a>(&'a self, response: Option<&'a Response>) -> Understood<'a> {
        let parts = self.draft.parts.iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(json!({"type": "text", "text": text})),
            DraftPart::Thought(text) => Some(json!({"type": "thought", "text": text})),
            DraftPart::Opaque(_) => None,
            DraftPart::Call(call) => {
                let checked = self.checked.iter().find(|checked| checked.index == call.index)?;
                let span = call.dialect.as_ref().map(|_| call.span);
                Some(json!({
                    "type": "call", "name": checked.name, "id": call.id, "dialect": call.dialect, "state": checked.state,
                    "arguments": checked.arguments, "span": span, "repairs": checked.repairs, "how": self.how.of(call.index),
                }))
            }
        });
        Understood {
            dialect: self.selection,
            parts: parts.collect(),
            faults: self.faults().iter().map(|fault| describe(fault, &self.source)).collect(),
            feedback: self.feedback(),
            response,
        }
    }

    pub(crate) fn in_words(&self) -> String {
        let mut text = String::new();
        for part in &self.draft.parts {
            match part {
                DraftPart::Text(words) => text.push_str(&format!("text\n{}\n", print::indented(words))),
                DraftPart::Thought(words) => text.push_str(&format!("thought\n{}\n", print::indented(words))),
                DraftPart::Opaque(_) => {}
                DraftPart::Call(call) => {
                    let Some(checked) = self.checked.iter().find(|checked| checked.index == call.index) else {
                        continue;
                    };
                    text.push_str(&call_in_words(checked, call.dialect.as_deref().unwrap_or("native")));
                }
            }
        }
        for fault in self.faults() {
            text.push_str(&fault.diagnostic(&self.source));
        }
        print::visible(&text)
    }
}

pub(crate) fn call_in_words(checked: &Checked, spelling: &str) -> String {
    let state = match checked.state {
        CallState::Complete => "complete",
        CallState::Rejected => "rejected",
        CallState::Cut => "cut",
    };
    let mut text = format!("call {} ({spelling}, {state})\n", checked.name);
    for (name, value) in &checked.arguments {
        match value.as_str() {
            Some(words) if words.contains('\n') => text.push_str(&format!("  {name}:\n{}\n", print::indented(words))),
            Some(words) => text.push_str(&format!("  {name}: {words}\n")),
            None => text.push_str(&format!("  {name}: {value}\n")),
        }
    }
    for repair in &checked.repairs {
        text.push_str(&format!("  repaired ({}): {} -> {}\n", repair.rule, repair.before, repair.after));
    }
    text
}

/// A fault as the contract prints it.
pub(crate) fn describe(fault: &Fault, source: &str) -> Value {
    let place = fault.place(source);
    json!({
        "kind": fault.kind.name(), "severity": fault.severity, "call": fault.call, "argument": fault.argument,
        "line": place.line, "column": place.column, "span": fault.span, "message": fault.message, "hint": fault.hint,
    })
}

/// The tools of a file, or the built-in ones.
pub(crate) fn load_tools(path: Option<&Path>) -> Result<ToolSet, Failure> {
    let Some(path) = path else { return Ok(sabir_session::built_in_tools()) };
    let shown = path.display();
    let text = sabir_session::config::read_text(path)?;
    ToolSet::from_json(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))
}

pub(crate) fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    Ok(bytes)
}

pub(crate) fn chunks(bytes: &[u8], size: usize) -> std::slice::Chunks<'_, u8> {
    bytes.chunks(if size == 0 { bytes.len().max(1) } else { size })
}
