//! `tour`: the keyless first run. A recorded model drives the real machine, the real tools and the real gates in a scratch
//! folder; everything that is shown comes from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabir_agent::{Attended, Limits, Outcome, Start};
use sabir_policy::Rules;
use sabir_tools::EditTool;
use sabir_workspace::{Expect, Level, Sandbox, Workspace};

use crate::cassette::{self, Taped};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::screen::Progress;
use crate::task::{self, Bench, Means, Place, Plan};

/// What the model says, recorded by the test that holds this file to what would be asked.
const CASSETTE: &[u8] = include_bytes!("tour.jsonl");

const SCRIPT: &str = "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n";

/// `sabir tour`.
pub(crate) fn tour(folder: Option<&Path>) -> Result<Exit, Failure> {
    let (recording, told) = cassette::open(CASSETTE)?;
    let folder = scratch(folder)?;
    let shown = folder.display();
    print::err(&format!(
        "A scripted model now works in {shown}. The machine, the tools and the gates are the real ones.\n\n> {}\n\n",
        told.start.prompt
    ));
    let workspace = Workspace::open(&folder).map_err(|error| Failure::internal(error.to_string()))?;
    let path = workspace.path("greet.sh").map_err(|error| Failure::internal(error.to_string()))?;
    let written = workspace.write(&path, SCRIPT.as_bytes(), Expect::Missing);
    written.map_err(|error| Failure::internal(error.to_string()))?;

    let mut rules = Rules::default();
    for rule in ["edits", "command=sh greet.sh Ada Grace && wc -l < greet.sh"] {
        rules.approve(rule).map_err(|error| Failure::internal(error.to_string()))?;
    }
    let place = Place { folder: told.start.workspace.clone(), system: told.system, results: recording.results.clone() };
    // The scratch folder is there to be deleted: no checkpoints.
    let sandbox = Sandbox::new(Level::Off);
    let means =
        Means { edit_tool: EditTool::default(), jobs: task::passing_jobs(), keeper: None, sandbox, household: None };
    let bench = Bench::with(Arc::new(workspace), means, rules, Limits::default(), Some(place))?;
    let (model, mut tape) = cassette::play(recording, told.renews, |model| model)?;
    let journals = folder.join("journal");
    let Start { prompt, protocol, .. } = told.start;
    let plan = Plan { id: task::new_id(), prompt, model: &told.model, model_id: &told.model, protocol, from: None };
    let mut open = task::start(&bench, plan, Attended::No, &journals)?;
    let end = bench.drive(&mut open, &model, &mut Taped { user: &mut Progress::default(), tape: &mut tape })?;

    let script = bench.workspace.read(&path, 64 * 1024).map_err(|error| Failure::internal(error.to_string()))?;
    let script = String::from_utf8_lossy(&script.bytes).into_owned();
    print::out(&print::visible(&format!("\n{}\n\n{shown}/greet.sh is now:\n\n{script}", end.message)));
    if end.outcome == Outcome::Completed {
        print::err("\nThe folder is yours to keep or delete. Next: sabir --help, or README.md for a real model.\n");
    }
    Ok(Exit::from(end.outcome))
}

/// A new, empty folder.
fn scratch(folder: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => std::env::temp_dir().join(format!("sabir-tour-{}", crate::task::unique().simple())),
    };
    let made = std::fs::create_dir(&folder);
    made.map_err(|error| Failure::usage(format!("the scratch folder {} cannot be made: {error}", folder.display())))?;
    Ok(folder)
}
