//! Reports panics without leaking private data.
//!
//! A panic is a bug, and users are asked to share its report. It contains the place and the start
//! of the message, but never the environment, a request or a file.

use std::panic::PanicHookInfo;

use sabir_session::call::redact;

use crate::{print, screen};

/// The maximum length of a reported panic message in characters: enough to recognise the bug, too
/// short for a request body.
const MAX_PANIC_CHARS: usize = 200;

/// The panic message of tokio when it cannot start a thread for blocking work.
const NO_THREAD: &str = "OS can't spawn worker thread";

/// Installs the panic hook of a program with a terminal front end.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        screen::restore_after_panic();
        report_panic(info);
    }));
}

fn report_panic(info: &PanicHookInfo<'_>) {
    match info.payload_as_str() {
        // Not a bug: the code that needed the thread reports its own failure.
        Some(words) if words.starts_with(NO_THREAD) => {
            screen::write_after_panic(&print::sanitize_text(&format!(
                "sabir: {words}: the system allows no more processes and threads (`ulimit -u`)\n"
            )))
        }
        _ => screen::write_after_panic(&panic_report(info)),
    }
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
    use std::fs::File;
    use std::io::{Read, Write, stderr};
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::{install_panic_hook, panic_message};
    use crate::screen::{self, InterruptKey};

    /// Set in the copy of this program that panics at a terminal.
    const PANICS: &str = "SABIR_TEST_PANICS_AT_A_TERMINAL";

    /// The program of the test below: a front end that edits a line and panics in another thread. It does nothing unless that
    /// test has started it.
    #[test]
    fn program_that_panics_while_a_line_is_edited() {
        if std::env::var_os(PANICS).is_none() {
            return;
        }
        install_panic_hook();
        screen::begin_editing(InterruptKey::Byte, |_| {}).unwrap();
        let is_raw = !tcgetattr(std::io::stdin())
            .unwrap()
            .local_modes
            .intersects(LocalModes::ICANON | LocalModes::ECHO);
        writeln!(stderr(), "raw: {is_raw}").unwrap();
        let thread = std::thread::spawn(|| panic!("scripted \u{1b}[2J"));
        assert!(thread.join().is_err());
        writeln!(stderr(), "after it").unwrap();
        std::process::exit(101);
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let before = tcgetattr(&theirs).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("crash::tests::program_that_panics_while_a_line_is_edited")
            .env(PANICS, "1")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(101));
        let after = tcgetattr(&theirs).unwrap();
        assert_eq!(after.local_modes, before.local_modes);
        assert_eq!(after.input_modes, before.input_modes);
        assert_eq!(after.output_modes, before.output_modes);
        assert_eq!(
            format!("{:?}", after.special_codes),
            format!("{:?}", before.special_codes)
        );
        drop(theirs);
        let mut shown = Vec::new();
        // Reading ends with an error once nobody has the terminal open.
        _ = File::from(ours).read_to_end(&mut shown);
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("raw: true"), "{shown}");
        let report =
            "scripted \\u{1b}[2J\r\nThis is a bug in Sabir; please report these two lines.\r\n";
        assert!(shown.contains(report), "{shown:?}");
        let unmarked = shown.find("\u{1b}[?2004l");
        assert!(unmarked < shown.find("sabir panicked at"), "{shown:?}");
        assert!(unmarked.is_some(), "{shown:?}");
    }

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
