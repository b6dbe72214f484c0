//! Tests the matching of model names, and prices at different providers.

use sabir_wire::Wire;

use super::*;

#[test]
fn the_longest_pattern_wins() {
    let catalogue = ModelCatalogue::default();
    let output = |model: &str| {
        catalogue
            .find_model("", model)
            .and_then(|entry| entry.output)
    };
    assert_eq!(output("claude-opus-4-20250514"), Some(32_000));
    assert_eq!(output("anthropic/Claude-Opus-4-5"), Some(64_000));
    assert_eq!(output("gpt-4o-mini-2024-07-18"), Some(16_384));
    assert_eq!(catalogue.find_model("", "my-own-model"), None);
    assert_eq!(
        catalogue
            .find_model("", "deepseek-r1:32b")
            .and_then(|entry| entry.native),
        Some(false)
    );
    assert_eq!(
        catalogue
            .find_model("", "Llama-3.3-70B-Instruct-Turbo")
            .and_then(|entry| entry.context),
        Some(128_000)
    );
}

#[test]
fn other_versions_do_not_inherit_figures() {
    for (model, expected) in [
        ("gpt-5", PatternMatch::Same),
        ("gpt-5-2025-08-07", PatternMatch::Same),
        ("claude-opus-4-1-20250805", PatternMatch::Same),
        ("gemini-2.5-flash-preview-09-2025", PatternMatch::Same),
        ("gemini-3-pro-preview", PatternMatch::Same),
        ("gemini-2.5-flash-preview-tts", PatternMatch::Variant),
        ("llama-3.3-70b-instruct", PatternMatch::Variant),
        ("gpt-5-turbo", PatternMatch::Variant),
        ("gpt-5.9", PatternMatch::Version),
        ("gpt-50", PatternMatch::Version),
        ("claude-opus-4-9", PatternMatch::Version),
        ("claude-opus-4-9-20270101", PatternMatch::Version),
        ("grok-4-2-fast", PatternMatch::Version),
        ("qwen3.5", PatternMatch::Version),
    ] {
        assert_eq!(
            find_known_entry(model).map(|(_, kin)| kin),
            Some(expected),
            "{model}"
        );
    }
    let next = ModelCatalogue::default().find_model("", "gpt-5.9").unwrap();
    assert_eq!(
        (next.native, next.context, next.output, next.prices),
        (Some(true), None, None, None)
    );
}

#[test]
fn model_families_have_their_edit_tool() {
    let own = ModelEntry {
        pattern: "gpt-5-nano".into(),
        edit_tool: Some("replace_in_file".into()),
        ..ModelEntry::default()
    };
    let catalogue = ModelCatalogue::new(vec![own]);
    for (model, expected) in [
        ("gpt-5.2-codex", Some("apply_patch")),
        ("openai/gpt-5.9", Some("apply_patch")),
        ("gpt-5-nano-2025-08-07", Some("replace_in_file")),
        ("claude-opus-9", Some("edit_file")),
        ("gemini-3-pro-preview", Some("edit_file")),
        ("gpt-4o", None),
        ("llama-3.3-70b", None),
    ] {
        let found = catalogue
            .find_model("", model)
            .and_then(|entry| entry.edit_tool);
        assert_eq!(found.as_deref(), expected, "{model}");
    }
}

#[test]
fn user_entries_take_precedence_and_are_completed() {
    let own = ModelEntry {
        pattern: "gpt-4o".into(),
        output: Some(9),
        dialect: Some("invoke".into()),
        ..ModelEntry::default()
    };
    let found = ModelCatalogue::new(vec![own])
        .find_model("", "openai/gpt-4o")
        .unwrap();
    assert_eq!(
        (found.context, found.output, found.native),
        (Some(128_000), Some(9), Some(false))
    );
    assert_eq!(
        (found.images, found.prices.and_then(|prices| prices.input)),
        (Some(true), "2.5".parse().ok())
    );
}

