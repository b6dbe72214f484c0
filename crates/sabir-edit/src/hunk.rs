//! Where the hunks of a patch belong in a text.

use std::borrow::Cow;

use super::fault::{self, EditFault, EditFaultKind};
use super::lines::{Lines, Shift};
use super::patch::{Op, PatchHunk};
use super::splice::{Change, NewLine, shifted, splice};
use super::{Edited, Level, one};

/// Applies all hunks, or none.
pub(super) fn apply(hunks: &[PatchHunk], original: &str) -> Result<Edited, Vec<EditFault>> {
    let lines = Lines::of(original);
    let (mut changes, mut faults) = (Vec::new(), Vec::new());
    let mut from = 0;
    for hunk in hunks {
        match place(&lines, hunk, from) {
            Ok(change) => {
                // What a hunk adds at the end says nothing about where the next one is.
                from = if change.old.is_empty() { from } else { change.old.end };
                changes.push(change);
            }
            Err(fault) => faults.push(*fault),
        }
    }
    match splice(&lines, changes) {
        Ok(edited) if faults.is_empty() => Ok(edited),
        edited => {
            faults.extend(edited.err().unwrap_or_default());
            faults.sort_by_key(|fault| fault.line);
            Err(faults)
        }
    }
}

/// Finds the one place of a hunk. `from` is where the hunk before it ended: hunks stand in the order of the text.
fn place<'a>(lines: &Lines<'a>, hunk: &'a PatchHunk, from: usize) -> Result<Change<'a>, Box<EditFault>> {
    let heads = heads(lines, hunk)?;
    let all = hunk.lines.as_slice();
    if all.iter().all(|(op, text)| *op == Op::Add || text.is_empty() && *op == Op::Keep && all.len() == hunk.loose) {
        return addition(lines, hunk, heads.as_deref(), from);
    }
    let short = all.get(..all.len() - hunk.loose).unwrap_or_default();
    let mut readings = vec![all];
    if hunk.loose > 0 && !short.is_empty() {
        readings.push(short);
    }
    for reading in readings {
        let wanted = wanted(reading);
        if wanted.is_empty() {
            return addition(lines, hunk, heads.as_deref(), from);
        }
        for level in Level::ALL {
            let places = lines.places(level, &wanted, usize::MAX);
            let places = allowed(lines, hunk, places, heads.as_deref(), wanted.len());
            if places.is_empty() {
                continue;
            }
            let behind: Vec<usize> = places.iter().copied().filter(|place| *place >= from).collect();
            let chosen = one(&places, None).or_else(|| one(&behind, None)).or_else(|| one(&places, hunk.hint));
            let Some(start) = chosen else {
                return Err(Box::new(fault::ambiguous(&hunk.origin, lines, &places, usize::MAX)));
            };
            return change(lines, hunk, reading, (level, start));
        }
    }
    Err(Box::new(not_found(lines, hunk, &wanted(all))))
}

/// The lines that a hunk expects.
fn wanted(lines: &[(Op, String)]) -> Vec<&str> {
    lines.iter().filter(|(op, _)| *op != Op::Add).map(|(_, text)| text.as_str()).collect()
}

/// Of the places, those that the `@@` lines and `*** End of File` allow: the first behind each head, the last of the text.
fn allowed(
    lines: &Lines<'_>,
    hunk: &PatchHunk,
    mut places: Vec<usize>,
    heads: Option<&[usize]>,
    length: usize,
) -> Vec<usize> {
    if hunk.is_at_end {
        places.retain(|place| lines.bares(place + length..lines.len()).iter().all(|line| line.trim().is_empty()));
    }
    let Some(heads) = heads else { return places };
    // A hunk may begin with the very line that its head names.
    let mut behind: Vec<usize> =
        heads.iter().filter_map(|head| places.get(places.partition_point(|place| place < head)).copied()).collect();
    behind.dedup();
    behind
}

/// Where the innermost `@@` line is; `None` when the hunk has none. There are several where the lines are.
fn heads(lines: &Lines<'_>, hunk: &PatchHunk) -> Result<Option<Vec<usize>>, Box<EditFault>> {
    let mut heads: Option<Vec<usize>> = None;
    for context in &hunk.contexts {
        let short = context.trim_end().strip_suffix("@@").map(str::trim_end);
        let spellings = std::iter::once(context.as_str()).chain(short);
        let all = spellings
            .flat_map(|context| Level::ALL.map(|level| (level, context)))
            .map(|(level, context)| named(lines, level, context))
            .find(|places| !places.is_empty())
            .unwrap_or_default();
        let next: Vec<usize> = match heads {
            None => all,
            Some(outer) => {
                let mut next: Vec<usize> = outer
                    .iter()
                    .filter_map(|head| all.get(all.partition_point(|place| place <= head)).copied())
                    .collect();
                next.dedup();
                next
            }
        };
        if next.is_empty() {
            return Err(Box::new(no_context(lines, hunk, context)));
        }
        heads = Some(next);
    }
    Ok(heads)
}

