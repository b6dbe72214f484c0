//! Implements `trust`: manages the repositories whose git configuration may run programs, each
//! pinned by hash to the reviewed content, and whose builds may run unasked.

use std::io::IsTerminal;
use std::path::Path;

use sabir_session::trust::{TrustReview, TrustState, read_trust_file, revoke_trust};
use sabir_terminal::trust_text;

use crate::cli::TrustArguments;
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::surroundings;

/// Runs `sabir trust`.
pub(crate) fn run_trust(arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    match (arguments.list, arguments.revoke) {
        (true, _) => {
            let file = read_trust_file(surroundings::environment())?;
            output::print_report(
                arguments.output,
                || &file,
                || trust_text::trusted_text(&file),
            );
        }
        (_, true) => {
            let top = revoke_trust(folder, surroundings::environment())?;
            let line = format!("sabir: {} is no longer trusted\n", top.display());
            print::write_stderr(&print::sanitize_text(&line));
        }
        _ => return trust_repository(folder, arguments),
    }
    Ok(ExitStatus::Completed)
}

/// Shows the programs of a repository and trusts them after a confirmation.
fn trust_repository(folder: &Path, arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let environment = surroundings::environment();
    let review = TrustReview::of_folder(folder, environment, &surroundings::notice_sink())?;
    let top = review.top().display().to_string();
    output::print_report(
        arguments.output,
        || trust_text::review_json(&review),
        || trust_text::review_text(&review),
    );
    let variables = environment.command_variables();
    let path = variables.iter().rev().find(|(name, _)| name == "PATH");
    if path.is_none_or(|(_, path)| sabir_tools::workspace_programs(path, review.top()).is_none()) {
        print::write_stderr(
            "sabir: your PATH is not set, or leads to programs of this repository that others may start: every command asks here, trusted or not\n",
        );
    }
    if review.state == TrustState::Trusted {
        return Ok(ExitStatus::Completed);
    }
    if !arguments.yes && !confirm_trust()? {
        print::write_stderr("sabir: nothing was changed\n");
        return Ok(ExitStatus::Denied);
    }
    review.trust(environment)?;
    print::write_stderr(&print::sanitize_text(&format!(
        "sabir: {top} is trusted as it is now\n"
    )));
    Ok(ExitStatus::Completed)
}

/// Asks for a confirmation; an error if standard input is not a terminal.
fn confirm_trust() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::usage(
            "nobody can be asked here: look at what is listed, and give --yes to trust it",
        ));
    }
    output::confirm("Trust exactly this? [y/N] ")
}
