//! Who was told what: each streak of failures once, in the commit that records it.
//!
//! The oracle goes through what ended in a batch, in order, and says what somebody should have been told. Since a notice
//! is in the same unit as what it tells of, it is in the same batch, and none can be lost or come twice, whoever
//! crashes when.

use std::collections::BTreeMap;

use engine::id::SerialId;
use engine::notice::Occasion;
use engine::past::{End, Line};

use super::super::promise::ShardPromise;
use super::{Broken, SlotOracle};

/// What somebody was told of a trigger.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldNotices {
    is_failing: bool,
    is_overdue: bool,
}

/// What a batch tells of a trigger, and what it should tell.
#[derive(Debug, Default)]
struct Tally {
    failures: usize,
    failures_due: usize,
    recoveries: usize,
    recoveries_due: usize,
    overdue: usize,
    successes: usize,
}

/// Checks the notices that are new in a batch against what ended in it. Only the default project has a listener.
pub(super) fn check(
    oracle: &mut SlotOracle,
    news: &[(SerialId, Occasion)],
    lines: &[Line],
) -> Result<(), Broken> {
    let mut tallies: BTreeMap<SerialId, Tally> = BTreeMap::new();
    let mut told = std::mem::take(&mut oracle.told);
    // One that was given up at once has no record, and nothing else of its kind expires.
    let given_up = lines.iter().filter_map(|line| match line {
        Line::Run(run) if run.end == End::Expired => Some((run.trigger, run.notice?)),
        Line::Run(_) | Line::Skip(_) => None,
    });
    for (trigger, occasion) in news.iter().copied().chain(given_up) {
        let tally = tallies.entry(trigger).or_default();
        match occasion {
            Occasion::Failure => tally.failures += 1,
            Occasion::Recovery => tally.recoveries += 1,
            Occasion::Overdue => tally.overdue += 1,
            Occasion::Paused | Occasion::Success => {}
        }
    }
    for line in lines {
        let Line::Run(run) = line else { continue };
        if run.notice.is_some() || !run.project.is_default() {
            continue;
        }
        let tally = tallies.entry(run.trigger).or_default();
        let told = told.entry(run.trigger).or_default();
        match run.end {
            End::Succeeded => {
                tally.recoveries_due += usize::from(told.is_failing || told.is_overdue);
                tally.successes += 1;
                *told = ToldNotices::default();
            }
            End::Failed | End::Dead | End::Expired | End::Unknown => {
                tally.failures_due += usize::from(!told.is_failing);
                told.is_failing = true;
            }
            End::Cancelled => {}
        }
    }
    for (trigger, tally) in &tallies {
        let told = told.entry(*trigger).or_default();
        let seen = oracle.triggers.get(trigger);
        // Of a trigger that is gone nobody is told any more, and it may have gone with this batch.
        let is_right = |is, due| if seen.is_some() { is == due } else { is <= due };
        // Which came first, a success or that it was overdue, is not to be seen within a batch.
        let is_mixed = tally.overdue > 0 && tally.successes > 0;
        let overdue_max =
            if is_mixed { tally.successes + 1 } else { usize::from(!told.is_overdue) };
        let is_fine = is_right(tally.failures, tally.failures_due)
            && (is_mixed || is_right(tally.recoveries, tally.recoveries_due))
            && tally.overdue <= overdue_max;
        if !is_fine {
            return Err((ShardPromise::ToldOnce, format!("{trigger}: {tally:?}, {told:?}")));
        }
        told.is_overdue |= tally.overdue > 0;
        if is_mixed {
            told.is_overdue = seen.is_some_and(|seen| seen.state.overdue);
        }
    }
    oracle.told = told;
    Ok(())
}
