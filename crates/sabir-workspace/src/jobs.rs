//! Keeps the stored outputs of a task and the commands that it left running.
//!
//! Both are numbered in one sequence, so a model reads them in the same way. Jobs run on a thread
//! of this crate, so they continue while the task thinks or waits for the user. When the
//! [`JobManager`] is dropped, or this process dies, every job ends with everything it started, like
//! any [`ShellCommand`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::capture::OutputCapture;
use crate::command::{CommandExit, CommandOutcome, ExitSummary, OutputStream, ShellCommand};
use crate::error::WorkspaceError;
use crate::files::Workspace;
use crate::output::{self, OutputMetadata, StoredOutput};
use crate::output_lines::{self, OutputLine, PageOptions};
use crate::sandbox::{ActiveSandbox, SandboxReport};
use crate::search;

/// The maximum number of jobs that run at one time.
pub const MAX_JOBS: usize = 16;
/// The number of bytes at the end of a job's output that are searched for sandbox denials.
const TAIL_BYTES: usize = 4 << 10;
/// The disk space, in bytes, for the outputs of a task, besides those of running jobs. The oldest
/// are removed first.
const MAX_ALL_BYTES: u64 = 512 << 20;

/// The stored outputs and jobs of one task.
pub struct JobManager {
    folder: PathBuf,
    lifetime: OutputLifetime,
    state: Mutex<JobTable>,
    runtime: Mutex<Option<Runtime>>,
}

/// The lifetime of the output folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLifetime {
    /// The folder stays: a resumed task can read its earlier outputs.
    Persistent,
    /// The folder is removed with the [`JobManager`].
    Temporary,
}

/// The result of a command that the caller waited for.
#[derive(Debug)]
pub struct FinishedCommand {
    /// The end of the command, with the beginning and end of its output.
    pub outcome: CommandOutcome,
    /// The number of the stored output, or the reason that it was not stored; `None` if the outcome
    /// holds the whole output.
    pub kept: Option<Result<u32, OutputError>>,
}

/// A description of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputInfo {
    /// The number of the output.
    pub number: u32,
    /// The command that printed it.
    pub command: String,
    /// The state of the command.
    pub state: JobState,
    /// The size in bytes, as printed.
    pub bytes: u64,
    /// The number of lines, as plain text.
    pub lines: u64,
    /// The first line that was not shown yet.
    pub next_line: u64,
    /// The sandbox of a job that has ended; `None` without one.
    pub sandbox: Option<SandboxReport>,
}

/// The state of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// The command is running.
    Running,
    /// The command ended.
    Ended(ExitSummary),
    /// The command ended before the task was resumed; the text describes how.
    EndedBeforeResume(String),
    /// The command could not be started.
    Failed(String),
}

