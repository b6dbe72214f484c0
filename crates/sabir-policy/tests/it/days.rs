//! Working days: how often a user is asked who approves each kind of command when it is first proposed.

use sabir_policy::{PolicyRules, Verdict};

use super::judge;

#[test]
fn asking_costs_little() {
    let (mut all, mut prompts) = (0, Vec::new());
    for day in include_str!("days.txt").split("\n\n") {
        let mut rules = PolicyRules::default();
        for line in day
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            all += 1;
            let judgement = judge(&rules, line);
            if judgement.verdict == Verdict::Allow {
                continue;
            }
            prompts.push(line);
            judgement
                .proposals
                .iter()
                .for_each(|rule| rules.add_approval(rule).unwrap());
        }
    }
    println!(
        "{} of {all} commands asked:\n{}",
        prompts.len(),
        prompts.join("\n")
    );
    assert!(all >= 290, "{all}");
    assert!(
        prompts.len() * 10 <= all,
        "{} of {all} commands ask:\n{}",
        prompts.len(),
        prompts.join("\n")
    );
}
