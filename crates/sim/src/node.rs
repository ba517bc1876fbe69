//! A whole node: a session, a candidacy, and the work of a holder.
//!
//! It is written as a program on Watchbell's parts would be. What it works at is a small copy of what a
//! shard does: it decides, commits what it decided by the chain, and then lets an effect leave, if it
//! still may at that moment. When it is told to it hands its claim over to another node, and if that one is
//! gone it takes it up again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::limits::FAILOVER_LAG;
use serde_json::json;
use serde_json::value::to_raw_value;
use store::chain::ChainError;
use store::claim::Claim;
use store::election::{Candidacy, Defeat, Holding, Mode, RightEnd};
use store::machine::Machine;
use store::session::{NodeId, NodeInfo, Session, SessionError, SessionKey, bury_local};
use store::{Class, Key, Store, Write};
use tokio::sync::Notify;

use crate::checker::LeaseChecker;
use crate::clock::TrueTime;
use crate::sim_store::NodeIndex;
use crate::world::{ProcessId, World};

/// Where the holder writes.
pub const DATA: &str = "data/";

/// What a process is started with.
#[derive(Clone)]
pub struct NodeStart {
    /// The world it lives in.
    pub world: World,
    /// The checker that watches it.
    pub checker: Arc<LeaseChecker>,
    /// Its way to the store.
    pub store: Store,
    /// The clocks and the dice of its machine.
    pub machine: Arc<dyn Machine>,
    /// What its session record says of it.
    pub node: NodeInfo,
    /// The claim that it wants.
    pub claim: Claim,
    /// Whether a person must approve it before it acts.
    pub mode: Mode,
    /// Whether it campaigns for the claim or tries now and then.
    pub style: Style,
    /// Numbers of decisions, one after the other over all processes.
    pub ids: Arc<AtomicU64>,
    /// What it can be told from outside.
    pub controls: ProcessControls,
}

/// How a candidate looks for its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// It campaigns until it has the claim.
    Campaigns,
    /// It looks from time to time, and does other things in between.
    Tries,
}

/// What a process can be told from outside.
#[derive(Clone, Default)]
pub struct ProcessControls {
    /// For how many reasons it no longer works, though it runs.
    pub hangs: Arc<AtomicU32>,
    /// It lives in a session, and no longer waits for a former one to go.
    pub settled: Arc<AtomicBool>,
    /// It shall stop cleanly.
    pub stop: Arc<Notify>,
    /// It shall hand its claim over, if it has it.
    pub hand_over: Arc<Notify>,
    /// To whom: the place of a node.
    pub heir: Arc<AtomicUsize>,
    /// It has the exclusive store open and has buried those before it.
    pub opened: Arc<Notify>,
}

/// Runs until it is told to stop, or is refused.
pub async fn run(start: NodeStart, process: ProcessId) {
    if start.store.is_exclusive() {
        while let Err(why) = bury_local(&start.store).await {
            start.world.trace(process, || format!("waits   {why}"));
            start.machine.sleep(start.node.ttl.pause()).await;
        }
        start.controls.opened.notify_one();
    }
    loop {
        let (session, mut keeper) =
            match Session::open(&start.store, &start.machine, &start.node).await {
                Ok(opened) => opened,
                Err(why @ SessionError::AlreadyLive { .. }) => {
                    start.world.trace(process, || format!("refused {why}"));
                    start.checker.died(process, start.world.now());
                    return;
                }
                Err(why) => {
                    start.world.trace(process, || format!("waits   {why}"));
                    start.machine.sleep(start.node.ttl.pause()).await;
                    continue;
                }
            };
        start.world.trace(process, || format!("opened  {}", session.key()));
        start.checker.lives_in(process, Some(session.key()));
        start.controls.settled.store(true, Ordering::SeqCst);
        start.checker.candidate(process, Some(start.candidate_since()));
        let hangs = Arc::clone(&start.controls.hangs);
        let stopped = tokio::select! {
            biased;
            end = keeper.run(|| hangs.load(Ordering::SeqCst) == 0) => {
                start.world.trace(process, || format!("ended   {}: {end:?}", session.key()));
                false
            }
            () = work(&start, process, &session) => true,
        };
        start.controls.settled.store(false, Ordering::SeqCst);
        start.checker.lives_in(process, None);
        start.checker.candidate(process, None);
        if stopped {
            session.close().await;
            start.checker.holds_no_more(process);
            start.world.trace(process, || format!("closed  {}", session.key()));
            start.checker.died(process, start.world.now());
            return;
        }
        start.checker.holds_no_more(process);
    }
}

impl NodeStart {
    /// From when on it could take a claim: at once, or after the quarantine of those who start.
    fn candidate_since(&self) -> TrueTime {
        let wait = match self.store.class() {
            Class::A | Class::S => Duration::ZERO,
            Class::B => (self.node.ttl.length() + FAILOVER_LAG) * 2,
        };
        self.world.now() + u64::try_from(wait.as_nanos()).expect("seconds")
    }
}

