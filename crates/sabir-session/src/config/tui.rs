//! Defines the keys of the full interface.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::key_bindings::KeyBindings;
use super::themes::{BUILT_IN_THEMES, ThemeError, UserTheme};

/// The settings of the full interface.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TuiConfig {
    status: Option<Vec<StatusItem>>,
    keys: EditingKeys,
    bindings: KeyBindings,
    notify: NotificationKind,
    theme: Option<String>,
    themes: BTreeMap<String, UserTheme>,
    links: EscapeSequenceMode,
    clipboard: EscapeSequenceMode,
    motion: AnimationLevel,
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
    /// The fill level of the context.
    Context,
    /// The cost of the task.
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

/// The signal to a user who looks elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    /// None.
    Off,
    /// The bell of the terminal.
    #[default]
    Bell,
    /// The bell, and a notification of the desktop by the terminal.
    Desktop,
}

/// The use of a sequence that not every terminal understands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EscapeSequenceMode {
    /// In terminals that are known to understand it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The amount of movement on the screen while time passes or text arrives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnimationLevel {
    /// Seconds are counted, and text appears as it arrives.
    #[default]
    Full,
    /// Nothing moves: text appears block by block.
    Reduced,
}

impl TuiConfig {
    /// Returns the parts of the status line, in their order.
    pub fn status_items(&self) -> &[StatusItem] {
        self.status.as_deref().unwrap_or(&StatusItem::ALL)
    }

    /// Returns the keys that edit a message.
    pub fn editing_keys(&self) -> EditingKeys {
        self.keys
    }

    /// Returns the signal to a user who looks elsewhere.
    pub fn notification_kind(&self) -> NotificationKind {
        self.notify
    }

    /// Returns the keys of all actions.
    pub fn key_bindings(&self) -> &KeyBindings {
        &self.bindings
    }

    /// Returns the name of the theme.
    pub fn theme_name(&self) -> &str {
        self.theme.as_deref().unwrap_or("auto")
    }

    /// Returns the user's own themes.
    pub fn user_themes(&self) -> &BTreeMap<String, UserTheme> {
        &self.themes
    }

    /// Returns the use of links (OSC 8).
    pub fn hyperlink_mode(&self) -> EscapeSequenceMode {
        self.links
    }

    /// Returns the use of the terminal's clipboard (OSC 52).
    pub fn clipboard_mode(&self) -> EscapeSequenceMode {
        self.clipboard
    }

    /// Returns the amount of motion on the screen.
    pub fn motion(&self) -> AnimationLevel {
        self.motion
    }

    /// Checks that the chosen theme exists.
    pub(super) fn check_theme(&self) -> Result<(), ThemeError> {
        let name = self.theme_name();
        if BUILT_IN_THEMES.contains(&name) || self.themes.contains_key(name) {
            return Ok(());
        }
        let own = self.themes.keys().map(String::as_str);
        let known: Vec<_> = BUILT_IN_THEMES.into_iter().chain(own).collect();
        Err(ThemeError::UnknownTheme {
            name: name.to_owned(),
            known: known.join(", "),
        })
    }
}
