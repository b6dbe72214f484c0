//! Files with secrets that a command reads without naming them, and names that are split on the way.

use Verdict::{Allow, Ask};
use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, FileNames, PolicyRules, RuleKind, SecretFile,
    SecretFiles, ShellKind, TrackedSecrets, Verdict, decide_access, required_facts,
};

use super::facts;

/// A workspace that holds these files with secrets; those that are hidden are skipped by search programs.
fn with_secrets(paths: &[&str]) -> CommandFacts {
    let found = paths.iter().map(|path| SecretFile {
        path: (*path).to_owned(),
        ignored: path.split('/').any(|part| part.starts_with('.')),
    });
    CommandFacts {
        secret_files: SecretFiles::Found(found.collect()),
        ..facts("plain", ShellKind::Bash)
    }
}

#[track_caller]
fn check_with(rules: &PolicyRules, facts: &CommandFacts, line: &str, expected: Verdict) {
    let access = Access::Command {
        command: line.to_owned(),
        facts: facts.clone(),
        beyond: ExtraPermissions::Nothing,
    };
    let decision = decide_access(rules, &access);
    assert_eq!(decision.verdict, expected, "{line}: {}", decision.reason);
}

#[track_caller]
fn check(facts: &CommandFacts, line: &str, expected: Verdict) {
    check_with(&PolicyRules::default(), facts, line, expected);
}

/// Lines that read `.env` without naming it. Each asks if the file exists, and runs if it does not.
const READS_ENV: [&str; 68] = [
    "cat .e*",
    "cat .e??",
    "head .e??",
    "head -5 .[e]nv",
    "tail -n 2 ./.e*",
    "cat .[!.]*",
    "cat .en?",
    "cat ?env",
    "cat .EN?",
    "nl .e*",
    "tac .e*",
    "sort .e*",
    "uniq .en?",
    "base64 .e*",
    "xxd .en?",
    "od -c .e*",
    "strings .e*",
    "sed -n p .e*",
    "awk 1 .e*",
    "cut -d= -f2 .e*",
    "paste .e* a.txt",
    "diff .e* /dev/null",
    "comm .e* a.txt",
    "md5sum .e*",
    "jq -R . .e*",
    "bat .e*",
    "less .e*",
    "grep KEY .e*",
    "grep -h '' .e*",
    "grep -r KEY .",
    "grep -rn KEY",
    "grep -R KEY .",
    "grep --recursive KEY .",
    "grep -d recurse KEY .",
    "grep --directories=recurse KEY .",
    "egrep -r KEY ./",
    "grep -r KEY . | head -3",
    "grep -rl KEY . | xargs cat",
    "grep -r --include='.e*' KEY .",
    "grep -r --include='*env' KEY .",
    "grep -r --include=.e* KEY",
    "grep -r --include=*env KEY",
    "rg --hidden KEY",
    "rg -uu KEY",
    "rg -u KEY .",
    "rg -g '.env' KEY",
    "rg -g '.e*' KEY",
    "diff -r . src",
    "diff . src",
    "find . -type f -exec cat {} +",
    "find . -name '.e*' -exec cat {} \\;",
    "find . -name '*env' -exec grep KEY {} +",
    "find . -type f | xargs cat",
    "find . -type f -print0 | xargs -0 grep KEY",
    "find . -iname '.ENV' | xargs head",
    "find . -name '*.rs' -o -name '.env' | xargs cat",
    "find . -exec grep KEY {} -name '*.rs' +",
    "find . -printf -name -type f | xargs cat",
    "find . -type f | while read -r f; do cat \"$f\"; done",
    "find . -print0 | while IFS= read -r -d '' f; do cat \"$f\"; done",
    "git grep --untracked KEY",
    "git grep --no-index KEY",
    "git ls-files -o | xargs cat",
    "fd -H env | xargs cat",
    "for f in .e*; do cat \"$f\"; done",
    "for f in .[a-z]*; do head -1 \"$f\"; done",
    "for x in v; do cat .en$x; done",
    "for x in env; do cat \".$x\"; done",
];

#[test]
fn a_file_with_secrets_is_not_read_without_a_question() {
    let there = with_secrets(&[".env"]);
    for line in READS_ENV {
        check(&there, line, Ask);
        let unknown = CommandFacts {
            secret_files: SecretFiles::Unknown,
            ..there.clone()
        };
        check(&unknown, line, Ask);
    }
}

