//! The account of a trigger: each slot of a span of time in one row, and in one only.
//!
//! The present schedule says which slots there are since it began to count; the records say what became of
//! them; mark, cursor and pause say what has to be on record. What lies before the present schedule is told
//! from the records alone: the text of a former schedule is not kept. Of a range of its slots that reaches
//! beyond what was asked about only the first and the last one are known, and no other is counted.

use std::collections::BTreeMap;

use client::account::{Fate, Row, RunFacts, Totals, Whole};
use client::run::{Run, RunState};
use engine::instant::Instant;
use engine::limits::{ACCOUNT_ROWS_MAX, SLOTS_WALKED_MAX, TOLD_LATE_MS};
use engine::past::{Finished, Line, Skipped};
use engine::schedule::Count;
use engine::shard::record::{Mark, OpenRun, Pause, RunRecord};

use super::convert::{self, Source, timestamp};
use super::read::Stored;

/// From `from` on, and before `to`: windows that follow each other share nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Instant,
    pub(super) to: Instant,
}

impl Window {
    fn has(self, slot: Instant) -> bool {
        self.from <= slot && slot < self.to
    }

    /// The last instant in it.
    fn last(self) -> Instant {
        Instant(self.to.0 - 1)
    }
}

/// What was read of a trigger.
pub(super) struct Evidence<'a> {
    pub(super) stored: &'a Stored,
    pub(super) source: Source,
    /// Every slot of it that leaves at or before this is decided.
    pub(super) mark: Mark,
    pub(super) open: Vec<OpenRun>,
    pub(super) unfinished: Vec<(u64, RunRecord)>,
    /// Unfinished runs that queues have.
    pub(super) queued: Vec<Run>,
    /// Lines of the past, newest first.
    pub(super) lines: Vec<Line>,
    /// What was written before this was not read, although it might be about the window.
    pub(super) read_back_to: Option<Instant>,
    /// Records of slots before this may be gone.
    pub(super) kept_from: Instant,
    pub(super) now: Instant,
}

/// A row of the account, with its instants.
struct AccountRow {
    from: Instant,
    to: Instant,
    row: Row,
}

/// What the schedule's own slots were found to be.
struct Walked {
    rows: Vec<AccountRow>,
    /// Where the walk gave up, if it did.
    ends: Option<Instant>,
}

