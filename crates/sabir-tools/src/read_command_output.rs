//! `read_command_output`: what a command printed and its result did not hold, and what jobs print.

use std::sync::Arc;

use sabir_agent::{CallPermit, ProgressSink, ToolOutput};
use sabir_policy::{Access, ToolGroup};
use sabir_workspace::{JobManager, JobState, OutputError, OutputInfo, OutputLine, PageOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::execute_command::sandbox_note;
use crate::text::{self, count_noun, count_processes, group_digits};
use crate::typed_tool::TypedTool;

const MAX_PAGE_BYTES: usize = 32 << 10;
const MAX_LINE_BYTES: usize = 2000;
const MAX_FOUND_LINES: usize = 200;
const MAX_FOUND_LINE_BYTES: usize = 300;
const MAX_LISTED_CHARS: usize = 100;

/// The tool.
pub(crate) struct ReadCommandOutput(pub(crate) Arc<JobManager>);

/// Read output of a job, or what a result left out. Without arguments: list all.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
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

/// What was asked for.
#[derive(Debug)]
pub(crate) enum OutputResult {
    List(Vec<OutputInfo>),
    Page(OutputPage),
    Found {
        info: OutputInfo,
        lines: Vec<OutputLine>,
        more: bool,
    },
}

/// Some lines of an output.
#[derive(Debug)]
pub(crate) struct OutputPage {
    info: OutputInfo,
    lines: Vec<OutputLine>,
    /// The line that was asked for.
    first: u64,
    /// The last that was.
    last: u64,
}

impl TypedTool for ReadCommandOutput {
    type Input = Input;
    type Output = OutputResult;
    const NAME: &'static str = "read_command_output";
    const MANUAL: &'static str = include_str!("specs/read_command_output.md");
    /// It remembers what was shown, so that two at the same time would race for the next lines.
    const GROUP: ToolGroup = ToolGroup::Command;
    const READS_ONLY: bool = false;
    const POLLS: bool = true;

    fn example() -> Value {
        json!({"output": 1})
    }

    fn access(&self, _: &Input) -> Access {
        Access::Nothing
    }

    async fn run(
        self: Arc<Self>,
        _: &CallPermit,
        input: Input,
        _: ProgressSink<'_>,
    ) -> Result<OutputResult, String> {
        text::run_blocking(move || read_output(&self.0, &input)).await
    }
}

fn read_output(jobs: &JobManager, input: &Input) -> Result<OutputResult, String> {
    let (explain, search) = (
        |error: OutputError| format!("{}.", text::capitalize_first(&error.to_string())),
        &input.search,
    );
    let Some(number) = input.output else {
        if input.start_line.is_some() || input.end_line.is_some() || search.is_some() {
            return Err(
                "Give output, the number of what is to be read. Without arguments, all outputs are listed.".to_owned()
            );
        }
        return Ok(OutputResult::List(jobs.list_jobs()));
    };
    if let Some(regex) = search {
        if input.start_line.is_some() || input.end_line.is_some() {
            return Err(
                "Search goes through all lines: give it without start_line and end_line."
                    .to_owned(),
            );
        }
        let (lines, more) = jobs
            .search_output(number, regex, MAX_FOUND_LINES, MAX_FOUND_LINE_BYTES)
            .map_err(explain)?;
        return Ok(OutputResult::Found {
            info: jobs.job_info(number).map_err(explain)?,
            lines,
            more,
        });
    }
    let info = jobs.job_info(number).map_err(explain)?;
    let (first, last) = (
        input.start_line.unwrap_or(info.next_line),
        input.end_line.unwrap_or(u64::MAX),
    );
    if first == 0 || last < first {
        return Err(format!(
            "Lines {first} to {last} are no lines: start_line is at least 1, end_line at least start_line."
        ));
    }
    if input.start_line.is_some() && first > info.lines {
        let lines = count_lines(info.lines);
        return Err(format!(
            "Output {number} has {lines}, so there is no line {first}. Give a smaller start_line."
        ));
    }
    read_page(jobs, info, first, last)
        .map(OutputResult::Page)
        .map_err(explain)
}

/// The lines of a job that were not shown yet.
pub(crate) fn read_unshown(jobs: &JobManager, number: u32) -> Result<OutputPage, OutputError> {
    let info = jobs.job_info(number)?;
    let first = info.next_line;
    read_page(jobs, info, first, u64::MAX)
}

/// A page, which is noted as shown.
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
    // More may have come since the first look.
    let info = OutputInfo {
        state: info.state,
        ..jobs.job_info(info.number)?
    };
    if let Some(line) = lines.last() {
        // A line that may still grow is shown again.
        let whole = line.ended || info.state != JobState::Running;
        jobs.mark_shown(info.number, line.number + u64::from(whole));
    }
    Ok(OutputPage {
        info,
        lines,
        first,
        last,
    })
}

