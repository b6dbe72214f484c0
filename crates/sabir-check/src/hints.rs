//! Renders example calls for feedback: a minimal one, the model's own call corrected, or an alternative.
//!
//! An example is always in the active protocol, and always one that the checks would accept, because models imitate it.

use sabir_call::dialect::DialectSet;
use sabir_call::{Fault, FaultKind, ToolProtocol, ToolSet, ToolSpec, render_example};
use serde_json::{Map, Value};

use crate::call_checker::CheckedCall;
use crate::call_diagnostics::quote_names;
use crate::compiled_schema::CompiledSchema;

/// The longest of the model's own values that a corrected call repeats, in bytes of JSON.
/// Longer ones are file contents rather than names, and repeating them would fill the feedback.
const MAX_VALUE_BYTES: usize = 80;

/// The longest example in bytes. A longer one costs more tokens than it is worth.
const MAX_EXAMPLE_BYTES: usize = 600;

/// The form in which the model writes calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallNotation<'a> {
    /// Native, or the name of a dialect.
    pub(crate) protocol: &'a ToolProtocol,
    /// The dialects among which that name is looked up.
    pub(crate) dialects: &'a DialectSet,
}

/// A minimal correct call of the tool; `None` where even that is long.
pub(crate) fn render_example_call(spelling: CallNotation<'_>, tool: &ToolSpec) -> Option<String> {
    let text = render_example(spelling.dialects, spelling.protocol, tool);
    let what = if *spelling.protocol == ToolProtocol::Native {
        "Correct arguments"
    } else {
        "A correct call"
    };
    (text.len() <= MAX_EXAMPLE_BYTES).then(|| format!("{what} of `{}`:\n{text}\n", tool.name))
}

/// Renders the corrected call: its valid short arguments, and the other required ones from the tool's example. Renders the
/// plain example if that would not be valid.
///
/// Models copy an example more readily than they apply an explanation; with the model's own values, the copy is the intended call.
pub(crate) fn render_corrected_call(
    spelling: CallNotation<'_>,
    tool: &ToolSpec,
    call: &CheckedCall,
) -> Option<String> {
    let usual = serde_json::from_str(&render_example(
        spelling.dialects,
        &ToolProtocol::Native,
        tool,
    ))
    .unwrap_or_else(|_| Map::new());
    let mut arguments = Map::new();
    for argument in tool.declared_arguments() {
        let own = call
            .arguments
            .get(argument.name)
            .filter(|value| is_reusable(value, argument.name, &call.faults));
        if let Some(value) = own.or_else(|| usual.get(argument.name).filter(|_| argument.required))
        {
            arguments.insert(argument.name.to_owned(), value.clone());
        }
    }
    // Values that are valid one by one may be invalid together, and a wrong example is worse than a
    // general one.
    let valid = CompiledSchema::new(&tool.parameters).accepts(&Value::Object(arguments.clone()));
    // The renderer takes a tool's first example, so the corrected arguments become that example.
    let filled = ToolSpec {
        examples: vec![arguments],
        ..tool.clone()
    };
    if valid {
        render_example_call(spelling, &filled)
    } else {
        None
    }
    .or_else(|| render_example_call(spelling, tool))
}

/// Returns true if a value may be used in an example. Values with markup are not, because they could be confused with the example's own markup.
/// U+FF5C is the full-width bar of DeepSeek's special tokens; a bracket could begin Mistral's
/// `[TOOL_CALLS]` or a list of Python calls.
fn is_reusable(value: &Value, name: &str, faults: &[Fault]) -> bool {
    let json = value.to_string();
    let marks =
        json.contains(['<', '`', '\\', '\u{ff5c}']) || value.is_string() && json.contains('[');
    json.len() <= MAX_VALUE_BYTES
        && !marks
        && !faults
            .iter()
            .any(|fault| fault.argument.as_deref() == Some(name))
}

/// A tool to try when calls of another one keep failing.
struct ToolAlternative {
    tool: &'static str,
    other: &'static str,
    words: &'static str,
}

