//! Plays an hour of a person with the full interface: a feature with approvals, a denial with its reason, steering, an interrupt, undo,
//! plan mode, a picture, a long paste, and a resume. The screens are compared with `interface_hour.txt`.
//!
//! `SABIR_RENEW=1 cargo test -p sabir --test it interface_hour` writes them anew. Read the difference before you commit it.

use serde_json::json;

use crate::interface::{ScreenSeat, command, gated, last_said, wait_for_requests};
use crate::world::{Turn, World, turn};

const SCREENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/interface_hour.txt");
const SOURCE: &str = "def greet(name):\n    return \"Hello, \" + name\n";

/// The rows of the terminal: enough for the whole hour, since what scrolls out depends on the pieces in which answers arrive.
const ROWS: u16 = 120;
/// The rows of a screen that are kept, from the last one up.
const KEPT_ROWS: usize = 24;

/// The screens of the hour, each under what the person has just done.
#[derive(Default)]
struct ScreenLog {
    text: String,
}

impl ScreenLog {
    /// Adds the screen as it is now.
    fn take(&mut self, caption: &str, seat: &ScreenSeat) {
        let rows = seat.rows();
        let last = rows.iter().skip(rows.len().saturating_sub(KEPT_ROWS));
        let rows: Vec<_> = last.map(|row| without_chance(row.trim_end())).collect();
        self.text
            .push_str(&format!("=== {caption}\n{}\n\n", rows.join("\n")));
    }
}

