//! Parses a diff into SEARCH/REPLACE blocks and derives the variants in which a block is tried.

use super::fault::{self, EditFault, EditFaultKind, EditOrigin};
use super::{EditSyntax, MatchLevel};

/// The advice for content that looks like a marker.
const ESCAPE: &str = "write a backslash before each line of content that looks like a marker";

/// One SEARCH/REPLACE block of a diff.
pub(super) struct EditBlock<'a> {
    pub(super) origin: EditOrigin,
    /// The line of the text, from 1, where the block says that SEARCH begins.
    pub(super) hint: Option<usize>,
    /// The lines to find as written, without line hints and line endings.
    search: Vec<&'a str>,
    /// The replacement lines as written.
    replace: Vec<&'a str>,
}

/// One reading of a block.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BlockVariant<'a> {
    pub(super) search: Vec<&'a str>,
    pub(super) replace: Vec<&'a str>,
    pub(super) hint: Option<usize>,
    /// The number of the first SEARCH line, if the lines were numbered. If the lines match there, that place is used.
    pub(super) numbered: Option<usize>,
    /// The lowest level that a match of this variant counts as.
    pub(super) min_level: MatchLevel,
}

/// The pair of outer markers. The content of a block may hold the markers of the other family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkerFamily {
    Dashes,
    Angles,
}

/// A block whose closing marker was not read yet.
struct OpenBlock<'a> {
    origin: EditOrigin,
    family: MarkerFamily,
    /// The number of signs in the opening marker.
    signs: usize,
    body: Vec<&'a str>,
}

impl MarkerFamily {
    /// Returns the family that a line opens and the number of its signs.
    fn parse_opener(line: &str) -> Option<(Self, usize)> {
        let line = line.trim_end();
        // Some models write `<<<<<<< SEARCH>`, so one trailing `>` is tolerated.
        let line = line
            .strip_suffix('>')
            .filter(|rest| rest.ends_with("SEARCH"))
            .unwrap_or(line);
        let signs = line.strip_suffix(" SEARCH")?;
        [(Self::Dashes, '-'), (Self::Angles, '<')]
            .into_iter()
            .find(|(_, sign)| is_row(signs, *sign))
            .map(|(family, _)| (family, signs.len()))
    }

    /// Returns the family that a line closes. The number of its signs need not equal the opener's.
    fn parse_closer(line: &str) -> Option<Self> {
        let signs = line.trim_end().strip_suffix(" REPLACE")?;
        [(Self::Dashes, '+'), (Self::Angles, '>')]
            .into_iter()
            .find(|(_, sign)| is_row(signs, *sign))
            .map(|(family, _)| family)
    }

    /// Returns the number of signs of a divider. Trailing blanks are allowed in the angle family
    /// only, as in the format's origin.
    fn parse_divider(self, line: &str) -> Option<usize> {
        let line = if self == Self::Angles {
            line.trim_end()
        } else {
            line
        };
        is_row(line, '=').then_some(line.len())
    }
}

/// Returns true for three or more of one sign and nothing else.
fn is_row(text: &str, sign: char) -> bool {
    text.len() >= 3 && text.chars().all(|c| c == sign)
}

impl<'a> EditBlock<'a> {
    /// Returns the variants of the block, in the order in which they are tried.
    pub(super) fn to_variants(&self) -> Vec<BlockVariant<'a>> {
        let search = self.search.clone();
        let replace = self.replace.clone();
        let literal = BlockVariant {
            search,
            replace,
            hint: self.hint,
            numbered: None,
            min_level: MatchLevel::Exact,
        };
        let plain = BlockVariant {
            search: without_escapes(&self.search),
            replace: without_escapes(&self.replace),
            ..literal.clone()
        };
        let derived = [without_numbers(&plain), without_edges(&plain)];
        // The text may contain the backslashes itself, so the literal variant comes first.
        let literal = (plain.search != literal.search).then_some(literal);
        literal
            .into_iter()
            .chain([plain])
            .chain(derived.into_iter().flatten())
            .collect()
    }

    /// Returns the REPLACE lines of a block whose SEARCH is empty or one blank line.
    pub(super) fn whole_content(&self) -> Option<Vec<&'a str>> {
        matches!(self.search.as_slice(), [] | [""]).then(|| without_escapes(&self.replace))
    }
}

