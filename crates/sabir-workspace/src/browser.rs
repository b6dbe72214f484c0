//! Opens a web page in the user's own browser, when the user asks for a login.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The program that opens a page in the default browser of the desktop.
#[cfg(target_os = "macos")]
const OPENER: &str = "open";
/// The program that opens a page in the default browser of the desktop.
#[cfg(not(target_os = "macos"))]
const OPENER: &str = "xdg-open";

/// The reason why no page was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// It is not a web page: any other address could start a program.
    #[error("{0} is not the address of a web page")]
    NoWebPage(String),
    /// The program cannot be started.
    #[error("`{program}` cannot be started: {error}")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        error: std::io::Error,
    },
}

/// Opens a web page with the user's command for a browser (`$BROWSER`), which a shell splits, or with the one of their desktop. Does
/// not wait: the browser continues when this process ends, also by Ctrl-C.
///
/// # Errors
/// When the address is not that of a web page, or the program cannot be started.
pub fn open_web_page(url: &str, browser: Option<&str>) -> Result<(), BrowserError> {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    if !is_web || url.chars().any(char::is_control) {
        return Err(BrowserError::NoWebPage(url.to_owned()));
    }
    // The address is an argument of its own and never a part of the script.
    let script = format!("exec {} \"$1\"", browser.unwrap_or(OPENER));
    let started = Command::new("/bin/sh")
        .args(["-c", &script, "sh", url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = started.map_err(|error| BrowserError::Start {
        program: browser.unwrap_or(OPENER).to_owned(),
        error,
    })?;
    // Waited for, so that it does not stay as a zombie.
    std::thread::spawn(move || child.wait());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_pages_are_opened() {
        for url in ["file:///etc/passwd", "-x", "javascript:1", "https://a\n"] {
            assert!(open_web_page(url, Some("true")).is_err(), "{url}");
        }
    }

    #[test]
    fn the_address_is_no_part_of_the_script() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked");
        let evil = folder.path().join("evil");
        let url = format!("https://a.example/\"; touch {} #$(id)", evil.display());
        let browser = format!(
            "sh -c 'printf %s \"$1\" > {}.new; mv {0}.new {0}' sh",
            asked.display()
        );
        open_web_page(&url, Some(&browser)).unwrap();
        while !asked.exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(std::fs::read_to_string(&asked).unwrap(), url);
        assert!(!evil.exists());
    }
}
