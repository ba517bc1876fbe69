//! Workers that are killed at the worst moment, as real processes: this very program plays their role.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rig::{FaultProxy, Manner, machine};
use rustix::process::{Pid, Signal, getpid, kill_process};
use worker::Spool;

use super::super::process::{Dev, place};
use super::*;

/// What the role is told, in a file of its working directory.
const ROLE: &str = "role.json";
/// A line for each run that was carried out.
const CARRIED_OUT: &str = "carried-out";
/// Lets handlers pass that wait.
const GO: &str = "go";
/// Spools are below this.
const SPOOL: &str = "spool";

/// A worker in a process of its own.
struct WorkerProcess {
    child: Child,
    dir: PathBuf,
}

/// What becomes of a run in it.
#[derive(Debug, Clone, Copy)]
enum Manners {
    /// Its handler kills the process when it has done its work.
    DiesWhenDone,
    /// Its handler waits until it is let.
    Waits,
    /// Its handler does its work.
    Plain,
}

impl WorkerProcess {
    fn start(dir: &Path, url: &str, manners: Manners) -> Self {
        let role = Command::new(std::env::current_exe().unwrap());
        Self::start_by(role, dir, url, manners)
    }

    /// Starts one by a command that becomes it.
    fn start_by(mut command: Command, dir: &Path, url: &str, manners: Manners) -> Self {
        let role = json!({"url": url, "manners": format!("{manners:?}")});
        fs::write(dir.join(ROLE), role.to_string()).unwrap();
        let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        command.args(["--exact", "dev::worker_library::crash::role", "--ignored", "--nocapture"]);
        command.current_dir(dir).stdout(Stdio::null()).stderr(log);
        Self { child: command.spawn().unwrap(), dir: dir.to_owned() }
    }

