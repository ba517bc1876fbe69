//! How a shard hears workers, and tells people of its queues.
//!
//! Everything here is answered from memory. Memory is ahead of the store, so an answer waits until all that was decided
//! before it is written; if there is nothing to write, it costs no commit.

use std::sync::Arc;

use crate::id::{ProjectId, RunId, SerialId, TriggerId};
use crate::limits::{FILTER_LOOKED_AT_MAX, QUEUE_CHANGES_AT_ONCE};
use crate::past::Attempt;
use crate::queue::dead::DeadRun;
use crate::queue::decided::Decided;
use crate::queue::given::{AttemptResult, GivenRecord, RunToken, Stale};
use crate::queue::meter::Flow;
use crate::queue::output::RunProgress;
use crate::queue::record::{QueueRecord, QueuedRecord};
use crate::queue::submitted::{RunPlace, SubmittedRun};
use crate::queue::unfinished::{QueueCensus, WaitReason};
use crate::queue::worker::{
    DoneRun, Heard, HeldRun, Wants, WorkerAnswer, WorkerRequest, WorkerView,
};

use super::by_filter::FilterProgress;
use super::command::Rejection;
use super::output::{LiveOutput, OutputTaken};
use super::pick::PartView;
use super::{Now, Shard, Ticket};

/// What a worker says to a shard.
#[derive(Debug, Clone)]
pub struct WorkerCall {
    /// The project that it works for.
    pub project: ProjectId,
    /// Its name.
    pub worker: Arc<str>,
    /// Which life of it: greater than all before.
    pub incarnation: u64,
    /// Which request of this life: greater than all before.
    pub number: u64,
    /// The highest number of a claim that is answered or void.
    pub settled: u64,
    /// So long may it be silent.
    pub lease_ms: u32,
    /// Which log it keeps of what it begins: the life with which that began.
    pub since: u64,
    /// It takes no more runs, and ends when it has none.
    pub is_draining: bool,
    /// What came of runs.
    pub done: Vec<DoneCall>,
    /// Runs that it gives back, and has not begun.
    pub released: Vec<(RunId, RunToken)>,
    /// Runs that it has; none, if it only reports.
    pub running: Option<Vec<(RunId, RunToken)>>,
    /// What it wants besides.
    pub claim: Option<ClaimCall>,
}

/// What came of a run that a worker had.
#[derive(Debug, Clone)]
pub struct DoneCall {
    /// The run.
    pub run: RunId,
    /// The token under which it had the run.
    pub token: RunToken,
    /// What came of it.
    pub result: AttemptResult,
    /// What is kept of the attempt.
    pub made: Option<Attempt>,
}

/// A claim for runs.
#[derive(Debug, Clone)]
pub struct ClaimCall {
    /// What the last answer said about the memory that it speaks to.
    pub cookie: u64,
    /// From which queues, the first before the second.
    pub queues: Vec<Box<str>>,
    /// So many runs at most.
    pub free: usize,
    /// So long it waits if there is none, in milliseconds.
    pub wait_ms: u64,
    /// What the worker says about itself: `zone=b,version=7`.
    pub labels: Arc<str>,
}

/// What is answered from memory.
#[derive(Debug)]
pub enum ShardAnswer {
    /// To a worker.
    Worker(Box<WorkerReply>),
    /// A later life of the worker was heard: this one has to stop.
    OldIncarnation,
    /// As many workers of its project, or of all projects, are known as may be.
    TooManyWorkers,
    /// A newer claim of the same worker made this one void.
    Void,
    /// The shard decided against it.
    Rejected(Rejection),
    /// How a queue stands; none, if there is no such queue.
    Queue(Option<Box<QueueView>>),
    /// How runs of queues stand, those that are unfinished.
    Runs(Vec<QueuedView>),
    /// How some runs of a queue stand, and after which number to go on unless all were looked at.
    QueueRuns {
        /// The runs.
        runs: Vec<QueuedView>,
        /// The number.
        next: Option<u64>,
    },
    /// What came of what a worker said about a run that it executes.
    Taken(Result<OutputTaken, Stale>),
    /// What a run prints.
    Output(LiveOutput),
    /// A dead run; none, if there is no such.
    Dead(Option<DeadRun>),
    /// How many unfinished runs of a queue are meant by a filter.
    Counted(FilterProgress),
    /// The workers that were heard of.
    Workers(Vec<(WorkerView, Vec<Box<str>>)>),
    /// The runs that a worker has.
    WorkerRuns(Vec<WorkerRun>),
}

