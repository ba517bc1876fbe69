//! Members at a node: whom it vouches for, whom it takes out, and who is in the ring.
//!
//! A beat costs nothing but memory. The store is written when a member joins, leaves, comes from another server, or has been silent
//! for too long; joins go several at a time, each conditional on the member's record as it was just read and on this node's own
//! session, so that nobody is in the ring through a server that is gone. Members of a server that is gone have some time to find
//! another; then any server takes them out, on the condition that the session is still absent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::{
    RING_BEAT, RING_MARK_KEPT, RING_MEMBERS_MAX, RING_ROLL_BATCH_MAX, RING_SILENCE_MAX,
};
use engine::mutant::{Mutant, active};
use engine::ring::MemberName;
use engine::ring::line::place;
use engine::ring::member::{MemberRecord, Visit, next_visit};

use super::call::{Answer, answer};
use super::driver::{is_too_long, waited_too_long};
use super::flow::{Agenda, Alarm, Enrolment, member_of};
use super::key::{Head, read_head};
use super::node::RingNode;
use super::setup::{at, unmoved};
use super::state::{Members, RingRecord, RingState, SeenMember, Sponsored, from_value, to_value};
use super::{Heard, Note, RingError, RingEventKind};
use crate::{Commit, CommitError, Condition, Entry, Key, ScanError, Version};

/// After a conflict, the next try to write members; times how often there was one, up to eight.
const ENROL_AGAIN: Duration = Duration::from_millis(10);

/// How much longer the next server in line waits before it takes members of another out.
const TAKE_OUT_NEXT: Duration = Duration::from_millis(500);

impl RingState {
    /// A member is heard.
    pub(super) fn hear(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        member: MemberName,
        visit: Option<Visit>,
        to: Answer<Heard>,
    ) {
        let now = node.now();
        let known = self.sponsored.get(&member).map(|sponsored| sponsored.visit);
        let seen = self.members.get(&member).map(|seen| &seen.record);
        let is_in = seen.is_some_and(|record| record.session.is_some());
        let coming = self.names.len() + self.joining.len();
        if known.is_none() && !is_in && coming >= RING_MEMBERS_MAX {
            let ring = &self.id.name;
            let why = format!(
                "the ring {ring} has {RING_MEMBERS_MAX} members, which is as many as a ring may have"
            );
            return answer(to, Err(RingError::Limit(why)));
        }
        let visit = visit.unwrap_or_else(|| {
            let stored = seen.map(|record| record.visit);
            next_visit(known.max(stored), node.machine().wall_us())
        });
        match self.sponsored.get_mut(&member) {
            Some(sponsored) if visit < sponsored.visit && !active(Mutant::VisitIgnored) => {
                let (member, visit) = (member.to_string(), sponsored.visit);
                return answer(to, Err(RingError::Superseded { member, visit }));
            }
            Some(sponsored) if visit == sponsored.visit => {
                sponsored.heard = now;
                if sponsored.is_in {
                    return answer(to, Ok(heard(visit)));
                }
                sponsored.answers.push(to);
                sponsored.asked = now;
            }
            _ => {
                let answers = vec![to];
                let sponsored = Sponsored { visit, heard: now, is_in: false, answers, asked: now };
                let former = self.sponsored.insert(member.clone(), sponsored);
                for former_answer in former.into_iter().flat_map(|former| former.answers) {
                    let member = member.to_string();
                    answer(former_answer, Err(RingError::Superseded { member, visit }));
                }
            }
        }
        self.joining.insert(member);
        self.flush(agenda);
    }

    /// A member leaves, or is removed.
    pub(super) fn leave(
        &mut self,
        agenda: &mut Agenda,
        member: MemberName,
        (visit, note): (Option<Visit>, Note),
        to: Answer<Visit>,
    ) {
        let is_this = |sponsored: &Sponsored| visit.is_none_or(|visit| sponsored.visit <= visit);
        if self.sponsored.get(&member).is_some_and(is_this) {
            self.joining.remove(&member);
            self.forget(&member, |member, visit| RingError::VisitOver { member, visit });
        }
        agenda.leave(self.id.clone(), member, (visit, note), to);
    }

    /// Vouches for a member no more.
    fn forget(&mut self, member: &MemberName, why: impl Fn(String, Visit) -> RingError) {
        if let Some(sponsored) = self.sponsored.remove(member) {
            for to in sponsored.answers {
                answer(to, Err(why(member.to_string(), sponsored.visit)));
            }
        }
    }

    /// Begins to write those who wait for it.
    pub(super) fn flush(&mut self, agenda: &mut Agenda) {
        if self.is_enrolling || self.joining.is_empty() || !self.exists {
            return;
        }
        self.is_enrolling = true;
        let batch = self.joining.iter().take(RING_ROLL_BATCH_MAX).cloned().collect();
        agenda.read(self.id.clone(), batch);
    }