/// Parses a diff and returns its well-formed blocks and the faults of its form.
///
/// An unclosed block is a fault: the output limit may have cut it, and its REPLACE would then miss its end.
pub(super) fn parse_blocks(diff: &str) -> (Vec<EditBlock<'_>>, Vec<EditFault>) {
    let mut blocks = Vec::new();
    let mut faults = Vec::new();
    let mut open: Option<OpenBlock<'_>> = None;
    let mut number = 0;
    // `lines` drops a carriage return before the newline, so a diff with CRLF parses the same.
    for (index, text) in diff.lines().enumerate() {
        let line = index + 1;
        let mut begin = |(family, signs)| {
            number += 1;
            OpenBlock {
                origin: EditOrigin {
                    format: EditSyntax::SearchReplace,
                    block: number,
                    line,
                },
                family,
                signs,
                body: Vec::new(),
            }
        };
        // An opener of the same family inside a block means that the block was never closed; one of
        // the other family is content.
        match (
            open.take(),
            MarkerFamily::parse_opener(text),
            MarkerFamily::parse_closer(text),
        ) {
            (None, Some(opened), _) => open = Some(begin(opened)),
            (None, None, Some(_)) => faults.push(stray_marker_fault(line, text)),
            // Prose between blocks is skipped, but a divider there means that an opening marker was
            // misspelt.
            (None, None, None) if text.trim_end() == "=======" => {
                faults.push(divider_outside_fault(line))
            }
            (None, None, None) => {}
            (Some(block), Some(again), _) if again.0 == block.family => {
                faults.push(unclosed_fault(&block, Some(line)));
                open = Some(begin(again));
            }
            (Some(block), _, Some(closed)) if closed == block.family => {
                match close_block(block, line) {
                    Ok(block) => blocks.push(block),
                    Err(fault) => faults.push(fault),
                }
            }
            (Some(mut block), _, _) => {
                block.body.push(text);
                open = Some(block);
            }
        }
    }
    if let Some(block) = open {
        faults.push(unclosed_fault(&block, None));
    }
    if number == 0 && faults.is_empty() {
        faults.push(fault::fault_at_line(
            EditSyntax::SearchReplace,
            1,
            EditFaultKind::NoBlocks,
            "there is no SEARCH/REPLACE block, so nothing would change",
            "begin each block with a line `------- SEARCH`, divide it with `=======`, end it with `+++++++ REPLACE`",
        ));
    }
    (blocks, faults)
}

/// Returns the number of bytes at the end of a text that may still become a marker of a block: its last
/// line, if some marker begins with it. `is_line_start` tells whether the text begins a line.
pub fn partial_marker_len(text: &str, is_line_start: bool) -> usize {
    let line = match text.rsplit_once('\n') {
        Some((_, line)) => line,
        None if is_line_start => text,
        None => return 0,
    };
    let Some(sign) = line.chars().next() else {
        return 0;
    };
    let rest = line.trim_start_matches(sign);
    let word = match sign {
        '-' | '<' => " SEARCH",
        '+' | '>' => " REPLACE",
        '=' => "",
        _ => return 0,
    };
    // A complete marker is held back as well, since the line may continue and be content.
    let is_begun = word.starts_with(rest) && (rest.is_empty() || line.len() - rest.len() >= 3);
    if is_begun { line.len() } else { 0 }
}

/// Returns true if a text contains a line that opens a block.
pub(super) fn has_opener(text: &str) -> bool {
    text.lines()
        .any(|line| MarkerFamily::parse_opener(line).is_some())
}

/// Returns true if a line could be a divider.
fn is_divider(line: &str) -> bool {
    is_row(line.trim_end(), '=')
}

/// Returns true if a line looks like a merge-conflict marker, which has the angle family's form.
fn is_conflict(line: &str) -> bool {
    // A row of `=` is not among them: it is the divider, and counted as one.
    let rest = line
        .strip_prefix("<<<<<<<")
        .or_else(|| line.strip_prefix(">>>>>>>"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Divides the body of a block into SEARCH and REPLACE; `closed` is the line of its closing marker.
///
/// # Errors
/// No divider, several of them, or a marker inside that could be the end of something.
fn close_block<'a>(open: OpenBlock<'a>, closed: usize) -> Result<EditBlock<'a>, EditFault> {
    let OpenBlock {
        origin,
        family,
        signs,
        mut body,
    } = open;
    let (hint, skipped) = parse_line_hints(&body);
    // The hints are not part of SEARCH; `skipped` keeps the line numbers of faults right.
    body.drain(..skipped);
    let all: Vec<(usize, usize)> = body
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, family.parse_divider(line)?)))
        .collect();
    // If a row has the length of the opening marker, rows of other lengths are content.
    let own: Vec<usize> = all
        .iter()
        .filter(|(_, length)| *length == signs)
        .map(|(at, _)| *at)
        .collect();
    let dividers = if own.is_empty() {
        all.into_iter().map(|(at, _)| at).collect()
    } else {
        own
    };
    let line_of = |at: usize| origin.line + 1 + skipped + at;
    let divider = match *dividers.as_slice() {
        [] => return Err(no_divider_fault(&origin, &body, closed)),
        [divider] => divider,
        // Any choice could put the text of one side into the other, so the block is refused.
        [first, second, ..] => {
            return Err(divided_twice_fault(
                &origin,
                dividers.len(),
                line_of(first),
                line_of(second),
            ));
        }
    };
    let stray = |(at, text): (usize, &&str)| {
        family == MarkerFamily::Angles && is_conflict(text) || at > divider && is_hint(text)
    };
    if let Some((at, text)) = body.iter().enumerate().find(|line| stray(*line)) {
        let message = format!(
            "`{}` is in the block, where it would become content",
            text.trim()
        );
        let hint = if is_hint(text) {
            "put line hints at the beginning of SEARCH, and write a backslash before a line of content that looks like one"
        } else {
            ESCAPE
        };
        return Err(fault::fault_at_line(
            EditSyntax::SearchReplace,
            line_of(at),
            EditFaultKind::StrayMarker,
            message,
            hint,
        ));
    }
    let replace = body.split_off(divider + 1);
    body.pop();
    Ok(EditBlock {
        origin,
        hint,
        search: body,
        replace,
    })
}

