//! Until when the program may act, in a file, for programs that look.
//!
//! One line of JSON, put in place as a whole at each renewal:
//!
//! ```json
//! {"token":1763580000000000,"boot_ms":1234567,"wall_ms":1763580004250}
//! ```
//!
//! `boot_ms` is the instant by the clock since boot (`CLOCK_BOOTTIME`, what `/proc/uptime` shows) at which the program is
//! killed unless there is another renewal; `wall_ms` the same by the wall clock as it stood when this was written, in
//! milliseconds since 1970. A program that acts on something outside of its machine looks before, and does not begin what it
//! may not finish.
//!
//! It is written by a task of its own: a disk that does not answer holds up no renewal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::lease::Token;
use serde::Serialize;
use store::machine::{Machine, System};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use crate::lock::{LockError, own_directory};

/// How long a start waits for it.
const WRITE_MAX: Duration = Duration::from_millis(200);

/// The file, which only the supervisor that has the lock writes.
pub struct DeadlineFile {
    path: PathBuf,
    wanted: watch::Sender<Option<Written>>,
    done: watch::Receiver<Option<Written>>,
    _task: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Written {
    token: u64,
    boot_ms: u64,
    wall_ms: u64,
}

impl DeadlineFile {
    /// In a directory of its own of this name below this one. To be called in a runtime.
    pub fn new(directory: &Path, name: &str) -> Result<Self, LockError> {
        let place = directory.join(format!("{name}.d"));
        own_directory(&place)?;
        let path = place.join("deadline");
        for file in [path.clone(), being_written(&path)] {
            if file.is_dir() {
                return Err(LockError::Directory(file));
            }
        }
        let (wanted, to_write) = watch::channel(None);
        let (written, done) = watch::channel(None);
        let mut task = JoinSet::new();
        task.spawn(keep(path.clone(), to_write, written));
        Ok(Self { path, wanted, done, _task: task })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program may act until this instant of the clock since boot. Returns at once.
    pub(crate) fn set(&self, token: Token, until: Duration) {
        let left = until.saturating_sub(System.reading().boot);
        let wall_ms = System.wall_us() / 1_000 + millis(left);
        self.wanted.send_replace(Some(Written { token: token.0, boot_ms: millis(until), wall_ms }));
    }

    /// Waits until it says what was set last, but not for long.
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + Send + 'static {
        let (wanted, mut done) = (*self.wanted.borrow(), self.done.clone());
        async move {
            let settled = done.wait_for(|done| *done == wanted);
            if tokio::time::timeout(WRITE_MAX, settled).await.is_err() {
                tracing::warn!("the deadline file could not be written in time");
            }
        }
    }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

async fn keep(
    path: PathBuf,
    mut wanted: watch::Receiver<Option<Written>>,
    done: watch::Sender<Option<Written>>,
) {
    let mut is_told = false;
    while wanted.changed().await.is_ok() {
        let Some(content) = *wanted.borrow_and_update() else { continue };
        let path = path.clone();
        match spawn_blocking(move || write(&path, content)).await {
            Ok(Ok(())) => is_told = false,
            Ok(Err(why)) if !is_told => {
                is_told = true;
                tracing::warn!(%why, "the deadline file cannot be written: programs that look find an old one");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        done.send_replace(Some(content));
    }
}

/// What becomes the file when it is whole.
fn being_written(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn write(path: &Path, content: Written) -> io::Result<()> {
    let mut line = serde_json::to_string(&content)?;
    line.push('\n');
    let new = being_written(path);
    match fs::write(&new, &line) {
        // Somebody has removed the directory.
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let place = path.parent().expect("it is in a directory of its own");
            own_directory(place).map_err(io::Error::other)?;
            fs::write(&new, line)?;
        }
        written => written?,
    }
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn what_stands_in_its_way_is_refused_and_so_is_a_directory_in_which_others_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a.d");
        for name in ["deadline", "deadline.new"] {
            let file = place.join(name);
            fs::create_dir_all(&file).unwrap();
            let refused = DeadlineFile::new(dir.path(), "a").err().map(|why| why.to_string());
            assert!(refused.unwrap().contains("is a directory, and is to be a file"), "{name}");
            fs::remove_dir(file).unwrap();
        }
        for mode in [0o720, 0o702, 0o1777] {
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(DeadlineFile::new(dir.path(), "a"), Err(LockError::Foreign(_))));
        }
    }

    #[tokio::test]
    async fn it_says_until_when_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = DeadlineFile::new(dir.path(), "a").unwrap();
        let now = System.reading().boot;
        file.set(Token(7), now + Duration::from_secs(5));
        file.settled().await;
        let text = fs::read_to_string(file.path()).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(told["token"], 7);
        assert_eq!(told["boot_ms"], millis(now + Duration::from_secs(5)));
        let wall_ms = told["wall_ms"].as_u64().unwrap();
        assert!(wall_ms.abs_diff(System.wall_us() / 1_000 + 5_000) < 3_000, "{wall_ms}");
        let place = file.path().parent().unwrap();
        assert_eq!(fs::read_dir(place).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(place).unwrap();
        file.set(Token(8), now + Duration::from_secs(6));
        file.settled().await;
        assert!(fs::read_to_string(file.path()).unwrap().contains("\"token\":8"));
    }
}
