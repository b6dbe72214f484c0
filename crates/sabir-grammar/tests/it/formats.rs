//! Checks what each format can express, and the texts that are written.

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, ToolSet};
use sabir_grammar::{GrammarError, GrammarFormat, build_grammar, write_grammar};
use serde_json::{Value, json};

use crate::tools::{all_tools, bounded_tools, plain_tools};

fn write(dialect: &str, tools: &ToolSet, format: GrammarFormat) -> Result<String, GrammarError> {
    let dialect = DialectSet::built_in().find(dialect).unwrap();
    let built = build_grammar(dialect, tools, ParallelCalls::One).unwrap();
    write_grammar(&built, tools, ParallelCalls::One, format)
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn every_dialect_has_gbnf_lark_and_a_regex() {
    for dialect in DialectSet::built_in().iter() {
        for format in [GrammarFormat::Gbnf, GrammarFormat::Lark] {
            assert!(
                write(dialect.name, &all_tools(), format).is_ok(),
                "{}",
                dialect.name
            );
        }
        assert!(
            write(dialect.name, &plain_tools(), GrammarFormat::Regex).is_ok(),
            "{}",
            dialect.name
        );
        let nested = write(dialect.name, &all_tools(), GrammarFormat::Regex).unwrap_err();
        assert!(nested.to_string().contains("apply_changes"), "{nested}");
    }
}

#[test]
fn dialects_that_a_format_cannot_express_are_named_with_the_reason() {
    let without = |format| -> Vec<&str> {
        let inexpressible = DialectSet::built_in().iter().filter(|dialect| {
            matches!(write(dialect.name, &plain_tools(), format), Err(GrammarError::Inexpressible { ref reason, .. }) if !reason.is_empty())
        });
        inexpressible.map(|dialect| dialect.name).collect()
    };
    assert_eq!(without(GrammarFormat::StructuralTag), ["json", "pythonic"]);
    let all = DialectSet::built_in().iter().count();
    assert_eq!(without(GrammarFormat::JsonSchema).len(), all - 1);
    assert!(!without(GrammarFormat::JsonSchema).contains(&"json"));
}

#[test]
fn gbnf_of_a_small_tool() {
    let tools = ToolSet::from_json(
        r#"[{"name": "f", "parameters": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}}}]"#,
    )
    .unwrap();
    let gbnf = write("hermes", &tools, GrammarFormat::Gbnf).unwrap();
    assert_eq!(
        gbnf,
        "root ::= call\n\
         f-n ::= \"\\\"n\\\":\" \" \"? [1-9]\n\
         f-arguments ::= \"{\" f-n \"}\"\n\
         call-f ::= \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \" f-arguments \"}\\n</tool_call>\"\n\
         call ::= call-f\n"
    );
    let regex = write("hermes", &tools, GrammarFormat::Regex).unwrap();
    assert_eq!(regex, "<tool\\_call>\\n\\{\"name\": \"f\", \"arguments\": \\{\"n\": ?[1-9]\\}\\}\\n<\\/tool\\_call>\n".replace("\\_", "_"));
}

#[test]
fn numbered_calls_are_no_structural_tags() {
    let tools = plain_tools();
    for (dialect, is_numbered) in [("kimi", true), ("hermes", false)] {
        let dialect = DialectSet::built_in().find(dialect).unwrap();
        let calls = ParallelCalls::Many;
        let built = build_grammar(dialect, &tools, calls).unwrap();
        let written = write_grammar(&built, &tools, calls, GrammarFormat::StructuralTag);
        assert_eq!(
            matches!(written, Err(GrammarError::Inexpressible { ref reason, .. }) if reason.contains("number")),
            is_numbered
        );
    }
    assert!(write("kimi", &tools, GrammarFormat::StructuralTag).is_ok());
}

#[test]
fn references_lead_somewhere_and_objects_stay_satisfiable() {
    let node = r##"{"type": "object", "required": ["name", "undeclared"], "properties": {"name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}, "$ref": {"enum": [{"$ref": "#/kept"}]}}}"##;
    let composed = r#"{"type": "object", "properties": {"a": {"type": "null"}}, "allOf": [{"required": ["b"], "properties": {"b": {"type": "null"}}}]}"#;
    let tools = ToolSet::from_json(&format!(
        r##"[{{"name": "f", "parameters": {{"$ref": "#/$defs/node", "$defs": {{"node": {node}}}}}}},
            {{"name": "g", "parameters": {composed}}}]"##
    ))
    .unwrap();
    let document = read_json("json", &tools, GrammarFormat::JsonSchema);
    let branches = document["items"]["anyOf"].as_array().unwrap();
    let arguments = |call: &Value| -> Value {
        let properties = call["properties"].as_object().unwrap();
        let mut objects = properties.values();
        objects
            .find(|schema| schema["const"].is_null())
            .unwrap()
            .clone()
    };
    let closed = arguments(&branches[0]);
    let open = arguments(&branches[1]);
    assert_eq!(closed["additionalProperties"], false);
    assert_eq!(closed["properties"]["undeclared"], true);
    let kept = json!({"$ref": "#/kept"});
    assert_eq!(closed["properties"]["$ref"]["enum"][0], kept);
    let items = &closed["properties"]["children"]["items"];
    let target = items["$ref"].as_str().unwrap().trim_start_matches('#');
    let node = document.pointer(target).unwrap();
    // The definition leads to itself.
    assert_eq!(node["properties"]["children"]["items"], *items);
    assert_eq!(open["additionalProperties"], Value::Null);
    assert_eq!(open["allOf"][0]["required"][0], "b");
}

