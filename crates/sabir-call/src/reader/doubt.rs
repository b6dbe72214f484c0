//! Doubt: what a tag inside a value says about where the value ends.
//!
//! Whatever leaves two readings (an unknown argument between two closing tags, a call's close without its argument's, a
//! closing tag of an argument that had ended before) is noted; if what follows confirms it, the call is rejected.

use crate::event::Sink;
use crate::fault::{Fault, FaultKind, Span};

use super::call::Open;
use super::tag::{Interest, Tag, alike};
use super::vocabulary::Vocabulary;

/// What the last tag inside a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// A call's opening tag.
    Open,
    /// A call's opening tag, and the name behind it that is being read.
    Naming,
    /// The same with white space behind the name.
    Named,
    /// A closing tag of an argument that had ended before.
    Ended,
    /// The closing tag of an unknown argument.
    Stranger,
}

/// What may be wrong with the call although its text can be read.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// A tag between a closing tag and a call's close that no argument has.
    pub(super) stranger: Option<(String, Span)>,
    /// A call's close without the argument's.
    unclosed: Option<Span>,
    /// What stood in the place of the call's close.
    pub(super) misplaced: Option<(Misplaced, String, Span)>,
    /// Faults that wait for the text before them.
    pub(super) faults: Vec<Fault>,
    /// The argument opened where the closing tag of the one before it is missing.
    pub(super) implied: bool,
    /// The fault is out.
    told: bool,
}

/// What stands where the call's close belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// Another closing tag.
    Close,
    /// The opening of the next call, or of what stands around it.
    Open,
}

impl Before {
    /// Whether the tag before opened a call, so that one of an argument behind it begins an example.
    pub(super) fn opens(self) -> bool {
        matches!(self, Self::Open | Self::Naming | Self::Named)
    }
}

/// What a tag inside a value means.
pub(super) enum Role {
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
    /// Closes the stranger.
    StrangerClose,
    /// Nothing.
    Content,
}

impl Open {
    /// The name of a tag between a closing tag and a call's close that no argument has.
    #[inline]
    pub(super) fn stranger(&self) -> Option<&str> {
        self.doubt.as_ref().and_then(|doubt| doubt.stranger.as_ref()).map(|(name, _)| name.as_str())
    }

    pub(super) fn role(&self, tag: &Tag<'_>, vocabulary: &Vocabulary) -> Role {
        if tag.closes(&self.value.close) {
            return Role::ArgumentClose;
        }
        if tag.closes(&self.form.call) {
            return Role::CallClose;
        }
        if self.stranger().is_some_and(|stranger| tag.closes(stranger)) {
            return Role::StrangerClose;
        }
        if !self.form.own_calls() && tag.opens(&self.form.call) {
            return Role::CallOpen;
        }
        if !self.form.own_arguments() {
            return if self.form.argument(tag).is_some() { Role::ArgumentOpen } else { Role::Content };
        }
        if self.tool().is_some() && vocabulary.declares(self.tool(), tag.name) {
            return if tag.close { Role::OtherClose } else { Role::ArgumentOpen };
        }
        let tool = self.form.own_calls() && (tag.name == &*self.form.call || vocabulary.exact(tag.name).is_some());
        if tool && !tag.close { Role::CallOpen } else { Role::Content }
    }

    pub(super) fn interest(&self, name: &str, close: bool, vocabulary: &Vocabulary) -> Interest {
        if alike(name, &self.value.close) || alike(name, &self.form.call) {
            return if close || self.form.own_calls() { Interest::Plain } else { Interest::Any };
        }
        if self.form.is_key(name) {
            return Interest::Plain;
        }
        let stranger = self.stranger().is_some_and(|stranger| close && name == stranger);
        let declared = || self.tool().is_some() && vocabulary.declares(self.tool(), name);
        let tool = || self.form.own_calls() && vocabulary.exact(name).is_some();
        let known = self.form.own_arguments() && (declared() || tool());
        if stranger || known { Interest::Plain } else { Interest::None }
    }

