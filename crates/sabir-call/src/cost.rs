//! Computes the cost of tokens.
//!
//! All amounts are integers of billionths of a US dollar, so adding many small costs loses nothing.
//! An unknown price is not zero: a sum with an unknown part is marked as a lower bound.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::Usage;

/// The assumed number of bytes of text per token where a provider reports no counts.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Billionths in one dollar.
const NANOS: u64 = 1_000_000_000;

/// An amount of US dollars: never negative, exact to a billionth, at most about 18 billion.
///
/// As text: `5`, `0.25` or `$1.50`, with at most nine decimals. In JSON or TOML: a number of
/// dollars, or such a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dollars(u64);

/// The error for a text that is not an amount of dollars.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of dollars: write 5 or 0.25, with at most nine decimals")]
pub struct DollarsError(pub String);

/// A provider's prices in US dollars per million tokens. `None` means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenPrices {
    /// The price of input that is neither read from a cache nor written to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Dollars>,
    /// The price of output, including reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Dollars>,
    /// The price of input read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Dollars>,
    /// The price of input written to the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Dollars>,
    /// The maximum number of input tokens per request for these prices; longer requests cost more.
    /// `None` means any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
}

/// A cost, as far as it is known.
///
/// In JSON: `{"nano_usd": 4200000}`, with `"at_least": true` if a part is unknown and `"estimated":
/// true` if token counts were estimated; `null` if nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Option<Known>", from = "Option<Known>")]
pub struct Cost {
    /// The known part.
    pub known: Dollars,
    /// True if another part is unknown.
    pub at_least: bool,
    /// True if the known part is based on estimated token counts.
    pub estimated: bool,
}

/// The JSON form of a cost with a known part.
/// `Option<Known>` rather than flags for everything: an unknown cost is `null`, which no program
/// can mistake for zero.
#[derive(Serialize, Deserialize)]
struct Known {
    nano_usd: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    estimated: bool,
}

impl Dollars {
    /// Creates an amount from billionths of a dollar.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in billionths of a dollar.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Subtracts `other`; returns zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl TokenPrices {
    /// Zero prices, for a server on the user's own machine.
    pub const FREE: Self = {
        let free = Some(Dollars(0));
        Self {
            input: free,
            output: free,
            cache_read: free,
            cache_write: free,
            up_to: None,
        }
    };

    /// Returns true if every response without cached tokens can be priced.
    pub fn is_known(&self) -> bool {
        self.input.is_some() && self.output.is_some()
    }

    /// Returns the cost of these tokens, rounded up to a billionth of a dollar.
    pub fn cost_of(&self, usage: Usage) -> Cost {
        // Without any price the cost is unknown, which is not zero.
        if *self == Self::default() {
            return Cost::UNKNOWN;
        }
        let read = usage.cache_read.unwrap_or(0);
        let written = usage.cache_write.unwrap_or(0);
        // `Usage::input` includes the cached tokens, which have their own prices.
        let fresh = usage
            .input
            .map(|input| input.saturating_sub(read).saturating_sub(written));
        let parts = [
            (fresh, self.input),
            (usage.output, self.output),
            (Some(read), self.cache_read),
            (Some(written), self.cache_write),
        ];
        // Longer requests cost more, so these prices still give a lower bound.
        let longer = self
            .up_to
            .zip(usage.input)
            .is_some_and(|(up_to, input)| input > up_to);
        let mut cost = Cost {
            at_least: longer,
            ..Cost::default()
        };
        // Prices are per million tokens, so the sum counts in millionths of a billionth; u128
        // cannot overflow here.
        let mut millionths = 0_u128;
        for (tokens, price) in parts {
            match (tokens, price) {
                (Some(0), _) => {}
                (Some(tokens), Some(price)) => {
                    millionths += u128::from(tokens) * u128::from(price.0)
                }
                _ => cost.at_least = true,
            }
        }
        cost.known = Dollars(u64::try_from(millionths.div_ceil(1_000_000)).unwrap_or(u64::MAX));
        cost
    }
}

impl Cost {
    /// A cost of which nothing is known.
    pub const UNKNOWN: Self = Self {
        known: Dollars(0),
        at_least: true,
        estimated: false,
    };

    /// Returns true if nothing at all is known.
    pub fn is_unknown(&self) -> bool {
        self.at_least && self.known == Dollars(0)
    }

