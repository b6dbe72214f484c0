//! Repairs mistakes in calls that have exactly one possible reading; each rule is one row of a table.
//!
//! A repair has a name, so that it can be reported and switched off, and exactly one possible reading. A tool's name that is
//! only similar (`read_fil`) has two readings: a typing error, or a tool that does not exist. Such a name is rejected with a
//! hint, unless it has the same letters as a tool whose arguments the call gives exactly (`near_name`). An unterminated
//! value is never repaired, and a string that the schema allows is never changed.
//!
//! | rule | input | is read as |
//! | --- | --- | --- |
//! | `wrong_case_name` | `Read_File` | the tool `read_file`, if only it has these letters |
//! | `near_name` | `readFile`, `read-file` | the tool `read_file`, if no other name is similar and the arguments are exactly its own |
//! | `tool_namespace` | `functions.read_file`, `default_api.read_file` | the tool `read_file` |
//! | `foreign_tool` | `Bash`, `str_replace_editor`, … | the tool that does the same, where a set knows other agents' tools |
//! | `foreign_argument` | `requires_approval`, `<args><file>…`, … | what it means for the tool of the same name |
//! | `xml_arguments` | a whole call in tags as the arguments of a native call | that call |
//! | `wrong_case_argument` | `Path` | the argument `path`, if only it has these letters and it is not given |
//! | `argument_alias` | `cmd`, `file_path`, … | the argument for which models use that name, if it is missing |
//! | `near_argument` | `startLine`, `start-line` | the argument `start_line`, if no other name is similar and it is not given |
//! | `null_argument` | `"end_line": null` | a missing argument, if it is optional and must not be null |
//! | `fenced_json` | JSON in a ```` ```json ```` fence | the JSON inside: all arguments, or a value that is not a string |
//! | `double_encoding` | `"{\"a\": 1}"` | the object or array in the string |
//! | `stringified_value` | `"10"` | the number, boolean or null in the string |
//! | `trimmed_scalar` | `<n> 10 </n>` | the number, boolean or null without the white space |
//! | `trailing_comma` | `[1,]`, in a value or around the call | `[1]` |
//! | `single_quotes` | `{'a': 'b'}`, in a value or around the arguments | `{"a": "b"}` |
//! | `missing_close` | a block of whole calls without its closing tag | the calls; the warning about the tag stays |
//! | `missing_last_close` | a last call without its closing markup; off by default | the call |
//! | `extra_bracket` | one `}` too many after a complete call | nothing |
//! | `python_literal` | `True`, `False`, `None` | `true`, `false`, `null` |
//! | `control_character` | a raw line feed in a JSON string, or in a Python one of one line | the line feed |

use std::borrow::Cow;

use sabir_call::compatibility::aliased_argument;
use sabir_call::{ArgumentEncoding, CallReader, Span, ToolSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coerce::parse_scalar;
use crate::lenient_json::{self, JsonMistake, JsonSyntaxError, LenientJson};
use crate::schema::{JsonTypes, SchemaView};
use crate::similar_name::find_similar_name;

/// The record of one change that a rule made, for the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The rule's name; a row of [`RULES`].
    pub rule: Cow<'static, str>,
    /// The position of the change, in the same text as the spans of the call's faults.
    pub span: Span,
    /// The text that the model wrote, shortened if long.
    pub before: String,
    /// The text or value as which it was read, shortened if long.
    pub after: String,
}

/// A named repair rule.
#[derive(Debug)]
pub struct RepairRule {
    /// The name, part of the public contract.
    pub name: &'static str,
    /// One sentence that describes the input and its reading.
    pub doc: &'static str,
    stage: RepairStage,
}

