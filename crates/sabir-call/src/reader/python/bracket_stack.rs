//! Implements the stack of open brackets in a value, with two bits per level.

/// The maximum nesting depth of a value. Deeper nesting is a mistake or an attack; JSON parsers
/// stop at 128.
pub(in crate::reader) const LEVELS: usize = 256;

/// The number of levels in a byte.
const IN_A_BYTE: usize = 4;

/// The kind of an open bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reader) enum BracketKind {
    /// `[`
    List,
    /// `{`
    Map,
    /// `(`, before its first comma. With a single value it is not a tuple, but that value.
    Group,
    /// `(`, after its first comma.
    Tuple,
}

/// The stack of open brackets.
#[derive(Debug)]
pub(in crate::reader) struct BracketStack {
    /// The levels, outermost first; allocated at the first bracket.
    levels: Option<Box<[u8; LEVELS / IN_A_BYTE]>>,
    depth: u16,
}

impl BracketKind {
    /// Returns the bracket that closes it.
    pub(in crate::reader) fn closing_byte(self) -> u8 {
        match self {
            Self::List => b']',
            Self::Map => b'}',
            Self::Group | Self::Tuple => b')',
        }
    }
}

impl BracketStack {
    pub(in crate::reader) fn new() -> Self {
        Self {
            levels: None,
            depth: 0,
        }
    }

    pub(in crate::reader) fn depth(&self) -> usize {
        self.depth.into()
    }

    pub(in crate::reader) fn clear(&mut self) {
        self.depth = 0;
    }

    /// Opens a level. Returns false if there are too many.
    #[must_use]
    pub(in crate::reader) fn push_bracket(&mut self, bracket: BracketKind) -> bool {
        if self.depth() == LEVELS {
            return false;
        }
        self.depth += 1;
        self.replace_inner(bracket);
        true
    }

    /// Closes the innermost level.
    pub(in crate::reader) fn pop_bracket(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Replaces the kind of the innermost level.
    pub(in crate::reader) fn replace_inner(&mut self, bracket: BracketKind) {
        let Some(level) = self.depth().checked_sub(1) else {
            return;
        };
        let shift = level % IN_A_BYTE * 2;
        let levels = self
            .levels
            .get_or_insert_with(|| Box::new([0; LEVELS / IN_A_BYTE]));
        if let Some(byte) = levels.get_mut(level / IN_A_BYTE) {
            // Clears the two bits of the level before setting them.
            *byte = *byte & !(0b11 << shift) | (bracket as u8) << shift;
        }
    }

    /// Returns the innermost level.
    pub(in crate::reader) fn inner_bracket(&self) -> Option<BracketKind> {
        let level = self.depth().checked_sub(1)?;
        let byte = self.levels.as_ref()?.get(level / IN_A_BYTE)?;
        Some(match byte >> (level % IN_A_BYTE * 2) & 0b11 {
            0 => BracketKind::List,
            1 => BracketKind::Map,
            2 => BracketKind::Group,
            _ => BracketKind::Tuple,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BracketKind, BracketStack, LEVELS};

    #[test]
    fn a_stack_with_a_limit() {
        let all = [
            BracketKind::List,
            BracketKind::Map,
            BracketKind::Group,
            BracketKind::Tuple,
        ];
        let at = |level: usize| all[level * 7 / 3 % 4];
        let mut nest = BracketStack::new();
        assert_eq!(nest.inner_bracket(), None);
        for level in 0..LEVELS {
            assert!(nest.push_bracket(at(level)));
        }
        assert!(!nest.push_bracket(BracketKind::List));
        for level in (0..LEVELS).rev() {
            assert_eq!(nest.inner_bracket(), Some(at(level)), "{level}");
            nest.replace_inner(BracketKind::Tuple);
            assert_eq!(nest.inner_bracket(), Some(BracketKind::Tuple));
            nest.pop_bracket();
        }
        assert_eq!(nest.depth(), 0);
    }
}
