//! Reading a client's JSON body, with the path of whatever is wrong.

use serde_json::{Map, Value};

use sabir_call::{Call, CallId, CallResult, Ending, Image, Message, Part, Role, ToolSet, ToolSpec};

use crate::wire::RequestError;

/// A place in a body.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a Value,
}

const NULL: &Value = &Value::Null;

impl<'a> Field<'a> {
    /// The whole body.
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    /// A member; JSON `null` where it is missing.
    pub(crate) fn get(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, value: self.value.get(key).unwrap_or(NULL) }
    }

    /// Whether it is missing or `null`.
    pub(crate) fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// The elements of a list; none where it is missing.
    pub(crate) fn items(&self) -> Result<Vec<Self>, RequestError> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let field = |(index, value)| Self { path: format!("{}[{index}]", self.path), value };
                Ok(items.iter().enumerate().map(field).collect())
            }
            _ => Err(self.wrong("a list")),
        }
    }

    /// A string.
    pub(crate) fn text(&self) -> Result<&'a str, RequestError> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// A string; the empty one where it is missing.
    pub(crate) fn text_or_empty(&self) -> Result<&'a str, RequestError> {
        if self.is_absent() { Ok("") } else { self.text() }
    }

    /// An object; an empty one where it is missing.
    pub(crate) fn object(&self) -> Result<Map<String, Value>, RequestError> {
        match self.value {
            Value::Null => Ok(Map::new()),
            Value::Object(object) => Ok(object.clone()),
            _ => Err(self.wrong("an object")),
        }
    }

    /// A list of strings, or one string; none where it is missing.
    pub(crate) fn texts(&self) -> Result<Vec<String>, RequestError> {
        if let Value::String(text) = self.value {
            return Ok(vec![text.clone()]);
        }
        self.items()?.iter().map(|item| item.text().map(str::to_owned)).collect()
    }

    /// A whole number; `None` where it is missing.
    pub(crate) fn count(&self) -> Result<Option<u64>, RequestError> {
        if self.is_absent() {
            return Ok(None);
        }
        self.value.as_u64().map(Some).ok_or_else(|| self.wrong("a whole number"))
    }

    /// A number; `None` where it is missing.
    pub(crate) fn number(&self) -> Result<Option<f64>, RequestError> {
        if self.is_absent() {
            return Ok(None);
        }
        self.value.as_f64().map(Some).ok_or_else(|| self.wrong("a number"))
    }

    /// Whether it is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// An error that names this place, what was expected and what was found.
    pub(crate) fn wrong(&self, expected: &str) -> RequestError {
        let found: String = self.value.to_string().chars().take(80).collect();
        let path = if self.path.is_empty() { "body" } else { &self.path };
        RequestError::new(path, format!("expected {expected}, found {found}"))
    }
}

/// A picture as a `data:` URL, which is the only kind that a history holds.
pub(crate) fn image(url: &Field<'_>) -> Result<Image, RequestError> {
    let picture = url.text()?.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) = picture.ok_or_else(|| url.wrong("a base64 data URL"))?;
    Ok(Image { media_type: media_type.to_owned(), data: data.to_owned() })
}

/// The words of parts, joined, and their pictures. Other parts are in no result.
pub(crate) fn split(parts: Vec<Part>) -> (String, Vec<Image>) {
    let (mut words, mut pictures) = (String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text { text } => words.push_str(&text),
            Part::Image(picture) => pictures.push(picture),
            _ => {}
        }
    }
    (words, pictures)
}

/// A tool as OpenAI describes a function, and others after it.
pub(crate) fn function(described: &Field<'_>) -> Result<ToolSpec, RequestError> {
    let schema = Value::Object(described.get("parameters").object()?);
    Ok(ToolSpec::new(described.get("name").text()?, described.get("description").text_or_empty()?, schema))
}

/// Tools that were read one by one.
pub(crate) fn tool_set(specs: Vec<ToolSpec>) -> Result<ToolSet, RequestError> {
    ToolSet::new(specs).map_err(|error| RequestError::new("tools", error.to_string()))
}

/// A history under construction: joins messages of one role, and gives results the names of their calls.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) messages: Vec<Message>,
}

impl History {
    /// Adds parts to the last message if it has that role, or else to a new one.
    pub(crate) fn push(&mut self, role: Role, parts: Vec<Part>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => self.messages.push(Message { role, parts }),
        }
    }

    /// The result of a call: its words and its pictures. It has the name of the latest call with its id.
    pub(crate) fn result(&self, id: &str, failed: bool, (content, images): (String, Vec<Image>)) -> Part {
        let mut calls = self.messages.iter().rev().flat_map(Message::calls);
        let name = calls.find(|call| call.id.as_str() == id).map(|call| call.name.clone()).unwrap_or_default();
        let ending = if failed { Ending::Failed } else { Ending::Done };
        Part::Result(CallResult { id: CallId::new(id), name, ending, content, images })
    }
}

/// A native call.
pub(crate) fn call(id: &str, name: &str, arguments: Map<String, Value>) -> Part {
    Part::Call(Call { id: CallId::new(id), name: name.to_owned(), arguments, dialect: None })
}
