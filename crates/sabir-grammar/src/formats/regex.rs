//! Writes regular expressions that Python, JavaScript, Rust and the servers' readers understand alike.

use crate::builder::CallGrammar;
use crate::expression::{CharClass, Expression, Grammar};
use crate::{GrammarError, GrammarFormat, MAX_TEXT_BYTES};

/// Writes a grammar as one regular expression, without anchors.
///
/// # Errors
/// A schema is recursive, or allows any JSON value: values that are nested without a limit are not regular.
pub fn write_regex(built: &CallGrammar) -> Result<String, GrammarError> {
    let irregular = built.grammar.irregular_rules();
    if irregular.first().copied().unwrap_or(false) {
        let names: Vec<_> = built
            .tools
            .iter()
            .filter(|tool| irregular.get(tool.arguments).copied().unwrap_or(false))
            .map(|tool| tool.name.as_str())
            .collect();
        return Err(GrammarError::Inexpressible {
            format: GrammarFormat::Regex.name(),
            dialect: built.dialect.clone(),
            reason: format!(
                "arguments of {} may be nested without a limit, which no regular expression describes; give their \
                 schemas types and properties, or use gbnf or lark",
                names.join(", ")
            ),
        });
    }
    let mut text = String::new();
    write_expression(
        &built.grammar,
        built.grammar.expression(0),
        false,
        &mut text,
    )
    .map_err(|full| full.error_of(&built.grammar, GrammarFormat::Regex))?;
    Ok(text)
}

/// The rule in which a text exceeded its limit. Rules are expanded wherever they are used, so each may double the text.
#[derive(Debug)]
pub(super) struct OversizedRule(usize);

impl OversizedRule {
    pub(super) fn error_of(&self, grammar: &Grammar, format: GrammarFormat) -> GrammarError {
        let rule = grammar.rules.get(self.0);
        GrammarError::LongGrammar {
            format: format.name(),
            rule: rule.map(|rule| rule.name.clone()).unwrap_or_default(),
        }
    }
}

/// Writes a regular expression; `is_item` encloses it if it is more than one item.
pub(super) fn write_expression(
    grammar: &Grammar,
    expression: &Expression,
    is_item: bool,
    out: &mut String,
) -> Result<(), OversizedRule> {
    let is_group = match expression {
        Expression::Choice(_) => true,
        Expression::Sequence(_) | Expression::Repeat { .. } => is_item,
        Expression::Literal(literal) => is_item && literal.chars().count() != 1,
        _ => false,
    };
    if is_group {
        out.push_str("(?:");
    }
    match expression {
        Expression::Literal(literal) => {
            literal.chars().for_each(|c| out.push_str(&escape_char(c)));
        }
        Expression::Class(class) => write_regex_class(class, out),
        Expression::Rule(index) => {
            if out.len() > MAX_TEXT_BYTES {
                return Err(OversizedRule(*index));
            }
            write_expression(grammar, grammar.expression(*index), is_item, out)?;
        }
        Expression::Sequence(items) => {
            for item in items {
                write_expression(grammar, item, false, out)?;
            }
        }
        Expression::Choice(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "|" });
                write_expression(grammar, item, false, out)?;
            }
        }
        Expression::Repeat { item, min, max } => {
            write_expression(grammar, item, true, out)?;
            out.push_str(&super::gbnf::repeat_suffix(*min, *max));
        }
    }
    if is_group {
        out.push(')');
    }
    Ok(())
}

/// Writes a class, in the form that all readers understand.
pub(super) fn write_regex_class(class: &CharClass, out: &mut String) {
    if class.negated && class.ranges.is_empty() {
        // A dot holds no line feed unless a flag says so, and `[^]` is known to JavaScript only.
        out.push_str("[\\s\\S]");
    } else {
        super::write_class(class, &escape_char, out);
    }
}

fn escape_char(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c if c.is_ascii_punctuation()
            && !matches!(
                c,
                '<' | '>'
                    | '"'
                    | '\''
                    | ':'
                    | ','
                    | '='
                    | '_'
                    | '`'
                    | '%'
                    | '@'
                    | '!'
                    | ';'
                    | '#'
                    | '&'
                    | '~'
            ) =>
        {
            format!("\\{c}")
        }
        c if c.is_control() && u32::from(c) < 0x100 => format!("\\x{:02x}", u32::from(c)),
        c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
            format!("\\u{:04x}", u32::from(c))
        }
        c => c.to_string(),
    }
}
