//! Lists the hosts of package registries that commands may reach through the proxy (`supervise/registry_proxy.rs`).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The port of HTTPS, for hosts that name none.
const HTTPS: u16 = 443;
/// The longest name of a host that DNS knows.
const MAX_NAME: usize = 253;

/// The hosts that the package managers of each ecosystem fetch from. Only hosts that serve public packages: on a service where anybody gets
/// a host or a folder with an access log (`storage.googleapis.com`, `github.com`), a command could send out what it has read.
const REGISTRIES: [(&str, &[&str]); 11] = [
    (
        "cargo",
        &["index.crates.io", "static.crates.io", "crates.io"],
    ),
    (
        "npm, yarn, pnpm",
        &[
            "registry.npmjs.org",
            "registry.yarnpkg.com",
            "repo.yarnpkg.com",
            "npm.jsr.io",
        ],
    ),
    ("pip, uv, poetry", &["pypi.org", "files.pythonhosted.org"]),
    ("go", &["proxy.golang.org", "sum.golang.org"]),
    (
        "maven, gradle",
        &[
            "repo.maven.apache.org",
            "repo1.maven.org",
            "plugins.gradle.org",
            "plugins-artifacts.gradle.org",
            "services.gradle.org",
            "downloads.gradle.org",
            "maven.google.com",
        ],
    ),
    ("bundler", &["rubygems.org", "index.rubygems.org"]),
    ("composer", &["repo.packagist.org", "packagist.org"]),
    ("nuget", &["api.nuget.org"]),
    ("mix", &["hex.pm", "repo.hex.pm"]),
    ("dart", &["pub.dev"]),
    ("conda", &["conda.anaconda.org", "repo.anaconda.com"]),
];

/// A host that commands may reach through the proxy of package registries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryHost {
    name: String,
    port: u16,
    /// True if its address may be private, and the connection anything but TLS.
    is_private: bool,
}

/// The error for a text that names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no host: write NAME or NAME:PORT, without a scheme, a path or `*`")]
pub struct UnknownHost {
    /// The text as written.
    pub text: String,
}

impl RegistryHost {
    /// Returns the hosts of the public registries.
    pub fn public_registries() -> impl Iterator<Item = Self> {
        let names = REGISTRIES.iter().flat_map(|(_, names)| names.iter());
        names.map(|name| Self {
            name: (*name).to_owned(),
            port: HTTPS,
            is_private: false,
        })
    }

    /// Returns the same host, whose address may be private: a mirror in the user's network.
    #[must_use]
    pub fn in_private_network(self) -> Self {
        Self {
            is_private: true,
            ..self
        }
    }

    /// Returns true if the address of the host may be private.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns true if a request means this host.
    pub(crate) fn matches(&self, name: &str, port: u16) -> bool {
        self.port == port && self.name.eq_ignore_ascii_case(name.trim_end_matches('.'))
    }

    /// Encodes the host as one word for the supervisor.
    pub(super) fn to_word(&self) -> String {
        let mark = if self.is_private { "private" } else { "public" };
        format!("{mark} {self}")
    }

    /// Decodes what [`to_word`](Self::to_word) wrote.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        match word.split_once(' ')? {
            ("public", host) => host.parse().ok(),
            ("private", host) => host.parse().ok().map(Self::in_private_network),
            _ => None,
        }
    }
}

/// Splits `NAME:PORT`, `[ADDRESS]:PORT` or a name alone; the brackets are left out.
pub(crate) fn split_host(text: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return None,
            }
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let is_named = !name.is_empty() && name.len() <= MAX_NAME;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !is_named || !(name.chars().all(is_plain) || name.parse::<IpAddr>().is_ok()) {
        return None;
    }
    match port {
        // A sign would be accepted by the parser of numbers.
        Some(port) if port.chars().all(|c| c.is_ascii_digit()) => {
            Some((name, Some(port.parse().ok().filter(|port| *port != 0)?)))
        }
        Some(_) => None,
        None => Some((name, None)),
    }
}

impl FromStr for RegistryHost {
    type Err = UnknownHost;

    fn from_str(text: &str) -> Result<Self, UnknownHost> {
        let wrong = || UnknownHost {
            text: text.to_owned(),
        };
        let (name, port) = split_host(text.trim()).ok_or_else(wrong)?;
        Ok(Self {
            name: name.trim_end_matches('.').to_ascii_lowercase(),
            port: port.unwrap_or(HTTPS),
            is_private: false,
        })
    }
}

/// Writes `NAME:PORT`.
impl fmt::Display for RegistryHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// The connections of a command to one host, or its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConnection {
    /// The host and port, as `NAME:PORT`.
    pub host: String,
    /// The outcome of the connections.
    pub outcome: ConnectionOutcome,
    /// The number of connections or attempts.
    pub count: u32,
}

