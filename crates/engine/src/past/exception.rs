//! Exceptions: what did not simply succeed, newest first, by project.
//!
//! Most runs succeed, and whoever looks for the others should not have to read those. A run that ended
//! otherwise, and slots that were skipped, are written a second time, without what receivers said:
//!
//! ```text
//! shard/<n>/odd/<reverse instant>.<number>                              those of a commit, of all projects
//! shard/<n>/oddpage/<project>/<reverse day>/<reverse round>.<chain number>.<piece>  those of a project, merged
//! ```
//!
//! A commit writes the former beside its segment, and only if it has exceptions, so success costs nothing.
//! The latter are pages like those of a bucket, but of the day on which a line was written; they are made
//! when the segment is merged. The instant in the key is when the newest line of the record was written:
//! all that follow it in the order of keys are at most as new, whatever the clock did meanwhile.

use crate::id::{ProjectId, ShardId};
use crate::instant::Instant;

use super::{End, Line, Skipped};

impl Line {
    /// Whether it is an exception.
    pub fn is_exception(&self) -> bool {
        match self {
            Self::Run(run) => run.end != End::Succeeded,
            Self::Skip(Skipped { .. }) => true,
        }
    }
}

/// Where the exceptions of a shard's commits are, newest first. The stored texts `odd/` and `oddpage/` are older than
/// the name, and stay.
pub fn exceptions(shard: ShardId) -> String {
    format!("shard/{shard}/odd/")
}

/// Where those are of a commit whose newest exception was written then.
pub fn exception_key(shard: ShardId, newest: Instant, number: u64) -> String {
    format!("{}{}.{number:016x}", exceptions(shard), reverse(newest))
}

/// Where those begin that were written at this instant at the latest.
pub fn exceptions_from(shard: ShardId, newest: Instant) -> String {
    format!("{}{}", exceptions(shard), reverse(newest))
}

/// When the newest exception under a key was written.
pub fn newest_exception(shard: ShardId, key: &str) -> Option<Instant> {
    let (newest, number) = key.strip_prefix(&exceptions(shard))?.split_once('.')?;
    let reverse = u64::from_str_radix(newest, 16).ok()?;
    let newest = Instant((u64::MAX - reverse).cast_signed());
    let number = u64::from_str_radix(number, 16).ok()?;
    (exception_key(shard, newest, number) == key).then_some(newest)
}

/// Where those of some lines are that a commit wrote, if there are any.
pub fn exception_key_of<'a>(
    shard: ShardId,
    lines: impl IntoIterator<Item = &'a Line>,
    number: u64,
) -> Option<String> {
    let exceptions = lines.into_iter().filter(|line| line.is_exception());
    exceptions.map(Line::written).max().map(|newest| exception_key(shard, newest, number))
}

/// Where the merged exceptions of a shard are.
pub fn exception_pages(shard: ShardId) -> String {
    format!("shard/{shard}/oddpage/")
}

/// Where the merged exceptions of a project are, newest day first.
pub fn exception_pages_of(shard: ShardId, project: ProjectId) -> String {
    format!("{}{:010}/", exception_pages(shard), project.0)
}

/// What was before 1970 counts as its first instant.
fn reverse(instant: Instant) -> String {
    format!("{:016x}", u64::MAX - instant.0.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_commit_comes_first_and_keys_are_read_back() {
        let shard = ShardId(3);
        let key = exception_key(shard, Instant(1_800_000_000_000), 9);
        assert_eq!(key, "shard/3/odd/fffffe5ce7a3afff.0000000000000009");
        assert_eq!(newest_exception(shard, &key), Some(Instant(1_800_000_000_000)));
        assert!(exception_key(shard, Instant(1_800_000_000_001), 1) < key);
        assert!(exceptions_from(shard, Instant(1_800_000_000_000)) < key);
        assert!(exceptions_from(shard, Instant(1_799_999_999_999)) > key);
        for bad in ["shard/3/odd/x.1", "shard/3/odd/fffffe5ce7a3afff", "shard/4/odd/1.1"] {
            assert_eq!(newest_exception(shard, bad), None, "{bad}");
        }
    }
}
