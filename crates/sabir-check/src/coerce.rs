//! Coerces the text of an argument to a value of the type that the schema declares.
//!
//! The result for each form (`T` are the types that the schema allows for the argument):
//!
//! | form | `T` | result |
//! | --- | --- | --- |
//! | any | none declared | the string |
//! | raw, string | contains `string` | the string, byte for byte, *whatever else `T` contains*; see below |
//! | raw | integer, number | the JSON number; `10.0` is the integer `10` |
//! | raw | boolean | `true`, `True`, `false` or `False`; no other word |
//! | raw | null | `null` or `None` |
//! | raw | array, object | from JSON text or nested elements, with or without MiniMax's marker; empty text is an empty array or object |
//! | string | anything else | the JSON value in it, as a repair |
//! | JSON | any | the JSON value; `10.0` is the integer `10` where an integer is declared |
//!
//! If no string is allowed, a code fence around the value is removed as a repair. JSON in which an object has a key twice
//! is rejected, because it is unknown which of the two values was meant.
//!
//! White space around a raw scalar is removed as a repair; around JSON and elements it has no meaning.
//!
//! **Unions.** A union that contains `string` keeps the string: for `["string", "integer"]` the text `10` becomes `"10"`,
//! because the schema allows it and values keep their exact bytes. Only if validation rejects the string (by an `enum`, a
//! `pattern`, a `const`) is the text read as the other types, and that reading counts only if validation accepts it. Among
//! the other types the first that fits is taken: null, boolean, integer, number, array or object.
//!
//! **Nested elements.** In an array every child is an item: `<suggest>a</suggest><suggest>b</suggest>` is `["a", "b"]`.
//! Children that are themselves properties of the items form one item whose own tag was left out. In an object every child
//! is a property, and a repeated one becomes an array. A child is typed by its own schema; if that fails it stays text, and
//! validation reports it. Attributes become properties if the schema expects an object. The text of such an element becomes
//! the property `text`, `content` or `value`, whichever is declared, else the only declared string property that no
//! attribute gives, else `text`. If the schema expects no object, attributes are dropped. Behind MiniMax's marker elements are
//! structure without a declared type as well: an array if all of them are `<item>`, else an object.

use std::collections::HashMap;

use sabir_call::ArgumentEncoding;
use serde_json::{Map, Number, Value};

use crate::lenient_json::{self, JsonSyntaxError};
use crate::repair::{MistypedText, RepairSet};
use crate::schema::{JsonTypes, SchemaView};
use crate::xml_element::{XmlElement, parse_elements};

/// The marker that MiniMax M3 writes before every tag, nested ones included.
const MINIMAX_MARKER: &str = "]<]minimax[>[";
/// The depth to which nested elements are read; deeper ones stay text. It bounds the recursion on hostile input.
const MAX_DEPTH: u8 = 16;
/// The depth to which nested elements behind MiniMax's marker are read. Deeper ones are rejected: the marker
/// proves that they are structure, so they must not become text. Readers of JSON allow 128 levels in all.
const MAX_MARKED_DEPTH: u8 = 64;

/// The rules for reading nested elements.
#[derive(Debug, Clone, Copy)]
struct ElementRules {
    /// The number of levels that may follow.
    depth: u8,
    /// True if each tag was marked as structure, so that elements without a declared type are a value, not text.
    marked: bool,
}

impl ElementRules {
    /// The rules for elements that are not marked.
    const PLAIN: Self = Self {
        depth: MAX_DEPTH,
        marked: false,
    };
    /// The rules for elements behind MiniMax's marker.
    const MARKED: Self = Self {
        depth: MAX_MARKED_DEPTH,
        marked: true,
    };

    /// Returns the rules for the children of an element; `None` beyond the last level.
    fn one_level_deeper(self) -> Option<Self> {
        let depth = self.depth.checked_sub(1)?;
        Some(Self { depth, ..self })
    }
}

/// A value with the names of the repair rules that were needed to read it.
/// The rule about a fence comes first, the others in the order of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CoercedValue {
    pub(crate) value: Value,
    pub(crate) rules: Vec<&'static str>,
}

/// A reason why a text cannot be read as the schema demands. The advice is another type of value, or the same value with valid syntax.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CoercionError {
    /// The text has none of these expected types.
    Type(JsonTypes),
    /// The text begins like JSON and is invalid, or has a key twice. Offsets are bytes of the text.
    Json(JsonSyntaxError),
}

impl CoercedValue {
    /// Makes a value that was read as documented, without any repair.
    fn without_rules(value: Value) -> Self {
        Self {
            value,
            rules: Vec::new(),
        }
    }
}

