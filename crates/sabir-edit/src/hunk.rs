//! Locates the hunks of a patch in a text and applies them.

use std::borrow::Cow;

use super::fault::{self, EditFault, EditFaultKind};
use super::line_index::{IndentShift, LineIndex};
use super::patch::{LineOp, PatchHunk};
use super::splice::{LineChange, ResultLine, shift_indent, splice_changes};
use super::{EditedText, MatchLevel, pick_match};

/// Applies all hunks of a patch section, or none.
///
/// Hunks are located in the original text, in order. The end of one is only a tie-breaker for the next, because models also write hunks out
/// of order.
pub(super) fn apply_hunks(
    hunks: &[PatchHunk],
    original: &str,
) -> Result<EditedText, Vec<EditFault>> {
    let lines = LineIndex::from_text(original);
    // The line after the previous hunk's place: hunks come in the order of the text.
    let mut changes = Vec::new();
    let mut faults = Vec::new();
    let mut from = 0;
    for hunk in hunks {
        match locate_hunk(&lines, hunk, from) {
            Ok(change) => {
                // A pure addition at the end says nothing about where the next hunk is.
                from = if change.old.is_empty() {
                    from
                } else {
                    change.old.end
                };
                changes.push(change);
            }
            Err(fault) => faults.push(*fault),
        }
    }
    match splice_changes(&lines, changes) {
        Ok(edited) if faults.is_empty() => Ok(edited),
        edited => {
            faults.extend(edited.err().unwrap_or_default());
            faults.sort_by_key(|fault| fault.line);
            Err(faults)
        }
    }
}

/// Finds the one place of a hunk. `from` is the line where the previous hunk ended.
///
/// All `@@` lines must match before anything else is tried: a hunk in the wrong function would
/// otherwise be found by its own lines alone.
fn locate_hunk<'a>(
    lines: &LineIndex<'a>,
    hunk: &'a PatchHunk,
    from: usize,
) -> Result<LineChange<'a>, Box<EditFault>> {
    let heads = find_context_heads(lines, hunk)?;
    let all = hunk.lines.as_slice();
    if all.iter().all(|(op, text)| {
        *op == LineOp::Add
            || text.is_empty() && *op == LineOp::Keep && all.len() == hunk.trailing_empty_lines
    }) {
        return build_addition(lines, hunk, heads.as_deref(), from);
    }
    // Models often write empty lines after a hunk as layout, so the hunk is also tried without
    // them.
    let short = all
        .get(..all.len() - hunk.trailing_empty_lines)
        .unwrap_or_default();
    let mut variants = vec![all];
    if hunk.trailing_empty_lines > 0 && !short.is_empty() {
        variants.push(short);
    }
    for variant in variants {
        let wanted = expected_lines(variant);
        if wanted.is_empty() {
            return build_addition(lines, hunk, heads.as_deref(), from);
        }
        for level in MatchLevel::ALL {
            let places = lines.find_matches(level, &wanted, usize::MAX);
            let places = filter_matches(lines, hunk, places, heads.as_deref(), wanted.len());
            if places.is_empty() {
                continue;
            }
            // If several places match, prefer the only one after the previous hunk, then the one
            // nearest to the line hint.
            let behind: Vec<usize> = places
                .iter()
                .copied()
                .filter(|place| *place >= from)
                .collect();
            let chosen = pick_match(&places, None)
                .or_else(|| pick_match(&behind, None))
                .or_else(|| pick_match(&places, hunk.hint));
            let Some(start) = chosen else {
                return Err(Box::new(fault::ambiguous_fault(
                    &hunk.origin,
                    lines,
                    &places,
                    usize::MAX,
                )));
            };
            return build_change(lines, hunk, variant, level, start);
        }
    }
    Err(Box::new(hunk_not_found_fault(
        lines,
        hunk,
        &expected_lines(all),
    )))
}

