//! Names the keys of the full interface and the actions that they can be bound to, and checks the user's own bindings.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sabir_call::nearest_candidate;
use serde::Deserialize;

/// A key without its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyCode {
    /// A key that writes this character.
    Char(char),
    /// A function key, from 1 to 12.
    Function(u8),
    /// Enter.
    Enter,
    /// Tab.
    Tab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Escape.
    Escape,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// The arrow to the left.
    Left,
    /// The arrow to the right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

/// The named keys, as they are written in the configuration.
const NAMED_KEYS: [(&str, KeyCode); 15] = [
    ("enter", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("esc", KeyCode::Escape),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("space", KeyCode::Char(' ')),
    ("minus", KeyCode::Char('-')),
];

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The key.
    pub code: KeyCode,
    /// True with Ctrl.
    pub control: bool,
    /// True with Alt.
    pub alt: bool,
    /// True with Shift, if the terminal reports it.
    pub shift: bool,
}

impl Key {
    /// Creates a key without modifiers.
    pub const fn plain(code: KeyCode) -> Self {
        Self {
            code,
            control: false,
            alt: false,
            shift: false,
        }
    }

    /// Creates a key with Ctrl.
    pub const fn control(c: char) -> Self {
        Self {
            control: true,
            ..Self::plain(KeyCode::Char(c))
        }
    }

    /// Creates a key with Alt.
    pub const fn alt(code: KeyCode) -> Self {
        Self {
            alt: true,
            ..Self::plain(code)
        }
    }

    /// Returns the character that the key writes; `None` for a key without a character.
    pub fn written_char(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if !self.control && !self.alt => Some(c),
            _ => None,
        }
    }

    /// Returns the key as bindings compare it: a terminal may report a letter with Ctrl or Alt in either case, and Shift with it or not.
    pub fn normalized(self) -> Self {
        match self.code {
            KeyCode::Char(c) if self.control || self.alt => Self {
                code: KeyCode::Char(c.to_ascii_lowercase()),
                shift: false,
                ..self
            },
            _ => self,
        }
    }

    /// Returns why the key cannot be bound; `None` if it can.
    fn reserved_reason(self) -> Option<&'static str> {
        let key = self.normalized();
        if key.written_char().is_some() {
            return Some("it writes a character");
        }
        if key.control && !key.alt {
            match key.code {
                KeyCode::Char('c') => return Some("it clears the draft, stops and leaves"),
                KeyCode::Char('d') => return Some("it leaves"),
                KeyCode::Char('z') => return Some("it suspends Sabir"),
                KeyCode::Char('m') => return Some("terminals send it for Enter"),
                KeyCode::Char('i') => return Some("terminals send it for Tab"),
                KeyCode::Char('h') => return Some("terminals send it for Backspace"),
                KeyCode::Char('[') => return Some("terminals send it for Esc"),
                _ => {}
            }
        }
        match key.code {
            KeyCode::Char(_) | KeyCode::Function(_) => None,
            KeyCode::PageUp | KeyCode::PageDown => None,
            KeyCode::Tab if key.shift || key.alt || key.control => None,
            _ => Some("it moves, edits, sends or stops, in every list and question"),
        }
    }
}

/// Writes the key as documentation and help show it: `Ctrl-S`, `Alt-Enter`, `F2`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is_held, name) in [
            (self.control, "Ctrl-"),
            (self.alt, "Alt-"),
            (self.shift, "Shift-"),
        ] {
            if is_held {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("Space"),
            KeyCode::Char(c) => write!(f, "{}", c.to_uppercase()),
            KeyCode::Function(number) => write!(f, "F{number}"),
            KeyCode::PageUp => f.write_str("PageUp"),
            KeyCode::PageDown => f.write_str("PageDown"),
            code => {
                let name = NAMED_KEYS.iter().find(|(_, known)| *known == code);
                let name = name.map_or("", |(name, _)| name);
                let mut letters = name.chars();
                let first = letters.next().map(|c| c.to_ascii_uppercase());
                write!(f, "{}{}", first.unwrap_or_default(), letters.as_str())
            }
        }
    }
}

