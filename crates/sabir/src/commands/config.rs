//! Implements `config`: checks, shows and changes the configuration.

use std::path::{Path, PathBuf};

use sabir_session::config::change::{set_value, unset_value};
use sabir_session::config::check::check_config;
use sabir_session::config::files::list_input_files;
use sabir_session::config::values::ConfigValues;
use sabir_terminal::config_text;

use crate::cli::{ConfigArguments, ConfigCommand};
use crate::exit::{CommandError, ExitStatus};
use crate::output::print_report;
use crate::process_environment;

/// Runs `sabir config`. `dialects` are the files of `--dialects`.
pub(crate) fn run_config(
    arguments: &ConfigArguments,
    dialects: &[PathBuf],
) -> Result<ExitStatus, CommandError> {
    let (environment, named) = (
        process_environment::environment(),
        process_environment::named_config(),
    );
    let format = arguments.output;
    let chosen = |is_users: bool| named.filter(|_| !is_users);
    let change = match &arguments.command {
        ConfigCommand::Check { file } => {
            let check = check_config(environment, file.as_deref().or(named))?;
            print_report(format, || &check, || config_text::check_text(&check));
            return Ok(match check.problems.as_slice() {
                [] => ExitStatus::Completed,
                _ => ExitStatus::Usage,
            });
        }
        ConfigCommand::Path => {
            let files = list_input_files(environment, named, dialects, Path::new("."))?;
            print_report(format, || &files, || config_text::files_text(&files));
            return Ok(ExitStatus::Completed);
        }
        ConfigCommand::Get { key } => {
            let known = ConfigValues::load(environment, named)?;
            let values = match key {
                Some(key) => known.find(key)?,
                None => known.find_all_set(),
            };
            print_report(format, || &values, || config_text::values_text(&values));
            return Ok(ExitStatus::Completed);
        }
        ConfigCommand::Set { user, key, values } => {
            set_value(environment, chosen(*user), key, values)?
        }
        ConfigCommand::Unset { user, key } => unset_value(environment, chosen(*user), key)?,
    };
    print_report(format, || &change, || config_text::change_text(&change));
    Ok(ExitStatus::Completed)
}
