//! Tests checkpoints on real trees: which files are kept, restored and skipped, and the disk space used.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sabir_checkpoint::{
    CallWrites, CheckpointCall, CheckpointError, CheckpointStore, OmitReason, RestoreConflict,
    RestoreOutcome, RestorePoint, SealOutcome, SnapshotScope, StoreLimits, prune_stores,
};
use sabir_workspace::Workspace;
use tempfile::TempDir;

/// A workspace with its checkpoint store.
struct Ground {
    work: TempDir,
    data: TempDir,
    caps: StoreLimits,
    clock: AtomicU64,
}

/// The result of an independent walk: names, kinds, modes, contents.
type Seen = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

impl Ground {
    fn new() -> Self {
        Self::with(StoreLimits::default())
    }

    fn with(caps: StoreLimits) -> Self {
        // Later than any file of the tests, so that no file is read twice because it is new.
        let clock = AtomicU64::new(4_000_000_000_000);
        Self {
            work: TempDir::new().unwrap(),
            data: TempDir::new().unwrap(),
            caps,
            clock,
        }
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.work.path().join(name)
    }

    fn put(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn store(&self) -> PathBuf {
        self.data.path().join("store")
    }

    fn checkpoints(&self) -> CheckpointStore {
        let workspace = Arc::new(Workspace::open(self.work.path()).unwrap());
        CheckpointStore::new(self.store(), workspace, self.caps, Vec::new())
    }

    fn mark(&self, task: &str) -> CheckpointCall {
        let time_ms = self.clock.fetch_add(1, Ordering::Relaxed);
        CheckpointCall {
            task: task.to_owned(),
            call: "c".to_owned(),
            tool: "t".to_owned(),
            label: String::new(),
            time_ms,
        }
    }

    /// Makes a call that may change anything.
    fn call(&self, checkpoints: &CheckpointStore, act: impl FnOnce()) -> SealOutcome {
        self.scoped(checkpoints, &SnapshotScope::All, act)
    }

    fn scoped(
        &self,
        checkpoints: &CheckpointStore,
        scope: &SnapshotScope,
        act: impl FnOnce(),
    ) -> SealOutcome {
        let stop = AtomicBool::new(false);
        let id = checkpoints
            .take_snapshot(self.mark("task"), scope, &stop)
            .unwrap();
        act();
        checkpoints
            .seal_checkpoint(
                id,
                self.clock.load(Ordering::Relaxed),
                &CallWrites::All,
                &stop,
            )
            .unwrap()
    }

    fn files(&self, names: &[&str]) -> SnapshotScope {
        let workspace = Workspace::open(self.work.path()).unwrap();
        SnapshotScope::Files(
            names
                .iter()
                .map(|name| workspace.parse_path(name).unwrap())
                .collect(),
        )
    }

    fn back(
        &self,
        checkpoints: &CheckpointStore,
        goal: &RestorePoint,
        force: bool,
    ) -> RestoreOutcome {
        let plan = checkpoints.plan_restore("task", goal).unwrap();
        checkpoints
            .restore(&plan, goal, self.mark("task"), force)
            .unwrap()
    }

    fn undo(&self, checkpoints: &CheckpointStore) -> RestoreOutcome {
        self.back(checkpoints, &RestorePoint::Last(1), false)
    }

    fn seen(&self) -> Seen {
        seen(self.work.path())
    }

    fn sh(&self, script: &str) {
        let mut shell = Command::new("bash");
        shell
            .args(["-ec", script])
            .current_dir(self.work.path())
            .env("HOME", self.data.path());
        for name in [
            "GIT_AUTHOR_NAME",
            "GIT_COMMITTER_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_EMAIL",
        ] {
            shell.env(name, "ada");
        }
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn seen(root: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let (kind, mode, content) = if found.is_symlink() {
                (
                    'l',
                    0,
                    fs::read_link(&path)
                        .unwrap()
                        .as_os_str()
                        .as_bytes()
                        .to_vec(),
                )
            } else if found.is_dir() {
                left.push(path.clone());
                ('d', found.mode() & 0o3777, Vec::new())
            } else if found.is_file() {
                ('f', found.mode() & 0o1777, fs::read(&path).unwrap())
            } else {
                ('s', 0, Vec::new())
            };
            seen.insert(
                path.strip_prefix(root).unwrap().to_path_buf(),
                (kind, mode, content),
            );
        }
    }
    seen
}

#[track_caller]
fn same(before: &Seen, after: &Seen) {
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let other: Vec<_> = paths
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path))
        .collect();
    assert!(other.is_empty(), "these differ: {other:?}");
}