/// Replaces what differs from run to run: the ids of tasks, durations, and estimates of tokens.
fn without_chance(row: &str) -> String {
    let words: Vec<_> = row.split(' ').collect();
    let words = words.iter().enumerate().map(|(at, word)| {
        let before = at.checked_sub(1).and_then(|at| words.get(at).copied());
        let after = words.get(at + 1).copied();
        match (before, after) {
            (Some("task"), _) if at == 1 => "TASK",
            (Some("working"), Some("s,")) => "N",
            (_, Some("tokens")) => "N",
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn edit(search: &str, replace: &str) -> Turn {
    let diff = format!("------- SEARCH\n{search}\n=======\n{replace}\n+++++++ REPLACE\n");
    turn(
        "",
        vec![(
            "replace_in_file",
            json!({"path": "greeting.py", "diff": diff}),
        )],
    )
}

fn run(line: &str) -> Turn {
    turn("", vec![("execute_command", json!({"command": line}))])
}

fn model_turns() -> Vec<Turn> {
    let read = json!({"path": "greeting.py"});
    vec![
        turn("I read the greeting first.", vec![("read_file", read)]),
        edit(
            "    return \"Hello, \" + name",
            "    word = \"Good morning, \" if is_morning() else \"Hello, \"\n    return word + name",
        ),
        run("rm -rf build"),
        turn(
            "The build folder stays. The greeting knows **mornings** now.",
            vec![],
        ),
        // Interrupted by Ctrl-S, then by Esc.
        turn("Never shown.", vec![]),
        turn("Evenings are next.", vec![]),
        turn("Never shown either.", vec![]),
        turn("1. Add `is_evening`.\n2. Test it.", vec![]),
        turn("A picture of one pixel.", vec![]),
        turn("The log says that `greet` is missing.", vec![]),
        turn("We added a greeting for mornings.", vec![]),
    ]
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn an_hour_at_the_interface() {
    let world = World::new();
    world.write("greeting.py", SOURCE);
    let picture = world.write("pixel.gif", "GIF89a\u{1}\0\u{1}\0\0\0\0,");
    let (provider, gate) = gated(&world, model_turns());
    let answer = |count: usize| (0..count).for_each(|_| gate.send(()).unwrap());
    let mut log = ScreenLog::default();
    let mut seat = ScreenSeat::start(command(&world, &provider, &[]), 76, ROWS);

    seat.wait_for("What should Sabir do?");
    seat.keys("greet people in the morning, see @gree");
    seat.wait_for("  @greeting.py");
    // Symbols are found behind the names of files.
    seat.wait_for("(greeting.py:1)  def");
    log.take("types a message, and a file is completed", &seat);
    seat.keys("\t");
    seat.wait_for("see @greeting.py");
    seat.keys("\r");
    answer(2);
    seat.wait_for("y yes");
    log.take(
        "sends it; the model reads the file and wants to edit it",
        &seat,
    );
    seat.answer("y");
    seat.wait_for("✓ replace_in_file greeting.py");
    answer(1);
    seat.wait_for("rm -rf build");
    seat.wait_for("y yes");
    seat.answer("n");
    seat.wait_for("no, because: ");
    seat.keys("the build folder is needed");
    seat.wait_for("folder is needed");
    log.take("allows the edit, and denies a command with a reason", &seat);
    seat.keys("\r");
    answer(1);
    seat.wait_for("knows mornings now.");
    seat.wait_for("ready");
    log.take("the model takes the reason in", &seat);
    assert!(world.read("greeting.py").contains("Good morning"));
    let denied = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(denied.contains("the build folder is needed"), "{denied}");

    // Steers, and then stops.
    seat.keys("now the afternoon\r");
    wait_for_requests(&provider, 5);
    seat.wait_for("› now the afternoon");
    seat.keys("no, the evening\r");
    seat.wait_for("queued: no, the evening");
    log.take("queues a message while the model works", &seat);
    seat.keys("\x13");
    seat.wait_until("an empty queue", |text| !text.contains("queued:"));
    answer(1);
    wait_for_requests(&provider, 6);
    answer(1);
    seat.wait_for("Evenings are next.");
    seat.wait_for("ready");
    seat.keys("go on then\r");
    wait_for_requests(&provider, 7);
    seat.keys("\x1b");
    seat.wait_for("ready");
    answer(1);
    log.take(
        "steers with Ctrl-S, and stops the next turn with Esc",
        &seat,
    );

    seat.keys("/undo\r");
    seat.wait_until("the old file", |_| world.read("greeting.py") == SOURCE);
    seat.wait_for("1 path was restored: greeting.py");
    log.take("undoes the edit", &seat);

    seat.keys("\x1b[Z");
    seat.wait_until("plan mode", |text| {
        text.lines()
            .last()
            .is_some_and(|row| row.contains(" · plan"))
    });
    seat.keys("how would you do evenings?\r");
    answer(1);
    seat.wait_for("Test it.");
    seat.wait_for("ready");
    log.take("asks for a plan in plan mode", &seat);
    seat.keys("/mode code\r");
    seat.wait_until("code mode", |text| {
        text.lines()
            .last()
            .is_some_and(|row| row.contains(" · code"))
    });

    seat.keys(&format!("\x1b[200~{}\x1b[201~", picture.display()));
    seat.wait_for("1 image(s) attached");
    seat.keys("what is this?\r");
    answer(1);
    seat.wait_for("A picture of one pixel.");
    seat.wait_for("ready");
    let body = provider
        .received_requests()
        .last()
        .unwrap()
        .body
        .to_string();
    assert!(body.contains("data:image/gif;base64,"), "{body}");

    let pasted = "NameError: name 'greet' is not defined\n".repeat(400);
    seat.keys("and this? ");
    seat.keys(&format!("\x1b[200~{}\x1b[201~", pasted.replace('\n', "\r")));
    seat.wait_for("[pasted 400 lines");
    log.take("drops a picture, and pastes a long log", &seat);
    seat.keys("\r");
    answer(1);
    seat.wait_for("is missing.");
    assert!(last_said(&provider).pop().unwrap().contains(&pasted));
    seat.wait_for("ready");
    seat.keys("\x04");
    seat.end();

    let mut seat = ScreenSeat::start(command(&world, &provider, &["-c"]), 76, ROWS);
    seat.wait_for("is missing.");
    seat.wait_for("What should Sabir do?");
    log.take("leaves, and continues the task later", &seat);
    seat.keys("what did we do?\r");
    answer(1);
    seat.wait_for("We added a greeting for mornings.");
    seat.wait_for("ready");
    assert!(seat.leave().is_some());

    if std::env::var_os("SABIR_RENEW").is_some() {
        std::fs::write(SCREENS, &log.text).unwrap();
    }
    let known = std::fs::read_to_string(SCREENS).unwrap_or_default();
    assert_eq!(known, log.text, "SABIR_RENEW=1 writes the screens anew");
}