/// Reads `text` as a value of one of `types`; `None` allows any type.
///
/// * `form` says how the parser delivered the text: raw between tags, decoded from a string, or as
///   JSON source. The same bytes mean different things: `10` in JSON is a number, in a string it is
///   two characters.
/// * `shape` types the parts of arrays and objects. `types` is separate from it, because the
///   alternative reading of a union asks for fewer types than the schema allows.
///
/// # Errors
/// Returns the expected types if the text is none of them, or the position at which JSON broke off.
pub(crate) fn coerce_value(
    text: &str,
    form: ArgumentEncoding,
    shape: SchemaView<'_>,
    types: Option<JsonTypes>,
    repairs: RepairSet,
) -> Result<CoercedValue, CoercionError> {
    // A string may well be a fenced block (a README, a chat message), so then the fence is content.
    let no_string = types.is_some_and(|types| !types.has(JsonTypes::STRING));
    if no_string && let Some((rule, inner, start)) = repairs.strip_code_fence(text) {
        // Only one fence is removed: inside it the rule is off.
        return match coerce_value(
            inner,
            form,
            shape,
            types,
            repairs.without_rule(rule).unwrap_or(repairs),
        ) {
            Ok(CoercedValue { value, mut rules }) => {
                rules.insert(0, rule);
                Ok(CoercedValue { value, rules })
            }
            // Offsets must point into the text as written, so what the fence took is added again.
            Err(CoercionError::Json(broken)) => Err(CoercionError::Json(JsonSyntaxError {
                at: start + broken.at,
                ..broken
            })),
            Err(mismatch) => Err(mismatch),
        };
    }
    if form == ArgumentEncoding::Json {
        // JSON says its own type. A wrong one is left for validation to report, which names both.
        let reading = parse_json(text, repairs)?;
        return Ok(CoercedValue {
            value: normalize_integer(reading.value, types),
            ..reading
        });
    }
    // Between tags, only the schema distinguishes the word from the value. If a tool accepts null,
    // the model most likely means it rather than a text of four letters.
    let is_nullable = types.is_some_and(|types| types.has(JsonTypes::NULL));
    if form == ArgumentEncoding::Raw && text == "null" && is_nullable {
        return Ok(CoercedValue::without_rules(Value::Null));
    }
    if types.is_none()
        && form == ArgumentEncoding::Raw
        && let Some(value) = parse_marked_elements(text, shape)?
    {
        return Ok(CoercedValue::without_rules(value));
    }
    let Some(types) = types.filter(|types| !types.has(JsonTypes::STRING)) else {
        return Ok(CoercedValue::without_rules(Value::String(text.to_owned())));
    };
    if form == ArgumentEncoding::Raw {
        if let Some(value) = parse_scalar(text, types) {
            return Ok(CoercedValue::without_rules(value));
        }
        // Only raw text can contain elements: a JSON string with markup is a text, for which
        // `misspelling` has a message.
        let nests = types.has(JsonTypes::ARRAY) || types.has(JsonTypes::OBJECT);
        if nests && let Some(reading) = parse_structure(text, shape, types, repairs)? {
            return Ok(reading);
        }
    }
    // Rules come last: a text with a documented reading is never taken for a mistake.
    let repaired = repairs.repair_value(&MistypedText { text, form, types });
    repaired
        .map(|(rule, value)| CoercedValue {
            value,
            rules: vec![rule],
        })
        .ok_or(CoercionError::Type(types))
}

/// Reads a null, a boolean or a number in exactly the documented spellings.
///
/// `1.` and `.5`, `+1` and `007` are not JSON numbers, `NaN` and `Infinity` have no JSON value at
/// all; each is refused rather than guessed. Words such as `yes` and `on` are refused for the same
/// reason: YAML reads them as booleans, JSON and Python do not.
pub(crate) fn parse_scalar(text: &str, types: JsonTypes) -> Option<Value> {
    match text {
        // Python's spellings count, since models also write them between tags.
        "null" | "None" => return types.has(JsonTypes::NULL).then_some(Value::Null),
        "true" | "True" => return types.has(JsonTypes::BOOLEAN).then_some(Value::Bool(true)),
        "false" | "False" => return types.has(JsonTypes::BOOLEAN).then_some(Value::Bool(false)),
        _ => {}
    }
    // serde_json would also skip white space around a number, but that is a separate repair.
    if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        || !text.ends_with(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    // Rounding an id of 20 digits would address something else.
    if lenient_json::find_wide_integer(text).is_some() {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    // `10.0` stays a float here: the schema allows fractions, and the model wrote one.
    if types.has(JsonTypes::NUMBER) {
        return Some(Value::Number(number));
    }
    to_integer(&number)
        .filter(|_| types.has(JsonTypes::INTEGER))
        .map(Value::Number)
}

/// Returns the number without its `.0`; `None` if it is not whole, or too large for a float to be exact.
///
/// JSON Schema counts `10.0` as an integer (2020-12, section 6.1.1 of the validation draft), but
/// tools deserialize into integer types that refuse it.
fn to_integer(number: &Number) -> Option<Number> {
    // 2^53: above it not every integer has an `f64` of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !number.is_f64() {
        return Some(number.clone());
    }
    let float = number
        .as_f64()
        .filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the float is whole and below 2^53"
    )]
    Some(Number::from(float as i64))
}

