//! Implements `tour`: a first run without an API key. A recorded model drives the real agent, tools
//! and checks in a scratch folder, and all output comes from them.

use std::path::Path;

use sabir_agent::TaskOutcome;
use sabir_session::tour::{SCRIPT_NAME, Tour};
use sabir_session::{Host, SessionOutcome};
use sabir_terminal::front_end::SessionPresenter;
use sabir_terminal::tour_front_end::TourFrontEnd;

use crate::exit::{CommandError, ExitStatus};
use crate::output::print;
use crate::process_environment::{environment, host, runtime};

/// The recorded responses of the model. A test makes sure that they match the requests.
const CASSETTE: &[u8] = include_bytes!("tour.jsonl");

/// Runs `sabir tour`.
pub(crate) fn run_tour(folder: Option<&Path>) -> Result<ExitStatus, CommandError> {
    let tour = Tour::prepare(environment(), folder)?;
    let shown = tour.folder().display();
    let host = host();
    let prompt = Host::recorded_prompt(CASSETTE)?;
    print::write_stderr(&format!(
        "A scripted model now works in {shown}. The machine, the tools and the checks are the real ones.\n\n> {prompt}\n\n"
    ));
    let runtime = runtime()?;
    let session = runtime.block_on(tour.play(host, CASSETTE))?;
    let events = session.subscribe();
    let front_end = SessionPresenter::new(Box::new(TourFrontEnd::default()), session.handle())
        .without_notices();
    let SessionOutcome { end, .. } = runtime.block_on(async {
        front_end.show_until_end(events).await;
        session.wait().await
    })?;

    let script = tour.read_script()?;
    print::write_stdout(&print::sanitize_text(&format!(
        "\n{}\n\n{shown}/{SCRIPT_NAME} is now:\n\n{script}",
        end.message
    )));
    if end.outcome == TaskOutcome::Completed {
        print::write_stderr(
            "\nThe folder is yours to keep or delete. Next: `sabir help guide`, for a real model.\n",
        );
    }
    Ok(ExitStatus::from(end.outcome))
}
