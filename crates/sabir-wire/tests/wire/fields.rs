//! Every field of a request of each API, sent to a provider of each wire: nothing is lost in silence.
//!
//! The names of the fields come from the official clients (`fields/published.json`). For each of them
//! `fields/samples.json` has a value and its place in a body. docs/fields.md is the table of all of
//! them, made from what the code does.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use sabir_wire::{DecodedRequest, Wire, WireOptions};
use serde_json::{Map, Value};

use crate::case_count::case_count;

/// The wires that a gateway serves to clients, with the names of their APIs.
const FRONTS: [(Wire, &str); 5] = [
    (Wire::OpenAiChat, "OpenAI Chat Completions"),
    (Wire::OpenAiResponses, "OpenAI Responses"),
    (Wire::Anthropic, "Anthropic Messages"),
    (Wire::Gemini, "Gemini generateContent"),
    (Wire::Ollama, "Ollama chat"),
];

/// What became of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The provider gets the field as the client wrote it.
    Passed,
    /// The provider gets it in the form of its own wire.
    Translated,
    /// It concerns the answer or the connection, and the gateway acts on it itself.
    Gateway,
    /// It is left out, in whole or in part, and the report says so.
    Reported,
    /// The request is refused.
    Refused,
    /// Nobody heard of it.
    Lost,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Translated => "translated",
            Self::Gateway => "gateway",
            Self::Reported => "reported",
            Self::Refused => "refused",
            Self::Lost => "LOST",
        }
    }
}

/// A field of an API, with a value and its place.
#[derive(Debug, Clone)]
struct Field {
    /// The path, as in a report.
    label: String,
    /// The members that the body needs around the field.
    with: Map<String, Value>,
    /// The pointer to the object or the list.
    at: String,
    /// The name of the member; `None` for an item of a list.
    member: Option<String>,
    /// True if the object that holds it is passed on or reported as a whole.
    is_in_whole: bool,
    value: Value,
}

/// An API that clients speak.
struct Front {
    wire: Wire,
    path: String,
    base: Value,
    fields: Vec<Field>,
    /// Fields that mean the same, or contain each other.
    alternatives: Vec<Vec<String>>,
}

fn published() -> Value {
    serde_json::from_str(include_str!("fields/published.json")).unwrap()
}

fn samples() -> Value {
    serde_json::from_str(include_str!("fields/samples.json")).unwrap()
}

fn front(wire: Wire) -> Front {
    let samples = &samples()[wire.name()];
    let published = &published()[wire.name()];
    let mut fields = Vec::new();
    for group in samples["groups"].as_array().unwrap() {
        let name = group["type"].as_str().unwrap();
        let mut values = group["fields"].as_object().unwrap().clone();
        // Blocks and tools of which only the name matters need no sample.
        if group["rest"] == true {
            for kind in published["types"][name].as_array().unwrap() {
                let kind = kind.as_str().unwrap();
                let in_other =
                    |other: &Value| other["type"] == name && other["fields"].get(kind).is_some();
                if samples["groups"].as_array().unwrap().iter().any(in_other) {
                    continue;
                }
                values
                    .entry(kind)
                    .or_insert_with(|| serde_json::json!({"type": kind, "name": kind}));
            }
        }
        let at = group["at"].as_str().unwrap();
        for (key, value) in values {
            fields.push(field(group, at, key, value));
        }
    }
    let alternatives = serde_json::from_value(samples["alternatives"].clone()).unwrap();
    Front {
        wire,
        path: samples["path"].as_str().unwrap().to_owned(),
        base: samples["base"].clone(),
        fields,
        alternatives,
    }
}

fn field(group: &Value, at: &str, key: String, value: Value) -> Field {
    let mut label = String::new();
    for segment in at.split('/').filter(|segment| !segment.is_empty()) {
        if segment == "-" || segment.parse::<usize>().is_ok() {
            label.push_str("[]");
        } else {
            label.push_str(if label.is_empty() { "" } else { "." });
            label.push_str(segment);
        }
    }
    let item = at.strip_suffix("/-");
    label = match (item, label.as_str()) {
        (Some(_), label) => format!("{label}: {key}"),
        (None, "") => key.clone(),
        (None, label) => format!("{label}.{key}"),
    };
    Field {
        label,
        with: group["with"].as_object().cloned().unwrap_or_default(),
        at: item.unwrap_or(at).to_owned(),
        member: item.is_none().then_some(key),
        is_in_whole: group["whole"] == true,
        value,
    }
}

