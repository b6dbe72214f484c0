//! Mounts the file system for a command of level 2: everything is read-only except a few folders;
//! `/proc`, `/dev` and `/tmp` are new; secrets are hidden.
//!
//! Folders that stay writable are cloned before everything is made read-only, and then mounted over
//! themselves. Where the mounts that every command has are made ahead, they are cloned later and made
//! writable again. The mount namespace keeps all of this private and disappears with its last process.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount,
    open_tree,
};

use super::landlock_rules::DEVICES;
use super::syscalls::{MountScope, add_mount_attributes, remove_mount_attributes};
use super::{ProtectedPaths, SandboxPlan};
use crate::kernel;
use crate::supervise::max_tasks;

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const ALL: u64 = READ_ONLY | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID;
/// The folders of temporary files, which are replaced even if a program ignores `TMPDIR`.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// The folders of the system's services. Only the programs and libraries of NixOS and
/// the addresses of name servers stay visible.
const RUNTIME: [&str; 2] = ["/run", "/var/run"];
const RUNTIME_SHOWN: [&str; 5] = [
    "current-system",
    "booted-system",
    "opengl-driver",
    "wrappers",
    "systemd/resolve",
];
/// The folder and the file that are mounted over entries that must look empty.
const EMPTY: [&str; 2] = ["/dev/.empty/folder", "/dev/.empty/file"];
/// The folder and the file, without any permission, that are mounted over secrets and sockets.
const CLOSED: [&str; 2] = ["/dev/.empty/closed-folder", "/dev/.empty/closed-file"];

/// The package caches in the home folder, each with the mount point in `/tmp` where a command sees it with its own changes on top, and the
/// words of command lines that need it.
const LAYERED: [(&str, &str, &[&str]); 2] = [
    (
        ".npm/_cacache",
        ".cache/npm_config_cache/_cacache",
        &["npm", "npx"],
    ),
    (".m2/repository", ".cache/maven", &["mvn"]),
];

/// Builds the mounts, and covers these sockets of the machine. `text` is the command line; `protected` yields the protected paths, if
/// there are any.
pub(super) fn arrange_mounts(
    plan: &SandboxPlan,
    sockets: &[PathBuf],
    text: &OsStr,
    protected: Option<PipeReader>,
) -> io::Result<()> {
    make_private()?;
    let caches = open_caches(plan, text);
    // Cloned before the root becomes read-only, since a clone keeps the attributes that it was made
    // with.
    let trees = PlanTrees::clone_all(plan)?;
    replace_system_folders()?;
    mount_plan(plan, &trees, &caches, sockets)?;
    protected.map_or(Ok(()), protect_received)
}

/// Builds the mounts that every command has, before one is known. [`mount_command`] adds the others.
pub(super) fn mount_system() -> io::Result<()> {
    make_private()?;
    replace_system_folders()
}

/// Builds the mounts of a command after [`mount_system`], unless a path of the plan [is replaced](is_replaced). [`protect_received`] then
/// mounts the protected paths.
pub(super) fn mount_command(
    plan: &SandboxPlan,
    sockets: &[PathBuf],
    text: &OsStr,
) -> io::Result<()> {
    let caches = open_caches(plan, text);
    let trees = PlanTrees::clone_all(plan)?;
    trees.make_writable()?;
    mount_plan(plan, &trees, &caches, sockets)
}

/// Protects the paths that it receives, until it has all of them.
pub(super) fn protect_received(mut pipe: PipeReader) -> io::Result<()> {
    while let Some(paths) = ProtectedPaths::receive(&mut pipe)? {
        protect_paths(&paths)?;
    }
    Ok(())
}

/// Cuts the propagation, before anything else: otherwise these mounts could show up outside.
fn make_private() -> io::Result<()> {
    Ok(mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?)
}

/// Makes everything read-only, and replaces the folders of processes, devices and services.
fn replace_system_folders() -> io::Result<()> {
    let runtime = clone_runtime_folders()?;
    let mut devices = Vec::new();
    for device in DEVICES {
        if fs::exists(device)? {
            devices.push((device, clone_tree(Path::new(device))?));
        }
    }
    let root = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    add_mount_attributes(root.as_fd(), ALL, MountScope::Tree)?;
    // A new `/proc` shows the processes of this PID namespace only. It is read-only, since writes
    // there change kernel settings.
    mount_processes()?;
    arrange_devices(devices)?;
    for folder in runtime {
        replace_runtime_folder(folder)?;
    }
    Ok(())
}

/// Returns true if a path is in a folder that [`mount_system`] replaces, or contains one.
pub(super) fn is_replaced(path: &Path) -> bool {
    let mut replaced = RUNTIME.iter().chain(&["/dev", "/proc"]);
    replaced.any(|mount_point| {
        path.starts_with(mount_point) || Path::new(mount_point).starts_with(path)
    })
}

