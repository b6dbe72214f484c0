//! Numbers the stages of building a sandbox, so that a failure fits into a supervisor's report.

use std::io;

/// The factor that separates the stage from the system's error number.
const SCALE: i32 = 1000;

/// A stage of building the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetupStage {
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

/// The error message of each stage, with advice.
const STAGES: [(SetupStage, &str); 16] = [
    (SetupStage::Order, "its description could not be read"),
    (
        SetupStage::Temporary,
        "its private temporary folder could not be made",
    ),
    (
        SetupStage::Launch,
        "its process could not be started, or died",
    ),
    (SetupStage::Limits, "its limits could not be set"),
    (
        SetupStage::Privileges,
        "its privileges could not be dropped",
    ),
    (
        SetupStage::Namespaces,
        "namespaces are not available: this system or container forbids user namespaces, so use level 1",
    ),
    (
        SetupStage::Mapping,
        "its user could not be set up: this system or container restricts user namespaces, so use level 1",
    ),
    (
        SetupStage::Process,
        "its first process could not be started",
    ),
    (
        SetupStage::Mounts,
        "its view of the files could not be mounted: that needs Linux 5.12 and, in a container, a whole /proc, so use level 1",
    ),
    (
        SetupStage::Loopback,
        "its loopback network could not be switched on",
    ),
    (
        SetupStage::Folder,
        "the folder of the command is not visible in it",
    ),
    (
        SetupStage::Secrets,
        "level 1 cannot hide secrets that lie in a folder that may be written, so use level 2",
    ),
    (
        SetupStage::Landlock,
        "Landlock is not available: level 1 needs Linux 6.2 with Landlock switched on",
    ),
    (
        SetupStage::Filter,
        "the system call filter could not be installed",
    ),
    (
        SetupStage::Guard,
        "the protected paths of the workspace could not be covered",
    ),
    (
        SetupStage::Neither,
        "level 2 is not available here, and level 1 cannot hide the secrets that lie in the workspace: run where user namespaces are \
         allowed, or move the secrets out",
    ),
];

impl SetupStage {
    /// Combines this stage and a system error into one number.
    pub(crate) fn to_error(self, error: &io::Error) -> io::Error {
        let number = error.raw_os_error().unwrap_or(0).rem_euclid(SCALE);
        io::Error::from_raw_os_error(self as i32 * SCALE + number)
    }

    /// Returns true if the error is a failure of this stage.
    pub(crate) fn is_stage_of(self, error: &io::Error) -> bool {
        error
            .raw_os_error()
            .is_some_and(|number| number / SCALE == self as i32)
    }

    /// Returns the message for a number that [`to_error`](Self::to_error) made; `None` for a plain
    /// error number.
    pub(crate) fn explain_error(number: i32) -> Option<String> {
        let (_, words) = STAGES
            .iter()
            .find(|(stage, _)| *stage as i32 == number / SCALE)?;
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
    fn exit_numbers_name_the_failed_stage() {
        for (stage, words) in STAGES {
            let failed = stage
                .to_error(&io::Error::from_raw_os_error(1))
                .raw_os_error()
                .unwrap();
            assert_eq!(
                SetupStage::explain_error(failed),
                Some(format!("{words} (Operation not permitted (os error 1))"))
            );
        }
        assert_eq!(SetupStage::explain_error(2), None);
        assert_eq!(SetupStage::explain_error(999), None);
        assert_eq!(
            SetupStage::explain_error(14_000).as_deref(),
            Some("the system call filter could not be installed")
        );
    }
}
