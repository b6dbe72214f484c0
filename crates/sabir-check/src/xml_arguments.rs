//! Reads a call in tags that a model wrote as the argument text of a native call.
//!
//! Models that were trained on calls in tags sometimes put a whole `<function_calls>` block, or a
//! tool's own tag, where a native call has its JSON object. If the text holds exactly one complete
//! call of the same tool and nothing else, that call is read. Anything else is a fault that says what
//! was found.

use sabir_call::dialect::DialectSet;
use sabir_call::{
    ArgumentEncoding, CallReader, DraftCall, DraftResponse, DraftState, ToolSet, Truncation,
};

/// The content of an argument text that consists of tags.
pub(crate) enum XmlArguments {
    /// One complete call, with the arguments of the native call taken from it.
    Call(Box<DraftCall>),
    /// A call of another tool.
    OtherTool(String),
    /// Several calls, a cut one, or tags that are not a call.
    Unreadable,
}

/// Reads the argument text of a native call as tags; `None` if it is not in tags.
///
/// `means_same` returns true if two names mean the same tool.
pub(crate) fn read_xml_arguments(
    call: &DraftCall,
    tools: &ToolSet,
    means_same: impl Fn(&str, &str) -> bool,
) -> Option<XmlArguments> {
    let [only] = call.arguments.as_slice() else {
        return None;
    };
    let is_whole =
        call.dialect.is_none() && only.name.is_empty() && only.form != ArgumentEncoding::Raw;
    let text = only.text.trim();
    let begins_tag = text
        .strip_prefix('<')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '|'));
    if !is_whole || only.partial || !begins_tag {
        return None;
    }
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().all(), tools);
    reader.push(text, &mut draft);
    reader.finish(Truncation::Ended, &mut draft);
    draft.drop_blank_text();
    let mut calls = draft.calls();
    let (Some(inner), None) = (calls.next(), calls.next()) else {
        return Some(XmlArguments::Unreadable);
    };
    let is_complete = inner.state == DraftState::Closed
        && draft.parts.len() == 1
        && draft.errors_of(inner.index).next().is_none();
    if !is_complete {
        return Some(XmlArguments::Unreadable);
    }
    if !means_same(&call.name, &inner.name) {
        return Some(XmlArguments::OtherTool(inner.name.clone()));
    }
    Some(XmlArguments::Call(Box::new(DraftCall {
        name: inner.name.clone(),
        arguments: inner.arguments.clone(),
        ..call.clone()
    })))
}
