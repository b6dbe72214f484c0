//! Translates documents from a client of one wire to a provider of another.
//!
//! A PDF is kept as state of the client's wire, so that a provider of the same wire gets it with
//! all its members. Every other wire that has documents gets its data and its name in the form of
//! its own. A document of text becomes text, which every provider reads.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use sabir_call::OpaqueState;
use serde_json::{Value, json};

use crate::{anthropic, bedrock, gemini, openai_chat, openai_responses};

/// Base64 with or without padding.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The media type of documents that every wire with documents takes.
pub(crate) const PDF: &str = "application/pdf";

/// The name of a document without one, where the API requires a name.
const DEFAULT_NAME: &str = "document.pdf";

/// A PDF document from a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PdfDocument<'a> {
    /// The data, base64.
    data: &'a str,
    /// The name of its file, or its title.
    name: Option<&'a str>,
    /// Members that only the wire of the document has.
    own_members: Vec<&'a str>,
}

impl<'a> PdfDocument<'a> {
    /// Reads the document in a client's part; `None` if it is something else.
    pub(crate) fn from_state(state: &'a OpaqueState) -> Option<Self> {
        let data = &state.data;
        let text = |value: &'a Value, key: &str| value.get(key).and_then(Value::as_str);
        let document = match state.wire.as_str() {
            anthropic::NAME => {
                let source = data.get("source").filter(|_| is_type(data, "document"))?;
                let is_pdf = is_type(source, "base64") && text(source, "media_type") == Some(PDF);
                Self {
                    data: text(source, "data").filter(|_| is_pdf)?,
                    name: text(data, "title"),
                    // A cache mark is part of the request's options.
                    own_members: other_members(data, &["type", "source", "title", "cache_control"]),
                }
            }
            openai_chat::NAME => {
                let file = data.get("file").filter(|_| is_type(data, "file"))?;
                let mut own_members = other_members(data, &["type", "file"]);
                own_members.extend(other_members(file, &["file_data", "filename"]));
                Self {
                    data: pdf_of_url(text(file, "file_data")?)?,
                    name: text(file, "filename"),
                    own_members,
                }
            }
            openai_responses::NAME => Self {
                data: pdf_of_url(text(data, "file_data").filter(|_| is_type(data, "input_file"))?)?,
                name: text(data, "filename"),
                own_members: other_members(data, &["type", "file_data", "filename"]),
            },
            gemini::NAME => {
                let member = |value: &'a Value, names: [&str; 2]| {
                    names.into_iter().find_map(|name| value.get(name))
                };
                let blob = member(data, ["inlineData", "inline_data"])?;
                let kind = member(blob, ["mimeType", "mime_type"])?;
                let mut own_members = other_members(data, &["inlineData", "inline_data"]);
                let known = [
                    "mimeType",
                    "mime_type",
                    "data",
                    "displayName",
                    "display_name",
                ];
                own_members.extend(other_members(blob, &known));
                Self {
                    data: text(blob, "data").filter(|_| kind == PDF)?,
                    name: member(blob, ["displayName", "display_name"]).and_then(Value::as_str),
                    own_members,
                }
            }
            _ => return None,
        };
        Some(document)
    }

    /// Writes the document as a part of a wire; `None` if the wire has no documents.
    pub(crate) fn encode_part(&self, wire: &str) -> Option<Value> {
        let data = self.data;
        let name = self.name.filter(|name| !name.trim().is_empty());
        let url = || format!("data:{PDF};base64,{data}");
        Some(match wire {
            anthropic::NAME => {
                let source = json!({"type": "base64", "media_type": PDF, "data": data});
                let mut block = json!({"type": "document", "source": source});
                if let (Some(name), Some(block)) = (name, block.as_object_mut()) {
                    block.insert("title".to_owned(), json!(name));
                }
                block
            }
            openai_chat::NAME => {
                let name = name.unwrap_or(DEFAULT_NAME);
                json!({"type": "file", "file": {"filename": name, "file_data": url()}})
            }
            openai_responses::NAME => {
                let name = name.unwrap_or(DEFAULT_NAME);
                json!({"type": "input_file", "filename": name, "file_data": url()})
            }
            gemini::NAME => json!({"inlineData": {"mimeType": PDF, "data": data}}),
            bedrock::NAME => {
                let name = bedrock_name(name.unwrap_or(DEFAULT_NAME));
                json!({"document": {"format": "pdf", "name": name, "source": {"bytes": data}}})
            }
            _ => return None,
        })
    }

    /// Returns the members that another wire has no place for.
    pub(crate) fn lost_members(&self, wire: &str) -> Vec<&'a str> {
        let mut lost = self.own_members.clone();
        if wire == gemini::NAME && self.name.is_some() {
            lost.push("name");
        }
        lost
    }
}

/// Writes a client's part for a provider: unchanged on its own wire, a document on others; `None` if
/// the wire has no place for it.
pub(crate) fn encode_user_state(state: &OpaqueState, wire: &str) -> Option<Value> {
    if state.wire == wire {
        return Some(state.data.clone());
    }
    PdfDocument::from_state(state)?.encode_part(wire)
}

/// Media types of text whose names do not begin with `text/`.
const TEXT_TYPES: [&str; 5] = [
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
];

