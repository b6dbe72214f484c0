//! Defines the grammar data of a dialect's row.
//!
//! A few parsers read all dialects; the dialects differ in their markers. A row holds data only.
//! Anything that needs code belongs to a parser (`reader/`), where every other row can use it.
//!
//! | parser | reads | file |
//! | --- | --- | --- |
//! | tagged | a name in a tag, each argument in a tag | `reader/call.rs` |
//! | json | JSON between markers: complete calls, or arguments after a name | `reader/payload.rs` |
//! | python | `[f(a="x"), g()]` | `reader/python.rs` |
//! | gemma | `call:f{k:<\|"\|>v<\|"\|>}` | `reader/gemma.rs` |
//! | harmony | channels, one of which holds calls | `reader/marker_dispatch.rs` |

/// The notation of a dialect's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// The name in a tag, each argument in a tag.
    Tagged(TaggedCalls),
    /// JSON between markers, with the name inside or before it.
    Json(JsonCalls),
    /// Calls in Python syntax.
    Python(PythonCalls),
    /// Gemma's own notation.
    Gemma(GemmaCalls),
    /// The channels of gpt-oss.
    Harmony,
}

/// Calls in tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaggedCalls {
    /// The notation of a tag.
    pub(crate) notation: TagNotation,
    /// The tags that make up a call.
    pub(crate) tags: TagScheme,
    /// The names of tags that may enclose calls; the first is written. May be empty.
    pub(crate) wrappers: &'static [&'static str],
    /// True if each call has its own wrapper.
    pub(crate) each: bool,
    /// The markers around all calls, and around each, that have no meaning of their own.
    pub(crate) sections: &'static [(&'static str, &'static str)],
    /// The prefixes of the tags' names; the first is written. `""` means none.
    pub(crate) prefixes: &'static [&'static str],
    /// The names of tags around the prose of a message, which have no meaning of their own.
    pub(crate) frames: &'static [&'static str],
    /// True if a line feed at both ends of a value is a part of it, as in dialects whose values are never on lines of
    /// their own.
    pub(crate) exact_values: bool,
    /// True if a value may be a CDATA section, as in XML.
    pub(crate) sections_of_text: bool,
    /// True if messages have a header with a recipient, as in the harmony dialect: calls count only in a message to a tool.
    pub(crate) channels: bool,
    /// True if such a header is the opening tag of a call to its recipient, and the end of the message the closing tag.
    pub(crate) header_opens: bool,
}

/// The tokens that end a message in a dialect whose headers open calls.
pub(crate) const MESSAGE_ENDS: [&str; 2] = ["|call|", "|end|"];

/// The notation of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagNotation {
    /// `<name …>` and `</name>`.
    Angle,
    /// The same, preceded by this marker.
    Marked(&'static str),
    /// These markers in place of `<`, `</` and `>`.
    Delimited {
        /// Begins an opening tag.
        open: &'static str,
        /// Begins a closing tag.
        close: &'static str,
        /// Ends both.
        end: &'static str,
    },
}

/// The tags that make up a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagScheme {
    /// Tags named after the tool and its arguments.
    Own,
    /// Fixed tags that carry the names.
    Fixed {
        /// The tag of a call.
        call: &'static str,
        /// The tag of an argument; `""` means the argument's own name.
        argument: &'static str,
        /// The position of the tool's name in the call's tag.
        call_name: NamePosition,
        /// The position of the argument's name in its tag.
        argument_name: NamePosition,
        /// An attribute that marks string values, with its values for "yes" and "no".
        typed: Option<(&'static str, &'static str, &'static str)>,
    },
    /// The name as text after the call's tag, then pairs of tags for key and value.
    Keyed {
        /// The tag of a call.
        call: &'static str,
        /// The tag of a key.
        key: &'static str,
        /// The tag of a value.
        value: &'static str,
    },
}

