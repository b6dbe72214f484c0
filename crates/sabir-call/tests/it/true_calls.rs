//! Checks that words around a true call, with quotation marks, tags and tokens in them, do not stop it. Two attempts to reject
//! quoted calls lost some of these.

use proptest::prelude::*;
use sabir_call::dialect::{Dialect, DialectSet};
use sabir_call::{Call, CallId, DraftResponse, DraftState, ToolSet};
use serde_json::json;

use crate::case_count::{case_count, sampled_positions};
use crate::notation::read_chunks;

/// The dialects whose calls have no marker, or one of ordinary words: words behind them make them prose.
const UNMARKED: [&str; 3] = ["json", "pythonic", "react"];

/// Words around a true call.
const TRUE: [&str; 34] = [
    "The build failed with \"Cannot find module 'foo'\".\n\n@\n\nI also set target=\"es2020\" there.",
    "The \"user\" wants it 5\" wide.\n\n@\n\nThat was \"it\".",
    "He said \"abc\n\n@",
    "He said \"abc\n\n@\n\nNow I know what \"abc\" is.",
    "He said “abc\n\n@\n\nNow I know what “abc” is.",
    "He said \"abc\n\n@\n\n\"Foo\" is next.",
    "The screen has 24\".\n\n@\n\nThe other has 27\".",
    "A 5\" screen, a 7\" one, 3 1/2\" disks.\n\n@\n\nIt is 9\" long.",
    "He said \"abc, see\n\n@\n\nIt is 9\" long.",
    "It's the user's file.\n\n@\n\nIt's 'done'.",
    "`\"` begins a string.\n\n@\n\nand `\"` ends it.",
    "```\nprint(\"a\n```\n\n@\n\n```\nb\")\n```\n",
    "A string begins with \" and\n\n@\n\nends with \" too.",
    "He wrote \"\"\"a\"\"\" and \"\".\n\n@\n\n\"b\" is next.",
    "join(\", \") and '\"' are code.\n\n@\n\nso is \"c\".",
    "An escaped \\\" mark.\n\n@\n\nand one \\\" more",
    "<a href=\"x\">y</a>\n\n@\n\n<b class=\"c\">",
    "他说“好”。\n\n@\n\n他说\"好\"。",
    "Il dit « oui ».\n\n@\n\nIl dit « non ».",
    "»Ja« sagte er.\n\n@\n\n»Nein« sagte sie.",
    "Er sagte „ja“.\n\n@\n\nSie sagte „nein“.",
    "彼は「はい」と言った。\n\n@\n\n「いいえ」も。",
    "He wrote: \"Send this.\"\n\n@\n\n\"And that.\"",
    "I set *\"a\"* and _\"b\"_ and (\"c\").\n\n@\n\nThen *\"d\"*.",
    "key=\"value\n\n@\n\nother=\"thing\"",
    "I need to fix the \"foo\n\n@\n\nThat's \"bar\".",
    "const a = \"b;\n\n@\n\nconst c = d\";",
    "Ditto:\n  \"\n  \"\n\n@\n\nDone\".",
    "The '90s were \"great\".\n\n@\n\nThe dogs' house.",
    "The error: expected `\"`, found \"x\n\n@\n\nI fixed it: \"x\".",
    "You said \"now\". @\n\nIt was \"then\".",
    "You said “now”. @\n\nIt was “then”.",
    "b\"bytes\" and r#\"raw\"# and f\"{x}\".\n\n@\n\nlet x = r\"a\", b\"c\";",
    "He said 'yes \"no' and:\n\n@\n\n\"Maybe\" (or \"not\").",
];

