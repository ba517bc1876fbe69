//! `watchbell demo`: what becomes of runs while those are killed who look after them.
//!
//! It is the demonstration of the fault-tolerant task scheduler, in one command: a server, three workers and 100 runs as real processes,
//! and a timetable by which they are killed and come back. Nothing of it is played: this process starts and kills others, asks the
//! server what a client may ask, and reads what the runs wrote down.
//!
//! - [`plan`]: the runs and the timetable
//! - [`stage`]: the processes; [`cast`]: what they are
//! - [`watch`]: what the server says; [`journal`]: what the runs say
//! - [`story`]: what happened; [`check`]: whether it may have; [`view`], [`timeline`], [`closing`], [`display`]: how it is told

mod cast;
mod check;
mod closing;
mod display;
mod journal;
mod plan;
mod stage;
mod story;
mod timeline;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use client::ClientError;
use store::clock::Stopwatch;
use store::machine::{Machine as _, System};
use tempfile::TempDir;

use self::check::Records;
use self::closing::Closing;
use self::display::Display;
use self::journal::{Journal, Mark};
use self::plan::{Act, Actor, Plan, Step};
use self::stage::Stage;
use self::story::{Absences, Cause, Event, Span, SpanEnd, Tone, spans};
use self::view::Scene;
use self::watch::{Ended, Watch};
use crate::args::OutputFormat;
use crate::args::demo::{DemoVerb, TasksArgs};
use crate::check::unless_interrupted;
use crate::exit::{Ending, say};
use crate::table;

/// How often it is looked who is up and what is due.
const TICK: Duration = Duration::from_millis(100);

/// How long the server may take until it has the runs.
const START_MAX: Duration = Duration::from_secs(60);

/// How long whoever died unplanned stays down.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Who dies sooner than this after its start did not come up at all.
const UP_MIN: Duration = Duration::from_secs(2);

/// Who does so as often as this in a row is not started again.
const FALLS_MAX: u32 = 5;

/// So long it takes at most, at the usual speed, and this much more at any.
const LENGTH_MAX: Duration = Duration::from_secs(20 * 60);
const LENGTH_MORE: Duration = Duration::from_secs(3 * 60);

/// So long it is tried to remove the directory.
const REMOVE_MAX: Duration = Duration::from_secs(5);

/// How wide the picture at the end is where nobody says how wide the terminal is, and at most.
const WIDTH: usize = 100;
const WIDTH_MAX: usize = 140;

pub(crate) async fn demo(verb: &DemoVerb) -> Result<(), Ending> {
    match verb {
        DemoVerb::Tasks(typed) => tasks(typed).await,
        DemoVerb::Actor(typed) => cast::become_actor(typed),
        DemoVerb::Task(typed) => cast::be_task(typed).await,
    }
}

async fn tasks(typed: &TasksArgs) -> Result<(), Ending> {
    let dir = tempfile::Builder::new()
        .prefix("watchbell-demo-")
        .tempdir()
        .map_err(|why| no_place(&why))?;
    let plan = Plan::new(typed);
    let stage = Stage::new(dir.path(), &plan)?;
    let mut show = Show::new(&plan, stage, dir.path())?;
    let interrupted = "the demonstration was interrupted: its processes and its directory are gone";
    let played = unless_interrupted(show.play()).await;
    match played.unwrap_or_else(|| Err(Ending::failed(interrupted))) {
        Ok(()) => show.conclude(typed, dir).await,
        Err(why) => {
            show.stage.clear().await;
            show.display.close();
            remove(dir).await;
            Err(why)
        }
    }
}

/// Removes everything. What died a moment ago may have written a moment ago.
async fn remove(dir: TempDir) {
    let path = dir.keep();
    let since = Stopwatch::start();
    while let Err(why) = std::fs::remove_dir_all(&path) {
        if since.elapsed() > REMOVE_MAX {
            return say(&format!("{} could not be removed: {why}", path.display()));
        }
        tokio::time::sleep(TICK).await;
    }
}

fn no_place(why: &io::Error) -> Ending {
    Ending::failed(format!(
        "cannot make a temporary directory: {why}; name another place by TMPDIR"
    ))
}

/// The demonstration, while it runs.
struct Show<'a> {
    plan: &'a Plan,
    stage: Stage,
    display: Display,
    place: String,
    journal: Journal,
    /// When the runs were submitted, by both clocks.
    zero: Stopwatch,
    zero_us: u64,
    /// Steps of the timetable that were taken.
    taken: usize,
    absences: Absences,
    events: Vec<Event>,
    spans: Vec<Span>,
    records: Records,
    /// Who died unplanned is started again then.
    due: BTreeMap<Actor, Duration>,
    started: BTreeMap<Actor, Stopwatch>,
    falls: BTreeMap<Actor, u32>,
    /// Lines of the journal that were told of.
    told: usize,
    /// The server was down, and has not answered since.
    is_awaited: bool,
}