/// The point in the checks at which a rule applies, with its function.
#[derive(Debug)]
enum RepairStage {
    /// Runs on a tool's name that is not declared; returns the declared one.
    Tool(fn(&UndeclaredTool<'_>) -> Option<String>),
    /// Runs on an argument's name that is not declared; returns the declared one.
    Argument(fn(&UndeclaredArgument<'_>) -> Option<String>),
    /// Runs before the text of a value, or of all arguments, is read.
    Fence,
    /// A null value for an argument that must not be null.
    Null,
    /// Runs on a text that could not be read as any of the declared types.
    Value(fn(&MistypedText<'_>) -> Option<Value>),
    /// Allows one kind of mistake while JSON is parsed.
    Json(JsonMistake),
    /// Concerns the call as a whole; the checks apply it.
    Call,
    /// A mistake that the parser itself accepts, with a warning.
    /// `CallDiagnostics::convert_tolerated_faults` turns that warning into the repair.
    Parser,
    /// A mistake that the parser accepts only with an option.
    OptionalParser,
}

impl RepairRule {
    /// Returns true if the rule applies only if it is switched on, because the reader accepts the
    /// mistake only with an option.
    pub fn is_off_by_default(&self) -> bool {
        matches!(self.stage, RepairStage::OptionalParser)
    }
}

/// A call to an undeclared tool.
pub(crate) struct UndeclaredTool<'a> {
    pub(crate) name: &'a str,
    pub(crate) tools: &'a ToolSet,
    /// The names of the call's arguments.
    pub(crate) given: &'a [&'a str],
}

/// An argument whose name is not declared.
pub(crate) struct UndeclaredArgument<'a> {
    pub(crate) name: &'a str,
    /// The names that the tool declares.
    pub(crate) declared: &'a [&'a str],
    /// The names that the tool requires.
    pub(crate) required: &'a [&'a str],
    /// All argument names in the call, this one included.
    pub(crate) given: &'a [&'a str],
    /// True if the tool accepts declared arguments only.
    pub(crate) closed: bool,
}

/// A value that does not have a type that the schema allows.
pub(crate) struct MistypedText<'a> {
    pub(crate) text: &'a str,
    pub(crate) form: ArgumentEncoding,
    pub(crate) types: JsonTypes,
}

