//! How late do webhooks arrive?
//!
//! The receiver looks at its own clock, which is the sender's too, when it has read a request, and takes away the
//! instant at which that slot was to leave. So it is the whole way: wheel, store, queue, connection, kernel,
//! and the receiver's own turn. With everything on one second it is a matter of how fast the machine can send at
//! all; so the bare loop sends as many beside it.

use std::time::Duration;

use engine::instant::Instant;

use super::args::LatenessArgs;
use super::bare::{self, Until};
use super::crowd::{Crowd, JITTER_S, When};
use super::fill::{self, Actions, fill};
use super::machine::About;
use super::metrics::Metrics;
use super::receiver::{Receiver, Tally, Watch};
use super::report::{Cell, Report, float};
use super::subject::Subject;
use super::usage::{Look, Spent};
use super::{Bench, now, remove};
use crate::triggers::Ending;

const ACTION_BYTES: u16 = 64;

/// Seconds between one burst and the next.
const BURST_EVERY_S: u32 = 10;

/// Seconds for connections to be made and catching up to be over.
const WARM_UP_S: i64 = 5;

/// Seconds after the last slot in which what is late may still come.
const GRACE_S: i64 = 5;

/// How often the bare loop sends as much as a burst.
const BARE_ROUNDS: usize = 5;

struct Found {
    tally: Tally,
    expected: u64,
    before: Metrics,
    after: Metrics,
    spent: Spent,
    stopped_after: Duration,
}

pub(super) async fn lateness(typed: &LatenessArgs) -> Result<Report, Ending> {
    if !typed.count.is_multiple_of(typed.rate) {
        return Err(Ending::failed("--rate must divide --count, so that every second has as many"));
    }
    if typed.burst.is_some_and(|burst| burst > typed.count) {
        return Err(Ending::failed("--burst cannot be more than --count"));
    }
    let mut bench = Bench::new(&typed.common)?;
    let mut receiver = Receiver::start(typed.target.hosts).await?;
    let mut report = Report::new(About::this(&bench.watchbell, bench.path()));
    let interval_s = typed.count / typed.rate;
    let crowd = Crowd { when: When::Spread { interval_s }, first: 0, len: typed.count };
    let seconds = i64::from(typed.seconds);
    let found = one(&mut bench, &mut receiver, &[crowd], seconds).await?;
    let mut rows = vec![row("spread", &mut report, &found)];
    if let Some(burst) = typed.burst {
        let bare = bare_burst(&receiver, burst, &bench).await?;
        let crowds = [
            Crowd { when: When::Burst { interval_s: BURST_EVERY_S }, first: 0, len: burst },
            Crowd { when: When::calm(now()), first: burst, len: typed.count - burst },
        ];
        let found = one(&mut bench, &mut receiver, &crowds, seconds).await?;
        rows.push(row("burst", &mut report, &found));
        report.add("lateness", rows);
        report.add("burst", vec![burst_row(burst, &found.tally, &bare)]);
    } else {
        report.add("lateness", rows);
    }
    report.note(format!(
        "{} triggers, {} hosts. Lateness is taken on arrival, to 0.1 ms; `left` is the server's own histogram, to\n\
         its buckets. Spread: every {interval_s} s at phases of whole seconds, with a jitter of {JITTER_S} s; late is \
         what comes after slot and jitter.",
        super::report::grouped(typed.count),
        typed.target.hosts
    ));
    Ok(report)
}

/// Fills a store, starts a server on it, and watches for so many seconds.
async fn one(
    bench: &mut Bench,
    receiver: &mut Receiver,
    crowds: &[Crowd],
    seconds: i64,
) -> Result<Found, Ending> {
    let place = bench.place();
    let begin = fill::begin(crowds.iter().map(|crowd| crowd.len).sum());
    let actions = Actions { hosts: &receiver.hosts, bytes: ACTION_BYTES };
    fill(bench, &place, crowds, begin, actions).await?;
    bench.progress.show("starting a server");
    let subject = Subject::start(bench, &place).await?;
    let first = now().max(begin).second() + 1 + WARM_UP_S;
    let (watch, expected) = window(crowds, first, seconds);
    bench.wait_until(watch.from, "warming up").await;
    let before = subject.metrics().await?;
    let pids = [subject.pid(), receiver.pid()];
    let look = Look::at(&pids);
    // What is to be watched leaves from now on; whatever came before is forgotten.
    receiver.watch(watch).await?;
    bench.wait_until(watch.to, "measuring").await;
    let spent = Look::at(&pids).since(&look);
    let after = subject.metrics().await?;
    bench.wait(Duration::from_secs(GRACE_S.unsigned_abs()), "waiting for the last").await;
    let tally = receiver.tally().await?;
    let stopped_after = subject.stop().await?;
    remove(&place);
    Ok(Found { tally, expected, before, after, spent, stopped_after })
}

