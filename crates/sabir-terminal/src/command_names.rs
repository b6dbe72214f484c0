//! Understands the words of a command line before the parser of options does: options in front of a
//! subcommand, `-p` for a headless task, and single words that are not a subcommand. Renders the help,
//! in which the commands are grouped.

use std::ffi::OsString;

use clap::Command;

use sabir_session::call::nearest_candidate;

/// The names of a command line's subcommands and options.
#[derive(Debug, Clone, Default)]
pub struct CommandNames {
    /// The subcommands.
    pub commands: Vec<String>,
    /// The subcommands that have subcommands themselves.
    pub nested: Vec<String>,
    /// The options that take a value, with their dashes: `--model`, `-m`.
    pub value_options: Vec<String>,
}

/// The width of the list of commands, which is that of a usual terminal.
const HELP_WIDTH: usize = 80;

/// The flags before the words of a headless task.
const PRINT_FLAGS: [&str; 2] = ["-p", "--print"];

/// Commands of other programs, with a hint about the equivalent here.
const HINTS: [(&str, &str); 14] = [
    (
        "login",
        "keys come from the environment: `sabir models` names the variables",
    ),
    (
        "auth",
        "keys come from the environment: `sabir models` names the variables",
    ),
    ("version", "`sabir --version` prints it"),
    ("logs", "did you mean `sabir log`?"),
    ("status", "did you mean `sabir tasks`?"),
    ("history", "did you mean `sabir tasks`?"),
    ("list", "did you mean `sabir tasks`?"),
    ("ls", "did you mean `sabir tasks`?"),
    ("continue", "did you mean `sabir --continue`?"),
    ("chat", "`sabir` alone asks for a task"),
    ("exec", "did you mean `sabir run`?"),
    ("serve", "did you mean `sabir gateway`?"),
    ("proxy", "did you mean `sabir gateway`?"),
    ("rules", "did you mean `sabir policy explain`?"),
];

impl CommandNames {
    /// Collects the names that these arguments need. The options of subcommands, which may still be undefined, are only
    /// needed if options come first.
    pub fn for_arguments(root: &Command, arguments: &[OsString]) -> Self {
        let mut leading = arguments.iter().skip(1).take_while(|word| is_option(word));
        let is_alone = arguments.len() == 2 && arguments.iter().skip(1).all(is_print_only_flag);
        if is_alone || leading.all(is_print_flag) {
            return Self::of_command(root);
        }
        let mut whole = root.clone();
        whole.build();
        Self::of_command(&whole)
    }

    /// Collects the names of all commands, and of the options that take values.
    pub fn of_command(root: &Command) -> Self {
        let all = || std::iter::once(root).chain(root.get_subcommands());
        let takes_value = |option: &&clap::Arg| {
            option.get_action().takes_values() && !option.is_require_equals_set()
        };
        let names = |option: &clap::Arg| {
            let long = option.get_long().map(|name| format!("--{name}"));
            long.into_iter()
                .chain(option.get_short().map(|name| format!("-{name}")))
        };
        let name = |command: &Command| command.get_name().to_owned();
        Self {
            commands: root.get_subcommands().map(name).collect(),
            nested: root
                .get_subcommands()
                .filter(|one| one.has_subcommands())
                .map(name)
                .collect(),
            value_options: all()
                .flat_map(Command::get_arguments)
                .filter(takes_value)
                .flat_map(names)
                .collect(),
        }
    }

