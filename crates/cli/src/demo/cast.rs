//! What the demonstration's own processes are: a server or a worker that dies with it, and a run.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use store::machine::{Machine as _, System};

use super::journal::{Entry, Mark, append};
use crate::args::demo::{ActorArgs, TaskArgs};
use crate::exit::Ending;

/// Becomes a server or a worker: the same process, the same id, other words. From now on the kernel kills it when the
/// demonstration dies, of whatever cause.
pub(super) fn become_actor(typed: &ActorArgs) -> Result<(), Ending> {
    let failed = |why: io::Error| Ending::failed(format!("cannot become an actor: {why}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|why| failed(why.into()))?;
    // One whose parent died before it could say so is told by nobody.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != typed.parent) {
        return Err(Ending::failed("the demonstration has ended meanwhile"));
    }
    let binary = std::env::current_exe().map_err(failed)?;
    Err(failed(Command::new(binary).args(&typed.words).exec()))
}

/// Writes down that it begins, takes its time, and writes down that it ends. Each worker has a directory of its own for runs, by
/// whose name a run knows who carries it out.
pub(super) async fn be_task(typed: &TaskArgs) -> Result<(), Ending> {
    let here =
        std::env::current_dir().map_err(|why| Ending::failed(format!("where am I? {why}")))?;
    let worker = here.file_name().unwrap_or_default().to_string_lossy();
    let note = |mark| {
        let TaskArgs { task, attempt, token, .. } = *typed;
        let (run, worker) = (typed.run.clone(), worker.to_string());
        let entry = Entry { mark, task, run, attempt, token, worker, at_us: System.wall_us() };
        append(&typed.journal, &entry).map_err(|why| {
            let place = typed.journal.display();
            Ending::failed(format!(
                "cannot write to the journal of the demonstration, {place}: {why}"
            ))
        })
    };
    note(Mark::Begun)?;
    let length = Duration::from_millis(typed.millis);
    writeln!(io::stdout(), "run {} takes {length:?}", typed.task)?;
    tokio::time::sleep(length).await;
    note(Mark::Ended)
}
