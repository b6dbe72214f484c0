//! The arguments that a call has been given.

use crate::event::{Event, Sink};
use crate::fault::{Fault, FaultKind, Span};
use crate::names::Names;

/// The most arguments of one call.
const ARGUMENTS: usize = 256;

/// The names of a call's arguments, to notice one that is given twice.
#[derive(Debug, Default)]
pub(in crate::reader) struct Given {
    names: Names,
    last: Box<str>,
}

impl Given {
    pub(in crate::reader) fn clear(&mut self) {
        self.names.clear();
        self.last = Box::default();
    }

    /// The argument that is being read.
    pub(in crate::reader) fn last(&self) -> &str {
        &self.last
    }

    /// Takes the next name, which stands before `span`. False: there are too many, and a fault went out.
    #[must_use]
    pub(in crate::reader) fn add(&mut self, name: &str, index: u32, span: Span, out: &mut dyn Sink) -> bool {
        self.last = name.into();
        let (fault, go_on) = if self.names.contains(name) {
            let message = format!("the argument `{name}` is given twice");
            (Fault::error(FaultKind::DoubledArgument, span, message).in_argument(name).hint("give it once"), true)
        } else if self.names.len() == ARGUMENTS {
            let message = format!("the call has more than {ARGUMENTS} arguments");
            (Fault::error(FaultKind::Limit, span, message).hint("put several values into one list or map"), false)
        } else {
            self.names.insert(name);
            return true;
        };
        out.event(Event::Fault(&fault.in_call(index)));
        go_on
    }
}
