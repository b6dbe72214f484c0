//! Colours code, line by line, while it streams.
//!
//! A full grammar costs megabytes and milliseconds at the start, and most cannot continue a line that is not complete. Words,
//! strings, numbers and comments are what a reader sees at a glance, and they need a table row for each family of languages.

use ratatui_core::text::Span;

use crate::lines::span;
use crate::theme::{Role, Theme};

/// A family of languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LanguageFamily {
    /// The names after a fence, and the extensions of files.
    names: &'static [&'static str],
    /// The beginning of a comment that ends with its line.
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    keywords: &'static [&'static str],
}

const FAMILIES: [LanguageFamily; 9] = [
    LanguageFamily {
        names: &["rust", "rs"],
        line_comments: &["//"],
        block_comment: Some(("/*", "*/")),
        quotes: &['"'],
        keywords: &[
            "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum",
            "extern", "false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod",
            "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super",
            "trait", "true", "type", "unsafe", "use", "where", "while",
        ],
    },
    LanguageFamily {
        names: &["python", "py"],
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        keywords: &[
            "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
            "elif", "else", "except", "False", "finally", "for", "from", "global", "if", "import",
            "in", "is", "lambda", "None", "nonlocal", "not", "or", "pass", "raise", "return",
            "True", "try", "while", "with", "yield",
        ],
    },
    LanguageFamily {
        names: &[
            "javascript",
            "js",
            "jsx",
            "typescript",
            "ts",
            "tsx",
            "mjs",
            "java",
            "kotlin",
            "kt",
            "swift",
            "php",
            "cs",
            "csharp",
            "dart",
            "scala",
        ],
        line_comments: &["//"],
        block_comment: Some(("/*", "*/")),
        quotes: &['"', '\'', '`'],
        keywords: &[
            "abstract",
            "as",
            "async",
            "await",
            "break",
            "case",
            "catch",
            "class",
            "const",
            "continue",
            "default",
            "do",
            "else",
            "enum",
            "export",
            "extends",
            "false",
            "final",
            "finally",
            "for",
            "from",
            "fun",
            "func",
            "function",
            "if",
            "implements",
            "import",
            "in",
            "instanceof",
            "interface",
            "let",
            "new",
            "null",
            "of",
            "override",
            "package",
            "private",
            "protected",
            "public",
            "return",
            "static",
            "super",
            "switch",
            "this",
            "throw",
            "throws",
            "true",
            "try",
            "type",
            "typeof",
            "undefined",
            "val",
            "var",
            "void",
            "while",
            "yield",
        ],
    },
    LanguageFamily {
        names: &["c", "h", "cpp", "cc", "cxx", "hpp", "c++", "go", "zig"],
        line_comments: &["//"],
        block_comment: Some(("/*", "*/")),
        quotes: &['"', '\'', '`'],
        keywords: &[
            "auto",
            "bool",
            "break",
            "case",
            "chan",
            "char",
            "class",
            "const",
            "continue",
            "default",
            "defer",
            "delete",
            "do",
            "double",
            "else",
            "enum",
            "extern",
            "false",
            "float",
            "for",
            "func",
            "go",
            "goto",
            "if",
            "import",
            "inline",
            "int",
            "interface",
            "long",
            "map",
            "namespace",
            "new",
            "nil",
            "nullptr",
            "package",
            "private",
            "public",
            "range",
            "return",
            "select",
            "short",
            "signed",
            "sizeof",
            "static",
            "struct",
            "switch",
            "template",
            "this",
            "true",
            "type",
            "typedef",
            "typename",
            "union",
            "unsigned",
            "using",
            "var",
            "virtual",
            "void",
            "while",
        ],
    },
    LanguageFamily {
        names: &[
            "sh",
            "bash",
            "shell",
            "zsh",
            "console",
            "fish",
            "dockerfile",
            "makefile",
            "make",
        ],
        line_comments: &["#"],
        block_comment: None,
        quotes: &['"', '\''],
        keywords: &[
            "case", "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if",
            "in", "local", "return", "set", "then", "until", "while",
        ],
    },
    LanguageFamily {
        names: &["json", "jsonc", "yaml", "yml", "toml", "ini"],
        line_comments: &["#", "//"],
        block_comment: None,
        quotes: &['"', '\''],
        keywords: &["true", "false", "null", "yes", "no"],
    },
    LanguageFamily {
        names: &["ruby", "rb", "elixir", "ex", "lua"],
        line_comments: &["#", "--"],
        block_comment: None,
        quotes: &['"', '\''],
        keywords: &[
            "and",
            "begin",
            "break",
            "case",
            "class",
            "def",
            "defmodule",
            "do",
            "else",
            "elsif",
            "end",
            "ensure",
            "false",
            "for",
            "function",
            "if",
            "in",
            "local",
            "module",
            "nil",
            "not",
            "or",
            "rescue",
            "return",
            "self",
            "then",
            "true",
            "unless",
            "until",
            "when",
            "while",
            "yield",
        ],
    },
    LanguageFamily {
        names: &["sql"],
        line_comments: &["--"],
        block_comment: Some(("/*", "*/")),
        quotes: &['\''],
        keywords: &[
            "ALTER", "AND", "AS", "BY", "CREATE", "DELETE", "DROP", "FROM", "GROUP", "HAVING",
            "IN", "INDEX", "INSERT", "INTO", "IS", "JOIN", "LEFT", "LIMIT", "NOT", "NULL", "ON",
            "OR", "ORDER", "PRIMARY", "KEY", "SELECT", "SET", "TABLE", "UPDATE", "VALUES", "WHERE",
            "select", "from", "where", "and", "or", "not", "insert", "into", "values", "update",
            "set", "delete", "create", "table", "join", "on", "group", "order", "by", "limit",
        ],
    },
    LanguageFamily {
        names: &["css", "scss", "html", "xml"],
        line_comments: &[],
        block_comment: Some(("/*", "*/")),
        quotes: &['"', '\''],
        keywords: &[],
    },
];