    /// Returns the same cost, marked as based on estimated tokens.
    #[must_use]
    pub fn as_estimated(self) -> Self {
        Self {
            estimated: !self.is_unknown(),
            ..self
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.known = Dollars(self.known.0.saturating_add(other.known.0));
        self.at_least |= other.at_least;
        self.estimated |= other.estimated;
    }
}

impl From<Cost> for Option<Known> {
    fn from(cost: Cost) -> Self {
        let Cost {
            known,
            at_least,
            estimated,
        } = cost;
        (!cost.is_unknown()).then_some(Known {
            nano_usd: known.0,
            at_least,
            estimated,
        })
    }
}

impl From<Option<Known>> for Cost {
    fn from(known: Option<Known>) -> Self {
        known.map_or(
            Self::UNKNOWN,
            |Known {
                 nano_usd,
                 at_least,
                 estimated,
             }| Self {
                known: Dollars(nano_usd),
                at_least,
                estimated,
            },
        )
    }
}

/// Writes `unknown`, `$0.0042`, `about $0.0042` or `at least $0.0042`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_unknown(), self.at_least, self.estimated) {
            (true, ..) => f.write_str("unknown"),
            (_, true, true) => write!(f, "at least about {}", self.known),
            (_, true, false) => write!(f, "at least {}", self.known),
            (_, false, true) => write!(f, "about {}", self.known),
            _ => self.known.fmt(f),
        }
    }
}

/// Writes four decimals; smaller amounts are written as `less than $0.0001`.
impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: u64 = NANOS / 10_000;
        if self.0 == 0 {
            return f.write_str("$0");
        }
        if self.0 < SHOWN {
            return f.write_str("less than $0.0001");
        }
        // Rounded half up, in integers.
        let rounded = self.0.saturating_add(SHOWN / 2) / SHOWN;
        write!(f, "${}.{:04}", rounded / 10_000, rounded % 10_000)
    }
}

