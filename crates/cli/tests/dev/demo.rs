//! `watchbell demo tasks`, with real processes: by its timetable, with others who kill, and killed itself.
//!
//! Everything that a demonstration starts names its directory, which is below one that the test made: so they are all found in
//! `/proc`, and told from those of other tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use store::clock::Stopwatch;
use tempfile::TempDir;

use super::process::WATCHBELL;

/// How long anything of it takes at most.
const LENGTH_MAX: Duration = Duration::from_secs(240);

/// A program is gone a tenth of a second after its worker. On a machine that is busy it takes longer until everybody had a turn.
const OUTLIVES_MAX: Duration = Duration::from_secs(5);

/// A demonstration, and the lines that it tells.
struct Demo {
    child: Child,
    place: TempDir,
    lines: Receiver<String>,
    told: Vec<String>,
    stdout: std::thread::JoinHandle<String>,
}

/// A process of a demonstration.
#[derive(Debug, Clone)]
struct Found {
    pid: u32,
    parent: u32,
    words: Vec<String>,
}

impl Found {
    fn says(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.words.iter().any(|said| said == word))
    }

    fn is_task(&self) -> bool {
        self.says(&["demo", "task"])
    }
}

/// All processes that there are.
fn processes() -> BTreeMap<u32, Found> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // One that has ended and was not reaped has no words.
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).split('\0').map(str::to_owned).collect();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, Found { pid, parent, words }))
    });
    all.collect()
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut child = Command::new(WATCHBELL)
            .args(["demo", "tasks", "--output", "json"])
            .args(args)
            .env("TMPDIR", place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, place, lines, told: Vec::new(), stdout }
    }

    /// All that it started, by their words.
    fn cast(&self) -> Vec<Found> {
        let mark = self.place.path().to_str().unwrap();
        let is_ours = |found: &Found| found.words.iter().any(|word| word.contains(mark));
        processes().into_values().filter(is_ours).collect()
    }

    /// The process that was started by all of these words.
    async fn actor(&self, words: &[&str]) -> u32 {
        until(&format!("{words:?} is up"), PATIENCE, || async {
            self.cast().into_iter().find(|found| found.says(words)).map(|found| found.pid)
        })
        .await
    }

    /// Waits until it tells this.
    async fn tells(&mut self, words: &str) {
        let waited = Stopwatch::start();
        while !self.told.iter().any(|line| line.contains(words)) {
            assert!(waited.elapsed() < LENGTH_MAX, "{words:?} was not told: {:#?}", self.told);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.told.extend(self.lines.try_iter());
        }
    }

    /// Watches until it has ended that no program outlives its worker. Gives its exit code and what it said at the end.
    async fn watch(mut self) -> (Option<i32>, String) {
        let begun = Stopwatch::start();
        // Each program, with its worker, and since when that is gone.
        let mut tasks: BTreeMap<u32, (u32, Option<Stopwatch>)> = BTreeMap::new();
        let status = loop {
            let all = processes();
            let mark = self.place.path().to_str().unwrap();
            let is_ours = |found: &&Found| found.words.iter().any(|word| word.contains(mark));
            let here: Vec<&Found> = all.values().filter(is_ours).collect();
            tasks.retain(|pid, _| here.iter().any(|found| found.pid == *pid));
            for task in here.iter().filter(|found| found.is_task()) {
                if let Some(worker) = worker_of(task, &all) {
                    tasks.entry(task.pid).or_insert((worker, None));
                }
            }
            for (task, (worker, orphaned)) in &mut tasks {
                if !here.iter().any(|found| found.pid == *worker) {
                    let since = orphaned.get_or_insert_with(Stopwatch::start);
                    assert!(since.elapsed() < OUTLIVES_MAX, "{task} outlives its worker {worker}");
                }
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < LENGTH_MAX, "it does not end: {:#?}", self.told);
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.told.extend(self.lines.try_iter());
        };
        self.is_gone().await;
        let said = std::mem::replace(&mut self.stdout, std::thread::spawn(String::new));
        (status.code(), said.join().unwrap())
    }

    /// Waits until nothing that it started is left.
    async fn is_gone(&self) {
        until("all of its processes are gone", PATIENCE, || async {
            self.cast().is_empty().then_some(())
        })
        .await;
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    async fn end(&mut self) -> Option<i32> {
        let status = until("it ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        });
        status.await.code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("it told:\n{}", self.told.join("\n"));
        }
    }
}

