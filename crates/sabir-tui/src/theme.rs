//! Chooses the styles of the interface.
//!
//! The usual theme uses only the sixteen colours of the terminal's own palette and never a
//! background: the user has chosen them to be readable on their screen, and every terminal has
//! them. On a light background it leaves out the palette's bright colours, which few people can
//! read there. Other themes have colours of their own, in as many as the terminal shows. With
//! `NO_COLOR`, every theme has only bold, dim and underlined text.

use std::collections::BTreeMap;

use ratatui_core::style::{Color, Modifier, Style};
use sabir_session::Environment;
pub use sabir_session::config::themes::StyleRole as Role;
use sabir_session::config::themes::{BUILT_IN_THEMES, TextStyle, ThemeColor, UserTheme};

/// The number of roles.
const ROLES: usize = Role::ALL.len();

/// The colours that a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorDepth {
    /// No colours.
    None,
    /// The sixteen of the palette.
    Palette,
    /// 256.
    Indexed,
    /// All.
    Full,
}

impl ColorDepth {
    /// Detects the colours that the terminal shows, from the environment.
    pub fn find(environment: &Environment) -> Self {
        let value = |name| environment.variable(name).unwrap_or_default();
        if !value("NO_COLOR").is_empty() {
            return Self::None;
        }
        if matches!(value("COLORTERM"), "truecolor" | "24bit") {
            // screen passes the variable on, and does not understand the sequence.
            let is_screen = !value("STY").is_empty();
            return if is_screen { Self::Indexed } else { Self::Full };
        }
        let kind = value("TERM");
        if kind.ends_with("-direct") {
            Self::Full
        } else if kind.contains("256color") || kind.starts_with("xterm-kitty") {
            Self::Indexed
        } else {
            Self::Palette
        }
    }
}

/// The brightness of the terminal's background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Light text is readable on it.
    Dark,
    /// Dark text is readable on it.
    Light,
}

impl Background {
    /// Returns the background that the environment names (`COLORFGBG`, as `15;0`), if it does.
    pub fn find(environment: &Environment) -> Option<Self> {
        let colors = environment.variable("COLORFGBG")?;
        let background: u8 = colors.rsplit(';').next()?.trim().parse().ok()?;
        Some(match background {
            // 8 is the dark grey of the bright colours; 7 is the light grey of the others.
            7 | 9..=15 => Self::Light,
            _ => Self::Dark,
        })
    }
}

/// The styles of all roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    styles: [Style; ROLES],
}

/// The themes that can be chosen, on this terminal.
#[derive(Debug, Clone)]
pub struct ThemeSet {
    own: BTreeMap<String, UserTheme>,
    depth: ColorDepth,
    /// The brightness of the background; `None` while it is not known.
    background: Option<Background>,
}

impl ThemeSet {
    /// Creates the built-in themes and those of the user.
    pub fn new(
        own: BTreeMap<String, UserTheme>,
        depth: ColorDepth,
        background: Option<Background>,
    ) -> Self {
        Self {
            own,
            depth,
            background,
        }
    }

    /// Sets the brightness of the background. Returns true if it was not known to be this one.
    pub fn set_background(&mut self, background: Background) -> bool {
        self.background.replace(background) != Some(background)
    }

    /// Returns true if the brightness of the background would change a theme, and is not known.
    pub fn needs_background(&self) -> bool {
        self.background.is_none() && self.depth != ColorDepth::None
    }

    /// Returns the names of all themes, those of the user last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.own.keys().map(String::as_str);
        let own = own.filter(|name| !BUILT_IN_THEMES.contains(name));
        BUILT_IN_THEMES.into_iter().chain(own)
    }

    /// Returns a theme by its name; the usual one if there is no such theme.
    pub fn find(&self, name: &str) -> Theme {
        let own = self
            .own
            .get(name)
            // A user's theme cannot replace a built-in one: `base` refers to built-in themes, so it
            // would refer to itself.
            .filter(|_| !BUILT_IN_THEMES.contains(&name));
        let base = match own {
            Some(own) => own.base.as_deref().unwrap_or("auto"),
            None => name,
        };
        let is_light = self.background == Some(Background::Light);
        let table = match base {
            "dark" => DARK,
            "light" => LIGHT,
            "color-blind" if is_light => COLOR_BLIND_LIGHT,
            "color-blind" => COLOR_BLIND_DARK,
            "monochrome" => MONOCHROME,
            "auto" if is_light => TERMINAL_LIGHT,
            _ => TERMINAL,
        };
        let mut theme = Theme::from_table(table, self.depth);
        for (role, style) in own.iter().flat_map(|own| &own.styles) {
            theme.set(*role, convert_style(*style, self.depth));
        }
        theme
    }
}

