//! Decides what a tag inside a value means for the end of that value.
//!
//! Some tags leave two readings: an unknown argument between two closing tags, a call's close
//! without its argument's, a closing tag of an argument that had ended before. They are noted, and
//! if the following text confirms the ambiguity, the call is rejected.

use crate::event::EventSink;
use crate::fault::{Fault, FaultKind, Span};

use super::call::OpenTagCall;
use super::tag::{Tag, TagRelevance, names_match};
use super::vocabulary::Vocabulary;

/// The kind of the preceding tag inside a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrecedingTag {
    Nothing,
    /// A call's opening tag.
    Open,
    /// A call's opening tag, followed by an incomplete name.
    Naming,
    /// A call's opening tag, followed by a name and white space.
    Named,
    /// A closing tag of an argument that had already ended.
    Ended,
    /// The closing tag of an unknown argument.
    UnknownClose,
}

/// The possible mistakes in a call whose text can be read.
#[derive(Debug, Default)]
pub(super) struct CallAmbiguity {
    /// A tag that belongs to no argument, between a closing tag and a call's close.
    pub(super) unknown_tag: Option<(String, Span)>,
    /// The position of a call's close without the argument's.
    unclosed: Option<Span>,
    /// The last close of a wrapper inside the value.
    wrapper_close: Option<(String, Span)>,
    /// The tag found in place of the call's close.
    pub(super) misplaced: Option<(MisplacedTag, String, Span)>,
    /// Faults that must follow the text before them.
    pub(super) faults: Vec<Fault>,
    /// True if the current argument was opened although the closing tag before it is missing.
    pub(super) implied: bool,
    /// Opening tags of other arguments inside a value, each name once.
    siblings: Vec<InnerTag>,
    /// The first closing tag of a value that was taken for content.
    inner_close: Option<InnerTag>,
    /// The first opening tag in the current value that may be without a closing tag in it.
    inner_open: Option<InnerTag>,
    /// The first opening tag without a closing tag in any value that has ended.
    unclosed_open: Option<InnerTag>,
    /// True once a fault about an ambiguity was reported; further ones would only repeat it.
    reported: bool,
}

/// A tag inside a value that could also belong to the call.
#[derive(Debug)]
struct InnerTag {
    /// The argument whose value holds the tag.
    holder: Box<str>,
    /// The argument that an opening tag names; empty for a closing tag.
    name: Box<str>,
    span: Span,
}

/// The kind of tag found in place of the call's close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MisplacedTag {
    /// Another closing tag.
    Close,
    /// The opening tag of the next call, or of a wrapper.
    Open,
}

impl PrecedingTag {
    /// Returns true if the preceding tag opened a call, so that an argument's tag after it begins
    /// an example.
    pub(super) fn is_call_open(self) -> bool {
        matches!(self, Self::Open | Self::Naming | Self::Named)
    }
}

/// The meaning of a tag inside a value.
pub(super) enum TagRole {
    /// Ends the argument.
    ArgumentClose,
    /// Ends a call of this kind.
    CallClose,
    /// Opens a call.
    CallOpen,
    /// Opens an argument.
    ArgumentOpen,
    /// Closes another argument.
    OtherClose,
    /// Closes the unknown tag.
    UnknownClose,
    /// Closes the wrapper around the calls.
    WrapperClose,
    /// No meaning.
    Content,
}

impl OpenTagCall {
    /// Returns the name of a tag that belongs to no argument, between a closing tag and a call's
    /// close.
    #[inline]
    pub(super) fn unknown_tag_name(&self) -> Option<&str> {
        self.ambiguity
            .as_ref()
            .and_then(|doubt| doubt.unknown_tag.as_ref())
            .map(|(name, _)| name.as_str())
    }

