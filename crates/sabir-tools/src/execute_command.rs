//! `execute_command`: runs a shell command in the workspace folder.
//!
//! A command runs in the sandbox of the task, unless the call asks for more and the user agrees. The
//! result holds the beginning and the end of the output; the job manager keeps the whole.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sabir_agent::{CallPermit, Preconditions, ProgressSink, ToolOutput};
use sabir_policy::{
    Access, BuildTrust, CommandFacts, ExtraPermissions, PolicyRules, SecretFile, SecretFiles,
    ToolGroup, Verdict,
};
use sabir_workspace::{
    CommandExit, CommandOutcome, ConnectionOutcome, DenialKind, EffectiveLevel, FinishedCommand,
    HostConnection, JobState, NetworkAccess, OutputStream, QUIET_ENV, Sandbox, SandboxLevel,
    SandboxReport, ShellCommand, StopFlag, WithheldPath, WorkspaceError, default_shell,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ToolSettings;
use crate::blocking::{WorkerError, run_blocking, run_stoppable};
use crate::command_facts::{CommandContext, could_read_secrets, gather_facts};
use crate::editor::{EditorFailure, TerminalCommand};
use crate::full_screen::{FullScreenMonitor, SCREEN_TIME, ScreenScanner};
use crate::job_error::JobError;
use crate::loopback_ports::named_loopback_ports;
use crate::no_match;
use crate::preconditions;
use crate::read_command_output::{OutputPage, describe_state, read_unshown};
use crate::text::{capitalize_first, count_processes, group_digits};
use crate::typed_tool::TypedTool;

/// The time limit of a command in the foreground, unless the call gives one.
const DEFAULT_SECONDS: u64 = 120;
/// The greatest time limit that a call can give.
const MAX_SECONDS: u64 = 600;
/// The size of the output's beginning that a result holds.
const HEAD_BYTES: usize = 12 << 10;
/// The size of the output's end that a result holds. It is larger, because errors tend to come last.
const TAIL_BYTES: usize = 20 << 10;
/// The variable that names the type of a command's terminal, which overrides the settings for pipes.
const TERMINAL: (&str, &str) = ("TERM", "xterm-256color");
/// The size of the output that front ends are shown while a command runs; more is not read anyway.
const PREVIEW_BYTES: usize = 4 << 20;
/// The size of the output that an editor's terminal is asked to keep.
const TERMINAL_BYTES: u64 = 4 << 20;
/// The number of files and folders that are hidden from a command one by one. Each is a mount.
const MAX_HIDDEN: usize = 500;
/// The advice about a program that kept the screen.
const KEPT_SCREEN: &str = "It is a full-screen program and waits for keys, which it cannot get. Use a form that only prints, such as `top -b -n 1`, \
`git --no-pager log` or `PAGER=cat`, and change files with the file tools. If it ends by itself, give a timeout.";
/// The time for which a new job is watched before its first output is reported.
const FIRST_OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// The tool, with the settings of its task.
pub(crate) struct ExecuteCommand {
    settings: ToolSettings,
    /// The build whose question explained how builds run unasked.
    explained: OnceLock<String>,
}

/// Run a shell command in the workspace folder, without input. What it leaves running ends with it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecuteCommandArguments {
    /// The command line.
    command: String,
    /// Seconds until it is killed. Default 120.
    #[schemars(range(min = 1, max = 600))]
    timeout: Option<u64>,
    /// Give it a terminal.
    #[serde(default)]
    terminal: bool,
    /// For servers: run it as a job.
    #[serde(default)]
    background: bool,
    /// Reach package registries. The user is asked.
    #[serde(default)]
    registries: bool,
    /// Reach the network. The user is asked.
    #[serde(default)]
    network: bool,
    /// Run outside of the sandbox, only after it failed inside. The user is asked.
    #[serde(default)]
    unconfined: bool,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) enum CommandResult {
    /// The command has ended.
    Ended {
        /// Its end and its output.
        finished: FinishedCommand,
        /// Its time limit.
        seconds: u64,
        /// True if it was killed because it kept the screen of its terminal.
        stayed_full_screen: bool,
        /// True if it found nothing, which is not a failure of the call.
        found_nothing: bool,
        /// A remark, such as one on files that were empty to it.
        note: Option<String>,
    },
    /// The command runs as a job.
    Started {
        /// Its first output.
        page: OutputPage,
        /// True if its sandbox has a network of its own, so other commands cannot reach its ports.
        is_isolated: bool,
    },
}

