//! What is shown of a hold: its states in the log and on stdout, its figures, and the record in the head of the election.
//!
//! Everything is told once, where it happens, in four places: people read the log, programs the transitions, Prometheus the
//! figures, and everybody who asks a server the record. Nothing is decided by any of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::hold::life::LifeState;
use engine::hold::record::{
    HandOver, HandOverCause, HoldBody, HoldExit, HoldRecord, HoldState, Risk, RiskReason,
};
use engine::lease::Reading;
use parking_lot::Mutex;
use process::{Cause, End, Outcome, Tree};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use store::claim::Head;
use store::election::{ClaimStanding, Permit, Right};
use store::machine::{Machine, System};
use store::session::SessionKey;
use tokio::sync::watch;

use crate::HoldPlan;

/// Takes a transition: its kind, words for people, and facts for programs.
pub type Tell<'a> = dyn Fn(&str, &str, Value) + Send + Sync + 'a;

/// What a supervisor has done so far, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldFigures {
    /// What it is about.
    pub state: LifeState,
    /// How often it took the claim.
    pub claims: u64,
    /// How often its program was started.
    pub starts: u64,
    /// How often its program ended.
    pub exits: u64,
    /// Renewals that were acknowledged while it had the claim.
    pub renewals: u64,
    /// Health commands that said nothing good.
    pub unhealthy: u64,
    /// Broken assumptions that were seen.
    pub risks: BTreeMap<RiskReason, u64>,
}

/// The figures of a supervisor, to be read from any thread.
#[derive(Default)]
pub struct HoldSight {
    figures: Mutex<HoldFigures>,
    right: Mutex<Option<Right>>,
}

impl Default for HoldFigures {
    fn default() -> Self {
        Self {
            state: LifeState::Candidate,
            claims: 0,
            starts: 0,
            exits: 0,
            renewals: 0,
            unhealthy: 0,
            risks: RiskReason::ALL.map(|reason| (reason, 0)).into(),
        }
    }
}

impl fmt::Debug for HoldSight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HoldSight").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl HoldSight {
    /// How things stand.
    pub fn figures(&self) -> HoldFigures {
        self.figures.lock().clone()
    }

    /// Under what it may act at this moment, if it may.
    pub fn permit(&self) -> Option<Permit> {
        self.right.lock().as_ref()?.permit()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut HoldFigures)) {
        change(&mut self.figures.lock());
    }
}

/// What is shown of one supervisor.
pub(crate) struct Story<'a> {
    plan: &'a HoldPlan,
    node: String,
    tell: &'a Tell<'a>,
    sight: Arc<HoldSight>,
    state: LifeState,
    record: Option<HoldRecord>,
    /// What is to be written, while it has the claim.
    bodies: watch::Sender<Option<Box<RawValue>>>,
    /// What was seen while there was no record.
    unwritten: Vec<(RiskReason, String)>,
    /// What the last record told of broken assumptions. Whoever sees one has often lost the claim, and could not write it.
    risks: Vec<Risk>,
    /// Who had the claim last, and when that was last known to live, by the clock since boot.
    former: Option<(SessionKey, Duration)>,
}

impl<'a> Story<'a> {
    pub(crate) fn new(plan: &'a HoldPlan, tell: &'a Tell<'a>, sight: Arc<HoldSight>) -> Self {
        Self {
            plan,
            node: plan.node.clone(),
            tell,
            sight,
            state: LifeState::Candidate,
            record: None,
            bodies: watch::Sender::new(None),
            unwritten: Vec::new(),
            risks: Vec::new(),
            former: None,
        }
    }

    /// It takes part.
    pub(crate) fn campaigns(&self, session: &SessionKey) {
        let (hold, node) = (&*self.plan.name, &*self.node);
        tracing::info!(hold, node, %session, "campaigning for the hold");
        let words = format!("{node} campaigns for {hold}");
        (self.tell)("candidate", &words, json!({ "session": session.to_string() }));
    }

    /// Somebody has the claim, or nobody, as a look showed while this one has it not.
    pub(crate) fn sees(&mut self, standing: &ClaimStanding, own: &SessionKey) {
        let token = standing.token.0;
        match &standing.holder {
            Some(holder) if holder == own => {}
            Some(holder) => {
                if self.former.as_ref().is_some_and(|(former, _)| former == holder) {
                    return;
                }
                self.former = Some((holder.clone(), System.reading().boot));
                let words = format!("{} has the claim, token {token}", holder.node());
                let facts = json!({ "holder": holder.node().as_str(), "token": token });
                (self.tell)("holder", &words, facts);
            }
            None => (self.tell)("vacant", "nobody has the claim", json!({ "token": token })),
        }
    }

    /// Whoever has the claim was seen to live.
    pub(crate) fn is_alive(&mut self, holder: &SessionKey) {
        if let Some((former, at)) = &mut self.former
            && former == holder
        {
            *at = System.reading().boot;
        }
    }