/// The device and number of a file.
pub(super) type FileIdentity = (u64, u64);

/// Identifies the folders of services that stay visible. The list differs if one was added, removed or exchanged.
pub(super) fn identify_services() -> Vec<Option<FileIdentity>> {
    let mount_points = RUNTIME.iter().map(Path::new);
    let shown = mount_points
        .flat_map(|mount_point| RUNTIME_SHOWN.iter().map(move |name| mount_point.join(name)));
    shown
        .map(|path| {
            let found = fs::metadata(path).ok()?;
            Some((found.dev(), found.ino()))
        })
        .collect()
}

/// The trees of a plan, not mounted anywhere yet.
struct PlanTrees<'a> {
    /// The private temporary folder, for each mount point.
    temporary: Vec<(&'static str, OwnedFd)>,
    /// The folders that may be written, and then the others that stay visible.
    kept: Vec<KeptTree<'a>>,
}

struct KeptTree<'a> {
    path: &'a Path,
    tree: OwnedFd,
    is_folder: bool,
    is_writable: bool,
}

impl<'a> PlanTrees<'a> {
    fn clone_all(plan: &'a SandboxPlan) -> io::Result<Self> {
        let mut temporary = Vec::new();
        for mount_point in TEMPORARY {
            // A link, for instance to the other one, needs no mount.
            if fs::symlink_metadata(mount_point).is_ok_and(|found| found.is_dir()) {
                temporary.push((mount_point, clone_tree(&plan.tmp)?));
            }
        }
        let mut kept = Vec::new();
        // `visible_paths` yields the writable folders first, so the index tells them apart.
        for (index, path) in plan.visible_paths().enumerate() {
            kept.push(KeptTree {
                path,
                tree: clone_tree(path)?,
                is_folder: path.is_dir(),
                is_writable: index < plan.write.len(),
            });
        }
        Ok(Self { temporary, kept })
    }

    /// Makes writable trees writable again: they were cloned after the root had become read-only.
    ///
    /// # Errors
    /// If a part of a tree is read-only on the machine, since the two cases cannot be distinguished. The kernel then changes nothing.
    fn make_writable(&self) -> io::Result<()> {
        let temporary = self.temporary.iter().map(|(_, tree)| tree);
        let kept = self.kept.iter().filter(|kept| kept.is_writable);
        for tree in temporary.chain(kept.map(|kept| &kept.tree)) {
            remove_mount_attributes(tree.as_fd(), READ_ONLY)?;
        }
        Ok(())
    }
}

/// Mounts the trees of a plan, and covers what it hides.
fn mount_plan(
    plan: &SandboxPlan,
    trees: &PlanTrees<'_>,
    caches: &[LayeredCache],
    sockets: &[PathBuf],
) -> io::Result<()> {
    for (mount_point, tree) in &trees.temporary {
        harden_tree(tree, 0)?;
        attach_tree(tree, Path::new(mount_point))?;
    }
    for kept in &trees.kept {
        harden_tree(&kept.tree, if kept.is_writable { 0 } else { READ_ONLY })?;
        make_mount_point(kept.path, kept.is_folder)?;
        attach_tree(&kept.tree, kept.path)?;
    }
    for cache in caches {
        // Where this cannot be done, the command begins with an empty cache.
        let _ = layer_cache(cache);
    }
    // After the writable folders, because their mounts would cover those over secrets.
    for path in plan.hide.iter().chain(sockets) {
        cover_path(path, CLOSED)?;
    }
    for path in &plan.empty {
        cover_path(path, EMPTY)?;
    }
    Ok(())
}

/// A cache of the home, with the mount point where a command sees it.
struct LayeredCache {
    own: OwnedFd,
    mount_point: &'static Path,
}

