//! Grammars: what a dialect's row says of its markers, for the machine that reads it.
//!
//! Some thirty spellings are a handful of machines with different markers. A row holds data only; whatever needs code
//! belongs to a machine (`reader/`), where every other row can use it.
//!
//! | machine | reads | file |
//! | --- | --- | --- |
//! | tagged | a name in a tag, each argument in a tag | `reader/call.rs` |
//! | payload | JSON between markers: whole calls, or the arguments behind a name | `reader/payload.rs` |
//! | python | `[f(a="x"), g()]` | `reader/python.rs` |
//! | gemma | `call:f{k:<\|"\|>v<\|"\|>}` | `reader/gemma.rs` |
//! | harmony | channels, of which one holds calls | `reader/harmony.rs` |

/// How a dialect spells calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// Name in a tag, each argument in a tag.
    Tagged(TaggedCalls),
    /// JSON between markers, with the name inside or before it.
    Json(JsonCalls),
    /// Calls as Python writes them.
    Python(PythonCalls),
    /// Gemma's own notation.
    Gemma(GemmaCalls),
    /// The channels of gpt-oss.
    Harmony,
}

/// Calls in tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaggedCalls {
    /// How a tag is written.
    pub(crate) notation: TagNotation,
    /// Which tags make a call.
    pub(crate) tags: TagScheme,
    /// Names of the tags that may stand around calls; the first is the one to write. Empty: none.
    pub(crate) wrappers: &'static [&'static str],
    /// Each call has a wrapper of its own.
    pub(crate) each: bool,
    /// Markers around all calls, and around each, that mean nothing by themselves.
    pub(crate) sections: &'static [(&'static str, &'static str)],
    /// What stands before the tags' names; the first is the one to write. `""` where there is none.
    pub(crate) prefixes: &'static [&'static str],
    /// Names of the tags around the words of a message, which mean nothing by themselves.
    pub(crate) frames: &'static [&'static str],
}

/// How a tag is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagNotation {
    /// `<name …>` and `</name>`.
    Angle,
    /// The same, behind this marker.
    Marked(&'static str),
    /// These markers in the places of `<`, `</` and `>`.
    Delimited {
        /// Begins an opening tag.
        open: &'static str,
        /// Begins a closing tag.
        close: &'static str,
        /// Ends both.
        end: &'static str,
    },
}

/// Which tags make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagScheme {
    /// The tool's name and the arguments' names.
    Own,
    /// Fixed tags that carry the names.
    Fixed {
        /// The tag of a call.
        call: &'static str,
        /// The tag of an argument; `""`: the argument's own name.
        argument: &'static str,
        /// How the call's tag carries the tool's name.
        call_name: NamePosition,
        /// How the argument's tag carries the argument's name.
        argument_name: NamePosition,
        /// An attribute that says whether the value is a string, with the values for "yes" and "no".
        typed: Option<(&'static str, &'static str, &'static str)>,
    },
    /// The name as text behind the call's tag, then pairs of tags for key and value.
    Keyed {
        /// The tag of a call.
        call: &'static str,
        /// The tag of a key.
        key: &'static str,
        /// The tag of a value.
        value: &'static str,
    },
}

/// Where in a tag a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamePosition {
    /// In the attribute of that name.
    Attribute(&'static str),
    /// Behind an equals sign: `<function=f>`.
    Equals,
}

/// Calls as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonCalls {
    /// Markers around a group of calls, which mean nothing by themselves. The first opens, the second closes.
    pub(crate) section: Option<(&'static str, &'static str)>,
    /// The ways to write a call; the first is the one to write.
    pub(crate) forms: &'static [JsonForm],
    /// The keys to write: for the name, the arguments, and the id where there must be one.
    pub(crate) keys: (&'static str, &'static str, Option<&'static str>),
    /// Several calls are written as one array.
    pub(crate) list: bool,
    /// Behind the first form's marker may stand calls as Python writes them: `f.call(k="v")`.
    pub(crate) methods: bool,
    /// JSON without any marker counts too, at the end of a message or in a fence there.
    pub(crate) bare: bool,
}

/// One way to write calls as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonForm {
    /// The marker before it.
    pub(crate) open: &'static str,
    /// What stands between the marker and the JSON: the name. `None`: the name is in the JSON.
    pub(crate) head: Option<HeaderFormat>,
    /// The marker behind it; `""`: it ends with the JSON.
    pub(crate) close: &'static str,
    /// Whether servers strip that marker, because it ends the message.
    pub(crate) stop: bool,
}

/// A name before the JSON of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderFormat {
    /// What ends it.
    pub(crate) end: &'static str,
    /// What may stand before the name.
    pub(crate) prefix: &'static str,
    /// What separates the name from an id behind it. `":"`: an index, and the whole head is the id.
    pub(crate) id: Option<&'static str>,
    /// The JSON stands in a fence.
    pub(crate) fenced: bool,
}

/// Calls as Python writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PythonCalls {
    /// The marker before the list; `""`: the bare list.
    pub(crate) open: &'static str,
    /// The marker behind the list.
    pub(crate) close: &'static str,
}

/// Gemma's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GemmaCalls {
    /// The marker before a call.
    pub(crate) open: &'static str,
    /// The marker behind a call.
    pub(crate) close: &'static str,
    /// The marker on both sides of a string.
    pub(crate) quote: &'static str,
}
