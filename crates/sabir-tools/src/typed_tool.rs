//! A built-in tool: typed arguments in, a typed result out.
//!
//! What a model reads of a tool is written once, at the type of its arguments: the doc comment of the type is the tool's
//! description, the doc comments of the fields describe the arguments, and the schema is made of the types.

use std::future::Future;
use std::sync::Arc;

use sabir_agent::{
    CallArguments, CallPermit, InvalidCall, Preconditions, PreparedCall, ProgressSink, Tool,
    ToolOutput, ToolWork,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// One tool. A file each; [`crate::builtin_tools`] lists them.
pub(crate) trait TypedTool: Send + Sync + Sized + 'static {
    /// The arguments, with the words that a model reads. Has to deny unknown fields.
    type Input: DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// What became of it. How it is told to the model stands with the type.
    type Output: Into<ToolOutput>;

    /// The name that a model writes.
    const NAME: &'static str;
    /// Its Markdown, which is its documentation and its test.
    const MANUAL: &'static str;
    /// The group by which modes offer or withhold the tool.
    const GROUP: ToolGroup;
    /// Whether it only reads: such calls of one turn run at the same time.
    const READS_ONLY: bool;
    /// Whether it looks whether something has happened.
    const POLLS: bool = false;

    /// Arguments of a good call, shown to models. An object.
    fn example() -> Value;

    /// What a call would touch.
    fn access(&self, input: &Self::Input) -> Access;

    /// What a call depends on beside its arguments, as it is now.
    fn preconditions(&self, _: &Self::Input) -> Preconditions {
        Preconditions::default()
    }

    /// What a call would write, for the user who is asked about it; `None`: what the arguments say.
    fn preview(&self, _: &Self::Input) -> Option<String> {
        None
    }

    /// Does it. The error is what the model reads: what is wrong, and what to do next.
    fn run(
        self: Arc<Self>,
        permit: &CallPermit,
        input: Self::Input,
        progress: ProgressSink<'_>,
    ) -> impl Future<Output = Result<Self::Output, String>> + Send;
}

/// A built-in tool as the agent runs it.
pub(crate) struct TypedToolAdapter<T> {
    tool: Arc<T>,
    offered: bool,
}

impl<T: TypedTool> TypedToolAdapter<T> {
    pub(crate) fn into_tool(tool: T) -> Arc<dyn Tool> {
        Self::with_offered(tool, true)
    }

    /// A tool that models are shown, or not.
    pub(crate) fn with_offered(tool: T, offered: bool) -> Arc<dyn Tool> {
        Arc::new(Self {
            tool: Arc::new(tool),
            offered,
        })
    }
}

impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> ToolSpec {
        typed_spec::<T>()
    }

    fn is_offered(&self) -> bool {
        self.offered
    }

    fn group(&self) -> Option<ToolGroup> {
        Some(T::GROUP)
    }

    fn is_read_only(&self) -> bool {
        T::READS_ONLY
    }

    fn is_polling(&self) -> bool {
        T::POLLS
    }

    fn prepare(&self, arguments: &CallArguments) -> Box<dyn PreparedCall> {
        match T::Input::deserialize(arguments) {
            Ok(input) => Box::new(TypedCall {
                tool: Arc::clone(&self.tool),
                input,
            }),
            // The gates have checked the arguments, so this is a mistake of the caller's.
            Err(error) => {
                InvalidCall::boxed(format!("The arguments do not fit the tool: {error}."))
            }
        }
    }
}

/// A call of a built-in tool with its arguments.
struct TypedCall<T: TypedTool> {
    tool: Arc<T>,
    input: T::Input,
}

impl<T: TypedTool> PreparedCall for TypedCall<T> {
    fn access(&self) -> Access {
        self.tool.access(&self.input)
    }

    fn preconditions(&self) -> Preconditions {
        self.tool.preconditions(&self.input)
    }

    fn preview(&self) -> Option<String> {
        self.tool.preview(&self.input)
    }

    fn run<'a>(
        self: Box<Self>,
        permit: &'a CallPermit,
        progress: ProgressSink<'a>,
    ) -> ToolWork<'a> {
        let Self { tool, input } = *self;
        Box::pin(async move {
            tool.run(permit, input, progress)
                .await
                .map_or_else(ToolOutput::failed, Into::into)
        })
    }
}

/// What a model reads of a tool.
pub(crate) fn typed_spec<T: TypedTool>() -> ToolSpec {
    let generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T::Input>().to_value();
    clean_schema(&mut schema);
    let description = schema
        .as_object_mut()
        .and_then(|schema| schema.remove("description"));
    let description = description
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let example = if let Value::Object(example) = T::example() {
        example
    } else {
        Map::new()
    };
    ToolSpec {
        examples: vec![example],
        ..ToolSpec::new(T::NAME, description, schema)
    }
}

/// Takes out what is of no use to a model: titles, number formats, and `null` for what may be left out; lines of a doc comment
/// become one.
fn clean_schema(schema: &mut Value) {
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
                let paragraphs = description
                    .split("\n\n")
                    .map(|paragraph| paragraph.replace('\n', " "));
                *description = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            fields.values_mut().for_each(clean_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(clean_schema),
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

    impl TypedTool for Look {
        type Input = Input;
        type Output = ToolOutput;
        const NAME: &'static str = "look";
        const MANUAL: &'static str = "# look\n";
        const GROUP: ToolGroup = ToolGroup::Read;
        const READS_ONLY: bool = true;

        fn example() -> Value {
            json!({"path": "x"})
        }

        fn access(&self, _: &Input) -> Access {
            Access::Nothing
        }

        async fn run(
            self: Arc<Self>,
            _: &CallPermit,
            _: Input,
            _: ProgressSink<'_>,
        ) -> Result<ToolOutput, String> {
            Ok(ToolOutput::done("seen"))
        }
    }

    #[test]
    fn the_types_are_the_words() {
        let spec = typed_spec::<Look>();
        assert_eq!(
            (spec.name.as_str(), spec.description.as_str()),
            ("look", "Looks at things.")
        );
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
        let tool = TypedToolAdapter::into_tool(Look);
        let arguments = json!({"path": 1}).as_object().unwrap().clone();
        assert!(matches!(
            tool.prepare(&arguments).access(),
            Access::Invalid { .. }
        ));
    }
}
