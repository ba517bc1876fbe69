//! Transitions: a line for each, for people or for programs.
//!
//! Whoever reads them slowly, or not at all, holds up nothing: what does not fit in the queue is left out.

use client::Timestamp;
use engine::limits::TRANSITIONS_WAITING_MAX;
use serde_json::{Map, Value, json};
use store::machine::{Machine, System};

use crate::args::OutputFormat;
use crate::outlet::{Offered, Outlet, OutletStream};

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
    outlet: Outlet,
}

impl Transitions {
    /// Tells them there, in this form.
    pub(crate) fn new(subject: Subject, output: OutputFormat, stream: OutletStream) -> Self {
        Self { subject, output, outlet: Outlet::new(stream, TRANSITIONS_WAITING_MAX) }
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
        if self.outlet.offer(line) == Offered::LeftOut {
            tracing::warn!(event, "nobody reads them: a transition was left out");
        }
    }

    /// Waits until all is written that somebody reads, but not for long.
    pub(crate) fn finish(self) {
        self.outlet.finish();
    }
}
