//! The simulated disk: implements the [`Disk`] of `sabir-journal` over a [`DiskState`](crate::disk_state::DiskState), with possible failures at any operation.
//!
//! This file decides when an operation fails; `disk_state.rs` decides what it leaves behind.
//! Failures come from three sources: the machine has crashed, it crashes in this very
//! operation, or the plan of the task includes disk failures. Sabotage can make a sync lie.

use std::cell::Cell;
use std::fs::TryLockError;
use std::io;
use std::path::Path;

use sabir_journal::{Disk, DiskFile, OpenMode};

use crate::sabotage::Sabotage;
use crate::simulation_state::{SimulationHandle, SimulationState};

/// The disk of a simulated machine.
/// Every operation is an event, so a crash can strike before or within each of them.
pub(crate) struct SimulatedDisk(pub(crate) SimulationHandle);

/// An open file of the simulated disk.
struct SimulatedFile {
    /// The state that holds the disk.
    simulation: SimulationHandle,
    /// The index of the content. It stays valid when the name of the file is removed.
    file: usize,
    /// True if this handle holds the lock of the file.
    locked: Cell<bool>,
}

/// The outcome of an operation.
enum DiskOutcome {
    /// The operation succeeds.
    Done,
    /// The operation fails, and some of it may have been done.
    Fails(io::Error),
}

impl SimulatedDisk {
    /// Runs an operation, unless the machine crashed or the disk fails.
    ///
    /// Reads of the length and the content are not events, because a crash within one leaves nothing
    /// behind.
    fn run_operation<T>(
        &self,
        what: &str,
        work: impl FnOnce(&mut SimulationState) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.with_state(|state| {
            state.on_event(|| what.to_owned());
            match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => work(state),
            }
        })
    }
}

/// Draws whether an operation succeeds.
fn draw_outcome(state: &mut SimulationState) -> DiskOutcome {
    // A crashed process gets errors only, so that its code ends soon.
    if state.has_crashed() {
        return DiskOutcome::Fails(io::Error::other("the machine is gone"));
    }
    // Rare, since one failed append ends the run of a task.
    if state.plan.disk_trouble && state.rng.hits_permille(2) {
        return DiskOutcome::Fails(io::Error::other("an input/output error"));
    }
    DiskOutcome::Done
}

