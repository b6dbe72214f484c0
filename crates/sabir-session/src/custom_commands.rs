//! Finds the commands that a folder and its user define as files (`/review`), and expands them to messages.
//!
//! A command is a text that becomes a message of the user when they type its name. It grants no
//! rights. The files that it names (`@path`) are read under the same rules as imports, so files
//! outside of the folder and secrets are refused. The shell commands in it (`` !`git status` ``)
//! are not run here: the model is asked to run them, so each is checked like any other command of
//! the model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_call::escaping::ContentEscaping;
use sabir_workspace::{WorkPath, Workspace};
use serde::Serialize;

use crate::config::Config;
use crate::conventions::folder_reader::{list_text_files, read_named_text, read_text_start};
use crate::conventions::front_matter::FrontMatter;
use crate::mcp::{PROMPT_PREFIX, PromptCommands};

/// The folders of a repository with commands, in the order of precedence.
const PROJECT_FOLDERS: [&str; 3] = [".sabir/commands", ".claude/commands", ".roo/commands"];
/// The folders of the user's home with commands, after the one beside the configuration.
const HOME_FOLDERS: [&str; 3] = [".claude/commands", ".roo/commands", ".codex/prompts"];
/// The names of Sabir's own commands in its front ends, which no file can take.
const OWN_NAMES: [&str; 16] = [
    "checkpoints",
    "compact",
    "context",
    "diff",
    "exit",
    "help",
    "image",
    "mode",
    "model",
    "now",
    "q",
    "quit",
    "say",
    "todos",
    "undo",
    "wire",
];
/// The most commands of one folder.
const MAX_FOLDER_COMMANDS: usize = 100;
/// The most bytes of a command, of one file in it, and of all files in it.
const MAX_COMMAND_BYTES: usize = 32 * 1024;
const MAX_FILE_BYTES: usize = 32 * 1024;
const MAX_FILES_BYTES: usize = 128 * 1024;
/// The most bytes of a name, and of a description.
const MAX_NAME_BYTES: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 200;

/// The commands of a folder and its user.
#[derive(Debug, Clone, Default)]
pub struct CustomCommands {
    /// The folder, for the files that commands name.
    workspace: Option<Arc<Workspace>>,
    commands: Vec<CustomCommand>,
    /// The prompts of the session's MCP servers.
    prompts: Option<PromptCommands>,
}

/// A command that is defined by a file, or is a prompt of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CustomCommand {
    /// The name, without the `/`. A command in a subfolder has the folder's name before a colon.
    pub name: String,
    /// The description of the command.
    pub description: String,
    /// The hint for the text after the name; empty if the file gives none.
    pub argument_hint: String,
    /// The file, as a user would name it, or the server that has it.
    pub path: String,
    /// True if it is a prompt of an MCP server.
    #[serde(skip)]
    pub is_prompt: bool,
    /// True if it comes from the repository, false if the user defined it.
    pub from_repository: bool,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The folder that the file is read through, and its path there.
    #[serde(skip)]
    folder: PathBuf,
    #[serde(skip)]
    file: PathBuf,
}

impl CustomCommand {
    /// Creates the command for a prompt of a server.
    pub(crate) fn from_mcp_prompt(
        name: String,
        description: &str,
        hint: &str,
        server: String,
    ) -> Self {
        Self {
            name,
            description: shorten(description),
            argument_hint: shorten(hint),
            path: server,
            is_prompt: true,
            from_repository: false,
            bytes: 0,
            folder: PathBuf::new(),
            file: PathBuf::new(),
        }
    }
}

/// The reason why a command cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("/{name} was not sent: {path} {reason}")]
pub struct CustomCommandError {
    /// The name of the command.
    pub name: String,
    /// Its file.
    pub path: String,
    /// The problem.
    pub reason: String,
}

impl CustomCommands {
    /// Finds the commands for a folder. A folder that cannot be opened has none.
    pub fn find(folder: &Path, config: &Config) -> Self {
        match Workspace::open(folder) {
            Ok(workspace) => Self::find_in(&Arc::new(workspace), config),
            Err(_) => Self::default(),
        }
    }

    /// Finds the commands for a workspace: the user's, which come first, and those of the repository.
    pub(crate) fn find_in(workspace: &Arc<Workspace>, config: &Config) -> Self {
        let mut found = Self {
            workspace: Some(Arc::clone(workspace)),
            commands: Vec::new(),
            prompts: None,
        };
        let environment = &config.environment;
        let own = environment
            .config_file(None)
            .map(|file| file.with_file_name("commands"));
        let home = environment.home_folder.as_deref();
        let others = home
            .into_iter()
            .flat_map(|home| HOME_FOLDERS.map(|path| home.join(path)));
        for folder in own.into_iter().chain(others) {
            if let Ok(folder) = Workspace::open(&folder) {
                found.add_folder(&folder, &WorkPath::root(), false);
            }
        }
        for folder in PROJECT_FOLDERS {
            if let Ok(folder) = workspace.parse_path(folder) {
                found.add_folder(workspace, &folder, true);
            }
        }
        found
    }

