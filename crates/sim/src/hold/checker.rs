//! The checker of holds: sees every program, and says when a promise is broken.
//!
//! It stands where no process can. From the machines it hears when a program executes and when it does not: one that is stopped
//! or asleep does not, and one that is being killed does until it is gone. At the store's door it sees every commit land, and
//! knows from that who has the claim, which renewals there were and when each was sent. And it knows what was done to whom.
//! Nothing here uses the rules that it checks: what it needs of them it works out again.
//!
//! Two things are no broken promise, because docs/holds.md does not promise them; they are counted apart. A program whose shim
//! is stopped while its supervisor is stopped or gone, or whose guards were both killed where no kernel stands behind them, is
//! *beyond the limit*. And what wakes with its machine after its time is over has 10 ms to be gone.

mod door;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::lease::Reading;
use store::{Class, Key};

use self::door::Door;
use super::promise::{HoldPromise, HoldViolation};
use crate::clock::{MS, TrueTime};
use crate::sim_store::NodeIndex;
use crate::world::{ProcessId, World, seconds};

/// How long a program that wakes up too late may go on: what docs/holds.md says.
const WAKING: TrueTime = 10 * MS;

/// How long after its shim and its supervisor were stopped together a program may be there, once one of them goes on.
const AFTER_LIMIT: TrueTime = 600 * MS;

/// A tree, by the order in which they were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeId(u64);

impl fmt::Display for TreeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("t{}", self.0))
    }
}

/// What the checker has to know about a run beforehand.
#[derive(Debug, Clone)]
pub struct HoldPremises {
    /// The head of the claim.
    pub head: Key,
    /// T of each node.
    pub ttls: Vec<Duration>,
    /// The store's class.
    pub class: Class,
    /// Whether a person must approve each holder.
    pub manual: bool,
    /// Whether messages always arrive, and soon, unless a fault says otherwise.
    pub calm: bool,
    /// Whether programs are held by what is checked here, and not by an ancestor of it.
    pub promised: bool,
}

/// A start of a program.
#[derive(Debug, Clone)]
pub struct HoldStart {
    /// Where.
    pub node: NodeIndex,
    /// By which process.
    pub supervisor: ProcessId,
    /// The session that has the claim.
    pub session: Option<Key>,
    /// The token that the program sees.
    pub token: u64,
}

/// What a run was like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct HoldCounts {
    pub starts: u64,
    pub takes: u64,
    pub unconfirmed: u64,
    pub exits: u64,
    pub given_up: u64,
    pub woke_late: u64,
    pub beyond: u64,
    pub raised: u64,
    /// How often two executed at once, for an ancestor.
    pub overlaps: u64,
    /// For how long in all.
    pub overlapped: TrueTime,
    /// How long nobody executed after a fail-over that nothing disturbed, each.
    pub gaps: Vec<TrueTime>,
}

/// Watches a run of holds, and keeps what it needs to judge it.
pub struct HoldChecker {
    premises: HoldPremises,
    state: Mutex<CheckerState>,
}

#[derive(Default)]
struct CheckerState {
    violation: Option<HoldViolation>,
    counts: HoldCounts,
    started: u64,
    trees: BTreeMap<TreeId, SeenTree>,
    executing: BTreeSet<TreeId>,
    overlap_since: Option<TrueTime>,
    door: Door,
    last: Option<(u64, Option<Key>)>,
    vacant_since: TrueTime,
    /// When the last exit by itself was.
    exited: Option<TrueTime>,
    /// Until when something is wrong with each node, and with all of them.
    disturbed: BTreeMap<NodeIndex, TrueTime>,
    all_disturbed: TrueTime,
    /// Nodes whose supervisor is there, and since when.
    supervisors: BTreeMap<ProcessId, (NodeIndex, TrueTime)>,
}

/// A tree that is not empty.
struct SeenTree {
    start: HoldStart,
    woke: Option<TrueTime>,
    /// Until when it is beyond the limit.
    beyond: TrueTime,
    has_no_guards: bool,
}

