//! Bodies that a server of a wire answers besides responses: its models, its version, and token
//! counts.
//!
//! The functions are pure: names go in, bodies come out. OpenAI and Anthropic list models at the
//! same path, so one body serves both with the members of either.

use sabir_call::{BYTES_PER_TOKEN, MessagePart, Request};
use serde_json::{Value, json};

use crate::timestamp::format_timestamp;

/// The estimate for an image in tokens: about one megapixel at Anthropic.
const IMAGE_TOKENS: u64 = 1500;

/// A model in a list.
///
/// The encoders give unknown values as 0 or `null`, because clients fail on members that are
/// missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedModel {
    /// The name by which clients ask for it.
    pub name: String,
    /// The creation time in seconds since 1970; 0 if unknown.
    pub created: u64,
    /// The context size in tokens, if known.
    pub context: Option<u64>,
}

/// A request for information instead of a model's response.
///
/// Clients send these before or beside their real requests: to fill a menu of models, to find out
/// if the server is up, or to plan their context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InfoRequest {
    /// `GET /v1/models`, of OpenAI and Anthropic.
    Models,
    /// `GET /v1/models/NAME`.
    Model(String),
    /// `GET /api/tags`, of Ollama.
    Tags,
    /// `POST /api/show`, of Ollama: the name is in the body, see [`ollama_show_name`].
    Show,
    /// `GET /api/version`, of Ollama.
    Version,
    /// `POST /v1/messages/count_tokens`, of Anthropic: the body is a Messages request.
    CountTokens,
    /// `GET /v1beta/models`, of Gemini.
    GeminiModels,
    /// `GET /v1beta/models/NAME`, of Gemini.
    GeminiModel(String),
    /// `POST /v1beta/models/NAME:countTokens`, of Gemini.
    GeminiCountTokens(String),
}

/// Returns the information request of a path. A query is ignored.
///
/// A prefix before the known part is accepted, since clients append the path to a base URL that may
/// have a path of its own. Names of models may contain slashes and percent escapes. Returns `None`
/// for every other path, also for those of a wire's own endpoint.
pub fn match_info_path(path: &str) -> Option<InfoRequest> {
    let path = path
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .trim_end_matches('/');
    let fixed = [
        ("/v1/messages/count_tokens", InfoRequest::CountTokens),
        ("/api/tags", InfoRequest::Tags),
        ("/api/show", InfoRequest::Show),
        ("/api/version", InfoRequest::Version),
        ("/v1beta/models", InfoRequest::GeminiModels),
        ("/models", InfoRequest::Models),
    ];
    let known = fixed
        .into_iter()
        .find(|(end, _)| path.ends_with(end))
        .map(|(_, asked)| asked);
    known.or_else(|| {
        let (_, name) = path.split_once("/models/")?;
        // Gemini appends the method to the model: `generateContent` or `streamGenerateContent`.
        if name.is_empty() || name.contains("enerateContent") {
            return None;
        }
        let decode = crate::wire::percent_decode;
        Some(match name.strip_suffix(":countTokens") {
            Some(name) => InfoRequest::GeminiCountTokens(decode(name)),
            None if path.contains("/v1beta/models/") => InfoRequest::GeminiModel(decode(name)),
            None => InfoRequest::Model(decode(name)),
        })
    })
}

/// Encodes the list of models for clients of OpenAI and of Anthropic.
///
/// The shape is `{"object": "list", "data": […], "has_more": false, …}`. Each client ignores the
/// members of the other. The list is never split into pages.
pub fn encode_model_list(list: &[ListedModel]) -> Value {
    let name = |listed: Option<&ListedModel>| listed.map(|listed| listed.name.clone());
    let data: Vec<_> = list.iter().map(encode_model).collect();
    json!({
        "object": "list", "data": data,
        "has_more": false, "first_id": name(list.first()), "last_id": name(list.last()),
    })
}

