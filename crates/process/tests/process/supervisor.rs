//! A supervisor that tests kill, stop and watch.
//!
//! `process-supervisor ISOLATION MARK PROGRAM ARGUMENT…` starts the program with the variable `TEST_TREE=MARK`, passes on
//! what it prints, and says:
//!
//! ```text
//! started ISOLATION LAUNCH SHIM     the ids of its guards
//! refused SENTENCE                  then it ends with 1
//! ended END CAUSE                   then it ends with 0
//! ```
//!
//! `process-supervisor interrupts` says `interrupted` as often as it is, until SIGTERM. `process-supervisor bomb` starts itself again and again, each in a session of its own, and so does each of these.
//!
//! ISOLATION is `auto` or one of our words, and may have `+limit` behind it: five processes. The variable `TEST_LOCK` names a
//! file that is locked, and whose lock its tree holds; `TEST_UNTIL_MS`, after how long the tree ends unless it is confirmed,
//! which nobody does. It is also the binary through which all tests start their trees: like every
//! binary that starts programs, it asks for its role first.

use std::io::Write;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use process::{
    Deadline, Isolation, Launcher, Limits, Output, Program, Started, Wanted, run_role_if_asked,
};

fn main() -> ExitCode {
    run_role_if_asked();
    match std::env::args().nth(1).as_deref() {
        Some("bomb") => explode(),
        Some("interrupts") => return tell_interrupts(),
        _ => {}
    }
    process::raise_file_limit().expect("it may have what is permitted");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(supervise())
}

fn tell_interrupts() -> ExitCode {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().expect("signals can be blocked");
    say("hears");
    while signals.wait().expect("there are signals to wait for") == Signal::SIGINT {
        say("interrupted");
    }
    ExitCode::SUCCESS
}

fn explode() -> ! {
    let _ = rustix::process::setsid();
    let mut children = Vec::new();
    loop {
        // Where a limit keeps it from starting more, it tries again until somebody ends it.
        children.extend(Command::new("/proc/self/exe").arg("bomb").spawn());
    }
}

async fn supervise() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("ISOLATION MARK PROGRAM ARGUMENT…");
    let word = next();
    let (word, limits) = match word.strip_suffix("+limit") {
        Some(word) => (word, Limits { processes_max: Some(5), ..Limits::default() }),
        None => (word.as_str(), Limits::default()),
    };
    let wanted = match word {
        "auto" => Wanted::Auto,
        word => Wanted::Exactly(Isolation::of_word(word).expect("one of our words")),
    };
    let mark = next();
    let program = Program::new(next())
        .arguments(arguments)
        .limits(limits)
        .variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .variable("TEST_TREE", mark);
    let program =
        match std::env::var_os("TEST_UNTIL_MS").and_then(|text| text.to_str()?.parse().ok()) {
            Some(millis) => {
                let until = process::since_boot() + Duration::from_millis(millis);
                program.deadline(Deadline::sudden(until))
            }
            None => program,
        };
    let mut launcher = Launcher::new(wanted);
    if let Some(path) = std::env::var_os("TEST_LOCK") {
        let file = std::fs::File::open(path).expect("it is there");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("nobody else has it");
        launcher = launcher.holding(Arc::new(file.into()));
    }
    let started = launcher.start(&program).await;
    let Started { mut tree, mut stdout, mut stderr, .. } = match started {
        Ok(started) => started,
        Err(why) => {
            say(&format!("refused {why}"));
            return ExitCode::FAILURE;
        }
    };
    let guards = tree.guards();
    let ids = [guards.launch, guards.shim].map(Option::unwrap_or_default);
    say(&format!("started {} {} {}", tree.isolation().word(), ids[0], ids[1]));
    let (outcome, (), ()) = tokio::join!(tree.ended(), pass_on(&mut stdout), pass_on(&mut stderr));
    let outcome = outcome.expect("nobody killed both guards");
    say(&format!("ended {:?} {:?}", outcome.end, outcome.cause));
    ExitCode::SUCCESS
}

async fn pass_on(output: &mut Output) {
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer).await.expect("a pipe can be read") {
            0 => return,
            len => std::io::stdout().write_all(&buffer[..len]).expect("somebody listens"),
        }
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("somebody listens");
}