/// Creates a repository with everything that a tree can hold: a nested repository, a submodule,
/// links, modes, odd names.
fn repository(ground: &Ground) {
    ground.sh(
        "git init -q . && git init -q ../upstream-$$ && (cd ../upstream-$$ && echo lib > lib.txt && git add . && git commit -qm lib)
         mkdir -p src/deep/er empty/inner bin nested && echo 'fn main() {}' > src/main.rs && echo deep > src/deep/er/x
         printf 'target/\\n*.log\\n' > .gitignore && mkdir target && echo built > target/out && echo said > a.log
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/../upstream-$$\" module
         (cd nested && git init -q . && echo inner > inner.txt && git add . && git commit -qm inner && git tag v1)
         git add src .gitignore && git commit -qm first && echo changed >> src/main.rs && git stash -q && git stash pop -q
         rm -rf ../upstream-$$",
    );
    symlink("src/main.rs", ground.at("to-file")).unwrap();
    symlink("nested", ground.at("to-folder")).unwrap();
    symlink("nowhere", ground.at("dangling")).unwrap();
    symlink("/etc/passwd", ground.at("absolute")).unwrap();
    symlink(".", ground.at("src/loop")).unwrap();
    ground.put("bin/run", "#!/bin/sh\n");
    for (name, mode) in [
        ("bin/run", 0o755),
        ("src/deep", 0o700),
        ("src/main.rs", 0o640),
        ("empty", 0o555),
    ] {
        fs::set_permissions(ground.at(name), Permissions::from_mode(mode)).unwrap();
    }
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe not utf-8",
        b"-rf",
        b" space ",
        b"tab\tquote'\"",
        &[b'n'; 255],
    ] {
        ground.put(Path::new("src").join(OsStr::from_bytes(name)), name);
    }
}

#[test]
fn a_half_deleted_repository_is_restored_byte_for_byte() {
    let ground = Ground::new();
    repository(&ground);
    let checkpoints = ground.checkpoints();
    let before = ground.seen();
    assert!(before.len() > 100, "{} entries", before.len());
    let sealed = ground.call(&checkpoints, || {
        ground.sh(
            "chmod 755 empty && rm -rf .git/objects .git/HEAD .git/modules nested src to-folder dangling empty target a.log
             echo other > absolute.txt; rm absolute; mkdir absolute; echo x > absolute/x; echo '#!' > bin/run; chmod 644 bin/run
             rm to-file; ln -s elsewhere to-file; mkdir -p made/by/it; echo y > made/by/it/y; rm -r module; echo z > module",
        );
    });
    assert_eq!(sealed, SealOutcome::Changed);
    let broken = ground.seen();
    let restored = ground.undo(&checkpoints);
    assert_eq!(restored.skipped, []);
    same(&before, &ground.seen());
    // The restore itself can be undone.
    let restored = ground.back(
        &checkpoints,
        &RestorePoint::Before(restored.number, Vec::new()),
        false,
    );
    assert_eq!(restored.skipped, []);
    same(&broken, &ground.seen());
    ground.undo(&checkpoints);
    same(&before, &ground.seen());
    ground.sh("git fsck --strict && git status --porcelain && git -C nested log --oneline v1 && git -C module status");
}

