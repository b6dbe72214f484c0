//! Builds the table of markers: the text that opens calls in dialects without tags, and special
//! tokens with no meaning.
//!
//! Several dialects may share a marker; the text after it decides (`reader/marker_dispatch.rs`).

use crate::dialect::grammar::{GemmaCalls, Grammar, JsonForm, PythonCalls};
use crate::dialect::{Dialect, DialectSelection};

use super::triggers::{FirstLetters, TriggerTable};

/// The markers that open a message of the harmony dialect.
const HARMONY_OPENS: [&str; 2] = ["<|start|>", "<|channel|>"];

/// The beginnings of a harmony call whose prompt ends inside the message header.
const HARMONY_BEGINS: [&str; 6] = [
    " to=",
    "to=",
    "commentary to=",
    "analysis<|message|>",
    "commentary<|message|>",
    "final<|message|>",
];

/// The tokens with which chat templates end a turn, or begin the next one. Servers leave them in the
/// text; at its end, or next to calls, they are not part of it.
const TURN_TOKENS: [&str; 10] = [
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|user|>",
    "<|observation|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];

/// The recipient of words where each message begins with a line that names its recipient.
const ALL: &str = "all\n";

/// The beginning of a Gemma call without its marker.
pub(super) const GEMMA: &str = "call:";

/// The optional marker of a Python list of calls; the list mostly appears without it.
const PYTHON: PythonCalls = PythonCalls {
    open: "<|python_start|>",
    close: "",
    list: true,
};

/// The markers of all dialects.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkerTable {
    /// The markers of the active dialects, with every meaning.
    active: Vec<MarkerEntry>,
    /// Every marker text, active or not, with the first dialect that has it.
    owners: Vec<(&'static str, &'static str)>,
    /// The marker texts that begin with `<`, each once.
    in_angles: Vec<&'static str>,
    /// The other marker texts, each once.
    bare: Vec<&'static str>,
    /// The marker texts that count at the start of a text only, each once.
    headless: Vec<&'static str>,
    /// The bytes that can follow the `<` of a marker; they rule out most `<` in a text.
    second: FirstLetters,
    /// The names of the closing tags that end calls of the active dialects, each once.
    closes: Vec<&'static str>,
}

/// One meaning of a marker in one dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkerEntry {
    pub(crate) text: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) kind: MarkerKind,
}

