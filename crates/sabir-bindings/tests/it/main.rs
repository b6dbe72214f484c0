//! Integration tests of the interface that the bindings share.

mod deltas;
mod functions;
mod streams;
