//! Lists the slash commands, which are for Sabir instead of the model, and the replies to lines that look like one.
//!
//! A line that another program would take as a command (`exit`, `?`, `!ls`, `@file`, `/unknown`) must not
//! become a paid message by accident. `/say TEXT` sends any text as it is.

use sabir_session::call::nearest_candidate;
use sabir_session::custom_commands::{CustomCommand, CustomCommands};

/// The prefix of a message that is sent unchanged, even if it looks like a command.
pub const SAY_COMMAND: &str = "/say ";

/// The commands with their descriptions.
const COMMANDS: [(&str, &str); 10] = [
    ("/help", "show this list"),
    ("/now MESSAGE", "interrupt the model with a message"),
    ("/say TEXT", "send a text that looks like a command"),
    ("/image FILE [MESSAGE]", "attach an image to your message"),
    ("/mode NAME", "switch the mode"),
    ("/mcp login NAME", "log in to an MCP server"),
    ("/context", "show what fills the context"),
    ("/compact", "compact the context"),
    ("/quit", "leave when it is your turn"),
    ("Ctrl-C", "interrupt what is running; twice to leave"),
];

/// Returns true if a line is a command to leave, of Sabir or of another program.
pub fn is_quit_word(line: &str) -> bool {
    matches!(line, "exit" | "quit" | ":q" | ":q!" | "/q")
}

/// Returns the server of a `/mcp login` line, and the address behind its name.
pub fn login_command(line: &str) -> Option<(&str, Option<&str>)> {
    let mut words = line.split_whitespace();
    let is_login = words.next() == Some("/mcp") && words.next() == Some("login");
    let server = words.next().filter(|_| is_login)?;
    let address = words.next();
    words.next().is_none().then_some((server, address))
}

/// Returns true if a line begins with the name of one of Sabir's own commands, which no command of a folder replaces.
pub fn is_builtin_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    matches!(word, "/exit" | "/q" | "/?")
        || COMMANDS
            .iter()
            .any(|(known, _)| known.split(' ').next() == Some(word))
}

/// Returns the text to show for a line that is answered here and not sent; `None` for any other line. `custom` are the commands that
/// the folder and the user define.
pub fn local_reply(line: &str, custom: &CustomCommands) -> Option<String> {
    let line = line.trim();
    if matches!(line, "?" | "/" | "/?" | "/help" | "help") {
        return Some(command_list(custom));
    }
    if let Some(rest) = line.strip_prefix('!') {
        let is_command = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || ".~/".contains(c));
        return is_command.then(|| {
            "nothing was run or sent: `!` runs no commands here. Ask the model to run it, or use another terminal; \
             `/say TEXT` sends the line as it is\n"
                .to_owned()
        });
    }
    if let Some(rest) = line.strip_prefix('@') {
        let is_file = rest.starts_with(|c: char| c.is_alphanumeric() || "./~_".contains(c));
        return is_file.then(|| {
            "nothing was sent: `@` attaches no files. Name the file in your message, and the model reads it; \
             `/image FILE` attaches an image, and `/say TEXT` sends the line as it is\n"
                .to_owned()
        });
    }
    let word = line.split_whitespace().next()?;
    let name = word.strip_prefix('/')?;
    // A path has more than letters: `/etc/hosts is wrong` is a message.
    let looks_like_command = name
        .chars()
        .all(|c| c.is_ascii_alphabetic() || "-_:".contains(c));
    if !is_builtin_command(line) && custom.is_command_line(line) {
        return None;
    }
    let is_known = |known: &str| known.split(' ').next() == Some(word);
    let takes_argument = |known: &str| known.contains(' ');
    let complete = COMMANDS.iter().any(|(known, _)| {
        // A command does nothing if its argument is missing, or if it has superfluous words.
        let has_argument = line.len() > word.len();
        match known.split_whitespace().nth(1) {
            Some("login") => is_known(known) && login_command(line).is_some(),
            _ => {
                is_known(known)
                    && (known.starts_with("/mode") || takes_argument(known) == has_argument)
            }
        }
    });
    if !looks_like_command || complete || word == "/exit" {
        return None;
    }
    let custom_names: Vec<String> = custom
        .commands()
        .iter()
        .map(|command| format!("/{}", command.name))
        .collect();
    let names = COMMANDS
        .iter()
        .filter_map(|(known, _)| known.split(' ').next())
        .chain(custom_names.iter().map(String::as_str));
    let problem = if COMMANDS.iter().any(|(known, _)| is_known(known)) {
        format!("`{line}` was not sent: that is not how `{word}` is used")
    } else {
        let hint = nearest_candidate(word, names.filter(|name| name.starts_with('/')))
            .map(|near| format!(" Did you mean `{near}`?"))
            .unwrap_or_default();
        format!("`{line}` was not sent: there is no command `{word}`.{hint}")
    };
    Some(format!("{problem}\n{}", command_list(custom)))
}

/// Renders the list of commands.
fn command_list(custom: &CustomCommands) -> String {
    let lines: String = COMMANDS
        .iter()
        .map(|(command, does)| format!("  {command:<22} {does}\n"))
        .collect();
    let custom: String = custom.commands().iter().map(custom_command_line).collect();
    format!(
        "{lines}{custom}At a question about a call, y allows it, n refuses it, a allows such calls from now on, and other words refuse it\n\
         with a reason. Anything else is a message to the model.\n"
    )
}

/// Renders a line of the list about a command that the folder or the user defines.
pub fn custom_command_line(command: &CustomCommand) -> String {
    let name = format!("/{} {}", command.name, command.argument_hint);
    let whose = match (command.is_prompt, command.from_repository) {
        (true, _) => command.path.as_str(),
        (false, true) => "this folder's",
        (false, false) => "yours",
    };
    format!(
        "  {:<22} {} ({whose})\n",
        name.trim_end(),
        command.description
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local_reply(line: &str) -> Option<String> {
        super::local_reply(line, &CustomCommands::default())
    }

    #[test]
    fn what_looks_like_a_command_is_not_sent() {
        for line in [
            "?",
            "/help",
            "help",
            "/foo",
            "/compcat",
            "/mod plan",
            "!ls",
            "!./x",
            "@src/main.rs",
            "/image",
            "/compact now",
            "/say",
        ] {
            assert!(local_reply(line).is_some(), "{line}");
        }
        assert!(local_reply("/compcat").is_some_and(|text| text.contains("`/compact`")));
    }

    #[test]
    fn messages_and_commands_pass() {
        for line in [
            "",
            "fix it",
            "/etc/hosts is wrong",
            "! is a bang",
            "@ is a sign",
            "why?",
            "/quit",
            "/exit",
            "/compact",
            "/context",
            "/mode",
            "/mode plan",
            "/image a.png",
            "/now stop",
            "/say /foo",
        ] {
            assert!(local_reply(line).is_none(), "{line}");
        }
    }
}
