//! Near names: what a name that is not declared can only mean.
//!
//! A name is read as a declared one where both consist of the same letters, in whatever case and with whatever between the
//! words (`readFile`, `read-file` for `read_file`), and no other declared name does. A slip of the pen (`raed_file`) is no
//! such name: it may as well be a tool that does not exist, so that there is only a hint for it.

/// The one candidate that `name` can only mean.
pub(crate) fn find_similar_name<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = normalize_name(name);
    let mut alike =
        candidates.into_iter().filter(|candidate| !wanted.is_empty() && normalize_name(candidate) == wanted);
    let (found, other) = (alike.next()?, alike.next());
    // Names that differ in case alone are another rule's business.
    (other.is_none() && name.to_lowercase() != found.to_lowercase()).then_some(found)
}

/// The letters and digits of a name, in lower case.
fn normalize_name(name: &str) -> String {
    let between = |c: &char| matches!(c, '_' | '-' | ' ' | '.');
    name.chars().filter(|c| !between(c)).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::find_similar_name;

    #[test]
    fn only_what_can_mean_one_thing_is_near() {
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
