//! Writes the Lark dialect of llguidance.
//!
//! Its lexer matches the longest terminal and never goes back. So adjacent regular parts become one
//! terminal, in particular a value with the tag that ends it, and only constructs that nest without
//! a limit become rules.

use super::regex::OversizedRule;
use crate::expression::{Expression, Grammar};
use crate::{GrammarError, GrammarFormat, MAX_TEXT_BYTES};

/// Writes a grammar in Lark.
///
/// # Errors
/// The text would be longer than 1 MiB.
pub fn write_lark(grammar: &Grammar) -> Result<String, GrammarError> {
    let grammar = grammar.drop_unused_rules();
    let mut writer = LarkWriter {
        irregular: grammar.irregular_rules(),
        grammar: &grammar,
        terminals: Vec::new(),
    };
    let mut rules = String::new();
    for (index, rule) in grammar.rules.iter().enumerate() {
        // A regular rule is written out where it is used. Only the root is needed in any case.
        if index != 0 && !writer.is_irregular(index) {
            continue;
        }
        let mut text = String::new();
        let written = writer.write_rule(&rule.expression, false, &mut text);
        written.map_err(|full| full.error_of(&grammar, GrammarFormat::Lark))?;
        let terminals = writer.terminals.iter().map(String::len).sum::<usize>();
        if rules.len() + text.len() + terminals > MAX_TEXT_BYTES {
            return Err(GrammarError::LongGrammar {
                format: GrammarFormat::Lark.name(),
                rule: rule.name.clone(),
            });
        }
        rules.push_str(&format!("{}: {text}\n", writer.name(index)));
    }
    for (number, terminal) in writer.terminals.iter().enumerate() {
        rules.push_str(&format!("PART_{number}: {terminal}\n"));
    }
    Ok(format!("%llguidance {{}}\n\n{rules}"))
}

struct LarkWriter<'g> {
    grammar: &'g Grammar,
    irregular: Vec<bool>,
    /// Terminals without a rule of their own.
    terminals: Vec<String>,
}

impl LarkWriter<'_> {
    fn is_irregular(&self, index: usize) -> bool {
        self.irregular.get(index).copied().unwrap_or(false)
    }

    fn name(&self, index: usize) -> String {
        if index == 0 {
            return "start".to_owned();
        }
        let name = self.grammar.rules.get(index).map_or("", |rule| &rule.name);
        format!("r_{}", name.replace('-', "_"))
    }

    fn is_regular(&self, expression: &Expression) -> bool {
        let mut regular = true;
        expression.visit_rules(&mut |index| regular &= !self.is_irregular(index));
        regular
    }

    /// Writes an expression of a rule. `is_item` encloses what is more than one item.
    fn write_rule(
        &mut self,
        expression: &Expression,
        is_item: bool,
        out: &mut String,
    ) -> Result<(), OversizedRule> {
        if self.is_regular(expression) {
            let name = self.add_terminal(expression)?;
            out.push_str(&name);
            return Ok(());
        }
        let is_group =
            is_item && matches!(expression, Expression::Choice(_) | Expression::Sequence(_));
        out.push_str(if is_group { "(" } else { "" });
        match expression {
            Expression::Literal(_) | Expression::Class(_) => {}
            Expression::Rule(index) => out.push_str(&self.name(*index)),
            Expression::Sequence(items) => {
                let mut run: Vec<Expression> = Vec::new();
                for item in items {
                    if self.is_regular(item) {
                        run.push(item.clone());
                        continue;
                    }
                    self.write_run(&mut run, out)?;
                    self.write_rule(item, true, out)?;
                    out.push(' ');
                }
                self.write_run(&mut run, out)?;
            }
            Expression::Choice(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { " | " });
                    self.write_rule(item, true, out)?;
                }
            }
            Expression::Repeat { item, min, max } => {
                self.write_rule(item, true, out)?;
                out.push_str(&super::gbnf::repeat_suffix(*min, *max));
            }
        }
        out.push_str(if is_group { ")" } else { "" });
        Ok(())
    }

    /// Writes regular expressions that stand together as one terminal.
    fn write_run(
        &mut self,
        run: &mut Vec<Expression>,
        out: &mut String,
    ) -> Result<(), OversizedRule> {
        if !run.is_empty() {
            let name = self.add_terminal(&Expression::sequence(run.drain(..)))?;
            out.push_str(&name);
            out.push(' ');
        }
        Ok(())
    }

    /// Returns the name of the terminal for a regular expression. Its rules are written out, since nested terminals are limited.
    fn add_terminal(&mut self, expression: &Expression) -> Result<String, OversizedRule> {
        let mut text = String::from("/");
        super::regex::write_expression(self.grammar, expression, false, &mut text)?;
        text.push('/');
        let number = self.terminals.iter().position(|known| *known == text);
        let number = number.unwrap_or_else(|| {
            self.terminals.push(text);
            self.terminals.len() - 1
        });
        Ok(format!("PART_{number}"))
    }
}
