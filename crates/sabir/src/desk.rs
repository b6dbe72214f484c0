//! One user for a family: a task and its subtasks are shown to the same person, and ask him.
//!
//! The decision: one question stands at a time. Whoever asks takes his place in a line, first come first asked, and keeps it until
//! he shows something that tells that the question is over. While a question stands, what all others show is held, in its order,
//! and shown when it is over: nothing is drawn between a question and its answer. Only programs, which answer by the names of calls,
//! may have several at once; they have no desk (`lines.rs`).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabir_agent::{Aside, Heard, Moment, Question, Record, Reply, Speaker, TaskEvent, User};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex as Turned, Notify};

use crate::nested::Nested;

/// A user who can be told of subtasks.
pub(crate) trait Audience: User {
    /// Shows whole lines about a subtask, between the events of the task.
    fn write(&mut self, lines: &str);
}

/// The desk at which the user sits. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Shared>);

struct Shared {
    /// Taken for as long as he is asked.
    audience: Turned<Box<dyn Audience>>,
    turns: Mutex<Turns>,
    /// Somebody left the line.
    moved: Notify,
    /// Ends the whole family, when the user leaves.
    end: Box<dyn Fn() + Send + Sync>,
}

/// Whose question stands, and what waits for its end.
#[derive(Default)]
struct Turns {
    members: u64,
    /// Those who ask, by their numbers.
    line: VecDeque<u64>,
    /// Whether the question of the first of them has been drawn.
    stands: bool,
    held: Vec<Held>,
}

/// What is shown later.
enum Held {
    Record(Box<Record>),
    Output(sabir_call::CallId, String),
    Lines(String),
}

/// The user as one task of the family sees him.
pub(crate) struct Member {
    desk: Desk,
    number: u64,
    /// How it is shown; `None` for the task that the user began.
    nested: Option<Nested>,
    /// Whether it is in the line, and its question has been drawn.
    asking: Option<bool>,
}

impl Desk {
    /// `end` is called when the user leaves while a subtask asks.
    pub(crate) fn new(audience: Box<dyn Audience>, end: impl Fn() + Send + Sync + 'static) -> Self {
        let (turns, moved) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { audience: Turned::new(audience), turns, moved, end: Box::new(end) }))
    }

    /// The user as the task sees him that he began, or a subtask.
    pub(crate) fn member(&self, nested: Option<Nested>) -> Member {
        let number = {
            let mut turns = self.turns();
            turns.members += 1;
            turns.members
        };
        Member { desk: self.clone(), number, nested, asking: None }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws, unless another's question stands.
    fn draw(&self, number: u64, held: impl FnOnce() -> Option<Held>, now: impl FnOnce(&mut dyn Audience)) {
        let mut turns = self.turns();
        let others = turns.stands && turns.line.front() != Some(&number);
        match self.0.audience.try_lock() {
            Ok(mut audience) if !others => now(audience.as_mut()),
            _ => turns.held.extend(held()),
        }
    }

    /// Takes a question out of the line, and shows what waited for its end.
    fn leave(&self, number: u64) {
        let mut turns = self.turns();
        let first = turns.line.front() == Some(&number);
        turns.line.retain(|other| *other != number);
        if first && std::mem::take(&mut turns.stands) {
            let held = std::mem::take(&mut turns.held);
            // Its own future has been dropped, and no other may hold the user while it stood.
            if let Ok(mut audience) = self.0.audience.try_lock() {
                held.into_iter().for_each(|held| held.show(audience.as_mut()));
            }
        }
        drop(turns);
        self.0.moved.notify_waiters();
    }

    /// Waits until the question of that member is the first.
    async fn turn(&self, number: u64) {
        loop {
            let moved = self.0.moved.notified();
            tokio::pin!(moved);
            // From here on no move is missed.
            moved.as_mut().enable();
            if self.turns().line.front() == Some(&number) {
                return;
            }
            moved.await;
        }
    }
}

impl Held {
    /// What is told of an event; nothing of what `answered` says once more, or what is over by then.
    fn of(event: TaskEvent<'_>) -> Option<Self> {
        match event {
            TaskEvent::Record(record) => Some(Self::Record(Box::new(record.clone()))),
            TaskEvent::Moment(Moment::Output { call, text }) => Some(Self::Output(call.clone(), text.to_owned())),
            TaskEvent::Moment(_) => None,
        }
    }

    fn show(self, audience: &mut dyn Audience) {
        match self {
            Self::Record(record) => audience.show(TaskEvent::Record(&record)),
            Self::Output(call, text) => audience.show(TaskEvent::Moment(Moment::Output { call: &call, text: &text })),
            Self::Lines(lines) => audience.write(&lines),
        }
    }
}