impl Field {
    /// Adds what the field needs around it.
    fn prepare(&self, body: &mut Value) {
        for (pointer, value) in &self.with {
            let (place, key) = pointer.rsplit_once('/').unwrap();
            let place = body.pointer_mut(place).unwrap().as_object_mut().unwrap();
            place.entry(key).or_insert_with(|| value.clone());
        }
    }

    /// Adds the field; returns false if the body has no place for it.
    fn insert(&self, body: &mut Value) -> bool {
        match (&self.member, body.pointer_mut(&self.at)) {
            (Some(key), Some(Value::Object(members))) => {
                members.insert(key.clone(), self.value.clone());
            }
            (None, Some(Value::Array(items))) => items.push(self.value.clone()),
            _ => return false,
        }
        true
    }

    /// Returns true if a body has the field with its value.
    fn is_in(&self, body: &Value) -> bool {
        match (&self.member, body.pointer(&self.at)) {
            (Some(key), Some(place)) => place.get(key) == Some(&self.value),
            (None, Some(Value::Array(items))) => items.contains(&self.value),
            _ => false,
        }
    }
}

/// Returns a body without the field: if its object counts as a whole, without that.
fn without(field: &Field, mut body: Value) -> Value {
    field.prepare(&mut body);
    if field.is_in_whole {
        let (list, index) = field.at.rsplit_once('/').unwrap();
        let list = body.pointer_mut(list).unwrap().as_array_mut().unwrap();
        list.remove(index.parse().unwrap());
    }
    body
}

/// What reaches a provider of a request, and what the client is told.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    body: Value,
    notes: Vec<String>,
    answer: String,
}

/// Sends a body to a provider of a wire, as the gateway does.
fn send(front: &Front, body: &Value, back: Wire) -> Result<Sent, String> {
    let is_same = front.wire == back;
    let decoded = if is_same {
        front.wire.decode_for_same_wire(&front.path, body)
    } else {
        front.wire.decode_request_value(&front.path, body)
    };
    let DecodedRequest {
        mut request,
        streamed,
        preferences,
        notes,
        ..
    } = decoded.map_err(|error| error.to_string())?;
    request.model = match back {
        Wire::Anthropic => "claude-sonnet-4-5",
        Wire::Gemini => "gemini-3-pro",
        Wire::Bedrock => "anthropic.claude-sonnet-4-5-20250929-v1:0",
        _ => "gpt-5",
    }
    .to_owned();
    let options = WireOptions {
        streamed,
        // OpenAI itself, for which the client writes its fields.
        completion_limit: is_same && back == Wire::OpenAiChat,
        custom_tools: is_same && back == Wire::OpenAiChat,
        ..WireOptions::default()
    };
    let mut notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let is_passed = request
        .client_body
        .as_ref()
        .is_some_and(|client| client.keeps_history);
    if !is_passed {
        let more = back
            .check_support(&request, &options)
            .map_err(|error| error.to_string())?;
        notes.extend(more.iter().map(ToString::to_string));
    }
    Ok(Sent {
        body: back.encode_request(&request, &options),
        notes,
        answer: format!("{preferences:?} {streamed}"),
    })
}

/// Compares what was sent with a field and without it.
fn outcome_of(
    front: &Front,
    field: &Field,
    without: &Sent,
    with: &Result<Sent, String>,
    back: Wire,
) -> Outcome {
    let Ok(with) = with else {
        return Outcome::Refused;
    };
    // The gateway's own name of the model, and its own choice to stream.
    let is_own = ["model", "stream"].contains(&field.label.as_str())
        // The gateway keeps answers for later requests, or notes that it keeps none.
        || (front.wire == Wire::OpenAiResponses && field.label == "store");
    if front.wire == back && !is_own && field.is_in(&with.body) {
        Outcome::Passed
    } else if with.notes.iter().any(|note| !without.notes.contains(note)) {
        Outcome::Reported
    } else if !is_own && with.body != without.body {
        Outcome::Translated
    } else if is_own || with.answer != without.answer {
        Outcome::Gateway
    } else {
        Outcome::Lost
    }
}

