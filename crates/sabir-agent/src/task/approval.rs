//! Approvals: what the user is asked about a call, and what an answer allows.
//!
//! A yes is for the one call that was shown. A wider answer is only taken where it was offered, and it is offered only where the
//! user can see all that is asked: not for what runs outside of the sandbox, for lines that hold more than one line, or for
//! characters that nobody sees. What it allows is added to the rules of the running task, in memory; no record is ever read as an
//! approval.

use sabir_call::{Call, CallId};
use sabir_policy::{Access, Beyond, PolicyDecision, PolicyRules, Verdict};

use crate::control;
use crate::event::{RuleProposal, UserQuestion, UserReply};
use crate::record::{DecisionMaker, Record};

use super::{Task, TaskEffect};

/// The question about a call.
pub(super) fn approval_question(
    call: Call,
    access: &Access,
    judgement: PolicyDecision,
    rules: &PolicyRules,
) -> UserQuestion {
    UserQuestion::Approval {
        detail: longest_argument(&call),
        call: call.id,
        tool: call.name,
        subject: access_subject(access),
        proposals: rule_proposals(access, judgement.proposals, rules),
        reason: judgement.reason,
    }
}

impl Task {
    /// Only a yes approves: words, even friendly ones, do not.
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
                    .filter(|rule| offered.iter().any(|known| known.rule == *rule))
                    .collect();
                for rule in &rules {
                    // What was offered can be understood; what cannot allows nothing.
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
            UserReply::No(words) | UserReply::Text(words) if !words.trim().is_empty() => words,
            _ => "no reason was given".to_owned(),
        };
        self.deny_call(&call, DecisionMaker::User, &words, effects);
        self.advance_calls(effects);
    }

    fn approve_call(&mut self, id: &CallId, reason: String, effects: &mut Vec<TaskEffect>) {
        let call = id.clone();
        self.commit_record(
            Record::Judged {
                call,
                verdict: Verdict::Allow,
                by: DecisionMaker::User,
                reason,
            },
            effects,
        );
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

/// What may be approved beyond this call: rules that are known to answer the question, or none.
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
    if wider.decide(access).verdict == Verdict::Allow {
        offered
    } else {
        Vec::new()
    }
}

/// Whether all of it can be taken in at a glance.
fn is_plain(access: &Access) -> bool {
    let shows = |text: &str| {
        !text
            .chars()
            .any(|c| c.is_control() || sabir_policy::is_deceiving(c))
    };
    match access {
        Access::Command {
            command, beyond, ..
        } => *beyond == Beyond::Nothing && shows(command) && !command.contains("<<"),
        Access::Several(all) => all.iter().all(is_plain),
        other => shows(&access_subject(other)),
    }
}

fn access_subject(access: &Access) -> String {
    match access {
        Access::Read { path, .. } | Access::Write { path, .. } => path.clone(),
        Access::Command { command, .. } => command.clone(),
        Access::Fetch { url } => url.clone(),
        Access::Server { server, tool } => format!("{server}: {tool}"),
        Access::Several(all) => all
            .iter()
            .map(access_subject)
            .collect::<Vec<_>>()
            .join("\n"),
        Access::Nothing => String::new(),
        Access::Invalid { reason } => reason.clone(),
    }
}

/// What a call would write: the longest text among its arguments, but for the one that names the place.
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