impl<'a> Show<'a> {
    fn new(plan: &'a Plan, stage: Stage, dir: &Path) -> Result<Self, Ending> {
        let journal = Journal::create(dir.join("journal")).map_err(|why| no_place(&why))?;
        let place = stage.url();
        Ok(Self {
            plan,
            stage,
            display: Display::on_stderr(),
            place,
            journal,
            zero: Stopwatch::start(),
            zero_us: 0,
            taken: 0,
            absences: Absences::default(),
            events: Vec::new(),
            spans: Vec::new(),
            records: Records::new(),
            due: BTreeMap::new(),
            started: BTreeMap::new(),
            falls: BTreeMap::new(),
            told: 0,
            is_awaited: false,
        })
    }

    /// From the first process to the end of the last run.
    async fn play(&mut self) -> Result<(), Ending> {
        let watch = self.begin().await?;
        let mut looking = pin!(watch.round());
        let mut ticks = tokio::time::interval(TICK);
        let length_max = LENGTH_MAX / self.plan.speed + LENGTH_MORE;
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick().await?,
                (watch, ended) = &mut looking => {
                    self.hear(ended);
                    if watch.is_over() {
                        self.read_journal()?;
                        self.draw();
                        return Ok(());
                    }
                    looking.set(watch.round());
                }
            }
            if self.now() > length_max {
                return Err(Ending::failed(format!(
                    "the runs were not over after {} s: {} of {} are recorded",
                    length_max.as_secs(),
                    self.records.len(),
                    self.plan.tasks.len()
                )));
            }
        }
    }

    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    /// Starts everybody, and submits the runs.
    async fn begin(&mut self) -> Result<Watch, Ending> {
        for actor in Actor::all() {
            self.start(actor)?;
        }
        let mut watch = Watch::new(&self.plan.tasks, &self.stage, self.journal.path())?;
        let waited = Stopwatch::start();
        while let Err(why) = watch.submit().await {
            let is_passing =
                matches!(why, ClientError::Unreachable { .. } | ClientError::Unavailable { .. });
            if !is_passing || waited.elapsed() > START_MAX {
                return Err(why.into());
            }
            for (actor, status) in self.stage.fallen() {
                self.count_fall(actor, status)?;
                self.start(actor)?;
            }
            tokio::time::sleep(TICK).await;
        }
        (self.zero, self.zero_us) = (Stopwatch::start(), System.wall_us());
        let text = format!(
            "{} runs are submitted; each worker carries out {} at a time",
            self.plan.tasks.len(),
            self.plan.capacity
        );
        self.tell(Tone::Good, text);
        Ok(watch)
    }

    fn start(&mut self, actor: Actor) -> Result<(), Ending> {
        self.started.insert(actor, Stopwatch::start());
        self.stage.start(actor)
    }

    fn tell(&mut self, tone: Tone, text: String) {
        let event = Event { at: self.now(), tone, text };
        self.display.tell(&event, self.plan.speed);
        self.events.push(event);
    }

    /// Does what is due, and shows how things stand.
    async fn tick(&mut self) -> Result<(), Ending> {
        for (actor, status) in self.stage.fallen() {
            self.count_fall(actor, status)?;
            let now = self.now();
            self.due.insert(actor, now + RESTART_PAUSE);
            self.goes(
                actor,
                Cause::Unplanned,
                &format!("has ended ({status}), which is not in the timetable"),
            );
        }
        while let Some(step) = self.plan.steps.get(self.taken).filter(|step| step.at <= self.now())
        {
            self.taken += 1;
            self.take(*step).await?;
        }
        let now = self.now();
        let due: Vec<Actor> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(actor, _)| *actor).collect();
        for actor in due {
            self.revive(actor)?;
        }
        self.read_journal()?;
        self.draw();
        Ok(())
    }

    async fn take(&mut self, step: Step) -> Result<(), Ending> {
        let Step { actor, act, .. } = step;
        match act {
            Act::Kill if self.stage.pid(actor).is_none() => {
                // Somebody was faster. From now on it is the timetable that keeps it down.
                self.due.remove(&actor);
                self.tell(Tone::Plain, format!("{actor} would be killed now, and is down already"));
            }
            Act::Kill => {
                self.read_journal()?;
                self.stage.kill(actor).await;
                self.goes(actor, Cause::Planned, "is killed (kill -9)");
            }
            Act::Revive if self.stage.pid(actor).is_none() => self.revive(actor)?,
            Act::Revive => {}
        }
        Ok(())
    }

    /// Somebody is down from now on.
    fn goes(&mut self, actor: Actor, cause: Cause, how: &str) {
        self.absences.begin(actor, self.now(), cause);
        let runs = self.under_way(actor);
        let runs = match (actor, runs.len()) {
            (Actor::Server, 0) => String::new(),
            (Actor::Server, 1) => "; one run goes on without it".to_owned(),
            (Actor::Server, count) => format!("; {count} runs go on without it"),
            (Actor::Worker(_), 0) => "; it had no runs".to_owned(),
            (Actor::Worker(_), 1) => format!("; run {} was under way", runs[0]),
            (Actor::Worker(_), _) => format!("; runs {} were under way", runs.join(", ")),
        };
        self.is_awaited |= actor == Actor::Server;
        self.tell(Tone::Bad, format!("{actor} {how}{runs}"));
    }

    /// The runs that a worker executes; for the server, those of all.
    fn under_way(&self, actor: Actor) -> Vec<String> {
        let spans = self.spans.iter().filter(|span| matches!(span.end, SpanEnd::UnderWay));
        let spans = spans.filter(|span| actor == Actor::Server || span.worker == actor);
        spans.map(|span| span.task.to_string()).collect()
    }

    fn revive(&mut self, actor: Actor) -> Result<(), Ending> {
        self.due.remove(&actor);
        self.start(actor)?;
        self.absences.end(actor, self.now());
        self.tell(Tone::Good, format!("{actor} is started again"));
        Ok(())
    }

    /// Whoever cannot stay up is not started for ever.
    fn count_fall(&mut self, actor: Actor, status: ExitStatus) -> Result<(), Ending> {
        let lived = self.started.get(&actor).map_or(UP_MIN, Stopwatch::elapsed);
        let falls = self.falls.entry(actor).or_default();
        *falls = if lived < UP_MIN { *falls + 1 } else { 0 };
        if *falls < FALLS_MAX {
            return Ok(());
        }
        Err(Ending::failed(format!(
            "{actor} does not stay up ({status}): the last line of its log says: {}",
            self.stage.last_word(actor)
        )))
    }

    /// Reads what runs have written down, and tells of those that begin again.
    fn read_journal(&mut self) -> Result<(), Ending> {
        self.journal
            .read_on()
            .map_err(|why| Ending::failed(format!("cannot read the journal of the runs: {why}")))?;
        self.spans = spans(&self.journal.entries, &self.absences, self.zero_us);
        let new = self.journal.entries[self.told..].iter();
        let again = new.filter(|entry| entry.mark == Mark::Begun && entry.attempt > 1);
        let again: Vec<String> = again
            .map(|entry| {
                format!(
                    "run {} is begun again by {}, attempt {}",
                    entry.task, entry.worker, entry.attempt
                )
            })
            .collect();
        self.told = self.journal.entries.len();
        for text in again {
            self.tell(Tone::Plain, text);
        }
        Ok(())
    }

    /// Takes in what the server says.
    fn hear(&mut self, said: Result<Vec<Ended>, ClientError>) {
        // It is down, or comes up: the next look finds what this one did not.
        let Ok(ended) = said else { return };
        if self.is_awaited && self.stage.pid(Actor::Server).is_some() {
            self.is_awaited = false;
            self.tell(Tone::Good, format!("the server answers again, and records {}", ended.len()));
        }
        for end in ended {
            match end {
                Ended::Recorded { task, run } => {
                    self.records.insert(task, *run);
                    self.tell_of_progress();
                }
                Ended::Redriven { task, why } => {
                    self.tell(Tone::Plain, format!("run {task} was dead ({why}), and is redriven"));
                }
            }
        }
    }

    /// Each tenth of the way.
    fn tell_of_progress(&mut self) {
        let (done, all) = (self.records.len(), self.plan.tasks.len());
        if done * 10 / all > (done - 1) * 10 / all {
            self.tell(Tone::Plain, format!("{done} of {all} runs have ended"));
        }
    }

    fn draw(&mut self) {
        let pids: Vec<_> =
            Actor::all().filter_map(|actor| Some((actor, self.stage.pid(actor)?))).collect();
        let scene = Scene {
            plan: self.plan,
            now: self.zero.elapsed(),
            place: &self.place,
            pids: &pids,
            absences: &self.absences,
            spans: &self.spans,
            recorded: self.records.len(),
            events: &self.events,
        };
        self.display.draw(|width, colour| scene.lines(width, colour));
    }

    /// Ends the processes, and tells what became of it all.
    async fn conclude(self, typed: &TasksArgs, dir: TempDir) -> Result<(), Ending> {
        let took = self.now();
        self.stage.close().await;
        self.display.close();
        let mut closing = Closing {
            plan: self.plan,
            took,
            records: &self.records,
            entries: &self.journal.entries,
            spans: &self.spans,
            absences: &self.absences,
            kept: None,
        };
        let wrong = closing.findings().len();
        if typed.keep || wrong > 0 {
            closing.kept = Some(dir.keep().display().to_string());
        } else {
            remove(dir).await;
        }
        let text = match typed.output {
            OutputFormat::Table => {
                closing.text(table::terminal_width().unwrap_or(WIDTH).min(WIDTH_MAX))
            }
            OutputFormat::Json => closing.json(),
        };
        io::stdout().write_all(text.as_bytes())?;
        match wrong {
            0 => Ok(()),
            count => Err(Ending::failed(format!("{count} things went wrong: see above"))),
        }
    }
}
