//! The messages that the simulated user sends without a question, at any event.
//!
//! Each message is unique, so that it can be recognized wherever it turns up.
//!
//! They may come at any event: during an answer, a tool run, a question or a summary. A message
//! waits in the queue or interrupts. Now and then it is blank, answers a question that is over, or
//! says that the user goes away.

use sabir_agent::{CommandQueue, MessageDelivery, UserCommand, UserReply};
use sabir_call::CallId;

use crate::sabotage::Sabotage;
use crate::simulation_state::SimulationState;

/// The channel from the user to the driver, and the time of the next message.
#[derive(Debug, Default)]
pub(crate) struct UserScript {
    /// The queue of the driver; `None` while no driver has asked for it.
    sender: Option<CommandQueue>,
    /// The event number of the next message.
    at: Option<u64>,
    /// The number of messages so far.
    sent_texts: u32,
    /// The call that the open question is about.
    pub(crate) asked: Option<CallId>,
}

impl UserScript {
    /// Disconnects the user when a process begins or ends. `at` is the event number of the next message.
    pub(crate) fn disconnect(&mut self, at: Option<u64>) {
        // The queue belongs to one process. Queued messages are lost in a kill, as typed text is.
        self.sender = None;
        self.asked = None;
        self.at = at;
    }

    /// Reports whether a message is sent at that event.
    pub(crate) fn is_due(&self, event: u64) -> bool {
        self.at.is_some_and(|at| at <= event) && self.sender.is_some()
    }

    /// Returns a text that was not used before.
    pub(crate) fn unique_message(&mut self, what: &str) -> String {
        // The number and the dot make each text unique, and none the beginning of another.
        self.sent_texts += 1;
        format!("{what} ({}.)", self.sent_texts)
    }
}

impl SimulationState {
    /// Connects the driver to the user.
    pub(crate) fn open_channel(&mut self) -> CommandQueue {
        let queue = CommandQueue::default();
        // A later run of the same task gets a new queue.
        self.user_script.sender = Some(queue.clone());
        queue
    }

    /// Draws the event number of the next message after `from`.
    pub(crate) fn draw_next_message_at(&mut self, from: u64) -> Option<u64> {
        (self.plan.user.message_interval > 0)
            .then(|| from + 1 + self.rng.below(self.plan.user.message_interval))
    }

    /// Sends something from the user at any moment of the task.
    pub(crate) fn send_unprompted(&mut self, event: u64) {
        self.user_script.at = self.draw_next_message_at(event);
        if self.observations.user.gone {
            return;
        }
        // Mostly messages; the rare cases are those that break something.
        match self.rng.below(20) {
            0 => {
                self.counters.count_event("blank words");
                self.send_to_driver(UserCommand::queue(" \n"));
            }
            // An approval for a call that is over must change nothing.
            1 | 2 => self.answer_late(),
            3 => {
                self.counters.count_event("user went away");
                self.observations.user.gone = true;
                self.send_to_driver(UserCommand::Disconnect);
            }
            4 => {
                self.note_cancel();
                self.send_to_driver(UserCommand::Cancel);
            }
            5..=9 => self.send_message(MessageDelivery::Interrupt),
            _ => self.send_message(MessageDelivery::Queue),
        }
    }

    /// Sometimes sends a message in a rare situation, so that it is tested more often than by chance.
    pub(crate) fn maybe_send_message(&mut self, rare: bool) {
        let hears =
            rare && self.plan.user.message_interval > 0 && self.user_script.sender.is_some();
        if hears && !self.has_crashed() && !self.observations.user.gone && self.rng.below(4) == 0 {
            self.send_message(MessageDelivery::Queue);
        }
    }

    /// Sends a message while the task waits for nothing.
    pub(crate) fn send_message(&mut self, delivery: MessageDelivery) {
        let text = self.user_script.unique_message("yes, go on like this");
        let command = UserCommand::Send {
            message: text.clone().into(),
            delivery,
        };
        self.counters.count_event(match delivery {
            MessageDelivery::Interrupt => "words that steer",
            MessageDelivery::Queue => "words that wait",
        });
        self.count_moment();
        self.observations.user.said.push_back(text);
        self.send_to_driver(command);
    }

    /// Counts the moments in which a message is sent. Several can be true at once.
    fn count_moment(&mut self) {
        let moments = [
            (self.activity.asking, "words in a question"),
            (self.activity.answering, "words in an answer"),
            (self.activity.summarising, "words in a summary"),
            (self.activity.checking, "words in a check"),
            (
                self.observations.tools.is_any_running(),
                "words while tools ran",
            ),
        ];
        moments
            .into_iter()
            .filter(|(is, _)| *is)
            .for_each(|(_, name)| self.counters.count_event(name));
    }

    /// Answers a question that is over or never existed.
    ///
    /// The machine must treat it neither as an answer to the open question nor as a message.
    fn answer_late(&mut self) {
        let calls = self.observations.calls.iter();
        let over: Vec<_> = calls
            .filter(|(_, call)| call.result.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        let call = over
            .get(self.rng.index(over.len()))
            .cloned()
            .unwrap_or_else(|| CallId::new("nobody"));
        self.counters.count_event("answers to no question");
        self.send_to_driver(UserCommand::Answer(call, UserReply::Yes));
    }

    /// Sends a command to the driver.
    pub(crate) fn send_to_driver(&mut self, command: UserCommand) {
        self.trace_line(|| format!("the user: {command:?}"));
        // Sabotage drops only every second message, so that tasks still make progress.
        let odd = self.user_script.sent_texts % 2 == 1;
        let command = match (self.sabotage, command) {
            (Some(Sabotage::DropMessages), UserCommand::Send { .. }) if odd => return,
            (Some(Sabotage::DropDetach), UserCommand::Disconnect)
            | (Some(Sabotage::NeverStop), UserCommand::Cancel) => return,
            (
                Some(Sabotage::ApproveByMessage),
                command @ UserCommand::Send {
                    delivery: MessageDelivery::Queue,
                    ..
                },
            ) => match &self.user_script.asked {
                Some(call) => {
                    self.observations.user.said.pop_back();
                    UserCommand::Answer(call.clone(), UserReply::Yes)
                }
                None => command,
            },
            (_, command) => command,
        };
        if let Some(sender) = &self.user_script.sender {
            sender.push(command);
        }
    }
}
