//! Tests the protected paths of the workspace in level 2, and that no masks are left afterwards.

use std::fs;

use super::{Scene, worlds};

/// The attempts of a command on protected paths, in a workspace with a repository.
const TRIES: &[&str] = &[
    "echo x > .git/hooks/pre-commit",
    "echo x >> .git/config",
    "mv .git/hooks .git/old",
    "rm -rf .git/hooks",
    "mv .git away",
    "rm .git/config",
    "ln -sf /tmp .git/hooks/x",
    "mkdir -p .vscode && echo x > .vscode/tasks.json",
    "rmdir .vscode && mkdir .vscode && touch .vscode/x",
    "mv .vscode old && mkdir .vscode && touch .vscode/x",
    "echo x > .envrc",
    "rm -f .envrc; echo x > .envrc",
    "mv inside .npmrc",
    "ln -s inside .mcp.json",
    "mkdir -p .github/workflows && echo x > .github/workflows/ci.yml",
    "mkdir -p .cargo && echo x > .cargo/config.toml",
    "echo x >> AGENTS.md",
    "sed -i s/a/b/ AGENTS.md",
    "mv AGENTS.md x",
    "rm -f AGENTS.md; touch AGENTS.md",
    "echo x > CLAUDE.md",
    "echo x >> Gemini.MD",
    "chmod +x .git/hooks/old",
    // Git's indirections: each leads git to other configuration or hooks.
    "rm -f .git/commondir; echo ../evil > .git/commondir",
    "rm -f .git/config.worktree; echo x > .git/config.worktree",
    "rm -f .git/info/attributes; echo '* filter=x' > .git/info/attributes",
    "mv .git/info .git/i && mkdir .git/info && echo x > .git/info/attributes",
    "mkdir -p .git/modules/a/b/hooks && echo x > .git/modules/a/b/hooks/post-checkout",
    "echo x > .git/modules/sub/hooks/post-checkout",
    "echo x >> .git/modules/sub/config",
    "rm -f .git/modules/sub/commondir; echo x > .git/modules/sub/commondir",
    "mv .git/modules/sub .git/modules/other",
    "mkdir -p .git/worktrees/w && echo ../.. > .git/worktrees/w/commondir",
    "mkdir -p .git/remotes && echo x > .git/remotes/origin",
    "echo x > tools/hooks/pre-commit",
    "mv tools away && mkdir -p tools/hooks && echo x > tools/hooks/pre-commit",
    "rm -f shared.conf; echo '[core]' > shared.conf",
    "mkdir -p rust-toolchain.toml && echo x > rust-toolchain.toml/x",
];

fn scene(who: super::Who) -> Scene {
    let scene = Scene::new(who);
    for (path, text) in [
        (
            "ws/.git/config",
            "[core]\nhooksPath = tools/hooks\n[include]\npath = ../shared.conf\n",
        ),
        ("ws/.git/modules/sub/HEAD", "ref: refs/heads/main\n"),
        ("ws/.git/modules/sub/config", "[core]\n"),
        ("ws/.git/modules/sub/hooks/old", "#!/bin/sh\n"),
        ("ws/.git/info/exclude", ""),
        ("ws/tools/hooks/old", "#!/bin/sh\n"),
        ("ws/.git/HEAD", "ref: refs/heads/main\n"),
        ("ws/.git/hooks/old", "#!/bin/sh\n"),
        ("ws/AGENTS.md", "be good\n"),
        ("ws/Gemini.MD", "be good\n"),
        ("ws/.github/README.md", "hello\n"),
    ] {
        fs::create_dir_all(scene.at(path).parent().unwrap()).unwrap();
        fs::write(scene.at(path), text).unwrap();
    }
    scene.give(&scene.at("ws"));
    scene
}