/// All repair rules, in the order in which they are tried.
///
/// The first rule that applies is recorded, so of two rules about the same thing the narrower one
/// comes first.
pub static RULES: [RepairRule; 21] = [
    RepairRule {
        name: "wrong_case_name",
        doc: "A tool's name in the wrong case (`Read_File` for `read_file`), where only one tool has these letters.",
        stage: RepairStage::Tool(wrong_case_name),
    },
    RepairRule {
        name: "near_name",
        doc: "A tool's name of the same letters with other separators between the words (`readFile`, `read-file` for `read_file`), where no other tool has them and the call gives only arguments of that tool, and all that it requires.",
        stage: RepairStage::Tool(near_name),
    },
    RepairRule {
        name: "tool_namespace",
        doc: "A namespace before a tool's name, and a number behind it (`functions.read_file:0`, `default_api.read_file`, `tools::read_file`), where no tool has the whole name.",
        stage: RepairStage::Call,
    },
    RepairRule {
        name: "foreign_tool",
        doc: "A tool of another agent (`Bash`, `run_command`, `str_replace_editor`) that means one of the tools here, with arguments that can be converted exactly.",
        stage: RepairStage::Call,
    },
    RepairRule {
        name: "foreign_argument",
        doc: "An argument that another agent's tool of the same name has (`requires_approval`, `line_count`, `args` of `read_file`), and that can be converted or has no effect.",
        stage: RepairStage::Call,
    },
    RepairRule {
        name: "xml_arguments",
        doc: "A whole call in tags as the argument text of a native call of the same tool: the call in it is read.",
        stage: RepairStage::Call,
    },
    RepairRule {
        name: "wrong_case_argument",
        doc: "An argument's name in the wrong case (`Path` for `path`), where only one argument has these letters and it is not given.",
        stage: RepairStage::Argument(wrong_case_argument),
    },
    RepairRule {
        name: "argument_alias",
        doc: "A usual other name (`cmd` for `command`, `file_path` for `path`, `file_text` for `content`, `old_str` for `old_string`; docs/compatibility.md lists all) of an argument that is missing. An optional argument is meant only where the tool accepts no others.",
        stage: RepairStage::Argument(argument_alias),
    },
    RepairRule {
        name: "near_argument",
        doc: "An argument's name of the same letters with other separators between the words (`startLine` for `start_line`), where no other argument has them and the one that is meant is not given.",
        stage: RepairStage::Argument(near_argument),
    },
    RepairRule {
        name: "null_argument",
        doc: "`null` for an optional argument that may not be null: it is treated as missing.",
        stage: RepairStage::Null,
    },
    RepairRule {
        name: "fenced_json",
        doc: "Arguments, or a value that is not a string, in a code fence: the content of the fence is read.",
        stage: RepairStage::Fence,
    },
    RepairRule {
        name: "double_encoding",
        doc: "Arguments, an object or an array written as a JSON string that holds their JSON text.",
        stage: RepairStage::Value(double_encoding),
    },
    RepairRule {
        name: "stringified_value",
        doc: "A number, a boolean or null written as a JSON string (`\"10\"` for `10`).",
        stage: RepairStage::Value(stringified_value),
    },
    RepairRule {
        name: "trimmed_scalar",
        doc: "White space around a number, a boolean or null between tags.",
        stage: RepairStage::Value(trimmed_scalar),
    },
    RepairRule {
        name: "trailing_comma",
        doc: "A comma before `}` or `]` in JSON, in a value or around the call.",
        stage: RepairStage::Json(JsonMistake::TrailingComma),
    },
    RepairRule {
        name: "single_quotes",
        doc: "JSON strings in single quotes, as values or as keys.",
        stage: RepairStage::Json(JsonMistake::SingleQuotes),
    },
    RepairRule {
        name: "extra_bracket",
        doc: "One closing brace too many after a call in JSON, directly before the marker or comma after the call.",
        stage: RepairStage::Parser,
    },
    RepairRule {
        name: "missing_close",
        doc: "A block of whole calls whose closing tag is missing at the end of the message; the warning about it stays.",
        stage: RepairStage::Parser,
    },
    RepairRule {
        name: CallReader::MISSING_LAST_CLOSE,
        doc: "A last call whose arguments are whole and whose closing markup is missing at the end of a message that the provider says is complete. Off by default; `--repair` and `repairs_on` of a model switch it on.",
        stage: RepairStage::OptionalParser,
    },
    RepairRule {
        name: "python_literal",
        doc: "`True`, `False` or `None` in JSON.",
        stage: RepairStage::Json(JsonMistake::PythonLiteral),
    },
    RepairRule {
        name: "control_character",
        doc: "A raw line feed, tab or other control character inside a JSON string, or a raw line feed in a Python string that may not contain one.",
        stage: RepairStage::Json(JsonMistake::ControlCharacter),
    },
];

/// The set of active repair rules.
///
/// One bit for each rule, by its index in [`RULES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairSet(u32);

impl Default for RepairSet {
    /// Returns the set of all rules, each of which is unambiguous and safe to apply.
    fn default() -> Self {
        Self::all()
    }
}

impl RepairSet {
    /// Returns the set of all rules.
    pub fn all() -> Self {
        // Bits without a rule are set as well; nothing reads them.
        Self(u32::MAX)
    }

    /// Returns the empty set: every mistake is then a fault.
    pub fn none() -> Self {
        Self(0)
    }

    /// Removes the rule of that name; `None` if there is no such rule.
    #[must_use]
    pub fn without_rule(self, name: &str) -> Option<Self> {
        rule_bit(name).map(|bit| Self(self.0 & !bit))
    }

