//! One way to feed every parser.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dynamo_parsers_v2 as dynamo;
use sabir_call::dialect::DialectSet;
use sabir_call::{ArgumentEncoding, Truncation, DraftResponse, DraftCall, DraftState, Event, CallReader, ToolSet};
use serde_json::{Map, Value};
use tool_parser::ParserFactory;
use tool_parser::types::ToolCallItem;

use rustix::time::{ClockId, clock_gettime};

/// A parser under its name at its maker's; `tool-parser` is the SMG project's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parser {
    Sabir(&'static str),
    Smg(&'static str),
    Dynamo(&'static str),
}

/// The tools, in the form that each parser wants.
pub(crate) struct Kit {
    tools: ToolSet,
    factory: ParserFactory,
    tool_parser: Vec<openai_protocol::common::Tool>,
    dynamo: Vec<dynamo::Tool>,
}

/// What a parser made of a stream.
#[derive(Debug, Default)]
pub(crate) struct Understood {
    pub(crate) text: String,
    /// Names and arguments of the calls, those left out that are not whole.
    pub(crate) calls: Vec<(String, Map<String, Value>)>,
}

/// Takes prose, or a piece of the call of that index.
type Seen<'s> = dyn FnMut(Piece<'_>) + 's;

enum Piece<'p> {
    Text(&'p str),
    Call(usize, Option<&'p str>, &'p str),
}

impl Kit {
    pub(crate) fn new() -> Self {
        let tools = sabir_streams::tools();
        let each = |wrap: &dyn Fn(Value) -> Value| {
            let specs: Vec<Value> = serde_json::from_str(sabir_streams::TOOLS).unwrap_or_default();
            Value::from_iter(specs.into_iter().map(wrap))
        };
        let functions = each(&|spec| serde_json::json!({"type": "function", "function": spec}));
        Self {
            tools,
            factory: ParserFactory::new(),
            tool_parser: serde_json::from_value(functions).unwrap_or_default(),
            dynamo: serde_json::from_value(each(&|spec| spec)).unwrap_or_default(),
        }
    }
}

impl Parser {
    /// The CPU time of reading the pieces, with nothing kept; `None` where the parser fails.
    pub(crate) fn time(self, kit: &Kit, pieces: &[&str]) -> Option<Duration> {
        let quiet = &mut |piece: Piece<'_>| match piece {
            Piece::Text(text) => _ = black_box(text),
            Piece::Call(_, name, arguments) => _ = black_box((name, arguments)),
        };
        let pass = AssertUnwindSafe(|| match self {
            Self::Sabir(dialect) => {
                let mut reader = CallReader::new(DialectSet::built_in().select(dialect)?, &kit.tools);
                let start = now();
                let mut sink = |event: Event<'_>| {
                    if let Event::ArgDelta { text, .. } = event {
                        black_box(text.as_ptr());
                        black_box(text.len());
                    }
                };
                pieces.iter().for_each(|piece| reader.push(black_box(piece), &mut sink));
                reader.finish(Truncation::Ended, &mut sink);
                Some(now().saturating_sub(start))
            }
            Self::Smg(name) => tool_parser(name, kit, pieces, quiet),
            Self::Dynamo(name) => dynamo(name, kit, pieces, quiet),
        });
        catch_unwind(pass).ok().flatten()
    }

    /// What the pieces say to this parser; `None` where it fails.
    pub(crate) fn read(self, kit: &Kit, pieces: &[&str]) -> Option<Understood> {
        let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
        let keep = &mut |piece: Piece<'_>| match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Call(index, name, piece) => {
                calls.resize(calls.len().max(index + 1), Default::default());
                if let Some(call) = calls.get_mut(index) {
                    call.0.push_str(name.unwrap_or_default());
                    call.1.push_str(piece);
                }
            }
        };
        let pass = AssertUnwindSafe(|| match self {
            Self::Sabir(_) => None,
            Self::Smg(name) => tool_parser(name, kit, pieces, keep),
            Self::Dynamo(name) => dynamo(name, kit, pieces, keep),
        });
        if let Self::Sabir(dialect) = self {
            return sabir(dialect, kit, pieces);
        }
        catch_unwind(pass).ok().flatten()?;
        let parsed = calls.into_iter().map(|(name, arguments)| Some((name, serde_json::from_str(&arguments).ok()?)));
        Some(Understood { text, calls: parsed.flatten().collect() })
    }
}

/// The CPU time of this process's main flow so far.
pub(crate) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn sabir(dialect: &str, kit: &Kit, pieces: &[&str]) -> Option<Understood> {
    let mut draft = DraftResponse::default();
    let mut reader = CallReader::new(DialectSet::built_in().select(dialect)?, &kit.tools);
    pieces.iter().for_each(|piece| reader.push(piece, &mut draft));
    reader.finish(Truncation::Ended, &mut draft);
    let whole = |call: &&DraftCall| call.state == DraftState::Closed && draft.errors_of(call.index).next().is_none();
    let calls = draft.calls().filter(whole).map(|call| (call.name.clone(), arguments(call, &kit.tools)));
    Some(Understood { text: draft.text(), calls: calls.collect() })
}

/// The arguments with the types that the schema asks for, as the checks would make them.
fn arguments(call: &DraftCall, tools: &ToolSet) -> Map<String, Value> {
    let typed = |argument: &sabir_call::DraftArgument| {
        let spec = tools.get(&call.name).and_then(|tool| tool.find_argument(&argument.name));
        let string = spec.is_some_and(|spec| spec.type_names().contains(&"string"));
        let text = Value::from(argument.text.as_str());
        let value = match (argument.form, string) {
            (ArgumentEncoding::String, _) | (ArgumentEncoding::Raw, true) => text,
            _ => serde_json::from_str(&argument.text).unwrap_or(text),
        };
        (argument.name.clone(), value)
    };
    call.arguments.iter().map(typed).collect()
}

fn tool_parser(name: &str, kit: &Kit, pieces: &[&str], seen: &mut Seen<'_>) -> Option<Duration> {
    let mut parser = kit.factory.registry().create_parser(name)?;
    let start = now();
    let take = |items: &[ToolCallItem], seen: &mut Seen<'_>| {
        for item in items {
            seen(Piece::Call(item.tool_index, item.name.as_deref(), &item.parameters));
        }
    };
    for piece in pieces {
        // A chunk that fails is lost, as it is in a gateway; the next one may succeed.
        if let Ok(result) = wait(parser.parse_incremental(black_box(piece), &kit.tool_parser))? {
            seen(Piece::Text(&result.normal_text));
            take(&result.calls, seen);
        }
    }
    take(&parser.get_unstreamed_tool_args().unwrap_or_default(), seen);
    seen(Piece::Text(&parser.take_unstreamed_normal_text()));
    Some(now().saturating_sub(start))
}

/// The value of a future that never waits for anything; without a runtime's cost.
fn wait<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn dynamo(name: &str, kit: &Kit, pieces: &[&str], seen: &mut Seen<'_>) -> Option<Duration> {
    let mut parser = dynamo::create_tool_parser_for_family(name, &kit.dynamo).ok()?;
    let start = now();
    let mut take = |result: dynamo::ToolParseResult| {
        seen(Piece::Text(&result.normal_text));
        for call in &result.calls {
            seen(Piece::Call(call.tool_index, call.name.as_deref(), &call.arguments));
        }
    };
    for piece in pieces {
        take(parser.push(black_box(piece)).ok()?);
    }
    take(parser.finish().ok()?);
    Some(now().saturating_sub(start))
}