fn read_json(dialect: &str, tools: &ToolSet, format: GrammarFormat) -> Value {
    serde_json::from_str(&write(dialect, tools, format).unwrap()).unwrap()
}

/// XGrammar's reader of schemas accepts no escapes in a string with a length, a pattern or a format.
#[test]
fn no_schema_restricts_strings() {
    let tools = bounded_tools();
    for dialect in ["hermes", "deepseek", "harmony", "kimi", "llama", "mistral"] {
        let tag = read_json(dialect, &tools, GrammarFormat::StructuralTag);
        let content = &tag["format"]["tags"][0]["content"];
        assert_eq!(content["type"], "grammar", "{dialect}");
        let grammar = content["grammar"].as_str().unwrap();
        assert!(grammar.contains("{0,200}"), "{dialect}: {grammar}");
    }
    let schema = write("json", &tools, GrammarFormat::JsonSchema).unwrap();
    for keyword in ["minLength", "maxLength", "pattern", "format"] {
        assert!(!schema.contains(keyword), "{schema}");
    }
    // Without lengths these branches overlap, and nothing would be outside of an empty negation.
    let parameters = r#"{"type": "object", "properties": {"x": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 4}],
        "not": {"minLength": 9}}}}"#;
    let tools =
        ToolSet::from_json(&format!(r#"[{{"name": "f", "parameters": {parameters}}}]"#)).unwrap();
    let schema = write("json", &tools, GrammarFormat::JsonSchema).unwrap();
    assert!(
        !schema.contains("oneOf") && !schema.contains("\"not\""),
        "{schema}"
    );
    let properties = r#"{"type": "object", "properties": {"pattern": {"type": "string", "pattern": "a"}, "x": {"const": {"format": 1}}}}"#;
    let tools =
        ToolSet::from_json(&format!(r#"[{{"name": "f", "parameters": {properties}}}]"#)).unwrap();
    let schema = write("json", &tools, GrammarFormat::JsonSchema).unwrap();
    // Arguments and values of these names are no keywords.
    assert_eq!(schema.matches("\"pattern\"").count(), 1, "{schema}");
    assert_eq!(schema.matches("\"format\"").count(), 1, "{schema}");
}

/// XGrammar reads more than two digits after `\x`, and so another character where a digit follows.
#[test]
fn no_digit_follows_an_escape_in_a_class() {
    for name in ["gemma", "functiongemma"] {
        let gbnf = write(name, &all_tools(), GrammarFormat::Gbnf).unwrap();
        assert!(gbnf.contains("[\\x2d\\x30-"), "{gbnf}");
        for escape in gbnf.split("\\x").skip(1) {
            let behind = escape.chars().nth(2);
            assert!(behind.is_none_or(|c| !c.is_ascii_hexdigit()), "{escape}");
        }
    }
}
