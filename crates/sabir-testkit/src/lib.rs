//! Fakes, scripts, fixture runners. Unpublished; a dev-dependency of the other crates.
//!
//! [`ScriptedProvider`] is a provider on this machine: it speaks the real bytes of every wire over real HTTP, says what a
//! [`Script`] tells it to, misbehaves on demand, and remembers what it was asked.

mod pages;
mod provider;
mod script;
mod untrusted;

pub use pages::{Page, Pages};
pub use provider::{Recorded, ScriptedProvider};
pub use script::{Chunks, Reply, Say, Script, Trouble};
pub use untrusted::Untrusted;
