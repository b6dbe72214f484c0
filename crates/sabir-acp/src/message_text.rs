//! Renders texts of Sabir for the user of a client: questions, ends and the contents of the context.

use sabir_session::agent::{ContextUsage, EchoSource, RuleProposal};
use sabir_terminal::approval_preview::{reveal_hidden_characters, truncate_middle};

/// Runs of blanks that are longer are counted, so that nothing can be pushed out of sight.
const LONG_BLANKS: usize = 64;

/// Returns a text that a user decides about, with hidden characters named.
pub(crate) fn show_hidden_characters(text: &str) -> String {
    truncate_middle(&reveal_hidden_characters(text, LONG_BLANKS))
}

/// Renders the model's own question with the answers that it proposes.
pub(crate) fn followup_text(question: &str, options: &[String]) -> String {
    let mut text = question.to_owned();
    for (at, option) in options.iter().enumerate() {
        text.push_str(&format!("\n{}. {option}", at + 1));
    }
    text
}

/// Returns the name of the option that allows more than one call. It says exactly what.
pub(crate) fn allow_always_label(proposals: &[RuleProposal]) -> String {
    let words: Vec<_> = proposals
        .iter()
        .map(|proposal| show_hidden_characters(&proposal.words))
        .collect();
    format!("Always in this task: {}", words.join("; "))
}

/// Returns the warning about a call that may not be the model's own.
pub(crate) fn origin_warning(recovered: bool, echo: Option<&EchoSource>) -> Option<String> {
    let source = match echo {
        Some(EchoSource::Result { tool, .. }) => {
            format!(
                " It is written in a result of {}, which the model had read.",
                show_hidden_characters(tool)
            )
        }
        Some(EchoSource::Message) => " It is written in a message of yours.".to_owned(),
        Some(EchoSource::Context { name }) => {
            format!(" It is written in {}.", show_hidden_characters(name))
        }
        Some(_) => " It is written in a text that the model had read.".to_owned(),
        None => String::new(),
    };
    if recovered {
        Some(format!("The model wrote this call as text.{source}"))
    } else {
        Some(source.trim_start().to_owned()).filter(|text| !text.is_empty())
    }
}

/// Renders the contents of the context.
pub(crate) fn context_text(usage: &ContextUsage) -> String {
    let window = match (usage.window, usage.percent()) {
        (Some(window), Some(percent)) => format!(" of {window} ({percent} %)"),
        _ => String::new(),
    };
    let mut text = format!(
        "The next request has about {} tokens{window}.",
        usage.tokens
    );
    for (name, count, bytes) in &usage.breakdown {
        text.push_str(&format!("\n- {name}: {count}, {bytes} bytes"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_for_more_calls_names_hidden_characters() {
        let proposals = [RuleProposal {
            rule: "command=ls".to_owned(),
            words: "`ls\u{202e}`".to_owned(),
        }];
        assert_eq!(
            allow_always_label(&proposals),
            "Always in this task: `ls<U+202E>`"
        );
    }

    #[test]
    fn a_call_that_stood_in_a_text_is_named() {
        let echo = EchoSource::Message;
        assert_eq!(origin_warning(false, None), None);
        assert_eq!(
            origin_warning(true, Some(&echo)).as_deref(),
            Some("The model wrote this call as text. It is written in a message of yours.")
        );
    }
}
