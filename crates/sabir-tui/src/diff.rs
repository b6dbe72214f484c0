//! Renders unified diffs: line numbers, marks within changed lines, side by side where the screen is wide enough.

use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};
use sabir_terminal::sanitizer::sanitize_text;
use unicode_segmentation::UnicodeSegmentation;

use crate::highlight::CodeHighlighter;
use crate::lines::{HistoryLine, line_width, span, text_width, wrap_words};
use crate::theme::{Role, Theme};

/// The width from which a diff is shown side by side.
pub const MIN_SPLIT_WIDTH: usize = 140;

/// A line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'a> {
    Hunk(&'a str),
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
    /// A note, such as that about a missing line end.
    Note(&'a str),
}

/// A row of a diff: the old line, the new one, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffRow<'a> {
    Heading(&'a str),
    Same {
        old: usize,
        new: usize,
        text: &'a str,
    },
    Changed {
        old: Option<(usize, &'a str)>,
        new: Option<(usize, &'a str)>,
    },
}

/// Renders the unified diff of a file. `path` chooses the language.
pub fn render_diff(diff: &str, path: &str, theme: Theme, width: usize) -> Vec<HistoryLine> {
    let clean = sanitize_text(diff);
    let rows = pair_rows(&clean);
    let digits = rows
        .iter()
        .map(row_number)
        .max()
        .unwrap_or(0)
        .to_string()
        .len();
    let renderer = DiffRenderer {
        theme,
        digits,
        path,
    };
    let mut lines = Vec::new();
    for row in rows {
        if width >= MIN_SPLIT_WIDTH {
            renderer.push_split_row(row, width, &mut lines);
        } else {
            renderer.push_unified_row(row, &mut lines);
        }
    }
    lines
}

fn row_number(row: &DiffRow<'_>) -> usize {
    match row {
        DiffRow::Heading(_) => 0,
        DiffRow::Same { old, new, .. } => *old.max(new),
        DiffRow::Changed { old, new } => {
            let number = |side: &Option<(usize, &str)>| side.map_or(0, |(number, _)| number);
            number(old).max(number(new))
        }
    }
}

fn parse_line(line: &str) -> Option<DiffLine<'_>> {
    if line.starts_with("--- ") || line.starts_with("+++ ") {
        return None;
    }
    Some(match line.split_at_checked(1) {
        _ if line.starts_with("@@") => DiffLine::Hunk(line),
        Some((" ", text)) => DiffLine::Same(text),
        Some(("-", text)) => DiffLine::Removed(text),
        Some(("+", text)) => DiffLine::Added(text),
        None => DiffLine::Same(""),
        _ => DiffLine::Note(line),
    })
}

/// Numbers the lines, and puts each removed line beside the added one that takes its place.
fn pair_rows(diff: &str) -> Vec<DiffRow<'_>> {
    let mut rows = Vec::new();
    let mut old = 1;
    let mut new = 1;
    let mut removed: Vec<(usize, &str)> = Vec::new();
    let mut added: Vec<(usize, &str)> = Vec::new();
    // Only the lines before the first hunk name files.
    let mut in_hunk = false;
    for line in diff.lines() {
        let parsed = match parse_line(line) {
            None if in_hunk => match line.split_at_checked(1) {
                Some(("-", text)) => DiffLine::Removed(text),
                Some((_, text)) => DiffLine::Added(text),
                None => continue,
            },
            None => continue,
            Some(parsed) => parsed,
        };
        match parsed {
            DiffLine::Removed(text) => {
                if !added.is_empty() {
                    flush_changes(&mut removed, &mut added, &mut rows);
                }
                removed.push((old, text));
                old += 1;
            }
            DiffLine::Added(text) => {
                added.push((new, text));
                new += 1;
            }
            DiffLine::Same(text) => {
                flush_changes(&mut removed, &mut added, &mut rows);
                rows.push(DiffRow::Same { old, new, text });
                old += 1;
                new += 1;
            }
            DiffLine::Hunk(heading) => {
                flush_changes(&mut removed, &mut added, &mut rows);
                in_hunk = true;
                if let Some(start) = hunk_start(heading) {
                    old = start.0;
                    new = start.1;
                }
                rows.push(DiffRow::Heading(heading));
            }
            DiffLine::Note(note) => {
                flush_changes(&mut removed, &mut added, &mut rows);
                rows.push(DiffRow::Heading(note));
            }
        }
    }
    flush_changes(&mut removed, &mut added, &mut rows);
    rows
}

fn flush_changes<'a>(
    removed: &mut Vec<(usize, &'a str)>,
    added: &mut Vec<(usize, &'a str)>,
    rows: &mut Vec<DiffRow<'a>>,
) {
    for at in 0..removed.len().max(added.len()) {
        rows.push(DiffRow::Changed {
            old: removed.get(at).copied(),
            new: added.get(at).copied(),
        });
    }
    removed.clear();
    added.clear();
}

/// Returns the first old and new line of a hunk: `@@ -3,4 +5,6 @@`.
fn hunk_start(heading: &str) -> Option<(usize, usize)> {
    let mut words = heading.split_whitespace().skip(1);
    let mut number = |mark: char| {
        let range = words.next()?.strip_prefix(mark)?;
        range.split(',').next()?.parse().ok()
    };
    let old = number('-')?;
    let new = number('+')?;
    Some((old, new))
}

struct DiffRenderer<'a> {
    theme: Theme,
    digits: usize,
    path: &'a str,
}

impl DiffRenderer<'_> {
    fn push_unified_row(&self, row: DiffRow<'_>, lines: &mut Vec<HistoryLine>) {
        let hanging = self.digits + 2;
        match row {
            DiffRow::Heading(text) => lines.push(self.heading(text)),
            DiffRow::Same { new, text, .. } => {
                let line = self.side(new, ' ', self.code(text), Role::Plain);
                lines.push(HistoryLine::words(line, hanging));
            }
            DiffRow::Changed { old, new } => {
                let marked = mark_changes(old.map(|side| side.1), new.map(|side| side.1));
                if let Some((number, _)) = old {
                    let pieces = self.marked(&marked.old, Role::Removed);
                    let line = self.side(number, '-', pieces, Role::Removed);
                    lines.push(HistoryLine::words(line, hanging));
                }
                if let Some((number, _)) = new {
                    let pieces = self.marked(&marked.new, Role::Added);
                    let line = self.side(number, '+', pieces, Role::Added);
                    lines.push(HistoryLine::words(line, hanging));
                }
            }
        }
    }

    fn push_split_row(&self, row: DiffRow<'_>, width: usize, lines: &mut Vec<HistoryLine>) {
        let column = (width - 3) / 2;
        let (left, right) = match row {
            DiffRow::Heading(text) => return lines.push(self.heading(text)),
            DiffRow::Same { old, new, text } => (
                self.side(old, ' ', self.code(text), Role::Plain),
                self.side(new, ' ', self.code(text), Role::Plain),
            ),
            DiffRow::Changed { old, new } => {
                let marked = mark_changes(old.map(|side| side.1), new.map(|side| side.1));
                let side = |known: Option<(usize, &str)>, mark: char, parts: &MarkedLine, role| {
                    known.map_or_else(Line::default, |(number, _)| {
                        self.side(number, mark, self.marked(parts, role), role)
                    })
                };
                (
                    side(old, '-', &marked.old, Role::Removed),
                    side(new, '+', &marked.new, Role::Added),
                )
            }
        };
        let left = wrap_words(&left, column, self.digits + 2);
        let right = wrap_words(&right, column, self.digits + 2);
        for at in 0..left.len().max(right.len()) {
            let row = left.get(at).cloned().unwrap_or_default();
            let blanks = column.saturating_sub(line_width(&row));
            let mut spans = row.spans;
            spans.push(Span::raw(" ".repeat(blanks)));
            spans.push(span(" │ ", self.theme.style(Role::Dim)));
            spans.extend(right.get(at).cloned().unwrap_or_default().spans);
            lines.push(HistoryLine::words(Line::from(spans), 0));
        }
    }

    fn heading(&self, text: &str) -> HistoryLine {
        HistoryLine::words(Line::from(span(text, self.theme.style(Role::Accent))), 2)
    }

    fn side(
        &self,
        number: usize,
        mark: char,
        pieces: Vec<Span<'static>>,
        role: Role,
    ) -> Line<'static> {
        let digits = self.digits;
        let mut spans = vec![
            span(&format!("{number:>digits$} "), self.theme.style(Role::Dim)),
            span(&mark.to_string(), self.theme.style(role)),
        ];
        spans.extend(pieces);
        Line::from(spans)
    }

    fn code(&self, text: &str) -> Vec<Span<'static>> {
        CodeHighlighter::for_language(self.path).highlight_line(text, self.theme)
    }

    fn marked(&self, parts: &MarkedLine, role: Role) -> Vec<Span<'static>> {
        let style = self.theme.style(role);
        let changed = style.patch(Style::new().add_modifier(Modifier::REVERSED));
        vec![
            span(&parts.start, style),
            span(&parts.changed, changed),
            span(&parts.end, style),
        ]
    }
}

