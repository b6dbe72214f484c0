//! A hard link to a file outside: the tools ask, and a write never reaches the other name.

use std::fs;

use serde_json::json;

use crate::world::{WAYS, World, code, events, turn};

#[test]
fn a_hard_link_is_asked_about() {
    let (world, way) = (World::new(), WAYS[1]);
    let outside = world.home.path().join("outside.txt");
    fs::write(&outside, "kept\n").unwrap();
    let inside = world.work.path().join("inside.txt");
    if fs::hard_link(&outside, &inside).is_err() {
        return crate::world::skipped("the folders are on different file systems");
    }
    let write = || {
        (
            "write_to_file",
            json!({"path": "inside.txt", "content": "changed\n"}),
        )
    };
    let done = || turn("", vec![("attempt_completion", json!({"result": "done"}))]);
    let provider = world.plays(way, &[turn("", vec![write()]), done(), done()]);
    let output = world.run(
        &provider,
        way,
        &["--approve", "edits", "--output", "events", "go"],
    );
    let result = events(&output)
        .into_iter()
        .find(|event| event["kind"] == "result")
        .unwrap();
    assert_eq!(result["ending"], "denied", "{result}");
    let content = result["content"].as_str().unwrap();
    assert!(content.contains("hard link"), "{content}");
    assert_ne!(code(&output), 101);
    assert_eq!(fs::read_to_string(&inside).unwrap(), "kept\n");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "kept\n");
}
