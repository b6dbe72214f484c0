//! The models behind a gateway, made of flags and configuration.

use std::sync::Arc;
use std::time::Duration;

use sabir_call::dialect::DialectSet;
use sabir_gateway::{ModelRoute, ProviderWire, RepairMode, RouteTable};
use sabir_model::{CallerScope, RetryPolicy, Secret, TextParsing};
use sabir_wire::Wire;

use crate::cli::GatewayArguments;
use crate::commands::wire;
use crate::exit::CommandError;
use sabir_session::config::GatewayModelKeys;
use sabir_session::config::{Config, ResolvedModel};
use sabir_session::providers;

/// How often a request that failed before its answer is sent again, where the configuration does not say: once, for a connection
/// that was kept and is gone. Clients have retries of their own, and want to be told soon.
const DEFAULT_RETRIES: u32 = 1;

/// The longest wait before that, and the longest that a provider may ask for; a client that is told may wait longer.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// How a model is asked, and what is done about its calls.
struct RouteOptions<'a> {
    dialects: &'a DialectSet,
    protocol: Option<&'a str>,
    repair_mode: RepairMode,
    retries: Option<u32>,
}

/// A server that is named by its address.
struct ServerAddress<'a> {
    url: &'a str,
    wire: Option<&'a str>,
    key_env: Option<&'a str>,
}

/// The models of the flags; without any, those of the configuration.
pub(super) fn build_routes(arguments: &GatewayArguments, config: &Config) -> Result<RouteTable, CommandError> {
    let kept = &config.gateway_keys().models;
    if arguments.models.is_empty() && kept.is_empty() {
        return Err(CommandError::usage(
            "there is no model to serve: use --to URL --model NAME, or --model PROVIDER/NAME, or write \
             [gateway.models.NAME] into config.toml; `sabir help gateway` says how",
        ));
    }
    let mut routes = RouteTable::default();
    for (at, name) in arguments.models.iter().enumerate() {
        let ways = RouteOptions {
            dialects: config.dialects(),
            protocol: arguments.protocol.as_deref(),
            repair_mode: arguments.mend,
            retries: None,
        };
        let route = build_route(&model_from_flags(arguments, config, name)?, &ways)?;
        if at == 0 && arguments.any_model {
            routes = routes.with_fallback(route.clone());
        }
        routes = routes.with_route(name, route);
    }
    if arguments.models.is_empty() {
        for (name, keys) in kept {
            let wrong =
                |failure: CommandError| CommandError::usage(format!("[gateway.models.{name}]: {}", failure.message));
            let ways = RouteOptions {
                dialects: config.dialects(),
                protocol: keys.protocol.as_deref(),
                repair_mode: keys.mend.0,
                retries: keys.retries,
            };
            let route =
                model_from_config(config, name, keys).and_then(|chosen| build_route(&chosen, &ways)).map_err(wrong)?;
            for alias in &keys.aliases {
                let route = route.clone();
                routes = if alias == "*" { routes.with_fallback(route) } else { routes.with_route(alias, route) };
            }
            routes = routes.with_route(name, route);
        }
    }
    Ok(routes)
}

/// The model of that name: at the place that `--to` names, or as for a task.
fn model_from_flags(arguments: &GatewayArguments, config: &Config, name: &str) -> Result<ResolvedModel, CommandError> {
    match arguments.to.as_deref() {
        None => Ok(config.resolve_model(Some(name))?),
        Some(url) if url.contains("://") => {
            let (wire, key_env) = (arguments.wire.as_deref(), arguments.key_env.as_deref());
            model_at_address(config, name, name, &ServerAddress { url, wire, key_env })
        }
        Some(_) if arguments.wire.is_some() || arguments.key_env.is_some() => Err(CommandError::usage(
            "--wire and --key-env belong to an address; what a provider speaks and its key stand under [providers.NAME]",
        )),
        Some(provider) => Ok(config.resolve_model(Some(&format!("{provider}/{name}")))?),
    }
}

