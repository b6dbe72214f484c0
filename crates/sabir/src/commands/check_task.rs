//! Implements `check --task`: reports the check results of a task's calls from its journal.

use sabir_agent::{CallCheck, Record, TaskId};
use sabir_call::{Fault, Severity};
use sabir_journal::JournalEntry;
use serde_json::{Value, json};

use crate::cli::{JudgeArguments, ReportFormat};
use crate::commands::{journal, parse};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;

/// A problem with a call, or with an answer as a whole.
struct CheckFinding<'a> {
    /// The subtask that it belongs to; `None` for the task itself.
    subtask: Option<&'a TaskId>,
    /// The number of the record, counted from 1.
    record: u64,
    /// The number of the turn.
    turn: u32,
    /// The tool's name; `None` for a problem with the whole answer.
    tool: Option<String>,
    /// The check of the call; `None` for a problem with the whole answer.
    check: Option<&'a CallCheck>,
    /// The faults of the call or the answer.
    faults: &'a [Fault],
}

/// Runs `sabir check` on standard input or on a task.
pub(crate) fn run_check(arguments: &JudgeArguments) -> Result<ExitStatus, CommandError> {
    let Some(name) = &arguments.task else {
        return parse::check_input(&arguments.check);
    };
    let family = task_family(name)?;
    let mut calls = 0;
    let mut findings = Vec::new();
    for (at, (id, entries)) in family.iter().enumerate() {
        let (count, found) = self::collect_findings(entries);
        calls += count;
        // The first of the family is the task itself.
        let subtask = (at > 0).then_some(id);
        findings.extend(
            found
                .into_iter()
                .map(|finding| CheckFinding { subtask, ..finding }),
        );
    }
    let id = family.first().map(|(id, _)| id);
    let refused = findings
        .iter()
        .filter(|finding| finding.check.is_some_and(|check| !check.passed))
        .count();
    match arguments.check.output {
        ReportFormat::Json => print::print_redacted_json(&json!({
            "task": id, "calls": calls, "refused": refused, "findings": findings.iter().map(to_json).collect::<Vec<_>>(),
        })),
        ReportFormat::Text => {
            let mut text: String = findings.iter().map(render_text).collect();
            text.push_str(&format!(
                "{}, {refused} refused\n",
                print::count_noun(calls, "call")
            ));
            print::write_stdout(&print::sanitize_text(&sabir_call::redact::redact_text(
                &text,
            )));
        }
    }
    let broken = findings
        .iter()
        .any(|finding| finding.check.is_none() && finding.faults.iter().any(is_error));
    Ok(if refused > 0 || broken {
        ExitStatus::NotUnderstood
    } else {
        ExitStatus::Completed
    })
}

/// Reads the task and all its subtasks that have journals.
fn task_family(name: &str) -> Result<Vec<(TaskId, Vec<JournalEntry>)>, CommandError> {
    let mut family = vec![journal::read_entries(name)?];
    let mut next = 0;
    while let Some((_, entries)) = family.get(next) {
        let begun = entries.iter().filter_map(|entry| match &entry.record {
            Record::Subtask {
                task, ended: None, ..
            } => journal::read_entries(task.as_str()).ok(),
            _ => None,
        });
        let begun: Vec<_> = begun.collect();
        // A subtask that was resumed has more than one start record.
        let known = |id: &TaskId| family.iter().any(|(known, _)| known == id);
        let new: Vec<_> = begun.into_iter().filter(|(id, _)| !known(id)).collect();
        family.extend(new);
        next += 1;
    }
    Ok(family)
}

/// Returns true if the fault stops the call.
fn is_error(fault: &Fault) -> bool {
    fault.severity == Severity::Error
}

/// Returns the number of calls, and the findings about them.
fn collect_findings(entries: &[JournalEntry]) -> (usize, Vec<CheckFinding<'_>>) {
    let mut calls = 0;
    let mut findings = Vec::new();
    for (record, entry) in (1..).zip(entries) {
        let Record::Answered(answered) = &entry.record else {
            continue;
        };
        let turn = answered.turn;
        calls += answered.checks.len();
        for check in &answered.checks {
            if check.passed && check.faults.is_empty() && check.repairs.is_empty() {
                continue;
            }
            let call = answered.parts.iter().find_map(|part| match part {
                sabir_call::MessagePart::Call(call) if call.id == check.call => {
                    Some(call.name.clone())
                }
                _ => None,
            });
            findings.push(CheckFinding {
                subtask: None,
                record,
                turn,
                tool: call,
                check: Some(check),
                faults: &check.faults,
            });
        }
        if !answered.faults.is_empty() {
            findings.push(CheckFinding {
                subtask: None,
                record,
                turn,
                tool: None,
                check: None,
                faults: &answered.faults,
            });
        }
    }
    (calls, findings)
}

/// Renders a finding as text: its place, the verdict, faults and repairs.
fn render_text(finding: &CheckFinding<'_>) -> String {
    let what = match (&finding.tool, finding.check) {
        (Some(tool), Some(CallCheck { passed: false, .. })) => format!("{tool} was refused"),
        (Some(tool), _) => format!("{tool} could run"),
        (None, _) => "the answer".to_owned(),
    };
    let whose = finding
        .subtask
        .map(|task| format!("subtask {task}, "))
        .unwrap_or_default();
    let mut text = format!(
        "{whose}record {}, turn {}: {what}\n",
        finding.record, finding.turn
    );
    for fault in finding.faults {
        let weight = if is_error(fault) { "error" } else { "warning" };
        text.push_str(&print::indent_lines(&format!(
            "{weight}[{}]: {}",
            fault.kind.name(),
            fault.message
        )));
        text.push('\n');
    }
    for repair in finding.check.iter().flat_map(|check| &check.repairs) {
        let line = format!(
            "repaired ({}): {} -> {}",
            repair.rule, repair.before, repair.after
        );
        text.push_str(&print::indent_lines(&line));
        text.push('\n');
    }
    text
}

fn to_json(finding: &CheckFinding<'_>) -> Value {
    let mut value = json!({
        "record": finding.record, "turn": finding.turn, "tool": finding.tool, "passed": finding.check.map(|check| check.passed),
        "call": finding.check.map(|check| &check.call), "faults": finding.faults,
        "repairs": finding.check.map(|check| check.repairs.as_slice()).unwrap_or_default(),
    });
    if let (Some(task), Some(value)) = (finding.subtask, value.as_object_mut()) {
        value.insert("task".to_owned(), json!(task));
    }
    value
}
