//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use sabir_session::{
    CompletionSpec, Interactivity, RecordMode, SandboxSpec, SessionSpec, SubtaskSpec,
};

pub(crate) use context::ContextArguments;
pub(crate) use ends::EndFlags;
pub(crate) use files::{
    ConsentFlags, EditArguments, EditFormat, HistoryArguments, RestoreArguments, UndoArguments,
};
pub(crate) use gateway::{GatewayArguments, LogFormat};
pub(crate) use journal::{
    ExportArguments, ExportFormat, ForkArguments, ImportArguments, JudgeArguments, LogArguments,
    TasksArguments,
};
pub(crate) use limits::{
    ModesArguments, PolicyCommand, PolicyExplainArguments, RuleFlags, RuleOptions,
    SandboxArguments, SimulateArguments, TrustArguments,
};

use crate::exit::CommandError;

mod context;
mod ends;
mod files;
mod gateway;
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
    /// A TOML file with dialects of your own, usable wherever a dialect's name is. May be given several times. See
    /// `sabir help dialects`.
    #[arg(long, global = true, value_name = "FILE.toml")]
    pub(crate) dialects: Vec<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    #[command(flatten)]
    pub(crate) pictures: PictureOptions,
    /// What to do; without words Sabir asks. The task is interactive: you are asked before anything is changed. Lines typed while
    /// it works are read in their turn, `/now WORDS` at once; `/image FILE` shows a picture with what you say next, `/mode NAME`
    /// switches the mode, `/context` says what fills the context, `/compact` compacts it, `/quit` leaves when it is your turn.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Do a task without asking anybody.
    Run(RunArguments),
    /// Go on with a task that did not complete.
    Resume(ResumeArguments),
    /// Begin a new task with the first records of another, which stays as it is. See `sabir help journal`.
    Fork(ForkArguments),
    /// Show what happened in a task.
    Log(LogArguments),
    /// Show what fills a task's context; compact it, or go back on that. `docs/context.md` says how.
    Context(ContextArguments),
    /// List the tasks, the newest first.
    Tasks(TasksArguments),
    /// Write a task as Markdown, JSON or HTML, without secrets.
    Export(ExportArguments),
    /// Make a task of another program's history (Cline, Roo Code, Claude Code), to read, check and fork it.
    Import(ImportArguments),
    /// List what can be gone back on: the checkpoints of a task, by default of the newest one of this folder.
    Checkpoints(HistoryArguments),
    /// Show what a task changed, as a diff: all of it, or its last N changing calls.
    Diff(HistoryArguments),
    /// Go back before the last N changing calls of a task, by default before the last one. Shows first what would happen.
    Undo(UndoArguments),
    /// Bring files back as they were before a call of a task. Shows first what would happen.
    Restore(RestoreArguments),
    /// See it work: a scripted model drives the real tools in a scratch folder. Needs no key and no network.
    Tour {
        /// The scratch folder; it must not exist yet. Without it one is made among the temporary files, and left there.
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Read raw assistant text from standard input and print what was understood.
    Parse(ParseArguments),
    /// Like `parse`, but print only what is wrong, as diagnostics, and the feedback that the model would get.
    Check(JudgeArguments),
    /// Like `parse`, but print how the text was understood: every marker, what it was taken for, how sure, and why.
    Explain(CheckArguments),
    /// Print the system prompt that teaches the tools in a dialect, and its size.
    Prompt(PromptArguments),
    /// List the dialects, or print the spec of one.
    Dialects {
        /// The dialect, by name or alias.
        name: Option<String>,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
        output: OutputFormat,
    },
    /// List providers and their keys' variables, servers on this machine, and what is known of models.
    Models(ModelsArguments),
    /// Say what is there to work with; with a model, find out what it can do by asking it.
    Doctor(DoctorArguments),
    /// Serve models to any client: the APIs of Anthropic, OpenAI (Chat Completions and Responses) and Ollama in front of any
    /// model, with native tool calls even from one that only writes text.
    ///
    /// Prints where it listens and what to paste into clients, then serves until SIGINT or SIGTERM, and writes one line on
    /// standard error for each request. SIGHUP reads the configuration again. `sabir help gateway` says all of it.
    Gateway(GatewayArguments),
    /// Run a command of yours in the sandbox, to try it.
    ///
    /// The command can write in the folder and in a private temporary folder, and has no network and no privileges. Level 1
    /// (Landlock and a filter of system calls, Linux 6.2) does that; it does not protect `.git/hooks` and its like in the
    /// folder, nor the modes and times of files elsewhere. Level 2 does that as well, in namespaces of its own: secrets, other
    /// processes and the rest of /tmp and /dev cannot be seen. There is no standard input. The exit code is the command's.
    Sandbox(SandboxArguments),
    /// Look for mistakes in tools: names that collide, schemas that cannot be carried, words that are missing.
    Lint(LintArguments),
    /// Apply an edit, as a model writes it, from standard input to a file: SEARCH/REPLACE blocks, `*** Begin Patch`, a string to
    /// replace, or a whole file. Print what changed. See `sabir help edits`.
    Edit(EditArguments),
    /// Say what may be done without asking.
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// List the modes: named sets of tools and instructions, for `--mode`.
    Modes(ModesArguments),
    /// Show what a repository's own configuration makes git run, and trust it as it is.
    ///
    /// Until then every git command there asks. What is trusted is a hash of all that is shown; when any of it changes, git asks
    /// again. A repository in another needs its own trust.
    Trust(TrustArguments),
    /// Work with provider APIs.
    Wire {
        #[command(subcommand)]
        command: WireCommand,
    },
    /// Explain a command, a dialect (`help dialect NAME`), a tool (`help tool NAME`), how to define dialects
    /// (`help dialects`), what `lint` finds (`help lints`), how edits are applied (`help edits`), what can be undone
    /// (`help checkpoints`), journals (`help journal`), what may be done (`help policy`, `help modes`), tasks without a terminal
    /// (`help headless`, `help events`), subtasks (`help subtasks`), provider APIs (`help wires`), or the gateway (`help gateway`).
    Help {
        /// A command, `dialect NAME`, `tool NAME`, `tools`, `checkpoints`, `dialects`, `edits`, `events`, `gateway`, `headless`,
        /// `journal`, `lints`, `modes`, `policy`, `subtasks` or `wires`.
        topic: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WireCommand {
    /// Read a recorded response body from standard input and print what was understood.
    Decode(DecodeArguments),
    /// Read a request from standard input, neutral to wire and dialect, and print the body that would be sent.
    Encode(EncodeArguments),
}

/// Options of every task.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TaskOptions {
    /// The model: `PROVIDER/NAME`, a name that says its provider, or `http://HOST:PORT/v1#NAME`. `sabir models` lists them.
    #[arg(long, global = false)]
    pub(crate) model: Option<String>,
    /// How calls are asked for: `native`, or a dialect to prompt in. Without it the journal decides, then the catalogue.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// The tool for changes of files that the model is offered: `replace_in_file`, `edit_file` or `apply_patch`. Without it
    /// the journal decides, then the catalogue.
    #[arg(long, value_name = "TOOL")]
    pub(crate) edit_tool: Option<String>,
    /// The folder to work in.
    #[arg(long, short = 'C')]
    pub(crate) folder: Option<PathBuf>,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// What commands are confined to: `off`, `1`, `2`, or `best` for the best that this machine has, which it is without this.
    /// `sabir help sandbox` says what that means. A level that cannot be had runs nothing.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) sandbox: Option<String>,
    #[command(flatten)]
    pub(crate) rules: RuleFlags,
    /// The mode: a set of tools and instructions. `sabir modes` lists them. A resumed task keeps its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) mode: Option<String>,
    /// Give commands the network. Without it a command that needs it is asked about.
    #[arg(long)]
    pub(crate) network: bool,
    #[command(flatten)]
    pub(crate) ends: EndFlags,
    /// Take no checkpoints: what the task changes cannot be undone.
    #[arg(long)]
    pub(crate) no_checkpoints: bool,
    /// Let the model hand parts of the work to subtasks, which work at the same time, each with a journal of its own. See `sabir
    /// help subtasks`.
    #[arg(long)]
    pub(crate) subtasks: bool,
}

impl TaskOptions {
    /// The spec of a session with these options.
    pub(crate) fn session_spec(
        &self,
        tape: &RecordingOptions,
        interactivity: Interactivity,
    ) -> Result<SessionSpec, CommandError> {
        let record = match (&tape.record, &tape.replay) {
            (Some(file), _) => RecordMode::Record(file.clone()),
            (None, Some(file)) => RecordMode::Replay(file.clone()),
            (None, None) => RecordMode::Off,
        };
        Ok(SessionSpec {
            workspace: self.folder.clone(),
            config: self.config.clone(),
            model: self.model.clone(),
            protocol: self.protocol.clone(),
            edit_tool: self.edit_tool.clone(),
            mode: self.mode.clone(),
            rules: self.rules.rule_spec(),
            limits: self.ends.limit_spec()?,
            completion: CompletionSpec {
                check: self.ends.check.clone(),
                require_todos: self.ends.require_todos,
            },
            sandbox: SandboxSpec {
                level: self.sandbox.clone(),
                network: self.network,
            },
            subtasks: SubtaskSpec {
                offered: self.subtasks,
            },
            no_checkpoints: self.no_checkpoints,
            record,
            interactivity,
            ..SessionSpec::default()
        })
    }
}

/// Recordings of tasks that nobody attends.
#[derive(Debug, Default, Args)]
pub(crate) struct RecordingOptions {
    /// Record what the provider is asked and says into a new file, without keys. See docs/recording.md.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Play a recording instead of asking a provider: no network, no key, the same task events. The tools really work, and what
    /// they may do has to be approved as when it was recorded. A request that is not the recorded one ends the task.
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub(crate) replay: Option<PathBuf>,
}

/// Pictures that the model is shown with the words.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PictureOptions {
    /// Show the model this picture with the words: PNG, JPEG, GIF or WebP. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
}

