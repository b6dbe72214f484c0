//! A built-in tool: typed arguments in, a typed result out.
//!
//! What a model reads of a tool is written once, at the type of its arguments: the doc comment of the type is the tool's
//! description, the doc comments of the fields describe the arguments, and the schema is made of the types.

use std::future::Future;
use std::sync::Arc;

use sabir_agent::{Arguments, Bound, Permit, Progress, Tool, ToolOutput, ToolWork};
use sabir_call::ToolSpec;
use sabir_policy::Access;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// One tool. A file each; [`crate::builtin`] lists them.
pub(crate) trait BuiltIn: Send + Sync + Sized + 'static {
    /// The arguments, with the words that a model reads. Has to deny unknown fields.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// What became of it. How it is told to the model stands with the type.
    type Output: Into<ToolOutput>;

    /// The name that a model writes.
    const NAME: &'static str;
    /// Its Markdown, which is its documentation and its test.
    const MANUAL: &'static str;
    /// Whether it only reads: such calls of one turn run at the same time.
    const READS_ONLY: bool;
    /// Whether it looks whether something has happened.
    const POLLS: bool = false;

    /// Arguments of a good call, shown to models. An object.
    fn example() -> Value;

    /// What a call would touch.
    fn access(&self, input: &Self::Input) -> Access;

    /// What a call depends on beside its arguments, as it is now.
    fn bound(&self, _: &Self::Input) -> Bound {
        Bound::default()
    }

    /// What a call would write, for the user who is asked about it; `None`: what the arguments say.
    fn preview(&self, _: &Self::Input) -> Option<String> {
        None
    }

    /// Does it. The error is what the model reads: what is wrong, and what to do next.
    fn run(
        self: Arc<Self>,
        permit: &Permit,
        input: Self::Input,
        progress: Progress<'_>,
    ) -> impl Future<Output = Result<Self::Output, String>> + Send;
}

/// A built-in tool as the agent runs it.
pub(crate) struct Built<T> {
    tool: Arc<T>,
    offered: bool,
}

impl<T: BuiltIn> Built<T> {
    pub(crate) fn arc(tool: T) -> Arc<dyn Tool> {
        Self::offered(tool, true)
    }

    /// A tool that models are shown, or not.
    pub(crate) fn offered(tool: T, offered: bool) -> Arc<dyn Tool> {
        Arc::new(Self { tool: Arc::new(tool), offered })
    }
}

impl<T: BuiltIn> Tool for Built<T> {
    fn spec(&self) -> ToolSpec {
        spec::<T>()
    }

    fn offered(&self) -> bool {
        self.offered
    }

    fn reads_only(&self) -> bool {
        T::READS_ONLY
    }

    fn polls(&self) -> bool {
        T::POLLS
    }

    fn access(&self, arguments: &Arguments) -> Access {
        match input::<T>(arguments) {
            Ok(input) => self.tool.access(&input),
            Err(reason) => Access::Invalid { reason },
        }
    }

    fn bound(&self, arguments: &Arguments) -> Bound {
        input::<T>(arguments).map_or_else(|_| Bound::default(), |input| self.tool.bound(&input))
    }

    fn preview(&self, arguments: &Arguments) -> Option<String> {
        self.tool.preview(&input::<T>(arguments).ok()?)
    }

    fn run<'a>(&'a self, permit: &'a Permit, arguments: &'a Arguments, progress: Progress<'a>) -> ToolWork<'a> {
        let input = input::<T>(arguments);
        Box::pin(async move {
            // Looked at once more: whoever stands around this tool may have taken a while.
            let broken = || permit.broken(&self.bound(arguments)).filter(|_| !permit.bound.is_empty());
            if let Some(words) = broken() {
                return ToolOutput::failed(words);
            }
            let ran = match input {
                Ok(input) => Arc::clone(&self.tool).run(permit, input, progress).await,
                Err(words) => Err(words),
            };
            ran.map_or_else(ToolOutput::failed, Into::into)
        })
    }
}

/// What a model reads of a tool.
pub(crate) fn spec<T: BuiltIn>() -> ToolSpec {
    let generator = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = generator.into_root_schema_for::<T::Input>().to_value();
    tidy(&mut schema);
    let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
    let description = description.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let example = if let Value::Object(example) = T::example() { example } else { Map::new() };
    ToolSpec { examples: vec![example], ..ToolSpec::new(T::NAME, description, schema) }
}

/// Typed arguments. The gates have checked them, so a failure here is one of the caller's.
fn input<T: BuiltIn>(arguments: &Arguments) -> Result<T::Input, String> {
    T::Input::deserialize(arguments).map_err(|error| format!("The arguments do not fit the tool: {error}."))
}

/// Takes out what is of no use to a model: titles, number formats, and `null` for what may be left out; lines of a doc comment
/// become one.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for key in ["$schema", "title", "format"] {
                // A property may have that name; its value is then a schema and no text.
                if fields.get(key).is_some_and(Value::is_string) {
                    fields.remove(key);
                }
            }
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            if fields.get("minimum").and_then(Value::as_f64) == Some(0.0) {
                fields.remove("minimum");
            }
            if let Some(Value::String(description)) = fields.get_mut("description") {
                let paragraphs = description.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
                *description = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Looks at
    /// things.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Input {
        /// Where to
        /// look.
        path: String,
        /// How often.
        #[schemars(range(min = 1))]
        times: Option<usize>,
        /// Whether deeply.
        #[serde(default)]
        deep: bool,
    }

    struct Look;

    impl BuiltIn for Look {
        type Input = Input;
        type Output = ToolOutput;
        const NAME: &'static str = "look";
        const MANUAL: &'static str = "# look\n";
        const READS_ONLY: bool = true;

        fn example() -> Value {
            json!({"path": "x"})
        }

        fn access(&self, _: &Input) -> Access {
            Access::Nothing
        }

        async fn run(self: Arc<Self>, _: &Permit, _: Input, _: Progress<'_>) -> Result<ToolOutput, String> {
            Ok(ToolOutput::done("seen"))
        }
    }

    #[test]
    fn the_types_are_the_words() {
        let spec = spec::<Look>();
        assert_eq!((spec.name.as_str(), spec.description.as_str()), ("look", "Looks at things."));
        assert_eq!(
            spec.parameters,
            json!({
                "type": "object",
                "properties": {
                    "path": {"description": "Where to look.", "type": "string"},
                    "times": {"description": "How often.", "type": "integer", "minimum": 1},
                    "deep": {"description": "Whether deeply.", "type": "boolean", "default": false},
                },
                "required": ["path"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn arguments_that_do_not_fit_are_told() {
        let tool = Built::arc(Look);
        let arguments = json!({"path": 1}).as_object().unwrap().clone();
        assert!(matches!(tool.access(&arguments), Access::Invalid { .. }));
    }
}
