//! Detects from the environment which optional escape sequences the terminal supports.

use base64::prelude::{BASE64_STANDARD, Engine};
use sabir_session::Environment;
use sabir_session::config::tui::EscapeSequenceMode;

use crate::theme::Background;

/// Variables that identify terminals which show links (OSC 8) and rewrap their rows.
pub const MODERN_VARIABLES: [&str; 7] = [
    "VTE_VERSION",
    "KONSOLE_VERSION",
    "KITTY_WINDOW_ID",
    "WEZTERM_PANE",
    "ALACRITTY_WINDOW_ID",
    "ITERM_SESSION_ID",
    "WT_SESSION",
];
/// The same terminals and others in `TERM_PROGRAM`.
const LINK_PROGRAMS: [&str; 6] = ["ghostty", "vscode", "WezTerm", "iTerm", "zed", "Hyper"];
/// The same in `TERM`.
const LINK_TERMINALS: [&str; 4] = ["foot", "alacritty", "xterm-kitty", "xterm-ghostty"];
/// The maximum number of bytes of one piece of a sequence that is passed through screen.
const SCREEN_PIECE: usize = 200;

/// The way to the clipboard of the terminal (OSC 52).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClipboardPath {
    /// There is none.
    None,
    /// The sequence itself.
    Direct,
    /// The sequence, and tmux decides by its `set-clipboard`.
    Tmux,
    /// The sequence in pieces that screen passes through.
    Screen,
}

/// The optional abilities of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalCapabilities {
    shows_links: bool,
    clipboard: ClipboardPath,
    answers_queries: bool,
}

impl TerminalCapabilities {
    /// Detects the abilities of the terminal from the environment, within the user's settings.
    pub fn find(
        environment: &Environment,
        links: EscapeSequenceMode,
        clipboard: EscapeSequenceMode,
    ) -> Self {
        let value = |name| environment.variable(name).unwrap_or_default();
        let kind = value("TERM");
        let is_screen = !value("STY").is_empty();
        let is_tmux = !value("TMUX").is_empty();
        let path = match (is_tmux, is_screen) {
            (true, _) => ClipboardPath::Tmux,
            (_, true) => ClipboardPath::Screen,
            _ => ClipboardPath::Direct,
        };
        // These print parts of sequences that they do not know.
        let is_odd =
            matches!(kind, "linux" | "cons25") || value("TERM_PROGRAM") == "Apple_Terminal";
        let clipboard = match clipboard {
            EscapeSequenceMode::Off => ClipboardPath::None,
            EscapeSequenceMode::Auto if is_odd && !is_tmux => ClipboardPath::None,
            EscapeSequenceMode::Auto | EscapeSequenceMode::On => path,
        };
        let shows_links = match links {
            EscapeSequenceMode::Off => false,
            EscapeSequenceMode::On => true,
            EscapeSequenceMode::Auto => shows_links(environment),
        };
        Self {
            shows_links,
            clipboard,
            // screen swallows the query, and a console may print it.
            answers_queries: !is_screen && !matches!(kind, "linux" | "cons25"),
        }
    }

    /// Returns true if the terminal shows links (OSC 8).
    pub fn shows_links(self) -> bool {
        self.shows_links
    }

    /// Returns the query for the colour of the background (OSC 11); `None` if it is known, or no answer can be expected.
    pub fn background_query(self, known: Option<Background>) -> Option<&'static str> {
        (known.is_none() && self.answers_queries).then_some("\x1b]11;?\x1b\\")
    }

    /// Returns the bytes that copy a text to the clipboard of the terminal; `None` if it takes none.
    pub fn clipboard_bytes(self, text: &str) -> Option<String> {
        let encoded = BASE64_STANDARD.encode(text.as_bytes());
        let sequence = format!("\x1b]52;c;{encoded}\x1b\\");
        match self.clipboard {
            ClipboardPath::None => None,
            ClipboardPath::Direct | ClipboardPath::Tmux => Some(sequence),
            ClipboardPath::Screen => {
                // Ended by BEL, because the usual end (ESC and a backslash) would end screen's
                // wrapper sequence.
                let sequence = format!("\x1b]52;c;{encoded}\x07");
                // All of it is ASCII, so a cut never goes through a character.
                let pieces = sequence.as_bytes().chunks(SCREEN_PIECE);
                let passed = pieces.map(|piece| {
                    let piece = String::from_utf8_lossy(piece);
                    format!("\x1bP{piece}\x1b\\")
                });
                Some(passed.collect())
            }
        }
    }

    /// Returns a notice for the user after a copy; empty if there is none.
    pub fn clipboard_hint(self) -> &'static str {
        match self.clipboard {
            ClipboardPath::Tmux => "; tmux passes it on with `set -g set-clipboard on`",
            _ => "",
        }
    }
}

