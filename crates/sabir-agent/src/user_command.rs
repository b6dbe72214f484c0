//! User commands: sent at any time, not as answers to questions; notices reply to some of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_call::CallId;
use tokio::sync::Notify;

use crate::driver::FrontEnd;
use crate::event::UserReply;
use crate::record::SummaryAuthor;
use crate::task::{CompactionTiming, ContextUsage, MessageDelivery, Task, TaskInput, UserMessage};

/// A command of the user: an unrequested one, or the answer to the question about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserCommand {
    /// Sends a message to the model: [`TaskInput::UserMessage`].
    Send {
        /// The text and the images.
        message: UserMessage,
        /// The moment at which the model reads it.
        delivery: MessageDelivery,
    },
    /// Compacts the context: [`TaskInput::Compact`].
    Compact,
    /// Asks what fills the context; the front end gets a [`UserNotice::ContextUsage`].
    ShowContextUsage,
    /// Logs in to the server of that name, with the final address of the browser if it is known. The session handles this command, not the
    /// task.
    LogIn {
        /// The server.
        server: String,
        /// The address.
        address: Option<String>,
    },
    /// Answers the question about that call. Changes nothing if that question is not open.
    Answer(CallId, UserReply),
    /// Switches to the mode of that name: [`TaskInput::SetMode`].
    SetMode(String),
    /// Reports that the user can no longer be asked: [`TaskInput::UserLeft`].
    Disconnect,
    /// Ends the task: [`TaskInput::Cancel`].
    Cancel,
}

/// A queue of commands to a task. Clones share the queue, so commands that one run of the task did
/// not take are there for the next run.
#[derive(Debug, Clone, Default)]
pub struct CommandQueue(Arc<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    commands: Mutex<VecDeque<UserCommand>>,
    pushed: Notify,
}

impl CommandQueue {
    /// Appends a command.
    pub fn push(&self, command: UserCommand) {
        self.lock_commands().push_back(command);
        self.0.pushed.notify_one();
    }

    /// Takes the oldest command, if there is one.
    pub fn pop(&self) -> Option<UserCommand> {
        self.lock_commands().pop_front()
    }

    /// Returns true if no command waits.
    pub fn is_empty(&self) -> bool {
        self.lock_commands().is_empty()
    }

    /// Waits for the oldest command and takes it. Only one task may wait at a time. Dropping the future loses nothing.
    pub async fn receive(&self) -> UserCommand {
        loop {
            if let Some(command) = self.pop() {
                return command;
            }
            self.0.pushed.notified().await;
        }
    }

    fn lock_commands(&self) -> MutexGuard<'_, VecDeque<UserCommand>> {
        self.0
            .commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer to a command that asks for information. It goes to the front end only and is not kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserNotice<'a> {
    /// The contents of the context, by size.
    ContextUsage(&'a ContextUsage),
    /// The moment at which the requested compaction will happen.
    Compaction(CompactionTiming),
}

impl UserCommand {
    /// Returns the command for a message that waits for its turn.
    pub fn queue(message: impl Into<UserMessage>) -> Self {
        Self::Send {
            message: message.into(),
            delivery: MessageDelivery::Queue,
        }
    }

    /// Returns the command for a message that interrupts the model.
    pub fn interrupt(message: impl Into<UserMessage>) -> Self {
        Self::Send {
            message: message.into(),
            delivery: MessageDelivery::Interrupt,
        }
    }

    /// Returns the task's input; `None` for a command that only asks for information. Sends that information to the front end.
    pub(crate) fn into_input(
        self,
        task: &Task,
        user: &mut dyn FrontEnd,
    ) -> Option<TaskInput<'static>> {
        self.notify_front_end(task, user);
        Some(match self {
            Self::ShowContextUsage | Self::LogIn { .. } => return None,
            Self::Compact => TaskInput::Compact(SummaryAuthor::Model),
            Self::Send { message, delivery } => TaskInput::UserMessage { message, delivery },
            Self::Answer(_, reply) => TaskInput::UserReplied(reply),
            Self::SetMode(mode) => TaskInput::SetMode(mode),
            Self::Disconnect => TaskInput::UserLeft,
            Self::Cancel => TaskInput::Cancel,
        })
    }

    /// Returns true if the command gives up the answer that is being written.
    pub(crate) fn interrupts_answer(&self) -> bool {
        matches!(
            self,
            Self::Send {
                delivery: MessageDelivery::Interrupt,
                ..
            } | Self::Cancel
        )
    }

    /// Sends the front end the information that the command asks for.
    fn notify_front_end(&self, task: &Task, user: &mut dyn FrontEnd) {
        match self {
            Self::ShowContextUsage => user.notify(UserNotice::ContextUsage(&task.context_usage())),
            Self::Compact => user.notify(UserNotice::Compaction(task.compaction_timing())),
            _ => {}
        }
    }
}
