//! Defines tools as a model sees them: a name, a description, and a JSON Schema for the arguments.
//!
//! One definition serves the prompt, the native request, the parser (which tags exist) and the
//! checks (which values are valid).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compatibility::{ForeignMeaning, ForeignTool};
use crate::known_tool::KnownTool;

/// The largest number of parts of a schema that are searched for arguments. Real tools have a few; the limit
/// ends the walk of a schema that refers to itself.
const MAX_SCHEMA_PARTS: usize = 64;

/// The definition of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model writes; unique within a [`ToolSet`].
    pub name: String,
    /// The description for the model: the tool's effect and when to use it.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema (2020-12) of the arguments; an object schema.
    #[serde(default = "empty_schema")]
    pub parameters: Value,
    /// Worked examples of arguments; prompts and feedback show the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Map<String, Value>>,
}

/// One argument of a tool, with the part of its schema that prompts and parsers need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArgumentSpec<'a> {
    /// The argument's name.
    pub name: &'a str,
    /// True if the schema requires the argument.
    pub required: bool,
    /// The argument's own schema.
    pub schema: &'a Value,
}

/// The tools of one request. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct ToolSet {
    inner: Arc<ToolSetInner>,
    /// True if calls of other agents' tools are understood.
    knows_foreign: bool,
    /// The reader's view of the tools, which is the same for every text and costs as much as many
    /// texts.
    known: Arc<OnceLock<Arc<[KnownTool]>>>,
}

/// Iterates over tools of a [`ToolSet`] in their order.
#[derive(Debug, Clone)]
pub struct ToolSpecs<'a>(std::slice::Iter<'a, Arc<ToolSpec>>);

/// Shared by all clones of a set, so that a request, its reader and its checks hold one copy.
#[derive(Debug, Default)]
struct ToolSetInner {
    /// All tools; the first `offered` ones are shown to the model. Shared with the sets of other
    /// modes of a task, because copying all schemas for each would be a tenth of its start.
    specs: Vec<Arc<ToolSpec>>,
    offered: usize,
    by_name: HashMap<String, usize>,
}

/// An error in a list of tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The text is not a JSON array of tools.
    #[error("the tools are not a JSON array of {{name, description, parameters}}: {0}")]
    Json(#[from] serde_json::Error),
    /// Two tools share a name.
    #[error("the tool `{0}` is defined twice; names must be unique")]
    DuplicateName(String),
    /// A name is empty or holds white space or one of `<>"'`=`.
    #[error("`{0}` cannot be a tool's name: use letters, digits, `_`, `-`, `.`, `:` or `/`")]
    Name(String),
    /// The parameters are not an object schema.
    #[error("the parameters of `{0}` must be a JSON Schema object with `properties`")]
    Parameters(String),
}

impl ToolSpec {
    /// Creates a tool without examples.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            examples: Vec::new(),
        }
    }

    /// Returns the declared arguments, in the schema's order.
    pub fn declared_arguments(&self) -> impl Iterator<Item = ArgumentSpec<'_>> {
        let required = self.parameters.get("required").and_then(Value::as_array);
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flatten()
            .map(move |(name, schema)| ArgumentSpec {
                name,
                required: required.is_some_and(|list| list.iter().any(|item| item == name)),
                schema,
            })
    }

    /// Returns the names of the arguments that only another part of the schema declares: the target of a
    /// local `$ref`, or a branch of `allOf`, `anyOf` or `oneOf`.
    pub(crate) fn branch_argument_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut parts = vec![&self.parameters];
        let mut next = 0;
        while let Some(&part) = parts.get(next) {
            // The first part is the schema itself.
            let properties = part.get("properties").filter(|_| next > 0);
            let properties = properties.and_then(Value::as_object).into_iter().flatten();
            names.extend(properties.map(|(name, _)| name.as_str()));
            parts.extend(resolve_reference(&self.parameters, part));
            let branches = ["allOf", "anyOf", "oneOf"].into_iter();
            let branches = branches.filter_map(|key| part.get(key).and_then(Value::as_array));
            parts.extend(branches.flatten());
            // Ends the walk of a schema that refers to itself.
            parts.truncate(MAX_SCHEMA_PARTS);
            next += 1;
        }
        names
    }

    /// Returns the declared argument with that name.
    pub fn find_argument(&self, name: &str) -> Option<ArgumentSpec<'_>> {
        self.declared_arguments()
            .find(|argument| argument.name == name)
    }

    /// Checks the rules without which no dialect could express the tool.
    fn validate(&self) -> Result<(), ToolError> {
        // Names become tags in some dialects, so markup characters and white space are excluded. A
        // slash is usual in the names of MCP tools; dialects that cannot write it read no call of
        // the tool.
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
        if self.name.is_empty() || !self.name.chars().all(allowed) {
            return Err(ToolError::Name(self.name.clone()));
        }
        let object = self
            .parameters
            .as_object()
            .ok_or_else(|| ToolError::Parameters(self.name.clone()))?;
        if object
            .get("properties")
            .is_some_and(|properties| !properties.is_object())
        {
            return Err(ToolError::Parameters(self.name.clone()));
        }
        Ok(())
    }
}

