//! Reading again: what a result would repeat word for word is not sent twice.
//!
//! The later result says so in a few words; the earlier one stays as it was sent, so that requests keep their beginning. Versions and
//! times of files play no part: what a tool has really read is held, line by line, against what the model really sees. So a result that
//! a compaction left out, or that the journal took a secret out of, is not the same. After a call of the task's own that may have
//! changed the file, everything comes in full once more. Whoever makes the same call a second time insists, and gets it in full.

use std::collections::HashMap;

use sabir_call::{Call, CallId, CallResult, Ending, Message, Part};
use serde_json::Value;

use super::digest;
use super::past::Past;
use crate::tool::{Arguments, ToolOutput};

/// Results of fewer bytes are sent again: the words in their place would save next to nothing.
const LEAST: usize = 1024;
/// So many results of one file are held against a later one.
const MOST: usize = 8;
/// What the words begin with.
const AGAIN: &str = "[Nothing new: ";

/// The results of calls that read, by the tool and what they read.
#[derive(Debug, Default)]
pub(super) struct Readings(HashMap<(String, String), Reading>);

/// What was read of one thing.
#[derive(Debug, Default)]
struct Reading {
    /// The message and the part of results that stand in full, the newest last.
    full: Vec<(usize, usize)>,
    /// The arguments of the call that was told last that there is nothing new.
    told: Option<Arguments>,
}

impl Past {
    /// What the model is told of a result: the result, or that it sees the same already.
    pub(super) fn unless_seen(&self, call: &Call, output: ToolOutput) -> ToolOutput {
        if output.failed || output.content.len() < LEAST && output.images.is_empty() {
            return output;
        }
        let Some(reading) = self.readings.0.get(&key(call)) else { return output };
        if reading.told.as_ref() == Some(&call.arguments) {
            return output;
        }
        let seen = reading.full.iter().rev().filter(|(message, _)| *message >= self.view.from());
        let same = seen.filter_map(|at| self.result_at(*at)).find_map(|result| repeats(&output, result));
        match same {
            Some(note) => ToolOutput::done(words(call, note)),
            None => output,
        }
    }

    /// The result that stands for this one, where it says that there is nothing new: a repetition is one whatever its words.
    pub(super) fn meant<'a>(&'a self, call: &Call, result: &'a CallResult) -> &'a CallResult {
        let reading = self.readings.0.get(&key(call)).filter(|_| result.content.starts_with(AGAIN));
        let full = reading.into_iter().flat_map(|reading| reading.full.iter().rev());
        let same_call = |at: &&(usize, usize)| {
            let asked = at.0.checked_sub(1).and_then(|before| self.messages().get(before));
            let id = self.result_at(**at).map(|result| &result.id);
            asked.is_some_and(|asked| asked.calls().any(|one| Some(&one.id) == id && one.arguments == call.arguments))
        };
        full.clone().find(same_call).and_then(|at| self.result_at(*at)).unwrap_or(result)
    }

    /// Takes up the results of the turn that has just entered the history. `readers`: the tools that only read.
    pub(super) fn note_readings(&mut self, readers: &[String]) {
        let messages = self.shared_past();
        let [.., asked, answered] = messages.as_slice() else { return };
        let number = messages.len().saturating_sub(1);
        let found = asked.calls().filter_map(|call| Some((found(answered, &call.id)?, call)));
        for ((part, ending, length, again), call) in found {
            if !readers.contains(&call.name) {
                // An edit that failed may well have failed because the words were not at hand.
                for path in digest::paths(call) {
                    let names = |subject: &str| subject == path || subject.starts_with('{') && subject.contains(&path);
                    self.readings.0.retain(|(_, subject), _| !names(subject));
                }
            } else if ending == Ending::Done && (again || length >= LEAST) {
                let reading = self.readings.0.entry(key(call)).or_default();
                if again {
                    reading.told = Some(call.arguments.clone());
                } else {
                    reading.told = None;
                    reading.full.push((number, part));
                    let over = reading.full.len().saturating_sub(MOST);
                    reading.full.drain(..over);
                }
            }
        }
    }

