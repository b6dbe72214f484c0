//! Tests the fork server of a workspace: that it is one process, and that commands do not depend on its life.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::Place;
use crate::commands::PROBE;
use crate::trees::{alive, wait_for};

/// Sets `$agent` and `$server`, as a command sees them: its shell is a child of the supervisor, whose parent is the reaper, whose
/// parent is the agent.
const LOOK: &str = "
    parent() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f2; }
    agent=$(parent $(parent $PPID))
    server=
    for process in $(cat /proc/$agent/task/*/children); do
        case $( (tr '\\0' ' ' < /proc/$process/cmdline) 2>/dev/null) in
        *'__supervise fork-server '*) server=$process;; esac
    done
";

/// Runs commands in one agent, and returns a line for each and the number of zombies at the end.
fn run_agent(place: &Place, texts: &[String]) -> Vec<String> {
    let output = Command::new(PROBE)
        .arg("agent")
        .arg(place.root.path())
        .args(texts)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn one_server_forks_all_commands() {
    let show = format!("{LOOK} echo $server");
    let lines = run_agent(&Place::new(), &[show.clone(), show.clone(), show]);
    let [first, second, third, zombies] = &lines[..] else {
        panic!("{lines:?}");
    };
    let number = first.strip_prefix("exit code 0: ").unwrap();
    assert!(number.parse::<u32>().is_ok(), "{lines:?}");
    assert_eq!((second, third), (first, first));
    assert!(
        zombies == "zombies: 0" || zombies == "zombies: 1",
        "{lines:?}"
    );
}

#[test]
fn a_killed_server_is_replaced() {
    // A killed process ends a little later. Until then it takes requests, and nobody knows what
    // becomes of them.
    let ended = "grep -q '^State:.Z' /proc/$server/status || ! kill -0 $server 2>/dev/null";
    let kill = format!("{LOOK} kill -9 $server; until {ended}; do sleep 0.01; done; echo killed");
    let show = format!("{LOOK} echo $server | wc -w");
    let show_again = show.clone();
    let lines = run_agent(&Place::new(), &[kill.clone(), show, show_again, kill]);
    let [killed, next, replaced, again] = lines.get(..4).unwrap() else {
        panic!("{lines:?}");
    };
    assert_eq!([killed, again], ["exit code 0: killed"; 2]);
    // The killed server may have left a standby.
    assert!(
        next == "exit code 0: 0" || next == "exit code 0: 1",
        "{lines:?}"
    );
    assert_eq!(replaced, "exit code 0: 1");
}

/// A command goes on to its end when the server is killed, and what it started still does not outlive it.
#[test]
fn a_command_does_not_need_the_server() {
    let place = Place::new();
    let text =
        format!("{LOOK} kill -9 $server; sleep 1000 & setsid sleep 1000 & sleep 0.3; echo end");
    let lines = run_agent(&place, &[text]);
    assert_eq!(lines.first().map(String::as_str), Some("exit code 0: end"));
    assert_eq!(alive(&place), Vec::<String>::new());
}

#[test]
fn the_server_ends_with_its_agent() {
    let place = Place::new();
    let text = format!("{LOOK} echo $server > number; mv number ready; sleep 1000");
    let mut agent = Command::new(PROBE)
        .arg("agent")
        .args([place.root.path().as_os_str(), text.as_ref()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the command", || place.inner("ready").exists());
    let number = std::fs::read_to_string(place.inner("ready")).unwrap();
    let server = format!("/proc/{}/cmdline", number.trim());
    let is_alive = || std::fs::read(&server).is_ok_and(|line| !line.is_empty());
    assert!(is_alive());
    agent.kill().unwrap();
    agent.wait().unwrap();
    wait_for("the end of the server", || !is_alive());
    wait_for("the end of all", || alive(&place).is_empty());
}

#[test]
fn a_server_holds_nothing_of_the_agent() {
    let text = format!(
        "{LOOK} tr '\\0' ' ' < /proc/$server/environ; ls /proc/$server/fd | wc -w; readlink /proc/$server/cwd"
    );
    let lines = run_agent(&Place::new(), &[text]);
    // Root may look into a process that is hidden from others: no variables, the three streams and
    // the pipe of the standby, and no folder of its own.
    let seen = lines.get(..2).unwrap();
    if rustix::process::getuid().is_root() {
        assert_eq!(seen, ["exit code 0: 4", "/"]);
    } else {
        assert_eq!(seen, ["exit code 1: 0", "zombies: 0"]);
    }
}

#[test]
fn a_stopped_server_fails_one_command() {
    let place = Place::new();
    let stop = format!("{LOOK} kill -STOP $server; echo stopped");
    let again = "echo again".to_owned();
    let lines = run_agent(&place, &[stop, again.clone(), again.clone(), again]);
    assert_eq!(
        lines.first().map(String::as_str),
        Some("exit code 0: stopped")
    );
    // One command still starts if there was a standby already.
    let (failed, ran): (Vec<&String>, Vec<&String>) = lines
        .iter()
        .skip(1)
        .take(3)
        .partition(|line| line.starts_with("error: "));
    assert_eq!(failed.len(), 1, "{lines:?}");
    assert_eq!(ran, ["exit code 0: again"; 2]);
    assert_eq!(alive(&place), Vec::<String>::new());
}

/// A standby waits for the next command, and does not outlive the server without one.
#[test]
fn a_command_is_run_by_a_supervisor_that_waited() {
    let place = Place::new();
    // The reaper of the standby is the other one of the agent's children.
    let note = format!(
        "{LOOK} own=$(parent $PPID)
        until [ -s standby ]; do
            for process in $(cat /proc/$agent/task/*/children); do
                case $(cat /proc/$process/comm) in
                task-reaper) [ $process = $own ] || echo $process > standby;; esac
            done
        done; echo noted"
    );
    let compare = format!("{LOOK} [ $(parent $PPID) = $(cat standby) ] && echo same");
    let lines = run_agent(&place, &[note, compare]);
    assert_eq!(
        lines.get(..2).unwrap(),
        ["exit code 0: noted", "exit code 0: same"]
    );
    wait_for("the end of the last standby", || alive(&place).is_empty());
}

/// Dropped futures leave no zombies. The agent of this test has no other commands than its own.
#[test]
fn abandoned_commands_are_reaped() {
    let place = Place::new();
    let output = Command::new(PROBE)
        .arg("abandon")
        .args([place.root.path().as_os_str(), "sleep 1000".as_ref()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "started: 5\nall were reaped\nexit code 0: again\n");
    wait_for("the end of all", || alive(&place).is_empty());
}

/// The server refuses each request where no standby can live, instead of forking one after the other.
#[test]
fn a_server_without_standbys_refuses_requests() {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    // Enough for the server, and not for a supervisor with its reaper.
    let mut server = Command::new("/bin/sh")
        .args(["-c", "ulimit -n 6; exec \"$0\" __supervise fork-server"])
        .arg(PROBE)
        .stdin(theirs)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        send(&ours, b"f", SendFlags::empty()).unwrap();
        let mut answer = [1; 4];
        recv(&ours, &mut answer, RecvFlags::empty()).unwrap();
        assert_eq!(answer, [0; 4]);
    }
    // A server that forked on without a request would do so every 20 ms.
    std::thread::sleep(Duration::from_millis(500));
    drop(ours);
    let mut forked = Vec::new();
    let mut output = server.stdout.take().unwrap();
    output.read_to_end(&mut forked).unwrap();
    server.wait().unwrap();
    // Two for each request, and one before the first.
    assert!(forked.len() <= 7 * 4, "{} were forked", forked.len() / 4);
}
