//! Implements `models`: lists providers with the sources of their keys, servers on this machine,
//! and the catalogue of models.
//!
//! No key is shown, no command that prints a key is run, and no other machine is contacted.

use std::time::Duration;

use sabir_model::{LocalServer, probe_servers};
use sabir_session::config::Config;
use sabir_toolbox::models::{ListedModel, ModelListing};

use crate::cli::ModelsArguments;
use crate::exit::{CommandError, ExitStatus};
use crate::process_environment;
use crate::report_output::print_report;

/// The time to wait for a server on this machine.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs `sabir models`.
pub(crate) fn run_models(arguments: &ModelsArguments) -> Result<ExitStatus, CommandError> {
    let config = process_environment::load_config()?;
    let mut listing = ModelListing {
        providers: None,
        local: probe_local_servers(&config)?,
        models: None,
    };
    if !arguments.local {
        listing.providers = Some(config.provider_rows());
        let catalogue = config.model_catalogue();
        let models = catalogue.all_entries().cloned().map(ListedModel::new);
        listing.models = Some(models.collect());
    }
    listing.retain_matching(arguments.filter.as_deref().unwrap_or_default());
    print_report(&listing, arguments.output)?;
    Ok(ExitStatus::Completed)
}

/// Returns the servers on this machine that answer.
pub(crate) fn probe_local_servers(config: &Config) -> Result<Vec<LocalServer>, CommandError> {
    Ok(process_environment::runtime()?.block_on(probe_servers(
        &config.local_server_addresses(),
        PROBE_TIMEOUT,
    )))
}
