//! `watchbell dev`: a whole Watchbell in one process, for one machine.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use server::api::ApiSecurity;
use server::node::{HistoryPace, NodeConfig};
use server::peers::ROLES;
use server::webhook::Cidr;
use store::{StoreUrl, open_or_create};

use crate::args::DevArgs;
use crate::exit::{Ending, say};
use crate::serve::{ServePlan, TTL, serve};

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
    let url = StoreUrl::parse(&format!("file:{}", typed.data.display()))?;
    let plan = ServePlan {
        listen: typed.listen,
        webhook_ca: typed.webhook_ca.as_deref(),
        store: open_or_create(&url),
        config: |at| config(typed, at),
        security: ApiSecurity::open(),
    };
    serve(plan, async |at, _| {
        tell(at, &typed.data);
        Ok(())
    })
    .await
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

/// Says where it is, and the three lines to try next. Who has closed stdout, as `| head -1` does, has had
/// enough of it; the server goes on.
fn tell(at: SocketAddr, data: &Path) {
    let mut out = io::stdout().lock();
    let told = out.write_all(welcome(at, data).as_bytes()).and_then(|()| out.flush());
    if let Err(why) = told {
        say(&format!("listening on http://{at}, which could not be said on stdout: {why}"));
    }
}

/// In the words by which this program was started.
fn welcome(at: SocketAddr, data: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "watchbell".to_owned());
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+~".contains(char);
    let program = if program.chars().all(is_plain) { program } else { format!("'{program}'") };
    let server = if at.port() == 7400 { String::new() } else { format!(" --server http://{at}") };
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
