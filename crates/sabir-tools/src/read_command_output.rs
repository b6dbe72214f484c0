//! `read_command_output`: reads the output of jobs, and output that did not fit a result.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{JobManager, JobState, OutputError, OutputInfo, OutputLine, PageOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::run_blocking;
use crate::execute_command::{connection_notes, sandbox_note};
use crate::job_error::JobError;
use crate::text::{count_noun, count_processes, group_digits};
use crate::typed_tool::TypedTool;

/// The size of the lines that one call shows.
const MAX_PAGE_BYTES: usize = 32 << 10;
/// The size above which a line is cut.
const MAX_LINE_BYTES: usize = 2000;
/// The number of lines that one search shows.
const MAX_FOUND_LINES: usize = 200;
/// The size above which a line that was found is cut.
const MAX_FOUND_LINE_BYTES: usize = 300;
/// The length of a command in the list of outputs.
const MAX_LISTED_CHARS: usize = 100;

/// The tool, over the jobs of a task.
pub(crate) struct ReadCommandOutput(pub(crate) Arc<JobManager>);

/// Read output of a job, or what a result left out. Without arguments: list all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadOutputArguments {
    /// Its number.
    output: Option<u32>,
    /// Default: the first not shown yet.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// Last line to show.
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
    /// Show only lines that match this regex.
    search: Option<String>,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum OutputResult {
    /// All outputs of the task.
    List(Vec<OutputInfo>),
    /// Some lines of an output.
    Page(OutputPage),
    /// The lines of an output that match.
    Found(FoundLines),
}

/// Some lines of an output.
#[derive(Debug)]
pub(crate) struct OutputPage {
    info: OutputInfo,
    lines: Vec<OutputLine>,
    /// The first line that was wanted.
    first: u64,
    /// The last line that was wanted.
    last: u64,
}

/// The lines of an output that match a search, with their context.
#[derive(Debug)]
pub(crate) struct FoundLines {
    info: OutputInfo,
    lines: Vec<OutputLine>,
    /// True if further lines match.
    has_more: bool,
}

impl TypedTool for ReadCommandOutput {
    type Arguments = ReadOutputArguments;
    type Call = ReadOutputArguments;
    type Output = OutputResult;
    type Error = JobError;
    const NAME: &'static str = "read_command_output";
    const MANUAL: &'static str = include_str!("specs/read_command_output.md");
    const GROUP: ToolGroup = ToolGroup::Command;
    // A call without `start_line` continues after the lines that were shown, so two concurrent
    // calls would race for them.
    const READS_ONLY: bool = false;
    const POLLS: bool = true;

    fn example_arguments() -> Value {
        json!({"output": 1})
    }

    fn prepare_call(&self, arguments: ReadOutputArguments) -> ReadOutputArguments {
        arguments
    }

    fn call_access(&self, _: &ReadOutputArguments) -> Access {
        // The commands were checked before they ran.
        Access::Nothing
    }

    async fn run_call(
        self: Arc<Self>,
        _: &CallPermit,
        call: ReadOutputArguments,
        _: ProgressSink<'_>,
    ) -> Result<OutputResult, JobError> {
        run_blocking(move || read_output(&self.0, &call)).await
    }
}

/// Lists, searches or reads outputs, depending on the arguments.
fn read_output(jobs: &JobManager, call: &ReadOutputArguments) -> Result<OutputResult, JobError> {
    let has_range = call.start_line.is_some() || call.end_line.is_some();
    let Some(number) = call.output else {
        if has_range || call.search.is_some() {
            return Err(JobError::NoNumber);
        }
        return Ok(OutputResult::List(jobs.list_jobs()));
    };
    if let Some(regex) = &call.search {
        if has_range {
            return Err(JobError::SearchWithRange);
        }
        let (lines, has_more) =
            jobs.search_output(number, regex, MAX_FOUND_LINES, MAX_FOUND_LINE_BYTES)?;
        return Ok(OutputResult::Found(FoundLines {
            info: jobs.job_info(number)?,
            lines,
            has_more,
        }));
    }
    let info = jobs.job_info(number)?;
    let first = call.start_line.unwrap_or(info.next_line);
    let last = call.end_line.unwrap_or(u64::MAX);
    if first == 0 || last < first {
        return Err(JobError::InvalidRange { first, last });
    }
    // Reading on after the last line is not a mistake: a running command may print more.
    if call.start_line.is_some() && first > info.lines {
        return Err(JobError::NoSuchLine {
            number,
            first,
            lines: count_lines(info.lines),
        });
    }
    Ok(OutputResult::Page(read_page(jobs, info, first, last)?))
}