/// A line whose middle differs from that of another line.
#[derive(Debug, Default, PartialEq, Eq)]
struct MarkedLine {
    start: String,
    changed: String,
    end: String,
}

/// The marks of a pair of lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct MarkedPair {
    old: MarkedLine,
    new: MarkedLine,
}

/// Marks what differs between two lines. Lines that have little in common are not marked.
fn mark_changes(old: Option<&str>, new: Option<&str>) -> MarkedPair {
    let whole = |text: Option<&str>| MarkedLine {
        start: text.unwrap_or_default().to_owned(),
        ..MarkedLine::default()
    };
    let unmarked = MarkedPair {
        old: whole(old),
        new: whole(new),
    };
    let (Some(old), Some(new)) = (old, new) else {
        return unmarked;
    };
    let words = |text: &'_ str| {
        text.split_word_bounds()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let one = words(old);
    let other = words(new);
    let start = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let rest = one.len().min(other.len()) - start;
    let end = one
        .iter()
        .rev()
        .zip(other.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();
    let split = |words: &[String]| {
        let part = |from: usize, to: usize| words.get(from..to).unwrap_or_default().concat();
        MarkedLine {
            start: part(0, start),
            changed: part(start, words.len() - end),
            end: part(words.len() - end, words.len()),
        }
    };
    let pair = MarkedPair {
        old: split(&one),
        new: split(&other),
    };
    let same = text_width(&pair.old.start) + text_width(&pair.old.end);
    let changed = text_width(&pair.old.changed).max(text_width(&pair.new.changed));
    if pair.old.start.trim().is_empty() && pair.old.end.trim().is_empty() || changed > 3 * same {
        return unmarked;
    }
    pair
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x.rs\n+++ b/x.rs\n@@ -3,3 +3,4 @@\n fn a() {\n-    let x = 1;\n+    let x = 2;\n+    go();\n }\n";

    fn texts(width: usize) -> Vec<String> {
        let lines = render_diff(DIFF, "x.rs", Theme::new(true), width);
        lines.iter().map(|line| line.line.to_string()).collect()
    }

    #[test]
    fn a_diff_has_line_numbers() {
        assert_eq!(
            texts(80),
            [
                "@@ -3,3 +3,4 @@",
                "3  fn a() {",
                "4 -    let x = 1;",
                "4 +    let x = 2;",
                "5 +    go();",
                "6  }",
            ]
        );
    }

    #[test]
    fn a_wide_screen_shows_both_sides() {
        let rows = texts(MIN_SPLIT_WIDTH);
        assert_eq!(rows.len(), 5);
        let sides: Vec<_> = rows[2].split(" │ ").map(str::trim_end).collect();
        assert_eq!(sides, ["4 -    let x = 1;", "4 +    let x = 2;"]);
        assert!(rows[3].ends_with(" │ 5 +    go();"), "{:?}", rows[3]);
    }

    #[test]
    fn changes_within_a_line_are_marked() {
        let pair = mark_changes(Some("let x = 1;"), Some("let x = 22;"));
        let changed = (pair.old.changed.as_str(), pair.new.changed.as_str());
        assert_eq!(changed, ("1", "22"));
        assert_eq!(mark_changes(Some("abc"), Some("xyz")).old.changed, "");
    }

    #[test]
    fn lines_that_look_like_file_names_are_lines() {
        let diff = "--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+++ y\n";
        let lines = render_diff(diff, "a", Theme::new(true), 80);
        let texts: Vec<_> = lines.iter().map(|line| line.line.to_string()).collect();
        assert_eq!(texts, ["@@ -1 +1 @@", "1 --- x", "1 +++ y"]);
    }
}
