//! Recognizes sandbox denials in the output of a command, and explains to the model which limit it
//! met.
//!
//! The kernel reports a denial only to the program, and most programs print it. This is therefore a
//! guess, made only if the command failed, and worded as what the sandbox allows rather than as
//! what happened.

use std::path::{Path, PathBuf};

use super::{EffectiveLevel, NetworkAccess, SandboxPlan};
use crate::protected_paths;

/// The number of characters of the output line that are repeated.
const SHOWN: usize = 200;

/// An explanation for a command that the sandbox may have stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialNote {
    /// The kind of denial.
    pub kind: DenialKind,
    /// The output line, the rule, and what the sandbox allows, in sentences.
    pub message: String,
}

/// A kind of denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialKind {
    /// A denial about files, privileges or other processes.
    Files,
    /// A denial about the network.
    Network,
    /// A refused connection, in the loopback of the command's own.
    Loopback,
}

impl DenialKind {
    /// Returns a sentence with the options of `sabir sandbox` that allow what was denied.
    #[must_use]
    pub fn option_hint(self) -> &'static str {
        match self {
            Self::Files => {
                "`--write FOLDER` allows a folder; `--level off` runs it without a sandbox."
            }
            Self::Network => {
                "`--network` allows the network, `--network registries` package registries."
            }
            Self::Loopback => {
                "`--network` allows the network, and with it this machine's loopback."
            }
        }
    }
}

/// The error texts of denials, in lower case.
const WORDS: [(&str, DenialKind); 20] = [
    ("read-only file system", DenialKind::Files),
    ("permission denied", DenialKind::Files),
    ("operation not permitted", DenialKind::Files),
    ("permissionerror", DenialKind::Files),
    ("eacces", DenialKind::Files),
    ("eperm", DenialKind::Files),
    ("erofs", DenialKind::Files),
    ("could not resolve", DenialKind::Network),
    ("name resolution", DenialKind::Network),
    ("name or service not known", DenialKind::Network),
    ("network is unreachable", DenialKind::Network),
    ("no route to host", DenialKind::Network),
    ("enotfound", DenialKind::Network),
    ("enetunreach", DenialKind::Network),
    ("eai_again", DenialKind::Network),
    ("dns error", DenialKind::Network),
    ("connection refused", DenialKind::Loopback),
    ("econnrefused", DenialKind::Loopback),
    ("failed to connect to", DenialKind::Loopback),
    ("couldn't connect to", DenialKind::Loopback),
];

/// Error texts, in lower case, that count only if the line names a protected path, which cannot be
/// moved or removed.
const BUSY: [&str; 2] = ["resource busy", "ebusy"];