/// The reason why a binding cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The text names no key.
    #[error(
        "`{0}` is not a key: write modifiers and a key with hyphens, such as `ctrl-s`, `alt-enter`, `shift-tab`, `f2` or `ctrl-pageup`"
    )]
    UnknownKey(String),
    /// The key has a fixed meaning and cannot be bound.
    #[error("`{key}` cannot be bound: {reason}")]
    ReservedKey {
        /// The key as it was written.
        key: String,
        /// The meaning of the key.
        reason: &'static str,
    },
    /// There is no such action.
    #[error("there is no action `{name}`{hint}; docs/tui.md lists the actions")]
    UnknownAction {
        /// The name.
        name: String,
        /// The most similar action, as a question.
        hint: String,
    },
    /// Two actions have the same key.
    #[error("`{key}` is bound to `{first}` and to `{second}`: give it to one of them")]
    DoubledKey {
        /// The key.
        key: Key,
        /// The first action.
        first: &'static str,
        /// The second action.
        second: &'static str,
    },
}

impl FromStr for Key {
    type Err = BindingError;

    fn from_str(text: &str) -> Result<Self, BindingError> {
        let unknown = || BindingError::UnknownKey(text.to_owned());
        let lower = text.to_lowercase();
        let mut key = Self::plain(KeyCode::Escape);
        let mut rest = lower.as_str();
        // A hyphen at the end is the key itself: `ctrl--`.
        while let Some((modifier, after)) = rest.split_once('-').filter(|parts| !parts.1.is_empty())
        {
            let flag = match modifier {
                "ctrl" | "control" => &mut key.control,
                "alt" | "meta" => &mut key.alt,
                "shift" => &mut key.shift,
                _ => return Err(unknown()),
            };
            if std::mem::replace(flag, true) {
                return Err(unknown());
            }
            rest = after;
        }
        let named = NAMED_KEYS.iter().find(|(name, _)| *name == rest);
        let function = rest
            .strip_prefix('f')
            .and_then(|number| number.parse().ok());
        let mut letters = rest.chars();
        key.code = match (named, function, letters.next(), letters.next()) {
            (Some((_, code)), ..) => *code,
            (None, Some(number @ 1..=12), ..) => KeyCode::Function(number),
            (None, _, Some(c), None) if !c.is_control() => KeyCode::Char(c),
            _ => return Err(unknown()),
        };
        match key.reserved_reason() {
            Some(reason) => Err(BindingError::ReservedKey {
                key: text.to_owned(),
                reason,
            }),
            None => Ok(key.normalized()),
        }
    }
}

/// The actions that keys can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyAction {
    /// Sends the draft or the queue now.
    SendNow,
    /// Breaks the line.
    BreakLine,
    /// Searches the history.
    SearchHistory,
    /// Shows the previous message of the history, or moves up.
    PreviousMessage,
    /// Shows the next message of the history, or moves down.
    NextMessage,
    /// Undoes an edit.
    Undo,
    /// Redoes an edit.
    Redo,
    /// Edits the draft in the user's editor.
    OpenEditor,
    /// Attaches the picture in the clipboard.
    PastePicture,
    /// Unfolds the paste before the cursor.
    UnfoldPaste,
    /// Shows the most recently folded output.
    UnfoldOutput,
    /// Switches to the next mode.
    NextMode,
    /// Takes the second action of a row in a list, or stops the entered subtask.
    SecondAction,
    /// Moves to the beginning of the line.
    LineStart,
    /// Moves to the end of the line.
    LineEnd,
    /// Moves a character back.
    CharacterBack,
    /// Moves a character forward.
    CharacterForward,
    /// Moves a word back.
    WordBack,
    /// Moves a word forward.
    WordForward,
    /// Moves to the beginning of the draft.
    DraftStart,
    /// Moves to the end of the draft.
    DraftEnd,
    /// Deletes a word back.
    DeleteWordBack,
    /// Deletes a word forward.
    DeleteWordForward,
    /// Deletes to the beginning of the line.
    DeleteToLineStart,
    /// Deletes to the end of the line.
    DeleteToLineEnd,
    /// Inserts what was deleted.
    InsertDeleted,
    /// Exchanges the two characters before the cursor.
    SwapCharacters,
    /// Runs a command of the interface.
    Command(&'static str),
}

