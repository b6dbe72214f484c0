//! Tests sets of changes, and the restoration if one of them fails.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sabir_workspace::{FileChange, FileVersion, WritePrecondition};

use crate::files::kind;
use crate::{Place, skipped};

/// Describes everything below a folder: mode, inode, and content or target; without times, which
/// change for folders.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<String, (u32, u64, String)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let content = match found.file_type() {
                kind if kind.is_dir() => {
                    folders.push(path.clone());
                    "folder".to_owned()
                }
                kind if kind.is_symlink() => {
                    std::fs::read_link(&path).unwrap().display().to_string()
                }
                kind if kind.is_file() => {
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
                }
                _ => "special".to_owned(),
            };
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            all.insert(name, (found.mode(), found.ino(), content));
        }
    }
    all
}

fn place() -> Place {
    let place = Place::new();
    for name in ["a", "b", "deep/c", "locked", "script"] {
        place.put(name, format!("old {name}"));
    }
    std::fs::create_dir(place.inner("folder")).unwrap();
    place.link("link", "deep");
    let mode = |name: &str, mode| {
        std::fs::set_permissions(place.inner(name), PermissionsExt::from_mode(mode)).unwrap()
    };
    mode("locked", 0o444);
    mode("script", 0o755);
    place
}

/// Parses changes: `PATH=CONTENT`, `-PATH`, `FROM>PATH`; `PATH+CONTENT` expects no file,
/// `PATH~CONTENT` an old version.
fn changes(place: &Place, texts: &[&str]) -> Vec<FileChange> {
    let mut all = Vec::new();
    for text in texts {
        let at = text.find(['=', '>', '+', '~']).unwrap_or(text.len());
        let (path, rest) = text.split_at(at);
        let content = rest.get(1..).unwrap_or_default();
        let write = FileChange::write;
        let bytes = content.as_bytes().to_vec();
        match rest.chars().next() {
            Some('=') => all.push(write(place.path(path), bytes, WritePrecondition::Any)),
            Some('+') => all.push(write(place.path(path), bytes, WritePrecondition::Missing)),
            Some('~') => all.push(write(
                place.path(path),
                bytes,
                WritePrecondition::Version(FileVersion::of_content(b"older")),
            )),
            Some(_) => {
                let old = place.workspace.read_file(&place.path(path), 100).unwrap();
                all.extend(FileChange::move_file(
                    place.path(path),
                    WritePrecondition::Version(old.version),
                    place.path(content),
                    old.bytes,
                ));
            }
            None => all.push(FileChange::delete(
                place.path(path.trim_start_matches('-')),
                WritePrecondition::Any,
            )),
        }
    }
    all
}

/// Applies changes and checks the effect: each name with a new content or mode, `-` for removed
/// ones.
#[track_caller]
fn check(texts: &[&str], expected: &str) {
    let place = place();
    let before = snapshot(place.root.path());
    place
        .workspace
        .apply_changes(&changes(&place, texts))
        .unwrap();
    let after = snapshot(place.root.path());
    let mut shown = Vec::new();
    for (name, (mode, _, content)) in &after {
        if before.get(name).is_none_or(|(_, _, old)| old != content) {
            shown.push(format!("{name} {:o} {content}", mode & 0o7777));
        }
    }
    shown.extend(
        before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .map(|name| format!("-{name}")),
    );
    assert_eq!(shown.join(", "), expected);
}

/// Checks that changes fail with these words, and that everything is as before, down to the same
/// inodes.
#[track_caller]
fn check_refused(texts: &[&str], expected: &str, words: &str) {
    let place = place();
    let before = snapshot(place.root.path());
    let error = place
        .workspace
        .apply_changes(&changes(&place, texts))
        .unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(kind::<()>(Err(error)), expected);
    assert_eq!(snapshot(place.root.path()), before);
}

#[test]
fn changes_are_made_together() {
    check(
        &["a=new a", "deep/c=new c"],
        "a 644 new a, deep/c 644 new c",
    );
    check(
        &["a=new a", "-b", "new/folder/x+x"],
        "a 644 new a, new 755 folder, new/folder 755 folder, new/folder/x 644 x, -b",
    );
    check(
        &["script>bin/script"],
        "bin 755 folder, bin/script 755 old script, -script",
    );
    // The folder stays.
    check(&["-deep/c"], "-deep/c");
    check(&["script=#!"], "script 755 #!");
    check(&[], "");
}

#[test]
fn a_failed_change_changes_nothing() {
    check_refused(&["a=x", "b~x"], "Stale", "`b` changed on disk");
    check_refused(&["a=x", "new/y=x", "b+x"], "Exists", "`b` exists already");
    check_refused(&["a=x", "-absent"], "Missing", "`absent` does not exist");
    check_refused(&["a=x", "absent~x"], "Missing", "`absent` does not exist");
    check_refused(&["a=x", "folder=x"], "NotAFile", "`folder` is a folder");
    check_refused(&["a=x", "-folder"], "NotAFile", "`folder` is a folder");
    check_refused(
        &["a=x", "new/deep/y=x", "b/below=x"],
        "NotAFolder",
        "`b/below`",
    );
    check_refused(
        &["a=x", "link/c=x"],
        "LinkInPath",
        "its real path is `deep/c`",
    );
    check_refused(&["a=x", "locked=x"], "ReadOnly", "`locked` is read-only");
    check_refused(&["a=x", "-locked"], "ReadOnly", "`locked` is read-only");
    check_refused(&["a=x", "a=y"], "ConflictingChanges", "`a` and `a`");
    check_refused(
        &["-a", "a/b=y", "b=x"],
        "ConflictingChanges",
        "`a/b` and `a`",
    );
    check_refused(
        &["new=x", "new/y=x"],
        "ConflictingChanges",
        "`new/y` and `new`",
    );
    check_refused(&["a=x", ".=x"], "ConflictingChanges", "`a` and `.`");
    check_refused(&[".=x"], "NotAFile", "`.` is a folder");
    check_refused(&["script>b"], "Exists", "`b` exists already");
}

