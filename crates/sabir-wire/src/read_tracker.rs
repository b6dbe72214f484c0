//! Finds the members of a client's body that a decoder did not read.
//!
//! A decoder asks for the members that it knows. Every other member inside of messages, parts and
//! tools is lost, so it gets a note. Nobody has to list such members: clients keep adding them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use serde_json::Value;

use crate::client_request::LossNote;
use crate::field_disposition::is_empty_value;

/// The member that names the form of an object. If a decoder does not read it, only one form is possible.
const TAG: &str = "type";

/// The most kinds of members that get a note each.
const MAX_NOTES: usize = 64;

/// Records the values of a body that a decoder reads.
#[derive(Debug, Default)]
pub(crate) struct ReadTracker(RefCell<ReadValues>);

/// The values that were read so far, by their addresses in the body.
#[derive(Debug, Default)]
struct ReadValues {
    /// The values that were asked for.
    read: Addresses,
    /// The objects and lists of which single members were asked for.
    opened: Addresses,
    /// The objects that were taken with all their members.
    whole: Addresses,
}

/// Addresses of values.
type Addresses = HashSet<*const Value, BuildHasherDefault<AddressHasher>>;

/// Hashes addresses, which no client chooses, and of which a long history has very many.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // The golden ratio spreads the bits of neighbours over the upper half, which is moved down.
        let spread = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl ReadTracker {
    /// Records that a member of an object, or an item of a list, was asked for. It may be missing.
    pub(crate) fn note_member(&self, container: &Value, member: Option<&Value>) {
        let mut values = self.0.borrow_mut();
        values.opened.insert(container);
        values.read.extend(member.map(std::ptr::from_ref));
    }

    /// Records that an object was taken with all its members.
    pub(crate) fn note_fully_read(&self, value: &Value) {
        self.0.borrow_mut().whole.insert(value);
    }

    /// Returns a note on each kind of member that was not read. Members of the body itself are left out, since they have dispositions.
    pub(crate) fn unread_members(&self, body: &Value) -> Vec<LossNote> {
        let mut places = BTreeMap::new();
        let values = self.0.borrow();
        for (key, value) in body.as_object().into_iter().flatten() {
            values.find_unread(value, key, &mut places);
        }
        let further = places.len().saturating_sub(MAX_NOTES);
        let mut notes = Vec::new();
        for (path, count) in places.into_iter().take(MAX_NOTES) {
            let times = if count == 1 {
                String::new()
            } else {
                format!(", {count} times")
            };
            notes.push(LossNote::new(
                path,
                format!("left out: not known here{times}"),
            ));
        }
        if further > 0 {
            let what = format!("left out: {further} further kinds of members that are not known");
            notes.push(LossNote::new("body", what));
        }
        notes
    }
}

impl ReadValues {
    /// Counts the unread members inside a value that was read, by their paths without indexes.
    fn find_unread(&self, value: &Value, path: &str, places: &mut BTreeMap<String, usize>) {
        let address = std::ptr::from_ref(value);
        // A value that was never opened was used unchanged.
        if self.whole.contains(&address) || !self.opened.contains(&address) {
            return;
        }
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let address = std::ptr::from_ref(member);
                    // Paths are built only where they are needed: most members are read.
                    if self.opened.contains(&address) {
                        self.find_unread(member, &format!("{path}.{key}"), places);
                    } else if !self.read.contains(&address) && key != TAG && !is_empty_value(member)
                    {
                        *places.entry(format!("{path}.{key}")).or_default() += 1;
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

    #[test]
    fn the_number_of_notes_is_limited() {
        let members = (0..MAX_NOTES + 9).map(|number| (number.to_string(), json!(1)));
        let body = json!({"object": Value::Object(members.collect())});
        let tracker = ReadTracker::default();
        JsonField::tracked(&body, &tracker)
            .get("object")
            .get("known");
        let notes = tracker.unread_members(&body);
        assert_eq!(notes.len(), MAX_NOTES + 1);
        let last = notes.last().map(ToString::to_string);
        assert_eq!(
            last.as_deref(),
            Some("body: left out: 9 further kinds of members that are not known")
        );
    }
}
