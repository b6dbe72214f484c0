//! Encodes the plan of a sandbox as command line arguments, to pass it from the agent to the
//! supervisor.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{EffectiveLevel, NetworkAccess, RegistryHost, SandboxLevel, environment};

/// The environment variables of cache folders, which are mostly in the home folder.
const CACHES: [&str; 4] = [
    "XDG_CACHE_HOME",
    "GOCACHE",
    "npm_config_cache",
    "PIP_CACHE_DIR",
];
/// The environment variables of folders where package managers keep what they have fetched. Unlike caches they are moved only
/// once a command was given package registries, because builds without a network need what is there.
const PACKAGE_HOMES: [&str; 3] = ["CARGO_HOME", "GOMODCACHE", "GRADLE_USER_HOME"];

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
    /// The existing files that look empty.
    pub(crate) empty: Vec<PathBuf>,
    /// The private temporary folder.
    pub(crate) tmp: PathBuf,
    pub(crate) stay: TempDirLifetime,
    /// The environment variables to point into the temporary folder.
    pub(crate) caches: Vec<String>,
    /// The same for folders of fetched packages, which are used once there are any.
    pub(crate) package_homes: Vec<String>,
    /// The hosts of the proxy, where the network is limited to package registries.
    pub(crate) registries: Vec<RegistryHost>,
    /// The memory limit in MiB; `None` for what the machine can spare.
    pub(crate) memory_mib: Option<u64>,
    /// The home folder in the command's environment, where git reads the user's configuration.
    pub(crate) home: Option<PathBuf>,
    /// The ports of the machine's loopback that the command reaches.
    pub(crate) loopback: Option<LoopbackPlan>,
    /// The folder that keeps the masks between commands.
    pub(crate) mask_pool: Option<PathBuf>,
}

/// The ports of the machine's loopback that a command reaches through the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopbackPlan {
    /// The agent's socket, which takes the listening sockets of the command's network.
    pub(crate) socket: PathBuf,
    pub(crate) ports: Vec<u16>,
}

/// The lifetime of the temporary folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TempDirLifetime {
    /// The duration of the command: the supervisor creates and removes the folder.
    Command,
    /// The duration of the agent's lock on the folder.
    Task,
}

