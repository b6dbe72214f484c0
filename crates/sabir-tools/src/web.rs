//! Fetches documents from the web: by GET, and from public addresses alone.
//!
//! A model can be talked into fetching anything, so the hosts that it can reach are limited by what
//! this code connects to, not by what a URL looks like.
//!
//! | module | content |
//! | --- | --- |
//! | [`web_url`] | parses a URL into the one spelling that is checked, requested and shown |
//! | [`network_scope`] | decides which hosts can be reached, and resolves their addresses |
//! | [`request`] | sends one GET, with its redirects and limits |
//! | [`document`] | decodes a response into text or a picture |
//! | [`markdown`] | converts HTML to Markdown |

pub(crate) mod document;
mod markdown;
pub(crate) mod network_scope;
pub(crate) mod request;
pub(crate) mod web_url;
