//! The table of other agents' tools.

use super::ArgumentEffect::{
    CaseSensitive, Choices, CommandLine, Files, FirstLine, IgnoreCase, Ignored, LineCount,
    LineRange, Milliseconds, Only, Questions, Refused, ShownCommand, Todos, Value,
};
use super::ArgumentKind::{Any, Flag, Integer, Number, Text};
use super::{ArgumentEffect, ArgumentKind, ForeignArgument, ForeignMeaning, ForeignTool};

const IN_FOLDER: &str =
    "commands run in the workspace folder; for another one, begin the command with `cd FOLDER && `";
const ONE_PLACE: &str = "take enough lines around the text that it is found only once";
const ALL_PLACES: &str = "leave it out, or set `replace_all` with `edit_file`";
const LINES: &str = "use `start_line` and `end_line`, which count from 1";

const INSERT: &str = "use `replace_in_file` with the lines at that place in SEARCH, and again in REPLACE with the new ones \
                      between them";
const NO_SKILLS: &str =
    "there are no skills to load: read the file that describes it with `read_file`";
const UNDO: &str = "edits are not undone by a call: change the text back with `edit_file`";

/// An optional text that becomes the value of `target`.
const fn text(name: &'static str, target: &'static str) -> ForeignArgument {
    optional(name, Text, Value(target))
}

/// A required text that becomes the value of `target`.
const fn need(name: &'static str, target: &'static str) -> ForeignArgument {
    required(name, Text, Value(target))
}

/// An argument without an effect.
const fn skip(name: &'static str) -> ForeignArgument {
    optional(name, Any, Ignored)
}

/// An argument that is refused.
const fn refuse(name: &'static str, hint: &'static str) -> ForeignArgument {
    optional(name, Any, Refused(hint))
}

const fn optional(
    name: &'static str,
    kind: ArgumentKind,
    effect: ArgumentEffect,
) -> ForeignArgument {
    ForeignArgument {
        name,
        kind,
        required: false,
        effect,
    }
}

const fn required(
    name: &'static str,
    kind: ArgumentKind,
    effect: ArgumentEffect,
) -> ForeignArgument {
    ForeignArgument {
        name,
        kind,
        required: true,
        effect,
    }
}

const fn row(
    names: &'static [&'static str],
    target: &'static str,
    arguments: &'static [ForeignArgument],
) -> ForeignTool {
    ForeignTool {
        names,
        arguments,
        meaning: ForeignMeaning::Tool(target),
    }
}

/// A tool that not every task has.
const fn row_or_refused(
    names: &'static [&'static str],
    tool: &'static str,
    otherwise: &'static str,
    arguments: &'static [ForeignArgument],
) -> ForeignTool {
    ForeignTool {
        names,
        arguments,
        meaning: ForeignMeaning::ToolIfOffered { tool, otherwise },
    }
}

const fn refused(names: &'static [&'static str], hint: &'static str) -> ForeignTool {
    refused_with(names, hint, &[])
}

/// A refused tool whose name is a plain word: its arguments show that a tag is meant as a call.
const fn refused_with(
    names: &'static [&'static str],
    hint: &'static str,
    arguments: &'static [ForeignArgument],
) -> ForeignTool {
    ForeignTool {
        names,
        arguments,
        meaning: ForeignMeaning::Refused(hint),
    }
}

