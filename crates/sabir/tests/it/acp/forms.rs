//! Questions as forms of the client: those of the model and those of MCP servers.

use serde_json::{Value, json};

use super::client::AcpClient;
use super::{NATIVE, finish};
use crate::mcp::{configure, server_table};
use crate::world::{Turn, World, turn};

fn start(
    world: &World,
    turns: &[Turn],
    arguments: &[&str],
) -> (AcpClient, String, sabir_testkit::ScriptedProvider) {
    let provider = world.plays(NATIVE, turns);
    let mut client = AcpClient::spawn(world, &provider, NATIVE, arguments);
    client.initialize(json!({"elicitation": {"form": {}}}));
    let session = client.new_session(world);
    (client, session, provider)
}

fn ask_color() -> Turn {
    let ask = json!({"question": "Which colour?", "follow_up": "<suggest>red</suggest><suggest>blue</suggest>"});
    turn("", vec![("ask_followup_question", ask)])
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[test]
fn a_question_of_the_model_is_a_form_within_the_turn() {
    let world = World::new();
    let (mut client, session, provider) = start(&world, &[ask_color(), finish("blue it is")], &[]);
    let prompt = client.prompt(&session, "paint it");
    let form = client.permission();
    assert_eq!(form["method"], "elicitation/create");
    assert_eq!(form["params"]["message"], "Which colour?");
    let choice = &form["params"]["requestedSchema"]["properties"]["choice"];
    assert_eq!(choice["enum"], json!(["red", "blue"]));
    client.respond(&form, accept(json!({"choice": "blue"})));
    assert_eq!(client.stop_reason(prompt), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("blue"), "{body}");
    assert!(client.text("agent_message_chunk").ends_with("blue it is"));
}

#[test]
fn a_form_that_is_left_is_answered_by_the_next_prompt() {
    let world = World::new();
    let (mut client, session, provider) = start(&world, &[ask_color(), finish("green it is")], &[]);
    let prompt = client.prompt(&session, "paint it");
    let form = client.permission();
    client.respond(&form, json!({"action": "cancel"}));
    assert_eq!(client.stop_reason(prompt), "end_turn");
    assert!(client.text("agent_message_chunk").contains("Which colour?"));
    assert_eq!(client.finish_prompt(&session, "green"), "end_turn");
    let body = provider.received_requests()[1].body.to_string();
    assert!(body.contains("green"), "{body}");
}

#[test]
fn a_cancel_withdraws_a_form() {
    let world = World::new();
    let (mut client, session, _provider) = start(&world, &[ask_color()], &[]);
    let prompt = client.prompt(&session, "paint it");
    let form = client.permission();
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(prompt), "cancelled");
    // An answer that comes too late is to nothing.
    client.respond(&form, accept(json!({"choice": "red"})));
    client.call("session/list", json!({}));
}

#[test]
fn a_question_of_a_server_is_one_form() {
    for (answer, expected) in [
        (accept(json!({"color": "blue"})), "blue"),
        (json!({"action": "decline"}), "decline"),
    ] {
        let world = World::new();
        configure(&world, &server_table("s", "", "required = true"));
        let turns = [turn("", vec![("s__ask", json!({}))]), finish("done")];
        let (mut client, session, provider) = start(&world, &turns, &["--approve", "mcp=s/*"]);
        let prompt = client.prompt(&session, "ask");
        let form = client.permission();
        assert_eq!(
            form["params"]["message"],
            "The MCP server s asks: Which color?"
        );
        assert_eq!(
            form["params"]["requestedSchema"]["required"],
            json!(["color"])
        );
        client.respond(&form, answer);
        assert_eq!(client.stop_reason(prompt), "end_turn");
        let body = provider.received_requests()[1].body.to_string();
        assert!(body.contains(expected), "{body}");
    }
}
