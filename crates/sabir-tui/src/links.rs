//! Finds the addresses and file names in a line, and writes them as links (OSC 8).
//!
//! A position in a line is a number of visible characters, because blanks come and go where a line wraps.

use std::fmt::Write as _;

use ratatui_core::style::Style;
use ratatui_core::text::Line;

use crate::lines::{HistoryLine, one_line, write_style, write_text};

/// The maximum number of bytes of a link's target, as most terminals allow it.
const MAX_TARGET: usize = 2000;

/// The maximum number of addresses in a line that become links.
const MAX_LINKS: usize = 256;

/// A part of a line that leads somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineLink {
    /// The number of visible characters before it.
    start: usize,
    /// The number of visible characters before its end.
    end: usize,
    /// The address, in printable ASCII.
    target: String,
}

impl LineLink {
    /// Creates the link of a path in a folder to the file, where it occurs first in a text as whole words; `None` if it does not.
    pub fn to_path(path: &str, folder: &str, text: &str) -> Option<Self> {
        if path.is_empty() || path.chars().any(char::is_control) {
            return None;
        }
        let whole = match path.starts_with('/') {
            true => path.to_owned(),
            false if folder.starts_with('/') => format!("{}/{path}", folder.trim_end_matches('/')),
            false => return None,
        };
        // A file `read` is not meant within `read_file`.
        let mut places = text.match_indices(path).map(|(at, _)| at);
        let at = places.find(|at| is_whole(text, *at, path.len()))?;
        let start = visible_count(text.get(..at)?);
        Self::new(start, path, &format!("file://{}", percent_encoded(&whole)))
    }

    /// Creates the link of a label to the address that a model has written; `None` for other kinds of addresses, which could start
    /// programs. `start` is the number of visible characters before the label.
    pub fn to_address(start: usize, label: &str, address: &str) -> Option<Self> {
        let is_allowed = ["http://", "https://", "file://"]
            .into_iter()
            .any(|scheme| {
                let head = address.get(..scheme.len());
                head.is_some_and(|head| head.eq_ignore_ascii_case(scheme))
            });
        let link = Self::new(start, label, &percent_encoded(address));
        link.filter(|link| is_allowed && link.start < link.end)
    }

    /// Returns the link with so many more visible characters before it.
    #[must_use]
    pub fn moved_by(self, count: usize) -> Self {
        Self {
            start: self.start + count,
            end: self.end + count,
            ..self
        }
    }

    /// Returns the part of the link that is in a row, for the row alone. `start` and `count` are the visible characters before and in it.
    pub fn within(&self, start: usize, count: usize) -> Option<Self> {
        let part = Self {
            start: self.start.saturating_sub(start),
            end: self.end.saturating_sub(start).min(count),
            target: self.target.clone(),
        };
        (part.start < part.end).then_some(part)
    }

    fn new(start: usize, part: &str, target: &str) -> Option<Self> {
        // The target is written between control characters: one inside would end the sequence, and
        // the terminal would execute the rest as commands.
        let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain || target.len() > MAX_TARGET {
            return None;
        }
        Some(Self {
            start,
            end: start + visible_count(part),
            target: target.to_owned(),
        })
    }

    /// Returns true if a character with this many visible ones before it is in the link. A blank before the first is not.
    fn contains(&self, position: usize, is_blank: bool) -> bool {
        let start = self.start + usize::from(is_blank);
        (start..self.end).contains(&position)
    }
}

/// Returns true if a part of a text does not continue as a name or a path on either side.
fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let continues = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    let before = text.get(..at).and_then(|before| before.chars().next_back());
    let mut after = text.get(at + length..).unwrap_or_default().chars();
    // A dot after a path may end a sentence.
    let continues_after = match after.next() {
        Some('.') => after.next().is_some_and(continues),
        next => next.is_some_and(continues),
    };
    !continues_after && !before.is_some_and(|c| continues(c) || c == '.')
}

/// Returns the number of characters of a text that are not blanks.
pub fn visible_count(text: &str) -> usize {
    text.chars().filter(|c| *c != ' ').count()
}

