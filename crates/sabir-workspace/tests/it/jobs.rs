//! Tests stored outputs and background commands, with real processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sabir_workspace::{
    CommandExit, JobManager, JobState, OutputError, OutputLifetime, OutputLine, PageOptions,
    ShellCommand, Workspace,
};
use tempfile::TempDir;

use crate::Place;
use crate::commands::{block_on, command};
use crate::trees::{alive, wait_for};

/// A workspace with a folder for outputs.
struct Task {
    place: Place,
    workspace: Arc<Workspace>,
    folder: TempDir,
    jobs: JobManager,
}

impl Task {
    fn new() -> Self {
        let place = Place::new();
        let folder = TempDir::new().unwrap();
        let workspace = Arc::new(Workspace::open(place.root.path()).unwrap());
        let jobs = JobManager::new(folder.path().join("outputs"), OutputLifetime::Persistent);
        Self {
            place,
            workspace,
            folder,
            jobs,
        }
    }

    /// Resumes the same task.
    fn resumed(self) -> Self {
        drop(self.jobs);
        let jobs = JobManager::new(
            self.folder.path().join("outputs"),
            OutputLifetime::Persistent,
        );
        Self { jobs, ..self }
    }

    fn run(&self, text: &str) -> Option<u32> {
        let command = command(text).captured_bytes(10, 10);
        let ran = block_on(
            self.jobs
                .run_command(&self.workspace, command, text, |_, _| {}),
        )
        .unwrap();
        ran.kept.map(Result::unwrap)
    }

    fn start(&self, text: &str) -> u32 {
        self.begin(command(text), text).unwrap()
    }

    fn begin(&self, command: ShellCommand, text: &str) -> Result<u32, OutputError> {
        self.jobs
            .start_job(Arc::clone(&self.workspace), command, text)
    }

    fn texts(&self, number: u32, first: u64, last: u64) -> Vec<String> {
        let options = PageOptions {
            first,
            last,
            max_bytes: 1000,
            max_line_bytes: 100,
        };
        self.jobs
            .read_page(number, &options)
            .unwrap()
            .into_iter()
            .map(shown)
            .collect()
    }

    fn state(&self, number: u32) -> JobState {
        self.jobs.job_info(number).unwrap().state
    }

    fn names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("outputs")) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn shown(line: OutputLine) -> String {
    format!(
        "{}{} {}",
        line.number,
        if line.matched { ":" } else { "" },
        line.text
    )
}

fn end(state: &JobState) -> Option<CommandExit> {
    match state {
        JobState::Ended(ending) => Some(ending.end),
        _ => None,
    }
}

#[test]
fn only_output_that_does_not_fit_is_stored() {
    let task = Task::new();
    assert_eq!(task.run("seq 5"), None);
    assert_eq!(task.names(), Vec::<String>::new());
    assert_eq!(task.run("seq 20"), Some(1));
    // A short result, after a lot of output that was rewritten.
    assert_eq!(
        task.run("for i in $(seq 20000); do printf '%s %%\\r' $i; done"),
        None
    );
    assert_eq!(task.run("seq 30000"), Some(2));
    assert_eq!(task.names(), ["1.about", "1.head", "2.about", "2.head"]);
    assert_eq!(task.texts(1, 19, 99), ["19 19", "20 20"]);
    let info = task.jobs.job_info(2).unwrap();
    assert_eq!(
        (
            info.command.as_str(),
            info.lines,
            info.bytes,
            info.next_line
        ),
        ("seq 30000", 30_000, 168_894, 6)
    );
    let task = task.resumed();
    let info = task.jobs.job_info(2).unwrap();
    assert_eq!(
        (info.command.as_str(), info.lines, info.state),
        (
            "seq 30000",
            30_000,
            JobState::EndedBeforeResume("exit code 0".to_owned())
        )
    );
    assert_eq!(
        task.texts(2, 29_999, 30_000),
        ["29999 29999", "30000 30000"]
    );
    assert_eq!(task.run("seq 20"), Some(3));
}

