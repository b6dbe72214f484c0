//! Serves programs that are written for the Claude Agent SDK (`claude-agent-sdk` on PyPI, `@anthropic-ai/claude-agent-sdk` on npm).
//!
//! The SDK starts a program with the command line of Claude Code and exchanges JSON lines with it:
//! messages of the user in, messages of the model, results of calls and one `result` for each turn
//! out. Both sides also send control requests: the SDK to initialize, to interrupt or to change the
//! mode, and Sabir to ask about calls and hooks. The formats come from the code of both packages
//! (Python 0.2, TypeScript 0.3); `docs/agent-sdk.md` lists what works and what has no effect.

mod arguments;
mod control;
mod error;
mod json;
mod messages;
mod partial_messages;
mod program_servers;
mod server;

pub use arguments::{ResumedTask, SdkArgumentError, SdkArguments};
pub use server::serve;
