//! Rejects patterns of rules that have a special meaning in other programs, but not in Sabir.
//!
//! A rule that silently means something else would allow calls that its author meant to forbid.

/// Returns the reason why a rule from the configuration or a flag cannot be used, or `None` for a
/// usable rule.
pub(super) fn rule_problem(rule: &str) -> Option<String> {
    let rule = rule.trim();
    match (rule.strip_prefix("path="), rule.strip_prefix("host=")) {
        (Some(glob), _) => path_problem(glob.trim()),
        (_, Some(host)) => host_problem(host.trim()),
        (None, None) => None,
    }
}

/// Returns the same for the glob of a path.
pub(super) fn path_problem(glob: &str) -> Option<String> {
    if let Some(c) = glob.chars().find(|c| "?[]{}\\".contains(*c)) {
        return Some(format!(
            "`{c}` has no meaning in `{glob}`, where only `*` and `**` match other characters: write `*` in its place, or a rule \
             for each name"
        ));
    }
    if glob.starts_with('!') {
        return Some(format!(
            "`{glob}` cannot negate another rule: write only what it should match, or ./{glob} for a file of that name"
        ));
    }
    let user = glob
        .strip_prefix('~')
        .map(|rest| rest.split('/').next().unwrap_or_default());
    user.filter(|user| !user.is_empty()).map(|user| {
        format!(
            "`~{user}` would be another user's home folder, which is not looked up: write the folder itself, as in /home/{user}, or \
             ./{glob} for a file of that name"
        )
    })
}

/// Returns the same for the name of a host.
fn host_problem(host: &str) -> Option<String> {
    // The colons inside the brackets of an IPv6 address do not begin a port.
    let port = host
        .rsplit_once(':')
        .is_some_and(|(_, behind)| !behind.ends_with(']'));
    (port || host.contains(['*', '?', '/', '@'])).then(|| {
        format!("`{host}` is not a name of a host: write the whole name alone, such as docs.example.org, and a rule for each host")
    })
}

#[cfg(test)]
mod tests {
    use super::rule_problem;

    #[track_caller]
    fn check(rule: &str, expected: Option<&str>) {
        let found = rule_problem(rule);
        match expected {
            None => assert_eq!(found, None, "{rule}"),
            Some(words) => assert!(
                found.as_ref().is_some_and(|found| found.contains(words)),
                "{rule}: {found:?}"
            ),
        }
    }

    #[test]
    fn foreign_spellings_are_rejected() {
        for rule in [
            "path=[a",
            "path=a]",
            "path=[ab].txt",
            "path=?.txt",
            "path=*.{pem,key}",
            "path=a\\*",
            " path= x[ ",
        ] {
            check(rule, Some("has no meaning in"));
        }
        check(
            "path=~root/x",
            Some("write the folder itself, as in /home/root"),
        );
        check("path=~ada", Some("./~ada for a file of that name"));
        check("path=!src/**", Some("cannot negate another rule"));
        for rule in [
            "host=*.example.org",
            "host=https://example.org",
            "host=example.org:443",
            "host=a@b",
            "host=[::1]:80",
        ] {
            check(rule, Some("is not a name of a host"));
        }
    }

    #[test]
    fn usable_patterns_are_accepted() {
        for rule in [
            "path=~",
            "path=~/.aws/",
            "path=./~ada",
            "path=**/*~",
            "path=a!",
            "path=a b",
            "host=example.org",
            "host=[::1]",
        ] {
            check(rule, None);
        }
        for rule in [
            "curl x?a=[1]",
            "find . -exec ls {} +",
            "kind=tests",
            "mcp=github/get_*",
        ] {
            check(rule, None);
        }
    }
}
