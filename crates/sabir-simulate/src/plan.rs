//! Plans: what kind of a day one simulated task has.
//!
//! Each seed has a plan of its own with most troubles switched off and a few switched on: where everything goes wrong at once,
//! nothing gets far enough to go wrong in an interesting way.

use std::time::Duration;

use sabir_agent::{
    CallArguments, CompletionConditions, ContextFragment, FragmentKind, Interactivity, OpenTodos, RequestContext,
    SubtaskLimits, TaskId, TaskLimits, TaskSettings, TaskStart,
};
use sabir_call::dialect::CLINE;
use sabir_call::{Dollars, TokenPrices, ToolProtocol, ToolSet};
use sabir_policy::{PolicyRules, RuleKind};

use crate::rng::SeededRng;
use crate::sabotage::Sabotage;

/// The host that a rule forbids.
pub(crate) const FORBIDDEN_HOST: &str = "forbidden.example";
/// The host that everything else is fetched from.
pub(crate) const ALLOWED_HOST: &str = "site.example";
/// What the check of a completion looks at.
pub(crate) const CHECK_PATH: &str = "everything";
/// The instructions.
pub(crate) const SYSTEM_PROMPT: &str = "Be brief.";
/// The user's first words to a task that is no subtask.
const FIRST_PROMPT: &str = "Do it.";

/// What kind of a day it is.
#[derive(Debug, Clone)]
pub(crate) struct TaskPlan {
    /// The user's first words.
    pub(crate) prompt: String,
    /// Whether it is a call of another task's that began it.
    pub(crate) is_subtask: bool,
    pub(crate) user: UserHabits,
    pub(crate) model: ModelHabits,
    pub(crate) terms: TaskTerms,
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
pub(crate) struct UserHabits {
    pub(crate) attended: Interactivity,
    /// How many of a thousand answers are no plain yes.
    pub(crate) moody: u64,
    /// Within how many happenings something is said unasked; 0: never.
    pub(crate) talks: u64,
    /// Whether answers come where words come, and not where the question was put.
    pub(crate) by_channel: bool,
}

/// What the model is like.
#[derive(Debug, Clone)]
pub(crate) struct ModelHabits {
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
pub(crate) struct TaskTerms {
    /// Whether writing is approved in advance.
    pub(crate) edits: bool,
    pub(crate) todos: OpenTodos,
    /// Whether a completion is checked.
    pub(crate) check: bool,
    pub(crate) limits: TaskLimits,
    pub(crate) time: Option<Duration>,
    /// The tokens that there is room for, and how much of that may be filled, in percent.
    pub(crate) room: Option<(u64, u8)>,
}

impl TaskPlan {
    pub(crate) fn from_rng(chance: &mut SeededRng) -> Self {
        Self {
            prompt: FIRST_PROMPT.to_owned(),
            is_subtask: false,
            user: UserHabits::from_rng(chance),
            model: ModelHabits::from_rng(chance),
            terms: TaskTerms::from_rng(chance),
            disk_trouble: chance.below(5) == 0,
            tool_trouble: chance.pick_one(100, &[0, 300, 600]),
            lives: u32::try_from(chance.in_range(1, 6)).unwrap_or(1),
            crashes: chance.pick_one(0, &[1, 2, 3]),
        }
    }

    pub(crate) fn settings(&self, tools: ToolSet, readers: Vec<String>, sabotage: Option<Sabotage>) -> TaskSettings {
        let mut rules = PolicyRules::default();
        // What is written here can be read by the policy; what it cannot read allows nothing.
        _ = rules.add_rule(RuleKind::Deny, &format!("host={FORBIDDEN_HOST}"));
        if self.terms.edits {
            _ = rules.add_approval("edits");
        }
        let price = |nanos| Some(Dollars::from_nanos(nanos));
        let limits = self.terms.limits;
        let endless = TaskLimits { turns: None, tokens: None, cost: None, cycles: u32::MAX, ..limits };
        TaskSettings {
            system: SYSTEM_PROMPT.to_owned(),
            model: "m".to_owned(),
            tools,
            read_only_tools: readers,
            polling_tools: Vec::new(),
            rules,
            interactivity: self.user.attended,
            limits: if sabotage == Some(Sabotage::RaiseLimits) { endless } else { limits },
            completion: self.terms.completion_conditions(sabotage),
            dialects: sabir_call::dialect::DialectSet::default(),
            repairs: sabir_check::RepairSet::all(),
            max_output: None,
            prices: TokenPrices { input: price(1_000_000), output: price(5_000_000), ..TokenPrices::default() },
        }
    }

