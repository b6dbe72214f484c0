//! Which names and markers mean something to the reader: the tools on offer, their arguments, and the dialects' own.

use crate::dialect::grammar::{GemmaCalls, Grammar, JsonForm, NameIn, Notation, PythonCalls, Tagged, Tags};
use crate::dialect::{Dialect, Selection, dialects};
use crate::tool::{ToolSet, nearest};

use super::tag::{Interest, alike, split_name};

/// Tags whose content is a thought.
const THOUGHTS: [&str; 5] = ["thinking", "think", "seed:think", "reasoning", "thought"];
/// Those among them that may as well be a tool's name.
const WORDS: [&str; 2] = ["reasoning", "thought"];
/// Tags of HTML that show what stands in them, with why a call in them is only mentioned.
pub(crate) const SHOWN: [(&str, &str); 2] = [("code", "in a code element"), ("pre", "in a preformatted element")];
/// Opens a message of the harmony dialect.
const HARMONY_OPENS: [&str; 2] = ["<|start|>", "<|channel|>"];

/// Opens a list of calls of Python's, which mostly stands without it.
const PYTHON: PythonCalls = PythonCalls { open: "<|python_start|>", close: "" };

/// The names and markers.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) selection: Selection,
    tools: Vec<Tool>,
    /// Every dialect that spells calls with tags.
    tagged: Vec<Spelling>,
    markers: Vec<Marker>,
    /// The first letters of the names of tools and arguments.
    names: Triggers,
    /// What may stand behind the `<` of a marker; most of what begins so in a text does not.
    angled: Triggers,
    /// The dialects of JSON and of Python lists without any marker.
    pub(crate) bare_json: Option<&'static str>,
    pub(crate) bare_python: Option<&'static str>,
    /// A special token in square brackets is listened for.
    pub(crate) bracketed: bool,
    /// The bytes at which prose must be looked at.
    pub(crate) triggers: Triggers,
    /// What tags begin with where it is not `<`.
    pub(crate) marked: Option<u8>,
}

/// What the parser needs to know of a tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    required: Vec<String>,
}

/// A dialect of the tagged machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spelling {
    pub(crate) dialect: &'static str,
    pub(crate) tagged: &'static Tagged,
    /// It is listened for, not only recognised.
    listened: bool,
}

/// A marker of another machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marker {
    pub(crate) text: &'static str,
    pub(crate) dialect: &'static str,
    pub(crate) kind: MarkerKind,
    pub(crate) listened: bool,
}

/// What stands behind a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    Json(JsonForm),
    Python(PythonCalls),
    Gemma(GemmaCalls),
    /// The header of a message of the harmony dialect.
    Channel,
    /// Nothing: it stands around calls.
    Section,
    /// A thought, up to the other marker.
    Thought(&'static str),
}

/// Which marker stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spotted {
    None,
    /// The text ends inside what may be one.
    Partial,
    /// This one, the longest.
    Marker(&'static str),
}

/// Sets of ASCII bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Triggers {
    /// Anywhere.
    anywhere: u128,
    /// At the start of a word.
    word: u128,
    /// At the start of a line or of what follows a call or a thought.
    line: u128,
}

impl Triggers {
    /// Whether prose must be looked at here; `before` is the byte before.
    pub(crate) fn stop(self, byte: u8, before: u8, fresh: bool) -> bool {
        let mut set = self.anywhere;
        if fresh {
            set |= self.line;
        }
        if byte.is_ascii_alphanumeric() && !before.is_ascii_alphanumeric() {
            set |= self.word;
        }
        byte < 128 && set >> byte & 1 == 1
    }

    fn add(&mut self, byte: u8) {
        if byte < 128 {
            let set = if byte.is_ascii_alphanumeric() { &mut self.word } else { &mut self.anywhere };
            *set |= 1 << byte;
        }
    }

    fn add_at_line_start(&mut self, byte: u8) {
        self.line |= 1 << (byte & 127);
    }
}

impl Vocabulary {
    pub(crate) fn new(selection: Selection, tools: &ToolSet) -> Self {
        let tool = |spec: &crate::ToolSpec| Tool {
            name: spec.name.clone(),
            arguments: spec.arguments().map(|argument| argument.name.to_owned()).collect(),
            required: spec.arguments().filter(|it| it.required).map(|argument| argument.name.to_owned()).collect(),
        };
        let mut made = Self {
            selection,
            tools: tools.iter().map(tool).collect(),
            tagged: Vec::new(),
            markers: Vec::new(),
            names: Triggers::default(),
            angled: Triggers::default(),
            bare_json: None,
            bare_python: None,
            bracketed: false,
            triggers: Triggers::default(),
            marked: None,
        };
        made.triggers.add(b'<');
        let names = made.tools.iter().flat_map(|tool| tool.arguments.iter().chain([&tool.name]));
        names.for_each(|name| name.bytes().take(1).for_each(|byte| made.names.anywhere |= 1 << byte.min(127)));
        if !made.is_empty() {
            for dialect in dialects() {
                made.learn(dialect, selection.includes(dialect.name));
            }
        }
        made
    }