/// Returns a note for a failed command if its output contains an error that the sandbox may have
/// caused.
pub(super) fn find_denial(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    output: &str,
) -> Option<DenialNote> {
    // Searched from the end: the last error is most likely the one that made the command fail.
    let (line, kind) = output.lines().rev().find_map(|line| {
        let lower = line.to_lowercase();
        let kind = WORDS
            .iter()
            .find(|(words, _)| lower.contains(words))
            .map(|&(_, kind)| kind);
        let busy = || is_busy(line) && find_guarded_path(plan, level, line).is_some();
        kind.or_else(|| busy().then_some(DenialKind::Files))
            .map(|kind| (line.trim(), kind))
    })?;
    let kind = if kind == DenialKind::Files && mentions_network(line) {
        DenialKind::Network
    } else {
        kind
    };
    if kind != DenialKind::Files && plan.network == NetworkAccess::Allowed {
        return None;
    }
    // At a port that was forwarded the machine itself refused.
    if kind == DenialKind::Loopback && names_forwarded_port(plan, line) {
        return None;
    }
    let rule = match kind {
        DenialKind::Network if plan.network == NetworkAccess::Registries => {
            "it reaches only package registries, through a proxy".to_owned()
        }
        DenialKind::Network => "it has no network".to_owned(),
        DenialKind::Loopback if level == EffectiveLevel::One => "it has no network".to_owned(),
        DenialKind::Loopback => "127.0.0.1 and localhost are the command's own there; it reaches a port of this machine's loopback only \
            if its line names that port, a program listened there when it started, the user approved it, and config.toml has not \
            `loopback = false`"
            .to_owned(),
        DenialKind::Files => describe_rule(plan, level, line),
    };
    let shown: String = line.chars().take(SHOWN).collect();
    let list = |paths: &[PathBuf]| {
        paths
            .iter()
            .map(|path| format!("`{}`", path.display()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let tmp = if level == EffectiveLevel::Two {
        "/tmp"
    } else {
        "$TMPDIR"
    };
    let network = match plan.network {
        NetworkAccess::Denied => "no network",
        NetworkAccess::Registries => "no network but package registries",
        NetworkAccess::Allowed => "the network, but no unix sockets",
    };
    let places = match plan.write.as_slice() {
        [] => format!("As a command that only reads, it can write in {tmp} alone"),
        write => format!("It can write in {} and {tmp}", list(write)),
    };
    let words = format!(
        "The command ran in a sandbox (level {level}), which may be why `{shown}`: {rule}. {places}, and has {network}."
    );
    Some(DenialNote {
        kind,
        message: words,
    })
}

/// Describes the exit code of a program that explains a failure by the code alone, as `curl -s`
/// does; `None` for other programs, and if the command names a port of this machine that is
/// forwarded.
pub(super) fn describe_silent_exit(
    plan: &SandboxPlan,
    command: &str,
    code: i32,
) -> Option<&'static str> {
    let names_program = |name: &str| {
        let mut words = command.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        words.any(|word| word == name)
    };
    let line = match code {
        6 if names_program("curl") => "exit code 6 of curl: could not resolve host",
        7 if names_program("curl") => "exit code 7 of curl: failed to connect to the server",
        4 if names_program("wget") => "exit code 4 of wget: network is unreachable",
        _ => return None,
    };
    (!names_forwarded_port(plan, command)).then_some(line)
}

/// Returns true if the line names a port that the command reaches on this machine.
fn names_forwarded_port(plan: &SandboxPlan, line: &str) -> bool {
    let ports = plan.loopback.iter().flat_map(|loopback| &loopback.ports);
    let numbers: Vec<&str> = line.split(|c: char| !c.is_ascii_digit()).collect();
    ports
        .into_iter()
        .any(|port| numbers.contains(&port.to_string().as_str()))
}

fn mentions_network(line: &str) -> bool {
    let lower = line.to_lowercase();
    ["socket", "connect", "://", "bind", "listen"]
        .iter()
        .any(|word| lower.contains(word))
}

fn is_busy(line: &str) -> bool {
    let lower = line.to_lowercase();
    BUSY.iter().any(|word| lower.contains(word))
}

/// Describes the rule for the path that the line names.
fn describe_rule(plan: &SandboxPlan, level: EffectiveLevel, line: &str) -> String {
    let none = "files outside of these folders cannot be changed, and new privileges, devices, mounts and traces are denied";
    let Some(path) = (if is_busy(line) {
        find_guarded_path(plan, level, line)
    } else {
        find_path(line)
    }) else {
        return none.to_owned();
    };
    let shown = path.display();
    if let Some(reason) = protected_reason(plan, level, path) {
        return format!("`{shown}` is {reason}, which commands may not change");
    }
    if plan.hide.iter().any(|hidden| path.starts_with(hidden)) {
        return format!("`{shown}` is hidden, because secrets may be there");
    }
    match inside_workspace(plan, path) {
        Some(_) => none.to_owned(),
        None => format!("`{shown}` is outside of what it may change"),
    }
}

/// Returns the path relative to the workspace, if it lies there and the workspace is writable.
fn inside_workspace<'a>(plan: &SandboxPlan, path: &'a Path) -> Option<&'a Path> {
    let workspace = plan.write.first()?;
    if path.is_absolute() {
        path.strip_prefix(workspace).ok()
    } else {
        Some(path)
    }
}

/// Returns the reason that commands of this level cannot change a path in the workspace, if any.
fn protected_reason(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    path: &Path,
) -> Option<&'static str> {
    inside_workspace(plan, path)
        .and_then(protected_paths::find_protection_reason)
        .filter(|_| level == EffectiveLevel::Two)
}

/// Returns the last word of the line that is a protected path.
fn find_guarded_path<'a>(
    plan: &SandboxPlan,
    level: EffectiveLevel,
    line: &'a str,
) -> Option<&'a Path> {
    split_words(line)
        .map(Path::new)
        .rfind(|path| protected_reason(plan, level, path).is_some())
}

/// Returns the last word of the line that looks like a path.
fn find_path(line: &str) -> Option<&Path> {
    let is_path = |word: &&str| {
        word.contains('/') && word.len() > 1 || word.starts_with('.') && word.len() > 2
    };
    split_words(line).rfind(is_path).map(Path::new)
}

