//! What runs print: in memory until their attempt is over, then in the unit of its result.

use engine::id::{ProjectId, RunId, ShardId};
use engine::instant::Instant;
use engine::limits::{
    OUTPUT_KEPT_BYTES_MAX, OUTPUT_SHARD_BYTES_MAX, PROGRESS_EVENT_MS, PROGRESS_EVENTS_MAX,
};
use engine::queue::given::{AttemptResult, GivenPolicy, RunToken, Stale};
use engine::queue::output::{OutputPiece, OutputRecord, OutputStream, output_key};
use engine::queue::pick::Pick;
use engine::record::decode;
use engine::shard::command::Command;
use engine::shard::record::{FORMAT, HeadRecord};
use engine::shard::{
    ClaimCall, DoneCall, LiveOutput, Loading, Now, OutputCall, OutputTaken, Put, Room, Shard,
    ShardAnswer, Submission, Ticket, WorkerCall, WorkerReply,
};
use serde_json::value::RawValue;

use super::bench::BEGIN;

const PROJECT: ProjectId = ProjectId::DEFAULT;
const LEASE_MS: u32 = 10_000;

/// A shard with one queue and one worker.
struct Printing {
    shard: Shard,
    steady: u64,
    number: u64,
    cookie: u64,
    batches: u64,
}

impl Printing {
    /// So many runs, all given to the worker.
    fn new(count: usize) -> (Self, Vec<(RunId, RunToken)>) {
        let now = Now { wall: Instant(BEGIN), steady: 0, random: 5 };
        let shard = Loading::begin(ShardId(3), 1, &HeadRecord::default()).finish(now);
        let mut printing = Self { shard, steady: 0, number: 0, cookie: 0, batches: 0 };
        let run = Submission {
            priority: 5,
            due: None,
            expires: None,
            key: None,
            unique: None,
            labels: None,
            policy: GivenPolicy::default(),
            timeout_ms: None,
            pick: Pick::Any,
            action: RawValue::from_string("{}".to_owned()).unwrap(),
        };
        let (queue, author) = ("mail".into(), String::new());
        let command = Command::Submit { project: PROJECT, queue, runs: vec![run; count], author };
        let now = printing.now();
        printing.shard.command(command, None, Ticket(1), now).unwrap();
        printing.write();
        printing.say(Vec::new(), 0);
        let given = printing.say(Vec::new(), count).runs;
        assert_eq!(given.len(), count);
        (printing, given.iter().map(|run| (run.id, run.given.token)).collect())
    }

    fn now(&self) -> Now {
        let wall = Instant(BEGIN + i64::try_from(self.steady).unwrap());
        Now { wall, steady: self.steady, random: 5 }
    }

    /// Writes what is to be written, and gives what that was.
    fn write(&mut self) -> (Vec<Vec<Put>>, Vec<(Ticket, ShardAnswer)>) {
        let room = Room { writes: 64, bytes: 1 << 20, value_bytes: 1 << 17 };
        let (mut batches, mut answers) = (Vec::new(), self.shard.take_answers());
        while let Some(batch) = self.shard.take_batch(self.batches + 1, room) {
            self.batches += 1;
            batches.push(batch.puts);
            answers.extend(self.shard.committed(self.now()).answers);
        }
        (batches, answers)
    }

    fn hear(&mut self, done: Vec<DoneCall>, free: usize) {
        self.number += 1;
        let claim = ClaimCall {
            cookie: self.cookie,
            queues: vec!["mail".into()],
            free,
            wait_ms: 0,
            labels: "".into(),
        };
        let call = WorkerCall {
            project: PROJECT,
            worker: "w".into(),
            incarnation: 1,
            number: self.number,
            settled: 0,
            lease_ms: LEASE_MS,
            since: 0,
            is_draining: false,
            done,
            released: Vec::new(),
            running: None,
            claim: Some(claim),
        };
        self.shard.hear(call, Ticket(self.number), self.now());
    }

    fn say(&mut self, done: Vec<DoneCall>, free: usize) -> WorkerReply {
        self.hear(done, free);
        let (_, answers) = self.write();
        let reply = answers.into_iter().find_map(|(_, answer)| match answer {
            ShardAnswer::Worker(reply) => Some(*reply),
            _ => None,
        });
        let reply = reply.expect("it is answered");
        self.cookie = reply.cookie;
        reply
    }

    fn print(
        &mut self,
        (run, token): (RunId, RunToken),
        offset: u64,
        bytes: &[u8],
    ) -> Result<OutputTaken, Stale> {
        let chunk =
            OutputPiece { offset, stream: OutputStream::Stdout, at: None, bytes: bytes.to_vec() };
        let chunks = vec![chunk];
        let call =
            OutputCall { project: PROJECT, run, token, oldest: None, chunks, progress: None };
        self.shard.take_output(call, self.now())
    }

