//! Long runs of queues: how many may wait.

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::limits::{ACTION_INLINE_BYTES_MAX, WAITING_PER_LONG_RUN};
use engine::queue::draft::RunDraft;
use engine::shard::command::{Command, Rejection};
use engine::shard::record::HeadRecord;
use engine::shard::{Loading, Now, Ticket};
use serde_json::value::RawValue;

use super::bench::BEGIN;

#[test]
fn one_in_twenty_of_the_runs_that_may_wait_may_be_long() {
    let now = Now { wall: Instant(BEGIN), steady: 0, random: 0 };
    let mut shard = Loading::begin(ShardId(3), 1, &HeadRecord::default()).finish(now);
    shard.set_waiting_max(2 * WAITING_PER_LONG_RUN);
    let mut submit = |payload_len: usize, count: usize| {
        let payload = format!("\"{}\"", "x".repeat(payload_len));
        let payload = RawValue::from_string(payload).ok();
        let draft = RunDraft { handler: Some("h".to_owned()), payload, ..RunDraft::default() };
        let runs = vec![draft.build(now.wall).unwrap(); count];
        let (project, queue, author) = (ProjectId::DEFAULT, "q".into(), "me".to_owned());
        let command = Command::Submit { project, queue, runs, author };
        shard.command(command, None, Ticket(1), now)
    };
    let refused = |long| Err(Rejection::TooManyLongRuns { long, max: 2 });
    assert_eq!(submit(ACTION_INLINE_BYTES_MAX, 3), refused(0), "all or none");
    assert_eq!(submit(ACTION_INLINE_BYTES_MAX, 2), Ok(()));
    assert_eq!(submit(ACTION_INLINE_BYTES_MAX, 1), refused(2));
    assert_eq!(submit(10, 1), Ok(()));
}
