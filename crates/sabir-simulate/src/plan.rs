//! Plans: what kind of a day one simulated task has.
//!
//! Each seed has a plan of its own with most troubles switched off and a few switched on: where everything goes wrong at once,
//! nothing gets far enough to go wrong in an interesting way.

use std::time::Duration;

use sabir_agent::{
    Arguments, Attended, Conditions, Context, Fragment, FragmentKind, Limits, OpenTodos, Settings, Start,
    SubtaskLimits, TaskId,
};
use sabir_call::dialect::CLINE;
use sabir_call::{Dollars, Prices, Protocol, ToolSet};
use sabir_policy::{RuleKind, Rules};

use crate::chance::Chance;
use crate::sabotage::Sabotage;

/// The host that a rule forbids.
pub(crate) const FORBIDDEN: &str = "forbidden.example";
/// The host that everything else is fetched from.
pub(crate) const HOST: &str = "site.example";
/// What the check of a completion looks at.
pub(crate) const CHECKED: &str = "everything";
/// The instructions.
pub(crate) const SYSTEM: &str = "Be brief.";
/// The user's first words to a task that is no subtask.
const PROMPT: &str = "Do it.";

/// What kind of a day it is.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The user's first words.
    pub(crate) prompt: String,
    /// Whether it is a call of another task's that began it.
    pub(crate) is_subtask: bool,
    pub(crate) user: Mood,
    pub(crate) model: Habits,
    pub(crate) terms: Terms,
    pub(crate) disk_trouble: bool,
    /// How many of a thousand tools do something else than succeed.
    pub(crate) tool_trouble: u64,
    /// Processes at most.
    pub(crate) lives: u32,
    /// Of how many lives one ends in a crash; 0: none.
    pub(crate) crashes: u64,
}

/// What the user is like.
#[derive(Debug, Clone)]
pub(crate) struct Mood {
    pub(crate) attended: Attended,
    /// How many of a thousand answers are no plain yes.
    pub(crate) moody: u64,
    /// Within how many happenings something is said unasked; 0: never.
    pub(crate) talks: u64,
    /// Whether answers come where words come, and not where the question was put.
    pub(crate) by_channel: bool,
}

/// What the model is like.
#[derive(Debug, Clone)]
pub(crate) struct Habits {
    /// Whether calls are written as text.
    pub(crate) prompted: bool,
    /// How many of a thousand answers fail.
    pub(crate) trouble: u64,
    /// How many of a thousand calls are written badly.
    pub(crate) bad_calls: u64,
    /// After how many turns it wants to complete.
    pub(crate) length: u32,
    /// How many of a thousand calls repeat an earlier one.
    pub(crate) repeats: u64,
    /// How many of a thousand answers bring a list of todos.
    pub(crate) todos: u64,
    /// How many of a thousand calls are handed to a subtask.
    pub(crate) delegates: u64,
}

/// What was agreed with the user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// Whether writing is approved in advance.
    pub(crate) edits: bool,
    pub(crate) todos: OpenTodos,
    /// Whether a completion is checked.
    pub(crate) check: bool,
    pub(crate) limits: Limits,
    pub(crate) time: Option<Duration>,
    /// The tokens that there is room for, and how much of that may be filled, in percent.
    pub(crate) room: Option<(u64, u8)>,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        Self {
            prompt: PROMPT.to_owned(),
            is_subtask: false,
            user: Mood::draw(chance),
            model: Habits::draw(chance),
            terms: Terms::draw(chance),
            disk_trouble: chance.below(5) == 0,
            tool_trouble: chance.pick(100, &[0, 300, 600]),
            lives: u32::try_from(chance.between(1, 6)).unwrap_or(1),
            crashes: chance.pick(0, &[1, 2, 3]),
        }
    }

    pub(crate) fn settings(&self, tools: ToolSet, readers: Vec<String>, sabotage: Option<Sabotage>) -> Settings {
        let mut rules = Rules::default();
        // What is written here can be read by the policy; what it cannot read allows nothing.
        _ = rules.add(RuleKind::Deny, &format!("host={FORBIDDEN}"));
        if self.terms.edits {
            _ = rules.approve("edits");
        }
        let price = |nanos| Some(Dollars::from_nanos(nanos));
        let limits = self.terms.limits;
        let endless = Limits { turns: None, tokens: None, cost: None, cycles: u32::MAX, ..limits };
        Settings {
            system: SYSTEM.to_owned(),
            model: "m".to_owned(),
            tools,
            readers,
            pollers: Vec::new(),
            rules,
            attended: self.user.attended,
            limits: if sabotage == Some(Sabotage::RaiseLimits) { endless } else { limits },
            completion: self.terms.conditions(sabotage),
            repairs: sabir_check::Repairs::all(),
            max_output: None,
            prices: Prices { input: price(1_000_000), output: price(5_000_000), ..Prices::default() },
        }
    }

    /// What the model is told of its place, and how much there is room for.
    pub(crate) fn context(&self, version: u32) -> Context {
        let rule = rule(version);
        let kept = Fragment::capped(FragmentKind::Instructions, "RULES.md", &rule, rule.len() as u64, 1000);
        let (window, threshold) = self.terms.room.unzip();
        Context { fragments: vec![kept], window, threshold: threshold.unwrap_or(sabir_agent::THRESHOLD) }
    }

    pub(crate) fn start(&self, seed: u64) -> Start {
        Start {
            task: TaskId::new(format!("seed-{seed}")),
            prompt: self.prompt.clone(),
            workspace: "/w".to_owned(),
            model: "m".to_owned(),
            protocol: if self.model.prompted { Protocol::Prompted(CLINE.to_owned()) } else { Protocol::Native },
            version: "0".to_owned(),
            edit_tool: None,
            mode: None,
            from: None,
        }
    }
}

