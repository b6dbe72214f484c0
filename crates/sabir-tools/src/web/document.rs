//! Decodes a response into what a model can read: text, or a picture.
//!
//! The bytes decide about pictures and binary content, and the media type about the rest, because
//! servers often send a wrong type.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, UTF_8};
use sabir_call::Image;

use super::markdown;
use super::request::WebResponse;

/// The size above which providers refuse pictures.
const MAX_IMAGE_BYTES: usize = 3_750_000;
/// The size of a body's start that is searched for the encoding of HTML, and for a NUL byte.
const HEAD_BYTES: usize = 8 << 10;

/// Subtypes that are text although the family of their type is not.
const TEXT_SUBTYPES: [&str; 14] = [
    "json",
    "xml",
    "javascript",
    "ecmascript",
    "x-javascript",
    "typescript",
    "yaml",
    "x-yaml",
    "toml",
    "graphql",
    "sql",
    "x-sh",
    "x-ndjson",
    "x-httpd-php",
];
/// The first bytes of pictures, with their media types.
const PICTURE_SIGNATURES: [(&[u8], &str); 5] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF", "image/webp"),
];

/// A document that a model can read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WebDocument {
    /// Text.
    Text {
        /// The media type and the conversion, such as `text/html, as Markdown`.
        kind: String,
        /// The text.
        text: String,
    },
    /// A picture.
    Picture(Image),
}

/// The reason that a document cannot be shown.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    /// The document is a picture that providers refuse.
    #[error(
        "`{url}` is a picture ({media_type}) of more than {MAX_IMAGE_BYTES} bytes, which is too large to be shown."
    )]
    ImageTooLarge {
        /// The URL of the document.
        url: String,
        /// The media type, by the bytes.
        media_type: &'static str,
    },
    /// The document is neither text nor a picture.
    #[error(
        "`{url}` is {kind} of {}{bytes} bytes, which fetch_url cannot show: it knows text, HTML and pictures (PNG, JPEG, GIF, WebP).",
        if *.is_truncated { "more than " } else { "" }
    )]
    Unsupported {
        /// The URL of the document.
        url: String,
        /// The media type, or "a document without a type".
        kind: String,
        /// The size of the part that was read.
        bytes: usize,
        /// True if the document is longer.
        is_truncated: bool,
    },
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Html,
    Text,
    /// A picture of this media type.
    Picture(&'static str),
    Other,
}

/// Decodes the body of a response.
///
/// # Errors
/// When the document is neither text nor a picture that can be shown.
pub(crate) fn decode_document(response: &WebResponse) -> Result<WebDocument, DocumentError> {
    let media_type = media_type(&response.content_type);
    let named = if media_type.is_empty() {
        "a document without a type".to_owned()
    } else {
        media_type.clone()
    };
    match detect_kind(&media_type, &response.body) {
        BodyKind::Picture(media_type)
            if response.is_truncated || response.body.len() > MAX_IMAGE_BYTES =>
        {
            Err(DocumentError::ImageTooLarge {
                url: response.url.to_string(),
                media_type,
            })
        }
        BodyKind::Picture(media_type) => {
            let data = STANDARD.encode(&response.body);
            Ok(WebDocument::Picture(Image {
                media_type: media_type.to_owned(),
                data,
            }))
        }
        BodyKind::Html => {
            let page =
                markdown::render_markdown(&decode_body(response, true), response.url.as_url());
            let part = if page.is_main_part {
                "the main part as Markdown"
            } else {
                "as Markdown"
            };
            Ok(WebDocument::Text {
                kind: format!("{named}, {part}"),
                text: page.text,
            })
        }
        BodyKind::Text => Ok(WebDocument::Text {
            kind: named,
            text: decode_body(response, false),
        }),
        // PDF for instance: converting it here would need a large parser of untrusted input.
        BodyKind::Other => Err(DocumentError::Unsupported {
            url: response.url.to_string(),
            kind: named,
            bytes: response.body.len(),
            is_truncated: response.is_truncated,
        }),
    }
}