/// Tasks that a program attends.
#[derive(Debug, Default, Args)]
pub(crate) struct ControlOptions {
    /// Read control lines from standard input, one JSON object each: messages, approvals, answers, a cancel. Needs `--output
    /// events`, on which questions come. `sabir help headless` says all of it.
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) control: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// `text`: progress on standard error, the result on standard output. `json`: one object at the end. `events`: one
    /// object a line as things happen.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) tape: RecordingOptions,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) pictures: PictureOptions,
    /// What to do; a replay knows it, and with `--control` the first message may say it.
    #[arg(required_unless_present_any = ["replay", "control"])]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    pub(crate) task: TaskOptions,
    /// How to print it; without it the task goes on interactively.
    #[arg(long, value_enum)]
    pub(crate) output: Option<OutputFormat>,
    #[command(flatten)]
    pub(crate) tape: RecordingOptions,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) pictures: PictureOptions,
    /// The task's name, or the beginning of it; without it the newest task of this folder that did not
    /// complete.
    pub(crate) id: Option<String>,
    /// What to tell the model before it goes on.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ParseArguments {
    #[command(flatten)]
    pub(crate) listening: ListeningOptions,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

/// Arguments of what looks at a text as a whole, and so has no events to print.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) listening: ListeningOptions,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

/// What is listened for in a text, and what the gates let pass.
#[derive(Debug, Args)]
pub(crate) struct ListeningOptions {
    /// The dialect to listen for, or `auto` for all. `sabir dialects` lists them, `sabir help dialect NAME` explains one.
    #[arg(long, default_value = "auto")]
    pub(crate) dialect: String,
    /// Switch a repair off, besides those of `repairs_off` in the configuration: the name of a rule, or `all`. May be
    /// given several times.
    #[arg(long, value_name = "RULE")]
    pub(crate) no_repair: Vec<String>,
    /// Allow one call a message instead of several; the calls behind the first are rejected.
    #[arg(long)]
    pub(crate) one: bool,
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
}

