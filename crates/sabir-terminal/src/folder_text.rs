//! Renders the report about a folder's files for coding agents: `sabir context --folder`.

use sabir_session::conventions::FolderReport;
use sabir_session::custom_commands::CustomCommand;
use sabir_session::hooks::HookState;
use sabir_session::skills::Skill;
use sabir_session::{FoundInstructions, InstructionOrigin, InstructionState};

/// Renders the report as text, in the order in which a request holds it.
pub fn render_folder(report: &FolderReport) -> String {
    let mut text = format!("{}\n", report.folder);
    text.push_str(&format!(
        "\nRules, {} of at most {} bytes in each request:\n",
        report.rule_bytes, report.rule_limit
    ));
    text.extend(report.rules.iter().map(rule_line));
    if report.rules.is_empty() {
        text.push_str("  (none)\n");
    }
    if !report.skills.is_empty() {
        text.push_str(&format!(
            "\nSkills, {} bytes of names and descriptions in each request:\n",
            report.skill_bytes
        ));
        text.extend(report.skills.iter().map(skill_line));
    }
    if !report.commands.is_empty() {
        text.push_str("\nCommands, which only you use:\n");
        text.extend(report.commands.iter().map(command_line));
    }
    if !report.modes.is_empty() {
        text.push_str(&format!(
            "\nModes of the folder: {}\n",
            report.modes.join(", ")
        ));
    }
    if !report.servers.is_empty() {
        text.push_str("\nMCP servers:\n");
        for server in &report.servers {
            let state = if server.starts {
                "starts"
            } else {
                "does not start"
            };
            text.push_str(&format!("  {}: {state} ({})\n", server.name, server.source));
        }
    }
    let hooks = report.hooks.iter();
    let running: Vec<_> = hooks
        .filter(|hook| hook.state == HookState::Allowed)
        .collect();
    if !running.is_empty() {
        text.push_str("\nHooks, which run with each task:\n");
        for hook in running {
            text.push_str(&format!("  {}\n", hook.describe()));
        }
    }
    if !report.not_started.is_empty() {
        text.push_str("\nNot started and not read:\n");
        for line in &report.not_started {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

fn rule_line(rule: &FoundInstructions) -> String {
    let state = match &rule.state {
        InstructionState::Sent if rule.sent_bytes as u64 == rule.bytes => String::new(),
        InstructionState::Sent => format!(", of {} bytes", rule.bytes),
        InstructionState::Waiting if rule.origin == InstructionOrigin::Nested => {
            format!(", {} bytes, when its folder is touched", rule.bytes)
        }
        InstructionState::Waiting => format!(
            ", {} bytes, when one of these is touched: {}",
            rule.bytes,
            rule.paths.join(" ")
        ),
        InstructionState::OnRequest => {
            format!(", {} bytes, when the model asks for it", rule.bytes)
        }
        InstructionState::Manual => format!(", {} bytes, only when you name it", rule.bytes),
        InstructionState::Repeated => ", the same text as an earlier file".to_owned(),
        InstructionState::Blank => ", empty".to_owned(),
        InstructionState::NoRoom => format!(", {} bytes, no room left", rule.bytes),
        InstructionState::Refused { reason } => format!(", not read: {reason}"),
    };
    let importer = rule
        .imported_by
        .as_ref()
        .map(|importer| format!(" (imported by {importer})"))
        .unwrap_or_default();
    format!("{:>8}  {}{importer}{state}\n", rule.sent_bytes, rule.path)
}

fn skill_line(skill: &Skill) -> String {
    format!(
        "{:>8}  {} ({}): {}\n",
        skill.bytes, skill.name, skill.path, skill.description
    )
}

fn command_line(command: &CustomCommand) -> String {
    format!(
        "{:>8}  /{} ({}): {}\n",
        command.bytes, command.name, command.path, command.description
    )
}
