//! A model of a tree of processes: a shim that keeps two instants, a program, and launch beside them.
//!
//! The shim is a process of this world, so that it can be stopped and killed apart from its supervisor. It does what the real one
//! does: it obeys what comes over its socket, tells the program to end at the first instant and kills it at the second, both
//! by its machine's clock since boot, and it kills at once when the socket is closed. A kill takes a while, and the program goes
//! on meanwhile. Of launch only that matters which others see: it holds the lock too, lets a stopped shim go on, and ends what
//! a shim that was killed has left where no kernel does.

mod shim;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::hold::timing::{HoldDeadline, TreeKill};
use tokio::sync::{Notify, mpsc};

use super::checker::{HoldChecker, HoldStart, TreeId};
use super::machine::{HoldMachine, LockShare};
use super::setting::Habit;
use crate::clock::{MS, TrueTime};
use crate::dice::Dice;
use crate::world::{ProcessId, World};

/// The longest that anybody here sleeps at a time, since rates of clocks change meanwhile.
const SLICE: TrueTime = 20 * MS;

/// How long a kill takes that the machine has time for: what docs/holds.md gives a program that wakes up too late.
const QUICK_KILL: TrueTime = 9 * MS;

/// How long a program that looks at its signals takes to end.
const QUICK_END: TrueTime = 200 * MS;

/// What a supervisor tells a shim.
#[derive(Debug, Clone, Copy)]
pub enum TreeOrder {
    /// The program may go on until then.
    Confirm(HoldDeadline),
    /// The program is told to end, and killed after the grace.
    Stop {
        /// How long it may take.
        grace: Duration,
    },
    /// The tree is killed.
    Kill,
}

/// What a supervisor hears of a tree.
#[derive(Debug, Clone, Copy)]
pub enum TreeNews {
    /// The program runs.
    Started,
    /// It does not, and nothing is left.
    NotStarted,
    /// The tree is empty.
    Ended {
        /// How long the program ran, by the machine's clock since boot.
        ran: Duration,
        /// Whether its deadline ended it.
        is_unconfirmed: bool,
        /// How long after its last instant it was empty.
        kill_late: Option<Duration>,
    },
    /// Nobody knows what is left.
    LostSight,
}

/// What a tree is made of.
pub struct TreePlan {
    /// What the program finds around it.
    pub start: HoldStart,
    /// Who kills it.
    pub kill: TreeKill,
    /// What kind of program it is.
    pub habit: Habit,
    /// Where what is left to chance comes from.
    pub dice: Dice,
    /// The lock of the hold on this machine, if somebody took it.
    pub lock: Option<LockShare>,
}

/// A tree, as the machine has it.
pub struct SimTree {
    world: World,
    checker: Arc<HoldChecker>,
    machine: HoldMachine,
    id: TreeId,
    supervisor: ProcessId,
    kill: TreeKill,
    habit: Habit,
    state: Mutex<TreeState>,
    /// The program has ended.
    died: Notify,
    news: mpsc::UnboundedSender<TreeNews>,
}

#[expect(clippy::struct_excessive_bools, reason = "each is about another process")]
struct TreeState {
    program: ProgramState,
    /// Whether somebody has stopped the program alone.
    is_stopped: bool,
    executes: bool,
    began: Duration,
    /// None when it was killed, or in a tree without one.
    shim: Option<ProcessId>,
    is_shim_stopped: bool,
    is_launch_there: bool,
    /// For how many reasons all of the machine stands still.
    freezes: u32,
    thawed: Option<TrueTime>,
    kill_at: Duration,
    lock: Option<LockShare>,
    dice: Dice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramState {
    Unborn,
    Alive,
    Dying,
    Gone,
}

/// A tree, as its supervisor has it. Dropping it closes the socket.
pub struct HeldTree {
    /// What others do to it.
    pub tree: Arc<SimTree>,
    orders: mpsc::UnboundedSender<TreeOrder>,
    news: mpsc::UnboundedReceiver<TreeNews>,
}

impl HeldTree {
    /// Tells the shim something. One that is gone hears nothing.
    pub fn tell(&self, order: TreeOrder) {
        self.orders.send(order).ok();
    }

    /// Waits until something is heard.
    pub async fn hears(&mut self) -> TreeNews {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }
}

impl SimTree {
    /// Starts a program under a shim, which must be gone by then.
    pub fn start(
        world: &World,
        checker: &Arc<HoldChecker>,
        machine: &HoldMachine,
        plan: TreePlan,
        deadline: HoldDeadline,
    ) -> HeldTree {
        let (orders, obeyed) = mpsc::unbounded_channel();
        let (tree, news) = Self::new(world, checker, machine, plan);
        tree.lock().kill_at = deadline.kill_at;
        let its = Arc::clone(&tree);
        let shim = world.spawn(|_| async move { its.keep(obeyed, deadline).await });
        tree.lock().shim = Some(shim);
        for _ in 0..machine.freezes() {
            world.pause(shim);
            tree.lock().freezes += 1;
        }
        HeldTree { tree, orders, news }
    }

