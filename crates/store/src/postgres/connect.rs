//! Connections: to the first host of the list that takes writes, wherever that is at the moment.
//!
//! An attempt that hangs is given up after [`STORE_CONNECT_MAX`]. If it is dropped in the middle, the next attempt begins
//! with the next host.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use engine::limits::{STORE_ANSWER_MAX, STORE_CONNECT_MAX};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::option::{Options, TlsMode, password};
use super::tls;
use crate::{Address, StoreHost};

/// After so long without a word it is looked whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(5);

type TlsStream = <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream;

/// What a connection hears beside answers.
pub(super) type Hearer = Arc<dyn Fn(&str) + Send + Sync>;

/// Makes connections. Clones share what they know.
#[derive(Clone)]
pub(super) struct PostgresConnector(Arc<Inner>);

struct Inner {
    hosts: Vec<(StoreHost, Config)>,
    tls: MakeRustlsConnect,
    /// The host to begin with.
    first: AtomicUsize,
    /// Warnings of the server on any connection.
    warnings: AtomicU64,
}

impl PostgresConnector {
    /// A connector to these hosts; or why the file of certificates cannot be used.
    pub(super) fn new(at: &Address, options: &Options) -> Result<Self, String> {
        let hosts = at.hosts.iter().map(|host| (host.clone(), config(at, host, options.tls)));
        Ok(Self(Arc::new(Inner {
            hosts: hosts.collect(),
            tls: tls::connector(options.tls, options.ca.as_deref())
                .map_err(|why| why.to_string())?,
            first: AtomicUsize::new(0),
            warnings: AtomicU64::new(0),
        })))
    }

    /// How often a server has warned. A commit during which it did is in doubt: this is how a server says that it
    /// stopped waiting for its standbys.
    pub(super) fn warnings(&self) -> u64 {
        self.0.warnings.load(Ordering::SeqCst)
    }

    /// The next connection begins with the next host: the present one answers, and is not to be believed.
    pub(super) fn move_on(&self) {
        let next = |place| Some((place + 1) % self.0.hosts.len());
        let _ = self.0.first.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Connects; or says what was wrong with each host.
    pub(super) async fn connect(
        &self,
        hearer: Option<Hearer>,
    ) -> Result<(Client, JoinHandle<()>), Vec<(StoreHost, Error)>> {
        let inner = &self.0;
        let begin = inner.first.load(Ordering::SeqCst);
        let mut faults = Vec::new();
        for step in 0..inner.hosts.len() {
            let place = (begin + step) % inner.hosts.len();
            inner.first.store((place + 1) % inner.hosts.len(), Ordering::SeqCst);
            let (host, config) = &inner.hosts[place];
            match timeout(STORE_CONNECT_MAX, self.greet(config, hearer.clone())).await {
                Ok(Ok(connected)) => {
                    inner.first.store(place, Ordering::SeqCst);
                    return Ok(connected);
                }
                Ok(Err(why)) => faults.push((host.clone(), why)),
                // The client has no other way to make an error of its own kind.
                Err(_) => faults.push((host.clone(), Error::__private_api_timeout())),
            }
        }
        Err(faults)
    }

    async fn greet(
        &self,
        config: &Config,
        hearer: Option<Hearer>,
    ) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, connection) = config.connect(self.0.tls.clone()).await?;
        let task = drive(connection, Arc::clone(&self.0), hearer);
        match be_committed(&client).await {
            Ok(()) => Ok((client, task)),
            Err(why) => {
                task.abort();
                Err(why)
            }
        }
    }
}

impl Connect for PostgresConnector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async {
            let connected = Self::connect(self, None).await;
            connected.map_err(|mut faults| faults.pop().expect("there is a host").1)
        })
    }
}

/// A commit has to see what was committed before each of its statements, whatever the user's transactions are like
/// otherwise. Nothing is set where nothing needs to be: behind a pooler others would inherit it.
async fn be_committed(client: &Client) -> Result<(), Error> {
    let rows = client.query_typed("SELECT current_setting('transaction_isolation')", &[]).await?;
    let level: &str = rows.first().map_or("", |row| row.get(0));
    if level != "read committed" {
        client.batch_execute("SET default_transaction_isolation = 'read committed'").await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "whoever holds the client ends it with the client")]
fn drive(
    mut connection: Connection<Socket, TlsStream>,
    inner: Arc<Inner>,
    hearer: Option<Hearer>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    if notice.parsed_severity() == Some(Severity::Warning) {
                        inner.warnings.fetch_add(1, Ordering::SeqCst);
                        tracing::warn!(notice = notice.message(), "the store's engine warns");
                    }
                }
                Some(Ok(AsyncMessage::Notification(heard))) => {
                    if let Some(hearer) = &hearer {
                        hearer(heard.payload());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(why)) => {
                    tracing::debug!(why = %super::fault::sentence(&why), "a connection to the store ended");
                    return;
                }
                None => return,
            }
        }
    })
}

fn config(at: &Address, host: &StoreHost, tls: TlsMode) -> Config {
    let mut config = Config::new();
    config.host(&host.name).port(host.port).application_name("watchbell");
    if let Some(user) = &at.user {
        config.user(user);
    }
    if let Some(password) = password(at) {
        config.password(password);
    }
    if !at.path.is_empty() {
        config.dbname(&at.path);
    }
    config
        .ssl_mode(match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        })
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(STORE_CONNECT_MAX)
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE)
        .tcp_user_timeout(STORE_ANSWER_MAX);
    config
}
