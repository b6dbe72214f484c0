//! Aligns the lines of a replacement with the lines that it replaces.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::normalize::normalize_line;

/// The product of line counts up to which a full diff is computed; above it, only lines that occur
/// once are aligned first.
const MAX_PRODUCT: usize = 1 << 20;

/// Returns, for each line of the replacement, the index of the wanted line that it repeats, if any.
/// The indexes rise.
///
/// Lines are the same if their text is the same. If the line in the file (`found`) differs from the
/// wanted one (for example in white space), a replacement line that equals the wanted one in normal
/// form also counts as unchanged.
///
/// This preserves unrelated bytes of a file: models repeat context lines with other quotes or without trailing white space, and writing
/// those would change lines that the model did not mean to change.
pub(super) fn align_lines(
    found: &[&str],
    wanted: &[&str],
    replacement: &[&str],
) -> Vec<Option<usize>> {
    let is_noisy = |(found, wanted): &(&&str, &&str)| found != wanted;
    let noisy: HashSet<_> = found
        .iter()
        .zip(wanted)
        .filter(is_noisy)
        .map(|(_, wanted)| normalize_line(wanted))
        .collect();
    if noisy.is_empty() {
        return match_pairs(wanted, replacement);
    }
    let exact: HashSet<&str> = found
        .iter()
        .zip(wanted)
        .filter(|pair| !is_noisy(pair))
        .map(|(_, wanted)| *wanted)
        .collect();
    let old: Vec<_> = found
        .iter()
        .zip(wanted)
        .map(|(found, wanted)| {
            if found == wanted {
                (true, (*wanted).into())
            } else {
                (false, normalize_line(wanted))
            }
        })
        .collect();
    let new: Vec<_> = replacement
        .iter()
        .map(|line| match normalize_line(line) {
            // Exact lines keep their own text as the key, so a real change of quotes or spaces in
            // them is still seen as a change.
            normal if !exact.contains(line) && noisy.contains(&normal) => (false, normal),
            _ => (true, (*line).into()),
        })
        .collect();
    match_pairs(&old, &new)
}

/// Returns, for each line of a replacement, the index of the old line (of `count`) whose line
/// ending it takes: its own if the line is kept; otherwise that of the line it replaces; otherwise,
/// where nothing is removed, that of the line before. `None` means the line before all of them.
///
/// The ending is chosen line by line, since files may have mixed endings.
pub(super) fn line_ending_sources(kept: &[Option<usize>], count: usize) -> Vec<Option<usize>> {
    let mut next = count;
    let mut nexts: Vec<usize> = kept
        .iter()
        .rev()
        .map(|kept| {
            next = kept.unwrap_or(next);
            next
        })
        .collect();
    nexts.reverse();
    // The first old line that is neither kept nor replaced yet.
    let mut gap = 0;
    let model = |(kept, next): (&Option<usize>, usize)| match kept {
        Some(index) => {
            gap = index + 1;
            Some(*index)
        }
        None if gap < next => {
            let model = gap;
            gap = (gap + 1).min(next - 1);
            Some(model)
        }
        None => gap.checked_sub(1),
    };
    kept.iter().zip(nexts).map(model).collect()
}

/// Returns, for each new item, the index of the old item that it is paired with; the indexes rise.
fn match_pairs<T: Eq + Hash>(old: &[T], new: &[T]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; new.len()];
    // Numbers compare faster than strings, and the diff needs only equality.
    let mut numbers = HashMap::new();
    let mut number = |item| {
        let next = numbers.len();
        *numbers.entry(item).or_insert(next)
    };
    let old: Vec<usize> = old.iter().map(&mut number).collect();
    let new: Vec<usize> = new.iter().map(&mut number).collect();
    align_between(&old, &new, (0, 0), AlignDepth::Whole, &mut pairs);
    pairs
}

/// The recursion level: the gaps between anchors are not split by anchors again.
#[derive(Clone, Copy, PartialEq)]
enum AlignDepth {
    Whole,
    Gap,
}