/// The reason that an output is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// No output has this number.
    #[error("there is no output {number}; {known}")]
    Missing {
        /// The requested number.
        number: u32,
        /// The existing outputs, in words.
        known: String,
    },
    /// The output was removed to make space for newer ones.
    #[error("output {number} is gone: it made room for newer ones; run its command again")]
    Pruned {
        /// The number of the output.
        number: u32,
    },
    /// The output is not text.
    #[error(
        "output {number} is binary ({bytes} bytes) and cannot be shown; run its command again with `| xxd | head -50` or \
         `> FILE`"
    )]
    Binary {
        /// The number of the output.
        number: u32,
        /// The size in bytes.
        bytes: u64,
    },
    /// The maximum number of jobs is running.
    #[error("{MAX_JOBS} jobs run already; stop one of them first")]
    TooMany,
    /// The output could not be written or read.
    #[error("the output could not be kept: {0}")]
    Io(#[from] io::Error),
    /// The command could not be started, or the regular expression is invalid.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

#[derive(Default)]
struct JobTable {
    loaded: bool,
    last: u32,
    parts: u64,
    entries: BTreeMap<u32, JobEntry>,
}

struct JobEntry {
    command: String,
    live: Arc<Mutex<LiveJob>>,
    stop: Arc<Notify>,
    done: watch::Receiver<bool>,
    next_line: u64,
    pruned: bool,
}

/// The part of a job that changes while its command runs.
struct LiveJob {
    /// Counts the lines while the command runs.
    capture: Option<OutputCapture>,
    output: StoredOutput,
    lines: u64,
    state: JobState,
    confined: Option<SandboxReport>,
}

impl LiveJob {
    fn line_count(&self) -> u64 {
        self.capture
            .as_ref()
            .map_or(self.lines, OutputCapture::line_count)
    }
}

impl JobManager {
    /// Creates a manager for the outputs in `folder`, which is created when needed, with access for
    /// its owner only.
    #[must_use]
    pub fn new(folder: PathBuf, lifetime: OutputLifetime) -> Self {
        Self {
            folder,
            lifetime,
            state: Mutex::default(),
            runtime: Mutex::default(),
        }
    }

    /// Runs a command that the caller waits for, as [`ShellCommand::run`] does, and stores its
    /// whole output if the outcome does not hold it. `text` is the command line to show for it.
    ///
    /// # Errors
    /// Those of [`ShellCommand::run`].
    pub async fn run_command(
        &self,
        workspace: &Workspace,
        command: ShellCommand,
        text: &str,
        mut on_output: impl FnMut(OutputStream, &[u8]) + Send,
    ) -> Result<FinishedCommand, WorkspaceError> {
        // The number is known only when the output is kept, so it grows under a name without one.
        let mut output = StoredOutput::new(self.part_stem());
        let take = |stream, bytes: &[u8]| {
            output.push(bytes);
            on_output(stream, bytes);
        };
        let outcome = command.run(workspace, take).await?;
        let missing = outcome.output.omitted_bytes > 0;
        let kept = missing.then(|| self.store_output(output, text, &outcome));
        Ok(FinishedCommand { outcome, kept })
    }

    /// Stores the output of a command that another program ran, like that of one that was [run here](Self::run_command). `head_bytes` and
    /// `tail_bytes` are the sizes of the ends that the outcome holds.
    #[must_use]
    pub fn store_external_output(
        &self,
        text: &str,
        printed: &[u8],
        end: CommandExit,
        head_bytes: usize,
        tail_bytes: usize,
    ) -> FinishedCommand {
        let mut capture = OutputCapture::new(head_bytes, tail_bytes);
        capture.push(printed);
        let outcome = CommandOutcome {
            end,
            output: capture.finish(),
            leftover_processes: 0,
            unkillable_processes: 0,
            sandbox: None,
        };
        let kept = (outcome.output.omitted_bytes > 0).then(|| {
            let mut output = StoredOutput::new(self.part_stem());
            output.push(printed);
            self.store_output(output, text, &outcome)
        });
        FinishedCommand { outcome, kept }
    }

    /// Returns the path under which an output grows until it has a number.
    fn part_stem(&self) -> PathBuf {
        let mut state = self.lock_table();
        state.parts += 1;
        self.folder.join(format!("part-{}", state.parts))
    }

    /// Stores an output of which the ends were shown, and numbers it.
    fn store_output(
        &self,
        mut output: StoredOutput,
        command: &str,
        outcome: &CommandOutcome,
    ) -> Result<u32, OutputError> {
        let CommandOutcome {
            end,
            output: shown,
            leftover_processes,
            unkillable_processes,
            ..
        } = outcome;
        let ending = ExitSummary {
            end: *end,
            leftover_processes: *leftover_processes,
            unkillable_processes: *unkillable_processes,
        };
        let mut state = self.lock_table();
        let number = state.last + 1;
        let total = output.total_bytes();
        let lines = shown.lines;
        let end = end.to_string();
        // The file names carry the number, so an output can be found again when the task is
        // resumed.
        output.keep_as(
            self.output_stem(number),
            &OutputMetadata {
                total,
                lines,
                end,
                command: command.to_owned(),
            },
        );
        if let Some(fault) = output.write_error() {
            return Err(io::Error::new(fault.kind(), fault.to_string()).into());
        }
        let confined = outcome.sandbox.clone();
        let live = LiveJob {
            capture: None,
            output,
            lines,
            state: JobState::Ended(ending),
            confined,
        };
        let next_line = shown.head.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        state.last = number;
        state.entries.insert(
            number,
            JobEntry {
                next_line,
                ..JobEntry::new_ended(command.to_owned(), live)
            },
        );
        self.prune_outputs(&mut state);
        Ok(number)
    }

    /// Starts a job. It ends on its own, at [`stop_job`](Self::stop_job), or when the manager is
    /// dropped. `text` is the command line to show for it.
    ///
    /// # Errors
    /// [`OutputError::TooMany`], and [`OutputError::Io`] if the system has no thread left. A
    /// command that cannot run at all shows in the job's state.
    pub fn start_job(
        &self,
        workspace: Arc<Workspace>,
        command: ShellCommand,
        text: &str,
    ) -> Result<u32, OutputError> {
        let mut state = self.lock_table();
        if state
            .entries
            .values()
            .filter(|entry| entry.is_running())
            .count()
            >= MAX_JOBS
        {
            return Err(OutputError::TooMany);
        }
        let number = state.last + 1;
        let stem = self.output_stem(number);
        let capture = Some(OutputCapture::new(0, TAIL_BYTES));
        let output = StoredOutput::new(stem.clone());
        let state_now = JobState::Running;
        let confined = None;
        let live = Arc::new(Mutex::new(LiveJob {
            capture,
            output,
            lines: 0,
            state: state_now,
            confined,
        }));
        let stop = Arc::new(Notify::new());
        let (finished, done) = watch::channel(false);
        let shared = Arc::clone(&live);
        let stopped = Arc::clone(&stop);
        let text = text.to_owned();
        let entry = JobEntry {
            command: text.clone(),
            live,
            stop,
            done,
            next_line: 1,
            pruned: false,
        };
        self.spawn_job(async move {
            let command = command.cancel_when(async move { stopped.notified().await });
            let ran = command
                .run_uncaptured(&workspace, |_, bytes| lock_mutex(&shared).push(bytes))
                .await;
            lock_mutex(&shared).finish_job(ran, stem, text);
            // The receiver may be gone, which is fine.
            let _ = finished.send(true);
        })?;
        state.last = number;
        state.entries.insert(number, entry);
        self.prune_outputs(&mut state);
        Ok(number)
    }

    /// Waits until the job has ended or the time has passed.
    ///
    /// # Errors
    /// [`OutputError::Missing`].
    pub async fn wait_for_job(&self, number: u32, time: Duration) -> Result<(), OutputError> {
        let mut done = self.with_entry(number, |entry| Ok(entry.done.clone()))?;
        // Whether it ended or timed out is visible in the job's state.
        let _ = timeout(time, done.wait_for(|done| *done)).await;
        Ok(())
    }

    /// Ends a job with everything it started, and waits until it has ended.
    ///
    /// # Errors
    /// [`OutputError::Missing`].
    pub async fn stop_job(&self, number: u32) -> Result<(), OutputError> {
        self.with_entry(number, |entry| {
            entry.stop.notify_one();
            Ok(())
        })?;
        self.wait_for_job(number, Duration::MAX).await
    }

    /// Ends all jobs, and waits until they have ended.
    pub async fn stop_all(&self) {
        let numbers: Vec<u32> = {
            let state = self.lock_table();
            let running = state.entries.iter().filter(|(_, entry)| entry.is_running());
            running
                .inspect(|(_, entry)| entry.stop.notify_one())
                .map(|(number, _)| *number)
                .collect()
        };
        for number in numbers {
            // The job existed a moment ago, and entries are never removed, so this cannot fail.
            let _ = self.wait_for_job(number, Duration::MAX).await;
        }
    }

    /// Returns all outputs and jobs that can be read, oldest first.
    #[must_use]
    pub fn list_jobs(&self) -> Vec<OutputInfo> {
        let state = self.lock_table();
        state
            .entries
            .iter()
            .filter(|(_, entry)| !entry.pruned)
            .map(|(number, entry)| entry.to_info(*number))
            .collect()
    }

    /// Describes one output.
    ///
    /// # Errors
    /// [`OutputError::Missing`] and [`OutputError::Pruned`].
    pub fn job_info(&self, number: u32) -> Result<OutputInfo, OutputError> {
        self.with_entry(number, |entry| Ok(entry.to_info(number)))
    }

    /// Returns some lines of an output. Blocks.
    ///
    /// # Errors
    /// [`OutputError::Missing`], [`Pruned`](OutputError::Pruned), [`Binary`](OutputError::Binary)
    /// and [`Io`](OutputError::Io).
    pub fn read_page(
        &self,
        number: u32,
        options: &PageOptions,
    ) -> Result<Vec<OutputLine>, OutputError> {
        self.with_readable(number, |live| {
            Ok(output_lines::read_page(
                &live.output,
                live.line_count(),
                options,
            )?)
        })
    }

    /// Returns the lines of an output that match the expression, each with the line before and
    /// after it, and whether there are more. At most about `max` lines, each cut at
    /// `max_line_bytes`. Blocks.
    ///
    /// # Errors
    /// Those of [`read_page`](Self::read_page), and [`WorkspaceError::Regex`].
    pub fn search_output(
        &self,
        number: u32,
        regex: &str,
        max: usize,
        max_line_bytes: usize,
    ) -> Result<(Vec<OutputLine>, bool), OutputError> {
        let matcher = search::compile_regex(regex)?;
        self.with_readable(number, |live| {
            Ok(output_lines::search_lines(
                &live.output,
                live.line_count(),
                &matcher,
                max,
                max_line_bytes,
            )?)
        })
    }

    /// Records that the lines before this one were shown.
    pub fn mark_shown(&self, number: u32, next_line: u64) {
        if let Some(entry) = self.lock_table().entries.get_mut(&number) {
            entry.next_line = next_line;
        }
    }

    fn with_readable<T>(
        &self,
        number: u32,
        act: impl FnOnce(&LiveJob) -> Result<T, OutputError>,
    ) -> Result<T, OutputError> {
        let live = self.with_entry(number, |entry| Ok(Arc::clone(&entry.live)))?;
        let live = lock_mutex(&live);
        if let Some(fault) = live.output.write_error() {
            return Err(io::Error::new(fault.kind(), fault.to_string()).into());
        }
        if output_lines::is_binary(&live.output)? {
            return Err(OutputError::Binary {
                number,
                bytes: live.output.total_bytes(),
            });
        }
        act(&live)
    }

    fn with_entry<T>(
        &self,
        number: u32,
        act: impl FnOnce(&JobEntry) -> Result<T, OutputError>,
    ) -> Result<T, OutputError> {
        let state = self.lock_table();
        match state.entries.get(&number) {
            Some(entry) if entry.pruned => Err(OutputError::Pruned { number }),
            Some(entry) => act(entry),
            None => Err(OutputError::Missing {
                number,
                known: describe_known(&state),
            }),
        }
    }

    fn output_stem(&self, number: u32) -> PathBuf {
        self.folder.join(number.to_string())
    }

    fn lock_table(&self) -> MutexGuard<'_, JobTable> {
        let mut state = lock_mutex(&self.state);
        if !state.loaded {
            state.loaded = true;
            for (number, about) in output::scan_outputs(&self.folder) {
                state.last = state.last.max(number);
                state.entries.insert(
                    number,
                    JobEntry::from_files(&self.output_stem(number), about),
                );
            }
        }
        state
    }

    fn spawn_job(&self, job: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let mut runtime = lock_mutex(&self.runtime);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            // One worker thread suffices: it only moves bytes between pipes and files.
            none => none.insert(
                Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()?,
            ),
        };
        drop(runtime.spawn(job));
        Ok(())
    }

    /// Removes the oldest outputs until the rest fits; the newest one always stays.
    fn prune_outputs(&self, state: &mut JobTable) {
        let newest = state.last;
        let ended = state
            .entries
            .iter_mut()
            .filter(|(_, entry)| !entry.pruned && !entry.is_running());
        let mut ended: Vec<_> = ended
            .map(|(number, entry)| {
                (
                    *number,
                    output::disk_bytes(&self.output_stem(*number)),
                    entry,
                )
            })
            .collect();
        let mut all: u64 = ended.iter().map(|(_, size, _)| size).sum();
        for (number, size, entry) in &mut ended {
            // The newest output has just been reported to the model, so it is never removed here.
            if all <= MAX_ALL_BYTES || *number == newest {
                break;
            }
            output::remove_output(&self.output_stem(*number));
            entry.pruned = true;
            all -= *size;
        }
    }
}

