//! Builds run unasked in a trusted repository at level 2, and nowhere else.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, skipped, stderr, stdout};

use super::commands::endings;

/// Writes in the folder, tries to write outside of it, and says what it was.
const MAKEFILE: &str = "all: check\ncheck:\n\t@echo built >> built.txt\n\
    escape:\n\t@echo out > ../escaped.txt || true\n\t@echo tried > tried.txt\n\
    deploy:\n\t@echo deployed > deployed.txt\n";

/// Commands that only look like a build of the folder.
const LOOKALIKES: [&str; 16] = [
    "make -f /tmp/x",
    "make -C other check",
    "make --eval='x:;touch built.txt' x",
    "make MAKEFILES=other/Makefile check",
    "make deploy",
    "cargo --config 'build.rustc-wrapper=\"./evil\"' build",
    "cargo test --manifest-path other/Cargo.toml",
    "cd other && make check",
    "cd .. && make check",
    "pytest -p evil",
    "make check > ../built.txt",
    "make check; curl example.org",
    "timeout 60 make -C other check",
    "env PATH=. make check",
    "env MAKEFILES=other/Makefile make check",
    "timeout 60 make deploy",
];

struct Place {
    world: World,
    folder: PathBuf,
}

fn git_init(folder: &Path) {
    let done = std::process::Command::new("git")
        .args(["init", "-q", "-b", "main"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success());
}

impl Place {
    /// Creates a repository with another one in it. `None` if there is no sandbox of level 2.
    fn new() -> Option<Self> {
        let world = World::new();
        let level = ["sandbox", "--level", "2", "--", "make --version"];
        let probe = world.sabir().args(level).output().unwrap();
        if code(&probe) != 0 {
            skipped(&format!("no level 2 or no make: {}", stderr(&probe)));
            return None;
        }
        let folder = world.work.path().join("proj");
        for place in [folder.clone(), folder.join("other")] {
            fs::create_dir(&place).unwrap();
            fs::write(place.join("Makefile"), MAKEFILE).unwrap();
            git_init(&place);
        }
        Some(Self { world, folder })
    }

    fn trust(&self) {
        let output = self
            .world
            .sabir()
            .args(["trust", "--yes"])
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains("builds and tests run unasked"));
    }

    /// Runs these calls, and returns the program's output and the ending of each call.
    fn run(&self, calls: &[Value], flags: &[&str]) -> (String, Vec<String>) {
        let (output, found) = endings(&self.world, WAYS[1], &self.folder, calls.to_vec(), flags);
        assert_eq!(found.len(), calls.len(), "{}", stderr(&output));
        (stdout(&output), found)
    }

    /// Checks that each of these lines is asked about, and that nothing was built.
    #[track_caller]
    fn check_asked(&self, lines: &[&str], flags: &[&str]) {
        let calls: Vec<_> = lines.iter().map(|line| json!({"command": line})).collect();
        let (_, found) = self.run(&calls, flags);
        let run: Vec<_> = lines
            .iter()
            .zip(&found)
            .filter(|(_, ending)| *ending != "denied")
            .collect();
        assert!(run.is_empty(), "{flags:?}: {run:?}");
        for path in ["built.txt", "other/built.txt", "deployed.txt"] {
            assert!(!self.folder.join(path).exists(), "{flags:?}: {path}");
        }
    }
}

#[test]
fn a_trusted_build_runs_unasked_and_stays_inside() {
    let Some(place) = Place::new() else { return };
    place.check_asked(&["make check"], &[]);
    place.trust();
    let calls = [
        "make check",
        "make all 2>&1 | tail -3",
        "make escape",
        "timeout 60 make check",
        "env X=1 nice make check",
        "time make check",
    ]
    .map(|line| json!({"command": line}));
    let (shown, found) = place.run(&calls, &[]);
    assert!(!found.iter().any(|ending| ending == "denied"), "{shown}");
    let built = fs::read_to_string(place.folder.join("built.txt")).unwrap();
    assert_eq!(built, "built\n".repeat(5));
    assert!(place.folder.join("tried.txt").exists(), "{shown}");
    assert!(!place.world.work.path().join("escaped.txt").exists());
}

#[test]
fn commands_that_only_resemble_a_build_ask() {
    let Some(place) = Place::new() else { return };
    place.trust();
    for lines in LOOKALIKES.chunks(4) {
        place.check_asked(lines, &[]);
    }
    let network = json!({"command": "make check", "network": true});
    let outside = json!({"command": "make check", "unconfined": true});
    let (_, found) = place.run(&[network, outside], &[]);
    assert_eq!(found, ["denied", "denied"]);
    assert!(!place.folder.join("built.txt").exists());
}

#[test]
fn a_trusted_build_asks_with_a_weaker_sandbox_or_stricter_rules() {
    let Some(place) = Place::new() else { return };
    place.trust();
    for flags in [
        &["--sandbox", "off"][..],
        &["--sandbox", "1"],
        &["--network"],
        &["--mode", "plan"],
        &["--mode", "ask"],
        &["--ask", "make"],
        &["--deny", "make"],
    ] {
        place.check_asked(&["make check"], flags);
    }
    place.world.configure("trusted_builds = false\n");
    place.check_asked(&["make check"], &[]);
    place.world.configure("");
    // A hook that came later ends the trust.
    fs::write(place.folder.join(".git/hooks/post-checkout"), "#!/bin/sh\n").unwrap();
    place.check_asked(&["make check"], &[]);
}

#[test]
fn the_first_question_says_how_to_trust() {
    let Some(place) = Place::new() else { return };
    let calls = ["make check", "make all"].map(|line| json!({"command": line}));
    let (shown, found) = place.run(&calls, &[]);
    assert_eq!(found, ["denied", "denied"]);
    let told = |line: &str| {
        shown
            .lines()
            .filter(|event| event.contains(line))
            .any(|event| event.contains("after `sabir trust`"))
    };
    assert!(told("runs `make check`"), "{shown}");
    assert!(!told("runs `make all`"), "{shown}");
}
