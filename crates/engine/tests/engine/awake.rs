//! A shard whose owner's clock is set.

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::shard::command::Command;
use engine::shard::record::HeadRecord;
use engine::shard::{HostRoom, Loading, Now, Room, Shard, Ticket};
use engine::trigger::Draft;
use serde_json::value::RawValue;

const NOON: i64 = 1_800_000_000_000;
const HOUR_MS: i64 = 3_600_000;

fn at(ms: i64) -> Now {
    Now { wall: Instant(NOON + ms), steady: 1_000_000, random: 7 }
}

/// A shard with a trigger that rings every second.
fn shard() -> Shard {
    let mut shard = Loading::begin(ShardId(0), 1, &HeadRecord::default()).finish(at(0));
    let text = r#"{"name":"bell","schedule":{"every":"1s"},"webhook":{"url":"http://a.example"}}"#;
    let draft: Draft = serde_json::from_str(text).unwrap();
    let definition = Box::new(draft.build(at(0).wall).unwrap());
    let draft = RawValue::from_string(text.to_owned()).unwrap();
    let (project, author) = (ProjectId::DEFAULT, "me".to_owned());
    let command = Command::Create { project, definition, draft, author, named_until: None };
    shard.command(command, None, Ticket(1), at(0)).unwrap();
    let room = Room { writes: 100, bytes: 100_000, value_bytes: 100_000 };
    shard.take_batch(1, room).unwrap();
    shard.committed(at(0));
    shard
}

#[test]
fn what_waits_to_be_written_does_not_wait_for_a_clock_that_was_set_back() {
    let mut shard = shard();
    // The next slot is launched ahead, and has some time to be written.
    shard.step(at(510), &|_| HostRoom::ALL);
    assert_eq!(shard.commit_by(), Some(Instant(NOON + 900)));
    shard.awake(at(-HOUR_MS));
    let by = shard.commit_by().unwrap();
    assert!(by <= at(-HOUR_MS).wall, "{by}");
}
