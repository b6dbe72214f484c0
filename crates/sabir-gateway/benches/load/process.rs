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
    /// Starts this program in a role on these processors, and returns the address that it prints.
    pub(crate) fn role(arguments: &[&str], cores: &str) -> Self {
        let mut child = pinned_command(&std::env::current_exe().unwrap(), cores)
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

    /// Starts an installed `sabir gateway` with that configuration, and waits until it listens.
    pub(crate) fn sabir(program: &Path, configuration: &str, cores: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        std::fs::write(&config, configuration).unwrap();
        let mut child = pinned_command(program, cores)
            .args(["gateway", "--quiet", "--config"])
            .arg(&config)
            .args(["--listen", "127.0.0.1:0", "--log", "off", "--token", "k"])
            .env("HOME", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, address) = line.split_once("http://")?;
                let end = address.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'));
                address.get(..end.unwrap_or(address.len()))?.parse().ok()
            })
            .unwrap();
        // It must not wait for somebody to read what it says.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Starts litellm with that configuration and waits until it answers.
    pub(crate) fn litellm(program: &str, config: &Path, cores: &str) -> Option<Self> {
        let mut command = pinned_command(Path::new(program), cores);
        command
            .args(["--host", "127.0.0.1", "--config"])
            .arg(config);
        command
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_LOG", "ERROR");
        // It listens on loopback only, and does not start without a key.
        command.env(
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
            "true",
        );
        let port = free_port();
        command.args(["--port", &port.to_string()]);
        Self::wait_until_listening(command, port)
    }

    /// Starts claude-code-router in a home of its own and waits until it answers.
    pub(crate) fn router(
        program: &str,
        home: &Path,
        back: SocketAddr,
        cores: &str,
    ) -> Option<Self> {
        let port = free_port();
        let folder = home.join(".claude-code-router");
        std::fs::create_dir_all(&folder).unwrap();
        let config = serde_json::json!({
            "PORT": port,
            "HOST": "127.0.0.1",
            "LOG": false,
            "APIKEY": "k",
            "Providers": [{
                "name": "back",
                "api_base_url": format!("http://{back}/v1/chat/completions"),
                "api_key": "k",
                "models": ["as-native"],
            }],
            "Router": {"default": "back,as-native"},
        });
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let mut command = pinned_command(Path::new(program), cores);
        command.arg("start").env("HOME", home);
        Self::wait_until_listening(command, port)
    }

    /// Starts Portkey's gateway and waits until it answers.
    pub(crate) fn portkey(program: &str, cores: &str) -> Option<Self> {
        let port = free_port();
        let mut command = pinned_command(Path::new("node"), cores);
        command.arg(program).arg("--headless");
        command.arg(format!("--port={port}"));
        Self::wait_until_listening(command, port)
    }

    /// Starts a program and waits until its port can be connected to; `None` if that takes more than two minutes.
    fn wait_until_listening(mut command: Command, port: u16) -> Option<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
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

/// Returns a port that nothing listens on.
fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Makes a command that runs a program on these processors only.
fn pinned_command(program: &Path, cores: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(program);
    command
}

/// Keeps the threads that this process will start on these processors.
pub(crate) fn pin_self(cores: &str) {
    let status = Command::new("taskset")
        .args(["-cp", cores, &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "taskset failed");
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of open descriptors of a process.
pub(crate) fn count_descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
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
