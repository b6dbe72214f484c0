//! Plans: the random settings of one simulated task.
//!
//! Each seed has its own plan, with most kinds of trouble switched off and a few switched on. If everything failed at once, no task
//! would get far enough to fail in an interesting way.
//!
//! Probabilities are given out of a thousand. Where a number is drawn from a list, values are
//! repeated to make them more likely.

use std::time::Duration;

use sabir_agent::{
    CallArguments, CompletionConditions, CompletionForm, ContextFragment, FragmentKind,
    Interactivity, OpenTodos, RequestContext, SubtaskLimits, TaskId, TaskLimits, TaskSettings,
    TaskStart, UnresolvedDenials,
};
use sabir_call::dialect::CLINE;
use sabir_call::{Dollars, TokenPrices, ToolProtocol, ToolSet};
use sabir_policy::{PolicyRules, RuleKind};

use crate::rng::SeededRng;
use crate::sabotage::Sabotage;

/// The host that a rule forbids.
pub(crate) const FORBIDDEN_HOST: &str = "forbidden.example";
/// The host of all other fetches.
pub(crate) const ALLOWED_HOST: &str = "site.example";
/// The path that the check of a completion uses, which identifies its calls.
pub(crate) const CHECK_PATH: &str = "everything";
/// The system prompt.
pub(crate) const SYSTEM_PROMPT: &str = "Be brief.";
/// The prompt of a task that is not a subtask.
const FIRST_PROMPT: &str = "Do it.";

/// The settings of one simulated task.
#[derive(Debug, Clone)]
pub(crate) struct TaskPlan {
    /// The prompt.
    pub(crate) prompt: String,
    /// True if another task started it.
    pub(crate) is_subtask: bool,
    /// The user's answers and the frequency of their messages.
    pub(crate) user: UserPlan,
    /// The model's way of writing and the frequency of its failures.
    pub(crate) model: ModelPlan,
    /// The approvals, the conditions of completion, and the limits.
    pub(crate) terms: TaskConstraints,
    /// True if operations of the disk may fail. Power cuts and crashes do not depend on it.
    pub(crate) disk_trouble: bool,
    /// The number of tool runs out of a thousand that do not simply succeed.
    pub(crate) tool_trouble: u64,
    /// The maximum number of processes.
    ///
    /// A task that is not completed by the last one is left as it is; no invariant says that it must
    /// complete.
    pub(crate) lives: u32,
    /// On average one in this many processes crashes; 0 means none.
    pub(crate) crashes: u64,
}

/// The habits of the user.
#[derive(Debug, Clone)]
pub(crate) struct UserPlan {
    /// The interactivity in the machine's settings.
    pub(crate) attended: Interactivity,
    /// The number of answers out of a thousand that are not a plain approval.
    ///
    /// Those are denials, texts, rules for more calls, leaving, and silence.
    pub(crate) non_approval_permille: u64,
    /// The maximum number of events between two unasked messages; 0 means never.
    pub(crate) message_interval: u64,
    /// True if answers are sent through the command channel instead of being returned to the question.
    pub(crate) by_channel: bool,
}

/// The habits of the model.
#[derive(Debug, Clone)]
pub(crate) struct ModelPlan {
    /// True if calls are written as text in a dialect.
    ///
    /// They are then read by the parser of the Cline dialect.
    pub(crate) prompted: bool,
    /// The number of responses out of a thousand that fail.
    pub(crate) trouble: u64,
    /// The number of calls out of a thousand that have a flaw.
    pub(crate) bad_calls: u64,
    /// The number of turns after which it wants to complete.
    ///
    /// It does not complete at once then, and sometimes it completes earlier.
    pub(crate) length: u32,
    /// The number of calls out of a thousand that repeat an earlier one.
    pub(crate) repeats: u64,
    /// The number of responses out of a thousand with a list of todos.
    pub(crate) todos: u64,
    /// The number of calls out of a thousand that start a subtask.
    pub(crate) delegates: u64,
}

