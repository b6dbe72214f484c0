//! Reads a client's JSON body and reports the path of anything that is wrong.

use serde_json::{Map, Value};

use sabir_call::{
    Call, CallId, CallResult, Image, InlineInstruction, Message, MessagePart, Request,
    RequestOptions, ResponseFormat, Role, ToolChoice, ToolResultStatus, ToolSet, ToolSpec,
};

use crate::client_request::RequestError;
use crate::read_tracker::ReadTracker;

/// A value in a body, with its path.
///
/// A missing member is a field with the value `null`, so a chain of `get` calls needs no check at each step. The path has the form that
/// clients know: `messages[2].content[0].type`.
#[derive(Debug, Clone)]
pub(crate) struct JsonField<'a> {
    /// The path from the body; empty for the body itself.
    pub(crate) path: String,
    /// The value; `null` if the member is missing.
    pub(crate) value: &'a Value,
    /// Records what is read, where it matters.
    tracker: Option<&'a ReadTracker>,
}

/// The value of missing members.
const NULL: &Value = &Value::Null;

impl<'a> JsonField<'a> {
    /// Returns the whole body.
    pub(crate) fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
            tracker: None,
        }
    }

    /// Returns the whole body, and records what is read of it.
    pub(crate) fn tracked(value: &'a Value, tracker: &'a ReadTracker) -> Self {
        Self {
            tracker: Some(tracker),
            ..Self::root(value)
        }
    }

    /// Returns the value to be taken with all its members.
    pub(crate) fn whole_value(&self) -> &'a Value {
        if let Some(tracker) = self.tracker {
            tracker.note_fully_read(self.value);
        }
        self.value
    }

    /// Returns a member; JSON `null` if it is missing.
    pub(crate) fn get(&self, key: &str) -> Self {
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        let value = self.value.get(key);
        if let Some(tracker) = self.tracker {
            tracker.note_member(self.value, value);
        }
        Self {
            path,
            value: value.unwrap_or(NULL),
            tracker: self.tracker,
        }
    }

    /// Returns true if the value is missing or `null`.
    pub(crate) fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Returns the elements of a list; none if it is missing.
    ///
    /// # Errors
    /// The value is neither a list nor missing.
    pub(crate) fn list_items(&self) -> Result<Vec<Self>, RequestError> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let field = |(index, value)| {
                    if let Some(tracker) = self.tracker {
                        tracker.note_member(self.value, Some(value));
                    }
                    Self {
                        path: format!("{}[{index}]", self.path),
                        value,
                        tracker: self.tracker,
                    }
                };
                Ok(items.iter().enumerate().map(field).collect())
            }
            _ => Err(self.mismatch_error("a list")),
        }
    }

    /// Returns a string.
    ///
    /// # Errors
    /// The value is missing or no string.
    pub(crate) fn required_text(&self) -> Result<&'a str, RequestError> {
        self.value
            .as_str()
            .ok_or_else(|| self.mismatch_error("a string"))
    }

    /// Returns a string; an empty one if it is missing.
    pub(crate) fn text_or_empty(&self) -> Result<&'a str, RequestError> {
        if self.is_absent() {
            Ok("")
        } else {
            self.required_text()
        }
    }

    /// Returns an object; an empty one if it is missing.
    ///
    /// # Errors
    /// The value is neither an object nor missing.
    pub(crate) fn object_or_empty(&self) -> Result<Map<String, Value>, RequestError> {
        match self.value {
            Value::Null => Ok(Map::new()),
            Value::Object(object) => {
                self.whole_value();
                Ok(object.clone())
            }
            _ => Err(self.mismatch_error("an object")),
        }
    }

    /// Returns a list of strings, also for one single string; none if it is missing.
    ///
    /// OpenAI accepts both forms for `stop`.
    ///
    /// # Errors
    /// An element is not a string.
    pub(crate) fn text_list(&self) -> Result<Vec<String>, RequestError> {
        if let Value::String(text) = self.value {
            return Ok(vec![text.clone()]);
        }
        self.list_items()?
            .iter()
            .map(|item| item.required_text().map(str::to_owned))
            .collect()
    }

    /// Returns a whole number; `None` if it is missing.
    ///
    /// # Errors
    /// The value is negative, has a fraction, or is not a number. `12.0` is refused as well: clients,
    /// unlike providers, are expected to write what they mean.
    pub(crate) fn optional_count(&self) -> Result<Option<u64>, RequestError> {
        if self.is_absent() {
            return Ok(None);
        }
        self.value
            .as_u64()
            .map(Some)
            .ok_or_else(|| self.mismatch_error("a whole number"))
    }

    /// Returns a number; `None` if it is missing.
    pub(crate) fn optional_number(&self) -> Result<Option<f64>, RequestError> {
        if self.is_absent() {
            return Ok(None);
        }
        self.value
            .as_f64()
            .map(Some)
            .ok_or_else(|| self.mismatch_error("a number"))
    }

    /// Returns true if the value is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// Builds an error with the path, the expected and the found value.
    ///
    /// The found value is cut after 80 characters.
    pub(crate) fn mismatch_error(&self, expected: &str) -> RequestError {
        // A mismatch may be a whole document: 80 characters show what it is.
        let found: String = self.value.to_string().chars().take(80).collect();
        let path = if self.path.is_empty() {
            "body"
        } else {
            &self.path
        };
        RequestError::new(path, format!("expected {expected}, found {found}"))
    }
}

