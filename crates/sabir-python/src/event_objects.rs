//! Converts events and JSON values to Python objects.
//!
//! The keys of an event's dictionary are those of its JSON form, in the same order.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyNone, PyString};
use sabir_bindings::{Event, EventBatch};
use serde_json::Value;

/// Converts the events of a chunk to dictionaries.
pub(crate) fn events_to_list<'py>(
    py: Python<'py>,
    events: &EventBatch,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for event in events.iter() {
        list.append(event_to_dict(py, event)?)?;
    }
    Ok(list)
}

/// Converts an event to a dictionary.
fn event_to_dict<'py>(py: Python<'py>, event: Event<'_>) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let kind = intern!(py, "event");
    match event {
        Event::Text { text } => {
            dict.set_item(kind, intern!(py, "text"))?;
            dict.set_item(intern!(py, "text"), text)?;
        }
        Event::Thought { text } => {
            dict.set_item(kind, intern!(py, "thought"))?;
            dict.set_item(intern!(py, "text"), text)?;
        }
        Event::ArgDelta { index, text } => {
            dict.set_item(kind, intern!(py, "arg_delta"))?;
            dict.set_item(intern!(py, "index"), index)?;
            dict.set_item(intern!(py, "text"), text)?;
        }
        // All others are rare: once for a call or an argument.
        other => {
            let value = serde_json::to_value(other).map_err(unreadable)?;
            return value_to_object(py, &value);
        }
    }
    Ok(dict.into_any())
}

/// Converts a JSON text to an object.
pub(crate) fn json_to_object<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    // The text is ours and valid, but may be nested more deeply than the parser follows.
    let value: Value = serde_json::from_str(json).map_err(unreadable)?;
    value_to_object(py, &value)
}

fn unreadable(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("the result cannot be converted: {error}"))
}

/// Converts a JSON value to an object.
pub(crate) fn value_to_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => PyNone::get(py).to_owned().into_any(),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                number.into_pyobject(py)?.into_any()
            } else if let Some(number) = number.as_u64() {
                number.into_pyobject(py)?.into_any()
            } else {
                number.as_f64().into_pyobject(py)?.into_any()
            }
        }
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(value_to_object(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(members) => {
            let dict = PyDict::new(py);
            for (key, value) in members {
                dict.set_item(key, value_to_object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