/// Encodes one model for clients of OpenAI and of Anthropic.
pub fn encode_model(listed: &ListedModel) -> Value {
    json!({
        "id": listed.name, "object": "model", "created": listed.created, "owned_by": "sabir",
        "type": "model", "display_name": listed.name, "created_at": format_timestamp(listed.created),
        "max_input_tokens": listed.context,
    })
}

/// Encodes the list of models for clients of Gemini.
pub fn encode_gemini_models(list: &[ListedModel]) -> Value {
    json!({"models": list.iter().map(encode_gemini_model).collect::<Vec<_>>()})
}

/// Encodes one model for clients of Gemini.
pub fn encode_gemini_model(listed: &ListedModel) -> Value {
    json!({
        "name": format!("models/{}", listed.name), "version": "1", "displayName": listed.name,
        "inputTokenLimit": listed.context.unwrap_or(0), "outputTokenLimit": 0,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    })
}

/// Returns the request whose tokens a client of Gemini counts: the body itself, or its
/// `generateContentRequest`.
pub fn gemini_counted_request(body: &Value) -> &Value {
    body.get("generateContentRequest").unwrap_or(body)
}

/// Encodes the token count of a request for clients of Gemini. The number is an estimate.
pub fn encode_gemini_token_count(request: &Request) -> Value {
    json!({"totalTokens": estimate_tokens(request)})
}

/// Encodes the list of models for clients of Ollama.
///
/// The shape is `{"models": [{"name": …, "model": …, "modified_at": …, …}]}`. Size and digest of
/// the model file are unknown here, and empty.
pub fn encode_ollama_tags(list: &[ListedModel]) -> Value {
    let tag = |listed: &ListedModel| {
        json!({
            "name": listed.name, "model": listed.name, "modified_at": format_timestamp(listed.created), "size": 0, "digest": "",
            "details": ollama_model_details(),
        })
    };
    json!({"models": list.iter().map(tag).collect::<Vec<_>>()})
}

/// Returns the model's name from the body of Ollama's `show` request.
///
/// Newer clients write `model`, older ones `name`. Returns `None` if the body is not JSON or has
/// neither.
pub fn ollama_show_name(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let name = ["model", "name"]
        .iter()
        .find_map(|key| body.get(key)?.as_str())?;
    Some(name.to_owned())
}

/// Encodes one model for clients of Ollama. Tools are always among its capabilities, because the
/// gateway adds them.
pub fn encode_ollama_show(listed: &ListedModel) -> Value {
    let context = listed
        .context
        .map(|tokens| ("general.context_length".to_owned(), json!(tokens)));
    let info: serde_json::Map<_, _> = [("general.architecture".to_owned(), json!("general"))]
        .into_iter()
        .chain(context)
        .collect();
    json!({
        "license": "", "modelfile": "", "parameters": "", "template": "", "details": ollama_model_details(), "model_info": info,
        "capabilities": ["completion", "tools"], "modified_at": format_timestamp(listed.created),
    })
}

/// Encodes the version for clients of Ollama. Some of them disable features for an old version.
pub fn encode_ollama_version(version: &str) -> Value {
    json!({"version": version})
}

/// Encodes the token count of a request for clients of Anthropic.
///
/// The shape is `{"input_tokens": …}`. The number is an estimate: the real tokenizer is known only
/// to the provider.
pub fn encode_token_count(request: &Request) -> Value {
    json!({"input_tokens": estimate_tokens(request)})
}