    pub(super) fn tag_role(&self, tag: &Tag<'_>, vocabulary: &Vocabulary) -> TagRole {
        if tag.is_closing_tag(&self.value.close) {
            return TagRole::ArgumentClose;
        }
        if tag.is_closing_tag(&self.form.call) {
            return TagRole::CallClose;
        }
        if self
            .unknown_tag_name()
            .is_some_and(|stranger| tag.is_closing_tag(stranger))
        {
            return TagRole::UnknownClose;
        }
        if !self.form.has_tool_tags() && tag.is_opening_tag(&self.form.call) {
            return TagRole::CallOpen;
        }
        if !self.form.has_argument_tags() {
            return if self.form.argument_name(tag).is_some() {
                TagRole::ArgumentOpen
            } else if tag.close && self.form.is_wrapper(tag.name) {
                TagRole::WrapperClose
            } else {
                TagRole::Content
            };
        }
        if self.tool_index().is_some() && vocabulary.declares_argument(self.tool_index(), tag.name)
        {
            return if tag.close {
                TagRole::OtherClose
            } else {
                TagRole::ArgumentOpen
            };
        }
        let tool = self.form.has_tool_tags()
            && (tag.name == &*self.form.call || vocabulary.find_exact_tool(tag.name).is_some());
        if tool && !tag.close {
            TagRole::CallOpen
        } else {
            TagRole::Content
        }
    }

    pub(super) fn tag_relevance(
        &self,
        name: &str,
        close: bool,
        vocabulary: &Vocabulary,
    ) -> TagRelevance {
        if names_match(name, &self.value.close) || names_match(name, &self.form.call) {
            return if close || self.form.has_tool_tags() {
                TagRelevance::Plain
            } else {
                TagRelevance::Any
            };
        }
        if self.form.is_key(name) {
            return TagRelevance::Plain;
        }
        let stranger = self
            .unknown_tag_name()
            .is_some_and(|stranger| close && name == stranger);
        let declared =
            || self.tool_index().is_some() && vocabulary.declares_argument(self.tool_index(), name);
        let tool = || self.form.has_tool_tags() && vocabulary.find_exact_tool(name).is_some();
        let known = self.form.has_argument_tags() && (declared() || tool());
        let wrapper = close && self.form.is_wrapper(name);
        if stranger || known || wrapper {
            TagRelevance::Plain
        } else {
            TagRelevance::None
        }
    }

    /// Processes a tag inside the value that does not end it. Returns true if the call ends here,
    /// rejected.
    pub(super) fn assess_tag(&mut self, role: &TagRole, name: &str, span: Span) -> bool {
        let before = std::mem::replace(&mut self.value.before, PrecedingTag::Nothing);
        let top = self.value.depth == 0;
        match role {
            TagRole::CallOpen => {
                // An example of another tool has its own closing tags and cannot end this call.
                if name == &*self.form.call {
                    self.value.before = PrecedingTag::Open;
                }
                if top {
                    self.report_unclosed();
                }
            }
            TagRole::ArgumentOpen if top && before == PrecedingTag::UnknownClose => {
                self.report_unknown_tag()
            }
            // A call's tag followed by an argument's tag is a complete example: it nests until its
            // close.
            TagRole::ArgumentOpen if before.is_call_open() => {
                self.value.depth = self.value.depth.saturating_add(1)
            }
            TagRole::ArgumentOpen | TagRole::CallClose if top && before == PrecedingTag::Ended => {
                let message =
                    "a value seems to continue after its end: its closing tag occurs twice"
                        .to_owned();
                self.report_once(
                    FaultKind::DoubledArgument,
                    span,
                    message,
                    "give each argument once, whole",
                );
            }
            TagRole::ArgumentOpen if top => self.value.open_inner(name),
            // Ends the innermost nested example.
            TagRole::CallClose if !top => self.value.depth -= 1,
            TagRole::CallClose if before == PrecedingTag::UnknownClose => {
                self.report_unknown_tag();
                return true;
            }
            TagRole::CallClose if !before.is_call_open() => {
                // Content, unless a new call follows: then the argument's closing tag is probably
                // missing.
                _ = self
                    .ambiguity
                    .get_or_insert_default()
                    .unclosed
                    .get_or_insert(span)
            }
            TagRole::OtherClose if top => self.close_other(name),
            TagRole::WrapperClose if top => {
                self.ambiguity.get_or_insert_default().wrapper_close =
                    Some((name.to_owned(), span));
            }
            TagRole::UnknownClose if top => self.value.before = PrecedingTag::UnknownClose,
            _ => {}
        }
        false
    }

    /// Processes another argument's closing tag. If its opening tag is not in this value, that argument's value may extend to here.
    fn close_other(&mut self, name: &str) {
        if !self.value.close_inner(name) && self.given.contains(name) {
            self.value.before = PrecedingTag::Ended;
        }
    }

