//! Tests `sabir acp` as an editor drives it. Every message that it sends is checked against the schema of the protocol.

use std::io::Write;
use std::time::{Duration, Instant};

use sabir_testkit::{ProviderReply, ReplyScript, ScriptedFault};
use sabir_wire::Wire;
use serde_json::{Value, json};

use crate::world::{Turn, WAYS, Way, World, processes_with, turn};

use client::AcpClient;

mod buffers;
mod client;
mod forms;
mod terminals;

const NATIVE: Way = WAYS[0];

/// A native protocol and two prompted ones.
const PROTOCOLS: [Way; 3] = [
    NATIVE,
    WAYS[2],
    Way {
        wire: Wire::OpenAiChat,
        protocol: "hermes",
    },
];

fn finish(result: &'static str) -> Turn {
    turn("", vec![("attempt_completion", json!({"result": result}))])
}

fn write_call(path: &str, content: &str) -> (&'static str, Value) {
    ("write_to_file", json!({"path": path, "content": content}))
}

fn status_of(update: &Value) -> &str {
    update["status"].as_str().unwrap_or_default()
}

#[test]
fn a_task_is_driven_from_prompt_to_result_in_three_protocols() {
    for way in PROTOCOLS {
        let world = World::new();
        world.write("a.txt", "one\ntwo\nthree\n");
        let todos = |done: &str| {
            (
                "update_todo_list",
                json!({"todos": format!("[{done}] change it\n[ ] check it")}),
            )
        };
        let edit = |new: &str| {
            let diff = format!("------- SEARCH\ntwo\n=======\n{new}\n+++++++ REPLACE");
            ("replace_in_file", json!({"path": "a.txt", "diff": diff}))
        };
        let turns = [
            turn("I plan first.", vec![todos("-")]),
            turn("", vec![("read_file", json!({"path": "a.txt"}))]),
            turn("", vec![edit("TWO")]),
            turn("", vec![edit("2")]),
            turn("", vec![todos("x")]),
            finish("It is done."),
        ];
        let replies = turns.iter().enumerate().map(|(at, turn)| {
            let reply = way.reply(turn, at + 1);
            match (at, way.wire) {
                (0, Wire::Anthropic) => reply.with_thought("Let me think.", Some("sig")),
                _ => reply,
            }
        });
        let provider = world.provider(ReplyScript::new(replies.collect::<Vec<_>>()));
        let mut client = AcpClient::start(&world, &provider, way);
        let session = client.new_session(&world);
        let prompt = client.prompt(&session, "change two");

        // Denied with a reason, which the model reads.
        let asked = client.permission();
        let call = &asked["params"]["toolCall"];
        let diff = &call["content"][0];
        assert_eq!(diff["type"], "diff", "{asked}");
        assert_eq!(diff["oldText"], "one\ntwo\nthree\n");
        assert_eq!(diff["newText"], "one\nTWO\nthree\n");
        assert_eq!(
            diff["path"].as_str().unwrap(),
            world
                .work
                .path()
                .canonicalize()
                .unwrap()
                .join("a.txt")
                .to_str()
                .unwrap()
        );
        assert_eq!(call["kind"], "edit");
        assert_eq!(call["rawInput"]["path"], "a.txt");
        client.respond(
            &asked,
            json!({"outcome": {"outcome": "selected", "optionId": "reject"}, "_meta": {"reason": "write a digit"}}),
        );
        // Allowed once.
        let again = client.permission();
        assert_eq!(
            again["params"]["toolCall"]["content"][0]["newText"],
            "one\n2\nthree\n"
        );
        let kinds: Vec<_> = again["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            (kinds[0], kinds[kinds.len() - 1]),
            ("allow_once", "reject_once")
        );
        client.answer(&again, "allow");
        assert_eq!(client.stop_reason(prompt), "end_turn", "{}", way.protocol);

        assert_eq!(world.read("a.txt"), "one\n2\nthree\n");
        let bodies: Vec<_> = provider
            .received_requests()
            .into_iter()
            .map(|request| request.body.to_string())
            .collect();
        assert!(bodies[3].contains("write a digit"), "{}", bodies[3]);
        if way.wire == Wire::Anthropic {
            assert_eq!(client.text("agent_thought_chunk"), "Let me think.");
        }
        let said = client.text("agent_message_chunk");
        assert!(
            said.starts_with("I plan first.") && said.ends_with("It is done."),
            "{said:?}"
        );
        assert!(
            !said.contains('<'),
            "markup of a call is not text: {said:?}"
        );
        let plans = client.of_kind("plan");
        let states: Vec<_> = plans
            .iter()
            .map(|plan| plan["entries"][0]["status"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["in_progress", "completed"]);
        let calls = client.of_kind("tool_call");
        let names: Vec<_> = calls
            .iter()
            .map(|call| call["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["read_file", "replace_in_file", "replace_in_file"]);
        assert_eq!(calls[0]["kind"], "read");
        assert!(
            calls[0]["locations"][0]["path"]
                .as_str()
                .unwrap()
                .ends_with("a.txt")
        );
        let ends: Vec<_> = client
            .of_kind("tool_call_update")
            .into_iter()
            .filter(|update| matches!(status_of(update), "completed" | "failed"))
            .collect();
        let states: Vec<_> = ends.iter().map(status_of).collect();
        assert_eq!(states, ["completed", "failed", "completed"]);
        assert!(
            ends[0]["rawOutput"]["text"]
                .as_str()
                .unwrap()
                .contains("two")
        );
        assert_eq!(ends[2]["content"][0]["type"], "diff", "{}", ends[2]);
        assert_eq!(client.close(), 0);
    }
}

#[test]
fn changes_that_need_no_question_are_shown_as_diffs() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![write_call("new.txt", "a\nb\n")]),
            turn("", vec![write_call("new.txt", "a\nc\n")]),
            finish("done"),
        ],
    );
    let mut client = AcpClient::spawn(&world, &provider, NATIVE, &["--approve", "edits"]);
    client.initialize(json!({}));
    let session = client.new_session(&world);
    assert_eq!(client.finish_prompt(&session, "write it"), "end_turn");
    let ends: Vec<_> = client
        .of_kind("tool_call_update")
        .into_iter()
        .filter(|update| status_of(update) == "completed")
        .collect();
    assert_eq!(ends[0]["content"][0]["newText"], "a\nb\n");
    assert!(
        ends[0]["content"][0]
            .get("oldText")
            .is_none_or(Value::is_null)
    );
    assert_eq!(ends[1]["content"][0]["oldText"], "a\nb\n");
    assert_eq!(ends[1]["content"][0]["newText"], "a\nc\n");
}