/// A failure to run a command. A command that ran and failed is a [`CommandResult`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The workspace folder was deleted.
    #[error("The workspace folder is gone, so nothing can run in it. Tell the user.")]
    NoWorkspace,
    /// The requested sandbox is not available.
    #[error(
        "{0}. Only the user can change that: `--sandbox off`, or `sandbox = \"off\"` in config.toml, runs commands \
         without. Tell them."
    )]
    NoSandbox(#[source] WorkspaceError),
    /// More paths are hidden than a sandbox can hide.
    #[error(
        "Not run: the user hides {count} files here one by one, and a command can be kept from {MAX_HIDDEN} at most. Tell them: \
         rules that hide whole folders would do."
    )]
    TooManyHidden {
        /// The number of hidden paths.
        count: usize,
    },
    /// The job ended before its command began.
    #[error("{reason}.")]
    NotStarted {
        /// The reason, from the job manager.
        reason: String,
    },
    /// The command could not be started, or the hidden paths could not be listed.
    #[error("{0}.")]
    Workspace(#[source] WorkspaceError),
    /// The editor took the command for a terminal and did not answer.
    #[error(
        "The user's editor did not say whether its terminal runs this. Find out what was done before you try again."
    )]
    TerminalLost,
    /// The job could not be started, or its output could not be read.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The work was not done at all.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl TypedTool for ExecuteCommand {
    type Arguments = ExecuteCommandArguments;
    type Call = ExecuteCommandArguments;
    type Output = CommandResult;
    type Error = CommandError;
    const NAME: &'static str = "execute_command";
    const MANUAL: &'static str = include_str!("specs/execute_command.md");
    const GROUP: ToolGroup = ToolGroup::Command;
    const READS_ONLY: bool = false;

    fn example_arguments() -> Value {
        json!({"command": "cargo test --workspace", "timeout": 300})
    }

    fn prepare_call(&self, arguments: ExecuteCommandArguments) -> ExecuteCommandArguments {
        arguments
    }

    fn call_access(&self, call: &ExecuteCommandArguments) -> Access {
        Access::Command {
            facts: self.command_facts(&call.command),
            command: call.command.clone(),
            beyond: self.sandbox_exception(call),
        }
    }

    fn call_preconditions(&self, call: &ExecuteCommandArguments) -> Preconditions {
        preconditions::command_preconditions(&self.settings, &call.command)
    }

    async fn run_call(
        self: Arc<Self>,
        permit: &CallPermit,
        call: ExecuteCommandArguments,
        progress: ProgressSink<'_>,
    ) -> Result<CommandResult, CommandError> {
        let limit = call.timeout.map(|seconds| seconds.clamp(1, MAX_SECONDS));
        let (sandbox, masked_note) = self.sandbox_for(&call, permit).await?;
        if !sandbox.is_on()
            && !call.background
            && let Some(result) = self.run_in_editor(permit, &call, limit).await?
        {
            return Ok(result);
        }
        let is_isolated = sandbox.is_on() && !sandbox.has_network();
        let mut command = ShellCommand::new(&call.command, &self.settings.helper)
            .env(self.settings.environment.iter().cloned())
            // The job manager keeps the whole output; this is only the part for the result.
            .captured_bytes(HEAD_BYTES, TAIL_BYTES)
            .sandbox(sandbox);
        if call.terminal {
            let (name, value) = TERMINAL;
            command = command
                .with_terminal()
                .env([(name.to_owned(), value.to_owned())]);
        }
        if call.background {
            // A job has no default limit: servers run until they are stopped.
            if let Some(seconds) = limit {
                command = command.timeout(Duration::from_secs(seconds));
            }
            let page = start_job(&self.settings, command, &call.command).await?;
            return Ok(CommandResult::Started { page, is_isolated });
        }
        let seconds = limit.unwrap_or(DEFAULT_SECONDS);
        let mut preview = OutputPreview {
            stdout: StreamDecoder::default(),
            stderr: StreamDecoder::default(),
            bytes_left: PREVIEW_BYTES,
            progress,
        };
        let mut command = command.timeout(Duration::from_secs(seconds));
        let screen = Arc::new(FullScreenMonitor::default());
        // A call that gives a time limit knows how long it takes.
        if call.terminal && limit.is_none() {
            let watch = Arc::clone(&screen);
            command =
                command.cancel_when(async move { watch.wait_for_full_screen_timeout().await });
        }
        let mut scanner = ScreenScanner::default();
        let on_output = |stream, bytes: &[u8]| {
            scanner.push_bytes(bytes, &screen);
            preview.push_bytes(stream, bytes);
        };
        let finished = self
            .settings
            .jobs
            .run_command(&self.settings.workspace, command, &call.command, on_output)
            .await;
        preview.flush_streams();
        match finished {
            Ok(finished) => {
                let end = finished.outcome.end;
                Ok(CommandResult::Ended {
                    seconds,
                    stayed_full_screen: screen.stayed_full_screen()
                        || screen.is_full_screen()
                            && matches!(end, CommandExit::Cancelled | CommandExit::TimedOut),
                    found_nothing: end == CommandExit::Exited(1)
                        && no_match::is_search_for_exit_code(&call.command),
                    finished,
                    note: masked_note,
                })
            }
            Err(WorkspaceError::Missing { .. }) => Err(CommandError::NoWorkspace),
            Err(error @ WorkspaceError::Sandbox { .. }) => Err(CommandError::NoSandbox(error)),
            Err(error) => Err(CommandError::Workspace(error)),
        }
    }
}

