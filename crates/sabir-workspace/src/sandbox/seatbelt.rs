//! Builds a profile for macOS's `sandbox-exec` with the same rules as on Linux.
//!
//! On macOS every command of a sandbox runs with it (`seatbelt_launch.rs`). **Not yet tried**: it was
//! written from Apple's and others' profiles, without a Mac to test it on. `sabir sandbox --profile
//! seatbelt` prints it anywhere; on a Mac: `sandbox-exec -p "$(sabir sandbox --profile seatbelt)"
//! COMMAND`.
//!
//! Later rules win over earlier ones, so each list goes from general to special. There are no
//! private mounts and nothing like a namespace: the machine's `/tmp` is visible, and the process
//! tree is ended only by the supervisor.

use std::path::{Path, PathBuf};

use super::{NetworkAccess, SandboxPlan, masks};

/// The rules that every program needs and that reveal nothing.
const BASE: &str = "\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))
(allow pseudo-tty)
(allow file-ioctl (regex #\"^/dev/tty\"))
(allow file-read*)
(allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (regex #\"^/dev/tty\"))
";
/// The rules for network access: one service resolves names, another verifies certificates.
const NETWORK: &str = "\
(allow network*)
(deny network* (remote unix-socket))
(allow mach-lookup (global-name \"com.apple.trustd\") (global-name \"com.apple.SystemConfiguration.configd\"))
(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))
";

/// Builds the whole profile.
pub(super) fn build_profile(plan: &SandboxPlan) -> String {
    let mut text = BASE.to_owned();
    text.push_str(&profile_rule("deny file-read* file-write*", &plan.hide));
    text.push_str(&profile_rule("allow file-read*", &plan.read));
    text.push_str(&profile_rule(
        "allow file-write*",
        plan.write.iter().chain([&plan.tmp]),
    ));
    if let Some(top) = plan.write.first() {
        let protected: Vec<PathBuf> = masks::masked_names().map(|name| top.join(name)).collect();
        text.push_str(&profile_rule("deny file-write*", &protected));
        let inside: Vec<&PathBuf> = plan
            .hide
            .iter()
            .filter(|path| path.starts_with(top))
            .collect();
        text.push_str(&profile_rule("deny file-read* file-write*", inside));
    }
    // Nothing can look empty to Seatbelt. The names and sizes of these files stay visible.
    text.push_str(&profile_rule("deny file-read-data", &plan.empty));
    if plan.network == NetworkAccess::Allowed {
        text.push_str(NETWORK);
    }
    text
}

/// Formats one rule for some folders with everything below; empty without folders.
fn profile_rule<'a>(what: &str, paths: impl IntoIterator<Item = &'a PathBuf>) -> String {
    let filters: String = paths
        .into_iter()
        .map(|path| format!(" (subpath {})", quote_path(path)))
        .collect();
    if filters.is_empty() {
        String::new()
    } else {
        format!("({what}{filters})\n")
    }
}

fn quote_path(path: &Path) -> String {
    format!(
        "\"{}\"",
        path.display()
            .to_string()
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{SandboxLevel, TempDirLifetime};

    #[track_caller]
    fn check(write: &[&str], network: NetworkAccess, expected: &str) {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let plan = SandboxPlan {
            level: SandboxLevel::Best,
            network,
            write: paths(write),
            read: paths(&["/w"]),
            hide: paths(&["/h/.ssh", "/w/.env"]),
            empty: paths(&["/w/.npmrc"]),
            tmp: "/tmp/\"t".into(),
            stay: TempDirLifetime::Task,
            caches: Vec::new(),
            package_homes: Vec::new(),
            registries: Vec::new(),
            memory_mib: None,
            home: None,
            loopback: None,
            mask_pool: None,
        };
        let text = build_profile(&plan);
        assert_eq!(text.strip_prefix(BASE), Some(expected));
    }

    #[test]
    fn read_only_commands_may_write_temporary_files() {
        let expected = "(deny file-read* file-write* (subpath \"/h/.ssh\") (subpath \"/w/.env\"))\n\
                        (allow file-read* (subpath \"/w\"))\n(allow file-write* (subpath \"/tmp/\\\"t\"))\n\
                        (deny file-read-data (subpath \"/w/.npmrc\"))\n";
        check(&[], NetworkAccess::Denied, expected);
        check(&[], NetworkAccess::Allowed, &format!("{expected}{NETWORK}"));
    }

    #[test]
    fn protected_names_are_denied_after_their_folder_was_allowed() {
        let protected: String = masks::masked_names()
            .map(|name| format!(" (subpath \"/w/{name}\")"))
            .collect();
        let expected = format!(
            "(deny file-read* file-write* (subpath \"/h/.ssh\") (subpath \"/w/.env\"))\n(allow file-read* (subpath \"/w\"))\n\
             (allow file-write* (subpath \"/w\") (subpath \"/tmp/\\\"t\"))\n(deny file-write*{protected})\n\
             (deny file-read* file-write* (subpath \"/w/.env\"))\n(deny file-read-data (subpath \"/w/.npmrc\"))\n"
        );
        check(&["/w"], NetworkAccess::Denied, &expected);
        assert!(protected.contains("/w/.git/hooks") && protected.contains("/w/AGENTS.md"));
    }
}
