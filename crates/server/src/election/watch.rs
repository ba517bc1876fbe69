//! What was seen of elections, and what of it is told.
//!
//! Each look compares what is there with what was told last. It decides by its arguments alone. Events are about changes; what
//! a person should see to is about what is so: they are notified of it once, whoever has seen it begin.

use std::collections::{BTreeMap, BTreeSet};

use client::election::{ElectionState, HandOverCause, HoldState, RiskReason};
use engine::hold::record::{HoldRecord, Risk};
use engine::lease::{Reading, Ttl};
use engine::limits::{
    ELECTION_CANDIDATES_SHOWN_MAX, ELECTION_EVENTS_AT_ONCE_MAX, ELECTIONS_MONITORED_MAX,
    HOLD_RISK_NOTICE_PAUSE,
};
use store::claim::Head;
use store::session::{Roster, SessionRecord};

use super::notified::Notified;
use super::{HolderPresence, cause, hold, hold_state, reason, state};

/// Something that changed in an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionNews {
    /// The name of its project.
    pub project: String,
    /// The name of the election.
    pub name: String,
    /// What changed.
    pub change: ElectionChange,
}

/// What can change in an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionChange {
    /// It stands otherwise than before.
    Stands(Standing),
    /// An assumption of a hold was seen broken.
    AtRisk {
        /// The node that saw it.
        node: String,
        /// Which assumption.
        reason: RiskReason,
        /// What was seen.
        what: String,
    },
    /// Nobody has had it for long, though these campaign for it.
    Unheld(Vec<String>),
    /// Somebody has it, after somebody was notified that nobody had.
    HeldAgain(Standing),
}

/// Who has an election, and what is done under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether somebody has it.
    pub state: ElectionState,
    /// What the program does, if it is a hold.
    pub hold: Option<HoldState>,
    /// Who has it.
    pub holder: Option<String>,
    /// Under which token, or the last one.
    pub token: u64,
    /// Why the program came to this holder.
    pub cause: Option<HandOverCause>,
}

impl Standing {
    /// How it stands if these sessions are there.
    pub(super) fn of(seen: &SeenElection, roster: &Roster) -> Self {
        let head = &seen.head;
        let holder = head.session.as_ref().filter(|holder| roster.contains(holder));
        let presence = holder.map_or(HolderPresence::Gone, |_| HolderPresence::There);
        let hold = seen.hold.as_ref();
        Self {
            state: state(head, presence),
            hold: hold.map(|hold| hold_state(head, presence, (hold.token, hold.state))),
            holder: holder.map(|holder| holder.node().to_string()),
            token: head.token,
            cause: hold.and_then(|hold| {
                let came = hold.hand_overs.first().filter(|came| came.token == head.token)?;
                Some(cause(came.cause))
            }),
        }
    }

    /// Whether people see a difference. Why it came about is known later than that it did.
    fn differs(&self, other: &Self) -> bool {
        (self.state, self.hold, &self.holder, self.token)
            != (other.state, other.hold, &other.holder, other.token)
    }
}

/// An election as it was read; its head keeps no body here.
#[derive(Debug, Clone)]
pub(super) struct SeenElection {
    head: Head,
    hold: Option<HoldRecord>,
    /// What stood beside it.
    pub(super) notified: Notified,
}

impl SeenElection {
    pub(super) fn of(head: Head) -> Self {
        let hold = hold(&head);
        Self { head: Head { body: None, ..head }, hold, notified: Notified::default() }
    }
}

/// Who notifies somebody outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notifying {
    Here,
    /// Another server, or none.
    Elsewhere,
}

/// Elections by `project/name`.
pub(super) type Elections = BTreeMap<String, SeenElection>;

/// What a look gives to tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LookNews {
    pub(super) events: Vec<ElectionNews>,
    pub(super) notices: Vec<ElectionNews>,
}

/// What was seen of elections so far.
#[derive(Debug, Default)]
pub(super) struct ElectionWatch {
    /// How each stood when it was told last.
    told: BTreeMap<String, Standing>,
    /// How often each assumption of each hold was seen broken.
    risks: BTreeMap<(String, RiskReason), u64>,
    /// When this server notified somebody of that.
    noticed: BTreeMap<(String, RiskReason), Reading>,
    /// Since when nobody has what somebody campaigns for.
    unheld: BTreeMap<String, Unheld>,
    /// What this server notified of, also if that is not kept beside the heads.
    notified: BTreeMap<String, Notified>,
}