/// The description of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionHelp {
    /// The action.
    pub action: KeyAction,
    /// The name in the configuration.
    pub name: &'static str,
    /// The keys, as they are written in the configuration, separated by blanks.
    pub keys: &'static str,
    /// The effect.
    pub effect: &'static str,
}

const fn help(
    action: KeyAction,
    name: &'static str,
    keys: &'static str,
    effect: &'static str,
) -> ActionHelp {
    ActionHelp {
        action,
        name,
        keys,
        effect,
    }
}

/// All actions, in the order of the help.
pub const ACTIONS: [ActionHelp; 38] = [
    help(
        KeyAction::SendNow,
        "send_now",
        "ctrl-s",
        "send now: interrupt the model with the draft, or with the queue",
    ),
    help(
        KeyAction::BreakLine,
        "break_line",
        "ctrl-j",
        "break the line, as Enter with Alt or Shift",
    ),
    help(
        KeyAction::SearchHistory,
        "search_history",
        "ctrl-r",
        "search the history",
    ),
    help(
        KeyAction::PreviousMessage,
        "previous_message",
        "ctrl-p",
        "move up, or show the previous message",
    ),
    help(
        KeyAction::NextMessage,
        "next_message",
        "ctrl-n",
        "move down, or show the next message",
    ),
    help(KeyAction::Undo, "undo", "ctrl-_ ctrl-/", "undo an edit"),
    help(KeyAction::Redo, "redo", "alt-_ alt-/", "redo an edit"),
    help(
        KeyAction::OpenEditor,
        "open_editor",
        "ctrl-g",
        "edit the draft in $VISUAL or $EDITOR",
    ),
    help(
        KeyAction::PastePicture,
        "paste_picture",
        "ctrl-v",
        "attach the picture in the clipboard",
    ),
    help(
        KeyAction::UnfoldPaste,
        "unfold_paste",
        "alt-o",
        "unfold the paste before the cursor",
    ),
    help(
        KeyAction::UnfoldOutput,
        "unfold_output",
        "ctrl-o",
        "show the most recently folded output or reasoning",
    ),
    help(
        KeyAction::NextMode,
        "next_mode",
        "shift-tab",
        "switch to the next mode",
    ),
    help(
        KeyAction::SecondAction,
        "second_action",
        "ctrl-x",
        "fork the task or stop the subtask that is selected in a list; stop the entered subtask",
    ),
    help(
        KeyAction::LineStart,
        "line_start",
        "ctrl-a",
        "go to the beginning of the line",
    ),
    help(
        KeyAction::LineEnd,
        "line_end",
        "ctrl-e",
        "go to the end of the line",
    ),
    help(
        KeyAction::CharacterBack,
        "character_back",
        "ctrl-b",
        "go a character back",
    ),
    help(
        KeyAction::CharacterForward,
        "character_forward",
        "ctrl-f",
        "go a character forward",
    ),
    help(KeyAction::WordBack, "word_back", "alt-b", "go a word back"),
    help(
        KeyAction::WordForward,
        "word_forward",
        "alt-f",
        "go a word forward",
    ),
    help(
        KeyAction::DraftStart,
        "draft_start",
        "alt-<",
        "go to the beginning of the draft",
    ),
    help(
        KeyAction::DraftEnd,
        "draft_end",
        "alt->",
        "go to the end of the draft",
    ),
    help(
        KeyAction::DeleteWordBack,
        "delete_word_back",
        "ctrl-w",
        "delete a word back",
    ),
    help(
        KeyAction::DeleteWordForward,
        "delete_word_forward",
        "alt-d",
        "delete a word forward",
    ),
    help(
        KeyAction::DeleteToLineStart,
        "delete_to_line_start",
        "ctrl-u",
        "delete to the beginning of the line",
    ),
    help(
        KeyAction::DeleteToLineEnd,
        "delete_to_line_end",
        "ctrl-k",
        "delete to the end of the line",
    ),
    help(
        KeyAction::InsertDeleted,
        "insert_deleted",
        "ctrl-y",
        "insert what was deleted",
    ),
    help(
        KeyAction::SwapCharacters,
        "swap_characters",
        "ctrl-t",
        "exchange the two characters before the cursor",
    ),
    help(
        KeyAction::Command("/checkpoints"),
        "checkpoints",
        "",
        "run /checkpoints",
    ),
    help(
        KeyAction::Command("/compact"),
        "compact",
        "",
        "run /compact",
    ),
    help(
        KeyAction::Command("/context"),
        "context",
        "",
        "run /context",
    ),
    help(KeyAction::Command("/copy"), "copy", "", "run /copy"),
    help(KeyAction::Command("/diff"), "diff", "", "run /diff"),
    help(KeyAction::Command("/model"), "models", "", "run /model"),
    help(
        KeyAction::Command("/subtasks"),
        "subtasks",
        "",
        "run /subtasks",
    ),
    help(KeyAction::Command("/tasks"), "tasks", "", "run /tasks"),
    help(KeyAction::Command("/theme"), "theme", "", "run /theme"),
    help(KeyAction::Command("/todos"), "todos", "", "run /todos"),
    help(KeyAction::Command("/wire"), "wire", "", "run /wire"),
];