impl Member {
    async fn asked(&mut self, question: &Question) -> Reply {
        if self.asking.is_none() {
            // What was shown meanwhile did not end the question: it is drawn once more.
            self.asking = Some(false);
            self.desk.turns().line.push_back(self.number);
        }
        self.desk.turn(self.number).await;
        self.desk.turns().stands = true;
        let mut audience = self.desk.0.audience.lock().await;
        if self.asking.replace(true) != Some(true) {
            if let Some(nested) = &self.nested {
                audience.write(&nested.asks());
            }
            audience.show(TaskEvent::Moment(Moment::Question(question)));
        }
        let reply = audience.ask(question).await;
        if reply == Reply::Leave && self.nested.is_some() {
            // He leaves the family, not only the subtask that happens to ask.
            (self.desk.0.end)();
        }
        reply
    }
}

impl User for Member {
    fn show(&mut self, event: TaskEvent<'_>) {
        match event {
            TaskEvent::Moment(Moment::Question(_)) => {
                self.asking = Some(false);
                self.desk.turns().line.push_back(self.number);
                return;
            }
            // Words are heard beside an open question, which is asked once more.
            TaskEvent::Record(Record::Said { by: Speaker::User, .. }) => {}
            _ if self.asking.take().is_some() => self.desk.leave(self.number),
            _ => {}
        }
        match &mut self.nested {
            None => self.desk.draw(self.number, || Held::of(event), |audience| audience.show(event)),
            Some(nested) => {
                let lines = nested.lines(event);
                if !lines.is_empty() {
                    let held = || Some(Held::Lines(lines.clone()));
                    self.desk.draw(self.number, held, |audience| audience.write(&lines));
                }
            }
        }
    }

    fn tell(&mut self, aside: Aside<'_>) {
        // Whoever is asked by another has asked for it at the wrong moment, and may ask again.
        self.desk.draw(self.number, || None, |audience| audience.tell(aside));
    }

    fn hears(&mut self) -> Option<UnboundedReceiver<Heard>> {
        if self.nested.is_some() {
            return None;
        }
        self.desk.0.audience.try_lock().ok()?.hears()
    }