    /// Notes that the opening tag of an argument is part of a value.
    pub(super) fn note_sibling(&mut self, name: &str, span: Span, vocabulary: &Vocabulary) {
        let can_be_meant = !self.form.has_argument_tags()
            && self.tool_index().is_some()
            && !self.given.contains(name)
            && vocabulary.declares_argument(self.tool_index(), name);
        if !can_be_meant {
            return;
        }
        let holder = self.argument_name().into();
        let siblings = &mut self.ambiguity.get_or_insert_default().siblings;
        if siblings.iter().all(|sibling| &*sibling.name != name) {
            let name = name.into();
            siblings.push(InnerTag { holder, name, span });
        }
    }

    /// Notes that the value contains the opening tag of an argument that the call has or may have. Without a name, it is the tag of a
    /// value.
    pub(super) fn note_inner_open(
        &mut self,
        name: Option<&str>,
        span: Span,
        vocabulary: &Vocabulary,
    ) {
        let is_example = self.value.depth > 0 || self.value.before.is_call_open();
        let name = name.unwrap_or(&self.argument);
        let is_own = self.form.has_argument_tags();
        let can_be_meant = match is_own {
            // Tags with ordinary names are content of many files.
            true => name == &*self.argument,
            false => {
                self.given.contains(name) || vocabulary.declares_argument(self.tool_index(), name)
            }
        };
        if is_example || !can_be_meant {
            return;
        }
        self.value.unclosed_opens = self.value.unclosed_opens.saturating_add(1);
        let holder = self.argument_name().into();
        let doubt = self.ambiguity.get_or_insert_default();
        doubt.inner_open.get_or_insert_with(|| InnerTag {
            holder,
            name: name.into(),
            span,
        });
    }

    /// Notes that a closing tag in the value may belong to an opening tag in it.
    pub(super) fn close_inner_open(&mut self) {
        self.value.unclosed_opens = self.value.unclosed_opens.saturating_sub(1);
        if self.value.unclosed_opens == 0
            && let Some(doubt) = &mut self.ambiguity
        {
            doubt.inner_open = None;
        }
    }

    /// Keeps the opening tag without a closing tag, at the end of the value that holds it.
    pub(super) fn keep_unclosed_open(&mut self) {
        if let Some(doubt) = &mut self.ambiguity
            && let Some(open) = doubt.inner_open.take()
        {
            doubt.unclosed_open.get_or_insert(open);
        }
    }

    /// Notes that a closing tag of the current value is part of it.
    pub(super) fn note_inner_close(&mut self, span: Span) {
        if self.form.has_argument_tags() {
            return;
        }
        let holder = self.argument_name().into();
        let doubt = self.ambiguity.get_or_insert_default();
        doubt.inner_close.get_or_insert_with(|| InnerTag {
            holder,
            name: Box::default(),
            span,
        });
    }

    /// Reports, at the end of the call, tags inside its values that may have been meant as tags of the call.
    ///
    /// They are certainly content only if the call has every argument that such a tag could begin or end.
    pub(super) fn report_inner_tags(&mut self, vocabulary: &Vocabulary) {
        let Some(doubt) = &mut self.ambiguity else {
            return;
        };
        let siblings = std::mem::take(&mut doubt.siblings);
        let inner_close = doubt.inner_close.take();
        let unclosed_open = doubt.unclosed_open.take();
        // The value's closing tag before the end of all calls, or before the next call, is more
        // likely the end of an unclosed call than content.
        let is_structural = |(what, name, _): &(MisplacedTag, String, Span)| {
            *what == MisplacedTag::Open || self.form.is_wrapper(name)
        };
        if doubt.misplaced.as_ref().is_some_and(is_structural) {
            self.report_misplaced();
        }
        if let Some(InnerTag { holder, name, span }) = siblings
            .into_iter()
            .find(|sibling| !self.given.contains(&sibling.name))
        {
            let open = self.form.format_argument_tag(&name);
            let close = self.form.format_close_tag(&self.value.close);
            let message = format!(
                "`{open}` is inside the value of `{holder}`: `{close}` may be missing before it"
            );
            let hint = format!("close each argument with `{close}`");
            self.report_in_argument(&holder, FaultKind::WrongClose, span, message, &hint);
        }
        if let Some(InnerTag { holder, name, span }) = unclosed_open
            && self.given.contains(&name)
        {
            let open = self.form.format_argument_tag(&name);
            let close = self.form.format_close_tag(&self.value.close);
            let message = format!(
                "`{open}` is inside the value of `{holder}` without a `{close}` of its own, so `{name}` may be given twice"
            );
            let hint = format!("give each argument once, and close it with `{close}`");
            self.report_in_argument(&holder, FaultKind::DoubledArgument, span, message, &hint);
        }
        let absent = vocabulary
            .absent_arguments(self.tool_index(), &self.given)
            .next();
        if let Some(InnerTag { holder, span, .. }) = inner_close
            && let Some(absent) = absent
        {
            let close = self.form.format_close_tag(&self.value.close);
            let open = self.form.format_argument_tag(absent);
            let message = format!(
                "the value of `{holder}` continues after `{close}`: the opening tag of an argument may be missing, \
                 such as `{open}`"
            );
            let hint = format!("write `{open}` before each value, and `{close}` after it");
            self.report_in_argument(&holder, FaultKind::DoubledArgument, span, message, &hint);
        }
    }