#[test]
fn without_such_a_file_the_same_lines_run() {
    // These ask for another reason.
    const UNCERTAIN: [&str; 8] = [
        "--no-index",
        ".[",
        "find . -printf",
        "cat \".$x\"",
        "git ls-files -o",
        "uniq",
        "xxd",
        "{} -name",
    ];
    for none in [
        SecretFiles::Found(Vec::new()),
        SecretFiles::Masked(Vec::new()),
    ] {
        let facts = CommandFacts {
            secret_files: none,
            ..facts("plain", ShellKind::Bash)
        };
        for line in READS_ENV
            .iter()
            .filter(|line| !UNCERTAIN.iter().any(|odd| line.contains(odd)))
        {
            check(&facts, line, Allow);
        }
    }
}

#[test]
fn visible_files_with_secrets_are_not_read_either() {
    let there = with_secrets(&["server.pem", "deploy/id_rsa", "conf/credentials"]);
    for line in [
        "cat *",
        "head -3 s*",
        "cat *.pem",
        "cat */*",
        "cat deploy/*",
        "cat deploy/id_*",
        "rg BEGIN",
        "rg BEGIN deploy",
        "rg B*",
        "ag KEY",
        "grep -r KEY deploy",
        "cd deploy && cat *",
        "cd deploy && grep -r KEY",
        "ls | xargs cat",
        "git ls-files | xargs cat",
        "rg --files | xargs cat",
        "for f in *; do cat \"$f\"; done",
        "for d in deploy; do cat \"$d\"/*; done",
        "cat $(git ls-files)",
        "find deploy | xargs -n1 cat",
        "cat deploy/../s*",
    ] {
        check(&there, line, Ask);
    }
}

#[test]
fn commands_that_cannot_reach_the_file_run() {
    let there = with_secrets(&[".env", "deploy/keys/a.pem"]);
    for line in [
        "ls -la",
        "ls -A *",
        "echo *",
        "cat *.txt",
        "cat src/*",
        "cat *",
        "grep -rn foo src",
        "grep -rn foo . --include='*.rs'",
        "grep -rn --include=*.md --include=*.txt foo .",
        "rg foo src",
        "rg -g '*.rs' foo",
        "find . -name '*.rs' | xargs wc -l",
        "find . -name '*.rs' | xargs cat",
        "find src -type f -exec cat {} +",
        "find . -type f | xargs ls -l",
        "find . -type f | wc -l",
        "find . -type f | xargs -n1 basename",
        "git ls-files '*.rs' | xargs cat",
        "git status",
        "git diff",
        "git log --oneline",
        "tree",
        "du -sh *",
        "wc -l *",
        "stat .e*",
        "for f in src/*; do cat \"$f\"; done",
        "for f in *.txt; do cat \"$f\"; done",
        "cat a.txt | rg foo",
        "diff src docs",
        "diff a.txt b.txt",
        "cat .env.example",
    ] {
        check(&there, line, Allow);
    }
    // Hidden files are skipped only by a search of the whole folder.
    check(&with_secrets(&[".env"]), "rg foo", Allow);
    check(&with_secrets(&[".env"]), "rg foo .", Allow);
    check(&with_secrets(&[".conf/a.pem"]), "rg foo .conf", Ask);
    check(&with_secrets(&[".conf/a.pem"]), "cd .conf && rg foo", Ask);
    check(
        &with_secrets(&[".conf/a.pem"]),
        "cd .conf && rg --files | xargs cat",
        Ask,
    );
    check(&with_secrets(&[]), "cd .ssh && cat config", Ask);
}

#[test]
fn a_rule_for_the_path_answers_the_question() {
    let there = with_secrets(&[".env"]);
    let mut rules = PolicyRules::default();
    rules.add_rule(RuleKind::Allow, "path=.env").unwrap();
    check_with(&rules, &there, "grep -r KEY .", Allow);
    let mut rules = PolicyRules::default();
    rules.add_rule(RuleKind::Allow, "grep **").unwrap();
    check_with(&rules, &there, "grep -r KEY .", Allow);
    check_with(&rules, &there, "cat .e*", Ask);
}

