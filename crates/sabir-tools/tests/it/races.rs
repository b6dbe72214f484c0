//! Tests links that change while the tools work.
//!
//! A thread exchanges folders and files for links, as fast as it can: to a folder and a file outside of the workspace, and to
//! hidden ones inside. A round is a call during which such exchanges happened. No result ever holds a byte from there, and
//! nothing there is made, changed or deleted. `cargo test` does a few hundred rounds, `.ci/slow-tests` a few thousand, and
//! `SABIR_ROUNDS=1000000 cargo test --release -p sabir-tools --test it races -- --ignored --nocapture` that number.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::RenameFlags;
use sabir_agent::{CallPermit, ToolRegistry};
use sabir_checkpoint::{
    CallWrites, CheckpointCall, CheckpointStore, RestorePoint, SnapshotScope, StoreLimits,
};
use sabir_tools::{EditTool, NetworkScope, ToolSettings, builtin_tools};
use sabir_workspace::{Bounds, JobManager, OutputLifetime, Sandbox, SandboxLevel, Workspace};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::object;

/// The text in every file that must not be seen, and in no other.
const SECRET: &str = "SECRET";
/// The rounds of all tests that `cargo test` runs, and of those that `.ci/slow-tests` runs.
const BRIEF_ROUNDS: u64 = 600;
const ROUNDS: u64 = 4000;
/// The most calls for each round; on a machine with fewer exchanges the test is not meaningful.
const MAX_CALLS_A_ROUND: u64 = 50;

/// A folder whose parts are exchanged, and what is beside it.
struct Arena {
    root: TempDir,
    outside: TempDir,
    tools: Vec<ToolRegistry>,
    runtime: Runtime,
    /// The real folders behind the names that are exchanged.
    folders: BTreeMap<&'static str, File>,
    exchanges: AtomicU64,
    over: AtomicBool,
}

/// The outcomes of calls of one kind.
#[derive(Default, Debug)]
struct Tally {
    calls: u64,
    rounds: u64,
    done: u64,
    failed: u64,
    /// The text of the last failure.
    words: String,
}

/// Shows figures also where the output of tests is captured.
fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn quick_folder() -> TempDir {
    TempDir::new_in("/dev/shm")
        .or_else(|_| TempDir::new())
        .unwrap()
}

