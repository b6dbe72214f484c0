//! Maps the model names of clients to models.

use std::collections::BTreeMap;
use std::sync::Arc;

use sabir_call::{Model, TokenPrices, ToolProtocol, Usage};
use sabir_wire::{Wire, WireOptions};

use crate::call_repair::RepairMode;
use crate::error::Refusal;
use crate::upstream_group::UpstreamGroup;

/// A model behind the gateway.
#[derive(Clone)]
pub struct ModelRoute {
    /// The name of the model in the configuration, whatever alias a client uses.
    pub name: String,
    /// The model. It must keep no state between requests
    /// ([`CallerScope::Many`](sabir_model::CallerScope::Many)).
    pub model: Arc<dyn Model>,
    /// The provider's name for the model.
    pub id: String,
    /// The protocol for calls.
    pub protocol: ToolProtocol,
    /// The handling of broken calls.
    pub repair_mode: RepairMode,
    /// The wires of the upstreams, without duplicates; empty if unknown. Unsupported parts of a
    /// request are reported or refused before it is sent.
    pub provider_wires: Vec<ProviderWire>,
    /// The limits to which a client's request is adapted.
    pub limits: ModelLimits,
    /// The prices of the upstreams.
    pub prices: Vec<UpstreamPrices>,
    /// The upstreams, if `model` is a group of them, for probes and metrics.
    pub group: Option<Arc<UpstreamGroup>>,
}

impl ModelRoute {
    /// Returns true if all upstreams take instructions in the midst of a history.
    pub(crate) fn accepts_inline_instructions(&self) -> bool {
        self.protocol == ToolProtocol::Native
            && self.all_wires(|wire| wire.accepts_inline_instructions())
    }

    /// Returns true if all upstreams have this wire, so that they get a client's own body.
    pub(crate) fn has_only_wire(&self, front: Wire) -> bool {
        self.all_wires(|wire| wire == front)
    }

    /// Returns true if the wires are known and this holds for all of them.
    fn all_wires(&self, holds: impl Fn(Wire) -> bool) -> bool {
        !self.provider_wires.is_empty()
            && self
                .provider_wires
                .iter()
                .all(|provider| holds(provider.wire))
    }

    /// Returns the cost of these tokens in billionths of a dollar, at the most expensive upstream;
    /// `None` if some price is unknown.
    pub(crate) fn highest_cost(&self, usage: Usage) -> Option<u64> {
        let costs = self.prices.iter().map(|known| known.cost_of(usage));
        costs.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Returns the cost of these tokens in billionths of a dollar at an upstream; `None` if its price is unknown. Without a known name, the
    /// most expensive upstream counts.
    pub(crate) fn cost_at(&self, upstream: Option<&str>, usage: Usage) -> Option<u64> {
        let known = self
            .prices
            .iter()
            .find(|known| Some(known.upstream.as_str()) == upstream);
        known.map_or_else(|| self.highest_cost(usage), |known| known.cost_of(usage))
    }

    /// Lets the upstreams continue with their states of an earlier route.
    pub(crate) fn inherit_states(self, earlier: Option<&Self>) -> Self {
        let known = earlier.and_then(|earlier| earlier.group.as_ref());
        let (Some(group), Some(known)) = (&self.group, known) else {
            return self;
        };
        let continued = Arc::new(group.inherit_states(known));
        Self {
            model: Arc::clone(&continued) as Arc<dyn Model>,
            group: Some(continued),
            ..self
        }
    }
}

/// The prices of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamPrices {
    /// The name of the upstream.
    pub upstream: String,
    /// Its prices.
    pub prices: TokenPrices,
}

impl UpstreamPrices {
    /// Returns the cost of these tokens in billionths of a dollar; `None` if it is unknown.
    fn cost_of(&self, usage: Usage) -> Option<u64> {
        // Cached tokens without a known price get a price too; otherwise a budget would not count
        // them.
        let prices = TokenPrices {
            cache_read: self.prices.cache_read.or(self.prices.input),
            cache_write: self.prices.cache_write.or(self.prices.input),
            ..self.prices
        };
        prices
            .is_known()
            .then(|| prices.cost_of(usage).known.as_nanos())
    }
}

/// Limits of a model that the operator knows, beyond which its provider would refuse a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelLimits {
    /// The most output tokens of one response.
    pub output: Option<u64>,
    /// True if the model cannot think before it answers, so that no effort may be asked of it.
    pub never_thinks: bool,
}

/// The wire of a provider, with its options.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderWire {
    /// The wire.
    pub wire: Wire,
    /// The options of its requests beyond the wire.
    pub form: WireOptions,
}

/// The models that clients can name.
///
/// A client's name is looked up as it is, then without `:latest`, then the fallback takes it.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// The models by the names that clients use.
    named: BTreeMap<String, Arc<ModelRoute>>,
    /// The model for all other names.
    other: Option<Arc<ModelRoute>>,
}

impl std::fmt::Debug for ModelRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            id,
            protocol,
            repair_mode,
            ..
        } = self;
        f.debug_struct("Route")
            .field("id", id)
            .field("protocol", protocol)
            .field("repair_mode", repair_mode)
            .finish()
    }
}