/// Decodes an image given as a `data:` URL or by its address.
///
/// An address is not fetched here: the provider does that, if its wire can express it. A gateway
/// that fetched addresses for its clients would let them reach its own network.
///
/// # Errors
/// Another scheme than `http`, `https` or `data`, and data that is not marked as base64.
pub(crate) fn decode_image_url(url: &JsonField<'_>) -> Result<MessagePart, RequestError> {
    let text = url.required_text()?;
    if ["https://", "http://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
    {
        return Ok(MessagePart::ImageUrl {
            url: text.to_owned(),
        });
    }
    let picture = text
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) =
        picture.ok_or_else(|| url.mismatch_error("a base64 data URL, or an address"))?;
    Ok(MessagePart::Image(Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    }))
}

/// The content of a result.
#[derive(Debug, Default)]
pub(crate) struct ResultContent {
    /// The text.
    pub(crate) text: String,
    /// The images.
    pub(crate) images: Vec<Image>,
    /// Documents and addresses of images, which a result in the common form cannot hold. They follow the result, after a caption.
    pub(crate) files: Vec<MessagePart>,
}

impl ResultContent {
    /// Sorts the parts of a result. Its texts stand on lines of their own: some are documents.
    pub(crate) fn from_parts(parts: Vec<MessagePart>) -> Self {
        let mut content = Self::default();
        for part in parts {
            match part {
                MessagePart::Text { text } => {
                    if !content.text.is_empty() && !content.text.ends_with('\n') {
                        content.text.push('\n');
                    }
                    content.text.push_str(&text);
                }
                MessagePart::Image(picture) => content.images.push(picture),
                file => content.files.push(file),
            }
        }
        content
    }
}

/// Joins parts of which only text is allowed.
///
/// # Errors
/// A part that is not text.
pub(crate) fn require_text_only(
    content: &JsonField<'_>,
    parts: Vec<MessagePart>,
) -> Result<String, RequestError> {
    let mut words = String::new();
    for part in parts {
        match part {
            MessagePart::Text { text } => words.push_str(&text),
            _ => return Err(content.mismatch_error("text only")),
        }
    }
    Ok(words)
}

/// Decodes a tool in the form of an OpenAI function, which other APIs copied.
///
/// The shape is `{"name": …, "description": …, "parameters": {…}, "strict": …}`. Names of strict
/// tools are added to `options.strict`.
///
/// # Errors
/// The name is missing, or a member has the wrong type.
pub(crate) fn decode_function_tool(
    described: &JsonField<'_>,
    options: &mut RequestOptions,
) -> Result<ToolSpec, RequestError> {
    let name = described.get("name").required_text()?;
    let schema = Value::Object(described.get("parameters").object_or_empty()?);
    if described.get("strict").is_true() {
        options.strict.push(name.to_owned());
    }
    Ok(ToolSpec::new(
        name,
        described.get("description").text_or_empty()?,
        schema,
    ))
}

/// Decodes a response format as OpenAI writes it; `inside` is the object that holds the schema.
///
/// # Errors
/// The type is unknown, or a member has the wrong type.
pub(crate) fn decode_openai_format(
    format: &JsonField<'_>,
    inside: &JsonField<'_>,
) -> Result<ResponseFormat, RequestError> {
    let kind = format.get("type");
    Ok(match kind.text_or_empty()? {
        "" | "text" => ResponseFormat::Text,
        "json_object" => ResponseFormat::Json,
        "json_schema" => ResponseFormat::Schema {
            name: inside.get("name").text_or_empty()?.to_owned(),
            schema: inside.get("schema").object_or_empty()?.into(),
            strict: inside.get("strict").is_true(),
        },
        _ => return Err(kind.mismatch_error("`text`, `json_object` or `json_schema`")),
    })
}

/// Decodes OpenAI's choice among some of the tools and removes the others. `name` finds the name in
/// an entry of the list.
///
/// The shape is `{"mode": "auto" | "required", "tools": [{…}, …]}`.
///
/// # Errors
/// A name is missing, or the mode is none of the two.
pub(crate) fn restrict_allowed_tools(
    list: &JsonField<'_>,
    tools: &mut Vec<ToolSpec>,
    name: for<'f> fn(&JsonField<'f>) -> JsonField<'f>,
) -> Result<ToolChoice, RequestError> {
    let mut names = Vec::new();
    for tool in list.get("tools").list_items()? {
        names.push(name(&tool).required_text()?.to_owned());
    }
    // No common option limits the choice to several tools, so the others are not offered at all.
    tools.retain(|tool| names.contains(&tool.name));
    let mode = list.get("mode");
    match mode.required_text()? {
        "auto" => Ok(ToolChoice::Auto),
        "required" => Ok(ToolChoice::Required),
        _ => Err(mode.mismatch_error("`auto` or `required`")),
    }
}

