//! What is told at the end: to people as tables and a picture, to programs as one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::check::{Finding, Records, findings};
use super::journal::Entry;
use super::plan::{Act, Actor, Plan};
use super::story::{Absences, Cause, Span, SpanEnd, clock};
use super::timeline::Timeline;
use crate::table;

/// All that there is to tell.
pub(super) struct Closing<'a> {
    pub(super) plan: &'a Plan,
    pub(super) took: Duration,
    pub(super) records: &'a Records,
    pub(super) entries: &'a [Entry],
    pub(super) spans: &'a [Span],
    pub(super) absences: &'a Absences,
    /// Where everything is, if it is kept.
    pub(super) kept: Option<String>,
}

/// The JSON object. Times are in seconds since the runs were submitted.
#[derive(Serialize)]
struct Told<'a> {
    tasks: usize,
    succeeded: usize,
    /// Whether all succeeded and nothing was found that must not be.
    all_is_well: bool,
    findings: Vec<String>,
    speed: u32,
    seed: u64,
    took_s: f64,
    /// How many runs needed one attempt, two, …
    attempts: BTreeMap<u32, usize>,
    /// Programs that were ended with their workers.
    cut_short: usize,
    timetable: Vec<ToldAbsence>,
    runs: Vec<ToldRun<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<&'a str>,
}

#[derive(Serialize)]
struct ToldAbsence {
    who: String,
    down_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_s: Option<f64>,
    planned: bool,
}

#[derive(Serialize)]
struct ToldRun<'a> {
    task: u32,
    length_s: f64,
    #[serde(flatten)]
    recorded: Option<ToldRecord<'a>>,
    /// Every time that a program was begun for it.
    carried_out: Vec<ToldSpan>,
}

#[derive(Serialize)]
struct ToldRecord<'a> {
    id: &'a str,
    state: &'static str,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<&'a str>,
}

#[derive(Serialize)]
struct ToldSpan {
    attempt: u32,
    worker: String,
    begun_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_s: Option<f64>,
    finished: bool,
}

