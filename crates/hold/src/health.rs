//! The health command: whether the program is well, as somebody else sees it.
//!
//! It runs as a tree of its own, like the program but without the lock: it is killed when its time is over, and gone when the
//! supervisor is. What it prints goes to the supervisor's standard error.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use engine::hold::life::Health;
use process::{Deadline, End, Isolation, Launcher, Program, Streams, Wanted, since_boot};

/// Runs health commands.
pub(crate) struct HealthCheck {
    launcher: Launcher,
}

impl HealthCheck {
    pub(crate) fn new(isolation: Isolation) -> Self {
        Self { launcher: Launcher::new(Wanted::Exactly(isolation)) }
    }

    /// Runs one, for no longer than this. What cannot be run says nothing good.
    pub(crate) async fn run(&self, program: &Program, limit: Duration) -> Health {
        let program = program.clone().deadline(Deadline::sudden(since_boot() + limit));
        let said = async {
            let streams = streams().map_err(|why| why.to_string())?;
            let started = self.launcher.start_on(&streams, &program).await;
            let mut tree = started.map_err(|why| why.to_string())?;
            tree.ended().await.map_err(|why| why.to_string())
        };
        match said.await {
            Ok(outcome) if outcome.end == End::Exited(0) => Health::Good,
            Ok(outcome) => {
                tracing::warn!(end = ?outcome.end, cause = ?outcome.cause, "the health command says that the program is not well");
                Health::Bad
            }
            Err(why) => {
                tracing::warn!(why, "the health command could not be run");
                Health::Bad
            }
        }
    }
}

fn streams() -> io::Result<Streams> {
    let told = || -> io::Result<OwnedFd> { io::stderr().as_fd().try_clone_to_owned() };
    Ok(Streams { stdin: File::open("/dev/null")?.into(), stdout: told()?, stderr: told()? })
}
