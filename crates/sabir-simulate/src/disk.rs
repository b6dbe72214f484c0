//! The disk that a simulated journal lies on: the [`Disk`] of `sabir-journal` over a platter, with trouble at any operation.

use std::cell::Cell;
use std::fs::TryLockError;
use std::io;
use std::path::Path;

use sabir_journal::{Disk, DiskFile, Purpose};

use crate::sabotage::Sabotage;
use crate::scene::{Scene, State};

/// The disk of a simulated machine.
pub(crate) struct SimulatedDisk(pub(crate) Scene);

/// An open file of it.
struct Open {
    scene: Scene,
    file: usize,
    /// Whether the lock is this one's.
    locked: Cell<bool>,
}

/// What becomes of an operation.
enum Fate {
    Done,
    /// It fails, and some of it may have been done.
    Fails(io::Error),
}

impl SimulatedDisk {
    fn on<T>(&self, what: &str, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.0.with(|state| {
            state.happens(|| what.to_owned());
            match fate(state) {
                Fate::Fails(error) => Err(error),
                Fate::Done => work(state),
            }
        })
    }
}

/// Whether the machine is still there and the disk in good humour.
fn fate(state: &mut State) -> Fate {
    if state.crashed() {
        return Fate::Fails(io::Error::other("the machine is gone"));
    }
    if state.plan.disk_trouble && state.chance.permille(2) {
        return Fate::Fails(io::Error::other("an input/output error"));
    }
    Fate::Done
}

impl Disk for SimulatedDisk {
    fn exists(&self, path: &Path) -> bool {
        self.0.with(|state| state.platter.exists(path))
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.on("disk: create folder", |state| state.platter.create_folder(folder))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.on("disk: sync folder", |state| {
            state.platter.sync_folder(folder);
            Ok(())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.on("disk: create", |state| state.platter.create(path))?;
        Ok(Box::new(Open { scene: self.0.clone(), file, locked: Cell::new(false) }))
    }

    fn open(&self, path: &Path, _: Purpose) -> io::Result<Box<dyn DiskFile>> {
        let file = self.on("disk: open", |state| state.platter.open(path))?;
        Ok(Box::new(Open { scene: self.0.clone(), file, locked: Cell::new(false) }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.on("disk: remove", |state| state.platter.remove(path))
    }
}

impl Open {
    fn write(&self, state: &mut State, bytes: &[u8], at: usize) -> io::Result<()> {
        let part = state.chance.index(bytes.len() + 1);
        let begun = bytes.get(..part).unwrap_or_default();
        state.happens(|| format!("disk: write {} bytes at {at}", bytes.len()));
        if state.crashed() {
            if state.crashes_now() {
                state.platter.write(self.file, begun, at);
                state.figures.count("crashes inside an append");
            }
            return Err(io::Error::other("the machine is gone"));
        }
        let trouble = state.plan.disk_trouble;
        if trouble && state.chance.permille(5) {
            state.platter.write(self.file, begun, at);
            state.figures.count("writes short");
            return Err(io::Error::other("an input/output error"));
        }
        if trouble && state.chance.permille(5) {
            state.platter.write(self.file, begun, at);
            state.figures.count("disk full");
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.platter.write(self.file, bytes, at);
        Ok(())
    }

    fn sync(&self, state: &mut State) -> io::Result<()> {
        state.happens(|| "disk: sync".to_owned());
        if state.crashed() {
            // Before it, or just after.
            if state.crashes_now() {
                state.figures.count("crashes inside an append");
                if state.chance.below(2) == 0 {
                    state.platter.sync(self.file);
                }
            }
            return Err(io::Error::other("the machine is gone"));
        }
        if state.sabotage == Some(Sabotage::LieAboutSync) {
            return Ok(());
        }
        if state.plan.disk_trouble && state.chance.permille(6) {
            state.figures.count("syncs failed");
            let State { platter, chance, figures, .. } = state;
            platter.fail_sync(self.file, chance, figures);
            return Err(io::Error::other("an input/output error"));
        }
        state.platter.sync(self.file);
        Ok(())
    }
}

impl DiskFile for Open {
    fn try_lock(&self) -> Result<(), TryLockError> {
        let free = self.scene.with(|state| state.platter.lock(self.file));
        self.locked.set(free);
        if free { Ok(()) } else { Err(TryLockError::WouldBlock) }
    }

    fn unlock(&self) {
        if self.locked.take() {
            self.scene.with(|state| state.platter.unlock(self.file));
        }
    }

    fn length(&self) -> io::Result<u64> {
        self.scene.with(|state| match fate(state) {
            Fate::Fails(error) => Err(error),
            Fate::Done => Ok(state.platter.length(self.file) as u64),
        })
    }

    fn is_named(&self) -> io::Result<bool> {
        self.scene.with(|state| match fate(state) {
            Fate::Fails(error) => Err(error),
            Fate::Done => Ok(state.platter.is_named(self.file)),
        })
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        self.scene.with(|state| match fate(state) {
            Fate::Fails(error) => Err(error),
            Fate::Done => {
                // A read may give less than was asked for.
                let most = if state.chance.permille(100) { state.chance.index(buffer.len()) + 1 } else { buffer.len() };
                let most = most.min(buffer.len());
                Ok(state.platter.read(self.file, buffer.get_mut(..most).unwrap_or_default(), at))
            }
        })
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        self.scene.with(|state| self.write(state, bytes, at))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.scene.with(|state| {
            state.happens(|| format!("disk: set length {length}"));
            match fate(state) {
                Fate::Fails(error) => Err(error),
                Fate::Done => {
                    state.platter.set_length(self.file, length);
                    Ok(())
                }
            }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.scene.with(|state| self.sync(state))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.scene.with(|state| self.sync(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.unlock();
    }
}
