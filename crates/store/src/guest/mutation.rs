//! Every allowed commit, changed in some way: what is still let through does no harm.
//!
//! The rules are stated here once more, from the other side: not what a commit looks like, but what it must not do to
//! the store. Whatever comes through is carried out on a store with others in it, and then looked at.

use engine::lease::Nonce;
use proptest::prelude::*;

use super::tests::{KEY, PROJECT, allowed, guest, head, session, through};
use super::*;
use crate::claim::ClaimState;
use crate::session::NodeId;
use crate::{Value, Version};

/// One way to spoil a commit.
#[derive(Debug, Clone)]
enum Spoil {
    DropCondition(usize),
    SwapConditions,
    Turn(usize, u8),
    Rename(usize, usize),
    DropWrite(usize),
    AddWrite(usize),
    Say(usize, usize),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    prop_oneof![
        (0..3_usize).prop_map(Spoil::DropCondition),
        Just(Spoil::SwapConditions),
        (0..3_usize, 0..4_u8).prop_map(|(at, how)| Spoil::Turn(at, how)),
        (0..6_usize, 0..12_usize).prop_map(|(at, to)| Spoil::Rename(at, to)),
        (0..3_usize).prop_map(Spoil::DropWrite),
        (0..12_usize).prop_map(Spoil::AddWrite),
        (0..3_usize, 0..16_usize).prop_map(|(at, what)| Spoil::Say(at, what)),
    ]
}

/// Keys that matter, ours and others'.
fn keys() -> Vec<Key> {
    let server = SessionKey::new(&NodeId::new("server-1").unwrap(), 7);
    [
        session(PROJECT, 1).to_string(),
        session(PROJECT, 2).to_string(),
        session(PROJECT, 3).to_string(),
        session("other", 1).to_string(),
        server.to_string(),
        "election/shop/nightly".into(),
        "election/shop/other".into(),
        "election/other/nightly".into(),
        "election/shop/nightly/wish".into(),
        "election/shop/nightly/approval".into(),
        "node/~longest".into(),
        "access/key/key_mine".into(),
    ]
    .map(|key: String| Key::new(key).unwrap())
    .to_vec()
}

