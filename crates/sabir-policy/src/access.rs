//! Accesses: the description of what a call would touch, which the policy judges.

use super::CommandFacts;

/// The access that a call asks for.
///
/// The enum is exhaustive on purpose: code that shows or judges accesses must not compile while it overlooks a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Nothing outside the task itself.
    Nothing,
    /// Reads a file or a folder.
    Read {
        /// The path as the user would name it, with symbolic links resolved.
        path: String,
        /// True if the path lies outside of the workspace.
        outside: bool,
    },
    /// Writes a file.
    Write {
        /// The path as the user would name it, with symbolic links resolved.
        path: String,
        /// The reason why the path is protected, if it is.
        protected: Option<String>,
    },
    /// Runs a command.
    Command {
        /// The command line, exactly as it is passed to the shell.
        command: String,
        /// Facts about the environment where it would run.
        facts: CommandFacts,
        /// The permissions that it needs beyond its sandbox.
        beyond: Beyond,
    },
    /// Fetches a document over the network.
    Fetch {
        /// The URL in canonical form, so that the judged, shown and requested URLs are the same.
        url: String,
    },
    /// Calls a tool of an MCP server.
    Server {
        /// The server's name in the user's configuration.
        server: String,
        /// The tool's name on that server.
        tool: String,
    },
    /// Several accesses, judged as the strictest of them.
    Several(Vec<Access>),
    /// An access that cannot be determined, for example because the path is malformed. Such a call never runs.
    Invalid {
        /// The problem, as a phrase for the model.
        reason: String,
    },
}

/// The permissions that a command needs beyond its sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Beyond {
    /// Nothing: it runs in the sandbox of the task, if the task has one.
    #[default]
    Nothing,
    /// Access to the network, which its sandbox would block.
    Network,
    /// No sandbox at all, although the task has one.
    Unconfined,
}