/// The special tokens that close a tag without a slash: the name of each, and that of the tag which it closes. A key whose name
/// begins like theirs ends where the value's tag begins.
const CLOSING_TOKENS: [(&str, &str); 2] = [
    ("|tool_call:end|", "|tool_call:start|"),
    ("|tool_arg:end|", "|tool_arg:value|"),
];

/// Returns the name of the tag that a special token of this name closes.
pub(crate) fn name_closed_by(token: &str) -> Option<&'static str> {
    let found = CLOSING_TOKENS.iter().find(|(close, _)| *close == token);
    found.map(|(_, open)| *open)
}

/// Renders the closing tag for a tag of that name, in angle brackets.
pub(crate) fn render_angle_close(name: &str) -> String {
    match CLOSING_TOKENS.iter().find(|(_, open)| *open == name) {
        Some((close, _)) => format!("<{close}>"),
        None => format!("</{name}>"),
    }
}

/// Returns true if a key in a tag of this name has no closing tag: the tag of the value ends it.
pub(crate) fn is_unclosed_key(name: &str) -> bool {
    name.starts_with('|')
}

/// The position of a name in a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamePosition {
    /// In the attribute with that name.
    Attribute(&'static str),
    /// After an equals sign: `<function=f>`.
    Equals,
}

/// Calls as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonCalls {
    /// The markers around a group of calls, which have no meaning of their own: opening and
    /// closing.
    pub(crate) section: Option<(&'static str, &'static str)>,
    /// The ways to write a call; the first is written.
    pub(crate) forms: &'static [JsonForm],
    /// The keys that are written: for the name, the arguments, and the id if there is one. Without a key for the name, the name is the key
    /// of the arguments.
    pub(crate) keys: (&'static str, &'static str, Option<&'static str>),
    /// True if several calls are written as one array.
    pub(crate) list: bool,
    /// True if Python calls may follow the first form's marker: `f.call(k="v")`.
    pub(crate) methods: bool,
    /// True if JSON without a marker is a call too, at the end of a message or in a fence there.
    pub(crate) bare: bool,
}

/// One way to write calls as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonForm {
    /// The opening marker.
    pub(crate) open: &'static str,
    /// The name between the marker and the JSON; `None` if the name is in the JSON.
    pub(crate) head: Option<HeaderFormat>,
    /// The closing marker; `""` if the call ends with the JSON.
    pub(crate) close: &'static str,
    /// True if servers strip that marker because it ends the message.
    pub(crate) stop: bool,
    /// True if a call is an object whose only key is the tool's name, and whose value is the arguments.
    pub(crate) named_by_key: bool,
}

/// A name before the JSON of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderFormat {
    /// The marker that ends it.
    pub(crate) end: &'static str,
    /// An optional prefix of the name.
    pub(crate) prefix: &'static str,
    /// The separator between the name and an id after it. `":"` means an index; then the whole
    /// header is the id.
    pub(crate) id: Option<&'static str>,
    /// True if the JSON is in a code fence.
    pub(crate) fenced: bool,
    /// True if the id comes before its separator, and the name behind it.
    pub(crate) id_first: bool,
    /// True if the JSON is a whole call, whose name the header only repeats.
    pub(crate) echo: bool,
}

impl JsonForm {
    /// Returns true if the call begins with a line that names the tool, after a marker that may occur in prose. The prompt may end with
    /// that marker.
    pub(crate) fn is_headed_by_line(&self) -> bool {
        let is_token = self.open.contains(['<', '|', '｜']);
        !is_token && self.head.is_some_and(|head| head.end == "\n")
    }
}

/// Calls in Python syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PythonCalls {
    /// The marker before the list; `""` for the bare list.
    pub(crate) open: &'static str,
    /// The marker after the list.
    pub(crate) close: &'static str,
    /// True if calls are written as a list in square brackets, false if each is on a line of its own. Both are read.
    pub(crate) list: bool,
}

/// Gemma's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GemmaCalls {
    /// The marker before a call.
    pub(crate) open: &'static str,
    /// The marker after a call.
    pub(crate) close: &'static str,
    /// The marker on both sides of a string.
    pub(crate) quote: &'static str,
}
