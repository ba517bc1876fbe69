//! `watchbell backup` and `watchbell restore`, as they are typed.

use std::path::PathBuf;

use clap::Subcommand;

use super::trigger::ServerArgs;
use super::{OutputFormat, examples};

#[derive(Debug, Subcommand)]
pub(crate) enum BackupVerb {
    Create(BackupCreateArgs),
    Verify(BackupVerifyArgs),
}

/// Write all that a server, or a store that no server uses, holds to one file
///
/// The file is read back before it gets its name, and an existing one is left alone without --force. It holds
/// everything, also the headers and bodies of webhooks, and only its owner may read it.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell backup create bells.backup\n  \
       watchbell backup create bells.backup --server http://127.0.0.1:8400 --force\n  \
       watchbell backup create bells.backup --store file:./watchbell-data"
))]
pub(crate) struct BackupCreateArgs {
    /// The file to write
    pub(crate) file: PathBuf,
    /// Take it from this store instead of a server; no server may be using it
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Read a backup from its first byte to its last, and say what is in it or what is wrong with it
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell backup verify bells.backup\n  \
       watchbell backup verify bells.backup --output json"
))]
pub(crate) struct BackupVerifyArgs {
    /// The file that holds the backup
    pub(crate) file: PathBuf,
    /// How to show what is in it
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Make a store from a backup
///
/// The store must be empty. Stop whatever used the store that the backup was taken from: it cannot be told from
/// here. A restore that was cut short is gone on with by the same command; until then no server starts on the store.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell restore bells.backup --store file:./watchbell-restored\n  \
       watchbell dev --data ./watchbell-restored"
))]
pub(crate) struct RestoreArgs {
    /// The file that holds the backup
    pub(crate) file: PathBuf,
    /// Where to: a store that is empty, or is not there yet
    #[arg(long, value_name = "URL")]
    pub(crate) store: String,
    /// How to show what was restored
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}
