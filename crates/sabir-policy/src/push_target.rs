//! Names the destination in the question about `git push`: a name such as `origin` may mean any server.

use super::Verdict;
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::git;
use super::grammar::PathContext;
use super::word::ShellWord;

/// The most addresses that a question names, and the most characters of each.
const MAX_ADDRESSES: usize = 5;
const MAX_CHARS: usize = 120;

impl CommandEvaluator<'_> {
    /// Adds where git would push to, if the command does and is asked about.
    pub(crate) fn add_push_target(
        &mut self,
        rest: &[ShellWord],
        scope: &ShellScope,
        finding: PolicyFinding,
    ) -> PolicyFinding {
        let context = PathContext {
            folder: &scope.folder,
            root: &self.facts.root,
        };
        let Ok(git) = git::parse_invocation(rest, context) else {
            return finding;
        };
        if finding.verdict != Verdict::Ask || git.subcommand() != Some("push") {
            return finding;
        }
        if let Some(folder) = git.folder.path() {
            self.wanted_push_folder = Some(folder.to_owned());
        }
        let named = git
            .arguments()
            .iter()
            .find(|word| !word.known_prefix().starts_with('-'));
        let known = &self.facts.push_addresses;
        let mut places: Vec<String> = match named.map(|word| word.text.as_str()) {
            Some(name) => {
                let found = known.iter().filter(|(known, _)| known == name);
                let found: Vec<String> = found
                    .map(|(_, address)| push_destination(address))
                    .collect();
                match found.is_empty() {
                    // An address in the place of a name.
                    true => vec![push_destination(name)],
                    false => found,
                }
            }
            None => known
                .iter()
                .map(|(_, address)| push_destination(address))
                .collect(),
        };
        places.sort();
        places.dedup();
        places.truncate(MAX_ADDRESSES);
        if places.is_empty() {
            return finding;
        }
        PolicyFinding {
            reason: format!("{}; it sends to {}", finding.reason, places.join(", ")),
            ..finding
        }
    }
}

/// Returns the host of an address, without credentials, or the folder that it names.
fn push_destination(address: &str) -> String {
    let place = match address.split_once("://") {
        Some(("file", path)) => path,
        Some((_, rest)) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            authority.rsplit('@').next().unwrap_or_default()
        }
        // `user@host:path`, unless a slash in front of the colon makes it a path.
        None => match address.split_once(':') {
            Some((host, _)) if !host.contains('/') => host.rsplit('@').next().unwrap_or_default(),
            _ => address,
        },
    };
    place.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::push_destination;

    #[test]
    fn places_of_addresses() {
        for (address, place) in [
            ("https://github.com/a/b.git", "github.com"),
            ("https://github.com@evil.test/a/b.git", "evil.test"),
            ("https://me:key@git.example:8443/a", "git.example:8443"),
            ("ssh://git@host.example:22/a", "host.example:22"),
            ("git@github.com:a/b.git", "github.com"),
            ("ext::sh -c x", "ext"),
            ("../other.git", "../other.git"),
            ("/srv/a:b.git", "/srv/a:b.git"),
            ("file:///srv/a.git", "/srv/a.git"),
        ] {
            assert_eq!(push_destination(address), place, "{address}");
        }
    }
}
