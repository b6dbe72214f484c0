//! Tests the search for programs that git would run in a repository, and for stray links.

use std::path::Path;
use std::process::Command;

use sabir_workspace::{GitConfig, GitConfigError};

use crate::{Place, skipped};

/// Runs a shell script in a place, with an environment that is free of the machine's configuration.
fn run(place: &Place, script: &str) {
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", script])
        .current_dir(place.workspace.root())
        .env_clear()
        .envs(environment());
    let done = shell.output().unwrap();
    assert!(
        done.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn environment() -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    let names = [
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_CONFIG_NOSYSTEM",
    ];
    let set = names.map(|name| (name.to_owned(), "1".to_owned()));
    set.into_iter()
        .chain([
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), "/nonexistent".to_owned()),
        ])
        .collect()
}

/// Checks what runs in a repository after a script, by name; `?` if it is uncertain.
#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let place = Place::new();
    run(
        &place,
        "git init -q -b main . && echo a > a && git add a && git commit -qm a",
    );
    run(&place, script);
    let found = match GitConfig::of(place.workspace.root(), &environment()) {
        GitConfig::Unknown(_) => vec!["?".to_owned()],
        GitConfig::NoRepository => vec!["no repository".to_owned()],
        GitConfig::Repository(programs) => programs.running_keys(),
    };
    assert_eq!(found, expected, "{script}");
}

/// A repository in `sub` with one commit, that the index links to.
const SUB: &str = "git init -q -b main sub && (cd sub && echo x > x && git add x && git commit -qm x) && git add sub 2> /dev/null";

/// Each case was observed to run the program with `git status`, the last two with `git log -p`.
#[test]
fn configuration_that_runs_programs_is_found() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("there is no git");
        return;
    }
    let sub = |script: &str| format!("{SUB} && {script}");
    check("true", &[]);
    check(SUB, &[]);
    check(
        &sub("git -C sub config core.fsmonitor ./x"),
        &["sub/.git: core.fsmonitor"],
    );
    // The git folder is elsewhere in the work tree.
    check(
        &sub(
            "git -C sub config core.fsmonitor ./x && mv sub/.git files && echo 'gitdir: ../files' > sub/.git",
        ),
        &["sub/.git: core.fsmonitor"],
    );
    check(
        &sub(
            "git -C sub config extensions.worktreeConfig true && git -C sub config --worktree core.fsmonitor ./x",
        ),
        &["sub/.git: core.fsmonitor"],
    );
    // A repository inside another.
    let deep = SUB.replace("sub", "deep");
    check(
        &sub(&format!(
            "(cd sub && {deep} && git -C deep config core.fsmonitor ./x)"
        )),
        &["sub/deep/.git: core.fsmonitor"],
    );
    check(
        &sub(
            "mkdir -p .git/modules && mv sub/.git .git/modules/sub && echo 'gitdir: ../.git/modules/sub' > sub/.git && \
              git -C sub config core.worktree ../../../sub && git -C sub config core.fsmonitor ./x",
        ),
        &["sub/.git: core.fsmonitor"],
    );
    check(
        &sub("printf '#!/bin/sh' > sub/.git/hooks/post-index-change"),
        &["sub/.git: hooks/post-index-change"],
    );
    // A work tree elsewhere, which may contain further links.
    check(&sub("git -C sub config core.worktree ../.."), &["?"]);
    // Git ignores a broken repository, too.
    check(&sub("rm sub/.git/HEAD"), &[]);
    check(
        "git config remote.o.partialclonefilter blob:none",
        &["remote.o.partialclonefilter"],
    );
    check("git config diff.submodule diff", &["diff.submodule"]);
}

