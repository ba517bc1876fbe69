//! `watchbell import` and `watchbell completions`, as they are typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::path::PathBuf;

use clap::Subcommand;

use super::examples;

#[derive(Debug, Subcommand)]
pub(crate) enum ImportVerb {
    Crontab(CrontabArgs),
}

/// Write a crontab as a file for watchbell trigger apply
///
/// Each line becomes a trigger that calls URL/NAME with its command as JSON: {"command": …}, and "stdin" and
/// "user" where there are such. Something of yours has to answer there and run the command. Lines that cannot
/// be carried over, and what else is worth knowing, are told on stderr with their numbers; if a line was left
/// out the exit code is 1. Missed times are not made up for, as in cron.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell import crontab /etc/crontab --system --webhook-base https://example.com/cron > cron.yaml\n  \
       crontab -l | watchbell import crontab - --tz Europe/Berlin --webhook-base http://127.0.0.1:8080"
))]
pub(crate) struct CrontabArgs {
    /// The crontab; - is stdin
    pub(crate) file: PathBuf,
    /// What the triggers call: this, a slash, and their names
    #[arg(long, value_name = "URL")]
    pub(crate) webhook_base: String,
    /// Lines name a user before the command, as in /etc/crontab and /etc/cron.d
    #[arg(long)]
    pub(crate) system: bool,
    /// The time zone of lines that no CRON_TZ stands before, by its IANA name [default: UTC]
    #[arg(long = "tz", value_name = "ZONE")]
    pub(crate) zone: Option<String>,
}

/// Write what a shell needs to complete the words of this command line
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell completions bash > /etc/bash_completion.d/watchbell\n  \
       watchbell completions zsh > ~/.zfunc/_watchbell\n  \
       watchbell completions fish > ~/.config/fish/completions/watchbell.fish"
))]
pub(crate) struct CompletionsArgs {
    /// The shell to complete commands in
    pub(crate) shell: clap_complete::Shell,
}
