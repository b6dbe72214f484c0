//! Repairs: slips that can be set right without guessing, one table row each.
//!
//! A repair needs a name, so that it can be told and switched off, and exactly one possible reading. A tool's name that is
//! merely near (`read_fil`) has two: a slip of the pen, or a tool that does not exist. It is rejected with a hint, unless it
//! has the very letters of a tool whose arguments the call gives exactly (`near_name`). A value that was never
//! terminated is never repaired at all, and a string that the schema allows is never touched (law 5).
//!
//! | rule | reads | as |
//! | --- | --- | --- |
//! | `wrong_case_name` | `Read_File` | the tool `read_file`, if only it has these letters |
//! | `near_name` | `readFile`, `read-file` | the tool `read_file`, if nothing else is near and the arguments are exactly its own |
//! | `wrong_case_argument` | `Path` | the argument `path`, if only it has these letters and it is not given |
//! | `argument_alias` | `cmd`, `file_path`, … | the required argument that models call so, if it is missing |
//! | `near_argument` | `startLine`, `start-line` | the argument `start_line`, if nothing else is near and it is not given |
//! | `null_argument` | `"end_line": null` | nothing, if the argument may be left out and may not be null |
//! | `fenced_json` | JSON in a ```` ```json ```` fence | the JSON inside: all arguments, or a value that is no string |
//! | `double_encoding` | `"{\"a\": 1}"` | the object or array in the string |
//! | `stringified_value` | `"10"` | the number, boolean or null in the string |
//! | `trimmed_scalar` | `<n> 10 </n>` | the number, boolean or null without the white space |
//! | `trailing_comma` | `[1,]`, in a value or around the call | `[1]` |
//! | `single_quotes` | `{'a': 'b'}`, in a value or around the arguments | `{"a": "b"}` |
//! | `extra_bracket` | one `}` too many behind a call that is whole | nothing |
//! | `python_literal` | `True`, `False`, `None` | `true`, `false`, `null` |
//! | `control_character` | a raw line feed in a JSON string, or in a Python one of one line | the line feed |

use std::borrow::Cow;

use sabir_call::{ArgForm, Span, ToolSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coerce::scalar;
use crate::near::near;
use crate::relaxed::{self, Broken, Relaxed, Slip};
use crate::schema::{Shape, Types};

/// What a rule changed, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The rule's name; a row of [`RULES`].
    pub rule: Cow<'static, str>,
    /// Where it stands, in the text that the call's faults count in.
    pub span: Span,
    /// What the model wrote, shortened where it is long.
    pub before: String,
    /// What it was read as, shortened where it is long.
    pub after: String,
}

/// One named rule.
#[derive(Debug)]
pub struct Rule {
    /// The name, part of the public contract.
    pub name: &'static str,
    /// One sentence: what is read as what.
    pub doc: &'static str,
    stage: Stage,
}

/// Where in the gates a rule applies, and what it does there.
#[derive(Debug)]
enum Stage {
    Tool(fn(&Called<'_>) -> Option<String>),
    Argument(fn(&Slot<'_>) -> Option<String>),
    Fence,
    /// An argument that is null and may not be.
    Null,
    Value(fn(&Text<'_>) -> Option<Value>),
    Json(Slip),
    /// The parser reads it, with a warning.
    Parser,
}

/// A call of a tool that is not declared.
pub(crate) struct Called<'a> {
    pub(crate) name: &'a str,
    pub(crate) tools: &'a ToolSet,
    /// The names of the arguments that it gives.
    pub(crate) given: &'a [&'a str],
}

/// An argument whose name is not declared.
pub(crate) struct Slot<'a> {
    pub(crate) name: &'a str,
    /// The names that the tool declares.
    pub(crate) declared: &'a [&'a str],
    /// Those that it requires.
    pub(crate) required: &'a [&'a str],
    /// All names that the call gives, this one too.
    pub(crate) given: &'a [&'a str],
    /// Whether the tool takes no other arguments.
    pub(crate) closed: bool,
}

/// A value that does not have a type that the schema allows.
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) form: ArgForm,
    pub(crate) types: Types,
}

