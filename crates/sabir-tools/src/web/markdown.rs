//! Converts HTML to Markdown: headings, paragraphs, lists, tables, code and links.
//!
//! The conversion works on tokens and builds no tree. A page may nest a million elements, and the
//! converters that build a tree were seen to overflow the stack (htmd) or to take minutes
//! (html2text); this one takes time and memory in proportion to the page. In exchange it does not
//! repair tags that are nested wrongly.
//!
//! Scripts, styles, drawings and other elements without text are left out. If a page marks its main
//! part, only that is kept.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};
use url::Url;

/// The size above which the rest of a page is left out. Margins and absolute URLs can make the text
/// much longer than the page.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// The depth of lists and quotations that is shown.
const MAX_DEPTH: usize = 8;
/// The length above which the URL of a link is left out.
const MAX_LINK_BYTES: usize = 500;
/// The number of columns in the line under the head of a table.
const MAX_COLUMNS: usize = 50;
/// The size below which an element does not count as the main part.
const MIN_MAIN_BYTES: usize = 200;

/// Elements whose content is left out.
const SKIPPED_ELEMENTS: [&[u8]; 13] = [
    b"script",
    b"style",
    b"noscript",
    b"template",
    b"svg",
    b"iframe",
    b"object",
    b"canvas",
    b"audio",
    b"video",
    b"math",
    b"select",
    b"textarea",
];
/// Elements with an empty line around them.
const PARAGRAPH_ELEMENTS: [&[u8]; 29] = [
    b"p",
    b"h1",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"ul",
    b"ol",
    b"dl",
    b"table",
    b"blockquote",
    b"pre",
    b"figure",
    b"section",
    b"article",
    b"header",
    b"footer",
    b"main",
    b"aside",
    b"nav",
    b"form",
    b"fieldset",
    b"details",
    b"address",
    b"dt",
    b"hr",
    b"body",
    b"head",
];
/// Elements on lines of their own.
const LINE_ELEMENTS: [&[u8]; 13] = [
    b"div",
    b"li",
    b"tr",
    b"dd",
    b"br",
    b"figcaption",
    b"summary",
    b"option",
    b"caption",
    b"thead",
    b"tbody",
    b"tfoot",
    b"legend",
];

/// A page as Markdown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MarkdownPage {
    /// The text.
    pub(crate) text: String,
    /// True if the text is only the part that the page marks as its main one.
    pub(crate) is_main_part: bool,
}

/// Converts a page. `base` is its URL, which relative links are resolved against.
pub(crate) fn render_markdown(html: &str, base: &Url) -> MarkdownPage {
    let mut emitter = DefaultEmitter::default();
    // Makes the tokenizer treat the content of `<script>` and the like as text, without a tree.
    emitter.naively_switch_states(true);
    let mut writer = MarkdownWriter::new(base);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => writer.start_tag(&tag),
            Token::EndTag(tag) => writer.end_tag(&tag.name),
            Token::String(text) => writer.push_text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
        // One token cannot exceed the limit by more than its own length.
        if writer.out.len() > MAX_TEXT_BYTES {
            break;
        }
    }
    writer.into_page()
}

/// Writes Markdown, token by token. White space is written only before the next text, so that
/// elements without text leave none behind.
struct MarkdownWriter<'a> {
    base: &'a Url,
    out: String,
    /// The number of line ends before the next text.
    breaks: usize,
    /// True if a space comes before the next text.
    space: bool,
    /// The open element whose content is left out.
    skipped: Option<SkippedElement>,
    nesting: ListNesting,
    table: TableState,
    /// The open code block.
    pre: Option<CodeBlock>,
    link: Option<OpenLink>,
    title: TitleState,
    /// The offset in `out` where the main part begins.
    main_start: Option<usize>,
    /// The offset in `out` where the main part ends.
    main_end: Option<usize>,
}

/// An open element whose content is left out.
struct SkippedElement {
    name: Vec<u8>,
    /// The number of open elements of this name.
    depth: usize,
}

/// The open lists and quotations.
#[derive(Default)]
struct ListNesting {
    /// The number of the next item in each open list; `None` for lists without numbers.
    lists: Vec<Option<usize>>,
    /// The number of open quotations.
    quotes: usize,
    /// The mark before the next text: of a list item, of a heading, or of both.
    marker: Option<String>,
}

