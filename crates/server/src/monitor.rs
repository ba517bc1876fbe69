//! The monitor: tells what changes among the servers of a cluster.
//!
//! Every server keeps one, and compares each view of the cluster with the one before. All of them write what they see into
//! their logs; one of them, the first of those who were there before and after, tells it as an event, so that whoever
//! watches the events of all servers hears of it once. Views may differ for a moment, so twice or never is possible when
//! several servers change at once: the metrics tell how it is, not how it came about.
//!
//! The same one has somebody outside notified, by the `notifier`, of what a person should see to: a server that is lost, a clock
//! that is apart, shards that nobody has for too long (`OrphanWatch`); and when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::limits::{EVENT_SHARDS_NAMED_MAX, ORPHANED_TIME_MAX};
use store::session::NodeId;
use tokio::sync::watch;

use crate::event::{EventDetail, ServerEvent};
use crate::handle::NodeHandle;
use crate::node::Component;
use crate::peers::{Server, View};

/// A server that has just started takes whom it finds in this time to have been there before.
pub(crate) const LOOK_AROUND: Duration = Duration::from_secs(1);

/// How often shards without an owner are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Something that changed among the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChange {
    /// A server has come.
    Joined(NodeId),
    /// A server has left, having handed over what it had.
    Left(NodeId),
    /// A server is gone without a word.
    Lost(NodeId),
    /// So many shards have no owner any more: these, or the first of them.
    Orphaned(usize, Vec<ShardId>),
    /// Every shard has an owner again.
    Owned,
    /// The clock of a server is too far from that of others.
    ClockApart {
        /// The server's id.
        node: NodeId,
        /// How far it is ahead of the median, in milliseconds.
        ahead_ms: i64,
    },
    /// The clock of a server is as those of others are again.
    ClockRight(NodeId),
}

impl ClusterChange {
    fn orphaned(shards: impl ExactSizeIterator<Item = ShardId>) -> Self {
        Self::Orphaned(shards.len(), shards.take(EVENT_SHARDS_NAMED_MAX).collect())
    }

    /// Whether somebody is notified of this change at once.
    fn is_notified(&self) -> bool {
        match self {
            Self::Lost(_) | Self::ClockApart { .. } | Self::ClockRight(_) => true,
            // A server that stops is meant to. Of shards the orphan watch tells.
            Self::Joined(_) | Self::Left(_) | Self::Orphaned(..) | Self::Owned => false,
        }
    }
}

/// Compares views until it is dropped, or nobody shows any.
pub struct Monitor(pub NodeHandle);

impl Component for Monitor {
    const NAME: &'static str = "the monitor";

    async fn run(self) {
        let Self(handle) = &self;
        let mut views = handle.peers().follow();
        handle.machine().sleep(LOOK_AROUND).await;
        let mut last = views.borrow_and_update().clone();
        let mut orphan_watch = OrphanWatch::default();
        handle.peers().note_orphans(handle.now());
        namesakes(&last).for_each(warn_of_namesake);
        while is_time(handle, &mut views).await {
            let view = views.borrow_and_update().clone();
            let now = handle.now();
            handle.peers().note_orphans(now);
            let orphaned = handle.peers().orphaned();
            let changes = changes(&last, &view);
            changes.iter().for_each(log);
            namesakes(&view)
                .filter(|server| last.server(&server.session).is_none())
                .for_each(warn_of_namesake);
            // The server that told of orphaned shards tells that they have owners again.
            let mut news: Vec<ClusterChange> = orphan_watch.ended(&orphaned).into_iter().collect();
            if tells(&last, &view) {
                news.extend(changes.iter().filter(|change| change.is_notified()).cloned());
                news.extend(orphan_watch.begun(&orphaned, now));
                let event = |change| ServerEvent {
                    project: None,
                    at: now,
                    what: EventDetail::Cluster(change),
                };
                handle.events().push(changes.into_iter().map(event));
            }
            for change in news {
                handle.notifier().tell(now, &change);
            }
            last = view;
        }
    }
}