impl ExecuteCommand {
    /// Creates the tool of one task.
    pub(crate) fn new(settings: ToolSettings) -> Self {
        Self {
            settings,
            explained: OnceLock::new(),
        }
    }

    /// Runs a command that no sandbox would confine in an editor's terminal; `None` if that has none, or refuses.
    async fn run_in_editor(
        &self,
        permit: &CallPermit,
        call: &ExecuteCommandArguments,
        limit: Option<u64>,
    ) -> Result<Option<CommandResult>, CommandError> {
        let ToolSettings {
            workspace,
            environment,
            jobs,
            ..
        } = &self.settings;
        let editor = self.settings.editor.as_ref();
        let Some(editor) = editor.filter(|editor| editor.has_terminals()) else {
            return Ok(None);
        };
        let seconds = limit.unwrap_or(DEFAULT_SECONDS);
        let quiet = QUIET_ENV.iter().copied();
        let quiet = quiet.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables: BTreeMap<_, _> = quiet.chain(environment.iter().cloned()).collect();
        let running = editor.run_command(TerminalCommand {
            call: permit.call.clone(),
            text: call.command.clone(),
            program: default_shell(),
            arguments: vec!["-c".to_owned(), call.command.clone()],
            folder: workspace.root().to_owned(),
            environment: variables.into_iter().collect(),
            time_limit: Duration::from_secs(seconds),
            output_bytes: TERMINAL_BYTES,
        });
        let outcome = match running.await {
            Ok(outcome) => outcome,
            Err(EditorFailure::Refused(_)) => return Ok(None),
            Err(EditorFailure::NoResponse) => return Err(CommandError::TerminalLost),
        };
        let end = outcome.end.to_exit();
        let printed = outcome.output.as_bytes();
        let finished =
            jobs.store_external_output(&call.command, printed, end, HEAD_BYTES, TAIL_BYTES);
        Ok(Some(CommandResult::Ended {
            finished,
            seconds,
            stayed_full_screen: false,
            found_nothing: end == CommandExit::Exited(1)
                && no_match::is_search_for_exit_code(&call.command),
            note: outcome.is_truncated.then(|| {
                "The terminal of the user's editor kept only the end of the output.".to_owned()
            }),
        }))
    }