/// The outcome of a connection through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionOutcome {
    /// The host was reached.
    Reached,
    /// The host is not on the list.
    Unlisted,
    /// The host has a private address, and was not listed as one that may.
    PrivateAddress,
    /// The host could not be found or did not answer.
    Unreachable,
    /// The connection was not TLS, or was meant for another host than the one that was asked for.
    OtherName,
}

/// The words for outcomes in reports of the supervisor.
const OUTCOMES: [(ConnectionOutcome, &str); 5] = [
    (ConnectionOutcome::Reached, "reached"),
    (ConnectionOutcome::Unlisted, "unlisted"),
    (ConnectionOutcome::PrivateAddress, "private"),
    (ConnectionOutcome::Unreachable, "unreachable"),
    (ConnectionOutcome::OtherName, "other-name"),
];
/// The most hosts that the report of one command names.
const MAX_HOSTS: usize = 50;

impl ConnectionOutcome {
    /// Formats an outcome for a host as the rest of a report's line.
    pub(crate) fn to_line(self, host: &str) -> String {
        let word = OUTCOMES.iter().find(|(outcome, _)| *outcome == self);
        let word = word.map(|(_, word)| *word).unwrap_or_default();
        format!("{word} {host}")
    }
}

impl HostConnection {
    /// Adds the connection in a line of [`ConnectionOutcome::to_line`] to those before.
    pub(crate) fn add_line(list: &mut Vec<Self>, line: &str) {
        let Some((word, host)) = line.split_once(' ') else {
            return;
        };
        let Some((outcome, _)) = OUTCOMES.iter().find(|(_, known)| *known == word) else {
            return;
        };
        let is_full = list.len() >= MAX_HOSTS;
        match list
            .iter_mut()
            .find(|known| known.host == host && known.outcome == *outcome)
        {
            Some(known) => known.count = known.count.saturating_add(1),
            None if !is_full => list.push(Self {
                host: host.to_owned(),
                outcome: *outcome,
                count: 1,
            }),
            None => {}
        }
    }
}

/// Writes a sentence without a full stop.
impl fmt::Display for HostConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            outcome,
            count,
        } = self;
        let times = if *count == 1 {
            String::new()
        } else {
            format!(", {count} times")
        };
        match outcome {
            ConnectionOutcome::Reached => write!(f, "it reached {host}{times}"),
            ConnectionOutcome::Unlisted => write!(
                f,
                "the proxy of package registries kept it from {host}{times}: the host is not listed (`registries` in config.toml)"
            ),
            ConnectionOutcome::PrivateAddress => write!(
                f,
                "the proxy of package registries kept it from {host}{times}: its address is in a private network \
                 (`private_registries` in config.toml allows that)"
            ),
            ConnectionOutcome::Unreachable => {
                write!(
                    f,
                    "the proxy of package registries could not reach {host}{times}"
                )
            }
            ConnectionOutcome::OtherName => write!(
                f,
                "the proxy of package registries kept it from {host}{times}: the connection was not TLS for that host"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_parsed() {
        let host = |text: &str| text.parse::<RegistryHost>().map(|host| host.to_string());
        for (text, expected) in [
            ("npm.corp.example", "npm.corp.example:443"),
            (" NPM.corp.example.:8081 ", "npm.corp.example:8081"),
            ("127.0.0.2:80", "127.0.0.2:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "https://x.example",
            "x.example/path",
            "*.example",
            "x:0",
            "x:+80",
            "x:99999",
            "x:",
            "::1",
            "[::1",
            "[x]:1",
            "a b",
            "x@y",
            "x\u{e9}",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_match_whole_names_and_ports() {
        let host: RegistryHost = "pypi.org".parse().unwrap();
        assert!(host.matches("PyPI.org.", 443));
        for (name, port) in [
            ("pypi.org", 80),
            ("pypi.org.evil.example", 443),
            ("xpypi.org", 443),
            ("a.pypi.org", 443),
            ("", 443),
        ] {
            assert!(!host.matches(name, port), "{name}:{port}");
        }
    }

    #[test]
    fn words_and_lines_are_parsed_back() {
        for host in RegistryHost::public_registries() {
            assert_eq!(RegistryHost::from_word(&host.to_word()), Some(host.clone()));
            let private = host.in_private_network();
            assert_eq!(RegistryHost::from_word(&private.to_word()), Some(private));
        }
        let mut list = Vec::new();
        for (outcome, _) in OUTCOMES {
            HostConnection::add_line(&mut list, &outcome.to_line("a:1"));
            HostConnection::add_line(&mut list, &outcome.to_line("a:1"));
        }
        assert_eq!(list.len(), OUTCOMES.len());
        assert!(list.iter().all(|one| one.count == 2), "{list:?}");
        for number in 0..1000 {
            HostConnection::add_line(&mut list, &format!("unlisted h{number}:1"));
        }
        assert_eq!(list.len(), MAX_HOSTS);
    }
}
