//! The scanner of native arguments beside `serde_json`: it calls a text whole and faultless where that parses an object
//! without doubled keys, with the same values, however the text is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_call::json::{ArgumentScanner, ScanOutcome};
use sabir_call::{ArgumentEncoding, DraftResponse, Event, EventSink};
use serde_json::{Map, Value};

fn scan(text: &str, size: usize) -> (DraftResponse, ScanOutcome) {
    let mut draft = DraftResponse::default();
    draft.push_event(Event::CallStart { index: 0, id: None, name: "", dialect: None, at: 0, name_at: 0 });
    let mut scanner = ArgumentScanner::new(0);
    let mut rest = text;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
        scanner.push(chunk, &mut draft);
        rest = after;
    }
    let whole = scanner.finish(&mut draft);
    (draft, whole)
}

/// The arguments as values; `None` where one of them is not JSON, which is for the checks to say.
fn values(draft: &DraftResponse) -> Option<Map<String, Value>> {
    let arguments = draft.call_by_index(0)?.arguments.iter();
    arguments
        .map(|argument| {
            let value = match argument.form {
                ArgumentEncoding::Json => serde_json::from_str(&argument.text).ok()?,
                _ => Value::String(argument.text.clone()),
            };
            Some((argument.name.clone(), value))
        })
        .collect()
}

// The first byte says how the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [size, bytes @ ..] = input else { return };
    let text = String::from_utf8_lossy(bytes);
    let (draft, whole) = scan(&text, usize::MAX);
    for size in [1, usize::from(*size % 40) + 1] {
        assert_eq!(scan(&text, size), (draft.clone(), whole), "in chunks of {size}");
    }
    let clean = whole == ScanOutcome::Complete && draft.faults.is_empty() && text.trim_ascii().starts_with('{');
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(object) if clean => assert_eq!(values(&draft), Some(object)),
        // What the parser takes and the scanner does not: doubled keys.
        Ok(_) => assert!(draft.faults.iter().any(|fault| fault.kind == sabir_call::FaultKind::DoubledArgument)),
        // What the scanner takes and the parser does not: a value that is not JSON, left to the checks; depth.
        Err(error) => assert!(!clean || values(&draft).is_none() || error.is_syntax() && text.len() > 100, "{error}"),
    }
});
