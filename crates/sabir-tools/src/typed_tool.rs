//! Adapts built-in tools, which have typed arguments and results, to the agent's [`Tool`].
//!
//! The text that a model reads about a tool is written once, at the type of its arguments: the doc
//! comment of the type is the tool's description, the doc comments of the fields describe the
//! arguments, and the schema is derived from the types. Such doc comments are therefore part of
//! every request; `SABIR_BLESS=1 cargo test -p sabir --test it tools` updates the specs that hold
//! them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use sabir_agent::{
    CallArguments, CallFailure, CallPermit, InvalidCall, Preconditions, PreparedCall, ProgressSink,
    RefreshFuture, Tool, ToolFuture, ToolOutput,
};
use sabir_call::ToolSpec;
use sabir_policy::{Access, ToolGroup};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A built-in tool. Each has its own file; [`crate::builtin_tools`] lists them.
pub(crate) trait TypedTool: Send + Sync + Sized + 'static {
    /// The arguments, with the descriptions that a model reads. Must deny unknown fields.
    type Arguments: DeserializeOwned + JsonSchema;
    /// A prepared call: the arguments and everything derived from them, such as the files that
    /// paths lead to. Nothing about a call is kept elsewhere.
    type Call: Send + Sync + 'static;
    /// The result. Its conversion writes the text that the model reads.
    type Output: Into<ToolOutput>;
    /// The failure. Its `Display` text is what the model reads: the problem, and what to do next.
    type Error: fmt::Display;

    /// The name that a model writes.
    const NAME: &'static str;
    /// The manual in Markdown, which is documentation and test.
    const MANUAL: &'static str;
    /// The group by which modes offer or withhold the tool.
    const GROUP: ToolGroup;
    /// True if the tool only reads. Such calls of one turn run concurrently.
    const READS_ONLY: bool;
    /// True if the tool polls, so that repeating the same call is not a sign of a loop.
    const POLLS: bool = false;

    /// Returns arguments of a good call, which models are shown: a JSON object.
    fn example_arguments() -> Value;

    /// Prepares a call. May read the file system, must not change it.
    fn prepare_call(&self, arguments: Self::Arguments) -> Self::Call;

    /// Notes the arguments whose values were written on lines of their own, as
    /// [`PreparedCall::note_values_on_own_lines`] does.
    fn note_values_on_own_lines(_: &mut Self::Call, _names: &[String]) {}

    /// Returns the work of [`PreparedCall::refresh`].
    fn refresh_call(&self, _: &Self::Call) -> Option<RefreshFuture> {
        None
    }

    /// Returns the access that a call needs.
    fn call_access(&self, call: &Self::Call) -> Access;

    /// Returns the present state of a call's preconditions.
    fn call_preconditions(&self, _: &Self::Call) -> Preconditions {
        Preconditions::default()
    }

    /// Returns a preview of the call's changes, for the user who is asked about it. `None` shows
    /// the arguments instead.
    fn preview_call(&self, _: &Self::Call) -> Option<String> {
        None
    }

    /// Tries a call without changing anything.
    ///
    /// # Errors
    /// When the run would fail for the same reason.
    fn dry_run(&self, _: &Self::Call) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Runs a call.
    ///
    /// # Errors
    /// When the work was not done.
    fn run_call(
        self: Arc<Self>,
        permit: &CallPermit,
        call: Self::Call,
        progress: ProgressSink<'_>,
    ) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;
}

/// A built-in tool in the form that the agent runs.
pub(crate) struct TypedToolAdapter<T> {
    tool: Arc<T>,
    is_offered: bool,
}

impl<T: TypedTool> TypedToolAdapter<T> {
    /// Adapts a tool that models are shown.
    pub(crate) fn adapt_tool(tool: T) -> Arc<dyn Tool> {
        Self::adapt_offered(tool, true)
    }

    /// Adapts a tool that models are shown only if `is_offered`. Its calls run in any case.
    pub(crate) fn adapt_offered(tool: T, is_offered: bool) -> Arc<dyn Tool> {
        Arc::new(Self {
            tool: Arc::new(tool),
            is_offered,
        })
    }
}

impl<T: TypedTool> Tool for TypedToolAdapter<T> {
    fn spec(&self) -> ToolSpec {
        typed_spec::<T>()
    }

    fn is_offered(&self) -> bool {
        self.is_offered
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
        match T::Arguments::deserialize(arguments) {
            Ok(arguments) => Box::new(TypedCall {
                call: self.tool.prepare_call(arguments),
                tool: Arc::clone(&self.tool),
            }),
            // The checks have validated the arguments, so this happens only if a caller bypassed
            // them.
            Err(error) => {
                InvalidCall::boxed(format!("The arguments do not fit the tool: {error}."))
            }
        }
    }
}

