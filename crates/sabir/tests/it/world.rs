//! Provides the test environment: a home, a workspace, a provider, and the binary.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use sabir_call::dialect::DialectSet;
use sabir_call::{Call, CallId, ToolSet};
use sabir_testkit::{ProviderReply, ReplyScript, ScriptedProvider};
use sabir_wire::Wire;
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A user's machine: a home and a workspace in temporary folders.
pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) work: TempDir,
    runtime: Runtime,
}

/// The wire and the protocol of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) wire: Wire,
    /// `native` or a dialect.
    pub(crate) protocol: &'static str,
}

/// The four combinations of wire and protocol that tests use.
pub(crate) const WAYS: [Way; 4] = [
    Way {
        wire: Wire::Anthropic,
        protocol: "native",
    },
    Way {
        wire: Wire::OpenAiChat,
        protocol: "native",
    },
    Way {
        wire: Wire::OpenAiChat,
        protocol: "cline",
    },
    Way {
        wire: Wire::OpenAiChat,
        protocol: "invoke",
    },
];

/// One turn of a model: text, then calls.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) words: &'static str,
    pub(crate) calls: Vec<(&'static str, Value)>,
}

pub(crate) fn turn(words: &'static str, calls: Vec<(&'static str, Value)>) -> Turn {
    Turn { words, calls }
}

impl Way {
    /// Returns the name of the model on this wire.
    pub(crate) fn model(self) -> &'static str {
        match self.wire {
            Wire::Anthropic => "anthropic/scripted",
            _ => "openai/scripted",
        }
    }

    /// Encodes the turn in this protocol; `number` counts from 1.
    pub(crate) fn reply(self, turn: &Turn, number: usize) -> ProviderReply {
        let Some(dialect) = DialectSet::built_in().find(self.protocol) else {
            let calls = turn.calls.iter().enumerate();
            return calls.fold(
                ProviderReply::text(turn.words),
                |reply, (index, (name, arguments))| {
                    reply.with_call(&format!("call_{number}_{index}"), name, arguments.clone())
                },
            );
        };
        let calls: Vec<_> = turn
            .calls
            .iter()
            .map(|(name, arguments)| call(name, arguments))
            .collect();
        let text = if calls.is_empty() {
            String::new()
        } else {
            dialect.render_calls(&calls, &offered())
        };
        ProviderReply::text(format!("{}\n\n{text}", turn.words))
    }
}

/// The built-in tools, as the binary knows them.
fn offered() -> ToolSet {
    let specs = sabir_tools::builtin_specs()
        .into_iter()
        .chain(sabir_agent::control::control_specs())
        .collect();
    let more = sabir_tools::unoffered_specs()
        .into_iter()
        .chain(sabir_agent::control::mode_dependent_specs())
        .collect();
    ToolSet::with_unoffered(specs, more).unwrap()
}

fn call(name: &str, arguments: &Value) -> Call {
    let arguments = arguments.as_object().cloned().unwrap_or_else(Map::new);
    Call {
        id: CallId::new("x"),
        name: name.to_owned(),
        arguments,
        dialect: None,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let [home, work] =
            [(); 2].map(|()| TempDir::new_in(sabir_testkit::find_temp_base()).unwrap());
        Self {
            home,
            work,
            runtime,
        }
    }

    pub(crate) fn provider(&self, script: ReplyScript) -> ScriptedProvider {
        self.runtime
            .block_on(ScriptedProvider::start(script))
            .unwrap()
    }

    /// Starts a provider that answers with these turns in this protocol, whatever the request.
    pub(crate) fn plays(&self, way: Way, turns: &[Turn]) -> ScriptedProvider {
        self.provider(ReplyScript::new(
            turns
                .iter()
                .enumerate()
                .map(|(at, turn)| way.reply(turn, at + 1))
                .collect::<Vec<_>>(),
        ))
    }

    /// Returns a command for the binary with a clean environment.
    pub(crate) fn sabir(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sabir"));
        command
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap());
        command
            .current_dir(self.work.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Returns a command for the binary, with that provider at both conventional addresses.
    pub(crate) fn sabir_with(&self, provider: &ScriptedProvider) -> Command {
        let mut command = self.sabir();
        command
            .env("OPENAI_BASE_URL", provider.base_url(Wire::OpenAiChat))
            .env("OPENAI_API_KEY", "sk-secret-test");
        command
            .env("ANTHROPIC_BASE_URL", provider.base_url(Wire::Anthropic))
            .env("ANTHROPIC_API_KEY", "sk-secret-test");
        command
    }

    /// Runs `sabir run` in this protocol.
    pub(crate) fn run(&self, provider: &ScriptedProvider, way: Way, arguments: &[&str]) -> Output {
        let mut command = self.sabir_with(provider);
        command
            .args(["run", "--model", way.model(), "--protocol", way.protocol])
            .args(arguments);
        command.output().unwrap()
    }

    /// Runs the binary with this text on its standard input.
    pub(crate) fn piped(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .sabir()
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses its arguments does not read.
        _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        output
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes the configuration in its usual place.
    pub(crate) fn configure(&self, text: impl AsRef<[u8]>) -> PathBuf {
        let folder = self.home.path().join(".config/sabir");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work.path().join(name)).unwrap_or_default()
    }

    /// The only task in the home.
    pub(crate) fn only_task(&self) -> String {
        let folder = self.home.path().join(".local/share/sabir/tasks");
        let names = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<_> = names.filter(|name| name.ends_with(".journal")).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].trim_end_matches(".journal").to_owned()
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// Reads the lines of a program whose whole output is JSON, as they come.
pub(crate) fn json_lines(output: ChildStdout) -> Receiver<Value> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            sender.send(serde_json::from_str(&line).unwrap()).ok();
        }
    });
    lines
}

/// Returns the JSON lines of an `--output events` run, each checked against the schema.
pub(crate) fn events(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(crate::events::checked).collect()
}

/// Reports that the machine lacks something that a test needs, even if the output of tests is captured.
pub(crate) fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Returns the processes that still have `mark` in their command line or environment.
pub(crate) fn processes_with(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let is = |file: &str| {
            std::fs::read(path.join(file)).is_ok_and(|bytes| contains(&bytes, mark.as_bytes()))
        };
        let own = path.file_name() == Some(std::process::id().to_string().as_ref());
        if !own && is("cmdline") {
            found.push(path.display().to_string());
        }
    }
    found
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