/// Converts `10.0` to `10` if an integer is expected.
fn normalize_integer(value: Value, types: Option<JsonTypes>) -> Value {
    match &value {
        Value::Number(number)
            if types.is_some_and(|types| {
                types.has(JsonTypes::INTEGER) && !types.has(JsonTypes::NUMBER)
            }) =>
        {
            to_integer(number).map_or(value, Value::Number)
        }
        _ => value,
    }
}

/// Parses JSON strictly, and with the repairs if that fails.
///
/// Duplicate keys are checked after every repair as well, because a repair can make two spellings
/// equal: `{'a': 1, "a": 2}`.
fn parse_json(text: &str, repairs: RepairSet) -> Result<CoercedValue, CoercionError> {
    let broken = match lenient_json::parse_strict(text) {
        Ok(value) => return Ok(CoercedValue::without_rules(value)),
        Err(broken) => broken,
    };
    // The error of the lenient parser is the one to report: it points at the first byte that no
    // repair can fix.
    let read = if broken.is_duplicate_key {
        // Valid JSON already, so no rule can help; reporting it here keeps its own message.
        Err(broken)
    } else {
        repairs.repair_json(text)
    };
    let read = read.and_then(|(rules, relaxed)| {
        Ok(CoercedValue {
            value: relaxed.reject_duplicate_keys()?,
            rules,
        })
    });
    read.map_err(CoercionError::Json)
}

/// Reads an array or an object; `None` if the text begins like neither.
///
/// `Ok(None)` leaves the text to the repair rules; an error is final, because a text that begins
/// like JSON was meant as JSON.
fn parse_structure(
    text: &str,
    shape: SchemaView<'_>,
    types: JsonTypes,
    repairs: RepairSet,
) -> Result<Option<CoercedValue>, CoercionError> {
    let start = text.trim_ascii_start();
    if start.is_empty() {
        // `<list></list>` can say nothing else. An array first, as in every union.
        let empty = if types.has(JsonTypes::ARRAY) {
            Value::Array(Vec::new())
        } else {
            Value::Object(Map::new())
        };
        return Ok(Some(CoercedValue::without_rules(empty)));
    }
    // Never both readings: JSON cannot begin with `<`, and elements cannot begin with a bracket.
    if start.starts_with(['{', '[']) {
        return parse_json(text, repairs).map(Some);
    }
    if start.starts_with(MINIMAX_MARKER) {
        let unmarked = UnmarkedText::new(start).ok_or(CoercionError::Type(types))?;
        let list = types.has(JsonTypes::ARRAY);
        let value = unmarked.build_value(|children, rules| match list {
            true => build_array(children, shape, rules),
            false => build_object(children, shape, rules).into(),
        });
        return Ok(value.map(CoercedValue::without_rules));
    }
    let children = if start.starts_with('<') {
        parse_elements(start)
    } else {
        None
    };
    Ok(children.map(|children| {
        let value = if types.has(JsonTypes::ARRAY) {
            build_array(&children, shape, ElementRules::PLAIN)
        } else {
            build_object(&children, shape, ElementRules::PLAIN).into()
        };
        CoercedValue::without_rules(value)
    }))
}

/// Reads an argument without a declared type, if it consists of elements behind MiniMax's marker; `None` if it does not.
///
/// # Errors
/// Returns a type error if the elements are nested too deeply.
fn parse_marked_elements(
    text: &str,
    shape: SchemaView<'_>,
) -> Result<Option<Value>, CoercionError> {
    let start = text.trim_ascii_start();
    if !start.starts_with(MINIMAX_MARKER) {
        return Ok(None);
    }
    let unmarked = UnmarkedText::new(start).ok_or(CoercionError::Type(JsonTypes::OBJECT))?;
    Ok(unmarked.build_value(|children, rules| build_untyped(children, shape, rules)))
}

