//! Lints tool definitions for problems that models would have with them.
//!
//! A tool that no dialect can express, a schema that a provider rejects, two names that a model will confuse: all of these
//! show in the definition. Each rule is a row of [`LINTS`]. A finding has a JSON pointer into the list of tools, the
//! dialects that it concerns, and advice. Errors make a tool unusable; everything else is a warning.
//!
//! ```
//! use sabir_call::dialect::DialectSet;
//! use sabir_check::lint::{LintScope, lint_tools};
//!
//! let tools = serde_json::json!([{"name": "thinking", "description": "Thinks.", "parameters": {"type": "object"}}]);
//! let found = lint_tools(&tools, &LintScope::all(DialectSet::built_in()));
//! assert!(found.iter().any(|finding| finding.lint == "reserved_name" && finding.pointer == "/0/name"));
//! ```

mod names;
mod prompting;
mod round_trip;
mod schemas;

use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Severity, ToolSet, ToolSpec};
use serde::Serialize;
use serde_json::Value;

/// A lint rule.
#[derive(Debug)]
pub struct LintRule {
    /// The name, part of the public contract.
    pub name: &'static str,
    /// One sentence about the problem and its effect.
    pub doc: &'static str,
    check: fn(&LintInput<'_>, &mut LintFindings),
}

/// A problem that a rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    /// The rule's name; a row of [`LINTS`].
    pub lint: &'static str,
    /// The severity; errors make a tool unusable.
    pub severity: Severity,
    /// The tool's name, if it has one.
    pub tool: Option<String>,
    /// The position, as a JSON pointer into the list of tools.
    pub pointer: String,
    /// The affected dialects; empty if the problem is independent of the dialect.
    pub dialects: Vec<&'static str>,
    /// One sentence about the problem and its consequence.
    pub message: String,
    /// Advice on how to fix it.
    pub hint: String,
}

/// The dialects and providers for which tools are checked.
#[derive(Debug, Clone)]
pub struct LintScope {
    /// Everything that a task listens for.
    known: DialectSet,
    /// The dialects in which the tools are taught.
    dialects: Vec<Dialect>,
    wires: bool,
}

/// All lint rules.
///
/// Findings of one tool and severity are in this order: names, then schemas, then the prompt.
pub static LINTS: [LintRule; 24] = [
    LintRule {
        name: "not_a_tool",
        doc: "An element that is not a tool definition: it has no name, or a key of the wrong type.",
        check: names::not_a_tool,
    },
    LintRule {
        name: "doubled_name",
        doc: "Two tools with the same name, so that a call does not show which one is meant.",
        check: names::doubled_name,
    },
    LintRule {
        name: "unwritable_name",
        doc: "A tool's name with characters that no dialect can express.",
        check: names::unwritable_name,
    },
    LintRule {
        name: "wire_name",
        doc: "A tool's name that OpenAI and Anthropic refuse: one that does not match `^[a-zA-Z0-9_-]{1,64}$`.",
        check: names::wire_name,
    },
    LintRule {
        name: "reserved_name",
        doc: "A tool or argument named like a tag that has a meaning of its own (`thinking`, `invoke`, `tool_call`).",
        check: names::reserved_name,
    },
    LintRule {
        name: "argument_like_tool",
        doc: "An argument named like a tool, where both are tags: in prose it is not certain which one is meant.",
        check: names::argument_like_tool,
    },
    LintRule {
        name: "case_collision",
        doc: "Names that differ only in case.",
        check: names::case_collision,
    },
    LintRule {
        name: "near_names",
        doc: "Names so similar that a model will confuse them.",
        check: names::near_names,
    },
    LintRule {
        name: "empty_argument",
        doc: "An argument without a name.",
        check: names::empty_argument,
    },
    LintRule {
        name: "python_keyword",
        doc: "A name that is a keyword of Python.",
        check: names::python_keyword,
    },
    LintRule {
        name: "python_identifier",
        doc: "A name that Python cannot write.",
        check: names::python_identifier,
    },
    LintRule {
        name: "unreadable_call",
        doc: "A tool whose calls a dialect cannot read back: rendered as it is taught, the call is not understood.",
        check: round_trip::unreadable_call,
    },
    LintRule {
        name: "no_object_schema",
        doc: "Parameters that are not the schema of an object.",
        check: schemas::no_object_schema,
    },
    LintRule {
        name: "invalid_schema",
        doc: "Parameters that are not a valid JSON Schema.",
        check: schemas::invalid_schema,
    },
    LintRule {
        name: "outside_reference",
        doc: "A `$ref` to another document: nothing is ever fetched.",
        check: schemas::outside_reference,
    },
    LintRule {
        name: "missing_type",
        doc: "A schema that does not say its type.",
        check: schemas::missing_type,
    },
    LintRule {
        name: "top_level_union",
        doc: "`oneOf`, `anyOf` or `allOf` at the top of the parameters, which wires refuse.",
        check: schemas::top_level_union,
    },
    LintRule {
        name: "pattern_properties",
        doc: "Arguments by pattern: a prompt cannot name them.",
        check: schemas::pattern_properties,
    },
    LintRule {
        name: "untyped_array",
        doc: "An array without a type for its items.",
        check: schemas::untyped_array,
    },
    LintRule {
        name: "hard_in_tags",
        doc: "A value that raw tags express only by convention: an object, or a string that could be another type too.",
        check: schemas::hard_in_tags,
    },
    LintRule {
        name: "undeclared_required",
        doc: "A required argument that is not declared.",
        check: schemas::undeclared_required,
    },
    LintRule {
        name: "contradiction",
        doc: "An `enum`, `default` or example that the schema itself refuses.",
        check: schemas::contradiction,
    },
    LintRule {
        name: "missing_description",
        doc: "A tool or an argument without a description, or a tool without an example.",
        check: prompting::missing_description,
    },
    LintRule {
        name: "prompt_size",
        doc: "A prompt of more than 3,000 tokens (bytes / 4), which every request contains.",
        check: prompting::prompt_size,
    },
];

