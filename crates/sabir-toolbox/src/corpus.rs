//! Collects the examples of all specs as a corpus, and scores other parsers with it: the command `corpus`.
//!
//! A case is a text with the declared tools and the expected calls: those that may run, with typed
//! arguments. A parser reads cases as JSON lines and answers each with one line:
//! `{"id": …, "calls": [{"name": …, "arguments": {…}}]}`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Event, ToolSet};
use sabir_check::CallState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::ToolboxError;
use crate::parse::{ParseOptions, parse_text};
use crate::report::{Report, write_json_line};

/// The version of the format. It changes when a field is renamed or removed, or its meaning changes.
pub const CORPUS_VERSION: u32 = 1;

/// A case of the corpus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorpusCase {
    /// The version of the format.
    pub version: u32,
    /// The dialect and the line of the example in its spec: `hermes:24`.
    pub id: String,
    /// The dialect whose spec has the example.
    pub dialect: String,
    /// The dialect that was chosen; `auto` for all of them.
    pub selection: String,
    /// The tools that are declared.
    pub tools: Value,
    /// The text that the model wrote.
    pub text: String,
    /// The expected reading; parsers do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedReading>,
}

/// The expected result for a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectedReading {
    /// The calls that may run, in their order.
    pub calls: Vec<CorpusCall>,
    /// The number of calls that were cut off or break the schema, and must not run.
    pub refused: usize,
    /// The words beside the calls.
    pub text: String,
}

/// A call that may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorpusCall {
    /// The tool's name.
    pub name: String,
    /// The typed arguments.
    pub arguments: Map<String, Value>,
}

/// The answer of a parser to a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorpusAnswer {
    /// The id of the case.
    pub id: String,
    /// The calls that the parser would run.
    pub calls: Vec<CorpusCall>,
}

/// Returns all cases, in the order of the dialects and their specs.
pub fn collect_cases() -> Vec<CorpusCase> {
    DialectSet::built_in().iter().flat_map(cases_of).collect()
}

fn cases_of(dialect: &Dialect) -> Vec<CorpusCase> {
    let blocks = fenced_blocks(dialect.spec);
    let Some(tools) = blocks.iter().find(|block| block.info == "json tools") else {
        return Vec::new();
    };
    let tools: Value = serde_json::from_str(&tools.text).unwrap_or_default();
    let inputs = blocks.iter().filter_map(|block| {
        let selection = block.info.strip_prefix("input")?.trim();
        let mut case = CorpusCase {
            version: CORPUS_VERSION,
            id: format!("{}:{}", dialect.name, block.line),
            dialect: dialect.name.to_owned(),
            selection: if selection.is_empty() {
                dialect.name.to_owned()
            } else {
                selection.to_owned()
            },
            tools: tools.clone(),
            // Carriage returns are visible in the specs.
            text: block.text.replace("\\r", "\r"),
            expected: None,
        };
        case.expected = read_case(&case);
        Some(case)
    });
    inputs.collect()
}

