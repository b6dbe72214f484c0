//! Offers the built-in tools to other programs, under the user's rules.

use std::path::PathBuf;
use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, Tool};
use sabir_call::{CallId, ToolSpec};
use sabir_mcp::{ServedFuture, ServedResult, ServedTool};
use sabir_model::Secret;
use sabir_policy::{PolicyRules, Verdict};
use sabir_tools::EditTool;
use sabir_workspace::{Sandbox, SandboxLevel};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::SessionError;
use crate::gateway_setup::{GatewayToken, format_token, given_token, random_bytes};
use crate::setup::{TaskSetup, ToolResources, temporary_jobs};
use crate::spec::{RuleSpec, SessionSpec};

/// The environment variable with the token that clients of the tools over HTTP must give.
const TOKEN_VARIABLE: &str = "SABIR_MCP_TOKEN";

/// A built-in tool, as another program calls it.
struct BuiltInServedTool {
    tool: Arc<dyn Tool>,
    rules: PolicyRules,
}

/// Returns the built-in tools for a folder. Calls that the rules do not allow are refused: Sabir cannot ask the other program's user.
///
/// # Errors
/// When the folder, a rule or the sandbox cannot be used.
pub fn served_tools(
    config: &Config,
    folder: Option<PathBuf>,
    rules: RuleSpec,
) -> Result<Vec<Arc<dyn ServedTool>>, SessionError> {
    let spec = SessionSpec {
        workspace: folder,
        rules,
        no_checkpoints: true,
        ..SessionSpec::default()
    };
    let resources = ToolResources {
        edit_tool: EditTool::default(),
        jobs: temporary_jobs(&config.environment),
        checkpointer: None,
        sandbox: Sandbox::new(SandboxLevel::Off),
        subtask_spawner: None,
        seen_files: Vec::new(),
        sent_instructions: Vec::new(),
        skill_tool: None,
        editor: None,
    };
    // The setup replaces the sandbox by the configured one.
    let setup = TaskSetup::without_notices(&spec, config, None, resources)?;
    let offered = setup.registry.tool_set();
    Ok(offered
        .iter()
        // Control calls end or steer a task, and here is none.
        .filter_map(|spec| setup.registry.get(&spec.name))
        .map(|tool| {
            let rules = setup.rules.clone();
            Arc::new(BuiltInServedTool { tool, rules }) as Arc<dyn ServedTool>
        })
        .collect())
}

/// Returns the token for clients over HTTP: the one in `SABIR_MCP_TOKEN`, or a random one.
///
/// # Errors
/// When the variable is empty, or no random bytes are available.
pub fn served_token(config: &Config) -> Result<GatewayToken, SessionError> {
    match config.environment.variable(TOKEN_VARIABLE) {
        Some(token) => given_token(Secret::new(token), Some(TOKEN_VARIABLE)),
        None => Ok(GatewayToken::Generated(
            format_token(&random_bytes::<24>()?),
        )),
    }
}

impl ServedTool for BuiltInServedTool {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn is_read_only(&self) -> bool {
        self.tool.is_read_only()
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        progress: ProgressSink<'a>,
    ) -> ServedFuture<'a> {
        Box::pin(async move {
            let call = self.tool.prepare(&arguments);
            let decision = self.rules.decide(&call.access());
            if decision.verdict != Verdict::Allow {
                return ServedResult::failed(format!(
                    "not allowed: {}; the user of `sabir mcp serve` decides with --approve, --allow and the rules in config.toml",
                    decision.reason
                ));
            }
            let mut permit = CallPermit::unchecked(CallId::new("served"));
            permit.read_only = decision.only_reads;
            let output = call.run(&permit, progress).await;
            ServedResult {
                text: output.content,
                images: output
                    .images
                    .into_iter()
                    .map(|image| (image.media_type, image.data))
                    .collect(),
                failed: output.failed,
            }
        })
    }
}
