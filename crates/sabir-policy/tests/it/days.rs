//! Working days: how often a user is asked who approves each kind of command when it is first proposed.

use sabir_policy::{
    Access, CommandFacts, ExtraPermissions, PolicyRules, ShellKind, Verdict, decide_access,
};

use super::{decide_line, facts};

#[test]
fn at_most_a_tenth_of_daily_commands_ask() {
    let (mut all, mut prompts) = (0, Vec::new());
    for day in include_str!("days.txt").split("\n\n") {
        let mut rules = PolicyRules::default();
        for line in day
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            all += 1;
            let decision = decide_line(&rules, line);
            if decision.verdict == Verdict::Allow {
                continue;
            }
            prompts.push(line);
            decision
                .proposals
                .iter()
                .for_each(|rule| rules.add_approval(rule).unwrap());
        }
    }
    println!(
        "{} of {all} commands asked:\n{}",
        prompts.len(),
        prompts.join("\n")
    );
    assert!(all >= 290, "{all}");
    assert!(
        prompts.len() * 10 <= all,
        "{} of {all} commands ask:\n{}",
        prompts.len(),
        prompts.join("\n")
    );
}

/// Everyday commands of five ecosystems, in a repository without files that choose programs. Those marked `?` ask: they run code
/// of the repository, change something, or send something.
#[test]
fn everyday_commands_seldom_ask() {
    let (mut all, mut asked, mut wrong) = (0, 0, Vec::new());
    for line in include_str!("everyday.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        all += 1;
        let (mark, command) = line.split_at(2);
        let decision = decide_line(&PolicyRules::default(), command);
        asked += usize::from(decision.verdict != Verdict::Allow);
        if (decision.verdict == Verdict::Allow) != (mark == "+ ") {
            wrong.push(format!("{line}: {}", decision.reason));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(all >= 250, "{all}");
    assert!(asked <= 15, "{asked} of {all} ask");
}

/// The same commands where a file of the repository may choose which program answers, or what it starts.
#[test]
fn a_file_that_chooses_the_program_makes_it_ask() {
    let cases = [
        ("cargo --version", "rust-toolchain.toml"),
        ("cargo tree", ".cargo/config.toml"),
        ("rustc -vV", "rust-toolchain"),
        ("npm ls", ".npmrc"),
        ("npm ls", ".tool-versions"),
        ("pnpm ls", ".pnpmfile.cjs"),
        ("yarn --version", ".yarnrc.yml"),
        ("mvn --version", ".mvn"),
        ("dotnet --version", "global.json"),
        ("pip list", ".tool-versions"),
        ("cd src && cargo tree", "src/rust-toolchain.toml"),
        ("cd src && cargo tree", "rust-toolchain.toml"),
    ];
    for (line, file) in cases {
        let plain = facts("plain", ShellKind::Bash);
        let mut there = plain.clone();
        there.absent_files.retain(|absent| absent != file);
        assert_eq!(verdict(line, plain), Verdict::Allow, "{line}");
        assert_eq!(verdict(line, there), Verdict::Ask, "{line} with {file}");
    }
}

/// Commands that refresh a lock file or fetch what is missing run unasked only in a sandbox.
#[test]
fn commands_that_may_fetch_ask_without_a_sandbox() {
    for line in [
        "cargo tree",
        "cargo metadata",
        "go version",
        "docker compose ps",
        "cargo fmt --check",
    ] {
        let open = CommandFacts {
            confined: false,
            ..facts("plain", ShellKind::Bash)
        };
        assert_eq!(verdict(line, open), Verdict::Ask, "{line}");
    }
}

/// Words that make a harmless command into another one.
#[test]
fn variants_of_everyday_commands_ask() {
    for line in [
        "cargo tree --target evil.json",
        "cargo --config x=1 tree",
        "cargo +nightly tree",
        "cargo metadata --manifest-path ../x/Cargo.toml",
        "cargo fmt",
        "cargo fmt --check -- --config-path x",
        "rustup show",
        "rustup update",
        "go env -w GOFLAGS=-toolexec=./evil",
        "go list ./...",
        "npm config set script-shell ./evil",
        "npm config get //registry.npmjs.org/:_authToken",
        "npm view x",
        "npm exec x",
        "npx tsc --version",
        "pip install x",
        "pip list --outdated",
        "python -m pip list",
        "uv pip list",
        "bundle list",
        "composer show",
        "docker -H tcp://evil ps",
        "docker exec web ls",
        "docker inspect web",
        "docker run x",
        "docker compose config",
        "docker compose -f /x ps",
        "kubectl get secret",
        "kubectl get pods,secrets",
        "kubectl get secrets/x -o yaml",
        "kubectl --kubeconfig evil get pods",
        "kubectl get $x",
        "gh pr view --web",
        "gh pr view -R evil.test/a/b",
        "gh pr view https://evil.test/a/b/pull/1",
        "gh pr list -R $x",
        "gh api /user",
        "gh auth token",
        "gh auth status --show-token",
        "gh pr merge 1",
        "systemctl stop x",
        "journalctl --vacuum-time=1s",
        "crontab x",
        "apt install x",
        "gem install x",
        "gofmt -w a.go",
        "gofmt -r 'a -> b' a.go",
        "nvidia-smi --gpu-reset",
        "cat /etc/shadow",
        "cat /etc/../etc/passwd",
        "cat /usr/include/../../etc/passwd",
        "PATH=5; ls",
        "IFS=x; ls",
        "HOME=.; git status",
        "cat $(cat names.txt)",
        "cat $(echo /etc/passwd)",
        "rm $(git ls-files)",
        "wc -l $(git ls-files) > out",
        "head -$N README.md",
        "cat \"$(git ls-files)\"",
    ] {
        assert_ne!(
            decide_line(&PolicyRules::default(), line).verdict,
            Verdict::Allow,
            "{line}"
        );
    }
}

fn verdict(line: &str, facts: CommandFacts) -> Verdict {
    let access = Access::Command {
        command: line.to_owned(),
        facts,
        beyond: ExtraPermissions::Nothing,
    };
    decide_access(&PolicyRules::default(), &access).verdict
}
