//! What the user says on his own account, and what he is told aside.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_call::CallId;
use tokio::sync::Notify;

use crate::driver::FrontEnd;
use crate::event::UserReply;
use crate::record::SummaryAuthor;
use crate::task::{CompactionTiming, ContextUsage, Task, TaskInput, UserMessage};

/// What a user says unasked, or in answer to a question whose call it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserCommand {
    /// Words that wait for their turn: [`TaskInput::UserMessage`].
    Message(String),
    /// Words that do not: [`TaskInput::SteeringMessage`].
    Steer(String),
    /// Words with pictures: [`TaskInput::UserMessageWithImages`].
    MessageWithImages {
        /// What is said and shown.
        message: UserMessage,
        /// Whether they do not wait for their turn.
        at_once: bool,
    },
    /// The context is to be compacted: [`TaskInput::Compact`].
    Compact,
    /// What fills the context is to be told.
    ShowContextUsage,
    /// The answer to the question about that call. It changes nothing if that question is not open.
    Answer(CallId, UserReply),
    /// Another mode, by its name: [`TaskInput::SetMode`].
    SetMode(String),
    /// Nobody can be asked any more: [`TaskInput::UserLeft`].
    Disconnect,
    /// The task is to end: [`TaskInput::Cancel`].
    Cancel,
}

/// A queue of commands to a task. Clones are the same queue, so what a run of the task has not taken is still there for the next one.
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
        self.lock().push_back(command);
        self.0.pushed.notify_one();
    }

    /// Takes the oldest command, if there is one.
    pub fn pop(&self) -> Option<UserCommand> {
        self.lock().pop_front()
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

    fn lock(&self) -> MutexGuard<'_, VecDeque<UserCommand>> {
        self.0.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is told to a user who asked for it, and to nobody else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserNotice<'a> {
    /// What fills the context.
    ContextUsage(&'a ContextUsage),
    /// What becomes of the compaction that he wants.
    Compaction(CompactionTiming),
}

impl UserCommand {
    /// What it is to the task; `None`: nothing but a question about it. The user is told what he asked for.
    pub(crate) fn into_input(self, task: &Task, user: &mut dyn FrontEnd) -> Option<TaskInput<'static>> {
        self.notify_front_end(task, user);
        Some(match self {
            Self::ShowContextUsage => return None,
            Self::Compact => TaskInput::Compact(SummaryAuthor::Model),
            Self::Message(text) => TaskInput::UserMessage(text),
            Self::Steer(text) => TaskInput::SteeringMessage(text),
            Self::MessageWithImages { message: words, at_once } => {
                TaskInput::UserMessageWithImages { message: words, at_once }
            }
            Self::Answer(_, reply) => TaskInput::UserReplied(reply),
            Self::SetMode(mode) => TaskInput::SetMode(mode),
            Self::Disconnect => TaskInput::UserLeft,
            Self::Cancel => TaskInput::Cancel,
        })
    }

    /// Whether it gives up the answer that is being written.
    pub(crate) fn interrupts_answer(&self) -> bool {
        matches!(self, Self::Steer(_) | Self::MessageWithImages { at_once: true, .. } | Self::Cancel)
    }

    /// Tells the user what he asked for.
    fn notify_front_end(&self, task: &Task, user: &mut dyn FrontEnd) {
        match self {
            Self::ShowContextUsage => user.notify(UserNotice::ContextUsage(&task.context_usage())),
            Self::Compact => user.notify(UserNotice::Compaction(task.compaction_timing())),
            _ => {}
        }
    }
}
