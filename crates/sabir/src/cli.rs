//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use sabir_session::call::{ParallelCalls, TextRecovery};
use sabir_session::{
    Interactivity, InterfaceChoice, NetworkChoice, RecordMode, SandboxSpec, SessionSpec,
    SubtaskSpec,
};
use sabir_terminal::command_names::{CommandNames, group_commands};
use sabir_terminal::mcp_command::McpArguments;
use sabir_terminal::serving_command::ServingCommand;
use sabir_terminal::shell_setup::Shell;

pub(crate) use completion_options::CompletionFlags;
pub(crate) use config::{ConfigArguments, ConfigCommand};
pub(crate) use context::ContextArguments;
pub(crate) use files::{
    ConsentFlags, EditArguments, EditFormat, HistoryArguments, RestoreArguments, UndoArguments,
};
pub(crate) use journal::{
    CheckTaskArguments, ExportArguments, ExportFormat, ForkArguments, ImportArguments,
    LogArguments, TasksArguments,
};
pub(crate) use limits::{
    ModesArguments, PolicyCommand, PolicyExplainArguments, RuleFlags, RuleOptions,
    SandboxArguments, SecurityArguments, SimulateArguments, TrustArguments,
};

use crate::exit::CommandError;
use crate::output::print;
use crate::process_environment;
use deferred::Deferred;

mod completion_options;
mod config;
mod context;
mod deferred;
mod files;
mod journal;
mod limits;

