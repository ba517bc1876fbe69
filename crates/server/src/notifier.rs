//! The notifier: tells somebody outside what goes wrong among the servers, and with elections, by a webhook to where the
//! operator says.
//!
//! The monitors decide what is told, and which server tells it; the notifier only sends it. One after the other, so that
//! nobody hears that a trouble is over before hearing of it, and each up to six times under the same id, as other
//! notifications are. It has a sender of its own, so it waits for no webhook of a trigger, and by the same rules as
//! those: the same addresses, the same issuers, the same time. Nothing of it is stored: what waits here is gone with the
//! process. See docs/clusters.md.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::election::ElectionState;
use client::event::Event as WireEvent;
use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::length;
use engine::limits::{CLUSTER_NOTIFICATIONS_MAX, NOTICE_SHARDS_NAMED_MAX, ORPHANED_TIME_MAX};
use engine::notice::RETRY;
use engine::outcome::Verdict;
use engine::webhook::{Form, Webhook};
use serde::Serialize;
use store::machine::Machine;
use tokio::sync::mpsc;

use crate::api::{cluster_event, election_event};
use crate::election::watch::{ElectionChange, ElectionNews};
use crate::monitor::ClusterChange;
use crate::node::Component;
use crate::webhook::{Call, Config, Dispatcher, FinishedCall, StartError};

/// Takes notifications, and drops them if nobody is to be notified.
#[derive(Debug, Default)]
pub struct Notifier(Option<mpsc::Sender<Notification>>);

/// Something to tell.
#[derive(Debug)]
struct Notification {
    /// When it was seen.
    at: Instant,
    /// As the API tells it.
    event: WireEvent,
    /// What people read.
    text: String,
}

impl Notifier {
    /// The delivery of notifications to a listener, and how it is given some.
    pub fn new(
        listener: Webhook,
        webhooks: &Config,
        machine: &Arc<dyn Machine>,
    ) -> Result<(NotificationDelivery, Self), StartError> {
        let (results_in, results) = mpsc::unbounded_channel();
        let config = Config {
            senders: 1,
            // To say what was seen takes no right to act, and nobody's secret is for this.
            permit: Arc::new(|| true),
            signing: Arc::new(|_| None),
            ..webhooks.clone()
        };
        let dispatcher = Dispatcher::start(&config, machine, &results_in)?;
        let (news_in, news) = mpsc::channel(CLUSTER_NOTIFICATIONS_MAX);
        let Webhook { form, path, .. } = listener;
        let machine = Arc::clone(machine);
        let delivery = NotificationDelivery { news, form, path, dispatcher, results, machine };
        Ok((delivery, Self(Some(news_in))))
    }

    /// Whether somebody is to be notified at all.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.is_some()
    }

    /// Has a change told, and waits for nothing.
    pub(crate) fn tell(&self, at: Instant, change: &ClusterChange) {
        self.send(Notification { at, event: cluster_event(at, change), text: sentence(change) });
    }

    /// The same, of an election.
    pub(crate) fn tell_election(&self, at: Instant, news: &ElectionNews) {
        self.send(Notification {
            at,
            event: election_event(at, news),
            text: election_sentence(news),
        });
    }

    fn send(&self, notification: Notification) {
        let Some(news) = &self.0 else { return };
        let kind = notification.event.what.kind();
        if let Err(why) = news.try_send(notification) {
            tracing::warn!(%why, kind, "a notification is dropped");
        }
    }
}

/// Delivers one notification after the other.
pub struct NotificationDelivery {
    news: mpsc::Receiver<Notification>,
    form: Arc<Form>,
    path: Box<str>,
    dispatcher: Dispatcher,
    results: mpsc::UnboundedReceiver<FinishedCall>,
    machine: Arc<dyn Machine>,
}

impl Component for NotificationDelivery {
    const NAME: &'static str = "the notifier";

    async fn run(mut self) {
        while let Some(notification) = self.news.recv().await {
            self.deliver(notification).await;
        }
    }
}

impl NotificationDelivery {
    /// Sends a notification until it is taken, or has been sent often enough.
    async fn deliver(&mut self, Notification { at, event, text }: Notification) {
        let kind = event.what.kind();
        let id = format!("evt_{:016x}", self.machine.random());
        let body = body(text, event);
        for attempt in 1.. {
            self.dispatcher.send(Call {
                key: attempt.into(),
                project: ProjectId::DEFAULT,
                run: id.as_str().into(),
                attempt,
                scheduled: at,
                leave_by: None,
                token: 0,
                form: Arc::clone(&self.form),
                path: self.path.clone(),
                body: Some(body.clone()),
            });
            // Without a sender there is no result, and the alarm rings.
            let Some(FinishedCall { outcome, error, .. }) = self.results.recv().await else {
                return;
            };
            match next(outcome.verdict(), attempt, self.machine.random()) {
                NextAttempt::Told => return tracing::info!(kind, id, "somebody was notified"),
                NextAttempt::Pause(pause) => {
                    tracing::debug!(kind, id, attempt, ?outcome, error, "not notified yet");
                    self.machine.sleep(pause).await;
                }
                NextAttempt::GiveUp => {
                    return tracing::warn!(
                        kind,
                        id,
                        attempt,
                        ?outcome,
                        error,
                        "nobody is notified"
                    );
                }
            }
        }
    }
}

