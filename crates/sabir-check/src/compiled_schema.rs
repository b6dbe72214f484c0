//! Validates values against a tool's JSON Schema: plain schemas directly, others with a validator that is compiled at its first use.
//!
//! The validator is a large part of a small program, and few tools need it. The feature `validator` includes it. A program without it must
//! call [`can_validate`] and refuse the schemas that it cannot use: calls of such a tool are not validated, and a warning says so.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "validator")]
use jsonschema::error::{TypeKind, ValidationErrorKind};
#[cfg(feature = "validator")]
use jsonschema::{Draft, Validator};
use serde_json::Value;

use crate::plain_schema;
use crate::schema_error::ErrorSink;
#[cfg(feature = "validator")]
use crate::schema_error::{SchemaError, SchemaErrorKind};

/// Returns true if this build can validate values against a schema, or report that the schema is invalid.
pub fn can_validate(schema: &Value) -> bool {
    cfg!(feature = "validator") || plain_schema::is_plain(schema)
}

/// A tool's schema, whose validator is compiled at its first use.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    schema: Value,
    is_plain: bool,
    validator: OnceLock<Result<Validator, InvalidSchema>>,
    is_reported: AtomicBool,
}

/// The reason why a schema is invalid, without values from the schema.
/// Values are masked, since a schema comes from a server and its text would end up in feedback.
#[derive(Debug)]
struct InvalidSchema(String);

/// Stands for the validator in a build without it; it has no values.
#[cfg(not(feature = "validator"))]
#[derive(Debug)]
enum Validator {}

impl CompiledSchema {
    pub(crate) fn new(schema: &Value) -> Self {
        Self {
            schema: schema.clone(),
            is_plain: plain_schema::is_plain(schema),
            validator: OnceLock::new(),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Compiles the schema at the first call.
    fn compile(&self) -> Result<&Validator, &InvalidSchema> {
        self.validator
            .get_or_init(|| build_validator(&self.schema))
            .as_ref()
    }

    /// Returns true if the schema itself is valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.is_plain || self.compile().is_ok()
    }

    /// Returns true if a value is valid. An invalid schema accepts nothing.
    pub(crate) fn accepts(&self, value: &Value) -> bool {
        let mut is_right = self.is_valid();
        self.find_errors(value, &mut |_| {
            is_right = false;
            ControlFlow::Break(())
        });
        is_right
    }

    /// Passes the errors of a value to the sink until the sink stops the search; none if the schema is invalid.
    pub(crate) fn find_errors(&self, value: &Value, sink: &mut ErrorSink<'_>) {
        if self.is_plain {
            plain_schema::find_errors(&self.schema, value, sink);
        } else if let Ok(validator) = self.compile() {
            find_errors(validator, value, sink);
        }
    }

    /// Returns the error in the schema on the first call, and `None` afterwards, so that it is reported once.
    pub(crate) fn take_error(&self) -> Option<&str> {
        if self.is_plain {
            return None;
        }
        let InvalidSchema(complaint) = self.compile().err()?;
        // Relaxed is enough: the flag guards no other memory, and only one caller sees `false`.
        (!self.is_reported.swap(true, Ordering::Relaxed)).then_some(complaint)
    }
}

/// Compiles a schema. Nothing is ever fetched: a reference to another document makes the schema invalid.
/// An MCP server could otherwise make Sabir request any address by declaring a tool.
#[cfg(feature = "validator")]
fn build_validator(schema: &Value) -> Result<Validator, InvalidSchema> {
    let options = jsonschema::options().offline();
    let options = if means_the_same_in_draft_7(schema) {
        // The schema of schemas is compiled for the first validator. That of draft 7 takes
        // a tenth of the time.
        options
            .with_draft(Draft::Draft7)
            .should_validate_formats(false)
    } else {
        options
    };
    let validator = options.build(schema);
    validator.map_err(|error| InvalidSchema(error.masked().to_string()))
}

#[cfg(not(feature = "validator"))]
fn build_validator(_: &Value) -> Result<Validator, InvalidSchema> {
    let message = "this build validates only against schemas of the common keywords";
    Err(InvalidSchema(message.to_owned()))
}

/// Passes the errors that a validator finds to the sink.
#[cfg(feature = "validator")]
pub(crate) fn find_errors(validator: &Validator, value: &Value, sink: &mut ErrorSink<'_>) {
    for error in validator.iter_errors(value) {
        let kind = match error.kind() {
            ValidationErrorKind::Type { kind } => SchemaErrorKind::Type(match kind {
                TypeKind::Single(one) => vec![one.as_str()],
                TypeKind::Multiple(set) => set.iter().map(|one| one.as_str()).collect(),
            }),
            ValidationErrorKind::Enum { options } => SchemaErrorKind::Enum(options),
            ValidationErrorKind::Required { property } => {
                SchemaErrorKind::Required(property.as_str().unwrap_or_default())
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                SchemaErrorKind::AdditionalProperties(unexpected)
            }
            _ => SchemaErrorKind::Other,
        };
        let words = |placeholder: &str| error.masked_with(placeholder).to_string();
        let pointer = error.instance_path().as_str();
        let found = SchemaError::new(pointer, error.instance(), kind, &words);
        if sink(&found).is_break() {
            return;
        }
    }
}

#[cfg(not(feature = "validator"))]
fn find_errors(validator: &Validator, _: &Value, _: &mut ErrorSink<'_>) {
    match *validator {}
}

/// Returns true if a schema has only keywords that draft 7 understands as the newest draft does, as long as no formats are
/// validated. The schemas of most tools do.
#[cfg(feature = "validator")]
fn means_the_same_in_draft_7(schema: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return schema.is_boolean();
    };
    keywords
        .iter()
        .all(|(keyword, value)| match keyword.as_str() {
            "type" | "required" | "enum" | "const" | "title" | "description" | "default"
            | "examples" | "format" | "pattern" | "minimum" | "maximum" | "exclusiveMinimum"
            | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength" | "minItems"
            | "maxItems" | "uniqueItems" | "minProperties" | "maxProperties" | "readOnly"
            | "writeOnly" => true,
            // An array of schemas means something else.
            "items" | "additionalProperties" | "not" => means_the_same_in_draft_7(value),
            "properties" => value
                .as_object()
                .is_some_and(|all| all.values().all(means_the_same_in_draft_7)),
            "allOf" | "anyOf" | "oneOf" => value
                .as_array()
                .is_some_and(|all| all.iter().all(means_the_same_in_draft_7)),
            _ => false,
        })
}

