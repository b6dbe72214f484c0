//! `policy`: what the rules say of a command line, and what they would have said of a task.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sabir_agent::{Judge, Record};
use sabir_call::{Call, Part};
use sabir_policy::{Access, Beyond, Facts, Judgement, Rules, Shell, Verdict};
use sabir_workspace::Workspace;
use serde_json::{Value, json};

use crate::cli::{ExplainedArguments, RuleOptions, SimulateArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::surroundings;
use sabir_session::modes;

/// `sabir policy explain`. The verdict is in what is printed; the exit code only says that there is one.
pub(crate) fn explain(arguments: &ExplainedArguments) -> Result<Exit, Failure> {
    let (workspace, rules) = place(Path::new("."), &arguments.rules, None)?;
    let command = line(&arguments.command);
    let gathered = sabir_tools::gather(&workspace, &surroundings::environment().command_variables(), &command);
    let facts = Facts { shell: shell(arguments.shell.as_deref())?.unwrap_or(gathered.shell), ..gathered };
    let judgement = rules.decide(&Access::Command { command, facts, beyond: Beyond::Nothing });
    match arguments.output {
        Whole::Json => print::json(&judgement_json(&judgement)),
        Whole::Text => print::out(&print::visible(&in_words(&judgement))),
    }
    Ok(Exit::Completed)
}

/// `sabir policy simulate`: the calls of a task, judged again in its folder as it is now.
pub(crate) fn simulate(arguments: &SimulateArguments) -> Result<Exit, Failure> {
    let records = records(&arguments.task)?;
    let start = records.iter().find_map(|record| match record {
        Record::Started(start) => Some(start),
        _ => None,
    });
    let start = start.ok_or_else(|| Failure::usage(format!("`{}` has no beginning", arguments.task)))?;
    let (workspace, rules) = place(Path::new(&start.workspace), &arguments.rules, start.mode.as_deref())?;
    let sandbox =
        sabir_session::sandbox::configured(None, &surroundings::load_config(arguments.rules.config.as_deref())?)?;
    let tools = sabir_tools::builtin(sabir_tools::Settings {
        workspace: Arc::new(workspace),
        helper: std::env::current_exe()
            .map_err(|error| Failure::internal(format!("this program cannot find itself: {error}")))?,
        environment: surroundings::environment().command_variables(),
        edit_tool: sabir_tools::EditTool::default(),
        jobs: sabir_session::passing_jobs(surroundings::environment()),
        reach: sabir_tools::Reach::Public,
        // Nothing runs: it only says what a call would ask for beyond it.
        sandbox,
    });
    let mut rows = Vec::new();
    for call in calls(&records) {
        let judgement = match tools.iter().find(|tool| tool.spec().name == call.name) {
            Some(tool) => Some(rules.decide(&tool.access(&call.arguments))),
            None if sabir_agent::control::is_control(&call.name) => continue,
            None => None,
        };
        rows.push(Row { call, was: was(&records, call), judgement });
    }
    match arguments.output {
        Whole::Json => print::json(&simulated_json(&rows)),
        Whole::Text => print::out(&print::visible(&simulated_text(&rows))),
    }
    Ok(Exit::Completed)
}

/// A call, what became of it, and what the rules say of it.
struct Row<'a> {
    call: &'a Call,
    was: &'static str,
    /// None of a call that nothing is known of here: of an MCP server's tool, say.
    judgement: Option<Judgement>,
}

/// A folder with all that holds in it, and the rules of the configuration and of the command line, within a mode.
fn place(folder: &Path, options: &RuleOptions, mode: Option<&str>) -> Result<(Workspace, Rules), Failure> {
    let config = surroundings::load_config(options.config.as_deref())?;
    let workspace = Workspace::open(folder).map_err(|error| Failure::usage(error.to_string()))?;
    let mut rules = config.rules(&options.rules.rule_spec(), workspace.root())?;
    let mode = options.mode.as_deref().or(mode).or(config.usual_mode());
    if let Some(mode) = mode {
        rules = rules.within(modes::find(mode, &config, &workspace)?);
    }
    if let Some(why) = modes::too_wide(workspace.root(), surroundings::environment().home_folder.as_deref()) {
        rules = rules.asking_to_write(why);
    }
    let bounds = modes::bounds_of(&rules, &config)?;
    Ok((
        workspace
            .bounded(bounds)
            .trusting(sabir_session::trust::load_trust(surroundings::environment(), &surroundings::notice_sink())),
        rules,
    ))
}

/// The shell of the option, or of `SABIR_SHELL`, by name or path, if there is one.
fn shell(named: Option<&str>) -> Result<Option<Shell>, Failure> {
    let set = std::env::var("SABIR_SHELL").ok().filter(|name| !name.is_empty());
    let Some(name) = named.map(str::to_owned).or(set) else { return Ok(None) };
    match name.rsplit('/').next() {
        Some("bash") => Ok(Some(Shell::Bash)),
        Some("sh" | "dash") => Ok(Some(Shell::Plain)),
        Some("zsh") => Ok(Some(Shell::Zsh)),
        _ => Err(Failure::usage(format!("the shell `{name}` is not known: bash, sh or zsh"))),
    }
}

/// One word is the line itself; several are its words.
fn line(words: &[String]) -> String {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c));
    match words {
        [line] => line.clone(),
        _ => {
            let quoted = words
                .iter()
                .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) });
            quoted.collect::<Vec<_>>().join(" ")
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

