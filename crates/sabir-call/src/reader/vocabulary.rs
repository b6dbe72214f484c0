//! Which names and markers mean something to the reader: the tools on offer, their arguments, and the dialects' own.

use crate::dialect::grammar::{Grammar, NamePosition, PythonCalls, TagNotation, TagScheme, TaggedCalls};
use crate::dialect::{Dialect, DialectSelection};
use crate::tool::{ToolSet, nearest_candidate};

use super::markers::MarkerTable;
use super::tag::{TagInterest, names_match, split_name};
use super::triggers::{FirstLetters, TriggerTable};

/// Tags whose content is a thought.
const THOUGHTS: [&str; 5] = ["thinking", "think", "seed:think", "reasoning", "thought"];
/// Those among them that may as well be a tool's name.
const WORDS: [&str; 2] = ["reasoning", "thought"];
/// Tags of HTML that show what stands in them, with why a call in them is only mentioned.
pub(crate) const SHOWN: [(&str, &str); 2] = [("code", "in a code element"), ("pre", "in a preformatted element")];
/// The names and markers.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// One dialect was chosen.
    pub(crate) chosen: bool,
    tools: Vec<KnownTool>,
    /// Every dialect that spells calls with tags.
    tagged: Vec<TagDialect>,
    /// The dialects whose tags do not simply stand in angle brackets.
    others: Vec<TagDialect>,
    pub(crate) markers: MarkerTable,
    /// The first letters of the names of tools and arguments.
    names: FirstLetters,
    /// The first letters of the tags of the tables, without prefixes.
    tags: FirstLetters,
    /// The dialects of JSON and of Python lists without any marker.
    pub(crate) bare_json: Option<&'static str>,
    pub(crate) bare_python: Option<&'static str>,
    /// The bytes at which prose must be looked at.
    pub(crate) triggers: TriggerTable,
    /// What tags begin with where it is not `<`.
    pub(crate) marked: Option<u8>,
}

/// What the parser needs to know of a tool.
#[derive(Debug)]
pub(crate) struct KnownTool {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    required: Vec<String>,
}

/// A dialect of the tagged machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagDialect {
    pub(crate) dialect: &'static str,
    pub(crate) tagged: &'static TaggedCalls,
    /// It is listened for, not only recognised.
    listened: bool,
}

impl Vocabulary {
    pub(crate) fn new(selection: DialectSelection<'_>, tools: &ToolSet) -> Self {
        let tool = |spec: &crate::ToolSpec| KnownTool {
            name: spec.name.clone(),
            arguments: spec.declared_arguments().map(|argument| argument.name.to_owned()).collect(),
            required: spec
                .declared_arguments()
                .filter(|it| it.required)
                .map(|argument| argument.name.to_owned())
                .collect(),
        };
        let mut made = Self {
            chosen: selection.is_chosen(),
            tools: tools.all_tools().map(tool).collect(),
            tagged: Vec::new(),
            others: Vec::new(),
            markers: MarkerTable::default(),
            names: FirstLetters::default(),
            tags: FirstLetters::default(),
            bare_json: None,
            bare_python: None,
            triggers: TriggerTable::default(),
            marked: None,
        };
        made.triggers.add_byte(b'<');
        let names = made.tools.iter().flat_map(|tool| tool.arguments.iter().chain([&tool.name]));
        names.for_each(|name| made.names.add_first_letter(name));
        if !made.is_empty() {
            for (dialect, listened) in selection.recognised_dialects() {
                made.add_dialect(dialect, listened);
            }
        }
        made
    }

    fn add_dialect(&mut self, dialect: &Dialect, listened: bool) {
        let name = dialect.name;
        if let Grammar::Tagged(tagged) = dialect.grammar {
            let spelling = TagDialect { dialect: name, tagged, listened };
            self.tagged.push(spelling);
            if listened && tagged.notation != TagNotation::Angle {
                self.others.push(spelling);
            }
            tagged.tag_names().for_each(|name| self.tags.add_first_letter(name));
            if let TagNotation::Marked(marker) = tagged.notation {
                marker.bytes().take(1).for_each(|byte| self.triggers.add_byte(byte));
                self.marked = self.marked.or(marker.bytes().next().filter(|_| listened));
            }
        }
        if listened {
            self.add_bare_dialect(dialect);
        }
        self.markers.add_dialect(dialect, (listened, self.chosen), &mut self.triggers);
    }

