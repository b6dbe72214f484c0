//! Builds and tests that run unasked, because the user trusts the repository and a sandbox keeps what they do in its folder.
//!
//! A build runs code of the repository, so its command line cannot show that it is harmless. The
//! sandbox at level 2 without network makes it harmless: nothing outside can be written, nothing
//! can be sent, and checkpoints undo the rest. The caller says by [`BuildTrust`](super::BuildTrust)
//! for which folders this applies.
//!
//! Only kinds of commands with a grammar of their own count (`command_kinds.rs`), so options that load a program or a
//! configuration from elsewhere ask as before, and so does every word that leads out of the folder.

use super::command_facts::BuildTrust;
use super::command_kinds::kind_of;
use super::evaluator::{CommandEvaluator, PolicyFinding, ShellScope};
use super::word::{ShellWord, WordForm};
use super::{BY_TRUST, Verdict};

/// The kinds of commands that build, test or check the folder. Left out are those that fetch,
/// commit or copy.
const BUILDS: [&str; 7] = [
    "cargo",
    "npm scripts",
    "tests",
    "linters",
    "go",
    "make",
    "cmake",
];

/// The sentence in a question about a build that lacks only the trust.
const HOW_TO_TRUST: &str = "after `sabir trust`, builds and tests of this repository run unasked, \
    without network and with no way to write outside of its folder";

impl CommandEvaluator<'_> {
    /// Allows a build that would ask, if it is confined to a folder that the user trusts. If only the trust is missing, the question says
    /// how to give it.
    pub(crate) fn apply_build_trust(
        &mut self,
        words: &[ShellWord],
        finding: PolicyFinding,
        scope: &ShellScope,
    ) -> PolicyFinding {
        if finding.verdict != Verdict::Ask
            || finding.always_asks
            || !kind_of(words).is_some_and(|kind| BUILDS.contains(&kind))
            || !words.iter().all(stays_inside)
        {
            return finding;
        }
        // The folder must be certain and inside of the workspace. The program belongs to the system
        // or, like the code that it builds, to the workspace.
        let Some(folder) = scope.folder.path().filter(|_| self.facts.clean_path) else {
            return finding;
        };
        match self.facts.build_trust(folder) {
            None => {
                let folder = folder.to_owned();
                if !self.wanted_build_folders.contains(&folder) {
                    self.wanted_build_folders.push(folder);
                }
                finding
            }
            Some(BuildTrust::Unconfined) => finding,
            // A build writes files. A mode may forbid that, and in a workspace as wide as a home
            // folder every write asks.
            Some(BuildTrust::Trusted | BuildTrust::Untrusted) if !self.rules.may_write_freely() => {
                finding
            }
            Some(BuildTrust::Trusted) => {
                self.allowed_build = true;
                PolicyFinding::allow(BY_TRUST)
            }
            Some(BuildTrust::Untrusted) => PolicyFinding {
                reason: format!("{} ({HOW_TO_TRUST})", finding.reason),
                ..finding
            },
        }
    }
}

/// Reports whether a variable can be set for a build without redirecting it: the value is a number or a plain choice, and the variable
/// names no folders, start files of a shell, or libraries.
pub(crate) fn is_build_setting(name: &str, value: &str) -> bool {
    const CHOICES: [&str; 16] = [
        "", "true", "false", "yes", "no", "on", "off", "full", "short", "always", "never", "auto",
        "debug", "info", "warn", "error",
    ];
    let is_plain_value = CHOICES.contains(&value.to_ascii_lowercase().as_str())
        || value.chars().all(|c| c.is_ascii_digit());
    let leads = |part: &str| matches!(part, "PATH" | "ENV" | "LD" | "GIT" | "IFS" | "DYLD");
    is_plain_value && !name.to_ascii_uppercase().split('_').any(leads) && !name.ends_with("PATH")
}

/// Reports whether no part of a word can be a path that leads out of the folder.
fn stays_inside(word: &ShellWord) -> bool {
    if !matches!(word.form, WordForm::Literal | WordForm::Glob(_)) {
        return false;
    }
    word.text.split(['=', ',', ':']).all(|part| {
        !part.starts_with(['/', '~']) && part.split('/').all(|component| component != "..")
    })
}

#[cfg(test)]
mod tests {
    use super::BUILDS;
    use crate::command_kinds::find_kind;
    use crate::{
        Access, BuildTrust, CommandFacts, ExtraPermissions, Mode, PolicyRules, RuleKind, Verdict,
        decide_access,
    };