impl KeyAction {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        let known = ACTIONS.iter().find(|known| known.action == self);
        known.map_or("", |known| known.name)
    }

    fn from_name(name: &str) -> Result<Self, BindingError> {
        let known = ACTIONS.iter().find(|known| known.name == name);
        known.map(|known| known.action).ok_or_else(|| {
            let names = ACTIONS.iter().map(|known| known.name);
            let hint = nearest_candidate(name, names)
                .map(|near| format!(" (did you mean `{near}`?)"))
                .unwrap_or_default();
            BindingError::UnknownAction {
                name: name.to_owned(),
                hint,
            }
        })
    }
}

/// The keys of all actions: the usual ones, with the changes of the user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, Vec<String>>")]
pub struct KeyBindings {
    actions: BTreeMap<Key, KeyAction>,
}

impl Default for KeyBindings {
    fn default() -> Self {
        let mut actions = BTreeMap::new();
        for known in ACTIONS {
            let keys = known.keys.split_whitespace();
            let keys = keys.filter_map(|key| key.parse().ok());
            actions.extend(keys.map(|key: Key| (key, known.action)));
        }
        Self { actions }
    }
}

impl TryFrom<BTreeMap<String, Vec<String>>> for KeyBindings {
    type Error = BindingError;

    /// Binds keys to actions. An action has exactly the keys of its list; a key that is configured for one action is removed from its
    /// default action.
    fn try_from(table: BTreeMap<String, Vec<String>>) -> Result<Self, BindingError> {
        let mut own: BTreeMap<Key, KeyAction> = BTreeMap::new();
        let mut actions = Self::default().actions;
        for (name, keys) in &table {
            let action = KeyAction::from_name(name)?;
            // Also for an empty list, by which the user takes the keys from an action.
            actions.retain(|_, bound| *bound != action);
            for key in keys {
                let key: Key = key.parse()?;
                if let Some(first) = own.insert(key, action).filter(|first| *first != action) {
                    return Err(BindingError::DoubledKey {
                        key,
                        first: first.name(),
                        second: action.name(),
                    });
                }
            }
        }
        // Added last, so a configured key replaces its default action, whatever the order of the
        // table.
        actions.extend(own);
        Ok(Self { actions })
    }
}