    /// What the store says of those who are to be written.
    pub(super) fn read(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        batch: &[MemberName],
        found: Result<Vec<Option<Entry>>, ScanError>,
    ) {
        let limits = node.store().limits();
        // Beside them: the roll; this session and the ring.
        let most = (limits.writes - 1).min(limits.writes.saturating_sub(3)).max(1);
        let Ok(found) = found else { return self.enrol_later(node, agenda) };
        let (mut plan, mut whens, mut is_new) = (Vec::new(), Vec::new(), false);
        for (member, found) in batch.iter().zip(found) {
            let record = found.as_ref().and_then(|e| from_value::<MemberRecord>(&e.value).ok());
            let Some(sponsored) = self.sponsored.get_mut(member) else {
                self.joining.remove(member);
                continue;
            };
            let visit = sponsored.visit;
            let newer = record.as_ref().filter(|record| record.is_newer_than(visit));
            if let Some(newer) = newer.filter(|_| !active(Mutant::VisitIgnored)) {
                self.joining.remove(member);
                let newest = newer.visit;
                self.forget(member, |member, visit| match newest > visit {
                    true => RingError::Superseded { member, visit: newest },
                    false => RingError::VisitOver { member, visit },
                });
                continue;
            }
            let session = record.as_ref().and_then(|record| record.session.as_deref());
            let is_mine =
                record.as_ref().is_some_and(|record| record.visit == visit && !record.own);
            if session == Some(&*node.me) && is_mine {
                self.joining.remove(member);
                is_in(sponsored);
                continue;
            }
            if plan.len() == most {
                continue;
            }
            // Who takes over a name is told of, so that the former one hears of it wherever it is.
            is_new |= session.is_none() || record.is_some_and(|record| record.visit != visit);
            whens.push(unmoved(self.id.member_key(member), found.as_ref()));
            let session = Some(node.me.to_string());
            let record = MemberRecord { session, own: false, visit, since_ms: node.wall().0 };
            plan.push(Enrolment { member: member.clone(), record });
        }
        if plan.is_empty() {
            self.is_enrolling = false;
            return self.flush(agenda);
        }
        let mut commit = Commit::new().when(Condition::Present(node.session.key().key().clone()));
        commit = commit.when(Condition::Present(self.id.ring_key()));
        commit.when.extend(whens);
        // As long as nobody else changes members, what is known here stays exact, and nothing has to be read.
        let exact = self.roll.filter(|_| is_new && self.conflicts == 0);
        if let Some(roll) = exact {
            commit = commit.when(Condition::At(self.id.roll_key(), roll));
        }
        for Enrolment { member, record } in &plan {
            commit = commit.put(self.id.member_key(member), to_value(record));
        }
        if is_new {
            let moved = RingRecord { at_ms: node.wall().0 };
            commit = commit.put(self.id.roll_key(), to_value(&moved));
        }
        self.own_under_way += 1;
        agenda.enrol(self.id.clone(), plan, exact.is_some(), commit);
    }

    /// What became of a commit that wrote members.
    pub(super) fn enrolled(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        plan: &[Enrolment],
        exact: bool,
        became: &Result<Version, CommitError>,
    ) {
        self.own_under_way = self.own_under_way.saturating_sub(1);
        let Ok(version) = became else {
            match became {
                // Nobody is in the ring through a server that is gone.
                Err(CommitError::Conflict(why))
                    if why.condition.key() == node.session.key().key() => {}
                Err(CommitError::Refused(why)) => {
                    tracing::warn!(ring = %self.id, %why, "the store takes no members");
                }
                _ => {}
            }
            self.look(node, agenda, Members::Always);
            return self.enrol_later(node, agenda);
        };
        self.conflicts = 0;
        self.own_commit = Some(node.now());
        for Enrolment { member, record } in plan {
            if let Some(sponsored) = self.sponsored.get_mut(member)
                && sponsored.visit == record.visit
            {
                self.joining.remove(member);
                is_in(sponsored);
            }
        }
        if exact {
            self.roll = Some(*version);
        }
        if exact || self.roll.is_some() {
            for Enrolment { member, record } in plan {
                let seen =
                    SeenMember { version: *version, record: record.clone(), idle_since: None };
                self.members.insert(member.clone(), seen);
            }
            self.names_may_differ(node, agenda);
        }
        if !exact {
            self.look(node, agenda, Members::IfMoved);
        }
        self.is_enrolling = false;
        self.flush(agenda);
    }

