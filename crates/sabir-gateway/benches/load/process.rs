//! The processes that take part: each role runs as another copy of this program, so that the cost of each can be measured separately.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process, ended when it is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// The resources that a process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// CPU seconds, including those of child processes.
    pub(crate) cpu: f64,
    /// Resident kilobytes.
    pub(crate) memory: u64,
}

impl Process {
    /// Starts this program in a role, and returns the address that it prints.
    pub(crate) fn role(arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().parse().unwrap();
        Self { child, address }
    }

    /// Starts `litellm` with that configuration and waits until it answers; `None` if it does not within two minutes.
    pub(crate) fn litellm(program: &str, config: &Path) -> Option<Self> {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = Command::new(program);
        command
            .args([
                "--host",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--config",
            ])
            .arg(config);
        command
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_LOG", "ERROR");
        // It listens on loopback only, and does not start without a key.
        command.env(
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
            "true",
        );
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Self { child, address };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(120) {
            if std::net::TcpStream::connect(address).is_ok() {
                return Some(process);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        None
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn used(&self) -> Used {
        used(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the resources used by a process and its descendants, from `/proc`.
pub(crate) fn used(id: u32) -> Used {
    // Linux counts in hundredths of a second.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    let ticks: u64 = fields.iter().skip(11).take(4).sum();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let memory = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    });
    let own = Used {
        cpu: ticks as f64 / TICKS,
        memory: memory.unwrap_or_default(),
    };
    let children =
        std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .map(used)
        .fold(own, |all, child| Used {
            cpu: all.cpu + child.cpu,
            memory: all.memory + child.memory,
        })
}
