//! Attacks of commands that already run, at every level of the sandbox, as root and as another user: the files that they leave
//! must not make a program run outside, and they cannot reach anything outside.
//!
//! Each attack is also made without a sandbox, where it has to succeed: one that never works proves nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::world::{code, skipped, stderr, stdout};

/// The id of a user that owns nothing.
const STRANGER: u32 = 54_321;
const LEVELS: [&str; 3] = ["off", "1", "2"];
/// Makes itself known when git runs it.
const EVIL: &str =
    "printf '#!/bin/sh\\ntouch \"%s/PWNED\"\\n' \"$BASE\" > evil.sh; chmod +x evil.sh; ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Me,
    Stranger,
}

/// A user's machine with a workspace, owned by them.
struct Machine {
    user: User,
    base: TempDir,
}

impl Machine {
    fn new(user: User) -> Self {
        let base = TempDir::new_in(sabir_testkit::find_temp_base()).unwrap();
        for folder in ["home", "work"] {
            fs::create_dir(base.path().join(folder)).unwrap();
        }
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let machine = Self { user, base };
        for path in ["", "home", "work"] {
            machine.give(&machine.at(path));
        }
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn give(&self, path: &Path) {
        if self.user == User::Me {
            return;
        }
        let given = if path.is_symlink() {
            lchown(path, Some(STRANGER), Some(STRANGER))
        } else {
            chown(path, Some(STRANGER), Some(STRANGER))
        };
        given.unwrap();
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.at("home"))
            .env("BASE", self.base.path())
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@b")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@b")
            .current_dir(self.at("work"))
            .stdin(Stdio::null());
        if self.user == User::Stranger {
            command.uid(STRANGER).gid(STRANGER);
        }
        command.output().unwrap()
    }

    /// Runs a command of the user outside of the sandbox.
    fn outside(&self, text: &str) -> Output {
        self.command("/bin/sh", &["-c", text])
    }

    fn confined(&self, level: &str, text: &str) -> Output {
        let base = format!("BASE='{}'; {text}", self.base.path().display());
        let arguments = ["sandbox", "--level", level, "--", base.as_str()];
        self.command(env!("CARGO_BIN_EXE_sabir"), &arguments)
    }

    fn is_hurt(&self) -> bool {
        self.at("PWNED").exists()
    }
}

