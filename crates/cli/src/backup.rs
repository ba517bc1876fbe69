//! `watchbell backup create` and `verify`.
//!
//! A backup gets its name when it is whole: it is written to a file beside it, synced, read back from the first
//! byte to the last, and then renamed.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use store::backup::{Summary, take, verify as read_back};
use store::machine::System;
use store::{OpenError, StoreUrl};
use tempfile::NamedTempFile;

use crate::args::backup::{BackupCreateArgs, BackupVerifyArgs};
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

pub(crate) async fn create(typed: &BackupCreateArgs) -> Result<(), Ending> {
    let file = &typed.file;
    let refuse = || {
        Ending::refused(format!(
            "{} is there already: give another name, or replace it with --force",
            file.display()
        ))
    };
    if !typed.force && file.exists() {
        return Err(refuse());
    }
    let cannot = |why: io::Error| unwritten(file, &why);
    let beside = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) | None => Path::new("."),
    };
    let temporary = tempfile::Builder::new().prefix(".watchbell-backup-").tempfile_in(beside);
    let mut temporary = temporary.map_err(cannot)?;
    tokio::select! {
        biased;
        // The file goes with this.
        Ok(()) = tokio::signal::ctrl_c() => {
            return Err(Ending::failed("interrupted: no backup was written"));
        }
        written = write(typed, &mut temporary) => written?,
    }
    temporary.as_file().sync_all().map_err(cannot)?;
    let summary = read_back(BufReader::new(temporary.reopen().map_err(cannot)?))?;
    if typed.force {
        temporary.persist(file).map_err(|why| cannot(why.error))?;
    } else {
        temporary.persist_noclobber(file).map_err(|why| match why.error.kind() {
            io::ErrorKind::AlreadyExists => refuse(),
            _ => cannot(why.error),
        })?;
    }
    File::open(beside).and_then(|dir| dir.sync_all()).map_err(cannot)?;
    tell(typed.server.output, file, &summary)
}

pub(crate) fn verify(typed: &BackupVerifyArgs) -> Result<(), Ending> {
    let summary = read_back(open(&typed.file)?)?;
    tell(typed.output, &typed.file, &summary)
}

/// Opens a backup that is there.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>, Ending> {
    let file = File::open(path).map_err(|why| {
        let sentence = format!("cannot open {}: {why}; check its name", path.display());
        Ending::refused(sentence)
    })?;
    Ok(BufReader::new(file))
}

/// Writes a backup to a file, from wherever it is taken.
async fn write(typed: &BackupCreateArgs, to: &mut NamedTempFile) -> Result<(), Ending> {
    let (progress, mut bytes) = (Progress::on_stderr(), 0);
    let mut out = BufWriter::new(to);
    let mut write = |piece: &[u8]| {
        bytes += piece.len();
        progress.show(format_args!("{} KiB written", bytes / 1_024));
        out.write_all(piece)
    };
    let cannot = |why: io::Error| unwritten(&typed.file, &why);
    if let Some(url) = &typed.store {
        let store = store::open_existing(&StoreUrl::parse(url)?).await.map_err(in_use)?;
        take(&store, &System, env!("CARGO_PKG_VERSION"), &mut write).await?;
    } else {
        let mut pieces = typed.server.client()?.backup().await?;
        while let Some(piece) = pieces.next().await? {
            write(&piece).map_err(cannot)?;
        }
    }
    out.flush().map_err(cannot)
}

fn in_use(why: OpenError) -> Ending {
    let more = matches!(why, OpenError::InUse { .. });
    let more = more.then(|| "or take the backup from that server with --server URL".to_owned());
    Ending::from(why).and(more)
}

fn unwritten(file: &Path, why: &io::Error) -> Ending {
    let sentence =
        format!("cannot write {}: {why}; check the place that it goes to", file.display());
    match why.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotFound
        | io::ErrorKind::StorageFull
        | io::ErrorKind::ReadOnlyFilesystem => Ending::refused(sentence),
        _ => Ending::failed(sentence),
    }
}

/// What is in a backup, for programs.
#[derive(Serialize)]
pub(crate) struct BackupReport {
    file: String,
    format: u32,
    version: String,
    taken: String,
    cluster: String,
    shards: u16,
    triggers: u64,
    unfinished_runs: u64,
    history_lines: u64,
    sessions: u64,
    entries: u64,
    bytes: u64,
    checksum: String,
}

impl BackupReport {
    pub(crate) fn of(file: &Path, summary: &Summary) -> Self {
        let (header, census) = (&summary.header, &summary.census);
        Self {
            file: file.display().to_string(),
            format: header.format().0,
            version: header.version.clone(),
            taken: header.taken.to_string(),
            cluster: format!("{:016x}", header.cluster),
            shards: header.shards,
            triggers: census.triggers,
            unfinished_runs: census.unfinished,
            history_lines: census.past,
            sessions: census.sessions,
            entries: summary.entries,
            bytes: summary.bytes,
            checksum: summary.checksum.to_string(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut table = table::plain();
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("backup", escape(&self.file));
        row("format", format!("{}, written by Watchbell {}", self.format, escape(&self.version)));
        row("taken", self.taken.clone());
        row("cluster", self.cluster.clone());
        row("shards", self.shards.to_string());
        row("triggers", self.triggers.to_string());
        row("runs", format!("{} not finished", self.unfinished_runs));
        row("history", format!("{} lines", self.history_lines));
        row("sessions", format!("{}, which a restore buries", self.sessions));
        row("entries", self.entries.to_string());
        row("bytes", self.bytes.to_string());
        row("checksum", self.checksum.clone());
        table::finish(table, 2)
    }
}

fn tell(output: crate::args::OutputFormat, file: &Path, summary: &Summary) -> Result<(), Ending> {
    let told = BackupReport::of(file, summary);
    print(output, &told, || told.text())
}
