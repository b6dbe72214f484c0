//! Implements `mcp login` and `mcp logout`: shows the user where to log in, opens their browser, and waits for them.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use sabir_session::SessionError;
use sabir_session::config::Config;
use sabir_session::mcp::protocol::Revocation;
use sabir_session::mcp::{PageOpening, log_out, login_error, open_login_page, start_login};
use tokio::sync::mpsc;

use crate::mcp_command::print_message;
use crate::stdin_reader::read_first_line;

/// Options of `sabir mcp login`.
#[derive(Debug, Args)]
pub(crate) struct LoginArguments {
    /// The name of the server, or an address.
    name: String,
    /// Only print the address of the login page. It is printed in any case.
    #[arg(long)]
    no_browser: bool,
    /// How long to wait for the end of the login.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Runs `sabir mcp login`.
///
/// # Errors
/// When there is no such server, or the login fails.
pub(crate) async fn run_login(
    arguments: &LoginArguments,
    config: &Config,
) -> Result<(), SessionError> {
    let name = &arguments.name;
    let attempt = start_login(name, config, Path::new(".")).await?;
    print_message("log in with your browser at this address:");
    // Whole and alone on its line, so that it can be copied.
    crate::print::write_stdout(&crate::print::sanitize_text(&format!(
        "{}\n",
        attempt.url()
    )));
    if !arguments.no_browser {
        match open_login_page(attempt.url(), config) {
            PageOpening::Opened => print_message("it was opened in your browser"),
            PageOpening::NoDesktop => {}
            PageOpening::Failed(reason) => {
                print_message(&format!("it could not be opened: {reason}"))
            }
        }
    }
    print_message(
        "if the browser cannot be redirected to this machine, paste the address that it shows at the end here, and press Enter",
    );
    let limit = Duration::from_secs(arguments.timeout);
    let mut notify = |ignored: &sabir_session::mcp::protocol::LoginError| {
        print_message(&format!("ignored: {ignored}"));
    };
    let report = attempt
        .finish(pasted_lines(), limit, &mut notify)
        .await
        .map_err(|error| login_error(name, &error))?;
    let issuer = report.issuer.map(|issuer| format!(" at {issuer}"));
    let scopes = match report.scopes.is_empty() {
        true => String::new(),
        false => format!(", with the rights: {}", report.scopes.join(" ")),
    };
    print_message(&format!(
        "logged in to {name}{}{scopes}",
        issuer.unwrap_or_default()
    ));
    Ok(())
}

/// Runs `sabir mcp logout`.
///
/// # Errors
/// When there is no such server, or its login cannot be removed.
pub(crate) async fn run_logout(name: &str, config: &Config) -> Result<(), SessionError> {
    let rest = match log_out(name, config, Path::new(".")).await? {
        None => {
            print_message(&format!("there is no login to {name}"));
            return Ok(());
        }
        Some(Revocation::Revoked) => "and its tokens are withdrawn".to_owned(),
        Some(Revocation::NotOffered) => {
            "and its tokens stay valid until they expire, or you withdraw them there: the server offers no other way".to_owned()
        }
        Some(Revocation::Failed(reason)) => format!(
            "and its tokens stay valid until they expire, or you withdraw them there, since the server has not done it: {reason}"
        ),
    };
    print_message(&format!(
        "the login to {name} is removed from this machine, {rest}"
    ));
    Ok(())
}

/// Reads lines from standard input until its end. The thread that reads cannot be stopped, and ends with the process.
fn pasted_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        while let Ok(line) = read_first_line(&std::io::stdin()) {
            if line.is_empty() || sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
