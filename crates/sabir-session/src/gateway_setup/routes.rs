//! Builds the routes of the models that a gateway serves, from the spec and the configuration.

use std::sync::Arc;
use std::time::Duration;

use sabir_call::dialect::DialectSet;
use sabir_call::{Model, TokenPrices, ToolProtocol};
use sabir_gateway::{
    BalancePolicy, CircuitRules, GroupRules, ModelLimits, ModelRoute, ProbeFuture, ProviderWire,
    RepairMode, RouteTable, Upstream, UpstreamGroup, UpstreamPrices, UpstreamProbe,
};
use sabir_model::{
    BodyChanges, CallerScope, Deadlines, Provider, ProviderClient, RetryPolicy, Secret, TextParsing,
};
use sabir_wire::Wire;
use serde_json::{Map, Value};

use super::GatewaySpec;
use crate::config::{
    Config, GatewayModelConfig, GatewayUpstreamConfig, ResolvedModel, UpstreamSelection,
};
use crate::error::SessionError;
use crate::{locked, providers};

/// The default number of retries of a request that failed before its answer began. One is enough
/// for a kept connection that has been closed. Clients retry too, and should learn of failures
/// soon.
pub(crate) const DEFAULT_RETRIES: u32 = 1;

/// The pause before a retry, and the longest pause that a provider may ask for; clients that see
/// the error can wait longer.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// The default time between two checks of an upstream's health, in seconds.
pub(crate) const DEFAULT_HEALTH_SECONDS: u64 = 10;

/// The longest time for one such check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol of a model and the treatment of its calls.
#[derive(Clone)]
struct RouteOptions<'a> {
    dialects: &'a DialectSet,
    protocol: Option<&'a str>,
    repair_mode: RepairMode,
    retries: Option<u32>,
    body_changes: BodyChanges,
}

/// A server given by its address.
struct ServerAddress<'a> {
    url: &'a str,
    wire: Option<&'a str>,
    key_env: Option<&'a str>,
}

/// Builds the routes of the models in the spec, or else of those in the configuration.
///
/// # Errors
/// When there is no model, or one of them is unknown, has no key, or contradicts itself.
pub fn build_routes(spec: &GatewaySpec, config: &Config) -> Result<RouteTable, SessionError> {
    let kept = &config.gateway_config().models;
    if spec.models.is_empty() && kept.is_empty() {
        return Err(SessionError::invalid(
            "there is no model to serve: use --to URL --model NAME, or --model PROVIDER/NAME, or write \
             [gateway.models.NAME] into config.toml; `sabir help gateway` says how",
        ));
    }
    let mut routes = RouteTable::default();
    for (at, name) in spec.models.iter().enumerate() {
        let ways = RouteOptions {
            dialects: config.dialects(),
            protocol: spec.protocol.as_deref(),
            repair_mode: spec.repair_mode,
            retries: None,
            body_changes: BodyChanges::default(),
        };
        let chosen = model_from_spec(spec, config, name)?;
        let server = BuiltServer::new(&chosen, &ways)?;
        let label = spec.to.as_deref().unwrap_or(name);
        let upstream = server.upstream(upstream_label(label), 1, None);
        let route = Arc::new(join_upstreams(
            name,
            vec![(server, upstream)],
            GroupRules::default(),
        )?);
        if at == 0 && spec.any_model {
            routes = routes.with_fallback(Arc::clone(&route));
        }
        routes = routes.with_route(name, route);
    }
    if spec.models.is_empty() {
        for (name, keys) in kept {
            let wrong_members =
                |key: &'static str| move |failure| model_error(config, name, &[key], &failure);
            let ways = RouteOptions {
                dialects: config.dialects(),
                protocol: keys.protocol.as_deref(),
                repair_mode: keys.faulty_calls.0,
                retries: keys.retries,
                body_changes: BodyChanges {
                    defaults: parse_members("defaults", keys.defaults.as_deref())
                        .map_err(wrong_members("defaults"))?,
                    overrides: parse_members("overrides", keys.overrides.as_deref())
                        .map_err(wrong_members("overrides"))?,
                },
            };
            let route = build_group(config, name, keys, &ways)?;
            let route = Arc::new(route);
            for alias in &keys.aliases {
                let route = Arc::clone(&route);
                routes = if alias == "*" {
                    routes.with_fallback(route)
                } else {
                    routes.with_route(alias, route)
                };
            }
            routes = routes.with_route(name, route);
        }
    }
    Ok(routes)
}