    fn learn(&mut self, dialect: &'static Dialect, listened: bool) {
        let name = dialect.name;
        if let Grammar::Tagged(tagged) = &dialect.grammar {
            self.tagged.push(Spelling { dialect: name, tagged, listened });
            if let Notation::Marked(marker) = tagged.notation {
                marker.bytes().take(1).for_each(|byte| self.triggers.add(byte));
                self.marked = self.marked.or(marker.bytes().next().filter(|_| listened));
            }
        }
        if listened {
            self.learn_bare(dialect);
        }
        for (text, kind) in markers(dialect, listened, self.selection.is_chosen()) {
            self.bracketed |= listened && text.starts_with('[');
            text.bytes().take(1).for_each(|byte| self.triggers.add(byte));
            text.bytes().skip(1).take(1).for_each(|byte| self.angled.anywhere |= 1 << byte.min(127));
            self.markers.push(Marker { text, dialect: name, kind, listened });
        }
    }

    /// Calls without any marker.
    fn learn_bare(&mut self, dialect: &'static Dialect) {
        match dialect.grammar {
            Grammar::Json(table) if table.bare => {
                self.bare_json = Some(dialect.name);
                b"{[`".iter().for_each(|byte| self.triggers.add_at_line_start(*byte));
                if self.selection.is_chosen() {
                    b"{[".iter().for_each(|byte| self.triggers.add(*byte));
                }
            }
            Grammar::Python(PythonCalls { open: "", .. }) => {
                self.bare_python = Some(dialect.name);
                self.triggers.add(b'[');
                self.triggers.add_at_line_start(b'`');
            }
            _ => {}
        }
    }

    /// The byte, besides `<`, that a tag in a thought may begin with, and whether special tokens stand in square brackets.
    pub(crate) fn in_thoughts(&self) -> (Option<u8>, bool) {
        (self.marked, self.bracketed)
    }

    /// Whether the name of a tool or an argument begins with this byte.
    pub(crate) fn begins_name(&self, byte: u8) -> bool {
        self.names.anywhere >> byte.min(127) & 1 == 1
    }

    /// No tool, no call.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The longest marker at the start of `rest`.
    pub(crate) fn spot(&self, rest: &str, last: bool) -> Spotted {
        let first = rest.as_bytes().first();
        if first == Some(&b'<')
            && rest.as_bytes().get(1).is_some_and(|second| self.angled.anywhere >> (*second).min(127) & 1 == 0)
        {
            return Spotted::None;
        }
        let mut found: Option<&'static str> = None;
        for Marker { text, .. } in &self.markers {
            if text.as_bytes().first() != first {
                continue;
            }
            if rest.starts_with(text) {
                found = found.filter(|known| known.len() >= text.len()).or(Some(text));
            } else if !last && rest.len() < text.len() && text.starts_with(rest) {
                return Spotted::Partial;
            }
        }
        found.map_or(Spotted::None, Spotted::Marker)
    }

    /// The longest marker of special tokens at the start of `rest`: only of these a model means nothing else.
    pub(crate) fn spot_special(&self, rest: &str, last: bool) -> Spotted {
        match self.spot(rest, last) {
            Spotted::Marker(text) if !is_special(text) || self.meanings(text).next().is_none() => Spotted::None,
            spotted => spotted,
        }
    }

    /// All that this marker may mean, in the dialects that are listened for.
    pub(crate) fn meanings<'v>(&'v self, text: &'v str) -> impl Iterator<Item = &'v Marker> {
        self.markers.iter().filter(move |marker| marker.listened && marker.text == text)
    }

