//! A machine as programs have it: its clock since boot, the lock of the hold, and the trees that are on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::lease::Reading;

use super::checker::TreeId;
use super::tree::SimTree;
use crate::clock::{MS, TrueTime};
use crate::network::SharedSite;
use crate::world::World;

/// How often a lock is tried that somebody else has.
const LOCK_PAUSE: TrueTime = 10 * MS;

/// The longest that is slept at a time, since rates of clocks change meanwhile.
const SLICE: TrueTime = 20 * MS;

/// A machine. Clones are the same one.
#[derive(Clone)]
pub struct HoldMachine(Arc<MachineShared>);

struct MachineShared {
    world: World,
    site: SharedSite,
    state: Mutex<MachineState>,
}

#[derive(Default)]
struct MachineState {
    /// Whether somebody has the lock.
    is_locked: bool,
    trees: Vec<Arc<SimTree>>,
    freezes: u32,
    /// Counts the times at which it lost its power: what was locked before is not any more.
    boots: u64,
}

/// The lock, had for as long as this is there.
pub struct LockShare {
    machine: HoldMachine,
    boot: u64,
}

impl Drop for LockShare {
    fn drop(&mut self) {
        let mut state = self.machine.lock();
        if state.boots == self.boot {
            state.is_locked = false;
        }
    }
}

impl HoldMachine {
    /// The machine at this site, with nothing on it.
    pub fn new(world: &World, site: &SharedSite) -> Self {
        let (world, site) = (world.clone(), Arc::clone(site));
        Self(Arc::new(MachineShared { world, site, state: Mutex::default() }))
    }

    /// Both clocks.
    pub fn reading(&self) -> Reading {
        let site = self.0.site.lock().unwrap_or_else(PoisonError::into_inner);
        site.clocks.reading(self.0.world.now())
    }

    /// Waits until the clock since boot shows this, as an absolute timer does.
    pub async fn until(&self, at: Duration) {
        loop {
            let left = at.saturating_sub(self.reading().boot);
            if left.is_zero() {
                return;
            }
            let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            self.0.world.sleep((left / 10 * 9).clamp(MS / 100, SLICE)).await;
        }
    }

    /// Waits until the lock is free, and has it then.
    pub async fn take_lock(self) -> LockShare {
        loop {
            {
                let mut state = self.lock();
                if !state.is_locked {
                    state.is_locked = true;
                    let boot = state.boots;
                    drop(state);
                    return LockShare { machine: self, boot };
                }
            }
            self.0.world.sleep(LOCK_PAUSE).await;
        }
    }

    /// For how many reasons everything here stands still.
    pub fn freezes(&self) -> u32 {
        self.lock().freezes
    }

    /// The trees that are not empty.
    pub fn trees(&self) -> Vec<Arc<SimTree>> {
        self.lock().trees.clone()
    }

    /// One of them.
    pub fn tree(&self, id: TreeId) -> Option<Arc<SimTree>> {
        self.lock().trees.iter().find(|tree| tree.id() == id).cloned()
    }

    pub(super) fn add(&self, tree: &Arc<SimTree>) {
        self.lock().trees.push(Arc::clone(tree));
    }

    pub(super) fn remove(&self, id: TreeId) {
        let gone = {
            let mut state = self.lock();
            let at = state.trees.iter().position(|tree| tree.id() == id);
            at.map(|at| state.trees.remove(at))
        };
        drop(gone);
    }

    /// Every tree stands still.
    pub fn freeze(&self) {
        self.lock().freezes += 1;
        self.trees().iter().for_each(|tree| tree.freeze());
    }

    /// Every tree goes on.
    pub fn thaw(&self) {
        self.lock().freezes -= 1;
        self.trees().iter().for_each(|tree| tree.thaw());
    }

    /// It loses its power, and whatever is on it is gone.
    pub fn lose_power(&self) {
        self.trees().iter().for_each(|tree| tree.vanish());
        let mut state = self.lock();
        state.boots += 1;
        state.is_locked = false;
    }

    /// Lets go of its trees, which hold it.
    pub(super) fn forget(&self) {
        let trees = std::mem::take(&mut self.lock().trees);
        drop(trees);
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
