//! Feedback: faults in words for the model.
//!
//! What helps a model to write the next call right, in this order: which call was not run, every mistake with what was
//! expected, the line with a caret, the nearest name, and one correct call in the protocol's own spelling. It is short,
//! never repeats a file, and never holds a placeholder: what stands in it is what gets imitated.

use sabir_call::{Fault, FaultKind, Origin, Protocol, Severity, ToolSet, ToolSpec, render_example};

use crate::gate::{CallState, Checked};

/// The most bytes of one feedback.
pub const CAP: usize = 2_000;

/// Room kept for the note that says how much was left out.
const NOTE: usize = 80;

/// How many faults of one call are shown with their line; the others are told in one line each.
const CARETS: usize = 3;

/// An example longer than this teaches less than it costs.
const EXAMPLE: usize = 600;

/// Words for the model about every call that may not run, and about the errors among `faults` that belong to no call.
///
/// `source` is the assistant text of the response. `None`: there is nothing to say. Warnings alone are nothing to say.
pub fn feedback(
    checked: &[Checked],
    faults: &[Fault],
    source: &str,
    protocol: &Protocol,
    tools: &ToolSet,
) -> Option<String> {
    let loose = faults.iter().filter(|fault| fault.call.is_none() && fault.severity == Severity::Error);
    let mut sections: Vec<Vec<String>> = Vec::new();
    let loose: Vec<&Fault> = loose.collect();
    if !loose.is_empty() {
        let mut section = vec!["Your message holds something like a call that could not be read:\n".to_owned()];
        section.extend(told(&loose, source));
        section.extend(
            tool_in_words(&loose, tools).or_else(|| tools.iter().next()).and_then(|tool| example(protocol, tool)),
        );
        sections.push(section);
    }
    let stopped = checked.iter().filter(|call| call.state != CallState::Complete);
    sections.extend(stopped.map(|call| about(call, source, protocol, tools)));
    if sections.is_empty() {
        return None;
    }
    let total = sections.len();
    let mut text = String::new();
    for (index, pieces) in sections.iter().enumerate() {
        if !text.is_empty() {
            text.push('\n');
        }
        for piece in pieces {
            if text.len().saturating_add(piece.len()) > CAP - NOTE {
                text.push_str(&format!("… shortened; {} of {total} shown\n", index + 1));
                return Some(text);
            }
            text.push_str(piece);
        }
    }
    Some(text)
}

/// One call: heading, faults, example.
fn about(call: &Checked, source: &str, protocol: &Protocol, tools: &ToolSet) -> Vec<String> {
    let name: String = call.name.chars().take(60).collect();
    let number = u64::from(call.index) + 1;
    let which = if name.is_empty() { format!("call {number}") } else { format!("call {number} (`{name}`)") };
    let mut pieces = vec![match call.state {
        CallState::Cut => format!("Your {which} was cut and not run.\n"),
        _ => format!("Your {which} was not run.\n"),
    }];
    let errors: Vec<&Fault> = call.faults.iter().filter(|fault| fault.severity == Severity::Error).collect();
    pieces.extend(told(&errors, source));
    // A call that was cut by a limit or a lost connection was spelled rightly; an example would suggest otherwise.
    let spelled = call.state == CallState::Cut;
    let tool = tools.get(&call.name).or_else(|| tools.nearest(&call.name).and_then(|near| tools.get(near)));
    if !spelled {
        pieces.extend(tool.or_else(|| tools.iter().next()).and_then(|tool| example(protocol, tool)));
    }
    pieces
}

/// The faults, the first ones with their line and caret.
fn told(faults: &[&Fault], source: &str) -> Vec<String> {
    let mut shown: Vec<usize> = Vec::new();
    let tell = |fault: &&Fault| {
        let caret = fault.origin == Origin::Text && shown.len() < CARETS && !shown.contains(&fault.span.start);
        // Where a call was cut, the line says nothing that the message does not say.
        if caret && fault.kind != FaultKind::CutCall {
            shown.push(fault.span.start);
            return fault.diagnostic(source);
        }
        let hint = fault.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("error[{}]: {}{hint}\n", fault.kind.name(), fault.message)
    };
    faults.iter().map(tell).collect()
}

/// The first declared tool that a fault names in backticks.
fn tool_in_words<'t>(faults: &[&Fault], tools: &'t ToolSet) -> Option<&'t ToolSpec> {
    let named = |text: &str| text.split('`').skip(1).step_by(2).find_map(|name| tools.get(name));
    faults.iter().find_map(|fault| fault.hint.as_deref().and_then(named).or_else(|| named(&fault.message)))
}

fn example(protocol: &Protocol, tool: &ToolSpec) -> Option<String> {
    let text = render_example(protocol, tool);
    let what = if *protocol == Protocol::Native { "Correct arguments" } else { "A correct call" };
    (text.len() <= EXAMPLE).then(|| format!("{what} of `{}`:\n{text}\n", tool.name))
}
