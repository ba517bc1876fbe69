//! The network between processes and the store: delays, losses and cuts, in each direction.
//!
//! A request is an event, its landing another, its answer a third; a process that is killed or that gives
//! up waiting changes nothing about what is on its way. There are no errors on a link unless the store
//! cannot be dialled: what is lost is silence, and whoever waits must know when to stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::lease::Reading;
use store::machine::Machine;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Version, Watchers, Write,
};
use tokio::sync::oneshot;

use crate::checker::{Landing, LeaseChecker};
use crate::clock::{Clocks, MS, TrueTime};
use crate::dice::{Dice, Luck};
use crate::sim_store::{NodeIndex, SimStore, StoreAnswer};
use crate::world::{ProcessId, World};

/// How well messages travel in one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkQuality {
    /// The usual delay is up to this.
    pub delay: TrueTime,
    /// Percent of messages that are late.
    pub late_percent: u64,
    /// How long late messages take, at least and at most.
    pub late: (TrueTime, TrueTime),
    /// Percent of messages that are lost.
    pub lost_percent: u64,
    /// How often it was cut and not yet mended: nothing gets through.
    pub cuts: u32,
}

impl LinkQuality {
    /// A good one.
    pub const GOOD: Self =
        Self { delay: 20 * MS, late_percent: 0, late: (0, 0), lost_percent: 0, cuts: 0 };

    /// How long the next message takes, if it arrives.
    pub(crate) fn travel(self, dice: &mut Dice) -> Option<TrueTime> {
        let lost = dice.chance(self.lost_percent);
        let usual = (MS / 10, self.delay.max(MS));
        let (least, most) = if dice.chance(self.late_percent) { self.late } else { usual };
        let travel = dice.between(least, most);
        (!lost && self.cuts == 0).then_some(travel)
    }
}

/// What happens when the next renewal has been acknowledged.
pub type Ambush = Box<dyn FnOnce(&World) + Send>;

/// What a node stands on: its link to the store, both ways, and its machine's clocks.
pub struct Site {
    /// To the store, for commits.
    pub there: LinkQuality,
    /// To the store, for reads.
    pub read: LinkQuality,
    /// From the store.
    pub back: LinkQuality,
    /// Its machine's clocks.
    pub clocks: Clocks,
    /// Percent of scans that are answered from an old copy.
    pub stale_percent: u64,
    /// Percent of requests that cannot be sent at all.
    pub refused_percent: u64,
    /// Waits for the next renewal.
    pub ambush: Option<Ambush>,
}

/// A node's site, shared by its processes and by the faults.
pub type SharedSite = Arc<Mutex<Site>>;

/// The link from one process to the store.
pub struct StoreLink {
    world: World,
    sim_store: Arc<SimStore>,
    checker: Arc<LeaseChecker>,
    site: SharedSite,
    node: NodeIndex,
    process: ProcessId,
    exclusive: bool,
    luck: Luck,
    epoch: AtomicU64,
    watchers: Watchers,
}

/// The process at the near end of a link.
pub struct Endpoint {
    /// The node that it runs on.
    pub node: NodeIndex,
    /// Which process it is.
    pub process: ProcessId,
    /// Whether it alone has the store open.
    pub exclusive: bool,
}

impl StoreLink {
    /// The link of this process to the store.
    pub fn new(
        world: &World,
        sim_store: &Arc<SimStore>,
        checker: &Arc<LeaseChecker>,
        site: &SharedSite,
        sender: &Endpoint,
        luck: Luck,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            sim_store: Arc::clone(sim_store),
            checker: Arc::clone(checker),
            site: Arc::clone(site),
            node: sender.node,
            process: sender.process,
            exclusive: sender.exclusive,
            luck,
            epoch: AtomicU64::new(0),
            watchers: Watchers::default(),
        })
    }

    /// Something has changed in the store: sooner or later, or never, this process hears of it.
    pub fn hint(self: &Arc<Self>, commit: &Commit) {
        let Some(travel) = self.travel("hint", |site| site.back) else { return };
        let keys: Vec<_> = commit.then.iter().map(|write| Write::key(write).clone()).collect();
        let link = Arc::downgrade(self);
        self.world.after(travel, move |_| {
            if let Some(link) = link.upgrade() {
                link.watchers.notify(&keys.iter());
            }
        });
    }

    fn travel(&self, about: &str, lane: impl Fn(&Site) -> LinkQuality) -> Option<TrueTime> {
        let lane = lane(&self.site.lock().unwrap_or_else(PoisonError::into_inner));
        self.luck.roll(self.world.now(), about, |dice| lane.travel(dice))
    }

    fn rolls(&self, about: &str, percent: impl Fn(&Site) -> u64) -> bool {
        let percent = percent(&self.site.lock().unwrap_or_else(PoisonError::into_inner));
        self.luck.roll(self.world.now(), about, |dice| dice.chance(percent))
    }

    fn reading(&self) -> Reading {
        let site = self.site.lock().unwrap_or_else(PoisonError::into_inner);
        site.clocks.reading(self.world.now())
    }

    /// Sends a request, and waits for its answer, for ever if need be.
    async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        about: String,
        lane: fn(&Site) -> LinkQuality,
        arrival: impl FnOnce(&Arc<Self>) -> Option<StoreAnswer<T>> + Send + 'static,
    ) -> T {
        let (slot, answer) = oneshot::channel();
        let travel = self.travel(&about, lane);
        if travel.is_none() {
            self.world.trace(self.process, || "lost    a request".into());
        }
        if let Some(travel) = travel {
            let link = Arc::clone(&self);
            self.world.after(travel, move |world| {
                if link.is_cut(lane) {
                    return;
                }
                let Some(answer) = arrival(&link) else { return };
                let Some(travel) = link.travel(&about, |site| site.back) else {
                    world.trace(link.process, || "lost    an answer".into());
                    return;
                };
                world.after(travel, move |_| link.arrive(answer, slot));
            });
        }
        match answer.await {
            Ok(said) => said,
            Err(_) => std::future::pending().await,
        }
    }

    /// Whoever waited for a renewal strikes.
    fn spring(&self) {
        let ambush = self.site.lock().unwrap_or_else(PoisonError::into_inner).ambush.take();
        if let Some(strike) = ambush {
            self.world.after(0, strike);
        }
    }

    fn is_cut(&self, lane: fn(&Site) -> LinkQuality) -> bool {
        lane(&self.site.lock().unwrap_or_else(PoisonError::into_inner)).cuts > 0
    }

    /// An answer comes in. One of an epoch that was left before is none.
    fn arrive<T>(&self, answer: StoreAnswer<T>, slot: oneshot::Sender<T>) {
        if answer.epoch >= self.epoch.load(Ordering::SeqCst) {
            self.epoch.store(answer.epoch, Ordering::SeqCst);
            // Whoever asked may have stopped waiting.
            let _unheard = slot.send(answer.said);
        }
    }
}

