//! Maps the events of a task to session updates of the protocol. Pure: it keeps the state that
//! later events refer to, and sends nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    CompactionId, CompactionStatus, CompactionUpdate, ContentBlock, ContentChunk, Cost,
    CurrentModeUpdate, Diff, ImageContent, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionUpdate, Terminal, TerminalId, TextContent, ToolCall, ToolCallContent, ToolCallLocation,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, UsageUpdate,
};
use sabir_session::agent::control::{
    COMPLETION_TOOL, FOLLOWUP_TOOL, TODO_LIST_TOOL, TodoList, TodoState,
};
use sabir_session::agent::{
    AssistantTurn, ContextChange, MessageAuthor, Record, SubtaskEnd, UsageTotals,
};
use sabir_session::call::{
    Call, CallId, CallResult, Image, MessagePart, StopReason, ToolResultStatus, Usage,
};
use sabir_session::{StreamEvent, SubtaskLabel};
use sabir_terminal::sanitizer::{Sanitizer, sanitize_text};
use serde_json::json;

use crate::draft_calls::DraftCalls;
use crate::file_diff::{FileDiffs, parse_preview};
use crate::tool_view::{call_locations, call_title, clip, result_content, text_content, tool_kind};

/// The tool that writes a whole file.
const WRITE_TOOL: &str = "write_to_file";
/// The most bytes of a running command's output that an update holds: the newest.
const MAX_OUTPUT_BYTES: usize = 16 << 10;

/// The time of a record: now, after its deltas, or repeated from a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordSource {
    /// It happens now.
    Live,
    /// It happened before the client was connected.
    Past,
}

/// Maps the events of one session.
#[derive(Debug)]
pub(crate) struct UpdateMapper {
    /// The folder of the session, for the paths of calls.
    folder: PathBuf,
    /// The size of the model's context in tokens, if it is known.
    pub(crate) window: Option<u64>,
    /// True if the client shows compactions.
    pub(crate) shows_compactions: bool,
    /// The calls without a result, by their ids for the client.
    open: HashMap<String, OpenCall>,
    /// The calls of the answer that is being written.
    drafts: DraftCalls,
    /// The ids for the client of calls that were shown while they were written, by their usual ids.
    shown_ids: HashMap<String, String>,
    /// Cleans the text that is streamed.
    text: Sanitizer,
    /// Cleans the reasoning that is streamed.
    thought: Sanitizer,
    /// True if text of the present answer was streamed.
    has_text: bool,
    /// True if reasoning of the present answer was streamed.
    has_thought: bool,
    /// True if the last update was text of the agent: the text of another answer must not run into it.
    ends_with_text: bool,
    /// The tokens and the money of the whole task.
    totals: UsageTotals,
    /// The reason why the last answer stopped.
    pub(crate) last_stop: Option<StopReason>,
    compactions: u64,
}

/// A call that has no result yet.
#[derive(Debug)]
struct OpenCall {
    call: Call,
    /// The changes that it makes, as far as they are known.
    changes: FileDiffs,
    /// The end of its output.
    output: String,
    /// The terminal of the client in which its command runs.
    terminal: Option<TerminalId>,
}

