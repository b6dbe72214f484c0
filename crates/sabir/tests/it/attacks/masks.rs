//! Files with secrets are empty to commands that run unasked at level 2, and to no others.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{WAYS, World, code, skipped, stderr, stdout};

use super::commands::endings;

const SECRET: &str = "KEY=swordfish-4711";

/// Runs these calls, and returns all that was printed and the ending of each call.
fn run(world: &World, folder: &Path, calls: Vec<Value>, flags: &[&str]) -> (String, Vec<String>) {
    let (output, found) = endings(world, WAYS[1], folder, calls, flags);
    (format!("{}{}", stdout(&output), stderr(&output)), found)
}

#[test]
fn unasked_readers_see_empty_secrets() {
    let world = World::new();
    let probe = ["sandbox", "--level", "2", "--", "true"];
    let output = world.sabir().args(probe).output().unwrap();
    if code(&output) != 0 {
        return skipped(&format!("no level 2: {}", stderr(&output)));
    }
    let folder = world.work.path().join("proj");
    for place in ["", "node_modules/x", "src"] {
        fs::create_dir_all(folder.join(place)).unwrap();
        fs::write(folder.join(place).join(".env"), SECRET).unwrap();
    }
    fs::write(folder.join("src/a.txt"), "KEY=public").unwrap();
    std::os::unix::fs::symlink("../.env", folder.join("src/settings")).unwrap();
    let readers = [
        "grep -r KEY .",
        "cat src/.e*",
        "find . -type f -exec cat {} +",
        "cat node_modules/x/.e*",
        "head .e??",
        "for f in .e*; do cat \"$f\"; done",
    ];
    let calls = readers.map(|line| json!({"command": line})).to_vec();
    let (output, found) = run(&world, &folder, calls, &["--sandbox", "2"]);
    assert!(!output.contains("swordfish"), "{output}");
    assert!(found.iter().all(|ending| ending != "denied"), "{found:?}");
    assert!(
        output.contains("KEY=public"),
        "the others are read: {output}"
    );
    assert!(output.contains("were empty to this command"), "{output}");
    // No mask holds at level 1 and without a sandbox, nor for a line that does more than reading,
    // names the file or wants the network. All of them ask.
    for level in ["1", "off"] {
        let calls = vec![json!({"command": "grep -r KEY ."})];
        let (output, found) = run(&world, &folder, calls, &["--sandbox", level]);
        assert_eq!(found, ["denied"], "level {level}: {output}");
    }
    let others = [
        json!({"command": "cat .env"}),
        json!({"command": "grep -r KEY . ; touch made"}),
        json!({"command": "grep -r KEY . > made"}),
        json!({"command": "grep -r KEY .", "network": true}),
        json!({"command": "grep -r KEY .", "unconfined": true}),
    ];
    let flags = [
        "--sandbox",
        "2",
        "--allow",
        "touch **",
        "--approve",
        "network",
    ];
    let (output, found) = run(&world, &folder, others.to_vec(), &flags);
    assert_eq!(found, ["denied"; 5], "{output}");
    // What the user allows to be read is not empty.
    let calls = vec![json!({"command": "grep -rh KEY src"})];
    let allowed = [
        "--sandbox",
        "2",
        "--allow",
        "path=**/.env",
        "--allow",
        "path=.env",
        "--allow",
        "path=src/settings",
    ];
    let (output, found) = run(&world, &folder, calls, &allowed);
    assert_eq!(found, ["done"], "{output}");
    assert!(output.contains("swordfish"), "{output}");
}
