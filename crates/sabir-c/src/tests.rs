//! Tests the functions as C calls them.

use super::*;

const TOOLS: &str = r#"{"tools": [{"name": "look", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]}"#;

/// A text that was not written yet.
fn no_text() -> SabirText {
    SabirText {
        data: std::ptr::null_mut(),
        length: 0,
    }
}

/// Takes the content of a text and frees it.
fn take(text: &mut SabirText) -> String {
    assert!(!text.data.is_null());
    let bytes = unsafe { std::slice::from_raw_parts(text.data, text.length + 1) };
    assert_eq!(bytes.last(), Some(&0), "the text ends with a zero byte");
    let content = String::from_utf8(bytes[..text.length].to_vec()).unwrap();
    unsafe { sabir_text_free(text) };
    // Freeing it again does nothing.
    unsafe { sabir_text_free(text) };
    content
}

fn open_reader(options: &str) -> (SabirStatus, *mut SabirReader, String) {
    let mut out = no_text();
    let mut reader = std::ptr::dangling_mut();
    let status =
        unsafe { sabir_reader_new(options.as_ptr(), options.len(), &mut reader, &mut out) };
    (status, reader, take(&mut out))
}

#[test]
fn a_stream_is_read_through_the_handles() {
    let (status, reader, _) = open_reader(TOOLS);
    assert_eq!(status, SabirStatus::Ok);
    let mut out = no_text();
    let mut events = String::new();
    for chunk in ["<look><pa", "th>ä</path></look>"] {
        let status = unsafe { sabir_reader_push(reader, chunk.as_ptr(), chunk.len(), &mut out) };
        assert_eq!(status, SabirStatus::Ok);
        events.push_str(&take(&mut out));
    }
    let status = unsafe { sabir_reader_finish(reader, std::ptr::null(), 0, &mut out) };
    assert_eq!(status, SabirStatus::Ok);
    events.push_str(&take(&mut out));
    assert!(
        events.contains(r#""text":"ä""#) && events.contains("call_end"),
        "{events}"
    );
    let status = unsafe { sabir_reader_push(reader, "a".as_ptr(), 1, &mut out) };
    assert_eq!(status, SabirStatus::Error);
    assert!(take(&mut out).contains("already_finished"));
    unsafe { sabir_reader_free(reader) };
}

#[test]
fn nulls_and_wrong_bytes_are_errors() {
    let mut out = no_text();
    let null = std::ptr::null_mut();
    unsafe {
        assert_eq!(
            sabir_reader_push(null, "a".as_ptr(), 1, &mut out),
            SabirStatus::NullPointer
        );
        assert!(take(&mut out).contains("`reader` is null"));
        assert_eq!(
            sabir_reader_push(null, "a".as_ptr(), 1, std::ptr::null_mut()),
            SabirStatus::NullPointer
        );
        assert_eq!(
            sabir_reader_new(std::ptr::null(), 3, std::ptr::null_mut(), &mut out),
            SabirStatus::NullPointer
        );
        take(&mut out);
        sabir_reader_free(null);
        sabir_deltas_free(std::ptr::null_mut());
        sabir_text_free(std::ptr::null_mut());
        let mut reader = std::ptr::dangling_mut();
        let bytes = [b'{', 0xff];
        assert_eq!(
            sabir_reader_new(bytes.as_ptr(), 2, &mut reader, &mut out),
            SabirStatus::InvalidUtf8
        );
        assert!(reader.is_null());
        assert!(take(&mut out).contains(r#""span":[1,2]"#));
    }
    let (status, reader, error) = open_reader("{\"dialect\": \"clime\"}");
    assert_eq!((status, reader.is_null()), (SabirStatus::Error, true));
    assert!(error.contains("unknown_dialect"), "{error}");
}

#[test]
fn functions_run_by_name() {
    let run = |function: &str, input: &str| {
        let mut out = no_text();
        let status = unsafe {
            sabir_run(
                function.as_ptr(),
                function.len(),
                input.as_ptr(),
                input.len(),
                TOOLS.as_ptr(),
                TOOLS.len(),
                &mut out,
            )
        };
        (status, take(&mut out))
    };
    let (status, report) = run("parse", "<look><path>a</path></look>");
    assert_eq!(status, SabirStatus::Ok);
    assert!(report.contains(r#""arguments":{"path":"a"}"#), "{report}");
    let (status, report) = run(
        "edit",
        r#"{"text": "a\n", "edit": "{\"old_string\": \"a\", \"new_string\": \"b\"}"}"#,
    );
    assert_eq!(status, SabirStatus::Ok, "{report}");
    assert_eq!(run("fly", "").0, SabirStatus::Error);
    assert_eq!(run("render", "[]").0, SabirStatus::Error);
    assert_eq!(run("dialects", "").0, SabirStatus::Ok);
}

#[test]
fn a_panic_becomes_a_status() {
    let mut out = no_text();
    let status = unsafe { run_guarded(&mut out, || panic!("a defect")) };
    assert_eq!(status, SabirStatus::InternalError);
    assert!(take(&mut out).contains("internal_error"));
}
