//! Tests how interactive sessions end, and what they do after a failure that the user can correct, in both interfaces.

use rustix::process::{Signal, kill_process};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use serde_json::json;

use crate::interface::{ScreenSeat, command, full};
use crate::world::{Turn, WAYS, Way, World, turn};

const NATIVE: Way = WAYS[1];

fn write(path: &str) -> Turn {
    turn(
        "",
        vec![("write_to_file", json!({"path": path, "content": "new\n"}))],
    )
}

fn answer(text: &'static str) -> Turn {
    turn(text, vec![])
}

/// Starts a session of the line mode.
fn line_mode(world: &World, provider: &ScriptedProvider, words: &[&str]) -> ScreenSeat {
    let mut command = world.sabir_with(provider);
    command.env("TERM", "xterm-256color");
    command.args(["--interface", "line", "--sandbox", "off"]);
    command.args(["--model", NATIVE.model()]).args(words);
    ScreenSeat::start(command, 80, 24)
}

/// Returns the models that were asked.
fn asked_models(provider: &ScriptedProvider) -> Vec<String> {
    let model = |request: &sabir_testkit::ReceivedRequest| {
        request.body["model"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    provider.received_requests().iter().map(model).collect()
}

/// Starts a provider that refuses the key, or the model, until another model is asked for.
fn particular(world: &World, status: u16) -> ScriptedProvider {
    world.provider(ReplyScript::from_fn(move |count, request| {
        if request.body["model"] == "scripted" && count == 0 {
            ProviderReply::error_status(status)
        } else {
            NATIVE.reply(&answer("Now it works."), count)
        }
    }))
}

/// A user who leaves has failed nothing: before a task, after an answer, with whatever key.
#[test]
fn leaving_is_a_success() {
    for keys in ["\x04", "\x03\x03", "/quit\r", "exit\r"] {
        let world = World::new();
        let provider = world.plays(NATIVE, &[answer("It is a greeting.")]);
        let mut seat = full(&world, &provider, &[]);
        seat.wait_for("What should Sabir do?");
        seat.keys(keys);
        assert_eq!(seat.end().code(), Some(0), "{keys:?}");
        let mut seat = full(&world, &provider, &["what", "is", "it"]);
        seat.wait_for("It is a greeting.");
        seat.wait_for("ready");
        seat.keys(keys);
        assert_eq!(seat.end().code(), Some(0), "{keys:?}");
        let text = seat.wait_for("Continue with: sabir resume");
        assert!(
            !text.contains("sabir: left") && text.contains("1 turn"),
            "{text}"
        );
    }
    for keys in ["\x03", "\x04", "/quit\r", "exit\r"] {
        let world = World::new();
        let provider = world.plays(NATIVE, &[answer("It is a greeting.")]);
        let mut seat = line_mode(&world, &provider, &[]);
        seat.wait_for("? lists commands");
        seat.wait_for("\n>");
        seat.keys(keys);
        assert_eq!(seat.end().code(), Some(0), "{keys:?}");
        let mut seat = line_mode(&world, &provider, &["what", "is", "it"]);
        seat.wait_for("It is a greeting.");
        seat.wait_for("\n>");
        seat.keys(keys);
        assert_eq!(seat.end().code(), Some(0), "{keys:?}");
        let text = seat.wait_for("Continue with: sabir resume");
        assert!(!text.contains("sabir: left"), "{text}");
        assert!(!text.contains("> 1 turn"), "{text}");
    }
}

/// Long lines of an answer are broken between words, each row with its margin.
#[test]
fn line_mode_breaks_rows_between_words() {
    let text = "This is a sentence of many plain words that goes on for so long that it does not fit into eighty columns, not even twice, as long as it is.";
    let world = World::new();
    let provider = world.plays(NATIVE, &[answer(text)]);
    let mut seat = line_mode(&world, &provider, &["what", "is", "it"]);
    let shown = seat.wait_for("as it is.");
    let rows: Vec<_> = shown
        .lines()
        .filter_map(|line| line.trim_end().split_once("│ "))
        .map(|(_, row)| row)
        .collect();
    assert_eq!(rows.join(" "), text, "{shown}");
    seat.wait_for("\n>");
    seat.keys("\x04");
    assert_eq!(seat.end().code(), Some(0));
}

/// The first screen fits into a narrow terminal, with whole words.
#[test]
fn the_first_screen_breaks_rows_between_words() {
    let world = World::new();
    let mut command = world.sabir();
    command.env("TERM", "xterm-256color");
    let mut seat = ScreenSeat::start(command, 40, 24);
    let shown = seat.wait_for("[q]uit? ");
    let wide = shown.lines().find(|line| line.trim_end().len() > 40);
    assert_eq!(wide, None, "{shown}");
    seat.keys("q\r");
    assert_eq!(seat.end().code(), Some(0));
}

/// A program at the other end of a pipe cannot leave: what the task came to counts. So does a check that did not succeed.
#[test]
fn an_answer_alone_completes_nothing() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[answer("Hello."), answer("Hello.")]);
    let mut piped = world.sabir_with(&provider);
    piped.args(["--model", NATIVE.model(), "say", "hello"]);
    assert_eq!(piped.output().unwrap().status.code(), Some(3));
    let mut checked = full(&world, &provider, &["--check", "false", "say", "hello"]);
    checked.wait_for("Hello.");
    assert_eq!(checked.leave(), Some(3));
}

