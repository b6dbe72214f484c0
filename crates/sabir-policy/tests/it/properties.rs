//! Properties of the policy, for any rules and any lines made of parts that matter.

use proptest::prelude::*;
use proptest::sample::select;
use sabir_policy::{PolicyRules, RuleKind, Verdict};

use super::decide_line;

const COMMANDS: [&str; 30] = [
    "ls -la",
    "cat a.txt",
    "git status",
    "git push origin main",
    "touch x",
    "rm -rf src",
    "echo $(touch x)",
    "echo $(ls)",
    "grep -rn foo .",
    "cargo test",
    "sort -o x a.txt",
    "cat /etc/passwd",
    "x=1",
    "PATH=. ls",
    "ls > x",
    "ls 2>/dev/null",
    "find . -exec rm {} +",
    "git log -3",
    "sed -n 1p a.txt",
    "cat ../x",
    "echo \"$y\"",
    "cd src",
    "[ -f a ]",
    "bash -c 'ls; touch x'",
    "f() { ls; }",
    "echo `ls`",
    "git commit -m x",
    "make",
    "./x",
    "cat <<< a",
];
const RULES: [&str; 12] = [
    "ls **",
    "cargo test **",
    "git push **",
    "git **",
    "touch *",
    "kind=make",
    "rm **",
    "cat **",
    "echo **",
    "path=**/a.txt",
    "path=src/",
    "path=/etc/",
];

fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Ask => 1,
        Verdict::Deny => 2,
    }
}

fn strictness(rules: &PolicyRules, line: &str) -> u8 {
    rank(decide_line(rules, line).verdict)
}

fn rules() -> impl Strategy<Value = PolicyRules> {
    let kind = select(vec![RuleKind::Allow, RuleKind::Ask, RuleKind::Deny]);
    let approvals = prop::collection::vec(
        select(vec!["commands", "edits", "all", "none", "kind=make"]),
        0..2,
    );
    (
        prop::collection::vec((kind, select(RULES.to_vec())), 0..3),
        approvals,
    )
        .prop_map(|(patterns, approvals)| {
            let mut rules = PolicyRules::default();
            for (kind, pattern) in patterns {
                rules.add_rule(kind, pattern).unwrap();
            }
            approvals
                .into_iter()
                .for_each(|rule| rules.add_approval(rule).unwrap());
            rules
        })
}

/// Ways to run a command without changing it.
fn wraps(command: &str) -> Vec<String> {
    let quoted = command.replace('\'', "'\\''");
    let mut all = vec![
        format!("({command})"),
        format!("{{ {command}; }}"),
        format!("true && {command}"),
        format!("{command} | cat"),
        format!("echo a | {command}"),
        format!("for i in 1; do {command}; done"),
        format!("if true; then {command}; fi"),
        format!("while true; do {command}; done"),
        format!("case a in a) {command};; esac"),
        format!("! {command}"),
        format!("time {command}"),
        format!("{command} &"),
        format!("bash -c '{quoted}'"),
        format!("echo $({command})"),
        format!("echo \"$({command})\""),
        format!("cat <({command})"),
        format!("f() {{ {command}; }}; f"),
        format!("\n{command}\n"),
        format!("{command} # so it is"),
    ];
    if !command.contains(['=', '(', '$', '`']) && !command.starts_with("cd ") {
        all.extend(
            [
                "env",
                "timeout 5",
                "nice -n 5",
                "nohup",
                "command",
                "stdbuf -oL",
                "sudo",
                "xargs",
            ]
            .map(|name| format!("{name} {command}")),
        );
    }
    all
}