/// The open tables. Only the outermost one is rendered as a table.
#[derive(Default)]
struct TableState {
    /// The number of open tables.
    depth: usize,
    /// The number of complete rows of the outermost table.
    rows: usize,
    /// The number of cells of the open row.
    cells: usize,
}

/// A block of preformatted text.
#[derive(Default)]
struct CodeBlock {
    text: String,
    /// The programming language; empty if none is named.
    language: String,
}

/// A link that has not ended yet.
struct OpenLink {
    href: String,
    /// True if its `[` has been written, that is, if it has any text.
    is_written: bool,
}

/// The title of the page.
#[derive(Default)]
struct TitleState {
    text: String,
    /// True within the element.
    is_open: bool,
}

impl<'a> MarkdownWriter<'a> {
    /// Creates the writer of an empty page.
    fn new(base: &'a Url) -> Self {
        Self {
            base,
            out: String::new(),
            breaks: 0,
            space: false,
            skipped: None,
            nesting: ListNesting::default(),
            table: TableState::default(),
            pre: None,
            link: None,
            title: TitleState::default(),
            main_start: None,
            main_end: None,
        }
    }

    /// Handles the start of an element.
    fn start_tag(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some(skipped) = &mut self.skipped {
            skipped.depth += usize::from(name == skipped.name.as_slice());
            return;
        }
        if SKIPPED_ELEMENTS.contains(&name) {
            self.skipped = (!tag.self_closing).then(|| SkippedElement {
                name: name.to_vec(),
                depth: 1,
            });
            return;
        }
        // Within `<pre>` white space counts, so elements in it are not rendered.
        if let Some(pre) = &mut self.pre {
            match name {
                b"br" => pre.text.push('\n'),
                // Highlighters put the language on the `<code>` inside.
                b"code" if pre.language.is_empty() => pre.language = code_language(tag),
                _ => {}
            }
            return;
        }
        self.break_around(name);
        match name {
            // Drawings have titles too; the first one is that of the page.
            b"title" => self.title.is_open = self.title.text.is_empty(),
            // Appended, because a heading may be the first element of a list item: `- ## text`.
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                let level = name.get(1).map_or(1, |digit| usize::from(digit - b'0'));
                self.nesting
                    .marker
                    .get_or_insert_default()
                    .push_str(&format!("{} ", "#".repeat(level)));
            }
            b"ul" => self.nesting.lists.push(None),
            b"ol" => {
                let first = tag_attribute(tag, b"start")
                    .and_then(|start| start.parse().ok())
                    .unwrap_or(1);
                self.nesting.lists.push(Some(first));
            }
            b"li" => self.start_item(),
            b"blockquote" => self.nesting.quotes += 1,
            b"hr" => self.push_word("---"),
            b"pre" => {
                self.pre = Some(CodeBlock {
                    language: code_language(tag),
                    ..CodeBlock::default()
                })
            }
            b"code" | b"kbd" | b"samp" | b"tt" => self.push_glued("`"),
            // Links do not nest in HTML: a new one replaces one that was not closed.
            b"a" => {
                self.link = tag_attribute(tag, b"href")
                    .and_then(|href| self.resolve_href(&href))
                    .map(|href| OpenLink {
                        href,
                        is_written: false,
                    })
            }
            b"img" => self.push_picture(tag),
            b"table" => {
                self.table = TableState {
                    depth: self.table.depth + 1,
                    ..std::mem::take(&mut self.table)
                }
            }
            b"tr" => self.start_row(),
            b"td" | b"th" => self.start_cell(),
            b"main" if self.main_start.is_none() => self.main_start = Some(self.out.len()),
            _ => {}
        }
        // A rule has no end tag that would break the line after it.
        if matches!(name, b"hr") {
            self.break_around(name);
        }
    }

    /// Handles the end of an element.
    fn end_tag(&mut self, name: &[u8]) {
        if let Some(skipped) = &mut self.skipped {
            skipped.depth -= usize::from(name == skipped.name.as_slice());
            if skipped.depth == 0 {
                self.skipped = None;
            }
            return;
        }
        if self.pre.is_some() {
            if name == b"pre" {
                self.end_code_block();
            }
            return;
        }
        match name {
            b"title" => self.title.is_open = false,
            b"ul" | b"ol" => {
                self.nesting.lists.pop();
            }
            b"blockquote" => self.nesting.quotes = self.nesting.quotes.saturating_sub(1),
            b"code" | b"kbd" | b"samp" | b"tt" => self.end_code(),
            b"a" => {
                if let Some(link) = self.link.take().filter(|link| link.is_written) {
                    self.out.push_str(&format!("]({})", link.href));
                }
            }
            // The next table has a head of its own.
            b"table" => {
                self.close_row();
                self.table.depth = self.table.depth.saturating_sub(1);
                if self.table.depth == 0 {
                    self.table.rows = 0;
                }
            }
            b"tr" => self.close_row(),
            b"main" if self.main_end.is_none() => {
                self.main_end = self.main_start.map(|_| self.out.len());
            }
            _ => {}
        }
        // Of `h1` to `h6`, `hr` is the only other such name, and it has no end tag.
        if name.first() == Some(&b'h') && name.len() == 2 {
            // A heading without text leaves no mark.
            self.nesting.marker = None;
        }
        self.break_around(name);
    }

    /// Handles text.
    fn push_text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.title.is_open {
            self.title.text.push_str(text);
        } else if let Some(pre) = &mut self.pre {
            pre.text.push_str(text);
        } else {
            // Runs of white space are one space in HTML, and none at the start of a line.
            self.space |= text.starts_with(char::is_whitespace);
            for word in text.split_whitespace() {
                self.push_word(word);
                self.space = true;
            }
            self.space = text.ends_with(char::is_whitespace);
        }
    }

    /// Ends the page: closes what is open, selects the main part and adds the title.
    fn into_page(mut self) -> MarkdownPage {
        if self.pre.is_some() {
            self.end_code_block();
        }
        self.close_row();
        let title = self
            .title
            .text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let end = self.main_end.unwrap_or(self.out.len());
        // Pages that a script fills have an empty main part.
        let main = self
            .main_start
            .and_then(|start| self.out.get(start..end))
            .filter(|main| main.trim().len() >= MIN_MAIN_BYTES);
        let body = main.unwrap_or(&self.out).trim();
        // Many pages repeat their title as the first heading.
        let head = if title.is_empty() || body.starts_with(&format!("# {title}\n")) {
            String::new()
        } else {
            format!("Title: {title}\n\n")
        };
        MarkdownPage {
            text: format!("{head}{body}").trim_end().to_owned(),
            is_main_part: main.is_some(),
        }
    }

    /// Adds the line ends that an element of this name has around it.
    fn break_around(&mut self, name: &[u8]) {
        if self.nesting.marker.is_some() {
            // The first element of a list item is on the line of its mark.
            return;
        }
        let is_nested = matches!(name, b"ul" | b"ol") && !self.nesting.lists.is_empty();
        let breaks = if PARAGRAPH_ELEMENTS.contains(&name) && !is_nested {
            2
        } else {
            usize::from(is_nested || LINE_ELEMENTS.contains(&name))
        };
        // A table cell is one line.
        if breaks > 0 && self.table.cells > 0 && !matches!(name, b"table" | b"tr") {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    /// Writes text without white space in it.
    fn push_word(&mut self, word: &str) {
        self.push_glued("");
        if let Some(link) = self.link.as_mut().filter(|link| !link.is_written) {
            link.is_written = true;
            self.out.push('[');
        }
        self.out.push_str(word);
    }

    /// Writes the white space and the marker that are due, and then a mark without a space after it.
    fn push_glued(&mut self, mark: &str) {
        let is_in_cell = self.table.cells > 0;
        if (self.breaks > 0 || self.out.is_empty()) && !is_in_cell {
            for _ in 0..if self.out.is_empty() { 0 } else { self.breaks } {
                self.out.push('\n');
            }
            self.out.push_str(&self.line_margin());
        } else if (self.space || self.breaks > 0) && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
        if let Some(marker) = self.nesting.marker.take() {
            self.out.push_str(if is_in_cell { "" } else { &marker });
        }
        self.breaks = 0;
        self.space = false;
        self.out.push_str(mark);
    }

    /// Returns the quotation marks and the indentation of a line.
    fn line_margin(&self) -> String {
        // The line with the mark of an item is indented as the list around it.
        let own = usize::from(
            self.nesting
                .marker
                .as_ref()
                .is_some_and(|marker| !marker.starts_with('#')),
        );
        let depth = self.nesting.lists.len().saturating_sub(own).min(MAX_DEPTH);
        format!(
            "{}{}",
            "> ".repeat(self.nesting.quotes.min(MAX_DEPTH)),
            "  ".repeat(depth)
        )
    }

    /// Ends inline code. Code without text is removed: two backquotes would begin other code.
    fn end_code(&mut self) {
        if self.out.ends_with('`') && !self.out.ends_with("``") {
            self.out.pop();
        } else {
            self.out.push('`');
        }
    }

    /// Begins a list item, with the next number or a dash.
    fn start_item(&mut self) {
        self.nesting.marker = Some(match self.nesting.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            _ => "- ".to_owned(),
        });
    }

    /// Writes a picture that has an alternative text.
    fn push_picture(&mut self, tag: &StartTag<()>) {
        let alt = tag_attribute(tag, b"alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        // A picture without an alternative text is decoration.
        if !alt.is_empty() {
            let source = tag_attribute(tag, b"src").and_then(|source| self.resolve_href(&source));
            self.push_word(&source.map_or_else(
                || format!("![{alt}]"),
                |source| format!("![{alt}]({source})"),
            ));
        }
    }

    /// Resolves a link; `None` if it does not lead to another document, or is too long.
    fn resolve_href(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = self
            .base
            .join(href)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))?;
        Some(String::from(url)).filter(|url| url.len() <= MAX_LINK_BYTES)
    }

    /// Begins a row of the outermost table.
    fn start_row(&mut self) {
        if self.table.depth == 1 {
            self.close_row();
            self.breaks = self.breaks.max(1);
        }
    }

    /// Begins a cell. The cells of an inner table are only separated by spaces.
    fn start_cell(&mut self) {
        if self.table.depth == 1 {
            self.space |= self.table.cells > 0;
            self.push_glued("| ");
            self.table.cells += 1;
        }
        self.space |= self.table.depth > 1;
    }

    /// Ends the open row, if there is one. The first row is the head of the table.
    fn close_row(&mut self) {
        // The rows of inner tables belong to a cell of the outermost one.
        if self.table.depth != 1 || self.table.cells == 0 {
            return;
        }
        self.out.push_str(" |");
        self.table.rows += 1;
        // Markdown has no table without a head.
        if self.table.rows == 1 {
            let line = format!(
                "\n{}|{}",
                self.line_margin(),
                " --- |".repeat(self.table.cells.min(MAX_COLUMNS))
            );
            self.out.push_str(&line);
        }
        self.table.cells = 0;
        self.breaks = self.breaks.max(1);
    }

    /// Writes the code block, in a fence that is longer than any run of backquotes in it.
    fn end_code_block(&mut self) {
        let Some(CodeBlock { text, language }) = self.pre.take() else {
            return;
        };
        // HTML ignores a line end directly after `<pre>`.
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
        // A fence needs lines of its own, which a table cell does not have.
        if self.table.cells > 0 {
            return self.push_text(text);
        }
        if !text.trim().is_empty() {
            let longest = text
                .split(|c| c != '`')
                .map(str::len)
                .max()
                .unwrap_or_default();
            let fence = "`".repeat(longest.max(2) + 1);
            self.breaks = 2;
            self.push_glued(&format!("{fence}{language}"));
            let margin = self.line_margin();
            for line in text.lines().chain([fence.as_str()]) {
                self.out.push('\n');
                self.out.push_str(&margin);
                self.out.push_str(line);
            }
        }
        self.breaks = 2;
    }
}

