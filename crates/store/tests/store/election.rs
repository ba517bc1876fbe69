//! Elections on every engine, in real time: of a hundred one wins, and whoever is killed when, at most one at a time
//! says that it may act.
//!
//! Judged from what the holders say themselves: each asks for its permit all the time, and notes from when to when it
//! was told that it may act. One that is killed keeps the last time that it was told; its successor must begin after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::lease::{Token, Ttl};
use rig::Random;
use store::claim::Claim;
use store::clock::Stopwatch;
use store::election::{Candidacy, Mode, Right};
use store::memory::MemoryStore;
use store::session::{NodeId, NodeInfo, Session};
use store::{Adapter, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::patience;

/// Whatever takes longer has hung.
const GUARD: Duration = Duration::from_secs(60);

/// Between two looks at a permit.
const LOOK: Duration = Duration::from_millis(5);

async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, future).await.expect("it hangs")
}

/// From when to when somebody said that it may act under a token.
#[derive(Debug, Clone, Copy)]
struct Term {
    from: Duration,
    to: Duration,
}

/// All that holders have said.
#[derive(Clone)]
struct Book {
    clock: Stopwatch,
    terms: Arc<Mutex<BTreeMap<Token, Term>>>,
    /// The greatest token under which somebody has said so.
    latest: watch::Sender<Option<(Token, String)>>,
}

impl Book {
    fn new() -> Self {
        Self { clock: Stopwatch::start(), terms: Arc::default(), latest: watch::Sender::new(None) }
    }

    /// Asks for a permit, and notes what it says. The bounds are such that no overlap is seen where there is none.
    fn note(&self, right: &Right, id: &str) {
        let before = self.clock.elapsed();
        let Some(permit) = right.permit() else { return };
        let (after, to) = (self.clock.elapsed(), before + permit.valid_for);
        let mut terms = self.terms.lock().unwrap();
        let term = terms.entry(permit.token).or_insert(Term { from: after, to });
        term.to = term.to.max(to);
        self.latest.send_if_modified(|latest| {
            let is_news = latest.as_ref().is_none_or(|(token, _)| *token < permit.token);
            if is_news {
                *latest = Some((permit.token, id.to_owned()));
            }
            is_news
        });
    }

    /// Somebody who notes nothing any more has given up what it was told.
    fn end(&self, id: &str) {
        let (token, holder) = self.latest();
        if holder == id
            && let Some(term) = self.terms.lock().unwrap().get_mut(&token)
        {
            term.to = term.to.min(self.clock.elapsed());
        }
    }

    /// The greatest token, and whose it is, when there is one.
    fn latest(&self) -> (Token, String) {
        self.latest.borrow().clone().expect("somebody has said so")
    }

    /// Waits for a token that is greater than this one, and tells whose it is.
    async fn after(&self, token: Option<Token>) -> (Token, String) {
        let mut latest = self.latest.subscribe();
        let is_new =
            |latest: &Option<(Token, String)>| latest.as_ref().map(|(token, _)| *token) > token;
        guarded(latest.wait_for(is_new)).await.unwrap().clone().unwrap()
    }

    /// At every instant at most one. Tells how many there were.
    fn check(&self) -> usize {
        let terms = self.terms.lock().unwrap();
        for ((one, former), (other, next)) in terms.iter().zip(terms.iter().skip(1)) {
            assert!(former.to <= next.from, "{one:?} says {former:?}, and {other:?} says {next:?}");
        }
        terms.len()
    }
}

/// A candidate. Dropped, it is as dead as by kill -9.
struct Candidate {
    id: String,
    session: Session,
    tasks: JoinSet<()>,
}

impl Candidate {
    async fn start(store: &Store, id: String, ttl: Duration, book: &Book) -> Self {
        let node = NodeInfo {
            id: NodeId::new(id.clone()).unwrap(),
            ttl: Ttl::new(ttl).unwrap(),
            url: None,
            roles: Vec::new(),
            candidacies: Vec::new(),
        };
        let (session, mut keeper) = guarded(patience::session(store, &node)).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            keeper.run(|| true).await;
        });
        let claim = Claim::new("election/default/watch").unwrap();
        let mut election = Candidacy::new(&session, claim, Mode::Automatic);
        let (book, name) = (book.clone(), id.clone());
        tasks.spawn(async move {
            while let Ok(holding) = election.campaign().await {
                let right = holding.right.clone();
                let noting = async {
                    loop {
                        book.note(&right, &name);
                        tokio::time::sleep(LOOK).await;
                    }
                };
                tokio::select! {
                    biased;
                    _ = right.over() => {}
                    () = noting => {}
                }
            }
        });
        Self { id, session, tasks }
    }

    /// Leaves in order: it notes nothing any more, its term is over, and only then may anybody follow.
    async fn close(mut self, book: &Book) {
        self.tasks.shutdown().await;
        book.end(&self.id);
        guarded(self.session.close()).await;
    }
}

