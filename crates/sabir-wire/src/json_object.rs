//! Makes JSON objects of values that exist already.

use serde_json::Value;

/// Makes an object of these members, in their order.
///
/// The macro `json!` serializes each value once more, which copies a tool's schema key by key.
pub(crate) fn json_object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.into_iter().collect())
}
