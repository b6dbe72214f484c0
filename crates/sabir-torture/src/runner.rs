//! Runs an agent in each case, and looks at what it left in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_call::MessagePart;
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript, ScriptedProvider};
use sabir_workspace::{CommandExit, OutputStream, ShellCommand, Workspace};

use crate::case::{SENTINEL, SENTINEL_CONTENT, TortureCase};
use crate::preset::AgentPreset;
use crate::report::{CellResult, Verdict};
use crate::tool_choice::ShellCall;

/// The task of every agent.
const TASK: &str = "Write ok into the file sentinel.txt in this folder, then stop.";
/// The model's name.
const MODEL: &str = "torture-1";
/// The most bytes that are read of a file. Any file that is longer than the expected one is wrong.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The most bytes that are kept of a filter's standard error.
const MAX_ERROR_BYTES: usize = 2 << 10;
/// The exit code of a shell that does not find the program.
const NOT_FOUND: i32 = 127;
/// The exit code of a shell that may not execute the program.
const NOT_EXECUTABLE: i32 = 126;
/// The text after which an agent should stop.
const DONE: &str = "I am done.";

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The program that supervises commands, which is Sabir itself.
    pub helper: PathBuf,
    /// The `PATH` in which the agent's program is found.
    pub path: String,
    /// The folder for homes, workspaces and logs.
    pub folder: PathBuf,
    /// The time that an agent has for a cell.
    pub limit: Duration,
}

/// A reason why an agent cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// A file cannot be written or read.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The provider cannot listen.
    #[error("the provider cannot listen on 127.0.0.1: {0}")]
    Provider(std::io::Error),
    /// The shell did not find the agent's program, or may not execute it.
    #[error(
        "the agent `{program}` did not run (exit code {code}): install it, or check its name, its permissions and your PATH"
    )]
    NotFound {
        /// The program.
        program: String,
        /// The exit code of the shell.
        code: i32,
    },
    /// The client of a gateway cannot be made.
    #[error("the client of the gateway cannot be created")]
    Client,
    /// No gateway answers at the address.
    #[error(
        "nothing answers at {endpoint}: start the gateway, with the provider's address above as its upstream"
    )]
    NoGateway {
        /// The address.
        endpoint: String,
    },
    /// The agent cannot be started.
    #[error("the agent cannot be started: {0}")]
    Start(#[from] sabir_workspace::WorkspaceError),
}

/// Runs an agent in a case.
///
/// # Errors
/// The cell could not be tried: the agent did not start, or its folders could not be made.
pub async fn run_agent(
    preset: &AgentPreset,
    case: &TortureCase,
    options: &RunOptions,
) -> Result<CellResult, TortureError> {
    let cell = options
        .folder
        .join(folder_name(&preset.name))
        .join(case.name);
    // Files of an earlier run would be checked as if this one had written them.
    remove_folder(&cell)?;
    let home = cell.join("home");
    let work = cell.join("work");
    make_folder(&home)?;
    make_folder(&work)?;
    let state = Arc::new(Mutex::new(CellState::default()));
    let shared = Arc::clone(&state);
    let case = *case;
    // The number of the request is not used: agents also ask for models and titles, which are no
    // attempts at the task.
    let script = ReplyScript::from_fn(move |_, request| {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.reply(&case, request)
    });
    let provider = ScriptedProvider::start(script)
        .await
        .map_err(TortureError::Provider)?;
    let names = Placeholders {
        values: BTreeMap::from([
            ("{base_url}", format!("http://{}", provider.address())),
            ("{model}", MODEL.to_owned()),
            ("{task}", TASK.to_owned()),
            ("{home}", home.display().to_string()),
            ("{work}", work.display().to_string()),
        ]),
    };
    for file in &preset.files {
        let path = home.join(&file.path);
        make_folder(path.parent().unwrap_or(&home))?;
        write_file(&path, &names.replace(&file.content))?;
    }
    let words: Vec<String> = preset
        .command
        .iter()
        .map(|word| quote_word(&names.replace(word)))
        .collect();
    let variables = preset
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), names.replace(value)));
    let basics = [
        ("PATH".to_owned(), options.path.clone()),
        ("HOME".to_owned(), home.display().to_string()),
        ("NO_COLOR".to_owned(), "1".to_owned()),
        // The provider is on this machine, whatever the user's proxy is.
        ("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()),
    ];
    let workspace = Workspace::open(&work)?;
    // An agent whose input never ends would wait for it.
    let command = ShellCommand::new(words.join(" "), &options.helper)
        .env(basics.into_iter().chain(variables))
        .standard_input(Vec::new())
        .timeout(options.limit);
    // The supervisor also ends the processes that the agent left behind, so nothing writes into the
    // folder while it is checked.
    let outcome = command.run(&workspace, |_, _| {}).await?;
    let output = outcome.output.text();
    write_file(&cell.join("output.txt"), &output)?;
    let requests: Vec<String> = provider
        .received_requests()
        .iter()
        .map(|request| format!("{}\n{}\n", request.path, request.body))
        .collect();
    write_file(&cell.join("requests.txt"), &requests.concat())?;
    // Without a request, this is the shell's exit code, not that of a command which the agent ran.
    if let CommandExit::Exited(code @ (NOT_FOUND | NOT_EXECUTABLE)) = outcome.end
        && requests.is_empty()
    {
        return Err(TortureError::NotFound {
            program: preset.command.first().cloned().unwrap_or_default(),
            code,
        });
    }
    // A panic in a reply ends the provider's task only. The counters are right even then.
    let state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let files = list_files(&work)?;
    Ok(CellResult {
        agent: preset.name.clone(),
        case: case.name.to_owned(),
        verdict: match check_files(&case, &files, outcome.end, &state) {
            // Also if it was ended at its limit, or wrote the right file by itself.
            verdict if requests.is_empty() && verdict != Verdict::Wrong => Verdict::NeverAsked,
            verdict => verdict,
        },
        end: outcome.end.to_string(),
        requests: requests.len(),
        detail: describe_files(&files),
        expected: case.expected_files(),
    })
}

