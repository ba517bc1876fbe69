//! What the tests share: trees that can be found again, and supervisors that can be killed.
//!
//! How soon an instant may be depends on the machine: on a busy one it may be over before the program has begun, or before
//! the test has done what it had to do before. Then it is tried again with twice the time.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use process::{Deadline, Isolation, Launcher, Program, Started, Wanted, since_boot};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;

pub(crate) const SUPERVISOR: &str = env!("CARGO_BIN_EXE_process-supervisor");

/// `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// What every tree has in its environment, with a value of its own.
const VARIABLE: &str = "TEST_TREE";

/// The isolations that this user may have.
pub(crate) fn isolations() -> Vec<Isolation> {
    if rig::is_root() {
        return Isolation::LADDER.to_vec();
    }
    vec![Isolation::UserNamespace, Isolation::Group]
}

/// Starts programs with this isolation, through the small guard; supervisors guard their programs themselves.
pub(crate) fn launcher(isolation: Isolation) -> Launcher {
    let guard = Path::new(env!("CARGO_BIN_EXE_watchbell-guard"));
    Launcher::through(guard, Wanted::Exactly(isolation))
}

/// Starts a program with this isolation.
pub(crate) async fn start(isolation: Isolation, program: &Program) -> Started {
    let started = launcher(isolation).start(program).await;
    started.unwrap_or_else(|why| panic!("{isolation}: {why}"))
}

/// Long enough for a start.
const SOON: Duration = Duration::from_millis(500);

/// Long enough for anything.
pub(crate) const SOON_MAX: Duration = Duration::from_secs(64);

/// What an attempt says whose time was too short.
pub(crate) const TOO_SOON: ControlFlow<()> = ControlFlow::Continue(());

/// What an attempt says that had time enough.
pub(crate) const DONE: ControlFlow<()> = ControlFlow::Break(());

/// Tries each isolation, with more time again and again as long as an instant came too soon.
pub(crate) async fn each_isolation(attempt: impl AsyncFn(Isolation, Duration) -> ControlFlow<()>) {
    for isolation in isolations() {
        let mut soon = SOON;
        while attempt(isolation, soon).await.is_continue() {
            soon *= 2;
            assert!(soon <= SOON_MAX, "{isolation}: no time is enough");
        }
    }
}

pub(crate) async fn until_after(instant: Duration) {
    let is_over = async || (since_boot() > instant).then_some(());
    rig::until("an instant is over", SOON_MAX, is_over).await;
}

/// What tells a supervisor the deadline of its tree.
pub(crate) fn deadline_variable(deadline: Deadline) -> String {
    let Deadline { stop_at, kill_at } = deadline;
    format!("TEST_DEADLINE={},{}", stop_at.as_nanos(), kill_at.as_nanos())
}

/// A shell that runs a script, with the usual commands.
pub(crate) fn sh(script: &str) -> Program {
    Program::new("/bin/sh")
        .arguments(["-c", script])
        .variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
}

/// Names one tree of all.
#[derive(Debug, Clone)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{number}", std::process::id()))
    }

    /// The program with the mark in it.
    pub(crate) fn on(&self, program: Program) -> Program {
        program.variable(VARIABLE, &self.0)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The processes that have it, those that are dead and not reaped aside.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let entry = format!("{VARIABLE}={}", self.0);
        pids()
            .filter(|pid| {
                let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
            })
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// Waits until the tree has so many processes.
    pub(crate) async fn grown_to(&self, len: usize) {
        rig::until("a tree grows", rig::PATIENCE, async || {
            (self.members().len() >= len).then_some(())
        })
        .await;
    }

    /// Waits until nothing of the tree is left, and tells how long that took: a tenth of a second at most, on a machine that does
    /// nothing else.
    #[expect(clippy::disallowed_methods, reason = "how long real processes take is the question")]
    pub(crate) fn gone(&self) -> Duration {
        let begun = Instant::now();
        while !self.members().is_empty() {
            assert!(begun.elapsed() < rig::PATIENCE, "still there: {:?}", self.members());
        }
        begun.elapsed()
    }

    #[track_caller]
    pub(crate) fn is_gone(&self) {
        let left = self.members();
        assert!(left.is_empty(), "{left:?} of the tree are left");
    }
}

