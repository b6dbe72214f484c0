//! Writes expressions for values of a JSON Schema in the notation of a dialect.

use std::collections::BTreeMap;

use sabir_call::resolve_reference;
use serde_json::{Map, Value};

use crate::GrammarError;
use crate::disjoint::are_branches_disjoint;
use crate::expression::{CharClass, Expression, Grammar, Rule};
use crate::plain_text::text_without;

/// The most `$ref`s and branches that are followed before a schema counts as unbounded.
const MAX_SCHEMA_DEPTH: usize = 32;
/// The most repetitions that a grammar counts. Readers of grammars write each one out, and refuse many of them.
const MAX_REPETITIONS: u32 = 1000;
/// The most digits of an integer: those that every reader keeps exactly.
const MAX_DIGITS: u32 = 18;
/// Keywords that restrict values in a way that the grammar leaves to the check of the call.
const UNEXPRESSED_KEYWORDS: [&str; 16] = [
    "pattern",
    "multipleOf",
    "uniqueItems",
    "contains",
    "not",
    "if",
    "allOf",
    "prefixItems",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// Keywords that restrict nothing.
const ANNOTATIONS: [&str; 15] = [
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "$comment",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
];

/// Stands for a keyword where an object has any keys: that none of them is repeated cannot be expressed.
const FREE_KEYS: &str = "unique keys";

/// The notation of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueNotation {
    /// JSON. Strings contain none of `stops`, which is empty outside of tags.
    Json { stops: Vec<String> },
    /// JSON whose strings escape `<` and `]`.
    EscapedJson,
    /// Python literals.
    Python,
    /// Gemma's notation with this quote marker.
    Gemma { quote: String },
}

/// A place where the grammar accepts more than the schema. The checks of a call refuse the wrongly accepted values, except for `format`,
/// which they ignore too, and unless the whole schema is invalid: an unknown `type`, or a `$ref` without a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Relaxation {
    /// The tool's name.
    pub tool: String,
    /// The place in the tool's parameters, as in `path.items`.
    pub place: String,
    /// The keyword that the grammar does not express; `unique keys` where an object has any keys.
    pub keyword: String,
}

/// Builds the rules for the values of one tool after the other.
pub(crate) struct ValueBuilder<'t> {
    pub(crate) grammar: Grammar,
    pub(crate) relaxations: Vec<Relaxation>,
    pub(crate) notation: ValueNotation,
    /// The parameters of the current tool, in which references are resolved.
    pub(crate) root: &'t Value,
    pub(crate) tool: &'t str,
    /// The first bounds that exclude every value.
    pub(crate) contradiction: Option<GrammarError>,
    /// Rules that exist already, by their notation and meaning.
    shared: BTreeMap<String, usize>,
}

impl<'t> ValueBuilder<'t> {
    pub(crate) fn new(grammar: Grammar, root: &'t Value) -> Self {
        Self {
            grammar,
            relaxations: Vec::new(),
            notation: ValueNotation::Json { stops: Vec::new() },
            root,
            tool: "",
            contradiction: None,
            shared: BTreeMap::new(),
        }
    }

    /// Adds a rule, with a number behind its name if the name is taken.
    pub(crate) fn add_rule(&mut self, name: &str, expression: Expression) -> usize {
        let clean: String = name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let clean = clean.trim_matches('-').to_owned();
        // Some readers of grammars want a letter first.
        let clean = if clean.starts_with(|c: char| c.is_ascii_alphabetic()) {
            clean
        } else {
            format!("r{clean}")
        };
        let is_taken = |name: &str| self.grammar.rules.iter().any(|rule| rule.name == name);
        let mut unique = clean.clone();
        let mut number = 2;
        while is_taken(&unique) {
            unique = format!("{clean}-{number}");
            number += 1;
        }
        self.grammar.rules.push(Rule {
            name: unique,
            expression,
        });
        self.grammar.rules.len() - 1
    }

    /// Returns the rule for a key, which is built if it does not exist yet. The rule exists while it is built, so it may refer to
    /// itself.
    fn shared_rule(
        &mut self,
        key: String,
        name: &str,
        build: impl FnOnce(&mut Self) -> Expression,
    ) -> Expression {
        let key = format!("{:?} {key}", self.notation);
        if let Some(index) = self.shared.get(&key) {
            return Expression::Rule(*index);
        }
        let index = self.add_rule(name, Expression::literal(""));
        // The index is stored before the rule is built, so the recursion of a schema that refers to
        // itself ends here.
        self.shared.insert(key, index);
        let expression = build(self);
        if let Some(rule) = self.grammar.rules.get_mut(index) {
            rule.expression = expression;
        }
        Expression::Rule(index)
    }

