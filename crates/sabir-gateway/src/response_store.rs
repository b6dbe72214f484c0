//! Keeps answers of the Responses API, to which later requests refer by id.
//!
//! OpenAI stores answers by default, and clients count on it: the AI SDK's `openai(model)` sends
//! `item_reference` in place of the items of earlier answers, others `previous_response_id` in place
//! of the whole history. The store puts the items in the places of the references, so that models
//! behind any wire get the history. It holds answers in memory up to a size; those that were used
//! least recently are forgotten first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabir_wire::RequestError;
use serde_json::{Value, json};

/// The store of a gateway's answers.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<StoreState>);

/// The content of a store.
#[derive(Debug, Default)]
struct StoreState {
    /// The answers by id.
    responses: HashMap<String, StoredResponse>,
    /// The id of the answer that each item belongs to.
    owners: HashMap<String, String>,
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
    /// The size in bytes.
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

impl ResponseStore {
    /// Puts the stored items in the places of the references of a body, and returns the input to
    /// keep with the answer; `None` if the client wants nothing stored.
    ///
    /// # Errors
    /// A reference to something that is not stored (any more).
    pub(crate) fn resolve_references(
        &self,
        body: &mut Value,
    ) -> Result<Option<StoredInput>, RequestError> {
        let keeps = body.get("store") != Some(&Value::Bool(false));
        let Some(members) = body.as_object_mut() else {
            return Ok(None);
        };
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
            let known = state.find_item(id).ok_or_else(|| RequestError {
                path: format!("input[{position}]"),
                message: format!(
                    "the item `{}` is not stored here: send the item itself",
                    shorten(id)
                ),
            })?;
            *item = known;
            refers = true;
        }
        if refers {
            let mut all = match &previous {
                Some(id) => state.history_of(id).ok_or_else(|| RequestError {
                    path: "previous_response_id".to_owned(),
                    message: format!(
                        "the response `{}` is not stored here: send the whole history as `input`",
                        shorten(id)
                    ),
                })?,
                None => Vec::new(),
            };
            all.extend(items.iter().cloned());
            members.remove("previous_response_id");
            members.insert("input".to_owned(), Value::Array(all));
        }
        Ok(keeps.then_some(StoredInput { previous, items }))
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
            .map(|item| item.to_string().len())
            .sum::<usize>()
            + id.len();
        if bytes > limit {
            return;
        }
        let mut state = self.lock_state();
        for item in &output {
            if let Some(item) = item.get("id").and_then(Value::as_str) {
                state.owners.insert(item.to_owned(), id.to_owned());
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
                if let Some(item) = item.get("id").and_then(Value::as_str) {
                    self.owners.remove(item);
                }
            }
        }
        true
    }

    /// Returns an item of an answer.
    fn find_item(&mut self, id: &str) -> Option<Value> {
        let owner = self.owners.get(id)?.clone();
        self.touch(&owner);
        let output = &self.responses.get(&owner)?.output;
        output
            .iter()
            .find(|item| item.get("id").is_some_and(|known| known == id))
            .cloned()
    }

    /// Returns all items up to the end of an answer, oldest first; `None` if one of the answers is
    /// not there.
    fn history_of(&mut self, id: &str) -> Option<Vec<Value>> {
        let mut newest_first = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            self.touch(&id);
            let response = self.responses.get(&id)?;
            newest_first.push(response.output.clone());
            newest_first.push(response.input.items.clone());
            next = response.input.previous.clone();
        }
        Some(newest_first.into_iter().rev().flatten().collect())
    }
}

/// Returns the beginning of an id from a client, for a message.
fn shorten(id: &str) -> String {
    id.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str) -> Vec<Value> {
        vec![json!({"type": "message", "id": id, "role": "assistant", "content": id})]
    }

    /// Resolves the references of a body and keeps an answer to it.
    fn ask(store: &ResponseStore, id: &str, mut body: Value) -> Result<Value, String> {
        let input = store
            .resolve_references(&mut body)
            .map_err(|error| error.path)?;
        if let Some(input) = input {
            store.keep_response(id, input, answer(&format!("msg_{id}")), 400);
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
    fn answers_that_were_not_used_are_forgotten_first() {
        let store = ResponseStore::default();
        for id in ["r1", "r2"] {
            ask(&store, id, json!({"input": id})).unwrap();
        }
        // More than the limit of 400 bytes; the first one was just used.
        for id in ["r3", "r4", "r5"] {
            let body = json!({"input": [{"type": "item_reference", "id": "msg_r1"}]});
            ask(&store, id, body).unwrap();
        }
        let state = store.lock_state();
        assert!(state.bytes <= 400, "{}", state.bytes);
        assert!(state.responses.contains_key("r1") && !state.responses.contains_key("r2"));
        assert_eq!(
            (state.owners.len(), state.by_use.len()),
            (state.responses.len(), state.responses.len())
        );
        drop(state);
        let long = StoredInput {
            previous: None,
            items: vec![json!("x".repeat(500))],
        };
        store.keep_response("long", long, Vec::new(), 400);
        assert!(!store.lock_state().responses.contains_key("long"));
    }
}
