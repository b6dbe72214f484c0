//! Switching modes: what the model may do by its own word, and what needs the user's.
//!
//! A mode that permits no more than the present one is free. One that permits more is a question, with what becomes possible in it;
//! an approval in advance answers that, but not for a mode that comes from a repository. No rule for tools or commands has a part in it.

use super::Verdict;
use super::mode::{Group, Mode};
use super::{Judgement, Rules, judged};

impl Rules {
    /// Judges a switch to that mode by a call of the model's. `foreign`: the mode is a repository's.
    pub fn switch(&self, to: &Mode, foreign: bool) -> Judgement {
        let Some(from) = self.mode() else { return judged(Verdict::Allow, "no mode holds") };
        if !from.has(Group::Switch) {
            let reason = format!("the mode `{}` does not switch modes by itself; the user can", from.name);
            return judged(Verdict::Deny, &reason);
        }
        let beyond = to.beyond(from);
        if beyond.is_empty() {
            return judged(Verdict::Allow, "the mode permits no more than the present one");
        }
        if !foreign && self.modes.contains(&to.name) {
            return judged(Verdict::Allow, "this mode is approved");
        }
        let whose = if foreign { " of the repository" } else { "" };
        let reason = format!(
            "switches from `{}` to the mode `{}`{whose}, which can also {}",
            from.name,
            to.name,
            beyond.join(", ")
        );
        judged(Verdict::Ask, &reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(name: &str) -> Mode {
        Mode::built_in().into_iter().find(|mode| mode.name == name).unwrap()
    }

    #[test]
    fn only_more_is_asked_about() {
        let check = |approved: &str, from: &str, to: &str, foreign: bool, verdict: Verdict, reason: &str| {
            let mut rules = Rules::default();
            rules.approve(approved).unwrap();
            let judgement = rules.within(mode(from)).switch(&mode(to), foreign);
            assert_eq!(judgement.verdict, verdict, "{approved} {from} {to}");
            assert!(judgement.reason.contains(reason), "{}", judgement.reason);
        };
        check("none", "code", "plan", false, Verdict::Allow, "permits no more");
        check("none", "code", "debug", true, Verdict::Allow, "permits no more");
        let asked = "switches from `plan` to the mode `code`, which can also change files, give work to subtasks, run commands that";
        check("none", "plan", "code", false, Verdict::Ask, asked);
        check("all", "plan", "code", false, Verdict::Ask, asked);
        check("mode=debug", "plan", "code", false, Verdict::Ask, asked);
        check("mode=code", "plan", "code", false, Verdict::Allow, "approved");
        check("mode=act", "plan", "code", false, Verdict::Allow, "approved");
        check("mode=code", "plan", "code", true, Verdict::Ask, "the mode `code` of the repository, which can also");
        let fixed = Mode { groups: vec![Group::Read], ..mode("ask") };
        let mut rules = Rules::default();
        rules.approve("mode=code").unwrap();
        assert_eq!(rules.clone().within(fixed).switch(&mode("ask"), false).verdict, Verdict::Deny);
        assert_eq!(rules.switch(&mode("code"), true).verdict, Verdict::Allow);
    }
}