    /// It has the claim, by this right; the head is as it was left.
    pub(crate) fn claimed(&mut self, right: &Right, head: &Head) {
        *self.sight.right.lock() = Some(right.clone());
        self.sight.count(|figures| figures.claims += 1);
        let former = head.body.as_ref().and_then(|body| read(body));
        let now_ms = wall_ms();
        let came = HandOver {
            at_ms: now_ms,
            from: former.as_ref().map(|former| former.node.clone()),
            to: self.node.clone(),
            token: right.token().0,
            cause: former.as_ref().map_or(HandOverCause::First, |former| {
                former.leaving.unwrap_or(HandOverCause::Lost)
            }),
            took_ms: None,
        };
        let (exits, hand_overs, at_risk) = former.map_or_else(Default::default, |former| {
            (former.exits, former.hand_overs, former.at_risk)
        });
        let mut record = HoldRecord {
            token: right.token().0,
            node: self.node.clone(),
            state: HoldState::WaitingToStart,
            since_ms: now_ms,
            leaving: None,
            program: self.plan.program.shown(),
            isolation: Some(self.plan.isolation.word().to_owned()),
            pid: None,
            starts: 0,
            exits,
            hand_overs,
            at_risk,
        };
        record.came(came);
        record.recalls(&self.risks);
        for (reason, what) in self.unwritten.drain(..) {
            record.risks(reason, now_ms, &what);
        }
        self.record = Some(record);
        self.write();
    }

    /// What is to be written from here on.
    pub(crate) fn bodies(&self) -> watch::Receiver<Option<Box<RawValue>>> {
        self.bodies.subscribe()
    }

    /// The program runs.
    pub(crate) fn started(&mut self, tree: &Tree, now: Reading) {
        self.sight.count(|figures| figures.starts += 1);
        let took = self.former.take().map(|(_, at)| now.boot.saturating_sub(at));
        let Some(record) = &mut self.record else { return };
        record.starts += 1;
        record.pid = tree.guards().shim;
        if let Some(came) = record.hand_overs.first_mut().filter(|_| record.starts == 1) {
            came.took_ms = took.map(millis);
        }
        let (hold, node, token) = (&*self.plan.name, &*self.node, record.token);
        let (starts, pid, isolation) = (record.starts, record.pid, tree.isolation().word());
        tracing::info!(hold, node, token, pid, isolation, starts, "the program runs");
        let words = format!("{node} runs the program, token {token}, start {starts}");
        let facts = json!({ "token": token, "pid": pid, "isolation": isolation, "starts": starts });
        (self.tell)("running", &words, facts);
    }

    /// The program could not be started.
    pub(crate) fn not_started(&mut self, why: &str) {
        let (hold, node) = (&*self.plan.name, &*self.node);
        tracing::error!(hold, node, why, "the program could not be started");
        self.exits(&format!("not started: {why}"), Duration::ZERO);
    }

    /// The program has ended, and nothing of it is left.
    pub(crate) fn exited(&mut self, outcome: &Outcome) {
        let how = how(outcome);
        let (hold, node) = (&*self.plan.name, &*self.node);
        let token = self.record.as_ref().map(|record| record.token);
        tracing::info!(hold, node, token, how, ran = ?outcome.duration, "the program has ended");
        self.exits(&how, outcome.duration);
        // From here on nobody runs it.
        if let Some(key) = self.sight.right.lock().as_ref().map(|right| right.session().clone()) {
            self.former = Some((key, System.reading().boot));
        }
    }

    fn exits(&mut self, how: &str, ran: Duration) {
        self.sight.count(|figures| figures.exits += 1);
        let ran_ms = millis(ran);
        let (at_ms, node) = (wall_ms(), self.node.clone());
        let token = self.record.as_mut().map(|record| {
            record.pid = None;
            record.exited(HoldExit { at_ms, ran_ms, how: how.to_owned(), node });
            record.token
        });
        let words = format!("the program has ended on {}: {how}, after {ran:.1?}", self.node);
        (self.tell)("exited", &words, json!({ "token": token, "how": how, "ran_ms": ran_ms }));
    }

    /// An assumption was seen broken.
    pub(crate) fn raises(&mut self, reason: RiskReason, what: &str) {
        let (hold, node) = (&*self.plan.name, &*self.node);
        tracing::warn!(hold, node, %reason, what, "at most one is at risk");
        self.sight.count(|figures| *figures.risks.entry(reason).or_default() += 1);
        let words = format!("at most one is at risk: {what}");
        (self.tell)("at_risk", &words, json!({ "reason": reason.as_str(), "what": what }));
        match &mut self.record {
            Some(record) => {
                record.risks(reason, wall_ms(), what);
                self.write();
            }
            None => self.unwritten.push((reason, what.to_owned())),
        }
    }

