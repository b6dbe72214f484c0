//! Decides whether a grammar accepts a text, by following all possible positions at once.

use std::collections::{BTreeSet, HashMap};

use crate::expression::{Expression, Grammar};

/// Positions in a text, in bytes.
type Positions = BTreeSet<usize>;

/// Matches a text against a grammar.
struct Recognizer<'g> {
    grammar: &'g Grammar,
    text: &'g str,
    /// The ends of a rule by its index and start. Each is computed once, which bounds the work.
    known: HashMap<(usize, usize), Positions>,
}

impl Grammar {
    /// Reports whether the grammar accepts the whole text. Texts of a rule that begins with itself are not found.
    pub fn accepts(&self, text: &str) -> bool {
        let mut recognizer = Recognizer {
            grammar: self,
            text,
            known: HashMap::new(),
        };
        let ends = recognizer.match_rule(0, 0);
        ends.contains(&text.len())
    }
}

impl Recognizer<'_> {
    fn match_rule(&mut self, rule: usize, start: usize) -> Positions {
        if let Some(known) = self.known.get(&(rule, start)) {
            return known.clone();
        }
        let grammar = self.grammar;
        // A rule that begins with itself gets no ends at its own start, which prevents endless
        // recursion. The builder refuses such rules.
        self.known.insert((rule, start), Positions::new());
        let ends = self.match_expression(grammar.expression(rule), start);
        self.known.insert((rule, start), ends.clone());
        ends
    }

    fn match_expression(&mut self, expression: &Expression, start: usize) -> Positions {
        let rest = self.text.get(start..).unwrap_or_default();
        match expression {
            Expression::Literal(text) => match rest.starts_with(text.as_str()) {
                true => Positions::from([start + text.len()]),
                false => Positions::new(),
            },
            Expression::Class(class) => match rest.chars().next() {
                Some(c) if class.contains(c) => Positions::from([start + c.len_utf8()]),
                _ => Positions::new(),
            },
            Expression::Rule(rule) => self.match_rule(*rule, start),
            Expression::Choice(items) => items
                .iter()
                .flat_map(|item| self.match_expression(item, start))
                .collect(),
            Expression::Sequence(items) => {
                let mut positions = Positions::from([start]);
                for item in items {
                    positions = self.match_from(item, &positions);
                }
                positions
            }
            Expression::Repeat { item, min, max } => self.match_repeat(item, *min, *max, start),
        }
    }

    fn match_from(&mut self, item: &Expression, starts: &Positions) -> Positions {
        starts
            .iter()
            .flat_map(|start| self.match_expression(item, *start))
            .collect()
    }

    fn match_repeat(
        &mut self,
        item: &Expression,
        min: u32,
        max: Option<u32>,
        start: usize,
    ) -> Positions {
        let mut found = Positions::new();
        let mut front = Positions::from([start]);
        let mut count = 0;
        loop {
            let before = found.len();
            if count >= min {
                found.extend(&front);
                // Without an upper bound, a front that adds no position cannot add one later.
                if max.is_none() && found.len() == before {
                    return found;
                }
            }
            if front.is_empty() || max == Some(count) {
                return found;
            }
            front = self.match_from(item, &front);
            if max.is_none() && count >= min {
                // Follows only new positions, so an item that matches the empty text cannot loop.
                front.retain(|position| !found.contains(position));
            }
            count += 1;
        }
    }
}
