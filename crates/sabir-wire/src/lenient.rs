//! Field types that read what they can use and take anything else for absent.
//!
//! Providers do not agree on types, and a strict decoder fails on one unexpected `null`. With these
//! types, every event that is JSON can be read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string. Numbers are taken as written; everything else is absent.
#[derive(Debug, Default, Clone)]
pub(crate) struct LenientText<'a>(pub(crate) Option<Cow<'a, str>>);

impl LenientText<'_> {
    /// Returns the string, or an empty one.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A whole number, also as a string of digits.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LenientCount(pub(crate) Option<u64>);

/// A list. One object counts as a list of one; anything else is empty.
#[derive(Debug, Clone)]
pub(crate) struct LenientList<T>(pub(crate) Vec<T>);

impl<T> Default for LenientList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An object, or nothing.
#[derive(Debug, Clone)]
pub(crate) struct LenientObject<T>(pub(crate) Option<T>);

impl<T> Default for LenientObject<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// Content as a string or as a list of parts.
#[derive(Debug, Default, Clone)]
pub(crate) enum LenientContent<'a> {
    /// Anything else.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// Parts.
    Parts(Vec<LenientPart<'a>>),
}

/// One part of [`LenientContent`].
#[derive(Debug, Default, Clone, serde::Deserialize)]
pub(crate) struct LenientPart<'a> {
    /// The `type`: `text`, or `thinking` and `reasoning` for thoughts.
    #[serde(rename = "type", borrow, default)]
    pub(crate) kind: LenientText<'a>,
    /// The text of a part, whatever its type.
    #[serde(borrow, default)]
    pub(crate) text: LenientText<'a>,
    /// Mistral's thoughts, also as a list of text parts.
    #[serde(borrow, default)]
    pub(crate) thinking: LenientContent<'a>,
}

impl LenientContent<'_> {
    /// Calls `take` with every text in order, and with true if it is reasoning.
    pub(crate) fn for_each_text(&self, thought: bool, take: &mut dyn FnMut(bool, &str)) {
        match self {
            Self::Absent => {}
            Self::Text(text) => take(thought, text),
            Self::Parts(parts) => {
                for part in parts {
                    take(
                        thought || part.kind.as_str() == "reasoning",
                        part.text.as_str(),
                    );
                    part.thinking.for_each_text(true, take);
                }
            }
        }
    }
}

/// Implements visitor methods that the type has no use for: they return the default.
macro_rules! absent {
    ($($method:ident: $kind:ty),*) => {
        $(fn $method<E: serde::de::Error>(self, _: $kind) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
    };
}

/// Implements the visitor method for `null`, which counts as absent.
macro_rules! absent_unit {
    () => {
        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
}

/// Implements the visitor method for a list, which is read to its end and counts as absent. Serde
/// fails if anything of it is left over.
macro_rules! absent_seq {
    () => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

/// Implements the visitor method for an object, in the same way.
macro_rules! absent_map {
    () => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

/// Implements the description of the expected value. It is never shown, because nothing is refused.
macro_rules! expecting {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }
    };
}

/// Reads a [`LenientText`].
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = LenientText<'de>;

    expecting!();
    absent!(visit_bool: bool);
    absent_unit!();
    absent_seq!();
    absent_map!();

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(LenientText(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LenientText(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(LenientText(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(LenientText(Some(Cow::Owned(number.to_string()))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(LenientText(Some(Cow::Owned(number.to_string()))))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LenientText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

/// The limit 2^53: every whole number below it is exactly representable as a float.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// Reads a [`LenientCount`].
struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = LenientCount;

    expecting!();
    absent!(visit_bool: bool);
    absent_unit!();
    absent_seq!();
    absent_map!();

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LenientCount(text.parse().ok()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(LenientCount(Some(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(LenientCount(u64::try_from(number).ok()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        // Some gateways write counts as 12.0. A number that a cast would change counts as absent,
        // since no count is better than a wrong one.
        let whole = (0.0..MAX_EXACT_FLOAT).contains(&number) && number.fract() == 0.0;
        Ok(LenientCount(whole.then_some(number as u64)))
    }
}

impl<'de> Deserialize<'de> for LenientCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

/// Reads a [`LenientList`]. Elements that are not objects are skipped.
struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = LenientList<T>;

    expecting!();
    absent!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);
    absent_unit!();

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(LenientObject(item)) = seq.next_element::<LenientObject<T>>()? {
            items.extend(item);
        }
        Ok(LenientList(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        // Some servers send one object where the API has a list.
        Ok(LenientList(vec![T::deserialize(
            MapAccessDeserializer::new(map),
        )?]))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

/// Reads a [`LenientObject`].
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = LenientObject<T>;

    expecting!();
    absent!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);
    absent_unit!();
    absent_seq!();

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Ok(LenientObject(Some(T::deserialize(
            MapAccessDeserializer::new(map),
        )?)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

/// Reads a [`LenientContent`].
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = LenientContent<'de>;

    expecting!();
    absent!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);
    absent_unit!();

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(LenientContent::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LenientContent::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(LenientObject(part)) =
            seq.next_element::<LenientObject<LenientPart<'de>>>()?
        {
            parts.extend(part);
        }
        Ok(LenientContent::Parts(parts))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        // A single part, which some servers send without its list.
        Ok(LenientContent::Parts(vec![LenientPart::deserialize(
            MapAccessDeserializer::new(map),
        )?]))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LenientContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Sample<'a> {
        #[serde(borrow, default)]
        text: LenientText<'a>,
        #[serde(default)]
        count: LenientCount,
        #[serde(borrow, default)]
        list: LenientList<LenientPart<'a>>,
        #[serde(borrow, default)]
        one: LenientObject<LenientPart<'a>>,
        #[serde(borrow, default)]
        content: LenientContent<'a>,
    }

    #[test]
    fn no_type_is_fatal() {
        for value in [
            "null",
            "true",
            "1",
            "-1",
            "1.5",
            "\"x\"",
            "\"\\n\"",
            "[]",
            "[1,[2],{}]",
            "{}",
            "{\"type\":[1]}",
        ] {
            let json = format!(
                r#"{{"text":{value},"count":{value},"list":{value},"one":{value},"content":{value},"else":{value}}}"#
            );
            serde_json::from_str::<Sample<'_>>(&json)
                .unwrap_or_else(|error| panic!("{value}: {error}"));
        }
    }

    #[test]
    fn a_count_is_exact_or_absent() {
        for (json, expected) in [
            ("12.0", Some(12)),
            ("\"7\"", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e300", None),
            ("1.5", None),
            ("-1", None),
        ] {
            assert_eq!(
                serde_json::from_str::<LenientCount>(json).unwrap().0,
                expected,
                "{json}"
            );
        }
    }

    #[test]
    fn plain_text_is_borrowed() {
        let sample: Sample<'_> = serde_json::from_str(
            r#"{"text":"a","count":"7","list":{"text":"b"},"one":{"text":"c"},"content":"d"}"#,
        )
        .unwrap();
        assert!(matches!(sample.text.0, Some(Cow::Borrowed("a"))));
        assert_eq!(sample.count.0, Some(7));
        assert!(matches!(sample.list.0.as_slice(), [piece] if piece.text.as_str() == "b"));
        assert!(sample.one.0.is_some_and(|piece| piece.text.as_str() == "c"));
        assert!(matches!(
            sample.content,
            LenientContent::Text(Cow::Borrowed("d"))
        ));
    }
}