    pub(crate) fn note(&mut self, place: &str, keyword: &str) {
        let relaxation = Relaxation {
            tool: self.tool.to_owned(),
            place: place.to_owned(),
            keyword: keyword.to_owned(),
        };
        if !self.relaxations.contains(&relaxation) {
            self.relaxations.push(relaxation);
        }
    }

    /// Names the keywords beside a reference, of which only the target is written.
    pub(crate) fn note_beside_reference(&mut self, schema: &Value, place: &str) {
        let keywords = schema.as_object().into_iter().flatten();
        for (keyword, _) in keywords {
            if keyword != "$ref" && !ANNOTATIONS.contains(&keyword.as_str()) {
                self.note(place, keyword);
            }
        }
    }

    /// Writes the expression for a value of a schema. `place` is its place in the parameters.
    pub(crate) fn value(&mut self, schema: &Value, place: &str, depth: usize) -> Expression {
        if depth > MAX_SCHEMA_DEPTH {
            self.note(place, "$ref");
            return self.any_value();
        }
        // This schema has no values, and neither has a choice of nothing.
        if *schema == Value::Bool(false) {
            return Expression::choice([]);
        }
        if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
            self.note_beside_reference(schema, place);
            // The survey of the schema names references that lead nowhere.
            let Some(target) = resolve_reference(self.root, schema).cloned() else {
                return self.any_value();
            };
            // The same pointer leads elsewhere in another tool, because references are resolved in
            // the parameters of their own tool.
            let key = format!("{} {pointer}", self.tool);
            let name = pointer.rsplit('/').next().unwrap_or(pointer).to_owned();
            return self.shared_rule(key, &name, |builder| {
                builder.value(&target, place, depth + 1)
            });
        }
        for keyword in UNEXPRESSED_KEYWORDS {
            if schema.get(keyword).is_some() {
                self.note(place, keyword);
            }
        }
        // The listed values say more than a type does, so they are looked at first.
        if let Some(value) = schema.get("const") {
            return self.exact_value(value);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let values: Vec<_> = values.iter().map(|value| self.exact_value(value)).collect();
            return Expression::choice(values);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(branches) = schema.get(keyword).and_then(Value::as_array) {
                // Only the branches are written, so properties beside them are lost. A choice cannot forbid a value that two branches of
                // `oneOf` accept.
                if schema.get("properties").is_some()
                    || keyword == "oneOf" && !are_branches_disjoint(self.root, branches)
                {
                    self.note(place, keyword);
                }
                let branches: Vec<_> = branches
                    .iter()
                    .map(|branch| self.value(branch, place, depth + 1))
                    .collect();
                return Expression::choice(branches);
            }
        }
        let types = type_names(schema);
        if types.is_empty() {
            self.note(place, FREE_KEYS);
            return self.any_value();
        }
        let values: Vec<_> = types
            .iter()
            .map(|name| self.typed_value(name, schema, place, depth))
            .collect();
        Expression::choice(values)
    }

    fn typed_value(
        &mut self,
        type_name: &str,
        schema: &Value,
        place: &str,
        depth: usize,
    ) -> Expression {
        match type_name {
            "string" => self.string(schema, place),
            "integer" => self.integer(schema, place),
            "number" => self.number(schema, place),
            "boolean" => Expression::choice([
                self.exact_value(&Value::from(true)),
                self.exact_value(&Value::from(false)),
            ]),
            "null" => self.exact_value(&Value::Null),
            "array" => self.array(schema, place, depth),
            "object" => self.object(schema, place, depth),
            _ => self.any_value(),
        }
    }

    /// Writes the expression for a string. Its length is expressed where units can be counted.
    fn string(&mut self, schema: &Value, place: &str) -> Expression {
        let counted = self.string_unit();
        // Bounds that the notation cannot count with are named below.
        let Some(unit) = counted else {
            self.note_lengths(schema, place);
            return self.any_string();
        };
        let least = self.min_count(schema, "minLength", place);
        let most = self.max_count(schema, "maxLength", place);
        self.refuse_contradiction(schema, place, ["minLength", "maxLength"]);
        if least == 0 && most.is_none() {
            return self.any_string();
        }
        Expression::sequence([
            Expression::literal("\""),
            unit.repeat(least, most),
            Expression::literal("\""),
        ])
    }

    /// Names the bounds of a string's length as not expressed.
    pub(crate) fn note_lengths(&mut self, schema: &Value, place: &str) {
        for key in ["minLength", "maxLength"] {
            if schema.get(key).is_some() {
                self.note(place, key);
            }
        }
        self.refuse_contradiction(schema, place, ["minLength", "maxLength"]);
    }

    /// Returns the least number of repetitions, which is lowered to the most that a grammar counts.
    fn min_count(&mut self, schema: &Value, key: &'static str, place: &str) -> u32 {
        let Some(count) = count_of(schema, key) else {
            return 0;
        };
        let fitting = u32::try_from(count).ok();
        match fitting.filter(|count| *count <= MAX_REPETITIONS) {
            Some(count) => count,
            None => {
                self.note(place, key);
                MAX_REPETITIONS
            }
        }
    }

    /// Returns the greatest number of repetitions; `None` if there is none, or one beyond those that a grammar counts.
    fn max_count(&mut self, schema: &Value, key: &'static str, place: &str) -> Option<u32> {
        let count = count_of(schema, key)?;
        let fitting = u32::try_from(count).ok();
        let fitting = fitting.filter(|count| *count <= MAX_REPETITIONS);
        if fitting.is_none() {
            self.note(place, key);
        }
        fitting
    }

    /// Keeps an error if the least number is greater than the greatest one.
    fn refuse_contradiction(&mut self, schema: &Value, place: &str, keys: [&'static str; 2]) {
        let [least, most] = keys;
        let counts = count_of(schema, least).zip(count_of(schema, most));
        if counts.is_some_and(|(low, high)| low > high) && self.contradiction.is_none() {
            self.contradiction = Some(GrammarError::Contradictory {
                tool: self.tool.to_owned(),
                place: place.to_owned(),
                least,
                most,
            });
        }
    }

    /// Writes the expression for any string.
    pub(crate) fn any_string(&mut self) -> Expression {
        self.shared_rule("any string".to_owned(), "string", |builder| {
            let quote = || Expression::literal("\"");
            match builder.notation.clone() {
                ValueNotation::Json { stops } if !stops.is_empty() => {
                    let escapes = builder.json_escape();
                    let text = text_without(&stops, &json_chars(), Some(&escapes));
                    Expression::sequence([quote(), text, quote()])
                }
                ValueNotation::Gemma { quote: marker } => {
                    let text = text_without(std::slice::from_ref(&marker), &CharClass::any(), None);
                    let escapes = builder.json_escape();
                    // The second form is for texts that contain the marker. It has no plain `<`,
                    // which the renderer escapes too, so it cannot contain a marker.
                    let escaped = Expression::choice([
                        Expression::Class(json_chars().without(['<'])),
                        escapes,
                    ]);
                    Expression::choice([
                        Expression::sequence([
                            Expression::literal(marker.clone()),
                            text,
                            Expression::literal(marker),
                        ]),
                        Expression::sequence([quote(), escaped.repeat(0, None), quote()]),
                    ])
                }
                _ => {
                    let unit = builder.string_unit();
                    let unit = unit.unwrap_or_else(|| Expression::literal(""));
                    Expression::sequence([quote(), unit.repeat(0, None), quote()])
                }
            }
        })
    }

    /// Returns the expression for one character of a string in double quotes; `None` if characters cannot be counted.
    fn string_unit(&mut self) -> Option<Expression> {
        match &self.notation {
            ValueNotation::Json { stops } if stops.is_empty() => Some(Expression::choice([
                Expression::Class(json_chars()),
                self.json_escape(),
            ])),
            ValueNotation::EscapedJson => Some(Expression::choice([
                Expression::Class(json_chars().without(['<', ']'])),
                self.json_escape(),
            ])),
            ValueNotation::Python => Some(python_string_unit()),
            _ => None,
        }
    }

    fn json_escape(&mut self) -> Expression {
        self.shared_rule("escape".to_owned(), "escape", |_| {
            let hex = || Expression::ranges(&[('0', '9'), ('a', 'f'), ('A', 'F')]);
            let digits = |count| hex().repeat(count, Some(count));
            let d = || Expression::ranges(&[('d', 'd'), ('D', 'D')]);
            // JSON writes a character beyond U+FFFF as two escapes: D800 to DBFF, then DC00 to
            // DFFF.
            // A lone surrogate is no character, so only pairs are accepted.
            let plain = Expression::choice([
                Expression::sequence([
                    Expression::ranges(&[
                        ('0', '9'),
                        ('a', 'c'),
                        ('A', 'C'),
                        ('e', 'f'),
                        ('E', 'F'),
                    ]),
                    digits(3),
                ]),
                Expression::sequence([d(), Expression::ranges(&[('0', '7')]), digits(2)]),
            ]);
            let high = Expression::ranges(&[('8', '9'), ('a', 'b'), ('A', 'B')]);
            let low = Expression::ranges(&[('c', 'f'), ('C', 'F')]);
            let pair = Expression::sequence([
                d(),
                high,
                digits(2),
                Expression::literal("\\u"),
                d(),
                low,
                digits(2),
            ]);
            Expression::sequence([
                Expression::literal("\\"),
                Expression::choice([
                    Expression::Class(CharClass::of(['"', '\\', '/', 'b', 'f', 'n', 'r', 't'])),
                    Expression::sequence([
                        Expression::literal("u"),
                        Expression::choice([plain, pair]),
                    ]),
                ]),
            ])
        })
    }

    fn integer(&mut self, schema: &Value, place: &str) -> Expression {
        let bounds = IntegerBounds::of_schema(schema);
        if bounds.is_unexpressed {
            self.note(place, "minimum/maximum");
        }
        if bounds.least.is_none() && bounds.most.is_none() {
            return self.shared_rule("integer".to_owned(), "integer", |_| {
                integer_range(None, None)
            });
        }
        integer_range(bounds.least, bounds.most)
    }

    fn number(&mut self, schema: &Value, place: &str) -> Expression {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let is_positive = bound("minimum") == Some(0.0) || bound("exclusiveMinimum") == Some(-0.0);
        for key in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
            let is_expressed = key == "minimum" && bound(key) == Some(0.0);
            if schema.get(key).is_some() && !is_expressed {
                self.note(place, key);
            }
        }
        // Only a bound at zero is expressed, by omitting the sign; other bounds depend on digits.
        let sign = if is_positive { "" } else { "-" };
        self.shared_rule(format!("number {sign}"), "number", |_| {
            let digit = || Expression::ranges(&[('0', '9')]);
            let leading = || Expression::ranges(&[('1', '9')]);
            let fraction = |most| {
                Expression::sequence([Expression::literal("."), digit().repeat(1, Some(most))])
                    .optional()
            };
            let plain = Expression::sequence([
                Expression::choice([
                    Expression::literal("0"),
                    Expression::sequence([leading(), digit().repeat(0, Some(MAX_DIGITS - 1))]),
                ]),
                fraction(25),
            ]);
            // No greater exponent, or the value would be infinite.
            let exponent = Expression::choice([
                digit().repeat(1, Some(2)),
                Expression::sequence([
                    Expression::ranges(&[('1', '2')]),
                    digit().repeat(2, Some(2)),
                ]),
                Expression::sequence([
                    Expression::literal("30"),
                    Expression::ranges(&[('0', '7')]),
                ]),
            ]);
            let scientific = Expression::sequence([
                leading(),
                fraction(17),
                Expression::Class(CharClass::of(['e', 'E'])),
                Expression::Class(CharClass::of(['+', '-'])).optional(),
                exponent,
            ]);
            let value = Expression::choice([plain, scientific]);
            match sign.is_empty() {
                true => value,
                false => Expression::sequence([Expression::literal("-").optional(), value]),
            }
        })
    }

    fn array(&mut self, schema: &Value, place: &str, depth: usize) -> Expression {
        let item = match schema.get("items") {
            Some(items) => self.value(items, &format!("{place}.items"), depth + 1),
            None => self.any_value(),
        };
        let least = self.min_count(schema, "minItems", place);
        let most = self.max_count(schema, "maxItems", place);
        self.refuse_contradiction(schema, place, ["minItems", "maxItems"]);
        let list = self.list(item, least, most);
        Expression::sequence([Expression::literal("["), list, Expression::literal("]")])
    }

    /// Writes items with separators between them.
    fn list(&self, item: Expression, min: u32, max: Option<u32>) -> Expression {
        if max == Some(0) {
            return Expression::literal("");
        }
        // The first item precedes its separators, so it is not counted by the repetition.
        let more = Expression::sequence([self.separator(), item.clone()])
            .repeat(min.saturating_sub(1), max.map(|max| max.saturating_sub(1)));
        let all = Expression::sequence([item, more]);
        if min == 0 { all.optional() } else { all }
    }

    fn object(&mut self, schema: &Value, place: &str, depth: usize) -> Expression {
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let is_open =
            properties.is_none_or(Map::is_empty) && additional != Some(&Value::Bool(false));
        let required = required_names(schema);
        if is_open && required.is_empty() {
            self.note(place, FREE_KEYS);
            return match additional {
                Some(values @ Value::Object(_)) => {
                    let value = self.value(values, &format!("{place}.*"), depth + 1);
                    self.map_of(value)
                }
                _ => self.any_object(),
            };
        }
        let members = self.members(schema, place, depth);
        Expression::sequence([Expression::literal("{"), members, Expression::literal("}")])
    }

    /// Writes the declared members of an object in their order, each optional one with or without.
    pub(crate) fn members(&mut self, schema: &Value, place: &str, depth: usize) -> Expression {
        let required = required_names(schema);
        let any = Value::Bool(true);
        let declared = schema.get("properties").and_then(Value::as_object);
        let mut properties: Vec<(&str, &Value)> = declared
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str(), schema))
            .collect();
        // JSON Schema allows names in `required` that `properties` does not have. Without them no
        // call would be valid, so they follow the declared ones.
        for name in &required {
            if !properties.iter().any(|(known, _)| known == name) {
                properties.push((name, &any));
            }
        }
        let members: Vec<OptionalItem> = properties
            .into_iter()
            .map(|(name, schema)| OptionalItem {
                is_required: required.contains(&name),
                expression: self.member(name, schema, place, depth),
            })
            .collect();
        join_optional(&members, &self.separator())
    }

    /// Writes one member of an object, or one keyword argument.
    fn member(&mut self, name: &str, schema: &Value, place: &str, depth: usize) -> Expression {
        let place = if place.is_empty() {
            name.to_owned()
        } else {
            format!("{place}.{name}")
        };
        // At the top, arguments of Python are keywords and not keys.
        let is_keyword = depth == 0 && self.notation == ValueNotation::Python;
        let value = self.value(schema, &place, depth + 1);
        let expression = if is_keyword && is_identifier(name) {
            Expression::sequence([Expression::literal(format!("{name}=")), value])
        } else if is_keyword {
            let key = self.exact_string(name);
            Expression::sequence([
                Expression::literal("**{"),
                key,
                self.colon(),
                value,
                Expression::literal("}"),
            ])
        } else {
            let key = self.key(name);
            Expression::sequence([key, self.colon(), value])
        };
        // The choices of an object with optional members refer to a member several times. As a rule
        // it is written only once.
        let rule = self.add_rule(&format!("{}-{place}", self.tool), expression);
        Expression::Rule(rule)
    }

    fn any_object(&mut self) -> Expression {
        self.shared_rule("any object".to_owned(), "object", |builder| {
            let value = builder.any_value();
            builder.map_of(value)
        })
    }

    /// Writes an object of any keys.
    fn map_of(&mut self, value: Expression) -> Expression {
        let key = self.any_key();
        let member = Expression::sequence([key, self.colon(), value]);
        let list = self.list(member, 0, None);
        Expression::sequence([Expression::literal("{"), list, Expression::literal("}")])
    }

    /// Writes the expression for any key of an object.
    fn any_key(&mut self) -> Expression {
        match self.notation {
            ValueNotation::Gemma { .. } => {
                let start = Expression::ranges(&[('A', 'Z'), ('a', 'z'), ('_', '_')]);
                let more = Expression::ranges(&[
                    ('A', 'Z'),
                    ('a', 'z'),
                    ('0', '9'),
                    ('_', '_'),
                    ('-', '-'),
                ]);
                // 64 characters are the longest key that the renderer writes without quotes, safely
                // below what the parser accepts.
                Expression::sequence([start, more.repeat(0, Some(63))])
            }
            _ => self.any_string(),
        }
    }

    /// Writes the expression for any value.
    pub(crate) fn any_value(&mut self) -> Expression {
        self.shared_rule("any value".to_owned(), "value", |builder| {
            let object = builder.any_object();
            let item = Expression::Rule(builder.rule_of_any_value());
            let list = builder.list(item, 0, None);
            Expression::choice([
                builder.any_string(),
                builder.number(&Value::Null, ""),
                builder.exact_value(&Value::from(true)),
                builder.exact_value(&Value::from(false)),
                builder.exact_value(&Value::Null),
                Expression::sequence([Expression::literal("["), list, Expression::literal("]")]),
                object,
            ])
        })
    }

    /// Returns the rule of any value, which exists while it is built.
    fn rule_of_any_value(&self) -> usize {
        let key = format!("{:?} any value", self.notation);
        self.shared.get(&key).copied().unwrap_or(usize::MAX)
    }

    /// Writes the expression for exactly this value.
    pub(crate) fn exact_value(&mut self, value: &Value) -> Expression {
        match (value, &self.notation) {
            (Value::String(text), _) => self.exact_string(text),
            (Value::Null, ValueNotation::Python) => Expression::literal("None"),
            (Value::Bool(true), ValueNotation::Python) => Expression::literal("True"),
            (Value::Bool(false), ValueNotation::Python) => Expression::literal("False"),
            (Value::Array(items), _) => {
                let mut parts = vec![Expression::literal("[")];
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        parts.push(self.separator());
                    }
                    parts.push(self.exact_value(item));
                }
                parts.push(Expression::literal("]"));
                Expression::sequence(parts)
            }
            (Value::Object(map), _) => {
                let mut parts = vec![Expression::literal("{")];
                for (at, (key, item)) in map.iter().enumerate() {
                    if at > 0 {
                        parts.push(self.separator());
                    }
                    parts.push(self.key(key));
                    parts.push(self.colon());
                    parts.push(self.exact_value(item));
                }
                parts.push(Expression::literal("}"));
                Expression::sequence(parts)
            }
            (other, _) => Expression::literal(other.to_string()),
        }
    }

    fn exact_string(&mut self, text: &str) -> Expression {
        match &self.notation {
            ValueNotation::Python => {
                let mut escaped = String::new();
                for c in text.chars() {
                    match c {
                        '"' => escaped.push_str("\\\""),
                        '\\' => escaped.push_str("\\\\"),
                        '\n' => escaped.push_str("\\n"),
                        '\r' => escaped.push_str("\\r"),
                        '\t' => escaped.push_str("\\t"),
                        c if c.is_control() => {
                            escaped.push_str(&format!("\\x{:02x}", u32::from(c)));
                        }
                        '\u{2028}' | '\u{2029}' => {
                            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
                        }
                        c => escaped.push(c),
                    }
                }
                Expression::literal(format!("\"{escaped}\""))
            }
            ValueNotation::Gemma { quote } => {
                let raw = format!("{text}{quote}");
                // The marker is searched in the text with its closing marker: a text that ends with
                // a piece of the marker would close too early.
                if raw.find(quote.as_str()) == Some(text.len()) {
                    Expression::literal(format!("{quote}{raw}"))
                } else {
                    Expression::literal(Value::from(text).to_string().replace('<', "\\u003c"))
                }
            }
            ValueNotation::EscapedJson => Expression::literal(
                Value::from(text)
                    .to_string()
                    .replace('<', "\\u003c")
                    .replace(']', "\\u005d"),
            ),
            ValueNotation::Json { .. } => Expression::literal(Value::from(text).to_string()),
        }
    }

    fn key(&mut self, name: &str) -> Expression {
        let is_bare = is_identifier(&name.replace('-', "_")) && !name.starts_with('-');
        match self.notation {
            ValueNotation::Gemma { .. } if is_bare => Expression::literal(name),
            ValueNotation::Gemma { .. } => {
                Expression::literal(Value::from(name).to_string().replace('<', "\\u003c"))
            }
            _ => self.exact_string(name),
        }
    }

    /// The text between two items. JSON and Python may be written with or without a blank.
    fn separator(&self) -> Expression {
        self.punctuation(",")
    }

    fn colon(&self) -> Expression {
        self.punctuation(":")
    }

    fn punctuation(&self, mark: &str) -> Expression {
        match self.notation {
            ValueNotation::Gemma { .. } => Expression::literal(mark),
            _ => Expression::sequence([
                // Models were taught both ways, and the renderer writes one of them.
                Expression::literal(mark),
                Expression::literal(" ").optional(),
            ]),
        }
    }
}

