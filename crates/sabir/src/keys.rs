//! Keys that a command prints, such as `pass show openai`.
//!
//! The command is run without a shell's reading of its words, without standard input and terminal, in the root folder, with
//! the whole environment: it is the user's own. What it says on standard error is passed on; what it prints is the key, and is
//! never shown. In one process it is run once, and once more each time a provider refuses a key that it took before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sabir_model::Secret;
use sabir_workspace::{Command, End, Stream, Workspace};

use crate::print;

/// The most bytes that a command may print.
const MAX_KEY: usize = 16 << 10;

/// The keys that commands have printed so far.
static PRINTED: Mutex<BTreeMap<Vec<String>, Secret>> = Mutex::new(BTreeMap::new());

/// A command that prints a provider's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyCommand {
    /// The provider's name, for messages.
    pub(crate) provider: String,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// The longest that it may take.
    pub(crate) limit: Duration,
}

impl KeyCommand {
    /// The key, printed now or earlier in this process.
    pub(crate) fn key(&self) -> Result<Secret, String> {
        // Held while the command runs, so that nobody runs it a second time.
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = printed.get(&self.words) {
            return Ok(key.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.words_for(&format!("cannot be run: {error}")))?;
        let key = runtime.block_on(self.clone().renew())?;
        printed.insert(self.words.clone(), key.clone());
        Ok(key)
    }

    /// Runs the command.
    pub(crate) async fn renew(self) -> Result<Secret, String> {
        let quoted: Vec<_> = self.words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let helper = std::env::current_exe().map_err(|error| self.words_for(&format!("cannot be run: {error}")))?;
        let environment =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let command = Command::new(format!("exec {}", quoted.join(" ")), helper)
            .env(environment)
            .timeout(self.limit)
            .captured_bytes(0, 0);
        let cannot = |error: sabir_workspace::WorkspaceError| self.words_for(&format!("cannot be run: {error}"));
        let root = Workspace::open(Path::new("/")).map_err(cannot)?;
        let mut printed = Vec::new();
        let ended = command.run(&root, |stream, bytes| match stream {
            Stream::Stdout if printed.len() <= MAX_KEY => printed.extend_from_slice(bytes),
            Stream::Stdout => {}
            Stream::Stderr => print::err(&print::visible(&String::from_utf8_lossy(bytes))),
        });
        match ended.await.map_err(cannot)?.end {
            End::Exited(0) => self.read(&printed),
            End::Exited(code) => Err(self.words_for(&format!("ended with code {code}"))),
            End::TimedOut => Err(self.words_for(&format!("did not end within {} seconds", self.limit.as_secs()))),
            _ => Err(self.words_for("was ended by a signal")),
        }
    }

    /// The first line of what was printed: password managers put notes behind it.
    fn read(&self, printed: &[u8]) -> Result<Secret, String> {
        if printed.len() > MAX_KEY {
            return Err(self.words_for("printed more than a key"));
        }
        let text = std::str::from_utf8(printed).map_err(|_| self.words_for("printed no UTF-8 text"))?;
        let key = Secret::new(text.lines().next().unwrap_or_default());
        if key.is_empty() { Err(self.words_for("printed no key on its first line")) } else { Ok(key) }
    }

    /// Names the program alone: an argument may be a secret.
    fn words_for(&self, what: &str) -> String {
        let program = self.words.first().map_or("", String::as_str);
        format!("the api_key_command of {} (`{program}`) {what}", self.provider)
    }
}
