//! The journal: what a worker writes down while it works.
//!
//! One thread writes for all runs: what comes while it writes or syncs goes into the next write, so many results share one
//! sync. Whoever reports a result or begins a run waits for its word. Without a spool the journal says at once that it is done.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use client::worker::{DoneRun, HeldRun};
use tokio::sync::{oneshot, watch};

use super::record::Record;
use super::{Log, Spool};
use crate::Sight;

/// So often a log that could not be written is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Entries that are written at once.
const BATCH_MAX: usize = 4_096;

/// What is wrong with the spool, if something is.
pub(crate) type Trouble = Option<Arc<str>>;

/// Where a worker writes down what it must not forget.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Nothing, without a spool.
    writer: Option<Writer>,
    trouble: watch::Receiver<Trouble>,
}

#[derive(Debug)]
struct Writer {
    entries: Sender<Entry>,
}

enum Entry {
    /// Runs that are about to begin; whether they may.
    Begun(Vec<HeldRun>, oneshot::Sender<bool>),
    /// A result; told when it is durable, or as safe as it can be.
    Result(Box<DoneRun>, oneshot::Sender<()>),
    /// Nothing more is to be said about these.
    Over(Vec<HeldRun>),
}

impl Journal {
    /// The journal of a worker that forgets everything when it ends.
    pub(crate) fn in_memory() -> Self {
        let (_, trouble) = watch::channel(None);
        Self { writer: None, trouble }
    }

    /// The journal of a worker with a spool. It is closed when this is dropped.
    pub(crate) fn of(spool: Spool, sight: Arc<Sight>) -> io::Result<Self> {
        let (entries, received) = channel();
        let (tell, trouble) = watch::channel(None);
        sight.spool_bytes.set(spool.log.bytes());
        let keeper = Keeper { spool, sight, tell, is_in_trouble: false };
        thread::Builder::new().name("spool".to_owned()).spawn(move || keeper.serve(&received))?;
        Ok(Self { writer: Some(Writer { entries }), trouble })
    }

    /// Writes down that runs are about to begin. `false`: they must not, since it cannot be written down.
    pub(crate) async fn begun(&self, runs: Vec<HeldRun>) -> bool {
        let Some(writer) = &self.writer else { return true };
        let (tell, told) = oneshot::channel();
        writer.send(Entry::Begun(runs, tell));
        told.await.unwrap_or(false)
    }

    /// Writes down what came of a run. When this returns it is durable, or as safe as the disk allows.
    pub(crate) async fn result(&self, done: &DoneRun) {
        let Some(writer) = &self.writer else { return };
        let (tell, told) = oneshot::channel();
        writer.send(Entry::Result(Box::new(done.clone()), tell));
        let _kept = told.await;
    }

    /// Nothing more is to be said about these runs. Nobody waits for that to be written.
    pub(crate) fn over(&self, runs: Vec<HeldRun>) {
        if let Some(writer) = self.writer.as_ref().filter(|_| !runs.is_empty()) {
            writer.send(Entry::Over(runs));
        }
    }

    /// Whether results outlive the process.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_on_disk() && !self.is_in_trouble()
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether nothing can be written down, so that nothing may begin.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.borrow().is_some()
    }

    /// What is wrong with it, and when that changes.
    pub(crate) fn trouble(&self) -> watch::Receiver<Trouble> {
        self.trouble.clone()
    }

    /// Waits until everything is written, which may be never: whoever stops waiting leaves the thread to itself.
    pub(crate) async fn close(mut self) {
        if let Some(Writer { entries }) = self.writer.take() {
            drop(entries);
            // The thread has the other side for as long as it writes.
            while self.trouble.changed().await.is_ok() {}
        }
    }
}

impl Writer {
    fn send(&self, entry: Entry) {
        // If the thread panicked nobody answers, and nothing more is begun.
        let _gone = self.entries.send(entry);
    }
}

struct Keeper {
    /// Let go of before it is told that the thread has ended.
    spool: Spool,
    sight: Arc<Sight>,
    tell: watch::Sender<Trouble>,
    is_in_trouble: bool,
}

