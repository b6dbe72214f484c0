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

/// The most bytes that a command may print. Keys are short, but some password managers print notes behind them.
const MAX_KEY: usize = 16 << 10;

/// Caches the keys that commands have printed, by command. Clones share the cache.
#[derive(Clone, Default)]
pub(crate) struct PrintedKeys(Arc<Mutex<BTreeMap<Vec<String>, Secret>>>);

impl std::fmt::Debug for PrintedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrintedKeys")
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

impl KeyCommand {
    /// Returns the key: the one that the command printed earlier in this process, else a new one.
    pub(crate) fn cached_key(&self) -> Result<Secret, String> {
        // The lock is held while the command runs, so that two sessions do not both ask the user to unlock their keys.
        let mut printed = self
            .environment
            .printed_keys
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = printed.get(&self.words) {
            return Ok(key.clone());
        }
        let key = self.run_on_own_thread()?;
        printed.insert(self.words.clone(), key.clone());
        Ok(key)
    }

    /// Runs the command on its own thread: the caller may be inside a tokio runtime, which must not block on another one.
    fn run_on_own_thread(&self) -> Result<Secret, String> {
        let command = self.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime =
                runtime.map_err(|error| command.error_text(&format!("cannot be run: {error}")))?;
            runtime.block_on(command.clone().run_command())
        };
        let thread = std::thread::Builder::new()
            .name("key command".to_owned())
            .spawn(run);
        let thread = thread.map_err(|error| self.error_text(&format!("cannot be run: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(self.error_text("broke down")))
    }

    /// Runs the command and returns the key that it prints.
    pub(crate) async fn run_command(self) -> Result<Secret, String> {
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
            .captured_bytes(0, 0);
        let cannot = |error: sabir_workspace::WorkspaceError| {
            self.error_text(&format!("cannot be run: {error}"))
        };
        let root = Workspace::open(Path::new("/")).map_err(cannot)?;
        let mut printed = Vec::new();
        let ended = command.run(&root, |stream, bytes| match stream {
            OutputStream::Stdout if printed.len() <= MAX_KEY => printed.extend_from_slice(bytes),
            OutputStream::Stdout => {}
            OutputStream::Stderr => self.notices.send(
                NoticeTopic::KeyCommand,
                String::from_utf8_lossy(bytes).trim_end(),
            ),
        });
        match ended.await.map_err(cannot)?.end {
            CommandExit::Exited(0) => self.parse_key(&printed),
            CommandExit::Exited(code) => Err(self.error_text(&format!("ended with code {code}"))),
            CommandExit::TimedOut => Err(self.error_text(&format!(
                "did not end within {} seconds",
                self.limit.as_secs()
            ))),
            _ => Err(self.error_text("was ended by a signal")),
        }
    }

    /// Returns the first line of the output: password managers print notes behind it.
    fn parse_key(&self, printed: &[u8]) -> Result<Secret, String> {
        if printed.len() > MAX_KEY {
            return Err(self.error_text("printed more than a key"));
        }
        let text =
            std::str::from_utf8(printed).map_err(|_| self.error_text("printed no UTF-8 text"))?;
        let key = Secret::new(text.lines().next().unwrap_or_default());
        if key.is_empty() {
            Err(self.error_text("printed no key on its first line"))
        } else {
            Ok(key)
        }
    }

    /// Formats an error. It names only the program, since an argument may be a secret.
    fn error_text(&self, what: &str) -> String {
        let program = self.words.first().map_or("", String::as_str);
        format!(
            "the api_key_command of {} (`{program}`) {what}",
            self.provider
        )
    }
}