impl ArgumentSpec<'_> {
    /// Returns the type names that the schema allows at the top level (`string`, `integer`, …),
    /// sorted; empty if the schema does not say.
    ///
    /// Considers `type` (one name or a list), `enum`, `const`, and one level of `anyOf` and
    /// `oneOf`.
    pub fn type_names(&self) -> Vec<&str> {
        fn collect_types<'v>(schema: &'v Value, into: &mut Vec<&'v str>, depth: u8) {
            match schema.get("type") {
                Some(Value::String(name)) => into.push(name),
                Some(Value::Array(names)) => into.extend(names.iter().filter_map(Value::as_str)),
                _ => {}
            }
            // A schema without `type` often implies it by listing values.
            let listed = schema
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .chain(schema.get("const"));
            into.extend(listed.map(|value| -> &'v str { json_type_name(value) }));
            for key in ["anyOf", "oneOf"] {
                for branch in schema
                    .get(key)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    // One level covers the usual schemas for optional values, and bounds the work.
                    if depth > 0 {
                        collect_types(branch, into, depth - 1);
                    }
                }
            }
        }
        let mut types = Vec::new();
        collect_types(self.schema, &mut types, 1);
        types.sort_unstable();
        types.dedup();
        types
    }

    /// Returns the argument's own description, or an empty text.
    pub fn description(&self) -> &str {
        self.schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

impl ToolSet {
    /// Returns true if both are clones of one set.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) && self.knows_foreign == other.knows_foreign
    }

    /// Creates a set of tools, which must have distinct, valid names.
    ///
    /// # Errors
    /// Returns the [`ToolError`] of the first tool that breaks a rule.
    pub fn new(specs: Vec<ToolSpec>) -> Result<Self, ToolError> {
        Self::with_unoffered(specs, Vec::new())
    }

    /// Creates a set with further tools that are not shown to the model. A call of one is still
    /// understood, because models also call the tools that they were trained on.
    ///
    /// # Errors
    /// As [`ToolSet::new`], for both lists together.
    pub fn with_unoffered<S: Into<Arc<ToolSpec>>>(
        specs: Vec<S>,
        unoffered: Vec<S>,
    ) -> Result<Self, ToolError> {
        let offered = specs.len();
        // Offered tools come first, so one number separates the two kinds.
        let specs: Vec<Arc<ToolSpec>> = specs.into_iter().chain(unoffered).map(S::into).collect();
        let mut by_name = HashMap::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            spec.validate()?;
            if by_name.insert(spec.name.clone(), index).is_some() {
                return Err(ToolError::DuplicateName(spec.name.clone()));
            }
        }
        Ok(Self {
            inner: Arc::new(ToolSetInner {
                specs,
                offered,
                by_name,
            }),
            knows_foreign: false,
            known: Arc::default(),
        })
    }

    /// Makes the set understand calls of other agents' tools that mean one of these tools; see
    /// [`crate::compatibility`].
    #[must_use]
    pub fn with_foreign_tools(mut self) -> Self {
        self.knows_foreign = true;
        self.known = Arc::default();
        self
    }

    /// Returns true if calls of other agents' tools are understood.
    pub fn knows_foreign_tools(&self) -> bool {
        self.knows_foreign
    }

    /// Returns the row for another agent's tool, or for further arguments of a declared one. `None`
    /// if it means no tool of this set.
    pub fn foreign_tool(&self, name: &str) -> Option<&'static ForeignTool> {
        ForeignTool::find(name).filter(|row| self.means_tool(row))
    }

    /// Returns true if the row means a tool of this set, or one that is refused with a hint.
    pub(crate) fn means_tool(&self, row: &ForeignTool) -> bool {
        let means = || {
            let targets = row.targets();
            let is_refused = matches!(row.meaning, ForeignMeaning::ToolIfOffered { .. });
            is_refused
                || targets.is_empty()
                || targets.iter().any(|target| self.get(target).is_some())
        };
        self.knows_foreign && !self.is_empty() && means()
    }

    /// Returns the reader's view of the tools.
    pub(crate) fn known_tools(&self) -> Arc<[KnownTool]> {
        let known = || KnownTool::collect_tools(self).into();
        Arc::clone(self.known.get_or_init(known))
    }

    /// Parses a JSON array of `{name, description, parameters}`.
    ///
    /// # Errors
    /// Returns [`ToolError::Json`] with line and column, or an error of [`ToolSet::new`].
    pub fn from_json(text: &str) -> Result<Self, ToolError> {
        Self::new(serde_json::from_str(text)?)
    }

    /// Returns the tool with that exact name, offered or not.
    pub fn get(&self, name: &str) -> Option<&ToolSpec> {
        self.get_shared(name).map(Arc::as_ref)
    }

    /// Returns the tool with that exact name, offered or not, as another set can share it.
    pub fn get_shared(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.inner
            .by_name
            .get(name)
            .and_then(|index| self.inner.specs.get(*index))
    }

    /// Returns the offered tools, in the given order.
    pub fn iter(&self) -> ToolSpecs<'_> {
        let offered = self.inner.specs.get(..self.inner.offered);
        ToolSpecs(offered.unwrap_or_default().iter())
    }

    /// Returns all tools that are understood; the offered ones come first.
    pub fn all_tools(&self) -> ToolSpecs<'_> {
        ToolSpecs(self.inner.specs.iter())
    }

    /// Returns true if a tool with that exact name is offered.
    pub fn is_tool_offered(&self, name: &str) -> bool {
        self.inner
            .by_name
            .get(name)
            .is_some_and(|index| *index < self.inner.offered)
    }

    /// Returns true if no tool is declared; then no text is a call.
    pub fn is_empty(&self) -> bool {
        self.inner.specs.is_empty()
    }

    /// Returns the offered name most similar to `name`, if one is similar enough; see
    /// [`nearest_candidate`].
    pub fn nearest_name(&self, name: &str) -> Option<&str> {
        nearest_candidate(name, self.iter().map(|spec| spec.name.as_str()))
    }
}

