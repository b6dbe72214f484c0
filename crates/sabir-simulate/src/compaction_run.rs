//! Compaction runs: processes that do not continue the task but compact its context, or undo that.
//!
//! Between two runs a user can compact the context of a task and undo that. Here a whole process
//! does nothing else: it opens the task, steps it once, answers the request for a summary if there
//! is one, and ends. The next process continues with what the journal then holds.
//! The invariants about compaction (`Restores`, `Verbatim`) are mostly checked at the next request; only
//! the preview is compared at once.

use std::collections::VecDeque;

use sabir_agent::{ContextChange, Record, RecordStore, SummaryAuthor, Task, TaskEffect, TaskInput};
use sabir_call::{Event, Model};

use crate::invariants::Invariant;
use crate::model::SimulatedModel;
use crate::sabotage::Sabotage;
use crate::simulation_state::SimulationHandle;
use crate::store::WatchedStore;

/// Compacts the context of a task that was just opened, or undoes a compaction, if the machine allows it. Checks that the result equals
/// the preview.
pub(crate) async fn run_compaction(
    simulation: &SimulationHandle,
    task: &mut Task,
    store: &mut WatchedStore,
    model: &SimulatedModel,
) {
    // Undoing is drawn more often while a compaction is in effect, or there would rarely be one to
    // undo.
    let input = simulation.with_state(|state| match state.rng.below(4) {
        0 => TaskInput::UndoCompaction,
        1 if state.observations.request_tracker.is_compacted() => TaskInput::UndoCompaction,
        1 | 2 => TaskInput::Compact(SummaryAuthor::Sabir),
        _ => TaskInput::Compact(SummaryAuthor::Model),
    });
    // Taken before the step, as a user sees it before deciding.
    let promised = task.preview_compaction();
    let mut effects = VecDeque::from(task.step(input));
    while let Some(effect) = effects.pop_front() {
        match effect {
            TaskEffect::PersistRecord(record) => {
                // The disk failed. The next process opens the journal and compares it with the
                // acknowledged records.
                if store.append(&record).is_err() {
                    return;
                }
                if let Record::Context(ContextChange::Compacted(compacted)) = &record
                    // A summary by the model is not known in advance, so its preview states only
                    // sizes.
                    && compacted.by == SummaryAuthor::Sabir
                {
                    let lies = simulation
                        .with_state(|state| state.sabotage == Some(Sabotage::PreviewOther));
                    let kept = promised.as_ref().filter(|_| !lies).is_some_and(|promised| {
                        (&promised.head, promised.before, promised.after)
                            == (&compacted.head, compacted.before, compacted.after)
                    });
                    if !kept {
                        simulation.with_state(|state| {
                            state.report_violation(
                                Invariant::Restores,
                                format!("{promised:?} became {compacted:?}"),
                            )
                        });
                    }
                }
            }
            // Only the summary is asked for: a task that is not driven has nothing else to ask.
            TaskEffect::RequestModel => {
                let request = task.model_request();
                let answer = model
                    .stream_response(&request, &mut |event: Event<'_>| {
                        drop(task.step(TaskInput::ModelEvent(event)))
                    })
                    .await;
                drop(request);
                effects.extend(task.step(
                    answer.map_or_else(TaskInput::ModelFailed, |()| TaskInput::ModelFinished),
                ));
            }
            // A compaction runs no tool and asks nobody, so any other effect breaks invariant `Ends`.
            other => simulation.with_state(|state| {
                state.report_violation(Invariant::Ends, format!("{other:?} while nothing goes on"))
            }),
        }
    }
}
