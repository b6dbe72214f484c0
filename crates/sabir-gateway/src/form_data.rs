//! Finds the field `model` in a form (`multipart/form-data`).
//!
//! Parsers of forms differ where RFC 7578 is silent: some take the first of two fields, some the last, and
//! some read a delimiter where others read content. The gateway checks which model a client may use, and the
//! upstream reads the same bytes with a parser of its own. So a form that two parsers might read differently is
//! refused: this parser accepts what clients really send, and nothing else.

use std::ops::Range;

use axum::http::{HeaderMap, header};

/// The longest boundary of a form, by RFC 2046.
const MAX_BOUNDARY: usize = 70;

/// The name of the field that names the model.
const MODEL: &str = "model";

/// The encodings of a part that leave its bytes as they are.
const PLAIN_ENCODINGS: [&str; 3] = ["7bit", "8bit", "binary"];

/// The reason why a form is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    /// The header does not say one form with one boundary.
    #[error(
        "the header content-type must be given once, as `multipart/form-data; boundary=...`: {0}"
    )]
    ContentType(&'static str),
    /// The boundary is too long.
    #[error("the boundary is longer than {MAX_BOUNDARY} characters")]
    LongBoundary,
    /// The parts are not divided as they should be.
    #[error("the form cannot be read without doubt: {0}")]
    Body(&'static str),
    /// Two fields name the model.
    #[error("the form must have one field `model`, and no other that a server could take for it")]
    SecondModel,
    /// The field has no text.
    #[error("the field `model` must be a name")]
    NoName,
}

impl FormError {
    /// Returns the part of the request that is wrong.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::ContentType(_) | Self::LongBoundary => "content-type",
            Self::Body(_) => "body",
            Self::SecondModel | Self::NoName => MODEL,
        }
    }
}

/// The field of a form that names the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelField {
    /// The name of the model.
    pub(crate) model: String,
    /// The range of that name in the body.
    pub(crate) range: Range<usize>,
}

/// Finds the field `model` of a form; `None` if it has none.
///
/// # Errors
/// Two servers could read different models in the form.
pub(crate) fn find_model_field(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<ModelField>, FormError> {
    let boundary = parse_boundary(headers)?;
    let mut found = None;
    for range in split_parts(body, &boundary)? {
        let part = body.get(range.clone()).unwrap_or_default();
        let end = find_bytes(part, b"\r\n\r\n", 0).ok_or(FormError::Body(
            "a part has no empty line after its headers",
        ))?;
        let head = part.get(..end).unwrap_or_default();
        if !is_model_part(head)? {
            continue;
        }
        let range = range.start + end + 4..range.end;
        let model = body.get(range.clone()).unwrap_or_default();
        let model = std::str::from_utf8(model).map_err(|_| FormError::NoName)?;
        if model.is_empty() {
            return Err(FormError::NoName);
        }
        let field = ModelField {
            model: model.to_owned(),
            range,
        };
        if found.replace(field).is_some() {
            return Err(FormError::SecondModel);
        }
    }
    Ok(found)
}

/// Returns the boundary that the headers name.
fn parse_boundary(headers: &HeaderMap) -> Result<String, FormError> {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds
        .next()
        .ok_or(FormError::ContentType("it is missing"))?;
    if kinds.next().is_some() {
        return Err(FormError::ContentType("it is given twice"));
    }
    let kind = kind
        .to_str()
        .map_err(|_| FormError::ContentType("it has characters beyond ASCII"))?;
    let (form, rest) = kind.split_at(kind.find(';').unwrap_or(kind.len()));
    if !form.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(FormError::ContentType("it is another type"));
    }
    let unclear = FormError::ContentType("its parameters are unclear");
    let mut boundary = None;
    let mut charset = None;
    for parameter in parse_parameters(rest).ok_or(unclear.clone())? {
        let known = match parameter.name.as_str() {
            "boundary" => &mut boundary,
            // Some clients add it, and it says nothing about the parts.
            "charset" => &mut charset,
            _ => return Err(unclear),
        };
        if known.replace(parameter.value).is_some() {
            return Err(FormError::ContentType(
                "it names two boundaries or charsets",
            ));
        }
    }
    let boundary = boundary.ok_or(FormError::ContentType("the boundary is missing"))?;
    if boundary.len() > MAX_BOUNDARY {
        return Err(FormError::LongBoundary);
    }
    // A space may end the boundary for one parser and belong to it for another.
    let is_plain = |sign: u8| sign.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&sign);
    if boundary.is_empty() || !boundary.bytes().all(is_plain) {
        return Err(FormError::ContentType(
            "the boundary has characters that no boundary has",
        ));
    }
    Ok(boundary)
}