#[cfg(all(test, feature = "validator"))]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::CompiledSchema;

    #[test]
    fn an_invalid_schema_complains_once() {
        let compiled = CompiledSchema::new(&json!({"type": "strin"}));
        assert!(!compiled.is_valid());
        assert!(compiled.take_error().is_some());
        assert!(compiled.take_error().is_none());
        assert!(!CompiledSchema::new(&json!({"$ref": "https://example.com/s.json"})).is_valid());
        assert!(
            CompiledSchema::new(&json!({"type": "string"}))
                .take_error()
                .is_none()
        );
    }

    /// Generates pieces of schemas, right and wrong ones.
    fn schemas() -> impl Strategy<Value = Value> {
        let words = prop_oneof![
            Just(json!("string")),
            Just(json!("integer")),
            Just(json!(["object", "null"])),
            Just(json!(3)),
            Just(json!(-1)),
            Just(json!(1.5)),
            Just(json!(true)),
            Just(json!(["a", "a"])),
            Just(json!([])),
            Just(json!({})),
            Just(json!("a+[")),
        ];
        let keywords = prop::sample::select(vec![
            "type",
            "required",
            "enum",
            "const",
            "title",
            "default",
            "format",
            "pattern",
            "minimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "items",
            "additionalProperties",
            "not",
            "anyOf",
            "$ref",
            "$defs",
            "if",
            "contains",
        ]);
        words.prop_recursive(4, 24, 4, move |inner| {
            let inner = inner.boxed();
            prop_oneof![
                prop::collection::btree_map(keywords.clone(), inner.clone(), 0..4)
                    .prop_map(|map| json!(map)),
                prop::collection::btree_map("[ab]", inner.clone(), 0..3)
                    .prop_map(|map| json!({"type": "object", "properties": map})),
                prop::collection::vec(inner, 1..3).prop_map(|all| json!({"anyOf": all})),
            ]
        })
    }

    proptest! {
        /// Draft 7 is only chosen for speed: schemas are as valid, and values too.
        #[test]
        fn no_draft_changes_a_verdict(
            schema in schemas(),
            values in prop::collection::vec(schemas(), 1..6),
        ) {
            let newest = jsonschema::options().offline().build(&schema);
            let ours = CompiledSchema::new(&schema);
            prop_assert_eq!(newest.is_ok(), ours.is_valid(), "{}", schema);
            if let Ok(newest) = newest {
                for value in values {
                    prop_assert_eq!(newest.is_valid(&value), ours.accepts(&value), "{} {}", schema, value);
                }
            }
        }
    }
}