impl Arena {
    fn new(bounds: Bounds) -> Self {
        let (root, outside) = (quick_folder(), quick_folder());
        let folder = |path: &Path, word: &str| {
            fs::create_dir_all(path.join("below")).unwrap();
            for name in [
                "leaf",
                "edited",
                "mv",
                "below/file",
                &format!("{word}-name"),
            ] {
                fs::write(path.join(name), format!("{word}\n")).unwrap();
            }
            fs::write(path.join("code.rs"), format!("fn {word}() {{}}\n")).unwrap();
        };
        folder(&root.path().join("d"), "open");
        folder(&root.path().join("h"), "open");
        folder(&root.path().join("secrets"), SECRET);
        folder(&outside.path().join("d"), SECRET);
        fs::write(root.path().join(".env"), format!("{SECRET}\n")).unwrap();
        fs::write(root.path().join(".sabirignore"), ".env\nsecrets/\n").unwrap();
        symlink(outside.path().join("d"), root.path().join("d.other")).unwrap();
        symlink(
            outside.path().join("d/leaf"),
            root.path().join("d/leaf.other"),
        )
        .unwrap();
        symlink("secrets", root.path().join("h.other")).unwrap();
        symlink("../.env", root.path().join("h/leaf.other")).unwrap();
        let workspace = Arc::new(Workspace::open(root.path()).unwrap().with_bounds(bounds));
        let tools = EditTool::ALL.map(|edit_tool| {
            let settings = ToolSettings {
                workspace: Arc::clone(&workspace),
                helper: PathBuf::from(env!("CARGO_BIN_EXE_tools-probe")),
                environment: Vec::new(),
                edit_tool,
                sandbox: Sandbox::new(SandboxLevel::Off),
                jobs: Arc::new(JobManager::new(
                    outside.path().join("outputs"),
                    OutputLifetime::Persistent,
                )),
                reach: NetworkScope::Only(Vec::new()),
                editor: None,
            };
            ToolRegistry::new(builtin_tools(settings)).unwrap()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let open = |name: &'static str| (name, File::open(root.path().join(name)).unwrap());
        let folders =
            BTreeMap::from([("", File::open(root.path()).unwrap()), open("d"), open("h")]);
        let (exchanges, over) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            root,
            outside,
            tools: tools.into(),
            runtime,
            folders,
            exchanges,
            over,
        }
    }

    /// Exchanges real things and links until it is over, and leaves the real things in their places.
    fn exchange(&self) {
        let [d, leaf, h, hidden_leaf] = [("", "d"), ("d", "leaf"), ("", "h"), ("h", "leaf")];
        // In two orders, so that the phases differ; each name as often there as back.
        let first = [d, leaf, h, hidden_leaf, d, leaf, h, hidden_leaf];
        let second = [d, leaf, hidden_leaf, d, h, hidden_leaf, leaf, h];
        while !self.over.load(Ordering::Relaxed) {
            for (folder, name) in first.into_iter().chain(second) {
                let (folder, other) = (self.folder(folder), format!("{name}.other"));
                let _ = rustix::fs::renameat_with(
                    folder,
                    name,
                    folder,
                    other.as_str(),
                    RenameFlags::EXCHANGE,
                );
                self.exchanges.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn folder(&self, name: &str) -> &File {
        self.folders.get(name).unwrap()
    }

    /// Reports whether the real folder contains this name.
    fn has(&self, folder: &str, name: &str) -> bool {
        rustix::fs::statat(
            self.folder(folder),
            name,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .is_ok()
    }

    fn content(&self, folder: &str, name: &str) -> String {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.folder(folder), name, flags, rustix::fs::Mode::empty());
        file.map(|file| std::io::read_to_string(File::from(file)).unwrap())
            .unwrap_or_default()
    }

    /// Calls a tool as the driver does: it is checked, and then run.
    fn call(&self, tool: &str, arguments: Value) -> (bool, String) {
        let found = self
            .tools
            .iter()
            .find_map(|registry| registry.get(tool))
            .unwrap();
        let arguments = object(arguments);
        let call = found.prepare(&arguments);
        let access = format!("{:?}", call.access());
        assert!(!access.contains(SECRET), "{tool} {access}");
        let permit = CallPermit::unchecked(sabir_call::CallId::new("1"));
        let output = self.runtime.block_on(call.run(&permit, &mut |_| {}));
        (!output.failed, output.content)
    }

    /// One call of a kind in a folder.
    fn act(&self, kind: &str, folder: &str, number: u64) -> (bool, String) {
        let at = |name: &str| format!("{folder}/{name}");
        let patch =
            |text: String| json!({"patch": format!("*** Begin Patch\n{text}\n*** End Patch")});
        let now = self.content(folder, "edited");
        let (now, next) = (now.trim_end(), format!("open{}", number % 2));
        match kind {
            "read_file" => self.call(kind, json!({"path": at("leaf")})),
            "read_file below" => self.call("read_file", json!({"path": at("below/file")})),
            "list_files" => self.call(kind, json!({"path": folder, "recursive": true})),
            "search_files" => self.call(kind, json!({"path": folder, "regex": "."})),
            "list_code_definition_names" => self.call(kind, json!({"path": folder})),
            "write_to_file" => self.call(
                kind,
                json!({"path": at("written"), "content": format!("{number}\n")}),
            ),
            "write_to_file new" => {
                let path = at(&format!("new-folder/{}", number % 64));
                self.call(
                    "write_to_file",
                    json!({"path": path, "content": format!("{number}\n")}),
                )
            }
            "replace_in_file" => {
                let diff = format!("------- SEARCH\n{now}\n=======\n{next}\n+++++++ REPLACE");
                self.call(kind, json!({"path": at("edited"), "diff": diff}))
            }
            "edit_file" => self.call(
                kind,
                json!({"path": at("edited"), "old_string": now, "new_string": next}),
            ),
            "apply_patch" if self.has(folder, "added") => {
                self.call(kind, patch(format!("*** Delete File: {}", at("added"))))
            }
            "apply_patch" => {
                self.call(kind, patch(format!("*** Add File: {}\n+open", at("added"))))
            }
            "apply_patch move" => {
                let (from, to) = if self.has(folder, "mv") {
                    ("mv", "mv2")
                } else {
                    ("mv2", "mv")
                };
                let now = self.content(folder, from);
                let now = now.trim_end();
                let text = format!(
                    "*** Update File: {}\n*** Move to: {}\n@@\n-{now}\n+{next}",
                    at(from),
                    at(to)
                );
                self.call("apply_patch", patch(text))
            }
            kind => panic!("no kind {kind}"),
        }
    }

    /// Describes everything that must not change: names, inodes, times and contents.
    fn kept(&self) -> BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)> {
        let mut kept = BTreeMap::new();
        let mut left = vec![
            self.outside.path().join("d"),
            self.root.path().join("secrets"),
            self.root.path().join(".env"),
        ];
        while let Some(path) = left.pop() {
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            if found.is_dir() {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
            kept.insert(
                path,
                (found.ino(), found.mtime(), found.mtime_nsec(), content),
            );
        }
        kept
    }

    /// Acts until the share of rounds is done and both outcomes were seen, and counts.
    fn rounds(
        &self,
        effort: Effort,
        share: u64,
        mut act: impl FnMut(u64) -> (bool, String),
    ) -> Tally {
        let wanted = effort.share(share);
        let mut tally = Tally::default();
        // A race has two outcomes. One of them may be rare on some machines, so a brief test does not wait for it for long.
        let is_one_sided = |tally: &Tally| tally.done == 0 || tally.failed == 0;
        let is_waiting = |tally: &Tally| is_one_sided(tally) && tally.calls < effort.patience();
        while (tally.rounds < wanted || is_waiting(&tally))
            && tally.calls < (wanted + 1000) * MAX_CALLS_A_ROUND
        {
            let before = self.exchanges.load(Ordering::Relaxed);
            let (done, words) = act(tally.calls);
            assert!(!words.contains(SECRET), "{words}");
            tally.calls += 1;
            tally.rounds += u64::from(self.exchanges.load(Ordering::Relaxed) != before);
            if done {
                tally.done += 1;
            } else {
                (tally.failed, tally.words) = (tally.failed + 1, words);
            }
        }
        tally
    }

    /// A checkpoint, a change, the way back: errors are welcome, a secret is not.
    fn back_and_forth(&self, checkpoints: &CheckpointStore, number: u64) -> (bool, String) {
        let stop = AtomicBool::new(false);
        let time_ms = 4_000_000_000_000 + number;
        let mark = || CheckpointCall {
            task: "task".to_owned(),
            time_ms,
            ..CheckpointCall::default()
        };
        let goal = RestorePoint::Last(1);
        let taken = checkpoints.take_snapshot(mark(), &SnapshotScope::All, &stop);
        let _ = self.act("write_to_file", "d", number);
        let _ = self.act("apply_patch", "d", number);
        let sealed =
            taken.and_then(|id| checkpoints.seal_checkpoint(id, time_ms, &CallWrites::All, &stop));
        let plan = sealed.and_then(|_| checkpoints.plan_restore("task", &goal));
        match plan.and_then(|plan| checkpoints.restore(&plan, &goal, mark(), true)) {
            Ok(restored) => (restored.skipped.is_empty(), String::new()),
            Err(error) => (false, error.to_string()),
        }
    }
}

/// The number of rounds of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Brief,
    Thorough,
}

impl Effort {
    /// A share, in ten-thousandths, of the rounds that all tests of this effort do together.
    fn share(self, of: u64) -> u64 {
        let told = || std::env::var("SABIR_ROUNDS").ok()?.parse().ok();
        let all = if self == Self::Brief {
            BRIEF_ROUNDS
        } else {
            told().unwrap_or(ROUNDS)
        };
        (all * of).div_ceil(10_000)
    }

    /// The number of calls of one kind after which no second outcome is waited for.
    fn patience(self) -> u64 {
        match self {
            Self::Brief => 400,
            Self::Thorough => u64::MAX,
        }
    }
}

const KINDS: [&str; 11] = [
    "read_file",
    "read_file below",
    "list_files",
    "search_files",
    "list_code_definition_names",
    "write_to_file",
    "write_to_file new",
    "replace_in_file",
    "edit_file",
    "apply_patch",
    "apply_patch move",
];

/// Does the rounds of all kinds in some folders, and checks that exchanges happened during them.
fn race(bounds: Bounds, folders: &[&str], effort: Effort, share_of_each: u64) {
    let arena = Arena::new(bounds);
    let kept = arena.kept();
    let tallies = std::thread::scope(|scope| {
        scope.spawn(|| arena.exchange());
        let over = Over(&arena.over);
        let mut tallies = BTreeMap::new();
        for (folder, kind) in folders
            .iter()
            .flat_map(|folder| KINDS.map(|kind| (*folder, kind)))
        {
            let tally = arena.rounds(effort, share_of_each, |number| {
                arena.act(kind, folder, number)
            });
            let Tally {
                calls,
                rounds,
                done,
                failed,
                ..
            } = tally;
            say(&format!(
                "{kind} in {folder}: {rounds} rounds in {calls} calls, {done} done, {failed} failed"
            ));
            tallies.insert(format!("{kind} in {folder}"), tally);
        }
        drop(over);
        tallies
    });
    check_end(&arena, &kept, &tallies, effort);
}

fn check_end(
    arena: &Arena,
    kept: &BTreeMap<PathBuf, (u64, i64, i64, Vec<u8>)>,
    tallies: &BTreeMap<String, Tally>,
    effort: Effort,
) {
    assert!(
        arena.kept() == *kept,
        "something was changed that is not to be seen"
    );
    let rounds: u64 = tallies.values().map(|tally| tally.rounds).sum();
    let exchanges = arena.exchanges.load(Ordering::Relaxed);
    say(&format!("{rounds} rounds, {exchanges} exchanges"));
    assert!(
        rounds > 0 && tallies.values().any(|tally| tally.failed > 0),
        "nothing was a race: {tallies:?}"
    );
    // A few rounds of one kind may all end the same way.
    for (name, tally) in tallies.iter().filter(|_| effort == Effort::Thorough) {
        assert!(
            tally.done > 0 && tally.failed > 0,
            "{name} was not a race: {tally:?}"
        );
    }
}

/// Ends the exchanges when dropped, also after a failed assertion.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_outside_is_seen_or_touched() {
    race(Bounds::new(), &["d"], Effort::Brief, 345);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn nothing_outside_is_seen_or_touched_in_many_rounds() {
    race(Bounds::new(), &["d"], Effort::Thorough, 345);
}

fn hiding_bounds() -> Bounds {
    Bounds::new()
        .ignore_files([".sabirignore"])
        .hide_globs(["**/SECRET*".to_owned()])
        .unwrap()
}

#[test]
fn nothing_hidden_is_seen_or_touched() {
    race(hiding_bounds(), &["d", "h"], Effort::Brief, 280);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn nothing_hidden_is_seen_or_touched_in_many_rounds() {
    race(hiding_bounds(), &["d", "h"], Effort::Thorough, 280);
}

#[test]
fn checkpoints_keep_and_restore_nothing_from_outside() {
    race_checkpoints(Effort::Brief);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn checkpoints_keep_and_restore_nothing_from_outside_in_many_rounds() {
    race_checkpoints(Effort::Thorough);
}

/// Takes and restores checkpoints while links come and go, and looks for what is outside in the store and the workspace.
fn race_checkpoints(effort: Effort) {
    let arena = Arena::new(Bounds::new());
    // What is inside is kept whether or not it is hidden.
    fs::remove_dir_all(arena.root.path().join("secrets")).unwrap();
    fs::create_dir(arena.root.path().join("secrets")).unwrap();
    fs::write(arena.root.path().join(".env"), "open\n").unwrap();
    let (kept, data) = (arena.kept(), quick_folder());
    let workspace = Arc::new(Workspace::open(arena.root.path()).unwrap());
    let caps = StoreLimits {
        store_bytes: 1 << 20,
        ..StoreLimits::default()
    };
    let checkpoints = CheckpointStore::new(data.path().join("store"), workspace, caps, Vec::new());
    let tally = std::thread::scope(|scope| {
        scope.spawn(|| arena.exchange());
        let _over = Over(&arena.over);
        arena.rounds(effort, 50, |number| {
            arena.back_and_forth(&checkpoints, number)
        })
    });
    let found = holding_secret(data.path());
    assert!(found.is_empty(), "{found:?} in the store");
    let found = holding_secret(arena.root.path());
    assert!(found.is_empty(), "{found:?} in the workspace");
    assert!(
        arena
            .kept()
            .iter()
            .filter(|(path, _)| path.starts_with(arena.outside.path()))
            .eq(kept
                .iter()
                .filter(|(path, _)| path.starts_with(arena.outside.path())))
    );
    say(&format!("checkpoints: {tally:?}"));
    assert!(effort == Effort::Brief || tally.done > 0, "{tally:?}");
}

/// The files below a folder that hold the secret; links are not followed.
fn holding_secret(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = left.pop() {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if kind.is_file()
            && fs::read(&path)
                .unwrap()
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes())
        {
            found.push(path);
        }
    }
    found
}