/// All rows. A row whose name is also that of a declared tool adds arguments to that tool.
pub static FOREIGN_TOOLS: &[ForeignTool] = &[
    // Commands.
    row(
        &["bash", "Bash"],
        "execute_command",
        &[
            required("command", Any, CommandLine),
            optional("timeout", Number, Milliseconds("timeout")),
            optional("run_in_background", Flag, Value("background")),
            skip("description"),
            skip("login"),
            optional(
                "restart",
                Flag,
                Only(
                    "false",
                    "each command has a shell of its own, so there is nothing to restart",
                ),
            ),
            optional("workdir", Text, Only(".", IN_FOLDER)),
            refuse(
                "dangerouslyDisableSandbox",
                "call `execute_command` with `unconfined`, after the command failed inside",
            ),
        ],
    ),
    row(
        &["shell", "shell_command", "local_shell", "container.exec"],
        "execute_command",
        &[
            required("command", Any, CommandLine),
            optional("workdir", Text, Only(".", IN_FOLDER)),
            optional("timeout_ms", Number, Milliseconds("timeout")),
            optional("timeout", Number, Milliseconds("timeout")),
            optional(
                "with_escalated_permissions",
                Flag,
                Only(
                    "false",
                    "call `execute_command` with `unconfined`, after the command failed inside",
                ),
            ),
            optional(
                "sandbox_permissions",
                Text,
                Only(
                    "use_default",
                    "call `execute_command` with `unconfined`, after the command failed inside",
                ),
            ),
            skip("justification"),
            skip("login"),
            skip("description"),
        ],
    ),
    row(
        &["exec_command"],
        "execute_command",
        &[
            required("command", Any, CommandLine),
            optional("workdir", Text, Only(".", IN_FOLDER)),
            optional("tty", Flag, Value("terminal")),
            skip("yield_time_ms"),
            skip("max_output_tokens"),
            skip("login"),
            skip("shell"),
            skip("justification"),
        ],
    ),
    row(
        &[
            "run_command",
            "run_shell_command",
            "run_terminal_cmd",
            "run_terminal_command",
            "run_in_terminal",
            "execute_shell_command",
            "run_bash",
            "terminal",
            "developer__shell",
        ],
        "execute_command",
        &[
            required("command", Any, CommandLine),
            optional("is_background", Flag, Value("background")),
            optional("isBackground", Flag, Value("background")),
            optional("directory", Text, Only(".", IN_FOLDER)),
            optional("dir_path", Text, Only(".", IN_FOLDER)),
            optional("cwd", Text, Only(".", IN_FOLDER)),
            refuse("timeout", "give seconds as `timeout` of `execute_command`"),
            skip("description"),
            skip("explanation"),
            skip("requires_approval"),
            skip("require_user_approval"),
        ],
    ),
    row(
        &["execute_bash", "execute_shell", "cmd_run"],
        "execute_command",
        &[
            required("command", Any, CommandLine),
            optional("timeout", Number, Value("timeout")),
            optional(
                "is_input",
                Any,
                Only(
                    "false",
                    "there is no input; start the command again with what it needs",
                ),
            ),
            skip("security_risk"),
            skip("thought"),
        ],
    ),
    row(
        &["execute_command"],
        "execute_command",
        &[
            skip("requires_approval"),
            skip("task_progress"),
            skip("description"),
            skip("explanation"),
            optional("cwd", Text, Only(".", IN_FOLDER)),
            optional("workdir", Text, Only(".", IN_FOLDER)),
        ],
    ),
    refused(
        &[
            "BashOutput",
            "bash_output",
            "TaskOutput",
            "get_terminal_output",
            "command_status",
            "read_background_output",
            "list_background_processes",
        ],
        "use `read_command_output` with the number that the command's result gave",
    ),
    refused(
        &["KillShell", "KillBash", "kill_shell", "TaskStop"],
        "use `stop_command` with the number that the command's result gave",
    ),
    refused(
        &["write_stdin", "send_command_input", "send_input"],
        "commands get no input; run the command again with what it asks for in options or in a here-document",
    ),
    // Reading.
    row(
        &[
            "Read",
            "view_file",
            "open_file",
            "read_text_file",
            "cat",
            "view_image",
        ],
        "read_file",
        &[
            need("path", "path"),
            optional("offset", Integer, FirstLine),
            optional("limit", Integer, LineCount),
            refuse("pages", "read the text of the document with a command"),
        ],
    ),
    row(
        &["read"],
        "read_file",
        &[
            need("path", "path"),
            refuse("offset", LINES),
            refuse("limit", LINES),
        ],
    ),
    row(
        &["view"],
        "read_file",
        &[need("path", "path"), optional("view_range", Any, LineRange)],
    ),
    row(
        &["read_file"],
        "read_file",
        &[
            optional("args", Any, Files),
            optional("files", Any, Files),
            optional("line_range", Any, LineRange),
            optional("view_range", Any, LineRange),
            refuse("offset", LINES),
            refuse("limit", LINES),
            optional("mode", Text, Only("slice", LINES)),
            refuse("indentation", LINES),
            optional("should_read_entire_file", Flag, Only("true", LINES)),
            optional("start_line_one_indexed", Integer, Value("start_line")),
            optional("end_line_one_indexed_inclusive", Integer, Value("end_line")),
            skip("task_progress"),
            skip("explanation"),
        ],
    ),
    row(
        &["read_many_files", "read_multiple_files", "read_files"],
        "read_file",
        &[
            optional("paths", Any, Files),
            optional("include", Any, Files),
            optional("files", Any, Files),
            refuse("exclude", "name the files themselves"),
            refuse("recursive", "name the files themselves"),
        ],
    ),
    // Folders and searches.
    row(
        &["LS", "ls", "list_dir", "list_directory", "list"],
        "list_files",
        &[
            need("path", "path"),
            optional("recursive", Flag, Value("recursive")),
            skip("ignore"),
            skip("respect_git_ignore"),
            skip("file_filtering_options"),
            skip("explanation"),
            refuse("depth", "use `recursive` of `list_files`, or leave it out"),
            refuse("offset", "`list_files` has no parts"),
            refuse("limit", "`list_files` has no parts"),
        ],
    ),
    row(
        &["list_files"],
        "list_files",
        &[
            skip("task_progress"),
            skip("explanation"),
            skip("respect_git_ignore"),
            skip("ignore"),
        ],
    ),
    row(
        &["search_files"],
        "search_files",
        &[
            skip("task_progress"),
            skip("explanation"),
            optional("ignore_case", Flag, IgnoreCase),
            optional("case_sensitive", Flag, CaseSensitive),
        ],
    ),
    row(
        &["list_code_definition_names"],
        "list_code_definition_names",
        &[skip("task_progress")],
    ),
    row(
        &[
            "Grep",
            "grep",
            "grep_search",
            "grep_files",
            "search_file_content",
            "ripgrep",
            "search_text",
            "search_for_pattern",
        ],
        "search_files",
        &[
            need("pattern", "regex"),
            text("path", "path"),
            text("dir_path", "path"),
            text("glob", "file_pattern"),
            text("include", "file_pattern"),
            text("include_pattern", "file_pattern"),
            optional("-i", Flag, IgnoreCase),
            optional("ignore_case", Flag, IgnoreCase),
            optional("case_sensitive", Flag, CaseSensitive),
            optional("-C", Integer, Value("context_lines")),
            optional("context", Integer, Value("context_lines")),
            refuse("-A", "use `context_lines` of `search_files`"),
            refuse("-B", "use `context_lines` of `search_files`"),
            refuse("type", "use `file_pattern` of `search_files`, as in `*.rs`"),
            refuse(
                "exclude_pattern",
                "use `file_pattern` of `search_files`, as in `src/**/*.rs`",
            ),
            optional(
                "multiline",
                Flag,
                Only("false", "`search_files` searches line by line"),
            ),
            skip("-n"),
            skip("output_mode"),
            skip("head_limit"),
            skip("limit"),
            skip("explanation"),
            skip("description"),
        ],
    ),
    refused_with(
        &[
            "Glob",
            "glob",
            "find_files",
            "file_search",
            "glob_file_search",
            "find_by_name",
            "find_path",
            "developer__tree",
        ],
        "use `list_files` with `recursive`, or a command such as `find . -name '*.rs'`",
        &[
            skip("pattern"),
            skip("glob_pattern"),
            skip("path"),
            skip("target_directory"),
            skip("query"),
            skip("explanation"),
        ],
    ),
    refused(
        &[
            "codebase_search",
            "semantic_search",
            "search_codebase",
            "codesearch",
            "code_search",
        ],
        "there is no search by meaning: use `search_files` with a regular expression, and `list_code_definition_names` for an outline",
    ),
    // Writing.
    row(
        &["write_to_file"],
        "write_to_file",
        &[
            skip("line_count"),
            skip("task_progress"),
            skip("explanation"),
            skip("description"),
        ],
    ),
    row(
        &[
            "Write",
            "write_file",
            "create_file",
            "save_file",
            "new_file",
            "write",
            "create",
            "developer__write",
        ],
        "write_to_file",
        &[
            need("path", "path"),
            need("content", "content"),
            skip("line_count"),
            skip("description"),
            skip("explanation"),
            skip("instructions"),
            skip("security_risk"),
        ],
    ),
    // Changing.
    row(
        &[
            "Edit",
            "edit",
            "search_replace",
            "replace",
            "str_replace",
            "replace_string_in_file",
        ],
        "edit_file",
        &[
            need("path", "path"),
            need("old_string", "old_string"),
            need("new_string", "new_string"),
            optional("replace_all", Flag, Value("replace_all")),
            optional("allow_multiple", Flag, Value("replace_all")),
            optional("expected_replacements", Any, Only("1", ALL_PLACES)),
            skip("instruction"),
            skip("explanation"),
            skip("description"),
            skip("security_risk"),
        ],
    ),
    row(
        &["developer__edit"],
        "edit_file",
        &[
            need("path", "path"),
            need("before", "old_string"),
            need("after", "new_string"),
        ],
    ),
    row(
        &["edit_file"],
        "edit_file",
        &[
            optional("expected_replacements", Any, Only("1", ALL_PLACES)),
            skip("instruction"),
            skip("instructions"),
            skip("explanation"),
            skip("task_progress"),
        ],
    ),
    row(
        &["replace_in_file"],
        "replace_in_file",
        &[
            skip("task_progress"),
            skip("explanation"),
            refuse(
                "start_line",
                "put `:start_line:N` and a line of dashes below `SEARCH`",
            ),
            refuse(
                "end_line",
                "put `:start_line:N` and a line of dashes below `SEARCH`",
            ),
        ],
    ),
    row(
        &["apply_diff", "search_replace_blocks"],
        "replace_in_file",
        &[
            need("path", "path"),
            need("diff", "diff"),
            refuse(
                "start_line",
                "put `:start_line:N` and a line of dashes below `SEARCH`",
            ),
            refuse(
                "end_line",
                "put `:start_line:N` and a line of dashes below `SEARCH`",
            ),
            refuse(
                "args",
                "make a call of `replace_in_file` for each file, with `path` and `diff`",
            ),
            refuse(
                "files",
                "make a call of `replace_in_file` for each file, with `path` and `diff`",
            ),
        ],
    ),
    row(
        &["apply_patch"],
        "apply_patch",
        &[skip("task_progress"), skip("explanation")],
    ),
    row(&["patch"], "apply_patch", &[need("patch", "patch")]),
    row(
        &["search_and_replace", "find_and_replace"],
        "edit_file",
        &[
            need("path", "path"),
            need("search", "old_string"),
            need("replace", "new_string"),
            optional(
                "use_regex",
                Flag,
                Only(
                    "false",
                    "only plain text is replaced: use `edit_file` or `replace_in_file`",
                ),
            ),
            optional(
                "ignore_case",
                Flag,
                Only(
                    "false",
                    "the case must be right: use `edit_file` or `replace_in_file`",
                ),
            ),
            refuse("start_line", ONE_PLACE),
            refuse("end_line", ONE_PLACE),
            refuse(
                "operations",
                "make a call of `edit_file` for each replacement",
            ),
        ],
    ),
    refused(
        &[
            "insert_content",
            "insert_line",
            "insert",
            "insert_code",
            "insert_text",
        ],
        INSERT,
    ),
    refused(
        &["append_to_file", "append_file", "append"],
        "use `replace_in_file` with the last lines in SEARCH, and again in REPLACE with the new ones behind them",
    ),
    refused_with(
        &[
            "MultiEdit",
            "multi_edit",
            "multiedit",
            "multi_replace_string_in_file",
        ],
        "make a call of `edit_file` for each edit, or one of `replace_in_file` with several blocks",
        &[
            skip("file_path"),
            skip("filePath"),
            skip("path"),
            skip("edits"),
            skip("replacements"),
            skip("explanation"),
        ],
    ),
    refused(&["undo_edit"], UNDO),
    refused(
        &["NotebookEdit", "notebook_edit", "edit_notebook"],
        "a notebook is JSON: change its text with `edit_file` or `replace_in_file`",
    ),
    refused(
        &["delete_file", "remove_file", "Delete", "DeleteFile"],
        "use `apply_patch` with `*** Delete File: PATH`, or `rm` with `execute_command`",
    ),
    refused(
        &["move_file", "rename_file", "copy_file"],
        "use `mv` or `cp` with `execute_command`",
    ),
    refused(
        &["create_directory", "make_directory", "mkdir"],
        "`write_to_file` makes the folders that a path needs; an empty one comes from `mkdir` with `execute_command`",
    ),
    ForeignTool {
        names: &[
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "str_replace_based_edit",
            "text_editor",
            "developer__text_editor",
            "edit_tool",
            "file_editor",
        ],
        arguments: &[
            required("command", Text, Ignored),
            optional("path", Text, Ignored),
            optional("file_text", Text, Ignored),
            optional("old_str", Text, Ignored),
            optional("new_str", Text, Ignored),
            skip("view_range"),
            skip("insert_line"),
            optional("insert_text", Text, Ignored),
            skip("security_risk"),
        ],
        meaning: ForeignMeaning::SubCommand {
            argument: "command",
            cases: &[
                (
                    "view",
                    row(
                        &["view"],
                        "read_file",
                        &[need("path", "path"), optional("view_range", Any, LineRange)],
                    ),
                ),
                (
                    "create",
                    row(
                        &["create"],
                        "write_to_file",
                        &[need("path", "path"), need("file_text", "content")],
                    ),
                ),
                (
                    "write",
                    row(
                        &["write"],
                        "write_to_file",
                        &[need("path", "path"), need("file_text", "content")],
                    ),
                ),
                (
                    "str_replace",
                    row(
                        &["str_replace"],
                        "edit_file",
                        &[
                            need("path", "path"),
                            need("old_str", "old_string"),
                            need("new_str", "new_string"),
                        ],
                    ),
                ),
                ("insert", refused(&["insert"], INSERT)),
                ("undo_edit", refused(&["undo_edit"], UNDO)),
            ],
        },
    },
    // The end and the user.
    row(
        &["attempt_completion"],
        "attempt_completion",
        &[
            optional("command", Text, ShownCommand),
            skip("task_progress"),
        ],
    ),
    row(
        &["complete_task"],
        "attempt_completion",
        &[text("result", "result"), text("message", "result")],
    ),
    row(
        &[
            "finish",
            "task_done",
            "task_complete",
            "final_answer",
            "submit_result",
        ],
        "attempt_completion",
        &[
            required("message", Text, Value("result")),
            optional(
                "task_completed",
                Any,
                Only(
                    "true",
                    "continue with the task, or ask with `ask_followup_question`",
                ),
            ),
            skip("thought"),
        ],
    ),
    row(
        &["ask_followup_question"],
        "ask_followup_question",
        &[
            optional("options", Any, Choices),
            optional("suggestions", Any, Choices),
            optional("choices", Any, Choices),
            optional("follow_up", Any, Choices),
            skip("task_progress"),
        ],
    ),
    row(
        &["ask_user", "ask_question", "ask_human", "ask_user_question"],
        "ask_followup_question",
        &[
            text("question", "question"),
            optional("questions", Any, Questions),
            optional("options", Any, Choices),
            optional("choices", Any, Choices),
        ],
    ),
    row(
        &["AskUserQuestion", "request_user_input", "question"],
        "ask_followup_question",
        &[required("questions", Any, Questions)],
    ),
    row(
        &["plan_mode_respond", "plan_mode_response"],
        "ask_followup_question",
        &[
            required("response", Text, Value("question")),
            optional("options", Any, Choices),
            optional(
                "needs_more_exploration",
                Flag,
                Only(
                    "false",
                    "explore first, with `read_file` and `search_files`",
                ),
            ),
            skip("task_progress"),
        ],
    ),
    refused(
        &["ExitPlanMode", "exit_plan_mode", "plan_exit"],
        "show the plan with `ask_followup_question`; another mode comes with `switch_mode`",
    ),
    refused(
        &["EnterPlanMode", "enter_plan_mode", "plan_enter"],
        "another mode comes with `switch_mode`; a plan needs none",
    ),
    refused(
        &["act_mode_respond"],
        "write the words before your next call; they need no call of their own",
    ),
    refused_with(
        &["think", "Think", "sequentialthinking"],
        "think in words before your next call; thinking needs no call",
        &[skip("thought"), skip("thoughts")],
    ),
    // Todo lists, modes, subtasks.
    row(
        &[
            "TodoWrite",
            "todowrite",
            "todo_write",
            "write_todos",
            "manage_todo_list",
        ],
        "update_todo_list",
        &[
            required("todos", Any, Todos),
            skip("merge"),
            skip("operation"),
        ],
    ),
    row(
        &["update_plan"],
        "update_todo_list",
        &[required("plan", Any, Todos), skip("explanation")],
    ),
    row(
        &["update_todo_list"],
        "update_todo_list",
        &[optional("todos", Any, Todos), skip("task_progress")],
    ),
    refused(
        &["TodoRead", "todoread", "todo_read"],
        "the list that you wrote last is in the conversation; `update_todo_list` replaces it",
    ),
    row(&["switch_mode"], "switch_mode", &[skip("task_progress")]),
    row_or_refused(
        &["Task", "Agent", "task", "delegate_to_subagent"],
        "new_task",
        "there are no subtasks in this task: do the work yourself",
        &[
            required("prompt", Text, Value("message")),
            skip("description"),
            skip("subagent_type"),
            optional(
                "run_in_background",
                Flag,
                Only(
                    "false",
                    "a subtask answers with its result; call several in one message to run them at once",
                ),
            ),
            refuse("model", "leave it out: a subtask has the model of its mode"),
        ],
    ),
    row(&["new_task"], "new_task", &[skip("task_progress")]),
    refused(
        &[
            "spawn_agent",
            "send_message_to_agent",
            "wait_agent",
            "close_agent",
            "resume_agent",
            "delegate_to_agent",
            "use_subagents",
            "subagent__execute_task",
            "dynamic_task__create_task",
            "codebase_investigator",
        ],
        "do the work yourself, or give it away with `new_task` if there is such a tool; its result comes by itself",
    ),
    refused(
        &[
            "use_mcp_tool",
            "access_mcp_resource",
            "list_mcp_resources",
            "read_mcp_resource",
        ],
        "no connected MCP server has that: use the tools of the system prompt",
    ),
    // The web.
    row(
        &[
            "WebFetch",
            "web_fetch",
            "webfetch",
            "fetch",
            "read_url_content",
            "fetch_webpage",
        ],
        "fetch_url",
        &[
            need("url", "url"),
            skip("prompt"),
            skip("format"),
            skip("max_length"),
            skip("timeout"),
            skip("task_progress"),
            refuse("start_index", "use `offset` of `fetch_url`"),
            optional("raw", Flag, Only("false", "pages come as text")),
        ],
    ),
    refused(
        &[
            "WebSearch",
            "web_search",
            "google_web_search",
            "websearch",
            "search_web",
        ],
        "there is no web search: use `fetch_url` with an address that you know",
    ),
    refused(
        &[
            "browser_action",
            "browser",
            "browser_use",
            "browser_navigate",
            "browser_click",
            "browser_type",
            "browser_snapshot",
            "browser_get_state",
            "browser_take_screenshot",
            "developer__screen_capture",
            "computercontroller__web_scrape",
            "computer",
            "open_browser",
        ],
        "there is no browser: read a page with `fetch_url`, or run a browser test with `execute_command`",
    ),
    refused(
        &["generate_image", "image_generation"],
        "pictures cannot be made here; write an SVG with `write_to_file`, or say that it is not possible",
    ),
    // The agent itself.
    refused(
        &["fetch_instructions"],
        "all instructions are in the system prompt; continue the task",
    ),
    refused(
        &["new_rule"],
        "write the rule into the project's AGENTS.md, with `write_to_file` or `edit_file`",
    ),
    refused_with(
        &[
            "condense",
            "summarize_task",
            "request_condensation",
            "compact",
            "compress",
        ],
        "the conversation is summarized without a call when it must be; continue the task",
        &[skip("context"), skip("message")],
    ),
    row_or_refused(
        &["skill", "Skill", "activate_skill", "load_skill"],
        "use_skill",
        NO_SKILLS,
        &[
            text("skill", "name"),
            text("skill_name", "name"),
            text("name", "name"),
            skip("args"),
        ],
    ),
    row_or_refused(
        &["use_skill"],
        "use_skill",
        NO_SKILLS,
        &[
            text("skill_name", "name"),
            text("skill", "name"),
            text("name", "name"),
            text("file", "file"),
            skip("task_progress"),
        ],
    ),
    refused(
        &["run_slash_command", "SlashCommand"],
        "only the user gives such commands; do the work with the tools",
    ),
    refused(
        &["report_bug", "generate_explanation"],
        "say it in words; there is no tool for it",
    ),
    refused(
        &["save_memory", "remember", "memory"],
        "write what should be remembered into the project's AGENTS.md, with `edit_file`",
    ),
    refused(
        &["multi_tool_use.parallel", "parallel", "batch"],
        "write each call by itself",
    ),
    refused(
        &[
            "diagnostics",
            "getDiagnostics",
            "read_lints",
            "get_errors",
            "get_problems",
        ],
        "run the project's compiler or linter with `execute_command`",
    ),
    refused_with(
        &["LSP", "lsp", "developer__analyze"],
        "use `list_code_definition_names` for an outline, and `search_files` for the places where a name is used",
        &[skip("operation"), skip("path")],
    ),
    refused(
        &["git_status", "git_diff", "git_log", "git_commit"],
        "run `git` with `execute_command`",
    ),
    refused(
        &[
            "execute_ipython_cell",
            "run_python",
            "python",
            "code_interpreter",
        ],
        "run `python3` with `execute_command`",
    ),
    refused(&["js_repl"], "run `node` with `execute_command`"),
    refused(
        &["run_tests", "run_test", "runTests"],
        "run the project's tests with `execute_command`",
    ),
    refused(
        &[
            "task_tracker",
            "TaskCreate",
            "TaskUpdate",
            "TaskList",
            "TaskGet",
            "todo__todo_write",
            "todo__todo_read",
            "focus_chain",
        ],
        "keep the list with `update_todo_list`",
    ),
    refused(
        &["ToolSearch", "tool_search", "list_tools"],
        "the tools are those of the system prompt; call one of them",
    ),
];
