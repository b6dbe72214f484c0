//! Tests that a panic of the program leaves the terminal as it was.

use std::time::Duration;

use rustix::termios::{LocalModes, tcgetattr};

use super::preload;
use crate::approval::Seat;
use crate::world::{WAYS, Way, World, turn};

const NATIVE: Way = WAYS[1];

fn is_raw(seat: &Seat) -> bool {
    let settings = tcgetattr(seat.terminal()).unwrap();
    !settings
        .local_modes
        .intersects(LocalModes::ICANON | LocalModes::ECHO)
}

/// A clock that cannot be read any more makes the standard library panic, wherever the program happens to be.
#[test]
fn a_panic_restores_the_terminal() {
    let Some(library) = preload::library() else {
        return;
    };
    for interface in ["full", "line"] {
        let world = World::new();
        let provider = world.plays(NATIVE, &[turn("Hello.", vec![])]);
        let trigger = world.home.path().join("no-clock");
        let mut command = world.sabir_with(&provider);
        command
            .env("TERM", "xterm-256color")
            .args(["--interface", interface, "--sandbox", "off"])
            .args(["--model", NATIVE.model()]);
        let wish = [("FAULTS_NO_STEADY", trigger.to_str().unwrap())];
        preload::with(&mut command, library, &wish);
        let mut seat = Seat::running(command, "");
        seat.wait_for("What should Sabir do?");
        for _ in 0..12_000 {
            if is_raw(&seat) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_raw(&seat), "{interface}");
        std::fs::write(&trigger, "1").unwrap();
        seat.keys("hello\r");
        let report = seat.wait_for("This is a bug in Sabir");
        assert!(report.contains("\x1b[?2004l"), "{interface}: {report:?}");
        assert_ne!(seat.end().code(), Some(0), "{interface}");
        assert!(!is_raw(&seat), "{interface}");
    }
}
