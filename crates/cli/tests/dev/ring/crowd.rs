//! Members that attend, and watchers that write down what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::ring::{MAIN, MemberTurn, RingEvent, SubscriptionSpec};
use client::{Client, RingMember};
use parking_lot::Mutex;
use rig::{PATIENCE, until};
use store::clock::Stopwatch;
use store::machine::{Machine, System};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Members in this process, each a task that attends and accepts what it is offered.
#[derive(Default)]
pub(super) struct Crowd {
    members: BTreeMap<String, (watch::Sender<Ending>, JoinSet<()>)>,
    acts: Acts,
}

/// What members did, in the order in which they did it.
pub(super) type Acts = Arc<Mutex<Vec<(String, MemberTurn)>>>;

/// How a member ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Never,
    Leave,
    LeaveIfHeard,
}

impl Crowd {
    pub(super) fn acts(&self) -> Vec<(String, MemberTurn)> {
        self.acts.lock().clone()
    }

    /// Somebody joins by these servers, and is in the ring when this returns.
    pub(super) async fn join(&mut self, servers: &[Client], ring: &str, name: &str) {
        let mut member = RingMember::new(servers.iter().cloned(), ring, name);
        let patience = Stopwatch::start();
        member = member.wait(Duration::ZERO);
        while let Err(why) = member.attend().await {
            assert!(patience.elapsed() < PATIENCE, "{name} is not in {ring}: {why}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        member = member.wait(Duration::from_secs(2));
        let (end, mut ending) = watch::channel(Ending::Never);
        let (acts, mut task) = (Arc::clone(&self.acts), JoinSet::new());
        task.spawn(async move {
            loop {
                let attended = tokio::select! {
                    _ = ending.changed() => break,
                    attended = member.attend() => attended,
                };
                // Whoever hears nothing asks again; a pause so that a dead server is not asked all the time.
                let Ok(answer) = attended else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                for turn in answer.turns {
                    if member.accept(&turn).await.is_ok_and(|is_ours| is_ours) {
                        acts.lock().push((member.name().to_owned(), turn));
                    }
                }
            }
            let ending = *ending.borrow();
            match ending {
                Ending::Never => {}
                Ending::Leave => member.leave().await.unwrap(),
                Ending::LeaveIfHeard => drop(member.leave().await),
            }
        });
        self.members.insert(name.to_owned(), (end, task));
    }

    pub(super) async fn join_all(&mut self, servers: &[Client], ring: &str, names: &[&str]) {
        for name in names {
            self.join(servers, ring, name).await;
        }
    }

    /// Leaves, and has left when this returns.
    pub(super) async fn leave(&mut self, name: &str) {
        let (end, mut task) = self.members.remove(name).unwrap();
        end.send_replace(Ending::Leave);
        task.join_next().await.unwrap().unwrap();
    }

    /// Leaves while servers fail: by whichever answers, or it is taken out when it is silent.
    pub(super) async fn leave_by_any(&mut self, name: &str) {
        let (end, mut task) = self.members.remove(name).unwrap();
        end.send_replace(Ending::LeaveIfHeard);
        task.join_next().await.unwrap().unwrap();
    }

    /// Dies without a word.
    pub(super) fn kill(&mut self, name: &str) {
        drop(self.members.remove(name).unwrap());
    }
}

/// Somebody who follows a subscription and writes down its entries.
pub(super) struct Watcher {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

/// What a watcher was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Entries, by generation and number.
    pub(super) entries: BTreeMap<(u64, u64), RingEvent>,
    /// In which order they came.
    pub(super) order: Vec<(u64, u64)>,
    /// When each entry came first, by the wall clock in microseconds.
    pub(super) at_us: BTreeMap<(u64, u64), u64>,
    /// What else was told.
    pub(super) others: Vec<RingEvent>,
}

impl Watcher {
    /// Follows by whichever of these servers answers, from now on.
    pub(super) async fn start(servers: &[Client], ring: &str, subscription: &str) -> Self {
        Self::start_after(servers, ring, subscription, None).await
    }

    pub(super) async fn start_after(
        servers: &[Client],
        ring: &str,
        subscription: &str,
        place: Option<&str>,
    ) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let (servers, told) = (servers.to_vec(), Arc::clone(&seen));
        let (ring, subscription) = (ring.to_owned(), subscription.to_owned());
        let mut place = place.map(str::to_owned);
        let first = until("it can be followed", PATIENCE, || async {
            servers[0].follow_ring(&ring, &subscription, place.as_deref()).await.ok()
        })
        .await;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let (mut at, mut events) = (0, Some(first));
            loop {
                if events.is_none() {
                    at = (at + 1) % servers.len();
                    let begun = servers[at].follow_ring(&ring, &subscription, place.as_deref());
                    let Ok(begun) = begun.await else {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    };
                    events = Some(begun);
                }
                let Some(following) = &mut events else { continue };
                match following.next().await {
                    Ok(event) => {
                        place = event.place.clone().or(place);
                        let mut seen = told.lock();
                        match event.entry() {
                            Some(entry) => {
                                seen.order.push(entry);
                                seen.at_us.entry(entry).or_insert(System.wall_us());
                                seen.entries.insert(entry, event.what);
                            }
                            None => seen.others.push(event.what),
                        }
                    }
                    Err(_) => events = None,
                }
            }
        });
        Self { seen, _task: task }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Waits until it has seen so many turns, and gives who had each.
    pub(super) async fn turns(&self, count: usize) -> Vec<Vec<String>> {
        until(&format!("{count} turns are seen"), PATIENCE * 2, || async {
            let turns = self.seen().turns();
            (turns.len() >= count).then_some(turns)
        })
        .await
    }

