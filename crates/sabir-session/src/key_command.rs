//! Runs commands that print a provider's key, such as `pass show openai`.
//!
//! The command runs in the root folder, without standard input and terminal. No shell interprets its words, and since it is the user's
//! own it gets the whole environment. Its standard error becomes notices; its standard output is the key, and is never shown. It runs
//! once in a process, and again whenever a provider refuses a key that worked before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabir_model::Secret;
use sabir_workspace::{CommandExit, OutputStream, ShellCommand, Workspace};

use crate::environment::Environment;
use crate::notice::{NoticeSink, NoticeTopic};

/// The most bytes that a command may print. Keys are short, but some password managers print notes
/// after them.
const MAX_KEY: usize = 16 << 10;

/// Caches the keys that commands have printed, by command. Clones share the cache.
#[derive(Clone, Default)]
pub(crate) struct KeyCommandCache(Arc<Mutex<BTreeMap<Vec<String>, Secret>>>);

impl std::fmt::Debug for KeyCommandCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyCommandCache")
    }
}

/// A command that prints a provider's key.
#[derive(Debug, Clone)]
pub(crate) struct KeyCommand {
    /// The provider's name, for messages.
    pub(crate) provider: String,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// The timeout of the command.
    pub(crate) limit: Duration,
    /// The variables, the helper program, and the keys that were printed before.
    pub(crate) environment: Arc<Environment>,
    /// Receives the command's standard error.
    pub(crate) notices: NoticeSink,
}

/// A key command that gave no key. It names only the program, since an argument may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the api_key_command of {provider} (`{program}`) {problem}")]
pub(crate) struct KeyCommandError {
    provider: String,
    program: String,
    problem: KeyCommandProblem,
}

/// The reason why a key command gave no key, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum KeyCommandProblem {
    #[error("cannot be run: {0}")]
    NotRun(String),
    /// The thread that ran it panicked.
    #[error("failed unexpectedly")]
    Panicked,
    #[error("ended with code {0}")]
    ExitCode(i32),
    /// It ran longer than this many seconds.
    #[error("did not end within {0} seconds")]
    TimedOut(u64),
    #[error("was ended by a signal")]
    Killed,
    #[error("printed more than a key")]
    TooLong,
    #[error("printed no UTF-8 text")]
    NotUtf8,
    #[error("printed no key on its first line")]
    NoKey,
}

impl KeyCommand {
    /// Returns the key: the one that the command printed earlier in this process, else a new one.
    pub(crate) fn cached_key(&self) -> Result<Secret, KeyCommandError> {
        // The lock is held while the command runs, so that two sessions do not both ask the user to
        // unlock their keys.
        let mut printed = self
            .environment
            .printed_keys
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The key is the command and not the provider: two providers may use the same command.
        if let Some(key) = printed.get(&self.words) {
            return Ok(key.clone());
        }
        let key = self.run_on_own_thread()?;
        printed.insert(self.words.clone(), key.clone());
        Ok(key)
    }

    /// Runs the command on its own thread: the caller may be inside a tokio runtime, which must not block on another one.
    fn run_on_own_thread(&self) -> Result<Secret, KeyCommandError> {
        let command = self.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = runtime.map_err(|error| command.not_run(&error))?;
            runtime.block_on(command.clone().run_command())
        };
        let thread = std::thread::Builder::new()
            .name("key command".to_owned())
            .spawn(run);
        let thread = thread.map_err(|error| self.not_run(&error))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(self.failure(KeyCommandProblem::Panicked)))
    }

    /// Runs the command and returns the key that it prints.
    pub(crate) async fn run_command(self) -> Result<Secret, KeyCommandError> {
        // Single quotes keep the shell from interpreting anything in the words.
        let quoted: Vec<_> = self
            .words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect();
        let helper = self.environment.helper_program.clone();
        let environment = self.environment.all_variables();
        let command = ShellCommand::new(format!("exec {}", quoted.join(" ")), helper)
            .env(environment)
            .timeout(self.limit)
            // The key must not be in an output that is kept.
            .captured_bytes(0, 0);
        let root = Workspace::open(Path::new("/")).map_err(|error| self.not_run(&error))?;
        let mut printed = Vec::new();
        let ended = command.run(&root, |stream, bytes| match stream {
            // Reading continues beyond the limit, or the command would block on a full pipe.
            OutputStream::Stdout if printed.len() <= MAX_KEY => printed.extend_from_slice(bytes),
            OutputStream::Stdout => {}
            OutputStream::Stderr => self.notices.send(
                NoticeTopic::KeyCommand,
                String::from_utf8_lossy(bytes).trim_end(),
            ),
        });
        let problem = match ended.await.map_err(|error| self.not_run(&error))?.end {
            CommandExit::Exited(0) => return self.parse_key(&printed),
            CommandExit::Exited(code) => KeyCommandProblem::ExitCode(code),
            CommandExit::TimedOut => KeyCommandProblem::TimedOut(self.limit.as_secs()),
            _ => KeyCommandProblem::Killed,
        };
        Err(self.failure(problem))
    }

    /// Returns the first line of the output: password managers print notes after it.
    fn parse_key(&self, printed: &[u8]) -> Result<Secret, KeyCommandError> {
        if printed.len() > MAX_KEY {
            return Err(self.failure(KeyCommandProblem::TooLong));
        }
        let text =
            std::str::from_utf8(printed).map_err(|_| self.failure(KeyCommandProblem::NotUtf8))?;
        let key = Secret::new(text.lines().next().unwrap_or_default());
        if key.is_empty() {
            Err(self.failure(KeyCommandProblem::NoKey))
        } else {
            Ok(key)
        }
    }

    fn failure(&self, problem: KeyCommandProblem) -> KeyCommandError {
        KeyCommandError {
            provider: self.provider.clone(),
            program: self.words.first().cloned().unwrap_or_default(),
            problem,
        }
    }

    fn not_run(&self, error: &dyn std::fmt::Display) -> KeyCommandError {
        self.failure(KeyCommandProblem::NotRun(error.to_string()))
    }
}
