//! The network, as a model may reach it: documents by GET, from public addresses alone.
//!
//! | module | holds |
//! | --- | --- |
//! | [`place`] | an address as it is judged, asked for and shown: one spelling |
//! | [`reach`] | which machines may be asked |
//! | [`request`] | one GET, with its redirects and limits |
//! | [`document`] | from bytes to text or a picture |
//! | [`markdown`] | from HTML to Markdown |

pub(crate) mod document;
mod markdown;
pub(crate) mod place;
pub(crate) mod reach;
pub(crate) mod request;