    /// Weighs a tag inside the value that does not end it. True: the call ends here, rejected.
    pub(super) fn weigh(&mut self, role: &Role, name: &str, span: Span) -> bool {
        let before = std::mem::replace(&mut self.value.before, Before::Nothing);
        let top = self.value.depth == 0;
        match role {
            Role::CallOpen => {
                // An example of another tool has closing tags of its own and ends nothing here.
                if name == &*self.form.call {
                    self.value.before = Before::Open;
                }
                if top {
                    self.tell_unclosed();
                }
            }
            Role::ArgumentOpen if top && before == Before::Stranger => self.tell_stranger(),
            Role::ArgumentOpen if before.opens() => self.value.depth = self.value.depth.saturating_add(1),
            Role::ArgumentOpen | Role::CallClose if top && before == Before::Ended => {
                let message = "a value that had ended seems to go on: its closing tag stands twice".to_owned();
                self.tell(FaultKind::DoubledArgument, span, message, "give each argument once, whole");
            }
            Role::ArgumentOpen if top => self.value.open_inner(name),
            Role::CallClose if !top => self.value.depth -= 1,
            Role::CallClose if before == Before::Stranger => {
                self.tell_stranger();
                return true;
            }
            Role::CallClose if !before.opens() => _ = self.doubt.get_or_insert_default().unclosed.get_or_insert(span),
            Role::OtherClose if top => self.close_other(name),
            Role::StrangerClose if top => self.value.before = Before::Stranger,
            _ => {}
        }
        false
    }

    /// Another argument's closing tag: unless its opening tag stands in the value too, that argument's value may go on to here.
    fn close_other(&mut self, name: &str) {
        if !self.value.close_inner(name) && self.given.contains(name) {
            self.value.before = Before::Ended;
        }
    }

    fn tell(&mut self, kind: FaultKind, span: Span, message: String, hint: &str) {
        if !std::mem::replace(&mut self.doubt.get_or_insert_default().told, true) {
            self.fault(kind, span, message, hint);
        }
    }

    fn tell_stranger(&mut self) {
        let Some(doubt) = &mut self.doubt else { return };
        let Some((name, span)) = doubt.stranger.take() else { return };
        if std::mem::replace(&mut doubt.told, true) {
            return;
        }
        let tool = if self.form.own_calls() { &format!("`{}`", self.form.call) } else { "the tool" };
        let message = format!("{tool} has no argument `{name}`");
        let fault = Fault::error(FaultKind::UnknownArgument, span, message).in_call(self.index).in_argument(name);
        self.note(fault.hint("leave it out, or use a declared argument"));
    }

    fn tell_unclosed(&mut self) {
        let Some(span) = self.doubt.as_ref().and_then(|doubt| doubt.unclosed) else { return };
        let (call, argument) = (self.form.spell_close(&self.form.call), self.form.spell_close(&self.value.close));
        let open = &self.value.close;
        let message = format!("`{call}` stands here while `{open}` is still open: `{argument}` is missing");
        self.tell(FaultKind::WrongClose, span, message, &format!("close the argument with `{argument}` first"));
    }

    /// What the end of the text says about a call that was not closed.
    pub(super) fn explain_cut(&mut self, out: &mut dyn Sink) {
        if let Some((what, name, span)) = self.doubt.as_mut().and_then(|doubt| doubt.misplaced.take()) {
            let close = self.form.spell_close(&self.form.call);
            let message = match what {
                Misplaced::Close => {
                    format!("`{}` stands where `{close}` was expected", self.form.spell_close(&name))
                }
                Misplaced::Open => format!("`{close}` is missing before `{name}`, so the call before it goes on"),
            };
            self.tell(FaultKind::WrongClose, span, message, &format!("close the call with `{close}`"));
        }
        self.tell_unclosed();
        self.report(out);
    }
}
