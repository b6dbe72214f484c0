//! Serves a script on this machine, for clients in other languages.
//!
//! `sabir-scripted-provider SCRIPT.json [PORT]` prints `http://127.0.0.1:PORT` and serves until it
//! is killed. A script is a JSON list of replies. A file with an object holds several lists; the
//! request's model selects one by name. For a model named `as-DIALECT`, the first word of the
//! user's last message names the list, and calls are written as text in that dialect (`as-native`
//! keeps native calls). For a model named `turns-DIALECT-LIST`, the reply is chosen from that list
//! by the number of assistant messages in the history, from 0, so that a client may send other
//! requests in between.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::{Mutex, PoisonError};

use sabir_call::Role;
use sabir_testkit::{ProviderReply, ReceivedRequest, ReplyScript, ScriptedProvider};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments
        .next()
        .ok_or("usage: sabir-scripted-provider SCRIPT.json [PORT]")?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script = parse_script(&std::fs::read_to_string(file)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let provider = ScriptedProvider::start_on(script, port).await?;
        // The caller reads this line to learn the address, so it must be flushed.
        writeln!(stdout(), "http://{}", provider.address())?;
        stdout().flush()?;
        provider.serve_forever().await;
        Ok(())
    })
}

/// Parses one list of replies, or lists by name. Each list is counted separately and restarts at
/// its end.
fn parse_script(text: &str) -> Result<ReplyScript, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return ReplyScript::from_json(text);
    }
    let lists: HashMap<String, Vec<ProviderReply>> = serde_json::from_str(text)?;
    let counts = Mutex::new(HashMap::<String, usize>::new());
    Ok(ReplyScript::from_fn(move |_, request| {
        let chosen = ReplyChoice::from_request(request);
        let list = lists
            .get(&chosen.list)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let number = chosen.number.unwrap_or_else(|| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(chosen.list.clone()).or_default();
            // Lists restart at their end, so an overflow would only skip some replies.
            *count = count.wrapping_add(1);
            count.wrapping_sub(1)
        });
        let Some(reply) = list.iter().cycle().nth(number).cloned() else {
            return error_reply(404, "no such model");
        };
        match &reply.expects {
            Some(words) if !request.body.to_string().contains(words) => {
                let body = request.body.to_string();
                // The end of the body contains what the client sent last, which is enough to find
                // the mistake.
                let end: String = body
                    .chars()
                    .skip(body.chars().count().saturating_sub(400))
                    .collect();
                error_reply(
                    400,
                    &format!("reply {number} wants a request with `{words}` in it; it ends {end}"),
                )
            }
            _ => ProviderReply {
                dialect: chosen.dialect.or(reply.dialect.clone()),
                ..reply
            },
        }
    }))
}

/// Builds an error response.
fn error_reply(status: u16, words: &str) -> ProviderReply {
    ProviderReply::error_status(status)
        .with_body(&serde_json::json!({"error": {"message": words}}).to_string())
}

/// The reply that a request asks for.
struct ReplyChoice {
    list: String,
    /// The index of the reply; with `None` the next one.
    number: Option<usize>,
    dialect: Option<String>,
}

impl ReplyChoice {
    /// Parses the model's name.
    fn from_request(request: &ReceivedRequest) -> Self {
        let incoming = request
            .incoming
            .as_ref()
            .and_then(|incoming| incoming.as_ref().ok());
        let asked = incoming.map(|incoming| &incoming.request);
        let model = asked.map_or("", |asked| asked.model.as_str());
        if let Some((dialect, list)) = model
            .strip_prefix("turns-")
            .and_then(|rest| rest.split_once('-'))
        {
            let answers = asked.map_or(0, |asked| {
                asked
                    .messages
                    .iter()
                    .filter(|message| message.role == Role::Assistant)
                    .count()
            });
            return Self {
                list: list.to_owned(),
                number: Some(answers),
                dialect: Some(dialect.to_owned()),
            };
        }
        if let Some(dialect) = model.strip_prefix("as-") {
            let list = request
                .last_text()
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
            return Self {
                list,
                number: None,
                dialect: Some(dialect.to_owned()),
            };
        }
        Self {
            list: model.to_owned(),
            number: None,
            dialect: None,
        }
    }
}
