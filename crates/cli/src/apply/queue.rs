//! `watchbell queue apply`: files say which queues there shall be, and what they may.
//!
//! The same files, the same look and the same care as for triggers: everything is read and judged before anything is sent,
//! and what is as it should be is left alone. A queue has no labels, so what may be pruned is said by how names begin; one
//! that has unfinished runs is not deleted, and that is told.

use std::collections::BTreeMap;

use client::queue::{Queue, QueueSpec};
use client::{Client, ClientError, QueueFilter};
use engine::instant::Instant;
use engine::limits::LIST_ROWS_MAX;
use engine::queue::draft::QueueDraft;
use engine::queue::record::QueueSettings;
use engine::trigger::{BadField, check_name};
use serde_json::Value;
use server::api::pointer;

use super::file::{self, FileItem};
use super::plan::each;
use super::show::{self, ApplyRow};
use super::stdin_once;
use super::step::{self, SpecChange, SpecStep};
use crate::args::queue::QueueApplyArgs;
use crate::cron::now;
use crate::exit::Ending;

/// A queue that a file wants.
#[derive(Debug)]
struct WantedQueue {
    name: String,
    /// What the file says, to be sent and compared.
    spec: QueueSpec,
    settings: QueueSettings,
}

impl FileItem for WantedQueue {
    const WORD: &'static str = "queue";
    const LIST: &'static str = "queues";

    fn name(&self) -> &str {
        &self.name
    }

    fn judge(value: &Value, _: Instant) -> Result<Self, Vec<BadField>> {
        let one = |pointer: &str, why: String| vec![BadField { pointer: pointer.to_owned(), why }];
        let Value::Object(fields) = value else {
            return Err(one("", "a queue is an object: name: …, concurrency: …".to_owned()));
        };
        let mut fields = fields.clone();
        let name = match fields.remove("name") {
            Some(Value::String(name)) => name,
            Some(_) => return Err(one("/name", "the name of a queue is a text".to_owned())),
            None => return Err(one("/name", "a queue in a file has a name".to_owned())),
        };
        check_name(&name).map_err(|why| one("/name", why))?;
        let text = Value::Object(fields);
        let draft: QueueDraft = serde_path_to_error::deserialize(&text).map_err(|error| {
            let why = error.inner().to_string();
            one(&pointer(error.path(), &why), why)
        })?;
        let settings = draft.build()?;
        let spec = serde_json::from_value(text)
            .expect("a draft that was built is a spec: a test of the server holds them together");
        Ok(Self { name, spec, settings })
    }
}

type QueueStep = SpecStep<QueueSpec>;
type QueueChange = SpecChange<QueueSpec>;

pub(crate) async fn apply(typed: QueueApplyArgs) -> Result<(), Ending> {
    stdin_once(&typed.files)?;
    let wanted: Vec<WantedQueue> = file::read_all(&typed.files, now())?;
    let client = typed.server.client()?;
    let steps = plan(&client, wanted, typed.prefix.as_deref().filter(|_| typed.prune)).await?;
    if typed.dry_run {
        return step::dry_run(("queues", &steps), typed.server.output);
    }
    let deletions = steps.iter().filter(|step| step.is_deletion()).count();
    if deletions > 0 {
        let question = format!("Delete {deletions} queues that are in no file?");
        typed.consent.ask(&question, "nothing was sent")?;
    }
    let rows = step::carry_out(steps, |step| send(client.clone(), step)).await;
    show::rows(("queues", &rows), typed.server.output)
}

/// What is to be done, in the order of names; deletions last.
async fn plan(
    client: &Client,
    wanted: Vec<WantedQueue>,
    prune: Option<&str>,
) -> Result<Vec<QueueStep>, Ending> {
    let names: Vec<String> = wanted.iter().map(|wanted| wanted.name.clone()).collect();
    let found = each(names, |name| {
        let client = client.clone();
        async move { client.queue(&name).await }
    });
    let mut steps = BTreeMap::new();
    for (wanted, found) in wanted.into_iter().zip(found.await) {
        let change = match found {
            Ok(found) => change(wanted.spec, &wanted.settings, &found.spec),
            Err(ClientError::NotFound(_)) => QueueChange::Create(wanted.spec),
            Err(other) => return Err(other.into()),
        };
        steps.insert(wanted.name, change);
    }
    let unwanted = match prune {
        Some(prefix) => all(client, prefix).await?,
        None => Vec::new(),
    };
    let unwanted = unwanted.into_iter().map(|queue| queue.name);
    let unwanted: Vec<String> = unwanted.filter(|name| !steps.contains_key(name)).collect();
    let steps = steps.into_iter().map(|(name, change)| QueueStep { name, change });
    let deleted = unwanted.into_iter().map(|name| QueueStep { name, change: QueueChange::Delete });
    Ok(steps.chain(deleted).collect())
}