#[test]
fn a_cancel_in_the_middle_ends_the_turn_and_not_the_session() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|number, _| match number {
        0 => ProviderReply::text("I begin and never end. ".repeat(100))
            .in_deltas(4)
            .with_fault(ScriptedFault::StallAfter(4000)),
        _ => NATIVE.reply(&turn("The second answer.", vec![]), 2),
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let first = client.prompt(&session, "begin");
    let waiting = client.prompt(&session, "and then");
    client.wait_for("agent_message_chunk");
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(first), "cancelled");
    assert_eq!(client.stop_reason(waiting), "cancelled");
    assert_eq!(client.finish_prompt(&session, "again"), "end_turn");
    assert!(
        client
            .text("agent_message_chunk")
            .ends_with("The second answer.")
    );
    // A reply hands the turn over, and the next prompt continues the same task.
    assert!(
        provider.received_requests()[1]
            .body
            .to_string()
            .contains("again")
    );
}

#[test]
fn a_call_is_shown_while_the_model_writes_it() {
    let world = World::new();
    let reply = NATIVE.reply(
        &turn("", vec![write_call("a.txt", &"line\n".repeat(2000))]),
        1,
    );
    let provider = world.provider(ReplyScript::new(vec![
        reply.with_fault(ScriptedFault::PingAfter(6000)),
    ]));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let prompt = client.prompt(&session, "write it");
    let call = client.wait_for("tool_call");
    assert_eq!(call["title"], "write_to_file a.txt", "{call}");
    assert_eq!(call["kind"], "edit");
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(prompt), "cancelled");
    let last = client.wait_for("tool_call_update");
    assert_eq!(
        (&last["toolCallId"], &last["status"]),
        (&call["toolCallId"], &json!("failed"))
    );
    assert!(!world.work.path().join("a.txt").exists());
}

