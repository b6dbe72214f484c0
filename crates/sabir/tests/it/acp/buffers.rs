//! Unsaved text of the client's editor: it is read, shown, changed through the editor, and never lost.

use serde_json::{Value, json};

use super::client::{AcpClient, Buffers};
use super::{NATIVE, finish, write_call};
use crate::world::{Turn, World, turn};

fn edit(old: &str, new: &str) -> (&'static str, Value) {
    let diff = format!("------- SEARCH\n{old}\n=======\n{new}\n+++++++ REPLACE");
    ("replace_in_file", json!({"path": "a.txt", "diff": diff}))
}

fn read() -> Turn {
    turn("", vec![("read_file", json!({"path": "a.txt"}))])
}

/// Starts a client with these buffers, which can be written if `writes`.
fn start(
    world: &World,
    turns: &[Turn],
    buffers: Buffers,
    writes: bool,
) -> (AcpClient, String, Provider) {
    let provider = world.plays(NATIVE, turns);
    let mut client = AcpClient::spawn(world, &provider, NATIVE, &[]);
    client.buffers = Some(buffers);
    client.initialize(json!({"fs": {"readTextFile": true, "writeTextFile": writes}}));
    let session = client.new_session(world);
    (client, session, provider)
}

type Provider = sabir_testkit::ScriptedProvider;

fn body(provider: &Provider, number: usize) -> String {
    provider.received_requests()[number].body.to_string()
}

#[test]
fn unsaved_text_is_read_shown_and_changed_through_the_editor() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let turns = [
        read(),
        turn("", vec![edit("typed", "changed")]),
        finish("done"),
    ];
    let (mut client, session, provider) =
        start(&world, &turns, Buffers::with(&[("a.txt", "typed\n")]), true);
    let prompt = client.prompt(&session, "change it");
    let asked = client.permission();
    let diff = &asked["params"]["toolCall"]["content"][0];
    assert_eq!(diff["oldText"], "typed\n");
    assert_eq!(diff["newText"], "changed\n");
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    assert!(body(&provider, 1).contains("1 | typed"));
    assert_eq!(world.read("a.txt"), "changed\n");
    let buffers = client.buffers.take().unwrap();
    assert_eq!(buffers.texts["a.txt"], "changed\n");
    let writes = buffers
        .asked
        .iter()
        .filter(|(method, _)| method == "fs/write_text_file");
    assert_eq!(writes.count(), 1, "{:?}", buffers.asked);
}

#[test]
fn text_that_is_typed_during_the_question_stops_the_edit() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let turns = [turn("", vec![edit("typed", "changed")]), finish("stopped")];
    let (mut client, session, provider) =
        start(&world, &turns, Buffers::with(&[("a.txt", "typed\n")]), true);
    let prompt = client.prompt(&session, "change it");
    let asked = client.permission();
    let texts = &mut client.buffers.as_mut().unwrap().texts;
    texts.insert("a.txt".to_owned(), "typed more\n".to_owned());
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    assert!(
        body(&provider, 1).contains("this changed between the approval of the call and its run")
    );
    assert_eq!(
        client.buffers.take().unwrap().texts["a.txt"],
        "typed more\n"
    );
    assert_eq!(world.read("a.txt"), "saved\n");
}

#[test]
fn a_client_that_cannot_write_keeps_its_unsaved_text() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    world.write("b.txt", "old\n");
    let turns = [
        turn("", vec![edit("typed", "changed")]),
        turn("", vec![write_call("b.txt", "new\n")]),
        finish("told the user"),
    ];
    let open = [("a.txt", "typed\n"), ("b.txt", "old\n")];
    let (mut client, session, provider) = start(&world, &turns, Buffers::with(&open), false);
    let prompt = client.prompt(&session, "change both");
    // The edit that cannot work is not asked about.
    let asked = client.permission();
    assert_eq!(asked["params"]["toolCall"]["rawInput"]["path"], "b.txt");
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    assert!(body(&provider, 1).contains("Ask the user to save or discard them."));
    assert_eq!(
        (world.read("a.txt"), world.read("b.txt")),
        ("saved\n".to_owned(), "new\n".to_owned())
    );
}

#[test]
fn a_client_that_does_not_answer_is_given_up_on() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let turns = [
        read(),
        read(),
        turn("", vec![edit("saved", "changed")]),
        finish("done"),
    ];
    let buffers = Buffers {
        is_silent: true,
        ..Buffers::default()
    };
    let (mut client, session, provider) = start(&world, &turns, buffers, true);
    let prompt = client.prompt(&session, "change it");
    let asked = client.permission();
    client.answer(&asked, "allow");
    assert_eq!(client.stop_reason(prompt), "end_turn");
    assert!(body(&provider, 1).contains("1 | saved"));
    assert_eq!(world.read("a.txt"), "changed\n");
    // After the first silence it is left in peace for a while.
    assert_eq!(client.buffers.take().unwrap().asked.len(), 1);
}

#[test]
fn a_cancel_does_not_wait_for_a_silent_editor() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let buffers = Buffers {
        is_silent: true,
        ..Buffers::default()
    };
    let (mut client, session, _provider) = start(&world, &[read()], buffers, true);
    let prompt = client.prompt(&session, "read it");
    client.wait_for("tool_call");
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.stop_reason(prompt), "cancelled");
}

#[test]
fn subtasks_see_unsaved_text() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let start_subtask = ("new_task", json!({"mode": "code", "message": "read a.txt"}));
    let turns = [
        turn("", vec![start_subtask]),
        read(),
        finish("it says: typed"),
        finish("done"),
    ];
    let (mut client, session, provider) =
        start(&world, &turns, Buffers::with(&[("a.txt", "typed\n")]), true);
    let prompt = client.prompt(&session, "ask a subtask");
    while let Some(asked) = client.permission_or_end(prompt) {
        client.answer(&asked, "allow");
    }
    assert!(body(&provider, 2).contains("1 | typed"));
}

#[test]
fn answers_that_do_not_fit_are_no_text() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let buffers = Buffers {
        is_wrong: true,
        ..Buffers::default()
    };
    let turns = [read(), finish("done")];
    let (mut client, session, provider) = start(&world, &turns, buffers, true);
    assert_eq!(client.finish_prompt(&session, "read it"), "end_turn");
    assert!(body(&provider, 1).contains("1 | saved"));
    assert!(!client.buffers.take().unwrap().asked.is_empty());
}

#[test]
fn files_have_the_names_of_the_client() {
    let world = World::new();
    world.write("a.txt", "saved\n");
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("project");
    std::os::unix::fs::symlink(world.work.path(), &link).unwrap();
    let provider = world.plays(NATIVE, &[read(), finish("done")]);
    let mut client = AcpClient::spawn(&world, &provider, NATIVE, &[]);
    client.buffers = Some(Buffers::with(&[("a.txt", "typed\n")]));
    client.initialize(json!({"fs": {"readTextFile": true}}));
    let opened = client.call("session/new", json!({"cwd": link, "mcpServers": []}));
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.finish_prompt(&session, "read it"), "end_turn");
    assert!(body(&provider, 1).contains("1 | typed"));
    let expected = link.join("a.txt");
    let paths = client.buffers.take().unwrap().paths;
    assert!(
        paths.iter().all(|path| *path == expected.to_str().unwrap()),
        "{paths:?}"
    );
}
