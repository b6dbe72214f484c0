//! Lists the commands that a line beginning with `/` can be, and parses them.

/// A command of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlashCommand {
    /// Shows the keys and commands.
    Help,
    /// Interrupts the model with a message.
    Now(String),
    /// Sends a text as it is.
    Say(String),
    /// Attaches the image of a file to this message, or to the next one.
    Image {
        /// The file.
        path: String,
        /// The message; empty for the next one.
        message: String,
    },
    /// Switches the mode.
    Mode(String),
    /// Uses another model.
    Model(String),
    /// Shows what fills the context.
    Context,
    /// Compacts the context.
    Compact,
    /// Undoes this many changing calls, those from a checkpoint on, or those since the last message.
    Undo {
        /// The number of calls.
        calls: Option<usize>,
        /// The number of the checkpoint.
        checkpoint: Option<u32>,
    },
    /// Shows what the task has changed: all of it, or its last changing calls.
    Diff(Option<usize>),
    /// Lists the calls that can be undone.
    Checkpoints,
    /// Shows the todo list.
    Todos,
    /// Shows an answer as it was received, beside its interpretation; without a number lists the answers.
    Wire(Option<usize>),
    /// Leaves.
    Quit,
    /// Lists the tasks of the folder.
    Tasks,
    /// Lists the models.
    Models,
    /// Lists the modes.
    Modes,
    /// Lists the MCP servers.
    Servers,
    /// Lists the themes.
    Themes,
    /// Uses a theme.
    Theme(String),
    /// Logs in to an MCP server.
    LogIn {
        /// The server.
        server: String,
        /// The address at which the browser ended.
        address: Option<String>,
    },
    /// Lets the next message begin a new task.
    New,
    /// Lists the earlier messages, for a rewind.
    Rewind,
    /// Lists the subtasks that work.
    Subtasks,
    /// Copies the last answer to the clipboard.
    Copy,
    /// Runs a command of the user.
    Run(String),
    /// Adds a note to the instructions of the folder.
    Note(String),
}

/// A line that looks like a command but is not one. The text says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{line}` was not sent: {problem}. /help lists the commands, and `/say TEXT` sends any text"
)]
pub struct BadCommand {
    line: String,
    problem: String,
}

/// The description of a command, for completion and help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandHelp {
    /// The word with its `/`.
    pub name: &'static str,
    /// The argument; empty for none.
    pub argument: &'static str,
    /// The effect.
    pub effect: &'static str,
}

const fn help(name: &'static str, argument: &'static str, effect: &'static str) -> CommandHelp {
    CommandHelp {
        name,
        argument,
        effect,
    }
}

/// All commands.
pub const COMMANDS: [CommandHelp; 21] = [
    help("/help", "", "show the keys and commands"),
    help(
        "/checkpoints",
        "",
        "show what each call changed, and restore earlier states",
    ),
    help("/compact", "", "compact the context"),
    help("/context", "", "show what fills the context"),
    help("/copy", "", "copy the last answer to the clipboard"),
    help(
        "/diff",
        "[N]",
        "show what the task has changed, or its last N changing calls",
    ),
    help(
        "/image",
        "FILE [MESSAGE]",
        "attach an image to your message",
    ),
    help(
        "/mcp",
        "[login NAME]",
        "list the MCP servers, or log in to one",
    ),
    help("/mode", "[NAME]", "list the modes, or switch to one"),
    help(
        "/model",
        "[NAME]",
        "list the models, or use another model from the next turn on",
    ),
    help("/new", "", "begin a new task with your next message"),
    help("/now", "MESSAGE", "interrupt the model with a message"),
    help("/quit", "", "leave"),
    help("/rewind", "", "rewind to an earlier message (Esc twice)"),
    help("/say", "TEXT", "send a text that looks like a command"),
    help(
        "/subtasks",
        "",
        "list the running subtasks, to enter or stop one",
    ),
    help(
        "/tasks",
        "",
        "list the tasks of this folder: continue or fork one",
    ),
    help(
        "/theme",
        "[NAME]",
        "list the themes, with a preview, or use another one",
    ),
    help("/todos", "", "show the todo list"),
    help(
        "/undo",
        "[N|@N]",
        "undo what was changed since your last message, by the last N calls, or from checkpoint @N on",
    ),
    help(
        "/wire",
        "[N]",
        "list the answers as received, with their interpretation, or show answer N",
    ),
];

