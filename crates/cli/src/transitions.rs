//! Transitions on stdout: a line for each, for people or for programs.
//!
//! They are written by a thread of their own. Whoever reads stdout slowly, or not at all, holds up nothing: what does not fit
//! in the queue is left out.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use client::Timestamp;
use engine::limits::TRANSITIONS_WAITING_MAX;
use serde_json::{Map, Value, json};
use store::machine::{Machine, System};

use crate::args::OutputFormat;
use crate::exit::say;

/// How long the last lines may take, and how often it is looked.
const FINISH_MAX: Duration = Duration::from_millis(500);
const FINISH_STEP: Duration = Duration::from_millis(5);

/// What transitions are about: an election, or a hold.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// What programs find its name under.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) node: String,
    /// How wide the column of events is.
    pub(crate) event_chars: usize,
}

/// Who tells transitions.
pub(crate) struct Transitions {
    subject: Subject,
    output: OutputFormat,
    lines: SyncSender<String>,
    thread: JoinHandle<()>,
}

impl Transitions {
    pub(crate) fn new(subject: Subject, output: OutputFormat) -> Self {
        let (lines, to_write) = sync_channel::<String>(TRANSITIONS_WAITING_MAX);
        let thread = thread::spawn(move || {
            let mut is_told = false;
            for line in to_write {
                let mut out = io::stdout().lock();
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if let Err(why) = written
                    && !std::mem::replace(&mut is_told, true)
                {
                    say(&format!("transitions cannot be written to stdout: {why}; it goes on"));
                }
            }
        });
        Self { subject, output, lines, thread }
    }

    /// Tells a transition: `words` for people, `facts` for programs.
    pub(crate) fn tell(&self, event: &str, words: &str, facts: Value) {
        let wall = i64::try_from(System.wall_us()).unwrap_or_default();
        let time = Timestamp::from_microsecond(wall).unwrap_or_default();
        let Subject { kind, name, node, event_chars } = &self.subject;
        let line = match self.output {
            OutputFormat::Table => format!("{time:.3}  {event:<event_chars$}  {words}\n"),
            OutputFormat::Json => {
                let mut line = Map::new();
                line.insert("time".into(), json!(format!("{time:.3}")));
                line.insert("event".into(), json!(event));
                line.insert((*kind).into(), json!(name));
                line.insert("node".into(), json!(node));
                if let Value::Object(facts) = facts {
                    line.extend(facts);
                }
                format!("{}\n", Value::Object(line))
            }
        };
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            tracing::warn!("nobody reads stdout: a transition was left out");
        }
    }

    /// Waits until all is written that somebody reads, but not for long.
    pub(crate) fn finish(self) {
        let Self { lines, thread, .. } = self;
        drop(lines);
        let mut waited = Duration::ZERO;
        while !thread.is_finished() && waited < FINISH_MAX {
            thread::sleep(FINISH_STEP);
            waited += FINISH_STEP;
        }
    }
}
