//! `tour`: the keyless first run. A scripted model drives the real machine, the real tools and the real gates in a scratch
//! folder; everything that is shown comes from them.

use std::path::{Path, PathBuf};

use sabir_agent::{Attended, Limits, Outcome, Rules};
use sabir_call::Protocol;
use sabir_call::dialect::CLINE;
use sabir_model::{Reply, ScriptedModel};
use sabir_workspace::{Expect, Workspace};

use crate::exit::{Exit, Failure};
use crate::print;
use crate::screen::Progress;
use crate::task::{self, Bench, Plan};

const TASK: &str = "greet.sh should greet everybody it is given, not only the first. Mend it and show that it works.";

const SCRIPT: &str = "#!/bin/sh\n# Greets the people it is given.\necho \"Hello, $1!\"\n";

/// What the model writes, in the cline dialect. Its second message holds two mistakes that models really make: a word
/// where a number belongs, and an argument that the tool does not have.
const REPLIES: [&str; 6] = [
    "<thinking>The script is small; I should read it before I change it.</thinking>\nI will look at the script first.\n\n\
     <read_file>\n<path>greet.sh</path>\n</read_file>",
    "It greets `$1` only. Let me see the line again.\n\n\
     <read_file>\n<path>greet.sh</path>\n<start_line>three</start_line>\n<lines>1</lines>\n</read_file>",
    "The line number must be a number, and there is no `lines`.\n\n\
     <read_file>\n<path>greet.sh</path>\n<start_line>3</start_line>\n</read_file>",
    "A loop over all arguments does it.\n\n\
     <replace_in_file>\n<path>greet.sh</path>\n<diff>\n------- SEARCH\necho \"Hello, $1!\"\n=======\nfor name in \"$@\"; do\n  \
     echo \"Hello, $name!\"\ndone\n+++++++ REPLACE\n</diff>\n</replace_in_file>",
    "Now I run it with two names.\n\n<execute_command>\n<cmd>sh greet.sh Ada Grace && wc -l < greet.sh</cmd>\n</execute_command>",
    "<attempt_completion>\n<result>greet.sh now greets everybody it is given; I ran it with two names.</result>\n</attempt_completion>",
];

/// `sabir tour`.
pub(crate) fn tour(folder: Option<&Path>) -> Result<Exit, Failure> {
    let folder = scratch(folder)?;
    let shown = folder.display();
    print::err(&format!(
        "A scripted model now works in {shown}. The machine, the tools and the gates are the real ones.\n\n> {TASK}\n\n"
    ));
    let workspace = Workspace::open(&folder).map_err(|error| Failure::internal(error.to_string()))?;
    let path = workspace.path("greet.sh").map_err(|error| Failure::internal(error.to_string()))?;
    let written = workspace.write(&path, SCRIPT.as_bytes(), Expect::Missing);
    written.map_err(|error| Failure::internal(error.to_string()))?;

    let mut rules = Rules::default();
    for rule in ["edits", "command=sh greet.sh Ada Grace && wc -l < greet.sh"] {
        rules.approve(rule).map_err(|error| Failure::internal(error.to_string()))?;
    }
    let bench = Bench::with(workspace, rules, Limits::default(), None)?;
    let protocol = Protocol::Prompted(CLINE.to_owned());
    let model = ScriptedModel::new(REPLIES.map(|text| Reply::Text(text.to_owned()))).pieces(7);
    let journals = folder.join("journal");
    let plan = Plan { prompt: TASK.to_owned(), model: "scripted", model_id: "scripted", protocol };
    let mut open = task::start(&bench, plan, Attended::No, &journals)?;
    let end = bench.drive(&mut open, &model, &mut Progress::default())?;

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
        None => std::env::temp_dir().join(format!("sabir-tour-{}", uuid::Uuid::now_v7().simple())),
    };
    let made = std::fs::create_dir(&folder);
    made.map_err(|error| Failure::usage(format!("the scratch folder {} cannot be made: {error}", folder.display())))?;
    Ok(folder)
}
