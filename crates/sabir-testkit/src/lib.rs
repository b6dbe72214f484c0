//! Test servers and scripts for the other crates. Unpublished; only a dev-dependency.
//!
//! [`ScriptedProvider`] is a provider on this machine. It sends the real bytes of every wire over
//! real HTTP, replies as a [`ReplyScript`] says, misbehaves on demand, and records the requests it
//! received.

mod oauth_server;
mod page_server;
mod script;
mod scripted_provider;
mod temp_base;
mod untrusted;

pub use oauth_server::{LoginForgery, OAuthRequest, OAuthServer};
pub use page_server::{PageServer, StaticPage};
pub use script::{ChunkSplit, ProviderReply, ReplyPart, ReplyScript, ScriptedFault};
pub use scripted_provider::{ReceivedRequest, ScriptedProvider};
pub use temp_base::find_temp_base;
pub use untrusted::UntrustedServer;
