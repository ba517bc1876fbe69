//! What a guest may do, and what not, one by one.

use engine::lease::{Nonce, Ttl};
use engine::record::Format;
use proptest::prelude::*;

use super::*;
use crate::claim::{ClaimState, ClaimView};
use crate::session::NodeId;
use crate::{Range, Value};

pub(super) const PROJECT: &str = "shop";
pub(super) const KEY: &str = "key_mine";
const NOW: u64 = 1_800_000_000_000_000;

pub(super) fn guest() -> Guest<'static> {
    Guest { project: PROJECT, key: KEY, author: "me", wall_us: NOW }
}

pub(super) fn session(project: &str, number: u64) -> SessionKey {
    SessionKey::of_guest(&NodeId::new("web-1").unwrap(), project, number)
}

fn record(key: Option<&str>) -> SessionRecord {
    SessionRecord {
        url: None,
        roles: vec!["candidate".into()],
        ttl_ms: 3_000,
        beat: 7,
        nonce: Nonce(5),
        wall_us: NOW,
        reads: Format(1),
        local: false,
        joining: false,
        key: key.map(str::to_owned),
        draining: false,
        unable: Vec::new(),
        version: "0.1.0".into(),
    }
}

pub(super) fn claim() -> Claim {
    claim_of(PROJECT, "nightly").unwrap()
}

/// A head at number 4 and token 10.
pub(super) fn head(holder: Option<&SessionKey>) -> Head {
    let state = if holder.is_some() { ClaimState::Held } else { ClaimState::Free };
    Head { session: holder.cloned(), token: 10, state, number: 4, nonce: Nonce(1), ..Head::first() }
}

/// A store in which these are, at version 3.
pub(super) fn seen(entries: &[(&Key, Value)]) -> BTreeMap<Key, Entry> {
    let entry = |key: &Key, value: &Value| Entry {
        key: key.clone(),
        value: value.clone(),
        version: Version(3),
    };
    entries.iter().map(|(key, value)| ((*key).clone(), entry(key, value))).collect()
}

/// What the server does with a commit.
pub(super) fn through(
    commit: &Commit,
    guest: &Guest<'_>,
    store: &BTreeMap<Key, Entry>,
) -> Result<Commit, GuestRefusal> {
    let asked = GuestCommit::of(commit, guest.project)?;
    let mut seen = GuestReads::new();
    while let Some(key) = asked.needs(&seen) {
        let found = store.get(&key).cloned();
        seen.insert(key, found);
    }
    asked.judge(guest, &seen)
}

/// Everything that is allowed, each with the store that it is allowed in. `mine` has the election in the last ones.
pub(super) fn allowed() -> Vec<(&'static str, Commit, BTreeMap<Key, Entry>)> {
    let (mine, former) = (session(PROJECT, 1), session(PROJECT, 2));
    let own = record(Some(KEY)).to_value();
    let (key, claim) = (mine.key().clone(), claim());
    let sight = |head: &Head, version| ClaimView {
        head: head.clone(),
        version,
        wish: None,
        approval: None,
    };
    let three = Some(Version(3));
    let won = |last: &Head| Head {
        token: last.token + 1,
        number: last.number + 1,
        nonce: Nonce(9),
        ..head(Some(&mine))
    };
    let (free, dead, held) = (head(None), head(Some(&former)), head(Some(&mine)));
    let with = |head: &Head| seen(&[(&key, own.clone()), (claim.key(), head.to_value())]);
    let next = |head: &Head| Head { number: head.number + 1, nonce: Nonce(8), ..head.clone() };
    let moved = |head: &Head| {
        let at = Condition::At(claim.key().clone(), Version(3));
        Commit::new().when(at).put(claim.key().clone(), next(head).to_value())
    };
    let first = Head { token: 1, number: 1, ..head(Some(&mine)) };
    vec![
        (
            "raise",
            Commit::new().when(Condition::Absent(Longest::key())).put(
                Longest::key(),
                Longest::new(Ttl::new(Duration::from_secs(3)).unwrap()).to_value(),
            ),
            seen(&[]),
        ),
        (
            "open",
            Commit::new()
                .when(Condition::Absent(key.clone()))
                .put(key.clone(), record(None).to_value()),
            seen(&[]),
        ),
        (
            "renew",
            Commit::new()
                .when(Condition::At(key.clone(), Version(3)))
                .put(key.clone(), record(None).to_value()),
            seen(&[(&key, own.clone())]),
        ),
        (
            "close",
            Commit::new().when(Condition::Present(key.clone())).delete(key.clone()),
            seen(&[(&key, own.clone())]),
        ),
        (
            "take the first time",
            claim.taking(&sight(&Head::first(), None), &mine, &first),
            seen(&[(&key, own.clone())]),
        ),
        ("take what is free", claim.taking(&sight(&free, three), &mine, &won(&free)), with(&free)),
        (
            "take what a dead one had",
            claim.taking(&sight(&dead, three), &mine, &won(&dead)),
            with(&dead),
        ),
        ("take again", claim.taking(&sight(&held, three), &mine, &won(&held)), with(&held)),
        ("touch", moved(&dead), with(&dead)),
        ("write", moved(&Head { body: None, ..held.clone() }), with(&held)),
        ("release", claim.releasing(&sight(&held, three), Nonce(8)).unwrap(), with(&held)),
        ("wish", claim.wishing(10, "me"), with(&held)),
    ]
}

