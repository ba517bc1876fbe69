//! `watchbell ring apply`: files say which rings there shall be, with which subscriptions.
//!
//! The same files, the same look and the same care as for queues. A ring is named with what its subscription `main` is to be, and
//! further subscriptions stand below it by name. Rings are made before their subscriptions; members are nobody's to say.

use std::collections::BTreeMap;

use client::ring::{MAIN, Ring, SubscriptionSpec};
use client::{Client, ClientError, RingFilter};
use engine::instant::Instant;
use engine::limits::LIST_ROWS_MAX;
use engine::ring::{SubscriptionConfig, SubscriptionDraft};
use engine::trigger::{BadField, check_name};
use serde_json::Value;
use server::api::pointer;

use super::file::{self, FileItem};
use super::plan::each;
use super::show::{self, ApplyRow};
use super::stdin_once;
use super::step::{self, SpecChange, SpecStep};
use crate::args::ring::RingApplyArgs;
use crate::cron::now;
use crate::exit::Ending;

/// A ring that a file wants.
#[derive(Debug)]
struct WantedRing {
    name: String,
    /// By name, with `main`.
    subscriptions: BTreeMap<String, WantedSubscription>,
}

/// What a file says of a subscription, to be sent and compared.
#[derive(Debug)]
struct WantedSubscription {
    spec: SubscriptionSpec,
    config: SubscriptionConfig,
}

type RingStep = SpecStep<SubscriptionSpec>;
type RingChange = SpecChange<SubscriptionSpec>;

impl FileItem for WantedRing {
    const WORD: &'static str = "ring";
    const LIST: &'static str = "rings";

    fn name(&self) -> &str {
        &self.name
    }

