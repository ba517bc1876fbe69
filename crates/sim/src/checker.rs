//! The checker of leases: sees everything, and says when a promise is broken.
//!
//! It stands where no process can: at the store's door it sees every commit land, with what was there
//! before; it knows every process's right to act and asks for it after every step, also of those that are
//! paused, since they might wake at that moment; and it knows what is true about who is well. Nothing
//! here uses the rules that it checks: what it needs of them it works out again from what it saw.

mod health;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::lease::{Reading, Token};
use engine::record::{Format, decode};
use serde::Deserialize;
use store::claim::{self, Head};
use store::election::Right;
use store::session::{SessionKey, SessionRecord};
use store::{Class, Commit, CommitError, Key, Value, Version, Write};

pub use self::health::Ailment;
use self::health::Health;
use crate::clock::{MS, TrueTime};
use crate::network::LinkQuality;
use crate::promise::{LeasePromise, LeaseViolation};
use crate::sim_store::{NodeIndex, SimStore, StoreAnswer};
use crate::world::{ProcessId, World, seconds};

/// How often the checker patrols.
pub const PATROL: TrueTime = 50 * MS;

/// Renewals of a session that are remembered.
const RENEWALS_MAX: usize = 128;

/// What a run was like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LeaseCounts {
    pub commits: u64,
    pub effects: u64,
    pub takes: u64,
    pub hand_overs: u64,
    pub heirs_gone: u64,
    pub burials: u64,
    pub sessions: u64,
}

/// A commit at the store's door.
pub struct Landing<'a> {
    /// The process that sent it.
    pub process: ProcessId,
    /// The node that this process runs on.
    pub node: NodeIndex,
    /// What the sender's clocks said then.
    pub sent: Reading,
    /// The commit itself.
    pub commit: &'a Commit,
}

/// What the checker has to know about a run beforehand.
#[derive(Debug, Clone)]
pub struct Premises {
    /// The claim that everybody wants.
    pub claim: Key,
    /// Below this lies what its holder writes.
    pub data: String,
    /// The longest T in the cluster.
    pub ttl: Duration,
    /// The store's class.
    pub class: Class,
    /// Whether a person must approve each holder.
    pub manual: bool,
    /// Whether messages always arrive, and soon, unless a fault says otherwise.
    pub calm: bool,
}

/// What names a token: what the holder writes, wishes, approvals.
#[derive(Debug, Deserialize)]
struct Datum {
    token: u64,
}

/// The body of a head, as holders write it.
#[derive(Debug, Deserialize)]
struct HeadBody {
    id: u64,
}

/// Watches a run of leases, and keeps what it needs to judge it.
pub struct LeaseChecker {
    premises: Premises,
    state: Mutex<CheckerState>,
    onlooker: OnceLock<Onlooker>,
}

/// Sees every commit that lands, and whether it landed at the primary.
type Onlooker = Box<dyn Fn(&World, &Landing<'_>, LandingPlace) + Send + Sync>;

/// Where a commit landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingPlace {
    /// At the primary.
    Primary,
    /// At a former one: it is forgotten.
    Former,
}

#[derive(Default)]
struct CheckerState {
    violation: Option<LeaseViolation>,
    counts: LeaseCounts,
    rights: BTreeMap<ProcessId, Right>,
    /// Rights of processes that have begun to hand the claim over.
    left: BTreeMap<ProcessId, Right>,
    /// Which process a session is of, and when its landed renewals were sent.
    sessions: BTreeMap<Key, SessionOwner>,
    processes: BTreeMap<ProcessId, Health>,
    /// Tokens that acted, and for whom.
    acted: BTreeMap<u64, Key>,
    landed: BTreeSet<u64>,
    undone: BTreeSet<u64>,
    store_up_since: TrueTime,
    epoch_since: TrueTime,
    /// Since when nobody who could act has had the claim.
    vacant_since: Option<TrueTime>,
    /// Since when whoever has it has had no right to act.
    idle_since: Option<TrueTime>,
    /// Tokens that a person approved.
    approved: BTreeSet<u64>,
    /// The last token that somebody wished to leave, and since when.
    wished: Option<(u64, TrueTime)>,
}

struct SessionOwner {
    process: ProcessId,
    ttl: Duration,
    renewals: VecDeque<Reading>,
}

impl LeaseChecker {
    /// A checker that has seen nothing yet.
    pub fn new(premises: Premises) -> Self {
        Self { premises, state: Mutex::default(), onlooker: OnceLock::new() }
    }

