//! An address on the web in its one spelling, which is judged, asked for and shown.
//!
//! # Supported
//! `http` and `https`, names and numbers of hosts, ports. What means the same becomes the same: letter case, a dot at the end,
//! letters beyond ASCII (`xn--…`), an IPv4 address in decimal, octal or hexadecimal.
//!
//! # Unsupported
//! Users and passwords, other schemes, zone ids, backslashes, white space and control characters inside: each is refused with
//! a reason, since two readers could understand it in two ways.

use std::fmt;

use url::{Host, ParseError, Url};

/// Longer addresses are refused.
const MAX_BYTES: usize = 8 << 10;

/// Names that mean a machine nearby, whatever a name server says.
const LOCAL_SUFFIXES: [&str; 8] = [
    "localhost",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "home.arpa",
];

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    url: Url,
}

impl WebUrl {
    /// Reads an address as a model, or a server that redirects, wrote it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let shown = || quote_short(text);
        if text.len() > MAX_BYTES {
            return Err(format!("The address is longer than {MAX_BYTES} bytes."));
        }
        if text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
        {
            return Err(format!(
                "{} holds a space, a backslash or a control character. Write it as %20, %5C and so on.",
                shown()
            ));
        }
        let mut url = Url::parse(text).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => {
                format!(
                    "{} is no whole address. Write it with its scheme: https://…",
                    shown()
                )
            }
            error => format!("{} is no address: {error}.", shown()),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            let else_where = if url.scheme() == "file" {
                " Use read_file for files of the workspace."
            } else {
                ""
            };
            return Err(format!(
                "fetch_url knows http and https, and {} is neither.{else_where}",
                shown()
            ));
        }
        // What stands before an `@` may be a secret, so nothing of the address is repeated.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "An address with a user or a password in it is refused. Write it without."
                    .to_owned(),
            );
        }
        if url.port() == Some(0) {
            return Err(format!("{} has no port that could be asked.", shown()));
        }
        url.set_fragment(None);
        if let Some(Host::Domain(name)) = url.host() {
            let bare = name.trim_end_matches('.').to_owned();
            if bare.is_empty() || bare.len() != name.len() && url.set_host(Some(&bare)).is_err() {
                return Err(format!("{} names no host.", shown()));
            }
        }
        Ok(Self { url })
    }

    /// The address that a text means when it stands in this place.
    pub(crate) fn join(&self, text: &str) -> Result<Self, String> {
        match self.url.join(text) {
            Ok(url) => Self::parse(url.as_str()),
            Err(_) => Self::parse(text),
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The host, without brackets; for words and as the key of what is known of hosts.
    pub(crate) fn host(&self) -> Host<&str> {
        self.url.host().unwrap_or(Host::Domain(""))
    }

    /// The port, the scheme's own where none is written.
    pub(crate) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Whether what was approved for this address holds for that one: the same host and port, and TLS not given up.
    pub(crate) fn covers_url(&self, other: &Self) -> bool {
        let plain = |place: &Self| place.url.port().is_none();
        let secured = self.url.scheme() == "http"
            && other.url.scheme() == "https"
            && plain(self)
            && plain(other);
        let same = self.url.scheme() == other.url.scheme() && self.port() == other.port();
        self.host() == other.host() && (same || secured)
    }

    /// Whether its name alone says that it is no public host.
    pub(crate) fn is_local_name(&self) -> bool {
        let Host::Domain(name) = self.host() else {
            return false;
        };
        let ends = |suffix: &str| {
            name.strip_suffix(suffix)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| ends(suffix))
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

/// A short form of what was written, for words about it.
fn quote_short(text: &str) -> String {
    let short: String = text
        .chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect();
    format!("`{short}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(WebUrl::parse(text).unwrap().to_string(), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let error = WebUrl::parse(text).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }

    #[test]
    fn one_spelling() {
        check("https://docs.rs/x?y#z", "https://docs.rs/x?y");
        check(" HTTPS://DOCS.rs.:443/x ", "https://docs.rs/x");
        check("http://docs.rs..", "http://docs.rs/");
        check("https://g\u{456}thub.com/", "https://xn--gthub-n2e.com/");
        check("https://gＩthub。com/", "https://github.com/");
        for loopback in [
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.1.",
            "0x7f000001",
            "%31%32%37.1",
        ] {
            check(&format!("http://{loopback}/"), "http://127.0.0.1/");
        }
        check(
            "http://[0:0:0:0:0:FFFF:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
        );
    }

    #[test]
    fn refusals() {
        refused("docs.rs/x", "no whole address");
        refused("", "no whole address");
        refused("/x", "no whole address");
        refused("file:///etc/passwd", "Use read_file");
        refused("ftp://docs.rs/", "knows http and https");
        refused("data:text/plain,x", "knows http and https");
        refused("https://github.com@evil.test/", "a user or a password");
        refused("https://me:secret@docs.rs/", "a user or a password");
        refused("https://:@docs.rs:0/", "no port");
        refused(
            "https://attacker.example\0.google.com/",
            "control character",
        );
        refused("https://attacker.example%00.google.com/", "is no address");
        refused("https://docs.rs\\@evil.test/", "backslash");
        refused("https://a b/", "a space");
        refused("http://[fe80::1%25eth0]/", "is no address");
        refused("http://1.2.3.4.5/", "is no address");
        refused("http://256.1.1.1/", "is no address");
        refused("http://./", "no host");
        refused("https://", "is no address");
        refused(
            &format!("https://docs.rs/{}", "x".repeat(9000)),
            "longer than",
        );
    }

    #[test]
    fn nearby_names() {
        for name in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "metadata.google.internal",
            "printer.local",
            "router",
            "metadata",
        ] {
            assert!(
                WebUrl::parse(&format!("http://{name}/"))
                    .unwrap()
                    .is_local_name(),
                "{name}"
            );
        }
        for name in [
            "docs.rs",
            "localhost.com",
            "internal.example.com",
            "evillocal.org",
        ] {
            assert!(
                !WebUrl::parse(&format!("http://{name}/"))
                    .unwrap()
                    .is_local_name(),
                "{name}"
            );
        }
    }

    #[test]
    fn an_approval_covers_its_host() {
        let check = |from: &str, to: &str, expected: bool| {
            assert_eq!(
                WebUrl::parse(from)
                    .unwrap()
                    .covers_url(&WebUrl::parse(to).unwrap()),
                expected,
                "{from} {to}"
            );
        };
        check("https://github.com/a", "https://GITHUB.com./b", true);
        check("http://github.com/a", "https://github.com/a", true);
        check("https://github.com/a", "http://github.com/a", false);
        check("https://github.com/a", "https://github.com:8443/a", false);
        check("http://github.com:8080/a", "https://github.com/a", false);
        for other in [
            "github.com.evil.com",
            "evilgithub.com",
            "www.github.com",
            "g\u{456}thub.com",
            "xgithub.com",
        ] {
            check("https://github.com/", &format!("https://{other}/"), false);
        }
    }
}