/// What a worker is answered.
#[derive(Debug, Default)]
pub struct WorkerReply {
    /// The memory that it speaks to.
    pub cookie: u64,
    /// The highest number of its requests that was heard.
    pub as_of: u64,
    /// Results and releases that are dealt with: whether they counted. What is missing is to be sent again.
    pub acks: Vec<(RunId, RunToken, bool)>,
    /// Runs that it has lost.
    pub lost: Vec<(RunId, RunToken)>,
    /// Runs that somebody wants to end.
    pub cancel: Vec<(RunId, RunToken)>,
    /// Runs that it is given.
    pub runs: Vec<GivenRun>,
    /// Queues that it named and that cannot be made: the project has as many here as it may.
    pub refused: Vec<Box<str>>,
}

/// A run that a worker is given.
#[derive(Debug)]
pub struct GivenRun {
    /// Its id.
    pub id: RunId,
    /// Its queue.
    pub queue: Arc<QueueRecord>,
    /// Where its records are.
    pub place: RunPlace,
    /// What is recorded of it.
    pub given: Arc<GivenRecord>,
    /// What it is about, if that is in memory.
    pub queued: Option<Arc<QueuedRecord>>,
}

/// A run that a worker has, as far as is recorded.
#[derive(Debug)]
pub struct WorkerRun {
    /// Its id.
    pub id: RunId,
    /// The name of its queue.
    pub queue: Box<str>,
    /// What is recorded of it.
    pub given: Arc<GivenRecord>,
}

/// How a queue stands.
#[derive(Debug)]
pub struct QueueView {
    /// What is stored of it.
    pub record: Arc<QueueRecord>,
    /// How many runs are where.
    pub census: QueueCensus,
    /// Why the first of its runs that could be given is not, or nothing of it is.
    pub why: Option<WaitReason>,
    /// What was given and what ended lately, as far as this owner knows.
    pub last_minute: Flow,
    /// How many claims wait for its runs.
    pub waiters: usize,
    /// How many runs may wait.
    pub waiting_max: usize,
    /// How many dead runs are kept.
    pub dead: usize,
}

/// How an unfinished run of a queue stands.
#[derive(Debug)]
pub struct QueuedView {
    /// Its id.
    pub id: RunId,
    /// What is stored of its queue.
    pub queue: Arc<QueueRecord>,
    /// What it is.
    pub run: SubmittedRun,
    /// Where its records are, or those of the run that it is a part of: what it is about lies there.
    pub place: RunPlace,
    /// The run that it is a part of, and the worker that was chosen for it.
    pub part_of: Option<(RunId, Box<str>)>,
    /// Its parts, if it is told by itself.
    pub parts: Vec<PartView>,
    /// What is recorded of it, if it was given.
    pub given: Option<Arc<GivenRecord>>,
    /// Why it waits, if it does.
    pub why: Option<WaitReason>,
    /// How far it has come, as its worker says.
    pub progress: Option<RunProgress>,
}

/// Workers.
impl Shard {
    /// A worker said something. Whoever has the ticket is told what follows, perhaps much later.
    pub fn hear(&mut self, call: WorkerCall, ticket: Ticket, now: Now) {
        let heard = self.translate(call, now);
        self.hear_request(heard, ticket, now);
    }

    /// A claim that waits is answered now, if it still does.
    pub fn stop_waiting(&mut self, ticket: Ticket) {
        if let Some(answer) = self.queues.workers.stop_waiting(ticket) {
            self.answer_waiting(ticket, answer);
        }
    }

    /// Answers claims that have waited.
    pub(super) fn answer_all_waiting(&mut self, answers: Vec<(Ticket, WorkerAnswer)>) {
        for (ticket, answer) in answers {
            self.answer_waiting(ticket, answer);
        }
    }

    fn answer_waiting(&mut self, ticket: Ticket, answer: WorkerAnswer) {
        let refused = self.queues.refused.remove(&ticket).unwrap_or_default();
        let reply = WorkerReply { refused, ..self.reply(answer, &NamedIds::default()) };
        self.outbox.answer(ticket, ShardAnswer::Worker(Box::new(reply)));
    }

