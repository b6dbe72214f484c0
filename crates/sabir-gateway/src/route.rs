//! Which model is meant by a name, and how it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use sabir_call::{Model, ToolProtocol};
use sabir_wire::{Wire, WireOptions};

use crate::call_repair::RepairMode;
use crate::error::Refusal;

/// A model behind the gateway.
#[derive(Clone)]
pub struct ModelRoute {
    /// The model. It must remember nothing from request to request
    /// ([`CallerScope::Many`](sabir_model::CallerScope::Many)).
    pub model: Arc<dyn Model>,
    /// The provider's name of it, which is asked for.
    pub id: String,
    /// How calls are asked for.
    pub protocol: ToolProtocol,
    /// What is done about calls that are not right.
    pub repair_mode: RepairMode,
    /// What its provider speaks, if that is known: then what the provider has no words for is told or refused before it is asked.
    pub provider_wire: Option<ProviderWire>,
}

/// What a provider speaks.
#[derive(Debug, Clone)]
pub struct ProviderWire {
    /// The wire.
    pub wire: Wire,
    /// What its requests need beyond the wire.
    pub form: WireOptions,
}

/// The models that clients can name.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    named: BTreeMap<String, Arc<ModelRoute>>,
    /// For any other name.
    other: Option<Arc<ModelRoute>>,
}

impl std::fmt::Debug for ModelRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, protocol, repair_mode: mending, .. } = self;
        f.debug_struct("Route").field("id", id).field("protocol", protocol).field("mending", mending).finish()
    }
}

impl RouteTable {
    /// Adds a model under a name, in the place of an earlier one of that name.
    #[must_use]
    pub fn with_route(mut self, name: impl Into<String>, route: ModelRoute) -> Self {
        self.named.insert(name.into(), Arc::new(route));
        self
    }

    /// Says who answers for names that nobody has.
    #[must_use]
    pub fn with_fallback(mut self, route: ModelRoute) -> Self {
        self.other = Some(Arc::new(route));
        self
    }

    /// The names, in order.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The same names, with each model as `change` makes it.
    pub(crate) fn map_routes(self, change: impl Fn(ModelRoute) -> ModelRoute) -> Self {
        let change = |route: Arc<ModelRoute>| Arc::new(change(ModelRoute::clone(&route)));
        let named = self.named.into_iter().map(|(name, route)| (name, change(route)));
        Self { named: named.collect(), other: self.other.map(change) }
    }

    /// What is said where nobody has that name.
    pub(crate) fn unknown_model(&self, name: &str) -> Refusal {
        Refusal::Model(name.chars().take(100).collect(), self.model_names().collect::<Vec<_>>().join(", "))
    }

    /// The model of that name. Ollama's clients may leave out its `:latest`.
    pub(crate) fn find_route(&self, name: &str) -> Option<Arc<ModelRoute>> {
        let plain = name.strip_suffix(":latest").unwrap_or(name);
        let named = self.named.get(name).or_else(|| self.named.get(plain));
        named.or(self.other.as_ref()).cloned()
    }
}