/// Where a line is, indentation aside at the last level.
fn named(lines: &Lines<'_>, level: Level, line: &str) -> Vec<usize> {
    if level == Level::Shifted { lines.like(line).to_vec() } else { lines.places(level, &[line], usize::MAX) }
}

/// A hunk that only adds lines: behind the line that `@@` names, or at the end.
fn addition<'a>(
    lines: &Lines<'a>,
    hunk: &'a PatchHunk,
    heads: Option<&[usize]>,
    from: usize,
) -> Result<Change<'a>, Box<EditFault>> {
    let at = match heads {
        _ if hunk.is_at_end => lines.len(),
        None if hunk.hint.is_some_and(|line| line > 0) && lines.len() > 0 => {
            return Err(Box::new(fault::empty_search(&hunk.origin)));
        }
        None => lines.len(),
        Some(heads) => {
            let behind: Vec<usize> = heads.iter().copied().filter(|head| *head >= from).collect();
            match one(heads, None).or_else(|| one(&behind, None)).or_else(|| one(heads, hunk.hint)) {
                Some(head) => head + 1,
                None => return Err(Box::new(fault::ambiguous(&hunk.origin, lines, heads, usize::MAX))),
            }
        }
    };
    let added = hunk.lines.iter().filter(|(op, _)| *op == Op::Add);
    let new = added.map(|(_, text)| NewLine::Fresh(Cow::Borrowed(text.as_str()))).collect();
    Ok(Change { origin: hunk.origin, level: Level::Exact, old: at..at, new })
}

fn change<'a>(
    lines: &Lines<'a>,
    hunk: &'a PatchHunk,
    reading: &'a [(Op, String)],
    (level, start): (Level, usize),
) -> Result<Change<'a>, Box<EditFault>> {
    let wanted = wanted(reading);
    let old = start..start + wanted.len();
    let shift = if level == Level::Shifted { lines.shift(start, &wanted) } else { None }.unwrap_or(Shift::Add(""));
    let (mut new, mut next) = (Vec::new(), start);
    for (op, text) in reading {
        match op {
            Op::Keep => new.push(NewLine::Kept(next)),
            Op::Remove => {}
            Op::Add => match shifted(text, &shift, &wanted) {
                Some(line) => new.push(NewLine::Fresh(line)),
                None => return Err(Box::new(fault::indentation(&hunk.origin, lines, old))),
            },
        }
        next += usize::from(*op != Op::Add);
    }
    let is_same = |(line, index): (&NewLine<'_>, usize)| match line {
        NewLine::Kept(kept) => *kept == index,
        NewLine::Fresh(text) => lines.bare(index) == Some(text),
    };
    if new.len() == old.len() && new.iter().zip(old.clone()).all(is_same) {
        return Err(Box::new(fault::no_effect(&hunk.origin)));
    }
    Ok(Change { origin: hunk.origin, level, old, new })
}

fn no_context(lines: &Lines<'_>, hunk: &PatchHunk, context: &str) -> EditFault {
    let mut fault = fault::not_found(&hunk.origin, lines, &[context]);
    fault.kind = EditFaultKind::ContextNotFound;
    fault.message =
        format!("the context line `@@ {}` is not in the text behind the one before it", fault::cut(context));
    fault.hint = "copy a whole line of the file behind `@@`, or leave it out and give more lines of context";
    fault
}

fn not_found(lines: &Lines<'_>, hunk: &PatchHunk, wanted: &[&str]) -> EditFault {
    let mut fault = fault::not_found(&hunk.origin, lines, wanted);
    let is_elsewhere = Level::ALL.iter().any(|level| !lines.places(*level, wanted, 1).is_empty());
    if is_elsewhere && hunk.is_at_end {
        fault.message =
            "what the hunk expects is in the text, but not at its end, as `*** End of File` says".to_owned();
        fault.hint = "leave `*** End of File` out, or give the last lines of the file";
    } else if is_elsewhere {
        fault.message = "what the hunk expects is in the text, but not behind its `@@` line".to_owned();
        fault.hint = "name a line before the hunk, or leave `@@` without one";
    }
    fault
}