/// The terms of the task: approvals, conditions and limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskConstraints {
    /// True if writing is approved in advance.
    pub(crate) edits: bool,
    /// Says if a completion is refused while a todo is open.
    pub(crate) todos: OpenTodos,
    /// True if a completion is checked.
    pub(crate) check: bool,
    /// The limits of turns, mistakes, cycles, tokens, cost and subtasks.
    pub(crate) limits: TaskLimits,
    /// The most time of a process, on the simulated clock; `None` for no limit.
    pub(crate) time: Option<Duration>,
    /// The context window in tokens, and the percentage of it at which the history is compacted.
    pub(crate) room: Option<(u64, u8)>,
}

impl TaskPlan {
    /// Draws a plan. The order of the draws is part of a seed's meaning: a new draw belongs at the
    /// end.
    pub(crate) fn from_rng(rng: &mut SeededRng) -> Self {
        Self {
            prompt: FIRST_PROMPT.to_owned(),
            is_subtask: false,
            user: UserPlan::from_rng(rng),
            model: ModelPlan::from_rng(rng),
            terms: TaskConstraints::from_rng(rng),
            disk_trouble: rng.below(5) == 0,
            tool_trouble: rng.pick_one(100, &[0, 300, 600]),
            lives: u32::try_from(rng.in_range(1, 6)).unwrap_or(1),
            crashes: rng.pick_one(0, &[1, 2, 3]),
        }
    }

    /// Returns the settings of the task machine; some kinds of sabotage change them.
    pub(crate) fn task_settings(
        &self,
        tools: ToolSet,
        readers: Vec<String>,
        sabotage: Option<Sabotage>,
    ) -> TaskSettings {
        // One rule of each kind: a denial, perhaps an approval, and questions for the rest.
        let mut rules = PolicyRules::default();
        // These rules are valid. An invalid one would allow nothing, so the error can be ignored.
        _ = rules.add_rule(RuleKind::Deny, &format!("host={FORBIDDEN_HOST}"));
        if self.terms.edits {
            _ = rules.add_approval("edits");
        }
        // For a million tokens, so a token costs one nanodollar as input and five as output.
        let price = |nanos| Some(Dollars::from_nanos(nanos));
        let limits = self.terms.limits;
        // The observer uses the limits of the plan, so it notices that the machine got none.
        let endless = TaskLimits {
            turns: None,
            tokens: None,
            cost: None,
            cycles: u32::MAX,
            ..limits
        };
        TaskSettings {
            system: SYSTEM_PROMPT.to_owned(),
            model: "m".to_owned(),
            tools,
            read_only_tools: readers,
            // No simulated tool is asked again and again, so equal calls always count as a cycle.
            polling_tools: Vec::new(),
            rules,
            interactivity: self.user.attended,
            limits: if sabotage == Some(Sabotage::RaiseLimits) {
                endless
            } else {
                limits
            },
            completion: self.terms.completion_conditions(sabotage),
            dialects: sabir_call::dialect::DialectSet::default(),
            repairs: sabir_check::RepairSet::all(),
            recovery: sabir_call::TextRecovery::Ask,
            parallel_calls: sabir_call::ParallelCalls::Many,
            renders_template: false,
            max_output: None,
            prices: TokenPrices {
                input: price(1_000_000),
                output: price(5_000_000),
                ..TokenPrices::default()
            },
        }
    }

    /// Returns the context of requests: the instructions of the folder and the context window.
    pub(crate) fn request_context(&self, version: u32) -> RequestContext {
        // The text changes with the version, so a check can tell which version a request holds.
        let rule = rule_text(version);
        let kept = ContextFragment::with_cap(
            FragmentKind::Instructions,
            "RULES.md",
            &rule,
            rule.len() as u64,
            1000,
        );
        let (window, threshold) = self.terms.room.unzip();
        RequestContext {
            fragments: vec![kept],
            window,
            threshold: threshold.unwrap_or(sabir_agent::DEFAULT_THRESHOLD_PERCENT),
        }
    }

    /// Returns the start of the task. Subtasks replace its id and origin.
    pub(crate) fn start_record(&self, seed: u64) -> TaskStart {
        TaskStart {
            task: TaskId::new(format!("seed-{seed}")),
            prompt: self.prompt.clone(),
            workspace: "/w".to_owned(),
            model: "m".to_owned(),
            protocol: if self.model.prompted {
                ToolProtocol::Prompted(CLINE.to_owned())
            } else {
                ToolProtocol::Native
            },
            // A fixed version, so that the trace of a seed is the same in every release.
            version: "0".to_owned(),
            edit_tool: None,
            mode: None,
            from: None,
        }
    }
}