    fn hear_request(&mut self, heard: HeardCall, ticket: Ticket, now: Now) {
        let HeardCall { request, ids, unknown, refused } = heard;
        // All of it is decided: what one request says is bounded.
        let mut decided = Decided::with_room(usize::MAX);
        let queues = &mut self.queues;
        let heard = queues.workers.hear(&request, ticket, &mut queues.runs, &mut decided, now);
        self.enact_decided(decided, now);
        if let Wants::Claim { queues, .. } = &request.wants
            && !self.queues.picks.is_empty()
        {
            self.join_picks(&request.worker, queues, now);
        }
        self.tell_workers(now);
        self.tell_voided();
        let answer = match heard {
            Heard::Waits => {
                if !refused.is_empty() {
                    self.queues.refused.insert(ticket, refused);
                }
                return;
            }
            Heard::Answer(answer) => {
                WorkerReply { refused, ..self.reply(answer, &ids).with(unknown) }
            }
            Heard::OldIncarnation => {
                return self.outbox.answer(ticket, ShardAnswer::OldIncarnation);
            }
            Heard::TooManyWorkers => {
                return self.outbox.answer(ticket, ShardAnswer::TooManyWorkers);
            }
        };
        self.outbox.answer(ticket, ShardAnswer::Worker(Box::new(answer)));
    }

    /// Gives what may be given to those who wait, gives up who is silent, and ends what has expired.
    pub(super) fn step_queues(&mut self, now: Now) {
        if self.outbox.is_half_full() {
            return;
        }
        self.end_queue_pauses(now);
        self.forget_spent_keys(now);
        self.forget_dead(now);
        self.keep_picks(now);
        self.queues.runs.advance(now.wall);
        self.choose_waiting(now);
        let mut decided = Decided::with_room(QUEUE_CHANGES_AT_ONCE);
        let queues = &mut self.queues;
        let answers = queues.workers.step(&mut queues.runs, &mut decided, now);
        self.enact_decided(decided, now);
        self.alert_queues(now);
        self.tell_workers(now);
        self.tell_voided();
        self.answer_all_waiting(answers);
    }

    fn tell_voided(&mut self) {
        for ticket in self.queues.workers.take_voided() {
            self.queues.refused.remove(&ticket);
            self.outbox.answer(ticket, ShardAnswer::Void);
        }
    }

    fn reply(&self, answer: WorkerAnswer, ids: &NamedIds) -> WorkerReply {
        let named = |held: HeldRun| ids.get(held.0).map(|id| (id, held.1));
        let acks = answer.acks.into_iter();
        let acks =
            acks.filter_map(|(held, counted)| named(held).map(|(id, token)| (id, token, counted)));
        let runs = answer.runs.into_iter();
        let runs = runs.filter_map(|(sequence, given)| {
            let runs = &self.queues.runs;
            let run = runs.get(sequence)?;
            // What a part is about lies with its run.
            let about = runs.part(sequence).map_or(sequence, |part| part.whole);
            let place = runs.place(about)?;
            Some(GivenRun {
                id: self.queued_id(&run),
                queue: Arc::clone(self.queues.get(run.queue)?),
                place,
                given,
                queued: self.queues.action(run.queue, place.order),
            })
        });
        WorkerReply {
            cookie: answer.cookie,
            as_of: answer.as_of,
            acks: acks.collect(),
            lost: answer.lost.into_iter().filter_map(named).collect(),
            cancel: answer.cancel.into_iter().filter_map(named).collect(),
            runs: runs.collect(),
            refused: Vec::new(),
        }
    }

