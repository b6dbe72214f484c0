//! Reads members of JSON that a program sent, which may lack any of them.

use serde_json::Value;

/// Returns the value at a JSON pointer; null where there is none.
pub(crate) fn value_at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}
