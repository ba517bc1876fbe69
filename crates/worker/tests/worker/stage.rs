//! What the tests share: runs, hands to carry them out, and trees that can be found again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::output::OutputStream;
use client::worker::ClaimedRun;
use process::{Isolation, Wanted};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use worker::command::{AllowList, CommandPolicy, Commands};
use worker::{Context, EndReason, Outcome};

pub(crate) const GUARD: &str = env!("CARGO_BIN_EXE_worker-guard");

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(1000);

pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// What every tree has in its environment, with a value of its own.
const VARIABLE: &str = "TEST_TREE";

/// Whether this process may do everything; if not, says which test is not made.
pub(crate) fn is_root() -> bool {
    if !rig::is_root() {
        let test = std::thread::current();
        eprintln!("not tested, as that needs root: {}", test.name().unwrap_or("?"));
    }
    rig::is_root()
}

/// The isolations that this user may have.
pub(crate) fn isolations() -> Vec<Isolation> {
    if rig::is_root() {
        return Isolation::LADDER.to_vec();
    }
    vec![Isolation::UserNamespace, Isolation::Group]
}

/// Everything is allowed, and there is little grace.
pub(crate) fn policy(isolation: Isolation) -> CommandPolicy {
    let (allow, isolation) = (AllowList::Any, Wanted::Exactly(isolation));
    CommandPolicy { allow, isolation, grace: SHORT, ..CommandPolicy::default() }
}

/// Hands that carry out commands by this policy.
pub(crate) fn hands(policy: CommandPolicy) -> Arc<Commands> {
    Arc::new(Commands::through(Path::new(GUARD), policy, None))
}

/// A run of this command.
pub(crate) fn run(command: &Value) -> ClaimedRun {
    run_with(&json!({ "command": command }))
}

/// A run with these fields, beside those that all have.
pub(crate) fn run_with(fields: &Value) -> ClaimedRun {
    let mut run = json!({
        "id": "run_1", "token": 17, "attempt": 2, "queue": "mail", "scheduled": "2027-01-15T09:00:00Z",
    });
    let all = run.as_object_mut().expect("it is one");
    all.extend(fields.as_object().expect("it is one").clone());
    serde_json::from_value(run).expect("a run")
}

/// A shell that reads a script.
pub(crate) fn sh(script: &str) -> Value {
    json!({ "argv": ["/bin/sh", "-c", script] })
}

/// A run that is carried out, in a task of its own.
pub(crate) struct Carried {
    pub(crate) context: Context,
    pub(crate) mark: Mark,
    tasks: JoinSet<Outcome>,
}

impl Carried {
    /// Begins a run of this command, with a mark in its environment.
    pub(crate) fn begin(hands: &Arc<Commands>, mut command: Value) -> Self {
        let mark = Mark::new();
        command["env"][VARIABLE] = json!(mark.0);
        Self::begin_run(hands, run(&command), mark)
    }

    fn begin_run(hands: &Arc<Commands>, run: ClaimedRun, mark: Mark) -> Self {
        let context = Context::detached(run);
        let (hands, of_task) = (Arc::clone(hands), context.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { hands.carry_out(of_task).await });
        Self { context, mark, tasks }
    }

    /// Tells it to end.
    pub(crate) fn tell(&self, reason: EndReason) {
        self.context.tell_to_end(reason);
    }

    /// Waits for what becomes of it; nothing of it is left then.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let ended = tokio::time::timeout(rig::PATIENCE, self.tasks.join_next()).await;
        let outcome = ended.expect("it ends in time").expect("it was begun").expect("no panic");
        self.mark.is_gone();
        outcome
    }

    /// What it has printed to a stream.
    pub(crate) fn printed(&self, stream: OutputStream) -> String {
        let chunks = self.context.printed();
        let of_stream = chunks.iter().filter(|chunk| chunk.stream == stream);
        let bytes = of_stream.flat_map(|chunk| chunk.bytes().expect("it has bytes")).collect();
        String::from_utf8(bytes).expect("text")
    }

    /// Waits until it has printed this to its standard output.
    pub(crate) async fn prints(&self, words: &str) {
        rig::until("it prints", rig::PATIENCE, async || {
            self.printed(OutputStream::Stdout).contains(words).then_some(())
        })
        .await;
    }
}

/// Carries out a command to its end.
pub(crate) async fn carry(hands: &Arc<Commands>, command: Value) -> (Outcome, Carried) {
    let mut carried = Carried::begin(hands, command);
    (carried.outcome().await, carried)
}

/// Carries out a run as it is to its end.
pub(crate) async fn carry_run(hands: &Arc<Commands>, run: ClaimedRun) -> (Outcome, Carried) {
    let mut carried = Carried::begin_run(hands, run, Mark::new());
    (carried.outcome().await, carried)
}

/// Names one tree of all.
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{number}", std::process::id()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// How many processes have it, those that are dead and not reaped aside.
    pub(crate) fn len(&self) -> usize {
        let entry = format!("{VARIABLE}={}", self.0);
        let all = std::fs::read_dir("/proc").expect("/proc is mounted");
        let environments = all.filter_map(|entry| {
            let path: PathBuf = entry.ok()?.path();
            std::fs::read(path.join("environ")).ok()
        });
        let has = |all: &Vec<u8>| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes());
        environments.filter(has).count()
    }

    /// Waits until the tree has so many processes.
    pub(crate) async fn grown_to(&self, len: usize) {
        rig::until("a tree grows", rig::PATIENCE, async || (self.len() >= len).then_some(())).await;
    }

    #[track_caller]
    pub(crate) fn is_gone(&self) {
        assert_eq!(self.len(), 0, "processes of the tree are left");
    }
}