    /// Adds the prompts of a session's servers.
    pub(crate) fn with_prompts(self, prompts: PromptCommands) -> Self {
        Self {
            prompts: Some(prompts),
            ..self
        }
    }

    /// Returns the present commands; the prompts of servers may change at any time.
    pub fn commands(&self) -> Vec<CustomCommand> {
        let prompts = self.prompts.iter().flat_map(PromptCommands::commands);
        self.commands.iter().cloned().chain(prompts).collect()
    }

    /// Reports whether a line begins with the name of a command, after a `/`.
    pub fn is_command_line(&self, line: &str) -> bool {
        self.find_command(line).is_some() || self.is_prompt_line(line)
    }

    fn is_prompt_line(&self, line: &str) -> bool {
        let prompts = self.prompts.as_ref();
        prompts.is_some_and(|prompts| prompts.is_prompt_line(line))
    }

    fn find_command(&self, line: &str) -> Option<&CustomCommand> {
        let name = line.split_whitespace().next()?.strip_prefix('/')?;
        self.commands.iter().find(|command| command.name == name)
    }

    /// Expands a line that begins with the name of a command; `None` for any other line. A line that names a prompt of a server stays as
    /// it is: the session asks the server for it when the line is sent.
    ///
    /// # Errors
    /// When the file of the command cannot be read.
    pub fn expand_line(&self, line: &str) -> Option<Result<String, CustomCommandError>> {
        let line = line.strip_prefix('/').map(|_| line)?;
        let Some(command) = self.find_command(line) else {
            return self.is_prompt_line(line).then(|| Ok(line.to_owned()));
        };
        let (_, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Some(self.expand(command, arguments.trim()))
    }

    fn add_folder(&mut self, workspace: &Workspace, folder: &WorkPath, from_repository: bool) {
        let Ok(files) = list_text_files(workspace, folder, &["md"], MAX_FOLDER_COMMANDS) else {
            return;
        };
        for file in files {
            let below = file.as_path().strip_prefix(folder.as_path());
            let Some(name) = below.ok().and_then(command_name) else {
                continue;
            };
            // A repository's command replaces neither the user's command of that name nor a
            // server's prompt: the user expects the text that they wrote.
            let is_own = OWN_NAMES.contains(&name.as_str()) || name.starts_with(PROMPT_PREFIX);
            if is_own || self.commands.iter().any(|known| known.name == name) {
                continue;
            }
            let Ok(read) = read_text_start(workspace, &file, MAX_COMMAND_BYTES) else {
                continue;
            };
            let header = FrontMatter::parse(&read.text);
            let first_line = || {
                let mut lines = header
                    .body
                    .lines()
                    .map(|line| line.trim_start_matches('#').trim());
                lines
                    .find(|line| !line.is_empty())
                    .unwrap_or_default()
                    .to_owned()
            };
            let path = if from_repository {
                file.to_string()
            } else {
                workspace.root().join(file.as_path()).display().to_string()
            };
            self.commands.push(CustomCommand {
                description: shorten(&header.text("description").unwrap_or_else(first_line)),
                argument_hint: shorten(&header.text("argument-hint").unwrap_or_default()),
                name,
                path,
                is_prompt: false,
                from_repository,
                bytes: read.size,
                folder: workspace.root().to_path_buf(),
                file: file.as_path().to_path_buf(),
            });
        }
    }

    fn expand(
        &self,
        command: &CustomCommand,
        arguments: &str,
    ) -> Result<String, CustomCommandError> {
        let fail = |reason: String| CustomCommandError {
            name: command.name.clone(),
            path: command.path.clone(),
            reason,
        };
        let own_folder;
        let folder = match &self.workspace {
            // With the bounds of the task.
            Some(workspace) if command.from_repository => workspace.as_ref(),
            _ => {
                own_folder =
                    Workspace::open(&command.folder).map_err(|error| fail(error.to_string()))?;
                &own_folder
            }
        };
        let file = WorkPath::from_inside(&command.file)
            .ok_or_else(|| fail("is outside of its folder".to_owned()))?;
        let read = read_text_start(folder, &file, MAX_COMMAND_BYTES)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        if read.size > MAX_COMMAND_BYTES as u64 {
            return Err(fail(format!("has more than {MAX_COMMAND_BYTES} bytes")));
        }
        // The template is escaped before the arguments are inserted, since what the user typed is
        // sent unchanged. Its header is dropped: the permissions that it grants in other programs
        // have no effect here.
        let template = clean_foreign_text(FrontMatter::parse(&read.text).body);
        let mut expansion = Expansion::new(arguments);
        expansion.read_template(&template);
        // The line that was typed comes first, so that the history shows what the user did.
        let mut text = format!(
            "/{}{}{arguments}\n\nThe text of this command, from {}:\n\n{}",
            command.name,
            if arguments.is_empty() { "" } else { " " },
            command.path,
            expansion.text.trim()
        );
        if !expansion.uses_arguments && !arguments.is_empty() {
            text.push_str(&format!("\n\nArguments: {arguments}"));
        }
        if expansion.has_commands {
            text.push_str(
                "\n\nRun the shell commands that it asks for with execute_command before anything else; their output belongs in their places.",
            );
        }
        text.push_str(&self.read_files(&expansion.files));
        Ok(text)
    }

    /// Returns the content of the files that a command names. A name that is none of a file stays what it is.
    fn read_files(&self, files: &[String]) -> String {
        let mut text = String::new();
        for (at, name) in files.iter().enumerate() {
            let Some(workspace) = &self.workspace else {
                break;
            };
            if files.iter().take(at).any(|known| known == name) {
                continue;
            }
            // Checked again, although the template was: the name may come from the arguments.
            let Ok(path) = workspace.parse_path(name) else {
                text.push_str(&format!(
                    "\n\n{name} is outside of the folder and was not read.\n"
                ));
                continue;
            };
            match read_named_text(workspace, &path, MAX_FILE_BYTES) {
                Ok(read) if text.len() + read.text.len() <= MAX_FILES_BYTES => {
                    let content = clean_foreign_text(&read.text);
                    let fence = longest_fence(&content);
                    let rest = read.size.saturating_sub(read.text.len() as u64);
                    let rest = match rest {
                        0 => String::new(),
                        rest => format!("[{rest} bytes of it are left out here]\n"),
                    };
                    let end = if content.ends_with('\n') { "" } else { "\n" };
                    text.push_str(&format!(
                        "\n\nThe content of {path}:\n{fence}\n{content}{end}{fence}\n{rest}"
                    ));
                }
                Ok(_) => text.push_str(&format!("\n\n{path} is too long and was not read.\n")),
                // `@alice` is not the name of a file.
                Err(error) if error.is_missing() => {}
                Err(error) => text.push_str(&format!("\n\n{path} was not read: {error}.\n")),
            }
        }
        text
    }
}

/// Returns the name of the command in a file: `review`, or `git:commit` for one in a subfolder.
fn command_name(path: &Path) -> Option<String> {
    let plain = path.with_extension("");
    let parts: Option<Vec<&str>> = plain.iter().map(|part| part.to_str()).collect();
    let name = parts?.join(":");
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_:".contains(c);
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_name)).then_some(name)
}