    /// Waits until this was told.
    pub(super) async fn sees(&self, what: &str, is_it: impl Fn(&Seen) -> bool) -> Seen {
        until(what, PATIENCE * 2, || async { Some(self.seen()).filter(|seen| is_it(seen)) }).await
    }
}

impl Seen {
    /// Who had each turn.
    pub(super) fn turns(&self) -> Vec<Vec<String>> {
        let turn = |event: &RingEvent| match event {
            RingEvent::Turn { parts, .. } => {
                Some(parts.iter().map(|part| part.member.clone()).collect())
            }
            _ => None,
        };
        self.entries.values().filter_map(turn).collect()
    }

    /// Checks that nothing came twice, out of order, or was left out without a word.
    pub(super) fn check_order(&self) {
        for pair in self.order.windows(2) {
            let ((generation, number), (next_generation, next)) = (pair[0], pair[1]);
            let follows = next_generation > generation || next == number + 1;
            let is_told = self.others.iter().any(|other| {
                matches!(other, RingEvent::Gap { from, to } if *from == number + 1 && *to + 1 == next)
            });
            assert!(follows || is_told, "{pair:?}: {:?}", self.others);
        }
    }

    /// Checks that each slot of this interval, from the first that was seen, has one turn or is in one skip, and gives how many
    /// turns and skipped slots there were.
    pub(super) fn check_slots(&self, every: Duration) -> (usize, u64) {
        let every = i64::try_from(every.as_millis()).unwrap();
        let (mut expected, mut turns, mut skipped) = (None, 0, 0);
        for (place, event) in &self.entries {
            let millis = |at: &client::Timestamp| at.as_millisecond();
            match event {
                RingEvent::Turn { slot, .. } => {
                    let slot = millis(slot);
                    assert_eq!(slot, expected.unwrap_or(slot), "{place:?}: {event:?}");
                    expected = Some(slot + every);
                    turns += 1;
                }
                RingEvent::Skip { from, to, slots, .. } => {
                    let (from, to) = (millis(from), millis(to));
                    assert_eq!(from, expected.unwrap_or(from), "{place:?}: {event:?}");
                    assert_eq!(
                        i64::try_from(*slots).unwrap(),
                        (to - from) / every + 1,
                        "{event:?}"
                    );
                    expected = Some(to + every);
                    skipped += slots;
                }
                // Slots after it are decided once more.
                RingEvent::SetBack { .. } => expected = None,
                _ => {}
            }
        }
        (turns, skipped)
    }

    /// How late each turn came after its slot.
    pub(super) fn lateness(&self) -> Vec<Duration> {
        let late = |(place, event): (&(u64, u64), &RingEvent)| match event {
            RingEvent::Turn { slot, .. } => {
                let slot = u64::try_from(slot.as_microsecond()).unwrap();
                Some(Duration::from_micros(self.at_us[place].saturating_sub(slot)))
            }
            _ => None,
        };
        self.entries.iter().filter_map(late).collect()
    }

    /// The longest time from one turn or skip to the next, as they came.
    pub(super) fn longest_stall(&self) -> Duration {
        let mut came: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, event)| matches!(event, RingEvent::Turn { .. } | RingEvent::Skip { .. }))
            .map(|(place, _)| self.at_us[place])
            .collect();
        came.sort_unstable();
        let gaps = came.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_micros(gaps.max().unwrap_or(0))
    }

    /// Checks that what both saw is the same.
    pub(super) fn check_agrees(&self, other: &Self) {
        for (place, event) in &self.entries {
            if let Some(theirs) = other.entries.get(place) {
                assert_eq!(event, theirs, "entry {place:?}");
            }
        }
    }
}

/// Makes a ring with this subscription `main`.
pub(super) async fn make(client: &Client, ring: &str, spec: &SubscriptionSpec) {
    let made = client.set_ring(ring, spec, Some(0)).await.unwrap();
    assert_eq!(made.subscriptions[0].name, MAIN);
}

/// One member a turn, names as texts.
pub(super) fn singles(turns: &[Vec<String>]) -> Vec<&str> {
    turns.iter().map(|turn| turn[0].as_str()).collect()
}
