//! Tools as the agent runs them: a spec for the model, an access for the policy, a future that does the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sabir_call::{CallId, Image, ToolError, ToolSet, ToolSpec};
use sabir_policy::Access;
use serde_json::{Map, Value};

use crate::context::{ContextFragment, ContextSource};
use crate::permit::{CallPermit, Preconditions};
use crate::record::SubtaskEnd;

/// Typed arguments of a call, as they passed the gates.
pub type CallArguments = Map<String, Value>;

/// What a tool says to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The words.
    pub content: String,
    /// Pictures that belong to them.
    pub images: Vec<Image>,
    /// Whether the tool failed.
    pub failed: bool,
    /// How the subtask ended that did the work, and what it took in all its life; none for work without one. A cancelled one makes
    /// the result an interrupted one.
    pub subtask: Option<SubtaskEnd>,
}

/// Takes a tool's output while it comes (a command's lines, say). Pieces are text of any length.
pub type ProgressSink<'a> = &'a mut (dyn FnMut(&str) + Send);

/// A tool at work.
pub type ToolWork<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// Something that a model can do to the world.
pub trait Tool: Send + Sync {
    /// Name, words and schema.
    fn spec(&self) -> ToolSpec;

    /// Whether models are shown it. A call of any other is understood and runs all the same.
    fn is_offered(&self) -> bool {
        true
    }

    /// Whether it only reads: such calls of one turn run at the same time, all others in order.
    fn is_read_only(&self) -> bool;

    /// Whether it looks whether something has happened, so that the same call again and again is no mistake.
    fn is_polling(&self) -> bool {
        false
    }

    /// What a call with these arguments would touch. May look at the file system, must not change it.
    fn call_access(&self, arguments: &CallArguments) -> Access;

    /// What such a call depends on beside its arguments, as it is now. An approval holds as long as this does.
    fn preconditions(&self, _: &CallArguments) -> Preconditions {
        Preconditions::default()
    }

    /// What such a call would write, as a user should see it before it does: a diff, say. `None`: what its arguments say. May look
    /// at the file system, must not change it.
    fn preview(&self, _: &CallArguments) -> Option<String> {
        None
    }

    /// Does it. Dropping the future stops the work and whatever processes it started.
    fn run<'a>(
        &'a self,
        permit: &'a CallPermit,
        arguments: &'a CallArguments,
        progress: ProgressSink<'a>,
    ) -> ToolWork<'a>;

    /// Asks a call that runs to come to its end by itself, with what it has. Only subtasks can; whatever else is to end is dropped.
    fn request_stop(&self, _: &CallId) {}
}

/// The tools of a task.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    /// With their names.
    tools: Vec<(String, Arc<dyn Tool>)>,
    offered: ToolSet,
    /// The place where they work.
    context_source: Option<Arc<dyn ContextSource>>,
}

impl ToolOutput {
    /// A success.
    pub fn done(content: impl Into<String>) -> Self {
        Self { content: content.into(), images: Vec::new(), failed: false, subtask: None }
    }

    /// A failure: what is wrong, and what to do next.
    pub fn failed(content: impl Into<String>) -> Self {
        Self { content: content.into(), images: Vec::new(), failed: true, subtask: None }
    }
}

impl ToolRegistry {
    /// Takes tools; the control calls ([`crate::control`]) are added to what the model is offered.
    ///
    /// # Errors
    /// Two tools of one name, or a spec that no model could be offered.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, ToolError> {
        Self::with_filter(tools, &|name| !crate::control::is_control(name))
    }

    /// As [`new`](Self::new), but of the tools, and of the control calls that not every mode has, only those are offered that fit, by
    /// their names.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_filter(tools: Vec<Arc<dyn Tool>>, fits: &dyn Fn(&str) -> bool) -> Result<Self, ToolError> {
        let tools = tools.into_iter().map(|tool| (tool.spec().name, tool)).collect();
        let registry = Self { tools, offered: ToolSet::default(), context_source: None };
        let set = registry.offered_set(fits)?;
        Ok(Self { offered: set, ..registry })
    }

    /// What a model is offered of these tools where only those are that fit.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn offered_set(&self, fits: &dyn Fn(&str) -> bool) -> Result<ToolSet, ToolError> {
        let (mut shown, mut known) = (Vec::new(), Vec::new());
        for (name, tool) in &self.tools {
            let list = if tool.is_offered() && fits(name) { &mut shown } else { &mut known };
            // A schema is made of types, which is not worth doing for every mode.
            list.push(self.offered.get(name).cloned().unwrap_or_else(|| tool.spec()));
        }
        shown.extend(crate::control::control_specs());
        for spec in crate::control::mode_dependent_specs() {
            let list = if fits(&spec.name) { &mut shown } else { &mut known };
            list.push(spec);
        }
        ToolSet::with_unoffered(shown, known)
    }

    /// The same tools, of which one is not offered.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn without_tool(&self, name: &str) -> Result<Self, ToolError> {
        let offered: Vec<_> = self.offered.iter().map(|spec| spec.name.clone()).filter(|own| own != name).collect();
        Ok(Self { offered: self.offered_set(&|name| offered.iter().any(|own| own == name))?, ..self.clone() })
    }

    /// The tools in a place that is looked at before every turn; `None`: it is not.
    #[must_use]
    pub fn with_context_source(mut self, place: Option<Arc<dyn ContextSource>>) -> Self {
        self.context_source = place;
        self
    }

    /// What is to be told of the place, where it may be something else than at the last look.
    pub(crate) fn poll_context(&self) -> Option<Vec<ContextFragment>> {
        self.context_source.as_ref()?.poll_fragments()
    }

    /// What the model is offered.
    pub fn tool_set(&self) -> &ToolSet {
        &self.offered
    }

    /// The names of the tools that only read.
    pub fn read_only_names(&self) -> Vec<String> {
        self.tools.iter().filter(|(_, tool)| tool.is_read_only()).map(|(name, _)| name.clone()).collect()
    }

    /// The names of the tools that look whether something has happened.
    pub fn polling_names(&self) -> Vec<String> {
        self.tools.iter().filter(|(_, tool)| tool.is_polling()).map(|(name, _)| name.clone()).collect()
    }

    /// The tool of that name; control calls are no tools.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|(own, _)| own == name).map(|(_, tool)| tool)
    }
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.offered.iter().map(|spec| &spec.name)).finish()
    }
}