impl FromStr for Dollars {
    type Err = DollarsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let amount = || -> Option<u64> {
            let digits = text.trim();
            let digits = digits.strip_prefix('$').unwrap_or(digits);
            let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
            let plain =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if !plain(whole) || !plain(part) || part.len() > 9 {
                return None;
            }
            // Filled up to nine digits, the decimals are a whole number of billionths.
            let part: u64 = format!("{part:0<9}").parse().ok()?;
            whole
                .parse::<u64>()
                .ok()?
                .checked_mul(NANOS)?
                .checked_add(part)
        };
        amount()
            .map(Self)
            .ok_or_else(|| DollarsError(text.to_owned()))
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(NANOS) {
            return serializer.serialize_u64(self.0 / NANOS);
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a price has few digits; sums are never serialized this way"
        )]
        serializer.serialize_f64(self.0 as f64 / NANOS as f64)
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DollarsVisitor;
        impl Visitor<'_> for DollarsVisitor {
            type Value = Dollars;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount of dollars, such as 0.25")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Dollars, E> {
                text.parse().map_err(E::custom)
            }

            // The shortest decimal text of an `f64` is the number as the user wrote it, so nothing
            // is rounded.
            fn visit_f64<E: Error>(self, amount: f64) -> Result<Dollars, E> {
                self.visit_str(&amount.to_string())
            }

            fn visit_u64<E: Error>(self, amount: u64) -> Result<Dollars, E> {
                self.visit_str(&amount.to_string())
            }

            // TOML has signed integers only; a negative amount then fails to parse.
            fn visit_i64<E: Error>(self, amount: i64) -> Result<Dollars, E> {
                self.visit_str(&amount.to_string())
            }
        }
        deserializer.deserialize_any(DollarsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(text: &str) -> Dollars {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_are_exact() {
        for (text, nanos) in [
            ("5", 5 * NANOS),
            ("$0.25", 250_000_000),
            (" 0.0375 ", 37_500_000),
            ("0.000000001", 1),
            ("18446744073.709551615", u64::MAX),
        ] {
            assert_eq!(dollars(text).as_nanos(), nanos, "{text}");
        }
        for text in [
            "",
            "-1",
            "1.",
            ".5",
            "1e3",
            "0.0000000001",
            "18446744074",
            "NaN",
            "1 000",
            "$",
        ] {
            assert!(text.parse::<Dollars>().is_err(), "{text}");
        }
        for (json, nanos) in [
            ("0.1", 100_000_000),
            ("3", 3 * NANOS),
            ("\"0.0375\"", 37_500_000),
            ("0.3", 300_000_000),
        ] {
            let read: Dollars = serde_json::from_str(json).unwrap();
            assert_eq!(read.as_nanos(), nanos, "{json}");
            assert_eq!(
                serde_json::to_string(&read).unwrap(),
                json.trim_matches('"')
            );
        }
        for json in ["-1", "true", "1e40", "null", "\"dear\""] {
            assert!(serde_json::from_str::<Dollars>(json).is_err(), "{json}");
        }
        for (nanos, shown) in [
            (0, "$0"),
            (1, "less than $0.0001"),
            (4_250_000, "$0.0043"),
            (1_999_999_999, "$2.0000"),
        ] {
            assert_eq!(Dollars(nanos).to_string(), shown);
        }
    }

    #[test]
    fn tokens_are_priced_by_kind() {
        let prices = |fields: [&str; 4], up_to| {
            let [input, output, cache_read, cache_write] = fields.map(|text| text.parse().ok());
            TokenPrices {
                input,
                output,
                cache_read,
                cache_write,
                up_to,
            }
        };
        let usage = |[input, output, cache_read, cache_write]: [Option<u64>; 4]| Usage {
            input,
            output,
            cache_read,
            cache_write,
            reasoning: Some(7),
        };
        let check = |prices: TokenPrices, tokens, expected: &str| {
            assert_eq!(
                serde_json::to_string(&prices.cost_of(usage(tokens))).unwrap(),
                expected,
                "{tokens:?}"
            );
        };
        let all = prices(["3", "15", "0.3", "3.75"], None);
        check(
            all,
            [Some(1_000_000), Some(0), None, None],
            r#"{"nano_usd":3000000000}"#,
        );
        // Cached tokens are included in the input tokens, and must not be counted twice.
        check(
            all,
            [Some(1000), Some(100), Some(600), Some(300)],
            r#"{"nano_usd":3105000}"#,
        );
        check(
            all,
            [None, Some(100), None, None],
            r#"{"nano_usd":1500000,"at_least":true}"#,
        );
        check(all, [None, None, None, None], "null");
        check(
            all,
            [Some(u64::MAX); 4].map(|it| it),
            r#"{"nano_usd":18446744073709551615}"#,
        );
        let part = prices(["2", "", "", ""], Some(200));
        check(
            part,
            [Some(200), Some(0), None, None],
            r#"{"nano_usd":400000}"#,
        );
        check(
            part,
            [Some(201), Some(0), None, None],
            r#"{"nano_usd":402000,"at_least":true}"#,
        );
        check(
            part,
            [Some(100), Some(9), None, None],
            r#"{"nano_usd":200000,"at_least":true}"#,
        );
        check(
            part,
            [Some(100), Some(0), Some(50), None],
            r#"{"nano_usd":100000,"at_least":true}"#,
        );
        check(
            TokenPrices::default(),
            [Some(1), Some(1), None, None],
            "null",
        );
        check(
            TokenPrices::default(),
            [Some(0), Some(0), None, None],
            "null",
        );
        check(
            TokenPrices::FREE,
            [Some(9), Some(9), Some(3), Some(3)],
            r#"{"nano_usd":0}"#,
        );
        // A fraction of a billionth is rounded up, so that many of them are not lost.
        check(
            prices(["0.000001", "0", "", ""], None),
            [Some(1), Some(0), None, None],
            r#"{"nano_usd":1}"#,
        );
    }

    #[test]
    fn sums_mark_unknown_parts() {
        let check = |costs: &[&str], expected: &str| {
            let mut sum = Cost::default();
            costs
                .iter()
                .for_each(|cost| sum += serde_json::from_str(cost).unwrap());
            assert_eq!(sum.to_string(), expected, "{costs:?}");
        };
        check(&[], "$0");
        check(&["null"], "unknown");
        check(
            &[r#"{"nano_usd":1000000}"#, r#"{"nano_usd":2000000}"#],
            "$0.0030",
        );
        check(&[r#"{"nano_usd":1000000}"#, "null"], "at least $0.0010");
        check(
            &[r#"{"nano_usd":1000000,"estimated":true}"#],
            "about $0.0010",
        );
        check(
            &[r#"{"nano_usd":1000000,"estimated":true}"#, "null"],
            "at least about $0.0010",
        );
    }
}
