//! `watchbell bench overload`: what becomes of a server when three times as much is due as it can do?
//!
//! A server that is asked for too much must do nearly as much as one that is asked for just enough, in bounded memory, and
//! stay able to answer and to stop. So both are measured in one run, on the same machine: ratios of two runs say little.

use serde::Serialize;

use super::{Fired, FiresSite, shown_rows, this_binary};
use crate::args::bench::OverloadArgs;
use crate::exit::Ending;

/// How much more is due than is done without excess.
const EXCESS: u32 = 3;

/// A rate is done if so much of it is recorded, and 99 of 100 leave within a second.
const DONE_SHARE: f64 = 0.98;
const LATE_MAX_MS: f64 = 1_024.0;

/// Where the search for full speed begins, how long each step of it takes, and how many halve what is left.
const RATE_FIRST: u32 = 8_000;
const STEP_SECONDS: u16 = 8;
const HALVES: u32 = 2;

/// How long full speed is measured, once it is known, and how often with a tenth less if it is not done for so long.
const FULL_SECONDS: u16 = 60;
const REDUCTIONS: u32 = 3;

/// Full speed, three times as much, and how they compare.
#[derive(Serialize)]
pub(super) struct Overloaded {
    full: Fired,
    excess: Fired,
    /// What is recorded with excess, of what is without.
    ratio: f64,
}

pub(super) fn shown(overloaded: &[Overloaded]) -> String {
    let texts = overloaded.iter().map(|Overloaded { full, excess, ratio }| {
        let memory: Vec<_> = excess.memory_mb.iter().map(|mb| format!("{mb:.0}")).collect();
        let (rows, memory) = (shown_rows([full, excess]), memory.join(", "));
        format!(
            "{rows}With excess it does {ratio:.2} of what it does without. Memory meanwhile, MB: {memory}.\n"
        )
    });
    texts.collect()
}

pub(super) async fn measure(typed: &OverloadArgs) -> Result<Overloaded, Ending> {
    let site = FiresSite::open(this_binary()?, typed.site.store.clone(), &typed.site.dir).await?;
    let mut rate = match typed.full {
        Some(rate) => rate,
        None => full_speed(&site).await?,
    };
    let mut full = site.measure(rate, FULL_SECONDS.min(typed.seconds)).await?;
    // What is given is taken. What was found in a few seconds may be too much for a minute.
    for _ in 0..REDUCTIONS {
        if typed.full.is_some() || is_done(&full) {
            break;
        }
        rate -= rate / 10;
        full = site.measure(rate, FULL_SECONDS.min(typed.seconds)).await?;
    }
    let excess = site.measure(rate * EXCESS, typed.seconds).await?;
    let ratio = excess.recorded_per_s / full.recorded_per_s.max(1.0);
    Ok(Overloaded { full, excess, ratio })
}

fn is_done(fired: &Fired) -> bool {
    fired.recorded_per_s >= f64::from(fired.asked_per_s) * DONE_SHARE
        && fired.late_p99_ms.is_some_and(|late| late <= LATE_MAX_MS)
}

/// The highest rate that is done: doubled until it is not, and then looked for between the last two.
async fn full_speed(site: &FiresSite) -> Result<u32, Ending> {
    let (mut done, mut tried) = (0, RATE_FIRST);
    while is_done(&site.measure(tried, STEP_SECONDS).await?) {
        (done, tried) = (tried, tried * 2);
    }
    for _ in 0..HALVES {
        let middle = done.midpoint(tried);
        if is_done(&site.measure(middle, STEP_SECONDS).await?) {
            done = middle;
        } else {
            tried = middle;
        }
    }
    Ok(done.max(RATE_FIRST / 8))
}
