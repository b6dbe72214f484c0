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
        (0..self.rules.len())
            .map(|start| {
                let mut seen = BTreeSet::new();
                let mut open = vec![start];
                while let Some(at) = open.pop() {
                    // The start itself is not in `seen` at first: it must be reached through
                    // another rule, or through itself, to be recursive.
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