/// Estimates the tokens of a request from its bytes.
///
/// Text counts by its bytes, images at a fixed size. Parts of the history, the system prompt and
/// the tools are included; the roles and separators that a provider adds are not.
pub fn estimate_tokens(request: &Request) -> u64 {
    let part = |part: &MessagePart| match part {
        MessagePart::Text { text } | MessagePart::Thought { text, .. } => to_u64(text.len()),
        // As many bytes as the tokens would have, because the sum counts bytes.
        MessagePart::Image(_) | MessagePart::ImageUrl { .. } => IMAGE_TOKENS * BYTES_PER_TOKEN,
        MessagePart::Call(call) => {
            to_u64(call.name.len() + Value::Object(call.arguments.clone()).to_string().len())
        }
        MessagePart::Result(result) => {
            to_u64(result.content.len())
                + result.images.len() as u64 * IMAGE_TOKENS * BYTES_PER_TOKEN
        }
        MessagePart::Opaque(opaque) => to_u64(opaque.data.to_string().len()),
        // Parts that this crate does not know yet cannot be estimated.
        _ => 0,
    };
    let history: u64 = request
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(part)
        .sum();
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            to_u64(tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
        })
        .sum();
    // Rounded up, because an estimate that is too low costs a refused request.
    (to_u64(request.system.len()) + history + tools).div_ceil(BYTES_PER_TOKEN)
}

/// Converts a length. No supported target has lengths above 64 bits.
fn to_u64(count: usize) -> u64 {
    count as u64
}

/// Returns placeholder details of a model file, as Ollama reports them.
fn ollama_model_details() -> Value {
    json!({
        "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "",
        "quantization_level": "",
    })
}

#[cfg(test)]
mod tests {
    use sabir_call::Message;

    use super::*;

    #[test]
    fn paths_identify_the_information_request() {
        let check = |path: &str, expected: Option<InfoRequest>| {
            assert_eq!(match_info_path(path), expected, "{path}")
        };
        check("/v1/models", Some(InfoRequest::Models));
        check("/v1/models?limit=1000", Some(InfoRequest::Models));
        check(
            "/v1/models/a%2Fb:c",
            Some(InfoRequest::Model("a/b:c".into())),
        );
        check(
            "/v1/models/org/name",
            Some(InfoRequest::Model("org/name".into())),
        );
        check(
            "/v1/messages/count_tokens?beta=true",
            Some(InfoRequest::CountTokens),
        );
        check("/api/tags", Some(InfoRequest::Tags));
        check("/api/show", Some(InfoRequest::Show));
        check("/api/version", Some(InfoRequest::Version));
        for other in [
            "",
            "/",
            "/v1/messages",
            "/api/chat",
            "/v1beta/models/gemini-x:generateContent",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn a_list_has_the_members_of_both() {
        let list = [
            ListedModel {
                name: "a".into(),
                created: 951_782_400,
                context: Some(9),
            },
            ListedModel {
                name: "b".into(),
                ..ListedModel::default()
            },
        ];
        let body = encode_model_list(&list);
        assert_eq!(
            (&body["object"], &body["has_more"], &body["last_id"]),
            (&json!("list"), &json!(false), &json!("b"))
        );
        assert_eq!(
            body["data"][0],
            json!({"id": "a", "object": "model", "created": 951_782_400, "owned_by": "sabir", "type": "model",
                "display_name": "a", "created_at": "2000-02-29T00:00:00Z", "max_input_tokens": 9})
        );
        assert_eq!(encode_model_list(&[])["first_id"], Value::Null);
        assert_eq!(encode_ollama_tags(&list)["models"][1]["model"], "b");
        assert_eq!(
            encode_ollama_show(&list[0])["model_info"]["general.context_length"],
            9
        );
        assert_eq!(ollama_show_name(br#"{"name": "x"}"#), Some("x".into()));
        assert_eq!(ollama_show_name(b"{"), None);
        assert_eq!(encode_ollama_version("0.1"), json!({"version": "0.1"}));
    }

    #[test]
    fn tokens_grow_with_the_bytes() {
        let request = |text: &str| Request {
            messages: vec![Message::user(text)].into(),
            ..Request::default()
        };
        assert_eq!(estimate_tokens(&Request::default()), 0);
        assert_eq!(
            estimate_tokens(&request(&"x".repeat(400))),
            400_u64.div_ceil(BYTES_PER_TOKEN)
        );
        assert_eq!(encode_token_count(&request(""))["input_tokens"], 0);
    }
}
