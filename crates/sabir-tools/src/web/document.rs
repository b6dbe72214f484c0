//! From what a server sent to what a model can read: text, or a picture.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, UTF_8};
use sabir_call::Image;

use super::markdown;
use super::request::WebResponse;

/// Providers refuse larger pictures.
const MAX_PICTURE_BYTES: usize = 3_750_000;
/// How far into HTML its own word on its encoding is looked for, and a NUL byte into anything.
const HEAD_BYTES: usize = 8 << 10;

/// Types that are text though their name does not say so.
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
/// How pictures begin. What the server calls them does not count.
const PICTURE_SIGNATURES: [(&[u8], &str); 5] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF", "image/webp"),
];

/// What a server sent, as a model can read it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WebDocument {
    /// Words.
    Text {
        /// What they are, for words about them: `text/html, as Markdown`.
        kind: String,
        text: String,
    },
    /// A picture.
    Picture(Image),
}

/// What kind of thing a body is, after its type and its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Html,
    Text,
    Picture(&'static str),
    Other,
}

/// Reads an answer. The error says what it is instead.
pub(crate) fn read_document(answer: &WebResponse) -> Result<WebDocument, String> {
    let media_type = media_type(&answer.content_type);
    let named = if media_type.is_empty() {
        "a document without a type".to_owned()
    } else {
        media_type.clone()
    };
    match detect_kind(&media_type, &answer.body) {
        BodyKind::Picture(media_type) if answer.cut || answer.body.len() > MAX_PICTURE_BYTES => {
            Err(format!(
                "`{}` is a picture ({media_type}) of more than {MAX_PICTURE_BYTES} bytes, which is too large to be shown.",
                answer.place
            ))
        }
        BodyKind::Picture(media_type) => {
            let data = STANDARD.encode(&answer.body);
            Ok(WebDocument::Picture(Image {
                media_type: media_type.to_owned(),
                data,
            }))
        }
        BodyKind::Html => {
            let page = markdown::render_markdown(&decode_body(answer, true), answer.place.url());
            let part = if page.main {
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
            text: decode_body(answer, false),
        }),
        BodyKind::Other => Err(format!(
            "`{}` is {named} of {}{} bytes, which fetch_url cannot show: it knows text, HTML and pictures (PNG, JPEG, GIF, WebP).",
            answer.place,
            if answer.cut { "more than " } else { "" },
            answer.body.len()
        )),
    }
}

/// The type without its parameters, in lower case; what cannot be one is none.
fn media_type(content_type: &str) -> String {
    let name = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || "/+-._".contains(c);
    if name.len() <= 100 && name.contains('/') && name.chars().all(fits) {
        name
    } else {
        String::new()
    }
}

fn detect_kind(media_type: &str, body: &[u8]) -> BodyKind {
    let is_webp = |kind: &str| kind != "image/webp" || body.get(8..12) == Some(b"WEBP");
    if let Some((_, kind)) = PICTURE_SIGNATURES
        .iter()
        .find(|(start, kind)| body.starts_with(start) && is_webp(kind))
    {
        return BodyKind::Picture(kind);
    }
    // UTF-16 is full of NUL bytes.
    let marked = body.starts_with(b"\xff\xfe") || body.starts_with(b"\xfe\xff");
    let binary = !marked && body.iter().take(HEAD_BYTES).any(|byte| *byte == 0);
    let (family, name) = media_type.split_once('/').unwrap_or_default();
    let text = family == "text"
        || TEXT_SUBTYPES.contains(&name)
        || name.ends_with("+json")
        || name.ends_with("+xml")
        || name.ends_with("+yaml");
    match (family, name) {
        _ if binary => BodyKind::Other,
        ("text", "html") | ("application", "xhtml+xml") => BodyKind::Html,
        _ if text => BodyKind::Text,
        // Servers call what they do not know a stream of octets.
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

/// The body as text: by its byte order mark, by the server's word, by the page's own, else as UTF-8.
fn decode_body(answer: &WebResponse, html: bool) -> String {
    let told = charset_label(&answer.content_type).or_else(|| {
        let head = String::from_utf8_lossy(answer.body.get(..HEAD_BYTES).unwrap_or(&answer.body))
            .into_owned();
        if html { charset_label(&head) } else { None }
    });
    let (text, ..) = told.unwrap_or(UTF_8).decode(&answer.body);
    let text = text.into_owned();
    // The last character may have been cut.
    if answer.cut {
        text.trim_end_matches('\u{fffd}').to_owned()
    } else {
        text
    }
}

/// The encoding that stands behind the word `charset` first.
fn charset_label(text: &str) -> Option<&'static Encoding> {
    let text = text.to_ascii_lowercase();
    let behind = text
        .split("charset")
        .nth(1)?
        .trim_start()
        .strip_prefix('=')?;
    let name = behind.trim_start_matches(['"', '\'', ' ']);
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
        let place = WebUrl::parse("https://docs.test/x").unwrap();
        WebResponse {
            place,
            status: 200,
            content_type: content_type.to_owned(),
            body: body.to_vec(),
            cut: false,
        }
    }

    #[track_caller]
    fn check(content_type: &str, body: &[u8], kind: &str, text: &str) {
        let expected = WebDocument::Text {
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(read_document(&answer(content_type, body)), Ok(expected));
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
            read_document(&answer("text/html", png)),
            Ok(WebDocument::Picture(image))
        );
        let error = read_document(&WebResponse {
            cut: true,
            ..answer("image/png", png)
        })
        .unwrap_err();
        assert!(error.contains("too large"), "{error}");
        assert!(matches!(
            read_document(&answer("", b"RIFF0000WEBPVP8 ")),
            Ok(WebDocument::Picture(_))
        ));
    }

    #[test]
    fn the_rest_is_said() {
        for (content_type, body) in [
            ("application/pdf", &b"%PDF-1.7"[..]),
            ("text/plain", b"a\0b"),
            ("image/png", b"no picture"),
            ("application/octet-stream", b"\xff\xfe\xfd"),
            ("audio/wav", b"RIFF0000WAVE"),
        ] {
            let error = read_document(&answer(content_type, body)).unwrap_err();
            assert!(error.contains("which fetch_url cannot show"), "{error}");
        }
        assert_eq!(
            read_document(&answer("application/pdf", b"%PDF-1.7")).unwrap_err(),
            "`https://docs.test/x` is application/pdf of 8 bytes, which fetch_url cannot show: it knows text, HTML and pictures \
             (PNG, JPEG, GIF, WebP)."
        );
    }
}