    /// Adds the rule of that name; `None` if there is no such rule.
    #[must_use]
    pub fn with_rule(self, name: &str) -> Option<Self> {
        rule_bit(name).map(|bit| Self(self.0 | bit))
    }

    /// Returns true if the rule of that name is active.
    pub fn has_rule(self, name: &str) -> bool {
        rule_bit(name).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Returns the active rules in the order of the table, which is the order of trial.
    fn active_rules(self) -> impl Iterator<Item = &'static RepairRule> {
        RULES
            .iter()
            .enumerate()
            .filter(move |(index, _)| self.0 & (1 << index) != 0)
            .map(|(_, rule)| rule)
    }

    /// Finds the declared tool that an unknown name means, with the rule that found it.
    ///
    /// The first rule with an answer wins. Its answer is always the name of a declared tool.
    pub(crate) fn resolve_tool(
        self,
        called: &UndeclaredTool<'_>,
    ) -> Option<(&'static str, String)> {
        self.active_rules().find_map(|rule| match rule.stage {
            RepairStage::Tool(apply) => Some((rule.name, apply(called)?)),
            _ => None,
        })
    }

    /// Finds the declared argument that an unknown name means, with the rule that found it.
    pub(crate) fn resolve_argument(
        self,
        slot: &UndeclaredArgument<'_>,
    ) -> Option<(&'static str, String)> {
        self.active_rules().find_map(|rule| match rule.stage {
            RepairStage::Argument(apply) => Some((rule.name, apply(slot)?)),
            _ => None,
        })
    }

    /// Finds the value that a text of the wrong type means, with the rule that found it.
    ///
    /// Rules only see texts that cannot be read otherwise, so they never change a valid value.
    pub(crate) fn repair_value(self, text: &MistypedText<'_>) -> Option<(&'static str, Value)> {
        self.active_rules().find_map(|rule| match rule.stage {
            RepairStage::Value(apply) => Some((rule.name, apply(text)?)),
            _ => None,
        })
    }

    /// Returns the content of the code fence that a text consists of, and its offset in the text.
    /// `None` if the rule is off.
    pub(crate) fn strip_code_fence(self, text: &str) -> Option<(&'static str, &str, usize)> {
        let rule = self
            .active_rules()
            .find(|rule| matches!(rule.stage, RepairStage::Fence))?;
        let (inner, at) = split_code_fence(text)?;
        Some((rule.name, inner, at))
    }

    /// Parses JSON with the mistakes that active rules allow; returns the rules that were needed.
    ///
    /// All active rules apply in one pass, because one text often has several mistakes: `{'a':
    /// True,}`. Only the rules that were really needed are returned.
    ///
    /// # Errors
    /// Returns the first byte that none of the active rules explains.
    pub(crate) fn repair_json(
        self,
        text: &str,
    ) -> Result<(Vec<&'static str>, LenientJson), JsonSyntaxError> {
        let slips = self.active_rules().filter_map(|rule| match rule.stage {
            RepairStage::Json(slip) => Some((slip, rule.name)),
            _ => None,
        });
        let (allowed, names): (Vec<JsonMistake>, Vec<&str>) = slips.unzip();
        let relaxed = lenient_json::parse_lenient(text, &allowed)?;
        let used = allowed
            .iter()
            .zip(names)
            .filter(|(slip, _)| relaxed.slips.contains(slip));
        Ok((used.map(|(_, name)| name).collect(), relaxed))
    }
}

/// Shortens a text for audits and messages to about 200 bytes.
///
/// The cut is at a character boundary and shown by `…`. It bounds records and feedback even if a model writes a whole file instead of a
/// name.
pub(crate) fn shorten_text(text: &str) -> String {
    const BYTES: usize = 200;
    let end = text.floor_char_boundary(BYTES);
    match text.get(..end) {
        Some(head) if end < text.len() => format!("{head}…"),
        _ => text.to_owned(),
    }
}