/// Reads a case as Sabir does; `None` if its tools or its dialect cannot be used.
fn read_case(case: &CorpusCase) -> Option<ExpectedReading> {
    let tools = ToolSet::from_json(&case.tools.to_string()).ok()?;
    let mut options = ParseOptions::new(tools);
    if case.selection != "auto" {
        options.dialect = Some(options.dialects.find(&case.selection)?);
    }
    let parsed = parse_text(case.text.as_bytes(), &options, &mut |_: Event<'_>| {});
    let calls = parsed
        .checked
        .iter()
        .filter(|call| call.state == CallState::Complete)
        .map(|call| CorpusCall {
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
    // The calls must come in the order of the text: calls of a message may depend
    // on each other.
    let calls: Vec<_> = calls.collect();
    Some(ExpectedReading {
        refused: parsed.checked.len() - calls.len(),
        calls,
        text: parsed.draft.text(),
    })
}

/// Answers a case, as any parser would.
///
/// # Errors
/// The line is no case.
pub fn answer_line(line: &str) -> Result<CorpusAnswer, ToolboxError> {
    let case: CorpusCase = serde_json::from_str(line).map_err(ToolboxError::CorpusCase)?;
    Ok(CorpusAnswer {
        // A case that cannot be read is answered without calls, as any other parser must do. The
        // expected calls are never read.
        calls: read_case(&case).map(|read| read.calls).unwrap_or_default(),
        id: case.id,
    })
}

/// Writes the cases as JSON lines. `is_blind` leaves the expected readings out, for a parser under test.
pub fn write_cases(cases: &[CorpusCase], is_blind: bool) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for case in cases {
        let mut case = case.clone();
        case.expected = case.expected.filter(|_| !is_blind);
        write_json_line(&case, &mut lines)?;
    }
    Ok(lines)
}

/// A fenced block of a spec.
struct FencedBlock {
    info: String,
    text: String,
    line: usize,
}

/// Returns the fenced blocks of a Markdown text, without the line feed before the closing fence.
fn fenced_blocks(markdown: &str) -> Vec<FencedBlock> {
    let mut blocks: Vec<FencedBlock> = Vec::new();
    let mut open: Option<String> = None;
    for (at, line) in markdown.lines().enumerate() {
        match &open {
            // Only a fence of the same length closes: examples contain shorter ones.
            Some(fence) if line.trim_end() == fence => {
                open = None;
                if let Some(block) = blocks.last_mut() {
                    block.text.pop();
                }
            }
            Some(_) => {
                if let Some(block) = blocks.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            None => {
                let info = line.trim_start_matches('`');
                let ticks = line.len() - info.len();
                if ticks >= 3 {
                    open = Some("`".repeat(ticks));
                    blocks.push(FencedBlock {
                        info: info.trim().to_owned(),
                        text: String::new(),
                        line: at + 1,
                    });
                }
            }
        }
    }
    blocks
}

/// An answer as it is scored. An invalid call, such as one whose arguments are a string, is kept as `None`: it counts as a call, but never
/// as an expected one.
#[derive(Debug, Clone, PartialEq)]
struct ScoredAnswer {
    id: String,
    calls: Vec<Option<CorpusCall>>,
}

impl ScoredAnswer {
    /// Reads a line; `None` if it is no answer.
    fn from_line(line: &str) -> Option<Self> {
        let answer: Value = serde_json::from_str(line).ok()?;
        let calls = answer.get("calls")?.as_array()?;
        Some(Self {
            id: answer.get("id")?.as_str()?.to_owned(),
            calls: calls
                .iter()
                .map(|call| CorpusCall::deserialize(call).ok())
                .collect(),
        })
    }

    fn is_exact(&self, expected: &[CorpusCall]) -> bool {
        self.calls
            .iter()
            .map(Option::as_ref)
            .eq(expected.iter().map(Some))
    }
}

/// Counts cases of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExactCount {
    /// The cases.
    pub cases: usize,
    /// The cases with exactly the expected calls.
    pub exact: usize,
}

/// The score of a parser in one dialect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CorpusScore {
    /// The cases.
    pub cases: usize,
    /// The cases with exactly the expected calls.
    pub exact: usize,
    /// The cases in which calls are expected.
    pub with_calls: ExactCount,
    /// The cases in which no call may run. A parser that never finds a call has all of them right.
    pub without_calls: ExactCount,
    /// The cases in which calls are missing.
    pub missed: usize,
    /// The cases with a call where none may run, or with more calls than expected.
    pub invented: usize,
    /// The cases with as many calls as expected, but other ones.
    pub different: usize,
    /// The cases without an answer.
    pub unanswered: usize,
}

/// The scores of a parser.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CorpusReport {
    /// The version of the corpus.
    pub version: u32,
    /// All cases together.
    pub total: CorpusScore,
    /// The scores by dialect.
    pub dialects: BTreeMap<String, CorpusScore>,
    /// The ids of the cases that were not exact.
    pub failed: Vec<String>,
}

impl CorpusScore {
    fn count(&mut self, expected: &[CorpusCall], answer: Option<&ScoredAnswer>) {
        let kind = match expected.is_empty() {
            true => &mut self.without_calls,
            false => &mut self.with_calls,
        };
        self.cases += 1;
        kind.cases += 1;
        let Some(answer) = answer else {
            self.unanswered += 1;
            return;
        };
        if answer.is_exact(expected) {
            self.exact += 1;
            kind.exact += 1;
        // Not `different`: an extra call may run something, which is worse than a missing one.
        } else if answer.calls.len() > expected.len() {
            self.invented += 1;
        } else if answer.calls.len() < expected.len() {
            self.missed += 1;
        } else {
            self.different += 1;
        }
    }
}