#[test]
fn versions_are_in_the_order_of_the_changes() {
    let place = place();
    let all = changes(&place, &["a=one", "-b", "deep/c=two"]);
    let versions = place.workspace.apply_changes(&all).unwrap();
    assert_eq!(
        versions,
        [
            Some(FileVersion::of_content(b"one")),
            None,
            Some(FileVersion::of_content(b"two"))
        ]
    );
    assert_eq!(
        place
            .workspace
            .read_file(&place.path("a"), 10)
            .unwrap()
            .version,
        FileVersion::of_content(b"one")
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn many_files_need_few_handles() {
    let place = Place::new();
    let all: Vec<FileChange> = (0..3000)
        .map(|number| {
            FileChange::write(
                place.path(&format!("d{}/{number}", number % 7)),
                vec![b'x'; 10],
                WritePrecondition::Missing,
            )
        })
        .collect();
    assert_eq!(place.workspace.apply_changes(&all).unwrap().len(), 3000);
    let all: Vec<FileChange> = all
        .into_iter()
        .map(|change| FileChange::delete(change.path, WritePrecondition::Any))
        .collect();
    place.workspace.apply_changes(&all).unwrap();
    assert!(
        snapshot(place.root.path())
            .values()
            .all(|(_, _, content)| content == "folder")
    );
}

#[test]
fn files_are_deleted() {
    let place = place();
    let path = place.path("deep/c");
    assert_eq!(
        kind(place.workspace.delete_file(
            &path,
            WritePrecondition::Version(FileVersion::of_content(b"other"))
        )),
        "Stale"
    );
    place
        .workspace
        .delete_file(
            &path,
            WritePrecondition::Version(FileVersion::of_content(b"old deep/c")),
        )
        .unwrap();
    assert_eq!(
        kind(place.workspace.delete_file(&path, WritePrecondition::Any)),
        "Missing"
    );
    assert_eq!(std::fs::read_dir(place.inner("deep")).unwrap().count(), 0);
    assert_eq!(
        kind(
            place
                .workspace
                .delete_file(&place.path("link"), WritePrecondition::Any)
        ),
        "LinkInPath"
    );
}

/// Attributes are kept if the disk supports them; a disk without them is no reason to fail.
#[test]
fn attributes_of_the_user_pass_to_the_new_file() {
    let place = place();
    let set = |name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(place.inner(name), "user.note", b"kept", flags)
    };
    if let Err(error) = set("script") {
        skipped(&format!("no extended attributes here: {error}"));
        return;
    }
    let note = |name: &str| {
        let mut value = [0; 16];
        rustix::fs::getxattr(place.inner(name), "user.note", &mut value[..])
            .map(|count| value[..count].to_vec())
    };
    place
        .workspace
        .write_file(&place.path("script"), b"new", WritePrecondition::Any)
        .unwrap();
    assert_eq!(note("script").unwrap(), b"kept");
    place
        .workspace
        .apply_changes(&changes(&place, &["script>moved", "a=x"]))
        .unwrap();
    assert_eq!(note("moved").unwrap(), b"kept");
    assert!(note("a").is_err());
}

/// Two writers each read, append a word and write against the version they read: no word is lost.
#[test]
fn two_writers_lose_nothing() {
    let place = Place::quick();
    place.put("a", "");
    let write = |letter: char| {
        let workspace = sabir_workspace::Workspace::open(place.root.path()).unwrap();
        let path = place.path("a");
        let mut written = Vec::new();
        let mut left_behind = false;
        for number in 0..1000 {
            let Ok(old) = workspace.read_file(&path, 1 << 20) else {
                continue;
            };
            let word = format!("{letter}{number} ");
            let new = [old.bytes, word.clone().into_bytes()].concat();
            match workspace.write_file(&path, &new, WritePrecondition::Version(old.version)) {
                Ok(_) => written.push(word),
                // Another writer interfered; the restoring one noticed a foreign file and
                // reported it.
                Err(error) => left_behind |= kind::<()>(Err(error)) == "NotRestored",
            }
        }
        (written, left_behind)
    };
    let ((first, lost), (second, lost_too)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| write('b'));
        (write('a'), other.join().unwrap())
    });
    let content = std::fs::read_to_string(place.inner("a")).unwrap();
    let missing: Vec<&String> = first
        .iter()
        .chain(&second)
        .filter(|word| !content.contains(*word))
        .collect();
    assert!(!first.is_empty() && !second.is_empty());
    assert!(missing.is_empty() || lost || lost_too, "{missing:?}");
}
