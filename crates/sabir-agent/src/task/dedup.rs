//! Deduplication of readings: a result that would repeat an earlier one word for word is not sent
//! twice.
//!
//! The later result says so in a few words; the earlier one stays as it was sent, so that requests
//! keep their beginning. Versions and times of files play no part: what a tool has really read is
//! compared, line by line, with what the model really sees. So a result that a compaction left out,
//! or that was redacted in the journal, does not count. After a call of the task that may have
//! changed the file, everything comes in full once more. A second identical call gets it in full as
//! well.

use std::collections::HashMap;

use sabir_call::{Call, CallId, CallResult, Message, MessagePart, ToolResultStatus};
use serde_json::Value;

use super::digest;
use super::transcript::Transcript;
use crate::tool::{CallArguments, ToolOutput};

/// The minimum size of a deduplicated result, in bytes. For a shorter one the notice would save almost nothing.
const MIN_DEDUP_BYTES: usize = 1024;
/// The number of earlier results that a later one is compared with.
const MAX_CANDIDATES: usize = 8;
/// The beginning of the notice.
const REPEAT_PREFIX: &str = "[Nothing new: ";

/// The results of reading calls, by tool and subject.
#[derive(Debug, Default)]
pub(super) struct ReadDedup(HashMap<(String, String), ReadHistory>);

/// The place of a result in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResultPosition {
    /// The index of the message.
    message: usize,
    /// The index of the part in the message.
    part: usize,
}

/// A result as it is found in a message.
struct FoundResult {
    /// The index of its part.
    part: usize,
    ending: ToolResultStatus,
    /// The bytes of its text and its images.
    bytes: usize,
    /// True if it is a notice that refers to another result.
    is_notice: bool,
}

/// The results of reading one subject.
#[derive(Debug, Default)]
struct ReadHistory {
    /// The results in full, the newest last.
    full_results: Vec<ResultPosition>,
    /// The arguments of the call that last got a notice instead of its result.
    last_repeat_arguments: Option<CallArguments>,
}

impl Transcript {
    /// Returns the output for the model: the notice if an earlier result shows the same, else the
    /// output itself.
    pub(super) fn dedup_output(&self, call: &Call, output: ToolOutput) -> ToolOutput {
        if output.failed || output.content.len() < MIN_DEDUP_BYTES && output.images.is_empty() {
            return output;
        }
        let Some(reading) = self.read_dedup.0.get(&read_key(call)) else {
            return output;
        };
        // The model repeats the same request, so it cannot see the earlier result and gets the full
        // output.
        if reading.last_repeat_arguments.as_ref() == Some(&call.arguments) {
            return output;
        }
        let seen = reading
            .full_results
            .iter()
            .rev()
            // Results before the cut are no longer in the requests.
            .filter(|at| at.message >= self.view.left_out_count());
        let same = seen
            .filter_map(|at| self.result_at(*at))
            .find_map(|result| repeats_result(&output, result));
        match same {
            Some(note) => ToolOutput::done(repeat_notice(call, note)),
            None => output,
        }
    }

    /// Returns the result that a notice refers to, or the result itself. A repetition thus counts even if a notice replaced its text.
    pub(super) fn original_result<'a>(
        &'a self,
        call: &Call,
        result: &'a CallResult,
    ) -> &'a CallResult {
        let reading = self
            .read_dedup
            .0
            .get(&read_key(call))
            .filter(|_| result.content.starts_with(REPEAT_PREFIX));
        let full = reading
            .into_iter()
            .flat_map(|reading| reading.full_results.iter().rev());
        let same_call = |at: &&ResultPosition| {
            let asked = at
                .message
                .checked_sub(1)
                .and_then(|before| self.messages().get(before));
            let id = self.result_at(**at).map(|result| &result.id);
            asked.is_some_and(|asked| {
                asked
                    .calls()
                    .any(|one| Some(&one.id) == id && one.arguments == call.arguments)
            })
        };
        full.clone()
            .find(same_call)
            .and_then(|at| self.result_at(*at))
            .unwrap_or(result)
    }

    /// Notes the results of the turn that has just entered the history. `readers` are the tools
    /// that only read.
    pub(super) fn note_readings(&mut self, readers: &[String]) {
        let messages = self.shared_history();
        let [.., asked, answered] = messages.as_slice() else {
            return;
        };
        let number = messages.len().saturating_sub(1);
        let found = asked
            .calls()
            .filter_map(|call| Some((find_result(answered, &call.id)?, call)));
        for (result, call) in found {
            if !readers.contains(&call.name) {
                // An edit may well have failed because the model did not have the text.
                for path in digest::call_paths(call) {
                    let names = |subject: &str| {
                        subject == path || subject.starts_with('{') && subject.contains(&path)
                    };
                    self.read_dedup.0.retain(|(_, subject), _| !names(subject));
                }
            } else if result.ending == ToolResultStatus::Done
                && (result.is_notice || result.bytes >= MIN_DEDUP_BYTES)
            {
                let reading = self.read_dedup.0.entry(read_key(call)).or_default();
                if result.is_notice {
                    reading.last_repeat_arguments = Some(call.arguments.clone());
                } else {
                    reading.last_repeat_arguments = None;
                    reading.full_results.push(ResultPosition {
                        message: number,
                        part: result.part,
                    });
                    let over = reading.full_results.len().saturating_sub(MAX_CANDIDATES);
                    reading.full_results.drain(..over);
                }
            }
        }
    }

    fn result_at(&self, at: ResultPosition) -> Option<&CallResult> {
        match self.messages().get(at.message)?.parts.get(at.part)? {
            MessagePart::Result(result) => Some(result),
            _ => None,
        }
    }
}

