//! Writes random texts that a grammar accepts.

use crate::MAX_TEXT_BYTES;
use crate::expression::{CharClass, Expression, Grammar};

/// Characters that are likely to confuse a parser; half of all characters of a text are among them.
const DIFFICULT_CHARS: &[char] = &[
    '<', '>', '/', '"', '\'', '\\', '{', '}', '[', ']', '(', ')', ':', ',', '=', '|', '｜', '`',
    '\n', '\r', '\t', ' ', '&', ';', '#', '\u{feff}', 'é', '日', '😀', 'a', '0',
];
/// The nesting after which a sample takes the shortest way out.
const MAX_DEPTH: usize = 24;
/// The nesting at which a sample is given up. The shortest way out of any schema is shorter.
const MAX_GIVEN_DEPTH: usize = 1000;
/// The bytes after which a sample takes the shortest way out.
const SOFT_LIMIT_BYTES: usize = 16 << 10;
/// The most repetitions of an item without an upper bound.
const MAX_REPEATS: u32 = 8;

/// A source of random texts of a grammar. The same seed gives the same texts.
#[derive(Debug)]
pub struct Sampler<'g> {
    grammar: &'g Grammar,
    state: u64,
    /// For each rule, the least nesting of rules that a text of it needs.
    min_depths: Vec<usize>,
    /// The steps that the current sample may still take.
    steps_left: usize,
    /// The rule in which the current sample became too long.
    oversized_rule: Option<usize>,
}

/// A sample that would be longer than 1 MiB, or nested too deeply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a text of the grammar is too long or nested too deeply, in the rule `{rule}`")]
pub struct SampleTooLong {
    /// The name of the rule.
    pub rule: String,
}

impl<'g> Sampler<'g> {
    /// Creates a sampler.
    pub fn new(grammar: &'g Grammar, seed: u64) -> Self {
        Self {
            grammar,
            state: seed ^ 0x9e37_79b9_7f4a_7c15,
            min_depths: grammar.min_depths(),
            steps_left: 0,
            oversized_rule: None,
        }
    }

    /// Writes the next text.
    ///
    /// # Errors
    /// The text would be too long.
    pub fn next_text(&mut self) -> Result<String, SampleTooLong> {
        let mut text = String::new();
        let grammar = self.grammar;
        self.steps_left = MAX_TEXT_BYTES;
        self.oversized_rule = None;
        self.write_rule(0, 0, &mut text);
        let Some(rule) = self.oversized_rule else {
            return Ok(text);
        };
        let name = grammar.rules.get(rule).map(|rule| rule.name.clone());
        Err(SampleTooLong {
            rule: name.unwrap_or_default(),
        })
    }

    /// Returns a random number below `limit`.
    fn next_below(&mut self, limit: usize) -> usize {
        // SplitMix64: a few lines, and the texts of a seed never change with a library.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn min_depth(&self, expression: &Expression) -> usize {
        expression.min_depth(&self.min_depths)
    }

    fn write_rule(&mut self, index: usize, depth: usize, text: &mut String) {
        let grammar = self.grammar;
        self.write_text(grammar.expression(index), depth, text);
        // The innermost rule says the most about the place.
        if self.steps_left == 0 && self.oversized_rule.is_none() {
            self.oversized_rule = Some(index);
        }
    }

    fn write_text(&mut self, expression: &Expression, depth: usize, text: &mut String) {
        // Steps are counted besides bytes, since many of them may write nothing.
        if depth > MAX_GIVEN_DEPTH || text.len() > MAX_TEXT_BYTES {
            self.steps_left = 0;
        }
        if self.steps_left == 0 {
            return;
        }
        self.steps_left -= 1;
        let is_ample = depth > MAX_DEPTH || text.len() > SOFT_LIMIT_BYTES;
        match expression {
            Expression::Literal(literal) => text.push_str(literal),
            Expression::Class(class) => text.push(self.pick_char(class)),
            Expression::Rule(index) => self.write_rule(*index, depth + 1, text),
            Expression::Sequence(items) => {
                for item in items {
                    self.write_text(item, depth, text);
                }
            }
            Expression::Choice(items) => {
                let mut fitting: Vec<_> = items.iter().collect();
                // At great depth, or in a long text, only the choices with the least depth remain,
                // so that a recursive schema ends.
                let least = self.min_depth(expression);
                if is_ample {
                    fitting.retain(|item| self.min_depth(item) == least);
                }
                let at = self.next_below(fitting.len());
                if let Some(item) = fitting.get(at) {
                    self.write_text(item, depth, text);
                }
            }
            Expression::Repeat { item, min, max } => {
                let most = max.unwrap_or(min.saturating_add(MAX_REPEATS));
                let most = if is_ample {
                    *min
                } else {
                    most.min(min.saturating_add(MAX_REPEATS))
                };
                let spread = usize::try_from(most.saturating_sub(*min)).unwrap_or(0);
                let extra = self.next_below(spread + 1);
                for _ in 0..(usize::try_from(*min).unwrap_or(0) + extra) {
                    if self.steps_left == 0 {
                        return;
                    }
                    self.write_text(item, depth, text);
                }
            }
        }
    }

    fn pick_char(&mut self, class: &CharClass) -> char {
        // Four tries, since few of these characters belong to a narrow class.
        for _ in 0..4 {
            let at = self.next_below(DIFFICULT_CHARS.len());
            if let Some(c) = DIFFICULT_CHARS.get(at).filter(|c| class.contains(**c)) {
                return *c;
            }
        }
        if !class.negated {
            let at = self.next_below(class.ranges.len());
            if let Some(range) = class.ranges.get(at) {
                let size = u32::from(range.last) - u32::from(range.first) + 1;
                let offset = self.next_below(usize::try_from(size).unwrap_or(1));
                let code = u32::from(range.first) + u32::try_from(offset).unwrap_or(0);
                return char::from_u32(code).unwrap_or(range.first);
            }
        }
        // Almost every character belongs to a negated class.
        (0..64)
            .map(|_| u32::try_from(self.next_below(0x3000)).unwrap_or(0))
            .filter_map(char::from_u32)
            .find(|c| class.contains(*c))
            .or_else(|| ('a'..='z').find(|c| class.contains(*c)))
            .unwrap_or('\u{fffd}')
    }
}
