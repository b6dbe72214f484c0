//! `check --task`: what the gates said of the calls in a task, from its journal.

use sabir_agent::{Check, Record, TaskId};
use sabir_call::{Fault, Severity};
use sabir_journal::Entry;
use serde_json::{Value, json};

use crate::cli::{JudgeArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::{journal, parse, print};

/// Something that is wrong with a call, or with an answer as a whole.
struct Finding<'a> {
    /// The subtask whose it is; `None`: it is the task's own.
    subtask: Option<&'a TaskId>,
    /// The record, counted from 1.
    record: u64,
    turn: u32,
    /// The tool's name; `None` where no call is concerned.
    tool: Option<String>,
    check: Option<&'a Check>,
    faults: &'a [Fault],
}

/// `sabir check`, of standard input or of a task.
pub(crate) fn check(arguments: &JudgeArguments) -> Result<Exit, Failure> {
    let Some(name) = &arguments.task else { return parse::check(&arguments.check) };
    let family = family(name)?;
    let (mut calls, mut findings) = (0, Vec::new());
    for (at, (id, entries)) in family.iter().enumerate() {
        let (count, found) = self::findings(entries);
        calls += count;
        let subtask = (at > 0).then_some(id);
        findings.extend(found.into_iter().map(|finding| Finding { subtask, ..finding }));
    }
    let id = family.first().map(|(id, _)| id);
    let refused = findings.iter().filter(|finding| finding.check.is_some_and(|check| !check.passed)).count();
    match arguments.check.output {
        Whole::Json => print::redacted(&json!({
            "task": id, "calls": calls, "refused": refused, "findings": findings.iter().map(described).collect::<Vec<_>>(),
        })),
        Whole::Text => {
            let mut text: String = findings.iter().map(in_words).collect();
            text.push_str(&format!("{}, {refused} refused\n", print::counted(calls, "call")));
            print::out(&print::visible(&sabir_call::redact::text(&text)));
        }
    }
    let broken = findings.iter().any(|finding| finding.check.is_none() && finding.faults.iter().any(is_error));
    Ok(if refused > 0 || broken { Exit::NotUnderstood } else { Exit::Completed })
}

/// The task with its subtasks, as far as they have journals.
fn family(name: &str) -> Result<Vec<(TaskId, Vec<Entry>)>, Failure> {
    let mut family = vec![journal::entries(name)?];
    let mut next = 0;
    while let Some((_, entries)) = family.get(next) {
        let begun = entries.iter().filter_map(|entry| match &entry.record {
            Record::Subtask { task, ended: None, .. } => journal::entries(task.as_str()).ok(),
            _ => None,
        });
        let begun: Vec<_> = begun.collect();
        // One that was gone on with is told of twice.
        let known = |id: &TaskId| family.iter().any(|(known, _)| known == id);
        let new: Vec<_> = begun.into_iter().filter(|(id, _)| !known(id)).collect();
        family.extend(new);
        next += 1;
    }
    Ok(family)
}

fn is_error(fault: &Fault) -> bool {
    fault.severity == Severity::Error
}

/// How many calls there are, and what is to be said of them.
fn findings(entries: &[Entry]) -> (usize, Vec<Finding<'_>>) {
    let (mut calls, mut findings) = (0, Vec::new());
    for (record, entry) in (1..).zip(entries) {
        let Record::Answered(answered) = &entry.record else { continue };
        let turn = answered.turn;
        calls += answered.checks.len();
        for check in &answered.checks {
            if check.passed && check.faults.is_empty() && check.repairs.is_empty() {
                continue;
            }
            let call = answered.parts.iter().find_map(|part| match part {
                sabir_call::Part::Call(call) if call.id == check.call => Some(call.name.clone()),
                _ => None,
            });
            findings.push(Finding {
                subtask: None,
                record,
                turn,
                tool: call,
                check: Some(check),
                faults: &check.faults,
            });
        }
        if !answered.faults.is_empty() {
            findings.push(Finding { subtask: None, record, turn, tool: None, check: None, faults: &answered.faults });
        }
    }
    (calls, findings)
}

fn in_words(finding: &Finding<'_>) -> String {
    let what = match (&finding.tool, finding.check) {
        (Some(tool), Some(Check { passed: false, .. })) => format!("{tool} was refused"),
        (Some(tool), _) => format!("{tool} could run"),
        (None, _) => "the answer".to_owned(),
    };
    let whose = finding.subtask.map(|task| format!("subtask {task}, ")).unwrap_or_default();
    let mut text = format!("{whose}record {}, turn {}: {what}\n", finding.record, finding.turn);
    for fault in finding.faults {
        let weight = if is_error(fault) { "error" } else { "warning" };
        text.push_str(&print::indented(&format!("{weight}[{}]: {}", fault.kind.name(), fault.message)));
        text.push('\n');
    }
    for repair in finding.check.iter().flat_map(|check| &check.repairs) {
        let line = format!("repaired ({}): {} -> {}", repair.rule, repair.before, repair.after);
        text.push_str(&print::indented(&line));
        text.push('\n');
    }
    text
}

fn described(finding: &Finding<'_>) -> Value {
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
