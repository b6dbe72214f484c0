//! Anthropic Messages: a client's body to a request.
//!
//! # Supported
//! Text, images as base64 or by address, calls, results, thinking with its signature. Blocks of any other type are kept as
//! opaque state of this wire: documents that are no text, what server tools said, redacted thinking. Tools of the provider's
//! own are kept as this wire has them. That there are cache marks is kept, not where they stand: the wire that is asked marks
//! its own places.
//!
//! # Unsupported
//! Images and documents by file, which lie with the provider; images by address and documents that are no text within
//! results: each is an error that names its place.

use sabir_call::{Cache, Format, Image, Opaque, Parallel, Part, Request, Role, ToolChoice, ToolSpec, Wishes};
use serde_json::{Value, json};

use super::thinking;
use super::{NAME, SAID};
use crate::client::{Incoming, Note, RequestError, Wants};
use crate::fate::{Fate, Members, survey};
use crate::field::{Field, History, call, tool_set};
use crate::native::{self, Kind};
use crate::wishes;

/// What becomes of the members of a body.
pub(crate) const MEMBERS: &Members = &[
    ("model", Fate::Read),
    ("messages", Fate::Read),
    ("system", Fate::Read),
    ("tools", Fate::Read),
    ("tool_choice", Fate::Read),
    ("max_tokens", Fate::Read),
    ("temperature", Fate::Read),
    ("top_p", Fate::Read),
    ("top_k", Fate::Read),
    ("stop_sequences", Fate::Read),
    ("stream", Fate::Read),
    ("thinking", Fate::Read),
    ("output_config", Fate::Read),
    ("output_format", Fate::Read),
    ("metadata", Fate::Read),
    ("service_tier", Fate::Read),
    ("cache_control", Fate::Read),
    ("anthropic_beta", Fate::Harmless),
    ("anthropic_version", Fate::Harmless),
    ("betas", Fate::Harmless),
    ("context_management", Fate::LeftOut("the provider's own edits of the history; it goes on as it was sent")),
    ("inference_geo", Fate::LeftOut("where a provider computes is its configuration's affair")),
    ("speed", Fate::LeftOut("no other provider has it")),
    ("mcp_servers", Fate::LeftOut("servers that the provider connects to; their tools are not there")),
    ("container", Fate::Refused("nothing is kept between requests: send files as text")),
];

pub(crate) fn decode(body: &Value) -> Result<Incoming, RequestError> {
    let body = Field::root(body);
    let mut history = History::default();
    let mut instructions = vec![system(&body.get("system"))?];
    for message in body.get("messages").items()? {
        let role = match message.get("role").text()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            // Claude Code adds some on its way; they are the system prompt's on every other wire too.
            "system" => {
                instructions.push(system(&message.get("content"))?);
                continue;
            }
            _ => return Err(message.get("role").wrong("`user`, `assistant` or `system`")),
        };
        let parts = content(&message.get("content"), &history)?;
        history.push(role, parts);
    }
    let mut notes = Vec::new();
    survey(&body, MEMBERS, &mut notes)?;
    let choice = body.get("tool_choice");
    let one = choice.get("disable_parallel_tool_use").is_true();
    let mut wishes = Wishes { format: format(&body)?, ..Wishes::default() };
    let marks = marks(&body)?;
    if !marks.is_empty() {
        wishes.cache = Cache::Marked;
    }
    if marks.iter().any(|mark| mark.get("ttl").value == "1h") {
        notes.push(Note::new(
            "cache_control.ttl",
            "left out: what is marked is kept for the usual time, not for an hour",
        ));
    }
    let blocks = body.get("system").value.as_array().map_or(0, Vec::len);
    if blocks > 1 {
        let what = format!("its {blocks} blocks are joined by blank lines, and marked at their end alone");
        notes.push(Note::new("system", what));
    }
    let mut request = Request {
        model: body.get("model").text()?.to_owned(),
        system: joined(instructions),
        messages: history.messages.into(),
        tools: tool_set(tools(&body.get("tools"), &mut wishes, &mut notes)?)?,
        choice: self::choice(&choice)?,
        parallel: if one { Parallel::One } else { Parallel::Many },
        max_output: body.get("max_tokens").count()?,
        thinking: thinking::read(&body)?,
        wishes,
        ..Request::default()
    };
    wishes::read(&body, SAID.places, &mut request)?;
    let wants = Wants { stop: only(&request.sampling.stop), ..Wants::default() };
    Incoming { wants, notes, ..Incoming::new(request, body.get("stream").is_true()) }.agreed()
}