/// An item of a list in which some items may be missing.
pub(crate) struct OptionalItem {
    pub(crate) is_required: bool,
    pub(crate) expression: Expression,
}

/// Joins items in their order, with a separator between those that are there.
pub(crate) fn join_optional(items: &[OptionalItem], separator: &Expression) -> Expression {
    let mut choices = Vec::new();
    // The first item that is there needs no separator; each one behind it does.
    for (at, first) in items.iter().enumerate() {
        let mut sequence = vec![first.expression.clone()];
        for later in items.iter().skip(at + 1) {
            let item = Expression::sequence([separator.clone(), later.expression.clone()]);
            sequence.push(if later.is_required {
                item
            } else {
                item.optional()
            });
        }
        // No item after a required one can be the first, so there are no further choices.
        choices.push(Expression::sequence(sequence));
        if first.is_required {
            return Expression::choice(choices);
        }
    }
    match choices.is_empty() {
        true => Expression::literal(""),
        false => Expression::choice(choices).optional(),
    }
}

/// Returns a count of a schema, which may be written as a whole float.
fn count_of(schema: &Value, key: &str) -> Option<u64> {
    let value = schema.get(key)?;
    let whole = || {
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        // A negative float is no count, and a text of it does not parse.
        format!("{float:.0}").parse().ok()
    };
    value.as_u64().or_else(whole)
}

