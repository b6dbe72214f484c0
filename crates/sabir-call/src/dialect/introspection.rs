//! What a dialect is made of, for whoever lists dialects or looks for names that collide with them.

use super::Dialect;
use super::define::ParserKind;
use super::grammar::{Grammar, TagScheme};

impl Dialect {
    /// The machine that reads it.
    pub fn parser_kind(&self) -> ParserKind {
        match *self.grammar {
            Grammar::Tagged(_) => ParserKind::Tagged,
            Grammar::Json(_) => ParserKind::Json,
            Grammar::Python(_) => ParserKind::Python,
            Grammar::Gemma(_) => ParserKind::Gemma,
            Grammar::Harmony => ParserKind::Harmony,
        }
    }

    /// Whether it came from outside, by a [table](super::DialectTable).
    pub fn is_defined(&self) -> bool {
        self.spec.is_empty()
    }

    /// The names of its tags, without prefixes and without those that are a tool's or an argument's own.
    pub fn tag_names(&self) -> Vec<&'static str> {
        let Grammar::Tagged(tagged) = *self.grammar else { return Vec::new() };
        let names: &[&'static str] = match tagged.tags {
            TagScheme::Own => &[],
            TagScheme::Fixed { call, argument, .. } => &[call, argument],
            TagScheme::Keyed { call, key, value } => &[call, key, value],
        };
        let mut tags: Vec<_> = tagged.wrappers.iter().chain(names).copied().filter(|name| !name.is_empty()).collect();
        tags.dedup();
        tags
    }

    /// Its markers that are no tags of [`Self::tag_names`], in the order in which they are written.
    pub fn marker_texts(&self) -> Vec<&'static str> {
        let mut markers: Vec<&'static str> = Vec::new();
        match *self.grammar {
            Grammar::Tagged(tagged) => markers.extend(tagged.sections.iter().flat_map(|(open, close)| [open, close])),
            Grammar::Json(table) => {
                markers.extend(table.section.map(|(open, _)| open));
                for form in table.forms {
                    markers.extend([form.open, form.head.map_or("", |head| head.end), form.close]);
                }
                markers.extend(table.section.map(|(_, close)| close));
            }
            Grammar::Python(table) => markers.extend([table.open, table.close]),
            Grammar::Gemma(table) => markers.extend([table.open, table.quote, table.close]),
            Grammar::Harmony => {
                markers.extend(["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>", "<|end|>"]);
            }
        }
        let mut seen: Vec<&'static str> = Vec::new();
        for marker in markers {
            if !marker.trim().is_empty() && !seen.contains(&marker) {
                seen.push(marker);
            }
        }
        seen
    }

    /// How it is taught: the words, and calls of two well-known tools.
    pub fn syntax_guide(&self) -> String {
        self.render_instructions()
    }

    /// Whether the names of tools and arguments are tags of their own.
    pub fn has_own_tags(&self) -> bool {
        matches!(self.grammar, Grammar::Tagged(tagged) if tagged.tags == TagScheme::Own)
    }
}

impl ParserKind {
    /// The name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tagged => "tagged",
            Self::Json => "json",
            Self::Python => "python",
            Self::Gemma => "gemma",
            Self::Harmony => "harmony",
        }
    }
}
