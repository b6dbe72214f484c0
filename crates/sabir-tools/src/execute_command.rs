//! `execute_command`: a shell command in the workspace folder.

use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{Bound, Permit, Progress, ToolOutput};
use sabir_policy::{Access, Beyond};
use sabir_workspace::{
    Command, CommandOutcome, Confined, End, JobState, Level, Network, OutputError, Ran, Sandbox, Stop, Stream, Wall,
    WorkspaceError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Settings;
use crate::bound;
use crate::built_in::BuiltIn;
use crate::facts::gather;
use crate::read_command_output::{Reading, state, unread};
use crate::words::{self, capitalised, grouped, processes};

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
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// The tool.
pub(crate) struct ExecuteCommand(pub(crate) Settings);

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
pub(crate) enum Output {
    /// It ended.
    Ended {
        ran: Ran,
        /// Its time limit.
        seconds: u64,
    },
    /// It is a job now.
    Started {
        reading: Reading,
        /// Whether its sandbox keeps other commands from its ports.
        alone: bool,
    },
}

impl BuiltIn for ExecuteCommand {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "execute_command";
    const MANUAL: &'static str = include_str!("specs/execute_command.md");
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"command": "cargo test --workspace", "timeout": 300})
    }

    fn access(&self, input: &Input) -> Access {
        Access::Command {
            facts: gather(&self.0.workspace, &self.0.environment, &input.command),
            command: input.command.clone(),
            beyond: self.beyond(input),
        }
    }

    fn bound(&self, input: &Input) -> Bound {
        bound::of_command(&self.0, &input.command)
    }

    async fn run(self: Arc<Self>, permit: &Permit, input: Input, progress: Progress<'_>) -> Result<Output, String> {
        let limit = input.timeout.map(|seconds| seconds.clamp(1, MAX_SECONDS));
        let sandbox = self.sandbox(&input, permit).await?;
        let alone = sandbox.is_on() && !sandbox.has_network();
        let mut command = Command::new(&input.command, &self.0.helper)
            .env(self.0.environment.iter().cloned())
            .captured_bytes(HEAD_BYTES, TAIL_BYTES)
            .sandbox(sandbox);
        if input.terminal {
            command = command.terminal().env([TERMINAL].map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        if input.background {
            let command = match limit {
                Some(seconds) => command.timeout(Duration::from_secs(seconds)),
                None => command,
            };
            let reading = start(&self.0, command, &input.command).await?;
            return Ok(Output::Started { reading, alone });
        }
        let seconds = limit.unwrap_or(DEFAULT_SECONDS);
        let mut preview = Preview { out: Decoder::default(), err: Decoder::default(), left: PREVIEW_BYTES, progress };
        let command = command.timeout(Duration::from_secs(seconds));
        let on_output = |stream, bytes: &[u8]| preview.push(stream, bytes);
        let ran = self.0.jobs.run(&self.0.workspace, command, &input.command, on_output).await;
        preview.finish();
        ran.map(|ran| Output::Ended { ran, seconds }).map_err(|error| match error {
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
    fn beyond(&self, input: &Input) -> Beyond {
        let sandbox = &self.0.sandbox;
        match (sandbox.is_on(), input.unconfined, input.network && !sandbox.has_network()) {
            (true, true, _) => Beyond::Unconfined,
            (true, false, true) => Beyond::Network,
            _ => Beyond::Nothing,
        }
    }

    /// The sandbox of a call that was permitted as it is. What the workspace hides now is out of its sight.
    async fn sandbox(&self, input: &Input, permit: &Permit) -> Result<Sandbox, String> {
        let sandbox = self.0.sandbox.clone();
        let sandbox = match self.beyond(input) {
            Beyond::Unconfined => return Ok(Sandbox::new(Level::Off)),
            Beyond::Network => sandbox.network(Network::Allowed),
            // Whoever may run unasked because it only reads is held to that: a wrong judgement then costs nothing.
            Beyond::Nothing if permit.only_reads => sandbox.read_only(),
            Beyond::Nothing => sandbox,
        };
        if !sandbox.is_on() {
            return Ok(sandbox);
        }
        let workspace = Arc::clone(&self.0.workspace);
        let look = move |stop: Stop| workspace.hidden(&stop).map_err(|error| format!("{error}."));
        match words::stoppable(look).await? {
            hidden if hidden.len() > MAX_HIDDEN => Err(format!(
                "Not run: the user hides {} files here one by one, and a command can be kept from {MAX_HIDDEN} at most. Tell them: \
                 rules that hide whole folders would do.",
                hidden.len()
            )),
            hidden => Ok(sandbox.hide(hidden)),
        }
    }
}

/// Starts a job, and waits for its first words.
async fn start(settings: &Settings, command: Command, text: &str) -> Result<Reading, String> {
    let explain = |error: OutputError| format!("{}.", capitalised(&error.to_string()));
    let jobs = Arc::clone(&settings.jobs);
    let number = jobs.start(Arc::clone(&settings.workspace), command, text).map_err(explain)?;
    jobs.wait(number, FIRST_LOOK).await.map_err(explain)?;
    words::blocking(move || {
        let reading = unread(&jobs, number).map_err(explain)?;
        match &reading.info().state {
            JobState::Failed(reason) => Err(format!("{reason}.")),
            _ => Ok(reading),
        }
    })
    .await
}

impl From<Output> for ToolOutput {
    fn from(output: Output) -> Self {
        match output {
            Output::Ended { ran, seconds } => ended(&ran, seconds),
            Output::Started { reading, alone } => started(&reading, alone),
        }
    }
}

/// The end, what was printed, and what to do.
fn ended(ran: &Ran, seconds: u64) -> ToolOutput {
    let outcome = &ran.outcome;
    let mut words = match outcome.end {
        End::Exited(code) => format!("Exit code {code}"),
        End::TimedOut => format!("Killed after {}, with all that it had started", count_seconds(seconds)),
        End::Cancelled => "Cancelled, with all that it had started".to_owned(),
        End::SupervisorLost => "Lost: its supervisor was killed, and what was left of the command too".to_owned(),
        end => capitalised(&end.to_string()),
    };
    let omitted = grouped(outcome.output.omitted_bytes);
    let printed = outcome.output.text_with(&match &ran.kept {
        Some(Ok(number)) => {
            format!("[… {omitted} bytes left out; read_command_output with output {number} shows them …]")
        }
        Some(Err(error)) => format!("[… {omitted} bytes left out: {error} …]"),
        None => String::new(),
    });
    let printed = printed.trim_end_matches('\n');
    words.push_str(if printed.is_empty() { ", no output." } else { ". Output:\n" });
    words.push_str(printed);
    for note in notes(outcome) {
        words.push_str(&format!("\n[{note}]"));
    }
    ToolOutput { failed: outcome.end != End::Exited(0), ..ToolOutput::done(words) }
}

/// What is to be known of an end, and what to do.
fn notes(outcome: &CommandOutcome) -> Vec<String> {
    let mut notes = Vec::new();
    match outcome.end {
        End::TimedOut => notes.push(format!(
            "If it needs longer, give a timeout of up to {MAX_SECONDS}. If it waits for input, give that on its command line. If it is a \
             server, use background."
        )),
        End::Exited(126) => notes.push("126: a file that cannot be executed. Is it a program, and `chmod +x`?".to_owned()),
        End::Exited(127) => {
            notes.push("127: no such program. Check its name, give its path, or install it.".to_owned());
        }
        End::Exited(153) | End::Signaled(25) => {
            notes.push("A file grew too large: in the sandbox it may have 64 GiB.".to_owned());
        }
        End::Exited(137) | End::Signaled(9) => {
            notes.push("Killed from outside, perhaps for want of memory.".to_owned());
        }
        _ => {}
    }
    if let left @ 1.. = outcome.left_running {
        let verb = if left == 1 { "was" } else { "were" };
        notes.push(format!(
            "{} that it left running {verb} ended. For a server, use background, without `&`.",
            processes(left)
        ));
    }
    if let survivors @ 1.. = outcome.survivors {
        notes.push(format!("{} could not be killed.", processes(survivors)));
    }
    // That a file is no program has nothing to do with walls, although the shell says so in the same words.
    let confined = outcome.confined.as_ref().filter(|_| outcome.end != End::Exited(126));
    notes.extend(confined.and_then(walls));
    notes
}

/// Which wall of its sandbox a command may have met, and what to do.
pub(crate) fn walls(confined: &Confined) -> Option<String> {
    let note = confined.note.as_ref()?;
    let advice = match note.wall {
        Wall::Network => "If it cannot do without the network, call again with network: the user is asked.",
        Wall::Files => "Work within that; if it cannot be done so, call again with unconfined: the user is asked.",
    };
    Some(format!("{} {advice}", note.words))
}

fn started(reading: &Reading, alone: bool) -> ToolOutput {
    let (number, how) = (reading.info().number, &reading.info().state);
    let printed = reading.first_words();
    let JobState::Ended(ending) = how else {
        let alone = match alone {
            true => " Other commands do not reach its ports: talk to it on one command line, or give network to both.",
            false => "",
        };
        return ToolOutput::done(format!(
            "Job {number} runs in the background. {printed}\n[Use read_command_output to read on, stop_command to end it.{alone}]"
        ));
    };
    let mut words = format!("Job {number} has ended: {}. {printed}", state(how));
    if let Some(note) = reading.info().confined.as_ref().and_then(walls) {
        words.push_str(&format!("\n[{note}]"));
    }
    ToolOutput { failed: ending.end != End::Exited(0), ..ToolOutput::done(words) }
}

fn count_seconds(seconds: u64) -> String {
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
}

/// Shows output while it comes.
struct Preview<'a> {
    out: Decoder,
    err: Decoder,
    /// How many bytes more are shown.
    left: usize,
    progress: Progress<'a>,
}

impl Preview<'_> {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        if self.left == 0 {
            return;
        }
        let decoder = match stream {
            Stream::Stdout => &mut self.out,
            Stream::Stderr => &mut self.err,
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
struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8], progress: &mut (dyn FnMut(&str) + Send)) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let error = std::str::from_utf8(rest).err();
            let (valid, bad) = rest.split_at(error.map_or(rest.len(), |error| error.valid_up_to()));
            if let Some(text) = std::str::from_utf8(valid).ok().filter(|text| !text.is_empty()) {
                progress(text);
            }
            rest = bad;
            let Some(length) = error.and_then(|error| error.error_len()) else { break };
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
        let mut decoder = Decoder::default();
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
        check(&[b"\xffa\xc3(", b"b\xe2\x82"], "\u{fffd}a\u{fffd}(b\u{fffd}");
    }
}
