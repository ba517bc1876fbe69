//! The driver: one task that does everything about the rings of a store at one node.
//!
//! It waits for the first of: what came of a read or a commit, a hint, a call, a change among sessions, an alarm. Each is handled
//! at once and to its end, in memory; whatever takes time is a flow. So nothing here is ever half done, and the driver may be
//! dropped between two polls and polled again.
//!
//! What it knows of a ring is a copy of what the store showed last. Hints make it look; every second or so it looks at all rings by
//! itself, and at each one it compares versions alone. Only rings in which something is due or has moved cost anything.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::RING_ANSWER_MAX;
use futures_util::StreamExt as _;
use tokio::sync::{mpsc, watch};

use super::call::{Call, answer};
use super::flow::{Agenda, Alarm, Done, HintOf, SeenRing};
use super::key::{HEADS, Head, generation_key, read_head};
use super::node::{RingNode, RingStats};
use super::state::{Members, Mono, RingState};
use super::{RingError, RingEventKind, RingId, RingPart, RingSettings};
use crate::session::Session;
use crate::{Entry, ScanError};

/// How often the driver looks at what it has in memory.
const TICK: Duration = Duration::from_millis(250);

/// How often it looks at all rings, at least and at most; the more there are, the more seldom.
const POLL_MIN: Duration = Duration::from_secs(1);
const POLL_MAX: Duration = Duration::from_secs(5);
const POLL_PER_RING: Duration = Duration::from_millis(1);

/// How often it reads the members of a ring though its roll has not moved: a commit that came late may have named this server.
const MEMBERS_EVERY: Duration = Duration::from_secs(15);

/// After a look that failed, the next one.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// For how long after a commit of its own was acknowledged a hint is taken for that one's.
const OWN_HINT: Duration = Duration::from_millis(20);

/// Without an answer of the store for so long, patience with members begins anew.
const CONTACT_MAX: Duration = Duration::from_millis(1_500);

/// How long a call may wait for what it needs.
const CALL_MAX: Duration = Duration::from_secs(8);

/// The work that rings need. Run it until it returns; dropped between two polls, it goes on when it is run again.
pub struct RingDriver {
    pub(super) node: RingNode,
    pub(super) rings: BTreeMap<RingId, RingState>,
    pub(super) agenda: Agenda,
    calls: mpsc::Receiver<Call>,
    /// Nobody is left who could ask for anything.
    is_alone: bool,
    stats: watch::Sender<RingStats>,
    round: u64,
    is_polling: bool,
    poll_again: bool,
    /// The wall clock less the one that waits, in microseconds: a jump of one of them shows in it.
    apart_us: i64,
    ticked: Mono,
    epoch: crate::Epoch,
}

impl RingDriver {
    pub(super) fn new(
        session: &Session,
        settings: RingSettings,
        calls: mpsc::Receiver<Call>,
    ) -> Self {
        let mut agenda = Agenda::new(session);
        let hints = session.store().watch(generation_key().as_str());
        agenda.wait_for_hint(HintOf::All, hints);
        let node = RingNode {
            me: session.key().to_string().into(),
            session: session.clone(),
            settings,
            sessions: BTreeMap::new(),
            is_stopping: false,
            contact: Mono::ZERO,
            stats: RingStats::default(),
            followers_begun: 0,
        };
        let now = node.now();
        agenda.alarm(now, Alarm::Tick);
        agenda.alarm(now, Alarm::Poll);
        Self {
            node,
            rings: BTreeMap::new(),
            agenda,
            calls,
            is_alone: false,
            stats: watch::Sender::new(RingStats::default()),
            round: 0,
            is_polling: false,
            poll_again: false,
            apart_us: 0,
            ticked: now,
            epoch: session.store().epoch(),
        }
    }

    pub(super) fn stats(&self) -> watch::Receiver<RingStats> {
        self.stats.subscribe()
    }

