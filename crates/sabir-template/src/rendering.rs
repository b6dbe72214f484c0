//! Renders a template for all conversations that are needed to recognize its dialect.

use std::thread;

use serde::{Deserialize, Serialize};

use crate::conversation::{CallShape, LastMessage, build_context};
use crate::engine::{CompiledTemplate, TemplateError, remove_generation_tags, replace_appends};

/// The argument with which a program runs a copy of itself that calls [`render_conversations`].
pub const RENDER_ARGUMENT: &str = "__render-template";

/// The stack of the thread that renders. Values of a template may be nested as deep as its fuel allows, and are dropped recursively.
const STACK_BYTES: usize = 256 << 20;
/// The longest text that a template may write, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The texts that a template wrote for the conversations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenderedTemplate {
    /// The reason why nothing was rendered.
    pub(crate) problem: Option<TemplateError>,
    /// A question, with a tool. Empty if the template refuses it.
    pub(crate) question: String,
    /// The question, without tools.
    pub(crate) plain_question: String,
    /// The question, with the tool, and an answer in words.
    pub(crate) answer: String,
    /// The question, with the tool, and a call, in each shape.
    calls: Vec<Result<String, TemplateError>>,
}

impl RenderedTemplate {
    /// Creates the result for a template that could not be rendered.
    pub fn failed(problem: TemplateError) -> Self {
        Self {
            problem: Some(problem),
            question: String::new(),
            plain_question: String::new(),
            answer: String::new(),
            calls: Vec::new(),
        }
    }

    /// Returns the text that was rendered for a call.
    pub(crate) fn call(&self, shape: CallShape) -> Option<&Result<String, TemplateError>> {
        let index = all_shapes().position(|other| other == shape)?;
        self.calls.get(index)
    }

    /// Returns the first reason why no call was written, if none was.
    pub(crate) fn refusal(&self) -> Option<&TemplateError> {
        let is_refused = self.calls.iter().all(Result::is_err);
        let first = self.calls.first()?.as_ref().err();
        first.filter(|_| is_refused)
    }
}

/// Returns the shapes that are rendered: first those without line feeds in values.
fn all_shapes() -> impl Iterator<Item = CallShape> {
    CallShape::all().chain(CallShape::all().map(CallShape::with_line_feeds))
}

/// Renders a template for all conversations.
///
/// May take arbitrarily much time and memory: see the documentation of the crate.
pub fn render_conversations(template: &str) -> RenderedTemplate {
    let result = thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || render_all(template))
            .map_err(|_| TemplateError::Engine)?;
        worker.join().map_err(|_| TemplateError::Engine)?
    });
    result.unwrap_or_else(RenderedTemplate::failed)
}

fn render_all(template: &str) -> Result<RenderedTemplate, TemplateError> {
    let source = replace_appends(&remove_generation_tags(template));
    let compiled = CompiledTemplate::compile(&source)?;
    let render = |last, offers_tool| match compiled.render(build_context(last, offers_tool)) {
        Ok(text) if text.len() > MAX_TEXT_BYTES => Err(TemplateError::TooExpensive),
        result => result,
    };
    // A template that refuses one conversation may render another. One that is too expensive is not
    // tried again.
    let or_empty = |result| match result {
        Err(TemplateError::TooExpensive) => Err(TemplateError::TooExpensive),
        result => Ok(result.unwrap_or_default()),
    };
    let question = or_empty(render(LastMessage::Question, true))?;
    let plain_question = or_empty(render(LastMessage::Question, false))?;
    let answer = or_empty(render(LastMessage::Answer, true))?;
    let mut calls = Vec::new();
    for shape in all_shapes() {
        let call = render(LastMessage::Call(shape), true);
        if call == Err(TemplateError::TooExpensive) {
            return Err(TemplateError::TooExpensive);
        }
        calls.push(call);
    }
    Ok(RenderedTemplate {
        problem: None,
        question,
        plain_question,
        answer,
        calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_templates_are_stopped() {
        let doubling = |end: &str| {
            format!(
                "{{% set ns = namespace(x=['aaaaaaaa']) %}}{{% for i in range(64) %}}{{% set ns.x = [ns.x, ns.x] %}}{{% endfor %}}{end}"
            )
        };
        for template in [
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".to_owned(),
            "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}".to_owned(),
            "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% for j in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}".to_owned(),
            "{% for i in range(9) %}{{ 'a' * 100000000 }}{% endfor %}".to_owned(),
            doubling("{{ ns.x | tojson }}"),
        ] {
            let rendered = render_conversations(&template);
            assert_eq!(rendered.problem, Some(TemplateError::TooExpensive), "{template}");
        }
    }

    #[test]
    fn nesting_and_recursion_are_errors() {
        let deep = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
        let problem = render_conversations(&deep).problem;
        assert!(
            matches!(problem, Some(TemplateError::Syntax { .. })),
            "{problem:?}"
        );
        let recursive = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
        let rendered = render_conversations(recursive);
        assert!(
            matches!(rendered.refusal(), Some(TemplateError::Rendering { .. })),
            "{rendered:?}"
        );
    }

    #[test]
    fn a_rendering_survives_its_json() {
        let rendered = render_conversations(
            "{{ messages[0].content }}{{ messages[1].x.y }}{{ raise_exception('é') if tools }}",
        );
        let json = serde_json::to_string(&rendered).unwrap();
        assert_eq!(
            serde_json::from_str::<RenderedTemplate>(&json).unwrap(),
            rendered
        );
        assert!(rendered.refusal().is_some());
    }
}