/// Waits until a view or the age of an orphaned shard changed. False, if nobody shows a view any more.
async fn is_time(handle: &NodeHandle, views: &mut watch::Receiver<Arc<View>>) -> bool {
    let tick = async {
        if handle.peers().orphaned().is_empty() {
            pending::<()>().await;
        }
        handle.machine().sleep(TICK).await;
    };
    tokio::select! {
        biased;
        changed = views.changed() => changed.is_ok(),
        () = tick => true,
    }
}

/// Notices that shards are without an owner for too long. A server that dies leaves its shards without one for some
/// seconds, which is no reason to wake anybody.
#[derive(Debug, Default)]
struct OrphanWatch {
    /// Shards of which somebody was notified, until every shard has an owner again.
    told: BTreeSet<ShardId>,
}

impl OrphanWatch {
    /// Shards that nobody has for too long, of which nobody was notified yet.
    fn begun(
        &mut self,
        orphaned: &BTreeMap<ShardId, Instant>,
        now: Instant,
    ) -> Option<ClusterChange> {
        let most = u64::try_from(ORPHANED_TIME_MAX.as_millis()).expect("it is short");
        // If the clock was set meanwhile, in whichever direction, nobody knows for how long: that is too long.
        let is_late = |since: &Instant| now.0.abs_diff(since.0) >= most;
        let late = orphaned.iter().filter(|(_, since)| is_late(since)).map(|(shard, _)| *shard);
        let late: Vec<ShardId> = late.filter(|shard| self.told.insert(*shard)).collect();
        (!late.is_empty()).then(|| ClusterChange::orphaned(late.into_iter()))
    }

    /// Whether every shard has an owner again, if somebody was notified that some had none.
    fn ended(&mut self, orphaned: &BTreeMap<ShardId, Instant>) -> Option<ClusterChange> {
        if self.told.is_empty() || !orphaned.is_empty() {
            return None;
        }
        self.told.clear();
        Some(ClusterChange::Owned)
    }
}

/// What changed from one view to the next.
fn changes(old: &View, new: &View) -> Vec<ClusterChange> {
    let mut changes = Vec::new();
    let is_other = |server: &&Server| server.session != new.me;
    for server in old.servers.iter().filter(is_other) {
        if new.server(&server.session).is_none() {
            let node = server.node().clone();
            changes.push(if server.is_draining {
                ClusterChange::Left(node)
            } else {
                ClusterChange::Lost(node)
            });
        }
    }
    for server in new.servers.iter().filter(is_other) {
        if old.server(&server.session).is_none() {
            changes.push(ClusterChange::Joined(server.node().clone()));
        }
    }
    for server in new.servers.iter().filter(|server| server.is_apart) {
        if old.server(&server.session).is_none_or(|before| !before.is_apart) {
            let (node, ahead_ms) = (server.node().clone(), server.ahead_ms);
            changes.push(ClusterChange::ClockApart { node, ahead_ms });
        }
    }
    for server in new.servers.iter().filter(|server| !server.is_apart) {
        if old.server(&server.session).is_some_and(|before| before.is_apart) {
            changes.push(ClusterChange::ClockRight(server.node().clone()));
        }
    }
    let before: BTreeSet<ShardId> = old.orphans().collect();
    let orphans: Vec<ShardId> = new.orphans().filter(|shard| !before.contains(shard)).collect();
    if !orphans.is_empty() {
        changes.push(ClusterChange::orphaned(orphans.into_iter()));
    } else if !before.is_empty() && new.orphans().next().is_none() {
        changes.push(ClusterChange::Owned);
    }
    changes
}

fn warn_of_namesake(server: &Server) {
    tracing::warn!(
        node = %server.node(), url = server.url,
        "another server says that it is reached where this one is, so requests cannot be passed on: give each a --url of its own"
    );
}

/// Other servers that say they are reached where the one is that looks.
fn namesakes(view: &View) -> impl Iterator<Item = &Server> {
    let url = view.mine().and_then(|mine| mine.url.as_deref());
    let others = view.servers.iter().filter(|server| server.session != view.me);
    others.filter(move |server| url.is_some() && server.url.as_deref() == url)
}

/// Whether this server is the one that tells of changes between two views.
pub(crate) fn tells(old: &View, new: &View) -> bool {
    let mut both = new.servers.iter().filter(|server| old.server(&server.session).is_some());
    both.next().is_some_and(|first| first.session == new.me)
}

