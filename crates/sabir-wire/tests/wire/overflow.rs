//! Errors about a history that is too long, in every provider's words; and errors that only sound
//! similar.

use sabir_call::ModelErrorKind as Kind;
use sabir_wire::{ProviderError, ResponseEncoder, ResponseMetadata, Wire};

#[track_caller]
fn check(who: &str, status: u16, body: &str, expected: Kind) {
    let error = ProviderError::from_body(body.as_bytes())
        .unwrap_or_else(|| panic!("{who}: unread: {body}"));
    assert_eq!(
        error.clone().with_status(status).kind,
        expected,
        "{who}, by status: {body}"
    );
    // As an event of a stream, which has no status, it is at least no overflow if it was none.
    assert_eq!(
        error.kind == Kind::TooLong,
        expected == Kind::TooLong,
        "{who}, in a stream: {body}"
    );
}

/// The provider, the status, and the body.
const TOO_LONG: [(&str, u16, &str); 24] = [
    (
        "anthropic",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 209353 tokens > 199999 maximum"}}"#,
    ),
    (
        "anthropic, with the answer",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and try again"}}"#,
    ),
    (
        "openai chat",
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    (
        "openai responses",
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
    ),
    (
        "gemini",
        400,
        r#"{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}"#,
    ),
    (
        "bedrock",
        400,
        r#"{"__type":"ValidationException","message":"Input is too long for requested model."}"#,
    ),
    (
        "bedrock, in the model's words",
        400,
        r#"{"message":"The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum"}"#,
    ),
    (
        "bedrock, older models",
        400,
        r#"{"message":"400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279 "}"#,
    ),
    (
        "mistral",
        400,
        r#"{"object":"error","message":"Prompt contains 40961 tokens and 0 draft tokens, too large for model with 40960 maximum context length","type":"invalid_request_error","code":null}"#,
    ),
    (
        "groq",
        400,
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    (
        "openrouter",
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one.","code":400}}"#,
    ),
    (
        "openrouter, for a provider behind it",
        400,
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 213462 tokens > 200000 maximum\"}}","provider_name":"Anthropic"}}}"#,
    ),
    (
        "together",
        422,
        r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 7000 `inputs` tokens and 2047 `max_new_tokens`","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "together, newer",
        400,
        r#"{"error":{"message":"Failed to start generation: The input token count (11) plus the requested output count (1048573) exceeds the model's maximum context length (1048576)","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "deepseek",
        400,
        r#"{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        "xai",
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
    ),
    (
        "llama.cpp",
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9001,"n_ctx":8192}}"#,
    ),
    (
        "vllm",
        400,
        r#"{"object":"error","message":"The decoder prompt (length 12000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        "vllm, with the answer",
        400,
        r#"{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).","type":"BadRequestError","param":"max_tokens","code":400}}"#,
    ),
    (
        "ollama",
        400,
        r#"{"error":"the input length exceeds the context length"}"#,
    ),
    (
        "lm studio",
        400,
        r#"{"error":"Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context length of only 7866 tokens, which is not enough."}"#,
    ),
    (
        "lm studio, newer",
        400,
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input"}"#,
    ),
    (
        "minimax",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"invalid params, context window exceeds limit (2013)"}}"#,
    ),
    (
        "kimi",
        400,
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 290112)","type":"invalid_request_error"}}"#,
    ),
];

#[test]
fn context_overflow_is_recognized_for_every_provider() {
    for (who, status, body) in TOO_LONG {
        check(who, status, body, Kind::TooLong);
    }
}

#[test]
fn rate_and_output_limits_are_no_overflow() {
    for (who, status, body, expected) in [
        (
            "anthropic",
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}"#,
            Kind::RateLimited,
        ),
        (
            "openai",
            429,
            r#"{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 35000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            Kind::RateLimited,
        ),
        (
            "bedrock",
            429,
            r#"{"code":"ThrottlingException","message":"Too many tokens, please wait before trying again."}"#,
            Kind::RateLimited,
        ),
        (
            "openai, the answer's limit",
            400,
            r#"{"error":{"message":"max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}"#,
            Kind::Rejected,
        ),
        (
            "anthropic, the answer's limit",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022"}}"#,
            Kind::Rejected,
        ),
    ] {
        check(who, status, body, expected);
    }
}

/// Every provider's words, as clients of each wire get them.
#[test]
fn clients_read_an_overflow_in_their_own_words() {
    let phrases = [
        (
            Wire::Anthropic,
            &["prompt is too long", "exceed context limit"][..],
        ),
        (
            Wire::OpenAiChat,
            &["maximum context length", "context window"],
        ),
        (
            Wire::OpenAiResponses,
            &["maximum context length", "context window"],
        ),
        (Wire::Gemini, &["input token count"]),
        (Wire::Ollama, &["context length", "context size"]),
        (Wire::Bedrock, &["too long", "too many input tokens"]),
    ];
    for (who, status, body) in TOO_LONG {
        let error = ProviderError::from_body(body.as_bytes())
            .unwrap()
            .with_status(status);
        for (wire, phrases) in phrases {
            let text = wire.encode_error(&error).to_string();
            let lower = text.to_ascii_lowercase();
            assert!(
                phrases.iter().any(|phrase| lower.contains(phrase)),
                "{who} on {wire}: {text}"
            );
            // Clients of OpenAI look for the code as well.
            if wire.name().starts_with("openai") {
                assert!(
                    text.contains(r#""code":"context_length_exceeded""#),
                    "{text}"
                );
            }
            let mut stream = Vec::new();
            ResponseEncoder::new(wire, ResponseMetadata::default())
                .encode_error_event(&error, &mut stream);
            let stream = String::from_utf8_lossy(&stream).to_ascii_lowercase();
            assert!(
                phrases.iter().any(|phrase| stream.contains(phrase)),
                "{who} on {wire}: {stream}"
            );
        }
    }
}

#[test]
fn numbers_of_an_overflow_reach_clients_of_other_wires() {
    let vllm = ProviderError::new(
        "",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    );
    assert_eq!(
        Wire::Anthropic.encode_error(&vllm)["error"]["message"],
        "prompt is too long: 5000 tokens > 4096 maximum"
    );
    let llama = ProviderError::from_body(
        br#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
    )
    .unwrap();
    assert_eq!(
        Wire::Anthropic.encode_error(&llama)["error"]["message"],
        "prompt is too long: 5000 tokens > 4096 maximum"
    );
    let messages = Wire::Anthropic.encode_error(&ProviderError::new(
        "",
        "prompt is too long: 209353 tokens > 199999 maximum",
    ));
    assert_eq!(
        messages["error"]["message"],
        "prompt is too long: 209353 tokens > 199999 maximum"
    );
}