#[test]
fn taking_a_checkpoint_changes_nothing() {
    let ground = Ground::new();
    repository(&ground);
    let status = |ground: &Ground| {
        let mut git = Command::new("git");
        git.args([
            "--no-optional-locks",
            "status",
            "--porcelain=v2",
            "--ignored",
            "--branch",
        ]);
        git.current_dir(ground.work.path()).output().unwrap().stdout
    };
    let times = |ground: &Ground| -> Vec<_> {
        let all = ground.seen().into_keys();
        all.map(|path| fs::symlink_metadata(ground.at(path)).unwrap())
            .map(|found| (found.mtime_nsec(), found.ctime_nsec(), found.nlink()))
            .collect()
    };
    let before = (ground.seen(), times(&ground), status(&ground));
    let checkpoints = ground.checkpoints();
    for _ in 0..3 {
        assert_eq!(ground.call(&checkpoints, || {}), SealOutcome::Unchanged);
    }
    checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap_err();
    same(&before.0, &ground.seen());
    assert_eq!((before.1, before.2), (times(&ground), status(&ground)));
    assert!(
        checkpoints.list_checkpoints(None).unwrap().is_empty(),
        "calls that change nothing leave no checkpoint"
    );
    assert_eq!(fs::metadata(ground.store()).unwrap().mode() & 0o777, 0o700);
    for (path, (_, mode, _)) in seen(&ground.store()) {
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn a_scoped_checkpoint_covers_only_its_files() {
    let ground = Ground::new();
    ground.put("a", "old\n");
    ground.put("b", "mine\n");
    let checkpoints = ground.checkpoints();
    let before = ground.seen();
    ground.scoped(&checkpoints, &ground.files(&["a", "new/er/file"]), || {
        ground.put("a", "new\n");
        ground.put("new/er/file", "x\n");
        // Somebody else changes a file meanwhile.
        ground.put("b", "mine too\n");
    });
    let changed = checkpoints
        .list_differences("task", &RestorePoint::Start)
        .unwrap();
    let paths: Vec<_> = changed
        .paths
        .iter()
        .map(|difference| difference.path.to_str().unwrap())
        .collect();
    assert_eq!(paths, ["a", "new", "new/er", "new/er/file"]);
    let diff = checkpoints.render_diff(&changed.paths).unwrap();
    assert_eq!(
        diff,
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\nnew: new, a folder\nnew/er: new, a folder\n\
         --- /dev/null\n+++ b/new/er/file\n@@ -0,0 +1 @@\n+x\n"
    );
    assert_eq!(ground.undo(&checkpoints).skipped, []);
    ground.put("b", "mine\n");
    same(&before, &ground.seen());
    assert!(matches!(
        checkpoints.plan_restore("task", &RestorePoint::Last(1)),
        Err(CheckpointError::NothingToUndo { .. })
    ));
}

#[test]
fn undos_can_be_repeated_and_undone() {
    let ground = Ground::new();
    let checkpoints = ground.checkpoints();
    let mut states = vec![ground.seen()];
    for number in 0..5 {
        ground.scoped(&checkpoints, &ground.files(&["f"]), || {
            ground.put("f", format!("{number}\n"))
        });
        states.push(ground.seen());
    }
    assert_eq!(checkpoints.active_calls("task").unwrap(), [1, 2, 3, 4, 5]);
    ground.undo(&checkpoints);
    same(&states[4], &ground.seen());
    ground.undo(&checkpoints);
    same(&states[3], &ground.seen());
    assert_eq!(checkpoints.active_calls("task").unwrap(), [1, 2, 3]);
    ground.back(&checkpoints, &RestorePoint::Last(2), false);
    same(&states[1], &ground.seen());
    // Before the second undo, which has the number 7.
    ground.back(&checkpoints, &RestorePoint::Before(7, Vec::new()), false);
    same(&states[4], &ground.seen());
    assert_eq!(checkpoints.active_calls("task").unwrap(), [1, 2, 3, 4]);
    ground.scoped(&checkpoints, &ground.files(&["f"]), || {
        ground.put("f", "on\n")
    });
    ground.back(&checkpoints, &RestorePoint::Start, false);
    same(&states[0], &ground.seen());
    let few = checkpoints
        .plan_restore("task", &RestorePoint::Before(99, Vec::new()))
        .unwrap_err();
    assert_eq!(
        few.to_string(),
        "the task task has no changing call 99; its last one is 11"
    );
}

#[test]
fn changes_by_others_are_skipped() {
    let ground = Ground::new();
    for name in ["a", "b", "c", "d"] {
        ground.put(name, "old\n");
    }
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || {
        ground.sh("for f in a b c d; do echo task > $f; done; mkdir made; echo x > made/x")
    });
    ground.put("a", "user\n");
    fs::remove_file(ground.at("b")).unwrap();
    // Another task names its file, so the change is known to be its own.
    let stop = AtomicBool::new(false);
    let id = checkpoints
        .take_snapshot(ground.mark("other"), &ground.files(&["c"]), &stop)
        .unwrap();
    ground.put("c", "other\n");
    checkpoints
        .seal_checkpoint(id, 0, &CallWrites::All, &stop)
        .unwrap();
    ground.put("made/users", "keep\n");
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap();
    let hindered: Vec<_> = plan
        .items
        .iter()
        .filter(|item| item.conflict.is_some())
        .map(|item| item.path.to_str().unwrap())
        .collect();
    assert_eq!(hindered, ["a", "b", "c"]);
    assert!(
        plan.items[..3]
            .iter()
            .all(|item| item.conflict == Some(RestoreConflict::ChangedSince))
    );
    let restored = ground.undo(&checkpoints);
    let left: Vec<_> = restored
        .skipped
        .iter()
        .map(|(path, why)| format!("{}: {why}", path.display()))
        .collect();
    let since = "somebody else has changed it since";
    assert_eq!(
        left,
        [
            "made: the folder is not empty".to_owned(),
            format!("a: {since}"),
            format!("b: {since}"),
            format!("c: {since}")
        ]
    );
    assert_eq!(fs::read_to_string(ground.at("a")).unwrap(), "user\n");
    assert_eq!(fs::read_to_string(ground.at("d")).unwrap(), "old\n");
    assert_eq!(
        fs::read_to_string(ground.at("made/users")).unwrap(),
        "keep\n"
    );
    assert!(!ground.at("made/x").exists());
    // After a forced restore, the user's content is in a checkpoint.
    let number = ground
        .back(&checkpoints, &RestorePoint::Before(1, Vec::new()), true)
        .number;
    assert_eq!(fs::read_to_string(ground.at("a")).unwrap(), "old\n");
    assert_eq!(fs::read_to_string(ground.at("b")).unwrap(), "old\n");
    ground.back(
        &checkpoints,
        &RestorePoint::Before(number, Vec::new()),
        false,
    );
    assert_eq!(fs::read_to_string(ground.at("a")).unwrap(), "user\n");
}

/// Of two tasks whose calls run at the same moment, neither undoes what the other may have changed.
#[test]
fn calls_of_two_tasks_that_overlap_undo_nothing_of_each_other() {
    let ground = Ground::new();
    ["mine", "theirs", "edited", "later"]
        .iter()
        .for_each(|name| ground.put(name, "old\n"));
    let checkpoints = ground.checkpoints();
    let stop = AtomicBool::new(false);
    let take = |task: &str, scope: &SnapshotScope| {
        checkpoints
            .take_snapshot(ground.mark(task), scope, &stop)
            .unwrap()
    };
    let seal = |id: u64| {
        _ = checkpoints
            .seal_checkpoint(id, 0, &CallWrites::All, &stop)
            .unwrap()
    };
    // An edit of another task begins before the command of this one and ends within it; a command
    // of a third task runs beside both.
    let edit = take("editor", &ground.files(&["edited"]));
    let own = take("task", &SnapshotScope::All);
    ground.put("mine", "new\n");
    ground.put("edited", "new\n");
    seal(edit);
    let beside = take("builder", &SnapshotScope::All);
    ground.put("theirs", "new\n");
    seal(own);
    seal(beside);
    let later = take("builder", &SnapshotScope::All);
    ground.put("later", "new\n");
    seal(later);
    let left = |task: &str, calls: usize| -> Vec<String> {
        let plan = checkpoints
            .plan_restore(task, &RestorePoint::Last(calls))
            .unwrap();
        let item = |item: &sabir_checkpoint::RestoreItem| match &item.conflict {
            None => format!("{}: undone", item.path.display()),
            Some(conflict) => format!("{}: {conflict}", item.path.display()),
        };
        plan.items.iter().map(item).collect()
    };
    let shared = |name: &str, task: &str| {
        format!(
            "{name}: a call of the task {task} ran at the same moment, and may have made this change"
        )
    };
    assert_eq!(
        left("task", 1),
        [
            "edited: the task editor has changed it since".to_owned(),
            "mine: undone".to_owned(),
            shared("theirs", "builder"),
        ]
    );
    assert_eq!(
        left("builder", 2),
        ["later: undone".to_owned(), shared("theirs", "task")]
    );
    assert_eq!(left("editor", 1), ["edited: undone"]);
    let restored = ground.undo(&checkpoints);
    assert_eq!((restored.restored, restored.skipped.len()), (1, 2));
    let plan = checkpoints
        .plan_restore("builder", &RestorePoint::Last(2))
        .unwrap();
    assert!(plan.items.iter().all(|item| item.is_restored(true)));
}

#[test]
fn no_file_is_restored_below_a_skipped_path() {
    let ground = Ground::new();
    ground.put("src/a", "a\n");
    ground.put("src/deep/b", "b\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.sh("rm -rf src"));
    ground.put("src", "my own\n");
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap();
    let told: Vec<_> = plan
        .items
        .iter()
        .map(|item| {
            format!(
                "{}: {}",
                item.path.display(),
                item.conflict.as_ref().unwrap()
            )
        })
        .collect();
    let under = "src is left alone, and is not a folder";
    assert_eq!(
        told,
        [
            "src: somebody else has changed it since".to_owned(),
            format!("src/a: {under}"),
            format!("src/deep: {under}"),
            format!("src/deep/b: {under}"),
        ]
    );
    assert_eq!(ground.undo(&checkpoints).restored, 0);
    assert_eq!(fs::read_to_string(ground.at("src")).unwrap(), "my own\n");
    // With force both are restored.
    let restored = ground.back(&checkpoints, &RestorePoint::Before(1, Vec::new()), true);
    assert_eq!((restored.restored, restored.skipped), (4, Vec::new()));
    assert_eq!(fs::read_to_string(ground.at("src/deep/b")).unwrap(), "b\n");
}

#[test]
fn an_unstorable_file_of_the_user_is_not_overwritten() {
    let ground = Ground::with(StoreLimits {
        file_bytes: 1000,
        ..StoreLimits::default()
    });
    ground.put("f", "old\n");
    ground.put("g", "old\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || {
        ground.put("f", "task\n");
        ground.put("g", vec![b'x'; 2000]);
    });
    // The user's file is too large to be restored; the other one is the task's own.
    ground.put("f", vec![b'u'; 2000]);
    let restored = ground.back(&checkpoints, &RestorePoint::Last(1), true);
    let why = "the present content could not be kept: larger than a file that is kept";
    assert_eq!(restored.skipped, [(PathBuf::from("f"), why.to_owned())]);
    assert_eq!(fs::read(ground.at("f")).unwrap(), vec![b'u'; 2000]);
    assert_eq!(fs::read_to_string(ground.at("g")).unwrap(), "old\n");
}

#[test]
fn an_edit_between_two_calls_counts_as_a_users_change() {
    let ground = Ground::new();
    ground.put("f", "0\n");
    let checkpoints = ground.checkpoints();
    ground.scoped(&checkpoints, &ground.files(&["f"]), || {
        ground.put("f", "1\n")
    });
    ground.put("f", "user\n");
    ground.scoped(&checkpoints, &ground.files(&["f"]), || {
        ground.put("f", "2\n")
    });
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(2))
        .unwrap();
    assert_eq!(plan.items[0].conflict, Some(RestoreConflict::ChangedSince));
    // It is restored only to the user's own version.
    ground.undo(&checkpoints);
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "user\n");
}

