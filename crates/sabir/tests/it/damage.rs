//! Damages stored journals in all kinds of places, and resumes the tasks with everything approved: no command runs a second time, and
//! the user and the model learn about the loss.

use std::fs;
use std::path::PathBuf;

use sabir_call::MessagePart;
use sabir_testkit::{ReceivedRequest, ReplyScript};
use serde_json::{Value, json};

use crate::world::{WAYS, Way, World, code, events, stderr, turn};

const NATIVE: Way = WAYS[1];

/// The bytes of the first line, and of a frame before its payload.
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const HEAD_BYTES: usize = 12;

/// The commands of the task, one a turn.
const COMMANDS: usize = 3;

fn result_count(request: &ReceivedRequest) -> usize {
    let incoming = request.incoming.as_ref().unwrap().as_ref().unwrap();
    let parts = incoming
        .request
        .messages
        .iter()
        .flat_map(|message| &message.parts);
    parts
        .filter(|part| matches!(part, MessagePart::Result(_)))
        .count()
}

/// A model that runs its commands one by one, and completes when all have run, or when it learns of lost records.
fn script() -> ReplyScript {
    ReplyScript::from_fn(|_, request| {
        let results = result_count(request);
        let is_warned = request
            .body
            .to_string()
            .contains("what followed this point is lost");
        if results >= COMMANDS || is_warned {
            let done = turn("", vec![("attempt_completion", json!({"result": "done"}))]);
            return NATIVE.reply(&done, 50 + results);
        }
        let command = format!("echo {results} >> log.txt");
        let calls = vec![("execute_command", json!({ "command": command }))];
        NATIVE.reply(&turn("", calls), results + 1)
    })
}

/// Returns the offset of each frame of a journal, and the end of the last one.
pub(crate) fn frame_offsets(bytes: &[u8]) -> Vec<usize> {
    let mut frames = vec![HEADER_BYTES];
    while let Some(head) = bytes
        .get(frames[frames.len() - 1]..)
        .filter(|rest| !rest.is_empty())
    {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        frames.push(frames[frames.len() - 1] + HEAD_BYTES + length);
    }
    frames
}

/// A task that has run, and its stored journal.
struct StoredTask {
    world: World,
    id: String,
    journal: PathBuf,
    bytes: Vec<u8>,
    /// The offset of each frame, and the end of the last one.
    frames: Vec<usize>,
}

impl StoredTask {
    /// Runs the task to its end.
    fn new() -> Self {
        let world = World::new();
        let provider = world.provider(script());
        let ran = world.run(&provider, NATIVE, &["--approve", "all", "count"]);
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        let id = world.only_task();
        let tasks = world.home.path().join(".local/share/sabir/tasks");
        let journal = tasks.join(format!("{id}.journal"));
        let bytes = fs::read(&journal).unwrap();
        Self {
            frames: frame_offsets(&bytes),
            world,
            id,
            journal,
            bytes,
        }
    }

    fn payload(&self, frame: usize) -> Value {
        let bytes = &self.bytes[self.frames[frame] + HEAD_BYTES..self.frames[frame + 1]];
        serde_json::from_slice(bytes).unwrap()
    }

    /// Returns the number of the last frame of that kind.
    fn last_of(&self, kind: &str) -> usize {
        let frames = 0..self.frames.len() - 1;
        frames
            .rev()
            .find(|frame| self.payload(*frame)["kind"] == kind)
            .unwrap()
    }