/// Returns all names and contents below the workspace.
fn tree(scene: &Scene) -> Vec<String> {
    let mut seen = Vec::new();
    let mut folders = vec![scene.at("ws")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            seen.push(format!(
                "{} {}",
                entry.path().display(),
                String::from_utf8_lossy(&text)
            ));
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    seen.sort();
    seen
}

#[test]
fn protected_paths_cannot_be_changed() {
    for &(level, who) in worlds().iter().filter(|(level, _)| *level == "2") {
        for text in TRIES {
            let scene = scene(who);
            let before = tree(&scene);
            let told = scene.run(level, text);
            assert_ne!(told.end, "Exited(0) 0", "{text}: {told}");
            assert_eq!(tree(&scene), before, "{text}");
        }
    }
}

/// Level 1 cannot prevent the changes, but they are undone afterwards.
#[test]
fn protected_paths_are_restored() {
    for &(level, who) in worlds().iter().filter(|(level, _)| *level == "1") {
        // If the whole folder is moved away, nothing can be restored in it.
        let moves = ["mv .git away", "mv .git/modules/sub .git/modules/other"];
        for text in TRIES.iter().filter(|text| !moves.contains(text)) {
            let scene = scene(who);
            let before = tree(&scene);
            let told = scene.run(level, text);
            let after = tree(&scene);
            let top = format!("{}/", scene.name("ws"));
            // Some attempts also move ordinary files.
            let ordinary = ["inside ", ".git/info/exclude "].map(|name| format!("{top}{name}"));
            let kept = |entry: &&String| !ordinary.iter().any(|name| entry.starts_with(name));
            for entry in before.iter().filter(kept) {
                assert!(after.contains(entry), "{text}: {entry} is gone: {told}");
            }
            for entry in after.iter().filter(|entry| !before.contains(entry)) {
                let path = entry.strip_prefix(&top).unwrap().split(' ').next().unwrap();
                let moved = ["withheld-", "away", "old", "x", ".git/old", ".git/i"];
                assert!(
                    moved.iter().any(|moved| path.starts_with(moved))
                        || [
                            ".git/info",
                            ".git/modules",
                            ".git/worktrees",
                            ".cargo",
                            ".github"
                        ]
                        .contains(&path),
                    "{text}: {entry}: {told}"
                );
            }
        }
    }
}

/// Names without a mask are moved aside after the command, in both levels.
#[test]
fn new_protected_names_are_moved_aside() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let told = scene.run(
            level,
            "echo x > .travis.yml; mkdir -p .github/agents; echo x > .tool-versions; ln -s / .fleet; echo x > Jenkinsfile.prod; \
             echo x > ordinary",
        );
        let names: Vec<_> = fs::read_dir(scene.at("ws"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for name in [
            ".travis.yml",
            ".tool-versions",
            ".fleet",
            "Jenkinsfile.prod",
        ] {
            assert!(!names.iter().any(|found| found == name), "{name}: {told}");
            assert!(
                names.contains(&format!("withheld-{name}")),
                "{name}: {told}"
            );
        }
        assert!(!scene.at("ws/.github/agents").exists());
        assert!(names.contains(&"ordinary".to_owned()));
    }
}

/// Moving or removing a mount fails as busy, which alone would mean nothing to a model.
#[test]
fn busy_errors_are_explained() {
    for &(level, who) in worlds().iter().filter(|(level, _)| *level == "2") {
        for (text, path) in [
            ("mv AGENTS.md x", "AGENTS.md"),
            ("rm .git/config", ".git/config"),
            ("rmdir .vscode", ".vscode"),
            (
                "mkdir -p .git/objects .git/refs; git config user.name x",
                ".git/config",
            ),
        ] {
            let told = scene(who).run(level, text);
            assert!(
                told.output.to_lowercase().contains("busy"),
                "{text}: {told}"
            );
            assert!(
                told.note.contains(&format!("{path}` is ")),
                "{text}: {told}"
            );
            assert!(
                told.note.contains("which commands may not change"),
                "{text}: {told}"
            );
        }
    }
}

#[test]
fn the_attempts_succeed_without_a_sandbox() {
    let who = super::Who::Me;
    for text in TRIES {
        let told = scene(who).run("off", &format!("mkdir -p .vscode; {text}"));
        assert_eq!(told.end, "Exited(0) 0", "{text}: {told}");
    }
}

#[test]
fn unprotected_files_of_a_repository_can_be_changed() {
    for &(level, who) in worlds() {
        let scene = scene(who);
        let text = "echo x > .git/index && mkdir -p .git/refs/heads && echo x > .git/refs/heads/main && cat .git/config && \
                    echo x > .github/notes && rm .github/notes && cat AGENTS.md";
        assert_eq!(
            scene.run(level, text).output.trim(),
            "[core]\nhooksPath = tools/hooks\n[include]\npath = ../shared.conf\nbe good",
            "level {level} as {who:?}"
        );
    }
}

#[test]
fn nothing_is_left_in_the_workspace() {
    for &(level, who) in worlds() {
        let fresh = Scene::new(who);
        let before = tree(&fresh);
        for text in [
            "true",
            "exit 3",
            "kill -9 $$",
            "(setsid sleep 100 &); exit 0",
            "rm -rf .* 2>/dev/null; true",
        ] {
            fresh.run(level, text);
            assert_eq!(tree(&fresh), before, "level {level}, {text}");
        }
    }
}

/// Everyday git commands that do not change its configuration.
#[test]
fn git_works_in_the_sandbox() {
    let text = "set -e; export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=a \
        GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=a@b; \
        git add -A; git commit -qm one; git checkout -qb topic; echo b > b; git add b; git commit -qm two; \
        git checkout -q -; echo c > c; git add c; git commit -qm three; git merge -q topic -m four; \
        git branch other HEAD~1; git checkout -q other; echo d > d; git add d; git commit -qm five; git rebase -q topic; \
        echo e >> b; git stash -q; git stash pop -q; git tag v1; git reset -q --hard; git worktree list > /dev/null; \
        git cherry-pick v1~1 > /dev/null 2>&1 || git cherry-pick --abort 2> /dev/null || true; git gc -q; git fsck > /dev/null; \
        git branch -D topic > /dev/null 2>&1; git log --format=%s";
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        let made = scene.run("off", "git init -q -b main .");
        assert_eq!(made.end, "Exited(0) 0", "{made}");
        let told = scene.run(level, text);
        assert_eq!(told.end, "Exited(0) 0", "level {level} as {who:?}: {told}");
        assert_eq!(
            told.output.trim(),
            "five\nthree\ntwo\none",
            "level {level}: {told}"
        );
        let status = scene.run(
            "off",
            "git status --porcelain; ls .git; git log --format=%s -1",
        );
        assert!(!status.output.contains("commondir"), "{status}");
        assert!(status.output.ends_with("five"), "{status}");
    }
}

/// A new repository may be created, unless it makes git run programs.
#[test]
fn a_new_repository_is_inspected() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        scene.run(level, "git init -q .");
        assert!(scene.at("ws/.git/HEAD").exists(), "level {level}");
        let scene = Scene::new(who);
        let told = scene.run(level, "git init -q .; git config core.fsmonitor ./evil");
        assert!(!scene.at("ws/.git").exists(), "level {level}: {told}");
        assert!(
            scene.at("ws/withheld-.git").exists(),
            "level {level}: {told}"
        );
        let scene = Scene::new(who);
        let told = scene.run(level, "git init -q --bare x; mv x/* .");
        assert!(!scene.at("ws/HEAD").exists(), "level {level}: {told}");
    }
}

#[test]
fn git_does_not_see_the_masks() {
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        assert_eq!(
            scene.run("off", "git init -q . && git add -A").end,
            "Exited(0) 0"
        );
        let told = scene.run(level, "git add -A && git status --porcelain");
        assert_eq!(
            told.output.trim(),
            "A  inside\nA  link",
            "level {level} as {who:?}: {told}"
        );
    }
}
