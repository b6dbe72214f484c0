//! The interface of Sabir for C: opaque handles, texts and status codes over `sabir-bindings`.
//!
//! Every function catches panics at the boundary, accepts null pointers (which are an error, not a crash), and never trusts that a text
//! is UTF-8. A text that it returns belongs to the caller, who frees it with [`sabir_text_free`].

// Functions that C calls take raw pointers: this crate is the one place where a foreign program's
// promises about them are believed.
#![allow(
    unsafe_code,
    reason = "C passes raw pointers; each function states what it requires of them"
)]

mod foreign_text;

use std::panic::{AssertUnwindSafe, catch_unwind};

use sabir_bindings::{BindingError, OpenAiDeltas, ReaderOptions, StreamReader};
use serde_json::{Value, json};

pub use foreign_text::SabirText;
use foreign_text::{borrow_bytes, borrow_text};

/// The outcome of a function.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SabirStatus {
    /// The text is the result.
    Ok = 0,
    /// The input cannot be used; the text is the error.
    Error = 1,
    /// A pointer is null that must not be.
    NullPointer = 2,
    /// A text is not UTF-8.
    InvalidUtf8 = 3,
    /// A defect of Sabir; please report it. The handle must only be freed.
    InternalError = 4,
}

/// A reader of one text that arrives in chunks.
pub struct SabirReader {
    reader: StreamReader,
}

/// A converter of one text that arrives in chunks to deltas of OpenAI's Chat Completions.
pub struct SabirDeltas {
    deltas: OpenAiDeltas,
}

/// A reason why a function has no result.
enum CallFailure {
    Binding(BindingError),
    NullPointer(&'static str),
    InvalidUtf8 { name: &'static str, at: usize },
}

impl From<BindingError> for CallFailure {
    fn from(error: BindingError) -> Self {
        Self::Binding(error)
    }
}

impl CallFailure {
    /// Returns the status and the error as JSON.
    fn into_status(self) -> (SabirStatus, String) {
        match self {
            Self::Binding(error) => (SabirStatus::Error, error.to_json()),
            Self::NullPointer(name) => (
                SabirStatus::NullPointer,
                json!({"code": "null_pointer", "message": format!("`{name}` is null"), "span": null})
                    .to_string(),
            ),
            Self::InvalidUtf8 { name, at } => (
                SabirStatus::InvalidUtf8,
                json!({"code": "invalid_utf8", "message": format!("`{name}` is not UTF-8 at byte {at}"), "span": [at, at + 1]})
                    .to_string(),
            ),
        }
    }
}

/// Runs a function, and writes its result or its error to `out`, unless that is null.
///
/// # Safety
/// `out` is null or valid for writing.
unsafe fn run_guarded(
    out: *mut SabirText,
    function: impl FnOnce() -> Result<String, CallFailure>,
) -> SabirStatus {
    // A handle that a panic left half changed is not used again: the status says so.
    let (status, text) = match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(text)) => (SabirStatus::Ok, text),
        Ok(Err(failure)) => failure.into_status(),
        Err(_) => (
            SabirStatus::InternalError,
            json!({"code": "internal_error", "message": "a defect of Sabir; please report it", "span": null})
                .to_string(),
        ),
    };
    // SAFETY: the caller promises that it is null or valid for writing.
    unsafe { SabirText::write_to(out, text) };
    status
}

/// Reads options from a JSON text, which may be empty.
///
/// # Safety
/// As for [`borrow_text`].
unsafe fn read_options(options: *const u8, length: usize) -> Result<ReaderOptions, CallFailure> {
    // SAFETY: the caller promises the same.
    let json = unsafe { borrow_text(options, length, "options")? };
    Ok(ReaderOptions::from_json(json)?)
}

/// Frees a text and makes it empty. An empty or null text is ignored, so a text may be freed twice.
///
/// # Safety
/// `text` is null or points to a text that a function of this library wrote, or to one whose members are zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_text_free(text: *mut SabirText) {
    // SAFETY: promised by the caller.
    unsafe { SabirText::free(text) };
}

