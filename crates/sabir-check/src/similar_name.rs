//! Finds the declared name that an undeclared one must mean.
//!
//! Two names match if they have the same letters, regardless of case and of separators between words (`readFile` and
//! `read-file` match `read_file`), and no other declared name has these letters. A typing error (`raed_file`) does not
//! match, because it may as well be a tool that does not exist; for it there is only a hint.

/// Finds the only candidate with the same letters and digits as `name`.
pub(crate) fn find_similar_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = normalize_name(name);
    let mut alike = candidates
        .into_iter()
        .filter(|candidate| !wanted.is_empty() && normalize_name(candidate) == wanted);
    let found = alike.next()?;
    let other = alike.next();
    // Names that differ only in case belong to the rules `wrong_case_name` and
    // `wrong_case_argument`.
    (other.is_none() && name.to_lowercase() != found.to_lowercase()).then_some(found)
}

/// Reduces a name to lower case without separators.
///
/// Other characters stay, so that `a:b` and `a/b` remain different.
fn normalize_name(name: &str) -> String {
    let between = |c: &char| matches!(c, '_' | '-' | ' ' | '.');
    name.chars()
        .filter(|c| !between(c))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::find_similar_name;

    #[test]
    fn only_unambiguous_spellings_are_similar() {
        let rows = [
            // (name, candidates, the one that is meant)
            ("readFile", "read_file write_file", "read_file"),
            ("read-file", "read_file", "read_file"),
            ("Read File", "read_file", "read_file"),
            ("readfile", "read_file", "read_file"),
            ("read_file", "ReadFile", "ReadFile"),
            // Two names are near.
            ("readFile", "read_file read-file", ""),
            // A slip of the pen, or another word.
            ("read_fil", "read_file", ""),
            ("raed_file", "read_file", ""),
            ("delte_fil", "delete_file", ""),
            ("get_value", "set_value", ""),
            ("line1", "line2", ""),
            ("", "path", ""),
            ("_", "path", ""),
            ("path", "", ""),
            ("PATH", "path", ""),
        ];
        for (name, candidates, expected) in rows {
            assert_eq!(
                find_similar_name(name, candidates.split_whitespace()).unwrap_or_default(),
                expected,
                "{name}: {candidates}"
            );
        }
    }
}
