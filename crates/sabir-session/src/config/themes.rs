//! Defines the themes of the full interface: the roles of its texts, and the styles that a user gives them.

use std::collections::BTreeMap;
use std::str::FromStr;

use sabir_call::nearest_candidate;
use serde::Deserialize;

/// The names of the built-in themes, the usual one first.
pub const BUILT_IN_THEMES: [&str; 6] = [
    "auto",
    "terminal",
    "dark",
    "light",
    "color-blind",
    "monochrome",
];

/// The role of a piece of text, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StyleRole {
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

impl StyleRole {
    /// All roles with their names in the configuration.
    pub const ALL: [(Self, &'static str); 17] = [
        (Self::Plain, "plain"),
        (Self::Dim, "dim"),
        (Self::Accent, "accent"),
        (Self::User, "user"),
        (Self::Heading, "heading"),
        (Self::Strong, "strong"),
        (Self::Code, "code"),
        (Self::Link, "link"),
        (Self::Success, "success"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Added, "added"),
        (Self::Removed, "removed"),
        (Self::Selected, "selected"),
        (Self::Keyword, "keyword"),
        (Self::Literal, "literal"),
        (Self::Comment, "comment"),
    ];
}

/// A colour of a theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThemeColor {
    /// A colour of the terminal's palette: 0 to 7, and 8 to 15 for the bright ones.
    Palette(u8),
    /// A colour of the fixed 256 colours.
    Indexed(u8),
    /// A colour by its red, green and blue parts.
    Rgb {
        /// Red.
        red: u8,
        /// Green.
        green: u8,
        /// Blue.
        blue: u8,
    },
}

/// The names of the palette's colours, in their order.
const PALETTE: [&str; 8] = [
    "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
];

/// A style of a theme.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// The colour; `None` for the terminal's own.
    pub color: Option<ThemeColor>,
    /// True for bold text.
    pub is_bold: bool,
    /// True for dim text.
    pub is_dim: bool,
    /// True for italic text.
    pub is_italic: bool,
    /// True for underlined text.
    pub is_underlined: bool,
    /// True if text and background exchange their colours.
    pub is_reversed: bool,
}

/// The reason why a theme cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThemeError {
    /// There is no such role.
    #[error("there is no role `{name}`{hint}; docs/tui.md lists the roles")]
    UnknownRole {
        /// The name.
        name: String,
        /// The most similar role, as a question.
        hint: String,
    },
    /// A word is neither a colour nor an attribute.
    #[error(
        "`{0}` is not part of a style: write a colour (`red`, `bright-red`, `0` to `255`, `#rrggbb`) and any of `bold`, `dim`, `italic`, \
         `underline` and `reverse`, or `plain`"
    )]
    UnknownWord(String),
    /// There is no such theme.
    #[error("there is no theme `{name}`: use one of {known}, or define it in [tui.themes.{name}]")]
    UnknownTheme {
        /// The name.
        name: String,
        /// The known themes.
        known: String,
    },
    /// A theme is based on one that is not built in.
    #[error("a theme can only be based on a built-in one, and `{0}` is not")]
    UnknownBase(String),
}

impl FromStr for TextStyle {
    type Err = ThemeError;

    fn from_str(text: &str) -> Result<Self, ThemeError> {
        let mut style = Self::default();
        for word in text.split_whitespace() {
            match word {
                "plain" => {}
                "bold" => style.is_bold = true,
                "dim" => style.is_dim = true,
                "italic" => style.is_italic = true,
                "underline" => style.is_underlined = true,
                "reverse" => style.is_reversed = true,
                _ => style.color = Some(parse_color(word)?),
            }
        }
        Ok(style)
    }
}

fn parse_color(word: &str) -> Result<ThemeColor, ThemeError> {
    let unknown = || ThemeError::UnknownWord(word.to_owned());
    if let Some(digits) = word.strip_prefix('#') {
        let number = u32::from_str_radix(digits, 16).ok();
        // `from_str_radix` takes a plus sign as well.
        let is_whole = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let [_, red, green, blue] = number
            .filter(|_| is_whole)
            .ok_or_else(unknown)?
            .to_be_bytes();
        return Ok(ThemeColor::Rgb { red, green, blue });
    }
    if let Ok(number) = word.parse() {
        return Ok(ThemeColor::Indexed(number));
    }
    let bright = word.strip_prefix("bright-");
    let name = bright.unwrap_or(word);
    let place = PALETTE.iter().position(|known| *known == name);
    let place = place.and_then(|place| u8::try_from(place).ok());
    let offset = if bright.is_some() { 8 } else { 0 };
    Ok(ThemeColor::Palette(place.ok_or_else(unknown)? + offset))
}

/// A theme of the user: a built-in one with other styles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct UserTheme {
    /// The built-in theme whose styles apply where this one has none; `None` for `auto`.
    pub base: Option<String>,
    /// The styles.
    pub styles: Vec<(StyleRole, TextStyle)>,
}

impl TryFrom<BTreeMap<String, String>> for UserTheme {
    type Error = ThemeError;

    fn try_from(table: BTreeMap<String, String>) -> Result<Self, ThemeError> {
        let mut theme = Self::default();
        for (name, value) in &table {
            if name == "base" {
                if !BUILT_IN_THEMES.contains(&value.as_str()) {
                    return Err(ThemeError::UnknownBase(value.clone()));
                }
                theme.base = Some(value.clone());
                continue;
            }
            let role = StyleRole::ALL.iter().find(|(_, known)| known == name);
            let Some((role, _)) = role else {
                let names = StyleRole::ALL.iter().map(|(_, known)| *known);
                return Err(ThemeError::UnknownRole {
                    name: name.clone(),
                    hint: nearest_candidate(name, names)
                        .map(|near| format!(" (did you mean `{near}`?)"))
                        .unwrap_or_default(),
                });
            };
            theme.styles.push((*role, value.parse()?));
        }
        Ok(theme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_parsed() {
        let style: TextStyle = "bold #0a80ff underline".parse().unwrap();
        let blue = ThemeColor::Rgb {
            red: 10,
            green: 128,
            blue: 255,
        };
        assert_eq!(style.color, Some(blue));
        assert!(style.is_bold && style.is_underlined && !style.is_dim);
        let color = |text: &str| text.parse::<TextStyle>().map(|style| style.color);
        assert_eq!(color("bright-red"), Ok(Some(ThemeColor::Palette(9))));
        assert_eq!(color("cyan"), Ok(Some(ThemeColor::Palette(6))));
        assert_eq!(color("208"), Ok(Some(ThemeColor::Indexed(208))));
        assert_eq!(color("plain"), Ok(None));
        for wrong in ["#12", "#+12345", "256", "redd", "bright-", "bold,red"] {
            assert!(color(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_in_themes_are_explained() {
        let theme = |name: &str, value: &str| {
            UserTheme::try_from(BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert!(theme("accent", "bold red").is_ok());
        let error = theme("acent", "red").unwrap_err().to_string();
        assert!(error.contains("did you mean `accent`?"), "{error}");
        assert!(theme("base", "mine").is_err());
        assert_eq!(theme("base", "dark").unwrap().base.as_deref(), Some("dark"));
    }
}
