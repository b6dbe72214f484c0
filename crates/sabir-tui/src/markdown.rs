//! Renders Markdown while it streams, without ever changing a line that was handed out.
//!
//! The text that is not decided yet stays in the stream, and is drawn in the viewport. A block is decided when the next one
//! begins, an item of a list when its next item begins, and a line of a code block when it ends. So what goes above the
//! viewport is final, and each byte is parsed a bounded number of times: a block that grows beyond 16 KiB is cut.

use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::highlight::CodeHighlighter;
use crate::lines::{HistoryLine, line_width, span, text_width};
use crate::theme::{Role, Theme};

/// The size at which a block is split, in bytes.
const MAX_OPEN: usize = 16 << 10;

/// A stream of Markdown.
#[derive(Debug)]
pub struct MarkdownStream {
    theme: Theme,
    /// The text that may still change.
    open: String,
    fence: Option<OpenFence>,
    /// True if lines were returned, so that the next block needs an empty line before it.
    has_output: bool,
    /// True if the last returned block was an item of a list that may continue.
    is_in_list: bool,
}

/// An unfinished code block.
#[derive(Debug)]
struct OpenFence {
    mark: char,
    length: usize,
    indent: usize,
    highlighter: CodeHighlighter,
}

impl MarkdownStream {
    /// Sets the styles of blocks that are finished from now on.
    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
    }

    /// Creates an empty stream.
    pub fn new(theme: Theme) -> Self {
        Self {
            theme,
            open: String::new(),
            fence: None,
            has_output: false,
            is_in_list: false,
        }
    }

    /// Appends text, which must be clean.
    pub fn push(&mut self, text: &str) {
        self.open.push_str(text);
    }

    /// Returns true if nothing is open.
    pub fn is_empty(&self) -> bool {
        self.open.trim().is_empty()
    }

    /// Returns the lines that can no longer change.
    pub fn take_decided(&mut self, width: usize) -> Vec<HistoryLine> {
        let mut lines = Vec::new();
        loop {
            let before = self.open.len();
            if self.fence.is_some() {
                self.take_code_lines(&mut lines);
            } else {
                self.take_blocks(width, &mut lines);
            }
            if self.open.len() == before {
                return lines;
            }
        }
    }

    /// Returns the remaining lines, and starts over.
    pub fn finish(&mut self, width: usize) -> Vec<HistoryLine> {
        let mut lines = self.take_decided(width);
        let rest = std::mem::take(&mut self.open);
        if let Some(mut fence) = self.fence.take() {
            if !rest.is_empty() && !fence.is_closed_by(&rest) {
                lines.push(fence.line(&rest, self.theme));
            }
        } else if !rest.trim().is_empty() {
            let text = rest.trim_end_matches('\n').to_owned();
            self.render_blocks(&text, width, &mut lines);
        }
        self.has_output = false;
        self.is_in_list = false;
        lines
    }

    /// Returns the current lines of the text that may still change.
    pub fn open_lines(&self, width: usize) -> Vec<HistoryLine> {
        let mut lines = Vec::new();
        if let Some(fence) = &self.fence {
            if !self.open.is_empty() && !fence.is_closed_by(&self.open) {
                let mut highlighter = fence.highlighter.clone();
                lines.push(code_line(
                    &self.open,
                    fence.indent,
                    &mut highlighter,
                    self.theme,
                ));
            }
            return lines;
        }
        if !self.is_empty() {
            let mut renderer = BlockRenderer::new(self.theme, width);
            renderer.render(self.open.trim_end_matches('\n'));
            lines = renderer.lines;
            if self.needs_distance(&self.open) && !lines.is_empty() {
                lines.insert(0, HistoryLine::empty());
            }
        }
        lines
    }

    fn take_code_lines(&mut self, lines: &mut Vec<HistoryLine>) {
        let Some(fence) = &mut self.fence else {
            return;
        };
        let mut taken = 0;
        let mut is_closed = false;
        for line in self.open.split_inclusive('\n') {
            let Some(text) = line.strip_suffix('\n') else {
                // A line without end may become very long.
                if line.len() <= MAX_OPEN {
                    break;
                }
                taken += line.len();
                lines.push(fence.line(line, self.theme));
                continue;
            };
            taken += line.len();
            if fence.is_closed_by(text) {
                is_closed = true;
                break;
            }
            lines.push(fence.line(text, self.theme));
        }
        self.open.drain(..taken);
        if is_closed {
            self.fence = None;
        }
    }

    fn take_blocks(&mut self, width: usize, lines: &mut Vec<HistoryLine>) {
        // A line that is not complete may become anything.
        let complete = self.open.rfind('\n').map_or(0, |at| at + 1);
        let last = self.open.get(..complete).and_then(last_block);
        if let Some(last) = &last
            && last.start > 0
        {
            let decided: String = self.open.drain(..last.start).collect();
            self.render_blocks(decided.trim_end_matches('\n'), width, lines);
            return;
        }
        if last.is_some()
            && let Some(fence) = self.begin_fence()
        {
            if self.has_output {
                lines.push(HistoryLine::empty());
            }
            self.fence = Some(fence);
            self.has_output = true;
            self.is_in_list = false;
            return;
        }
        if self.open.len() > MAX_OPEN {
            let half = self.open.get(..self.open.floor_char_boundary(MAX_OPEN));
            let head = half.unwrap_or_default();
            let cut = head
                .rfind('\n')
                .or_else(|| head.rfind(' '))
                .map_or(head.len(), |at| at + 1);
            let decided: String = self.open.drain(..cut).collect();
            self.render_blocks(decided.trim_end_matches('\n'), width, lines);
        }
    }

    /// Removes the opening line of a code block from the open text, if that is complete.
    fn begin_fence(&mut self) -> Option<OpenFence> {
        let skipped = self.open.len() - self.open.trim_start_matches('\n').len();
        let text = self.open.get(skipped..)?;
        let (line, _) = text.split_once('\n')?;
        let indent = line.len() - line.trim_start_matches(' ').len();
        let bare = line.trim_start_matches(' ');
        let mark = bare.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = bare.len() - bare.trim_start_matches(mark).len();
        let info = bare.get(length..)?.trim();
        if length < 3 || indent > 3 || mark == '`' && info.contains('`') {
            return None;
        }
        let fence = OpenFence {
            mark,
            length,
            indent,
            highlighter: CodeHighlighter::for_language(info),
        };
        let taken = skipped + line.len() + 1;
        self.open.drain(..taken);
        Some(fence)
    }

    fn render_blocks(&mut self, text: &str, width: usize, lines: &mut Vec<HistoryLine>) {
        if text.trim().is_empty() {
            return;
        }
        let mut renderer = BlockRenderer::new(self.theme, width);
        renderer.render(text);
        if renderer.lines.is_empty() {
            return;
        }
        if self.needs_distance(text) {
            lines.push(HistoryLine::empty());
        }
        self.has_output = true;
        self.is_in_list = renderer.ends_with_list;
        lines.append(&mut renderer.lines);
    }

    /// Returns true if an empty line comes before this text. Items of a list keep together.
    fn needs_distance(&self, text: &str) -> bool {
        self.has_output && !(self.is_in_list && begins_with_item(text))
    }
}

