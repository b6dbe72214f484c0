//! Flips every bit of three stored journals, and resumes the tasks: nothing happens twice, and nothing is lost unnoticed.
//!
//! A journal with a flipped bit opens as one of few states: refused, or cut before one of its frames. So the test has two
//! parts. Each flip is opened as a resume opens it, which costs less than a millisecond, and its state is recorded. Then each
//! state is resumed through the binary, with a model that repeats every command whose result it does not see.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Instant;

use sabir_agent::{Record, TaskId};
use sabir_call::MessagePart;
use sabir_journal::Journal;
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript};
use serde_json::json;
use tempfile::TempDir;

use crate::damage::{HEAD_BYTES, HEADER_BYTES, frame_offsets};
use crate::world::{Turn, WAYS, Way, World, code, stderr, turn};

/// The steps of the model: the next one is played once the results of all earlier ones are known.
type Steps = fn(usize) -> Turn;

/// A task that has run, and its journal.
struct StoredTask {
    name: &'static str,
    world: World,
    way: Way,
    steps: Steps,
    id: TaskId,
    journal: PathBuf,
    bytes: Vec<u8>,
    records: Vec<Record>,
    frames: Vec<usize>,
    /// The files of the workspace, by which effects are counted.
    files: BTreeMap<String, String>,
}

/// The outcome of opening a journal with a flipped bit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FlipState {
    /// Nothing was opened, and the file was left as it was.
    Refused,
    /// So many records are left, and the task knows that others are lost.
    Cut(usize),
}

fn command(line: &str) -> Turn {
    turn("", vec![("execute_command", json!({ "command": line }))])
}

fn completion() -> Turn {
    turn("", vec![("attempt_completion", json!({"result": "done"}))])
}

/// One command, which adds a line and goes on until there is a file `go`.
fn approved_command(step: usize) -> Turn {
    match step {
        0 => command("echo ran >> log.txt; until test -e go; do sleep 0.05; done"),
        _ => completion(),
    }
}

/// Edits that would leave other text if they were made twice, and a completion.
fn edits(step: usize) -> Turn {
    let change = json!({
        "path": "notes.txt", "diff": "<<<<<<< SEARCH\none\n=======\none\none\n>>>>>>> REPLACE",
    });
    match step {
        0 => turn(
            "",
            vec![(
                "write_to_file",
                json!({"path": "notes.txt", "content": "one\n"}),
            )],
        ),
        1 => turn("I double it.", vec![("replace_in_file", change)]),
        2 => command("cat notes.txt >> all.txt"),
        _ => completion(),
    }
}

/// The number of commands before a compaction, with enough output that it leaves something out.
const COMMANDS: usize = 6;

/// Commands and a completion.
fn commands(step: usize) -> Turn {
    match step {
        0..COMMANDS => command(&format!("echo {step} >> log.txt; seq 1 700")),
        _ => completion(),
    }
}

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

