//! Renders faults as text for the model.
//!
//! The text holds, in this order: the call that was not run, every mistake with the expected input, the line with a caret,
//! the nearest name, and one correct call in the active protocol. It is short, never repeats a file, and never contains a
//! placeholder, because models imitate what they read.
//!
//! | the same mistake | text |
//! | --- | --- |
//! | first time | the line, the caret, a minimal correct call |
//! | second time | the same, and the model's own call in its correct form, with its own short values |
//! | third time and later | one line for each fault, and another way to reach the goal of the call |

use sabir_call::dialect::DialectSet;
use sabir_call::{Fault, FaultKind, Severity, SpanOrigin, ToolProtocol, ToolSet, ToolSpec};

use crate::call_checker::{CallState, CheckedCall};
use crate::hints::{CallNotation, alternative_hints, render_corrected_call, render_example_call};
use crate::repetition::MistakeCounter;

/// The longest feedback in bytes.
/// A few hundred tokens: enough for three faults with their lines and an example. Feedback stays in
/// the history and is paid for with every later request.
pub const CAP: usize = 2_000;

/// The bytes that are reserved for the note about omitted parts.
const TRUNCATION_NOTE_BYTES: usize = 80;

/// The number of faults of one call that are shown with their source line; each further one takes a single line.
const MAX_CARETS: usize = 3;

/// The number of faults of one call that are shown at all. A model corrects only a few mistakes at a time; the others are only counted.
const MAX_FAULTS: usize = 8;

/// The facts about the model's situation on which the feedback depends.
#[derive(Debug, Clone, Copy)]
pub struct FeedbackContext<'a> {
    /// The protocol in which the model writes calls.
    pub protocol: &'a ToolProtocol,
    /// The dialects that the session knows, among which a prompted protocol names its own.
    pub dialects: &'a DialectSet,
    /// The tools on offer.
    pub tools: &'a ToolSet,
    /// The mistakes that were reported before.
    pub repetition: &'a MistakeCounter,
}

/// Renders the feedback about every call that may not run, and about the errors among `faults` that belong to no call.
///
/// `source` is the assistant text of the response. Returns `None` if there is nothing to report. Warnings alone are not
/// reported, and neither are the provider's mistakes, since the model cannot correct them.
///
/// The text has at most `FEEDBACK_CAP` bytes. It depends on nothing but its arguments, so a resumed
/// task renders the same bytes and the provider's prompt cache still hits.
pub fn render_feedback(
    checked: &[CheckedCall],
    faults: &[Fault],
    source: &str,
    audience: &FeedbackContext<'_>,
) -> Option<String> {
    let of_model =
        |fault: &&Fault| fault.severity == Severity::Error && fault.kind != FaultKind::Provider;
    let loose: Vec<&Fault> = faults
        .iter()
        .filter(|fault| fault.call.is_none())
        .filter(of_model)
        .collect();
    let stopped = checked
        .iter()
        .filter(|call| call.state != CallState::Complete);
    let total = usize::from(!loose.is_empty()) + stopped.clone().count();
    // The sections are lazy: one that does not fit is never rendered.
    let of_text = (!loose.is_empty()).then(|| text_section(&loose, source, audience));
    let sections = of_text
        .into_iter()
        .chain(stopped.map(|call| call_section(call, source, audience)));
    let mut text = String::new();
    for (index, pieces) in sections.enumerate() {
        if !text.is_empty() {
            text.push('\n');
        }
        for piece in &pieces {
            // Cut between pieces, never inside one: half an example would be a wrong example.
            if text.len().saturating_add(piece.len()) > CAP - TRUNCATION_NOTE_BYTES {
                text.push_str(&format!("… shortened; {} of {total} shown\n", index + 1));
                return Some(text);
            }
            text.push_str(piece);
        }
    }
    (total > 0).then_some(text)
}