/// Words around true calls that attempts to reject quoted calls have lost.
const ONCE_LOST: [&str; 55] = [
    // A quoted word that ends in a colon.
    "Each line starts with \"Error: \" so I read it:\n\n@\n\nThe user wrote it is fine.\"",
    "The prefix is \"Error: \", so I check:\n\n@\n\n> \"It failed.\nYes.\" ",
    "The keys are \"a: \" and \"b: \", so I check:\n\n@\n\nIs the size 5.\"?",
    // Tags that are words of the text.
    "The <script> tag in index.html isn't closed.\n\n@\n\nI added the missing </script>.",
    "I'll wrap each prompt in an <example> tag.\n\n@\n\nEach prompt is now `<example>…</example>`.",
    "A <blockquote> is open.\n\n@\n\n```\n</blockquote>\n```\n",
    "One <sample> more.\n\n@\n\nThen </sample>.",
    "<script>\n\n@\n\n</script>\n",
    "<example_dir> is the directory to read.\n\n@",
    "<code-example> is an element.\n\n@",
    "<example-card> is an element.\n\n@",
    "<your-example-key> is a placeholder.\n\n@",
    "<Example name=\"a\"> is a component.\n\n@",
    "<pre class=\"x\"> is used.\n\n@",
    "The <samp> output:\n@",
    "Press <kbd>Ctrl\n@",
    "The <tt> tag\n@",
    // Marks without a partner.
    "The heading reads \"Hello\n\n@\n\nWorld\", so I joined the lines.",
    "The string \"abc is not terminated.\n\n@\n\nI changed it to abc\".",
    "The string is \"abc, not terminated.\n\n@\n\nI changed it to \"abc.\"",
    "echo \"a\n@\necho b\"",
    "print(\"a)\n@\nprint(a\"",
    "“读取\"\n\n@\n\n\"完成”",
    "“读取”：\n\n@\n\n“完成。”",
    "\"I'll read the file now.\n\n@\"",
    "\"I'll read the file now:\n\n@\n\nDone.\"",
    "\"I'll read the file now.\n\n@\n\"",
    "The title is: \"Hello\n\nI read the file:\n\n@\n\nIt says hello.\"",
    "The title is: \"Hello\n\n@\n\nIt says hello.\"",
    "The title is: \"Hello:\n\n@\n\nIt says \"hello.\"",
    "The title is: \"Hello:\n\n@\n\nIt is 5\" wide.\"",
    "name: \"foo:\n\n@\n\nother: \"bar.\"",
    "He wrote: \"To do so, send\n\n@\" and stopped.",
    "The paths:\n\n- \"a\n\n@\n\n- b.\"",
    // Sentences and announcements.
    "I'll read main.c. @ (one moment)",
    "It is 5 p.m. @ ok",
    "Let me check @ (a moment)",
    "Let me check — @ — ok",
    "I check the file @ | then more",
    "好的@，我再看",
    "先看文件@。",
    "我来看看。@",
    "模型会看文件@然后等待。",
    "Steps: @; then I report.",
    "Plan: @, then tests.",
    "Plan：@，然后。",
    "Reading: @",
    // Two calls.
    "I will read both: @, @",
    "I will read both: @; @",
    "I check the file @ | @",
    "Reading: @\n@; ok",
    "Reading:\n@\n@\nok",
    "<Example name=\"a\">\n@\n\n@\n",
    "The title is: \"Hello\n\n@\n\n@\n\nIt says hello.\"",
    "<script>\n@\n\n@\n</script>\n",
];

fn tools() -> ToolSet {
    ToolSet::from_json(
        r#"[{"name": "write_to_file", "parameters": {"properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}]"#,
    )
    .unwrap()
}

fn render(dialect: &Dialect) -> String {
    let arguments = json!({"path": "a.txt", "content": "one \"two\" three"});
    let call = Call {
        id: CallId::new("c1"),
        name: "write_to_file".to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        dialect: None,
    };
    dialect.render_calls(&[call], &tools())
}

/// Returns the number of calls that would run.
fn count_runs(draft: &DraftResponse) -> usize {
    let runs = |index| draft.errors_of(index).count() == 0;
    let calls = draft.calls();
    calls
        .filter(|call| call.state == DraftState::Closed && runs(call.index))
        .count()
}

