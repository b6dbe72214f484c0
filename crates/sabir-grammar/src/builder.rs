//! Builds the grammar of a dialect from the layout of its calls and the schemas of the tools.

use std::collections::BTreeSet;

use sabir_call::dialect::{
    ArgumentLayout, ArgumentNotation, CallLayout, Dialect, DialectSelection, LayoutPart,
    ValueEncoding,
};
use sabir_call::{
    Call, CallReader, DraftResponse, DraftState, ParallelCalls, ToolSet, ToolSpec, Truncation,
    json_type_name, resolve_reference,
};
use serde_json::{Map, Value, json};

use crate::expression::{CharClass, Expression, Grammar, Rule};
use crate::keyword_locations::find_keywords;
use crate::plain_text::text_without;
use crate::sampler::Sampler;
use crate::value::{
    OptionalItem, Relaxation, ValueBuilder, ValueNotation, is_type_name, join_optional,
    listed_values, required_names, type_names,
};
use crate::{GrammarError, GrammarFormat};

/// The samples of each tool's rule that must be read back before a grammar is given out.
const TRIAL_SAMPLES: usize = 8;
/// The most nested `$ref`s and branches of one argument's schema.
const MAX_BRANCHES: usize = 8;
/// All types of JSON values.
const ALL_TYPES: [&str; 6] = ["string", "number", "boolean", "null", "array", "object"];

/// The grammar of a dialect's calls of some tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallGrammar {
    /// The grammar of a message that consists of calls. Its rules after the root are one for each tool, then those below.
    pub grammar: Grammar,
    /// The calls, one rule for each tool.
    pub tools: Vec<ToolRule>,
    /// The layout that the grammar was built from.
    pub layout: CallLayout,
    /// The places where the grammar accepts more than the schemas.
    pub relaxations: Vec<Relaxation>,
    /// The name of the dialect.
    pub dialect: String,
}

/// The rule of a tool's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRule {
    /// The tool's name.
    pub name: String,
    /// The text before the arguments.
    pub open: String,
    /// The index of the rule for the arguments.
    pub arguments: usize,
    /// The text after the arguments.
    pub close: String,
    /// The closing markup that a raw value must not contain, in a dialect with tags.
    pub stops: Vec<String>,
}

/// Builds the grammar of a message that calls one of these tools, or several of them.
///
/// # Errors
/// There is no tool, or the dialect cannot write calls of one of them.
pub fn build_grammar(
    dialect: &Dialect,
    tools: &ToolSet,
    calls: ParallelCalls,
) -> Result<CallGrammar, GrammarError> {
    let layout = dialect.call_layout();
    let empty = Value::Null;
    let root = Rule {
        name: "root".to_owned(),
        expression: Expression::literal(""),
    };
    // The root must be the first rule, but refers to all others, so its content is added at the
    // end.
    let mut builder = ValueBuilder::new(Grammar { rules: vec![root] }, &empty);
    let specs: Vec<&ToolSpec> = tools.iter().collect();
    if specs.is_empty() {
        return Err(GrammarError::NoTools);
    }
    let mut rules = Vec::new();
    let mut choices = Vec::new();
    for spec in specs {
        builder.tool = &spec.name;
        builder.root = &spec.parameters;
        for note in find_keywords(&spec.parameters, &["format"]) {
            builder.note(&note.place, note.keyword);
        }
        let arguments = call_arguments(&mut builder, &layout, spec);
        let arguments = builder.add_rule(&format!("{}-arguments", spec.name), arguments);
        let call = call_expression(&layout, &spec.name, arguments, calls);
        choices.push(Expression::Rule(
            builder.add_rule(&format!("call-{}", spec.name), call),
        ));
        let text_of = |parts: &[LayoutPart]| fixed_text(parts, &spec.name, "");
        let mut halves = layout.call.split(|part| *part == LayoutPart::Arguments);
        rules.push(ToolRule {
            name: spec.name.clone(),
            open: text_of(halves.next().unwrap_or_default()),
            arguments,
            close: text_of(halves.next().unwrap_or_default()),
            stops: stop_texts(&layout.arguments, spec),
        });
    }
    let call = Expression::Rule(builder.add_rule("call", Expression::choice(choices)));
    let more = match calls {
        ParallelCalls::One => Expression::literal(""),
        ParallelCalls::Many => {
            Expression::sequence([Expression::literal(layout.between.clone()), call.clone()])
                .repeat(0, None)
        }
    };
    let run = Expression::sequence([
        Expression::literal(layout.run_open.clone()),
        call,
        more,
        Expression::literal(layout.run_close.clone()),
    ]);
    if let Some(root) = builder.grammar.rules.first_mut() {
        root.expression = run;
    }
    if let Some(contradiction) = builder.contradiction {
        return Err(contradiction);
    }
    let mut grammar = builder.grammar;
    let depths = grammar.min_depths();
    let is_endless = |tool: &&ToolRule| depths.get(tool.arguments) == Some(&usize::MAX);
    if let Some(tool) = rules.iter().find(is_endless) {
        let tool = tool.name.clone();
        return Err(GrammarError::NoFiniteValue { tool });
    }
    // A model that began such a part could never end it.
    grammar.remove_infinite_parts();
    if let Some(rule) = grammar.find_left_recursion() {
        let rule = rule.name.clone();
        return Err(GrammarError::LeftRecursive { rule });
    }
    let built = CallGrammar {
        grammar,
        tools: rules,
        layout,
        relaxations: builder.relaxations,
        dialect: dialect.name.to_owned(),
    };
    // A name may contain markup of the dialect, and no list of forbidden characters fits all
    // dialects, so sample calls are parsed.
    built.try_samples(dialect, tools)?;
    Ok(built)
}