/// Renders the feedback about a message that held no call where one was needed.
///
/// `times` counts such messages in a row, this one included. From the second one on the text repeats the syntax, with a call of
/// `completion`, the tool that ends the task.
pub fn render_missing_call(times: u32, completion: &str, audience: &FeedbackContext<'_>) -> String {
    let FeedbackContext {
        protocol,
        dialects,
        tools,
        ..
    } = *audience;
    let mut text = format!(
        "Your message held no call, so nothing happened. If the task is done, call {completion}; if not, call the tool that \
         brings it forward."
    );
    let dialect = match protocol {
        ToolProtocol::Native => None,
        ToolProtocol::Prompted(name) => dialects.find(name),
    };
    text.push_str(match dialect {
        Some(_) => {
            " Write the call as text, in the form that you were taught, outside of code fences."
        }
        None => " Make the call through the tool calling of the API; words alone do nothing.",
    });
    if times < 2 {
        return text;
    }
    if let Some(dialect) = dialect {
        text.push_str(&format!("\n\n{}", dialect.syntax_rules()));
    }
    let spelling = CallNotation { protocol, dialects };
    let tool = tools.get(completion).or_else(|| tools.iter().next());
    if let Some(example) = tool.and_then(|tool| render_example_call(spelling, tool)) {
        text.push_str(&format!("\n\n{}", example.trim_end()));
    }
    text
}

/// Returns how often the most frequent of these mistakes was reported before.
///
/// The maximum, because one persistent mistake is a reason to change the advice, even among new ones.
fn repeat_count(tool: &str, faults: &[&Fault], audience: &FeedbackContext<'_>) -> u32 {
    faults
        .iter()
        .map(|fault| audience.repetition.repeat_count(tool, fault))
        .max()
        .unwrap_or_default()
}

/// Renders the faults that belong to no call: heading, faults, example.
///
/// There is no call to correct here, so the example is one of the tool that a fault names, or else
/// of the first tool on offer.
fn text_section(faults: &[&Fault], source: &str, audience: &FeedbackContext<'_>) -> Vec<String> {
    let times = repeat_count("", faults, audience);
    let again = if times > 0 {
        format!(", for the {} time", format_ordinal(times + 1))
    } else {
        String::new()
    };
    let mut pieces = vec![format!(
        "Your message holds something like a call that could not be read{again}:\n"
    )];
    pieces.extend(render_faults(
        faults,
        source,
        if times < 2 { MAX_CARETS } else { 0 },
    ));
    let tool = mentioned_tool(faults, audience.tools).or_else(|| audience.tools.iter().next());
    let guessed =
        guess_dialect(faults, source).filter(|_| *audience.protocol == ToolProtocol::Native);
    let spelling = CallNotation {
        protocol: guessed.as_ref().unwrap_or(audience.protocol),
        dialects: audience.dialects,
    };
    pieces.extend(tool.and_then(|tool| render_example_call(spelling, tool)));
    pieces
}

/// Guesses the dialect in which a model tried to write a call although it should have called natively, from the tag at a
/// fault's position.
///
/// A model that wrote tags is likely to write tags again, so a correct call in that notation helps
/// more than native arguments would.
fn guess_dialect(faults: &[&Fault], source: &str) -> Option<ToolProtocol> {
    let dialect = |fault: &&Fault| {
        let at = source.floor_char_boundary(fault.span.start.min(source.len()));
        let tag = source.get(at..)?.trim_start_matches(['<', '/']);
        let end = tag
            .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | ':'))
            .unwrap_or(tag.len());
        // Without its namespace prefix, which differs between vendors: `antml:invoke` is `invoke`.
        let name = tag.get(..end)?.rsplit(':').next()?;
        let about_tag = matches!(
            fault.kind,
            FaultKind::MalformedTag
                | FaultKind::SelfClosing
                | FaultKind::JsonInTag
                | FaultKind::WrongClose
        );
        match name {
            "tool_call" => Some("hermes"),
            // Also the usual typing error `<invok>`, which is often the very fault.
            _ if name.starts_with("invok")
                || matches!(name, "function_calls" | "function_call") =>
            {
                Some("invoke")
            }
            _ => about_tag.then_some("cline"),
        }
    };
    faults
        .iter()
        .find_map(dialect)
        .map(|dialect| ToolProtocol::Prompted(dialect.to_owned()))
}

/// Removes a syntax pattern from the end of the fault's hint, since a model would copy the pattern literally.
/// People read `<invoke name="…">` as a pattern; a model writes the ellipsis into its next call.
fn strip_hint_pattern(fault: &Fault) -> Fault {
    let pattern = |hint: &&str| hint.contains('…') && (hint.contains("=\"") || hint.contains('<'));
    let hint = match fault.hint.as_deref() {
        Some(hint) if pattern(&hint) => hint.split_once(": `").map(|(words, _)| words.to_owned()),
        hint => hint.map(str::to_owned),
    };
    Fault {
        hint,
        ..fault.clone()
    }
}

