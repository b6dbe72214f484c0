//! Serves a script on this machine, for clients in other languages.
//!
//! `sabir-scripted-provider SCRIPT.json [PORT]`: prints `http://127.0.0.1:PORT` and serves until it is killed. A script is
//! a JSON list of replies; a file that holds an object serves the list under the name that a request's model has. A model
//! named `as-DIALECT` says what stands under the first word of the user's last message, with calls written as words of
//! that dialect; `as-native` has calls of the wire. A model named `turns-DIALECT-LIST` says the reply of that list whose
//! number, from 0, is that of the model's messages in the history, so that a client may ask anything in between.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::{Mutex, PoisonError};

use sabir_call::Role;
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript, ScriptedProvider};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: sabir-scripted-provider SCRIPT.json [PORT]")?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script = parse_script(&std::fs::read_to_string(file)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let provider = ScriptedProvider::start_on(script, port).await?;
        // The one thing that its caller waits for.
        writeln!(stdout(), "http://{}", provider.address())?;
        stdout().flush()?;
        provider.serve_forever().await;
        Ok(())
    })
}

/// A list of replies, or lists by name, each counted on its own and begun again at its end.
fn parse_script(text: &str) -> Result<ReplyScript, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return ReplyScript::from_json(text);
    }
    let lists: HashMap<String, Vec<ProviderReply>> = serde_json::from_str(text)?;
    let counts = Mutex::new(HashMap::<String, usize>::new());
    Ok(ReplyScript::from_fn(move |_, request| {
        let chosen = ReplyChoice::from_request(request);
        let list = lists.get(&chosen.list).map(Vec::as_slice).unwrap_or_default();
        let number = chosen.number.unwrap_or_else(|| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(chosen.list.clone()).or_default();
            *count = count.wrapping_add(1);
            count.wrapping_sub(1)
        });
        let Some(reply) = list.iter().cycle().nth(number).cloned() else { return error_reply(404, "no such model") };
        match &reply.expects {
            Some(words) if !request.body.to_string().contains(words) => {
                let body = request.body.to_string();
                let end: String = body.chars().skip(body.chars().count().saturating_sub(400)).collect();
                error_reply(400, &format!("reply {number} wants a request with `{words}` in it; it ends {end}"))
            }
            _ => ProviderReply { dialect: chosen.dialect.or(reply.dialect.clone()), ..reply },
        }
    }))
}

fn error_reply(status: u16, words: &str) -> ProviderReply {
    ProviderReply::error_status(status).with_body(&serde_json::json!({"error": {"message": words}}).to_string())
}

/// Which reply a request gets.
struct ReplyChoice {
    list: String,
    /// `None`: the next one.
    number: Option<usize>,
    dialect: Option<String>,
}

impl ReplyChoice {
    fn from_request(request: &ReceivedRequest) -> Self {
        let incoming = request.incoming.as_ref().and_then(|incoming| incoming.as_ref().ok());
        let asked = incoming.map(|incoming| &incoming.request);
        let model = asked.map_or("", |asked| asked.model.as_str());
        if let Some((dialect, list)) = model.strip_prefix("turns-").and_then(|rest| rest.split_once('-')) {
            let answers = asked
                .map_or(0, |asked| asked.messages.iter().filter(|message| message.role == Role::Assistant).count());
            return Self { list: list.to_owned(), number: Some(answers), dialect: Some(dialect.to_owned()) };
        }
        if let Some(dialect) = model.strip_prefix("as-") {
            let list = request.last_text().split_whitespace().next().unwrap_or_default().to_owned();
            return Self { list, number: None, dialect: Some(dialect.to_owned()) };
        }
        Self { list: model.to_owned(), number: None, dialect: None }
    }
}