/// The worker that a program descends from, if it is there.
fn worker_of(task: &Found, all: &BTreeMap<u32, Found>) -> Option<u32> {
    let mut at = all.get(&task.parent)?;
    while !at.says(&["worker", "--queue"]) {
        at = all.get(&at.parent)?;
    }
    Some(at.pid)
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// All succeeded, and each completion is the one of the program that came to its end in that attempt.
#[track_caller]
fn check_all_well(told: &Value, tasks: usize) {
    assert_eq!(told["findings"], Value::Array(Vec::new()), "{told:#}");
    assert_eq!(told["succeeded"], tasks, "{told:#}");
    assert_eq!(told["all_is_well"], true);
    let runs = told["runs"].as_array().unwrap();
    assert_eq!(runs.len(), tasks);
    for run in runs {
        let finished =
            |span: &&Value| span["finished"] == true && span["attempt"] == run["attempts"];
        let finished: Vec<_> =
            run["carried_out"].as_array().unwrap().iter().filter(finished).collect();
        assert_eq!((finished.len(), &run["state"]), (1, &Value::from("succeeded")), "{run:#}");
        assert_eq!(finished[0]["worker"], run["worker"], "{run:#}");
    }
}

/// A directory in which nothing is left.
fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_timetable_ten_times_faster_ends_with_100_of_100() {
    let _machine = machine::waits().await;
    let demo = Demo::start(&["--speed", "10"]);
    let (code, said) = demo.watch().await;
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    check_all_well(&told, 100);
    assert_eq!(code, Some(0));
    assert!(told["cut_short"].as_u64().unwrap() > 0, "nobody had work when they were killed");
    // In the order of actors; nothing comes sooner than it was published.
    let published = [
        ("server", 10.2, 14.3),
        ("worker-1", 5.0, 7.6),
        ("worker-2", 16.9, 21.6),
        ("worker-3", 18.7, 24.5),
    ];
    let absences = told["timetable"].as_array().unwrap();
    assert_eq!(absences.len(), published.len(), "{absences:#?}");
    for (absence, (who, down, up)) in absences.iter().zip(published) {
        assert_eq!((&absence["who"], &absence["planned"]), (&who.into(), &true.into()));
        let at = |field: &str| absence[field].as_f64();
        assert!(at("down_s").unwrap() >= down, "{absence}");
        // The last one may be spared the way back, if all is done by then.
        assert!(at("up_s").is_none_or(|at| at >= up), "{absence}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_kills_the_server_and_a_worker_by_hand_sees_all_runs_succeed() {
    let _machine = machine::waits().await;
    let mut demo = Demo::start(&["--speed", "10", "--no-chaos", "--tasks", "40"]);
    demo.tells("12 of 40 runs have ended").await;
    let worker = demo.actor(&["worker", "--queue", "worker-2"]).await;
    let server = demo.actor(&["dev", "--data"]).await;
    kill(worker);
    kill(server);
    demo.tells("worker-2 is started again").await;
    demo.tells("the server answers again").await;
    let worker = demo.actor(&["worker", "--queue", "worker-3"]).await;
    kill(worker);
    let (code, said) = demo.watch().await;
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    check_all_well(&told, 40);
    assert_eq!(code, Some(0));
    let who: Vec<_> = told["timetable"].as_array().unwrap().iter().map(|it| &it["who"]).collect();
    assert_eq!(who, ["server", "worker-2", "worker-3"]);
    assert!(told["timetable"].as_array().unwrap().iter().all(|it| it["planned"] == false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_its_processes_and_removes_its_directory() {
    let _machine = machine::waits().await;
    let mut demo = Demo::start(&["--tasks", "10"]);
    demo.actor(&["demo", "task"]).await;
    demo.signal(Signal::INT);
    assert_eq!(demo.end().await, Some(1));
    demo.tells("the demonstration was interrupted").await;
    demo.is_gone().await;
    assert!(is_empty(demo.place.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_it_started_outlives_it_when_it_is_killed() {
    let _machine = machine::waits().await;
    let mut demo = Demo::start(&["--tasks", "10"]);
    demo.actor(&["demo", "task"]).await;
    demo.signal(Signal::KILL);
    demo.end().await;
    demo.is_gone().await;
}
