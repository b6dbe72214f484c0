//! Defines the choice between the interfaces of interactive tasks.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::SessionError;

/// The interface of interactive tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterfaceChoice {
    /// The full interface, where the terminal can show it.
    #[default]
    Auto,
    /// The full interface; a terminal that cannot show it has the line mode all the same. It is what `Auto` chooses today.
    Full,
    /// The line mode: nothing is drawn over, as screen readers and serial consoles need it.
    Line,
}

impl FromStr for InterfaceChoice {
    type Err = SessionError;

    fn from_str(text: &str) -> Result<Self, SessionError> {
        match text {
            "auto" => Ok(Self::Auto),
            "full" => Ok(Self::Full),
            "line" => Ok(Self::Line),
            _ => Err(SessionError::invalid(format!(
                "`{text}` is not an interface: write `auto`, `full` or `line`"
            ))),
        }
    }
}
