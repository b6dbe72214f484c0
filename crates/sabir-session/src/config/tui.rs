//! Defines the keys of the full interface.

use serde::Deserialize;

/// The settings of the full interface.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TuiKeys {
    status: Option<Vec<StatusItem>>,
    keys: EditingKeys,
    notify: AttentionCall,
}

/// A part of the status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusItem {
    /// The model.
    Model,
    /// The protocol of its calls.
    Protocol,
    /// The mode.
    Mode,
    /// How full the context is.
    Context,
    /// What the task has cost.
    Cost,
    /// The sandbox of commands.
    Sandbox,
    /// The git branch of the folder.
    Branch,
}

impl StatusItem {
    /// All parts, the most important first.
    pub const ALL: [Self; 7] = [
        Self::Model,
        Self::Protocol,
        Self::Mode,
        Self::Context,
        Self::Cost,
        Self::Sandbox,
        Self::Branch,
    ];
}

/// The keys that edit a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EditingKeys {
    /// Those of Emacs and the shells.
    #[default]
    Emacs,
    /// Those of vi, with a mode for commands.
    Vi,
}

/// The call for a user who is elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionCall {
    /// None.
    Off,
    /// The bell of the terminal.
    #[default]
    Bell,
    /// The bell, and a notification of the desktop by the terminal.
    Desktop,
}

impl TuiKeys {
    /// Returns the parts of the status line, in their order.
    pub fn status_items(&self) -> &[StatusItem] {
        self.status.as_deref().unwrap_or(&StatusItem::ALL)
    }

    /// Returns the keys that edit a message.
    pub fn editing_keys(&self) -> EditingKeys {
        self.keys
    }

    /// Returns the call for a user who is elsewhere.
    pub fn attention_call(&self) -> AttentionCall {
        self.notify
    }
}