/// Resolves a model of the spec: at the address or provider that `--to` names, or as for a task.
fn model_from_spec(
    spec: &GatewaySpec,
    config: &Config,
    name: &str,
) -> Result<ResolvedModel, SessionError> {
    match spec.to.as_deref() {
        None => Ok(config.resolve_model(Some(name))?),
        Some(url) if url.contains("://") => {
            let wire = spec.wire.as_deref();
            let key_env = spec.key_env.as_deref();
            model_at_address(config, name, name, &ServerAddress { url, wire, key_env })
        }
        Some(_) if spec.wire.is_some() || spec.key_env.is_some() => Err(SessionError::invalid(
            "--wire and --key-env belong to an address; the wire and key of a provider are set under [providers.NAME]",
        )),
        Some(provider) => Ok(config.resolve_model(Some(&format!("{provider}/{name}")))?),
    }
}

/// Returns the name of a server in metrics and logs.
fn upstream_label(to: &str) -> String {
    GatewayUpstreamConfig {
        to: to.to_owned(),
        name: None,
        weight: None,
        wire: None,
        key_env: None,
    }
    .label()
}

/// Returns the rules of a model's upstreams.
pub(crate) fn group_rules(keys: &GatewayModelConfig) -> GroupRules {
    let usual = CircuitRules::default();
    // At least a second, and at most an hour, so that no value stops everything.
    let seconds = |seconds: u64| Duration::from_secs(seconds.clamp(1, 3600));
    GroupRules {
        balance: match keys.balance.unwrap_or_default() {
            UpstreamSelection::Prefix => BalancePolicy::Prefix,
            UpstreamSelection::Least => BalancePolicy::Least,
            UpstreamSelection::Order => BalancePolicy::Order,
        },
        hedge: keys
            .hedge_ms
            .map(|pause| Duration::from_millis(pause.clamp(10, 3_600_000))),
        circuit: CircuitRules {
            max_failures: keys.max_failures.unwrap_or(usual.max_failures).max(1),
            ejection: keys.eject_seconds.map_or(usual.ejection, seconds),
        },
        probe_interval: Some(seconds(
            keys.health_seconds.unwrap_or(DEFAULT_HEALTH_SECONDS),
        )),
    }
}

/// Returns the weights of a model's upstreams.
#[cfg(test)]
pub(crate) fn upstream_weights(keys: &GatewayModelConfig) -> Vec<u32> {
    keys.servers().iter().map(weight_of).collect()
}

/// Returns the weight of an upstream, within a sane range.
fn weight_of(keys: &GatewayUpstreamConfig) -> u32 {
    keys.weight.unwrap_or(1).clamp(1, 1000)
}

/// Builds the route of a model of the configuration, with all its upstreams.
fn build_group(
    config: &Config,
    name: &str,
    keys: &GatewayModelConfig,
    ways: &RouteOptions<'_>,
) -> Result<ModelRoute, SessionError> {
    let mut built = Vec::new();
    let servers = keys.servers();
    // Another upstream is a better retry than the same one.
    let ways = RouteOptions {
        retries: ways.retries.or((servers.len() > 1).then_some(0)),
        ..ways.clone()
    };
    for (at, server) in servers.into_iter().enumerate() {
        let at = at.to_string();
        let wrong = |key: &str, failure: SessionError| {
            let path = match keys.upstreams.is_empty() {
                true => vec![key],
                false => vec!["upstreams", &at, key],
            };
            model_error(config, name, &path, &failure)
        };
        let chosen = model_from_config(config, name, &server)
            .map_err(|failure| wrong(failing_key(config, &server), failure))?;
        let made = BuiltServer::new(&chosen, &ways)
            .map_err(|failure| model_error(config, name, &["protocol"], &failure))?;
        let upstream = made.upstream(server.label(), weight_of(&server), keys.health.as_deref());
        built.push((made, upstream));
    }
    join_upstreams(name, built, group_rules(keys))
        .map_err(|failure| model_error(config, name, &["upstreams"], &failure))
}

/// Makes the error of a model of the configuration, with the file and the line of these keys in its table.
fn model_error(config: &Config, name: &str, keys: &[&str], failure: &SessionError) -> SessionError {
    let path = [&["gateway", "models", name], keys].concat();
    config.error_at(&path, format!("[gateway.models.{name}]: {failure}"))
}

/// Returns the key of a server that cannot be connected: the first of its keys that is wrong.
fn failing_key(config: &Config, server: &GatewayUpstreamConfig) -> &'static str {
    let is_address = server.to.contains("://");
    let is_wire = |wire: &String| Wire::from_name(wire).is_some();
    let has_key = |variable: &String| config.environment.variable(variable).is_some();
    if server
        .wire
        .as_ref()
        .is_some_and(|wire| !is_address || !is_wire(wire))
    {
        "wire"
    } else if server
        .key_env
        .as_ref()
        .is_some_and(|variable| !is_address || !has_key(variable))
    {
        "key_env"
    } else {
        "to"
    }
}

