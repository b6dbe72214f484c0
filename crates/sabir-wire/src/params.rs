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
    /// A number; the range differs between providers and is not checked here.
    Temperature,
    /// A number from 0 to 1.
    TopP,
    /// A number of tokens.
    TopK,
    /// A whole number, which may be negative.
    Seed,
    /// A number; negative values encourage repetition.
    PresencePenalty,
    /// A number, as for the presence penalty.
    FrequencyPenalty,
    /// A list of strings that end the response. Providers limit their number.
    Stop,
    /// OpenAI's word for the length of answers: `low`, `medium` or `high`.
    Verbosity,
    /// A string that identifies the end user to the provider.
    User,
    /// The service tier. The words differ between providers.
    Tier,
    /// A string that routes requests with a common prefix to the same cache.
    CacheKey,
}

/// The path of each parameter on a wire, with dots between members. The first row of a parameter is
/// written, all are read.
pub(crate) type ParamPaths = [(RequestParam, &'static str)];

/// The request features that a wire supports.
///
/// Each wire has one constant of this type. `docs/translation.md` shows the same facts to users.
pub(crate) struct WireCapabilities {
    /// The parameters that are one value.
    pub(crate) param_paths: &'static ParamPaths,
    /// Returns true if a parameter must be left out of this request although it has a path.
    pub(crate) is_param_refused: fn(&Request, &WireOptions, RequestParam) -> bool,
    /// Returns true if a model cannot think in this request although it shall.
    pub(crate) is_thinking_refused: fn(&Request) -> bool,
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
    /// Documents, such as PDFs.
    Documents,
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
    /// All parameters, in the order in which they are written.
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
        let options = &request.options;
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
            Self::Verbosity => text(&options.verbosity),
            Self::User => text(&options.user),
            Self::Tier => text(&options.tier),
            Self::CacheKey => text(&options.cache_key),
        }
    }

    /// Stores a client's value in the request.
    fn decode_into(self, field: &JsonField<'_>, request: &mut Request) -> Result<(), RequestError> {
        let sampling = &mut request.sampling;
        let options = &mut request.options;
        let text = || field.required_text().map(|text| Some(text.to_owned()));
        match self {
            Self::Temperature => sampling.temperature = field.optional_number()?,
            Self::TopP => sampling.top_p = field.optional_number()?,
            // Some clients write -1 or 0 for "all tokens".
            Self::TopK => {
                sampling.top_k = if field.optional_number()? <= Some(0.0) {
                    None
                } else {
                    field.optional_count()?
                }
            }
            // A seed may be negative, so it is not a count.
            Self::Seed => {
                sampling.seed = Some(
                    field
                        .value
                        .as_i64()
                        .ok_or_else(|| field.mismatch_error("a whole number"))?,
                )
            }
            Self::PresencePenalty => sampling.presence_penalty = field.optional_number()?,
            Self::FrequencyPenalty => sampling.frequency_penalty = field.optional_number()?,
            Self::Stop => sampling.stop = field.text_list()?,
            Self::Verbosity => options.verbosity = text()?,
            Self::User => options.user = text()?,
            Self::Tier => options.tier = text()?,
            Self::CacheKey => options.cache_key = text()?,
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
    paths: &ParamPaths,
    request: &mut Request,
) -> Result<(), RequestError> {
    // In reverse, so that the first path of the table is decoded last and wins.
    for (param, path) in paths.iter().rev() {
        let field = path
            .split('.')
            .fold(body.clone(), |field, key| field.get(key));
        if !field.is_absent() {
            param.decode_into(&field, request)?;
        }
    }
    Ok(())
}

/// Encodes the parameters that the wire has paths for.
pub(crate) fn encode_params(
    request: &Request,
    wire_options: &WireOptions,
    capabilities: &WireCapabilities,
    body: &mut Map<String, Value>,
) {
    for param in RequestParam::ALL {
        // The first row is the current name of the parameter on the wire.
        let path = capabilities
            .param_paths
            .iter()
            .find(|(known, _)| *known == param);
        if let Some((_, path)) =
            path.filter(|_| !(capabilities.is_param_refused)(request, wire_options, param))
            && let Some(value) = param.value_in(request)
        {
            insert_at_path(body, path, value);
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
        let Some(inside) = inside.as_object_mut() else {
            return;
        };
        body = inside;
    }
}

/// Returns a note for each parameter of a request that the wire leaves out.
pub(crate) fn unsupported_params(
    request: &Request,
    wire_options: &WireOptions,
    capabilities: &WireCapabilities,
    wire: &str,
) -> Vec<LossNote> {
    let unsaid = |param: &RequestParam| {
        let has_path = capabilities
            .param_paths
            .iter()
            .any(|(known, _)| known == param);
        param.value_in(request).is_some()
            && (!has_path || (capabilities.is_param_refused)(request, wire_options, *param))
    };
    let note = |param: RequestParam| {
        let has_path = capabilities
            .param_paths
            .iter()
            .any(|(known, _)| *known == param);
        let why = if has_path {
            "does not take this one here"
        } else {
            "has no field for it"
        };
        LossNote::new(param.name(), format!("{wire} {why}; left out"))
    };
    RequestParam::ALL
        .into_iter()
        .filter(unsaid)
        .map(note)
        .collect()
}