#[test]
fn a_restored_path_no_longer_belongs_to_the_task() {
    let ground = Ground::new();
    ground.put("f", "0\n");
    ground.put("g", "0\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.put("g", "1\n"));
    ground.call(&checkpoints, || fs::remove_file(ground.at("f")).unwrap());
    ground.undo(&checkpoints);
    ground.put("f", "user\n");
    let restored = ground.undo(&checkpoints);
    assert_eq!((restored.restored, restored.skipped.len()), (1, 0));
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "user\n");
    // A user who names the path can restore it by force.
    let goal = RestorePoint::Before(1, vec!["f".into()]);
    assert_eq!(
        checkpoints.plan_restore("task", &goal).unwrap().items[0].conflict,
        Some(RestoreConflict::ChangedSince)
    );
    ground.back(&checkpoints, &goal, true);
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "0\n");
}

#[test]
fn single_paths_are_restored() {
    let ground = Ground::new();
    ground.sh(
        "mkdir -p src/in && echo a > src/a && echo b > src/in/b && echo c > c && echo free > free",
    );
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || {
        ground.sh("echo A > src/a; rm -r src/in; echo C > c")
    });
    ground.back(
        &checkpoints,
        &RestorePoint::Before(1, vec!["src".into()]),
        false,
    );
    assert_eq!(fs::read_to_string(ground.at("src/a")).unwrap(), "a\n");
    assert_eq!(fs::read_to_string(ground.at("src/in/b")).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(ground.at("c")).unwrap(), "C\n");
    // A path that no call touched was seen by the scan of the whole workspace, and counts as the
    // user's.
    fs::remove_file(ground.at("free")).unwrap();
    let goal = RestorePoint::Before(1, vec!["free".into()]);
    let plan = checkpoints.plan_restore("task", &goal).unwrap();
    assert_eq!(plan.items[0].conflict, Some(RestoreConflict::ChangedSince));
    ground.back(&checkpoints, &goal, true);
    assert_eq!(fs::read_to_string(ground.at("free")).unwrap(), "free\n");
    let unseen = checkpoints
        .plan_restore("task", &RestorePoint::Before(1, vec!["nothing".into()]))
        .unwrap_err();
    assert!(
        matches!(unseen, CheckpointError::UnknownPath { .. }),
        "{unseen}"
    );
}

