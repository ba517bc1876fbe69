//! The assigner: which shards this node takes, and which it hands over.
//!
//! It looks at the sessions and at who has which shard, whenever one of them changes and every T/10, shows what it sees
//! to everybody else ([`crate::peers`]), and does what [`engine::assignment`] says: takes what it should have and nobody
//! has, and hands over what another should have, one shard at a time. Taking a shard is claiming and reading it; the
//! core runs it from then on. It decides nothing by who it *thinks* has a shard: a claim does.
//!
//! A shard that cannot be read is given up again, and this node says in its session that it cannot run it, so that
//! nobody hands it over to this one; it tries again after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::assignment::step::{AssignmentStep, Looker, ShardHolder, Taker};
use engine::assignment::{Settling, ranking};
use engine::id::ShardId;
use engine::lease::Token;
use engine::notice::Audience;
use engine::shard::TriggerKinds;
use store::ScanError;
use store::cluster::ClusterIdentity;
use store::election::{Candidacy, Defeat, Holding, Mode};
use store::machine::within;
use store::ownership::{OWNERS, Ownership, owners, shard_claim};
use store::session::{Roster, Session, SessionKey};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::committer::Handed;
use super::component::Component;
use super::core::Owned;
use super::handover::ShardEvent;
use super::membership::{Gist, Owners, gist, takers, view};
use super::shard_reader::ShardReadError;
use super::start::NodeResources;
use super::{NodeStartError, now, shard_reader};
use crate::peers::{Peers, Server, View};

/// How long a shard that could not be read is left to others.
const UNABLE_FOR: Duration = Duration::from_secs(60);

/// How long a shard that looked free and was not is left alone: whoever has it may not say so, as servers of former
/// versions do not.
const TAKEN_FOR: Duration = Duration::from_millis(500);

/// Between two looks, however much happens.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// How long after a shard was handed over the next one goes, if the new owner has not taken it by then.
const HANDED_WAIT: Duration = Duration::from_secs(1);

/// How long a start takes before it says what it waits for.
const QUIET_START: Duration = Duration::from_secs(1);

/// What an assigner works with.
pub(super) struct Assigner {
    session: Session,
    cluster: ClusterIdentity,
    peers: Arc<Peers>,
    audience: Audience,
    shard_events: mpsc::UnboundedSender<ShardEvent>,
    /// Until this node has all that it should have at first.
    start: Option<PendingStart>,
    /// Limits how many shards are read at a time.
    reading: Arc<Semaphore>,
    kinds: TriggerKinds,
    /// When it began, in steady milliseconds.
    begun: u64,
    memory: AssignerMemory,
}

/// What an assigner remembers between two looks. Times are steady milliseconds.
#[derive(Default)]
struct AssignerMemory {
    /// Since when shards have nobody.
    orphans: BTreeMap<ShardId, u64>,
    /// Until when shards are left to others, because they cannot be run here...
    unable: BTreeMap<ShardId, u64>,
    /// ...or because they were not to be had, or it was just said who has them.
    refused: BTreeMap<ShardId, u64>,
    /// What sessions said at the last look.
    gist: Vec<Gist>,
    /// The nodes that could take shards.
    takers: Vec<String>,
    settling: Settling,
    /// Shards that are being claimed and read, and those that the core has been given.
    taking: BTreeSet<ShardId>,
    adopted: BTreeSet<ShardId>,
    /// The shard that leaves.
    leaving: Option<LeavingShard>,
    is_draining: bool,
    is_apart: bool,
    /// Whether the clocks of the others have been seen to move, or have had time to.
    knows_clocks: bool,
}

/// A shard that leaves.
struct LeavingShard {
    shard: ShardId,
    to: SessionKey,
    /// The token of its new owner, once it has left, and when that was known.
    handed: Option<(Token, u64)>,
}

/// What became of a shard that was to be taken.
type Taken = (ShardId, Result<Option<(Owned, Holding)>, ShardTakeError>);

