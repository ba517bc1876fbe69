//! `watchbell worker`.

use crate::args::queue::WorkerVerb;
use crate::args::trigger::ServerArgs;
use crate::exit::Ending;
use crate::trigger::print_list;
use crate::value::escape;

pub(crate) async fn worker(verb: WorkerVerb) -> Result<(), Ending> {
    match verb {
        WorkerVerb::List(typed) => list(&typed).await,
    }
}

async fn list(typed: &ServerArgs) -> Result<(), Ending> {
    let page = typed.client()?.workers().await?;
    let none = "There are no workers: one is known when it has claimed from a queue.";
    let header = ["name", "state", "runs", "heard", "queues"];
    print_list(typed.output, &page, Some(none), header, |worker| {
        let heard = worker.heard.map_or_else(|| "-".to_owned(), |heard| heard.to_string());
        let (state, runs) = (worker.state.as_str().to_owned(), worker.running.to_string());
        [escape(&worker.name), state, runs, heard, escape(&worker.queues.join(","))]
    })
}
