//! Tests connections to other services: sockets of every kind, agents, buses.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::{Scene, worlds};

/// Services outside that an attempt must not reach.
struct Services {
    tcp: TcpListener,
    udp: UdpSocket,
    _path: UnixListener,
    _abstract: UnixListener,
    name: String,
}

impl Services {
    fn new(scene: &Scene) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _ = std::fs::remove_file(scene.at("doors/door"));
        let path = UnixListener::bind(scene.at("doors/door")).unwrap();
        scene.give(&scene.at("doors"));
        // A process that is just being started elsewhere may still hold the last one.
        let name = format!(
            "sabir-{}-{}",
            scene.base.path().display(),
            tcp.local_addr().unwrap().port()
        );
        let abstracted =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        Self {
            tcp,
            udp,
            _path: path,
            _abstract: abstracted,
            name,
        }
    }

    fn were_reached(&self) -> bool {
        self.tcp.accept().is_ok() || self.udp.recv(&mut [0; 16]).is_ok()
    }
}

/// The case, the attempt, and whether it is allowed: level 1, level 2, level 1 with network, level 2
/// with network, no sandbox.
type Row = (&'static str, &'static str, [bool; 5]);

const NEVER: [bool; 5] = [false, false, false, false, true];
const WITH_NETWORK: [bool; 5] = [false, false, true, true, true];

const DOORS: &[Row] = &[
    ("SBX-025", "abstract NAME", NEVER),
    ("SBX-026", "unix DOOR", NEVER),
    // Without the network, what is sent reaches the private loopback alone.
    ("SBX-028", "udp UDP", [false, true, true, true, true]),
    ("SBX-032", "socket 40 1 0", NEVER),
    ("SBX-037", "unix /var/run/docker.sock", [false; 5]),
    ("SBX-037", "unix /run/docker.sock", [false; 5]),
    ("SBX-038", "unix /agent", [false; 5]),
    ("own", "tcp TCP", WITH_NETWORK),
    ("own", "tcp-within", [false, true, true, true, true]),
    ("own", "fast-open TCP", WITH_NETWORK),
    // MPTCP, which Landlock does not know.
    ("own", "socket 2 1 262", [false, false, false, false, true]),
    // Raw, packet, netlink, unix datagram, ALG.
    ("own", "socket 2 3 255", [false; 5]),
    ("own", "socket 17 3 0", [false; 5]),
    ("own", "socket 16 3 0", [true; 5]),
    ("own", "socket 1 2 0", [false, true, false, true, true]),
    ("own", "socket 1 1 0", [false, true, false, true, true]),
    ("own", "unix-within", [false, true, false, true, true]),
    ("own", "udp-within", [false, true, true, true, true]),
    ("own", "socket 38 5 0", [false; 5]),
];

/// The cases that need privileges without a sandbox, or a kernel with every feature; for them the
/// last column is ignored.
const PRIVILEGED: [&str; 7] = [
    "socket 2 3 255",
    "socket 17 3 0",
    "socket 38 5 0",
    "socket 40 1 0",
    "socket 2 1 262",
    "unix /agent",
    "unix /run/docker.sock",
];

#[test]
fn sockets_and_services_are_reachable_only_as_allowed() {
    check_doors(3);
}

#[test]
#[ignore = "slow: .ci/slow-tests runs it"]
fn all_sockets_and_services_are_reachable_only_as_allowed() {
    check_doors(1);
}

/// Checks every `step`-th door for all users, levels and networks.
fn check_doors(step: usize) {
    let mut wrong = Vec::new();
    for &(level, who) in worlds() {
        let scene = Scene::new(who);
        for (case, attempt, expected) in DOORS.iter().step_by(step) {
            let columns: &[(usize, &str, &str)] = match level {
                "1" => &[
                    (0, "1", "denied"),
                    (2, "1", "allowed"),
                    (4, "off", "denied"),
                ],
                // A second command of its agent gets a launcher that was started ahead.
                _ => &[
                    (1, "2", "denied"),
                    (1, "second-2", "denied"),
                    (3, "2", "allowed"),
                    (4, "off", "denied"),
                ],
            };
            for &(column, level, network) in columns {
                if column == 4 && (PRIVILEGED.contains(attempt) || attempt.contains("docker")) {
                    continue;
                }
                let services = Services::new(&scene);
                let words: Vec<String> = attempt
                    .split(' ')
                    .map(|word| match word {
                        "NAME" => services.name.clone(),
                        "DOOR" => scene.name("doors/door"),
                        "TCP" => services.tcp.local_addr().unwrap().to_string(),
                        "UDP" => services.udp.local_addr().unwrap().to_string(),
                        word => word.to_owned(),
                    })
                    .collect();
                let told = scene.attempt(level, network, &words);
                let allowed = told.output.trim() == "allowed";
                let may_reach = allowed && (network == "allowed" || level == "off");
                if expected.get(column) != Some(&allowed) || (!may_reach && services.were_reached())
                {
                    wrong.push(format!(
                        "{case} {attempt}, level {level}, network {network}, as {who:?}: {told}"
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the probes:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A launcher that was started ahead covers the sockets that exist when the command starts.
#[test]
fn a_socket_that_is_newer_than_the_launcher_is_covered() {
    for &(level, who) in worlds() {
        if level != "2" {
            continue;
        }
        let connect = |level: &str| {
            let scene = Scene::new(who);
            let words = ["unix".to_owned(), scene.name("doors/late")];
            scene.attempt(level, "denied", &words).output
        };
        assert_eq!(connect("late-off").trim(), "allowed", "as {who:?}");
        let inside = connect("late-2");
        assert!(inside.starts_with("denied"), "{inside} as {who:?}");
    }
}

#[test]
fn agent_sockets_are_removed_from_the_environment() {
    for &(level, who) in worlds() {
        let told = Scene::new(who).run(
            level,
            "echo ${SSH_AUTH_SOCK-none} ${DBUS_SESSION_BUS_ADDRESS-none} ${HOME-none}",
        );
        assert_eq!(
            told.output.trim(),
            "none none /nowhere",
            "level {level} as {who:?}"
        );
        let off = Scene::new(who).run("off", "echo ${SSH_AUTH_SOCK-none}");
        assert_eq!(off.output.trim(), "/agent");
    }
}
