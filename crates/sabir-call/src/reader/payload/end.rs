//! Where a region of JSON ends: its closing marker, what stands there instead, and the end of the text.
//!
//! Supported: white space before the marker; more calls, where the JSON is no array; a fence's end. A marker that is missing
//! where other markup follows is a warning: the JSON is whole, and the model went on.
//!
//! Unsupported: any other text between the JSON and the marker. It may belong to the call, which is rejected.
//!
//! Grammar as implemented: `tail = (ws | ";" | "," | fence)* ("}"? close | item)`.

use crate::event::{Cut, Event, Sink};
use crate::fault::{Fault, FaultKind, Span};

use super::super::BLANK_CAP;
use super::super::region::View;
use super::{Commas, Edge, FENCE, Frame, Go, Payload, State, Tail, nothing};

/// The longest closing tag that is looked for its end.
const TAG_CAP: usize = 256;

/// Markup that is no tag, which a call may begin with.
const BRACKETED: &str = "[TOOL";

/// What a byte that is no JSON begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    No,
    /// More text is needed to say.
    Wait,
    /// The closing marker.
    Close,
    /// Some other marker.
    Other,
}

impl Payload {
    /// What `text` begins with.
    pub(super) fn marker(&self, text: &str, last: bool) -> Marker {
        let close = self.markers.close;
        if !close.is_empty() && text.starts_with(close) {
            return Marker::Close;
        }
        if close.starts_with(text) && !last {
            return Marker::Wait;
        }
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some('<'), None) if !last => Marker::Wait,
            (Some('<'), Some('/' | '|' | '｜' | '_')) => Marker::Other,
            (Some('<'), Some(c)) if c.is_alphabetic() => Marker::Other,
            _ => Marker::No,
        }
    }

    /// A marker stands where JSON should go on; so long it is where it is the closing one.
    pub(super) fn unfinished(&mut self, view: View<'_>, at: usize, length: usize, out: &mut dyn Sink) -> Go {
        let place = view.offset + at;
        // A name without any arguments behind it is a call without arguments.
        let bare = self.headed() && self.state != State::Arguments && length > 0;
        let tags = length == 0 && self.tags_for_value(view.text.get(at..).unwrap_or_default());
        let scanner = self.scanner.take();
        let missing = match (scanner, self.state) {
            (Some(mut scanner), State::Arguments) => scanner.abandon(place, out),
            (Some(_), _) => Some("the JSON of its arguments"),
            (None, State::Broken) => None,
            (None, State::Skip | State::Word(_)) => Some("a closing bracket"),
            _ if self.frames.last() == Some(Frame::List) => Some("`]`"),
            _ => Some("`}`"),
        };
        if self.item.is_none() && !matches!(self.edge, Edge::Pending(..)) {
            nothing(place, out);
        } else if let Some(missing) = missing.filter(|_| !bare) {
            let span = Span::new(place, place + length);
            let what = if length > 0 { format!("`{}`", self.markers.close) } else { "other markup".to_owned() };
            let message = format!("the call's JSON is not whole: {missing} is missing before {what}");
            let fault = match tags {
                true => tag_in_json(place),
                false => {
                    Fault::error(FaultKind::MalformedJson, span, message).hint("close every bracket that was opened")
                }
            };
            match &mut self.item {
                Some(item) => item.tell(fault, out),
                None => self.complain(fault, out),
            }
        }
        self.finish(place, out);
        self.close_pending(Some(place + length), out);
        Go::Over(at + length)
    }

    /// Whether a tag stands where a value should begin.
    fn tags_for_value(&self, text: &str) -> bool {
        let awaited = match (&self.scanner, self.state) {
            (Some(scanner), _) => scanner.wants_value(),
            (None, state) => matches!(state, State::Value(_)),
        };
        // The name of the tag may still be to come.
        awaited && text.strip_prefix('<').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
    }

    /// The region's JSON ended before `at`.
    pub(super) fn end_json(&mut self, view: View<'_>, at: usize, tail: Tail, out: &mut dyn Sink) -> Go {
        self.state = State::After(tail);
        self.seen = 0;
        if self.markers.close.is_empty() {
            self.close_pending(Some(view.offset + at), out);
            if tail == Tail::Nothing && !self.fenced {
                return Go::Over(at);
            }
        }
        Go::To(at)
    }

    /// Closes the call that waits for its end: there, or where its JSON ended.
    pub(super) fn close_pending(&mut self, at: Option<usize>, out: &mut dyn Sink) {
        if let Edge::Pending(index, end) = self.edge {
            self.edge = Edge::None;
            out.event(Event::CallEnd { index, at: at.unwrap_or(end) });
        }
    }

    /// Behind the JSON, which ended at `from`. Nothing is taken before it is known what follows.
    pub(super) fn after(&mut self, view: View<'_>, from: usize, tail: Tail, out: &mut dyn Sink) -> Go {
        let text = view.text.get(from..).unwrap_or_default();
        let close = self.markers.close;
        loop {
            let rest = text.get(self.seen..).unwrap_or_default();
            let Some(&byte) = rest.as_bytes().first() else { break };
            if rest.starts_with(close) && !close.is_empty() {
                break;
            }
            match byte {
                byte if byte.is_ascii_whitespace() && self.seen >= BLANK_CAP => {
                    // More white space than is worth holding: nobody will miss it before a marker.
                    let seen = std::mem::take(&mut self.seen);
                    return if close.is_empty() { Go::Over(from) } else { Go::To(from + seen) };
                }
                byte if byte.is_ascii_whitespace() => self.seen += 1,
                b';' | b',' if tail == Tail::Calls => self.seen += 1,
                b'}' | b']' if tail == Tail::Brackets => self.seen += 1,
                b'{' if tail == Tail::Calls => {
                    self.state = State::Item(Commas::None);
                    return Go::To(from + std::mem::take(&mut self.seen));
                }
                b'`' if self.fenced && rest.starts_with(FENCE) => {
                    self.fenced = false;
                    self.seen += FENCE.len();
                    if close.is_empty() {
                        return Go::Over(from + self.seen);
                    }
                }
                b'}' if !close.is_empty() && tail != Tail::Brackets => match self.extra(rest, &[close], view.last) {
                    None => return Go::Wait(from),
                    Some(true) => {
                        self.complain(extra_bracket(view.offset + from + self.seen), out);
                        self.seen += 1;
                    }
                    Some(false) => break,
                },
                b'`' if self.fenced && FENCE.starts_with(rest) && !view.last => return Go::Wait(from),
                _ => break,
            }
        }
        let rest = text.get(self.seen..).unwrap_or_default();
        if close.is_empty() {
            return if rest.is_empty() && !view.last { Go::Wait(from) } else { Go::Over(from) };
        }
        if rest.is_empty() {
            return Go::Wait(from);
        }
        self.closing(view, from, tail, out)
    }

    /// Whether a closing bracket is one too many and no more: one of these follows it. `None`: more text is needed.
    pub(super) fn extra(&self, rest: &str, follows: &[&str], last: bool) -> Option<bool> {
        let behind = rest.get(1..).unwrap_or_default();
        let text = behind.trim_ascii_start();
        if behind.len() - text.len() > TAG_CAP {
            return Some(false);
        }
        let waits = !last && follows.iter().any(|follow| text.len() < follow.len() && follow.starts_with(text));
        if waits { None } else { Some(follows.iter().any(|follow| text.starts_with(follow))) }
    }

    /// At the first byte behind the JSON that is neither white space nor JSON.
    fn closing(&mut self, view: View<'_>, from: usize, tail: Tail, out: &mut dyn Sink) -> Go {
        let at = from + self.seen;
        let rest = view.text.get(at..).unwrap_or_default();
        let (close, place) = (self.markers.close, view.offset + at);
        let marker = self.marker(rest, view.last);
        if marker == Marker::Close {
            self.close_pending(Some(place + close.len()), out);
            return Go::Over(at + close.len());
        }
        if view.last && close.starts_with(rest) {
            // In the middle of the marker: nothing says that the rest of it would have come.
            self.state = State::After(Tail::Brackets);
            return Go::Wait(from);
        }
        if !view.last && (marker == Marker::Wait || BRACKETED.starts_with(rest)) {
            return Go::Wait(from);
        }
        if tail == Tail::Brackets {
            return Go::Over(at);
        }
        if close.starts_with("</") && rest.starts_with("</") {
            let head = rest.get(..rest.floor_char_boundary(TAG_CAP.min(rest.len()))).unwrap_or_default();
            match head.find(['>', '\n', '{', '"']).and_then(|end| head.get(..=end)).filter(|tag| tag.ends_with('>')) {
                Some(tag) => {
                    self.wrong(Span::new(place, place + tag.len()), tag, out);
                    return Go::Over(at + tag.len());
                }
                None if head.len() == rest.len() && !view.last && !head.contains(['\n', '{', '"']) => {
                    return Go::Wait(from);
                }
                None => {
                    self.wrong(Span::new(place, place + 2), "</", out);
                    return Go::Over(from);
                }
            }
        }
        if marker == Marker::Other || rest.starts_with(BRACKETED) {
            let span = match self.edge {
                Edge::Pending(_, end) => Span::new(end, end),
                Edge::None | Edge::First(_) => Span::new(place, place),
            };
            let message = format!("`{close}` is missing");
            self.complain(Fault::warning(FaultKind::WrongClose, span, message).hint("close each call"), out);
            self.close_pending(None, out);
            return Go::Over(from);
        }
        let found = rest.chars().next().map(String::from).unwrap_or_default();
        self.wrong(Span::new(place, place + found.len()), &found, out);
        if matches!(found.as_str(), "}" | "]") {
            self.state = State::After(Tail::Brackets);
            return Go::To(from);
        }
        Go::Over(from)
    }

    /// Something else stands in the place of the closing marker.
    fn wrong(&mut self, span: Span, found: &str, out: &mut dyn Sink) {
        let close = self.markers.close;
        let message = format!("`{close}` was expected behind the call's JSON, but `{found}` was found");
        self.complain(
            Fault::error(FaultKind::WrongClose, span, message).hint(format!("close the call with `{close}`")),
            out,
        );
        self.close_pending(None, out);
    }

    /// The text ended inside the region.
    pub(super) fn cut_short(&mut self, why: Cut, at: usize, out: &mut dyn Sink) {
        if let Some(mut item) = self.item.take() {
            self.start(&mut item, out);
            out.event(Event::CallCut { index: item.index, why, at });
        } else if let Edge::Pending(index, end) = self.edge {
            let whole = matches!(self.state, State::After(Tail::Calls | Tail::Nothing)) && !self.fenced;
            match self.markers.stop && whole && why == Cut::Ended {
                true => out.event(Event::CallEnd { index, at: end }),
                false => out.event(Event::CallCut { index, why, at }),
            }
        } else if let State::Before | State::Language = self.state {
            let message = "the text ended where the JSON of a call should begin";
            out.event(Event::Fault(&Fault::error(FaultKind::CutCall, Span::new(at, at), message)));
        }
    }
}

pub(super) fn extra_bracket(place: usize) -> Fault {
    let message = "a closing bracket too many stands behind the call";
    let fault = Fault::warning(FaultKind::ExtraBracket, Span::new(place, place + 1), message);
    fault.hint("close each bracket once")
}

fn tag_in_json(place: usize) -> Fault {
    let message = "tags stand where JSON belongs: a value was expected, found a tag";
    let fault = Fault::error(FaultKind::TagInJson, Span::new(place, place + 1), message);
    fault.hint("write the value as JSON, without tags, for example {\"path\": \"a.txt\"} as all arguments")
}