impl SeenTree {
    /// Whether its machine has just woken: it has a little while to be gone.
    fn is_waking(&self, now: TrueTime) -> bool {
        self.woke.is_some_and(|woke| woke + WAKING > now)
    }

    fn is_beyond(&self, now: TrueTime) -> bool {
        self.has_no_guards || self.beyond > now
    }

    fn is_excused(&self, now: TrueTime) -> bool {
        self.is_waking(now) || self.is_beyond(now)
    }
}

impl HoldChecker {
    /// A checker that has seen nothing yet.
    pub fn new(premises: HoldPremises) -> Self {
        Self { premises, state: Mutex::default() }
    }

    /// The first violation that was seen.
    pub fn violation(&self) -> Option<HoldViolation> {
        self.lock().violation.clone()
    }

    /// What the run was like so far.
    pub fn counts(&self) -> HoldCounts {
        self.lock().counts.clone()
    }

    /// A supervisor begins.
    pub fn supervises(&self, world: &World, process: ProcessId, node: NodeIndex) {
        self.lock().supervisors.insert(process, (node, world.now()));
    }

    /// Something is done to a node, or to all of them, which is over at this time.
    pub fn disturb(&self, node: Option<NodeIndex>, until: TrueTime) {
        let mut state = self.lock();
        let kept = match node {
            Some(node) => state.disturbed.entry(node).or_default(),
            None => &mut state.all_disturbed,
        };
        *kept = until.max(*kept);
    }

    /// An assumption was seen broken, and told.
    pub fn raised(&self) {
        self.lock().counts.raised += 1;
    }

    /// A program is ordered to be started when its machine's clocks show this.
    pub fn tree(&self, world: &World, start: &HoldStart, reading: Reading) -> TreeId {
        let mut state = self.lock();
        state.started += 1;
        state.counts.starts += 1;
        let id = TreeId(state.started);
        world.trace(id, || {
            format!(
                "is started on node {} under {} by {}",
                start.node, start.token, start.supervisor
            )
        });
        if self.premises.promised {
            self.check_start(&mut state, world, start, reading);
        }
        let seen = SeenTree { start: start.clone(), woke: None, beyond: 0, has_no_guards: false };
        state.trees.insert(id, seen);
        id
    }

    fn check_start(
        &self,
        state: &mut CheckerState,
        world: &World,
        start: &HoldStart,
        reading: Reading,
    ) {
        let HoldStart { node, session, token, .. } = start;
        if let Some((last, owner)) = &state.last
            && (last > token || last == token && owner != session)
        {
            let what = format!("{session:?} started under {token} after {owner:?} under {last}");
            state.accuse(world, HoldPromise::TokensGrow, what);
        }
        state.last = Some((*token, session.clone()));
        let session = session.as_ref().expect("a supervisor has one");
        if self.premises.manual && !state.door.is_approved(*token) {
            let what = format!("{session} started under {token}");
            state.accuse(world, HoldPromise::Approved, what);
        }
        if !state.door.is_fresh(session, *token, reading, self.premises.ttls[*node] / 2) {
            let what = format!("{session} started under {token} without one");
            state.accuse(world, HoldPromise::StartsInTime, what);
        }
        let here = |seen: &SeenTree| seen.start.node == *node && !seen.has_no_guards;
        if let Some((left, _)) = state.trees.iter().find(|(_, seen)| here(seen)) {
            let what = format!("{left} is still on node {node}");
            state.accuse(world, HoldPromise::NoLeftovers, what);
        }
    }

    /// A program executes from here on.
    pub fn executes(&self, world: &World, id: TreeId) {
        let (now, mut state) = (world.now(), self.lock());
        if state.executing.is_empty() {
            self.note_gap(&mut state, now, id);
        }
        state.executing.insert(id);
        state.check_overlap(world, self.premises.promised);
        self.check_head(&mut state, world);
    }

