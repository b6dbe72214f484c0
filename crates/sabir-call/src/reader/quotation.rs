//! Tracks a quotation that begins with words and may span paragraphs.
//!
//! Stray quotation marks occur in prose (inches, ditto marks, fragments of code), and a call lost to one is worse than a
//! mention that runs. So a call counts as quoted only if there is proof on both sides: before it a mark
//! where only an opening one can be, behind it a mark where only a closing one can be, and between them no mark of the
//! same kind that may have ended or begun a quotation. The proof is complete only behind the call; until then nothing
//! is held back.
//!
//! Supported: `"…"`, `“…”`, `„…“`, `”…”`, `«…»`, `»…«`, `「…」`, `『…』`, each directly or in paragraphs that all begin with an
//! opening mark.
//!
//! Unsupported: single quotation marks, which are apostrophes too; `"""`; quotations in quotations of the same kind.

/// The quotation of words around the current position. Three bytes, since each reader holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SpokenQuotation {
    /// The quotation that is certainly open.
    open: Option<QuotationKind>,
    /// The mark right before this place, which the next byte decides about.
    pending: Option<QuotationMark>,
    flags: u8,
}

/// A pair of quotation marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotationKind {
    /// `"…"`
    Straight,
    /// `“…”`
    Curly,
    /// `„…“` or `„…”`
    Low,
    /// `”…”`
    Swedish,
    /// `«…»`
    Angle,
    /// `»…«`
    Inward,
    /// `「…」`
    Corner,
    /// `『…』`
    WhiteCorner,
}

/// A quotation mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotationMark {
    Straight,
    LeftCurly,
    RightCurly,
    Low,
    LeftAngle,
    RightAngle,
    LeftCorner,
    RightCorner,
    LeftWhiteCorner,
    RightWhiteCorner,
}