fn shows_links(environment: &Environment) -> bool {
    let value = |name: &str| environment.variable(name).unwrap_or_default();
    if !value("STY").is_empty() {
        return false;
    }
    // A terminal within another comes first: it decides.
    if !value("TMUX").is_empty() {
        let version = value("TERM_PROGRAM_VERSION");
        let mut numbers = version.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
        let version = [number(), number()].map(Option::unwrap_or_default);
        // tmux passes links on since 3.4.
        return value("TERM_PROGRAM") == "tmux" && version >= [3, 4];
    }
    let is = |name: &str, known: &[&str]| {
        let value = value(name);
        known.iter().any(|known| value.starts_with(known))
    };
    MODERN_VARIABLES.iter().any(|name| !value(name).is_empty())
        || is("TERM_PROGRAM", &LINK_PROGRAMS)
        || is("TERM", &LINK_TERMINALS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(variables: &[(&str, &str)]) -> TerminalCapabilities {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let environment =
            Environment::new(variables.collect::<Vec<_>>(), "", || std::time::UNIX_EPOCH);
        TerminalCapabilities::find(
            &environment,
            EscapeSequenceMode::Auto,
            EscapeSequenceMode::Auto,
        )
    }

    #[test]
    fn links_are_written_where_they_are_shown() {
        let shown = [
            &[("TERM", "foot")][..],
            &[("VTE_VERSION", "7600")],
            &[("TERM_PROGRAM", "WezTerm")],
            &[
                ("TMUX", "/tmp/tmux"),
                ("TERM_PROGRAM", "tmux"),
                ("TERM_PROGRAM_VERSION", "3.5a"),
            ],
        ];
        for variables in shown {
            assert!(abilities(variables).shows_links(), "{variables:?}");
        }
        let hidden = [
            &[("TERM", "xterm-256color")][..],
            &[("VTE_VERSION", "7600"), ("STY", "1.a")],
            &[
                ("VTE_VERSION", "7600"),
                ("TMUX", "/tmp/tmux"),
                ("TERM_PROGRAM", "tmux"),
                ("TERM_PROGRAM_VERSION", "3.3a"),
            ],
        ];
        for variables in hidden {
            assert!(!abilities(variables).shows_links(), "{variables:?}");
        }
    }

    #[test]
    fn the_clipboard_is_used_where_there_is_one() {
        let copied = |variables: &[(&str, &str)]| abilities(variables).clipboard_bytes("Hello.");
        assert_eq!(
            copied(&[("TERM", "xterm")]).as_deref(),
            Some("\x1b]52;c;SGVsbG8u\x1b\\")
        );
        assert_eq!(copied(&[("TERM", "linux")]), None);
        assert_eq!(
            copied(&[("STY", "1.a")]).as_deref(),
            Some("\x1bP\x1b]52;c;SGVsbG8u\x07\x1b\\")
        );
        assert!(!abilities(&[("TMUX", "x")]).clipboard_hint().is_empty());
        let long = abilities(&[("STY", "1.a")]).clipboard_bytes(&"x".repeat(900));
        assert!(long.unwrap().matches("\x1bP").count() > 5);
    }

    #[test]
    fn the_background_is_queried_where_an_answer_comes() {
        assert!(
            abilities(&[("TERM", "xterm")])
                .background_query(None)
                .is_some()
        );
        assert!(
            abilities(&[("TERM", "linux")])
                .background_query(None)
                .is_none()
        );
        assert!(
            abilities(&[("STY", "1.a")])
                .background_query(None)
                .is_none()
        );
        let known = abilities(&[("TERM", "xterm")]).background_query(Some(Background::Dark));
        assert!(known.is_none());
    }
}