/// Sends one field alone.
fn outcome(front: &Front, field: &Field, back: Wire) -> Outcome {
    let without = send(front, &without(field, front.base.clone()), back)
        .unwrap_or_else(|error| panic!("{}: {error}", field.label));
    let mut base = front.base.clone();
    field.prepare(&mut base);
    assert!(field.insert(&mut base), "{} has no place", field.label);
    outcome_of(front, field, &without, &send(front, &base, back), back)
}

#[test]
fn every_published_field_has_a_sample() {
    let published = published();
    let samples = samples();
    for (wire, api) in published.as_object().unwrap() {
        let groups = samples[wire]["groups"].as_array().unwrap();
        for (name, fields) in api["types"].as_object().unwrap() {
            let groups = groups.iter().filter(|group| group["type"] == *name);
            let mut known: BTreeSet<&str> = BTreeSet::new();
            for group in groups {
                for list in ["fields", "skip"] {
                    let keys = group[list].as_object().into_iter().flatten();
                    known.extend(keys.map(|(key, _)| key.as_str()));
                }
            }
            for field in fields.as_array().unwrap() {
                let field = field.as_str().unwrap();
                // These say which form the rest has.
                let is_tag = ["type", "role"].contains(&field);
                let is_kind = name.ends_with("#type");
                assert!(
                    is_tag || is_kind || known.contains(field),
                    "{wire}: {name}.{field}"
                );
            }
        }
    }
}

#[test]
fn no_field_is_lost_in_silence() {
    let mut lost = Vec::new();
    for (wire, _) in FRONTS {
        let front = front(wire);
        for back in Wire::ALL {
            for field in &front.fields {
                let outcome = outcome(&front, field, back);
                if outcome == Outcome::Lost {
                    lost.push(format!("{wire} -> {back}: {}", field.label));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} lost:\n{}", lost.len(), lost.join("\n"));
}

#[test]
fn the_page_of_fields_says_what_happens() {
    let mut page = include_str!("fields/page.md").trim_end().to_owned();
    for (wire, title) in FRONTS {
        let front = front(wire);
        let source = &published()[wire.name()];
        let package = source["package"].as_str().unwrap();
        let version = source["version"].as_str().unwrap();
        write!(
            page,
            "\n\n## {title}\n\nFields of `{package}` {version}.\n\n| field |"
        )
        .unwrap();
        for back in Wire::ALL {
            write!(page, " `{back}` |").unwrap();
        }
        page.push_str("\n|");
        page.push_str(&" --- |".repeat(1 + Wire::ALL.len()));
        for field in &front.fields {
            let label = match field.label.split_once(": ") {
                Some((list, kind)) => format!("`{list}` of type `{kind}`"),
                None => format!("`{}`", field.label),
            };
            write!(page, "\n| {label} |").unwrap();
            for back in Wire::ALL {
                write!(page, " {} |", outcome(&front, field, back).word()).unwrap();
            }
        }
    }
    page.push('\n');
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fields.md");
    if std::env::var_os("SABIR_RENEW").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == page,
        "docs/fields.md differs: renew it with SABIR_RENEW=1 cargo test -p sabir-wire --test wire fields"
    );
}

/// A body with some fields of an API, of which no two exclude each other.
struct Choice<'f> {
    body: Value,
    fields: Vec<&'f Field>,
}

/// Returns true if the first field renames or adds tools and the second may name one of them: the
/// choice of a tool that is not offered is refused, and where a wire cannot force a call, only the
/// chosen tool is offered.
fn contradict(tools: &str, choice: &str) -> bool {
    let changes_names = matches!(
        tools,
        "tools" | "functions" | "tools[].function" | "tools[].functionDeclarations"
    ) || tools.starts_with("tools[]: ")
        || tools.starts_with("tools[]") && tools.ends_with(".name");
    let choices = ["tool_choice", "function_call", "toolConfig"];
    changes_names && choices.iter().any(|field| choice.starts_with(field))
}

fn choose<'f>(front: &'f Front, picks: &[prop::sample::Index]) -> Choice<'f> {
    let mut body = front.base.clone();
    let mut fields: Vec<&Field> = Vec::new();
    for pick in picks {
        let field = pick.get(&front.fields);
        let is_under = |inner: &str, outer: &str| {
            inner == outer
                || inner
                    .strip_prefix(outer)
                    .is_some_and(|rest| rest.starts_with(['.', '[', ':']))
        };
        let excludes = |other: &&Field| {
            contradict(&field.label, &other.label)
                || contradict(&other.label, &field.label)
                || is_under(&field.label, &other.label)
                || is_under(&other.label, &field.label)
                || front.alternatives.iter().any(|group| {
                    [&field.label, &other.label]
                        .iter()
                        .all(|label| group.contains(label))
                })
        };
        if fields.iter().any(excludes) {
            continue;
        }
        field.prepare(&mut body);
        if field.insert(&mut body) {
            fields.push(field);
        }
    }
    Choice { body, fields }
}

