//! Keeps answers of the Responses API, to which later requests refer by id.
//!
//! OpenAI stores answers by default, and clients count on it: the AI SDK's `openai(model)` sends
//! `item_reference` in place of the items of earlier answers, others `previous_response_id` in place
//! of the whole history. The store puts the items in the places of the references, so that models
//! behind any wire get the history. It holds answers in memory up to a size; those that were used
//! least recently are forgotten first.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabir_wire::RequestError;
use serde_json::{Value, json};

use crate::error::Refusal;
use crate::serve::Gateway;

/// The store of a gateway's answers.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    /// The content.
    state: Mutex<StoreState>,
    /// The keys of the ends of ids.
    keys: RandomState,
    /// The number of scopes so far.
    scopes: AtomicU64,
}

/// A connection whose requests may continue answers that are not to be stored. OpenAI keeps those in
/// the memory of a WebSocket's connection, and clients with `store: false` count on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionScope(u64);

/// The origin of a request, which decides to which answers it may refer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReferenceScope<'a> {
    /// The connection, if it has a scope of its own.
    pub(crate) scope: Option<ConnectionScope>,
    /// The id of the client's key; `None` for the gateway's own token and without keys.
    pub(crate) key: Option<&'a str>,
}

/// A scope that lasts as long as its connection: its answers are forgotten when this is dropped.
pub(crate) struct ScopeGuard {
    /// The gateway, for its store.
    gateway: Gateway,
    /// The scope.
    scope: ConnectionScope,
}

/// A reference that cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReferenceError {
    /// The answer with this id is not stored (any more).
    UnknownResponse(String),
    /// Another reference to something that is not stored, or more items than the limit allows.
    Request(RequestError),
}

impl From<ReferenceError> for Refusal {
    fn from(error: ReferenceError) -> Self {
        match error {
            ReferenceError::UnknownResponse(id) => Self::UnknownResponse(id),
            ReferenceError::Request(error) => Self::Request(error),
        }
    }
}

impl ScopeGuard {
    /// Begins the scope of a connection.
    pub(crate) fn new(gateway: &Gateway) -> Self {
        let count = gateway.responses().scopes.fetch_add(1, Ordering::Relaxed);
        Self {
            gateway: gateway.clone(),
            scope: ConnectionScope(count),
        }
    }

    /// Returns the scope.
    pub(crate) fn scope(&self) -> ConnectionScope {
        self.scope
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        self.gateway.responses().forget_scope(self.scope);
    }
}

/// The content of a store.
#[derive(Debug, Default)]
struct StoreState {
    /// The answers by id.
    responses: HashMap<String, StoredResponse>,
    /// The ids of the answers that items belong to. A provider may give one id to several items.
    owners: HashMap<String, Vec<String>>,
    /// The ids of the answers of each connection that only it may refer to.
    by_scope: HashMap<ConnectionScope, HashSet<String>>,
    /// The ids of the answers by the time of their last use.
    by_use: BTreeMap<u64, String>,
    /// The number of uses so far, which serves as the time.
    uses: u64,
    /// The size of all answers in bytes.
    bytes: usize,
}

/// An answer with the input that led to it.
#[derive(Debug)]
struct StoredResponse {
    /// The input and the answer before it.
    input: StoredInput,
    /// The items of the answer.
    output: Vec<Value>,
    /// The memory for it in bytes.
    bytes: usize,
    /// The time of the last use.
    used: u64,
}

/// The input of a request, for its later continuation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StoredInput {
    /// The id of the answer that the request continues, as the client gave it.
    pub(crate) previous: Option<String>,
    /// The id of the stored answer before the items.
    base: Option<String>,
    /// The items of the request. If all requests may refer to this answer, the items of the earlier
    /// private answers precede them.
    items: Vec<Value>,
    /// The connection whose requests alone may refer to the answer; `None` if all may.
    scope: Option<ConnectionScope>,
    /// The id of the key whose requests alone may refer to the answer; `None` for the gateway's own
    /// token and without keys.
    key: Option<String>,
}

impl StoredInput {
    /// Returns true if requests of any connection may refer to the answer.
    pub(crate) fn is_shared(&self) -> bool {
        self.scope.is_none()
    }
}

