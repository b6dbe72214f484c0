//! Rules about names: those that a dialect or a provider cannot express, that have another meaning, or that are easily confused.

use sabir_call::dialect::ParserKind;
use sabir_call::{ToolError, ToolSet};

use super::{FindingDetails, LintFindings, LintInput, argument_path};

/// Tags whose content is reasoning, in every dialect.
const THINKING_TAGS: [&str; 2] = ["thinking", "think"];

/// The hard keywords of Python 3. Soft ones (`match`, `case`, `type`, `_`) are valid names of
/// functions and arguments.
const PYTHON_KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// Reports elements that cannot be deserialized as a tool, with serde's reason.
pub(super) fn not_a_tool(tools: &LintInput<'_>, found: &mut LintFindings) {
    for item in &tools.list {
        if let Err(error) = &item.spec {
            let name = item
                .raw
                .get("name")
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default();
            let message = format!("this is not a tool: {error}");
            found.push(
                item.at,
                name,
                "",
                FindingDetails::error(message, "write {\"name\", \"description\", \"parameters\"}"),
            );
        }
    }
}

/// Reports every tool with the name of an earlier one: a call has only the name, so it could not choose between the two.
pub(super) fn doubled_name(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        if let Some((first, _)) = tools
            .tool_specs()
            .find(|(_, other)| other.name == spec.name)
            .filter(|(first, _)| *first < at)
        {
            let message = format!(
                "the tool `{}` is defined twice, first at /{first}",
                spec.name
            );
            found.push(
                at,
                &spec.name,
                "/name",
                FindingDetails::error(message, "give each tool a name of its own"),
            );
        }
    }
}

/// Reports names with white space or markup characters, by the same check that `ToolSet` applies
/// when a task starts.
pub(super) fn unwritable_name(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        // The name alone with empty parameters, so that a bad schema is not taken for a bad name.
        let bare = sabir_call::ToolSpec::new(spec.name.clone(), "", serde_json::json!({}));
        if let Err(ToolError::Name(name)) = ToolSet::new(vec![bare]) {
            let message = format!("`{name}` cannot be a tool's name");
            let hint = "use letters, digits, `_`, `-`, `.` or `:`, and at least one of them";
            found.push(at, &name, "/name", FindingDetails::error(message, hint));
        }
    }
}

/// Reports names that OpenAI and Anthropic refuse with an HTTP 400 for the whole request, so that
/// one bad name disables every tool.
pub(super) fn wire_name(tools: &LintInput<'_>, found: &mut LintFindings) {
    // Both providers document the pattern ^[a-zA-Z0-9_-]{1,64}$ for names of functions.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    for (at, spec) in tools.tool_specs().filter(|_| tools.scope.wires) {
        let name = &spec.name;
        if name.len() > 64 {
            let message = format!(
                "the tool's name has {} bytes; OpenAI and Anthropic refuse more than 64",
                name.len()
            );
            found.push(
                at,
                name,
                "/name",
                FindingDetails::error(message, "choose a shorter name"),
            );
        }
        if !name.is_empty() && !name.bytes().all(allowed) {
            let message = format!(
                "OpenAI and Anthropic refuse the name `{name}`: they demand ^[a-zA-Z0-9_-]{{1,64}}$"
            );
            found.push(
                at,
                name,
                "/name",
                FindingDetails::error(message, "use ASCII letters, digits, `_` and `-`"),
            );
        }
    }
}

