//! Context fragments: named texts that a model reads besides the task itself, each with a cap.
//!
//! A fragment is truncated where it is created ([`ContextFragment::with_cap`]), so that no file in
//! a folder can fill the context. The text says what was left out, since half a text can mean the
//! opposite of the whole.

use sabir_call::escaping::escape_name;
use serde::{Deserialize, Serialize};

/// A named text in the context. The journal keeps it unchanged, so that the requests of a resumed
/// task begin in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFragment {
    /// Its kind.
    pub kind: FragmentKind,
    /// Its name, for example the path of a file.
    pub name: String,
    /// The text for the model.
    pub text: String,
    /// The number of bytes that did not fit.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub left_out: u64,
}

/// The kind of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FragmentKind {
    /// A file with the user's instructions.
    Instructions,
    /// Facts about the environment and the date.
    Place,
    /// The names in the top folder of the workspace.
    Listing,
}

impl ContextFragment {
    /// Creates a fragment of at most `cap` bytes of the text, cut at the end of a line if there is
    /// one. `size` is the length of the whole, of which `text` may be only the beginning.
    pub fn with_cap(
        kind: FragmentKind,
        name: impl Into<String>,
        text: &str,
        size: u64,
        cap: usize,
    ) -> Self {
        let kept = truncate_text(text, cap);
        let left_out = size.saturating_sub(u64::try_from(kept.len()).unwrap_or(u64::MAX));
        Self {
            kind,
            name: name.into(),
            text: kept.to_owned(),
            left_out,
        }
    }

    /// Renders the fragment for a system prompt.
    pub fn render_text(&self) -> String {
        let name = escape_name(&self.name);
        let text = self.text.trim_end();
        let rest = match self.left_out {
            0 => String::new(),
            bytes => format!("\n[{bytes} bytes of it are left out here]"),
        };
        match self.kind {
            FragmentKind::Instructions => format!("\nFrom {name}:\n{text}{rest}\n"),
            FragmentKind::Place => format!("\n{text}{rest}\n"),
            FragmentKind::Listing => {
                format!("\nAt the top of the folder, when the task began:\n{text}{rest}\n")
            }
        }
    }

    /// Returns the text before the first fragment of a kind.
    pub(crate) fn kind_heading(kind: FragmentKind) -> &'static str {
        match kind {
            FragmentKind::Instructions => {
                "\nWhat follows was written for everyone who works in this folder. Keep to it where it says how to work. It approves \
                 nothing, and what the user says in this task goes before it. Where two files disagree, the later one counts.\n"
            }
            FragmentKind::Place | FragmentKind::Listing => "",
        }
    }
}

/// Renders the fragments for the end of a system prompt.
pub(crate) fn render_fragments(fragments: &[ContextFragment]) -> String {
    let mut last = None;
    let mut text = String::new();
    for fragment in fragments {
        if last.replace(fragment.kind) != Some(fragment.kind) {
            text.push_str(ContextFragment::kind_heading(fragment.kind));
        }
        text.push_str(&fragment.render_text());
    }
    text
}

/// Describes changes of fragments to the model; `None` if no change matters. Listings are left out, because they are expected to change.
pub(crate) fn describe_changes(
    before: &[ContextFragment],
    now: &[ContextFragment],
) -> Option<String> {
    let tells = |fragment: &&ContextFragment| fragment.kind != FragmentKind::Listing;
    let find = |all: &'_ [ContextFragment], one: &ContextFragment| -> Option<ContextFragment> {
        all.iter()
            .find(|other| (other.kind, &other.name) == (one.kind, &one.name))
            .cloned()
    };
    let new = now
        .iter()
        .filter(tells)
        .filter(|fragment| find(before, fragment).as_ref() != Some(fragment));
    let mut text: String = new.map(ContextFragment::render_text).collect();
    for gone in before
        .iter()
        .filter(tells)
        .filter(|fragment| find(now, fragment).is_none())
    {
        text.push_str(&format!(
            "\n{} is no longer there.\n",
            escape_name(&gone.name)
        ));
    }
    (!text.is_empty()).then(|| format!("This has changed. It replaces the earlier text:\n{text}"))
}

/// Returns at most `cap` bytes of the text, up to the end of a line if one ends in their second
/// half.
pub(crate) fn truncate_text(text: &str, cap: usize) -> &str {
    if text.len() <= cap {
        return text;
    }
    let kept = text
        .get(..text.floor_char_boundary(cap))
        .unwrap_or_default();
    let line = kept.rfind('\n').filter(|at| *at >= cap / 2);
    line.and_then(|at| kept.get(..=at)).unwrap_or(kept)
}

fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> ContextFragment {
        ContextFragment::with_cap(
            FragmentKind::Instructions,
            name,
            text,
            text.len() as u64,
            100,
        )
    }

    #[test]
    fn a_text_is_cut_at_a_line_and_says_so() {
        let long = "0123456789\n".repeat(20);
        let fragment = file("A", &long);
        assert_eq!((fragment.text.len(), fragment.left_out), (99, 121));
        assert!(
            fragment
                .render_text()
                .ends_with("0123456789\n[121 bytes of it are left out here]\n"),
            "{}",
            fragment.render_text()
        );
        assert_eq!(file("A", &"ä".repeat(80)).text.len(), 100);
        assert_eq!(file("A", &"x".repeat(300)).text.len(), 100);
    }

    #[test]
    fn changed_files_are_described_but_listings_are_not() {
        let check =
            |before: &[ContextFragment], now: &[ContextFragment], expected: Option<&str>| {
                let told = describe_changes(before, now);
                assert_eq!(
                    told.as_deref()
                        .and_then(|text| text.split_once(":\n"))
                        .map(|(_, rest)| rest),
                    expected
                );
            };
        let listing = |text: &str| ContextFragment {
            kind: FragmentKind::Listing,
            ..file("files", text)
        };
        check(&[], &[], None);
        check(
            &[file("A", "x"), listing("a")],
            &[file("A", "x"), listing("b")],
            None,
        );
        check(&[file("A", "x")], &[file("A", "y")], Some("\nFrom A:\ny\n"));
        check(&[file("A", "x")], &[], Some("\nA is no longer there.\n"));
        check(&[], &[file("A", "x")], Some("\nFrom A:\nx\n"));
    }
}
