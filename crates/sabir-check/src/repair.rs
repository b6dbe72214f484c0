//! Repairs: slips that can be set right without guessing, one table row each.
//!
//! A repair needs a name, so that it can be told and switched off, and exactly one possible reading. A tool's name that is
//! merely near (`read_fil`) has two: a slip of the pen, or a tool that does not exist. It is rejected with a hint. A value
//! that was never terminated is never repaired at all.

use std::borrow::Cow;

use sabir_call::{ArgForm, Span, ToolSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coerce::scalar;
use crate::relaxed::{self, Relaxed, Slip};
use crate::schema::Types;

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
    Tool(fn(&str, &ToolSet) -> Option<String>),
    Argument(fn(&Slot<'_>) -> Option<String>),
    Value(fn(&Text<'_>) -> Option<Value>),
    Json(Slip),
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
}

/// A value that does not have a type that the schema allows.
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) form: ArgForm,
    pub(crate) types: Types,
}

/// Every rule.
pub static RULES: [Rule; 10] = [
    Rule {
        name: "wrong_case_name",
        doc: "A tool's name in the wrong case (`Read_File` for `read_file`), where only one tool has these letters.",
        stage: Stage::Tool(wrong_case_name),
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
    Rule { name: "trailing_comma", doc: "A comma before `}` or `]` in JSON.", stage: Stage::Json(Slip::TrailingComma) },
    Rule { name: "single_quotes", doc: "JSON strings in single quotes.", stage: Stage::Json(Slip::SingleQuotes) },
    Rule { name: "python_literal", doc: "`True`, `False` or `None` in JSON.", stage: Stage::Json(Slip::PythonLiteral) },
    Rule {
        name: "control_character",
        doc: "A raw line feed, tab or other control character inside a JSON string.",
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
    pub(crate) fn tool(self, name: &str, tools: &ToolSet) -> Option<(&'static str, String)> {
        self.rules().find_map(|rule| match rule.stage {
            Stage::Tool(apply) => Some((rule.name, apply(name, tools)?)),
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

    /// What slovenly JSON means, and the rules that it took.
    pub(crate) fn json(self, text: &str) -> Option<(Vec<&'static str>, Relaxed)> {
        let slips = self.rules().filter_map(|rule| match rule.stage {
            Stage::Json(slip) => Some((slip, rule.name)),
            _ => None,
        });
        let (allowed, names): (Vec<Slip>, Vec<&str>) = slips.unzip();
        let relaxed = relaxed::read(text, &allowed)?;
        let used = allowed.iter().zip(names).filter(|(slip, _)| relaxed.slips.contains(slip));
        Some((used.map(|(_, name)| name).collect(), relaxed))
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

fn wrong_case_name(name: &str, tools: &ToolSet) -> Option<String> {
    same_letters(name, tools.iter().map(|tool| tool.name.as_str())).map(str::to_owned)
}

fn wrong_case_argument(slot: &Slot<'_>) -> Option<String> {
    let target = same_letters(slot.name, slot.declared.iter().copied())?;
    // `Path` and `PATH` together would be two values for one argument.
    let rivals = slot.given.iter().filter(|given| given.to_lowercase() == target.to_lowercase());
    (rivals.count() == 1).then(|| target.to_owned())
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
    let value: Value = serde_json::from_str(text.text).ok()?;
    let fits = value.is_array() && text.types.has(Types::ARRAY) || value.is_object() && text.types.has(Types::OBJECT);
    fits.then_some(value)
}

fn trimmed_scalar(text: &Text<'_>) -> Option<Value> {
    let trimmed = text.text.trim();
    if text.form != ArgForm::Raw || trimmed == text.text { None } else { scalar(trimmed, text.types) }
}

#[cfg(test)]
mod tests {
    use super::{RULES, Repairs};

    #[test]
    fn names_are_unique_and_documented() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(RULES.iter().skip(index + 1).all(|other| other.name != rule.name), "{}", rule.name);
            assert!(rule.doc.ends_with('.'), "{}", rule.name);
        }
    }

    #[test]
    fn rules_can_be_switched() {
        let repairs = Repairs::all().without("single_quotes").unwrap();
        assert!(!repairs.has("single_quotes") && repairs.has("trailing_comma"));
        assert!(repairs.json("['a']").is_none());
        assert!(repairs.with("single_quotes").unwrap().json("['a']").is_some());
        assert!(Repairs::none().with("trailing_comma").unwrap().json("[1,]").is_some());
        assert!(Repairs::all().without("no_such_rule").is_none());
    }
}