    /// Replaces the journal by these bytes and resumes the task. Returns the messages to the user, the exit code, and the
    /// numbers that the commands have written since the beginning.
    fn resume(&self, journal: &[u8], log: &str) -> (i32, String, String) {
        fs::write(&self.journal, journal).unwrap();
        self.world.write("log.txt", log);
        let provider = self.world.provider(script());
        let resumed = self
            .world
            .sabir_with(&provider)
            .args(["resume", &self.id, "--approve", "all", "--output", "text"])
            .arg("go on")
            .output()
            .unwrap();
        let exit = code(&resumed);
        if exit == 0
            && provider
                .received_requests()
                .iter()
                .any(|request| result_count(request) < COMMANDS)
        {
            let asked = provider.received_requests()[0].body.to_string();
            assert!(
                asked.contains("what followed this point is lost"),
                "{asked}"
            );
        }
        (exit, stderr(&resumed), self.world.read("log.txt"))
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_flipped_bit_never_repeats_a_command() {
    let stored = StoredTask::new();
    let mut flips = vec![8 * 14];
    for (start, end) in stored.frames.iter().zip(&stored.frames[1..]) {
        // The length, the checksum, the link, and the middle and the end of the payload.
        let places = [
            *start,
            start + 5,
            start + 9,
            (start + 12 + end) / 2,
            end - 1,
        ];
        flips.extend(
            places
                .iter()
                .zip([3, 0, 7, 1, 4])
                .map(|(byte, bit)| byte * 8 + bit),
        );
    }
    for bit in flips {
        let mut bytes = stored.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (exit, told, log) = stored.resume(&bytes, "0\n1\n2\n");
        assert_eq!(log, "0\n1\n2\n", "bit {bit}: {told}");
        assert!(
            exit == 0 && told.contains("The journal is damaged")
                || exit == 2 && told.contains("left as it is"),
            "bit {bit}, exit code {exit}: {told}"
        );
    }
}

#[test]
fn a_damaged_running_record_does_not_run_its_command_again() {
    let stored = StoredTask::new();
    let frame = stored.last_of("running");
    let mut bytes = stored.bytes.clone();
    bytes[stored.frames[frame] + 40] ^= 1;
    let (exit, told, log) = stored.resume(&bytes, "0\n1\n2\n");
    assert_eq!((exit, log.as_str()), (0, "0\n1\n2\n"), "{told}");
    for words in [
        "The journal is damaged; the task continues from the last record before the damage",
        "calls whose results are lost are not run again",
        ".journal.damaged",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let log = stored
        .world
        .sabir()
        .args(["log", &stored.id, "--output", "events"])
        .output()
        .unwrap();
    let records = events(&log);
    assert_eq!(records[frame]["kind"], "damaged");
    let result = records
        .iter()
        .skip(frame)
        .find(|record| record["kind"] == "result")
        .unwrap();
    assert_eq!(result["ending"], "interrupted");
    // A fork of the intact part is as careful.
    fs::write(&stored.journal, &bytes).unwrap();
    let provider = stored.world.provider(script());
    let forked = stored
        .world
        .sabir_with(&provider)
        .args([
            "fork",
            &stored.id,
            "--approve",
            "all",
            "--output",
            "text",
            "go on",
        ])
        .output()
        .unwrap();
    assert_eq!(code(&forked), 0, "{}", stderr(&forked));
    assert_eq!(stored.world.read("log.txt"), "0\n1\n2\n");
    assert_eq!(fs::read(&stored.journal).unwrap(), bytes, "only read");
}

#[test]
fn a_torn_end_runs_a_call_that_had_not_started() {
    let stored = StoredTask::new();
    let frame = stored.last_of("running");
    let torn = &stored.bytes[..stored.frames[frame] + 30];
    let (exit, told, log) = stored.resume(torn, "0\n1\n");
    assert_eq!((exit, log.as_str()), (0, "0\n1\n2\n"), "{told}");
    assert!(told.contains("The last record was not finished"), "{told}");
}

#[test]
fn missing_repeated_and_swapped_frames_are_detected() {
    let stored = StoredTask::new();
    let frame = |number: usize| &stored.bytes[stored.frames[number]..stored.frames[number + 1]];
    let (running, last) = (stored.last_of("running"), stored.frames.len() - 2);
    let numbers: Vec<usize> = (0..=last).collect();
    let without: Vec<usize> = numbers.iter().copied().filter(|n| *n != running).collect();
    let mut twice = numbers.clone();
    twice.insert(running, running - 1);
    let mut swapped = numbers.clone();
    swapped.swap(running, running + 1);
    for order in [without, twice, swapped] {
        let mut bytes = stored.bytes[..HEADER_BYTES].to_vec();
        order.iter().for_each(|number| bytes.extend(frame(*number)));
        let (exit, told, log) = stored.resume(&bytes, "0\n1\n2\n");
        assert_eq!((exit, log.as_str()), (0, "0\n1\n2\n"), "{order:?}: {told}");
        assert!(told.contains("The journal is damaged"), "{order:?}: {told}");
    }
}

#[test]
fn a_journal_that_is_replaced_under_a_running_task_ends_it() {
    let world = World::new();
    // The command itself replaces the journal by a copy, or shortens it.
    for (change, words) in [
        (
            "mv $f $f.old; cp $f.old $f",
            "another file was put in its place",
        ),
        (
            "cp $f $f.old; head -c -10 $f.old > $f",
            "somebody else has changed it",
        ),
    ] {
        let tasks = world.home.path().join(".local/share/sabir/tasks");
        let line = format!("for f in {}/*.journal; do {change}; done", tasks.display());
        let provider = world.plays(
            NATIVE,
            &[
                turn("", vec![("execute_command", json!({ "command": line }))]),
                turn("", vec![("attempt_completion", json!({"result": "done"}))]),
            ],
        );
        let ran = world.run(
            &provider,
            NATIVE,
            &[
                "--approve",
                &format!("command={line}"),
                "--sandbox",
                "off",
                "change it",
            ],
        );
        assert_eq!(code(&ran), 1, "{}", stderr(&ran));
        assert!(stderr(&ran).contains(words), "{}", stderr(&ran));
        assert_eq!(provider.received_requests().len(), 1);
        fs::remove_dir_all(tasks).unwrap();
    }
}
