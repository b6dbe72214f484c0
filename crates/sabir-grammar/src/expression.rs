//! Defines the intermediate form of grammars, which every format is written from.

use std::collections::BTreeSet;

/// A set of characters: those listed, or all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CharClass {
    /// True if the class holds every character that is not listed.
    pub negated: bool,
    /// The listed ranges, sorted, without overlaps. Both ends belong to a range.
    pub ranges: Vec<CharRange>,
}

/// A range of characters; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CharRange {
    /// The first character.
    pub first: char,
    /// The last character.
    pub last: char,
}

/// An expression of a grammar.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expression {
    /// A fixed text; may be empty.
    Literal(String),
    /// One character of a class.
    Class(CharClass),
    /// Expressions one after the other.
    Sequence(Vec<Expression>),
    /// One of several expressions.
    Choice(Vec<Expression>),
    /// An expression several times.
    Repeat {
        /// The expression.
        item: Box<Expression>,
        /// The least number of times.
        min: u32,
        /// The greatest number of times; `None` means any.
        max: Option<u32>,
    },
    /// A rule, by its index in [`Grammar::rules`].
    Rule(usize),
}

/// A named rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name: lower-case letters, digits and dashes.
    pub name: String,
    /// The right-hand side.
    pub expression: Expression,
}

/// A grammar: rules, of which the first is the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grammar {
    /// The rules. The first is the root.
    pub rules: Vec<Rule>,
}

impl CharClass {
    /// The class of all characters.
    pub fn any() -> Self {
        Self {
            negated: true,
            ranges: Vec::new(),
        }
    }

    /// Creates the class of these characters.
    pub fn of(chars: impl IntoIterator<Item = char>) -> Self {
        Self::from_ranges(false, chars.into_iter().map(|c| (c, c)))
    }

    /// Creates the class of all characters but these.
    pub fn none_of(chars: impl IntoIterator<Item = char>) -> Self {
        Self::from_ranges(true, chars.into_iter().map(|c| (c, c)))
    }

    /// Creates a class from ranges in any order.
    pub fn from_ranges(negated: bool, ranges: impl IntoIterator<Item = (char, char)>) -> Self {
        let mut sorted: Vec<CharRange> = ranges
            .into_iter()
            .map(|(first, last)| CharRange { first, last })
            .collect();
        sorted.sort_unstable();
        let mut ranges: Vec<CharRange> = Vec::new();
        for range in sorted {
            match ranges.last_mut() {
                // Neighbouring ranges are merged as well, so that equal classes are equal values
                // and `choice` drops the second one.
                Some(before) if u32::from(range.first) <= u32::from(before.last) + 1 => {
                    before.last = before.last.max(range.last);
                }
                _ => ranges.push(range),
            }
        }
        Self { negated, ranges }
    }

    /// Returns the class without these characters.
    #[must_use]
    pub fn without(&self, chars: impl IntoIterator<Item = char>) -> Self {
        let removed: BTreeSet<char> = chars.into_iter().collect();
        if self.negated {
            let listed = self.ranges.iter().map(|range| (range.first, range.last));
            return Self::from_ranges(true, listed.chain(removed.into_iter().map(|c| (c, c))));
        }
        // Listed classes are small, so their characters are enumerated.
        let kept = self
            .ranges
            .iter()
            .flat_map(|range| range.first..=range.last)
            .filter(|c| !removed.contains(c));
        Self::of(kept)
    }

    /// Reports whether the class holds a character.
    pub fn contains(&self, c: char) -> bool {
        let listed = self
            .ranges
            .iter()
            .any(|range| (range.first..=range.last).contains(&c));
        listed != self.negated
    }
}

impl Expression {
    /// Creates a literal.
    pub fn literal(text: impl Into<String>) -> Self {
        Self::Literal(text.into())
    }

    /// Creates a class of the characters in these ranges.
    pub fn ranges(ranges: &[(char, char)]) -> Self {
        Self::Class(CharClass::from_ranges(false, ranges.iter().copied()))
    }