    fn context(&self) -> CommandContext<'_> {
        CommandContext {
            workspace: &self.settings.workspace,
            environment: &self.settings.environment,
            sandbox: &self.settings.sandbox,
            helper: &self.settings.helper,
        }
    }

    /// Gathers the facts about a command line. Only the first question about a build explains how to trust the repository.
    fn command_facts(&self, command: &str) -> CommandFacts {
        let mut facts = gather_facts(&self.context(), command);
        facts.loopback_wall = self.loopback_obstacle(command);
        for (_, trust) in &mut facts.build_folders {
            // The same line is checked more than once, always alike.
            if *trust == BuildTrust::Untrusted
                && self.explained.get_or_init(|| command.to_owned()) != command
            {
                *trust = BuildTrust::Unconfined;
            }
        }
        facts
    }

    /// Returns the reason why a command will not reach the ports of this machine's loopback that its line names.
    fn loopback_obstacle(&self, command: &str) -> Option<String> {
        let sandbox = &self.settings.sandbox;
        if !sandbox.is_on() || sandbox.has_network() || named_loopback_ports(command).is_empty() {
            return None;
        }
        if !sandbox.allows_loopback() {
            return Some(
                "it will not reach this machine's loopback (`loopback = false` in config.toml)"
                    .to_owned(),
            );
        }
        let environment = &self.settings.environment;
        let level =
            sandbox.effective_level(&self.settings.workspace, &self.settings.helper, environment);
        (level == Some(EffectiveLevel::One)).then(|| {
            "it will not reach this machine's loopback (sandbox level 1 has no network at all)"
                .to_owned()
        })
    }

    /// Returns what a call asks for beyond the sandbox that every command of the task gets.
    fn sandbox_exception(&self, call: &ExecuteCommandArguments) -> ExtraPermissions {
        let sandbox = &self.settings.sandbox;
        if !sandbox.is_on() {
            ExtraPermissions::Nothing
        } else if call.unconfined {
            ExtraPermissions::Unconfined
        } else if call.network && !sandbox.has_network() {
            ExtraPermissions::Network
        } else if call.registries && sandbox.network() == NetworkAccess::Denied {
            ExtraPermissions::Registries
        } else {
            ExtraPermissions::Nothing
        }
    }

    /// Returns the sandbox of a permitted call, with the paths that the workspace hides now, and a remark for the model.
    async fn sandbox_for(
        &self,
        call: &ExecuteCommandArguments,
        permit: &CallPermit,
    ) -> Result<(Sandbox, Option<String>), CommandError> {
        let sandbox = self.settings.sandbox.clone();
        let sandbox = match self.sandbox_exception(call) {
            ExtraPermissions::Unconfined => return Ok((Sandbox::new(SandboxLevel::Off), None)),
            ExtraPermissions::Network => sandbox.with_network(NetworkAccess::Allowed),
            ExtraPermissions::Registries => sandbox.with_network(NetworkAccess::Registries),
            // A command that runs without a question because it only reads gets a read-only
            // sandbox, so that a wrong decision does no harm. It was checked for a sandbox without
            // access to package registries.
            ExtraPermissions::Nothing if permit.read_only && !sandbox.has_network() => {
                sandbox.with_network(NetworkAccess::Denied).read_only()
            }
            ExtraPermissions::Nothing if permit.read_only => sandbox.read_only(),
            // The user has seen these ports on the command line.
            ExtraPermissions::Nothing if permit.user_approved => {
                sandbox.allow_loopback_ports(named_loopback_ports(&call.command))
            }
            // A command that was checked at level 2 does not run at a lower one.
            ExtraPermissions::Nothing => sandbox,
        }
        .require_detected_level();
        if !sandbox.is_on() {
            return Ok((sandbox, None));
        }
        let workspace = Arc::clone(&self.settings.workspace);
        // A command that runs unasked may read files with secrets that its line does not name.
        let is_unasked = permit.read_only && sandbox.is_read_only();
        // The decision may have relied on their being empty; then all of them have to be.
        let masked = self.masked_secrets(&call.command).filter(|_| is_unasked);
        let note = masked
            .as_ref()
            .and_then(|(facts, files)| masked_note(&call.command, facts, files));
        let files = masked.map(|(_, files)| files);
        let list = move |stop: StopFlag| {
            let secrets = match files {
                Some(files) => files
                    .iter()
                    .map(|file| workspace.root().join(&file.path))
                    .collect(),
                None if is_unasked => workspace.list_files_named(&sabir_policy::names_secret_file),
                None => Vec::new(),
            };
            let hidden = workspace
                .list_hidden_paths(&stop)
                .map_err(CommandError::Workspace)?;
            Ok::<_, CommandError>((hidden, secrets))
        };
        let (hidden, secrets) = run_stoppable(list).await?;
        let sandbox = sandbox.show_as_empty(secrets);
        if hidden.len() > MAX_HIDDEN {
            // Hiding only some of them would break the promise that all are hidden.
            return Err(CommandError::TooManyHidden {
                count: hidden.len(),
            });
        }
        Ok((sandbox.hide_paths(hidden), note))
    }

    /// Returns the secret files that must appear empty to a command that runs unasked, with the facts of the decision. `None` if the
    /// decision does not depend on them.
    fn masked_secrets(&self, command: &str) -> Option<(CommandFacts, Vec<SecretFile>)> {
        if !could_read_secrets(&self.context(), command) {
            return None;
        }
        let facts = self.command_facts(command);
        match &facts.secret_files {
            SecretFiles::Masked(files) => {
                let files = files.clone();
                Some((facts, files))
            }
            SecretFiles::Unknown | SecretFiles::Found(_) => None,
        }
    }
}

