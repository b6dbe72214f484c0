//! Ends a region of JSON: at its closing marker, at other text in its place, or at the end of the
//! text.
//!
//! Supported: white space before the marker; more calls, if the JSON is not an array; the end of a
//! code fence. A marker that is missing before other markup is a warning: the JSON is complete, and
//! the model continued.
//!
//! Unsupported: any other text between the JSON and the marker. It may belong to the call, which is
//! rejected.
//!
//! Grammar as implemented: `tail = (ws | ";" | "," | fence)* ("}"? close | item)`.

use crate::event::{Event, EventSink, Truncation};
use crate::fault::{Fault, FaultKind, Span};

use super::super::BLANK_CAP;
use super::super::call::missing_last_close;
use super::super::region::{RegionParser, TextView};
use super::{
    AllowedTail, BracketFrame, CallEdge, CommaCount, FENCE, JsonRegionParser, PayloadState,
    PayloadStep, report_missing_json,
};

/// The maximum length of a closing tag in place of the marker, in bytes.
const TAG_CAP: usize = 256;

/// The beginning of markup in square brackets that may open the next call.
const BRACKETED: &str = "[TOOL";

/// The result of checking for a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkerCheck {
    No,
    /// More text is needed to decide.
    Wait,
    /// The closing marker.
    Close,
    /// Some other marker.
    Other,
}

