//! Lists the ways in which the provider misbehaves.

use sabir_testkit::{ChunkSplit, ProviderReply, ReplyPart, ScriptedFault};
use serde_json::{Map, Value, json};

use crate::tool_choice::ShellCall;

/// The file that the call writes.
pub(crate) const SENTINEL: &str = "sentinel.txt";
/// The content of the file after a call with the whole command.
pub(crate) const SENTINEL_CONTENT: &str = "ok";
/// The file that is there as long as only the beginning of the command was run.
const CUT_FILE: &str = "cut.txt";

/// A way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TortureCase {
    /// The name, which is the same in all versions: `leak-hermes`.
    pub name: &'static str,
    /// Describes the behaviour of the provider in a phrase.
    pub summary: &'static str,
    /// True if the file must be written; false if nothing must.
    pub expects_file: bool,
    kind: CaseKind,
}

/// The first answer of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CaseKind {
    Native,
    SmallChunks,
    NoLastEvent,
    Leak(&'static str),
    Mention(&'static str),
    CutConnection,
    Status(u16),
    Page,
    Empty,
    UnknownTool,
    NoArguments,
    ErrorEvent,
    Silence,
}

const fn case(
    name: &'static str,
    summary: &'static str,
    expects_file: bool,
    kind: CaseKind,
) -> TortureCase {
    TortureCase {
        name,
        summary,
        expects_file,
        kind,
    }
}

/// All cases. After each that is no leak and no mention, a second request gets a correct call.
const CASES: [TortureCase; 25] = [
    case("native", "a correct call", true, CaseKind::Native),
    case(
        "small-chunks",
        "a correct call, one byte at a time",
        true,
        CaseKind::SmallChunks,
    ),
    case(
        "no-last-event",
        "a correct call in a stream without its last event",
        true,
        CaseKind::NoLastEvent,
    ),
    case(
        "cut",
        "a connection that breaks in the middle of the arguments, then a correct call",
        true,
        CaseKind::CutConnection,
    ),
    case(
        "busy",
        "status 429, then a correct call",
        true,
        CaseKind::Status(429),
    ),
    case(
        "broken-server",
        "status 500, then a correct call",
        true,
        CaseKind::Status(500),
    ),
    case(
        "page",
        "a web page with status 200, then a correct call",
        true,
        CaseKind::Page,
    ),
    case(
        "empty",
        "an empty answer with status 200, then a correct call",
        true,
        CaseKind::Empty,
    ),
    case(
        "error-event",
        "an error in the middle of a stream, then a correct call",
        true,
        CaseKind::ErrorEvent,
    ),
    case(
        "unknown-tool",
        "a call of a tool that does not exist, then a correct call",
        true,
        CaseKind::UnknownTool,
    ),
    case(
        "no-arguments",
        "a call without its arguments, then a correct call",
        true,
        CaseKind::NoArguments,
    ),
    case(
        "silence",
        "no answer at all, then a correct call (slow)",
        true,
        CaseKind::Silence,
    ),
    case(
        "leak-qwen_coder",
        "the call as text, as Qwen3-Coder writes it",
        true,
        CaseKind::Leak("qwen_coder"),
    ),
    case(
        "leak-hermes",
        "the call as text, as Hermes and Qwen 3 write it",
        true,
        CaseKind::Leak("hermes"),
    ),
    case(
        "leak-kimi",
        "the call as text, as Kimi K2 writes it",
        true,
        CaseKind::Leak("kimi"),
    ),
    case(
        "leak-deepseek",
        "the call as text, as DeepSeek V3 writes it",
        true,
        CaseKind::Leak("deepseek"),
    ),
    case(
        "leak-glm",
        "the call as text, as GLM 4.5 writes it",
        true,
        CaseKind::Leak("glm"),
    ),
    case(
        "leak-minimax",
        "the call as text, as MiniMax M2 writes it",
        true,
        CaseKind::Leak("minimax"),
    ),
    case(
        "leak-mistral",
        "the call as text, as Mistral writes it",
        true,
        CaseKind::Leak("mistral"),
    ),
    case(
        "leak-llama",
        "the call as text, as Llama 3 writes it",
        true,
        CaseKind::Leak("llama"),
    ),
    case(
        "leak-harmony",
        "the call as text, as gpt-oss writes it",
        true,
        CaseKind::Leak("harmony"),
    ),
    case(
        "leak-invoke",
        "the call as text, as Claude writes it",
        true,
        CaseKind::Leak("invoke"),
    ),
    case(
        "leak-pythonic",
        "the call as text, as Llama 4 writes it",
        true,
        CaseKind::Leak("pythonic"),
    ),
    case(
        "mention-hermes",
        "an example of a call in a code fence, which is no call",
        false,
        CaseKind::Mention("hermes"),
    ),
    case(
        "mention-invoke",
        "an example of a call in a code fence, which is no call",
        false,
        CaseKind::Mention("invoke"),
    ),
];

/// Returns all cases, in the order of the table.
pub fn all_cases() -> &'static [TortureCase] {
    &CASES
}

/// Returns the cases whose name contains one of these words; without words, all but the slow one.
pub fn select_cases(words: &[String]) -> Vec<TortureCase> {
    let is_chosen = |case: &&TortureCase| match words.is_empty() {
        true => case.kind != CaseKind::Silence,
        false => words.iter().any(|word| case.name.contains(word.as_str())),
    };
    CASES.iter().filter(is_chosen).copied().collect()
}

