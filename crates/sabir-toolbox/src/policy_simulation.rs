//! Decides again on the calls of a past task: the command `policy simulate`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sabir_agent::{DecisionMaker, Record, control};
use sabir_call::{Call, CallId, MessagePart};
use sabir_policy::{Access, PolicyRules, Verdict};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::policy::{PolicyReport, verdict_word};
use crate::report::Report;
use crate::text::{count_noun, quote_short};

/// Decides on the calls of these records that passed the checks. Control calls are left out, because no rule concerns them.
///
/// `find_access` returns what a call would touch as the workspace is now, or `None` for a tool that is unknown here, such as one of
/// an MCP server.
pub fn simulate_calls<'a>(
    records: &'a [Record],
    rules: &PolicyRules,
    find_access: impl Fn(&Call) -> Option<Access>,
) -> SimulationReport<'a> {
    let mut calls = Vec::new();
    let mut verdicts = Vec::new();
    for call in passed_calls(records) {
        // Control calls touch nothing and have no tool, so they are distinguished from tools that
        // no longer exist.
        let decision = match find_access(call) {
            Some(access) => Some(rules.decide(&access)),
            None if control::is_control(&call.name) => continue,
            None => None,
        };
        verdicts.push(decision.as_ref().map(|decision| decision.verdict));
        calls.push(SimulatedCall {
            call: &call.id,
            tool: &call.name,
            arguments: &call.arguments,
            was: past_outcome(records, call),
            judgement: decision.as_ref().map(PolicyReport::new),
        });
    }
    let proposals = count_proposals(&calls);
    SimulationReport {
        calls,
        counts: VerdictCounts::new(&verdicts),
        proposals,
    }
}

/// The report of `policy simulate`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulationReport<'a> {
    /// The calls, in the order of the task.
    pub calls: Vec<SimulatedCall<'a>>,
    /// The number of calls by verdict.
    pub counts: VerdictCounts,
    /// The rules that would have answered questions, each with the number of those questions.
    pub proposals: BTreeMap<String, usize>,
}

/// A call, its past outcome, and the current decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedCall<'a> {
    /// The id of the call.
    pub call: &'a CallId,
    /// The name of the tool.
    pub tool: &'a str,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
    /// The past outcome, as a phrase.
    pub was: &'static str,
    /// The decision; `None` for an unknown tool.
    pub judgement: Option<PolicyReport>,
}

/// The number of calls by verdict. Serialized as an object, with calls without a decision as `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictCounts([(&'static str, usize); 4]);

impl VerdictCounts {
    fn new(verdicts: &[Option<Verdict>]) -> Self {
        let kinds = [
            Some(Verdict::Allow),
            Some(Verdict::Ask),
            Some(Verdict::Deny),
            None,
        ];
        Self(kinds.map(|kind| {
            let count = verdicts.iter().filter(|verdict| **verdict == kind).count();
            (kind.map_or("unknown", verdict_word), count)
        }))
    }
}

impl Serialize for VerdictCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

impl Report for SimulationReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in &self.calls {
            // The argument that says best what the call was about.
            let subject = ["command", "path", "url"]
                .iter()
                .find_map(|name| row.arguments.get(*name)?.as_str());
            let verdict = row.judgement.as_ref().map_or("?", |report| report.verdict);
            writeln!(
                out,
                "{verdict:<5}  was {:<14}  {} {}",
                row.was,
                row.tool,
                quote_short(subject.unwrap_or_default())
            )?;
            match &row.judgement {
                Some(report) if report.verdict == verdict_word(Verdict::Allow) => {}
                Some(report) => writeln!(out, "       {}", report.reason)?,
                None => writeln!(
                    out,
                    "       what this tool touches is not known here: its server is not asked"
                )?,
            }
        }
        let counts = self.counts.0.map(|(name, count)| format!("{name} {count}"));
        writeln!(
            out,
            "{}: {}",
            count_noun(self.calls.len(), "call"),
            counts.join(", ")
        )?;
        for (proposal, count) in &self.proposals {
            writeln!(
                out,
                "--approve '{proposal}' would have answered {}",
                count_noun(*count, "question")
            )?;
        }
        Ok(())
    }
}

