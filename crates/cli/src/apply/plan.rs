//! What there is, what files want, and so what is to be done.
//!
//! Triggers are listed in pages rather than asked for one by one, unless the files name few or the server has
//! far more than they name: a thousand triggers take two requests.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use client::trigger::Trigger;
use client::{Client, ClientError, TriggerFilter};
use engine::instant::Instant;
use engine::limits::LIST_ROWS_MAX;
use engine::trigger::{Definition, Draft};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::file::{Wanted, draft};
use crate::exit::Ending;

/// Requests that are under way at a time.
const REQUESTS_MAX: usize = 16;

/// Triggers that are asked for one by one: as many requests as that are quick.
const SINGLE_MAX: usize = 8;

/// A page of a list is worth so many requests for single triggers.
const PAGE_WORTH: usize = 50;

/// What becomes of one trigger.
#[derive(Debug)]
pub(super) struct ApplyStep {
    pub(super) name: String,
    pub(super) change: ApplyChange,
    /// What there is, and what that means.
    pub(super) found: Option<FoundTrigger>,
    pub(super) wanted: Option<Wanted>,
}

/// A trigger as the server has it.
#[derive(Debug)]
pub(super) struct FoundTrigger {
    pub(super) trigger: Trigger,
    pub(super) definition: Definition,
    draft: Draft,
}

/// What is to be done with a trigger.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyChange {
    Create,
    Update(Vec<FieldChange>),
    Unchanged,
    Delete,
    /// The server would not do it.
    Refused(String),
}

/// A field that changes, with its old and its new text where these may be shown.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct FieldChange {
    pub(super) field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<String>,
}

/// What is to be done, in the order of names; deletions last.
pub(super) async fn make(
    client: &Client,
    wanted: Vec<Wanted>,
    prune: Option<&[String]>,
) -> Result<Vec<ApplyStep>, Ending> {
    let mut wanted: BTreeMap<String, Wanted> =
        wanted.into_iter().map(|wanted| (wanted.name.clone(), wanted)).collect();
    let names: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
    let mut found = find(client, &names).await?;
    let mut deleted = match prune {
        Some(labels) => labelled(client, labels).await?,
        None => Vec::new(),
    };
    deleted.retain(|trigger| !wanted.contains_key(&trigger.name));
    let mut steps = Vec::new();
    let mut stale = Vec::new();
    while let Some((name, wanted)) = wanted.pop_first() {
        let found = found.remove(&name).map(read).transpose()?;
        if let Some(why) = &wanted.stale
            && found.as_ref().is_none_or(|found| !is_same_text(&wanted, found))
        {
            stale.push(format!("trigger {name:?}: /schedule: {why}"));
        }
        let change = change(&wanted, found.as_ref());
        steps.push(ApplyStep { name, change, found, wanted: Some(wanted) });
    }
    if !stale.is_empty() {
        stale.push("nothing was sent".to_owned());
        return Err(Ending::wrong_input(stale.join("\nwatchbell: ")));
    }
    for trigger in deleted {
        let (name, change) = (trigger.name.clone(), ApplyChange::Delete);
        steps.push(ApplyStep { name, change, found: Some(read(trigger)?), wanted: None });
    }
    Ok(steps)
}

/// A schedule that was good stays good, also when it is over.
fn is_same_text(wanted: &Wanted, found: &FoundTrigger) -> bool {
    draft(&wanted.spec).is_some_and(|wanted| wanted.schedule == found.draft.schedule)
}

fn read(trigger: Trigger) -> Result<FoundTrigger, Ending> {
    let draft = draft(&trigger.spec);
    let built = draft.and_then(|draft| Some((draft.build(Instant(0)).ok()?, draft)));
    match built {
        Some((definition, draft)) => Ok(FoundTrigger { trigger, definition, draft }),
        None => Err(Ending::failed(format!(
            "the trigger {:?} is one that this version does not understand: use that of the server",
            trigger.name
        ))),
    }
}

fn change(wanted: &Wanted, found: Option<&FoundTrigger>) -> ApplyChange {
    let Some(found) = found else { return ApplyChange::Create };
    if wanted.spec == found.trigger.spec || wanted.definition == found.definition {
        return ApplyChange::Unchanged;
    }
    if found.trigger.cancelled.is_some() {
        let why = "it is cancelled, and that is for good: delete it, or take it out of the file";
        return ApplyChange::Refused(why.to_owned());
    }
    ApplyChange::Update(fields(&found.trigger.spec, &wanted.spec))
}

/// The fields in which two texts differ.
pub(super) fn fields<T: Serialize>(old: &T, new: &T) -> Vec<FieldChange> {
    let (old, new) = (leaves(old), leaves(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |name: &&&String| old.get(**name) != new.get(**name);
    let tell = |name: &String| {
        // Headers, and bodies, may be secret.
        let is_secret = name.starts_with("webhook.headers.")
            || name.starts_with("webhook.secret_headers.")
            || name == "webhook.body"
            || name.starts_with("queue.payload")
            || name.starts_with("queue.command.");
        let text = |value: Option<&Value>| value.filter(|_| !is_secret).map(text_of);
        FieldChange { field: name.clone(), old: text(old.get(name)), new: text(new.get(name)) }
    };
    names.iter().filter(differs).map(|name| tell(name)).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every field with its value, by its name with dots. Lists are one value.
fn leaves(spec: &impl Serialize) -> BTreeMap<String, Value> {
    fn add(name: &str, value: Value, leaves: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    add(&format!("{name}{dot}{field}"), value, leaves);
                }
            }
            leaf => {
                leaves.insert(name.to_owned(), leaf);
            }
        }
    }
    let mut all = BTreeMap::new();
    add("", serde_json::to_value(spec).expect("a spec always serializes"), &mut all);
    all
}