impl OpenFence {
    fn is_closed_by(&self, line: &str) -> bool {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let bare = line.trim();
        indent <= 3 && bare.len() >= self.length && bare.chars().all(|c| c == self.mark)
    }

    fn line(&mut self, text: &str, theme: Theme) -> HistoryLine {
        code_line(text, self.indent, &mut self.highlighter, theme)
    }
}

/// Renders a line of code.
fn code_line(
    text: &str,
    indent: usize,
    highlighter: &mut CodeHighlighter,
    theme: Theme,
) -> HistoryLine {
    let blanks = text.len() - text.trim_start_matches(' ').len();
    let text = text.get(blanks.min(indent)..).unwrap_or_default();
    let mut spans = vec![Span::raw("  ")];
    spans.extend(highlighter.highlight_line(text, theme));
    HistoryLine::whole(Line::from(spans))
}

/// The place of the last block of a text.
struct LastBlock {
    start: usize,
}

/// Finds the beginning of the last block, or of the last item of the last list; `None` without any block.
fn last_block(text: &str) -> Option<LastBlock> {
    let mut depth = 0_usize;
    let mut is_list = false;
    let mut start = None;
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    start = Some(range.start);
                    is_list = matches!(tag, Tag::List(_));
                } else if depth == 1 && is_list && matches!(tag, Tag::Item) {
                    start = Some(range.start);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => {
                start = Some(range.start);
                is_list = false;
            }
            _ => {}
        }
    }
    // A block may be indented; its line belongs to it.
    let start = start?;
    let line = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
    Some(LastBlock { start: line })
}

