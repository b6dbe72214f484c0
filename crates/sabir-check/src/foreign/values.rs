//! Reads the values of foreign arguments: command lines, line ranges, lists of files, choices and
//! todos.
//!
//! Each function returns `None` for a value that has no certain reading.

use serde_json::Value;

use crate::xml_element::{XmlElement, parse_elements};

/// The reason why a foreign call is not converted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The argument that has no counterpart; `None` if it is the tool.
    pub(crate) argument: Option<String>,
    /// Advice on a call that works instead.
    pub(crate) hint: String,
}

/// A range of lines, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineRange {
    pub(crate) first: u64,
    /// The last line; `None` for the end of the file.
    pub(crate) last: Option<u64>,
}

/// A file that a call reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestedFile {
    pub(crate) path: String,
    pub(crate) range: Option<LineRange>,
}

impl Refusal {
    pub(crate) fn of_tool(hint: &str) -> Self {
        Self {
            argument: None,
            hint: hint.to_owned(),
        }
    }

    pub(crate) fn of_argument(name: &str, hint: impl Into<String>) -> Self {
        Self {
            argument: Some(name.to_owned()),
            hint: hint.into(),
        }
    }
}

impl RequestedFile {
    /// Renders the file as `PATH` or `PATH:FIRST-LAST`.
    pub(crate) fn as_path_argument(&self) -> Option<String> {
        let path = Some(self.path.as_str()).filter(|path| !path.contains(':'))?;
        Some(match self.range {
            None => path.to_owned(),
            Some(LineRange {
                first,
                last: Some(last),
            }) => format!("{path}:{first}-{last}"),
            Some(LineRange { .. }) => return None,
        })
    }
}

/// Returns a command line: a text, or words as for `execve`.
pub(crate) fn command_line(value: &Value) -> Option<String> {
    let parsed;
    let words = match value {
        Value::String(text) => match serde_json::from_str(text) {
            // A list that was written between tags.
            Ok(Value::Array(words)) => {
                parsed = words;
                &parsed
            }
            _ => return Some(text.clone()),
        },
        Value::Array(words) => words,
        _ => return None,
    };
    let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
    let words = words.filter(|words| words.first().is_some_and(|word| !word.is_empty()))?;
    if let [shell, option, script] = words.as_slice()
        && matches!(
            *shell,
            "bash" | "sh" | "/bin/bash" | "/bin/sh" | "/usr/bin/bash"
        )
        && matches!(*option, "-c" | "-lc")
    {
        return Some((*script).to_owned());
    }
    let quoted: Vec<String> = words.iter().map(|word| quote_word(word)).collect();
    Some(quoted.join(" "))
}

/// Quotes a word for a POSIX shell.
fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Reads `[1, 50]`, `"1-50"` or `"[1, 50]"`; `-1` as the last line is the end of the file.
pub(crate) fn line_range(value: &Value) -> Option<LineRange> {
    match value {
        Value::Array(ends) => {
            let [first, last] = ends.as_slice() else {
                return None;
            };
            let last = match last.as_i64()? {
                -1 => None,
                last => Some(u64::try_from(last).ok()?),
            };
            checked_range(first.as_u64()?, last)
        }
        Value::String(text) => match serde_json::from_str(text) {
            Ok(ends @ Value::Array(_)) => line_range(&ends),
            _ => {
                let (first, last) = text.trim().split_once('-')?;
                checked_range(first.trim().parse().ok()?, Some(last.trim().parse().ok()?))
            }
        },
        _ => None,
    }
}

fn checked_range(first: u64, last: Option<u64>) -> Option<LineRange> {
    let is_range = first > 0 && last.is_none_or(|last| last >= first);
    is_range.then_some(LineRange { first, last })
}

/// Reads a list of files: elements, paths, or objects with a path and line ranges.
pub(crate) fn requested_files(value: &Value) -> Option<Vec<RequestedFile>> {
    let files = match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(parsed @ (Value::Array(_) | Value::Object(_))) => return requested_files(&parsed),
            _ => {
                let elements = parse_elements(text)?;
                collect_files(elements.iter().map(element_files))?
            }
        },
        Value::Array(items) => collect_files(items.iter().map(object_files))?,
        // `{"file": …}`, the elements as JSON.
        Value::Object(fields) => match (fields.get("file"), fields.len()) {
            (Some(files @ Value::Array(_)), 1) => requested_files(files)?,
            (Some(file), 1) => object_files(file)?,
            _ => return None,
        },
        _ => return None,
    };
    let is_path =
        |file: &RequestedFile| !file.path.is_empty() && !file.path.contains(['*', '?', '\n', '\r']);
    (!files.is_empty() && files.iter().all(is_path)).then_some(files)
}

