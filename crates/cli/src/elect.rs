//! `watchbell elect`: a candidate for one leadership, for as long as it is let.
//!
//! - [`plan`]: what is meant; [`ancestor`]: by the variables of the Redis scheduler
//! - [`candidate`]: campaign, lead, stop
//! - [`hook`]: what is run when leadership is won and lost
//! - [`board`]: what is measured
//! - [`voice`]: what is said; [`mirror`]: the key that the Redis scheduler wrote
//!
//! The campaign waits for nobody else: hooks, metrics, stdout and the mirror each have a task or thread of their own.

mod ancestor;
mod board;
mod candidate;
mod hook;
mod mirror;
mod plan;
mod voice;

use std::net::SocketAddr;
use std::sync::Arc;

use engine::limits::ELECT_MIRROR_STOP_MAX;
use store::StoreUrl;
use store::redis::Mirror;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::board::Board;
use self::candidate::Candidate;
use self::plan::CandidatePlan;
use self::voice::{ElectMoment, LogDialect, Voice};
use crate::args::elect::ElectArgs;
use crate::exit::Ending;
use crate::pages;
use crate::serve::Stops;

/// Takes part until it is told to stop by SIGTERM or SIGINT.
pub(crate) async fn elect(typed: &ElectArgs) -> Result<(), Ending> {
    // Whoever tells it to stop while it starts is heard.
    let mut signals = Stops::new()?;
    let (stop, stops) = watch::channel(0);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            signals.next().await;
            stop.send_modify(|stops| *stops += 1);
        }
    });
    let plan = CandidatePlan::of(typed)?;
    let voice =
        Voice::new(plan.dialect.clone(), plan.election(), plan.node.id.as_str(), plan.output);
    if plan.dialect == LogDialect::Ours {
        voice.log(ElectMoment::Creating, Some(&plan.url.to_string()));
    }
    let board = Arc::new(Board::new(plan.ttl(), &plan.dialect));
    if let Some(listener) = listen(&plan.metrics, &voice).await? {
        tasks.spawn(pages::serve(listener, Arc::clone(&board)));
    }
    let (hooks, runner) = hook::hooks(plan.hooks.clone());
    tasks.spawn(runner.run());
    let (shown, to_show) = watch::channel(None);
    let mut mirrors = JoinSet::new();
    if let (LogDialect::Ancestor(leader_key), StoreUrl::Redis(at)) = (&plan.dialect, &plan.url) {
        let id = plan.node.id.as_str().to_owned();
        mirrors.spawn(mirror::show(Mirror::new(at, leader_key)?, id, to_show));
    }
    let candidate = Candidate { plan: &plan, voice: &voice, board, hooks, stops, shown };
    let ended = candidate.run().await;
    drop(candidate);
    voice.finish();
    // What it shows ends by itself if this takes longer.
    let _ = tokio::time::timeout(ELECT_MIRROR_STOP_MAX, mirrors.join_all()).await;
    tasks.shutdown().await;
    ended
}

async fn listen(at: &[SocketAddr], voice: &Voice) -> Result<Option<TcpListener>, Ending> {
    let tell = |words: &str, facts| voice.tell("metrics", words, facts);
    pages::listen(at, tell).await.inspect_err(|ending| {
        voice.log(ElectMoment::CannotServe, ending.sentence());
    })
}
