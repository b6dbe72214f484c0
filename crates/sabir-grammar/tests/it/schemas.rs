//! Checks how keywords of schemas become grammars.

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, ToolSet};
use sabir_grammar::{CallGrammar, Expression, Grammar, GrammarError, Rule, build_grammar};

fn built(schema: &str) -> CallGrammar {
    let tools = ToolSet::from_json(&format!(
        r#"[{{"name": "f", "parameters": {{"type": "object", "required": ["x"], "properties": {{"x": {schema}}}}}}}]"#
    ))
    .unwrap();
    let dialect = DialectSet::built_in().find("hermes").unwrap();
    build_grammar(dialect, &tools, ParallelCalls::One).unwrap()
}

fn accepts(grammar: &CallGrammar, value: &str) -> bool {
    grammar.grammar.accepts(&format!(
        "<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"x\": {value}}}}}\n</tool_call>"
    ))
}

#[test]
fn keywords_restrict_values() {
    for (schema, good, bad) in [
        (
            r#"{"type": "string"}"#,
            &["\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\""][..],
            &["1", "\"\\ud83d\"", "\"\n\"", "\"\\x41\""][..],
        ),
        (
            r#"{"type": "string", "minLength": 1, "maxLength": 2}"#,
            &["\"a\"", "\"\\n😀\""],
            &["\"\"", "\"abc\""],
        ),
        (
            r#"{"type": "integer", "minimum": 3, "maximum": 12}"#,
            &["3", "12"],
            &["2", "13", "3.0", "-3"],
        ),
        (
            r#"{"type": "number"}"#,
            &["0", "-1.5e-7", "1e307", "3"],
            &["1e308", "01", "+1", ".5", "NaN"],
        ),
        (
            r#"{"type": "number", "minimum": 0}"#,
            &["0", "2.5"],
            &["-1"],
        ),
        (
            r#"{"enum": ["a", 1, null, [true]]}"#,
            &["\"a\"", "1", "null", "[true]"],
            &["\"b\"", "2"],
        ),
        (
            r#"{"const": {"a": 1}}"#,
            &["{\"a\": 1}", "{\"a\":1}"],
            &["{\"a\":2}", "{}"],
        ),
        (
            r#"{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}"#,
            &["[true, false]", "[true,true,true]"],
            &["[true]", "[]", "[true, 1]", "[true, true, true, true]"],
        ),
        (
            r#"{"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "required": ["b"]}"#,
            &[
                "{\"b\": null}",
                "{\"a\": null, \"b\": null}",
                "{\"b\": null, \"c\": null}",
            ],
            &[
                "{}",
                "{\"a\": null}",
                "{\"b\": null, }",
                "{\"c\": null, \"b\": null}",
                "{\"b\": null, \"d\": 1}",
            ],
        ),
        (
            r#"{"type": "object", "additionalProperties": {"type": "integer"}}"#,
            &["{}", "{\"k\": 1, \"l\": 2}"],
            &["{\"k\": \"v\"}"],
        ),
        (
            r#"{"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}"#,
            &["1", "[\"a\"]"],
            &["\"a\"", "[1]"],
        ),
        (
            r#"{}"#,
            &["1", "\"a\"", "[1, {\"b\": [null]}]"],
            &["", "nul", "[1"],
        ),
    ] {
        let grammar = built(schema);
        let is_relaxed = |it: &sabir_grammar::Relaxation| it.keyword != "unique keys";
        assert!(!grammar.relaxations.iter().any(is_relaxed), "{schema}");
        for value in good {
            assert!(accepts(&grammar, value), "{schema} does not accept {value}");
        }
        for value in bad {
            assert!(!accepts(&grammar, value), "{schema} accepts {value}");
        }
    }
}

#[test]
fn what_is_left_to_the_check_is_named() {
    for (schema, keyword) in [
        (r#"{"type": "string", "pattern": "^a$"}"#, "pattern"),
        (r#"{"type": "number", "maximum": 3}"#, "maximum"),
        (
            r#"{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}"#,
            "uniqueItems",
        ),
        (
            r#"{"oneOf": [{"type": "number"}, {"type": "integer"}]}"#,
            "oneOf",
        ),
        (r##"{"$ref": "#/nowhere"}"##, "$ref"),
    ] {
        let named = built(schema).relaxations;
        let keywords: Vec<_> = named
            .iter()
            .map(|it| (it.place.as_str(), it.keyword.as_str()))
            .collect();
        assert_eq!(keywords, [("x", keyword)], "{schema}");
    }
}

#[test]
fn a_name_that_a_dialect_cannot_write_is_refused() {
    let tools =
        ToolSet::from_json(r#"[{"name": "server/tool", "parameters": {"type": "object"}}]"#)
            .unwrap();
    let find = |name| DialectSet::built_in().find(name).unwrap();
    let refused = build_grammar(find("cline"), &tools, ParallelCalls::One);
    assert!(
        matches!(refused, Err(GrammarError::Unwritable { ref tool, .. }) if tool == "server/tool"),
        "{refused:?}"
    );
    assert!(build_grammar(find("hermes"), &tools, ParallelCalls::One).is_ok());
    let none = build_grammar(find("hermes"), &ToolSet::default(), ParallelCalls::One);
    assert_eq!(none, Err(GrammarError::NoTools));
}

fn build_parameters(dialect: &str, parameters: &str) -> Result<CallGrammar, GrammarError> {
    let tools =
        ToolSet::from_json(&format!(r#"[{{"name": "f", "parameters": {parameters}}}]"#)).unwrap();
    let dialect = DialectSet::built_in().find(dialect).unwrap();
    build_grammar(dialect, &tools, ParallelCalls::One)
}

#[test]
fn schemas_without_a_finite_value_are_refused() {
    for dialect in DialectSet::built_in().iter() {
        for parameters in [
            r##"{"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}"##,
            r##"{"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}"##,
            r#"{"type": "object", "required": ["x"], "properties": {"x": {"enum": []}}}"#,
        ] {
            let refused = build_parameters(dialect.name, parameters);
            assert!(
                matches!(refused, Err(GrammarError::Endless { ref tool }) if tool == "f"),
                "{} {parameters} {refused:?}",
                dialect.name
            );
        }
    }
}

#[test]
fn an_optional_part_without_a_finite_value_is_left_out() {
    let grammar = build_parameters(
        "hermes",
        r##"{"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"type": "null"}},
            "$defs": {"a": {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}}}}"##,
    )
    .unwrap();
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    assert!(grammar.grammar.accepts(&call("{\"y\": null}")));
    assert!(grammar.grammar.accepts(&call("{}")));
    assert!(!grammar.grammar.accepts(&call("{\"x\": {}}")));
}

#[test]
fn left_recursion_is_refused_and_does_not_overflow() {
    let parameters = r##"{"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}}"##;
    let refused = build_parameters("hermes", parameters);
    assert!(
        matches!(refused, Err(GrammarError::LeftRecursive { ref rule }) if rule == "a"),
        "{refused:?}"
    );
    // Tags flatten the branches, so a string is all that is left.
    assert!(build_parameters("cline", parameters).is_ok());
    let grammar = Grammar {
        rules: vec![Rule {
            name: "root".to_owned(),
            expression: Expression::Choice(vec![Expression::Rule(0), Expression::literal("a")]),
        }],
    };
    assert!(grammar.accepts("a") && !grammar.accepts("b"));
}
