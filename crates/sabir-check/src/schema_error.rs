//! Describes what is wrong with a value, in the same terms whoever judged it.

use std::ops::ControlFlow;

use serde_json::Value;

/// An error of a value by a schema.
///
/// It borrows everything and words itself only when asked, because most errors are counted or compared, and a value may be a whole file.
pub(crate) struct SchemaError<'e> {
    /// The place in the judged value, as a JSON pointer.
    pub(crate) pointer: &'e str,
    /// The value at that place.
    pub(crate) instance: &'e Value,
    /// The kind of error, with what the gates say in their own words.
    pub(crate) kind: SchemaErrorKind<'e>,
    /// Words the error, with the given text in place of the value.
    words: &'e dyn Fn(&str) -> String,
}

/// The kinds of errors that the gates word themselves.
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
        words: &'e dyn Fn(&str) -> String,
    ) -> Self {
        Self {
            pointer,
            instance,
            kind,
            words,
        }
    }

    /// Words the error with a text in place of the value.
    pub(crate) fn to_words(&self, placeholder: &str) -> String {
        (self.words)(placeholder)
    }
}
