//! The same calls in every dialect, for benchmarks: a file of source code in one call, and small calls with what is difficult.
//!
//! The spellings are written here by hand, in the canonical form of each dialect (that of the model's chat template), so that
//! a peer sees what its models write and not what this project's renderer makes of it. Lists of calls are joined as the
//! templates join them.

mod spell;

use sabir_call::ToolSet;
use serde_json::{Map, Value};

pub use spell::spell;

/// A page of TypeScript with what code has: generics, comparisons, markup, quotes, blank lines, and a stroke of Unicode.
const PAGE: &str = include_str!("page.tsx");

/// The tools on offer, as a JSON array of `{name, description, parameters}`.
pub const TOOLS: &str = r#"[
  {"name": "read_file", "description": "Reads a file.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "start_line": {"type": "integer"}}}},
  {"name": "write_to_file", "description": "Writes a file.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
  {"name": "execute_command", "description": "Executes a command.", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
  {"name": "search_files", "description": "Searches files.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "regex": {"type": "string"}}}},
  {"name": "attempt_completion", "description": "Ends the task.", "parameters": {"type": "object", "properties": {"result": {"type": "string"}}}}
]"#;

/// The tool that every benchmark calls; its arguments are `path` and `content`.
pub const WRITE: &str = "write_to_file";

/// The dialects that are spelled by hand here, by the names that [`sabir_call::dialect::dialect`] knows them by, or will.
pub const SPELLED: [&str; 16] = [
    "hermes",
    "qwen_coder",
    "glm",
    "minimax",
    "dsml",
    "kimi",
    "deepseek",
    "harmony",
    "mistral",
    "llama",
    "pythonic",
    "cohere",
    "phi",
    "deci",
    "cline",
    "invoke",
];

/// One call: the tool's name and its arguments.
pub type Asked = (&'static str, Map<String, Value>);

/// The tools of [`TOOLS`]; none where that text were broken, and then nothing would be a call.
pub fn tools() -> ToolSet {
    ToolSet::from_json(TOOLS).unwrap_or_default()
}

/// At least `size` bytes of source code in pages that differ.
pub fn code(size: usize) -> String {
    let mut code = String::with_capacity(size + PAGE.len() + 32);
    while code.len() < size {
        let part = code.len();
        code.push_str(&format!("// part {part}\n{PAGE}"));
    }
    let end = code.floor_char_boundary(size);
    code.truncate(end);
    code
}

/// A call of [`WRITE`].
pub fn write(content: impl Into<String>) -> Asked {
    let mut arguments = Map::new();
    arguments.insert("path".to_owned(), Value::from("src/table.tsx"));
    arguments.insert("content".to_owned(), Value::from(content.into()));
    (WRITE, arguments)
}

/// Whether a special token may be cut.
///
/// A server that decodes token by token sends a special token (`<|tool_call_begin|>`) in one piece; a proxy, a log or a network
/// cuts anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// Special tokens are pieces of their own.
    Whole,
    /// Any character may be the last one of a piece.
    Cut,
}

/// The text in pieces of about as many bytes as `size` says for each, cut at characters.
pub fn cut(text: &str, tokens: Tokens, mut size: impl FnMut() -> usize) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let want = rest.ceil_char_boundary(size().max(1).min(rest.len()));
        let token = if tokens == Tokens::Whole { special(rest, want) } else { None };
        let end = match token {
            Some((0, len)) => len,
            Some((start, _)) => start,
            None => want,
        };
        let Some((piece, after)) = rest.split_at_checked(end) else { break };
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Pieces of `size` bytes, cut at characters, special tokens whole.
pub fn pieces(text: &str, size: usize) -> Vec<&str> {
    cut(text, Tokens::Whole, || size)
}

/// Special tokens without bars in them: those of Qwen, GLM and MiniMax.
const NAMED: [&str; 8] = [
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
];

/// Start and length of the first special token that begins in the first `within` bytes.
fn special(text: &str, within: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes().get(..within).unwrap_or(text.as_bytes());
    let mut starts = bytes.iter().enumerate().filter(|(_, byte)| matches!(byte, b'<' | b'[')).map(|(at, _)| at);
    starts.find_map(|at| Some((at, token(text.get(at..)?)?)))
}

/// The length of the special token that begins the text.
fn token(text: &str) -> Option<usize> {
    const LONGEST: usize = 48;
    if let Some(named) = NAMED.iter().find(|named| text.starts_with(*named)) {
        return Some(named.len());
    }
    let (open, close) = [("<|", "|>"), ("<｜", "｜>"), ("</｜", "｜>"), ("[TOOL_CALLS", "]"), ("[ARGS", "]")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))?;
    let inside = text.get(open.len()..text.floor_char_boundary(LONGEST.min(text.len())))?;
    let end = inside.find(close)?;
    let plain = inside.get(..end)?.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '▁'));
    plain.then_some(open.len() + end + close.len())
}

/// Numbers that look random and are the same each time (xorshift).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts anew from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 1 to `most`.
    pub fn roll(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1 + usize::try_from(self.0 >> 33).unwrap_or_default() % most.max(1)
    }
}