/// A terminal coding agent that understands every way a language model asks for a tool.
#[derive(Debug, Parser)]
#[command(
    name = "sabir",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The configuration file.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,
    /// A TOML file with your own dialects, which can be used like built-in ones. May be given several times. See `sabir help
    /// dialects`.
    #[arg(
        long,
        global = true,
        value_name = "FILE.toml",
        help_heading = "Global options"
    )]
    pub(crate) dialects: Vec<PathBuf>,
    /// The interface of interactive tasks: `full` draws below the history, `line` prints line by
    /// line, `screen-reader` never redraws anything. By default the configuration decides, then
    /// `auto`: `full` where the terminal can show it.
    #[arg(
        long,
        global = true,
        value_name = "auto|full|line|screen-reader",
        help_heading = "Global options"
    )]
    pub(crate) interface: Option<InterfaceChoice>,
    /// Do the task without asking questions and print the result, like `sabir run`.
    #[arg(long, short)]
    pub(crate) print: bool,
    /// Continue the newest task of this folder, with the words as a new message.
    #[arg(long = "continue", short = 'c')]
    pub(crate) continues: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    #[command(flatten)]
    pub(crate) pictures: ImageOptions,
    /// The task; without it, Sabir asks for one. The task is interactive: Sabir asks before it changes anything. Messages typed while
    /// it works are queued; `/now MESSAGE` interrupts. `/image FILE` adds an image to your next message, `/mode NAME` switches the
    /// mode, `/context` shows what fills the context, `/compact` compacts it, and `/quit` leaves when it is your turn.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Do a task without asking questions.
    Run(Deferred<RunArguments>),
    /// Continue a task. A completed one needs a new message.
    Resume(Deferred<ResumeArguments>),
    /// Start a new task from the first records of another one, which does not change. See `sabir help journal`.
    Fork(Deferred<ForkArguments>),
    /// Show the history of a task.
    Log(Deferred<LogArguments>),
    /// Show what fills a task's context, compact it, or undo a compaction. See docs/context.md.
    Context(Deferred<ContextArguments>),
    /// List the tasks, newest first.
    Tasks(Deferred<TasksArguments>),
    /// Write a task as Markdown, JSON or HTML, with secrets redacted.
    Export(Deferred<ExportArguments>),
    /// Import a task from another program (Cline, Roo Code, Claude Code), to read, check and fork it.
    Import(Deferred<ImportArguments>),
    /// List the checkpoints of a task, by default of the newest one of this folder: the calls that can be undone.
    Checkpoints(Deferred<HistoryArguments>),
    /// Show what a task changed, as a diff: everything, or its last N changing calls.
    Diff(Deferred<HistoryArguments>),
    /// Undo the changes since your last message, or the last N changing calls. First shows what would happen.
    Undo(Deferred<UndoArguments>),
    /// Restore files to their state before a call of a task. First shows what would happen.
    Restore(Deferred<RestoreArguments>),
    /// Write a commented configuration, with a model that can be used here. Never changes an existing one.
    Init,
    /// Try Sabir: a scripted model drives the real tools in a scratch folder. Needs no key and no network.
    Tour {
        /// The scratch folder; it must not exist yet. By default a new one in the temporary folder, which is kept.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Read raw assistant text from standard input and print the calls and texts in it.
    Parse(Deferred<ParseArguments>),
    /// Like `parse`, but print only errors, as diagnostics, and the feedback that the model would get.
    Check(Deferred<CheckTaskArguments>),
    /// Like `parse`, but print how the text was understood: every marker, its meaning, its certainty, and the reason.
    Explain(Deferred<CheckArguments>),
    /// Print the system prompt that teaches the tools in a dialect, and its size.
    Prompt(Deferred<PromptArguments>),
    #[command(flatten)]
    Serving(ServingCommand),
    /// List the dialects, print the spec of one, or recognize the dialect that a chat template teaches.
    Dialects {
        /// The dialect, by name or alias.
        name: Option<String>,
        /// A chat template in Jinja, or the `tokenizer_config.json` of a model. Prints the dialect
        /// in which it writes calls, with a call as proof. `-` is standard input. The exit code is
        /// 4 unless exactly one dialect fits; templates without tools are ignored if another one
        /// has tools.
        #[arg(long, value_name = "FILE", conflicts_with = "name")]
        from_template: Option<PathBuf>,
        /// The output format.
        #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// List the providers with their key variables, the servers on this machine, and the known models.
    Models(Deferred<ModelsArguments>),
    /// Check the setup. With a model, test its abilities with a few requests.
    Doctor(Deferred<DoctorArguments>),
    /// Check, show and change the configuration. See `sabir help config`.
    Config(Deferred<ConfigArguments>),
    /// Serve models to any client: the APIs of Anthropic, OpenAI (Chat Completions and Responses), Gemini and Ollama in front of any model, with
    /// native tool calls even from one that only writes text.
    ///
    /// Prints its address and the settings for clients, then serves until SIGINT or SIGTERM, and writes one line on standard error for
    /// each request. SIGHUP reloads the configuration. See `sabir help gateway`.
    Gateway(Deferred<sabir_terminal::gateway_command::GatewayArguments>),
    /// Serve editors and other programs with the Agent Client Protocol, over standard input and
    /// output. See `sabir help acp`.
    Acp(Deferred<AcpArguments>),
    /// Run a command in the sandbox, to try it.
    ///
    /// The command can write in the folder and in a private temporary folder, and has no network and no privileges. Level 1 uses
    /// Landlock and a system call filter (Linux 6.2); it restores `.git/hooks` and similar files in the folder when the command has
    /// ended, and does not protect the modes and times of files elsewhere. Level 2 adds namespaces, which hide secrets, other
    /// processes and the rest of /tmp and /dev. There is no standard input. The exit code is the command's.
    Sandbox(Deferred<SandboxArguments>),
    /// Test each wall of the sandbox on this machine, and report which ones hold.
    ///
    /// Each attempt is also made without a sandbox, where it must succeed; otherwise the wall is `untested`. `put back` means that
    /// the change was undone when the command had ended. The exit code is 1 if a wall is open.
    Security(Deferred<SecurityArguments>),
    /// Find mistakes in tool definitions: colliding names, schemas that a format cannot express, missing descriptions.
    Lint(Deferred<LintArguments>),
    /// List, add, remove, trust, test and log in to MCP servers, and serve Sabir's tools over MCP.
    /// See `sabir help mcp`.
    Mcp(Deferred<McpArguments>),
    /// Apply an edit, as a model writes it, from standard input to a file: SEARCH/REPLACE blocks, `*** Begin Patch`, a string to
    /// replace, or a whole file. Prints the changes. See `sabir help edits`.
    Edit(Deferred<EditArguments>),
    /// Explain and try the rules, which decide what runs without asking.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// List the modes: named sets of tools and instructions, for `--mode`.
    Modes(Deferred<ModesArguments>),
    /// Show what a repository's own configuration makes git run, and trust its present state.
    ///
    /// Until then, every git command there needs an approval. Trust also lets builds run without asking in the sandbox at level 2,
    /// without network. It applies to a hash of everything that is shown; if any of it changes, git commands need approvals again. A
    /// nested repository needs its own trust.
    Trust(Deferred<TrustArguments>),
    /// Work with provider APIs.
    Wire {
        #[command(subcommand)]
        command: WireCommand,
    },
    /// Print a script with shell completions for commands and options: `source <(sabir completions bash)`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the man page of `sabir`, or write it and the pages of all commands into a folder.
    Man {
        /// The folder, such as `~/.local/share/man/man1`.
        folder: Option<PathBuf>,
    },
    /// Explain a command or a topic. Topics are the first steps (`help guide`), messages and their fixes (`help troubleshooting`),
    /// all keys of the configuration (`help config`), a dialect (`help dialect NAME`), a tool (`help tool NAME`), how to define
    /// dialects (`help dialects`), the findings of `lint` (`help lints`), how edits are applied (`help edits`), checkpoints and undo
    /// (`help checkpoints`), journals (`help journal`), recordings (`help recording`), rules and approvals (`help policy`, `help
    /// approval`), modes (`help modes`), hidden files (`help ignore`), secrets (`help secrets`), the sandbox (`help sandbox`), tasks
    /// without a terminal (`help headless`, `help events`), editors (`help acp`), subtasks (`help subtasks`), MCP servers (`help mcp`),
    /// hooks (`help hooks`), telemetry (`help telemetry`), provider APIs (`help wires`, `help translation`), and the gateway
    /// (`help gateway`).
    Help {
        /// A command, `dialect NAME`, `tool NAME`, `tools`, `lints`, or one of the topics above.
        topic: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WireCommand {
    /// Read a recorded response body from standard input and print the events in it.
    Decode(DecodeArguments),
    /// Read a request from standard input, independent of wire and dialect, and print the body that would be sent.
    Encode(EncodeArguments),
}

/// Options of every task.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TaskOptions {
    /// The model: `PROVIDER/NAME`, a name that implies its provider, or `http://HOST:PORT/v1#NAME`. `sabir models` lists them.
    #[arg(long, short)]
    pub(crate) model: Option<String>,
    /// The protocol for calls: `native`, or a dialect to prompt in. By default the journal decides, then the catalogue.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// The treatment of calls that a model writes as text although it has native calls: `off` leaves them as text, `ask` asks about
    /// each that needs an approval, even if its kind is approved (or denies it if nobody can be asked), and `on` treats them like native
    /// calls. By default the configuration decides, then `ask`.
    #[arg(long, value_name = "off|ask|on")]
    pub(crate) recovery: Option<TextRecovery>,
    /// The number of calls that a message of the model may contain: `1`, or `many`. With `1`, further calls in a message are not run.
    /// By default the configuration decides, then `many`.
    #[arg(long, value_name = "1|many")]
    pub(crate) calls_per_message: Option<ParallelCalls>,
    /// The edit tool that the model is offered: `replace_in_file`, `edit_file` or `apply_patch`. By default the journal
    /// decides, then the catalogue.
    #[arg(long, value_name = "TOOL")]
    pub(crate) edit_tool: Option<String>,
    /// The folder to work in.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// The sandbox level of commands: `off`, `1`, `2`, or `best` for the highest that this machine supports, which is the default.
    /// See `sabir help sandbox`. If the level is not available, no command runs.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) sandbox: Option<String>,
    #[command(flatten)]
    pub(crate) rules: RuleFlags,
    /// The mode: a set of tools and instructions. `sabir modes` lists them. A resumed task keeps its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
    /// Give commands network access, or access to package registries only: `--network registries`. Without it, commands that need the
    /// network must be approved.
    #[arg(long, value_name = "registries", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) network: Option<NetworkChoice>,
    #[command(flatten)]
    pub(crate) ends: CompletionFlags,
    /// Take no checkpoints, so that the changes of the task cannot be undone.
    #[arg(long)]
    pub(crate) no_checkpoints: bool,
    /// Let the model delegate parts of the work to subtasks, which run concurrently, each with its own journal. See `sabir help
    /// subtasks`.
    #[arg(long)]
    pub(crate) subtasks: bool,
}

impl RecordingOptions {
    pub(crate) fn mode(&self) -> RecordMode {
        match (&self.record, &self.replay) {
            (Some(file), _) => RecordMode::Record(file.clone()),
            (None, Some(file)) => RecordMode::Replay(file.clone()),
            (None, None) => RecordMode::Off,
        }
    }
}

impl TaskOptions {
    /// Returns the spec of a session with these options.
    pub(crate) fn session_spec(
        &self,
        tape: &RecordingOptions,
        interactivity: Interactivity,
    ) -> Result<SessionSpec, CommandError> {
        Ok(SessionSpec {
            workspace: self.folder.clone(),
            config: process_environment::named_config().map(Path::to_path_buf),
            model: self.model.clone(),
            protocol: self.protocol.clone(),
            recovery: self.recovery,
            parallel_calls: self.calls_per_message,
            edit_tool: self.edit_tool.clone(),
            mode: self.mode.clone(),
            rules: self.rules.rule_spec(),
            limits: self.ends.limit_spec()?,
            completion: self.ends.completion_spec(),
            sandbox: SandboxSpec {
                level: self.sandbox.clone(),
                network: self.network,
            },
            subtasks: SubtaskSpec {
                offered: self.subtasks,
            },
            no_checkpoints: self.no_checkpoints,
            record: tape.mode(),
            interactivity,
            ..SessionSpec::default()
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct AcpArguments {
    /// The options of every session; the client chooses the folder, and may choose mode and model.
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// Write a configuration for the keys and servers of this machine, as `sabir init` does, and end.
    #[arg(long)]
    pub(crate) setup: bool,
}

/// Options for recordings of headless tasks.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Recording and control")]
pub(crate) struct RecordingOptions {
    /// Record the provider's requests and responses in a new file, without keys. See `sabir help recording`.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Replay a recording instead of asking a provider: without a network or a key, with the same task events. The tools really run,
    /// and need the same approvals as during the recording. A request that differs from the recorded one ends the task.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub(crate) replay: Option<PathBuf>,
}

/// Options for images in a message.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ImageOptions {
    /// Attach this image to the message: PNG, JPEG, GIF or WebP. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
}

/// Options for tasks that a program controls.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Recording and control")]
pub(crate) struct ControlOptions {
    /// Read control lines from standard input, one JSON object each: messages, approvals, answers, a cancellation. Needs `--output
    /// events`, which prints the questions. See `sabir help headless`.
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) control: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// The output format. `text`: progress on standard error, the result on standard output. `json`: one object at the end. `events`:
    /// one object per line, as things happen.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) tape: RecordingOptions,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) pictures: ImageOptions,
    /// Continue the newest task of this folder, with these words.
    #[arg(long = "continue", short = 'c')]
    pub(crate) continues: bool,
    /// The task. With `-` or a pipe, standard input is appended to the words. Not needed with `--replay`, or with `--control`, where
    /// the first message may be the task.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// The output format; without it the task continues interactively.
    #[arg(long, value_enum)]
    pub(crate) output: Option<OutputFormat>,
    #[command(flatten)]
    pub(crate) tape: RecordingOptions,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) pictures: ImageOptions,
    /// The task's name, or the beginning of it; by default the newest task of this folder that did not complete.
    pub(crate) id: Option<String>,
    /// A message to the model before it continues.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ParseArguments {
    #[command(flatten)]
    pub(crate) recognition: RecognitionOptions,
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

/// Arguments of commands that look at a text as a whole, and so print no events.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) recognition: RecognitionOptions,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// Options for the calls that are recognised in a text, and those that the checks pass.
#[derive(Debug, Args)]
pub(crate) struct RecognitionOptions {
    /// The dialect to recognize, or `auto` for all. `sabir dialects` lists them, `sabir help dialect NAME` explains one.
    #[arg(long, default_value = "auto")]
    pub(crate) dialect: String,
    /// Turn off a repair, besides those of `repairs_off` in the configuration: the name of a rule, or `all`. May be given several
    /// times.
    #[arg(long, value_name = "RULE")]
    pub(crate) no_repair: Vec<String>,
    /// Turn on a repair that is off by default: `missing_last_close`, for texts that are known to be complete.
    #[arg(long, value_name = "RULE")]
    pub(crate) repair: Vec<String>,
    /// Allow only one call per message; the calls after the first are rejected.
    #[arg(long)]
    pub(crate) one: bool,
    /// The end of the prompt before the text, such as `<think>`: a thought that it opens continues in the text.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) prefill: String,
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
}

/// Options for reading standard input.
#[derive(Debug, Args)]
pub(crate) struct ReadingOptions {
    /// A JSON array of `{name, description, parameters}`, or the tools of an OpenAI, Anthropic, Gemini, Bedrock or MCP request or
    /// result. By default the built-in tools, and for `wire decode` any tool.
    #[arg(long)]
    pub(crate) tools: Option<PathBuf>,
    /// Feed the input in pieces of this many bytes; 0 feeds it whole. The result is the same.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub(crate) chunk: usize,
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// The dialect to teach. `sabir dialects` lists them, `sabir help dialect NAME` explains one.
    #[arg(long, default_value = "cline")]
    pub(crate) dialect: String,
    /// A JSON array of `{name, description, parameters}`, or another API's list, as for `sabir parse`; by default the built-in tools.
    #[arg(long)]
    pub(crate) tools: Option<PathBuf>,
    /// A JSON array of connected MCP servers: `{name, instructions, tools, resources}`.
    #[arg(long)]
    pub(crate) servers: Option<PathBuf>,
    /// Teach one call per message instead of several.
    #[arg(long)]
    pub(crate) one: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArguments {
    /// List only servers on this machine, with their models.
    #[arg(long)]
    pub(crate) local: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// List only names that contain this text.
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Write the recommended protocol into the configuration file.
    #[arg(long, requires = "model")]
    pub(crate) store: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The model to test, as in --model, or the address of a server with one model. It gets about
    /// five short requests, at its usual price.
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LintArguments {
    /// A JSON array of `{name, description, parameters}`, or another API's list, as for `sabir parse`; `-` for standard input.
    #[arg(required_unless_present = "mcp")]
    pub(crate) tools: Option<PathBuf>,
    /// Lint the tools of the MCP server with this command line or address.
    #[arg(long, value_name = "COMMAND|URL", conflicts_with = "tools")]
    pub(crate) mcp: Option<String>,
    /// Check only for this dialect, not for wires.
    #[arg(long, default_value = "auto")]
    pub(crate) dialect: String,
    /// Treat findings of this level as errors.
    #[arg(long, value_enum)]
    pub(crate) deny: Option<DenyLevel>,
    /// Print the findings as SARIF 2.1.0, for code scanning.
    #[arg(long, conflicts_with = "output")]
    pub(crate) sarif: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

/// The level of findings that `lint` treats as errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DenyLevel {
    /// Warnings too.
    Warnings,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArguments {
    /// The wire; by default it is recognized by the content. `sabir help wires` lists them.
    #[arg(long)]
    pub(crate) wire: Option<String>,
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// The output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct EncodeArguments {
    /// The wire to write. `sabir help wires` lists them.
    #[arg(long)]
    pub(crate) wire: String,
    /// Read a client's request of this wire instead of a neutral one.
    #[arg(long, value_name = "WIRE")]
    pub(crate) from: Option<String>,
    /// The model, instead of the request's own.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The protocol for calls: `native`, or a dialect, which teaches the tools in the prompt.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// Ask for one complete body instead of a stream.
    #[arg(long)]
    pub(crate) whole: bool,
    /// Mark the parts that may be cached, if the wire has marks for it.
    #[arg(long)]
    pub(crate) cached: bool,
    /// OpenAI Chat: the message field for sending thoughts back, such as `reasoning_content`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) thought_field: Option<String>,
    /// The output format. `text`: the body, with the path and the headers on standard error. `json`: one object with everything.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// Prints the requested help, or the mistake in the command line, and ends the program.
fn exit_with(error: &clap::Error, arguments: &[OsString]) -> ! {
    let is_clean = arguments.iter().all(|argument| {
        let text = argument.to_string_lossy();
        print::sanitize_text(&text) == text
    });
    // An option that a command lacks is hardly ever meant as a word of the task.
    let misleads = |line: &&str| line.trim_start().starts_with("tip: to pass '-");
    let message = error.to_string();
    if is_clean && !message.lines().any(|line| misleads(&line)) {
        error.exit();
    }
    let lines = message.lines().filter(|line| !misleads(line));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let text = text.replace("\n\n\n", "\n\n");
    // The message repeats arguments as they are.
    print::write_stderr(&print::sanitize_text(&text));
    std::process::exit(error.exit_code())
}

impl Cli {
    /// Parses the command line. If it asks for help or is invalid, the program ends here.
    pub(crate) fn parse_arguments(arguments: Vec<OsString>) -> Result<Self, CommandError> {
        let command = Self::command();
        let words = CommandNames::for_arguments(&command, &arguments);
        let is_marked = arguments.iter().any(|argument| argument == "--");
        let arguments = words.reorder_arguments(arguments);
        let parse = |command: clap::Command| {
            command
                .try_get_matches_from(arguments.iter())
                .and_then(|mut matches| Self::from_arg_matches_mut(&mut matches))
        };
        // Only a help needs the groups, which take as long to make as to parse.
        let cli = parse(command)
            .or_else(|_| parse(Self::grouped_command()))
            .unwrap_or_else(|error| exit_with(&error, &arguments));
        let is_bare = cli.command.is_none() && !is_marked && !cli.continues;
        match words
            .explain_unknown_command(&cli.words)
            .filter(|_| is_bare)
        {
            Some(problem) => Err(CommandError::usage(problem)),
            None => Ok(cli),
        }
    }

    /// Returns the parser, with the commands in groups in its help.
    pub(crate) fn grouped_command() -> clap::Command {
        group_commands(Self::command())
    }
}

/// The output format of a command that can print events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// One JSON object a line.
    Events,
}

/// The output format of a command whose result is only known as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}
