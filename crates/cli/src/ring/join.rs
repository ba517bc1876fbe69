//! `watchbell ring join`: a member of a ring that runs a program whenever it is its turn.
//!
//! One task attends: it says that the member is there, and brings the turns that have come. Turns wait in a bounded queue and are
//! carried out one after the other, each as a tree of processes. Of a subscription with `accept` a part is accepted when nothing
//! else is to be done before it, and the program is started only after the server has said so: if the member is busy, the part
//! passes to the next one.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use client::ring::MemberTurn;
use client::{ClientError, RingMember, Timestamp};
use engine::limits::RING_TURNS_WAITING_MAX;
use engine::trigger::check_name;
use hold::HeldProgram;
use process::{Cause, End, Isolation, Launcher, Outcome, Streams, Tree, Wanted};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::json;
use store::machine::{Machine, System};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::args::ring::RingJoinArgs;
use crate::args::worker::Isolate;
use crate::exit::Ending;
use crate::outlet::OutletStream;
use crate::serve::Stops;
use crate::server::host_name;
use crate::transitions::{Subject, Transitions};

/// How long to wait before the next server is asked.
const PAUSE: Duration = Duration::from_millis(250);

/// How long leaving may take when the member ends.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// How wide the column of events is.
const EVENT_CHARS: usize = 12;

pub(super) async fn join(typed: &RingJoinArgs) -> Result<(), Ending> {
    // Whoever tells it to stop while it starts is heard.
    let mut stops = Stops::new()?;
    let name = typed.member.clone().unwrap_or_else(host_name);
    for (what, name) in [("NAME", &typed.name), ("--as", &name)] {
        check_name(name).map_err(|why| Ending::wrong_input(format!("{what}: {why}")))?;
    }
    // The program is of the same user, and is not to read the key in `/proc`. Where this is refused it may.
    let _refused = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let runner = Runner::of(typed, &name)?;
    let member = RingMember::new(typed.servers.clients()?, &*typed.name, &*name)
        .subscriptions(&typed.subscription);
    let (turns, mut waiting) = mpsc::channel(RING_TURNS_WAITING_MAX);
    let (stop, stopped) = watch::channel(false);
    let attendance = Attendance { member, turns, stopped, tell: Arc::clone(&runner.tell) };
    let accepting = attendance.member.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(attendance.attend());
    let mut left = typed.turns;
    let ended = loop {
        if left == Some(0) {
            break Ok(());
        }
        let turn = tokio::select! {
            biased;
            () = stops.next() => break Ok(()),
            // It was refused for good.
            Some(ended) = tasks.join_next() => break ended.unwrap_or(Ok(())),
            Some(turn) = waiting.recv() => turn,
        };
        if runner.take(&accepting, &turn, &mut stops, &stop).await? {
            left = left.map(|left| left.saturating_sub(1));
        }
        if *stop.borrow() {
            break Ok(());
        }
    };
    stop.send_replace(true);
    // The other turns are left to whoever is next.
    drop(waiting);
    let _ = timeout(LEAVE_MAX, async { while tasks.join_next().await.is_some() {} }).await;
    runner.finish();
    ended
}

/// Whoever says that the member is there.
struct Attendance {
    member: RingMember,
    turns: mpsc::Sender<MemberTurn>,
    stopped: watch::Receiver<bool>,
    tell: Arc<Transitions>,
}

