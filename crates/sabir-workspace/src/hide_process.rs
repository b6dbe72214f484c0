//! Hides this process from other processes of the same user.

use crate::platform;

/// Makes this process unreadable for others of the same user: its memory, its environment, its
/// descriptors. It leaves no core dump either. Its children are not affected. Does nothing on
/// systems without this feature.
///
/// Root, and processes that may trace any process, can still read it.
pub fn hide_process() {
    let _ = platform::forbid_inspection();
}
