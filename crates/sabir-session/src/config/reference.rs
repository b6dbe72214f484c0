//! Describes every key of the configuration: its kind, its default, an example and its meaning.
//!
//! The keys and their kinds come from the types that are deserialized ([`config_shape`]), the defaults from the code that applies them.
//! A test compares both with the table here, so a new key without a description fails, as does a description without a key.
//! `docs/config.md` is [`reference_markdown`]; `SABIR_RENEW=1 cargo test -p sabir-session --lib reference` writes it again.

use std::fmt::Write;
use std::sync::OnceLock;

use sabir_agent::{DEFAULT_THRESHOLD_PERCENT, SubtaskLimits};
use sabir_checkpoint::StoreLimits;
use sabir_gateway::{CircuitRules, GatewayLimits};
use sabir_mcp::limits::DEFAULT_DEFINITION_TOKENS;
use sabir_model::{Deadlines, RetryPolicy};
use serde::Serialize;

use super::shape::{ITEM, KeyShape, NAME, trace_shape};
use super::{Config, ExtensionConfig, LimitConfig, RuleConfig};
use crate::gateway_setup::{DEFAULT_HEALTH_SECONDS, DEFAULT_LISTEN, DEFAULT_RETRIES};
use crate::modes::IGNORE_FILES;
use crate::providers::DEFAULT_KEY_SECONDS;

/// A table of the file, with its keys.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigSection {
    /// The header of the table, such as `[gateway.models.NAME]`; empty for the top of the file.
    pub header: &'static str,
    /// The same as a path, such as `gateway.models.NAME`.
    #[serde(skip)]
    path: &'static str,
    /// The example name that replaces `NAME`.
    #[serde(skip)]
    sample: &'static str,
    /// A description of the table.
    pub about: &'static str,
    /// The page of the documentation that says more.
    pub page: &'static str,
    /// The keys, in the order of the documentation.
    pub keys: Vec<ConfigKey>,
}

/// A key of the configuration.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigKey {
    /// The key in its table, such as `max_turns` or `prices.input`.
    pub key: &'static str,
    /// The whole path, with `NAME` for names that the user chooses and `[]` for the items of an array of tables.
    pub path: String,
    /// The kind of value, such as `whole number`.
    pub kind: String,
    /// The value that applies where the key is missing.
    pub default: KeyDefault,
    /// A value, as it is written in the file.
    pub example: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The command-line option that sets the same for one run.
    pub option: Option<&'static str>,
    /// The keys that the example needs beside it.
    #[serde(skip)]
    beside: Option<&'static str>,
    /// The example name that replaces `NAME` in the key itself.
    #[serde(skip)]
    sample: &'static str,
}

/// The value that applies where a key is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyDefault {
    /// This value, as it would be written in the file.
    Value(String),
    /// A description, because the default is not a single value.
    Words(&'static str),
}

impl std::fmt::Display for KeyDefault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Value(value) => value,
            Self::Words(words) => words,
        })
    }
}

/// Returns all keys that the deserializer knows, as a tree.
pub fn config_shape() -> &'static KeyShape {
    static SHAPE: OnceLock<KeyShape> = OnceLock::new();
    SHAPE.get_or_init(|| {
        trace_shape::<Config>()
            .merge(trace_shape::<LimitConfig>())
            .merge(trace_shape::<RuleConfig>())
            .merge(trace_shape::<ExtensionConfig>())
    })
}

/// Returns the description of a key, by its whole path in the file.
pub fn describe_key(path: &[String]) -> Option<&'static ConfigKey> {
    let fits = |key: &&ConfigKey| {
        let known: Vec<&str> = key.path.split('.').collect();
        known.len() == path.len()
            && known.iter().zip(path).all(|(known, given)| {
                *known == NAME
                    || *known == given
                    || (*known == ITEM && given.parse::<usize>().is_ok())
            })
    };
    all_keys().find(fits)
}

/// Returns the descriptions of all keys.
pub fn all_keys() -> impl Iterator<Item = &'static ConfigKey> {
    config_sections().iter().flat_map(|section| &section.keys)
}

/// Returns the tables of the file with their keys.
pub fn config_sections() -> &'static [ConfigSection] {
    static SECTIONS: OnceLock<Vec<ConfigSection>> = OnceLock::new();
    SECTIONS.get_or_init(|| {
        let mut sections = vec![
            section("", "", "", "Keys at the top of the file, before the first table.", "guide.md", top_keys()),
            section("[completion]", "completion", "", "The conditions for completing a task.", "headless.md", completion_keys()),
            section("[subtasks]", "subtasks", "", "Parts of a task that the model delegates.", "subtasks.md", subtask_keys()),
            section("[providers.NAME]", "providers.NAME", "box", "A provider of your own, or changes to a known one: then `box/MODEL` is a model.", "models.md", provider_keys()),
            section("[[models]]", "models.[]", "", "Facts about models, which take precedence over the built-in ones. Each entry begins with `[[models]]`.", "models.md", model_keys()),
            section("[modes.NAME]", "modes.NAME", "tests", "A mode of your own, or the model of a built-in one.", "modes.md", mode_keys()),
            section("[dialects.NAME]", "dialects.NAME", "mine", "A dialect of your own.", "dialects.md", dialect_keys()),
            section("[gateway]", "gateway", "", "The gateway.", "gateway.md", gateway_keys()),
            section("[gateway.limits]", "gateway.limits", "", "Limits of the gateway.", "gateway.md", gateway_limit_keys()),
            section("[gateway.models.NAME]", "gateway.models.NAME", "qwen", "A model that the gateway serves under this name.", "gateway.md", gateway_model_keys()),
            section("[[gateway.models.NAME.upstreams]]", "gateway.models.NAME.upstreams.[]", "qwen", "One of several servers of a model, instead of its `to`.", "gateway.md", gateway_upstream_keys()),
            section("[telemetry]", "telemetry", "", "A collector that gets spans of tasks. Without `endpoint` nothing is sent.", "telemetry.md", telemetry_keys()),
            section("[tui]", "tui", "", "The full interface.", "tui.md", tui_keys()),
            section("[tui.bindings]", "tui.bindings", "", "The keys of the full interface. NAME is an action.", "tui.md", binding_keys()),
            section("[tui.themes.NAME]", "tui.themes.NAME", "mine", "A theme of your own: a built-in one with other styles.", "tui.md", theme_keys()),
            section("[hooks]", "hooks", "", "Commands that run at fixed points of a task.", "hooks.md", hook_keys()),
            section("[mcp]", "mcp", "", "MCP servers, whose tools the model can call.", "mcp.md", mcp_keys()),
            section("[mcp.servers.NAME]", "mcp.servers.NAME", "files", "One MCP server: a program or an address.", "mcp.md", mcp_server_keys()),
        ];
        for section in &mut sections {
            for key in &mut section.keys {
                key.path = match section.path {
                    "" => key.key.to_owned(),
                    path => format!("{path}.{}", key.key),
                };
                let path: Vec<String> = key.path.split('.').map(str::to_owned).collect();
                if let Some(KeyShape::Value(kind)) = config_shape().at(&path) {
                    key.kind = kind.to_string();
                }
            }
        }
        sections
    })
}

