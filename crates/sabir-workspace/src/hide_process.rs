//! A process that others cannot look into.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes this process unreadable for others of the same user: its memory, its environment, its descriptors. It leaves no core dump
/// either. What it starts is not concerned. Where the system does not know this, nothing happens.
///
/// Root and whoever may trace any process can read it all the same.
pub fn hide_process() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
