//! `execute_command`: a shell command in the workspace folder.

use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, ToolOutput};
use sabir_policy::{Access, Beyond, ToolGroup};
use sabir_workspace::{
    CommandExit, CommandOutcome, DenialKind, FinishedCommand, JobState, NetworkAccess, OutputError,
    OutputStream, Sandbox, SandboxLevel, SandboxReport, ShellCommand, StopFlag, WorkspaceError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ToolSettings;
use crate::command_facts::gather_facts;
use crate::preconditions;
use crate::read_command_output::{OutputPage, describe_state, read_unshown};
use crate::text::{self, capitalize_first, count_processes, group_digits};
use crate::typed_tool::TypedTool;

const DEFAULT_SECONDS: u64 = 120;
const MAX_SECONDS: u64 = 600;
/// Of the output: errors tend to stand at the end.
const HEAD_BYTES: usize = 12 << 10;
const TAIL_BYTES: usize = 20 << 10;
/// What the terminal is, whatever the settings say for pipes.
const TERMINAL: (&str, &str) = ("TERM", "xterm-256color");
/// What is shown of the output while it comes: nobody reads a flood.
const PREVIEW_BYTES: usize = 4 << 20;
/// More hidden files and folders than these are not hidden from a command one by one.
const MAX_HIDDEN: usize = 500;
/// How long a job is watched before its first output is told.
const FIRST_OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// The tool.
pub(crate) struct ExecuteCommand(pub(crate) ToolSettings);

/// Run a shell command in the workspace folder. There is no input. What it leaves running ends with it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The command line.
    command: String,
    /// Seconds until it is killed. Default 120.
    #[schemars(range(min = 1, max = 600))]
    timeout: Option<u64>,
    /// Give it a terminal.
    #[serde(default)]
    terminal: bool,
    /// For servers: let it run on as a job.
    #[serde(default)]
    background: bool,
    /// It needs the network. The user is asked.
    #[serde(default)]
    network: bool,
    /// Run outside of the sandbox, only after it failed inside. The user is asked each time.
    #[serde(default)]
    unconfined: bool,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum CommandResult {
    /// It ended.
    Ended {
        ran: FinishedCommand,
        /// Its time limit.
        seconds: u64,
    },
    /// It is a job now.
    Started {
        reading: OutputPage,
        /// Whether its sandbox keeps other commands from its ports.
        alone: bool,
    },
}

impl TypedTool for ExecuteCommand {
    type Input = Input;
    type Output = CommandResult;
    const NAME: &'static str = "execute_command";
    const MANUAL: &'static str = include_str!("specs/execute_command.md");
    const GROUP: ToolGroup = ToolGroup::Command;
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"command": "cargo test --workspace", "timeout": 300})
    }

    fn access(&self, input: &Input) -> Access {
        Access::Command {
            facts: gather_facts(&self.0.workspace, &self.0.environment, &input.command),
            command: input.command.clone(),
            beyond: self.sandbox_exception(input),
        }
    }

    fn preconditions(&self, input: &Input) -> Preconditions {
        preconditions::command_preconditions(&self.0, &input.command)
    }

    async fn run(
        self: Arc<Self>,
        permit: &CallPermit,
        input: Input,
        progress: ProgressSink<'_>,
    ) -> Result<CommandResult, String> {
        let limit = input.timeout.map(|seconds| seconds.clamp(1, MAX_SECONDS));
        let sandbox = self.sandbox_for(&input, permit).await?;
        let alone = sandbox.is_on() && !sandbox.has_network();
        let mut command = ShellCommand::new(&input.command, &self.0.helper)
            .env(self.0.environment.iter().cloned())
            .captured_bytes(HEAD_BYTES, TAIL_BYTES)
            .sandbox(sandbox);
        if input.terminal {
            command = command
                .with_terminal()
                .env([TERMINAL].map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        if input.background {
            let command = match limit {
                Some(seconds) => command.timeout(Duration::from_secs(seconds)),
                None => command,
            };
            let reading = start_job(&self.0, command, &input.command).await?;
            return Ok(CommandResult::Started { reading, alone });
        }
        let seconds = limit.unwrap_or(DEFAULT_SECONDS);
        let mut preview = OutputPreview {
            out: StreamDecoder::default(),
            err: StreamDecoder::default(),
            left: PREVIEW_BYTES,
            progress,
        };
        let command = command.timeout(Duration::from_secs(seconds));
        let on_output = |stream, bytes: &[u8]| preview.push(stream, bytes);
        let ran = self
            .0
            .jobs
            .run_command(&self.0.workspace, command, &input.command, on_output)
            .await;
        preview.finish();
        ran.map(|ran| CommandResult::Ended { ran, seconds }).map_err(|error| match error {
            WorkspaceError::Missing { .. } => {
                "The workspace folder is gone, so nothing can run in it. Tell the user.".to_owned()
            }
            error @ WorkspaceError::Sandbox { .. } => {
                format!(
                    "{error}. Only the user can change that: `--sandbox off`, or `sandbox = \"off\"` in config.toml, runs commands \
                     without. Tell them."
                )
            }
            error => format!("{error}."),
        })
    }
}

impl ExecuteCommand {
    /// What a call asks for beyond what every command of the task gets.
    fn sandbox_exception(&self, input: &Input) -> Beyond {
        let sandbox = &self.0.sandbox;
        match (
            sandbox.is_on(),
            input.unconfined,
            input.network && !sandbox.has_network(),
        ) {
            (true, true, _) => Beyond::Unconfined,
            (true, false, true) => Beyond::Network,
            _ => Beyond::Nothing,
        }
    }

    /// The sandbox of a call that was permitted as it is. What the workspace hides now is out of its sight.
    async fn sandbox_for(&self, input: &Input, permit: &CallPermit) -> Result<Sandbox, String> {
        let sandbox = self.0.sandbox.clone();
        let sandbox = match self.sandbox_exception(input) {
            Beyond::Unconfined => return Ok(Sandbox::new(SandboxLevel::Off)),
            Beyond::Network => sandbox.with_network(NetworkAccess::Allowed),
            // Whoever may run unasked because it only reads is held to that: a wrong judgement then costs nothing.
            Beyond::Nothing if permit.read_only => sandbox.read_only(),
            Beyond::Nothing => sandbox,
        };
        if !sandbox.is_on() {
            return Ok(sandbox);
        }
        let workspace = Arc::clone(&self.0.workspace);
        let look = move |stop: StopFlag| {
            workspace
                .list_hidden_paths(&stop)
                .map_err(|error| format!("{error}."))
        };
        match text::run_stoppable(look).await? {
            hidden if hidden.len() > MAX_HIDDEN => Err(format!(
                "Not run: the user hides {} files here one by one, and a command can be kept from {MAX_HIDDEN} at most. Tell them: \
                 rules that hide whole folders would do.",
                hidden.len()
            )),
            hidden => Ok(sandbox.hide_paths(hidden)),
        }
    }
}

/// Starts a job, and waits for its first words.
async fn start_job(
    settings: &ToolSettings,
    command: ShellCommand,
    text: &str,
) -> Result<OutputPage, String> {
    let explain = |error: OutputError| format!("{}.", capitalize_first(&error.to_string()));
    let jobs = Arc::clone(&settings.jobs);
    let number = jobs
        .start_job(Arc::clone(&settings.workspace), command, text)
        .map_err(explain)?;
    jobs.wait_for_job(number, FIRST_OUTPUT_WAIT)
        .await
        .map_err(explain)?;
    text::run_blocking(move || {
        let reading = read_unshown(&jobs, number).map_err(explain)?;
        match &reading.info().state {
            JobState::Failed(reason) => Err(format!("{reason}.")),
            _ => Ok(reading),
        }
    })
    .await
}

impl From<CommandResult> for ToolOutput {
    fn from(output: CommandResult) -> Self {
        match output {
            CommandResult::Ended { ran, seconds } => ended_output(&ran, seconds),
            CommandResult::Started { reading, alone } => started_output(&reading, alone),
        }
    }
}

/// The end, what was printed, and what to do.
fn ended_output(ran: &FinishedCommand, seconds: u64) -> ToolOutput {
    let outcome = &ran.outcome;
    let mut words = match outcome.end {
        CommandExit::Exited(code) => format!("Exit code {code}"),
        CommandExit::TimedOut => format!(
            "Killed after {}, with all that it had started",
            count_seconds(seconds)
        ),
        CommandExit::Cancelled => "Cancelled, with all that it had started".to_owned(),
        CommandExit::SupervisorLost => {
            "Lost: its supervisor was killed, and what was left of the command too".to_owned()
        }
        end => capitalize_first(&end.to_string()),
    };
    let omitted = group_digits(outcome.output.omitted_bytes);
    let printed = outcome.output.text_with(&match &ran.kept {
        Some(Ok(number)) => {
            format!("[… {omitted} bytes left out; read_command_output with output {number} shows them …]")
        }
        Some(Err(error)) => format!("[… {omitted} bytes left out: {error} …]"),
        None => String::new(),
    });
    let printed = printed.trim_end_matches('\n');
    words.push_str(if printed.is_empty() {
        ", no output."
    } else {
        ". Output:\n"
    });
    words.push_str(printed);
    for note in outcome_notes(outcome) {
        words.push_str(&format!("\n[{note}]"));
    }
    ToolOutput {
        failed: outcome.end != CommandExit::Exited(0),
        ..ToolOutput::done(words)
    }
}

/// What is to be known of an end, and what to do.
fn outcome_notes(outcome: &CommandOutcome) -> Vec<String> {
    let mut notes = Vec::new();
    match outcome.end {
        CommandExit::TimedOut => notes.push(format!(
            "If it needs longer, give a timeout of up to {MAX_SECONDS}. If it waits for input, give that on its command line. If it is a \
             server, use background."
        )),
        CommandExit::Exited(126) => notes.push("126: a file that cannot be executed. Is it a program, and `chmod +x`?".to_owned()),
        CommandExit::Exited(127) => {
            notes.push("127: no such program. Check its name, give its path, or install it.".to_owned());
        }
        CommandExit::Exited(153) | CommandExit::Signaled(25) => {
            notes.push("A file grew too large: in the sandbox it may have 64 GiB.".to_owned());
        }
        CommandExit::Exited(137) | CommandExit::Signaled(9) => {
            notes.push("Killed from outside, perhaps for want of memory.".to_owned());
        }
        _ => {}
    }
    if let left @ 1.. = outcome.left_running {
        let verb = if left == 1 { "was" } else { "were" };
        notes.push(format!(
            "{} that it left running {verb} ended. For a server, use background, without `&`.",
            count_processes(left)
        ));
    }
    if let survivors @ 1.. = outcome.survivors {
        notes.push(format!(
            "{} could not be killed.",
            count_processes(survivors)
        ));
    }
    // That a file is no program has nothing to do with walls, although the shell says so in the same words.
    let confined = outcome
        .sandbox
        .as_ref()
        .filter(|_| outcome.end != CommandExit::Exited(126));
    notes.extend(confined.and_then(sandbox_note));
    notes
}

/// Which wall of its sandbox a command may have met, and what to do.
pub(crate) fn sandbox_note(confined: &SandboxReport) -> Option<String> {
    let note = confined.note.as_ref()?;
    let advice = match note.kind {
        DenialKind::Network => {
            "If it cannot do without the network, call again with network: the user is asked."
        }
        DenialKind::Files => {
            "Work within that; if it cannot be done so, call again with unconfined: the user is asked."
        }
    };
    Some(format!("{} {advice}", note.message))
}

fn started_output(reading: &OutputPage, alone: bool) -> ToolOutput {
    let (number, how) = (reading.info().number, &reading.info().state);
    let printed = reading.first_output();
    let JobState::Ended(ending) = how else {
        let alone = match alone {
            true => {
                " Other commands do not reach its ports: talk to it on one command line, or give network to both."
            }
            false => "",
        };
        return ToolOutput::done(format!(
            "Job {number} runs in the background. {printed}\n[Use read_command_output to read on, stop_command to end it.{alone}]"
        ));
    };
    let mut words = format!("Job {number} has ended: {}. {printed}", describe_state(how));
    if let Some(note) = reading.info().sandbox.as_ref().and_then(sandbox_note) {
        words.push_str(&format!("\n[{note}]"));
    }
    ToolOutput {
        failed: ending.end != CommandExit::Exited(0),
        ..ToolOutput::done(words)
    }
}

fn count_seconds(seconds: u64) -> String {
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
}

/// Shows output while it comes.
struct OutputPreview<'a> {
    out: StreamDecoder,
    err: StreamDecoder,
    /// How many bytes more are shown.
    left: usize,
    progress: ProgressSink<'a>,
}

