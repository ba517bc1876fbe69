//! What metrics say in every state, judged by a clock beside them.

use rig::redis::Setup;
use rig::{PATIENCE, Road, Way, machine, until};
use rustix::process::Signal;
use store::clock::Stopwatch;
use tokio::time::sleep;

use super::*;

/// The pace of those who ask all the time; nothing is waited for by it.
const PAUSE: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_a_leader_from_a_candidate_and_count_what_they_do() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut anna = Candidate::start(dir.path(), "anna", &redis.url(), &STEADY);
    let token = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &STEADY);
    bert.event("leader", 1).await;
    until("the leader was renewed", PATIENCE, || async {
        (anna.metric("watchbell_leader_refreshed_total").await > 2).then_some(())
    })
    .await;
    let leads = until("it says 1", PATIENCE, || async {
        Some(page(anna.address().await).await).filter(|page| metric(page, LEADS) == 1)
    })
    .await;
    let waits = page(bert.address().await).await;
    for (page, name, expected) in [
        (&leads, TOKEN, token),
        (&leads, "watchbell_leader_claimed_total", 1),
        (&waits, LEADS, 0),
        (&waits, TOKEN, 0),
        (&waits, "watchbell_leader_claimed_total", 0),
        (&waits, "watchbell_leader_refreshed_total", 0),
    ] {
        assert_eq!(metric(page, name), expected, "{page}");
    }
    let before = (metric(&leads, READ), metric(&waits, READ));
    until("both look", PATIENCE, || async {
        let now = (anna.metric(READ).await, bert.metric(READ).await);
        (now.0 > before.0 && now.1 > before.1).then_some(())
    })
    .await;
    let alive = Ask::new(anna.address().await, "GET", "/livez").send().await;
    assert_eq!((alive.status, alive.text.as_str()), (200, "ok\n"));
    assert_eq!(Ask::new(anna.address().await, "GET", "/").send().await.status, 404);
    assert_eq!(Ask::new(anna.address().await, "POST", "/metrics").send().await.status, 405);
    anna.stop().await;
    bert.elected().await;
    bert.says_1().await;
}

const LEADS: &str = "watchbell_leader_current_leader";
const TOKEN: &str = "watchbell_leader_token";
const READ: &str = "watchbell_leader_read_total";

