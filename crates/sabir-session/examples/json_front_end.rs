//! Implements a front end in about a hundred lines: JSON lines in, JSON lines out, any number of sessions in one process.
//!
//! Each input line names a session and what to do: `{"session": 1, "start": SPEC, "message": "…"}`,
//! `{"session": 1, "resume": "TASK", "spec": SPEC, "message": "…"}` or `{"session": 1, "command": COMMAND}`, where SPEC is a
//! [`SessionSpec`] and COMMAND a [`Command`]. Each output line is `{"session": 1, "event": EVENT}` or `{"session": 1, "error": "…"}`.
//! The folder in `SABIR_EXAMPLE_HOME` is the home; the end of the input ends all sessions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use sabir_session::agent::TaskId;
use sabir_session::{
    Command, Environment, Host, Session, SessionHandle, SessionSpec, SessionUpdate, UserMessage,
    supervise,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[derive(Deserialize)]
struct InputLine {
    session: u32,
    start: Option<SessionSpec>,
    resume: Option<TaskId>,
    #[serde(default)]
    spec: SessionSpec,
    #[serde(default)]
    message: String,
    command: Option<Command>,
}

fn main() -> ExitCode {
    // The model's commands run under a copy of this program, which ends them when this process
    // dies.
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == supervise::ARGUMENT)
    {
        return supervise::main(arguments);
    }
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(serve()),
        Err(_) => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// Serves input lines until the input ends.
async fn serve() {
    let host = Host::new(environment());
    let mut sessions: HashMap<u32, SessionHandle> = HashMap::new();
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(input) = serde_json::from_str::<InputLine>(&line) else {
            print_line(&json!({"error": "this line is not understood"}));
            continue;
        };
        let number = input.session;
        let result = match (input.start, input.resume, input.command) {
            (Some(spec), _, _) => host
                .start(spec, UserMessage::from_text(input.message))
                .await
                .map(Some),
            (None, Some(task), _) => host
                .load(
                    &task,
                    input.spec,
                    Some(UserMessage::from_text(input.message)),
                )
                .await
                .map(Some),
            (None, None, Some(command)) => {
                let submitted = sessions.get(&number).map(|session| session.submit(command));
                if let Some(Err(rejected)) = submitted {
                    print_line(&json!({"session": number, "error": rejected.to_string()}));
                }
                Ok(None)
            }
            _ => Ok(None),
        };
        match result {
            Ok(Some(session)) => {
                sessions.insert(number, session.handle());
                tokio::spawn(print_session(number, session));
            }
            Ok(None) => {}
            Err(error) => print_line(&json!({"session": number, "error": error.to_string()})),
        }
    }
}

/// Prints the updates of a session until it is over.
async fn print_session(number: u32, session: Session) {
    let mut updates = session.subscribe();
    while let Some(update) = updates.next().await {
        let event = match update {
            SessionUpdate::Snapshot(snapshot) => json!({"kind": "snapshot", "snapshot": snapshot}),
            SessionUpdate::Event(event) => serde_json::to_value(&*event).unwrap_or_default(),
        };
        print_line(&json!({"session": number, "event": event}));
    }
}

fn print_line(line: &Value) {
    use std::io::Write;
    // A closed output means that the reader is gone.
    _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Returns the environment of the process, with the folder in `SABIR_EXAMPLE_HOME` as the home.
fn environment() -> Environment {
    let helper = std::env::current_exe().unwrap_or_default();
    let mut environment = Environment::new(std::env::vars_os(), helper, SystemTime::now);
    let home = PathBuf::from(std::env::var_os("SABIR_EXAMPLE_HOME").unwrap_or_default());
    environment.config_folder = Some(home.join("config"));
    environment.data_folder = Some(home.join("data"));
    environment.home_folder = Some(home);
    environment.temporary_folder = std::env::temp_dir();
    environment
}