#[test]
fn a_session_is_loaded_after_a_kill_with_its_history() {
    let world = World::new();
    world.write("a.txt", "hello\n");
    let provider = world.provider(ReplyScript::from_fn(|number, _| match number {
        0 => NATIVE.reply(
            &turn("I look.", vec![("read_file", json!({"path": "a.txt"}))]),
            1,
        ),
        1 => ProviderReply::text("cut").with_fault(ScriptedFault::StallBeforeHeaders),
        _ => NATIVE.reply(&finish("It says hello."), 3),
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    client.prompt(&session, "what does a.txt say?");
    while !client
        .of_kind("tool_call_update")
        .iter()
        .any(|update| status_of(update) == "completed")
    {
        client.wait_for("tool_call_update");
        client.call("session/list", json!({}));
    }
    // Until the second request has begun, so that the kill comes in the middle of a turn.
    let begun = Instant::now();
    while provider.received_requests().len() < 2 && begun.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(10));
    }
    client.child.kill().unwrap();
    client.child.wait().unwrap();

    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let listed = client.call("session/list", json!({"cwd": world.work.path()}));
    let [found] = listed["sessions"].as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(found["sessionId"], session);
    assert_eq!(found["title"], "what does a.txt say?");
    client.call(
        "session/load",
        json!({"sessionId": session, "cwd": world.work.path(), "mcpServers": []}),
    );
    // All of it came before the response, and nothing runs.
    assert_eq!(client.text("user_message_chunk"), "what does a.txt say?");
    assert_eq!(client.text("agent_message_chunk"), "I look.");
    assert_eq!(client.of_kind("tool_call").len(), 1);
    assert_eq!(status_of(&client.wait_for("tool_call_update")), "completed");
    assert_eq!(provider.received_requests().len(), 2);
    let known = client.updates.len();
    assert_eq!(client.finish_prompt(&session, "go on"), "end_turn");
    let more: Vec<_> = client.updates[known..]
        .iter()
        .map(|(_, update)| update.clone())
        .collect();
    assert!(
        more.iter()
            .all(|update| update["sessionUpdate"] != "tool_call"),
        "nothing is repeated: {more:?}"
    );
    assert!(
        client
            .text("agent_message_chunk")
            .ends_with("It says hello.")
    );
    // Resumed, the history is not repeated.
    let before = client.text("user_message_chunk");
    client.call("session/close", json!({"sessionId": session}));
    client.call(
        "session/resume",
        json!({"sessionId": session, "cwd": world.work.path(), "mcpServers": []}),
    );
    assert_eq!(client.text("user_message_chunk"), before);
}

#[test]
fn two_sessions_work_at_once() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|_, request| {
        let asked = request.body.to_string();
        let answered = asked.contains("tool_result");
        let reply = if !asked.contains("first task") {
            finish("second done")
        } else if answered {
            finish("first done")
        } else {
            turn("", vec![write_call("a.txt", "x\n")])
        };
        NATIVE.reply(&reply, 1)
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let one = client.new_session(&world);
    let two = client.new_session(&world);
    let first = client.prompt(&one, "first task");
    let asked = client.permission();
    assert_eq!(asked["params"]["sessionId"], one.as_str());
    // The other one goes on while the first waits for an answer.
    assert_eq!(client.finish_prompt(&two, "second task"), "end_turn");
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(first), "end_turn");
    let said = |session: &str| -> String {
        let own = client.updates.iter().filter(|(of, _)| of == session);
        own.filter(|(_, update)| update["sessionUpdate"] == "agent_message_chunk")
            .map(|(_, update)| update["content"]["text"].as_str().unwrap())
            .collect()
    };
    assert_eq!(
        (said(&one).as_str(), said(&two).as_str()),
        ("first done", "second done")
    );
    assert_eq!(client.close(), 0);
}