/// Collects tools into a set.
///
/// # Errors
/// The tools do not form a set, for example because two have the same name.
pub(crate) fn build_tool_set(specs: Vec<ToolSpec>) -> Result<ToolSet, RequestError> {
    ToolSet::new(specs).map_err(|error| RequestError::new("tools", error.to_string()))
}

/// Builds a history: joins adjacent messages of one role, and gives results the names of their
/// calls.
#[derive(Debug, Default)]
pub(crate) struct HistoryBuilder {
    /// The messages so far; no two neighbours have the same role.
    pub(crate) messages: Vec<Message>,
    /// The instructions behind the first message, which are part of the system prompt as well.
    pub(crate) instructions: Vec<InstructionPosition>,
}

/// The position of an instruction in a client's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstructionPosition {
    /// The index of the message that it follows, or in whose midst it is.
    message: usize,
    /// The number of that message's parts before it.
    part: usize,
    /// The text.
    text: String,
}

/// Puts instructions at their positions in the history of a request.
pub(crate) fn place_instructions(request: &mut Request, positions: Vec<InstructionPosition>) {
    let mut messages: Vec<Message> = request.messages.iter().cloned().collect();
    let mut placed: Vec<InlineInstruction> = Vec::new();
    // From the end, so that the indexes of earlier positions stay right.
    for InstructionPosition {
        message,
        part,
        text,
    } in positions.into_iter().rev()
    {
        if let Some(whole) = messages.get_mut(message)
            && part < whole.parts.len()
        {
            let rest = Message {
                role: whole.role,
                parts: whole.parts.split_off(part),
            };
            messages.insert(message + 1, rest);
            for later in &mut placed {
                later.after += 1;
            }
        }
        if !text.trim().is_empty() {
            let after = message + 1;
            placed.push(InlineInstruction { after, text });
        }
    }
    placed.reverse();
    // Results directly follow their calls: no provider accepts anything between them.
    for instruction in &mut placed {
        let is_result = |part: &MessagePart| matches!(part, MessagePart::Result(_));
        if messages
            .get(instruction.after)
            .is_some_and(|next| next.parts.first().is_some_and(is_result))
        {
            instruction.after += 1;
        }
    }
    request.messages = messages.into();
    request.instructions = placed;
}

/// Returns the instructions before the message with that index.
pub(crate) fn instructions_before(
    request: &Request,
    index: usize,
) -> impl Iterator<Item = &InlineInstruction> {
    let is_last = index >= request.messages.len();
    request.instructions.iter().filter(move |instruction| {
        instruction.after == index || (is_last && instruction.after > index)
    })
}

impl HistoryBuilder {
    /// Adds parts to the last message if it has the same role, else to a new one.
    pub(crate) fn push_parts(&mut self, role: Role, parts: Vec<MessagePart>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.parts.extend(parts),
            // A message without parts would break the alternation of roles for nothing.
            _ if parts.is_empty() => {}
            _ => self.messages.push(Message { role, parts }),
        }
    }

    /// Notes the position of an instruction, if a message precedes it.
    pub(crate) fn note_instruction(&mut self, text: &str) {
        if let Some(last) = self.messages.last() {
            self.instructions.push(InstructionPosition {
                message: self.messages.len() - 1,
                part: last.parts.len(),
                text: text.to_owned(),
            });
        }
    }

    /// Builds the result of a call, with the files that follow it. It gets the tool's name from the
    /// latest call with this id.
    pub(crate) fn build_result(
        &self,
        id: &str,
        failed: bool,
        content: ResultContent,
    ) -> Vec<MessagePart> {
        // The latest call counts, because ids may repeat in a long history.
        let mut calls = self.messages.iter().rev().flat_map(Message::calls);
        let name = calls
            .find(|call| call.id.as_str() == id)
            .map(|call| call.name.clone())
            .unwrap_or_default();
        let ending = if failed {
            ToolResultStatus::Failed
        } else {
            ToolResultStatus::Done
        };
        let result = CallResult {
            id: CallId::new(id),
            name,
            ending,
            content: content.text,
            images: content.images,
        };
        result_with_files(result, content.files)
    }
}

/// Returns a result and the files that belong to it, after a caption.
pub(crate) fn result_with_files(result: CallResult, files: Vec<MessagePart>) -> Vec<MessagePart> {
    let noun = if files.len() == 1 { "file" } else { "files" };
    let id = result.id.as_str();
    let caption = format!(
        "[The {noun} of the result of `{}`, call {id}:]",
        result.name
    );
    let mut parts = vec![MessagePart::Result(result)];
    if !files.is_empty() {
        parts.push(MessagePart::text(caption));
        parts.extend(files);
    }
    parts
}

/// Builds a native call.
pub(crate) fn build_call(id: &str, name: &str, arguments: Map<String, Value>) -> MessagePart {
    MessagePart::Call(Call {
        id: CallId::new(id),
        name: name.to_owned(),
        arguments,
        dialect: None,
    })
}
