//! Collects the names and markers that the reader recognizes: tools, arguments, and the dialects'
//! own.

use std::sync::{Arc, LazyLock};

use crate::compatibility::strip_namespace;
use crate::dialect::grammar::{
    Grammar, NamePosition, PythonCalls, TagNotation, TagScheme, TaggedCalls,
};
use crate::dialect::{Dialect, DialectSelection, DialectSet, INVOKE};
use crate::known_tool::KnownTool;
use crate::small_name_set::SmallNameSet;
use crate::tool::{ToolSet, nearest_candidate};

use super::markers::MarkerTable;
use super::tag::{Tag, TagRelevance, names_match, split_name};
use super::tag_form::TagForm;
use super::triggers::{FirstLetters, TriggerTable};

/// The tags whose content is a thought.
const THOUGHTS: [&str; 6] = [
    "thinking",
    "think",
    "seed:think",
    "mm:think",
    "reasoning",
    "thought",
];
/// The thought tags that may also be a tool's name.
const WORDS: [&str; 2] = ["reasoning", "thought"];
/// HTML tags that display their content, with the reason for a mention inside them.
pub(crate) const SHOWN: [(&str, &str); 4] = [
    ("code", "in a code element"),
    ("pre", "in a preformatted element"),
    ("example", "in an example"),
    ("examples", "in an example"),
];

/// The markers of all built-in dialects, and the bytes at which prose must stop for them. They take
/// 35 KB, so the thousands of readers of a gateway share them.
static ALL_BUILT_IN: LazyLock<(Arc<MarkerTable>, TriggerTable)> = LazyLock::new(|| {
    let mut triggers = TriggerTable::default();
    let markers = MarkerTable::new(DialectSet::built_in().all(), &mut triggers);
    (Arc::new(markers), triggers)
});

/// The names and markers that a reader recognizes.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// One dialect was chosen.
    pub(crate) chosen: bool,
    /// Elements that belong to no tool may be calls.
    pub(crate) elements: bool,
    tools: Arc<[KnownTool]>,
    /// All dialects with tags, the active ones first.
    tagged: Vec<TagDialect>,
    /// The number of active dialects with tags. Many look-ups concern only these.
    active: usize,
    /// The active dialects whose tags are not plain angle-bracket tags.
    others: Vec<TagDialect>,
    /// The markers, shared by all readers that listen for every built-in dialect.
    pub(crate) markers: Arc<MarkerTable>,
    /// The first letters of tool and argument names.
    names: FirstLetters,
    /// The first letters of the tag names in the dialect tables, without prefixes, in lower case.
    tags: FirstLetters,
    /// The active dialect for JSON without a marker.
    pub(crate) bare_json: Option<&'static str>,
    /// True if a dialect without markers was chosen, so that its calls may begin anywhere.
    pub(crate) bare_anywhere: bool,
    /// The active dialect for Python lists without a marker.
    pub(crate) bare_python: Option<&'static str>,
    /// The bytes at which prose may contain markup.
    pub(crate) triggers: TriggerTable,
    /// The first byte of tags that do not begin with `<`.
    pub(crate) marked: Option<u8>,
}

/// A dialect with tags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagDialect {
    pub(crate) dialect: &'static str,
    pub(crate) tagged: &'static TaggedCalls,
}

/// A call in keys and values whose opening tag is missing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnopenedCall<'t> {
    None,
    /// The text ends inside a possible one.
    Partial,
    /// The dialect, the tag that is missing, and the tool's name.
    Call(TagDialect, &'static str, &'t str),
    /// A name that the JSON behind it repeats, with its length.
    Echo(usize),
}