/// A model that plays the step after as many results as it is shown, and completes when it learns of lost records.
fn script(way: Way, steps: Steps) -> ReplyScript {
    ReplyScript::from_fn(move |number, request| {
        let body = request.body.to_string();
        if body.contains("You summarise the work") {
            return ProviderReply::text("Lines were added to log.txt, and nothing is left to do.");
        }
        let is_known = body.contains("what followed this point is lost")
            || body.contains("Lines were added to log.txt");
        let results = match way.protocol {
            "native" => result_count(request),
            // Every answer has one call.
            _ => body.matches(r#""role":"assistant""#).count(),
        };
        let next = if is_known {
            completion()
        } else {
            steps(results)
        };
        way.reply(&next, number + 1)
    })
}

impl StoredTask {
    /// Reads the journal of the only task.
    fn load(name: &'static str, world: World, way: Way, steps: Steps) -> Self {
        let id = TaskId::new(world.only_task());
        let tasks = world.home.path().join(".local/share/sabir/tasks");
        let (entries, recovery) = sabir_journal::read_journal(&tasks, &id).unwrap();
        assert!(recovery.is_clean(), "{recovery:?}");
        let journal = tasks.join(format!("{id}.journal"));
        let bytes = fs::read(&journal).unwrap();
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(world.work.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read_to_string(path).unwrap());
            }
        }
        assert!(!files.is_empty(), "{name}: nothing to count");
        Self {
            frames: frame_offsets(&bytes),
            records: entries.into_iter().map(|entry| entry.record).collect(),
            name,
            world,
            way,
            steps,
            id,
            journal,
            bytes,
            files,
        }
    }

    /// A task that was killed while the command ran that the user had approved.
    fn killed() -> Self {
        let (world, way) = (World::new(), WAYS[1]);
        let provider = world.provider(script(way, approved_command));
        let mut child = world
            .sabir_with(&provider)
            .args([
                "run",
                "--model",
                way.model(),
                "--output",
                "events",
                "--control",
            ])
            .arg("go")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let question = lines
            .by_ref()
            .map(|line| crate::events::checked(&line.unwrap()))
            .find(|event| event["kind"] == "question")
            .unwrap();
        let answer = json!({"kind": "approve", "call": question["call"]});
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, format!("{answer}\n").as_bytes()).unwrap();
        while world.read("log.txt").is_empty() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the command does not run"
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let task = Self::load("killed", world, way, approved_command);
        let last = task.records.last();
        assert!(matches!(last, Some(Record::Running { .. })), "{last:?}");
        task
    }

    fn completed() -> Self {
        let (world, way) = (World::new(), WAYS[0]);
        let provider = world.provider(script(way, edits));
        let ran = world.run(&provider, way, &["--approve", "all", "go"]);
        assert_eq!(code(&ran), 0, "{}", stderr(&ran));
        let task = Self::load("completed", world, way, edits);
        assert_eq!(task.files["all.txt"], "one\none\n");
        task
    }

    /// A prompted task whose context was compacted by the model.
    fn compacted() -> Self {
        let (world, way) = (World::new(), WAYS[2]);
        let provider = world.provider(script(way, commands));
        // A completed task cannot be compacted, so a limit ends this one.
        let ran = world.run(
            &provider,
            way,
            &["--approve", "all", "--max-turns", "6", "go"],
        );
        assert_eq!(code(&ran), 6, "{}", stderr(&ran));
        let id = world.only_task();
        let compacted = world
            .sabir_with(&provider)
            .args(["context", &id, "--compact"])
            .output()
            .unwrap();
        assert_eq!(code(&compacted), 0, "{}", stderr(&compacted));
        let task = Self::load("compacted", world, way, commands);
        let is_compaction = |record: &Record| format!("{record:?}").contains("Compacted");
        assert!(task.records.iter().any(is_compaction), "{:?}", task.records);
        assert_eq!(task.files["log.txt"], "0\n1\n2\n3\n4\n5\n");
        task
    }

    fn flipped(&self, bit: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    }

    /// Returns the bits of the first line and of all heads of frames.
    fn head_bits(&self) -> impl Iterator<Item = usize> {
        let heads = self.frames[..self.frames.len() - 1].to_vec();
        let bytes = heads
            .into_iter()
            .flat_map(|start| start..start + HEAD_BYTES);
        (0..HEADER_BYTES)
            .chain(bytes)
            .flat_map(|byte| byte * 8..byte * 8 + 8)
    }

    /// Opens a journal with this bit flipped as a resume does, and checks what is found.
    fn open_flipped(&self, folder: &Path, bit: usize) -> FlipState {
        let file = folder.join(format!("{}.journal", self.id));
        let bytes = self.flipped(bit);
        fs::write(&file, &bytes).unwrap();
        let state = match Journal::open(folder, &self.id, || 1) {
            Err(error) => {
                let message = error.to_string();
                assert!(
                    message.contains("was left as it is") || message.contains("by a newer"),
                    "{}, bit {bit}: {message}",
                    self.name
                );
                assert_eq!(fs::read(&file).unwrap(), bytes, "bit {bit}");
                FlipState::Refused
            }
            Ok((journal, entries, recovery)) => {
                drop(journal);
                let mut records: Vec<_> = entries.into_iter().map(|entry| entry.record).collect();
                assert!(
                    recovery.damaged_bytes > 0 && recovery.torn_bytes == 0,
                    "{}, bit {bit} is lost unnoticed: {recovery:?}",
                    self.name
                );
                let last = records.pop();
                assert!(matches!(last, Some(Record::Damaged { .. })), "{last:?}");
                assert!(
                    self.records.starts_with(&records),
                    "{}, bit {bit}",
                    self.name
                );
                let saved = fs::read(recovery.saved_path.unwrap()).unwrap();
                assert_eq!(saved, bytes[self.frames[records.len()]..], "bit {bit}");
                FlipState::Cut(records.len())
            }
        };
        for left in fs::read_dir(folder).unwrap() {
            fs::remove_file(left.unwrap().path()).unwrap();
        }
        state
    }

    /// Resumes the task through the binary with this bit flipped, and checks that no effect happens again.
    fn resume_flipped(&self, bit: usize, state: &FlipState) {
        let bytes = self.flipped(bit);
        for entry in fs::read_dir(self.journal.parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            if path.to_str().unwrap().contains(".damaged") {
                fs::remove_file(path).unwrap();
            }
        }
        fs::write(&self.journal, &bytes).unwrap();
        let provider = self.world.provider(script(self.way, self.steps));
        let resumed: Output = self
            .world
            .sabir_with(&provider)
            .args(["resume", self.id.as_str(), "--approve", "all"])
            .args(["--output", "text", "go on"])
            .output()
            .unwrap();
        let told = stderr(&resumed);
        let place = format!("{}, bit {bit}, {state:?}: {told}", self.name);
        for (name, text) in &self.files {
            assert_eq!(&self.world.read(name), text, "{place}");
        }
        match state {
            FlipState::Refused => {
                assert_eq!(code(&resumed), 2, "{place}");
                assert!(
                    told.contains("left as it is") || told.contains("by a newer"),
                    "{place}"
                );
                assert_eq!(fs::read(&self.journal).unwrap(), bytes, "{place}");
                assert_eq!(provider.received_requests().len(), 0, "{place}");
            }
            FlipState::Cut(_) => {
                assert_eq!(code(&resumed), 0, "{place}");
                assert!(told.contains("The journal is damaged"), "{place}");
                let asked = provider.received_requests()[0].body.to_string();
                assert!(
                    asked.contains("what followed this point is lost"),
                    "{place}"
                );
            }
        }
    }
}