    fn decide_line(rules: &PolicyRules, trust: BuildTrust, line: &str) -> crate::PolicyDecision {
        let facts = CommandFacts {
            clean_path: true,
            root: "/w".to_owned(),
            confined: true,
            build_folders: vec![(".".to_owned(), trust), ("sub".to_owned(), trust)],
            ..CommandFacts::default()
        };
        decide_access(
            rules,
            &Access::Command {
                command: line.to_owned(),
                facts,
                beyond: ExtraPermissions::Nothing,
            },
        )
    }

    #[test]
    fn every_kind_of_build_exists() {
        for kind in BUILDS {
            assert!(find_kind(kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn only_builds_of_a_trusted_folder_run() {
        let rules = PolicyRules::default();
        for line in [
            "cargo test",
            "cargo test -p a 2>&1 | tail -5",
            "cd sub && make -j4 check",
            "pytest -q tests/a.py",
            "npm test",
            "go test ./...",
            "timeout 60 cargo test",
            "timeout -k 5 10m make check",
            "env X=1 RUST_BACKTRACE=full cargo build",
            "env -i cargo build",
            "nice -n 10 cargo test | tail",
            "time cargo test",
            "ionice -c 3 nice timeout 60 env CI=1 npm test",
            "stdbuf -oL pytest -q",
            "command cargo test",
            "env A=1 timeout 5 env B=2 make",
        ] {
            let trusted = decide_line(&rules, BuildTrust::Trusted, line);
            assert_eq!(
                trusted.verdict,
                Verdict::Allow,
                "{line}: {}",
                trusted.reason
            );
            assert_eq!(trusted.reason, crate::BY_TRUST, "{line}");
            // The sandbox must let it write.
            assert!(!trusted.only_reads, "{line}");
            let untrusted = decide_line(&rules, BuildTrust::Untrusted, line);
            assert_eq!(untrusted.verdict, Verdict::Ask, "{line}");
            assert!(untrusted.reason.contains("sabir trust"), "{line}");
            let open = decide_line(&rules, BuildTrust::Unconfined, line);
            assert_eq!(open.verdict, Verdict::Ask, "{line}");
            assert!(!open.reason.contains("sabir trust"), "{line}");
        }
        for line in [
            "make -f /tmp/x",
            "make -C /tmp/x",
            "make CC=./evil",
            "make deploy",
            "make docker-push",
            "cmake --build build --target install",
            "cargo --config 'build.rustc=\"./evil\"' build",
            "cargo build --target=/tmp/x.json",
            "cargo publish",
            "cargo install x",
            "cd /tmp/x && make",
            "cd other && make",
            "go test /tmp/x",
            "go test ../x",
            "pytest ../x",
            "npm install",
            "./gradlew test",
            "cargo test > ../out",
            "cargo test; rm -rf src",
            "PATH=. cargo test",
            "X=/tmp; cargo test $X",
            "timeout 60 make -f /tmp/x",
            "env PATH=1 cargo test",
            "env BASH_ENV=1 make",
            "env RUSTC_WRAPPER=./evil cargo build",
            "env X=/tmp cargo build",
            "env X=1 touch x",
            "nohup cargo test",
            "ls | xargs cargo test",
            "timeout 60 cargo publish",
            "timeout 60 ./gradlew test",
        ] {
            let decision = decide_line(&rules, BuildTrust::Trusted, line);
            assert_eq!(
                decision.verdict,
                Verdict::Ask,
                "{line}: {}",
                decision.reason
            );
        }
    }

    #[test]
    fn rules_modes_and_wide_folders_go_before_trust() {
        let mut rules = PolicyRules::default();
        rules.add_rule(RuleKind::Ask, "cargo **").unwrap();
        rules.add_rule(RuleKind::Deny, "make").unwrap();
        let trusted =
            |rules: &PolicyRules, line| decide_line(rules, BuildTrust::Trusted, line).verdict;
        assert_eq!(trusted(&rules, "cargo test"), Verdict::Ask);
        assert_eq!(trusted(&rules, "make check"), Verdict::Deny);
        assert_eq!(trusted(&rules, "npm test"), Verdict::Allow);
        let wide = PolicyRules::default().ask_before_writes("it is your home folder");
        assert_eq!(trusted(&wide, "cargo test"), Verdict::Ask);
        for mode in Mode::built_in_modes() {
            let expected = if mode.can_edit_any_file() {
                Verdict::Allow
            } else {
                Verdict::Deny
            };
            let name = mode.name.clone();
            let rules = PolicyRules::default().with_mode(mode);
            assert_eq!(trusted(&rules, "cargo test"), expected, "{name}");
        }
    }
}