/// A parameter of a header's value.
struct Parameter {
    /// The name, in lower case.
    name: String,
    /// The value, without quotes.
    value: String,
}

/// Parses `; name=value; name="value"`; `None` if that can be read in two ways.
fn parse_parameters(text: &str) -> Option<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut rest = text.trim_matches([' ', '\t']);
    while !rest.is_empty() {
        let parameter = rest.strip_prefix(';')?.trim_start_matches([' ', '\t']);
        let (name, after) = parameter.split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token_sign) {
            return None;
        }
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => {
                let end = after.find([';', ' ', '\t']).unwrap_or(after.len());
                let (value, after) = after.split_at_checked(end)?;
                if value.is_empty() || !value.bytes().all(is_token_sign) {
                    return None;
                }
                (value, after)
            }
        };
        // For one parser the backslash escapes the quote, for another it belongs to a Windows path.
        if value.ends_with('\\') || value.bytes().any(|sign| sign.is_ascii_control()) {
            return None;
        }
        parameters.push(Parameter {
            name: name.to_ascii_lowercase(),
            value: value.to_owned(),
        });
        rest = after.trim_start_matches([' ', '\t']);
    }
    Some(parameters)
}

/// Returns true for the characters of a token (RFC 9110).
fn is_token_sign(sign: u8) -> bool {
    sign.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&sign)
}

/// Returns the ranges of the parts in a body.
fn split_parts(body: &[u8], boundary: &str) -> Result<Vec<Range<usize>>, FormError> {
    let delimiter = format!("--{boundary}").into_bytes();
    if !body.starts_with(&delimiter) {
        return Err(FormError::Body("it does not begin with its boundary"));
    }
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let after = at + delimiter.len();
        let rest = body.get(after..).unwrap_or_default();
        if let Some(end) = rest.strip_prefix(b"--") {
            // Some parsers would read on in what follows.
            return match end {
                b"" | b"\r\n" => Ok(parts),
                _ => Err(FormError::Body("something follows its end")),
            };
        }
        if !rest.starts_with(b"\r\n") {
            return Err(FormError::Body("a boundary is not at the end of its line"));
        }
        let next = find_bytes(body, &delimiter, after)
            .ok_or(FormError::Body("its last boundary is missing"))?;
        // Lenient parsers also take a bare line feed.
        let end = next
            .checked_sub(2)
            .filter(|end| *end >= after + 2 && body.get(*end..next) == Some(b"\r\n"))
            .ok_or(FormError::Body("a boundary is not alone on its line"))?;
        parts.push(after + 2..end);
        at = next;
    }
}