/// Every rule.
pub static RULES: [Rule; 15] = [
    Rule {
        name: "wrong_case_name",
        doc: "A tool's name in the wrong case (`Read_File` for `read_file`), where only one tool has these letters.",
        stage: Stage::Tool(wrong_case_name),
    },
    Rule {
        name: "near_name",
        doc: "A tool's name of the same letters with other things between the words (`readFile`, `read-file` for `read_file`), where no other tool has them and the call gives only arguments of that tool, and all that it requires.",
        stage: Stage::Tool(near_name),
    },
    Rule {
        name: "wrong_case_argument",
        doc: "An argument's name in the wrong case (`Path` for `path`), where only one argument has these letters and it is not given.",
        stage: Stage::Argument(wrong_case_argument),
    },
    Rule {
        name: "argument_alias",
        doc: "A usual other name (`cmd`, `bash`, `shell`, `script` for `command`; `operation` for `action`; `file`, `filename`, `file_path`, `filepath` for `path`; `text`, `contents` for `content`) of a required argument that is missing.",
        stage: Stage::Argument(argument_alias),
    },
    Rule {
        name: "near_argument",
        doc: "An argument's name of the same letters with other things between the words (`startLine` for `start_line`), where no other argument has them and the one that is meant is not given.",
        stage: Stage::Argument(near_argument),
    },
    Rule {
        name: "null_argument",
        doc: "`null` for an argument that may be left out and may not be null: it is read as left out.",
        stage: Stage::Null,
    },
    Rule {
        name: "fenced_json",
        doc: "Arguments, or a value that is no string, in a code fence: what stands in the fence is read.",
        stage: Stage::Fence,
    },
    Rule {
        name: "double_encoding",
        doc: "Arguments, an object or an array written as a JSON string that holds their JSON text.",
        stage: Stage::Value(double_encoding),
    },
    Rule {
        name: "stringified_value",
        doc: "A number, a boolean or null written as a JSON string (`\"10\"` for `10`).",
        stage: Stage::Value(stringified_value),
    },
    Rule {
        name: "trimmed_scalar",
        doc: "White space around a number, a boolean or null between tags.",
        stage: Stage::Value(trimmed_scalar),
    },
    Rule {
        name: "trailing_comma",
        doc: "A comma before `}` or `]` in JSON, be it in a value or around the call.",
        stage: Stage::Json(Slip::TrailingComma),
    },
    Rule {
        name: "single_quotes",
        doc: "JSON strings in single quotes, be they values or the keys around them.",
        stage: Stage::Json(Slip::SingleQuotes),
    },
    Rule {
        name: "extra_bracket",
        doc: "One closing brace too many behind a call in JSON, right before what closes or separates the calls.",
        stage: Stage::Parser,
    },
    Rule { name: "python_literal", doc: "`True`, `False` or `None` in JSON.", stage: Stage::Json(Slip::PythonLiteral) },
    Rule {
        name: "control_character",
        doc: "A raw line feed, tab or other control character inside a JSON string, or a raw line feed in a Python string that may hold none.",
        stage: Stage::Json(Slip::ControlCharacter),
    },
];

/// The rules that are switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repairs(u32);

impl Default for Repairs {
    fn default() -> Self {
        Self::all()
    }
}

impl Repairs {
    /// Every rule.
    pub fn all() -> Self {
        Self(u32::MAX)
    }

    /// No rule: what is not exactly right is rejected.
    pub fn none() -> Self {
        Self(0)
    }

    /// Without the rule of that name; `None` where no rule has it.
    #[must_use]
    pub fn without(self, name: &str) -> Option<Self> {
        bit(name).map(|bit| Self(self.0 & !bit))
    }

    /// With the rule of that name; `None` where no rule has it.
    #[must_use]
    pub fn with(self, name: &str) -> Option<Self> {
        bit(name).map(|bit| Self(self.0 | bit))
    }

    /// Whether the rule of that name is on.
    pub fn has(self, name: &str) -> bool {
        bit(name).is_some_and(|bit| self.0 & bit != 0)
    }