/// Returns the lines that a hunk expects in the text: those that stay and those that go.
fn expected_lines(lines: &[(LineOp, String)]) -> Vec<&str> {
    lines
        .iter()
        .filter(|(op, _)| *op != LineOp::Add)
        .map(|(_, text)| text.as_str())
        .collect()
}

/// Narrows the places to those that the `@@` lines and `*** End of File` allow: the first place
/// after each context line, and only places at the end of the text.
/// Blank lines at the end of the text do not count as content after the hunk.
fn filter_matches(
    lines: &LineIndex<'_>,
    hunk: &PatchHunk,
    mut places: Vec<usize>,
    heads: Option<&[usize]>,
    length: usize,
) -> Vec<usize> {
    if hunk.is_at_end {
        places.retain(|place| {
            lines
                .bare_lines(place + length..lines.len())
                .iter()
                .all(|line| line.trim().is_empty())
        });
    }
    let Some(heads) = heads else { return places };
    // A hunk may begin with the very line that its `@@` line names.
    let mut behind: Vec<usize> = heads
        .iter()
        .filter_map(|head| {
            places
                .get(places.partition_point(|place| place < head))
                .copied()
        })
        .collect();
    behind.dedup();
    behind
}

/// Returns the indexes of lines that match the innermost `@@` line, after all outer ones matched;
/// `None` if the hunk has no `@@` line.
fn find_context_heads(
    lines: &LineIndex<'_>,
    hunk: &PatchHunk,
) -> Result<Option<Vec<usize>>, Box<EditFault>> {
    let mut heads: Option<Vec<usize>> = None;
    // Each `@@` line narrows the candidates: it must follow the one before it.
    for context in &hunk.contexts {
        // Some models close the line with `@@`, as unified diffs do, so both spellings are tried.
        let short = context.trim_end().strip_suffix("@@").map(str::trim_end);
        let spellings = std::iter::once(context.as_str()).chain(short);
        let all = spellings
            .flat_map(|context| MatchLevel::ALL.map(|level| (level, context)))
            .map(|(level, context)| find_context_line(lines, level, context))
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
            return Err(Box::new(context_not_found_fault(lines, hunk, context)));
        }
        heads = Some(next);
    }
    Ok(heads)
}

/// Returns the indexes of a context line; the last level ignores indentation. A single line has no relative indentation to compare, so any
/// indentation matches.
fn find_context_line(lines: &LineIndex<'_>, level: MatchLevel, line: &str) -> Vec<usize> {
    if level == MatchLevel::Shifted {
        lines.find_similar(line).to_vec()
    } else {
        lines.find_matches(level, &[line], usize::MAX)
    }
}

/// Builds the change of a hunk that only adds lines: after the line that `@@` names, or at the end.
///
/// # Errors
/// An ambiguous `@@` line, or a line hint without any line that confirms it.
fn build_addition<'a>(
    lines: &LineIndex<'a>,
    hunk: &'a PatchHunk,
    heads: Option<&[usize]>,
    from: usize,
) -> Result<LineChange<'a>, Box<EditFault>> {
    let at = match heads {
        _ if hunk.is_at_end => lines.len(),
        // A unified line hint without a line to confirm it is too weak: the text may have shifted.
        None if hunk.hint.is_some_and(|line| line > 0) && lines.len() > 0 => {
            return Err(Box::new(fault::empty_search_fault(&hunk.origin)));
        }
        // `@@ -0,0 +1 @@` names the place before the first line (POSIX `diff -u`: an empty range
        // has the number of the line before it).
        None if hunk.hint == Some(0) => 0,
        // Without any anchor, added lines go to the end of the file.
        None => lines.len(),
        Some(heads) => {
            let behind: Vec<usize> = heads.iter().copied().filter(|head| *head >= from).collect();
            match pick_match(heads, None)
                .or_else(|| pick_match(&behind, None))
                .or_else(|| pick_match(heads, hunk.hint))
            {
                Some(head) => head + 1,
                None => {
                    return Err(Box::new(fault::ambiguous_fault(
                        &hunk.origin,
                        lines,
                        heads,
                        usize::MAX,
                    )));
                }
            }
        }
    };
    let added = hunk.lines.iter().filter(|(op, _)| *op == LineOp::Add);
    let new = added
        .map(|(_, text)| ResultLine::Fresh(Cow::Borrowed(text.as_str())))
        .collect();
    Ok(LineChange {
        origin: hunk.origin,
        level: MatchLevel::Exact,
        old: at..at,
        new,
    })
}

