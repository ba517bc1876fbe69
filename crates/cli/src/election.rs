//! `watchbell election`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use client::election::Election;
use client::{Client, ClientError, ElectionFilter};
use engine::limits::ELECTIONS_WATCHED_MAX;

use crate::args::OutputFormat;
use crate::args::election::{
    ElectionListArgs, ElectionResignArgs, ElectionShowArgs, ElectionVerb, ElectionWatchArgs,
};
use crate::exit::Ending;
use crate::outage::Outage;
use crate::table;
use crate::trigger::{print, print_list};
use crate::value::escape;

/// How often elections are looked at.
const POLL: Duration = Duration::from_secs(1);

pub(crate) async fn election(verb: ElectionVerb) -> Result<(), Ending> {
    match verb {
        ElectionVerb::List(typed) => list(typed).await,
        ElectionVerb::Show(typed) => show(&typed).await,
        ElectionVerb::Resign(typed) => resign(&typed).await,
        ElectionVerb::Watch(typed) => watch(&typed).await,
    }
}

async fn list(typed: ElectionListArgs) -> Result<(), Ending> {
    let filter = ElectionFilter {
        prefix: typed.prefix,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.elections(&filter).await?;
    let none = "There are no such elections: one begins when somebody campaigns.";
    let header = ["name", "state", "holder", "token", "last sign of life"];
    print_list(typed.server.output, &page, Some(none), header, |election| {
        let (name, token) = (escape(&election.name), election.token.to_string());
        [name, state(election), holder(election), token, renewed(election)]
    })
}

async fn show(typed: &ElectionShowArgs) -> Result<(), Ending> {
    let election = typed.server.client()?.election(&typed.name).await?;
    print(typed.server.output, &election, || show_text(&election))
}

async fn resign(typed: &ElectionResignArgs) -> Result<(), Ending> {
    typed.consent.check("nobody was asked to leave")?;
    let client = typed.server.client()?;
    let there = client.election(&typed.name).await?;
    let question = format!("Ask {} to leave {}?", holder(&there), escape(&there.name));
    typed.consent.ask(&question, "nobody was asked to leave")?;
    let asked = client.resign_election(&typed.name).await?;
    print(typed.server.output, &asked, || {
        format!("{} was asked to leave {}.\n", holder(&asked), escape(&asked.name))
    })
}

async fn watch(typed: &ElectionWatchArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let (mut known, mut count, mut outage) = (BTreeMap::new(), 0_u64, Outage::default());
    loop {
        match look(&client, typed.name.as_deref()).await {
            Ok(elections) => {
                outage.end();
                for election in elections {
                    let news = (state(&election), holder(&election), election.token);
                    if known.insert(election.name.clone(), news.clone()) == Some(news) {
                        continue;
                    }
                    tell(typed.server.output, &election)?;
                    count += 1;
                    if typed.count.is_some_and(|most| count >= most) {
                        return Ok(());
                    }
                }
            }
            Err(why) => tokio::select! {
                waited = outage.wait(why) => {
                    waited?;
                    continue;
                }
                _ = tokio::signal::ctrl_c() => return Ok(()),
            },
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            // Whoever follows ends it so: that is fine.
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

async fn look(client: &Client, name: Option<&str>) -> Result<Vec<Election>, ClientError> {
    match name {
        Some(name) => match client.election(name).await {
            Ok(election) => Ok(vec![election]),
            // Nobody has campaigned for it yet.
            Err(ClientError::NotFound(_)) => Ok(Vec::new()),
            Err(why) => Err(why),
        },
        None => {
            Ok(client.all_elections(ElectionFilter::default(), ELECTIONS_WATCHED_MAX).await?.items)
        }
    }
}

/// One line, out at once: somebody waits for it.
fn tell(output: OutputFormat, election: &Election) -> Result<(), Ending> {
    let line = match output {
        OutputFormat::Json => serde_json::to_string(election).expect("elections always serialize"),
        OutputFormat::Table => format!(
            "{}  {}  {}  token {}",
            escape(&election.name),
            state(election),
            holder(election),
            election.token
        ),
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn state(election: &Election) -> String {
    let state = election.state.as_str();
    if election.resign_wished { format!("{state}, asked to leave") } else { state.to_owned() }
}

fn holder(election: &Election) -> String {
    election.holder.as_ref().map_or_else(|| "nobody".to_owned(), |holder| escape(&holder.node))
}

fn renewed(election: &Election) -> String {
    let renewed = election.holder.as_ref().and_then(|holder| holder.renewed);
    renewed.map(|renewed| renewed.to_string()).unwrap_or_default()
}

fn show_text(election: &Election) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("name", escape(&election.name));
    row("state", state(election));
    row("holder", holder(election));
    row("token", election.token.to_string());
    if let Some(ttl_ms) = election.holder.as_ref().and_then(|holder| holder.ttl_ms) {
        row("last sign of life", format!("{}, by its own clock", renewed(election)));
        row("good for", format!("{ttl_ms} ms after each; how much is left only it knows"));
    }
    table::finish(table, 2)
}
