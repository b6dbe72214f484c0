//! Parses the commands of vi's command mode, for [`crate::composer::Composer`].

/// A motion of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViMotion {
    /// `h`
    Left,
    /// `l`
    Right,
    /// `j`
    Down,
    /// `k`
    Up,
    /// `w`
    NextWord,
    /// `b`
    WordBack,
    /// `e`
    WordEnd,
    /// `0`, `^`
    LineStart,
    /// `$`
    LineEnd,
    /// `G`
    End,
    /// `gg`
    Start,
    /// The whole line, as in `dd`.
    WholeLine,
}

/// A whole command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViCommand {
    /// Move.
    Move(ViMotion),
    /// Delete up to the target.
    Delete(ViMotion),
    /// Delete up to the target, and insert.
    Change(ViMotion),
    /// Copy the text up to the target, for `p`.
    Yank(ViMotion),
    /// Insert before the cursor, after a motion (`i`, `I`, `a`, `A`).
    Insert(Option<ViMotion>),
    /// Begin a line below (`o`).
    OpenBelow,
    /// Insert what was deleted (`p`).
    Put,
    /// Undo (`u`).
    Undo,
}

/// The keys of an incomplete command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ViParser {
    /// `d`, `c`, `y` or `g`.
    pending: Option<char>,
}

impl ViParser {
    /// Handles a key; `None` while the command is incomplete, or if the key has no meaning.
    pub fn press(&mut self, c: char) -> Option<ViCommand> {
        let pending = self.pending.take();
        if pending.is_none() && matches!(c, 'd' | 'c' | 'y' | 'g') {
            self.pending = Some(c);
            return None;
        }
        let motion = match (pending, c) {
            (Some('g'), 'g') => Some(ViMotion::Start),
            (Some(first @ ('d' | 'c' | 'y')), same) if first == same => Some(ViMotion::WholeLine),
            (Some('g'), _) => None,
            (_, c) => find_motion(c),
        };
        match pending {
            Some('d') => motion.map(ViCommand::Delete),
            // As in vi: the blanks after the word stay.
            Some('c') if motion == Some(ViMotion::NextWord) => {
                Some(ViCommand::Change(ViMotion::WordEnd))
            }
            Some('c') => motion.map(ViCommand::Change),
            Some('y') => motion.map(ViCommand::Yank),
            _ => motion.map(ViCommand::Move).or_else(|| find_command(c)),
        }
    }
}

fn find_motion(c: char) -> Option<ViMotion> {
    Some(match c {
        'h' => ViMotion::Left,
        'l' | ' ' => ViMotion::Right,
        'j' => ViMotion::Down,
        'k' => ViMotion::Up,
        'w' | 'W' => ViMotion::NextWord,
        'b' | 'B' => ViMotion::WordBack,
        'e' | 'E' => ViMotion::WordEnd,
        '0' | '^' => ViMotion::LineStart,
        '$' => ViMotion::LineEnd,
        'G' => ViMotion::End,
        _ => return None,
    })
}

fn find_command(c: char) -> Option<ViCommand> {
    Some(match c {
        'i' => ViCommand::Insert(None),
        'a' => ViCommand::Insert(Some(ViMotion::Right)),
        'I' => ViCommand::Insert(Some(ViMotion::LineStart)),
        'A' => ViCommand::Insert(Some(ViMotion::LineEnd)),
        'o' => ViCommand::OpenBelow,
        'x' => ViCommand::Delete(ViMotion::Right),
        'X' => ViCommand::Delete(ViMotion::Left),
        's' => ViCommand::Change(ViMotion::Right),
        'S' => ViCommand::Change(ViMotion::WholeLine),
        'D' => ViCommand::Delete(ViMotion::LineEnd),
        'C' => ViCommand::Change(ViMotion::LineEnd),
        'p' | 'P' => ViCommand::Put,
        'u' => ViCommand::Undo,
        _ => return None,
    })
}