/// The texts that say something, one behind the other.
fn joined(mut texts: Vec<String>) -> String {
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}

/// The one text, if there is just one.
fn only(texts: &[String]) -> Option<String> {
    match texts {
        [text] => Some(text.clone()),
        _ => None,
    }
}

fn format(body: &Field<'_>) -> Result<Format, RequestError> {
    let format = body.get("output_config").get("format");
    // As the beta had it.
    let format = if format.is_absent() { body.get("output_format") } else { format };
    if format.is_absent() {
        return Ok(Format::Text);
    }
    if format.get("type").text()? != "json_schema" {
        return Err(format.get("type").wrong("`json_schema`"));
    }
    Ok(Format::Schema { name: String::new(), schema: format.get("schema").object()?.into(), strict: true })
}

/// The marks of what may be cached, wherever they stand.
fn marks<'f>(body: &Field<'f>) -> Result<Vec<Field<'f>>, RequestError> {
    let mut lists = vec![body.get("system"), body.get("tools")];
    lists.extend(body.get("messages").items()?.iter().map(|message| message.get("content")));
    let mut marks = vec![body.get("cache_control")];
    for list in lists.iter().filter(|list| list.value.is_array()) {
        marks.extend(list.items()?.iter().map(|block| block.get("cache_control")));
    }
    marks.retain(|mark| !mark.is_absent());
    Ok(marks)
}

fn system(system: &Field<'_>) -> Result<String, RequestError> {
    if system.value.is_string() {
        return system.text().map(str::to_owned);
    }
    let texts: Result<Vec<_>, _> = system.items()?.iter().map(|block| block.get("text").text()).collect();
    Ok(texts?.join("\n\n"))
}

fn content(content: &Field<'_>, history: &History) -> Result<Vec<Part>, RequestError> {
    if content.value.is_string() {
        return Ok(vec![Part::text(content.text()?)]);
    }
    let mut parts = Vec::new();
    for block in content.items()? {
        match block.get("type").text()? {
            "text" => parts.push(Part::text(block.get("text").text()?)),
            "image" => parts.push(shown(&block.get("source"))?),
            "tool_use" => {
                parts.push(call(block.get("id").text()?, block.get("name").text()?, block.get("input").object()?));
            }
            "tool_result" => parts.push(result(&block, history)?),
            "thinking" => {
                let signature = block.get("signature").text_or_empty()?;
                // What another provider thought came without one, and its own refuses it like that.
                let data = json!({"type": "thinking", "signature": signature});
                let opaque = (!signature.is_empty()).then(|| Opaque { wire: NAME.to_owned(), data });
                parts.push(Part::Thought { text: block.get("thinking").text()?.to_owned(), opaque });
            }
            "document" => parts.push(document(&block)?),
            "container_upload" => return Err(block.get("type").wrong("a block that holds its content")),
            _ => parts.push(Part::Opaque(Opaque { wire: NAME.to_owned(), data: block.value.clone() })),
        }
    }
    Ok(parts)
}

/// A picture of the user's, as itself or by its address.
fn shown(source: &Field<'_>) -> Result<Part, RequestError> {
    match source.get("type").text()? {
        "url" => Ok(Part::ImageUrl { url: source.get("url").text()?.to_owned() }),
        _ => image(source).map(Part::Image),
    }
}