/// Parses the line hints that a SEARCH begins with (`:start_line:N`, `:end_line:N`, then perhaps a
/// row of dashes) and returns the first line and the number of hint lines.
fn parse_line_hints(body: &[&str]) -> (Option<usize>, usize) {
    let mut start = None;
    let mut end = None;
    let mut count = 0;
    for line in body {
        let Some((name, number)) = line
            .trim()
            .strip_prefix(':')
            .and_then(|rest| rest.split_once(':'))
        else {
            break;
        };
        let number = number
            .trim()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<usize>();
        match (name, number) {
            ("start_line", Ok(number)) if start.is_none() => start = Some(number),
            ("end_line", Ok(number)) if end.is_none() => end = Some(number),
            _ => break,
        }
        count += 1;
    }
    if count == 0 {
        return (None, 0);
    }
    if body
        .get(count)
        .is_some_and(|line| is_row(line.trim_end(), '-'))
    {
        count += 1;
    }
    // With only an end line, the start follows from the number of SEARCH lines.
    let length = body
        .iter()
        .skip(count)
        .take_while(|line| !is_divider(line))
        .count();
    (
        start.or_else(|| end.map(|end| (end + 1).saturating_sub(length))),
        count,
    )
}

/// Returns true if a line looks like a line hint. In REPLACE it would become content unnoticed.
fn is_hint(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(":start_line:") || line.starts_with(":end_line:")
}

/// Removes one backslash from each line that would be a marker without it.
fn without_escapes<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let is_marker = |line: &str| {
        let sevenfold = ["<<<<<<<", "=======", ">>>>>>>", "-------", "+++++++"];
        sevenfold.iter().any(|row| line.starts_with(row))
            || is_divider(line)
            || is_hint(line)
            || MarkerFamily::parse_opener(line).is_some()
            || MarkerFamily::parse_closer(line).is_some()
    };
    let unescaped = |line: &&'a str| match line.strip_prefix('\\') {
        Some(rest) if is_marker(rest.trim_start_matches('\\')) => rest,
        _ => line,
    };
    lines.iter().map(unescaped).collect()
}

/// The lines of an edit without the line numbers that they were written with.
pub(super) struct UnnumberedEdit<'a> {
    /// The number of the first line to find.
    pub(super) first: usize,
    /// The lines to find.
    pub(super) search: Vec<&'a str>,
    /// The lines instead.
    pub(super) replace: Vec<&'a str>,
}

impl<'a> UnnumberedEdit<'a> {
    /// Removes the line numbers, if every line to find begins with one, as in `12 | text`, and they count up. Of the lines to insert, all
    /// except blank ones must have numbers, or none.
    pub(super) fn from_numbered(search: &[&'a str], replace: &[&'a str]) -> Option<Self> {
        let first = number_of(search.first()?)?.0;
        let counted = search.iter().zip(first..).map(|(line, expected)| {
            let (number, text) = number_of(line)?;
            (number == expected).then_some(text)
        });
        let search = counted.collect::<Option<Vec<_>>>()?;
        // Lines may be inserted, so these numbers need not be consecutive.
        let replace = if replace.iter().all(|line| number_of(line).is_none()) {
            replace.to_vec()
        } else {
            let bare = |line: &&'a str| match number_of(line) {
                Some((_, text)) => Some(text),
                None => line.trim().is_empty().then_some(*line),
            };
            replace.iter().map(bare).collect::<Option<Vec<_>>>()?
        };
        Some(Self {
            first,
            search,
            replace,
        })
    }
}