/// A text whose tags had MiniMax's marker.
struct UnmarkedText {
    /// The text without the markers. Any other `<` is content, so a placeholder takes its place.
    text: String,
    /// A character that does not occur in the text.
    placeholder: char,
}

impl UnmarkedText {
    /// Removes the marker before each tag. `None` if the tags are nested too deeply to be read.
    fn new(text: &str) -> Option<Self> {
        let placeholder = ('\u{f0000}'..='\u{ffffd}')
            .find(|c| !text.contains(*c))
            .unwrap_or('\u{f0000}');
        // The marker holds a `<` itself, so the text is split at marker and tag together.
        // A marker that no tag follows is content.
        let marked_tag = format!("{MINIMAX_MARKER}<");
        let mut unmarked = String::with_capacity(text.len());
        let mut depth = 0_u8;
        for (at, piece) in text.split(marked_tag.as_str()).enumerate() {
            if at > 0 {
                unmarked.push('<');
                depth = match piece.starts_with('/') {
                    true => depth.saturating_sub(1),
                    false => depth.saturating_add(1),
                };
            }
            if depth > MAX_MARKED_DEPTH {
                return None;
            }
            let mask = |c: char| if c == '<' { placeholder } else { c };
            unmarked.extend(piece.chars().map(mask));
        }
        Some(Self {
            text: unmarked,
            placeholder,
        })
    }