    /// A program does not execute any more, or not now: its machine's clocks show this.
    pub fn rests(&self, world: &World, id: TreeId, reading: Reading) {
        let (now, mut state) = (world.now(), self.lock());
        if !state.executing.remove(&id) {
            return;
        }
        if state.executing.len() < 2
            && let Some(since) = state.overlap_since.take()
        {
            state.counts.overlapped += now - since;
        }
        if state.executing.is_empty() {
            state.vacant_since = now;
        }
        let Some(seen) = state.trees.get(&id) else { return };
        if !self.premises.promised || seen.is_excused(now) {
            return;
        }
        let ttl = self.premises.ttls[seen.start.node];
        let session = seen.start.session.clone().expect("a supervisor has one");
        if !state.door.is_valid(&session, reading, ttl) {
            let what = format!("{id} did so until now, in {session}");
            state.accuse(world, HoldPromise::NothingAfterLease, what);
        }
    }

    /// Its machine has woken: whatever should be gone by now has a little while for it.
    pub fn wakes(&self, world: &World, id: TreeId) {
        let now = world.now();
        if let Some(seen) = self.lock().trees.get_mut(&id) {
            seen.woke = Some(now);
        }
    }

    /// Looks again at those that woke or are beyond the limit. To be called after every step.
    pub fn look(&self, world: &World) {
        let mut state = self.lock();
        if state.executing.len() > 1 {
            state.check_overlap(world, self.premises.promised);
        }
    }

    /// A program has ended by itself, or by no doing of its supervisor, or did not start: the next one comes after a pause.
    pub fn exits(&self, world: &World) {
        let mut state = self.lock();
        state.counts.exits += 1;
        state.exited = Some(world.now());
    }

    /// A tree is empty.
    pub fn empty(&self, world: &World, id: TreeId) {
        let mut state = self.lock();
        state.trees.remove(&id);
        if state.executing.remove(&id) && state.executing.is_empty() {
            state.vacant_since = world.now();
        }
    }

    /// A program is ended because nothing was confirmed in time.
    pub fn unconfirmed(&self, world: &World, id: TreeId) {
        let (now, mut state) = (world.now(), self.lock());
        state.counts.unconfirmed += 1;
        let Some(seen) = state.trees.get(&id) else { return };
        let (node, supervisor) = (seen.start.node, seen.start.supervisor);
        let ttl = self.ttl();
        let well = state.well_since(node, supervisor);
        if self.premises.calm && well.is_some_and(|well| now > well + 3 * ttl) {
            let what = format!("{id} was ended on node {node}, which is well");
            state.accuse(world, HoldPromise::GoesOn, what);
        }
    }

    /// Its shim is stopped, and its supervisor does nothing about that.
    pub fn is_beyond_the_limit(&self, world: &World, id: TreeId) {
        let until = world.now() + AFTER_LIMIT;
        if let Some(seen) = self.lock().trees.get_mut(&id) {
            seen.beyond = until;
        }
    }

    /// Both of its guards were killed.
    pub fn lost_its_guards(&self, id: TreeId) {
        if let Some(seen) = self.lock().trees.get_mut(&id) {
            seen.has_no_guards = true;
        }
    }

    /// Whether somebody executes who should not, or nobody for too long. To be called now and then.
    pub fn patrol(&self, world: &World) {
        let (now, ttl, mut state) = (world.now(), self.ttl(), self.lock());
        let is_promised = self.premises.calm && !self.premises.manual;
        if !is_promised || self.premises.class == Class::B || !state.executing.is_empty() {
            return;
        }
        if state.trees.values().any(|seen| seen.has_no_guards) {
            return;
        }
        let well = state.supervisors.iter().filter_map(|(process, (node, _))| {
            world.lives(*process).then(|| state.well_since(*node, *process))?
        });
        let Some(ready) = well.min().map(|well| well + 3 * ttl) else { return };
        // After the last pause, which is 10 s at most.
        let paused = state.exited.map_or(0, |exited| exited + 10_000 * MS);
        let since = state.vacant_since.max(ready).max(paused);
        if now > since + self.in_time() {
            let vacant = seconds(state.vacant_since);
            let what = format!("nobody executes since {vacant:.3} s, and somebody could");
            state.accuse(world, HoldPromise::RunsAgain, what);
        }
    }