/// The outcome of resolving the references of a body.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ResolvedReferences {
    /// The input to keep with the answer; `None` if the client wants nothing stored.
    pub(crate) input: Option<StoredInput>,
    /// The bytes by which the body has grown.
    pub(crate) added: usize,
}

impl ResponseStore {
    /// Returns an id for an answer that cannot be guessed from other ids, because an id gives
    /// access to the answer and its history.
    pub(crate) fn secret_id(&self, id: &str) -> String {
        format!("{id}{:016x}", self.keys.hash_one(id))
    }

    /// Replaces the references in a body by the stored items; the body may grow by `limit` bytes. A request may refer to the answers of its
    /// key and of its scope. With a scope, its own answer is always stored.
    ///
    /// # Errors
    /// A reference to something that is not stored (any more), or more items than the limit allows.
    pub(crate) fn resolve_references(
        &self,
        body: &mut Value,
        limit: usize,
        referrer: ReferenceScope<'_>,
    ) -> Result<ResolvedReferences, ReferenceError> {
        let is_shared = body.get("store") != Some(&Value::Bool(false));
        let keeps = is_shared || referrer.scope.is_some();
        let Some(members) = body.as_object_mut() else {
            return Ok(ResolvedReferences::default());
        };
        let mut budget = ExpansionBudget { limit, taken: 0 };
        let mut items = match members.get("input") {
            Some(Value::Array(items)) => items.clone(),
            Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
            _ => Vec::new(),
        };
        let previous = members
            .get("previous_response_id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(str::to_owned);
        let mut state = self.lock_state();
        let mut refers = previous.is_some();
        for (position, item) in items.iter_mut().enumerate() {
            if item.get("type").is_none_or(|kind| kind != "item_reference") {
                continue;
            }
            let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
            let path = || format!("input[{position}]");
            let known = state.find_item(id, referrer).ok_or_else(|| {
                ReferenceError::Request(RequestError {
                    path: path(),
                    message: format!(
                        "the item `{}` is not stored here: send the item itself",
                        shorten(id)
                    ),
                })
            })?;
            if !budget.take_item(known) {
                return Err(budget.full_error(path()));
            }
            *item = known.clone();
            refers = true;
        }
        if refers {
            let mut all = match &previous {
                Some(id) => state
                    .collect_history(id, referrer, &mut budget)
                    .ok_or_else(|| {
                        if budget.taken > budget.limit {
                            return budget.full_error("previous_response_id".to_owned());
                        }
                        ReferenceError::UnknownResponse(shorten(id))
                    })?,
                None => Vec::new(),
            };
            all.extend(items.iter().cloned());
            members.remove("previous_response_id");
            members.insert("input".to_owned(), Value::Array(all));
        }
        let mut base = previous.clone();
        if is_shared && let Some(id) = &previous {
            let private = state.copy_private_history(id);
            base = private.base;
            // The copy lives as long as the request, beside the one in its body.
            budget.taken += private.items.iter().map(estimate_memory).sum::<usize>();
            items.splice(0..0, private.items);
        }
        Ok(ResolvedReferences {
            input: keeps.then_some(StoredInput {
                previous,
                base,
                items,
                scope: referrer.scope.filter(|_| !is_shared),
                key: referrer.key.map(str::to_owned),
            }),
            added: budget.taken,
        })
    }

    /// Keeps an answer. At most `limit` bytes of all answers stay.
    pub(crate) fn store_response(
        &self,
        id: &str,
        input: StoredInput,
        output: Vec<Value>,
        limit: usize,
    ) {
        let bytes = input
            .items
            .iter()
            .chain(&output)
            .map(estimate_memory)
            .sum::<usize>()
            + ANSWER_OVERHEAD
            + id.len();
        if bytes > limit {
            return;
        }
        let mut state = self.lock_state();
        for item in &output {
            if let Some(item) = item.get("id").and_then(Value::as_str) {
                let owners = state.owners.entry(item.to_owned()).or_default();
                owners.push(id.to_owned());
            }
        }
        let response = StoredResponse {
            input,
            output,
            bytes,
            used: 0,
        };
        if let Some(scope) = response.input.scope {
            let own = state.by_scope.entry(scope).or_default();
            own.insert(id.to_owned());
        }
        state.bytes += bytes;
        state.responses.insert(id.to_owned(), response);
        state.touch(id);
        while state.bytes > limit && state.evict_least_recent() {}
    }

    /// Forgets the answers that only a connection could refer to.
    fn forget_scope(&self, scope: ConnectionScope) {
        let mut state = self.lock_state();
        for id in state.by_scope.remove(&scope).unwrap_or_default() {
            state.forget(&id);
        }
    }

    /// Locks the content.
    fn lock_state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreState {
    /// Marks an answer as used now.
    fn touch(&mut self, id: &str) {
        self.uses += 1;
        if let Some(response) = self.responses.get_mut(id) {
            self.by_use.remove(&response.used);
            response.used = self.uses;
            self.by_use.insert(self.uses, id.to_owned());
        }
    }

    /// Forgets the answer that was not used for the longest time. Returns false if there is none.
    fn evict_least_recent(&mut self) -> bool {
        let Some(id) = self.by_use.first_key_value().map(|(_, id)| id.clone()) else {
            return false;
        };
        self.forget(&id);
        true
    }

    /// Forgets an answer.
    fn forget(&mut self, id: &str) {
        let Some(response) = self.responses.remove(id) else {
            return;
        };
        self.by_use.remove(&response.used);
        self.bytes = self.bytes.saturating_sub(response.bytes);
        if let Some(scope) = response.input.scope
            && let Some(own) = self.by_scope.get_mut(&scope)
        {
            own.remove(id);
            if own.is_empty() {
                self.by_scope.remove(&scope);
            }
        }
        for item in &response.output {
            if let Some(item) = item.get("id").and_then(Value::as_str)
                && let Some(owners) = self.owners.get_mut(item)
            {
                owners.retain(|owner| *owner != id);
                if owners.is_empty() {
                    self.owners.remove(item);
                }
            }
        }
    }

    /// Returns an item of an answer; `None` also if items of several answers have that id, since they may belong to other clients.
    fn find_item(&mut self, id: &str, referrer: ReferenceScope<'_>) -> Option<&Value> {
        let [owner] = self.owners.get(id)?.as_slice() else {
            return None;
        };
        let owner = owner.clone();
        self.touch(&owner);
        let output = &self.find_response(&owner, referrer)?.output;
        output
            .iter()
            .find(|item| item.get("id").is_some_and(|known| known == id))
    }

    /// Returns an answer, if the request may refer to it.
    fn find_response(&self, id: &str, referrer: ReferenceScope<'_>) -> Option<&StoredResponse> {
        let response = self.responses.get(id)?;
        let own = response.input.scope;
        let is_own_key = response.input.key.as_deref() == referrer.key;
        (is_own_key && (own.is_none() || own == referrer.scope)).then_some(response)
    }

    /// Returns all items up to the end of an answer, oldest first; `None` if one of the answers is
    /// not there, or if they exceed the budget.
    fn collect_history(
        &mut self,
        id: &str,
        referrer: ReferenceScope<'_>,
        budget: &mut ExpansionBudget,
    ) -> Option<Vec<Value>> {
        let mut newest_first = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            self.touch(&id);
            let response = self.find_response(&id, referrer)?;
            let mut items = response.output.iter().chain(&response.input.items);
            if !items.all(|item| budget.take_item(item)) {
                return None;
            }
            newest_first.push(response.output.clone());
            newest_first.push(response.input.items.clone());
            next = response.input.base.clone();
        }
        Some(newest_first.into_iter().rev().flatten().collect())
    }

    /// Copies the items of the private answers that lead to an answer, back to the last answer that all requests may refer to.
    fn copy_private_history(&self, id: &str) -> PrivateHistory {
        let mut newest_first = Vec::new();
        let mut next = Some(id);
        while let Some(response) = next.and_then(|id| self.responses.get(id))
            && !response.input.is_shared()
        {
            newest_first.push(&response.output);
            newest_first.push(&response.input.items);
            next = response.input.base.as_deref();
        }
        PrivateHistory {
            base: next.map(str::to_owned),
            items: newest_first.into_iter().rev().flatten().cloned().collect(),
        }
    }
}

/// The end of a history that only one connection may refer to.
struct PrivateHistory {
    /// The answer before it, which all requests may refer to.
    base: Option<String>,
    /// The items.
    items: Vec<Value>,
}

/// The memory that an answer takes beside its items: its entries in the maps and its ids.
const ANSWER_OVERHEAD: usize = 512;

/// Limits the size of what replaces references. One short reference can stand for a large
/// item, and a body can hold very many of them.
#[derive(Debug)]
struct ExpansionBudget {
    /// The most bytes.
    limit: usize,
    /// The bytes that were taken, with those that did not fit.
    taken: usize,
}

impl ExpansionBudget {
    /// Counts an item against the budget. Returns false if it does not fit.
    fn take_item(&mut self, item: &Value) -> bool {
        self.taken += json_length(item);
        self.taken <= self.limit
    }