fn split_words(line: &str) -> impl DoubleEndedIterator<Item = &str> {
    line.split(|c: char| {
        c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ':' | '‘' | '’' | '(' | ')' | ',')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{SandboxLevel, TempDirLifetime};

    fn plan(network: NetworkAccess) -> SandboxPlan {
        let write = vec!["/w".into()];
        let read = Vec::new();
        let hide = vec!["/h/.ssh".into()];
        SandboxPlan {
            level: SandboxLevel::Two,
            network,
            write,
            read,
            hide,
            empty: Vec::new(),
            tmp: "/tmp/s".into(),
            stay: TempDirLifetime::Command,
            caches: Vec::new(),
            package_homes: Vec::new(),
            registries: Vec::new(),
            memory_mib: None,
            home: None,
            loopback: None,
            mask_pool: None,
        }
    }

    #[track_caller]
    fn check(output: &str, expected: Option<&str>) {
        let found = find_denial(&plan(NetworkAccess::Denied), EffectiveLevel::Two, output);
        match expected {
            None => assert_eq!(found, None),
            Some(words) => {
                assert!(
                    found
                        .as_ref()
                        .is_some_and(|note| note.message.contains(words)),
                    "{output}: {found:?}"
                )
            }
        }
    }

    #[test]
    fn denials_are_explained() {
        check(
            "touch: cannot touch '/etc/x': Read-only file system\n",
            Some("`/etc/x` is outside of what it may change"),
        );
        check(
            "bash: line 1: /etc/x: Permission denied",
            Some("`/etc/x` is outside"),
        );
        check(
            "sh: 1: cannot create .git/hooks/x: Read-only file system",
            Some("`.git/hooks/x` is git's own files"),
        );
        check(
            "cp: cannot create '/w/.vscode/t': Read-only file system",
            Some("an editor's configuration"),
        );
        check(
            "cat: /h/.ssh/id: Permission denied",
            Some("`/h/.ssh/id` is hidden"),
        );
        check(
            "curl: (6) Could not resolve host: x.example",
            Some("it has no network"),
        );
        check(
            "PermissionError: [Errno 1] Operation not permitted: socket",
            Some("it has no network"),
        );
        check(
            "error: could not write config file .git/config: Device or resource busy",
            Some("`.git/config` is git's own files, which commands may not change"),
        );
        check(
            "mv: cannot move 'AGENTS.md' to 'x': Device or resource busy",
            Some("`AGENTS.md` is a coding agent's"),
        );
        check(
            "mv: cannot move '/w/.git' to '/w/away': Device or resource busy",
            Some("`/w/.git` is git's own"),
        );
        check(
            "OSError: [Errno 16] EBUSY: '.vscode'",
            Some("an editor's configuration"),
        );
        check("umount: /mnt: device or resource busy", None);
        check("rm: cannot remove 'x': Device or resource busy", None);
        check(
            "mount: permission denied",
            Some("new privileges, devices, mounts and traces are denied"),
        );
        check("first\nEACCES /etc/y\nlast", Some("`EACCES /etc/y`"));
        check("error[E0308]: mismatched types", None);
        check("", None);
    }

    #[test]
    fn a_refused_connection_names_the_loopback() {
        let line = "curl: (7) Failed to connect to 127.0.0.1 port 8080 after 0 ms: Couldn't connect to server";
        check(line, Some("this machine's loopback"));
        check("connect ECONNREFUSED ::1:80", Some("`loopback = false`"));
        let forwarded = SandboxPlan {
            loopback: Some(crate::sandbox::LoopbackPlan {
                socket: "/tmp/s".into(),
                ports: vec![8080],
            }),
            ..plan(NetworkAccess::Denied)
        };
        assert_eq!(find_denial(&forwarded, EffectiveLevel::Two, line), None);
    }

    #[test]
    fn a_program_without_words_is_known_by_its_exit_code() {
        let denied = plan(NetworkAccess::Denied);
        let described = |command, code| describe_silent_exit(&denied, command, code);
        for (command, code) in [
            ("cd x && curl -s http://x/", 6),
            ("P=1; /usr/bin/curl -sf localhost:$P", 7),
            ("wget -qO- x", 4),
        ] {
            let line = described(command, code).unwrap();
            assert!(
                find_denial(&denied, EffectiveLevel::Two, line).is_some(),
                "{line}"
            );
        }
        assert_eq!(described("curl -s x", 22), None);
        assert_eq!(described("./curl-test.sh", 7), None);
        assert_eq!(described("make", 7), None);
        let forwarded = SandboxPlan {
            loopback: Some(crate::sandbox::LoopbackPlan {
                socket: "/tmp/s".into(),
                ports: vec![8080],
            }),
            ..plan(NetworkAccess::Denied)
        };
        let command = "curl -s http://127.0.0.1:8080/";
        assert_eq!(describe_silent_exit(&forwarded, command, 7), None);
    }

    #[test]
    fn an_allowed_network_is_not_blamed() {
        let found = find_denial(
            &plan(NetworkAccess::Allowed),
            EffectiveLevel::One,
            "curl: (6) Could not resolve host: x.example",
        );
        assert_eq!(found, None);
    }
}
