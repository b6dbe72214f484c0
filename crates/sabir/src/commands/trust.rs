//! Implements `trust`: manages the repositories whose git configuration may run programs, each
//! pinned by hash to the reviewed content, and whose builds may run unasked.

use std::path::Path;

use sabir_session::trust::{TrustReview, TrustState, read_trust_file, revoke_trust};
use sabir_terminal::{hook_trust, trust_text};

use crate::cli::{ReportFormat, TrustArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::surroundings;

/// Runs `sabir trust`.
pub(crate) fn run_trust(arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    if arguments.hooks {
        let config = surroundings::load_config()?;
        let as_json = arguments.output == ReportFormat::Json;
        let done = match arguments.revoke {
            true => hook_trust::revoke_hook_trust(folder, &config)?,
            false => hook_trust::review_hooks(folder, &config, arguments.yes, as_json)?,
        };
        return Ok(ExitStatus::of_consent(done));
    }
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
            trust_text::report_revoked(&top);
        }
        _ => return trust_repository(folder, arguments),
    }
    Ok(ExitStatus::Completed)
}

/// Shows the programs of a repository and trusts them after a confirmation.
fn trust_repository(folder: &Path, arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let environment = surroundings::environment();
    let review = TrustReview::of_folder(folder, environment, &surroundings::notice_sink())?;
    let top = review.top().to_owned();
    output::print_report(
        arguments.output,
        || trust_text::review_json(&review),
        || trust_text::review_text(&review),
    );
    if let Some(warning) = review.path_warning(environment) {
        print::write_stderr(&format!("sabir: {warning}\n"));
    }
    if review.state == TrustState::Trusted {
        return Ok(ExitStatus::Completed);
    }
    if !arguments.yes && !hook_trust::confirm_trust()? {
        print::write_stderr("sabir: nothing was changed\n");
        return Ok(ExitStatus::Denied);
    }
    review.trust(environment)?;
    trust_text::report_trust(&top);
    Ok(ExitStatus::Completed)
}
