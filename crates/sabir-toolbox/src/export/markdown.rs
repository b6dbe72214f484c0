//! Renders a task as Markdown in which no text can close its own fence or quotation.

use super::{ExportDocument, SectionPiece};

/// Renders the document.
pub(super) fn render_markdown(document: &ExportDocument) -> String {
    let mut text = format!("# {}\n\n", escape_markdown(&document.title));
    for (name, value) in &document.facts {
        text.push_str(&format!("- {name}: {}\n", escape_markdown(value)));
    }
    for section in &document.sections {
        text.push_str(&format!(
            "\n## {}. {}\n\n<sub>{}</sub>\n",
            section.number,
            escape_markdown(&section.title),
            section.at
        ));
        for piece in &section.pieces {
            match piece {
                SectionPiece::Markdown(words) => {
                    text.push_str(&format!("\n{}", quote_lines(words)))
                }
                SectionPiece::Exact { label, text: exact } => {
                    if !label.is_empty() {
                        text.push_str(&format!("\n{}:\n", escape_markdown(label)));
                    }
                    text.push_str(&format!("\n{}", fence_text(exact)));
                }
                SectionPiece::Note(note) => {
                    text.push_str(&format!("\n{}\n", escape_markdown(note)))
                }
            }
        }
    }
    text
}

/// Encloses a text in a fence that is longer than any run of backticks in it.
fn fence_text(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    // The longest run anywhere counts, since a fence closes at any line of enough backticks.
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(3.max(longest + 1));
    // The closing fence must begin a line.
    let end = if text.ends_with('\n') || text.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{fence}\n{text}{end}{fence}\n")
}

/// Quotes the lines of a text. The end of a quotation also closes fences that are open in it.
fn quote_lines(text: &str) -> String {
    text.lines().map(|line| format!("> {line}\n")).collect()
}

/// Escapes all markup in a text on one line.
fn escape_markdown(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '!' | '&' => {
                plain.extend(['\\', c])
            }
            // A line break would end the heading or list item.
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{escape_markdown, fence_text, quote_lines};

    #[test]
    fn a_fence_is_longer_than_those_in_its_text() {
        assert_eq!(fence_text("a"), "```\na\n```\n");
        assert_eq!(
            fence_text("```sh\nls\n```\n"),
            "````\n```sh\nls\n```\n````\n"
        );
        assert_eq!(fence_text("x `````` y"), "```````\nx `````` y\n```````\n");
        assert_eq!(fence_text(""), "```\n```\n");
    }

    #[test]
    fn text_is_quoted_and_names_are_plain() {
        assert_eq!(quote_lines("a\n\n```\nopen"), "> a\n> \n> ```\n> open\n");
        assert_eq!(escape_markdown("# <b>*x*\n"), "\\# \\<b\\>\\*x\\* ");
    }
}