/// Returns true if a part with these headers names the model.
fn is_model_part(head: &[u8]) -> Result<bool, FormError> {
    let unclear = FormError::Body("the headers of a part are unclear");
    let head = std::str::from_utf8(head).map_err(|_| unclear.clone())?;
    let mut disposition = None;
    for line in head.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or(unclear.clone())?;
        // Also refuses a line that continues the one before it.
        if name.is_empty() || !name.bytes().all(is_token_sign) || value.contains(['\r', '\n', '\0'])
        {
            return Err(unclear);
        }
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("content-disposition") {
            if disposition.replace(value).is_some() {
                return Err(unclear);
            }
        } else if name.eq_ignore_ascii_case("content-transfer-encoding") {
            let is_plain = PLAIN_ENCODINGS
                .iter()
                .any(|kind| value.eq_ignore_ascii_case(kind));
            if !is_plain {
                return Err(FormError::Body("a part is encoded"));
            }
        }
    }
    let disposition = disposition.ok_or(FormError::Body("a part has no content-disposition"))?;
    let (kind, rest) = disposition.split_at(disposition.find(';').unwrap_or(disposition.len()));
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return Err(unclear);
    }
    let mut field = None;
    let mut file = None;
    let mut encoded_file = None;
    for parameter in parse_parameters(rest).ok_or(unclear.clone())? {
        let known = match parameter.name.as_str() {
            "name" => &mut field,
            "filename" => &mut file,
            "filename*" => &mut encoded_file,
            _ => return Err(unclear),
        };
        if known.replace(parameter.value).is_some() {
            return Err(unclear);
        }
    }
    let field = field.ok_or(FormError::Body("a part has no name"))?;
    let is_plain = |sign: u8| matches!(sign, b' '..=b'~') && !matches!(sign, b'\\' | b'%' | b'&');
    if !field.bytes().all(is_plain) {
        return Err(FormError::Body("a field has an unusual name"));
    }
    // A parser that splits at each semicolon would read a second name in it.
    let hides_name = file.as_ref().is_some_and(|file| {
        let mut pieces = file.split(';').skip(1);
        pieces.any(|piece| piece.trim_start().to_ascii_lowercase().starts_with("name"))
    });
    if hides_name {
        return Err(unclear);
    }
    let is_file = file.is_some() || encoded_file.is_some();
    if field == MODEL && !is_file {
        return Ok(true);
    }
    // Other servers ignore case, or read `model[]` and `model[0]` as members of `model`.
    let plain = field.trim().to_ascii_lowercase();
    let base = plain.split(['[', '.']).next().unwrap_or_default();
    match base.trim() == MODEL {
        true => Err(FormError::SecondModel),
        false => Ok(false),
    }
}