impl UpdateMapper {
    /// Creates a mapper for a session in a folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            window: None,
            shows_compactions: false,
            open: HashMap::new(),
            drafts: DraftCalls::default(),
            shown_ids: HashMap::new(),
            text: Sanitizer::default(),
            thought: Sanitizer::default(),
            has_text: false,
            has_thought: false,
            ends_with_text: false,
            totals: UsageTotals::default(),
            last_stop: None,
            compactions: 0,
        }
    }

    /// Returns the tokens of the whole task, as far as the provider reported them.
    pub(crate) fn total_usage(&self) -> Usage {
        self.totals.usage
    }

    /// Maps a record of the session's own task.
    pub(crate) fn map_record(&mut self, record: &Record, time: RecordSource) -> Vec<SessionUpdate> {
        self.totals.add_record(record);
        match record {
            Record::Started(start) if time == RecordSource::Past => {
                self.ends_with_text = false;
                user_message(&start.prompt, &[])
            }
            Record::Said {
                by: MessageAuthor::User,
                text,
                images,
                ..
            } if time == RecordSource::Past => {
                self.ends_with_text = false;
                user_message(text, images)
            }
            Record::Answered(turn) => self.map_answer(turn, time),
            Record::Failed(_) => {
                self.end_streams();
                self.drafts.close()
            }
            Record::Running { call, .. } if time == RecordSource::Live => {
                self.map_running(call_key(None, call))
            }
            Record::Subtask {
                call,
                ended: Some(end),
                ..
            } if time == RecordSource::Live => self.map_subtask_end(call, end),
            Record::Result(result) => self.map_result(None, result),
            Record::Context(change) => self.map_change(change, time),
            _ => Vec::new(),
        }
    }

    /// Maps a record of a subtask: its calls are shown, its texts are for its parent.
    pub(crate) fn map_subtask_record(
        &mut self,
        subtask: &SubtaskLabel,
        record: &Record,
    ) -> Vec<SessionUpdate> {
        match record {
            Record::Answered(turn) => self.map_calls(Some(subtask), turn),
            Record::Running { call, .. } => self.map_running(call_key(Some(subtask), call)),
            Record::Result(result) => self.map_result(Some(subtask), result),
            _ => Vec::new(),
        }
    }

    /// Maps a piece of the model's answer.
    pub(crate) fn map_delta(&mut self, event: &StreamEvent) -> Option<SessionUpdate> {
        match event {
            StreamEvent::Text { text } => {
                let clean = self.text.sanitize_chunk(text);
                let continues = self.has_text;
                self.has_text |= !clean.is_empty();
                self.separate_text(clean, continues)
            }
            StreamEvent::Thought { text } => {
                let clean = self.thought.sanitize_chunk(text);
                self.has_thought |= !clean.is_empty();
                agent_thought(clean)
            }
            _ => None,
        }
    }

    /// Takes a piece of a call that the model writes. Returns true if [`UpdateMapper::draft_updates`] has something to show.
    pub(crate) fn note_draft(&mut self, event: &StreamEvent) -> bool {
        self.drafts.note_event(event)
    }

    /// Returns the updates that show the calls which the model is writing.
    pub(crate) fn draft_updates(&mut self) -> Vec<SessionUpdate> {
        let updates = self.drafts.take_updates(&self.folder);
        // Text behind a call begins a message of its own.
        self.ends_with_text &= updates.is_empty();
        updates
    }

    /// Closes the calls that were shown and will not be completed.
    pub(crate) fn close_drafts(&mut self) -> Vec<SessionUpdate> {
        self.drafts.close()
    }

    /// Creates an update of a call, under the id by which the client knows it.
    fn call_update(&self, key: &str, fields: ToolCallUpdateFields) -> ToolCallUpdate {
        let shown = self.shown_ids.get(key).map_or(key, String::as_str);
        ToolCallUpdate::new(shown.to_owned(), fields)
    }

    /// Notes that the user has sent a message, so that the next text begins a new one.
    pub(crate) fn note_prompt(&mut self) {
        self.ends_with_text = false;
    }

    /// Keeps a piece of a call's output. [`UpdateMapper::output_update`] shows it.
    pub(crate) fn note_output(
        &mut self,
        subtask: Option<&SubtaskLabel>,
        call: &CallId,
        text: &str,
    ) {
        if let Some(open) = self.open.get_mut(&call_key(subtask, call)) {
            // The result has the whole output, so only the end is kept meanwhile.
            open.output.push_str(text);
            if open.output.len() > 2 * MAX_OUTPUT_BYTES {
                let cut = open.output.len() - MAX_OUTPUT_BYTES;
                let cut = open.output.ceil_char_boundary(cut);
                open.output.drain(..cut);
            }
        }
    }

    /// Returns the update that shows the newest output of a call; `None` if it has ended.
    pub(crate) fn output_update(
        &self,
        subtask: Option<&SubtaskLabel>,
        call: &CallId,
    ) -> Option<SessionUpdate> {
        let key = call_key(subtask, call);
        let open = self.open.get(&key)?;
        let start = open.output.len().saturating_sub(MAX_OUTPUT_BYTES);
        let start = open.output.ceil_char_boundary(start);
        let text = open.output.get(start..).unwrap_or_default();
        let fields = ToolCallUpdateFields::new().content(vec![text_content(text)]);
        Some(SessionUpdate::ToolCallUpdate(
            self.call_update(&key, fields),
        ))
    }

    /// Shows the terminal of the client in which the command of a call runs. Calls of subtasks have the ids of their own task, so the call
    /// is also matched by its command; `None` if several match.
    pub(crate) fn attach_terminal(
        &mut self,
        call: &CallId,
        command: &str,
        terminal: TerminalId,
    ) -> Option<SessionUpdate> {
        let of_subtask = format!("/{call}");
        let mut fitting = self.open.iter_mut().filter(|(key, open)| {
            let is_named = **key == call.to_string() || key.ends_with(&of_subtask);
            let line = open.call.arguments.get("command");
            is_named
                && open.terminal.is_none()
                && line.and_then(serde_json::Value::as_str) == Some(command)
        });
        let (key, open) = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        let content = vec![terminal_content(terminal.clone())];
        open.terminal = Some(terminal);
        let key = key.clone();
        let fields = ToolCallUpdateFields::new().content(content);
        Some(SessionUpdate::ToolCallUpdate(
            self.call_update(&key, fields),
        ))
    }

    /// Maps the change that a call is about to make.
    pub(crate) fn map_preview(
        &mut self,
        subtask: Option<&SubtaskLabel>,
        call: &CallId,
        preview: &str,
    ) -> Option<SessionUpdate> {
        let key = call_key(subtask, call);
        let fields = self.note_preview(&key, preview)?;
        Some(SessionUpdate::ToolCallUpdate(
            self.call_update(&key, fields),
        ))
    }

    /// Keeps the change that a call would make, and returns the fields that show it.
    fn note_preview(&mut self, key: &str, preview: &str) -> Option<ToolCallUpdateFields> {
        let open = self.open.get_mut(key)?;
        let path = open.call.arguments.get("path");
        let path = path.and_then(serde_json::Value::as_str);
        // A new file is previewed as its content, which may itself look like a diff.
        let changes = match written_content(&open.call) {
            Some(content) if content == preview => whole_file(&open.call, &self.folder),
            _ => parse_preview(preview, path, &self.folder),
        };
        if changes.diffs.is_empty() {
            return None;
        }
        let fields = ToolCallUpdateFields::new()
            .content(diff_content(&changes))
            .locations(changes.locations.clone());
        open.changes = changes;
        Some(fields)
    }

    /// Describes a call that the user is asked about: the change that it would make, or the text that it would write.
    pub(crate) fn describe_question(
        &mut self,
        subtask: Option<&SubtaskLabel>,
        call: &CallId,
        detail: &str,
    ) -> ToolCallUpdate {
        let key = call_key(subtask, call);
        let known = self.open.get(&key).map(|open| {
            ToolCallUpdateFields::new()
                .title(call_title(&open.call))
                .kind(tool_kind(&open.call.name))
                .raw_input(raw_input(&open.call))
                .locations(call_locations(&open.call, &self.folder))
        });
        let mut fields = known.unwrap_or_default().status(ToolCallStatus::Pending);
        if let Some(change) = self.note_preview(&key, detail) {
            fields.content = change.content;
            fields.locations = change.locations;
        } else if !detail.is_empty() {
            fields.content = Some(vec![text_content(detail)]);
        }
        self.call_update(&key, fields)
    }

    /// Closes the calls that have no result: their process was killed before they ended.
    pub(crate) fn close_open_calls(&mut self) -> Vec<SessionUpdate> {
        let mut keys: Vec<_> = self.open.drain().map(|(key, _)| key).collect();
        keys.sort();
        let closed = keys.iter().map(|key| {
            let fields = ToolCallUpdateFields::new()
                .status(ToolCallStatus::Failed)
                .content(vec![text_content("It was interrupted.")]);
            SessionUpdate::ToolCallUpdate(self.call_update(key, fields))
        });
        closed.collect()
    }

    /// Returns the update that shows a text of the agent, behind an empty line if it begins another answer.
    pub(crate) fn separate_text(&mut self, text: String, continues: bool) -> Option<SessionUpdate> {
        let ends_with_text = self.ends_with_text;
        let update = agent_text(if ends_with_text && !continues && !text.is_empty() {
            format!("\n\n{text}")
        } else {
            text
        });
        self.ends_with_text |= update.is_some();
        update
    }

    fn end_streams(&mut self) {
        self.text = Sanitizer::default();
        self.thought = Sanitizer::default();
        self.has_text = false;
        self.has_thought = false;
    }

    fn map_answer(&mut self, turn: &AssistantTurn, time: RecordSource) -> Vec<SessionUpdate> {
        // Kept for the stop reason of the turn, which comes later.
        self.last_stop = turn.stop;
        let mut updates = Vec::new();
        for part in &turn.parts {
            match part {
                // What was streamed is not repeated.
                MessagePart::Text { text } if !self.has_text => {
                    updates.extend(self.separate_text(sanitize_text(text), false));
                }
                MessagePart::Thought { text, .. } if !self.has_thought => {
                    updates.extend(agent_thought(sanitize_text(text)));
                }
                _ => {}
            }
        }
        self.end_streams();
        updates.extend(self.map_calls(None, turn));
        // What is left was cut off, or was no call after all.
        updates.extend(self.drafts.close());
        if time == RecordSource::Live {
            updates.extend(self.usage_update(turn));
        }
        updates
    }

    /// Announces the calls of an answer.
    fn map_calls(
        &mut self,
        subtask: Option<&SubtaskLabel>,
        turn: &AssistantTurn,
    ) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        for part in &turn.parts {
            let MessagePart::Call(call) = part else {
                continue;
            };
            let key = call_key(subtask, &call.id);
            // Control calls are kept as well: their results refer to them.
            let open = OpenCall {
                call: call.clone(),
                changes: FileDiffs::default(),
                output: String::new(),
                terminal: None,
            };
            self.open.insert(key.clone(), open);
            if is_control_call(&call.name) {
                continue;
            }
            self.ends_with_text = false;
            let title = call_title(call);
            let shown = match subtask {
                None => self.drafts.take_shown_id(call),
                Some(_) => None,
            };
            if let Some(shown) = shown {
                self.shown_ids.insert(key.clone(), shown);
                let fields = ToolCallUpdateFields::new()
                    .title(title)
                    .kind(tool_kind(&call.name))
                    // The text that was shown meanwhile is part of the input now.
                    .content(Vec::new())
                    .locations(call_locations(call, &self.folder))
                    .raw_input(raw_input(call));
                let update = self.call_update(&key, fields);
                updates.push(SessionUpdate::ToolCallUpdate(update));
                continue;
            }
            let title = subtask.map_or(title.clone(), |subtask| {
                format!("subtask ({}): {title}", subtask.mode)
            });
            updates.push(SessionUpdate::ToolCall(
                ToolCall::new(key, title)
                    .name(call.name.clone())
                    .kind(tool_kind(&call.name))
                    .status(ToolCallStatus::Pending)
                    .locations(call_locations(call, &self.folder))
                    .raw_input(raw_input(call)),
            ));
        }
        updates
    }

    fn map_running(&self, key: String) -> Vec<SessionUpdate> {
        let is_shown = self
            .open
            .get(&key)
            .is_some_and(|open| !is_control_call(&open.call.name));
        if !is_shown {
            return Vec::new();
        }
        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        vec![SessionUpdate::ToolCallUpdate(
            self.call_update(&key, fields),
        )]
    }

    fn map_subtask_end(&self, call: &CallId, end: &SubtaskEnd) -> Vec<SessionUpdate> {
        let key = call_key(None, call);
        if !self.open.contains_key(&key) {
            return Vec::new();
        }
        let text = format!("The subtask ended after {} turns.", end.turns);
        let fields = ToolCallUpdateFields::new().content(vec![text_content(&text)]);
        vec![SessionUpdate::ToolCallUpdate(
            self.call_update(&key, fields),
        )]
    }

    fn map_result(
        &mut self,
        subtask: Option<&SubtaskLabel>,
        result: &CallResult,
    ) -> Vec<SessionUpdate> {
        let key = call_key(subtask, &result.id);
        let open = self.open.remove(&key);
        let shown = self.shown_ids.remove(&key);
        let is_done = result.ending == ToolResultStatus::Done;
        if is_control_call(&result.name) {
            let call = open.map(|open| open.call).filter(|_| is_done);
            return call
                .and_then(|call| self.map_control_call(&call, subtask))
                .into_iter()
                .collect();
        }
        // The protocol knows no denial: it is a failure whose content says why.
        let status = if is_done {
            ToolCallStatus::Completed
        } else {
            ToolCallStatus::Failed
        };
        let terminal = open.as_ref().and_then(|open| open.terminal.clone());
        let changes = open.filter(|_| is_done).map(|open| {
            if open.changes.diffs.is_empty() {
                // A change of a text file has a preview, so this file is new.
                whole_file(&open.call, &self.folder)
            } else {
                open.changes
            }
        });
        let changes = changes.filter(|changes| !changes.diffs.is_empty());
        let content = match (changes, terminal) {
            (Some(changes), _) => diff_content(&changes),
            // The client keeps the output of a terminal that it has shown.
            (None, Some(terminal)) => vec![terminal_content(terminal)],
            (None, None) => result_content(result),
        };
        let fields = ToolCallUpdateFields::new()
            .status(status)
            .content(content)
            .raw_output(json!({"ending": result.ending, "text": clip(&result.content)}));
        vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
            shown.unwrap_or(key),
            fields,
        ))]
    }

    /// Maps a control call that was done: a result is a text, a todo list a plan.
    fn map_control_call(
        &mut self,
        call: &Call,
        subtask: Option<&SubtaskLabel>,
    ) -> Option<SessionUpdate> {
        let argument = |name: &str| call.arguments.get(name)?.as_str();
        match call.name.as_str() {
            // A subtask's result and plan are for its parent.
            _ if subtask.is_some() => None,
            COMPLETION_TOOL => self.separate_text(sanitize_text(argument("result")?), false),
            TODO_LIST_TOOL => TodoList::parse(argument("todos")?)
                .ok()
                .map(|list| SessionUpdate::Plan(todo_list_to_plan(&list))),
            _ => None,
        }
    }

    fn map_change(&mut self, change: &ContextChange, time: RecordSource) -> Vec<SessionUpdate> {
        match change {
            ContextChange::Moded { mode, .. } if time == RecordSource::Live => {
                vec![SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(
                    mode.clone(),
                ))]
            }
            ContextChange::Compacted(_) if self.shows_compactions && time == RecordSource::Live => {
                self.compactions += 1;
                let id = format!("compaction-{}", self.compactions);
                let update =
                    CompactionUpdate::new(CompactionId::new(id), CompactionStatus::Completed);
                vec![SessionUpdate::CompactionUpdate(update)]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the used part of the context and the cost so far, if the size of the context is known.
    fn usage_update(&self, turn: &AssistantTurn) -> Option<SessionUpdate> {
        // Without a size there is no share to show, and the protocol wants both numbers.
        let window = self.window?;
        let used = token_count(&turn.usage).or_else(|| token_count(&turn.estimate))?;
        let cost = self.totals.cost;
        let known = (!cost.is_unknown()).then(|| {
            // Billionths are exact in a float up to nine million dollars.
            #[expect(
                clippy::cast_precision_loss,
                reason = "an amount for display; see above"
            )]
            let amount = cost.known.as_nanos() as f64 / 1e9;
            Cost::new(amount, "USD")
        });
        Some(SessionUpdate::UsageUpdate(
            UsageUpdate::new(used, window).cost(known),
        ))
    }
}

