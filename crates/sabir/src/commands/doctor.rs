//! Implements `doctor`: reports the environment that Sabir works in or, given a model, tests what
//! the model and its server can do.

use std::time::Instant;

use sabir_session::config::Config;
use sabir_session::doctor::{
    CapabilityFinding, CapabilityReport, CapabilityVerdict, DoctorReport, ModelExaminer,
    examine_servers, probe_local_servers,
};
use sabir_terminal::doctor_text;

use crate::cli::{DoctorArguments, ReportFormat};
use crate::exit::{CommandError, ExitStatus};
use crate::output::{self, print};
use crate::process_environment::{self, host, runtime};

/// Runs `sabir doctor`.
pub(crate) fn run_doctor(arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    match &arguments.model {
        Some(model) => probe_model(model, arguments),
        None => report_environment(arguments),
    }
}

/// Reports the environment (`sabir doctor` without a model).
fn report_environment(arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    let file = process_environment::named_config();
    let (config, problem) = match process_environment::load_config() {
        Ok(config) => (config, None),
        Err(failure) => (Config::default(), Some(failure.message)),
    };
    let mut report = DoctorReport::gather(host(), file, &config, problem)?;
    let runtime = runtime()?;
    report.local = runtime.block_on(probe_local_servers(&config));
    report.templates = runtime.block_on(examine_servers(&report.local, host().environment()));
    output::print_report(
        arguments.output,
        || &report,
        || doctor_text::environment_text(&report),
    );
    Ok(match &report.config.problem {
        Some(_) => ExitStatus::Usage,
        None => ExitStatus::Completed,
    })
}

/// Tests the abilities of a model (`sabir doctor MODEL`).
fn probe_model(model: &str, arguments: &DoctorArguments) -> Result<ExitStatus, CommandError> {
    let file = process_environment::named_config();
    let runtime = runtime()?;
    let examiner = runtime.block_on(ModelExaminer::prepare(host(), file, model))?;
    let is_shown = arguments.output == ReportFormat::Text;
    if is_shown {
        let line = format!("asking {} a few things…\n", examiner.model_name());
        print::write_stderr(&print::sanitize_text(&line));
    }
    let mut show = |finding: &CapabilityFinding| {
        if is_shown {
            print::write_stdout(&print::sanitize_text(&doctor_text::finding_row(finding)));
        }
    };
    let start = Instant::now();
    let examination =
        runtime.block_on(examiner.examine(arguments.store, &move || start.elapsed(), &mut show))?;
    output::print_report(
        arguments.output,
        || &examination,
        || doctor_text::recommendation_text(&examination),
    );
    Ok(exit_status(&examination.report))
}

/// Returns the exit status of a test: a model that never answers is a provider failure.
fn exit_status(report: &CapabilityReport) -> ExitStatus {
    let is_silent = report
        .findings
        .iter()
        .any(|finding| finding.name == "answers" && finding.verdict == CapabilityVerdict::No);
    match &report.protocol {
        Some(_) => ExitStatus::Completed,
        None if is_silent => ExitStatus::Provider,
        None => ExitStatus::NotUnderstood,
    }
}