/// Ends the jobs that still run, without waiting for them.
impl Drop for JobManager {
    fn drop(&mut self) {
        if let Some(runtime) = lock_mutex(&self.runtime).take() {
            // A blocking shutdown would panic inside an async context.
            runtime.shutdown_background();
        }
        if self.lifetime == OutputLifetime::Temporary {
            // The folder may never have been created.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl fmt::Debug for JobManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobManager")
            .field("folder", &self.folder)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl LiveJob {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.push(bytes);
        }
        self.output.push(bytes);
    }

    fn finish_job(
        &mut self,
        ran: Result<(ExitSummary, Option<ActiveSandbox>), WorkspaceError>,
        stem: PathBuf,
        command: String,
    ) {
        let printed = self
            .capture
            .take()
            .map(OutputCapture::finish)
            .unwrap_or_default();
        self.lines = printed.lines;
        match ran {
            Ok((ending, active)) => {
                self.confined = active.map(|active| active.to_report(ending.end, &printed.text()));
                let total = self.output.total_bytes();
                let lines = self.lines;
                let end = ending.end.to_string();
                self.output.keep_as(
                    stem,
                    &OutputMetadata {
                        total,
                        lines,
                        end,
                        command,
                    },
                );
                self.state = JobState::Ended(ending);
            }
            Err(error) => self.state = JobState::Failed(error.to_string()),
        }
    }
}

impl JobEntry {
    fn new_ended(command: String, live: LiveJob) -> Self {
        let (_, done) = watch::channel(true);
        Self {
            command,
            live: Arc::new(Mutex::new(live)),
            stop: Arc::default(),
            done,
            next_line: 1,
            pruned: false,
        }
    }