/// Builds the change of a hunk whose place is known.
///
/// Unchanged lines keep the bytes of the file; only added lines come from the patch, indented like their surroundings.
fn build_change<'a>(
    lines: &LineIndex<'a>,
    hunk: &'a PatchHunk,
    variant: &'a [(LineOp, String)],
    level: MatchLevel,
    start: usize,
) -> Result<LineChange<'a>, Box<EditFault>> {
    let wanted = expected_lines(variant);
    let old = start..start + wanted.len();
    let shift = if level == MatchLevel::Shifted {
        lines.indent_shift(start, &wanted)
    } else {
        None
    }
    .unwrap_or(IndentShift::Add(""));
    // Lines that stay keep the text's own bytes; `next` follows them through the old text.
    let mut new = Vec::new();
    let mut next = start;
    for (op, text) in variant {
        match op {
            LineOp::Keep => new.push(ResultLine::Kept(next)),
            LineOp::Remove => {}
            LineOp::Add => match shift_indent(text, &shift, &wanted) {
                Some(line) => new.push(ResultLine::Fresh(line)),
                None => return Err(Box::new(fault::indentation_fault(&hunk.origin, lines, old))),
            },
        }
        next += usize::from(*op != LineOp::Add);
    }
    // A hunk that removes a line and adds the same text again changes nothing.
    let is_same = |(line, index): (&ResultLine<'_>, usize)| match line {
        ResultLine::Kept(kept) => *kept == index,
        ResultLine::Fresh(text) => lines.bare_line(index) == Some(text),
    };
    if new.len() == old.len() && new.iter().zip(old.clone()).all(is_same) {
        return Err(Box::new(fault::no_effect_fault(&hunk.origin)));
    }
    Ok(LineChange {
        origin: hunk.origin,
        level,
        old,
        new,
    })
}

/// Builds the fault for an `@@` line that is missing, or comes before the one it should follow.
fn context_not_found_fault(lines: &LineIndex<'_>, hunk: &PatchHunk, context: &str) -> EditFault {
    let mut fault = fault::not_found_fault(&hunk.origin, lines, &[context]);
    fault.kind = EditFaultKind::ContextNotFound;
    fault.message = format!(
        "the context line `@@ {}` is not in the text behind the one before it",
        fault::truncate_line(context)
    );
    fault.hint =
        "copy a whole line of the file behind `@@`, or leave it out and give more lines of context";
    fault
}

/// Builds the fault for a hunk that is not found. If its lines exist elsewhere, the `@@` line or
/// the end marker is wrong, and the fault says that instead of showing the nearest place.
fn hunk_not_found_fault(lines: &LineIndex<'_>, hunk: &PatchHunk, wanted: &[&str]) -> EditFault {
    let mut fault = fault::not_found_fault(&hunk.origin, lines, wanted);
    let is_elsewhere = MatchLevel::ALL
        .iter()
        .any(|level| !lines.find_matches(*level, wanted, 1).is_empty());
    if is_elsewhere && hunk.is_at_end {
        fault.message =
            "what the hunk expects is in the text, but not at its end, as `*** End of File` says"
                .to_owned();
        fault.hint = "leave `*** End of File` out, or give the last lines of the file";
    } else if is_elsewhere {
        fault.message =
            "what the hunk expects is in the text, but not behind its `@@` line".to_owned();
        fault.hint = "name a line before the hunk, or leave `@@` without one";
    }
    fault
}