    fn judge(value: &Value, _: Instant) -> Result<Self, Vec<BadField>> {
        let Value::Object(fields) = value else {
            return Err(one("", "a ring is an object: name: …, schedule: …"));
        };
        let mut fields = fields.clone();
        let name = match fields.remove("name") {
            Some(Value::String(name)) => name,
            Some(_) => return Err(one("/name", "the name of a ring is a text")),
            None => return Err(one("/name", "a ring in a file has a name")),
        };
        check_name(&name).map_err(|why| one("/name", &why))?;
        let further = match fields.remove("subscriptions") {
            None => serde_json::Map::new(),
            Some(Value::Object(further)) => further,
            Some(_) => {
                let why = "further subscriptions are an object: slow: {schedule: {every: 10m}}";
                return Err(one("/subscriptions", why));
            }
        };
        let mut faults = Vec::new();
        let mut subscriptions = BTreeMap::new();
        let main = subscription(&name, MAIN, Value::Object(fields), "");
        let further = further.into_iter().map(|(sub, value)| {
            let at = format!("/subscriptions/{sub}");
            if sub == MAIN {
                return (sub, Err(one(&at, "the subscription main is the ring itself")));
            }
            if let Err(why) = check_name(&sub) {
                return (sub, Err(one(&at, &why)));
            }
            let read = subscription(&name, &sub, value, &at);
            (sub, read)
        });
        for (sub, read) in [(MAIN.to_owned(), main)].into_iter().chain(further) {
            match read {
                Ok(wanted) => drop(subscriptions.insert(sub, wanted)),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(Self { name, subscriptions }) } else { Err(faults) }
    }
}

fn one(pointer: &str, why: &str) -> Vec<BadField> {
    vec![BadField { pointer: pointer.to_owned(), why: why.to_owned() }]
}

fn subscription(
    ring: &str,
    name: &str,
    text: Value,
    at: &str,
) -> Result<WantedSubscription, Vec<BadField>> {
    let draft: SubscriptionDraft = serde_path_to_error::deserialize(&text).map_err(|error| {
        let why = error.inner().to_string();
        one(&format!("{at}{}", pointer(error.path(), &why)), &why)
    })?;
    let config = draft.build(ring, name, Instant(0)).map_err(|faults| {
        let below =
            |fault: BadField| BadField { pointer: format!("{at}{}", fault.pointer), ..fault };
        faults.into_iter().map(below).collect::<Vec<_>>()
    })?;
    let spec = serde_json::from_value(text)
        .expect("a draft that was built is a spec: a test of the server holds them together");
    Ok(WantedSubscription { spec, config })
}

pub(crate) async fn apply(typed: RingApplyArgs) -> Result<(), Ending> {
    stdin_once(&typed.files)?;
    let wanted: Vec<WantedRing> = file::read_all(&typed.files, now())?;
    let client = typed.server.client()?;
    let steps = plan(&client, wanted, typed.prefix.as_deref().filter(|_| typed.prune)).await?;
    if typed.dry_run {
        return step::dry_run(("rings", &steps), typed.server.output);
    }
    let deletions = steps.iter().filter(|step| step.is_deletion()).count();
    if deletions > 0 {
        let question = format!("Delete {deletions} rings and subscriptions that are in no file?");
        typed.consent.ask(&question, "nothing was sent")?;
    }
    let (rings, further): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(|step| !step.is_deletion() && !step.name.contains('/'));
    let mut rows = step::carry_out(rings, |step| send(client.clone(), step)).await;
    if rows.iter().any(ApplyRow::has_failed) {
        let left = further.iter().map(|step| step.left("others failed"));
        rows.extend(left);
    } else {
        rows.extend(step::carry_out(further, |step| send(client.clone(), step)).await);
    }
    show::rows(("rings", &rows), typed.server.output)
}

/// What is to be done, in the order of names; deletions last. A further subscription is called `ring/subscription`.
async fn plan(
    client: &Client,
    wanted: Vec<WantedRing>,
    prune: Option<&str>,
) -> Result<Vec<RingStep>, Ending> {
    let names: Vec<String> = wanted.iter().map(|wanted| wanted.name.clone()).collect();
    let found = each(names, |name| {
        let client = client.clone();
        async move { client.ring(&name).await }
    });
    let (mut steps, mut unwanted) = (BTreeMap::new(), Vec::new());
    for (wanted, found) in wanted.into_iter().zip(found.await) {
        let found = match found {
            Ok(found) => found.subscriptions,
            Err(ClientError::NotFound(_)) => Vec::new(),
            Err(other) => return Err(other.into()),
        };
        let there = found.iter().map(|one| &one.name);
        let gone = there.filter(|name| !wanted.subscriptions.contains_key(*name));
        unwanted.extend(gone.map(|name| step_name(&wanted.name, name)));
        for (name, subscription) in wanted.subscriptions {
            let found = found.iter().find(|one| one.name == name);
            let change = match found {
                Some(found) => change(subscription, (&wanted.name, &name), &found.spec),
                None => RingChange::Create(subscription.spec),
            };
            steps.insert(step_name(&wanted.name, &name), change);
        }
    }
    let deleted = match prune {
        Some(prefix) => {
            let rings = all(client, prefix).await?.into_iter().map(|ring| ring.name);
            unwanted.extend(rings.filter(|name| !steps.contains_key(name)));
            unwanted
        }
        None => Vec::new(),
    };
    let steps = steps.into_iter().map(|(name, change)| RingStep { name, change });
    let deleted = deleted.into_iter().map(|name| RingStep { name, change: RingChange::Delete });
    Ok(steps.chain(deleted).collect())
}

fn step_name(ring: &str, subscription: &str) -> String {
    if subscription == MAIN { ring.to_owned() } else { format!("{ring}/{subscription}") }
}

fn change(
    wanted: WantedSubscription,
    (ring, name): (&str, &str),
    found: &SubscriptionSpec,
) -> RingChange {
    // What is written otherwise and means the same is the same: 60s and 1m.
    let there = serde_json::to_value(found).ok();
    let there = there.and_then(|text| serde_json::from_value::<SubscriptionDraft>(text).ok());
    if there.and_then(|there| there.build(ring, name, Instant(0)).ok()).as_ref()
        == Some(&wanted.config)
    {
        return RingChange::Unchanged;
    }
    RingChange::to(found, wanted.spec)
}

/// All rings whose names begin so.
async fn all(client: &Client, prefix: &str) -> Result<Vec<Ring>, ClientError> {
    let prefix = Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty());
    let mut filter = RingFilter { prefix, limit: Some(LIST_ROWS_MAX), cursor: None };
    let mut all = Vec::new();
    loop {
        let page = client.rings(&filter).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Sends what is to be done with one.
async fn send(client: Client, step: RingStep) -> ApplyRow {
    let sent = match (&step.change, step.name.split_once('/')) {
        (RingChange::Unchanged, _) => Ok(()),
        (RingChange::Create(spec) | RingChange::Update(spec, _), None) => {
            client.set_ring(&step.name, spec, None).await.map(drop)
        }
        (RingChange::Create(spec) | RingChange::Update(spec, _), Some((ring, name))) => {
            client.set_subscription(ring, name, spec, None).await.map(drop)
        }
        (RingChange::Delete, None) => client.delete_ring(&step.name).await,
        (RingChange::Delete, Some((ring, name))) => client.delete_subscription(ring, name).await,
    };
    step.row(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Result<WantedRing, String> {
        let value = serde_json::from_str(text).unwrap();
        WantedRing::judge(&value, Instant(0))
            .map_err(|faults| format!("{}: {}", faults[0].pointer, faults[0].why))
    }

    #[test]
    fn a_ring_of_a_file_is_judged_as_a_server_would() {
        let text = r#"{"name": "checks", "schedule": {"every": "5s"}, "subscriptions": {"slow": {"schedule": {"every": "10m"}}}}"#;
        let wanted = judge(text).unwrap();
        let names: Vec<&str> = wanted.subscriptions.keys().map(String::as_str).collect();
        assert_eq!((wanted.name.as_str(), names), ("checks", vec!["main", "slow"]));
        for (text, said) in [
            (r#"["checks"]"#, ": a ring is an object"),
            (r#"{"schedule": {"every": "1s"}}"#, "/name: a ring in a file has a name"),
            (r#"{"name": "a b"}"#, "/name: "),
            (r#"{"name": "a", "evry": "1s"}"#, "/evry: unknown field"),
            (r#"{"name": "a"}"#, "/schedule: "),
            (r#"{"name": "a", "schedule": {"every": "1ms"}}"#, "/schedule/every: "),
            (
                r#"{"name": "a", "schedule": {"every": "1s"}, "subscriptions": {"b": {"schedule": {"every": "soon"}}}}"#,
                "/subscriptions/b/schedule/every: ",
            ),
            (
                r#"{"name": "a", "schedule": {"every": "1s"}, "subscriptions": {"main": {}}}"#,
                "/subscriptions/main: ",
            ),
        ] {
            let why = judge(text).unwrap_err();
            assert!(why.starts_with(said), "{text}: {why}");
        }
    }

    #[test]
    fn what_means_the_same_is_left_alone() {
        let mut wanted = judge(r#"{"name": "a", "schedule": {"every": "60s"}}"#).unwrap();
        let main = wanted.subscriptions.remove("main").unwrap();
        let found = SubscriptionSpec::every("1m");
        assert!(matches!(change(main, ("a", "main"), &found), RingChange::Unchanged));
    }
}