    /// 1.25 T, two polls and a beat by a slow clock, some messages, and a start.
    fn in_time(&self) -> TrueTime {
        let ttl = self.ttl();
        (ttl * 5 / 4 + ttl * 2 / 5) * 10 / 9 + 600 * MS
    }

    /// The longest.
    fn ttl(&self) -> TrueTime {
        let longest = self.premises.ttls.iter().max().expect("there are nodes");
        u64::try_from(longest.as_nanos()).expect("seconds")
    }

    /// How long nobody executed, if another node goes on and nothing else was wrong.
    fn note_gap(&self, state: &mut CheckerState, now: TrueTime, id: TreeId) {
        let (vacant, ttl) = (state.vacant_since, self.ttl());
        let Some(seen) = state.trees.get(&id) else { return };
        let node = seen.start.node;
        let is_calm = self.premises.calm && state.all_disturbed + 3 * ttl < vacant;
        let was_well = state.well_since(node, seen.start.supervisor);
        if is_calm && vacant > 0 && was_well.is_some_and(|well| well + 3 * ttl < vacant) {
            state.counts.gaps.push(now - vacant);
        }
    }

    fn check_head(&self, state: &mut CheckerState, world: &World) {
        // A store that may forget may forget who has the claim, too.
        if !self.premises.promised || self.premises.class == Class::B {
            return;
        }
        let now = world.now();
        let head = state.door.head();
        let wrong = state.executing.iter().find(|id| {
            let seen = &state.trees[id];
            !seen.is_excused(now) && head != Some((seen.start.token, seen.start.session.as_ref()))
        });
        if let Some(id) = wrong {
            let start = &state.trees[id].start;
            let what = format!("{id} executes under {}, and the head is {head:?}", start.token);
            state.accuse(world, HoldPromise::TokenOfHead, what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CheckerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckerState {
    fn accuse(&mut self, world: &World, promise: HoldPromise, what: String) {
        world.trace("checker", || format!("BROKEN  {}: {what}", promise.sentence()));
        let at = world.now();
        self.violation.get_or_insert(HoldViolation { promise, at, what });
    }

    /// Since when nothing is wrong with a node and its supervisor; none if something is.
    fn well_since(&self, node: NodeIndex, supervisor: ProcessId) -> Option<TrueTime> {
        let began = self.supervisors.get(&supervisor)?.1;
        let disturbed = self.disturbed.get(&node).copied().unwrap_or_default();
        Some(began.max(disturbed).max(self.all_disturbed))
    }

    fn check_overlap(&mut self, world: &World, promised: bool) {
        if self.executing.len() < 2 {
            return;
        }
        let now = world.now();
        let is_new = self.overlap_since.is_none();
        self.overlap_since.get_or_insert(now);
        if !promised {
            self.counts.overlaps += u64::from(is_new);
            return;
        }
        let seen = |id: &TreeId| &self.trees[id];
        let at_fault: Vec<TreeId> =
            self.executing.iter().copied().filter(|id| !seen(id).is_excused(now)).collect();
        if let [one, other, ..] = at_fault[..] {
            let (first, second) = (&seen(&one).start, &seen(&other).start);
            let what = format!(
                "{one} on node {} under {}, and {other} on node {} under {}",
                first.node, first.token, second.node, second.token
            );
            self.accuse(world, HoldPromise::OneExecutes, what);
        } else if is_new {
            let is_beyond = self.executing.iter().any(|id| seen(id).is_beyond(now));
            self.counts.beyond += u64::from(is_beyond);
            self.counts.woke_late += u64::from(!is_beyond);
        }
    }
}