    /// Moves the options before a subcommand to a place after it, where the parser knows them, and makes `run` of a leading `-p`.
    /// Other command lines stay as they are.
    pub fn reorder_arguments(&self, arguments: Vec<OsString>) -> Vec<OsString> {
        let mut rest = join_network(arguments).into_iter();
        let program: Vec<_> = rest.next().into_iter().collect();
        let mut rest = rest.peekable();
        let mut leading = Vec::new();
        let mut prints = false;
        while let Some(option) = rest.next_if(is_option) {
            if is_print_flag(&option) {
                prints = true;
                continue;
            }
            let takes_value = self.value_options.iter().any(|known| option == **known);
            leading.push(option);
            if takes_value {
                leading.extend(rest.next());
            }
        }
        let mut rest: Vec<_> = rest.collect();
        let is_command = rest
            .first()
            .is_some_and(|word| contains(&self.commands, word));
        if !prints && !is_command {
            // `sabir "fix it" -p`: behind the words too, as far as `--`.
            let end = rest.iter().position(|word| word == "--");
            let words = rest.iter().take(end.unwrap_or(rest.len()));
            let flag = words.clone().position(is_print_flag);
            prints = flag.is_some();
            flag.map(|at| rest.remove(at));
        }
        let mut rest = rest.into_iter().peekable();
        let mut command = Vec::new();
        if prints {
            command.push(OsString::from("run"));
        } else if let Some(word) = rest.next_if(|word| contains(&self.commands, word)) {
            let is_nested = contains(&self.nested, &word);
            command.push(word);
            command.extend(rest.next_if(|word| is_nested && !is_option(word)));
        }
        [program, command, leading, rest.collect()].concat()
    }

    /// Explains that a single word is not a command; `None` if it can be a task.
    pub fn explain_unknown_command(&self, words: &[String]) -> Option<String> {
        let [word] = words else { return None };
        if word.is_empty() || word.contains(char::is_whitespace) {
            return None;
        }
        if word == "-" {
            return Some(
                "an interactive task cannot be read from standard input, where you answer: `sabir run -` does it".to_owned(),
            );
        }
        let lower = word.to_lowercase();
        let known = HINTS.iter().find(|(name, _)| *name == lower);
        let near = || {
            let near = nearest_candidate(&lower, self.commands.iter().map(String::as_str))?;
            Some(format!("did you mean `sabir {near}`?"))
        };
        let hint = known
            .map(|(_, hint)| (*hint).to_owned())
            .or_else(near)
            .unwrap_or_else(|| {
                "`sabir --help` lists the commands, `sabir help help` the topics".to_owned()
            });
        let end = if hint.ends_with('?') { "" } else { "." };
        Some(format!(
            "there is no command `{word}`: {hint}{end} To use the word as a task: `sabir -- {word}`"
        ))
    }
}

/// Joins `--network registries` to one argument. The value is optional, so the parser accepts it only after `=`; otherwise it would read
/// the task in `--network "fix it"` as the value.
fn join_network(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut is_open = true;
    for argument in arguments {
        is_open &= argument != "--";
        match joined.last_mut() {
            Some(last) if is_open && *last == "--network" && argument == "registries" => {
                *last = "--network=registries".into();
            }
            _ => joined.push(argument),
        }
    }
    joined
}

fn contains(names: &[String], word: &OsString) -> bool {
    names.iter().any(|name| *word == **name)
}

/// Returns true for an option with which the program only prints something.
fn is_print_only_flag(word: &OsString) -> bool {
    ["-V", "--version", "-h", "--help"]
        .iter()
        .any(|flag| *word == **flag)
}

fn is_print_flag(word: &OsString) -> bool {
    PRINT_FLAGS.iter().any(|flag| *word == **flag)
}

/// Returns true for an option; `-` alone and `--` are not options.
fn is_option(word: &OsString) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.starts_with(b"-") && bytes != b"-" && bytes != b"--"
}

/// Returns the parser with its commands in groups in the help.
pub fn group_commands(command: Command) -> Command {
    let about = |one: &Command| {
        let text = one.get_about().map(ToString::to_string).unwrap_or_default();
        let sentence = text.split(". ").next().unwrap_or_default();
        (
            one.get_name().to_owned(),
            sentence.trim_end_matches('.').to_owned(),
        )
    };
    let groups = render_command_groups(&command.get_subcommands().map(about).collect::<Vec<_>>());
    // Those of every command come behind those of a task.
    let command = ["config", "dialects", "interface"]
        .into_iter()
        .fold(command, |command, name| {
            command.mut_arg(name, |option| option.display_order(900))
        });
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\n\nTask:\n{{positionals}}\n\nOptions:\n{{options}}"
    ))
}

