//! The arguments that a call has been given.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};
use crate::small_name_set::SmallNameSet;

/// The most arguments of one call.
const ARGUMENTS: usize = 256;

/// The names of a call's arguments, to notice one that is given twice.
#[derive(Debug, Default)]
pub(in crate::reader) struct GivenArguments {
    names: SmallNameSet,
    last: Box<str>,
}

impl GivenArguments {
    pub(in crate::reader) fn clear(&mut self) {
        self.names.clear();
        self.last = Box::default();
    }

    /// The argument that is being read.
    pub(in crate::reader) fn current_name(&self) -> &str {
        &self.last
    }

    /// Takes the next name, which stands before `span`. False: there are too many, and a fault went out.
    #[must_use]
    pub(in crate::reader) fn add_name(&mut self, name: &str, index: u32, span: Span, out: &mut dyn EventSink) -> bool {
        self.last = name.into();
        let (fault, go_on) = if self.names.contains(name) {
            let message = format!("the argument `{name}` is given twice");
            (Fault::error(FaultKind::DoubledArgument, span, message).in_argument(name).with_hint("give it once"), true)
        } else if self.names.len() == ARGUMENTS {
            let message = format!("the call has more than {ARGUMENTS} arguments");
            (Fault::error(FaultKind::Limit, span, message).with_hint("put several values into one list or map"), false)
        } else {
            self.names.insert(name);
            return true;
        };
        out.push_event(Event::Fault(&fault.in_call(index)));
        go_on
    }
}
