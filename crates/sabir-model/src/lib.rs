//! Connects to models over HTTP: keys, deadlines, retries, recordings, the model catalogue, and the
//! choice of protocol.
//!
//! The main decision: everything that can be repeated without harm is repeated here, and nothing
//! else. A request that fails before its first event is sent again, and the caller is notified.
//! After the first event the caller keeps the received part, gets a
//! [`Broken`](sabir_call::ModelErrorKind::Broken) error, and decides. This crate does not read the
//! environment: keys, addresses and deadlines are passed in, and the jitter of retries is derived
//! from the request itself.
//!
//! ```
//! use sabir_call::{DraftResponse, Message, Model, Request, ToolSet};
//! use sabir_model::{ScriptedModel, ScriptedReply};
//!
//! let text = "Let me look.\n<read_file>\n<path>a.rs</path>\n</read_file>";
//! let model = ScriptedModel::new([ScriptedReply::Text(text.to_owned())]).piece_size(7);
//! let tools = ToolSet::from_json(
//!     r#"[{"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]"#,
//! ).expect("tools");
//! let request = Request { tools, messages: vec![Message::user("What is in a.rs?")].into(), ..Request::default() };
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
//! let mut draft = DraftResponse::default();
//! runtime.block_on(model.stream_response(&request, &mut draft)).expect("an answer");
//! assert_eq!(draft.calls().next().expect("a call").name, "read_file");
//! ```

mod capability_probe;
mod cassette;
mod catalogue;
mod client_redaction;
mod difference;
mod http;
mod key_refresh;
mod local_servers;
mod network;
mod plain_http;
mod protocol;
mod provider;
mod provider_client;
mod provider_error;
mod provider_row;
mod reader_cache;
mod recording;
mod redact;
mod replay;
mod response_pipeline;
mod retry;
mod scripted;
mod secret;
mod signing;
mod strip_images;
mod transport;

pub use capability_probe::{
    CapabilityFinding, CapabilityReport, CapabilityVerdict, probe_capabilities,
};
pub use cassette::{CASSETTE_VERSION, Cassette, CassetteError};
pub use catalogue::{ModelCatalogue, ModelEntry};
pub use client_redaction::ClientRedactor;
pub use http::{BodyChanges, CallerScope, Deadlines, HttpModel, TextParsing, UnknownWire};
pub use key_refresh::{KeyFuture, KeyRefreshError, KeyRefreshingModel};
pub use local_servers::{LocalServer, ProbeTarget, ServedModel, probe_servers};
pub use protocol::{ProtocolSource, resolve_protocol};
pub use provider::{KNOWN_PROVIDERS, KnownProvider, Provider, is_loopback, strip_url_secrets};
pub use provider_client::{ForwardError, ForwardedRequest, ForwardedResponse, ProviderClient};
pub use provider_error::describe_compressed_answer;
pub use provider_row::{KeySource, ProviderRow};
pub use recording::CassetteRecorder;
pub use replay::CassettePlayer;
pub use retry::{RetryNotice, RetryPolicy};
pub use scripted::{ScriptedModel, ScriptedReply};
pub use secret::Secret;
pub use signing::SigningCredentials;
