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
//! As a program, it does what tests need: `process-supervisor interrupts` says `interrupted` as often as it is, until
//! SIGTERM. `process-supervisor signals` says the number of each signal that it gets, and ends with 7 after SIGTERM.
//! `process-supervisor clock FILE` writes the time since boot there, again and again. `process-supervisor bomb` starts itself
//! again and again, each in a session of its own, and so does each of these.
//!
//! ISOLATION is `auto` or one of our words, and may have `+limit` behind it: five processes. The variable `TEST_LOCK` names a
//! file that is locked, and whose lock its tree holds, and nobody else; `TEST_DEADLINE`, until when the tree may go on unless
//! it is confirmed, which nobody does: two numbers of nanoseconds. With `TEST_STREAMS=own` the program gets the supervisor's
//! own output instead of pipes. It is also the binary through which all tests start their trees: like every
//! binary that starts programs, it asks for its role first.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use process::{
    Deadline, Isolation, Launcher, Limits, Output, Program, StartError, Started, Streams, Tree,
    Wanted, run_role_if_asked,
};

fn main() -> ExitCode {
    run_role_if_asked();
    match std::env::args().nth(1).as_deref() {
        Some("bomb") => explode(),
        Some("interrupts") => return tell_interrupts(),
        Some("signals") => return tell_signals(),
        Some("clock") => tell_time(),
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

fn tell_signals() -> ExitCode {
    SigSet::all().thread_block().expect("signals can be blocked");
    say("hears");
    loop {
        let signal = SigSet::all().wait().expect("there are signals to wait for");
        say(&(signal as i32).to_string());
        if signal == Signal::SIGTERM {
            return ExitCode::from(7);
        }
    }
}

fn tell_time() -> ! {
    let path = std::env::args_os().nth(2).expect("clock FILE");
    let file = std::fs::File::create(path).expect("it can be written");
    loop {
        let now = process::since_boot().as_nanos().to_string();
        file.write_all_at(now.as_bytes(), 0).expect("there is room for a number");
    }
}

fn explode() -> ! {
    let _ = rustix::process::setsid();
    SigSet::all().thread_block().expect("signals can be blocked");
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
    let program = match deadline() {
        Some(deadline) => program.deadline(deadline),
        None => program,
    };
    let mut launcher = Launcher::new(wanted);
    if let Some(path) = std::env::var_os("TEST_LOCK") {
        let file = std::fs::File::open(path).expect("it is there");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("nobody else has it");
        launcher = launcher.holding(Arc::new(file.into()));
    }
    let (mut tree, outputs) = match start(&launcher, &program).await {
        Ok(started) => started,
        Err(why) => {
            say(&format!("refused {why}"));
            return ExitCode::FAILURE;
        }
    };
    // Its copy of the lock: the tree alone has it from here on.
    drop(launcher);
    let guards = tree.guards();
    let ids = [guards.launch, guards.shim].map(Option::unwrap_or_default);
    say(&format!("started {} {} {}", tree.isolation().word(), ids[0], ids[1]));
    let outcome = match outputs {
        None => tree.ended().await,
        Some([mut stdout, mut stderr]) => {
            tokio::join!(tree.ended(), pass_on(&mut stdout), pass_on(&mut stderr)).0
        }
    };
    let outcome = outcome.expect("nobody killed both guards");
    say(&format!("ended {:?} {:?}", outcome.end, outcome.cause));
    ExitCode::SUCCESS
}

/// With what is to be passed on of what it prints, if that does not pass by itself.
async fn start(
    launcher: &Launcher,
    program: &Program,
) -> Result<(Tree, Option<[Output; 2]>), StartError> {
    if std::env::var_os("TEST_STREAMS").is_some() {
        let streams = Streams::own().expect("there are descriptors");
        return Ok((launcher.start_on(&streams, program).await?, None));
    }
    let Started { tree, stdout, stderr, .. } = launcher.start(program).await?;
    Ok((tree, Some([stdout, stderr])))
}

fn deadline() -> Option<Deadline> {
    let typed = std::env::var_os("TEST_DEADLINE")?;
    let (stop_at, kill_at) = typed.to_str()?.split_once(',')?;
    let instant = |nanos: &str| Duration::from_nanos(nanos.parse().expect("a number"));
    Some(Deadline { stop_at: instant(stop_at), kill_at: instant(kill_at) })
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