impl CallGrammar {
    /// Reads samples of each tool back: a name that the dialect cannot write would make a grammar whose calls nobody reads.
    fn try_samples(&self, dialect: &Dialect, tools: &ToolSet) -> Result<(), GrammarError> {
        for tool in &self.tools {
            let single = self.single_tool_grammar(tool);
            // A fixed seed: the same tools must be accepted or refused in every run.
            let mut sampler = Sampler::new(&single, 1);
            for _ in 0..TRIAL_SAMPLES {
                let text = sampler
                    .next_text()
                    .map_err(|long| GrammarError::LongCalls {
                        tool: tool.name.clone(),
                        rule: long.rule,
                    })?;
                let mut draft = DraftResponse::default();
                let mut reader = CallReader::new(DialectSelection::from(dialect), tools);
                reader.push(&text, &mut draft);
                reader.finish(Truncation::Ended, &mut draft);
                let calls: Vec<_> = draft.calls().collect();
                let is_read = matches!(calls.as_slice(), [call] if call.name == tool.name && call.state == DraftState::Closed);
                if !is_read {
                    return Err(GrammarError::Unwritable {
                        dialect: self.dialect.clone(),
                        tool: tool.name.clone(),
                        text,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the places where the grammar accepts more than the schemas in this format. A JSON Schema restricts no strings.
    pub fn relaxations_in(&self, tools: &ToolSet, format: GrammarFormat) -> Vec<Relaxation> {
        let mut relaxations = self.relaxations.clone();
        for spec in tools.iter().filter(|_| format == GrammarFormat::JsonSchema) {
            for note in find_keywords(&spec.parameters, &["minLength", "maxLength"]) {
                let relaxation = Relaxation {
                    tool: spec.name.clone(),
                    place: note.place,
                    keyword: note.keyword.to_owned(),
                };
                if !relaxations.contains(&relaxation) {
                    relaxations.push(relaxation);
                }
            }
        }
        relaxations
    }

    /// Reports whether an argument of a call contains closing markup of the call itself. The renderer may write such a value as it
    /// is, but the grammar accepts it as escaped JSON only.
    pub fn holds_own_markup(&self, call: &Call) -> bool {
        let Some(tool) = self.tools.iter().find(|tool| tool.name == call.name) else {
            return false;
        };
        call.arguments
            .values()
            .any(|value| holds_any_text(value, &tool.stops))
    }

    /// Returns the grammar of a message with one call of this tool.
    pub fn single_tool_grammar(&self, tool: &ToolRule) -> Grammar {
        let mut grammar = self.grammar.clone();
        if let Some(root) = grammar.rules.first_mut() {
            root.expression = Expression::sequence([
                Expression::literal(self.layout.run_open.clone()),
                Expression::literal(tool.open.clone()),
                Expression::Rule(tool.arguments),
                Expression::literal(tool.close.clone()),
                Expression::literal(self.layout.run_close.clone()),
            ]);
        }
        grammar
    }

    /// Returns the grammar of a tool's arguments alone.
    pub fn arguments_grammar(&self, tool: &ToolRule) -> Grammar {
        let mut grammar = self.grammar.clone();
        // The rules are referred to by index, so the root is replaced and none is removed before
        // that.
        if let Some(root) = grammar.rules.first_mut() {
            root.expression = Expression::Rule(tool.arguments);
        }
        grammar.drop_unused_rules()
    }
}

impl Grammar {
    /// Removes the rules that the root does not lead to.
    #[must_use]
    pub fn drop_unused_rules(&self) -> Self {
        let mut used = BTreeSet::new();
        let mut open = vec![0];
        while let Some(index) = open.pop() {
            if used.insert(index) {
                self.expression(index)
                    .visit_rules(&mut |next| open.push(next));
            }
        }
        // The set is sorted, so the root stays the first rule, and new indexes can be found by
        // bisection.
        let kept: Vec<usize> = used.into_iter().collect();
        let place = |index: usize| kept.binary_search(&index).unwrap_or(usize::MAX);
        let rules = kept
            .iter()
            .filter_map(|index| self.rules.get(*index))
            .map(|rule| Rule {
                name: rule.name.clone(),
                expression: renumber(&rule.expression, &place),
            });
        Self {
            rules: rules.collect(),
        }
    }
}

fn renumber(expression: &Expression, place: &dyn Fn(usize) -> usize) -> Expression {
    let all = |items: &[Expression]| items.iter().map(|item| renumber(item, place)).collect();
    match expression {
        Expression::Rule(index) => Expression::Rule(place(*index)),
        Expression::Sequence(items) => Expression::Sequence(all(items)),
        Expression::Choice(items) => Expression::Choice(all(items)),
        Expression::Repeat { item, min, max } => Expression::Repeat {
            item: Box::new(renumber(item, place)),
            min: *min,
            max: *max,
        },
        other => other.clone(),
    }
}

/// Reports whether a string in a value contains one of these texts.
fn holds_any_text(value: &Value, texts: &[String]) -> bool {
    let is_held = |string: &str| texts.iter().any(|text| string.contains(text.as_str()));
    match value {
        Value::String(string) => is_held(string),
        Value::Array(items) => items.iter().any(|item| holds_any_text(item, texts)),
        Value::Object(map) => map
            .iter()
            .any(|(key, item)| is_held(key) || holds_any_text(item, texts)),
        _ => false,
    }
}

/// Returns the closing markup of a tool's calls, in a dialect with tags.
fn stop_texts(arguments: &ArgumentNotation, spec: &ToolSpec) -> Vec<String> {
    let ArgumentNotation::Tagged { stops, .. } = arguments else {
        return Vec::new();
    };
    // A part without an argument's name gives the same text for each argument.
    let names = spec.declared_arguments().map(|argument| argument.name);
    let texts: BTreeSet<String> = names
        // The empty name stands for a part without a name, so that a tool without arguments has its
        // stops too.
        .chain([""])
        .flat_map(|name| {
            let stops = stops
                .iter()
                .filter(move |stop| !name.is_empty() || !stop.contains(&LayoutPart::ArgumentName));
            stops.map(move |stop| fixed_text(stop, &spec.name, name))
        })
        .collect();
    texts.into_iter().collect()
}

/// Renders the parts of a layout that are fixed for a tool and an argument. The first call has the number 0.
fn fixed_text(parts: &[LayoutPart], tool: &str, argument: &str) -> String {
    parts
        .iter()
        .map(|part| match part {
            LayoutPart::Text(text) => text.as_str(),
            LayoutPart::ToolName => tool,
            LayoutPart::ArgumentName => argument,
            LayoutPart::CallNumber => "0",
            LayoutPart::Arguments => "",
        })
        .collect()
}

/// Writes a call of a tool.
fn call_expression(
    layout: &CallLayout,
    tool: &str,
    arguments: usize,
    calls: ParallelCalls,
) -> Expression {
    let digits = || {
        // No message has more than a thousand calls. Without a bound, a model could write digits
        // forever.
        let more = Expression::ranges(&[('0', '9')]).repeat(0, Some(2));
        Expression::choice([
            Expression::literal("0"),
            Expression::sequence([Expression::ranges(&[('1', '9')]), more]),
        ])
    };
    Expression::sequence(layout.call.iter().map(|part| match part {
        LayoutPart::Arguments => Expression::Rule(arguments),
        LayoutPart::CallNumber if calls == ParallelCalls::Many => digits(),
        fixed => Expression::literal(fixed_text(std::slice::from_ref(fixed), tool, "")),
    }))
}

/// Writes the arguments of a tool's call.
fn call_arguments(
    builder: &mut ValueBuilder<'_>,
    layout: &CallLayout,
    spec: &ToolSpec,
) -> Expression {
    // A tool without declared arguments takes none, whatever its schema would allow.
    let mut schema = spec.parameters.clone();
    // Schema generators often put the whole schema into a definition, with only a reference at the
    // top.
    if let Some(reached) = resolve_reference(&spec.parameters, &spec.parameters) {
        schema = reached.clone();
        builder.note_beside_reference(&spec.parameters, "");
    }
    if schema.get("properties").is_none() {
        schema = json!({"type": "object", "properties": {}, "required": schema.get("required").cloned().unwrap_or_else(|| json!([]))});
    }
    let braces = |members: Expression| {
        Expression::sequence([Expression::literal("{"), members, Expression::literal("}")])
    };
    match &layout.arguments {
        ArgumentNotation::Json => {
            builder.notation = ValueNotation::Json { stops: Vec::new() };
            braces(builder.members(&schema, "", 0))
        }
        ArgumentNotation::Python => {
            builder.notation = ValueNotation::Python;
            builder.members(&schema, "", 0)
        }
        ArgumentNotation::Gemma { quote } => {
            builder.notation = ValueNotation::Gemma {
                quote: (*quote).to_owned(),
            };
            braces(builder.members(&schema, "", 0))
        }
        ArgumentNotation::Tagged { forms, .. } => {
            let stops = stop_texts(&layout.arguments, spec);
            tagged_arguments(builder, &schema, spec, forms, &stops)
        }
    }
}

fn tagged_arguments(
    builder: &mut ValueBuilder<'_>,
    schema: &Value,
    spec: &ToolSpec,
    forms: &[ArgumentLayout],
    stops: &[String],
) -> Expression {
    let properties: Map<String, Value> = schema
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let required = required_names(schema);
    let items: Vec<OptionalItem> = properties
        .iter()
        .map(|(name, schema)| {
            let argument = TaggedArgument {
                name,
                tool: &spec.name,
                forms,
                stops: stops.to_vec(),
            };
            let expression = argument.write(builder, schema);
            // Each argument is a rule, since `join_optional` names it once for each place where the
            // arguments may begin.
            let rule = builder.add_rule(&format!("{}-{name}", spec.name), expression);
            OptionalItem {
                is_required: required.contains(&name.as_str()),
                expression: Expression::Rule(rule),
            }
        })
        .collect();
    join_optional(&items, &Expression::literal(""))
}

/// An argument in a tag of its own.
struct TaggedArgument<'a> {
    name: &'a str,
    tool: &'a str,
    forms: &'a [ArgumentLayout],
    /// Texts that a raw value must not contain.
    stops: Vec<String>,
}

impl TaggedArgument<'_> {
    fn write(&self, builder: &mut ValueBuilder<'_>, schema: &Value) -> Expression {
        let mut branches = Vec::new();
        let mut seen = Vec::new();
        collect_branches(builder.root, schema, MAX_BRANCHES, &mut seen, &mut branches);
        if self.distinguishes_integers() {
            // A whole number is marked as one, also where the schema allows others.
            let whole = branches
                .iter()
                .filter(|(name, branch)| *name == "number" && listed_values(branch).is_none());
            let whole = whole.filter_map(|(_, branch)| {
                let mut typed = branch.as_object()?.clone();
                typed.insert("type".to_owned(), Value::from("integer"));
                Some(("integer", Value::Object(typed)))
            });
            let whole: Vec<_> = whole.collect();
            branches.extend(whole);
        }
        let mut choices = Vec::new();
        for (value_type, branch) in &branches {
            for form in self
                .forms
                .iter()
                .filter(|form| form.value_type == *value_type)
            {
                let Some(value) = self.write_value(builder, form, branch) else {
                    continue;
                };
                let mut open = fixed_text(&form.open, self.tool, self.name);
                let mut close = fixed_text(&form.close, self.tool, self.name);
                if form.encoding == ValueEncoding::Raw
                    && *value_type == "string"
                    && listed_values(branch).is_none()
                {
                    // A text of any kind includes the line feeds at its ends.
                    open.truncate(open.strip_suffix('\n').unwrap_or(&open).len());
                    close = close.strip_prefix('\n').unwrap_or(&close).to_owned();
                }
                choices.push(Expression::sequence([
                    Expression::literal(open),
                    value,
                    Expression::literal(close),
                ]));
            }
        }
        Expression::choice(choices)
    }

    /// Reports whether the tags of a whole number differ from those of other numbers.
    fn distinguishes_integers(&self) -> bool {
        let open_of = |name: &str| {
            let form = self.forms.iter().find(|form| form.value_type == name);
            form.map(|form| &form.open)
        };
        open_of("integer") != open_of("number")
    }

    /// Writes a value in one form; `None` if the form cannot hold it.
    fn write_value(
        &self,
        builder: &mut ValueBuilder<'_>,
        form: &ArgumentLayout,
        schema: &Value,
    ) -> Option<Expression> {
        let is_string = form.value_type == "string";
        match form.encoding {
            ValueEncoding::EscapedJson => {
                builder.notation = ValueNotation::EscapedJson;
                Some(builder.value(schema, self.name, 1))
            }
            ValueEncoding::CharacterData => {
                let listed = listed_values(schema).is_some();
                let end = ["]]>".to_owned()];
                let text = text_without(&end, &CharClass::any(), None);
                let section = Expression::sequence([
                    Expression::literal("<![CDATA["),
                    text,
                    Expression::literal("]]>"),
                ]);
                // A text that contains `]]>` is written as two sections, which are split inside
                // that mark. Listed values have other, exact forms.
                (!listed).then(|| section.repeat(1, None))
            }
            ValueEncoding::Raw if is_string => {
                if let Some(values) = listed_values(schema) {
                    let texts = values.into_iter().filter_map(|value| {
                        let text = value.as_str()?;
                        // A listed value with a closing tag in it would end its own argument. Only
                        // the escaping form can write it.
                        let is_plain = !self.stops.iter().any(|stop| text.contains(stop.as_str()));
                        is_plain.then(|| Expression::literal(text))
                    });
                    let texts: Vec<_> = texts.collect();
                    return (!texts.is_empty()).then(|| Expression::choice(texts));
                }
                builder.note_lengths(schema, self.name);
                if schema.get("pattern").is_some() {
                    builder.note(self.name, "pattern");
                }
                Some(text_without(&self.stops, &CharClass::any(), None))
            }
            ValueEncoding::Raw => {
                builder.notation = ValueNotation::Json {
                    stops: self.stops.clone(),
                };
                Some(builder.value(schema, self.name, 1))
            }
        }
    }
}

/// Splits a schema into one for each type of value, since tags write strings and other values differently.
fn collect_branches(
    root: &Value,
    schema: &Value,
    depth: usize,
    seen: &mut Vec<String>,
    into: &mut Vec<(&'static str, Value)>,
) {
    // This schema has no values.
    if *schema == Value::Bool(false) {
        return;
    }
    if let Some(target) = resolve_reference(root, schema).filter(|_| depth > 0) {
        // The branches of a reference that was followed before are already collected. So recursive
        // references end, and shared ones are followed once.
        let pointer = schema.get("$ref").and_then(Value::as_str);
        let pointer = pointer.unwrap_or_default().to_owned();
        if !seen.contains(&pointer) {
            seen.push(pointer);
            collect_branches(root, target, depth - 1, seen, into);
        }
        return;
    }
    if let Some(values) = listed_values(schema) {
        for value in values {
            let name = json_type_name(value);
            let found = into
                .iter_mut()
                .find(|(known, schema)| *known == name && schema.get("enum").is_some());
            match found.and_then(|(_, schema)| schema.get_mut("enum")?.as_array_mut()) {
                Some(listed) => listed.push(value.clone()),
                None => into.push((name, json!({"enum": [value]}))),
            }
        }
        return;
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(branches) = schema.get(keyword).and_then(Value::as_array)
            && depth > 0
        {
            for branch in branches {
                collect_branches(root, branch, depth - 1, seen, into);
            }
            return;
        }
    }
    let named = type_names(schema);
    let names = if named.is_empty() || !named.iter().all(|name| is_type_name(name)) {
        ALL_TYPES.to_vec()
    } else {
        named
    };
    for name in names {
        let known = ALL_TYPES
            .into_iter()
            .chain(["integer"])
            .find(|known| *known == name);
        let mut typed = schema.as_object().cloned().unwrap_or_default();
        typed.insert("type".to_owned(), Value::from(name));
        into.extend(known.map(|known| (known, Value::Object(typed))));
    }
}
