//! What a wire cannot say of a request: what is left out of it, or why it cannot be asked there at all.

use sabir_call::{Cache, Format, Message, Opaque, Parallel, Part, Protocol, Request, Role, ToolChoice};

use crate::client::{Note, RequestError};
use crate::native::{self, Kind};
use crate::wire::Form;
use crate::wishes::{Lack, Said, unsaid};
use crate::{ollama, openai_chat};

/// A wire, by its name and its words.
pub(crate) struct Scale<'a> {
    pub(crate) wire: &'static str,
    pub(crate) said: &'static Said,
    pub(crate) form: &'a Form,
}

impl Scale<'_> {
    /// Goes through a request.
    ///
    /// # Errors
    /// Something that cannot be left out: words of the user's, or a tool that must be called.
    pub(crate) fn weigh(&self, request: &Request) -> Result<Vec<Note>, RequestError> {
        let mut notes = unsaid(request, self.form, self.said, self.wire);
        self.tools(request, &mut notes)?;
        self.wishes(request, &mut notes);
        self.history(request, &mut notes)?;
        Ok(notes)
    }

    fn lacks(&self, lack: Lack) -> bool {
        self.said.lacks.contains(&lack)
    }

    fn note(&self, path: &str, what: &str, notes: &mut Vec<Note>) {
        notes.push(Note::new(path, format!("{} {what}", self.wire)));
    }

    fn tools(&self, request: &Request, notes: &mut Vec<Note>) -> Result<(), RequestError> {
        let prompted = request.protocol != Protocol::Native;
        let mut lost = Vec::new();
        for tool in request.wishes.native.iter().filter(|tool| prompted || tool.wire != self.wire) {
            let (word, wire) = (native::word(tool), &tool.wire);
            match native::kind(tool) {
                Kind::Freeform if native::has_grammar(tool) => {
                    let name = native::name(tool).unwrap_or_default();
                    let what = format!("the grammar of `{name}` is told in words: {} cannot be held to it", self.wire);
                    notes.push(Note::new("tools", what));
                }
                Kind::Freeform | Kind::Space => {}
                Kind::Client => {
                    let what =
                        format!("`{word}` has no schema, and only models of {wire} know it: offer it as a function");
                    return Err(RequestError::new("tools", what));
                }
                Kind::Server => {
                    notes.push(Note::new("tools", format!("left out: `{word}` is run by providers of {wire}")));
                    lost.push((word, native::name(tool)));
                }
            }
        }
        let forced = |name: &String| lost.iter().any(|(word, known)| word == name || *known == Some(name.as_str()));
        let asked = matches!(&request.choice, ToolChoice::Tool(name) if forced(name));
        let alone = request.tools.is_empty() && request.wishes.native.len() == lost.len();
        if let Some((word, _)) = lost.first().filter(|_| asked || alone) {
            let what = format!("`{word}` is run by its provider and by nobody here, and no other tool is asked for");
            return Err(RequestError::new("tools", what));
        }
        if prompted || request.tools.is_empty() {
            return Ok(());
        }
        match &request.choice {
            ToolChoice::Required if self.lacks(Lack::Force) => {
                self.note("tool_choice", "cannot be told that a call must be made; the model may choose", notes);
            }
            ToolChoice::Tool(_) if self.lacks(Lack::Force) => {
                self.note("tool_choice", "cannot be told which call to make; only that tool is offered", notes);
            }
            _ => {}
        }
        if request.parallel == Parallel::One && request.choice != ToolChoice::None && self.lacks(Lack::One) {
            self.note("parallel_tool_calls", "cannot be told to make one call at a time", notes);
        }
        if !request.wishes.strict.is_empty() && self.lacks(Lack::Strict) {
            self.note("tools", "cannot be told to hold arguments to their schema (`strict`)", notes);
        }
        Ok(())
    }

    fn wishes(&self, request: &Request, notes: &mut Vec<Note>) {
        match request.wishes.format {
            Format::Json if self.lacks(Lack::Json) => {
                self.note("response_format", "has no word for an answer in JSON; left out", notes);
            }
            Format::Schema { .. } if self.lacks(Lack::Schema) => {
                self.note("response_format", "has no word for an answer of a schema; left out", notes);
            }
            _ => {}
        }
        if request.wishes.cache == Cache::Marked && self.lacks(Lack::Marks) {
            self.note("cache_control", "has no marks; it caches on its own or not at all", notes);
        }
    }

    fn history(&self, request: &Request, notes: &mut Vec<Note>) -> Result<(), RequestError> {
        let (mut lost, mut failed) = (0, 0);
        let unsaid = request.protocol == Protocol::Native && self.lacks(Lack::Failed);
        for (index, message) in request.messages.iter().enumerate() {
            for (at, part) in message.parts.iter().enumerate() {
                self.seen(request, message, part)
                    .map_err(|what| RequestError::new(format!("messages[{index}], part {at}"), what))?;
                lost += usize::from(message.role == Role::Assistant && self.loses(request, part));
                let is_failed = matches!(part, Part::Result(result) if result.ending.is_error());
                failed += usize::from(unsaid && is_failed);
            }
        }
        if failed > 0 {
            let what =
                format!("has no word for a result that failed (`is_error`): the words of {failed} have to say it");
            self.note("messages", &what, notes);
        }
        if lost > 0 {
            let what =
                format!("left out: {lost} thoughts or other state of a provider, which {} does not take", self.wire);
            notes.push(Note::new("messages", what));
        }
        Ok(())
    }

    /// Whether the provider sees what the user showed.
    fn seen(&self, request: &Request, message: &Message, part: &Part) -> Result<(), String> {
        match part {
            Part::ImageUrl { .. } if self.lacks(Lack::Address) => {
                Err(format!("{} takes pictures as base64, not by their address: send the picture itself", self.wire))
            }
            Part::Opaque(state) if message.role == Role::User && !self.takes(request, state) => {
                Err(format!("only providers of {} can read this document: send its text", state.wire))
            }
            _ => Ok(()),
        }
    }

    /// Whether a part of an answer does not go back.
    fn loses(&self, request: &Request, part: &Part) -> bool {
        match part {
            Part::Thought { opaque: Some(state), .. } | Part::Opaque(state) => !self.takes(request, state),
            Part::Thought { opaque: None, .. } => {
                let kept =
                    self.wire == ollama::NAME || (self.wire == openai_chat::NAME && self.form.thought_field.is_some());
                request.protocol != Protocol::Native || !kept
            }
            _ => false,
        }
    }

    fn takes(&self, request: &Request, state: &Opaque) -> bool {
        request.protocol == Protocol::Native && state.wire == self.wire
    }
}