impl Evidence<'_> {
    /// The rows in the order of time, their sum, and from where to ask for more if there are too many.
    pub(super) fn account(&self, window: Window) -> (Vec<Row>, Totals, Option<Instant>) {
        let Walked { mut rows, ends } = self.rows(window);
        let too_many = rows.get(ACCOUNT_ROWS_MAX).map(|found| found.from);
        let more_from =
            [ends.map(|ends| Instant(ends.0 + 1)), too_many].into_iter().flatten().min();
        if let Some(to) = more_from {
            // Ranges end with the window, so the account of a shorter one is not a part of this one.
            rows = self.rows(Window { to, ..window }).rows;
        }
        let rows: Vec<Row> = rows.into_iter().map(|found| found.row).collect();
        let totals = totals(&rows);
        (rows, totals, more_from)
    }

    /// All rows of a window in the order of time, as far as its slots were walked.
    fn rows(&self, window: Window) -> Walked {
        let mut single = self.single(window);
        let (present, former) = self.ranges(window);
        let Walked { mut rows, ends } = self.walk(window, &mut single, &present);
        // Runs on demand, former schedules, and whatever the schedule knows nothing of.
        rows.extend(single.into_values());
        rows.extend(former.iter().filter_map(|skip| clip_former(skip, window)));
        rows.sort_by_key(|found| (found.from, found.to));
        Walked { rows, ends }
    }

    /// What is on record for one slot or one run, by slot and birth. The past comes last and wins: a run
    /// may have ended while we read.
    fn single(&self, window: Window) -> BTreeMap<(Instant, Option<String>), AccountRow> {
        let mut single = BTreeMap::new();
        let mut add = |slot: Instant, run: Run| {
            if window.has(slot) {
                let on_demand = run.on_demand.then(|| run.id.clone());
                let leaves_at = self.leaves_at(slot).filter(|_| !run.on_demand);
                single.insert((slot, on_demand), found_run(slot, run, leaves_at));
            }
        };
        for run in &self.open {
            add(run.slot, self.source.open(*run, self.stored, self.now));
        }
        for (sequence, run) in self.unfinished.iter().filter(|(_, run)| run.notice.is_none()) {
            add(run.slot, self.source.unfinished(*sequence, run));
        }
        for run in &self.queued {
            add(Instant(run.slot.as_millisecond()), run.clone());
        }
        for line in self.lines.iter().rev() {
            if let Line::Run(run) = line
                && run.notice.is_none()
            {
                add(run.slot, self.source.finished(run, None));
            }
        }
        single
    }

    /// When a slot should leave, if the present schedule says so.
    fn leaves_at(&self, slot: Instant) -> Option<Instant> {
        let counts = slot > self.stored.record.since;
        counts.then(|| self.stored.view().leaves_at(slot))
    }

    /// Ranges of skipped slots that touch the window, in order, each once: those of the present schedule, and
    /// those of former ones.
    fn ranges(&self, window: Window) -> (Vec<Skipped>, Vec<Skipped>) {
        let touches = |skip: &Skipped| skip.to >= window.from && skip.from < window.to;
        let skips = self.lines.iter().filter_map(|line| match line {
            Line::Skip(skip) => Some(skip.clone()),
            Line::Run(Finished { .. }) => None,
        });
        let mut skips: Vec<Skipped> = skips.filter(touches).collect();
        skips.sort_by_key(|skip| (skip.from, skip.to));
        skips.dedup_by(|one, other| {
            (one.from, one.to, one.generation) == (other.from, other.to, other.generation)
        });
        let (generation, since) = (self.stored.record.generation, self.stored.record.since);
        skips.into_iter().partition(|skip| skip.generation == generation && skip.to > since)
    }

    /// Goes through the slots of the present schedule.
    fn walk(
        &self,
        window: Window,
        single: &mut BTreeMap<(Instant, Option<String>), AccountRow>,
        ranges: &[Skipped],
    ) -> Walked {
        let schedule = self.stored.schedule();
        let over = self.over(single, ranges);
        let mut rows: Vec<AccountRow> = Vec::new();
        let mut at = Instant(window.from.0 - 1).max(self.stored.record.since);
        for _ in 0..SLOTS_WALKED_MAX {
            let slot = schedule.next_slot(at).filter(|slot| window.has(*slot));
            let Some(slot) = slot else { return Walked { rows, ends: None } };
            at = slot;
            if let Some(found) = single.remove(&(slot, None)) {
                rows.push(found);
                continue;
            }
            let within = |skip: &&Skipped| skip.from <= slot && slot <= skip.to;
            if let Some(skip) = ranges.iter().find(within) {
                let to = skip.to.min(window.last());
                rows.push(self.clip(skip, slot, to));
                at = to;
                continue;
            }
            if over.is_some_and(|over| slot > over) {
                return Walked { rows, ends: None };
            }
            add(&mut rows, slot, self.fate(slot));
        }
        Walked { rows, ends: Some(at) }
    }

    /// After which slot nothing is due any more: it was cancelled, or its last run has been had.
    fn over(
        &self,
        single: &BTreeMap<(Instant, Option<String>), AccountRow>,
        ranges: &[Skipped],
    ) -> Option<Instant> {
        let cancelled = self.stored.state.cancelled;
        let used_up = (self.stored.view().remaining() == Some(0)).then(|| {
            let slots = single.keys().filter(|(_, on_demand)| on_demand.is_none());
            let runs = slots.map(|(slot, _)| *slot).max();
            let skips = ranges.iter().map(|skip| skip.to).max();
            runs.max(skips).unwrap_or(Instant::FIRST)
        });
        [cancelled, used_up].into_iter().flatten().min()
    }

    /// What becomes of a slot that nothing is on record for.
    fn fate(&self, slot: Instant) -> Fate {
        let schedule = self.stored.schedule();
        if schedule.next(Instant(slot.0 - 1)) != Some(slot) {
            return Fate::Excluded;
        }
        // Nothing is recorded while a pause lasts: its end writes one range.
        if let Some(Pause { since, until, .. }) = &self.stored.state.paused
            && slot > *since
            && until.is_none_or(|until| slot <= until)
        {
            return Fate::Paused;
        }
        match (self.stored.view().is_decided(slot, self.mark), slot <= self.now) {
            (true, _) if slot < self.kept_from => Fate::Forgotten,
            (true, _) if self.read_back_to.is_some_and(|read| slot <= read) => Fate::Unread,
            (true, _) => Fate::Missing,
            (false, true) => Fate::Pending,
            (false, false) => Fate::Coming,
        }
    }

    /// What lies in the window of a range of the present schedule.
    fn clip(&self, skip: &Skipped, from: Instant, to: Instant) -> AccountRow {
        if (from, to) == (skip.from, skip.to) {
            return whole(skip);
        }
        let count = match self.stored.schedule().count(Instant(from.0 - 1), to) {
            Count::Exactly(count) | Count::MoreThan(count) => count,
        };
        skipped(skip, from, to, count)
    }
}

