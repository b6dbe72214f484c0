//! Compiles and loads a library between the binary and the C library (`preload.c`), which makes calls fail, be slow or short, and clocks wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const SOURCE: &str = include_str!("preload.c");

/// Returns the path of the library, compiled once; prints a message and returns `None` if it cannot be compiled.
pub(super) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, library) = (folder.join("preload.c"), folder.join("preload.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .stdin(Stdio::null());
        let compiled = cfg!(target_env = "gnu")
            && compiler
                .output()
                .is_ok_and(|output| output.status.success());
        compiled.then_some(library)
    });
    if library.is_none() {
        crate::world::skipped("no C compiler, or another C library than GNU's");
    }
    library.as_deref()
}

/// Adds the library to the environment of a command, with these settings.
pub(super) fn with<'a>(
    command: &'a mut Command,
    library: &Path,
    wishes: &[(&str, &str)],
) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library)
        .envs(wishes.iter().copied())
}
