//! Implements `policy`: shows how the rules decide on a command line, or on the calls of a past
//! task.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sabir_agent::{DecisionMaker, Record};
use sabir_call::{Call, MessagePart};
use sabir_policy::{Access, Beyond, CommandFacts, PolicyDecision, PolicyRules, ShellKind, Verdict};
use sabir_workspace::Workspace;
use serde_json::{Value, json};

use crate::cli::{PolicyExplainArguments, ReportFormat, RuleOptions, SimulateArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::surroundings;
use sabir_session::modes;

/// Runs `sabir policy explain`. The verdict is printed; the exit code only reports that there is
/// one.
pub(crate) fn run_policy_explain(
    arguments: &PolicyExplainArguments,
) -> Result<ExitStatus, CommandError> {
    let (workspace, rules) = open_workspace(Path::new("."), &arguments.rules, None)?;
    let command = command_line(&arguments.command);
    let gathered = sabir_tools::gather_facts(
        &workspace,
        &surroundings::environment().command_variables(),
        &command,
    );
    let facts = CommandFacts {
        shell: named_shell(arguments.shell.as_deref())?.unwrap_or(gathered.shell),
        ..gathered
    };
    let judgement = rules.decide(&Access::Command {
        command,
        facts,
        beyond: Beyond::Nothing,
    });
    match arguments.output {
        ReportFormat::Json => print::print_json(&decision_json(&judgement)),
        ReportFormat::Text => print::write_stdout(&print::sanitize_text(&render_text(&judgement))),
    }
    Ok(ExitStatus::Completed)
}

/// Runs `sabir policy simulate`: decides again on the calls of a task, in its folder as it is now.
pub(crate) fn run_policy_simulate(
    arguments: &SimulateArguments,
) -> Result<ExitStatus, CommandError> {
    let records = read_records(&arguments.task)?;
    let start = records.iter().find_map(|record| match record {
        Record::Started(start) => Some(start),
        _ => None,
    });
    let start = start
        .ok_or_else(|| CommandError::usage(format!("`{}` has no beginning", arguments.task)))?;
    let (workspace, rules) = open_workspace(
        Path::new(&start.workspace),
        &arguments.rules,
        start.mode.as_deref(),
    )?;
    let sandbox = sabir_session::sandbox::configured(
        None,
        &surroundings::load_config(arguments.rules.config.as_deref())?,
    )?;
    let tools = sabir_tools::builtin_tools(sabir_tools::ToolSettings {
        workspace: Arc::new(workspace),
        helper: std::env::current_exe().map_err(|error| {
            CommandError::internal(format!("this program cannot find itself: {error}"))
        })?,
        environment: surroundings::environment().command_variables(),
        edit_tool: sabir_tools::EditTool::default(),
        jobs: sabir_session::temporary_jobs(surroundings::environment()),
        reach: sabir_tools::NetworkScope::Public,
        // No command runs; the sandbox only determines which access a call would request beyond it.
        sandbox,
    });
    let mut rows = Vec::new();
    for call in passed_calls(&records) {
        let judgement = match tools.iter().find(|tool| tool.spec().name == call.name) {
            Some(tool) => Some(rules.decide(&tool.prepare(&call.arguments).access())),
            None if sabir_agent::control::is_control(&call.name) => continue,
            None => None,
        };
        rows.push(SimulatedCall {
            call,
            past_outcome: outcome_of(&records, call),
            decision: judgement,
        });
    }
    match arguments.output {
        ReportFormat::Json => print::print_json(&simulated_json(&rows)),
        ReportFormat::Text => print::write_stdout(&print::sanitize_text(&simulated_text(&rows))),
    }
    Ok(ExitStatus::Completed)
}

/// A call, its past outcome, and the current decision.
struct SimulatedCall<'a> {
    call: &'a Call,
    past_outcome: &'static str,
    /// The decision; `None` for an unknown tool, such as one of an MCP server.
    decision: Option<PolicyDecision>,
}