    /// The first dialect that has this marker, listened for or not.
    pub(crate) fn owner(&self, text: &str) -> Option<&'static str> {
        self.markers.iter().find(|marker| marker.text == text).map(|marker| marker.dialect)
    }

    /// The dialect in which tools and arguments are tags of their own names.
    pub(crate) fn own(&self) -> Option<Spelling> {
        self.spellings().find(|spelling| spelling.tagged.tags == Tags::Own)
    }

    /// The dialects of the tagged machine that are listened for.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = Spelling> {
        self.tagged.iter().copied().filter(|spelling| spelling.listened)
    }

    /// Whether a tag of this name stands around calls in some dialect that is listened for.
    pub(crate) fn wraps(&self, name: &str) -> bool {
        self.spellings().any(|spelling| spelling.tagged.wraps(name))
    }

    /// The spelling whose wrapper has this name, written in this notation.
    pub(crate) fn wrapper(&self, name: &str, notation: Notation) -> Option<Spelling> {
        self.spellings().find(|spelling| spelling.tagged.notation == notation && spelling.tagged.wraps(name))
    }

    /// Whether a marker opens what stands around calls in tags.
    pub(crate) fn opens_section(&self, text: &str) -> bool {
        self.spellings().any(|it| it.tagged.sections.iter().any(|(open, _)| *open == text))
    }

    /// Whether a tag of this name only stands around words, in this notation.
    pub(crate) fn frames(&self, name: &str, notation: Notation) -> bool {
        self.spellings().any(|it| it.tagged.notation == notation && it.tagged.frames.contains(&name))
    }

    /// The spelling in which a tag of this name opens a call; one that has this wrapper is preferred, then one whose
    /// prefix it is.
    pub(crate) fn call(&self, name: &str, notation: Notation, wrapper: Option<&str>) -> Option<Spelling> {
        best(self.spellings(), name, notation, wrapper)
    }

    /// The spelling whose call's tag this name misses by a letter or by capitals.
    pub(crate) fn misspelt(&self, name: &str) -> Option<Spelling> {
        let (prefix, base) = split_name(name);
        self.spellings().find(|spelling| {
            let call = match spelling.tagged.tags {
                Tags::Fixed { call, .. } => call,
                Tags::Own | Tags::Keyed { .. } => return false,
            };
            spelling.tagged.notation == Notation::Angle && spelling.tagged.has_prefix(prefix) && slipped(base, call)
        })
    }

    /// The name of a tag whose content is a thought.
    pub(crate) fn thought(&self, name: &str) -> Option<&'static str> {
        let found = THOUGHTS.into_iter().find(|known| *known == name)?;
        if WORDS.contains(&found) && self.exact(found).is_some() { None } else { Some(found) }
    }

    /// A dialect that is not listened for, but has such a tag.
    pub(crate) fn unheard(&self, name: &str) -> Option<&'static str> {
        let others = self.tagged.iter().copied().filter(|spelling| !spelling.listened);
        best(others, name, Notation::Angle, None).map(|spelling| spelling.dialect)
    }

    /// The spelling in which a call is a tag of this name with the tool's name behind it.
    pub(crate) fn keyed(&self, name: &str) -> Option<Spelling> {
        self.spellings().find(|spelling| matches!(spelling.tagged.tags, Tags::Keyed { call, .. } if call == name))
    }

    /// The position of a tool: by its exact name, or else the only one that differs in case alone.
    pub(crate) fn resolve(&self, name: &str) -> Option<usize> {
        if let Some(exact) = self.exact(name) {
            return Some(exact);
        }
        let mut alike = self.tools.iter().enumerate().filter(|(_, tool)| tool.name.eq_ignore_ascii_case(name));
        let found = alike.next().map(|(at, _)| at);
        if alike.next().is_some() { None } else { found }
    }

    /// The position of the tool of exactly that name.
    pub(crate) fn exact(&self, name: &str) -> Option<usize> {
        self.tools.iter().position(|tool| tool.name == name)
    }

    pub(crate) fn tool(&self, at: usize) -> Option<&Tool> {
        self.tools.get(at)
    }

    /// Whether the tool has such an argument; a tool that is not known has them all.
    pub(crate) fn declares(&self, tool: Option<usize>, argument: &str) -> bool {
        match tool.and_then(|at| self.tools.get(at)) {
            Some(tool) => tool.arguments.iter().any(|name| name == argument),
            None => true,
        }
    }

    /// Whether an unknown tag reads like the name of a tool rather than like some markup.
    pub(crate) fn resembles(&self, name: &str) -> bool {
        name.contains('_') || self.near(name)
    }

    /// The same, more strictly and without any cost: for tags in the middle of a line, of which there are many.
    pub(crate) fn recalls(&self, name: &str) -> bool {
        name.contains('_') || self.tools.iter().any(|tool| slipped(name, &tool.name))
    }

    /// Whether a tool has nearly this name.
    pub(crate) fn near(&self, name: &str) -> bool {
        nearest(name, self.tools.iter().map(|tool| tool.name.as_str())).is_some()
    }

    /// Whether any tool has such an argument.
    pub(crate) fn any_declares(&self, argument: &str) -> bool {
        self.tools.iter().any(|tool| tool.arguments.iter().any(|name| name == argument))
    }

    /// How much a tag matters inside a thought: to notice that a call was mentioned, or made in special tokens.
    pub(crate) fn interest_in_thought(&self, name: &str) -> Interest {
        let named = || self.call(name, Notation::Angle, None).or_else(|| self.wrapper(name, Notation::Angle)).is_some();
        if self.exact(name).is_some() || named() { Interest::Any } else { Interest::None }
    }
}