impl ConfigSection {
    /// Returns a whole file that sets a key of this table to its example.
    pub fn example_file(&self, key: &ConfigKey) -> String {
        let beside = key.beside.into_iter().flat_map(str::lines);
        // The key itself is not written twice.
        let beside = beside.filter(|line| line.split(" = ").next() != Some(key.key));
        let mut text = String::new();
        if !self.header.is_empty() {
            text = format!("{}\n", self.header.replace(NAME, self.sample));
        }
        text.extend(beside.map(|line| format!("{line}\n")));
        let name = key.key.replace(NAME, key.sample);
        text + &format!("{name} = {}\n", key.example)
    }
}

/// Writes the reference as Markdown: the page `docs/config.md`.
pub fn reference_markdown() -> String {
    let mut text = PAGE_HEAD.to_owned();
    for section in config_sections() {
        let heading = match section.header {
            "" => "The top of the file".to_owned(),
            header => format!("`{header}`"),
        };
        let ConfigSection { about, page, .. } = section;
        let title = page.trim_end_matches(".md");
        _ = write!(
            text,
            "\n## {heading}\n\n{about} See [{title}]({page}).\n\n| Key | Type | Default | Example | Meaning |\n| --- | --- | --- | --- | --- |\n"
        );
        for key in &section.keys {
            let default = match &key.default {
                KeyDefault::Value(value) => format!("`{value}`"),
                KeyDefault::Words(words) => (*words).to_owned(),
            };
            let option = key.option.map(|option| format!(" Option: `{option}`."));
            let row = [
                format!("`{}`", key.key),
                key.kind.clone(),
                default,
                format!("`{}`", key.example),
                format!("{}{}", key.meaning, option.unwrap_or_default()),
            ]
            // In a cell, `|` would begin the next one.
            .map(|cell| cell.replace('|', "\\|"));
            _ = writeln!(text, "| {} |", row.join(" | "));
        }
    }
    text
}

/// The text of the page before its tables.
const PAGE_HEAD: &str = "# Configuration

<!-- Generated: SABIR_RENEW=1 cargo test -p sabir-session --lib reference -->

