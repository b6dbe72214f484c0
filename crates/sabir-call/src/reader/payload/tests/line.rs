//! Renders events as a line of text for comparison.

use super::OFFSET;
use crate::event::{ArgumentEncoding, Event, EventSink};
use crate::fault::Severity;

/// An event sink that renders events in one line with merged deltas, and reports violations of the
/// event contract.
#[derive(Default)]
pub(super) struct Line {
    pub(super) text: String,
    /// True for each call that is still open.
    pub(super) open: Vec<bool>,
    /// The last position in the last call.
    place: usize,
    value: Option<(ArgumentEncoding, String)>,
}

impl EventSink for Line {
    fn push_event(&mut self, event: Event<'_>) {
        if let (Some((_, value)), Event::ArgDelta { text, .. }) = (&mut self.value, event) {
            assert!(!text.is_empty());
            return value.push_str(text);
        }
        self.hold(event);
        let at = |at: usize| at as i64 - OFFSET as i64;
        let line = match event {
            Event::CallStart {
                index,
                id,
                name,
                at: start,
                name_at,
                dialect,
            } => {
                assert_eq!(dialect, Some("test"));
                let id = id.map(|id| format!("#{id}")).unwrap_or_default();
                format!("{index}:{name}{id}@{},{} ", at(start), at(name_at))
            }
            Event::ArgStart {
                name,
                form,
                at: start,
                ..
            } => {
                self.value = Some((form, String::new()));
                format!("{name}@{}=", at(start))
            }
            Event::ArgEnd { at: end, .. } => {
                let value = self.value();
                self.value = None;
                format!("{value}@{} ", at(end))
            }
            Event::CallEnd { index, at: end } => format!("end{index}@{} ", at(end)),
            Event::CallCut { index, at: end, .. } => {
                format!("{}cut{index}@{} ", self.value(), at(end))
            }
            Event::Fault(fault) => {
                let mark = if fault.severity == Severity::Error {
                    "!"
                } else {
                    "?"
                };
                let call = fault.call.map(|call| call.to_string()).unwrap_or_default();
                format!(
                    "{}{mark}{}{call}@{} ",
                    self.value(),
                    fault.kind.name(),
                    at(fault.span.start)
                )
            }
            Event::Mark(mark) => format!("mark@{} ", at(mark.span.start)),
            other => panic!("{other:?}"),
        };
        self.text += &line;
    }
}

impl Line {
    fn hold(&mut self, event: Event<'_>) {
        let open = |index: u32| self.open.get(index as usize) == Some(&true);
        let right = match event {
            Event::CallStart {
                index,
                name,
                at,
                name_at,
                ..
            } => {
                self.open.push(true);
                index as usize + 1 == self.open.len() && (name_at > at || name.is_empty())
            }
            Event::ArgStart { index, .. } => open(index) && self.value.is_none(),
            Event::ArgEnd { index, .. } => open(index) && self.value.is_some(),
            Event::CallEnd { index, .. } => open(index) && self.value.is_none(),
            Event::CallCut { index, .. } => open(index),
            Event::Fault(fault) => fault
                .call
                .is_none_or(|index| (index as usize) < self.open.len()),
            _ => true,
        };
        if let Event::CallStart { at, .. }
        | Event::ArgStart { at, .. }
        | Event::ArgEnd { at, .. }
        | Event::CallEnd { at, .. }
        | Event::CallCut { at, .. } = event
        {
            assert!(right && at >= self.place, "{event:?} after {}", self.text);
            self.place = at;
        }
        assert!(right, "{event:?} after {}", self.text);
        if let Event::CallEnd { index, .. } | Event::CallCut { index, .. } = event {
            self.open[index as usize] = false;
        }
    }

    /// Returns the value so far.
    fn value(&mut self) -> String {
        match &mut self.value {
            Some((ArgumentEncoding::Json, value)) => std::mem::take(value),
            Some((_, value)) if !value.is_empty() => format!("{:?}", std::mem::take(value)),
            _ => String::new(),
        }
    }
}
