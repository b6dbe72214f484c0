//! Parses the YAML header that many files of conventions begin with.
//!
//! Real headers are often not valid YAML (`globs: *.ts`). Such a header is read line by line
//! instead, so a rule does not lose its condition.

use serde_json::{Map, Value};

/// The most bytes of a header. A longer one is text.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The most items of a list.
const MAX_ITEMS: usize = 100;

/// A file with its header taken off.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FrontMatter<'a> {
    fields: Map<String, Value>,
    /// The text behind the header; the whole text if there is no header.
    pub(crate) body: &'a str,
}

impl<'a> FrontMatter<'a> {
    /// Returns a text that is all body.
    pub(crate) fn without_header(text: &'a str) -> Self {
        Self {
            fields: Map::new(),
            body: text,
        }
    }

    /// Parses a text.
    pub(crate) fn parse(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Some((header, body)) = split_header(text) else {
            return Self::without_header(text);
        };
        // The parser has limits of its own for aliases and depth.
        let fields = match serde_saphyr::from_str::<Value>(header) {
            Ok(Value::Object(fields)) => fields,
            _ => read_lines(header),
        };
        Self { fields, body }
    }

    /// Returns a field that is a text, a number or a truth value, as a text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        match self.fields.get(name)? {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// Returns a field that is a truth value.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.text(name)?.as_str() {
            "true" | "yes" => Some(true),
            "false" | "no" => Some(false),
            _ => None,
        }
    }

    /// Returns a field that is a list, or a text with commas between the items; `None` if there is no such field.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        let items: Vec<String> = match self.fields.get(name)? {
            Value::String(text) => split_commas(text),
            Value::Array(items) => items
                .iter()
                .filter_map(Value::as_str)
                .flat_map(split_commas)
                .collect(),
            _ => return Some(Vec::new()),
        };
        Some(items.into_iter().take(MAX_ITEMS).collect())
    }

    /// Returns a field as it is.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Returns true if there is a header with a field.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }
}

/// Returns the lines between a first line `---` and the next one, and what follows.
fn split_header(text: &str) -> Option<(&str, &str)> {
    let rest = text
        .strip_prefix("---")
        .map(|rest| rest.trim_start_matches([' ', '\t', '\r']))?
        .strip_prefix('\n')?;
    let mut at = 0;
    // The first line that closes it counts: `---` in the text is a rule.
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return rest.get(..at).zip(rest.get(at + line.len()..));
        }
        at += line.len();
        if at > MAX_HEADER_BYTES {
            return None;
        }
    }
    None
}

/// Reads `name: value` lines, and the `- item` lines below a name.
fn read_lines(header: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut last = None;
    for line in header.lines() {
        if let Some(item) = line.trim_start().strip_prefix("- ") {
            // An item behind a name that has a value already belongs to nothing.
            if let Some(Value::Array(items)) = last.as_ref().and_then(|name| fields.get_mut(name)) {
                items.push(Value::String(unquote(item)));
            }
            continue;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let name = name.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            continue;
        }
        let value = value.trim();
        let inner = value
            .strip_prefix('[')
            .and_then(|value| value.strip_suffix(']'));
        let value = match inner {
            Some(items) => {
                let items = split_commas(items).into_iter();
                Value::Array(items.map(|item| Value::String(unquote(&item))).collect())
            }
            None if value.is_empty() => Value::Array(Vec::new()),
            None => Value::String(unquote(value)),
        };
        last = Some(name.to_owned());
        fields.insert(name.to_owned(), value);
    }
    fields
}

/// Removes quotes around a value.
fn unquote(value: &str) -> String {
    let value = value.trim();
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
        .to_owned()
}

/// Splits at the commas outside of brackets, so that `*.{ts,tsx}` and `Bash(a, b)` stay whole.
fn split_commas(text: impl AsRef<str>) -> Vec<String> {
    let mut depth = 0_usize;
    let mut items = vec![String::new()];
    for c in text.as_ref().chars() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(c);
        }
    }
    items
        .iter()
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off() {
        let parsed = FrontMatter::parse(
            "---\r\nname: a\nglobs: ['*.{ts,tsx}', b]\nalwaysApply: false\nlong: >-\n  one\n  two\n---\nbody\n---\n",
        );
        assert_eq!(parsed.body, "body\n---\n");
        assert_eq!(parsed.text("name").as_deref(), Some("a"));
        assert_eq!(parsed.text("long").as_deref(), Some("one two"));
        assert_eq!(parsed.flag("alwaysApply"), Some(false));
        assert_eq!(parsed.list("globs").unwrap(), ["*.{ts,tsx}", "b"]);
        assert_eq!(parsed.list("none"), None);
    }

    #[test]
    fn headers_that_are_no_yaml_keep_their_fields() {
        let parsed = FrontMatter::parse(
            "---\ndescription: a: b\nglobs: *.ts,src/**\npaths:\n  - *.md\n---\nx",
        );
        assert_eq!(parsed.text("description").as_deref(), Some("a: b"));
        assert_eq!(parsed.list("globs").unwrap(), ["*.ts", "src/**"]);
        assert_eq!(parsed.list("paths").unwrap(), ["*.md"]);
    }

    #[test]
    fn a_text_without_a_closed_header_is_all_body() {
        for text in [
            "",
            "---",
            "---\nname: a\n",
            "-- -\n---\n",
            "x\n---\na: b\n---\n",
        ] {
            let parsed = FrontMatter::parse(text);
            assert_eq!((parsed.body, parsed.fields.len()), (text, 0), "{text}");
        }
        let long = format!("---\na: {}\n---\nx", "y".repeat(MAX_HEADER_BYTES));
        assert_eq!(FrontMatter::parse(&long).body, long);
        // Aliases that grow: an error of the parser, and never a huge value.
        let mut bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (next, last) in ('b'..'k').zip('a'..) {
            bomb.push_str(&format!(
                "{next}: &{next} [{}]\n",
                vec![format!("*{last}"); 9].join(",")
            ));
        }
        bomb.push_str("---\nx");
        assert_eq!(FrontMatter::parse(&bomb).body, "x");
    }
}
