//! Defines the errors of validation against a schema, for plain schemas and for the compiled validator.

use std::ops::ControlFlow;

use serde_json::Value;

/// An error of a value that does not match its schema.
///
/// It borrows its data and builds the message only on request: most errors are only counted or compared, and a value may be a whole file.
pub(crate) struct SchemaError<'e> {
    /// The location in the validated value, as a JSON pointer.
    pub(crate) pointer: &'e str,
    /// The value at that place.
    pub(crate) instance: &'e Value,
    /// The kind of error, with the details that the messages of the checks need.
    pub(crate) kind: SchemaErrorKind<'e>,
    /// Builds the message, with the given text in place of the value.
    build_message: &'e dyn Fn(&str) -> String,
}

/// The kinds of errors, of which the checks have messages of their own for all but the last.
pub(crate) enum SchemaErrorKind<'e> {
    /// The value has none of these types.
    Type(Vec<&'static str>),
    /// The value is not in this list.
    Enum(&'e Value),
    /// The object lacks this property.
    Required(&'e str),
    /// The object has these properties, which are not allowed.
    AdditionalProperties(&'e [String]),
    /// Anything else.
    Other,
}

/// Receives errors, and may stop the search for more.
pub(crate) type ErrorSink<'s> = dyn FnMut(&SchemaError<'_>) -> ControlFlow<()> + 's;

impl<'e> SchemaError<'e> {
    pub(crate) fn new(
        pointer: &'e str,
        instance: &'e Value,
        kind: SchemaErrorKind<'e>,
        build_message: &'e dyn Fn(&str) -> String,
    ) -> Self {
        Self {
            pointer,
            instance,
            kind,
            build_message,
        }
    }

    /// Returns the message with a text in place of the value.
    pub(crate) fn to_message(&self, placeholder: &str) -> String {
        (self.build_message)(placeholder)
    }
}