#[test]
fn modes_and_models_are_switched_between_turns() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|number, _| {
        NATIVE.reply(&turn("Yes.", vec![]), number + 1)
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let opened = client.call(
        "session/new",
        json!({"cwd": world.work.path(), "mcpServers": []}),
    );
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "code");
    assert_eq!(
        opened["configOptions"][1]["currentValue"],
        "anthropic/scripted"
    );
    client.call(
        "session/set_mode",
        json!({"sessionId": session, "modeId": "plan"}),
    );
    assert_eq!(client.finish_prompt(&session, "one"), "end_turn");
    client.call(
        "session/set_mode",
        json!({"sessionId": session, "modeId": "code"}),
    );
    let changed = client.call(
        "session/set_config_option",
        json!({"sessionId": session, "configId": "model", "value": "anthropic/other"}),
    );
    assert_eq!(
        changed["configOptions"][1]["currentValue"],
        "anthropic/other"
    );
    assert_eq!(client.finish_prompt(&session, "two"), "end_turn");
    let requests = provider.received_requests();
    let tools = |at: usize| requests[at].body["tools"].to_string();
    assert!(!tools(0).contains("write_to_file"), "{}", tools(0));
    assert!(requests[1].body.to_string().contains("write_to_file"));
    assert_eq!(requests[0].body["model"], "scripted");
    assert_eq!(requests[1].body["model"], "other");
    let wrong = json!({"sessionId": session, "modeId": "nowhere"});
    assert_eq!(client.failure("session/set_mode", wrong), -32602);
    let wrong = json!({"sessionId": session, "configId": "model", "value": "mistral/x"});
    assert_eq!(client.failure("session/set_config_option", wrong), -32602);
}

#[test]
fn resources_and_pictures_reach_the_model() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[turn("Seen.", vec![])]);
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let pixel = "R0lGODlhAQABAAAAACw=";
    let prompt = json!([
        {"type": "text", "text": "Compare "},
        {"type": "resource_link", "name": "a.rs", "uri": "file:///w/a.rs"},
        {"type": "resource", "resource": {"uri": "file:///w/b.rs", "text": "fn b() {}"}},
        {"type": "image", "mimeType": "image/gif", "data": pixel},
    ]);
    let sent = client.send(
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    assert_eq!(client.stop_reason(sent), "end_turn");
    let body = provider.received_requests()[0].body.to_string();
    for part in ["Compare `/w/a.rs``/w/b.rs`", "fn b() {}", pixel] {
        assert!(body.contains(part), "{part}: {body}");
    }
    let audio = json!([{"type": "audio", "mimeType": "audio/wav", "data": ""}]);
    let refused = json!({"sessionId": session, "prompt": audio});
    assert_eq!(client.failure("session/prompt", refused), -32602);
}

#[test]
fn own_commands_and_those_of_the_folder_work() {
    let world = World::new();
    std::fs::create_dir_all(world.work.path().join(".sabir/commands")).unwrap();
    world.write(".sabir/commands/review.md", "Review the code: $ARGUMENTS\n");
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![write_call("a.txt", "x\n")]),
            finish("written"),
            turn("Reviewed.", vec![]),
        ],
    );
    let mut client = AcpClient::spawn(&world, &provider, NATIVE, &["--approve", "edits"]);
    client.initialize(json!({}));
    let session = client.new_session(&world);
    let commands = client.wait_for("available_commands_update");
    let names: Vec<_> = commands["availableCommands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["compact", "context", "undo", "review"]);
    assert_eq!(client.finish_prompt(&session, "write a.txt"), "end_turn");
    assert_eq!(client.finish_prompt(&session, "/context"), "end_turn");
    assert!(client.text("agent_message_chunk").contains("tokens"));
    assert_eq!(client.finish_prompt(&session, "/undo"), "end_turn");
    assert!(!world.work.path().join("a.txt").exists());
    assert_eq!(client.finish_prompt(&session, "/review a.rs"), "end_turn");
    let body = provider.received_requests()[2].body.to_string();
    assert!(body.contains("Review the code: a.rs"), "{body}");
}

#[test]
fn a_question_of_the_model_is_answered_by_the_next_prompt() {
    let world = World::new();
    let ask = json!({"question": "Which colour?", "follow_up": "<suggest>red</suggest><suggest>blue</suggest>"});
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![("ask_followup_question", ask)]),
            finish("blue it is"),
        ],
    );
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    assert_eq!(client.finish_prompt(&session, "paint it"), "end_turn");
    let asked = client.text("agent_message_chunk");
    assert!(asked.contains("Which colour?"), "{asked}");
    assert_eq!(client.finish_prompt(&session, "blue"), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("blue"), "{body}");
    assert!(client.text("agent_message_chunk").ends_with("blue it is"));
}

