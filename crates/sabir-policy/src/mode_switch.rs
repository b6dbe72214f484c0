//! Checks mode switches that the model asks for.
//!
//! A switch to a mode that permits no more than the current one is allowed. A switch to a mode that permits more asks, and the
//! question lists the new abilities. An approval in advance (`mode=NAME`) answers it, except for a mode that a repository defines.
//! Rules for tools or commands have no influence.
//!
//! Only switches by the model are checked here. The user switches by a command of the front end, which needs no approval.

use super::Verdict;
use super::mode::{Mode, ToolGroup};
use super::{PolicyDecision, PolicyRules, plain_decision};

impl PolicyRules {
    /// Checks a switch to a mode by a call of the model. `foreign` is true if a repository defines the mode.
    ///
    /// The question names the new abilities, since an approval grants them.
    pub fn decide_mode_switch(&self, to: &Mode, foreign: bool) -> PolicyDecision {
        let Some(from) = self.mode() else {
            return plain_decision(Verdict::Allow, "no mode holds");
        };
        if !from.has_group(ToolGroup::Switch) {
            let reason = format!(
                "the mode `{}` does not switch modes by itself; the user can",
                from.name
            );
            return plain_decision(Verdict::Deny, &reason);
        }
        let beyond = to.extra_abilities(from);
        if beyond.is_empty() {
            return plain_decision(
                Verdict::Allow,
                "the mode permits no more than the present one",
            );
        }
        if !foreign && self.modes.contains(&to.name) {
            return plain_decision(Verdict::Allow, "this mode is approved");
        }
        let whose = if foreign { " of the repository" } else { "" };
        let reason = format!(
            "switches from `{}` to the mode `{}`{whose}, which can also {}",
            from.name,
            to.name,
            beyond.join(", ")
        );
        plain_decision(Verdict::Ask, &reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(name: &str) -> Mode {
        Mode::built_in_modes()
            .into_iter()
            .find(|mode| mode.name == name)
            .unwrap()
    }

    #[test]
    fn switches_ask_only_for_more_abilities() {
        let check = |approved: &str,
                     from: &str,
                     to: &str,
                     foreign: bool,
                     verdict: Verdict,
                     reason: &str| {
            let mut rules = PolicyRules::default();
            rules.add_approval(approved).unwrap();
            let decision = rules
                .with_mode(mode(from))
                .decide_mode_switch(&mode(to), foreign);
            assert_eq!(decision.verdict, verdict, "{approved} {from} {to}");
            assert!(decision.reason.contains(reason), "{}", decision.reason);
        };
        check(
            "none",
            "code",
            "plan",
            false,
            Verdict::Allow,
            "permits no more",
        );
        check(
            "none",
            "code",
            "debug",
            true,
            Verdict::Allow,
            "permits no more",
        );
        let asked = "switches from `plan` to the mode `code`, which can also change files, give work to subtasks, run commands that";
        check("none", "plan", "code", false, Verdict::Ask, asked);
        check("all", "plan", "code", false, Verdict::Ask, asked);
        check("mode=debug", "plan", "code", false, Verdict::Ask, asked);
        check(
            "mode=code",
            "plan",
            "code",
            false,
            Verdict::Allow,
            "approved",
        );
        check(
            "mode=act",
            "plan",
            "code",
            false,
            Verdict::Allow,
            "approved",
        );
        check(
            "mode=code",
            "plan",
            "code",
            true,
            Verdict::Ask,
            "the mode `code` of the repository, which can also",
        );
        let fixed = Mode {
            groups: vec![ToolGroup::Read],
            ..mode("ask")
        };
        let mut rules = PolicyRules::default();
        rules.add_approval("mode=code").unwrap();
        assert_eq!(
            rules
                .clone()
                .with_mode(fixed)
                .decide_mode_switch(&mode("ask"), false)
                .verdict,
            Verdict::Deny
        );
        assert_eq!(
            rules.decide_mode_switch(&mode("code"), true).verdict,
            Verdict::Allow
        );
    }
}