/// Returns a version of the instructions in the folder.
pub(crate) fn rule_text(version: u32) -> String {
    format!("Keep to rule {version}.")
}

impl UserPlan {
    /// Draws the habits of the user. A headless plan has a user too, who is never asked.
    fn from_rng(rng: &mut SeededRng) -> Self {
        // Three of five tasks are interactive, which is where most kinds of questions come up.
        let attended = rng.pick_one(
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
            non_approval_permille: rng.pick_one(100, &[0, 300, 600, 900]),
            message_interval: rng.pick_one(0, &[0, 30, 100, 300]),
            // A controlling program always answers through the channel, as over control lines.
            by_channel: attended == Interactivity::Controlled || rng.below(3) == 0,
        }
    }
}

impl ModelPlan {
    /// Draws the habits of the model.
    fn from_rng(rng: &mut SeededRng) -> Self {
        Self {
            prompted: rng.below(3) == 0,
            // Two thirds of the models never fail, or few tasks would get to their end.
            trouble: if rng.below(3) == 0 { rng.below(300) } else { 0 },
            bad_calls: rng.pick_one(100, &[0, 300, 600]),
            length: u32::try_from(rng.in_range(1, 12)).unwrap_or(1),
            repeats: rng.pick_one(0, &[0, 0, 0, 100, 900]),
            todos: rng.pick_one(0, &[0, 100, 400]),
            delegates: rng.pick_one(0, &[0, 0, 0, 300]),
        }
    }
}

impl TaskConstraints {
    /// Draws the terms. Most tasks have few limits, since each limit ends many of them.
    fn from_rng(rng: &mut SeededRng) -> Self {
        let mut limits = TaskLimits {
            turns: None,
            ..TaskLimits::default()
        };
        // A low limit ends a task early, a high one lets it run through many mistakes.
        limits.mistakes = u32::try_from(rng.in_range(2, 8)).unwrap_or(6);
        limits.cycles = u32::try_from(rng.in_range(3, 6)).unwrap_or(6);
        limits.subtasks = SubtaskLimits {
            // At most two levels: deeper trees take long and show nothing new.
            depth: rng.pick_one(0, &[1, 1, 2]),
            max_concurrent: rng.index(3) + 1,
            max_total: rng.pick_one(20, &[1, 3]),
        };
        if rng.below(3) == 0 {
            limits.turns = u32::try_from(rng.in_range(1, 20)).ok();
        }
        if rng.below(10) == 0 {
            limits.cost = Some(Dollars::from_nanos(rng.in_range(1, 20_000)));
        }
        if rng.below(10) == 0 {
            limits.tokens = Some(rng.in_range(1, 10_000));
        }
        // A window of 700 to 4000 tokens fills within a few turns.
        let room = rng.below(3) == 0;
        Self {
            edits: rng.below(2) == 0,
            todos: if rng.below(3) == 0 {
                OpenTodos::Refused
            } else {
                OpenTodos::Allowed
            },
            check: rng.below(4) == 0,
            limits,
            // Up to eleven hours, since a user may take ten minutes for each answer.
            time: (rng.below(4) == 0).then(|| Duration::from_secs(rng.in_range(1, 40_000))),
            room: room.then(|| (rng.in_range(700, 4000), rng.pick_one(80, &[50, 90]))),
        }
    }

    /// Returns the conditions that the machine gets; some kinds of sabotage drop them.
    fn completion_conditions(&self, sabotage: Option<Sabotage>) -> CompletionConditions {
        // The path makes the check's runs recognizable: no model writes it.
        let mut arguments = CallArguments::new();
        arguments.insert("path".to_owned(), CHECK_PATH.into());
        let check = self.check && sabotage != Some(Sabotage::SkipCheck);
        // Only what the machine gets is changed; the observer checks against the plan.
        let lax = sabotage == Some(Sabotage::AllowOpenTodos);
        CompletionConditions {
            review: true,
            open_todos: if lax { OpenTodos::Allowed } else { self.todos },
            check: check.then(|| ("touch".to_owned(), arguments)),
            // The observer checks a completion by the other conditions alone.
            denials: UnresolvedDenials::Accepted,
            form: CompletionForm::Call,
        }
    }
}
