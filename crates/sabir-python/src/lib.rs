//! The native module of the Python package `sabir`: a thin layer over `sabir-bindings`.
//!
//! Events become dictionaries directly, because they are the hot path; reports go through JSON. A
//! long chunk is read without the interpreter's lock; for a short one, releasing the lock would
//! cost more than reading it.

mod event_objects;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyDict, PyList, PyString};
use sabir_bindings::{BindingError, OpenAiDeltas, ReaderOptions, StreamReader};
use serde_json::Value;

use event_objects::{events_to_list, json_to_object, value_to_object};

/// The size from which a chunk is read without the lock of the interpreter, in bytes.
const MIN_DETACHED_BYTES: usize = 1024;

create_exception!(
    sabir,
    SabirError,
    PyValueError,
    "Input that cannot be used. `code` names the kind, `span` is the position in the input in bytes or None."
);
create_exception!(
    sabir,
    EditError,
    SabirError,
    "An edit that cannot be applied. `problems` lists every reason with its line."
);

/// Text as `str` or `bytes`, borrowed from the interpreter where it allows that.
#[derive(FromPyObject)]
enum TextInput {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl TextInput {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Converts an error to an exception with its code and position.
fn to_exception(py: Python<'_>, error: &BindingError) -> PyErr {
    let report = error.report();
    let is_edit = matches!(error, BindingError::EditFailed(_));
    let exception = if is_edit {
        EditError::new_err(report.message.clone())
    } else {
        SabirError::new_err(report.message.clone())
    };
    let value = exception.value(py);
    // The attributes are set on the value, since the constructor takes the message alone.
    let described = (|| {
        value.setattr("code", report.code)?;
        value.setattr("span", report.span.map(|span| (span.start, span.end)))?;
        value.setattr("message", &report.message)?;
        if is_edit {
            let problems = serde_json::to_value(report.problems).unwrap_or_default();
            value.setattr("problems", value_to_object(py, &problems)?)?;
        }
        Ok(())
    })();
    described.map_or_else(|error| error, |()| exception)
}

/// Reads the options: keyword arguments with the names of `ReaderOptions`, and the tools as JSON text or as objects.
fn read_options(
    py: Python<'_>,
    dialect: &str,
    tools: Option<&Bound<'_, PyAny>>,
    more: Option<&Bound<'_, PyDict>>,
) -> PyResult<ReaderOptions> {
    let members = PyDict::new(py);
    members.set_item("dialect", dialect)?;
    if let Some(more) = more {
        members.update(more.as_mapping())?;
    }
    let json = dump_json(py, members.as_any())?;
    let options = ReaderOptions::from_json(&json).map_err(|error| to_exception(py, &error))?;
    match tools {
        None => Ok(options),
        Some(tools) => options
            .with_tools_json(&tools_json(py, tools)?)
            .map_err(|error| to_exception(py, &error)),
    }
}

/// Returns tools as JSON text.
fn tools_json(py: Python<'_>, tools: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = tools.cast::<PyString>() {
        return Ok(text.to_cow()?.into_owned());
    }
    dump_json(py, tools)
}

/// Serializes an object with the `json` module, which knows all that Python programs put into tools.
fn dump_json(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    py.import("json")?
        .call_method1("dumps", (object,))?
        .extract()
}

/// Reads one text that arrives in chunks.
#[pyclass(module = "sabir")]
struct Reader {
    reader: StreamReader,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (dialect="auto", tools=None, **options))]
    fn new(
        py: Python<'_>,
        dialect: &str,
        tools: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = read_options(py, dialect, tools, options)?;
        let reader = StreamReader::new(&options);
        Ok(Self { reader })
    }

    /// Reads a chunk and returns its events as dictionaries.
    fn push<'py>(&mut self, py: Python<'py>, chunk: TextInput) -> PyResult<Bound<'py, PyList>> {
        let reader = &mut self.reader;
        let mut push = || {
            match &chunk {
                TextInput::Text(text) => reader.push(text),
                TextInput::Bytes(bytes) => reader.push_bytes(bytes),
            }
            .map(|_| ())
        };
        // The reader is borrowed by this call, so another thread that uses it meanwhile gets an
        // exception and no half-read state.
        let pushed = if chunk.as_bytes().len() >= MIN_DETACHED_BYTES {
            py.detach(push)
        } else {
            push()
        };
        pushed.map_err(|error| to_exception(py, &error))?;
        events_to_list(py, self.reader.events())
    }

    /// Ends the text and returns the last events.
    #[pyo3(signature = (reason="ended"))]
    fn finish<'py>(&mut self, py: Python<'py>, reason: &str) -> PyResult<Bound<'py, PyList>> {
        self.reader
            .finish(reason)
            .map_err(|error| to_exception(py, &error))?;
        events_to_list(py, self.reader.events())
    }

    /// Creates a reader for another text with the same settings, which costs less than a new one.
    fn next_reader(&self) -> Self {
        Self {
            reader: self.reader.for_next_text(),
        }
    }
}

