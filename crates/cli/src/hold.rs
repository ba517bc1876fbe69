//! `watchbell hold`: a program that runs on at most one machine.
//!
//! - [`plan`]: what is meant, and whether it can be kept
//! - [`board`]: what is measured
//!
//! What is done is `crates/hold`'s.

mod board;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use ::hold::{HoldEnd, HoldSight, Signals, supervise};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::board::HoldBoard;
use self::plan::SupervisorPlan;
use crate::args::hold::HoldArgs;
use crate::exit::Ending;
use crate::joining::Joining;
use crate::outlet::OutletStream;
use crate::pages;
use crate::transitions::{Subject, Transitions};

/// How long the last of the program's output may take.
const OUTPUT_END_MAX: Duration = Duration::from_secs(2);

/// Holds the program until it is told to stop by SIGTERM or SIGINT.
pub(crate) async fn hold(typed: &HoldArgs) -> Result<(), Ending> {
    // Whoever tells it to stop while it starts is heard.
    let mut signals = Signals::new()?;
    let planned = tokio::select! {
        biased;
        () = signals.stopped() => return Ok(()),
        planned = SupervisorPlan::of(typed) => planned?,
    };
    let SupervisorPlan { url, node, hold: plan, output, metrics, wait } = planned;
    let subject =
        Subject { kind: "hold", name: plan.name.clone(), node: plan.node.clone(), event_chars: 20 };
    // Whoever reads what the program prints there reads nothing else.
    let stream = if output.is_some() { OutletStream::Stdout } else { OutletStream::Stderr };
    let transitions = Transitions::new(subject, typed.output, stream);
    let tell = |event: &str, words: &str, facts: Value| transitions.tell(event, words, facts);
    let sight = Arc::new(HoldSight::default());
    let mut tasks = JoinSet::new();
    let at: Vec<_> = metrics.into_iter().collect();
    if let Some(listener) = pages::listen(&at, |words, facts| tell("metrics", words, facts)).await?
    {
        tasks.spawn(pages::serve(listener, Arc::new(HoldBoard::new(&sight))));
    }
    let trouble = |why: &str| tracing::error!(hold = plan.name, why, "cannot campaign");
    let joining = Joining { url: &url, claim: &plan.claim, node: &node, wait, trouble: &trouble };
    let store = tokio::select! {
        biased;
        () = signals.stopped() => return Ok(()),
        opened = joining.open() => opened?,
    };
    let join = async |former: Option<&_>| joining.session(&store, former).await;
    let ended = supervise(&plan, join, signals, &tell, &sight).await;
    drop(plan);
    if let Some(output) = output
        && timeout(OUTPUT_END_MAX, output.finish()).await.is_err()
    {
        tracing::warn!(
            "the last of the program's output was not written: somebody else still has its pipe"
        );
    }
    transitions.finish();
    tasks.shutdown().await;
    match ended? {
        HoldEnd::Told => Ok(()),
        HoldEnd::Abandoned => Err(Ending::failed(
            "both guards of the program were killed: look for what is left of it on this machine; it is not given up, and \
             others start it when the time of this one is over",
        )),
    }
}