    /// Calls without any marker.
    fn add_bare_dialect(&mut self, dialect: &Dialect) {
        match *dialect.grammar {
            Grammar::Json(table) if table.bare => {
                self.bare_json = Some(dialect.name);
                b"{[`".iter().for_each(|byte| self.triggers.add_at_line_start(*byte));
                if self.chosen {
                    b"{[".iter().for_each(|byte| self.triggers.add_byte(*byte));
                }
            }
            Grammar::Python(PythonCalls { open: "", .. }) => {
                self.bare_python = Some(dialect.name);
                self.triggers.add_byte(b'[');
                self.triggers.add_at_line_start(b'`');
            }
            _ => {}
        }
    }

    /// The dialects whose tags do not simply stand in angle brackets.
    pub(crate) fn non_angle_dialects(&self) -> &[TagDialect] {
        &self.others
    }

    /// Whether a tag of the tables may have this name: most tags of a text are not worth a search.
    pub(crate) fn may_name(&self, name: &str) -> bool {
        split_name(name).1.as_bytes().first().is_none_or(|byte| self.tags.has_letter(byte.to_ascii_lowercase()))
    }

    /// Whether the name of a tool or an argument begins with this byte.
    pub(crate) fn begins_name(&self, byte: u8) -> bool {
        self.names.has_letter(byte)
    }

    /// No tool, no call.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The dialect in which tools and arguments are tags of their own names.
    pub(crate) fn own_tag_dialect(&self) -> Option<TagDialect> {
        self.active_tag_dialects().find(|spelling| spelling.tagged.tags == TagScheme::Own)
    }

    /// The dialects of the tagged machine that are listened for.
    pub(crate) fn active_tag_dialects(&self) -> impl Iterator<Item = TagDialect> {
        self.tagged.iter().copied().filter(|spelling| spelling.listened)
    }

    /// Whether a tag of this name stands around calls in some dialect that is listened for.
    pub(crate) fn is_wrapper_name(&self, name: &str) -> bool {
        self.active_tag_dialects().any(|spelling| spelling.tagged.is_wrapper_name(name))
    }

    /// The spelling whose wrapper has this name, written in this notation.
    pub(crate) fn find_wrapper(&self, name: &str, notation: TagNotation) -> Option<TagDialect> {
        self.active_tag_dialects()
            .find(|spelling| spelling.tagged.notation == notation && spelling.tagged.is_wrapper_name(name))
    }

    /// Whether a marker opens what stands around calls in tags.
    pub(crate) fn opens_section(&self, text: &str) -> bool {
        self.active_tag_dialects().any(|it| it.tagged.sections.iter().any(|(open, _)| *open == text))
    }

    /// Whether a tag of this name only stands around words, in this notation.
    pub(crate) fn is_message_frame(&self, name: &str, notation: TagNotation) -> bool {
        self.active_tag_dialects().any(|it| it.tagged.notation == notation && it.tagged.frames.contains(&name))
    }

    /// The spelling in which a tag of this name opens a call; one that has this wrapper is preferred, then one whose
    /// prefix it is.
    pub(crate) fn find_call_tag(&self, name: &str, notation: TagNotation, wrapper: Option<&str>) -> Option<TagDialect> {
        best_match(self.active_tag_dialects(), name, notation, wrapper)
    }