/// Flips these bits of a journal, and resumes `samples` flips of each state through the binary.
fn check_flips(task: &StoredTask, bits: impl Iterator<Item = usize>, samples: usize) {
    // In memory, where a sync costs nothing.
    let folder = TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap());
    let begin = Instant::now();
    let mut states: BTreeMap<FlipState, Vec<usize>> = BTreeMap::new();
    for bit in bits {
        let state = task.open_flipped(folder.path(), bit);
        states.entry(state).or_default().push(bit);
    }
    let flips = states.values().map(Vec::len).sum::<usize>();
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{}: {} records in {} bytes, {flips} flips in {seconds:.1} s, {} states",
        task.name,
        task.records.len(),
        task.bytes.len(),
        states.len()
    );
    // Each record but the first is lost in some flip; without the first nothing can continue.
    let cuts: Vec<_> = (1..task.records.len()).map(FlipState::Cut).collect();
    let found: Vec<_> = states.keys().cloned().collect();
    assert_eq!(found, [&[FlipState::Refused], cuts.as_slice()].concat());
    for (state, bits) in &states {
        for sample in 0..samples {
            // From the beginning to the end of the damaged frame.
            let at = sample * (bits.len() - 1) / samples.max(2).saturating_sub(1);
            task.resume_flipped(bits[at], state);
        }
    }
}

fn check_some_flips(task: &StoredTask) {
    let every = (0..task.bytes.len() * 8).step_by(211);
    let heads = task.head_bits();
    check_flips(task, every.chain(heads), 1);
}

#[test]
fn some_flipped_bits_repeat_no_approved_command() {
    check_some_flips(&StoredTask::killed());
}

#[test]
fn some_flipped_bits_repeat_no_edit() {
    check_some_flips(&StoredTask::completed());
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn some_flipped_bits_repeat_nothing_after_a_compaction() {
    check_some_flips(&StoredTask::compacted());
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn no_flipped_bit_repeats_or_loses_anything() {
    for task in [
        StoredTask::killed(),
        StoredTask::completed(),
        StoredTask::compacted(),
    ] {
        check_flips(&task, 0..task.bytes.len() * 8, 3);
    }
}
