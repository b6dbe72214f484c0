//! Shows what an import of other programs' settings would write, and writes it: `sabir import settings`.

use std::path::Path;

use sabir_session::SessionError;
use sabir_session::config::Config;
use sabir_session::settings_import::{
    ImportItem, ImportPlan, SettingsProgram, apply_import, plan_import,
};
use serde_json::{Value, json};

use crate::{print, trust_review};

/// Shows the plan of an import from the programs of these names, or from all, and carries it out after a confirmation, or at once
/// with `yes`. Returns false if the user said no.
///
/// # Errors
/// When a program is not known, nobody can be asked, or the configuration cannot be changed.
pub fn import_settings(
    programs: &[String],
    yes: bool,
    as_json: bool,
    config: &Config,
    named: Option<&Path>,
) -> Result<bool, SessionError> {
    let programs = parse_programs(programs)?;
    let plan = plan_import(&programs, config);
    match as_json {
        true => print::print_redacted_json(&plan_json(&plan)),
        false => {
            let text = sabir_session::call::redact::redact_text(&plan_text(&plan)).into_owned();
            print::write_stdout(&print::sanitize_text(&text));
        }
    }
    if plan.items.is_empty() {
        return Ok(true);
    }
    if !yes && !trust_review::confirm("Write this into your configuration? [y/N] ")? {
        return Ok(false);
    }
    let path = apply_import(&plan, config, named)?;
    let private = match plan.has_values() {
        true => ", which only you can read now",
        false => "",
    };
    let text = format!(
        "sabir: {} written to {}{private}\n",
        print::count_noun(plan.items.len(), "setting"),
        path.display()
    );
    print::write_stderr(&print::sanitize_text(&text));
    Ok(true)
}

fn parse_programs(names: &[String]) -> Result<Vec<SettingsProgram>, SessionError> {
    if names.is_empty() {
        return Ok(SettingsProgram::ALL.to_vec());
    }
    let parse = |name: &String| {
        SettingsProgram::from_name(name).ok_or_else(|| {
            let known = SettingsProgram::ALL.map(SettingsProgram::name).join(", ");
            SessionError::invalid(format!(
                "`{name}` is not a known program: there are {known}"
            ))
        })
    };
    names.iter().map(parse).collect()
}

/// Renders a plan: what is written, then what is left out, each with its file.
fn plan_text(plan: &ImportPlan) -> String {
    let mut text = String::new();
    if plan.files.is_empty() {
        return "No settings of other programs were found in your home.\n".to_owned();
    }
    let line = |item: &ImportItem| {
        format!(
            "  {}\n      from {}\n",
            print::escape_controls(&item.setting.describe()),
            item.file.display()
        )
    };
    text.push_str("Would be written into your configuration:\n");
    text.extend(plan.items.iter().map(line));
    if plan.items.is_empty() {
        text.push_str("  (nothing)\n");
    }
    if !plan.left_out.is_empty() {
        text.push_str("Not carried over:\n");
        for left in &plan.left_out {
            text.push_str(&format!(
                "  {}\n      from {}\n",
                print::escape_controls(&left.text),
                left.file.display()
            ));
        }
    }
    text
}

fn plan_json(plan: &ImportPlan) -> Value {
    let items: Vec<Value> = plan
        .items
        .iter()
        .map(|item| {
            json!({"program": item.program, "file": item.file, "setting": item.setting.describe()})
        })
        .collect();
    json!({"files": plan.files, "settings": items, "left_out": plan.left_out})
}
