//! `watchbell trigger apply`, `queue apply` and `ring apply`: files say which triggers, queues and rings there shall be, and how.
//!
//! - [`document`], [`file`](mod@file): reading files, all of them before anything is sent
//! - [`plan`]: what there is, and what is to be done
//! - [`fires`]: what that changes, in slots
//! - [`queue`]: the same for queues, and [`ring`] for rings; `step`: what both do
//! - [`show`]: what people see

mod document;
pub(crate) mod file;
mod fires;
mod plan;
pub(crate) mod queue;
pub(crate) mod ring;
mod show;
mod step;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use client::{Client, ClientError};

use self::plan::{ApplyChange, ApplyStep};
use self::show::{ApplyOutcome, ApplyRow};
use crate::args::apply::ApplyArgs;
use crate::cron::now;
use crate::exit::{Ending, say};
use crate::progress::Progress;
use crate::refusal;
use crate::value::escape;

pub(crate) async fn apply(typed: ApplyArgs) -> Result<(), Ending> {
    stdin_once(&typed.files)?;
    let wanted: Vec<file::Wanted> = file::read_all(&typed.files, now())?;
    let client = typed.server.client()?;
    let labels: Vec<String> =
        typed.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if typed.prune {
        tell_unlabelled(&wanted, &typed.labels);
    }
    let steps = plan::make(&client, wanted, typed.prune.then_some(labels.as_slice())).await?;
    if typed.dry_run {
        // After the list was read, so that no slot lies between the two.
        let now = now();
        return show::dry_run(&steps, now, now.after(typed.horizon), typed.server.output);
    }
    let deletions = steps.iter().filter(|step| step.change == ApplyChange::Delete).count();
    if deletions > 0 {
        let question = format!("Delete {deletions} triggers that are in no file?");
        typed.consent.ask(&question, "nothing was sent")?;
    }
    let rows = carry_out(&client, steps).await;
    show::rows(("triggers", &rows), typed.server.output)
}

fn stdin_once(files: &[PathBuf]) -> Result<(), Ending> {
    if files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(Ending::wrong_input("stdin can be read once: name - once"));
    }
    Ok(())
}

/// Whoever prunes by a label and forgets it in a file would never see that trigger pruned.
fn tell_unlabelled(wanted: &[file::Wanted], labels: &[(String, String)]) {
    let carries = |wanted: &file::Wanted| {
        labels.iter().all(|(key, value)| wanted.spec.labels.get(key) == Some(value))
    };
    let without: Vec<&str> =
        wanted.iter().filter(|one| !carries(one)).map(|one| one.name.as_str()).collect();
    if let Some(first) = without.first() {
        let len = without.len();
        say(&format!(
            "{len} of the triggers in the files do not carry all labels of --prune, {} for one: a later --prune will not find them",
            escape(first)
        ));
    }
}

/// Sends what is to be done, a few at a time; deletions last, and only if everything else was done.
async fn carry_out(client: &Client, steps: Vec<ApplyStep>) -> Vec<ApplyRow> {
    let total = steps.iter().filter(|step| step.change != ApplyChange::Unchanged).count();
    let sending = Sending {
        client: client.clone(),
        total,
        sent: AtomicUsize::new(0),
        progress: Mutex::new(Progress::on_stderr()),
    };
    let sending = Arc::new(sending);
    let (deletions, others): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(|step| step.change == ApplyChange::Delete);
    let send = |step: ApplyStep| Arc::clone(&sending).send(step);
    let mut rows = plan::each(others, send).await;
    if rows.iter().any(|row| matches!(row.outcome, ApplyOutcome::Failed(_))) {
        let kept = deletions.into_iter().map(|step| ApplyRow {
            name: step.name,
            outcome: ApplyOutcome::Failed("it was not deleted, because others failed".to_owned()),
        });
        rows.extend(kept);
    } else {
        rows.extend(plan::each(deletions, send).await);
    }
    rows
}

struct Sending {
    client: Client,
    total: usize,
    sent: AtomicUsize,
    progress: Mutex<Progress>,
}

impl Sending {
    async fn send(self: Arc<Self>, step: ApplyStep) -> ApplyRow {
        let ApplyStep { name, change, found, wanted } = step;
        let outcome = match (change, wanted, found) {
            (ApplyChange::Unchanged, ..) => {
                return ApplyRow { name, outcome: ApplyOutcome::Unchanged };
            }
            (ApplyChange::Refused(why), ..) => ApplyOutcome::Failed(why),
            (ApplyChange::Delete, _, Some(found)) => {
                // By its id: somebody may have made another one with this name meanwhile.
                let deleted = self.client.delete_trigger(&found.trigger.id).await;
                deleted.map_or_else(
                    |why| ApplyOutcome::Failed(sentence(&why)),
                    |()| ApplyOutcome::Deleted,
                )
            }
            (_, Some(wanted), found) => {
                let before = found.map(|found| found.trigger.revision);
                match self.client.put_trigger(&name, &wanted.spec, None).await {
                    Ok(_) if before.is_none() => ApplyOutcome::Created,
                    Ok(made) if before == Some(made.revision) => ApplyOutcome::Unchanged,
                    Ok(_) => ApplyOutcome::Updated,
                    Err(why) => ApplyOutcome::Failed(sentence(&why)),
                }
            }
            (_, None, _) => ApplyOutcome::Failed("there is nothing to send".to_owned()),
        };
        let sent = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        if let Ok(progress) = self.progress.lock() {
            progress.show(format_args!("{sent} of {} sent", self.total));
        }
        ApplyRow { name, outcome }
    }
}

fn sentence(error: &ClientError) -> String {
    error.problem().map_or_else(|| error.to_string(), refusal::of_file)
}