/// Everything that has an id here.
pub(crate) fn pids() -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir("/proc").expect("/proc is mounted");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The state of a process, as one letter; none if there is no such process.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Stops processes by a signal, one after the other, each for certain or dead.
pub(crate) async fn stop(pids: impl IntoIterator<Item = Pid>) {
    for pid in pids {
        let _ = kill_process(pid, Signal::STOP);
        rig::until("it is stopped", rig::PATIENCE, async || {
            matches!(state(pid), None | Some('T' | 'Z')).then_some(())
        })
        .await;
    }
}

pub(crate) fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("it is there, and ours");
}

/// A supervisor in a process of its own. Killed when dropped.
pub(crate) struct Supervisor {
    child: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) mark: Mark,
    _copied: Option<tempfile::TempDir>,
}

/// The guards of a supervisor's tree.
pub(crate) struct TheirGuards {
    pub(crate) isolation: Isolation,
    pub(crate) launch: Pid,
    pub(crate) shim: Pid,
}

/// Whom a supervisor runs as.
#[derive(Debug, Clone, Copy)]
pub(crate) enum As {
    Me,
    Nobody,
    /// Somebody whom nothing is permitted: root in a user namespace of `nobody`, which may have no PID namespaces.
    Confined,
}

impl Supervisor {
    /// Starts one that runs a script, with the isolation of this word.
    pub(crate) fn start(who: As, isolation: &str, script: &str) -> Self {
        Self::start_through(&[], who, isolation, script)
    }

    /// Starts one by another command.
    pub(crate) fn start_through(through: &[&str], who: As, isolation: &str, script: &str) -> Self {
        let mark = Mark::new();
        let mut words: Vec<&str> = through.to_vec();
        let (id, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        let nobody = ["setpriv", &id, &group, "--clear-groups"];
        let forbid = "echo 0 >/proc/sys/user/max_pid_namespaces && exec \"$@\"";
        let confined = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"];
        let (copied, copy) = match who {
            As::Me => (None, SUPERVISOR.to_owned()),
            As::Nobody | As::Confined => {
                let (dir, copy) = readable_by_all();
                (Some(dir), copy)
            }
        };
        match who {
            As::Me => {}
            As::Nobody => words.extend(nobody),
            As::Confined => words.extend(nobody.into_iter().chain(confined)),
        }
        words.push(&copy);
        words.extend([isolation, mark.text(), "/bin/sh", "-c", script]);
        let mut command = tokio::process::Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|why| panic!("{}: {why}", words[0]));
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines, mark, _copied: copied }
    }

    /// The next line that it says.
    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(rig::PATIENCE, self.lines.next_line()).await;
        line.expect("it says something in time")
            .expect("it can be read")
            .expect("it has more to say")
    }

    /// Waits until its program was started.
    pub(crate) async fn started(&mut self) -> TheirGuards {
        let line = self.line().await;
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("started"), "{line}");
        let isolation = words.next().and_then(Isolation::of_word).expect("an isolation");
        let mut id = || Pid::from_raw(words.next()?.parse().ok()?);
        let (launch, shim) = (id().expect("its launch"), id().expect("its shim"));
        TheirGuards { isolation, launch, shim }
    }

    pub(crate) fn id(&self) -> Pid {
        let id = self.child.id().expect("it was not reaped");
        Pid::from_raw(i32::try_from(id).expect("an id")).expect("not 0")
    }

    /// How it ended.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let ended = tokio::time::timeout(rig::PATIENCE, self.child.wait()).await;
        ended.expect("it ends in time").expect("it is ours").code()
    }
}

/// The supervisor's binary where everybody may read it, which is not so below everybody's home.
fn readable_by_all() -> (tempfile::TempDir, String) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), all).expect("it is ours");
    let copy = dir.path().join("supervisor");
    // By another process: if this one had it open for writing, so would children that other tests start meanwhile.
    let copied = Command::new("cp").arg(SUPERVISOR).arg(&copy).status();
    assert!(copied.expect("cp is there").success());
    let copy = copy.to_str().expect("a plain path").to_owned();
    (dir, copy)
}

/// A process of the test itself, killed when dropped: for whatever must outlive a tree.
pub(crate) struct Bystander(pub(crate) Child);

impl Bystander {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("it can be started"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
