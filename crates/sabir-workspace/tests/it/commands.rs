//! Tests what a command receives, prints and returns.

use std::time::{Duration, Instant};

use sabir_workspace::{CommandExit, CommandOutcome, OutputStream, ShellCommand, WorkspaceError};

use crate::Place;

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_workspace-probe");

pub(crate) fn command(text: &str) -> ShellCommand {
    ShellCommand::new(text, PROBE)
        .env([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())])
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub(crate) fn run(place: &Place, command: ShellCommand) -> CommandOutcome {
    block_on(command.run(&place.workspace, |_, _| {})).unwrap()
}

#[track_caller]
fn check(text: &str, end: CommandExit, output: &str) {
    let outcome = run(&Place::new(), command(text));
    assert_eq!(
        (
            outcome.end,
            outcome.output.text().as_str(),
            outcome.unkillable_processes
        ),
        (end, output, 0),
        "{text}"
    );
}

#[test]
fn exits_and_output_are_reported() {
    check("echo hello", CommandExit::Exited(0), "hello\n");
    check("printf 'é\\n'; exit 7", CommandExit::Exited(7), "é\n");
    check(
        "echo out; sleep 0.3; echo err >&2",
        CommandExit::Exited(0),
        "out\nerr\n",
    );
    check("kill -KILL $$", CommandExit::Signaled(9), "");
    check("kill -TERM $$", CommandExit::Signaled(15), "");
    check("no-such-program 2>/dev/null", CommandExit::Exited(127), "");
    check(
        "echo \"a  $((1+1))\" 'b\nc'",
        CommandExit::Exited(0),
        "a  2 b\nc\n",
    );
}

#[test]
fn commands_get_no_input() {
    check(
        "read x; echo \"got $? '$x'\"",
        CommandExit::Exited(0),
        "got 1 ''\n",
    );
    check("cat", CommandExit::Exited(0), "");
    check(
        "(: < /dev/tty) 2>/dev/null; echo $?",
        CommandExit::Exited(0),
        "1\n",
    );
    check(
        "echo $GIT_TERMINAL_PROMPT $PAGER $TERM",
        CommandExit::Exited(0),
        "0 cat dumb\n",
    );
}

#[test]
fn a_given_input_is_read_whole_and_then_ends() {
    let place = Place::new();
    let much = vec![b'x'; 1 << 20];
    for (line, printed) in [
        ("wc -c", "1048576"),
        // One that reads nothing, or not all of it, ends as it would alone.
        ("echo done", "done"),
        ("head -c 3", "xxx"),
    ] {
        let outcome = run(&place, command(line).standard_input(much.clone()));
        assert_eq!(outcome.end, CommandExit::Exited(0), "{line}");
        assert_eq!(outcome.output.text().trim(), printed, "{line}");
    }
    let outcome = run(&place, command("cat; echo ended").standard_input("a"));
    assert_eq!(outcome.output.text(), "aended\n");
}

#[test]
fn only_the_given_environment_is_passed() {
    let place = Place::new();
    let outcome = run(&place, command("env | cut -d= -f1 | sort | tr '\\n' ' '"));
    let expected = "DEBIAN_FRONTEND GCM_INTERACTIVE GIT_EDITOR GIT_PAGER GIT_TERMINAL_PROMPT PAGER PATH PWD SABIR_COMMAND SHLVL \
                    SSH_ASKPASS_REQUIRE TERM _ ";
    assert_eq!(outcome.output.text(), expected);
    let own = command("echo $A $TERM").env([
        ("A".to_owned(), "b".to_owned()),
        ("TERM".to_owned(), "xterm".to_owned()),
    ]);
    assert_eq!(run(&place, own).output.text(), "b xterm\n");
}

#[test]
fn no_descriptor_and_no_blocked_signal_is_inherited() {
    check(
        "ls /proc/self/fd | tr '\\n' ' '",
        CommandExit::Exited(0),
        "0 1 2 3 ",
    );
    let outcome = run(
        &Place::new(),
        command("grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2"),
    );
    let masks: Vec<u64> = outcome
        .output
        .text()
        .lines()
        .map(|mask| u64::from_str_radix(mask, 16).unwrap())
        .collect();
    // Signals 32 and 33 belong to the C library, which does not allow resetting them.
    let own = 0b11 << 31;
    assert_eq!(
        masks.iter().map(|mask| mask & !own).collect::<Vec<_>>(),
        [0, 0]
    );
}