/// Returns the users and sandbox levels that this machine supports.
fn worlds() -> Vec<(User, &'static str)> {
    let mut worlds = Vec::new();
    for user in [User::Me, User::Stranger] {
        if user == User::Stranger && !rustix_is_root() {
            skipped("only root can become another user");
            continue;
        }
        for level in LEVELS {
            let machine = Machine::new(user);
            let ran = machine.confined(level, "echo works");
            if stdout(&ran) == "works\n" {
                worlds.push((user, level));
            } else {
                skipped(&format!("no level {level} as {user:?}: {}", stderr(&ran)));
            }
        }
    }
    worlds
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// An attack: the user's commands before it, the command in the sandbox, and the user's commands afterwards.
struct Attack {
    name: &'static str,
    before: &'static str,
    inside: &'static str,
    after: &'static str,
}

const GIT: &[Attack] = &[
    Attack {
        name: "a hook",
        before: "",
        inside: "cp evil.sh .git/hooks/pre-commit",
        after: "git commit -qm x --allow-empty",
    },
    Attack {
        name: "a monitor in the configuration",
        before: "",
        inside: "git config core.fsmonitor ./evil.sh",
        after: "git status",
    },
    Attack {
        name: "a common folder with another configuration",
        before: "",
        inside: "mkdir evil; cp -r .git/. evil/; rm -f evil/commondir; chmod -R u+w evil; \
                 printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = ./evil.sh\\n' > evil/new; mv -f evil/new evil/config; \
                 rm -f .git/commondir; echo ../evil > .git/commondir",
        after: "git status",
    },
    Attack {
        name: "the configuration of the work tree",
        before: "git config extensions.worktreeConfig true",
        inside: "rm -f .git/config.worktree; printf '[core]\\nfsmonitor = ./evil.sh\\n' > .git/config.worktree",
        after: "git status",
    },
    Attack {
        name: "a folder of hooks in the workspace",
        before: "git config core.hooksPath tools/hooks; mkdir -p tools/hooks",
        inside: "cp evil.sh tools/hooks/pre-commit",
        after: "git commit -qm x --allow-empty",
    },
    Attack {
        name: "a folder of hooks that was not there, from the user's configuration",
        before: "git config --global core.hooksPath .hooks",
        inside: "mkdir .hooks; cp evil.sh .hooks/pre-commit",
        after: "git commit -qm x --allow-empty",
    },
    Attack {
        name: "an included file",
        before: "git config include.path ../shared.conf",
        inside: "rm -f shared.conf; printf '[core]\\nfsmonitor = ./evil.sh\\n' > shared.conf",
        after: "git status",
    },
    Attack {
        name: "a file included on one branch",
        before: "git config includeIf.onbranch:main.path ../branch.conf; echo > branch.conf",
        inside: "printf '[core]\\nfsmonitor = ./evil.sh\\n' > branch.conf",
        after: "git status",
    },
    Attack {
        name: "attributes with a filter of the user",
        before: "git config filter.f.clean ./evil.sh",
        inside: "rm -f .git/info/attributes; echo '* filter=f' > .git/info/attributes",
        after: "echo more >> tracked; git add tracked",
    },
    Attack {
        name: "a hook of a submodule",
        before: "mkdir -p .git/modules/a; git init -q sub; mv sub/.git .git/modules/a/b; \
                 echo 'gitdir: ../.git/modules/a/b' > sub/.git; git --git-dir .git/modules/a/b config core.worktree ../../../../sub",
        inside: "cp evil.sh .git/modules/a/b/hooks/pre-commit",
        after: "git -C sub commit -qm x --allow-empty",
    },
    Attack {
        name: "the configuration of a submodule",
        before: "mkdir -p .git/modules/a; git init -q sub; mv sub/.git .git/modules/a/b; \
                 echo 'gitdir: ../.git/modules/a/b' > sub/.git; git --git-dir .git/modules/a/b config core.worktree ../../../../sub",
        inside: "cp evil.sh sub; git --git-dir .git/modules/a/b config core.fsmonitor ./evil.sh",
        after: "git -C sub status",
    },
    Attack {
        name: "the common folder of another work tree",
        before: "git worktree add -q ../tree",
        inside: "mkdir evil; cp -r .git/. evil/; rm -f evil/commondir; chmod -R u+w evil; \
                 printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = \"%s/evil.sh\"\\n' \"$PWD\" > evil/new; \
                 mv -f evil/new evil/config; echo ../../../evil > .git/worktrees/tree/commondir",
        after: "git -C ../tree status",
    },
    Attack {
        name: "the whole folder exchanged",
        before: "",
        inside: "cp -r .git other; chmod -R u+w other; printf '[core]\\nfsmonitor = ./evil.sh\\n' > other/new; mv -f other/new other/config; \
                 mv .git old && mv other .git",
        after: "git status",
    },
    Attack {
        name: "a new repository that the index links to",
        before: "",
        inside: "git init -q sub; git -C sub -c user.name=a -c user.email=a commit -q --allow-empty -m s; \
                 git -C sub config core.fsmonitor ../evil.sh; git add sub",
        after: "git status",
    },
    Attack {
        name: "a linked repository in a folder, by a pointer to plain files",
        before: "",
        inside: "mkdir x; git init -q x/sub; git -C x/sub -c user.name=a -c user.email=a commit -q --allow-empty -m s; git -C x/sub config core.fsmonitor ../../evil.sh; \
                 git add x; mv x/sub/.git plain; echo 'gitdir: ../../plain' > x/sub/.git",
        after: "git status",
    },
    Attack {
        name: "a link in an index that is split",
        before: "",
        inside: "git init -q sub; git -C sub -c user.name=a -c user.email=a commit -q --allow-empty -m s; \
                 git -C sub config core.fsmonitor ../evil.sh; git add sub; \
                 git update-index --split-index",
        after: "git status",
    },
    Attack {
        name: "the pointer of a submodule",
        before: "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; \
                 git -c protocol.file.allow=always submodule --quiet add ../sub s; git commit -qm s",
        inside: "cp -r .git/modules/s other; printf '[core]\\nrepositoryformatversion = 0\\nfsmonitor = ../evil.sh\\nworktree = ../s\\n' \
                 > other/new; mv -f other/new other/config; rm -f s/.git; echo 'gitdir: ../other' > s/.git",
        after: "git status",
    },
    Attack {
        name: "a step of a rebase that the user has begun",
        before: "for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -qm $i; done; \
                 GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2",
        inside: "printf 'exec ./evil.sh\\n' >> .git/rebase-merge/git-rebase-todo",
        after: "GIT_EDITOR=true git rebase --continue",
    },
    Attack {
        name: "a program of the work tree that the configuration names",
        before: "git config core.fsmonitor ./monitor.sh; printf '#!/bin/sh\\n' > monitor.sh; chmod +x monitor.sh",
        inside: "rm -f monitor.sh; cp evil.sh monitor.sh",
        after: "git status",
    },
    Attack {
        name: "a missing program that the configuration names",
        before: "git config core.fsmonitor ./monitor.sh",
        inside: "cp evil.sh monitor.sh",
        after: "git status",
    },
    Attack {
        name: "attributes that choose a driver of the user",
        before: "git config core.attributesFile attrs; git config diff.x.textconv ./conv.sh; cp /bin/cat conv.sh",
        inside: "echo '* diff=x' > attrs; rm -f conv.sh; cp evil.sh conv.sh",
        after: "echo more >> tracked; git diff",
    },
    Attack {
        name: "a link to a folder of hooks",
        before: "rm -rf .git/hooks; mkdir hooks; ln -s ../hooks .git/hooks",
        inside: "cp evil.sh hooks/pre-commit",
        after: "git commit -qm x --allow-empty",
    },
    Attack {
        name: "a link to the configuration",
        before: "mv .git/config shared.conf; ln -s ../shared.conf .git/config",
        inside: "git config -f shared.conf core.fsmonitor ./evil.sh",
        after: "git status",
    },
    Attack {
        name: "the workspace itself as a repository",
        before: "",
        inside: "rm .git/HEAD; git init -q --bare x; mv x/* .; \
                 printf '[core]\\nrepositoryformatversion = 0\\nworktree = .\\nfsmonitor = ./evil.sh\\n' > config",
        after: "git status",
    },
];

/// Each attack at one level as one user; the levels and users take turns.
#[test]
fn git_runs_nothing_that_a_command_left() {
    let worlds = worlds();
    for (attack, &(user, level)) in GIT.iter().zip(worlds.iter().cycle()) {
        attack_through_git(user, level, attack);
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn git_runs_nothing_that_a_command_left_at_any_level() {
    for (user, level) in worlds() {
        for attack in GIT {
            attack_through_git(user, level, attack);
        }
    }
}

fn attack_through_git(user: User, level: &str, attack: &Attack) {
    let machine = Machine::new(user);
    let made = machine.outside(&format!(
                "set -e; {EVIL} git init -q -b main .; echo x > tracked; git add tracked; git commit -qm first; {}",
                attack.before
            ));
    assert!(made.status.success(), "{}: {}", attack.name, stderr(&made));
    let ran = machine.confined(level, attack.inside);
    assert!(
        !machine.is_hurt(),
        "{}: the attack itself did it",
        attack.name
    );
    let after = machine.outside(attack.after);
    assert_eq!(
        machine.is_hurt(),
        level == "off",
        "{}, level {level}, as {user:?}: {} {}",
        attack.name,
        stderr(&ran),
        stderr(&after)
    );
}

/// The same in a folder that was not a repository before.
#[test]
fn a_new_repository_runs_nothing() {
    for (user, level) in worlds() {
        for inside in [
            "git init -q .; git config core.fsmonitor ./evil.sh",
            "git init -q .; cp evil.sh .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change",
        ] {
            let machine = Machine::new(user);
            machine.outside(EVIL);
            machine.confined(level, inside);
            machine.outside("git add -A; git status");
            assert_eq!(
                machine.is_hurt(),
                level == "off",
                "{inside}, level {level}, as {user:?}"
            );
        }
        let machine = Machine::new(user);
        machine.confined(
            level,
            "git init -q .; echo x > x; git add x; git commit -qm x",
        );
        let log = machine.outside("git log --format=%s");
        if level == "off" {
            continue;
        }
        assert!(machine.at("work/.git/HEAD").exists(), "level {level}");
        // Without a name for the author nothing can be committed, but the repository is whole.
        assert!(
            !stderr(&log).contains("not a git repository"),
            "{}",
            stderr(&log)
        );
    }
}

/// Names of the list of protected ones, some for each pattern.
const NAMES: &[&str] = &[
    ".gitmodules",
    ".gitattributes",
    ".gitconfig",
    ".husky",
    ".huskyrc",
    ".hg/hgrc",
    ".jj/repo/config.toml",
    ".pijul/config",
    ".vscode",
    ".idea",
    ".zed",
    ".fleet",
    ".vs",
    ".exrc",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".helix/config.toml",
    ".lvimrc",
    ".nova",
    ".ycm_extra_conf.py",
    ".gitpod.yml",
    ".idx/dev.nix",
    ".devcontainer",
    ".devcontainer.json",
    ".envrc",
    ".direnv",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".bash_aliases",
    ".pdbrc",
    ".irbrc",
    ".Rprofile",
    ".ocamlinit",
    ".iex.exs",
    ".autoenv.zsh",
    ".ripgreprc",
    ".gdbinit",
    ".lldbinit",
    "rust-toolchain",
    "rust-toolchain.toml",
    ".tool-versions",
    ".mise.toml",
    "mise.toml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarn",
    ".pnpmfile.cjs",
    ".pnpmfile.mjs",
    ".mvn/extensions.xml",
    "global.json",
    ".config/mise.toml",
    ".config/mise/config.toml",
    ".bazelrc",
    ".amazonq",
    "WARP.md",
    ".rules",
    ".pnp.cjs",
    "bunfig.toml",
    ".cargo/config.toml",
    ".cargo/config",
    ".cargo/credentials.toml",
    "pip.conf",
    ".pypirc",
    ".github/workflows",
    ".github/actions",
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".gitlab/ci",
    ".circleci",
    ".buildkite",
    ".forgejo",
    ".gitea",
    ".woodpecker.yml",
    ".drone.yml",
    ".travis.yml",
    ".appveyor.yml",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    ".claude",
    ".claude.json",
    ".cursor",
    ".cursorrules",
    ".clinerules",
    ".roo",
    ".roomodes",
    ".windsurfrules",
    ".codex",
    ".gemini",
    ".qwen",
    ".opencode",
    "opencode.json",
    ".crush.json",
    "crush.json",
    ".aider.conf.yml",
    ".continue",
    ".amp",
    ".kiro",
    ".kilocodemodes",
    ".goosehints",
    ".goose",
    ".augment-guidelines",
    ".junie",
    ".trae",
    ".mcp.json",
    ".agents",
    ".agent",
    "AGENTS.md",
    "AGENTS.override.md",
    "AGENT.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "GEMINI.md",
    "QWEN.md",
    "CRUSH.md",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/prompts",
    ".github/agents",
    ".github/chatmodes",
    ".sabir",
    ".sabirignore",
];

#[test]
fn commands_cannot_create_protected_names() {
    let lines: Vec<String> = NAMES
        .iter()
        .map(|name| {
            let parent = Path::new(name).parent().unwrap().display().to_string();
            let parent = if parent.is_empty() {
                "."
            } else {
                parent.as_str()
            };
            format!("mkdir -p {parent}; echo x > {name}")
        })
        .collect();
    for (user, level) in worlds() {
        let machine = Machine::new(user);
        for folder in [".github", ".gitlab"] {
            fs::create_dir(machine.at("work").join(folder)).unwrap();
            machine.give(&machine.at("work").join(folder));
        }
        let ran = machine.confined(level, &lines.join("; "));
        let there: Vec<_> = NAMES
            .iter()
            .filter(|name| machine.at("work").join(name).exists())
            .collect();
        if level == "off" {
            assert_eq!(there.len(), NAMES.len(), "{}", stderr(&ran));
        } else {
            assert!(there.is_empty(), "level {level}, as {user:?}: {there:?}");
            assert!(
                stderr(&ran).contains("`.travis.yml` is protected, and commands may not change it"),
                "{}",
                stderr(&ran)
            );
        }
    }
}

/// Existing protected files have the same content afterwards, at every level.
#[test]
fn protected_files_keep_their_content() {
    for (user, level) in worlds() {
        let machine = Machine::new(user);
        let made = machine.outside(
            "echo old > Jenkinsfile; mkdir -p .github/agents .idea docs; echo old > .github/agents/a; echo old > docs/a; \
             ln -s docs/a AGENTS.md; echo old > .idea/x",
        );
        assert!(made.status.success());
        machine.confined(
            level,
            "echo new > Jenkinsfile; echo new > .github/agents/a; rm AGENTS.md; echo new > AGENTS.md; rm -r .idea; echo new > .idea",
        );
        let now = machine.outside("cat Jenkinsfile .github/agents/a AGENTS.md .idea/x 2>&1");
        let expected = "old\nold\nold\nold\n";
        assert_eq!(
            stdout(&now) == expected,
            level != "off",
            "level {level}, as {user:?}: {}",
            stdout(&now)
        );
    }
}

/// Commands cannot reach sockets of the user's other programs at any path, but can use their own.
#[test]
fn sockets_of_other_programs_are_out_of_reach() {
    let python = "import socket, sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n";
    for (user, level) in worlds() {
        let machine = Machine::new(user);
        fs::write(machine.at("work/connect.py"), python).unwrap();
        for name in ["home/agent.sock", "work/own.sock"] {
            let path = machine.at(name);
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            machine.give(&path);
            let line = format!("python3 connect.py '{}' && echo reached", path.display());
            let ran = machine.confined(level, &line);
            if level == "off" && !stdout(&ran).contains("reached") {
                return skipped("there is no python3 to connect with");
            }
            assert_eq!(
                listener.accept().is_ok(),
                level == "off",
                "{name}, level {level}, as {user:?}: {}",
                stderr(&ran)
            );
        }
        if level == "2" {
            let text = "import multiprocessing as m\nif __name__ == '__main__':\n    d = m.Manager().dict(); d[1] = 2; print(d[1])\n";
            fs::write(machine.at("work/manager.py"), text).unwrap();
            let ran = machine.confined(level, "python3 manager.py");
            assert_eq!(stdout(&ran), "2\n", "{}", stderr(&ran));
            let ran = machine.confined(
                level,
                "node -e 'console.log(Object.keys(os.networkInterfaces()).length)' || echo 1",
            );
            assert_eq!(stdout(&ran), "1\n", "{}", stderr(&ran));
        }
    }
}

#[test]
fn changes_of_the_configuration_are_explained() {
    for (user, level) in worlds() {
        let machine = Machine::new(user);
        machine.outside("git init -q .");
        for line in [
            "git config user.name x",
            "git remote add origin https://example.org/x",
        ] {
            let ran = machine.confined(level, line);
            let said = stderr(&ran);
            match level {
                "off" => assert_eq!(code(&ran), 0, "{said}"),
                "2" => {
                    assert!(said.contains(".git/config` is git's own files"), "{said}");
                    assert!(said.contains("--level off"), "{said}");
                }
                _ => assert!(said.contains("`.git/config` is protected"), "{said}"),
            }
        }
    }
}

/// The numbers of a control group in which a fork bomb cannot hurt the machine that runs the tests.
struct SafeGroup(PathBuf);

impl SafeGroup {
    fn new() -> Option<Self> {
        let parents = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        parents.iter().find_map(|parent| {
            let folder = Path::new(parent).join(format!("test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            fs::write(group.0.join("pids.max"), "9000").ok()?;
            Some(group)
        })
    }

    fn count(&self) -> usize {
        let all = fs::read_to_string(self.0.join("cgroup.procs")).unwrap();
        all.lines().count()
    }
}

impl Drop for SafeGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_fork_bomb_ends() {
    let Some(group) = SafeGroup::new() else {
        return skipped("no control group in which a fork bomb is safe");
    };
    for (user, level) in worlds() {
        if level == "off" || user == User::Stranger {
            continue;
        }
        let machine = Machine::new(user);
        for bomb in ["b(){ b|b& }; b", "b(){ b|b; }; b"] {
            let line = format!(
                "echo $$ > '{}/cgroup.procs' && exec '{}' sandbox --level {level} -- '{bomb}' 2>&1 | tail -c 2000",
                group.0.display(),
                env!("CARGO_BIN_EXE_sabir")
            );
            let ran = machine.outside(&line);
            let said = stdout(&ran);
            assert!(
                said.contains("the sandbox was level"),
                "level {level}, {bomb}: {said}"
            );
            // The supervisor still frees storage when the command has been reported.
            let mut left = group.count();
            for _ in 0..600 {
                if left == 0 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
                left = group.count();
            }
            assert_eq!(left, 0, "level {level}, {bomb}");
        }
    }
}

#[test]
fn security_reports_the_state_of_every_wall() {
    for (user, level) in worlds().into_iter().filter(|(_, level)| *level != "off") {
        let machine = Machine::new(user);
        let arguments = ["security", "--level", level, "--output", "json"];
        let tried = machine.command(env!("CARGO_BIN_EXE_sabir"), &arguments);
        let report: serde_json::Value = serde_json::from_str(&stdout(&tried)).unwrap();
        let walls = report["walls"].as_array().unwrap();
        assert_eq!(walls.len(), 9);
        for wall in walls {
            let state = wall["state"].as_str().unwrap();
            let expected: &[&str] = match level {
                "2" => &["holds", "untested"],
                _ => &["holds", "untested", "put back", "open"],
            };
            assert!(
                expected.contains(&state),
                "level {level}, as {user:?}: {wall}"
            );
        }
        let text = machine.command(env!("CARGO_BIN_EXE_sabir"), &["security", "--level", level]);
        assert_eq!(stdout(&text).lines().count(), 10, "{}", stdout(&text));
    }
}