impl Attendance {
    /// Until the member is told to stop, or refused for good.
    async fn attend(mut self) -> Result<(), Ending> {
        let (mut is_in, mut is_trouble_told) = (false, false);
        loop {
            let attended = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stopped| *stopped) => break,
                attended = self.member.attend() => attended,
            };
            match attended {
                Ok(answer) => {
                    if !is_in || is_trouble_told {
                        let (visit, server) = (answer.visit, self.member.server());
                        let words =
                            format!("as {}, visit {visit}, by {server}", self.member.name());
                        self.tell.tell("joined", &words, json!({"visit": visit, "server": server}));
                    }
                    (is_in, is_trouble_told) = (true, false);
                    for turn in answer.turns {
                        self.pass_on(turn);
                    }
                }
                Err(why) if RingMember::is_taken(&why) => {
                    self.tell.tell("taken", &why.to_string(), json!({}));
                    return Err(why.into());
                }
                Err(why) if is_final(&why) => return Err(why.into()),
                Err(why) => {
                    let is_gone = matches!(why, ClientError::Conflict(_));
                    if is_gone {
                        // It joins anew at once.
                        (is_in, is_trouble_told) = (false, false);
                        self.tell.tell("taken out", &why.to_string(), json!({}));
                        continue;
                    }
                    if !std::mem::replace(&mut is_trouble_told, true) {
                        self.tell.tell("no server", &why.to_string(), json!({}));
                    }
                    sleep(PAUSE).await;
                }
            }
        }
        match timeout(LEAVE_MAX, self.member.leave()).await {
            Ok(Ok(())) => self.tell.tell("left", "nothing late brings it back", json!({})),
            Ok(Err(why)) => self.tell.tell("not left", &why.to_string(), json!({})),
            Err(_) => self.tell.tell("not left", "no server has answered", json!({})),
        }
        Ok(())
    }

    fn pass_on(&self, turn: MemberTurn) {
        let number = turn.number;
        if self.turns.try_send(turn).is_err() {
            let words = format!("turn {number}: {RING_TURNS_WAITING_MAX} turns wait already");
            self.tell.tell("left out", &words, json!({"turn": number}));
        }
    }
}

/// What no server will answer otherwise.
fn is_final(why: &ClientError) -> bool {
    match why {
        ClientError::Url { .. }
        | ClientError::Setting { .. }
        | ClientError::Untrusted { .. }
        | ClientError::Unauthorized(_)
        | ClientError::Forbidden(_)
        | ClientError::NotFound(_)
        | ClientError::Invalid(_) => true,
        ClientError::Unreachable { .. }
        | ClientError::Conflict(_)
        | ClientError::LimitReached { .. }
        | ClientError::Unavailable { .. }
        | ClientError::Refused(_)
        | ClientError::Answer { .. } => false,
    }
}

/// Whoever runs the program.
struct Runner {
    ring: String,
    program: HeldProgram,
    launcher: Launcher,
    streams: Streams,
    grace: Duration,
    tell: Arc<Transitions>,
}

impl Runner {
    fn of(typed: &RingJoinArgs, member: &str) -> Result<Self, Ending> {
        let directory = std::env::current_dir()
            .map_err(|why| Ending::failed(format!("the working directory is gone: {why}")))?;
        let program = HeldProgram::find(&typed.command, directory, std::env::vars_os())
            .map_err(|why| Ending::wrong_input(why.to_string()))?;
        let wanted = match typed.isolate {
            Isolate::Auto => Wanted::Auto,
            Isolate::Namespace => Wanted::Namespace,
            Isolate::Cgroup => Wanted::Exactly(Isolation::Cgroup),
            Isolate::Group => Wanted::Exactly(Isolation::Group),
        };
        let subject = Subject {
            kind: "ring",
            name: typed.name.clone(),
            node: member.to_owned(),
            event_chars: EVENT_CHARS,
        };
        Ok(Self {
            ring: typed.name.clone(),
            program,
            launcher: Launcher::new(wanted),
            streams: Streams::own()?,
            grace: typed.grace,
            tell: Arc::new(Transitions::new(subject, typed.servers.output, OutletStream::Stdout)),
        })
    }

