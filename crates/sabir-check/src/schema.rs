//! Reads a tool's JSON Schema: the declared arguments and types, and the validation of typed values.
//!
//! Coercion asks what a schema *allows* before there is a value ([`SchemaView`]); validation needs the whole schema
//! ([`CompiledSchema`](crate::compiled_schema::CompiledSchema)).
//!
//! Supported in a [`SchemaView`]: `type`, `enum`, `const`, `properties`, `items`, `required`, `additionalProperties`, local
//! `$ref` (`#` and `#/…`), and all of these through `allOf`, `anyOf` and `oneOf`. Unsupported, hence treated as "anything":
//! `$anchor`, `$dynamicRef`, `if`, `not`, `prefixItems`. Every walk has a budget, because schemas come from untrusted
//! servers and may refer to themselves.

use serde_json::{Map, Value};

/// The largest number of schema nodes that one query visits. Real tools have a few dozen. Beyond the limit the rest counts as unrestricted,
/// and the compiled validator decides.
const MAX_SCHEMA_NODES: u32 = 512;

/// The schema `true`, which accepts every value (JSON Schema core, section 4.3.2).
static ANYTHING: Value = Value::Bool(true);

/// A set of JSON types.
///
/// A bit for each type. `number` of a schema is two bits, because coercion treats whole numbers
/// separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonTypes(u8);

impl JsonTypes {
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(2);
    pub(crate) const INTEGER: Self = Self(4);
    /// Numbers with a fraction. A schema's `number` is this and [`JsonTypes::INTEGER`].
    pub(crate) const NUMBER: Self = Self(8);
    pub(crate) const STRING: Self = Self(16);
    pub(crate) const ARRAY: Self = Self(32);
    pub(crate) const OBJECT: Self = Self(64);
    pub(crate) const ALL: Self = Self(127);

    /// Returns true if the sets have a common type.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the types of this set that are not in the other one.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn intersect_with(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn union_with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Converts a name in a schema's `type`.
    fn from_name(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER.union_with(Self::INTEGER),
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            // An unknown name makes the schema invalid, which `CompiledSchema` reports.
            _ => Self::ALL,
        }
    }

    /// Returns the set of types that allow this value of an `enum` or `const`.
    ///
    /// A float does not get the integer bit, so that `enum: [1.5]` is not described as an integer.
    fn of_value(value: &Value) -> Self {
        Self::from_name(sabir_call::json_type_name(value)).without(match value {
            Value::Number(number) if number.is_f64() => Self::INTEGER,
            _ => Self(0),
        })
    }

    /// Describes the set in words, such as `an integer or null`.
    pub(crate) fn describe_types(self) -> String {
        // "a number" covers integers.
        let whole = if self.has(Self::NUMBER) {
            ""
        } else {
            "an integer"
        };
        let rows = [
            (Self::STRING, "a string"),
            (Self::INTEGER, whole),
            (Self::NUMBER, "a number"),
            (Self::BOOLEAN, "true or false"),
            (Self::ARRAY, "an array"),
            (Self::OBJECT, "an object"),
            (Self::NULL, "null"),
        ];
        let words: Vec<&str> = rows
            .iter()
            .filter(|(one, word)| self.has(*one) && !word.is_empty())
            .map(|row| row.1)
            .collect();
        words.join(" or ")
    }
}

/// A node of a tool's schema, together with the root that `$ref` needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaView<'a> {
    root: &'a Value,
    at: &'a Value,
}

/// The branches of a schema that a query includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BranchMode {
    /// Only branches that always apply: `$ref` and `allOf`.
    Certain,
    /// Also branches that may apply: `anyOf` and `oneOf`.
    Possible,
}

