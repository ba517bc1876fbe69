//! `watchbell election`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use client::election::{
    ApproveRequest, Election, ElectionState, HandOver, Hold, HoldExit, HoldRisk, HoldState,
    ResignRequest,
};
use client::{Client, ClientError, ElectionFilter};
use engine::limits::ELECTIONS_WATCHED_MAX;

use crate::args::OutputFormat;
use crate::args::election::{
    ElectionApproveArgs, ElectionListArgs, ElectionResignArgs, ElectionShowArgs, ElectionVerb,
    ElectionWatchArgs,
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
        ElectionVerb::Approve(typed) => approve(&typed).await,
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

async fn approve(typed: &ElectionApproveArgs) -> Result<(), Ending> {
    let nothing = "nobody was let begin";
    typed.consent.check(nothing)?;
    let client = typed.server.client()?;
    let there = client.election(&typed.name).await?;
    let token = typed.token.unwrap_or(there.token);
    // Whether anybody waits under it, the server tells.
    if there.state == ElectionState::Waiting && there.token == token {
        let (holder, name) = (holder(&there), escape(&there.name));
        typed.consent.ask(&format!("Let {holder} begin with {name}?"), nothing)?;
    }
    let approved = client.approve_election(&typed.name, &ApproveRequest { token }).await?;
    print(typed.server.output, &approved, || {
        format!("{} may begin with {}.\n", holder(&approved), escape(&approved.name))
    })
}

async fn resign(typed: &ElectionResignArgs) -> Result<(), Ending> {
    typed.consent.check("nobody was asked to leave")?;
    let client = typed.server.client()?;
    let there = client.election(&typed.name).await?;
    let follows = typed.to.as_deref().map(|to| format!(", for {}", escape(to))).unwrap_or_default();
    let question = format!("Ask {} to leave {}{follows}?", holder(&there), escape(&there.name));
    typed.consent.ask(&question, "nobody was asked to leave")?;
    let request = ResignRequest { to: typed.to.clone() };
    let asked = client.resign_election(&typed.name, &request).await?;
    print(typed.server.output, &asked, || {
        format!("{} was asked to leave {}{follows}.\n", holder(&asked), escape(&asked.name))
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

/// What people see of its state: of a hold, what its program does.
fn state(election: &Election) -> String {
    let state = match (election.state, &election.hold) {
        (ElectionState::Waiting, _) => "waiting for approval",
        (ElectionState::Held | ElectionState::Free, Some(hold)) => hold_word(election, hold.state),
        (ElectionState::Held | ElectionState::Free, None) => election.state.as_str(),
    };
    let risk = election.hold.as_ref().is_some_and(|hold| !hold.at_risk.is_empty());
    let notes = [
        election.resign_wished.then(|| "asked to leave".to_owned()),
        election.resign_to.as_ref().map(|to| format!("for {}", escape(to))),
        risk.then(|| "at risk".to_owned()),
    ];
    [Some(state.to_owned())].into_iter().chain(notes).flatten().collect::<Vec<_>>().join(", ")
}

fn hold_word(election: &Election, state: HoldState) -> &'static str {
    match state {
        HoldState::WaitingForApproval => "waiting for approval",
        HoldState::WaitingToStart => "waiting to start",
        HoldState::Running => "running",
        HoldState::Stopping => "stopping",
        HoldState::Lost => "lost",
        // Whoever has it, if anybody, has not told anything yet.
        HoldState::Former => election.state.as_str(),
    }
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
    if !election.candidates.is_empty() {
        let candidates: Vec<String> = election.candidates.iter().map(|one| escape(one)).collect();
        row("candidates", candidates.join(", "));
    }
    if election.state == ElectionState::Waiting {
        let (name, token) = (escape(&election.name), election.token);
        row("to let it begin", format!("watchbell election approve {name} --token {token}"));
    }
    if let Some(hold) = &election.hold {
        hold_rows(hold, &mut row);
    }
    table::finish(table, 2)
}

/// What is known of a hold, line by line.
fn hold_rows(hold: &Hold, row: &mut impl FnMut(&str, String)) {
    row("program", escape(&hold.program));
    let told_by = escape(&hold.node);
    row("since", format!("{}, as {told_by} told under token {}", hold.since, hold.token));
    if let Some(isolation) = &hold.isolation {
        row("isolation", escape(isolation));
    }
    if let Some(pid) = hold.pid {
        row("pid of its guard", pid.to_string());
    }
    row("starts", format!("{} under that token", hold.starts));
    // The name of a list stands beside its first line.
    let mut list = |name: &str, lines: Vec<String>| {
        for (number, line) in lines.into_iter().enumerate() {
            row(if number == 0 { name } else { "" }, line);
        }
    };
    list("last exits", hold.exits.iter().map(exit_text).collect());
    list("last hand-overs", hold.hand_overs.iter().map(hand_over_text).collect());
    list("at risk", hold.at_risk.iter().map(risk_text).collect());
}

fn exit_text(exit: &HoldExit) -> String {
    let (how, node) = (escape(&exit.how), escape(&exit.node));
    format!("{}  {how} on {node}, after {}", exit.at, millis(exit.ran_ms))
}

fn hand_over_text(came: &HandOver) -> String {
    let from = came.from.as_ref().map_or_else(|| "nobody".to_owned(), |from| escape(from));
    let took = came
        .took_ms
        .map_or_else(|| "not started".to_owned(), |took| format!("{} without it", millis(took)));
    format!("{}  {from} to {}: {}, {took}", came.at, escape(&came.to), came.cause.as_str())
}

fn risk_text(risk: &HoldRisk) -> String {
    let times = if risk.count == 1 { "once".to_owned() } else { format!("{} times", risk.count) };
    format!("{}  {}, {times}: {}", risk.last, risk.reason.as_str(), escape(&risk.what))
}

/// A length, exactly if it is short.
fn millis(millis: u64) -> String {
    let length = Duration::from_millis(millis);
    if length < Duration::from_secs(60) {
        return format!("{:.3}s", length.as_secs_f64());
    }
    engine::length::text(length)
}

#[cfg(test)]
mod tests {
    use client::election::{ElectionHolder, HandOverCause, RiskReason};

    use super::*;

    fn held() -> Election {
        let at: client::Timestamp = "2026-11-16T18:03:41Z".parse().unwrap();
        let hold = Hold {
            state: HoldState::Running,
            node: "web-1".into(),
            token: 7,
            since: at,
            program: "/usr/bin/nightly".into(),
            isolation: Some("namespace".into()),
            pid: Some(4_711),
            starts: 2,
            exits: vec![HoldExit {
                at,
                ran_ms: 61_500,
                how: "exit 1".into(),
                node: "web-1".into(),
            }],
            hand_overs: vec![
                HandOver {
                    at,
                    from: Some("web-2".into()),
                    to: "web-1".into(),
                    token: 7,
                    cause: HandOverCause::Lost,
                    took_ms: Some(6_250),
                },
                HandOver {
                    at,
                    from: None,
                    to: "web-2".into(),
                    token: 5,
                    cause: HandOverCause::First,
                    took_ms: None,
                },
            ],
            at_risk: vec![HoldRisk {
                reason: RiskReason::SlowKill,
                count: 2,
                last: at,
                what: "the tree was empty 40 ms late".into(),
            }],
        };
        Election {
            name: "nightly".into(),
            state: ElectionState::Held,
            token: 7,
            holder: Some(ElectionHolder {
                node: "web-1".into(),
                ttl_ms: Some(5_000),
                renewed: Some(at),
            }),
            resign_wished: true,
            resign_to: Some("web-3".into()),
            candidates: vec!["web-2".into(), "web-3".into()],
            hold: Some(hold),
        }
    }

    #[test]
    fn all_of_a_hold_is_shown() {
        let text = show_text(&held());
        for line in [
            "state              running, asked to leave, for web-3, at risk",
            "candidates         web-2, web-3",
            "program            /usr/bin/nightly",
            "pid of its guard   4711",
            "starts             2 under that token",
            "last exits         2026-11-16T18:03:41Z  exit 1 on web-1, after 1m1s",
            "last hand-overs    2026-11-16T18:03:41Z  web-2 to web-1: lost, 6.250s without it",
            "                   2026-11-16T18:03:41Z  nobody to web-2: first, not started",
            "at risk            2026-11-16T18:03:41Z  slow_kill, 2 times: the tree was empty 40 ms late",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn whoever_waits_is_shown_with_what_to_type() {
        let waiting = Election { state: ElectionState::Waiting, hold: None, ..held() };
        let text = show_text(&waiting);
        assert!(text.contains("waiting for approval"), "{text}");
        assert!(text.contains("watchbell election approve nightly --token 7"), "{text}");
    }
}
