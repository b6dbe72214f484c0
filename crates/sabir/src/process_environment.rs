//! Provides the host of all sessions and the process environment: variables, well-known folders and the clock.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use etcetera::BaseStrategy;
use sabir_call::dialect::DialectSet;
use sabir_session::config::Config;
use sabir_session::dialect_tables::load_dialect_files;
use sabir_session::{Environment, Host, InterfaceChoice, NoticeSink};
use sabir_terminal::screen::ExitBySignal;
use sabir_terminal::stdin_reader::LineEditorSettings;
use sabir_tui::InterfaceSettings;
use tokio::runtime::Runtime;

use crate::exit::CommandError;
use crate::output::print;

/// The host of all sessions of this process.
static HOST: OnceLock<Host> = OnceLock::new();

/// The configuration file that the command line names.
static NAMED_CONFIG: OnceLock<PathBuf> = OnceLock::new();

/// The interface that the command line names.
static INTERFACE: OnceLock<InterfaceChoice> = OnceLock::new();

/// Ends the process because of a signal.
pub(crate) const EXIT: ExitBySignal = |signal| std::process::exit(128 + signal);

/// Returns the host of all sessions of this process.
pub(crate) fn host() -> &'static Host {
    HOST.get_or_init(|| Host::new(read_environment()).with_notices(notice_sink()))
}

/// Sets up the host with the dialects of these files and of the configuration. Each file is read only once, because it may be a pipe.
///
/// `configured` is false for a command that reports problems of the configuration itself.
pub(crate) fn start_host(
    named: Option<&Path>,
    configured: bool,
    files: &[PathBuf],
) -> Result<(), CommandError> {
    if let Some(file) = named {
        _ = NAMED_CONFIG.set(file.to_path_buf());
    }
    let environment = Arc::new(read_environment());
    let mut dialects = environment.dialects.clone();
    if configured {
        dialects = Config::load(&environment, named, &notice_sink())?
            .dialects()
            .clone();
    }
    load_dialect_files(files, &mut dialects)?;
    let mut environment = Arc::unwrap_or_clone(environment);
    environment.dialects = dialects;
    // `set` cannot fail: nothing has used the host before.
    let _ = HOST.set(Host::new(environment).with_notices(notice_sink()));
    Ok(())
}

/// Returns the dialects that all sessions of this process know.
pub(crate) fn dialects() -> &'static DialectSet {
    &environment().dialects
}

/// Returns the environment that the process was started with.
pub(crate) fn environment() -> &'static Arc<Environment> {
    host().environment()
}

/// Reads the variables and well-known folders of the process.
fn read_environment() -> Environment {
    // A copy of this program supervises commands.
    let helper = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let mut environment = Environment::new(std::env::vars_os(), helper, SystemTime::now);
    environment.home_folder = etcetera::home_dir().ok();
    if let Ok(folders) = etcetera::choose_base_strategy() {
        environment.config_folder = Some(folders.config_dir());
        environment.data_folder = Some(folders.data_dir());
    }
    environment.temporary_folder = std::env::temp_dir();
    // The standard library seeds its hash maps from the system's random numbers.
    environment.seed = RandomState::new().build_hasher().finish();
    environment
}

/// Loads the configuration: the named file, or the user's. Notices go to standard error.
pub(crate) fn load_config() -> Result<Config, CommandError> {
    Ok(host().load_config(named_config())?)
}

/// Returns the configuration file that the command line names.
pub(crate) fn named_config() -> Option<&'static Path> {
    NAMED_CONFIG.get().map(PathBuf::as_path)
}

/// A sink that prints notices to standard error.
pub(crate) fn notice_sink() -> NoticeSink {
    NoticeSink::new(|notice| print::print_notice(&notice))
}

/// Returns the editing of lines, if the user has a terminal for it.
pub(crate) fn line_editing() -> Option<LineEditorSettings> {
    let choice = InterfaceChoice::find(INTERFACE.get().copied(), host(), named_config());
    LineEditorSettings::for_terminal(environment(), choice, EXIT)
}

/// Keeps the interface that the command line names.
pub(crate) fn set_interface(named: Option<InterfaceChoice>) {
    named.map(|choice| INTERFACE.set(choice));
}

/// Returns the settings of the full interface, if it is chosen and the terminal can show it.
pub(crate) fn full_interface() -> Option<InterfaceSettings> {
    let choice = InterfaceChoice::find(INTERFACE.get().copied(), host(), named_config());
    InterfaceSettings::for_terminal(host(), named_config(), choice, EXIT)
}

/// Returns the folder of the journals.
pub(crate) fn tasks_folder() -> Result<PathBuf, CommandError> {
    Ok(environment().tasks_folder()?)
}

/// Builds a single-threaded runtime for requests and tools.
pub(crate) fn runtime() -> Result<Runtime, CommandError> {
    Ok(sabir_session::build_task_runtime()?)
}