    fn report_in_argument(
        &mut self,
        argument: &str,
        kind: FaultKind,
        span: Span,
        message: String,
        hint: &str,
    ) {
        if !std::mem::replace(&mut self.ambiguity.get_or_insert_default().reported, true) {
            let fault = Fault::error(kind, span, message)
                .in_call(self.index)
                .in_argument(argument);
            self.queue_fault(fault.with_hint(hint));
        }
    }

    pub(super) fn report_once(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        if !std::mem::replace(&mut self.ambiguity.get_or_insert_default().reported, true) {
            self.add_fault(kind, span, message, hint);
        }
    }

    fn report_unknown_tag(&mut self) {
        let Some(doubt) = &mut self.ambiguity else {
            return;
        };
        let Some((name, span)) = doubt.unknown_tag.take() else {
            return;
        };
        if std::mem::replace(&mut doubt.reported, true) {
            return;
        }
        let tool = if self.form.has_tool_tags() {
            &format!("`{}`", self.form.call)
        } else {
            "the tool"
        };
        let message = format!("{tool} has no argument `{name}`");
        let fault = Fault::error(FaultKind::UnknownArgument, span, message)
            .in_call(self.index)
            .in_argument(name);
        self.queue_fault(fault.with_hint("leave it out, or use a declared argument"));
    }

    fn report_unclosed(&mut self) {
        let Some(span) = self.ambiguity.as_ref().and_then(|doubt| doubt.unclosed) else {
            return;
        };
        let call = self.form.format_close_tag(&self.form.call);
        let argument = self.form.format_close_tag(&self.value.close);
        let open = &self.value.close;
        let message =
            format!("`{call}` begins here while `{open}` is still open: `{argument}` is missing");
        self.report_once(
            FaultKind::WrongClose,
            span,
            message,
            &format!("close the argument with `{argument}` first"),
        );
    }

    /// Reports, at the end of the text, the likely reason why a call was not closed.
    pub(super) fn explain_cut(&mut self, out: &mut dyn EventSink) {
        self.report_misplaced();
        self.report_unclosed();
        self.report_wrapper_close();
        self.emit_faults(out);
    }

    /// Reports the tag that was found in place of the call's close.
    fn report_misplaced(&mut self) {
        if let Some((what, name, span)) = self
            .ambiguity
            .as_mut()
            .and_then(|doubt| doubt.misplaced.take())
        {
            let close = self.form.format_close_tag(&self.form.call);
            let message = match what {
                MisplacedTag::Close => {
                    format!(
                        "found `{}` where `{close}` was expected",
                        self.form.format_close_tag(&name)
                    )
                }
                MisplacedTag::Open => {
                    format!("`{close}` is missing before `{name}`, so the call before it continues")
                }
            };
            self.report_once(
                FaultKind::WrongClose,
                span,
                message,
                &format!("close the call with `{close}`"),
            );
        }
    }

    /// Reports that the wrapper was closed while a value was open.
    fn report_wrapper_close(&mut self) {
        let found = self
            .ambiguity
            .as_mut()
            .and_then(|doubt| doubt.wrapper_close.take());
        let Some((wrapper, span)) = found else {
            return;
        };
        let call = self.form.format_close_tag(&self.form.call);
        let argument = self.form.format_close_tag(&self.value.close);
        let message = format!(
            "`{}` begins here while `{}` is still open: `{argument}` and `{call}` are missing",
            self.form.format_close_tag(&wrapper),
            self.value.close
        );
        self.report_once(
            FaultKind::WrongClose,
            span,
            message,
            &format!("close the argument with `{argument}` and the call with `{call}` first"),
        );
    }
}
