//! Feedback: faults in words for the model.
//!
//! What helps a model to write the next call right, in this order: which call was not run, every mistake with what was
//! expected, the line with a caret, the nearest name, and one correct call in the protocol's own spelling. It is short,
//! never repeats a file, and never holds a placeholder: what stands in it is what gets imitated.
//!
//! | the same mistake, for the | is told with |
//! | --- | --- |
//! | first time | the line, the caret, a minimal correct call |
//! | second time | the same, and the call itself as it should be, with its own short values |
//! | third time and later | one line for each fault, and another way to what the call was for |

use sabir_call::dialect::DialectSet;
use sabir_call::{Fault, FaultKind, Severity, SpanOrigin, ToolProtocol, ToolSet, ToolSpec};

use crate::gate::{CallState, CheckedCall};
use crate::hints::{CallSpelling, alternative_hints, render_corrected_call, render_example_call};
use crate::repetition::RepeatTracker;

/// The most bytes of one feedback.
pub const CAP: usize = 2_000;

/// Room kept for the note that says how much was left out.
const TRUNCATION_NOTE_BYTES: usize = 80;

/// How many faults of one call are shown with their line; the others are told in one line each.
const MAX_CARETS: usize = 3;

/// How many faults of one call are told at all.
const MAX_FAULTS: usize = 8;

/// Whom feedback speaks to.
#[derive(Debug, Clone, Copy)]
pub struct FeedbackContext<'a> {
    /// How the model is to write calls.
    pub protocol: &'a ToolProtocol,
    /// The dialects among which the protocol names its own.
    pub dialects: &'a DialectSet,
    /// What it can call.
    pub tools: &'a ToolSet,
    /// What it has been told already.
    pub repetition: &'a RepeatTracker,
}

/// Words for the model about every call that may not run, and about the errors among `faults` that belong to no call.
///
/// `source` is the assistant text of the response. `None`: there is nothing to say. Warnings alone are nothing to say, and
/// neither is what the provider did: the model cannot mend it.
pub fn render_feedback(
    checked: &[CheckedCall],
    faults: &[Fault],
    source: &str,
    audience: &FeedbackContext<'_>,
) -> Option<String> {
    let of_model = |fault: &&Fault| fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
    let loose: Vec<&Fault> = faults.iter().filter(|fault| fault.call.is_none()).filter(of_model).collect();
    let stopped = checked.iter().filter(|call| call.state != CallState::Complete);
    let total = usize::from(!loose.is_empty()) + stopped.clone().count();
    // One after the other: what finds no room is never written.
    let of_text = (!loose.is_empty()).then(|| text_section(&loose, source, audience));
    let sections = of_text.into_iter().chain(stopped.map(|call| call_section(call, source, audience)));
    let mut text = String::new();
    for (index, pieces) in sections.enumerate() {
        if !text.is_empty() {
            text.push('\n');
        }
        for piece in &pieces {
            if text.len().saturating_add(piece.len()) > CAP - TRUNCATION_NOTE_BYTES {
                text.push_str(&format!("… shortened; {} of {total} shown\n", index + 1));
                return Some(text);
            }
            text.push_str(piece);
        }
    }
    (total > 0).then_some(text)
}

/// How often the worst of these mistakes was told before.
fn repeat_count(tool: &str, faults: &[&Fault], audience: &FeedbackContext<'_>) -> u32 {
    faults.iter().map(|fault| audience.repetition.repeat_count(tool, fault)).max().unwrap_or_default()
}

/// Faults of no call: heading, faults, example.
fn text_section(faults: &[&Fault], source: &str, audience: &FeedbackContext<'_>) -> Vec<String> {
    let times = repeat_count("", faults, audience);
    let again = if times > 0 { format!(", for the {} time", format_ordinal(times + 1)) } else { String::new() };
    let mut pieces = vec![format!("Your message holds something like a call that could not be read{again}:\n")];
    pieces.extend(render_faults(faults, source, if times < 2 { MAX_CARETS } else { 0 }));
    let tool = mentioned_tool(faults, audience.tools).or_else(|| audience.tools.iter().next());
    let guessed = guess_dialect(faults, source).filter(|_| *audience.protocol == ToolProtocol::Native);
    let spelling =
        CallSpelling { protocol: guessed.as_ref().unwrap_or(audience.protocol), dialects: audience.dialects };
    pieces.extend(tool.and_then(|tool| render_example_call(spelling, tool)));
    pieces
}

