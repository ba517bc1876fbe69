//! The machine on which it is measured.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use store::clock::Stopwatch;

const SYNCS: usize = 101;

/// What figures depend on.
pub(super) struct About {
    /// What the binary that is measured says that it is.
    pub(super) version: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
    /// How long the disk takes to keep 4 KiB: the median, and the longest of a hundred.
    pub(super) sync: Option<(Duration, Duration)>,
}

impl About {
    /// This binary, this machine, and the disk that this directory is on.
    pub(super) fn this(watchbell: &Path, dir: &Path) -> Self {
        let said = Command::new(watchbell).arg("--version").output().ok();
        let version = said.and_then(|said| String::from_utf8(said.stdout).ok());
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            version: version.unwrap_or_default().trim_end().to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or_default() * 1_024,
            kernel: kernel.trim_end().to_owned(),
            sync: measure_sync(&dir.join("sync")).ok(),
        }
    }
}

fn measure_sync(path: &Path) -> io::Result<(Duration, Duration)> {
    let mut file = File::create(path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let watch = Stopwatch::start();
        file.write_all(&[b'x'; 4_096])?;
        file.sync_data()?;
        times.push(watch.elapsed());
    }
    fs::remove_file(path)?;
    times.sort_unstable();
    Ok((times[SYNCS / 2], times[SYNCS - 1]))
}
