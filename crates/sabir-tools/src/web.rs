//! The network, as a model may reach it: documents by GET, from public addresses alone.
//!
//! | module | holds |
//! | --- | --- |
//! | [`web_url`] | an address as it is judged, asked for and shown: one spelling |
//! | [`network_scope`] | which machines may be asked |
//! | [`request`] | one GET, with its redirects and limits |
//! | [`document`] | from bytes to text or a picture |
//! | [`markdown`] | from HTML to Markdown |

pub(crate) mod document;
mod markdown;
pub(crate) mod network_scope;
pub(crate) mod request;
pub(crate) mod web_url;