    /// Creates a sequence, in which nested sequences and neighbouring literals are merged.
    pub fn sequence(items: impl IntoIterator<Item = Self>) -> Self {
        fn push_item(item: Expression, merged: &mut Vec<Expression>) {
            match item {
                Expression::Sequence(inner) => {
                    inner.into_iter().for_each(|item| push_item(item, merged));
                }
                Expression::Literal(text) if text.is_empty() => {}
                Expression::Literal(text) => match merged.last_mut() {
                    Some(Expression::Literal(before)) => before.push_str(&text),
                    _ => merged.push(Expression::Literal(text)),
                },
                other => merged.push(other),
            }
        }
        let mut merged = Vec::new();
        for item in items {
            push_item(item, &mut merged);
        }
        match merged.len() {
            0 => Self::Literal(String::new()),
            1 => merged.remove(0),
            _ => Self::Sequence(merged),
        }
    }

    /// Creates a choice, in which nested choices are merged and repeated ones dropped.
    pub fn choice(items: impl IntoIterator<Item = Self>) -> Self {
        let mut merged: Vec<Self> = Vec::new();
        for item in items {
            let inner = match item {
                Self::Choice(inner) => inner,
                other => vec![other],
            };
            for item in inner {
                if !merged.contains(&item) {
                    merged.push(item);
                }
            }
        }
        match merged.len() {
            1 => merged.remove(0),
            _ => Self::Choice(merged),
        }
    }

    /// Creates a repetition.
    #[must_use]
    pub fn repeat(self, min: u32, max: Option<u32>) -> Self {
        // A repetition of nothing is an endless loop for some readers of grammars.
        if self.is_empty_literal() || max == Some(0) {
            return Self::Literal(String::new());
        }
        Self::Repeat {
            item: Box::new(self),
            min,
            max,
        }
    }

    /// Makes the expression optional.
    #[must_use]
    pub fn optional(self) -> Self {
        self.repeat(0, Some(1))
    }

    /// Reports whether this is the empty text.
    pub fn is_empty_literal(&self) -> bool {
        matches!(self, Self::Literal(text) if text.is_empty())
    }

    /// Returns the least nesting of rules in a text of the expression, from that of each rule; `usize::MAX` if it has no finite
    /// text.
    pub(crate) fn min_depth(&self, rules: &[usize]) -> usize {
        let depths = |items: &[Self]| -> Vec<usize> {
            items.iter().map(|item| item.min_depth(rules)).collect()
        };
        match self {
            Self::Literal(_) | Self::Class(_) | Self::Repeat { min: 0, .. } => 0,
            Self::Rule(index) => rules.get(*index).copied().unwrap_or(usize::MAX),
            Self::Repeat { item, .. } => item.min_depth(rules),
            Self::Sequence(items) => depths(items).into_iter().max().unwrap_or(0),
            // A choice of nothing has no text at all.
            Self::Choice(items) => depths(items).into_iter().min().unwrap_or(usize::MAX),
        }
    }

    /// Returns the expression without the parts that have no finite text.
    fn without_infinite_parts(&self, rules: &[usize]) -> Self {
        if self.min_depth(rules) == usize::MAX {
            return Self::Choice(Vec::new());
        }
        let all = |items: &[Self]| -> Vec<Self> {
            items
                .iter()
                .filter(|item| item.min_depth(rules) != usize::MAX)
                .map(|item| item.without_infinite_parts(rules))
                .collect()
        };
        match self {
            Self::Sequence(items) => Self::sequence(all(items)),
            Self::Choice(items) => Self::choice(all(items)),
            Self::Repeat { item, .. } if item.min_depth(rules) == usize::MAX => Self::literal(""),
            Self::Repeat { item, min, max } => {
                item.without_infinite_parts(rules).repeat(*min, *max)
            }
            other => other.clone(),
        }
    }

    /// Calls a function with each rule that a text of the expression can begin with, and reports whether the text can be empty.
    fn visit_first_rules(&self, is_empty: &[bool], visitor: &mut dyn FnMut(usize)) -> bool {
        match self {
            Self::Literal(text) => text.is_empty(),
            Self::Class(_) => false,
            Self::Rule(index) => {
                visitor(*index);
                is_empty.get(*index).copied().unwrap_or(false)
            }
            Self::Repeat { item, min, .. } => {
                item.visit_first_rules(is_empty, visitor) || *min == 0
            }
            Self::Sequence(items) => items
                .iter()
                .all(|item| item.visit_first_rules(is_empty, visitor)),
            Self::Choice(items) => {
                let mut found = false;
                for item in items {
                    found |= item.visit_first_rules(is_empty, visitor);
                }
                found
            }
        }
    }