/// The keys that always mean the same, as `/help` shows them. [`ACTIONS`] has those that can be bound.
///
/// [`ACTIONS`]: sabir_session::config::key_bindings::ACTIONS
pub const FIXED_KEYS: [(&str, &str); 12] = [
    ("Enter", "send; while the task works, queue"),
    ("Alt-Enter, Shift-Enter", "break the line"),
    (
        "Esc",
        "stop the turn or the running command; everything is kept",
    ),
    (
        "Esc Esc",
        "rewind to an earlier message: conversation, files or both",
    ),
    ("Ctrl-C", "clear the draft; stop the turn; twice to leave"),
    ("Ctrl-D", "leave, without a draft"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend Sabir; `fg` resumes it"),
    (
        "Up, Down",
        "move; at the edge, go through the history or edit the queue",
    ),
    ("Tab", "complete; move between the question and the draft"),
    (
        "@NAME",
        "name a file of the workspace, or a function or type in it",
    ),
    (
        "!COMMAND, # NOTE",
        "run your own command; add a note to AGENTS.md",
    ),
];

/// Returns true if a line begins with the name of one of Sabir's own commands, which no command of a folder replaces.
pub fn is_builtin_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    matches!(word, "/exit" | "/q" | "/?") || COMMANDS.iter().any(|known| known.name == word)
}

/// Parses a line; `None` if it is a message.
///
/// # Errors
/// When the line looks like a command but is not one.
pub fn parse_command(line: &str) -> Option<Result<SlashCommand, BadCommand>> {
    let trimmed = line.trim();
    // Leading words of other programs do not become paid messages.
    if matches!(trimmed, "?" | "/" | "/?" | "help") {
        return Some(Ok(SlashCommand::Help));
    }
    if matches!(trimmed, "exit" | "quit" | ":q" | ":q!" | "/q" | "/exit") {
        return Some(Ok(SlashCommand::Quit));
    }
    if !trimmed.starts_with('/') {
        let note = trimmed.strip_prefix("# ").map(str::trim_start);
        let line = trimmed.strip_prefix('!').filter(|line| {
            line.chars()
                .next()
                .is_some_and(|c| !c.is_whitespace() && c != '!')
        });
        let run = line.map(|line| SlashCommand::Run(line.to_owned()));
        return run
            .or_else(|| note.map(|note| SlashCommand::Note(note.to_owned())))
            .map(Ok);
    }
    let (word, rest) = trimmed
        .split_once(char::is_whitespace)
        .unwrap_or((trimmed, ""));
    let name = word.strip_prefix('/')?;
    // A path has more than letters: `/etc/hosts is wrong` is a message.
    if !name.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let rest = rest.trim();
    let takes_text = matches!(word, "/now" | "/say" | "/image");
    if takes_text && rest.is_empty() {
        return Some(Err(bad(trimmed, &format!("`{word}` needs an argument"))));
    }
    let command = match word {
        "/now" => SlashCommand::Now(rest.to_owned()),
        "/say" => SlashCommand::Say(rest.to_owned()),
        "/image" => parse_image(rest),
        "/mode" if rest.is_empty() => SlashCommand::Modes,
        "/mode" => SlashCommand::Mode(rest.to_owned()),
        "/model" if rest.is_empty() => SlashCommand::Models,
        "/model" => SlashCommand::Model(rest.to_owned()),
        "/mcp" if rest.is_empty() => SlashCommand::Servers,
        "/mcp" => match sabir_terminal::slash_commands::login_command(trimmed) {
            Some((server, address)) => SlashCommand::LogIn {
                server: server.to_owned(),
                address: address.map(str::to_owned),
            },
            None => return Some(Err(bad(trimmed, "`/mcp` takes `login NAME`"))),
        },
        "/theme" if rest.is_empty() => SlashCommand::Themes,
        "/theme" => SlashCommand::Theme(rest.to_owned()),
        "/diff" if rest.is_empty() => SlashCommand::Diff(None),
        "/diff" => match rest.parse() {
            Ok(count @ 1..) => SlashCommand::Diff(Some(count)),
            _ => return Some(Err(bad(trimmed, "`/diff` takes a number"))),
        },
        "/undo" => match parse_undo(rest) {
            Some(command) => command,
            None => {
                return Some(Err(bad(
                    trimmed,
                    "`/undo` takes a number, or `@` and the number of a checkpoint",
                )));
            }
        },
        "/wire" if rest.is_empty() => SlashCommand::Wire(None),
        "/wire" => match rest.parse() {
            Ok(number @ 1..) => SlashCommand::Wire(Some(number)),
            _ => return Some(Err(bad(trimmed, "`/wire` takes the number of an answer"))),
        },
        _ if !rest.is_empty() && COMMANDS.iter().any(|known| known.name == word) => {
            return Some(Err(bad(trimmed, &format!("`{word}` takes no argument"))));
        }
        "/help" => SlashCommand::Help,
        "/context" => SlashCommand::Context,
        "/compact" => SlashCommand::Compact,
        "/checkpoints" => SlashCommand::Checkpoints,
        "/todos" => SlashCommand::Todos,
        "/quit" => SlashCommand::Quit,
        "/tasks" | "/resume" => SlashCommand::Tasks,
        // The second is what other programs call it.
        "/new" | "/clear" => SlashCommand::New,
        "/rewind" => SlashCommand::Rewind,
        "/subtasks" => SlashCommand::Subtasks,
        "/copy" => SlashCommand::Copy,
        _ => {
            let names = COMMANDS.iter().map(|known| known.name);
            let hint = sabir_session::call::nearest_candidate(word, names)
                .map(|near| format!(" (did you mean `{near}`?)"))
                .unwrap_or_default();
            return Some(Err(bad(
                trimmed,
                &format!("there is no command `{word}`{hint}"),
            )));
        }
    };
    Some(Ok(command))
}