fn begins_with_item(text: &str) -> bool {
    let first = Parser::new_ext(text, options()).next();
    matches!(first, Some(Event::Start(Tag::List(_))))
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Renders complete blocks.
struct BlockRenderer {
    theme: Theme,
    width: usize,
    lines: Vec<HistoryLine>,
    /// The pieces of the line that is being written.
    line: Vec<Span<'static>>,
    styles: Vec<Style>,
    lists: Vec<Option<u64>>,
    /// The text before the lines of the open containers.
    prefix: String,
    prefixes: Vec<usize>,
    /// The mark of an item whose first line was not written.
    mark: Option<String>,
    code: Option<CodeBlock>,
    link: Option<OpenLink>,
    table: Option<Table>,
    ends_with_list: bool,
    needs_distance: bool,
}

struct CodeBlock {
    highlighter: CodeHighlighter,
    text: String,
}

struct OpenLink {
    target: String,
    text: String,
}

#[derive(Default)]
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Vec<Span<'static>>>>,
}

impl BlockRenderer {
    fn new(theme: Theme, width: usize) -> Self {
        Self {
            theme,
            width,
            lines: Vec::new(),
            line: Vec::new(),
            styles: vec![Style::new()],
            lists: Vec::new(),
            prefix: String::new(),
            prefixes: Vec::new(),
            mark: None,
            code: None,
            link: None,
            table: None,
            ends_with_list: false,
            needs_distance: false,
        }
    }

    fn render(&mut self, text: &str) {
        for event in Parser::new_ext(text, options()) {
            match event {
                Event::Start(tag) => self.begin(tag),
                Event::End(tag) => self.end(tag),
                Event::Text(text) => self.push_text(&text),
                Event::Code(text) => {
                    let style = self.style().patch(self.theme.style(Role::Code));
                    self.push_span(span(&text, style));
                    if let Some(link) = &mut self.link {
                        link.text.push_str(&text);
                    }
                }
                Event::Html(text) | Event::InlineHtml(text) => self.push_text(&text),
                Event::SoftBreak => self.push_text(" "),
                Event::HardBreak => self.end_line(),
                Event::Rule => {
                    self.begin_block();
                    let rule = "─".repeat(self.width.min(40));
                    self.push_span(span(&rule, self.theme.style(Role::Dim)));
                    self.end_line();
                    self.needs_distance = true;
                }
                Event::TaskListMarker(is_done) => {
                    let mark = if is_done { "[x] " } else { "[ ] " };
                    self.push_text(mark);
                }
                _ => {}
            }
        }
        self.end_line();
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_style(&mut self, style: Style) {
        self.styles.push(self.style().patch(style));
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.push_style(self.theme.style(Role::Heading));
                if level == HeadingLevel::H1 {
                    self.push_style(Style::new().add_modifier(Modifier::UNDERLINED));
                } else {
                    self.push_style(Style::new());
                }
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.begin_container("│ ");
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                let language = match &kind {
                    pulldown_cmark::CodeBlockKind::Fenced(info) => info.to_string(),
                    pulldown_cmark::CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(CodeBlock {
                    highlighter: CodeHighlighter::for_language(&language),
                    text: String::new(),
                });
            }
            Tag::List(first) => {
                self.end_line();
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_line();
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "• ".to_owned(),
                };
                let blanks = " ".repeat(text_width(&mark));
                self.mark = Some(format!("{}{mark}", self.prefix));
                self.begin_container(&blanks);
                self.needs_distance = false;
            }
            Tag::Table(alignments) => {
                self.begin_block();
                self.table = Some(Table {
                    alignments,
                    rows: Vec::new(),
                });
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.line.clear(),
            Tag::Emphasis => self.push_style(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push_style(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => {
                self.push_style(Style::new().add_modifier(Modifier::CROSSED_OUT));
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.push_style(self.theme.style(Role::Link));
                self.link = Some(OpenLink {
                    target: dest_url.to_string(),
                    text: String::new(),
                });
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.end_line();
                self.needs_distance = true;
            }
            TagEnd::Heading(_) => {
                self.end_line();
                self.styles.pop();
                self.styles.pop();
                self.needs_distance = true;
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.end_container();
                self.needs_distance = true;
            }
            TagEnd::CodeBlock => {
                self.end_code();
                self.needs_distance = true;
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
                self.needs_distance = self.lists.is_empty();
                self.ends_with_list = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                // An item without text.
                if let Some(mark) = self.mark.take() {
                    self.lines.push(HistoryLine::whole(Line::from(span(
                        &mark,
                        self.theme.style(Role::Accent),
                    ))));
                }
                self.end_container();
                self.needs_distance = false;
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                self.end_table();
                self.needs_distance = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some(link) = self.link.take()
                    && link.target != link.text
                    && !link.target.is_empty()
                {
                    let target = format!(" ({})", link.target);
                    self.push_span(span(&target, self.theme.style(Role::Dim)));
                }
            }
            _ => {}
        }
    }

    /// Begins a block at the top level or in a container, separated from the previous block.
    fn begin_block(&mut self) {
        self.end_line();
        self.ends_with_list = false;
        if std::mem::take(&mut self.needs_distance) && self.mark.is_none() {
            let prefix = self.prefix.trim_end().to_owned();
            self.lines.push(HistoryLine::whole(Line::from(span(
                &prefix,
                self.theme.style(Role::Dim),
            ))));
        }
    }

    fn begin_container(&mut self, prefix: &str) {
        self.prefixes.push(self.prefix.len());
        self.prefix.push_str(prefix);
    }

    fn end_container(&mut self) {
        let length = self.prefixes.pop().unwrap_or_default();
        self.prefix.truncate(length);
    }

    fn push_text(&mut self, text: &str) {
        if let Some(code) = &mut self.code {
            return code.text.push_str(text);
        }
        if let Some(link) = &mut self.link {
            link.text.push_str(text);
        }
        let style = self.style();
        let mut parts = text.split('\n');
        if let Some(first) = parts.next() {
            self.push_span(span(first, style));
        }
        // Only blocks of HTML hold line feeds.
        for part in parts {
            self.end_line();
            self.push_span(span(part, style));
        }
    }

    fn push_span(&mut self, piece: Span<'static>) {
        if !piece.content.is_empty() {
            self.line.push(piece);
        }
    }

    /// Returns the pieces before the next line: the mark of an item, or the prefix.
    fn line_start(&mut self) -> Span<'static> {
        match self.mark.take() {
            Some(mark) => span(&mark, self.theme.style(Role::Accent)),
            None => span(&self.prefix, self.theme.style(Role::Dim)),
        }
    }

    fn end_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let mut spans = vec![self.line_start()];
        spans.append(&mut self.line);
        let hanging = text_width(&self.prefix);
        // A quotation keeps its bar on every row.
        if self.prefix.contains('│') {
            let rows = crate::lines::wrap_words(&Line::from(spans), self.width, 0);
            let mut is_first = true;
            for row in rows {
                let line = if std::mem::take(&mut is_first) {
                    row
                } else {
                    let mut spans = vec![span(&self.prefix, self.theme.style(Role::Dim))];
                    spans.extend(row.spans);
                    Line::from(spans)
                };
                self.lines.push(HistoryLine::words(line, hanging));
            }
            return;
        }
        self.lines
            .push(HistoryLine::words(Line::from(spans), hanging));
    }