#[test]
fn required_facts_name_what_to_look_up() {
    let blank = CommandFacts {
        clean_path: true,
        ..CommandFacts::default()
    };
    let secrets = |line| required_facts(line, &blank).could_match_secret;
    for line in [
        "cat .e*",
        "grep -r x .",
        "cat *",
        "find . -print0 | xargs -0 cat",
        "rg x",
    ] {
        assert!(secrets(line), "{line}");
    }
    for line in [
        "ls",
        "cat a.txt",
        "cat *.rs",
        "grep x a.txt",
        "find . -name x",
        "ls *",
    ] {
        assert!(!secrets(line), "{line}");
    }
    assert!(required_facts("find . | xargs wc", &blank).file_names);
    assert!(required_facts("git ls-files | xargs wc", &blank).index_names);
    assert!(!required_facts("find . -print0 | xargs -0 wc", &blank).file_names);
}

/// Names with blanks or line feeds are split by `xargs` and `read` into other names.
#[test]
fn names_that_may_be_split_ask() {
    for names in [
        FileNames::Unknown,
        FileNames::Odd("a /etc/passwd".to_owned()),
    ] {
        let odd = CommandFacts {
            file_names: names.clone(),
            index_names: names,
            ..facts("plain", ShellKind::Bash)
        };
        for line in [
            "find . | xargs cat",
            "find . -type f | xargs cat",
            "find . -name passwd | xargs head",
            "find . | xargs -n1 cat",
            "find . | xargs -I{} cat {}",
            "find . | xargs -d '\\n' cat",
            "find . | sort | xargs cat",
            "find . -print0 | xargs cat",
            "find . | xargs -0 cat",
            "find . -print0 | sort | xargs -0 cat",
            "find . -print0 | grep x | xargs -0 cat",
            "find . | while read -r f; do cat \"$f\"; done",
            "find . | while IFS= read -r f; do cat \"$f\"; done",
            "find . -print0 | while read -r f; do cat \"$f\"; done",
            "find . | while read -r -d '' f; do cat \"$f\"; done",
            "ls | xargs cat",
            "ls | while read -r f; do cat \"$f\"; done",
            "git ls-files | xargs cat",
            "git ls-files | while read -r f; do cat \"$f\"; done",
            "git diff --name-only | xargs cat",
            "git grep -l x | xargs cat",
            "fd x | xargs cat",
            "rg -l x | xargs cat",
            "grep -rl x . | xargs cat",
            "wc -l $(git ls-files)",
            "cat $(find . -name '*.rs')",
        ] {
            check(&odd, line, Ask);
        }
        for line in [
            "find . -print0 | xargs -0 cat",
            "find . -print0 | sort -z | xargs -0 cat",
            "find . -print0 | head -z -n 3 | xargs -0 cat",
            "find . -print0 | while IFS= read -r -d '' f; do cat \"$f\"; done",
            "git ls-files -z | xargs -0 cat",
            "git diff --name-only -z HEAD~3 | xargs -0 cat",
            "rg -l -0 x | xargs -0 cat",
            "grep -rlZ x . | xargs -0 cat",
            "fd --print0 x | xargs -0 cat",
            "find . -exec cat {} +",
            "find . | wc -l",
            "find . | xargs echo",
            "echo a.txt | xargs cat",
        ] {
            check(&odd, line, Allow);
        }
    }
    // A name from git's history may never have been a file here.
    check(
        &facts("plain", ShellKind::Bash),
        "git diff --name-only HEAD~3 | xargs cat",
        Ask,
    );
}