/// Returns Sabir's version, a text with a terminating zero that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn sabir_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Creates a reader and writes its handle to `reader`, which is null after an error.
///
/// # Safety
/// `options` is valid for `length` bytes or null if that is 0; `reader` and `out` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_reader_new(
    options: *const u8,
    length: usize,
    reader: *mut *mut SabirReader,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let place = reader.as_mut().ok_or(CallFailure::NullPointer("reader"))?;
            *place = std::ptr::null_mut();
            let options = read_options(options, length)?;
            let reader = StreamReader::new(&options);
            *place = Box::into_raw(Box::new(SabirReader { reader }));
            Ok(String::new())
        })
    }
}

/// Reads a chunk, which may end inside a character, and writes its events as a JSON array.
///
/// # Safety
/// `reader` is null or a handle that was not freed; `chunk` is valid for `length` bytes or null if that is 0; `out` is null or valid
/// for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_reader_push(
    reader: *mut SabirReader,
    chunk: *const u8,
    length: usize,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let reader = reader.as_mut().ok_or(CallFailure::NullPointer("reader"))?;
            let chunk = borrow_bytes(chunk, length, "chunk")?;
            Ok(reader.reader.push_bytes(chunk)?.to_json())
        })
    }
}

/// Ends the text and writes the last events. `reason` is `ended`, `limit`, `broken` or `cancelled`; empty means `ended`.
///
/// # Safety
/// As for [`sabir_reader_push`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_reader_finish(
    reader: *mut SabirReader,
    reason: *const u8,
    length: usize,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let reader = reader.as_mut().ok_or(CallFailure::NullPointer("reader"))?;
            let reason = word_or(borrow_text(reason, length, "reason")?, "ended");
            Ok(reader.reader.finish(reason)?.to_json())
        })
    }
}

/// Frees a reader. Null is ignored.
///
/// # Safety
/// `reader` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_reader_free(reader: *mut SabirReader) {
    // SAFETY: promised by the caller; the pointer came from a box.
    unsafe { free_handle(reader) };
}

/// Creates a converter to OpenAI's deltas and writes its handle to `deltas`, which is null after an error.
///
/// # Safety
/// As for [`sabir_reader_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_deltas_new(
    options: *const u8,
    length: usize,
    deltas: *mut *mut SabirDeltas,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let place = deltas.as_mut().ok_or(CallFailure::NullPointer("deltas"))?;
            *place = std::ptr::null_mut();
            let options = read_options(options, length)?;
            let deltas = OpenAiDeltas::new(&options);
            *place = Box::into_raw(Box::new(SabirDeltas { deltas }));
            Ok(String::new())
        })
    }
}

/// Reads a chunk of UTF-8, which may end inside a character, and writes its deltas as a JSON array.
///
/// # Safety
/// As for [`sabir_reader_push`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_deltas_push(
    deltas: *mut SabirDeltas,
    chunk: *const u8,
    length: usize,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let deltas = deltas.as_mut().ok_or(CallFailure::NullPointer("deltas"))?;
            let chunk = borrow_bytes(chunk, length, "chunk")?;
            Ok(Value::Array(deltas.deltas.push_bytes(chunk)?).to_string())
        })
    }
}

/// Ends the text and writes an object with the last `deltas`, the `finish_reason` and the `faults`. The reason is as in
/// `sabir_reader_finish`.
///
/// # Safety
/// As for [`sabir_reader_push`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_deltas_finish(
    deltas: *mut SabirDeltas,
    reason: *const u8,
    length: usize,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let deltas = deltas.as_mut().ok_or(CallFailure::NullPointer("deltas"))?;
            let reason = word_or(borrow_text(reason, length, "reason")?, "ended");
            Ok(deltas.deltas.finish(reason)?.to_string())
        })
    }
}

/// Frees a converter. Null is ignored.
///
/// # Safety
/// `deltas` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_deltas_free(deltas: *mut SabirDeltas) {
    // SAFETY: promised by the caller; the pointer came from a box.
    unsafe { free_handle(deltas) };
}

