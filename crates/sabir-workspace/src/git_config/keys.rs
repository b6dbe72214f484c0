//! Lists the keys of git's configuration that can make it run a program.

/// Returns true if a variable can make git run a program; the key is in lower case.
pub(super) fn runs_programs(key: &str, value: &str) -> bool {
    let Some((section, rest)) = key.split_once('.') else {
        return false;
    };
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    let off = matches!(
        value.to_lowercase().as_str(),
        "" | "false" | "no" | "off" | "0"
    );
    match (section, name) {
        ("core", "fsmonitor") | ("log", "showsignature") => !off,
        (
            "core",
            "hookspath"
            | "pager"
            | "editor"
            | "sshcommand"
            | "askpass"
            | "gitproxy"
            | "alternaterefscommand"
            | "worktree",
        ) => true,
        ("diff", "external" | "command" | "textconv" | "process") => true,
        // A diff of a submodule runs programs from that repository, which may be untrusted.
        ("diff", "submodule") => value.trim() == "diff",
        ("filter" | "lfs", "clean" | "smudge" | "process") | ("lfs", "path") => true,
        // A format with a signature placeholder runs gpg.
        ("format", "pretty") | ("pretty", _) => verifies_signatures(value),
        ("merge", "driver") | ("mergetool" | "difftool", "cmd" | "path") => true,
        ("gpg", "program" | "defaultkeycommand") => true,
        ("credential", "helper") => true,
        (
            "alias" | "include" | "includeif" | "pager" | "protocol" | "browser" | "man"
            | "sendemail" | "hook",
            _,
        ) => true,
        ("sequence", "editor") | ("interactive", "difffilter") | ("help" | "web", "browser") => {
            true
        }
        ("remote", "uploadpack" | "receivepack" | "vcs" | "promisor" | "partialclonefilter")
        | ("extensions", "partialclone") => true,
        ("uploadpack", "packobjectshook")
        | ("init", "templatedir")
        | ("trailer", "command" | "cmd") => true,
        ("submodule", "update") => value.trim_start().starts_with('!'),
        _ => false,
    }
}

/// Returns true if a commit format shows signatures: `%G?` and its like, or the same with a sign in
/// front.
fn verifies_signatures(format: &str) -> bool {
    format
        .split('%')
        .skip(1)
        .any(|rest| rest.trim_start_matches(['+', '-', ' ']).starts_with('G'))
}

#[cfg(test)]
mod tests {
    use super::runs_programs;

    #[track_caller]
    fn check(entry: &str, expected: bool) {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        assert_eq!(runs_programs(key, value), expected, "{entry}");
    }

    #[test]
    fn keys_that_run_programs() {
        check("core.fsmonitor\n./evil.sh", true);
        check("core.fsmonitor\nfalse", false);
        check("core.fsmonitor", true);
        check("diff.evil.textconv\n./x", true);
        check("diff.a.b.command\n./x", true);
        check("diff.external\n./x", true);
        check("diff.renames\ntrue", false);
        check("filter.evil.clean\n./f.sh", true);
        check("include.path\nx", true);
        check("includeif.gitdir:/x.path\nx", true);
        check("alias.st\nstatus", true);
        check("core.bare\nfalse", false);
        check("user.name\nx\ny", false);
        check("remote.origin.url\nhttps://h/x", false);
        check("remote.origin.promisor\ntrue", true);
        check("remote.origin.partialclonefilter\nblob:none", true);
        check(
            "remote.origin.fetch\n+refs/heads/*:refs/remotes/origin/*",
            false,
        );
        check("diff.submodule\ndiff", true);
        check("diff.submodule\nlog", false);
        check("format.pretty\n%h %+G?", true);
        check("pretty.mine\n%GS", true);
        check("format.pretty\n%h %s", false);
        check("lfs.extension.x.clean\n./x", true);
        check("lfs.repositoryformatversion\n0", false);
        check("submodule.a.update\n!touch x", true);
        check("submodule.a.active\ntrue", false);
    }
}
