//! Tests of the tool instructions in every dialect.

use sabir_call::dialect::DialectSet;
use sabir_call::{McpServerInfo, ParallelCalls, ToolChoice, ToolInstructions, ToolSet, ToolSpec};
use serde_json::json;

use crate::notation::read;

fn tools() -> ToolSet {
    let schema = |content: &str| {
        json!({"type": "object", "required": ["path", content], "properties": {
            "path": {"type": "string", "description": "Where."}, content: {"type": "string"},
            "mode": {"enum": ["fast", "slow"]}, "count": {"type": ["integer", "null"]}}})
    };
    ToolSet::new(vec![
        ToolSpec::new("write_to_file", "Write a whole file.", schema("content")),
        ToolSpec::new("replace_in_file", "Change a file.", schema("diff")),
        ToolSpec::new(
            "get_time",
            "The time now.",
            json!({"type": "object", "properties": {}}),
        ),
    ])
    .unwrap()
}

fn server() -> McpServerInfo {
    McpServerInfo {
        name: "weather".to_owned(),
        instructions: "Ask by city.".to_owned(),
        tools: vec![ToolSpec::new(
            "forecast",
            "Days ahead.",
            json!({"type": "object", "properties": {"city": {}}}),
        )],
        resources: vec![("weather://today".to_owned(), "today's map".to_owned())],
    }
}

#[test]
fn every_section_is_there() {
    let (tools, servers) = (tools(), [server()]);
    for dialect in DialectSet::built_in().iter() {
        let lesson = ToolInstructions {
            tools: &tools,
            servers: &servers,
            parallel_calls: ParallelCalls::Many,
            tool_choice: &ToolChoice::Auto,
        };
        let text = lesson.render_prompt(dialect);
        for part in [
            "## write_to_file\n\nWrite a whole file.\n",
            "- path (string, required): Where.\n",
            "- mode (one of fast, slow, optional)\n",
            "- count (integer or null, optional)\n",
            "several calls",
            "Wait for the results",
            "## weather\n\nAsk by city.\n",
            "- forecast: Days ahead.\n",
            "weather://today",
            "# Editing files",
        ] {
            assert!(
                text.contains(part),
                "{}: no `{part}` in {text}",
                dialect.name
            );
        }
        let one = ToolInstructions {
            parallel_calls: ParallelCalls::One,
            servers: &[],
            ..lesson
        }
        .render_prompt(dialect);
        assert!(
            one.contains("One call a message") && !one.contains("MCP"),
            "{one}"
        );
        let must = ToolChoice::Tool("get_time".to_owned());
        assert!(
            ToolInstructions {
                tool_choice: &must,
                ..lesson
            }
            .render_prompt(dialect)
            .contains("must call `get_time`")
        );
        assert_eq!(
            ToolInstructions {
                tool_choice: &ToolChoice::None,
                ..lesson
            }
            .render_prompt(dialect),
            ""
        );
        assert_eq!(
            ToolInstructions {
                tools: &ToolSet::default(),
                ..lesson
            }
            .render_prompt(dialect),
            ""
        );
    }
}

/// Checks that each usage example is read as that call.
#[test]
fn every_usage_is_a_call() {
    let tools = tools();
    for dialect in DialectSet::built_in().iter() {
        for tool in &tools {
            let example = dialect.render_example(tool);
            let draft = read(
                DialectSet::built_in().select(dialect.name).unwrap(),
                &tools,
                &example,
            );
            let names: Vec<_> = draft.calls().map(|call| call.name.as_str()).collect();
            assert_eq!(names, [tool.name.as_str()], "{example}");
            assert!(draft.faults.is_empty(), "{example}: {:?}", draft.faults);
        }
    }
}
