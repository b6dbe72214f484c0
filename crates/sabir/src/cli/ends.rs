//! The command line of how a task ends: limits, and what must hold before it is completed.

use clap::Args;
use sabir_session::LimitSpec;

use crate::exit::CommandError;

/// How a task ends.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EndFlags {
    /// End the task after so many turns, counted from its start or its resume.
    #[arg(long)]
    pub(crate) max_turns: Option<u32>,
    /// End the task when it has taken so many tokens, those that are read and those that are written, counted from its start or its
    /// resume: `200000`, `500k`, `2M`. The turn that reaches the limit is finished.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_tokens: Option<String>,
    /// End the task when it has cost so many US dollars, counted from its start or its resume: `5`, `0.25`. The turn that
    /// reaches the limit is finished. The model's prices must be known.
    #[arg(long, value_name = "USD")]
    pub(crate) max_cost: Option<String>,
    /// End the task after so much time: `90`, `90s`, `15m`, `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_time: Option<String>,
    /// Complete the task only when this command succeeds. It is run in the folder, in the sandbox, whenever the model says that the
    /// task is done; what it prints goes back to the model if it fails. An empty one switches off that of the configuration.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) check: Option<String>,
    /// Complete the task only when no todo of the model's is left.
    #[arg(long)]
    pub(crate) require_todos: bool,
}

impl EndFlags {
    /// The limits of a session with these flags.
    pub(crate) fn limit_spec(&self) -> Result<LimitSpec, CommandError> {
        let cost = self.max_cost.as_deref().map(str::parse).transpose();
        let time = self
            .max_time
            .as_deref()
            .map(sabir_session::config::parse_duration)
            .transpose()?;
        Ok(LimitSpec {
            max_turns: self.max_turns,
            max_tokens: self.max_tokens.as_deref().map(tokens).transpose()?,
            max_cost: cost.map_err(|error| CommandError::usage(format!("--max-cost: {error}")))?,
            max_seconds: time.map(|time| time.as_secs()),
        })
    }
}

/// `200000`, `500k` or `2M`.
fn tokens(text: &str) -> Result<u64, CommandError> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => text
            .strip_suffix(['m', 'M'])
            .map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let count = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .filter(|count| *count > 0);
    count.ok_or_else(|| {
        CommandError::usage(format!(
            "--max-tokens: `{text}` is no number of tokens: write 200000, 500k or 2M"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn tokens_are_counted_in_thousands_too() {
        let check =
            |text: &str, expected: Option<u64>| assert_eq!(tokens(text).ok(), expected, "{text}");
        check("200000", Some(200_000));
        check("500k", Some(500_000));
        check("2M", Some(2_000_000));
        for wrong in [
            "",
            "0",
            "k",
            "-1",
            "1.5k",
            "2g",
            "99999999999999999999",
            "99999999999999999M",
        ] {
            check(wrong, None);
        }
    }
}
