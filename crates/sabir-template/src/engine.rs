//! Renders a template within limits, with the functions and methods that templates of models
//! expect.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::{Deserialize, Serialize};

/// The work that a rendering may cause. The engine counts 1 for a step and 1 for 64 bytes of data, so this bounds the time and memory of
/// nearly all operations of a template.
const MAX_FUEL: u64 = 1_000_000;
/// The deepest nesting of values that are written as JSON.
const MAX_JSON_DEPTH: usize = 64;
/// The longest JSON text that one filter writes, in bytes. A value can contain another one twice, so a short template can produce an
/// immense text.
const MAX_JSON_BYTES: usize = 1 << 20;

/// The most characters of an error's message.
const MAX_MESSAGE_CHARS: usize = 300;
/// The date that templates get as the present one: the result must not depend on the clock.
const TODAY: [(&str, &str); 8] = [
    ("%Y", "2026"),
    ("%m", "01"),
    ("%d", "15"),
    ("%B", "January"),
    ("%b", "Jan"),
    ("%A", "Thursday"),
    ("%H", "12"),
    ("%M", "00"),
];

/// A reason why a template writes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateError {
    /// The template is not one of Jinja, or uses extensions that are not known.
    #[error("it is not a valid Jinja template: {message}")]
    Syntax {
        /// The message of the engine, with the line.
        message: String,
    },
    /// The template refuses the conversation, or does what cannot be done.
    #[error("it cannot be rendered: {message}")]
    Rendering {
        /// The message of the engine or of the template, with the line.
        message: String,
    },
    /// The template needs more work or memory than any real one.
    #[error("it needs too much time or memory: rendering was stopped")]
    TooExpensive,
    /// The engine failed.
    #[error("the template engine failed")]
    Engine,
}

impl TemplateError {
    fn of_rendering(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::OutOfFuel => Self::TooExpensive,
            _ => Self::Rendering {
                message: describe_error(error),
            },
        }
    }
}

/// A template that can be rendered.
pub(crate) struct CompiledTemplate<'s> {
    environment: Environment<'s>,
}

/// The name of the only template of an environment.
const NAME: &str = "template";

impl<'s> CompiledTemplate<'s> {
    /// Compiles a template.
    pub(crate) fn compile(source: &'s str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(MAX_FUEL));
        environment.set_recursion_limit(64);
        // As transformers does, which most templates are written for.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|_| TemplateError::Engine)?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", format_today);
        environment
            .add_template(NAME, source)
            .map_err(|error| TemplateError::Syntax {
                message: describe_error(&error),
            })?;
        Ok(Self { environment })
    }

    /// Renders the template.
    pub(crate) fn render(&self, context: Value) -> Result<String, TemplateError> {
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| TemplateError::of_rendering(&error))
    }
}

/// Returns a template without the tags that mark generated text: they are only for training, and only the engine of transformers has them.
pub(crate) fn remove_generation_tags(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        kept.push_str(before);
        rest = after;
        let Some((tag, behind)) = after.split_once("%}") else {
            kept.push_str("{%");
            break;
        };
        let word = tag.trim_matches(['-', '+']).trim();
        if matches!(word, "generation" | "endgeneration") {
            // A comment, so that the blanks around it are trimmed like those around the tag.
            let left = if tag.starts_with('-') { "-" } else { "" };
            let right = if tag.ends_with('-') { "-" } else { "" };
            kept.push_str(&format!("{{#{left} {right}#}}"));
            rest = behind;
        } else {
            kept.push_str("{%");
        }
    }
    kept.push_str(rest);
    kept
}

/// Rewrites `{% set _ = ns.list.append(item) %}` as `{% set ns.list = ns.list + [item] %}`, which is equivalent unless another variable
/// holds the list. llama.cpp's engine changes lists in place, and some of its templates rely on that; lists of this engine are immutable.
pub(crate) fn replace_appends(source: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        replaced.push_str(before);
        replaced.push_str("{%");
        let Some((tag, behind)) = after.split_once("%}") else {
            rest = after;
            break;
        };
        match parse_append(tag) {
            Some((list, item)) => {
                let left = if tag.starts_with('-') { "-" } else { "" };
                let right = if tag.ends_with('-') { "-" } else { "" };
                replaced.push_str(&format!("{left} set {list} = {list} + [{item}] {right}"));
            }
            None => replaced.push_str(tag),
        }
        replaced.push_str("%}");
        rest = behind;
    }
    replaced.push_str(rest);
    replaced
}

/// Returns the list and the item of a tag that appends to a list in a namespace.
fn parse_append(tag: &str) -> Option<(&str, &str)> {
    let statement = tag.trim_matches(['-', '+']).trim();
    let (name, value) = statement.strip_prefix("set ")?.split_once('=')?;
    let (list, item) = value.trim().strip_suffix(')')?.split_once(".append(")?;
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|sign| sign.is_alphanumeric() || sign == '_')
    };
    let (namespace, member) = list.split_once('.')?;
    let is_append = is_name(name.trim()) && is_name(namespace) && is_name(member);
    is_append.then_some((list, item))
}

