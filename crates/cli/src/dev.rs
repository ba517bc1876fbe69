//! `watchbell dev`: a whole Watchbell in one process, for one machine. Its worker is one like any other: it talks to the server
//! over its port, and its commands are trees that end with it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use client::Client;
use server::api::ApiSecurity;
use server::handle::NodeHandle;
use server::node::{HistoryPace, NodeConfig};
use server::peers::ROLES;
use server::webhook::Cidr;
use store::{StoreUrl, open_or_create};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use worker::command::AllowList;

use crate::args::DevArgs;
use crate::exit::{Ending, say};
use crate::serve::{ServePlan, Stops, TTL, serve};
use crate::worker::plan::WorkPlan;
use crate::worker::work::{ReadyWorker, allowed, named_queues};

/// Runs until it is told to stop by SIGTERM or SIGINT.
pub(crate) async fn dev(typed: &DevArgs) -> Result<(), Ending> {
    if !typed.listen.ip().is_loopback() {
        return Err(Ending::wrong_input(format!(
            "--listen: {} is not a loopback address: dev asks nobody for a key, so nobody else may reach it; \
             use 127.0.0.1:{}, or watchbell server, which asks for keys",
            typed.listen.ip(),
            typed.listen.port()
        )));
    }
    let worker = WorkPlan::of_dev(typed)?;
    let url = StoreUrl::parse(&format!("file:{}", typed.data.display()))?;
    let plan = ServePlan {
        listen: typed.listen,
        webhook_ca: typed.webhook_ca.as_deref(),
        store: open_or_create(&url),
        config: |at| config(typed, at),
        security: ApiSecurity::open(),
    };
    let working = Mutex::new(JoinSet::new());
    let begin = async |at, _: &NodeHandle| {
        let mut working = working.lock().await;
        // A node that follows another one finds the worker there.
        if let Some(plan) = worker.as_ref().filter(|_| working.is_empty()) {
            let plan = plan.clone().at(Client::new(&format!("http://{at}"))?);
            let ready = ReadyWorker::of(&plan).await?;
            working.spawn(work(ready, Stops::new()?));
        }
        tell(at, typed, worker.as_ref());
        Ok(())
    };
    // It has the server to report to until it has ended.
    serve(plan, begin, async || while working.lock().await.join_next().await.is_some() {}).await
}

/// The server goes on without its worker.
async fn work(ready: ReadyWorker, stops: Stops) {
    if let Err(ending) = ready.work(stops).await {
        ending.tell();
    }
}

fn config(typed: &DevArgs, at: SocketAddr) -> NodeConfig {
    let loopback = ["127.0.0.0/8", "::1/128"].into_iter();
    let loopback = loopback.map(|range| range.parse::<Cidr>().expect("written here, and right"));
    NodeConfig {
        id: "dev".to_owned(),
        url: Some(format!("http://{at}")),
        roles: ROLES.map(str::to_owned).to_vec(),
        ttl: TTL,
        webhook_allow: loopback.chain(typed.webhook_allow.iter().copied()).collect(),
        webhook_ca: typed.webhook_ca.clone(),
        notify: None,
        history: HistoryPace::default(),
        shards: None,
    }
}

/// Says where it is, and the lines to try next. Who has closed stdout, as `| head -1` does, has had
/// enough of it; the server goes on.
fn tell(at: SocketAddr, typed: &DevArgs, worker: Option<&WorkPlan>) {
    let mut out = io::stdout().lock();
    let text = welcome(at, &typed.data) + &welcome_of_worker(at, typed, worker);
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(why) = told {
        say(&format!("listening on http://{at}, which could not be said on stdout: {why}"));
    }
}

/// The words by which this program was started.
fn program() -> String {
    let program = std::env::args().next().unwrap_or_else(|| "watchbell".to_owned());
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+~".contains(char);
    if program.chars().all(is_plain) { program } else { format!("'{program}'") }
}

/// What others have to say to reach this one.
fn server(at: SocketAddr) -> String {
    if at.port() == 7400 { String::new() } else { format!(" --server http://{at}") }
}

fn welcome(at: SocketAddr, data: &Path) -> String {
    let (program, server) = (program(), server(at));
    format!(
        "Watchbell listens on http://{at} and keeps its data in {}.
Try this in a second terminal; it rings at its own door every five seconds:

  {program} trigger create --name hello --cron '*/5 * * * * *' --method GET --webhook http://{at}/livez{server}
  {program} trigger explain hello{server}
  {program} run list{server}

",
        data.display()
    )
}

fn welcome_of_worker(at: SocketAddr, typed: &DevArgs, worker: Option<&WorkPlan>) -> String {
    let Some(worker) = worker else {
        return "No worker runs, since no program is allowed: see --allow.\n\n".to_owned();
    };
    let (program, server) = (program(), server(at));
    let queues = named_queues(typed.worker_queue.iter().map(String::as_str));
    let example = match &worker.policy.allow {
        AllowList::Listed(paths) => paths.iter().find(|path| path.is_file()),
        AllowList::Any => None,
    };
    let example = example.map_or_else(|| "/bin/echo".to_owned(), |path| path.display().to_string());
    let queue = match typed.worker_queue.first().map(String::as_str) {
        Some("default") | None => String::new(),
        Some(queue) => format!(" --queue {queue}"),
    };
    format!(
        "Its worker runs {} for {queues}:

  {program} run submit{queue}{server} -- {example} hello

",
        allowed(&worker.policy.allow)
    )
}