    /// Ends it as nothing else does.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has died by its own hand.
    async fn dies(mut self) {
        until("it dies", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await;
    }

    async fn drain(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = until("it ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await;
        assert!(status.success(), "{}", read(&self.dir, "log"));
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker said:\n{}", read(&self.dir, "log"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap_or_default()
}

/// Waits until a file of the directory says this.
async fn says(dir: &Path, name: &str, words: &str) {
    until(&format!("{name} says {words:?}"), PATIENCE, || async {
        read(dir, name).contains(words).then_some(())
    })
    .await;
}

fn note(line: &str) {
    let mut file = fs::File::options().create(true).append(true).open(CARRIED_OUT).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// The other process. Alone it does nothing.
#[ignore = "the role of a worker, for other tests"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role() {
    let Ok(role) = fs::read(ROLE) else { return };
    let role: serde_json::Value = serde_json::from_slice(&role).unwrap();
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let server = Client::new(role["url"].as_str().unwrap()).unwrap();
    let manners = role["manners"].as_str().unwrap().to_owned();
    let work = move |context: Context, _: serde_json::Value| {
        let manners = manners.clone();
        async move {
            note(&format!("{} {}\n", context.run().id, context.run().attempt));
            match manners.as_str() {
                "DiesWhenDone" => kill_process(getpid(), Signal::KILL)?,
                "Waits" => {
                    until("it is let", PATIENCE, || async { Path::new(GO).exists().then_some(()) })
                        .await;
                }
                _ => {}
            }
            Ok(())
        }
    };
    let spool = Spool::open(SPOOL, "web-1").await.unwrap();
    let worker = Worker::new("web-1", ["mail"]).servers([server]).handler("work", work);
    worker.spool(spool).build().unwrap().run_until_signal().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_before_its_result_is_spooled_says_that_the_run_died() {
    let _machine = machine::waits().await;
    killed_between_finishing_and_spooling(Server::Stays).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_server_and_worker_are_killed_before_its_result_is_spooled_has_died_once() {
    let _machine = machine::waits().await;
    killed_between_finishing_and_spooling(Server::IsKilled).await;
}

async fn killed_between_finishing_and_spooling(server: Server) {
    let (dir, data) = place();
    let mut dev = Dev::start(&data);
    let id = submit(&dev.client, "work", 1).await.remove(0);
    WorkerProcess::start(dir.path(), dev.client.url(), Manners::DiesWhenDone).dies().await;
    if server != Server::Stays {
        dev.kill();
        dev = Dev::start(&data);
    }
    let worker = WorkerProcess::start(dir.path(), dev.client.url(), Manners::Plain);
    let run = is_in(&dev.client, &id, RunState::Succeeded).await;
    assert_eq!(run.attempt, 2);
    assert_eq!(read(dir.path(), CARRIED_OUT), format!("{id} 1\n{id} 2\n"));
    worker.drain().await;
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_kills_whoever_takes_it_is_poison_after_three_workers() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let id = submit(&dev.client, "work", 1).await.remove(0);
    for _ in 0..3 {
        WorkerProcess::start(dir.path(), dev.client.url(), Manners::DiesWhenDone).dies().await;
    }
    let worker = WorkerProcess::start(dir.path(), dev.client.url(), Manners::Plain);
    let run = is_in(&dev.client, &id, RunState::Dead).await;
    assert!(run.queued.unwrap().poison);
    assert_eq!(read(dir.path(), CARRIED_OUT).lines().count(), 3);
    worker.drain().await;
    dev.stop().await;
}

/// What becomes of the server meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Stays,
    IsKilled,
    /// It has made the result durable, and nobody hears of that.
    IsKilledBeforeItAnswers,
}

/// A result is in the spool of a worker that is killed before it hears of an acknowledgement: its next life reports it.
async fn killed_between_spooling_and_answer(server: Server) {
    let (dir, data) = place();
    let mut dev = Dev::start(&data);
    let proxy = FaultProxy::to(dev.address(), 0).await;
    let id = submit(&dev.client, "work", 1).await.remove(0);
    let worker = WorkerProcess::start(dir.path(), &proxy.url(), Manners::Waits);
    says(dir.path(), CARRIED_OUT, &id).await;
    proxy.set(Manner::LosesAnswers);
    if server == Server::IsKilled {
        dev.kill();
        dev = Dev::start(&data);
    }
    fs::write(dir.path().join(GO), "").unwrap();
    says(dir.path(), "spool/web-1/log", "{\"result\":").await;
    if server != Server::IsKilled {
        // The server has heard it; the worker has not heard that.
        is_in(&dev.client, &id, RunState::Succeeded).await;
    }
    if server == Server::IsKilledBeforeItAnswers {
        dev.kill();
        dev = Dev::start(&data);
    }
    worker.kill();
    proxy.lead_to(dev.address());
    proxy.set(Manner::Faithful);
    let worker = WorkerProcess::start(dir.path(), &proxy.url(), Manners::Plain);
    let run = is_in(&dev.client, &id, RunState::Succeeded).await;
    assert_eq!((run.attempt, run.attempts.len()), (1, 1));
    says(dir.path(), "log", "results of its former lives are reported first").await;
    assert_eq!(read(dir.path(), CARRIED_OUT), format!("{id} 1\n"));
    worker.drain().await;
    let spool = Spool::open(dir.path().join(SPOOL), "web-1").await.unwrap();
    assert_eq!(spool.unreported(), 0);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_was_spooled_is_reported_by_the_next_life_and_counts_once() {
    let _machine = machine::waits().await;
    killed_between_spooling_and_answer(Server::Stays).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_was_spooled_counts_though_server_and_worker_were_killed() {
    let _machine = machine::waits().await;
    killed_between_spooling_and_answer(Server::IsKilled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_counts_once_though_its_server_was_killed_before_it_said_so() {
    let _machine = machine::waits().await;
    killed_between_spooling_and_answer(Server::IsKilledBeforeItAnswers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_disk_is_full_claims_nothing_more_and_goes_on_when_there_is_room() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    fs::create_dir(dir.path().join(SPOOL)).unwrap();
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = "mount -t tmpfs -o size=2m tmpfs spool && exec \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let worker = WorkerProcess::start_by(command, dir.path(), dev.client.url(), Manners::Plain);
    let first = submit(&dev.client, "work", 1).await;
    have_succeeded(&dev.client, &first).await;
    // The directory as the worker sees it: sh has become the worker.
    let root = PathBuf::from(format!("/proc/{}/root", worker.child.id()));
    let filler = root.join(dir.path().strip_prefix("/").unwrap()).join(SPOOL).join("filler");
    let full = fs::write(&filler, vec![0; 4 * 1024 * 1024]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);

    let ids = submit(&dev.client, "work", 200).await;
    says(dir.path(), "log", "the worker claims nothing more").await;
    fs::remove_file(&filler).unwrap();
    have_succeeded(&dev.client, &ids).await;
    says(dir.path(), "log", "the spool can be written again").await;
    let log = read(dir.path(), "log");
    assert_eq!(log.matches("the worker claims nothing more").count(), 1, "{log}");
    assert_eq!(read(dir.path(), CARRIED_OUT).lines().count(), 201, "each was carried out once");
    worker.drain().await;
    dev.stop().await;
}
