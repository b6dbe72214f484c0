//! Elements that belong to no tool: chunks never matter, and elements that are not a call stay text.

use proptest::prelude::*;
use sabir_call::dialect::DialectSet;
use sabir_call::{DraftState, ToolSet};

use crate::chunks::tools;
use crate::notation::{lines, read, read_chunks};

/// Pieces of elements, calls and prose.
const PIECES: &[&str] = &[
    "<use_widget>",
    "</use_widget>",
    "<server_name>",
    "</server_name>",
    "<a>",
    "</a>",
    "<my_list>",
    "</my_list>",
    "<path>",
    "</path>",
    "<read_file>",
    "</read_file>",
    "<ul>",
    "<li>",
    "</li>",
    "</ul>",
    "\n",
    "\r\n",
    " ",
    "words",
    "`",
    "```\n",
    "> ",
    "<",
    "</",
    "_",
    "é",
];

fn pieces() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(PIECES), 0..24)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::case_count::case_count(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_do_not_matter(text in pieces(), size in 1usize..9) {
        for name in ["cline", "auto"] {
            let selection = DialectSet::built_in().select(name).unwrap();
            let whole = lines(&read(selection, &tools(), &text), &text);
            let draft = read_chunks(selection, &tools(), text.as_bytes().chunks(size));
            prop_assert_eq!(lines(&draft, &text), whole, "{}", text);
        }
    }

    #[test]
    fn text_without_a_call_is_unchanged(text in pieces()) {
        let draft = read(DialectSet::built_in().select("cline").unwrap(), &tools(), &text);
        if draft.calls().next().is_none() {
            prop_assert_eq!(draft.text(), text);
        }
    }

    /// Any values in any children make a call, and the values are exact.
    #[test]
    fn whole_elements_are_calls(children in proptest::collection::vec(("[a-z]{1,8}_x", "[a-z<&>\" \n]{0,30}"), 1..5)) {
        let mut text = "Words.\n<use_widget>\n".to_owned();
        let mut names = std::collections::BTreeSet::new();
        for (name, value) in &children {
            prop_assume!(names.insert(name));
            text += &format!("<{name}>{value}.</{name}>\n");
        }
        text += "</use_widget>\n";
        let draft = read(DialectSet::built_in().select("cline").unwrap(), &tools(), &text);
        let calls: Vec<_> = draft.calls().collect();
        prop_assert_eq!(calls.len(), 1, "{}", text);
        prop_assert_eq!(calls[0].state, DraftState::Closed);
        let given: Vec<_> = calls[0].arguments.iter().map(|argument| (argument.name.clone(), argument.text.clone())).collect();
        let expected: Vec<_> = children.iter().map(|(name, value)| (name.clone(), format!("{value}."))).collect();
        prop_assert_eq!(given, expected);
    }
}

#[test]
fn a_model_that_calls_natively_has_no_elements() {
    let text = "<use_widget>\n<a>1</a>\n</use_widget>";
    let all = DialectSet::built_in().all();
    assert_eq!(read(all, &tools(), text).calls().count(), 1);
    assert_eq!(read(all.for_native_calls(), &tools(), text).text(), text);
    assert_eq!(read(all, &ToolSet::default(), text).text(), text);
}

#[test]
fn many_openings_are_read_in_linear_time() {
    // Each opening would be read up to the limit of an element if nothing counted them.
    let text = "<use_widget>\n<a>\n".repeat(100_000);
    let draft = read(DialectSet::built_in().all(), &tools(), &text);
    assert_eq!(draft.text(), text);
}
