//! Renders the findings of `sabir doctor` about the machine, or about one model.

use sabir_session::doctor::{
    CapabilityFinding, CapabilityVerdict, ConfigReport, DoctorReport, ModelExamination, TasksReport,
};
use sabir_session::providers::{KeySource, ProviderRow};

use crate::print;

/// Renders the environment that Sabir works in, one subject per line.
pub fn environment_text(report: &DoctorReport) -> String {
    let keys: Vec<_> = report
        .providers
        .iter()
        .filter_map(key_source_text)
        .collect();
    let keys = if keys.is_empty() {
        "none found".to_owned()
    } else {
        keys.join(", ")
    };
    let mut text = format!(
        "sabir {} on {}{}\n\
         configuration  {}\n\
         journals       {}\n\
         sandbox        {}\n\
         keys           {keys}\n",
        report.version,
        report.system,
        report
            .port
            .map(|state| format!(" ({state})"))
            .unwrap_or_default(),
        config_text(&report.config),
        tasks_text(&report.tasks),
        report.sandbox.words,
    );
    for variable in &report.network {
        let problem = variable.problem.as_ref();
        let problem = problem.map(|problem| format!(" ({problem})"));
        text.push_str(&format!(
            "network        {}={}{}\n",
            variable.name,
            variable.value,
            problem.unwrap_or_default()
        ));
    }
    for server in &report.local {
        text.push_str(&format!(
            "server         {} ({}): {}\n",
            server.base_url,
            server.software.unwrap_or("unknown software"),
            print::count_noun(server.models.len(), "model")
        ));
    }
    for template in &report.templates {
        text.push_str(&format!(
            "template       {}: {}\n",
            template.base_url, template.reason
        ));
    }
    if report.local.is_empty() {
        text.push_str("server         none on this machine answered\n");
    }
    text + "\n`sabir doctor MODEL` asks a model what it can do.\n"
}

fn config_text(config: &ConfigReport) -> String {
    match (&config.path, config.found, &config.problem) {
        // The problem's text names the file itself.
        (_, _, Some(problem)) => problem.clone(),
        (Some(path), true, None) => path.clone(),
        (Some(path), false, None) => format!("{path} (not there; it is optional)"),
        (None, ..) => "no home folder to look in".to_owned(),
    }
}

fn tasks_text(tasks: &TasksReport) -> String {
    if let Some(problem) = &tasks.problem {
        return problem.clone();
    }
    let path = tasks.path.as_deref().unwrap_or_default();
    format!("{path} ({})", print::count_noun(tasks.count, "task"))
}

/// Names a provider and the source of its key, never the key; `None` if it has no key.
fn key_source_text(row: &ProviderRow) -> Option<String> {
    let source = match &row.key {
        KeySource::Nowhere | KeySource::Environment { present: None, .. } => return None,
        KeySource::File => "configuration",
        KeySource::Command => "a command",
        KeySource::Environment {
            present: Some(name),
            ..
        } => name.as_str(),
    };
    Some(format!("{} ({source})", row.name))
}

/// Renders a finding about a model as a row.
pub fn finding_row(finding: &CapabilityFinding) -> String {
    let verdict = match finding.verdict {
        CapabilityVerdict::Yes => "yes",
        CapabilityVerdict::No => "no",
        CapabilityVerdict::Unknown => "?",
    };
    format!("{:<18} {verdict:<4} {}\n", finding.name, finding.detail)
}

/// Renders the recommendation that follows from the findings.
pub fn recommendation_text(examination: &ModelExamination) -> String {
    let report = &examination.report;
    let Some(protocol) = &report.protocol else {
        return format!("\nno protocol can be recommended: {}\n", report.why);
    };
    let last = match &examination.stored {
        Some(path) => format!("written to {}\n", path.display()),
        None => {
            format!("use --protocol {protocol}, or let --store write it into the configuration\n")
        }
    };
    format!("\nrecommended: {protocol} ({})\n{last}", report.why)
}
