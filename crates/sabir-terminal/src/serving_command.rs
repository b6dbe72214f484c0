//! The commands `grammar`, `torture` and `corpus` with their arguments.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use sabir_session::call::ParallelCalls;
use sabir_session::call::dialect::DialectSet;
use sabir_session::{Environment, SessionError, built_in_tools, config};
use sabir_toolbox::ToolboxError;
use sabir_toolbox::corpus::{
    CorpusCase, CorpusReport, answer_line, collect_cases, score_answers, write_cases,
};
use sabir_toolbox::grammar::{GrammarOptions, derive_grammar};
use sabir_toolbox::parse::{find_dialect, parse_tools};
use sabir_toolbox::report::{Report, write_json_line};
use sabir_torture::{
    CellResult, ClientApi, EndpointOptions, EndpointTest, RunOptions, TortureError, TortureReport,
    built_in_presets, check_result_file, custom_preset, make_names_unique, prepare_folder,
    run_agent, run_filter, select_cases, write_badge, write_html, write_junit, write_result_file,
};

use crate::print;
use crate::report_output::ReportOutput;

/// A command for people who serve models.
#[derive(Debug, Subcommand)]
pub enum ServingCommand {
    /// Print a grammar for constrained decoding, with which a model writes only valid calls of these tools.
    ///
    /// The grammar describes a message of calls in the dialect. Parts of a schema that it cannot
    /// express are listed on standard error. See `sabir help grammars`.
    Grammar(GrammarArguments),
    /// Test an agent with a provider that misbehaves: calls leak into the text, streams are cut,
    /// answers are unusable.
    ///
    /// Each case runs the agent once, in an empty home and an empty folder, against a provider on
    /// 127.0.0.1, and asks it to write one file. The verdict depends on the files that it leaves.
    /// Name known agents with --agent, or write any command behind `--`, in which `{base_url}`,
    /// `{model}`, `{task}`, `{home}` and `{work}` are replaced. The agent is not confined: it runs
    /// what the provider calls, which only writes into the folder. The exit code is 0 even if cells
    /// are missed, unless `--fail-on missed` is given; it is 4 if a cell is wrong, or tested
    /// nothing because the agent never asked the provider or offered no tool, and 2 if an agent
    /// cannot be started. See `sabir help torture`.
    Torture(TortureArguments),
    /// Export the examples of all dialects' specs as JSON lines, and score other parsers with them. See `sabir help corpus`.
    Corpus {
        /// The action on the corpus.
        #[command(subcommand)]
        command: CorpusCommand,
    },
}

/// An action on the corpus.
#[derive(Debug, Subcommand)]
pub enum CorpusCommand {
    /// Print all cases, one JSON object per line, with the expected calls.
    Export,
    /// Score a parser: it gets the cases on standard input, without the expected calls, and prints
    /// an answer for each.
    ///
    /// The exit code is 0 for any score, 4 if cases have no answer, and 2 if the parser fails or
    /// prints nothing for too long.
    Score {
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// The seconds without any output after which the parser is killed.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        limit: u64,
        /// The command of the parser.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Answer the cases on standard input with Sabir's own parser.
    Answer,
}

/// Options of `sabir grammar`.
#[derive(Debug, Args)]
pub struct GrammarArguments {
    /// The dialect of the calls. `sabir dialects` lists them.
    #[arg(long)]
    dialect: String,
    /// A JSON array of `{name, description, parameters}`, or another API's list, as for `sabir parse`; by default the built-in tools.
    #[arg(long)]
    tools: Option<PathBuf>,
    /// The format: `gbnf` for llama.cpp, `lark` for llguidance, `json-schema`, `structural-tag` for XGrammar, or `regex`.
    #[arg(long, value_name = "FORMAT", default_value = "gbnf")]
    format: String,
    /// Accept several calls in a message.
    #[arg(long)]
    many: bool,
    /// Print a JSON object with the grammar and the keywords that it leaves to the check.
    #[arg(long)]
    json: bool,
}

/// Options of `sabir torture`.
#[derive(Debug, Args)]
pub struct TortureArguments {
    /// Test the gateway at this address instead of an agent: its upstream must be the provider, whose address is printed. Only `http`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["agent", "command"])]
    endpoint: Option<String>,
    /// The API of the gateway's client: `openai`, `anthropic` or `ollama`. May be given several times.
    #[arg(
        long,
        value_name = "API",
        value_enum,
        default_value = "openai",
        requires = "endpoint"
    )]
    client: Vec<ClientName>,
    /// The port of 127.0.0.1 on which the provider behind the gateway listens. By default any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "endpoint")]
    listen: u16,
    /// The model in the requests to the gateway.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "torture-1",
        requires = "endpoint"
    )]
    model: String,
    /// A known agent, whose program is found in PATH; `list` lists them. May be given several times.
    #[arg(long, value_name = "NAME")]
    agent: Vec<String>,
    /// Only cases whose name contains this word. May be given several times. By default all but `silence`, which takes long.
    #[arg(long, value_name = "WORD")]
    case: Vec<String>,
    /// The folder for the agents' homes and folders, and their outputs.
    #[arg(long, default_value = "torture")]
    folder: PathBuf,
    /// The seconds that an agent has for a case.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Also write JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write a scorecard as an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write a badge as SVG.
    #[arg(long, value_name = "FILE")]
    badge: Option<PathBuf>,
    /// The verdicts that make the exit code 4, besides cells that tested nothing.
    #[arg(long, value_name = "VERDICT", value_enum, default_value = "wrong")]
    fail_on: FailingVerdict,
    /// The name of the command's column. By default its first word.
    #[arg(long, value_name = "NAME", requires = "command")]
    name: Option<String>,
    /// The command of any other agent. A relative path of the program starts in the current folder; other relative paths start in the
    /// agent's own, empty folder.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The verdicts that make the exit code 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailingVerdict {
    /// Something wrong was written, or arrived.
    Wrong,
    /// Also missed and hung cells.
    Missed,
}