/// What follows from an attempt.
#[derive(Debug, PartialEq, Eq)]
enum NextAttempt {
    Told,
    Pause(Duration),
    GiveUp,
}

/// An attempt that never left counts as well, so that there is an end; and a receiver that asks to be left alone for
/// long holds up what is to be told next no longer than one that does not answer.
fn next(verdict: Verdict, attempt: u32, random: u64) -> NextAttempt {
    let asked = match verdict {
        Verdict::Succeeded => return NextAttempt::Told,
        Verdict::Gone | Verdict::Refused | Verdict::Late => return NextAttempt::GiveUp,
        Verdict::Again { retry_after, .. } => retry_after,
        Verdict::Untried { retry_after } => Some(retry_after),
    };
    if attempt >= RETRY.attempts.into() {
        return NextAttempt::GiveUp;
    }
    let longest = Duration::from_millis(RETRY.max_delay_ms.into());
    NextAttempt::Pause(RETRY.pause(attempt, asked.map(|asked| asked.min(longest)), random))
}

/// What is sent: the event as the API tells it, and a sentence for people.
#[derive(Serialize)]
struct NotificationBody {
    text: String,
    #[serde(flatten)]
    event: WireEvent,
}

fn body(text: String, event: WireEvent) -> Bytes {
    let message = NotificationBody { text, event };
    serde_json::to_vec(&message).expect("an event always serializes").into()
}

fn sentence(change: &ClusterChange) -> String {
    match change {
        ClusterChange::Joined(node) => format!("the server {node} has joined the cluster"),
        ClusterChange::Left(node) => format!("the server {node} has left the cluster"),
        ClusterChange::Lost(node) => format!("the server {node} is gone without a word"),
        ClusterChange::Orphaned(count, shards) => format!(
            "{count} shards have had no owner for {}, and nothing of them fires: {}",
            length::text(ORPHANED_TIME_MAX),
            names(*count, shards)
        ),
        ClusterChange::Owned => "every shard has an owner again".to_owned(),
        ClusterChange::ClockApart { node, ahead_ms } => format!(
            "the clock of the server {node} is {} ms {} the others, and it takes no shard: set it",
            ahead_ms.unsigned_abs(),
            if *ahead_ms < 0 { "behind" } else { "ahead of" }
        ),
        ClusterChange::ClockRight(node) => format!("the clock of the server {node} is right again"),
    }
}

fn election_sentence(ElectionNews { project, name, change }: &ElectionNews) -> String {
    match change {
        ElectionChange::Stands(standing) => {
            let holder = standing.holder.as_deref().unwrap_or("nobody");
            let token = standing.token;
            match standing.state {
                ElectionState::Waiting => format!(
                    "{holder} waits for approval before it begins with {name} of project {project}: watchbell election approve {name} --token {token} --yes"
                ),
                ElectionState::Held => format!("{holder} has {name} of project {project}"),
                ElectionState::Free => format!("nobody has {name} of project {project}"),
            }
        }
        ElectionChange::HeldAgain(standing) => {
            let holder = standing.holder.as_deref().unwrap_or("somebody");
            format!("{holder} has {name} of project {project} again")
        }
        ElectionChange::AtRisk { node, reason, what } => format!(
            "{name} of project {project} may have run twice, as {node} saw ({}): {what}",
            reason.as_str()
        ),
        ElectionChange::Unheld(candidates) => format!(
            "nobody has {name} of project {project}, though these campaign for it: {}",
            candidates.join(", ")
        ),
    }
}