/// Tells the model which file was empty to a command that would have been asked about otherwise.
fn masked_note(command: &str, facts: &CommandFacts, files: &[SecretFile]) -> Option<String> {
    let access = Access::Command {
        command: command.to_owned(),
        facts: CommandFacts {
            secret_files: SecretFiles::Found(files.to_vec()),
            ..facts.clone()
        },
        beyond: ExtraPermissions::Nothing,
    };
    let decision = PolicyRules::default().decide(&access);
    (decision.verdict == Verdict::Ask).then(|| {
        let reason = decision.reason;
        format!(
            "Files that usually hold secrets were empty to this command ({reason}). To read one, name it: the user is asked."
        )
    })
}

/// Starts a job, and waits a moment for its first output.
async fn start_job(
    settings: &ToolSettings,
    command: ShellCommand,
    text: &str,
) -> Result<OutputPage, CommandError> {
    let jobs = Arc::clone(&settings.jobs);
    let number = jobs
        .start_job(Arc::clone(&settings.workspace), command, text)
        .map_err(JobError::from)?;
    jobs.wait_for_job(number, FIRST_OUTPUT_WAIT)
        .await
        .map_err(JobError::from)?;
    run_blocking(move || {
        let page = read_unshown(&jobs, number).map_err(JobError::from)?;
        match &page.info().state {
            JobState::Failed(reason) => Err(CommandError::NotStarted {
                reason: reason.clone(),
            }),
            _ => Ok(page),
        }
    })
    .await
}

impl From<CommandResult> for ToolOutput {
    fn from(output: CommandResult) -> Self {
        match output {
            CommandResult::Ended {
                finished,
                seconds,
                stayed_full_screen,
                found_nothing,
                note,
            } => {
                let mut output = ended_output(&finished, seconds, stayed_full_screen, note);
                output.found_nothing = found_nothing;
                output
            }
            CommandResult::Started { page, is_isolated } => started_output(&page, is_isolated),
        }
    }
}

/// Renders how a command ended, its output, and advice.
fn ended_output(
    finished: &FinishedCommand,
    seconds: u64,
    stayed_full_screen: bool,
    note: Option<String>,
) -> ToolOutput {
    let outcome = &finished.outcome;
    let mut message = match outcome.end {
        CommandExit::Exited(code) => format!("Exit code {code}"),
        CommandExit::TimedOut => format!(
            "Killed after {}, with all that it had started",
            count_seconds(seconds)
        ),
        CommandExit::Cancelled if stayed_full_screen => format!(
            "Killed: it kept the whole screen for {}",
            count_seconds(SCREEN_TIME.as_secs())
        ),
        CommandExit::Cancelled => "Cancelled, with all that it had started".to_owned(),
        CommandExit::SupervisorLost => {
            "Lost: its supervisor was killed, and what was left of the command too".to_owned()
        }
        end => capitalize_first(&end.to_string()),
    };
    let omitted = group_digits(outcome.output.omitted_bytes);
    let printed = outcome.output.text_with_gap_line(&match &finished.kept {
        Some(Ok(number)) => {
            format!("[… {omitted} bytes left out; read_command_output with output {number} shows them …]")
        }
        Some(Err(error)) => format!("[… {omitted} bytes left out: {error} …]"),
        None => String::new(),
    });
    let printed = printed.trim_end_matches('\n');
    message.push_str(if printed.is_empty() {
        ", no output."
    } else {
        ". Output:\n"
    });
    message.push_str(printed);
    if stayed_full_screen {
        message.push_str(&format!("\n[{KEPT_SCREEN}]"));
    }
    for note in outcome_notes(outcome).into_iter().chain(note) {
        message.push_str(&format!("\n[{note}]"));
    }
    ToolOutput {
        failed: outcome.end != CommandExit::Exited(0),
        ..ToolOutput::done(message)
    }
}

