//! Rings in real time, on every engine: what each server says of them is one story, whoever is there to tell it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::lease::Ttl;
use engine::ring::member::Visit;
use engine::ring::{PartId, SkipReason, SubscriptionDraft};
use store::clock::Stopwatch;
use store::memory::MemoryStore;
use store::ring::{
    Cursor, Cursors, Expected, Feed, Member, Put, RingError, RingEvent, RingEventKind, RingId,
    RingPart, RingSettings, Rings, SubscriptionId, view,
};
use store::session::{NodeId, NodeInfo, Session};
use store::{Class, Store};
use tokio::task::JoinSet;

use super::patience;

/// Whatever takes longer has hung.
const GUARD: Duration = Duration::from_secs(90);

async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, future).await.expect("it hangs")
}

/// A server. Dropped, it is as dead as by kill -9.
pub(super) struct Server {
    pub(super) rings: Rings,
    pub(super) session: Session,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(store: &Store, id: &str) -> Self {
        Self::of_role(store, id, "schedule").await
    }

    async fn of_role(store: &Store, id: &str, role: &str) -> Self {
        let node = NodeInfo {
            id: NodeId::new(id).unwrap(),
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
            url: None,
            roles: vec![role.to_owned()],
            candidacies: Vec::new(),
        };
        let (session, mut keeper) = guarded(patience::session(store, &node)).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            keeper.run(|| true).await;
        });
        let settings = RingSettings {
            is_server: |record| record.roles.iter().any(|role| role == "schedule"),
            clock_is_good: Arc::new(|| true),
            part: RingPart::Advances,
        };
        let (rings, mut driver) = Rings::new(&session, settings);
        tasks.spawn(async move { driver.run().await });
        Self { rings, session, _tasks: tasks }
    }

    async fn follow(&self, subscription: &SubscriptionId, from: Option<Cursor>) -> Feed {
        guarded(self.rings.follow(subscription, from)).await.unwrap()
    }

    /// Keeps these members in the ring through this server, for as long as the tasks are there.
    async fn keeps(&self, ring: &RingId, names: &[&str], tasks: &mut JoinSet<()>) {
        for name in names {
            let heard = guarded(self.rings.hear(ring, name, None)).await.unwrap();
            let (rings, ring, name) = (self.rings.clone(), ring.clone(), (*name).to_owned());
            tasks.spawn(async move {
                loop {
                    tokio::time::sleep(heard.beat).await;
                    let _lost = rings.hear(&ring, &name, Some(heard.visit)).await;
                }
            });
        }
    }
}

pub(super) fn draft(every: &str) -> SubscriptionDraft {
    serde_json::from_value(serde_json::json!({ "schedule": { "every": every } })).unwrap()
}

fn ring() -> RingId {
    RingId::new("default", "watch").unwrap()
}

fn main_of(ring: &RingId) -> SubscriptionId {
    ring.subscription("main").unwrap()
}

async fn next(feed: &mut Feed) -> Arc<RingEvent> {
    guarded(feed.next()).await.expect("it goes on")
}

/// The next turn: its slot and its members.
async fn next_turn(feed: &mut Feed) -> (Instant, Vec<String>) {
    loop {
        if let RingEventKind::Turn { slot, parts, .. } = &next(feed).await.kind {
            return (*slot, parts.iter().map(|part| part.member.to_string()).collect());
        }
    }
}

async fn turns(feed: &mut Feed, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        names.extend(next_turn(feed).await.1);
    }
    names
}

/// What was told of a subscription, by number.
type Story = BTreeMap<Cursor, RingEventKind>;

/// Listens until an entry with this number has come.
async fn listen(feed: &mut Feed, until: u64) -> Story {
    let mut story = Story::new();
    loop {
        let event = next(feed).await;
        assert!(story.len() < 2_000, "it goes on and on: {event:?}");
        assert!(
            !matches!(event.kind, RingEventKind::Gap { .. } | RingEventKind::Error { .. }),
            "{event:?}"
        );
        let Some(cursor) = event.cursor else { continue };
        story.insert(cursor, event.kind.clone());
        if cursor.number >= until {
            return story;
        }
    }
}

