//! Which model is meant by a name, and how it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use sabir_call::{Model, Protocol};
use sabir_wire::{Form, Wire};

use crate::error::Refusal;
use crate::mend::Mending;

/// A model behind the gateway.
#[derive(Clone)]
pub struct Route {
    /// The model. It must remember nothing from request to request
    /// ([`Callers::Many`](sabir_model::Callers::Many)).
    pub model: Arc<dyn Model>,
    /// The provider's name of it, which is asked for.
    pub id: String,
    /// How calls are asked for.
    pub protocol: Protocol,
    /// What is done about calls that are not right.
    pub mending: Mending,
    /// What its provider speaks, if that is known: then what the provider has no words for is told or refused before it is asked.
    pub back: Option<Back>,
}

/// What a provider speaks.
#[derive(Debug, Clone)]
pub struct Back {
    /// The wire.
    pub wire: Wire,
    /// What its requests need beyond the wire.
    pub form: Form,
}

/// The models that clients can name.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    named: BTreeMap<String, Arc<Route>>,
    /// For any other name.
    other: Option<Arc<Route>>,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, protocol, mending, .. } = self;
        f.debug_struct("Route").field("id", id).field("protocol", protocol).field("mending", mending).finish()
    }
}

impl Routes {
    /// Adds a model under a name, in the place of an earlier one of that name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, route: Route) -> Self {
        self.named.insert(name.into(), Arc::new(route));
        self
    }

    /// Says who answers for names that nobody has.
    #[must_use]
    pub fn otherwise(mut self, route: Route) -> Self {
        self.other = Some(Arc::new(route));
        self
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The same names, with each model as `change` makes it.
    pub(crate) fn map(self, change: impl Fn(Route) -> Route) -> Self {
        let change = |route: Arc<Route>| Arc::new(change(Route::clone(&route)));
        let named = self.named.into_iter().map(|(name, route)| (name, change(route)));
        Self { named: named.collect(), other: self.other.map(change) }
    }

    /// What is said where nobody has that name.
    pub(crate) fn unknown(&self, name: &str) -> Refusal {
        Refusal::Model(name.chars().take(100).collect(), self.names().collect::<Vec<_>>().join(", "))
    }

    /// The model of that name. Ollama's clients may leave out its `:latest`.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Route>> {
        let plain = name.strip_suffix(":latest").unwrap_or(name);
        let named = self.named.get(name).or_else(|| self.named.get(plain));
        named.or(self.other.as_ref()).cloned()
    }
}
