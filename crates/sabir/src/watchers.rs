//! Who watches the tasks of a family, by how they are to be shown.

use std::time::Duration;

use sabir_agent::{Attended, Cancel, TaskId, User};

use crate::cli::Output;
use crate::controls::{Controls, Lines};
use crate::desk::{Audience, Desk};
use crate::lines::EventLines;
use crate::nested::Nested;
use crate::screen::{Progress, Silent};
use crate::terminal::Terminal;
use crate::typed::Known;

/// Gives each task of a family its user.
#[derive(Clone)]
pub(crate) struct Watchers {
    eyes: Eyes,
    /// Whether a subtask can ask somebody.
    asks: bool,
}

#[derive(Clone)]
enum Eyes {
    /// Nobody.
    None,
    /// Somebody who reads.
    People(Desk),
    /// A program, which may answer.
    Lines(Option<Controls>, Option<Duration>),
}

impl Watchers {
    /// Those of that output, and the user of the task itself. `cancel` ends the family; `known`: what lines may name.
    pub(crate) fn new(
        output: Option<Output>,
        lines: Option<Lines>,
        patience: Option<Duration>,
        (task, cancel): (&TaskId, &Cancel),
        known: Known,
    ) -> (Self, Box<dyn User>) {
        let asks = output.is_none() || lines.is_some();
        let (eyes, user): (Eyes, Box<dyn User>) = match output {
            Some(Output::Json) => (Eyes::None, Box::new(Silent)),
            Some(Output::Events) => {
                let controls = lines.as_ref().map(|_| Controls::default());
                let seat = controls.as_ref().map(|controls| controls.seat(task));
                if let (Some(controls), Some(lines)) = (&controls, lines) {
                    controls.listen(lines, known);
                }
                (Eyes::Lines(controls, patience), Box::new(EventLines::new(None, seat, patience)))
            }
            Some(Output::Text) => Self::people(Box::new(Progress::default()), cancel),
            None => Self::people(Box::new(Terminal::new(patience, known)), cancel),
        };
        (Self { eyes, asks }, user)
    }

    fn people(audience: Box<dyn Audience>, cancel: &Cancel) -> (Eyes, Box<dyn User>) {
        let cancel = cancel.clone();
        let desk = Desk::new(audience, move || cancel.cancel());
        let user = Box::new(desk.member(None));
        (Eyes::People(desk), user)
    }

    /// The user of a subtask.
    pub(crate) fn of(&self, task: &TaskId, mode: &str, depth: u32) -> Box<dyn User> {
        match &self.eyes {
            Eyes::None => Box::new(Silent),
            Eyes::People(desk) => Box::new(desk.member(Some(Nested::new(task, mode, depth)))),
            Eyes::Lines(controls, patience) => {
                let seat = controls.as_ref().map(|controls| controls.seat(task));
                Box::new(EventLines::new(Some(task.clone()), seat, *patience))
            }
        }
    }

    /// Whether somebody answers what a subtask asks. It holds no conversation.
    pub(crate) fn attended(&self) -> Attended {
        if self.asks { Attended::Program } else { Attended::No }
    }
}
