//! The election monitor: tells when an election has another holder, a hold another state, and when one is at risk.
//!
//! Every server looks at the elections of all projects, so that each of them knows what was before; one of them tells, as the
//! monitor of servers has it. It reads them when a hint comes, and some time after the last look without one; whether
//! holders are there it knows from the session's own look at all sessions. It looks at most twice a second, so what lasts
//! shorter than that may go untold.
//!
//! Somebody outside is notified of what a person should see to: a holder that waits for approval, a hold at risk, an election
//! that nobody has though candidates are there; and when that is over. What was so before this server started is no event; of
//! a holder that waits and of a risk somebody is notified nevertheless, if nobody was: see `notified`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::{ELECTIONS_MONITORED_MAX, PAGE_ENTRIES_MAX};
use store::claim::Head;
use store::machine::within;
use store::session::Session;
use store::{Commit, Range, ScanError, Store};

use super::notified::Notified;
use super::watch::{
    ElectionChange, ElectionNews, ElectionWatch, Elections, LookNews, Notifying, SeenElection,
    Standing,
};
use crate::event::{EventDetail, ServerEvent};
use crate::handle::NodeHandle;
use crate::metric::NodeMetrics;
use crate::monitor::{LOOK_AROUND, tells};
use crate::node::Component;
use crate::peers::View;

/// Below this lie the heads of all elections.
const ELECTIONS: &str = "election/";

/// How often elections are read without a hint.
const POLL: Duration = Duration::from_secs(10);

/// How often those that are known are compared with the sessions that there are.
const TICK: Duration = Duration::from_secs(1);

/// The pause after a hint: others often follow.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks at elections until it is dropped.
pub(crate) struct ElectionMonitor {
    handle: NodeHandle,
    session: Session,
    metrics: Arc<NodeMetrics>,
    elections: Elections,
    watch: ElectionWatch,
}

impl ElectionMonitor {
    /// Looks at what there is; what changes from here on will be told.
    pub(crate) async fn begin(
        handle: NodeHandle,
        session: Session,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        let elections = read(&handle, &session).await.unwrap_or_default();
        let (mut watch, sessions) = (ElectionWatch::default(), session.roster().borrow().clone());
        watch.begin(&elections, &sessions, session.machine().reading());
        Self { handle, session, metrics, elections, watch }
    }
}

impl Component for ElectionMonitor {
    const NAME: &'static str = "the election monitor";

    async fn run(self) {
        let Self { handle, session, metrics, mut elections, mut watch } = self;
        let machine = session.machine();
        let mut hints = handle.store().watch(ELECTIONS);
        let (views, roster) = (handle.peers().follow(), session.roster());
        machine.sleep(LOOK_AROUND).await;
        let mut last: Arc<View> = views.borrow().clone();
        let (mut is_due, mut read_at) = (true, machine.reading());
        loop {
            if (is_due || machine.reading().most_since(read_at) >= POLL)
                && let Some(found) = read(&handle, &session).await
            {
                (elections, is_due, read_at) = (found, false, machine.reading());
            }
            let (view, sessions) = (views.borrow().clone(), roster.borrow().clone());
            let is_teller = tells(&last, &view);
            let notifying = if is_teller && handle.notifier().is_listening() {
                Notifying::Here
            } else {
                Notifying::Elsewhere
            };
            let news = watch.see(&elections, &sessions, machine.reading(), notifying);
            if is_teller {
                let to_keep = watch.to_keep(&news.notices);
                tell(&handle, &metrics, news);
                keep(&handle, &session, to_keep).await;
            }
            last = view;
            let states = elections.values().map(|seen| {
                let Standing { state, hold, .. } = Standing::of(seen, &sessions);
                (state, hold)
            });
            metrics.elections(&states.collect::<Vec<_>>());
            let wait = if watch.is_idle() && !is_due { POLL } else { TICK };
            if within(machine, wait, hints.changed()).await.is_some() {
                is_due = true;
                machine.sleep(PAUSE).await;
            }
        }
    }
}

/// The heads of elections: all, or the first of them; `None` if the store does not answer.
async fn read(handle: &NodeHandle, session: &Session) -> Option<Elections> {
    match within(session.machine(), session.ttl().length(), heads(handle.store())).await {
        Some(Ok(elections)) => return Some(elections),
        Some(Err(why)) => tracing::debug!(%why, "elections could not be read"),
        None => tracing::debug!("elections could not be read in time"),
    }
    None
}

async fn heads(store: &Store) -> Result<Elections, ScanError> {
    let mut elections = Elections::new();
    let mut pages = store.pages(Range::prefix(ELECTIONS), PAGE_ENTRIES_MAX);
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let Some(key) = entry.key.as_str().strip_prefix(ELECTIONS) else { continue };
            if let Some(seen) = Notified::beside(key).and_then(|key| elections.get_mut(key)) {
                seen.notified = Notified::from_value(&entry.value);
            }
            // What else lies beside a head is no election.
            if key.split('/').count() != 2 {
                continue;
            }
            let Ok(head) = Head::from_value(&entry.value) else { continue };
            if elections.len() >= ELECTIONS_MONITORED_MAX {
                tracing::debug!(
                    most = ELECTIONS_MONITORED_MAX,
                    "of further elections no events are told"
                );
                return Ok(elections);
            }
            elections.insert(key.to_owned(), SeenElection::of(head));
        }
    }
    Ok(elections)
}

/// Keeps what somebody was notified of. What could not be kept may be told again by a server that starts later.
async fn keep(handle: &NodeHandle, session: &Session, notified: BTreeMap<String, Notified>) {
    for (election, notified) in notified {
        let Some(key) = Notified::key(ELECTIONS, &election) else { continue };
        let put = Commit::new().put(key, notified.to_value());
        let writing = handle.store().commit(put);
        match within(session.machine(), session.ttl().length(), writing).await {
            Some(Ok(_)) => {}
            Some(Err(why)) => {
                return tracing::debug!(%why, election, "what was notified of was not kept");
            }
            None => return tracing::debug!(election, "what was notified of was not kept in time"),
        }
    }
}

fn tell(handle: &NodeHandle, metrics: &NodeMetrics, news: LookNews) {
    let (now, book) = (handle.now(), handle.access().book());
    for told in &news.events {
        log(told);
        if let ElectionChange::AtRisk { reason, .. } = told.change {
            metrics.hold_at_risk(reason);
        }
    }
    for told in &news.notices {
        handle.notifier().tell_election(now, told);
    }
    handle.events().push(news.events.into_iter().map(|told| ServerEvent {
        // Where nobody knows the project, its elections are those of whoever uses the store itself: for admins.
        project: book.project(&told.project).map(|project| project.id),
        at: now,
        what: EventDetail::Election(told),
    }));
}

fn log(ElectionNews { project, name, change }: &ElectionNews) {
    match change {
        ElectionChange::AtRisk { node, reason, what } => {
            let reason = reason.as_str();
            tracing::warn!(
                project,
                election = name,
                node,
                reason,
                what,
                "a hold is at risk: its program may have run twice"
            );
        }
        ElectionChange::Unheld(candidates) => {
            tracing::warn!(
                project,
                election = name,
                ?candidates,
                "nobody has an election though candidates are there"
            );
        }
        ElectionChange::Stands(_) | ElectionChange::HeldAgain(_) => {}
    }
}
