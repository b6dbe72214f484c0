//! Replaces one string by another in a text, or the whole text.

use std::borrow::Cow;
use std::ops::Range;

use super::align::{align_lines, line_ending_sources};
use super::blocks::UnnumberedEdit;
use super::fault::{self, EditFault, EditFaultKind, EditOrigin, MAX_SHOWN};
use super::line_index::{LineIndex, line_ending};
use super::normalize::normalize_char;
use super::splice::{LineChange, rewrite_lines, splice_changes};
use super::{AppliedHunk, EditSyntax, EditedText, MatchLevel};

/// A string replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringReplacement {
    /// The text to find. If it is empty, the file must be empty or new.
    pub old: String,
    /// The replacement.
    pub new: String,
    /// The number of times it must be found; every place is replaced. `None` allows any number from
    /// one up.
    pub count: Option<usize>,
}

/// Applies a string replacement.
///
/// A line feed in either string matches the line endings of the file. The strings may begin and end
/// within lines at the exact and normalized levels; at the shifted level they must be whole lines.
/// Time and memory are linear.
///
/// # Errors
/// The faults: not found, found another number of times, or no effect.
pub fn apply_string_replacement(
    original: &str,
    replacement: &StringReplacement,
) -> Result<EditedText, Vec<EditFault>> {
    let origin = EditOrigin::for_whole_edit(EditSyntax::StringReplace);
    let old = normalize_line_ends(&replacement.old);
    let new = normalize_line_ends(&replacement.new);
    if old.is_empty() && original.is_empty() && !new.is_empty() {
        return Ok(EditedText {
            content: replacement.new.clone(),
            hunks: vec![AppliedHunk::whole_text(0, replacement.new.lines().count())],
        });
    }
    // The faults about the request itself come before any search in the text.
    if old == new {
        return Err(vec![fault::no_effect_fault(&origin)]);
    }
    if old.is_empty() {
        return Err(vec![fault::empty_search_fault(&origin)]);
    }
    // A looser level is tried only if the stricter one finds nothing, so that similar places are
    // not counted besides an exact one.
    for level in [MatchLevel::Exact, MatchLevel::Normalised] {
        let shown = SearchableText::from_text(original, level);
        if let Some((found, places)) = shown.find_matches(&old, level) {
            let line = |place: &usize| line_index_at(original, shown.source_start(*place));
            check_count(original, replacement, &places, line)?;
            // Matches that overlap, such as `aa` in `aaa`, are found once but could be meant at two
            // places.
            if let (Some(1), [place]) = (replacement.count, places.as_slice())
                && let Some(other) = find_overlapping(&shown.text, &found, *place)
            {
                let lines = [line(place), line(&other)];
                return Err(vec![fault::ambiguous_fault(
                    &origin,
                    &LineIndex::from_text(original),
                    &lines,
                    usize::MAX,
                )]);
            }
            let places: Vec<_> = places
                .iter()
                .map(|place| shown.source_pieces(*place, &found))
                .collect();
            return replace_matches(original, &places, &old, &new, level);
        }
    }
    replace_shifted(original, replacement, &old, &new)
}

/// Replaces the whole content of a text by another, exactly as given.
///
/// # Errors
/// A fault if the content is unchanged.
pub fn replace_whole_text(original: &str, content: &str) -> Result<EditedText, Vec<EditFault>> {
    if original == content {
        return Err(vec![fault::no_effect_fault(&EditOrigin::for_whole_edit(
            EditSyntax::WholeFile,
        ))]);
    }
    let count = |text: &str| text.lines().count();
    Ok(EditedText {
        content: content.to_owned(),
        hunks: vec![AppliedHunk::whole_text(count(original), count(content))],
    })
}

/// The text in the form that is searched (without carriage returns before line feeds, and
/// normalized at the second level), with a map back to the source.
struct SearchableText {
    text: String,
    /// The parts in rising order; source bytes between two parts were left out.
    parts: Vec<TextPart>,
}

/// A run of bytes copied unchanged, or one character replaced by another.
/// Offsets inside a run map one to one; a replaced character may differ in length from its source.
struct TextPart {
    shown: usize,
    source: Range<usize>,
    is_same: bool,
}

