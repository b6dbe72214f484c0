//! A shared, copy-on-write list of messages.
//!
//! A task sends the same long history turn after turn, so a clone must not copy it. Architecture
//! invariant: cloning costs the same whatever the history holds; messages are copied only when a
//! history is changed while another clone exists.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::message::Message;

/// Messages in order. Behaves like a `Vec<Message>`; clones are cheap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History(Arc<Vec<Message>>);

impl Deref for History {
    type Target = Vec<Message>;

    fn deref(&self) -> &Vec<Message> {
        &self.0
    }
}

impl DerefMut for History {
    fn deref_mut(&mut self) -> &mut Vec<Message> {
        // Copies the messages only if another clone still shares them.
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        Self(Arc::new(messages))
    }
}

impl FromIterator<Message> for History {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        Self::from(Vec::from_iter(messages))
    }
}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Message;
    type IntoIter = std::slice::Iter<'a, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut History {
    type Item = &'a mut Message;
    type IntoIter = std::slice::IterMut<'a, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl PartialEq<Vec<Message>> for History {
    fn eq(&self, other: &Vec<Message>) -> bool {
        *self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_shares_memory_until_one_changes() {
        let mut one = History::from(vec![Message::user("a")]);
        let other = one.clone();
        assert!(std::ptr::eq(one.as_slice(), other.as_slice()));
        one.push(Message::user("b"));
        assert_eq!((one.len(), other.len()), (2, 1));
    }
}
