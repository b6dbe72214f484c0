//! The models behind a gateway, made of flags and configuration.

use std::sync::Arc;

use sabir_gateway::{Mending, Route, Routes};
use sabir_model::{Callers, Reads, Secret};
use sabir_wire::Wire;

use crate::cli::GatewayArguments;
use crate::config::{Chosen, Config};
use crate::exit::Failure;
use crate::{providers, task, wire};

/// The models of the flags.
pub(super) fn routes(arguments: &GatewayArguments, config: &Config) -> Result<Routes, Failure> {
    let mut routes = Routes::default();
    for (at, name) in arguments.models.iter().enumerate() {
        let chosen = chosen(arguments, config, name)?;
        let route = route(&chosen, arguments.protocol.as_deref(), arguments.mend)?;
        if at == 0 && arguments.any_model {
            routes = routes.otherwise(route.clone());
        }
        routes = routes.with(name, route);
    }
    if arguments.models.is_empty() {
        return Err(Failure::usage("there is no model to serve: use --to URL --model NAME, or --model PROVIDER/NAME"));
    }
    Ok(routes)
}

/// The model of that name: at the place that `--to` names, or as for a task.
fn chosen(arguments: &GatewayArguments, config: &Config, name: &str) -> Result<Chosen, Failure> {
    let Some(to) = arguments.to.as_deref() else { return config.choose(Some(name)) };
    if !to.contains("://") {
        return config.choose(Some(&format!("{to}/{name}")));
    }
    let wire = arguments.wire.as_deref().map(|name| {
        let unknown = || Failure::usage(format!("`{name}` is no wire: use one of {}", wire::wires()));
        Wire::from_name(name).ok_or_else(unknown)
    });
    let wire = wire.transpose()?.unwrap_or(Wire::OpenAiChat);
    let mut reached = providers::address(&versioned(to, wire))?;
    reached.provider.wire = wire;
    if let Some(variable) = &arguments.key_env {
        let unset = |_| Failure::usage(format!("{variable} holds no key for {to}: set it, or leave --key-env out"));
        reached.provider.key = Some(Secret::new(std::env::var(variable).map_err(unset)?));
    }
    Ok(config.reached(name, name.to_owned(), reached))
}

/// A server's address with OpenAI's version behind it where it has no path: everybody serves that API under `/v1`.
fn versioned(url: &str, wire: Wire) -> String {
    let url = url.trim().trim_end_matches('/');
    let bare = url.split_once("://").is_some_and(|(_, place)| !place.contains('/'));
    let versioned = matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses);
    if bare && versioned { format!("{url}/v1") } else { url.to_owned() }
}

fn route(chosen: &Chosen, protocol: Option<&str>, mending: Mending) -> Result<Route, Failure> {
    let protocol = task::protocol(protocol, None, chosen)?;
    let reads = if mending == Mending::Pass { Reads::Nothing } else { Reads::Text };
    let model = chosen.model(move |model| model.callers(Callers::Many).reads(reads));
    Ok(Route { model: Arc::new(model), id: chosen.id.clone(), protocol, mending })
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
