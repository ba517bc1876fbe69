//! The binary through which tests start commands, and a worker's hands as somebody else.
//!
//! `worker-guard carry ALLOW RUN` carries out one run, as JSON, by a policy that allows this program, and says
//!
//! ```text
//! printed TEXT       each chunk that it prints, once it has ended
//! outcome JSON       result, error, exit code, and how many commands there were
//! ```
//!
//! `worker-guard bomb` starts itself again and again, each in a session of its own, and so does each of these.

use std::process::{Command, ExitCode};

use client::worker::ClaimedRun;
use worker::Context;
use worker::command::{AllowList, CommandPolicy, Commands};

fn main() -> ExitCode {
    process::run_role_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bomb"] => explode(),
        ["carry", allow, run] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(carry(allow, run));
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

fn explode() -> ! {
    let _ = rustix::process::setsid();
    let mut children = Vec::new();
    loop {
        // Where a limit keeps it from starting more, it tries again until somebody ends it.
        children.extend(Command::new("/proc/self/exe").arg("bomb").spawn());
    }
}

async fn carry(allow: &str, run: &str) {
    let run: ClaimedRun = serde_json::from_str(run).expect("a run");
    let allow = AllowList::listed(vec![allow.into()]).expect("it is there");
    let commands = Commands::new(CommandPolicy { allow, ..CommandPolicy::default() }, None);
    let context = Context::detached(run);
    println!("isolation {}", commands.probe().await.expect("something is permitted").word());
    let outcome = commands.carry_out(context.clone()).await;
    for chunk in context.printed() {
        println!(
            "printed {}",
            String::from_utf8_lossy(&chunk.bytes().expect("it has bytes")).trim()
        );
    }
    let counts = commands.counts();
    println!("outcome {:?} {:?} weak {}", outcome.result, outcome.error, counts.weak);
}