impl Vocabulary {
    /// Compiles the dialects and tools. Inactive dialects are compiled too, so that a call in one
    /// of them is reported with its name instead of passing as prose.
    pub(crate) fn new(selection: DialectSelection<'_>, tools: &ToolSet) -> Self {
        let mut made = Self {
            chosen: selection.is_chosen(),
            elements: selection.expects_text_calls(),
            tools: tools.known_tools(),
            tagged: Vec::new(),
            active: 0,
            others: Vec::new(),
            markers: Arc::default(),
            names: FirstLetters::default(),
            tags: FirstLetters::default(),
            bare_json: None,
            bare_anywhere: false,
            bare_python: None,
            triggers: TriggerTable::default(),
            marked: None,
        };
        // Thoughts are recognized even without tools.
        made.triggers.add_byte(b'<');
        let names = made.tools.iter().flat_map(|tool| {
            let understood = tool.understood_names();
            let declared = tool.arguments.iter().map(String::as_str);
            declared.chain([tool.name.as_ref()]).chain(understood)
        });
        names.for_each(|name| made.names.add_first_letter(name));
        // Without tools nothing can be a call, so no dialect is needed.
        if !made.is_empty() {
            for (dialect, is_active) in selection.recognized_dialects() {
                made.add_dialect(dialect, is_active);
            }
            if selection.is_all_built_in() {
                made.markers = Arc::clone(&ALL_BUILT_IN.0);
                made.triggers.add_all(&ALL_BUILT_IN.1);
            } else {
                made.markers = Arc::new(MarkerTable::new(selection, &mut made.triggers));
            }
            made.add_name_triggers();
            if made.chosen && selection.includes(INVOKE) {
                made.add_compatible_json(selection);
            }
        }
        made
    }

    /// Adds a dialect's tags and markers; `is_active` is false for one that is only recognized.
    fn add_dialect(&mut self, dialect: &Dialect, is_active: bool) {
        let name = dialect.name;
        if let Grammar::Tagged(tagged) = dialect.grammar {
            let spelling = TagDialect {
                dialect: name,
                tagged,
            };
            if is_active {
                self.tagged.insert(self.active, spelling);
                self.active += 1;
            } else {
                self.tagged.push(spelling);
            }
            if is_active && tagged.notation != TagNotation::Angle {
                self.others.push(spelling);
            }
            tagged
                .tag_names()
                .chain(tagged.value_tag_name())
                .filter_map(|name| name.bytes().next())
                .for_each(|byte| self.tags.add_letter(byte.to_ascii_lowercase()));
            if let TagNotation::Marked(marker) = tagged.notation {
                marker
                    .bytes()
                    .take(1)
                    .for_each(|byte| self.triggers.add_byte(byte));
                self.marked = self.marked.or(marker.bytes().next().filter(|_| is_active));
            }
        }
        if is_active {
            self.add_bare_dialect(dialect);
        }
    }

    /// Adds JSON without a marker beside a chosen dialect. The rules for it are those of a session
    /// that listens for all dialects.
    fn add_compatible_json(&mut self, selection: DialectSelection<'_>) {
        // The same wrapper with JSON in it is a dialect of its own.
        for (dialect, is_active) in selection.recognized_dialects() {
            if let Grammar::Python(table) = *dialect.grammar
                && !is_active
                && self.is_wrapper_name(table.open.trim_matches(['<', '>']))
            {
                Arc::make_mut(&mut self.markers).add_dialect(
                    dialect,
                    true,
                    false,
                    &mut self.triggers,
                );
            }
        }
        // The last one, as in a session that listens for all.
        let bare = selection
            .recognized_dialects()
            .filter(|(dialect, _)| matches!(*dialect.grammar, Grammar::Json(table) if table.bare))
            .last()
            .map(|(dialect, _)| dialect.name);
        if bare.is_some() && self.bare_json.is_none() {
            self.bare_json = bare;
            self.add_json_triggers();
        }
    }

    fn add_json_triggers(&mut self) {
        b"{[`"
            .iter()
            .for_each(|byte| self.triggers.add_at_line_start(*byte));
    }

    /// Makes the names of tools triggers where a call in keys and values may begin with one.
    fn add_name_triggers(&mut self) {
        if self.keyed_dialects().next().is_some() || self.markers.echo_ends().next().is_some() {
            for tool in self.tools.iter().filter(|tool| !tool.is_foreign) {
                let first = tool.name.bytes().next();
                first
                    .into_iter()
                    .for_each(|byte| self.triggers.add_at_line_start(byte));
            }
        }
    }

    /// Returns the active dialects in keys and values, with the tags of a call and of a key.
    fn keyed_dialects(&self) -> impl Iterator<Item = (TagDialect, &'static str, &'static str)> {
        self.active_tag_dialects()
            .filter_map(|spelling| match spelling.tagged.tags {
                TagScheme::Keyed { call, key, .. } => Some((spelling, call, key)),
                TagScheme::Own | TagScheme::Fixed { .. } => None,
            })
    }