    /// What the model is told of its place, and how much there is room for.
    pub(crate) fn context(&self, version: u32) -> RequestContext {
        let rule = rule_text(version);
        let kept = ContextFragment::with_cap(FragmentKind::Instructions, "RULES.md", &rule, rule.len() as u64, 1000);
        let (window, threshold) = self.terms.room.unzip();
        RequestContext {
            fragments: vec![kept],
            window,
            threshold: threshold.unwrap_or(sabir_agent::DEFAULT_THRESHOLD_PERCENT),
        }
    }

    pub(crate) fn start(&self, seed: u64) -> TaskStart {
        TaskStart {
            task: TaskId::new(format!("seed-{seed}")),
            prompt: self.prompt.clone(),
            workspace: "/w".to_owned(),
            model: "m".to_owned(),
            protocol: if self.model.prompted { ToolProtocol::Prompted(CLINE.to_owned()) } else { ToolProtocol::Native },
            version: "0".to_owned(),
            edit_tool: None,
            mode: None,
            from: None,
        }
    }
}

/// The rule that stands in the folder, in its versions.
pub(crate) fn rule_text(version: u32) -> String {
    format!("Keep to rule {version}.")
}

impl UserHabits {
    fn from_rng(chance: &mut SeededRng) -> Self {
        let attended = chance.pick_one(
            Interactivity::Interactive,
            &[
                Interactivity::Interactive,
                Interactivity::Interactive,
                Interactivity::Headless,
                Interactivity::Controlled,
            ],
        );
        Self {
            attended,
            moody: chance.pick_one(100, &[0, 300, 600, 900]),
            talks: chance.pick_one(0, &[0, 30, 100, 300]),
            by_channel: attended == Interactivity::Controlled || chance.below(3) == 0,
        }
    }
}

impl ModelHabits {
    fn from_rng(chance: &mut SeededRng) -> Self {
        Self {
            prompted: chance.below(3) == 0,
            trouble: if chance.below(3) == 0 { chance.below(300) } else { 0 },
            bad_calls: chance.pick_one(100, &[0, 300, 600]),
            length: u32::try_from(chance.in_range(1, 12)).unwrap_or(1),
            repeats: chance.pick_one(0, &[0, 0, 0, 100, 900]),
            todos: chance.pick_one(0, &[0, 100, 400]),
            delegates: chance.pick_one(0, &[0, 0, 0, 300]),
        }
    }
}

impl TaskTerms {
    fn from_rng(chance: &mut SeededRng) -> Self {
        let mut limits = TaskLimits { turns: None, ..TaskLimits::default() };
        limits.mistakes = u32::try_from(chance.in_range(2, 8)).unwrap_or(6);
        limits.cycles = u32::try_from(chance.in_range(3, 6)).unwrap_or(6);
        limits.subtasks = SubtaskLimits {
            depth: chance.pick_one(0, &[1, 1, 2]),
            max_concurrent: chance.index(3) + 1,
            max_total: chance.pick_one(20, &[1, 3]),
        };
        if chance.below(3) == 0 {
            limits.turns = u32::try_from(chance.in_range(1, 20)).ok();
        }
        if chance.below(10) == 0 {
            limits.cost = Some(Dollars::from_nanos(chance.in_range(1, 20_000)));
        }
        if chance.below(10) == 0 {
            limits.tokens = Some(chance.in_range(1, 10_000));
        }
        let room = chance.below(3) == 0;
        Self {
            edits: chance.below(2) == 0,
            todos: if chance.below(3) == 0 { OpenTodos::Refused } else { OpenTodos::Allowed },
            check: chance.below(4) == 0,
            limits,
            time: (chance.below(4) == 0).then(|| Duration::from_secs(chance.in_range(1, 40_000))),
            room: room.then(|| (chance.in_range(700, 4000), chance.pick_one(80, &[50, 90]))),
        }
    }

    fn completion_conditions(&self, sabotage: Option<Sabotage>) -> CompletionConditions {
        let mut arguments = CallArguments::new();
        arguments.insert("path".to_owned(), CHECK_PATH.into());
        let check = self.check && sabotage != Some(Sabotage::SkipCheck);
        let lax = sabotage == Some(Sabotage::AllowOpenTodos);
        CompletionConditions {
            open_todos: if lax { OpenTodos::Allowed } else { self.todos },
            check: check.then(|| ("touch".to_owned(), arguments)),
        }
    }
}