fn names(count: usize, shards: &[ShardId]) -> String {
    let first: Vec<String> =
        shards.iter().take(NOTICE_SHARDS_NAMED_MAX).map(|shard| shard.0.to_string()).collect();
    let more = if count > NOTICE_SHARDS_NAMED_MAX { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use client::election::RiskReason;
    use engine::outcome::{Lost, NotSent, Outcome};
    use store::session::NodeId;

    use super::*;
    use crate::election::watch::Standing;

    fn answered(status: u16, retry_after: Option<Duration>) -> Verdict {
        Outcome::Answered { status, retry_after }.verdict()
    }

    fn pause(verdict: Verdict, attempt: u32) -> Duration {
        let NextAttempt::Pause(pause) = next(verdict, attempt, 7) else { panic!("it ends") };
        pause
    }

    #[test]
    fn somebody_is_told_six_times_at_most_with_growing_pauses() {
        let lost = Outcome::Lost { why: Lost::TimedOut }.verdict();
        let pauses: Vec<_> = (1..6).map(|attempt| pause(lost, attempt)).collect();
        assert!(pauses.is_sorted() && pauses[0] >= Duration::from_secs(4), "{pauses:?}");
        assert_eq!(next(lost, 6, 7), NextAttempt::GiveUp);
        // Also if it never leaves.
        let exhausted = Outcome::NotSent { why: NotSent::Exhausted }.verdict();
        assert!(pause(exhausted, 1) >= Duration::from_secs(4));
        assert_eq!(next(exhausted, 6, 7), NextAttempt::GiveUp);
    }

    #[test]
    fn what_is_taken_or_refused_for_good_is_not_sent_again() {
        assert_eq!(next(answered(204, None), 1, 7), NextAttempt::Told);
        for status in [301, 404, 410] {
            assert_eq!(next(answered(status, None), 1, 7), NextAttempt::GiveUp, "{status}");
        }
        let forbidden = Outcome::NotSent { why: NotSent::Forbidden }.verdict();
        assert_eq!(next(forbidden, 1, 7), NextAttempt::GiveUp);
    }

    #[test]
    fn a_receiver_that_asks_for_a_day_is_left_alone_for_five_minutes() {
        let asked = |secs| pause(answered(503, Some(Duration::from_secs(secs))), 1).as_secs();
        assert_eq!([60, 300, 301, 86_400].map(asked), [60, 300, 300, 300]);
    }

    #[test]
    fn what_is_sent_is_the_event_of_the_api_and_a_sentence() {
        let node = NodeId::new("b").unwrap();
        for (change, sentence, kind) in [
            (ClusterChange::Lost(node.clone()), "the server b is gone", "server_lost"),
            (
                ClusterChange::Orphaned(70, (0..64).map(ShardId).collect()),
                "70 shards have had no owner for 10s, and nothing of them fires: 0, 1, 2, 3, 4, 5, 6, 7, …",
                "shards_orphaned",
            ),
            (ClusterChange::Owned, "every shard has an owner again", "shards_owned"),
            (
                ClusterChange::ClockApart { node: node.clone(), ahead_ms: -2_500 },
                "the clock of the server b is 2500 ms behind the others",
                "clock_apart",
            ),
            (ClusterChange::ClockRight(node), "the clock of the server b is right", "clock_right"),
        ] {
            let event = cluster_event(Instant(1_800_000_000_000), &change);
            let sent = body(super::sentence(&change), event.clone());
            assert_eq!(serde_json::from_slice::<WireEvent>(&sent).unwrap(), event);
            let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(
                (&sent["type"], &sent["at"]),
                (&kind.into(), &"2027-01-15T08:00:00Z".into())
            );
            assert!(sent["text"].as_str().unwrap().starts_with(sentence), "{sent}");
        }
    }

    #[test]
    fn what_is_sent_of_an_election_says_whose_it_is_and_what_to_type() {
        let standing = |state, holder: &str| Standing {
            state,
            hold: None,
            holder: Some(holder.into()),
            token: 7,
            cause: None,
        };
        for (change, expected, kind) in [
            (
                ElectionChange::Stands(standing(ElectionState::Waiting, "web-1")),
                "web-1 waits for approval before it begins with nightly of project shop: watchbell election approve nightly --token 7 --yes",
                "election_changed",
            ),
            (
                ElectionChange::AtRisk {
                    node: "web-1".into(),
                    reason: RiskReason::SlowKill,
                    what: "40 ms late".into(),
                },
                "nightly of project shop may have run twice, as web-1 saw (slow_kill): 40 ms late",
                "hold_at_risk",
            ),
            (
                ElectionChange::Unheld(vec!["web-1".into(), "web-2".into()]),
                "nobody has nightly of project shop, though these campaign for it: web-1, web-2",
                "election_unheld",
            ),
            (
                ElectionChange::HeldAgain(standing(ElectionState::Held, "web-2")),
                "web-2 has nightly of project shop again",
                "election_changed",
            ),
        ] {
            let (project, name) = ("shop".to_owned(), "nightly".to_owned());
            let news = ElectionNews { project, name, change };
            let event = election_event(Instant(1_800_000_000_000), &news);
            let sent = body(election_sentence(&news), event.clone());
            assert_eq!(serde_json::from_slice::<WireEvent>(&sent).unwrap(), event);
            let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!((&sent["type"], &sent["text"]), (&kind.into(), &expected.into()));
        }
    }

    #[test]
    fn one_more_than_can_wait_is_dropped_and_nobody_waits() {
        let (news_in, mut news) = mpsc::channel(CLUSTER_NOTIFICATIONS_MAX);
        let notifier = Notifier(Some(news_in));
        for number in 0..=CLUSTER_NOTIFICATIONS_MAX {
            notifier.tell(Instant(i64::try_from(number).unwrap()), &ClusterChange::Owned);
        }
        drop(notifier);
        let mut kept = 0;
        while news.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, CLUSTER_NOTIFICATIONS_MAX);
    }
}
