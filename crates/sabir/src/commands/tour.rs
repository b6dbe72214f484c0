//! Implements `tour`: a first run without an API key. A recorded model drives the real agent, tools
//! and checks in a scratch folder, and all output comes from them.

use std::path::{Path, PathBuf};

use sabir_agent::TaskOutcome;
use sabir_session::{Host, RuleSpec, SandboxSpec, SessionOutcome, SessionSpec};
use sabir_workspace::{Workspace, WritePrecondition};

use crate::exit::{CommandError, ExitStatus};
use crate::output::event_renderer::ProgressFrontEnd;
use crate::output::front_end::PersonFrontEnd;
use crate::output::print;
use crate::surroundings::{environment, host, runtime};

/// The recorded responses of the model. A test makes sure that they match the requests.
const CASSETTE: &[u8] = include_bytes!("tour.jsonl");

/// The script that the recorded model edits.
const SCRIPT: &str = "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n";

/// Runs `sabir tour`.
pub(crate) fn run_tour(folder: Option<&Path>) -> Result<ExitStatus, CommandError> {
    let folder = make_scratch(folder)?;
    let shown = folder.display();
    let host = host();
    let prompt = Host::recorded_prompt(CASSETTE)?;
    print::write_stderr(&format!(
        "A scripted model now works in {shown}. The machine, the tools and the gates are the real ones.\n\n> {prompt}\n\n"
    ));
    let workspace =
        Workspace::open(&folder).map_err(|error| CommandError::internal(error.to_string()))?;
    let path = workspace
        .parse_path("greet.sh")
        .map_err(|error| CommandError::internal(error.to_string()))?;
    let written = workspace.write_file(&path, SCRIPT.as_bytes(), WritePrecondition::Missing);
    written.map_err(|error| CommandError::internal(error.to_string()))?;

    let approve = ["edits", "command=sh greet.sh Ada Grace && wc -l < greet.sh"]
        .map(str::to_owned)
        .to_vec();
    let spec = SessionSpec {
        workspace: Some(folder.clone()),
        // The user's configuration is ignored, so that the tour is the same for everybody.
        config: Some(PathBuf::from("/dev/null")),
        rules: RuleSpec {
            approve,
            ..RuleSpec::default()
        },
        sandbox: SandboxSpec {
            level: Some("off".to_owned()),
            network: false,
        },
        // No checkpoints: the scratch folder can simply be deleted.
        no_checkpoints: true,
        ..SessionSpec::default()
    };
    let journals = folder.join("journal");
    let runtime = runtime()?;
    let session = runtime.block_on(host.replay_journaled(CASSETTE, spec, &journals))?;
    let events = session.subscribe();
    let front_end = PersonFrontEnd::new(Box::new(ProgressFrontEnd::default()), session.handle())
        .without_notices();
    let SessionOutcome { end, .. } = runtime.block_on(async {
        front_end.attend(events).await;
        session.wait().await
    })?;

    let script = workspace
        .read_file(&path, 64 * 1024)
        .map_err(|error| CommandError::internal(error.to_string()))?;
    let script = String::from_utf8_lossy(&script.bytes).into_owned();
    print::write_stdout(&print::sanitize_text(&format!(
        "\n{}\n\n{shown}/greet.sh is now:\n\n{script}",
        end.message
    )));
    if end.outcome == TaskOutcome::Completed {
        print::write_stderr(
            "\nThe folder is yours to keep or delete. Next: sabir --help, or README.md for a real model.\n",
        );
    }
    Ok(ExitStatus::from(end.outcome))
}

/// Creates a new, empty folder.
fn make_scratch(folder: Option<&Path>) -> Result<PathBuf, CommandError> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => environment()
            .temporary_folder
            .join(format!("sabir-tour-{}", environment().unique_id().simple())),
    };
    let made = std::fs::create_dir(&folder);
    made.map_err(|error| {
        CommandError::usage(format!(
            "the scratch folder {} cannot be made: {error}",
            folder.display()
        ))
    })?;
    Ok(folder)
}
