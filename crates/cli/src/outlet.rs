//! Lines that leave by a thread of their own, so that whoever reads them slowly, or not at all, holds up nobody.
//!
//! So many may wait. Further ones are left out, and whoever offers them is told.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::exit::say;

/// How long the last lines may take, and how often it is looked.
const FINISH_MAX: Duration = Duration::from_millis(500);
const FINISH_STEP: Duration = Duration::from_millis(5);

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutletStream {
    Stdout,
    Stderr,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken,
    LeftOut,
}

/// Takes lines, and waits for nothing.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    lines: SyncSender<Vec<u8>>,
    /// How many are not written yet.
    waiting: Arc<AtomicUsize>,
    /// How many were left out since that was told last.
    left_out: Arc<AtomicU64>,
}

impl Outlet {
    /// One in front of this stream, in which so many lines may wait.
    pub(crate) fn new(stream: OutletStream, waiting_max: usize) -> Self {
        match stream {
            OutletStream::Stdout => {
                let troubled = |why: &io::Error| {
                    say(&format!("transitions cannot be written to stdout: {why}; it goes on"));
                };
                Self::before(io::stdout(), waiting_max, troubled)
            }
            // There is nobody else to be told.
            OutletStream::Stderr => Self::before(io::stderr(), waiting_max, |_| {}),
        }
    }

    fn before(
        mut out: impl Write + Send + 'static,
        waiting_max: usize,
        troubled: impl Fn(&io::Error) + Send + 'static,
    ) -> Self {
        let (lines, to_write) = sync_channel::<Vec<u8>>(waiting_max);
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        thread::spawn(move || {
            let mut is_told = false;
            for line in to_write {
                let written = out.write_all(&line).and_then(|()| out.flush());
                left.fetch_sub(1, Ordering::SeqCst);
                if let Err(why) = written
                    && !std::mem::replace(&mut is_told, true)
                {
                    troubled(&why);
                }
            }
        });
        Self { lines, waiting, left_out: Arc::default() }
    }

    /// Takes a line, with its end, unless too many wait.
    pub(crate) fn offer(&self, line: impl Into<Vec<u8>>) -> Offered {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if self.lines.try_send(line.into()).is_ok() {
            return Offered::Taken;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Offered::LeftOut
    }

    /// Waits until all is written that somebody reads, but not for long.
    pub(crate) fn finish(&self) {
        let mut waited = Duration::ZERO;
        while self.waiting.load(Ordering::SeqCst) > 0 && waited < FINISH_MAX {
            thread::sleep(FINISH_STEP);
            waited += FINISH_STEP;
        }
    }
}

/// The log of a process that nobody may hold up: one line for each event.
impl<'a> MakeWriter<'a> for Outlet {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &Outlet {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let before = self.left_out.load(Ordering::SeqCst);
        if before > 0 {
            let told =
                format!("watchbell: {before} lines of the log were left out: nobody read stderr\n");
            if self.offer(told) == Offered::Taken {
                self.left_out.fetch_sub(before, Ordering::SeqCst);
            }
        }
        if self.offer(line) == Offered::LeftOut {
            self.left_out.fetch_add(1, Ordering::SeqCst);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A stream that tells what it is given, and goes on when it is let.
    struct Slow {
        told: Sender<String>,
        go_on: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_vec()).map_err(io::Error::other)?;
            self.told.send(text).map_err(io::Error::other)?;
            self.go_on.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow(waiting_max: usize) -> (Outlet, Receiver<String>, Sender<()>) {
        let ((told, tells), (lets, go_on)) = (channel(), channel());
        (Outlet::before(Slow { told, go_on }, waiting_max, |_| {}), tells, lets)
    }

    #[test]
    fn so_many_lines_wait_and_one_more_is_left_out() {
        let (outlet, tells, lets) = slow(2);
        assert_eq!(outlet.offer("0\n"), Offered::Taken);
        // It is being written from here on, and waits no more.
        assert_eq!(tells.recv().unwrap(), "0\n");
        assert_eq!(["1\n", "2\n"].map(|line| outlet.offer(line)), [Offered::Taken; 2]);
        assert_eq!(outlet.offer("3\n"), Offered::LeftOut);
        for _ in 0..3 {
            lets.send(()).unwrap();
        }
        assert_eq!([tells.recv().unwrap(), tells.recv().unwrap()], ["1\n", "2\n"]);
        outlet.finish();
        assert_eq!(outlet.offer("4\n"), Offered::Taken);
    }

    #[test]
    fn a_log_that_nobody_reads_takes_no_time_and_says_later_how_much_was_left_out() {
        let (outlet, tells, lets) = slow(1);
        for number in 0..5 {
            (&outlet).write_all(format!("{number}\n").as_bytes()).unwrap();
            if number == 0 {
                assert_eq!(tells.recv().unwrap(), "0\n");
            }
        }
        lets.send(()).unwrap();
        assert_eq!(tells.recv().unwrap(), "1\n");
        // Nothing waits.
        (&outlet).write_all(b"5\n").unwrap();
        lets.send(()).unwrap();
        let told = tells.recv().unwrap();
        assert!(told.contains("3 lines of the log were left out"), "{told}");
    }
}
