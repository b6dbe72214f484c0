//! Policy: a pure function from what a call would touch to a verdict with its reason.
//!
//! What cannot be judged is denied, never allowed (law 8). Reading inside the workspace is allowed, reading outside of it
//! is denied (the tools cannot reach there), all else asks; rules of the user's widen that. Where nobody can be asked, asking means denying.
//!
//! Architecture invariant: nothing in here reads a transcript. The model has no say in its own approval.

use crate::record::Verdict;
use crate::tool::Access;

/// What the user has approved in advance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Writing inside the workspace, protected paths excepted.
    edits: bool,
    /// Any command.
    commands: bool,
    /// These very command lines.
    exact: Vec<String>,
    /// Documents of these very hosts.
    hosts: Vec<String>,
}

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no approval rule: use `reads`, `edits`, `commands`, `all`, `none`, `command=LINE` for one exact command line, or \
     `host=NAME` for documents of one host"
)]
pub struct RuleError(pub String);

/// A verdict and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in words for the user.
    pub reason: String,
}

impl Rules {
    /// Adds a rule: `reads` and `none` (nothing beyond reading), `edits`, `commands`, `all` (both), `command=LINE`, `host=NAME`.
    ///
    /// # Errors
    /// Any other word, named in the error.
    pub fn approve(&mut self, rule: &str) -> Result<(), RuleError> {
        match rule.split_once('=') {
            Some(("command", line)) if !line.trim().is_empty() => self.exact.push(line.trim().to_owned()),
            Some(("host", name)) if !name.trim().is_empty() => self.hosts.push(name.trim().to_ascii_lowercase()),
            _ => match rule {
                "reads" | "none" => {}
                "edits" => self.edits = true,
                "commands" => self.commands = true,
                "all" => (self.edits, self.commands) = (true, true),
                _ => return Err(RuleError(rule.to_owned())),
            },
        }
        Ok(())
    }

    /// Judges an access.
    pub fn decide(&self, access: &Access) -> Judgement {
        let judge = |verdict, reason: &str| Judgement { verdict, reason: reason.to_owned() };
        match access {
            Access::Nothing => judge(Verdict::Allow, "touches nothing"),
            // The machine answers such a call itself and never runs it.
            Access::Invalid { reason } => Judgement { verdict: Verdict::Deny, reason: reason.clone() },
            Access::Read { outside: false, .. } => judge(Verdict::Allow, "reads inside the workspace"),
            // Named, because a call may read many.
            Access::Read { path, .. } => {
                judge(Verdict::Deny, &format!("`{path}` lies outside of the workspace, where the tools cannot reach"))
            }
            Access::Write { protected: Some(reason), .. } => {
                Judgement { verdict: Verdict::Ask, reason: format!("writes a protected path: {reason}") }
            }
            Access::Write { .. } if self.edits => judge(Verdict::Allow, "edits are approved"),
            Access::Write { .. } => judge(Verdict::Ask, "writes a file"),
            Access::Command { command } if self.exact.iter().any(|line| line == command.trim()) => {
                judge(Verdict::Allow, "this command line is approved")
            }
            Access::Command { .. } if self.commands => judge(Verdict::Allow, "commands are approved"),
            Access::Command { .. } => judge(Verdict::Ask, "runs a command"),
            Access::Fetch { url } if self.hosts.iter().any(|host| host_of(url).as_ref() == Some(host)) => {
                judge(Verdict::Allow, "this host is approved")
            }
            Access::Fetch { .. } => judge(Verdict::Ask, "fetches a document from the network"),
            Access::Several(all) => self.strictest(all),
        }
    }

    /// The strictest verdict, the first of equals; nothing at all touches nothing.
    fn strictest(&self, all: &[Access]) -> Judgement {
        let rank = |verdict| match verdict {
            Verdict::Allow => 0,
            Verdict::Ask => 1,
            Verdict::Deny => 2,
        };
        let judged = all.iter().map(|access| self.decide(access));
        let strictest = judged.reduce(|one, other| if rank(other.verdict) > rank(one.verdict) { other } else { one });
        strictest.unwrap_or_else(|| self.decide(&Access::Nothing))
    }
}

/// The host of an `http` or `https` address without a user's name in it, in lower case. None where it names a port that is not
/// the web's: who approved a host did not mean whatever else runs there.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let plain = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") && !authority.contains('@');
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    (plain && matches!(port, None | Some("80" | "443"))).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::{Rules, Verdict};
    use crate::tool::Access;

    fn check(rules: &[&str], access: &Access, expected: Verdict) {
        let mut all = Rules::default();
        for rule in rules {
            all.approve(rule).unwrap();
        }
        assert_eq!(all.decide(access).verdict, expected, "{rules:?} {access:?}");
    }

    #[test]
    fn verdicts() {
        let read = |outside| Access::Read { path: "a".into(), outside };
        let write =
            |protected: Option<&str>| Access::Write { path: "a".into(), protected: protected.map(str::to_owned) };
        let command = |line: &str| Access::Command { command: line.into() };
        check(&[], &read(false), Verdict::Allow);
        check(&["all"], &read(true), Verdict::Deny);
        check(&["all"], &Access::Invalid { reason: "no path".into() }, Verdict::Deny);
        check(&[], &write(None), Verdict::Ask);
        check(&["edits"], &write(None), Verdict::Allow);
        check(&["all"], &write(Some("git's own")), Verdict::Ask);
        check(&["edits"], &command("ls"), Verdict::Ask);
        check(&["commands"], &command("ls"), Verdict::Allow);
        check(&["command=cargo test"], &command(" cargo test\n"), Verdict::Allow);
        check(&["command=git"], &command("gitevil"), Verdict::Ask);
        check(&["command=echo"], &command("echo $(rm -rf x)"), Verdict::Ask);
        let fetch = |url: &str| Access::Fetch { url: url.into() };
        check(&["all"], &fetch("https://docs.rs/x"), Verdict::Ask);
        check(&["host=Docs.rs"], &fetch("https://docs.rs:443/x"), Verdict::Allow);
        check(&["host=docs.rs"], &fetch("https://docs.rs.evil/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://evildocs.rs/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://docs.rs:8443/x"), Verdict::Ask);
        check(&["host=*.docs.rs"], &fetch("https://xdocs.rs/x"), Verdict::Ask);
        check(&["host=[2606:4700::1]"], &fetch("https://[2606:4700::1]/x"), Verdict::Allow);
        check(&["host=github.com"], &fetch("https://xn--gthub-n2e.com/"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("https://docs.rs@evil/x"), Verdict::Ask);
        check(&["host=docs.rs"], &fetch("file://docs.rs/x"), Verdict::Ask);
        let several = |all: &[Access]| Access::Several(all.to_vec());
        check(&["edits"], &several(&[read(false), write(None)]), Verdict::Allow);
        check(&["edits"], &several(&[write(None), write(Some("git's own")), read(false)]), Verdict::Ask);
        check(&["all"], &several(&[write(Some("git's own")), read(true)]), Verdict::Deny);
        check(&[], &several(&[]), Verdict::Allow);
        let outside = Access::Read { path: "/etc/passwd".into(), outside: true };
        let several = Rules::default().decide(&several(&[read(false), outside, read(false)]));
        assert!(several.reason.contains("`/etc/passwd`"), "{}", several.reason);
        assert!(Rules::default().approve("everything").is_err());
        assert!(Rules::default().approve("command=").is_err());
    }
}
