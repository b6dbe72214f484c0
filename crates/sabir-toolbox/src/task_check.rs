//! Reports the faults in the calls of a past task and its subtasks: the command `check --task`.

use std::io::{self, Write};

use sabir_agent::{CallCheck, Record, TaskId};
use sabir_call::redact;
use sabir_call::{CallId, Fault, MessagePart, Severity};
use sabir_check::Repair;
use sabir_journal::JournalEntry;
use serde::Serialize;

use crate::report::{Report, write_redacted_line};
use crate::text::{count_noun, indent_lines};

/// The records of a task.
#[derive(Debug, Clone)]
pub struct TaskJournal {
    /// The id of the task.
    pub id: TaskId,
    /// The records.
    pub entries: Vec<JournalEntry>,
}

/// A task and its subtasks, at any depth. The first one is the task itself.
#[derive(Debug, Clone)]
pub struct TaskWithSubtasks(Vec<TaskJournal>);

impl TaskWithSubtasks {
    /// Collects the subtasks of a task. `read_journal` reads the journal of a subtask, or returns `None` if it has none.
    pub fn collect(
        task: TaskJournal,
        mut read_journal: impl FnMut(&TaskId) -> Option<TaskJournal>,
    ) -> Self {
        let mut family = vec![task];
        let mut next = 0;
        while let Some(member) = family.get(next) {
            let begun = member
                .entries
                .iter()
                .filter_map(|entry| match &entry.record {
                    Record::Subtask {
                        task, ended: None, ..
                    } => read_journal(task),
                    _ => None,
                });
            let begun: Vec<_> = begun.collect();
            // A subtask that was resumed has more than one start record.
            let is_new = |task: &TaskJournal| family.iter().all(|known| known.id != task.id);
            let new: Vec<_> = begun.into_iter().filter(is_new).collect();
            family.extend(new);
            next += 1;
        }
        Self(family)
    }

    /// Returns the report of `check --task`.
    pub fn check_report(&self) -> TaskCheckReport<'_> {
        let mut report = TaskCheckReport {
            task: self.0.first().map(|task| &task.id),
            calls: 0,
            refused: 0,
            findings: Vec::new(),
        };
        for (at, member) in self.0.iter().enumerate() {
            let subtask = (at > 0).then_some(&member.id);
            report.add_journal(subtask, &member.entries);
        }
        report
    }
}

/// The report of `check --task`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskCheckReport<'a> {
    /// The id of the task.
    pub task: Option<&'a TaskId>,
    /// The number of calls of the task and its subtasks.
    pub calls: usize,
    /// The number of calls that were refused.
    pub refused: usize,
    /// The problems, in the order of the records of each task.
    pub findings: Vec<CheckFinding<'a>>,
}

/// A problem with a call, or with an answer as a whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckFinding<'a> {
    /// The number of the record, counted from 1.
    pub record: u64,
    /// The number of the turn.
    pub turn: u32,
    /// The tool's name; `None` for a problem with the whole answer.
    pub tool: Option<&'a str>,
    /// True if the call passed the checks; `None` for a problem with the whole answer.
    pub passed: Option<bool>,
    /// The id of the call; `None` for a problem with the whole answer.
    pub call: Option<&'a CallId>,
    /// The faults of the call or the answer.
    pub faults: &'a [Fault],
    /// The repairs of the call.
    pub repairs: &'a [Repair],
    /// The subtask that it belongs to; left out for the task itself.
    #[serde(rename = "task", skip_serializing_if = "Option::is_none")]
    pub subtask: Option<&'a TaskId>,
}

impl<'a> TaskCheckReport<'a> {
    /// Returns true if a call was refused, or an answer has an error that belongs to no call.
    pub fn has_errors(&self) -> bool {
        let is_broken = |finding: &CheckFinding<'_>| {
            // A call with an error was refused already; only faults of the answer itself are left.
            finding.call.is_none() && finding.faults.iter().any(is_error)
        };
        self.refused > 0 || self.findings.iter().any(is_broken)
    }

    /// Adds the calls of one journal.
    fn add_journal(&mut self, subtask: Option<&'a TaskId>, entries: &'a [JournalEntry]) {
        for (record, entry) in (1..).zip(entries) {
            let Record::Answered(answered) = &entry.record else {
                continue;
            };
            self.calls += answered.checks.len();
            let finding = CheckFinding {
                record,
                turn: answered.turn,
                tool: None,
                passed: None,
                call: None,
                faults: &answered.faults,
                repairs: &[],
                subtask,
            };
            for check in answered.checks.iter().filter(|check| has_finding(check)) {
                // Counted here, since every refused call is a finding.
                self.refused += usize::from(!check.passed);
                self.findings.push(CheckFinding {
                    tool: tool_name(&answered.parts, &check.call),
                    passed: Some(check.passed),
                    call: Some(&check.call),
                    faults: &check.faults,
                    repairs: &check.repairs,
                    // Record, turn and subtask are those of the answer.
                    ..finding.clone()
                });
            }
            if !answered.faults.is_empty() {
                self.findings.push(finding);
            }
        }
    }
}

/// Returns true unless the call passed as the model wrote it.
fn has_finding(check: &CallCheck) -> bool {
    !check.passed || !check.faults.is_empty() || !check.repairs.is_empty()
}

/// Returns the name of the tool of a call.
fn tool_name<'a>(parts: &'a [MessagePart], id: &CallId) -> Option<&'a str> {
    parts.iter().find_map(|part| match part {
        MessagePart::Call(call) if call.id == *id => Some(call.name.as_str()),
        _ => None,
    })
}

/// Returns true if the fault stops the call.
fn is_error(fault: &Fault) -> bool {
    fault.severity == Severity::Error
}

impl Report for TaskCheckReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text: String = self.findings.iter().map(render_finding).collect();
        text.push_str(&format!(
            "{}, {} refused\n",
            count_noun(self.calls, "call"),
            self.refused
        ));
        // Redacted as a whole: a secret may reach over the end of a line.
        out.write_all(redact::redact_text(&text).as_bytes())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_redacted_line(self, out)
    }
}

/// Renders a finding as text: its place, the verdict, faults and repairs.
fn render_finding(finding: &CheckFinding<'_>) -> String {
    let what = match (finding.tool, finding.passed) {
        (Some(tool), Some(false)) => format!("{tool} was refused"),
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
        text.push_str(&indent_lines(&format!(
            "{weight}[{}]: {}",
            fault.kind.name(),
            fault.message
        )));
        text.push('\n');
    }
    for repair in finding.repairs {
        let line = format!(
            "repaired ({}): {} -> {}",
            repair.rule, repair.before, repair.after
        );
        text.push_str(&indent_lines(&line));
        text.push('\n');
    }
    text
}
