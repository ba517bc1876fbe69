//! `watchbell server`, as it is typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use server::peers::ROLES;

use super::{address, examples};

/// Run a server that others can reach: API, scheduler and webhooks, on a store
///
/// Everybody who asks something needs a key. The first one, an admin's, is written to a file when the store has
/// none; a key that is in that file already becomes the first one. Stop it with Ctrl-C or SIGTERM: what is under
/// way ends first.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell server --store file:/var/lib/watchbell\n  \
       watchbell server --store file:/var/lib/watchbell --listen 0.0.0.0:7400 \\\n      \
       --tls-cert server.pem --tls-key server.key --admin-key-file /etc/watchbell/admin-key\n  \
       watchbell server --store file:/var/lib/watchbell --listen 10.0.0.5:7400 --insecure"
))]
pub(crate) struct ServeArgs {
    /// Where everything is kept: the kind of store, a colon, and the place
    #[arg(long, value_name = "URL", env = "WATCHBELL_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// Where to listen: an address and a port; port 0 takes any that is free
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "WATCHBELL_LISTEN",
        default_value = "127.0.0.1:7400",
        value_parser = address
    )]
    pub(crate) listen: SocketAddr,
    /// A PEM file with the certificate of this server
    ///
    /// Those of its issuers follow it. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "WATCHBELL_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of that certificate
    #[arg(long, value_name = "FILE", env = "WATCHBELL_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen without encryption although others can reach this server
    ///
    /// That is for servers behind something that encrypts.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The file with the first admin key
    #[arg(
        long,
        value_name = "FILE",
        env = "WATCHBELL_ADMIN_KEY_FILE",
        default_value = "./watchbell-admin-key"
    )]
    pub(crate) admin_key_file: PathBuf,
    /// The name of this node; that of the machine, if it is not given
    #[arg(long, value_name = "NAME", env = "WATCHBELL_NODE")]
    pub(crate) node: Option<String>,
    /// Where others reach this server; where it listens, if it is not given
    #[arg(long, value_name = "URL", env = "WATCHBELL_URL")]
    pub(crate) url: Option<String>,
    /// What this server does: answer requests, have shards, or both; with a comma between
    #[arg(
        long,
        value_name = "ROLES",
        env = "WATCHBELL_ROLES",
        default_value = "api,schedule",
        value_delimiter = ',',
        value_parser = role
    )]
    pub(crate) roles: Vec<String>,
    /// How many shards a new cluster has: 1 to 4096 [default: 32]
    ///
    /// Fixed for ever when its first server starts.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "WATCHBELL_SHARDS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(engine::limits::SHARDS_MAX))
    )]
    pub(crate) shards: Option<u16>,
    /// Trust the issuers in this PEM file as well in other servers of the cluster
    ///
    /// This server passes requests on to them.
    #[arg(long, value_name = "FILE", env = "WATCHBELL_PEER_CA")]
    pub(crate) peer_ca: Option<PathBuf>,
    /// Let webhooks call this range of addresses, which is not public; may be given several times
    #[arg(long, value_name = "CIDR", env = "WATCHBELL_WEBHOOK_ALLOW", value_delimiter = ',')]
    pub(crate) webhook_allow: Vec<server::webhook::Cidr>,
    /// Let webhooks trust the issuers in this PEM file as well
    #[arg(long, value_name = "FILE", env = "WATCHBELL_WEBHOOK_CA")]
    pub(crate) webhook_ca: Option<PathBuf>,
    /// Notify this URL, by a webhook, when something is wrong with the cluster
    ///
    /// A server is lost, a clock is apart, or nobody has had a shard for 10 seconds.
    #[arg(long, value_name = "URL", env = "WATCHBELL_NOTIFY_URL", hide_env_values = true)]
    pub(crate) notify_url: Option<String>,
}

fn role(text: &str) -> Result<String, String> {
    match ROLES.iter().find(|role| **role == text) {
        Some(role) => Ok((*role).to_owned()),
        None => Err(format!(
            "a role is one of {}: give one or both, as in {}",
            ROLES.join(", "),
            ROLES.join(",")
        )),
    }
}