/// Returns an attribute of an element.
fn tag_attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes
        .get(name)
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Returns the programming language that the class of an element names, as in `language-rust`.
fn code_language(tag: &StartTag<()>) -> String {
    let class = tag_attribute(tag, b"class").unwrap_or_default();
    let name = class.split_whitespace().find_map(|name| {
        name.strip_prefix("language-")
            .or(name.strip_prefix("lang-"))
    });
    name.filter(|name| name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphanumeric()))
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(html: &str) -> MarkdownPage {
        render_markdown(html, &Url::parse("https://docs.test/a/b?c").unwrap())
    }

    #[track_caller]
    fn check(html: &str, expected: &str) {
        assert_eq!(page(html).text, expected, "{html}");
    }

    #[test]
    fn blocks() {
        check("<p>one\n  two<p>three", "one two\n\nthree");
        check("<h1> A </h1><h3>B</h3>c", "# A\n\n### B\n\nc");
        check("<h2></h2>x", "x");
        check("a<br>b<div>c</div>d", "a\nb\nc\nd");
        check("a<hr>b", "a\n\n---\n\nb");
        check(
            "a<b>b</b> <i>c</i>&nbsp;d &lt;x&gt; &amp;amp; &eacute;",
            "ab c d <x> &amp; é",
        );
        check("<blockquote><p>a<p>b</blockquote>c", "> a\n\n> b\n\nc");
        check("", "");
    }

    #[test]
    fn lists() {
        check(
            "<ul><li>a<li>b<ol start=3><li>c</li><li><p>d</p><p>e</p></ol></ul>f",
            "- a\n- b\n  3. c\n  4. d\n\n    e\n\nf",
        );
        check("<li>lone", "- lone");
        check("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a\nb\n\nc\nd");
        check("<ul><li><h2>x</h2></ul>", "- ## x");
    }

    #[test]
    fn tables() {
        check(
            "<table><tr><th>a<th>b</tr><tr><td>1</td><td>2<p>3</td></tr></table>x",
            "| a | b |\n| --- | --- |\n| 1 | 2 3 |\n\nx",
        );
        check(
            "<table><tr><td>a<table><tr><td>b<td>c</table><td>d</table>",
            "| a b c | d |\n| --- | --- |",
        );
        check("<table></table><table><tr></tr></table>", "");
    }

    #[test]
    fn code() {
        check(
            "<pre><code class='hljs language-rust'>\n  a\n\n  b\n</code></pre>c",
            "```rust\n  a\n\n  b\n```\n\nc",
        );
        check("<pre>```\n<b>x</b>\n```</pre>", "````\n```\nx\n```\n````");
        check("use <code>a b</code>, <code></code>c", "use `a b`, c");
        check("<ul><li><pre>x\ny</pre></ul>", "- ```\n  x\n  y\n  ```");
        check("<pre>open", "```\nopen\n```");
    }

    #[test]
    fn links_and_pictures() {
        check("<a href='../x#y'>t u</a>.", "[t u](https://docs.test/x#y).");
        check(
            "<a href='#y'>t</a> <a href='javascript:x'>u</a> <a>v</a> <a href='/w'></a>",
            "t u v",
        );
        check(
            "<img src=x.png alt='a  cat'><img src=y.png>",
            "![a cat](https://docs.test/a/x.png)",
        );
        check("<img src='data:image/png;base64,AA' alt=dot>", "![dot]");
        check(&format!("<a href='/{}'>long</a>", "x".repeat(600)), "long");
    }

    #[test]
    fn scripts_styles_and_comments_are_left_out() {
        check(
            "<script>if (a < b) '</p>'</script>a<style>p{}</style><svg><title>t</title><svg></svg>x</svg>b<!-- c -->",
            "ab",
        );
        check("<title>A &amp; B</title><p>x", "Title: A & B\n\nx");
        check("<title>A</title><h1>A</h1><p>x", "# A\n\nx");
        check("<svg/>x", "x");
    }

    #[test]
    fn the_main_part_is_enough() {
        let words = "word ".repeat(50);
        let html = format!(
            "<title>T</title><nav>menu</nav><main><h2>Head</h2>{words}</main><footer>foot</footer>"
        );
        let expected = format!("Title: T\n\n## Head\n\n{}", words.trim_end());
        assert_eq!(
            page(&html),
            MarkdownPage {
                text: expected,
                is_main_part: true
            }
        );
        assert_eq!(
            page("a<main>b</main>"),
            MarkdownPage {
                text: "a\n\nb".to_owned(),
                is_main_part: false
            }
        );
    }

    /// Nothing overflows, and the text stays within its bound.
    #[test]
    fn hostile_pages_stay_within_the_text_limit() {
        let pieces = [
            "<div>",
            "<b>",
            "<ul><li>x",
            "<blockquote>x<br>",
            "<table><tr><td>",
            "<a href=x>y",
            "<pre>`",
            "<svg>",
            "<p",
            "</p>",
            "&",
        ];
        let check = |piece: &str| {
            let text = page(&piece.repeat(200_000)).text;
            assert!(
                text.len() <= MAX_TEXT_BYTES + 1000,
                "{piece}: {}",
                text.len()
            );
        };
        std::thread::scope(|scope| {
            for piece in pieces {
                scope.spawn(move || check(piece));
            }
        });
    }
}