    fn rules(self) -> impl Iterator<Item = &'static Rule> {
        RULES.iter().enumerate().filter(move |(index, _)| self.0 & (1 << index) != 0).map(|(_, rule)| rule)
    }

    /// The declared tool that an unknown name means.
    pub(crate) fn tool(self, called: &Called<'_>) -> Option<(&'static str, String)> {
        self.rules().find_map(|rule| match rule.stage {
            Stage::Tool(apply) => Some((rule.name, apply(called)?)),
            _ => None,
        })
    }

    /// The declared argument that an unknown name means.
    pub(crate) fn argument(self, slot: &Slot<'_>) -> Option<(&'static str, String)> {
        self.rules().find_map(|rule| match rule.stage {
            Stage::Argument(apply) => Some((rule.name, apply(slot)?)),
            _ => None,
        })
    }

    /// The value that a text of the wrong type means.
    pub(crate) fn value(self, text: &Text<'_>) -> Option<(&'static str, Value)> {
        self.rules().find_map(|rule| match rule.stage {
            Stage::Value(apply) => Some((rule.name, apply(text)?)),
            _ => None,
        })
    }

    /// What stands in the code fence that a text consists of, and its offset in the text.
    pub(crate) fn unfenced(self, text: &str) -> Option<(&'static str, &str, usize)> {
        let rule = self.rules().find(|rule| matches!(rule.stage, Stage::Fence))?;
        let (inner, at) = unfenced(text)?;
        Some((rule.name, inner, at))
    }

    /// What slovenly JSON means, and the rules that it took.
    pub(crate) fn json(self, text: &str) -> Result<(Vec<&'static str>, Relaxed), Broken> {
        let slips = self.rules().filter_map(|rule| match rule.stage {
            Stage::Json(slip) => Some((slip, rule.name)),
            _ => None,
        });
        let (allowed, names): (Vec<Slip>, Vec<&str>) = slips.unzip();
        let relaxed = relaxed::read(text, &allowed)?;
        let used = allowed.iter().zip(names).filter(|(slip, _)| relaxed.slips.contains(slip));
        Ok((used.map(|(_, name)| name).collect(), relaxed))
    }
}

/// A text for audits and messages, cut after some two hundred bytes.
pub(crate) fn shortened(text: &str) -> String {
    const BYTES: usize = 200;
    let end = text.floor_char_boundary(BYTES);
    match text.get(..end) {
        Some(head) if end < text.len() => format!("{head}…"),
        _ => text.to_owned(),
    }
}

fn bit(name: &str) -> Option<u32> {
    RULES.iter().position(|rule| rule.name == name).map(|index| 1 << index)
}

/// The one candidate that differs from `name` in case only.
fn same_letters<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut same = candidates.filter(|candidate| candidate.to_lowercase() == lower);
    same.next().filter(|_| same.next().is_none())
}

fn wrong_case_name(called: &Called<'_>) -> Option<String> {
    same_letters(called.name, called.tools.known().map(|tool| tool.name.as_str())).map(str::to_owned)
}

fn near_name(called: &Called<'_>) -> Option<String> {
    let name = near(called.name, called.tools.known().map(|tool| tool.name.as_str()))?;
    let tool = called.tools.get(name)?;
    let shape = Shape::new(&tool.parameters);
    let declared = shape.names();
    let fits = called.given.iter().all(|given| declared.contains(given))
        && shape.required().iter().all(|required| called.given.contains(required));
    fits.then(|| name.to_owned())
}

fn wrong_case_argument(slot: &Slot<'_>) -> Option<String> {
    let target = same_letters(slot.name, slot.declared.iter().copied())?;
    // `Path` and `PATH` together would be two values for one argument.
    let rivals = slot.given.iter().filter(|given| given.to_lowercase() == target.to_lowercase());
    (rivals.count() == 1).then(|| target.to_owned())
}

fn near_argument(slot: &Slot<'_>) -> Option<String> {
    let target = near(slot.name, slot.declared.iter().copied()).filter(|_| slot.closed)?;
    // Two names that mean one argument would be two values for it.
    let means = |given: &&str| *given == target || near(given, slot.declared.iter().copied()) == Some(target);
    let rivals = slot.given.iter().filter(|given| means(given)).count();
    (rivals == 1).then(|| target.to_owned())
}