/// A signal is no user who leaves.
#[test]
fn a_signal_after_an_answer_interrupts() {
    for signal in [Signal::TERM, Signal::HUP] {
        let world = World::new();
        let provider = world.plays(NATIVE, &[answer("It is a greeting.")]);
        let mut seat = full(&world, &provider, &["what", "is", "it"]);
        seat.wait_for("It is a greeting.");
        seat.wait_for("ready");
        kill_process(seat.process(), signal).unwrap();
        assert_eq!(seat.end().code(), Some(130), "{signal:?}");
    }
}

#[test]
fn a_refused_key_is_said_and_can_be_corrected() {
    let world = World::new();
    let provider = particular(&world, 401);
    let mut seat = full(&world, &provider, &["say", "hello"]);
    seat.wait_for("refused the key (401)");
    seat.wait_for("your next message tries again");
    seat.wait_for("ready");
    seat.keys("again\r");
    seat.wait_for("Now it works.");
    assert_eq!(seat.leave(), Some(0));

    // Who gives up then has a failure.
    let world = World::new();
    let provider = particular(&world, 401);
    let mut seat = full(&world, &provider, &["say", "hello"]);
    seat.wait_for("refused the key (401)");
    assert_eq!(seat.leave(), Some(2));

    let world = World::new();
    let provider = particular(&world, 401);
    let mut seat = line_mode(&world, &provider, &["say", "hello"]);
    seat.wait_for("refused the key (401)");
    seat.wait_for("your next message tries again");
    seat.wait_for("\n>");
    seat.keys("again\r");
    seat.wait_for("Now it works.");
    seat.keys("/quit\r");
    assert_eq!(seat.end().code(), Some(0));
}