/// Returns the text of a document after its name; `None` if it is not one of text. The data is base64.
pub(crate) fn decode_text_document(media_type: &str, data: &str, name: &str) -> Option<String> {
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if !kind.starts_with("text/") && !TEXT_TYPES.contains(&kind.as_str()) {
        return None;
    }
    // Some encoders break lines, or write the alphabet for URLs.
    let data: String = data
        .chars()
        .filter(|char| !char.is_ascii_whitespace())
        .map(|char| match char {
            '-' => '+',
            '_' => '/',
            char => char,
        })
        .collect();
    let text = String::from_utf8(LENIENT_BASE64.decode(data).ok()?).ok()?;
    Some(if name.is_empty() {
        text
    } else {
        format!("{name}\n\n{text}")
    })
}

/// Returns the text of a document in a `data:` URL after its name; `None` if it is not one of text.
pub(crate) fn decode_text_url(url: &str, name: &str) -> Option<String> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    decode_text_document(kind, data, name)
}

fn is_type(value: &Value, kind: &str) -> bool {
    value.get("type").is_some_and(|known| known == kind)
}

/// Returns the members with a value that are not among the known ones.
fn other_members<'a>(value: &'a Value, known: &[&str]) -> Vec<&'a str> {
    let members = value.as_object().into_iter().flatten();
    members
        .filter(|(key, value)| !known.contains(&key.as_str()) && !value.is_null())
        .map(|(key, _)| key.as_str())
        .collect()
}

/// Returns the data of a PDF in a `data:` URL.
fn pdf_of_url(url: &str) -> Option<&str> {
    let (kind, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    (kind == PDF).then_some(data)
}

/// Returns a name of the characters that Bedrock allows, without the file's extension.
fn bedrock_name(name: &str) -> String {
    let name = name.strip_suffix(".pdf").unwrap_or(name);
    let allow = |sign: char| match sign {
        sign if sign.is_ascii_alphanumeric() || "-()[]".contains(sign) => sign,
        sign if sign.is_whitespace() => ' ',
        _ => '-',
    };
    let name: String = name.chars().map(allow).take(200).collect();
    // Several spaces in a row are refused.
    let words: Vec<&str> = name.split_whitespace().collect();
    let name = words.join(" ");
    if name.is_empty() {
        "document".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(wire: &str, data: Value) -> OpaqueState {
        OpaqueState {
            wire: wire.to_owned(),
            origin: None,
            data,
        }
    }

    #[test]
    fn a_document_is_the_same_on_every_wire() {
        let wires = [
            anthropic::NAME,
            openai_chat::NAME,
            openai_responses::NAME,
            gemini::NAME,
        ];
        let document = PdfDocument {
            data: "JVBERi0=",
            name: Some("My letter.pdf"),
            own_members: Vec::new(),
        };
        for wire in wires {
            let part = state(wire, document.encode_part(wire).unwrap());
            let found = PdfDocument::from_state(&part).unwrap();
            let is_unnamed = document.lost_members(wire) == ["name"];
            assert_eq!(found.data, document.data, "{wire}");
            assert_eq!(found.name.is_none(), is_unnamed, "{wire}");
            assert_eq!(found.own_members, document.own_members, "{wire}");
        }
        assert_eq!(document.encode_part("ollama"), None);
        let bedrock = document.encode_part(bedrock::NAME).unwrap();
        assert_eq!(bedrock["document"]["name"], "My letter");
    }

    #[test]
    fn only_pdf_data_is_a_document() {
        let part = |url: &str| json!({"type": "file", "file": {"file_data": url, "file_id": "f"}});
        let found = |url: &str| {
            let part = state(openai_chat::NAME, part(url));
            PdfDocument::from_state(&part).map(|document| document.own_members.join(","))
        };
        assert_eq!(
            found("data:application/pdf;base64,AA==").as_deref(),
            Some("file_id")
        );
        for other in [
            "data:text/plain;base64,AA==",
            "https://example.com/a.pdf",
            "AA==",
            "",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        let by_url =
            json!({"type": "document", "source": {"type": "url", "url": "https://example.com"}});
        assert_eq!(
            PdfDocument::from_state(&state(anthropic::NAME, by_url)),
            None
        );
    }

    #[test]
    fn documents_of_text_are_read() {
        for (url, expected) in [
            ("data:text/plain;base64,YcO8", Some("n.txt\n\naü")),
            (
                "data:text/plain;charset=utf-8;base64,YQ==",
                Some("n.txt\n\na"),
            ),
            ("data:Application/JSON;base64,e30=", Some("n.txt\n\n{}")),
            ("data:application/pdf;base64,YQ==", None),
            // Not UTF-8, and not base64.
            ("data:text/plain;base64,/w==", None),
            ("data:text/plain;base64,%", None),
            ("data:text/plain,a", None),
            ("https://example.com/a.txt", None),
        ] {
            assert_eq!(decode_text_url(url, "n.txt").as_deref(), expected, "{url}");
        }
        assert_eq!(
            decode_text_document("text/csv", "YQ==", ""),
            Some("a".to_owned())
        );
    }

    #[test]
    fn names_have_only_the_signs_that_bedrock_allows() {
        for (name, expected) in [
            ("a_b.pdf", "a-b"),
            ("ä  b\t[1].pdf", "- b [1]"),
            (" ", "document"),
            (".pdf", "document"),
        ] {
            assert_eq!(bedrock_name(name), expected, "{name:?}");
        }
    }
}
