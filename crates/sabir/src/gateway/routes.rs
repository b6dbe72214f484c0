//! The models behind a gateway, made of flags and configuration.

use std::sync::Arc;
use std::time::Duration;

use sabir_gateway::{Back, Mending, Route, Routes};
use sabir_model::{Callers, Reads, Retries, Secret};
use sabir_wire::Wire;

use crate::cli::GatewayArguments;
use crate::exit::Failure;
use crate::wire;
use sabir_session::config::GatewayModelKeys;
use sabir_session::config::{Chosen, Config};
use sabir_session::providers;

/// How often a request that failed before its answer is sent again, where the configuration does not say: once, for a connection
/// that was kept and is gone. Clients have retries of their own, and want to be told soon.
const RETRIES: u32 = 1;

/// The longest wait before that, and the longest that a provider may ask for; a client that is told may wait longer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// How a model is asked, and what is done about its calls.
struct Ways<'a> {
    protocol: Option<&'a str>,
    mending: Mending,
    retries: Option<u32>,
}

/// A server that is named by its address.
struct Server<'a> {
    url: &'a str,
    wire: Option<&'a str>,
    key_env: Option<&'a str>,
}

/// The models of the flags; without any, those of the configuration.
pub(super) fn routes(arguments: &GatewayArguments, config: &Config) -> Result<Routes, Failure> {
    let kept = &config.gateway().models;
    if arguments.models.is_empty() && kept.is_empty() {
        return Err(Failure::usage(
            "there is no model to serve: use --to URL --model NAME, or --model PROVIDER/NAME, or write \
             [gateway.models.NAME] into config.toml; `sabir help gateway` says how",
        ));
    }
    let mut routes = Routes::default();
    for (at, name) in arguments.models.iter().enumerate() {
        let ways = Ways { protocol: arguments.protocol.as_deref(), mending: arguments.mend, retries: None };
        let route = route(&of_flags(arguments, config, name)?, &ways)?;
        if at == 0 && arguments.any_model {
            routes = routes.otherwise(route.clone());
        }
        routes = routes.with(name, route);
    }
    if arguments.models.is_empty() {
        for (name, keys) in kept {
            let wrong = |failure: Failure| Failure::usage(format!("[gateway.models.{name}]: {}", failure.message));
            let ways = Ways { protocol: keys.protocol.as_deref(), mending: keys.mend.0, retries: keys.retries };
            let route = of_file(config, name, keys).and_then(|chosen| route(&chosen, &ways)).map_err(wrong)?;
            for alias in &keys.aliases {
                let route = route.clone();
                routes = if alias == "*" { routes.otherwise(route) } else { routes.with(alias, route) };
            }
            routes = routes.with(name, route);
        }
    }
    Ok(routes)
}

/// The model of that name: at the place that `--to` names, or as for a task.
fn of_flags(arguments: &GatewayArguments, config: &Config, name: &str) -> Result<Chosen, Failure> {
    match arguments.to.as_deref() {
        None => Ok(config.choose(Some(name))?),
        Some(url) if url.contains("://") => {
            let (wire, key_env) = (arguments.wire.as_deref(), arguments.key_env.as_deref());
            at(config, name, name, &Server { url, wire, key_env })
        }
        Some(_) if arguments.wire.is_some() || arguments.key_env.is_some() => Err(Failure::usage(
            "--wire and --key-env belong to an address; what a provider speaks and its key stand under [providers.NAME]",
        )),
        Some(provider) => Ok(config.choose(Some(&format!("{provider}/{name}")))?),
    }
}

fn of_file(config: &Config, name: &str, keys: &GatewayModelKeys) -> Result<Chosen, Failure> {
    let (wire, key_env) = (keys.wire.as_deref(), keys.key_env.as_deref());
    if keys.to.contains("://") {
        let (url, id) = keys.to.split_once('#').unwrap_or((&keys.to, name));
        return at(config, name, id, &Server { url, wire, key_env });
    }
    if wire.is_some() || key_env.is_some() {
        return Err(Failure::usage(
            "`wire` and `key_env` belong to an address; a provider's stand under [providers.NAME]",
        ));
    }
    Ok(config.choose(Some(&keys.to))?)
}

/// A model at an address.
fn at(config: &Config, name: &str, id: &str, server: &Server<'_>) -> Result<Chosen, Failure> {
    let wire = server.wire.map(|name| {
        let unknown = || Failure::usage(format!("`{name}` is no wire: use one of {}", wire::wires()));
        Wire::from_name(name).ok_or_else(unknown)
    });
    let wire = wire.transpose()?.unwrap_or(Wire::OpenAiChat);
    let mut reached = providers::address(&versioned(server.url, wire))?;
    reached.provider.wire = wire;
    if let Some(variable) = server.key_env {
        let unset = |_| Failure::usage(format!("{variable} holds no key for {}: set it", server.url));
        reached.provider.key = Some(Secret::new(std::env::var(variable).map_err(unset)?));
    }
    Ok(config.reached(name, id.to_owned(), reached))
}

/// A server's address with OpenAI's version behind it where it has no path: everybody serves that API under `/v1`.
fn versioned(url: &str, wire: Wire) -> String {
    let url = url.trim().trim_end_matches('/');
    let bare = url.split_once("://").is_some_and(|(_, place)| !place.contains('/'));
    let versioned = matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses);
    if bare && versioned { format!("{url}/v1") } else { url.to_owned() }
}

fn route(chosen: &Chosen, ways: &Ways<'_>) -> Result<Route, Failure> {
    let mending = ways.mending;
    let protocol = sabir_session::locked::protocol(ways.protocol, None, chosen)?;
    let limit = ways.retries.unwrap_or(RETRIES.min(chosen.retries()));
    let (base, longest_asked) = PAUSES;
    let retries = Retries { limit, base, longest_asked, longest: longest_asked, ..Retries::default() };
    let reads = if mending == Mending::Pass { Reads::Nothing } else { Reads::Text };
    let model = chosen.model(move |model| model.callers(Callers::Many).reads(reads).retries(retries));
    let (wire, form) = chosen.spoken();
    Ok(Route { model: Arc::new(model), id: chosen.id.clone(), protocol, mending, back: Some(Back { wire, form }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_address_gets_a_version() {
        let check = |url: &str, wire: Wire, expected: &str| assert_eq!(versioned(url, wire), expected, "{url}");
        check("http://127.0.0.1:11434", Wire::OpenAiChat, "http://127.0.0.1:11434/v1");
        check("http://127.0.0.1:11434/", Wire::OpenAiResponses, "http://127.0.0.1:11434/v1");
        check("http://127.0.0.1:11434/", Wire::Ollama, "http://127.0.0.1:11434");
        check("https://api.anthropic.com", Wire::Anthropic, "https://api.anthropic.com");
        check("https://h/api/v1/", Wire::OpenAiChat, "https://h/api/v1");
    }
}