    /// Returns the error for references that exceed the budget.
    fn full_error(&self, path: String) -> ReferenceError {
        ReferenceError::Request(RequestError {
            path,
            message: format!(
                "the answers that it refers to have more than {} MiB",
                self.limit >> 20
            ),
        })
    }
}

/// Returns the length of a value as JSON.
fn json_length(value: &Value) -> usize {
    struct Counter(usize);
    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Counting cannot fail, and the keys of objects are texts.
    _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Returns about how much memory a value takes, which can be far more than its length as JSON.
fn estimate_memory(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(estimate_memory).sum(),
        // A key, its hash and its place.
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| key.len() + 48 + estimate_memory(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inside
}

/// Returns the beginning of an id from a client, for a message.
fn shorten(id: &str) -> String {
    id.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for four answers, but not for five.
    const LIMIT: usize = 6000;

    fn answer(id: &str) -> Vec<Value> {
        vec![json!({"type": "message", "id": id, "role": "assistant", "content": id})]
    }

    fn path_of(error: &ReferenceError) -> String {
        match error {
            ReferenceError::UnknownResponse(_) => "previous_response_id".to_owned(),
            ReferenceError::Request(error) => error.path.clone(),
        }
    }

    /// Resolves the references of a body and keeps an answer to it.
    fn ask(store: &ResponseStore, id: &str, mut body: Value) -> Result<Value, String> {
        let resolved = store
            .resolve_references(&mut body, 1 << 20, ReferenceScope::default())
            .map_err(|error| path_of(&error))?;
        if let Some(input) = resolved.input {
            store.store_response(id, input, answer(&format!("msg_{id}")), LIMIT);
        }
        Ok(body["input"].clone())
    }

    #[test]
    fn an_answer_is_continued_by_its_id() {
        let store = ResponseStore::default();
        let first = ask(&store, "r1", json!({"input": "one"}));
        assert_eq!(first, Ok(json!("one")));
        let second = ask(
            &store,
            "r2",
            json!({"input": [{"role": "user", "content": "two"}], "previous_response_id": "r1"}),
        );
        let expected = json!([{"role": "user", "content": "one"}, answer("msg_r1")[0], {"role": "user", "content": "two"}]);
        assert_eq!(second, Ok(expected.clone()));
        let third = ask(
            &store,
            "r3",
            json!({"input": "three", "previous_response_id": "r2", "store": false}),
        );
        let mut items = expected.as_array().cloned().unwrap();
        items.push(answer("msg_r2")[0].clone());
        items.push(json!({"role": "user", "content": "three"}));
        assert_eq!(third, Ok(Value::Array(items)));
        // The third one was not stored.
        let fourth = ask(
            &store,
            "r4",
            json!({"input": "x", "previous_response_id": "r3"}),
        );
        assert_eq!(fourth, Err("previous_response_id".to_owned()));
    }

    #[test]
    fn items_are_found_by_their_ids() {
        let store = ResponseStore::default();
        ask(&store, "r1", json!({"input": "one"})).unwrap();
        let body = json!({"input": [{"role": "user", "content": "one"}, {"type": "item_reference", "id": "msg_r1"}]});
        let expected = json!([{"role": "user", "content": "one"}, answer("msg_r1")[0]]);
        assert_eq!(ask(&store, "r2", body), Ok(expected));
        let body = json!({"input": [{"type": "item_reference", "id": "no"}]});
        assert_eq!(ask(&store, "r3", body), Err("input[0]".to_owned()));
    }

    #[test]
    fn references_cannot_make_a_body_larger_than_a_limit() {
        let store = ResponseStore::default();
        ask(&store, "r1", json!({"input": "one"})).unwrap();
        let reference = json!({"type": "item_reference", "id": "msg_r1"});
        let mut body = json!({"input": vec![reference; 10]});
        let length = json_length(&answer("msg_r1")[0]);
        let resolved =
            store.resolve_references(&mut body.clone(), 10 * length, ReferenceScope::default());
        assert_eq!(resolved.map(|resolved| resolved.added), Ok(10 * length));
        let resolved =
            store.resolve_references(&mut body, 10 * length - 1, ReferenceScope::default());
        assert_eq!(
            resolved.map_err(|error| path_of(&error)),
            Err("input[9]".to_owned())
        );
        let mut body = json!({"input": "two", "previous_response_id": "r1"});
        let resolved = store.resolve_references(&mut body, length, ReferenceScope::default());
        assert_eq!(
            resolved,
            Err(ReferenceError::Request(RequestError {
                path: "previous_response_id".to_owned(),
                message: "the answers that it refers to have more than 0 MiB".to_owned(),
            }))
        );
    }

    #[test]
    fn an_id_of_several_items_names_none() {
        let store = ResponseStore::default();
        for id in ["r1", "r2"] {
            store.store_response(id, StoredInput::default(), answer("msg_1"), LIMIT);
        }
        let body = json!({"input": [{"type": "item_reference", "id": "msg_1"}], "store": false});
        assert_eq!(ask(&store, "r3", body.clone()), Err("input[0]".to_owned()));
        assert!(store.lock_state().evict_least_recent());
        assert_eq!(ask(&store, "r3", body), Ok(json!(answer("msg_1"))));
        assert!(store.lock_state().evict_least_recent() && store.lock_state().owners.is_empty());
    }

    #[test]
    fn answers_of_a_scope_are_seen_and_kept_by_it_alone() {
        let store = ResponseStore::default();
        let scopes = [Some(ConnectionScope(1)), Some(ConnectionScope(2)), None];
        let first = ask(&store, "first", json!({"input": "one"}));
        assert!(first.is_ok());
        let ask = |id: &str, mut body: Value, scope| {
            let resolved =
                store.resolve_references(&mut body, 1 << 20, ReferenceScope { scope, key: None });
            let input = resolved.map_err(|error| path_of(&error))?.input;
            store.store_response(id, input.unwrap_or_default(), answer(id), 1 << 20);
            Ok::<_, String>(())
        };
        let continued = json!({"input": "two", "previous_response_id": "first", "store": false});
        ask("own", continued, scopes[0]).unwrap();
        let shared = json!({"input": "three", "previous_response_id": "own"});
        ask("shared", shared, scopes[0]).unwrap();
        for (scope, is_found) in scopes.into_iter().zip([true, false, false]) {
            for reference in [
                json!({"previous_response_id": "own"}),
                json!({"input": [{"type": "item_reference", "id": "own"}]}),
            ] {
                let mut body = reference.clone();
                let resolved = store.resolve_references(
                    &mut body,
                    1 << 20,
                    ReferenceScope { scope, key: None },
                );
                assert_eq!(resolved.is_ok(), is_found, "{scope:?}: {reference}");
            }
        }
        // The shared one continues it, so it has what it needs of it.
        let history = |scope| {
            let mut body = json!({"input": "four", "previous_response_id": "shared"});
            let resolved =
                store.resolve_references(&mut body, 1 << 20, ReferenceScope { scope, key: None });
            assert!(resolved.is_ok(), "{scope:?}");
            body["input"].clone()
        };
        let expected = json!([
            {"role": "user", "content": "one"}, answer("msg_first")[0],
            {"role": "user", "content": "two"}, answer("own")[0],
            {"role": "user", "content": "three"}, answer("shared")[0],
            {"role": "user", "content": "four"},
        ]);
        for scope in scopes {
            assert_eq!(history(scope), expected, "{scope:?}");
        }
        store.forget_scope(ConnectionScope(1));
        assert_eq!(history(None), expected);
        let state = store.lock_state();
        let mut ids: Vec<_> = state.responses.keys().collect();
        ids.sort();
        assert_eq!(ids, ["first", "shared"]);
        assert_eq!((state.owners.len(), state.by_use.len()), (2, 2));
        assert!(state.by_scope.is_empty());
    }

    #[test]
    fn answers_that_are_forgotten_earlier_leave_nothing_of_their_scope() {
        let store = ResponseStore::default();
        let scope = Some(ConnectionScope(1));
        for number in 0..20 {
            let mut body = json!({"input": "x", "store": false});
            let referrer = ReferenceScope { scope, key: None };
            let resolved = store
                .resolve_references(&mut body, 1 << 20, referrer)
                .unwrap();
            let id = format!("r{number}");
            store.store_response(&id, resolved.input.unwrap(), answer(&id), LIMIT);
        }
        let state = store.lock_state();
        assert_eq!(
            state.by_scope[&ConnectionScope(1)].len(),
            state.responses.len()
        );
        drop(state);
        while store.lock_state().evict_least_recent() {}
        assert!(store.lock_state().by_scope.is_empty());
    }

    #[test]
    fn ids_do_not_tell_the_next_one() {
        let store = ResponseStore::default();
        let ends = ["a1", "a2"].map(|id| store.secret_id(id).split_off(2));
        assert!(ends[0].len() == 16 && ends[0] != ends[1], "{ends:?}");
        assert_ne!(
            ResponseStore::default().secret_id("a1"),
            store.secret_id("a1")
        );
    }

    #[test]
    fn small_values_count_as_the_memory_that_they_take() {
        let items = json!(vec![0; 1000]);
        assert!(estimate_memory(&items) >= 1000 * size_of::<Value>());
    }

    #[test]
    fn answers_that_were_not_used_are_forgotten_first() {
        let store = ResponseStore::default();
        for id in ["r1", "r2"] {
            ask(&store, id, json!({"input": id})).unwrap();
        }
        // More than the limit; the first one was just used.
        for id in ["r3", "r4", "r5"] {
            let body = json!({"input": [{"type": "item_reference", "id": "msg_r1"}]});
            ask(&store, id, body).unwrap();
        }
        let state = store.lock_state();
        assert!(state.bytes <= LIMIT, "{}", state.bytes);
        assert!(state.responses.len() >= 2, "{}", state.bytes);
        assert!(state.responses.contains_key("r1") && !state.responses.contains_key("r2"));
        assert_eq!(
            (state.owners.len(), state.by_use.len()),
            (state.responses.len(), state.responses.len())
        );
        drop(state);
        let long = StoredInput {
            items: vec![json!("x".repeat(LIMIT))],
            ..StoredInput::default()
        };
        store.store_response("long", long, Vec::new(), LIMIT);
        assert!(!store.lock_state().responses.contains_key("long"));
    }

    #[test]
    fn answers_of_a_key_are_seen_by_it_alone() {
        let store = ResponseStore::default();
        let referrers = [Some("key_a"), Some("key_b"), None].map(|key| ReferenceScope {
            key,
            ..ReferenceScope::default()
        });
        for owner in referrers {
            let mut body = json!({"input": "x"});
            let resolved = store.resolve_references(&mut body, 1 << 20, owner).unwrap();
            let input = resolved.input.unwrap();
            store.store_response("resp", input, answer("msg"), LIMIT);
            for referrer in referrers {
                for body in [
                    json!({"previous_response_id": "resp", "input": "y"}),
                    json!({"input": [{"type": "item_reference", "id": "msg"}]}),
                ] {
                    let resolved = store.resolve_references(&mut body.clone(), 1 << 20, referrer);
                    assert_eq!(
                        resolved.is_ok(),
                        owner == referrer,
                        "{owner:?} {referrer:?}"
                    );
                }
            }
            store.lock_state().forget("resp");
        }
    }
}