/// Opens a folder with its bounds and trusted repositories, and combines the rules of the
/// configuration, the command line and the mode.
fn open_workspace(
    folder: &Path,
    options: &RuleOptions,
    mode: Option<&str>,
) -> Result<(Workspace, PolicyRules), CommandError> {
    let config = surroundings::load_config(options.config.as_deref())?;
    let workspace =
        Workspace::open(folder).map_err(|error| CommandError::usage(error.to_string()))?;
    let mut rules = config.rules(&options.rules.rule_spec(), workspace.root())?;
    let mode = options.mode.as_deref().or(mode).or(config.usual_mode());
    if let Some(mode) = mode {
        rules = rules.with_mode(modes::find_mode(mode, &config, &workspace)?);
    }
    if let Some(why) = modes::wide_folder_warning(
        workspace.root(),
        surroundings::environment().home_folder.as_deref(),
    ) {
        rules = rules.ask_before_writes(why);
    }
    let bounds = modes::bounds_of(&rules, &config)?;
    Ok((
        workspace
            .with_bounds(bounds)
            .with_trust(sabir_session::trust::load_trust(
                surroundings::environment(),
                &surroundings::notice_sink(),
            )),
        rules,
    ))
}

/// Returns the shell in the option or in `SABIR_SHELL`, by name or path, if one is given.
fn named_shell(named: Option<&str>) -> Result<Option<ShellKind>, CommandError> {
    let set = std::env::var("SABIR_SHELL")
        .ok()
        .filter(|name| !name.is_empty());
    let Some(name) = named.map(str::to_owned).or(set) else {
        return Ok(None);
    };
    match name.rsplit('/').next() {
        Some("bash") => Ok(Some(ShellKind::Bash)),
        Some("sh" | "dash") => Ok(Some(ShellKind::Plain)),
        Some("zsh") => Ok(Some(ShellKind::Zsh)),
        _ => Err(CommandError::usage(format!(
            "the shell `{name}` is not known: bash, sh or zsh"
        ))),
    }
}

