//! Tools: a spec for the model, an access for the policy, and a future that does the work.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sabir_call::{Image, ToolError, ToolSet, ToolSpec};
use sabir_policy::{Access, ToolGroup};
use serde_json::{Map, Value};

use crate::context::{ContextFragment, ContextSource};
use crate::driver::CancelToken;
use crate::permit::{CallPermit, Preconditions};
use crate::record::{AddedTool, SubtaskEnd, ToolsChange};

/// The typed arguments of a call that passed the checks.
pub type CallArguments = Map<String, Value>;

/// The output of a tool, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text.
    pub content: String,
    /// Images that belong to the text.
    pub images: Vec<Image>,
    /// True if the tool failed.
    pub failed: bool,
    /// True if the tool failed only because it found nothing, as `grep` reports it. This counts as
    /// success for a call, but not for a check.
    pub found_nothing: bool,
    /// The end of the subtask that did the work, with its total usage; `None` for other work. A
    /// cancelled subtask makes the result of the call an interrupted one.
    pub subtask: Option<SubtaskEnd>,
}

/// Receives a tool's output while it is produced, for example a command's lines, in pieces of any
/// length.
pub type ProgressSink<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Decides whether the tools of a group are offered; `None` is for tools without a group.
pub type GroupFilter<'a> = &'a dyn Fn(Option<ToolGroup>) -> bool;

/// The future that brings a call up to date before it is checked or run.
pub type RefreshFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The running work of a tool.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// Returns the tool's name, description and schema.
    fn spec(&self) -> ToolSpec;

    /// Returns the group by which modes offer or withhold the tool; `None` if every mode offers it, and only the accesses of its calls are
    /// checked.
    fn group(&self) -> Option<ToolGroup> {
        None
    }

    /// Reports whether models are shown the tool. A call of a tool that is not offered is still
    /// understood and runs.
    fn is_offered(&self) -> bool {
        true
    }

    /// Reports whether the tool only reads: such calls of one turn run at the same time, all others in order.
    fn is_read_only(&self) -> bool;

    /// Reports whether the tool polls for something, so that repeating the same call is not a mistake.
    fn is_polling(&self) -> bool {
        false
    }

    /// Prepares a call: deserializes its arguments, once. May read the file system, must not change it.
    ///
    /// Arguments that do not fit give an [`InvalidCall`], which is never allowed to run.
    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall>;
}

/// A call whose arguments have been deserialized, before it runs.
///
/// The driver keeps it from the decision about the call to its run, so state about the call belongs here and not in the tool. A call that
/// is checked again, or continued after a resume, is prepared again.
pub trait PreparedCall: Send + Sync {
    /// Notes the arguments whose values the model wrote on lines of their own, between tags. Their last line end counts as part of the
    /// tags, so the content of a text file lacks it. Called once, before anything else.
    fn note_values_on_own_lines(&mut self, _names: &[String]) {}

    /// Returns work that must end before the call is checked, such as asking an editor for its unsaved text; `None` if there is none. It is
    /// awaited before the check and again before the run. Dropping it does not change the call, and the other methods work without it.
    fn refresh(&self) -> Option<RefreshFuture> {
        None
    }

    /// Returns the access that the call needs. May look at the file system, must not change it.
    fn access(&self) -> Access;

    /// Returns the present state of the call's preconditions. An approval is valid only while they are unchanged, so this is called before
    /// the check and again right before the run.
    fn preconditions(&self) -> Preconditions {
        Preconditions::default()
    }

    /// Returns a preview of the call's writes for the user, such as a diff; `None` if its arguments show them. May read the file system,
    /// must not change it.
    fn preview(&self) -> Option<String> {
        None
    }

    /// Tries the call without changing anything, so that the user is not asked to approve a call that cannot work. May read the file
    /// system.
    ///
    /// # Errors
    /// If the run would fail, with the text that the model would get.
    fn dry_run(&self) -> Result<(), CallFailure> {
        Ok(())
    }

    /// Returns the token that asks the running call to end by itself, with its results so far. Only subtasks have one; other calls are
    /// dropped when they must end.
    fn stop_token(&self) -> Option<CancelToken> {
        None
    }

    /// Runs the call. Dropping the future stops the work and every process it started.
    fn run<'a>(
        self: Box<Self>,
        permit: &'a CallPermit,
        progress: ProgressSink<'a>,
    ) -> ToolFuture<'a>;
}

/// The reason why a call would fail, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure(pub String);

/// A call whose arguments do not fit its tool: the policy rejects it, and running it fails with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidCall {
    /// The mistake in the arguments, for the model.
    pub reason: String,
}

impl InvalidCall {
    /// Creates a call that fails for this reason.
    pub fn boxed(reason: impl Into<String>) -> Box<dyn PreparedCall> {
        Box::new(Self {
            reason: reason.into(),
        })
    }
}

