//! Writes the Lark dialect of llguidance.
//!
//! Its lexer matches the longest terminal and never goes back. So everything regular that stands
//! together becomes one terminal, in particular a value with the tag that ends it, and only what is
//! nested without a limit becomes rules.

use std::collections::BTreeSet;

use crate::expression::{Expression, Grammar};

/// Writes a grammar in Lark.
pub fn write_lark(grammar: &Grammar) -> String {
    let grammar = grammar.drop_unused_rules();
    let mut writer = LarkWriter {
        irregular: grammar.irregular_rules(),
        grammar: &grammar,
        terminals: Vec::new(),
        used: BTreeSet::new(),
    };
    let mut rules = String::new();
    for (index, rule) in grammar.rules.iter().enumerate() {
        if index != 0 && !writer.is_irregular(index) {
            continue;
        }
        let mut text = String::new();
        writer.write_rule(&rule.expression, false, &mut text);
        rules.push_str(&format!("{}: {text}\n", writer.name(index)));
    }
    // A terminal may use others, which are then needed too.
    let mut texts: Vec<String> = Vec::new();
    let mut written = BTreeSet::new();
    loop {
        let open: Vec<usize> = writer.used.difference(&written).copied().collect();
        if open.is_empty() {
            break;
        }
        for index in open {
            written.insert(index);
            let mut text = String::new();
            writer.write_terminal(grammar.expression(index), false, &mut text);
            texts.push(format!("{}: {text}\n", writer.name(index)));
        }
    }
    for (number, terminal) in writer.terminals.iter().enumerate() {
        rules.push_str(&format!("PART_{number}: {terminal}\n"));
    }
    format!("%llguidance {{}}\n\n{rules}{}", texts.concat())
}

struct LarkWriter<'g> {
    grammar: &'g Grammar,
    irregular: Vec<bool>,
    /// Terminals without a rule of their own.
    terminals: Vec<String>,
    /// The regular rules that were referred to.
    used: BTreeSet<usize>,
}

impl LarkWriter<'_> {
    fn is_irregular(&self, index: usize) -> bool {
        self.irregular.get(index).copied().unwrap_or(false)
    }

    /// Returns the name of a rule: capitals for a terminal.
    fn name(&self, index: usize) -> String {
        if index == 0 {
            return "start".to_owned();
        }
        let name = self.grammar.rules.get(index).map_or("", |rule| &rule.name);
        let name = name.replace('-', "_");
        match self.is_irregular(index) {
            true => format!("r_{name}"),
            false => format!("T_{}", name.to_uppercase()),
        }
    }

    fn is_regular(&self, expression: &Expression) -> bool {
        let mut regular = true;
        expression.visit_rules(&mut |index| regular &= !self.is_irregular(index));
        regular
    }

    /// Writes an expression of a rule. `is_item` encloses what is more than one item.
    fn write_rule(&mut self, expression: &Expression, is_item: bool, out: &mut String) {
        if self.is_regular(expression) {
            let name = self.add_terminal(expression);
            out.push_str(&name);
            return;
        }
        let is_group = is_item && matches!(expression, Expression::Choice(_) | Expression::Sequence(_));
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
                    self.write_run(&mut run, out);
                    self.write_rule(item, true, out);
                    out.push(' ');
                }
                self.write_run(&mut run, out);
            }
            Expression::Choice(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { " | " });
                    self.write_rule(item, true, out);
                }
            }
            Expression::Repeat { item, min, max } => {
                self.write_rule(item, true, out);
                out.push_str(&super::gbnf::repeat_suffix(*min, *max));
            }
        }
        out.push_str(if is_group { ")" } else { "" });
    }

    /// Writes regular expressions that stand together as one terminal.
    fn write_run(&mut self, run: &mut Vec<Expression>, out: &mut String) {
        if run.is_empty() {
            return;
        }
        let name = self.add_terminal(&Expression::sequence(run.drain(..)));
        out.push_str(&name);
        out.push(' ');
    }

    fn add_terminal(&mut self, expression: &Expression) -> String {
        if let Expression::Rule(index) = expression {
            self.used.insert(*index);
            return self.name(*index);
        }
        let mut text = String::new();
        self.write_terminal(expression, false, &mut text);
        let number = self.terminals.iter().position(|known| *known == text);
        let number = number.unwrap_or_else(|| {
            self.terminals.push(text);
            self.terminals.len() - 1
        });
        format!("PART_{number}")
    }

    fn write_terminal(&mut self, expression: &Expression, is_item: bool, out: &mut String) {
        let is_group = match expression {
            Expression::Choice(_) => true,
            Expression::Sequence(_) | Expression::Repeat { .. } => is_item,
            _ => false,
        };
        out.push_str(if is_group { "(" } else { "" });
        match expression {
            Expression::Literal(literal) => {
                // The escapes of JSON are those of Lark.
                out.push_str(&serde_json::Value::from(literal.as_str()).to_string());
            }
            Expression::Class(class) => {
                out.push('/');
                super::regex::write_regex_class(class, out);
                out.push('/');
            }
            Expression::Rule(index) => {
                self.used.insert(*index);
                out.push_str(&self.name(*index));
            }
            Expression::Sequence(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { " " });
                    self.write_terminal(item, true, out);
                }
            }
            Expression::Choice(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { " | " });
                    self.write_terminal(item, true, out);
                }
            }
            Expression::Repeat { item, min, max } => {
                self.write_terminal(item, true, out);
                out.push_str(&super::gbnf::repeat_suffix(*min, *max));
            }
        }
        out.push_str(if is_group { ")" } else { "" });
    }
}