    /// Advances rings, hears members and tells followers until the session has ended.
    pub async fn run(&mut self) {
        let session = self.node.session.clone();
        let mut ended = std::pin::pin!(session.ended());
        let mut roster = session.roster();
        roster.mark_changed();
        let mut sleep: Option<(Mono, Pin<Box<dyn Future<Output = ()> + Send>>)> = None;
        loop {
            let next = self.agenda.next().unwrap_or(Mono::MAX);
            if sleep.as_ref().is_none_or(|(until, _)| *until != next) {
                let length = next.saturating_sub(self.node.now());
                sleep = Some((next, self.node.machine().sleep(length)));
            }
            let (_, alarm) = sleep.as_mut().expect("it was just made");
            tokio::select! {
                biased;
                _ = &mut ended => return self.closes(),
                Some(done) = self.agenda.flows.next(), if !self.agenda.flows.is_empty() => self.done(done),
                Some((of, hints)) = self.agenda.hints.next(), if !self.agenda.hints.is_empty() => {
                    self.hinted(&of);
                    self.wait_again(of, hints);
                }
                Ok(()) = roster.changed() => self.sessions_changed(&roster),
                call = self.calls.recv(), if !self.is_alone => match call {
                    Some(call) => self.called(call),
                    // Rings go on.
                    None => self.is_alone = true,
                },
                () = alarm => sleep = None,
            }
            self.alarms();
        }
    }

    /// Tells everybody that it is over.
    fn closes(&mut self) {
        self.node.is_stopping = true;
        for ring in self.rings.values_mut() {
            ring.close(&RingEventKind::Closing);
            for (_, call) in ring.pending.drain(..) {
                call.refuse(stops());
            }
        }
    }

    fn alarms(&mut self) {
        // A bound, so that calls and answers have their turn.
        for _ in 0..256 {
            let now = self.node.now();
            let Some(alarm) = self.agenda.pop(now) else { return };
            match alarm {
                Alarm::Tick => {
                    self.tick();
                    self.agenda.alarm(now + TICK, Alarm::Tick);
                }
                Alarm::Poll => self.poll(),
                Alarm::Turn(id, alarm) => {
                    if let Some(ring) = self.rings.get_mut(&id.ring) {
                        ring.turn_is_due(&mut self.node, &mut self.agenda, &id.name, alarm);
                    }
                }
                Alarm::Parts(id, alarm) => {
                    if let Some(ring) = self.rings.get_mut(&id.ring) {
                        ring.parts_are_due(&mut self.node, &mut self.agenda, &id.name, alarm);
                    }
                }
                Alarm::Look(id) => self.look(&id, Members::IfMoved),
                Alarm::Flush(id) => {
                    if let Some(ring) = self.rings.get_mut(&id) {
                        ring.flush(&mut self.agenda);
                    }
                }
            }
        }
    }

    fn hinted(&mut self, of: &HintOf) {
        match of {
            HintOf::All => self.poll(),
            HintOf::Ring(id) => {
                let now = self.node.now();
                let is_own = self.rings.get(id).is_some_and(|ring| {
                    let lately = ring.own_commit.is_some_and(|at| now - at < OWN_HINT);
                    ring.subscriptions.len() == 1 && (ring.own_under_way > 0 || lately)
                });
                if !is_own {
                    self.look(id, Members::IfMoved);
                }
            }
        }
    }

    fn wait_again(&mut self, of: HintOf, hints: crate::Hints) {
        let goes_on = match &of {
            HintOf::All => true,
            HintOf::Ring(id) => self.rings.contains_key(id),
        };
        if goes_on {
            self.agenda.wait_for_hint(of, hints);
        }
    }

    fn called(&mut self, call: Call) {
        let Some(id) = call.ring().cloned() else {
            match call {
                Call::Stop { answer: to } => {
                    self.closes();
                    answer(to, Ok(()));
                }
                _ => self.poll(),
            }
            return;
        };
        if self.node.is_stopping {
            return call.refuse(stops());
        }
        self.ring(&id);
        let Self { node, rings, agenda, .. } = self;
        let Some(ring) = rings.get_mut(&id) else { return };
        let is_known = ring.exists
            && call.subscription().is_none_or(|id| ring.subscriptions.contains_key(&id.name));
        if is_known {
            ring.call(node, agenda, call);
            return;
        }
        // It may have been made a moment ago.
        let need = ring.next_look();
        ring.pending.push((need, call));
        ring.look(node, agenda, Members::IfMoved);
    }

