//! Tests that nothing a command started survives it, however it ends and whatever it tried.

use std::process::Stdio;
use std::time::{Duration, Instant};

use sabir_workspace::{CommandExit, ShellCommand};

use crate::Place;
use crate::commands::{PROBE, block_on, command, run};

/// Every way to hide that the shell offers: in the background, ignoring signals, orphaned, in
/// another session, and combined.
pub(crate) const HIDERS: &str = "
    sleep 1000 &
    (trap '' TERM HUP INT; sleep 1000; sleep 1000) &
    (sleep 1000 & sleep 1000 &) &
    setsid sleep 1000 &
    (setsid sh -c \"trap '' TERM; (setsid sh -c 'trap \\\"\\\" TERM HUP; sleep 1000; sleep 1000' &) ; sleep 1000; sleep 1000\" &)
    (setsid nohup env -i sleep 1000 >/dev/null 2>&1 &) &
    (kill -STOP $(exec sh -c 'echo $PPID')) &
    sleep 0.3
";
/// Longer than any wait of the tested code, and still short on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the processes in the place's folder: everything its commands start, including the
/// supervisor, without zombies.
pub(crate) fn alive(place: &Place) -> Vec<String> {
    let root = place.root.path().canonicalize().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let inside = entries
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == root));
    inside
        .map(|entry| {
            format!(
                "{} {:?}",
                entry.path().display(),
                std::fs::read_to_string(entry.path().join("cmdline"))
            )
        })
        .collect()
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn check(command: ShellCommand, end: CommandExit) {
    let place = Place::new();
    let start = Instant::now();
    let outcome = run(&place, command.grace_period(Duration::from_millis(300)));
    assert_eq!(
        (outcome.end, outcome.unkillable_processes),
        (end, 0),
        "{}",
        outcome.output.text()
    );
    assert_eq!(alive(&place), Vec::<String>::new());
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn nothing_is_left_after_exit() {
    check(command(&format!("{HIDERS} exit 3")), CommandExit::Exited(3));
    check(
        command(&format!("{HIDERS} exit 3")).with_terminal(),
        CommandExit::Exited(3),
    );
}

#[test]
fn nothing_is_left_after_a_time_out() {
    check(
        command(&format!("{HIDERS} touch ready; sleep 1000")).timeout(Duration::from_secs(1)),
        CommandExit::TimedOut,
    );
    let in_terminal = command(&format!("{HIDERS} sleep 1000")).with_terminal();
    check(
        in_terminal.timeout(Duration::from_secs(1)),
        CommandExit::TimedOut,
    );
}

#[test]
fn nothing_is_left_after_a_time_out_of_a_deaf_shell() {
    let deaf = command("trap '' TERM HUP; while :; do sleep 0.1; done").with_terminal();
    check(
        deaf.timeout(Duration::from_millis(300)),
        CommandExit::TimedOut,
    );
    check(
        command("trap '' TERM; while :; do sleep 0.1; done").timeout(Duration::from_millis(300)),
        CommandExit::TimedOut,
    );
}

#[test]
fn nothing_is_left_after_a_cancellation() {
    let token = async { tokio::time::sleep(Duration::from_secs(1)).await };
    check(
        command(&format!("{HIDERS} sleep 1000")).cancel_when(token),
        CommandExit::Cancelled,
    );
}

#[test]
fn nothing_is_left_after_the_shell_was_killed() {
    check(
        command(&format!("{HIDERS} kill -KILL $$")),
        CommandExit::Signaled(9),
    );
}

#[test]
fn a_process_that_keeps_forking_is_caught() {
    check(
        command("hop() { hop & }; hop; sleep 1000").timeout(Duration::from_millis(500)),
        CommandExit::TimedOut,
    );
    check(
        command("hop() { setsid bash -c \"$(declare -f hop); hop\" & }; hop; sleep 0.5"),
        CommandExit::Exited(0),
    );
}

#[test]
fn a_command_that_kills_its_supervisor_dies_too() {
    let text = "sleep 1000 & (setsid sleep 1000 &); sleep 0.3; kill -KILL $PPID; sleep 1000";
    check(command(text), CommandExit::SupervisorLost);
    check(command(text).with_terminal(), CommandExit::SupervisorLost);
}

#[test]
fn signals_do_not_reach_the_supervisor() {
    check(
        command("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; sleep 0.2; exit 5"),
        CommandExit::Exited(5),
    );
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn a_command_that_stops_its_supervisor_ends_at_the_time_limit() {
    check(
        command("kill -STOP $PPID; sleep 1000").timeout(Duration::from_millis(300)),
        CommandExit::TimedOut,
    );
}

#[test]
fn a_background_process_with_the_pipe_does_not_delay_the_result() {
    let place = Place::new();
    let start = Instant::now();
    let outcome = run(&place, command("sleep 1000 & echo done"));
    assert_eq!(
        (outcome.end, outcome.output.text().as_str()),
        (CommandExit::Exited(0), "done\n")
    );
    assert!(
        start.elapsed() < Duration::from_secs(600),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_background_process_may_finish_its_line() {
    let outcome = run(
        &Place::new(),
        command("(sleep 0.02; echo late) & echo early"),
    );
    assert_eq!(outcome.output.text(), "early\nlate\n");
}

#[test]
fn nothing_is_left_after_the_future_was_dropped() {
    let place = Place::new();
    block_on(async {
        let text = format!("{HIDERS} touch ready; sleep 1000");
        let running = command(&text).run(&place.workspace, |_, _| {});
        let ready = async {
            while !place.inner("ready").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = running => panic!("the command ended"),
            () = ready => {}
        }
        assert!(!alive(&place).is_empty());
        // Outside the runtime, which must not be needed for this.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        wait_for("the end of all", || alive(&place).is_empty());
    });
}

#[test]
fn nothing_is_left_after_kill_9_of_the_agent() {
    check_kills(2);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn nothing_is_left_after_kill_9_at_several_moments() {
    check_kills(5);
}

/// Kills the agent while its command runs, and then in as many rounds, fewer one, while processes are being started.
fn check_kills(rounds: u64) {
    for round in 0..rounds {
        let place = Place::new();
        let text = format!("{HIDERS} touch ready; sleep 1000");
        let mut agent = std::process::Command::new(PROBE)
            .arg("agent")
            .args([place.root.path().as_os_str(), text.as_ref()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        if round == 0 {
            wait_for("the command", || place.inner("ready").exists());
            assert!(alive(&place).len() > 5);
        } else {
            wait_for("the supervisor", || !alive(&place).is_empty());
            std::thread::sleep(Duration::from_millis(round * 3));
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        wait_for("the end of all", || alive(&place).is_empty());
    }
}
