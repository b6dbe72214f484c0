//! Implements `trust`: manages the repositories whose git configuration may run programs, each
//! pinned by hash to the reviewed content, and whose builds may run unasked; and the hooks of repositories.

use std::path::Path;

use sabir_session::trust::{read_trust_file, revoke_trust};
use sabir_terminal::{trust_review, trust_text};

use crate::cli::{ReportFormat, TrustArguments};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::process_environment;

/// Runs `sabir trust`.
pub(crate) fn run_trust(arguments: &TrustArguments) -> Result<ExitStatus, CommandError> {
    let folder = arguments.folder.as_deref().unwrap_or(Path::new("."));
    let environment = process_environment::environment();
    let yes = arguments.yes;
    let as_json = arguments.output == ReportFormat::Json;
    if arguments.hooks {
        let config = process_environment::load_config()?;
        let done = match arguments.revoke {
            true => trust_review::revoke_hook_trust(folder, &config)?,
            false => trust_review::review_hooks(folder, &config, yes, as_json)?,
        };
        return Ok(ExitStatus::from_confirmation(done));
    }
    if arguments.list {
        let file = read_trust_file(environment)?;
        output::print_report(
            arguments.output,
            || &file,
            || trust_text::trusted_text(&file),
        );
    } else if arguments.revoke {
        let top = revoke_trust(folder, environment)?;
        let line = format!("sabir: {} is no longer trusted\n", top.display());
        print::write_stderr(&print::sanitize_text(&line));
    } else {
        let notices = process_environment::notice_sink();
        let done = trust_review::review_repository(folder, environment, &notices, yes, as_json)?;
        return Ok(ExitStatus::from_confirmation(done));
    }
    Ok(ExitStatus::Completed)
}