fn change(wanted: QueueSpec, settings: &QueueSettings, found: &QueueSpec) -> QueueChange {
    // What is written otherwise and means the same is the same: 60s and 1m.
    let there = serde_json::to_value(found).ok();
    let there = there.and_then(|text| serde_json::from_value::<QueueDraft>(text).ok());
    if there.and_then(|there| there.build().ok()).as_ref() == Some(settings) {
        return QueueChange::Unchanged;
    }
    QueueChange::to(found, wanted)
}

/// All queues whose names begin so.
async fn all(client: &Client, prefix: &str) -> Result<Vec<Queue>, ClientError> {
    let prefix = Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty());
    let mut filter = QueueFilter { prefix, limit: Some(LIST_ROWS_MAX), cursor: None };
    let mut all = Vec::new();
    loop {
        let page = client.queues(&filter).await?;
        all.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(all);
        }
    }
}

/// Sends what is to be done with one.
async fn send(client: Client, step: QueueStep) -> ApplyRow {
    let sent = match &step.change {
        QueueChange::Unchanged => Ok(()),
        QueueChange::Create(spec) | QueueChange::Update(spec, _) => {
            client.set_queue(&step.name, spec, None).await.map(drop)
        }
        QueueChange::Delete => client.delete_queue(&step.name).await,
    };
    step.row(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Colour;

    fn judge(text: &str) -> Result<WantedQueue, String> {
        let value = serde_json::from_str(text).unwrap();
        WantedQueue::judge(&value, Instant(0))
            .map_err(|faults| format!("{}: {}", faults[0].pointer, faults[0].why))
    }

    #[test]
    fn a_queue_of_a_file_is_judged_as_a_server_would() {
        let wanted = judge(r#"{"name": "mail", "rate": {"runs": 9, "per": "60s"}}"#).unwrap();
        assert_eq!((wanted.name.as_str(), wanted.settings.rate.unwrap().runs), ("mail", 9));
        for (text, said) in [
            (r#"["mail"]"#, ": a queue is an object"),
            (r#"{"concurrency": 1}"#, "/name: a queue in a file has a name"),
            (r#"{"name": "a b"}"#, "/name: "),
            (r#"{"name": "a", "concurency": 1}"#, "/concurency: unknown field"),
            (r#"{"name": "a", "rate": {"runs": 0, "per": "1m"}}"#, "/rate/runs: "),
            (r#"{"name": "a", "alert_after": "soon"}"#, "/alert_after: "),
        ] {
            let why = judge(text).unwrap_err();
            assert!(why.starts_with(said), "{text}: {why}");
        }
    }

    #[test]
    fn what_means_the_same_is_left_alone_and_what_changes_is_told() {
        let wanted = |text: &str| judge(text).unwrap();
        let found = wanted(r#"{"name": "a", "concurrency": 2, "alert_after": "1m"}"#).spec;
        let same = wanted(r#"{"name": "a", "alert_after": "60s", "concurrency": 2}"#);
        assert!(matches!(change(same.spec, &same.settings, &found), QueueChange::Unchanged));
        let other = wanted(r#"{"name": "a", "concurrency": 3, "rate": {"runs": 1, "per": "1s"}}"#);
        let change = change(other.spec, &other.settings, &found);
        let text = step::dry_text(&[QueueStep { name: "a".to_owned(), change }], Colour::Plain);
        for line in [
            "~ update a\n",
            "    alert_after: 1m goes\n",
            "    concurrency: 2 → 3\n",
            "    rate.per: 1s is new\n",
            "1 to update. Nothing was sent.\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