/// Returns remarks on how a command ended, with advice.
fn outcome_notes(outcome: &CommandOutcome) -> Vec<String> {
    let mut notes = Vec::new();
    match outcome.end {
        CommandExit::TimedOut => notes.push(format!(
            "If it needs longer, give a timeout of up to {MAX_SECONDS}. If it waits for input, give that on its command line. If it is a \
             server, use background."
        )),
        // 126 and 127 are the codes that POSIX shells use.
        CommandExit::Exited(126) => notes.push("126: a file that cannot be executed. Is it a program, and `chmod +x`?".to_owned()),
        CommandExit::Exited(127) => {
            notes.push("127: no such program. Check its name, give its path, or install it.".to_owned());
        }
        // SIGXFSZ, directly or through a shell, which adds 128.
        CommandExit::Exited(153) | CommandExit::Signaled(25) => {
            notes.push("A file grew too large: in the sandbox it may have 64 GiB.".to_owned());
        }
        // SIGKILL; mostly from the kernel when memory is short.
        CommandExit::Exited(137) | CommandExit::Signaled(9) => {
            notes.push("Killed from outside, perhaps for want of memory.".to_owned());
        }
        _ => {}
    }
    if let left @ 1.. = outcome.leftover_processes {
        let verb = if left == 1 { "was" } else { "were" };
        notes.push(format!(
            "{} that it left running {verb} ended. For a server, use background, without `&`.",
            count_processes(left)
        ));
    }
    if let unkillable_processes @ 1.. = outcome.unkillable_processes {
        notes.push(format!(
            "{} could not be killed.",
            count_processes(unkillable_processes)
        ));
    }
    // A shell reports a file without the executable bit as "permission denied", which looks like
    // the sandbox but is not.
    let confined = outcome
        .sandbox
        .as_ref()
        .filter(|_| outcome.end != CommandExit::Exited(126));
    notes.extend(confined.and_then(sandbox_note));
    notes.extend(
        outcome
            .sandbox
            .iter()
            .flat_map(|report| &report.withheld)
            .map(withheld_note),
    );
    notes.extend(outcome.sandbox.iter().flat_map(connection_notes));
    notes
}

/// Returns remarks on the connections of a command through the proxy of package registries, with advice.
pub(crate) fn connection_notes(confined: &SandboxReport) -> Vec<String> {
    let note = |connection: &HostConnection| {
        let advice = match connection.outcome {
            ConnectionOutcome::Reached | ConnectionOutcome::Unreachable => "",
            ConnectionOutcome::Unlisted
            | ConnectionOutcome::PrivateAddress
            | ConnectionOutcome::OtherName => {
                " Tell the user; with network instead of registries, they are asked for all hosts."
            }
        };
        capitalize_first(&format!("{connection}.{advice}"))
    };
    confined.connections.iter().map(note).collect()
}

/// Returns a remark on what the sandbox probably denied a command, with advice.
pub(crate) fn sandbox_note(confined: &SandboxReport) -> Option<String> {
    let note = confined.note.as_ref()?;
    let advice = match note.kind {
        DenialKind::Network => {
            "If it installs packages, call again with registries; if it cannot do without the network, with network: the user is asked."
        }
        DenialKind::Loopback => {
            "If the server is a job, start and use it on one command line. If it runs outside of the sandbox, name its address and port, \
             such as `127.0.0.1:8080`, on the line; or call again with network: the user is asked."
        }
        DenialKind::Files => {
            "Work within that; if it cannot be done so, call again with unconfined: the user is asked."
        }
    };
    Some(format!("{} {advice}", note.message))
}

/// Says what became of a protected file that a command wrote, and what to do.
pub(crate) fn withheld_note(withheld: &WithheldPath) -> String {
    let WithheldPath {
        path,
        kept_as,
        restored,
    } = withheld;
    if !restored {
        return format!(
            "Commands may not change `{path}`, which is protected, and it could not be restored. Tell the user."
        );
    }
    match kept_as {
        Some(name) => format!(
            "Commands may not change `{path}`, which is protected: what was written there is now `{name}`. Use a file tool for it, or \
             call again with unconfined: the user is asked."
        ),
        None => format!(
            "Commands may not remove `{path}`, which is protected: it was restored. Call again with unconfined if it has to go: the \
             user is asked."
        ),
    }
}