    /// Restores the entry of an output from its files, in a resumed task.
    fn from_files(stem: &Path, about: Option<OutputMetadata>) -> Self {
        // A killed writer left no metadata, so only the first part of the output can be used.
        let unknown = || {
            let end = "ended with Sabir".to_owned();
            let command = "(unknown)".to_owned();
            OutputMetadata {
                total: output::head_size(stem),
                lines: u64::MAX,
                end,
                command,
            }
        };
        let OutputMetadata {
            total,
            lines,
            end,
            command,
        } = about.unwrap_or_else(unknown);
        let output = StoredOutput::open_kept(stem.to_path_buf(), total);
        let lines = if lines == u64::MAX {
            output_lines::count_lines(&output)
        } else {
            lines
        };
        Self::new_ended(
            command,
            LiveJob {
                capture: None,
                output,
                lines,
                state: JobState::EndedBeforeResume(end),
                confined: None,
            },
        )
    }

    fn is_running(&self) -> bool {
        !*self.done.borrow()
    }

    fn to_info(&self, number: u32) -> OutputInfo {
        let live = lock_mutex(&self.live);
        OutputInfo {
            number,
            command: self.command.clone(),
            state: live.state.clone(),
            bytes: live.output.total_bytes(),
            lines: live.line_count(),
            next_line: self.next_line,
            sandbox: live.confined.clone(),
        }
    }
}

fn describe_known(state: &JobTable) -> String {
    let numbers: Vec<String> = state
        .entries
        .iter()
        .filter(|(_, entry)| !entry.pruned)
        .map(|(number, _)| number.to_string())
        .collect();
    match numbers.as_slice() {
        [] => "none was kept so far: only what does not fit a result is, and the output of jobs"
            .to_owned(),
        [only] => format!("there is only {only}"),
        [all @ .., last] => format!("there are {} and {last}", all.join(", ")),
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
