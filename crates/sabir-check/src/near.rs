//! Near names: what a name that is not declared can only mean.
//!
//! A name is read as a declared one where both consist of the same words, in whatever case and with whatever between them
//! (`readFile`, `read-file`), or where one slip of the pen lies between them: a letter too many, too few, exchanged with its
//! neighbour or with another letter (`raed_file`). A slip counts only where nothing speaks for another word: both names have
//! at least [`LETTERS`] letters, the same number of words, and the words that differ begin alike, have as many letters, and
//! hold no digit. So `get_x` is never `set_x`, `umount` never `mount`, `line1` never `line2`. Every other declared name must
//! be clearly farther away, by [`MARGIN`] slips more. Anything else is a guess, for which there are hints.

/// Names shorter than this are too easily other names.
const LETTERS: usize = 4;

/// By how many slips every other name must be farther away than the one that is meant.
const MARGIN: usize = 2;

/// The one candidate that `name` can only mean.
pub(crate) fn near<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let words = words(name);
    let distances = candidates.into_iter().map(|candidate| (distance(&words, &self::words(candidate)), candidate));
    let mut distances: Vec<_> = distances.collect();
    distances.sort_by_key(|(distance, _)| *distance);
    let (best, candidate) = *distances.first()?;
    let clear = distances.get(1).is_none_or(|(next, _)| *next >= best + MARGIN);
    // Names that differ in case alone are another rule's business.
    let case = name.to_lowercase() == candidate.to_lowercase();
    (clear && !case && (best == 0 || best == 1 && is_slip(&words, &self::words(candidate)))).then_some(candidate)
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut begins, mut lower) = (true, false);
    for c in name.chars() {
        if matches!(c, '_' | '-' | ' ' | '.') {
            begins = true;
            continue;
        }
        if begins || lower && c.is_uppercase() {
            words.push(String::new());
        }
        (begins, lower) = (false, c.is_lowercase());
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words
}

fn distance(one: &[String], other: &[String]) -> usize {
    let (one, other) = (one.concat(), other.concat());
    // So much is certain without looking, and a name may be as long as a file.
    let apart = one.chars().count().abs_diff(other.chars().count());
    if apart > MARGIN { apart } else { strsim::damerau_levenshtein(&one, &other) }
}

/// Whether a distance of 1 is a slip of the pen and no other word.
fn is_slip(one: &[String], other: &[String]) -> bool {
    let letters = |words: &[String]| words.iter().map(|word| word.chars().count()).sum::<usize>();
    let word = |(one, other): (&String, &String)| {
        one == other
            || one.chars().next() == other.chars().next()
                && one.chars().count().max(other.chars().count()) >= LETTERS
                && !one.chars().chain(other.chars()).any(char::is_numeric)
    };
    letters(one).min(letters(other)) >= LETTERS && one.len() == other.len() && one.iter().zip(other).all(word)
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn only_what_can_mean_one_thing_is_near() {
        let rows = [
            // (name, candidates, the one that is meant)
            ("readFile", "read_file write_file", "read_file"),
            ("read-file", "read_file", "read_file"),
            ("Read File", "read_file", "read_file"),
            ("readfile", "read_file", "read_file"),
            ("read_file", "ReadFile", "ReadFile"),
            ("read_fil", "read_file", "read_file"),
            ("raed_file", "read_file list_files", "read_file"),
            ("list_file", "read_file list_files", "list_files"),
            ("strat_line", "start_line end_line path", "start_line"),
            // Two names are near, or nearly so.
            ("read_fil", "read_file read_files", ""),
            ("read_filez", "read_file read_files", ""),
            ("readFile", "read_file read-file", ""),
            ("readFile", "read_file read_files", ""),
            ("src_c", "src_a src_b", ""),
            // More than one slip.
            ("delte_fil", "delete_file", ""),
            ("red_fil", "read_file", ""),
            // Another word.
            ("get_value", "set_value", ""),
            ("umount", "mount", ""),
            ("link_file", "unlink_file", ""),
            ("line1", "line2", ""),
            ("write_v2", "write_v1", ""),
            ("cat_it", "cut_it", ""),
            ("read_a_file", "read_file", ""),
            ("src_b", "src_a", ""),
            ("pth", "path", ""),
            ("", "path", ""),
            ("path", "", ""),
            ("PATH", "path", ""),
        ];
        for (name, candidates, expected) in rows {
            assert_eq!(near(name, candidates.split_whitespace()).unwrap_or_default(), expected, "{name}: {candidates}");
        }
    }
}
