//! Encodes the plan of a sandbox as command line arguments, to pass it from the agent to the
//! supervisor.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{NetworkAccess, SandboxLevel, SandboxTier, environment};

/// The environment variables of cache folders, which are mostly in the home folder.
const CACHES: [&str; 4] = [
    "XDG_CACHE_HOME",
    "GOCACHE",
    "npm_config_cache",
    "PIP_CACHE_DIR",
];

/// The plan of a sandbox. All paths are absolute and canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxPlan {
    pub(crate) level: SandboxLevel,
    pub(crate) network: NetworkAccess,
    /// The folders that may be written, the workspace first; empty for a command that only reads.
    pub(crate) write: Vec<PathBuf>,
    /// The paths outside of `write` that stay visible.
    pub(crate) read: Vec<PathBuf>,
    /// The existing paths to hide.
    pub(crate) hide: Vec<PathBuf>,
    /// The private temporary folder.
    pub(crate) tmp: PathBuf,
    pub(crate) stay: TempDirLifetime,
    /// The environment variables to point into the temporary folder.
    pub(crate) caches: Vec<String>,
    /// The memory limit in MiB; `None` for what the machine can spare.
    pub(crate) memory_mib: Option<u64>,
    /// The protected paths that the supervisor found in the workspace.
    pub(crate) protected: ProtectedPaths,
}

/// The lifetime of the temporary folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TempDirLifetime {
    /// The duration of the command: the supervisor creates and removes the folder.
    Command,
    /// The duration of the agent's lock on the folder.
    Task,
}

/// The protected paths at the top of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProtectedPaths {
    /// Folders that contain protected paths and stay writable, but cannot be renamed.
    pub(crate) pinned: Vec<PathBuf>,
    pub(crate) existing: Vec<PathBuf>,
    /// Missing protected paths, each of which has a mask while the command runs.
    pub(crate) missing: Vec<PathBuf>,
}

impl SandboxPlan {
    /// Encodes the plan as pairs of a key and a value.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["level".into(), self.level.to_string().into()];
        let network = if self.network == NetworkAccess::Allowed {
            "allowed"
        } else {
            "denied"
        };
        words.extend([
            "network".into(),
            network.into(),
            "tmp".into(),
            self.tmp.clone().into(),
        ]);
        words.extend([
            "stay".into(),
            if self.stay == TempDirLifetime::Task {
                "task"
            } else {
                "command"
            }
            .into(),
        ]);
        words.extend(
            self.memory_mib
                .iter()
                .flat_map(|most| ["memory".into(), most.to_string().into()]),
        );
        words.extend(
            self.caches
                .iter()
                .flat_map(|name| ["cache".into(), name.into()]),
        );
        let ProtectedPaths {
            pinned,
            existing,
            missing,
        } = &self.protected;
        let lists = [
            ("write", &self.write),
            ("read", &self.read),
            ("hide", &self.hide),
            ("pin", pinned),
            ("guard", existing),
            ("mask", missing),
        ];
        for (key, list) in lists {
            words.extend(
                list.iter()
                    .flat_map(|path| [OsString::from(key), path.clone().into()]),
            );
        }
        words
    }

    /// Decodes the arguments that [`to_args`](Self::to_args) wrote.
    pub(crate) fn from_args(words: &[OsString]) -> Option<Self> {
        let mut level = None;
        let mut network = None;
        let mut tmp = None;
        let mut stay = None;
        let mut memory_mib = None;
        let mut caches = Vec::new();
        let mut write = Vec::new();
        let mut read = Vec::new();
        let mut hide = Vec::new();
        let mut protected = ProtectedPaths::default();
        for pair in words.chunks(2) {
            let [key, value] = pair else { return None };
            let path = PathBuf::from(value);
            match key.to_str()? {
                "level" => level = Some(value.to_str()?.parse().ok()?),
                "network" if value == "allowed" => network = Some(NetworkAccess::Allowed),
                "network" if value == "denied" => network = Some(NetworkAccess::Denied),
                "tmp" => tmp = Some(path),
                "stay" if value == "task" => stay = Some(TempDirLifetime::Task),
                "stay" if value == "command" => stay = Some(TempDirLifetime::Command),
                "cache" => caches.push(value.to_str()?.to_owned()),
                "memory" => memory_mib = Some(value.to_str()?.parse().ok()?),
                "write" => write.push(path),
                "read" => read.push(path),
                "hide" => hide.push(path),
                "pin" => protected.pinned.push(path),
                "guard" => protected.existing.push(path),
                "mask" => protected.missing.push(path),
                _ => return None,
            }
        }
        Some(Self {
            level: level?,
            network: network?,
            write,
            read,
            hide,
            tmp: tmp?,
            stay: stay?,
            caches,
            memory_mib,
            protected,
        })
    }

    /// Removes the temporary folder of a single command, in case the supervisor was killed before
    /// it did.
    pub(crate) fn remove_temp_dir(&self) {
        if self.stay == TempDirLifetime::Command {
            environment::remove_folder(&self.tmp);
        }
    }

    /// Returns the folders in which a command of this tier can write.
    pub(super) fn writable_folders(&self, tier: SandboxTier) -> Vec<PathBuf> {
        let mut folders = self.write.clone();
        match tier {
            SandboxTier::One => folders.push(self.tmp.clone()),
            SandboxTier::Two => folders.extend(["/tmp".into(), "/var/tmp".into()]),
        }
        folders
    }
}

/// Returns the cache variables that this environment does not point to a writable folder.
pub(super) fn moved_caches(write: &[PathBuf], env: &[(String, String)]) -> Vec<String> {
    let is_writable = |name: &str| {
        let last = env.iter().rfind(|(known, _)| known == name);
        last.is_some_and(|(_, path)| {
            write
                .iter()
                .any(|folder| Path::new(path).starts_with(folder))
        })
    };
    let moved = CACHES
        .iter()
        .filter(|name| !is_writable(name) && !is_writable("HOME"));
    moved.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_that_can_be_written_stay() {
        let moved = |entries: &[(&str, &str)]| {
            let env: Vec<_> = entries
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            moved_caches(&["/w".into()], &env).len()
        };
        assert_eq!(moved(&[]), 4);
        assert_eq!(moved(&[("HOME", "/home/ada"), ("GOCACHE", "/w/.go")]), 3);
        assert_eq!(moved(&[("HOME", "/w/home")]), 0);
        assert_eq!(
            moved(&[("GOCACHE", "/w/.go"), ("GOCACHE", "/elsewhere")]),
            4
        );
    }

    #[test]
    fn an_order_survives_the_command_line() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let plan = SandboxPlan {
            level: SandboxLevel::Best,
            network: NetworkAccess::Allowed,
            write: paths(&["/w", "/a b\nc"]),
            read: paths(&["/level"]),
            hide: paths(&["/h/.ssh", "/h/.aws"]),
            tmp: "/tmp/x".into(),
            stay: TempDirLifetime::Task,
            caches: vec!["GOCACHE".to_owned()],
            memory_mib: Some(512),
            protected: ProtectedPaths {
                pinned: paths(&["/w/.git"]),
                existing: paths(&["/w/.git/hooks"]),
                missing: paths(&["/w/.idea"]),
            },
        };
        assert_eq!(SandboxPlan::from_args(&plan.to_args()), Some(plan.clone()));
        for broken in [1, 3, plan.to_args().len() - 1] {
            assert_eq!(SandboxPlan::from_args(&plan.to_args()[..broken]), None);
        }
        assert_eq!(SandboxPlan::from_args(&["level".into(), "3".into()]), None);
    }
}