impl Theme {
    /// Creates the theme of the terminal's palette; `has_colors` is false if the user wants none (`NO_COLOR`).
    pub fn new(has_colors: bool) -> Self {
        let depth = match has_colors {
            true => ColorDepth::Palette,
            false => ColorDepth::None,
        };
        Self::from_table(TERMINAL, depth)
    }

    /// Returns the style of a role.
    pub fn style(self, role: Role) -> Style {
        self.styles.get(role as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, role: Role, style: Style) {
        if let Some(slot) = self.styles.get_mut(role as usize) {
            *slot = style;
        }
    }

    fn from_table(table: [&str; ROLES], depth: ColorDepth) -> Self {
        // A built-in table has no mistakes: a test parses all of them.
        let styles = table.map(|text| {
            let style = text.parse().unwrap_or_default();
            convert_style(style, depth)
        });
        let mut theme = Self { styles };
        if depth == ColorDepth::None {
            // Without its colour, code in a text would not be told from the text.
            theme.set(Role::Code, Style::new().add_modifier(Modifier::BOLD));
        }
        theme
    }
}

/// The built-in themes: the styles in the order of the roles.
///
/// plain, dim, accent, user, heading, strong, code, link, success, warning, error, added, removed, selected, keyword, literal, comment
const TERMINAL: [&str; ROLES] = [
    "plain",
    "dim",
    "cyan",
    "bold blue",
    "bold cyan",
    "bold",
    "magenta",
    "blue underline",
    "green",
    "yellow",
    "bold red",
    "green",
    "red",
    "reverse",
    "blue",
    "green",
    "dim italic",
];
/// Yellow and cyan of most palettes are hardly readable on white.
const TERMINAL_LIGHT: [&str; ROLES] = [
    "plain",
    "dim",
    "blue",
    "bold blue",
    "bold blue",
    "bold",
    "magenta",
    "blue underline",
    "green",
    "magenta",
    "bold red",
    "green",
    "red",
    "reverse",
    "blue",
    "green",
    "dim italic",
];
const DARK: [&str; ROLES] = [
    "plain",
    "#9099a8",
    "#7fc8d8",
    "bold #82aaff",
    "bold #7fc8d8",
    "bold",
    "#d6a5e8",
    "#82aaff underline",
    "#a3d39c",
    "#e8c872",
    "bold #ff8a80",
    "#a3d39c",
    "#ff9a91",
    "reverse",
    "#82aaff",
    "#a3d39c",
    "italic #9099a8",
];
const LIGHT: [&str; ROLES] = [
    "plain",
    "#5c6370",
    "#00677d",
    "bold #1f4fbf",
    "bold #00677d",
    "bold",
    "#7a2d91",
    "#1f4fbf underline",
    "#22662a",
    "#7a5200",
    "bold #b3201a",
    "#22662a",
    "#b3201a",
    "reverse",
    "#1f4fbf",
    "#22662a",
    "italic #5c6370",
];
/// Blue and orange in place of green and red.
const COLOR_BLIND_DARK: [&str; ROLES] = [
    "plain",
    "#9a9a9a",
    "#56b4e9",
    "bold #56b4e9",
    "bold #56b4e9",
    "bold",
    "#cc79a7",
    "#56b4e9 underline",
    "#56b4e9",
    "#f0e442",
    "bold #e69f00",
    "#56b4e9",
    "#e69f00",
    "reverse",
    "#56b4e9",
    "#cc79a7",
    "italic #9a9a9a",
];
const COLOR_BLIND_LIGHT: [&str; ROLES] = [
    "plain",
    "#5c5c5c",
    "#005a94",
    "bold #005a94",
    "bold #005a94",
    "bold",
    "#8a3b68",
    "#005a94 underline",
    "#005a94",
    "#6b5d00",
    "bold #a34a00",
    "#005a94",
    "#a34a00",
    "reverse",
    "#005a94",
    "#8a3b68",
    "italic #5c5c5c",
];
const MONOCHROME: [&str; ROLES] = [
    "plain",
    "dim",
    "bold",
    "bold",
    "bold underline",
    "bold",
    "bold",
    "underline",
    "plain",
    "bold",
    "bold reverse",
    "bold",
    "dim",
    "reverse",
    "bold",
    "plain",
    "dim italic",
];

fn convert_style(style: TextStyle, depth: ColorDepth) -> Style {
    let mut converted = Style::new();
    if let Some(color) = style.color.and_then(|color| convert_color(color, depth)) {
        converted = converted.fg(color);
    }
    for (is_set, modifier) in [
        (style.is_bold, Modifier::BOLD),
        (style.is_dim, Modifier::DIM),
        (style.is_italic, Modifier::ITALIC),
        (style.is_underlined, Modifier::UNDERLINED),
        (style.is_reversed, Modifier::REVERSED),
    ] {
        if is_set {
            converted = converted.add_modifier(modifier);
        }
    }
    converted
}

/// Returns the colour that comes nearest on the terminal.
fn convert_color(color: ThemeColor, depth: ColorDepth) -> Option<Color> {
    match (depth, color) {
        (ColorDepth::None, _) => None,
        (_, ThemeColor::Palette(number)) => Some(palette_color(number)),
        (ColorDepth::Full, ThemeColor::Rgb { red, green, blue }) => {
            Some(Color::Rgb(red, green, blue))
        }
        (ColorDepth::Indexed, ThemeColor::Rgb { red, green, blue }) => {
            Some(Color::Indexed(nearest_index([red, green, blue])))
        }
        (ColorDepth::Palette, ThemeColor::Rgb { red, green, blue }) => {
            Some(nearest_palette_color([red, green, blue]))
        }
        (ColorDepth::Palette, ThemeColor::Indexed(number)) => Some(match number {
            0..=15 => palette_color(number),
            _ => nearest_palette_color(indexed_parts(number)),
        }),
        (_, ThemeColor::Indexed(number)) => Some(Color::Indexed(number)),
    }
}

fn palette_color(number: u8) -> Color {
    match number {
        0 => Color::Black,
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        8 => Color::DarkGray,
        9 => Color::LightRed,
        10 => Color::LightGreen,
        11 => Color::LightYellow,
        12 => Color::LightBlue,
        13 => Color::LightMagenta,
        14 => Color::LightCyan,
        _ => Color::White,
    }
}

/// The levels of a part in the cube of the 256 colours.
const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Returns the red, green and blue of one of the 256 colours above the palette.
fn indexed_parts(number: u8) -> [u8; 3] {
    match number {
        232.. => [8 + 10 * (number - 232); 3],
        _ => {
            let place = number.saturating_sub(16);
            [place / 36, place / 6 % 6, place % 6]
                .map(|level| LEVELS.get(usize::from(level)).copied().unwrap_or_default())
        }
    }
}

fn nearest_index(parts: [u8; 3]) -> u8 {
    // The first sixteen are the palette, whose colours are the user's and not known here.
    let candidates = 16..=255_u8;
    let nearest = candidates.min_by_key(|number| distance(indexed_parts(*number), parts));
    nearest.unwrap_or(16)
}

/// Returns the colour of the palette with the nearest hue; the palette's own shades are the user's.
fn nearest_palette_color(parts: [u8; 3]) -> Color {
    let most = parts.into_iter().max().unwrap_or_default();
    let least = parts.into_iter().min().unwrap_or_default();
    let spread = most - least;
    if spread < 40 {
        // A grey: the terminal's own text has the right brightness on its background.
        return Color::Reset;
    }
    let [is_red, is_green, is_blue] = parts.map(|part| part - least > spread / 2);
    let number = u8::from(is_red) | u8::from(is_green) << 1 | u8::from(is_blue) << 2;
    palette_color(number)
}

fn distance(one: [u8; 3], other: [u8; 3]) -> u32 {
    let parts = one.into_iter().zip(other);
    parts
        .map(|(one, other)| u32::from(one.abs_diff(other)).pow(2))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: [[&str; ROLES]; 7] = [
        TERMINAL,
        TERMINAL_LIGHT,
        DARK,
        LIGHT,
        COLOR_BLIND_DARK,
        COLOR_BLIND_LIGHT,
        MONOCHROME,
    ];

    #[test]
    fn built_in_themes_have_no_mistakes_and_an_order() {
        for text in TABLES.iter().flatten() {
            assert!(text.parse::<TextStyle>().is_ok(), "{text}");
        }
        for (at, (role, _)) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, at);
        }
    }

    /// The ratio of two colours' brightness, as the accessibility guidelines of the web define it.
    fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
        let brightness = |parts: [u8; 3]| {
            let linear = parts.map(|part| {
                let part = f64::from(part) / 255.0;
                match part <= 0.039_28 {
                    true => part / 12.92,
                    false => ((part + 0.055) / 1.055).powf(2.4),
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let [one, other] = [brightness(one), brightness(other)];
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn own_colors_are_readable_on_their_background() {
        let backgrounds = [
            (DARK, [40, 42, 54]),
            (COLOR_BLIND_DARK, [40, 42, 54]),
            (LIGHT, [250, 250, 250]),
            (COLOR_BLIND_LIGHT, [250, 250, 250]),
        ];
        for (table, background) in backgrounds {
            for text in table {
                let style: TextStyle = text.parse().unwrap();
                if let Some(ThemeColor::Rgb { red, green, blue }) = style.color {
                    let ratio = contrast([red, green, blue], background);
                    assert!(ratio >= 4.5, "{text} on {background:?}: {ratio:.1}");
                }
            }
        }
    }

    #[test]
    fn colors_become_what_the_terminal_shows() {
        let color = |text: &str, depth| {
            let style: TextStyle = text.parse().unwrap();
            convert_style(style, depth).fg
        };
        assert_eq!(
            color("#ff8700", ColorDepth::Full),
            Some(Color::Rgb(255, 135, 0))
        );
        assert_eq!(
            color("#ff8700", ColorDepth::Indexed),
            Some(Color::Indexed(208))
        );
        assert_eq!(color("#ff8700", ColorDepth::Palette), Some(Color::Yellow));
        assert_eq!(color("196", ColorDepth::Palette), Some(Color::Red));
        assert_eq!(color("9", ColorDepth::Palette), Some(Color::LightRed));
        assert_eq!(color("red", ColorDepth::Full), Some(Color::Red));
        assert_eq!(color("#ff8700", ColorDepth::None), None);
        assert_eq!(color("#808080", ColorDepth::Palette), Some(Color::Reset));
    }

    #[test]
    fn the_environment_tells_colors_and_background() {
        let environment = |variables: &[(&str, &str)]| {
            let variables = variables.iter();
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            Environment::new(variables.collect::<Vec<_>>(), "", || std::time::UNIX_EPOCH)
        };
        let depth = |variables: &[(&str, &str)]| ColorDepth::find(&environment(variables));
        assert_eq!(depth(&[("TERM", "xterm")]), ColorDepth::Palette);
        assert_eq!(depth(&[("TERM", "xterm-256color")]), ColorDepth::Indexed);
        assert_eq!(depth(&[("COLORTERM", "truecolor")]), ColorDepth::Full);
        assert_eq!(
            depth(&[("COLORTERM", "truecolor"), ("STY", "1")]),
            ColorDepth::Indexed
        );
        assert_eq!(
            depth(&[("COLORTERM", "truecolor"), ("NO_COLOR", "1")]),
            ColorDepth::None
        );
        let background = |value: &str| Background::find(&environment(&[("COLORFGBG", value)]));
        assert_eq!(background("15;0"), Some(Background::Dark));
        assert_eq!(background("0;default;15"), Some(Background::Light));
        assert_eq!(background("0;default"), None);
    }

    #[test]
    fn themes_are_found_and_follow_the_background() {
        let own: BTreeMap<_, _> = [("accent", "bold #ff0000"), ("base", "light")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let own = BTreeMap::from([("mine".to_owned(), UserTheme::try_from(own).unwrap())]);
        let mut themes = ThemeSet::new(own, ColorDepth::Full, None);
        assert!(themes.needs_background());
        assert_eq!(themes.names().last(), Some("mine"));
        let warning = |themes: &ThemeSet, name| themes.find(name).style(Role::Warning);
        let before = warning(&themes, "auto");
        assert!(themes.set_background(Background::Light));
        assert!(!themes.set_background(Background::Light));
        assert_ne!(warning(&themes, "auto"), before);
        assert_eq!(warning(&themes, "terminal"), before);
        let mine = themes.find("mine");
        assert_eq!(mine.style(Role::Accent).fg, Some(Color::Rgb(255, 0, 0)));
        assert_eq!(
            mine.style(Role::Error),
            themes.find("light").style(Role::Error)
        );
        assert_eq!(themes.find("gone"), themes.find("terminal"));
    }
}