impl Disk for SimulatedDisk {
    // It has no error to report, so it is not an event either.
    fn exists(&self, path: &Path) -> bool {
        self.0.with_state(|state| state.disk_state.exists(path))
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.run_operation("disk: create folder", |state| {
            state.disk_state.create_folder(folder)
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.run_operation("disk: sync folder", |state| {
            state.disk_state.sync_folder(folder);
            Ok(())
        })
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file =
            self.run_operation("disk: create", |state| state.disk_state.create_file(path))?;
        Ok(Box::new(SimulatedFile {
            simulation: self.0.clone(),
            file,
            locked: Cell::new(false),
        }))
    }

    fn open_file(&self, path: &Path, _: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let file = self.run_operation("disk: open", |state| state.disk_state.open_file(path))?;
        Ok(Box::new(SimulatedFile {
            simulation: self.0.clone(),
            file,
            locked: Cell::new(false),
        }))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.run_operation("disk: remove", |state| state.disk_state.remove_file(path))
    }
}

impl SimulatedFile {
    /// Writes bytes. A crash during the write leaves any beginning of them, and so does a write that fails.
    fn write_bytes(&self, state: &mut SimulationState, bytes: &[u8], at: usize) -> io::Result<()> {
        // Drawn before the event, so that the same seed gives the same run whether or not the write
        // fails.
        let part = state.rng.index(bytes.len() + 1);
        let begun = bytes.get(..part).unwrap_or_default();
        state.on_event(|| format!("disk: write {} bytes at {at}", bytes.len()));
        if state.has_crashed() {
            // Only the event of the crash itself leaves a part of the bytes; later writes leave
            // nothing.
            if state.crashes_now() {
                state.disk_state.write_bytes(self.file, begun, at);
                state.counters.count_event("crashes inside an append");
            }
            return Err(io::Error::other("the machine is gone"));
        }
        // The journal distinguishes a full disk from a broken one, and neither may lose a record.
        let trouble = state.plan.disk_trouble;
        if trouble && state.rng.hits_permille(5) {
            state.disk_state.write_bytes(self.file, begun, at);
            state.counters.count_event("writes short");
            return Err(io::Error::other("an input/output error"));
        }
        if trouble && state.rng.hits_permille(5) {
            state.disk_state.write_bytes(self.file, begun, at);
            state.counters.count_event("disk full");
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.disk_state.write_bytes(self.file, bytes, at);
        Ok(())
    }

    /// Syncs the file, unless the machine crashes or the disk fails.
    fn sync_file(&self, state: &mut SimulationState) -> io::Result<()> {
        state.on_event(|| "disk: sync".to_owned());
        if state.has_crashed() {
            // The crash may strike just before or just after the sync.
            if state.crashes_now() {
                state.counters.count_event("crashes inside an append");
                if state.rng.below(2) == 0 {
                    state.disk_state.sync_file(self.file);
                }
            }
            return Err(io::Error::other("the machine is gone"));
        }
        // Without disk failures this is noticed only when the power is cut.
        if state.sabotage == Some(Sabotage::LieAboutSync) {
            return Ok(());
        }
        if state.plan.disk_trouble && state.rng.hits_permille(6) {
            state.counters.count_event("syncs failed");
            let SimulationState {
                disk_state,
                rng,
                counters,
                ..
            } = state;
            disk_state.fail_sync(self.file, rng, counters);
            return Err(io::Error::other("an input/output error"));
        }
        state.disk_state.sync_file(self.file);
        Ok(())
    }
}

impl DiskFile for SimulatedFile {
    fn try_lock(&self) -> Result<(), TryLockError> {
        let free = self
            .simulation
            .with_state(|state| state.disk_state.lock_file(self.file));
        // Remembered by the handle: only the one that took the lock may release it.
        self.locked.set(free);
        if free {
            Ok(())
        } else {
            Err(TryLockError::WouldBlock)
        }
    }

    fn unlock(&self) {
        // A lock that this handle does not hold belongs to another one.
        if self.locked.take() {
            self.simulation
                .with_state(|state| state.disk_state.unlock_file(self.file));
        }
    }

    fn byte_length(&self) -> io::Result<u64> {
        self.simulation
            .with_state(|state| match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => Ok(state.disk_state.byte_length(self.file) as u64),
            })
    }

    fn is_named(&self) -> io::Result<bool> {
        self.simulation
            .with_state(|state| match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => Ok(state.disk_state.is_named(self.file)),
            })
    }

    fn length_at(&self, path: &Path) -> io::Result<Option<u64>> {
        self.simulation
            .with_state(|state| match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => {
                    let is_same = state.disk_state.is_file_at(self.file, path);
                    Ok(is_same.then(|| state.disk_state.byte_length(self.file) as u64))
                }
            })
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        self.simulation
            .with_state(|state| match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => {
                    // A read may return fewer bytes than requested, which the journal must handle.
                    let most = if state.rng.hits_permille(100) {
                        state.rng.index(buffer.len()) + 1
                    } else {
                        buffer.len()
                    };
                    let most = most.min(buffer.len());
                    Ok(state.disk_state.read_bytes(
                        self.file,
                        buffer.get_mut(..most).unwrap_or_default(),
                        at,
                    ))
                }
            })
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        self.simulation
            .with_state(|state| self.write_bytes(state, bytes, at))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.simulation.with_state(|state| {
            state.on_event(|| format!("disk: set length {length}"));
            match draw_outcome(state) {
                DiskOutcome::Fails(error) => Err(error),
                DiskOutcome::Done => {
                    state.disk_state.set_length(self.file, length);
                    Ok(())
                }
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.simulation.with_state(|state| self.sync_file(state))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.simulation.with_state(|state| self.sync_file(state))
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