/// Why a shard was not taken.
enum ShardTakeError {
    /// The shard cannot be claimed.
    Claim(Defeat),
    /// The shard was claimed, and cannot be read.
    Read(ShardReadError, Box<Holding>),
    /// The shard was claimed to be given up: another server named this one, which cannot run it.
    Unable(Box<Holding>),
}

/// Somebody who waits until this node has what it should have at first, or cannot have it.
struct PendingStart {
    started: oneshot::Sender<StartOutcome>,
    is_told: bool,
}

/// Whether a node has what it should have at first, or why it cannot.
pub(super) type StartOutcome = Result<(), NodeStartError>;

impl Assigner {
    /// An assigner that reads as many shards at a time as there are cores, since most of that is reading JSON; and
    /// word when this node has what it should have at first.
    pub(super) fn new(
        shared: &NodeResources,
        cores: usize,
        shard_events: mpsc::UnboundedSender<ShardEvent>,
    ) -> (Self, oneshot::Receiver<StartOutcome>) {
        let (started_in, started) = oneshot::channel();
        let access = Arc::clone(&shared.access);
        let assigner = Self {
            session: shared.session.clone(),
            cluster: shared.cluster,
            peers: Arc::clone(&shared.peers),
            audience: Arc::new(move |project| access.book().listener(project).cloned()),
            shard_events,
            start: Some(PendingStart { started: started_in, is_told: false }),
            reading: Arc::new(Semaphore::new(cores)),
            kinds: TriggerKinds::default(),
            begun: now(&**shared.session.machine()).steady,
            memory: AssignerMemory::default(),
        };
        (assigner, started)
    }
}

impl Component for Assigner {
    const NAME: &'static str = "the assigner";

    async fn run(mut self) {
        let session = self.session.clone();
        let (machine, ttl) = (session.machine(), session.ttl());
        let mut hints = session.store().watch(OWNERS);
        let (mut roster, mut drained) = (session.roster(), self.peers.drained());
        let mut tasks: JoinSet<Taken> = JoinSet::new();
        let mut handing_over: Option<oneshot::Receiver<Handed>> = None;
        loop {
            let looked = machine.reading();
            self.say_draining(*drained.borrow_and_update());
            match within(machine, ttl.timeout(), owners(session.store())).await {
                Some(Ok(owners)) => {
                    let seen = roster.borrow_and_update().clone();
                    self.memory.gist = gist(&seen);
                    self.look(&seen, &owners, &mut tasks, &mut handing_over);
                    if let Some(shard) = self.unshown(&owners) {
                        self.refuse(shard);
                        self.mend_mirror(shard).await;
                    }
                    if self.memory.taking.is_empty()
                        && self.has_all(&owners)
                        && let Some(start) = self.start.take()
                    {
                        let _ = start.started.send(Ok(()));
                    }
                }
                Some(Err(why)) => tracing::debug!(%why, "the owners of shards could not be read"),
                None => tracing::debug!("the owners of shards could not be read in time"),
            }
            self.tell_wait();
            let mut timer = machine.sleep(ttl.poll());
            let mut is_news = false;
            loop {
                let was_news = is_news;
                tokio::select! {
                    biased;
                    Some(taken) = tasks.join_next() => {
                        let (shard, taken) =
                            taken.unwrap_or_else(|why| std::panic::resume_unwind(why.into_panic()));
                        let is_passing = self.taken(shard, taken).await;
                        is_news |= tasks.is_empty() && !is_passing;
                    }
                    handed = answer(&mut handing_over) => {
                        handing_over = None;
                        self.handing_over(handed);
                        is_news = true;
                    }
                    () = hints.changed(), if !is_news => is_news = true,
                    Ok(()) = roster.changed(), if !is_news => {
                        // Renewals are no news.
                        is_news = gist(&roster.borrow_and_update()) != self.memory.gist;
                    }
                    Ok(()) = drained.changed(), if !is_news => is_news = true,
                    () = &mut timer => break,
                }
                if is_news && !was_news {
                    // Much may change at once, and is seen at one time.
                    let passed = machine.reading().most_since(looked);
                    timer = machine.sleep(LOOK_PAUSE.saturating_sub(passed));
                }
            }
        }
    }
}

