//! Describes a dialect's tags and markers, for lists of dialects and for collision checks.

use super::Dialect;
use super::define::ParserKind;
use super::grammar::{Grammar, TagScheme};

impl Dialect {
    /// Returns the parser that reads the dialect.
    pub fn parser_kind(&self) -> ParserKind {
        match *self.grammar {
            Grammar::Tagged(_) => ParserKind::Tagged,
            Grammar::Json(_) => ParserKind::Json,
            Grammar::Python(_) => ParserKind::Python,
            Grammar::Gemma(_) => ParserKind::Gemma,
            Grammar::Harmony => ParserKind::Harmony,
        }
    }

    /// Returns true if the dialect was defined by a [table](super::DialectTable).
    pub fn is_defined(&self) -> bool {
        self.spec.is_empty()
    }

    /// Returns the names of the dialect's tags, without prefixes and without tags named after tools
    /// or arguments.
    pub fn tag_names(&self) -> Vec<&'static str> {
        let Grammar::Tagged(tagged) = *self.grammar else {
            return Vec::new();
        };
        let names: &[&'static str] = match tagged.tags {
            TagScheme::Own => &[],
            TagScheme::Fixed { argument, .. } if tagged.header_opens => &[argument],
            TagScheme::Fixed { call, argument, .. } => &[call, argument],
            TagScheme::Keyed { call, key, value } => &[call, key, value],
        };
        let mut tags: Vec<_> = tagged
            .wrappers
            .iter()
            .chain(names)
            .copied()
            .filter(|name| !name.is_empty())
            .collect();
        tags.dedup();
        tags
    }

    /// Returns the markers that are not tags of [`Self::tag_names`], in the order in which they are
    /// written.
    pub fn marker_texts(&self) -> Vec<&'static str> {
        let mut markers: Vec<&'static str> = Vec::new();
        match *self.grammar {
            Grammar::Tagged(tagged) => markers.extend(
                tagged
                    .sections
                    .iter()
                    .flat_map(|(open, close)| [open, close]),
            ),
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
                markers.extend([
                    "<|start|>",
                    "<|channel|>",
                    "<|constrain|>",
                    "<|message|>",
                    "<|call|>",
                    "<|end|>",
                ]);
            }
        }
        let mut seen: Vec<&'static str> = Vec::new();
        for marker in markers {
            // Some headers end with a line feed, which is not a marker that could collide.
            if !marker.trim().is_empty() && !seen.contains(&marker) {
                seen.push(marker);
            }
        }
        seen
    }

    /// Returns the instructions for the syntax, followed by calls of two well-known tools.
    pub fn syntax_guide(&self) -> String {
        self.render_instructions()
    }

    /// Returns true if tools and arguments have tags of their own names.
    pub fn has_own_tags(&self) -> bool {
        matches!(self.grammar, Grammar::Tagged(tagged) if tagged.tags == TagScheme::Own)
    }
}

impl ParserKind {
    /// Returns the name used in a table.
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