    /// Starts a program that nobody guards: it ends when it is killed by whoever started it, and not with them.
    pub fn start_unguarded(
        world: &World,
        checker: &Arc<HoldChecker>,
        machine: &HoldMachine,
        plan: TreePlan,
    ) -> Arc<Self> {
        let (tree, _) = Self::new(world, checker, machine, plan);
        tree.lock().freezes = machine.freezes();
        tree.begin();
        tree
    }

    fn new(
        world: &World,
        checker: &Arc<HoldChecker>,
        machine: &HoldMachine,
        plan: TreePlan,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<TreeNews>) {
        let TreePlan { start, kill, habit, dice, lock } = plan;
        let (news, heard) = mpsc::unbounded_channel();
        let tree = Arc::new(Self {
            world: world.clone(),
            checker: Arc::clone(checker),
            machine: machine.clone(),
            id: checker.tree(world, &start, machine.reading()),
            supervisor: start.supervisor,
            kill,
            habit,
            state: Mutex::new(TreeState {
                program: ProgramState::Unborn,
                is_stopped: false,
                executes: false,
                began: Duration::ZERO,
                shim: None,
                is_shim_stopped: false,
                is_launch_there: true,
                freezes: 0,
                thawed: None,
                kill_at: Duration::MAX,
                lock,
                dice,
            }),
            died: Notify::new(),
            news,
        });
        machine.add(&tree);
        (tree, heard)
    }

    /// The program begins.
    fn begin(self: &Arc<Self>) {
        let now = self.machine.reading().boot;
        {
            let mut state = self.lock();
            state.program = ProgramState::Alive;
            state.began = now;
        }
        self.world.trace(self.id, || "begins".into());
        self.settle();
        let life = {
            let dice = &mut self.lock().dice;
            match self.habit {
                Habit::Crashes => Some(dice.between(10 * MS, 4_000 * MS)),
                Habit::Obeys | Habit::Lingers | Habit::Ignores => None,
            }
        };
        if let Some(life) = life {
            self.exit_after(life);
        }
    }

    /// SIGTERM, and SIGCONT.
    fn tell_to_end(&self) {
        self.world.trace(self.id, || "is told to end".into());
        let after = {
            let mut state = self.lock();
            state.is_stopped = false;
            match self.habit {
                Habit::Obeys | Habit::Crashes => Some(state.dice.between(0, QUICK_END)),
                Habit::Lingers => Some(state.dice.between(0, 6_000 * MS)),
                Habit::Ignores => None,
            }
        };
        self.settle();
        if let Some(after) = after {
            self.exit_after(after);
        }
    }

    /// The program ends by itself after so long, if it can.
    fn exit_after(&self, after: TrueTime) {
        let Some(tree) = self.machine.tree(self.id) else { return };
        self.world.after(after, move |_| tree.exit());
    }

    /// The program ends by itself.
    pub fn exit(self: Arc<Self>) {
        let (is_alive, executes) = {
            let state = self.lock();
            (state.program == ProgramState::Alive, state.executes)
        };
        if is_alive && executes {
            self.world.trace(self.id, || "ends by itself".into());
            self.checker.exits(&self.world);
            self.program_is_gone();
        } else if is_alive {
            self.exit_after(SLICE);
        }
    }

    /// Kills whatever is left, which takes a while.
    async fn end(&self) {
        let Some(takes) = self.dies() else { return };
        self.world.sleep(takes).await;
        self.program_is_gone();
    }

    /// It is being killed from here on: for how long. None if it has ended.
    fn dies(&self) -> Option<TrueTime> {
        let now = self.world.now();
        let mut state = self.lock();
        if state.program == ProgramState::Gone {
            return None;
        }
        state.program = ProgramState::Dying;
        let has_thawed = state.freezes > 0 || state.thawed.is_some_and(|at| at + SLICE > now);
        let longest = match self.kill {
            TreeKill::Kernel => 90 * MS,
            TreeKill::Search => 360 * MS,
        };
        let is_slow = !has_thawed && state.dice.chance(25);
        let takes = state.dice.between(0, if is_slow { longest } else { QUICK_KILL });
        drop(state);
        self.world.trace(self.id, || "is being killed".into());
        Some(takes)
    }

    fn program_is_gone(&self) {
        self.lock().program = ProgramState::Gone;
        self.settle();
        self.died.notify_one();
        let is_unguarded = self.lock().shim.is_none();
        if is_unguarded {
            self.leave();
        }
    }

    /// The last that is there of the tree goes, and the lock with it.
    fn leave(&self) {
        let lock = {
            let mut state = self.lock();
            state.program = ProgramState::Gone;
            state.lock.take()
        };
        self.settle();
        self.world.trace(self.id, || "is empty".into());
        self.checker.empty(&self.world, self.id);
        self.machine.remove(self.id);
        drop(lock);
    }

