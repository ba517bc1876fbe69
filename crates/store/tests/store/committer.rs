//! A process that commits and says so: what the tests kill, starve and watch.
//!
//! `store-committer commit DIR WRITERS [LIE]` lets each writer commit batches of three keys, one batch
//! after the other, for ever, and prints a line before and after each:
//!
//! ```text
//! try WRITER NUMBER
//! ack WRITER NUMBER VERSION
//! err WRITER NUMBER KIND: SENTENCE      then it ends
//! ```
//!
//! A LIE makes it break its word on purpose, so that the tests can show that they would notice; the
//! lie `briefly` is none: it only makes each writer stop after fifty batches.
//!
//! `store-committer fill DIR` fills the disk below DIR, makes room, goes on, and checks that nothing
//! was lost.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use store::file::{FileStore, Sizes};
use store::{Commit, CommitError, Condition, Key, Range, Refusal, Store, Version};
use tokio::task::JoinSet;

/// Small, so that segments and tables come and go.
const SIZES: Sizes = Sizes { segment_bytes: 64 * 1024, layer_bytes: 32 * 1024 };

const PARTS: [&str; 3] = ["a", "b", "c"];

/// How it breaks its word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Stops after a while.
    Briefly,
    /// Says that it is done before it is.
    EarlyAck,
    /// Writes a batch in two commits.
    TwoHalves,
    /// Tells a version that was given before.
    OldVersion,
}

impl Lie {
    fn named(name: &str) -> Self {
        match name {
            "briefly" => Self::Briefly,
            "early-ack" => Self::EarlyAck,
            "two-halves" => Self::TwoHalves,
            "old-version" => Self::OldVersion,
            other => panic!("{other} is no lie that we know"),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    match words.as_slice() {
        ["commit", dir, writers] => runtime.block_on(commit(dir, writers, Lie::None)),
        ["commit", dir, writers, lie] => runtime.block_on(commit(dir, writers, Lie::named(lie))),
        ["fill", dir] => runtime.block_on(fill(Path::new(dir))),
        _ => {
            say("usage: store-committer commit DIR WRITERS [LIE] | fill DIR");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// One line in one write, so that lines of several threads do not mix.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        // Whoever listened is gone: nobody is left to end us either.
        std::process::exit(1);
    }
}

async fn commit(dir: &str, writers: &str, lie: Lie) {
    let store =
        Store::new(FileStore::open_or_create(Path::new(dir), SIZES).expect("the store opens"));
    let mut tasks = JoinSet::new();
    for writer in 0..writers.parse().expect("a number of writers") {
        tasks.spawn(commit_for_ever(store.clone(), writer, lie));
    }
    tasks.join_all().await;
}

async fn commit_for_ever(store: Store, writer: usize, lie: Lie) {
    let key =
        |part: &str| Key::new(format!("writer/{writer}/{part}")).expect("short and printable");
    let guard = store.get(&key("a")).await.expect("the store reads");
    let mut number = guard.as_ref().map_or(0, |entry| read_number(entry.value.as_bytes()));
    let mut version = guard.map(|entry| entry.version);
    let last = if lie == Lie::Briefly { number + 50 } else { usize::MAX };
    while number < last {
        number += 1;
        say(&format!("try {writer} {number}"));
        if lie == Lie::EarlyAck {
            // Some version that nobody else tells.
            say(&format!("ack {writer} {number} {}", number * 1_000 + writer));
        }
        let condition = match version {
            Some(version) => Condition::At(key("a"), version),
            None => Condition::Absent(key("a")),
        };
        // Sizes differ from batch to batch, so that frames end at every place of a segment.
        let value = format!(
            "{{\"format\":1,\"number\":{number},\"filler\":\"{:x<1$}\"}}",
            "",
            number * 37 % 900
        );
        let whole = PARTS.iter().fold(Commit::new().when(condition), |commit, part| {
            commit.put(key(part), value.clone())
        });
        let outcome = if lie == Lie::TwoHalves {
            let mut first = whole.clone();
            let second = Commit { when: Vec::new(), then: first.then.split_off(1) };
            match store.commit(first).await {
                Ok(_) => store.commit(second).await,
                Err(why) => Err(why),
            }
        } else {
            store.commit(whole).await
        };
        match outcome {
            Ok(done) => {
                version = if lie == Lie::TwoHalves {
                    current(&store, &key("a")).await
                } else {
                    Some(done)
                };
                let told = if lie == Lie::OldVersion && number % 5 == 0 {
                    Version(done.0 / 2)
                } else {
                    done
                };
                if lie != Lie::EarlyAck {
                    say(&format!("ack {writer} {number} {}", told.0));
                }
            }
            Err(why) => {
                say(&format!("err {writer} {number} {}: {why}", kind(&why)));
                return;
            }
        }
    }
}

async fn current(store: &Store, key: &Key) -> Option<Version> {
    store.get(key).await.expect("the store reads").map(|entry| entry.version)
}

fn read_number(value: &[u8]) -> usize {
    let text = std::str::from_utf8(value).expect("we wrote text");
    let (_, rest) = text.split_once("\"number\":").expect("with a number in it");
    let digits = rest.split(',').next().expect("there is always a first part");
    digits.parse().expect("a small number")
}

fn kind(why: &CommitError) -> &'static str {
    match why {
        CommitError::Conflict(_) => "conflict",
        CommitError::Refused(_) => "refused",
        CommitError::Unavailable(_) => "unavailable",
        CommitError::Unknown(_) => "unknown",
        CommitError::Corrupt(_) => "corrupt",
    }
}

async fn fill(dir: &Path) {
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![1; 1024 * 1024]).expect("there is room for the ballast");
    let data = dir.join("data");
    let store = Store::new(FileStore::open_or_create(&data, SIZES).expect("the store opens"));

    let put = |number: usize| {
        let key = Key::new(format!("entry/{number:08}")).expect("short and printable");
        Commit::new().put(key, vec![b'f'; 1_000])
    };
    let mut count = 0;
    let refusal = loop {
        match store.commit(put(count)).await {
            Ok(_) => count += 1,
            Err(why) => break why,
        }
    };
    assert!(matches!(refusal, CommitError::Refused(Refusal::Full { .. })), "found {refusal:?}");
    say(&format!("full after {count}: {refusal}"));
    assert_eq!(entries(&store).await, count, "nothing is lost while the disk is full");

    drop(store);
    let store =
        Store::new(FileStore::open_existing(&data, SIZES).expect("it opens on a full disk"));
    assert_eq!(entries(&store).await, count, "nothing is lost by a restart on a full disk");

    std::fs::remove_file(ballast).expect("the ballast goes");
    let goal = count + 200;
    while count < goal {
        match store.commit(put(count)).await {
            Ok(_) => count += 1,
            Err(CommitError::Refused(Refusal::Full { .. })) => tokio::task::yield_now().await,
            Err(why) => panic!("there is room now, and it says {why}"),
        }
    }
    assert_eq!(entries(&store).await, count, "it goes on when there is room");
    drop(store);
    let store = Store::new(FileStore::open_existing(&data, SIZES).expect("the store opens again"));
    assert_eq!(entries(&store).await, count, "and all of it is durable");
    say(&format!("fine with {count}"));
}

async fn entries(store: &Store) -> usize {
    let mut count = 0;
    let mut rest = Some(Range::prefix("entry/"));
    while let Some(range) = rest {
        let page = store.scan(range, 1_000).await.expect("reading works on a full disk");
        count += page.entries.len();
        rest = page.next;
    }
    count
}
