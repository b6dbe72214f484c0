//! Gives each tool of each server one flat name that every model and wire accepts.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The most characters of a name: the least limit of all providers.
const MAX_NAME: usize = 64;
/// The characters of a hash in a name.
const HASH_CHARACTERS: usize = 8;

/// Returns the name of a tool as models see it: `SERVER__TOOL` where that is unambiguous, short enough and made of letters, digits,
/// `_` and `-`; otherwise a readable part of it with a hash of both names.
///
/// The name depends on the two names alone, so it is the same in each run, in whatever order servers start. It is never parsed back:
/// see [`NameTable`].
///
/// ```
/// use sabir_mcp::shown_tool_name;
///
/// assert_eq!(shown_tool_name("github", "create_issue"), "github__create_issue");
/// // Joined plainly, these two would have one name.
/// assert_ne!(shown_tool_name("a__b", "c"), shown_tool_name("a", "b__c"));
/// ```
pub fn shown_tool_name(server: &str, tool: &str) -> String {
    let joined = format!("{server}__{tool}");
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    // The first `__` then ends the server's name, so no other pair has this name.
    let is_unambiguous = !server.contains("__") && !server.ends_with('_') && !tool.starts_with('_');
    let begins_well = joined.starts_with(|c: char| c.is_ascii_alphabetic());
    // A name that ends like a hash could be the name of another pair.
    let looks_hashed = joined
        .rsplit_once("_x")
        .is_some_and(|(_, end)| end.len() == HASH_CHARACTERS);
    if !server.is_empty()
        && !tool.is_empty()
        && is_unambiguous
        && begins_well
        && !looks_hashed
        && joined.len() <= MAX_NAME
        && joined.chars().all(is_allowed)
    {
        return joined;
    }
    let mut hash = Sha256::new();
    hash.update(server.as_bytes());
    hash.update([0]);
    hash.update(tool.as_bytes());
    let hash = crate::definition::hex_digest(hash.finalize().as_slice());
    let readable: String = joined
        .chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .take(MAX_NAME - HASH_CHARACTERS - 3)
        .collect();
    let start = if begins_well { "" } else { "t" };
    let hash: String = hash.chars().take(HASH_CHARACTERS).collect();
    format!("{start}{readable}_x{hash}")
}

/// Maps the names that models see back to servers and tools.
#[derive(Debug, Clone, Default)]
pub struct NameTable {
    names: BTreeMap<String, (String, String)>,
}

impl NameTable {
    /// Adds a tool and returns its shown name; `None` if another tool has it, which takes two equal hashes.
    pub fn insert(&mut self, server: &str, tool: &str) -> Option<String> {
        let shown = shown_tool_name(server, tool);
        let pair = (server.to_owned(), tool.to_owned());
        match self.names.get(&shown) {
            Some(known) if *known != pair => None,
            _ => {
                self.names.insert(shown.clone(), pair);
                Some(shown)
            }
        }
    }

    /// Returns the server and the tool of a shown name.
    pub fn resolve(&self, shown: &str) -> Option<(&str, &str)> {
        self.names
            .get(shown)
            .map(|(server, tool)| (server.as_str(), tool.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_joined() {
        assert_eq!(shown_tool_name("fs", "read_file"), "fs__read_file");
        assert_eq!(shown_tool_name("my-srv", "get-x"), "my-srv__get-x");
        // A built-in name stays the built-in's.
        assert_eq!(
            shown_tool_name("s", "execute_command"),
            "s__execute_command"
        );
    }

    #[test]
    fn ambiguous_long_and_foreign_names_differ() {
        let pairs = [
            ("a__b", "c"),
            ("a", "b__c"),
            ("a_", "b"),
            ("a", "_b"),
            ("a", "b"),
            ("ä", "b"),
            ("ö", "b"),
            ("a.b", "c"),
            ("a_b", "c"),
            ("1", "b"),
            ("", "b"),
            ("a", ""),
        ];
        let mut table = NameTable::default();
        for (server, tool) in pairs {
            let shown = table.insert(server, tool).unwrap();
            assert!(shown.len() <= MAX_NAME && shown.is_ascii(), "{shown}");
            assert!(
                shown.starts_with(|c: char| c.is_ascii_alphabetic()),
                "{shown}"
            );
        }
        for (server, tool) in pairs {
            let shown = shown_tool_name(server, tool);
            assert_eq!(table.resolve(&shown), Some((server, tool)));
        }
        let long = "x".repeat(80);
        let one = shown_tool_name(&long, "a");
        let other = shown_tool_name(&long, "b");
        assert!(one != other && one.len() <= MAX_NAME && other.len() <= MAX_NAME);
    }

    #[test]
    fn a_tool_cannot_take_the_hashed_name_of_another() {
        let hashed = shown_tool_name("a__b", "c");
        let (server, tool) = hashed.split_once("__").unwrap();
        assert_ne!(shown_tool_name(server, tool), hashed);
    }
}
