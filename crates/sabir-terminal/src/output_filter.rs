//! Hides the output of commands that read files which usually hold secrets, and counts its lines
//! instead.
//!
//! The model still receives the output, since the user has allowed that. The screen does not show
//! it, because others may see the scrollback, a shared terminal or the log of a build.

use sabir_session::call::{Call, CallId};
use sabir_session::command_names_secret_file;
use serde_json::Value;

use crate::print;

/// The outputs hidden from the screen while their commands run.
#[derive(Debug, Default)]
pub struct OutputFilter {
    hidden_outputs: Vec<(CallId, HiddenCount)>,
}

/// The amount of output that was hidden.
#[derive(Debug, Default)]
struct HiddenCount {
    lines: usize,
    /// True if the last line has no line feed yet.
    in_line: bool,
}

impl OutputFilter {
    /// Returns true if the output of this call must not be shown, and counts its lines.
    pub fn hide_output(&mut self, call: Option<&Call>, text: &str) -> bool {
        let Some(call) = call else { return false };
        let command = call.arguments.get("command").and_then(Value::as_str);
        if !command.is_some_and(command_names_secret_file) {
            return false;
        }
        let at = self
            .hidden_outputs
            .iter()
            .position(|(id, _)| *id == call.id)
            .unwrap_or_else(|| {
                self.hidden_outputs
                    .push((call.id.clone(), HiddenCount::default()));
                self.hidden_outputs.len() - 1
            });
        if let Some((_, count)) = self.hidden_outputs.get_mut(at).filter(|_| !text.is_empty()) {
            // A line may come in several pieces; it counts where it ends, or in the summary.
            count.lines += text.matches('\n').count();
            count.in_line = !text.ends_with('\n');
        }
        true
    }

    /// Returns the line shown instead of the hidden output, once the call has its result. Empty if
    /// nothing was hidden.
    pub fn hidden_summary(&mut self, id: &CallId) -> String {
        let Some(at) = self.hidden_outputs.iter().position(|(open, _)| open == id) else {
            return String::new();
        };
        let (_, count) = self.hidden_outputs.swap_remove(at);
        let lines = print::count_noun(count.lines + usize::from(count.in_line), "line");
        format!("  … {lines} of a file that usually holds secrets; not shown\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_across_chunks() {
        let call = |command: &str| Call {
            id: CallId::new("c"),
            name: "execute_command".to_owned(),
            arguments: [("command".to_owned(), Value::from(command))]
                .into_iter()
                .collect(),
            dialect: None,
        };
        let mut folded = OutputFilter::default();
        assert!(
            !folded.hide_output(Some(&call("cat a.txt")), "x\n") && !folded.hide_output(None, "x")
        );
        assert_eq!(folded.hidden_summary(&CallId::new("c")), "");
        for (pieces, expected) in [
            (vec!["A=1\nB", "=2\n", ""], "2 lines"),
            (vec!["A"], "1 line"),
            (vec!["a\n", "b"], "2 lines"),
        ] {
            assert!(
                pieces
                    .iter()
                    .all(|piece| folded.hide_output(Some(&call("cat ./.env")), piece))
            );
            let told = folded.hidden_summary(&CallId::new("c"));
            assert_eq!(
                told,
                format!("  … {expected} of a file that usually holds secrets; not shown\n")
            );
        }
    }
}
