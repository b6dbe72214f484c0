//! Extracts the definitions of a source file as an outline.
//!
//! A tree-sitter grammar gives a tree even if the file has errors. The outline is one walk through
//! that tree, which keeps the nodes that the rules of the language select ([`language`]).
//! Definitions inside of functions are left out.

mod language;

use std::ops::ControlFlow;
use std::time::Instant;

use tree_sitter::{Node, ParseOptions, Parser, TreeCursor};

pub(crate) use language::{Language, known_languages};

/// The size above which a signature is cut.
const MAX_SIGNATURE_BYTES: usize = 200;

/// The definitions of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileOutline {
    /// The definitions, in the order of the file.
    pub(crate) definitions: Vec<CodeDefinition>,
    /// True if parts of the file do not follow the grammar; their definitions may be missing.
    pub(crate) has_errors: bool,
}

/// One definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CodeDefinition {
    /// The number of definitions around it.
    pub(crate) depth: usize,
    /// The number of its first line, from 1.
    pub(crate) first_line: usize,
    /// The number of its last line, from 1.
    pub(crate) last_line: usize,
    /// The text before its body, on one line.
    pub(crate) signature: String,
}

/// Parses a text, and returns its outline; `None` if the deadline passes first.
///
/// The limit is a time and not a number of parser actions: in a hostile text, such as an unclosed
/// quote repeated a hundred thousand times, each action scans the rest of the text.
pub(crate) fn parse_outline(
    text: &str,
    language: &Language,
    deadline: Instant,
) -> Option<FileOutline> {
    let mut parser = Parser::new();
    parser.set_language(&language.grammar.into()).ok()?;
    let mut progress = |_: &tree_sitter::ParseState| {
        if Instant::now() < deadline {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let tree = parser.parse_with_options(
        &mut |at, _| text.as_bytes().get(at..).unwrap_or_default(),
        None,
        Some(options),
    )?;
    let mut builder = OutlineBuilder {
        text,
        language,
        open_nodes: Vec::new(),
        definitions: Vec::new(),
    };
    builder.visit_tree(&mut tree.walk());
    Some(FileOutline {
        definitions: builder.definitions,
        has_errors: tree.root_node().has_error(),
    })
}

/// Walks through a syntax tree and collects its definitions.
struct OutlineBuilder<'a> {
    text: &'a str,
    language: &'a Language,
    /// One entry for each ancestor of the present node; true if it is a definition.
    open_nodes: Vec<bool>,
    definitions: Vec<CodeDefinition>,
}

impl OutlineBuilder<'_> {
    /// Visits all nodes, without recursion: a file may nest as deeply as it is long, and would
    /// overflow the stack.
    fn visit_tree(&mut self, cursor: &mut TreeCursor<'_>) {
        loop {
            let node = cursor.node();
            let rule = self.language.matching_rule(&node);
            if rule.is_some() {
                let definition = self.to_definition(&node);
                self.definitions.push(definition);
            }
            // Other nodes are entered too, since definitions may be inside of any of them.
            if rule.is_none_or(|rule| rule.holds_others) && cursor.goto_first_child() {
                self.open_nodes.push(rule.is_some());
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                self.open_nodes.pop();
            }
        }
    }

    /// Describes the definition that a node is.
    fn to_definition(&self, node: &Node<'_>) -> CodeDefinition {
        let depth = self.open_nodes.iter().filter(|defines| **defines).count();
        let start = node.start_position();
        let end = node.end_position();
        // The end is exclusive. A node that includes its line ending ends in column 0 of the next
        // line, which does not belong to it.
        let last_line = if end.column == 0 && end.row > start.row {
            end.row
        } else {
            end.row + 1
        };
        CodeDefinition {
            depth,
            first_line: start.row + 1,
            last_line,
            signature: self.definition_signature(node),
        }
    }

    /// Returns the text from the start of the line, so that `export` and the like are included, to
    /// the body of the definition. White space becomes single blanks.
    fn definition_signature(&self, node: &Node<'_>) -> String {
        let start = node.start_byte();
        let before = self.text.get(..start).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        // A line that begins with other code is not included.
        let is_shared = before
            .get(line..)
            .is_some_and(|prefix| prefix.contains(['{', '}', ';']));
        let start = if is_shared { start } else { line };
        let rest = self.text.get(start..node.end_byte()).unwrap_or_default();
        // The body of `const f = () => {}` belongs to the value, not to the declaration.
        let value = ["value", "right"]
            .iter()
            .find_map(|field| node.child_by_field_name(field));
        let body = node
            .child_by_field_name("body")
            .or_else(|| value?.child_by_field_name("body"));
        let text = match body.and_then(|body| rest.get(..body.start_byte().checked_sub(start)?)) {
            Some(head) => head,
            None => rest.lines().next().unwrap_or_default(),
        };
        let mut signature = String::new();
        for word in text.split_whitespace() {
            if signature.len() > MAX_SIGNATURE_BYTES {
                break;
            }
            signature.push_str(if signature.is_empty() { "" } else { " " });
            signature.push_str(word);
        }
        let signature = signature.trim_end_matches(['{', ':', ' ']);
        match signature.get(..signature.floor_char_boundary(MAX_SIGNATURE_BYTES)) {
            Some(cut) if cut.len() < signature.len() => format!("{cut}…"),
            _ => signature.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
