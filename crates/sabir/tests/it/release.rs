//! Tests the packages that `release/package.py` makes: their files, their checksums, and that npm and
//! pip install them. A small script that starts the tested binary stands for the program.
//!
//! `release/build` and `release/test` do the same with real programs for all targets, which takes
//! many minutes; see docs/release.md.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::world::{skipped, stderr, stdout};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGETS: [&str; 3] = [
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "aarch64-apple-darwin",
];

/// Returns true if the program runs; otherwise says that a test is skipped.
fn has_program(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        skipped(&format!("`{program} {}` does not run", arguments.join(" ")));
    }
    found
}

fn has_python() -> bool {
    // The module reads manifests, and is a part of Python from 3.11 on.
    has_program("python3", &["-c", "import tomllib, venv, ensurepip"])
}

/// Packs a script that starts the tested binary, for these targets.
fn package(folder: &Path, targets: &[&str]) -> Output {
    let program = folder.join("program");
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_sabir"));
    std::fs::write(&program, script).unwrap();
    let extras = folder.join("extras");
    for (kind, name) in [("completions", "sabir.bash"), ("man", "sabir.1")] {
        std::fs::create_dir_all(extras.join(kind)).unwrap();
        std::fs::write(extras.join(kind).join(name), name).unwrap();
    }
    Command::new("python3")
        .arg(format!("{ROOT}/release/package.py"))
        .arg("--out")
        .arg(folder.join("out"))
        .arg("--extras")
        .arg(extras)
        .args(
            targets
                .iter()
                .map(|target| format!("{target}={}", program.display())),
        )
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap()
}

fn package_here(folder: &Path) {
    let target = match std::env::consts::ARCH {
        "aarch64" => TARGETS[1],
        _ => TARGETS[0],
    };
    let output = package(folder, &[target]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Returns all files below a folder with their content, sorted.
fn read_all(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_path_buf();
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn the_same_program_gives_the_same_packages() {
    if !has_python() {
        return;
    }
    let packed = TARGETS.map(|_| tempfile::tempdir().unwrap());
    for folder in &packed[..2] {
        let output = package(folder.path(), &TARGETS);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let files = read_all(&packed[0].path().join("out"));
    assert_eq!(files, read_all(&packed[1].path().join("out")));
    let names: Vec<String> = files
        .iter()
        .map(|(name, _)| name.display().to_string())
        .collect();
    for name in [
        format!("sabir_{VERSION}_amd64.deb"),
        format!("sabir_{VERSION}_arm64.deb"),
        format!("sabir-{VERSION}-npm.tgz"),
        format!("sabir-{VERSION}-aarch64-apple-darwin.tar.gz"),
        format!("sabir-{VERSION}-py3-none-macosx_11_0_arm64.whl"),
        "container/amd64/sabir".to_owned(),
        "container/arm64/sabir".to_owned(),
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    check_sums(&packed[0].path().join("out"));
    check_container(&packed[0].path().join("out/container"));
    check_sboms(&packed[0].path().join("out"));
    if has_program("dpkg-deb", &["--version"]) {
        check_deb(
            &packed[0]
                .path()
                .join(format!("out/sabir_{VERSION}_amd64.deb")),
        );
    }
    // A target without packages is refused, and so is a folder with old ones.
    let output = package(packed[2].path(), &["riscv64gc-unknown-linux-gnu"]);
    assert!(
        !output.status.success() && stderr(&output).contains("known are x86_64-unknown-linux-musl")
    );
    let output = package(packed[0].path(), &TARGETS);
    assert!(!output.status.success() && stderr(&output).contains("is not empty"));
}

/// The checksums are those of `sha256sum`, and every file at the top has one.
fn check_sums(folder: &Path) {
    let output = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let files = std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_file());
    assert_eq!(stdout(&output).lines().count() + 1, files.count());
}

/// Every file that the Containerfile copies is beside it, for each processor.
fn check_container(folder: &Path) {
    let text = std::fs::read_to_string(folder.join("Containerfile")).unwrap();
    let mut copied = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let words: Vec<&str> = line.split(' ').collect();
        for source in &words[..words.len() - 1] {
            for processor in ["amd64", "arm64"] {
                let path = folder.join(source.replace("${TARGETARCH}", processor));
                assert!(path.is_file(), "{line}: {} is not there", path.display());
                copied += 1;
            }
        }
    }
    assert!(copied >= 6, "{text}");
    assert!(
        text.contains("ENTRYPOINT [\"/usr/local/bin/sabir\"]"),
        "{text}"
    );
    let mode = folder
        .join("amd64/sabir")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
}

/// The lists name what each target is built from, and nothing else.
fn check_sboms(folder: &Path) {
    for target in TARGETS {
        let text =
            std::fs::read_to_string(folder.join(format!("sabir-{VERSION}-{target}.cdx.json")))
                .unwrap();
        let bom: Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = bom["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|component| component["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&"tokio") && names.contains(&"sabir-session"));
        assert!(!names.contains(&"proptest") && !names.contains(&"sabir-simulate"));
        assert_eq!(names.contains(&"landlock"), target.contains("linux"));
        let foreign = bom["components"].as_array().unwrap().iter();
        for component in
            foreign.filter(|component| !component["name"].as_str().unwrap().starts_with("sabir"))
        {
            assert!(
                component["hashes"][0]["content"].is_string() && component["licenses"].is_array(),
                "{component}"
            );
        }
    }
}

fn check_deb(file: &Path) {
    let output = Command::new("dpkg-deb")
        .arg("--contents")
        .arg(file)
        .output()
        .unwrap();
    let contents = stdout(&output);
    for path in [
        "-rwxr-xr-x root/root",
        "./usr/bin/sabir",
        "./usr/share/doc/sabir/copyright",
        "./usr/share/bash-completion/completions/sabir",
        "./usr/share/man/man1/sabir.1.gz",
    ] {
        assert!(contents.contains(path), "{path}: {contents}");
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn npm_installs_the_package_from_its_file() {
    if !has_python() || !has_program("npm", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    package_here(folder.path());
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder.path())
            .env("npm_config_update_notifier", "false")
            .current_dir(&work)
            .output()
            .unwrap()
    };
    let file = folder.path().join(format!("out/sabir-{VERSION}-npm.tgz"));
    let output = run(
        "npm",
        &["install", "--offline", "--no-audit", file.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let output = run("npx", &["--no-install", "sabir", "--version"]);
    assert_eq!(
        stdout(&output),
        format!("sabir {VERSION}\n"),
        "{}",
        stderr(&output)
    );
    let output = run("npx", &["--no-install", "sabir", "--no-such-option"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn pip_installs_the_wheel_from_its_file() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    package_here(folder.path());
    let run = |program: &Path, arguments: &[&str]| {
        Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder.path())
            .output()
            .unwrap()
    };
    let venv = folder.path().join("venv");
    let output = run(
        Path::new("python3"),
        &["-m", "venv", venv.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let wheel = read_all(&folder.path().join("out"))
        .into_iter()
        .map(|(name, _)| folder.path().join("out").join(name))
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
        .unwrap();
    let output = run(
        &venv.join("bin/pip"),
        &["install", "--no-index", wheel.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = format!("sabir {VERSION}\n");
    let output = run(&venv.join("bin/sabir"), &["--version"]);
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    let output = run(&venv.join("bin/python"), &["-m", "sabir", "--version"]);
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}