    /// From ids to the numbers of runs. Those that are unknown, or another project's, are set apart.
    fn translate(&mut self, call: WorkerCall, now: Now) -> HeardCall {
        let (mut ids, mut unknown) = (NamedIds::default(), Unknown::default());
        let mut refused = Vec::new();
        let mut number = |id: RunId| {
            let sequence = self.queued_run(call.project, id)?;
            ids.0.push((sequence, id));
            Some(sequence)
        };
        let mut done = Vec::with_capacity(call.done.len());
        for DoneCall { run, token, result, made } in call.done {
            match number(run) {
                Some(sequence) => done.push(DoneRun { held: (sequence, token), result, made }),
                None => unknown.acks.push((run, token, false)),
            }
        }
        let mut released = Vec::with_capacity(call.released.len());
        for (run, token) in call.released {
            match number(run) {
                Some(sequence) => released.push((sequence, token)),
                None => unknown.acks.push((run, token, false)),
            }
        }
        let names_all = call.running.is_some();
        let mut running = Vec::new();
        for (run, token) in call.running.unwrap_or_default() {
            match number(run) {
                Some(sequence) => running.push((sequence, token)),
                None => unknown.lost.push((run, token)),
            }
        }
        ids.0.sort_unstable();
        let wants = match call.claim {
            None if names_all => Wants::Beat { running },
            None => Wants::Report,
            Some(claim) => {
                let mut queues: Vec<SerialId> = Vec::with_capacity(claim.queues.len());
                for name in &claim.queues {
                    match self.queue_named(call.project, name, &call.worker, now) {
                        Ok(queue) if queues.contains(&queue.id.serial) => {}
                        Ok(queue) => queues.push(queue.id.serial),
                        Err(_) => refused.push(name.clone()),
                    }
                }
                // Nobody knows what time it is, so nobody knows what is due; or so much waits to be written that slots
                // would have to wait for more.
                let is_closed = self.is_suspended || self.outbox.is_half_full();
                let free = if is_closed { 0 } else { claim.free };
                // What is told of runs that nobody knows is told at once, and nobody steps while time is unknown.
                let is_answered = !unknown.is_empty() || self.is_suspended || queues.is_empty();
                let until = now.steady + if is_answered { 0 } else { claim.wait_ms };
                let ClaimCall { cookie, labels, .. } = claim;
                Wants::Claim { running, cookie, queues, free, until, labels }
            }
        };
        let WorkerCall { worker, incarnation, number, settled, lease_ms, since, .. } = call;
        let is_draining = call.is_draining;
        let request = WorkerRequest {
            worker: tell_apart(call.project, &worker),
            incarnation,
            number,
            settled,
            lease_ms,
            since,
            done,
            released,
            is_draining,
            wants,
        };
        HeardCall { request, ids, unknown, refused }
    }
}

/// A name that workers of other projects do not have: it begins with the project and a slash.
fn tell_apart(project: ProjectId, worker: &str) -> Arc<str> {
    format!("{}/{worker}", project.0).into()
}

/// The project of a worker, and the name that it gave itself.
pub(super) fn name_apart(worker: &str) -> Option<(ProjectId, &str)> {
    let (number, name) = worker.split_once('/')?;
    Some((ProjectId(number.parse().ok()?), name))
}

/// The name that a worker gave itself, if it is one of this project.
fn own_name(project: ProjectId, worker: &str) -> Option<&str> {
    name_apart(worker).filter(|(of, _)| *of == project).map(|(_, name)| name)
}

/// What a worker said, in the words of the engine.
struct HeardCall {
    request: WorkerRequest,
    ids: NamedIds,
    unknown: Unknown,
    refused: Vec<Box<str>>,
}

/// The ids of runs that a worker named, in the order of their numbers.
#[derive(Default)]
struct NamedIds(Vec<(u64, RunId)>);

impl NamedIds {
    fn get(&self, sequence: u64) -> Option<RunId> {
        let place = self.0.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
        Some(self.0[place].1)
    }
}

/// What a worker said about runs that nobody knows, and is told of that.
#[derive(Default)]
struct Unknown {
    acks: Vec<(RunId, RunToken, bool)>,
    lost: Vec<(RunId, RunToken)>,
}

impl Unknown {
    fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.lost.is_empty()
    }
}

impl WorkerReply {
    fn with(mut self, unknown: Unknown) -> Self {
        self.acks.extend(unknown.acks);
        self.lost.extend(unknown.lost);
        self
    }
}

/// People.
impl Shard {
    /// Tells how a queue stands.
    pub fn show_queue(&mut self, project: ProjectId, name: &str, ticket: Ticket, now: Now) {
        self.queues.runs.advance(now.wall);
        let queue = self.queues.named(project, name).cloned();
        let view = queue.map(|record| Box::new(self.queue_view(record, now)));
        self.outbox.answer(ticket, ShardAnswer::Queue(view));
    }

    fn queue_view(&self, record: Arc<QueueRecord>, now: Now) -> QueueView {
        let (serial, runs) = (record.id.serial, &self.queues.runs);
        let census = runs.census(serial);
        let first = runs.first(serial).and_then(|sequence| runs.why(sequence, now.wall));
        QueueView {
            census,
            why: runs.closed(serial, now.wall).or(first),
            last_minute: self.queues.last_minute(serial, now),
            waiters: self.queues.workers.waiting_for(serial),
            waiting_max: self.queues.waiting_max(&record),
            dead: self.queues.dead.count(serial),
            record,
        }
    }

