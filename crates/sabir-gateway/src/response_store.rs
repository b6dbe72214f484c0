//! Keeps answers of the Responses API, to which later requests refer by id.
//!
//! OpenAI stores answers by default, and clients count on it: the AI SDK's `openai(model)` sends
//! `item_reference` in place of the items of earlier answers, others `previous_response_id` in place
//! of the whole history. The store puts the items in the places of the references, so that models
//! behind any wire get the history. It holds answers in memory up to a size; those that were used
//! least recently are forgotten first.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabir_wire::RequestError;
use serde_json::{Value, json};

/// The store of a gateway's answers.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    /// The content.
    state: Mutex<StoreState>,
    /// The keys of the ends of ids.
    keys: RandomState,
}

/// The content of a store.
#[derive(Debug, Default)]
struct StoreState {
    /// The answers by id.
    responses: HashMap<String, StoredResponse>,
    /// The ids of the answers that items belong to. A provider may give one id to several items.
    owners: HashMap<String, Vec<String>>,
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
    /// The id of the answer that the request continues.
    pub(crate) previous: Option<String>,
    /// The items of the request itself, without those of the answers before.
    items: Vec<Value>,
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
    /// Returns an id for an answer that nobody can guess who knows other ids: who knows an id can
    /// read the answer and what led to it.
    pub(crate) fn secret_id(&self, id: &str) -> String {
        format!("{id}{:016x}", self.keys.hash_one(id))
    }

    /// Puts the stored items in the places of the references of a body, which may grow by `limit`
    /// bytes.
    ///
    /// # Errors
    /// A reference to something that is not stored (any more), or more items than the limit allows.
    pub(crate) fn resolve_references(
        &self,
        body: &mut Value,
        limit: usize,
    ) -> Result<ResolvedReferences, RequestError> {
        let keeps = body.get("store") != Some(&Value::Bool(false));
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
            let known = state.find_item(id).ok_or_else(|| RequestError {
                path: path(),
                message: format!(
                    "the item `{}` is not stored here: send the item itself",
                    shorten(id)
                ),
            })?;
            if !budget.take_item(known) {
                return Err(budget.full_error(path()));
            }
            *item = known.clone();
            refers = true;
        }
        if refers {
            let mut all = match &previous {
                Some(id) => state.collect_history(id, &mut budget).ok_or_else(|| {
                    let path = "previous_response_id".to_owned();
                    if budget.taken > budget.limit {
                        return budget.full_error(path);
                    }
                    let message = format!(
                        "the response `{}` is not stored here: send the whole history as `input`",
                        shorten(id)
                    );
                    RequestError { path, message }
                })?,
                None => Vec::new(),
            };
            all.extend(items.iter().cloned());
            members.remove("previous_response_id");
            members.insert("input".to_owned(), Value::Array(all));
        }
        Ok(ResolvedReferences {
            input: keeps.then_some(StoredInput { previous, items }),
            added: budget.taken,
        })
    }

    /// Keeps an answer. At most `limit` bytes of all answers stay.
    pub(crate) fn keep_response(
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
        state.bytes += bytes;
        state.responses.insert(id.to_owned(), response);
        state.touch(id);
        while state.bytes > limit && state.forget_oldest() {}
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
    fn forget_oldest(&mut self) -> bool {
        let Some((_, id)) = self.by_use.pop_first() else {
            return false;
        };
        if let Some(response) = self.responses.remove(&id) {
            self.bytes = self.bytes.saturating_sub(response.bytes);
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
        true
    }

    /// Returns an item of an answer; `None` also if several answers have one with that id, which may
    /// belong to other clients.
    fn find_item(&mut self, id: &str) -> Option<&Value> {
        let [owner] = self.owners.get(id)?.as_slice() else {
            return None;
        };
        let owner = owner.clone();
        self.touch(&owner);
        let output = &self.responses.get(&owner)?.output;
        output
            .iter()
            .find(|item| item.get("id").is_some_and(|known| known == id))
    }

    /// Returns all items up to the end of an answer, oldest first; `None` if one of the answers is
    /// not there, or if they exceed the budget.
    fn collect_history(&mut self, id: &str, budget: &mut ExpansionBudget) -> Option<Vec<Value>> {
        let mut newest_first = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            self.touch(&id);
            let response = self.responses.get(&id)?;
            let mut items = response.output.iter().chain(&response.input.items);
            if !items.all(|item| budget.take_item(item)) {
                return None;
            }
            newest_first.push(response.output.clone());
            newest_first.push(response.input.items.clone());
            next = response.input.previous.clone();
        }
        Some(newest_first.into_iter().rev().flatten().collect())
    }
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
    fn full_error(&self, path: String) -> RequestError {
        RequestError {
            path,
            message: format!(
                "the answers that it refers to have more than {} MiB",
                self.limit >> 20
            ),
        }
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

    /// Resolves the references of a body and keeps an answer to it.
    fn ask(store: &ResponseStore, id: &str, mut body: Value) -> Result<Value, String> {
        let resolved = store
            .resolve_references(&mut body, 1 << 20)
            .map_err(|error| error.path)?;
        if let Some(input) = resolved.input {
            store.keep_response(id, input, answer(&format!("msg_{id}")), LIMIT);
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
        let resolved = store.resolve_references(&mut body.clone(), 10 * length);
        assert_eq!(resolved.map(|resolved| resolved.added), Ok(10 * length));
        let resolved = store.resolve_references(&mut body, 10 * length - 1);
        assert_eq!(
            resolved.map_err(|error| error.path),
            Err("input[9]".to_owned())
        );
        let mut body = json!({"input": "two", "previous_response_id": "r1"});
        let resolved = store.resolve_references(&mut body, length);
        assert_eq!(
            resolved.map_err(|error| error.to_string()),
            Err(
                "previous_response_id: the answers that it refers to have more than 0 MiB"
                    .to_owned()
            )
        );
    }

    #[test]
    fn an_id_of_several_items_names_none() {
        let store = ResponseStore::default();
        for id in ["r1", "r2"] {
            store.keep_response(id, StoredInput::default(), answer("msg_1"), LIMIT);
        }
        let body = json!({"input": [{"type": "item_reference", "id": "msg_1"}], "store": false});
        assert_eq!(ask(&store, "r3", body.clone()), Err("input[0]".to_owned()));
        assert!(store.lock_state().forget_oldest());
        assert_eq!(ask(&store, "r3", body), Ok(json!(answer("msg_1"))));
        assert!(store.lock_state().forget_oldest() && store.lock_state().owners.is_empty());
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
            previous: None,
            items: vec![json!("x".repeat(LIMIT))],
        };
        store.keep_response("long", long, Vec::new(), LIMIT);
        assert!(!store.lock_state().responses.contains_key("long"));
    }
}
