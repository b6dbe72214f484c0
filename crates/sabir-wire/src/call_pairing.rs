//! Pairs calls and results of a client's history where ids are missing or repeat.
//!
//! The common history names each call once. Clients of Gemini and Ollama send no ids, or ids that
//! repeat from turn to turn. A call keeps its own id if that id is new, else it gets a generated
//! one. A result goes to the first call of the latest turn that it fits and that has no result yet.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use sabir_call::CallId;

/// Gives calls their ids, and results the ids of their calls.
#[derive(Debug, Default)]
pub(crate) struct CallPairing {
    /// All ids that were assigned so far.
    used: HashSet<String>,
    /// The calls of the latest turn that have no result yet, by their number.
    open: BTreeMap<u64, UnansweredCall>,
    /// The numbers of calls by their ids in the client's history. Numbers of answered calls may
    /// remain. The index makes pairing linear in the length of the history.
    by_native: HashMap<String, VecDeque<u64>>,
    /// The numbers of calls by the names of their tools; the same holds.
    by_name: HashMap<String, VecDeque<u64>>,
    /// The number of the next call.
    next: u64,
    /// True if a message of the user followed the last call.
    has_later_user_message: bool,
    /// The number of the next generated id.
    count: u64,
}

/// A call without a result.
#[derive(Debug)]
struct UnansweredCall {
    /// The tool's name, by which a result without an id is matched.
    name: String,
    /// The id in the common history; unique in it.
    id: CallId,
}

impl CallPairing {
    /// Notes that a user message begins: later calls belong to another turn.
    pub(crate) fn begin_user_turn(&mut self) {
        self.has_later_user_message = true;
    }

    /// Returns the id for a call.
    ///
    /// Calls must be reported in the order of the history. The id is unique among all calls of this
    /// history, as the other wires require.
    pub(crate) fn assign_call_id(&mut self, native: &str, name: &str) -> CallId {
        // The user spoke since the last call, so earlier calls stay without a result.
        if std::mem::take(&mut self.has_later_user_message) {
            self.open.clear();
            self.by_native.clear();
            self.by_name.clear();
        }
        // A repeated id belongs to a call of an earlier turn.
        let id = if native.is_empty() || self.used.contains(native) {
            self.fresh_id()
        } else {
            native.to_owned()
        };
        self.used.insert(id.clone());
        let id = CallId::new(id);
        let number = self.next;
        self.next += 1;
        if !native.is_empty() {
            let numbers = self.by_native.entry(native.to_owned()).or_default();
            numbers.push_back(number);
        }
        let numbers = self.by_name.entry(name.to_owned()).or_default();
        numbers.push_back(number);
        let call = UnansweredCall {
            name: name.to_owned(),
            id: id.clone(),
        };
        self.open.insert(number, call);
        id
    }

    /// Returns the id and the tool's name of the call that a result answers. Without a match, the
    /// result keeps its own.
    ///
    /// Each call is matched at most once, so two results with one id go to two calls.
    pub(crate) fn match_result(&mut self, native: &str, name: &str) -> (CallId, String) {
        let open = &mut self.open;
        // The id is most reliable. Gemini may omit ids; then the name decides, and calls of one
        // tool are answered in order.
        let by_id = remove_first(open, self.by_native.get_mut(native));
        let found = by_id.or_else(|| remove_first(open, self.by_name.get_mut(name)));
        // A result without an id and a name can only be matched by its position.
        let found = found.or_else(|| {
            let has_nothing = native.is_empty() && name.is_empty();
            let first = has_nothing.then(|| open.pop_first()).flatten();
            first.map(|(_, call)| call)
        });
        match found {
            Some(call) => (call.id, call.name),
            None => (CallId::new(native), name.to_owned()),
        }
    }

    /// Returns `call_0`, `call_1` and so on: the same history gets the same ids in every request,
    /// which keeps the provider's prompt cache valid.
    fn fresh_id(&mut self) -> String {
        loop {
            // A client's own id may look like a generated one, so used ones are skipped.
            let id = format!("call_{}", self.count);
            self.count += 1;
            if !self.used.contains(&id) {
                return id;
            }
        }
    }
}

/// Removes the first of these calls that has no result yet.
fn remove_first(
    open: &mut BTreeMap<u64, UnansweredCall>,
    numbers: Option<&mut VecDeque<u64>>,
) -> Option<UnansweredCall> {
    let numbers = numbers?;
    while let Some(number) = numbers.pop_front() {
        if let Some(call) = open.remove(&number) {
            return Some(call);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the ids of a history, and the name of each result. Calls are `native=name`, results `native>name`, messages of the user `|`.
    fn check(history: &str, expected: &str) {
        let mut pairing = CallPairing::default();
        let mut found = Vec::new();
        for word in history.split(' ') {
            if let Some((native, name)) = word.split_once('=') {
                found.push(pairing.assign_call_id(native, name).to_string());
            } else if let Some((native, name)) = word.split_once('>') {
                let (id, name) = pairing.match_result(native, name);
                found.push(format!("{id}:{name}"));
            } else {
                pairing.begin_user_turn();
            }
        }
        assert_eq!(found.join(" "), expected, "{history}");
    }

    #[test]
    fn results_find_their_calls() {
        // By id, in any order; the name is the call's.
        check("a=f b=g | b>g a>", "a b b:g a:f");
        // Ids that repeat from turn to turn.
        check("0=f | 0>f 0=g | 0>g", "0 0:f call_0 call_0:g");
        // No ids: by name, then in order.
        check(
            "=f =g =f | >f >g >f",
            "call_0 call_1 call_2 call_0:f call_1:g call_2:f",
        );
        check("=f =g | > >", "call_0 call_1 call_0:f call_1:g");
        // One id twice in one turn, and an id that looks like one of ours.
        check("x=f x=f | x>f x>f", "x call_0 x:f call_0:f");
        check(
            "call_0=f =f | >f call_0>f",
            "call_0 call_1 call_0:f call_1:f",
        );
        // A call without a result takes none of a later turn.
        check("=f | =f | >f", "call_0 call_1 call_1:f");
        // A result without any call.
        check("| q>f", "q:f");
    }
}