/// Colours the lines of one block of code, in their order.
#[derive(Debug, Clone)]
pub struct CodeHighlighter {
    family: Option<LanguageFamily>,
    /// True within a comment of several lines.
    in_comment: bool,
}

impl CodeHighlighter {
    /// Creates the highlighter of a language, by its name after a fence or by a file's name.
    pub fn for_language(name: &str) -> Self {
        let word = name
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '{'))
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let extension = word.rsplit(['.', '/']).next().unwrap_or_default();
        let family = FAMILIES
            .iter()
            .find(|family| family.names.contains(&extension));
        Self {
            family: family.copied(),
            in_comment: false,
        }
    }

    /// Returns the styled pieces of the next line, without its line feed.
    pub fn highlight_line(&mut self, line: &str, theme: Theme) -> Vec<Span<'static>> {
        let Some(family) = self.family else {
            return vec![span(line, theme.style(Role::Plain))];
        };
        let mut spans = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let token = self.next_token(&family, rest);
            let length = token.length.clamp(1, rest.len());
            // Tokens end where characters do.
            let end = (length..=rest.len())
                .find(|at| rest.is_char_boundary(*at))
                .unwrap_or(rest.len());
            let (text, after) = rest.split_at(end);
            spans.push(span(text, theme.style(token.role)));
            rest = after;
        }
        spans
    }

    fn next_token(&mut self, family: &LanguageFamily, rest: &str) -> CodeToken {
        if let Some((open, close)) = family.block_comment
            && (self.in_comment || rest.starts_with(open))
        {
            let start = if self.in_comment { 0 } else { open.len() };
            let end = rest
                .get(start..)
                .and_then(|rest| rest.find(close))
                .map(|at| start + at + close.len());
            self.in_comment = end.is_none();
            return CodeToken::new(end.unwrap_or(rest.len()), Role::Comment);
        }
        if family
            .line_comments
            .iter()
            .any(|mark| rest.starts_with(mark))
        {
            return CodeToken::new(rest.len(), Role::Comment);
        }
        let Some(first) = rest.chars().next() else {
            return CodeToken::new(rest.len(), Role::Plain);
        };
        if family.quotes.contains(&first) {
            return CodeToken::new(string_length(rest, first), Role::Literal);
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if is_word(first) {
            let word = rest.len() - rest.trim_start_matches(is_word).len();
            let role = match rest.get(..word) {
                Some(text) if family.keywords.contains(&text) => Role::Keyword,
                _ if first.is_ascii_digit() => Role::Literal,
                _ => Role::Plain,
            };
            return CodeToken::new(word, role);
        }
        let starts_token = |c: char| is_word(c) || family.quotes.contains(&c) || "/#-".contains(c);
        let plain = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| starts_token(*c))
            .map_or(rest.len(), |(at, _)| at);
        CodeToken::new(plain, Role::Plain)
    }
}

/// A piece of code with one style.
struct CodeToken {
    length: usize,
    role: Role,
}

impl CodeToken {
    fn new(length: usize, role: Role) -> Self {
        Self { length, role }
    }
}

/// Returns the length of the string that the text begins with; a string that does not end, ends with its line.
fn string_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return at + c.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(language: &str, lines: &[&str]) -> Vec<(String, Role)> {
        let theme = Theme::new(true);
        let mut highlighter = CodeHighlighter::for_language(language);
        let known = [Role::Keyword, Role::Literal, Role::Comment];
        lines
            .iter()
            .flat_map(|line| highlighter.highlight_line(line, theme))
            .filter_map(|piece| {
                let role = known
                    .iter()
                    .find(|role| theme.style(**role) == piece.style)?;
                Some((piece.content.into_owned(), *role))
            })
            .collect()
    }

    #[test]
    fn words_strings_and_comments_are_found() {
        let found = roles("rust", &["let x = \"a\\\"ü\"; // ü", "/* a", "fn */ fn"]);
        let expected = [
            ("let", Role::Keyword),
            ("\"a\\\"ü\"", Role::Literal),
            ("// ü", Role::Comment),
            ("/* a", Role::Comment),
            ("fn */", Role::Comment),
            ("fn", Role::Keyword),
        ];
        assert_eq!(found, expected.map(|(text, role)| (text.to_owned(), role)));
        assert_eq!(
            roles("src/a.py", &["x = 12"]),
            [("12".to_owned(), Role::Literal)]
        );
        assert_eq!(roles("unknown", &["fn let"]), []);
    }

    #[test]
    fn no_text_is_lost() {
        for line in ["", "ü/ö", "'", "a - b -- c", "\"\\", "/*/"] {
            for language in ["rust", "python", "sql", "js", "text"] {
                let mut highlighter = CodeHighlighter::for_language(language);
                let text: String = highlighter
                    .highlight_line(line, Theme::new(true))
                    .iter()
                    .map(|piece| piece.content.as_ref())
                    .collect();
                assert_eq!(text, line, "{language}");
            }
        }
    }
}
