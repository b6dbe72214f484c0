//! Shows calls while the model writes them. Pure: it collects the pieces, and builds an update from
//! them on request.
//!
//! The id of a call in the task is known only when its answer is complete, so a call that was shown
//! earlier keeps an id of its own.

use std::path::Path;

use agent_client_protocol::v1::schema::{
    SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use sabir_session::StreamEvent;
use sabir_session::call::{Call, CallId};
use serde_json::{Map, Value};

use crate::tool_view::{call_locations, call_title, text_content, tool_kind};
use crate::update_mapper::is_control_call;

/// The most bytes of a value that are shown: the newest.
const MAX_SHOWN_BYTES: usize = 8 << 10;
/// The most bytes of each value that are kept for the title and the places of a call.
const MAX_HEAD_BYTES: usize = 1 << 10;
/// The most calls of an answer that are shown while they are written.
const MAX_DRAFTS: usize = 64;

/// The calls of the answer that the model writes.
#[derive(Debug, Default)]
pub(crate) struct DraftCalls {
    drafts: Vec<DraftCall>,
    /// The number of calls that were shown in this session.
    shown: u64,
}

/// A call that is being written.
#[derive(Debug)]
struct DraftCall {
    /// Its number within the answer.
    index: u32,
    /// The beginnings of its values, as a call.
    head: Call,
    /// The id from the provider, if there is one.
    id: Option<String>,
    /// The argument that is being written.
    argument: String,
    /// The end of its value.
    text: String,
    /// The id under which the client knows the call.
    shown: Option<String>,
    /// True if there is something that the client has not seen.
    is_changed: bool,
}

impl DraftCalls {
    /// Takes a piece of the answer. Returns true if there is now something to show.
    pub(crate) fn note_event(&mut self, event: &StreamEvent) -> bool {
        match event {
            StreamEvent::CallStart {
                index, id, name, ..
            } if !is_control_call(name) && self.drafts.len() < MAX_DRAFTS => {
                self.drafts.push(DraftCall {
                    index: *index,
                    head: Call {
                        id: CallId::new(""),
                        name: name.clone(),
                        arguments: Map::new(),
                        dialect: None,
                    },
                    id: id.clone(),
                    argument: String::new(),
                    text: String::new(),
                    shown: None,
                    is_changed: true,
                });
                true
            }
            StreamEvent::ArgStart { index, name, .. } => {
                if let Some(draft) = self.find(*index) {
                    draft.argument.clone_from(name);
                    draft.text.clear();
                }
                false
            }
            StreamEvent::ArgDelta { index, text } => match self.find(*index) {
                Some(draft) => {
                    draft.push_text(text);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    fn find(&mut self, index: u32) -> Option<&mut DraftCall> {
        self.drafts.iter_mut().rfind(|draft| draft.index == index)
    }

    /// Returns the updates that show what was written since the last time.
    pub(crate) fn take_updates(&mut self, folder: &Path) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        for draft in self.drafts.iter_mut().filter(|draft| draft.is_changed) {
            draft.is_changed = false;
            let call = &draft.head;
            // Without a value, the title would be an empty object.
            let title = match call.arguments.is_empty() {
                true => call.name.clone(),
                false => call_title(call),
            };
            let content = (!draft.text.is_empty()).then(|| vec![text_content(&draft.text)]);
            let locations = call_locations(call, folder);
            updates.push(match &draft.shown {
                Some(shown) => SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
                    shown.clone(),
                    ToolCallUpdateFields::new()
                        .title(title)
                        .locations(locations)
                        .content(content),
                )),
                None => {
                    self.shown += 1;
                    let shown = format!("draft-{}", self.shown);
                    draft.shown = Some(shown.clone());
                    SessionUpdate::ToolCall(
                        ToolCall::new(shown, title)
                            .name(call.name.clone())
                            .kind(tool_kind(&call.name))
                            .status(ToolCallStatus::Pending)
                            .locations(locations)
                            .content(content.unwrap_or_default()),
                    )
                }
            });
        }
        updates
    }

    /// Removes the draft of a call that is complete now, and returns the id under which it was shown. Calls come in the order in which
    /// they were written.
    pub(crate) fn take_shown_id(&mut self, call: &Call) -> Option<String> {
        let by_id = |draft: &DraftCall| draft.id.as_deref() == Some(call.id.as_str());
        let by_name = |draft: &DraftCall| draft.head.name == call.name;
        let at = self
            .drafts
            .iter()
            .position(by_id)
            .or_else(|| self.drafts.iter().position(by_name))?;
        self.drafts.remove(at).shown
    }

    /// Forgets all drafts, and closes those that were shown: their calls were never complete.
    pub(crate) fn close(&mut self) -> Vec<SessionUpdate> {
        let shown = self.drafts.drain(..).filter_map(|draft| draft.shown);
        let closed = shown.map(|shown| {
            let fields = ToolCallUpdateFields::new()
                .status(ToolCallStatus::Failed)
                .content(vec![text_content(
                    "The call was not completed, so it did not run.",
                )]);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(shown, fields))
        });
        closed.collect()
    }
}

impl DraftCall {
    fn push_text(&mut self, text: &str) {
        self.is_changed = true;
        self.text.push_str(text);
        if self.text.len() > 2 * MAX_SHOWN_BYTES {
            let cut = self.text.len() - MAX_SHOWN_BYTES;
            self.text.drain(..self.text.ceil_char_boundary(cut));
        }
        // An argument without a name holds all others as JSON.
        if self.argument.is_empty() {
            return;
        }
        let values = &mut self.head.arguments;
        let head = values
            .entry(self.argument.clone())
            .or_insert_with(|| Value::String(String::new()));
        if let Value::String(head) = head {
            let room = MAX_HEAD_BYTES.saturating_sub(head.len());
            head.push_str(
                text.get(..text.floor_char_boundary(room))
                    .unwrap_or_default(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use sabir_session::call::ArgumentEncoding;
    use serde_json::json;

    use super::*;

    fn start(index: u32, name: &str) -> StreamEvent {
        StreamEvent::CallStart {
            index,
            id: None,
            name: name.to_owned(),
            dialect: None,
            at: 0,
            name_at: 0,
        }
    }

    fn argument(drafts: &mut DraftCalls, name: &str, text: &str) {
        let name = name.to_owned();
        drafts.note_event(&StreamEvent::ArgStart {
            index: 0,
            name,
            form: ArgumentEncoding::String,
            at: 0,
        });
        drafts.note_event(&StreamEvent::ArgDelta {
            index: 0,
            text: text.to_owned(),
        });
    }

    fn values(updates: Vec<SessionUpdate>) -> Vec<Value> {
        let values = updates
            .iter()
            .map(|update| serde_json::to_value(update).unwrap());
        values.collect()
    }

    #[test]
    fn a_call_is_shown_once_and_then_updated() {
        let mut drafts = DraftCalls::default();
        assert!(drafts.note_event(&start(0, "write_to_file")));
        argument(&mut drafts, "path", "a.txt");
        argument(&mut drafts, "content", "one\\n");
        let folder = Path::new("/w");
        let first = values(drafts.take_updates(folder));
        assert_eq!(first[0]["sessionUpdate"], "tool_call");
        assert_eq!(first[0]["title"], "write_to_file a.txt");
        assert_eq!(first[0]["locations"][0]["path"], "/w/a.txt");
        assert!(drafts.take_updates(folder).is_empty(), "nothing is new");
        argument(&mut drafts, "content", &"x".repeat(100_000));
        let next = values(drafts.take_updates(folder));
        assert_eq!(next[0]["sessionUpdate"], "tool_call_update");
        assert_eq!(next[0]["toolCallId"], first[0]["toolCallId"]);
        assert!(next[0].to_string().len() < 3 * MAX_SHOWN_BYTES);
        let call = Call {
            id: CallId::new("7"),
            name: "write_to_file".to_owned(),
            arguments: Map::new(),
            dialect: None,
        };
        assert_eq!(
            drafts.take_shown_id(&call).as_deref(),
            first[0]["toolCallId"].as_str()
        );
        assert!(drafts.close().is_empty());
    }

    #[test]
    fn calls_of_one_name_keep_their_order() {
        let mut drafts = DraftCalls::default();
        drafts.note_event(&start(0, "read_file"));
        drafts.note_event(&start(1, "read_file"));
        drafts.take_updates(Path::new("/w"));
        let call = Call {
            id: CallId::new("1"),
            name: "read_file".to_owned(),
            arguments: Map::new(),
            dialect: None,
        };
        assert_eq!(drafts.take_shown_id(&call).as_deref(), Some("draft-1"));
        let closed = values(drafts.close());
        assert_eq!(
            (&closed[0]["toolCallId"], &closed[0]["status"]),
            (&json!("draft-2"), &json!("failed"))
        );
    }

    #[test]
    fn control_calls_and_calls_that_were_never_shown_say_nothing() {
        let mut drafts = DraftCalls::default();
        assert!(!drafts.note_event(&start(0, "attempt_completion")));
        drafts.note_event(&start(1, "read_file"));
        assert!(drafts.close().is_empty());
    }
}