/// Renders one call: heading, faults, and an example or an alternative.
///
/// The pieces are in order of importance, since feedback that is too long is cut at its end.
fn call_section(call: &CheckedCall, source: &str, audience: &FeedbackContext<'_>) -> Vec<String> {
    let FeedbackContext {
        protocol,
        dialects,
        tools,
        ..
    } = *audience;
    let spelling = CallNotation { protocol, dialects };
    // The name of an unknown tool is any text that the model wrote.
    let name: String = call.name.chars().take(60).collect();
    let number = u64::from(call.index) + 1;
    let which = if name.is_empty() {
        format!("call {number}")
    } else {
        format!("call {number} (`{name}`)")
    };
    let errors: Vec<&Fault> = call
        .faults
        .iter()
        .filter(|fault| fault.severity == Severity::Error)
        .collect();
    let times = repeat_count(&call.name, &errors, audience);
    let what = if call.state == CallState::Cut {
        "was cut and not run"
    } else {
        "was not run"
    };
    let again = if times > 0 {
        format!(
            ": the same mistake for the {} time",
            format_ordinal(times + 1)
        )
    } else {
        String::new()
    };
    let mut pieces = vec![format!("Your {which} {what}{again}.\n")];
    pieces.extend(render_faults(
        &errors,
        source,
        if times < 2 { MAX_CARETS } else { 0 },
    ));
    if times >= 2 {
        // The third attempt: carets and examples have not helped twice, so another way is offered.
        pieces.extend(alternative_hints(spelling, tools, call));
        return pieces;
    }
    // The syntax of a cut call was right; an example would suggest otherwise.
    if call.state != CallState::Cut {
        let nearest = || {
            tools
                .nearest_name(&call.name)
                .and_then(|near| tools.get(near))
        };
        let meant = tools
            .get(&call.name)
            .or_else(|| mentioned_tool(&errors, tools))
            .or_else(nearest);
        pieces.extend(match meant {
            Some(tool) if times > 0 => render_corrected_call(spelling, tool, call),
            tool => tool
                .or_else(|| tools.iter().next())
                .and_then(|tool| render_example_call(spelling, tool)),
        });
    }
    pieces
}

/// Formats `1` as `1st`, `12` as `12th`.
fn format_ordinal(number: u32) -> String {
    match (number % 10, number % 100) {
        (1, tens) if tens != 11 => format!("{number}st"),
        (2, tens) if tens != 12 => format!("{number}nd"),
        (3, tens) if tens != 13 => format!("{number}rd"),
        _ => format!("{number}th"),
    }
}

/// Renders the faults, the first `carets` of them with their line and a caret.
///
/// Two faults at one position share a line, so the second is rendered without it. Positions in the
/// argument text of a native call have no line to show.
fn render_faults(faults: &[&Fault], source: &str, carets: usize) -> Vec<String> {
    let mut shown: Vec<usize> = Vec::new();
    let tell = |fault: &&Fault| {
        let fault = strip_hint_pattern(fault);
        let caret = fault.origin == SpanOrigin::Text
            && shown.len() < carets
            && !shown.contains(&fault.span.start);
        // For a cut call the source line adds nothing to the message.
        if caret && fault.kind != FaultKind::CutCall {
            shown.push(fault.span.start);
            return fault.render_diagnostic(source);
        }
        let hint = fault
            .hint
            .as_ref()
            .map(|hint| format!(" ({hint})"))
            .unwrap_or_default();
        format!("error[{}]: {}{hint}\n", fault.kind.name(), fault.message)
    };
    let mut pieces: Vec<String> = faults.iter().take(MAX_FAULTS).map(tell).collect();
    if let Some(more) = faults
        .len()
        .checked_sub(MAX_FAULTS)
        .filter(|more| *more > 0)
    {
        pieces.push(format!("… and {more} more mistakes in this call\n"));
    }
    pieces
}

/// Finds the first declared tool that a fault names in backticks.
fn mentioned_tool<'t>(faults: &[&Fault], tools: &'t ToolSet) -> Option<&'t ToolSpec> {
    let named = |text: &str| {
        text.split('`')
            .skip(1)
            .step_by(2)
            .find_map(|name| tools.get(name))
    };
    faults.iter().find_map(|fault| {
        fault
            .hint
            .as_deref()
            .and_then(named)
            .or_else(|| named(&fault.message))
    })
}