/// The meaning of a quotation mark.
enum MarkRole {
    Opens(QuotationKind),
    /// Closes a quotation of one of these kinds.
    Closes(&'static [QuotationKind]),
    /// May do either, to a quotation of one of these kinds.
    Unclear(&'static [QuotationKind]),
}

/// All kinds that U+201D may close.
const CLOSED_BY_RIGHT_CURLY: [QuotationKind; 3] = [
    QuotationKind::Curly,
    QuotationKind::Low,
    QuotationKind::Swedish,
];

impl SpokenQuotation {
    /// A call began in the quotation.
    const CALLED: u8 = 1;
    /// Behind the closing mark of a quotation in which a call began.
    const ENDED: u8 = 2;
    /// A second paragraph of the quotation began with an opening mark before any call.
    const CONTINUED: u8 = 4;
    /// The byte before the pending mark may precede an opening one.
    const MAY_OPEN: u8 = 8;
    /// The byte before the pending mark may precede a closing one.
    const MAY_CLOSE: u8 = 16;
    /// The pending mark is the first thing on its line.
    const FIRST: u8 = 32;

    fn is(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if the next byte may change anything, whatever it is.
    pub(super) fn needs_every_byte(self) -> bool {
        self.pending.is_some() || self.is(Self::CALLED | Self::ENDED)
    }

    /// Returns true behind the end of a quotation in which a call began.
    pub(super) fn has_ended(self) -> bool {
        self.is(Self::ENDED)
    }

    /// Returns true, once, behind such an end.
    pub(super) fn take_end(&mut self) -> bool {
        let ended = self.is(Self::ENDED);
        self.flags &= !Self::ENDED;
        ended
    }

    /// Records that a call may begin here. Returns true if it is the first one in the quotation.
    pub(super) fn note_call(&mut self) -> bool {
        // Markup follows, so this is the byte that decides about a mark before it.
        self.decide(b'<');
        let is_first = self.open.is_some() && !self.is(Self::CALLED);
        self.flags |= Self::CALLED * u8::from(is_first);
        is_first
    }

    /// Goes on behind markup, before which a mark that is not decided yet proves nothing.
    pub(super) fn resumed(mut self) -> Self {
        if let Some(mark) = self.pending.take() {
            self.apply(MarkRole::Unclear(mark.kinds()));
        }
        self
    }

    /// Ends the text.
    pub(super) fn end_text(&mut self) {
        self.decide(b'\n');
    }

    /// Processes the newest of the last four bytes. `is_prose` is false in code and other text whose quotation marks are no
    /// punctuation. `is_behind_call` is true at the start of the line behind a call.
    pub(super) fn push_byte(&mut self, last: [u8; 4], is_prose: bool, is_behind_call: bool) {
        let [first, second, third, byte] = last;
        self.decide(byte);
        if !is_prose {
            return;
        }
        let mark = QuotationMark::find(last);
        if mark.is_none() {
            return;
        }
        self.pending = mark;
        self.flags &= !(Self::MAY_OPEN | Self::MAY_CLOSE | Self::FIRST);
        let (before, wide) = match byte {
            b'"' => (third, [first, second, third]),
            0xab | 0xbb => (second, [0, first, second]),
            _ => (first, [0, 0, first]),
        };
        let opens = may_precede_opening(before, wide);
        let closes = may_precede_closing(before, wide) || is_behind_call;
        self.flags |= Self::MAY_OPEN * u8::from(opens);
        self.flags |= Self::MAY_CLOSE * u8::from(closes);
        self.flags |= Self::FIRST * u8::from(before == b'\n');
        // An escaped mark belongs to code.
        if mark == Some(QuotationMark::Straight) && before == b'\\' {
            self.pending = None;
        }
    }

    /// Decides about the mark before this byte.
    fn decide(&mut self, next: u8) {
        let Some(mark) = self.pending.take() else {
            return;
        };
        let opens = self.is(Self::MAY_OPEN) && may_follow_opening(next);
        let closes = self.is(Self::MAY_CLOSE) && may_follow_closing(next);
        self.apply(mark.role(opens, closes, self.open));
    }

    fn apply(&mut self, role: MarkRole) {
        match (role, self.open) {
            (MarkRole::Opens(kind), None) => self.begin(kind),
            (MarkRole::Opens(kind), Some(open)) if kind == open => {
                let is_paragraph = self.is(Self::FIRST);
                // Otherwise the first mark was a stray one.
                match is_paragraph && (self.is(Self::CONTINUED) || !self.is(Self::CALLED)) {
                    true => self.flags |= Self::CONTINUED,
                    false => self.begin(kind),
                }
            }
            (MarkRole::Closes(kinds), Some(open)) if kinds.contains(&open) => {
                let called = self.is(Self::CALLED);
                self.open = None;
                self.flags = Self::ENDED * u8::from(called);
            }
            (MarkRole::Unclear(kinds), Some(open)) if kinds.contains(&open) => {
                self.open = None;
                self.flags &= Self::ENDED;
            }
            // A quotation in the quotation, or an end without a beginning.
            _ => {}
        }
    }

    fn begin(&mut self, kind: QuotationKind) {
        self.open = Some(kind);
        self.flags &= Self::ENDED;
    }
}

impl QuotationMark {
    /// Returns the mark that ends with the newest of these bytes.
    fn find([_, lead, middle, byte]: [u8; 4]) -> Option<Self> {
        Some(match (lead, middle, byte) {
            (_, _, b'"') => Self::Straight,
            (_, 0xc2, 0xab) => Self::LeftAngle,
            (_, 0xc2, 0xbb) => Self::RightAngle,
            (0xe2, 0x80, 0x9c) => Self::LeftCurly,
            (0xe2, 0x80, 0x9d) => Self::RightCurly,
            (0xe2, 0x80, 0x9e) => Self::Low,
            (0xe3, 0x80, 0x8c) => Self::LeftCorner,
            (0xe3, 0x80, 0x8d) => Self::RightCorner,
            (0xe3, 0x80, 0x8e) => Self::LeftWhiteCorner,
            (0xe3, 0x80, 0x8f) => Self::RightWhiteCorner,
            _ => return None,
        })
    }

    /// Returns the kinds of quotations in which the mark has a part.
    fn kinds(self) -> &'static [QuotationKind] {
        match self {
            Self::Straight => &[QuotationKind::Straight],
            Self::LeftCurly | Self::RightCurly | Self::Low => &CLOSED_BY_RIGHT_CURLY,
            Self::LeftAngle | Self::RightAngle => &[QuotationKind::Angle, QuotationKind::Inward],
            Self::LeftCorner | Self::RightCorner => &[QuotationKind::Corner],
            Self::LeftWhiteCorner | Self::RightWhiteCorner => &[QuotationKind::WhiteCorner],
        }
    }

    /// Returns the meaning of the mark. `opens` and `closes` tell for which roles the bytes around it are right.
    fn role(self, opens: bool, closes: bool, open: Option<QuotationKind>) -> MarkRole {
        let unclear = MarkRole::Unclear(self.kinds());
        match self {
            Self::Straight => match (opens, closes) {
                (true, false) => MarkRole::Opens(QuotationKind::Straight),
                (false, true) => MarkRole::Closes(self.kinds()),
                _ => unclear,
            },
            Self::LeftCurly if open == Some(QuotationKind::Low) => match (opens, closes) {
                (false, true) => MarkRole::Closes(&[QuotationKind::Low]),
                _ => unclear,
            },
            Self::LeftCurly if closes && !opens => unclear,
            Self::LeftCurly => MarkRole::Opens(QuotationKind::Curly),
            Self::RightCurly if !opens => MarkRole::Closes(&CLOSED_BY_RIGHT_CURLY),
            Self::RightCurly if open.is_none() => MarkRole::Opens(QuotationKind::Swedish),
            Self::RightCurly => unclear,
            Self::Low => MarkRole::Opens(QuotationKind::Low),
            Self::LeftAngle if open == Some(QuotationKind::Inward) => match opens {
                true => unclear,
                false => MarkRole::Closes(&[QuotationKind::Inward]),
            },
            Self::LeftAngle if closes && !opens => unclear,
            Self::LeftAngle => MarkRole::Opens(QuotationKind::Angle),
            Self::RightAngle if open == Some(QuotationKind::Angle) => match opens {
                true => unclear,
                false => MarkRole::Closes(&[QuotationKind::Angle]),
            },
            Self::RightAngle if opens => MarkRole::Opens(QuotationKind::Inward),
            Self::RightAngle => unclear,
            Self::LeftCorner => MarkRole::Opens(QuotationKind::Corner),
            Self::RightCorner => MarkRole::Closes(&[QuotationKind::Corner]),
            Self::LeftWhiteCorner => MarkRole::Opens(QuotationKind::WhiteCorner),
            Self::RightWhiteCorner => MarkRole::Closes(&[QuotationKind::WhiteCorner]),
        }
    }
}

/// Returns true if this byte may precede an opening mark. `wide` ends with it.
fn may_precede_opening(before: u8, wide: [u8; 3]) -> bool {
    before.is_ascii_whitespace()
        || matches!(
            before,
            b'(' | b'[' | b'{' | b'<' | b'=' | b'*' | b'_' | b':' | b',' | b'>' | b'|' | b'-'
        )
        // Dashes, and the punctuation of Chinese and Japanese.
        || matches!(wide, [0xe2, 0x80, 0x93 | 0x94] | [0xe3 | 0xef, _, _])
}

/// Returns true if this byte may precede a closing mark. After a digit the mark may mean inches.
fn may_precede_closing(before: u8, wide: [u8; 3]) -> bool {
    before.is_ascii_alphabetic()
        || matches!(
            before,
            b'.' | b',' | b'!' | b'?' | b')' | b']' | b'}' | b'>' | b'\'' | b'`' | b'%'
        )
        || before >= 0x80 && !matches!(wide, [0xe2, 0x80, 0x93 | 0x94])
}

/// Returns true if this byte may follow an opening mark.
fn may_follow_opening(next: u8) -> bool {
    let is_word = next.is_ascii_alphanumeric() || next >= 0x80;
    let is_wide = matches!(next, 0xe2 | 0xe3 | 0xef);
    is_word && !is_wide
        || matches!(
            next,
            b'(' | b'[' | b'{' | b'<' | b'\'' | b'`' | b'*' | b'_' | b'#' | b'$' | b'@' | b'/'
        )
}

/// Returns true if this byte may follow a closing mark.
fn may_follow_closing(next: u8) -> bool {
    next.is_ascii_whitespace()
        || matches!(
            next,
            b'.' | b',' | b'!' | b'?' | b':' | b')' | b']' | b'<' | b'*' | b'_'
        )
        || matches!(next, 0xe2 | 0xe3 | 0xef)
}
