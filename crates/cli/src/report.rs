//! What a check found, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use store::conformance::{Clause, ClauseOutcome, ClauseViolation};
use store::speed::Speed;
use store::{Class, Entry, Epoch, Limits};

use crate::exit::Ending;
use crate::table::{self, grouped, millis};

/// Everything that a check found.
pub(crate) struct StoreReport {
    pub(crate) class: Class,
    pub(crate) epoch: Epoch,
    pub(crate) limits: Limits,
    /// What the engine says of itself.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) contents: Contents,
    pub(crate) clauses: Vec<Examined>,
    /// Empty if nothing was measured.
    pub(crate) speeds: Vec<Measured>,
    /// What the check wrote and could not remove, as a sentence.
    pub(crate) left: Option<String>,
}

/// What was in the store, all of it readable.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) entries: u64,
    /// Of keys and values.
    pub(crate) bytes: u64,
}

impl Contents {
    pub(crate) fn add(&mut self, entry: &Entry) {
        self.entries += 1;
        self.bytes += (entry.key.as_str().len() + entry.value.len()) as u64;
    }
}

/// A clause, and what came of it.
pub(crate) struct Examined {
    pub(crate) clause: &'static Clause,
    pub(crate) outcome: ClauseOutcome,
}

/// What can be measured.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Commits { writers: usize },
    Scans,
}

impl fmt::Display for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commits { writers: 1 } => out.write_str("commit, 1 writer"),
            Self::Commits { writers } => write!(out, "commit, {writers} writers"),
            Self::Scans => out.write_str("scan, 100 entries"),
        }
    }
}

/// Some work, and how fast it went, or why it did not.
pub(crate) struct Measured {
    pub(crate) work: Work,
    pub(crate) speed: Result<Speed, ClauseViolation>,
}

impl StoreReport {
    /// Fine, or what is not.
    pub(crate) fn verdict(&self) -> Result<(), Ending> {
        // Damage and a full disk say more than the promises that they broke.
        if let Some(cause) = self.violations().find_map(Ending::of_cause) {
            return Err(cause.and(self.left.clone()));
        }
        let sentences: Vec<_> = [self.broken_clauses(), self.failed_work(), self.left.clone()]
            .into_iter()
            .flatten()
            .collect();
        if sentences.is_empty() { Ok(()) } else { Err(Ending::failed(sentences.join("; "))) }
    }

    fn violations(&self) -> impl Iterator<Item = &ClauseViolation> {
        let clauses = self.clauses.iter().filter_map(|examined| match &examined.outcome {
            ClauseOutcome::Violated(violation) => Some(violation),
            ClauseOutcome::Held | ClauseOutcome::NotApplicable(_) => None,
        });
        clauses.chain(self.speeds.iter().filter_map(|measured| measured.speed.as_ref().err()))
    }

    fn broken_clauses(&self) -> Option<String> {
        let violated =
            |examined: &&Examined| matches!(examined.outcome, ClauseOutcome::Violated(_));
        let count = self.clauses.iter().filter(violated).count();
        let verb = if count == 1 { "is" } else { "are" };
        (count > 0).then(|| {
            let all = self.clauses.len();
            format!("{count} of {all} clauses {verb} violated: do not run Watchbell on this store")
        })
    }

    fn failed_work(&self) -> Option<String> {
        self.speeds.iter().find_map(|measured| {
            let why = measured.speed.as_ref().err()?;
            Some(format!("measuring ({}) failed: {why}", measured.work))
        })
    }

    /// The report as people read it.
    pub(crate) fn table(&self) -> String {
        let mut sections = vec![self.facts_table(), self.clauses_table()];
        if !self.speeds.is_empty() {
            sections.push(self.speeds_table());
        }
        sections.join("\n")
    }

