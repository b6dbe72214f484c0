//! Tests what a user sees who starts Sabir without a model, `sabir init`, and the tour in a terminal.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::termios::{LocalModes, tcgetattr};
use serde_json::json;

use crate::approval::Seat;
use crate::world::{World, code, stderr, stdout};

/// Returns the command of bare `sabir` at a terminal.
fn bare(world: &World) -> Command {
    let mut command = world.sabir();
    command
        .env("TERM", "xterm-256color")
        .args(["--interface", "line"]);
    command
}

/// Starts a server that lists these models, and refuses whatever else it is asked.
fn model_server(models: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let models: Vec<_> = models
        .iter()
        .map(|model| json!({"id": model, "object": "model"}))
        .collect();
    let body = json!({"object": "list", "data": models}).to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { continue };
            let mut request = [0; 4096];
            let count = client.read(&mut request).unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..count]).into_owned();
            let answer = if line.starts_with("GET /v1/models") {
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )
            } else {
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    .to_owned()
            };
            _ = client.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_fresh_home_is_told_what_is_missing() {
    let world = World::new();
    world.write("AGENTS.md", "Be kind.\n");
    let ran = world.sabir().output().unwrap();
    assert_eq!(code(&ran), 2);
    for words in [
        "keys           none",
        "local servers  ",
        "instructions   AGENTS.md",
        "configuration  none",
        "`sabir init` writes one",
        "sabir tour",
        "ANTHROPIC_API_KEY",
        "http://HOST:PORT/v1#NAME",
        "no model is chosen",
    ] {
        assert!(stderr(&ran).contains(words), "{words}: {}", stderr(&ran));
    }
    assert!(!world.home.path().join(".config").exists());
    let longest = stderr(&ran)
        .lines()
        .take_while(|line| !line.starts_with("sabir: "))
        .map(|line| line.chars().count())
        .max();
    assert!(longest <= Some(80), "{}", stderr(&ran));

    // A task with words, and one with a model, see no screen.
    let ran = world.sabir().args(["fix", "it"]).output().unwrap();
    assert!(!stderr(&ran).contains("local servers"), "{}", stderr(&ran));
}

#[test]
fn a_key_and_a_local_server_are_used() {
    let world = World::new();
    let mut command = bare(&world);
    command.env("OPENAI_API_KEY", "sk-secret-test");
    let mut seat = Seat::running(command, "");
    let screen = seat.wait_for("What should Sabir do?");
    assert!(screen.contains("openai (OPENAI_API_KEY)"), "{screen}");
    assert!(
        screen.contains("Using openai/gpt-5.1 (your key for openai)"),
        "{screen}"
    );
    seat.wait_for("> ");
    // Enter alone is a slip; a user who leaves has failed nothing.
    seat.keys("\r");
    seat.wait_for("> ");
    seat.keys("\x04");
    assert_eq!(seat.end().code(), Some(0));

    let url = model_server(&["tiny"]);
    world.configure(format!("[providers.box]\nbase_url = \"{url}\"\n"));
    let mut seat = Seat::running(bare(&world), "");
    let screen = seat.wait_for("What should Sabir do?");
    assert!(screen.contains(&format!("{url} (1 model)")), "{screen}");
    assert!(screen.contains("Using box/tiny"), "{screen}");
    seat.wait_for("> ");
    seat.keys("\x03");
    assert_eq!(seat.end().code(), Some(0));
}

#[test]
fn the_first_screen_can_be_left() {
    let world = World::new();
    let mut seat = Seat::running(bare(&world), "");
    seat.wait_for("[q]uit? ");
    seat.keys("q\n");
    assert_eq!(seat.end().code(), Some(0));
    let rest = seat.rest();
    assert!(!rest.contains("no model"), "{rest}");
}

#[test]
fn a_key_and_an_address_can_be_entered() {
    let world = World::new();
    let mut seat = Seat::running(bare(&world), "");
    seat.wait_for("[q]uit? ");
    seat.keys("k\n");
    seat.wait_for("Provider (");
    seat.wait_for("]: ");
    seat.keys("openai\n");
    seat.wait_for("not shown): ");
    seat.keys("sk-secret-typed\n");
    let shown = seat.wait_for("What should Sabir do?");
    assert!(!shown.contains("sk-secret-typed"), "{shown}");
    assert!(
        shown.contains("openai/gpt-5.1 is now the model in"),
        "{shown}"
    );
    seat.wait_for("> ");
    seat.keys("\x04");
    seat.end();
    let file = world.home.path().join(".config/sabir/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("key = \"sk-secret-typed\""), "{text}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It is used from now on.
    let ran = world.sabir().args(["doctor"]).output().unwrap();
    assert!(
        stdout(&ran).contains("openai (configuration)"),
        "{}",
        stdout(&ran)
    );

    let world = World::new();
    let url = model_server(&["tiny"]);
    let mut seat = Seat::running(bare(&world), "");
    seat.wait_for("[q]uit? ");
    seat.keys("u\n");
    seat.wait_for("/v1: ");
    seat.keys("nonsense\n");
    seat.wait_for("is not an address");
    seat.wait_for("[q]uit? ");
    seat.keys("u\n");
    seat.wait_for("/v1: ");
    seat.keys(&format!("{url}\n"));
    seat.wait_for(&format!("{url}#tiny is now the model in"));
    seat.wait_for("> ");
    seat.keys("\x04");
    seat.end();
}

/// Commands that read standard input say so at a terminal.
#[test]
fn edit_and_lint_say_that_they_read_the_terminal() {
    for words in [["edit", "a.txt"], ["lint", "-"]] {
        let world = World::new();
        world.write("a.txt", "a\n");
        let mut command = world.sabir();
        command.args(words);
        let mut seat = Seat::running(command, "");
        seat.wait_for("reading from the terminal");
        seat.keys("\x04");
        seat.end();
    }
}