impl Closing<'_> {
    /// What must not be, and is.
    pub(super) fn findings(&self) -> Vec<Finding> {
        findings(&self.plan.tasks, self.records, self.entries)
    }

    fn succeeded(&self) -> usize {
        let all = self.records.values();
        all.filter(|run| run.state == client::run::RunState::Succeeded).count()
    }

    /// How many runs needed so many attempts.
    fn attempts(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for run in self.records.values() {
            *counts.entry(run.attempt).or_default() += 1;
        }
        counts
    }

    fn cut(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| matches!(span.end, SpanEnd::Cut(_)))
    }

    /// For people, on a terminal that is so wide.
    pub(super) fn text(&self, width: usize) -> String {
        let findings = self.findings();
        let (count, succeeded) = (self.plan.tasks.len(), self.succeeded());
        let took = clock(self.took, self.plan.speed);
        let faster = match self.plan.speed {
            1 => String::new(),
            speed => format!(
                " of the timetable, {:.1} s at {speed} times its speed",
                self.took.as_secs_f64()
            ),
        };
        let mut text = format!("{succeeded} of {count} runs succeeded in {took}{faster}.\n");
        if findings.is_empty() {
            text += "Nothing was lost and nothing counted twice: each completion that the server recorded is of the attempt,\n\
                     and of the worker, in which a program wrote down itself that it came to its end.\n";
        }
        for finding in &findings {
            let _ = writeln!(text, "✕ {finding}");
        }
        text += "\nAttempts\n";
        text += &self.attempts_table();
        let (absences, spans) = (self.absences, self.spans);
        let timeline = Timeline { absences, spans, length: self.took, speed: self.plan.speed };
        text += "\nWho ran what, and when (░ down, ✕ cut short)\n";
        for row in timeline.rows(width) {
            text += &row;
            text.push('\n');
        }
        text += "\n";
        text += &self.actors_table();
        text += &self.skipped_steps();
        text += &self.next();
        text
    }

    /// How many runs needed how many, and where those went that needed more than one.
    fn attempts_table(&self) -> String {
        let mut text = String::new();
        for (attempts, runs) in self.attempts() {
            let needed = if attempts == 1 { "attempt" } else { "attempts" };
            let _ = writeln!(text, "{runs:>5} with {attempts} {needed}");
        }
        for (task, run) in self.records.iter().filter(|(_, run)| run.attempt > 1) {
            let spans = self.spans.iter().filter(|span| span.task == *task);
            let told: Vec<String> = spans.map(|span| self.span(span)).collect();
            // A worker may be gone before the program of an attempt has begun.
            let begun =
                if told.len() < run.attempt as usize { "; another was not begun" } else { "" };
            let _ = writeln!(text, "      run {task}: {}{begun}", told.join(", then "));
        }
        text
    }

    fn span(&self, span: &Span) -> String {
        let clock = |at| clock(at, self.plan.speed);
        let begun = clock(span.begun);
        match span.end {
            SpanEnd::Finished(at) => format!("{} {begun}–{}", span.worker, clock(at)),
            SpanEnd::Cut(at) => format!("{} {begun}–{}, cut short", span.worker, clock(at)),
            SpanEnd::UnderWay => format!("{} since {begun}", span.worker),
        }
    }

    fn actors_table(&self) -> String {
        let mut rows = vec![["", "runs", "cut short", "down"].map(str::to_owned).to_vec()];
        for actor in Actor::all() {
            let of = |is_it: fn(&SpanEnd) -> bool| {
                let spans =
                    self.spans.iter().filter(|span| span.worker == actor && is_it(&span.end));
                spans.count().to_string()
            };
            let counts = match actor {
                Actor::Server => [String::new(), String::new()],
                Actor::Worker(_) => [
                    of(|end| matches!(end, SpanEnd::Finished(_))),
                    of(|end| matches!(end, SpanEnd::Cut(_))),
                ],
            };
            let down = self.absences.of(actor).iter().map(|absence| {
                let clock = |at| clock(at, self.plan.speed);
                let to = absence.to.map_or_else(String::new, clock);
                let who = if absence.cause == Cause::Unplanned { " (not planned)" } else { "" };
                format!("{}–{to}{who}", clock(absence.from))
            });
            let down = down.collect::<Vec<_>>().join(", ");
            rows.push([vec![actor.to_string()], counts.to_vec(), vec![down]].concat());
        }
        table::rows(rows, 1)
    }

    /// A short demonstration is over before its timetable is.
    fn skipped_steps(&self) -> String {
        let skipped = self.plan.steps.iter().filter(|step| step.at > self.took);
        match skipped.filter(|step| step.act == Act::Kill).count() {
            0 => String::new(),
            count => format!("The runs were over before {count} of the kills were due.\n"),
        }
    }

    fn next(&self) -> String {
        let kept = match &self.kept {
            Some(place) => format!(
                "\nKept: {place}, with the journal, the logs and the store. To look into it:\n  \
                 watchbell dev --data {place}/store\n  watchbell run list --queue tasks\n"
            ),
            None => String::new(),
        };
        format!(
            "{kept}\nWhere to look next\n  \
             watchbell dev --allow /bin/sleep      a server with a worker, for runs of yours\n  \
             watchbell worker --help               workers on their own\n  \
             docs/workers.md                       writing one, running one, what happens when things die\n"
        )
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let findings: Vec<String> = self.findings().iter().map(ToString::to_string).collect();
        let told = Told {
            tasks: self.plan.tasks.len(),
            succeeded: self.succeeded(),
            all_is_well: findings.is_empty(),
            findings,
            speed: self.plan.speed,
            seed: self.plan.seed,
            took_s: seconds(self.took),
            attempts: self.attempts(),
            cut_short: self.cut().count(),
            timetable: Actor::all().flat_map(|actor| self.told_absences(actor)).collect(),
            runs: self
                .plan
                .tasks
                .iter()
                .map(|task| self.told_run(task.number, task.length))
                .collect(),
            directory: self.kept.as_deref(),
        };
        let json = serde_json::to_string_pretty(&told);
        format!("{}\n", json.expect("a plain struct always serializes"))
    }

    fn told_absences(&self, actor: Actor) -> impl Iterator<Item = ToldAbsence> {
        self.absences.of(actor).iter().map(move |absence| ToldAbsence {
            who: actor.to_string(),
            down_s: seconds(absence.from),
            up_s: absence.to.map(seconds),
            planned: absence.cause == Cause::Planned,
        })
    }

    fn told_run(&self, task: u32, length: Duration) -> ToldRun<'_> {
        let recorded = self.records.get(&task).map(|run| ToldRecord {
            id: &run.id,
            state: run.state.as_str(),
            attempts: run.attempt,
            worker: run.attempts.last().and_then(|last| last.worker.as_deref()),
        });
        let spans = self.spans.iter().filter(|span| span.task == task);
        let told = spans.map(|span| {
            let (ended, finished) = match span.end {
                SpanEnd::Finished(at) => (Some(at), true),
                SpanEnd::Cut(at) => (Some(at), false),
                SpanEnd::UnderWay => (None, false),
            };
            let worker = span.worker.to_string();
            let (begun_s, ended_s) = (seconds(span.begun), ended.map(seconds));
            ToldSpan { attempt: span.attempt, worker, begun_s, ended_s, finished }
        });
        ToldRun { task, length_s: seconds(length), recorded, carried_out: told.collect() }
    }
}