/// The same words, otherwise quoted.
fn quotings(command: &str) -> Vec<String> {
    let words: Vec<&str> = command.split(' ').collect();
    let each = |quote: &dyn Fn(&str) -> String| {
        words
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" ")
    };
    vec![
        each(&|word| format!("'{word}'")),
        each(&|word| format!("\"{word}\"")),
        each(&|word| word.chars().map(|c| format!("\\{c}")).collect()),
        each(&|word| format!("{}''{}", &word[..1], &word[1..])),
        command.replace(' ', " \t  "),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_wrap_never_weakens(rules in rules(), command in select(COMMANDS.to_vec())) {
        let bare = strictness(&rules, command);
        for wrapped in wraps(command) {
            // A rule for a wrapper, or for words that only the wrap contains, may make it stricter,
            // never weaker.
            prop_assert!(strictness(&rules, &wrapped) >= bare, "{command} is {bare}, {wrapped} is less");
        }
    }

    #[test]
    fn wraps_within_wraps_never_weaken(command in select(COMMANDS.to_vec()), one in 0..19_usize, other in 0..19_usize) {
        let rules = PolicyRules::default();
        let inner = wraps(command)[one].clone();
        let outer = wraps(&inner)[other].clone();
        prop_assert!(strictness(&rules, &outer) >= strictness(&rules, command), "{outer}");
    }

    #[test]
    fn one_more_part_never_weakens(rules in rules(), one in select(COMMANDS.to_vec()), other in select(COMMANDS.to_vec()), sign in select(vec!["; ", " && ", " || ", " | ", " & ", "\n"])) {
        let both = strictness(&rules, &format!("{one}{sign}{other}"));
        prop_assert!(both >= strictness(&rules, one), "{one}{sign}{other}");
        // `cd src` in front makes `cat ../x` a path inside; nothing else in front of a command
        // widens it.
        if !one.starts_with("cd ") {
            prop_assert!(both >= strictness(&rules, other), "{one}{sign}{other}");
        }
    }

    #[test]
    fn one_more_deny_or_ask_rule_never_loosens(rules in rules(), rule in select(RULES.to_vec()), deny in any::<bool>(), command in select(COMMANDS.to_vec())) {
        let mut stricter = rules.clone();
        stricter.add_rule(if deny { RuleKind::Deny } else { RuleKind::Ask }, rule).unwrap();
        prop_assert!(strictness(&stricter, command) >= strictness(&rules, command), "{rule} {command}");
    }

    #[test]
    fn one_more_allow_rule_never_tightens_nor_beats_a_deny(rules in rules(), rule in select(RULES.to_vec()), command in select(COMMANDS.to_vec())) {
        let mut looser = rules.clone();
        looser.add_rule(RuleKind::Allow, rule).unwrap();
        let (before, after) = (strictness(&rules, command), strictness(&looser, command));
        prop_assert!(after <= before, "{rule} {command}");
        prop_assert!(before != 2 || after == 2, "{rule} {command}");
    }

    #[test]
    fn quotes_change_nothing(rules in rules(), command in select(vec!["ls -la", "cat a.txt", "git status", "git push origin main", "touch x", "rm -rf src", "cargo test", "sort -o x a.txt", "find . -delete", "grep -rn foo .", "git log -3", "env touch x", "cd src"])) {
        let bare = strictness(&rules, command);
        for quoted in quotings(command) {
            prop_assert_eq!(strictness(&rules, &quoted), bare, "{}", quoted);
        }
    }

    #[test]
    fn no_text_panics(text in "(\\PC|[ \t\n'\"\\\\$`(){}<>|&;*?\\[\\]=~#!-]|ls|cat |git |find |\\$\\(|<<|do|done|if|fi){0,60}") {
        _ = decide_line(&PolicyRules::default(), &text);
    }

    #[test]
    fn control_and_invisible_characters_ask(at in 0..6_usize, c in select(vec!['\r', '\u{0}', '\u{1b}', '\u{7f}', '\u{85}', '\u{202e}', '\u{200b}', '\u{2066}', '\u{feff}', '\u{a0}', '\u{2028}', '\u{3000}', '\u{ad}', '\u{e0041}'])) {
        let mut line = "ls -la".to_owned();
        line.insert(at, c);
        let mut rules = PolicyRules::default();
        rules.add_approval("all").unwrap();
        rules.add_rule(RuleKind::Allow, "ls **").unwrap();
        prop_assert_eq!(decide_line(&rules, &line).verdict, Verdict::Ask);
    }
}

#[test]
fn depth_and_length_ask() {
    let ask = |line: &str| {
        assert_ne!(
            decide_line(&PolicyRules::default(), line).verdict,
            Verdict::Allow,
            "{}",
            &line[..40]
        )
    };
    ask(&format!("{}ls{}", "(".repeat(5000), ")".repeat(5000)));
    ask(&format!("{}ls{}", "$(".repeat(5000), ")".repeat(5000)));
    ask(&format!(
        "{}true{}",
        "if true; then ".repeat(3000),
        "; fi".repeat(3000)
    ));
    ask(&format!(
        "{}true{}",
        "while true; do ".repeat(3000),
        "; done".repeat(3000)
    ));
    ask(&"ls;".repeat(40_000));
    ask(&format!("echo {}", "a".repeat(200_000)));
    ask(&"! ".repeat(30_000));
    ask(&format!("{}ls", "{ ".repeat(3000)));
    ask(&format!("case {} in esac", "case x in x) ".repeat(2000)));
}
