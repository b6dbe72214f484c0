//! The reader beside other parsers of calls, on the same streams, in one process.
//!
//! Prints Markdown: a table of times for each size of file and of chunk, one for JSON arguments, one for who understood what
//! under random splits, and whether the targets hold. Times are medians of CPU time, so that a busy machine matters less; a
//! row's parsers are measured one after the other. Making a parser is not counted (peers compile regular expressions), reading
//! and ending are. `~` marks what was extrapolated from the growth between 25 KB and 100 KB because it takes too long, `!` a
//! parser that did not give the one call of the stream back as it was written. Special tokens come whole in the tables of times,
//! as a server sends them, because one of the peers reads nothing otherwise.
//!
//! With the argument `times` or `splits` only those tables are made; further arguments name dialects.

#![expect(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod json;
mod parser;
mod splits;
mod times;

use sabir_call::dialect::DialectSet;
use sabir_streams::SPELLED;

use parser::{Kit, Parser};

/// A dialect, and who reads it.
struct Row {
    dialect: &'static str,
    /// `None` while the dialect is not known to the reader.
    sabir: Option<Parser>,
    tool_parser: Option<Parser>,
    dynamo: Option<Parser>,
}

/// Which parser of each peer reads a dialect: `tool-parser`'s, and Dynamo's. Dynamo reads harmony as well, but only with a
/// vocabulary that it loads from the network.
const PEERS: [(&str, Option<&str>, Option<&str>); 11] = [
    ("hermes", Some("qwen"), None),
    ("qwen_coder", Some("qwen_xml"), Some("qwen3_coder")),
    ("glm", Some("glm47_moe"), Some("glm47")),
    ("minimax", Some("minimax_m2"), Some("minimax_m2")),
    ("dsml", Some("deepseek_v4"), Some("deepseek_v4")),
    ("kimi", Some("kimik2"), Some("kimi_k2")),
    ("deepseek", Some("deepseek"), None),
    ("mistral", Some("mistral"), None),
    ("llama", Some("llama"), None),
    ("pythonic", Some("pythonic"), None),
    ("cohere", Some("cohere"), None),
];

fn rows(only: &[String]) -> Vec<Row> {
    let known = SPELLED.iter().filter(|name| only.is_empty() || only.iter().any(|wanted| wanted == *name));
    let row = |name: &&'static str| {
        let peers = PEERS.iter().find(|(dialect, ..)| dialect == name);
        Row {
            dialect: name,
            sabir: DialectSet::built_in().find(name).map(|found| Parser::Sabir(found.name)),
            tool_parser: peers.and_then(|(_, parser, _)| *parser).map(Parser::Smg),
            dynamo: peers.and_then(|(.., parser)| *parser).map(Parser::Dynamo),
        }
    };
    known.map(row).collect()
}

fn main() {
    let mut only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |only: &mut Vec<String>, name: &str| {
        let found = only.iter().position(|argument| argument == name);
        found.map(|at| only.remove(at)).is_some()
    };
    let (times, splits) = (wanted(&mut only, "times"), wanted(&mut only, "splits"));
    // A peer that panics is reported in its cell.
    std::panic::set_hook(Box::new(|_| {}));
    let (kit, rows) = (Kit::new(), rows(&only));
    if times || !splits {
        println!("{}", times::tables(&kit, &rows));
        println!("{}", json::table());
    }
    if splits || !times {
        println!("{}", splits::table(&kit, &rows));
    }
}