impl Assigner {
    fn steady(&self) -> u64 {
        now(&**self.session.machine()).steady
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.cluster.shards).map(ShardId)
    }

    /// Looks at the cluster, shows it to others, and begins what this node has to do.
    fn look(
        &mut self,
        roster: &Roster,
        owners: &Owners,
        tasks: &mut JoinSet<Taken>,
        handing_over: &mut Option<oneshot::Receiver<Handed>>,
    ) {
        let about = (self.cluster.shards, self.memory.is_draining);
        let view = view(&self.session, about, roster, owners);
        self.tell_clock(&view);
        let steady = self.steady();
        self.forget(roster, owners, steady);
        let takers = takers(&view);
        self.memory.knows_clocks |= self.knows_clocks(&takers, roster, steady);
        let ids: Vec<&str> = takers.iter().map(|server| server.node().as_str()).collect();
        self.memory.settling.see(&ids, steady);
        self.memory.takers = ids.into_iter().map(str::to_owned).collect();
        let unable: Vec<Vec<u16>> = takers
            .iter()
            .map(|server| server.unable.iter().map(|shard| shard.0).collect())
            .collect();
        let takers: Vec<Taker<'_>> = takers
            .iter()
            .zip(&unable)
            .map(|(server, unable)| Taker { id: server.node().as_str(), unable })
            .collect();
        let session = self.session.clone();
        let looker = Looker {
            id: session.key().node().as_str(),
            is_settled: self.memory.settling.is_settled(steady),
            turn_ms: millis(self.session.ttl().length() / 2),
        };
        for shard in self.shards() {
            let holder = self.holder(shard, roster, owners, steady);
            match looker.step(shard, &takers, holder) {
                AssignmentStep::Leave => {}
                AssignmentStep::Take if self.is_left_alone(shard, holder) => {}
                AssignmentStep::Take => {
                    if self.memory.taking.insert(shard) {
                        tasks.spawn(self.take(shard));
                    }
                }
                AssignmentStep::Hand(to) => {
                    if self.memory.leaving.is_none()
                        && let Some(server) = view.named(to)
                    {
                        *handing_over = Some(self.hand_over(shard, server.session.clone()));
                    }
                }
            }
        }
        self.peers.show(view);
    }

    fn is_left_alone(&self, shard: ShardId, holder: ShardHolder) -> bool {
        let is_unable = self.memory.unable.contains_key(&shard) && holder != ShardHolder::Named;
        let is_early = matches!(holder, ShardHolder::Nobody { .. }) && !self.memory.knows_clocks;
        is_unable || is_early || self.memory.refused.contains_key(&shard)
    }

    /// Whether the clocks of the others have been seen to move, or have had time to.
    fn knows_clocks(&self, takers: &[&Server], roster: &Roster, steady: u64) -> bool {
        let is_seen = |server: &&Server| roster.ahead_ms(&server.session).is_some();
        let patience = millis(self.session.ttl().pause()) * 2;
        takers.iter().all(is_seen) || steady.saturating_sub(self.begun) > patience
    }

    /// Who has a shard, as this node sees it.
    fn holder(
        &mut self,
        shard: ShardId,
        roster: &Roster,
        owners: &Owners,
        steady: u64,
    ) -> ShardHolder {
        if self.memory.adopted.contains(&shard) {
            return ShardHolder::Runs;
        }
        let owner = owners.get(&shard).and_then(|owner| owner.session.as_ref());
        match owner {
            Some(owner) if owner == self.session.key() => ShardHolder::Named,
            Some(owner) if roster.contains(owner) => ShardHolder::Other,
            Some(_) | None => {
                let since = *self.memory.orphans.entry(shard).or_insert(steady);
                ShardHolder::Nobody { for_ms: steady.saturating_sub(since) }
            }
        }
    }

    /// Forgets what is over.
    fn forget(&mut self, roster: &Roster, owners: &Owners, steady: u64) {
        let memory = &mut self.memory;
        memory.orphans.retain(|shard, _| {
            let owner = owners.get(shard).and_then(|owner| owner.session.as_ref());
            owner.is_none_or(|owner| !roster.contains(owner))
        });
        let before = memory.unable.len();
        memory.unable.retain(|_, until| *until > steady);
        memory.refused.retain(|_, until| *until > steady);
        if memory.unable.len() != before {
            self.say_unable();
        }
        // The core drops what it has lost: it can be taken anew.
        let served = self.peers.served().borrow().clone();
        let leaving = self.memory.leaving.as_ref().map(|leaving| leaving.shard);
        self.memory.adopted.retain(|shard| served.contains(shard) || Some(*shard) == leaving);
        self.memory.leaving.take_if(|leaving| {
            let Some((token, since)) = leaving.handed else { return false };
            let owner = owners.get(&leaving.shard);
            let is_taken = owner.is_none_or(|owner| owner.token > token);
            let is_late = Duration::from_millis(steady.saturating_sub(since)) >= HANDED_WAIT;
            is_taken || is_late || !roster.contains(&leaving.to)
        });
    }

    /// Whether there is nothing left that this node should have at first.
    fn has_all(&self, owners: &Owners) -> bool {
        let is_waiting = !self.session.quarantine_left().is_zero();
        let has_role =
            self.peers.view().server(self.session.key()).is_some_and(Server::takes_shards);
        let is_free = |shard: &ShardId| {
            let owner = owners.get(shard).and_then(|owner| owner.session.as_ref());
            let is_named = owner == Some(self.session.key());
            !self.memory.adopted.contains(shard)
                && !self.memory.unable.contains_key(shard)
                && !self.memory.refused.contains_key(shard)
                && (is_named || self.memory.orphans.contains_key(shard))
        };
        // What others are to take first is theirs.
        let mine = self.shards().filter(|shard| is_free(shard)).any(|shard| self.is_first(shard));
        !has_role || (!is_waiting && !mine)
    }

    /// A shard that this node serves and another is said to have, and that was not looked after lately.
    fn unshown(&self, owners: &Owners) -> Option<ShardId> {
        let is_mine = |owner: &Ownership| owner.session.as_ref() == Some(self.session.key());
        let leaving = self.memory.leaving.as_ref().map(|leaving| leaving.shard);
        let is_passed =
            |shard: &ShardId| Some(*shard) == leaving || self.memory.refused.contains_key(shard);
        let served = self.memory.adopted.iter().filter(|shard| !is_passed(shard));
        served.copied().find(|shard| !owners.get(shard).is_some_and(is_mine))
    }

    /// Mends the record that shows everybody who has a shard.
    async fn mend_mirror(&self, shard: ShardId) {
        let (store, machine) = (self.session.store(), self.session.machine());
        let (claim, timeout) = (shard_claim(shard), self.session.ttl().timeout());
        match within(machine, timeout, claim.mend_mirror(store)).await {
            Some(Ok(true)) => {
                tracing::warn!(%shard, "it was said wrongly who has the shard: mended");
            }
            Some(Ok(false)) => {}
            Some(Err(why)) => tracing::debug!(%shard, %why, "who has the shard could not be said"),
            None => tracing::debug!(%shard, "who has the shard could not be said in time"),
        }
    }

    fn is_first(&self, shard: ShardId) -> bool {
        let ids: Vec<&str> = self.memory.takers.iter().map(String::as_str).collect();
        ranking(shard, &ids).first() == Some(&self.session.key().node().as_str())
    }

    /// Claims and reads a shard; one that cannot be run here is only claimed.
    fn take(&self, shard: ShardId) -> impl Future<Output = Taken> + use<> {
        let (session, cluster) = (self.session.clone(), self.cluster);
        let is_unable = self.memory.unable.contains_key(&shard);
        let (reading, kinds) = (Arc::clone(&self.reading), self.kinds.clone());
        let audience = Arc::clone(&self.audience);
        async move {
            let _permit = reading.acquire().await.expect("it is never closed");
            let mut election = Candidacy::new(&session, shard_claim(shard), Mode::Automatic);
            let holding = match election.try_take().await {
                Ok(Some(holding)) => holding,
                Ok(None) => return (shard, Ok(None)),
                Err(why) => return (shard, Err(ShardTakeError::Claim(why))),
            };
            if is_unable {
                return (shard, Err(ShardTakeError::Unable(Box::new(holding))));
            }
            let body = holding.head().body.as_deref();
            let reading = async {
                // A sender that is gone by now has written all its reports.
                let senders = Roster::read(session.store()).await?;
                let senders = senders.keys().map(|key| key.key().as_str().into()).collect();
                let loading =
                    shard_reader::read(session.store(), shard, cluster.id, &kinds, body).await?;
                Ok((loading, senders))
            };
            let (mut loading, senders) = match reading.await {
                Ok(read) => read,
                Err(why) => return (shard, Err(ShardTakeError::Read(why, Box::new(holding)))),
            };
            loading.set_audience(audience);
            loading.set_senders(senders);
            let shard_read = loading.finish(now(&**session.machine()));
            tracing::debug!(
                %shard, triggers = shard_read.len(), unfinished = shard_read.unfinished(), "took a shard"
            );
            let (right, number) = (holding.right.clone(), holding.head().number);
            let owned = Owned { shard: shard_read, right, number, wake: None, is_lapsed: false };
            (shard, Ok(Some((owned, holding))))
        }
    }

    /// A shard was taken, or was not. True, if trying again at once is of no use.
    async fn taken(
        &mut self,
        shard: ShardId,
        taken: Result<Option<(Owned, Holding)>, ShardTakeError>,
    ) -> bool {
        self.memory.taking.remove(&shard);
        match taken {
            Ok(Some((owned, holding))) => {
                self.memory.adopted.insert(shard);
                self.memory.orphans.remove(&shard);
                let adopt =
                    ShardEvent::Adopt { owned: Box::new(owned), holding: Box::new(holding) };
                let mut served = self.peers.served();
                let _ = self.shard_events.send(adopt);
                // The next look must find the shard among those that are served.
                let _ = served.wait_for(|served| served.contains(&shard)).await;
            }
            Ok(None) => {
                if !self.session.quarantine_left().is_zero() {
                    return true;
                }
                self.refuse(shard);
                // The record that shows who has it is wrong.
                self.mend_mirror(shard).await;
            }
            Err(ShardTakeError::Claim(why @ Defeat::Ended(_))) => {
                tracing::error!(%shard, %why, "the shard was not to be had");
                self.fail(NodeStartError::Claim { shard, why });
            }
            Err(ShardTakeError::Claim(why @ Defeat::Corrupt(_))) => {
                self.leave_to_others(shard, &why);
                // A claim that cannot be read cannot be given up either.
                self.memory.refused.insert(shard, self.steady() + millis(UNABLE_FOR));
                if self.memory.takers.len() < 2 {
                    self.fail(NodeStartError::Claim { shard, why });
                }
            }
            Err(ShardTakeError::Read(ShardReadError::Scan(why @ ScanError::Unavailable(_)), _)) => {
                // The claim names this node, so the shard is read again at the next look.
                tracing::warn!(%shard, %why, "the shard could not be read: trying again");
                return true;
            }
            Err(ShardTakeError::Read(why, holding)) => {
                self.leave_to_others(shard, &why);
                give_up(shard, *holding).await;
                if self.memory.takers.len() < 2 {
                    self.fail(NodeStartError::Read { shard, why });
                }
            }
            Err(ShardTakeError::Unable(holding)) => {
                give_up(shard, *holding).await;
                self.refuse(shard);
            }
        }
        false
    }

    /// Leaves a shard alone for a moment.
    fn refuse(&mut self, shard: ShardId) {
        self.memory.refused.insert(shard, self.steady() + millis(TAKEN_FOR));
    }

    /// Says that this server cannot run a shard.
    fn leave_to_others(&mut self, shard: ShardId, why: &dyn std::error::Error) {
        tracing::error!(%shard, %why, "the shard cannot be run by this server: it is left to others");
        self.memory.unable.insert(shard, self.steady() + millis(UNABLE_FOR));
        self.say_unable();
    }

    /// Has a node that is about to start not start: it is alone, and cannot have a shard.
    fn fail(&mut self, why: NodeStartError) {
        if let Some(start) = self.start.take() {
            let _ = start.started.send(Err(why));
        }
    }

    fn say_unable(&self) {
        let unable: Vec<u16> = self.memory.unable.keys().map(|shard| shard.0).collect();
        self.session.say(|about| about.unable = unable);
    }

    fn say_draining(&mut self, is_draining: bool) {
        if self.memory.is_draining != is_draining {
            self.memory.is_draining = is_draining;
            self.session.say(|about| about.draining = is_draining);
        }
    }

    fn hand_over(&mut self, shard: ShardId, to: SessionKey) -> oneshot::Receiver<Handed> {
        let (reply, answer) = oneshot::channel();
        tracing::info!(%shard, %to, "handing a shard over");
        self.memory.leaving = Some(LeavingShard { shard, to: to.clone(), handed: None });
        let _ = self.shard_events.send(ShardEvent::HandOver { shard, to, reply });
        answer
    }

    /// The core has handed a shard over, or could not.
    fn handing_over(&mut self, how: Handed) {
        let steady = self.steady();
        let Some(leaving) = &mut self.memory.leaving else { return };
        self.memory.adopted.remove(&leaving.shard);
        match how {
            Handed::Over(token) => leaving.handed = Some((token, steady)),
            Handed::CalledOff | Handed::Lost => self.memory.leaving = None,
        }
    }

    /// Says it once when this clock is apart from those of others, and when it is not any more.
    fn tell_clock(&mut self, view: &View) {
        let Some(me) = view.server(self.session.key()) else { return };
        if me.is_apart == self.memory.is_apart {
            return;
        }
        self.memory.is_apart = me.is_apart;
        if me.is_apart {
            let ahead_ms = me.ahead_ms;
            tracing::error!(
                ahead_ms,
                "this server's clock is too far from those of the others: it takes no shard, and hands over those that it has; set the clock"
            );
        } else {
            tracing::warn!("this server's clock agrees with those of the others again");
        }
    }

    /// Says once why a start takes its time.
    fn tell_wait(&mut self) {
        let passed = Duration::from_millis(self.steady().saturating_sub(self.begun));
        let Some(start) = self.start.as_mut().filter(|start| !start.is_told) else { return };
        if passed < QUIET_START {
            return;
        }
        start.is_told = true;
        let wait = self.session.quarantine_left();
        if wait.is_zero() {
            let (taken, shards) = (self.memory.adopted.len(), self.cluster.shards);
            tracing::warn!(taken, shards, "starting takes a while: shards are claimed and read");
        } else {
            tracing::warn!(
                seconds = wait.as_secs_f64().ceil(),
                "starting takes a while: this store may have forgotten what it acknowledged, so nothing is claimed until nobody can act on that any more"
            );
        }
    }
}

async fn give_up(shard: ShardId, mut holding: Holding) {
    if let Err(why) = holding.release().await {
        tracing::warn!(%shard, %why, "the shard could not be given up");
    }
}

/// Waits for the outcome of the hand-over that is under way; for ever, if none is.
async fn answer(handing_over: &mut Option<oneshot::Receiver<Handed>>) -> Handed {
    match handing_over {
        Some(handing_over) => handing_over.await.unwrap_or(Handed::Lost),
        None => std::future::pending().await,
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).expect("short")
}