#[test]
fn what_a_candidate_does_is_done_as_it_was_meant() {
    for (what, commit, store) in allowed() {
        let done =
            through(&commit, &guest(), &store).unwrap_or_else(|why| panic!("{what}: {why:?}"));
        assert_eq!(
            done.when[..commit.when.len()],
            commit.when,
            "{what}: conditions keep their places"
        );
        let keys =
            |commit: &Commit| commit.then.iter().map(|w| w.key().clone()).collect::<Vec<_>>();
        assert_eq!(keys(&done), keys(&commit), "{what}");
    }
}

#[test]
fn a_session_carries_the_key_that_opened_it() {
    let (_, open, store) = allowed().remove(1);
    let done = through(&open, &guest(), &store).unwrap();
    let Write::Put(_, value) = &done.then[0] else { panic!("it is written") };
    assert_eq!(SessionRecord::from_value(value).unwrap().key.as_deref(), Some(KEY));
}

#[test]
fn nothing_of_it_is_done_for_another_project() {
    let other = Guest { project: "other", ..guest() };
    for (what, commit, store) in allowed().split_off(1) {
        let judged = through(&commit, &other, &store);
        assert!(matches!(judged, Err(GuestRefusal::Denied(_))), "{what}: {judged:?}");
    }
}

#[test]
fn another_key_of_the_project_may_not_use_a_session() {
    let other = Guest { key: "key_other", ..guest() };
    for (what, commit, store) in allowed() {
        let judged = through(&commit, &other, &store);
        let is_free = ["raise", "open", "touch", "wish"].contains(&what);
        assert_eq!(judged.is_ok(), is_free, "{what}: {judged:?}");
    }
}

#[test]
fn a_session_that_is_gone_is_a_conflict_and_so_is_a_head_that_moved() {
    for (what, commit, mut store) in allowed() {
        if ["raise", "open", "wish", "touch"].contains(&what) {
            continue;
        }
        let full = store.clone();
        store.remove(session(PROJECT, 1).key());
        let judged = through(&commit, &guest(), &store);
        // A head that nobody has can be written as it is, by anybody of the project.
        let is_touch = what == "write";
        assert_eq!(
            matches!(judged, Err(GuestRefusal::Conflict { .. })),
            !is_touch,
            "{what}: {judged:?}"
        );
        let mut moved = full;
        for entry in moved.values_mut() {
            entry.version = Version(4);
        }
        if what == "close" || what == "take the first time" {
            continue;
        }
        let conflict = Err(GuestRefusal::Conflict { condition: 0, found: Some(Version(4)) });
        assert_eq!(through(&commit, &guest(), &moved), conflict, "{what}");
    }
}

#[test]
fn what_a_live_holder_has_is_not_touched_by_others() {
    let theirs = session(PROJECT, 2);
    let mut store = allowed().remove(8).2;
    store.extend(seen(&[(theirs.key(), record(Some("key_other")).to_value())]));
    for (what, commit, _) in allowed() {
        if !["touch", "take what is free", "release"].contains(&what) {
            continue;
        }
        let judged = through(&commit, &guest(), &store);
        assert!(matches!(judged, Err(GuestRefusal::Denied(_))), "{what}: {judged:?}");
    }
    // It may be asked for while its holder lives: that it does not is left to the store to judge.
    let take = &allowed()[6].1;
    let done = through(take, &guest(), &store).unwrap();
    assert_eq!(done.when[1], Condition::Absent(theirs.key().clone()));
}

#[test]
fn the_sessions_of_servers_are_out_of_reach() {
    let server = SessionKey::new(&NodeId::new("server-1").unwrap(), 7);
    let key = server.key().clone();
    let store = seen(&[(&key, record(Some(KEY)).to_value())]);
    let commits = [
        Commit::new()
            .when(Condition::Absent(key.clone()))
            .put(key.clone(), record(None).to_value()),
        Commit::new()
            .when(Condition::At(key.clone(), Version(3)))
            .put(key.clone(), record(None).to_value()),
        Commit::new().when(Condition::At(key.clone(), Version(3))).delete(key.clone()),
    ];
    for commit in commits {
        assert!(
            matches!(through(&commit, &guest(), &store), Err(GuestRefusal::Denied(_))),
            "{commit:?}"
        );
    }
}

