//! Lowers the resource limits of the process that becomes a sandboxed command.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The size limit of a file, in bytes.
const LARGEST_FILE: u64 = 64 << 30;
/// The limits on every system: no core dumps, and no endless file.
const USUAL_LIMITS: [(Resource, u64); 2] = [(Resource::Core, 0), (Resource::Fsize, LARGEST_FILE)];

/// Lowers the usual limits and these; none is raised.
pub(super) fn lower_limits(more: &[(Resource, u64)]) -> io::Result<()> {
    for &(resource, most) in USUAL_LIMITS.iter().chain(more) {
        let Rlimit { current, maximum } = getrlimit(resource);
        let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        setrlimit(
            resource,
            Rlimit {
                current: lower(current),
                maximum: lower(maximum),
            },
        )?;
    }
    Ok(())
}