    /// Finds a declared tool's name at the start of `rest` that the tag of a key follows directly.
    pub(crate) fn find_unopened_call<'t>(&self, rest: &'t str, last: bool) -> UnopenedCall<'t> {
        // Most candidates are markup, and no tool's name begins like that.
        let first = rest.as_bytes().first();
        if first.is_none_or(|first| !self.begins_name(*first)) {
            return UnopenedCall::None;
        }
        let mut is_partial = false;
        for (spelling, call, key) in self.keyed_dialects() {
            for tool in self.declared_tools() {
                let Some(behind) = rest.strip_prefix(tool.name.as_ref()) else {
                    is_partial |= tool.name.starts_with(rest);
                    continue;
                };
                let inside = behind.strip_prefix('<').unwrap_or_default();
                let is_key = inside
                    .strip_prefix(key)
                    .is_some_and(|end| end.starts_with('>'));
                if is_key {
                    let name = rest.get(..tool.name.len()).unwrap_or_default();
                    return UnopenedCall::Call(spelling, call, name);
                }
                is_partial |=
                    behind.is_empty() || behind.starts_with('<') && key.starts_with(inside);
            }
        }
        for end in self.markers.echo_ends() {
            for tool in self.declared_tools() {
                let Some(behind) = rest.strip_prefix(tool.name.as_ref()) else {
                    is_partial |= tool.name.starts_with(rest);
                    continue;
                };
                if behind.starts_with(end) {
                    return UnopenedCall::Echo(tool.name.len());
                }
                is_partial |= end.starts_with(behind);
            }
        }
        match is_partial && !last {
            true => UnopenedCall::Partial,
            false => UnopenedCall::None,
        }
    }

    /// Calls without any marker.
    fn add_bare_dialect(&mut self, dialect: &Dialect) {
        match *dialect.grammar {
            Grammar::Json(table) if table.bare => {
                self.bare_json = Some(dialect.name);
                self.bare_anywhere = self.chosen;
                self.add_json_triggers();
                // A chosen dialect is what the prompt taught, so its calls count in the middle of a
                // line as well.
                if self.chosen {
                    b"{[".iter().for_each(|byte| self.triggers.add_byte(*byte));
                }
            }
            Grammar::Python(PythonCalls { open: "", .. }) => {
                self.bare_python = Some(dialect.name);
                self.bare_anywhere = self.chosen;
                self.triggers.add_byte(b'[');
                self.triggers.add_at_line_start(b'`');
            }
            _ => {}
        }
    }

    /// Returns the active dialects whose tags are not plain angle-bracket tags.
    pub(crate) fn non_angle_dialects(&self) -> &[TagDialect] {
        &self.others
    }

    /// Returns true if a tag of the tables may have this name. False for most tags, without a search.
    pub(crate) fn may_name(&self, name: &str) -> bool {
        split_name(name)
            .1
            .as_bytes()
            .first()
            .is_none_or(|byte| self.tags.has_letter(byte.to_ascii_lowercase()))
    }

    /// Returns true if the name of a tool or an argument begins with this byte.
    pub(crate) fn begins_name(&self, byte: u8) -> bool {
        self.names.has_letter(byte)
    }

    /// Returns true if there are no tools, and therefore no calls.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the closing tag of a wrapper as its dialect writes it.
    pub(crate) fn format_wrapper_close(&self, name: &str) -> String {
        let spelling = self
            .active_tag_dialects()
            .find(|spelling| spelling.tagged.is_wrapper_name(name));
        spelling.map_or_else(
            || format!("</{name}>"),
            |spelling| TagForm::new(spelling, "").format_close_tag(name),
        )
    }

    /// Returns the dialect in which tools and arguments have tags of their own names.
    pub(crate) fn own_tag_dialect(&self) -> Option<TagDialect> {
        self.active_tag_dialects()
            .find(|spelling| spelling.tagged.tags == TagScheme::Own)
    }

    /// Returns the active dialects with tags.
    pub(crate) fn active_tag_dialects(&self) -> impl Iterator<Item = TagDialect> {
        self.tagged.iter().copied().take(self.active)
    }

    /// Returns the other dialects with tags, which are only recognized for faults.
    fn inactive_tag_dialects(&self) -> impl Iterator<Item = TagDialect> {
        self.tagged.iter().copied().skip(self.active)
    }

    /// Returns true if some dialect, active or not, has a tag of this name around calls or for them.
    pub(crate) fn is_dialect_tag(&self, name: &str) -> bool {
        let is_tag = |spelling: &TagDialect| spelling.tagged.tag_names().any(|tag| tag == name);
        self.tagged.iter().any(is_tag)
    }

    /// Returns true if only inactive dialects have a tag of this name around calls or for them.
    pub(crate) fn is_inactive_tag(&self, name: &str) -> bool {
        let (prefix, base) = split_name(name);
        let has_tag = |spelling: TagDialect| {
            let tagged = spelling.tagged;
            let is_call = match tagged.tags {
                TagScheme::Own => false,
                TagScheme::Fixed { call, .. } => call == base && tagged.has_prefix(prefix),
                TagScheme::Keyed { call, .. } => call == name,
            };
            is_call || tagged.is_wrapper(name, prefix, base)
        };
        self.inactive_tag_dialects().any(has_tag) && !self.active_tag_dialects().any(has_tag)
    }

    /// Returns true if a tag of this name is a wrapper in some active dialect.
    pub(crate) fn is_wrapper_name(&self, name: &str) -> bool {
        self.active_tag_dialects()
            .any(|spelling| spelling.tagged.is_wrapper_name(name))
    }

    /// Returns the active dialect that has this wrapper in this notation.
    pub(crate) fn find_wrapper(&self, name: &str, notation: TagNotation) -> Option<TagDialect> {
        self.active_tag_dialects().find(|spelling| {
            spelling.tagged.notation == notation && spelling.tagged.is_wrapper_name(name)
        })
    }

    /// Returns true if a marker opens a section around calls in tags.
    pub(crate) fn opens_section(&self, text: &str) -> bool {
        self.active_tag_dialects()
            .any(|it| it.tagged.sections.iter().any(|(open, _)| *open == text))
    }

    /// Returns true if a tag of this name only encloses prose, in this notation.
    pub(crate) fn is_message_frame(&self, name: &str, notation: TagNotation) -> bool {
        self.active_tag_dialects()
            .any(|it| it.tagged.notation == notation && it.tagged.frames.contains(&name))
    }

    /// Returns true if the text holds the name of a declared tool in double quotes.
    pub(crate) fn quotes_tool_name(&self, text: &str) -> bool {
        let parts = || text.split('"');
        self.declared_tools()
            .any(|tool| parts().any(|part| part == tool.name))
    }

    /// Returns true if a closing tag of this name ends a call, or the block around calls, in an
    /// active dialect.
    pub(crate) fn is_call_close(&self, name: &str) -> bool {
        let is_tag = || {
            self.find_keyed_call(name).is_some()
                || self.is_wrapper_name(name)
                || self.find_call_tag(name, TagNotation::Angle, None).is_some()
        };
        self.may_name(name) && is_tag() || self.markers.has_close_tag(name)
    }

    /// Returns true if a tag of this name encloses values in an active dialect whatever the argument.
    pub(crate) fn is_fixed_value_tag(&self, name: &str) -> bool {
        let (prefix, base) = split_name(name);
        self.active_tag_dialects().any(|spelling| {
            spelling.tagged.value_tag_name() == Some(base) && spelling.tagged.has_prefix(prefix)
        })
    }

    /// Returns true if a tag of this name encloses an argument's value in an active dialect.
    pub(crate) fn is_value_tag(&self, name: &str, notation: TagNotation) -> bool {
        let (prefix, base) = split_name(name);
        self.active_tag_dialects().any(|spelling| {
            let tagged = spelling.tagged;
            if tagged.notation != notation {
                return false;
            }
            match tagged.tags {
                TagScheme::Own | TagScheme::Fixed { argument: "", .. } => {
                    self.is_any_argument(name)
                }
                TagScheme::Fixed { argument, .. } => base == argument && tagged.has_prefix(prefix),
                TagScheme::Keyed { value, .. } => name == value,
            }
        })
    }

    /// Returns the active dialect in which a tag of this name opens a call. A dialect with this
    /// wrapper is preferred, then one with exactly this prefix.
    pub(crate) fn find_call_tag(
        &self,
        name: &str,
        notation: TagNotation,
        wrapper: Option<&str>,
    ) -> Option<TagDialect> {
        best_match(self.active_tag_dialects(), name, notation, wrapper)
    }

    /// Returns the active dialect in which a tag of this name opens a call, and `argument` its first argument.
    pub(crate) fn find_call_with_argument(
        &self,
        name: &str,
        argument: &Tag<'_>,
    ) -> Option<TagDialect> {
        let (prefix, base) = split_name(name);
        self.active_tag_dialects().find(|spelling| {
            let tagged = spelling.tagged;
            matches!(tagged.tags, TagScheme::Fixed { call, argument, .. } if call == base && !argument.is_empty())
                && tagged.notation == TagNotation::Angle
                && tagged.has_prefix(prefix)
                && TagForm::new(*spelling, name).argument_name(argument).is_some()
        })
    }

    /// Returns the active dialect whose call tag differs from this name by a letter or by capitals.
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

    /// Returns the name of a tag whose content is a thought.
    pub(crate) fn thought_tag(&self, name: &str) -> Option<&'static str> {
        let found = THOUGHTS.into_iter().find(|known| *known == name)?;
        // A tool with that name has priority.
        // The other thought tags are never a tool's, because models emit them unasked.
        if WORDS.contains(&found) && self.find_exact_tool(found).is_some() {
            None
        } else {
            Some(found)
        }
    }

    /// Returns an inactive dialect that has such a call tag.
    pub(crate) fn inactive_dialect(&self, name: &str) -> Option<&'static str> {
        let others = self.inactive_tag_dialects();
        best_match(others, name, TagNotation::Angle, None).map(|spelling| spelling.dialect)
    }

    /// Returns the inactive dialect that has a tag for the tool with exactly this name.
    pub(crate) fn inactive_tool_dialect(&self, name: &str) -> Option<&'static str> {
        let own = || {
            self.inactive_tag_dialects()
                .find(|spelling| spelling.tagged.tags == TagScheme::Own)
        };
        own()
            .filter(|_| self.find_exact_tool(name).is_some())
            .map(|spelling| spelling.dialect)
    }

    /// Returns the inactive dialect in which a tag of this name, followed by the tool's name, is a
    /// call.
    pub(crate) fn inactive_keyed_dialect(&self, tag: &str, name: &str) -> Option<&'static str> {
        let keyed = |spelling: &TagDialect| matches!(spelling.tagged.tags, TagScheme::Keyed { call, .. } if call == tag);
        self.inactive_tag_dialects()
            .find(keyed)
            .filter(|_| self.find_exact_tool(name).is_some())
            .map(|spelling| spelling.dialect)
    }

    /// Returns the active dialect in which a call is a tag of this name, followed by the tool's
    /// name.
    pub(crate) fn find_keyed_call(&self, name: &str) -> Option<TagDialect> {
        self.active_tag_dialects()
            .find(|spelling| matches!(spelling.tagged.tags, TagScheme::Keyed { call, .. } if call == name))
    }

    /// Returns true if an active dialect writes calls as a tag of this name around a tool's name, in blocks of
    /// that name.
    pub(crate) fn has_keyed_call_in_block(&self, name: &str, block: &str) -> bool {
        self.active_tag_dialects().any(|spelling| {
            matches!(spelling.tagged.tags, TagScheme::Keyed { call, .. } if call == name)
                && spelling.tagged.is_wrapper_name(block)
        })
    }

    /// Returns the position of a tool: by its exact name, or else the only tool whose name differs in case alone, or else by its name
    /// without a namespace (`functions.bash`). Declared tools take precedence over those of other agents.
    pub(crate) fn resolve_tool(&self, name: &str) -> Option<usize> {
        self.resolve_bare_tool(name)
            .or_else(|| self.resolve_bare_tool(strip_namespace(name)?))
    }

    fn resolve_bare_tool(&self, name: &str) -> Option<usize> {
        if let Some(exact) = self.find_exact_tool(name) {
            return Some(exact);
        }
        let alike = |is_foreign: bool| {
            let mut alike = self.tools.iter().enumerate().filter(|(_, tool)| {
                tool.is_foreign == is_foreign && tool.name.eq_ignore_ascii_case(name)
            });
            let found = alike.next().map(|(at, _)| at);
            // With several names that differ only in case, none is certainly meant.
            if alike.next().is_some() { None } else { found }
        };
        let foreign = || {
            let is_exact = |tool: &KnownTool| tool.is_foreign && tool.name == name;
            self.tools.iter().position(is_exact).or_else(|| alike(true))
        };
        alike(false).or_else(foreign)
    }

    /// Returns the position of the declared tool with exactly that name.
    pub(crate) fn find_exact_tool(&self, name: &str) -> Option<usize> {
        self.declared_tools().position(|tool| tool.name == name)
    }

    /// Returns the declared tools, which come before those of other agents.
    fn declared_tools(&self) -> impl Iterator<Item = &KnownTool> {
        self.tools.iter().take_while(|tool| !tool.is_foreign)
    }

    /// Returns the tool at a position that `resolve_tool` returned.
    pub(crate) fn tool_at(&self, at: usize) -> Option<&KnownTool> {
        self.tools.get(at)
    }

    /// Returns true if the tool has such an argument. An unknown tool is assumed to have every
    /// argument.
    pub(crate) fn declares_argument(&self, tool: Option<usize>, argument: &str) -> bool {
        match tool.and_then(|at| self.tools.get(at)) {
            Some(tool) => tool.arguments.iter().any(|name| name == argument),
            None => true,
        }
    }

    /// Returns the arguments of a known tool that were not given.
    pub(crate) fn absent_arguments(
        &self,
        tool: Option<usize>,
        given: &SmallNameSet,
    ) -> impl Iterator<Item = &str> {
        let tool = tool.and_then(|at| self.tools.get(at));
        tool.into_iter()
            .flat_map(|tool| tool.arguments.iter())
            .map(String::as_str)
            .filter(|name| !given.contains(name))
    }

    /// Returns true if the tag is an argument that the tool does not declare but that is understood,
    /// and neither it nor the argument that it means was given.
    pub(crate) fn understands_argument(
        &self,
        tool: Option<usize>,
        argument: &str,
        is_given: impl Fn(&str) -> bool,
    ) -> bool {
        let Some(tool) = tool.and_then(|at| self.tools.get(at)) else {
            return false;
        };
        tool.understands_argument(argument, is_given)
    }

    /// Returns true if only the name of another agent's tool is known: like an unknown tool, it may have any argument.
    pub(crate) fn has_any_argument(&self, at: usize) -> bool {
        self.tools
            .get(at)
            .is_some_and(|tool| tool.is_foreign && tool.arguments.is_empty())
    }

    /// Returns true if some declared tool understands such an argument as an alias of its own.
    pub(crate) fn is_any_alias(&self, argument: &str) -> bool {
        self.declared_tools().any(|tool| tool.has_alias(argument))
    }

    /// Returns true if the tool is another agent's.
    pub(crate) fn is_foreign_tool(&self, at: usize) -> bool {
        self.tools.get(at).is_some_and(|tool| tool.is_foreign)
    }

    /// Returns true if an unknown tag resembles a tool's name more than other markup.
    pub(crate) fn resembles_tool(&self, name: &str) -> bool {
        name.contains('_') || self.is_near_tool(name)
    }

    /// Returns true under stricter and cheaper conditions than [`Self::resembles_tool`], for the
    /// many tags in the middle of a line.
    pub(crate) fn resembles_tool_strictly(&self, name: &str) -> bool {
        name.contains('_')
            || self
                .declared_tools()
                .any(|tool| is_misspelling(name, &tool.name))
    }

    /// Returns true if a name is meant as a tool's: it is one, or nearly one, or looks like one in
    /// a chosen dialect.
    pub(crate) fn is_tool_name(&self, name: &str) -> bool {
        self.resolve_tool(name).is_some()
            || self.is_near_tool(strip_namespace(name).unwrap_or(name))
            || (self.chosen && name.contains('_'))
    }

    /// Returns true if the name of some tool begins like this.
    pub(crate) fn begins_tool_name(&self, text: &str) -> bool {
        self.declared_tools()
            .any(|tool| tool.name.starts_with(text))
    }

    /// Returns true if some tool has nearly this name.
    pub(crate) fn is_near_tool(&self, name: &str) -> bool {
        nearest_candidate(name, self.declared_tools().map(|tool| tool.name.as_ref())).is_some()
    }

    /// Returns true if any tool has such an argument.
    pub(crate) fn is_any_argument(&self, argument: &str) -> bool {
        self.declared_tools()
            .any(|tool| tool.arguments.iter().any(|name| name == argument))
    }

    /// Returns true if these are arguments of one tool, and include all that it requires.
    pub(crate) fn is_any_signature(&self, names: &[String]) -> bool {
        let given = || names.iter().map(String::as_str);
        self.declared_tools().any(|tool| {
            given().all(|name| tool.arguments.iter().any(|known| known == name))
                && tool.is_satisfied_by(given())
        })
    }

    /// Returns the interest in a tag inside a thought, where calls are mentioned or made in special
    /// tokens.
    pub(crate) fn relevance_in_thought(&self, name: &str) -> TagRelevance {
        let named = || {
            self.find_call_tag(name, TagNotation::Angle, None)
                .or_else(|| self.find_wrapper(name, TagNotation::Angle))
                .is_some()
        };
        if self.find_exact_tool(name).is_some() || named() {
            TagRelevance::Any
        } else {
            TagRelevance::None
        }
    }
}

