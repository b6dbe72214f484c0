//! Parses the syntax of git's configuration files exactly as git does.
//!
//! Git rejects a file with an error in it, and so does this parser. Anything uncertain counts as an
//! error.

/// A variable of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// The section, subsection and name, joined by dots; all but the subsection in lower case.
    pub(super) key: String,
    /// The value; `None` without a `=`.
    pub(super) value: Option<String>,
    /// True if key and value are exact; false if invalid UTF-8 was replaced.
    pub(super) is_exact: bool,
}

/// Parses the text of a file; `None` if git would reject it.
pub(super) fn read_variables(text: &[u8]) -> Option<Vec<Variable>> {
    // In git, which is written in C, a NUL ends the text in some places and not in others.
    if text.contains(&0) {
        return None;
    }
    let rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Parser { rest, ended: false }.variables()
}

struct Parser<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl Parser<'_> {
    /// Takes the next byte; `\r\n` and the end of the text count as a line feed.
    fn take(&mut self) -> u8 {
        match self.rest {
            [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => {
                self.rest = rest;
                b'\n'
            }
            [byte, rest @ ..] => {
                self.rest = rest;
                *byte
            }
            [] => {
                self.ended = true;
                b'\n'
            }
        }
    }

    fn variables(mut self) -> Option<Vec<Variable>> {
        let mut found = Vec::new();
        let mut section = Vec::new();
        let mut comment = false;
        loop {
            match self.take() {
                b'\n' if self.ended => return Some(found),
                b'\n' => comment = false,
                _ if comment => {}
                byte if is_space(byte) => {}
                b'#' | b';' => comment = true,
                b'[' => section = [self.section()?, b".".to_vec()].concat(),
                byte if byte.is_ascii_alphabetic() => found.push(self.variable(&section, byte)?),
                _ => return None,
            }
        }
    }

    /// Parses a section header after its bracket.
    fn section(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            match self.take() {
                _ if self.ended => return None,
                b']' => return Some(name),
                byte if is_space(byte) => return self.subsection(name, byte),
                byte if is_key(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
    }

    /// Parses the quoted subsection after a section's name; `space` is the byte after the name.
    fn subsection(&mut self, mut name: Vec<u8>, space: u8) -> Option<Vec<u8>> {
        let mut byte = space;
        while is_space(byte) {
            if byte == b'\n' {
                return None;
            }
            byte = self.take();
        }
        if byte != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            match self.take() {
                b'\n' => return None,
                b'"' => break,
                b'\\' => match self.take() {
                    b'\n' => return None,
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
        (self.take() == b']').then_some(name)
    }

    /// Parses a variable after the first letter of its name.
    fn variable(&mut self, section: &[u8], first: u8) -> Option<Variable> {
        let mut key = section.to_vec();
        let mut byte = first;
        while is_key(byte) {
            key.push(byte.to_ascii_lowercase());
            byte = self.take();
        }
        while matches!(byte, b' ' | b'\t') {
            byte = self.take();
        }
        let value = match byte {
            b'\n' => None,
            b'=' => Some(self.value()?),
            _ => return None,
        };
        let is_exact = std::str::from_utf8(&key).is_ok()
            && std::str::from_utf8(value.as_deref().unwrap_or(b"")).is_ok();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Variable {
            key: text(&key),
            value: value.as_deref().map(text),
            is_exact,
        })
    }

    /// Parses a value up to the end of its line.
    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        let mut quoted = false;
        let mut comment = false;
        // The start of trailing white space, if the value ended here.
        let mut trimmed = None;
        loop {
            match self.take() {
                b'\n' if quoted => return None,
                b'\n' => {
                    value.truncate(trimmed.unwrap_or(value.len()));
                    return Some(value);
                }
                _ if comment => {}
                byte if is_space(byte) && !quoted => {
                    trimmed = trimmed.or(Some(value.len()));
                    if !value.is_empty() {
                        value.push(byte);
                    }
                }
                b'#' | b';' if !quoted => comment = true,
                byte => {
                    trimmed = None;
                    match byte {
                        b'"' => quoted = !quoted,
                        b'\\' => value.extend(self.escaped()?),
                        _ => value.push(byte),
                    }
                }
            }
        }
    }

    /// Parses the character after a backslash in a value; an escaped line end produces nothing.
    fn escaped(&mut self) -> Option<Option<u8>> {
        match self.take() {
            b'\n' => Some(None),
            b't' => Some(Some(b'\t')),
            b'b' => Some(Some(8)),
            b'n' => Some(Some(b'\n')),
            byte @ (b'\\' | b'"') => Some(Some(byte)),
            _ => None,
        }
    }
}

/// Returns true for the bytes that git treats as white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read_variables;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = read_variables(text.as_bytes()).map(|variables| {
            let shown = variables.iter().map(|variable| match &variable.value {
                Some(value) => format!("{}={value}", variable.key),
                None => variable.key.clone(),
            });
            shown.collect::<Vec<_>>().join("|")
        });
        assert_eq!(found.as_deref(), expected, "{text:?}");
    }

    /// Each expectation was observed with `git config --file F --list`.
    #[test]
    fn configuration_is_read_as_git_reads_it() {
        check("", Some(""));
        check(
            "[core]\n\tfsmonitor = ./evil\n",
            Some("core.fsmonitor=./evil"),
        );
        check("\u{feff}[Core]FSmonitor=x", Some("core.fsmonitor=x"));
        check(
            "[core] fsmonitor\r\n[a]b=1\r\n",
            Some("core.fsmonitor|a.b=1"),
        );
        check(
            "[diff \"A b\\\"c\\\\d\"] textconv = x",
            Some("diff.A b\"c\\d.textconv=x"),
        );
        check("[diff.Old] textconv = x", Some("diff.old.textconv=x"));
        check(
            "[a]\nb = \"x ; y\" # z\nc = x ; y\n",
            Some("a.b=x ; y|a.c=x"),
        );
        check("[a]\nb = x \\\n  y\\n\\t\\\"z\n", Some("a.b=x   y\n\t\"z"));
        check("[a]\nb = x\\", Some("a.b=x"));
        check("[a]\nb =   x  y  \nc = \"x  \"\n", Some("a.b=x  y|a.c=x  "));
        check("; c\n# [a]\n[b]\nc", Some("b.c"));
        check("[a]\nb = c\n[a \"\"]\nd = e\n", Some("a.b=c|a..d=e"));
    }

    /// Returns what git itself reads from a text; `None` without git.
    fn read_by_git(text: &str) -> Option<Option<String>> {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut git = Command::new("git");
        git.args(["config", "--file", "-", "--list", "-z"])
            .stderr(Stdio::null());
        let mut git = git
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        git.stdin.take()?.write_all(text.as_bytes()).ok()?;
        let output = git.wait_with_output().ok()?;
        Some(
            output
                .status
                .success()
                .then(|| String::from_utf8_lossy(&output.stdout).into_owned()),
        )
    }

    fn read_by_us(text: &str) -> Option<String> {
        let variables = read_variables(text.as_bytes())?;
        let shown = variables.iter().map(|variable| match &variable.value {
            Some(value) => format!("{}\n{value}\0", variable.key),
            None => format!("{}\0", variable.key),
        });
        Some(shown.collect())
    }

    const PIECES: [&str; 22] = [
        "[a]\n",
        "[a",
        "]",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\t",
        "=",
        "\"",
        "\\",
        "#",
        ";",
        "[b \"c\"]",
        "d",
        "E-1",
        ".",
        "x = ",
        "n",
        "\u{e9}",
        "\\\n",
        "\u{b}",
    ];

    proptest! {
        #[test]
        fn git_agrees_on_any_configuration(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..14)) {
            let text = pieces.concat();
            for text in [format!("[a]\nb = {text}"), format!("[a]\nb{text}"), text] {
                if let Some(expected) = read_by_git(&text) {
                    prop_assert_eq!(read_by_us(&text), expected, "{:?}", text);
                }
            }
        }
    }

    #[test]
    fn configuration_that_git_refuses_is_refused() {
        for text in [
            "[a",
            "[a b]",
            "[a \"b]",
            "[a \"b\" ]",
            "[a \"b\\\n\"]",
            "[a]\n1 = x",
            "[a]\nb c",
            "[a]\nb ; c",
            "[a]\nb = \"x",
            "[a]\nb = \\x",
            "[a]\n= x",
            "x\u{0}",
            "[a\u{0}]",
            "[a_b]\nc = d",
        ] {
            check(text, None);
        }
    }
}