    /// What is known of a ring, of which nothing may be known.
    fn ring(&mut self, id: &RingId) -> &mut RingState {
        let Self { rings, agenda, node, round, .. } = self;
        rings.entry(id.clone()).or_insert_with(|| {
            let hints = node.store().watch(&id.heads());
            agenda.wait_for_hint(HintOf::Ring(id.clone()), hints);
            RingState::new(id.clone(), *round)
        })
    }

    /// Looks at a ring, or does so once more if that is under way.
    pub(super) fn look(&mut self, id: &RingId, members: Members) {
        if let Some(ring) = self.rings.get_mut(id) {
            ring.look(&mut self.node, &mut self.agenda, members);
        }
    }

    /// Looks at all rings.
    fn poll(&mut self) {
        if self.is_polling {
            self.poll_again = true;
            return;
        }
        (self.is_polling, self.poll_again) = (true, false);
        self.round += 1;
        let prefix = match &self.node.settings.part {
            RingPart::Advances => HEADS.to_owned(),
            RingPart::LooksAt(ring) => ring.heads(),
        };
        self.agenda.poll(self.round, prefix);
    }

    fn polled(&mut self, round: u64, heads: Result<Vec<Entry>, ScanError>) {
        self.is_polling = false;
        let many = u32::try_from(self.rings.len()).unwrap_or(u32::MAX);
        let pause = (POLL_MIN + POLL_PER_RING * many).min(POLL_MAX);
        if self.poll_again {
            self.poll();
        } else {
            self.agenda.alarm(self.node.now() + pause, Alarm::Poll);
        }
        let heads = match heads {
            Ok(heads) => heads,
            Err(why) => {
                tracing::debug!(%why, "rings could not be read");
                return;
            }
        };
        self.answered();
        let mut of_rings: BTreeMap<RingId, Vec<Entry>> = BTreeMap::new();
        for entry in heads {
            let Some((ring, _)) = read_head(&entry.key) else { continue };
            of_rings.entry(ring).or_default().push(entry);
        }
        for (id, heads) in &of_rings {
            self.ring(id);
            let Some(ring) = self.rings.get_mut(id) else { continue };
            ring.shown(&mut self.node, &mut self.agenda, heads);
            let roll = heads.iter().find(|e| matches!(read_head(&e.key), Some((_, Head::Roll))));
            if roll.map(|entry| entry.version) != ring.roll {
                ring.look(&mut self.node, &mut self.agenda, Members::IfMoved);
            }
        }
        // One that was seen first while this was read may be newer than it.
        let gone = |ring: &RingState| ring.born < round && !of_rings.contains_key(&ring.id);
        for ring in self.rings.values_mut().filter(|ring| gone(ring)) {
            ring.shown(&mut self.node, &mut self.agenda, &[]);
        }
        self.rings.retain(|_, ring| !gone(ring) || !ring.pending.is_empty());
    }

    fn done(&mut self, done: Done) {
        let Self { node, rings, agenda, .. } = self;
        match done {
            Done::Polled { round, heads } => self.polled(round, heads),
            Done::Looked { ring, number, seen } => self.looked(&ring, number, seen),
            Done::Wrote { write, answer } => {
                if answer.is_ok() {
                    self.answered();
                }
                let Self { node, rings, agenda, .. } = self;
                if let Some(ring) = rings.get_mut(&write.subscription.ring) {
                    ring.wrote(node, agenda, *write, &answer);
                }
            }
            Done::Read { ring, batch, found } => {
                if let Some(ring) = rings.get_mut(&ring) {
                    ring.read(node, agenda, &batch, found);
                }
            }
            Done::Enrolled { ring, plan, exact, answer } => {
                if let Some(ring) = rings.get_mut(&ring) {
                    ring.enrolled(node, agenda, &plan, exact, &answer);
                }
            }
            Done::TakenOut { ring, several, answer } => {
                if let Some(ring) = rings.get_mut(&ring) {
                    ring.is_taking_out = false;
                    ring.one_by_one = several && answer.is_err();
                    ring.look(node, agenda, Members::Always);
                }
            }
            Done::Left { ring, to, left } => {
                answer(to, left);
                self.look(&ring, Members::IfMoved);
            }
            Done::Swept { ring } => {
                if let Some(state) = rings.get_mut(&ring) {
                    state.is_swept = false;
                }
                self.look(&ring, Members::IfMoved);
            }
            Done::CaughtUp { subscription, follower, record, kept } => {
                if let Some(ring) = rings.get_mut(&subscription.ring) {
                    ring.caught_up(node, agenda, &subscription.name, follower, &record, kept);
                }
            }
            Done::Recalled { call, subscription, recalled, kept } => {
                match rings.get_mut(&subscription.ring) {
                    Some(ring) => {
                        ring.recalled(node, agenda, call, (&subscription, kept), recalled)
                    }
                    None => call.refuse(RingError::NoRing(subscription.ring)),
                }
            }
            Done::Cleared => {}
        }
    }