/// Down to the millisecond.
fn seconds(length: Duration) -> f64 {
    (length.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::demo::check::tests::run;
    use crate::demo::journal::Mark;
    use crate::demo::journal::tests::entry;
    use crate::demo::plan::tests::typed;
    use crate::demo::story::spans;
    use crate::demo::story::tests::seconds as secs;

    /// Two runs, of which one was cut short at worker 1 and carried out by worker 2.
    fn told() -> (String, String) {
        let plan = Plan::new(&typed(2, 1, 10));
        let records =
            (1..).zip([run(1, &["worker-1"]), run(2, &["worker-1", "worker-2"])]).collect();
        let at = |ms: u64, entry: Entry| Entry { at_us: ms * 1_000, ..entry };
        let entries = [
            at(0, entry(Mark::Begun, 1, 1, "worker-1")),
            at(200, entry(Mark::Begun, 2, 1, "worker-1")),
            at(1_000, entry(Mark::Ended, 1, 1, "worker-1")),
            at(3_000, entry(Mark::Begun, 2, 2, "worker-2")),
            at(6_000, entry(Mark::Ended, 2, 2, "worker-2")),
        ];
        let mut absences = Absences::default();
        absences.begin(Actor::Worker(1), secs(5) / 2, Cause::Planned);
        absences.end(Actor::Worker(1), secs(4));
        let spans = spans(&entries, &absences, 0);
        let (records, entries, spans, absences) = (&records, &entries, &spans, &absences);
        let took = secs(6);
        let closing = Closing { plan: &plan, took, records, entries, spans, absences, kept: None };
        (closing.text(80), closing.json())
    }

    #[test]
    fn people_are_told_that_all_is_well_who_ran_what_and_what_needed_more_attempts() {
        let (text, _) = told();
        assert!(text.starts_with("2 of 2 runs succeeded in 1:00 of the timetable, 6.0 s at 10 times its speed.\nNothing was lost"), "{text}");
        for line in [
            "    1 with 1 attempt\n    1 with 2 attempts\n",
            "      run 2: worker-1 0:02–0:25, cut short, then worker-2 0:30–1:00\n",
            "The runs were over before 3 of the kills were due.\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| words(line) == "worker-1 1 1 0:25–0:40"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_told_first() {
        let plan = Plan::new(&typed(1, 1, 1));
        let (records, absences) = (Records::new(), Absences::default());
        let closing = Closing {
            plan: &plan,
            took: secs(60),
            records: &records,
            entries: &[],
            spans: &[],
            absences: &absences,
            kept: Some("/tmp/x".to_owned()),
        };
        let text = closing.text(80);
        let wrong =
            "0 of 1 runs succeeded in 1:00.\n✕ run 1 is lost: the server has no record of it\n";
        assert!(text.starts_with(wrong), "{text}");
        assert!(text.contains("\nKept: /tmp/x, "), "{text}");
        let json: Value = serde_json::from_str(&closing.json()).unwrap();
        assert_eq!(json["all_is_well"], false);
        assert_eq!(json["directory"], "/tmp/x");
    }

    #[test]
    fn programs_are_told_each_attempt_with_its_times() {
        let json: Value = serde_json::from_str(&told().1).unwrap();
        assert_eq!((&json["tasks"], &json["succeeded"]), (&json!(2), &json!(2)));
        assert_eq!((&json["all_is_well"], &json["cut_short"]), (&json!(true), &json!(1)));
        assert_eq!(json["attempts"], json!({"1": 1, "2": 1}));
        let down = json!({"who": "worker-1", "down_s": 2.5, "up_s": 4.0, "planned": true});
        assert_eq!(json["timetable"], json!([down]));
        let second = &json["runs"][1];
        assert_eq!((&second["id"], &second["attempts"]), (&json!("run_2"), &json!(2)));
        let cut = json!({"attempt": 1, "worker": "worker-1", "begun_s": 0.2, "ended_s": 2.5, "finished": false});
        let done = json!({"attempt": 2, "worker": "worker-2", "begun_s": 3.0, "ended_s": 6.0, "finished": true});
        assert_eq!(second["carried_out"], json!([cut, done]));
    }
}