/// Opens the caches of the home that a command line needs, so that it can install without a network what was fetched before.
fn open_caches(plan: &SandboxPlan, text: &OsStr) -> Vec<LayeredCache> {
    let Some(home) = &plan.home else {
        return Vec::new();
    };
    let text = text.to_string_lossy();
    let needed = LAYERED
        .iter()
        .filter(|(_, _, words)| words.iter().any(|word| text.contains(word)));
    let opened = needed.filter_map(|(own, mount_point, _)| {
        let written = home.canonicalize().ok()?.join(own);
        let own = written.canonicalize().ok()?;
        // A command may have made a link in the home that leads to something hidden in level 2,
        // such as the host's temporary files.
        if own != written {
            return None;
        }
        // A layer would show what mounts over its parts hide.
        let mut hidden = plan.hide.iter().chain(&plan.empty);
        let is_hidden = hidden.any(|path| path.starts_with(&own) || own.starts_with(path));
        let is_shown = plan
            .visible_paths()
            .any(|path| own.starts_with(path) || path.starts_with(&own));
        if is_hidden || is_shown {
            return None;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = open(&own, flags, Mode::empty()).ok()?;
        Some(LayeredCache {
            own,
            mount_point: Path::new(mount_point),
        })
    });
    opened.collect()
}

/// Mounts a cache in `/tmp`. What the command writes there goes into a folder beside it.
///
/// No link is followed: an earlier command of the task may have created one that would mount the cache over the workspace or write the
/// changes into its protected folders.
fn layer_cache(cache: &LayeredCache) -> io::Result<()> {
    let mount_point = open_temporary_folder(cache.mount_point)?;
    let changes = open_temporary_folder(&cache.mount_point.with_extension("changes"))?;
    let scratch = open_temporary_folder(&cache.mount_point.with_extension("scratch"))?;
    // Named by their handles: the new `/tmp` may cover a path, and a path may be replaced or
    // contain the separator of layers.
    let by_handle =
        |folder: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, path) in [
        (c"lowerdir", by_handle(&cache.own)),
        (c"upperdir", by_handle(&changes)),
        (c"workdir", by_handle(&scratch)),
    ] {
        fsconfig_set_string(context.as_fd(), name, path.as_path())?;
    }
    // Without privileges outside, marks of removed files can only be attributes of users.
    rustix::mount::fsconfig_set_flag(context.as_fd(), c"userxattr")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    let tree = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(move_mount(
        tree.as_fd(),
        c"",
        mount_point.as_fd(),
        c"",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )?)
}

/// Opens a folder in the new `/tmp`, and makes what is missing of it. Follows no link and enters no other mount.
fn open_temporary_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut folder = open("/tmp", flags, Mode::empty())?;
    for name in path.iter() {
        match mkdirat(&folder, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = openat2(&folder, name, flags, Mode::empty(), resolve)?;
    }
    Ok(folder)
}

/// Mounts the list of processes, read-only, after limiting their number.
fn mount_processes() -> io::Result<()> {
    let tree = create_mount(c"proc", &[], MountAttrFlags::empty())?;
    if kernel::has_process_limit_per_namespace() {
        limit_processes(&tree)?;
    }
    add_mount_attributes(tree.as_fd(), READ_ONLY, MountScope::Mount)?;
    attach_tree(&tree, Path::new("/proc"))
}

/// Limits the processes of this PID namespace. A resource limit does not apply to root, even if
/// root has another user id inside the namespace.
fn limit_processes(proc: &OwnedFd) -> io::Result<()> {
    let most = max_tasks();
    let path = "sys/kernel/pid_max";
    let now = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(now).read_to_string(&mut text)?;
    // Never raised, as no limit of the sandbox is.
    if text.trim().parse().is_ok_and(|now: u64| now <= most) {
        return Ok(());
    }
    let limit = openat(proc, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(limit).write_all(most.to_string().as_bytes())
}

/// A folder of the system's services, with the paths in it that stay visible.
struct RuntimeFolder {
    mount_point: &'static str,
    shown: Vec<(PathBuf, OwnedFd)>,
}

fn clone_runtime_folders() -> io::Result<Vec<RuntimeFolder>> {
    let mut folders = Vec::new();
    for mount_point in RUNTIME {
        if !fs::symlink_metadata(mount_point).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let mut shown = Vec::new();
        for name in RUNTIME_SHOWN {
            let path = Path::new(mount_point).join(name);
            if path.is_dir() {
                let tree = clone_tree(&path)?;
                shown.push((path, tree));
            }
        }
        folders.push(RuntimeFolder { mount_point, shown });
    }
    Ok(folders)
}

/// Replaces a folder of the system's services, whose sockets nothing else keeps a command from.
fn replace_runtime_folder(folder: RuntimeFolder) -> io::Result<()> {
    let tree = create_mount(
        c"tmpfs",
        &[(c"mode", c"0755"), (c"size", c"64k")],
        MountAttrFlags::empty(),
    )?;
    attach_tree(&tree, Path::new(folder.mount_point))?;
    for (path, shown) in folder.shown {
        fs::create_dir_all(&path)?;
        harden_tree(&shown, READ_ONLY)?;
        attach_tree(&shown, &path)?;
    }
    Ok(())
}

/// Protects paths of the workspace: existing ones become read-only, and masks are covered.
fn protect_paths(protected: &ProtectedPaths) -> io::Result<()> {
    for path in &protected.pinned {
        // A mount point cannot be renamed away together with the mounts below it.
        attach_tree(&clone_tree(path)?, path)?;
    }
    // Cloned while they can be written: a clone keeps the attributes that it was made with.
    let mut reopened = Vec::new();
    for path in &protected.reopened {
        reopened.push((
            path,
            covering_path(path, &protected.existing),
            clone_tree(path)?,
        ));
    }
    // Sorted, so a folder comes before what is in it, and a later mount covers an earlier one.
    for path in &protected.existing {
        let tree = clone_tree(path)?;
        harden_tree(&tree, READ_ONLY)?;
        attach_tree(&tree, path)?;
        for (inner, _, tree) in reopened
            .iter()
            .filter(|(_, covering, _)| *covering == Some(path))
        {
            attach_tree(tree, inner)?;
        }
    }
    for path in &protected.missing {
        // A mask covers itself: git has to read what is in the one of `commondir`.
        let tree = clone_tree(path)?;
        harden_tree(&tree, READ_ONLY)?;
        attach_tree(&tree, path)?;
    }
    Ok(())
}

/// Returns the innermost of these folders that contains a path.
fn covering_path<'a>(path: &Path, folders: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let containing = folders.iter().filter(|folder| path.starts_with(folder));
    containing.max_by_key(|folder| folder.components().count())
}