/// Renders the start of a job, or its end if it was short.
fn started_output(page: &OutputPage, is_isolated: bool) -> ToolOutput {
    let number = page.info().number;
    let state = &page.info().state;
    let printed = page.first_output();
    let JobState::Ended(ending) = state else {
        let reach = if is_isolated {
            " Other commands do not reach its ports: talk to it on one command line, or give network to both."
        } else {
            ""
        };
        return ToolOutput::done(format!(
            "Job {number} runs in the background. {printed}\n[Use read_command_output to read on, stop_command to end it.{reach}]"
        ));
    };
    let mut message = format!(
        "Job {number} has ended: {}. {printed}",
        describe_state(state)
    );
    let sandbox = page.info().sandbox.as_ref();
    let notes = sandbox.and_then(sandbox_note).into_iter();
    for note in notes.chain(sandbox.into_iter().flat_map(connection_notes)) {
        message.push_str(&format!("\n[{note}]"));
    }
    ToolOutput {
        // A job that ended within the first moments is checked as a command is.
        failed: ending.end != CommandExit::Exited(0),
        ..ToolOutput::done(message)
    }
}

/// Formats a number of seconds: `1 second`, `2 seconds`.
fn count_seconds(seconds: u64) -> String {
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
}

/// Passes the output of a running command on as text, up to a limit.
struct OutputPreview<'a> {
    stdout: StreamDecoder,
    stderr: StreamDecoder,
    /// The number of bytes that are still passed on.
    bytes_left: usize,
    progress: ProgressSink<'a>,
}

impl OutputPreview<'_> {
    /// Passes on a piece of one stream.
    fn push_bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        if self.bytes_left == 0 {
            return;
        }
        let decoder = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        // A piece may exceed the limit; it is still passed on whole.
        decoder.push_bytes(bytes, self.progress);
        if self.bytes_left == 0 {
            (self.progress)("\n[… the rest is not shown while it comes …]\n");
        }
    }

    /// Passes on the remaining output of both streams.
    fn flush_streams(mut self) {
        self.stdout.flush_pending(self.progress);
        self.stderr.flush_pending(self.progress);
    }
}

/// Decodes one stream as UTF-8. Each invalid sequence becomes a replacement character.
#[derive(Default)]
struct StreamDecoder {
    /// The start of a character whose rest has not come yet; at most three bytes.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// Decodes a piece, and passes on all complete characters.
    fn push_bytes(&mut self, bytes: &[u8], progress: &mut (dyn FnMut(&str) + Send)) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            let error = std::str::from_utf8(rest).err();
            let (valid, invalid) =
                rest.split_at(error.map_or(rest.len(), |error| error.valid_up_to()));
            if let Some(text) = std::str::from_utf8(valid)
                .ok()
                .filter(|text| !text.is_empty())
            {
                progress(text);
            }
            rest = invalid;
            // No length: the sequence is not invalid, only incomplete.
            let Some(length) = error.and_then(|error| error.error_len()) else {
                break;
            };
            progress("\u{fffd}");
            rest = invalid.get(length..).unwrap_or_default();
        }
        self.pending = rest.to_vec();
    }

    /// Ends the stream. A character that stayed incomplete becomes a replacement character.
    fn flush_pending(&mut self, progress: &mut (dyn FnMut(&str) + Send)) {
        if !self.pending.is_empty() {
            self.pending.clear();
            progress("\u{fffd}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], expected: &str) {
        let mut text = String::new();
        let mut decoder = StreamDecoder::default();
        for piece in pieces {
            decoder.push_bytes(piece, &mut |piece| text.push_str(piece));
        }
        decoder.flush_pending(&mut |piece| text.push_str(piece));
        assert_eq!(text, expected);
    }

    #[test]
    fn cut_characters_are_joined() {
        check(&[b"a\xc3", b"\xa9b"], "aéb");
        check(&[b"\xf0", b"\x9f", b"\x98\x80", b"x"], "\u{1f600}x");
        check(
            &[b"\xffa\xc3(", b"b\xe2\x82"],
            "\u{fffd}a\u{fffd}(b\u{fffd}",
        );
    }
}
