//! What commands print of files that usually hold secrets: counted, not shown.
//!
//! The model gets it, since its user has allowed that. A screen keeps it for whoever scrolls back, shares the terminal or keeps the log
//! of a build.

use sabir_call::{Call, CallId};
use sabir_policy::names_secrets;
use serde_json::Value;

use crate::output::print;

/// The outputs that are kept from the screen while their commands run.
#[derive(Debug, Default)]
pub(crate) struct OutputFilter {
    hidden_outputs: Vec<(CallId, HiddenCount)>,
}

/// How much was not shown.
#[derive(Debug, Default)]
struct HiddenCount {
    lines: usize,
    /// Whether the last line has not ended.
    in_line: bool,
}

impl OutputFilter {
    /// Whether what this call prints is not to be shown; it is counted, then.
    pub(crate) fn hide_output(&mut self, call: Option<&Call>, text: &str) -> bool {
        let Some(call) = call else { return false };
        let command = call.arguments.get("command").and_then(Value::as_str);
        if !command.is_some_and(names_secrets) {
            return false;
        }
        let at = self.hidden_outputs.iter().position(|(id, _)| *id == call.id).unwrap_or_else(|| {
            self.hidden_outputs.push((call.id.clone(), HiddenCount::default()));
            self.hidden_outputs.len() - 1
        });
        if let Some((_, count)) = self.hidden_outputs.get_mut(at).filter(|_| !text.is_empty()) {
            count.lines += text.matches('\n').count();
            count.in_line = !text.ends_with('\n');
        }
        true
    }

    /// What is said instead, once the call has its result; nothing, where nothing was left out.
    pub(crate) fn hidden_summary(&mut self, id: &CallId) -> String {
        let Some(at) = self.hidden_outputs.iter().position(|(open, _)| open == id) else { return String::new() };
        let (_, count) = self.hidden_outputs.swap_remove(at);
        let lines = print::count_noun(count.lines + usize::from(count.in_line), "line");
        format!("  … {lines} of a file that usually holds secrets; not shown\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_across_pieces() {
        let call = |command: &str| Call {
            id: CallId::new("c"),
            name: "execute_command".to_owned(),
            arguments: [("command".to_owned(), Value::from(command))].into_iter().collect(),
            dialect: None,
        };
        let mut folded = OutputFilter::default();
        assert!(!folded.hide_output(Some(&call("cat a.txt")), "x\n") && !folded.hide_output(None, "x"));
        assert_eq!(folded.hidden_summary(&CallId::new("c")), "");
        for (pieces, expected) in
            [(vec!["A=1\nB", "=2\n", ""], "2 lines"), (vec!["A"], "1 line"), (vec!["a\n", "b"], "2 lines")]
        {
            assert!(pieces.iter().all(|piece| folded.hide_output(Some(&call("cat ./.env")), piece)));
            let told = folded.hidden_summary(&CallId::new("c"));
            assert_eq!(told, format!("  … {expected} of a file that usually holds secrets; not shown\n"));
        }
    }
}
