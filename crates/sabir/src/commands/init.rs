//! Implements the first screen, and `init`, which writes a commented configuration.

use std::path::Path;

use sabir_session::first_screen::{self, FirstRunReport};
use sabir_terminal::welcome::{self, WelcomeChoice};

use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::process_environment::{EXIT, environment, host, named_config, runtime};

/// Runs `sabir init`.
pub(crate) fn run_init() -> Result<ExitStatus, CommandError> {
    first_screen::check_no_config(host(), named_config())?;
    let screen = FirstRunReport::gather(host(), named_config(), Path::new("."));
    let path = first_screen::write_config(&runtime()?.block_on(screen)?)?;
    print::write_stdout(&print::sanitize_text(&format!("{}\n", path.display())));
    Ok(ExitStatus::Completed)
}

/// Shows the first screen, and asks a user at a terminal how to continue.
pub(crate) fn welcome(folder: Option<&Path>) -> Result<WelcomeChoice, CommandError> {
    let runtime = runtime()?;
    let folder = folder.unwrap_or(Path::new("."));
    let screen = runtime.block_on(FirstRunReport::gather(host(), named_config(), folder))?;
    let models_at = |url: &str| runtime.block_on(first_screen::models_at(url));
    welcome::choose_model(&screen, environment(), named_config(), EXIT, models_at)
        .map_err(output::input_error)
}
