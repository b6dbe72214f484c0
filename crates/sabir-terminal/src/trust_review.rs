//! Shows the programs that a repository would run, and trusts them after a confirmation: those of
//! its git configuration (`sabir trust`), and its hooks for tasks (`sabir trust --hooks`).

use std::io::IsTerminal;
use std::path::Path;

use sabir_session::config::Config;
use sabir_session::hooks::{FoundHook, HookState, find_folder_hooks, revoke_hooks, trust_hooks};
use sabir_session::trust::{TrustReview, TrustState};
use sabir_session::{Environment, NoticeSink, SessionError};
use serde_json::json;

use crate::{print, stdin_reader, trust_text};

/// Shows the programs that a repository makes git run, and trusts them after a confirmation, or at once with `yes`. Returns false if the
/// user said no.
///
/// # Errors
/// When the folder or the file of trusted repositories cannot be read, or nobody can be asked.
pub fn review_repository(
    folder: &Path,
    environment: &Environment,
    notices: &NoticeSink,
    yes: bool,
    as_json: bool,
) -> Result<bool, SessionError> {
    let review = TrustReview::for_folder(folder, environment, notices)?;
    match as_json {
        true => print::print_json(&trust_text::review_json(&review)),
        false => {
            let text = trust_text::review_text(&review);
            print::write_stdout(&print::sanitize_text(&text));
        }
    }
    if let Some(warning) = review.path_warning(environment) {
        print::write_stderr(&format!("sabir: {warning}\n"));
    }
    if review.state == TrustState::Trusted {
        return Ok(true);
    }
    if !yes && !confirm_trust()? {
        return Ok(false);
    }
    let top = review.top().display().to_string();
    review.trust(environment)?;
    let text = format!("sabir: {top} is trusted as it is now\n");
    print::write_stderr(&print::sanitize_text(&text));
    Ok(true)
}

/// Shows the hooks of a folder, and trusts them after a confirmation. Returns false if the user said no.
///
/// # Errors
/// When the folder or the file of trusted repositories cannot be read, or nobody can be asked.
pub fn review_hooks(
    folder: &Path,
    config: &Config,
    yes: bool,
    as_json: bool,
) -> Result<bool, SessionError> {
    let review = find_folder_hooks(folder, config)?;
    let list = &review.list;
    if as_json {
        print::print_json(
            &json!({"folder": review.root, "hooks": list.hooks, "problems": list.problems}),
        );
    } else {
        let mut text = format!("{}\n", review.root.display());
        text.extend(list.hooks.iter().map(hook_text));
        for problem in &list.problems {
            text.push_str(&format!("problem: {problem}\n"));
        }
        if list.hooks.is_empty() {
            text.push_str("There are no hooks, neither of the folder nor your own.\n");
        }
        print::write_stdout(&print::sanitize_text(&text));
    }
    let is_open = |hook: &FoundHook| hook.state != HookState::Allowed;
    if !list.hooks.iter().any(is_open) {
        return Ok(true);
    }
    if !yes && !confirm_trust()? {
        return Ok(false);
    }
    let count = trust_hooks(list, &review.root, config)?;
    let text = format!(
        "sabir: trusted as they are now: {}\n",
        print::count_noun(count, "hook")
    );
    print::write_stderr(&text);
    Ok(true)
}

/// Revokes the trust in the hooks of a folder. Returns true; without trust there is nothing to do.
///
/// # Errors
/// When the folder or the file of trusted repositories cannot be read.
pub fn revoke_hook_trust(folder: &Path, config: &Config) -> Result<bool, SessionError> {
    let review = find_folder_hooks(folder, config)?;
    let text = match revoke_hooks(&review.root, config)? {
        true => format!(
            "sabir: the hooks of {} are no longer trusted\n",
            review.root.display()
        ),
        false => format!("sabir: no hook of {} is trusted\n", review.root.display()),
    };
    print::write_stderr(&print::sanitize_text(&text));
    Ok(true)
}

/// Asks whether what was shown should be trusted. After a no it says that nothing was changed.
fn confirm_trust() -> Result<bool, SessionError> {
    confirm("Trust exactly this? [y/N] ")
}

/// Asks for a confirmation of something that was shown. After a no it says that nothing was changed.
///
/// # Errors
/// When standard input is not a terminal.
pub(crate) fn confirm(question: &str) -> Result<bool, SessionError> {
    if !std::io::stdin().is_terminal() {
        return Err(SessionError::invalid(
            "nobody can be asked here: look at what is listed, and give --yes to confirm it",
        ));
    }
    let answer = stdin_reader::confirm(question).map_err(|error| {
        SessionError::invalid(format!("standard input cannot be read: {error}"))
    })?;
    if !answer {
        print::write_stderr("sabir: nothing was changed\n");
    }
    Ok(answer)
}

/// Renders a hook: what runs when, in full, since it decides what runs on the user's machine.
fn hook_text(hook: &FoundHook) -> String {
    let state = match (hook.from_repository, hook.state) {
        (false, HookState::Allowed) => "your own",
        (false, HookState::Untrusted) => "your own, which runs files of this folder: not trusted",
        (false, HookState::Changed) => "your own, changed since you trusted it",
        (true, HookState::Allowed) => "trusted",
        (true, HookState::Untrusted) => "not trusted",
        (true, HookState::Changed) => "changed since you trusted it",
    };
    let spec = &hook.spec;
    let matcher = match spec.matcher.as_str() {
        "" => String::new(),
        matcher => format!(" {}", serde_json::Value::from(matcher)),
    };
    let condition = match &spec.condition {
        None => String::new(),
        // Quoted as the command is: a line break in it must not begin a line of ours.
        Some(condition) => format!(" if {}", serde_json::Value::from(condition.as_str())),
    };
    let mut text = format!(
        "  {}{matcher}{condition}: {}\n      {}, {state}, at most {} s\n",
        spec.event.name(),
        serde_json::Value::from(spec.command.as_str()),
        hook.file,
        spec.timeout_seconds
    );
    for file in hook.files.keys() {
        text.push_str(&format!(
            "      runs {}\n",
            serde_json::Value::from(file.as_str())
        ));
    }
    if hook.files.is_empty() {
        text.push_str(
            "      it names no file of this folder: a change of what it runs is not noticed\n",
        );
    } else if hook.has_unknown_parts() {
        text.push_str(
            "      only the shell knows all that it runs: a change of other files is not noticed\n",
        );
    }
    text
}