/// Reports tools and arguments whose tag already has a meaning.
///
/// It matters only for dialects that write the tool's own name as a tag (`<read_file>`). A tool `thinking` is an error, because the reader
/// takes its tag for reasoning and never emits a call.
pub(super) fn reserved_name(tools: &LintInput<'_>, found: &mut LintFindings) {
    let own = tools.scope.dialect_names(|dialect| dialect.has_own_tags());
    if own.is_empty() {
        return;
    }
    // A task never listens for one dialect alone, so the tags of all dialects count.
    let owners = |name: &str| -> Vec<&'static str> {
        let marker = format!("<{name}>");
        let has = |dialect: &&sabir_call::dialect::Dialect| {
            dialect.tag_names().contains(&name) || dialect.marker_texts().contains(&marker.as_str())
        };
        tools
            .scope
            .known
            .iter()
            .filter(|dialect| has(dialect))
            .map(|dialect| dialect.name)
            .collect()
    };
    for (at, spec) in tools.tool_specs() {
        let name = spec.name.as_str();
        let arguments = spec
            .declared_arguments()
            .map(|argument| (argument.name, argument_path(argument.name), "argument"));
        for (named, path, what) in
            std::iter::once((name, "/name".to_owned(), "tool")).chain(arguments)
        {
            if THINKING_TAGS.contains(&named) && what == "tool" {
                let message = format!(
                    "a tool `{named}` is never called in tags: `<{named}>` opens a thought"
                );
                let about = FindingDetails::error(message, "choose another name")
                    .with_dialects(own.clone());
                found.push(at, name, &path, about);
                continue;
            }
            let owners = owners(named);
            if THINKING_TAGS.contains(&named) || !owners.is_empty() {
                let whose = if owners.is_empty() {
                    "a thought".to_owned()
                } else {
                    format!("calls in {}", owners.join(", "))
                };
                let message =
                    format!("the {what} `{named}` is named like the tag `<{named}>` of {whose}");
                let about = FindingDetails::warning(
                    message,
                    "choose another name, so that a tag has one meaning",
                );
                found.push(at, name, &path, about.with_dialects(own.clone()));
            }
        }
    }
}

/// Reports arguments with the tag of a tool: inside `<a><b>` a reader cannot tell an argument `b`
/// from a second call that begins before the first was closed.
pub(super) fn argument_like_tool(tools: &LintInput<'_>, found: &mut LintFindings) {
    let own = tools.scope.dialect_names(|dialect| dialect.has_own_tags());
    for (at, spec) in tools.tool_specs().filter(|_| !own.is_empty()) {
        for argument in spec.declared_arguments() {
            let Some((_, other)) = tools
                .tool_specs()
                .find(|(_, other)| other.name == argument.name)
            else {
                continue;
            };
            let whose = if other.name == spec.name {
                "its own tool"
            } else {
                "another tool"
            };
            let message = format!(
                "the argument `{}` of `{}` has the tag of {whose}",
                argument.name, spec.name
            );
            let about = FindingDetails::warning(message, "rename the argument or the tool")
                .with_dialects(own.clone());
            found.push(at, &spec.name, &argument_path(argument.name), about);
        }
    }
}

/// Reports names that disable the rules `wrong_case_name` and `wrong_case_argument` for each other.
pub(super) fn case_collision(tools: &LintInput<'_>, found: &mut LintFindings) {
    let collide =
        |one: &str, other: &str| one != other && one.to_lowercase() == other.to_lowercase();
    report_name_pairs(tools, found, collide, |one, other| {
        let message = format!(
            "`{other}` and `{one}` differ only in case, so a slip in case can no longer be set right"
        );
        FindingDetails::warning(message, "choose names that differ in their letters")
    });
}

/// Reports names that differ only in separators or by one edit. Models confuse them, and the rules `near_name` and `near_argument` cannot
/// choose among them.
pub(super) fn near_names(tools: &LintInput<'_>, found: &mut LintFindings) {
    let near = |one: &str, other: &str| {
        let one = one.to_lowercase();
        let other = other.to_lowercase();
        // Short names (`get`, `set`) are one edit apart too often for that to matter.
        one != other
            && (strip_separators(&one) == strip_separators(&other)
                || (one.len().min(other.len()) >= 6 && is_one_edit_apart(&one, &other)))
    };
    report_name_pairs(tools, found, near, |one, other| {
        let message = format!("`{other}` and `{one}` are so near that a model will mix them up");
        FindingDetails::warning(message, "choose names that differ in a word")
    });
}

/// Reports the pairs of tool names, and of argument names of one tool, for which `holds` returns true.
/// Each name is compared with the earlier ones and reported once, with the first that matches. That
/// is quadratic in the number of tools, which is small and comes from the author, not the model.
fn report_name_pairs(
    tools: &LintInput<'_>,
    found: &mut LintFindings,
    holds: impl Fn(&str, &str) -> bool,
    about: impl Fn(&str, &str) -> FindingDetails,
) {
    let all: Vec<_> = tools.tool_specs().collect();
    for (place, (at, spec)) in all.iter().enumerate() {
        let mut before = all.iter().take(place).map(|(_, other)| other.name.as_str());
        if let Some(other) = before.find(|other| holds(&spec.name, other)) {
            found.push(*at, &spec.name, "/name", about(&spec.name, other));
        }
        let names: Vec<_> = spec
            .declared_arguments()
            .map(|argument| argument.name)
            .collect();
        for (place, name) in names.iter().enumerate() {
            if let Some(other) = names.iter().take(place).find(|other| holds(name, other)) {
                found.push(*at, &spec.name, &argument_path(name), about(name, other));
            }
        }
    }
}

