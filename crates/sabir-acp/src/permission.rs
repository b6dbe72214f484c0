//! Asks the client's user about a call, and reads the answer. Anything but a clear yes is a no.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    Meta, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionId, ToolCallUpdate,
};
use sabir_session::Decision;
use sabir_session::agent::RuleProposal;
use serde_json::Value;

use crate::message_text::allow_always_label;

/// The id of the option that allows this call alone.
const ALLOW: &str = "allow";
/// The id of the option that allows calls like this one in the rest of the task.
const ALWAYS: &str = "always";
/// The id of the option that denies.
const REJECT: &str = "reject";
/// The key of an answer's `_meta` that holds the reason for a no. The protocol has no field for it.
const REASON: &str = "reason";

/// Builds the request for a call. The option that allows further calls is offered only if there are rule proposals, and names exactly what
/// it allows.
pub(crate) fn permission_request(
    session: SessionId,
    call: ToolCallUpdate,
    proposals: &[RuleProposal],
) -> RequestPermissionRequest {
    let option = |id: &'static str, name: String, kind| PermissionOption::new(id, name, kind);
    let mut options = vec![option(
        ALLOW,
        "Allow once".to_owned(),
        PermissionOptionKind::AllowOnce,
    )];
    if !proposals.is_empty() {
        options.push(option(
            ALWAYS,
            allow_always_label(proposals),
            PermissionOptionKind::AllowAlways,
        ));
    }
    options.push(option(
        REJECT,
        "Deny".to_owned(),
        PermissionOptionKind::RejectOnce,
    ));
    RequestPermissionRequest::new(session, call, options)
}

/// Reads the answer to a request.
pub(crate) fn read_decision(
    answer: Result<RequestPermissionResponse, Error>,
    proposals: &[RuleProposal],
) -> Decision {
    let deny = |reason: &str| Decision::Deny {
        reason: reason.to_owned(),
    };
    let answer = match answer {
        Ok(answer) => answer,
        // A client without the method, or one that is gone.
        Err(_) => return deny("the editor could not ask the user"),
    };
    let RequestPermissionOutcome::Selected(selected) = &answer.outcome else {
        return deny("the question was cancelled");
    };
    match selected.option_id.0.as_ref() {
        ALLOW => Decision::Allow,
        ALWAYS if !proposals.is_empty() => Decision::AllowAlways {
            rules: proposals
                .iter()
                .map(|proposal| proposal.rule.clone())
                .collect(),
        },
        // Clients may put it beside the outcome or into it.
        REJECT => deny(&given_reason(&[&answer.meta, &selected.meta])),
        _ => deny("the editor's answer was none of the options"),
    }
}

/// Returns the reason in the first of these that has one.
fn given_reason(metas: &[&Option<Meta>]) -> String {
    let reason = metas
        .iter()
        .find_map(|meta| meta.as_ref()?.get(REASON).and_then(Value::as_str));
    reason.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{SelectedPermissionOutcome, ToolCallUpdateFields};

    use super::*;

    fn proposals() -> Vec<RuleProposal> {
        ["a", "b"]
            .map(|name| RuleProposal {
                rule: format!("command={name}"),
                words: format!("`{name}`"),
            })
            .to_vec()
    }

    fn selected(id: &'static str) -> Result<RequestPermissionResponse, Error> {
        Ok(RequestPermissionResponse::new(
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id)),
        ))
    }

    #[test]
    fn proposals_are_one_option_that_names_them_all() {
        let call = ToolCallUpdate::new("1", ToolCallUpdateFields::new());
        let names = |proposals: &[RuleProposal]| {
            let request = permission_request(SessionId::new("s"), call.clone(), proposals);
            let names = request.options.into_iter().map(|option| option.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            names(&proposals()),
            ["Allow once", "Always in this task: `a`; `b`", "Deny"]
        );
        assert_eq!(names(&[]), ["Allow once", "Deny"]);
    }

    #[test]
    fn only_a_clear_yes_allows() {
        let is_denied = |answer, proposals: &[RuleProposal]| {
            matches!(read_decision(answer, proposals), Decision::Deny { .. })
        };
        assert_eq!(
            read_decision(selected(ALLOW), &proposals()),
            Decision::Allow
        );
        assert_eq!(
            read_decision(selected(ALWAYS), &proposals()),
            Decision::AllowAlways {
                rules: vec!["command=a".to_owned(), "command=b".to_owned()]
            }
        );
        // Not offered without proposals, so it is not an answer to what was shown.
        assert!(is_denied(selected(ALWAYS), &[]));
        assert!(is_denied(selected(REJECT), &proposals()));
        assert!(is_denied(selected("allow_all"), &proposals()));
        assert!(is_denied(Err(Error::method_not_found()), &proposals()));
        let cancelled = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
        assert!(is_denied(Ok(cancelled), &proposals()));
    }

    #[test]
    fn a_no_can_have_a_reason() {
        let meta = serde_json::json!({"reason": "use the other file"});
        let answer = selected(REJECT)
            .unwrap()
            .meta(meta.as_object().cloned().unwrap());
        assert_eq!(
            read_decision(Ok(answer), &[]),
            Decision::Deny {
                reason: "use the other file".to_owned()
            }
        );
    }
}