    fn enrol_later(&mut self, node: &RingNode, agenda: &mut Agenda) {
        self.is_enrolling = false;
        self.conflicts = (self.conflicts + 1).min(8);
        let chance = u32::try_from(node.machine().dice() % 8).expect("less than 8");
        let later = ENROL_AGAIN * (self.conflicts + chance);
        agenda.alarm(node.now() + later, Alarm::Flush(self.id.clone()));
    }

    /// Takes in the members as they were read after the heads.
    pub(super) fn members_shown(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        heads: &[Entry],
        members: &[Entry],
    ) {
        let roll = heads.iter().find(|e| matches!(read_head(&e.key), Some((_, Head::Roll))));
        self.roll = roll.map(|entry| entry.version);
        self.read_at = node.now();
        let mut shown = BTreeMap::new();
        for entry in members {
            let Some(member) = member_of(entry, &self.id) else { continue };
            // A member that moves does not move the roll: what is known of it may be newer than this.
            let known = self.members.remove(&member);
            let seen = match known {
                Some(known) if known.version >= entry.version => known,
                Some(_) | None => match from_value::<MemberRecord>(&entry.value) {
                    Ok(record) => SeenMember { version: entry.version, record, idle_since: None },
                    Err(why) => {
                        tracing::error!(key = %entry.key, %why, "a member cannot be read, and is left out");
                        continue;
                    }
                },
            };
            shown.insert(member, seen);
        }
        self.members = shown;
        if node.advances() {
            self.reconcile(node);
        }
        self.names_may_differ(node, agenda);
    }

    /// Who is in the ring is worked out anew, and whoever follows it is told.
    pub(super) fn names_may_differ(&mut self, node: &mut RingNode, agenda: &mut Agenda) {
        let present = self.present(|session| node.is_there(session));
        if *present == *self.names {
            return;
        }
        let former = std::mem::replace(&mut self.names, present.into());
        let now = Arc::clone(&self.names);
        for member in former.iter().filter(|member| now.binary_search(member).is_err()) {
            self.tell_all(RingEventKind::Remove { member: member.clone() });
        }
        for member in now.iter().filter(|member| former.binary_search(member).is_err()) {
            self.tell_all(RingEventKind::Add { member: member.clone() });
        }
        let resting = self.subscriptions.iter().filter(|(_, s)| s.record.idle);
        let resting: Vec<Arc<str>> = resting.map(|(name, _)| Arc::clone(name)).collect();
        for name in resting {
            self.arm(node, agenda, &name);
        }
        let open = self.subscriptions.iter().filter(|(_, s)| !s.record.open.is_empty());
        let open: Vec<Arc<str>> = open.map(|(name, _)| Arc::clone(name)).collect();
        for name in open {
            self.note_offers(node, agenda, &name);
        }
    }

    /// Looks after members, at each tick.
    pub(super) fn look_after_members(&mut self, node: &mut RingNode, agenda: &mut Agenda) {
        if !node.advances() || !self.exists {
            return;
        }
        let now = node.now();
        self.reconcile(node);
        if active(Mutant::SponsorForgets) {
            let heard = |s: &Sponsored| now.saturating_sub(s.heard) <= RING_SILENCE_MAX;
            self.sponsored.retain(|_, sponsored| heard(sponsored));
        }
        let Leaving { gone, must_read } = self.leaving(node);
        if must_read {
            self.look(node, agenda, Members::Always);
        }
        if gone.is_empty() || self.is_taking_out {
            return;
        }
        let limits = node.store().limits();
        let most = if self.one_by_one { 1 } else { limits.writes.saturating_sub(2) / 2 };
        let most = most.clamp(1, RING_ROLL_BATCH_MAX);
        let (mut commit, mut moves) = (Commit::new(), false);
        commit = commit.when(Condition::Present(self.id.ring_key()));
        let mut absent: Vec<Key> = Vec::new();
        for gone in gone.iter().take(most) {
            let key = self.id.member_key(&gone.member);
            commit = commit.when(at(key.clone(), Some(gone.version)));
            if let Some(session) = &gone.absent
                && !absent.contains(session)
            {
                commit = commit.when(Condition::Absent(session.clone()));
                absent.push(session.clone());
            }
            let is_mark_over = gone.visit.is_none();
            moves |= !is_mark_over;
            let mark = gone.visit.filter(|_| !active(Mutant::NoMarkOfLeaver));
            commit = match mark {
                Some(visit) => {
                    let mark = MemberRecord::mark(visit, node.wall().0);
                    commit.put(key, to_value(&mark))
                }
                None => commit.delete(key),
            };
        }
        if moves {
            let moved = RingRecord { at_ms: node.wall().0 };
            commit = commit.put(self.id.roll_key(), to_value(&moved));
        }
        self.is_taking_out = true;
        let several = gone.len().min(most) > 1;
        agenda.take_out(self.id.clone(), several, commit);
    }