impl<'a> SchemaView<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self { root, at: root }
    }

    /// Returns the allowed types; `None` if the schema declares none or contradicts itself.
    ///
    /// A contradiction counts as no declaration: coercion then keeps the text, and validation,
    /// which sees the whole schema, rejects the value with a reason.
    pub(crate) fn allowed_types(self) -> Option<JsonTypes> {
        let types = self.types_of(self.at, &mut MAX_SCHEMA_NODES.clone());
        (types != JsonTypes::ALL && !types.is_empty()).then_some(types)
    }

    /// Returns true if every string is certainly allowed: one branch of the schema demands a string and nothing else.
    ///
    /// Only listed keywords are accepted: another one might restrict the string (`pattern`, `format`, `maxLength`), and forwarded pieces
    /// cannot be recalled.
    pub(crate) fn is_free_text(self) -> bool {
        const WORDS: [&str; 7] = [
            "type",
            "title",
            "description",
            "default",
            "examples",
            "deprecated",
            "nullable",
        ];
        let plain = |schema: &Value| {
            let string = match schema.get("type") {
                Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
                name => name.is_some_and(|name| name == "string"),
            };
            string
                && schema
                    .as_object()
                    .is_some_and(|object| object.keys().all(|key| WORDS.contains(&key.as_str())))
        };
        let around = |object: &Map<String, Value>| {
            object
                .keys()
                .all(|key| key == "anyOf" || WORDS.contains(&key.as_str()))
        };
        // Beside `anyOf` a `type` narrows all branches, so a free branch would prove nothing.
        let branch =
            || list_subschemas(self.at, "anyOf").any(plain) && self.at.get("type").is_none();
        plain(self.at) || (self.at.as_object().is_some_and(around) && branch())
    }

    /// Returns the schema of a property; one that allows anything if the property is not declared.
    ///
    /// Properties of possible branches count as well: before a value is typed it is unknown which
    /// branch of an `anyOf` it will match.
    pub(crate) fn property_schema(self, name: &str) -> Self {
        let parts = self.schema_parts(BranchMode::Possible);
        let declared = parts
            .iter()
            .find_map(|part| part.get("properties")?.get(name));
        let other = || {
            parts.iter().find_map(|part| {
                part.get("additionalProperties")
                    .filter(|other| other.is_object())
            })
        };
        self.with_node(declared.or_else(other).unwrap_or(&ANYTHING))
    }

    /// Returns the schema of an array's items; one that allows anything if none is declared.
    pub(crate) fn item_schema(self) -> Self {
        let parts = self.schema_parts(BranchMode::Possible);
        self.with_node(
            parts
                .iter()
                .find_map(|part| part.get("items"))
                .unwrap_or(&ANYTHING),
        )
    }

    /// Returns the names of the declared properties, in order.
    pub(crate) fn property_names(self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for part in self.schema_parts(BranchMode::Possible) {
            for name in part
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(|all| all.keys())
            {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Returns the names of the properties that are always required.
    ///
    /// Only certain branches count. A name that one alternative requires may rightly be missing in
    /// another; validation decides about those.
    pub(crate) fn required_names(self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for part in self.schema_parts(BranchMode::Certain) {
            for name in part
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Returns true if an undeclared property is a mistake.
    ///
    /// JSON Schema leaves an object open unless it says otherwise. A tool, however, does not read undeclared arguments, so the model must
    /// have misunderstood it. A schema is open only if it says so (`additionalProperties`, `patternProperties`) or declares no properties
    /// at all.
    pub(crate) fn is_closed(self) -> bool {
        let parts = self.schema_parts(BranchMode::Possible);
        let says = |key: &str, is: fn(&Value) -> bool| {
            parts.iter().any(|part| part.get(key).is_some_and(is))
        };
        let open = says("additionalProperties", |value| *value != Value::Bool(false))
            || says("patternProperties", |_| true);
        !open
            && (says("properties", |_| true)
                || says("additionalProperties", |value| *value == Value::Bool(false)))
    }

    /// Moves to another node of the same document, so that `$ref` keeps its root.
    fn with_node(self, at: &'a Value) -> Self {
        Self { at, ..self }
    }

    /// Computes the set of types that the keywords of a schema leave.
    ///
    /// `budget` counts the visited nodes of the whole query, not the depth: a schema whose two
    /// branches both refer to itself would take exponential time within any depth limit.
    fn types_of(self, schema: &Value, budget: &mut u32) -> JsonTypes {
        if *budget == 0 {
            return JsonTypes::ALL;
        }
        *budget -= 1;
        let union = |types: &mut dyn Iterator<Item = JsonTypes>| {
            types.fold(JsonTypes(0), JsonTypes::union_with)
        };
        // Every keyword can only narrow the set, and alternatives widen it among themselves.
        let mut types = match schema.get("type") {
            Some(Value::String(name)) => JsonTypes::from_name(name),
            Some(Value::Array(names)) => union(
                &mut names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(JsonTypes::from_name),
            ),
            _ => JsonTypes::ALL,
        };
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            types = types.intersect_with(union(&mut values.iter().map(JsonTypes::of_value)));
        }
        if let Some(value) = schema.get("const") {
            types = types.intersect_with(JsonTypes::of_value(value));
        }
        if let Some(target) = self.resolve_reference(schema) {
            types = types.intersect_with(self.types_of(target, budget));
        }
        for branch in list_subschemas(schema, "allOf") {
            types = types.intersect_with(self.types_of(branch, budget));
        }
        for key in ["anyOf", "oneOf"] {
            if schema.get(key).is_some_and(Value::is_array) {
                types = types.intersect_with(union(
                    &mut list_subschemas(schema, key).map(|branch| self.types_of(branch, budget)),
                ));
            }
        }
        // Many schemas leave out a `type` that `properties` or `items` implies.
        match types {
            JsonTypes::ALL if schema.get("properties").is_some() => JsonTypes::OBJECT,
            JsonTypes::ALL if schema.get("items").is_some() => JsonTypes::ARRAY,
            types => types,
        }
    }

    /// Returns this schema and those it is composed of, nearest first.
    fn schema_parts(self, branches: BranchMode) -> Vec<&'a Value> {
        let mut parts = vec![self.at];
        let mut next = 0;
        while let Some(&part) = parts.get(next) {
            next += 1;
            parts.extend(self.resolve_reference(part));
            parts.extend(list_subschemas(part, "allOf"));
            if branches == BranchMode::Possible {
                parts.extend(list_subschemas(part, "anyOf").chain(list_subschemas(part, "oneOf")));
            }
            // Ends the walk of a schema that refers to itself.
            parts.truncate(MAX_SCHEMA_NODES as usize);
        }
        parts
    }

    /// Returns the target of a local `$ref`; `#` alone is the root, `#/…` a JSON pointer. An anchor
    /// or another document has no target here.
    fn resolve_reference(self, schema: &Value) -> Option<&'a Value> {
        sabir_call::resolve_reference(self.root, schema)
    }
}

/// Returns the schemas in a keyword whose value is a list; none if it is something else.
fn list_subschemas<'v>(schema: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::SchemaView;

    fn check(schema: Value, expected: &str) {
        let shape = SchemaView::new(&schema);
        let types = shape
            .allowed_types()
            .map_or("anything".to_owned(), super::JsonTypes::describe_types);
        let closed = if shape.is_closed() { "closed" } else { "open" };
        let names = shape.property_names().join(",");
        let required = shape.required_names().join(",");
        assert_eq!(
            format!("{types}; {closed}; {names}; {required}"),
            expected,
            "{schema}"
        );
    }

    #[test]
    fn shapes() {
        check(json!({}), "anything; open; ; ");
        check(json!(true), "anything; open; ; ");
        check(json!({"type": "number"}), "a number; open; ; ");
        check(
            json!({"type": ["integer", "null"]}),
            "an integer or null; open; ; ",
        );
        check(
            json!({"enum": [1, 2, "x"]}),
            "a string or an integer; open; ; ",
        );
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "array"}]}),
            "a string or an array; open; ; ",
        );
        check(json!({"items": {"type": "string"}}), "an array; open; ; ");
        check(
            json!({"properties": {"a": {}}, "required": ["a"]}),
            "an object; closed; a; a",
        );
        check(
            json!({"properties": {"a": {}}, "additionalProperties": {}}),
            "an object; open; a; ",
        );
        check(
            json!({"properties": {}, "additionalProperties": false}),
            "an object; closed; ; ",
        );
        check(
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}}),
            "an object; closed; a; a",
        );
        for (reference, name) in [
            ("#/$defs/a%20b", "a b"),
            ("#/$defs/a~1b", "a/b"),
            ("#/$defs/%C3%A4", "ä"),
            ("#/$defs/50%", "50%"),
        ] {
            let target = json!({"type": "object", "properties": {"a": {}}});
            check(
                json!({"$ref": reference, "$defs": {name: target}}),
                "an object; closed; a; ",
            );
        }
        check(
            json!({"type": "object", "allOf": [{"properties": {"a": {}}, "required": ["a"]}],
                   "anyOf": [{"properties": {"b": {}}, "required": ["b"]}]}),
            "an object; closed; a,b; a",
        );
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        check(json!({"$ref": "#"}), "anything; open; ; ");
        let branches = vec![json!({"$ref": "#"}); 20];
        check(
            json!({"anyOf": branches, "allOf": [{"$ref": "#"}]}),
            "anything; open; ; ",
        );
    }
}
