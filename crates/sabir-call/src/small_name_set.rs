//! Implements a set of names that uses little memory while it is small: the argument names of a
//! call.
//!
//! Up to [`FEW`] bytes of names are stored in one string, each preceded by its length, and compared
//! one by one. More names are hashed, so a call with very many arguments does not take quadratic
//! time.

use std::collections::HashSet;

/// The size up to which names are compared one by one, in bytes.
const FEW: usize = 256;
/// The length from which a name cannot be packed: lengths are stored as one ASCII character.
const LONG: u8 = 0x80;

/// A set of names.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "a set is twice as large as the string that is stored in most cases"
)]
pub(crate) enum SmallNameSet {
    Few(String),
    Many(Box<HashSet<Box<str>>>),
}

impl Default for SmallNameSet {
    fn default() -> Self {
        Self::Few(String::new())
    }
}

impl SmallNameSet {
    /// Removes all names, and keeps the small buffer for the next call.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Few(text) => text.clear(),
            Self::Many(_) => *self = Self::default(),
        }
    }

    /// Returns true if the name is in the set, compared byte for byte.
    pub(crate) fn contains(&self, name: &str) -> bool {
        match self {
            Self::Few(text) => iter_packed(text).any(|known| known == name),
            Self::Many(names) => names.contains(name),
        }
    }

    /// Adds a name. Returns false if it was already in the set.
    pub(crate) fn insert(&mut self, name: &str) -> bool {
        if self.contains(name) {
            return false;
        }
        let length = u8::try_from(name.len())
            .ok()
            .filter(|length| *length < LONG);
        match (&mut *self, length) {
            (Self::Few(text), Some(length)) if text.len() + 1 + name.len() <= FEW => {
                // Below 0x80, so the length takes one byte of UTF-8.
                text.push(char::from(length));
                text.push_str(name);
            }
            // The first name that does not fit moves all names into a hash set.
            (Self::Few(text), _) => {
                let names = iter_packed(text).chain([name]).map(Box::from).collect();
                *self = Self::Many(Box::new(names));
            }
            (Self::Many(names), _) => _ = names.insert(name.into()),
        }
        true
    }

    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(text) => iter_packed(text).count(),
            Self::Many(names) => names.len(),
        }
    }

    /// Returns all names, sorted.
    pub(crate) fn sorted_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match self {
            Self::Few(text) => iter_packed(text).collect(),
            Self::Many(names) => names.iter().map(|name| &**name).collect(),
        };
        names.sort_unstable();
        names
    }
}

/// Iterates over packed names: one ASCII character with the length, then the name.
fn iter_packed(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let length = usize::from(*text.as_bytes().first()?);
        let (name, rest) = text.get(1..)?.split_at_checked(length)?;
        text = rest;
        Some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::SmallNameSet;

    #[test]
    fn sets_of_any_size_hold_each_name_once() {
        let mut names = SmallNameSet::default();
        let mut all = vec![String::new(), "é".repeat(70), "path".to_owned()];
        all.extend((0..100).map(|at| format!("{at}{}", "x".repeat(at * 2))));
        for (at, name) in all.iter().enumerate() {
            assert!(!names.contains(name), "{name}");
            assert!(names.insert(name), "{name}");
            assert!(!names.insert(name), "{name}");
            assert_eq!(names.len(), at + 1);
            assert!(
                all[..=at].iter().all(|known| names.contains(known)),
                "{name}"
            );
        }
        all.sort_unstable();
        assert_eq!(names.sorted_names(), all);
        names.clear();
        assert_eq!((names.len(), names.contains("path")), (0, false));
    }
}
