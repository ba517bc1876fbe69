//! A child of this process: what is measured, or this same binary with another verb, spoken to in lines.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use store::clock::Stopwatch;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::triggers::Ending;

/// How long a child may take to end once it is told to.
const END_MAX: Duration = Duration::from_secs(30);

/// A child. It is killed when this is dropped.
pub(super) struct Child {
    what: &'static str,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    pub(super) pid: u32,
}

impl Child {
    /// Starts this binary itself with these arguments.
    pub(super) fn of_ours(what: &'static str, args: &[String]) -> Result<Self, Ending> {
        Self::start(what, &std::env::current_exe()?, args)
    }

    /// Starts a binary with these arguments.
    pub(super) fn start(
        what: &'static str,
        binary: &Path,
        args: &[String],
    ) -> Result<Self, Ending> {
        let failed =
            |why| Ending::failed(format!("cannot start the {what}, {}: {why}", binary.display()));
        let mut process = Command::new(binary)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let stdout = process.stdout.take().expect("it was asked for");
        let (stdin, pid) = (process.stdin.take(), process.id().expect("nobody has waited for it"));
        Ok(Self { what, process, stdin, lines: BufReader::new(stdout).lines(), pid })
    }

    /// The next line that it writes.
    pub(super) async fn line(&mut self) -> Result<String, Ending> {
        match self.lines.next_line().await {
            Ok(Some(line)) => Ok(line),
            Ok(None) | Err(_) => Err(self.gone()),
        }
    }

    /// Tells it something.
    pub(super) async fn tell(&mut self, line: &str) -> Result<(), Ending> {
        let Some(stdin) = &mut self.stdin else { return Err(self.gone()) };
        let told = stdin.write_all(format!("{line}\n").as_bytes()).await;
        told.map_err(|_| self.gone())
    }

    fn gone(&self) -> Ending {
        Ending::failed(format!("the {} ended before it was told to: see above", self.what))
    }

    /// Kills it.
    pub(super) async fn kill(mut self) -> Result<(), Ending> {
        self.process.kill().await.map_err(|why| self.lost(&why))
    }

    fn lost(&self, why: &std::io::Error) -> Ending {
        Ending::failed(format!("the {} is lost: {why}", self.what))
    }

    /// Asks it to end, and waits for that; says how long it took. One that does not end is killed.
    pub(super) async fn stop(mut self) -> Result<Duration, Ending> {
        let watch = Stopwatch::start();
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // One that is gone already is found below.
            let _ = kill_process(pid, Signal::TERM);
        }
        drop(self.stdin.take());
        let ended = match timeout(END_MAX, self.process.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.process.kill().await,
        };
        ended.map_err(|why| self.lost(&why))?;
        Ok(watch.elapsed())
    }
}