/// Finds the addresses of web pages in a text: the first 256 of them.
pub fn find_addresses(text: &str) -> Vec<LineLink> {
    let mut links = Vec::new();
    let mut from = 0;
    // Counted on from the last address, so that a line with many of them is read once.
    let mut counted = 0;
    let mut position = 0;
    while links.len() < MAX_LINKS
        && let Some(found) = text.get(from..).and_then(|rest| rest.find("http"))
    {
        let at = from + found;
        let rest = text.get(at..).unwrap_or_default();
        from = at + "http".len();
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let is_scheme = rest.starts_with("http://") || rest.starts_with("https://");
        if !is_scheme || before.is_some_and(char::is_alphanumeric) {
            continue;
        }
        let address = address_at(rest);
        let host = address.split_once("://").map_or("", |(_, host)| host);
        if host.chars().next().is_some_and(char::is_alphanumeric) {
            position += visible_count(text.get(counted..at).unwrap_or_default());
            counted = at;
            links.extend(LineLink::new(position, address, &percent_encoded(address)));
        }
        // Skips at least the found word: an address that is empty after trimming would be found
        // forever.
        from = at + address.len().max("http".len());
    }
    links
}

/// Returns the address at the beginning of a text, without the punctuation of the sentence that it is in.
fn address_at(text: &str) -> &str {
    let is_end = |c: char| c.is_whitespace() || c.is_control() || "<>\"'`|│".contains(c);
    let end = text.find(is_end).unwrap_or(text.len());
    let mut address = text.get(..end).unwrap_or_default();
    // Too long for a link in any case.
    if address.len() > MAX_TARGET {
        return address;
    }
    // Counted once: an address may end in a thousand brackets.
    let surplus = |open: char, close: char| {
        let opened = address.matches(open).count();
        address.matches(close).count().saturating_sub(opened)
    };
    let mut round = surplus('(', ')');
    let mut square = surplus('[', ']');
    let mut curly = surplus('{', '}');
    while let Some(last) = address.chars().next_back() {
        let unopened = match last {
            '.' | ',' | ';' | ':' | '!' | '?' | '*' | '_' | '…' => None,
            ')' => Some(&mut round),
            ']' => Some(&mut square),
            '}' => Some(&mut curly),
            _ => break,
        };
        if let Some(unopened) = unopened {
            if *unopened == 0 {
                break;
            }
            *unopened -= 1;
        }
        address = address
            .get(..address.len() - last.len_utf8())
            .unwrap_or_default();
    }
    address
}

/// Encodes the characters that a target must not contain: everything but printable ASCII, and
/// blanks.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Returns the bytes of the rows of a line with its links, without line ends; `None` if it has no links. `number` distinguishes the line
/// from others, so that a terminal marks all rows of a link, and only those, when the mouse is over one.
pub fn linked_rows(
    line: &HistoryLine,
    rows: &[Line<'static>],
    number: usize,
) -> Option<Vec<String>> {
    let text = line.line.to_string();
    let links = ordered_links(&line.links, find_addresses(&text));
    if links.is_empty() {
        return None;
    }
    let mut writer = LinkWriter {
        links: &links,
        next: 0,
        number,
        position: 0,
    };
    let write = |row| {
        let mut out = String::new();
        writer.write_row(row, &mut out);
        out
    };
    Some(rows.iter().map(write).collect())
}

/// Returns the links of a line in their order, without those that overlap an earlier one of these lists.
fn ordered_links(own: &[LineLink], addresses: Vec<LineLink>) -> Vec<LineLink> {
    let mut links: Vec<LineLink> = Vec::new();
    for link in own.iter().cloned().chain(addresses) {
        // Those with a smaller start come before it.
        let at = links.partition_point(|known| known.start < link.start);
        let before = at.checked_sub(1).and_then(|before| links.get(before));
        let is_free = before.is_none_or(|before| before.end <= link.start)
            && links.get(at).is_none_or(|after| link.end <= after.start);
        if is_free && link.start < link.end {
            links.insert(at, link);
        }
    }
    links
}

struct LinkWriter<'a> {
    /// The links in their order, none in another.
    links: &'a [LineLink],
    /// The index of the first link that does not end before the position.
    next: usize,
    number: usize,
    /// The number of visible characters so far.
    position: usize,
}