/// Keeps letters and digits only.
fn strip_separators(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Returns true if one insertion, deletion, replacement or swap of neighbours turns one name into the other.
///
/// A difference in digits alone does not count: `line1` and `line2` are distinct enough.
fn is_one_edit_apart(one: &str, other: &str) -> bool {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    // The edit remains between the common beginning and the common end.
    let head = short.iter().zip(&long).take_while(|(a, b)| a == b).count();
    let rest = short.len() - head;
    let tail = short
        .iter()
        .rev()
        .zip(long.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();
    let left = rest - tail;
    let right = long.len() - head - tail;
    let differing = short
        .iter()
        .skip(head)
        .take(left)
        .chain(long.iter().skip(head).take(right));
    // Also true if nothing differs, so equal names never reach the comparison below.
    if differing.clone().all(|c| c.is_ascii_digit()) {
        return false;
    }
    // Two neighbours that changed places, the commonest typing error of people.
    let exchanged = || {
        let mut letters: Vec<char> = short.iter().skip(head).take(left).copied().collect();
        letters.reverse();
        long.iter().skip(head).take(right).eq(letters.iter())
    };
    matches!((left, right), (0 | 1, 1)) || ((left, right) == (2, 2) && exchanged())
}

/// Reports an argument with an empty or blank name: parsers deliver the unread rest of arguments
/// under the empty name, so it can never be addressed.
pub(super) fn empty_argument(tools: &LintInput<'_>, found: &mut LintFindings) {
    for (at, spec) in tools.tool_specs() {
        if spec
            .declared_arguments()
            .any(|argument| argument.name.trim().is_empty())
        {
            let message = format!("`{}` has an argument without a name", spec.name);
            found.push(
                at,
                &spec.name,
                "/parameters/properties",
                FindingDetails::error(message, "give it a name"),
            );
        }
    }
}

/// Reports keywords as names: `f(from="a")` is a syntax error, so models rename the argument.
pub(super) fn python_keyword(tools: &LintInput<'_>, found: &mut LintFindings) {
    check_python_names(
        tools,
        found,
        |name| PYTHON_KEYWORDS.contains(&name),
        "is a keyword of Python",
    );
}

/// Reports names that Python cannot write, such as `read-file`, which reads as a subtraction.
pub(super) fn python_identifier(tools: &LintInput<'_>, found: &mut LintFindings) {
    let identifier = |name: &str| {
        let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        plain && !name.starts_with(|c: char| c.is_numeric()) && !name.is_empty()
    };
    // A tool's name may have dots, as in `module.function`.
    let odd = |name: &str| !name.is_empty() && !name.split('.').all(identifier);
    check_python_names(
        tools,
        found,
        odd,
        "is not an identifier of Python, so that models will write it in another way",
    );
}

/// Reports every name of a tool and its arguments for which `holds` returns true, if a dialect with
/// Python's notation is in the scope.
fn check_python_names(
    tools: &LintInput<'_>,
    found: &mut LintFindings,
    holds: impl Fn(&str) -> bool,
    why: &str,
) {
    let dialects = tools
        .scope
        .dialect_names(|dialect| dialect.parser_kind() == ParserKind::Python);
    for (at, spec) in tools.tool_specs().filter(|_| !dialects.is_empty()) {
        let arguments = spec
            .declared_arguments()
            .map(|argument| (argument.name, argument_path(argument.name)));
        for (name, path) in
            std::iter::once((spec.name.as_str(), "/name".to_owned())).chain(arguments)
        {
            if holds(name) {
                let about = FindingDetails::warning(
                    format!("`{name}` {why}"),
                    "use letters, digits and `_`, and no keyword",
                );
                found.push(at, &spec.name, &path, about.with_dialects(dialects.clone()));
            }
        }
    }
}