/// Mounts private devices, pseudo-terminals and shared memory.
fn arrange_devices(devices: Vec<(&str, OwnedFd)>) -> io::Result<()> {
    let none = MountAttrFlags::empty();
    mount_fresh(
        c"tmpfs",
        &[(c"mode", c"0755"), (c"size", c"64k")],
        none,
        Path::new("/dev"),
    )?;
    for (device, tree) in devices {
        fs::write(device, "")?;
        add_mount_attributes(
            tree.as_fd(),
            libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
            MountScope::Mount,
        )?;
        attach_tree(&tree, Path::new(device))?;
    }
    for folder in ["/dev/pts", "/dev/shm", "/dev/.empty", EMPTY[0], CLOSED[0]] {
        fs::create_dir(folder)?;
    }
    fs::write(EMPTY[1], "")?;
    fs::write(CLOSED[1], "")?;
    for closed in CLOSED {
        // Mode 0 makes reading fail instead of showing an empty file, which could mislead a
        // program.
        fs::set_permissions(closed, fs::Permissions::from_mode(0o0))?;
    }
    mount_fresh(
        c"devpts",
        &[(c"newinstance", c""), (c"ptmxmode", c"0666")],
        none,
        Path::new("/dev/pts"),
    )?;
    mount_fresh(
        c"tmpfs",
        &[(c"mode", c"1777")],
        MountAttrFlags::MOUNT_ATTR_NODEV,
        Path::new("/dev/shm"),
    )?;
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("fd/0", "stdin"),
        ("fd/1", "stdout"),
        ("fd/2", "stderr"),
    ];
    links
        .iter()
        .try_for_each(|(target, name)| symlink(target, Path::new("/dev").join(name)))
}

/// Mounts a new file system.
fn mount_fresh(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: MountAttrFlags,
    at: &Path,
) -> io::Result<()> {
    attach_tree(&create_mount(kind, options, attributes)?, at)
}

/// Creates a file system that is not mounted anywhere yet.
fn create_mount(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        match value.is_empty() {
            true => rustix::mount::fsconfig_set_flag(context.as_fd(), *name)?,
            false => fsconfig_set_string(context.as_fd(), *name, *value)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    let attributes =
        attributes | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Clones a file tree, not mounted anywhere yet.
fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    // A file has nothing below it that could be cloned, too.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

fn harden_tree(tree: &OwnedFd, more: u64) -> io::Result<()> {
    add_mount_attributes(
        tree.as_fd(),
        libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOSUID | more,
        MountScope::Tree,
    )
}

fn attach_tree(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    Ok(move_mount(
        tree.as_fd(),
        c"",
        CWD,
        at,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?)
}

/// Creates a mount point if the new `/tmp` hides the original one; it is removed with the private
/// folder.
fn make_mount_point(path: &Path, is_folder: bool) -> io::Result<()> {
    let mut replaced = TEMPORARY.iter().chain(&RUNTIME).chain(&["/dev"]);
    if !replaced.any(|mount_point| path.starts_with(mount_point)) || fs::exists(path)? {
        return Ok(());
    }
    let folder = if is_folder { Some(path) } else { path.parent() };
    if let Some(folder) = folder {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    if is_folder {
        Ok(())
    } else {
        fs::write(path, "")
    }
}

/// Covers a file or folder, if it is visible at all, with one that cannot be written.
fn cover_path(path: &Path, [folder, file]: [&str; 2]) -> io::Result<()> {
    let Ok(found) = fs::metadata(path) else {
        return Ok(());
    };
    let tree = clone_tree(Path::new(if found.is_dir() { folder } else { file }))?;
    add_mount_attributes(tree.as_fd(), ALL, MountScope::Mount)?;
    attach_tree(&tree, path)
}

/// Iterates over the folders that stay visible, writable ones first.
impl SandboxPlan {
    pub(super) fn visible_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.write.iter().chain(&self.read)
    }
}
