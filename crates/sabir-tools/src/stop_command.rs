//! `stop_command`: ends a job.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{
    CommandExit, JobManager, JobState, OutputError, OutputInfo, OutputLine, PageOptions,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::read_command_output::{describe_state, number_lines};
use crate::text;
use crate::typed_tool::TypedTool;

const LAST_LINES: u64 = 20;
const MAX_BYTES: usize = 4 << 10;
const MAX_LINE_BYTES: usize = 500;

/// The tool.
pub(crate) struct StopCommand(pub(crate) Arc<JobManager>);

/// Stop a job.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Its number.
    job: u32,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct StopResult {
    /// Whether it had ended before.
    ended_already: bool,
    info: OutputInfo,
    /// The last lines; nothing where they cannot be shown.
    lines: Vec<OutputLine>,
}

impl TypedTool for StopCommand {
    type Input = Input;
    type Output = StopResult;
    const NAME: &'static str = "stop_command";
    const MANUAL: &'static str = include_str!("specs/stop_command.md");
    const GROUP: ToolGroup = ToolGroup::Command;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"job": 1})
    }

    fn access(&self, _: &Input) -> Access {
        Access::Nothing
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<StopResult, String> {
        let explain = |error: OutputError| match error {
            OutputError::Missing { number, .. } => {
                format!(
                    "There is no job {number}. read_command_output without arguments lists what there is."
                )
            }
            error => format!("{}.", text::capitalize_first(&error.to_string())),
        };
        let before = self.0.job_info(input.job).map_err(explain)?;
        self.0.stop_job(input.job).await.map_err(explain)?;
        let info = self.0.job_info(input.job).map_err(explain)?;
        let jobs = Arc::clone(&self.0);
        text::run_blocking(move || {
            let first = info.lines.saturating_sub(LAST_LINES) + 1;
            let options = PageOptions {
                first,
                last: u64::MAX,
                max_bytes: MAX_BYTES,
                max_line_bytes: MAX_LINE_BYTES,
            };
            // What it printed is only an addition: that it ended is told in any case.
            let lines = jobs.read_page(info.number, &options).unwrap_or_default();
            Ok(StopResult {
                ended_already: before.state != JobState::Running,
                info,
                lines,
            })
        })
        .await
    }
}

impl From<StopResult> for ToolOutput {
    fn from(
        StopResult {
            ended_already,
            info,
            lines,
        }: StopResult,
    ) -> Self {
        let (number, state) = (info.number, describe_state(&info.state));
        let stopped =
            matches!(&info.state, JobState::Ended(ending) if ending.end == CommandExit::Cancelled);
        let mut words = match ended_already {
            true => format!("Job {number} had ended already: {state}."),
            false if stopped => format!("Job {number} was stopped, with all that it had started."),
            false => format!("Job {number} ended: {state}."),
        };
        if let Some(first) = lines.first() {
            words.push_str(" Last lines:\n");
            words.push_str(number_lines(&lines, first.number).trim_end_matches('\n'));
        }
        Self::done(words)
    }
}
