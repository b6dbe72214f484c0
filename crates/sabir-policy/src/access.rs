//! Accesses: the description of what a call would touch, which the policy checks.
//!
//! A tool describes what a call would do in these terms, once, before it runs. The description holds what the policy checks and
//! what the user is shown, so the two cannot differ: paths with links resolved, URLs in canonical form, the command line as the shell
//! gets it.

use super::CommandFacts;

/// The access that a call asks for.
///
/// The enum is exhaustive on purpose: code that shows or checks accesses must not compile while it overlooks a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a call has one access, rarely a few, and the large one is the most frequent"
)]
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
        beyond: ExtraPermissions,
    },
    /// Fetches a document over the network.
    Fetch {
        /// The URL in canonical form, so that the checked, shown and requested URLs are the same.
        url: String,
    },
    /// Calls a tool of an MCP server.
    Server {
        /// The server's name in the user's configuration.
        server: String,
        /// The tool's name on that server.
        tool: String,
        /// The reason to ask even if a rule allows the call, as a phrase for the user, for example that the server has changed the tool.
        caution: Option<String>,
    },
    /// Several accesses; the strictest verdict on any of them applies.
    // A patch touches several files, and a single protected one causes a question.
    Several(Vec<Access>),
    /// An access that cannot be determined, for example because the path is malformed. Such a call never runs.
    Invalid {
        /// The problem, as a phrase for the model.
        reason: String,
    },
}

/// The permissions that a command needs beyond its sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExtraPermissions {
    /// Nothing: it runs in the sandbox of the task, if the task has one.
    #[default]
    Nothing,
    /// Access to the hosts of package registries, through a proxy.
    Registries,
    /// Access to the network, which its sandbox would block.
    Network,
    /// No sandbox at all, although the task has one.
    Unconfined,
}
