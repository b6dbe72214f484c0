//! Types the arguments of a call one by one, while the call is still being written.
//!
//! The checks apply to complete calls. The gateway forwards calls while they arrive and cannot wait for that; this module tells
//! it what is certain earlier. The main decision: **what depends on the schema only is answered at once, what depends on the
//! value waits for the value, and nothing is rejected.** The same coercion as in the checks makes the types, so that a call
//! forwarded in pieces is the call that the checks would have produced.
//!
//! | known | certain |
//! | --- | --- |
//! | the call's name | the tool, if its name is exact or needs only the rule `wrong_case_name` |
//! | an argument's name, and the names before it | the declared argument that is meant |
//! | its form, and the first byte of JSON | the [`StreamingMode`] |
//! | its text | the value |
//!
//! Unsupported, because they need the whole call: `near_name`; a declared argument that comes after an alias of it; the
//! comma that must precede a rest that is not strict JSON.

use sabir_call::{ArgumentEncoding, DraftArgument, Span, ToolSpec};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::call_checker::CallChecker;
use crate::coerce::{self, CoercedValue};
use crate::repair::{UndeclaredArgument, UndeclaredTool};
use crate::schema::{JsonTypes, SchemaView};
use crate::trailing_arguments;
use crate::validate::is_argument_refused;

/// The way in which an argument may be forwarded.
///
/// The choice is final: a client that has received the first piece cannot take it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingMode {
    /// Forwarded as a string, piece by piece.
    Text,
    /// Forwarded as JSON, piece by piece, for as long as it is strict JSON; the caller must check that, the parsers do not.
    Json,
    /// Forwarded once its text is complete, because the value depends on all of it.
    Whole,
}

