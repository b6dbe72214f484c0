//! Finds unknown keys in a configuration file, and the lines of known ones.
//!
//! The keys come in groups, one struct each. serde's `flatten` cannot be combined with `deny_unknown_fields`, so the file is
//! deserialized once for each group, and its keys are then compared with the field names of all groups.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the names of the fields of a group, as serde sees them.
pub(super) fn field_names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    // Derived implementations hand their field names to the deserializer before they read anything.
    let mut fields: &'static [&'static str] = &[];
    _ = T::deserialize(FieldNameProbe(&mut fields));
    fields
}

/// Returns the first key that is not in `known`, with its byte offset in the text.
pub(super) fn first_unknown_key(text: &str, known: &[&str]) -> Option<(usize, String)> {
    let keys: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(text).ok()?;
    let strange = keys
        .into_keys()
        .filter(|key| !known.contains(&key.get_ref().as_str()));
    strange
        .map(|key| (key.span().start, key.into_inner()))
        .min()
}

/// Formats the file and the line of a key, for a message. `keys` is the path to the key; an item of an array is named by its
/// index, counted from 0. Where the path leads to nothing, the line is that of the deepest key that exists.
pub(crate) fn locate_key((path, text): (&Path, &str), keys: &[&str]) -> String {
    let mut at = 0;
    if let Ok(table) = DeTable::parse(text) {
        let root = DeValue::Table(table.into_inner());
        let mut value = &root;
        for key in keys {
            let found = match value {
                DeValue::Table(table) => {
                    let entry = table.iter().find(|(known, _)| *known.get_ref() == *key);
                    entry.map(|(known, value)| (known.span().start, value.get_ref()))
                }
                DeValue::Array(items) => {
                    let item = key.parse().ok().and_then(|at: usize| items.get(at));
                    item.map(|item| (item.span().start, item.get_ref()))
                }
                _ => None,
            };
            let Some(found) = found else { break };
            (at, value) = found;
        }
    }
    let line = text
        .get(..at)
        .map_or(1, |before| before.matches('\n').count() + 1);
    format!("{}, line {line}", path.display())
}

/// A deserializer that holds no data: it only notes the field names of the struct that is requested from it.
struct FieldNameProbe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNameProbe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("only names are wanted"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("only names are wanted"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}