/// A template in which the arguments are put.
#[derive(Debug)]
struct Expansion<'a> {
    arguments: &'a str,
    words: Vec<String>,
    text: String,
    /// The files that it names.
    files: Vec<String>,
    uses_arguments: bool,
    has_commands: bool,
}

impl<'a> Expansion<'a> {
    fn new(arguments: &'a str) -> Self {
        Self {
            arguments,
            words: split_words(arguments),
            text: String::new(),
            files: Vec::new(),
            uses_arguments: false,
            has_commands: false,
        }
    }

    /// Reads a template once, from the beginning to the end: what an argument contains is not expanded.
    fn read_template(&mut self, template: &str) {
        // Reads the template alone, so that a `$2` or an `@` in an argument is not expanded.
        let mut rest = template;
        let mut before = '\n';
        while let Some(c) = rest.chars().next() {
            let taken = match c {
                '$' => self.put_argument(rest),
                '!' => self.put_command(rest),
                '@' if before.is_whitespace() => self.put_file(rest),
                _ => 0,
            };
            let taken = if taken == 0 {
                self.text.push(c);
                c.len_utf8()
            } else {
                taken
            };
            before = c;
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// Inserts the arguments that a `$` refers to; returns the number of bytes that it read.
    fn put_argument(&mut self, rest: &str) -> usize {
        let Some((value, taken)) = self.argument_at(rest) else {
            return 0;
        };
        self.uses_arguments = true;
        self.text.push_str(&value);
        taken
    }

    fn argument_at(&self, rest: &str) -> Option<(String, usize)> {
        const ALL: &str = "$ARGUMENTS";
        if rest.starts_with(ALL) {
            return Some((self.arguments.to_owned(), ALL.len()));
        }
        let digit = rest
            .chars()
            .nth(1)?
            .to_digit(10)
            .filter(|digit| *digit > 0)?;
        // `$10` is money, and no argument followed by a zero.
        if rest
            .chars()
            .nth(2)
            .is_some_and(|next| next.is_ascii_digit())
        {
            return None;
        }
        let word = self.words.get(digit as usize - 1);
        Some((word.cloned().unwrap_or_default(), 2))
    }

    /// Puts in the request to run a command, for `` !`…` ``; returns the bytes that it read.
    fn put_command(&mut self, rest: &str) -> usize {
        let Some(command) = rest
            .strip_prefix("!`")
            .and_then(|rest| rest.split_once('`'))
            .map(|(command, _)| command)
            .filter(|command| !command.trim().is_empty() && !command.contains('\n'))
        else {
            return 0;
        };
        let mut inner = Expansion::new(self.arguments);
        let mut left = command;
        while let Some(c) = left.chars().next() {
            let taken = if c == '$' {
                inner.put_argument(left)
            } else {
                0
            };
            if taken == 0 {
                inner.text.push(c);
            }
            left = left.get(taken.max(c.len_utf8())..).unwrap_or_default();
        }
        self.uses_arguments |= inner.uses_arguments;
        // The command is not run: a repository's text must not start a program, not even after
        // asking.
        self.has_commands = true;
        self.text.push_str(&format!(
            "[the output of the shell command `{}`]",
            inner.text
        ));
        command.len() + 3
    }

    /// Notes the file that an `@` names; returns the bytes that it read.
    fn put_file(&mut self, rest: &str) -> usize {
        let path = rest.get(1..).unwrap_or_default();
        let end = path.find(char::is_whitespace).unwrap_or(path.len());
        let written = path.get(..end).unwrap_or_default();
        let written = written.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '"', '\'', '`']);
        if written.is_empty() {
            return 0;
        }
        let name = match self.argument_at(written) {
            Some((value, taken)) if taken == written.len() => {
                self.uses_arguments = true;
                value
            }
            _ => written.to_owned(),
        };
        self.text.push('@');
        self.text.push_str(&name);
        if !name.is_empty() {
            self.files.push(name);
        }
        1 + written.len()
    }
}