/// Nobody has an election that somebody campaigns for.
#[derive(Debug)]
struct Unheld {
    since: Reading,
    is_told: bool,
}

impl ElectionWatch {
    /// What was there when this server began to look: it is no event.
    pub(super) fn begin(&mut self, elections: &Elections, roster: &Roster, now: Reading) {
        while !self.see(elections, roster, now, Notifying::Elsewhere).events.is_empty() {}
    }

    /// Whether nothing can change but by a hint.
    pub(super) fn is_idle(&self) -> bool {
        self.told.is_empty() && self.unheld.is_empty()
    }

    /// Compares what is there with what was before.
    pub(super) fn see(
        &mut self,
        elections: &Elections,
        roster: &Roster,
        now: Reading,
        notifying: Notifying,
    ) -> LookNews {
        self.told.retain(|key, _| elections.contains_key(key));
        self.notified.retain(|key, _| elections.contains_key(key));
        self.risks.retain(|(key, _), _| elections.contains_key(key));
        self.noticed.retain(|(key, _), _| elections.contains_key(key));
        let mut news = LookNews::default();
        for (key, seen) in elections {
            if news.events.len().max(news.notices.len()) >= ELECTION_EVENTS_AT_ONCE_MAX {
                break;
            }
            let standing = Standing::of(seen, roster);
            if notifying == Notifying::Here {
                self.notify_of_waiting(key, seen, &standing, &mut news);
                self.notify_of_risks(key, seen, now, &mut news);
            }
            self.see_standing(key, standing, &mut news);
            self.see_risks(key, seen, &mut news);
        }
        self.see_unheld(elections, roster, now, &mut news);
        news
    }

    fn see_standing(&mut self, key: &str, standing: Standing, news: &mut LookNews) {
        if self.told.get(key).is_some_and(|told| !standing.differs(told)) {
            return;
        }
        news.events.extend(about(key, ElectionChange::Stands(standing.clone())));
        self.told.insert(key.to_owned(), standing);
    }

    fn see_risks(&mut self, key: &str, seen: &SeenElection, news: &mut LookNews) {
        let Some(hold) = &seen.hold else { return };
        for risk in &hold.at_risk {
            let at = (key.to_owned(), reason(risk.reason));
            if self.risks.insert(at, risk.count).unwrap_or(0) < risk.count {
                news.events.extend(about(key, at_risk(hold, risk)));
            }
        }
    }

    /// What is known of who was notified of what: by what stands beside the head, or by this server itself.
    fn notified(&mut self, key: &str, seen: &SeenElection) -> &mut Notified {
        let notified = self.notified.entry(key.to_owned()).or_default();
        notified.join(&seen.notified);
        notified
    }

    fn notify_of_waiting(
        &mut self,
        key: &str,
        seen: &SeenElection,
        standing: &Standing,
        news: &mut LookNews,
    ) {
        let notified = self.notified(key, seen);
        if standing.state == ElectionState::Waiting && notified.waiting != Some(standing.token) {
            notified.waiting = Some(standing.token);
            news.notices.extend(about(key, ElectionChange::Stands(standing.clone())));
        }
    }

    fn notify_of_risks(
        &mut self,
        key: &str,
        seen: &SeenElection,
        now: Reading,
        news: &mut LookNews,
    ) {
        let Some(hold) = &seen.hold else { return };
        for risk in &hold.at_risk {
            let at = (key.to_owned(), reason(risk.reason));
            let last = self.noticed.get(&at);
            let is_time = last.is_none_or(|last| now.least_since(*last) >= HOLD_RISK_NOTICE_PAUSE);
            let notified = self.notified(key, seen);
            if is_time && notified.count(risk.reason) != risk.count {
                notified.risks.insert(risk.reason, risk.count);
                self.noticed.insert(at, now);
                news.notices.extend(about(key, at_risk(hold, risk)));
            }
        }
    }

    /// What is to be kept beside the heads of those that somebody was notified of by these.
    pub(super) fn to_keep(&self, notices: &[ElectionNews]) -> BTreeMap<String, Notified> {
        let keys = notices.iter().filter(|news| match news.change {
            ElectionChange::Stands(_) | ElectionChange::AtRisk { .. } => true,
            ElectionChange::Unheld(_) | ElectionChange::HeldAgain(_) => false,
        });
        let keys = keys.map(|news| format!("{}/{}", news.project, news.name));
        keys.filter_map(|key| self.notified.get(&key).map(|kept| (key, kept.clone()))).collect()
    }