#[test]
fn files_over_a_limit_are_skipped_and_reported() {
    let caps = StoreLimits {
        file_bytes: 1000,
        ignored_entries: 5,
        ..StoreLimits::default()
    };
    let ground = Ground::with(caps);
    ground.put("large", vec![b'x'; 1001]);
    ground.put(".gitignore", "node_modules/\ndist/\n*.tmp\n!keep/\n");
    (0..6).for_each(|number| ground.put(format!("node_modules/{number}"), "x"));
    (0..3).for_each(|number| ground.put(format!("dist/{number}"), "x"));
    ground.put("secret.tmp", "kept too\n");
    ground.sh("mkfifo pipe");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || {
        ground.sh("rm -rf node_modules dist large secret.tmp pipe; echo x > other")
    });
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap();
    let hindered: Vec<_> = plan
        .items
        .iter()
        .filter_map(|item| Some((item.path.to_str().unwrap(), item.conflict.clone()?)))
        .collect();
    assert_eq!(
        hindered,
        [
            ("large", RestoreConflict::Omitted(OmitReason::TooLarge)),
            (
                "node_modules",
                RestoreConflict::Omitted(OmitReason::Ignored)
            ),
            ("pipe", RestoreConflict::Special),
        ]
    );
    let restored = ground.undo(&checkpoints);
    assert_eq!(restored.skipped.len(), 3);
    assert_eq!(
        fs::read_to_string(ground.at("secret.tmp")).unwrap(),
        "kept too\n"
    );
    assert!(
        ground.at("dist/2").exists()
            && !ground.at("other").exists()
            && !ground.at("large").exists()
    );
}

#[test]
fn unstorable_files_are_never_touched() {
    let caps = StoreLimits {
        file_bytes: 1000,
        ignored_entries: 5,
        ..StoreLimits::default()
    };
    let ground = Ground::with(caps);
    ground.put("large", vec![b'x'; 1001]);
    ground.put(".gitignore", "node_modules/\n");
    (0..6).for_each(|number| ground.put(format!("node_modules/{number}"), "x"));
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || {
        ground.put("node_modules/0", "changed");
        ground.put("small", "x");
    });
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap();
    assert_eq!(plan.items.len(), 1, "{:?}", plan.items);
    // A call that fills an ignored folder beyond its limit: content that could not be restored is
    // not removed.
    ground.sh("rm -r node_modules");
    ground.call(&checkpoints, || {
        (0..9).for_each(|number| ground.put(format!("node_modules/{number}"), "x"))
    });
    assert_eq!(ground.undo(&checkpoints).skipped.len(), 1);
    assert!(ground.at("node_modules/8").exists());
}

#[test]
fn five_hundred_checkpoints_stay_under_the_cap() {
    let cap = 1 << 20;
    let caps = StoreLimits {
        store_bytes: cap,
        file_bytes: 64 << 10,
        ..StoreLimits::default()
    };
    let ground = Ground::with(caps);
    (0..20)
        .for_each(|number| ground.put(format!("src/{number}"), format!("{number}\n").repeat(100)));
    let checkpoints = ground.checkpoints();
    let size = || -> u64 {
        seen(&ground.store())
            .values()
            .map(|(_, _, content)| content.len() as u64)
            .sum()
    };
    let mut most = 0;
    let mut written = 0;
    for number in 0_u32..500 {
        let noise: Vec<u8> = (0_u32..10_000)
            .map(|at| {
                at.wrapping_mul(number + 7)
                    .wrapping_mul(2_654_435_761)
                    .to_le_bytes()[3]
            })
            .collect();
        written += noise.len();
        let act = || ground.put(format!("src/{}", number % 20), &noise);
        if number.is_multiple_of(5) {
            ground.call(&checkpoints, act);
        } else {
            ground.scoped(
                &checkpoints,
                &ground.files(&[&format!("src/{}", number % 20)]),
                act,
            );
        }
        most = most.max(size());
    }
    assert!(written as u64 > 4 * cap, "{written} bytes were written");
    assert!(most <= cap, "{most} bytes were taken");
    let list = checkpoints.list_checkpoints(Some("task")).unwrap();
    assert!(
        list.len() >= 10 && list.len() < 400,
        "{} are left",
        list.len()
    );
    assert_eq!(list.last().unwrap().number, 500);
    assert_eq!(
        checkpoints.pruned_through("task").unwrap(),
        Some(list[0].number - 1)
    );
    let gone = checkpoints
        .plan_restore("task", &RestorePoint::Before(1, Vec::new()))
        .unwrap_err();
    assert!(matches!(gone, CheckpointError::Pruned { .. }), "{gone}");
    // The other checkpoints work, also in a process that opens the store later.
    let fresh = ground.checkpoints();
    let before = ground.seen();
    let back = ground.back(&fresh, &RestorePoint::Last(list.len()), false);
    assert_eq!(back.skipped, []);
    assert!(back.restored >= 10, "{back:?}");
    ground.back(
        &fresh,
        &RestorePoint::Before(back.number, Vec::new()),
        false,
    );
    same(&before, &ground.seen());
}