/// Reads a text by name and as all dialects, whole and in splits. Records each reading in which not `expected` calls run.
fn check_text(dialect: &Dialect, text: &str, expected: usize, wrong: &mut Vec<String>) {
    let auto = DialectSet::built_in().all();
    for (reach, selection) in [("by name", dialect.into()), ("auto", auto)] {
        let whole = read_chunks(selection, &tools(), [text.as_bytes()]);
        let mut note = |what: &str| wrong.push(format!("{} {reach}, {what}: {text}", dialect.name));
        if count_runs(&whole) != expected {
            note("runs");
        }
        if whole != read_chunks(selection, &tools(), text.as_bytes().chunks(1)) {
            note("in bytes");
        }
        for at in sampled_positions(text.len(), text.len() + 1, 29) {
            let (head, tail) = text.as_bytes().split_at(at);
            if whole != read_chunks(selection, &tools(), [head, tail]) {
                note(&format!("split at {at}"));
            }
        }
    }
}

/// Returns words with the place of a call, `@`, for a dialect. Behind a call without a marker there are none.
fn words_for(words: &str, dialect: &Dialect) -> String {
    if !UNMARKED.contains(&dialect.name) {
        return words.to_owned();
    }
    let before = words.split('@').next().unwrap_or_default();
    format!("{}\n\n@", before.trim_end())
}

/// Puts the call of a dialect into words.
fn place_call(words: &str, dialect: &Dialect) -> String {
    words_for(words, dialect).replace('@', &render(dialect))
}

#[test]
fn words_that_once_lost_a_call_lose_none() {
    let mut wrong = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        for words in ONCE_LOST {
            let words = words_for(words, dialect);
            let calls = words.matches('@').count();
            check_text(
                dialect,
                &words.replace('@', &render(dialect)),
                calls,
                &mut wrong,
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn quotation_marks_around_a_true_call_do_not_stop_it() {
    let mut wrong = Vec::new();
    for dialect in DialectSet::built_in().iter() {
        for words in TRUE {
            check_text(dialect, &place_call(words, dialect), 1, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Words without any quotation mark.
const PLAIN: [&str; 6] = [
    "I looked at it.",
    "It's the dogs' house",
    "don't",
    "see 'this' (or that):",
    "größer — ist's",
    "a < b && c > d",
];

/// Words whose quotation marks are in pairs, or where no reader can tell what they are.
const MARKED: [&str; 22] = [
    "\"quoted words\",",
    "(\"in parentheses\").",
    "*\"emphasized\"*",
    "_\"emphasized\"_",
    "target=\"es2020\"",
    "a 5\" screen",
    "3 1/2\" (or 7\") disks",
    "\"Cannot find module 'foo'\".",
    "the 'old \"new\" one'",
    "`a \" b`",
    "printf(\"%s\\n\", x);",
    "join(\", \")",
    "'\"'",
    "\\\"",
    "\"\"",
    "b\"x\"",
    "“curly”",
    "„tief“",
    "« oui »",
    "»ja«",
    "「はい」",
    "  \"\n  \"",
];

/// The beginnings of quotations that never end.
const STRAY: [&str; 6] = [
    "see \"foo",
    "he said: \"Well",
    "key=\"value",
    "“oops",
    "„oje",
    "« zut",
];

fn paragraphs(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let paragraph = proptest::collection::vec(proptest::sample::select(words), 1..5)
        .prop_map(|words| words.join(" "));
    proptest::collection::vec(paragraph, 0..4).prop_map(|all| all.join("\n\n"))
}

fn dialect() -> impl Strategy<Value = &'static Dialect> {
    proptest::sample::select(DialectSet::built_in().iter().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(case_count(60)))]

    /// Neither marks in pairs nor stray ones before a call, in words of any kind, lose it.
    #[test]
    fn no_quotation_marks_of_prose_lose_a_call(
        dialect in dialect(),
        before in paragraphs(&MARKED),
        stray in proptest::option::of(proptest::sample::select(&STRAY)),
        plain in paragraphs(&PLAIN),
        behind in paragraphs(&MARKED),
    ) {
        let words = format!("{before} {}\n\n{plain}\n\n@\n\n{behind}", stray.unwrap_or_default());
        let mut wrong = Vec::new();
        check_text(dialect, &place_call(&words, dialect), 1, &mut wrong);
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