/// Targets with the names that models give them.
const ALIASES: [(&str, &[&str]); 4] = [
    ("command", &["cmd", "bash", "shell", "script"]),
    ("action", &["operation"]),
    ("path", &["file", "filename", "file_path", "filepath"]),
    ("content", &["text", "contents"]),
];

fn argument_alias(slot: &Slot<'_>) -> Option<String> {
    let (target, aliases) = ALIASES.iter().find(|(_, aliases)| aliases.contains(&slot.name))?;
    let wanted = slot.required.contains(target) && !slot.given.contains(target);
    let undeclared = |given: &&&str| aliases.contains(*given) && !slot.declared.contains(*given);
    let alone = slot.given.iter().filter(undeclared).count() == 1;
    (wanted && alone).then(|| (*target).to_owned())
}

/// The inside of a fence of three or more backticks, marked `json` or not at all, that is the whole of the text.
fn unfenced(text: &str) -> Option<(&str, usize)> {
    let begins = text.len() - text.trim_start().len();
    let (_, fenced) = text.trim_end().split_at_checked(begins)?;
    let ticks = fenced.len() - fenced.trim_start_matches('`').len();
    let (fence, after) = fenced.split_at_checked(ticks).filter(|(fence, _)| fence.len() >= 3)?;
    let mark = after.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (mark, inner) = after.split_at_checked(mark)?;
    let inner = inner.strip_suffix(fence).filter(|inner| !inner.ends_with('`'))?;
    let known = mark.is_empty() || mark.eq_ignore_ascii_case("json");
    let at = begins + ticks + mark.len() + (inner.len() - inner.trim_start().len());
    known.then(|| (inner.trim(), at))
}

fn stringified_value(text: &Text<'_>) -> Option<Value> {
    if text.form != ArgForm::String {
        return None;
    }
    // Only JSON's own spelling: in a JSON string nobody means `True`.
    let value: Value = serde_json::from_str(text.text).ok()?;
    let exact = text.text.trim_ascii() == text.text;
    scalar(text.text, text.types).filter(|_| exact && !value.is_array() && !value.is_object())
}

fn double_encoding(text: &Text<'_>) -> Option<Value> {
    if text.form != ArgForm::String {
        return None;
    }
    let value = relaxed::strict(text.text).ok()?;
    let fits = value.is_array() && text.types.has(Types::ARRAY) || value.is_object() && text.types.has(Types::OBJECT);
    fits.then_some(value)
}

fn trimmed_scalar(text: &Text<'_>) -> Option<Value> {
    let trimmed = text.text.trim();
    if text.form != ArgForm::Raw || trimmed == text.text { None } else { scalar(trimmed, text.types) }
}

#[cfg(test)]
mod tests {
    use super::{RULES, Repairs, unfenced};

    #[test]
    fn fences() {
        let rows = [
            ("```json\n{\"a\": 1}\n```", Some(("{\"a\": 1}", 8))),
            ("\n ```\n[1]\n```\n", Some(("[1]", 6))),
            ("````JSON\r\n[1]\r\n````", Some(("[1]", 10))),
            ("```[1]```", Some(("[1]", 3))),
            ("``` ```", Some(("", 4))),
            ("```python\n[1]\n```", None),
            ("```json\n[1]\n````", None),
            ("```json\n[1]", None),
            ("[1]\n```", None),
            ("``[1]``", None),
            ("``````", None),
            ("x ```\n[1]\n```", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(unfenced(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_unique_and_documented() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(RULES.iter().skip(index + 1).all(|other| other.name != rule.name), "{}", rule.name);
            assert!(rule.doc.ends_with('.'), "{}", rule.name);
            let row = format!("//! | `{}` |", rule.name);
            assert!(include_str!("repair.rs").contains(&row), "{} has no row in the table above", rule.name);
        }
    }

    #[test]
    fn rules_can_be_switched() {
        let repairs = Repairs::all().without("single_quotes").unwrap();
        assert!(!repairs.has("single_quotes") && repairs.has("trailing_comma"));
        assert!(repairs.json("['a']").is_err());
        assert!(repairs.with("single_quotes").unwrap().json("['a']").is_ok());
        assert!(Repairs::none().with("trailing_comma").unwrap().json("[1,]").is_ok());
        assert!(Repairs::all().without("no_such_rule").is_none());
    }
}
