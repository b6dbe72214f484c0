//! Cutting a diff into blocks.

use super::fault::{self, EditFault};

const DIVIDER: &str = "=======";

/// One SEARCH/REPLACE block of a diff.
pub(super) struct Block<'a> {
    /// From 1.
    pub(super) number: usize,
    /// The line of its opening marker in the diff, from 1.
    pub(super) line: usize,
    /// Everything between the outer markers, without line endings.
    body: Vec<&'a str>,
    /// Where in the body it may be divided; never empty.
    dividers: Vec<usize>,
}

/// The pairs of outer markers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Dashes,
    Angles,
}

impl Family {
    fn opened_by(line: &str) -> Option<Self> {
        match line.trim_end() {
            "------- SEARCH" => Some(Self::Dashes),
            "<<<<<<< SEARCH" => Some(Self::Angles),
            _ => None,
        }
    }

    fn closed_by(line: &str) -> Option<Self> {
        match line.trim_end() {
            "+++++++ REPLACE" => Some(Self::Dashes),
            ">>>>>>> REPLACE" => Some(Self::Angles),
            _ => None,
        }
    }
}

impl<'a> Block<'a> {
    /// The ways to read it, SEARCH and REPLACE each: one for each line that may be the divider, in order.
    pub(super) fn divisions(&self) -> impl DoubleEndedIterator<Item = (&[&'a str], &[&'a str])> {
        self.dividers.iter().map(|&at| {
            let (search, rest) = self.body.split_at_checked(at).unwrap_or_default();
            (search, rest.get(1..).unwrap_or_default())
        })
    }

    /// The REPLACE of a block whose SEARCH is empty or one blank line.
    pub(super) fn whole_content(&self) -> Option<&[&'a str]> {
        self.divisions().next().filter(|(search, _)| matches!(search, [] | [""])).map(|(_, replace)| replace)
    }
}

/// The well-formed blocks of a diff, and the faults of its form.
pub(super) fn parse(diff: &str) -> (Vec<Block<'_>>, Vec<EditFault>) {
    let (mut blocks, mut faults) = (Vec::new(), Vec::new());
    let mut open: Option<(Block<'_>, Family)> = None;
    let mut number = 0;
    for (index, line) in diff.lines().enumerate() {
        let line_number = index + 1;
        // `lines` drops a carriage return before the newline, so that a diff with CRLF reads the same.
        match (open.take(), Family::opened_by(line), Family::closed_by(line)) {
            (None, Some(family), _) => {
                number += 1;
                open = Some((Block { number, line: line_number, body: Vec::new(), dividers: Vec::new() }, family));
            }
            (None, None, Some(_)) => faults.push(fault::stray_marker(line_number, line)),
            (None, None, None) => {}
            (Some((block, family)), Some(again), _) if again == family => {
                faults.push(fault::unclosed(&block, !block.dividers.is_empty(), Some(line_number)));
                number += 1;
                open = Some((Block { number, line: line_number, body: Vec::new(), dividers: Vec::new() }, family));
            }
            (Some((block, family)), _, Some(closed)) if closed == family => {
                if block.dividers.is_empty() {
                    faults.push(fault::no_divider(&block, line_number));
                } else {
                    blocks.push(block);
                }
            }
            (Some((mut block, family)), _, _) => {
                if line.trim_end() == DIVIDER {
                    block.dividers.push(block.body.len());
                }
                block.body.push(line);
                open = Some((block, family));
            }
        }
    }
    if let Some((block, _)) = open {
        faults.push(fault::unclosed(&block, !block.dividers.is_empty(), None));
    }
    if number == 0 && faults.is_empty() {
        faults.push(fault::no_blocks());
    }
    (blocks, faults)
}
