//! Request parameters that are one value each: the paths where a wire writes them, and those that
//! it does not support.
//!
//! One table per wire drives encoding, decoding and the list of what is left out, so that these
//! cannot differ.

use sabir_call::Request;
use serde_json::{Map, Value, json};

use crate::client_request::{LossNote, RequestError};
use crate::field::JsonField;
use crate::wire::WireOptions;

/// A request parameter that is one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestParam {
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

/// The path of each parameter on a wire, with dots between members. The first row of a parameter is
/// written, all are read.
pub(crate) type ParamPaths = [(RequestParam, &'static str)];

/// The request features that a wire supports.
pub(crate) struct WireCapabilities {
    /// The parameters that are one value.
    pub(crate) param_paths: &'static ParamPaths,
    /// Returns true if a parameter that has a path must be left out of this request all the same.
    pub(crate) is_param_refused: fn(&Request, &WireOptions, RequestParam) -> bool,
    /// The other features that the wire does not support.
    pub(crate) unsupported: &'static [UnsupportedFeature],
}

/// A feature that not every wire supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsupportedFeature {
    /// A call that must be made.
    ForcedCall,
    /// A limit of one call per response.
    SingleCall,
    /// Arguments constrained to their schema.
    StrictArguments,
    /// An image by its address.
    ImageUrl,
    /// Marks on content that may be cached.
    CacheMarks,
    /// A flag on a tool result that failed.
    FailedResult,
    /// Output constrained to JSON of any form.
    JsonFormat,
    /// Output constrained to a JSON schema.
    SchemaFormat,
}

impl RequestParam {
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

    /// Returns the name used in notes.
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

    /// Returns the parameter's value in a request.
    fn value_in(self, request: &Request) -> Option<Value> {
        let sampling = &request.sampling;
        let wishes = &request.options;
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

    /// Stores a client's value in the request.
    fn decode_into(self, field: &JsonField<'_>, request: &mut Request) -> Result<(), RequestError> {
        let sampling = &mut request.sampling;
        let wishes = &mut request.options;
        let text = || field.required_text().map(|text| Some(text.to_owned()));
        match self {
            Self::Temperature => sampling.temperature = field.optional_number()?,
            Self::TopP => sampling.top_p = field.optional_number()?,
            // Some clients write -1 or 0 for "all tokens".
            Self::TopK => {
                sampling.top_k = if field.optional_number()? <= Some(0.0) { None } else { field.optional_count()? }
            }
            Self::Seed => {
                sampling.seed = Some(field.value.as_i64().ok_or_else(|| field.mismatch_error("a whole number"))?)
            }
            Self::PresencePenalty => sampling.presence_penalty = field.optional_number()?,
            Self::FrequencyPenalty => sampling.frequency_penalty = field.optional_number()?,
            Self::Stop => sampling.stop = field.text_list()?,
            Self::Verbosity => wishes.verbosity = text()?,
            Self::User => wishes.user = text()?,
            Self::Tier => wishes.tier = text()?,
            Self::CacheKey => wishes.cache_key = text()?,
        }
        Ok(())
    }
}

/// Decodes the parameters of a body. If one has two paths, the first in the table wins.
///
/// # Errors
/// A value has the wrong type.
pub(crate) fn decode_params(
    body: &JsonField<'_>,
    places: &ParamPaths,
    request: &mut Request,
) -> Result<(), RequestError> {
    // In reverse, so that the first path of the table is decoded last and wins.
    for (wish, place) in places.iter().rev() {
        let field = place.split('.').fold(body.clone(), |field, key| field.get(key));
        if !field.is_absent() {
            wish.decode_into(&field, request)?;
        }
    }
    Ok(())
}

/// Encodes the parameters that the wire has paths for.
pub(crate) fn encode_params(
    request: &Request,
    form: &WireOptions,
    said: &WireCapabilities,
    body: &mut Map<String, Value>,
) {
    for wish in RequestParam::ALL {
        // The first row is the current name of the parameter on the wire.
        let place = said.param_paths.iter().find(|(known, _)| *known == wish);
        if let Some((_, place)) = place.filter(|_| !(said.is_param_refused)(request, form, wish))
            && let Some(value) = wish.value_in(request)
        {
            insert_at_path(body, place, value);
        }
    }
}

/// Inserts a value at a dotted path of members.
pub(crate) fn insert_at_path(body: &mut Map<String, Value>, path: &str, value: Value) {
    let mut body = body;
    let mut keys = path.split('.').peekable();
    while let Some(key) = keys.next() {
        if keys.peek().is_none() {
            body.insert(key.to_owned(), value);
            return;
        }
        let inside = body.entry(key).or_insert_with(|| json!({}));
        // Another option already wrote a value of another type there, which wins.
        let Some(inside) = inside.as_object_mut() else { return };
        body = inside;
    }
}

/// Returns a note for each parameter of a request that the wire leaves out.
pub(crate) fn unsupported_params(
    request: &Request,
    form: &WireOptions,
    said: &WireCapabilities,
    wire: &str,
) -> Vec<LossNote> {
    let unsaid = |wish: &RequestParam| {
        let place = said.param_paths.iter().any(|(known, _)| known == wish);
        wish.value_in(request).is_some() && (!place || (said.is_param_refused)(request, form, *wish))
    };
    let note = |wish: RequestParam| {
        let place = said.param_paths.iter().any(|(known, _)| *known == wish);
        let why = if place { "does not take this one here" } else { "has no word for it" };
        LossNote::new(wish.name(), format!("{wire} {why}; left out"))
    };
    RequestParam::ALL.into_iter().filter(unsaid).map(note).collect()
}