/// A key that is pasted where the provider is asked for is taken, and shown nowhere.
#[test]
fn a_key_in_place_of_the_provider_is_not_shown() {
    let world = World::new();
    let mut seat = Seat::running(bare(&world), "");
    seat.wait_for("[q]uit? ");
    seat.keys("k\n");
    seat.wait_for("]: ");
    seat.keys("unknown-kind-of-key-0123456789\n");
    let refused = seat.wait_for("none of these providers");
    assert!(!refused.contains("0123456789"), "{refused}");
    seat.wait_for("[q]uit? ");
    seat.keys("k\n");
    seat.wait_for("]: ");
    seat.keys("sk-ant-pasted-secret\n");
    let shown = seat.wait_for("is now the model in");
    assert!(shown.contains("a key of anthropic"), "{shown}");
    assert!(!shown.contains("pasted-secret"), "{shown}");
    seat.wait_for("> ");
    seat.keys("\x04");
    seat.end();
    let file = world.home.path().join(".config/sabir/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("key = \"sk-ant-pasted-secret\""), "{text}");
}

#[test]
fn the_first_screen_explains_what_it_did_not_understand() {
    let world = World::new();
    let mut seat = Seat::running(bare(&world), "");
    for line in ["\n", "openai\n"] {
        seat.wait_for("[q]uit? ");
        seat.keys(line);
        seat.wait_for("please write t, k, u or q");
    }
    // Nobody listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    seat.wait_for("[q]uit? ");
    seat.keys(&format!("{nobody}\n"));
    seat.wait_for(&format!("no list of models comes from {nobody}"));
    // Of several models one is chosen, without typing the address again.
    let url = model_server(&["tiny", "small", "large"]);
    seat.wait_for("[q]uit? ");
    seat.keys(&format!("{url}\n"));
    let list = seat.wait_for("by its number or name [1]: ");
    assert!(list.contains("2  small"), "{list}");
    seat.keys("huge\n");
    seat.wait_for("that is none of its models");
    seat.wait_for("[q]uit? ");
    seat.keys(&format!("{url}\n"));
    seat.wait_for("by its number or name [1]: ");
    seat.keys("2\n");
    seat.wait_for(&format!("{url}#small is now the model in"));
    seat.wait_for("> ");
    seat.keys("/quit\r");
    assert_eq!(seat.end().code(), Some(0));
}

/// The shell after it must show again what is typed.
#[test]
fn a_terminal_shows_what_is_typed_after_the_key_was_given_up() {
    let world = World::new();
    let mut seat = Seat::running(bare(&world), "");
    seat.wait_for("[q]uit? ");
    seat.keys("k\n");
    seat.wait_for("]: ");
    seat.keys("\n");
    seat.wait_for("not shown): ");
    seat.keys("sk-secret-half\x03");
    assert_eq!(seat.end().code(), Some(130));
    let settings = tcgetattr(seat.terminal()).unwrap();
    assert!(
        settings
            .local_modes
            .contains(LocalModes::ECHO | LocalModes::ICANON)
    );
    assert!(!seat.rest().contains("sk-secret"));
    assert!(!world.home.path().join(".config").exists());
}

#[test]
fn init_writes_a_commented_configuration_once() {
    let world = World::new();
    let file = world.home.path().join(".config/sabir/config.toml");
    let ran = world
        .sabir()
        .arg("init")
        .env("ANTHROPIC_API_KEY", "sk-secret-test")
        .output()
        .unwrap();
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
    assert_eq!(stdout(&ran).trim(), file.display().to_string());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\nmodel = \"anthropic/claude-sonnet-4-5\"\n"),
        "{text}"
    );
    assert!(
        text.contains("# loopback = true") && !text.contains("sk-secret"),
        "{text}"
    );
    let ran = world.sabir().arg("init").output().unwrap();
    assert_eq!(code(&ran), 2);
    assert!(
        stderr(&ran).contains("exists already, and was not changed"),
        "{}",
        stderr(&ran)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    // What it wrote is a valid configuration.
    let ran = world.sabir().arg("doctor").output().unwrap();
    assert_eq!(code(&ran), 0, "{}", stderr(&ran));
}

/// A file that cannot be used is there all the same: both are said, by the command that a user tries then.
#[test]
fn init_names_the_mistake_in_a_configuration_that_exists() {
    let world = World::new();
    for broken in [
        "modell = \"openai/gpt-5\"\n",
        "model = \n",
        "max_turns = \"many\"\n",
    ] {
        let file = world.configure(broken);
        let ran = world.sabir().arg("init").output().unwrap();
        assert_eq!(code(&ran), 2);
        let told = stderr(&ran);
        let exists = format!(
            "sabir: {} exists already, and was not changed; it cannot be used as it is: ",
            file.display()
        );
        assert!(told.starts_with(&exists), "{told}");
        assert!(told.contains("line 1"), "{told}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
    }
}

#[test]
fn the_tour_waits_for_the_reader_in_a_terminal() {
    let world = World::new();
    let mut command = bare(&world);
    command.env("TMPDIR", world.home.path());
    let mut seat = Seat::running(command, "");
    seat.wait_for("[q]uit? ");
    seat.keys("t\n");
    seat.wait_for("1 of 6");
    let explained = seat.wait_for("[Enter] next step");
    assert!(explained.contains("reads the script"), "{explained}");
    seat.keys("\n");
    seat.wait_for("2 of 6");
    seat.wait_for("[Enter] next step");
    seat.keys("a\n");
    let rest = seat.wait_for("is now:");
    assert!(!rest.contains("3 of 6"), "{rest}");
    assert_eq!(seat.end().code(), Some(0));
}