    /// Calls a function with the index of each rule that the expression refers to.
    pub fn visit_rules(&self, visitor: &mut dyn FnMut(usize)) {
        match self {
            Self::Literal(_) | Self::Class(_) => {}
            Self::Rule(index) => visitor(*index),
            Self::Repeat { item, .. } => item.visit_rules(visitor),
            Self::Sequence(items) | Self::Choice(items) => {
                items.iter().for_each(|item| item.visit_rules(visitor));
            }
        }
    }
}

impl Grammar {
    /// Returns the expression of a rule; an index without a rule is an empty choice, which matches nothing.
    pub fn expression(&self, index: usize) -> &Expression {
        const NOTHING: &Expression = &Expression::Choice(Vec::new());
        self.rules
            .get(index)
            .map_or(NOTHING, |rule| &rule.expression)
    }

    /// Returns, for each rule, the least nesting of rules in a text of it; `usize::MAX` if it has no finite text.
    pub(crate) fn min_depths(&self) -> Vec<usize> {
        // A rule counts as endless until a finite text of it is known, so recursive rules do not
        // make each other finite. Each round settles rules that are one level deeper.
        let mut known = vec![usize::MAX; self.rules.len()];
        loop {
            let depths: Vec<usize> = self
                .rules
                .iter()
                .map(|rule| rule.expression.min_depth(&known).saturating_add(1))
                .collect();
            if depths == known {
                return known;
            }
            known = depths;
        }
    }

    /// Removes the branches and optional parts that have no finite text.
    pub(crate) fn remove_infinite_parts(&mut self) {
        let depths = self.min_depths();
        for rule in &mut self.rules {
            rule.expression = rule.expression.without_infinite_parts(&depths);
        }
    }

    /// Finds a rule that can begin with itself.
    pub(crate) fn find_left_recursion(&self) -> Option<&Rule> {
        let mut is_empty = vec![false; self.rules.len()];
        loop {
            let rules = self.rules.iter();
            let next: Vec<bool> = rules
                .map(|rule| rule.expression.visit_first_rules(&is_empty, &mut |_| {}))
                .collect();
            if next == is_empty {
                break;
            }
            is_empty = next;
        }
        let rules = self.rules.iter();
        let first = rules.map(|rule| {
            let mut first = BTreeSet::new();
            rule.expression.visit_first_rules(&is_empty, &mut |index| {
                first.insert(index);
            });
            first
        });
        let returns = returning_rules(&first.collect::<Vec<_>>());
        let mut rules = self.rules.iter().zip(returns);
        rules.find_map(|(rule, returns)| returns.then_some(rule))
    }

    /// Returns, for each rule, whether it can lead back to itself.
    pub fn recursive_rules(&self) -> Vec<bool> {
        let direct: Vec<BTreeSet<usize>> = self
            .rules
            .iter()
            .map(|rule| {
                let mut used = BTreeSet::new();
                rule.expression.visit_rules(&mut |index| {
                    used.insert(index);
                });
                used
            })
            .collect();
        returning_rules(&direct)
    }

    /// Returns, for each rule, whether it or any rule below it is recursive, so that no regular expression describes it.
    pub fn irregular_rules(&self) -> Vec<bool> {
        let mut irregular = self.recursive_rules();
        loop {
            let next: Vec<bool> = self
                .rules
                .iter()
                .zip(&irregular)
                .map(|(rule, known)| {
                    let mut found = *known;
                    rule.expression.visit_rules(&mut |index| {
                        found |= irregular.get(index).copied().unwrap_or(false);
                    });
                    found
                })
                .collect();
            // A rule only ever becomes irregular, so this ends after as many rounds as there are
            // rules, at the latest.
            if next == irregular {
                return irregular;
            }
            irregular = next;
        }
    }
}

/// Returns, for each rule, whether the rules that each one leads to lead back to it.
fn returning_rules(direct: &[BTreeSet<usize>]) -> Vec<bool> {
    (0..direct.len())
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut open = vec![start];
            while let Some(at) = open.pop() {
                // The start is not in `seen` at first: it is recursive only if it is reached
                // through another rule or through itself.
                for next in direct.get(at).into_iter().flatten() {
                    if seen.insert(*next) {
                        open.push(*next);
                    }
                }
            }
            seen.contains(&start)
        })
        .collect()
}
