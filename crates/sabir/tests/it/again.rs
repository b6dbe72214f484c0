//! Tests repeated reads of a file: its content is sent once, later results refer to it, and requests keep their prefix.

use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, stderr, turn};

fn read(arguments: Value) -> Turn {
    turn("I look.", vec![("read_file", arguments)])
}

fn done() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// Plays these turns over a wire and returns the messages of each request.
fn asked(world: &World, way: Way, turns: &[Turn], arguments: &[&str]) -> Vec<Vec<Value>> {
    let provider = world.plays(way, turns);
    let output = world.run(&provider, way, arguments);
    assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
    let bodies = provider
        .received_requests()
        .into_iter()
        .map(|request| request.body["messages"].as_array().cloned().unwrap());
    bodies
        .map(|mut messages| (messages.iter_mut().for_each(unmarked), messages).1)
        .collect()
}

/// Removes the cache marks, which move from request to request.
fn unmarked(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(unmarked);
        }
        Value::Array(items) => items.iter_mut().for_each(unmarked),
        _ => {}
    }
}

#[test]
fn a_file_is_sent_once_and_requests_keep_their_prefix() {
    let line = "a line of a file, long enough to matter\n";
    for way in WAYS {
        let world = World::new();
        world.write("a.txt", &line.repeat(200));
        let edit = json!({"path": "a.txt", "diff": "------- SEARCH\nno such line\n=======\nx\n+++++++ REPLACE"});
        let turns = [
            read(json!({"path": "a.txt"})),
            read(json!({"path": "a.txt"})),
            read(json!({"path": "a.txt", "start_line": 20, "end_line": 90})),
            read(json!({"path": "a.txt", "start_line": 20, "end_line": 90})),
            turn("I edit.", vec![("replace_in_file", edit)]),
            read(json!({"path": "a.txt"})),
            done(),
            done(),
        ];
        let requests = asked(&world, way, &turns, &["--approve", "edits", "Go."]);
        for pair in requests.windows(2) {
            assert_eq!(pair[1][..pair[0].len()], pair[0][..], "{way:?}");
        }
        let lines = |messages: &[Value]| {
            json!(messages)
                .to_string()
                .matches("long enough to matter")
                .count()
        };
        let grown: Vec<_> = requests
            .windows(2)
            .map(|pair| lines(&pair[1]) - lines(&pair[0]))
            .collect();
        // The whole file, two references to it, some lines on a repeated read, and the whole file
        // after a failed edit.
        assert_eq!(grown[..6], [200, 0, 0, 71, 0, 200], "{way:?}");
        let told = json!(requests[3]).to_string();
        assert_eq!(told.matches("[Nothing new: ").count(), 2, "{way:?}");
        assert!(told.contains("[Lines 20 to 90 of 200.]"), "{way:?}");
    }
}

#[test]
fn a_resumed_task_knows_which_files_the_model_has_seen() {
    let world = World::new();
    let text = "a line of a file, long enough to matter\n".repeat(200);
    world.write("a.txt", &text);
    let way = WAYS[1];
    let provider = world.plays(
        way,
        &[
            read(json!({"path": "a.txt"})),
            read(json!({"path": "a.txt"})),
        ],
    );
    let output = world.run(&provider, way, &["--max-turns", "1", "Go."]);
    assert_eq!(code(&output), 6, "{}", stderr(&output));
    let resumed = |turns: &[Turn]| {
        let provider = world.plays(way, turns);
        let mut command = world.sabir_with(&provider);
        let output = command
            .args(["resume", "--output", "text", "--max-turns", "1"])
            .output()
            .unwrap();
        assert_eq!(code(&output), 6, "{}", stderr(&output));
        let log = world
            .sabir()
            .args(["log", &world.only_task(), "--output", "events"])
            .output()
            .unwrap();
        let events = crate::world::events(&log);
        let result = events.iter().rfind(|event| event["kind"] == "result");
        result.unwrap()["content"].as_str().unwrap().to_owned()
    };
    assert!(resumed(&[read(json!({"path": "a.txt"}))]).starts_with("[Nothing new: "));
    world.write("a.txt", &text.replace("matter", "count"));
    assert!(
        resumed(&[read(json!({"path": "a.txt", "start_line": 2}))]).contains("enough to count")
    );
}
