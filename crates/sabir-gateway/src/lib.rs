//! Native calling for any model.
//!
//! A server that speaks the providers' APIs to clients: what comes in on one wire is asked on another, of a model that calls
//! natively, that knows calls only as words, or whose calls leak into its text. The client sees native calls, while they
//! stream.
//!
//! The main decision: **an answer is made while it is taken.** Nothing runs beside a response: its body *is* the request to
//! the model (`answer.rs`). When the client reads slowly, less is read from the model; when it leaves, the body is dropped
//! and the request to the model with it. There is no queue that could grow and no task that could stay.
//!
//! ```text
//! bytes ─ connection ─ guard ─ respond ─ exchange ─ Incoming ─ Route ─ Model ─ events ─ Mender ─ Encoder ─ bytes
//! ```
//!
//! The gateway keeps nothing from request to request, so that any number of it can stand behind a balancer. Nothing here
//! reads the environment or files, prints, or looks at the wall clock: the caller passes [`Routes`], [`Settings`] and a
//! [`Watch`].

mod answer;
mod connection;
mod cut;
mod delivery;
mod error;
mod exchange;
mod framing;
mod front;
mod guard;
mod ledger;
mod lists;
mod mend;
mod metrics;
mod note;
mod receive;
mod respond;
mod route;
mod serve;
mod settings;

pub use mend::Mending;
pub use note::{Ended, Note, Quiet, Watch};
pub use route::{Back, Route, Routes};
pub use serve::{Gateway, ServeError};
pub use settings::{Limits, Settings};