    /// Whoever the store says is this server's is heard by it, or had better be.
    fn reconcile(&mut self, node: &RingNode) {
        let (now, me) = (node.now(), &*node.me);
        for (member, seen) in &self.members {
            let record = &seen.record;
            let is_mine = record.session.as_deref() == Some(me) && !record.own;
            if is_mine && !self.sponsored.contains_key(member) && !active(Mutant::SponsorForgets) {
                let (visit, answers) = (record.visit, Vec::new());
                let sponsored = Sponsored { visit, heard: now, is_in: true, answers, asked: now };
                self.sponsored.insert(member.clone(), sponsored);
            }
        }
        let mut over = Vec::new();
        for (member, sponsored) in &mut self.sponsored {
            if !sponsored.answers.is_empty() && is_too_long(sponsored.asked, now) {
                for to in sponsored.answers.drain(..) {
                    answer(to, Err(waited_too_long()));
                }
            }
            let record = self.members.get(member).map(|seen| &seen.record);
            let is_newer = record.is_some_and(|record| record.is_newer_than(sponsored.visit));
            let is_mine = record.is_some_and(|record| record.session.as_deref() == Some(me));
            let is_silent = now.saturating_sub(sponsored.heard) > RING_SILENCE_MAX;
            if is_newer && !active(Mutant::VisitIgnored) {
                over.push((member.clone(), record.map_or(0, |record| record.visit)));
            } else if is_silent && !is_mine {
                over.push((member.clone(), sponsored.visit));
            } else if !is_mine {
                // It went to another server; its next beat here brings it back.
                sponsored.is_in = false;
            }
        }
        for (member, newest) in over {
            self.joining.remove(&member);
            self.forget(&member, |member, visit| match newest > visit {
                true => RingError::Superseded { member, visit: newest },
                false => RingError::VisitOver { member, visit },
            });
        }
    }

    /// Who has to go: members of this server that are silent, those whose sponsor is gone for too long, and marks that are old.
    fn leaving(&mut self, node: &RingNode) -> Leaving {
        let (now, me) = (node.now(), &*node.me);
        let servers = node.sessions.iter().filter(|(_, is_server)| **is_server);
        let line = format!("{}/{}", self.id.project, self.id.name);
        let place = place(servers.map(|(key, _)| &**key), me, "", &line);
        let later = TAKE_OUT_NEXT * u32::try_from(place).unwrap_or(u32::MAX);
        let (mut gone, mut must_read) = (Vec::new(), false);
        for (member, seen) in &mut self.members {
            let (version, record) = (seen.version, &seen.record);
            let (member, visit) = (member.clone(), Some(record.visit));
            let Some(session) = &record.session else {
                let since = *seen.idle_since.get_or_insert(now);
                if now.saturating_sub(since) > RING_MARK_KEPT + later {
                    gone.push(Gone { member, version, visit: None, absent: None });
                }
                continue;
            };
            if **session == *me && !record.own {
                let heard = self.sponsored.get(&member).map(|sponsored| sponsored.heard);
                if heard.is_some_and(|heard| now.saturating_sub(heard) > RING_SILENCE_MAX) {
                    gone.push(Gone { member, version, visit, absent: None });
                }
                continue;
            }
            if node.is_there(session) {
                seen.idle_since = None;
                continue;
            }
            let since = *seen.idle_since.get_or_insert(now);
            let patience = if record.own { Duration::ZERO } else { RING_SILENCE_MAX };
            if now.saturating_sub(since) <= patience + later {
                continue;
            }
            // It may have moved meanwhile, which the roll does not tell.
            if self.read_at <= since + patience {
                must_read = true;
            } else if let Ok(session) = Key::new(session.clone()) {
                gone.push(Gone { member, version, visit, absent: Some(session) });
            }
        }
        Leaving { gone, must_read }
    }
}

/// Who has to go, as far as is known; and whether members must be read before more can be said.
struct Leaving {
    gone: Vec<Gone>,
    must_read: bool,
}

/// A member that has to go.
struct Gone {
    member: MemberName,
    version: Version,
    /// The visit that is over; none for a mark, which goes without another.
    visit: Option<Visit>,
    /// Only while this session is absent.
    absent: Option<Key>,
}

fn heard(visit: Visit) -> Heard {
    Heard { visit, beat: RING_BEAT }
}

/// A member is in the ring, and whoever waits for that is told.
fn is_in(sponsored: &mut Sponsored) {
    sponsored.is_in = true;
    for to in sponsored.answers.drain(..) {
        answer(to, Ok(heard(sponsored.visit)));
    }
}