/// Campaigns, and works when it has won, until it is told to stop or its session has ended.
async fn work(start: &NodeStart, process: ProcessId, session: &Session) {
    let mut election = Candidacy::new(session, start.claim.clone(), start.mode);
    loop {
        let mut holding = tokio::select! {
            biased;
            () = start.controls.stop.notified() => return,
            won = win(start, &mut election) => match won {
                Ok(holding) => holding,
                // The keeper says so too, and ends this.
                Err(Defeat::Ended(_)) => std::future::pending().await,
                Err(Defeat::Corrupt(why)) => panic!("nobody writes rubbish here: {why}"),
            },
        };
        let token = holding.right.token().0;
        start.world.trace(process, || format!("holds   under {token}"));
        start.checker.holds(process, holding.right.clone());
        let end = serve_until(start, session, &mut holding).await;
        start.world.trace(process, || format!("is over {end:?}"));
        match end {
            // Then the session is closed, and with it every right.
            ServeEnd::Stop => return,
            ServeEnd::HandOver(heir) => hand_over(start, process, &heir, &mut holding).await,
            ServeEnd::Over(RightEnd::Wished) => {
                start.checker.candidate(process, None);
                let left = election.step_down(holding).await;
                start.world.trace(process, || format!("left    {left:?}"));
                let back = session.ttl().length() * 2;
                let back = start.world.now() + u64::try_from(back.as_nanos()).expect("seconds");
                start.checker.candidate(process, Some(back));
            }
            ServeEnd::Over(RightEnd::Lost | RightEnd::Released) => {}
        }
        start.checker.holds_no_more(process);
    }
}

async fn win(start: &NodeStart, election: &mut Candidacy) -> Result<Holding, Defeat> {
    match start.style {
        Style::Campaigns => election.campaign().await,
        Style::Tries => loop {
            if let Some(holding) = election.try_take().await? {
                return Ok(holding);
            }
            start.machine.sleep(start.node.ttl.poll()).await;
        },
    }
}

/// Why a holder no longer serves.
#[derive(Debug)]
enum ServeEnd {
    Stop,
    HandOver(SessionKey),
    Over(RightEnd),
}

async fn serve_until(start: &NodeStart, session: &Session, holding: &mut Holding) -> ServeEnd {
    let right = holding.right.clone();
    loop {
        tokio::select! {
            biased;
            () = start.controls.stop.notified() => return ServeEnd::Stop,
            () = start.controls.hand_over.notified() => {
                if let Some(heir) = heir(start, session) {
                    return ServeEnd::HandOver(heir);
                }
            }
            over = right.over() => return ServeEnd::Over(over),
            () = serve(start, session, holding) => return ServeEnd::Over(RightEnd::Lost),
        }
    }
}

/// The session of the node that it shall hand over to, as far as it knows; it may be dead.
fn heir(start: &NodeStart, session: &Session) -> Option<SessionKey> {
    let node = node_id(start.controls.heir.load(Ordering::SeqCst));
    let roster = session.roster();
    let roster = roster.borrow();
    let mut sessions = roster.live().map(|(key, _)| key);
    sessions.find(|key| *key.node() == node && *key != session.key()).cloned()
}

/// What a node is called.
pub fn node_id(node: NodeIndex) -> NodeId {
    NodeId::new(format!("n{node}")).expect("a valid id")
}

/// Hands the claim over. If it turns out to be its own still, it is taken anew by whoever campaigns next; and so it
/// may be if nothing is known, since it loses patience now and then.
async fn hand_over(
    start: &NodeStart,
    process: ProcessId,
    heir: &SessionKey,
    holding: &mut Holding,
) {
    let id = start.ids.fetch_add(1, Ordering::SeqCst);
    let body = to_raw_value(&json!({ "id": id })).expect("a number is JSON");
    start.checker.hands_over(process, holding.right.clone());
    let patience = start.node.ttl.length() * (start.machine.random() % 8) as u32;
    let done = tokio::select! {
        biased;
        done = holding.hand_over(heir, body) => done,
        () = start.machine.sleep(patience) => {
            start.world.trace(process, || format!("forgets that it handed over to {heir}"));
            return;
        }
    };
    start.world.trace(process, || format!("handed  over to {heir}: {done:?}"));
    match done {
        Ok(_) => start.checker.called_done(&start.world, id),
        Err(ChainError::Gone) => start.checker.called_gone(&start.world, id),
        Err(ChainError::NotSent(_) | ChainError::Refused(_)) => {
            start.checker.called_undone(&start.world, id);
        }
        Err(ChainError::Moved | ChainError::Corrupt(_)) => {}
    }
}

/// Decides, commits, and lets effects leave, again and again, until the claim is somebody else's.
async fn serve(start: &NodeStart, session: &Session, holding: &mut Holding) {
    let (machine, ttl) = (&start.machine, session.ttl().length());
    let share = |of: Duration| of.mul_f64(f64::from((machine.random() % 1_000) as u32) / 1_000.0);
    loop {
        machine.sleep(ttl / 30 + share(ttl / 10)).await;
        if holding.right.permit().is_none() {
            continue;
        }
        let (id, token) = (start.ids.fetch_add(1, Ordering::SeqCst), holding.right.token());
        let body = to_raw_value(&json!({ "id": id })).expect("a number is JSON");
        let key = Key::new(format!("{DATA}{}", id % 8)).expect("short and printable");
        let datum = json!({ "id": id, "token": token.0 }).to_string();
        match holding.commit(Some(body), vec![Write::Put(key, datum.into())]).await {
            Ok(_) => start.checker.called_done(&start.world, id),
            Err(ChainError::NotSent(_) | ChainError::Refused(_)) => {
                start.checker.called_undone(&start.world, id);
                continue;
            }
            Err(ChainError::Moved | ChainError::Corrupt(_)) => return,
            Err(ChainError::Gone) => unreachable!("nobody hands over here"),
        }
        // The effect waits a while, and looks again before it leaves.
        machine.sleep(share(ttl / 10)).await;
        if let Some(permit) = holding.right.permit() {
            start.checker.effect(&start.world, session.key(), permit.token, machine.reading());
        }
    }
}
