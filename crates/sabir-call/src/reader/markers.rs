//! Markers: what dialects without tags open their calls with, and what stands around everything.
//!
//! One marker may belong to several dialects; what follows it decides (`reader/follow.rs`).

use crate::dialect::Dialect;
use crate::dialect::grammar::{GemmaCalls, Grammar, JsonForm, PythonCalls};

use super::triggers::{FirstLetters, TriggerTable};

/// Opens a message of the harmony dialect.
const HARMONY_OPENS: [&str; 2] = ["<|start|>", "<|channel|>"];

/// Begins a text of the harmony dialect that is a call, where the prompt ends inside the header.
const HARMONY_BEGINS: [&str; 3] = [" to=", "to=", "commentary to="];

/// Opens a call of Gemma's without its marker.
pub(super) const GEMMA: &str = "call:";

/// Opens a list of calls of Python's, which mostly stands without it.
const PYTHON: PythonCalls = PythonCalls { open: "<|python_start|>", close: "" };

/// The markers of every dialect.
#[derive(Debug, Default)]
pub(crate) struct MarkerTable {
    all: Vec<MarkerEntry>,
    /// Their texts, each once: those that begin with `<`, and the others.
    in_angles: Vec<&'static str>,
    bare: Vec<&'static str>,
    /// What may stand behind the `<` of a marker; most of what begins so in a text does not.
    second: FirstLetters,
}

/// A marker of another machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkerEntry {
    pub(crate) text: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) kind: MarkerKind,
    listened: bool,
}

/// What stands behind a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    Json(JsonForm),
    Python(PythonCalls),
    /// `true`: without the markers around a call.
    Gemma(&'static GemmaCalls, bool),
    /// Calls as Python writes them, perhaps as methods: `f.call(k="v")`.
    Methods,
    /// The header of a message of the harmony dialect.
    Channel,
    /// The same at the start of a text, where the prompt holds the markers before it.
    Headless,
    /// Nothing: it stands around calls.
    Section,
    /// A thought, up to the other marker.
    Thought(&'static str),
}

/// Which marker stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerMatch {
    None,
    /// The text ends inside what may be one.
    Partial,
    /// This one, the longest.
    Marker(&'static str),
}

impl MarkerTable {
    /// Adds the markers of a dialect, and where they stop prose.
    pub(crate) fn add_dialect(
        &mut self,
        dialect: &Dialect,
        (listened, chosen): (bool, bool),
        triggers: &mut TriggerTable,
    ) {
        for (text, kind) in dialect_markers(dialect, listened, chosen) {
            text.bytes().take(1).for_each(|byte| match kind {
                MarkerKind::Headless => triggers.add_at_line_start(byte),
                _ => triggers.add_byte(byte),
            });
            self.second.add_first_letter(text.get(1..).unwrap_or("|"));
            let texts = if text.starts_with('<') { &mut self.in_angles } else { &mut self.bare };
            if !texts.contains(&text) {
                texts.push(text);
            }
            self.all.push(MarkerEntry { text, dialect: dialect.name, kind, listened });
        }
    }

    /// The longest marker at the start of `rest`.
    pub(crate) fn find_marker(&self, rest: &str, last: bool) -> MarkerMatch {
        let bytes = rest.as_bytes();
        let angled = bytes.first() == Some(&b'<');
        if angled && bytes.get(1).is_some_and(|second| !self.second.has_letter(*second)) {
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
                found = found.filter(|known| known.len() >= text.len()).or(Some(text));
            } else if !last && rest.len() < text.len() && text.starts_with(rest) {
                return MarkerMatch::Partial;
            }
        }
        found.map_or(MarkerMatch::None, MarkerMatch::Marker)
    }

    /// The longest marker of special tokens at the start of `rest`: only of these a model means nothing else.
    pub(crate) fn find_special_marker(&self, rest: &str, last: bool) -> MarkerMatch {
        match self.find_marker(rest, last) {
            // What stands in square brackets can be typed.
            MarkerMatch::Marker(text)
                if !is_special(text) || text.starts_with('[') || self.active_meanings(text).next().is_none() =>
            {
                MarkerMatch::None
            }
            spotted => spotted,
        }
    }

    /// All that this marker may mean, in the dialects that are listened for.
    pub(crate) fn active_meanings<'v>(&'v self, text: &'v str) -> impl Iterator<Item = &'v MarkerEntry> {
        self.all.iter().filter(move |marker| marker.listened && marker.text == text)
    }

    /// Length of the token around everything at the start of `rest`; 0: none. `None`: more text is needed.
    pub(crate) fn token_length(&self, rest: &str, last: bool) -> Option<usize> {
        match self.find_marker(rest, last) {
            MarkerMatch::Partial => None,
            MarkerMatch::Marker(text)
                if self.active_meanings(text).all(|marker| marker.kind == MarkerKind::Section) =>
            {
                Some(text.len())
            }
            MarkerMatch::Marker(_) | MarkerMatch::None => Some(0),
        }
    }

    /// The first dialect that has this marker, listened for or not.
    pub(crate) fn owner_dialect(&self, text: &str) -> Option<&'static str> {
        self.all.iter().find(|marker| marker.text == text).map(|marker| marker.dialect)
    }
}

/// The markers of a dialect, and what they mean.
fn dialect_markers(dialect: &Dialect, listened: bool, chosen: bool) -> Vec<(&'static str, MarkerKind)> {
    let section = |text: &'static str| (text, MarkerKind::Section);
    let mut markers: Vec<(&'static str, MarkerKind)> = Vec::new();
    match *dialect.grammar {
        Grammar::Tagged(tagged) => {
            markers.extend(tagged.sections.iter().flat_map(|(open, close)| [section(open), section(close)]));
        }
        Grammar::Json(table) => {
            markers.extend(table.section.into_iter().flat_map(|(open, close)| [section(open), section(close)]));
            // A tag that names the tool is read with the arguments behind it where the tagged machine listens too.
            let is_tag = |form: &&JsonForm| form.open.starts_with('<') && form.open.ends_with('=');
            let forms = table.forms.iter().filter(|form| !is_tag(form) || chosen);
            markers.extend(forms.map(|form| (form.open, MarkerKind::Json(*form))));
            markers.extend(table.forms.first().filter(|_| table.methods).map(|form| (form.open, MarkerKind::Methods)));
        }
        Grammar::Python(PythonCalls { open: "", .. }) => markers.push((PYTHON.open, MarkerKind::Python(PYTHON))),
        Grammar::Python(table) => {
            let form = JsonForm { open: table.open, head: None, close: table.close, stop: false };
            markers.extend([MarkerKind::Python(table), MarkerKind::Json(form)].map(|kind| (table.open, kind)));
        }
        Grammar::Gemma(ref table) => {
            markers.push((table.open, MarkerKind::Gemma(table, false)));
            // In prose the word alone says nothing, unless the dialect was chosen.
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
        markers.extend(dialect.thought.map(|(open, close)| (open, MarkerKind::Thought(close))));
        let stray = dialect.thought.filter(|_| matches!(dialect.grammar, Grammar::Tagged(_)));
        markers.extend(stray.map(|(_, close)| section(close)));
    }
    markers
}

/// Whether a marker is made of special tokens.
pub(crate) fn is_special(marker: &str) -> bool {
    marker.contains(['|', '｜']) || marker.starts_with('[')
}