    /// Tells the checker if the program executes now and did not before, or the other way round.
    fn settle(&self) {
        let executes = {
            let mut state = self.lock();
            let is_there = matches!(state.program, ProgramState::Alive | ProgramState::Dying);
            let executes = is_there && !state.is_stopped && state.freezes == 0;
            if state.executes == executes {
                return;
            }
            state.executes = executes;
            executes
        };
        let now = self.machine.reading();
        if executes {
            self.checker.executes(&self.world, self.id);
        } else {
            self.checker.rests(&self.world, self.id, now);
        }
    }

    fn say(&self, news: TreeNews) {
        // The supervisor may be gone.
        self.news.send(news).ok();
    }

    /// Its number.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Somebody stops the program alone.
    pub fn stop_program(&self) {
        self.lock().is_stopped = true;
        self.settle();
    }

    /// Somebody lets it go on.
    pub fn continue_program(&self) {
        self.lock().is_stopped = false;
        self.settle();
    }

    /// Somebody stops the shim.
    pub fn stop_shim(self: &Arc<Self>) {
        let shim = {
            let mut state = self.lock();
            if state.is_shim_stopped {
                return;
            }
            state.is_shim_stopped = state.shim.is_some();
            state.shim
        };
        if let Some(shim) = shim {
            self.world.pause(shim);
            self.look_for_supervisor();
        }
    }

    /// The shim goes on.
    pub fn continue_shim(&self) {
        let shim = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.is_shim_stopped) {
                return;
            }
            state.shim
        };
        if let Some(shim) = shim {
            self.world.resume(shim);
        }
    }

    /// While the shim is stopped its supervisor ends the tree, unless that is stopped or gone, too: the stated limit.
    fn look_for_supervisor(self: &Arc<Self>) {
        if !self.lock().is_shim_stopped {
            return;
        }
        if !self.world.runs(self.supervisor) {
            self.checker.is_beyond_the_limit(&self.world, self.id);
        }
        let tree = Arc::clone(self);
        self.world.after(5 * MS, move |_| tree.look_for_supervisor());
    }

    /// Somebody kills the shim.
    pub fn kill_shim(self: &Arc<Self>) {
        let (shim, is_launch_there) = {
            let mut state = self.lock();
            (state.shim.take(), state.is_launch_there)
        };
        let Some(shim) = shim else { return };
        self.world.trace(self.id, || "has lost its shim".into());
        self.checker.exits(&self.world);
        self.world.kill(shim);
        if self.lock().program == ProgramState::Unborn {
            self.say(TreeNews::NotStarted);
            return self.leave();
        }
        match self.kill {
            TreeKill::Search if !is_launch_there => self.loses_guards(),
            TreeKill::Kernel | TreeKill::Search => {
                let takes = self.dies().unwrap_or(0);
                self.gone_after(takes);
            }
        }
    }

    /// Somebody kills launch.
    pub fn kill_launch(self: &Arc<Self>) {
        self.lock().is_launch_there = false;
    }

    /// Nobody is left who could end the program.
    fn loses_guards(&self) {
        self.checker.lost_its_guards(self.id);
        let lock = self.lock().lock.take();
        drop(lock);
        self.say(TreeNews::LostSight);
    }

    /// The kernel, or launch, ends what is left.
    fn gone_after(self: &Arc<Self>, takes: TrueTime) {
        let tree = Arc::clone(self);
        self.world.after(takes, move |_| {
            if tree.lock().freezes > 0 {
                return tree.gone_after(5 * MS);
            }
            let now = tree.machine.reading().boot;
            let (ran, late) = {
                let state = tree.lock();
                (now.saturating_sub(state.began), now.checked_sub(state.kill_at))
            };
            let kill_late = late.filter(|late| !late.is_zero());
            tree.program_is_gone();
            tree.say(TreeNews::Ended { ran, is_unconfirmed: false, kill_late });
        });
    }

    /// Whoever started an unguarded program kills it.
    pub fn kill_program(self: &Arc<Self>) {
        if let Some(takes) = self.dies() {
            self.gone_after(takes);
        }
    }

    /// Everything on the machine stands still.
    pub(super) fn freeze(&self) {
        let shim = {
            let mut state = self.lock();
            state.freezes += 1;
            state.shim
        };
        if let Some(shim) = shim {
            self.world.pause(shim);
        }
        self.settle();
    }

    /// Everything goes on.
    pub(super) fn thaw(&self) {
        let now = self.world.now();
        let (shim, is_thawed) = {
            let mut state = self.lock();
            state.freezes -= 1;
            state.thawed = Some(now);
            (state.shim, state.freezes == 0)
        };
        if is_thawed {
            self.checker.wakes(&self.world, self.id);
        }
        self.settle();
        if let Some(shim) = shim {
            self.world.resume(shim);
        }
    }

    /// The machine loses its power.
    pub(super) fn vanish(&self) {
        let shim = self.lock().shim.take();
        if let Some(shim) = shim {
            self.world.kill(shim);
        }
        self.leave();
    }

    fn lock(&self) -> MutexGuard<'_, TreeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
