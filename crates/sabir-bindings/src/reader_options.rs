//! Reads the options that all functions share.

use sabir_call::dialect::{Dialect, DialectSet, DialectTable};
use sabir_call::{CallReader, ParallelCalls, ToolSet};
use sabir_check::{CallChecker, RepairSet};
use sabir_toolbox::UnknownDialect;
use sabir_toolbox::parse::{ParseOptions, parse_tools};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::{BindingError, json_error_span};

/// The name of the repair that accepts a last call without its closing markup.
const MISSING_LAST_CLOSE: &str = "missing_last_close";

/// The options as a JSON object. Every member may be left out.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OptionsObject<'j> {
    /// The dialect to read or write; `auto` reads all.
    dialect: String,
    /// The tools, in the shape of OpenAI, Anthropic, Gemini, Bedrock or MCP.
    #[serde(borrow)]
    tools: Option<&'j RawValue>,
    /// The end of the prompt that the text continues, such as `<think>`.
    prefill: String,
    /// True if a last call without its closing markup is accepted.
    closes_last_call: bool,
    /// True if a message may have only one call.
    single_call: bool,
    /// True if markup is reported with its role.
    marks: bool,
    /// Dialects besides the built-in ones, as tables.
    dialects: Vec<DialectTable>,
    /// Repair rules that are switched on or off, by name.
    repairs: Vec<(String, bool)>,
    /// True if OpenAI deltas hold each call back until it is complete.
    whole_calls: bool,
    /// The beginning of the ids of calls in OpenAI deltas.
    id_prefix: String,
}

impl Default for OptionsObject<'_> {
    fn default() -> Self {
        Self {
            dialect: "auto".to_owned(),
            tools: None,
            prefill: String::new(),
            closes_last_call: false,
            single_call: false,
            marks: false,
            dialects: Vec::new(),
            repairs: Vec::new(),
            whole_calls: false,
            id_prefix: "call_".to_owned(),
        }
    }
}

/// The settings of a reader, a check or a prompt.
///
/// They are read from a JSON object, all of whose members may be left out:
///
/// | member | meaning |
/// | --- | --- |
/// | `dialect` | the name or alias of the dialect; `auto`, the default, reads all |
/// | `tools` | the tools, in the shape of OpenAI, Anthropic, Gemini, Bedrock or MCP; an array, or an object that holds one |
/// | `prefill` | the end of the prompt that the text continues, such as `<think>` |
/// | `closes_last_call` | `true` accepts a last call that lacks only its closing markup |
/// | `single_call` | `true` rejects all calls of a message but the first |
/// | `marks` | `true` reports markup and its role as events |
/// | `dialects` | tables of more dialects, as in docs/dialects.md |
/// | `whole_calls` | `true` holds all calls back until the end of the text, and leaves out those that are only mentioned or unreadable; for [`OpenAiDeltas`](crate::OpenAiDeltas) |
/// | `id_prefix` | the beginning of the ids of calls, `call_` by default; for [`OpenAiDeltas`](crate::OpenAiDeltas) |
/// | `repairs` | pairs of a repair rule, or `all`, and `true` or `false`, applied in order; all are on but `missing_last_close`, which is the same as `closes_last_call` |
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    pub(crate) dialects: DialectSet,
    /// The name of the one dialect; `None` reads all.
    dialect: Option<&'static str>,
    pub(crate) tools: ToolSet,
    pub(crate) marks: bool,
    pub(crate) single_call: bool,
    prefill: String,
    closes_last_call: bool,
    repairs: RepairSet,
    pub(crate) whole_calls: bool,
    pub(crate) id_prefix: String,
}