    /// The spelling whose call's tag this name misses by a letter or by capitals.
    pub(crate) fn find_misspelt_call(&self, name: &str) -> Option<TagDialect> {
        let (prefix, base) = split_name(name);
        self.active_tag_dialects().find(|spelling| {
            let call = match spelling.tagged.tags {
                TagScheme::Fixed { call, .. } => call,
                TagScheme::Own | TagScheme::Keyed { .. } => return false,
            };
            spelling.tagged.notation == TagNotation::Angle
                && spelling.tagged.has_prefix(prefix)
                && is_misspelling(base, call)
        })
    }

    /// The name of a tag whose content is a thought.
    pub(crate) fn thought_tag(&self, name: &str) -> Option<&'static str> {
        let found = THOUGHTS.into_iter().find(|known| *known == name)?;
        if WORDS.contains(&found) && self.find_exact_tool(found).is_some() { None } else { Some(found) }
    }

    /// A dialect that is not listened for, but has such a tag.
    pub(crate) fn inactive_dialect(&self, name: &str) -> Option<&'static str> {
        let others = self.tagged.iter().copied().filter(|spelling| !spelling.listened);
        best_match(others, name, TagNotation::Angle, None).map(|spelling| spelling.dialect)
    }

    /// The dialect that is not listened for and has a tag of its own name for the tool of exactly this name.
    pub(crate) fn inactive_tool_dialect(&self, name: &str) -> Option<&'static str> {
        let own = || self.tagged.iter().find(|spelling| !spelling.listened && spelling.tagged.tags == TagScheme::Own);
        own().filter(|_| self.find_exact_tool(name).is_some()).map(|spelling| spelling.dialect)
    }

    /// The dialect that is not listened for and has such a call: a tag of this name, and behind it the tool's.
    pub(crate) fn inactive_keyed_dialect(&self, tag: &str, name: &str) -> Option<&'static str> {
        let keyed = |spelling: &&TagDialect| {
            !spelling.listened && matches!(spelling.tagged.tags, TagScheme::Keyed { call, .. } if call == tag)
        };
        self.tagged.iter().find(keyed).filter(|_| self.find_exact_tool(name).is_some()).map(|spelling| spelling.dialect)
    }

    /// The spelling in which a call is a tag of this name with the tool's name behind it.
    pub(crate) fn find_keyed_call(&self, name: &str) -> Option<TagDialect> {
        self.active_tag_dialects()
            .find(|spelling| matches!(spelling.tagged.tags, TagScheme::Keyed { call, .. } if call == name))
    }

    /// The position of a tool: by its exact name, or else the only one that differs in case alone.
    pub(crate) fn resolve_tool(&self, name: &str) -> Option<usize> {
        if let Some(exact) = self.find_exact_tool(name) {
            return Some(exact);
        }
        let mut alike = self.tools.iter().enumerate().filter(|(_, tool)| tool.name.eq_ignore_ascii_case(name));
        let found = alike.next().map(|(at, _)| at);
        if alike.next().is_some() { None } else { found }
    }

    /// The position of the tool of exactly that name.
    pub(crate) fn find_exact_tool(&self, name: &str) -> Option<usize> {
        self.tools.iter().position(|tool| tool.name == name)
    }

    pub(crate) fn tool_at(&self, at: usize) -> Option<&KnownTool> {
        self.tools.get(at)
    }

    /// Whether the tool has such an argument; a tool that is not known has them all.
    pub(crate) fn declares_argument(&self, tool: Option<usize>, argument: &str) -> bool {
        match tool.and_then(|at| self.tools.get(at)) {
            Some(tool) => tool.arguments.iter().any(|name| name == argument),
            None => true,
        }
    }

    /// Whether an unknown tag reads like the name of a tool rather than like some markup.
    pub(crate) fn resembles_tool(&self, name: &str) -> bool {
        name.contains('_') || self.is_near_tool(name)
    }

    /// The same, more strictly and without any cost: for tags in the middle of a line, of which there are many.
    pub(crate) fn resembles_tool_strictly(&self, name: &str) -> bool {
        name.contains('_') || self.tools.iter().any(|tool| is_misspelling(name, &tool.name))
    }

    /// Whether a name is meant as a tool's: it is one, or nearly one, or reads like one where the dialect was chosen.
    pub(crate) fn is_tool_name(&self, name: &str) -> bool {
        let name = name.strip_prefix("functions.").unwrap_or(name);
        self.resolve_tool(name).is_some() || self.is_near_tool(name) || (self.chosen && name.contains('_'))
    }

    /// Whether a tool has nearly this name.
    pub(crate) fn is_near_tool(&self, name: &str) -> bool {
        nearest_candidate(name, self.tools.iter().map(|tool| tool.name.as_str())).is_some()
    }

    /// Whether any tool has such an argument.
    pub(crate) fn is_any_argument(&self, argument: &str) -> bool {
        self.tools.iter().any(|tool| tool.arguments.iter().any(|name| name == argument))
    }

    /// How much a tag matters inside a thought: to notice that a call was mentioned, or made in special tokens.
    pub(crate) fn interest_in_thought(&self, name: &str) -> TagInterest {
        let named = || {
            self.find_call_tag(name, TagNotation::Angle, None)
                .or_else(|| self.find_wrapper(name, TagNotation::Angle))
                .is_some()
        };
        if self.find_exact_tool(name).is_some() || named() { TagInterest::Any } else { TagInterest::None }
    }
}