/// The advice after edits that do not match: a rewrite needs no matching.
const WRITE_ALL: &str = "read the file, then write the whole of it with `write_to_file`";

/// The alternatives between the file tools, in order of preference; the first one whose other tool is offered is used. The user's own tools
/// have none and get the general advice.
const TOOL_ALTERNATIVES: [ToolAlternative; 9] = [
    ToolAlternative {
        tool: "write_to_file",
        other: "replace_in_file",
        words: "if the file is there, change only the lines that differ, with `replace_in_file`",
    },
    ToolAlternative {
        tool: "write_to_file",
        other: "edit_file",
        words: "if the file is there, change only the lines that differ, with `edit_file`",
    },
    ToolAlternative {
        tool: "write_to_file",
        other: "apply_patch",
        words: "if the file is there, change only the lines that differ, with `apply_patch`",
    },
    ToolAlternative {
        tool: "replace_in_file",
        other: "write_to_file",
        words: WRITE_ALL,
    },
    ToolAlternative {
        tool: "edit_file",
        other: "write_to_file",
        words: WRITE_ALL,
    },
    ToolAlternative {
        tool: "apply_patch",
        other: "write_to_file",
        words: WRITE_ALL,
    },
    ToolAlternative {
        tool: "read_file",
        other: "search_files",
        words: "look only for the lines that you need, with `search_files`",
    },
    ToolAlternative {
        tool: "search_files",
        other: "read_file",
        words: "read the file that you expect them in, with `read_file`",
    },
    ToolAlternative {
        tool: "list_files",
        other: "search_files",
        words: "look for what is in the files, with `search_files`",
    },
];

/// Renders other ways to reach the goal of a call, and an example of the first one.
///
/// There is always at least one, since an empty list would make the model give up.
pub(crate) fn alternative_hints(
    spelling: CallNotation<'_>,
    tools: &ToolSet,
    call: &CheckedCall,
) -> Vec<String> {
    const ASK: &str = "ask_followup_question";
    let is = |kind: FaultKind| call.faults.iter().any(|fault| fault.kind == kind);
    let known = tools.get(&call.name);
    let detour = TOOL_ALTERNATIVES
        .iter()
        .find(|detour| detour.tool == call.name && tools.is_tool_offered(detour.other));
    let mut ways: Vec<String> = Vec::new();
    if is(FaultKind::ExtraCall) {
        ways.push(
            "make this call alone, in a message of its own, when the result before it is there"
                .to_owned(),
        );
    // A call that exceeds the output limit once exceeds it again, so it has to become smaller.
    } else if is(FaultKind::CutCall) {
        ways.push(match detour.filter(|detour| detour.tool == "write_to_file") {
            Some(ToolAlternative { other, .. }) => {
                format!("write a short beginning with `write_to_file`, then add the rest in pieces, with `{other}`")
            }
            None => "do it in smaller pieces: a short call now, the rest in later ones".to_owned(),
        });
    } else if known.is_none() {
        ways.push(format!(
            "use a tool that there is: {}",
            quote_names(tools.iter().map(|tool| tool.name.as_str()))
        ));
    } else if let Some(detour) = detour {
        ways.push(detour.words.to_owned());
    }
    if tools.get(ASK).is_some() && call.name != ASK {
        ways.push(format!("ask the user what to do, with `{ASK}`"));
    }
    if ways.is_empty() {
        ways.push(
            "make the smallest call that can be right, with the required arguments alone"
                .to_owned(),
        );
    }
    let shown = detour
        .and_then(|detour| tools.get(detour.other))
        .or(known)
        .or_else(|| tools.get(ASK));
    let mut pieces = vec!["Do not write this call again in the same way. Instead:\n".to_owned()];
    pieces.extend(ways.iter().map(|way| format!("- {way}\n")));
    pieces.extend(shown.and_then(|tool| render_example_call(spelling, tool)));
    pieces
}