/// Finds bytes in others, from a position on.
fn find_bytes(body: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let rest = body.get(from..)?;
    let found = rest
        // Windows of no bytes would panic.
        .windows(wanted.len().max(1))
        .position(|window| window == wanted)?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const FORM: &str = "multipart/form-data; boundary=xy";

    fn headers(kinds: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for kind in kinds {
            let value = HeaderValue::try_from(*kind).unwrap();
            headers.append(header::CONTENT_TYPE, value);
        }
        headers
    }

    /// Makes a form of parts, each with the rest of its disposition and its content.
    fn form(parts: &[[&str; 2]]) -> String {
        let mut form = String::new();
        for [head, content] in parts {
            form.push_str("--xy\r\nContent-Disposition: form-data; ");
            form.push_str(&format!("{head}\r\n\r\n{content}\r\n"));
        }
        form + "--xy--\r\n"
    }

    fn model_of(body: &str) -> Result<Option<String>, FormError> {
        let found = find_model_field(&headers(&[FORM]), body.as_bytes())?;
        Ok(found.map(|field| {
            assert_eq!(body.get(field.range), Some(field.model.as_str()));
            field.model
        }))
    }

    #[test]
    fn forms_of_real_clients_are_read() {
        let file = [
            "name=\"file\"; filename=\"a; b.wav\"\r\nContent-Type: audio/wav",
            "name=\"model\"",
        ];
        let model = ["name=\"model\"", "whisper"];
        let plain = [
            "name=model\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Length: 7",
            "whisper",
        ];
        let encoded = [
            "name=\"file\"; filename=\"a\"; filename*=UTF-8''%e2%82%ac\r\nContent-Transfer-Encoding: binary",
            "x\ny",
        ];
        let list = ["name=\"timestamp_granularities[]\"", "word"];
        for parts in [
            vec![model, file],
            vec![file, model],
            vec![encoded, list, plain],
        ] {
            let form = form(&parts);
            assert_eq!(model_of(&form), Ok(Some("whisper".to_owned())), "{form}");
        }
        assert_eq!(model_of(&form(&[file])), Ok(None));
        let body = form(&[model]);
        for kind in [
            "multipart/form-data; boundary=\"xy\"",
            "Multipart/Form-Data;charset=utf-8 ; BOUNDARY=xy",
        ] {
            let found = find_model_field(&headers(&[kind]), body.as_bytes());
            assert!(matches!(found, Ok(Some(_))), "{kind}");
        }
    }

    #[test]
    fn a_second_model_is_refused() {
        for second in [
            "name=\"model\"",
            "name=model",
            "NAME=\"model\"",
            "name=\"Model\"",
            "name=\" model\"",
            "name=\"model[]\"",
            "name=\"model\"; filename=\"\"",
            "filename=\"a\"; name=\"model\"",
        ] {
            for parts in [
                [["name=\"model\"", "a"], [second, "b"]],
                [[second, "b"], ["name=\"model\"", "a"]],
            ] {
                let refused = model_of(&form(&parts));
                assert_eq!(refused, Err(FormError::SecondModel), "{second}");
            }
        }
    }

    #[test]
    fn names_that_parsers_read_differently_are_refused() {
        for head in [
            "name=\"x\"; name=\"model\"",
            "name=\"x\"; name*=UTF-8''model",
            "name*=UTF-8''model",
            "name=\"mode%6c\"",
            "name=\"mo\\del\"",
            "name='model'; x=y",
            "name=\"x\"; filename=\"\\\"; name=\"model\"",
            "name=\"x\"; filename=\"a; name=model\"",
            "name=\"x\r\n Content-Disposition: form-data; name=\"model\"",
            "name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"",
            "name=\"x\"\nContent-Disposition: form-data; name=\"model\"",
            "name=\"x\"\r\nContent-Transfer-Encoding: base64",
            "name=\"x\" name=\"model\"",
            "name =\"model\"",
            "filename=\"x\"",
        ] {
            let refused = model_of(&form(&[["name=\"model\"", "a"], [head, "b"]]));
            assert!(
                matches!(refused, Err(FormError::Body(_))),
                "{head}: {refused:?}"
            );
        }
    }

    #[test]
    fn parts_that_parsers_divide_differently_are_refused() {
        let whole = form(&[["name=\"model\"", "a"]]);
        assert!(model_of(&whole).is_ok());
        for broken in [
            String::new(),
            "--xy".to_owned(),
            "--xy\r\n\r\n--xy".to_owned(),
            "--xy\r\nx; name=\"model\"\r\n\r\n--xy".to_owned(),
            format!("\r\n{whole}"),
            format!("preamble\r\n{whole}"),
            format!("{whole}--xy\r\n"),
            format!("{whole}epilogue"),
            whole.replace("--xy--\r\n", ""),
            whole.replace("a\r\n--xy--", "a\n--xy--"),
            whole.replace("a\r\n--xy--", "a\r\n--xyz\r\n--xy--"),
            whole.replace("a\r\n--xy--", "a --xy\r\n--xy--"),
            whole.replace("--xy\r\n", "--xy \r\n"),
            whole.replace("form-data", "attachment"),
            whole.replace("Content-Disposition", "Content-Disposition "),
            whole.replace("Content-Disposition", "X"),
        ] {
            let refused = model_of(&broken);
            assert!(
                matches!(refused, Err(FormError::Body(_))),
                "{broken}: {refused:?}"
            );
        }
        let empty = whole.replace("\r\na\r\n", "\r\n\r\n");
        assert_eq!(model_of(&empty), Err(FormError::NoName));
    }

    #[test]
    fn one_boundary_is_needed() {
        let body = form(&[["name=\"model\"", "a"]]);
        for kinds in [
            &[][..],
            &[FORM, FORM],
            &["multipart/form-data"],
            &["multipart/mixed; boundary=xy"],
            &["text/plain; boundary=xy"],
            &["multipart/form-data; boundary="],
            &["multipart/form-data; boundary=xy; boundary=BB"],
            &["multipart/form-data; boundary=xy; Boundary=xy"],
            &["multipart/form-data; xboundary=AA; boundary=xy"],
            &["multipart/form-data; boundary*=xy"],
            &["multipart/form-data; boundary=xy, multipart/form-data; boundary=BB"],
            &["multipart/form-data; boundary=\"xy"],
            &["multipart/form-data; boundary=\"x\\y\""],
            &["multipart/form-data; boundary=\"xy \""],
            &["multipart/form-data; boundary = xy"],
            &["multipart/form-data boundary=xy"],
        ] {
            let refused = find_model_field(&headers(kinds), body.as_bytes());
            assert!(
                matches!(refused, Err(FormError::ContentType(_))),
                "{kinds:?}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_boundary_has_a_longest_length() {
        for length in [MAX_BOUNDARY, MAX_BOUNDARY + 1] {
            let boundary = "b".repeat(length);
            let body = form(&[["name=\"model\"", "a"]]).replace("xy", &boundary);
            let kind = format!("multipart/form-data; boundary={boundary}");
            let found = find_model_field(&headers(&[&kind]), body.as_bytes());
            assert_eq!(found.is_ok(), length == MAX_BOUNDARY, "{length}");
        }
    }
}
