//! What is to be done with queues, or rings, to make them be as files say; how it is shown, and done.

use std::fmt::Write;

use client::ClientError;
use serde::Serialize;
use serde_json::{Value, json};

use super::plan::{FieldChange, each};
use super::sentence;
use super::show::{self, ApplyOutcome, ApplyRow, field_text};
use crate::args::OutputFormat;
use crate::colour::Colour;
use crate::exit::Ending;
use crate::trigger::print;
use crate::value::escape;

/// What becomes of one of them.
#[derive(Debug)]
pub(super) struct SpecStep<S> {
    pub(super) name: String,
    pub(super) change: SpecChange<S>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum SpecChange<S> {
    Create(S),
    Update(S, Vec<FieldChange>),
    Unchanged,
    Delete,
}

impl<S: Serialize> SpecChange<S> {
    /// From what there is to what is wanted, if they do not mean the same.
    pub(super) fn to(found: &S, wanted: S) -> Self {
        let changes = super::plan::fields(found, &wanted);
        Self::Update(wanted, changes)
    }
}

impl<S> SpecStep<S> {
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.change, SpecChange::Delete)
    }

    /// That it was left alone.
    pub(super) fn left(&self, why: &str) -> ApplyRow {
        let outcome = ApplyOutcome::Failed(format!("nothing was sent, because {why}"));
        ApplyRow { name: self.name.clone(), outcome }
    }

    /// What became of it.
    pub(super) fn row(&self, sent: Result<(), ClientError>) -> ApplyRow {
        let outcome = match (&self.change, sent) {
            (_, Err(why)) => ApplyOutcome::Failed(sentence(&why)),
            (SpecChange::Unchanged, Ok(())) => ApplyOutcome::Unchanged,
            (SpecChange::Create(_), Ok(())) => ApplyOutcome::Created,
            (SpecChange::Update(..), Ok(())) => ApplyOutcome::Updated,
            (SpecChange::Delete, Ok(())) => ApplyOutcome::Deleted,
        };
        ApplyRow { name: self.name.clone(), outcome }
    }

    /// The sign and the word of the change.
    fn sign(&self) -> (char, &'static str) {
        match self.change {
            SpecChange::Create(_) => ('+', "create"),
            SpecChange::Update(..) => ('~', "update"),
            SpecChange::Unchanged => ('=', "unchanged"),
            SpecChange::Delete => ('-', "delete"),
        }
    }

    fn value(&self) -> Value {
        let mut told = json!({ "name": self.name, "change": self.sign().1 });
        if let SpecChange::Update(_, fields) = &self.change {
            told["fields"] = json!(fields);
        }
        told
    }
}

/// Sends what is to be done, a few at a time; deletions last, and only if everything else was done.
pub(super) async fn carry_out<S, F>(
    steps: Vec<SpecStep<S>>,
    send: impl Fn(SpecStep<S>) -> F,
) -> Vec<ApplyRow>
where
    F: Future<Output = ApplyRow> + Send + 'static,
{
    let (deletions, others): (Vec<_>, Vec<_>) = steps.into_iter().partition(SpecStep::is_deletion);
    let mut rows = each(others, &send).await;
    if rows.iter().any(ApplyRow::has_failed) {
        let why = || ApplyOutcome::Failed("it was not deleted, because others failed".to_owned());
        rows.extend(deletions.into_iter().map(|step| ApplyRow { name: step.name, outcome: why() }));
    } else {
        rows.extend(each(deletions, &send).await);
    }
    rows
}

/// Shows what would be done.
pub(super) fn dry_run<S>(
    (of, steps): (&str, &[SpecStep<S>]),
    output: OutputFormat,
) -> Result<(), Ending> {
    let told: Vec<Value> = steps.iter().map(SpecStep::value).collect();
    print(output, &json!({ of: told }), || dry_text(steps, Colour::of_stdout()))
}

pub(super) fn dry_text<S>(steps: &[SpecStep<S>], colour: Colour) -> String {
    let mut text = String::new();
    for step in steps {
        let (sign, word) = step.sign();
        let head = colour.of_sign(sign, &format!("{sign} {word} {}", escape(&step.name)));
        match &step.change {
            SpecChange::Unchanged => {}
            SpecChange::Create(_) | SpecChange::Delete => {
                let _ = writeln!(text, "{head}");
            }
            SpecChange::Update(_, fields) => {
                let _ = writeln!(text, "{head}");
                for change in fields {
                    let _ = writeln!(text, "    {}", field_text(change));
                }
            }
        }
    }
    let count = |word: &str| steps.iter().filter(|step| step.sign().1 == word).count();
    let counts = [
        ("to create", count("create")),
        ("to update", count("update")),
        ("unchanged", count("unchanged")),
        ("to delete", count("delete")),
    ];
    let _ = writeln!(text, "{}. Nothing was sent.", show::summary(&counts));
    text
}