/// Of a hundred candidates that begin at once one wins, and stays.
pub(super) async fn check_one_winner(stores: &[Store]) {
    let (ttl, book) = (Duration::from_secs(5), Book::new());
    let mut starting = JoinSet::new();
    for number in 0..100 {
        let (store, book) = (stores[number % stores.len()].clone(), book.clone());
        starting.spawn(async move {
            Candidate::start(&store, format!("candidate-{number}"), ttl, &book).await
        });
    }
    let candidates = guarded(starting.join_all()).await;
    let (token, _) = book.after(None).await;
    // Not a wait for anything: how long it is watched that nobody else says so.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(book.check(), 1, "one winner");
    let closing = candidates.iter().map(|candidate| {
        let session = candidate.session.clone();
        async move { session.close().await }
    });
    drop(book);
    guarded(closing.collect::<JoinSet<()>>().join_all()).await;
    assert!(token > Token(0));
}

/// Holders are killed and leave, one after the other, while others wait. Tells how long each take-over took.
pub(super) async fn check_random_kills(
    stores: &[Store],
    seed: u64,
    rounds: usize,
) -> Vec<Duration> {
    println!("seed {seed:#x}");
    let (ttl, book, mut random) = (Duration::from_secs(1), Book::new(), Random::new(seed));
    let mut candidates = Vec::new();
    let mut born = 0;
    let mut next = async |candidates: &mut Vec<Candidate>| {
        let store = &stores[born % stores.len()];
        candidates.push(Candidate::start(store, format!("candidate-{born}"), ttl, &book).await);
        born += 1;
    };
    for _ in 0..4 {
        next(&mut candidates).await;
    }
    book.after(None).await;
    let mut took = Vec::new();
    for _ in 0..rounds {
        // Not a wait for anything: how long it holds.
        tokio::time::sleep(Duration::from_millis(random.below(600))).await;
        // Whoever has it now: one that was kept from running may have been followed already.
        let (token, place) = loop {
            let (token, holder) = book.latest();
            let place = candidates.iter().position(|candidate| candidate.id == holder);
            if let Some(place) = place {
                break (token, place);
            }
            book.after(Some(token)).await;
        };
        let leaving = candidates.swap_remove(place);
        let since = Stopwatch::start();
        let is_killed = random.below(3) > 0;
        if is_killed {
            drop(leaving);
        } else {
            leaving.close(&book).await;
        }
        book.after(Some(token)).await;
        if is_killed {
            took.push(since.elapsed());
        }
        next(&mut candidates).await;
    }
    // One more at the most: a machine that is busy may have kept a holder from its renewals.
    let terms = book.check();
    assert!((rounds + 1..=rounds + 2).contains(&terms), "{terms} terms in {rounds} rounds");
    took.sort();
    println!("take-overs after a kill, T = {ttl:?}: {took:?}");
    for candidate in candidates {
        guarded(candidate.session.close()).await;
    }
    took
}

fn memory() -> Vec<Store> {
    let memory: Arc<dyn Adapter> = Arc::new(MemoryStore::new());
    vec![Store::shared(memory)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_candidates_one_wins() {
    check_one_winner(&memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_when_at_most_one_says_that_it_may_act() {
    check_random_kills(&memory(), 0x0e1e_c7ed, 4).await;
}

#[test]
#[should_panic(expected = "says")]
fn two_at_a_time_are_noticed() {
    let book = Book::new();
    let term = |from, to| Term { from: Duration::from_secs(from), to: Duration::from_secs(to) };
    book.terms.lock().unwrap().extend([(Token(1), term(1, 5)), (Token(2), term(4, 6))]);
    book.check();
}