#[test]
fn a_session_is_forked_and_both_go_on() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|number, _| {
        NATIVE.reply(&finish("done"), number + 1)
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    assert_eq!(client.finish_prompt(&session, "the beginning"), "end_turn");
    let place = json!({"sessionId": session, "cwd": world.work.path(), "mcpServers": []});
    let forked = client.call("session/fork", place);
    let fork = forked["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(fork, session);
    assert_eq!(client.finish_prompt(&fork, "the other way"), "end_turn");
    assert_eq!(client.finish_prompt(&session, "this way"), "end_turn");
    let requests = provider.received_requests();
    let has = |at: usize, words: &str| requests[at].body.to_string().contains(words);
    assert!(has(1, "the beginning") && has(1, "the other way"));
    assert!(has(2, "this way") && !has(2, "the other way"));
}

#[test]
fn a_clients_mcp_server_is_used_and_asked_about() {
    let world = World::new();
    let call = json!({"text": "<read_file><path>a</path></read_file>"});
    let provider = world.provider(ReplyScript::from_fn(move |number, request| {
        let asked = request.body.to_string();
        let reply = if asked.contains("tool_result") {
            finish("parsed")
        } else if request.body["tools"]
            .to_string()
            .contains("tools__parse_calls")
        {
            turn("", vec![("tools__parse_calls", call.clone())])
        } else {
            turn("The server is not ready.", vec![])
        };
        NATIVE.reply(&reply, number + 1)
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let server = json!({"name": "tools", "command": env!("CARGO_BIN_EXE_sabir"), "args": ["mcp", "serve"], "env": []});
    let opened = client.call(
        "session/new",
        json!({"cwd": world.work.path(), "mcpServers": [server]}),
    );
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    // The server starts beside the task, so its tools may come after the first request.
    let mut prompt = client.prompt(&session, "parse it");
    let asked = loop {
        match client.permission_or_end(prompt) {
            Some(asked) => break asked,
            None => {
                std::thread::sleep(Duration::from_millis(200));
                prompt = client.prompt(&session, "parse it now");
            }
        }
    };
    assert!(
        asked["params"]["toolCall"]["title"]
            .as_str()
            .unwrap()
            .contains("parse_calls"),
        "{asked}"
    );
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    let requests = provider.received_requests();
    let body = requests[requests.len() - 1].body["messages"].to_string();
    assert!(
        body.contains("tool_result") && body.contains("read_file"),
        "{body}"
    );
    assert_eq!(client.close(), 0);
}

#[test]
fn only_an_answer_to_the_question_approves() {
    let world = World::new();
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![write_call("a.txt", "x\n")]),
            finish("stopped"),
        ],
    );
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let first = client.prompt(&session, "write it");
    let asked = client.permission();
    // A prompt waits its turn, whatever it says.
    let second = client.prompt(&session, "yes, allow");
    client.answer(&asked, "everything");
    assert_eq!(client.stop_reason(first), "end_turn");
    // A second answer is to nothing.
    client.answer(&asked, "allow");
    client.notify("session/cancel", json!({"sessionId": session}));
    client.response(second);
    assert!(!world.work.path().join("a.txt").exists());
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("none of the options"), "{body}");
    client.call("session/list", json!({}));
}

#[test]
fn a_question_that_nobody_answers_approves_nothing() {
    let world = World::new();
    world.configure("ask_timeout = \"1s\"\n");
    let provider = world.plays(
        NATIVE,
        &[
            turn("", vec![write_call("a.txt", "x\n")]),
            turn("", vec![write_call("b.txt", "x\n")]),
        ],
    );
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let prompt = client.prompt(&session, "write it");
    client.permission();
    // The first question is denied when its time is over, the second one withdrawn by the cancel.
    client.permission();
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(prompt), "cancelled");
    assert!(!world.work.path().join("a.txt").exists());
    assert!(!world.work.path().join("b.txt").exists());
}

