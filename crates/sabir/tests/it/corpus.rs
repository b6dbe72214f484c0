//! Tests `corpus` through the binary, with small parsers.

use std::process::Output;

use serde_json::Value;

use crate::world::{World, code, stderr, stdout};

fn score(world: &World, options: &[&str], parser: &[&str]) -> Output {
    let mut command = world.sabir();
    command.args(["corpus", "score"]).args(options).arg("--");
    command.args(parser).output().unwrap()
}

#[test]
fn the_page_names_the_number_of_cases() {
    let world = World::new();
    let output = world.sabir().args(["corpus", "export"]).output().unwrap();
    let cases = stdout(&output).lines().count();
    let page = include_str!("../../../../docs/corpus.md");
    assert!(page.contains(&format!(" {cases} texts ")), "{cases} cases");
}

#[test]
fn a_parser_that_fails_is_named_with_its_last_words() {
    let world = World::new();
    let failing = "echo '{\"id\": \"hermes:24\", \"calls\": []}'; echo the last words >&2; exit 3";
    for (parser, texts) in [
        (
            &["no-such-program"][..],
            &["`no-such-program` failed (exit code 127)"][..],
        ),
        (&["false"], &["`false` failed (exit code 1) after 0 of"]),
        (
            &["sh", "-c", failing],
            &["`sh` failed (exit code 3)", "the last words"],
        ),
    ] {
        let output = score(&world, &[], parser);
        assert_eq!(code(&output), 2, "{parser:?} {}", stderr(&output));
        for text in texts {
            assert!(
                stderr(&output).contains(text),
                "{parser:?} {}",
                stderr(&output)
            );
        }
        assert_eq!(stdout(&output), "", "{parser:?}");
    }
}

#[test]
fn a_parser_that_prints_nothing_is_ended() {
    let world = World::new();
    let output = score(&world, &["--limit", "1"], &["sleep", "1000"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let text = "`sleep` failed (ended, because it printed nothing for 1 seconds)";
    assert!(stderr(&output).contains(text), "{}", stderr(&output));
}

#[test]
fn cases_without_an_answer_fail_the_run() {
    let world = World::new();
    let output = score(&world, &["--json"], &["true"]);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("cases have no answer"),
        "{}",
        stderr(&output)
    );
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["total"]["cases"], report["total"]["unanswered"]);

    let own = env!("CARGO_BIN_EXE_sabir");
    let output = score(&world, &["--json"], &[own, "corpus", "answer"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for kind in ["with_calls", "without_calls"] {
        let count = &report["total"][kind];
        assert!(count["cases"].as_u64() > Some(100), "{count}");
        assert_eq!(count["cases"], count["exact"]);
    }
}
