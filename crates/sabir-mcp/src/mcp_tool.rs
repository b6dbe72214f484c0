//! Adapts a server's tool to the agent's `Tool` trait.

use std::sync::Weak;

use sabir_agent::{
    CallArguments, CallPermit, Preconditions, PreparedCall, ProgressSink, Tool, ToolFuture,
    ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};

use crate::definition::{DefinitionState, ToolDefinition};
use crate::schema::normalize_schema;
use crate::servers::ServerPool;

/// A tool of a server.
pub(crate) struct McpTool {
    /// The name that models see.
    pub(crate) shown_name: String,
    /// The server's name.
    pub(crate) server: String,
    /// The definition, as the server gives it.
    pub(crate) definition: ToolDefinition,
    /// False: the model finds it with `find_tool`.
    pub(crate) is_offered: bool,
    /// The servers, which outlive their tools unless the task is over.
    pub(crate) pool: Weak<ServerPool>,
}

impl McpTool {
    /// Returns the definition as models see it.
    pub(crate) fn shown_spec(&self) -> ToolSpec {
        ToolSpec::new(
            &self.shown_name,
            &self.definition.description,
            normalize_schema(&self.definition.schema),
        )
    }

    /// Prepares a call of the tool.
    pub(crate) fn prepare_call(&self, arguments: &CallArguments) -> McpCall {
        let state = match self.pool.upgrade() {
            Some(pool) => self.definition.compare(&self.server, pool.definitions()),
            None => DefinitionState::New,
        };
        McpCall {
            server: self.server.clone(),
            definition: self.definition.clone(),
            arguments: arguments.clone(),
            state,
            pool: self.pool.clone(),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.shown_spec()
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(ToolGroup::Server)
    }

    fn is_offered(&self) -> bool {
        self.is_offered
    }

    fn is_read_only(&self) -> bool {
        // Only the server knows, and its word is not a proof.
        false
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        Box::new(self.prepare_call(arguments))
    }
}

/// A call of a server's tool.
pub(crate) struct McpCall {
    server: String,
    definition: ToolDefinition,
    arguments: CallArguments,
    state: DefinitionState,
    pool: Weak<ServerPool>,
}

impl PreparedCall for McpCall {
    fn access(&self) -> Access {
        let caution = matches!(self.state, DefinitionState::Changed(_)).then(|| {
            format!(
                "the server {} has changed its tool {} since you approved it",
                self.server, self.definition.name
            )
        });
        Access::Server {
            server: self.server.clone(),
            tool: self.definition.name.clone(),
            caution,
        }
    }

    fn preconditions(&self) -> Preconditions {
        // An approval covers the definition that was shown; if it changes meanwhile, a new one is
        // needed.
        let mut things = Preconditions::default();
        let now = self.pool.upgrade().and_then(|pool| {
            Some(
                pool.find_definition(&self.server, &self.definition.name)?
                    .to_approved()
                    .sha256,
            )
        });
        things.insert(
            format!("the definition of {}", self.definition.name),
            now.unwrap_or_default(),
        );
        things
    }

    fn preview(&self) -> Option<String> {
        let arguments = serde_json::to_string_pretty(&self.arguments).unwrap_or_default();
        let hint = match self.definition.claims_read_only {
            true => "\n\n(the server says that it only reads)",
            false => "",
        };
        Some(match &self.state {
            DefinitionState::Approved => arguments,
            DefinitionState::New => format!(
                "{arguments}\n\nThe server describes the tool as:\n\n{}{hint}",
                self.definition.description
            ),
            DefinitionState::Changed(old) => {
                let diff = sabir_workspace::unified_diff(
                    old,
                    &self.definition.to_text(),
                    &self.definition.name,
                );
                format!("{arguments}\n\nThe server has changed the tool:\n\n{diff}{hint}")
            }
        })
    }

    fn run<'a>(self: Box<Self>, _: &'a CallPermit, progress: ProgressSink<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let Some(pool) = self.pool.upgrade() else {
                return ToolOutput::failed("the servers of this task are stopped");
            };
            // The call was checked, and the definition shown if the user was asked, so it is now
            // the approved one.
            if self.state != DefinitionState::Approved {
                pool.definitions().approve_definition(
                    &self.server,
                    &self.definition.name,
                    self.definition.to_approved(),
                );
            }
            let called = async {
                let connection = pool.connection(&self.server)?;
                connection
                    .run_tool(&self.definition.name, &self.arguments, progress)
                    .await
            };
            match called.await {
                Ok(output) => output,
                Err(error) => ToolOutput::failed(format!(
                    "{} of the server {} failed: {error}",
                    self.definition.name, self.server
                )),
            }
        })
    }
}
