//! Finds the keys that the deserializer of the configuration knows, and the kind of value that each takes.
//!
//! The types are the source, not a list: `trace_shape` runs a type's `Deserialize` against a
//! deserializer without data, which records the request and fails. A struct names its fields, and
//! each field is then traced in the same way. So a new field cannot be missing here.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::Error;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

/// The keys below a place in the configuration, or the kind of value that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyShape {
    /// A table with known keys.
    Table(BTreeMap<&'static str, KeyShape>),
    /// A table whose keys the user chooses, such as `[providers.NAME]`.
    Named(Box<KeyShape>),
    /// An array of tables, such as `[[models]]`.
    Tables(Box<KeyShape>),
    /// A value.
    Value(ValueKind),
}

/// The kind of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueKind {
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// `true`, `false` or certain strings.
    Switch,
    /// A whole number.
    Integer,
    /// A number, with or without a fraction.
    Number,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// An array of values of that kind.
    List(Box<ValueKind>),
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Boolean => f.write_str("true or false"),
            Self::Switch => f.write_str("true, false or text"),
            Self::Integer => f.write_str("whole number"),
            Self::Number => f.write_str("number"),
            Self::Choice(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                match words.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        write!(f, "{} or {last}", rest.join(", "))
                    }
                    _ => f.write_str(&words.join("")),
                }
            }
            Self::List(kind) => write!(f, "list of {kind}"),
        }
    }
}

impl ValueKind {
    /// Returns the kind for a sentence: `a whole number`.
    pub fn with_article(&self) -> String {
        match self {
            Self::Integer | Self::Number | Self::List(_) => format!("a {self}"),
            Self::Text | Self::Boolean | Self::Switch | Self::Choice(_) => self.to_string(),
        }
    }
}

impl KeyShape {
    /// Returns the shape at a path; names that the user chooses and indexes may be anything.
    pub fn at(&self, path: &[String]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        let below = match self {
            Self::Table(keys) => keys.get(first.as_str())?,
            Self::Named(below) => below,
            Self::Tables(below) if first.parse::<usize>().is_ok() || first == ITEM => below,
            Self::Tables(_) | Self::Value(_) => return None,
        };
        below.at(rest)
    }

    /// Returns the keys of a table; empty for anything else.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let keys = match self {
            Self::Table(keys) => Some(keys.keys().copied()),
            _ => None,
        };
        keys.into_iter().flatten()
    }

    /// Returns the paths of all values, with `NAME` for a name that the user chooses and `[]` for an item of an array of tables.
    pub fn value_paths(&self) -> Vec<(Vec<String>, ValueKind)> {
        let below = |key: &str, shape: &Self| {
            let paths = shape.value_paths().into_iter();
            let key = key.to_owned();
            paths
                .map(move |(path, kind)| ([vec![key.clone()], path].concat(), kind))
                .collect::<Vec<_>>()
        };
        match self {
            Self::Table(keys) => keys
                .iter()
                .flat_map(|(key, shape)| below(key, shape))
                .collect(),
            Self::Named(shape) => below(NAME, shape),
            Self::Tables(shape) => below(ITEM, shape),
            Self::Value(kind) => vec![(Vec::new(), kind.clone())],
        }
    }

    /// Adds the keys of another table.
    pub(super) fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Table(mut keys), Self::Table(more)) => {
                keys.extend(more);
                Self::Table(keys)
            }
            (shape, _) => shape,
        }
    }
}

/// The placeholder for a name that the user chooses.
pub const NAME: &str = "NAME";
/// The placeholder for an item of an array of tables.
pub const ITEM: &str = "[]";

/// Returns the shape of a type, as its `Deserialize` requests it.
pub(super) fn trace_shape<'de, T: Deserialize<'de>>() -> KeyShape {
    trace_at::<T>(&[])
}

/// The request of a type at a place.
#[derive(Debug, Clone, Copy)]
enum Request {
    Struct(&'static [&'static str]),
    Map,
    Sequence,
    Value(PlainKind),
}

/// The kind of a value without parts.
#[derive(Debug, Clone, Copy)]
enum PlainKind {
    Text,
    Boolean,
    Switch,
    Integer,
    Number,
    Choice(&'static [&'static str]),
}

