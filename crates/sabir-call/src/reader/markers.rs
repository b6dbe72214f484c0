//! Builds the table of markers: the text that opens calls in dialects without tags, and special
//! tokens with no meaning.
//!
//! Several dialects may share a marker; the text after it decides (`reader/marker_dispatch.rs`).

use crate::dialect::Dialect;
use crate::dialect::grammar::{GemmaCalls, Grammar, JsonForm, PythonCalls};

use super::triggers::{FirstLetters, TriggerTable};

/// The markers that open a message of the harmony dialect.
const HARMONY_OPENS: [&str; 2] = ["<|start|>", "<|channel|>"];

/// The beginnings of a harmony call whose prompt ends inside the message header.
const HARMONY_BEGINS: [&str; 3] = [" to=", "to=", "commentary to="];

/// The beginning of a Gemma call without its marker.
pub(super) const GEMMA: &str = "call:";

/// The optional marker of a Python list of calls; the list mostly appears without it.
const PYTHON: PythonCalls = PythonCalls {
    open: "<|python_start|>",
    close: "",
};

/// The markers of all dialects.
#[derive(Debug, Default)]
pub(crate) struct MarkerTable {
    all: Vec<MarkerEntry>,
    /// The marker texts that begin with `<`, each once.
    in_angles: Vec<&'static str>,
    /// The other marker texts, each once.
    bare: Vec<&'static str>,
    /// The bytes that can follow the `<` of a marker; they rule out most `<` in a text.
    second: FirstLetters,
}

/// One meaning of a marker in one dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkerEntry {
    pub(crate) text: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) kind: MarkerKind,
    listened: bool,
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
    /// A thought, up to this closing marker.
    Thought(&'static str),
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
    /// Adds the markers of a dialect, and the bytes at which prose must stop for them.
    pub(crate) fn add_dialect(
        &mut self,
        dialect: &Dialect,
        listened: bool,
        chosen: bool,
        triggers: &mut TriggerTable,
    ) {
        for (text, kind) in dialect_markers(dialect, listened, chosen) {
            text.bytes().take(1).for_each(|byte| match kind {
                // Headless headers are ordinary words, so they count at the start of a line only.
                MarkerKind::Headless => triggers.add_at_line_start(byte),
                _ => triggers.add_byte(byte),
            });
            self.second.add_first_letter(text.get(1..).unwrap_or("|"));
            let texts = if text.starts_with('<') {
                &mut self.in_angles
            } else {
                &mut self.bare
            };
            // Several dialects share a marker. Its text is searched once; `all` keeps every
            // meaning.
            if !texts.contains(&text) {
                texts.push(text);
            }
            self.all.push(MarkerEntry {
                text,
                dialect: dialect.name,
                kind,
                listened,
            });
        }
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
        let mut found: Option<&'static str> = None;
        let second = bytes.get(1);
        for text in if angled { &self.in_angles } else { &self.bare } {
            // Most markers are ruled out by one byte, which is cheaper than to compare texts.
            if second.is_some_and(|byte| text.as_bytes().get(1).is_some_and(|own| own != byte)) {
                continue;
            }
            if rest.starts_with(text) {
                // The longest wins, because a marker may be the beginning of another one.
                found = found
                    .filter(|known| known.len() >= text.len())
                    .or(Some(text));
            } else if !last && rest.len() < text.len() && text.starts_with(rest) {
                // The text ends inside a possible marker. Held back, because the next chunk decides
                // (law 1).
                return MarkerMatch::Partial;
            }
        }
        found.map_or(MarkerMatch::None, MarkerMatch::Marker)
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
        self.all
            .iter()
            .filter(move |marker| marker.listened && marker.text == text)
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
        self.all
            .iter()
            .find(|marker| marker.text == text)
            .map(|marker| marker.dialect)
    }
}

/// Returns the markers of a dialect with their meanings.
fn dialect_markers(
    dialect: &Dialect,
    listened: bool,
    chosen: bool,
) -> Vec<(&'static str, MarkerKind)> {
    let section = |text: &'static str| (text, MarkerKind::Section);
    let mut markers: Vec<(&'static str, MarkerKind)> = Vec::new();
    match *dialect.grammar {
        Grammar::Tagged(tagged) => {
            markers.extend(
                tagged
                    .sections
                    .iter()
                    .flat_map(|(open, close)| [section(open), section(close)]),
            );
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
            markers.extend(forms.map(|form| (form.open, MarkerKind::Json(*form))));
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
            };
            markers.extend(
                [MarkerKind::Python(table), MarkerKind::Json(form)].map(|kind| (table.open, kind)),
            );
        }
        Grammar::Gemma(ref table) => {
            markers.push((table.open, MarkerKind::Gemma(table, false)));
            // In prose the bare word means nothing, so it counts only if the dialect was chosen.
            markers.extend(chosen.then_some((GEMMA, MarkerKind::Gemma(table, true))));
        }
        Grammar::Harmony => {
            markers.extend(HARMONY_OPENS.map(|text| (text, MarkerKind::Channel)));
            if chosen {
                markers.extend(HARMONY_BEGINS.map(|text| (text, MarkerKind::Headless)));
            }
        }
    }
    if listened {
        markers.extend(dialect.tokens.iter().copied().map(section));
        markers.extend(
            dialect
                .thought
                .map(|(open, close)| (open, MarkerKind::Thought(close))),
        );
        // The closing marker may appear alone, if the prompt already opened the thought.
        let stray = dialect
            .thought
            .filter(|_| matches!(dialect.grammar, Grammar::Tagged(_)));
        markers.extend(stray.map(|(_, close)| section(close)));
    }
    markers
}

/// Returns true if a marker consists of special tokens.
pub(crate) fn is_special(marker: &str) -> bool {
    marker.contains(['|', '｜']) || marker.starts_with('[')
}
