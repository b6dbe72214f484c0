//! Maps the model names of clients to models.

use std::collections::BTreeMap;
use std::sync::Arc;

use sabir_call::{Model, ToolProtocol};
use sabir_wire::{Wire, WireOptions};

use crate::call_repair::RepairMode;
use crate::error::Refusal;

/// A model behind the gateway.
#[derive(Clone)]
pub struct ModelRoute {
    /// The model. It must keep no state between requests
    /// ([`CallerScope::Many`](sabir_model::CallerScope::Many)).
    pub model: Arc<dyn Model>,
    /// The provider's name for the model.
    pub id: String,
    /// The protocol for calls.
    pub protocol: ToolProtocol,
    /// The handling of broken calls.
    pub repair_mode: RepairMode,
    /// The provider's wire, if known. Unsupported parts of a request are then reported or refused
    /// before it is sent.
    pub provider_wire: Option<ProviderWire>,
    /// The limits to which a client's request is adapted.
    pub limits: ModelLimits,
}

impl ModelRoute {
    /// Returns true if the model's provider takes instructions in the midst of a history.
    pub(crate) fn accepts_inline_instructions(&self) -> bool {
        self.protocol == ToolProtocol::Native
            && self
                .provider_wire
                .as_ref()
                .is_some_and(|provider| provider.wire.accepts_inline_instructions())
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
#[derive(Debug, Clone)]
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
            repair_mode: mending,
            ..
        } = self;
        f.debug_struct("Route")
            .field("id", id)
            .field("protocol", protocol)
            .field("mending", mending)
            .finish()
    }
}

impl RouteTable {
    /// Adds a model under a name, replacing an earlier one of that name.
    #[must_use]
    pub fn with_route(mut self, name: impl Into<String>, route: ModelRoute) -> Self {
        self.named.insert(name.into(), Arc::new(route));
        self
    }

    /// Sets the model for all other names.
    #[must_use]
    pub fn with_fallback(mut self, route: ModelRoute) -> Self {
        self.other = Some(Arc::new(route));
        self
    }

    /// Returns the names, in alphabetical order.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// Applies `change` to every route.
    pub(crate) fn map_routes(self, change: impl Fn(ModelRoute) -> ModelRoute) -> Self {
        let change = |route: Arc<ModelRoute>| Arc::new(change(ModelRoute::clone(&route)));
        let named = self
            .named
            .into_iter()
            .map(|(name, route)| (name, change(route)));
        Self {
            named: named.collect(),
            other: self.other.map(change),
        }
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
