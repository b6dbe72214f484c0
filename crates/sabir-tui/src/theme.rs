//! Chooses the styles of the interface.
//!
//! Only the sixteen colours of the terminal's own palette are used, never a background: the user has chosen them to be
//! readable on their dark or light screen, and every terminal has them. With `NO_COLOR` bold, dim and underlined text remain.

use ratatui_core::style::{Color, Modifier, Style};

/// The role of a piece of text, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Plain,
    /// Secondary text: hints, counts, reasoning.
    Dim,
    /// The marks of the interface itself.
    Accent,
    /// A message of the user.
    User,
    /// A heading.
    Heading,
    /// Strong text.
    Strong,
    /// Code within a text.
    Code,
    /// A link.
    Link,
    /// Success.
    Success,
    /// A problem that does not stop anything.
    Warning,
    /// A failure.
    Error,
    /// An added line.
    Added,
    /// A removed line.
    Removed,
    /// The chosen row of a list.
    Selected,
    /// A keyword of a programming language.
    Keyword,
    /// A string or a number of a programming language.
    Literal,
    /// A comment of a programming language.
    Comment,
}

/// The styles of all roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    has_colors: bool,
}

impl Theme {
    /// Creates a theme; `has_colors` is false if the user wants none (`NO_COLOR`).
    pub const fn new(has_colors: bool) -> Self {
        Self { has_colors }
    }

    /// Returns the style of a role.
    pub fn style(self, role: Role) -> Style {
        let plain = Style::new();
        let colored = |color: Color| {
            if self.has_colors {
                plain.fg(color)
            } else {
                plain
            }
        };
        match role {
            Role::Plain => plain,
            Role::Dim => plain.add_modifier(Modifier::DIM),
            Role::Comment => plain.add_modifier(Modifier::DIM | Modifier::ITALIC),
            Role::Accent => colored(Color::Cyan),
            Role::User => colored(Color::Blue).add_modifier(Modifier::BOLD),
            Role::Heading => colored(Color::Cyan).add_modifier(Modifier::BOLD),
            Role::Strong => plain.add_modifier(Modifier::BOLD),
            Role::Code => match self.has_colors {
                true => plain.fg(Color::Magenta),
                false => plain.add_modifier(Modifier::BOLD),
            },
            Role::Link => colored(Color::Blue).add_modifier(Modifier::UNDERLINED),
            Role::Success | Role::Added => colored(Color::Green),
            Role::Warning => colored(Color::Yellow),
            Role::Error => colored(Color::Red).add_modifier(Modifier::BOLD),
            Role::Removed => colored(Color::Red),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            Role::Keyword => colored(Color::Blue),
            Role::Literal => colored(Color::Green),
        }
    }
}