fn log(change: &ClusterChange) {
    match change {
        ClusterChange::Joined(node) => tracing::info!(%node, "a server has joined the cluster"),
        ClusterChange::Left(node) => tracing::info!(%node, "a server has left the cluster"),
        ClusterChange::Lost(node) => tracing::warn!(%node, "a server of the cluster is gone"),
        ClusterChange::Orphaned(count, shards) => {
            let first = shards.first().map(ToString::to_string);
            tracing::warn!(count, first, "shards have no owner at the moment");
        }
        ClusterChange::Owned => tracing::info!("every shard has an owner again"),
        ClusterChange::ClockRight(node) => {
            tracing::info!(%node, "the clock of a server is right again");
        }
        ClusterChange::ClockApart { node, ahead_ms } => {
            tracing::warn!(%node, ahead_ms, "the clock of a server is too far from the others': set it");
        }
    }
}

#[cfg(test)]
mod tests {
    use store::session::SessionKey;

    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn session(name: &str) -> SessionKey {
        SessionKey::new(&node(name), 1)
    }

    /// As `me` sees it: these servers, and one shard for each of these names.
    fn view(me: &str, servers: &[&str], owners: &[&str]) -> View {
        let server = |name: &&str| View::alone(session(name), 0).servers.remove(0);
        let mut servers: Vec<_> = servers.iter().map(server).collect();
        servers.sort_by(|one, other| one.session.cmp(&other.session));
        let owners = owners.iter().map(|name| Some(session(name))).collect();
        View { me: session(me), servers, owners }
    }

    #[test]
    fn who_comes_and_goes_is_told_and_nobody_tells_of_itself() {
        let alone = view("a", &["a"], &["a"]);
        let two = view("a", &["a", "b"], &["a"]);
        assert_eq!(changes(&alone, &two), [ClusterChange::Joined(node("b"))]);
        assert_eq!(changes(&two, &two), []);
        assert_eq!(changes(&two, &alone), [ClusterChange::Lost(node("b"))]);
        let mut draining = two.clone();
        draining.servers[1].is_draining = true;
        assert_eq!(changes(&draining, &alone), [ClusterChange::Left(node("b"))]);
        let gone = View { me: session("b"), ..alone };
        assert_eq!(changes(&View { me: session("b"), ..two }, &gone), []);
    }

    #[test]
    fn a_server_that_was_started_anew_is_another() {
        let before = view("a", &["a", "b"], &[]);
        let mut after = before.clone();
        after.servers[1].session = SessionKey::new(&node("b"), 2);
        let expected = [ClusterChange::Lost(node("b")), ClusterChange::Joined(node("b"))];
        assert_eq!(changes(&before, &after), expected);
    }

    #[test]
    fn shards_without_an_owner_are_told_once_and_as_many_as_there_are() {
        let owners = vec!["b"; 100];
        let before = view("a", &["a", "b"], &owners);
        let after = view("a", &["a"], &owners);
        let told = changes(&before, &after);
        let [ClusterChange::Lost(_), ClusterChange::Orphaned(100, shards)] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(shards.len(), EVENT_SHARDS_NAMED_MAX);
        assert_eq!(changes(&after, &after), []);
        let half = view("a", &["a"], &[vec!["a"; 50], vec!["b"; 50]].concat());
        assert_eq!(changes(&after, &half), []);
        let whole = view("a", &["a"], &["a"; 100]);
        assert_eq!(changes(&half, &whole), [ClusterChange::Owned]);
    }

    /// Nobody has these shards since then, in seconds.
    fn orphaned(shards: &[(u16, i64)]) -> BTreeMap<ShardId, Instant> {
        shards.iter().map(|(shard, since)| (ShardId(*shard), Instant(since * 1_000))).collect()
    }