#[test]
fn a_restore_does_not_follow_links() {
    let ground = Ground::new();
    let outside = TempDir::new().unwrap();
    ground.put("folder/f", "old\n");
    ground.put("g", "old\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.sh("rm -r folder g"));
    fs::write(outside.path().join("g"), "outside\n").unwrap();
    symlink(outside.path(), ground.at("folder")).unwrap();
    symlink(outside.path().join("g"), ground.at("g")).unwrap();
    let restored = ground.back(&checkpoints, &RestorePoint::Last(1), false);
    assert_eq!(restored.restored, 0);
    let forced = ground.back(&checkpoints, &RestorePoint::Before(1, Vec::new()), true);
    assert_eq!(forced.skipped, []);
    assert_eq!(seen(outside.path()).len(), 1, "nothing came there");
    assert_eq!(
        fs::read_to_string(outside.path().join("g")).unwrap(),
        "outside\n"
    );
    assert_eq!(fs::read_to_string(ground.at("g")).unwrap(), "old\n");
    assert!(!ground.at("folder").is_symlink());
    assert_eq!(fs::read_to_string(ground.at("folder/f")).unwrap(), "old\n");
}

#[test]
fn a_stale_plan_is_refused() {
    let ground = Ground::new();
    ground.put("f", "old\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.put("f", "new\n"));
    let plan = checkpoints
        .plan_restore("task", &RestorePoint::Last(1))
        .unwrap();
    ground.put("f", "user\n");
    let refused = checkpoints
        .restore(&plan, &RestorePoint::Last(1), ground.mark("task"), true)
        .unwrap_err();
    assert!(matches!(refused, CheckpointError::Stale), "{refused}");
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "user\n");
}

/// Around a call of unknown extent, a change belongs to the call only if it is known to have written the path.
#[test]
fn changes_that_a_call_is_not_known_to_have_made_are_left_alone() {
    let ground = Ground::new();
    ground.put("a", "old\n");
    let checkpoints = ground.checkpoints();
    let workspace = Workspace::open(ground.work.path()).unwrap();
    let stop = AtomicBool::new(false);
    // No command wrote anything.
    let nothing = CallWrites::Observed(workspace.watch_commands().observed_writes());
    let cases = [
        (nothing, RestoreConflict::ChangedMeanwhile, true),
        (CallWrites::Unknown, RestoreConflict::UnobservedCall, false),
    ];
    for (writes, conflict, holds_for_names) in cases {
        let id = checkpoints
            .take_snapshot(ground.mark("task"), &SnapshotScope::All, &stop)
            .unwrap();
        ground.put("a", format!("{conflict:?}\n"));
        checkpoints.seal_checkpoint(id, 0, &writes, &stop).unwrap();
        // Read from the disk again.
        let checkpoints = ground.checkpoints();
        let last = RestorePoint::Last(1);
        let plan = checkpoints.plan_restore("task", &last).unwrap();
        assert_eq!(plan.items[0].conflict, Some(conflict.clone()));
        assert!(plan.items[0].is_unattributed);
        let named = RestorePoint::Before(plan.to, vec!["a".into()]);
        let by_name = checkpoints.plan_restore("task", &named).unwrap();
        assert_eq!(by_name.items[0].conflict.is_some(), holds_for_names);
        let differences = checkpoints.list_differences("task", &last).unwrap();
        assert_eq!(
            differences.paths.is_empty(),
            holds_for_names,
            "{conflict:?}"
        );
        ground.back(&checkpoints, &last, true);
        assert_eq!(fs::read_to_string(ground.at("a")).unwrap(), "old\n");
    }
}

#[test]
fn cancelled_and_damaged_snapshots_are_errors() {
    let ground = Ground::new();
    ground.put("f", "old\n");
    ground.put("big", vec![b'b'; 300 << 10]);
    let checkpoints = ground.checkpoints();
    let cancelled = checkpoints
        .take_snapshot(
            ground.mark("task"),
            &SnapshotScope::All,
            &AtomicBool::new(true),
        )
        .unwrap_err();
    assert!(
        matches!(cancelled, CheckpointError::Cancelled),
        "{cancelled}"
    );
    assert!(checkpoints.list_checkpoints(None).unwrap().is_empty());
    ground.call(&checkpoints, || ground.sh("rm big; echo new > f"));
    // If the log is cut inside the last record, everything before it is there.
    ground.call(&checkpoints, || ground.put("f", "newer\n"));
    let log = ground.store().join("log");
    let bytes = fs::read(&log).unwrap();
    for cut in [1, 20, 45, 60, 150] {
        fs::write(&log, &bytes[..bytes.len() - cut]).unwrap();
        let checkpoints = ground.checkpoints();
        assert!(
            !checkpoints.list_checkpoints(None).unwrap().is_empty(),
            "cut by {cut}"
        );
    }
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.put("f", "newest\n"));
    // The cut has also taken the record of which changes are those of others, so they are not
    // undone without force.
    assert_eq!(
        ground
            .back(&checkpoints, &RestorePoint::Start, true)
            .skipped,
        []
    );
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "old\n");
    assert_eq!(fs::read(ground.at("big")).unwrap(), vec![b'b'; 300 << 10]);
    // A damaged pack is noticed before anything is written.
    ground.call(&checkpoints, || ground.sh("rm big"));
    for entry in fs::read_dir(ground.store().join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let restored = ground.undo(&ground.checkpoints());
    assert!(
        restored.skipped.len() == 1 && restored.skipped[0].1.contains("damaged"),
        "{restored:?}"
    );
    assert!(!ground.at("big").exists());
}

