//! Paths and links that lead out of the workspace: no tool reads or writes outside, even with everything approved.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{WAYS, World, code, events, stderr, turn};

/// The content of files outside, which no result may contain.
const SECRET: &str = "what-stands-outside";

/// The id of a case, the tool and its arguments.
type Case = (&'static str, &'static str, Value);

fn refused() -> Vec<Case> {
    let read = |id, path: &str| (id, "read_file", json!({"path": path}));
    let write = |id, path: &str| (id, "write_to_file", json!({"path": path, "content": "x"}));
    let patch = |id, head: &str| {
        let text = format!("*** Begin Patch\n{head}\n+x\n*** End Patch\n");
        (id, "apply_patch", json!({"patch": text}))
    };
    vec![
        read("PTH-001", "../../etc/passwd"),
        read("PTH-002", "/etc/passwd"),
        write("PTH-004", "src/../../evil/x"),
        read("PTH-005", "~/.ssh/id_rsa"),
        read("PTH-007", "file:///etc/passwd"),
        read("PTH-008", "%2e%2e/%2e%2e/etc/passwd"),
        read("PTH-010", "a\u{0}../../etc/passwd"),
        write("PTH-011", ""),
        write("PTH-013", &format!("x/{}", "y".repeat(5000))),
        read("PTH-014", "/proc/self/environ"),
        read("PTH-016", "/proc/self/cwd/../etc/passwd"),
        read("PTH-017", "/dev/zero"),
        read("PTH-019", "socket"),
        write("PTH-022", ".Sabir/Config.toml"),
        write("PTH-023", ".git\u{200c}/config"),
        write("PTH-025", ".git./config"),
        write("PTH-025", ".git::$INDEX_ALLOCATION/config"),
        read("PTH-026", "\\\\attacker\\share\\x"),
        read("PTH-028", "C:evil.txt"),
        patch("PTH-040", "*** Add File: ../../outside"),
        patch("PTH-041", "*** Add File: /etc/x"),
        read("LNK-001", "file"),
        read("LNK-001", "folder/secret"),
        write("LNK-002", "folder/new.txt"),
        write("LNK-004", "dangling"),
        read("LNK-005", "loop"),
        write("LNK-017", ".git/modules/sm/hooks/post-checkout"),
    ]
}

#[test]
fn nothing_outside_is_read_or_written() {
    let (world, way, outside) = (World::new(), WAYS[1], TempDir::new().unwrap());
    let inside = |name: &str| world.work.path().join(name);
    fs::write(outside.path().join("secret"), SECRET).unwrap();
    fs::create_dir(inside("src")).unwrap();
    symlink(outside.path().join("secret"), inside("file")).unwrap();
    symlink(outside.path(), inside("folder")).unwrap();
    symlink(outside.path().join("not-yet"), inside("dangling")).unwrap();
    symlink("loop", inside("loop")).unwrap();
    let _socket = UnixListener::bind(inside("socket")).unwrap();
    let cases = refused();
    let calls = cases
        .iter()
        .map(|(_, tool, arguments)| (*tool, arguments.clone()))
        .collect();
    let provider = world.plays(way, &[turn("", calls)]);
    let output = world.run(
        &provider,
        way,
        &["--approve", "edits", "--output", "events", "go"],
    );
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert_ne!(code(&output), 0);
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    assert_eq!(results.len(), cases.len(), "{}", stderr(&output));
    for ((id, tool, arguments), result) in cases.iter().zip(&results) {
        assert_ne!(
            result["ending"], "done",
            "{id} {tool} {arguments}: {result}"
        );
        let content = result["content"].as_str().unwrap();
        assert!(
            !content.contains(SECRET) && !content.contains("root:x:"),
            "{id}: {content}"
        );
        assert!(content.len() < 4000, "{id}: a long path is not told whole");
    }
    let left: Vec<_> = fs::read_dir(outside.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["secret"], "nothing is made outside");
    assert_eq!(
        fs::read_to_string(outside.path().join("secret")).unwrap(),
        SECRET
    );
    assert!(!world.work.path().parent().unwrap().join("evil").exists());
}

/// Calls that succeed, but never reach outside.
#[test]
fn searches_and_hard_links_stay_inside() {
    let (world, way, outside) = (World::new(), WAYS[1], TempDir::new().unwrap());
    let inside = |name: &str| world.work.path().join(name);
    fs::write(outside.path().join("notes"), SECRET).unwrap();
    // A write is asked about (`hard_links.rs`); what is already there under a plain name can be
    // read.
    fs::write(outside.path().join("plain"), "kept").unwrap();
    fs::hard_link(outside.path().join("plain"), inside("hard")).unwrap();
    symlink(outside.path(), inside("folder")).unwrap();
    symlink(".", inside("cycle")).unwrap();
    fs::write(inside("long.txt"), "a".repeat(1 << 20)).unwrap();
    fs::write(inside("evil.sh"), "#!/bin/sh\n: > PWNED\n").unwrap();
    fs::File::create(inside("sparse"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    let calls = vec![
        ("write_to_file", json!({"path": "hard", "content": "new"})),
        ("list_files", json!({"path": ".", "recursive": true})),
        (
            "search_files",
            json!({"regex": "stands-outside", "file_pattern": "../../**/*"}),
        ),
        (
            "search_files",
            json!({"regex": "stands-outside", "path": "."}),
        ),
        (
            "search_files",
            json!({"regex": "(a+)+$", "path": "long.txt"}),
        ),
        ("search_files", json!({"regex": "--pre=./evil.sh"})),
        ("read_file", json!({"path": "sparse"})),
    ];
    let count = calls.len();
    let provider = world.plays(
        way,
        &[
            turn("", calls),
            turn("", vec![("attempt_completion", json!({"result": "done"}))]),
        ],
    );
    let output = world.run(
        &provider,
        way,
        &["--approve", "edits", "--output", "events", "go"],
    );
    let results: Vec<_> = events(&output)
        .into_iter()
        .filter(|event| event["kind"] == "result")
        .collect();
    assert!(results.len() >= count, "{}", stderr(&output));
    for result in results.iter().take(count) {
        let content = result["content"].as_str().unwrap();
        assert!(
            !content.contains(SECRET) && content.len() < 100_000,
            "{result}"
        );
    }
    assert_eq!(
        fs::read_to_string(outside.path().join("plain")).unwrap(),
        "kept",
        "LNK-010: the other name keeps its file"
    );
    assert!(
        !inside("PWNED").exists(),
        "PTH-038: an expression is not an option"
    );
}