impl KeyBindings {
    /// Returns the action of a key.
    pub fn find_action(&self, key: Key) -> Option<KeyAction> {
        let exact = self.actions.get(&key);
        exact
            .or_else(|| self.actions.get(&key.normalized()))
            .copied()
    }

    /// Returns the keys of an action as help shows them: `Ctrl-_, Ctrl-/`. Empty if it has none.
    pub fn describe_keys(&self, action: KeyAction) -> String {
        let keys = self.actions.iter().filter(|(_, bound)| **bound == action);
        let keys: Vec<_> = keys.map(|(key, _)| key.to_string()).collect();
        keys.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(table: &[(&str, &[&str])]) -> Result<KeyBindings, BindingError> {
        let table = table.iter().map(|(action, keys)| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            ((*action).to_owned(), keys)
        });
        KeyBindings::try_from(table.collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn every_usual_key_can_be_bound_and_is_there_once() {
        let mut seen = std::collections::BTreeSet::new();
        for known in ACTIONS {
            for key in known.keys.split_whitespace() {
                let parsed: Key = key.parse().unwrap_or_else(|error| panic!("{error}"));
                assert!(seen.insert(parsed), "{key}");
            }
            assert_eq!(KeyAction::from_name(known.name), Ok(known.action));
        }
    }

    #[test]
    fn the_documentation_lists_every_action() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tui.md");
        let page = std::fs::read_to_string(path).unwrap();
        for known in ACTIONS {
            let keys: Vec<_> = known.keys.split_whitespace().collect();
            let keys = match keys.is_empty() {
                true => "none".to_owned(),
                false => format!("`{}`", keys.join("` `")),
            };
            let row = format!("| `{}` | {keys} | {} |", known.name, known.effect);
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn keys_are_bound_and_taken() {
        let bindings =
            bind(&[("send_now", &["f2", "Ctrl-PageUp"]), ("tasks", &["ctrl-w"])]).unwrap();
        let action = |key: Key| bindings.find_action(key);
        assert_eq!(
            action(Key::plain(KeyCode::Function(2))),
            Some(KeyAction::SendNow)
        );
        assert_eq!(action(Key::control('s')), None);
        assert_eq!(
            action(Key::control('w')),
            Some(KeyAction::Command("/tasks"))
        );
        assert_eq!(
            bindings.describe_keys(KeyAction::SendNow),
            "F2, Ctrl-PageUp"
        );
        assert_eq!(bindings.describe_keys(KeyAction::DeleteWordBack), "");
        assert_eq!(bindings.describe_keys(KeyAction::Undo), "Ctrl-/, Ctrl-_");
        // Terminals report letters with Alt in either case.
        assert_eq!(
            action(Key::alt(KeyCode::Char('B'))),
            Some(KeyAction::WordBack)
        );
        assert_eq!(
            bind(&[("undo", &[])])
                .unwrap()
                .describe_keys(KeyAction::Undo),
            ""
        );
    }

    #[test]
    fn mistakes_are_explained() {
        let message = |table: &[(&str, &[&str])]| bind(table).unwrap_err().to_string();
        assert!(message(&[("sendnow", &["f2"])]).contains("did you mean `send_now`?"));
        assert!(message(&[("undo", &["hyper-x"])]).contains("`hyper-x` is not a key"));
        assert!(message(&[("undo", &["ctrl-ctrl-x"])]).contains("is not a key"));
        assert!(message(&[("undo", &["x"])]).contains("it writes a character"));
        assert!(message(&[("undo", &["ctrl-c"])]).contains("cannot be bound"));
        assert!(message(&[("undo", &["enter"])]).contains("cannot be bound"));
        assert_eq!(
            message(&[("redo", &["f3"]), ("undo", &["f3"])]),
            "`F3` is bound to `redo` and to `undo`: give it to one of them"
        );
        for text in ["", "-", "ctrl-", "f0", "f13", "ctrl", "a b"] {
            assert!(text.parse::<Key>().is_err(), "{text:?}");
        }
        let minus: Key = "ctrl--".parse().unwrap();
        assert_eq!(minus, Key::control('-'));
    }
}