/// Builds the command line: a single argument is the line itself, several arguments are quoted and
/// joined.
fn command_line(words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c))
    };
    match words {
        [line] => line.clone(),
        _ => {
            let quoted = words.iter().map(|word| {
                if plain(word) {
                    word.clone()
                } else {
                    format!("'{}'", word.replace('\'', "'\\''"))
                }
            });
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

fn decision_json(judgement: &PolicyDecision) -> Value {
    let segments = judgement
        .segments
        .iter()
        .map(|segment| json!({"command": segment.command, "verdict": verdict_word(segment.verdict), "reason": segment.reason}));
    let segments: Vec<_> = segments.collect();
    json!({
        "verdict": verdict_word(judgement.verdict), "reason": judgement.reason, "segments": segments, "proposals": judgement.proposals,
    })
}

fn render_text(judgement: &PolicyDecision) -> String {
    let mut text = format!(
        "{}: {}\n",
        verdict_word(judgement.verdict),
        judgement.reason
    );
    for segment in &judgement.segments {
        text.push_str(&format!(
            "  {:<5}  {}\n",
            verdict_word(segment.verdict),
            print::quote_short(&segment.command)
        ));
        text.push_str(&format!("         {}\n", segment.reason));
    }
    for proposal in &judgement.proposals {
        text.push_str(&format!(
            "  to allow this kind from now on: --approve '{proposal}'\n"
        ));
        text.push_str(&format!(
            "         {}\n",
            sabir_policy::describe_proposal(proposal).unwrap_or_default()
        ));
    }
    text
}

/// Reads the records of a task, given its id or the file of its journal.
fn read_records(task: &str) -> Result<Vec<Record>, CommandError> {
    let path = Path::new(task);
    let (folder, id) = match (
        path.parent(),
        path.file_stem().and_then(|stem| stem.to_str()),
    ) {
        (Some(folder), Some(stem)) if path.is_file() => {
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            (folder.to_owned(), sabir_agent::TaskId::new(stem))
        }
        _ => {
            let folder = surroundings::tasks_folder()?;
            let id = sabir_session::find_task(&folder, task)?;
            (folder, id)
        }
    };
    let (entries, recovery) = sabir_journal::read_journal(&folder, &id)
        .map_err(|error| CommandError::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::write_stderr(&format!("sabir: {recovery}\n"));
    }
    Ok(entries.into_iter().map(|entry| entry.record).collect())
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
fn outcome_of(records: &[Record], call: &Call) -> &'static str {
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
        Some((Verdict::Allow, DecisionMaker::User)) => "asked, allowed",
        Some((_, DecisionMaker::User)) => "asked, denied",
        Some((Verdict::Deny, _)) => "denied",
        _ if records
            .iter()
            .any(|record| matches!(record, Record::Running { call: id, .. } if *id == call.id)) =>
        {
            "unasked"
        }
        _ => "not run",
    }
}

/// Counts the calls by verdict, and those without a decision.
fn count_verdicts(rows: &[SimulatedCall<'_>]) -> [(&'static str, usize); 4] {
    let of = |verdict: Option<Verdict>| {
        let judged = rows
            .iter()
            .map(|row| row.decision.as_ref().map(|judgement| judgement.verdict));
        (
            verdict.map_or("unknown", verdict_word),
            judged.filter(|found| *found == verdict).count(),
        )
    };
    [
        of(Some(Verdict::Allow)),
        of(Some(Verdict::Ask)),
        of(Some(Verdict::Deny)),
        of(None),
    ]
}

/// Returns the rules that would have answered questions, each with the number of those questions.
fn count_proposals<'a>(rows: &'a [SimulatedCall<'_>]) -> BTreeMap<&'a str, usize> {
    let mut counted = BTreeMap::new();
    let judged = rows.iter().filter_map(|row| row.decision.as_ref());
    for proposal in judged.flat_map(|judgement| &judgement.proposals) {
        *counted.entry(proposal.as_str()).or_default() += 1;
    }
    counted
}

fn simulated_json(rows: &[SimulatedCall<'_>]) -> Value {
    let calls = rows.iter().map(|row| {
        json!({
            "call": row.call.id, "tool": row.call.name, "arguments": row.call.arguments, "was": row.past_outcome,
            "judgement": row.decision.as_ref().map(decision_json),
        })
    });
    let counts: serde_json::Map<_, _> = count_verdicts(rows)
        .into_iter()
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect();
    json!({"calls": calls.collect::<Vec<_>>(), "counts": counts, "proposals": count_proposals(rows)})
}

fn simulated_text(rows: &[SimulatedCall<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        let shown = ["command", "path", "url"]
            .iter()
            .find_map(|name| row.call.arguments.get(*name)?.as_str());
        let verdict = row
            .decision
            .as_ref()
            .map_or("?", |judgement| verdict_word(judgement.verdict));
        let subject = print::quote_short(shown.unwrap_or_default());
        text.push_str(&format!(
            "{verdict:<5}  was {:<14}  {} {subject}\n",
            row.past_outcome, row.call.name
        ));
        match &row.decision {
            Some(judgement) if judgement.verdict == Verdict::Allow => {}
            Some(judgement) => text.push_str(&format!("       {}\n", judgement.reason)),
            None => text.push_str(
                "       what this tool touches is not known here: its server is not asked\n",
            ),
        }
    }
    let counted: Vec<_> = count_verdicts(rows)
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    text.push_str(&format!(
        "{}: {}\n",
        print::count_noun(rows.len(), "call"),
        counted.join(", ")
    ));
    for (proposal, count) in count_proposals(rows) {
        text.push_str(&format!(
            "--approve '{proposal}' would have answered {}\n",
            print::count_noun(count, "question")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn several_words_are_quoted() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(command_line(&words), expected);
        };
        check(&["ls | wc"], "ls | wc");
        check(&["echo", "a b", "it's", ""], "echo 'a b' 'it'\\''s' ''");
    }
}
