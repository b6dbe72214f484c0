//! Rules about the prompt: missing descriptions and examples, and its size.

use sabir_call::{ParallelCalls, ToolChoice, ToolInstructions};

use super::{FindingDetails, LintFindings, LintInput, argument_path};

/// The largest prompt without a warning, in tokens (bytes / 4).
const MAX_PROMPT_TOKENS: usize = 3_000;

/// Reports missing descriptions and examples. The model chooses tools and fills arguments by these
/// texts alone.
pub(super) fn missing_description(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        if spec.description.trim().is_empty() {
            let message = format!("the tool `{}` has no description", spec.name);
            found.push(
                at,
                &spec.name,
                "",
                FindingDetails::warning(message, "say what it does, and when to use it"),
            );
        }
        for argument in spec
            .declared_arguments()
            .filter(|argument| argument.description().trim().is_empty())
        {
            let message = format!(
                "the argument `{}` of `{}` has no description",
                argument.name, spec.name
            );
            found.push(
                at,
                &spec.name,
                &argument_path(argument.name),
                FindingDetails::warning(message, "say what belongs there"),
            );
        }
        if spec.examples.is_empty() && spec.declared_arguments().next().is_some() {
            let message = format!(
                "the tool `{}` has no example; one is made up for prompts and feedback",
                spec.name
            );
            let hint = "add \"examples\": [{…}], arguments of a call as it should be";
            found.push(at, &spec.name, "", FindingDetails::warning(message, hint));
        }
    }
}

/// Reports a prompt that is too long, once, at the tool with the largest definition.
pub(super) fn prompt_size(tools: &LintInput<'_>, found: &mut LintFindings) {
    let mut most = 0;
    let mut dialects = Vec::new();
    for dialect in &tools.scope.dialects {
        let choice = ToolChoice::default();
        let instructions = ToolInstructions {
            tools: &tools.set,
            servers: &[],
            parallel_calls: ParallelCalls::Many,
            tool_choice: &choice,
        };
        // Four bytes a token is a rough average for English; no tokenizer is available, and models
        // differ.
        let tokens = instructions.render_prompt(dialect).len().div_ceil(4);
        if tokens > MAX_PROMPT_TOKENS {
            most = most.max(tokens);
            dialects.push(dialect.name);
        }
    }
    if !dialects.is_empty() {
        let message = format!(
            "the prompt has up to {most} tokens (bytes / 4); {MAX_PROMPT_TOKENS} are enough for most tasks"
        );
        let about = FindingDetails::warning(message, "offer fewer tools, or say less of each")
            .with_dialects(dialects);
        let largest = tools
            .tool_specs()
            .max_by_key(|(_, spec)| spec.description.len() + spec.parameters.to_string().len());
        if let Some((at, spec)) = largest {
            found.push(at, &spec.name, "", about);
        }
    }
}