/// Which slots are watched, from this second on, and how many there are. The first second itself is left out,
/// because the watch is set up in it.
fn window(crowds: &[Crowd], first: i64, seconds: i64) -> (Watch, u64) {
    match crowds[0].when {
        When::Burst { interval_s } => {
            let interval = i64::from(interval_s);
            // It begins half-way between two bursts.
            let from = first.div_euclid(interval) * interval + interval / 2;
            let from = if from < first { from + interval } else { from };
            let bursts = (seconds / interval).max(1);
            let (from, to) =
                (Instant::from_second(from), Instant::from_second(from + bursts * interval));
            let expected = bursts.unsigned_abs() * u64::from(crowds[0].len);
            (Watch { from, to, jittered_s: None }, expected)
        }
        When::Spread { interval_s } => {
            let (from, to) = (Instant::from_second(first), Instant::from_second(first + seconds));
            // Slots of the first second may come before the watch is set up.
            let from = from.after(Duration::from_millis(1));
            let expected = (seconds - 1).unsigned_abs() * u64::from(crowds[0].len / interval_s);
            (Watch { from, to, jittered_s: Some(interval_s) }, expected)
        }
        When::Calm { .. } | When::Overdue => unreachable!("nothing to watch"),
    }
}

fn row(name: &'static str, report: &mut Report, found: &Found) -> Vec<Cell> {
    let Found { tally, expected, before, after, spent, stopped_after } = found;
    report.others(spent.others);
    report.stopped(*stopped_after);
    report.note(format!("{name}: {}", spent.threads()));
    let missing = expected.saturating_sub(tally.watched);
    if missing > 0 || tally.watched > *expected || tally.early > 0 {
        report.note(format!(
            "{name}: WRONG: {} of {expected} came, {} of them early",
            tally.watched, tally.early
        ));
    }
    let others = after.not_succeeded() - before.not_succeeded();
    if others > 0 {
        report.note(format!("{name}: {others} slots did not succeed"));
    }
    let late = |name, head, millis| Cell::number(name, head, Some(millis), 1);
    let fires = (after.fires() - before.fires()).max(1);
    let rate = float(fires) / spent.elapsed.as_secs_f64();
    vec![
        Cell::word("slots", "slots", name),
        Cell::number("fires_per_s", "fires/s", Some(rate), 0),
        late("p50_ms", "p50 ms", tally.p50_ms),
        late("p99_ms", "p99 ms", tally.p99_ms),
        late("p999_ms", "p99.9 ms", tally.p999_ms),
        late("max_ms", "max ms", tally.max_ms),
        Cell::number("left_p99_ms", "left p99 ≤ ms", after.left_late_ms(before, 990), 0),
        Cell::number("left_p999_ms", "left p99.9 ≤ ms", after.left_late_ms(before, 999), 0),
        Cell::count("missing", "missing", missing),
        Cell::number(
            "cpu_us_per_fire",
            "CPU µs/fire",
            Some(float(spent.processes_us[0]) / float(fires)),
            1,
        ),
    ]
}

/// How long the bare loop needs for as many, several times, in milliseconds, sorted.
async fn bare_burst(receiver: &Receiver, burst: u32, bench: &Bench) -> Result<Vec<f64>, Ending> {
    let mut times = Vec::new();
    for _ in 0..BARE_ROUNDS {
        bench.progress.show("the bare loop sends a burst");
        let sent =
            bare::measure(&receiver.hosts, ACTION_BYTES, Until::Requests(burst.into())).await?;
        times.push(float(sent.elapsed_us) / 1_000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn burst_row(burst: u32, tally: &Tally, bare: &[f64]) -> Vec<Cell> {
    let usual = bare[bare.len() / 2];
    vec![
        Cell::count("burst", "on one second", burst),
        Cell::number("p99_ms", "p99 ms", Some(tally.p99_ms), 1),
        Cell::number("bare_ms", "bare loop ms", Some(usual), 1),
        Cell::number("bare_least_ms", "least", bare.first().copied(), 1),
        Cell::number("bare_most_ms", "most", bare.last().copied(), 1),
        Cell::number("ratio", "p99 / bare loop", Some(tally.p99_ms / usual), 2),
    ]
}
