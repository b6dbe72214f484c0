//! Renders a task as one static HTML file: no scripts, no external resources, and all text escaped.

use crate::text::is_invisible_char;

use super::{DocumentSection, ExportDocument, SectionPiece};

/// The start of the file. The content security policy forbids everything but inline styles, in case
/// escaping ever fails.
const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
";

const STYLE: &str = "<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1rem; margin: 2rem 0 .25rem }
h2 a { color: inherit; text-decoration: none; opacity: .6 }
time, .label { font-size: .8rem; opacity: .7 }
pre { font: 14px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0 .75rem; padding: .5rem .75rem; border-left: 3px solid #8888; background: #8881; unicode-bidi: plaintext }
pre.words { font-family: inherit; font-size: 1rem; background: none; border-color: #4a8 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem }
dd { margin: 0; overflow-wrap: anywhere }
</style>
";

/// Renders the document.
pub(super) fn render_html(document: &ExportDocument) -> String {
    // Escaped once and used twice, in the head and in the heading.
    let title = escape_html(&document.title);
    let mut text =
        format!("{HEAD}<title>{title}</title>\n{STYLE}</head>\n<body>\n<h1>{title}</h1>\n<dl>\n");
    for (name, value) in &document.facts {
        text.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escape_html(value)));
    }
    text.push_str("</dl>\n");
    document
        .sections
        .iter()
        .for_each(|section| write_section(section, &mut text));
    text.push_str("</body>\n</html>\n");
    text
}

fn write_section(section: &DocumentSection, text: &mut String) {
    let number = section.number;
    text.push_str(&format!(
        "<section id=\"r{number}\">\n<h2><a href=\"#r{number}\">{number}</a> {}</h2>\n<time>{}</time>\n",
        escape_html(&section.title),
        section.at
    ));
    for piece in &section.pieces {
        match piece {
            SectionPiece::Markdown(words) => text.push_str(&format!(
                "<pre class=\"words\">\n{}</pre>\n",
                escape_html(words)
            )),
            SectionPiece::Exact { label, text: exact } => {
                if !label.is_empty() {
                    text.push_str(&format!(
                        "<div class=\"label\">{}</div>\n",
                        escape_html(label)
                    ));
                }
                // HTML drops a line feed right after `<pre>`, so this one protects a line feed at
                // the start of the text.
                text.push_str(&format!("<pre>\n{}</pre>\n", escape_html(exact)));
            }
            SectionPiece::Note(note) => text.push_str(&format!(
                "<div class=\"label\">{}</div>\n",
                escape_html(note)
            )),
        }
    }
    text.push_str("</section>\n");
}

/// Escapes text, and names characters that cannot be seen.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // A browser treats both line ends alike.
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || is_invisible_char(c) => {
                escaped.push_str(&format!("&lt;U+{:04X}&gt;", u32::from(c)))
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape_html;

    #[test]
    fn text_never_becomes_markup() {
        assert_eq!(
            escape_html("<script>&\"'</script>"),
            "&lt;script&gt;&amp;&quot;&#39;&lt;/script&gt;"
        );
        assert_eq!(escape_html("x\r\n"), "x\n");
        assert_eq!(
            escape_html("a\r\0\u{202e}\n\té"),
            "a&lt;U+000D&gt;&lt;U+0000&gt;&lt;U+202E&gt;\n\té"
        );
    }
}
