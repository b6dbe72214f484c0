//! Builds expressions for text that contains none of certain words, such as the closing tag of its argument.
//!
//! Few formats can exclude a word, so the expression is built from the automaton that searches for
//! all words at once, by eliminating its states, the deepest first. The words share their first
//! character, so nearly all edges lead back to the start, and the result grows with the length of the
//! words only.

use std::collections::{BTreeMap, BTreeSet};

use crate::expression::{CharClass, Expression};

/// Builds the expression for text in which none of `stops` occurs.
///
/// `allowed` is the class of the characters that may be written unescaped; `escapes` are further units, such as the escape sequences of a
/// string, which are no part of a stop.
pub(crate) fn text_without(
    stops: &[String],
    allowed: &CharClass,
    escapes: Option<&Expression>,
) -> Expression {
    let automaton = StopAutomaton::new(stops);
    let accept = automaton.nodes.len();
    let mut edges: BTreeMap<(usize, usize), Expression> = BTreeMap::new();
    let mut add = |from: usize, to: usize, expression: Expression| {
        let joined = match edges.remove(&(from, to)) {
            Some(known) => Expression::choice([known, expression]),
            None => expression,
        };
        edges.insert((from, to), joined);
    };
    let letters: BTreeSet<char> = stops.iter().flat_map(|stop| stop.chars()).collect();
    for state in 0..accept {
        if automaton.is_match(state) {
            continue;
        }
        let mut leading: BTreeMap<usize, Vec<char>> = BTreeMap::new();
        let mut elsewhere = Vec::new();
        for &letter in &letters {
            let next = automaton.next_state(state, letter);
            // A letter that would complete a stop is removed here as well and gets no edge, which
            // forbids the stop.
            if next != 0 {
                elsewhere.push(letter);
            }
            if next != 0 && !automaton.is_match(next) && allowed.contains(letter) {
                leading.entry(next).or_default().push(letter);
            }
        }
        let other = Expression::Class(allowed.without(elsewhere));
        add(
            state,
            0,
            match escapes {
                Some(escapes) => Expression::choice([other, escapes.clone()]),
                None => other,
            },
        );
        for (next, letters) in leading {
            add(state, next, Expression::Class(CharClass::of(letters)));
        }
        // A text may end in the middle of a stop, since only the whole word is excluded.
        add(state, accept, Expression::literal(""));
    }
    // A deeper state has a higher number, as the automaton is built in order of depth.
    for gone in (1..accept).rev() {
        eliminate_state(&mut edges, gone);
    }
    let again = edges
        .remove(&(0, 0))
        .map_or_else(|| Expression::literal(""), |item| item.repeat(0, None));
    let end = edges.remove(&(0, accept)).map(make_optional);
    Expression::sequence([again, end.unwrap_or_else(|| Expression::literal(""))])
}

/// Removes a state and leads the paths through it around it.
fn eliminate_state(edges: &mut BTreeMap<(usize, usize), Expression>, gone: usize) {
    let again = edges.remove(&(gone, gone));
    let take = |edges: &mut BTreeMap<(usize, usize), Expression>, incoming: bool| {
        let keys: Vec<_> = edges
            .keys()
            .filter(|(from, to)| if incoming { *to == gone } else { *from == gone })
            .copied()
            .collect();
        keys.into_iter()
            .filter_map(|key| Some((key, edges.remove(&key)?)))
            .collect::<Vec<_>>()
    };
    let incoming = take(edges, true);
    let outgoing = take(edges, false);
    for ((from, _), into) in &incoming {
        for ((_, to), out) in &outgoing {
            let middle = again
                .clone()
                .map_or_else(|| Expression::literal(""), |item| item.repeat(0, None));
            let path = Expression::sequence([into.clone(), middle, out.clone()]);
            let joined = match edges.remove(&(*from, *to)) {
                Some(known) => Expression::choice([known, path]),
                None => path,
            };
            edges.insert((*from, *to), joined);
        }
    }
}

/// Writes a choice that includes the empty text as an option, which every format has a short form for.
fn make_optional(expression: Expression) -> Expression {
    match expression {
        Expression::Choice(items) if items.iter().any(Expression::is_empty_literal) => {
            let rest: Vec<_> = items
                .into_iter()
                .filter(|item| !item.is_empty_literal())
                .map(make_optional)
                .collect();
            Expression::choice(rest).optional()
        }
        Expression::Sequence(items) => Expression::sequence(items.into_iter().map(make_optional)),
        other => other,
    }
}

/// The automaton of Aho and Corasick for a few short words.
struct StopAutomaton {
    nodes: Vec<StopNode>,
}

/// A state: the text that was read last, as far as a word begins with it.
struct StopNode {
    prefix: String,
    is_match: bool,
}

impl StopAutomaton {
    fn new(stops: &[String]) -> Self {
        let mut prefixes: BTreeSet<(usize, String)> = BTreeSet::from([(0, String::new())]);
        for stop in stops {
            // The set is ordered by length, so node 0 is the empty prefix and deeper states have
            // higher numbers.
            for (at, c) in stop.char_indices() {
                let prefix = stop.get(..at + c.len_utf8()).unwrap_or_default();
                prefixes.insert((prefix.len(), prefix.to_owned()));
            }
        }
        let nodes = prefixes
            .into_iter()
            .map(|(_, prefix)| StopNode {
                is_match: stops
                    .iter()
                    .any(|stop| !stop.is_empty() && prefix.ends_with(stop.as_str())),
                prefix,
            })
            .collect();
        Self { nodes }
    }

    fn is_match(&self, state: usize) -> bool {
        self.nodes.get(state).is_some_and(|node| node.is_match)
    }

    /// Returns the state of the longest prefix that the text ends with after this character.
    fn next_state(&self, state: usize, letter: char) -> usize {
        let mut text = self
            .nodes
            .get(state)
            .map_or_else(String::new, |node| node.prefix.clone());
        text.push(letter);
        // The longest suffix is tried first. The last one is empty, which is node 0, so a state is
        // always found.
        let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for start in starts {
            let suffix = text.get(start..).unwrap_or_default();
            if let Some(found) = self.nodes.iter().position(|node| node.prefix == suffix) {
                return found;
            }
        }
        0
    }
}