impl KnownTool {
    /// Whether these are all arguments that the tool requires.
    pub(crate) fn is_satisfied_by<'n>(&self, given: impl Iterator<Item = &'n str> + Clone) -> bool {
        self.required.iter().all(|name| given.clone().any(|given| given == name))
    }
}

impl TagDialect {
    /// The marker that closes a call whose tag names the tool and whose arguments are JSON, where there are such calls.
    pub(crate) fn json_close(&self) -> Option<&'static str> {
        match self.tagged.tags {
            TagScheme::Fixed { call: "function", call_name: NamePosition::Equals, .. } => Some("</function>"),
            _ => None,
        }
    }
}

impl TaggedCalls {
    /// The names of its tags around and of calls.
    fn tag_names(&self) -> impl Iterator<Item = &'static str> {
        let call = match self.tags {
            TagScheme::Own => None,
            TagScheme::Fixed { call, .. } | TagScheme::Keyed { call, .. } => Some(call),
        };
        let wrappers = self.wrappers.iter().map(|name| split_name(name).1).chain(self.wrappers.iter().copied());
        wrappers.chain(self.frames.iter().copied()).chain(call)
    }

    /// Whether a tag of this name stands around calls.
    pub(crate) fn is_wrapper_name(&self, name: &str) -> bool {
        let (prefix, base) = split_name(name);
        self.wrappers.iter().any(|wrapper| *wrapper == name || (*wrapper == base && self.has_prefix(prefix)))
    }

    /// Whether tags may begin so.
    fn has_prefix(&self, prefix: &str) -> bool {
        self.prefixes.iter().any(|known| names_match(known, prefix) || (*known == ":" && prefix.ends_with(':')))
    }
}

/// Whether a name is another one with capitals, a letter too many, too few or wrong, or two letters swapped.
fn is_misspelling(name: &str, right: &str) -> bool {
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

/// How well the tag's name fits a spelling decides between several.
fn best_match(
    spellings: impl Iterator<Item = TagDialect>,
    name: &str,
    notation: TagNotation,
    wrapper: Option<&str>,
) -> Option<TagDialect> {
    let (prefix, base) = split_name(name);
    let fits = |spelling: &TagDialect| {
        let call = matches!(spelling.tagged.tags, TagScheme::Fixed { call, .. } if call == base);
        call && spelling.tagged.notation == notation && spelling.tagged.has_prefix(prefix)
    };
    let rank = |spelling: &TagDialect| {
        let wrapped = wrapper.is_some_and(|wrapper| spelling.tagged.is_wrapper_name(wrapper));
        let exact = spelling.tagged.prefixes.iter().any(|known| names_match(known, prefix));
        (!wrapped, !exact)
    };
    spellings.filter(fits).min_by_key(rank)
}
