//! `watchbell scheduler`.

use client::scheduler::{Firing, SchedulerStatus, ServerStatus};

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
        (Firing::Suspended, Some(since)) => format!("suspended since {since}"),
        (Firing::Suspended, None) => "suspended".to_owned(),
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
            Firing::Going | Firing::Suspended => {
                "watchbell scheduler confirm-time, if the clock is right"
            }
        };
        row("then", then.to_owned());
    }
    if status.firing == Firing::Going
        && status.servers.iter().any(|server| server.firing == Some(Firing::Suspended))
    {
        row("then", "watchbell scheduler confirm-time, if the clocks are right".to_owned());
    }
    row("ready", if status.ready { "yes" } else { "no" }.to_owned());
    row("clock", status.now.to_string());
    row("shards", status.shards.to_string());
    row("cluster", escape(&status.cluster));
    row("version", format!("{} (tzdata {})", escape(&status.version), escape(&status.tzdata)));
    let mut text = table::finish(table, 2);
    if status.servers.len() > 1 {
        text.push('\n');
        text.push_str(&servers(&status.servers));
    }
    text
}

/// Each server, on one line of at most 80 columns.
fn servers(servers: &[ServerStatus]) -> String {
    let mut rows = vec![["server", "firing", "clock", "why"].map(str::to_owned).to_vec()];
    for server in servers {
        let firing = match (&server.unreached, server.firing) {
            (Some(_), _) | (None, None) => "not reached",
            (None, Some(Firing::Going)) => "going",
            (None, Some(Firing::Suspended)) => "suspended",
            (None, Some(Firing::Stopped)) => "stopped",
        };
        let why = server.unreached.as_ref().or(server.why.as_ref());
        rows.push(vec![
            escape(&server.node),
            firing.to_owned(),
            server.now.map_or_else(|| "-".to_owned(), |now| now.to_string()),
            why.map_or_else(String::new, |why| escape(why)),
        ]);
    }
    table::cut(&mut rows, 3);
    table::rows(rows, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_cluster_are_shown_on_lines_that_fit_a_terminal() {
        let server = |node: &str, unreached: Option<&str>| ServerStatus {
            node: node.to_owned(),
            unreached: unreached.map(str::to_owned),
            firing: unreached.is_none().then_some(Firing::Suspended),
            since: None,
            why: unreached.is_none().then(|| "the wall clock was set forward by 600s".to_owned()),
            now: unreached.is_none().then(|| "2027-01-15T08:00:00.123Z".parse().unwrap()),
            version: None,
        };
        let long = "no server answers at https://watchbell-2.example.com:7400: Connection refused";
        let text = servers(&[server("watchbell-1", None), server("watchbell-2", Some(long))]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("watchbell-2  not reached"), "{text}");
    }
}