/// Reads the lines of a job that were not shown yet.
pub(crate) fn read_unshown(jobs: &JobManager, number: u32) -> Result<OutputPage, OutputError> {
    let info = jobs.job_info(number)?;
    let first = info.next_line;
    read_page(jobs, info, first, u64::MAX)
}

/// Reads lines, and notes that they were shown.
fn read_page(
    jobs: &JobManager,
    info: OutputInfo,
    first: u64,
    last: u64,
) -> Result<OutputPage, OutputError> {
    let options = PageOptions {
        first,
        last,
        max_bytes: MAX_PAGE_BYTES,
        max_line_bytes: MAX_LINE_BYTES,
    };
    let lines = jobs.read_page(info.number, &options)?;
    // More may have been printed since `info` was taken. Its state is kept, so that a command is
    // not reported as ended before its last lines are shown.
    let info = OutputInfo {
        state: info.state,
        ..jobs.job_info(info.number)?
    };
    if let Some(line) = lines.last() {
        // A line that may still grow is shown again.
        let is_whole = line.ended || info.state != JobState::Running;
        jobs.mark_shown(info.number, line.number + u64::from(is_whole));
    }
    Ok(OutputPage {
        info,
        lines,
        first,
        last,
    })
}

/// Describes the state of a command. The text continues a sentence.
pub(crate) fn describe_state(state: &JobState) -> String {
    match state {
        JobState::Running => "running".to_owned(),
        JobState::Ended(ending) => match ending.leftover_processes {
            0 => ending.end.to_string(),
            left => format!(
                "{}, and {} that it left running ended with it",
                ending.end,
                count_processes(left)
            ),
        },
        JobState::EndedBeforeResume(end) => end.clone(),
        JobState::Failed(reason) => format!("not started: {reason}"),
    }
}

/// Renders lines with their numbers, as `read_file` does. `wanted` is the first line that was wanted;
/// the output may begin later, because the middle of a long one is not kept.
pub(crate) fn number_lines(lines: &[OutputLine], wanted: u64) -> String {
    // All numbers of a page align.
    let width = lines.last().map_or(1, |line| line.number.to_string().len());
    let mut text = String::new();
    let mut next = wanted;
    for line in lines {
        if line.number > next {
            text.push_str(&format!(
                "[Lines {next} to {} were not kept.]\n",
                line.number - 1
            ));
        }
        text.push_str(&format!(
            "{:>width$} | {}{}\n",
            line.number,
            line.text,
            cut_note(line)
        ));
        next = line.number + 1;
    }
    text
}

/// Returns the remark on a line that was cut; empty if it was not.
fn cut_note(line: &OutputLine) -> String {
    match line.cut_bytes {
        0 => String::new(),
        bytes => format!("… [{} bytes of this line left out]", group_digits(bytes)),
    }
}

impl OutputPage {
    /// Returns the description of the output.
    pub(crate) fn info(&self) -> &OutputInfo {
        &self.info
    }

    /// Renders the first lines of a new job.
    pub(crate) fn first_output(&self) -> String {
        match self.lines.as_slice() {
            [] if self.info.state == JobState::Running => "No output yet.".to_owned(),
            [] => "No output.".to_owned(),
            lines => format!(
                "Output:\n{}",
                number_lines(lines, self.first).trim_end_matches('\n')
            ),
        }
    }