    fn see_unheld(
        &mut self,
        elections: &Elections,
        roster: &Roster,
        now: Reading,
        news: &mut LookNews,
    ) {
        let wanted = candidates(roster);
        let is_unheld = |key: &String| {
            let seen = elections.get(key);
            seen.is_none_or(|seen| Standing::of(seen, roster).state == ElectionState::Free)
        };
        for (key, (names, ttl)) in wanted.iter().filter(|(key, _)| is_unheld(key)) {
            let fresh = || Unheld { since: now, is_told: false };
            let unheld = self.unheld.entry((*key).clone()).or_insert_with(fresh);
            if !unheld.is_told && now.least_since(unheld.since) > ttl.length() * 2 {
                unheld.is_told = true;
                let names = names.iter().take(ELECTION_CANDIDATES_SHOWN_MAX).cloned().collect();
                let told = about(key, ElectionChange::Unheld(names));
                news.notices.extend(told.clone());
                news.events.extend(told);
            }
        }
        self.unheld.retain(|key, unheld| {
            if wanted.contains_key(key) && is_unheld(key) {
                return true;
            }
            let standing = elections.get(key).map(|seen| Standing::of(seen, roster));
            let held = standing.filter(|standing| standing.state != ElectionState::Free);
            // If nobody wants it any more, nobody waits for it either.
            if let Some(standing) = held.filter(|_| unheld.is_told) {
                news.notices.extend(about(key, ElectionChange::HeldAgain(standing)));
            }
            false
        });
    }
}

/// Who campaigns for what, and with which T at the longest; for no more elections than are monitored.
fn candidates(roster: &Roster) -> BTreeMap<String, (BTreeSet<String>, Ttl)> {
    let mut wanted: BTreeMap<String, (BTreeSet<String>, Ttl)> = BTreeMap::new();
    for (session, record) in roster.live() {
        let Some(ttl) = SessionRecord::ttl(record) else { continue };
        for candidacy in &record.candidacies {
            if wanted.len() >= ELECTIONS_MONITORED_MAX && !wanted.contains_key(candidacy) {
                continue;
            }
            let (names, longest) =
                wanted.entry(candidacy.clone()).or_insert_with(|| (BTreeSet::new(), ttl));
            names.insert(session.node().to_string());
            *longest = ttl.max(*longest);
        }
    }
    wanted
}

fn at_risk(hold: &HoldRecord, risk: &Risk) -> ElectionChange {
    let (node, what) = (hold.node.clone(), risk.what.clone());
    ElectionChange::AtRisk { node, reason: reason(risk.reason), what }
}

