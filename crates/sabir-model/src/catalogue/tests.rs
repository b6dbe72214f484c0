//! Which model is which, and what it costs where.

use sabir_wire::Wire;

use super::*;

#[test]
fn the_longest_pattern_wins() {
    let catalogue = Catalogue::default();
    let output = |model: &str| catalogue.find(model).and_then(|entry| entry.output);
    assert_eq!(output("claude-opus-4-20250514"), Some(32_000));
    assert_eq!(output("anthropic/Claude-Opus-4-5"), Some(64_000));
    assert_eq!(output("gpt-4o-mini-2024-07-18"), Some(16_384));
    assert_eq!(catalogue.find("my-own-model"), None);
    assert_eq!(catalogue.find("deepseek-r1:32b").and_then(|entry| entry.native), Some(false));
    assert_eq!(catalogue.find("Llama-3.3-70B-Instruct-Turbo").and_then(|entry| entry.context), Some(128_000));
}

#[test]
fn another_version_inherits_no_figure() {
    for (model, expected) in [
        ("gpt-5", Kin::Same),
        ("gpt-5-2025-08-07", Kin::Same),
        ("claude-opus-4-1-20250805", Kin::Same),
        ("gemini-2.5-flash-preview-09-2025", Kin::Same),
        ("gemini-3-pro-preview", Kin::Same),
        ("gemini-2.5-flash-preview-tts", Kin::Variant),
        ("llama-3.3-70b-instruct", Kin::Variant),
        ("gpt-5-turbo", Kin::Variant),
        ("gpt-5.9", Kin::Version),
        ("gpt-50", Kin::Version),
        ("claude-opus-4-9", Kin::Version),
        ("claude-opus-4-9-20270101", Kin::Version),
        ("grok-4-2-fast", Kin::Version),
        ("qwen3.5", Kin::Version),
    ] {
        assert_eq!(find(model).map(|(_, kin)| kin), Some(expected), "{model}");
    }
    let next = Catalogue::default().find("gpt-5.9").unwrap();
    assert_eq!((next.native, next.context, next.output, next.prices), (Some(true), None, None, None));
}

#[test]
fn a_family_has_its_edit_tool() {
    let own = Entry { pattern: "gpt-5-nano".into(), edit_tool: Some("replace_in_file".into()), ..Entry::default() };
    let catalogue = Catalogue::new(vec![own]);
    for (model, expected) in [
        ("gpt-5.2-codex", Some("apply_patch")),
        ("openai/gpt-5.9", Some("apply_patch")),
        ("gpt-5-nano-2025-08-07", Some("replace_in_file")),
        ("claude-opus-9", Some("edit_file")),
        ("gemini-3-pro-preview", Some("edit_file")),
        ("gpt-4o", None),
        ("llama-3.3-70b", None),
    ] {
        let found = catalogue.find(model).and_then(|entry| entry.edit_tool);
        assert_eq!(found.as_deref(), expected, "{model}");
    }
}

#[test]
fn own_entries_come_first_and_are_filled() {
    let own = Entry { pattern: "gpt-4o".into(), output: Some(9), dialect: Some("invoke".into()), ..Entry::default() };
    let found = Catalogue::new(vec![own]).find("openai/gpt-4o").unwrap();
    assert_eq!((found.context, found.output, found.native), (Some(128_000), Some(9), Some(false)));
    assert_eq!((found.images, found.prices.and_then(|prices| prices.input)), (Some(true), "2.5".parse().ok()));
}

#[test]
fn prices_hold_where_they_are_asked() {
    let told = Prices { input: "1".parse().ok(), ..Prices::default() };
    let own = |pattern: &str| Entry { pattern: pattern.into(), prices: Some(told), ..Entry::default() };
    let catalogue = Catalogue::new(vec![own("groq/llama"), own("my-")]);
    let check = |name: &str, base: &str, model: &str, expected: &str| {
        let prices = catalogue.prices(&Provider::new(name, Wire::OpenAiChat, base, None), model);
        let input = prices.input.map_or("unknown".to_owned(), |price| price.to_string());
        assert_eq!(input, expected, "{name} {base} {model}");
    };
    let openai = "https://api.openai.com/v1";
    check("openai", openai, "gpt-4o", "$2.5000");
    check("openai", openai, "gpt-4o-2024-08-06", "$2.5000");
    check("mine", "https://API.openai.com:443/v1/", "gpt-4o", "$2.5000");
    // Not at a reseller's or behind a proxy, not without TLS, not for a model that only sounds alike.
    check("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-4o", "unknown");
    check("openai", "http://127.0.0.1:9/v1", "gpt-4o", "unknown");
    check("openai", "https://api.openai.com.evil.example/v1", "gpt-4o", "unknown");
    check("openai", "https://api.openai.com@evil.example/v1", "gpt-4o", "unknown");
    check("openai", openai, "gpt-4o-audio", "unknown");
    check("openai", openai, "gpt-5.9", "unknown");
    // What the user says holds everywhere; a pattern may name the provider.
    check("groq", "https://api.groq.com/openai/v1", "llama-3.3-70b", "$1.0000");
    check("together", "https://api.together.xyz/v1", "llama-3.3-70b", "unknown");
    check("any", "http://10.0.0.1/v1", "My-Model", "$1.0000");
    // A server on this machine is paid for already; a model that it passes on is not.
    check("ollama", "http://127.0.0.1:11434/v1", "gpt-oss:20b", "$0");
    check("ollama", "http://127.0.0.1:11434/v1", "gpt-oss:120b-cloud", "unknown");
    check("ollama", "http://gpu.example:11434/v1", "gpt-oss:20b", "unknown");
    check("box", "http://127.0.0.1:8000/v1", "gpt-oss:20b", "unknown");
}

#[test]
fn own_entries_are_read_with_all_their_fields() {
    let json = r#"{"pattern": "m", "images": true, "prices": {"input": 0.3, "output": 2, "up_to": 1000}}"#;
    let entry: Entry = serde_json::from_str(json).unwrap();
    assert_eq!(entry.prices.and_then(|prices| prices.input), "0.3".parse().ok());
    assert!(serde_json::from_str::<Entry>(r#"{"pattern": "m", "prices": {"in": 1}}"#).is_err());
    assert!(serde_json::from_str::<Entry>(r#"{"pattern": "m", "prices": {"input": -1}}"#).is_err());
}
