//! Tests that a command at level 2 starts with what the machine has at that moment, although a part of its sandbox was made before.
//!
//! Mounts and network sockets belong to namespaces that the test makes for itself, so that other tests do not notice.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sabir_testkit::ReplyScript;
use serde_json::{Value, json};

use crate::world::{WAYS, World, code, names, skipped, stderr, stdout, turn};

/// Returns the same command behind `unshare` with these options and words; `None` where this machine makes no such namespaces.
fn unshare_command(options: &[&str], command: &Command) -> Option<Command> {
    let namespaces = options.iter().take_while(|option| option.starts_with("--"));
    let probe = Command::new("unshare")
        .args(namespaces)
        .arg("true")
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut new = Command::new("unshare");
    new.args(options)
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folder) = command.get_current_dir() {
        new.current_dir(folder);
    }
    Some(new)
}

/// Runs a line of shell in the mount namespace of a process.
fn run_in_mount_namespace(process: u32, line: &str) -> Output {
    let namespace = format!("--mount=/proc/{process}/ns/mnt");
    Command::new("nsenter")
        .args([namespace.as_str(), "--", "sh", "-c", line])
        .output()
        .unwrap()
}

/// Returns the processes that have a file system of this name mounted.
fn find_mount_holders(name: &str) -> Vec<String> {
    let holds = |path: &Path| {
        fs::read_to_string(path.join("mountinfo")).is_ok_and(|mounts| mounts.contains(name))
    };
    names(Path::new("/proc"))
        .into_iter()
        .filter(|process| holds(&Path::new("/proc").join(process)))
        .collect()
}

/// Between two commands of a task a file system is mounted, and unmounted: each command sees what is there, and nothing keeps what was
/// unmounted.
#[test]
fn a_command_has_the_mounts_of_its_start() {
    let world = World::new();
    let way = WAYS[1];
    fs::create_dir(world.work.path().join("data")).unwrap();
    let data = world.work.path().join("data").display().to_string();
    let name = format!("sabir-mounted-{}", std::process::id());
    let agent = Arc::new(OnceLock::new());
    let kept = Arc::new(Mutex::new(None));
    let run = |line: &str| turn("", vec![("execute_command", json!({"command": line}))]);
    let turns = [
        run("ls -A data > none"),
        run("cat data/seen"),
        run("cat data/seen > copy"),
        run("ls -A data"),
        turn("", vec![("attempt_completion", json!({"result": "done"}))]),
    ];
    let provider = world.provider(ReplyScript::from_fn({
        let (agent, kept, name) = (Arc::clone(&agent), Arc::clone(&kept), name.clone());
        move |number, _| {
            let process: u32 = *agent.wait();
            match number {
                1 => {
                    let line =
                        format!("mount -t tmpfs {name} '{data}' && echo here > '{data}/seen'");
                    let done = run_in_mount_namespace(process, &line);
                    assert!(done.status.success(), "{}", stderr(&done));
                }
                3 => {
                    let done = run_in_mount_namespace(process, &format!("umount '{data}'"));
                    assert!(done.status.success(), "{}", stderr(&done));
                    // What was forked ahead learns of it from the kernel, and ends.
                    let begun = Instant::now();
                    let mut holders = find_mount_holders(&name);
                    while !holders.is_empty() && begun.elapsed() < Duration::from_mins(1) {
                        std::thread::sleep(Duration::from_millis(20));
                        holders = find_mount_holders(&name);
                    }
                    *kept.lock().unwrap() = Some(holders);
                }
                _ => {}
            }
            way.reply(turns.get(number).unwrap_or(&turns[4]), number + 1)
        }
    }));
    let mut command = world.sabir_with(&provider);
    command
        .args(["run", "--model", way.model(), "--protocol", way.protocol])
        .args([
            "--sandbox",
            "2",
            "--approve",
            "all",
            "--output",
            "events",
            "go",
        ]);
    let Some(mut command) = unshare_command(&["--mount"], &command) else {
        return skipped("only root can mount file systems here");
    };
    let works = world
        .sabir()
        .args(["sandbox", "--level", "2", "--", "true"])
        .output();
    if code(&works.unwrap()) != 0 {
        return skipped("level 2 is not available");
    }
    let child = command.spawn().unwrap();
    agent.set(child.id()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let results: Vec<String> = crate::world::events(&output)
        .iter()
        .filter(|event| event.to_string().contains("\"ending\""))
        .map(Value::to_string)
        .collect();
    assert!(
        results.iter().any(|result| result.contains("\\nhere\"")),
        "{results:?}"
    );
    assert_eq!(world.read("none"), "");
    assert_eq!(world.read("copy"), "here\n");
    assert_eq!(kept.lock().unwrap().take(), Some(Vec::new()));
}

/// Listens at a socket, has a program try to connect to it, and tells whether it came.
const LISTENER: &str = r#"
import os, socket, subprocess, sys
name, words = sys.argv[1], sys.argv[2:]
listener = socket.socket(socket.AF_UNIX)
work = os.getcwd()
os.chdir(os.environ["SOCKETS"])
listener.bind(name)
listener.listen()
listener.setblocking(False)
os.chdir(work)
ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
try:
    listener.accept()
    print("reached")
except BlockingIOError:
    print("not reached")
print(ran.stdout, ran.stderr)
"#;

/// The kernel lists a socket under the name that its program gave it, which may be relative to a folder that nobody knows.
#[test]
fn sockets_with_relative_names_are_out_of_reach() {
    let world = World::new();
    // In the workspace, whose files a command sees.
    let sockets = tempfile::tempdir_in(world.work.path()).unwrap();
    world.write("listen.py", LISTENER);
    world.write(
        "connect.py",
        "import socket, sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')\n",
    );
    let attempt = |level: &str, name: &str, folder: &Path, line: &str| {
        let mut command =
            unshare_command(&["--net", "python3", "listen.py", name], &world.sabir())?;
        let output = command
            .args(["sandbox", "--level", level, "--", line])
            .env("SOCKETS", folder)
            .output();
        Some(stdout(&output.unwrap()))
    };
    let works = world
        .sabir()
        .args(["sandbox", "--level", "2", "--", "true"])
        .output();
    let works = code(&works.unwrap()) == 0;
    for (at, name) in ["plain.sock", "two\nlines.sock", " blank.sock"]
        .iter()
        .enumerate()
    {
        for level in ["off", "2"] {
            let folder = sockets.path().join(format!("{at}-{level}"));
            fs::create_dir(&folder).unwrap();
            let line = format!("python3 connect.py '{}/{name}'", folder.display());
            let Some(said) = attempt(level, name, &folder, &line) else {
                return skipped("only root can make a network here");
            };
            if said.is_empty() || level == "2" && !works {
                return skipped("there is no python3, or no level 2");
            }
            let reached = said.starts_with("reached");
            assert_eq!(reached, level == "off", "{name:?}, level {level}: {said}");
        }
    }
}