impl SearchableText {
    /// Builds the searchable form of a text in one pass.
    fn from_text(original: &str, level: MatchLevel) -> Self {
        let lone = !original.contains('\n');
        let mut shown = Self {
            text: String::with_capacity(original.len()),
            parts: Vec::new(),
        };
        for (start, line) in with_starts(original.split_inclusive(if lone { '\r' } else { '\n' })) {
            let end = line_ending(line);
            let whole = line.strip_suffix(end).unwrap_or(line);
            let kept = if level == MatchLevel::Exact {
                whole
            } else {
                whole.trim_end_matches(|c| normalize_char(c).is_whitespace())
            };
            if level == MatchLevel::Exact || kept.is_ascii() {
                shown.push_part(kept, start..start + kept.len(), true);
            } else {
                for (at, c) in kept.char_indices() {
                    let source = start + at..start + at + c.len_utf8();
                    shown.push_part(
                        normalize_char(c).encode_utf8(&mut [0; 4]),
                        source,
                        normalize_char(c) == c,
                    );
                }
            }
            if !end.is_empty() {
                let feed = start + line.len() - 1;
                shown.push_part("\n", feed..feed + 1, end.ends_with('\n'));
            }
        }
        shown
    }

    /// Appends text; runs that are adjacent in the source are joined, so an unchanged file is few
    /// parts.
    fn push_part(&mut self, text: &str, source: Range<usize>, is_same: bool) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.is_same && is_same && last.source.end == source.start => {
                last.source.end = source.end
            }
            _ => self.parts.push(TextPart {
                shown: self.text.len(),
                source,
                is_same,
            }),
        }
        self.text.push_str(text);
    }

    /// Returns the form of `old` that was found and its offsets. At the normalized level, trailing
    /// white space of `old` is ignored if the match then ends at the end of a line.
    fn find_matches<'a>(
        &self,
        old: &'a str,
        level: MatchLevel,
    ) -> Option<(Cow<'a, str>, Vec<usize>)> {
        let at =
            |old: &str| -> Vec<usize> { self.text.match_indices(old).map(|(at, _)| at).collect() };
        if level == MatchLevel::Exact {
            let places = at(old);
            return (!places.is_empty()).then_some((Cow::Borrowed(old), places));
        }
        let normal = normalize_text(old);
        let places = if normal.trim().is_empty() {
            Vec::new()
        } else {
            at(&normal)
        };
        if !places.is_empty() {
            return Some((Cow::Owned(normal), places));
        }
        // The searchable text has no white space at line ends, so such a suffix can match only at
        // one.
        let short = normal.trim_end_matches([' ', '\t']).to_owned();
        let ends_line = |place: &usize| {
            matches!(
                self.text.as_bytes().get(place + short.len()),
                None | Some(b'\n')
            )
        };
        let places: Vec<_> = if short.trim().is_empty() || short == normal {
            Vec::new()
        } else {
            at(&short).into_iter().filter(ends_line).collect()
        };
        (!places.is_empty()).then_some((Cow::Owned(short), places))
    }

    /// Returns the source offset of what begins at an offset here.
    fn source_start(&self, at: usize) -> usize {
        self.part_at(at).map_or(0, |part| {
            part.source.start + if part.is_same { at - part.shown } else { 0 }
        })
    }

    /// Returns the source offset of the end of a text that ends at an offset here, without removed bytes after it.
    fn source_end(&self, at: usize) -> usize {
        self.part_at(at.saturating_sub(1))
            .map_or(0, |part| match part.is_same {
                true => part.source.end.min(part.source.start + (at - part.shown)),
                false => part.source.end,
            })
    }

    /// Returns the part that contains an offset, by binary search.
    fn part_at(&self, at: usize) -> Option<&TextPart> {
        self.parts.get(
            self.parts
                .partition_point(|part| part.shown <= at)
                .saturating_sub(1),
        )
    }

    /// Returns the source range of each line of the string that was found at `place`.
    fn source_pieces(&self, place: usize, old: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = with_starts(old.split_inclusive('\n'))
            .map(|(start, line)| {
                self.source_start(place + start)..self.source_end(place + start + line.len())
            })
            .collect();
        // White space that was left out belongs to the line that it ends.
        for index in 1..pieces.len() {
            if let Some(next) = pieces.get(index).map(|piece| piece.start)
                && let Some(piece) = pieces.get_mut(index - 1)
            {
                piece.end = next;
            }
        }
        pieces
    }
}