/// An API of a gateway's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClientName {
    /// Chat Completions.
    Openai,
    /// Messages.
    Anthropic,
    /// Ollama's chat.
    Ollama,
}

/// A reason why a command for people who serve models has no result.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// A file cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The options or the input cannot be used.
    #[error(transparent)]
    Toolbox(#[from] ToolboxError),
    /// A torture run could not be done.
    #[error(transparent)]
    Torture(#[from] TortureError),
    /// A parser that is scored failed.
    #[error(transparent)]
    Parser(#[from] ParserFailure),
    /// Agents of a torture run could not be tested.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Agents(Vec<AgentFailure>),
    /// The options name nothing that can be tested.
    #[error("{0}")]
    Selection(&'static str),
    /// No preset has this name.
    #[error(
        "`{0}` is not a known agent: `sabir torture --agent list` lists them; any other one is tested with `sabir torture -- COMMAND`"
    )]
    UnknownAgent(String),
    /// The built-in list of agents cannot be read.
    #[error("the list of known agents: {0}")]
    Presets(#[from] serde_json::Error),
    /// The current folder is not known.
    #[error("the current folder: {0}")]
    CurrentFolder(std::io::Error),
    /// The asynchronous runtime cannot start.
    #[error("the runtime cannot start: {0}")]
    Runtime(std::io::Error),
    /// A format's name is not known.
    #[error(transparent)]
    Format(#[from] sabir_toolbox::grammar::ParseGrammarFormatError),
}

/// The failure of a parser that is scored.
#[derive(Debug, thiserror::Error)]
#[error(
    "the parser `{program}` failed ({failure}) after {answers} of {cases} answers\n{error_tail}"
)]
pub struct ParserFailure {
    /// The program.
    program: String,
    /// The way it ended.
    failure: String,
    /// The number of cases that it answered.
    answers: usize,
    /// The number of all cases.
    cases: usize,
    /// The end of its standard error.
    error_tail: String,
}

/// The reason why the remaining cases of an agent were not tried.
#[derive(Debug, thiserror::Error)]
#[error("{agent} {case}: {error}")]
pub struct AgentFailure {
    /// The agent's name.
    agent: String,
    /// The first case that could not be tried.
    case: &'static str,
    /// The reason.
    error: TortureError,
}

/// Runs a command, and reports whether everything was as it should be.
///
/// # Errors
/// When a file cannot be read, or the command has no result.
pub fn run_serving_command(
    command: &ServingCommand,
    environment: &Environment,
) -> Result<bool, ServingError> {
    match command {
        ServingCommand::Grammar(arguments) => {
            run_grammar(arguments, &environment.dialects)?;
            Ok(true)
        }
        ServingCommand::Torture(arguments) => run_torture(arguments, environment),
        ServingCommand::Corpus { command } => run_corpus(command, environment),
    }
}

fn run_corpus(command: &CorpusCommand, environment: &Environment) -> Result<bool, ServingError> {
    let cases = collect_cases();
    match command {
        CorpusCommand::Export => {
            let lines = write_cases(&cases, false).map_err(ToolboxError::from)?;
            // Control characters are part of the cases, so a file gets the bytes as they are.
            let written = ReportOutput::exact().write_all(&lines);
            written.map_err(ToolboxError::from)?;
            Ok(true)
        }
        CorpusCommand::Answer => {
            let lines = std::io::stdin().lines();
            for line in lines {
                let line = line.map_err(ToolboxError::from)?;
                let answer = answer_line(&line)?;
                write_json_line(&answer, &mut ReportOutput::exact()).map_err(ToolboxError::from)?;
            }
            Ok(true)
        }
        CorpusCommand::Score {
            json,
            limit,
            command,
        } => {
            let limit = Duration::from_secs(*limit);
            let report = score_parser(&cases, command, limit, environment)?;
            let written = match json {
                true => report.write_json(&mut ReportOutput::json()),
                false => report.write_text(&mut ReportOutput::cleaned()),
            };
            written.map_err(ToolboxError::from)?;
            let unanswered = report.total.unanswered;
            if unanswered > 0 {
                print::write_stderr(&format!(
                    "{unanswered} of {} cases have no answer: a line {{\"id\": …, \"calls\": […]}} for each is expected\n",
                    report.total.cases
                ));
            }
            Ok(unanswered == 0)
        }
    }
}

/// Runs a parser, and scores its answers.
fn score_parser(
    cases: &[CorpusCase],
    command: &[String],
    limit: Duration,
    environment: &Environment,
) -> Result<CorpusReport, ServingError> {
    let input = write_cases(cases, true).map_err(ToolboxError::from)?;
    let runtime = tokio::runtime::Runtime::new().map_err(ServingError::Runtime)?;
    // Unlike an agent under test, the parser is the user's own program and may need all of the
    // environment, such as the path of its libraries.
    let variables = environment.all_variables();
    let helper = environment.helper_program.clone();
    let outcome = runtime.block_on(run_filter(command, variables, &helper, input, limit))?;
    let report = score_answers(cases, &outcome.output);
    match outcome.failure {
        // Scores of a part of the cases would look like those of a weak parser.
        Some(failure) => Err(ServingError::Parser(ParserFailure {
            program: command.first().cloned().unwrap_or_default(),
            failure,
            answers: report.total.cases - report.total.unanswered,
            cases: report.total.cases,
            error_tail: outcome.error_tail.trim_end().to_owned(),
        })),
        None => {
            print::write_stderr(&print::sanitize_text(&outcome.error_tail));
            Ok(report)
        }
    }
}

fn run_torture(
    arguments: &TortureArguments,
    environment: &Environment,
) -> Result<bool, ServingError> {
    let outputs = [&arguments.junit, &arguments.html, &arguments.badge];
    for path in outputs.into_iter().flatten() {
        check_result_file(path)?;
    }
    if let Some(endpoint) = &arguments.endpoint {
        return run_endpoint_torture(endpoint, arguments);
    }
    let known = built_in_presets()?;
    if arguments.agent.iter().any(|name| name == "list") {
        let lines = known
            .iter()
            .map(|preset| format!("{}\n    {}\n", preset.name, preset.package));
        print::write_stdout_bytes(lines.collect::<String>().as_bytes());
        return Ok(true);
    }
    let mut presets = Vec::new();
    for name in &arguments.agent {
        let preset = known.iter().find(|preset| preset.name == *name);
        presets.push(
            preset
                .cloned()
                .ok_or_else(|| ServingError::UnknownAgent(name.clone()))?,
        );
    }
    if !arguments.command.is_empty() {
        let mut preset = custom_preset(&arguments.command);
        preset
            .make_program_absolute()
            .map_err(ServingError::CurrentFolder)?;
        if let Some(name) = &arguments.name {
            preset.name.clone_from(name);
        }
        presets.push(preset);
    }
    make_names_unique(&mut presets);
    let cases = select_cases(&arguments.case);
    if presets.is_empty() {
        return Err(ServingError::Selection(
            "name an agent: `sabir torture --agent NAME` (`list` lists them), or `sabir torture -- COMMAND`",
        ));
    }
    if cases.is_empty() {
        return Err(ServingError::Selection(
            "no case has such a word in its name",
        ));
    }
    let options = RunOptions {
        helper: environment.helper_program.clone(),
        path: environment.variable("PATH").unwrap_or_default().to_owned(),
        // Made absolute, since agents start in a folder of their own.
        folder: prepare_folder(&arguments.folder)?,
        limit: Duration::from_secs(arguments.limit),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(ServingError::Runtime)?;
    let mut report = TortureReport::default();
    let mut failures = Vec::new();
    for preset in &presets {
        for case in &cases {
            let cell = match runtime.block_on(run_agent(preset, case, &options)) {
                Ok(cell) => cell,
                Err(error) => {
                    // Verdicts of other agents are still reported. This agent would fail in the
                    // other cases too.
                    failures.push(AgentFailure {
                        agent: preset.name.clone(),
                        case: case.name,
                        error,
                    });
                    break;
                }
            };
            show_cell(&cell);
            report.cells.push(cell);
        }
    }
    write_torture_report(&report, arguments)?;
    let untested = report.untested_text();
    if !untested.is_empty() {
        print::write_stderr(&print::sanitize_text(&format!(
            "{untested}check that the command has `{{task}}`, that the agent asks `{{base_url}}` or reads one of the variables that hold the \
             address, and that paths in its arguments are absolute, since it starts in an empty folder; {}/AGENT/CASE/output.txt has what it \
             printed\n",
            arguments.folder.display()
        )));
    }
    if !failures.is_empty() {
        return Err(ServingError::Agents(failures));
    }
    Ok(is_run_good(&report, arguments.fail_on))
}

/// Reports whether all cells were tested and none has a verdict that fails the run. A missed call is a weakness of the agent and, unless
/// the user says so, no failure of the run.
fn is_run_good(report: &TortureReport, fail_on: FailingVerdict) -> bool {
    let score = report.score();
    score.tested == score.cells
        && match fail_on {
            FailingVerdict::Wrong => score.wrong == 0,
            FailingVerdict::Missed => score.passed == score.cells,
        }
}

/// Shows a verdict at once, beside the report on standard output: a run takes minutes.
fn show_cell(cell: &CellResult) {
    print::write_stderr(&print::sanitize_text(&format!(
        "{} {}: {}\n",
        cell.agent,
        cell.case,
        cell.verdict.word()
    )));
}

/// Tests a gateway.
fn run_endpoint_torture(
    endpoint: &str,
    arguments: &TortureArguments,
) -> Result<bool, ServingError> {
    let cases = select_cases(&arguments.case);
    if cases.is_empty() {
        return Err(ServingError::Selection(
            "no case has such a word in its name",
        ));
    }
    if !endpoint.starts_with("http://") {
        return Err(ServingError::Selection(
            "--endpoint needs an address that begins with http://",
        ));
    }
    let options = EndpointOptions {
        endpoint: endpoint.to_owned(),
        model: arguments.model.clone(),
        limit: Duration::from_secs(arguments.limit),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(ServingError::Runtime)?;
    let report = runtime.block_on(async {
        let test = EndpointTest::start(options, arguments.listen).await?;
        print::write_stderr(&format!(
            "the provider listens on http://{} and has every API; the gateway's upstream must be this address\n",
            test.provider_address()
        ));
        test.wait_for_gateway().await?;
        let mut report = TortureReport::default();
        for client in &arguments.client {
            let client = match client {
                ClientName::Openai => ClientApi::OpenAi,
                ClientName::Anthropic => ClientApi::Anthropic,
                ClientName::Ollama => ClientApi::Ollama,
            };
            for case in &cases {
                let cell = test.run_case(case, client).await;
                show_cell(&cell);
                report.cells.push(cell);
            }
        }
        Ok::<_, TortureError>(report)
    })?;
    write_torture_report(&report, arguments)?;
    if report.score().tested == 0 {
        return Err(ServingError::Selection(
            "no case could be tested: the gateway did not ask the provider at the address above",
        ));
    }
    print::write_stderr(&report.untested_text());
    Ok(is_run_good(&report, arguments.fail_on))
}

/// Writes a report in the forms that were asked for.
fn write_torture_report(
    report: &TortureReport,
    arguments: &TortureArguments,
) -> Result<(), ServingError> {
    // The table comes first: if a file cannot be written now, minutes of runs are not lost.
    if arguments.json {
        write_json_line(report, &mut ReportOutput::json()).map_err(ToolboxError::from)?;
    } else if !report.cells.is_empty() {
        print::write_stdout_bytes(print::sanitize_text(&report.to_table()).as_bytes());
    }
    for (path, text) in [
        (&arguments.junit, write_junit(report)),
        (&arguments.html, write_html(report)),
        (&arguments.badge, write_badge(report)),
    ] {
        if let Some(path) = path {
            write_result_file(path, &text)?;
        }
    }
    Ok(())
}

fn run_grammar(arguments: &GrammarArguments, dialects: &DialectSet) -> Result<(), ServingError> {
    let tools = match &arguments.tools {
        None => built_in_tools(),
        Some(path) => parse_tools(&config::read_text(path)?, &path.display().to_string())?,
    };
    if arguments.dialect == "auto" {
        return Err(ServingError::Selection(
            "a grammar is of one dialect, so `auto` is none: `sabir dialects` lists them, and `sabir dialects --from-template FILE` \
             finds the one that a model's chat template teaches",
        ));
    }
    let report = derive_grammar(&GrammarOptions {
        dialect: find_dialect(dialects, &arguments.dialect, "")?,
        tools,
        format: arguments.format.parse()?,
        parallel_calls: if arguments.many {
            ParallelCalls::Many
        } else {
            ParallelCalls::One
        },
    })?;
    let written = if arguments.json {
        report.write_json(&mut ReportOutput::json())
    } else {
        // Standard output is the grammar alone, which is usually redirected into a file.
        print::write_stderr(&print::sanitize_text(&report.relaxation_text()));
        report.write_text(&mut ReportOutput::exact())
    };
    Ok(written.map_err(ToolboxError::from)?)
}