    /// Carries out a part of a turn, if it is this member's. Whoever stops meanwhile lets it end.
    async fn take(
        &self,
        member: &RingMember,
        turn: &MemberTurn,
        stops: &mut Stops,
        stop: &watch::Sender<bool>,
    ) -> Result<bool, Ending> {
        let number = turn.number;
        match member.accept(turn).await {
            Ok(true) => {}
            Ok(false) => {
                self.tell.tell("passed", &format!("turn {number}: it was too late"), facts(turn));
                return Ok(false);
            }
            Err(why) => {
                let words = format!("turn {number}: {why}");
                self.tell.tell("not accepted", &words, facts(turn));
                return Ok(false);
            }
        }
        sleep(until(turn.at)).await;
        self.tell.tell("turn", &format!("{number} of {}", turn.slot), facts(turn));
        let program = self.program.with(self.variables(turn));
        let mut tree = match self.launcher.start_on(&self.streams, &program).await {
            Ok(tree) => tree,
            Err(why) => {
                self.tell.tell("not started", &format!("turn {number}: {why}"), facts(turn));
                return Ok(true);
            }
        };
        let outcome = self.see_to_the_end(&mut tree, stops, stop).await;
        match outcome {
            Ok(outcome) => {
                let (words, mut told) = (ended(&outcome), facts(turn));
                told["exit"] = match outcome.end {
                    End::Exited(code) => json!(code),
                    End::Signaled(_) | End::Unseen => json!(null),
                };
                told["ran_ms"] =
                    json!(u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX));
                self.tell.tell("ended", &format!("turn {number}: {words}"), told);
                Ok(true)
            }
            Err(why) => Err(Ending::failed(format!(
                "both guards of the program were killed: look for what is left of it on this machine ({why})"
            ))),
        }
    }

    async fn see_to_the_end(
        &self,
        tree: &mut Tree,
        stops: &mut Stops,
        stop: &watch::Sender<bool>,
    ) -> Result<Outcome, process::Lost> {
        loop {
            tokio::select! {
                biased;
                ended = tree.ended() => return ended,
                () = stops.next() => {
                    if stop.send_replace(true) {
                        tree.kill();
                    } else {
                        tree.stop(self.grace);
                    }
                }
            }
        }
    }

    fn variables(&self, turn: &MemberTurn) -> [(&'static str, OsString); 6] {
        [
            ("WATCHBELL_RING", OsString::from(&self.ring)),
            ("WATCHBELL_RING_SUBSCRIPTION", OsString::from(&turn.subscription)),
            ("WATCHBELL_RING_TURN", turn.number.to_string().into()),
            ("WATCHBELL_RING_SLOT", turn.slot.to_string().into()),
            ("WATCHBELL_RING_PART", turn.part.to_string().into()),
            ("WATCHBELL_TOKEN", turn.token.to_string().into()),
        ]
    }

    fn finish(self) {
        if let Some(tell) = Arc::into_inner(self.tell) {
            tell.finish();
        }
    }
}

/// How long it is until an instant, by the clock of this machine.
fn until(at: Timestamp) -> Duration {
    let at_us = u64::try_from(at.as_microsecond()).unwrap_or_default();
    Duration::from_micros(at_us.saturating_sub(System.wall_us()))
}

fn facts(turn: &MemberTurn) -> serde_json::Value {
    json!({
        "subscription": turn.subscription, "turn": turn.number, "part": turn.part,
        "slot": turn.slot, "token": turn.token,
    })
}

fn ended(outcome: &Outcome) -> String {
    let how = match outcome.end {
        End::Exited(code) => format!("exit {code}"),
        End::Signaled(signal) => format!("signal {signal}"),
        End::Unseen => "nobody saw how".to_owned(),
    };
    let why = match outcome.cause {
        Cause::Itself => "",
        Cause::Stopped => ", told to stop",
        Cause::KilledAfterGrace => ", killed after its grace",
        Cause::Killed | Cause::Unconfirmed | Cause::ShimKilled => ", killed",
    };
    format!("{how}{why}, after {:.3}s", outcome.duration.as_secs_f64())
}
