//! Plans: what kind of a day one simulated task has.
//!
//! Each seed has a plan of its own with most troubles switched off and a few switched on: where everything goes wrong at once,
//! nothing gets far enough to go wrong in an interesting way.

use std::time::Duration;

use sabir_agent::{Attended, Conditions, Limits, Rules, Settings, Start, TaskId, policy::RuleKind};
use sabir_call::dialect::CLINE;
use sabir_call::{Dollars, Prices, Protocol, ToolSet};

use crate::chance::Chance;

/// The host that a rule forbids.
pub(crate) const FORBIDDEN: &str = "forbidden.example";
/// The host that everything else is fetched from.
pub(crate) const HOST: &str = "site.example";

/// What kind of a day it is.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) attended: bool,
    /// Whether writing is approved in advance.
    pub(crate) edits: bool,
    /// Whether calls are written as text.
    pub(crate) prompted: bool,
    pub(crate) disk_trouble: bool,
    /// How many of a thousand answers fail.
    pub(crate) model_trouble: u64,
    /// How many of a thousand calls are written badly.
    pub(crate) bad_calls: u64,
    /// How many of a thousand tools do something else than succeed.
    pub(crate) tool_trouble: u64,
    /// How many of a thousand answers of the user's are no plain yes.
    pub(crate) moody: u64,
    /// Processes at most.
    pub(crate) lives: u32,
    /// Of how many lives one ends in a crash; 0: none.
    pub(crate) crashes: u64,
    /// After how many turns the model wants to complete.
    pub(crate) length: u32,
    pub(crate) limits: Limited,
}

/// When a life stops.
#[derive(Debug, Clone)]
pub(crate) struct Limited {
    pub(crate) machine: Limits,
    pub(crate) time: Option<Duration>,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let rarely = |chance: &mut Chance, most: u64| if chance.below(3) == 0 { chance.below(most) } else { 0 };
        let attended = chance.below(3) > 0;
        Self {
            attended,
            edits: chance.below(2) == 0,
            prompted: chance.below(3) == 0,
            disk_trouble: chance.below(5) == 0,
            model_trouble: rarely(chance, 300),
            bad_calls: chance.pick(100, &[0, 300, 600]),
            tool_trouble: chance.pick(100, &[0, 300, 600]),
            moody: chance.pick(100, &[0, 300, 600, 900]),
            lives: u32::try_from(chance.between(1, 6)).unwrap_or(1),
            crashes: chance.pick(0, &[1, 2, 3]),
            length: u32::try_from(chance.between(1, 12)).unwrap_or(1),
            limits: Limited::draw(chance),
        }
    }

    pub(crate) fn settings(&self, tools: ToolSet, readers: Vec<String>) -> Settings {
        let mut rules = Rules::default();
        // What is written here can be read by the policy; what it cannot read allows nothing.
        _ = rules.add(RuleKind::Deny, &format!("host={FORBIDDEN}"));
        if self.edits {
            _ = rules.approve("edits");
        }
        let price = |nanos| Some(Dollars::from_nanos(nanos));
        Settings {
            system: "Be brief.".to_owned(),
            model: "m".to_owned(),
            tools,
            readers,
            pollers: Vec::new(),
            rules,
            attended: if self.attended { Attended::Yes } else { Attended::No },
            limits: self.limits.machine,
            completion: Conditions::default(),
            repairs: sabir_check::Repairs::all(),
            max_output: None,
            prices: Prices { input: price(1_000_000), output: price(5_000_000), ..Prices::default() },
        }
    }

    pub(crate) fn start(&self, seed: u64) -> Start {
        Start {
            task: TaskId::new(format!("seed-{seed}")),
            prompt: "Do it.".to_owned(),
            workspace: "/w".to_owned(),
            model: "m".to_owned(),
            protocol: if self.prompted { Protocol::Prompted(CLINE.to_owned()) } else { Protocol::Native },
            version: "0".to_owned(),
            edit_tool: None,
            mode: None,
            from: None,
        }
    }
}

impl Limited {
    fn draw(chance: &mut Chance) -> Self {
        let mut machine = Limits { turns: None, ..Limits::default() };
        machine.mistakes = u32::try_from(chance.between(2, 8)).unwrap_or(6);
        if chance.below(3) == 0 {
            machine.turns = u32::try_from(chance.between(1, 20)).ok();
        }
        if chance.below(10) == 0 {
            machine.cost = Some(Dollars::from_nanos(chance.between(1, 20_000)));
        }
        let time = (chance.below(4) == 0).then(|| Duration::from_secs(chance.between(1, 40_000)));
        Self { machine, time }
    }
}
