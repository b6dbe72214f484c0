//! Reading again: what a result would repeat word for word is not sent twice.
//!
//! The later result says so in a few words; the earlier one stays as it was sent, so that requests keep their beginning. Versions and
//! times of files play no part: what a tool has really read is held, line by line, against what the model really sees. So a result that
//! a compaction left out, or that the journal took a secret out of, is not the same. After a call of the task's own that may have
//! changed the file, everything comes in full once more. A second identical call gets it in full.

use std::collections::HashMap;

use sabir_call::{Call, CallId, CallResult, Message, MessagePart, ToolResultStatus};
use serde_json::Value;

use super::digest;
use super::transcript::Transcript;
use crate::tool::{CallArguments, ToolOutput};

/// Results of fewer bytes are sent again: the words in their place would save next to nothing.
const MIN_DEDUP_BYTES: usize = 1024;
/// So many results of one file are held against a later one.
const MAX_CANDIDATES: usize = 8;
/// What the words begin with.
const REPEAT_PREFIX: &str = "[Nothing new: ";

/// The results of calls that read, by the tool and what they read.
#[derive(Debug, Default)]
pub(super) struct ReadDedup(HashMap<(String, String), ReadHistory>);

/// What was read of one thing.
#[derive(Debug, Default)]
struct ReadHistory {
    /// The message and the part of results that stand in full, the newest last.
    full_results: Vec<(usize, usize)>,
    /// The arguments of the call that was told last that there is nothing new.
    last_repeat_arguments: Option<CallArguments>,
}

impl Transcript {
    /// What the model is told of a result: the result, or that it sees the same already.
    pub(super) fn dedup_output(&self, call: &Call, output: ToolOutput) -> ToolOutput {
        if output.failed || output.content.len() < MIN_DEDUP_BYTES && output.images.is_empty() {
            return output;
        }
        let Some(reading) = self.read_dedup.0.get(&read_key(call)) else {
            return output;
        };
        if reading.last_repeat_arguments.as_ref() == Some(&call.arguments) {
            return output;
        }
        let seen = reading
            .full_results
            .iter()
            .rev()
            .filter(|(message, _)| *message >= self.view.left_out_count());
        let same = seen
            .filter_map(|at| self.result_at(*at))
            .find_map(|result| repeats_result(&output, result));
        match same {
            Some(note) => ToolOutput::done(repeat_notice(call, note)),
            None => output,
        }
    }

    /// The result that stands for this one, where it says that there is nothing new: a repetition is one whatever its words.
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
        let same_call = |at: &&(usize, usize)| {
            let asked =
                at.0.checked_sub(1)
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

    /// Takes up the results of the turn that has just entered the history. `readers`: the tools that only read.
    pub(super) fn note_readings(&mut self, readers: &[String]) {
        let messages = self.shared_history();
        let [.., asked, answered] = messages.as_slice() else {
            return;
        };
        let number = messages.len().saturating_sub(1);
        let found = asked
            .calls()
            .filter_map(|call| Some((find_result(answered, &call.id)?, call)));
        for ((part, ending, length, again), call) in found {
            if !readers.contains(&call.name) {
                // An edit that failed may well have failed because the words were not at hand.
                for path in digest::call_paths(call) {
                    let names = |subject: &str| {
                        subject == path || subject.starts_with('{') && subject.contains(&path)
                    };
                    self.read_dedup.0.retain(|(_, subject), _| !names(subject));
                }
            } else if ending == ToolResultStatus::Done && (again || length >= MIN_DEDUP_BYTES) {
                let reading = self.read_dedup.0.entry(read_key(call)).or_default();
                if again {
                    reading.last_repeat_arguments = Some(call.arguments.clone());
                } else {
                    reading.last_repeat_arguments = None;
                    reading.full_results.push((number, part));
                    let over = reading.full_results.len().saturating_sub(MAX_CANDIDATES);
                    reading.full_results.drain(..over);
                }
            }
        }
    }

    fn result_at(&self, (message, part): (usize, usize)) -> Option<&CallResult> {
        match self.messages().get(message)?.parts.get(part)? {
            MessagePart::Result(result) => Some(result),
            _ => None,
        }
    }
}

/// The result of that call: which part it is, how it ended, how long it is with its pictures, and whether it refers to another.
fn find_result(message: &Message, id: &CallId) -> Option<(usize, ToolResultStatus, usize, bool)> {
    message
        .parts
        .iter()
        .enumerate()
        .find_map(|(at, part)| match part {
            MessagePart::Result(result) if result.id == *id => {
                let pictures: usize = result.images.iter().map(|image| image.data.len()).sum();
                let again = result.content.starts_with(REPEAT_PREFIX);
                Some((
                    at,
                    result.ending,
                    result.content.len().saturating_add(pictures),
                    again,
                ))
            }
            _ => None,
        })
}

/// What a call reads: its one path, or all that it says.
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

/// Whether a result shows all that the output would: nothing else, or more lines around the same ones. What is given back is the
/// output's own note behind its lines, where it has another than the result.
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
    seen.by_ref().find(|line| *line == Some(first))?;
    let mut rest = lines.lines().skip(1).map(numbered_line);
    rest.all(|line| line.is_some() && seen.next() == Some(line))
        .then_some(note)
}

/// A line with its number, whatever blanks stand before that; `None`: the line has none.
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
        "{REPEAT_PREFIX}all that this would show stands, unchanged, in an earlier result of {}{of} above. Go by that; if you cannot see it, make \
         the same call once more and it comes in full.]{note}",
        call.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(content: &str) -> CallResult {
        let (id, name) = (CallId::new("1"), "read_file".to_owned());
        CallResult {
            id,
            name,
            ending: ToolResultStatus::Done,
            content: content.to_owned(),
            images: Vec::new(),
        }
    }

    #[test]
    fn only_what_stands_there_line_by_line_is_a_repetition() {
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
    fn a_call_is_known_by_its_one_path_or_by_all_it_says() {
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