#[test]
fn garbage_gets_errors_and_the_connection_goes_on() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[finish("still here")]);
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    client.write("this is not JSON");
    assert_eq!(client.error()["error"]["code"], -32700);
    client.write("[]");
    assert_eq!(client.error()["error"]["code"], -32600);
    client
        .input
        .as_mut()
        .unwrap()
        .write_all(b"\xff\xfe{\n")
        .unwrap();
    assert_eq!(client.error()["error"]["code"], -32700);
    client.write(&"[".repeat(100_000));
    assert_eq!(client.error()["error"]["code"], -32700);
    // An answer to nothing, and a notification that nobody knows.
    client.write("{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}");
    client.notify("x/unknown", json!({}));
    client.notify("session/cancel", json!({"sessionId": "nobody"}));
    assert_eq!(client.failure("session/nothing", json!({})), -32601);
    assert_eq!(
        client.failure("session/prompt", json!({"sessionId": 3})),
        -32602
    );
    assert_eq!(
        client.failure("session/new", json!({"cwd": "relative", "mcpServers": []})),
        -32602
    );
    let nobody = json!({"sessionId": "nobody", "prompt": [{"type": "text", "text": "x"}]});
    assert_eq!(client.failure("session/prompt", nobody), -32002);
    let nobody = json!({"sessionId": "nobody", "cwd": "/", "mcpServers": []});
    assert_eq!(client.failure("session/load", nobody), -32002);
    let empty = json!({"sessionId": session, "prompt": []});
    assert_eq!(client.failure("session/prompt", empty), -32602);
    assert_eq!(client.finish_prompt(&session, "are you there?"), "end_turn");
    assert!(client.text("agent_message_chunk").ends_with("still here"));
}

#[test]
fn a_flood_of_prompts_is_answered_one_by_one() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|number, _| {
        NATIVE.reply(&turn("ok", vec![]), number + 1)
    }));
    let mut client = AcpClient::start(&world, &provider, NATIVE);
    let session = client.new_session(&world);
    let prompts: Vec<_> = (0..20)
        .map(|at| client.prompt(&session, &format!("prompt {at}")))
        .collect();
    for prompt in prompts {
        assert_eq!(client.stop_reason(prompt), "end_turn");
    }
    assert_eq!(provider.received_requests().len(), 20);
}

#[test]
fn a_client_that_dies_leaves_nothing_behind() {
    for is_closed in [true, false] {
        let world = World::new();
        let mark = format!("3600.{}{}", std::process::id(), u8::from(is_closed));
        let command = json!({"command": format!("sleep {mark}")});
        let provider = world.plays(NATIVE, &[turn("", vec![("execute_command", command)])]);
        let mut client = AcpClient::spawn(
            &world,
            &provider,
            NATIVE,
            &["--approve", "all", "--sandbox", "off"],
        );
        client.initialize(json!({}));
        let session = client.new_session(&world);
        client.prompt(&session, "sleep");
        let begun = Instant::now();
        while processes_with(&mark).is_empty() && begun.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if is_closed {
            assert_eq!(client.close(), 0);
        } else {
            client.child.kill().unwrap();
            client.child.wait().unwrap();
        }
        let begun = Instant::now();
        while !processes_with(&mark).is_empty() {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "{:?}",
                processes_with(&mark)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // The journal is whole: the task can be read and continued.
        let log = world.sabir().args(["log", &session]).output().unwrap();
        assert!(log.status.success());
    }
}

#[test]
fn a_missing_model_asks_for_the_setup() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[]);
    let mut child = AcpClient::spawn(&world, &provider, NATIVE, &[]);
    let offered = child.initialize(json!({"auth": {"terminal": true}}));
    let methods: Vec<_> = offered["authMethods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["id"].as_str().unwrap())
        .collect();
    assert_eq!(methods, ["key", "setup"]);
    child.call("authenticate", json!({"methodId": "key"}));
    assert_eq!(
        child.failure("authenticate", json!({"methodId": "x"})),
        -32602
    );

    let mut bare = AcpClient::spawn(
        &world,
        &provider,
        Way {
            wire: Wire::OpenAiChat,
            protocol: "native",
        },
        &["--model", "mistral/x"],
    );
    bare.initialize(json!({}));
    let place = json!({"cwd": world.work.path(), "mcpServers": []});
    assert_eq!(bare.failure("session/new", place), -32000);
    assert_eq!(
        bare.failure("authenticate", json!({"methodId": "key"})),
        -32000
    );
}