#[test]
fn prices_apply_to_their_provider() {
    let told = TokenPrices {
        input: "1".parse().ok(),
        ..TokenPrices::default()
    };
    let own = |pattern: &str| ModelEntry {
        pattern: pattern.into(),
        prices: Some(told),
        ..ModelEntry::default()
    };
    let catalogue = ModelCatalogue::new(vec![own("groq/llama"), own("my-")]);
    let check = |name: &str, base: &str, model: &str, expected: &str| {
        let prices =
            catalogue.resolve_prices(&Provider::new(name, Wire::OpenAiChat, base, None), model);
        let input = prices
            .input
            .map_or("unknown".to_owned(), |price| price.to_string());
        assert_eq!(input, expected, "{name} {base} {model}");
    };
    let openai = "https://api.openai.com/v1";
    check("openai", openai, "gpt-4o", "$2.5000");
    check("openai", openai, "gpt-4o-2024-08-06", "$2.5000");
    check(
        "mine",
        "https://API.openai.com:443/v1/",
        "gpt-4o",
        "$2.5000",
    );
    // Not at a reseller or a proxy, without TLS, or for a model with a similar name.
    check(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "openai/gpt-4o",
        "unknown",
    );
    check("openai", "http://127.0.0.1:9/v1", "gpt-4o", "unknown");
    check(
        "openai",
        "https://api.openai.com.evil.example/v1",
        "gpt-4o",
        "unknown",
    );
    check(
        "openai",
        "https://api.openai.com@evil.example/v1",
        "gpt-4o",
        "unknown",
    );
    check("openai", openai, "gpt-4o-audio", "unknown");
    check("openai", openai, "gpt-5.9", "unknown");
    // The user's entries apply to every provider; a pattern may name one.
    check(
        "groq",
        "https://api.groq.com/openai/v1",
        "llama-3.3-70b",
        "$1.0000",
    );
    check(
        "together",
        "https://api.together.xyz/v1",
        "llama-3.3-70b",
        "unknown",
    );
    check("any", "http://10.0.0.1/v1", "My-Model", "$1.0000");
    // A server on this machine costs nothing; a model that it forwards to a cloud may.
    check("ollama", "http://127.0.0.1:11434/v1", "gpt-oss:20b", "$0");
    check(
        "ollama",
        "http://127.0.0.1:11434/v1",
        "gpt-oss:120b-cloud",
        "unknown",
    );
    check(
        "ollama",
        "http://gpu.example:11434/v1",
        "gpt-oss:20b",
        "unknown",
    );
    check("box", "http://127.0.0.1:8000/v1", "gpt-oss:20b", "unknown");
}

#[test]
fn user_entries_are_parsed_with_all_fields() {
    let json =
        r#"{"pattern": "m", "images": true, "prices": {"input": 0.3, "output": 2, "up_to": 1000}}"#;
    let entry: ModelEntry = serde_json::from_str(json).unwrap();
    assert_eq!(
        entry.prices.and_then(|prices| prices.input),
        "0.3".parse().ok()
    );
    assert!(
        serde_json::from_str::<ModelEntry>(r#"{"pattern": "m", "prices": {"in": 1}}"#).is_err()
    );
    assert!(
        serde_json::from_str::<ModelEntry>(r#"{"pattern": "m", "prices": {"input": -1}}"#).is_err()
    );
}

#[test]
fn a_pattern_with_a_provider_is_for_that_provider() {
    let entry = |pattern: &str, context| ModelEntry {
        context: Some(context),
        pattern: pattern.to_owned(),
        ..ModelEntry::default()
    };
    let catalogue = ModelCatalogue::new(vec![entry("groq/llama", 1000), entry("qwen", 2000)]);
    let context = |provider, model| {
        catalogue
            .find_model(provider, model)
            .and_then(|found| found.context)
    };
    assert_eq!(context("groq", "llama-9"), Some(1000));
    assert_ne!(context("together", "llama-9"), Some(1000));
    assert_eq!(context("groq", "qwen-9"), Some(2000));
}