/// The store adapter that a process is given: it sends everything over its link.
pub struct SimAdapter(pub Arc<StoreLink>);

impl Adapter for SimAdapter {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        let link = Arc::clone(&self.0);
        Box::pin(async move {
            let about = format!("{range:?}");
            if link.rolls("refused", |site| site.refused_percent) {
                return Err(ScanError::Unavailable("nobody answers the call".into()));
            }
            let stale = link.rolls("stale", |site| site.stale_percent);
            link.world.trace(link.process, || format!("reads   {about}"));
            link.ask(
                about,
                |site| site.read,
                move |link| {
                    if stale {
                        link.sim_store.stale_scan(range, limit)
                    } else {
                        link.sim_store.scan(link.node, range, limit, link.world.now())
                    }
                },
            )
            .await
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        let link = Arc::clone(&self.0);
        Box::pin(async move {
            let about =
                commit.then.first().map_or_else(String::new, |write| write.key().to_string());
            if link.rolls("refused", |site| site.refused_percent) {
                return Err(CommitError::Unavailable("nobody answers the call".into()));
            }
            let sent = link.reading();
            link.world.trace(link.process, || format!("sends   {}", describe(&commit)));
            let renews = commit.then.iter().any(|write| write.key().as_str().starts_with("node/"));
            let here = Arc::clone(&link);
            let said = link
                .ask(
                    about,
                    |site| site.there,
                    move |link| {
                        let (process, node) = (link.process, link.node);
                        let landing = Landing { process, node, sent, commit: &commit };
                        let answer = link.checker.land(&link.world, &link.sim_store, &landing)?;
                        if answer.said.is_ok() {
                            link.sim_store.hint(&commit);
                        }
                        link.world.trace(process, || match &answer.said {
                            Ok(version) => {
                                format!("lands   {} at {}", describe(&commit), version.0)
                            }
                            Err(why) => format!("misses  {}: {why}", describe(&commit)),
                        });
                        Some(answer)
                    },
                )
                .await;
            if renews && said.is_ok() {
                here.spring();
            }
            said
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.0.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        Limits { writes: 8, commit_bytes: 1 << 20, value_bytes: 1 << 16 }
    }

    fn class(&self) -> Class {
        self.0.sim_store.class()
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.0.epoch.load(Ordering::SeqCst).to_string())
    }

    fn is_exclusive(&self) -> bool {
        self.0.exclusive
    }
}

/// The machine that a process is given.
pub struct SimMachine {
    world: World,
    site: SharedSite,
    luck: Luck,
}

impl SimMachine {
    /// The machine at this site.
    pub fn new(world: &World, site: &SharedSite, luck: Luck) -> Self {
        Self { world: world.clone(), site: Arc::clone(site), luck }
    }

    fn site(&self) -> std::sync::MutexGuard<'_, Site> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine for SimMachine {
    fn reading(&self) -> Reading {
        self.site().clocks.reading(self.world.now())
    }

    fn wall_us(&self) -> u64 {
        self.site().clocks.wall_us(self.world.now())
    }

    fn random(&self) -> u64 {
        self.luck.roll(self.world.now(), "", Dice::roll)
    }

    /// What waits here is counted by a clock that stands still while the machine sleeps, as timers are.
    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        let (world, site, begun) = (self.world.clone(), Arc::clone(&self.site), self.reading());
        Box::pin(async move {
            loop {
                let left = {
                    let site = site.lock().unwrap_or_else(PoisonError::into_inner);
                    let passed = site.clocks.reading(world.now()).raw.saturating_sub(begun.raw);
                    site.clocks.until(length.saturating_sub(passed))
                };
                let Some(left) = left else { return };
                world.sleep(left).await;
            }
        })
    }
}

/// A commit in one line.
fn describe(commit: &Commit) -> String {
    let writes = commit.then.iter().map(|write| match write {
        Write::Put(key, value) => {
            format!("{key}={}", String::from_utf8_lossy(value.as_bytes()))
        }
        Write::Delete(key) => format!("-{key}"),
    });
    let when = commit.when.iter().map(|condition| match condition {
        store::Condition::Absent(key) => format!("no {key}"),
        store::Condition::Present(key) => format!("any {key}"),
        store::Condition::At(key, version) => format!("{key}@{}", version.0),
    });
    let (when, writes): (Vec<_>, Vec<_>) = (when.collect(), writes.collect());
    format!("[{}] {}", when.join(", "), writes.join(" "))
}
