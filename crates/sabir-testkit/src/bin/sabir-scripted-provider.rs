//! Serves a script on this machine, for clients in other languages.
//!
//! `sabir-scripted-provider SCRIPT.json [PORT]`: prints `http://127.0.0.1:PORT` and serves until it is killed. A script is
//! a JSON list of replies; a file that holds an object serves the list under the name that a request's model has.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people and scripts")]

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use sabir_testkit::{Reply, Script, ScriptedProvider};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("usage: sabir-scripted-provider SCRIPT.json [PORT]");
        return ExitCode::from(2);
    };
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return failed(&format!("{file}: {error}")),
    };
    let script = match script(&text) {
        Ok(script) => script,
        Err(error) => return failed(&format!("{file}: {error}")),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    runtime.block_on(async {
        match ScriptedProvider::start_on(script, port).await {
            Ok(provider) => {
                println!("http://{}", provider.address());
                let _ = std::io::stdout().flush();
                provider.serve().await;
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error.to_string()),
        }
    })
}

/// A list of replies, or lists by the name of the model, each counted on its own and begun again at its end.
fn script(text: &str) -> Result<Script, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return Script::from_json(text);
    }
    let lists: HashMap<String, Vec<Reply>> = serde_json::from_str(text)?;
    let counts = Mutex::new(HashMap::<String, usize>::new());
    Ok(Script::by(move |_, request| {
        let model = request.body.get("model").and_then(serde_json::Value::as_str).unwrap_or_default();
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(model.to_owned()).or_default();
        let list = lists.get(model).map(Vec::as_slice).unwrap_or_default();
        let reply = list.iter().cycle().nth(*count).cloned();
        *count = count.wrapping_add(1);
        reply.unwrap_or_else(|| Reply::status(404).with_body("{\"error\":{\"message\":\"no such model\"}}"))
    }))
}

fn failed(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
