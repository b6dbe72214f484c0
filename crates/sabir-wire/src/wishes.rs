//! Wishes that are one value each: where a wire writes them, and which it has no word for.
//!
//! One table a wire serves both directions and the list of what is left out, so that these cannot differ.

use sabir_call::Request;
use serde_json::{Map, Value, json};

use crate::client::{Note, RequestError};
use crate::field::Field;
use crate::wire::Form;

/// A wish that is one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Temperature,
    TopP,
    TopK,
    Seed,
    PresencePenalty,
    FrequencyPenalty,
    Stop,
    Verbosity,
    User,
    Tier,
    CacheKey,
}

/// Where a wire writes which wish: a path of members with dots between. The first row of a wish is written, all are read.
pub(crate) type Places = [(Wish, &'static str)];

/// What a wire has words for.
pub(crate) struct Said {
    /// The wishes that are one value.
    pub(crate) places: &'static Places,
    /// Whether a wish that has a place stays unsaid for this request all the same.
    pub(crate) mute: fn(&Request, &Form, Wish) -> bool,
    /// What else it has no words for.
    pub(crate) lacks: &'static [Lack],
}

/// Something that not every wire has words for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A call that must be made.
    Force,
    /// At most one call.
    One,
    /// Arguments that hold to their schema.
    Strict,
    /// A picture by its address.
    Address,
    /// Marks of what may be cached.
    Marks,
    /// That a result failed.
    Failed,
    /// Words that are JSON of any form.
    Json,
    /// Words that are JSON of a schema.
    Schema,
}

impl Wish {
    const ALL: [Self; 11] = [
        Self::Temperature,
        Self::TopP,
        Self::TopK,
        Self::Seed,
        Self::PresencePenalty,
        Self::FrequencyPenalty,
        Self::Stop,
        Self::Verbosity,
        Self::User,
        Self::Tier,
        Self::CacheKey,
    ];

    /// Its name in notes.
    fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
            Self::Seed => "seed",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::Stop => "stop",
            Self::Verbosity => "verbosity",
            Self::User => "user",
            Self::Tier => "service_tier",
            Self::CacheKey => "prompt_cache_key",
        }
    }

    /// Its value in a request.
    fn value(self, request: &Request) -> Option<Value> {
        let (sampling, wishes) = (&request.sampling, &request.wishes);
        let number = |number: Option<f64>| number.map(|number| json!(number));
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        match self {
            Self::Temperature => number(sampling.temperature),
            Self::TopP => number(sampling.top_p),
            Self::TopK => sampling.top_k.map(|count| json!(count)),
            Self::Seed => sampling.seed.map(|seed| json!(seed)),
            Self::PresencePenalty => number(sampling.presence_penalty),
            Self::FrequencyPenalty => number(sampling.frequency_penalty),
            Self::Stop => (!sampling.stop.is_empty()).then(|| json!(sampling.stop)),
            Self::Verbosity => text(&wishes.verbosity),
            Self::User => text(&wishes.user),
            Self::Tier => text(&wishes.tier),
            Self::CacheKey => text(&wishes.cache_key),
        }
    }

    /// Takes what a client wrote there.
    fn read(self, field: &Field<'_>, request: &mut Request) -> Result<(), RequestError> {
        let (sampling, wishes) = (&mut request.sampling, &mut request.wishes);
        let text = || field.text().map(|text| Some(text.to_owned()));
        match self {
            Self::Temperature => sampling.temperature = field.number()?,
            Self::TopP => sampling.top_p = field.number()?,
            // Some clients write -1, or 0, for all of them.
            Self::TopK => sampling.top_k = if field.number()? <= Some(0.0) { None } else { field.count()? },
            Self::Seed => sampling.seed = Some(field.value.as_i64().ok_or_else(|| field.wrong("a whole number"))?),
            Self::PresencePenalty => sampling.presence_penalty = field.number()?,
            Self::FrequencyPenalty => sampling.frequency_penalty = field.number()?,
            Self::Stop => sampling.stop = field.texts()?,
            Self::Verbosity => wishes.verbosity = text()?,
            Self::User => wishes.user = text()?,
            Self::Tier => wishes.tier = text()?,
            Self::CacheKey => wishes.cache_key = text()?,
        }
        Ok(())
    }
}

/// Reads the wishes of a body. Of two places of one wish, the one that stands first in the table counts.
///
/// # Errors
/// A value of another type.
pub(crate) fn read(body: &Field<'_>, places: &Places, request: &mut Request) -> Result<(), RequestError> {
    for (wish, place) in places.iter().rev() {
        let field = place.split('.').fold(body.clone(), |field, key| field.get(key));
        if !field.is_absent() {
            wish.read(&field, request)?;
        }
    }
    Ok(())
}

/// Writes the wishes that the wire has places for.
pub(crate) fn write(request: &Request, form: &Form, said: &Said, body: &mut Map<String, Value>) {
    for wish in Wish::ALL {
        let place = said.places.iter().find(|(known, _)| *known == wish);
        if let Some((_, place)) = place.filter(|_| !(said.mute)(request, form, wish))
            && let Some(value) = wish.value(request)
        {
            put(body, place, value);
        }
    }
}

/// Puts a value to a path of members.
pub(crate) fn put(body: &mut Map<String, Value>, path: &str, value: Value) {
    let mut body = body;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        if keys.peek().is_none() {
            body.insert(key.to_owned(), value);
            return;
        }
        let inside = body.entry(key).or_insert_with(|| json!({}));
        let Some(inside) = inside.as_object_mut() else { return };
        body = inside;
    }
}

/// The wishes of a request that stay unsaid on a wire.
pub(crate) fn unsaid(request: &Request, form: &Form, said: &Said, wire: &str) -> Vec<Note> {
    let unsaid = |wish: &Wish| {
        let place = said.places.iter().any(|(known, _)| known == wish);
        wish.value(request).is_some() && (!place || (said.mute)(request, form, *wish))
    };
    let note = |wish: Wish| {
        let place = said.places.iter().any(|(known, _)| *known == wish);
        let why = if place { "does not take this one here" } else { "has no word for it" };
        Note::new(wish.name(), format!("{wire} {why}; left out"))
    };
    Wish::ALL.into_iter().filter(unsaid).map(note).collect()
}