impl Keeper {
    fn serve(mut self, entries: &Receiver<Entry>) {
        loop {
            let first = if self.is_in_trouble {
                entries.recv_timeout(TRY_AGAIN)
            } else {
                entries.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match first {
                Ok(first) => {
                    let batch = std::iter::once(first).chain(entries.try_iter());
                    self.write(batch.take(BATCH_MAX).collect());
                }
                Err(RecvTimeoutError::Timeout) => self.write_anew(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.sight.spool_bytes.set(self.log().bytes());
        }
        if self.is_in_trouble {
            self.write_anew();
        }
    }

    fn write(&mut self, batch: Vec<Entry>) {
        let is_written = !self.is_in_trouble && self.try_write(&batch);
        if !is_written {
            self.keep_in_memory(&batch);
            self.write_anew();
        }
        for entry in batch {
            match entry {
                Entry::Begun(_, tell) => {
                    let _gone = tell.send(is_written);
                }
                Entry::Result(_, tell) => {
                    let _gone = tell.send(());
                }
                Entry::Over(_) => {}
            }
        }
        if is_written && self.log().is_mostly_over() {
            self.write_anew();
        }
    }

    /// Whether all of it is written, and results are durable.
    fn try_write(&mut self, batch: &[Entry]) -> bool {
        let mut lines = Vec::new();
        let mut has_results = false;
        for record in batch.iter().flat_map(Entry::records) {
            has_results |= matches!(record, Record::Result(_));
            record.write_to(&mut lines);
            self.spool.log.apply(&record);
        }
        let synced = self
            .spool
            .log
            .append(&lines)
            .and_then(|()| if has_results { self.spool.log.sync() } else { Ok(()) });
        if let Err(why) = &synced {
            self.say_trouble(why);
        }
        synced.is_ok()
    }

    /// What could not be written does not begin; everything else is known here, and is written when there is room.
    fn keep_in_memory(&mut self, batch: &[Entry]) {
        for record in batch.iter().flat_map(Entry::records) {
            match record {
                Record::Begun(held) => self.spool.log.apply(&Record::Over(held)),
                Record::Life(_) | Record::Result(_) | Record::Over(_) => {
                    self.spool.log.apply(&record);
                }
            }
        }
    }

    fn write_anew(&mut self) {
        match self.spool.log.write_anew() {
            Ok(()) if self.is_in_trouble => {
                self.is_in_trouble = false;
                tracing::info!(dir = %self.log().dir().display(), "the spool can be written again");
                self.tell.send_replace(None);
            }
            Ok(()) => {}
            Err(why) => self.say_trouble(&why),
        }
    }

    /// Says it once.
    fn say_trouble(&mut self, why: &io::Error) {
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            let dir = self.log().dir().display();
            let text = format!("the spool {dir} cannot be written: {why}");
            tracing::error!(
                "{text}; the worker claims nothing more until it can, and keeps results in memory"
            );
            self.tell.send_replace(Some(text.into()));
        }
    }

    fn log(&self) -> &Log {
        &self.spool.log
    }
}

impl Entry {
    fn records(&self) -> impl Iterator<Item = Record> {
        let (runs, done, is_begun) = match self {
            Self::Begun(runs, _) => (runs.as_slice(), None, true),
            Self::Result(done, _) => (&[][..], Some(done), false),
            Self::Over(runs) => (runs.as_slice(), None, false),
        };
        let of = move |held: &HeldRun| {
            if is_begun { Record::Begun(held.clone()) } else { Record::Over(held.clone()) }
        };
        runs.iter().map(of).chain(done.cloned().map(Record::Result))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_closes_a_journal_may_stop_waiting_for_its_disk() {
        let (entries, _received) = channel();
        let (_writing, trouble) = watch::channel(None);
        let journal = Journal { writer: Some(Writer { entries }), trouble };
        assert!(timeout(TRY_AGAIN, journal.close()).await.is_err());
    }
}
