//! Checks what each format can express, and the texts that are written.

use sabir_call::dialect::DialectSet;
use sabir_call::{ParallelCalls, ToolSet};
use sabir_grammar::{GrammarError, GrammarFormat, build_grammar, write_grammar};

use crate::tools::{all_tools, plain_tools};

fn write(dialect: &str, tools: &ToolSet, format: GrammarFormat) -> Result<String, GrammarError> {
    let dialect = DialectSet::built_in().find(dialect).unwrap();
    let built = build_grammar(dialect, tools, ParallelCalls::One).unwrap();
    write_grammar(&built, tools, ParallelCalls::One, format)
}

#[test]
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
