//! A witness, who asks every candidate all the time whether it leads, and judges by one clock what they answer.
//!
//! Whoever says 1 says under which token, and for how long it may act if nothing is renewed. It said so at some instant
//! after it was asked and before the answer was there. So it claims to lead at least from the answer on, and at least
//! until that much after it was asked. With these bounds no overlap is seen where there is none, however slow a process
//! or the witness is. What a process prints would not do: it may be stopped between what it knows and the line.
//!
//! A leader that gives up before its time, as at SIGTERM, has claimed more than it used: here it may only be killed,
//! stopped or cut off.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rig::Ask;
use store::clock::Stopwatch;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::Candidate;

/// Between two questions to one candidate.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an answer is waited for; whoever is stopped for longer is asked anew.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// That somebody said 1.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) node: String,
    pub(super) token: u64,
    pub(super) asked: Duration,
    pub(super) answered: Duration,
    pub(super) valid_for: Duration,
}

/// From when to when somebody at least claimed to lead under a token.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    pub(super) node: String,
    pub(super) from: Duration,
    pub(super) to: Duration,
}

pub(super) struct Witness {
    clock: Stopwatch,
    words: Arc<Mutex<Vec<Word>>>,
    asking: JoinSet<()>,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self { clock: Stopwatch::start(), words: Arc::default(), asking: JoinSet::new() }
    }

    /// What time it is by its clock.
    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Asks this one from now on, until it is told not to.
    pub(super) async fn watch(&mut self, node: &str, candidate: &Candidate) -> AbortHandle {
        let at = candidate.address().await;
        let (clock, words, node) = (self.clock, Arc::clone(&self.words), node.to_owned());
        self.asking.spawn(async move {
            loop {
                let asked = clock.elapsed();
                if let Ok(Some((token, valid_for))) = timeout(ANSWER_MAX, ask(at)).await {
                    let (node, answered) = (node.clone(), clock.elapsed());
                    words.lock().unwrap().push(Word { node, token, asked, answered, valid_for });
                }
                sleep(PAUSE).await;
            }
        })
    }

    /// Every 1 that it was told.
    pub(super) fn words(&self) -> Vec<Word> {
        self.words.lock().unwrap().clone()
    }

    /// Who said 1 under the greatest token.
    pub(super) fn latest(&self) -> Option<String> {
        let words = self.words.lock().unwrap();
        words.iter().max_by_key(|word| word.token).map(|word| word.node.clone())
    }

    /// Nobody was asked between these two and said 1.
    #[track_caller]
    pub(super) fn check_nobody(&self, from: Duration, to: Duration) {
        let words = self.words();
        let wrong = words.iter().find(|word| from < word.asked && word.answered < to);
        assert!(wrong.is_none(), "between {from:?} and {to:?}: {wrong:?}");
    }

    /// At every instant at most one claimed to lead, and never under an older token. Tells who did, one after the other.
    #[track_caller]
    pub(super) fn check(&self) -> Vec<Term> {
        judge(&self.words())
    }
}

#[track_caller]
fn judge(words: &[Word]) -> Vec<Term> {
    let mut terms = BTreeMap::<u64, Term>::new();
    for word in words {
        let Word { node, token, asked, answered, valid_for } = word;
        assert!(!valid_for.is_zero(), "{word:?}");
        let (from, to) = (*answered, *asked + *valid_for);
        let term = terms.entry(*token).or_insert(Term { node: node.clone(), from, to });
        assert_eq!(term.node, *node, "two lead under one token: {word:?}");
        (term.from, term.to) = (term.from.min(from), term.to.max(to));
    }
    let terms: Vec<Term> = terms.into_values().collect();
    for pair in terms.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two lead at once: {pair:?}");
    }
    terms
}

/// Under which token it leads and for how long; nothing if it does not, or does not answer.
async fn ask(at: SocketAddr) -> Option<(u64, Duration)> {
    let stream = TcpStream::connect(at).await.ok()?;
    let page = Ask::new(at, "GET", "/metrics").over(stream).await.ok()?.text;
    let read = |name: &str| {
        let name = format!("watchbell_leader_{name} ");
        page.lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned)
    };
    let (current, token) = (read("current_leader")?, read("token")?.parse().ok()?);
    let valid_for = Duration::from_secs_f64(read("valid_for_seconds")?.parse().ok()?);
    (current == "1").then_some((token, valid_for))
}

fn word(node: &str, token: u64, asked: u64, valid_for: u64) -> Word {
    let [asked, valid_for] = [asked, valid_for].map(Duration::from_secs);
    Word { node: node.to_owned(), token, asked, answered: asked, valid_for }
}

#[test]
fn who_renews_has_one_term_and_is_followed_when_it_is_over() {
    let words = [word("anna", 1, 0, 2), word("anna", 1, 1, 2), word("bert", 2, 3, 2)];
    let terms = judge(&words);
    let [from, to] = [0, 3].map(Duration::from_secs);
    assert_eq!(terms[0], Term { node: "anna".to_owned(), from, to });
    assert_eq!(terms.len(), 2);
}

#[test]
#[should_panic(expected = "two lead at once")]
fn who_leads_before_another_ones_time_is_over_is_noticed() {
    judge(&[word("anna", 1, 0, 2), word("bert", 2, 1, 2)]);
}

#[test]
#[should_panic(expected = "two lead at once")]
fn who_leads_under_an_older_token_than_another_one_before_is_noticed() {
    judge(&[word("anna", 2, 0, 2), word("bert", 1, 5, 2)]);
}

#[test]
#[should_panic(expected = "two lead under one token")]
fn two_under_one_token_are_noticed() {
    judge(&[word("anna", 1, 0, 2), word("bert", 1, 5, 2)]);
}
