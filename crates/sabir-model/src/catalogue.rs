//! What is known of models by their names.
//!
//! Names are matched by pattern, since providers add dates, sizes and owners to them: `anthropic/claude-sonnet-4-5-20250929`
//! is matched by `claude-sonnet-4`. The table holds published figures only; what is unknown stays `None`, and a user's own
//! entries come first.

use serde::{Deserialize, Serialize};

/// What is known of the models that a pattern matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Entry {
    /// What the name begins with, behind its last `/`; letter case does not count. The longest pattern wins.
    pub pattern: String,
    /// The context in tokens, input and output together.
    pub context: Option<u64>,
    /// The most output tokens of one response.
    pub output: Option<u64>,
    /// Whether it has been trained for its provider's native calls.
    pub native: Option<bool>,
    /// The dialect to prompt it in, if it is prompted.
    pub dialect: Option<String>,
}

/// The table with a user's own entries before it.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    own: Vec<Entry>,
}

/// Pattern, context, output, native calls. 0: unknown.
const TABLE: [(&str, u64, u64, bool); 40] = [
    ("claude-3-haiku", 200_000, 4_096, true),
    ("claude-3-opus", 200_000, 4_096, true),
    ("claude-3-5-haiku", 200_000, 8_192, true),
    ("claude-3-5-sonnet", 200_000, 8_192, true),
    ("claude-3-7-sonnet", 200_000, 64_000, true),
    ("claude-opus-4", 200_000, 32_000, true),
    ("claude-sonnet-4", 200_000, 64_000, true),
    ("claude-haiku-4", 200_000, 64_000, true),
    ("claude-opus-4-5", 200_000, 64_000, true),
    ("claude", 200_000, 0, true),
    ("gpt-3.5-turbo", 16_385, 4_096, true),
    ("gpt-4-turbo", 128_000, 4_096, true),
    ("gpt-4o", 128_000, 16_384, true),
    ("gpt-4.1", 1_047_576, 32_768, true),
    ("gpt-5", 400_000, 128_000, true),
    ("gpt-oss", 131_072, 0, true),
    ("gpt-5-chat", 128_000, 16_384, true),
    ("o3", 200_000, 100_000, true),
    ("o4-mini", 200_000, 100_000, true),
    ("gemini-2.0-flash", 1_048_576, 8_192, true),
    ("gemini-2.5-flash", 1_048_576, 65_536, true),
    ("gemini-2.5-pro", 1_048_576, 65_536, true),
    ("gemini", 0, 0, true),
    ("deepseek-chat", 128_000, 8_192, true),
    ("deepseek-r1", 128_000, 0, false),
    ("deepseek-r1-0528", 128_000, 0, true),
    ("grok", 0, 0, true),
    ("grok-3", 131_072, 0, true),
    ("grok-4", 256_000, 0, true),
    ("mistral-large", 128_000, 0, true),
    ("qwen3", 0, 0, true),
    ("llama-3.1", 128_000, 0, true),
    ("llama-3.3", 128_000, 0, true),
    ("kimi-k2", 0, 0, true),
    ("glm-4", 0, 0, true),
    ("llama-2", 4_096, 0, false),
    ("codellama", 16_384, 0, false),
    ("gemma-2", 8_192, 0, false),
    ("gemma-3", 0, 0, false),
    ("phi-3", 0, 0, false),
];

impl Catalogue {
    /// The table, with a user's entries that win over it.
    pub fn new(own: Vec<Entry>) -> Self {
        Self { own }
    }

    /// What is known of a model. Fields that the user's entry leaves open are filled from the table.
    pub fn find(&self, model: &str) -> Option<Entry> {
        let name = model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let whole = model.to_ascii_lowercase();
        let own = self.own.iter().filter(|entry| {
            let pattern = entry.pattern.to_ascii_lowercase();
            !pattern.is_empty() && (name.starts_with(&pattern) || whole.starts_with(&pattern))
        });
        let own = own.max_by_key(|entry| entry.pattern.len()).cloned();
        let rows = TABLE.iter().filter(|(pattern, ..)| name.starts_with(pattern));
        let known = rows.max_by_key(|(pattern, ..)| pattern.len()).map(|(pattern, context, output, native)| Entry {
            pattern: (*pattern).to_owned(),
            context: Some(*context).filter(|context| *context > 0),
            output: Some(*output).filter(|output| *output > 0),
            native: Some(*native),
            dialect: None,
        });
        match (own, known) {
            (Some(own), Some(known)) => Some(Entry {
                context: own.context.or(known.context),
                output: own.output.or(known.output),
                // A dialect of the user's own says that the model is to be prompted.
                native: own.native.or(if own.dialect.is_some() { Some(false) } else { known.native }),
                ..own
            }),
            (own, known) => own.or(known),
        }
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn own_entries_come_first_and_are_filled() {
        let own =
            Entry { pattern: "gpt-4o".into(), output: Some(9), dialect: Some("invoke".into()), ..Entry::default() };
        let found = Catalogue::new(vec![own]).find("openai/gpt-4o").unwrap();
        assert_eq!((found.context, found.output, found.native), (Some(128_000), Some(9), Some(false)));
    }
}