/// Scores the answers of a parser, one JSON object a line in any order. Other lines are ignored, since programs also log.
pub fn score_answers(cases: &[CorpusCase], output: &str) -> CorpusReport {
    let answers: BTreeMap<String, ScoredAnswer> = output
        .lines()
        .filter_map(ScoredAnswer::from_line)
        // Of several answers to a case the last one counts.
        .map(|answer| (answer.id.clone(), answer))
        .collect();
    let mut report = CorpusReport {
        version: CORPUS_VERSION,
        ..CorpusReport::default()
    };
    for case in cases {
        let expected = case.expected.as_ref().map_or(&[][..], |read| &read.calls);
        let answer = answers.get(&case.id);
        report.total.count(expected, answer);
        let score = report.dialects.entry(case.dialect.clone()).or_default();
        score.count(expected, answer);
        if !answer.is_some_and(|answer| answer.is_exact(expected)) {
            report.failed.push(case.id.clone());
        }
    }
    report
}

impl Report for CorpusReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "| dialect | exact, of those with calls | exact, of those without | missed | invented | different | unanswered |\n\
             | --- | --- | --- | --- | --- | --- | --- |"
        )?;
        let total = [("all", &self.total)];
        let dialects = self.dialects.iter();
        for (name, score) in dialects
            .map(|(name, score)| (name.as_str(), score))
            .chain(total)
        {
            writeln!(
                out,
                "| {name} | {} of {} | {} of {} | {} | {} | {} | {} |",
                score.with_calls.exact,
                score.with_calls.cases,
                score.without_calls.exact,
                score.without_calls.cases,
                score.missed,
                score.invented,
                score.different,
                score.unanswered
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_specs_is_a_case() {
        let cases = collect_cases();
        let inputs = |spec: &str| {
            spec.lines()
                .filter(|line| {
                    line.trim_start_matches('`').starts_with("input") && line.starts_with("```")
                })
                .count()
        };
        let examples: usize = DialectSet::built_in()
            .iter()
            .map(|dialect| inputs(dialect.spec))
            .sum();
        assert_eq!(cases.len(), examples);
        assert!(cases.iter().all(|case| case.expected.is_some()));
        let mut ids: Vec<_> = cases.iter().map(|case| &case.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), cases.len());
        let calls: usize = cases
            .iter()
            .filter_map(|case| case.expected.as_ref())
            .map(|read| read.calls.len())
            .sum();
        assert!(
            calls > cases.len() / 2,
            "{calls} calls in {} cases",
            cases.len()
        );
    }

    #[test]
    fn answers_are_scored_by_their_calls() {
        let cases = collect_cases();
        let blind = String::from_utf8(write_cases(&cases, true).unwrap()).unwrap();
        assert!(!blind.contains("\"expected\""));
        let answers: Vec<String> = blind
            .lines()
            .map(|line| serde_json::to_string(&answer_line(line).unwrap()).unwrap())
            .collect();
        let report = score_answers(&cases, &answers.join("\n"));
        assert_eq!(report.total.exact, cases.len());
        assert_eq!(report.failed, [""; 0]);

        let empty: Vec<String> = cases
            .iter()
            .skip(1)
            .map(|case| format!("{{\"id\": {:?}, \"calls\": []}}", case.id))
            .collect();
        let report = score_answers(&cases, &format!("a line of a log\n{}", empty.join("\n")));
        assert_eq!(report.total.unanswered, 1);
        assert_eq!(report.total.invented + report.total.different, 0);
        assert!(
            report.total.missed > 100 && report.total.exact > 10,
            "{report:?}"
        );
        // A parser that never finds a call must not look like half a parser.
        assert_eq!(report.total.with_calls.exact, 0);
        let without = report.total.without_calls;
        assert_eq!(report.total.exact, without.exact);
        assert_eq!(
            report.total.with_calls.cases + without.cases,
            report.total.cases
        );
        let mut table = Vec::new();
        report.write_text(&mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        let row = format!(
            "| all | 0 of {} | {} of {} |",
            report.total.with_calls.cases, without.exact, without.cases
        );
        assert!(table.contains(&row), "{table}");
        assert!(answer_line("{}").is_err());
    }

    #[test]
    fn a_call_whose_arguments_are_a_string_is_different() {
        let cases = collect_cases();
        let is_single = |case: &&CorpusCase| {
            let expected = case.expected.as_ref();
            expected.is_some_and(|expected| expected.calls.len() == 1)
        };
        let case = cases.iter().find(is_single).unwrap().clone();
        let call = &case.expected.as_ref().unwrap().calls[0];
        let arguments = serde_json::to_string(&call.arguments).unwrap();
        let answer = serde_json::json!({"id": case.id, "calls": [{"name": call.name, "arguments": arguments}]});
        let report = score_answers(&[case], &answer.to_string());
        assert_eq!(report.total.different, 1, "{report:?}");
        assert_eq!(report.failed.len(), 1);
    }
}