/// The rule that stands in the folder, in its versions.
pub(crate) fn rule(version: u32) -> String {
    format!("Keep to rule {version}.")
}

impl Mood {
    fn draw(chance: &mut Chance) -> Self {
        let attended = chance.pick(Attended::Yes, &[Attended::Yes, Attended::Yes, Attended::No, Attended::Program]);
        Self {
            attended,
            moody: chance.pick(100, &[0, 300, 600, 900]),
            talks: chance.pick(0, &[0, 30, 100, 300]),
            by_channel: attended == Attended::Program || chance.below(3) == 0,
        }
    }
}

impl Habits {
    fn draw(chance: &mut Chance) -> Self {
        Self {
            prompted: chance.below(3) == 0,
            trouble: if chance.below(3) == 0 { chance.below(300) } else { 0 },
            bad_calls: chance.pick(100, &[0, 300, 600]),
            length: u32::try_from(chance.between(1, 12)).unwrap_or(1),
            repeats: chance.pick(0, &[0, 0, 0, 100, 900]),
            todos: chance.pick(0, &[0, 100, 400]),
            delegates: chance.pick(0, &[0, 0, 0, 300]),
        }
    }
}

impl Terms {
    fn draw(chance: &mut Chance) -> Self {
        let mut limits = Limits { turns: None, ..Limits::default() };
        limits.mistakes = u32::try_from(chance.between(2, 8)).unwrap_or(6);
        limits.cycles = u32::try_from(chance.between(3, 6)).unwrap_or(6);
        limits.subtasks = SubtaskLimits {
            depth: chance.pick(0, &[1, 1, 2]),
            at_once: chance.index(3) + 1,
            most: chance.pick(20, &[1, 3]),
        };
        if chance.below(3) == 0 {
            limits.turns = u32::try_from(chance.between(1, 20)).ok();
        }
        if chance.below(10) == 0 {
            limits.cost = Some(Dollars::from_nanos(chance.between(1, 20_000)));
        }
        if chance.below(10) == 0 {
            limits.tokens = Some(chance.between(1, 10_000));
        }
        let room = chance.below(3) == 0;
        Self {
            edits: chance.below(2) == 0,
            todos: if chance.below(3) == 0 { OpenTodos::Refused } else { OpenTodos::Allowed },
            check: chance.below(4) == 0,
            limits,
            time: (chance.below(4) == 0).then(|| Duration::from_secs(chance.between(1, 40_000))),
            room: room.then(|| (chance.between(700, 4000), chance.pick(80, &[50, 90]))),
        }
    }

    fn conditions(&self, sabotage: Option<Sabotage>) -> Conditions {
        let mut arguments = Arguments::new();
        arguments.insert("path".to_owned(), CHECKED.into());
        let check = self.check && sabotage != Some(Sabotage::SkipCheck);
        let lax = sabotage == Some(Sabotage::AllowOpenTodos);
        Conditions {
            todos: if lax { OpenTodos::Allowed } else { self.todos },
            check: check.then(|| ("touch".to_owned(), arguments)),
        }
    }
}
