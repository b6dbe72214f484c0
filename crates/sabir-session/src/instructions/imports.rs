//! Finds the imports (`@path`) in a file of rules.

/// The most imports of one file.
const MAX_IMPORTS: usize = 32;
/// The most bytes of the path of an import.
const MAX_PATH_BYTES: usize = 512;

/// An import as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportMention {
    /// The path, without the `@`.
    pub(super) path: String,
    /// True if nothing else is on the line: then it is an import for sure, and not a name (`@alice`).
    pub(super) is_whole_line: bool,
}

/// Returns the imports outside of code, in their order.
pub(super) fn find_imports(text: &str) -> Vec<ImportMention> {
    let mut found: Vec<ImportMention> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            // The other kind of fence in a fence is text.
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => {
                // Every second part of a line with backticks is code.
                for prose in line.split('`').step_by(2) {
                    found.extend(prose_imports(prose, line.trim()));
                }
            }
            _ => {}
        }
        if found.len() >= MAX_IMPORTS {
            found.truncate(MAX_IMPORTS);
            break;
        }
    }
    found
}

/// Returns the imports of a piece of prose on a line.
fn prose_imports(prose: &str, line: &str) -> Vec<ImportMention> {
    let mut found = Vec::new();
    let mut before = ' ';
    for (at, c) in prose.char_indices() {
        // An address (`me@example.org`) has a letter before it.
        if c == '@' && before.is_whitespace() {
            let path = read_path(prose.get(at + 1..).unwrap_or_default());
            if !path.is_empty() && path.len() <= MAX_PATH_BYTES {
                let is_whole_line = line.strip_prefix('@').is_some_and(|rest| rest == path);
                found.push(ImportMention {
                    path,
                    is_whole_line,
                });
            }
        }
        before = c;
    }
    found
}

/// Returns the path up to a blank that has no backslash before it, without the punctuation of a sentence at its end.
fn read_path(text: &str) -> String {
    let mut path = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&' ') => path.extend(chars.next()),
            c if c.is_whitespace() => break,
            c => path.push(c),
        }
    }
    path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '"', '\''])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_outside_of_code() {
        let text = "@docs/a.md\nSee @b.md, and @c\\ d.md.\nmail me@x.y `@code.md` \
                    @e.md\n```\n@f.md\n~~~\n```\n  @~/g.md\n@ h\n";
        let paths: Vec<_> = find_imports(text).into_iter().map(|one| one.path).collect();
        assert_eq!(paths, ["docs/a.md", "b.md", "c d.md", "e.md", "~/g.md"]);
        assert!(
            find_imports("@a.md")[0].is_whole_line && !find_imports("ask @bob")[0].is_whole_line
        );
        assert_eq!(find_imports(&"@a.md\n".repeat(1000)).len(), MAX_IMPORTS);
    }
}
