//! Which names mean something to the reader: the tools on offer, their arguments, and the tags of the dialects.

use crate::dialect::Selection;
use crate::tool::{ToolSet, nearest};

use super::tag::Interest;

/// Tags whose content is a thought.
pub(crate) const THOUGHTS: [&str; 2] = ["thinking", "think"];
/// The tags of the invoke dialect, without prefixes.
pub(crate) const WRAPPER: &str = "function_calls";
pub(crate) const INVOKE: &str = "invoke";
pub(crate) const PARAMETER: &str = "parameter";

/// The names.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) selection: Selection,
    tools: Vec<Tool>,
}

/// What the parser needs to know of a tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
}

impl Vocabulary {
    pub(crate) fn new(selection: Selection, tools: &ToolSet) -> Self {
        let tool = |spec: &crate::ToolSpec| Tool {
            name: spec.name.clone(),
            arguments: spec.arguments().map(|argument| argument.name.to_owned()).collect(),
        };
        Self { selection, tools: tools.iter().map(tool).collect() }
    }

    /// No tool, no call.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The position of a tool: by its exact name, or else the only one that differs in case alone.
    pub(crate) fn resolve(&self, name: &str) -> Option<usize> {
        if let Some(exact) = self.exact(name) {
            return Some(exact);
        }
        let mut alike = self.tools.iter().enumerate().filter(|(_, tool)| tool.name.eq_ignore_ascii_case(name));
        let found = alike.next().map(|(at, _)| at);
        if alike.next().is_some() { None } else { found }
    }

    /// The position of the tool of exactly that name.
    pub(crate) fn exact(&self, name: &str) -> Option<usize> {
        self.tools.iter().position(|tool| tool.name == name)
    }

    pub(crate) fn tool(&self, at: usize) -> Option<&Tool> {
        self.tools.get(at)
    }

    /// Whether the tool has such an argument; a tool that is not known has them all.
    pub(crate) fn declares(&self, tool: Option<usize>, argument: &str) -> bool {
        match tool.and_then(|at| self.tools.get(at)) {
            Some(tool) => tool.arguments.iter().any(|name| name == argument),
            None => true,
        }
    }

    /// Whether an unknown tag reads like the name of a tool rather than like some markup.
    pub(crate) fn resembles(&self, name: &str) -> bool {
        name.contains('_') || self.near(name)
    }

    /// Whether a tool has nearly this name.
    pub(crate) fn near(&self, name: &str) -> bool {
        nearest(name, self.tools.iter().map(|tool| tool.name.as_str())).is_some()
    }

    /// Whether any tool has such an argument.
    pub(crate) fn any_declares(&self, argument: &str) -> bool {
        self.tools.iter().any(|tool| tool.arguments.iter().any(|name| name == argument))
    }

    /// How much a tag matters inside a thought: only to notice that a call was mentioned.
    pub(crate) fn interest_in_thought(&self, name: &str) -> Interest {
        if self.exact(name).is_some() || is_invoke_tag(name) { Interest::Any } else { Interest::None }
    }
}

/// A name without its prefix (`antml:`).
pub(crate) fn base(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

/// Whether the tag is the wrapper around calls; MiniMax has a name of its own for it.
pub(crate) fn is_wrapper(name: &str) -> bool {
    base(name) == WRAPPER || name == "minimax:tool_call"
}

/// Whether the tag opens something in the invoke dialect.
pub(crate) fn is_invoke_tag(name: &str) -> bool {
    base(name) == INVOKE || is_wrapper(name)
}