/// Replaces the places, each given as the source ranges of its lines.
fn replace_matches(
    original: &str,
    places: &[Vec<Range<usize>>],
    old: &str,
    new: &str,
    level: MatchLevel,
) -> Result<EditedText, Vec<EditFault>> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let lines = LineIndex::from_text(original);
    let count = |pieces: &[&str]| pieces.iter().filter(|line| line.ends_with('\n')).count();
    let mut content = String::with_capacity(original.len());
    let mut hunks = Vec::new();
    let mut next = 0;
    let mut old_line = 1;
    let mut new_line = 1;
    for pieces in places {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            continue;
        };
        let before = original.get(next..first.start).unwrap_or_default();
        content.push_str(before);
        let passed = before.matches('\n').count();
        (old_line, new_line) = (old_line + passed, new_line + passed);
        let found: Vec<&str> = pieces
            .iter()
            .map(|piece| original.get(piece.clone()).unwrap_or_default())
            .collect();
        // A model of `None` means the line before the place.
        let near = |model: Option<usize>| {
            lines.ending_near((old_line + model.map_or(0, |index| index + 1)).saturating_sub(2))
        };
        if level == MatchLevel::Exact
            && matches!((old.as_slice(), new.as_slice()), ([_], [] | [_]))
            && !replaces_line_end(&old, &new)
        {
            // Within a line there is no part to preserve, and there may be a million such places,
            // so the alignment is skipped.
            content.extend(new.iter().copied());
        } else {
            rewrite_match(&mut content, &found, &old, &new, near);
        }
        hunks.push(AppliedHunk {
            block: 1,
            old_line,
            old_lines: pieces.len(),
            new_line,
            new_lines: new.len(),
            level,
        });
        (old_line, new_line) = (old_line + count(&found), new_line + count(&new));
        next = last.end;
    }
    content.push_str(original.get(next..).unwrap_or_default());
    if content == original {
        return Err(vec![fault::no_effect_fault(&EditOrigin::for_whole_edit(
            EditSyntax::StringReplace,
        ))]);
    }
    Ok(EditedText { content, hunks })
}

/// Returns true if the old or the new text contains the end of a line.
fn replaces_line_end(old: &[&str], new: &[&str]) -> bool {
    old.iter().chain(new).any(|line| line.ends_with('\n'))
}

/// Writes the new lines of one place. Unchanged lines keep the bytes that were found; others take
/// the ending of their model line.
fn rewrite_match<'a>(
    content: &mut String,
    found: &[&str],
    old: &[&str],
    new: &[&str],
    near: impl Fn(Option<usize>) -> &'a str,
) {
    let plain: Vec<Cow<'_, str>> = found.iter().map(|line| normalize_line_ends(line)).collect();
    let plain: Vec<&str> = plain.iter().map(AsRef::as_ref).collect();
    let kept = align_lines(&plain, old, new);
    let models = line_ending_sources(&kept, old.len());
    for ((line, kept), model) in new.iter().zip(kept).zip(models) {
        match kept.and_then(|index| found.get(index)) {
            // Normalized comparison treats a line with and one without an ending as equal.
            Some(found) if line_ending(found).is_empty() == line_ending(line).is_empty() => {
                content.push_str(found)
            }
            _ => {
                content.push_str(line.strip_suffix('\n').unwrap_or(line));
                content.push_str(if line.ends_with('\n') {
                    near(model)
                } else {
                    ""
                });
            }
        }
    }
}

/// Replaces whole lines that are indented differently.
fn replace_shifted(
    original: &str,
    replacement: &StringReplacement,
    old: &str,
    new: &str,
) -> Result<EditedText, Vec<EditFault>> {
    let origin = EditOrigin::for_whole_edit(EditSyntax::StringReplace);
    let lines = LineIndex::from_text(original);
    let wanted: Vec<&str> = old.lines().collect();
    let instead: Vec<&str> = new.lines().collect();
    // Both must end the last line, or neither; otherwise lines would be joined.
    let is_whole = new.is_empty() || old.ends_with('\n') == new.ends_with('\n');
    let mut places = Vec::new();
    if is_whole && !old.trim().is_empty() {
        for place in lines.find_matches(MatchLevel::Shifted, &wanted, usize::MAX) {
            if places
                .last()
                .is_none_or(|last| last + wanted.len() <= place)
            {
                places.push(place);
            }
        }
    }
    if places.is_empty() {
        return match UnnumberedEdit::from_numbered(&wanted, &instead) {
            Some(bare) => replace_numbered(original, replacement, &bare),
            None => Err(vec![fault::not_found_fault(&origin, &lines, &wanted)]),
        };
    }
    check_count(original, replacement, &places, |place| *place)?;
    replace_lines(
        &lines,
        original,
        &places,
        &wanted,
        &instead,
        MatchLevel::Shifted,
    )
}

