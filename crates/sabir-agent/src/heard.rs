//! What the user says on his own account, and what he is told aside.

use sabir_call::CallId;

use crate::drive::User;
use crate::event::Reply;
use crate::record::Author;
use crate::task::{Compaction, Filling, Input, Task, Words};

/// What a user says unasked, or in answer to a question whose call it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Words that wait for their turn: [`Input::Said`].
    Said(String),
    /// Words that do not: [`Input::Steered`].
    Steered(String),
    /// Words with pictures: [`Input::Showed`].
    Showed {
        /// What is said and shown.
        words: Words,
        /// Whether they do not wait for their turn.
        at_once: bool,
    },
    /// The context is to be compacted: [`Input::Compact`].
    Compact,
    /// What fills the context is to be told.
    Filling,
    /// The answer to the question about that call. It changes nothing if that question is not open.
    Replied(CallId, Reply),
    /// Another mode, by its name: [`Input::Moded`].
    Moded(String),
    /// Nobody can be asked any more: [`Input::Left`].
    Left,
    /// The task is to end: [`Input::Cancel`].
    Cancelled,
}

/// What is told to a user who asked for it, and to nobody else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aside<'a> {
    /// What fills the context.
    Filling(&'a Filling),
    /// What becomes of the compaction that he wants.
    Compaction(Compaction),
}

impl Heard {
    /// What it is to the task; `None`: nothing but a question about it. The user is told what he asked for.
    pub(crate) fn put(self, task: &Task, user: &mut dyn User) -> Option<Input<'static>> {
        self.tell(task, user);
        Some(match self {
            Self::Filling => return None,
            Self::Compact => Input::Compact(Author::Model),
            Self::Said(text) => Input::Said(text),
            Self::Steered(text) => Input::Steered(text),
            Self::Showed { words, at_once } => Input::Showed { words, at_once },
            Self::Replied(_, reply) => Input::Replied(reply),
            Self::Moded(mode) => Input::Moded(mode),
            Self::Left => Input::Left,
            Self::Cancelled => Input::Cancel,
        })
    }

    /// Whether it gives up the answer that is being written.
    pub(crate) fn gives_up(&self) -> bool {
        matches!(self, Self::Steered(_) | Self::Showed { at_once: true, .. } | Self::Cancelled)
    }

    /// Tells the user what he asked for.
    fn tell(&self, task: &Task, user: &mut dyn User) {
        match self {
            Self::Filling => user.tell(Aside::Filling(&task.filling())),
            Self::Compact => user.tell(Aside::Compaction(task.compaction())),
            _ => {}
        }
    }
}