/// Runs a function by its name on an input and writes its result. `function` is one of:
///
/// `parse`, `check`, `explain`, `detect`, `guess_tools` (the input is a text, the result a JSON report); `decode` (the input is a
/// provider's response body, whose API is found out); `decode:WIRE` (the same, of that API); `render` (the input is a JSON array of
/// `{name, arguments}`, the result a text); `render_result` (the input is a JSON object `{name, content, is_error}`, the result a text);
/// `prompt` (the input is ignored, the result a text); `lint` (the input is a list of tools); `edit` (the input is a JSON object
/// `{text, edit, format}`); `dialects` (the input is ignored).
///
/// # Safety
/// Each text is valid for its length or null if that is 0; `out` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sabir_run(
    function: *const u8,
    function_length: usize,
    input: *const u8,
    input_length: usize,
    options: *const u8,
    options_length: usize,
    out: *mut SabirText,
) -> SabirStatus {
    // SAFETY: promised by the caller.
    unsafe {
        run_guarded(out, || {
            let function = borrow_text(function, function_length, "function")?;
            let input = borrow_bytes(input, input_length, "input")?;
            let options = read_options(options, options_length)?;
            run_function(function, input, &options)
        })
    }
}

/// Runs a function by its name.
fn run_function(
    function: &str,
    input: &[u8],
    options: &ReaderOptions,
) -> Result<String, CallFailure> {
    let text = || {
        std::str::from_utf8(input).map_err(|error| CallFailure::InvalidUtf8 {
            name: "input",
            at: error.valid_up_to(),
        })
    };
    Ok(match function {
        "parse" => sabir_bindings::parse_message(input, options),
        "check" => sabir_bindings::check_message(input, options),
        "explain" => sabir_bindings::explain_message(input, options),
        "detect" => sabir_bindings::detect_dialects(input, options),
        "guess_tools" => sabir_bindings::guess_tools(input, options),
        "decode" => sabir_bindings::decode_response(input, "auto", options)?,
        decode if decode.starts_with("decode:") => {
            let wire = decode.trim_start_matches("decode:");
            sabir_bindings::decode_response(input, wire, options)?
        }
        "render" => sabir_bindings::render_calls(text()?, options)?,
        "render_result" => {
            let members: Value = serde_json::from_str(text()?).unwrap_or_default();
            let member = |name: &str| {
                members
                    .get(name)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let is_error = members.get("is_error").and_then(Value::as_bool);
            sabir_bindings::render_tool_result(
                member("name"),
                member("content"),
                is_error.unwrap_or(false),
            )
        }
        "prompt" => sabir_bindings::render_tool_prompt(options)?,
        "lint" => sabir_bindings::lint_definitions(text()?, None)?,
        "edit" => {
            let members: Value = serde_json::from_str(text()?).unwrap_or_default();
            let member = |name: &str| members.get(name).and_then(Value::as_str);
            let format = member("format").unwrap_or("auto");
            let edit = member("edit").unwrap_or_default();
            sabir_bindings::apply_edit(member("text").unwrap_or_default(), edit, format)?
        }
        "dialects" => sabir_bindings::list_known_dialects(),
        other => {
            return Err(BindingError::UnknownWord {
                what: "a function",
                found: other.to_owned(),
                known: "parse, check, explain, detect, guess_tools, decode, decode:WIRE, render, render_result, prompt, lint, edit or dialects",
            }
            .into());
        }
    })
}

/// Returns the word, or the default if it is empty.
fn word_or<'w>(word: &'w str, default: &'w str) -> &'w str {
    if word.is_empty() { default } else { word }
}

/// Frees what a handle points to.
///
/// # Safety
/// The handle is null, or came from `Box::into_raw` and was not freed.
unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: promised by the caller.
        let owned = unsafe { Box::from_raw(handle) };
        // The destructors do nothing that panics, but a panic must not cross the boundary in any
        // case. What it leaves behind leaks.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owned)));
    }
}

#[cfg(test)]
mod tests;