/// Returns the names that an object must have.
pub(crate) fn required_names(schema: &Value) -> Vec<&str> {
    let required = schema.get("required").and_then(Value::as_array);
    required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns the types that a schema names, or implies by its keywords.
pub(crate) fn type_names(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ if schema.get("properties").is_some() => vec!["object"],
        _ if schema.get("items").is_some() => vec!["array"],
        _ => Vec::new(),
    }
}

/// Reports whether JSON Schema has a type of this name.
pub(crate) fn is_type_name(name: &str) -> bool {
    matches!(
        name,
        "string" | "integer" | "number" | "boolean" | "null" | "array" | "object"
    )
}

/// Returns the values that a schema lists.
pub(crate) fn listed_values(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(value) = schema.get("const") {
        return Some(vec![value]);
    }
    let values = schema.get("enum").and_then(Value::as_array)?;
    Some(values.iter().collect())
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= 64
}

/// The characters that a JSON string contains as they are.
fn json_chars() -> CharClass {
    CharClass::from_ranges(true, [('\0', '\u{1f}'), ('"', '"'), ('\\', '\\')])
}

fn python_string_unit() -> Expression {
    let plain = CharClass::from_ranges(
        true,
        [
            ('\0', '\u{1f}'),
            ('"', '"'),
            ('\\', '\\'),
            ('\u{7f}', '\u{9f}'),
            ('\u{2028}', '\u{2029}'),
        ],
    );
    let hex = || Expression::ranges(&[('0', '9'), ('a', 'f')]);
    Expression::choice([
        Expression::Class(plain),
        Expression::sequence([
            Expression::literal("\\"),
            Expression::choice([
                Expression::Class(CharClass::of(['"', '\\', 'n', 'r', 't'])),
                Expression::sequence([Expression::literal("x"), hex().repeat(2, Some(2))]),
                Expression::sequence([
                    Expression::literal("u202"),
                    Expression::ranges(&[('8', '9')]),
                ]),
            ]),
        ]),
    ])
}

