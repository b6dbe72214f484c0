//! Keeps the compiled dialects and tools of a task's last request for its next one.

use std::sync::{Mutex, PoisonError};

use sabir_call::dialect::DialectSet;
use sabir_call::{CallReader, Request, ToolProtocol, ToolSet};

/// Makes the readers of a task's responses. Most requests of a task have the same dialects and tools, which are compiled once.
#[derive(Default)]
pub(crate) struct ReaderCache(Mutex<Option<CompiledReader>>);

/// A reader, and what it was compiled for.
struct CompiledReader {
    dialects: DialectSet,
    tools: ToolSet,
    /// True for a model that calls natively.
    is_native: bool,
    reader: CallReader,
}

impl ReaderCache {
    /// Returns a reader for the text of the response to a request.
    pub(crate) fn reader_for(&self, request: &Request) -> CallReader {
        let is_native = request.protocol == ToolProtocol::Native;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_compiled = |known: &&CompiledReader| {
            known.is_native == is_native
                && known.tools.is_same(&request.tools)
                && known.dialects == request.dialects
        };
        if let Some(known) = kept.as_ref().filter(is_compiled) {
            return known.reader.for_next_text();
        }
        let reader = compile_reader(request, &request.tools, "");
        let first = reader.for_next_text();
        *kept = Some(CompiledReader {
            dialects: request.dialects.clone(),
            tools: request.tools.clone(),
            is_native,
            reader,
        });
        first
    }
}

/// Compiles the reader of these tools' calls in the response to a request. `prefill` is the end of the prompt that the response
/// continues.
pub(crate) fn compile_reader(request: &Request, tools: &ToolSet, prefill: &str) -> CallReader {
    let all = request.dialects.all();
    let selection = match request.protocol {
        ToolProtocol::Native => all.for_native_calls(),
        ToolProtocol::Prompted(_) => all,
    };
    CallReader::new(selection.with_prefill(prefill), tools)
}

#[cfg(test)]
mod tests {
    use sabir_call::{DraftPart, DraftResponse, ToolSpec, Truncation};
    use serde_json::json;

    use super::*;

    fn tools(name: &str) -> ToolSet {
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        ToolSet::new(vec![ToolSpec::new(name, "Looks.", schema)]).unwrap()
    }

    #[track_caller]
    fn check(cache: &ReaderCache, request: &Request, expected: usize) {
        let text = "<look><path>a</path></look>";
        let mut reader = cache.reader_for(request);
        let mut draft = DraftResponse::default();
        reader.push(text, &mut draft);
        reader.finish(Truncation::Ended, &mut draft);
        let calls = draft.parts.iter();
        let calls = calls.filter(|part| matches!(part, DraftPart::Call(_)));
        assert_eq!(calls.count(), expected, "{request:?}");
    }

    #[test]
    fn a_reader_is_made_for_each_change_of_the_request() {
        let cache = ReaderCache::default();
        let with = |protocol: ToolProtocol, tools: ToolSet| Request {
            protocol,
            tools,
            ..Request::default()
        };
        let prompted = || ToolProtocol::Prompted("cline".to_owned());
        let look = tools("look");
        // For a native model an element that belongs to no tool is part of the answer.
        for _ in 0..2 {
            check(&cache, &with(prompted(), look.clone()), 1);
            check(&cache, &with(ToolProtocol::Native, look.clone()), 1);
            check(&cache, &with(ToolProtocol::Native, tools("write")), 0);
            check(&cache, &with(prompted(), tools("write")), 1);
        }
    }
}
