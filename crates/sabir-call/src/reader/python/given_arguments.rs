//! Tracks the argument names of a call.

use crate::event::{Event, EventSink};
use crate::fault::{Fault, FaultKind, Span};
use crate::small_name_set::SmallNameSet;

/// The maximum number of arguments of one call, which bounds the memory for their names.
const ARGUMENTS: usize = 256;

/// The names of a call's arguments, to detect one that is given twice.
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

    /// Returns the name of the current argument.
    pub(in crate::reader) fn current_name(&self) -> &str {
        &self.last
    }

    /// Adds the next name, which is before `span`. Returns false, after a fault, if there are too
    /// many.
    #[must_use]
    pub(in crate::reader) fn add_name(
        &mut self,
        name: &str,
        index: u32,
        span: Span,
        out: &mut dyn EventSink,
    ) -> bool {
        self.last = name.into();
        let (fault, go_on) = if self.names.contains(name) {
            let message = format!("the argument `{name}` is given twice");
            (
                Fault::error(FaultKind::DoubledArgument, span, message)
                    .in_argument(name)
                    .with_hint("give it once"),
                true,
            )
        } else if self.names.len() == ARGUMENTS {
            let message = format!("the call has more than {ARGUMENTS} arguments");
            (
                Fault::error(FaultKind::Limit, span, message)
                    .with_hint("put several values into one list or map"),
                false,
            )
        } else {
            self.names.insert(name);
            return true;
        };
        out.push_event(Event::Fault(&fault.in_call(index)));
        go_on
    }
}
