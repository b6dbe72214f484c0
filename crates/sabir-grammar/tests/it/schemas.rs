//! Checks how keywords of schemas become grammars.

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, ToolSet};
use sabir_grammar::{
    CallGrammar, Expression, Grammar, GrammarError, GrammarFormat, Rule, build_grammar,
    write_grammar,
};

fn built(schema: &str) -> CallGrammar {
    let tools = ToolSet::from_json(&format!(
        r#"[{{"name": "f", "parameters": {{"type": "object", "required": ["x"], "properties": {{"x": {schema}, "y": {{"type": "string"}}}}}}}}]"#
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
        (r#"{"$ref": "https://example.com/schema.json"}"#, "$ref"),
        (r#"{"type": "strin"}"#, "type"),
        (r#"{"type": ["string", "nul"]}"#, "type"),
        (r#"{"type": "string", "format": "date-time"}"#, "format"),
        (
            r#"{"oneOf": [{"const": 1}, {"enum": ["a", 1.0]}]}"#,
            "oneOf",
        ),
        (
            r##"{"$ref": "#/properties/y", "maxLength": 3}"##,
            "maxLength",
        ),
        (
            r#"{"type": "string", "minLength": 4000000000}"#,
            "minLength",
        ),
        (r#"{"type": "string", "maxLength": 100000}"#, "maxLength"),
        (
            r#"{"type": "array", "items": {"type": "null"}, "minItems": 99999999999}"#,
            "minItems",
        ),
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
            r#"{"type": "object", "required": ["x"], "properties": {"x": false}}"#,
            r#"{"type": "object", "required": ["x"], "properties": {"x": {"anyOf": [false]}}}"#,
        ] {
            let refused = build_parameters(dialect.name, parameters);
            assert!(
                matches!(refused, Err(GrammarError::NoFiniteValue { ref tool }) if tool == "f"),
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
fn an_optional_argument_without_values_is_left_out() {
    let parameters = r#"{"type": "object", "properties": {"x": false, "y": {"type": "null"}, "z": {"type": "array", "items": false}}}"#;
    let grammar = build_parameters("hermes", parameters).unwrap().grammar;
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    assert!(grammar.accepts(&call("{\"y\": null, \"z\": []}")));
    for refused in ["{\"x\": 1}", "{\"x\": null}", "{\"z\": [1]}"] {
        assert!(!grammar.accepts(&call(refused)), "{refused}");
    }
    assert!(build_parameters("cline", parameters).is_ok());
}

#[test]
fn the_same_parts_are_named_in_every_dialect() {
    let parameters = r##"{"type": "object", "required": ["a"], "properties": {"a": {"type": "strin"}, "b": {"$ref": "#/no"},
        "c": {"type": "array", "items": {"type": "string", "format": "uri"}}}}"##;
    for dialect in DialectSet::built_in().iter() {
        let named = build_parameters(dialect.name, parameters)
            .unwrap()
            .relaxations;
        for (place, keyword) in [("a", "type"), ("b", "$ref"), ("c.items", "format")] {
            let is_named = named
                .iter()
                .any(|it| it.place == place && it.keyword == keyword);
            assert!(is_named, "{} {place} {keyword}: {named:?}", dialect.name);
        }
    }
}

#[test]
fn disjoint_branches_are_not_named() {
    for branches in [
        r#"[{"const": "a"}, {"const": "b"}, {"enum": [1, null]}]"#,
        r#"[{"const": "a"}, {"type": "integer"}]"#,
        r##"[{"$ref": "#/properties/y"}, {"type": "null"}]"##,
        r#"[{"type": "object", "required": ["k"], "properties": {"k": {"const": "a"}}},
            {"type": "object", "required": ["k"], "properties": {"k": {"const": "b"}}}]"#,
    ] {
        let grammar = built(&format!(r#"{{"oneOf": {branches}}}"#));
        assert_eq!(grammar.relaxations, [], "{branches}");
    }
    for branches in [
        r#"[{"const": "a"}, {"type": "string"}]"#,
        r#"[{"const": 1.5}, {"type": "number"}]"#,
        r#"[{"const": 1.0}, {"type": "integer"}]"#,
        r#"[{"type": "object", "required": ["k"], "properties": {"k": {"const": "a"}}},
            {"type": "object", "properties": {"k": {"const": "b"}}}]"#,
    ] {
        let named = built(&format!(r#"{{"oneOf": {branches}}}"#)).relaxations;
        assert!(named.iter().any(|it| it.keyword == "oneOf"), "{branches}");
    }
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

#[test]
fn a_least_number_beside_an_exclusive_one_is_named() {
    let named = built(r#"{"type": "number", "minimum": 5, "exclusiveMinimum": 0}"#).relaxations;
    let keywords: Vec<_> = named.iter().map(|it| it.keyword.as_str()).collect();
    assert_eq!(keywords, ["minimum", "exclusiveMinimum"]);
}

#[test]
fn contradictory_bounds_are_refused() {
    for (schema, least) in [
        (
            r#"{"type": "string", "minLength": 5, "maxLength": 3}"#,
            "minLength",
        ),
        (
            r#"{"type": "array", "minItems": 2, "maxItems": 1}"#,
            "minItems",
        ),
    ] {
        let parameters = format!(r#"{{"type": "object", "properties": {{"x": {schema}}}}}"#);
        for dialect in ["hermes", "cline"] {
            let refused = build_parameters(dialect, &parameters).unwrap_err();
            let message = refused.to_string();
            assert!(message.contains("`x` of `f`"), "{message}");
            assert!(message.contains(least), "{message}");
        }
    }
}

/// Parameters whose definitions triple with each level.
fn tripling_parameters(levels: usize, required: &str) -> String {
    let mut definitions = vec![format!(r#""d{levels}": {{"type": "null"}}"#)];
    for level in 0..levels {
        let next = level + 1;
        definitions.push(format!(
            r##""d{level}": {{"type": "object", "required": {required}, "properties": {{"a": {{"$ref": "#/$defs/d{next}"}}, "b": {{"$ref": "#/$defs/d{next}"}}, "c": {{"$ref": "#/$defs/d{next}"}}}}}}"##
        ));
    }
    format!(
        r##"{{"type": "object", "properties": {{"x": {{"$ref": "#/$defs/d0"}}}}, "required": ["x"], "$defs": {{{}}}}}"##,
        definitions.join(", ")
    )
}

#[test]
fn long_calls_and_long_grammars_are_refused() {
    let refused = build_parameters("hermes", &tripling_parameters(13, r#"["a", "b", "c"]"#));
    assert!(
        matches!(refused, Err(GrammarError::LongCalls { ref tool, ref rule }) if tool == "f" && !rule.is_empty()),
        "{refused:?}"
    );
    let nested = r#"{"type": "array", "minItems": 900, "items": {"type": "array", "minItems": 900, "items": {"type": "string", "minLength": 900}}}"#;
    let parameters =
        format!(r#"{{"type": "object", "required": ["x"], "properties": {{"x": {nested}}}}}"#);
    let refused = build_parameters("hermes", &parameters);
    assert!(
        matches!(refused, Err(GrammarError::LongCalls { ref rule, .. }) if rule.starts_with("f-x")),
        "{refused:?}"
    );
    let built = build_parameters("hermes", &tripling_parameters(13, "[]")).unwrap();
    for format in [GrammarFormat::Lark, GrammarFormat::Regex] {
        let refused = write_grammar(&built, &ToolSet::default(), ParallelCalls::One, format);
        assert!(
            matches!(refused, Err(GrammarError::LongGrammar { ref rule, .. }) if !rule.is_empty()),
            "{}",
            format.name()
        );
    }
    let gbnf = write_grammar(
        &built,
        &ToolSet::default(),
        ParallelCalls::One,
        GrammarFormat::Gbnf,
    );
    assert!(gbnf.unwrap().len() < 100_000);
}
