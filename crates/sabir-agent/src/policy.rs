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
}

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no approval rule: use `reads`, `edits`, `commands`, `all`, `none`, or `command=LINE` for one exact command line"
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
    /// Adds a rule: `reads` and `none` (nothing beyond reading), `edits`, `commands`, `all` (both), `command=LINE`.
    ///
    /// # Errors
    /// Any other word, named in the error.
    pub fn approve(&mut self, rule: &str) -> Result<(), RuleError> {
        match rule.split_once('=') {
            Some(("command", line)) if !line.trim().is_empty() => self.exact.push(line.trim().to_owned()),
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
            Access::Read { .. } => {
                judge(Verdict::Deny, "it lies outside of the workspace, where the tools cannot reach")
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
        }
    }
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
        assert!(Rules::default().approve("everything").is_err());
        assert!(Rules::default().approve("command=").is_err());
    }
}