/// Those of these names that there are.
async fn find(
    client: &Client,
    names: &BTreeSet<&str>,
) -> Result<BTreeMap<String, Trigger>, ClientError> {
    let mut found = BTreeMap::new();
    let mut rest: Vec<&str> = names.iter().copied().collect();
    if names.len() > SINGLE_MAX {
        let last = rest.last().copied().unwrap_or_default();
        let prefix = Some(common_prefix(&rest)).filter(|prefix| !prefix.is_empty());
        let mut filter = TriggerFilter {
            prefix: prefix.map(str::to_owned),
            limit: Some(LIST_ROWS_MAX),
            ..TriggerFilter::default()
        };
        for _ in 0..=names.len() / PAGE_WORTH {
            let page = client.triggers(&filter).await?;
            let wanted = |trigger: &Trigger| names.contains(trigger.name.as_str());
            let wanted = page.items.into_iter().filter(wanted);
            found.extend(wanted.map(|trigger| (trigger.name.clone(), trigger)));
            // A page ends at the name from which on the next one goes on.
            let Some(next) = page.next.filter(|next| next.as_str() < last) else {
                return Ok(found);
            };
            rest.retain(|name| *name > next.as_str());
            filter.cursor = Some(next);
        }
    }
    let asked = each(rest.iter().map(|name| (*name).to_owned()).collect(), |name: String| {
        let client = client.clone();
        async move { client.trigger(&name).await }
    });
    for answer in asked.await {
        match answer {
            Ok(trigger) => {
                found.insert(trigger.name.clone(), trigger);
            }
            Err(ClientError::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(found)
}

fn common_prefix<'a>(sorted: &[&'a str]) -> &'a str {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return "" };
    let same = first.bytes().zip(last.bytes()).take_while(|(one, other)| one == other).count();
    &first[..same]
}

/// All triggers that carry these labels.
async fn labelled(client: &Client, labels: &[String]) -> Result<Vec<Trigger>, ClientError> {
    let mut filter = TriggerFilter {
        labels: labels.to_vec(),
        limit: Some(LIST_ROWS_MAX),
        ..TriggerFilter::default()
    };
    let mut all = Vec::new();
    loop {
        let page = client.triggers(&filter).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Does something with each, a few at a time; what came of them, in the order in which they were given.
pub(super) async fn each<T, R, F>(items: Vec<T>, call: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let mut tasks: JoinSet<(usize, R)> = JoinSet::new();
    let mut answers: BTreeMap<usize, R> = BTreeMap::new();
    let mut items = items.into_iter().enumerate();
    loop {
        while tasks.len() < REQUESTS_MAX
            && let Some((number, item)) = items.next()
        {
            let called = call(item);
            tasks.spawn(async move { (number, called.await) });
        }
        let Some(ended) = tasks.join_next().await else { break };
        let (number, answer) = ended.expect("a request does not panic");
        answers.insert(number, answer);
    }
    answers.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::spec::TriggerSpec;

    #[test]
    fn fields_that_differ_are_told_and_secrets_are_not() {
        let old = TriggerSpec::webhook("a", "http://x.example").cron("0 9 * * *");
        let mut new =
            TriggerSpec::webhook("a", "http://y.example").cron("0 9 * * *").cron("@daily");
        let webhook = new.webhook.as_mut().unwrap();
        webhook.headers.insert("authorization".to_owned(), "Bearer secret".to_owned());
        webhook.secret_headers.insert("x-key".to_owned(), "secret".to_owned());
        webhook.body = Some("secret".to_owned());
        new.labels.insert("team".to_owned(), "billing".to_owned());
        let told = serde_json::to_value(fields(&old, &new)).unwrap();
        assert_eq!(
            told,
            serde_json::json!([
                {"field": "labels.team", "new": "billing"},
                {"field": "schedule.cron", "old": "0 9 * * *", "new": "[\"0 9 * * *\",\"@daily\"]"},
                {"field": "webhook.body"},
                {"field": "webhook.headers.authorization"},
                {"field": "webhook.secret_headers.x-key"},
                {"field": "webhook.url", "old": "http://x.example", "new": "http://y.example"},
            ])
        );
    }

    #[test]
    fn names_share_what_the_first_and_the_last_share() {
        assert_eq!(common_prefix(&["report-a", "report-b", "reset"]), "re");
        assert_eq!(common_prefix(&["a"]), "a");
        assert_eq!(common_prefix(&["a", "b"]), "");
    }

    #[tokio::test]
    async fn few_are_done_at_a_time_and_answers_come_in_order() {
        let (most, now) = (std::sync::Arc::new(std::sync::Mutex::new((0, 0))), 100);
        let answers = each((0..now).collect(), |number: usize| {
            let most = std::sync::Arc::clone(&most);
            async move {
                {
                    let mut most = most.lock().unwrap();
                    most.1 += 1;
                    most.0 = most.0.max(most.1);
                }
                tokio::task::yield_now().await;
                most.lock().unwrap().1 -= 1;
                number
            }
        })
        .await;
        assert_eq!(answers, (0..now).collect::<Vec<_>>());
        assert!((1..=REQUESTS_MAX).contains(&most.lock().unwrap().0));
    }
}
