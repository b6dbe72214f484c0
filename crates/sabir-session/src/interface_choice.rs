//! Defines the choice between the interfaces of interactive tasks.

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::SessionError;
use crate::host::Host;

/// The variable that chooses [`InterfaceChoice::ScreenReader`], with any value but `0`.
const SCREEN_READER_VARIABLE: &str = "SABIR_SCREEN_READER";

/// The interface of interactive tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceChoice {
    /// The full interface, where the terminal can show it.
    #[default]
    Auto,
    /// The full interface; a terminal that cannot show it gets the line mode. It is what `Auto`
    /// chooses today.
    Full,
    /// The line mode: what was printed stays, and only the line that is edited is drawn again.
    Line,
    /// The line mode without a line editor: nothing is ever drawn again, as screen readers need it.
    #[serde(rename = "screen-reader")]
    ScreenReader,
}

impl InterfaceChoice {
    /// Returns the interface of interactive tasks: the named one, else that of the environment, else that of the configuration.
    pub fn find(named: Option<Self>, host: &Host, config: Option<&Path>) -> Self {
        let variable = host.environment().variable(SCREEN_READER_VARIABLE);
        let is_set = variable.is_some_and(|value| !matches!(value, "" | "0"));
        named
            .or(is_set.then_some(Self::ScreenReader))
            // A mistake in the configuration is reported where it is loaded for the task, and lines
            // can show it.
            .unwrap_or_else(|| {
                host.load_config(config)
                    .map_or(Self::Line, |config| config.interface())
            })
    }
}

impl FromStr for InterfaceChoice {
    type Err = SessionError;

    fn from_str(text: &str) -> Result<Self, SessionError> {
        match text {
            "auto" => Ok(Self::Auto),
            "full" => Ok(Self::Full),
            "line" => Ok(Self::Line),
            "screen-reader" => Ok(Self::ScreenReader),
            _ => Err(SessionError::invalid(format!(
                "`{text}` is not an interface: write `auto`, `full`, `line` or `screen-reader`"
            ))),
        }
    }
}
