//! The gateway over real sockets, between raw clients and the scripted provider.

mod ends;
mod limits;
mod lists;
mod mend;
mod security;
mod town;
