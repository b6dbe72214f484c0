//! What is said when Sabir itself fails, and what is not.
//!
//! A panic is a bug, and its report is meant to be sent to somebody: it names the place and the first words, and never the
//! environment, a request or a file. There are no core dumps, and other processes of the same user cannot read this one's memory
//! and environment, where the provider's key is.

use std::panic::PanicHookInfo;

use sabir_call::redact;

use crate::output::print;

/// How many characters of what a panic says are told: enough to know it by, too few for a body.
const MAX_PANIC_CHARS: usize = 200;

/// What the runtime says where it gets no thread for work that blocks.
const NO_THREAD: &str = "OS can't spawn worker thread";

/// Shuts this process against others. Where the system refuses, the task goes on as it would have without.
pub(crate) fn install_panic_hook() {
    sabir_workspace::hide_process();
    std::panic::set_hook(Box::new(|info| match info.payload_as_str() {
        // No bug: whatever needed the thread says what it could not do.
        Some(words) if words.starts_with(NO_THREAD) => print::write_stderr(&print::sanitize_text(&format!(
            "sabir: {words}: the system allows no more processes and threads (`ulimit -u`)\n"
        ))),
        _ => print::write_stderr(&panic_report(info)),
    }));
}

fn panic_report(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map_or("an unknown place".to_owned(), ToString::to_string);
    format!(
        "sabir panicked at {place}: {}\nThis is a bug in Sabir; please report these two lines.\n",
        panic_message(info.payload_as_str())
    )
}

fn panic_message(said: Option<&str>) -> String {
    let said: String = said.unwrap_or("it says nothing").chars().take(MAX_PANIC_CHARS).collect();
    print::quote_text(&redact::redact_text(&said))
}

#[cfg(test)]
mod tests {
    use super::panic_message;

    #[test]
    fn few_words_and_no_secrets() {
        let key = format!("ghp_{}", "0123456789".repeat(4));
        assert_eq!(panic_message(Some(&format!("bad {key}\u{1b}[2J\n"))), "bad [redacted: GitHub token]\\u{1b}[2J\\n");
        assert_eq!(panic_message(Some(&"x".repeat(5000))).len(), 200);
        assert_eq!(panic_message(None), "it says nothing");
    }
}
