//! `execute_command`: a shell command in the workspace folder.

use std::sync::Arc;
use std::time::Duration;

use sabir_agent::{Access, Progress, ToolOutput};
use sabir_workspace::{Command, CommandOutcome, End, Stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Settings;
use crate::built_in::BuiltIn;
use crate::facts::gather;
use crate::words::count;

const DEFAULT_SECONDS: u64 = 120;
const MAX_SECONDS: u64 = 600;
/// Of the output: errors tend to stand at the end.
const HEAD_BYTES: usize = 12 << 10;
const TAIL_BYTES: usize = 20 << 10;

/// The tool.
pub(crate) struct ExecuteCommand(pub(crate) Settings);

/// Run a shell command in the workspace folder, and get its exit code and output. There is no input and no terminal. What it
/// leaves running in the background ends with it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The command line.
    command: String,
    /// Seconds after which it is killed. Default 120.
    #[schemars(range(min = 1, max = 600))]
    timeout: Option<u64>,
}

impl BuiltIn for ExecuteCommand {
    type Input = Input;
    type Output = ToolOutput;
    const NAME: &'static str = "execute_command";
    const READS_ONLY: bool = false;

    fn example() -> Value {
        json!({"command": "cargo test --workspace", "timeout": 300})
    }

    fn access(&self, input: &Input) -> Access {
        Access::Command {
            facts: gather(&self.0.workspace, &self.0.environment, &input.command),
            command: input.command.clone(),
        }
    }

    async fn run(self: Arc<Self>, input: Input, progress: Progress<'_>) -> Result<ToolOutput, String> {
        let seconds = input.timeout.unwrap_or(DEFAULT_SECONDS).clamp(1, MAX_SECONDS);
        let command = Command::new(input.command, &self.0.helper)
            .env(self.0.environment.iter().cloned())
            .timeout(Duration::from_secs(seconds))
            .captured_bytes(HEAD_BYTES, TAIL_BYTES);
        let (mut out, mut err) = (Decoder::default(), Decoder::default());
        let ran = command
            .run(&self.0.workspace, |stream, bytes| match stream {
                Stream::Stdout => out.push(bytes, progress),
                Stream::Stderr => err.push(bytes, progress),
            })
            .await;
        out.finish(progress);
        err.finish(progress);
        ran.map(|outcome| output(&outcome, seconds)).map_err(|error| format!("{error}."))
    }
}

/// The end, what was printed, and what to do.
fn output(outcome: &CommandOutcome, seconds: u64) -> ToolOutput {
    let mut words = match outcome.end {
        End::Exited(code) => format!("Exit code {code}"),
        End::Signaled(signal) => format!("Ended by signal {signal}"),
        End::TimedOut => format!("Killed after {}, with all that it had started", count_seconds(seconds)),
        End::Cancelled => "Cancelled, with all that it had started".to_owned(),
        _ => "Lost: its supervisor was killed, and what was left of the command too".to_owned(),
    };
    let printed = outcome.output.text();
    let printed = printed.trim_end_matches('\n');
    words.push_str(if printed.is_empty() { ", no output." } else { ". Output:\n" });
    words.push_str(printed);
    if outcome.end == End::TimedOut {
        words.push_str(&format!(
            "\n[If it needs longer, give a timeout of up to {MAX_SECONDS}. If it waits for input, give that on its command line.]"
        ));
    }
    if let survivors @ 1.. = outcome.survivors {
        words.push_str(&format!("\n[{} could not be killed.]", count(survivors as usize, "process")));
    }
    ToolOutput { failed: outcome.end != End::Exited(0), ..ToolOutput::done(words) }
}

fn count_seconds(seconds: u64) -> String {
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
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