/// The meaning of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    Json(JsonForm),
    Python(PythonCalls),
    /// A Gemma call; `true` if the markers around it are missing.
    Gemma(&'static GemmaCalls, bool),
    /// Calls in Python syntax, possibly as methods: `f.call(k="v")`.
    Methods,
    /// The header of a message of the harmony dialect.
    Channel,
    /// A `Channel` header at the start of a text whose prompt already contains the markers before it.
    Headless,
    /// No meaning of its own: a marker around calls.
    Section,
    /// Says that words follow, at the start of a text whose prompt already contains the marker before it.
    Recipient,
    /// A thought, up to this closing marker.
    Thought(&'static str),
    /// Ends a thought.
    ThoughtEnd,
    /// Closes a call.
    Closer,
    /// Ends the name before a call's arguments.
    HeaderEnd,
    /// Encloses a string in a call.
    Quote,
}

/// The marker found at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerMatch {
    None,
    /// The text ends inside a possible marker.
    Partial,
    /// The longest matching marker.
    Marker(&'static str),
}

impl MarkerTable {
    /// Compiles the markers of all dialects of a selection, active or not, and adds the bytes at
    /// which prose must stop for them.
    pub(crate) fn new(selection: DialectSelection<'_>, triggers: &mut TriggerTable) -> Self {
        let mut made = Self::default();
        for (dialect, is_active) in selection.recognized_dialects() {
            made.add_dialect(dialect, is_active, selection.is_chosen(), triggers);
        }
        made.add_turn_tokens();
        // The table is kept as long as its reader, of which there may be thousands.
        made.active.shrink_to_fit();
        made.owners.shrink_to_fit();
        made
    }

    /// Adds the markers of a dialect, and the bytes at which prose must stop for them.
    pub(crate) fn add_dialect(
        &mut self,
        dialect: &Dialect,
        is_active: bool,
        chosen: bool,
        triggers: &mut TriggerTable,
    ) {
        for (text, kind) in dialect_markers(dialect, is_active, chosen) {
            text.bytes().take(1).for_each(|byte| match kind {
                // The reader looks for headless headers at the start of the text only.
                MarkerKind::Headless => {}
                MarkerKind::Gemma(_, true) if !chosen => triggers.add_at_line_start(byte),
                // The prompt of Python, and the end of tags.
                _ if byte == b'>' && !chosen => triggers.add_between_words(byte),
                MarkerKind::Recipient => {}
                _ => triggers.add_byte(byte),
            });
            let texts = if text.starts_with('<') {
                self.second.add_first_letter(text.get(1..).unwrap_or("|"));
                &mut self.in_angles
            } else if matches!(kind, MarkerKind::Headless | MarkerKind::Recipient) {
                &mut self.headless
            } else {
                &mut self.bare
            };
            // Dialects may share a marker. Its text is searched once; `active` keeps every meaning.
            if !texts.contains(&text) {
                texts.push(text);
            }
            self.add_owner(text, dialect.name);
            if is_active {
                let close = match kind {
                    MarkerKind::Json(form) => form.close,
                    MarkerKind::Python(table) => table.close,
                    _ => "",
                };
                let inside = close.trim().strip_prefix("</");
                let name = inside.and_then(|text| text.strip_suffix('>'));
                self.closes
                    .extend(name.filter(|name| !self.closes.contains(name)));
                self.active.push(MarkerEntry {
                    text,
                    dialect: dialect.name,
                    kind,
                });
            }
        }
    }

    /// Records the dialect of a marker, unless an earlier dialect has the marker too.
    fn add_owner(&mut self, text: &'static str, dialect: &'static str) {
        if self.owner_dialect(text).is_none() {
            self.owners.push((text, dialect));
        }
    }

    /// Adds the tokens that end a turn in any model's template.
    fn add_turn_tokens(&mut self) {
        for text in TURN_TOKENS {
            if !self.in_angles.contains(&text) {
                self.in_angles.push(text);
            }
            self.second
                .add_first_letter(text.get(1..).unwrap_or_default());
            self.add_owner(text, "");
            self.active.push(MarkerEntry {
                text,
                dialect: "",
                kind: MarkerKind::Section,
            });
        }
    }

    /// Returns true if a text may begin inside the header of a message.
    pub(crate) fn may_start_in_header(&self) -> bool {
        !self.headless.is_empty()
    }

    /// Returns true if a token only ends a turn.
    pub(crate) fn is_turn_token(&self, text: &str) -> bool {
        TURN_TOKENS.contains(&text)
    }

    /// Returns the longest marker at the start of `rest`.
    pub(crate) fn find_marker(&self, rest: &str, last: bool) -> MarkerMatch {
        let bytes = rest.as_bytes();
        let angled = bytes.first() == Some(&b'<');
        if angled
            && bytes
                .get(1)
                .is_some_and(|second| !self.second.has_letter(*second))
        {
            return MarkerMatch::None;
        }
        let texts = if angled { &self.in_angles } else { &self.bare };
        longest_marker(texts, rest, last)
    }

    /// Returns the longest marker at the start of a text, which may begin inside the header of a message.
    pub(crate) fn find_first_marker(&self, text: &str, last: bool) -> MarkerMatch {
        match longest_marker(&self.headless, text, last) {
            MarkerMatch::None => self.find_marker(text, last),
            found => found,
        }
    }

    /// Returns the longest marker of special tokens at the start of `rest`; a model writes such
    /// tokens only as markup.
    pub(crate) fn find_special_marker(&self, rest: &str, last: bool) -> MarkerMatch {
        match self.find_marker(rest, last) {
            // Text in square brackets can be typed, so it does not count as a special token here.
            MarkerMatch::Marker(text)
                if !is_special(text)
                    || text.starts_with('[')
                    || self.active_meanings(text).next().is_none() =>
            {
                MarkerMatch::None
            }
            spotted => spotted,
        }
    }

    /// Returns all meanings of a marker in the active dialects.
    pub(crate) fn active_meanings<'v>(
        &'v self,
        text: &'v str,
    ) -> impl Iterator<Item = &'v MarkerEntry> {
        self.active.iter().filter(move |marker| marker.text == text)
    }

    /// Returns true if a marker opens calls in an active dialect, as prose would not.
    pub(crate) fn opens_call(&self, text: &str) -> bool {
        let opens = |marker: &MarkerEntry| {
            matches!(
                marker.kind,
                MarkerKind::Json(_) | MarkerKind::Python(_) | MarkerKind::Gemma(_, false)
            )
        };
        text.starts_with('<') && self.active_meanings(text).any(opens)
    }

    /// Returns true if a closing tag of this name closes the calls of some active dialect.
    pub(crate) fn has_close_tag(&self, name: &str) -> bool {
        self.closes.contains(&name)
    }

    /// Returns true if `close` is the end of what `open` begins, in an active dialect.
    pub(crate) fn closes(&self, open: &str, close: &str) -> bool {
        self.active_meanings(open).any(|marker| match marker.kind {
            MarkerKind::Json(form) => form.close == close,
            MarkerKind::Python(table) => table.close == close,
            MarkerKind::Gemma(table, false) => table.close == close,
            _ => false,
        })
    }

    /// Returns true if a marker is one around calls or messages in an active dialect.
    pub(crate) fn is_section(&self, text: &str) -> bool {
        self.active_meanings(text)
            .any(|marker| marker.kind == MarkerKind::Section)
    }

    /// Returns the names of marker and dialect of the calls in JSON behind their own name, without the marker before it.
    pub(crate) fn echo_ends(&self) -> impl Iterator<Item = &'static str> {
        self.active.iter().filter_map(|marker| match marker.kind {
            MarkerKind::Json(form) => form.head.filter(|head| head.echo).map(|head| head.end),
            _ => None,
        })
    }

    /// Returns the marker with which the prompt may end, if one dialect was chosen and its calls begin with it.
    pub(crate) fn prompted_marker(&self) -> Option<&'static str> {
        let is_recipient = |marker: &&MarkerEntry| marker.kind == MarkerKind::Recipient;
        let dialect = self.active.iter().find(is_recipient)?.dialect;
        let is_headed = |marker: &&MarkerEntry| {
            marker.dialect == dialect
                && matches!(marker.kind, MarkerKind::Json(form) if form.is_headed_by_line())
        };
        self.active.iter().find(is_headed).map(|marker| marker.text)
    }

    /// Returns true if a marker ends thoughts in an active dialect.
    pub(crate) fn ends_thought(&self, text: &str) -> bool {
        self.active_meanings(text)
            .any(|marker| marker.kind == MarkerKind::ThoughtEnd)
    }

    /// Returns the meaning of a marker in the active dialects. A meaning that begins or separates something takes precedence over the end
    /// of a call.
    pub(crate) fn main_meaning(&self, text: &str) -> Option<MarkerEntry> {
        let main = self.active_meanings(text).find(|marker| !marker.is_end());
        main.or_else(|| self.active_meanings(text).next()).copied()
    }

    /// Returns true if a marker opens JSON in an active dialect.
    pub(crate) fn opens_json(&self, text: &str) -> bool {
        self.active_meanings(text)
            .any(|marker| matches!(marker.kind, MarkerKind::Json(JsonForm { head: None, .. })))
    }

    /// Returns the length of a meaningless token at the start of `rest`, or 0 if there is none.
    /// `None` means that more text is needed.
    pub(crate) fn token_length(&self, rest: &str, last: bool) -> Option<usize> {
        match self.find_marker(rest, last) {
            MarkerMatch::Partial => None,
            MarkerMatch::Marker(text)
                if self
                    .active_meanings(text)
                    .all(|marker| marker.kind == MarkerKind::Section) =>
            {
                Some(text.len())
            }
            MarkerMatch::Marker(_) | MarkerMatch::None => Some(0),
        }
    }

    /// Returns the first dialect that has this marker, active or not.
    pub(crate) fn owner_dialect(&self, text: &str) -> Option<&'static str> {
        self.owners
            .iter()
            .find(|(owned, _)| *owned == text)
            .map(|(_, dialect)| *dialect)
    }
}