/// The dialect in which a model that was to call natively tried to call, by the tag that a fault points at.
fn guess_dialect(faults: &[&Fault], source: &str) -> Option<ToolProtocol> {
    let dialect = |fault: &&Fault| {
        let at = source.floor_char_boundary(fault.span.start.min(source.len()));
        let tag = source.get(at..)?.trim_start_matches(['<', '/']);
        let end = tag.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | ':')).unwrap_or(tag.len());
        let name = tag.get(..end)?.rsplit(':').next()?;
        let about_tag = matches!(
            fault.kind,
            FaultKind::MalformedTag | FaultKind::SelfClosing | FaultKind::JsonInTag | FaultKind::WrongClose
        );
        match name {
            "tool_call" => Some("hermes"),
            _ if name.starts_with("invok") || matches!(name, "function_calls" | "function_call") => Some("invoke"),
            _ => about_tag.then_some("cline"),
        }
    };
    faults.iter().find_map(dialect).map(|dialect| ToolProtocol::Prompted(dialect.to_owned()))
}

/// The fault without the pattern that its hint may end in: a model would write the pattern.
fn strip_hint_pattern(fault: &Fault) -> Fault {
    let pattern = |hint: &&str| hint.contains('…') && (hint.contains("=\"") || hint.contains('<'));
    let hint = match fault.hint.as_deref() {
        Some(hint) if pattern(&hint) => hint.split_once(": `").map(|(words, _)| words.to_owned()),
        hint => hint.map(str::to_owned),
    };
    Fault { hint, ..fault.clone() }
}

/// One call: heading, faults, and an example or another way.
fn call_section(call: &CheckedCall, source: &str, audience: &FeedbackContext<'_>) -> Vec<String> {
    let FeedbackContext { protocol, dialects, tools, .. } = *audience;
    let spelling = CallSpelling { protocol, dialects };
    let name: String = call.name.chars().take(60).collect();
    let number = u64::from(call.index) + 1;
    let which = if name.is_empty() { format!("call {number}") } else { format!("call {number} (`{name}`)") };
    let errors: Vec<&Fault> = call.faults.iter().filter(|fault| fault.severity == Severity::Error).collect();
    let times = repeat_count(&call.name, &errors, audience);
    let what = if call.state == CallState::Cut { "was cut and not run" } else { "was not run" };
    let again = if times > 0 {
        format!(": the same mistake for the {} time", format_ordinal(times + 1))
    } else {
        String::new()
    };
    let mut pieces = vec![format!("Your {which} {what}{again}.\n")];
    pieces.extend(render_faults(&errors, source, if times < 2 { MAX_CARETS } else { 0 }));
    if times >= 2 {
        pieces.extend(alternative_hints(spelling, tools, call));
        return pieces;
    }
    // A call that was cut by a limit or a lost connection was spelled rightly; an example would suggest otherwise.
    if call.state != CallState::Cut {
        let meant = tools.get(&call.name).or_else(|| tools.nearest_name(&call.name).and_then(|near| tools.get(near)));
        pieces.extend(match meant {
            Some(tool) if times > 0 => render_corrected_call(spelling, tool, call),
            tool => tool.or_else(|| tools.iter().next()).and_then(|tool| render_example_call(spelling, tool)),
        });
    }
    pieces
}

fn format_ordinal(number: u32) -> String {
    match (number % 10, number % 100) {
        (1, tens) if tens != 11 => format!("{number}st"),
        (2, tens) if tens != 12 => format!("{number}nd"),
        (3, tens) if tens != 13 => format!("{number}rd"),
        _ => format!("{number}th"),
    }
}

/// The faults, so many of them with their line and caret.
fn render_faults(faults: &[&Fault], source: &str, carets: usize) -> Vec<String> {
    let mut shown: Vec<usize> = Vec::new();
    let tell = |fault: &&Fault| {
        let fault = strip_hint_pattern(fault);
        let caret = fault.origin == SpanOrigin::Text && shown.len() < carets && !shown.contains(&fault.span.start);
        // Where a call was cut, the line says nothing that the message does not say.
        if caret && fault.kind != FaultKind::CutCall {
            shown.push(fault.span.start);
            return fault.render_diagnostic(source);
        }
        let hint = fault.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("error[{}]: {}{hint}\n", fault.kind.name(), fault.message)
    };
    let mut pieces: Vec<String> = faults.iter().take(MAX_FAULTS).map(tell).collect();
    if let Some(more) = faults.len().checked_sub(MAX_FAULTS).filter(|more| *more > 0) {
        pieces.push(format!("… and {more} more mistakes in this call\n"));
    }
    pieces
}

/// The first declared tool that a fault names in backticks.
fn mentioned_tool<'t>(faults: &[&Fault], tools: &'t ToolSet) -> Option<&'t ToolSpec> {
    let named = |text: &str| text.split('`').skip(1).step_by(2).find_map(|name| tools.get(name));
    faults.iter().find_map(|fault| fault.hint.as_deref().and_then(named).or_else(|| named(&fault.message)))
}