    /// From now on somebody else sees what lands, too.
    pub fn show(
        &self,
        onlooker: impl Fn(&World, &Landing<'_>, LandingPlace) + Send + Sync + 'static,
    ) {
        let shown = self.onlooker.set(Box::new(onlooker));
        assert!(shown.is_ok(), "one onlooker is enough");
    }

    /// The first violation that was seen.
    pub fn violation(&self) -> Option<LeaseViolation> {
        self.lock().violation.clone()
    }

    /// What the run was like so far.
    pub fn counts(&self) -> LeaseCounts {
        self.lock().counts
    }

    /// A process begins.
    pub fn born(&self, process: ProcessId, now: TrueTime) {
        self.lock().processes.insert(process, Health::new(now));
    }

    /// A process is gone.
    pub fn died(&self, process: ProcessId, now: TrueTime) {
        let mut state = self.lock();
        state.rights.remove(&process);
        state.left.remove(&process);
        if let Some(health) = state.processes.get_mut(&process) {
            health.dies(now);
        }
    }

    /// Something goes wrong with a process.
    pub fn ails(&self, process: ProcessId, ill: Ailment, now: TrueTime) {
        if let Some(health) = self.lock().processes.get_mut(&process) {
            health.ails(ill, now);
        }
    }

    /// What went wrong with a process is over.
    pub fn recovers(&self, process: ProcessId, ill: Ailment, now: TrueTime) {
        if let Some(health) = self.lock().processes.get_mut(&process) {
            health.recovers(ill, now);
        }
    }

    /// A process lives in this session now, or in none.
    pub fn lives_in(&self, process: ProcessId, session: Option<&SessionKey>) {
        if let Some(health) = self.lock().processes.get_mut(&process) {
            health.session = session.map(|session| session.key().clone());
        }
    }

    /// A process may take the claim from now on, or, with `None`, does not want it.
    pub fn candidate(&self, process: ProcessId, since: Option<TrueTime>) {
        if let Some(health) = self.lock().processes.get_mut(&process) {
            health.candidate_since = since;
        }
    }

    /// A process has a right to act, as long as that is good.
    pub fn holds(&self, process: ProcessId, right: Right) {
        self.lock().rights.insert(process, right);
    }

    /// A process hands the claim over, and has no right to act from now on.
    pub fn hands_over(&self, process: ProcessId, right: Right) {
        self.lock().left.insert(process, right);
    }

    /// A holder was told that the node to which it handed the claim over is gone.
    pub fn called_gone(&self, world: &World, id: u64) {
        self.lock().counts.heirs_gone += 1;
        // A store that may forget may also forget that somebody was buried.
        if self.premises.class != Class::B {
            self.called_undone(world, id);
        }
    }

    /// A process has given up its right to act.
    pub fn holds_no_more(&self, process: ProcessId) {
        self.lock().rights.remove(&process);
    }

    /// Nobody is asked any more. A right leads to the link that its holder sends on, and that to this checker, so
    /// none of them would ever be freed.
    pub fn rests(&self) {
        let mut state = self.lock();
        let rights = (std::mem::take(&mut state.rights), std::mem::take(&mut state.left));
        drop(state);
        drop(rights);
    }

    /// The store answers again, from now on.
    pub fn store_is_up(&self, now: TrueTime) {
        self.lock().store_up_since = now;
    }

    /// The store has begun a new epoch.
    pub fn new_epoch(&self, now: TrueTime) {
        self.lock().epoch_since = now;
    }

    /// An effect leaves: something that cannot be taken back.
    pub fn effect(&self, world: &World, session: &SessionKey, token: Token, now: Reading) {
        world.trace(session.node(), || format!("acts    under {}", token.0));
        let mut state = self.lock();
        state.counts.effects += 1;
        if !state.may_act(session.key(), now) {
            let what = format!("{session} acted under {} without a renewal", token.0);
            state.accuse(world, LeasePromise::NothingAfterLapse, what);
        }
        if let Some((last, _)) = state.acted.last_key_value()
            && *last > token.0
        {
            let what = format!("{session} acted under {} after {last} had", token.0);
            state.accuse(world, LeasePromise::TokensGrow, what);
        }
        let first = state.acted.entry(token.0).or_insert_with(|| session.key().clone()).clone();
        if first != *session.key() {
            let what = format!("{session} acted under {}, as {first} had", token.0);
            state.accuse(world, LeasePromise::TokensGrow, what);
        }
    }

    /// Whether whoever lives in this session may act when its clocks show this.
    pub fn may_act(&self, session: &Key, now: Reading) -> bool {
        self.lock().may_act(session, now)
    }

    /// A commit was called done to whoever asked for it.
    pub fn called_done(&self, world: &World, id: u64) {
        let mut state = self.lock();
        if !state.landed.contains(&id) {
            let what = format!("{id} was called done");
            state.accuse(world, LeasePromise::NotDoneStaysUndone, what);
        }
    }

    /// A commit was called not done to whoever asked for it.
    pub fn called_undone(&self, world: &World, id: u64) {
        let mut state = self.lock();
        if state.landed.contains(&id) {
            let what = format!("{id} was called not done after it had landed");
            state.accuse(world, LeasePromise::NotDoneStaysUndone, what);
        }
        state.undone.insert(id);
    }

    /// A commit arrives at the store.
    pub fn land(
        &self,
        world: &World,
        sim_store: &SimStore,
        landing: &Landing<'_>,
    ) -> Option<StoreAnswer<Result<Version, CommitError>>> {
        let now = world.now();
        let before = sim_store.peek(landing.node, &self.premises.claim).map(|entry| entry.value);
        let answer = sim_store.commit(landing.node, landing.commit, now)?;
        if answer.said.is_err() {
            return Some(answer);
        }
        if let Some(onlooker) = self.onlooker.get() {
            let is_former = answer.epoch != sim_store.epoch();
            let place = if is_former { LandingPlace::Former } else { LandingPlace::Primary };
            onlooker(world, landing, place);
        }
        let mut state = self.lock();
        state.counts.commits += 1;
        let head = landing.commit.then.iter().find_map(|write| match write {
            Write::Put(key, value) if *key == self.premises.claim => Some(value),
            _ => None,
        });
        if let Some(head) = head {
            state.check_link(world, before.as_ref(), head, landing.process);
            let session = |head: &Value| head_of(head).and_then(|head| head.session);
            let (former, heir) = (before.as_ref().and_then(session), session(head));
            if let Some(heir) = heir.filter(|heir| former.as_ref() != Some(heir))
                && sim_store.peek(landing.node, heir.key()).is_none()
            {
                state.accuse(world, LeasePromise::HeirIsThere, format!("{heir} is not there"));
            }
        }
        for write in &landing.commit.then {
            match write {
                Write::Put(key, value) if key.as_str().starts_with("node/") => {
                    state.renewed(key, value, landing);
                }
                // What a former primary does is forgotten.
                Write::Delete(key)
                    if key.as_str().starts_with("node/") && answer.epoch == sim_store.epoch() =>
                {
                    self.check_burial(&mut state, world, key, landing);
                }
                Write::Put(key, value) if key.as_str().starts_with(&self.premises.data) => {
                    state.check_datum(world, before.as_ref(), value);
                }
                Write::Put(key, value) => self.note(&mut state, key, value, now),
                Write::Delete(_) => {}
            }
        }
        Some(answer)
    }

    /// Asks everybody for the right to act, as if each woke up at this moment.
    pub fn ask_everybody(&self, world: &World) {
        let mut state = self.lock();
        if let Some((who, right)) = state.left.iter().find(|(_, right)| right.permit().is_some()) {
            let what = format!("{who} may act under {}", right.token().0);
            state.accuse(world, LeasePromise::LeavesAtOnce, what);
        }
        if state.rights.is_empty() {
            return;
        }
        let acting: Vec<_> = state
            .rights
            .iter()
            .filter_map(|(process, right)| right.permit().map(|permit| (*process, permit)))
            .collect();
        let unapproved = |token: u64| self.premises.manual && !state.approved.contains(&token);
        if let Some((who, permit)) = acting.iter().find(|(_, permit)| unapproved(permit.token.0)) {
            let what = format!("{who} may act under {}", permit.token.0);
            state.accuse(world, LeasePromise::Approved, what);
        }
        if let [(one, first), (other, second), ..] = acting[..] {
            let what = format!(
                "{one} under {} for {:?} more, and {other} under {} for {:?}",
                first.token.0, first.valid_for, second.token.0, second.valid_for
            );
            state.accuse(world, LeasePromise::OneActs, what);
        }
    }

    /// Looks whether anything that should happen does not. Called from time to time.
    pub fn patrol(&self, world: &World, sim_store: &SimStore) {
        let head = sim_store.peek_primary(&self.premises.claim);
        let head = head.and_then(|entry| head_of(&entry.value));
        self.patrol_holder(world, sim_store, head.as_ref());
        self.patrol_claim(world, sim_store, head.as_ref().and_then(|head| head.session.as_ref()));
    }

    /// Whoever has the claim and is well may act, and leaves when somebody wishes so.
    fn patrol_holder(&self, world: &World, sim_store: &SimStore, head: Option<&Head>) {
        let (now, ttl, mut state) = (world.now(), self.ttl(), self.lock());
        let begun = head.filter(|head| head.state == claim::ClaimState::Held);
        let well =
            begun.and_then(|head| Some((head, state.well_since(head.session.as_ref()?.key())?)));
        let (Some((head, well)), true) = (well, self.premises.calm && sim_store.is_up()) else {
            state.idle_since = None;
            return;
        };
        let since = well.max(state.store_up_since).max(self.quarantine_end(&state)) + ttl;
        let acts = state
            .rights
            .values()
            .any(|right| right.token().0 == head.token && right.permit().is_some());
        if acts {
            state.idle_since = None;
        } else {
            let idle = *state.idle_since.get_or_insert(now);
            if now > idle.max(since) + 2 * ttl {
                let what = format!("nobody acts under {} since {:.3} s", head.token, seconds(idle));
                state.accuse(world, LeasePromise::HolderActs, what);
            }
        }
        if let Some((token, wished)) = state.wished
            && token == head.token
            && now > wished.max(since) + 2 * ttl
        {
            let what = format!("{token} was wished to leave at {:.3} s", seconds(wished));
            state.accuse(world, LeasePromise::WishHeard, what);
        }
    }

    fn patrol_claim(&self, world: &World, sim_store: &SimStore, holder: Option<&SessionKey>) {
        let (now, mut state) = (world.now(), self.lock());
        let buried = holder.is_none_or(|key| sim_store.peek_primary(key.key()).is_none());
        let silent = holder.and_then(|key| state.silent_since(key.key()));
        state.vacant_since = match (buried, silent) {
            (true, _) => Some(state.vacant_since.unwrap_or(now)),
            (false, since) => since,
        };
        let (Some(vacant), true) = (state.vacant_since, self.premises.calm) else { return };
        let ttl = self.ttl();
        let warm = |health: &Health| {
            let since = health.candidate_since.filter(|_| health.ills == 0 && !health.killed)?;
            Some(since.max(health.well_since) + ttl)
        };
        let Some(ready) = state.processes.values().filter_map(warm).min() else { return };
        let since =
            vacant.max(ready).max(state.store_up_since + ttl).max(self.quarantine_end(&state));
        // The candidate's clock may be slow, its messages take their time, and so does this patrol.
        let in_time = (ttl * 5 / 4 + ttl / 5) * 10 / 9 + 16 * LinkQuality::GOOD.delay + PATROL;
        if sim_store.is_up() && now > since + in_time {
            let what = format!(
                "free since {:.3} s, a candidate since {:.3} s, and still nobody has it",
                seconds(vacant),
                seconds(ready)
            );
            state.accuse(world, LeasePromise::FreeIsTaken, what);
        }
    }

    /// A wish or an approval lands.
    fn note(&self, state: &mut CheckerState, key: &Key, value: &Value, now: TrueTime) {
        let datum: Option<Datum> = serde_json::from_slice(value.as_bytes()).ok();
        let beside = key.as_str().strip_prefix(self.premises.claim.as_str());
        match (beside, datum) {
            (Some("/wish"), Some(datum)) => state.wished = Some((datum.token, now)),
            (Some("/approval"), Some(datum)) => {
                state.approved.insert(datum.token);
            }
            _ => {}
        }
    }

    fn ttl(&self) -> TrueTime {
        u64::try_from(self.premises.ttl.as_nanos()).expect("seconds")
    }

    /// When everybody who has been in contact since then is out of quarantine.
    fn quarantine_end(&self, state: &CheckerState) -> TrueTime {
        match self.premises.class {
            Class::A | Class::S => 0,
            Class::B => state.epoch_since + 3 * self.ttl() + 3_000 * MS,
        }
    }

    fn check_burial(
        &self,
        state: &mut CheckerState,
        world: &World,
        key: &Key,
        landing: &Landing<'_>,
    ) {
        let Some(owner) = state.sessions.get(key).map(|owner| owner.process) else { return };
        if owner == landing.process {
            return;
        }
        state.counts.burials += 1;
        let ttl = self.ttl();
        let Some(health) = state.processes.get(&owner) else { return };
        if health.session.as_ref() != Some(key) {
            return;
        }
        let well = !health.killed && health.ills == 0 && world.now() > health.well_since + 2 * ttl;
        if well && self.premises.calm {
            let what = format!(
                "{} buried {key}, which is well since {:.3} s",
                landing.process,
                seconds(health.well_since)
            );
            state.accuse(world, LeasePromise::HealthyLives, what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CheckerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CheckerState {
    fn accuse(&mut self, world: &World, promise: LeasePromise, what: String) {
        world.trace("checker", || format!("BROKEN  {}: {what}", promise.sentence()));
        let at = world.now();
        self.violation.get_or_insert(LeaseViolation { promise, at, what });
    }

    fn may_act(&self, session: &Key, now: Reading) -> bool {
        self.sessions.get(session).is_some_and(|owner| {
            owner.renewals.iter().any(|sent| now.most_since(*sent) < owner.ttl)
        })
    }

    fn renewed(&mut self, key: &Key, value: &Value, landing: &Landing<'_>) {
        let process = landing.process;
        let record: Option<SessionRecord> = decode(value.as_bytes(), Format(1)).ok();
        let ttl = Duration::from_millis(record.map_or(0, |record| record.ttl_ms));
        let owner = self.sessions.entry(key.clone()).or_insert_with(|| {
            self.counts.sessions += 1;
            SessionOwner { process, ttl, renewals: VecDeque::new() }
        });
        owner.process = process;
        owner.renewals.push_back(landing.sent);
        if owner.renewals.len() > RENEWALS_MAX {
            owner.renewals.pop_front();
        }
    }

    /// Since when the process that lives in this session is well.
    fn well_since(&self, session: &Key) -> Option<TrueTime> {
        let health = self.processes.get(&self.sessions.get(session)?.process)?;
        let lives = health.session.as_ref() == Some(session) && !health.killed;
        (lives && health.ills == 0).then_some(health.well_since.max(health.candidate_since?))
    }

    fn silent_since(&self, session: &Key) -> Option<TrueTime> {
        let owner = self.sessions.get(session)?;
        self.processes.get(&owner.process)?.silent_since
    }

    /// A head of this process lands: is it the next one, under a token that fits?
    fn check_link(&mut self, world: &World, before: Option<&Value>, after: &Value, by: ProcessId) {
        let Some(after) = head_of(after) else {
            return self.accuse(world, LeasePromise::SeenState, "the head is no head".into());
        };
        let before = before.and_then(head_of);
        let (number, token, session) = match &before {
            Some(before) => (before.number, before.token, before.session.clone()),
            None => (0, 0, None),
        };
        let is_new = after.session.is_some() && after.session != session;
        let heir = after.session.as_ref().and_then(|heir| self.sessions.get(heir.key()));
        let is_take = is_new && heir.is_none_or(|heir| heir.process == by);
        let is_hand_over = is_new && !is_take;
        // Whoever takes a claim or gives it up carries over what it finds.
        let text = |head: &Head| head.body.as_ref().map(|body| body.get().to_owned());
        let carries = !is_hand_over && (after.session != session || after.token != token);
        if carries && before.as_ref().and_then(text) != text(&after) {
            let what = format!("{} did not carry over what it found", after.number);
            self.accuse(world, LeasePromise::SeenState, what);
        }
        if after.number != number + 1 {
            let what = format!("{} landed on {number}", after.number);
            self.accuse(world, LeasePromise::SeenState, what);
        }
        self.counts.takes += u64::from(is_take);
        self.counts.hand_overs += u64::from(is_hand_over);
        // Who has it already may take it anew, under a greater token.
        if after.token < token || is_new && after.token == token {
            let what = format!("the head went from {token} to {}", after.token);
            self.accuse(world, LeasePromise::TokensGrow, what);
        }
        let id = after.body.and_then(|body| serde_json::from_str::<HeadBody>(body.get()).ok());
        if let Some(HeadBody { id }) = id.filter(|_| !is_take) {
            self.landed.insert(id);
            if self.undone.contains(&id) {
                let what = format!("{id} landed after it was called not done");
                self.accuse(world, LeasePromise::NotDoneStaysUndone, what);
            }
        }
    }

    /// What a holder writes lands: does its token have the claim?
    fn check_datum(&mut self, world: &World, head: Option<&Value>, value: &Value) {
        let datum: Option<Datum> = serde_json::from_slice(value.as_bytes()).ok();
        let token = head.and_then(head_of).map(|head| head.token);
        if datum.as_ref().map(|datum| datum.token) != token {
            let what = format!("{datum:?} was written while {token:?} had the claim");
            self.accuse(world, LeasePromise::StaleWritesNothing, what);
        }
    }
}

fn head_of(value: &Value) -> Option<Head> {
    decode(value.as_bytes(), Format(1)).ok()
}
