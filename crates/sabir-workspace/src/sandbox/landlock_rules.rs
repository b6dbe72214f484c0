//! Restricts file access with Landlock, which no later mount, link or rename can bypass.
//!
//! Landlock can only allow, and always a folder with everything below. To hide a path, everything
//! beside it is allowed instead, level by level ([`paths_beside`]). This has three consequences. A
//! name that is created beside a hidden one while the command runs is hidden too. The names in a
//! hidden folder can be listed, because listing `/` has to work. And below a writable folder
//! nothing can be hidden or write-protected: that needs level 2.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use rustix::fs::{FileType, fstat};

use super::{EffectiveLevel, NetworkAccess};

/// The minimum version (Linux 6.2); before it, truncation is not controlled, so level 1 is not
/// available.
const LEAST: ABI = ABI::V3;
/// The newest version whose rights were tested.
const NEWEST: ABI = ABI::V7;

/// The devices that may be read and written, if they exist.
pub(super) const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];
/// The terminals, one of which may be the command's own.
const TERMINALS: [&str; 2] = ["/dev/pts", "/dev/ptmx"];

/// The access of a command to files and network.
pub(super) struct LandlockRights<'a> {
    pub(super) level: EffectiveLevel,
    pub(super) network: NetworkAccess,
    /// The folders that may be written.
    pub(super) write: &'a [PathBuf],
    /// The paths that may be read although a folder above is hidden.
    pub(super) read: &'a [PathBuf],
    /// The files and folders that may not be read, unless mounts hide them.
    pub(super) hide: &'a [PathBuf],
}

/// Restricts this process permanently. Returns the kernel's Landlock version, 0 if the kernel has
/// none and the level does not require it.
pub(super) fn restrict_process(rights: &LandlockRights<'_>) -> Result<i32, RulesetError> {
    let least = if rights.level == EffectiveLevel::One {
        CompatLevel::HardRequirement
    } else {
        CompatLevel::BestEffort
    };
    let mut rules = Ruleset::default()
        .set_compatibility(least)
        // The rights of the minimum version are required in level 1. Newer rights are used if the
        // kernel has them.
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    // Level 2 has a private network; if the network is allowed, all of it is.
    if rights.level == EffectiveLevel::One && rights.network != NetworkAccess::Allowed {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let mut rules = rules.create()?;
    let read = AccessFs::from_read(NEWEST);
    match rights.level {
        EffectiveLevel::One => {
            rules = allow_path(rules, Path::new("/"), AccessFs::ReadDir.into())?;
            let mut hidden = rights.hide.to_vec();
            hidden.push(PathBuf::from("/dev"));
            let shown = rights
                .read
                .iter()
                .flat_map(|path| paths_beside(path, rights.hide));
            for path in paths_beside(Path::new("/"), &hidden)
                .into_iter()
                .chain(shown)
            {
                rules = allow_path(rules, &path, read)?;
            }
        }
        EffectiveLevel::Two => {
            rules = allow_path(rules, Path::new("/"), read)?;
            rules = allow_path(
                rules,
                Path::new("/dev/shm"),
                AccessFs::from_all(NEWEST) & !device_nodes(),
            )?;
        }
    }
    for folder in rights.write {
        rules = allow_path(rules, folder, AccessFs::from_all(NEWEST) & !device_nodes())?;
    }
    for device in DEVICES {
        rules = allow_path(
            rules,
            Path::new(device),
            AccessFs::from_file(NEWEST) & !BitFlags::from(AccessFs::Execute),
        )?;
    }
    for terminal in TERMINALS {
        let access =
            AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev;
        rules = allow_path(rules, Path::new(terminal), access)?;
    }
    let status = rules.restrict_self()?;
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
        _ => 0,
    };
    Ok(if status.ruleset == RulesetStatus::NotEnforced {
        0
    } else {
        abi
    })
}

/// Returns the rights to create devices and to control them.
fn device_nodes() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev
}

/// Adds a rule. A missing path needs none; a file accepts only the rights of files.
fn allow_path(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(handle) = PathFd::new(path) else {
        return Ok(rules);
    };
    let is_folder = fstat(&handle)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
    let access = if is_folder {
        access
    } else {
        access & AccessFs::from_file(NEWEST)
    };
    if access.is_empty() {
        Ok(rules)
    } else {
        rules.add_rule(PathBeneath::new(handle, access))
    }
}

/// Returns the largest files and folders at or below `top` that contain none of the hidden paths,
/// which are canonical.
pub(super) fn paths_beside(top: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let hidden: Vec<&Path> = hidden
        .iter()
        .map(PathBuf::as_path)
        .filter(|path| path.starts_with(top))
        .collect();
    let mut shown = Vec::new();
    collect_beside(top.to_path_buf(), &hidden, &mut shown);
    shown
}

/// Collects the [`paths_beside`] the hidden ones, all of which are at or below `top`.
fn collect_beside(top: PathBuf, hidden: &[&Path], shown: &mut Vec<PathBuf>) {
    if hidden.is_empty() {
        shown.push(top);
        return;
    }
    if hidden.contains(&top.as_path()) {
        return;
    }
    // Grouped by the entry that leads to them, so that each entry needs only one lookup.
    let depth = top.components().count();
    let mut ways: HashMap<&OsStr, Vec<&Path>> = HashMap::new();
    for path in hidden {
        let name = path
            .components()
            .nth(depth)
            .map(Component::as_os_str)
            .unwrap_or_default();
        ways.entry(name).or_default().push(path);
    }
    // A folder that cannot be listed cannot be allowed in part either.
    for entry in fs::read_dir(&top).into_iter().flatten().flatten() {
        // The target of a link is checked at its own place.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            let inside = ways
                .get(entry.file_name().as_os_str())
                .map_or(&[][..], Vec::as_slice);
            collect_beside(entry.path(), inside, shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(hidden: &[&str], expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "home/.ssh/id",
            "home/.config/gh/hosts",
            "home/.config/app/x",
            "home/a",
            "etc/x",
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(folder.path().join("home/.ssh"), folder.path().join("keys"))
            .unwrap();
        let hidden: Vec<PathBuf> = hidden.iter().map(|name| folder.path().join(name)).collect();
        let mut found = paths_beside(folder.path(), &hidden);
        found.sort();
        let expected: Vec<PathBuf> = expected
            .iter()
            .map(|name| folder.path().join(name))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn rules_cover_everything_but_hidden_paths() {
        check(&["home/.ssh"], &["etc", "home/.config", "home/a"]);
        check(
            &["home/.ssh", "home/.config/gh"],
            &["etc", "home/.config/app", "home/a"],
        );
        check(&["home"], &["etc"]);
        check(&["home", "home/.ssh"], &["etc"]);
        check(
            &["home/.ss"],
            &["etc", "home/.config", "home/.ssh", "home/a"],
        );
    }
}