/// A server of a model, connected.
struct BuiltServer {
    model: Arc<dyn Model>,
    id: String,
    protocol: ToolProtocol,
    repair_mode: RepairMode,
    wire: ProviderWire,
    prices: TokenPrices,
    limits: ModelLimits,
    provider: Provider,
    deadlines: Deadlines,
}

/// Checks the health of a server by a request to a path.
struct PathProbe {
    client: ProviderClient,
    path: String,
}

impl UpstreamProbe for PathProbe {
    fn check_health(&self) -> ProbeFuture<'_> {
        Box::pin(self.client.check_health(&self.path, HEALTH_TIMEOUT))
    }
}

impl BuiltServer {
    /// Makes the upstream of a group.
    fn upstream(&self, name: String, weight: u32, health: Option<&str>) -> Upstream {
        let probe = health.map(|path| {
            let path = format!("/{}", path.trim_start_matches('/'));
            let client = self.provider_client();
            Arc::new(PathProbe { client, path }) as Arc<dyn UpstreamProbe>
        });
        Upstream {
            name,
            model: Arc::clone(&self.model),
            id: self.id.clone(),
            weight,
            probe,
            client: Some(Arc::new(self.provider_client())),
        }
    }

    /// Makes a client for requests that are not for the chat model.
    fn provider_client(&self) -> ProviderClient {
        ProviderClient::new(
            self.provider.clone(),
            self.deadlines.connect,
            self.deadlines.first_byte,
        )
    }
}

/// Joins the servers of a model. Its limits are the lowest of them.
fn join_upstreams(
    name: &str,
    built: Vec<(BuiltServer, Upstream)>,
    rules: GroupRules,
) -> Result<ModelRoute, SessionError> {
    let mut servers = Vec::new();
    let mut upstreams = Vec::new();
    let mut prices = Vec::new();
    for (server, upstream) in built {
        prices.push(UpstreamPrices {
            upstream: upstream.name.clone(),
            prices: server.prices,
        });
        servers.push(server);
        upstreams.push(upstream);
    }
    let group = UpstreamGroup::new(upstreams, rules)
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    let group = Arc::new(group);
    let Some(first) = servers.first() else {
        return Err(SessionError::invalid("a model needs an upstream"));
    };
    // A request is written before its upstream is chosen, so one protocol must suit all.
    if let Some(other) = servers
        .iter()
        .find(|server| server.protocol != first.protocol)
    {
        return Err(SessionError::invalid(format!(
            "its upstreams call tools in different ways ({} and {}); set `protocol` to one of them",
            protocol_name(&first.protocol),
            protocol_name(&other.protocol)
        )));
    }
    let mut provider_wires: Vec<ProviderWire> = Vec::new();
    for server in &servers {
        if !provider_wires.contains(&server.wire) {
            provider_wires.push(server.wire.clone());
        }
    }
    Ok(ModelRoute {
        name: name.to_owned(),
        model: Arc::clone(&group) as Arc<dyn Model>,
        id: first.id.clone(),
        protocol: first.protocol.clone(),
        repair_mode: first.repair_mode,
        provider_wires,
        limits: ModelLimits {
            output: servers
                .iter()
                .filter_map(|server| server.limits.output)
                .min(),
            never_thinks: servers.iter().any(|server| server.limits.never_thinks),
        },
        prices,
        group: Some(group),
    })
}

/// Returns the name of a protocol, as in the configuration.
fn protocol_name(protocol: &ToolProtocol) -> &str {
    match protocol {
        ToolProtocol::Native => "native",
        ToolProtocol::Prompted(name) => name,
    }
}

/// Resolves a server of a model of the configuration.
fn model_from_config(
    config: &Config,
    name: &str,
    keys: &GatewayUpstreamConfig,
) -> Result<ResolvedModel, SessionError> {
    let wire = keys.wire.as_deref();
    let key_env = keys.key_env.as_deref();
    if keys.to.contains("://") {
        // A fragment is never sent to a server, so it can hold the server's own name of the model.
        let (url, id) = keys.to.split_once('#').unwrap_or((&keys.to, name));
        return model_at_address(config, name, id, &ServerAddress { url, wire, key_env });
    }
    if wire.is_some() || key_env.is_some() {
        return Err(SessionError::invalid(
            "`wire` and `key_env` belong to an address; those of a provider are set under [providers.NAME]",
        ));
    }
    config.resolve_model(Some(&keys.to))
}