#[test]
fn limits_hold_and_one_past_them_is_refused() {
    let open = |change: &dyn Fn(&mut SessionRecord)| {
        let key = session(PROJECT, 1).key().clone();
        let mut told = record(None);
        change(&mut told);
        let commit = Commit::new().when(Condition::Absent(key.clone())).put(key, told.to_value());
        through(&commit, &guest(), &seen(&[])).is_ok()
    };
    let most = u64::try_from(GUEST_TTL_MAX.as_millis()).unwrap();
    assert!(open(&|record| record.ttl_ms = most) && !open(&|record| record.ttl_ms = most + 1));
    assert!(open(&|record| record.ttl_ms = 500) && !open(&|record| record.ttl_ms = 499));
    let text = |len: usize| "x".repeat(len);
    assert!(open(&|record| record.url = Some(text(GUEST_TEXT_BYTES_MAX))));
    assert!(!open(&|record| record.url = Some(text(GUEST_TEXT_BYTES_MAX + 1))));
    assert!(open(&|record| record.roles = vec![text(1); GUEST_ROLES_MAX]));
    assert!(!open(&|record| record.roles = vec![text(1); GUEST_ROLES_MAX + 1]));
    assert!(open(&|record| record.version = text(GUEST_TEXT_BYTES_MAX)));
    assert!(!open(&|record| record.version = text(GUEST_TEXT_BYTES_MAX + 1)));
    assert!(open(&|record| record.unable = vec![1; UNABLE_SHARDS_MAX]));
    assert!(!open(&|record| record.unable = vec![1; UNABLE_SHARDS_MAX + 1]));
    assert!(!open(&|record| record.local = true), "whoever opens the store would bury it at once");

    let (mine, claim) = (session(PROJECT, 1), claim());
    let store =
        seen(&[(mine.key(), record(Some(KEY)).to_value()), (claim.key(), head(None).to_value())]);
    let sight =
        ClaimView { head: head(None), version: Some(Version(3)), wish: None, approval: None };
    let take = |token: u64, body: usize| {
        let body = serde_json::value::to_raw_value(&text(body - 2)).unwrap();
        let head = Head { token, number: 5, body: Some(body), ..head(Some(&mine)) };
        through(&claim.taking(&sight, &mine, &head), &guest(), &store).is_ok()
    };
    let day = NOW + 86_400_000_000;
    assert!(take(11, 10) && !take(10, 10), "a token grows");
    assert!(take(day, 10) && !take(day + 1, 10), "and there is always a next one");
    assert!(take(11, GUEST_BODY_BYTES_MAX) && !take(11, GUEST_BODY_BYTES_MAX + 1));
}

#[test]
fn only_what_concerns_a_project_is_shown() {
    let node = NodeId::new("server-1").unwrap();
    let told = SessionRecord { url: Some("http://secret".into()), local: true, ..record(None) };
    let entry = |key: &SessionKey| Entry {
        key: key.key().clone(),
        value: told.to_value(),
        version: Version(1),
    };
    let own = entry(&session(PROJECT, 1));
    assert_eq!(shown(own.clone(), PROJECT), Some(own));
    assert_eq!(shown(entry(&session("other", 1)), PROJECT), None);
    let server = shown(entry(&SessionKey::new(&node, 1)), PROJECT).unwrap();
    let record = SessionRecord::from_value(&server.value).unwrap();
    assert_eq!((record.ttl_ms, record.url, record.roles), (3_000, None, vec![]));

    let may = |range: &Range| may_scan(range, PROJECT).is_ok();
    assert!(may(&Range::prefix("node/")) && may(&Range::prefix("election/shop/")));
    assert!(may(&Range::only(claim().key())));
    for prefix in
        ["", "election/", "election/shop", "election/other/", "access/", "nod", "scratch/"]
    {
        assert!(!may(&Range::prefix(prefix)), "{prefix:?}");
    }
}

proptest! {
    #[test]
    fn rubbish_is_no_deed(key in "[!-~]{1,40}", value in "[ -~]{0,40}") {
        let key = Key::new(key).unwrap();
        for commit in [Commit::new().put(key.clone(), value), Commit::new().delete(key)] {
            prop_assert!(through(&commit, &guest(), &seen(&[])).is_err());
        }
    }
}