    #[test]
    fn shards_without_an_owner_are_notified_after_ten_seconds_and_once() {
        let mut orphan_watch = OrphanWatch::default();
        let both = orphaned(&[(3, 0), (5, 4)]);
        let told = |shards: &[u16]| {
            Some(ClusterChange::orphaned(
                shards.iter().copied().map(ShardId).collect::<Vec<_>>().into_iter(),
            ))
        };
        assert_eq!(orphan_watch.begun(&both, Instant(9_999)), None);
        assert_eq!(orphan_watch.begun(&both, Instant(10_000)), told(&[3]));
        assert_eq!(orphan_watch.begun(&both, Instant(13_999)), None);
        assert_eq!(orphan_watch.begun(&both, Instant(14_000)), told(&[5]));
        assert_eq!(orphan_watch.begun(&both, Instant(99_000)), None);
        // It is over when all of them have owners, and that is told once.
        assert_eq!(orphan_watch.ended(&orphaned(&[(5, 4)])), None);
        assert_eq!(orphan_watch.ended(&orphaned(&[])), Some(ClusterChange::Owned));
        assert_eq!(orphan_watch.ended(&orphaned(&[])), None);
        // The next time is another time.
        assert_eq!(orphan_watch.begun(&orphaned(&[(3, 100)]), Instant(110_000)), told(&[3]));
    }

    #[test]
    fn a_take_over_of_some_seconds_is_notified_to_nobody() {
        let mut orphan_watch = OrphanWatch::default();
        assert_eq!(orphan_watch.begun(&orphaned(&[(3, 0)]), Instant(5_000)), None);
        assert_eq!(orphan_watch.ended(&orphaned(&[])), None);
        let node = node("b");
        let at_once = [
            ClusterChange::Lost(node.clone()),
            ClusterChange::ClockApart { node: node.clone(), ahead_ms: 3_000 },
            ClusterChange::ClockRight(node.clone()),
        ];
        assert!(at_once.iter().all(ClusterChange::is_notified));
        let never = [
            ClusterChange::Joined(node.clone()),
            ClusterChange::Left(node),
            ClusterChange::Orphaned(1, vec![ShardId(3)]),
            ClusterChange::Owned,
        ];
        assert!(!never.iter().any(ClusterChange::is_notified));
    }

    #[test]
    fn a_clock_that_was_set_back_puts_nothing_off() {
        let mut orphan_watch = OrphanWatch::default();
        assert_eq!(orphan_watch.begun(&orphaned(&[(3, 3_600)]), Instant(3_595_000)), None);
        assert!(orphan_watch.begun(&orphaned(&[(3, 3_600)]), Instant(0)).is_some());
    }

    #[test]
    fn a_clock_that_is_apart_is_told_when_it_begins_to_be() {
        let before = view("a", &["a", "b"], &[]);
        let mut after = before.clone();
        (after.servers[1].is_apart, after.servers[1].ahead_ms) = (true, -4_000);
        let apart = [ClusterChange::ClockApart { node: node("b"), ahead_ms: -4_000 }];
        assert_eq!(changes(&before, &after), apart);
        let mut later = after.clone();
        later.servers[1].ahead_ms = -5_000;
        assert_eq!(changes(&after, &later), []);
        assert_eq!(changes(&after, &before), [ClusterChange::ClockRight(node("b"))]);
        // The clock of a server that is gone is not right again.
        assert_eq!(changes(&after, &view("a", &["a"], &[])), [ClusterChange::Lost(node("b"))]);
    }

    #[test]
    fn who_is_said_to_be_reached_where_this_server_is_is_noticed() {
        let mut view = view("a", &["a", "b", "c"], &[]);
        assert_eq!(namesakes(&view).count(), 0);
        for (server, url) in view.servers.iter_mut().zip(["http://x", "http://y", "http://x"]) {
            server.url = Some(url.to_owned());
        }
        let names: Vec<&str> = namesakes(&view).map(|server| server.node().as_str()).collect();
        assert_eq!(names, ["c"]);
    }

    #[test]
    fn one_of_those_who_were_there_tells_of_it() {
        let (before, after) = (["a", "b", "c"], ["b", "c", "d"]);
        let teller = |me| tells(&view(me, &before, &[]), &view(me, &after, &[]));
        assert_eq!(["b", "c"].map(teller), [true, false]);
        // A newcomer has not seen what was before.
        assert!(!tells(&view("d", &["d"], &[]), &view("d", &["b", "c"], &[])));
    }
}
