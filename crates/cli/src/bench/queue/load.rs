//! As much as a server does: clients that submit whenever there is room, and workers that claim and complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::wire::{Door, RunBatch, Submitter, Worker};
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table::grouped;

/// Batches of each client that may be submitted and not completed.
const BATCHES_AHEAD: usize = 4;

/// Runs that are submitted at once to let so many wait, clients that do, and their priority: the last, so that they are
/// claimed after what is measured.
const FILL_BATCH: u64 = 100;
const FILL_CLIENTS: u64 = 8;
const FILL_PRIORITY: u8 = 9;

/// What a task came to.
pub(super) fn joined<T>(ended: Result<Result<T, Ending>, JoinError>) -> Result<T, Ending> {
    ended.map_err(|why| Ending::failed(why.to_string()))?
}

/// Lets so many runs wait.
pub(super) async fn fill(door: &Door, waiting: u64, progress: &Progress) -> Result<(), Ending> {
    let left = Arc::new(AtomicU64::new(waiting));
    let mut tasks = JoinSet::new();
    for _ in 0..FILL_CLIENTS {
        tasks.spawn(fill_from(Arc::clone(&left), door.clone()));
    }
    while !tasks.is_empty() {
        progress.show(format_args!("{} runs are to wait", grouped(left.load(Ordering::SeqCst))));
        if let Ok(Some(ended)) = timeout(Duration::from_secs(1), tasks.join_next()).await {
            joined(ended)?;
        }
    }
    Ok(())
}

async fn fill_from(left: Arc<AtomicU64>, door: Door) -> Result<(), Ending> {
    let mut submitter = Submitter::open(&door).await?;
    loop {
        let take = |left: u64| Some(left.saturating_sub(FILL_BATCH));
        let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        let count = left.unwrap_or_default().min(FILL_BATCH);
        if count == 0 {
            return Ok(());
        }
        let count = usize::try_from(count).expect("a small number");
        submitter.submit(&RunBatch::new(count, None, Some(FILL_PRIORITY))).await?;
    }
}

/// Clients and workers, at it.
pub(super) struct Load {
    shared: Arc<Shared>,
    submitters: JoinSet<Result<(), Ending>>,
    workers: JoinSet<Result<(), Ending>>,
}

/// What they share.
struct Shared {
    door: Door,
    batch: usize,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Nothing more is submitted.
    is_over: AtomicBool,
    /// Room for what may be submitted and not completed.
    ahead: Semaphore,
}

impl Load {
    /// Begins, with so many clients and workers.
    pub(super) fn begin(door: &Door, batch: usize, clients: u32) -> Self {
        let count = usize::try_from(clients).expect("a small number");
        let shared = Arc::new(Shared {
            door: door.clone(),
            batch,
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            ahead: Semaphore::new(batch * count * BATCHES_AHEAD),
        });
        let (mut submitters, mut workers) = (JoinSet::new(), JoinSet::new());
        for number in 0..clients {
            submitters.spawn(submit(Arc::clone(&shared)));
            workers.spawn(work(Arc::clone(&shared), format!("bench-{number}")));
        }
        Self { shared, submitters, workers }
    }

    /// Runs that were submitted so far, and that were completed.
    pub(super) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (read(&self.shared.submitted), read(&self.shared.completed))
    }

    /// Submits no more, completes as many as were submitted, and says what the counts are then: whoever measures next finds
    /// none of these.
    pub(super) async fn end(mut self) -> Result<(u64, u64), Ending> {
        self.shared.ahead.close();
        while let Some(ended) = self.submitters.join_next().await {
            joined(ended)?;
        }
        self.shared.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.workers.join_next().await {
            joined(ended)?;
        }
        Ok(self.counts())
    }
}

async fn submit(shared: Arc<Shared>) -> Result<(), Ending> {
    let mut submitter = Submitter::open(&shared.door).await?;
    let batch = RunBatch::new(shared.batch, None, None);
    let permits = u32::try_from(shared.batch).expect("a small number");
    // Closed when the measurement is over.
    while let Ok(permit) = shared.ahead.acquire_many(permits).await {
        permit.forget();
        submitter.submit(&batch).await?;
        shared.submitted.fetch_add(permits.into(), Ordering::SeqCst);
    }
    Ok(())
}

/// Claims and completes, a batch at a time.
async fn work(shared: Arc<Shared>, name: String) -> Result<(), Ending> {
    let mut worker = Worker::open(&shared.door, name).await?;
    loop {
        let (submitted, completed) = (&shared.submitted, &shared.completed);
        let is_over = shared.is_over.load(Ordering::SeqCst)
            && completed.load(Ordering::SeqCst) >= submitted.load(Ordering::SeqCst);
        let told = worker.claim(if is_over { 0 } else { shared.batch }, 100).await?;
        completed.fetch_add(told.completed as u64, Ordering::SeqCst);
        if !shared.ahead.is_closed() {
            shared.ahead.add_permits(told.completed);
        }
        if is_over && !worker.has_runs() {
            return Ok(());
        }
    }
}
