//! `stop_command`: stops a job.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{
    CommandExit, JobManager, JobState, OutputError, OutputInfo, OutputLine, PageOptions,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::job_error::JobError;
use crate::read_command_output::{describe_state, number_lines};
use crate::typed_tool::TypedTool;

/// The number of lines of the job's output that the result shows.
const LAST_LINES: u64 = 20;
/// The size of these lines together.
const MAX_BYTES: usize = 4 << 10;
/// The size above which a line is cut.
const MAX_LINE_BYTES: usize = 500;

/// The tool, over the jobs of a task.
pub(crate) struct StopCommand(pub(crate) Arc<JobManager>);

/// Stop a job.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopCommandArguments {
    /// Its number.
    job: u32,
}

/// A job after its end.
#[derive(Debug)]
pub(crate) struct StopResult {
    /// True if the job had ended before the call.
    had_ended: bool,
    info: OutputInfo,
    /// The last lines of its output; empty if they cannot be shown.
    lines: Vec<OutputLine>,
}

impl TypedTool for StopCommand {
    type Arguments = StopCommandArguments;
    type Call = StopCommandArguments;
    type Output = StopResult;
    type Error = JobError;
    const NAME: &'static str = "stop_command";
    const MANUAL: &'static str = include_str!("specs/stop_command.md");
    const GROUP: ToolGroup = ToolGroup::Command;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({"job": 1})
    }

    fn prepare_call(&self, arguments: StopCommandArguments) -> StopCommandArguments {
        arguments
    }

    fn call_access(&self, _: &StopCommandArguments) -> Access {
        // Only jobs of this task can be named, and they were checked before they ran.
        Access::Nothing
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: StopCommandArguments,
        _: ProgressSink<'_>,
    ) -> Result<StopResult, JobError> {
        // Here the number names a job, not an output.
        let explain = |error: OutputError| match error {
            OutputError::Missing { number, .. } => JobError::NoSuchJob { number },
            error => JobError::Output(error),
        };
        let before = self.0.job_info(call.job).map_err(explain)?;
        // Returns when the job has ended, with every process that it started.
        self.0.stop_job(call.job).await.map_err(explain)?;
        let info = self.0.job_info(call.job).map_err(explain)?;
        let jobs = Arc::clone(&self.0);
        run_blocking(move || {
            let options = PageOptions {
                first: info.lines.saturating_sub(LAST_LINES) + 1,
                last: u64::MAX,
                max_bytes: MAX_BYTES,
                max_line_bytes: MAX_LINE_BYTES,
            };
            // The output is only an addition: the end of the job is reported in any case.
            let lines = jobs.read_page(info.number, &options).unwrap_or_default();
            Ok(StopResult {
                had_ended: before.state != JobState::Running,
                info,
                lines,
            })
        })
        .await
    }
}

impl From<StopResult> for ToolOutput {
    fn from(result: StopResult) -> Self {
        let StopResult {
            had_ended,
            info,
            lines,
        } = result;
        let number = info.number;
        let state = describe_state(&info.state);
        // The job may have ended by itself between the look at it and the order to stop.
        let was_stopped =
            matches!(&info.state, JobState::Ended(ending) if ending.end == CommandExit::Cancelled);
        let mut message = if had_ended {
            format!("Job {number} had ended already: {state}.")
        } else if was_stopped {
            format!("Job {number} was stopped, with all that it had started.")
        } else {
            format!("Job {number} ended: {state}.")
        };
        if let Some(first) = lines.first() {
            message.push_str(" Last lines:\n");
            message.push_str(number_lines(&lines, first.number).trim_end_matches('\n'));
        }
        Self::done(message)
    }
}
