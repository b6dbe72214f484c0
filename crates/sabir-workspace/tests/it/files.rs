//! Tests paths, links, versions and atomic writes.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sabir_workspace::{
    FileVersion, ListOptions, WorkPath, Workspace, WorkspaceError, WritePrecondition,
};

use crate::Place;

/// Returns the name of an error's variant, which is the first word of its debug form.
pub(crate) fn kind<T>(result: Result<T, WorkspaceError>) -> String {
    match result {
        Ok(_) => "Ok".to_owned(),
        Err(error) => {
            let debug = format!("{error:?}");
            debug
                .split([' ', '{'])
                .next()
                .unwrap_or_default()
                .to_owned()
        }
    }
}

#[test]
fn reads_within_a_limit() {
    let place = Place::new();
    place.put("a", "hello");
    let whole = place.workspace.read_file(&place.path("a"), 100).unwrap();
    assert_eq!(
        (whole.bytes.as_slice(), whole.size_bytes, whole.truncated),
        (&b"hello"[..], 5, false)
    );
    assert_eq!(whole.version, FileVersion::of_content(b"hello"));
    let part = place.workspace.read_file(&place.path("a"), 2).unwrap();
    assert_eq!(
        (part.bytes.as_slice(), part.size_bytes, part.truncated),
        (&b"he"[..], 5, true)
    );
    assert_eq!(part.version, whole.version);
}

#[test]
fn a_huge_sparse_file_is_not_read_whole() {
    let place = Place::new();
    std::fs::File::create(place.inner("big"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    let content = place.workspace.read_file(&place.path("big"), 1000).unwrap();
    assert_eq!(
        (content.bytes.len(), content.size_bytes, content.truncated),
        (1000, 5 << 30, true)
    );
    assert_eq!(
        place
            .workspace
            .read_file(&place.path("big"), 0)
            .unwrap()
            .version,
        content.version
    );
}

#[test]
fn only_regular_files_are_read_and_written() {
    let place = Place::new();
    std::fs::create_dir(place.inner("folder")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(place.inner("fifo"))
        .status()
        .unwrap();
    assert!(made.success());
    let _listener = UnixListener::bind(place.inner("socket")).unwrap();
    for name in ["folder", "fifo", "socket", "."] {
        assert_eq!(
            kind(place.workspace.read_file(&place.path(name), 10)),
            "NotAFile",
            "{name}"
        );
        assert_eq!(
            kind(
                place
                    .workspace
                    .write_file(&place.path(name), b"x", WritePrecondition::Any)
            ),
            "NotAFile",
            "{name}"
        );
    }
    assert_eq!(
        kind(place.workspace.read_file(&place.path("absent"), 10)),
        "Missing"
    );
    place.put("file", "x");
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&place.path("file/below"), b"x", WritePrecondition::Any)
        ),
        "NotAFolder"
    );
}

#[test]
fn links_out_of_the_workspace_never_resolve() {
    let place = Place::new();
    let outside = place.outside.path();
    place.link("absolute", outside.join("secret"));
    place.link("folder", outside);
    place.link(
        "relative",
        Path::new("..")
            .join(outside.file_name().unwrap())
            .join("secret"),
    );
    place.link("dangling", outside.join("new"));
    place.link("loop", "loop");
    for name in ["absolute", "folder/secret", "relative", "dangling"] {
        assert_eq!(
            kind(place.workspace.read_file(&place.path(name), 10)),
            "LinkLeaves",
            "{name}"
        );
        assert_eq!(
            kind(place.workspace.exists(&place.path(name))),
            "LinkLeaves",
            "{name}"
        );
    }
    for name in [
        "absolute",
        "folder/new",
        "folder/deep/new",
        "relative",
        "dangling",
    ] {
        assert_eq!(
            kind(
                place
                    .workspace
                    .write_file(&place.path(name), b"x", WritePrecondition::Any)
            ),
            "LinkLeaves",
            "{name}"
        );
    }
    assert_eq!(
        kind(place.workspace.read_file(&place.path("loop"), 10)),
        "LinkLoop"
    );
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&place.path("loop"), b"x", WritePrecondition::Any)
        ),
        "LinkLoop"
    );
    assert_eq!(
        kind(
            place
                .workspace
                .list_folder(&place.path("folder"), &ListOptions::default())
        ),
        "LinkLeaves"
    );
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 1);
    assert_eq!(
        std::fs::read_to_string(outside.join("secret")).unwrap(),
        "secret\n"
    );
}

#[test]
fn links_inside_are_followed_and_reported() {
    let place = Place::new();
    place.put(".git/config", "old");
    place.link("notes", ".git");
    place.link("nothing", "absent");
    assert_eq!(
        place
            .workspace
            .read_file(&place.path("notes/config"), 10)
            .unwrap()
            .bytes,
        b"old"
    );
    let real = place
        .workspace
        .resolve_links(&place.path("notes/hooks/new"))
        .unwrap();
    assert_eq!(real, place.path(".git/hooks/new"));
    assert_eq!(
        (
            place.path("notes/hooks/new").protection_reason(),
            real.protection_reason()
        ),
        (None, Some("git's own files"))
    );
    let error = place
        .workspace
        .write_file(&place.path("notes/config"), b"x", WritePrecondition::Any)
        .unwrap_err();
    assert!(
        error.to_string().contains("its real path is `.git/config`"),
        "{error}"
    );
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&place.path("nothing"), b"x", WritePrecondition::Any)
        ),
        "LinkDangling"
    );
    assert_eq!(
        std::fs::read_to_string(place.inner(".git/config")).unwrap(),
        "old"
    );
}