/// A prepared call together with its tool.
struct TypedCall<T: TypedTool> {
    tool: Arc<T>,
    call: T::Call,
}

impl<T: TypedTool> PreparedCall for TypedCall<T> {
    fn note_values_on_own_lines(&mut self, names: &[String]) {
        T::note_values_on_own_lines(&mut self.call, names);
    }

    fn refresh(&self) -> Option<RefreshFuture> {
        self.tool.refresh_call(&self.call)
    }

    fn access(&self) -> Access {
        self.tool.call_access(&self.call)
    }

    fn preconditions(&self) -> Preconditions {
        self.tool.call_preconditions(&self.call)
    }

    fn preview(&self) -> Option<String> {
        self.tool.preview_call(&self.call)
    }

    fn dry_run(&self) -> Result<(), CallFailure> {
        let tried = self.tool.dry_run(&self.call);
        tried.map_err(|error| CallFailure(error.to_string()))
    }

    fn run<'a>(
        self: Box<Self>,
        permit: &'a CallPermit,
        progress: ProgressSink<'a>,
    ) -> ToolFuture<'a> {
        let Self { tool, call } = *self;
        Box::pin(async move {
            tool.run_call(permit, call, progress)
                .await
                .map_or_else(|error| ToolOutput::failed(error.to_string()), Into::into)
        })
    }
}

/// Derives the description and schema of a tool, as a model receives them.
pub(crate) fn typed_spec<T: TypedTool>() -> ToolSpec {
    let generator = SchemaSettings::draft2020_12()
        // Models follow `$ref` badly, and some providers refuse it.
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T::Arguments>().to_value();
    clean_schema(&mut schema);
    let description = schema
        .as_object_mut()
        .and_then(|schema| schema.remove("description"));
    let description = description
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let example = if let Value::Object(example) = T::example_arguments() {
        example
    } else {
        Map::new()
    };
    ToolSpec {
        examples: vec![example],
        ..ToolSpec::new(T::NAME, description, schema)
    }
}

/// Removes the parts of a schema that a model does not need: titles, number formats, and `null` for
/// arguments that may be left out. Joins the lines of each paragraph of a doc comment.
fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for key in ["$schema", "title", "format"] {
                // A property may have that name; its value is then a schema and no text.
                if fields.get(key).is_some_and(Value::is_string) {
                    fields.remove(key);
                }
            }
            // `#[serde(default)]` on an `Option` says no more than that the argument is optional.
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            // An unsigned number says this by its type already.
            if fields.get("minimum").and_then(Value::as_f64) == Some(0.0) {
                fields.remove("minimum");
            }
            // Lines are broken for the source; a model pays for each line end.
            if let Some(Value::String(description)) = fields.get_mut("description") {
                let paragraphs = description
                    .split("\n\n")
                    .map(|paragraph| paragraph.replace('\n', " "));
                *description = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            // An `Option` has the types `[T, null]`, and models would send `null` for it.
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
    struct LookArguments {
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

    struct LookTool;

    impl TypedTool for LookTool {
        type Arguments = LookArguments;
        type Call = LookArguments;
        type Output = ToolOutput;
        type Error = std::convert::Infallible;
        const NAME: &'static str = "look";
        const MANUAL: &'static str = "# look\n";
        const GROUP: ToolGroup = ToolGroup::Read;
        const READS_ONLY: bool = true;

        fn example_arguments() -> Value {
            json!({"path": "x"})
        }

        fn prepare_call(&self, arguments: LookArguments) -> LookArguments {
            arguments
        }

        fn call_access(&self, _: &LookArguments) -> Access {
            Access::Nothing
        }

        async fn run_call(
            self: Arc<Self>,
            _: &CallPermit,
            _: LookArguments,
            _: ProgressSink<'_>,
        ) -> Result<ToolOutput, Self::Error> {
            Ok(ToolOutput::done("seen"))
        }
    }

    #[test]
    fn types_make_the_spec() {
        let spec = typed_spec::<LookTool>();
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
    fn arguments_that_do_not_fit_are_invalid() {
        let tool = TypedToolAdapter::adapt_tool(LookTool);
        let arguments = json!({"path": 1}).as_object().unwrap().clone();
        assert!(matches!(
            tool.prepare(&arguments).access(),
            Access::Invalid { .. }
        ));
    }
}