    /// It waits for a person, under this token.
    pub(crate) fn awaits(&mut self, token: u64) {
        let (hold, node) = (&*self.plan.name, &*self.node);
        let project = self.plan.project.as_ref();
        let project = project.map(|project| format!(" --project {project}")).unwrap_or_default();
        let command = format!("watchbell election approve {hold} --token {token}{project}");
        tracing::info!(hold, node, token, command, "waiting for a person's approval");
        let words = format!("{node} waits for a person's approval: {command}");
        let facts = json!({ "token": token, "command": command });
        (self.tell)("waiting_for_approval", &words, facts);
        self.turns(LifeState::WaitingForApproval, None);
    }

    /// It is about something else, perhaps, or about to leave.
    pub(crate) fn turns(&mut self, state: LifeState, leaving: Option<HandOverCause>) {
        let former = std::mem::replace(&mut self.state, state);
        self.sight.count(|figures| figures.state = state);
        if let (Some(record), Some(recorded)) = (&mut self.record, state.recorded()) {
            if record.state != recorded {
                (record.state, record.since_ms) = (recorded, wall_ms());
            }
            record.leaving = leaving;
            self.write();
        }
        if former != state {
            self.tell_state(state, leaving);
        }
    }

    fn tell_state(&self, state: LifeState, leaving: Option<HandOverCause>) {
        let (hold, node) = (&*self.plan.name, &*self.node);
        let token = self.record.as_ref().map(|record| record.token);
        let why = leaving.map_or("", why);
        match state {
            // These are told where they begin, with what else there is to say.
            LifeState::WaitingForApproval | LifeState::Running => return,
            LifeState::Candidate => tracing::info!(hold, node, "campaigning for the hold again"),
            LifeState::WaitingToStart => {
                tracing::info!(hold, node, token, "waiting to start the program");
            }
            LifeState::Stopping => tracing::info!(hold, node, token, why, "stopping"),
            LifeState::Lost => {
                tracing::warn!(
                    hold,
                    node,
                    token,
                    "the right to run the program is lost, or was not renewed in time"
                );
            }
        }
        let words = match state {
            LifeState::Candidate => format!("{node} campaigns for {hold} again"),
            LifeState::WaitingToStart => format!("{node} has the claim, and waits to start"),
            LifeState::Stopping => format!("{node} stops: {why}"),
            _ => format!("{node} lost its right, or could not renew it in time"),
        };
        (self.tell)(
            state.as_str(),
            &words,
            json!({ "token": token, "why": leaving.map(why_word) }),
        );
    }

    /// It has neither claim nor program any more.
    pub(crate) fn gave_up(&mut self, cause: Option<HandOverCause>) {
        *self.sight.right.lock() = None;
        let token = self.record.take().map(|record| {
            self.risks = record.at_risk;
            record.token
        });
        self.bodies.send_replace(None);
        let (hold, node) = (&*self.plan.name, &*self.node);
        if let Some(cause) = cause {
            tracing::info!(hold, node, token, why = why(cause), "the claim was given up");
            let words = format!("{node} has given the claim up");
            (self.tell)("given_up", &words, json!({ "token": token, "why": why_word(cause) }));
        }
    }

    /// Has the record written, if it is not as it was.
    fn write(&self) {
        let Some(record) = &self.record else { return };
        let body = to_raw_value(&HoldBody { hold: record.clone() }).expect("a record is JSON");
        self.bodies.send_if_modified(|last| {
            let is_new = last.as_ref().is_none_or(|last| last.get() != body.get());
            if is_new {
                *last = Some(body);
            }
            is_new
        });
    }
}

/// What was kept in a head, if a hold wrote it.
fn read(body: &RawValue) -> Option<HoldRecord> {
    serde_json::from_str::<HoldBody>(body.get()).ok().map(|body| body.hold)
}

fn how(Outcome { end, cause, .. }: &Outcome) -> String {
    let end = match end {
        End::Exited(code) => format!("exit {code}"),
        End::Signaled(signal) => format!("signal {signal}"),
        End::Unseen => "unseen".to_owned(),
    };
    match cause {
        Cause::Itself => end,
        Cause::Stopped => format!("{end}, stopped"),
        Cause::KilledAfterGrace => format!("{end}, after its grace"),
        Cause::Killed => format!("{end}, killed"),
        Cause::Unconfirmed => format!("{end}, unconfirmed"),
        Cause::ShimKilled => format!("{end}, guard killed"),
    }
}

/// Why a claim is given up, for people.
const fn why(cause: HandOverCause) -> &'static str {
    match cause {
        HandOverCause::First | HandOverCause::Lost => "it was lost",
        HandOverCause::Stopped => "it was told to stop",
        HandOverCause::Resigned => "somebody wishes that it leaves",
        HandOverCause::Exits => "the program exited too often",
        HandOverCause::Health => "the health command failed too often",
    }
}

/// The same for programs.
fn why_word(cause: HandOverCause) -> Value {
    serde_json::to_value(cause).expect("a word is JSON")
}

fn wall_ms() -> i64 {
    i64::try_from(System.wall_us() / 1_000).unwrap_or(i64::MAX)
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}