    /// Renders the lines, followed by the state of the output.
    fn describe_page(&self) -> String {
        let OutputInfo {
            number,
            lines: total,
            ..
        } = self.info;
        let is_running = self.info.state == JobState::Running;
        let state = describe_state(&self.info.state);
        let (Some(first), Some(last)) = (self.lines.first(), self.lines.last()) else {
            return match total {
                0 if is_running => {
                    format!("Output {number} is empty so far; its command is running.")
                }
                0 => format!("Output {number} is empty; {state}."),
                _ if self.first <= total => format!(
                    "Lines {} to {} were not kept.",
                    self.first,
                    self.last.min(total)
                ),
                _ if is_running => format!(
                    "Output {number} has nothing new after line {total}; its command is running."
                ),
                _ => format!(
                    "All {} of output {number} were shown; {state}. Give start_line to see some again.",
                    count_lines(total)
                ),
            };
        };
        let so_far = if is_running { " so far" } else { "" };
        let mut text = number_lines(&self.lines, self.first);
        text.push_str(&format!(
            "[Output {number}: lines {} to {} of {total}{so_far}; {state}.",
            first.number, last.number
        ));
        if last.number < total.min(self.last) {
            text.push_str(&format!(" Read on with start_line {}.", last.number + 1));
        }
        text.push(']');
        text
    }
}

impl From<OutputResult> for ToolOutput {
    fn from(output: OutputResult) -> Self {
        Self::done(match output {
            OutputResult::List(all) if all.is_empty() => {
                "There are no outputs. Only what does not fit a result is kept, and what jobs print.".to_owned()
            }
            OutputResult::List(all) => all.iter().map(list_entry).collect::<Vec<_>>().join("\n"),
            OutputResult::Page(page) => {
                let sandbox = page.info.sandbox.as_ref();
                let notes = sandbox.and_then(sandbox_note).into_iter();
                let notes = notes.chain(sandbox.into_iter().flat_map(connection_notes));
                notes.fold(page.describe_page(), |text, note| {
                    format!("{text}\n[{note}]")
                })
            }
            OutputResult::Found(found) => found.render_matches(),
        })
    }
}

/// Renders an output of the list: number, state, size and the start of its command.
fn list_entry(info: &OutputInfo) -> String {
    let command = info.command.lines().next().unwrap_or_default();
    let mut short: String = command.chars().take(MAX_LISTED_CHARS).collect();
    if short.len() < info.command.len() {
        short.push('…');
    }
    format!(
        "{}: {}; {}, {} bytes: {short}",
        info.number,
        describe_state(&info.state),
        count_lines(info.lines),
        group_digits(info.bytes)
    )
}

impl FoundLines {
    /// Renders the lines that match, `NUMBER: LINE`, and their context, `NUMBER- LINE`.
    fn render_matches(&self) -> String {
        let OutputInfo {
            number,
            lines: total,
            ..
        } = self.info;
        let state = describe_state(&self.info.state);
        let total = count_lines(total);
        let Some(first) = self.lines.first() else {
            return format!(
                "No line of output {number} matches ({total}; {state}). Upper and lower case count, unless the regex begins with `(?i)`."
            );
        };
        let mut text = String::new();
        let mut next = first.number;
        for line in &self.lines {
            if line.number > next {
                text.push_str("--\n");
            }
            // As `search_files` and grep mark them.
            let mark = if line.matched { ':' } else { '-' };
            let rendered = format!("{}{mark} {}{}", line.number, line.text, cut_note(line));
            text.push_str(rendered.trim_end());
            text.push('\n');
            next = line.number + 1;
        }
        let matching = count_noun(
            self.lines.iter().filter(|line| line.matched).count(),
            "matching line",
        );
        let shown = if self.has_more {
            format!("the first {matching}; narrow the regex")
        } else {
            matching
        };
        text.push_str(&format!("[Output {number}, {total}; {state}: {shown}.]"));
        text
    }
}

/// Formats a number of lines: `1 line`, `2 lines`.
fn count_lines(lines: u64) -> String {
    count_noun(usize::try_from(lines).unwrap_or(usize::MAX), "line")
}