#[test]
fn working_folders_stay_in_the_workspace() {
    let place = Place::new();
    place.put("sub/a", "");
    place.link("out", place.outside.path());
    let root = place.root.path().canonicalize().unwrap();
    assert_eq!(
        run(&place, command("pwd")).output.text(),
        format!("{}\n", root.display())
    );
    let outcome = run(&place, command("pwd; ls").working_folder(place.path("sub")));
    assert_eq!(
        outcome.output.text(),
        format!("{}/sub\na\n", root.display())
    );
    for (folder, expected) in [
        ("absent", "Missing"),
        ("sub/a", "NotAFolder"),
        ("out", "LinkLeaves"),
    ] {
        let error = block_on(
            command("pwd")
                .working_folder(place.path(folder))
                .run(&place.workspace, |_, _| {}),
        )
        .unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
    // A command may remove the folder it runs in; the next command gets an error.
    assert_eq!(
        run(&place, command("rm -rf \"$PWD\"; echo gone"))
            .output
            .text(),
        "gone\n"
    );
    let error = block_on(command("pwd").run(&place.workspace, |_, _| {})).unwrap_err();
    assert!(matches!(error, WorkspaceError::Missing { .. }), "{error:?}");
}

#[test]
fn failures_to_start_are_explained() {
    let place = Place::new();
    let long = format!("echo {}", "x".repeat(200_000));
    for (text, expected) in [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ("a\0b", "NUL byte"),
        (&long, "has 200005 bytes"),
    ] {
        let error = block_on(command(text).run(&place.workspace, |_, _| {})).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let longest = format!("echo {}", "x".repeat(128 * 1024 - 1 - 5));
    assert_eq!(
        run(&place, command(&longest)).output.total_bytes(),
        128 * 1024 - 5
    );
    let malformed = command("true").env([("A=B".to_owned(), String::new())]);
    assert!(matches!(
        block_on(malformed.run(&place.workspace, |_, _| {})),
        Err(WorkspaceError::Command { .. })
    ));
    for command in [
        ShellCommand::new("true", "/no/such/helper"),
        command("true").shell("/no/such/shell"),
    ] {
        let error = block_on(command.run(&place.workspace, |_, _| {})).unwrap_err();
        assert!(error.to_string().contains("/no/such/"), "{error}");
        assert!(matches!(error, WorkspaceError::Start { .. }), "{error:?}");
    }
}

#[test]
fn output_streams_as_it_comes() {
    let place = Place::new();
    let mut seen = Vec::new();
    let text = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two >&2";
    let outcome = block_on(command(text).timeout(Duration::from_secs(60)).run(
        &place.workspace,
        |stream, bytes| {
            seen.push((stream, String::from_utf8_lossy(bytes).into_owned()));
            // Only this lets the command continue, so the first line came before the end.
            std::fs::write(place.inner("go"), "").unwrap();
        },
    ));
    assert_eq!(outcome.unwrap().end, CommandExit::Exited(0));
    assert_eq!(
        seen,
        [
            (OutputStream::Stdout, "one\n".to_owned()),
            (OutputStream::Stderr, "two\n".to_owned())
        ]
    );
}

#[test]
fn much_output_stays_within_the_limit() {
    let place = Place::new();
    let mut largest = 0;
    let flood = command("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo last")
        .captured_bytes(1000, 500);
    let outcome = block_on(flood.run(&place.workspace, |_, bytes| {
        largest = largest.max(bytes.len())
    }))
    .unwrap();
    assert_eq!(outcome.end, CommandExit::Exited(0));
    assert_eq!(
        (outcome.output.head.len(), outcome.output.tail.len()),
        (1000, 500)
    );
    assert_eq!(outcome.output.total_bytes(), 20_000_011);
    assert!(
        outcome.output.head.starts_with(b"first\nxx") && outcome.output.tail.ends_with(b"xlast\n")
    );
    assert!(largest <= 64 << 10, "{largest}");
}

#[test]
fn endless_output_ends_at_the_time_limit() {
    let outcome = run(
        &Place::new(),
        command("yes; echo never").timeout(Duration::from_millis(300)),
    );
    assert_eq!(outcome.end, CommandExit::TimedOut);
    assert!(outcome.output.text().starts_with("y\ny\n"));
}

#[test]
fn many_commands_leave_no_descriptor_and_no_zombie() {
    let place = Place::new();
    block_on(async {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        command("true")
            .run(&place.workspace, |_, _| {})
            .await
            .unwrap();
        let before = descriptors();
        let start = Instant::now();
        for number in 0..100 {
            let outcome = command(&format!("exit {number}"))
                .run(&place.workspace, |_, _| {})
                .await
                .unwrap();
            assert_eq!(outcome.end, CommandExit::Exited(number));
        }
        println!("{:?} a command", start.elapsed() / 100);
        // Other tests of this process run at the same time.
        assert!(
            descriptors() < before + 90,
            "{before} then {}",
            descriptors()
        );
    });
}

#[test]
fn control_sequences_are_removed_from_output() {
    check(
        "printf '\\033[1;31mred\\033[0m\\n1 %%\\r2 %%\\r\\033[Kdone\\n'",
        CommandExit::Exited(0),
        "red\ndone\n",
    );
}

/// Checks a command in a terminal, which has no second stream.
#[track_caller]
fn check_terminal(text: &str, end: CommandExit, output: &str) {
    let outcome = run(
        &Place::new(),
        command(text)
            .with_terminal()
            .timeout(Duration::from_secs(60)),
    );
    assert_eq!(
        (
            outcome.end,
            outcome.output.text().as_str(),
            outcome.unkillable_processes
        ),
        (end, output, 0),
        "{text}"
    );
}

#[test]
fn commands_can_run_in_a_terminal() {
    check_terminal(
        "test -t 0 && test -t 1 && test -t 2 && tty | tr -d 0-9; exit 3",
        CommandExit::Exited(3),
        "/dev/pts/\n",
    );
    check_terminal(
        "stty size; echo $TERM; echo err >&2",
        CommandExit::Exited(0),
        "40 120\nxterm-256color\nerr\n",
    );
    check_terminal(
        "(: < /dev/tty) && echo controls",
        CommandExit::Exited(0),
        "controls\n",
    );
    check_terminal(
        "printf '10 %%\\r20 %%\\r'; tput setaf 1; echo 30 %",
        CommandExit::Exited(0),
        "30 %\n",
    );
    check_terminal(
        "echo to the screen > /dev/tty; kill -KILL $$",
        CommandExit::Signaled(9),
        "to the screen\n",
    );
    let place = Place::new();
    let outcome = run(
        &place,
        command("ls /proc/self/fd | tr '\\n' ' '").with_terminal(),
    );
    assert_eq!(outcome.output.text(), "0 1 2 3 ");
    let outcome = run(
        &place,
        command("seq 100000")
            .with_terminal()
            .captured_bytes(1 << 20, 0),
    );
    assert_eq!(outcome.output.lines, 100_000);
    assert!(outcome.output.text().ends_with("\n99999\n100000\n"));
}

#[test]
fn terminal_commands_get_no_input() {
    check_terminal(
        "cat; read x; echo \"$? '$x'\"",
        CommandExit::Exited(0),
        "1 ''\n",
    );
    check_terminal(
        "read -p 'Sure? ' x < /dev/tty; echo; sleep 1.5; head -n 1; echo end",
        CommandExit::Exited(0),
        "Sure? \nend\n",
    );
}

#[test]
fn processes_left_running_are_counted() {
    for (text, left) in [
        ("true", 0),
        ("sleep 1000 & sleep 1000 & true", 2),
        ("(setsid sleep 1000 &)", 1),
        ("sleep 0.01 &", 0),
    ] {
        assert_eq!(
            run(&Place::new(), command(text)).leftover_processes,
            left,
            "{text}"
        );
    }
    let outcome = run(
        &Place::new(),
        command("sleep 1000 & sleep 1000").timeout(Duration::from_millis(200)),
    );
    assert_eq!(
        (outcome.end, outcome.leftover_processes),
        (CommandExit::TimedOut, 0)
    );
}