/// Renders the long help of a command, or an error that suggests a similar name. `topics` are further words that can be
/// explained.
///
/// # Errors
/// When there is no such command.
pub fn command_help(
    mut root: Command,
    words: &[&str],
    topics: &[&str],
) -> Result<String, UnknownTopic> {
    root.build();
    let mut command = &mut root;
    for word in words {
        let names: Vec<String> = command
            .get_subcommands()
            .map(Command::get_name)
            .chain(topics.iter().copied())
            .map(str::to_owned)
            .collect();
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            let near = nearest_candidate(word, names.iter().map(String::as_str));
            UnknownTopic {
                word: (*word).to_owned(),
                hint: near.map_or_else(
                    || "`sabir --help` lists the commands".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                ),
            }
        })?;
    }
    Ok(command.render_long_help().to_string())
}

/// An unknown command or topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no help on `{word}`: {hint}")]
pub struct UnknownTopic {
    /// The word.
    pub word: String,
    /// The similar word that was probably meant.
    pub hint: String,
}

/// Renders the commands in groups, for the help of the whole program. A command in no group comes last.
fn render_command_groups(commands: &[(String, String)]) -> String {
    let width = commands
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0);
    let line = |(name, does): &(String, String)| {
        let does =
            wrap_words(does, HELP_WIDTH - width - 4).join(&format!("\n{:1$}", "", width + 4));
        format!("  {name:<width$}  {does}\n")
    };
    let mut text = String::new();
    let mut grouped: Vec<&str> = Vec::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in *names {
            text.extend(commands.iter().filter(|(known, _)| known == name).map(line));
        }
        text.push('\n');
        grouped.extend(*names);
    }
    text.extend(
        commands
            .iter()
            .filter(|(name, _)| !grouped.contains(&name.as_str()))
            .map(line),
    );
    text.trim_end().to_owned()
}

/// Breaks a text into lines of at most this many characters, between words.
fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The groups of commands, in the order in which a user needs them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Tasks",
        &[
            "run", "resume", "fork", "tasks", "log", "export", "import", "context",
        ],
    ),
    (
        "Changes to files",
        &["diff", "undo", "checkpoints", "restore"],
    ),
    (
        "Setup",
        &[
            "tour",
            "init",
            "doctor",
            "config",
            "mcp",
            "models",
            "modes",
            "trust",
            "policy",
            "sandbox",
            "security",
            "completions",
            "man",
            "help",
        ],
    ),
    ("Gateway", &["gateway"]),
    ("Editors", &["acp"]),
    (
        "Toolbox, for texts and tool definitions",
        &[
            "parse", "check", "explain", "lint", "edit", "prompt", "grammar", "corpus", "torture",
            "dialects", "wire",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> CommandNames {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CommandNames {
            commands: names(&["run", "log", "policy", "tasks"]),
            nested: names(&["policy"]),
            value_options: names(&["--model", "-m"]),
        }
    }

    #[test]
    fn options_move_behind_the_command() {
        let check = |line: &str, expected: &str| {
            let arguments = line.split(' ').map(OsString::from).collect();
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(words().reorder_arguments(arguments), expected, "{line}");
        };
        check("sabir log x", "sabir log x");
        check("sabir --model a run b", "sabir run --model a b");
        check("sabir --model=a run b", "sabir run --model=a b");
        check("sabir -m a policy explain b", "sabir policy explain -m a b");
        check("sabir --model run fix it", "sabir --model run fix it");
        check("sabir -- run it", "sabir -- run it");
        check("sabir -p why", "sabir run why");
        check("sabir -p -m a log it", "sabir run -m a log it");
        check("sabir -p", "sabir run");
        check("sabir fix -p", "sabir run fix");
        check("sabir fix -- -p", "sabir fix -- -p");
    }

    #[test]
    fn one_unknown_word_is_no_task() {
        let explain = |list: &[&str]| {
            let list: Vec<_> = list.iter().map(|word| (*word).to_owned()).collect();
            words().explain_unknown_command(&list)
        };
        assert!(explain(&["logs"]).is_some_and(|text| text.contains("`sabir log`")));
        assert!(explain(&["taks"]).is_some_and(|text| text.contains("`sabir tasks`")));
        assert!(explain(&["frobnicate"]).is_some_and(|text| text.contains("sabir -- frobnicate")));
        assert_eq!(explain(&["fix the bug"]), None);
        assert_eq!(explain(&["fix", "it"]), None);
        assert_eq!(explain(&[]), None);
    }
}