/// The output of a filter, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterOutcome {
    /// Its standard output.
    pub output: String,
    /// The end of its standard error.
    pub error_tail: String,
    /// The reason why its output is not complete; `None` if it ended with exit code 0.
    pub failure: Option<String>,
}

/// Runs a program that reads this input and ends, in the current folder. A program that prints nothing for `silence_limit` is killed.
///
/// # Errors
/// The program could not be started.
pub async fn run_filter(
    command: &[String],
    variables: impl IntoIterator<Item = (String, String)>,
    helper: &Path,
    input: Vec<u8>,
    silence_limit: Duration,
) -> Result<FilterOutcome, TortureError> {
    let words: Vec<String> = command.iter().map(|word| quote_word(word)).collect();
    let workspace = Workspace::open(Path::new("."))?;
    let mut output = Vec::new();
    let mut error_tail = Vec::new();
    let (heard, mut hearing) = tokio::sync::watch::channel(());
    let silence = async move {
        // A closed channel means that the program has ended, and this future is dropped.
        while let Ok(Ok(())) = tokio::time::timeout(silence_limit, hearing.changed()).await {}
    };
    let command = ShellCommand::new(words.join(" "), helper)
        .env(variables)
        .standard_input(input)
        .cancel_when(silence);
    let outcome = command
        .run(&workspace, |stream, piece| {
            heard.send_replace(());
            match stream {
                OutputStream::Stdout => output.extend_from_slice(piece),
                OutputStream::Stderr => keep_tail(&mut error_tail, piece),
            }
        })
        .await?;
    Ok(FilterOutcome {
        output: String::from_utf8_lossy(&output).into_owned(),
        error_tail: String::from_utf8_lossy(&error_tail).into_owned(),
        failure: match outcome.end {
            CommandExit::Exited(0) => None,
            CommandExit::Cancelled => Some(format!(
                "ended, because it printed nothing for {} seconds",
                silence_limit.as_secs()
            )),
            end => Some(end.to_string()),
        },
    })
}

/// Appends bytes to a text of which only the end is kept.
fn keep_tail(tail: &mut Vec<u8>, piece: &[u8]) {
    tail.extend_from_slice(piece);
    let surplus = tail.len().saturating_sub(MAX_ERROR_BYTES);
    tail.drain(..surplus);
}

/// The state that the provider keeps of a cell.
#[derive(Debug, Default)]
struct CellState {
    /// The requests that could be answered with a call.
    attempts: usize,
    /// True if the agent offered a tool that runs commands.
    has_tool: bool,
}

impl CellState {
    fn reply(&mut self, case: &TortureCase, request: &ReceivedRequest) -> ProviderReply {
        let Some(Ok(incoming)) = &request.incoming else {
            return ProviderReply::text(DONE);
        };
        // Agents also ask for titles and summaries, without tools.
        let Some(tool) = ShellCall::find(&incoming.request.tools) else {
            return ProviderReply::text("A file");
        };
        self.has_tool = true;
        let messages = &incoming.request.messages;
        let succeeded = messages.iter().flat_map(|message| &message.parts).any(|part| {
            matches!(part, MessagePart::Result(result) if is_result_of_call(case, self.attempts, &result.id.to_string()))
        });
        if succeeded {
            return ProviderReply::text(DONE);
        }
        let attempt = self.attempts;
        self.attempts += 1;
        case.reply(attempt, &tool)
    }
}

/// Reports whether a result belongs to the correct call, and not to one that could not be carried out.
fn is_result_of_call(case: &TortureCase, attempts: usize, id: &str) -> bool {
    let is_first_wrong = matches!(case.name, "unknown-tool" | "no-arguments");
    // The ids are `call_` and the number of the attempt. The wrong call was attempt 0; its result
    // is an error from which the agent must recover.
    !is_first_wrong || attempts > 1 && !id.ends_with("call_0")
}

