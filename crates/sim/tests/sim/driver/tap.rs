//! A tap on a node's link: writes down every commit, and does to some what a script says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sim::clock::TrueTime;
use sim::world::World;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Key, Limits, Page, Pending, Range,
    ScanError, Version,
};

use super::bench::LONGEST_KEY;

/// What happens to one commit.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Nothing.
    Pass,
    /// It is not sent, and this is the answer.
    Say(CommitError),
    /// It is sent, and the answer is lost.
    LoseAnswer,
    /// It is held back until [`Tap::land`], and the answer is Unknown.
    LandLater,
}

impl Fault {
    /// It gets lost, and nobody knows.
    pub(super) fn lose() -> Self {
        Self::Say(unknown())
    }

    /// It never leaves.
    pub(super) fn refuse() -> Self {
        Self::Say(CommitError::Unavailable("the script says so".into()))
    }
}

fn unknown() -> CommitError {
    CommitError::Unknown("the script says so".into())
}

/// A commit that was sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) at: TrueTime,
    pub(super) commit: Commit,
    /// As the caller heard it; `None` if it did not, or not yet.
    pub(super) answer: Option<Result<Version, CommitError>>,
}

/// The tap. It stands between a node and its link.
pub(super) struct Tap {
    world: World,
    link: Arc<dyn Adapter>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Vec<Sent>,
    script: Vec<(String, VecDeque<Fault>)>,
    held_back: VecDeque<Commit>,
    scans: Option<ScanError>,
    read: Vec<Range>,
    limits: Option<Limits>,
}

impl Tap {
    pub(super) fn new(world: &World, link: Arc<dyn Adapter>) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), link, state: Mutex::default() })
    }

    /// The next commits that write below `prefix` meet these, one each.
    pub(super) fn on(&self, prefix: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().script.push((prefix.to_owned(), faults.into_iter().collect()));
    }

    /// From now on every scan is answered so.
    pub(super) fn on_scans(&self, why: ScanError) {
        self.lock().scans = Some(why);
    }

    /// It has these limits, and not those of the link.
    pub(super) fn limit(&self, limits: Limits) {
        self.lock().limits = Some(limits);
    }

    /// What was sent that writes below `prefix`.
    pub(super) fn sent(&self, prefix: &str) -> Vec<Sent> {
        self.lock().log.iter().filter(|sent| writes_below(&sent.commit, prefix)).cloned().collect()
    }

    /// How often this key was read by itself.
    pub(super) fn reads(&self, key: &Key) -> usize {
        self.lock().read.iter().filter(|range| **range == Range::only(key)).count()
    }

    /// Lets the oldest commit that is held back arrive, and tells what became of it; `None` if none is.
    pub(super) async fn land(self: Arc<Self>) -> Option<Result<Version, CommitError>> {
        let commit = self.lock().held_back.pop_front()?;
        Some(self.link.commit(commit).await)
    }

    async fn meet(&self, commit: Commit) -> Result<Version, CommitError> {
        let (place, fault) = self.note(&commit);
        let answer = match fault {
            Fault::Pass => self.link.commit(commit).await,
            Fault::Say(why) => Err(why),
            Fault::LoseAnswer => {
                let _lost = self.link.commit(commit).await;
                Err(unknown())
            }
            Fault::LandLater => {
                self.lock().held_back.push_back(commit);
                Err(unknown())
            }
        };
        self.lock().log[place].answer = Some(answer.clone());
        answer
    }

    fn note(&self, commit: &Commit) -> (usize, Fault) {
        let mut state = self.lock();
        let at = self.world.now();
        state.log.push(Sent { at, commit: commit.clone(), answer: None });
        let mut script = state.script.iter_mut();
        let fault = script
            .find(|(prefix, faults)| !faults.is_empty() && writes_below(commit, prefix))
            .and_then(|(_, faults)| faults.pop_front());
        (state.log.len() - 1, fault.unwrap_or(Fault::Pass))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn writes_below(commit: &Commit, prefix: &str) -> bool {
    let mut keys = commit.then.iter().map(|write| write.key().as_str());
    keys.any(|key| key.starts_with(prefix) && key != LONGEST_KEY)
}

impl Adapter for Tap {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        let mut state = self.lock();
        state.read.push(range.clone());
        match state.scans.clone() {
            Some(why) => Box::pin(async { Err(why) }),
            None => self.link.scan(range, limit),
        }
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.meet(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.link.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.lock().limits.unwrap_or_else(|| self.link.limits())
    }

    fn class(&self) -> Class {
        self.link.class()
    }

    fn epoch(&self) -> Epoch {
        self.link.epoch()
    }

    fn is_exclusive(&self) -> bool {
        self.link.is_exclusive()
    }
}