fn bad(line: &str, problem: &str) -> BadCommand {
    BadCommand {
        line: crate::lines::fit_text(line, 60),
        problem: problem.to_owned(),
    }
}

/// Parses the argument of `/undo`; `None` if it is not one.
fn parse_undo(rest: &str) -> Option<SlashCommand> {
    let (calls, checkpoint) = match rest.strip_prefix('@') {
        Some(number) => (None, Some(number.parse().ok()?)),
        None if rest.is_empty() => (None, None),
        None => (Some(rest.parse().ok().filter(|calls| *calls > 0)?), None),
    };
    Some(SlashCommand::Undo { calls, checkpoint })
}

/// Parses the argument of `/image`: a file name (in double quotes if it has blanks) and a message.
fn parse_image(rest: &str) -> SlashCommand {
    let quoted = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (path, message) = quoted
        .or_else(|| rest.split_once(char::is_whitespace))
        .unwrap_or((rest, ""));
    SlashCommand::Image {
        path: path.to_owned(),
        message: message.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed() {
        let parse = |line: &str| parse_command(line).and_then(Result::ok);
        assert_eq!(parse("/help"), Some(SlashCommand::Help));
        assert_eq!(
            parse("/now stop it"),
            Some(SlashCommand::Now("stop it".to_owned()))
        );
        let undo = |calls, checkpoint| Some(SlashCommand::Undo { calls, checkpoint });
        assert_eq!(parse("/undo"), undo(None, None));
        assert_eq!(parse("/undo 3"), undo(Some(3), None));
        assert_eq!(parse("/undo @3"), undo(None, Some(3)));
        assert_eq!(parse("/wire"), Some(SlashCommand::Wire(None)));
        assert_eq!(parse("/wire 3"), Some(SlashCommand::Wire(Some(3))));
        let login = SlashCommand::LogIn {
            server: "tracker".to_owned(),
            address: None,
        };
        assert_eq!(parse("/mcp login tracker"), Some(login));
        assert_eq!(parse("/mcp"), Some(SlashCommand::Servers));
        assert_eq!(parse("/mcp tracker"), None);
        let image = |path: &str, message: &str| SlashCommand::Image {
            path: path.to_owned(),
            message: message.to_owned(),
        };
        assert_eq!(
            parse("/image \"my a.png\" and this?"),
            Some(image("my a.png", "and this?"))
        );
        assert_eq!(parse("/image a.png"), Some(image("a.png", "")));
        assert_eq!(parse("exit"), Some(SlashCommand::Quit));
        assert_eq!(parse("!ls -l"), Some(SlashCommand::Run("ls -l".to_owned())));
        assert_eq!(
            parse("# use tabs"),
            Some(SlashCommand::Note("use tabs".to_owned()))
        );
        assert_eq!(parse("/model"), Some(SlashCommand::Models));
    }

    #[test]
    fn messages_stay_messages() {
        for line in [
            "fix it",
            "/etc/hosts is wrong",
            "! is a bang",
            "!!",
            "#12 is open",
            "why?",
            "@src/main.rs is odd",
            "",
        ] {
            assert_eq!(parse_command(line), None, "{line}");
        }
        for line in [
            "/foo",
            "/compcat",
            "/now",
            "/compact now",
            "/undo x",
            "/undo 0",
            "/undo @",
            "/wire 0",
            "/wire x",
        ] {
            assert!(matches!(parse_command(line), Some(Err(_))), "{line}");
        }
        let Some(Err(error)) = parse_command("/compcat") else {
            panic!("it is not a command");
        };
        assert!(error.to_string().contains("`/compact`"), "{error}");
    }
}
