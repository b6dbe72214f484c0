//! From arguments to work, and from work to words.

use std::sync::Arc;

use sabir_agent::{Arguments, ToolOutput, ToolWork};
use sabir_call::ToolSpec;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::ground::Ground;

/// The most bytes of a file that the tools look at.
pub(crate) const MAX_FILE_BYTES: usize = 32 << 20;

/// The words of a tool, or why it failed, in words.
pub(crate) type Words = Result<String, String>;

/// A spec whose only example is this one. `properties` are those of the schema, `required` their names.
pub(crate) fn spec(name: &str, description: &str, properties: Value, required: &[&str], example: Value) -> ToolSpec {
    let parameters = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let example = if let Value::Object(example) = example { example } else { Map::new() };
    ToolSpec { examples: vec![example], ..ToolSpec::new(name, description, parameters) }
}

/// The text of an argument, for judging a call before it runs.
pub(crate) fn text<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Typed arguments. The gates have checked them, so a failure here is one of the caller's.
pub(crate) fn input<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, String> {
    T::deserialize(arguments).map_err(|error| format!("The arguments do not fit the tool: {error}."))
}

/// Does work that blocks, off the runtime's threads.
pub(crate) fn run<T: DeserializeOwned + Send + 'static>(
    ground: &Arc<Ground>,
    arguments: &Arguments,
    work: fn(&Ground, &T) -> Words,
) -> ToolWork<'static> {
    let (ground, input) = (Arc::clone(ground), input::<T>(arguments));
    Box::pin(blocking(move || input.and_then(|input| work(&ground, &input))))
}

async fn blocking(work: impl FnOnce() -> Words + Send + 'static) -> ToolOutput {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(words)) => ToolOutput::done(words),
        Ok(Err(words)) => ToolOutput::failed(words),
        Err(_) => {
            ToolOutput::failed("The tool broke down, which is a defect of Sabir and not of the call. Try another way.")
        }
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The start of a line that is too long, and how much is missing.
pub(crate) fn cut(line: &str, max_bytes: usize) -> String {
    let kept = line.get(..line.floor_char_boundary(max_bytes)).unwrap_or_default();
    match line.len() - kept.len() {
        0 => line.to_owned(),
        missing => format!("{kept}… [{missing} bytes of this line left out]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failed_output() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let output = runtime.block_on(blocking(|| panic!("on purpose")));
        assert!(output.failed);
        assert!(output.content.starts_with("The tool broke down"), "{}", output.content);
    }

    #[test]
    fn lines_are_cut_at_characters() {
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("aéx", 3), "aé… [1 bytes of this line left out]");
        assert_eq!(cut("aéx", 2), "a… [3 bytes of this line left out]");
    }
}