    fn facts_table(&self) -> String {
        let Limits { writes, commit_bytes, value_bytes } = self.limits;
        let mut table = table::plain();
        table.add_row(["class".into(), format!("{}: {}", self.class, self.class.meaning())]);
        table.add_row([
            "limits".into(),
            format!(
                "{} writes and {} bytes in a commit, {} bytes in a value",
                grouped(writes),
                grouped(commit_bytes),
                grouped(value_bytes)
            ),
        ]);
        table.add_row(["epoch".into(), self.epoch.0.clone()]);
        for (name, value) in &self.facts {
            table.add_row([(*name).to_owned(), value.clone()]);
        }
        table.add_row([
            "entries".into(),
            format!(
                "{}, all readable ({} bytes of keys and values)",
                grouped(self.contents.entries),
                grouped(self.contents.bytes)
            ),
        ]);
        table::finish(table, 2)
    }

    fn clauses_table(&self) -> String {
        let mut table = table::plain();
        table.set_header(["clause", "result"]);
        for Examined { clause, outcome } in &self.clauses {
            let result = match outcome {
                ClauseOutcome::Held => "held".into(),
                ClauseOutcome::NotApplicable(why) => format!("not applicable ({why})"),
                ClauseOutcome::Violated(why) if Ending::of_cause(why).is_some() => {
                    format!("not judged: {why}")
                }
                ClauseOutcome::Violated(why) => {
                    format!("VIOLATED: {why}\n(promised: {})", clause.promise)
                }
            };
            table.add_row([clause.name.into(), result]);
        }
        table::finish(table, 2)
    }

    fn speeds_table(&self) -> String {
        let mut table = table::plain();
        table.set_header(["speed", "per second", "p50 ms", "p99 ms", "p99.9 ms", "max ms"]);
        for Measured { work, speed } in &self.speeds {
            table.add_row(match speed {
                Ok(speed) => {
                    let latencies = speed.latencies;
                    let millis =
                        [latencies.p50, latencies.p99, latencies.p999, latencies.max].map(millis);
                    [vec![work.to_string(), grouped(per_second(speed))], millis.to_vec()].concat()
                }
                Err(_) => vec![work.to_string(), "failed".into()],
            });
        }
        table::finish(table, 1)
    }

    /// The report as programs read it.
    pub(crate) fn json(&self) -> String {
        let Limits { writes, commit_bytes, value_bytes } = self.limits;
        let report = json!({
            "class": self.class.to_string(),
            "class_meaning": self.class.meaning(),
            "limits": {
                "writes": writes,
                "commit_bytes": commit_bytes,
                "value_bytes": value_bytes,
            },
            "epoch": self.epoch.0,
            "facts": self.facts.iter().map(|(name, value)| (*name, value.as_str())).collect::<BTreeMap<_, _>>(),
            "entries": self.contents.entries,
            "bytes": self.contents.bytes,
            "clauses": self.clauses.iter().map(clause_json).collect::<Vec<_>>(),
            "speeds": self.speeds.iter().map(speed_json).collect::<Vec<_>>(),
            "fine": self.verdict().is_ok(),
        });
        format!("{report:#}\n")
    }
}

fn clause_json(examined: &Examined) -> Value {
    let (result, why) = match &examined.outcome {
        ClauseOutcome::Held => ("held", None),
        ClauseOutcome::NotApplicable(why) => ("not applicable", Some((*why).to_owned())),
        ClauseOutcome::Violated(why) if Ending::of_cause(why).is_some() => {
            ("not judged", Some(why.to_string()))
        }
        ClauseOutcome::Violated(why) => ("violated", Some(why.to_string())),
    };
    let Clause { name, promise, .. } = examined.clause;
    json!({ "clause": name, "promise": promise, "result": result, "why": why })
}

fn speed_json(measured: &Measured) -> Value {
    let work = measured.work.to_string();
    match &measured.speed {
        Ok(speed) => {
            let millis = |latency: std::time::Duration| latency.as_secs_f64() * 1_000.0;
            json!({
                "work": work,
                "per_second": speed.per_second(),
                "p50_ms": millis(speed.latencies.p50),
                "p99_ms": millis(speed.latencies.p99),
                "p999_ms": millis(speed.latencies.p999),
                "max_ms": millis(speed.latencies.max),
            })
        }
        Err(why) => json!({ "work": work, "failed": why.to_string() }),
    }
}

/// Whole ones: nobody needs more of a rate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and far below 2^64"
)]
fn per_second(speed: &Speed) -> u64 {
    speed.per_second().round() as u64
}