/// The meaning of an argument's complete text.
#[derive(Debug, Clone, PartialEq)]
pub enum CoercionOutcome {
    /// This value, and the names of the repair rules that were needed.
    Value(Value, Vec<&'static str>),
    /// The text itself: JSON for an argument in JSON form, else a string. The schema may still reject it.
    AsWritten,
    /// Invalid JSON that no repair rule can read.
    Unreadable,
    /// The argument is treated as left out, by this rule.
    LeftOut(&'static str),
}

impl CallChecker {
    /// Finds the tool that a name means regardless of the arguments, and the repair rule that was needed.
    ///
    /// `None` does not reject the call: the checks may still resolve the name by the arguments, so the caller must wait for the whole call.
    pub fn guess_tool(&self, name: &str) -> Option<(&ToolSpec, Option<&'static str>)> {
        if let Some(tool) = self.tools().get(name) {
            return Some((tool, None));
        }
        let called = UndeclaredTool {
            name,
            tools: self.tools(),
            given: &[],
        };
        let (rule, meant) = self
            .repairs()
            .resolve_tool(&called)
            // The only rule whose answer does not depend on the arguments, none of which is known
            // here.
            .filter(|(rule, _)| *rule == "wrong_case_name")?;
        Some((self.tools().get(&meant)?, Some(rule)))
    }

    /// Finds the argument that an undeclared name means, given the names of the arguments before it, and the repair rule that was needed.
    ///
    /// Later arguments are unknown. If the declared argument itself follows, the checks would not
    /// have renamed this one.
    pub fn guess_argument(
        &self,
        tool: &ToolSpec,
        name: &str,
        before: &[String],
    ) -> Option<(&'static str, String)> {
        let shape = SchemaView::new(&tool.parameters);
        let declared = shape.property_names();
        let required = shape.required_names();
        if declared.contains(&name) {
            return None;
        }
        // The name itself belongs to the list: the rules count the rivals of a name including it.
        let given: Vec<&str> = before.iter().map(String::as_str).chain([name]).collect();
        let slot = UndeclaredArgument {
            name,
            declared: &declared,
            required: &required,
            given: &given,
            closed: shape.is_closed(),
        };
        // An argument that was given already cannot be meant again.
        self.repairs()
            .resolve_argument(&slot)
            .filter(|(_, meant)| !before.contains(meant))
    }

    /// Chooses how an argument may be forwarded.
    ///
    /// `first` is the first byte of its text that is not white space. It matters for JSON only, and `None` makes JSON wait.
    ///
    /// Only arrays and objects stream as JSON. A number could be split inside its digits, and
    /// `10.0` may become `10`, so scalars wait; they are short anyway.
    pub fn streaming_mode(
        &self,
        tool: &ToolSpec,
        argument: &str,
        form: ArgumentEncoding,
        first: Option<u8>,
    ) -> StreamingMode {
        let shape = SchemaView::new(&tool.parameters).property_schema(argument);
        let types = shape.allowed_types();
        let may = |one: JsonTypes| types.is_none_or(|types| types.has(one));
        match (form, first) {
            (ArgumentEncoding::Json, Some(b'[')) if may(JsonTypes::ARRAY) => StreamingMode::Json,
            (ArgumentEncoding::Json, Some(b'{')) if may(JsonTypes::OBJECT) => StreamingMode::Json,
            (ArgumentEncoding::Json, _) => StreamingMode::Whole,
            // Either only a string is allowed, or every string is: no later byte can change the
            // type.
            _ if types.is_none_or(|types| types == JsonTypes::STRING) || shape.is_free_text() => {
                StreamingMode::Text
            }
            _ => StreamingMode::Whole,
        }
    }

    /// Coerces the complete text of an argument to the value that the checks would give it.
    pub fn coerce_argument(
        &self,
        tool: &ToolSpec,
        argument: &str,
        form: ArgumentEncoding,
        text: &str,
    ) -> CoercionOutcome {
        let whole = SchemaView::new(&tool.parameters);
        let shape = whole.property_schema(argument);
        let types = shape.allowed_types();
        let null = form == ArgumentEncoding::Json
            && text.trim() == "null"
            && !whole.required_names().contains(&argument);
        if null
            && types.is_some_and(|types| !types.has(JsonTypes::NULL))
            && self.repairs().has_rule("null_argument")
        {
            return CoercionOutcome::LeftOut("null_argument");
        }
        let read = |types| coerce::coerce_value(text, form, shape, types, self.repairs());
        // As in the checks, a union that allows strings keeps the text unless the schema rejects
        // it.
        let others =
            types.filter(|types| types.has(JsonTypes::STRING) && form != ArgumentEncoding::Json);
        let others = others
            .map(|types| types.without(JsonTypes::STRING))
            .filter(|types| !types.is_empty());
        if let Some(others) = others {
            let refused = |value: &Value| self.is_refused(tool, argument, value);
            let other = || {
                read(Some(others))
                    .ok()
                    .filter(|other| !refused(&other.value))
            };
            let other = if refused(&Value::from(text)) {
                other()
            } else {
                None
            };
            return other.map_or(
                CoercionOutcome::AsWritten,
                |CoercedValue { value, rules }| CoercionOutcome::Value(value, rules),
            );
        }
        match read(types) {
            Ok(CoercedValue { value, rules })
                if rules.is_empty() && is_unchanged(form, text, &value) =>
            {
                CoercionOutcome::AsWritten
            }
            Ok(CoercedValue { value, rules }) => CoercionOutcome::Value(value, rules),
            Err(_)
                if form == ArgumentEncoding::Json
                    && serde_json::from_str::<IgnoredAny>(text).is_err() =>
            {
                CoercionOutcome::Unreadable
            }
            // A text of the wrong type, or JSON that only `parse_strict` refuses. The checks report
            // it; here it is not changed.
            Err(_) => CoercionOutcome::AsWritten,
        }
    }

    /// Reads the arguments in an argument without a name, which is the rest of an object that stopped being strict JSON.
    ///
    /// `first` is true if no argument was read before it. Returns the repair rules that were needed and the arguments; `None` if the text
    /// cannot be read.
    ///
    /// The spans of the arguments carry no meaning, because the caller does not have the source
    /// text.
    pub fn parse_trailing_arguments(
        &self,
        form: ArgumentEncoding,
        text: &str,
        first: bool,
    ) -> Option<(Vec<&'static str>, Vec<DraftArgument>)> {
        let argument = DraftArgument {
            name: String::new(),
            form,
            text: text.to_owned(),
            partial: false,
            span: Span::default(),
        };
        let read = if first {
            trailing_arguments::parse_all_arguments(&argument, self.repairs())
        } else {
            trailing_arguments::parse_trailing_arguments(&argument, self.repairs())
        };
        read.ok()
    }

    /// Returns true if the tool's schema rejects this value of the argument.
    ///
    /// Only errors inside this argument count: the missing other arguments cause errors with another path.
    fn is_refused(&self, tool: &ToolSpec, argument: &str, value: &Value) -> bool {
        let arguments = Value::Object(Map::from_iter([(argument.to_owned(), value.clone())]));
        self.compiled_schema(tool)
            .is_some_and(|schema| is_argument_refused(schema, &arguments, argument))
    }
}

/// Returns true if the value is exactly the text as written.
fn is_unchanged(form: ArgumentEncoding, text: &str, value: &Value) -> bool {
    match form {
        ArgumentEncoding::Json => {
            serde_json::from_str::<Value>(text).is_ok_and(|written| written == *value)
        }
        _ => value.as_str() == Some(text),
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::ToolSet;
    use serde_json::json;

    use super::*;

    fn checker() -> CallChecker {
        let tools = json!([{"name": "edit", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "count": {"type": "integer"}, "all": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "string"}}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "mode": {"enum": ["fast", 1, true]}, "any": {}}, "required": ["path"]}}]);
        CallChecker::new(ToolSet::from_json(&tools.to_string()).unwrap())
    }

    #[test]
    fn names_are_known_at_their_start() {
        let checker = checker();
        let tool = |name| {
            checker
                .guess_tool(name)
                .map(|(tool, rule)| (tool.name.clone(), rule))
        };
        assert_eq!(tool("edit"), Some(("edit".to_owned(), None)));
        assert_eq!(
            tool("Edit"),
            Some(("edit".to_owned(), Some("wrong_case_name")))
        );
        // Only the arguments could tell whether it is meant.
        assert_eq!((tool("e-dit"), tool("erase")), (None, None));

        let (edit, _) = checker.guess_tool("edit").unwrap();
        let check = |name: &str, before: &[&str], expected: Option<(&'static str, &str)>| {
            let before: Vec<String> = before.iter().map(ToString::to_string).collect();
            let meant = checker.guess_argument(edit, name, &before);
            assert_eq!(
                meant,
                expected.map(|(rule, meant)| (rule, meant.to_owned())),
                "{name}"
            );
        };
        check("path", &[], None);
        check("Path", &[], Some(("wrong_case_argument", "path")));
        check("Path", &["path"], None);
        check("file_path", &["count"], Some(("argument_alias", "path")));
        check("file_path", &["path"], None);
        check("other", &[], None);
    }

    #[test]
    fn values_that_need_their_end_are_not_streamed() {
        use ArgumentEncoding::{Json, Raw, String};
        let checker = checker();
        let (edit, _) = checker.guess_tool("edit").unwrap();
        let check =
            |argument: &str, form: ArgumentEncoding, first: Option<u8>, expected: StreamingMode| {
                assert_eq!(
                    checker.streaming_mode(edit, argument, form, first),
                    expected,
                    "{argument} {form:?}"
                );
            };
        for form in [Raw, String] {
            check("path", form, None, StreamingMode::Text);
            check("note", form, None, StreamingMode::Text);
            check("any", form, None, StreamingMode::Text);
            check("unknown", form, None, StreamingMode::Text);
            check("mode", form, None, StreamingMode::Whole);
            check("count", form, None, StreamingMode::Whole);
            check("list", form, None, StreamingMode::Whole);
        }
        check("list", Json, Some(b'['), StreamingMode::Json);
        check("any", Json, Some(b'{'), StreamingMode::Json);
        check("list", Json, Some(b'{'), StreamingMode::Whole);
        check("path", Json, Some(b'1'), StreamingMode::Whole);
    }

    #[test]
    fn streamed_values_are_coerced_as_by_the_checker() {
        use ArgumentEncoding::{Json, Raw, String};
        let checker = checker();
        let (edit, _) = checker.guess_tool("edit").unwrap();
        let check =
            |argument: &str, form: ArgumentEncoding, text: &str, expected: CoercionOutcome| {
                assert_eq!(
                    checker.coerce_argument(edit, argument, form, text),
                    expected,
                    "{argument} {form:?} {text}"
                );
            };
        let value =
            |value: Value, rules: &[&'static str]| CoercionOutcome::Value(value, rules.to_vec());
        check("count", Raw, "3", value(json!(3), &[]));
        check("count", Raw, " 3", value(json!(3), &["trimmed_scalar"]));
        check("count", Raw, "three", CoercionOutcome::AsWritten);
        check(
            "count",
            String,
            "3",
            value(json!(3), &["stringified_value"]),
        );
        check("count", Json, "3", CoercionOutcome::AsWritten);
        check("count", Json, "3.0", value(json!(3), &[]));
        check(
            "count",
            Json,
            "123456789012345678901234567890",
            CoercionOutcome::AsWritten,
        );
        check(
            "count",
            Json,
            "null",
            CoercionOutcome::LeftOut("null_argument"),
        );
        check("path", Json, "null", CoercionOutcome::AsWritten);
        check("count", Json, "oops", CoercionOutcome::Unreadable);
        check("list", Json, "[1,]", value(json!([1]), &["trailing_comma"]));
        check(
            "list",
            Json,
            r#"[{"a": 1, "a": 2}]"#,
            CoercionOutcome::AsWritten,
        );
        check("all", Raw, "True", value(json!(true), &[]));
        check(
            "list",
            String,
            "[\"a\"]",
            value(json!(["a"]), &["double_encoding"]),
        );
        check(
            "list",
            Raw,
            "<i>a</i><i>b</i>",
            value(json!(["a", "b"]), &[]),
        );
        check("note", Raw, "null", CoercionOutcome::AsWritten);
        check("mode", Raw, "fast", CoercionOutcome::AsWritten);
        check("mode", Raw, "1", value(json!(1), &[]));
        check("mode", Raw, "slow", CoercionOutcome::AsWritten);
    }

    #[test]
    fn trailing_arguments_are_parsed_with_repairs() {
        let checker = checker();
        let read = |form, text: &str, first| {
            let (rules, arguments) = checker.parse_trailing_arguments(form, text, first)?;
            let arguments = arguments
                .iter()
                .map(|argument| format!("{}={}", argument.name, argument.text));
            Some((rules, arguments.collect::<Vec<_>>().join(" ")))
        };
        let (json, string) = (ArgumentEncoding::Json, ArgumentEncoding::String);
        assert_eq!(
            read(json, "{'path': 'a'}", true),
            Some((vec!["single_quotes"], "path=a".to_owned()))
        );
        assert_eq!(
            read(string, "{\"path\": \"a\"}", true),
            Some((vec!["double_encoding"], "path=a".to_owned()))
        );
        assert_eq!(
            read(json, "'count': 2}", false),
            Some((vec!["single_quotes"], "count=2".to_owned()))
        );
        assert_eq!(read(json, "oops", false), None);
    }
}