impl SandboxPlan {
    /// Encodes the plan as pairs of a key and a value.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["level".into(), self.level.to_string().into()];
        let network = match self.network {
            NetworkAccess::Allowed => "allowed",
            NetworkAccess::Registries => "registries",
            NetworkAccess::Denied => "denied",
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
        words.extend(
            self.package_homes
                .iter()
                .flat_map(|name| ["packages".into(), name.into()]),
        );
        words.extend(
            self.registries
                .iter()
                .flat_map(|host| ["registry".into(), host.to_word().into()]),
        );
        words.extend(
            self.home
                .iter()
                .flat_map(|home| [OsString::from("home"), home.clone().into()]),
        );
        words.extend(
            self.mask_pool
                .iter()
                .flat_map(|pool| [OsString::from("masks"), pool.clone().into()]),
        );
        if let Some(LoopbackPlan { socket, ports }) = &self.loopback {
            words.extend(["socket".into(), socket.clone().into()]);
            words.extend(
                ports
                    .iter()
                    .flat_map(|port| ["port".into(), port.to_string().into()]),
            );
        }
        let lists = [
            ("write", &self.write),
            ("read", &self.read),
            ("hide", &self.hide),
            ("empty", &self.empty),
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
        let mut home = None;
        let mut mask_pool = None;
        let mut socket = None;
        let mut ports = Vec::new();
        let mut caches = Vec::new();
        let mut package_homes = Vec::new();
        let mut registries = Vec::new();
        let mut write = Vec::new();
        let mut read = Vec::new();
        let mut hide = Vec::new();
        let mut empty = Vec::new();
        for pair in words.chunks(2) {
            let [key, value] = pair else { return None };
            let path = PathBuf::from(value);
            match key.to_str()? {
                "level" => level = Some(value.to_str()?.parse().ok()?),
                "network" if value == "allowed" => network = Some(NetworkAccess::Allowed),
                "network" if value == "denied" => network = Some(NetworkAccess::Denied),
                "network" if value == "registries" => network = Some(NetworkAccess::Registries),
                "packages" => package_homes.push(value.to_str()?.to_owned()),
                "registry" => registries.push(RegistryHost::from_word(value.to_str()?)?),
                "tmp" => tmp = Some(path),
                "socket" => socket = Some(path),
                "port" => ports.push(value.to_str()?.parse().ok()?),
                "stay" if value == "task" => stay = Some(TempDirLifetime::Task),
                "stay" if value == "command" => stay = Some(TempDirLifetime::Command),
                "cache" => caches.push(value.to_str()?.to_owned()),
                "memory" => memory_mib = Some(value.to_str()?.parse().ok()?),
                "write" => write.push(path),
                "read" => read.push(path),
                "hide" => hide.push(path),
                "empty" => empty.push(path),
                "home" => home = Some(path),
                "masks" => mask_pool = Some(path),
                _ => return None,
            }
        }
        Some(Self {
            level: level?,
            network: network?,
            write,
            read,
            hide,
            empty,
            tmp: tmp?,
            stay: stay?,
            caches,
            package_homes,
            registries,
            memory_mib,
            home,
            loopback: socket.map(|socket| LoopbackPlan { socket, ports }),
            mask_pool,
        })
    }

    /// Returns true if the command is to have a network of its own where that is available.
    #[cfg(target_os = "linux")]
    pub(crate) fn has_own_network(&self) -> bool {
        self.network != NetworkAccess::Allowed
            && self.level.candidate_levels().contains(&EffectiveLevel::Two)
    }

    /// Removes the temporary folder of a single command, in case the supervisor was killed before
    /// it did.
    pub(crate) fn remove_temp_dir(&self) {
        if self.stay == TempDirLifetime::Command {
            environment::remove_folder(&self.tmp);
        }
    }

    /// Returns the folders in which a command of this level can write.
    #[cfg(target_os = "linux")]
    pub(super) fn writable_folders(&self, level: EffectiveLevel) -> Vec<PathBuf> {
        let mut folders = self.write.clone();
        match level {
            EffectiveLevel::One => folders.push(self.tmp.clone()),
            EffectiveLevel::Two => folders.extend(["/tmp".into(), "/var/tmp".into()]),
        }
        folders
    }
}

impl SandboxPlan {
    /// Returns the environment variables for temporary files and caches.
    pub(super) fn temp_environment(&self, level: EffectiveLevel) -> Vec<(String, PathBuf)> {
        let tmp = if level == EffectiveLevel::Two {
            Path::new("/tmp")
        } else {
            &self.tmp
        };
        let caches = self.caches.iter().map(|name| {
            (
                name.clone(),
                tmp.join(".cache").join(name.to_ascii_lowercase()),
            )
        });
        ["TMPDIR", "TMP", "TEMP"]
            .map(|name| (name.to_owned(), tmp.to_path_buf()))
            .into_iter()
            .chain(caches)
            .collect()
    }
}

/// Returns the cache variables that this environment does not point to a writable folder.
pub(super) fn moved_caches(write: &[PathBuf], env: &[(String, String)]) -> Vec<String> {
    moved_variables(&CACHES, write, env)
}

/// Returns the variables of package managers' folders that this environment does not point to a writable folder.
pub(super) fn moved_package_homes(write: &[PathBuf], env: &[(String, String)]) -> Vec<String> {
    moved_variables(&PACKAGE_HOMES, write, env)
}

fn moved_variables(names: &[&str], write: &[PathBuf], env: &[(String, String)]) -> Vec<String> {
    let is_writable = |name: &str| {
        let last = env.iter().rfind(|(known, _)| known == name);
        last.is_some_and(|(_, path)| {
            write
                .iter()
                .any(|folder| Path::new(path).starts_with(folder))
        })
    };
    let moved = names
        .iter()
        .filter(|name| !is_writable(name) && !is_writable("HOME"));
    moved.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unwritable_caches_are_moved() {
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
    fn a_sandbox_plan_parses_from_its_arguments() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let plan = SandboxPlan {
            level: SandboxLevel::Best,
            network: NetworkAccess::Allowed,
            write: paths(&["/w", "/a b\nc"]),
            read: paths(&["/level"]),
            hide: paths(&["/h/.ssh", "/h/.aws"]),
            empty: paths(&["/w/.env"]),
            tmp: "/tmp/x".into(),
            stay: TempDirLifetime::Task,
            caches: vec!["GOCACHE".to_owned()],
            package_homes: vec!["CARGO_HOME".to_owned()],
            registries: vec![
                "127.0.0.2:80"
                    .parse::<RegistryHost>()
                    .unwrap()
                    .in_private_network(),
            ],
            memory_mib: Some(512),
            home: Some("/h".into()),
            loopback: Some(LoopbackPlan {
                socket: "/tmp/l/s".into(),
                ports: vec![80, 8080],
            }),
            mask_pool: Some("/h/masks".into()),
        };
        assert_eq!(SandboxPlan::from_args(&plan.to_args()), Some(plan.clone()));
        for broken in [1, 3, plan.to_args().len() - 1] {
            assert_eq!(SandboxPlan::from_args(&plan.to_args()[..broken]), None);
        }
        assert_eq!(SandboxPlan::from_args(&["level".into(), "3".into()]), None);
    }
}