/// Returns the content that a call writes as a whole file.
fn written_content(call: &Call) -> Option<&str> {
    let content = call
        .arguments
        .get("content")
        .filter(|_| call.name == WRITE_TOOL)?;
    content.as_str()
}

/// Returns the change of a call that writes a whole file; none for another call.
fn whole_file(call: &Call, folder: &Path) -> FileDiffs {
    let path = call
        .arguments
        .get("path")
        .and_then(serde_json::Value::as_str);
    let Some((content, path)) = written_content(call).zip(path) else {
        return FileDiffs::default();
    };
    let path = folder.join(path);
    FileDiffs {
        diffs: vec![Diff::new(path.clone(), content)],
        locations: vec![ToolCallLocation::new(path)],
    }
}

/// Returns the tokens of an answer and its request.
fn token_count(usage: &Usage) -> Option<u64> {
    match (usage.input, usage.output) {
        (None, None) => None,
        (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
    }
}

/// Returns the id of a call for the client. Calls of subtasks have ids of their own task, which may repeat.
pub(crate) fn call_key(subtask: Option<&SubtaskLabel>, call: &CallId) -> String {
    match subtask {
        Some(subtask) => format!("{}/{call}", subtask.task),
        None => call.to_string(),
    }
}

/// Returns true for calls that are shown as something else: a message, a question, a plan.
pub(crate) fn is_control_call(name: &str) -> bool {
    matches!(name, COMPLETION_TOOL | FOLLOWUP_TOOL | TODO_LIST_TOOL)
}

/// Converts a todo list. Nesting becomes indentation, since plans are flat.
fn todo_list_to_plan(list: &TodoList) -> Plan {
    let entries = list.items().iter().map(|item| {
        let status = match item.state {
            TodoState::Open => PlanEntryStatus::Pending,
            TodoState::Active => PlanEntryStatus::InProgress,
            TodoState::Done => PlanEntryStatus::Completed,
        };
        let text = sanitize_text(&item.text);
        let content = format!("{}{text}", "  ".repeat(item.depth.min(8)));
        PlanEntry::new(content, PlanEntryPriority::Medium, status)
    });
    Plan::new(entries.collect())
}

fn raw_input(call: &Call) -> serde_json::Value {
    serde_json::Value::Object(call.arguments.clone())
}

fn terminal_content(terminal: TerminalId) -> ToolCallContent {
    ToolCallContent::Terminal(Terminal::new(terminal))
}

fn diff_content(changes: &FileDiffs) -> Vec<ToolCallContent> {
    changes.diffs.iter().cloned().map(Into::into).collect()
}

fn text_chunk(text: String) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// Returns the update that shows a text of the agent; `None` for an empty one.
pub(crate) fn agent_text(text: String) -> Option<SessionUpdate> {
    (!text.is_empty()).then(|| SessionUpdate::AgentMessageChunk(text_chunk(text)))
}

/// Returns the update that shows reasoning; `None` for an empty one.
pub(crate) fn agent_thought(text: String) -> Option<SessionUpdate> {
    (!text.is_empty()).then(|| SessionUpdate::AgentThoughtChunk(text_chunk(text)))
}

fn user_message(text: &str, images: &[Image]) -> Vec<SessionUpdate> {
    let text = (!text.is_empty()).then(|| text_chunk(text.to_owned()));
    let images = images.iter().map(|image| {
        let image = ImageContent::new(image.data.clone(), image.media_type.clone());
        ContentChunk::new(ContentBlock::Image(image))
    });
    text.into_iter()
        .chain(images)
        .map(SessionUpdate::UserMessageChunk)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use agent_client_protocol::v1::schema::{SessionId, SessionNotification};
    use sabir_session::agent::TaskId;
    use serde_json::Value;

    use super::*;

    fn mapper() -> UpdateMapper {
        let mut mapper = UpdateMapper::new(Path::new("/w").to_owned());
        mapper.window = Some(1000);
        mapper.shows_compactions = true;
        mapper
    }

    fn record(value: Value) -> Record {
        serde_json::from_value(value).unwrap()
    }

    fn call_part(id: &str, name: &str, arguments: Value) -> Value {
        json!({"type": "call", "id": id, "name": name, "arguments": arguments})
    }

    fn answer(parts: Value) -> Record {
        record(
            json!({"kind": "answered", "turn": 1, "parts": parts, "checks": [], "usage": {"input": 90, "output": 10},
                      "cost": {"nano_usd": 5_000_000}}),
        )
    }

    fn result(id: &str, name: &str, ending: &str, content: &str) -> Record {
        record(
            json!({"kind": "result", "id": id, "name": name, "ending": ending, "content": content}),
        )
    }

    /// The updates as JSON, each checked against the schema of the protocol.
    fn checked(updates: impl IntoIterator<Item = SessionUpdate>) -> Vec<Value> {
        let schema = schemars::schema_for!(SessionNotification).to_value();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let updates = updates.into_iter().map(|update| {
            let notification = SessionNotification::new(SessionId::new("s"), update);
            let value = serde_json::to_value(notification).unwrap();
            assert!(schema.is_valid(&value), "{value}");
            value["update"].clone()
        });
        updates.collect()
    }

    fn live(mapper: &mut UpdateMapper, record: &Record) -> Vec<Value> {
        checked(mapper.map_record(record, RecordSource::Live))
    }

    #[test]
    fn every_kind_of_update_fits_the_schema() {
        let mut mapper = mapper();
        let text = StreamEvent::Text {
            text: "Hello \u{1b}[31mred\u{1b}[0m".to_owned(),
        };
        assert_eq!(
            checked(mapper.map_delta(&text))[0]["content"]["text"],
            "Hello red"
        );
        let thought = StreamEvent::Thought {
            text: "hm".to_owned(),
        };
        checked(mapper.map_delta(&thought));
        let parts = json!([
            {"type": "text", "text": "Hello red"}, {"type": "thought", "text": "hm"},
            call_part("1", "replace_in_file", json!({"path": "a.rs", "diff": "…"})),
            call_part("2", "update_todo_list", json!({"todos": "[x] one\n  [-] two"})),
            call_part("3", "execute_command", json!({"command": "ls"})),
        ]);
        let updates = live(&mut mapper, &answer(parts));
        // Streamed text is not repeated, and a todo list is not shown as a call.
        let kinds: Vec<_> = updates
            .iter()
            .map(|update| update["sessionUpdate"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["tool_call", "tool_call", "usage_update"]);
        assert_eq!(updates[2]["used"], 100);
        assert_eq!(updates[2]["cost"]["amount"], 0.005);
        let preview = mapper.map_preview(None, &CallId::new("1"), "@@ -3 +3 @@\n-a\n+b");
        assert_eq!(checked(preview)[0]["locations"][0]["line"], 3);
        let running = record(json!({"kind": "running", "call": "3"}));
        assert_eq!(live(&mut mapper, &running)[0]["status"], "in_progress");
        mapper.note_output(None, &CallId::new("3"), "some output");
        checked(mapper.output_update(None, &CallId::new("3")));
        let done = live(
            &mut mapper,
            &result("1", "replace_in_file", "done", "Changed"),
        );
        assert_eq!(done[0]["content"][0]["type"], "diff");
        let plan = live(
            &mut mapper,
            &result("2", "update_todo_list", "done", "Kept."),
        );
        assert_eq!(plan[0]["entries"][1]["content"], "  two");
        let failed = live(&mut mapper, &result("3", "execute_command", "failed", "no"));
        assert_eq!(failed[0]["status"], "failed");
        assert_eq!(failed[0]["rawOutput"]["ending"], "failed");
        let moded = json!({"kind": "context", "change": "moded", "mode": "plan", "told": "x"});
        assert_eq!(
            live(&mut mapper, &record(moded))[0]["currentModeId"],
            "plan"
        );
    }

    #[test]
    fn a_call_that_was_shown_while_it_was_written_keeps_its_id() {
        let mut mapper = mapper();
        let start = |index, name: &str| StreamEvent::CallStart {
            index,
            id: None,
            name: name.to_owned(),
            dialect: None,
            at: 0,
            name_at: 0,
        };
        mapper.note_draft(&start(0, "execute_command"));
        mapper.note_draft(&start(1, "read_file"));
        let drafts = checked(mapper.draft_updates());
        let shown = drafts[0]["toolCallId"].clone();
        // The second call was cut off, and so is not in the answer.
        let parts = json!([call_part("9", "execute_command", json!({"command": "ls"}))]);
        let updates = live(&mut mapper, &answer(parts));
        assert_eq!(
            (&updates[0]["toolCallId"], &updates[0]["rawInput"]),
            (&shown, &json!({"command": "ls"}))
        );
        assert_eq!(updates[1]["toolCallId"], drafts[1]["toolCallId"]);
        assert_eq!(updates[1]["status"], "failed");
        let call = CallId::new("9");
        let asked = mapper.describe_question(None, &call, "ls");
        assert_eq!(json!(asked.tool_call_id.0.as_ref()), shown);
        let running = record(json!({"kind": "running", "call": "9"}));
        assert_eq!(live(&mut mapper, &running)[0]["toolCallId"], shown);
        mapper.note_output(None, &call, "a.txt");
        let output = checked(mapper.output_update(None, &call));
        assert_eq!(output[0]["toolCallId"], shown);
        let done = live(
            &mut mapper,
            &result("9", "execute_command", "done", "a.txt"),
        );
        assert_eq!(done[0]["toolCallId"], shown);
    }

    #[test]
    fn the_past_is_repeated_and_open_calls_are_closed() {
        let mut mapper = mapper();
        let said = json!({"kind": "said", "by": "user", "text": "more", "images": [{"media_type": "image/png", "data": "AA"}]});
        let past = checked(mapper.map_record(&record(said), RecordSource::Past));
        assert_eq!(past.len(), 2);
        let parts = json!([{"type": "text", "text": "I look."}, call_part("1", "read_file", json!({"path": "a"}))]);
        let past = checked(mapper.map_record(&answer(parts), RecordSource::Past));
        assert_eq!(past[0]["content"]["text"], "I look.");
        assert_eq!(
            past.len(),
            2,
            "the usage of the past is not shown: {past:?}"
        );
        let closed = checked(mapper.close_open_calls());
        assert_eq!((closed.len(), &closed[0]["status"]), (1, &json!("failed")));
        assert!(mapper.close_open_calls().is_empty());
    }

    #[test]
    fn answers_do_not_run_into_each_other() {
        let mut mapper = mapper();
        let parts = || json!([{"type": "text", "text": "one"}]);
        live(&mut mapper, &answer(parts()));
        let second = live(&mut mapper, &answer(parts()));
        assert_eq!(second[0]["content"]["text"], "\n\none");
        mapper.note_prompt();
        let third = live(&mut mapper, &answer(parts()));
        assert_eq!(third[0]["content"]["text"], "one");
    }

    #[test]
    fn calls_of_subtasks_have_ids_of_their_own() {
        let mut mapper = mapper();
        let label = SubtaskLabel {
            task: TaskId::new("parent-1"),
            mode: "code".to_owned(),
            depth: 1,
        };
        let parts = json!([{"type": "text", "text": "quiet"}, call_part("1", "read_file", json!({"path": "a"}))]);
        let updates = checked(mapper.map_subtask_record(&label, &answer(parts)));
        assert_eq!(updates.len(), 1);
        assert_eq!(updates[0]["toolCallId"], "parent-1/1");
        let asked = mapper.describe_question(Some(&label), &CallId::new("1"), "detail");
        assert_eq!(asked.tool_call_id.0.as_ref(), "parent-1/1");
    }

    #[test]
    fn a_flood_of_output_shows_its_end() {
        let mut mapper = mapper();
        let parts = json!([call_part("1", "execute_command", json!({"command": "yes"}))]);
        live(&mut mapper, &answer(parts));
        let call = CallId::new("1");
        for _ in 0..100 {
            mapper.note_output(None, &call, &"é".repeat(4000));
        }
        mapper.note_output(None, &call, "the end");
        let update = checked(mapper.output_update(None, &call));
        let text = update[0]["content"][0]["content"]["text"].as_str().unwrap();
        assert!(text.len() <= MAX_OUTPUT_BYTES && text.ends_with("the end"));
    }
}