impl<'a> IntoIterator for &'a ToolSet {
    type Item = &'a ToolSpec;
    type IntoIter = ToolSpecs<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> Iterator for ToolSpecs<'a> {
    type Item = &'a ToolSpec;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(Arc::as_ref)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for ToolSpecs<'_> {}

impl DoubleEndedIterator for ToolSpecs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(Arc::as_ref)
    }
}

/// Returns the candidate most similar to `name`, the first of equals: Jaro-Winkler similarity of
/// the lower-cased names, at least 0.8.
pub fn nearest_candidate<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut best: Option<(&str, f64)> = None;
    for candidate in candidates {
        let score = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
        // Below 0.8 the names differ too much for a useful hint.
        // Strictly greater: the first of equals stays, so hints are the same on every run.
        if score >= 0.8 && best.is_none_or(|(_, known)| score > known) {
            best = Some((candidate, score));
        }
    }
    best.map(|(candidate, _)| candidate)
}

/// Returns the target of a schema's local `$ref` in the document `root`: `#` alone is the root, `#/…` a
/// JSON pointer in which `%20` and the like are decoded, since it is part of an address. An anchor or
/// another document has no target here.
pub fn resolve_reference<'v>(root: &'v Value, schema: &Value) -> Option<&'v Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    if !pointer.contains('%') {
        return root.pointer(pointer);
    }
    let mut decoded = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let [first, behind @ ..] = rest {
        let escaped = match behind {
            [high, low, ..] if *first == b'%' => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let code = digit(high).zip(digit(low));
                code.and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
            }
            _ => None,
        };
        decoded.push(escaped.unwrap_or(*first));
        rest = match escaped {
            Some(_) => behind.get(2..).unwrap_or_default(),
            None => behind,
        };
    }
    root.pointer(std::str::from_utf8(&decoded).ok()?)
}

/// Returns the JSON Schema name of a value's type.
pub fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        // JSON Schema calls only whole numbers `integer`, and serde_json keeps `1.0` as a float.
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The parameters of a tool that declares none: an object without properties.
fn empty_schema() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}