/// Checks a list of tools (`[{name, description, parameters, examples}]`) with all rules.
///
/// The findings are in the order of the list; for each tool errors come first.
///
/// Never fails: a list that is not an array has no findings, and an element that is not a tool is one.
pub fn lint_tools(tools: &Value, scope: &LintScope) -> Vec<LintFinding> {
    let tools = LintInput::new(tools, scope);
    let mut findings = LintFindings::default();
    for lint in &LINTS {
        findings.lint = lint.name;
        (lint.check)(&tools, &mut findings);
    }
    let mut found = findings.found;
    found.sort_by_key(|(at, finding)| (*at, finding.severity == Severity::Warning));
    found.into_iter().map(|(_, finding)| finding).collect()
}

impl LintScope {
    /// Every dialect of the set, and every wire.
    pub fn all(known: &DialectSet) -> Self {
        Self {
            known: known.clone(),
            dialects: known.iter().copied().collect(),
            wires: true,
        }
    }

    /// One dialect of the set, and no wire.
    pub fn for_dialect(known: &DialectSet, dialect: &Dialect) -> Self {
        Self {
            known: known.clone(),
            dialects: vec![*dialect],
            wires: false,
        }
    }

    /// Returns the names of the dialects for which the predicate holds.
    fn dialect_names(&self, holds: impl Fn(&Dialect) -> bool) -> Vec<&'static str> {
        self.dialects
            .iter()
            .filter(|dialect| holds(dialect))
            .map(|dialect| dialect.name)
            .collect()
    }
}

/// The input of the rules.
/// Elements that are not tools stay in the list, so that indexes are those of the author's file.
struct LintInput<'a> {
    list: Vec<ToolEntry<'a>>,
    scope: &'a LintScope,
    /// The tools that can be offered at all.
    set: ToolSet,
}

/// One element of the list.
struct ToolEntry<'a> {
    at: usize,
    raw: &'a Value,
    spec: Result<ToolSpec, serde_json::Error>,
}

/// The findings so far, each with the tool's index in the list.
/// The rule that is running is set by `lint_tools`, so that no rule has to repeat its own name.
#[derive(Default)]
struct LintFindings {
    lint: &'static str,
    found: Vec<(usize, LintFinding)>,
}

impl<'a> LintInput<'a> {
    /// Reads the list; an element that cannot be read keeps its error for the rule `not_a_tool`.
    fn new(tools: &'a Value, scope: &'a LintScope) -> Self {
        let read = |(at, raw): (usize, &'a Value)| ToolEntry {
            at,
            raw,
            spec: serde_json::from_value(raw.clone()),
        };
        let list: Vec<_> = tools
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(read)
            .collect();
        // Each tool is tried alone, so that one bad definition does not hide the others from the
        // rules.
        let mut usable: Vec<ToolSpec> = Vec::new();
        for spec in list.iter().filter_map(|item| item.spec.as_ref().ok()) {
            // Of two equal names the first is kept: `ToolSet` refuses duplicates, and
            // `doubled_name` reports the second.
            if usable.iter().all(|known| known.name != spec.name)
                && ToolSet::new(vec![spec.clone()]).is_ok()
            {
                usable.push(spec.clone());
            }
        }
        Self {
            list,
            scope,
            set: ToolSet::new(usable).unwrap_or_default(),
        }
    }

    /// Returns the elements that are tools, with their indexes.
    fn tool_specs(&self) -> impl Iterator<Item = (usize, &ToolSpec)> {
        self.list
            .iter()
            .filter_map(|item| Some((item.at, item.spec.as_ref().ok()?)))
    }
}

impl LintFindings {
    /// Adds a finding; `path` is a JSON pointer below the tool at index `at`.
    fn push(&mut self, at: usize, tool: &str, path: &str, about: FindingDetails) {
        let FindingDetails {
            severity,
            dialects,
            message,
            hint,
        } = about;
        let tool = Some(tool.to_owned()).filter(|name| !name.is_empty());
        let pointer = format!("/{at}{path}");
        self.found.push((
            at,
            LintFinding {
                lint: self.lint,
                severity,
                tool,
                pointer,
                dialects,
                message,
                hint,
            },
        ));
    }
}

/// The content of a finding, without its position.
struct FindingDetails {
    severity: Severity,
    dialects: Vec<&'static str>,
    message: String,
    hint: String,
}

impl FindingDetails {
    /// Makes a finding that makes the tool unusable, in every dialect until `with_dialects` says
    /// otherwise.
    fn error(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            dialects: Vec::new(),
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Makes a finding about a tool that works, but on which models or providers will stumble.
    fn warning(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(message, hint)
        }
    }

    /// Limits the finding to these dialects.
    fn with_dialects(self, dialects: Vec<&'static str>) -> Self {
        Self { dialects, ..self }
    }
}

/// Escapes a key as a segment of a JSON pointer (RFC 6901).
fn pointer_segment(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Returns the pointer to an argument's declaration, below its tool.
fn argument_path(name: &str) -> String {
    format!("/parameters/properties{}", pointer_segment(name))
}
