//! What a look at a repository or a folder would run or meet: git's configuration as deep as git follows it, and stray links.

use std::path::Path;
use std::process::Command;

use sabir_workspace::GitConfig;

use crate::{Place, skipped};

/// Runs a script of a shell in a place, with an environment that no configuration of the machine reaches.
fn run(place: &Place, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(place.workspace.root()).env_clear().envs(environment());
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

fn environment() -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    let names =
        ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_CONFIG_NOSYSTEM"];
    let set = names.map(|name| (name.to_owned(), "1".to_owned()));
    set.into_iter().chain([("PATH".to_owned(), path), ("HOME".to_owned(), "/nonexistent".to_owned())]).collect()
}

/// What runs in a repository after a script, by name; `?` where it cannot be said.
#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let place = Place::new();
    run(&place, "git init -q -b main . && echo a > a && git add a && git commit -qm a");
    run(&place, script);
    let found = match GitConfig::of(place.workspace.root(), &environment()) {
        GitConfig::Unknown => vec!["?".to_owned()],
        GitConfig::NoRepository => vec!["no repository".to_owned()],
        GitConfig::Repository(programs) => programs.keys(),
    };
    assert_eq!(found, expected, "{script}");
}

/// A repository in `sub` with one commit, that the index links to.
const SUB: &str =
    "git init -q -b main sub && (cd sub && echo x > x && git add x && git commit -qm x) && git add sub 2> /dev/null";

/// Each was seen to run the program with `git status`, the last two with `git log -p`.
#[test]
fn what_git_follows() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("there is no git");
        return;
    }
    let sub = |script: &str| format!("{SUB} && {script}");
    check("true", &[]);
    check(SUB, &[]);
    check(&sub("git -C sub config core.fsmonitor ./x"), &["sub/.git: core.fsmonitor"]);
    // Its files lie elsewhere in the work tree.
    check(
        &sub("git -C sub config core.fsmonitor ./x && mv sub/.git files && echo 'gitdir: ../files' > sub/.git"),
        &["sub/.git: core.fsmonitor"],
    );
    check(
        &sub("git -C sub config extensions.worktreeConfig true && git -C sub config --worktree core.fsmonitor ./x"),
        &["sub/.git: core.fsmonitor"],
    );
    // One in another.
    let deep = SUB.replace("sub", "deep");
    check(
        &sub(&format!("(cd sub && {deep} && git -C deep config core.fsmonitor ./x)")),
        &["sub/deep/.git: core.fsmonitor"],
    );
    check(
        &sub(
            "mkdir -p .git/modules && mv sub/.git .git/modules/sub && echo 'gitdir: ../.git/modules/sub' > sub/.git && \
              git -C sub config core.worktree ../../../sub && git -C sub config core.fsmonitor ./x",
        ),
        &["sub/.git: core.fsmonitor"],
    );
    check(&sub("printf '#!/bin/sh' > sub/.git/hooks/post-index-change"), &["sub/.git: hooks/post-index-change"]);
    // A work tree elsewhere, where links may lie.
    check(&sub("git -C sub config core.worktree ../.."), &["?"]);
    // What is broken is no repository to git either.
    check(&sub("rm sub/.git/HEAD"), &[]);
    check("git config remote.o.partialclonefilter blob:none", &["remote.o.partialclonefilter"]);
    check("git config diff.submodule diff", &["diff.submodule"]);
}

#[test]
fn links_that_a_walk_may_meet() {
    let place = Place::new();
    let stray = || place.workspace.stray_link().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("notes"), "x").unwrap();
    place.put("a/b/c", "x");
    place.link("a/inside", "b");
    place.link("a/gone", "nowhere");
    place.link("a/sh", "/bin/sh");
    place.link("a/lib", "/usr/lib");
    assert_eq!(stray(), None, "a program, what is installed, and what stays inside");
    let led = |name: &str, to: &Path| {
        place.link(name, to);
        let found = stray();
        std::fs::remove_file(place.workspace.root().join(name)).unwrap();
        found
    };
    assert_eq!(led("a/b/notes", &outside.path().join("notes")), Some("a/b/notes".to_owned()));
    assert_eq!(led("all", outside.path()), Some("all".to_owned()));
}
