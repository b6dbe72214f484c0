//! Reports panics without leaking private data, and hides the process from others.
//!
//! A panic is a bug, and users are asked to share its report. It contains the place and the start
//! of the message, but never the environment, a request or a file. Core dumps are disabled, and
//! other processes of the same user cannot read this process's memory and environment, which hold
//! the provider's key.

use std::panic::PanicHookInfo;

use sabir_call::redact;

use crate::output::print;

/// The maximum length of a reported panic message in characters: enough to recognise the bug, too
/// short for a request body.
const MAX_PANIC_CHARS: usize = 200;

/// The panic message of tokio when it cannot start a thread for blocking work.
const NO_THREAD: &str = "OS can't spawn worker thread";

/// Hides this process from others, as far as the system allows, and installs the panic hook.
pub(crate) fn install_panic_hook() {
    sabir_workspace::hide_process();
    std::panic::set_hook(Box::new(|info| match info.payload_as_str() {
        // Not a bug: the code that needed the thread reports its own failure.
        Some(words) if words.starts_with(NO_THREAD) => {
            print::write_stderr(&print::sanitize_text(&format!(
                "sabir: {words}: the system allows no more processes and threads (`ulimit -u`)\n"
            )))
        }
        _ => print::write_stderr(&panic_report(info)),
    }));
}

/// Returns the two lines that a user can send with a bug report.
fn panic_report(info: &PanicHookInfo<'_>) -> String {
    let place = info
        .location()
        .map_or("an unknown place".to_owned(), ToString::to_string);
    format!(
        "sabir panicked at {place}: {}\nThis is a bug in Sabir; please report these two lines.\n",
        panic_message(info.payload_as_str())
    )
}

/// Shortens, redacts and escapes the message of a panic.
fn panic_message(said: Option<&str>) -> String {
    let said: String = said
        .unwrap_or("it says nothing")
        .chars()
        .take(MAX_PANIC_CHARS)
        .collect();
    print::quote_text(&redact::redact_text(&said))
}

#[cfg(test)]
mod tests {
    use super::panic_message;

    #[test]
    fn few_words_and_no_secrets() {
        let key = format!("ghp_{}", "0123456789".repeat(4));
        assert_eq!(
            panic_message(Some(&format!("bad {key}\u{1b}[2J\n"))),
            "bad [redacted: GitHub token]\\u{1b}[2J\\n"
        );
        assert_eq!(panic_message(Some(&"x".repeat(5000))).len(), 200);
        assert_eq!(panic_message(None), "it says nothing");
    }
}