/// Splits arguments at blanks outside of quotes.
pub(crate) fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Escapes special tokens, hidden characters and control characters in the text of a file. The text becomes part of a user message, which
/// is sent unescaped.
pub(crate) fn clean_foreign_text(text: &str) -> String {
    let escaping = ContentEscaping {
        special_tokens: true,
        hidden_characters: true,
    };
    let text: String = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    escaping.escape_text(&text).unwrap_or(text)
}

/// Returns a fence that is longer than every row of backticks in a text.
fn longest_fence(text: &str) -> String {
    let mut longest = 2;
    let mut row = 0;
    for c in text.chars() {
        row = if c == '`' { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    "`".repeat(longest + 1)
}

/// Returns a text on one line, cut to a length that fits a list.
fn shorten(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let end = line.floor_char_boundary(MAX_DESCRIPTION_BYTES);
    line.get(..end).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(folder: &Path) -> CustomCommands {
        CustomCommands::find(folder, &Config::default())
    }

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn arguments_are_put_in_once() {
        let check = |template: &str, arguments: &str, expected: &str| {
            let mut expansion = Expansion::new(arguments);
            expansion.read_template(template);
            assert_eq!(expansion.text, expected, "{template}");
        };
        check("fix $ARGUMENTS now", "a b", "fix a b now");
        check("$1-$2-$3", "a \"b c\"", "a-b c-");
        check("$1", "$2 x", "$2");
        check("$10 $0 $x $", "a", "$10 $0 $x $");
        check(
            "!`git show $1`",
            "abc",
            "[the output of the shell command `git show abc`]",
        );
        check("no! !` ` wow!", "", "no! !` ` wow!");
        check("see @$1.", "a.rs", "see @a.rs.");
        check("$ARGUMENTS", "!`ls` @x", "!`ls` @x");
    }

    #[test]
    fn a_command_of_a_repository_reads_only_what_is_in_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path();
        write(
            root,
            ".claude/commands/git/look.md",
            "---\ndescription: Looks.\n---\n<|im_start|> @a.txt @.env @../x @link @bob \u{1b}[2J",
        );
        write(root, ".claude/commands/bad name.md", "x");
        write(root, "a.txt", "````\nA<|im_end|>");
        write(root, ".env", "SECRET");
        std::os::unix::fs::symlink(".env", root.join("link")).unwrap();
        let commands = commands(root);
        let names: Vec<_> = commands
            .commands()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert!(names.contains(&"git:look".to_owned()), "{names:?}");
        let text = commands.expand_line("/git:look at it").unwrap().unwrap();
        for said in [
            "`````\n````\nA<",
            "Arguments: at it",
            "usually holds secrets",
            "outside of the folder",
            "it is a link",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        for absent in ["SECRET", "<|im_start|>", "<|im_end|>", "\u{1b}", "bob was"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        for line in ["/git:lookx", "git:look", "/", "", "/git"] {
            assert!(commands.expand_line(line).is_none(), "{line}");
        }
    }
}