/// Returns the media type without parameters, in lower case; empty if the value is not a media type. The result is shown to the model, so
/// arbitrary text is not passed on.
fn media_type(content_type: &str) -> String {
    let name = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    // The characters of a token in RFC 6838.
    let fits = |c: char| c.is_ascii_alphanumeric() || "/+-._".contains(c);
    if name.len() <= 100 && name.contains('/') && name.chars().all(fits) {
        name
    } else {
        String::new()
    }
}

/// Detects the kind of a body by its media type and its first bytes.
fn detect_kind(media_type: &str, body: &[u8]) -> BodyKind {
    // WAV and AVI files begin with `RIFF` too; the format follows at offset 8.
    let is_webp = |kind: &str| kind != "image/webp" || body.get(8..12) == Some(b"WEBP");
    if let Some((_, kind)) = PICTURE_SIGNATURES
        .iter()
        .find(|(start, kind)| body.starts_with(start) && is_webp(kind))
    {
        return BodyKind::Picture(kind);
    }
    // UTF-16 is full of NUL bytes, and is recognised by its byte order mark.
    let is_utf16 = body.starts_with(b"\xff\xfe") || body.starts_with(b"\xfe\xff");
    let is_binary = !is_utf16 && body.iter().take(HEAD_BYTES).any(|byte| *byte == 0);
    let (family, name) = media_type.split_once('/').unwrap_or_default();
    let is_text = family == "text"
        || TEXT_SUBTYPES.contains(&name)
        || name.ends_with("+json")
        || name.ends_with("+xml")
        || name.ends_with("+yaml");
    match (family, name) {
        _ if is_binary => BodyKind::Other,
        ("text", "html") | ("application", "xhtml+xml") => BodyKind::Html,
        _ if is_text => BodyKind::Text,
        // Servers send `application/octet-stream` for files that they do not know.
        ("", _) | ("application", "octet-stream") if std::str::from_utf8(body).is_ok() => {
            let start: Vec<u8> = body
                .trim_ascii_start()
                .iter()
                .take(14)
                .map(u8::to_ascii_lowercase)
                .collect();
            if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") {
                BodyKind::Html
            } else {
                BodyKind::Text
            }
        }
        _ => BodyKind::Other,
    }
}

/// Decodes the body as text. A byte order mark decides about the encoding, otherwise the header,
/// otherwise the page itself; UTF-8 is the default. This is the order of the WHATWG encoding standard.
fn decode_body(response: &WebResponse, is_html: bool) -> String {
    let declared = charset_label(&response.content_type).or_else(|| {
        let head = response.body.get(..HEAD_BYTES).unwrap_or(&response.body);
        is_html
            .then(|| charset_label(&String::from_utf8_lossy(head)))
            .flatten()
    });
    // `decode` lets a byte order mark override the given encoding.
    let (text, ..) = declared.unwrap_or(UTF_8).decode(&response.body);
    let text = text.into_owned();
    // The last character may have been cut.
    if response.is_truncated {
        text.trim_end_matches('\u{fffd}').to_owned()
    } else {
        text
    }
}