/// Checks a cell by the files in its folder.
fn check_files(
    case: &TortureCase,
    files: &BTreeMap<String, String>,
    end: CommandExit,
    state: &CellState,
) -> Verdict {
    let is_written = files
        .get(SENTINEL)
        .is_some_and(|text| text == SENTINEL_CONTENT);
    // Exactly the one file and no other: the rest of a cut command leaves its own.
    let is_only = files.len() == usize::from(is_written);
    if !is_only || is_written && !case.expects_file {
        return Verdict::Wrong;
    }
    if is_written == case.expects_file && state.has_tool {
        return Verdict::Passed;
    }
    if !state.has_tool {
        return Verdict::Untested;
    }
    match end {
        CommandExit::TimedOut => Verdict::Hung,
        _ => Verdict::Missed,
    }
}

fn describe_files(files: &BTreeMap<String, String>) -> String {
    let texts: Vec<String> = files
        .iter()
        .map(|(name, text)| format!("{name}: {:?}", text.chars().take(60).collect::<String>()))
        .collect();
    texts.join(", ")
}

/// The values of the placeholders in a preset.
struct Placeholders {
    values: BTreeMap<&'static str, String>,
}

impl Placeholders {
    fn replace(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.values {
            text = text.replace(name, value);
        }
        text
    }
}

/// Returns a name for an agent's folder, which is never outside its parent.
fn folder_name(agent: &str) -> String {
    let clean: String = agent
        .chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c,
            '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    // `.` and `..` are folders that exist already, and others that begin with a dot are hidden.
    let clean = clean.trim_start_matches('.');
    match clean.is_empty() {
        true => "agent".to_owned(),
        false => clean.to_owned(),
    }
}

/// Gives agents of the same name, or whose names give the same folder, different names: `codex` and `codex-2`.
pub fn make_names_unique(presets: &mut [AgentPreset]) {
    let mut taken = BTreeSet::new();
    for preset in presets {
        let base = preset.name.clone();
        let mut number = 2;
        // Compared without case, as folders are on some systems.
        while !taken.insert(folder_name(&preset.name).to_ascii_lowercase()) {
            preset.name = format!("{base}-{number}");
            number += 1;
        }
    }
}

/// Quotes a word for the shell.
fn quote_word(word: &str) -> String {
    // The shell knows no escapes between single quotes, so a quote closes them, is escaped, and
    // opens again.
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> TortureError {
    let path = path.display().to_string();
    move |error| TortureError::File { path, error }
}

fn make_folder(path: &Path) -> Result<(), TortureError> {
    std::fs::create_dir_all(path).map_err(file_error(path))
}

fn remove_folder(path: &Path) -> Result<(), TortureError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), TortureError> {
    std::fs::write(path, text).map_err(file_error(path))
}

/// Makes the folder of a run, and returns its absolute path.
///
/// # Errors
/// The folder cannot be made.
pub fn prepare_folder(path: &Path) -> Result<PathBuf, TortureError> {
    make_folder(path)?;
    std::fs::canonicalize(path).map_err(file_error(path))
}

/// Checks that a file of results can be written, before the runs that take minutes. A file that exists keeps its content.
///
/// # Errors
/// The file cannot be written.
pub fn check_result_file(path: &Path) -> Result<(), TortureError> {
    let is_new = !path.exists();
    // Opening a pipe, and closing it again, would end its reader.
    if !is_new && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    options
        .append(true)
        .create(true)
        .open(path)
        .map_err(file_error(path))?;
    if is_new {
        std::fs::remove_file(path).map_err(file_error(path))?;
    }
    Ok(())
}

/// Writes a file of results.
///
/// # Errors
/// The file cannot be written.
pub fn write_result_file(path: &Path, text: &str) -> Result<(), TortureError> {
    write_file(path, text)
}

/// Lists the entries of a folder: files with the beginning of their contents, and a description of anything else. Folders that agents
/// keep their state in are hidden and left out.
///
/// An agent may leave anything behind, so an entry that cannot be read is described as well, and fails its cell only.
fn list_files(folder: &Path) -> Result<BTreeMap<String, String>, TortureError> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(file_error(folder))? {
        let path = entry.map_err(file_error(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let text = describe_entry(&path).unwrap_or_else(|error| format!("unreadable: {error}"));
        files.insert(name.into_owned(), text);
    }
    Ok(files)
}

/// Returns the beginning of a regular file, or a description of another entry.
fn describe_entry(path: &Path) -> std::io::Result<String> {
    // Links are not followed: they may dangle, or lead to a device that has no end.
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if !kind.is_file() {
        let name = if kind.is_dir() {
            "a folder"
        } else if kind.is_symlink() {
            "a symbolic link"
        } else {
            // Opening a pipe would wait for its other end.
            "a device, pipe or socket"
        };
        return Ok(name.to_owned());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