/// How standard input is read, and what is made of it.
#[derive(Debug, Args)]
pub(crate) struct ReadingOptions {
    /// A JSON array of `{name, description, parameters}`. Without it: the built-in tools, and for `wire decode` any tool.
    #[arg(long)]
    pub(crate) tools: Option<PathBuf>,
    /// Feed the input in pieces of so many bytes; 0: whole. The result is the same.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub(crate) chunk: usize,
}

#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    /// The dialect to teach. `sabir dialects` lists them, `sabir help dialect NAME` explains one.
    #[arg(long, default_value = "cline")]
    pub(crate) dialect: String,
    /// A JSON array of `{name, description, parameters}`; without it the built-in tools.
    #[arg(long)]
    pub(crate) tools: Option<PathBuf>,
    /// A JSON array of connected MCP servers: `{name, instructions, tools, resources}`.
    #[arg(long)]
    pub(crate) servers: Option<PathBuf>,
    /// Teach one call a message instead of several.
    #[arg(long)]
    pub(crate) one: bool,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ModelsArguments {
    /// Only servers on this machine, and what they serve.
    #[arg(long)]
    pub(crate) local: bool,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// Only what holds this in its name.
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Write the recommended protocol into the configuration file.
    #[arg(long, requires = "model")]
    pub(crate) store: bool,
    /// The configuration file.
    #[arg(long)]
    pub(crate) config: Option<PathBuf>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
    /// The model to ask, as in --model, or the address of a server with one model. It is asked some five short questions,
    /// which cost what they cost.
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LintArguments {
    /// A JSON array of `{name, description, parameters}`; `-` for standard input.
    pub(crate) tools: PathBuf,
    /// Look for what concerns this dialect alone, and no wire.
    #[arg(long, default_value = "auto")]
    pub(crate) dialect: String,
    /// Treat these as errors.
    #[arg(long, value_enum)]
    pub(crate) deny: Option<DenyLevel>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

/// What `lint` does not let pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DenyLevel {
    /// Warnings too.
    Warnings,
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArguments {
    /// The wire. `sabir help wires` lists them.
    #[arg(long)]
    pub(crate) wire: String,
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// How to print it.
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
    /// The model, in place of the request's own.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// How calls are asked for: `native`, or a dialect, which teaches the tools in words.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// Ask for one whole body instead of a stream.
    #[arg(long)]
    pub(crate) whole: bool,
    /// Mark what may be cached, where the wire has marks for it.
    #[arg(long)]
    pub(crate) cached: bool,
    /// OpenAI Chat: the message field in which thoughts go back, such as `reasoning_content`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) thought_field: Option<String>,
    /// `text`: the body, with the path and the headers on standard error. `json`: one object with all of it.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) output: ReportFormat,
}

impl Cli {
    /// Reads the command line; for help, and for what cannot be read, the program ends here.
    pub(crate) fn parse_arguments(arguments: &[OsString]) -> Result<Self, CommandError> {
        let cli = Self::parse_from(arguments);
        let behind = arguments
            .iter()
            .position(|argument| argument == "--")
            .map(|at| arguments.len() - at - 1);
        match cli
            .words
            .first()
            .filter(|_| behind != Some(cli.words.len()))
        {
            // Only options in front keep it from being the command: what they were meant for is not to be guessed.
            Some(word) if Self::command().find_subcommand(word).is_some() => {
                Err(CommandError::usage(format!(
                    "`{word}` is a command, and options stand behind it: `sabir {word} … OPTIONS`. If it is the first word of what to do, \
                 write `--` in front of the words: `sabir OPTIONS -- {}`",
                    cli.words.join(" ")
                )))
            }
            _ => Ok(cli),
        }
    }

    /// The configuration file that the command names.
    pub(crate) fn config_path(&self) -> Option<&Path> {
        let task = match &self.command {
            Some(Command::Models(arguments)) => return arguments.config.as_deref(),
            Some(Command::Doctor(arguments)) => return arguments.config.as_deref(),
            Some(Command::Gateway(arguments)) => return arguments.config.as_deref(),
            Some(Command::Run(arguments)) => &arguments.task,
            Some(Command::Resume(arguments)) => &arguments.task,
            Some(Command::Fork(arguments)) => &arguments.task,
            Some(Command::Policy {
                command: PolicyCommand::Explain(arguments),
            }) => {
                return arguments.rules.config.as_deref();
            }
            Some(Command::Modes(arguments)) => return arguments.config.as_deref(),
            Some(Command::Context(arguments)) => return arguments.config.as_deref(),
            Some(Command::Policy {
                command: PolicyCommand::Simulate(arguments),
            }) => {
                return arguments.rules.config.as_deref();
            }
            _ => &self.task,
        };
        task.config.as_deref()
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// One object.
    Json,
    /// One object a line.
    Events,
}

/// How to print what is known only as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Text,
    /// One object.
    Json,
}