/// Resolves a model at an address.
fn model_at_address(
    config: &Config,
    name: &str,
    id: &str,
    server: &ServerAddress<'_>,
) -> Result<ResolvedModel, SessionError> {
    let wire = server.wire.map(|name| {
        let unknown = || {
            SessionError::invalid(format!(
                "`{name}` is not a wire: use one of {}",
                Wire::ALL.map(Wire::name).join(", ")
            ))
        };
        Wire::from_name(name).ok_or_else(unknown)
    });
    let wire = wire.transpose()?.unwrap_or(Wire::OpenAiChat);
    let mut reached = providers::connect_address(&with_api_version(server.url, wire))?;
    reached.provider.wire = wire;
    if let Some(variable) = server.key_env {
        let key = config.environment.variable(variable).ok_or_else(|| {
            SessionError::invalid(format!(
                "{variable} holds no key for {}: set it",
                server.url
            ))
        })?;
        reached.provider.key = Some(Secret::new(key));
    }
    Ok(config.model_at(name, id.to_owned(), reached))
}

/// Appends `/v1` to a server's address without a path if the wire is one of OpenAI's: servers offer
/// those APIs under that path.
fn with_api_version(url: &str, wire: Wire) -> String {
    let url = url.trim().trim_end_matches('/');
    let bare = url
        .split_once("://")
        .is_some_and(|(_, place)| !place.contains('/'));
    let versioned = matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses);
    if bare && versioned {
        format!("{url}/v1")
    } else {
        url.to_owned()
    }
}

/// Parses the members of a body that a key of the configuration holds.
fn parse_members(key: &str, text: Option<&str>) -> Result<Map<String, Value>, SessionError> {
    let Some(text) = text else {
        return Ok(Map::new());
    };
    let members: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| SessionError::invalid(format!("`{key}` is not a JSON object: {error}")))?;
    // The gateway would read an answer of another form, or bill another model.
    match ["model", "stream"]
        .iter()
        .find(|name| members.contains_key(**name))
    {
        Some(name) => Err(SessionError::invalid(format!(
            "`{key}` cannot set `{name}`, which the gateway itself decides; the model follows `#` in `to`"
        ))),
        None => Ok(members),
    }
}

impl BuiltServer {
    /// Connects a resolved model.
    fn new(chosen: &ResolvedModel, ways: &RouteOptions<'_>) -> Result<Self, SessionError> {
        let repair_mode = ways.repair_mode;
        let protocol = locked::task_protocol(ways.dialects, ways.protocol, None, chosen)?;
        let limit = ways
            .retries
            .unwrap_or(DEFAULT_RETRIES.min(chosen.retry_policy().limit));
        let (base, longest_asked) = RETRY_PAUSES;
        let retries = RetryPolicy {
            limit,
            base,
            longest_asked,
            longest: longest_asked,
            ..chosen.retry_policy()
        };
        let reads = if repair_mode == RepairMode::Pass {
            TextParsing::Nothing
        } else {
            TextParsing::Text
        };
        let body_changes = ways.body_changes.clone();
        let model = chosen.build_model(move |model| {
            model
                .body_changes(body_changes.clone())
                .caller_scope(CallerScope::Many)
                .text_parsing(reads)
                .retries(retries)
        });
        let (wire, form) = chosen.wire_format();
        Ok(Self {
            model: Arc::new(model),
            id: chosen.id.clone(),
            protocol,
            repair_mode,
            wire: ProviderWire { wire, form },
            prices: chosen.token_prices(),
            limits: chosen.request_limits(),
            provider: chosen.provider().clone(),
            deadlines: chosen.deadlines(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_body_are_an_object() {
        let parsed = parse_members("defaults", Some(r#"{"top_k": 5}"#)).unwrap();
        assert_eq!(parsed.get("top_k"), Some(&Value::from(5)));
        assert!(parse_members("defaults", None).unwrap().is_empty());
        for text in [
            "[1]",
            "top_k = 5",
            "",
            r#"{"model": "x"}"#,
            r#"{"stream": true}"#,
        ] {
            let error = parse_members("defaults", Some(text)).unwrap_err();
            assert!(error.to_string().contains("`defaults`"), "{error}");
        }
    }

    #[test]
    fn a_bare_address_gets_a_version() {
        let check = |url: &str, wire: Wire, expected: &str| {
            assert_eq!(with_api_version(url, wire), expected, "{url}")
        };
        check(
            "http://127.0.0.1:11434",
            Wire::OpenAiChat,
            "http://127.0.0.1:11434/v1",
        );
        check(
            "http://127.0.0.1:11434/",
            Wire::OpenAiResponses,
            "http://127.0.0.1:11434/v1",
        );
        check(
            "http://127.0.0.1:11434/",
            Wire::Ollama,
            "http://127.0.0.1:11434",
        );
        check(
            "https://api.anthropic.com",
            Wire::Anthropic,
            "https://api.anthropic.com",
        );
        check("https://h/api/v1/", Wire::OpenAiChat, "https://h/api/v1");
    }
}