impl JsonRegionParser {
    /// Checks whether `text` begins with a marker.
    pub(super) fn check_marker(&self, text: &str, last: bool) -> MarkerCheck {
        let close = self.markers.close;
        if !close.is_empty() && text.starts_with(close) {
            return MarkerCheck::Close;
        }
        if close.starts_with(text) && !last {
            return MarkerCheck::Wait;
        }
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some('<'), None) if !last => MarkerCheck::Wait,
            (Some('<'), Some('/' | '|' | '｜' | '_')) => MarkerCheck::Other,
            (Some('<'), Some(c)) if c.is_alphabetic() => MarkerCheck::Other,
            _ => MarkerCheck::No,
        }
    }

    /// Ends unfinished JSON at a marker. `length` is the marker's length if it is the closing
    /// marker, else 0.
    pub(super) fn end_unfinished(
        &mut self,
        view: TextView<'_>,
        at: usize,
        length: usize,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let offset = view.offset + at;
        // A name without arguments after it is a call without arguments.
        let bare = self.is_headed() && self.state != PayloadState::Arguments && length > 0;
        let tags = length == 0 && self.tags_for_value(view.text.get(at..).unwrap_or_default());
        let is_escaped = self.is_escaped();
        let scanner = self.scanner.take();
        let missing = match (scanner, self.state) {
            (Some(mut scanner), PayloadState::Arguments) => scanner.abandon_value(offset, out),
            (Some(_), _) => Some("the JSON of its arguments"),
            (None, PayloadState::Broken(_)) => None,
            (None, PayloadState::Skip | PayloadState::Word(_)) => Some("a closing bracket"),
            _ if self.frames.last() == Some(BracketFrame::List) => Some("`]`"),
            _ => Some("`}`"),
        };
        if self.item.is_none() && !matches!(self.edge, CallEdge::Pending(..)) {
            report_missing_json(offset, out);
        } else if self.state == PayloadState::NoJson {
            // Without its own end the call may reach farther.
            self.broken |= length == 0;
        } else if let Some(missing) = missing.filter(|_| !bare) {
            self.broken = true;
            let span = Span::new(offset, offset + length);
            let what = if length > 0 {
                format!("`{}`", self.markers.close)
            } else {
                "other markup".to_owned()
            };
            let message =
                format!("the call's JSON is not whole: {missing} is missing before {what}");
            let fault = match tags {
                true => tag_in_json(offset),
                false => Fault::error(FaultKind::MalformedJson, span, message)
                    .with_hint("close every bracket that was opened"),
            };
            match &mut self.item {
                Some(item) => item.queue_fault(fault, out),
                None => self.emit_pending_fault(fault, out),
            }
        }
        self.broken |= length == 0;
        self.finish_call(offset, out);
        self.close_pending(Some(offset + length), out);
        if is_escaped {
            self.state = PayloadState::Broken(true);
        }
        PayloadStep::Over(at + length)
    }

    /// Returns true if a tag was found where a value should begin.
    fn tags_for_value(&self, text: &str) -> bool {
        let awaited = match (&self.scanner, self.state) {
            (Some(scanner), _) => scanner.wants_value(),
            (None, state) => matches!(state, PayloadState::Value(_)),
        };
        // The rest of the tag's name may still arrive.
        awaited
            && text
                .strip_prefix('<')
                .is_some_and(|rest| rest.starts_with(char::is_alphabetic))
    }

    /// Ends the region's JSON before `at`.
    pub(super) fn end_json(
        &mut self,
        view: TextView<'_>,
        at: usize,
        tail: AllowedTail,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        self.state = PayloadState::After(tail);
        self.seen = 0;
        if self.markers.close.is_empty() {
            self.close_pending(Some(view.offset + at), out);
            if tail == AllowedTail::Nothing && !self.fenced {
                return PayloadStep::Over(at);
            }
        }
        PayloadStep::To(at)
    }

    /// Closes the call that waits for its closing marker, at `at` or else where its JSON ended.
    pub(super) fn close_pending(&mut self, at: Option<usize>, out: &mut dyn EventSink) {
        if let CallEdge::Pending(index, end) = self.edge {
            self.edge = CallEdge::None;
            out.push_event(Event::CallEnd {
                index,
                at: at.unwrap_or(end),
            });
        }
    }

    /// Reads the text after the JSON, which ended at `from`. Nothing is consumed before it is known
    /// what follows.
    pub(super) fn read_tail(
        &mut self,
        view: TextView<'_>,
        from: usize,
        tail: AllowedTail,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let text = view.text.get(from..).unwrap_or_default();
        let close = self.markers.close;
        loop {
            let rest = text.get(self.seen..).unwrap_or_default();
            let Some(&byte) = rest.as_bytes().first() else {
                break;
            };
            if rest.starts_with(close) && !close.is_empty() {
                break;
            }
            match byte {
                byte if byte.is_ascii_whitespace() && self.seen >= BLANK_CAP => {
                    // Too much white space to hold. Before a marker it has no meaning, so it can be
                    // dropped.
                    let seen = std::mem::take(&mut self.seen);
                    return if close.is_empty() {
                        PayloadStep::Over(from)
                    } else {
                        PayloadStep::To(from + seen)
                    };
                }
                byte if byte.is_ascii_whitespace() => self.seen += 1,
                b';' | b',' if tail == AllowedTail::Calls => self.seen += 1,
                b'}' | b']' if tail == AllowedTail::Brackets => self.seen += 1,
                b'{' if tail == AllowedTail::Calls => {
                    self.state = PayloadState::Item(CommaCount::None);
                    return PayloadStep::To(from + std::mem::take(&mut self.seen));
                }
                b'`' if self.fenced && rest.starts_with(FENCE) => {
                    self.fenced = false;
                    self.seen += FENCE.len();
                    if close.is_empty() {
                        return PayloadStep::Over(from + self.seen);
                    }
                }
                b'}' if !close.is_empty() && tail != AllowedTail::Brackets => {
                    match self.is_extra_bracket(rest, &[close], view.last) {
                        None => return PayloadStep::Wait(from),
                        Some(true) => {
                            self.emit_pending_fault(
                                extra_bracket(view.offset + from + self.seen),
                                out,
                            );
                            self.seen += 1;
                        }
                        Some(false) => break,
                    }
                }
                b'`' if self.fenced && FENCE.starts_with(rest) && !view.last => {
                    return PayloadStep::Wait(from);
                }
                _ => break,
            }
        }
        let rest = text.get(self.seen..).unwrap_or_default();
        if close.is_empty() {
            return if rest.is_empty() && !view.last {
                PayloadStep::Wait(from)
            } else {
                PayloadStep::Over(from)
            };
        }
        if rest.is_empty() {
            return PayloadStep::Wait(from);
        }
        self.read_close_marker(view, from, tail, out)
    }

    /// Checks whether a closing bracket is one too many, that is, whether one of `follows` comes
    /// after it. `None` means that more text is needed.
    pub(super) fn is_extra_bracket(
        &self,
        rest: &str,
        follows: &[&str],
        last: bool,
    ) -> Option<bool> {
        let behind = rest.get(1..).unwrap_or_default();
        let text = behind.trim_ascii_start();
        if behind.len() - text.len() > TAG_CAP {
            return Some(false);
        }
        let waits = !last
            && follows
                .iter()
                .any(|follow| text.len() < follow.len() && follow.starts_with(text));
        if waits {
            None
        } else {
            Some(follows.iter().any(|follow| text.starts_with(follow)))
        }
    }

    /// Reads the first byte after the JSON that is neither white space nor JSON.
    fn read_close_marker(
        &mut self,
        view: TextView<'_>,
        from: usize,
        tail: AllowedTail,
        out: &mut dyn EventSink,
    ) -> PayloadStep {
        let at = from + self.seen;
        let rest = view.text.get(at..).unwrap_or_default();
        let close = self.markers.close;
        let offset = view.offset + at;
        let marker = self.check_marker(rest, view.last);
        if marker == MarkerCheck::Close {
            self.close_pending(Some(offset + close.len()), out);
            return PayloadStep::Over(at + close.len());
        }
        if view.last && close.starts_with(rest) {
            // The text ends inside the marker; nothing guarantees that the rest would have come.
            self.state = PayloadState::After(AllowedTail::Brackets);
            return PayloadStep::Wait(from);
        }
        if !view.last && (marker == MarkerCheck::Wait || BRACKETED.starts_with(rest)) {
            return PayloadStep::Wait(from);
        }
        // A fault was already emitted, so the text that follows is prose.
        if tail == AllowedTail::Brackets {
            return PayloadStep::Over(at);
        }
        // Another closing tag was probably meant as this marker, so the whole tag is consumed.
        if close.starts_with("</") && rest.starts_with("</") {
            let head = rest
                .get(..rest.floor_char_boundary(TAG_CAP.min(rest.len())))
                .unwrap_or_default();
            match head
                .find(['>', '\n', '{', '"'])
                .and_then(|end| head.get(..=end))
                .filter(|tag| tag.ends_with('>'))
            {
                Some(tag) => {
                    self.report_wrong_close(Span::new(offset, offset + tag.len()), tag, out);
                    return PayloadStep::Over(at + tag.len());
                }
                None if head.len() == rest.len()
                    && !view.last
                    && !head.contains(['\n', '{', '"']) =>
                {
                    return PayloadStep::Wait(from);
                }
                None => {
                    self.report_wrong_close(Span::new(offset, offset + 2), "</", out);
                    return PayloadStep::Over(from);
                }
            }
        }
        if marker == MarkerCheck::Other || rest.starts_with(BRACKETED) {
            let span = match self.edge {
                CallEdge::Pending(_, end) => Span::new(end, end),
                CallEdge::None | CallEdge::First(_) => Span::new(offset, offset),
            };
            let message = format!("`{close}` is missing");
            self.emit_pending_fault(
                Fault::warning(FaultKind::WrongClose, span, message).with_hint("close each call"),
                out,
            );
            self.close_pending(None, out);
            return PayloadStep::Over(from);
        }
        let found = rest.chars().next().map(String::from).unwrap_or_default();
        // The list is whole, and the words behind it are the dialect's that closes none.
        if self.markers.open_ended && tail == AllowedTail::Nothing && !self.fenced && found != "]" {
            self.close_pending(None, out);
            return PayloadStep::Over(from);
        }
        self.report_wrong_close(Span::new(offset, offset + found.len()), &found, out);
        // More of the JSON, which only seemed to be whole.
        self.broken |= matches!(found.as_str(), ":" | "," | "\"") || rest.starts_with("<]");
        if matches!(found.as_str(), "}" | "]") {
            self.state = PayloadState::After(AllowedTail::Brackets);
            return PayloadStep::To(from);
        }
        PayloadStep::Over(from)
    }

    /// Reports other text in place of the closing marker.
    fn report_wrong_close(&mut self, span: Span, found: &str, out: &mut dyn EventSink) {
        let close = self.markers.close;
        let message =
            format!("`{close}` was expected behind the call's JSON, but `{found}` was found");
        self.emit_pending_fault(
            Fault::error(FaultKind::WrongClose, span, message)
                .with_hint(format!("close the call with `{close}`")),
            out,
        );
        self.close_pending(None, out);
    }

    /// Ends a call whose JSON is whole although a bracket around it, a fence or the closing marker is missing.
    pub(super) fn end_whole_call(&mut self, out: &mut dyn EventSink) -> bool {
        let CallEdge::Pending(index, end) = self.edge else {
            return false;
        };
        let is_behind = matches!(
            self.state,
            PayloadState::Next | PayloadState::After(AllowedTail::Calls | AllowedTail::Nothing)
        );
        if self.item.is_some() || self.broken || !is_behind {
            return false;
        }
        let close = match self.state {
            PayloadState::Next => "]",
            _ if self.fenced => "```",
            _ => self.markers.close,
        };
        out.push_event(Event::Fault(&missing_last_close(index, close, end)));
        self.close_pending(None, out);
        true
    }

    /// Ends the region because the text ended.
    pub(super) fn cut_call(&mut self, why: Truncation, at: usize, out: &mut dyn EventSink) {
        if let Some(mut item) = self.item.take() {
            self.start_call(&mut item, out);
            out.push_event(Event::CallCut {
                index: item.index,
                why,
                at,
            });
        } else if let CallEdge::Pending(index, end) = self.edge {
            let whole = matches!(
                self.state,
                PayloadState::After(AllowedTail::Calls | AllowedTail::Nothing)
            ) && !self.fenced;
            // Some servers strip the closing marker, so a complete call without it is accepted at a
            // regular end.
            match self.markers.stop && whole && why == Truncation::Ended {
                true => out.push_event(Event::CallEnd { index, at: end }),
                false => out.push_event(Event::CallCut { index, why, at }),
            }
        } else if matches!(self.edge, CallEdge::First(_))
            || matches!(self.state, PayloadState::Before | PayloadState::Language)
            || self.frames.last() == Some(BracketFrame::List)
        {
            // No call was begun, so there is none to cut: the fault belongs to the message.
            let message = match self.state {
                PayloadState::Before | PayloadState::Language => {
                    "the text ended where the JSON of a call should begin"
                }
                _ => "the text ended inside a list of calls",
            };
            out.push_event(Event::Fault(&Fault::error(
                FaultKind::CutCall,
                Span::new(at, at),
                message,
            )));
        }
    }
}

pub(super) fn extra_bracket(offset: usize) -> Fault {
    let message = "there is one closing bracket too many after the call";
    let fault = Fault::warning(
        FaultKind::ExtraBracket,
        Span::new(offset, offset + 1),
        message,
    );
    fault.with_hint("close each bracket once")
}

fn tag_in_json(offset: usize) -> Fault {
    let message = "tags were found in place of JSON: a value was expected, found a tag";
    let fault = Fault::error(FaultKind::TagInJson, Span::new(offset, offset + 1), message);
    fault.with_hint(
        "write the value as JSON, without tags, for example {\"path\": \"a.txt\"} as all arguments",
    )
}