/// Finds the result of a call in a message.
fn find_result(message: &Message, id: &CallId) -> Option<FoundResult> {
    message
        .parts
        .iter()
        .enumerate()
        .find_map(|(index, part)| match part {
            MessagePart::Result(result) if result.id == *id => {
                let images: usize = result.images.iter().map(|image| image.data.len()).sum();
                Some(FoundResult {
                    part: index,
                    ending: result.ending,
                    bytes: result.content.len().saturating_add(images),
                    is_notice: result.content.starts_with(REPEAT_PREFIX),
                })
            }
            _ => None,
        })
}

/// Returns the tool and the subject of a reading call: its one path, or else all its arguments.
fn read_key(call: &Call) -> (String, String) {
    let mut paths = digest::call_paths(call);
    let is_lines = |name: &str| matches!(name, "path" | "start_line" | "end_line");
    let one = call
        .arguments
        .keys()
        .all(|name| is_lines(name))
        .then(|| paths.pop())
        .flatten();
    let subject = one.unwrap_or_else(|| Value::Object(call.arguments.clone()).to_string());
    (call.name.clone(), subject)
}

/// Compares an output with an earlier result. If the result shows all its lines, maybe among
/// others, returns the note behind the output's lines that the result does not have (empty if there
/// is none).
fn repeats_result<'a>(output: &'a ToolOutput, result: &CallResult) -> Option<&'a str> {
    if output.images != result.images {
        return None;
    }
    if output.content == result.content {
        return Some("");
    }
    let is_note = |line: &str| line.starts_with('[') && line.ends_with(']');
    let (lines, note) = match output.content.rsplit_once('\n') {
        Some((lines, note)) if is_note(note) => (lines, note),
        _ => (output.content.as_str(), ""),
    };
    let mut seen = result.content.lines().map(numbered_line);
    let first = lines.lines().next().and_then(numbered_line)?;
    // The lines must be consecutive in both, so a gap in the earlier result is no repetition.
    seen.by_ref().find(|line| *line == Some(first))?;
    let mut rest = lines.lines().skip(1).map(numbered_line);
    rest.all(|line| line.is_some() && seen.next() == Some(line))
        .then_some(note)
}

/// Returns a line with its number but without the blanks before it; `None` if it has no number.
fn numbered_line(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(' ');
    let (number, _) = line.split_once(" |")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(line)
}

fn repeat_notice(call: &Call, note: &str) -> String {
    let of = match digest::call_paths(call).as_slice() {
        [path] => format!(" of `{path}`"),
        _ => String::new(),
    };
    let note = if note.is_empty() {
        String::new()
    } else {
        format!("\n{note}")
    };
    format!(
        "{REPEAT_PREFIX}all that this would show is in an earlier result of {}{of} above, unchanged. Go by that; if you cannot see it, make \
         the same call once more and it comes in full.]{note}",
        call.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(content: &str) -> CallResult {
        CallResult {
            id: CallId::new("1"),
            name: "read_file".to_owned(),
            ending: ToolResultStatus::Done,
            content: content.to_owned(),
            images: Vec::new(),
        }
    }

    #[test]
    fn only_lines_of_the_earlier_result_are_a_repetition() {
        let check = |now: &str, then: &str, expected: Option<&str>| {
            assert_eq!(
                repeats_result(&ToolOutput::done(now), &result(then)),
                expected,
                "{now}"
            );
        };
        check("a\nb", "a\nb", Some(""));
        check("a", "a\nb", None);
        let whole = " 8 | a\n 9 | a\n10 | a\n11 |   b";
        check(
            "8 | a\n9 | a\n[Lines 8 to 9 of 11.]",
            whole,
            Some("[Lines 8 to 9 of 11.]"),
        );
        check("10 | a\n11 |   b", whole, Some(""));
        check("11 | b", whole, None);
        check("11 |   b\n12 | c", whole, None);
        check(" 8 | a\n10 | a", whole, None);
        check("7 | a", whole, None);
        check("8 | a\nx", whole, None);
        check("[Lines 8 to 9 of 11.]", whole, None);
        let picture = sabir_call::Image {
            media_type: "image/png".to_owned(),
            data: "aGk=".to_owned(),
        };
        let output = ToolOutput {
            images: vec![picture],
            ..ToolOutput::done("a")
        };
        assert_eq!(repeats_result(&output, &result("a")), None);
    }

    #[test]
    fn read_keys_are_the_only_path_or_all_arguments() {
        let key = |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            read_key(&Call {
                id: CallId::new("1"),
                name: "read_file".to_owned(),
                arguments,
                dialect: None,
            })
            .1
        };
        assert_eq!(key(json!({"path": "a.rs", "start_line": 3})), "a.rs");
        assert_eq!(
            key(json!({"path": "a.rs", "more_paths": ["b"]})),
            r#"{"path":"a.rs","more_paths":["b"]}"#
        );
        assert_eq!(key(json!({"regex": "x"})), r#"{"regex":"x"}"#);
    }
}