impl RouteTable {
    /// Adds a model under a name, replacing an earlier one of that name. Names of one model share an
    /// `Arc`.
    #[must_use]
    pub fn with_route(
        mut self,
        name: impl Into<String>,
        route: impl Into<Arc<ModelRoute>>,
    ) -> Self {
        self.named.insert(name.into(), route.into());
        self
    }

    /// Sets the model for all other names.
    #[must_use]
    pub fn with_fallback(mut self, route: impl Into<Arc<ModelRoute>>) -> Self {
        self.other = Some(route.into());
        self
    }

    /// Returns the names, in alphabetical order.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Applies `change` to every route, with its name; that of the fallback is empty. Names of the
    /// same route share the result.
    pub(crate) fn map_routes(self, change: impl Fn(&str, ModelRoute) -> ModelRoute) -> Self {
        let mut changed: Vec<(Arc<ModelRoute>, Arc<ModelRoute>)> = Vec::new();
        let mut change = |name: &str, route: Arc<ModelRoute>| {
            let known = changed.iter().find(|(from, _)| Arc::ptr_eq(from, &route));
            if let Some((_, to)) = known {
                return Arc::clone(to);
            }
            let to = Arc::new(change(name, ModelRoute::clone(&route)));
            changed.push((route, Arc::clone(&to)));
            to
        };
        let named = self.named.into_iter().map(|(name, route)| {
            let route = change(&name, route);
            (name, route)
        });
        let named = named.collect();
        Self {
            named,
            other: self.other.map(|route| change("", route)),
        }
    }

    /// Returns the route that this name had, or the fallback for the empty name.
    pub(crate) fn named_route(&self, name: &str) -> Option<&ModelRoute> {
        let found = if name.is_empty() {
            self.other.as_ref()
        } else {
            self.named.get(name)
        };
        found.map(Arc::as_ref)
    }

    /// Returns the groups of upstreams with the names of their models, each group once.
    pub(crate) fn groups(&self) -> Vec<(&str, &Arc<UpstreamGroup>)> {
        let mut groups: Vec<(&str, &Arc<UpstreamGroup>)> = Vec::new();
        let named = self
            .named
            .iter()
            .map(|(name, route)| (name.as_str(), route));
        let all = named.chain(self.other.iter().map(|route| ("*", route)));
        for (name, route) in all {
            if let Some(group) = &route.group
                && !groups.iter().any(|(_, known)| Arc::ptr_eq(known, group))
            {
                groups.push((name, group));
            }
        }
        groups
    }

    /// Returns the only model; `None` if there are several or none.
    pub(crate) fn only_route(&self) -> Option<&ModelRoute> {
        let mut all = self.named.values().chain(&self.other);
        let first = all.next()?;
        all.all(|route| Arc::ptr_eq(route, first))
            .then_some(first.as_ref())
    }

    /// Makes the error for an unknown name.
    pub(crate) fn unknown_model(&self, name: &str) -> Refusal {
        Refusal::Model(
            name.chars().take(100).collect(),
            self.model_names().collect::<Vec<_>>().join(", "),
        )
    }

    /// Finds the model of that name. Clients of Ollama may add `:latest` to it.
    pub(crate) fn find_route(&self, name: &str) -> Option<Arc<ModelRoute>> {
        let plain = name.strip_suffix(":latest").unwrap_or(name);
        let named = self.named.get(name).or_else(|| self.named.get(plain));
        named.or(self.other.as_ref()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use sabir_call::Dollars;

    use super::*;
    use crate::empty_model::EmptyModel;

    /// Makes a route of upstreams with these prices of a million tokens.
    fn route(inputs: &[Option<u64>]) -> ModelRoute {
        let prices = inputs.iter().enumerate().map(|(at, input)| UpstreamPrices {
            upstream: at.to_string(),
            prices: TokenPrices {
                input: input.map(|input| Dollars::from_nanos(input * 1_000_000)),
                output: Some(Dollars::from_nanos(0)),
                ..TokenPrices::default()
            },
        });
        ModelRoute {
            name: String::new(),
            model: Arc::new(EmptyModel),
            id: String::new(),
            protocol: ToolProtocol::Native,
            repair_mode: RepairMode::Repair,
            provider_wires: Vec::new(),
            limits: ModelLimits::default(),
            prices: prices.collect(),
            group: None,
        }
    }

    #[test]
    fn an_answer_costs_the_price_of_its_upstream() {
        let usage = Usage {
            input: Some(10),
            output: Some(10),
            cache_read: Some(8),
            cache_write: Some(1),
            ..Usage::default()
        };
        let two = route(&[Some(1), Some(100)]);
        assert_eq!(two.cost_at(Some("0"), usage), Some(10));
        assert_eq!(two.cost_at(Some("1"), usage), Some(1000));
        assert_eq!(two.cost_at(None, usage), Some(1000));
        assert_eq!(two.highest_cost(usage), Some(1000));
        let mixed = route(&[Some(1), None]);
        assert_eq!(mixed.cost_at(Some("0"), usage), Some(10));
        assert_eq!(mixed.cost_at(Some("1"), usage), None);
        assert_eq!(mixed.highest_cost(usage), None);
    }
}
