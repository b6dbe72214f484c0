//! The WebAssembly module of the npm package: a thin layer over `sabir-bindings`.
//!
//! Results cross the boundary as JSON, which JavaScript parses faster than objects could be built from here. `npm/api.js` does that,
//! and turns errors into exceptions.
//!
//! The package has two modules: a small one, and one with the feature `full`, which `npm/api.js` loads when it is needed.

use sabir_bindings::{BindingError, OpenAiDeltas, ReaderOptions, StreamReader};
use serde_json::Value;
use wasm_bindgen::prelude::*;

/// Converts an error to the JSON text that `npm/api.js` makes an exception of.
fn to_exception(error: BindingError) -> JsValue {
    JsValue::from_str(&error.to_json())
}

fn read_options(options: &str) -> Result<ReaderOptions, JsValue> {
    ReaderOptions::from_json(options).map_err(to_exception)
}

/// Reads options of a function that checks calls.
fn read_check_options(options: &str) -> Result<ReaderOptions, JsValue> {
    read_options(options)?
        .require_supported_schemas()
        .map_err(to_exception)
}

/// A reader of one text that arrives in chunks.
#[wasm_bindgen]
pub struct RawReader {
    reader: StreamReader,
}

#[wasm_bindgen]
impl RawReader {
    /// Creates a reader.
    #[wasm_bindgen(constructor)]
    pub fn new(options: &str) -> Result<RawReader, JsValue> {
        let reader = StreamReader::new(&read_options(options)?);
        Ok(Self { reader })
    }

    /// Reads a chunk and returns its events as JSON; nothing if there are none.
    pub fn push(&mut self, chunk: &str) -> Result<Option<String>, JsValue> {
        let events = self.reader.push(chunk).map_err(to_exception)?;
        // Most chunks have no event, and then no text crosses the boundary.
        Ok((!events.is_empty()).then(|| events.to_json()))
    }

    /// Reads a chunk of bytes, which may end inside a character.
    pub fn push_bytes(&mut self, chunk: &[u8]) -> Result<Option<String>, JsValue> {
        let events = self.reader.push_bytes(chunk).map_err(to_exception)?;
        Ok((!events.is_empty()).then(|| events.to_json()))
    }

    /// Ends the text and returns the last events.
    pub fn finish(&mut self, reason: &str) -> Result<String, JsValue> {
        self.reader
            .finish(reason)
            .map(sabir_bindings::EventBatch::to_json)
            .map_err(to_exception)
    }

    /// Creates a reader for another text with the same settings.
    pub fn next_reader(&self) -> RawReader {
        Self {
            reader: self.reader.for_next_text(),
        }
    }
}

/// A converter of one text that arrives in chunks to deltas of OpenAI's Chat Completions.
#[wasm_bindgen]
pub struct RawDeltas {
    deltas: OpenAiDeltas,
}

#[wasm_bindgen]
impl RawDeltas {
    /// Creates a converter.
    #[wasm_bindgen(constructor)]
    pub fn new(options: &str) -> Result<RawDeltas, JsValue> {
        let deltas = OpenAiDeltas::new(&read_check_options(options)?);
        Ok(Self { deltas })
    }

    /// Reads a chunk and returns its deltas as JSON; nothing if there are none.
    pub fn push(&mut self, chunk: &str) -> Result<Option<String>, JsValue> {
        let deltas = self.deltas.push(chunk).map_err(to_exception)?;
        Ok((!deltas.is_empty()).then(|| Value::Array(deltas).to_string()))
    }

    /// Ends the text and returns the last deltas, the finish reason and the faults.
    pub fn finish(&mut self, reason: &str) -> Result<String, JsValue> {
        self.deltas
            .finish(reason)
            .map(|end| end.to_string())
            .map_err(to_exception)
    }
}

/// Parses a whole message and checks its calls.
#[wasm_bindgen]
pub fn parse(text: &str, options: &str) -> Result<String, JsValue> {
    read_check_options(options)
        .map(|options| sabir_bindings::parse_message(text.as_bytes(), &options))
}

/// Checks the calls of a whole message.
#[wasm_bindgen]
pub fn check(text: &str, options: &str) -> Result<String, JsValue> {
    read_check_options(options)
        .map(|options| sabir_bindings::check_message(text.as_bytes(), &options))
}

/// Explains the role of each piece of a text.
#[wasm_bindgen]
pub fn explain(text: &str, options: &str) -> Result<String, JsValue> {
    read_check_options(options)
        .map(|options| sabir_bindings::explain_message(text.as_bytes(), &options))
}

/// Finds the dialects in a text.
#[cfg(feature = "full")]
#[wasm_bindgen]
pub fn detect(text: &str, options: &str) -> Result<String, JsValue> {
    read_options(options).map(|options| sabir_bindings::detect_dialects(text.as_bytes(), &options))
}

/// Infers tools from the calls of a text.
#[wasm_bindgen]
pub fn guess_tools(text: &str) -> Result<String, JsValue> {
    read_options("").map(|options| sabir_bindings::guess_tools(text.as_bytes(), &options))
}

/// Decodes a provider's response body, whole or streamed.
#[cfg(feature = "full")]
#[wasm_bindgen]
pub fn decode(body: &[u8], wire: &str, options: &str) -> Result<String, JsValue> {
    let options = read_options(options)?;
    sabir_bindings::decode_response(body, wire, &options).map_err(to_exception)
}

/// Writes calls as a model would write them.
#[wasm_bindgen]
pub fn render(calls: &str, options: &str) -> Result<String, JsValue> {
    let options = read_options(options)?;
    sabir_bindings::render_calls(calls, &options).map_err(to_exception)
}

/// Writes the result of a call as text.
#[wasm_bindgen]
pub fn render_result(name: &str, content: &str, is_error: bool) -> String {
    sabir_bindings::render_tool_result(name, content, is_error)
}

/// Renders the text that teaches the tools.
#[wasm_bindgen]
pub fn prompt(options: &str) -> Result<String, JsValue> {
    let options = read_options(options)?;
    sabir_bindings::render_tool_prompt(&options).map_err(to_exception)
}

/// Finds mistakes in definitions of tools.
#[cfg(feature = "full")]
#[wasm_bindgen]
pub fn lint(tools: &str, dialect: &str) -> Result<String, JsValue> {
    sabir_bindings::lint_definitions(tools, Some(dialect)).map_err(to_exception)
}

/// Applies an edit to a text.
#[cfg(feature = "full")]
#[wasm_bindgen]
pub fn edit(text: &str, edit: &str, format: &str) -> Result<String, JsValue> {
    sabir_bindings::apply_edit(text, edit, format).map_err(to_exception)
}

/// Lists the built-in dialects.
#[wasm_bindgen]
pub fn dialects() -> String {
    sabir_bindings::list_known_dialects()
}

/// Returns the version of Sabir.
#[wasm_bindgen]
pub fn version() -> String {
    sabir_bindings::VERSION.to_owned()
}