    fn looked(&mut self, id: &RingId, number: u64, seen: Result<SeenRing, ScanError>) {
        if seen.is_ok() {
            self.answered();
        }
        let Self { node, rings, agenda, .. } = self;
        let Some(ring) = rings.get_mut(id) else { return };
        ring.look.is_under_way = false;
        match seen {
            Ok(SeenRing { heads, members }) => {
                ring.look.shown = number;
                ring.shown(node, agenda, &heads);
                if let Some(members) = members {
                    ring.members_shown(node, agenda, &heads, &members);
                }
                ring.after_look(node, agenda);
                self.dispatch_pending(id);
            }
            Err(why) => {
                tracing::debug!(ring = %id, %why, "a ring could not be read");
                ring.look_failed(node, agenda);
                agenda.alarm(node.now() + LOOK_AGAIN, Alarm::Look(id.clone()));
            }
        }
        let Some(ring) = self.rings.get_mut(id) else { return };
        if let Some(members) = ring.look.again.take() {
            ring.look(&mut self.node, &mut self.agenda, members);
        }
    }

    /// What was asked of something that was not there: it is now, or it is not.
    fn dispatch_pending(&mut self, id: &RingId) {
        let Self { node, rings, agenda, .. } = self;
        let Some(ring) = rings.get_mut(id) else { return };
        let shown = ring.look.shown;
        for (need, call) in std::mem::take(&mut ring.pending) {
            if need > shown {
                ring.pending.push((need, call));
            } else if !ring.exists {
                call.refuse(RingError::NoRing(id.clone()));
            } else if let Some(missing) =
                call.subscription().filter(|id| !ring.subscriptions.contains_key(&id.name)).cloned()
            {
                call.refuse(RingError::NoSubscription(missing));
            } else {
                ring.call(node, agenda, call);
            }
        }
        if !ring.pending.is_empty() {
            ring.look(node, agenda, Members::IfMoved);
        }
    }