/// How it stands with a command, in words that continue a sentence.
pub(crate) fn describe_state(state: &JobState) -> String {
    match state {
        JobState::Running => "running".to_owned(),
        JobState::Ended(ending) => match ending.left_running {
            0 => ending.end.to_string(),
            left => format!(
                "{}, and {} that it left running ended with it",
                ending.end,
                count_processes(left)
            ),
        },
        JobState::Past(end) => end.clone(),
        JobState::Failed(reason) => format!("not started: {reason}"),
    }
}

/// The lines with their numbers, as read_file shows them. `wanted` is the first that was asked for.
pub(crate) fn number_lines(lines: &[OutputLine], wanted: u64) -> String {
    let width = lines.last().map_or(1, |line| line.number.to_string().len());
    let (mut words, mut next) = (String::new(), wanted);
    for line in lines {
        if line.number > next {
            words.push_str(&format!(
                "[Lines {next} to {} were not kept.]\n",
                line.number - 1
            ));
        }
        words.push_str(&format!(
            "{:>width$} | {}{}\n",
            line.number,
            line.text,
            cut_note(line)
        ));
        next = line.number + 1;
    }
    words
}

fn cut_note(line: &OutputLine) -> String {
    match line.cut_bytes {
        0 => String::new(),
        bytes => format!("… [{} bytes of this line left out]", group_digits(bytes)),
    }
}

impl OutputPage {
    pub(crate) fn info(&self) -> &OutputInfo {
        &self.info
    }

    /// The lines of a first look.
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

    fn describe_page(&self) -> String {
        let OutputInfo {
            number,
            lines: total,
            ..
        } = self.info;
        let (running, state) = (
            self.info.state == JobState::Running,
            describe_state(&self.info.state),
        );
        let (Some(first), Some(last)) = (self.lines.first(), self.lines.last()) else {
            return match total {
                0 if running => format!("Output {number} is empty so far; its command is running."),
                0 => format!("Output {number} is empty; {state}."),
                _ if self.first <= total => format!(
                    "Lines {} to {} were not kept.",
                    self.first,
                    self.last.min(total)
                ),
                _ if running => format!(
                    "Output {number} has nothing new after line {total}; its command is running."
                ),
                _ => format!(
                    "All {} of output {number} were shown; {state}. Give start_line to see some again.",
                    count_lines(total)
                ),
            };
        };
        let (first, last) = (first.number, last.number);
        let so_far = if running { " so far" } else { "" };
        let mut words = number_lines(&self.lines, self.first);
        words.push_str(&format!(
            "[Output {number}: lines {first} to {last} of {total}{so_far}; {state}."
        ));
        if last < total.min(self.last) {
            words.push_str(&format!(" Read on with start_line {}.", last + 1));
        }
        words.push(']');
        words
    }
}

impl From<OutputResult> for ToolOutput {
    fn from(output: OutputResult) -> Self {
        Self::done(match output {
            OutputResult::List(all) if all.is_empty() => {
                "There are no outputs. Only what does not fit a result is kept, and what jobs print.".to_owned()
            }
            OutputResult::List(all) => all.iter().map(list_entry).collect::<Vec<_>>().join("\n"),
            OutputResult::Page(reading) => match reading.info.sandbox.as_ref().and_then(sandbox_note) {
                Some(note) => format!("{}\n[{note}]", reading.describe_page()),
                None => reading.describe_page(),
            },
            OutputResult::Found { info, lines, more } => show_matches(&info, &lines, more),
        })
    }
}

fn list_entry(info: &OutputInfo) -> String {
    let command = info.command.lines().next().unwrap_or_default();
    let mut short: String = command.chars().take(MAX_LISTED_CHARS).collect();
    if short.len() < info.command.len() {
        short.push('…');
    }
    let (lines, bytes) = (count_lines(info.lines), group_digits(info.bytes));
    format!(
        "{}: {}; {lines}, {bytes} bytes: {short}",
        info.number,
        describe_state(&info.state)
    )
}

/// The lines that match, `NUMBER: LINE`, and their context, `NUMBER- LINE`.
fn show_matches(info: &OutputInfo, lines: &[OutputLine], more: bool) -> String {
    let OutputInfo {
        number,
        lines: total,
        ..
    } = *info;
    let state = describe_state(&info.state);
    if lines.is_empty() {
        return format!(
            "No line of output {number} matches ({}; {state}). Upper and lower case count, unless the regex begins with `(?i)`.",
            count_lines(total)
        );
    }
    let (mut words, mut next) = (String::new(), lines.first().map_or(0, |line| line.number));
    for line in lines {
        if line.number > next {
            words.push_str("--\n");
        }
        let mark = if line.matched { ':' } else { '-' };
        words.push_str(format!("{}{mark} {}{}", line.number, line.text, cut_note(line)).trim_end());
        words.push('\n');
        next = line.number + 1;
    }
    let matching = count_noun(
        lines.iter().filter(|line| line.matched).count(),
        "matching line",
    );
    let which = if more {
        format!("the first {matching}; narrow the regex")
    } else {
        matching
    };
    words.push_str(&format!(
        "[Output {number}, {}; {state}: {which}.]",
        count_lines(total)
    ));
    words
}

fn count_lines(lines: u64) -> String {
    count_noun(usize::try_from(lines).unwrap_or(usize::MAX), "line")
}
