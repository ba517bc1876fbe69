//! Workers that are to have nothing more.
//!
//! An operator's wish that a worker drains is written here, where every server has it in memory and no shard has to be
//! told: whoever owns the worker's queues, now or later, gives it nothing. The wish is for the life of the worker that was
//! known then. When the name comes with a greater incarnation, it says nothing any more.

use std::collections::BTreeSet;

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::limits::{WORKER_DRAIN_KEPT, WORKER_DRAINS_MAX, WORKER_DRAINS_PER_PROJECT_MAX};
use serde::{Deserialize, Serialize};
use store::Version;

use super::book::{Book, value};
use super::record::DRAINS;
use super::{Access, ChangeError, Denial, Edit, Trail};
use crate::idempotency::RememberedOutcome;

/// A worker that is to have nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRecord {
    /// The project that it works for.
    pub project: ProjectId,
    /// Its name.
    pub worker: String,
    /// Its life at that time, and all before.
    pub incarnation: u64,
    /// Since when.
    pub since: Instant,
    /// Who wants it.
    pub author: String,
}

impl Book {
    /// The wish that this life of a worker drains, if there is one.
    pub fn drain(
        &self,
        project: ProjectId,
        worker: &str,
        incarnation: u64,
    ) -> Option<&DrainRecord> {
        let wish = self.drains.get(&(project, worker.to_owned()));
        wish.filter(|wish| incarnation <= wish.incarnation)
    }

    /// The wish that some life of a worker drains.
    pub fn any_drain(&self, project: ProjectId, worker: &str) -> Option<&DrainRecord> {
        self.drain(project, worker, 0)
    }
}

impl Access {
    /// Lets a worker, as it lives now, have nothing more.
    pub(crate) async fn drain_worker(
        &self,
        project: ProjectId,
        worker: &str,
        incarnation: u64,
        trail: &Trail,
    ) -> Result<Option<Version>, ChangeError> {
        self.change(trail, RememberedOutcome::Worker(worker.to_owned()), |book, now| {
            if book.drain(project, worker, incarnation).is_some() {
                return Err(Denial::AlreadyDraining(worker.to_owned()));
            }
            // Who was to drain so long ago is gone, or lives again.
            let old = |wish: &&DrainRecord| wish.since.after(WORKER_DRAIN_KEPT) < now;
            let old: BTreeSet<String> = book.drains.values().filter(old).map(place).collect();
            let others = book.drains.values().filter(|wish| !old.contains(&place(wish)));
            let of_project = others.clone().filter(|wish| wish.project == project);
            if of_project.count() >= WORKER_DRAINS_PER_PROJECT_MAX {
                return Err(Denial::TooManyDrains);
            }
            if others.count() >= WORKER_DRAINS_MAX {
                return Err(Denial::TooManyDrainsOfAll);
            }
            let wish = DrainRecord {
                project,
                worker: worker.to_owned(),
                incarnation,
                since: now,
                author: trail.audit.author.clone(),
            };
            let mut edit = Edit::put(place(&wish), value(&wish));
            edit.gone =
                old.into_iter().filter(|key| *key != place(&wish)).take(OLD_AT_ONCE).collect();
            Ok(edit)
        })
        .await
    }

    /// Lets a worker have runs again.
    pub(crate) async fn undrain_worker(
        &self,
        project: ProjectId,
        worker: &str,
        trail: &Trail,
    ) -> Result<Option<Version>, ChangeError> {
        self.change(trail, RememberedOutcome::Worker(worker.to_owned()), |book, _| {
            let wish = book.any_drain(project, worker);
            wish.map(|wish| Edit::gone(place(wish)))
                .ok_or_else(|| Denial::NotDraining(worker.to_owned()))
        })
        .await
    }
}

/// Old wishes that are deleted with a new one.
const OLD_AT_ONCE: usize = 2;

fn place(wish: &DrainRecord) -> String {
    format!("{DRAINS}{}/{}", wish.project.0, wish.worker)
}