/// Every slot from the first to the last is decided exactly once. How often each member had a turn.
fn check_slots(story: &Story, every_ms: i64) -> BTreeMap<String, usize> {
    let (mut served, mut last) = (BTreeMap::new(), None::<i64>);
    let mut numbers = story.keys().map(|cursor| cursor.number);
    let first = numbers.next().expect("something was told");
    assert!(numbers.eq(first + 1..first + story.len() as u64), "no number is missing");
    for kind in story.values() {
        let (from, to) = match kind {
            RingEventKind::Turn { slot, parts, .. } => {
                for part in parts {
                    *served.entry(part.member.to_string()).or_default() += 1;
                }
                (slot.0, slot.0)
            }
            RingEventKind::Skip { from, to, slots, .. } => {
                assert_eq!((to.0 - from.0) / every_ms + 1, i64::try_from(*slots).unwrap());
                (from.0, to.0)
            }
            _ => continue,
        };
        assert!(last.is_none_or(|last| from == last + every_ms), "{last:?}, then {from}");
        last = Some(to);
    }
    served
}

/// Three servers take turns of one ring, one of them dies, and everybody is told the same.
pub(super) async fn check_one_story(stores: &[Store]) {
    let mut servers = Vec::new();
    for number in 0..3 {
        servers.push(Server::start(&stores[number % stores.len()], &format!("s{number}")).await);
    }
    let (ring, mut tasks) = (ring(), JoinSet::new());
    let main = main_of(&ring);
    guarded(servers[0].rings.create(&ring, &draft("100ms"))).await.unwrap();
    servers[1].keeps(&ring, &["anna", "bert"], &mut tasks).await;
    servers[2].keeps(&ring, &["cleo"], &mut tasks).await;
    let mut feeds = Vec::new();
    for server in &servers[1..] {
        feeds.push(server.follow(&main, None).await);
    }
    // Until the servers are in turn and everybody has been served.
    for feed in &mut feeds {
        turns(feed, 10).await;
    }
    let begin = guarded(view::subscription(&stores[0], &main)).await.unwrap().number;
    let mut listening = JoinSet::new();
    for mut feed in feeds {
        listening.spawn(async move { listen(&mut feed, begin + 60).await });
    }
    // Whoever writes dies in the middle of it, if it can be spared.
    drop(servers.remove(0));
    let stories = guarded(listening.join_all()).await;
    let from = |story: &Story| story.keys().next().copied().unwrap();
    let both = from(&stories[0]).max(from(&stories[1]));
    let cut = |story: &Story| {
        let end = Cursor { generation: both.generation, number: begin + 60 };
        story.range(both..=end).map(|(c, k)| (*c, k.clone())).collect::<Story>()
    };
    let (one, other) = (cut(&stories[0]), cut(&stories[1]));
    assert_eq!(one, other, "every follower is told the same");
    let served = check_slots(&one, 100);
    assert_eq!(served.len(), 3, "{served:?}");
    let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
    assert!(most - least <= 1, "{served:?}");
    for server in &servers {
        guarded(server.session.close()).await;
    }
}

