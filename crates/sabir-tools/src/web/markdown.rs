//! From HTML to Markdown that a model reads: headings, paragraphs, lists, tables, code, links.
//!
//! It works on tokens and builds no tree. A page from anywhere may nest a million elements, and the converters that build one
//! were seen to overflow the stack (htmd) or to take minutes (html2text); this one takes time and memory in proportion to the
//! page. What it pays for that is what a tree would repair: tags that are nested wrongly.
//!
//! Left out are scripts, styles, drawings and other things that are no text. Where a page marks its main part, only that is kept.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};
use url::Url;

/// Text beyond that is left out; indentation and addresses could otherwise grow without bound.
const MAX_TEXT_BYTES: usize = 8 << 20;
/// Depth of lists and quotations that is shown.
const MAX_DEPTH: usize = 8;
/// Longer addresses of links are left out.
const MAX_LINK_BYTES: usize = 500;
/// Columns for which a line under the head is written.
const MAX_COLUMNS: usize = 50;
/// A main part with less text is none.
const MIN_MAIN_BYTES: usize = 200;

/// Elements of which nothing is shown.
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

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MarkdownPage {
    pub(crate) text: String,
    /// Whether it is only what the page marks as its main part.
    pub(crate) main: bool,
}

/// Renders a page that came from `base`.
pub(crate) fn render_markdown(html: &str, base: &Url) -> MarkdownPage {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut writer = MarkdownWriter::new(base);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => writer.start_tag(&tag),
            Token::EndTag(tag) => writer.end_tag(&tag.name),
            Token::String(text) => writer.push_text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
        if writer.out.len() > MAX_TEXT_BYTES {
            break;
        }
    }
    writer.finish()
}

struct MarkdownWriter<'a> {
    base: &'a Url,
    out: String,
    /// Line ends that come before the next words.
    breaks: usize,
    /// Whether a space comes before the next words.
    space: bool,
    /// The element of which nothing is shown, and how many of its kind are open.
    skipped: Option<(Vec<u8>, usize)>,
    nesting: ListNesting,
    table: TableState,
    pre: Option<CodeBlock>,
    link: Option<OpenLink>,
    title: TitleState,
    /// Where the main part begins and ends in the text.
    main: (Option<usize>, Option<usize>),
}

#[derive(Default)]
struct ListNesting {
    /// The number of the next item in each open list; `None` for those without numbers.
    lists: Vec<Option<usize>>,
    quotes: usize,
    /// What stands before the next words of a list's item.
    marker: Option<String>,
}

#[derive(Default)]
struct TableState {
    depth: usize,
    rows: usize,
    cells: usize,
}

#[derive(Default)]
struct CodeBlock {
    text: String,
    language: String,
}

struct OpenLink {
    href: String,
    open: bool,
}

#[derive(Default)]
struct TitleState {
    text: String,
    open: bool,
}

impl<'a> MarkdownWriter<'a> {
    fn new(base: &'a Url) -> Self {
        let (nesting, table, title) = (
            ListNesting::default(),
            TableState::default(),
            TitleState::default(),
        );
        let (out, skipped, pre, link) = (String::new(), None, None, None);
        Self {
            base,
            out,
            breaks: 0,
            space: false,
            skipped,
            nesting,
            table,
            pre,
            link,
            title,
            main: (None, None),
        }
    }

    fn start_tag(&mut self, tag: &StartTag<()>) {
        let name = tag.name.as_slice();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(name == skipped.as_slice());
            return;
        }
        if SKIPPED_ELEMENTS.contains(&name) {
            self.skipped = (!tag.self_closing).then(|| (name.to_vec(), 1));
            return;
        }
        if let Some(pre) = &mut self.pre {
            match name {
                b"br" => pre.text.push('\n'),
                b"code" if pre.language.is_empty() => pre.language = code_language(tag),
                _ => {}
            }
            return;
        }
        self.break_around(name);
        match name {
            b"title" => self.title.open = self.title.text.is_empty(),
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
            b"a" => {
                self.link = tag_attribute(tag, b"href")
                    .and_then(|href| self.resolve_href(&href))
                    .map(|href| OpenLink { href, open: false })
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
            b"main" if self.main.0.is_none() => self.main.0 = Some(self.out.len()),
            _ => {}
        }
        if matches!(name, b"hr") {
            self.break_around(name);
        }
    }

