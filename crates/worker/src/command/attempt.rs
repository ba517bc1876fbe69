//! One command, from its start to the end of its tree.
//!
//! Everything happens in one task: both streams are read in the order in which they come, progress beside them, and
//! whoever tells the command to end is heard meanwhile. What it prints never waits for a server, so a program that prints
//! without end takes time, and no memory.
//!
//! | told to end | what happens |
//! |---|---|
//! | cancelled, timed out, the worker stops | SIGTERM, and SIGKILL to the whole tree when the grace is over |
//! | lost, unconfirmed | SIGKILL to the whole tree at once: another worker may have the run |
//!
//! It is over when the tree is empty and what it printed is read, whoever still holds the other side of a pipe.

use std::time::Duration;

use client::output::OutputStream;
use process::{Deadline, Lost, Output, Started, Tree};
use tokio::sync::watch;

use super::progress::{ProgressLines, Step};
use super::tail::Tail;
use crate::{Context, EndReason};

/// What is read at a time: little at first, since most commands print little and there may be a thousand of them; then up
/// to a whole pipe.
const READ_BYTES_FIRST: usize = 512;
const READ_BYTES_MAX: usize = 64 * 1024;

/// What is read of a pipe after the tree is empty: as much as the largest pipe holds. More comes only from somebody outside
/// of the tree who was handed the pipe.
const READ_AFTER_END_BYTES_MAX: usize = 1024 * 1024;

/// What became of it.
pub(super) struct Ended {
    /// Why it was told to end, if it was.
    pub(super) told: Option<EndReason>,
    pub(super) outcome: Result<process::Outcome, Lost>,
    pub(super) last_line: Option<String>,
    /// Lines of progress that were none.
    pub(super) lines_left_out: u64,
}

/// A command that runs.
pub(super) struct Attempt<'a> {
    context: &'a Context,
    tree: Tree,
    grace: Duration,
    told: Option<EndReason>,
    tail: Tail,
    progress: ProgressLines,
}

/// One of its pipes, until its end.
struct Pipe {
    output: Output,
    buffer: Vec<u8>,
    /// What was read last filled the buffer.
    was_full: bool,
    is_open: bool,
    read_after_end: usize,
}

impl<'a> Attempt<'a> {
    /// Sees a command to its end. When `hurry` becomes true there is no grace any more.
    pub(super) async fn watch(
        context: &'a Context,
        started: Started,
        grace: Duration,
        mut hurry: watch::Receiver<bool>,
    ) -> Ended {
        let Started { tree, stdout, stderr, progress } = started;
        let (mut stdout, mut stderr, mut steps) =
            (Pipe::new(stdout), Pipe::new(stderr), Pipe::new(progress));
        let (told, tail, progress) = (None, Tail::default(), ProgressLines::default());
        let mut this = Self { context, tree, grace, told, tail, progress };
        let must_be_confirmed = context.confirmed_until().is_some();
        let mut is_hurried = false;
        let mut outcome = None;
        while outcome.is_none() || stdout.is_open || stderr.is_open || steps.is_open {
            let has_ended = outcome.is_some();
            tokio::select! {
                ended = this.tree.ended(), if !has_ended => outcome = Some(ended),
                reason = told_otherwise(context, this.told), if !has_ended => this.end(reason),
                () = hurried(&mut hurry), if !has_ended && !is_hurried => {
                    is_hurried = true;
                    this.tree.kill();
                }
                () = context.confirmed_again(), if must_be_confirmed && !has_ended => {
                    let until = context.confirmed_until().unwrap_or_default();
                    this.tree.confirm(Deadline::sudden(until));
                }
                len = stdout.read(), if stdout.is_open => {
                    this.context.print(OutputStream::Stdout, stdout.take(len, has_ended));
                }
                len = stderr.read(), if stderr.is_open => {
                    let bytes = stderr.take(len, has_ended);
                    this.context.print(OutputStream::Stderr, bytes);
                    this.tail.take(bytes);
                }
                len = steps.read(), if steps.is_open => {
                    let step = this.progress.take(steps.take(len, has_ended));
                    this.tell(step);
                }
            }
            // Reading a pipe that is always full would never let go of this thread.
            tokio::task::consume_budget().await;
        }
        let last = this.progress.finish();
        this.tell(last);
        Ended {
            told: this.told,
            outcome: outcome.expect("the loop went on until it was there"),
            last_line: this.tail.last_line(),
            lines_left_out: this.progress.left_out,
        }
    }

    fn end(&mut self, reason: EndReason) {
        self.told = Some(reason);
        match reason {
            EndReason::Cancelled | EndReason::TimedOut | EndReason::Stopping => {
                self.tree.stop(self.grace);
            }
            EndReason::Lost | EndReason::Unconfirmed => self.tree.kill(),
        }
    }

    fn tell(&self, step: Option<Step>) {
        if let Some(Step { percent, text }) = step {
            self.context.progress(percent, text.as_deref());
        }
    }
}

impl Pipe {
    fn new(output: Output) -> Self {
        let buffer = vec![0; READ_BYTES_FIRST];
        Self { output, buffer, was_full: false, is_open: true, read_after_end: 0 }
    }

    /// How much was read; nothing at the end, or if it can be read no more.
    async fn read(&mut self) -> usize {
        if self.was_full && self.buffer.len() < READ_BYTES_MAX {
            self.buffer.resize(2 * self.buffer.len(), 0);
            self.was_full = false;
        }
        self.output.read(&mut self.buffer).await.unwrap_or(0)
    }

    fn take(&mut self, len: usize, has_ended: bool) -> &[u8] {
        if has_ended {
            self.read_after_end += len;
        }
        self.was_full = len == self.buffer.len();
        self.is_open = len > 0 && self.read_after_end <= READ_AFTER_END_BYTES_MAX;
        &self.buffer[..len]
    }
}

/// Waits until it is told to end, or for another reason than before.
async fn told_otherwise(context: &Context, before: Option<EndReason>) -> EndReason {
    match before {
        None => context.told_to_end().await,
        Some(before) => context.told_otherwise(before).await,
    }
}

async fn hurried(hurry: &mut watch::Receiver<bool>) {
    if hurry.wait_for(|hurry| *hurry).await.is_err() {
        std::future::pending::<()>().await;
    }
}