/// Converts one text that arrives in chunks to deltas of OpenAI's Chat Completions.
#[pyclass(module = "sabir", name = "OpenAIDeltas")]
struct DeltaStream {
    deltas: OpenAiDeltas,
}

#[pymethods]
impl DeltaStream {
    #[new]
    #[pyo3(signature = (dialect="auto", tools=None, **options))]
    fn new(
        py: Python<'_>,
        dialect: &str,
        tools: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = read_options(py, dialect, tools, options)?;
        let deltas = OpenAiDeltas::new(&options);
        Ok(Self { deltas })
    }

    /// Reads a chunk and returns its deltas.
    fn push<'py>(&mut self, py: Python<'py>, chunk: TextInput) -> PyResult<Bound<'py, PyAny>> {
        let deltas = match &chunk {
            TextInput::Text(text) => self.deltas.push(text),
            TextInput::Bytes(bytes) => self.deltas.push_bytes(bytes),
        }
        .map_err(|error| to_exception(py, &error))?;
        value_to_object(py, &Value::Array(deltas))
    }

    /// Ends the text and returns the last deltas, the finish reason and the faults.
    #[pyo3(signature = (reason="ended"))]
    fn finish<'py>(&mut self, py: Python<'py>, reason: &str) -> PyResult<Bound<'py, PyAny>> {
        let end = self
            .deltas
            .finish(reason)
            .map_err(|error| to_exception(py, &error))?;
        value_to_object(py, &end)
    }
}

/// Runs a function on a text without the lock of the interpreter and converts its report.
fn run_on_text<'py>(
    py: Python<'py>,
    text: &TextInput,
    options: &ReaderOptions,
    function: fn(&[u8], &ReaderOptions) -> String,
) -> PyResult<Bound<'py, PyAny>> {
    let report = py.detach(|| function(text.as_bytes(), options));
    json_to_object(py, &report)
}

/// Parses a whole message and checks its calls.
#[pyfunction]
#[pyo3(signature = (text, dialect="auto", tools=None, **options))]
fn parse<'py>(
    py: Python<'py>,
    text: TextInput,
    dialect: &str,
    tools: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = read_options(py, dialect, tools, options)?;
    run_on_text(py, &text, &options, sabir_bindings::parse_message)
}

/// Checks the calls of a whole message.
#[pyfunction]
#[pyo3(signature = (text, dialect="auto", tools=None, **options))]
fn check<'py>(
    py: Python<'py>,
    text: TextInput,
    dialect: &str,
    tools: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = read_options(py, dialect, tools, options)?;
    run_on_text(py, &text, &options, sabir_bindings::check_message)
}

/// Explains the role of each piece of a text.
#[pyfunction]
#[pyo3(signature = (text, dialect="auto", tools=None, **options))]
fn explain<'py>(
    py: Python<'py>,
    text: TextInput,
    dialect: &str,
    tools: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = read_options(py, dialect, tools, options)?;
    run_on_text(py, &text, &options, sabir_bindings::explain_message)
}