/// Returns the rule's bit in a `RepairSet`: its index in the table. The table has far fewer than 32
/// rows.
fn rule_bit(name: &str) -> Option<u32> {
    RULES
        .iter()
        .position(|rule| rule.name == name)
        .map(|index| 1 << index)
}

/// Finds the only candidate that equals `name` except for its case.
///
/// `None` if two candidates qualify, since a repair must be unambiguous.
fn match_ignoring_case<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut same = candidates.filter(|candidate| candidate.to_lowercase() == lower);
    same.next().filter(|_| same.next().is_none())
}

/// Resolves `Read_File` to `read_file`.
///
/// All understood tools are candidates, not only the offered ones, since any of them could be meant.
fn wrong_case_name(called: &UndeclaredTool<'_>) -> Option<String> {
    match_ignoring_case(
        called.name,
        called.tools.all_tools().map(|tool| tool.name.as_str()),
    )
    .map(str::to_owned)
}

/// Resolves `readFile` to `read_file` if the arguments are exactly those of that tool.
///
/// Separators alone are weak evidence: another agent's `readFile` may be a different tool with
/// other arguments, and running the wrong tool is worse than asking again.
fn near_name(called: &UndeclaredTool<'_>) -> Option<String> {
    let name = find_similar_name(
        called.name,
        called.tools.all_tools().map(|tool| tool.name.as_str()),
    )?;
    let tool = called.tools.get(name)?;
    let shape = SchemaView::new(&tool.parameters);
    let declared = shape.property_names();
    // The arguments are the second piece of evidence: they must be exactly those of the tool.
    let meant: Vec<&str> = called
        .given
        .iter()
        .filter_map(|given| {
            let own = declared.iter().find(|name| *name == given).copied();
            own.or_else(|| aliased_argument(given, &declared))
        })
        .collect();
    let fits = meant.len() == called.given.len()
        && shape
            .required_names()
            .iter()
            .all(|required| meant.contains(required));
    fits.then(|| name.to_owned())
}

/// Resolves `Path` to `path`.
fn wrong_case_argument(slot: &UndeclaredArgument<'_>) -> Option<String> {
    let target = match_ignoring_case(slot.name, slot.declared.iter().copied())?;
    // If the call has both `Path` and `PATH`, it is unknown which value is meant.
    let rivals = slot
        .given
        .iter()
        .filter(|given| given.to_lowercase() == target.to_lowercase());
    (rivals.count() == 1).then(|| target.to_owned())
}

/// Resolves `startLine` to `start_line` if the tool accepts declared arguments only.
///
/// In an open object the undeclared name is legitimate, and renaming it would change a valid call.
fn near_argument(slot: &UndeclaredArgument<'_>) -> Option<String> {
    let target =
        find_similar_name(slot.name, slot.declared.iter().copied()).filter(|_| slot.closed)?;
    // If two given names mean the same argument, it is unknown which value is meant.
    let means = |given: &&str| {
        *given == target || find_similar_name(given, slot.declared.iter().copied()) == Some(target)
    };
    // The name itself is one of them, so exactly one is right.
    let rivals = slot.given.iter().filter(|given| means(given)).count();
    (rivals == 1).then(|| target.to_owned())
}

/// Resolves a usual other name of an argument, such as `cmd` for `command`.
fn argument_alias(slot: &UndeclaredArgument<'_>) -> Option<String> {
    let target = aliased_argument(slot.name, slot.declared)?;
    // An open tool may want the undeclared name itself, so only what it cannot do without is meant.
    let wanted = slot.closed || slot.required.contains(&target);
    // With both `cmd` and `script` in one call, either could be the command.
    let is_rival = |given: &&&str| {
        !slot.declared.contains(*given) && aliased_argument(given, slot.declared) == Some(target)
    };
    let alone = slot.given.iter().filter(is_rival).count() == 1;
    (wanted && alone && !slot.given.contains(&target)).then(|| target.to_owned())
}