/// The configuration is read again, so that a key that was corrected elsewhere is used.
#[test]
fn a_corrected_configuration_is_used_by_the_next_message() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|count, request| {
        match request.header_value("authorization") {
            Some("Bearer sk-secret-right") => NATIVE.reply(&answer("Now it works."), count),
            _ => ProviderReply::error_status(401),
        }
    }));
    let configure = |key: &str| {
        let file = world.configure(format!("[providers.openai]\nkey = \"{key}\"\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file, mode).unwrap();
    };
    configure("sk-secret-wrong");
    let mut command = command(&world, &provider, &["say", "hello"]);
    command.env_remove("OPENAI_API_KEY");
    let mut seat = ScreenSeat::start(command, 80, 24);
    seat.wait_for("refused the key (401)");
    seat.wait_for("ready");
    configure("sk-secret-right");
    seat.keys("again\r");
    seat.wait_for("Now it works.");
    assert_eq!(seat.leave(), Some(0));
}

#[test]
fn a_wrong_model_is_said_and_another_can_be_chosen() {
    let world = World::new();
    let provider = particular(&world, 404);
    let mut seat = full(&world, &provider, &["say", "hello"]);
    seat.wait_for("choose another model with /model");
    seat.wait_for("ready");
    seat.keys("/model openai/other\r");
    seat.wait_for("ready · openai/other");
    seat.keys("again\r");
    seat.wait_for("Now it works.");
    assert_eq!(seat.leave(), Some(0));
    assert_eq!(asked_models(&provider), ["scripted", "other"]);
}

/// After an answer the screen says `ready`, and so it is: for another model, and for an undo.
#[test]
fn an_idle_session_takes_every_command() {
    let world = World::new();
    let turns = [
        write("one"),
        write("two"),
        answer("Written."),
        answer("Still here."),
    ];
    let provider = world.plays(NATIVE, &turns);
    let mut seat = full(&world, &provider, &["--approve", "edits", "go", "on"]);
    seat.wait_for("Written.");
    seat.wait_for("ready");
    assert_eq!(world.read("one"), "new\n");
    // Both calls answer the same message.
    seat.keys("/undo\r");
    seat.wait_for("2 paths were restored: one, two");
    assert!(!world.work.path().join("one").exists());
    assert!(!world.work.path().join("two").exists());
    seat.keys("/model openai/other\r");
    let text = seat.wait_for("ready · openai/other");
    assert!(
        !text.contains("left without") && !text.contains("interrupt it"),
        "{text}"
    );
    seat.keys("more\r");
    seat.wait_for("Still here.");
    assert_eq!(seat.leave(), Some(0));
    let scripted = ["scripted"; 3];
    assert_eq!(
        asked_models(&provider),
        [&scripted[..], &["other"]].concat()
    );
}

/// A message whose session cannot begin is the draft again, and is sent once the reason is gone.
#[test]
fn a_message_that_could_not_be_sent_is_the_draft_again() {
    let world = World::new();
    let provider = world.plays(NATIVE, &[answer("Now it works."), answer("Now too.")]);
    let folder = world.work.path().join("project");
    std::fs::create_dir(&folder).unwrap();
    let mut seat = full(&world, &provider, &["-C", "project"]);
    seat.wait_for("What should Sabir do?");
    std::fs::remove_dir(&folder).unwrap();
    seat.keys("a long message\r");
    seat.wait_for("sabir: ");
    seat.wait_for("› a long message");
    std::fs::create_dir(&folder).unwrap();
    seat.keys("\r");
    seat.wait_for("Now it works.");
    assert_eq!(seat.leave(), Some(0));

    let mut seat = line_mode(&world, &provider, &["-C", "project"]);
    seat.wait_for("? lists commands");
    seat.wait_for("\n>");
    std::fs::remove_dir(&folder).unwrap();
    seat.keys("another message\r");
    seat.wait_for("sabir: ");
    seat.wait_until("the draft", |text| {
        text.matches("> another message").count() == 2
    });
    std::fs::create_dir(&folder).unwrap();
    seat.keys("\r");
    seat.wait_for("Now too.");
    seat.keys("/quit\r");
    assert_eq!(seat.end().code(), Some(0));
}

/// Files and tasks are those of the folder of the task, also before there is one.
#[test]
fn lists_before_a_task_are_of_the_chosen_folder() {
    let world = World::new();
    let folder = world.work.path().join("project");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("inside.txt"), "").unwrap();
    world.write("outside.txt", "");
    let provider = world.plays(NATIVE, &[answer("Yes."), answer("Yes.")]);
    for (place, words) in [("project", "the inner task"), (".", "the outer task")] {
        let mut run = world.sabir_with(&provider);
        run.args(["run", "--model", NATIVE.model(), "-C", place, words]);
        assert!(run.output().unwrap().status.success());
    }
    let mut seat = full(&world, &provider, &["-C", "project"]);
    seat.wait_for("What should Sabir do?");
    seat.keys("see @side");
    let text = seat.wait_for("@inside.txt");
    assert!(!text.contains("outside.txt"), "{text}");
    seat.keys("\x1b");
    seat.wait_until("no list", |text| !text.contains("inside.txt"));
    seat.keys("\x03");
    seat.wait_for("What should Sabir do?");
    seat.keys("/tasks\r");
    let text = seat.wait_for("the inner task");
    assert!(!text.contains("the outer task"), "{text}");
    seat.keys("\x1b");
    // Together with the next key it would be another one.
    seat.wait_until("no list", |text| !text.contains("the inner task"));
    seat.keys("\x04");
    assert_eq!(seat.end().code(), Some(0));
}

/// The countdown and the way out of it come first, so that no terminal of usual width cuts them.
#[test]
fn the_full_interface_counts_down_to_the_next_attempt() {
    let world = World::new();
    let provider = world.provider(ReplyScript::from_fn(|count, _| match count {
        0 => ProviderReply::error_status(429).with_header("retry-after", "50"),
        _ => NATIVE.reply(&answer("Here I am."), count),
    }));
    let mut seat = full(&world, &provider, &["remember", "the", "milk"]);
    seat.wait_for("s, Esc stops · attempt 1 failed");
    // It is drawn again each second.
    seat.wait_for("next attempt in 4");
    seat.keys("\x1b");
    seat.wait_for("ready");
    seat.keys("go on\r");
    seat.wait_for("Here I am.");
    assert_eq!(seat.leave(), Some(0));
    let requests = provider.received_requests();
    assert_eq!(requests.len(), 2);
    let last = requests.last().unwrap().body.to_string();
    assert!(
        last.contains("remember the milk") && last.contains("go on"),
        "{last}"
    );
}
