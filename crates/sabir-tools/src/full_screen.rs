//! Notices programs that take the whole screen of their terminal, such as pagers and editors. They
//! wait for keys, which no command gets, and would run until the time limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The time for which a program may keep the screen. A program that only shows its progress ends by
/// then, or its call sets a time limit.
pub(crate) const SCREEN_TIME: Duration = Duration::from_secs(15);
/// The interval at which the state of the screen is checked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The byte that every sequence begins with.
const ESCAPE: u8 = 0x1b;
/// The sequences that switch to the alternate screen and back, without their last character (`h` or
/// `l`). The last sequence sets the mode of the cursor keys, which `top` uses instead.
const SCREEN_SEQUENCES: [&[u8]; 4] = [b"\x1b[?1049", b"\x1b[?1047", b"\x1b[?47", b"\x1b[?1"];
/// The number of bytes that may be the beginning of a sequence.
const MAX_PENDING: usize = 12;

/// Follows the output of a command for the sequences that take the screen and give it back.
#[derive(Debug, Default)]
pub(crate) struct FullScreenMonitor {
    /// The number of times that the screen was taken or given back: odd while it is taken.
    changes: AtomicU64,
    /// True once something was written at an absolute position, as editors do in terminals that have no second screen.
    is_positioned: AtomicBool,
    /// The number of pieces of output since then.
    pieces: AtomicU64,
    /// True once a program has kept the screen for too long.
    stayed_full_screen: AtomicBool,
}

/// Finds the sequences in pieces of output.
#[derive(Debug, Default)]
pub(crate) struct ScreenScanner {
    /// The end of the last piece, in which a sequence may have begun.
    pending: Vec<u8>,
}

impl ScreenScanner {
    /// Takes a piece of output, and notes in `watch` whether a program has the screen.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8], watch: &FullScreenMonitor) {
        if watch.is_positioned.load(Ordering::Relaxed) {
            watch.pieces.fetch_add(1, Ordering::Relaxed);
        }
        // Most output has no sequences at all, and a flood of it must not be slowed down.
        if !bytes.contains(&ESCAPE) && !self.pending.contains(&ESCAPE) {
            return;
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.windows(2).enumerate().any(|(at, begin)| {
            begin == b"\x1b[" && sets_position(self.pending.get(at + 2..).unwrap_or_default())
        }) {
            watch.is_positioned.store(true, Ordering::Relaxed);
        }
        let escapes = self.pending.iter().enumerate().rev();
        let taken = escapes
            .filter(|(_, byte)| **byte == ESCAPE)
            .find_map(|(at, _)| Some((at, enters_full_screen(self.pending.get(at..)?)?)));
        if let Some((at, is_full_screen)) = taken {
            watch.set_full_screen(is_full_screen);
            // A sequence that was found must not be found again.
            self.pending.drain(..=at);
        }
        let surplus = self.pending.len().saturating_sub(MAX_PENDING);
        self.pending.drain(..surplus);
    }
}

/// Returns the time with one more interval if its condition still holds, otherwise none.
fn count_on(time: Duration, holds: bool) -> Duration {
    if holds {
        time.saturating_add(LOOK_EVERY)
    } else {
        Duration::ZERO
    }
}

/// Returns true if the bytes, which follow an escape and a bracket, are the row and column of a new position.
fn sets_position(bytes: &[u8]) -> bool {
    let end = bytes
        .iter()
        .position(|byte| !byte.is_ascii_digit() && *byte != b';');
    let parameters = bytes.get(..end.unwrap_or_default()).unwrap_or_default();
    parameters.contains(&b';') && end.and_then(|end| bytes.get(end)) == Some(&b'H')
}

/// Returns true if the bytes begin with a sequence that takes the screen, false if with one that gives it back.
fn enters_full_screen(bytes: &[u8]) -> Option<bool> {
    let end = |sequence: &&[u8]| bytes.strip_prefix(*sequence)?.first().copied();
    match SCREEN_SEQUENCES.iter().find_map(end)? {
        b'h' => Some(true),
        b'l' => Some(false),
        _ => None,
    }
}

impl FullScreenMonitor {
    fn set_full_screen(&self, is_full_screen: bool) {
        if self.is_full_screen() != is_full_screen {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns true if a program has the screen.
    pub(crate) fn is_full_screen(&self) -> bool {
        self.changes.load(Ordering::Relaxed) % 2 == 1
    }

    /// Returns true if a program has kept the screen for [`SCREEN_TIME`]. Most programs give it back when they are ended for that.
    pub(crate) fn stayed_full_screen(&self) -> bool {
        self.stayed_full_screen.load(Ordering::Relaxed)
    }

    /// Waits until a program has kept the screen for [`SCREEN_TIME`], or has written nothing for as long after it wrote at positions of
    /// its own. Progress that is shown in this way continues.
    pub(crate) async fn wait_for_full_screen_timeout(&self) {
        let mut seen_changes = self.changes.load(Ordering::Relaxed);
        let mut seen_pieces = self.pieces.load(Ordering::Relaxed);
        let mut kept = Duration::ZERO;
        let mut silent = Duration::ZERO;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let changes = self.changes.load(Ordering::Relaxed);
            let pieces = self.pieces.load(Ordering::Relaxed);
            let keeps = self.is_full_screen() && changes == seen_changes;
            let waits = self.is_positioned.load(Ordering::Relaxed) && pieces == seen_pieces;
            kept = count_on(kept, keeps);
            silent = count_on(silent, waits);
            seen_changes = changes;
            seen_pieces = pieces;
            if kept.max(silent) >= SCREEN_TIME {
                self.stayed_full_screen.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_screen_is_noticed_in_any_pieces() {
        let text = b"x\x1b[?1049h\x1b[22;0;0tvim\x1b[?1049l\x1b[?47hmore";
        for size in 1..text.len() {
            let (watch, mut scanner) = (FullScreenMonitor::default(), ScreenScanner::default());
            let mut states = Vec::new();
            for piece in text.chunks(size) {
                scanner.push_bytes(piece, &watch);
                states.push(watch.is_full_screen());
            }
            assert_eq!(states.last(), Some(&true), "{size}");
            // In one larger piece the screen may be given back and taken again.
            if size < 6 {
                let changes = watch.changes.load(Ordering::Relaxed);
                assert_eq!(changes, 3, "{size}: {states:?}");
            }
        }
        let watch = FullScreenMonitor::default();
        ScreenScanner::default().push_bytes(b"\x1b[?1h\x1b=\x1b[?25l\x1b[H\x1b[2Jtop", &watch);
        assert!(watch.is_full_screen(), "the first output of top");
        for size in 1..9 {
            let watch = FullScreenMonitor::default();
            let mut scanner = ScreenScanner::default();
            for piece in b"Vim: Warning\r\n\x1b[24;1H\"x\" [New]".chunks(size) {
                scanner.push_bytes(piece, &watch);
            }
            assert!(watch.is_positioned.load(Ordering::Relaxed), "{size}");
        }
        let watch = FullScreenMonitor::default();
        ScreenScanner::default().push_bytes(b"\x1b[H\x1b[2J\x1b[1;32mgreen\x1b[0m", &watch);
        assert!(
            !watch.is_positioned.load(Ordering::Relaxed),
            "a clear screen"
        );
        let watch = FullScreenMonitor::default();
        ScreenScanner::default().push_bytes(b"\x1b[?1049l\x1b[?25h 47h", &watch);
        assert!(!watch.is_full_screen());
    }
}