fn collect_files(
    files: impl Iterator<Item = Option<Vec<RequestedFile>>>,
) -> Option<Vec<RequestedFile>> {
    let all: Option<Vec<Vec<RequestedFile>>> = files.collect();
    Some(all?.into_iter().flatten().collect())
}

/// Reads `<file><path>p</path><line_range>1-50</line_range></file>`.
fn element_files(element: &XmlElement<'_>) -> Option<Vec<RequestedFile>> {
    if element.name != "file" {
        return None;
    }
    let mut path = None;
    let mut ranges = Vec::new();
    for child in element.child_elements()? {
        let text = child.text().trim();
        match child.name {
            "path" if path.is_none() => path = Some(text.to_owned()),
            "line_range" => ranges.push(line_range(&Value::String(text.to_owned()))?),
            _ => return None,
        }
    }
    Some(ranged_files(&path?, ranges))
}

/// Reads a path, or an object with `path` and `line_range` or `line_ranges`.
fn object_files(value: &Value) -> Option<Vec<RequestedFile>> {
    if let Value::String(path) = value {
        return Some(ranged_files(path, Vec::new()));
    }
    let mut path = None;
    let mut ranges = Vec::new();
    for (name, value) in value.as_object()? {
        match (name.as_str(), value) {
            ("path" | "file_path", Value::String(text)) if path.is_none() => path = Some(text),
            (_, Value::Null) => {}
            ("line_range", range) => ranges.push(line_range(range)?),
            ("line_ranges", Value::Array(all)) => {
                for range in all {
                    ranges.push(line_range(range)?);
                }
            }
            _ => return None,
        }
    }
    Some(ranged_files(path?, ranges))
}

fn ranged_files(path: &str, ranges: Vec<LineRange>) -> Vec<RequestedFile> {
    let file = |range| RequestedFile {
        path: path.to_owned(),
        range,
    };
    if ranges.is_empty() {
        vec![file(None)]
    } else {
        ranges.into_iter().map(|range| file(Some(range))).collect()
    }
}

/// Reads answers to choose from: texts, objects that hold one, or elements.
pub(crate) fn choice_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) if text.trim().is_empty() => Some(Vec::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(parsed @ Value::Array(_)) => choice_texts(&parsed),
            _ => {
                let elements = parse_elements(text)?;
                Some(
                    elements
                        .iter()
                        .map(|it| it.text().trim().to_owned())
                        .collect(),
                )
            }
        },
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Some(text.clone()),
                Value::Object(fields) => ["text", "label", "answer", "suggestion", "title"]
                    .iter()
                    .find_map(|key| fields.get(*key)?.as_str())
                    .map(str::to_owned),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Reads a list of one question with its choices.
pub(crate) fn single_question(value: &Value) -> Option<(String, Vec<String>)> {
    if let Value::String(text) = value {
        return match serde_json::from_str(text) {
            Ok(parsed @ Value::Array(_)) => single_question(&parsed),
            _ => None,
        };
    }
    let [only] = value.as_array()?.as_slice() else {
        return None;
    };
    let question = only.get("question")?.as_str()?.to_owned();
    let choices = only.get("options").map_or(Some(Vec::new()), choice_texts)?;
    Some((question, choices))
}

/// Reads a todo list of objects, and renders it as lines with boxes. A text is returned unchanged.
pub(crate) fn todo_text(value: &Value) -> Option<String> {
    let items = match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(parsed @ Value::Array(_)) => return todo_text(&parsed),
            _ => return Some(text.clone()),
        },
        Value::Array(items) => items,
        _ => return None,
    };
    let lines: Option<Vec<String>> = items.iter().map(todo_line).collect();
    Some(lines?.join("\n"))
}

fn todo_line(item: &Value) -> Option<String> {
    let text = ["content", "step", "description", "title", "text"]
        .iter()
        .find_map(|key| item.get(*key)?.as_str())?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let state = item
        .get("status")
        .and_then(Value::as_str)
        .unwrap_or("pending");
    let mark = match state.to_lowercase().replace(['-', ' '], "_").as_str() {
        "pending" | "todo" | "open" | "not_started" => ' ',
        "in_progress" | "active" | "doing" => '-',
        "completed" | "complete" | "done" => 'x',
        _ => return None,
    };
    (!words.is_empty()).then(|| format!("[{mark}] {}", words.join(" ")))
}