    /// Tells how an unfinished run stands.
    pub fn show_run(&mut self, project: ProjectId, id: RunId, ticket: Ticket, now: Now) {
        self.queues.runs.advance(now.wall);
        let sequence = self.queued_run(project, id);
        let views = sequence.into_iter().filter_map(|sequence| {
            let parts = self.part_views(sequence);
            Some(QueuedView { parts, ..self.queued_view(sequence, now)? })
        });
        let views = views.collect();
        self.outbox.answer(ticket, ShardAnswer::Runs(views));
    }

    /// Tells how some unfinished runs of a queue stand: those after a number, in the order of their numbers, of a bounded number
    /// of runs of the shard that are looked at.
    pub fn show_runs(
        &mut self,
        (project, name): (ProjectId, &str),
        after: u64,
        most: usize,
        ticket: Ticket,
        now: Now,
    ) {
        self.queues.runs.advance(now.wall);
        let serial = self.queues.named(project, name).map(|queue| queue.id.serial);
        let runs = &self.queues.runs;
        let (mut views, mut last, mut next) = (Vec::new(), after, None);
        for (looked_at, sequence) in runs.after(after).enumerate() {
            if looked_at == FILTER_LOOKED_AT_MAX || views.len() == most {
                next = Some(last);
                break;
            }
            last = sequence;
            // A part is told with its run.
            if runs.queue_of(sequence) == serial && runs.part(sequence).is_none() {
                views.extend(self.queued_view(sequence, now));
            }
        }
        let next = next.filter(|_| serial.is_some());
        self.outbox.answer(ticket, ShardAnswer::QueueRuns { runs: views, next });
    }

    /// Tells how the unfinished runs of a trigger stand that queues have: those of its latest slots, the latest first.
    pub fn show_runs_of(&mut self, trigger: TriggerId, most: usize, ticket: Ticket, now: Now) {
        self.queues.runs.advance(now.wall);
        let is_of_project = |view: &QueuedView| view.queue.id.project == trigger.project;
        let sequences = self.queues.of_trigger(trigger.serial).rev();
        let views = sequences.filter_map(|sequence| self.queued_view(sequence, now));
        let views = views.filter(is_of_project).take(most).collect();
        self.outbox.answer(ticket, ShardAnswer::Runs(views));
    }

    fn queued_view(&self, sequence: u64, now: Now) -> Option<QueuedView> {
        let runs = &self.queues.runs;
        let run = runs.get(sequence)?;
        let about = runs.part(sequence).map_or(sequence, |part| part.whole);
        Some(QueuedView {
            place: runs.place(about)?,
            part_of: self.whole_id(sequence).zip(self.chosen_for(sequence)),
            parts: Vec::new(),
            id: self.queued_id(&run),
            queue: Arc::clone(self.queues.get(run.queue)?),
            given: self.told_of(sequence).cloned(),
            why: runs.why(sequence, now.wall),
            progress: self.progress(sequence),
            run,
        })
    }

    /// Tells which workers of a project were heard of, and the names of the queues that they claim from.
    pub fn show_workers(&mut self, project: ProjectId, ticket: Ticket, now: Now) {
        let known = self.queues.workers.list(&self.queues.runs, now).into_iter();
        let views = known.filter_map(|view| {
            let name = own_name(project, &view.name)?.into();
            let queues = view.queues.iter().filter_map(|queue| self.queues.get(*queue));
            let queues = queues.map(|queue| queue.name.clone()).collect();
            Some((WorkerView { name, ..view }, queues))
        });
        let views = views.collect();
        self.outbox.answer(ticket, ShardAnswer::Workers(views));
    }

    /// Tells which runs a worker has, of those that were recorded first.
    pub fn show_worker_runs(
        &mut self,
        (project, worker): (ProjectId, &str),
        most: usize,
        ticket: Ticket,
    ) {
        let name = tell_apart(project, worker);
        let held = self.queues.runs.of_worker(&name);
        let runs = held.take(most).filter_map(|(sequence, given)| {
            let run = self.queues.runs.get(sequence)?;
            let queue = self.queues.get(run.queue)?.name.clone();
            Some(WorkerRun { id: self.queued_id(&run), queue, given: Arc::clone(given) })
        });
        let runs = runs.collect();
        self.outbox.answer(ticket, ShardAnswer::WorkerRuns(runs));
    }

    /// Answers that wait for nothing to be written.
    pub fn take_answers(&mut self) -> Vec<(Ticket, ShardAnswer)> {
        self.outbox.take_ready()
    }

    /// So many runs of a queue may wait, by what the store takes.
    pub fn set_waiting_max(&mut self, waiting_max: usize) {
        self.queues.set_waiting_max(waiting_max);
    }
}
