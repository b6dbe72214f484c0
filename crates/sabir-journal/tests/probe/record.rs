//! The records that the helper appends and its test expects.

use sabir_agent::{Delivery, MessageAuthor, Record};

/// The n-th record; sizes from a few bytes to half a megabyte, whose write can be cut.
pub(crate) fn record(number: usize) -> Record {
    let size = [10, 200, 500_000, 40, 300_000, 1_000]
        .get(number % 6)
        .copied()
        .unwrap_or_default();
    said(format!("{number} {}", "x".repeat(size + number % 97)))
}

/// Words of the user.
pub(crate) fn said(text: impl Into<String>) -> Record {
    Record::Said {
        by: MessageAuthor::User,
        text: text.into(),
        images: Vec::new(),
        when: Delivery::Next,
    }
}