Sabir works without a configuration file. Yours is `~/.config/sabir/config.toml`, or `$XDG_CONFIG_HOME/sabir/config.toml`, or the file
that `--config FILE` names in its place. It is [TOML](https://toml.io). A repository has no configuration: it could approve commands
or send your key elsewhere. Options of the command line take precedence over the file for one run; variables of the environment
provide keys and addresses ([models](models.md)).

```sh
sabir config set max_turns 50
sabir config set approve edits 'command=cargo test'
sabir config get max_turns
sabir config check
sabir config path
sabir help config
```

| Command | Does |
| --- | --- |
| `sabir config check [FILE]` | reports every mistake in the file with its line: unknown keys with the most similar known one, wrong types, values that cannot be used. Exit code 2 if there is one |
| `sabir config path` | lists the files that are read, in order, and which of them exist |
| `sabir config get [KEY]` | prints a value and where it comes from: the file with its line, a variable, or the default. Without a key: all that are set. Keys and tokens are never shown |
| `sabir config set KEY VALUE…` | changes the file and keeps its comments. Unknown keys and values that cannot be used are refused, and the file stays as it is. `--user` writes your own file even if `--config` names another |
| `sabir config unset KEY` | removes a key, so that its default applies |

A key in a table is written with dots: `sabir config set subtasks.at_once 2`. A name with a dot in it goes in quotes:
`'gateway.models.\"gpt-4.1\".to'`. `models.0.native` is a key of the first `[[models]]` entry. Several values make a list. A new file is
readable by you only (mode 0600); one with a key or token must be.

In the tables below, *NAME* is a name that you choose.
";

fn section(
    header: &'static str,
    path: &'static str,
    sample: &'static str,
    about: &'static str,
    page: &'static str,
    keys: Vec<ConfigKey>,
) -> ConfigSection {
    ConfigSection {
        header,
        path,
        sample,
        about,
        page,
        keys,
    }
}

/// Describes a key without a single default value.
fn key(
    key: &'static str,
    default: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> ConfigKey {
    ConfigKey {
        key,
        path: String::new(),
        kind: String::new(),
        default: KeyDefault::Words(default),
        example,
        meaning,
        option: None,
        beside: None,
        sample: "authorization",
    }
}

/// Describes a key with a default value.
fn valued(
    name: &'static str,
    default: impl ToString,
    example: &'static str,
    meaning: &'static str,
) -> ConfigKey {
    ConfigKey {
        default: KeyDefault::Value(default.to_string()),
        ..key(name, "", example, meaning)
    }
}

impl ConfigKey {
    /// Sets the example name that replaces `NAME` in the key.
    fn named(self, sample: &'static str) -> Self {
        Self { sample, ..self }
    }

    /// Names the option of the command line that sets the same.
    fn option(self, option: &'static str) -> Self {
        Self {
            option: Some(option),
            ..self
        }
    }

    /// Adds keys that the example needs beside it.
    fn beside(self, beside: &'static str) -> Self {
        Self {
            beside: Some(beside),
            ..self
        }
    }
}

/// Writes a list of texts as TOML.
fn text_list(texts: &[&str]) -> String {
    format!("{texts:?}")
}

fn top_keys() -> Vec<ConfigKey> {
    vec![
        key("model", "none: `--model` is needed", "\"openai/gpt-5\"", "The model of tasks that name none: `PROVIDER/NAME`, or `http://HOST:PORT/v1#NAME`.").option("--model"),
        key("protocol", "that of the model", "\"cline\"", "How the model calls tools: `native`, or a dialect that is taught in the prompt.").option("--protocol"),
        valued("recovery", "\"ask\"", "\"on\"", "Calls that a model with native calls writes as text: leave them text, ask about each, or treat them like native ones.").option("--recovery"),
        key("calls_per_message", "any number", "1", "How many calls one message of the model may contain. Only 1 can be set.").option("--calls-per-message"),
        key("edit_tool", "that of the model", "\"edit_file\"", "The tool for changing files that a model is offered: `replace_in_file`, `edit_file` or `apply_patch`.").option("--edit-tool"),
        valued("interface", "\"auto\"", "\"line\"", "The interface of interactive tasks: `full` draws a viewport below the history where the terminal can show one, `line` prints line by line, `screen-reader` never draws anything again, `auto` is `full`.").option("--interface"),
        valued("approve", "[]", "[\"edits\", \"command=cargo test\"]", "Calls that run without a question, by kind or by rule.").option("--approve"),
        valued("allow", "[]", "[\"cargo test **\"]", "Patterns of calls that are allowed without a question.").option("--allow"),
        valued("ask", "[]", "[\"git push **\"]", "Patterns of calls that are asked about even if another rule allows them.").option("--ask"),
        valued("deny", "[]", "[\"path=secrets/\"]", "Patterns of calls that are denied even if another rule allows them.").option("--deny"),
        key("mode", "`code`", "\"plan\"", "The mode of tasks that name none.").option("--mode"),
        valued("ignore_files", text_list(&IGNORE_FILES), "[\".sabirignore\"]", "Names of the files in a folder that list its hidden paths."),
        key("ask_timeout", "none: a question waits", "\"5m\"", "Denies a call if nobody answers the question about it in this time."),
        valued("sandbox", "\"best\"", "\"2\"", "The sandbox of commands: `off`, `1`, `2`, or `best` for the best that the machine has.").option("--sandbox"),
        valued("network", "false", "true", "Commands may use the network; `\"registries\"`: only package registries.").option("--network"),
        valued("loopback", "true", "false", "Approved commands reach the ports of this machine's loopback that they name."),
        valued("registries", "[]", "[\"npm.corp.example\"]", "More hosts of package registries: `NAME` or `NAME:PORT`."),
        valued("private_registries", "[]", "[\"nexus:8081\"]", "The same, in your own network, and with or without TLS."),
        valued("trusted_builds", "true", "false", "Builds and tests of trusted repositories run unasked in the sandbox."),
        key("max_turns", "no limit", "100", "Ends a task after this many turns.").option("--max-turns"),
        key("max_tokens", "no limit", "2_000_000", "Ends a task when it has used this many tokens, read and written.").option("--max-tokens"),
        key("max_cost", "no limit", "5.0", "Ends a task when it has cost this many US dollars.").option("--max-cost"),
        key("context_window", "the model's, as far as known", "128_000", "The size of the context window in tokens."),
        valued("compact_at", DEFAULT_THRESHOLD_PERCENT, "70", "How full the context may get before it is compacted, in percent: 10 to 95."),
        valued("instructions", "true", "false", "Models get AGENTS.md and similar files of the folder."),
        valued("place", "true", "false", "Models get the date, the git branch and the file names at the top of the folder."),
        valued("repairs_off", "[]", "[\"near_name\"]", "Mistakes in calls to reject instead of repairing: names of rules, or `all`.").option("--no-repair"),
        valued("checkpoints", "true", "false", "Changes of a task can be undone.").option("--no-checkpoints"),
        valued("checkpoints_mib", StoreLimits::default().store_bytes >> 20, "4096", "The most disk space for the checkpoints of one folder, in MiB; 16 or more."),
    ]
}

fn tui_keys() -> Vec<ConfigKey> {
    let status = text_list(&[
        "model", "protocol", "mode", "context", "cost", "sandbox", "branch",
    ]);
    vec![
        valued(
            "status",
            status,
            "[\"model\", \"branch\"]",
            "The parts of the status line in their order. Parts that do not fit are left out from the end.",
        ),
        valued(
            "keys",
            "\"emacs\"",
            "\"vi\"",
            "The keys that edit a message.",
        ),
        valued(
            "notify",
            "\"bell\"",
            "\"desktop\"",
            "The signal while the terminal is not focused: `off`, the `bell`, or the bell and a `desktop` notification.",
        ),
        valued(
            "theme",
            "\"auto\"",
            "\"dark\"",
            "The theme: `auto`, `terminal`, `dark`, `light`, `color-blind`, `monochrome`, or one of your own.",
        ),
        valued(
            "links",
            "\"auto\"",
            "\"off\"",
            "Addresses and file names are links (OSC 8): in terminals that are known to show them, `on` or `off`.",
        ),
        valued(
            "clipboard",
            "\"auto\"",
            "\"off\"",
            "`/copy` sends the answer to the clipboard of the terminal (OSC 52): in terminals that may take it, `on` or `off`.",
        ),
        valued(
            "motion",
            "\"full\"",
            "\"reduced\"",
            "With `reduced` no seconds are counted, and text appears block by block.",
        ),
    ]
}

fn binding_keys() -> Vec<ConfigKey> {
    vec![
        key(
            NAME,
            "the keys that `/help` lists",
            "[\"f2\", \"ctrl-x\"]",
            "All keys of the action, such as `ctrl-s`, `alt-enter` or `f2`. An empty list leaves it without one.",
        )
        .named("undo"),
    ]
}

fn theme_keys() -> Vec<ConfigKey> {
    vec![
        key(
            NAME,
            "the style of the theme named by `base`",
            "\"bold #88c0d0\"",
            "The style of a role: a colour (`red`, `bright-red`, `208`, `#rrggbb`) and any of `bold`, `dim`, `italic`, `underline`, `reverse`. With `base` as NAME, the built-in theme that the styles are added to.",
        )
        .named("accent"),
    ]
}

fn completion_keys() -> Vec<ConfigKey> {
    vec![
        key("check", "none", "\"cargo test\"", "A command that must succeed. If it fails, the model gets its output.").option("--check"),
        valued("todos", "false", "true", "All todos on the model's list must be done.").option("--require-todos"),
        valued("allow_denied", "false", "true", "A result is accepted even if calls were denied and nothing replaced them.").option("--allow-denied"),
        key("by", "`answer` with native calls, else `call`", "\"call\"", "The form of a result if nobody is asked: only a call of `attempt_completion`, or a plain answer too.").option("--completion"),
        valued("review", "true", "false", "You are asked before a completion is accepted."),
    ]
}

fn subtask_keys() -> Vec<ConfigKey> {
    let usual = SubtaskLimits::default();
    vec![
        valued(
            "offered",
            "false",
            "true",
            "Every task may delegate work to subtasks.",
        )
        .option("--subtasks"),
        valued(
            "at_once",
            usual.max_concurrent,
            "2",
            "How many subtasks of one task run at the same time.",
        ),
        valued(
            "depth",
            usual.depth,
            "1",
            "How many levels of subtasks a task may have.",
        ),
        valued(
            "most",
            usual.max_total,
            "10",
            "How many subtasks a task may start.",
        ),
        valued(
            "review",
            "false",
            "true",
            "You are asked before the result of a subtask goes to its task.",
        ),
    ]
}

fn provider_keys() -> Vec<ConfigKey> {
    const URL: &str = "base_url = \"http://127.0.0.1:8000/v1\"";
    let deadlines = Deadlines::default();
    let retries = RetryPolicy::default();
    let keys = vec![
        key(
            "base_url",
            "that of a known provider",
            "\"http://127.0.0.1:8000/v1\"",
            "The address of the API. Required for a provider of your own.",
        ),
        key(
            "wire",
            "that of a known provider, else `openai-chat`",
            "\"openai-chat\"",
            "The API that it speaks: `sabir help wires` lists them.",
        ),
        key(
            "key",
            "none",
            "\"sk-example\"",
            "The key itself. The file must then be readable by you only.",
        ),
        key(
            "key_env",
            "the known provider's variable",
            "\"BOX_KEY\"",
            "The variable of the environment that holds the key.",
        ),
        key(
            "api_key_command",
            "none",
            "[\"pass\", \"show\", \"box\"]",
            "A program with its arguments that prints the key.",
        ),
        valued(
            "api_key_seconds",
            DEFAULT_KEY_SECONDS,
            "120",
            "How long that program may take, in seconds.",
        ),
        valued(
            "first_byte_seconds",
            deadlines.first_byte.as_secs(),
            "600",
            "How long a request may wait for the first byte of its answer.",
        ),
        valued(
            "idle_seconds",
            deadlines.idle.as_secs(),
            "120",
            "How long a stream may be silent.",
        ),
        valued(
            "retries",
            retries.limit,
            "8",
            "How often a request that failed before its answer began is sent again.",
        )
        .option("--retries"),
        valued(
            "retry_budget",
            retries.budget,
            "100",
            "How many retries there may be between two complete answers.",
        )
        .option("--retry-budget"),
        key(
            "retry_seconds",
            "120; 600 in interactive use",
            "300",
            "How long a rate-limited request is sent again, beyond `retries`.",
        ),
    ];
    keys.into_iter().map(|key| key.beside(URL)).collect()
}

fn model_keys() -> Vec<ConfigKey> {
    let keys = vec![
        key(
            "pattern",
            "required",
            "\"my-model\"",
            "The beginning of the model's name, with or without its provider. The longest pattern wins.",
        ),
        key(
            "context",
            "unknown",
            "32768",
            "The size of its context in tokens, input and output together.",
        ),
        key(
            "output",
            "unknown",
            "8192",
            "The most tokens of one answer.",
        ),
        key(
            "native",
            "true, unless there is a `dialect`",
            "false",
            "It calls tools natively.",
        ),
        key(
            "dialect",
            "none",
            "\"cline\"",
            "The dialect to prompt it in, if it does not call natively.",
        ),
        key("images", "unknown", "true", "It reads pictures."),
        key(
            "thinking",
            "unknown",
            "true",
            "It can think before it answers.",
        ),
        key(
            "edit_tool",
            "by its family",
            "\"apply_patch\"",
            "The tool for changing files that it is offered.",
        ),
        key(
            "recovery",
            "that at the top of the file",
            "\"off\"",
            "Its calls that are written as text, as `recovery` above.",
        ),
        key(
            "escape_tokens",
            "true for a server on this machine",
            "true",
            "Its server renders a chat template, so special tokens in files are escaped.",
        ),
        key(
            "prefill",
            "nothing",
            "\"<think>\"",
            "The end of its prompt, if it opens a thought that the answers continue.",
        ),
        key(
            "repairs_on",
            "none",
            "[\"missing_last_close\"]",
            "Repairs of its calls that are off by default: `missing_last_close` accepts a last call without its closing markup if the provider says that the message is complete.",
        ),
        key(
            "prices.input",
            "unknown",
            "0.5",
            "US dollars for a million tokens of input.",
        ),
        key("prices.output", "unknown", "1.5", "The same for output."),
        key(
            "prices.cache_read",
            "unknown",
            "0.05",
            "The same for input that the provider's cache had.",
        ),
        key(
            "prices.cache_write",
            "unknown",
            "0.6",
            "The same for input that is written to that cache.",
        ),
        key(
            "prices.up_to",
            "any number",
            "200_000",
            "The most input tokens of a request for which these prices apply.",
        ),
    ];
    keys.into_iter()
        .map(|key| key.beside("pattern = \"my-model\""))
        .collect()
}

fn mode_keys() -> Vec<ConfigKey> {
    let keys = vec![
        valued(
            "about",
            "\"\"",
            "\"write tests only\"",
            "The description in lists of modes.",
        ),
        key(
            "tools",
            "required",
            "[\"read\", \"edit\", \"command\"]",
            "The groups of tools that the mode has: `read`, `edit`, `command`, `fetch`, `server`, `delegate`, `switch`.",
        ),
        valued(
            "write",
            "[]",
            "[\"**/tests/**\"]",
            "The only files that may be edited; an empty list is not a limit.",
        ),
        valued(
            "instructions",
            "\"\"",
            "\"Write tests only.\"",
            "The text that the mode adds to the model's instructions.",
        ),
        key(
            "model",
            "that of the task",
            "\"box/qwen3\"",
            "The model for work in this mode. Of a built-in mode only this can be set.",
        ),
    ];
    keys.into_iter()
        .map(|key| key.beside("tools = [\"read\", \"edit\"]"))
        .collect()
}

fn dialect_keys() -> Vec<ConfigKey> {
    const JSON: &str = "machine = \"json\"\nopen = \"<mine>\"\nclose = \"</mine>\"";
    const TAGS: &str = "machine = \"tagged\"\ntags.call = \"deed\"\ntags.argument = \"with\"";
    const EACH: &str = "machine = \"tagged\"\ntags.call = \"deed\"\ntags.argument = \"with\"\ntags.wrapper = \"deeds\"";
    const GEMMA: &str =
        "machine = \"gemma\"\nopen = \"<mine>\"\nclose = \"</mine>\"\nquote = \"<q>\"";
    const HEAD: &str = "machine = \"json\"\nopen = \"@@mine\"";
    vec![
        key(
            "machine",
            "required",
            "\"json\"",
            "The parser that reads it.",
        )
        .beside(JSON),
        key(
            "name",
            "that of the table",
            "\"mine\"",
            "Its name, in a file for `--dialects` that holds one dialect.",
        )
        .beside(JSON),
        valued("aliases", "[]", "[\"mine_v1\"]", "Other names.").beside(JSON),
        valued(
            "summary",
            "\"\"",
            "\"A JSON object in a block.\"",
            "One sentence for lists.",
        )
        .beside(JSON),
        key(
            "lesson",
            "a sentence for the parser",
            "\"Call a tool with a JSON object.\"",
            "The instructions for models; examples are added.",
        )
        .beside(JSON),
        key(
            "open",
            "required, but for `tagged`",
            "\"<mine>\"",
            "The marker before a call.",
        )
        .beside(JSON),
        valued("close", "\"\"", "\"</mine>\"", "The marker after a call.").beside(JSON),
        key(
            "quote",
            "required for `gemma`",
            "\"<q>\"",
            "The marker on both sides of a string, for `gemma`.",
        )
        .beside(GEMMA),
        key(
            "tags.call",
            "required for `tagged`",
            "\"deed\"",
            "The tag of a call.",
        )
        .beside(TAGS),
        key(
            "tags.argument",
            "the argument's own name",
            "\"with\"",
            "The tag of an argument.",
        )
        .beside(TAGS),
        key(
            "tags.name_in",
            "`name`",
            "\"=\"",
            "The attribute that holds the name; `=` for `<call=f>`.",
        )
        .beside(TAGS),
        key(
            "tags.wrapper",
            "none",
            "\"deeds\"",
            "The tag around the calls.",
        )
        .beside(TAGS),
        valued(
            "tags.each",
            "false",
            "true",
            "The wrapper is around each call instead of all.",
        )
        .beside(EACH),
        valued(
            "tags.prefix",
            "\"\"",
            "\"x:\"",
            "The prefix of the names of these tags; ends with `:`.",
        )
        .beside(TAGS),
        key(
            "json.name_key",
            "`name`",
            "\"tool\"",
            "The key of the tool's name in calls that are written; all usual keys are read.",
        )
        .beside(JSON),
        key(
            "json.arguments_key",
            "`arguments`",
            "\"parameters\"",
            "The same for the arguments.",
        )
        .beside(JSON),
        valued(
            "json.list",
            "false",
            "true",
            "Several calls are written as one array.",
        )
        .beside(JSON),
        key(
            "json.head_end",
            "none",
            "\"=>\"",
            "The marker after the tool's name, if the name precedes the JSON.",
        )
        .beside(HEAD),
    ]
}

fn gateway_keys() -> Vec<ConfigKey> {
    vec![
        valued(
            "listen",
            format!("{DEFAULT_LISTEN:?}"),
            "\"127.0.0.1:8080\"",
            "The address to listen on.",
        )
        .option("--listen"),
        key(
            "token",
            "generated at each start",
            "\"sabir-example\"",
            "The token that clients must send. The file must then be readable by you only.",
        )
        .option("--token"),
        key(
            "token_env",
            "`SABIR_GATEWAY_TOKEN`",
            "\"MY_TOKEN\"",
            "The variable of the environment that holds the token.",
        ),
        key(
            "tls_cert",
            "none: no TLS",
            "\"/etc/sabir/cert.pem\"",
            "The file with the certificate for TLS, with those of its issuers after it, in PEM. SIGHUP reads it again.",
        )
        .beside("tls_key = \"/etc/sabir/key.pem\""),
        key(
            "tls_key",
            "none: no TLS",
            "\"/etc/sabir/key.pem\"",
            "The file with the key of that certificate, in PEM.",
        )
        .beside("tls_cert = \"/etc/sabir/cert.pem\""),
        key(
            "socket",
            "none",
            "\"/run/sabir/gateway.sock\"",
            "A Unix socket to listen on, beside the address. Only its owner may connect.",
        ),
        key(
            "keys",
            "none: the token is the only key",
            "\"/var/lib/sabir/keys.db\"",
            "The store of client keys: a file (SQLite), `postgres://USER@HOST/DATABASE` or `redis://HOST:PORT/NUMBER`, shared by several gateways. With a password the file must be readable by you only.",
        ),
        key(
            "keys_env",
            "none",
            "\"KEYS_STORE\"",
            "The variable of the environment that holds the address of that store.",
        ),
        valued(
            "hosts",
            "[]",
            "[\"gateway.example\"]",
            "Further names of hosts under which clients may address the gateway.",
        )
        .option("--allow-host"),
        valued(
            "origins",
            "[]",
            "[\"https://app.example\"]",
            "The web pages that may ask from a browser.",
        ),
        valued(
            "log",
            "\"text\"",
            "\"json\"",
            "The form of the request log.",
        )
        .option("--log"),
        valued(
            "explain",
            "false",
            "true",
            "Prints how calls are taught, understood and repaired.",
        )
        .option("--explain"),
    ]
}

fn gateway_limit_keys() -> Vec<ConfigKey> {
    let usual = GatewayLimits::default();
    vec![
        valued(
            "body_mib",
            usual.body >> 20,
            "64",
            "The largest request, in MiB.",
        ),
        valued(
            "connections",
            usual.connections,
            "512",
            "How many connections may be open.",
        ),
        valued(
            "answers",
            usual.answers,
            "256",
            "How many answers may be sent at the same time; more are refused.",
        ),
        valued(
            "head_seconds",
            usual.head.as_secs(),
            "30",
            "How long the head of a request may take.",
        ),
        valued(
            "upload_seconds",
            usual.upload.as_secs(),
            "60",
            "How long its body may take, and a second more for each 16 KiB.",
        ),
        valued(
            "idle_seconds",
            usual.idle.as_secs(),
            "60",
            "How long a connection may be open without a request.",
        ),
        valued(
            "websocket_idle_seconds",
            0,
            "600",
            "How long a WebSocket may be open without an answer. 0: there are no WebSockets.",
        ),
        valued(
            "stalled_seconds",
            usual.stalled.as_secs(),
            "60",
            "How long a client may read nothing although data waits for it.",
        ),
        valued(
            "drain_seconds",
            usual.drain.as_secs(),
            "30",
            "How long answers may continue after SIGTERM.",
        ),
        valued(
            "ping_seconds",
            usual.ping.as_secs(),
            "5",
            "After how much silence a stream gets a ping.",
        ),
        valued(
            "store_mib",
            usual.store >> 20,
            "0",
            "The memory for answers of the Responses API to which later requests refer, in MiB; 0 stores none.",
        ),
    ]
}

fn gateway_model_keys() -> Vec<ConfigKey> {
    const ADDRESS: &str = "to = \"http://127.0.0.1:11434\"";
    let keys = vec![
        key(
            "to",
            "required, unless it has `upstreams`",
            "\"openai/gpt-5\"",
            "The model that serves it: `PROVIDER/NAME`, or an address, with `#NAME` if the server's name of the model differs.",
        ),
        valued(
            "balance",
            "\"prefix\"",
            "\"least\"",
            "Which upstream gets a request: `prefix` (the one that had requests with the same beginning), `least` (the one with the fewest outstanding requests), `order` (the first available one).",
        ),
        key(
            "hedge_ms",
            "never",
            "2000",
            "After how many milliseconds of silence a second upstream is asked too; the first to answer wins.",
        ),
        key(
            "health",
            "no checks",
            "\"/health\"",
            "The path at which the health of each upstream is checked.",
        ),
        valued(
            "health_seconds",
            DEFAULT_HEALTH_SECONDS,
            "5",
            "The time between two checks.",
        ),
        valued(
            "max_failures",
            CircuitRules::default().max_failures,
            "5",
            "After how many failures in a row an upstream is left out for a while.",
        ),
        valued(
            "eject_seconds",
            CircuitRules::default().ejection.as_secs(),
            "10",
            "For how long it is left out at first; the time doubles with each failed trial, up to a minute.",
        ),
        key(
            "wire",
            "`openai-chat`",
            "\"openai-responses\"",
            "The API of the server, if `to` is an address.",
        ),
        key(
            "key_env",
            "no key",
            "\"BOX_KEY\"",
            "The variable with the server's key, if `to` is an address.",
        ),
        key(
            "protocol",
            "that of the model",
            "\"cline\"",
            "How the model calls tools: `native` or a dialect.",
        )
        .option("--protocol"),
        valued(
            "faulty_calls",
            "\"repair\"",
            "\"retry 2\"",
            "How faulty calls are handled: `pass`, `repair`, or `retry N`.",
        )
        .option("--faulty-calls"),
        valued(
            "retries",
            DEFAULT_RETRIES,
            "0",
            "How often a request that failed before its answer began is sent again.",
        ),
        key(
            "defaults",
            "none",
            "'{\"temperature\": 0.2}'",
            "A JSON object with members of the body for requests that do not have them, in the form of the model's API.",
        ),
        key(
            "overrides",
            "none",
            "'{\"seed\": 7}'",
            "A JSON object with members of the body that replace those of a request.",
        ),
        valued(
            "aliases",
            "[]",
            "[\"claude-haiku-4-5\"]",
            "Further names; `*` is every name that no other model has.",
        ),
    ];
    keys.into_iter().map(|key| key.beside(ADDRESS)).collect()
}

fn gateway_upstream_keys() -> Vec<ConfigKey> {
    const ADDRESS: &str = "to = \"http://127.0.0.1:8000\"";
    let keys = vec![
        key(
            "to",
            "required",
            "\"http://127.0.0.1:8001\"",
            "The server: an address or `PROVIDER/NAME`, as for a model with one server.",
        ),
        key(
            "name",
            "the host of `to`",
            "\"gpu-1\"",
            "The name in metrics and logs.",
        ),
        valued(
            "weight",
            1,
            "2",
            "The share of the requests, relative to the other upstreams.",
        ),
        key(
            "wire",
            "`openai-chat`",
            "\"openai-responses\"",
            "The API of the server, if `to` is an address.",
        ),
        key(
            "key_env",
            "no key",
            "\"BOX_KEY\"",
            "The variable with the server's key, if `to` is an address.",
        ),
    ];
    keys.into_iter().map(|key| key.beside(ADDRESS)).collect()
}

fn telemetry_keys() -> Vec<ConfigKey> {
    let keys = vec![
        key(
            "endpoint",
            "none: nothing is sent",
            "\"http://127.0.0.1:4318\"",
            "The base URL of the collector.",
        ),
        key(
            "headers.NAME",
            "none",
            "\"Bearer example\"",
            "A header of each request. The file must then be readable by you only.",
        ),
        valued(
            "content",
            "false",
            "true",
            "Sends messages, arguments and results too.",
        ),
    ];
    keys.into_iter()
        .map(|key| key.beside("endpoint = \"http://127.0.0.1:4318\""))
        .collect()
}

fn hook_keys() -> Vec<ConfigKey> {
    vec![
        valued(
            "import",
            "[]",
            "[\"~/.claude/settings.json\"]",
            "Settings files of Claude Code whose hooks run too.",
        ),
        valued(
            "project_files",
            "true",
            "false",
            "False: the hooks of repositories are not read.",
        ),
    ]
}

fn mcp_keys() -> Vec<ConfigKey> {
    vec![
        valued(
            "import",
            "[]",
            "[\"~/.cursor/mcp.json\"]",
            "Files of other programs whose servers are used too.",
        ),
        valued(
            "project_files",
            "true",
            "false",
            "False: `.mcp.json` and similar files of repositories are not read.",
        ),
        valued(
            "definition_tokens",
            DEFAULT_DEFINITION_TOKENS,
            "8000",
            "How many tokens the definitions of tools may take in a request. Beyond that models get the names, and find definitions by `find_tool`.",
        ),
    ]
}

fn mcp_server_keys() -> Vec<ConfigKey> {
    const COMMAND: &str = "command = \"npx\"";
    const ADDRESS: &str = "url = \"https://mcp.example.com/mcp\"";
    let program = vec![
        key(
            "args",
            "none",
            "[\"-y\", \"server\"]",
            "The arguments of the program.",
        ),
        key(
            "env.NAME",
            "none",
            "\"${TOKEN}\"",
            "A variable of its environment. `${NAME}` and `${NAME:-DEFAULT}` are replaced, also in `args`, `url` and `headers`.",
        ),
        key(
            "start_seconds",
            "30",
            "60",
            "How long it may take until it has listed its tools.",
        ),
        key(
            "call_seconds",
            "120",
            "600",
            "How long a call may take without reporting progress.",
        ),
        valued(
            "required",
            "false",
            "true",
            "True: a task begins when the server is ready, and not at all if it fails.",
        ),
        valued("disabled", "false", "true", "True: it is not started."),
        key(
            "only_tools",
            "all",
            "[\"read_file\"]",
            "The only tools that are used, by their names at the server.",
        ),
        valued(
            "except_tools",
            "[]",
            "[\"write_file\"]",
            "Tools that are not used.",
        ),
    ];
    let mut keys = vec![
        key(
            "command",
            "required, or `url`",
            "\"npx\"",
            "The program, which serves its standard input and output.",
        ),
        key(
            "url",
            "required, or `command`",
            "\"https://mcp.example.com/mcp\"",
            "The address of a server that speaks streamable HTTP.",
        ),
        key(
            "headers.NAME",
            "none",
            "\"Bearer ${TOKEN}\"",
            "A header of each request to `url`.",
        )
        .beside(ADDRESS),
        key(
            "oauth.client_id",
            "Sabir registers itself",
            "\"my-client\"",
            "The id of a client that you registered for the login. See `sabir mcp login`.",
        )
        .beside(ADDRESS),
        key(
            "oauth.client_secret",
            "none",
            "\"${CLIENT_SECRET}\"",
            "The secret of that client.",
        )
        .beside(ADDRESS),
        key(
            "oauth.issuer",
            "none",
            "\"https://login.example.com\"",
            "The authorization server that the client is registered at. `client_secret` is sent to no other one, and needs it.",
        )
        .beside(ADDRESS),
        key(
            "oauth.client_metadata_url",
            "none",
            "\"https://example.com/client.json\"",
            "The address of a client metadata document, which is used as the id where that is supported.",
        )
        .beside(ADDRESS),
        key(
            "oauth.scopes",
            "those that the server names",
            "[\"read\"]",
            "The scopes that a login asks for.",
        )
        .beside(ADDRESS),
        key(
            "oauth.redirect_port",
            "any free one",
            "8912",
            "The port of this machine to which the browser is redirected.",
        )
        .beside(ADDRESS),
        key(
            "oauth.grant",
            "\"authorization_code\"",
            "\"authorization_code\"",
            "`client_credentials` exchanges the client's own secret for a token, without a user.",
        )
        .beside(ADDRESS),
    ];
    keys.extend(program.into_iter().map(|key| key.beside(COMMAND)));
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::config::check::check_text;
    use crate::config::keys::written_value;
    use crate::environment::Environment;
    use crate::gateway_setup::{GatewaySpec, group_rules, upstream_weights};
    use crate::notice::NoticeSink;
    use crate::providers::DEFAULT_WIRE;
    use crate::setup::RecoveryChoice;
    use crate::spec::{CompletionSpec, LimitSpec, RuleSpec, SessionSpec};
    use crate::{checkpointer, completion_options, modes, sandbox};

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");

    /// Returns a configuration from its text, as it is loaded from a file.
    fn load(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        // A key in it must be readable by the owner only.
        let environment = Arc::new(Environment::default());
        crate::remember::replace_file(&environment, &path, text).unwrap();
        Config::load(&environment, Some(&path), &NoticeSink::default())
            .unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    /// The path of the example of a key in its example file.
    fn example_path(section: &ConfigSection, key: &ConfigKey) -> Vec<String> {
        let sample = section
            .path
            .replace(NAME, section.sample)
            .replace(ITEM, "0");
        let key = key.key.replace(NAME, key.sample);
        let parts = sample.split('.').chain(key.split('.'));
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The deserializer is asked for its keys, so neither side can have one that the other lacks.
    #[test]
    fn the_reference_has_exactly_the_keys_of_the_deserializer() {
        let known: BTreeSet<String> = config_shape()
            .value_paths()
            .into_iter()
            .map(|(path, _)| path.join("."))
            // An earlier name, which is still read.
            .filter(|path| path != "gateway.models.NAME.mend")
            .collect();
        let described: Vec<&str> = all_keys().map(|key| key.path.as_str()).collect();
        let unique: BTreeSet<String> = described.iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(unique.len(), described.len(), "a key is described twice");
        assert_eq!(known, unique);
        assert!(known.len() > 100, "{}", known.len());
        let kind = |path: &str| {
            all_keys()
                .find(|key| key.path == path)
                .unwrap()
                .kind
                .clone()
        };
        assert_eq!(kind("recovery"), "`off`, `ask` or `on`");
        assert_eq!(kind("approve"), "list of text");
        assert_eq!(kind("models.[].prices.input"), "number");
        assert_eq!(kind("telemetry.headers.NAME"), "text");
    }

    #[test]
    fn every_example_can_be_used() {
        let environment = Arc::new(Environment::default());
        for section in config_sections() {
            for key in &section.keys {
                let text = section.example_file(key);
                assert_eq!(check_text(&environment, &text), [], "{text}");
                load(&text);
                let path = example_path(section, key);
                let (_, value) =
                    written_value(&text, &path).unwrap_or_else(|| panic!("{path:?}: {text}"));
                assert_eq!(value, key.example, "{text}");
                assert_eq!(describe_key(&path).unwrap().path, key.path);
                assert!(
                    !key.kind.is_empty() && !key.meaning.is_empty(),
                    "{}",
                    key.path
                );
            }
        }
    }

    /// Returns a text with everything that settings affect, computed by the code that uses them.
    fn effects(config: &Config) -> String {
        let spec = SessionSpec::default();
        let gateway = GatewaySpec::default();
        let own = &config.own;
        let rules = config
            .policy_rules(&RuleSpec::default(), std::path::Path::new("/w"))
            .unwrap();
        let connections: Vec<_> = ["box"]
            .iter()
            .filter_map(|name| {
                let environment = &config.environment;
                own.providers
                    .connect_provider(name, environment, &config.notices)
                    .ok()
            })
            .map(|reached| {
                (
                    reached.deadlines,
                    reached.retries,
                    reached.provider.base_url,
                )
            })
            .collect();
        let models: Vec<_> = own
            .gateway
            .models
            .values()
            .map(|model| {
                (
                    (&model.to, model.balance.unwrap_or_default()),
                    (group_rules(model), upstream_weights(model)),
                    model.faulty_calls,
                    model.retries.unwrap_or(DEFAULT_RETRIES),
                    &model.aliases,
                )
            })
            .collect();
        let modes: Vec<_> = config.modes.iter().collect();
        let subtasks = &config.limits.subtasks;
        let bounds = modes::file_access_bounds(&rules, config).unwrap();
        let parts = [
            format!(
                "{:?}",
                completion_options::task_limits(&LimitSpec::default(), &config.limits)
            ),
            format!(
                "{:?}",
                completion_options::completion_conditions(
                    &CompletionSpec::default(),
                    &config.limits
                )
            ),
            format!(
                "{:?} {:?}",
                config.parallel_calls(&spec),
                config.approval_timeout()
            ),
            format!("{:?}", RecoveryChoice::new(&spec, config).resolve()),
            format!("{:?}", sandbox::configured_sandbox(None, config).unwrap()),
            format!("{:?}", checkpointer::store_limits(config).unwrap()),
            format!("{rules:?} {bounds:?} {modes:?} {connections:?} {models:?}"),
            format!(
                "{:?} {:?}",
                gateway.listen_address(config),
                gateway.log_options(config)
            ),
            format!("{:?}", gateway.gateway_settings(config, None, 0).limits),
            format!("{:?} {:?}", own.gateway.hosts, own.gateway.origins),
            format!("{:?}", config.dialects().find("mine")),
            format!(
                "{:?} {:?}",
                subtasks.offered == Some(true),
                subtasks.review == Some(true)
            ),
            format!(
                "{:?} {:?}",
                config.takes_checkpoints(),
                config.allows_trusted_builds()
            ),
            format!(
                "{:?} {:?}",
                config.limits.sends_instructions(),
                config.limits.sends_environment()
            ),
            format!(
                "{:?} {:?}",
                config.limits.compaction_threshold(),
                config.disabled_repairs()
            ),
            format!(
                "{:?} {:?}",
                own.providers.key_seconds("box"),
                own.telemetry.sends_content()
            ),
            format!(
                "{:?} {:?}",
                own.hooks.import,
                own.hooks.reads_project_files()
            ),
            format!(
                "{:?} {:?} {:?} {:?}",
                own.mcp.import,
                own.mcp.reads_project_files(),
                own.mcp.definition_budget(),
                own.mcp.specs()
            ),
            format!("{:?}", config.interface()),
            format!(
                "{:?} {:?} {:?} {:?}",
                own.tui.status_items(),
                own.tui.editing_keys(),
                own.tui.notification_kind(),
                own.tui.theme_name()
            ),
            format!(
                "{:?} {:?} {:?}",
                own.tui.hyperlink_mode(),
                own.tui.clipboard_mode(),
                own.tui.motion()
            ),
        ];
        parts.join("\n")
    }

    /// A default is real if writing it down changes nothing, and an example is one if writing it down changes something.
    #[test]
    fn every_default_is_the_real_one() {
        let mut checked = 0;
        for section in config_sections() {
            for key in &section.keys {
                let KeyDefault::Value(default) = &key.default else {
                    continue;
                };
                let example = section.example_file(key);
                let line = format!("{} = {}\n", key.key, key.example);
                let without = effects(&load(&example.replace(&line, "")));
                let written = example.replace(&line, &format!("{} = {default}\n", key.key));
                assert_eq!(effects(&load(&written)), without, "{written}");
                // The wrong default would not be noticed where the effect cannot be seen.
                let is_seen = key.example == default || effects(&load(&example)) != without;
                assert!(is_seen, "no effect of `{}` is compared", key.path);
                checked += 1;
            }
        }
        assert!(checked > 40, "{checked}");
        let wire = describe_key(&["providers", "box", "wire"].map(str::to_owned)).unwrap();
        assert!(wire.default.to_string().contains(DEFAULT_WIRE));
    }

    #[test]
    fn the_page_is_up_to_date() {
        let expected = reference_markdown();
        if std::env::var_os("SABIR_RENEW").is_some() {
            std::fs::write(PAGE, &expected).unwrap();
        }
        let page = std::fs::read_to_string(PAGE).unwrap_or_default();
        let renew = "run SABIR_RENEW=1 cargo test -p sabir-session --lib reference";
        assert!(
            page == expected,
            "docs/config.md is not what the code says: {renew}"
        );
        let folder = std::path::Path::new(PAGE).parent().unwrap();
        for section in config_sections() {
            assert!(folder.join(section.page).exists(), "{}", section.page);
        }
    }
}