/// The answer that a client must get from a gateway in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The correct call.
    Call,
    /// The correct call, or an error.
    CallOrError,
    /// The correct call, or an answer with this status.
    CallOrStatus(u16),
    /// The call as the model wrote it, or none.
    AsSent,
    /// No call, and the text of the model.
    NoCall,
}

impl Expectation {
    /// Renders the answer that passes.
    pub(crate) fn describe(self) -> String {
        let call = "the one correct call, none of it in the text, and the stream's proper end";
        match self {
            Self::Call => call.to_owned(),
            Self::CallOrError => format!("{call}; or an error"),
            Self::CallOrStatus(status) if status >= 500 => format!("{call}; or a status of 5xx"),
            Self::CallOrStatus(status) => format!("{call}; or status {status}"),
            Self::AsSent => "the call as the model wrote it, or none".to_owned(),
            Self::NoCall => "no call, and the example as text".to_owned(),
        }
    }
}

impl TortureCase {
    /// Renders what an agent must leave in its folder.
    pub(crate) fn expected_files(&self) -> String {
        match self.expects_file {
            true => format!("the file {SENTINEL} with {SENTINEL_CONTENT:?}, and no other"),
            false => "no file".to_owned(),
        }
    }

    /// Returns what a client must get from a gateway.
    pub(crate) fn expectation(&self) -> Expectation {
        match self.kind {
            CaseKind::Native | CaseKind::SmallChunks | CaseKind::Leak(_) => Expectation::Call,
            CaseKind::NoLastEvent
            | CaseKind::CutConnection
            | CaseKind::Page
            | CaseKind::Empty
            | CaseKind::ErrorEvent
            | CaseKind::Silence => Expectation::CallOrError,
            CaseKind::Status(status) => Expectation::CallOrStatus(status),
            CaseKind::UnknownTool | CaseKind::NoArguments => Expectation::AsSent,
            CaseKind::Mention(_) => Expectation::NoCall,
        }
    }

    /// Returns the reply to the request of this number, counted from 0, that could be answered with a call.
    pub(crate) fn reply(&self, attempt: usize, tool: &ShellCall) -> ProviderReply {
        let command = sentinel_command();
        let call = || {
            ProviderReply::text("I will write it.\n\n").with_call(
                &format!("call_{attempt}"),
                &tool.name,
                tool.arguments(&command),
            )
        };
        // Small pieces, so that half of the body is in the middle of the arguments.
        let call = || call().in_deltas(7);
        // A leak is sent once: an agent that asks again did not read the call, and a correct second
        // call would hide that.
        if attempt > 0 {
            return match self.kind {
                CaseKind::Leak(_) | CaseKind::Mention(_) => ProviderReply::text("I am done."),
                // An agent that asks again and again must come to an end.
                _ if attempt > 3 => ProviderReply::text("I give up."),
                _ => call(),
            };
        }
        match self.kind {
            CaseKind::Native => call(),
            CaseKind::SmallChunks => call().in_chunks(ChunkSplit::Size(1)),
            CaseKind::NoLastEvent => call().with_fault(ScriptedFault::NoLastEvent),
            CaseKind::CutConnection => call().with_fault(ScriptedFault::CutHalf),
            CaseKind::Status(status) => ProviderReply::error_status(status),
            CaseKind::Page => ProviderReply::default().with_fault(ScriptedFault::Body {
                content_type: Some("text/html".to_owned()),
                body: "<html><body>Please log in to this network.</body></html>".to_owned(),
            }),
            CaseKind::Empty => ProviderReply::default().with_fault(ScriptedFault::Body {
                content_type: Some("text/event-stream".to_owned()),
                // The right content type and no event at all: a client that only looks at the
                // status takes this for an answer.
                body: String::new(),
            }),
            CaseKind::ErrorEvent => {
                ProviderReply::text("I will").with_fault(ScriptedFault::Error {
                    code: "overloaded_error".to_owned(),
                    message: "overloaded".to_owned(),
                })
            }
            CaseKind::UnknownTool => ProviderReply::default().with_call(
                "call_0",
                "no_such_tool",
                json!({"path": SENTINEL}),
            ),
            CaseKind::NoArguments => {
                ProviderReply::default().with_call("call_0", &tool.name, json!({}))
            }
            CaseKind::Silence => {
                ProviderReply::default().with_fault(ScriptedFault::StallBeforeHeaders)
            }
            CaseKind::Leak(dialect) => call().in_dialect(dialect),
            CaseKind::Mention(dialect) => mention_call(dialect, tool, &command),
        }
    }
}

/// Writes the command: only the whole one leaves the right content, and nothing else.
pub(crate) fn sentinel_command() -> String {
    format!(
        // The long word ensures that the body is cut inside it. An agent that runs this half leaves
        // the first file, which is then never moved.
        "printf cut > {CUT_FILE}; : {}; mv {CUT_FILE} {SENTINEL}; printf {SENTINEL_CONTENT} > {SENTINEL}",
        "x".repeat(400)
    )
}

/// Writes a call as an example in a code fence.
fn mention_call(dialect: &str, tool: &ShellCall, command: &str) -> ProviderReply {
    let reply = ProviderReply {
        say: vec![ReplyPart::Call {
            id: "call_0".to_owned(),
            name: tool.name.clone(),
            arguments: match tool.arguments(command) {
                Value::Object(map) => map,
                _ => Map::new(),
            },
        }],
        ..ProviderReply::default()
    };
    let example = reply.in_dialect(dialect).to_draft().text();
    ProviderReply::text(format!(
        "A call would look like this, but nothing has to be done:\n\n```text\n{example}\n```\n\nThat was only an example."
    ))
}
