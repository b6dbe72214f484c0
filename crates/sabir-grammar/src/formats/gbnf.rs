//! Writes GBNF, the notation of llama.cpp. XGrammar reads it as EBNF.

use crate::expression::{Expression, Grammar};

/// Writes a grammar as GBNF, one rule a line.
pub fn write_gbnf(grammar: &Grammar) -> String {
    let grammar = grammar.drop_unused_rules();
    let mut text = String::new();
    for rule in &grammar.rules {
        text.push_str(&rule.name);
        text.push_str(" ::= ");
        write_expression(&grammar, &rule.expression, Precedence::Choice, &mut text);
        text.push('\n');
    }
    text
}

/// The level of an expression, from the loosest binding to the tightest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Choice,
    Sequence,
    Item,
}

fn write_expression(
    grammar: &Grammar,
    expression: &Expression,
    level: Precedence,
    out: &mut String,
) {
    let own = match expression {
        Expression::Choice(_) => Precedence::Choice,
        Expression::Sequence(_) => Precedence::Sequence,
        _ => Precedence::Item,
    };
    if own < level {
        out.push('(');
        write_expression(grammar, expression, Precedence::Choice, out);
        out.push(')');
        return;
    }
    match expression {
        Expression::Literal(literal) => write_literal(literal, out),
        Expression::Class(class) if class.negated && class.ranges.is_empty() => {
            out.push_str("[\\x00-\\U0010FFFF]");
        }
        Expression::Class(class) => super::write_class(class, &escape_char, out),
        Expression::Rule(index) => {
            out.push_str(grammar.rules.get(*index).map_or("", |rule| &rule.name));
        }
        Expression::Sequence(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { " " });
                write_expression(grammar, item, Precedence::Item, out);
            }
        }
        Expression::Choice(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { " | " });
                write_expression(grammar, item, Precedence::Sequence, out);
            }
        }
        Expression::Repeat { item, min, max } => {
            // A repetition of a repetition needs its own parentheses.
            match **item {
                Expression::Repeat { .. } => {
                    out.push('(');
                    write_expression(grammar, item, Precedence::Choice, out);
                    out.push(')');
                }
                _ => write_expression(grammar, item, Precedence::Item, out),
            }
            out.push_str(&repeat_suffix(*min, *max));
        }
    }
}

/// Writes how often an item is repeated, as regular expressions do.
pub(super) fn repeat_suffix(min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) if min == max => format!("{{{min}}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

fn write_literal(literal: &str, out: &mut String) {
    out.push('"');
    for c in literal.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&escape_char(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape_char(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\\' => "\\\\".to_owned(),
        c if u32::from(c) < 0x80 => format!("\\x{:02x}", u32::from(c)),
        c => format!("\\u{:04x}", u32::from(c)),
    }
}