/// Pairs the equal numbers of two sides in order, and writes the pairs at the offsets `at`.
///
/// Equal ends are paired first, then a diff pairs the rest. If that would be too much work, lines that occur once divide the rest into
/// gaps. A gap that is still too large stays unpaired: its lines count as new, and only lose their original white space.
fn align_between(
    old: &[usize],
    new: &[usize],
    at: (usize, usize),
    depth: AlignDepth,
    pairs: &mut [Option<usize>],
) {
    let mut put = |old_index: usize, new_index: usize| {
        if let Some(pair) = pairs.get_mut(at.1 + new_index) {
            *pair = Some(at.0 + old_index);
        }
    };
    // Equal lines at both ends are matched first, since then the diff of a typical edit is small.
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let room = old.len().min(new.len()) - prefix;
    let suffix = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(room)
        .take_while(|(a, b)| a == b)
        .count();
    (0..prefix).for_each(|index| put(index, index));
    (1..=suffix).for_each(|back| put(old.len() - back, new.len() - back));
    let old_end = old.len() - suffix;
    let new_end = new.len() - suffix;
    let old_rest = old.get(prefix..old_end).unwrap_or_default();
    let new_rest = new.get(prefix..new_end).unwrap_or_default();
    if old_rest.len().saturating_mul(new_rest.len()) <= MAX_PRODUCT {
        // Myers is quadratic at worst, which the product limit above keeps affordable.
        for op in capture_diff_slices(Algorithm::Myers, old_rest, new_rest) {
            if let DiffOp::Equal {
                old_index,
                new_index,
                len,
            } = op
            {
                (0..len).for_each(|step| put(prefix + old_index + step, prefix + new_index + step));
            }
        }
    } else if depth == AlignDepth::Whole {
        let anchors: Vec<_> = find_anchors(old_rest, new_rest)
            .into_iter()
            .map(|(old, new)| (prefix + old, prefix + new))
            .collect();
        anchors.iter().for_each(|(old, new)| put(*old, *new));
        let mut next = (prefix, prefix);
        for (old_index, new_index) in anchors.into_iter().chain([(old_end, new_end)]) {
            let old = old.get(next.0..old_index);
            let new = new.get(next.1..new_index);
            let at = (at.0 + next.0, at.1 + next.1);
            align_between(
                old.unwrap_or_default(),
                new.unwrap_or_default(),
                at,
                AlignDepth::Gap,
                pairs,
            );
            next = (old_index + 1, new_index + 1);
        }
    }
}

/// Returns the longest rising run of lines that occur exactly once on both sides.
fn find_anchors(old: &[usize], new: &[usize]) -> Vec<(usize, usize)> {
    let once = |side: &[usize]| {
        let mut seen: HashMap<usize, Option<usize>> = HashMap::new();
        for (index, number) in side.iter().enumerate() {
            seen.entry(*number)
                // A second occurrence disqualifies the number, without a second pass.
                .and_modify(|place| *place = None)
                .or_insert(Some(index));
        }
        seen
    };
    let old_once = once(old);
    let new_once = once(new);
    let mut both: Vec<(usize, usize)> = old_once
        .into_iter()
        .filter_map(|(number, place)| Some((place?, (*new_once.get(&number)?)?)))
        .collect();
    both.sort_unstable();
    // Patience sorting: the top of each pile is the smallest end of a rising run of that length.
    let mut tops: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::new();
    for (index, (_, new)) in both.iter().enumerate() {
        let pile = tops.partition_point(|top| both.get(*top).is_some_and(|(_, at)| at < new));
        before.push(pile.checked_sub(1).and_then(|pile| tops.get(pile).copied()));
        match tops.get_mut(pile) {
            Some(top) => *top = index,
            None => tops.push(index),
        }
    }
    let mut run: Vec<_> = std::iter::successors(tops.last().copied(), |index| {
        before.get(*index).copied().flatten()
    })
    .filter_map(|index| both.get(index).copied())
    .collect();
    run.reverse();
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &str, replacement: &str, expected: &[(usize, usize)]) {
        let wanted: Vec<_> = wanted.split(' ').collect();
        let replacement: Vec<_> = replacement.split(' ').collect();
        let found = align_lines(&wanted, &wanted, &replacement);
        let found: Vec<_> = found
            .iter()
            .enumerate()
            .filter_map(|(new, old)| Some(((*old)?, new)))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn short_texts_are_aligned() {
        check("a b c", "a x c", &[(0, 0), (2, 2)]);
        check(
            "a b c d e",
            "a x b c y e",
            &[(0, 0), (1, 2), (2, 3), (4, 5)],
        );
        check("a", "b", &[]);
    }

    #[test]
    fn only_trailing_whitespace_is_ignored() {
        let found = ["a  ", "\"q\"", "c"];
        let wanted = ["a", "\"q\"", "c"];
        assert_eq!(
            align_lines(&found, &wanted, &["a ", "“q”", "c"]),
            [Some(0), None, Some(2)],
            "a change of quotes stays one"
        );
    }

    #[test]
    fn long_texts_are_aligned() {
        let old: Vec<usize> = (0..5000).collect();
        let new: Vec<usize> = (0..5000)
            .map(|number| {
                if number % 100 == 0 {
                    9000 + number
                } else {
                    number
                }
            })
            .collect();
        let found = match_pairs(&old, &new);
        assert!(
            found
                .iter()
                .enumerate()
                .all(|(new, old)| *old == (new % 100 != 0).then_some(new))
        );
        let same = match_pairs(
            &vec![1; 50_000],
            &[vec![2], vec![1; 40_000], vec![3]].concat(),
        );
        assert_eq!(same.len(), 40_002);
    }
}