/// Values that somebody might try.
fn value(what: usize) -> Value {
    let (mine, theirs) = (session(PROJECT, 1), session(PROJECT, 3));
    let head = |change: &dyn Fn(&mut Head)| {
        let mut told = Head { number: 5, ..head(Some(&mine)) };
        change(&mut told);
        told.to_value()
    };
    match what {
        0 => Value::from("rubbish"),
        1 => head(&|head| head.token = 10),
        2 => head(&|head| head.token = u64::MAX / 2),
        3 => head(&|head| head.session = Some(theirs.clone())),
        4 => head(&|head| (head.session, head.state) = (None, ClaimState::Free)),
        5 => head(&|head| head.token = 3),
        6 => head(&|head| head.token = 12),
        7 => head(&|head| head.state = ClaimState::Free),
        8 => head(&|head| head.number = 4),
        9 => head(&|head| (head.token, head.session) = (11, None)),
        10 => Value::from(r#"{"format":1,"ttl_ms":3600000}"#),
        11 => Value::from(r#"{"format":1,"ttl_ms":500}"#),
        12 => Value::from(r#"{"format":1,"token":10,"by":"x"}"#),
        13 => head(&|head| (head.token, head.session) = (11, Some(theirs.clone()))),
        14 => head(&|head| (head.token, head.session) = (11, Some(session(PROJECT, 2)))),
        _ => Value::from(
            r#"{"format":1,"roles":[],"ttl_ms":3000,"beat":1,"nonce":"1","wall_us":1,"reads":1,"local":true}"#,
        ),
    }
}

fn apply(commit: &mut Commit, spoil: &Spoil) {
    let turn = |key: Key, how| match how {
        0 => Condition::Absent(key),
        1 => Condition::Present(key),
        2 => Condition::At(key, Version(3)),
        _ => Condition::At(key, Version(2)),
    };
    match *spoil {
        Spoil::DropCondition(at) if at < commit.when.len() => drop(commit.when.remove(at)),
        Spoil::SwapConditions => commit.when.reverse(),
        Spoil::Turn(at, how) if at < commit.when.len() => {
            commit.when[at] = turn(commit.when[at].key().clone(), how);
        }
        Spoil::Rename(at, to) if at < 3 && at < commit.when.len() => {
            let key = keys().swap_remove(to);
            commit.when[at] = match &commit.when[at] {
                Condition::Absent(_) => Condition::Absent(key),
                Condition::Present(_) => Condition::Present(key),
                Condition::At(_, version) => Condition::At(key, *version),
            };
        }
        Spoil::Rename(at, to) if (3..3 + commit.then.len()).contains(&at) => {
            let key = keys().swap_remove(to);
            commit.then[at - 3] = match &commit.then[at - 3] {
                Write::Put(_, value) => Write::Put(key, value.clone()),
                Write::Delete(_) => Write::Delete(key),
            };
        }
        Spoil::DropWrite(at) if at < commit.then.len() => drop(commit.then.remove(at)),
        Spoil::AddWrite(to) => commit.then.push(Write::Delete(keys().swap_remove(to))),
        Spoil::Say(at, what) if at < commit.then.len() => {
            commit.then[at] = Write::Put(commit.then[at].key().clone(), value(what));
        }
        _ => {}
    }
}

/// Carries a commit out.
fn carry_out(store: &BTreeMap<Key, Entry>, commit: &Commit) -> Option<BTreeMap<Key, Entry>> {
    let judged: Result<(), crate::Conflict> =
        commit.judge(|key| Ok(store.get(key).map(|entry| entry.version)));
    judged.ok()?;
    let mut after = store.clone();
    for write in &commit.then {
        match write {
            Write::Put(key, value) => {
                let entry = Entry { key: key.clone(), value: value.clone(), version: Version(9) };
                after.insert(key.clone(), entry);
            }
            Write::Delete(key) => drop(after.remove(key)),
        }
    }
    Some(after)
}

/// Beside what is there: sessions of others, one of which has another election of ours.
fn with_others(mut store: BTreeMap<Key, Entry>) -> BTreeMap<Key, Entry> {
    let server = SessionKey::new(&NodeId::new("server-1").unwrap(), 7);
    let theirs = session(PROJECT, 3);
    let record = |key: &str| {
        Value::from(format!(
            r#"{{"format":1,"roles":[],"ttl_ms":3000,"beat":1,"nonce":"1","wall_us":1,"reads":1,"local":false,"key":"{key}","candidacies":["shop/other"]}}"#
        ))
    };
    let other = Key::new("election/shop/other").unwrap();
    let foreign = Key::new("election/other/nightly").unwrap();
    let longest = Value::from(r#"{"format":1,"ttl_ms":3000}"#);
    for (key, value) in [
        (server.key().clone(), record("key_server")),
        (theirs.key().clone(), record("key_other")),
        (session("other", 1).key().clone(), record(KEY)),
        (other, head(Some(&theirs)).to_value()),
        (foreign, head(Some(&session("other", 1))).to_value()),
    ] {
        store.entry(key.clone()).or_insert(Entry { key, value, version: Version(3) });
    }
    if !store.is_empty() {
        let key = Longest::key();
        let entry = Entry { key: key.clone(), value: longest, version: Version(3) };
        store.entry(key).or_insert(entry);
    }
    store
}

/// What must hold of what somebody made of a store.
fn check(before: &BTreeMap<Key, Entry>, after: &BTreeMap<Key, Entry>) -> Result<(), String> {
    let keys: std::collections::BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            check_key(key, old, new, before).map_err(|why| format!("{key}: {why}"))?;
        }
    }
    Ok(())
}

fn check_key(
    key: &Key,
    old: Option<&Entry>,
    new: Option<&Entry>,
    before: &BTreeMap<Key, Entry>,
) -> Result<(), String> {
    let ensure = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
    let owner = |entry: &Entry| SessionRecord::from_value(&entry.value).ok()?.key;
    if *key == Longest::key() {
        let ttl = |entry: &Entry| Longest::from_value(&entry.value).ok()?.ttl();
        let (old, new) = (old.and_then(ttl), new.and_then(ttl));
        let most = Ttl::new(GUEST_TTL_MAX).ok();
        return ensure(new >= old && new <= most, "the longest T was lowered, or raised too far");
    }
    if key.as_str().starts_with("node/") {
        let session = SessionKey::try_from(key).map_err(|why| why.to_string())?;
        ensure(session.guest() == Some(PROJECT), "another project's session, or a server's")?;
        ensure(old.is_none_or(|old| owner(old).as_deref() == Some(KEY)), "another key's session")?;
        let Some(new) = new else { return Ok(()) };
        let record = SessionRecord::from_value(&new.value).map_err(|why| why.to_string())?;
        ensure(record.key.as_deref() == Some(KEY) && !record.local, "a record that lies")?;
        let former = old.and_then(|old| SessionRecord::from_value(&old.value).ok());
        return ensure(former.is_none_or(|old| old.ttl_ms == record.ttl_ms), "T has changed");
    }
    ensure(key.as_str().starts_with("election/shop/"), "none of our business")?;
    if key.as_str().ends_with("/wish") || key.as_str().ends_with("/approval") {
        return ensure(key.as_str().ends_with("/wish") || new.is_none(), "an approval");
    }
    let head = |entry: Option<&Entry>| {
        entry.map_or_else(|| Ok(Head::first()), |entry| Head::from_value(&entry.value))
    };
    let (old, new) =
        (head(old).map_err(|why| why.to_string())?, head(new).map_err(|why| why.to_string())?);
    ensure(new.number == old.number + 1, "the chain is broken")?;
    let mine = session(PROJECT, 1);
    let alive = old.session.as_ref().is_some_and(|holder| before.contains_key(holder.key()));
    ensure(!alive || old.session == Some(mine.clone()), "a live holder lost it")?;
    let has_changed = new.session != old.session && new.session.is_some();
    let candidacy = key.as_str().trim_start_matches("election/");
    let is_candidate = |session: &SessionKey| {
        let record = SessionRecord::from_value(&before.get(session.key())?.value).ok()?;
        Some(record.campaigns_for(candidacy))
    };
    // Its holder may choose one of those who want it.
    let is_chosen = alive && new.session.as_ref().and_then(is_candidate) == Some(true);
    ensure(
        !has_changed || is_chosen || new.session == Some(mine),
        "somebody else was made its holder",
    )?;
    let may_keep = new.session.is_none() || !has_changed;
    ensure(
        new.token > old.token || (new.token == old.token && may_keep),
        "its token does not grow",
    )?;
    ensure(new.token == old.token || new.session.is_some(), "a token that nobody has")
}

#[test]
fn the_checker_notices_what_it_is_for() {
    let store = with_others(allowed().swap_remove(9).2);
    let spoilt = |change: &dyn Fn(&mut BTreeMap<Key, Entry>)| {
        let mut after = store.clone();
        change(&mut after);
        check(&store, &after).is_err()
    };
    let key = |text: &str| Key::new(text).unwrap();
    let put = |after: &mut BTreeMap<Key, Entry>, key: Key, value: Value| {
        after.insert(key.clone(), Entry { key, value, version: Version(9) });
    };
    let other = key("election/shop/other");
    let free = Head { number: 5, nonce: Nonce(2), ..head(None) }.to_value();
    assert!(spoilt(&|after| drop(after.remove(session(PROJECT, 3).key()))));
    assert!(spoilt(&|after| drop(after.remove(&key("node/server-1/0000000000000007")))));
    assert!(spoilt(&|after| put(after, other.clone(), free.clone())));
    assert!(spoilt(&|after| put(after, key("access/key/x"), Value::default())));
    assert!(spoilt(&|after| put(after, Longest::key(), value(11))));
    assert!(spoilt(&|after| put(after, session(PROJECT, 5).key().clone(), value(13))));
    assert!(!spoilt(&|after| drop(after.remove(session(PROJECT, 1).key()))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]
    #[test]
    fn what_comes_through_touches_nothing_of_others(
        which in 0..13_usize, spoils in prop::collection::vec(spoil(), 0..4),
    ) {
        let (_, mut commit, store) = allowed().swap_remove(which);
        let store = with_others(store);
        for spoil in &spoils {
            apply(&mut commit, spoil);
        }
        if commit.check(&crate::Limits { writes: 64, commit_bytes: 98_304, value_bytes: 32_768 }).is_ok()
            && let Ok(done) = through(&commit, &guest(), &store)
            && let Some(after) = carry_out(&store, &done)
        {
            prop_assert_eq!(check(&store, &after), Ok(()), "{:?}", spoils);
        }
    }
}