/// Adds a slot; neighbours that share a fate share a row, but each missing one has its own.
fn add(rows: &mut Vec<AccountRow>, slot: Instant, fate: Fate) {
    if let Some(last) = rows.last_mut()
        && last.row.fate == fate
        && fate != Fate::Missing
    {
        last.to = slot;
        last.row.to = timestamp(slot);
        last.row.count += 1;
        return;
    }
    rows.push(found(slot, slot, 1, fate));
}

fn whole(skip: &Skipped) -> AccountRow {
    skipped(skip, skip.from, skip.to, skip.count)
}

fn skipped(skip: &Skipped, from: Instant, to: Instant, count: u64) -> AccountRow {
    let mut found = found(from, to, count, Fate::Skipped);
    found.row.reason = Some(convert::reason(skip.reason));
    found
}

/// What lies in the window of a range of a former schedule, if anything may.
fn clip_former(skip: &Skipped, window: Window) -> Option<AccountRow> {
    if window.has(skip.from) && window.has(skip.to) {
        return Some(whole(skip));
    }
    // Only its first and its last slot are known, and at most one of them lies in the window.
    let end = [skip.from, skip.to].into_iter().find(|slot| window.has(*slot));
    if skip.count == 2 {
        return end.map(|slot| skipped(skip, slot, slot, 1));
    }
    let (from, to) = (skip.from.max(window.from), skip.to.min(window.last()));
    let mut found = skipped(skip, from, to, u64::from(end.is_some()));
    let (from, to) = (timestamp(skip.from), timestamp(skip.to));
    found.row.part_of = Some(Whole { from, to, count: skip.count });
    Some(found)
}

fn found(from: Instant, to: Instant, count: u64, fate: Fate) -> AccountRow {
    let (reason, part_of, run) = (None, None, None);
    let row = Row { from: timestamp(from), to: timestamp(to), count, fate, reason, part_of, run };
    AccountRow { from, to, row }
}

fn found_run(slot: Instant, run: Run, leaves_at: Option<Instant>) -> AccountRow {
    let (first, last) = (run.attempts.first(), run.attempts.last());
    let untold = untold(&run);
    // What nothing is known of may have left in time.
    let left = first.filter(|_| untold == 0).map(|attempt| attempt.at.as_millisecond());
    let late_ms = left.zip(leaves_at).map(|(left, leaves_at)| left.saturating_sub(leaves_at.0));
    let facts = RunFacts {
        state: run.state,
        on_demand: run.on_demand,
        ended: run.ended,
        attempt: run.attempt,
        late_ms: late_ms.map(|late| u64::try_from(late).unwrap_or(0)),
        untold,
        sent: last.map(|attempt| attempt.at),
        status: last.and_then(|attempt| attempt.status),
        error: last.and_then(|attempt| attempt.error.clone()),
        id: run.id,
    };
    let mut found = found(slot, slot, 1, Fate::Run);
    found.row.run = Some(facts);
    found
}

/// Attempts that were begun, and of which nothing is on record: in doubt, or not able to leave.
fn untold(run: &Run) -> u32 {
    let told = u32::try_from(run.attempts.len()).unwrap_or(u32::MAX);
    let under_way = match run.state {
        RunState::Running => 1,
        RunState::Backoff | RunState::Succeeded | RunState::Failed | RunState::Dead => 0,
        // It has not left, or it was ended while an attempt was under way.
        RunState::Waiting
        | RunState::Skipped
        | RunState::Blocked
        | RunState::Cancelled
        | RunState::Expired
        | RunState::Unknown => return 0,
    };
    run.attempt.saturating_sub(told).saturating_sub(under_way)
}

fn totals(rows: &[Row]) -> Totals {
    let mut totals = Totals::default();
    for row in rows {
        let sum = match (row.fate, &row.run) {
            (Fate::Run, Some(run)) if run.on_demand => continue,
            (Fate::Run, Some(run)) if run.state == RunState::Succeeded => &mut totals.succeeded,
            (Fate::Run, Some(run)) if run.state.is_end() => &mut totals.failed,
            (Fate::Run, _) => &mut totals.under_way,
            (Fate::Skipped, _) => &mut totals.skipped,
            (Fate::Paused, _) => &mut totals.paused,
            (Fate::Excluded, _) => &mut totals.excluded,
            (Fate::Pending, _) => &mut totals.pending,
            (Fate::Coming, _) => &mut totals.coming,
            (Fate::Unread, _) => &mut totals.unread,
            (Fate::Forgotten, _) => &mut totals.forgotten,
            (Fate::Missing, _) => &mut totals.missing,
        };
        *sum += row.count;
        let late_ms = row.run.as_ref().and_then(|run| run.late_ms);
        if late_ms.is_some_and(|late| late > TOLD_LATE_MS) {
            totals.late += 1;
        }
        if row.fate != Fate::Excluded {
            totals.slots += row.count;
        }
    }
    totals
}
