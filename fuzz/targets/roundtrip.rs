//! `parse(render(calls)) == calls` in every dialect, whatever the values hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sabir_call::dialect::DialectSelection;
use sabir_call::{ArgumentEncoding, Call, CallId, Truncation, DraftResponse, DraftArgument, DraftState, CallReader};
use sabir_fuzz::{TOOLS, pick};
use serde_json::{Map, Value, json};

fn value_of(argument: &DraftArgument, wanted: &Value) -> Value {
    match argument.form {
        ArgumentEncoding::Json => serde_json::from_str(&argument.text).unwrap_or_default(),
        // What stands between tags is typed by the schema, which says nothing here.
        ArgumentEncoding::Raw if !wanted.is_string() => serde_json::from_str(&argument.text).unwrap_or_default(),
        ArgumentEncoding::Raw | ArgumentEncoding::String => Value::String(argument.text.clone()),
    }
}

// The first byte says which dialect, the second where the rest is cut into two values.
fuzz_target!(|input: &[u8]| {
    let [dialect, at, bytes @ ..] = input else { return };
    let dialect = pick(*dialect);
    let text = String::from_utf8_lossy(bytes);
    let (path, content) = text.split_at(text.ceil_char_boundary(usize::from(*at).min(text.len())));
    let deep = json!([path, {"k": content, "n": [1, -2.5, null, true]}, {}]);
    let all: [Map<String, Value>; 3] = [
        Map::from_iter([("path".to_owned(), path.into()), ("content".to_owned(), content.into())]),
        Map::new(),
        Map::from_iter([("path".to_owned(), deep), ("n".to_owned(), json!(7))]),
    ];
    let names = ["write_to_file", "get_time", "read_file"];
    let calls: Vec<Call> = names
        .iter()
        .zip(all)
        .map(|(name, arguments)| Call { id: CallId::new("c"), name: (*name).to_owned(), arguments, dialect: None })
        .collect();
    let rendered = dialect.render_calls(&calls, &TOOLS);
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSelection::from(dialect), &TOOLS);
    reader.push(&rendered, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    let read: Vec<_> = draft.calls().collect();
    assert_eq!(read.len(), calls.len(), "{}: {rendered}", dialect.name);
    for (read, call) in read.iter().zip(&calls) {
        assert_eq!((read.name.as_str(), read.state), (call.name.as_str(), DraftState::Closed), "{rendered}");
        let wanted: Vec<(&str, &Value)> = call.arguments.iter().map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(read.arguments.len(), wanted.len(), "{rendered}");
        for (argument, (name, value)) in read.arguments.iter().zip(wanted) {
            assert_eq!((argument.name.as_str(), &value_of(argument, value)), (name, value), "{}: {rendered}", dialect.name);
        }
        assert_eq!(draft.errors_of(read.index).count(), 0, "{}: {rendered}", dialect.name);
    }
});
