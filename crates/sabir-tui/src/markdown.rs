//! Renders Markdown while it streams, without ever changing a line that was handed out.
//!
//! The text that is not decided yet stays in the stream, and is drawn in the viewport. A block is decided when the next one
//! begins, an item of a list when its next item begins, and a line of a code block when it ends. So what goes above the
//! viewport is final, and each byte is parsed a bounded number of times: a block that grows beyond 16 KiB is cut.

use pulldown_cmark::{Alignment, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::highlight::CodeHighlighter;
use crate::lines::{HistoryLine, MIN_WIDTH, line_width, span, text_width};
use crate::links::{LineLink, visible_count};
use crate::theme::{Role, Theme};

/// The size at which a block is split, in bytes.
const MAX_OPEN: usize = 16 << 10;

/// The number of rows of an open paragraph from which on its first ones are decided.
const MIN_PARAGRAPH_ROWS: usize = 8;
/// The number of rows at the end of an open paragraph that are never decided.
const OPEN_PARAGRAPH_ROWS: usize = 3;

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
    /// True if the first rows of the open paragraph were returned.
    is_in_paragraph: bool,
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
            is_in_paragraph: false,
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
    pub fn take_final_lines(&mut self, width: usize) -> Vec<HistoryLine> {
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
        let mut lines = self.take_final_lines(width);
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
        self.is_in_paragraph = false;
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
        if self.take_paragraph_rows(width, lines) {
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

    /// Takes the first rows of a long paragraph, which later text cannot change. They are then drawn only once, and a paragraph that is
    /// longer than the screen can be read from its beginning. Returns false if there are none.
    fn take_paragraph_rows(&mut self, width: usize, lines: &mut Vec<HistoryLine>) -> bool {
        // A row of wide characters takes at least so many bytes.
        if self.open.len() < MIN_PARAGRAPH_ROWS * width.max(MIN_WIDTH) {
            return false;
        }
        let skipped = self.open.len() - self.open.trim_start_matches('\n').len();
        let text = self.open.get(skipped..).unwrap_or_default();
        let breaks = ParagraphBreaks::find(text);
        let rows = self.paragraph_rows(text, width);
        if rows.len() < MIN_PARAGRAPH_ROWS {
            return false;
        }
        for count in (1..=rows.len() - OPEN_PARAGRAPH_ROWS).rev() {
            let taken = rows.get(..count).unwrap_or_default();
            let visible = taken.iter().map(|row| visible_count(&row.to_string()));
            let Some(end) = breaks.end_after(visible.sum()) else {
                continue;
            };
            let head = text.get(..end).unwrap_or_default();
            let rest = text.get(end..).unwrap_or_default();
            let rest = rest.trim_start_matches([' ', '\n']);
            // At the beginning of a line, a dash or a number would begin a list.
            let is_word = rest.chars().next().is_some_and(char::is_alphabetic);
            if !is_word || self.paragraph_rows(head, width) != taken {
                continue;
            }
            let head = head.to_owned();
            let left = self.open.len() - rest.len();
            self.render_blocks(&head, width, lines);
            self.is_in_paragraph = true;
            self.open.drain(..left);
            return true;
        }
        false
    }

    /// Returns the rows of a text that is a single paragraph; none if it is anything else.
    fn paragraph_rows(&self, text: &str, width: usize) -> Vec<Line<'static>> {
        let mut renderer = BlockRenderer::new(self.theme, width);
        renderer.render(text);
        match renderer.lines.as_slice() {
            [line] => line.rows(width),
            _ => Vec::new(),
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
        self.is_in_paragraph = false;
        lines.append(&mut renderer.lines);
    }

    /// Returns true if an empty line comes before this text. Items of a list keep together.
    fn needs_distance(&self, text: &str) -> bool {
        self.has_output && !self.is_in_paragraph && !(self.is_in_list && begins_with_item(text))
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

/// The positions at which a paragraph can be cut, because the text before them is final.
#[derive(Debug, Default)]
struct ParagraphBreaks {
    /// The plain texts: the visible characters before them, and where they begin and end.
    texts: Vec<PlainText>,
    source: String,
}

#[derive(Debug)]
struct PlainText {
    visible_before: usize,
    start: usize,
    end: usize,
}

impl ParagraphBreaks {
    /// Finds the places up to the first mark of which it is not known what it will be.
    fn find(text: &str) -> Self {
        let mut breaks = Self {
            texts: Vec::new(),
            source: text.to_owned(),
        };
        // A table takes its first line from the paragraph before it.
        if text.contains('|') {
            return breaks;
        }
        let mut depth = 0_usize;
        let mut visible = 0;
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            match event {
                Event::Start(Tag::Paragraph) if range.start == 0 => {}
                Event::Start(Tag::Emphasis | Tag::Strong) => depth += 1,
                Event::End(TagEnd::Emphasis | TagEnd::Strong) => depth -= 1,
                // A mark without a partner: it may find one later.
                Event::Text(part)
                    if part.contains(['*', '_', '~', '`', '[', ']', '<', '\\', '&']) =>
                {
                    break;
                }
                Event::Text(part) => {
                    let is_plain = depth == 0 && text.get(range.clone()) == Some(&*part);
                    if is_plain {
                        breaks.texts.push(PlainText {
                            visible_before: visible,
                            start: range.start,
                            end: range.end,
                        });
                    }
                    visible += visible_count(&part);
                }
                Event::Code(part) => visible += visible_count(&part),
                Event::SoftBreak => {}
                _ => break,
            }
        }
        breaks
    }

    /// Returns the end of the text with so many visible characters; `None` if it cannot be cut there.
    fn end_after(&self, visible: usize) -> Option<usize> {
        let at = self
            .texts
            .partition_point(|text| text.visible_before < visible);
        let text = self.texts.get(at.checked_sub(1)?)?;
        let part = self.source.get(text.start..text.end)?;
        let wanted = visible - text.visible_before;
        let mut seen = part.char_indices().filter(|(_, c)| *c != ' ');
        let (last, c) = seen.nth(wanted.checked_sub(1)?)?;
        Some(text.start + last + c.len_utf8())
    }
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
    /// The links in that line.
    links: Vec<LineLink>,
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
    /// The number of visible characters of the line before its label.
    start: usize,
}

#[derive(Default)]
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<TableCell>>,
}

/// A cell of a table, with the links in its text.
#[derive(Default, Clone)]
struct TableCell {
    pieces: Vec<Span<'static>>,
    links: Vec<LineLink>,
}

/// The text of a row of a table, as it is put together.
#[derive(Default)]
struct TableRow {
    pieces: Vec<Span<'static>>,
    links: Vec<LineLink>,
    /// The number of visible characters.
    visible: usize,
}

impl TableRow {
    fn push(&mut self, piece: Span<'static>) {
        self.visible += visible_count(&piece.content);
        self.pieces.push(piece);
    }

    /// Appends a cell in a style that is added to its own.
    fn push_cell(&mut self, cell: TableCell, style: Style) {
        let links = cell.links.into_iter();
        self.links
            .extend(links.map(|link| link.moved_by(self.visible)));
        for piece in cell.pieces {
            self.push(piece.patch_style(style));
        }
    }

    fn into_line(self, hanging: usize) -> HistoryLine {
        HistoryLine::words(Line::from(self.pieces), hanging).with_links(self.links)
    }
}

impl BlockRenderer {
    fn new(theme: Theme, width: usize) -> Self {
        Self {
            theme,
            width,
            lines: Vec::new(),
            line: Vec::new(),
            links: Vec::new(),
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
            Tag::TableCell => {
                self.line.clear();
                self.links.clear();
            }
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
                    start: self.visible_in_line(),
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
                let cell = TableCell {
                    pieces: std::mem::take(&mut self.line),
                    links: std::mem::take(&mut self.links),
                };
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
                self.note_link();
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

    /// Returns the number of visible characters of the line that is being written.
    fn visible_in_line(&self) -> usize {
        let pieces = self.line.iter();
        pieces.map(|piece| visible_count(&piece.content)).sum()
    }

    /// Makes the label of the open link a link, as far as it is in the line that is being written.
    fn note_link(&mut self) {
        let Some(link) = &self.link else {
            return;
        };
        let label: String = self.line.iter().map(|piece| &*piece.content).collect();
        let mut left = link.start;
        let label = label.trim_start_matches(|c: char| {
            let is_before = left > 0 || c == ' ';
            left = left.saturating_sub(usize::from(c != ' '));
            is_before
        });
        self.links
            .extend(LineLink::to_address(link.start, label, &link.target));
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
        self.note_link();
        if let Some(link) = &mut self.link {
            // Its label continues in the next line.
            link.start = 0;
        }
        let start = self.line_start();
        let visible = visible_count(&start.content);
        let links = std::mem::take(&mut self.links).into_iter();
        let links: Vec<_> = links.map(|link| link.moved_by(visible)).collect();
        let mut spans = vec![start];
        spans.append(&mut self.line);
        let hanging = text_width(&self.prefix);
        // A quotation keeps its bar on every row.
        if self.prefix.contains('│') {
            let rows = crate::lines::wrap_words(&Line::from(spans), self.width, 0);
            let mut is_first = true;
            let mut before = 0;
            for row in rows {
                let count = visible_count(&row.to_string());
                let prefix = match std::mem::take(&mut is_first) {
                    true => "",
                    false => self.prefix.as_str(),
                };
                let added = visible_count(prefix);
                let links = links.iter().filter_map(|link| link.within(before, count));
                let links = links.map(|link| link.moved_by(added)).collect();
                before += count;
                let mut spans = vec![span(prefix, self.theme.style(Role::Dim))];
                spans.extend(row.spans);
                let line = HistoryLine::words(Line::from(spans), hanging);
                self.lines.push(line.with_links(links));
            }
            return;
        }
        self.lines
            .push(HistoryLine::words(Line::from(spans), hanging).with_links(links));
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
        let width_of = |row: &Vec<TableCell>, at: usize| {
            row.get(at)
                .map_or(0, |cell| line_width(&Line::from(cell.pieces.clone())))
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
            let mut line = TableRow::default();
            line.push(span(&start, dim));
            for (at, column) in widths.iter().enumerate() {
                if at > 0 {
                    line.push(span(" │ ", dim));
                }
                let blanks = column.saturating_sub(width_of(row, at));
                let left = match table.alignments.get(at) {
                    Some(Alignment::Right) => blanks,
                    Some(Alignment::Center) => blanks / 2,
                    _ => 0,
                };
                line.push(Span::raw(" ".repeat(left)));
                let style = match number {
                    0 => self.theme.style(Role::Strong),
                    _ => Style::new(),
                };
                line.push_cell(row.get(at).cloned().unwrap_or_default(), style);
                if at + 1 < columns {
                    line.push(Span::raw(" ".repeat(blanks - left)));
                }
            }
            self.lines.push(line.into_line(0));
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
                let mut line = TableRow::default();
                line.push(Span::raw(start.to_owned()));
                line.push_cell(head.get(at).cloned().unwrap_or_default(), strong);
                line.push(Span::raw(": "));
                line.push_cell(cell.clone(), Style::new());
                self.lines.push(line.into_line(start.len() + 2));
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
                lines.extend(stream.take_final_lines(40));
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

    /// Returns the labels and targets of the links of a text.
    fn links(text: &str, width: usize) -> Vec<(String, String)> {
        let mut stream = MarkdownStream::new(Theme::new(true));
        stream.push(text);
        let mut links = Vec::new();
        for line in stream.finish(width) {
            let rows = line.rows(width);
            let written = crate::links::linked_rows(&line, &rows, 1).unwrap_or_default();
            for part in written.concat().split("\x1b]8;id=").skip(1) {
                let (target, rest) = part.split_once("\x1b\\").unwrap();
                let (label, _) = rest.split_once("\x1b]8;;").unwrap();
                let target = target.split_once(';').unwrap().1;
                let mut styled = label.split("\x1b[");
                let mut label = styled.next().unwrap().to_owned();
                for piece in styled {
                    label.push_str(piece.split_once('m').unwrap().1);
                }
                links.push((label, target.to_owned()));
            }
        }
        links
    }

    #[test]
    fn labels_are_links() {
        let linked = |text: &str, expected: &[(&str, &str)]| {
            let found = links(text, 60);
            let found: Vec<_> = found
                .iter()
                .map(|(l, t)| (l.as_str(), t.as_str()))
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        let target = "https://e.org/a";
        linked(
            "see the [big `code` **page**](https://e.org/a), or not",
            &[("big code page", target), (target, target)],
        );
        linked("- [a](https://e.org/a)", &[("a", target), (target, target)]);
        linked(
            "> q [a](https://e.org/a)",
            &[("a", target), (target, target)],
        );
        linked(
            "| x | y |\n|---|---|\n| p q | [a b](https://e.org/a) |\n",
            &[("a b", target), (target, target)],
        );
        linked("[here](file:///etc/motd)", &[("here", "file:///etc/motd")]);
        linked(
            "![a picture](HTTPS://e.org/)",
            &[("a picture", "HTTPS://e.org/")],
        );
        linked("<https://e.org/a>", &[(target, target)]);
        // Two lines, or two rows, are two parts of a link.
        linked(
            "[one  \ntwo](https://e.org/a)",
            &[("one", target), ("two", target), (target, target)],
        );
    }

    #[test]
    fn only_addresses_of_pages_and_files_are_links() {
        for target in [
            "javascript:alert(1)",
            "ssh://h",
            "x-man-page://ls",
            "src/a.rs",
            "#part",
        ] {
            assert_eq!(links(&format!("[label]({target})"), 60), [], "{target}");
        }
        for (label, target) in links("[a](<https://e.org/&#27;]8;;x&#7;&#155;b c>) z", 60) {
            assert!(
                target.chars().all(|c| c.is_ascii_graphic()),
                "{label} {target}"
            );
        }
    }

    #[test]
    fn a_long_quoted_label_is_a_link_on_each_row() {
        let words = "word ".repeat(20);
        let found = links(
            &format!("> [{}](https://e.org/a) end", words.trim_end()),
            40,
        );
        let label: Vec<_> = found.iter().map(|(label, _)| label.as_str()).collect();
        let label = label.join(" ").replace("https://e.org/a", "");
        assert_eq!(label.trim(), words.trim());
    }

    /// Returns the rows that are handed out when a text comes in pieces of this many characters.
    fn streamed_rows(text: &str, size: usize, width: usize) -> Vec<String> {
        let mut stream = MarkdownStream::new(Theme::new(true));
        let chars: Vec<char> = text.chars().collect();
        let mut lines = Vec::new();
        for chunk in chars.chunks(size) {
            stream.push(&chunk.iter().collect::<String>());
            lines.extend(stream.take_final_lines(width));
            // What is open fits below what was handed out.
            _ = stream.open_lines(width);
        }
        lines.extend(stream.finish(width));
        let rows = lines.iter().flat_map(|line| line.rows(width));
        rows.map(|row| row.to_string().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn the_first_rows_of_a_long_paragraph_are_decided_early() {
        let words = "a long sentence with *some* `code in it`, and (more) words - 3 of them.\n";
        let text = format!("# Head\n\n{}\n\n- item\n", words.repeat(30).trim_end());
        for width in [8, 20, 40, 100] {
            let whole = streamed_rows(&text, usize::MAX, width);
            for size in [1, 7, 100] {
                assert_eq!(streamed_rows(&text, size, width), whole, "{size}, {width}");
            }
        }
        let mut stream = MarkdownStream::new(Theme::new(true));
        stream.push(&words.repeat(30));
        let decided = stream.take_final_lines(40);
        let rows: usize = decided.iter().map(|line| line.rows(40).len()).sum();
        let open: usize = stream
            .open_lines(40)
            .iter()
            .map(|line| line.rows(40).len())
            .sum();
        assert!(rows > 40 && open < MIN_PARAGRAPH_ROWS, "{rows}, {open}");
        // A mark without a partner may become anything.
        let mut stream = MarkdownStream::new(Theme::new(true));
        stream.push(&format!("*{}", words.replace('*', "").repeat(30)));
        assert_eq!(stream.take_final_lines(40).len(), 0);
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
            _ = stream.take_final_lines(40);
            assert!(stream.open.len() <= MAX_OPEN + 64);
        }
    }
}