impl MarkerEntry {
    /// Returns true if the marker belongs inside or behind a call.
    pub(crate) fn is_end(&self) -> bool {
        matches!(
            self.kind,
            MarkerKind::Closer | MarkerKind::HeaderEnd | MarkerKind::Quote
        )
    }
}

/// Returns the markers of a dialect with their meanings.
fn dialect_markers(
    dialect: &Dialect,
    is_active: bool,
    chosen: bool,
) -> Vec<(&'static str, MarkerKind)> {
    let section = |text: &'static str| (text, MarkerKind::Section);
    // They begin with ordinary words, which mean nothing in a dialect that is not read.
    let headless = || {
        let begins = HARMONY_BEGINS.iter().filter(|_| is_active);
        begins.map(|text| (*text, MarkerKind::Headless))
    };
    let mut markers: Vec<(&'static str, MarkerKind)> = Vec::new();
    match *dialect.grammar {
        Grammar::Tagged(tagged) => {
            markers.extend(
                tagged
                    .sections
                    .iter()
                    .flat_map(|(open, close)| [section(open), section(close)]),
            );
            if tagged.channels {
                let headers = HARMONY_OPENS.map(|text| (text, MarkerKind::Channel));
                markers.extend(headers.into_iter().chain(headless()));
            }
        }
        Grammar::Json(table) => {
            markers.extend(
                table
                    .section
                    .into_iter()
                    .flat_map(|(open, close)| [section(open), section(close)]),
            );
            // `<function=` also opens a call in tags. The reader of tags handles it, unless this
            // dialect was chosen.
            let is_tag = |form: &&JsonForm| form.open.starts_with('<') && form.open.ends_with('=');
            let forms = table.forms.iter().filter(|form| !is_tag(form) || chosen);
            // `>>>` means nothing in a dialect that is not read.
            let forms = forms.filter(|form| is_active || !form.is_headed_by_line());
            markers.extend(forms.map(|form| (form.open, MarkerKind::Json(*form))));
            let has_lines = table.forms.iter().any(JsonForm::is_headed_by_line);
            let is_chosen = is_active && chosen;
            markers.extend((is_chosen && has_lines).then_some((ALL, MarkerKind::Recipient)));
            markers.extend(
                table
                    .forms
                    .first()
                    .filter(|_| table.methods)
                    .map(|form| (form.open, MarkerKind::Methods)),
            );
        }
        Grammar::Python(PythonCalls { open: "", .. }) => {
            markers.push((PYTHON.open, MarkerKind::Python(PYTHON)))
        }
        Grammar::Python(table) => {
            let form = JsonForm {
                open: table.open,
                head: None,
                close: table.close,
                stop: false,
                named_by_key: false,
            };
            markers.extend(
                [MarkerKind::Python(table), MarkerKind::Json(form)].map(|kind| (table.open, kind)),
            );
        }
        Grammar::Gemma(ref table) => {
            markers.push((table.open, MarkerKind::Gemma(table, false)));
            // In prose the bare word has no meaning, so it counts only if the dialect was chosen;
            // beside other dialects, only at the start of a line and with the name of a tool.
            let is_main = table.quote.starts_with("<|");
            markers.extend((chosen || is_main).then_some((GEMMA, MarkerKind::Gemma(table, true))));
        }
        Grammar::Harmony => {
            markers.extend(HARMONY_OPENS.map(|text| (text, MarkerKind::Channel)));
            markers.extend(headless());
        }
    }
    if is_active {
        let ends = end_markers(dialect.grammar).into_iter();
        // The reader of tags handles closing tags.
        markers.extend(ends.filter(|(text, _)| !text.is_empty() && !text.starts_with("</")));
        markers.extend(dialect.tokens.iter().copied().map(section));
        markers.extend(
            dialect
                .thought
                .map(|(open, close)| (open, MarkerKind::Thought(close))),
        );
        // The closing marker may appear alone if the prompt opened the thought, except for one that
        // ends every block.
        markers.extend(
            dialect
                .thought
                .filter(|(_, close)| !dialect.tokens.contains(close))
                .map(|(_, close)| (close, MarkerKind::ThoughtEnd)),
        );
    }
    markers
}

/// Returns the markers that belong inside or behind a call of this grammar.
fn end_markers(grammar: &Grammar) -> Vec<(&'static str, MarkerKind)> {
    match *grammar {
        Grammar::Json(table) => {
            let heads = table.forms.iter().filter_map(|form| form.head);
            let heads = heads.map(|head| head.end).filter(|end| is_special(end));
            let closes = table.forms.iter().map(|form| form.close);
            let closes = closes.map(|close| (close.trim(), MarkerKind::Closer));
            closes
                .chain(heads.map(|end| (end.trim(), MarkerKind::HeaderEnd)))
                .collect()
        }
        Grammar::Python(table) => vec![(table.close, MarkerKind::Closer)],
        Grammar::Gemma(table) => vec![
            (table.close, MarkerKind::Closer),
            (table.quote, MarkerKind::Quote),
        ],
        Grammar::Tagged(_) | Grammar::Harmony => Vec::new(),
    }
}

/// Returns the longest of these markers at the start of `rest`.
fn longest_marker(texts: &[&'static str], rest: &str, last: bool) -> MarkerMatch {
    let mut found: Option<&'static str> = None;
    let differs = |text: &[u8], at: usize| match (rest.as_bytes().get(at), text.get(at)) {
        (Some(byte), Some(own)) => own != byte,
        _ => false,
    };
    for text in texts {
        // Most markers are ruled out by a byte or two, which is cheaper than to compare texts.
        if differs(text.as_bytes(), 1) || differs(text.as_bytes(), 2) {
            continue;
        }
        if rest.starts_with(text) {
            // The longest wins, because a marker may be the beginning of another one.
            found = found
                .filter(|known| known.len() >= text.len())
                .or(Some(text));
        } else if !last && rest.len() < text.len() && text.starts_with(rest) {
            // The text ends inside a possible marker. Held back, because the next chunk decides
            //.
            return MarkerMatch::Partial;
        }
    }
    found.map_or(MarkerMatch::None, MarkerMatch::Marker)
}

/// Returns true if a marker is the beginning of a message whose prompt ends inside its header.
pub(crate) fn is_headless(marker: &str) -> bool {
    HARMONY_BEGINS.contains(&marker)
}

/// Returns true if a marker consists of special tokens.
pub(crate) fn is_special(marker: &str) -> bool {
    marker.contains(['|', '｜']) || marker.starts_with('[')
}
