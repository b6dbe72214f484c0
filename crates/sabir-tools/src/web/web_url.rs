//! Parses URLs into one spelling, which is checked, requested and shown.
//!
//! # Supported
//! `http` and `https`, names and numbers of hosts, ports. Spellings that mean the same become equal:
//! letter case, a dot at the end of the host, letters beyond ASCII (`xn--…`), and IPv4 addresses in
//! decimal, octal or hexadecimal.
//!
//! # Unsupported
//! Users and passwords, other schemes, zone ids, and backslashes, white space and control characters
//! inside. Each is refused with a reason, since two parsers could understand it differently.

use std::fmt;

use url::{Host, ParseError, Url};

/// The size above which URLs are refused.
const MAX_BYTES: usize = 8 << 10;
/// The length of a URL that error messages repeat.
const MAX_QUOTED_CHARS: usize = 200;

/// Top-level names that mean a machine in the local network, without asking a name server.
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

/// A URL that can be requested, without a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebUrl {
    url: Url,
}

/// The reason that a text is not a URL which can be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    /// The text is too long.
    #[error("The address is longer than {MAX_BYTES} bytes.")]
    TooLong,
    /// The text contains a character that parsers treat differently.
    #[error(
        "{text} holds a space, a backslash or a control character. Write it as %20, %5C and so on."
    )]
    ForbiddenCharacter {
        /// The quoted text.
        text: String,
    },
    /// The text has no scheme.
    #[error("{text} is not a whole address. Write it with its scheme: https://…")]
    Relative {
        /// The quoted text.
        text: String,
    },
    /// The text does not parse.
    #[error("{text} is not an address: {reason}.")]
    Malformed {
        /// The quoted text.
        text: String,
        /// The message of the parser.
        reason: ParseError,
    },
    /// The scheme is `file`.
    #[error(
        "fetch_url knows http and https, and {text} is neither. Use read_file for files of the workspace."
    )]
    FileScheme {
        /// The quoted text.
        text: String,
    },
    /// The scheme is another one.
    #[error("fetch_url knows http and https, and {text} is neither.")]
    UnknownScheme {
        /// The quoted text.
        text: String,
    },
    /// The URL contains a user or a password. The message repeats neither.
    #[error("An address with a user or a password in it is refused. Write it without.")]
    Credentials,
    /// The port is 0.
    #[error("{text} has no usable port.")]
    NoPort {
        /// The quoted text.
        text: String,
    },
    /// The host is empty.
    #[error("{text} names no host.")]
    NoHost {
        /// The quoted text.
        text: String,
    },
}

impl WebUrl {
    /// Parses a URL as a model, or a server that redirects, wrote it.
    ///
    /// # Errors
    /// [`UrlError`] for everything that is not supported.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        // Before anything else, so that no message repeats a huge text.
        if text.len() > MAX_BYTES {
            return Err(UrlError::TooLong);
        }
        let quoted = quote_short(text);
        if text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
        {
            return Err(UrlError::ForbiddenCharacter { text: quoted });
        }
        let mut url = match Url::parse(text) {
            Ok(url) => url,
            Err(ParseError::RelativeUrlWithoutBase) => {
                return Err(UrlError::Relative { text: quoted });
            }
            Err(reason) => {
                return Err(UrlError::Malformed {
                    text: quoted,
                    reason,
                });
            }
        };
        match url.scheme() {
            "http" | "https" => {}
            "file" => return Err(UrlError::FileScheme { text: quoted }),
            _ => return Err(UrlError::UnknownScheme { text: quoted }),
        }
        // The part before an `@` may be a secret, which must not come into the history.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Credentials);
        }
        if url.port() == Some(0) {
            return Err(UrlError::NoPort { text: quoted });
        }
        // Servers never see the fragment, and the kept pages are found by the URL without it.
        url.set_fragment(None);
        if let Some(Host::Domain(name)) = url.host() {
            // `docs.rs.` is the same host as `docs.rs`.
            let bare = name.trim_end_matches('.').to_owned();
            if bare.is_empty() || bare.len() != name.len() && url.set_host(Some(&bare)).is_err() {
                return Err(UrlError::NoHost { text: quoted });
            }
        }
        Ok(Self { url })
    }

    /// Parses a URL that may be relative to this one.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub(crate) fn join_relative(&self, text: &str) -> Result<Self, UrlError> {
        match self.url.join(text) {
            Ok(url) => Self::parse(url.as_str()),
            // This fails too, with a message about the text itself.
            Err(_) => Self::parse(text),
        }
    }

    /// Returns the parsed URL.
    pub(crate) fn as_url(&self) -> &Url {
        &self.url
    }

    /// Returns the host. An IPv6 address has no brackets.
    pub(crate) fn host(&self) -> Host<&str> {
        self.url.host().unwrap_or(Host::Domain(""))
    }

    /// Returns the port; the default of the scheme if none is written.
    fn effective_port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Reports whether an approval of this URL covers another one: the same host and port, and no change from HTTPS to HTTP.
    pub(crate) fn covers_url(&self, other: &Self) -> bool {
        let has_default_port = |url: &Self| url.url.port().is_none();
        // The usual redirect from http to https changes scheme and port.
        let is_upgrade = self.url.scheme() == "http"
            && other.url.scheme() == "https"
            && has_default_port(self)
            && has_default_port(other);
        let is_same = self.url.scheme() == other.url.scheme()
            && self.effective_port() == other.effective_port();
        self.host() == other.host() && (is_same || is_upgrade)
    }

    /// Reports whether the name alone shows that the host is not public: a name without a dot, or with
    /// a suffix for local networks.
    pub(crate) fn is_local_name(&self) -> bool {
        let Host::Domain(name) = self.host() else {
            return false;
        };
        let ends_with = |suffix: &str| {
            name.strip_suffix(suffix)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        // Names without a dot are resolved by the search list of the machine, or by its hosts file.
        !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| ends_with(suffix))
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

/// Quotes the start of a text for an error message, with control characters escaped.
fn quote_short(text: &str) -> String {
    let short: String = text
        .chars()
        .take(MAX_QUOTED_CHARS)
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
        let error = WebUrl::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }

    #[test]
    fn addresses_are_normalized() {
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
        refused("docs.rs/x", "not a whole address");
        refused("", "not a whole address");
        refused("/x", "not a whole address");
        refused("file:///etc/passwd", "Use read_file");
        refused("ftp://docs.rs/", "knows http and https");
        refused("data:text/plain,x", "knows http and https");
        refused("https://github.com@evil.test/", "a user or a password");
        refused("https://me:secret@docs.rs/", "a user or a password");
        refused("https://:@docs.rs:0/", "no usable port");
        refused(
            "https://attacker.example\0.google.com/",
            "control character",
        );
        refused(
            "https://attacker.example%00.google.com/",
            "is not an address",
        );
        refused("https://docs.rs\\@evil.test/", "backslash");
        refused("https://a b/", "a space");
        refused("http://[fe80::1%25eth0]/", "is not an address");
        refused("http://1.2.3.4.5/", "is not an address");
        refused("http://256.1.1.1/", "is not an address");
        refused("http://./", "no host");
        refused("https://", "is not an address");
        refused(
            &format!("https://docs.rs/{}", "x".repeat(9000)),
            "longer than",
        );
    }

    #[test]
    fn local_names_are_recognized() {
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
