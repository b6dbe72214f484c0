//! `undo` and `restore`: what would happen, a question, and the way back.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use sabir_checkpoint::{Goal, Item, Mark, Node, Plan, Restored, name};
use serde_json::{Value, json};

use crate::cli::{Consent, RestoreArguments, UndoArguments, Whole};
use crate::exit::{Exit, Failure};
use crate::history::{Place, about, failure};
use crate::print;
use crate::surroundings;

/// Paths of a preview; the rest is counted.
const SHOWN: usize = 100;

/// `sabir undo`.
pub(crate) fn undo(arguments: &UndoArguments) -> Result<Exit, Failure> {
    let place = Place::open(arguments.history.folder.as_deref())?;
    let (name, count) = arguments.history.names();
    let task = place.task(name.as_deref())?;
    let count = count.unwrap_or(1);
    if count == 0 {
        return Err(Failure::usage("0 calls are none to undo: give 1 or more"));
    }
    go(&place, &task, &Goal::Last(count), (arguments.consent, arguments.history.output))
}

/// `sabir restore`.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<Exit, Failure> {
    let place = Place::open(arguments.folder.as_deref())?;
    let wrong = || {
        Failure::usage(format!(
            "`{}` names no call: write TASK@N, or @N for the newest task; `sabir checkpoints` lists the calls",
            arguments.call
        ))
    };
    let (name, number) = arguments.call.rsplit_once('@').ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let task = place.task(Some(name).filter(|name| !name.is_empty()))?;
    let path = |text: &String| match place.workspace.path(text) {
        Ok(path) if path.is_root() => {
            Err(Failure::usage("the folder itself is no path to restore: leave the paths out"))
        }
        Ok(path) => Ok(path.as_path().to_path_buf()),
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    let paths = arguments.paths.iter().map(path).collect::<Result<Vec<_>, _>>()?;
    go(&place, &task, &Goal::Before(number, paths), (arguments.consent, arguments.output))
}

fn go(place: &Place, task: &str, goal: &Goal, (consent, output): (Consent, Whole)) -> Result<Exit, Failure> {
    let plan = place.checkpoints.plan(task, goal).map_err(failure)?;
    let going = plan.items.iter().filter(|item| item.goes(consent.force)).count();
    if output == Whole::Text {
        print::out(&print::visible(&preview(place, &plan, consent)?));
    }
    let agreed = consent.yes || (output == Whole::Text && going > 0 && ask()?);
    let restored = if agreed && going > 0 {
        let mark = Mark {
            task: task.to_owned(),
            tool: "sabir".to_owned(),
            label: label(goal),
            time_ms: surroundings::environment().now_milliseconds(),
            ..Mark::default()
        };
        Some(place.checkpoints.restore(&plan, goal, mark, consent.force).map_err(failure)?)
    } else {
        None
    };
    match output {
        Whole::Json => print::json(&described(&plan, restored.as_ref(), consent)),
        Whole::Text => print::err(&print::visible(&told(restored.as_ref(), going, agreed))),
    }
    // A preview is all that was asked for where nobody can be asked.
    let whole = restored.as_ref().map_or(plan.items.len() == going || !agreed, |restored| restored.left.is_empty());
    Ok(if whole { Exit::Completed } else { Exit::Unfinished })
}

/// Asks whoever sits at the terminal.
fn ask() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    print::err("Do it? [y]es, [n]o: ");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::internal(format!("standard input cannot be read: {error}")))?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn preview(place: &Place, plan: &Plan, consent: Consent) -> Result<String, Failure> {
    let list = place.checkpoints.list(Some(&plan.task)).map_err(failure)?;
    let call = list.iter().find(|checkpoint| checkpoint.number == plan.to).map(about).unwrap_or_default();
    let mut text = format!("Before call {} of task {} ({call}):\n", plan.to, plan.task);
    // What is left alone comes last, next to the question, however much goes.
    let (going, alone): (Vec<&Item>, Vec<&Item>) = plan.items.iter().partition(|item| item.goes(consent.force));
    for item in going.iter().take(SHOWN) {
        let lost = if matches!(item.now, Some(Node::NotKept { .. })) { " (what is there now is not kept)" } else { "" };
        text.push_str(&format!("  {:<11}  {}{lost}\n", action(item), name(&item.path)));
    }
    text.push_str(&unshown(going.iter().skip(SHOWN).map(|item| action(item))));
    for item in alone.iter().take(SHOWN) {
        let why = item.hindrance.as_ref().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("  leave alone  {}: {why}\n", name(&item.path)));
    }
    text.push_str(&unshown(alone.iter().skip(SHOWN).map(|_| "leave alone")));
    if plan.items.is_empty() {
        text.push_str("  everything is as it was\n");
    }
    let forced = plan.items.iter().any(|item| !item.goes(consent.force) && item.goes(true));
    if forced {
        text.push_str("--force goes over what somebody else has changed.\n");
    }
    Ok(text)
}

/// How many paths are not shown, and what becomes of them.
fn unshown(actions: impl Iterator<Item = &'static str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for action in actions {
        *counts.entry(action).or_default() += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let each: Vec<_> = counts.iter().map(|(action, count)| format!("{action} {count}")).collect();
    format!("  … and {}: {}\n", print::counted(counts.values().sum(), "path"), each.join(", "))
}

/// What becomes of a path.
fn action(item: &Item) -> &'static str {
    match (&item.now, &item.target) {
        (None, _) => "bring back",
        (_, None) => "delete",
        (Some(Node::File { content: now, .. }), Some(Node::File { content: then, .. })) if now == then => "change mode",
        (Some(Node::Folder { .. }), Some(Node::Folder { .. })) => "change mode",
        _ => "change back",
    }
}

fn told(restored: Option<&Restored>, going: usize, agreed: bool) -> String {
    let Some(Restored { number, done, left }) = restored else {
        return match (going, agreed) {
            (0, _) => "Nothing was changed.\n".to_owned(),
            (_, true) => String::new(),
            _ => "Nothing was changed. --yes does it.\n".to_owned(),
        };
    };
    let mut text = format!("{} restored. To go back on that: sabir restore @{number}\n", print::counted(*done, "path"));
    for (path, why) in left.iter().take(SHOWN) {
        text.push_str(&format!("left alone: {}: {why}\n", name(path)));
    }
    if let Some(more) = left.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!("… and {}\n", print::counted(more, "path")));
    }
    text
}

fn described(plan: &Plan, restored: Option<&Restored>, consent: Consent) -> Value {
    let item = |item: &Item| {
        let left = item.hindrance.as_ref().filter(|_| !item.goes(consent.force)).map(ToString::to_string);
        json!({
            "path": item.path.to_string_lossy(), "action": action(item), "left_alone": left,
            "now": item.now.as_ref().map(Node::to_string), "then": item.target.as_ref().map(Node::to_string),
        })
    };
    let restored = restored.map(|restored| {
        let left = restored.left.iter().map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why}));
        json!({"number": restored.number, "paths": restored.done, "left_alone": left.collect::<Vec<_>>()})
    });
    let paths = plan.items.iter().map(item).collect::<Vec<_>>();
    json!({"task": plan.task, "before_call": plan.to, "paths": paths, "restored": restored})
}

fn label(goal: &Goal) -> String {
    match goal {
        Goal::Before(_, paths) => paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}
