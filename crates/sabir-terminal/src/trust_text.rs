//! Renders the programs that a repository makes git run, for a user who decides whether to trust it.

use std::path::Path;

use sabir_session::trust::{TrustFile, TrustReview, TrustState};
use serde_json::{Value, json};

use crate::print;

/// The number of characters of a hash that are shown: enough to compare by eye.
const SHOWN_HASH_CHARS: usize = 16;

/// Renders the programs of a repository, and which of them changed since it was trusted.
pub fn review_text(review: &TrustReview) -> String {
    let changed = review.changed_items();
    let mut text = format!("{}\n", review.top().display());
    text.push_str(match review.items().next() {
        Some(_) => "What its own configuration makes git run, or use:\n",
        None => "Its own configuration makes git run nothing.\n",
    });
    for item in review.items() {
        let new = if changed.contains(&item.name) {
            " (changed since you trusted it)"
        } else {
            ""
        };
        text.push_str(&format!(
            "  {} = {}{new}  [{}]\n",
            item.name,
            print::quote_short(&item.value),
            shorten_hash(item.sha256.as_deref().unwrap_or_default())
        ));
    }
    // A removed program is no longer an item, so it appears among the changes only.
    for gone in changed.iter().filter(|name| name.ends_with(" is gone")) {
        text.push_str(&format!("  {gone}\n"));
    }
    text.push_str(&format!("SHA-256 of all: {}\n", review.digest()));
    text.push_str(match review.state {
        TrustState::Trusted => "It is trusted as it is.\n",
        TrustState::Unknown | TrustState::Changed(_) => {
            "If you trust it, its builds and tests run unasked in the sandbox, at level 2 and without network.\n"
        }
    });
    text
}

/// Renders the programs of a repository as the JSON of `sabir trust`.
pub fn review_json(review: &TrustReview) -> Value {
    let state = match review.state {
        TrustState::Unknown => "unknown",
        TrustState::Trusted => "trusted",
        TrustState::Changed(_) => "changed",
    };
    let items = review.items().map(|item| {
        json!({"name": item.name, "value": item.value, "sha256": item.sha256, "runs": item.runs})
    });
    json!({
        "folder": review.top(), "sha256": review.digest(), "standing": state, "changed": review.changed_items(),
        "things": items.collect::<Vec<_>>(),
    })
}

/// Renders the trusted repositories, one per line.
pub fn trusted_text(file: &TrustFile) -> String {
    if file.repositories.is_empty() {
        return "no repository is trusted\n".to_owned();
    }
    let mut text = String::new();
    for (top, entry) in &file.repositories {
        text.push_str(&format!(
            "{}  {}\n",
            shorten_hash(&entry.sha256),
            top.display()
        ));
    }
    text
}

fn shorten_hash(hash: &str) -> &str {
    hash.get(..SHOWN_HASH_CHARS).unwrap_or_default()
}

/// Says on standard error that a repository is trusted now.
pub fn report_trust(top: &Path) {
    report(&format!("{} is trusted as it is now", top.display()));
}

/// Says on standard error that a repository is not trusted any more.
pub fn report_revoked(top: &Path) {
    report(&format!("{} is no longer trusted", top.display()));
}

fn report(text: &str) {
    print::write_stderr(&print::sanitize_text(&format!("sabir: {text}\n")));
}
