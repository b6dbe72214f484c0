//! MCP servers of sessions: their configuration, and the user's trust and approvals.
//!
//! Servers come from the user's configuration, from files of other programs that it names, from the
//! spec of a session, and from files of the repository. A repository's server starts programs on
//! the user's machine, so it is started only after the user has trusted exactly this entry
//! ([`trust_servers`]); a changed entry is not started.

mod definitions;
mod elicitation;
mod keys;
mod login;
mod login_store;
mod manage;
mod prompts;
mod resource_changes;
mod served_tools;
mod session_servers;
mod sources;
mod store;

pub use elicitation::FormElicitor;
pub(crate) use keys::McpConfig;
pub use login::{
    LoginState, PageOpening, log_out, login_error, login_state, open_login_page, start_login,
};
pub use manage::{
    ServerTest, add_server, call_tool, lint_source, remove_server, server_settings, test_server,
    trust_servers,
};
pub(crate) use manage::{server_table, server_tables};
pub(crate) use prompts::{PROMPT_PREFIX, PromptCommands};
pub(crate) use resource_changes::ResourceChangeNotifier;
pub use served_tools::{served_token, served_tools};
pub(crate) use session_servers::start_servers;
pub use sources::{FoundServer, LaunchState, ServerList, ServerSource, find_servers};

/// The crate that connects to servers, for front ends that serve tools themselves.
pub use sabir_mcp as protocol;