/// Returns the calls that passed the checks.
fn passed_calls(records: &[Record]) -> impl Iterator<Item = &Call> {
    records
        .iter()
        .filter_map(|record| {
            if let Record::Answered(answered) = record {
                Some(answered)
            } else {
                None
            }
        })
        .flat_map(|answered| {
            let passed = |call: &&Call| {
                answered
                    .checks
                    .iter()
                    .any(|check| check.call == call.id && check.passed)
            };
            answered
                .parts
                .iter()
                .filter_map(|part| {
                    if let MessagePart::Call(call) = part {
                        Some(call)
                    } else {
                        None
                    }
                })
                .filter(passed)
        })
}

/// Describes the past outcome of a call.
fn past_outcome(records: &[Record], call: &Call) -> &'static str {
    let judged = records.iter().find_map(|record| match record {
        Record::Judged {
            call: id,
            verdict,
            by,
            ..
        } if *id == call.id => Some((*verdict, *by)),
        _ => None,
    });
    match judged {
        // The user's own word counts before the verdict of the rules that asked for it.
        Some((Verdict::Allow, DecisionMaker::User)) => "asked, allowed",
        Some((_, DecisionMaker::User)) => "asked, denied",
        Some((Verdict::Deny, _)) => "denied",
        // It ran without the user being asked.
        _ if records
            .iter()
            .any(|record| matches!(record, Record::Running { call: id, .. } if *id == call.id)) =>
        {
            "unasked"
        }
        _ => "not run",
    }
}

/// Counts the questions that each proposed rule would have answered.
fn count_proposals(calls: &[SimulatedCall<'_>]) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    let reports = calls.iter().filter_map(|row| row.judgement.as_ref());
    for proposal in reports.flat_map(|report| &report.proposals) {
        // One question can have several proposals, one for each part that asks.
        *counted.entry(proposal.clone()).or_default() += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use sabir_agent::{AssistantTurn, CallCheck};
    use sabir_policy::CommandFacts;
    use serde_json::json;

    use super::*;

    /// An answer with a call of each tool, all of which passed the checks.
    fn answer(tools: &[&str]) -> Record {
        let ids = (0..).map(|at| CallId::new(format!("call_{at}")));
        let calls: Vec<Call> = tools
            .iter()
            .zip(ids)
            .map(|(name, id)| Call {
                id,
                name: (*name).to_owned(),
                arguments: Map::from_iter([("command".to_owned(), json!("touch a"))]),
                dialect: None,
            })
            .collect();
        Record::Answered(AssistantTurn {
            turn: 1,
            checks: calls
                .iter()
                .map(|call| CallCheck {
                    call: call.id.clone(),
                    passed: true,
                    repairs: Vec::new(),
                    faults: Vec::new(),
                    feedback: None,
                    recovered_from_text: false,
                    echo_of: None,
                    wrapped: Vec::new(),
                })
                .collect(),
            parts: calls.into_iter().map(MessagePart::Call).collect(),
            faults: Vec::new(),
            usage: sabir_call::Usage::default(),
            estimate: sabir_call::Usage::default(),
            cost: sabir_call::Cost::UNKNOWN,
            stop: None,
            feedback: None,
        })
    }

    #[test]
    fn unknown_tools_are_counted_and_control_calls_are_not() {
        let records = [answer(&["execute_command", "far", "attempt_completion"])];
        let report = simulate_calls(&records, &PolicyRules::default(), |call| {
            (call.name == "execute_command").then(|| Access::Command {
                command: "touch a".to_owned(),
                facts: CommandFacts::default(),
                beyond: sabir_policy::ExtraPermissions::Nothing,
            })
        });
        let counts = serde_json::to_value(report.counts).unwrap();
        assert_eq!(
            counts,
            json!({"allow": 0, "ask": 1, "deny": 0, "unknown": 1})
        );
        let mut text = Vec::new();
        report.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("ask    was not run         execute_command `touch a`\n"),
            "{text}"
        );
        assert!(
            text.contains("2 calls: allow 0, ask 1, deny 0, unknown 1\n"),
            "{text}"
        );
    }
}
