//! The limits for everything that a server sends.

use std::time::Duration;

/// The most bytes of one message.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
/// The most bytes of text in the result of one call.
pub const MAX_RESULT_BYTES: usize = 96 << 10;
/// The most bytes of one image, decoded.
pub const MAX_IMAGE_BYTES: usize = 5 << 20;
/// The most images in the result of one call.
pub const MAX_IMAGES: usize = 8;
/// The bytes at the end of a server's standard error that are kept.
pub const KEPT_STDERR_BYTES: usize = 8 << 10;
/// The most bytes of a tool's description.
pub const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// The most bytes of a tool's schema. A larger one is replaced by one that allows anything.
pub const MAX_SCHEMA_BYTES: usize = 32 << 10;
/// The most tools of one server.
pub const MAX_TOOLS: usize = 1_000;
/// The most resources and prompts of one server, each.
pub const MAX_RESOURCES: usize = 1_000;
/// The most resources of one server whose changes are followed.
pub const MAX_WATCHED_RESOURCES: usize = 64;
/// The most bytes of a server's instructions.
pub const MAX_INSTRUCTION_BYTES: usize = 2 << 10;
/// The most notices about messages of one server.
pub const MAX_LOG_NOTICES: usize = 10;
/// The most pages of one listing.
pub const MAX_PAGES: usize = 100;
/// The tokens that the definitions of all servers' tools may take in a request, unless the caller sets another number.
pub const DEFAULT_DEFINITION_TOKENS: usize = 2_000;

/// The time from the start of a server until it has listed its tools.
pub const START_TIME: Duration = Duration::from_secs(30);
/// The longest time that the start of a server waits for the first request of its task.
pub const LATEST_START: Duration = Duration::from_millis(500);
/// The time that the first request has for itself, before servers start.
pub const REQUEST_TIME: Duration = Duration::from_millis(100);
/// The time without any progress after which a call is given up.
pub const CALL_TIME: Duration = Duration::from_secs(120);
/// The most time of a call, whatever progress it reports.
pub const LONGEST_CALL: Duration = Duration::from_secs(3_600);
/// The shortest time between two reports of the progress of a call.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// The most calls of served tools that run at the same time. More wait.
pub const MAX_SERVED_CALLS: usize = 32;
/// The number of restarts in a row after which a server is given up.
pub const MAX_RESTARTS: u32 = 5;
/// The time before the first restart; it doubles with each one.
pub const FIRST_BACK_OFF: Duration = Duration::from_millis(500);
/// The time of working after which a server's restarts are no longer counted.
pub const STABLE_TIME: Duration = Duration::from_secs(60);
/// The interval of the checks for a login in another process, while a server needs one.
pub const LOGIN_LOOK_INTERVAL: Duration = Duration::from_secs(2);