/// Uncertain cases give no result, and nothing is run to find out.
#[test]
fn uncertain_configuration_is_reported() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("there is no git");
        return;
    }
    check(
        "mkdir b c && echo b > b/b && echo c > c/c && git add b c && git commit -qm b && \
         git sparse-checkout set --cone --sparse-index b 2> /dev/null",
        &["?"],
    );
    check("git update-index --split-index", &["?"]);
    check("git config core.bare true", &["?"]);
    check("printf '[core\n' >> .git/config", &["?"]);
    check(
        "printf '[include]\n\tpath = ~somebody/x\n' >> .git/config",
        &["?"],
    );
    check("mkfifo .git/config.worktree", &["?"]);
    check("git config include.path config", &["?"]);
    check("git config core.worktree ../nowhere", &["?"]);
    // Git continues with the folder above; another version might not.
    check("echo x > .git/HEAD", &["?"]);
    check("echo . > .git/commondir", &["?"]);
    check("mv .git/* . && rmdir .git", &["?"]);
    check("git update-index --index-version 4", &[]);
    check(
        &format!("{SUB} && git update-index --index-version 4 && git -C sub config alias.x y"),
        &["sub/.git: alias.x"],
    );
}

/// Git folders in other places, and included configuration.
#[test]
fn git_folders_elsewhere_are_searched() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("there is no git");
        return;
    }
    check(
        "mv .git .files && echo 'gitdir: .files' > .git && git config alias.x y",
        &["alias.x"],
    );
    check("rm -rf .git/HEAD", &["no repository"]);
    check(
        "git config extensions.worktreeConfig true && git config --worktree alias.x y",
        &["alias.x"],
    );
    // A condition that does not hold now may hold later.
    check(
        "git config includeIf.onbranch:other.path more && printf '[diff]\nexternal = x\n' > .git/more",
        &["diff.external", "includeif.onbranch:other.path"],
    );
    check("git config include.path missing", &["include.path"]);
    check(
        "git init -q --object-format=sha256 s && cd s && echo x > x && git add x && git commit -qm x && cd .. && \
         git rm -q --cached a && rm -rf .git && mv s/.git . && git config alias.x y",
        &["alias.x"],
    );
    let place = Place::new();
    run(
        &place,
        "git init -q -b main w && cd w && git commit -q --allow-empty -m x && git worktree add -q ../more && \
                 git config alias.x y",
    );
    let GitConfig::Repository(programs) =
        GitConfig::of(&place.workspace.root().join("more"), &environment())
    else {
        panic!("a further work tree is one");
    };
    assert_eq!(programs.running_keys(), ["alias.x"]);
    assert!(programs.top.ends_with("more"), "{:?}", programs.top);
}

/// A folder of plain files with git's layout, and the folders above and below it.
#[test]
fn embedded_bare_repositories_are_found() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("there is no git");
        return;
    }
    let place = Place::new();
    run(
        &place,
        "git init -q -b main && git init -q --bare docs && mkdir docs/deep && mkdir src",
    );
    let found = |folder: &str| GitConfig::of(&place.workspace.root().join(folder), &environment());
    let docs = place.workspace.root().join("docs").canonicalize().unwrap();
    for folder in ["docs", "docs/deep", "docs/refs"] {
        assert_eq!(
            found(folder),
            GitConfig::Unknown(GitConfigError::Embedded(docs.clone())),
            "{folder}"
        );
    }
    for folder in [".", "src"] {
        assert!(
            matches!(found(folder), GitConfig::Repository(programs) if programs.is_empty()),
            "{folder}"
        );
    }
    let led = [
        environment(),
        vec![("GIT_DIR".to_owned(), "docs".to_owned())],
    ]
    .concat();
    let found = GitConfig::of(place.workspace.root(), &led);
    assert_eq!(
        found,
        GitConfig::Unknown(GitConfigError::Environment("GIT_DIR".to_owned()))
    );
}

#[test]
fn escaping_links_are_found() {
    let place = Place::new();
    let stray = || place.workspace.find_escaping_link().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("notes"), "x").unwrap();
    place.put("a/b/c", "x");
    place.link("a/inside", "b");
    place.link("a/gone", "nowhere");
    place.link("a/sh", "/bin/sh");
    place.link("a/lib", "/usr/lib");
    assert_eq!(
        stray(),
        None,
        "a program, what is installed, and what stays inside"
    );
    let led = |name: &str, to: &Path| {
        place.link(name, to);
        let found = stray();
        std::fs::remove_file(place.workspace.root().join(name)).unwrap();
        found
    };
    assert_eq!(
        led("a/b/notes", &outside.path().join("notes")),
        Some("a/b/notes".to_owned())
    );
    assert_eq!(led("all", outside.path()), Some("all".to_owned()));
}