    /// Says how far a run has come. Whether those who watch are told.
    fn progress(&mut self, (run, token): (RunId, RunToken)) -> bool {
        let (oldest, chunks, progress) = (None, Vec::new(), Some((Some(7), None)));
        let call = OutputCall { project: PROJECT, run, token, oldest, chunks, progress };
        self.shard.take_output(call, self.now()).unwrap().told.is_some()
    }

    fn kept(&self, run: RunId) -> usize {
        match self.shard.output(PROJECT, run) {
            LiveOutput::Printed(view) => view.pieces.iter().map(|piece| piece.bytes.len()).sum(),
            LiveOutput::Nothing | LiveOutput::NoRun => 0,
        }
    }
}

fn done((run, token): (RunId, RunToken), result: AttemptResult) -> Vec<DoneCall> {
    vec![DoneCall { run, token, result, made: None }]
}

fn stored(puts: &[Put], run: RunId) -> Option<OutputRecord> {
    let key = output_key(run);
    puts.iter().find_map(|put| match put {
        Put::Value(found, value) if *found == key => Some(decode(value, FORMAT).unwrap()),
        Put::Value(..) | Put::Gone(_) => None,
    })
}

#[test]
fn printing_writes_nothing_and_the_result_has_the_output_in_its_commit() {
    let (mut printing, runs) = Printing::new(1);
    let taken = printing.print(runs[0], 0, b"hello").unwrap();
    assert_eq!((taken.next, taken.attempt), (5, 1));
    assert!(printing.shard.is_settled(), "nothing is to be written");
    printing.hear(done(runs[0], AttemptResult::Succeeded), 0);
    let (batches, _) = printing.write();
    assert_eq!(batches.len(), 1);
    let record = stored(&batches[0], runs[0].0).unwrap();
    assert_eq!((record.bytes, record.pieces[0].piece().bytes), (5, b"hello".to_vec()));
    assert!(printing.shard.take_output_stored() > 0);
    assert_eq!(printing.shard.output(PROJECT, runs[0].0), LiveOutput::NoRun);
    assert_eq!(printing.print(runs[0], 5, b"late"), Err(Stale));
}

#[test]
fn what_a_silent_worker_printed_is_stored_and_goes_on_if_it_comes_back() {
    let (mut printing, runs) = Printing::new(1);
    printing.print(runs[0], 0, b"last words").unwrap();
    printing.steady += 5_000;
    let mut puts = Vec::new();
    for _ in 0..30 {
        printing.steady += 500;
        printing.shard.step(printing.now(), &|_| engine::shard::HostRoom::ALL);
        puts.extend(printing.write().0.concat());
    }
    assert_eq!(stored(&puts, runs[0].0).unwrap().bytes, 10);
    assert_eq!(printing.print(runs[0], 10, b"!").unwrap().next, 11, "it still counts");
    let again = printing.say(Vec::new(), 1).runs;
    assert_eq!((again.len(), printing.shard.output(PROJECT, runs[0].0)), (1, LiveOutput::Nothing));
    assert_eq!(printing.print(runs[0], 11, b"?"), Err(Stale), "until it is given again");
    let now = (runs[0].0, again[0].given.token);
    assert_eq!(printing.print(now, 0, b"new").unwrap().attempt, 2);
}

#[test]
fn of_too_much_output_that_of_the_quietest_run_goes_but_for_its_count() {
    let most = OUTPUT_SHARD_BYTES_MAX / OUTPUT_KEPT_BYTES_MAX;
    let (mut printing, runs) = Printing::new(most + 1);
    let full = vec![b'x'; OUTPUT_KEPT_BYTES_MAX];
    for run in &runs {
        printing.print(*run, 0, &full).unwrap();
    }
    let kept = |printing: &Printing| runs.iter().map(|(run, _)| printing.kept(*run)).sum::<usize>();
    assert!(kept(&printing) <= OUTPUT_SHARD_BYTES_MAX);
    assert_eq!((printing.kept(runs[0].0), printing.kept(runs[most].0)), (0, full.len()));
    let next = full.len() as u64;
    assert_eq!(printing.print(runs[0], next, b"more").unwrap().next, next + 4);
    assert_eq!(printing.kept(runs[0].0), 4);
    // What is over makes room.
    printing.say(done(runs[most], AttemptResult::Succeeded), 0);
    printing.say(done(runs[most - 1], AttemptResult::Succeeded), 0);
    let before = kept(&printing);
    printing.print(runs[0], next + 4, &full).unwrap();
    assert_eq!(kept(&printing), before + full.len() - 4);
}

#[test]
fn those_who_watch_hear_once_a_second_of_a_run_and_of_so_many_runs() {
    let (mut printing, runs) = Printing::new(PROGRESS_EVENTS_MAX + 1);
    assert!(printing.progress(runs[0]) && !printing.progress(runs[0]));
    printing.steady += PROGRESS_EVENT_MS - 1;
    assert!(!printing.progress(runs[0]));
    printing.steady += 1;
    let told = runs.iter().filter(|run| printing.progress(**run)).count();
    assert_eq!(told, PROGRESS_EVENTS_MAX);
}
