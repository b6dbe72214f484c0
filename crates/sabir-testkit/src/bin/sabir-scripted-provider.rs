//! Serves a script on this machine, for clients in other languages.
//!
//! `sabir-scripted-provider SCRIPT.json [PORT]`: prints `http://127.0.0.1:PORT` and serves until it is killed. A script is
//! a JSON list of replies; a file that holds an object serves the list under the name that a request's model has. A model
//! named `as-DIALECT` says what stands under the first word of the user's last message, with calls written as words of
//! that dialect; `as-native` has calls of the wire.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::{Mutex, PoisonError};

use sabir_testkit::{Reply, Script, ScriptedProvider};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: sabir-scripted-provider SCRIPT.json [PORT]")?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script = script(&std::fs::read_to_string(file)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let provider = ScriptedProvider::start_on(script, port).await?;
        // The one thing that its caller waits for.
        writeln!(stdout(), "http://{}", provider.address())?;
        stdout().flush()?;
        provider.serve().await;
        Ok(())
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
        // Some wires name the model in the path.
        let model = request.incoming.as_ref().and_then(|incoming| incoming.as_ref().ok());
        let model = model.map_or("", |incoming| incoming.request.model.as_str());
        let words = request.last_words();
        let (dialect, name) = match model.strip_prefix("as-") {
            Some(dialect) => (Some(dialect), words.split_whitespace().next().unwrap_or_default()),
            None => (None, model),
        };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.to_owned()).or_default();
        let list = lists.get(name).map(Vec::as_slice).unwrap_or_default();
        let reply = list.iter().cycle().nth(*count).cloned();
        *count = count.wrapping_add(1);
        let reply =
            reply.unwrap_or_else(|| Reply::status(404).with_body("{\"error\":{\"message\":\"no such model\"}}"));
        Reply { dialect: dialect.map(str::to_owned), ..reply }
    }))
}
