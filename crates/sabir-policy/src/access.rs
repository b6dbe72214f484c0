//! The question put to the policy: what a call would touch.

use super::CommandFacts;

/// What a call would touch, as the policy judges it.
///
/// It is exhaustive on purpose: code that shows or judges accesses must not compile while it overlooks one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Nothing outside the task itself.
    Nothing,
    /// Reads a file or a folder.
    Read {
        /// As the user would name it, links resolved.
        path: String,
        /// Whether it lies outside the workspace.
        outside: bool,
    },
    /// Writes a file.
    Write {
        /// As the user would name it, links resolved.
        path: String,
        /// Why the path is protected, if it is.
        protected: Option<String>,
    },
    /// Runs a command.
    Command {
        /// The command line, as the shell gets it.
        command: String,
        /// What is known of the place where it would run.
        facts: CommandFacts,
        /// What it asks for beyond its sandbox.
        beyond: Beyond,
    },
    /// Asks a server for a document.
    Fetch {
        /// The address in its one canonical spelling: what is judged and shown is what is asked for.
        url: String,
    },
    /// Calls a tool of an MCP server.
    Server {
        /// The server, as the user's configuration names it.
        server: String,
        /// The tool, as the server names it.
        tool: String,
    },
    /// All of these. It is judged as the strictest of them.
    Several(Vec<Access>),
    /// Cannot be known: the path is no path, say. The tool will fail with a clear message.
    Invalid {
        /// What is wrong.
        reason: String,
    },
}

/// What a command asks for beyond its sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Nothing: it runs as all commands of the task do, in whatever sandbox they have.
    #[default]
    Nothing,
    /// The network, which its sandbox would deny.
    Network,
    /// No sandbox, where there would be one.
    Unconfined,
}
