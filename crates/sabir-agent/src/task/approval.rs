//! Approvals: the questions about calls, and the effect of their answers.
//!
//! A yes is for the one call that was shown. A wider answer is accepted only if it was proposed,
//! and it is proposed only if the user can see everything that is asked: not for commands outside
//! of the sandbox, for a command line with a heredoc or a line break, or for invisible characters.
//! What it allows is added to the rules of the running task, in memory; no record is ever read as
//! an approval.

use sabir_call::{Call, CallId};
use sabir_policy::{Access, ExtraPermissions, PolicyDecision, PolicyRules, Verdict};

use crate::control;
use crate::event::{RuleProposal, UserQuestion, UserReply};
use crate::record::{DecisionMaker, Record};

use super::echo::TextCallRisk;
use super::{Task, TaskEffect, UserMessage};

/// Builds the question about a call.
pub(super) fn approval_question(
    call: Call,
    access: &Access,
    decision: PolicyDecision,
    rules: &PolicyRules,
    caution: TextCallRisk,
) -> UserQuestion {
    UserQuestion::Approval {
        detail: longest_argument(&call),
        call: call.id,
        tool: call.name,
        subject: access_subject(access),
        proposals: rule_proposals(access, decision.proposals, rules),
        reason: decision.reason,
        recovered_from_text: caution.recovered_from_text,
        echo_of: caution.echo_of,
    }
}

impl Task {
    /// Approves or denies a call by the user's reply. Only a yes approves; a message never does.
    pub(super) fn handle_approval(
        &mut self,
        id: &CallId,
        offered: &[RuleProposal],
        reply: UserReply,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some(call) = self.open_call(id).cloned() else {
            return;
        };
        let words = match reply {
            UserReply::Yes => {
                return self.approve_call(id, "the user said yes".to_owned(), effects);
            }
            UserReply::YesWithRules(rules) => {
                let rules: Vec<_> = rules
                    .into_iter()
                    // A front end cannot approve more than the question proposed.
                    .filter(|rule| offered.iter().any(|known| known.rule == *rule))
                    .collect();
                for rule in &rules {
                    // Proposed rules can be parsed; a rule that cannot be parsed allows nothing.
                    _ = self.settings.rules.add_approval(rule);
                }
                return self.approve_call(
                    id,
                    format!(
                        "the user said yes, for this task also to {}",
                        rules.join(", ")
                    ),
                    effects,
                );
            }
            UserReply::No(words) | UserReply::Text(UserMessage { text: words, .. })
                if !words.trim().is_empty() =>
            {
                words
            }
            _ => "no reason was given".to_owned(),
        };
        self.deny_call(&call, DecisionMaker::User, &words, effects);
        self.advance_calls(effects);
    }

    fn approve_call(&mut self, id: &CallId, reason: String, effects: &mut Vec<TaskEffect>) {
        let call = id.clone();
        // The verdict is recorded for readers of the journal. A replay ignores an `allow`, so a
        // resumed task asks again.
        self.commit_record(
            Record::Judged {
                call,
                verdict: Verdict::Allow,
                by: DecisionMaker::User,
                reason,
            },
            effects,
        );
        self.mark_user_approved(id);
        match self
            .open_call(id)
            .filter(|call| call.name == control::SWITCH_MODE_TOOL)
            .cloned()
        {
            Some(call) => {
                self.finish_switch(&call, effects);
                self.advance_calls(effects);
            }
            None => self.run_call(id, effects),
        }
    }
}

/// Returns the rules that may be approved beyond this call, which together answer the question. Empty if there are none.
fn rule_proposals(access: &Access, rules: Vec<String>, held: &PolicyRules) -> Vec<RuleProposal> {
    if !is_plain(access) {
        return Vec::new();
    }
    let mut wider = held.clone();
    let mut offered = Vec::new();
    for rule in rules {
        let Some(words) =
            sabir_policy::describe_proposal(&rule).filter(|_| wider.add_approval(&rule).is_ok())
        else {
            return Vec::new();
        };
        offered.push(RuleProposal { rule, words });
    }
    // Checked: a proposal that does not answer this question would make the user approve more than
    // intended.
    if wider.decide(access).verdict == Verdict::Allow {
        offered
    } else {
        Vec::new()
    }
}

/// Reports whether an access can be checked at a glance.
fn is_plain(access: &Access) -> bool {
    let shows = |text: &str| {
        !text
            .chars()
            .any(|c| c.is_control() || sabir_policy::is_deceptive_char(c))
    };
    match access {
        Access::Command {
            command, beyond, ..
        } => *beyond == ExtraPermissions::Nothing && shows(command) && !command.contains("<<"),
        Access::Several(all) => all.iter().all(is_plain),
        other => shows(&access_subject(other)),
    }
}

fn access_subject(access: &Access) -> String {
    match access {
        Access::Read { path, .. } | Access::Write { path, .. } => path.clone(),
        Access::Command { command, .. } => command.clone(),
        Access::Fetch { url } => url.clone(),
        Access::Server { server, tool, .. } => format!("{server}: {tool}"),
        Access::Several(all) => all
            .iter()
            .map(access_subject)
            .collect::<Vec<_>>()
            .join("\n"),
        Access::Nothing => String::new(),
        Access::Invalid { reason } => reason.clone(),
    }
}

/// Returns the text that a call would write: its longest argument, except for its path or command.
fn longest_argument(call: &Call) -> String {
    let texts = call
        .arguments
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "path" | "command"));
    let texts = texts.filter_map(|(_, value)| value.as_str());
    texts
        .max_by_key(|text| text.len())
        .unwrap_or_default()
        .to_owned()
}
