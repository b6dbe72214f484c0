//! Finds the members of a client's body that a decoder did not read.
//!
//! A decoder asks for the members that it knows. Every other member inside of messages, parts and
//! tools is lost, so it gets a note. Nobody has to list such members: clients keep adding them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::client_request::LossNote;
use crate::field_disposition::is_empty_value;

/// The member that says which form an object has. Where a decoder does not ask for it, only one form is
/// possible.
const TAG: &str = "type";

/// Records the values of a body that a decoder reads.
#[derive(Debug, Default)]
pub(crate) struct ReadTracker(RefCell<ReadValues>);

/// The values that were read so far, by their addresses in the body.
#[derive(Debug, Default)]
struct ReadValues {
    /// The values that were asked for.
    read: HashSet<*const Value>,
    /// The objects and lists of which single members were asked for.
    opened: HashSet<*const Value>,
    /// The objects that were taken with all their members.
    whole: HashSet<*const Value>,
}

impl ReadTracker {
    /// Records that a member of an object, or an item of a list, was asked for. It may be missing.
    pub(crate) fn note_member(&self, container: &Value, member: Option<&Value>) {
        let mut values = self.0.borrow_mut();
        values.opened.insert(container);
        values.read.extend(member.map(std::ptr::from_ref));
    }

    /// Records that an object was taken with all its members.
    pub(crate) fn note_whole(&self, value: &Value) {
        self.0.borrow_mut().whole.insert(value);
    }

    /// Returns a note on each kind of member that was not read. Members of the body itself have
    /// dispositions of their own, and are left to them.
    pub(crate) fn unread_members(&self, body: &Value) -> Vec<LossNote> {
        let mut places = BTreeMap::new();
        let values = self.0.borrow();
        for (key, value) in body.as_object().into_iter().flatten() {
            values.find_unread(value, key, &mut places);
        }
        let note = |(path, count): (String, usize)| {
            let times = if count == 1 {
                String::new()
            } else {
                format!(", {count} times")
            };
            LossNote::new(path, format!("left out: not known here{times}"))
        };
        places.into_iter().map(note).collect()
    }
}

impl ReadValues {
    /// Counts the unread members inside a value that was read, by their paths without indexes.
    fn find_unread(&self, value: &Value, path: &str, places: &mut BTreeMap<String, usize>) {
        let address = std::ptr::from_ref(value);
        // A value that was never opened was taken as it is.
        if self.whole.contains(&address) || !self.opened.contains(&address) {
            return;
        }
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let path = format!("{path}.{key}");
                    if self.read.contains(&std::ptr::from_ref(member)) {
                        self.find_unread(member, &path, places);
                    } else if key != TAG && !is_empty_value(member) {
                        *places.entry(path).or_default() += 1;
                    }
                }
            }
            Value::Array(items) => {
                let path = format!("{path}[]");
                for item in items {
                    self.find_unread(item, &path, places);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::JsonField;

    #[test]
    fn only_members_that_nobody_read_are_noted() {
        let body = json!({
            "top": 1,
            "list": [{"type": "t", "a": 1, "b": 2, "c": null}, {"a": 1, "b": {"x": 1}}],
            "schema": {"any": {"thing": 1}},
            "state": {"type": "t", "data": 1},
            "object": {"known": {"deep": 1, "lost": true}},
        });
        let tracker = ReadTracker::default();
        let root = JsonField::tracked(&body, &tracker);
        for item in root.get("list").list_items().unwrap() {
            item.get("a");
        }
        root.get("schema").object_or_empty().unwrap();
        root.get("state").get("type");
        root.get("state").whole_value();
        root.get("object").get("known").get("deep");
        let notes = tracker.unread_members(&body);
        let paths: Vec<_> = notes.iter().map(|note| note.path.as_str()).collect();
        assert_eq!(paths, ["list[].b", "object.known.lost"]);
        assert_eq!(notes[0].message, "left out: not known here, 2 times");
    }
}
