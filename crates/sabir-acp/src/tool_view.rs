//! Describes calls for a client: kind, title, locations and contents.

use std::path::Path;

use agent_client_protocol::v1::schema::{
    ContentBlock, ImageContent, TextContent, ToolCallContent, ToolCallLocation, ToolKind,
};
use sabir_session::agent::{call_paths, call_subject};
use sabir_session::call::{Call, CallResult};
use sabir_terminal::sanitizer::sanitize_text;

use crate::message_text::show_hidden_characters;

/// The tools with a kind. Any other one, such as that of an MCP server, is `other`.
const KINDS: [(&str, ToolKind); 14] = [
    ("read_file", ToolKind::Read),
    ("list_files", ToolKind::Search),
    ("search_files", ToolKind::Search),
    ("list_code_definition_names", ToolKind::Search),
    ("write_to_file", ToolKind::Edit),
    ("replace_in_file", ToolKind::Edit),
    ("edit_file", ToolKind::Edit),
    ("apply_patch", ToolKind::Edit),
    ("execute_command", ToolKind::Execute),
    ("read_command_output", ToolKind::Execute),
    ("stop_command", ToolKind::Execute),
    ("fetch_url", ToolKind::Fetch),
    ("switch_mode", ToolKind::SwitchMode),
    ("new_task", ToolKind::Think),
];

/// The most characters of a title.
const MAX_TITLE_CHARS: usize = 300;
/// The most bytes of a text that a call shows. Models get such texts whole, a user reads the beginning and the end.
const MAX_SHOWN_BYTES: usize = 64 << 10;

/// Returns the kind of a tool.
pub(crate) fn tool_kind(name: &str) -> ToolKind {
    KINDS
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(ToolKind::Other, |(_, kind)| *kind)
}

/// Returns the title of a call: the command, or the tool and its subject.
pub(crate) fn call_title(call: &Call) -> String {
    let subject = call_subject(call);
    let title = match tool_kind(&call.name) {
        ToolKind::Execute if call.arguments.contains_key("command") => subject,
        _ => format!("{} {subject}", call.name),
    };
    let title = show_hidden_characters(&title);
    match title.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{} …", title.get(..end).unwrap_or_default()),
        None => title,
    }
}

/// Returns the files that a call names.
pub(crate) fn call_locations(call: &Call, folder: &Path) -> Vec<ToolCallLocation> {
    // The arguments of other programs' tools may be called `path` and mean something else.
    if tool_kind(&call.name) == ToolKind::Other {
        return Vec::new();
    }
    let line = ["start_line", "line"]
        .iter()
        .find_map(|name| call.arguments.get(*name))
        .and_then(serde_json::Value::as_u64)
        .and_then(|line| u32::try_from(line).ok());
    let paths = call_paths(call);
    // A line belongs to the one file that is read; further ones have their own ranges.
    let single = paths.len() == 1;
    paths
        .iter()
        .map(|path| ToolCallLocation::new(folder.join(path)).line(line.filter(|_| single)))
        .collect()
}

/// Returns a text as the content of a call.
pub(crate) fn text_content(text: &str) -> ToolCallContent {
    ContentBlock::Text(TextContent::new(sanitize_text(&clip(text)))).into()
}

/// Returns the text and the images of a result.
pub(crate) fn result_content(result: &CallResult) -> Vec<ToolCallContent> {
    let text = Some(result.content.as_str()).filter(|text| !text.is_empty());
    let images = result.images.iter().map(|image| {
        let image = ImageContent::new(image.data.clone(), image.media_type.clone());
        ToolCallContent::from(ContentBlock::Image(image))
    });
    text.map(text_content).into_iter().chain(images).collect()
}

/// Shortens a text in the middle.
pub(crate) fn clip(text: &str) -> String {
    if text.len() <= MAX_SHOWN_BYTES {
        return text.to_owned();
    }
    let head_end = text.floor_char_boundary(MAX_SHOWN_BYTES / 2);
    let tail_start = text.ceil_char_boundary(text.len() - MAX_SHOWN_BYTES / 2);
    let part = |range: Option<&str>| range.unwrap_or_default().to_owned();
    format!(
        "{}\n<{} bytes that are not shown>\n{}",
        part(text.get(..head_end)),
        tail_start - head_end,
        part(text.get(tail_start..))
    )
}

#[cfg(test)]
mod tests {
    use sabir_session::call::CallId;
    use serde_json::{Value, json};

    use super::*;

    fn call(name: &str, arguments: Value) -> Call {
        Call {
            id: CallId::new("1"),
            name: name.to_owned(),
            arguments: arguments.as_object().cloned().unwrap(),
            dialect: None,
        }
    }

    #[test]
    fn a_title_says_what_happens() {
        let title = |name, arguments| call_title(&call(name, arguments));
        assert_eq!(
            title("execute_command", json!({"command": "cargo test"})),
            "cargo test"
        );
        assert_eq!(
            title("read_file", json!({"path": "src/a.rs"})),
            "read_file src/a.rs"
        );
        assert_eq!(
            title("execute_command", json!({"command": "ls \u{202e}x"})),
            "ls <U+202E>x"
        );
        let long = title("execute_command", json!({"command": "x".repeat(1000)}));
        assert_eq!(long.chars().count(), MAX_TITLE_CHARS + 2);
    }

    #[test]
    fn places_are_absolute() {
        let folder = Path::new("/w");
        let read = call("read_file", json!({"path": "a.rs", "start_line": 7}));
        let [place] = call_locations(&read, folder).try_into().unwrap();
        assert_eq!(place.path, Path::new("/w/a.rs"));
        assert_eq!(place.line, Some(7));
        // The `path` of another server's tool need not be one in this folder.
        assert!(call_locations(&call("x_tool", json!({"path": "a.rs"})), folder).is_empty());
    }

    #[test]
    fn long_results_are_shortened_in_the_middle() {
        let text = format!("a{}z", "é".repeat(MAX_SHOWN_BYTES));
        let clipped = clip(&text);
        assert!(clipped.len() < MAX_SHOWN_BYTES + 100);
        assert!(clipped.starts_with("aé") && clipped.ends_with("éz"));
    }

    #[test]
    fn every_built_in_tool_has_a_kind_or_is_a_control_call() {
        let control = [
            "attempt_completion",
            "ask_followup_question",
            "update_todo_list",
            "load_skill",
        ];
        for spec in sabir_session::built_in_tools().iter() {
            let is_known = KINDS.iter().any(|(name, _)| *name == spec.name);
            assert!(
                is_known || control.contains(&spec.name.as_str()),
                "{}",
                spec.name
            );
        }
    }
}