/// The bounds of an integer.
struct IntegerBounds {
    least: Option<i64>,
    most: Option<i64>,
    /// True if a bound is not an integer of at most 18 digits.
    is_unexpressed: bool,
}

impl IntegerBounds {
    fn of_schema(schema: &Value) -> Self {
        let limit = 10_u64.pow(MAX_DIGITS) - 1;
        let mut bounds = Self {
            least: None,
            most: None,
            is_unexpressed: false,
        };
        for (key, step) in [
            ("minimum", 0),
            ("exclusiveMinimum", 1),
            ("maximum", 0),
            ("exclusiveMaximum", -1),
        ] {
            let Some(value) = schema.get(key) else {
                continue;
            };
            let Some(bound) = value.as_i64().filter(|bound| bound.unsigned_abs() < limit) else {
                bounds.is_unexpressed = true;
                continue;
            };
            // Bounds are below the limit of 18 digits here, so this cannot overflow.
            let bound = bound + step;
            if step == 1 || key == "minimum" {
                bounds.least = Some(bounds.least.map_or(bound, |known| known.max(bound)));
            } else {
                bounds.most = Some(bounds.most.map_or(bound, |known| known.min(bound)));
            }
        }
        bounds
    }
}

/// Writes the expression for the integers from `least` to `most`.
fn integer_range(least: Option<i64>, most: Option<i64>) -> Expression {
    let limit = 10_i64.pow(MAX_DIGITS) - 1;
    let least = least.unwrap_or(-limit).max(-limit);
    let most = most.unwrap_or(limit).min(limit);
    let mut choices = Vec::new();
    if least < 0 {
        // The digits of a negative number are its distance from zero. Minus zero is excluded, since
        // many readers take it for a float.
        let nearest = if most < 0 { -most } else { 1 };
        let digits = natural_range(nearest.unsigned_abs(), least.unsigned_abs());
        choices.push(Expression::sequence([Expression::literal("-"), digits]));
    }
    if most >= 0 {
        choices.push(natural_range(
            least.max(0).unsigned_abs(),
            most.unsigned_abs(),
        ));
    }
    Expression::choice(choices)
}