/// A document: its words where it is text, else for this wire's providers alone.
fn document(block: &Field<'_>) -> Result<Part, RequestError> {
    let source = block.get("source");
    match source.get("type").text()? {
        "text" => Ok(Part::text(titled(block, source.get("data").text()?)?)),
        "file" => Err(source
            .get("type")
            .wrong("`text`, `base64` or `url`: files that lie with a provider cannot be read here")),
        _ => Ok(Part::Opaque(Opaque { wire: NAME.to_owned(), data: block.value.clone() })),
    }
}

/// The words of a document or of something found, with its title.
fn titled(block: &Field<'_>, words: &str) -> Result<String, RequestError> {
    let title = block.get("title").text_or_empty()?;
    Ok(if title.is_empty() { words.to_owned() } else { format!("{title}\n\n{words}") })
}

fn image(source: &Field<'_>) -> Result<Image, RequestError> {
    if source.get("type").text()? != "base64" {
        return Err(source.get("type").wrong("`base64`"));
    }
    let (media_type, data) = (source.get("media_type").text()?, source.get("data").text()?);
    Ok(Image { media_type: media_type.to_owned(), data: data.to_owned() })
}

fn result(block: &Field<'_>, history: &History) -> Result<Part, RequestError> {
    let content = block.get("content");
    let (mut words, mut pictures) = (Vec::new(), Vec::new());
    if content.value.is_string() {
        words.push(content.text()?.to_owned());
    } else {
        for item in content.items()? {
            match item.get("type").text()? {
                "text" => words.push(item.get("text").text()?.to_owned()),
                "image" => pictures.push(image(&item.get("source"))?),
                "document" if item.get("source").get("type").value == "text" => {
                    words.push(titled(&item, item.get("source").get("data").text()?)?);
                }
                "search_result" => {
                    let found = item.get("content").items()?;
                    let found: Result<Vec<_>, _> = found.iter().map(|part| part.get("text").text()).collect();
                    words.push(titled(&item, &found?.join("\n"))?);
                }
                "tool_reference" => words.push(format!("[tool: {}]", item.get("tool_name").text()?)),
                _ => return Err(item.get("type").wrong("`text`, `image`, `search_result` or a document of text")),
            }
        }
    }
    let failed = block.get("is_error").is_true();
    Ok(history.result(block.get("tool_use_id").text()?, failed, (words.join("\n"), pictures)))
}

/// The tools of the client. Those of the provider's own are kept beside them, and stand among them as well where the client
/// runs them, so that their calls are known.
fn tools(list: &Field<'_>, wishes: &mut Wishes, notes: &mut Vec<Note>) -> Result<Vec<ToolSpec>, RequestError> {
    let mut specs = Vec::new();
    for tool in list.items()? {
        let kind = tool.get("type");
        if !kind.is_absent() && kind.text()? != "custom" {
            let own = Opaque { wire: NAME.to_owned(), data: tool.value.clone() };
            if native::kind(&own) == Kind::Client {
                specs.push(ToolSpec::new(tool.get("name").text()?, "", json!({"additionalProperties": true})));
            }
            wishes.native.push(own);
            continue;
        }
        let (name, schema) = (tool.get("name").text()?, Value::Object(tool.get("input_schema").object()?));
        if tool.get("strict").is_true() {
            wishes.strict.push(name.to_owned());
        }
        for key in ["defer_loading", "allowed_callers"] {
            let said = tool.get(key);
            if !said.is_absent() && said.value != &Value::Bool(false) {
                notes.push(Note::new(said.path, "left out: the tool is offered as any other"));
            }
        }
        let examples: Result<Vec<_>, _> = tool.get("input_examples").items()?.iter().map(Field::object).collect();
        let spec = ToolSpec::new(name, tool.get("description").text_or_empty()?, schema);
        specs.push(ToolSpec { examples: examples?, ..spec });
    }
    Ok(specs)
}

fn choice(choice: &Field<'_>) -> Result<ToolChoice, RequestError> {
    if choice.is_absent() {
        return Ok(ToolChoice::Auto);
    }
    Ok(match choice.get("type").text()? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(choice.get("name").text()?.to_owned()),
        _ => return Err(choice.get("type").wrong("`auto`, `any`, `none` or `tool`")),
    })
}
