//! Tests what a confined command can do, by real system calls, in both levels, as root and as a
//! normal user.
//!
//! A row is one attempt with the expected verdict in each level; `Verdict::Uncovered` marks what a
//! level is known not to stop, and fails if it does. Safe attempts are also made without a sandbox,
//! where they must be allowed: a probe that is denied everywhere would prove nothing.

mod attempts;
mod doors;
mod levels;
mod protection;
mod trees;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::commands::PROBE;

/// The id of a user that owns nothing.
const STRANGER: u32 = 54_321;

/// The user that runs the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// The user that runs the tests.
    Me,
    Stranger,
}

/// A workspace, a folder outside of it, and hidden secrets, all owned by the user that runs the
/// agent.
struct Scene {
    who: Who,
    base: TempDir,
    helper: PathBuf,
}

/// The output of the helper.
struct Told {
    end: String,
    level: String,
    note: String,
    output: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} | {} | {} | {}",
            self.end, self.level, self.note, self.output
        )
    }
}

impl Scene {
    fn new(who: Who) -> Self {
        // A name that contains parts of the attempts' placeholders, which must not be replaced in
        // it.
        let base = tempfile::Builder::new()
            .prefix("OUT-WS-HOME-")
            .tempdir()
            .unwrap();
        let helper = base.path().join("helper");
        fs::hard_link(PROBE, &helper)
            .or_else(|_| fs::copy(PROBE, &helper).map(drop))
            .unwrap();
        let scene = Self { who, base, helper };
        for folder in ["ws", "out", "home/.ssh", "doors"] {
            fs::create_dir_all(scene.at(folder)).unwrap();
        }
        for (file, text) in [
            ("out/file", "outside\n"),
            ("home/.ssh/id", "secret\n"),
            ("ws/inside", "inside\n"),
        ] {
            fs::write(scene.at(file), text).unwrap();
        }
        fs::set_permissions(scene.base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(scene.at("out"), scene.at("ws/link")).unwrap();
        scene.give(scene.base.path());
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Gives a folder with everything below to the user that runs the agent, except the helper.
    fn give(&self, path: &Path) {
        if self.who == Who::Me || path == self.helper {
            return;
        }
        chown(path, Some(STRANGER), Some(STRANGER))
            .or_else(|_| std::os::unix::fs::lchown(path, Some(STRANGER), None))
            .unwrap();
        if fs::symlink_metadata(path).unwrap().is_dir() {
            fs::read_dir(path)
                .unwrap()
                .flatten()
                .for_each(|entry| self.give(&entry.path()));
        }
    }

    /// Creates a process of the user that runs the agent.
    fn process(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.helper);
        command.args(args);
        if self.who == Who::Stranger {
            command.uid(STRANGER).gid(STRANGER);
        }
        command
    }

    /// Runs a command in the workspace.
    fn run(&self, level: &str, text: &str) -> Told {
        self.run_with(&[], level, "denied", text)
    }

    fn run_with(&self, before: &[&str], level: &str, network: &str, text: &str) -> Told {
        let shown =
            std::env::join_paths([self.at("out"), self.at("doors"), self.at("home")]).unwrap();
        let hidden = self.at("home/.ssh").into_os_string();
        self.run_seeing(before, (level, network), (shown, hidden), text)
    }

    fn run_seeing(
        &self,
        before: &[&str],
        (level, network): (&str, &str),
        (shown, hidden): (OsString, OsString),
        text: &str,
    ) -> Told {
        let mut command = self.process(before);
        command
            .args(["confined", level, network])
            .arg(self.at("ws"))
            .arg("20000")
            .args([shown, hidden])
            .arg(text);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let mut lines = said
            .splitn(4, '\n')
            .map(|line| line.trim_end_matches('\n').to_owned());
        let mut line = || lines.next().unwrap_or_default();
        Told {
            end: line(),
            level: line(),
            note: line(),
            output: line(),
        }
    }

    /// Makes one attempt in a sandbox, or without one at level `off`.
    fn attempt(&self, level: &str, network: &str, words: &[String]) -> Told {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let text = format!("exec '{}' try {}", self.helper.display(), words.join(" "));
        self.run_with(&[], level, network, &text)
    }
}

/// Returns every combination of level and user that is available here; the others are reported once.
fn worlds() -> &'static [(&'static str, Who)] {
    static WORLDS: OnceLock<Vec<(&'static str, Who)>> = OnceLock::new();
    WORLDS.get_or_init(|| {
        let root = fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        let users: &[Who] = if root {
            &[Who::Me, Who::Stranger]
        } else {
            &[Who::Me]
        };
        if !root {
            crate::skipped("another user (only root can become one)");
        }
        let mut worlds = Vec::new();
        for &who in users {
            for level in ["1", "2"] {
                let told = Scene::new(who).run(level, "true");
                match told.end == "Exited(0) 0" {
                    true => worlds.push((level, who)),
                    false => crate::skipped(&format!("level {level} as {who:?} ({told})")),
                }
            }
        }
        assert!(
            !worlds.is_empty(),
            "no sandbox can be had on this machine at all"
        );
        worlds
    })
}
