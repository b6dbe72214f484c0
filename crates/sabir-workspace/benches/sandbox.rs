//! Measures the cost of a sandbox: a command that does nothing, in each level and without a sandbox.
//!
//! The median of a row minus that of `off` is what the level adds; it should stay below 3 ms for
//! level 1 and 15 ms for level 2.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use sabir_workspace::{CommandExit, Sandbox, ShellCommand, Workspace, supervise};
use tokio::runtime::Runtime;

fn main() {
    // The benchmark is its own supervisor, as the binary is.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == supervise::ARGUMENT)
    {
        let _ = supervise::main(arguments);
        return;
    }
    divan::main();
}

#[divan::bench(args = ["off", "1", "1 reading", "2", "2 reading"], sample_count = 200, sample_size = 1)]
fn command(bencher: divan::Bencher<'_, '_>, level: &str) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let helper = std::env::current_exe().unwrap();
    bencher.bench_local(|| {
        let (level, rest) = level.split_at(level.find(' ').unwrap_or(level.len()));
        let sandbox = Sandbox::new(level.parse().unwrap())
            .hide_paths(["/root/.ssh".into(), "/root/.aws".into()]);
        let sandbox = if rest.is_empty() {
            sandbox
        } else {
            sandbox.read_only()
        };
        let command = ShellCommand::new("true", &helper)
            .env([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let outcome = runtime
            .block_on(command.sandbox(sandbox).run(&workspace, |_, _| {}))
            .unwrap();
        assert_eq!(outcome.end, CommandExit::Exited(0));
    });
}