fn about(key: &str, change: ElectionChange) -> Option<ElectionNews> {
    let (project, name) = key.split_once('/')?;
    Some(ElectionNews { project: project.to_owned(), name: name.to_owned(), change })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::hold::record::{self, HandOver, HoldBody};
    use engine::lease::Nonce;
    use engine::record::Format;
    use serde_json::value::to_raw_value;
    use store::claim::ClaimState;
    use store::memory::MemoryStore;
    use store::session::{NodeId, SessionKey};
    use store::{Commit, Condition, Store};

    use super::*;

    fn session(node: &str) -> SessionKey {
        SessionKey::new(&NodeId::new(node).unwrap(), 1)
    }

    /// Sessions with a T of 3 s that campaign for the election.
    async fn roster(nodes: &[&str]) -> Roster {
        let store = Store::new(MemoryStore::new());
        for node in nodes {
            let record = SessionRecord {
                url: None,
                roles: Vec::new(),
                ttl_ms: 3_000,
                beat: 1,
                nonce: Nonce(1),
                wall_us: 1,
                reads: Format(1),
                local: false,
                joining: false,
                key: None,
                draining: false,
                unable: Vec::new(),
                version: String::new(),
                candidacies: vec!["shop/nightly".to_owned()],
            };
            let key = session(node).key().clone();
            let open = Commit::new().when(Condition::Absent(key.clone()));
            store.commit(open.put(key, record.to_value())).await.unwrap();
        }
        Roster::read(&store).await.unwrap()
    }

    fn at(secs: u64) -> Reading {
        let since = Duration::from_secs(secs);
        Reading { boot: since, raw: since }
    }

    fn record(token: u64, state: record::HoldState, risks: u64) -> HoldRecord {
        let mut record = HoldRecord {
            token,
            node: "web-1".into(),
            state,
            since_ms: 0,
            leaving: None,
            program: "/bin/nightly".into(),
            isolation: None,
            pid: None,
            starts: 1,
            exits: Vec::new(),
            hand_overs: Vec::new(),
            at_risk: Vec::new(),
        };
        record.came(HandOver {
            at_ms: 0,
            from: None,
            to: "web-1".into(),
            token,
            cause: record::HandOverCause::Lost,
            took_ms: None,
        });
        for _ in 0..risks {
            record.risks(record::RiskReason::SlowKill, 0, "late");
        }
        record
    }

    /// The election, held by this node under token 7.
    fn election(node: Option<&str>, state: ClaimState, hold: Option<HoldRecord>) -> Elections {
        let text = r#"{"format":1,"session":null,"token":7,"state":"held","number":3,"nonce":"1"}"#;
        let first = Head::from_value(&text.into()).unwrap();
        let body = hold.map(|hold| to_raw_value(&HoldBody { hold }).unwrap());
        let head = Head { session: node.map(session), state, body, ..first };
        [("shop/nightly".to_owned(), SeenElection::of(head))].into()
    }

    fn changes(news: &[ElectionNews]) -> Vec<&ElectionChange> {
        news.iter().map(|news| &news.change).collect()
    }

    #[tokio::test]
    async fn a_change_is_told_once_and_what_was_before_is_not() {
        let there = roster(&["web-1"]).await;
        let running = Some(record(7, record::HoldState::Running, 0));
        let held = election(Some("web-1"), ClaimState::Held, running);
        let mut watch = ElectionWatch::default();
        watch.begin(&held, &there, at(0));
        assert_eq!(watch.see(&held, &there, at(1), Notifying::Here), LookNews::default());
        let gone = watch.see(&held, &roster(&[]).await, at(2), Notifying::Here);
        let lost = Standing {
            state: ElectionState::Free,
            hold: Some(HoldState::Lost),
            holder: None,
            token: 7,
            cause: Some(HandOverCause::Lost),
        };
        assert_eq!(changes(&gone.events), [&ElectionChange::Stands(lost)]);
        assert_eq!(gone.notices, []);
    }

    #[tokio::test]
    async fn somebody_is_notified_once_of_each_holder_that_waits() {
        let there = roster(&["web-1"]).await;
        let waiting = election(Some("web-1"), ClaimState::Waiting, None);
        let mut watch = ElectionWatch::default();
        let told = watch.see(&waiting, &there, at(0), Notifying::Here);
        assert_eq!((told.events.len(), told.notices.len()), (1, 1));
        assert_eq!(told.notices[0].project, "shop");
        let begun = election(Some("web-1"), ClaimState::Held, None);
        assert_eq!(watch.see(&begun, &there, at(1), Notifying::Here).notices, []);
        // Forgotten and read again: it is the same token.
        assert_eq!(watch.see(&waiting, &there, at(2), Notifying::Here).notices, []);
    }

    /// Whoever looks first notifies of it, and whoever comes later does not: by what is kept beside the head.
    #[tokio::test]
    async fn what_was_so_before_a_server_began_is_notified_of_once() {
        let there = roster(&["web-1"]).await;
        let mut elections = election(
            Some("web-1"),
            ClaimState::Waiting,
            Some(record(7, record::HoldState::Running, 2)),
        );
        let mut watch = ElectionWatch::default();
        watch.begin(&elections, &there, at(0));
        assert_eq!(watch.see(&elections, &there, at(1), Notifying::Elsewhere), LookNews::default());
        let told = watch.see(&elections, &there, at(2), Notifying::Here);
        assert_eq!((told.events.len(), told.notices.len()), (0, 2), "{told:?}");
        assert_eq!(watch.see(&elections, &there, at(3), Notifying::Here), LookNews::default());
        for (key, notified) in watch.to_keep(&told.notices) {
            elections.get_mut(&key).unwrap().notified = notified;
        }
        // Another server, and the same one started again.
        for _ in 0..2 {
            let mut watch = ElectionWatch::default();
            watch.begin(&elections, &there, at(0));
            assert_eq!(watch.see(&elections, &there, at(1), Notifying::Here), LookNews::default());
        }
    }

    /// Somebody else had the election meanwhile, so that the hold counts from the beginning.
    #[tokio::test]
    async fn a_count_that_went_back_is_another_one() {
        let there = roster(&["web-1"]).await;
        let seen = |risks, notified: &Notified| {
            let hold = record(7, record::HoldState::Running, risks);
            let mut elections = election(Some("web-1"), ClaimState::Held, Some(hold));
            elections.get_mut("shop/nightly").unwrap().notified = notified.clone();
            elections
        };
        let mut watch = ElectionWatch::default();
        let kept = Notified { waiting: None, risks: [(record::RiskReason::SlowKill, 5)].into() };
        let told = watch.see(&seen(1, &kept), &there, at(0), Notifying::Here);
        assert_eq!(told.notices.len(), 1, "{told:?}");
        let kept = watch.to_keep(&told.notices).into_values().next().unwrap();
        assert_eq!(kept.count(record::RiskReason::SlowKill), 1);
        let hour = HOLD_RISK_NOTICE_PAUSE.as_secs();
        assert_eq!(watch.see(&seen(1, &kept), &there, at(hour), Notifying::Here).notices, []);
    }

    #[tokio::test]
    async fn a_risk_is_told_each_time_and_notified_once_an_hour() {
        let there = roster(&["web-1"]).await;
        let seen = |risks| {
            let record = record(7, record::HoldState::Running, risks);
            election(Some("web-1"), ClaimState::Held, Some(record))
        };
        let mut watch = ElectionWatch::default();
        watch.begin(&seen(1), &there, at(0));
        let hour = HOLD_RISK_NOTICE_PAUSE.as_secs();
        let mut told = Vec::new();
        for (risks, now) in [(1, 1), (2, 2), (2, 3), (3, 4), (4, 2 + hour)] {
            let news = watch.see(&seen(risks), &there, at(now), Notifying::Here);
            told.push((news.events.len(), news.notices.len()));
        }
        // The first was seen by nobody who would have told of it.
        assert_eq!(told, [(0, 1), (1, 0), (0, 0), (1, 0), (1, 1)]);
    }

    #[tokio::test]
    async fn an_election_that_nobody_has_for_two_t_is_told_until_somebody_has_it() {
        let (there, nobody) = (roster(&["web-1", "web-2"]).await, roster(&[]).await);
        let free = election(None, ClaimState::Free, None);
        let mut watch = ElectionWatch::default();
        watch.begin(&free, &there, at(0));
        assert_eq!(watch.see(&free, &there, at(6), Notifying::Here), LookNews::default());
        let told = watch.see(&free, &there, at(7), Notifying::Here);
        let names = vec!["web-1".to_owned(), "web-2".to_owned()];
        assert_eq!(changes(&told.notices), [&ElectionChange::Unheld(names)]);
        assert_eq!(watch.see(&free, &there, at(8), Notifying::Here), LookNews::default());
        let held = election(Some("web-2"), ClaimState::Held, None);
        let again = watch.see(&held, &there, at(9), Notifying::Here);
        assert!(matches!(changes(&again.notices)[..], [ElectionChange::HeldAgain(_)]), "{again:?}");
        // Where nobody wants it, nobody is missed.
        let mut watch = ElectionWatch::default();
        watch.begin(&free, &nobody, at(0));
        assert_eq!(watch.see(&free, &nobody, at(100), Notifying::Here), LookNews::default());
    }

    #[tokio::test]
    async fn so_many_are_told_at_a_time_and_the_others_later() {
        let there = roster(&["web-1"]).await;
        let one = election(Some("web-1"), ClaimState::Held, None).into_values().next().unwrap();
        let count = ELECTION_EVENTS_AT_ONCE_MAX + 1;
        let many: Elections =
            (0..count).map(|number| (format!("shop/{number:04}"), one.clone())).collect();
        let mut watch = ElectionWatch::default();
        assert_eq!(
            watch.see(&many, &there, at(0), Notifying::Here).events.len(),
            ELECTION_EVENTS_AT_ONCE_MAX
        );
        assert_eq!(watch.see(&many, &there, at(1), Notifying::Here).events.len(), 1);
        assert_eq!(watch.see(&many, &there, at(2), Notifying::Here).events.len(), 0);
    }
}