/// Git shows files of its index and history without their names on the command line.
#[test]
fn git_asks_before_showing_tracked_secrets() {
    let kept = CommandFacts {
        tracked_secrets: TrackedSecrets::Found(vec!["conf/.env".to_owned()]),
        ..facts("plain", ShellKind::Bash)
    };
    for line in [
        "git diff",
        "git diff --cached",
        "git diff --stat -p",
        "git diff -- conf",
        "git diff -- .",
        "git diff -- ':(glob)**'",
        "git show",
        "git show HEAD",
        "git show ':/second'",
        "git log -p",
        "git log -Sx --patch",
        "git log -L1,2:a.txt",
        "git grep alpha",
        "git stash show -p",
        "git diff | head -20",
    ] {
        check(&kept, line, Ask);
        let unknown = CommandFacts {
            tracked_secrets: TrackedSecrets::Unknown,
            ..kept.clone()
        };
        check(&unknown, line, Ask);
    }
    for line in [
        "git status",
        "git log --oneline",
        "git log --stat",
        "git diff --stat",
        "git diff --name-only HEAD~1",
        "git diff -- src a.txt",
        "git show HEAD:a.txt",
        "git grep -l alpha",
        "git stash list",
    ] {
        check(&kept, line, Allow);
    }
    let mut rules = PolicyRules::default();
    rules.add_rule(RuleKind::Allow, "path=conf/**").unwrap();
    check_with(&rules, &kept, "git diff", Allow);
}

/// Files that only commits hold are shown by revisions, and by nothing that looks at the index alone.
#[test]
fn git_asks_before_showing_secrets_of_commits() {
    let kept = CommandFacts {
        history_secrets: TrackedSecrets::Found(vec!["conf/.env".to_owned(), ".env".to_owned()]),
        ..facts("plain", ShellKind::Bash)
    };
    let unknown = CommandFacts {
        history_secrets: TrackedSecrets::Unknown,
        ..kept.clone()
    };
    for line in [
        "git show",
        "git show HEAD",
        "git show HEAD -- conf",
        "git show HEAD -- CONF",
        "git show HEAD -- src/../conf",
        "git show ':(glob)**'",
        "git show ':!a.txt'",
        "git log -p",
        "git log -p --follow -- a.txt",
        "git log -p --full-diff -- a.txt",
        "git log --patch-with-raw",
        "git log --check",
        "git diff HEAD",
        "git diff --cached",
        "git diff HEAD~1 HEAD",
        "git diff --check HEAD",
        "git diff -l 100 HEAD",
        "git diff-index HEAD",
        "git grep alpha HEAD~1",
        "git grep -e alpha HEAD~1 -- conf",
        "git stash show -p",
        "git range-diff a b c",
        "git reflog -p",
        "git status -v",
        "git status -sv",
        "git cat-file -p HEAD",
        "git --icase-pathspecs diff HEAD -- CONF",
    ] {
        check(&kept, line, Ask);
        check(&unknown, line, Ask);
    }
    for line in [
        "git diff",
        "git diff -- conf",
        "git grep alpha",
        "git status",
        "git log --stat",
        "git log --oneline -5",
        "git show --stat HEAD",
        "git show --name-only HEAD",
        "git show HEAD:a.txt",
        "git show HEAD -- src",
        "git log -p -- src a.txt",
        "git diff HEAD~1 -- src/",
        "git grep alpha HEAD~1 -- src",
        "git cat-file -t HEAD",
        "git cat-file -p HEAD:a.txt",
    ] {
        check(&kept, line, Allow);
    }
}

/// The id of an object says nothing of the file, and git prints it whatever paths and options are given.
#[test]
fn git_asks_before_printing_contents_by_id() {
    let known = CommandFacts {
        harmless_ids: vec!["c0ffee1".to_owned()],
        ..facts("plain", ShellKind::Bash)
    };
    for line in [
        "git show abcd123",
        "git show ABCD123^{blob}",
        "git show --stat abcd123",
        "git show abcd123 -- src",
        "git show c0ffee1 abcd123",
        "git cat-file -p abcd123",
        "git cat-file blob abcd123",
        "git diff abcd123 c0ffee1",
        "git grep alpha abcd123",
        "git cat-file --batch",
        "echo HEAD:a.txt | git cat-file --batch",
        "git cat-file --batch-all-objects --batch",
        "git cat-file -p $(git hash-object a.txt)",
        "git show $(git hash-object a.txt)",
    ] {
        check(&known, line, Ask);
    }
    for line in [
        "git show c0ffee1",
        "git show --stat c0ffee1",
        "git cat-file -p c0ffee1",
        "git diff c0ffee1 HEAD",
        "git grep abcd123",
        "git cat-file --batch-all-objects --batch-check",
        "git cat-file -t abcd123",
        "git rev-parse abcd123",
    ] {
        check(&known, line, Allow);
    }
}