/// Returns the variant without line numbers.
fn without_numbers<'a>(variant: &BlockVariant<'a>) -> Option<BlockVariant<'a>> {
    let bare = UnnumberedEdit::from_numbered(&variant.search, &variant.replace)?;
    Some(BlockVariant {
        search: bare.search,
        replace: bare.replace,
        hint: variant.hint,
        numbered: Some(bare.first),
        min_level: variant.min_level,
    })
}

/// Returns the variant without the blank lines that SEARCH begins or ends with; as many are removed
/// from REPLACE.
fn without_edges<'a>(variant: &BlockVariant<'a>) -> Option<BlockVariant<'a>> {
    let is_blank = |line: &&&str| line.trim().is_empty();
    let head = variant.search.iter().take_while(is_blank).count();
    let tail = variant
        .search
        .iter()
        .skip(head)
        .rev()
        .take_while(is_blank)
        .count();
    if head + tail == 0 || head == variant.search.len() {
        return None;
    }
    let blank = variant.replace.iter().take_while(is_blank).count();
    let from = head.min(blank);
    let end = variant
        .replace
        .iter()
        .skip(blank)
        .rev()
        .take_while(is_blank)
        .count()
        .min(tail);
    let search = variant
        .search
        .get(head..variant.search.len() - tail)?
        .to_vec();
    let replace = variant
        .replace
        .get(from..variant.replace.len() - end)?
        .to_vec();
    Some(BlockVariant {
        search,
        replace,
        hint: variant.hint,
        numbered: None,
        min_level: MatchLevel::Normalised,
    })
}

/// Splits a line as file readers show it, `12 | text`, into number and text. One blank after the
/// bar belongs to the notation.
fn number_of(line: &str) -> Option<(usize, &str)> {
    let (number, text) = line.split_once('|')?;
    Some((
        number.trim().parse().ok()?,
        text.strip_prefix(' ').unwrap_or(text),
    ))
}

/// Builds the fault for a block with several dividers.
fn divided_twice_fault(
    origin: &EditOrigin,
    count: usize,
    first: usize,
    second: usize,
) -> EditFault {
    let message =
        format!("the block has {count} dividers, the first in lines {first} and {second}");
    fault::fault_about(origin, EditFaultKind::UnclearDivider, message, ESCAPE)
}

/// Builds the fault for a divider between blocks.
fn divider_outside_fault(line: usize) -> EditFault {
    let message = "`=======` is outside of all blocks, so an opening marker is missing or misspelt";
    let hint = "begin each block with a line `------- SEARCH`, and divide it once";
    fault::fault_at_line(
        EditSyntax::SearchReplace,
        line,
        EditFaultKind::StrayMarker,
        message,
        hint,
    )
}

/// Builds the fault for a closing marker between blocks, which shows that an opener was missed.
fn stray_marker_fault(line: usize, marker: &str) -> EditFault {
    fault::fault_at_line(
        EditSyntax::SearchReplace,
        line,
        EditFaultKind::StrayMarker,
        format!("`{}` closes no block", marker.trim_end()),
        "give each block exactly one opening and one closing marker; for text that holds such a line itself, use the other \
         family of markers",
    )
}

/// Builds the fault for a block without an end; `before` is the line of the next opener, if any.
fn unclosed_fault(open: &OpenBlock<'_>, before: Option<usize>) -> EditFault {
    let is_divided = open
        .body
        .iter()
        .any(|line| open.family.parse_divider(line).is_some());
    let part = if is_divided { "REPLACE" } else { "SEARCH" };
    let place = before.map_or("the end of the diff".to_owned(), |line| {
        format!("the next block, in line {line}")
    });
    fault::fault_about(
        &open.origin,
        EditFaultKind::Unclosed,
        format!("the block is not closed, its {part} part extends to {place}"),
        "close it with `+++++++ REPLACE` if it began with dashes and `>>>>>>> REPLACE` if it began with angles",
    )
}

/// Builds the fault for a block without a divider; it mentions a divider with blanks after it.
fn no_divider_fault(origin: &EditOrigin, body: &[&str], closed: usize) -> EditFault {
    let nearly = body.iter().find(|line| is_divider(line));
    let message = match nearly {
        Some(_) => "the block has no line `=======`, only one with blanks behind it".to_owned(),
        None => format!("the block has no line `=======` before it is closed in line {closed}"),
    };
    let hint = "put a line `=======`, and nothing else in it, between the lines to find and the lines instead";
    fault::fault_about(origin, EditFaultKind::NoDivider, message, hint)
}
