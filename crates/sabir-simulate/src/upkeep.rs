//! Upkeep: processes that do not go on with the task, but have its context compacted, or go back on that.

use std::collections::VecDeque;

use sabir_agent::{Author, Effect, Input, Record, Shift, Store, Task};
use sabir_call::{Event, Model};

use crate::laws::Law;
use crate::model::SimulatedModel;
use crate::sabotage::Sabotage;
use crate::scene::Scene;
use crate::store::WatchedStore;

/// Changes what the model sees of a task that was just opened, as far as the machine lets that happen.
pub(crate) async fn tend(scene: &Scene, task: &mut Task, store: &mut WatchedStore, model: &SimulatedModel) {
    let input = scene.with(|state| match state.chance.below(4) {
        0 => Input::Restore,
        1 if state.witness.reading.is_short() => Input::Restore,
        1 | 2 => Input::Compact(Author::Sabir),
        _ => Input::Compact(Author::Model),
    });
    let promised = task.preview();
    let mut effects = VecDeque::from(task.step(input));
    while let Some(effect) = effects.pop_front() {
        match effect {
            Effect::Keep(record) => {
                if store.append(&record).is_err() {
                    return;
                }
                if let Record::Context(Shift::Compacted(compacted)) = &record
                    && compacted.by == Author::Sabir
                {
                    let lies = scene.with(|state| state.sabotage == Some(Sabotage::PreviewOther));
                    let kept = promised.as_ref().filter(|_| !lies).is_some_and(|promised| {
                        (&promised.head, promised.before, promised.after)
                            == (&compacted.head, compacted.before, compacted.after)
                    });
                    if !kept {
                        scene.with(|state| state.broken(Law::Restores, format!("{promised:?} became {compacted:?}")));
                    }
                }
            }
            Effect::Ask => {
                let request = task.request();
                let answer = model.answer(&request, &mut |event: Event<'_>| drop(task.step(Input::Event(event)))).await;
                drop(request);
                effects.extend(task.step(answer.map_or_else(Input::Failed, |()| Input::Answered)));
            }
            other => scene.with(|state| state.broken(Law::Ends, format!("{other:?} while nothing goes on"))),
        }
    }
}