impl PreparedCall for InvalidCall {
    fn access(&self) -> Access {
        Access::Invalid {
            reason: self.reason.clone(),
        }
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, _: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(ToolOutput::failed(self.reason)))
    }
}

/// The tools of a task.
///
/// Tools can be [added](Self::add), [removed](Self::remove) and [replaced](Self::replace) while the task is under way; clones share
/// them. The driver applies such changes right before the model is asked next, and the task keeps a record of them.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: Arc<RwLock<LiveTools>>,
    /// The tools that the model is offered at first.
    offered: ToolSet,
    /// Describes the environment of the tools.
    context_source: Option<Arc<dyn ContextSource>>,
}

/// The present tools.
#[derive(Default)]
struct LiveTools {
    /// The tools in the order in which they were added.
    tools: Vec<LiveTool>,
    /// The changes that the driver has not applied yet.
    pending: ToolsChange,
}

/// A tool of a registry.
struct LiveTool {
    /// The spec of the tool, asked once: schemas are generated from types.
    spec: Arc<ToolSpec>,
    tool: Arc<dyn Tool>,
}

impl LiveTools {
    fn find_tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools
            .iter()
            .find(|live| live.spec.name == name)
            .map(|live| &live.tool)
    }
}

impl ToolOutput {
    /// Creates the output of a success.
    pub fn done(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            images: Vec::new(),
            failed: false,
            found_nothing: false,
            subtask: None,
        }
    }

    /// Creates the output of a failure: what is wrong, and what to do next.
    pub fn failed(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            images: Vec::new(),
            failed: true,
            found_nothing: false,
            subtask: None,
        }
    }
}