    fn ask<'a>(&'a mut self, question: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(self.asked(question))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.asking.is_some() {
            self.desk.leave(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sabir_call::{CallId, CallResult, Ending};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    /// Notes what is drawn, and answers what it is told to.
    struct Person {
        drawn: Arc<Mutex<Vec<String>>>,
        answers: UnboundedReceiver<Reply>,
    }

    impl User for Person {
        fn show(&mut self, event: TaskEvent<'_>) {
            let text = match event {
                TaskEvent::Record(Record::Result(result)) => format!("result {}", result.id),
                TaskEvent::Record(Record::Said { text, .. }) => format!("said {text}"),
                TaskEvent::Moment(Moment::Question(question)) => format!("? {}", question.call().unwrap()),
                TaskEvent::Moment(Moment::Output { text, .. }) => format!("output {text}"),
                _ => "other".to_owned(),
            };
            self.drawn.lock().unwrap().push(text);
        }

        fn ask<'a>(&'a mut self, _: &'a Question) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
            Box::pin(async { self.answers.recv().await.unwrap_or(Reply::Leave) })
        }
    }

    impl Audience for Person {
        fn write(&mut self, lines: &str) {
            self.drawn.lock().unwrap().extend(lines.lines().map(|line| line.trim().to_owned()));
        }
    }

    /// A desk with a person, what is drawn there, and how he answers.
    fn desk() -> (Desk, Arc<Mutex<Vec<String>>>, UnboundedSender<Reply>) {
        let (answer, answers) = unbounded_channel();
        let drawn = Arc::new(Mutex::default());
        let (person, ended) = (Person { drawn: Arc::clone(&drawn), answers }, Arc::clone(&drawn));
        let end = move || ended.lock().unwrap().push("the family ends".to_owned());
        (Desk::new(Box::new(person), end), drawn, answer)
    }

    fn child(desk: &Desk, end: &str) -> Member {
        desk.member(Some(Nested::new(&sabir_agent::TaskId::new(format!("t-{end}")), "code", 1)))
    }

    fn question(call: &str) -> Question {
        Question::Followup { call: CallId::new(call), question: "?".to_owned(), options: Vec::new() }
    }

    fn result(call: &str) -> Record {
        let (id, name, content) = (CallId::new(call), "n".to_owned(), "x".to_owned());
        Record::Result(CallResult { id, name, ending: Ending::Done, content, images: Vec::new() })
    }

    fn show(member: &mut Member, record: &Record) {
        member.show(TaskEvent::Record(record));
    }

    /// Shows the question and waits for its answer, as the driver does.
    async fn asks(member: &mut Member, call: &str) -> Reply {
        let question = question(call);
        member.show(TaskEvent::Moment(Moment::Question(&question)));
        let reply = member.ask(&question).await;
        show(member, &result(call));
        reply
    }

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_question_stands_and_the_rest_waits() {
        let (desk, drawn, answer) = desk();
        let (mut root, mut one, mut two) = (desk.member(None), child(&desk, "1111"), child(&desk, "2222"));
        show(&mut root, &result("r0"));
        let first = tokio::spawn(async move { (asks(&mut one, "a").await, one) });
        settle().await;
        let second = tokio::spawn(async move { (asks(&mut two, "b").await, two) });
        settle().await;
        show(&mut root, &result("r1"));
        let id = CallId::new("r");
        root.show(TaskEvent::Moment(Moment::Output { call: &id, text: "text" }));
        assert_eq!(*drawn.lock().unwrap(), ["result r0", "[code 1111] asks:", "? a"]);
        answer.send(Reply::Yes).unwrap();
        settle().await;
        let later = ["result r1", "output text", "[code 1111]   ✓ n", "[code 2222] asks:", "? b"];
        assert_eq!(drawn.lock().unwrap()[3..], later);
        answer.send(Reply::No("no".to_owned())).unwrap();
        let (one, two) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!((one.0, two.0), (Reply::Yes, Reply::No("no".to_owned())));
        assert_eq!(drawn.lock().unwrap()[8..], ["[code 2222]   ✓ n"]);
    }

    #[tokio::test]
    async fn words_leave_a_question_in_its_place() {
        let (desk, drawn, answer) = desk();
        let (mut root, mut one) = (desk.member(None), child(&desk, "1111"));
        let asked = question("a");
        root.show(TaskEvent::Moment(Moment::Question(&asked)));
        // The driver drops the question for words, and asks it again.
        assert!(tokio::time::timeout(Duration::from_millis(1), root.ask(&asked)).await.is_err());
        let other = tokio::spawn(async move { asks(&mut one, "b").await });
        settle().await;
        let said = Record::Said {
            by: Speaker::User,
            text: "words".to_owned(),
            images: Vec::new(),
            when: sabir_agent::When::Next,
        };
        show(&mut root, &said);
        answer.send(Reply::Yes).unwrap();
        assert_eq!(root.ask(&asked).await, Reply::Yes);
        assert_eq!(*drawn.lock().unwrap(), ["? a", "said words"]);
        show(&mut root, &result("a"));
        answer.send(Reply::Yes).unwrap();
        assert_eq!(other.await.unwrap(), Reply::Yes);
    }

    /// A question that is withdrawn, by whatever is shown next or by the end of its task, makes room for the next.
    #[tokio::test]
    async fn a_withdrawn_question_makes_room() {
        for shown in [true, false] {
            let (desk, drawn, answer) = desk();
            let (mut one, mut two, mut root) = (child(&desk, "1111"), child(&desk, "2222"), desk.member(None));
            let asked = question("a");
            one.show(TaskEvent::Moment(Moment::Question(&asked)));
            assert!(tokio::time::timeout(Duration::from_millis(1), one.ask(&asked)).await.is_err());
            show(&mut root, &result("r"));
            if shown {
                show(&mut one, &result("a"));
            } else {
                drop(one);
            }
            answer.send(Reply::Yes).unwrap();
            assert_eq!(asks(&mut two, "b").await, Reply::Yes);
            let drawn = drawn.lock().unwrap();
            assert_eq!(drawn[..3], ["[code 1111] asks:", "? a", "result r"]);
            assert!(drawn.contains(&"? b".to_owned()), "{drawn:?}");
        }
    }

    #[tokio::test]
    async fn who_leaves_at_a_question_of_a_subtask_leaves_the_family() {
        for (nested, ends) in [(true, true), (false, false)] {
            let (desk, drawn, answer) = desk();
            let mut member = if nested { child(&desk, "1111") } else { desk.member(None) };
            answer.send(Reply::Leave).unwrap();
            assert_eq!(asks(&mut member, "a").await, Reply::Leave);
            // Its own driver ends the task that the user began.
            assert_eq!(drawn.lock().unwrap().contains(&"the family ends".to_owned()), ends);
        }
    }
}