/// Renders the message of an error with its line.
fn describe_error(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    // A template chooses the words, of any length and with any line feeds.
    let plain = |sign: char| if sign.is_control() { ' ' } else { sign };
    let detail: String = detail.chars().take(MAX_MESSAGE_CHARS).map(plain).collect();
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Lets a template refuse a conversation.
fn raise_exception(message: String) -> Result<Value, Error> {
    Err(invalid(message))
}

/// Formats a fixed day.
fn format_today(format: String) -> String {
    TODAY.iter().fold(format, |text, (directive, value)| {
        text.replace(directive, value)
    })
}

/// Writes a value as Python's `json.dumps` does.
fn to_json(
    state: &mut State,
    value: &Value,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent: Option<Value> = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let escapes_unicode: Option<bool> = options.get("ensure_ascii")?;
    let sorts_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let indent = indent
        .filter(|indent| !indent.is_none() && !indent.is_undefined())
        .map(usize::try_from)
        .transpose()?;
    let separators = separators.unwrap_or_default();
    let mut writer = JsonWriter {
        text: String::new(),
        indent: indent.map(|indent| indent.min(16)),
        // With an indent Python writes no blank behind a comma, which ends the line.
        comma: separators
            .first()
            .map_or(if indent.is_some() { "," } else { ", " }, String::as_str),
        colon: separators.get(1).map_or(": ", String::as_str),
        escapes_unicode: escapes_unicode.unwrap_or(false),
        sorts_keys: sorts_keys.unwrap_or(false),
    };
    writer.write_value(value, 0)?;
    // A byte of JSON is more work than one of text.
    state.consume_fuel(writer.text.len() as u64 / 4)?;
    Ok(Value::from(writer.text))
}

/// Writes JSON in the layout of Python.
struct JsonWriter<'a> {
    text: String,
    indent: Option<usize>,
    comma: &'a str,
    colon: &'a str,
    escapes_unicode: bool,
    sorts_keys: bool,
}

impl JsonWriter<'_> {
    fn write_value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_JSON_DEPTH || self.text.len() > MAX_JSON_BYTES {
            return Err(Error::new(
                ErrorKind::OutOfFuel,
                "a value is too large to be written as JSON",
            ));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool | ValueKind::Number => {
                self.text.push_str(&value.to_string().to_lowercase())
            }
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default()),
            ValueKind::Map => return self.write_map(value, depth),
            ValueKind::Seq | ValueKind::Iterable => return self.write_list(value, depth),
            kind => return Err(invalid(format!("a value of type {kind} has no JSON"))),
        }
        Ok(())
    }

    fn write_list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.separate(is_empty, depth + 1);
            is_empty = false;
            self.write_value(&item, depth + 1)?;
        }
        self.close(is_empty, depth, ']');
        Ok(())
    }

    fn write_map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorts_keys {
            keys.sort();
        }
        let is_empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.separate(index == 0, depth + 1);
            self.write_string(&key.to_string());
            self.text.push_str(self.colon);
            self.write_value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(is_empty, depth, '}');
        Ok(())
    }

    /// Writes what precedes an item.
    fn separate(&mut self, is_first: bool, depth: usize) {
        if !is_first {
            self.text.push_str(self.comma);
        }
        self.break_line(depth);
    }

    /// Writes what follows the last item.
    fn close(&mut self, is_empty: bool, depth: usize, bracket: char) {
        if !is_empty {
            self.break_line(depth);
        }
        self.text.push(bracket);
    }

    fn break_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.text.push('\n');
            self.text.push_str(&" ".repeat(indent * depth));
        }
    }

    fn write_string(&mut self, text: &str) {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                c if c < ' ' || self.escapes_unicode && !c.is_ascii() => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        self.text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn rendered(source: &str) -> Result<String, TemplateError> {
        CompiledTemplate::compile(source)?.render(context! {
            value => crate::conversation::to_engine_value(&serde_json::json!({"b": [1, true, null], "a": "é<\"\n"})),
        })
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        for (filter, expected) in [
            ("tojson", r#"{"b": [1, true, null], "a": "é<\"\n"}"#),
            (
                "tojson(ensure_ascii=true, sort_keys=true)",
                r#"{"a": "\u00e9<\"\n", "b": [1, true, null]}"#,
            ),
            (
                "tojson(separators=(',', ':'))",
                r#"{"b":[1,true,null],"a":"é<\"\n"}"#,
            ),
            (
                "tojson(indent=1)",
                "{\n \"b\": [\n  1,\n  true,\n  null\n ],\n \"a\": \"é<\\\"\\n\"\n}",
            ),
        ] {
            assert_eq!(
                rendered(&format!("{{{{ value | {filter} }}}}")).as_deref(),
                Ok(expected)
            );
        }
    }

    #[test]
    fn generation_tags_leave_their_blanks() {
        assert_eq!(
            remove_generation_tags("a {%- generation -%} b {% endgeneration %}{% if x %}{% y"),
            "a {#- -#} b {# #}{% if x %}{% y"
        );
        let source = remove_generation_tags("a {%- generation -%} b {%- endgeneration %}");
        assert_eq!(rendered(&source).as_deref(), Ok("ab"));
    }

    #[test]
    fn a_list_in_a_namespace_grows() {
        let source = "{% set ns = namespace(ids=['a']) %}{% for id in ['b', 'c'] %}{%- set _ = ns.ids.append(id ~ '(1)') -%} {% endfor %}{{ ns.ids | join(',') }}";
        assert_eq!(
            rendered(&replace_appends(source)).as_deref(),
            Ok("a,b(1),c(1)")
        );
        for other in [
            "{% set _ = ids.append(1) %}",
            "{% set a.b = a.c.append(1) %}",
            "{% if x.append(1) %}{% set _ = a.b.append(",
            "{{ ns.ids.append(1) }}",
        ] {
            assert_eq!(replace_appends(other), other);
        }
    }

    #[test]
    fn the_functions_of_templates_are_known() {
        assert_eq!(
            rendered("{{ strftime_now('%d %b %Y') }}{{ ' x '.strip() }}").as_deref(),
            Ok("15 Jan 2026x")
        );
        assert_eq!(
            rendered("\n{{ raise_exception('no') }}"),
            Err(TemplateError::Rendering {
                message: "no (line 2)".to_owned()
            })
        );
        assert!(matches!(
            rendered("{% if %}"),
            Err(TemplateError::Syntax { .. })
        ));
    }
}
