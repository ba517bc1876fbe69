//! `watchbell scheduler`.

use client::scheduler::{Firing, SchedulerStatus};

use crate::args::run::SchedulerStopArgs;
use crate::args::trigger::ServerArgs;
use crate::exit::Ending;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

pub(crate) async fn status(typed: &ServerArgs) -> Result<(), Ending> {
    let status = typed.client()?.scheduler().await?;
    print(typed.output, &status, || text(&status))
}

pub(crate) async fn confirm_time(typed: &ServerArgs) -> Result<(), Ending> {
    let status = typed.client()?.confirm_time().await?;
    print(typed.output, &status, || text(&status))
}

pub(crate) async fn start(typed: &ServerArgs) -> Result<(), Ending> {
    let status = typed.client()?.start_scheduler().await?;
    print(typed.output, &status, || text(&status))
}

pub(crate) async fn stop(typed: &SchedulerStopArgs) -> Result<(), Ending> {
    typed.consent.ask("Stop firing, for all projects?", "nothing was stopped")?;
    let status = typed.server.client()?.stop_scheduler().await?;
    print(typed.server.output, &status, || text(&status))
}

fn text(status: &SchedulerStatus) -> String {
    let firing = match (status.firing, status.since) {
        (Firing::Going, _) => "going".to_owned(),
        (Firing::Held, Some(since)) => format!("held since {since}"),
        (Firing::Held, None) => "held".to_owned(),
        (Firing::Stopped, Some(since)) => format!("stopped since {since}"),
        (Firing::Stopped, None) => "stopped".to_owned(),
    };
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("firing", firing);
    if let Some(why) = &status.why {
        row("why", escape(why));
        let then = match status.firing {
            Firing::Stopped => "watchbell scheduler start",
            Firing::Going | Firing::Held => {
                "watchbell scheduler confirm-time, if the clock is right"
            }
        };
        row("then", then.to_owned());
    }
    row("ready", if status.ready { "yes" } else { "no" }.to_owned());
    row("clock", status.now.to_string());
    row("shards", status.shards.to_string());
    row("cluster", escape(&status.cluster));
    row("version", format!("{} (tzdata {})", escape(&status.version), escape(&status.tzdata)));
    table::finish(table, 2)
}
