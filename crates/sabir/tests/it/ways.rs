//! Tests one task in four protocols: the same files, the same task events except for the name of the dialect, and requests that
//! offer the tools as each protocol requires.

use sabir_testkit::ScriptedProvider;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, code, events, names, stderr, turn};

/// Reads, writes, edits, runs a command, completes. The values are difficult in every notation.
pub(crate) fn task() -> Vec<Turn> {
    vec![
        turn(
            "I look first.",
            vec![
                ("read_file", json!({"path": "a.txt"})),
                ("list_files", json!({"path": "."})),
            ],
        ),
        turn(
            "I write.",
            vec![(
                "write_to_file",
                json!({"path": "sub/b.html", "content": "<p>1 &lt; 2 && \"x\" </content></p>\n\tGrüße 🌍\n\n"}),
            )],
        ),
        turn(
            "I edit.",
            vec![(
                "replace_in_file",
                json!({"path": "a.txt", "diff": "------- SEARCH\ntwo\n=======\n2 <b>\n+++++++ REPLACE"}),
            )],
        ),
        turn(
            "I run.",
            vec![(
                "execute_command",
                json!({"command": "wc -c < sub/b.html && echo done > c.txt"}),
            )],
        ),
        turn(
            "",
            vec![(
                "attempt_completion",
                json!({"result": "It is <done> & dusted."}),
            )],
        ),
    ]
}

fn play(way: Way) -> (World, ScriptedProvider, Vec<Value>) {
    let world = World::new();
    world.write("a.txt", "one\ntwo\nthree\n");
    let provider = world.plays(way, &task());
    let output = world.run(
        &provider,
        way,
        &["--approve", "all", "--output", "events", "do it"],
    );
    assert_eq!(code(&output), 0, "{way:?}: {}", stderr(&output));
    let events = events(&output);
    (world, provider, events)
}

/// Records and merged text, without what must differ: the task's name, its folder, model, protocol, dialect and positions.
fn comparable(events: Vec<Value>, world: &World) -> Vec<Value> {
    let folder = world
        .work
        .path()
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    let kinds = [
        "started", "said", "answered", "judged", "running", "result", "ended",
    ];
    let mut kept = Vec::new();
    for mut event in events
        .into_iter()
        .filter(|event| kinds.contains(&event["kind"].as_str().unwrap()))
    {
        for key in [
            "task",
            "model",
            "protocol",
            "workspace",
            "usage",
            "estimate",
            "cost",
            "stop",
        ] {
            event.as_object_mut().unwrap().remove(key);
        }
        if event["kind"] == "ended" {
            // The tokens differ like those of the answers; the calls of each tool do not.
            event["used"] = event["used"]["tools"].take();
        }
        for part in event["parts"].as_array_mut().into_iter().flatten() {
            part.as_object_mut().unwrap().remove("dialect");
            if let Some(text) = part["text"].as_str() {
                part["text"] = json!(text.trim_end());
            }
        }
        if let Some(parts) = event["parts"].as_array_mut() {
            parts.retain(|part| part["text"].as_str() != Some(""));
        }
        kept.push(serde_json::from_str(&event.to_string().replace(&folder, "FOLDER")).unwrap());
    }
    kept
}

#[test]
fn the_same_task_works_in_four_protocols() {
    let mut first: Option<Vec<Value>> = None;
    for way in WAYS {
        let (world, provider, events) = play(way);
        assert_eq!(world.read("a.txt"), "one\n2 <b>\nthree\n", "{way:?}");
        assert_eq!(
            world.read("sub/b.html"),
            "<p>1 &lt; 2 && \"x\" </content></p>\n\tGrüße 🌍\n\n",
            "{way:?}"
        );
        assert_eq!(world.read("c.txt"), "done\n", "{way:?}");
        assert_eq!(
            names(world.work.path()),
            ["a.txt", "c.txt", "sub"],
            "{way:?}"
        );
        let calls = events
            .iter()
            .flat_map(|event| event["parts"].as_array().cloned().unwrap_or_default());
        let dialect = if way.protocol == "native" {
            Value::Null
        } else {
            json!(way.protocol)
        };
        assert!(
            calls
                .filter(|part| part["type"] == "call")
                .all(|call| call["dialect"] == dialect),
            "{way:?}"
        );
        let mut events = comparable(events, &world);
        // Warnings of a spelling, such as a closing tag inside a value, belong to the spelling.
        for event in &mut events {
            for check in event["checks"].as_array_mut().into_iter().flatten() {
                check.as_object_mut().unwrap().remove("faults");
                check.as_object_mut().unwrap().remove("wrapped");
            }
        }
        // Calls that only read run concurrently, and their results arrive in any order.
        for results in
            events.chunk_by_mut(|one, other| one["kind"] == "result" && other["kind"] == "result")
        {
            results.sort_by_key(|result| result["id"].to_string());
        }
        match &first {
            None => first = Some(events),
            Some(first) => assert_eq!(&events, first, "{way:?}"),
        }
        check_requests(&provider, way);
    }
}

/// The tools are sent natively or taught; results are paired; the history has the form of the protocol.
fn check_requests(provider: &ScriptedProvider, way: Way) {
    let requests = provider.received_requests();
    assert_eq!(requests.len(), 5, "{way:?}");
    assert!(
        requests.iter().all(|request| request.connection == 0),
        "one connection serves the task"
    );
    let bodies: Vec<_> = requests
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    let native = way.protocol == "native";
    for (at, request) in requests.iter().enumerate() {
        let body = &request.body;
        let tools = body
            .get("tools")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        assert_eq!(tools, if native { 13 } else { 0 }, "{way:?}");
        let system = if way.wire == sabir_wire::Wire::Anthropic {
            &body["system"]
        } else {
            &body["messages"][0]
        };
        let taught = system.to_string().contains("You act by calling tools");
        assert_eq!(taught, !native, "{way:?}: {system}");
        let ids = ["call_1_0", "call_1_1", "call_2_0", "call_3_0", "call_4_0"];
        for (number, id) in ids.iter().enumerate() {
            let turns = [1, 1, 2, 3, 4];
            let seen = bodies[at].matches(&format!("\"{id}\"")).count();
            let expected = if native && at >= turns[number] { 2 } else { 0 };
            assert_eq!(
                seen, expected,
                "{way:?}, request {at}: {id} in call and result"
            );
        }
        if !native && at > 0 {
            assert!(
                bodies[at].contains("[read_file]"),
                "{way:?}: results are told by tool"
            );
            let spelled = if way.protocol == "cline" {
                "<read_file>"
            } else {
                "<invoke name="
            };
            assert!(
                body["messages"]
                    .to_string()
                    .contains(&spelled.replace('"', "\\\"")),
                "{way:?}"
            );
        }
    }
    assert!(
        !bodies.iter().any(|body| body.contains("sk-secret")),
        "keys stay in headers"
    );
}