/// Writes the expression for the natural numbers from `least` to `most`.
fn natural_range(least: u64, most: u64) -> Expression {
    let mut choices = Vec::new();
    if least == 0 && most >= least {
        choices.push(Expression::literal("0"));
    }
    let mut low = least.max(1);
    while low <= most {
        // The greatest block that begins here: all numbers with some leading digits and any digits
        // behind them.
        let mut size = 1_u64;
        // `low` is at most 10^18 and not below `size`, so the products stay within 64 bits.
        while low.is_multiple_of(size * 10) && low + size * 10 - 1 <= most {
            size *= 10;
        }
        let digit = low / size % 10;
        let room = (most - low + 1) / size;
        // A class of one digit ends at 9; the carry begins the next block.
        let count = room.min(10 - digit);
        let prefix = low / size / 10;
        let zeros = u32::try_from(size.to_string().len() - 1).unwrap_or(0);
        let edge =
            |digit: u64| char::from_digit(u32::try_from(digit).unwrap_or(0), 10).unwrap_or('0');
        choices.push(Expression::sequence([
            Expression::literal(if prefix == 0 {
                String::new()
            } else {
                prefix.to_string()
            }),
            Expression::ranges(&[(edge(digit), edge(digit + count - 1))]),
            Expression::ranges(&[('0', '9')]).repeat(zeros, Some(zeros)),
        ]));
        low += size * count;
    }
    Expression::choice(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_exactly_their_integers() {
        for (least, most) in [
            (0, 0),
            (1, 9),
            (3, 250),
            (99, 1001),
            (-12, 7),
            (-120, -9),
            (7, 7),
            (0, 65535),
        ] {
            let grammar = Grammar {
                rules: vec![Rule {
                    name: "root".to_owned(),
                    expression: integer_range(Some(least), Some(most)),
                }],
            };
            for value in (least - 30)..=(most + 30).min(least + 1500) {
                assert_eq!(
                    grammar.accepts(&value.to_string()),
                    (least..=most).contains(&value),
                    "{value} in {least}..={most}"
                );
            }
            assert!(grammar.accepts(&most.to_string()));
            assert!(!grammar.accepts(&(most + 1).to_string()));
        }
        let all = Grammar {
            rules: vec![Rule {
                name: "root".to_owned(),
                expression: integer_range(None, None),
            }],
        };
        for text in ["0", "-1", "7", "123456789012345678"] {
            assert!(all.accepts(text), "{text}");
        }
        for text in ["", "-", "-0", "01", "1.0", "1e3"] {
            assert!(!all.accepts(text), "{text}");
        }
    }
}
