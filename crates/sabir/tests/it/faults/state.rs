//! Tests configuration files in unexpected states.

use std::time::{Duration, Instant};

use crate::world::{World, code, stderr, stdout};

const WHOLE: &str = "\
model = \"openai/é\"
max_turns = 9
ask_timeout = \"5m\"
[rules]
deny = [\"path=/secret/**\"]
[[models]]
pattern = \"x\"
context = 1000
";

/// Returns the verdict about a command by that configuration; `None` if the configuration is refused.
fn policy_verdict(world: &World, arguments: &[&str]) -> (Option<String>, String) {
    let mut all = vec!["policy", "explain", "--output", "json"];
    all.extend(arguments);
    all.extend(["--", "rm -rf src"]);
    let output = world.sabir().args(all).output().unwrap();
    let said = stderr(&output);
    assert!(!said.contains("panicked"), "{said}");
    if code(&output) == 2 {
        assert!(
            said.contains("config.toml") && stdout(&output).is_empty(),
            "{said}"
        );
        return (None, said);
    }
    let verdict: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    (Some(verdict["verdict"].as_str().unwrap().to_owned()), said)
}

#[test]
fn a_configuration_of_any_bytes_allows_nothing() {
    let world = World::new();
    let check = |bytes: &[u8], expected: Result<(), &str>| {
        let path = world.configure(bytes);
        let (verdict, said) = policy_verdict(&world, &[]);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        match expected {
            Ok(()) => assert_eq!(verdict.as_deref(), Some("ask"), "{shown}: {said}"),
            Err(words) => assert!(
                verdict.is_none() && said.contains(words),
                "{shown}: {verdict:?}: {said}"
            ),
        }
        assert_eq!(
            std::fs::read(path).unwrap(),
            bytes,
            "{shown}: the file is left as it was"
        );
    };
    check(b"", Ok(()));
    check(b"\xef\xbb\xbfmax_turns = 9\n", Ok(()));
    check(b"max_turns = 9\r\n# ok\r\n", Ok(()));
    check(b"max_turns = 9\nmodel = [\n", Err("line 2"));
    check(b"max_turns = \"nine\"\n", Err("line 1, column 13"));
    check(b"max_turns = -1\n", Err("line 1"));
    check(b"max_turns = 99999999999999999999\n", Err("line 1"));
    check(b"rules = 5\n", Err("line 1"));
    check(b"model = \"\0\"\n", Err("line 1"));
    check(b"\xff\xfe", Err("not UTF-8"));
    check(&[0; 4096], Err("line 1"));
    check("[".repeat(100_000).as_bytes(), Err("config.toml"));
    check(
        format!("x = {}", "[".repeat(100_000)).as_bytes(),
        Err("config.toml"),
    );
    // Cut at any byte, it is refused with its position, or asks.
    for cut in (0..WHOLE.len()).step_by(3) {
        world.configure(&WHOLE.as_bytes()[..cut]);
        let (verdict, said) = policy_verdict(&world, &[]);
        match verdict {
            Some(verdict) => assert_eq!(verdict, "ask", "cut at {cut}"),
            None => assert!(
                said.contains("line ") || said.contains("UTF-8"),
                "cut at {cut}: {said}"
            ),
        }
    }
}

/// The user names the wrong file.
#[test]
fn a_configuration_of_50_mb_is_refused_without_parsing() {
    let world = World::new();
    world.configure("# a line of a comment that is of no use\n".repeat(1_300_000));
    let begun = Instant::now();
    let (verdict, said) = policy_verdict(&world, &[]);
    assert!(
        verdict.is_none() && said.contains("MiB"),
        "{verdict:?}: {said}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(300),
        "{:?}",
        begun.elapsed()
    );
}