impl ReaderOptions {
    /// Reads options from a JSON object; an empty text means the defaults.
    ///
    /// # Errors
    /// The text is no such object, or a name or value in it is unknown.
    pub fn from_json(json: &str) -> Result<Self, BindingError> {
        let object: OptionsObject<'_> = match json.trim() {
            "" => OptionsObject::default(),
            _ => serde_json::from_str(json).map_err(|error| BindingError::InvalidOptions {
                span: json_error_span(&error, json),
                message: error.to_string(),
            })?,
        };
        let mut dialects = DialectSet::default();
        // Before the name is looked up, since it may be that of one of these.
        for table in &object.dialects {
            dialects.define(table)?;
        }
        let dialect = match object.dialect.as_str() {
            "auto" => None,
            name => Some(find_dialect(&dialects, name)?.name),
        };
        let mut repairs = RepairSet::all();
        let mut closes_last_call = object.closes_last_call;
        for (rule, is_on) in &object.repairs {
            repairs = match rule.as_str() {
                "all" if *is_on => RepairSet::all(),
                "all" => RepairSet::none(),
                // The reader applies this one, not the checks.
                MISSING_LAST_CLOSE => {
                    closes_last_call = *is_on;
                    repairs
                }
                rule if *is_on => repairs
                    .with_rule(rule)
                    .ok_or_else(|| unknown_repair(rule))?,
                rule => repairs
                    .without_rule(rule)
                    .ok_or_else(|| unknown_repair(rule))?,
            };
        }
        Ok(Self {
            dialects,
            dialect,
            tools: object
                .tools
                .map_or_else(|| Ok(ToolSet::default()), |tools| read_tools(tools.get()))?,
            marks: object.marks,
            single_call: object.single_call,
            prefill: object.prefill,
            closes_last_call,
            repairs,
            whole_calls: object.whole_calls,
            id_prefix: object.id_prefix,
        })
    }

    /// Returns the same options with the tools of a JSON text, in any of the known shapes.
    ///
    /// # Errors
    /// The text is no list of tools.
    pub fn with_tools_json(self, tools: &str) -> Result<Self, BindingError> {
        let tools = read_tools(tools)?;
        Ok(Self { tools, ..self })
    }

    /// Returns the options if this build can validate calls against the schemas of all tools, as a build with the feature `validator` can.
    /// Functions that check calls must call this first; readers, [`render_calls`](crate::render_calls) and
    /// [`render_tool_prompt`](crate::render_tool_prompt) check none.
    ///
    /// # Errors
    /// The schema of a tool has keywords that this build does not support.
    pub fn require_supported_schemas(self) -> Result<Self, BindingError> {
        match self
            .tools
            .iter()
            .find(|tool| !sabir_check::can_validate_schema(&tool.parameters))
        {
            Some(tool) => Err(BindingError::UnsupportedSchema {
                tool: tool.name.clone(),
            }),
            None => Ok(self),
        }
    }

    /// Returns the same options with other tools.
    pub(crate) fn with_tools(&self, tools: ToolSet) -> Self {
        Self {
            tools,
            ..self.clone()
        }
    }

    /// Returns the chosen dialect; `None` means all.
    pub(crate) fn chosen_dialect(&self) -> Option<&Dialect> {
        self.dialect.and_then(|name| self.dialects.find(name))
    }

    /// Returns the dialect to write.
    ///
    /// # Errors
    /// None was named.
    pub(crate) fn written_dialect(&self) -> Result<&Dialect, BindingError> {
        self.chosen_dialect().ok_or(BindingError::NoDialect)
    }

    /// Returns the number of calls that a message may have.
    pub(crate) fn parallel_calls(&self) -> ParallelCalls {
        if self.single_call {
            ParallelCalls::One
        } else {
            ParallelCalls::Many
        }
    }

    /// Creates a reader with these settings.
    pub(crate) fn create_reader(&self) -> CallReader {
        let selection = match self.chosen_dialect() {
            None => self.dialects.all(),
            Some(dialect) => self.dialects.only(dialect),
        };
        CallReader::new(selection.with_prefill(&self.prefill), &self.tools)
            .with_missing_last_close(self.closes_last_call)
    }

    /// Creates the checks with these settings.
    pub(crate) fn create_checker(&self) -> CallChecker {
        CallChecker::new(self.tools.clone())
            .with_repairs(self.repairs)
            .with_parallel(self.parallel_calls())
    }

    /// Returns the settings for parsing a whole text.
    pub(crate) fn parse_options(&self) -> ParseOptions<'_> {
        ParseOptions {
            dialects: &self.dialects,
            dialect: self.chosen_dialect(),
            tools: self.tools.clone(),
            repairs: self.repairs,
            parallel_calls: self.parallel_calls(),
            chunk_bytes: 0,
            prefill: self.prefill.clone(),
            closes_last_call: self.closes_last_call,
        }
    }
}

/// Creates the error for a rule that does not exist.
fn unknown_repair(rule: &str) -> BindingError {
    BindingError::UnknownRepair(rule.to_owned())
}

/// Finds a dialect by name or alias; `Qwen-Coder` is `qwen_coder`.
pub(crate) fn find_dialect<'d>(
    dialects: &'d DialectSet,
    name: &str,
) -> Result<&'d Dialect, BindingError> {
    dialects
        .find(name)
        .or_else(|| dialects.find(&name.trim().to_lowercase().replace('-', "_")))
        .ok_or_else(|| UnknownDialect::new(dialects, name, "auto, ").into())
}

/// Reads a list of tools in any known shape. JSON `null` is the empty list.
pub(crate) fn read_tools(json: &str) -> Result<ToolSet, BindingError> {
    if json.trim() == "null" {
        return Ok(ToolSet::default());
    }
    parse_tools(json, "tools").map_err(|error| {
        let syntax = serde_json::from_str::<serde::de::IgnoredAny>(json).err();
        BindingError::InvalidTools {
            message: error.to_string(),
            span: syntax.and_then(|error| json_error_span(&error, json)),
        }
    })
}