/// Starts a helper that takes checkpoints around its changes, restores now and then, and prunes
/// all the time.
fn worker(ground: &Ground, task: &str, rounds: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_checkpoint-probe"));
    command
        .arg(ground.work.path())
        .arg(ground.store())
        .args([task, &rounds.to_string()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Checks that every file repeats one line: old or new, and no mixture. Returns the number of
/// files.
fn whole(ground: &Ground) -> usize {
    let files: Vec<_> = ground
        .seen()
        .into_iter()
        .filter(|(path, (kind, ..))| *kind == 'f' && !is_temp(path))
        .collect();
    for (path, (_, _, content)) in &files {
        let text = String::from_utf8(content.clone()).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(
            text.lines().count() == 1500 && text.lines().all(|line| line == first),
            "{}",
            path.display()
        );
    }
    files.len()
}

fn is_temp(path: &Path) -> bool {
    path.file_name()
        .unwrap()
        .to_string_lossy()
        .starts_with(".sabir-tmp-")
}

/// Checks that everything that is listed can be read.
fn usable(ground: &Ground, task: &str) -> Option<u32> {
    let checkpoints = ground.checkpoints();
    let list = checkpoints.list_checkpoints(Some(task)).unwrap();
    for checkpoint in &list {
        let goal = RestorePoint::Before(checkpoint.number, Vec::new());
        checkpoints.plan_restore(task, &goal).unwrap();
        checkpoints
            .render_diff(&checkpoints.list_differences(task, &goal).unwrap().paths)
            .unwrap();
    }
    list.first().map(|first| first.number)
}

/// A restore first seals what a killed process left. The room that this needs must not be taken
/// from the checkpoints that are about to be restored.
#[test]
fn a_restore_keeps_its_goal_while_it_seals_leftovers() {
    let ground = Ground::with(StoreLimits {
        store_bytes: 1 << 20,
        ..StoreLimits::default()
    });
    let noise = |seed: u64, length: usize| -> Vec<u8> {
        let mut state = seed;
        std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(length)
        .collect()
    };
    let killed = ground.checkpoints();
    // The content stays below a quarter of the limit, which is what a checkpoint may hold.
    for seed in 1..=3 {
        ground.call(&killed, || ground.put("file", noise(seed, 200 << 10)));
    }
    // More than three quarters of the limit from here on, and no seal.
    ground.put("file", noise(4, 200 << 10));
    killed
        .take_snapshot(
            ground.mark("task"),
            &SnapshotScope::All,
            &AtomicBool::new(false),
        )
        .unwrap();
    drop(killed);

    let checkpoints = ground.checkpoints();
    let outcome = ground.back(&checkpoints, &RestorePoint::Before(1, Vec::new()), true);
    assert_eq!(outcome.skipped, []);
    assert!(ground.seen().is_empty());
}

#[test]
fn a_kill_at_some_moments_loses_no_checkpoint() {
    kill_workers(10);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_kill_at_any_moment_loses_no_checkpoint() {
    kill_workers(60);
}

/// Kills a process that takes checkpoints this many times, and until one checkpoint exists; then restores the first one.
fn kill_workers(rounds: u32) {
    let ground = Ground::with(StoreLimits {
        store_bytes: 1 << 20,
        ..StoreLimits::default()
    });
    let mut seed = 0x5ab1_2026_u64;
    let mut killed = 0;
    let mut started = 0;
    // On a busy machine the first ones may die before they have begun.
    while started < rounds
        || (started < rounds * 20
            && ground
                .checkpoints()
                .list_checkpoints(Some("task"))
                .unwrap()
                .is_empty())
    {
        started += 1;
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut child = worker(&ground, "task", 100_000).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5 + (seed >> 33) % 120));
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        whole(&ground);
        let list = ground.checkpoints().list_checkpoints(Some("task")).unwrap();
        for checkpoint in list.first().into_iter().chain(list.last()) {
            ground
                .checkpoints()
                .plan_restore("task", &RestorePoint::Before(checkpoint.number, Vec::new()))
                .unwrap();
        }
    }
    assert_eq!(killed, started, "the helper ended by itself");
    let first = usable(&ground, "task").unwrap();
    let before = ground.seen();
    let checkpoints = ground.checkpoints();
    let back = ground.back(&checkpoints, &RestorePoint::Before(first, Vec::new()), true);
    assert_eq!(back.skipped, []);
    whole(&ground);
    assert_eq!(
        ground
            .back(
                &checkpoints,
                &RestorePoint::Before(back.number, Vec::new()),
                false
            )
            .skipped,
        []
    );
    let settled = |seen: Seen| {
        seen.into_iter()
            .filter(|(path, _)| !is_temp(path))
            .collect::<Seen>()
    };
    same(&settled(before), &settled(ground.seen()));
}

#[test]
fn two_processes_share_a_store() {
    let ground = Ground::with(StoreLimits {
        store_bytes: 1 << 20,
        ..StoreLimits::default()
    });
    let workers = ["one", "two"].map(|task| worker(&ground, task, 60).spawn().unwrap());
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    whole(&ground);
    // Calls, and a restore after every tenth if it was not pruned. The store is small, so the
    // faster process may have pruned everything of the slower one.
    for task in ["one", "two"] {
        let kept = usable(&ground, task);
        let list = ground.checkpoints().list_checkpoints(Some(task)).unwrap();
        let pruned = ground.checkpoints().pruned_through(task).unwrap();
        assert_eq!(kept, list.first().map(|first| first.number));
        let last = list.last().map(|last| last.number).or(pruned).unwrap();
        assert!((60..=66).contains(&last), "{task}: {last}");
    }
    assert!(
        !ground
            .checkpoints()
            .list_checkpoints(None)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_full_disk_fails_a_snapshot_and_harms_none() {
    let ground = Ground::new();
    ground.put("f", "old\n");
    let checkpoints = ground.checkpoints();
    ground.call(&checkpoints, || ground.put("f", "new\n"));
    // A file system without space: a folder is in the place of the next pack.
    ground.put("large", vec![b'x'; 1 << 20]);
    fs::create_dir(ground.store().join("packs/00000001.tmp")).unwrap();
    let refused = checkpoints
        .take_snapshot(
            ground.mark("task"),
            &SnapshotScope::All,
            &AtomicBool::new(false),
        )
        .unwrap_err();
    assert!(matches!(refused, CheckpointError::Io { .. }), "{refused}");
    assert_eq!(checkpoints.list_checkpoints(None).unwrap().len(), 1);
    assert_eq!(ground.undo(&checkpoints).skipped, []);
    assert_eq!(fs::read_to_string(ground.at("f")).unwrap(), "old\n");
}

#[test]
fn the_stores_of_all_folders_are_bounded() {
    let data = TempDir::new().unwrap();
    let stores: Vec<PathBuf> = (0..4)
        .map(|number| data.path().join(number.to_string()))
        .collect();
    let ground = Ground::new();
    for (at, store) in stores.iter().enumerate() {
        let workspace = Arc::new(Workspace::open(ground.work.path()).unwrap());
        let checkpoints = CheckpointStore::new(store.clone(), workspace, ground.caps, Vec::new());
        ground.put("f", vec![b'x'; 500_000]);
        ground.call(&checkpoints, || ground.put("f", "new\n"));
        let time =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + at as u64);
        fs::File::open(store.join("log"))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    let most = 1_200_000;
    assert_eq!(
        prune_stores(data.path(), &stores[0], most).unwrap(),
        [stores[1].clone(), stores[2].clone()]
    );
    assert!(stores[0].exists() && stores[3].exists());
    assert!(
        prune_stores(data.path(), &stores[0], most)
            .unwrap()
            .is_empty()
    );
    // Only stores are removed.
    fs::create_dir(data.path().join("mine")).unwrap();
    prune_stores(data.path(), &stores[0], 0).unwrap();
    assert!(data.path().join("mine").exists() && stores[0].exists() && !stores[3].exists());
    assert!(
        prune_stores(&data.path().join("missing"), &stores[0], 0)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_new_file_over_the_limit_is_undone_unless_changed() {
    let caps = StoreLimits {
        entries: 10,
        ..StoreLimits::default()
    };
    for changed in [false, true] {
        let ground = Ground::with(caps);
        (0..10).for_each(|number| ground.put(format!("f{number}"), "x"));
        let checkpoints = ground.checkpoints();
        ground.call(&checkpoints, || ground.put("new", "by the call"));
        if changed {
            ground.put("new", "by the user");
        }
        let plan = checkpoints
            .plan_restore("task", &RestorePoint::Last(1))
            .unwrap();
        let found: Vec<_> = plan
            .items
            .iter()
            .map(|item| (item.path.to_str().unwrap(), item.conflict.clone()))
            .collect();
        let conflict = changed.then_some(RestoreConflict::ChangedSince);
        assert_eq!(found, [("new", conflict)]);
        assert!(plan.whole);
        let restored = ground.undo(&checkpoints);
        assert_eq!(restored.skipped.len(), usize::from(changed));
        assert_eq!(ground.at("new").exists(), changed);
    }
}
