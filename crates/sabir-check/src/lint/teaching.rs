//! Teaching: what a model is told of the tools, and what it costs.

use sabir_call::{Lesson, Parallel, ToolChoice};

use super::{About, Findings, Tools, argument_path};

/// The most tokens (bytes / 4) that a prompt should cost.
const TOKENS: usize = 3_000;

pub(super) fn missing(tools: &Tools<'_>, found: &mut Findings) {
    for (at, spec) in tools.specs() {
        if spec.description.trim().is_empty() {
            let message = format!("the tool `{}` has no description", spec.name);
            found.push(at, &spec.name, "", About::warning(message, "say what it does, and when to use it"));
        }
        for argument in spec.arguments().filter(|argument| argument.description().trim().is_empty()) {
            let message = format!("the argument `{}` of `{}` has no description", argument.name, spec.name);
            found.push(
                at,
                &spec.name,
                &argument_path(argument.name),
                About::warning(message, "say what belongs there"),
            );
        }
        if spec.examples.is_empty() && spec.arguments().next().is_some() {
            let message = format!("the tool `{}` has no example; one is made up for prompts and feedback", spec.name);
            let hint = "add \"examples\": [{…}], arguments of a call as it should be";
            found.push(at, &spec.name, "", About::warning(message, hint));
        }
    }
}

pub(super) fn size(tools: &Tools<'_>, found: &mut Findings) {
    let mut most = 0;
    let mut dialects = Vec::new();
    for dialect in &tools.scope.dialects {
        let choice = ToolChoice::default();
        let lesson = Lesson { tools: &tools.set, servers: &[], parallel: Parallel::Many, choice: &choice };
        let tokens = lesson.teach(dialect).len().div_ceil(4);
        if tokens > TOKENS {
            most = most.max(tokens);
            dialects.push(dialect.name);
        }
    }
    if !dialects.is_empty() {
        let message = format!("the prompt has up to {most} tokens (bytes / 4); {TOKENS} are enough for most tasks");
        let about = About::warning(message, "offer fewer tools, or say less of each").within(dialects);
        let largest = tools.specs().max_by_key(|(_, spec)| spec.description.len() + spec.parameters.to_string().len());
        if let Some((at, spec)) = largest {
            found.push(at, &spec.name, "", about);
        }
    }
}
