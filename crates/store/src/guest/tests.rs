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
        candidacies: vec!["shop/nightly".into()],
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
        ("wish", claim.wishing(10, Some(former.node()), "me"), with(&held)),
        (
            "hand over",
            Commit::new()
                .when(Condition::At(claim.key().clone(), Version(3)))
                .when(Condition::Present(former.key().clone()))
                .put(
                    claim.key().clone(),
                    Head { session: Some(former.clone()), ..won(&held) }.to_value(),
                ),
            seen(&[
                (&key, own.clone()),
                (former.key(), record(Some("key_other")).to_value()),
                (claim.key(), held.to_value()),
            ]),
        ),
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
fn a_holder_hands_over_to_whoever_campaigns_for_it_and_to_nobody_else() {
    let (_, hand_over, store) = allowed().pop().unwrap();
    let successor = session(PROJECT, 2).key().clone();
    let with = |change: &dyn Fn(&mut SessionRecord)| {
        let mut told = record(Some("key_other"));
        change(&mut told);
        let mut store = store.clone();
        store.extend(seen(&[(&successor, told.to_value())]));
        through(&hand_over, &guest(), &store)
    };
    let done = with(&|_| {}).unwrap();
    let holder = Condition::Present(session(PROJECT, 1).key().clone());
    assert_eq!(done.when[2..], [holder], "while the holder has it");
    let refused = |judged| matches!(judged, Err(GuestRefusal::Denied(_)));
    assert!(refused(with(&|record| record.candidacies = vec!["shop/other".into()])));
    assert!(refused(with(&|record| record.joining = true)));

    let mut gone = store.clone();
    gone.remove(&successor);
    let conflict = Err(GuestRefusal::Conflict { condition: 1, found: None });
    assert_eq!(through(&hand_over, &guest(), &gone), conflict, "it is told who is gone");
    let asked = GuestCommit::of(&hand_over, PROJECT).unwrap();
    assert_eq!(asked.needs(&GuestReads::new()), Some(successor), "it is read before the head");

    // Whoever uses the store itself may be given it too, if it says that it wants it.
    let server = SessionKey::new(&NodeId::new("server-1").unwrap(), 7);
    let mut commit = hand_over.clone();
    let Write::Put(_, value) = &commit.then[0] else { panic!("it is written") };
    let head = Head { session: Some(server.clone()), ..Head::from_value(value).unwrap() };
    commit.when[1] = Condition::Present(server.key().clone());
    commit.then[0] = Write::Put(claim().key().clone(), head.to_value());
    for (candidacies, is_given) in [(vec!["shop/nightly".into()], true), (vec![], false)] {
        let mut store = store.clone();
        let told = SessionRecord { candidacies, ..record(None) };
        store.extend(seen(&[(server.key(), told.to_value())]));
        assert_eq!(through(&commit, &guest(), &store).is_ok(), is_given);
    }
}

#[test]
fn a_wish_keeps_whom_it_names() {
    let (_, wish, store) = allowed().swap_remove(11);
    let done = through(&wish, &guest(), &store).unwrap();
    assert_eq!(done, wish);
    let text = r#"{"format":1,"token":10,"by":"me","to":"web 1"}"#;
    let key = wish.then[0].key().clone();
    let judged = through(&Commit::new().put(key, text), &guest(), &store);
    assert!(matches!(judged, Err(GuestRefusal::Denied(_))), "{judged:?}");
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
    let names = |count| vec!["shop/nightly".to_owned(); count];
    assert!(open(&|record| record.candidacies = names(GUEST_CANDIDACIES_MAX)));
    assert!(!open(&|record| record.candidacies = names(GUEST_CANDIDACIES_MAX + 1)));
    for bad in ["other/nightly", "shopnightly", "shop/", "shop/a b", "shop/nightly/wish"] {
        assert!(!open(&|record| record.candidacies = vec![bad.into()]), "{bad}");
    }
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
    let candidacies = vec!["other/nightly".into(), "shop/nightly".into(), "shopping/x".into()];
    let url = Some("http://secret".into());
    let told = SessionRecord { url, local: true, candidacies, ..record(None) };
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
    assert_eq!(record.candidacies, ["shop/nightly"], "whom one may hand over to");

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