/// Finds the dialects in a text.
#[pyfunction]
#[pyo3(signature = (text, tools=None))]
fn detect<'py>(
    py: Python<'py>,
    text: TextInput,
    tools: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = read_options(py, "auto", tools, None)?;
    run_on_text(py, &text, &options, sabir_bindings::detect_dialects)
}

/// Infers tools from the calls of a text.
#[pyfunction]
fn guess_tools(py: Python<'_>, text: TextInput) -> PyResult<Bound<'_, PyAny>> {
    let options = read_options(py, "auto", None, None)?;
    run_on_text(py, &text, &options, sabir_bindings::guess_tools)
}

/// Decodes a provider's response body, whole or streamed.
#[pyfunction]
#[pyo3(signature = (body, wire="auto", tools=None))]
fn decode<'py>(
    py: Python<'py>,
    body: TextInput,
    wire: &str,
    tools: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = read_options(py, "auto", tools, None)?;
    let report = py
        .detach(|| sabir_bindings::decode_response(body.as_bytes(), wire, &options))
        .map_err(|error| to_exception(py, &error))?;
    json_to_object(py, &report)
}

/// Writes calls as a model would write them in a dialect.
#[pyfunction]
#[pyo3(signature = (calls, dialect, tools=None))]
fn render(
    py: Python<'_>,
    calls: &Bound<'_, PyAny>,
    dialect: &str,
    tools: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options = read_options(py, dialect, tools, None)?;
    let calls = tools_json(py, calls)?;
    sabir_bindings::render_calls(&calls, &options).map_err(|error| to_exception(py, &error))
}

/// Writes the result of a call as text for a model that cannot receive results natively.
#[pyfunction]
#[pyo3(signature = (name, content, is_error=false))]
fn render_result(name: &str, content: &str, is_error: bool) -> String {
    sabir_bindings::render_tool_result(name, content, is_error)
}

/// Renders the text that teaches the tools in a dialect.
#[pyfunction]
#[pyo3(signature = (dialect, tools=None, **options))]
fn prompt(
    py: Python<'_>,
    dialect: &str,
    tools: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    let options = read_options(py, dialect, tools, options)?;
    sabir_bindings::render_tool_prompt(&options).map_err(|error| to_exception(py, &error))
}

/// Finds mistakes in definitions of tools.
#[pyfunction]
#[pyo3(signature = (tools, dialect="auto"))]
fn lint<'py>(
    py: Python<'py>,
    tools: &Bound<'py, PyAny>,
    dialect: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let tools = tools_json(py, tools)?;
    let report = py
        .detach(|| sabir_bindings::lint_definitions(&tools, Some(dialect)))
        .map_err(|error| to_exception(py, &error))?;
    json_to_object(py, &report)
}

/// Applies an edit to a text.
#[pyfunction]
#[pyo3(signature = (text, edit, format="auto"))]
fn edit<'py>(py: Python<'py>, text: &str, edit: &str, format: &str) -> PyResult<Bound<'py, PyAny>> {
    let report = py
        .detach(|| sabir_bindings::apply_edit(text, edit, format))
        .map_err(|error| to_exception(py, &error))?;
    json_to_object(py, &report)
}

/// Lists the built-in dialects.
#[pyfunction]
fn dialects(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    json_to_object(py, &sabir_bindings::list_known_dialects())
}

/// The native module.
#[pymodule(gil_used = false)]
fn _sabir(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", sabir_bindings::VERSION)?;
    module.add("SabirError", py.get_type::<SabirError>())?;
    module.add("EditError", py.get_type::<EditError>())?;
    module.add_class::<Reader>()?;
    module.add_class::<DeltaStream>()?;
    module.add_function(wrap_pyfunction!(parse, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(detect, module)?)?;
    module.add_function(wrap_pyfunction!(guess_tools, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(render, module)?)?;
    module.add_function(wrap_pyfunction!(render_result, module)?)?;
    module.add_function(wrap_pyfunction!(prompt, module)?)?;
    module.add_function(wrap_pyfunction!(lint, module)?)?;
    module.add_function(wrap_pyfunction!(edit, module)?)?;
    module.add_function(wrap_pyfunction!(dialects, module)?)?;
    Ok(())
}