impl LinkWriter<'_> {
    fn write_row(&mut self, row: &Line<'_>, out: &mut String) {
        let mut style = Style::new();
        let mut open: Option<usize> = None;
        let mut is_indented = true;
        for piece in &row.spans {
            let wanted = row.style.patch(piece.style);
            if wanted != style {
                write_style(style, wanted, out);
                style = wanted;
            }
            let mut part = String::new();
            for c in piece.content.chars() {
                is_indented &= c == ' ';
                // The indentation of a continued row is no part of the link.
                let is_blank = c == ' ';
                let link = self.link_here(is_blank).filter(|_| !is_indented);
                if link != open {
                    write_text(&std::mem::take(&mut part), out);
                    self.switch_link(link, out);
                    open = link;
                }
                part.push(c);
                self.position += usize::from(!is_blank);
            }
            write_text(&part, out);
        }
        // An open link would continue into the next row, so each row closes its part. The id joins
        // the parts.
        if open.is_some() {
            self.switch_link(None, out);
        }
        write_style(style, Style::new(), out);
    }

    /// Returns the index of the link at the current position.
    fn link_here(&mut self, is_blank: bool) -> Option<usize> {
        while let Some(link) = self.links.get(self.next) {
            if link.end > self.position {
                return link.contains(self.position, is_blank).then_some(self.next);
            }
            self.next += 1;
        }
        None
    }

    fn switch_link(&self, link: Option<usize>, out: &mut String) {
        let known = link.and_then(|at| Some((at, self.links.get(at)?)));
        match known {
            Some((at, link)) => {
                let target = one_line(&link.target);
                // Writing to a string cannot fail.
                _ = write!(out, "\x1b]8;id=s{}-{at};{target}\x1b\\", self.number);
            }
            None => out.push_str("\x1b]8;;\x1b\\"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::text::Span;

    use super::*;
    use crate::lines::write_line;

    fn targets(text: &str) -> Vec<String> {
        let links = find_addresses(text).into_iter();
        links.map(|link| link.target).collect()
    }

    #[test]
    fn addresses_are_found_without_the_sentence_around_them() {
        let cases = [
            ("see https://a.example/b.", "https://a.example/b"),
            ("(https://a.example/c_(d))", "https://a.example/c_(d)"),
            ("<http://a.example>", "http://a.example"),
            ("**https://a.example/x**,", "https://a.example/x"),
            ("[(https://a.example/[x]{y})].", "https://a.example/[x]{y}"),
            ("https://a.example/(a)).)", "https://a.example/(a)"),
            ("https://a.example/ü", "https://a.example/%C3%BC"),
            ("`https://a.example:8/?q=1#f`", "https://a.example:8/?q=1#f"),
        ];
        for (text, target) in cases {
            assert_eq!(targets(text), [target], "{text}");
        }
        for text in [
            "xhttp://a",
            "https://",
            "http",
            "httpshttps://",
            "https:///etc",
        ] {
            assert_eq!(targets(text), [""; 0], "{text}");
        }
        assert_eq!(targets("http://a.b and https://c.d").len(), 2);
    }

    fn written(line: &HistoryLine, width: usize) -> String {
        let rows = line.rows(width);
        let plain = |row: &Line<'_>| {
            let mut out = String::new();
            write_line(row, &mut out);
            out
        };
        let written = linked_rows(line, &rows, 7);
        let written = written.unwrap_or_else(|| rows.iter().map(plain).collect());
        written.iter().map(|row| format!("{row}\r\n")).collect()
    }

    fn words(text: &str) -> HistoryLine {
        HistoryLine::words(Line::from(Span::raw(text.to_owned())), 2)
    }

    #[test]
    fn a_link_continues_over_rows() {
        let line = words("go to https://a.example/long/path now");
        assert_eq!(
            written(&line, 60),
            "go to \x1b]8;id=s7-0;https://a.example/long/path\x1b\\https://a.example/long/path\x1b]8;;\x1b\\ now\r\n"
        );
        let narrow = written(&line, 12);
        let open = "\x1b]8;id=s7-0;https://a.example/long/path\x1b\\";
        let rows: Vec<_> = narrow.split("\r\n").collect();
        assert!(rows.len() > 4, "{narrow:?}");
        let parts: String = rows
            .iter()
            .filter_map(|row| row.split_once(open))
            .filter_map(|(_, rest)| rest.split_once("\x1b]8;;\x1b\\"))
            .map(|(part, _)| part)
            .collect();
        assert_eq!(parts, "https://a.example/long/path");
    }

    #[test]
    fn a_line_has_at_most_256_addresses() {
        let address = "https://a.example/x ";
        let text = address.repeat(300);
        let links = find_addresses(&text);
        assert_eq!(links.len(), MAX_LINKS);
        let visible = address.len() - 1;
        assert!(
            links
                .iter()
                .enumerate()
                .all(|(at, link)| link.start == at * visible && link.end == link.start + visible)
        );
        let out = written(&words(&text), 60);
        assert_eq!(out.matches("\x1b]8;id=").count(), MAX_LINKS);
        assert!(out.contains("id=s7-255;https://a.example/x\x1b\\https://a.example/x\x1b]8;;"));
    }

    #[test]
    fn an_address_within_a_path_is_no_link_of_its_own() {
        let text = "see https://b.example http://a.example/x.rs end";
        let path = LineLink::to_path("http://a.example/x.rs", "/project", text).unwrap();
        let links = ordered_links(std::slice::from_ref(&path), find_addresses(text));
        let targets: Vec<_> = links.iter().map(|link| link.target.as_str()).collect();
        assert_eq!(targets, ["https://b.example", path.target.as_str()]);
    }

    #[test]
    fn a_path_becomes_the_address_of_a_file() {
        let text = "✓ read_file my src/ä.rs";
        let link = LineLink::to_path("my src/ä.rs", "/project/", text).unwrap();
        assert_eq!(link.target, "file:///project/my%20src/%C3%A4.rs");
        let mut line = words(text);
        line.links.push(link);
        assert!(
            written(&line, 60).contains("\\my src/ä.rs\x1b]8;;"),
            "{:?}",
            written(&line, 60)
        );
        assert_eq!(LineLink::to_path("a\x1b.rs", "/project", "a\x1b.rs"), None);
        assert_eq!(LineLink::to_path("a.rs", "", "a.rs"), None);
        assert_eq!(LineLink::to_path("gone.rs", "/project", text), None);
    }

    #[test]
    fn a_path_is_linked_as_whole_words_only() {
        let start = |path: &str, text: &str| {
            LineLink::to_path(path, "/project", text).map(|link| link.start)
        };
        assert_eq!(start("read", "✓ read_file read"), Some(10));
        assert_eq!(start("a", "✓ read_file a/a.rs -a .a b/a a: 1"), Some(23));
        assert_eq!(start("a.rs", "read a.rs."), Some(4));
        assert_eq!(start("a.rs", "(`a.rs`)"), Some(2));
        assert_eq!(start("read", "✓ read_file"), None);
        assert_eq!(start("ä", "äää ä.rs"), None);
    }

    #[test]
    fn nothing_hostile_is_written() {
        let hostile = "https://a.example/\x1b]0;t\x07\u{9b}2J\u{202e}x\u{7f} b";
        let out = written(&words(hostile), 60);
        let without_links = out
            .split("\x1b]8;")
            .map(|part| part.split_once("\x1b\\").map_or(part, |(_, rest)| rest))
            .collect::<String>();
        let left = without_links.replace("\r\n", "");
        assert!(!left.chars().any(char::is_control), "{out:?}");
        assert!(!left.contains('\u{202e}'), "{out:?}");
    }
}