impl ToolRegistry {
    /// Creates a registry of these tools. The control calls ([`crate::control`]) are added to what
    /// the model is offered.
    ///
    /// # Errors
    /// If two tools have one name, or a spec could not be offered to any model.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, ToolError> {
        let registry = Self::from_tools(tools);
        let set = registry.build_set(&|name, _| !crate::control::is_control(name))?;
        Ok(Self {
            offered: set,
            ..registry
        })
    }

    /// Creates a registry like [`new`](Self::new) that offers only tools, and mode-dependent
    /// control calls, whose group passes the filter.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_filter(
        tools: Vec<Arc<dyn Tool>>,
        fits: GroupFilter<'_>,
    ) -> Result<Self, ToolError> {
        let registry = Self::from_tools(tools);
        let set = registry.offered_set(fits)?;
        Ok(Self {
            offered: set,
            ..registry
        })
    }

    fn from_tools(tools: Vec<Arc<dyn Tool>>) -> Self {
        let tools = tools
            .into_iter()
            .map(|tool| LiveTool {
                spec: Arc::new(tool.spec()),
                tool,
            })
            .collect();
        let tools = Arc::new(RwLock::new(LiveTools {
            tools,
            pending: ToolsChange::default(),
        }));
        Self {
            tools,
            offered: ToolSet::default(),
            context_source: None,
        }
    }

    /// Returns the tools that a model is offered if only groups that pass the filter are.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn offered_set(&self, fits: GroupFilter<'_>) -> Result<ToolSet, ToolError> {
        self.build_set(&|_, group| fits(group))
    }

    fn build_set(
        &self,
        fits: &dyn Fn(&str, Option<ToolGroup>) -> bool,
    ) -> Result<ToolSet, ToolError> {
        let mut shown = Vec::new();
        let mut known = Vec::new();
        for LiveTool { spec, tool } in &self.read_tools().tools {
            let list = if tool.is_offered() && fits(&spec.name, tool.group()) {
                &mut shown
            } else {
                &mut known
            };
            list.push(Arc::clone(spec));
        }
        // The sets of all modes share the specs of the first one.
        let share = |spec: ToolSpec| match self.offered.get_shared(&spec.name) {
            Some(shared) => Arc::clone(shared),
            None => Arc::new(spec),
        };
        shown.extend(crate::control::control_specs().map(share));
        for (spec, group) in crate::control::mode_dependent_calls() {
            let list = if fits(&spec.name, Some(group)) {
                &mut shown
            } else {
                &mut known
            };
            list.push(share(spec));
        }
        ToolSet::with_unoffered(shown, known).map(ToolSet::with_foreign_tools)
    }

    /// Returns the same tools without offering the one of that name.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn without_tool(&self, name: &str) -> Result<Self, ToolError> {
        let offered: Vec<_> = self
            .offered
            .iter()
            .map(|spec| spec.name.clone())
            .filter(|own| own != name)
            .collect();
        let set = self.build_set(&|own, _| offered.iter().any(|name| name == own))?;
        Ok(Self {
            offered: set,
            ..self.clone()
        })
    }

    /// Sets the source of context fragments, which is polled before every turn; `None`: there is
    /// none.
    #[must_use]
    pub fn with_context_source(mut self, place: Option<Arc<dyn ContextSource>>) -> Self {
        self.context_source = place;
        self
    }

    /// Polls the context source; `None` if there is none, or nothing can have changed since the
    /// last time.
    pub(crate) fn poll_context(&self) -> Option<Vec<ContextFragment>> {
        self.context_source.as_ref()?.poll_fragments()
    }

    /// Returns the tools that the model is offered.
    pub fn tool_set(&self) -> &ToolSet {
        &self.offered
    }

    /// Returns the names of the tools that only read.
    pub fn read_only_tool_names(&self) -> Vec<String> {
        self.names_where(|tool| tool.is_read_only())
    }

    /// Returns the names of the tools that poll for something.
    pub fn polling_tool_names(&self) -> Vec<String> {
        self.names_where(|tool| tool.is_polling())
    }

    fn names_where(&self, fits: impl Fn(&dyn Tool) -> bool) -> Vec<String> {
        let live = self.read_tools();
        live.tools
            .iter()
            .filter(|live| fits(live.tool.as_ref()))
            .map(|live| live.spec.name.clone())
            .collect()
    }

    /// Returns the tool of that name. Control calls are not tools.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.read_tools().find_tool(name).cloned()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// If a tool or a control call has its name, or its spec could not be offered to any model.
    pub fn add(&self, tool: Arc<dyn Tool>) -> Result<(), ToolError> {
        let added = AddedTool::from_tool(tool.as_ref())?;
        let spec = Arc::new(added.spec.clone());
        let mut live = self.write_tools();
        if live.find_tool(&spec.name).is_some() {
            return Err(ToolError::DuplicateName(spec.name.clone()));
        }
        live.tools.push(LiveTool { spec, tool });
        live.pending.note_added(added);
        Ok(())
    }

    /// Removes the tool of that name and returns true if there was one. Its running calls continue
    /// to their end.
    pub fn remove(&self, name: &str) -> bool {
        let mut live = self.write_tools();
        let known = live.tools.len();
        live.tools.retain(|own| own.spec.name != name);
        let is_removed = live.tools.len() < known;
        if is_removed {
            live.pending.note_removed(name);
        }
        is_removed
    }

    /// Adds a tool, and replaces an existing one with the same name.
    ///
    /// # Errors
    /// If a control call has its name, or its spec could not be offered to any model.
    pub fn replace(&self, tool: Arc<dyn Tool>) -> Result<(), ToolError> {
        let added = AddedTool::from_tool(tool.as_ref())?;
        let spec = Arc::new(added.spec.clone());
        let mut live = self.write_tools();
        if live.find_tool(&spec.name).is_some() {
            live.tools.retain(|own| own.spec.name != spec.name);
            live.pending.note_removed(&spec.name);
        }
        live.tools.push(LiveTool { spec, tool });
        // Noted as removed first, so that the record of a replacement has the tool in both lists.
        live.pending.note_added(added);
        Ok(())
    }

    /// Takes the changes that have not been applied. `recorded` are the changes on record, by which a resumed task detects tools that are
    /// missing now or have returned.
    pub(crate) fn take_changes(&self, recorded: &ToolsChange) -> Option<ToolsChange> {
        let mut live = self.write_tools();
        let mut change = std::mem::take(&mut live.pending);
        for AddedTool { spec, .. } in &recorded.added {
            // A server that the last run had added is not connected in this one.
            if live.find_tool(&spec.name).is_none() {
                change.note_removed(&spec.name);
            }
        }
        for name in recorded
            .removed
            .iter()
            .filter(|name| !recorded.added.iter().any(|tool| tool.spec.name == **name))
        {
            // A tool that the last run had lost is back.
            if let Some(Ok(tool)) = live
                .find_tool(name)
                .map(|tool| AddedTool::from_tool(tool.as_ref()))
            {
                change.note_added(tool);
            }
        }
        (!change.is_empty()).then_some(change)
    }

    fn read_tools(&self) -> RwLockReadGuard<'_, LiveTools> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_tools(&self) -> RwLockWriteGuard<'_, LiveTools> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddedTool {
    /// Describes a tool that is added to a task at work.
    fn from_tool(tool: &dyn Tool) -> Result<Self, ToolError> {
        let spec = tool.spec();
        if crate::control::is_control(&spec.name) {
            return Err(ToolError::DuplicateName(spec.name));
        }
        // Checks the name and the schema.
        ToolSet::new(vec![spec.clone()])?;
        Ok(Self {
            spec,
            group: tool.group(),
            reads_only: tool.is_read_only(),
            polls: tool.is_polling(),
            hidden: !tool.is_offered(),
        })
    }
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.offered.iter().map(|spec| &spec.name))
            .finish()
    }
}
