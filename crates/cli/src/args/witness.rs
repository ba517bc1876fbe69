//! `watchbell witness` and `watchbell demo-signer`, as they are typed.

use std::net::SocketAddr;
use std::time::Duration;

use witness::limits::{EVERY_MAX, EVERY_MIN, GAP_MAX, GAP_MIN, WATCH_MAX, WATCH_MIN};

use super::elect::between;
use super::{OutputFormat, address, examples};

/// Watch from outside whether two programs of a hold ever act at a time, and report it at the end
///
/// Programs send ticks, as datagrams or by HTTP; each says who acted, under which token, and when. An overlap is two starts of
/// a program whose ticks interleave. It, a token that goes back, a gap and a fail-over are told on stderr when they
/// are seen. At Ctrl-C a chart of who acted when and all that was found come on stdout; the exit code is 13 if there was an
/// overlap or a token that went back. Until then /chart, /report, /events and /metrics show it.
///
/// Whoever can reach it can send ticks and read all of it: it has no keys, and by default listens on loopback.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell witness\n  \
       watchbell witness --listen 0.0.0.0:7500 --gap 2s\n  \
       watchbell witness --for 1h --output json > report.json\n  \
       watchbell hold reports --store etcd://10.0.0.1 -- watchbell demo-signer --witness 10.0.0.9:7500"
))]
pub(crate) struct WitnessArgs {
    /// Where to listen for requests, and for datagrams at the same number; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7500", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Listen there for datagrams instead
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) udp: Option<SocketAddr>,
    /// End by itself after so long
    #[arg(long = "for", value_name = "LENGTH", value_parser = watch)]
    pub(crate) length: Option<Duration>,
    /// Tell when nobody acts for longer than this
    #[arg(long, value_name = "LENGTH", default_value = "1s", value_parser = gap)]
    pub(crate) gap: Duration,
    /// How to show the report: a chart and sentences, or a JSON object
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Be the program that must not run twice: send a tick to a witness every 50 ms
///
/// A hold starts it and tells it in its environment under which name and token. Each start of it is an instance of its own. A
/// tick that cannot leave at once is dropped, and its number is missing: nothing is sent later for the time in
/// which it was stopped. A witness that is away ends nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell hold reports --store file:./bells -- watchbell demo-signer\n  \
       watchbell demo-signer --hold reports --token 7 --witness 10.0.0.9:7500 --http"
))]
pub(crate) struct SignerArgs {
    /// The witness: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7500", value_parser = place)]
    pub(crate) witness: String,
    /// Send ticks by HTTP, one at a time, instead of datagrams
    #[arg(long)]
    pub(crate) http: bool,
    /// Between two ticks
    #[arg(long, value_name = "LENGTH", default_value = "50ms", value_parser = every)]
    pub(crate) every: Duration,
    /// The hold under which it runs
    #[arg(long, value_name = "NAME", env = "WATCHBELL_HOLD")]
    pub(crate) hold: String,
    /// The token that the hold has
    #[arg(long, value_name = "N", env = "WATCHBELL_TOKEN", default_value_t = 0)]
    pub(crate) token: u64,
    /// The node that started it; the name of this machine, if it is not given
    #[arg(long, value_name = "NAME", env = "WATCHBELL_NODE")]
    pub(crate) node: Option<String>,
}

fn watch(text: &str) -> Result<Duration, String> {
    between(text, WATCH_MIN, WATCH_MAX)
}

fn gap(text: &str) -> Result<Duration, String> {
    between(text, GAP_MIN, GAP_MAX)
}

fn every(text: &str) -> Result<Duration, String> {
    between(text, EVERY_MIN, EVERY_MAX)
}

/// A host and a port. Whether there is such a host shows when it is called.
fn place(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(port)) if port > 0 => Ok(text.to_owned()),
        _ => Err("write a host and a port, like 127.0.0.1:7500 or witness.example.com:7500".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_taken_up_to_their_limits_and_refused_one_past_them() {
        type Reader = fn(&str) -> Result<Duration, String>;
        let rows: [(Reader, &str, &str, &str, &str); 3] = [
            (watch, "100ms", "99ms", "30d", "2592001s"),
            (gap, "10ms", "9ms", "1h", "3601s"),
            (every, "1ms", "0ms", "1h", "3601s"),
        ];
        for (read, least, below, most, above) in rows {
            assert!(read(least).is_ok() && read(most).is_ok(), "{least} {most}");
            assert!(read(below).is_err() && read(above).is_err(), "{below} {above}");
        }
    }

    #[test]
    fn a_witness_is_a_host_and_a_port() {
        for text in ["127.0.0.1:7500", "localhost:1", "[::1]:65535", "a.example.com:80"] {
            assert_eq!(place(text), Ok(text.to_owned()));
        }
        for text in ["", "7500", ":7500", "host", "host:", "host:0", "host:65536"] {
            assert!(place(text).unwrap_err().contains("like 127.0.0.1:7500"), "{text}");
        }
    }
}