/// Returns true if one of the fields is refused alone.
fn is_one_refused(front: &Front, fields: &[&Field], back: Wire) -> bool {
    fields
        .iter()
        .any(|field| outcome(front, field, back) == Outcome::Refused)
}

/// Returns the fields of a request of which neither the provider nor the client hears.
fn lost_fields<'f>(front: &Front, fields: &[&'f Field], back: Wire) -> Vec<&'f str> {
    let body_of = |others: &mut dyn Iterator<Item = &&Field>| {
        let mut body = front.base.clone();
        for field in others {
            field.prepare(&mut body);
            field.insert(&mut body);
        }
        body
    };
    let with = send(front, &body_of(&mut fields.iter()), back);
    let is_lost = |field: &&&Field| {
        let others = body_of(&mut fields.iter().filter(|other| other.label != field.label));
        // The rest alone may be refused, such as a choice without its tool.
        send(front, &without(field, others), back)
            .is_ok_and(|without| outcome_of(front, field, &without, &with, back) == Outcome::Lost)
    };
    let lost = fields.iter().filter(is_lost);
    lost.map(|field| field.label.as_str()).collect()
}

fn picks() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(case_count(64)))]

    /// A provider of the same wire gets a random request with all its fields.
    #[test]
    fn the_same_wire_gets_equal_fields(which in 0..FRONTS.len(), picks in picks()) {
        let front = front(FRONTS[which].0);
        let Choice { body, fields } = choose(&front, &picks);
        // The older form of functions becomes the newer one.
        let rewritten = ["functions", "function_call", "messages[].function_call"];
        let is_rewritten = front.wire == Wire::OpenAiChat
            && fields.iter().any(|field| rewritten.contains(&field.label.as_str()));
        let sent = match send(&front, &body, front.wire) {
            Ok(_) if is_rewritten => {
                let lost = lost_fields(&front, &fields, front.wire);
                prop_assert!(lost.is_empty(), "{lost:?} of {body}");
                return Ok(());
            }
            // What another wire has no place for has none in a new history either.
            Err(_) if is_rewritten => return Ok(()),
            Ok(sent) => sent.body,
            Err(error) => {
                prop_assert!(is_one_refused(&front, &fields, front.wire), "{error}: {body}");
                return Ok(());
            }
        };
        for (key, value) in body.as_object().unwrap() {
            match key.as_str() {
                // They belong to the gateway's connection.
                "model" | "stream" => {}
                "store" if front.wire == Wire::OpenAiResponses => {}
                // The gateway chooses the model.
                "fallbacks" => prop_assert!(sent.get(key).is_none()),
                "include" => {
                    let all = sent["include"].as_array().unwrap();
                    prop_assert!(value.as_array().unwrap().iter().all(|wish| all.contains(wish)), "{sent}");
                }
                "stream_options" => {
                    for (option, value) in value.as_object().unwrap() {
                        prop_assert_eq!(&sent[key][option], value, "{}", sent);
                    }
                }
                _ => prop_assert_eq!(sent.get(key), Some(value), "{} of {}", key, sent),
            }
        }
    }

    /// A provider of another wire gets each field of a random request in some form, or the client is
    /// told.
    #[test]
    fn another_wire_gets_each_field_or_the_client_is_told(
        which in 0..FRONTS.len(), back in 0..Wire::ALL.len(), picks in picks()
    ) {
        let front = front(FRONTS[which].0);
        let back = Wire::ALL[back];
        prop_assume!(front.wire != back);
        let Choice { body, fields } = choose(&front, &picks);
        let with = send(&front, &body, back);
        if let Err(error) = &with {
            prop_assert!(is_one_refused(&front, &fields, back), "{error}: {body}");
            return Ok(());
        }
        let lost = lost_fields(&front, &fields, back);
        prop_assert!(lost.is_empty(), "{lost:?} of {body}");
    }
}
