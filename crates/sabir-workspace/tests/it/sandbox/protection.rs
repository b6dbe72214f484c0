//! Tests the protected paths of the workspace in tier 2, and that no masks are left afterwards.

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
];

fn scene(who: super::Who) -> Scene {
    let scene = Scene::new(who);
    for (path, text) in [
        ("ws/.git/config", "[core]\n"),
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
fn protected_paths_stay_as_they_are() {
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

/// Moving or removing a mount fails as busy, which alone would mean nothing to a model.
#[test]
fn what_is_busy_is_explained() {
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
                told.note.contains(&format!("`{path}` is ")),
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
fn the_tries_can_succeed() {
    let who = super::Who::Me;
    for text in TRIES {
        let told = scene(who).run("off", &format!("mkdir -p .vscode; {text}"));
        assert_eq!(told.end, "Exited(0) 0", "{text}: {told}");
    }
}

#[test]
fn a_repository_can_be_worked_with() {
    for &(level, who) in worlds() {
        let scene = scene(who);
        let text = "echo x > .git/index && mkdir -p .git/refs/heads && echo x > .git/refs/heads/main && cat .git/config && \
                    echo x > .github/notes && rm .github/notes && cat AGENTS.md";
        assert_eq!(
            scene.run(level, text).output.trim(),
            "[core]\nbe good",
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

#[test]
fn git_sees_nothing_of_it() {
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
