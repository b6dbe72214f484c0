//! Writes structural tags, XGrammar's form for text with calls in it.
//!
//! The model writes freely until it begins a call; from there on the grammar of that call applies.
//! A grammar is used even if the arguments are JSON, because XGrammar's own reader of schemas
//! accepts no escapes in strings with a length, a pattern or a format.

use sabir_call::ParallelCalls;
use sabir_call::dialect::LayoutPart;
use serde_json::{Value, json};

use super::write_gbnf;
use crate::builder::{CallGrammar, ToolRule};
use crate::{GrammarError, GrammarFormat};

/// Writes a structural tag.
///
/// # Errors
/// No marker begins a call, so ordinary text could begin one; or calls are numbered, and there may be many.
pub fn write_structural_tag(
    built: &CallGrammar,
    calls: ParallelCalls,
) -> Result<Value, GrammarError> {
    let layout = &built.layout;
    if calls == ParallelCalls::Many && layout.call.contains(&LayoutPart::CallNumber) {
        return Err(GrammarError::Inexpressible {
            format: GrammarFormat::StructuralTag.name(),
            dialect: built.dialect.clone(),
            reason: "each call of a message holds its number, and the beginning of a tag is a fixed text; allow one call only, \
                     or use gbnf or lark"
                .to_owned(),
        });
    }
    let is_section = !layout.run_open.is_empty() || !layout.run_close.is_empty();
    let tag = |tool: &ToolRule, before: &str, after: &str| {
        json!({
            "type": "tag",
            "begin": format!("{before}{}", tool.open),
            "content": {"type": "grammar", "grammar": write_gbnf(&built.arguments_grammar(tool))},
            "end": format!("{}{after}", tool.close),
        })
    };
    let is_run = is_section && calls == ParallelCalls::Many;
    let tags: Vec<Value> = if is_run {
        let tags: Vec<_> = built.tools.iter().map(|tool| tag(tool, "", "")).collect();
        vec![json!({
            "type": "tag",
            "begin": layout.run_open,
            "content": {
                "type": "tags_with_separator",
                "tags": tags,
                "separator": layout.between,
                "at_least_one": true,
            },
            "end": layout.run_close,
        })]
    } else {
        let tag = |tool| tag(tool, &layout.run_open, &layout.run_close);
        built.tools.iter().map(tag).collect()
    };
    let begins: Vec<&str> = tags
        .iter()
        .filter_map(|tag| tag.get("begin")?.as_str())
        .collect();
    let triggers = find_triggers(&begins).ok_or_else(|| GrammarError::Inexpressible {
        format: GrammarFormat::StructuralTag.name(),
        dialect: built.dialect.clone(),
        reason: "no marker begins a call, so ordinary text could begin one; use gbnf or lark, which describe a message of calls only"
            .to_owned(),
    })?;
    Ok(json!({
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": triggers,
            "tags": tags,
            "at_least_one": false,
            // A run holds all calls of a message in one tag, so nothing may follow that tag either.
            "stop_after_first": calls == ParallelCalls::One || is_run,
        },
    }))
}

/// Finds texts that begin calls and nothing else: what all calls begin with, or else the beginning of each.
fn find_triggers(begins: &[&str]) -> Option<Vec<String>> {
    let is_marker = |text: &str| {
        let trimmed = text.trim();
        trimmed.chars().count() > 2
            && !trimmed.starts_with(['{', '"'])
            && !trimmed.starts_with("[{")
    };
    let first = begins.first()?;
    let common = first
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .filter_map(|end| first.get(..end))
        .take_while(|prefix| begins.iter().all(|begin| begin.starts_with(prefix)))
        .last()
        .unwrap_or_default();
    // A marker ends before the first thing that a model may write with or without a blank.
    let common = common.trim_end_matches(['{', '"', '[', ' ', '\n']);
    // Letters alone would be a word that ordinary text contains.
    if is_marker(common) && common.contains(|c: char| !c.is_alphanumeric()) {
        return Some(vec![common.to_owned()]);
    }
    let each: Vec<String> = begins
        .iter()
        .map(|begin| begin.trim_end().to_owned())
        .collect();
    // Without a common beginning every call needs its own trigger, which must be a tag:
    // `get_weather(` may also occur in a sentence.
    let are_tags = each
        .iter()
        .all(|begin| begin.starts_with('<') && is_marker(begin));
    are_tags.then_some(each)
}
