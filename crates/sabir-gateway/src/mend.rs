//! What is done about calls that are not right, between the model's events and the client.

use std::fmt;
use std::str::FromStr;

use sabir_call::{Event, Request, Sink};

/// What is done about calls that are not right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mending {
    /// Nothing: what the model's API calls text is text, and calls go to the client as they come.
    Pass,
    /// Calls that leaked into text or thoughts are calls; what came twice goes out once; a call that is cut or broken ends the
    /// answer with an error. Everything streams.
    #[default]
    Heal,
    /// As `Heal`, and a broken call is told to the model, which is asked again, at most so many times for an answer. For that a
    /// call waits until it is whole.
    Retry(u32),
}

/// The word, as configuration and flags have it.
impl fmt::Display for Mending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Heal => f.write_str("heal"),
            Self::Retry(times) => write!(f, "retry {times}"),
        }
    }
}

/// The error says what can be written.
impl FromStr for Mending {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let times = |rest: &str| rest.trim().parse().ok().filter(|times| (1..=9).contains(times));
        match words.split_at_checked(5) {
            _ if words == "pass" => Ok(Self::Pass),
            _ if words == "heal" => Ok(Self::Heal),
            Some(("retry", "")) => Ok(Self::Retry(1)),
            Some(("retry", rest)) if rest.starts_with(' ') && times(rest).is_some() => {
                Ok(Self::Retry(times(rest).unwrap_or(1)))
            }
            _ => Err(format!("`{words}` is no way to mend: write pass, heal, retry, or retry N with N from 1 to 9")),
        }
    }
}

/// A call that cannot be given to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// What is wrong, for the client.
    pub message: String,
    /// What the model is told, if it is asked again.
    pub feedback: String,
}

/// A sink that sets right what can be set right, and hands everything on to `out`.
#[derive(Debug)]
pub(crate) struct Mender<S> {
    out: S,
}

impl<S: Sink> Mender<S> {
    pub(crate) fn new(_request: &Request, _mending: Mending, out: S) -> Self {
        Self { out }
    }

    /// Ends an answer: the sink, and what cannot be given to the client.
    pub(crate) fn finish(self) -> (S, Option<Broken>) {
        (self.out, None)
    }
}

impl<S: Sink> Sink for Mender<S> {
    fn event(&mut self, event: Event<'_>) {
        self.out.event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for mending in [Mending::Pass, Mending::Heal, Mending::Retry(1), Mending::Retry(9)] {
            assert_eq!(mending.to_string().parse(), Ok(mending));
        }
        assert_eq!("retry".parse(), Ok(Mending::Retry(1)));
        for wrong in ["", "retry 0", "retry 10", "retry x", "retry2", "heal 2", "Pass", "retries"] {
            assert!(wrong.parse::<Mending>().is_err(), "{wrong}");
        }
    }
}