/// Returns the encoding after the first `charset=` in a header or in HTML.
fn charset_label(text: &str) -> Option<&'static Encoding> {
    let text = text.to_ascii_lowercase();
    let value = text
        .split("charset")
        .nth(1)?
        .trim_start()
        .strip_prefix('=')?;
    let name = value.trim_start_matches(['"', '\'', ' ']);
    let name = name
        .split(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c))
        .next()?;
    Encoding::for_label(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::web_url::WebUrl;
    use super::*;

    fn answer(content_type: &str, body: &[u8]) -> WebResponse {
        let url = WebUrl::parse("https://docs.test/x").unwrap();
        WebResponse {
            url,
            status: 200,
            content_type: content_type.to_owned(),
            body: body.to_vec(),
            is_truncated: false,
        }
    }

    #[track_caller]
    fn check(content_type: &str, body: &[u8], kind: &str, text: &str) {
        let expected = WebDocument::Text {
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(decode_document(&answer(content_type, body)), Ok(expected));
    }

    #[test]
    fn text_is_text() {
        check("text/plain", b"caf\xc3\xa9", "text/plain", "café");
        check(
            "text/plain; charset=ISO-8859-1",
            b"caf\xe9",
            "text/plain",
            "café",
        );
        check(
            "Text/Plain ; CHARSET = \"windows-1252\"",
            b"\x80",
            "text/plain",
            "€",
        );
        check(
            "text/plain; charset=shift_jis",
            b"\x93\xfa\x96\x7b",
            "text/plain",
            "日本",
        );
        check("text/plain", b"\xef\xbb\xbfx", "text/plain", "x");
        check("text/plain", b"\xff\xfex\0", "text/plain", "x");
        check(
            "text/plain; charset=none-such",
            b"a\xff",
            "text/plain",
            "a\u{fffd}",
        );
        check(
            "application/json",
            b"{\"a\": 1}",
            "application/json",
            "{\"a\": 1}",
        );
        check(
            "application/activity+json",
            b"{}",
            "application/activity+json",
            "{}",
        );
        check(
            "application/rss+xml",
            b"<x/>",
            "application/rss+xml",
            "<x/>",
        );
        check("image/svg+xml", b"<svg/>", "image/svg+xml", "<svg/>");
        check("", b"x", "a document without a type", "x");
        check("nonsense <b>", b"x", "a document without a type", "x");
        check(
            "application/octet-stream",
            b"x",
            "application/octet-stream",
            "x",
        );
    }

    #[test]
    fn html_is_markdown() {
        check(
            "text/html",
            b"<h1>A</h1>b",
            "text/html, as Markdown",
            "# A\n\nb",
        );
        check(
            "text/html",
            b"<meta charset='iso-8859-1'><p>caf\xe9",
            "text/html, as Markdown",
            "café",
        );
        check(
            "text/html; charset=utf-8",
            b"<meta charset=latin1>\xc3\xa9",
            "text/html, as Markdown",
            "é",
        );
        check(
            "",
            b"\n <!DOCTYPE HTML><p>x",
            "a document without a type, as Markdown",
            "x",
        );
        let main = format!("<p>menu<main>{}</main>foot", "word ".repeat(50));
        check(
            "text/html",
            main.as_bytes(),
            "text/html, the main part as Markdown",
            "word ".repeat(50).trim_end(),
        );
    }

    #[test]
    fn pictures_are_known_by_their_bytes() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        let image = Image {
            media_type: "image/png".to_owned(),
            data: STANDARD.encode(png),
        };
        assert_eq!(
            decode_document(&answer("text/html", png)),
            Ok(WebDocument::Picture(image))
        );
        let error = decode_document(&WebResponse {
            is_truncated: true,
            ..answer("image/png", png)
        })
        .unwrap_err();
        assert!(
            matches!(error, DocumentError::ImageTooLarge { .. }),
            "{error}"
        );
        assert!(matches!(
            decode_document(&answer("", b"RIFF0000WEBPVP8 ")),
            Ok(WebDocument::Picture(_))
        ));
    }

    #[test]
    fn other_documents_are_refused() {
        for (content_type, body) in [
            ("application/pdf", &b"%PDF-1.7"[..]),
            ("text/plain", b"a\0b"),
            ("image/png", b"no picture"),
            ("application/octet-stream", b"\xff\xfe\xfd"),
            ("audio/wav", b"RIFF0000WAVE"),
        ] {
            let error = decode_document(&answer(content_type, body)).unwrap_err();
            assert!(
                matches!(error, DocumentError::Unsupported { .. }),
                "{error}"
            );
        }
        assert_eq!(
            decode_document(&answer("application/pdf", b"%PDF-1.7"))
                .unwrap_err()
                .to_string(),
            "`https://docs.test/x` is application/pdf of 8 bytes, which fetch_url cannot show: it knows text, HTML and pictures \
             (PNG, JPEG, GIF, WebP)."
        );
    }
}
