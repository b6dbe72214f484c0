//! Where building a sandbox can fail, as a number that fits a report of the supervisor.

use std::io;

/// What separates the stage from the system's error number.
const SCALE: i32 = 1000;

/// A part of the building.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Order = 1,
    Temporary,
    Launch,
    Limits,
    Privileges,
    Namespaces,
    Mapping,
    Process,
    Mounts,
    Loopback,
    Folder,
    Secrets,
    Landlock,
    Filter,
    Guard,
    Neither,
}

/// Each with what was to be done, and what to do about it.
const STAGES: [(Stage, &str); 16] = [
    (Stage::Order, "its description could not be read"),
    (Stage::Temporary, "its private temporary folder could not be made"),
    (Stage::Launch, "its process could not be started, or died"),
    (Stage::Limits, "its limits could not be set"),
    (Stage::Privileges, "its privileges could not be dropped"),
    (
        Stage::Namespaces,
        "namespaces are not to be had: this system or container forbids user namespaces, so use level 1",
    ),
    (
        Stage::Mapping,
        "its user could not be set up: this system or container restricts user namespaces, so use level 1",
    ),
    (Stage::Process, "its first process could not be started"),
    (
        Stage::Mounts,
        "its view of the files could not be mounted: that needs Linux 5.12 and, in a container, a whole /proc, so use level 1",
    ),
    (Stage::Loopback, "its loopback network could not be switched on"),
    (Stage::Folder, "the folder of the command is not visible in it"),
    (Stage::Secrets, "level 1 cannot hide secrets that lie in a folder that may be written, so use level 2"),
    (Stage::Landlock, "Landlock is not to be had: level 1 needs Linux 6.2 with Landlock switched on"),
    (Stage::Filter, "the system call filter could not be installed"),
    (Stage::Guard, "the protected paths of the workspace could not be covered"),
    (
        Stage::Neither,
        "level 2 is not to be had here, and level 1 cannot hide the secrets that lie in the workspace: run where user namespaces are \
         allowed, or move the secrets out",
    ),
];

impl Stage {
    /// The failure of this stage as one number.
    pub(crate) fn failed(self, error: &io::Error) -> io::Error {
        let number = error.raw_os_error().unwrap_or(0).rem_euclid(SCALE);
        io::Error::from_raw_os_error(self as i32 * SCALE + number)
    }

    /// Whether this number is a failure of this stage.
    pub(crate) fn is_of(self, error: &io::Error) -> bool {
        error.raw_os_error().is_some_and(|number| number / SCALE == self as i32)
    }

    /// The words for a number that [`failed`](Self::failed) made; `None` for a plain error number.
    pub(crate) fn explain(number: i32) -> Option<String> {
        let (_, words) = STAGES.iter().find(|(stage, _)| *stage as i32 == number / SCALE)?;
        match number % SCALE {
            0 => Some((*words).to_owned()),
            error => Some(format!("{words} ({})", io::Error::from_raw_os_error(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_explained() {
        for (stage, words) in STAGES {
            let failed = stage.failed(&io::Error::from_raw_os_error(1)).raw_os_error().unwrap();
            assert_eq!(Stage::explain(failed), Some(format!("{words} (Operation not permitted (os error 1))")));
        }
        assert_eq!(Stage::explain(2), None);
        assert_eq!(Stage::explain(999), None);
        assert_eq!(Stage::explain(14_000).as_deref(), Some("the system call filter could not be installed"));
    }
}
