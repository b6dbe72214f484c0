//! Work done by several threads at once, whose results come in order.
//!
//! A job has a key, and gives parts of the result and more jobs, whose keys lie between its own and the next. The job with the
//! least key is taken up first, and a part is handed over once nothing with a lesser key is waiting or under way. So the result
//! is the same however many threads there are, and an end that is reached early spares the jobs after it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::stop_flag::StopFlag;

/// Beyond this many threads the disk is what is waited for.
const MAX_THREADS: usize = 12;

/// The place in the order: that of paths, each folder right before what it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey(Vec<u8>);

/// What a job gives.
pub(crate) enum JobOutput<J, P> {
    /// More to do.
    Job(J),
    /// A part of the result, and how many things it holds.
    Part(P, usize),
}

impl OrderKey {
    /// The key of a file, or of a folder itself.
    pub(crate) fn for_path(path: &Path) -> Self {
        // No name holds a NUL, so a folder comes right before what it holds.
        let bytes = path.as_os_str().as_encoded_bytes();
        Self(bytes.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect())
    }

    /// The key of what a folder holds, as a whole.
    pub(crate) fn for_contents(path: &Path) -> Self {
        let Self(mut bytes) = Self::for_path(path);
        bytes.push(0);
        Self(bytes)
    }
}

/// Does the first job and all that follow from it, and hands over the parts in order until all is done, the taker breaks off or
/// a stop is asked for. Each thread makes a worker of its own. Threads that are ahead wait while parts of `ahead` things are
/// held.
pub(crate) fn run_in_order<J: Send, P: Send, W: FnMut(J) -> Vec<(OrderKey, JobOutput<J, P>)>>(
    first: (OrderKey, J),
    ahead: usize,
    stop: &StopFlag,
    worker: impl Fn() -> W + Sync,
    take: impl FnMut(P) -> ControlFlow<()> + Send,
) {
    let waiting = BTreeMap::from([first]);
    let board = PoolState { waiting, running: Vec::new(), done: BTreeMap::new(), held: 0, over: false, take };
    let shared = PoolShared { board: Mutex::new(board), changed: Condvar::new(), ahead, stop };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where no more threads are to be had, those that are do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || shared.run_worker(worker()));
        }
        shared.run_worker(worker());
    });
}

struct PoolShared<'a, J, P, T> {
    board: Mutex<PoolState<J, P, T>>,
    changed: Condvar,
    ahead: usize,
    stop: &'a StopFlag,
}

struct PoolState<J, P, T> {
    waiting: BTreeMap<OrderKey, J>,
    running: Vec<OrderKey>,
    done: BTreeMap<OrderKey, (P, usize)>,
    /// How many things are in `done`.
    held: usize,
    over: bool,
    take: T,
}

impl<J, P, T: FnMut(P) -> ControlFlow<()>> PoolShared<'_, J, P, T> {
    fn run_worker(&self, mut worker: impl FnMut(J) -> Vec<(OrderKey, JobOutput<J, P>)>) {
        let _leaving = PoolShutdown(self);
        let mut board = self.lock_state();
        loop {
            board.over |= self.stop.is_requested() || (board.waiting.is_empty() && board.running.is_empty());
            if board.over {
                return;
            }
            let Some((key, job)) = board.next_job(self.ahead) else {
                board = self.changed.wait(board).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            board.running.push(key.clone());
            drop(board);
            let given = worker(job);
            board = self.lock_state();
            board.finish_job(&key, given);
            self.changed.notify_all();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, PoolState<J, P, T>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J, P, T: FnMut(P) -> ControlFlow<()>> PoolState<J, P, T> {
    /// The job with the least key, unless enough is done ahead of what is missing.
    fn next_job(&mut self, ahead: usize) -> Option<(OrderKey, J)> {
        let least = self.waiting.first_key_value()?.0;
        let missing = self.running.iter().all(|running| least < running);
        if missing || self.held <= ahead { self.waiting.pop_first() } else { None }
    }

    fn finish_job(&mut self, key: &OrderKey, given: Vec<(OrderKey, JobOutput<J, P>)>) {
        self.running.retain(|running| running != key);
        for (key, next) in given {
            match next {
                JobOutput::Job(job) => drop(self.waiting.insert(key, job)),
                JobOutput::Part(part, count) => {
                    // A part without things takes room as well.
                    self.held += count + 1;
                    self.done.insert(key, (part, count));
                }
            }
        }
        while !self.over && self.done.first_key_value().is_some_and(|(key, _)| self.is_next(key)) {
            let Some((_, (part, count))) = self.done.pop_first() else { return };
            self.held -= count + 1;
            self.over = (self.take)(part).is_break();
        }
    }

    fn is_next(&self, key: &OrderKey) -> bool {
        self.waiting.first_key_value().is_none_or(|(waiting, _)| key < waiting)
            && self.running.iter().all(|running| key < running)
    }
}

/// A thread that ends, ends the others, also when it panics.
struct PoolShutdown<'a, 'b, J, P, T: FnMut(P) -> ControlFlow<()>>(&'a PoolShared<'b, J, P, T>);

impl<J, P, T: FnMut(P) -> ControlFlow<()>> Drop for PoolShutdown<'_, '_, J, P, T> {
    fn drop(&mut self) {
        self.0.lock_state().over = true;
        self.0.changed.notify_all();
    }
}