fn memory() -> Store {
    Store::new(MemoryStore::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_memory_tell_one_story() {
    check_one_story(&[memory()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_a_file_tell_one_story() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = store::file::Sizes::default();
    let file = store::file::FileStore::open_or_create(dir.path(), sizes).unwrap();
    check_one_story(&[Store::new(file)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_have_their_turns_in_the_order_of_their_names() {
    let (store, ring) = (memory(), ring());
    let (server, main, mut tasks) =
        (Server::start(&store, "s").await, main_of(&ring), JoinSet::new());
    guarded(server.rings.create(&ring, &draft("20ms"))).await.unwrap();
    server.keeps(&ring, &["dora", "anna", "cleo"], &mut tasks).await;
    let mut feed = server.follow(&main, None).await;
    turns(&mut feed, 2).await;
    let names = turns(&mut feed, 9).await.concat();
    assert!("annacleodoraannacleodoraannacleodora".contains(&names[..12]), "{names}");

    // A join takes its place, and who leaves is passed over.
    server.keeps(&ring, &["bert"], &mut tasks).await;
    guarded(server.rings.leave(&ring, "cleo", None)).await.unwrap();
    let mut feed = server.follow(&main, None).await;
    let names = turns(&mut feed, 12).await;
    let at = names.iter().position(|name| name == "anna").unwrap();
    assert_eq!(names[at..at + 4], ["anna", "bert", "dora", "anna"]);

    // Several have a turn together, also more than there are.
    let several = SubscriptionDraft { count: Some(4), ..draft("20ms") };
    let put = guarded(server.rings.put(&main, &several, Expected::Anything)).await;
    assert_eq!(put, Ok(Put::Changed));
    let mut feed = server.follow(&main, None).await;
    let names = turns(&mut feed, 6).await;
    let count = |who: &str| names.iter().filter(|name| *name == who).count();
    assert_eq!([count("anna"), count("bert"), count("dora")], [8, 8, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_that_is_over_never_comes_back() {
    let (store, ring) = (memory(), ring());
    let server = Server::start(&store, "s").await;
    let other = Server::start(&store, "t").await;
    guarded(server.rings.create(&ring, &draft("1s"))).await.unwrap();
    let hear = |server: &Server, visit: Option<Visit>| {
        let (rings, ring) = (server.rings.clone(), ring.clone());
        async move { guarded(rings.hear(&ring, "anna", visit)).await.map(|heard| heard.visit) }
    };
    let first = hear(&server, None).await.unwrap();
    assert_eq!(hear(&server, Some(first)).await, Ok(first));
    assert_eq!(hear(&other, Some(first)).await, Ok(first), "it moves to another server");
    let second = hear(&other, None).await.unwrap();
    assert!(second > first);
    let superseded = |found: Result<Visit, RingError>| matches!(found, Err(RingError::Superseded { visit, .. }) if visit == second);
    assert!(superseded(hear(&other, Some(first)).await));
    // The other server hears of it by a hint.
    let told = async {
        while !superseded(hear(&server, Some(first)).await) {
            tokio::task::yield_now().await;
        }
    };
    guarded(told).await;
    let left = guarded(other.rings.leave(&ring, "anna", Some(second))).await;
    assert_eq!(left, Ok(second));
    for server in [&server, &other] {
        let back = hear(server, Some(second)).await;
        assert!(matches!(back, Err(RingError::VisitOver { .. })), "{back:?}");
    }
    assert!(hear(&server, None).await.unwrap() > second);
    let nobody = guarded(server.rings.leave(&ring, "bert", None)).await;
    assert!(matches!(nobody, Err(RingError::NoMember { .. })), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_again_is_told_what_it_missed_or_that_it_is_gone() {
    let (store, ring) = (memory(), ring());
    let (server, main, mut tasks) =
        (Server::start(&store, "s").await, main_of(&ring), JoinSet::new());
    guarded(server.rings.create(&ring, &draft("20ms"))).await.unwrap();
    server.keeps(&ring, &["anna", "bert"], &mut tasks).await;
    let mut feed = server.follow(&main, None).await;
    let story = listen(&mut feed, 150).await;
    let first = *story.keys().next().unwrap();
    // More than a page lies between; another server knows nothing of it but what the store says.
    let other = Server::start(&store, "t").await;
    let mut again = other.follow(&main, Some(first)).await;
    let told = listen(&mut again, 150).await;
    let after: Story = story.range(first..).skip(1).map(|(c, k)| (*c, k.clone())).collect();
    let to = Cursor { number: 150, ..first };
    let both = |story: &Story| story.range(..=to).map(|(c, k)| (*c, k.clone())).collect::<Story>();
    assert_eq!(both(&told), both(&after));
    let page = guarded(view::entries(&store, &main, Some(first), 20)).await.unwrap();
    assert_eq!((page.events.len(), page.next.number), (20, first.number + 20));

    // A subscription that is made anew is another one, and its tokens are greater.
    let token = |kind: &RingEventKind| match kind {
        RingEventKind::Turn { token, .. } => Some(*token),
        _ => None,
    };
    let last = story.values().filter_map(token).max().unwrap();
    guarded(server.rings.delete_subscription(&main, Expected::Anything)).await.unwrap();
    while !matches!(next(&mut feed).await.kind, RingEventKind::Closing) {}
    assert!(guarded(feed.next()).await.is_none());
    let put = guarded(server.rings.put(&main, &draft("20ms"), Expected::Nothing)).await;
    assert_eq!(put, Ok(Put::Created));
    let mut anew = server.follow(&main, Some(to)).await;
    let event = next(&mut anew).await;
    assert_eq!(event.cursor.unwrap().number, 1, "{event:?}");
    let next_token = loop {
        if let Some(token) = token(&next(&mut anew).await.kind) {
            break token;
        }
    };
    assert!(next_token > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_not_accepted_passes_on_and_is_accepted_once() {
    let (store, ring) = (memory(), ring());
    let (server, main, mut tasks) =
        (Server::start(&store, "s").await, main_of(&ring), JoinSet::new());
    let strict = SubscriptionDraft { accept: Some("300ms".into()), ..draft("30s") };
    guarded(server.rings.create(&ring, &strict)).await.unwrap();
    server.keeps(&ring, &["anna", "bert"], &mut tasks).await;
    let quick = SubscriptionDraft { accept: Some("300ms".into()), ..draft("1s") };
    guarded(server.rings.put(&main, &quick, Expected::Anything)).await.unwrap();
    let attend = |name: &'static str, after: Cursors| {
        let (rings, ring) = (server.rings.clone(), ring.clone());
        async move { guarded(rings.attend(&ring, name, after, Duration::from_secs(30))).await.unwrap() }
    };
    let (parts, cursors) = attend("anna", Cursors::new()).await;
    let part = parts[0].clone();
    assert_eq!(part.accept, Some(Duration::from_millis(300)));
    let accept = |name: &'static str, part: PartId| {
        let (rings, main) = (server.rings.clone(), main.clone());
        async move { guarded(rings.accept(&main, part, name)).await }
    };
    assert!(matches!(accept("bert", part.part).await, Err(RingError::NotOffered(_))));
    // It waits for too long, and bert has it.
    let passed = loop {
        let (parts, _) = attend("bert", Cursors::new()).await;
        if let Some(passed) = parts.iter().find(|bert| bert.part == part.part) {
            break passed.clone();
        }
    };
    assert!(passed.token > part.token);
    assert!(matches!(accept("anna", part.part).await, Err(RingError::NotOffered(_))));
    let token = accept("bert", passed.part).await;
    if let Ok(token) = token {
        assert_eq!(token, passed.token);
        assert_eq!(
            accept("bert", passed.part).await,
            Ok(token),
            "whoever asks again is told so again"
        );
    }
    // The cursors lead to what came after them, and to nothing twice.
    let (later, _) = attend("anna", cursors).await;
    assert!(later.iter().all(|later| later.cursor > part.cursor), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_silent_or_whose_server_is_gone_falls_out_and_nobody_else() {
    let (store, ring) = (memory(), ring());
    let server = Server::start(&store, "s").await;
    let dying = Server::start(&store, "t").await;
    let mut tasks = JoinSet::new();
    guarded(server.rings.create(&ring, &draft("100ms"))).await.unwrap();
    server.keeps(&ring, &["anna"], &mut tasks).await;
    guarded(server.rings.hear(&ring, "silent", None)).await.unwrap();
    guarded(dying.rings.hear(&ring, "orphan", None)).await.unwrap();
    let found = guarded(dying.rings.hear(&ring, "found", None)).await.unwrap();
    let mut feed = server.follow(&main_of(&ring), None).await;
    drop(dying);
    // It finds another server in time.
    let (rings, of) = (server.rings.clone(), ring.clone());
    tasks.spawn(async move {
        loop {
            let heard = rings.hear(&of, "found", Some(found.visit)).await;
            assert!(heard.is_ok(), "{heard:?}");
            tokio::time::sleep(found.beat).await;
        }
    });
    let mut gone = Vec::new();
    while gone.len() < 2 {
        if let RingEventKind::Remove { member } = &next(&mut feed).await.kind {
            gone.push(member.to_string());
        }
    }
    gone.sort();
    assert_eq!(gone, ["orphan", "silent"]);
    let members = guarded(view::members(&store, &ring, "", None, 10)).await.unwrap();
    assert_eq!(members.iter().map(|member| &*member.name).collect::<Vec<_>>(), ["anna", "found"]);
    assert!(tasks.try_join_next().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_a_session_is_a_member_as_long_as_that_is_there() {
    let (store, ring) = (memory(), ring());
    let server = Server::start(&store, "s").await;
    let program = Server::of_role(&store, "program", "member").await;
    guarded(server.rings.create(&ring, &draft("50ms"))).await.unwrap();
    let mut member = guarded(Member::join(&program.session, &ring, "anna")).await.unwrap();
    let (first, second) = (
        guarded(member.next()).await.unwrap().unwrap(),
        guarded(member.next()).await.unwrap().unwrap(),
    );
    assert!(second.token > first.token && second.slot > first.slot);
    let mut feed = server.follow(&main_of(&ring), None).await;
    drop(member);
    drop(program);
    while !matches!(&next(&mut feed).await.kind, RingEventKind::Remove { member } if **member == *"anna")
    {
    }
    // An empty ring says so once.
    loop {
        if let RingEventKind::Skip { reason, .. } = &next(&mut feed).await.kind {
            assert_eq!(*reason, SkipReason::Empty);
            break;
        }
    }
    let silence = tokio::time::timeout(Duration::from_millis(500), feed.next()).await;
    assert!(silence.is_err(), "{silence:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_that_is_deleted_is_gone_with_all_that_it_had() {
    let (store, ring) = (memory(), ring());
    let (server, mut tasks) = (Server::start(&store, "s").await, JoinSet::new());
    guarded(server.rings.create(&ring, &draft("20ms"))).await.unwrap();
    let again = guarded(server.rings.create(&ring, &draft("20ms"))).await;
    assert_eq!(again, Err(RingError::RingExists(ring.clone())));
    server.keeps(&ring, &["anna", "bert"], &mut tasks).await;
    let mut feed = server.follow(&main_of(&ring), None).await;
    listen(&mut feed, 70).await;
    guarded(server.rings.delete(&ring)).await.unwrap();
    tasks.shutdown().await;
    while !matches!(next(&mut feed).await.kind, RingEventKind::Closing) {}
    let left = async {
        loop {
            let left = store.scan_all(store::Range::prefix("ring/")).await.unwrap();
            if left.len() == 1 {
                return left[0].key.to_string();
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(guarded(left).await, "ring/generation");
    let gone = guarded(server.rings.hear(&ring, "anna", None)).await;
    assert_eq!(gone, Err(RingError::NoRing(ring.clone())));
    guarded(server.rings.create(&ring, &draft("20ms"))).await.unwrap();
    assert_eq!(guarded(view::members(&store, &ring, "", None, 10)).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_the_next_member_passed_over() {
    let (store, ring) = (memory(), ring());
    let (server, mut tasks, main) =
        (Server::start(&store, "s").await, JoinSet::new(), main_of(&ring));
    guarded(server.rings.create(&ring, &draft("1h"))).await.unwrap();
    let nobody = guarded(server.rings.pass_over(&main)).await;
    assert!(matches!(nobody, Err(RingError::NoMember { .. })), "{nobody:?}");
    server.keeps(&ring, &["anna", "bert"], &mut tasks).await;
    assert_eq!(guarded(server.rings.pass_over(&main)).await, Ok("anna".into()));
    assert_eq!(guarded(server.rings.pass_over(&main)).await, Ok("bert".into()));
    let view = guarded(view::subscription(&store, &main)).await.unwrap();
    assert_eq!((&*view.position, view.number), ("bert", 2));
    let former = Expected::Revision { generation: view.generation, revision: view.revision };
    let put = |every| guarded(server.rings.put(&main, every, former));
    let (quick, slow) = (draft("2h"), draft("3h"));
    assert_eq!(put(&quick).await, Ok(Put::Changed));
    assert_eq!(put(&slow).await, Err(RingError::Changed));
    let same = guarded(server.rings.put(&main, &quick, Expected::Anything)).await;
    assert_eq!(same, Ok(Put::Same));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_store_forgot_is_told_under_another_generation() {
    let memory = Arc::new(MemoryStore::of_class(Class::B));
    let (store, ring) = (Store::shared(memory.clone()), ring());
    let (server, main, mut tasks) =
        (Server::start(&store, "s").await, main_of(&ring), JoinSet::new());
    guarded(server.rings.create(&ring, &draft("100ms"))).await.unwrap();
    server.keeps(&ring, &["anna", "bert"], &mut tasks).await;
    let mut feed = server.follow(&main, None).await;
    let former = listen(&mut feed, 10).await;
    let last = *former.keys().last().unwrap();
    assert!(memory.fail_over(3) > 0);
    let mut told = Vec::new();
    let renewed = loop {
        let event = next(&mut feed).await;
        if let Some(cursor) = event.cursor.filter(|cursor| cursor.generation != last.generation) {
            break cursor;
        }
        told.push(event);
        assert!(told.len() < 100, "{:?}", &told[80..]);
    };
    assert!(renewed.generation > last.generation + last.number, "{renewed:?}");
    assert_eq!(renewed.number, 1);
}

/// What thousands of rings cost. Printed; judged by `docs/benchmarks.md`.
#[tokio::test]
#[ignore = "long: measures"]
async fn a_thousand_rings_at_a_second_measured() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = store::file::Sizes::default();
    let store = Store::new(store::file::FileStore::open_or_create(dir.path(), sizes).unwrap());
    let server = Server::start(&store, "s").await;
    for number in 0..1_000 {
        let ring = RingId::new("default", &format!("ring-{number}")).unwrap();
        guarded(server.rings.create(&ring, &draft("1s"))).await.unwrap();
        for member in ["anna", "bert", "cleo"] {
            guarded(server.rings.hear(&ring, member, None)).await.unwrap();
        }
    }
    // Nobody beats: the first seconds are what is measured.
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (clock, before, stats) = (Stopwatch::start(), cpu(), server.rings.stats());
    let from = stats.borrow().clone();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (took, after, to) = (clock.elapsed(), cpu(), stats.borrow().clone());
    let busy = Duration::try_from(after).unwrap() - Duration::try_from(before).unwrap();
    let (turns, tries) = (to.turns - from.turns, to.tries - from.tries);
    println!(
        "{turns} turns in {took:?}: {:.1} % of a core, {:.3} tries a turn, {} looks, late {:?}",
        busy.as_secs_f64() / took.as_secs_f64() * 100.0,
        tries as f64 / turns as f64,
        to.looks - from.looks,
        to.late
    );
}
