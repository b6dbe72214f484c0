//! The definitions in a source file, as an outline.
//!
//! A grammar gives a tree whatever is wrong with the file; the outline is one walk through it that keeps the nodes which the
//! language's row names ([`language`]). What stands inside of a function is its own affair and left out.

mod language;

use std::ops::ControlFlow;
use std::time::Instant;

use tree_sitter::{Node, ParseOptions, Parser, TreeCursor};

pub(crate) use language::{Language, known_languages};

/// The most bytes of a definition's first line.
const MAX_SIGNATURE_BYTES: usize = 200;

/// What is defined in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileOutline {
    /// In the order of the file.
    pub(crate) definitions: Vec<CodeDefinition>,
    /// Whether parts of the file do not follow the grammar; what they define may be missing.
    pub(crate) errors: bool,
}

/// One definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CodeDefinition {
    /// How many definitions it stands in.
    pub(crate) depth: usize,
    /// First and last line, counted from 1.
    pub(crate) lines: (usize, usize),
    /// What stands before its body, on one line.
    pub(crate) signature: String,
}

/// The outline of a text. `None`: it could not be parsed before the deadline. A count of the parser's actions would not do, for
/// in a text that is made to be slow (an unclosed quote, a hundred thousand times) each action goes through the rest of it.
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
    let mut walk = OutlineBuilder {
        text,
        language,
        open: Vec::new(),
        definitions: Vec::new(),
    };
    walk.visit_tree(&mut tree.walk());
    Some(FileOutline {
        definitions: walk.definitions,
        errors: tree.root_node().has_error(),
    })
}

struct OutlineBuilder<'a> {
    text: &'a str,
    language: &'a Language,
    /// For each node above: whether it is a definition.
    open: Vec<bool>,
    definitions: Vec<CodeDefinition>,
}

impl OutlineBuilder<'_> {
    /// Goes through the tree without recursion, since a file may nest as deeply as it is long.
    fn visit_tree(&mut self, cursor: &mut TreeCursor<'_>) {
        loop {
            let node = cursor.node();
            let rule = self.language.matching_rule(&node);
            if rule.is_some() {
                let definition = self.to_definition(&node);
                self.definitions.push(definition);
            }
            if rule.is_none_or(|rule| rule.holds_others) && cursor.goto_first_child() {
                self.open.push(rule.is_some());
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                self.open.pop();
            }
        }
    }

    fn to_definition(&self, node: &Node<'_>) -> CodeDefinition {
        let depth = self.open.iter().filter(|defines| **defines).count();
        // A node that takes in the line's end does not reach into the next line.
        let last = node.end_position();
        let last = if last.column == 0 && last.row > node.start_position().row {
            last.row
        } else {
            last.row + 1
        };
        CodeDefinition {
            depth,
            lines: (node.start_position().row + 1, last),
            signature: self.definition_signature(node),
        }
    }

    /// The text from the start of the line, so that `export` and the like are seen, to the body.
    fn definition_signature(&self, node: &Node<'_>) -> String {
        let start = node.start_byte();
        let before = self.text.get(..start).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let shared = before
            .get(line..)
            .is_some_and(|prefix| prefix.contains(['{', '}', ';']));
        let start = if shared { start } else { line };
        let rest = self.text.get(start..node.end_byte()).unwrap_or_default();
        let held = ["value", "right"]
            .iter()
            .find_map(|field| node.child_by_field_name(field));
        let body = node
            .child_by_field_name("body")
            .or_else(|| held?.child_by_field_name("body"));
        let text = match body.and_then(|body| rest.get(..body.start_byte().checked_sub(start)?)) {
            Some(head) => head,
            None => rest.lines().next().unwrap_or_default(),
        };
        let mut words = String::new();
        for word in text.split_whitespace() {
            if words.len() > MAX_SIGNATURE_BYTES {
                break;
            }
            words.push_str(if words.is_empty() { "" } else { " " });
            words.push_str(word);
        }
        let words = words.trim_end_matches(['{', ':', ' ']);
        match words.get(..words.floor_char_boundary(MAX_SIGNATURE_BYTES)) {
            Some(cut) if cut.len() < words.len() => format!("{cut}…"),
            _ => words.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