fn judgement_json(judgement: &Judgement) -> Value {
    let segments = judgement
        .segments
        .iter()
        .map(|segment| json!({"command": segment.command, "verdict": word(segment.verdict), "reason": segment.reason}));
    let segments: Vec<_> = segments.collect();
    json!({
        "verdict": word(judgement.verdict), "reason": judgement.reason, "segments": segments, "proposals": judgement.proposals,
    })
}

fn in_words(judgement: &Judgement) -> String {
    let mut text = format!("{}: {}\n", word(judgement.verdict), judgement.reason);
    for segment in &judgement.segments {
        text.push_str(&format!("  {:<5}  {}\n", word(segment.verdict), print::quoted(&segment.command)));
        text.push_str(&format!("         {}\n", segment.reason));
    }
    for proposal in &judgement.proposals {
        text.push_str(&format!("  to allow this kind from now on: --approve '{proposal}'\n"));
        text.push_str(&format!("         {}\n", sabir_policy::proposed(proposal).unwrap_or_default()));
    }
    text
}

/// The records of a task, by its name or the file of its journal.
fn records(task: &str) -> Result<Vec<Record>, Failure> {
    let path = Path::new(task);
    let (folder, id) = match (path.parent(), path.file_stem().and_then(|stem| stem.to_str())) {
        (Some(folder), Some(stem)) if path.is_file() => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            (folder.to_owned(), sabir_agent::TaskId::new(stem))
        }
        _ => {
            let folder = surroundings::tasks_folder()?;
            let id = sabir_session::find_task(&folder, task)?;
            (folder, id)
        }
    };
    let (entries, recovery) = sabir_journal::read(&folder, &id).map_err(|error| Failure::usage(error.to_string()))?;
    if !recovery.is_clean() {
        print::err(&format!("sabir: {recovery}\n"));
    }
    Ok(entries.into_iter().map(|entry| entry.record).collect())
}

/// The calls that passed the gates.
fn calls(records: &[Record]) -> impl Iterator<Item = &Call> {
    records
        .iter()
        .filter_map(|record| if let Record::Answered(answered) = record { Some(answered) } else { None })
        .flat_map(|answered| {
            let passed = |call: &&Call| answered.checks.iter().any(|check| check.call == call.id && check.passed);
            answered
                .parts
                .iter()
                .filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None })
                .filter(passed)
        })
}

/// What became of a call then.
fn was(records: &[Record], call: &Call) -> &'static str {
    let judged = records.iter().find_map(|record| match record {
        Record::Judged { call: id, verdict, by, .. } if *id == call.id => Some((*verdict, *by)),
        _ => None,
    });
    match judged {
        Some((Verdict::Allow, Judge::User)) => "asked, allowed",
        Some((_, Judge::User)) => "asked, denied",
        Some((Verdict::Deny, _)) => "denied",
        _ if records.iter().any(|record| matches!(record, Record::Running { call: id, .. } if *id == call.id)) => {
            "unasked"
        }
        _ => "not run",
    }
}

/// How many calls there are of each verdict, and how many that cannot be judged.
fn counts(rows: &[Row<'_>]) -> [(&'static str, usize); 4] {
    let of = |verdict: Option<Verdict>| {
        let judged = rows.iter().map(|row| row.judgement.as_ref().map(|judgement| judgement.verdict));
        (verdict.map_or("unknown", word), judged.filter(|found| *found == verdict).count())
    };
    [of(Some(Verdict::Allow)), of(Some(Verdict::Ask)), of(Some(Verdict::Deny)), of(None)]
}

/// The rules that would have answered questions, each with how many it would have had a part in.
fn proposals<'a>(rows: &'a [Row<'_>]) -> BTreeMap<&'a str, usize> {
    let mut counted = BTreeMap::new();
    let judged = rows.iter().filter_map(|row| row.judgement.as_ref());
    for proposal in judged.flat_map(|judgement| &judgement.proposals) {
        *counted.entry(proposal.as_str()).or_default() += 1;
    }
    counted
}

fn simulated_json(rows: &[Row<'_>]) -> Value {
    let calls = rows.iter().map(|row| {
        json!({
            "call": row.call.id, "tool": row.call.name, "arguments": row.call.arguments, "was": row.was,
            "judgement": row.judgement.as_ref().map(judgement_json),
        })
    });
    let counts: serde_json::Map<_, _> =
        counts(rows).into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect();
    json!({"calls": calls.collect::<Vec<_>>(), "counts": counts, "proposals": proposals(rows)})
}

fn simulated_text(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        let shown = ["command", "path", "url"].iter().find_map(|name| row.call.arguments.get(*name)?.as_str());
        let verdict = row.judgement.as_ref().map_or("?", |judgement| word(judgement.verdict));
        let subject = print::quoted(shown.unwrap_or_default());
        text.push_str(&format!("{verdict:<5}  was {:<14}  {} {subject}\n", row.was, row.call.name));
        match &row.judgement {
            Some(judgement) if judgement.verdict == Verdict::Allow => {}
            Some(judgement) => text.push_str(&format!("       {}\n", judgement.reason)),
            None => text.push_str("       what this tool touches is not known here: its server is not asked\n"),
        }
    }
    let counted: Vec<_> = counts(rows).iter().map(|(name, count)| format!("{name} {count}")).collect();
    text.push_str(&format!("{}: {}\n", print::counted(rows.len(), "call"), counted.join(", ")));
    for (proposal, count) in proposals(rows) {
        text.push_str(&format!("--approve '{proposal}' would have answered {}\n", print::counted(count, "question")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn several_words_are_quoted() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(line(&words), expected);
        };
        check(&["ls | wc"], "ls | wc");
        check(&["echo", "a b", "it's", ""], "echo 'a b' 'it'\\''s' ''");
    }
}
