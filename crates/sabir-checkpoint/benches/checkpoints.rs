//! Measures the cost of a checkpoint, compared to a plain listing of the same tree and a synced write of
//! the same file.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench that fails by panicking says so"
)]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use divan::{Bencher, black_box};
use sabir_checkpoint::{CallWrites, CheckpointCall, CheckpointStore, SnapshotScope, StoreLimits};
use sabir_workspace::{ListOptions, WorkPath, Workspace, WritePrecondition};
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// A tree of small files, a hundred in a folder, with a store beside it.
struct Ground {
    _folders: [TempDir; 2],
    workspace: Arc<Workspace>,
    checkpoints: CheckpointStore,
}

impl Ground {
    fn new(files: usize) -> Self {
        let work = TempDir::new().unwrap();
        let data = TempDir::new().unwrap();
        for number in 0..files {
            let folder = work
                .path()
                .join(format!("{}/{}", number / 1000, number / 100));
            fs::create_dir_all(&folder).unwrap();
            fs::write(
                folder.join(number.to_string()),
                format!("{number}\n").repeat(100),
            )
            .unwrap();
        }
        let workspace = Arc::new(Workspace::open(work.path()).unwrap());
        let checkpoints = CheckpointStore::new(
            data.path().into(),
            Arc::clone(&workspace),
            StoreLimits::default(),
            Vec::new(),
        );
        Self {
            _folders: [work, data],
            workspace,
            checkpoints,
        }
    }

    fn call(&self, scope: &SnapshotScope, act: impl FnOnce()) {
        // Later than any file, so that all files count as quiet.
        let mark = CheckpointCall {
            task: "t".to_owned(),
            time_ms: 4_000_000_000_000,
            ..CheckpointCall::default()
        };
        let stop = AtomicBool::new(false);
        let id = self.checkpoints.take_snapshot(mark, scope, &stop).unwrap();
        act();
        self.checkpoints
            .seal_checkpoint(id, 4_000_000_000_000, &CallWrites::All, &stop)
            .unwrap();
    }

    fn write(&self, number: u64) -> WorkPath {
        let path = self.workspace.parse_path("0/0/0").unwrap();
        self.workspace
            .write_file(
                &path,
                format!("{number}\n").repeat(100).as_bytes(),
                WritePrecondition::Any,
            )
            .unwrap();
        path
    }
}

#[divan::bench(args = [1_000, 50_000], sample_count = 10)]
fn listing(bencher: Bencher<'_, '_>, files: usize) {
    let ground = Ground::new(files);
    let options = ListOptions {
        recursive: true,
        max_entries: usize::MAX,
        ..ListOptions::default()
    };
    bencher.bench_local(|| {
        black_box(
            ground
                .workspace
                .list_folder(&WorkPath::root(), &options)
                .unwrap(),
        )
    });
}

#[divan::bench(args = [1_000, 50_000], sample_count = 1)]
fn first_command(bencher: Bencher<'_, '_>, files: usize) {
    let ground = Ground::new(files);
    bencher.bench_local(|| ground.call(&SnapshotScope::All, || {}));
}

#[divan::bench(args = [1_000, 50_000], sample_count = 10)]
fn command(bencher: Bencher<'_, '_>, files: usize) {
    let ground = Ground::new(files);
    ground.call(&SnapshotScope::All, || {});
    bencher.bench_local(|| ground.call(&SnapshotScope::All, || {}));
}

#[divan::bench(sample_count = 50)]
fn write(bencher: Bencher<'_, '_>) {
    let ground = Ground::new(1000);
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        ground.write(number)
    });
}

#[divan::bench(args = [1_000, 50_000], sample_count = 50)]
fn write_with_checkpoint(bencher: Bencher<'_, '_>, files: usize) {
    let ground = Ground::new(files);
    let scope = SnapshotScope::Files(vec![ground.write(0)]);
    let mut number = 0;
    bencher.bench_local(|| {
        number += 1;
        ground.call(&scope, || _ = ground.write(number));
    });
}
