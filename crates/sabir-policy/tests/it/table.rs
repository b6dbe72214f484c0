//! Tables: attacks that must not run unasked, and harmless lines that must.

use sabir_policy::{Access, Beyond, PolicyRules, RuleKind, ShellKind, Verdict, decide_access};

use super::{facts, judge};

const CASES: [&str; 2] = [include_str!("cases.txt"), include_str!("more.txt")];

#[test]
fn no_attack_runs_unasked_and_harmless_lines_do() {
    let (mut attacks, mut harmless, mut wrong) = (0, 0, Vec::new());
    for line in CASES
        .iter()
        .flat_map(|cases| cases.lines())
        .filter(|line| !line.starts_with('#'))
    {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let command: String = serde_json::from_str(fields[3]).unwrap();
        let shell = if fields[1] == "zsh" {
            ShellKind::Zsh
        } else {
            ShellKind::Bash
        };
        let access = Access::Command {
            command: command.clone(),
            facts: facts(fields[2], shell),
            beyond: Beyond::Nothing,
        };
        let judgement = decide_access(&PolicyRules::default(), &access);
        let expected = fields[0] == "benign";
        if expected {
            harmless += 1
        } else {
            attacks += 1
        }
        if (judgement.verdict == Verdict::Allow) != expected {
            wrong.push(format!("{} {command:?}: {}", fields[0], judgement.reason));
        }
    }
    assert!(attacks >= 1300 && harmless >= 680, "{attacks} {harmless}");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// One line a case, the verdict in front: `+` runs unasked, `?` asks.
#[test]
fn lines_of_our_own() {
    let mut wrong = Vec::new();
    for line in include_str!("lines.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (expected, command) = line.split_at(2);
        let command = command.replace("\\n", "\n");
        let judgement = judge(&PolicyRules::default(), &command);
        let found = match judgement.verdict {
            Verdict::Allow => "+ ",
            Verdict::Ask => "? ",
            Verdict::Deny => "- ",
        };
        if found != expected {
            wrong.push(format!("{line}\n    {found}{}", judgement.reason));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[track_caller]
fn check(rules: &[(&str, &str)], line: &str, expected: Verdict) {
    let mut all = PolicyRules::default();
    for (kind, rule) in rules {
        match *kind {
            "approve" => all.add_approval(rule).unwrap(),
            "allow" => all.add_rule(RuleKind::Allow, rule).unwrap(),
            "ask" => all.add_rule(RuleKind::Ask, rule).unwrap(),
            _ => all.add_rule(RuleKind::Deny, rule).unwrap(),
        }
    }
    let judgement = judge(&all, line);
    assert_eq!(
        judgement.verdict, expected,
        "{rules:?} {line}: {}",
        judgement.reason
    );
}

#[test]
fn rules_match_words() {
    use Verdict::{Allow, Ask, Deny};
    check(&[("allow", "cargo test *")], "cargo test foo", Allow);
    check(
        &[("allow", "cargo test *")],
        "cargo  'test'  fo\"o\"",
        Allow,
    );
    check(&[("allow", "cargo test *")], "cargo test", Ask);
    check(&[("allow", "cargo test *")], "cargo test a b", Ask);
    check(&[("allow", "cargo test **")], "cargo test a b && ls", Allow);
    check(
        &[("allow", "cargo test **")],
        "cargo test a && touch x",
        Ask,
    );
    check(&[("allow", "cargo test **")], "cargo test a > out", Ask);
    check(
        &[("allow", "cargo test **")],
        "cargo test a 2>&1 | tail -5",
        Allow,
    );
    check(&[("allow", "cargo test **")], "cargo test $x", Ask);
    check(&[("allow", "cargo test **")], "cargo test $(touch x)", Ask);
    check(
        &[("allow", "cargo test **")],
        "RUSTC=./evil cargo test a",
        Ask,
    );
    check(
        &[("allow", "cargo test **")],
        "RUST_BACKTRACE=1 cargo test a",
        Allow,
    );
    check(
        &[("allow", "git push origin *")],
        "git push origin main",
        Allow,
    );
    check(
        &[("allow", "git push origin *")],
        "git push origin +main",
        Ask,
    );
    check(&[("allow", "git push **")], "git push --force", Ask);
    check(&[("allow", "git push --force")], "git push --force", Allow);
    check(
        &[("allow", "git *"), ("ask", "git push **")],
        "git push",
        Ask,
    );
    check(
        &[("approve", "all"), ("ask", "git push **")],
        "git push",
        Ask,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "ls && (timeout 5 git push)",
        Deny,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "sudo git push",
        Deny,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "git -C . push",
        Deny,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "bash -c 'git push'",
        Deny,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "/usr/bin/git 'push'",
        Deny,
    );
    check(
        &[("approve", "all"), ("deny", "git push **")],
        "echo git push",
        Allow,
    );
    check(
        &[("approve", "command=git push"), ("deny", "git push **")],
        "git push",
        Deny,
    );
    check(
        &[("allow", "git push **"), ("deny", "git push **")],
        "git push",
        Deny,
    );
    check(&[("deny", "ls **")], "ls", Deny);
    check(&[("ask", "ls **")], "for x in 1; do ls; done", Ask);
}

#[test]
fn kinds_are_narrow() {
    use Verdict::{Allow, Ask};
    let cargo = [("approve", "kind=cargo")];
    for line in [
        "cargo test",
        "cargo test -p a --release -- --nocapture",
        "cargo test 2>&1 | tail -20",
        "cd src && cargo test x",
    ] {
        check(&cargo, line, Allow);
    }
    for line in [
        "cargo test --config x=1",
        "cargo test --manifest-path ../x",
        "cargo +nightly test",
        "cargo test --target-dir /x",
    ] {
        check(&cargo, line, Ask);
    }
    check(&[("approve", "kind=make")], "make test", Allow);
    check(&[("approve", "kind=make")], "make CC=./evil", Ask);
    check(&[("approve", "kind=make")], "make -f evil.mk", Ask);
    assert_eq!(
        judge(
            &PolicyRules::default(),
            "cargo test -p a && git commit -m 'two words'"
        )
        .proposals,
        ["kind=cargo", "kind=git commits"]
    );
    assert!(
        judge(&PolicyRules::default(), "cargo test && touch ../x && evil")
            .proposals
            .is_empty()
    );
    assert!(
        judge(&PolicyRules::default(), "cargo test > out")
            .proposals
            .is_empty()
    );
}

#[test]
fn what_cannot_be_taken_back_is_asked_about() {
    use Verdict::{Allow, Ask};
    for line in [
        "rm -rf .",
        "rm -rf /",
        "rm -r .git",
        "sudo rm -rf x",
        "bash -c 'rm -rf .git'",
        "git push -f",
        "git push --force-with-lease",
        "git reset --hard",
        "git clean -fdx",
        "find . -delete",
        "find . -exec rm -rf {} +",
        "ls | xargs rm -rf",
        "dd if=a of=/dev/sda",
        "mkfs.ext4 /dev/sda",
        "rm *",
        "rm ../x",
        "git checkout .",
        "git branch -D x",
        "mv a /etc/x",
        "chmod -R 777 .",
        "(cd /; rm -rf x)",
        "for x in a; do rm -r $x; done",
        "cargo publish",
        "if true; then git push origin +main; fi",
        "x=$(rm -rf src/../.git)",
        "env rm -rf sub/.git",
        "timeout 5 rm -rf .GIT",
        "ls 'unfinished",
        "a\rb",
        ":(){ :|:& };:",
        "f() { f & }; f",
        "echo x > /dev/sda",
        "cat x > /etc/hosts",
    ] {
        check(&[("approve", "all")], line, Ask);
    }
    for line in [
        "rm a.txt",
        "rm -rf src docs/old",
        "bash -c 'rm -r src'",
        "(cd src && rm -rf x)",
        "touch x > y",
        "python3 -c 'print(1)'",
        "cat > a <<'EOF'\nx\nEOF",
        "npm install x",
        "cargo test \\\n -q",
        "git push",
    ] {
        check(&[("approve", "all")], line, Allow);
    }
}

#[test]
fn rules_that_mean_everything_are_none() {
    for rule in [
        "",
        " ",
        "*",
        "** x",
        "a ** b",
        "c* x",
        "'open",
        "kind=everything",
        "host=",
    ] {
        assert!(
            PolicyRules::default()
                .add_rule(RuleKind::Allow, rule)
                .is_err(),
            "{rule}"
        );
    }
}