/// Returns the content of a code fence, and its offset, if the whole text is one fence of three or more backticks, marked `json` or unmarked.
///
/// The closing fence must have exactly as many backticks as the opening one (CommonMark would allow
/// more). Another language mark, such as `python`, says that the content is not JSON.
fn split_code_fence(text: &str) -> Option<(&str, usize)> {
    let begins = text.len() - text.trim_start().len();
    let (_, fenced) = text.trim_end().split_at_checked(begins)?;
    let ticks = fenced.len() - fenced.trim_start_matches('`').len();
    let (fence, after) = fenced
        .split_at_checked(ticks)
        .filter(|(fence, _)| fence.len() >= 3)?;
    // No line break is required after the mark: models also write the whole fence on one line.
    let mark = after.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (mark, inner) = after.split_at_checked(mark)?;
    let inner = inner
        .strip_suffix(fence)
        .filter(|inner| !inner.ends_with('`'))?;
    let known = mark.is_empty() || mark.eq_ignore_ascii_case("json");
    let at = begins + ticks + mark.len() + (inner.len() - inner.trim_start().len());
    known.then(|| (inner.trim(), at))
}

/// Reads a number, a boolean or null from a JSON string, such as `"10"`.
///
/// White space inside the quotes disqualifies the text: `" 10"` is more likely a string.
fn stringified_value(text: &MistypedText<'_>) -> Option<Value> {
    if text.form != ArgumentEncoding::String {
        return None;
    }
    // Only JSON's own spelling counts: the string `"True"` is more likely meant as text.
    let value: Value = serde_json::from_str(text.text).ok()?;
    let exact = text.text.trim_ascii() == text.text;
    parse_scalar(text.text, text.types).filter(|_| exact && !value.is_array() && !value.is_object())
}

/// Reads an array or an object from a JSON string, such as `"[1]"`.
///
/// Strict JSON only: mistakes inside a text that is itself a mistake are ambiguous.
fn double_encoding(text: &MistypedText<'_>) -> Option<Value> {
    if text.form != ArgumentEncoding::String {
        return None;
    }
    let value = lenient_json::parse_strict(text.text).ok()?;
    let fits = value.is_array() && text.types.has(JsonTypes::ARRAY)
        || value.is_object() && text.types.has(JsonTypes::OBJECT);
    fits.then_some(value)
}

/// Reads a number, a boolean or null between tags with white space around it.
fn trimmed_scalar(text: &MistypedText<'_>) -> Option<Value> {
    let trimmed = text.text.trim();
    if text.form != ArgumentEncoding::Raw || trimmed == text.text {
        None
    } else {
        parse_scalar(trimmed, text.types)
    }
}

#[cfg(test)]
mod tests {
    use super::{RULES, RepairSet, split_code_fence};

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
            assert_eq!(split_code_fence(text), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_unique_and_documented() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(
                RULES
                    .iter()
                    .skip(index + 1)
                    .all(|other| other.name != rule.name),
                "{}",
                rule.name
            );
            assert!(rule.doc.ends_with('.'), "{}", rule.name);
            let row = format!("//! | `{}` |", rule.name);
            assert!(
                include_str!("repair.rs").contains(&row),
                "{} has no row in the table above",
                rule.name
            );
        }
    }

    #[test]
    fn rules_can_be_switched() {
        let repairs = RepairSet::all().without_rule("single_quotes").unwrap();
        assert!(!repairs.has_rule("single_quotes") && repairs.has_rule("trailing_comma"));
        assert!(repairs.repair_json("['a']").is_err());
        assert!(
            repairs
                .with_rule("single_quotes")
                .unwrap()
                .repair_json("['a']")
                .is_ok()
        );
        assert!(
            RepairSet::none()
                .with_rule("trailing_comma")
                .unwrap()
                .repair_json("[1,]")
                .is_ok()
        );
        assert!(RepairSet::all().without_rule("no_such_rule").is_none());
    }
}