    fn end_tag(&mut self, name: &[u8]) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(name == skipped.as_slice());
            if *depth == 0 {
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
            b"title" => self.title.open = false,
            b"ul" | b"ol" => {
                self.nesting.lists.pop();
            }
            b"blockquote" => self.nesting.quotes = self.nesting.quotes.saturating_sub(1),
            // Nothing between the two: nothing at all.
            b"code" | b"kbd" | b"samp" | b"tt" => self.end_code(),
            b"a" => {
                if let Some(link) = self.link.take().filter(|link| link.open) {
                    self.out.push_str(&format!("]({})", link.href));
                }
            }
            b"table" => {
                self.close_row();
                self.table.depth = self.table.depth.saturating_sub(1);
                if self.table.depth == 0 {
                    self.table.rows = 0;
                }
            }
            b"tr" => self.close_row(),
            b"main" if self.main.1.is_none() => self.main.1 = self.main.0.map(|_| self.out.len()),
            _ => {}
        }
        if name.first() == Some(&b'h') && name.len() == 2 {
            // A heading without words leaves no mark.
            self.nesting.marker = None;
        }
        self.break_around(name);
    }

    fn push_text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.title.open {
            self.title.text.push_str(text);
        } else if let Some(pre) = &mut self.pre {
            pre.text.push_str(text);
        } else {
            self.space |= text.starts_with(char::is_whitespace);
            for word in text.split_whitespace() {
                self.push_word(word);
                self.space = true;
            }
            self.space = text.ends_with(char::is_whitespace);
        }
    }

    fn finish(mut self) -> MarkdownPage {
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
        let (begin, end) = (
            self.main.0.unwrap_or_default(),
            self.main.1.unwrap_or(self.out.len()),
        );
        let main = self
            .out
            .get(begin..end)
            .filter(|main| self.main.0.is_some() && main.trim().len() >= MIN_MAIN_BYTES);
        let body = main.unwrap_or(&self.out).trim();
        let head = if title.is_empty() || body.starts_with(&format!("# {title}\n")) {
            String::new()
        } else {
            format!("Title: {title}\n\n")
        };
        MarkdownPage {
            text: format!("{head}{body}").trim_end().to_owned(),
            main: main.is_some(),
        }
    }

    /// The space that an element of that name has around it.
    fn break_around(&mut self, name: &[u8]) {
        if self.nesting.marker.is_some() {
            // What a list's item begins with stands on its line.
            return;
        }
        let nested = matches!(name, b"ul" | b"ol") && !self.nesting.lists.is_empty();
        let breaks = if PARAGRAPH_ELEMENTS.contains(&name) && !nested {
            2
        } else {
            usize::from(nested || LINE_ELEMENTS.contains(&name))
        };
        if breaks > 0 && self.table.cells > 0 && !matches!(name, b"table" | b"tr") {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    /// Words without any white space in them.
    fn push_word(&mut self, word: &str) {
        self.push_glued("");
        if let Some(link) = self.link.as_mut().filter(|link| !link.open) {
            link.open = true;
            self.out.push('[');
        }
        self.out.push_str(word);
    }

    /// What comes before words, and a mark that belongs to them.
    fn push_glued(&mut self, mark: &str) {
        let cell = self.table.cells > 0;
        if (self.breaks > 0 || self.out.is_empty()) && !cell {
            for _ in 0..if self.out.is_empty() { 0 } else { self.breaks } {
                self.out.push('\n');
            }
            self.out.push_str(&self.line_margin());
        } else if (self.space || self.breaks > 0) && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
        if let Some(marker) = self.nesting.marker.take() {
            self.out.push_str(if cell { "" } else { &marker });
        }
        (self.breaks, self.space) = (0, false);
        self.out.push_str(mark);
    }

    /// What each line begins with here.
    fn line_margin(&self) -> String {
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

    /// Nothing between the two marks: nothing at all.
    fn end_code(&mut self) {
        if self.out.ends_with('`') && !self.out.ends_with("``") {
            self.out.pop();
        } else {
            self.out.push('`');
        }
    }

    fn start_item(&mut self) {
        self.nesting.marker = Some(match self.nesting.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            _ => "- ".to_owned(),
        });
    }

    fn push_picture(&mut self, tag: &StartTag<()>) {
        let alt = tag_attribute(tag, b"alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if !alt.is_empty() {
            let source = tag_attribute(tag, b"src").and_then(|source| self.resolve_href(&source));
            self.push_word(&source.map_or_else(
                || format!("![{alt}]"),
                |source| format!("![{alt}]({source})"),
            ));
        }
    }

    /// The whole address of a link that leads to another document.
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

    fn start_row(&mut self) {
        if self.table.depth == 1 {
            self.close_row();
            self.breaks = self.breaks.max(1);
        }
    }

    fn start_cell(&mut self) {
        if self.table.depth == 1 {
            self.space |= self.table.cells > 0;
            self.push_glued("| ");
            self.table.cells += 1;
        }
        self.space |= self.table.depth > 1;
    }

    fn close_row(&mut self) {
        if self.table.depth != 1 || self.table.cells == 0 {
            return;
        }
        self.out.push_str(" |");
        self.table.rows += 1;
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

    fn end_code_block(&mut self) {
        let Some(CodeBlock { text, language }) = self.pre.take() else {
            return;
        };
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
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

fn tag_attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes
        .get(name)
        .map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The language that the class of a piece of code names.
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
    fn what_is_no_text_is_left_out() {
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
                main: true
            }
        );
        assert_eq!(
            page("a<main>b</main>"),
            MarkdownPage {
                text: "a\n\nb".to_owned(),
                main: false
            }
        );
    }

    /// Nothing overflows, and the text stays within its bound.
    #[test]
    fn pages_that_mean_harm() {
        for piece in [
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
        ] {
            let text = page(&piece.repeat(200_000)).text;
            assert!(
                text.len() <= MAX_TEXT_BYTES + 1000,
                "{piece}: {}",
                text.len()
            );
        }
    }
}