/// Waits until one of them leads and has told that it was elected, and gives the token. Metrics say so a moment before
/// the line is there.
async fn token_told(candidates: &[&Candidate]) -> u64 {
    until("somebody leads and has told so", PATIENCE, || async {
        for candidate in candidates {
            let page = page(candidate.address().await).await;
            let elected = candidate.events().into_iter().rfind(|told| told["event"] == "elected");
            let told = elected.and_then(|elected| elected["token"].as_u64());
            if metric(&page, LEADS) == 1 && told == Some(metric(&page, TOKEN)) {
                return told;
            }
        }
        None
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_says_0_before_its_validity_ends() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let road = Road::to(redis.address()).await;
    let left = dir.path().join("left");
    let on_lost = format!("echo $WATCHBELL_VALID_FOR_MS >> {}", left.display());
    let hooks = ["--on-lost", &on_lost];
    let anna = Candidate::start(dir.path(), "anna", &redis.url_at(road.address()), &hooks);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    anna.says_1().await;
    road.both(Way::Closed);
    // No renewal can have been sent after this, so no validity reaches further than T from here.
    let cut = Stopwatch::start();
    let mut silent = None;
    while bert.count("elected") == 0 {
        assert!(cut.elapsed() < PATIENCE, "nobody takes over: {}", bert.log());
        let asked = cut.elapsed();
        if anna.leads().await {
            assert!(asked < T, "it says 1 {asked:?} after it was cut off");
            assert_eq!(silent, None, "it said 0 and then 1 again");
        } else {
            silent.get_or_insert(cut.elapsed());
        }
        sleep(PAUSE).await;
    }
    println!("said 0 after {silent:?}, and another one led after {:?}", cut.elapsed());
    assert!(!anna.leads().await);
    bert.says_1().await;
    let left: u64 = until("the hook has told what it was told", PATIENCE, || async {
        std::fs::read_to_string(&left).ok()?.split_once('\n')?.0.parse().ok()
    })
    .await;
    assert!(left > 0, "the hook was told so before the end");
    road.both(Way::Open);
    anna.event("candidate", 2).await;
    let seen = anna.event("leader", 1).await;
    assert!(seen["token"].as_u64().unwrap() > first);
    assert!(!anna.leads().await);
    bert.says_1().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_slept_longer_than_t_never_says_1_after_another_one_leads() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    let at = anna.address().await;
    anna.signal(Signal::STOP);
    // These were asked while it slept, and are answered the moment that it wakes.
    let mut asked = tokio::task::JoinSet::new();
    let second = bert.elected().await;
    for _ in 0..8 {
        asked.spawn(page(at));
    }
    anna.signal(Signal::CONT);
    while let Some(page) = asked.join_next().await {
        assert_eq!(metric(&page.unwrap(), LEADS), 0);
    }
    let lost = anna.event("lost", 1).await;
    assert_eq!(lost["token"].as_u64(), Some(first));
    anna.event("candidate", 2).await;
    assert!(second > first && !anna.leads().await);
    bert.says_1().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_refuses_writes_nobody_leads_and_then_somebody_does_again() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    // No renewal is taken after this, so no validity reaches further than T from here, for as long as it lasts.
    let begun = Stopwatch::start();
    let mut asked = Duration::ZERO;
    while asked < 3 * T {
        asked = begun.elapsed();
        let is_led = anna.leads().await || bert.leads().await;
        assert!(
            !is_led || asked < T,
            "somebody says 1 when asked {asked:?} after the last renewal"
        );
        sleep(PAUSE).await;
    }
    anna.logs("the store takes no renewal or claim").await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]), "OK");
    assert!(token_told(&[&anna, &bert]).await >= first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_later_than_t_give_nobody_a_right() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let road = Road::to(redis.address()).await;
    let anna = Candidate::start(dir.path(), "anna", &redis.url_at(road.address()), &[]);
    let first = anna.elected().await;
    road.back(Way::Slow(T * 3 / 2));
    anna.event("lost", 1).await;
    let begun = Stopwatch::start();
    while begun.elapsed() < 3 * T {
        assert!(!anna.leads().await, "what it hears is older than T");
        sleep(PAUSE).await;
    }
    road.back(Way::Open);
    let again = anna.event("elected", 2).await["token"].as_u64().unwrap();
    assert!(again >= first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_redis_forgets_everything_nobody_leads_twice() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    // Class B: it keeps nothing over a restart.
    let mut redis = Setup::new().start();
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    redis.restart();
    let forgot = Stopwatch::start();
    let mut is_over = false;
    loop {
        // Whoever says 1 second has said it after the other one was asked.
        let (one, other) = (anna.leads().await, bert.leads().await);
        assert!(!(one && other && anna.leads().await), "both lead");
        is_over |= !one && !other;
        if is_over && (one || other) {
            break;
        }
        assert!(forgot.elapsed() < PATIENCE, "nobody leads: {}{}", anna.log(), bert.log());
        sleep(PAUSE).await;
    }
    println!("led again {:?} after Redis came back empty", forgot.elapsed());
    assert!(token_told(&[&anna, &bert]).await > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leads_beside_one_that_is_cut_off_from_a_store_that_was_emptied() {
    let _machine = machine::waits().await;
    // It keeps its word, so only that it is another than before tells that it has forgotten.
    let (dir, mut redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let road = Road::to(redis.address()).await;
    let anna = Candidate::start(dir.path(), "anna", &redis.url_at(road.address()), &[]);
    anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    road.both(Way::Closed);
    // No validity reaches further than T from here.
    let cut = Stopwatch::start();
    tokio::task::block_in_place(|| {
        redis.ask(&["FLUSHALL"]);
        redis.kill();
        redis.restart();
    });
    bert.elected().await;
    assert!(cut.elapsed() > T, "another one leads {:?} after the cut", cut.elapsed());
    assert!(!anna.leads().await);
}
