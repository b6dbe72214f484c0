//! Finds the templates in a file: a template alone, or the JSON files in which models ship theirs.

use serde_json::Value;

/// The largest file in bytes. Real templates have up to 100 KB.
const MAX_SOURCE_BYTES: usize = 4 << 20;

/// A template, with its name where a file has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    /// The name, such as `tool_use`; `None` for the only template of a file.
    pub name: Option<String>,
    /// The Jinja source.
    pub text: String,
}

/// A reason why a file has no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The file is longer than any template.
    #[error(
        "the file has {bytes} bytes, more than the {MAX_SOURCE_BYTES} that a template may have"
    )]
    TooLong {
        /// The length of the file.
        bytes: usize,
    },
    /// The file is JSON, and holds no template.
    #[error(
        "the file is JSON without a `chat_template`: name the template itself, or the model's tokenizer_config.json or chat_template.json"
    )]
    NoTemplate,
    /// The file is a template of Go.
    #[error(
        "the file is a template of Go, as Ollama uses them, and not of Jinja: name the model's original template"
    )]
    GoTemplate,
}

/// Returns the templates of a file: the file itself, or the `chat_template` of a JSON object.
///
/// # Errors
/// The file holds no Jinja template.
pub fn read_templates(text: &str) -> Result<Vec<ChatTemplate>, SourceError> {
    if text.len() > MAX_SOURCE_BYTES {
        return Err(SourceError::TooLong { bytes: text.len() });
    }
    // A template may begin with a brace too, but is never JSON as a whole.
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && value.is_object()
    {
        let templates = listed_templates(value.get("chat_template").unwrap_or(&Value::Null));
        return match templates.is_empty() {
            true => Err(SourceError::NoTemplate),
            false => Ok(templates),
        };
    }
    if is_go_template(text) {
        return Err(SourceError::GoTemplate);
    }
    Ok(vec![ChatTemplate {
        name: None,
        text: text.to_owned(),
    }])
}

/// Returns the templates of a `chat_template`: a text, a list of `{name, template}`, or an object of texts by name.
fn listed_templates(value: &Value) -> Vec<ChatTemplate> {
    let named = |name: &str, text: &Value| {
        Some(ChatTemplate {
            name: Some(name.to_owned()),
            text: text.as_str()?.to_owned(),
        })
    };
    match value {
        Value::String(text) => vec![ChatTemplate {
            name: None,
            text: text.clone(),
        }],
        Value::Array(items) => items
            .iter()
            .filter_map(|item| named(item.get("name")?.as_str()?, item.get("template")?))
            .collect(),
        Value::Object(map) => map
            .iter()
            .filter_map(|(name, text)| named(name, text))
            .collect(),
        _ => Vec::new(),
    }
}

/// Reports whether a text is a template of Go, whose fields begin with a dot: `{{ .Messages }}`, `{{- range .Tools }}`.
fn is_go_template(text: &str) -> bool {
    if text.contains("{%") {
        return false;
    }
    text.split("{{").skip(1).any(|rest| {
        let rest = rest.trim_start_matches('-').trim_start();
        let rest = ["if ", "range ", "with ", "else if ", "not ", "or ", "and "]
            .iter()
            .find_map(|word| rest.strip_prefix(word))
            .unwrap_or(rest);
        rest.trim_start_matches('(')
            .strip_prefix(['.', '$'])
            .is_some_and(|field| field.starts_with(|c: char| c.is_ascii_alphabetic()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_found_in_the_files_of_models() {
        let texts = |text: &str| -> Vec<String> {
            let found = read_templates(text).unwrap();
            found.into_iter().map(|template| template.text).collect()
        };
        assert_eq!(texts("{{ messages }}"), ["{{ messages }}"]);
        assert_eq!(texts("{{ {'a': 1} }}"), ["{{ {'a': 1} }}"]);
        assert_eq!(texts(r#"{"chat_template": "{{ x }}"}"#), ["{{ x }}"]);
        let several = r#"{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]}"#;
        assert_eq!(texts(several), ["a", "b"]);
        assert_eq!(
            read_templates(several).unwrap()[1].name.as_deref(),
            Some("tool_use")
        );
        assert_eq!(
            read_templates(r#"{"model_type": "x"}"#),
            Err(SourceError::NoTemplate)
        );
    }

    #[test]
    fn templates_of_go_are_told_apart() {
        for go in [
            "{{ .System }}",
            "{{- range $i, $_ := .Messages }}{{ end }}",
            "{{ if .Tools }}x{{ end }}",
        ] {
            assert_eq!(read_templates(go), Err(SourceError::GoTemplate), "{go}");
        }
        for jinja in ["{{ messages[0].content }}", "{% if x %}{{ .5 }}{% endif %}"] {
            assert!(read_templates(jinja).is_ok(), "{jinja}");
        }
    }
}