    /// Reads the text as elements and builds a value from them; `None` if it holds anything else.
    fn build_value(
        &self,
        build: impl FnOnce(&[XmlElement<'_>], ElementRules) -> Value,
    ) -> Option<Value> {
        let children = parse_elements(&self.text)?;
        let mut value = build(&children, ElementRules::MARKED);
        self.restore_strings(&mut value);
        Some(value)
    }

    /// Puts the markers and `<` back into the strings of a value. Its depth is bounded by that of the elements.
    fn restore_strings(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(['<', self.placeholder]) => {
                let marked = text.replace('<', &format!("{MINIMAX_MARKER}<"));
                *text = marked.replace(self.placeholder, "<");
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.restore_strings(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.restore_strings(item)),
            _ => {}
        }
    }
}

/// Builds a value without a declared type: an array if all children are `<item>`, else an object.
fn build_untyped(children: &[XmlElement<'_>], shape: SchemaView<'_>, rules: ElementRules) -> Value {
    match children.iter().all(|child| child.name == "item") {
        true => build_array(children, shape, rules),
        false => build_object(children, shape, rules).into(),
    }
}

/// Reads a text that consists of elements only, as it would be read between tags. `None` if it is something else, or has no value of these types.
pub(crate) fn parse_tagged(text: &str, shape: SchemaView<'_>, types: JsonTypes) -> Option<Value> {
    let children = parse_elements(text).filter(|children| !children.is_empty())?;
    match (
        types.has(JsonTypes::ARRAY),
        types.has(JsonTypes::OBJECT),
        children.as_slice(),
    ) {
        (true, _, children) => Some(build_array(children, shape, ElementRules::PLAIN)),
        (_, true, children) => Some(build_object(children, shape, ElementRules::PLAIN).into()),
        (_, _, [child]) => parse_scalar(child.text().trim(), types),
        _ => None,
    }
}

/// Builds an array from child elements, one item each.
///
/// The names of the children do not matter: models write `<item>`, `<file>` or `<suggest>`,
/// whatever the prompt of their training used.
fn build_array(children: &[XmlElement<'_>], shape: SchemaView<'_>, rules: ElementRules) -> Value {
    let items = shape.item_schema();
    let known = items.property_names();
    // The children are properties of an item: the model left out the item's own tag.
    let bare = !children.is_empty() && children.iter().all(|child| known.contains(&child.name));
    if bare
        && items
            .allowed_types()
            .is_some_and(|types| types.has(JsonTypes::OBJECT))
    {
        return Value::Array(vec![build_object(children, items, rules).into()]);
    }
    Value::Array(
        children
            .iter()
            .map(|child| coerce_element(child, items, rules))
            .collect(),
    )
}

/// Builds an object from child elements, one property for each name.
///
/// A repeated name becomes an array, even if the schema declares none. Validation then reports the array, which helps the model more than a
/// silently dropped duplicate.
fn build_object(
    children: &[XmlElement<'_>],
    shape: SchemaView<'_>,
    rules: ElementRules,
) -> Map<String, Value> {
    // Grouped by name in the order of first appearance. The map of indexes keeps this linear for
    // many children.
    let mut groups: Vec<(&str, Vec<&XmlElement<'_>>)> = Vec::new();
    let mut known = HashMap::new();
    for child in children {
        let index = *known.entry(child.name).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, group)) => group.push(child),
            None => groups.push((child.name, vec![child])),
        }
    }
    let property = |(name, group): (&str, Vec<&XmlElement<'_>>)| {
        let shape = shape.property_schema(name);
        let read = match group.as_slice() {
            [child] => coerce_element(child, shape, rules),
            _ => {
                // The schema of the items types each occurrence if the property is declared as an
                // array.
                let list = shape
                    .allowed_types()
                    .is_some_and(|types| types.has(JsonTypes::ARRAY));
                let shape = if list { shape.item_schema() } else { shape };
                Value::Array(
                    group
                        .iter()
                        .map(|child| coerce_element(child, shape, rules))
                        .collect(),
                )
            }
        };
        (name.to_owned(), read)
    };
    groups.into_iter().map(property).collect()
}

/// Reads the value of one element; its text if nothing else fits.
///
/// Never fails: a value that does not fit becomes a string, and validation reports it with the path
/// to it. The rules bound the recursion on nested or self-referring input.
fn coerce_element(element: &XmlElement<'_>, shape: SchemaView<'_>, rules: ElementRules) -> Value {
    let text = || Value::String(element.text().to_owned());
    let Some(rules) = rules.one_level_deeper() else {
        return text();
    };
    let declared = shape.allowed_types();
    if declared.is_none() && rules.marked {
        let children = element.child_elements();
        return children
            .filter(|children| !children.is_empty())
            .map_or_else(text, |children| build_untyped(&children, shape, rules));
    }
    let Some(types) = declared.filter(|types| !types.has(JsonTypes::STRING)) else {
        return text();
    };
    // White space around a scalar inside a structure is layout, not a mistake worth a record.
    let trimmed = element.text().trim_ascii();
    if let Some(value) = parse_scalar(trimmed, types) {
        return value;
    }
    if trimmed.starts_with(['{', '[']) {
        // Strict on purpose: a repair inside an element would have no span of its own to report.
        return lenient_json::parse_strict(trimmed).unwrap_or_else(|_| text());
    }
    let children = element.child_elements();
    match children {
        Some(children) if types.has(JsonTypes::ARRAY) => build_array(&children, shape, rules),
        None if types.has(JsonTypes::ARRAY) => {
            // Text inside the element of an array property: it is the only item.
            let items = shape.item_schema();
            Value::Array(vec![coerce_element(element, items, rules)])
        }
        children if types.has(JsonTypes::OBJECT) => {
            let inner = children.map(|children| build_object(&children, shape, rules));
            merge_attributes(element, inner, shape).map_or_else(text, Value::Object)
        }
        _ => text(),
    }
}

/// Builds an object from an element's attributes and its properties or text. `None` if there is only text and no property to hold it.
///
/// A nested property replaces an attribute of the same name.
fn merge_attributes(
    element: &XmlElement<'_>,
    inner: Option<Map<String, Value>>,
    shape: SchemaView<'_>,
) -> Option<Map<String, Value>> {
    let attribute = |(name, text): &(&str, &str)| {
        let types = shape
            .property_schema(name)
            .allowed_types()
            .filter(|types| !types.has(JsonTypes::STRING));
        let value = types.and_then(|types| parse_scalar(text, types));
        (
            (*name).to_owned(),
            value.unwrap_or_else(|| Value::String((*text).to_owned())),
        )
    };
    let mut object: Map<String, Value> = element.attributes.iter().map(attribute).collect();
    if let Some(inner) = inner {
        object.extend(inner);
        return Some(object);
    }
    let names = shape.property_names();
    // Only if declared; otherwise the name would be an unknown property.
    let usual = ["text", "content", "value"]
        .into_iter()
        .find(|name| names.contains(name));
    let is_string = |name: &&str| {
        shape
            .property_schema(name)
            .allowed_types()
            .is_some_and(|types| types.has(JsonTypes::STRING))
    };
    let only = || {
        let mut free = names
            .iter()
            .copied()
            .filter(|name| !object.contains_key(*name))
            .filter(is_string);
        free.next().filter(|_| free.next().is_none())
    };
    // Without a declared property or an attribute, the text is no object.
    if usual.is_none() && object.is_empty() {
        return None;
    }
    let key = usual.or_else(only).unwrap_or("text").to_owned();
    object.insert(key, Value::String(element.text().to_owned()));
    Some(object)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sabir_call::ArgumentEncoding;
    use serde_json::{Value, json};

    use super::{CoercionError, coerce_value};
    use crate::repair::RepairSet;
    use crate::schema::SchemaView;

    fn coerce(text: &str, form: ArgumentEncoding, schema: &Value) -> String {
        let shape = SchemaView::new(schema);
        match coerce_value(text, form, shape, shape.allowed_types(), RepairSet::all()) {
            Ok(reading) if reading.rules.is_empty() => reading.value.to_string(),
            Ok(reading) => format!("{} ({})", reading.value, reading.rules.join(", ")),
            Err(CoercionError::Type(types)) => format!("not {}", types.describe_types()),
            Err(CoercionError::Json(broken)) => format!("{} @{}", broken.message, broken.at),
        }
    }

    fn check(form: ArgumentEncoding, schema: Value, rows: &[(&str, &str)]) {
        for (text, expected) in rows {
            assert_eq!(
                coerce(text, form, &schema),
                *expected,
                "{text:?} as {schema}"
            );
        }
    }

    #[test]
    fn elements_behind_a_marker() {
        let order = json!({"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"},
            "items": {"type": "array", "items": {"type": "object", "properties": {"qty": {"type": "integer"}}}}}});
        let text = "§<city>a</city>§<zip>7§</zip>§<items>§<item>§<qty>2§</qty>§</item>§<item>§<qty>5§</qty>§</item>§</items>";
        let marked = |text: &str| {
            text.replace('§', super::MINIMAX_MARKER)
                .replace("a<", "a]<]minimax[>[<")
        };
        let expected = r#"{"city":"a","zip":7,"items":[{"qty":2},{"qty":5}]}"#;
        assert_eq!(
            coerce(&marked(text), ArgumentEncoding::Raw, &order),
            expected
        );
        // A `<` without the marker is content, and a marker in a string stays in it.
        let kept = marked("§<city>x < y <b> §<c>1§</c>§</city>§<zip>7§</zip>");
        assert_eq!(
            coerce(&kept, ArgumentEncoding::Raw, &order),
            json!({"city": format!("x < y <b> {0}<c>1{0}</c>", super::MINIMAX_MARKER), "zip": 7})
                .to_string()
        );
        let free = json!({"type": "object"});
        let check_free = |text: &str, expected: &str| {
            assert_eq!(
                coerce(&marked(text), ArgumentEncoding::Raw, &free),
                expected,
                "{text}"
            );
        };
        check_free("§<k>§<b>1§</b>§</k>", r#"{"k":{"b":"1"}}"#);
        check_free(
            "§<k>§<item>1§</item>§<item>2§</item>§</k>",
            r#"{"k":["1","2"]}"#,
        );
        check_free("§<k>1§</k>§<k>2§</k>", r#"{"k":["1","2"]}"#);
        let deep = |levels: usize| "§<n>".repeat(levels) + "1" + &"§</n>".repeat(levels);
        let value = (0..64).fold("\"1\"".to_owned(), |value, _| format!("{{\"n\":{value}}}"));
        check_free(&deep(64), &value);
        check_free(&deep(65), "not an object");
        assert_eq!(
            coerce(
                &marked("§<k>§<b>1§</b>§</k>"),
                ArgumentEncoding::Raw,
                &json!({})
            ),
            r#"{"k":{"b":"1"}}"#
        );
        let words = marked("§<city>a</city>");
        assert_eq!(
            coerce(&words, ArgumentEncoding::Raw, &json!({"type": "string"})),
            Value::from(words.as_str()).to_string()
        );
    }

    #[test]
    fn raw_scalars() {
        use ArgumentEncoding::Raw;
        check(Raw, json!({}), &[("10", "\"10\""), ("[1]", "\"[1]\"")]);
        check(
            Raw,
            json!({"type": "string"}),
            &[("10", "\"10\""), (" a\n", "\" a\\n\""), ("", "\"\"")],
        );
        check(
            Raw,
            json!({"type": "integer"}),
            &[
                ("10", "10"),
                ("-3", "-3"),
                ("10.0", "10"),
                ("1e2", "100"),
                (" 10\n", "10 (trimmed_scalar)"),
                ("18446744073709551615", "18446744073709551615"),
                ("ten", "not an integer"),
                ("10.5", "not an integer"),
                ("007", "not an integer"),
                ("+1", "not an integer"),
                ("1e300", "not an integer"),
                ("\"10\"", "not an integer"),
                ("", "not an integer"),
                ("true", "not an integer"),
            ],
        );
        check(
            Raw,
            json!({"type": "number"}),
            &[
                ("30", "30"),
                ("1.5", "1.5"),
                ("1.", "not a number"),
                ("NaN", "not a number"),
            ],
        );
        check(
            Raw,
            json!({"type": "boolean"}),
            &[
                ("true", "true"),
                ("True", "true"),
                ("False", "false"),
                ("\ttrue ", "true (trimmed_scalar)"),
                ("TRUE", "not true or false"),
                ("yes", "not true or false"),
                ("1", "not true or false"),
            ],
        );
        check(
            Raw,
            json!({"type": ["integer", "null"]}),
            &[
                ("10", "10"),
                ("null", "null"),
                ("", "not an integer or null"),
            ],
        );
        check(
            Raw,
            json!({"type": ["string", "integer"]}),
            &[("10", "\"10\""), ("```\n10\n```", "\"```\\n10\\n```\"")],
        );
        check(
            Raw,
            json!({"type": "integer"}),
            &[("```json\n10\n```", "10 (fenced_json)")],
        );
        check(
            Raw,
            json!({"type": ["string", "null"]}),
            &[("null", "null"), ("None", "\"None\""), ("nul", "\"nul\"")],
        );
        check(Raw, json!({"enum": [1, 2]}), &[("2", "2")]);
    }

    #[test]
    fn raw_structures() {
        use ArgumentEncoding::Raw;
        let strings = json!({"type": "array", "items": {"type": "string"}});
        check(
            Raw,
            strings,
            &[
                ("[\"a\", \"b\"]", "[\"a\",\"b\"]"),
                ("\n[1, 2,]\n", "[1,2] (trailing_comma)"),
                ("['a']", "[\"a\"] (single_quotes)"),
                (
                    "[{\"a\": {\"b\": 1, \"b\": 2}}]",
                    "the key `b` is given twice @16",
                ),
                ("```json\n[\"a\"]\n```", "[\"a\"] (fenced_json)"),
                (
                    "\n```\n['a',]\n```\n",
                    "[\"a\"] (fenced_json, trailing_comma, single_quotes)",
                ),
                ("```json\n[1 2]\n```", "expected `,` or `]` @11"),
                ("```json\n[1]", "not an array"),
                ("[1 2]", "expected `,` or `]` @3"),
                ("[1", "the text ends too early @2"),
                (
                    "\n<suggest>a</suggest>\n<suggest mode=\"code\">b</suggest>\n",
                    "[\"a\",\"b\"]",
                ),
                ("<suggest>10</suggest>", "[\"10\"]"),
                ("", "[]"),
                ("a, b", "not an array"),
                ("<a>1</a> and", "not an array"),
            ],
        );
        let files = json!({"type": "array", "items": {"type": "object", "properties": {
            "path": {"type": "string"}, "line_range": {"type": "string"}, "n": {"type": "integer"}}}});
        check(
            Raw,
            files,
            &[
                (
                    "<file><path>p</path><line_range>1-50</line_range></file>",
                    r#"[{"path":"p","line_range":"1-50"}]"#,
                ),
                (
                    "<file>\n<path>p</path>\n<n> 3 </n>\n</file><file><path>q</path></file>",
                    r#"[{"path":"p","n":3},{"path":"q"}]"#,
                ),
                ("<path>p</path><n>1</n>", r#"[{"path":"p","n":1}]"#),
                ("<file n=\"3\">x</file>", r#"[{"n":3,"text":"x"}]"#),
                ("<file>x</file>", r#"["x"]"#),
                (
                    "<file><path>p</path><n>many</n></file>",
                    r#"[{"path":"p","n":"many"}]"#,
                ),
                ("<file/>", "[{}]"),
            ],
        );
    }

    #[test]
    fn raw_objects() {
        use ArgumentEncoding::Raw;
        let suggestions = json!({"type": "array", "items": {"type": "object", "properties": {
            "answer": {"type": "string"}, "mode": {"type": "string"}}}});
        check(
            Raw,
            suggestions,
            &[(
                "<suggest mode=\"code\">b</suggest>",
                r#"[{"mode":"code","answer":"b"}]"#,
            )],
        );
        let object = json!({"type": "object", "properties": {
            "file": {"type": "array", "items": {"type": "string"}}, "deep": {"type": "object", "properties": {"b": {"type": "boolean"}}}}});
        check(
            Raw,
            object,
            &[
                ("<file>a</file><file>b</file>", r#"{"file":["a","b"]}"#),
                ("<file>a</file>", r#"{"file":["a"]}"#),
                ("<file><x>a</x><x>b</x></file>", r#"{"file":["a","b"]}"#),
                (
                    "<deep><b>true</b></deep><other>1</other>",
                    r#"{"deep":{"b":true},"other":"1"}"#,
                ),
                ("<deep>{\"b\": 1}</deep>", r#"{"deep":{"b":1}}"#),
                (
                    "<deep>{\"b\": 1, \"b\": 1}</deep>",
                    r#"{"deep":"{\"b\": 1, \"b\": 1}"}"#,
                ),
                ("<o>1</o><o>2</o>", r#"{"o":["1","2"]}"#),
                ("{}", "{}"),
                ("", "{}"),
            ],
        );
    }

    #[test]
    fn strings_and_json() {
        use ArgumentEncoding::{Json, String};
        check(
            String,
            json!({"type": "integer"}),
            &[
                ("10", "10 (stringified_value)"),
                (" 10", "not an integer"),
                ("ten", "not an integer"),
            ],
        );
        check(
            String,
            json!({"type": "boolean"}),
            &[
                ("true", "true (stringified_value)"),
                ("True", "not true or false"),
            ],
        );
        check(
            String,
            json!({"type": "array"}),
            &[
                ("[1]", "[1] (double_encoding)"),
                ("```json\n[1]\n```", "[1] (fenced_json, double_encoding)"),
                ("[{\"a\": 1, \"a\": 1}]", "not an array"),
                ("{}", "not an array"),
                ("", "not an array"),
            ],
        );
        check(
            String,
            json!({"type": "object"}),
            &[
                ("{\"a\": 1}", "{\"a\":1} (double_encoding)"),
                ("{\"a\": 1", "not an object"),
            ],
        );
        check(
            String,
            json!({"type": ["object", "string"]}),
            &[("{}", "\"{}\"")],
        );
        check(
            Json,
            json!({"type": "integer"}),
            &[
                ("10.0", "10"),
                ("10.5", "10.5"),
                ("tru", "the text ends too early @3"),
                ("```\n10\n```", "10 (fenced_json)"),
            ],
        );
        check(
            Json,
            json!({"type": "boolean"}),
            &[("True", "true (python_literal)")],
        );
        check(Json, json!({"type": "string"}), &[("10", "10")]);
    }

    #[test]
    fn depth_is_bounded() {
        let schema = json!({"type": "array", "items": {"$ref": "#"}});
        let text = "<a>".repeat(2000) + &"</a>".repeat(2000);
        let Value::Array(_) =
            serde_json::from_str(&coerce(&text, ArgumentEncoding::Raw, &schema)).unwrap()
        else {
            panic!()
        };
        // An item that is a list of itself, of text: the only-item rule must end too.
        assert!(coerce("<a>x</a>", ArgumentEncoding::Raw, &schema).starts_with("[["));
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec![
            "string", "integer", "number", "boolean", "null", "array", "object", "odd",
        ]);
        let leaf = prop_oneof![
            Just(json!(true)),
            Just(json!(null)),
            Just(json!({"$ref": "#"})),
            Just(json!({"$ref": "#/nowhere"})),
            Just(json!({"type": 3, "enum": "x", "properties": [], "required": {}})),
            kind.prop_map(|kind| json!({"type": kind})),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4);
            prop_oneof![
                inner
                    .clone()
                    .prop_map(|items| json!({"type": "array", "items": items})),
                (inner.clone(), inner)
                    .prop_map(|(a, b)| json!({"type": "object", "properties": {"a": a, "b": b}})),
                list.clone().prop_map(|list| json!({"anyOf": list})),
                list.prop_map(|list| json!({"allOf": list, "items": {"$ref": "#"}})),
            ]
        })
    }

    fn texts() -> impl Strategy<Value = String> {
        let pieces = vec![
            "<a>",
            "</a>",
            "<b x='1'>",
            "</b>",
            "<a/>",
            "\n",
            " ",
            "1",
            "{",
            "}",
            "[",
            "]",
            "\"",
            ",",
            "True",
            "é",
            "<",
        ];
        let markup = prop::collection::vec(prop::sample::select(pieces), 0..24)
            .prop_map(|pieces| pieces.concat());
        prop_oneof![markup, ".*"]
    }

    proptest! {
        #[test]
        fn any_text_of_any_schema_is_read_without_panic(schema in schemas(), text in texts()) {
            for form in [ArgumentEncoding::Raw, ArgumentEncoding::String, ArgumentEncoding::Json] {
                coerce(&text, form, &schema);
            }
        }

        #[test]
        fn strings_are_byte_exact(text in any::<String>()) {
            for schema in [json!({"type": "string"}), json!({}), json!({"type": ["string", "integer", "object"]})] {
                for form in [ArgumentEncoding::Raw, ArgumentEncoding::String] {
                    prop_assert_eq!(coerce(&text, form, &schema), Value::String(text.clone()).to_string());
                }
            }
        }
    }
}
