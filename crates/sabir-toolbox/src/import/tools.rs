//! Lists the tools of Cline and Roo Code with all arguments of all their versions, as far as needed
//! to parse their calls in text.

use sabir_call::{ToolSet, ToolSpec};
use serde_json::{Map, Value, json};

/// The tools and their arguments. Each may also have `task_progress`.
const TOOLS: &[(&str, &str)] = &[
    ("access_mcp_resource", "server_name uri"),
    ("apply_diff", "path diff start_line end_line args"),
    ("apply_patch", "input patch"),
    ("ask_followup_question", "question options follow_up"),
    ("attempt_completion", "result command"),
    ("browser_action", "action url coordinate text size"),
    ("codebase_search", "query path"),
    ("condense", "context"),
    (
        "edit_file",
        "path old_string new_string expected_replacements",
    ),
    ("execute_command", "command requires_approval timeout cwd"),
    ("fetch_instructions", "task"),
    ("generate_image", "prompt path image"),
    ("insert_content", "path line content"),
    ("list_code_definition_names", "path"),
    ("list_files", "path recursive"),
    ("load_mcp_documentation", ""),
    ("new_rule", "path content"),
    ("new_task", "context mode message todos"),
    (
        "plan_mode_respond",
        "response options needs_more_exploration",
    ),
    ("read_file", "path args start_line end_line line_range"),
    ("replace_in_file", "path diff"),
    (
        "report_bug",
        "title what_happened steps_to_reproduce api_request_output additional_context",
    ),
    ("run_slash_command", "command args"),
    (
        "search_and_replace",
        "path search replace start_line end_line use_regex ignore_case operations",
    ),
    ("search_files", "path regex file_pattern"),
    ("summarize_task", "context"),
    ("switch_mode", "mode_slug reason"),
    ("update_todo_list", "todos"),
    ("use_mcp_tool", "server_name tool_name arguments"),
    ("use_skill", "skill_name"),
    ("web_fetch", "url prompt"),
    ("web_search", "query allowed_domains blocked_domains"),
    ("write_to_file", "path content line_count"),
];

/// Returns the tools as a set for the call reader.
pub(super) fn known_tools() -> ToolSet {
    let spec = |row: &(&'static str, &str)| {
        let (name, arguments) = *row;
        // Nothing is required: a call of any version must fit.
        let names = arguments.split_whitespace().chain(["task_progress"]);
        let properties: Map<_, _> = names
            // Their formats have no types in text: every value is a string.
            .map(|name| (name.to_owned(), json!({"type": "string"})))
            .collect();
        ToolSpec::new(
            name,
            "",
            json!({"type": "object", "properties": Value::Object(properties)}),
        )
    };
    // The names are distinct and valid; a test holds that.
    ToolSet::new(TOOLS.iter().map(spec).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{TOOLS, known_tools};

    #[test]
    fn every_row_defines_a_tool() {
        assert_eq!(known_tools().all_tools().count(), TOOLS.len());
    }
}