impl From<PlainKind> for ValueKind {
    fn from(kind: PlainKind) -> Self {
        match kind {
            PlainKind::Text => Self::Text,
            PlainKind::Boolean => Self::Boolean,
            PlainKind::Switch => Self::Switch,
            PlainKind::Integer => Self::Integer,
            PlainKind::Number => Self::Number,
            PlainKind::Choice(words) => Self::Choice(words),
        }
    }
}

/// Returns the shape at a path below a type. Each request is made by a new run from the top: a failed one cannot be continued.
fn trace_at<'de, T: Deserialize<'de>>(path: &[&'static str]) -> KeyShape {
    let below = |key| trace_at::<T>(&[path, &[key]].concat());
    let mut request = None;
    // Always an error: the probe has no data.
    _ = T::deserialize(ShapeProbe {
        path,
        request: &mut request,
    });
    match request {
        Some(Request::Struct(fields)) => {
            KeyShape::Table(fields.iter().map(|field| (*field, below(field))).collect())
        }
        Some(Request::Map) => KeyShape::Named(Box::new(below(NAME))),
        Some(Request::Sequence) => match below(ITEM) {
            KeyShape::Value(kind) => KeyShape::Value(ValueKind::List(Box::new(kind))),
            tables => KeyShape::Tables(Box::new(tables)),
        },
        Some(Request::Value(kind)) => KeyShape::Value(kind.into()),
        None => KeyShape::Value(ValueKind::Text),
    }
}

/// A deserializer without data that follows a path and records the requested type at its end.
struct ShapeProbe<'a> {
    path: &'a [&'static str],
    request: &'a mut Option<Request>,
}

impl ShapeProbe<'_> {
    fn note(self, request: Request) -> Error {
        // Only what is at the end of the path counts.
        if self.path.is_empty() {
            *self.request = Some(request);
        }
        Error::custom("there is no data")
    }
}

/// Requests of values without parts, by the name of the method.
macro_rules! plain_requests {
    ($($method:ident => $kind:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(self.note(Request::Value(PlainKind::$kind)))
        })*
    };
}

impl<'de> Deserializer<'de> for ShapeProbe<'_> {
    type Error = Error;

    plain_requests! {
        deserialize_bool => Boolean,
        deserialize_i8 => Integer, deserialize_i16 => Integer, deserialize_i32 => Integer, deserialize_i64 => Integer,
        deserialize_u8 => Integer, deserialize_u16 => Integer, deserialize_u32 => Integer, deserialize_u64 => Integer,
        deserialize_f32 => Number, deserialize_f64 => Number,
        deserialize_char => Text, deserialize_str => Text, deserialize_string => Text,
        deserialize_bytes => Text, deserialize_byte_buf => Text,
        deserialize_unit => Text, deserialize_identifier => Text, deserialize_ignored_any => Text,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let kind = match visitor.visit_bool::<Error>(true) {
            Ok(_) => PlainKind::Switch,
            // An amount of money takes any number, and text in the files that Sabir writes itself.
            Err(_) => PlainKind::Number,
        };
        Err(self.note(Request::Value(kind)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: V,
    ) -> Result<V::Value, Error> {
        Err(self.note(Request::Value(PlainKind::Text)))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.path.split_first() {
            Some((_, rest)) => visitor.visit_seq(SingleEntry {
                key: ITEM,
                rest,
                request: self.request,
            }),
            None => Err(self.note(Request::Sequence)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.path.split_first() {
            Some((key, rest)) => visitor.visit_map(SingleEntry {
                key,
                rest,
                request: self.request,
            }),
            None => Err(self.note(Request::Map)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.path.is_empty() {
            return Err(self.note(Request::Struct(fields)));
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(self.note(Request::Value(PlainKind::Choice(variants))))
    }
}

/// The only entry of a map, or the only item of a sequence: the next step of the path.
struct SingleEntry<'a> {
    key: &'static str,
    rest: &'a [&'static str],
    request: &'a mut Option<Request>,
}

impl SingleEntry<'_> {
    fn probe(&mut self) -> ShapeProbe<'_> {
        ShapeProbe {
            path: self.rest,
            request: self.request,
        }
    }
}

impl<'de> MapAccess<'de> for SingleEntry<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        seed.deserialize(self.key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.probe())
    }
}

impl<'de> SeqAccess<'de> for SingleEntry<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        seed.deserialize(self.probe()).map(Some)
    }
}