/// Replaces whole lines that were given with their line numbers: at the numbered place if they are
/// there, else at the only one.
fn replace_numbered(
    original: &str,
    replacement: &StringReplacement,
    bare: &UnnumberedEdit<'_>,
) -> Result<EditedText, Vec<EditFault>> {
    let origin = EditOrigin::for_whole_edit(EditSyntax::StringReplace);
    let lines = LineIndex::from_text(original);
    if bare.search == bare.replace {
        return Err(vec![fault::no_effect_fault(&origin)]);
    }
    // Blank lines are everywhere, and their number may be off.
    let is_blank = bare.search.iter().all(|line| line.trim().is_empty());
    for level in MatchLevel::ALL {
        let mut places = lines.find_matches(level, &bare.search, usize::MAX);
        let numbered = bare
            .first
            .checked_sub(1)
            .filter(|line| replacement.count == Some(1) && places.contains(line));
        if let Some(line) = numbered {
            places = vec![line];
        } else if is_blank {
            continue;
        }
        places.dedup_by(|next, last| *last + bare.search.len() > *next);
        if !places.is_empty() {
            check_count(original, replacement, &places, |place| *place)?;
            return replace_lines(
                &lines,
                original,
                &places,
                &bare.search,
                &bare.replace,
                level,
            );
        }
    }
    Err(vec![fault::not_found_fault(&origin, &lines, &bare.search)])
}

/// Replaces whole lines at these places, which do not overlap.
fn replace_lines<'a>(
    lines: &LineIndex<'a>,
    original: &str,
    places: &[usize],
    wanted: &[&'a str],
    instead: &[&'a str],
    level: MatchLevel,
) -> Result<EditedText, Vec<EditFault>> {
    let origin = EditOrigin::for_whole_edit(EditSyntax::StringReplace);
    let mut changes = Vec::new();
    for &start in places {
        let old = start..start + wanted.len();
        match rewrite_lines(lines, level, start, wanted, instead) {
            Some(new) => changes.push(LineChange {
                origin,
                level,
                old,
                new,
            }),
            None => return Err(vec![fault::indentation_fault(&origin, lines, old)]),
        }
    }
    let edited = splice_changes(lines, changes)?;
    if edited.content == original {
        return Err(vec![fault::no_effect_fault(&origin)]);
    }
    Ok(edited)
}

/// Returns a fault if the number of places is not the expected one. Fewer places are a fault as well, since the file differs from the
/// model's expectation.
fn check_count(
    original: &str,
    replacement: &StringReplacement,
    places: &[usize],
    line: impl Fn(&usize) -> usize,
) -> Result<(), Vec<EditFault>> {
    let origin = EditOrigin::for_whole_edit(EditSyntax::StringReplace);
    if replacement.count.is_none_or(|count| count == places.len()) {
        return Ok(());
    }
    let shown: Vec<usize> = places.iter().take(MAX_SHOWN + 1).map(line).collect();
    let lines = LineIndex::from_text(original);
    let mut fault = fault::ambiguous_fault(&origin, &lines, &shown, usize::MAX);
    fault.message = match replacement.count {
        Some(1) => format!(
            "the old text is found at {} places in the text",
            places.len()
        ),
        expected => {
            fault.kind = EditFaultKind::WrongCount;
            fault.hint = "give the number of places that are to be replaced, all of them";
            format!(
                "the old text is found at {} places in the text, not {}",
                places.len(),
                expected.unwrap_or_default()
            )
        }
    };
    Err(vec![fault])
}

/// Returns another occurrence of `old` that begins within the one at `place`.
fn find_overlapping(text: &str, old: &str, place: usize) -> Option<usize> {
    let next = place + old.chars().next().map_or(1, char::len_utf8);
    let end = (place + 2 * old.len()).min(text.len());
    // The window end may fall inside a character of up to four bytes, so shorter windows are tried.
    let window = (0..4).find_map(|more| text.get(next..end.saturating_sub(more)))?;
    window
        .find(old)
        .map(|at| next + at)
        .filter(|at| *at < place + old.len())
}

/// Returns the index of the line at a byte offset.
fn line_index_at(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count()
}

/// Replaces `\r\n` by `\n`, so that the strings of an edit fit files with either ending.
fn normalize_line_ends(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Normalizes a text: removes white space before line feeds and replaces typography; the end is
/// kept.
fn normalize_text(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let whole = line.strip_suffix('\n');
        let kept = whole.map_or(line, |line| {
            line.trim_end_matches(|c| normalize_char(c).is_whitespace())
        });
        normal.extend(kept.chars().map(normalize_char));
        normal.push_str(if whole.is_some() { "\n" } else { "" });
    }
    normal
}

/// Pairs consecutive pieces of a text with their byte offsets.
fn with_starts<'a>(
    pieces: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut at = 0;
    pieces.map(move |piece| {
        let start = at;
        at += piece.len();
        (start, piece)
    })
}