#[test]
fn stored_output_is_read_in_pages_and_searched() {
    let task = Task::new();
    task.run("seq 1000; printf 'a\\tb\\033[1mc\\n'; head -c 300 /dev/zero | tr '\\0' x; echo; printf end");
    assert_eq!(task.texts(1, 1, 1_000_000).len(), 277, "as many as fit");
    assert_eq!(task.texts(1, 1001, 1001), ["1001 a\tbc"]);
    assert_eq!(task.texts(1, 2000, 3000), Vec::<String>::new());
    let options = PageOptions {
        first: 1002,
        last: 1003,
        max_bytes: 10,
        max_line_bytes: 4,
    };
    let lines = task.jobs.read_page(1, &options).unwrap();
    assert_eq!(
        (
            lines.len(),
            lines[0].text.as_str(),
            lines[0].cut_bytes,
            lines[0].ended
        ),
        (2, "xxxx", 296, true)
    );
    assert!(!lines[1].ended);
    let (found, more) = task
        .jobs
        .search_output(1, "^(1|50?0?|501)$", 100, 100)
        .unwrap();
    let found: Vec<_> = found.into_iter().map(shown).collect();
    assert_eq!(
        found,
        [
            "1: 1", "2 2", "4 4", "5: 5", "6 6", "49 49", "50: 50", "51 51", "499 499", "500: 500",
            "501: 501", "502 502"
        ]
    );
    assert!(!more);
    let (found, more) = task.jobs.search_output(1, "7", 3, 100).unwrap();
    assert_eq!((found.len(), more), (3, true));
    assert!(matches!(
        task.jobs.search_output(1, "(", 3, 100),
        Err(OutputError::Workspace(_))
    ));
}