impl Tool {
    /// Whether these are all arguments that the tool requires.
    pub(crate) fn satisfied<'n>(&self, given: impl Iterator<Item = &'n str> + Clone) -> bool {
        self.required.iter().all(|name| given.clone().any(|given| given == name))
    }
}

impl Spelling {
    /// The marker that closes a call whose tag names the tool and whose arguments are JSON, where there are such calls.
    pub(crate) fn json_close(&self) -> Option<&'static str> {
        match self.tagged.tags {
            Tags::Fixed { call: "function", call_name: NameIn::Equals, .. } => Some("</function>"),
            _ => None,
        }
    }
}

impl Tagged {
    /// Whether a tag of this name stands around calls.
    pub(crate) fn wraps(&self, name: &str) -> bool {
        let (prefix, base) = split_name(name);
        self.wrappers.iter().any(|wrapper| *wrapper == name || (*wrapper == base && self.has_prefix(prefix)))
    }

    /// Whether tags may begin so.
    fn has_prefix(&self, prefix: &str) -> bool {
        self.prefixes.iter().any(|known| alike(known, prefix) || (*known == ":" && prefix.ends_with(':')))
    }
}

/// Whether a name is another one with capitals, a letter too many, too few or wrong, or two letters swapped.
fn slipped(name: &str, right: &str) -> bool {
    if name == right {
        return false;
    }
    let (name, right) = (name.as_bytes(), right.as_bytes());
    let same = |(one, other): &(&u8, &u8)| one.eq_ignore_ascii_case(other);
    let head = name.iter().zip(right).take_while(same).count();
    let rest = |text: &[u8]| text.len() - head;
    let tail = name.iter().rev().zip(right.iter().rev()).take_while(same).count().min(rest(name)).min(rest(right));
    matches!((rest(name) - tail, rest(right) - tail), (0 | 1, 0 | 1) | (2, 2))
}

/// The markers of a dialect, and what they mean.
fn markers(dialect: &'static Dialect, listened: bool, chosen: bool) -> Vec<(&'static str, MarkerKind)> {
    let section = |text: &'static str| (text, MarkerKind::Section);
    let mut markers: Vec<(&'static str, MarkerKind)> = Vec::new();
    match dialect.grammar {
        Grammar::Tagged(tagged) => {
            markers.extend(tagged.sections.iter().flat_map(|(open, close)| [section(open), section(close)]));
        }
        Grammar::Json(table) => {
            markers.extend(table.section.into_iter().flat_map(|(open, close)| [section(open), section(close)]));
            // A tag that names the tool is read with the arguments behind it where the tagged machine listens too.
            let is_tag = |form: &&JsonForm| form.open.starts_with('<') && form.open.ends_with('=');
            let forms = table.forms.iter().filter(|form| !is_tag(form) || chosen);
            markers.extend(forms.map(|form| (form.open, MarkerKind::Json(*form))));
        }
        Grammar::Python(PythonCalls { open: "", .. }) => markers.push((PYTHON.open, MarkerKind::Python(PYTHON))),
        Grammar::Python(table) => {
            let form = JsonForm { open: table.open, head: None, close: table.close, stop: false };
            markers.extend([MarkerKind::Python(table), MarkerKind::Json(form)].map(|kind| (table.open, kind)));
        }
        Grammar::Gemma(table) => {
            markers.push((table.open, MarkerKind::Gemma(table)));
            // In prose the word alone says nothing, unless the dialect was chosen.
            let bare = GemmaCalls { open: "call:", close: "", ..table };
            markers.extend(chosen.then_some((bare.open, MarkerKind::Gemma(bare))));
        }
        Grammar::Harmony => markers.extend(HARMONY_OPENS.map(|text| (text, MarkerKind::Channel))),
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

/// How well the tag's name fits a spelling decides between several.
fn best(
    spellings: impl Iterator<Item = Spelling>,
    name: &str,
    notation: Notation,
    wrapper: Option<&str>,
) -> Option<Spelling> {
    let (prefix, base) = split_name(name);
    let fits = |spelling: &Spelling| {
        let call = matches!(spelling.tagged.tags, Tags::Fixed { call, .. } if call == base);
        call && spelling.tagged.notation == notation && spelling.tagged.has_prefix(prefix)
    };
    let rank = |spelling: &Spelling| {
        let wrapped = wrapper.is_some_and(|wrapper| spelling.tagged.wraps(wrapper));
        let exact = spelling.tagged.prefixes.iter().any(|known| alike(known, prefix));
        (!wrapped, !exact)
    };
    spellings.filter(fits).min_by_key(rank)
}