impl TagDialect {
    /// Returns the marker that closes a call whose tag names the tool and whose arguments are JSON,
    /// if the dialect has such calls.
    pub(crate) fn json_close(&self, tag: &str) -> Option<&'static str> {
        if self.tagged.notation != TagNotation::Angle {
            return None;
        }
        match self.tagged.tags {
            TagScheme::Fixed {
                call: "invoke",
                argument: "parameter",
                ..
            } => match tag {
                "invoke" => Some("</invoke>"),
                "antml:invoke" => Some("</invoke>"),
                "｜DSML｜invoke" => Some("</｜DSML｜invoke>"),
                _ => None,
            },
            TagScheme::Fixed {
                call: "function",
                call_name: NamePosition::Equals,
                ..
            } => Some("</function>"),
            _ => None,
        }
    }
}

impl TaggedCalls {
    /// Returns the names of the tags around calls and of calls.
    fn tag_names(&self) -> impl Iterator<Item = &'static str> {
        let call = match self.tags {
            TagScheme::Own => None,
            TagScheme::Fixed { call, .. } | TagScheme::Keyed { call, .. } => Some(call),
        };
        let wrappers = self
            .wrappers
            .iter()
            .map(|name| split_name(name).1)
            .chain(self.wrappers.iter().copied());
        wrappers.chain(self.frames.iter().copied()).chain(call)
    }

    /// Returns the name of the tag around an argument's value, if it is fixed.
    fn value_tag_name(&self) -> Option<&'static str> {
        match self.tags {
            TagScheme::Own | TagScheme::Fixed { argument: "", .. } => None,
            TagScheme::Fixed { argument, .. } => Some(argument),
            TagScheme::Keyed { value, .. } => Some(value),
        }
    }

    /// Returns true if a tag of this name is a wrapper.
    pub(crate) fn is_wrapper_name(&self, name: &str) -> bool {
        // Hardly any name ends like a wrapper, and this is asked of every dialect, so the name is
        // split only then.
        let mut wrappers = self.wrappers.iter();
        wrappers.any(|wrapper| name.ends_with(wrapper)) && {
            let (prefix, base) = split_name(name);
            self.is_wrapper(name, prefix, base)
        }
    }

    /// Returns true if a tag is a wrapper. `prefix` and `base` are the parts of its name.
    fn is_wrapper(&self, name: &str, prefix: &str, base: &str) -> bool {
        let mut wrappers = self.wrappers.iter();
        wrappers.any(|wrapper| *wrapper == name || *wrapper == base && self.has_prefix(prefix))
    }

    /// Returns true if tags may have this prefix.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.prefixes
            .iter()
            .any(|known| names_match(known, prefix) || (*known == ":" && prefix.ends_with(':')))
    }
}

/// Returns true if the names differ only by case, one letter added, missing or wrong, or two
/// letters swapped.
fn is_misspelling(name: &str, right: &str) -> bool {
    if name == right {
        return false;
    }
    let name = name.as_bytes();
    let right = right.as_bytes();
    let same = |(one, other): &(&u8, &u8)| one.eq_ignore_ascii_case(other);
    let head = name.iter().zip(right).take_while(same).count();
    // The differing letters remain between the common start and the common end.
    let rest = |text: &[u8]| text.len() - head;
    let tail = name
        .iter()
        .rev()
        .zip(right.iter().rev())
        .take_while(same)
        .count()
        .min(rest(name))
        .min(rest(right));
    matches!(
        (rest(name) - tail, rest(right) - tail),
        (0 | 1, 0 | 1) | (2, 2)
    )
}

/// Returns the dialect that fits a call tag's name best.
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
        let exact = spelling
            .tagged
            .prefixes
            .iter()
            .any(|known| names_match(known, prefix));
        // `false` sorts first: a matching wrapper counts more than an exact prefix.
        (!wrapped, !exact)
    };
    spellings.filter(fits).min_by_key(rank)
}
