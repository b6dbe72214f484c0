//! Fakes, scripts, fixture runners. Unpublished; a dev-dependency of the other crates.
//!
//! [`ScriptedProvider`] is a provider on this machine: it speaks the real bytes of every wire over real HTTP, says what a
//! [`ReplyScript`] tells it to, misbehaves on demand, and remembers what it was asked.

mod page_server;
mod script;
mod scripted_provider;
mod temp_base;
mod untrusted;

pub use page_server::{PageServer, StaticPage};
pub use script::{ChunkSplit, ProviderReply, ReplyPart, ReplyScript, ScriptedFault};
pub use scripted_provider::{ReceivedRequest, ScriptedProvider};
pub use temp_base::find_temp_base;
pub use untrusted::UntrustedServer;