fn model_from_config(config: &Config, name: &str, keys: &GatewayModelKeys) -> Result<ResolvedModel, CommandError> {
    let (wire, key_env) = (keys.wire.as_deref(), keys.key_env.as_deref());
    if keys.to.contains("://") {
        let (url, id) = keys.to.split_once('#').unwrap_or((&keys.to, name));
        return model_at_address(config, name, id, &ServerAddress { url, wire, key_env });
    }
    if wire.is_some() || key_env.is_some() {
        return Err(CommandError::usage(
            "`wire` and `key_env` belong to an address; a provider's stand under [providers.NAME]",
        ));
    }
    Ok(config.resolve_model(Some(&keys.to))?)
}

/// A model at an address.
fn model_at_address(
    config: &Config,
    name: &str,
    id: &str,
    server: &ServerAddress<'_>,
) -> Result<ResolvedModel, CommandError> {
    let wire = server.wire.map(|name| {
        let unknown = || CommandError::usage(format!("`{name}` is no wire: use one of {}", wire::wire_names()));
        Wire::from_name(name).ok_or_else(unknown)
    });
    let wire = wire.transpose()?.unwrap_or(Wire::OpenAiChat);
    let mut reached = providers::connect_address(&with_api_version(server.url, wire))?;
    reached.provider.wire = wire;
    if let Some(variable) = server.key_env {
        let unset = |_| CommandError::usage(format!("{variable} holds no key for {}: set it", server.url));
        reached.provider.key = Some(Secret::new(std::env::var(variable).map_err(unset)?));
    }
    Ok(config.model_at(name, id.to_owned(), reached))
}

/// A server's address with OpenAI's version behind it where it has no path: everybody serves that API under `/v1`.
fn with_api_version(url: &str, wire: Wire) -> String {
    let url = url.trim().trim_end_matches('/');
    let bare = url.split_once("://").is_some_and(|(_, place)| !place.contains('/'));
    let versioned = matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses);
    if bare && versioned { format!("{url}/v1") } else { url.to_owned() }
}

fn build_route(chosen: &ResolvedModel, ways: &RouteOptions<'_>) -> Result<ModelRoute, CommandError> {
    let mending = ways.repair_mode;
    let protocol = sabir_session::locked::task_protocol(ways.dialects, ways.protocol, None, chosen)?;
    let limit = ways.retries.unwrap_or(DEFAULT_RETRIES.min(chosen.retry_limit()));
    let (base, longest_asked) = RETRY_PAUSES;
    let retries = RetryPolicy { limit, base, longest_asked, longest: longest_asked, ..RetryPolicy::default() };
    let reads = if mending == RepairMode::Pass { TextParsing::Nothing } else { TextParsing::Text };
    let model =
        chosen.build_model(move |model| model.caller_scope(CallerScope::Many).text_parsing(reads).retries(retries));
    let (wire, form) = chosen.wire_format();
    Ok(ModelRoute {
        model: Arc::new(model),
        id: chosen.id.clone(),
        protocol,
        repair_mode: mending,
        provider_wire: Some(ProviderWire { wire, form }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_address_gets_a_version() {
        let check = |url: &str, wire: Wire, expected: &str| assert_eq!(with_api_version(url, wire), expected, "{url}");
        check("http://127.0.0.1:11434", Wire::OpenAiChat, "http://127.0.0.1:11434/v1");
        check("http://127.0.0.1:11434/", Wire::OpenAiResponses, "http://127.0.0.1:11434/v1");
        check("http://127.0.0.1:11434/", Wire::Ollama, "http://127.0.0.1:11434");
        check("https://api.anthropic.com", Wire::Anthropic, "https://api.anthropic.com");
        check("https://h/api/v1/", Wire::OpenAiChat, "https://h/api/v1");
    }
}