impl OutputPreview<'_> {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        if self.left == 0 {
            return;
        }
        let decoder = match stream {
            OutputStream::Stdout => &mut self.out,
            OutputStream::Stderr => &mut self.err,
        };
        self.left = self.left.saturating_sub(bytes.len());
        decoder.push(bytes, self.progress);
        if self.left == 0 {
            (self.progress)("\n[… the rest is not shown while it comes …]\n");
        }
    }

    fn finish(mut self) {
        self.out.finish(self.progress);
        self.err.finish(self.progress);
    }
}

/// Bytes of one stream to text, with characters that are cut between two pieces kept for the next.
#[derive(Default)]
struct StreamDecoder {
    pending: Vec<u8>,
}

impl StreamDecoder {
    fn push(&mut self, bytes: &[u8], progress: &mut (dyn FnMut(&str) + Send)) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let error = std::str::from_utf8(rest).err();
            let (valid, bad) = rest.split_at(error.map_or(rest.len(), |error| error.valid_up_to()));
            if let Some(text) = std::str::from_utf8(valid)
                .ok()
                .filter(|text| !text.is_empty())
            {
                progress(text);
            }
            rest = bad;
            let Some(length) = error.and_then(|error| error.error_len()) else {
                break;
            };
            progress("\u{fffd}");
            rest = bad.get(length..).unwrap_or_default();
        }
        self.pending = rest.to_vec();
    }

    fn finish(&mut self, progress: &mut (dyn FnMut(&str) + Send)) {
        if !self.pending.is_empty() {
            self.pending.clear();
            progress("\u{fffd}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &str) {
        let mut text = String::new();
        let mut decoder = StreamDecoder::default();
        for piece in pieces {
            decoder.push(piece, &mut |piece| text.push_str(piece));
        }
        decoder.finish(&mut |piece| text.push_str(piece));
        assert_eq!(text, expected);
    }

    #[test]
    fn cut_characters_are_joined() {
        check(&[b"a\xc3", b"\xa9b"], "aéb");
        check(&[b"\xf0", b"\x9f", b"\x98\x80", b"x"], "\u{1f600}x");
        check(
            &[b"\xffa\xc3(", b"b\xe2\x82"],
            "\u{fffd}a\u{fffd}(b\u{fffd}",
        );
    }
}