#[test]
fn unreadable_outputs_are_explained() {
    let task = Task::new();
    let options = PageOptions {
        first: 1,
        last: 1,
        max_bytes: 10,
        max_line_bytes: 10,
    };
    let words = |number| {
        task.jobs
            .read_page(number, &options)
            .unwrap_err()
            .to_string()
    };
    assert!(
        words(1).starts_with("there is no output 1; none was kept so far"),
        "{}",
        words(1)
    );
    task.run("head -c 100 /dev/zero; seq 100");
    assert!(
        words(1).starts_with("output 1 is binary (392 bytes)"),
        "{}",
        words(1)
    );
    assert_eq!(words(7), "there is no output 7; there is only 1");
    // A folder that cannot be created.
    std::fs::write(task.folder.path().join("file"), "").unwrap();
    let jobs = JobManager::new(
        task.folder.path().join("file/outputs"),
        OutputLifetime::Persistent,
    );
    let ran =
        block_on(jobs.run_command(&task.workspace, command("seq 100000"), "", |_, _| {})).unwrap();
    assert_eq!(ran.outcome.end, CommandExit::Exited(0));
    let error = ran.kept.unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("the output could not be kept: "),
        "{error}"
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn much_output_takes_bounded_disk_space() {
    let task = Task::new();
    task.run("seq 9000000");
    let folder = task.folder.path().join("outputs");
    let size = |name: &str| folder.join(name).metadata().unwrap().len();
    assert_eq!((size("1.head"), size("1.tail")), (32 << 20, 32 << 20));
    assert_eq!(task.jobs.job_info(1).unwrap().lines, 9_000_000);
    assert_eq!(
        task.texts(1, 8_999_999, u64::MAX),
        ["8999999 8999999", "9000000 9000000"]
    );
    let behind = task.texts(1, 4_500_000, u64::MAX);
    // The first line after the gap has lost its beginning.
    let second = behind[1].split(' ').collect::<Vec<_>>();
    assert_eq!(second[0], second[1]);
}

#[test]
fn jobs_run_in_the_background_until_they_end() {
    let task = Task::new();
    let number = task.start("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3");
    block_on(task.jobs.wait_for_job(number, Duration::from_millis(300))).unwrap();
    assert_eq!(task.state(number), JobState::Running);
    wait_for("the first line", || {
        task.jobs.job_info(number).unwrap().lines == 1
    });
    assert_eq!(task.texts(number, 1, 9), ["1 one"]);
    task.place.put("go", "");
    block_on(task.jobs.wait_for_job(number, Duration::from_secs(60))).unwrap();
    assert_eq!(end(&task.state(number)), Some(CommandExit::Exited(3)));
    assert_eq!(task.texts(number, 1, 9), ["1 one", "2 two"]);
    // Stopping an ended job has no effect.
    block_on(task.jobs.stop_job(number)).unwrap();
    assert_eq!(end(&task.state(number)), Some(CommandExit::Exited(3)));
    let number = task
        .begin(
            command("sleep 1000").timeout(Duration::from_millis(100)),
            "",
        )
        .unwrap();
    block_on(task.jobs.wait_for_job(number, Duration::from_secs(60))).unwrap();
    assert_eq!(end(&task.state(number)), Some(CommandExit::TimedOut));
    let number = task
        .begin(command("true").shell("/no/such/shell"), "")
        .unwrap();
    block_on(task.jobs.wait_for_job(number, Duration::from_secs(60))).unwrap();
    assert!(
        matches!(task.state(number), JobState::Failed(reason) if reason.contains("/no/such/shell"))
    );
}

const DEAF: &str = "trap '' TERM; (setsid sleep 1000 &); sleep 1000 & while :; do sleep 0.1; done";

#[test]
fn a_stopped_job_leaves_no_process() {
    let task = Task::new();
    let number = task
        .begin(
            command(DEAF)
                .with_terminal()
                .grace_period(Duration::from_millis(200)),
            DEAF,
        )
        .unwrap();
    wait_for("the job", || alive(&task.place).len() > 3);
    block_on(task.jobs.stop_job(number)).unwrap();
    assert_eq!(end(&task.state(number)), Some(CommandExit::Cancelled));
    assert_eq!(alive(&task.place), Vec::<String>::new());
}

#[test]
fn all_jobs_end_together() {
    let task = Task::new();
    for _ in 0..3 {
        task.begin(command(DEAF).grace_period(Duration::from_millis(200)), DEAF)
            .unwrap();
    }
    task.start("echo done");
    wait_for("the jobs", || alive(&task.place).len() > 9);
    block_on(task.jobs.stop_all());
    assert_eq!(alive(&task.place), Vec::<String>::new());
    let states: Vec<_> = task
        .jobs
        .list_jobs()
        .into_iter()
        .map(|info| end(&info.state))
        .collect();
    assert_eq!(states[..3], [Some(CommandExit::Cancelled); 3]);
}

#[test]
fn jobs_end_when_their_manager_is_dropped() {
    let task = Task::new();
    task.start(DEAF);
    wait_for("the job", || alive(&task.place).len() > 3);
    // Inside a runtime, where blocking is not allowed.
    block_on(async { drop(task.jobs) });
    wait_for("the end of all", || alive(&task.place).is_empty());
}

#[test]
fn the_number_of_jobs_is_limited() {
    let task = Task::new();
    for _ in 0..sabir_workspace::MAX_JOBS {
        task.start("sleep 1000");
    }
    assert!(matches!(
        task.begin(command("true"), ""),
        Err(OutputError::TooMany)
    ));
    block_on(task.jobs.stop_job(1)).unwrap();
    task.start("true");
    block_on(task.jobs.stop_all());
}

#[test]
fn a_temporary_output_folder_is_removed() {
    let place = Place::new();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("outputs");
    let jobs = JobManager::new(path.clone(), OutputLifetime::Temporary);
    block_on(jobs.run_command(&place.workspace, command("seq 100000"), "", |_, _| {})).unwrap();
    assert!(Path::new(&path).join("1.head").exists());
    drop(jobs);
    assert!(!path.exists());
}

#[test]
fn outputs_of_a_killed_task_are_read() {
    let task = Task::new();
    task.run("seq 1000");
    let folder = task.folder.path().join("outputs");
    std::fs::write(folder.join("2.head"), "a\nb\nc").unwrap();
    std::fs::write(folder.join("part-3.head"), "x").unwrap();
    let task = task.resumed();
    let info = task.jobs.job_info(2).unwrap();
    assert_eq!(
        (info.lines, info.state),
        (
            3,
            JobState::EndedBeforeResume("ended with Sabir".to_owned())
        )
    );
    assert_eq!(task.texts(2, 1, 9), ["1 a", "2 b", "3 c"]);
    assert!(!folder.join("part-3.head").exists());
    assert_eq!(task.start("true"), 3);
}