    fn result_at(&self, (message, part): (usize, usize)) -> Option<&CallResult> {
        match self.messages().get(message)?.parts.get(part)? {
            Part::Result(result) => Some(result),
            _ => None,
        }
    }
}

/// The result of that call: which part it is, how it ended, how long it is with its pictures, and whether it refers to another.
fn found(message: &Message, id: &CallId) -> Option<(usize, Ending, usize, bool)> {
    message.parts.iter().enumerate().find_map(|(at, part)| match part {
        Part::Result(result) if result.id == *id => {
            let pictures: usize = result.images.iter().map(|image| image.data.len()).sum();
            let again = result.content.starts_with(AGAIN);
            Some((at, result.ending, result.content.len().saturating_add(pictures), again))
        }
        _ => None,
    })
}

/// What a call reads: its one path, or all that it says.
fn key(call: &Call) -> (String, String) {
    let mut paths = digest::paths(call);
    let is_lines = |name: &str| matches!(name, "path" | "start_line" | "end_line");
    let one = call.arguments.keys().all(|name| is_lines(name)).then(|| paths.pop()).flatten();
    let subject = one.unwrap_or_else(|| Value::Object(call.arguments.clone()).to_string());
    (call.name.clone(), subject)
}

/// Whether a result shows all that the output would: nothing else, or more lines around the same ones. What is given back is the
/// output's own note behind its lines, where it has another than the result.
fn repeats<'a>(output: &'a ToolOutput, result: &CallResult) -> Option<&'a str> {
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
    let mut seen = result.content.lines().map(numbered);
    let first = lines.lines().next().and_then(numbered)?;
    seen.by_ref().find(|line| *line == Some(first))?;
    let mut rest = lines.lines().skip(1).map(numbered);
    rest.all(|line| line.is_some() && seen.next() == Some(line)).then_some(note)
}

/// A line with its number, whatever blanks stand before that; `None`: the line has none.
fn numbered(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(' ');
    let (number, _) = line.split_once(" |")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(line)
}

fn words(call: &Call, note: &str) -> String {
    let of = match digest::paths(call).as_slice() {
        [path] => format!(" of `{path}`"),
        _ => String::new(),
    };
    let note = if note.is_empty() { String::new() } else { format!("\n{note}") };
    format!(
        "{AGAIN}all that this would show stands, unchanged, in an earlier result of {}{of} above. Go by that; if you cannot see it, make \
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
        CallResult { id, name, ending: Ending::Done, content: content.to_owned(), images: Vec::new() }
    }

    #[test]
    fn only_what_stands_there_line_by_line_is_a_repetition() {
        let check = |now: &str, then: &str, expected: Option<&str>| {
            assert_eq!(repeats(&ToolOutput::done(now), &result(then)), expected, "{now}");
        };
        check("a\nb", "a\nb", Some(""));
        check("a", "a\nb", None);
        let whole = " 8 | a\n 9 | a\n10 | a\n11 |   b";
        check("8 | a\n9 | a\n[Lines 8 to 9 of 11.]", whole, Some("[Lines 8 to 9 of 11.]"));
        check("10 | a\n11 |   b", whole, Some(""));
        check("11 | b", whole, None);
        check("11 |   b\n12 | c", whole, None);
        check(" 8 | a\n10 | a", whole, None);
        check("7 | a", whole, None);
        check("8 | a\nx", whole, None);
        check("[Lines 8 to 9 of 11.]", whole, None);
        let picture = sabir_call::Image { media_type: "image/png".to_owned(), data: "aGk=".to_owned() };
        let output = ToolOutput { images: vec![picture], ..ToolOutput::done("a") };
        assert_eq!(repeats(&output, &result("a")), None);
    }

    #[test]
    fn a_call_is_known_by_its_one_path_or_by_all_it_says() {
        let key = |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            key(&Call { id: CallId::new("1"), name: "read_file".to_owned(), arguments, dialect: None }).1
        };
        assert_eq!(key(json!({"path": "a.rs", "start_line": 3})), "a.rs");
        assert_eq!(key(json!({"path": "a.rs", "more_paths": ["b"]})), r#"{"path":"a.rs","more_paths":["b"]}"#);
        assert_eq!(key(json!({"regex": "x"})), r#"{"regex":"x"}"#);
    }
}