    /// The store has answered.
    fn answered(&mut self) {
        let now = self.node.now();
        if now.saturating_sub(self.node.contact) > CONTACT_MAX {
            for ring in self.rings.values_mut() {
                ring.members.values_mut().for_each(|seen| seen.idle_since = None);
            }
        }
        self.node.contact = now;
        let epoch = self.node.store().epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            // What is there now counts, though it may be older.
            for ring in self.rings.values_mut() {
                ring.forget_versions();
                ring.look(&mut self.node, &mut self.agenda, Members::Always);
            }
        }
    }

    fn sessions_changed(&mut self, roster: &watch::Receiver<crate::session::Roster>) {
        let roster = roster.borrow().clone();
        let is_server = self.node.settings.is_server;
        let sessions: BTreeMap<Arc<str>, bool> = roster
            .keys()
            .map(|key| {
                let record = roster.record(key).filter(|_| key.guest().is_none());
                (key.to_string().into(), record.is_some_and(is_server))
            })
            .collect();
        if sessions == self.node.sessions {
            return;
        }
        let is_gone = self.node.sessions.keys().any(|former| !sessions.contains_key(former));
        self.node.sessions = sessions;
        for ring in self.rings.values_mut() {
            ring.names_may_differ(&mut self.node, &mut self.agenda);
            if is_gone && !ring.members.is_empty() {
                // Who vouches for whom may have changed without a word.
                ring.look(&mut self.node, &mut self.agenda, Members::Always);
            }
            ring.arm_all(&self.node, &mut self.agenda);
        }
    }

    fn tick(&mut self) {
        let now = self.node.now();
        // Who was away takes its own absence for nobody's silence.
        if now.saturating_sub(self.ticked) > TICK + Duration::from_secs(1) {
            for ring in self.rings.values_mut() {
                ring.sponsored.values_mut().for_each(|sponsored| sponsored.heard = now);
                ring.members.values_mut().for_each(|seen| seen.idle_since = None);
            }
        }
        self.ticked = now;
        let raw_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let apart_us = self.node.wall_us() - raw_us;
        let jumped = (apart_us - self.apart_us).abs() > 5_000;
        self.apart_us = apart_us;
        for ring in self.rings.values_mut() {
            if jumped {
                ring.arm_all(&self.node, &mut self.agenda);
            }
            ring.tick(&mut self.node, &mut self.agenda);
            if ring.exists && now.saturating_sub(ring.read_at) > MEMBERS_EVERY {
                ring.look(&mut self.node, &mut self.agenda, Members::Always);
            }
        }
        self.publish();
    }

    fn publish(&mut self) {
        let stats = &mut self.node.stats;
        stats.projects.clear();
        (stats.sponsored, stats.followers) = (0, 0);
        for ring in self.rings.values().filter(|ring| ring.exists) {
            let project = stats.projects.entry(Arc::clone(&ring.id.project)).or_default();
            project.rings += 1;
            project.members += ring.names.len();
            stats.sponsored += ring.sponsored.len();
            stats.followers +=
                ring.subscriptions.values().map(|s| s.followers.len()).sum::<usize>();
        }
        self.stats.send_if_modified(|told| {
            let is_new = told != stats;
            if is_new {
                told.clone_from(stats);
            }
            is_new
        });
    }
}

pub(super) fn stops() -> RingError {
    RingError::Unavailable("this server stops".to_owned())
}

/// What a call that waited for too long is told.
pub(super) fn waited_too_long() -> RingError {
    RingError::Unknown("the store did not answer in time".to_owned())
}

/// Whether a call has waited for too long.
pub(super) fn is_too_long(asked: Mono, now: Mono) -> bool {
    now.saturating_sub(asked) > CALL_MAX
}

impl RingState {
    /// Looks at the ring, or does so once more if that is under way.
    pub(super) fn look(&mut self, node: &mut RingNode, agenda: &mut Agenda, members: Members) {
        if self.look.is_under_way {
            self.look.again = Some(self.look.again.map_or(members, |again| again.max(members)));
            return;
        }
        self.look.is_under_way = true;
        self.look.begun += 1;
        node.stats.looks += 1;
        agenda.look(self.id.clone(), self.look.begun, self.roll, members);
    }

    /// Does what is asked.
    pub(super) fn call(&mut self, node: &mut RingNode, agenda: &mut Agenda, call: Call) {
        match call {
            Call::Look | Call::Stop { .. } => {}
            Call::Hear { member, visit, answer, .. } => {
                self.hear(node, agenda, member, visit, answer);
            }
            Call::Leave { member, visit, note, answer, .. } => {
                self.leave(agenda, member, (visit, note), answer);
            }
            Call::Accept { subscription, part, member, answer } => {
                self.accept(node, agenda, &subscription.name, (part, member), answer);
            }
            Call::PassOver { subscription, note, answer } => {
                let wanted = super::state::WantedChange::PassOver(note, answer);
                self.want(node, agenda, &subscription.name, wanted);
            }
            Call::Change { subscription, change, answer } => {
                let wanted = super::state::WantedChange::Change(change, answer);
                self.want(node, agenda, &subscription.name, wanted);
            }
            call @ Call::Follow { .. } => self.follow(node, agenda, call),
            call @ Call::Attend { .. } => self.attend(node, agenda, call, BTreeMap::new()),
        }
    }

    /// Looks after what waits.
    fn tick(&mut self, node: &mut RingNode, agenda: &mut Agenda) {
        self.look_after_members(node, agenda);
        self.look_after_waiters(node);
        let now = node.now();
        for subscription in self.subscriptions.values_mut() {
            subscription.followers.retain(|follower| !follower.is_gone());
            subscription.give_up_late(now);
        }
    }
}

const _: () = assert!(RING_ANSWER_MAX.as_secs() < CALL_MAX.as_secs());
