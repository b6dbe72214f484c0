//! Makes the records that the helper appends and its test expects.

use sabir_agent::{DeliveryTime, MessageAuthor, Record};

/// Makes the n-th record, from a few bytes to half a megabyte, so that a kill can hit its write.
pub(crate) fn record(number: usize) -> Record {
    let size = [10, 200, 500_000, 40, 300_000, 1_000]
        .get(number % 6)
        .copied()
        .unwrap_or_default();
    said(format!("{number} {}", "x".repeat(size + number % 97)))
}

/// Makes a record of a user message.
pub(crate) fn said(text: impl Into<String>) -> Record {
    Record::Said {
        by: MessageAuthor::User,
        text: text.into(),
        images: Vec::new(),
        when: DeliveryTime::Next,
    }
}
