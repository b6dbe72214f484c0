//! Finds what a wire cannot express of a request: what is left out, or why the request cannot be
//! sent there at all.

use std::collections::BTreeMap;

use sabir_call::{
    CacheControl, Message, MessagePart, OpaqueState, ParallelCalls, Request, ResponseFormat, Role,
    ToolChoice, ToolProtocol,
};

use crate::client_request::{LossNote, RequestError};
use crate::documents::PdfDocument;
use crate::native_tools::{self, NativeToolKind};
use crate::params::{UnsupportedFeature, WireCapabilities, unsupported_params};
use crate::wire::WireOptions;
use crate::{ollama, openai_chat};

/// Checks requests against a wire's capabilities.
pub(crate) struct SupportChecker<'a> {
    /// The wire's name, for notes and for comparison with opaque state.
    pub(crate) wire: &'static str,
    /// The parameters and features that the wire supports.
    pub(crate) capabilities: &'static WireCapabilities,
    /// The options that the request will be encoded with.
    pub(crate) options: &'a WireOptions,
}

impl SupportChecker<'_> {
    /// Checks a request and returns notes on the parts that are left out.
    ///
    /// # Errors
    /// Something that must not be left out: content from the user, or a tool that must be called.
    pub(crate) fn check_request(&self, request: &Request) -> Result<Vec<LossNote>, RequestError> {
        let mut notes = unsupported_params(request, self.options, self.capabilities, self.wire);
        self.check_tools(request, &mut notes)?;
        self.check_options(request, &mut notes);
        self.check_history(request, &mut notes)?;
        Ok(notes)
    }

    fn is_unsupported(&self, feature: UnsupportedFeature) -> bool {
        self.capabilities.unsupported.contains(&feature)
    }

    fn push_note(&self, path: &str, what: &str, notes: &mut Vec<LossNote>) {
        notes.push(LossNote::new(path, format!("{} {what}", self.wire)));
    }

    /// Returns true if the server has tools whose input is text.
    fn has_custom_tools(&self) -> bool {
        self.wire == openai_chat::NAME && openai_chat::custom_tools::has_custom_tools(self.options)
    }

    /// Returns the note about the grammar of a tool whose input is text.
    fn grammar_note(&self, tool: &OpaqueState) -> LossNote {
        let name = native_tools::tool_name(tool).unwrap_or_default();
        let what = format!(
            "the grammar of `{name}` is given as text: {} cannot be made to follow it",
            self.wire
        );
        LossNote::new("tools", what)
    }

    /// Returns a note on each grammar that is lost although the server gets the client's own body.
    pub(crate) fn check_passthrough_tools(&self, request: &Request) -> Vec<LossNote> {
        if self.wire != openai_chat::NAME || self.has_custom_tools() {
            return Vec::new();
        }
        openai_chat::custom_tools::find_custom_tools(request)
            .filter(|tool| native_tools::has_grammar(tool))
            .map(|tool| self.grammar_note(tool))
            .collect()
    }

    /// Checks the providers' own tools, then the tool choice and the limits on calls.
    ///
    /// # Errors
    /// A tool that only models of another wire can call, or a server tool that the request depends
    /// on: alone, or by its tool choice.
    fn check_tools(
        &self,
        request: &Request,
        notes: &mut Vec<LossNote>,
    ) -> Result<(), RequestError> {
        // In a prompted request the tools are described as text, so native tools cannot be passed
        // on to any wire.
        let prompted = request.protocol != ToolProtocol::Native;
        let mut lost = Vec::new();
        for tool in request
            .options
            .native
            .iter()
            .filter(|tool| prompted || tool.wire != self.wire)
        {
            let word = native_tools::tool_type(tool);
            let wire = &tool.wire;
            match native_tools::tool_kind(tool) {
                NativeToolKind::Custom if native_tools::has_grammar(tool) => {
                    if prompted || !self.has_custom_tools() {
                        notes.push(self.grammar_note(tool));
                    }
                }
                // Their tools are offered as ordinary ones as well.
                NativeToolKind::Custom | NativeToolKind::Namespace => {}
                // Without a schema the model would guess the arguments, so the request is refused.
                NativeToolKind::Client => {
                    let what = format!(
                        "`{word}` has no schema, and only models of {wire} know it: offer it as a function"
                    );
                    return Err(RequestError::new("tools", what));
                }
                NativeToolKind::Server => {
                    notes.push(LossNote::new(
                        "tools",
                        format!("left out: `{word}` is run by providers of {wire}"),
                    ));
                    lost.push((word, native_tools::tool_name(tool)));
                }
            }
        }
        // A tool choice may name a server tool by its type or by its name.
        let forced = |name: &String| {
            lost.iter()
                .any(|(word, known)| word == name || *known == Some(name.as_str()))
        };
        let asked = matches!(&request.tool_choice, ToolChoice::Tool(name) if forced(name));
        // Without any other tool, the request would silently lose its purpose.
        let alone = request.tools.is_empty() && request.options.native.len() == lost.len();
        if let Some((word, _)) = lost.first().filter(|_| asked || alone) {
            let what = format!(
                "`{word}` is run by its provider and by nobody here, and no other tool is asked for"
            );
            return Err(RequestError::new("tools", what));
        }
        if prompted || request.tools.is_empty() {
            return Ok(());
        }
        if request.tools.iter().any(|tool| !tool.examples.is_empty()) {
            let what = "cannot be given examples of a tool's input; left out";
            self.push_note("tools", what, notes);
        }
        match &request.tool_choice {
            ToolChoice::Required if self.is_unsupported(UnsupportedFeature::ForcedCall) => {
                self.push_note(
                    "tool_choice",
                    "cannot be told that a call must be made; the model may choose",
                    notes,
                );
            }
            ToolChoice::Tool(_) if self.is_unsupported(UnsupportedFeature::ForcedCall) => {
                self.push_note(
                    "tool_choice",
                    "cannot be told which call to make; only that tool is offered",
                    notes,
                );
            }
            _ => {}
        }
        // Without calls, the limit means nothing.
        if request.parallel_calls == ParallelCalls::One
            && request.tool_choice != ToolChoice::None
            && self.is_unsupported(UnsupportedFeature::SingleCall)
        {
            self.push_note(
                "parallel_tool_calls",
                "cannot be told to make one call at a time",
                notes,
            );
        }
        if !request.options.strict.is_empty()
            && self.is_unsupported(UnsupportedFeature::StrictArguments)
        {
            self.push_note(
                "tools",
                "cannot be told to enforce the schema of arguments (`strict`)",
                notes,
            );
        }
        Ok(())
    }

    /// Notes a response format or cache marks that the wire cannot express.
    fn check_options(&self, request: &Request, notes: &mut Vec<LossNote>) {
        match request.options.format {
            ResponseFormat::Json if self.is_unsupported(UnsupportedFeature::JsonFormat) => {
                self.push_note(
                    "response_format",
                    "has no field for an answer in JSON; left out",
                    notes,
                );
            }
            ResponseFormat::Schema { .. }
                if self.is_unsupported(UnsupportedFeature::SchemaFormat) =>
            {
                self.push_note(
                    "response_format",
                    "has no field for an answer by a schema; left out",
                    notes,
                );
            }
            _ => {}
        }
        if (self.capabilities.is_thinking_refused)(request) {
            self.push_note(
                "reasoning",
                "cannot think here: a call is demanded, the output limit is too low, or the thoughts before the last \
                 calls are missing; left out",
                notes,
            );
        }
        // A lost mark costs money but changes no response, so this is a note and no error.
        if request.options.cache == CacheControl::Marked
            && self.is_unsupported(UnsupportedFeature::CacheMarks)
        {
            self.push_note(
                "cache_control",
                "has no marks; it caches on its own or not at all",
                notes,
            );
        }
    }

    /// Checks every part of the history. State of other providers is counted and left out; content
    /// from the user must not be lost.
    ///
    /// # Errors
    /// A part from the user that the provider cannot see.
    fn check_history(
        &self,
        request: &Request,
        notes: &mut Vec<LossNote>,
    ) -> Result<(), RequestError> {
        let mut lost = 0;
        let mut failed = 0;
        // A prompted request tells failures in its text.
        let unsaid = request.protocol == ToolProtocol::Native
            && self.is_unsupported(UnsupportedFeature::FailedResult);
        for (index, message) in request.messages.iter().enumerate() {
            for (at, part) in message.parts.iter().enumerate() {
                if let Some(problem) = self.user_part_problem(request, message, part) {
                    return Err(RequestError::new(
                        format!("messages[{index}], part {at}"),
                        problem,
                    ));
                }
                // Only counted: a long history has hundreds of thoughts.
                lost += usize::from(
                    message.role == Role::Assistant && self.is_part_lost(request, part),
                );
                let is_failed =
                    matches!(part, MessagePart::Result(result) if result.ending.is_error());
                failed += usize::from(unsaid && is_failed);
            }
        }
        self.check_documents(request, notes);
        if failed > 0 {
            let what = format!(
                "cannot mark a failed result (`is_error`): only the text of {failed} can say it"
            );
            self.push_note("messages", &what, notes);
        }
        if lost > 0 {
            let what = format!(
                "left out: {lost} thoughts or other state of a provider, which {} does not take",
                self.wire
            );
            notes.push(LossNote::new("messages", what));
        }
        Ok(())
    }

    /// Returns the reason why the provider cannot see a part from the user, with advice; `None` if
    /// it can.
    fn user_part_problem(
        &self,
        request: &Request,
        message: &Message,
        part: &MessagePart,
    ) -> Option<String> {
        match part {
            MessagePart::ImageUrl { .. } if self.is_unsupported(UnsupportedFeature::ImageUrl) => {
                Some(format!(
                    "{} takes pictures as base64, not by their address: send the picture itself",
                    self.wire
                ))
            }
            MessagePart::Opaque(state)
                if message.role == Role::User && !self.can_take_user_state(request, state) =>
            {
                let takers = if request.protocol != ToolProtocol::Native {
                    "a model whose tools are described in its prompt takes only text and pictures"
                        .to_owned()
                } else if self.is_unsupported(UnsupportedFeature::Documents) {
                    format!("{} takes no documents", self.wire)
                } else {
                    format!("only providers of {} can read this document", state.wire)
                };
                Some(format!("{takers}: send its text"))
            }
            _ => None,
        }
    }

    /// Returns true if the provider can get a part from the user that is not text: its own state, or a document that its form can express.
    fn can_take_user_state(&self, request: &Request, state: &OpaqueState) -> bool {
        let is_document = || {
            request.protocol == ToolProtocol::Native
                && !self.is_unsupported(UnsupportedFeature::Documents)
                && PdfDocument::from_state(state).is_some()
        };
        self.can_take_state(request, state) || is_document()
    }

    /// Notes the members of documents that only their own wire has.
    fn check_documents(&self, request: &Request, notes: &mut Vec<LossNote>) {
        let parts = request.messages.iter().flat_map(|message| &message.parts);
        let mut lost = BTreeMap::new();
        for part in parts {
            if let MessagePart::Opaque(state) = part
                && state.wire != self.wire
                && let Some(document) = PdfDocument::from_state(state)
            {
                for member in document.lost_members(self.wire) {
                    *lost.entry(member).or_insert(0_u32) += 1;
                }
            }
        }
        for (member, count) in lost {
            let what = format!(
                "left out: {} has no place for it, in {count} documents",
                self.wire
            );
            notes.push(LossNote::new(format!("messages.document.{member}"), what));
        }
    }

    /// Returns true if a part of an assistant message is not sent back.
    fn is_part_lost(&self, request: &Request, part: &MessagePart) -> bool {
        match part {
            MessagePart::Thought {
                opaque: Some(state),
                ..
            }
            | MessagePart::Opaque(state) => !self.can_take_state(request, state),
            MessagePart::Thought { opaque: None, .. } => {
                let kept = self.wire == ollama::NAME
                    || (self.wire == openai_chat::NAME && self.options.thought_field.is_some());
                request.protocol != ToolProtocol::Native || !kept
            }
            _ => false,
        }
    }

    /// Returns true if state can be sent back: only on its own wire, and not in a prompted request, whose history is rendered as text.
    fn can_take_state(&self, request: &Request, state: &OpaqueState) -> bool {
        request.protocol == ToolProtocol::Native && state.wire == self.wire
    }
}