#[test]
fn a_root_behind_a_link_can_be_named_both_ways() {
    let place = Place::new();
    place.put("a", "x");
    let link = place.outside.path().join("link");
    std::os::unix::fs::symlink(place.root.path(), &link).unwrap();
    let workspace = Workspace::open(&link).unwrap();
    for text in [
        link.join("a"),
        place.root.path().canonicalize().unwrap().join("a"),
    ] {
        let path = workspace.parse_path(text.to_str().unwrap()).unwrap();
        assert_eq!(workspace.read_file(&path, 10).unwrap().bytes, b"x");
    }
    assert_eq!(kind(workspace.parse_path("/etc/passwd")), "PathOutside");
    assert_eq!(kind(Workspace::open(&place.inner("a"))), "NotAFolder");
    assert_eq!(kind(Workspace::open(&place.inner("absent"))), "Missing");
}

#[test]
fn writes_replace_and_keep_the_mode() {
    let place = Place::new();
    let path = place.path("deep/down/run.sh");
    place
        .workspace
        .write_file(&path, b"one", WritePrecondition::Missing)
        .unwrap();
    let inner = place.inner("deep/down/run.sh");
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o751)).unwrap();
    std::fs::hard_link(&inner, place.outside.path().join("other")).unwrap();
    let version = place
        .workspace
        .write_file(&path, b"two", WritePrecondition::Any)
        .unwrap();
    assert_eq!(
        version,
        place.workspace.read_file(&path, 0).unwrap().version
    );
    assert_eq!(std::fs::read(&inner).unwrap(), b"two");
    assert_eq!(std::fs::metadata(&inner).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(
        std::fs::read(place.outside.path().join("other")).unwrap(),
        b"one"
    );
    assert_eq!(
        std::fs::read_dir(place.inner("deep/down")).unwrap().count(),
        1
    );
}

#[test]
fn write_preconditions_are_checked() {
    let place = Place::new();
    let path = place.path("a");
    assert_eq!(
        kind(place.workspace.write_file(
            &path,
            b"x",
            WritePrecondition::Version(FileVersion::of_content(b"x"))
        )),
        "Missing"
    );
    let first = place
        .workspace
        .write_file(&path, b"one", WritePrecondition::Missing)
        .unwrap();
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&path, b"two", WritePrecondition::Missing)
        ),
        "Exists"
    );
    place.put("a", "by someone else");
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&path, b"two", WritePrecondition::Version(first))
        ),
        "Stale"
    );
    assert_eq!(std::fs::read(place.inner("a")).unwrap(), b"by someone else");
    let now = place.workspace.read_file(&path, 100).unwrap().version;
    place
        .workspace
        .write_file(&path, b"two", WritePrecondition::Version(now))
        .unwrap();
    assert_eq!(std::fs::read_dir(place.root.path()).unwrap().count(), 1);
}

#[test]
fn temporary_files_of_dead_processes_are_removed() {
    let place = Place::new();
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let gone = format!(".sabir-tmp-{}-0", dead.id());
    let alive = format!(".sabir-tmp-{}-9999999", std::process::id());
    place.put(&gone, "");
    place.put(&alive, "");
    place
        .workspace
        .write_file(&place.path("a"), b"x", WritePrecondition::Any)
        .unwrap();
    assert!(!place.inner(&gone).exists());
    assert!(place.inner(&alive).exists());
}

#[test]
fn readers_see_old_or_new_and_never_a_part() {
    let place = Place::new();
    let old = vec![b'a'; 200_000];
    let new = vec![b'b'; 100_000];
    place.put("a", &old);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = place.path("a");
            for _ in 0..100 {
                place
                    .workspace
                    .write_file(&path, &new, WritePrecondition::Any)
                    .unwrap();
                place
                    .workspace
                    .write_file(&path, &old, WritePrecondition::Any)
                    .unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let found = std::fs::read(place.inner("a")).unwrap();
            assert!(found == old || found == new, "{} bytes", found.len());
        }
    });
}

#[test]
fn a_removed_root_is_an_error_and_no_panic() {
    let place = Place::new();
    std::fs::remove_dir_all(place.root.path()).unwrap();
    assert_eq!(
        kind(place.workspace.read_file(&place.path("a"), 10)),
        "Missing"
    );
    assert_eq!(
        kind(
            place
                .workspace
                .write_file(&place.path("a"), b"x", WritePrecondition::Any)
        ),
        "Missing"
    );
    assert!(place.workspace.exists(&WorkPath::root()).is_ok());
}