    fn end_code(&mut self) {
        let Some(mut code) = self.code.take() else {
            return;
        };
        let text = std::mem::take(&mut code.text);
        for line in text.lines() {
            let mut spans = vec![self.line_start(), Span::raw("  ")];
            spans.extend(code.highlighter.highlight_line(line, self.theme));
            self.lines.push(HistoryLine::whole(Line::from(spans)));
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        let start = self.prefix.clone();
        let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |row: &Vec<Vec<Span<'static>>>, at: usize| {
            row.get(at)
                .map_or(0, |cell| line_width(&Line::from(cell.clone())))
        };
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                table
                    .rows
                    .iter()
                    .map(|row| width_of(row, at))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let total = widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1) + start.len();
        if total > self.width {
            return self.write_records(&table, &start);
        }
        let dim = self.theme.style(Role::Dim);
        for (number, row) in table.rows.iter().enumerate() {
            let mut spans = vec![span(&start, dim)];
            for (at, column) in widths.iter().enumerate() {
                if at > 0 {
                    spans.push(span(" │ ", dim));
                }
                let blanks = column.saturating_sub(width_of(row, at));
                let left = match table.alignments.get(at) {
                    Some(Alignment::Right) => blanks,
                    Some(Alignment::Center) => blanks / 2,
                    _ => 0,
                };
                spans.push(Span::raw(" ".repeat(left)));
                let cell = row.get(at).cloned().unwrap_or_default();
                spans.extend(cell.into_iter().map(|piece| match number {
                    0 => piece.patch_style(self.theme.style(Role::Strong)),
                    _ => piece,
                }));
                if at + 1 < columns {
                    spans.push(Span::raw(" ".repeat(blanks - left)));
                }
            }
            self.lines.push(HistoryLine::words(Line::from(spans), 0));
            if number == 0 {
                let bars: Vec<_> = widths.iter().map(|width| "─".repeat(*width)).collect();
                let rule = format!("{start}{}", bars.join("─┼─"));
                self.lines
                    .push(HistoryLine::words(Line::from(span(&rule, dim)), 0));
            }
        }
    }

    /// Writes a table that is wider than the screen as records: a line for each cell, after the name of its column.
    fn write_records(&mut self, table: &Table, start: &str) {
        let strong = self.theme.style(Role::Strong);
        let Some((head, rows)) = table.rows.split_first() else {
            return;
        };
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                self.lines.push(HistoryLine::empty());
            }
            for (at, cell) in row.iter().enumerate() {
                let mut spans = vec![Span::raw(start.to_owned())];
                let name = head.get(at).cloned().unwrap_or_default();
                spans.extend(name.into_iter().map(|piece| piece.patch_style(strong)));
                spans.push(Span::raw(": "));
                spans.extend(cell.iter().cloned());
                self.lines
                    .push(HistoryLine::words(Line::from(spans), start.len() + 2));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[HistoryLine]) -> Vec<String> {
        lines.iter().map(|line| line.line.to_string()).collect()
    }

    /// The lines are the same in any chunks, and those that were handed out are final.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for size in [1, 3, 7, usize::MAX] {
            let mut stream = MarkdownStream::new(Theme::new(true));
            let mut lines = Vec::new();
            let chars: Vec<char> = text.chars().collect();
            for chunk in chars.chunks(size.min(chars.len().max(1))) {
                stream.push(&chunk.iter().collect::<String>());
                lines.extend(stream.take_decided(40));
                _ = stream.open_lines(40);
            }
            lines.extend(stream.finish(40));
            assert_eq!(texts(&lines), expected, "in chunks of {size}");
        }
    }

    #[test]
    fn blocks_are_rendered_in_any_chunks() {
        check(
            "# Title\n\nA *b* `c` **d**.\nE",
            &["Title", "", "A b c d. E"],
        );
        check(
            "Text\n\n- one\n- two\n  - in\n- three\n\nEnd\n",
            &["Text", "", "• one", "• two", "  • in", "• three", "", "End"],
        );
        check("3. a\n4. b\n", &["3. a", "4. b"]);
        check(
            "See:\n```rust\nfn a() {\n\n}\n```\nDone",
            &["See:", "", "  fn a() {", "  ", "  }", "", "Done"],
        );
        check("> quoted\n> text", &["│ quoted text"]);
        check(
            "| a | b |\n|---|--:|\n| 1 | 22 |\n| x | 3 |\n\nz",
            &["a │  b", "──┼───", "1 │ 22", "x │  3", "", "z"],
        );
        check(
            "[x](https://e.org) https://e.org",
            &["x (https://e.org) https://e.org"],
        );
        check("- [x] done\n- [ ] open", &["• [x] done", "• [ ] open"]);
        check("a\n\n---\n\nb", &["a", "", &"─".repeat(40), "", "b"]);
    }

    #[test]
    fn a_wide_table_becomes_records() {
        let long = "long ".repeat(10);
        check(
            &format!("| name | text |\n|--|--|\n| n | {long} |\n"),
            &["name: n", &format!("text: {}", long.trim_end())],
        );
    }

    #[test]
    fn an_unclosed_fence_is_code_to_the_end() {
        check("```\n# no heading\n- x", &["  # no heading", "  - x"]);
        check("````\n```\n````\nx", &["  ```", "", "x"]);
    }

    #[test]
    fn entities_make_no_control_characters() {
        let mut stream = MarkdownStream::new(Theme::new(true));
        stream.push("a&#27;[2J&#x202e;&#155;b");
        for line in stream.finish(40) {
            let text = line.line.to_string();
            assert!(
                text.chars().all(|c| !c.is_control() && c != '\u{202e}'),
                "{text:?}"
            );
        }
    }

    #[test]
    fn an_endless_paragraph_is_bounded() {
        let mut stream = MarkdownStream::new(Theme::new(true));
        for _ in 0..2000 {
            stream.push("word word word word ");
            _ = stream.take_decided(40);
            assert!(stream.open.len() <= MAX_OPEN + 64);
        }
    }
}
