//! The configuration, read again while the gateway serves.
//!
//! The main decision: **all of it or nothing.** A file that cannot be used changes nothing, and what only a start can change (the
//! address, how many connections and answers there may be at once) is said to be left as it is.

use sabir_gateway::{Gateway, Limits, Routes};
use sabir_model::Secret;
use tokio::signal::unix::SignalKind;

use super::log::{Dial, Manner};
use super::{Token, place, routes, settings, token};
use crate::cli::GatewayArguments;
use crate::exit::Failure;
use crate::print;
use crate::surroundings;
use sabir_session::config::GatewayKeys;

/// What runs, and what it was told at its start.
#[derive(Clone)]
pub(super) struct Serving {
    arguments: GatewayArguments,
    gateway: Gateway,
    dial: Dial,
    /// Where it listens.
    listen: String,
    /// The token that was made, which nobody could know otherwise.
    made: Option<Secret>,
    /// How many connections and answers there may be at once.
    room: (usize, usize),
}

/// What a file says.
struct Read {
    routes: Routes,
    settings: sabir_gateway::Settings,
    manner: Manner,
    /// What only a start can change.
    kept: Vec<String>,
}

impl Serving {
    pub(super) fn new(
        arguments: &GatewayArguments,
        keys: &GatewayKeys,
        gateway: &Gateway,
        dial: &Dial,
        token: &Token,
    ) -> Self {
        let (listen, room) = (place(arguments, keys).to_owned(), room(&keys.limits()));
        let made = if let Token::Made(token) = token { Some(token.clone()) } else { None };
        Self { arguments: arguments.clone(), gateway: gateway.clone(), dial: dial.clone(), listen, made, room }
    }

    fn read(&self) -> Result<Read, Failure> {
        let arguments = &self.arguments;
        let config = surroundings::load_config(arguments.config.as_deref())?;
        let keys = config.gateway();
        let token = match (token(arguments, keys)?, &self.made) {
            (Token::Made(_), Some(made)) => Some(made.clone()),
            (Token::Made(_), None) => {
                return Err(Failure::usage(
                    "there is no token any more: write the new one, or start the gateway anew to have one made",
                ));
            }
            (token, _) => token.secret().cloned(),
        };
        let settings = settings(arguments, keys, token.as_ref(), 0);
        let mut kept = Vec::new();
        let listen = place(arguments, keys);
        if listen != self.listen {
            kept.push(format!("it still listens on {}: `listen = {listen:?}` needs a restart", self.listen));
        }
        if room(&settings.limits) != self.room {
            kept.push("`connections` and `answers` under [gateway.limits] need a restart".to_owned());
        }
        let manner = Manner::of(arguments, keys);
        Ok(Read { routes: routes::routes(arguments, &config)?, settings, manner, kept })
    }

    /// Takes what the file says; the words about it.
    fn take(&self) -> Vec<String> {
        let Read { routes, settings, manner, kept } = match self.read() {
            Ok(read) => read,
            Err(failure) => return vec![format!("models and settings stay as they are: {}", failure.message)],
        };
        let names = routes.names().collect::<Vec<_>>().join(", ");
        self.gateway.replace(routes);
        self.gateway.reset(settings);
        self.dial.set(manner);
        let mut words = vec![format!("the configuration was read again; models: {names}")];
        words.extend(kept);
        words
    }
}

fn room(limits: &Limits) -> (usize, usize) {
    (limits.connections, limits.answers)
}

/// Reads the configuration again whenever the process is sent SIGHUP.
pub(super) fn listen(serving: Serving) -> Result<(), Failure> {
    let mut signals = super::listen(SignalKind::hangup())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            let serving = serving.clone();
            let words = tokio::task::spawn_blocking(move || serving.take()).await;
            let words = words.unwrap_or_else(|_| vec!["the configuration could not be read again".to_owned()]);
            for words in words {
                print::err(&print::visible(&format!("sabir: {words}\n")));
            }
        }
    });
    Ok(())
}
